// SPDX-License-Identifier: Apache-2.0
//! `bartizan run` that belongs to a controller: the controller's policies refuse traffic, stay in force
//! without the controller and over a restart, and are refused whole when broken; alerts and counters arrive
//! once (needs root; without, it prints so and returns).

use crate::command_socket;
use crate::common;
use crate::inline_pair;
use crate::level;
use crate::namespace;
use crate::office;

use bartizan_agent::session::ControllerGeneration;
use bartizan_agent::session::store::{FileStore, GenerationStore};
use bartizan_api::southbound::{
    GroupRules, LevelStands, LevelState, LevelStatus, Object, Policy, RuleGroup, RuleType,
};
use bartizan_ports::InlinePort;
use command_socket::Client;
use common::{Folder, Running, get, run, until, value};
use inline_pair::{network, start};
use namespace::in_namespace;
use office::Site;
use serde_json::{Value, json};
use std::sync::Arc;

const NOTHING: Value = Value::Null;
const FILE: u32 = 17;

fn host(more: &str) -> String {
    format!(
        "links: [{{name: wan, inline: {{a: a1, b: b1}}}}]\ncache: none\noutputs: {{eve: {{dir: out}}}}\ncontrol: {{socket: c.socket}}\n\
         metrics: {{listen: '127.0.0.1:9100'}}\nsettings: {{capture.checksum-validation: none}}\n\
         controller: {{address: '{}', identity: identity, state: state/edge, statistics-every: 1s}}\n{more}",
        office::ADDRESS
    )
}

/// Sends datagrams of new flows to these ports; returns the ports of those that came out at the other end.
fn passed(net: &mut [InlinePort; 2], ports: &[u16]) -> Vec<u16> {
    use std::sync::atomic::{AtomicU16, Ordering};
    static SOURCE: AtomicU16 = AtomicU16::new(1_024);
    let flow = |port: &u16| (SOURCE.fetch_add(1, Ordering::Relaxed), *port);
    let flows: Vec<_> = ports.iter().map(flow).collect();
    inline_pair::passed(net, &flows).into_iter().map(|(_, port)| port).collect()
}

fn part(tenant: u16, name: &str, text: &Value) -> Object {
    Object::Policy(Policy { name: name.into(), tenant, text: text.to_string() })
}

fn tenant() -> Object {
    part(
        3,
        "@tenant",
        &json!({"tenant": {"name": "acme", "select": {"prefixes": ["192.0.2.0/24"]}}, "order": 100}),
    )
}

/// The policy of the tenant that passes datagrams to one port and inspects them.
fn web(port: u16) -> Object {
    let said = json!({
        "name": "acme/web", "tenant": ["acme"], "chain": ["pfw", "ids"], "ids": {"level": "web"},
        "pfw": {"default": "drop", "rules": [{"allow": "udp", "to-ports": [port]}]},
    });
    part(3, "web", &json!({"policy": said, "order": 10}))
}

fn library(sids: &[u32]) -> [Object; 2] {
    let lines = [
        "# chosen by id",
        "alert udp any any -> any any (msg:\"seen\"; content:\"secret\"; sid:2001; rev:3;)",
        "alert udp any any -> any any (content:\"a\"; sid:2002;)",
        "",
    ];
    let rules = GroupRules::Raw(lines.map(str::to_owned).to_vec());
    let text = json!({"library": {"files": [{"group": FILE, "sha256": "web.rules"}], "choose": [{"sids": sids}], "except": []}});
    [
        part(0, "@library/web", &text),
        Object::Group(RuleGroup { id: FILE, tenant: 0, rule_type: RuleType::Ids, rules }),
    ]
}

fn generation(port: u16, sids: &[u32]) -> Vec<Object> {
    let default = part(0, "@default", &json!({"default": {"action": "drop"}}));
    [default, tenant(), web(port)].into_iter().chain(library(sids)).collect()
}

fn begin(more: &str) -> (Folder, [InlinePort; 2], Site) {
    let folder = Folder::new();
    let net = network();
    let site = Site::new(&folder.path("ca"), &[0, 3]);
    site.enrol(&folder.path("identity"));
    folder.write("bartizan.yaml", host(more));
    (folder, net, site)
}

#[test]
fn what_a_controller_says_runs_and_outlives_it() {
    in_namespace(|| {
        let (folder, mut net, site) = begin("");
        let running = start(&folder);
        // Nothing has come: nothing goes on.
        running.until("inline links forward nothing");
        assert!(passed(&mut net, &[4000]).is_empty());
        site.publish(1, &generation(4000, &[2001]));
        until("generation 1", || site.acknowledged() == 1);
        assert_eq!(site.running().workers[0].levels, [("host".to_owned(), 1)].into());
        assert_eq!(passed(&mut net, &[53, 4000, 5000]), [4000]);
        reports(&site);
        broken(&site, &mut net, &running);
        site.publish(3, &generation(5000, &[2001, 2002]));
        until("generation 3", || site.acknowledged() == 3);
        assert_eq!(passed(&mut net, &[4000, 5000]), [5000]);
        let told = Client::greeted(&folder.path("c.socket")).ok("controller", NOTHING);
        assert_eq!(
            (&told["connected"], &told["generation"], &told["device"]),
            (&json!(true), &json!(3), &json!("edge"))
        );
        let page = get("/metrics");
        assert_eq!(value(&page, "bartizan_southbound_generation", &[]), 3);
        assert_eq!(value(&page, "bartizan_southbound_connected", &[]), 1);
        // A reload builds the stored generation.
        running.signal("USR2");
        running.until("generation 4: 2 rules loaded");
        assert_eq!(passed(&mut net, &[4000, 5000]), [5000]);
        // The controller has gone.
        drop(site);
        assert_eq!(passed(&mut net, &[4000, 5000]), [5000]);
        running.signal("KILL");
        drop(running);
        // Its first packets.
        let running = start(&folder);
        assert_eq!(passed(&mut net, &[4000, 5000]), [5000]);
        assert!(running.stderr().contains("the stored generation 3 is running"), "{}", running.stderr());
        let ended = running.stop();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        // A device that lost its key keeps its protection.
        std::fs::remove_dir_all(folder.path("identity")).unwrap();
        let running = start(&folder);
        running.until("keeps running without updates");
        assert_eq!(passed(&mut net, &[4000, 5000]), [5000]);
        assert_eq!(running.stop().code, Some(0));
    });
}

/// A group of the tenant with its role.
fn group(name: &str, member: &str, role: &str) -> Object {
    let full = format!("{name}@acme");
    let labels = json!({&full: {"role": role, "@tenant": "acme"}});
    part(3, &format!("@group/{name}"), &json!({"groups": {full: [member]}, "labels": labels}))
}

#[test]
fn which_group_carries_a_label_is_in_force_with_the_generation_that_says_so() {
    in_namespace(|| {
        let (folder, mut net, site) = begin("");
        let _running = start(&folder);
        let said = json!({
            "name": "acme/web", "tenant": ["acme"], "chain": ["pfw"], "from": {"label": {"role": "web", "@tenant": "acme"}},
            "pfw": {"default": "drop", "rules": [{"allow": "udp", "to-ports": [4000]}]},
        });
        let roles = |sender: &str, other: &str| {
            vec![
                part(0, "@default", &json!({"default": {"action": "drop"}})),
                part(0, "@dns", &json!({"dns": {"resolvers": ["192.0.2.53"]}})),
                tenant(),
                group("a", "192.0.2.1", sender),
                group("b", "198.51.100.7", other),
                part(3, "web", &json!({"policy": said, "order": 10})),
            ]
        };
        site.publish(1, &roles("db", "web"));
        until("generation 1", || site.acknowledged() == 1);
        assert!(passed(&mut net, &[4000]).is_empty());
        // The policy stays as it is; the group has another role.
        site.publish(2, &roles("web", "db"));
        until("generation 2", || site.acknowledged() == 2);
        assert_eq!(passed(&mut net, &[4000, 5000]), [4000]);
    });
}

#[test]
fn without_an_identity_and_anything_stored_a_run_does_not_begin() {
    in_namespace(|| {
        let folder = Folder::new();
        let _net = network();
        folder.write("bartizan.yaml", host(""));
        let ended = run(&folder.0, &["run", "-c", "bartizan.yaml"]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("enrol the device (`bartizan ca enrol"), "{}", ended.stderr);
    });
}

/// The alert and the counters of one datagram come, once.
fn reports(site: &Site) {
    until("an alert", || !site.shared().alerts.is_empty());
    until("counters", || site.shared().counters.contains_key("tenant/acme/web/packets"));
    let shared = site.shared();
    let alert = &shared.alerts[0];
    let said = (shared.alerts.len(), alert.key.as_str(), alert.count, alert.message.as_str());
    assert_eq!(said, (1, "3/1:2001:3/192.0.2.1/192.0.2.2", 1, "seen"));
    let event = &alert.event;
    assert_eq!(
        (&event["link"], &event["dest_port"], &event["proto"]),
        (&json!("wan"), &json!(4000), &json!("UDP"))
    );
    assert_eq!((&event["alert"]["signature_id"], event.get("payload")), (&json!(2001), None));
    let counted = |name: &str| shared.counters.get(name).copied().unwrap_or(0);
    assert_eq!((counted("tenant/acme/web/packets"), counted("tenant/acme/web/refused")), (3, 2));
    assert_eq!(counted("tenant/acme/web/alerts"), 1);
    // With the datagram that came before there was a policy, and what the kernel says by itself.
    assert!(counted("link/wan/packets") >= 4);
}

/// A policy that cannot be built.
fn bad() -> Object {
    let bad = json!({"name": "acme/bad", "tenant": ["acme"], "chain": ["pfv"]});
    part(3, "bad", &json!({"policy": bad, "order": 1}))
}

/// The program was killed while it built a broken generation, which was stored beside the running one: the
/// earlier generation stays in force.
fn killed_while_it_built(folder: &Folder, net: &mut [InlinePort; 2]) {
    let mut store = FileStore::new(&folder.path("state/edge"));
    let held = store.load().unwrap();
    store.save(&held).unwrap();
    let mut broken = ControllerGeneration { generation: 2, ..held };
    broken.objects.insert(bad().key(), Arc::new(bad()));
    assert!(store.save_ahead(&broken).unwrap());
    let running = start(folder);
    running.until("the stored generation 2 cannot be used");
    running.until("the stored generation 1 is running");
    assert_eq!(passed(net, &[4000, 7000]), [4000]);
    assert_eq!(running.stop().code, Some(0));
    // It could be built, but the start that tried ended over it: the one before it is begun with.
    let mut store = FileStore::new(&folder.path("state/edge"));
    assert_eq!(store.load().unwrap().generation, 2);
    let good = store.before().unwrap();
    store.save(&good).unwrap();
    assert!(store.save_ahead(&ControllerGeneration { generation: 2, ..good }).unwrap());
    let mut tried = FileStore::new(&folder.path("state/edge"));
    assert!(tried.load().is_ok() && tried.may_build().unwrap());
    let running = start(folder);
    running.until("the program ended twice while it built it");
    running.until("the stored generation 1 is running");
    assert_eq!(passed(net, &[4000, 7000]), [4000]);
    assert_eq!(running.stop().code, Some(0));
}

/// A generation that cannot be built is refused whole, with the place in its object, and the running one
/// goes on.
fn broken(site: &Site, net: &mut [InlinePort; 2], running: &Running) {
    let mut objects = generation(5000, &[2001]);
    objects.push(bad());
    site.publish(2, &objects);
    until("a refusal", || !site.shared().refused.is_empty());
    let diagnostic = site.shared().refused[0].diagnostics[0].clone();
    assert_eq!(
        (diagnostic.object.as_str(), diagnostic.pointer.as_str()),
        ("policy:3:bad", "/policy/chain/0")
    );
    assert!(diagnostic.message.contains("no function `pfv`"), "{}", diagnostic.message);
    running.until("generation 2 of the controller is refused");
    assert_eq!((passed(net, &[4000, 5000]), site.acknowledged()), (vec![4000], 1));
}

#[test]
fn what_was_stored_and_is_broken_is_said_and_the_hosts_own_policy_holds() {
    in_namespace(|| {
        let (folder, mut net, site) = begin("policy: own.yaml\n");
        folder.write(
            "own.yaml",
            "policies: [{name: own, chain: [pfw], pfw: {default: drop, rules: [{allow: udp, to-ports: 7000}]}}]\ndefault: {action: drop}\n",
        );
        let running = start(&folder);
        running.until("own.yaml applies");
        assert_eq!(passed(&mut net, &[4000, 7000]), [7000]);
        site.publish(1, &generation(4000, &[2001]));
        until("generation 1", || site.acknowledged() == 1);
        assert_eq!(passed(&mut net, &[4000, 7000]), [4000]);
        assert_eq!(running.stop().code, Some(0));
        killed_while_it_built(&folder, &mut net);
        let list = folder.path("state/edge/generation.json");
        std::fs::write(&list, "{").unwrap();
        drop(site);
        let running = start(&folder);
        running.until("the stored generation cannot be read");
        assert_eq!(passed(&mut net, &[4000, 7000]), [7000]);
        assert_eq!(running.stop().code, Some(0));
    });
}

/// Two links; the first has a level below, with early drop by rules.
fn host_with_level() -> String {
    let links = "links: [{name: wan, inline: {a: a1, b: b1, offload: {level: xdp, early-drop: true}}}, {name: lan, inline: {a: c1, b: d1}}]";
    let host = host("");
    let (_, rest) = host.split_once('\n').unwrap();
    format!("{links}\n{rest}")
}

/// The device's report of its levels.
fn stands(site: &Site) -> LevelStatus {
    site.running().stands.unwrap_or_default()
}

fn level_of(stands: &LevelStatus, link: &str, level: &str) -> Option<LevelStands> {
    stands.levels.iter().find(|of| (of.link.as_str(), of.level.as_str()) == (link, level)).cloned()
}

#[test]
fn what_each_level_does_and_which_rules_nobody_evaluates_is_told() {
    in_namespace(|| {
        let folder = Folder::new();
        let (_net, _other) = (level::network(1500), level::ends(["c", "d"], 1500));
        let site = Site::new(&folder.path("ca"), &[0, 3]);
        site.enrol(&folder.path("identity"));
        folder.write("bartizan.yaml", host_with_level());
        let _running = start(&folder);
        let mut objects = generation(4000, &[2001, 2003]);
        let lines = [
            "alert udp any any -> any any (content:\"secret\"; sid:2001;)",
            "alert udp any any -> any any (asn1:oversize_length 10; sid:2003;)",
        ];
        let Some(Object::Group(file)) = objects.last_mut() else { panic!() };
        file.rules = GroupRules::Raw(lines.map(str::to_owned).to_vec());
        site.publish(1, &objects);
        until("generation 1", || site.acknowledged() == 1);
        let now = stands(&site);
        // The tenant's policy and the default that is for all: the level tells tenants apart.
        let wan = level_of(&now, "wan", "xdp").unwrap();
        assert_eq!((wan.generation, wan.state, wan.why.as_str()), (1, LevelState::On, ""), "{now:?}");
        let rules = wan.rules.unwrap();
        let evaluates = [("gate".to_owned(), 1), ("pfw".to_owned(), 2)].into();
        assert_eq!((rules.while_open, &rules.evaluates), (false, &evaluates), "{rules:?}");
        assert_eq!(rules.left_out.count, 0, "{rules:?}");
        for link in ["wan", "lan"] {
            let host = level_of(&now, link, "host").unwrap();
            assert_eq!((host.generation, host.state, host.rules), (1, LevelState::On, None));
        }
        assert_eq!(level_of(&now, "lan", "xdp"), None);
        assert_eq!(now.left_out.count, 1, "{now:?}");
        let first = &now.left_out.first[0];
        assert!(first.rule == "web.rules:2: 1:2003" && first.why.contains("asn1"), "{first:?}");
        let levels = site.running().workers[0].levels.clone();
        assert_eq!(levels, [("host".to_owned(), 1), ("xdp".to_owned(), 1)].into());
        // The level reaches a new generation that changes little else: reported briefly.
        site.publish(2, &generation(5000, &[2001]));
        until("generation 2", || site.acknowledged() == 2);
        let now = stands(&site);
        assert_eq!(level_of(&now, "wan", "xdp").unwrap().generation, 2, "{now:?}");
        assert_eq!(now.left_out, Default::default());
        // The link loses its interfaces, and with them its level, without a change of configuration.
        namespace::ip("link del dev a0");
        until("the level is off", || {
            level_of(&stands(&site), "wan", "xdp").is_some_and(|wan| wan.state == LevelState::Off)
        });
        until("the link is away", || {
            level_of(&stands(&site), "wan", "host").is_some_and(|wan| wan.state == LevelState::Off)
        });
        let now = stands(&site);
        let wan = level_of(&now, "wan", "xdp").unwrap();
        assert!(wan.generation == 0 && wan.rules.is_none() && !wan.why.is_empty(), "{wan:?}");
        assert_eq!(level_of(&now, "lan", "host").unwrap().state, LevelState::On);
        let worker = &site.running().workers[0];
        assert_eq!((worker.link.as_str(), worker.levels.contains_key("xdp")), ("wan", false));
    });
}
