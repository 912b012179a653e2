// SPDX-License-Identifier: Apache-2.0
//! The command socket of a running program: every command, clients that keep to the protocol and those that
//! do not, rights, and a socket that exists already; as suricatasc uses it and as `bartizan ctl` does
//! (needs root; without, it prints so and returns).

use crate::command_socket;
use crate::common;
use crate::namespace;

use bartizan_ports::{InlineOptions, InlinePort, Port};
use bartizan_testkit::pipe::make_pipe;
use bartizan_testkit_worker::events;
use command_socket::{Client, ctl, ready};
use common::{Folder, PROGRAM, Running, udp, until};
use namespace::{in_namespace, ip, veth};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

const RULES: &str = "\
alert udp any any -> any 4000 (msg:\"seen\"; content:\"secret\"; sid:1;)
alert http any any -> any any (msg:\"known\"; http.uri; dataset:isset,seen,type string,state seen.list; sid:2;)
alert udp any any -> any any (asn1:oversize_length 10; sid:3;)
";
const NOTHING: Value = Value::Null;

/// A tap on one end of a pair, whose socket is c.socket in the folder.
fn tap(folder: &Folder, more: &[&str]) -> Running {
    folder.write("local.rules", RULES);
    let arguments = ["run", "--tap", "a1", "--rules", "local.rules", "--cache", "none", "--out", "out"];
    let unchecked = ["--control", "c.socket", "--set", "capture.checksum-validation=none"];
    let mut command = Command::new(PROGRAM);
    command.args(arguments).args(unchecked).args(more).current_dir(&folder.0);
    let running = Running::start(&mut command);
    ready(folder, &running);
    running
}

/// The other end.
fn network() -> InlinePort {
    ip("link set dev lo up");
    veth("a0", "a1", 1500);
    InlinePort::open("a0", &InlineOptions::default()).unwrap()
}

fn send(from: &mut InlinePort, frames: &[Vec<u8>]) {
    frames.iter().for_each(|frame| from.transmit_frame(frame).unwrap());
    from.flush().unwrap();
}

#[test]
fn every_command_is_answered_as_suricata_does() {
    for workers in ["1", "2"] {
        in_namespace(move || commands(workers));
    }
}

fn commands(workers: &str) {
    let folder = Folder::new();
    let mut sender = network();
    let running = tap(&folder, &["--workers", workers]);
    let mut client = Client::greeted(&folder.path("c.socket"));
    send(&mut sender, &[udp(false, 1000, 4000, b"secret"), udp(true, 1001, 4000, b"secret")]);
    until("both packets", || client.ok("iface-stat", json!({"iface": "a1"}))["pkts"] == 2);

    let list = client.ok("command-list", NOTHING);
    let names: Vec<String> = serde_json::from_value(list["commands"].clone()).unwrap();
    assert_eq!(list["count"], names.len());
    assert_eq!(client.ok("help", NOTHING), list);
    assert!(client.ok("version", NOTHING).as_str().unwrap().starts_with("8."));
    assert!(client.ok("uptime", NOTHING).is_u64());
    assert_eq!(client.ok("running-mode", NOTHING), "workers");
    assert_eq!(client.ok("capture-mode", NOTHING), "AF_PACKET_DEV");
    assert_eq!(client.ok("conf-get", json!({"variable": "capture.checksum-validation"})), "none");
    assert_eq!(client.refused("conf-get", json!({"variable": "no.such"})), "Unable to get value");
    assert_eq!(client.ok("iface-list", NOTHING), json!({"count": 1, "ifaces": ["a1"]}));
    let stat = client.ok("iface-stat", json!({"iface": "a1"}));
    assert_eq!(stat, json!({"pkts": 2, "invalid-checksums": 0, "drop": 0, "bypassed": 0}));
    let why = client.refused("iface-stat", json!({"iface": "a9"}));
    assert!(why.contains("`a9` is not an interface of this run; interfaces are a1"), "{why}");

    let counters = client.ok("dump-counters", NOTHING);
    assert_eq!(
        (&counters["decoder"]["pkts"], &counters["detect"]["alert"]),
        (&json!(2), &json!(2)),
        "{counters}"
    );
    // Beside the workers what belongs to none, as in Suricata.
    let mut threads = counters["threads"].as_object().unwrap().clone();
    assert!(threads.remove("Global").is_some_and(|global| global["flow"]["memuse"].is_u64()), "{counters}");
    assert_eq!(threads.len().to_string(), workers);
    let of_threads = threads.values().map(|of| of["decoder"]["pkts"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(of_threads, 2);
    assert!(counters["bartizan"]["flow"].is_object());
    let rules = client.ok("ruleset-stats", NOTHING);
    assert_eq!(rules, json!([{"id": 0, "rules_loaded": 2, "rules_failed": 1, "rules_skipped": 0}]));
    let failed = client.ok("ruleset-failed-rules", NOTHING);
    assert_eq!((&failed[0]["rule"], &failed[0]["line"]), (&json!("1:3"), &json!(3)), "{failed}");
    assert!(failed[0]["filename"] == "local.rules" && failed[0]["error"].as_str().unwrap().contains("asn1"));
    let loaded = client.ok("ruleset-reload-time", NOTHING)[0]["last_reload"].clone();

    sets(&mut client, &folder);

    assert_eq!(client.ok("reload-rules", NOTHING), "done");
    assert_ne!(client.ok("ruleset-reload-time", NOTHING)[0]["last_reload"], loaded);
    assert_eq!(client.ok("ruleset-reload-rules", NOTHING), "done");
    assert_eq!(client.ok("ruleset-reload-nonblocking", NOTHING), "done");
    running.until("generation 4: 2 rules loaded");
    folder.write("local.rules", format!("{RULES}alert udp any\n"));
    let why = client.refused("reload-rules", NOTHING);
    assert!(why.contains("local.rules:4:") && why.contains("generation 4 keeps running"), "{why}");
    folder.write("local.rules", RULES);

    std::fs::rename(folder.path("out/eve.json"), folder.path("out/eve.json.1")).unwrap();
    assert_eq!(client.ok("reopen-log-files", NOTHING), "done");
    until("a new file", || folder.path("out/eve.json").exists());

    flows(&mut client, &folder);

    let why = client.refused("no-such-command", NOTHING);
    assert!(why.contains("unknown command; commands are command-list, help"), "{why}");
    let why = client.refused("iface-stat", NOTHING);
    assert!(why.contains("`iface` is missing; write `iface-stat INTERFACE`"), "{why}");
    let counted = client.ok("control-stats", NOTHING);
    assert_eq!(
        (&counted["clients"], &counted["clients_now"], &counted["malformed"]),
        (&json!(1), &json!(1), &json!(0))
    );

    functions(&mut client, &folder, workers);

    // The log names the process that sent the command.
    let who = format!("control: process {} (uid 0, gid 0) requests reload-rules", std::process::id());
    assert!(running.stderr().contains(&who), "{}", running.stderr());
    assert_eq!(client.ok("shutdown", NOTHING), "Closing Bartizan");
    let ended = running.wait();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!folder.path("c.socket").exists() && !folder.path("c.socket.lock").exists());
    assert_eq!(client.line(), None);
}

fn sets(client: &mut Client, folder: &Folder) {
    let value = |kind: &str, value: &str| json!({"setname": "seen", "settype": kind, "datavalue": value});
    let (a, not) = (value("string", "YQ=="), "item not found in set");
    assert_eq!(client.refused("dataset-lookup", a.clone()), not);
    assert_eq!(client.ok("dataset-add", a.clone()), "data added");
    assert_eq!(client.ok("dataset-add", a.clone()), "data already in set");
    assert_eq!(client.ok("dataset-lookup", a.clone()), "item found in set");
    assert_eq!(client.ok("dataset-dump", NOTHING), "datasets dump done");
    let saved = ["seen.list", "out/seen.list"].map(|file| folder.read(file)).concat();
    assert_eq!(saved, "YQ==\n");
    assert_eq!(client.ok("dataset-remove", a.clone()), "data removed");
    assert_eq!(client.refused("dataset-remove", a.clone()), format!("failed to remove data: {not}"));
    assert_eq!(client.ok("dataset-add", a.clone()), "data added");
    let set = json!({"setname": "seen", "settype": "string"});
    assert_eq!(client.ok("dataset-clear", set), "dataset cleared");
    assert_eq!(client.refused("dataset-lookup", a), not);
    for (wrong, says) in [
        (value("string", "a"), "failed to add data: `a` is not base64"),
        (value("md5", "00"), "are of another type"),
        (value("colour", "00"), "`colour` is not a type of data set"),
        (json!({"setname": "x", "settype": "ip", "datavalue": "::"}), "there is no data set `x`"),
        (json!({"setname": "seen"}), "`settype` is missing"),
    ] {
        let why = client.refused("dataset-add", wrong);
        assert!(why.contains(says), "{why}");
    }
}

fn functions(client: &mut Client, folder: &Folder, workers: &str) {
    let list = client.ok("function-list", NOTHING);
    let ids = &list["functions"][0];
    assert_eq!(
        (&list["count"], &ids["function"], &ids["state"]),
        (&json!(1), &json!("ids"), &json!("running"))
    );
    assert_eq!(ids["workers"].as_array().unwrap().len().to_string(), workers);
    let ids = json!({"function": "ids"});
    let state = |message: Value| message["state"].as_str().unwrap().to_owned();
    assert_eq!(state(client.ok("function-health", ids.clone())), "running");
    let stopped = client.ok("function-stop", ids.clone());
    assert!(stopped["reason"].as_str().unwrap().contains("worker 0: stopped by an order"), "{stopped}");
    assert_eq!(state(client.ok("function-health", ids.clone())), "stopped");
    let ended = ctl(folder, &["function", "list"]);
    assert!(ended.code == Some(0) && ended.stdout.contains("ids          stopped"), "{ended:?}");
    assert_eq!(state(client.ok("function-start", ids.clone())), "running");
    assert_eq!(state(client.ok("function-restart", ids)), "running");
    let why = client.refused("function-stop", json!({"function": "sfw"}));
    assert!(why.contains("has the function `sfw`; functions are ids"), "{why}");
    let why = client.refused("function-configure", json!({"function": "ids", "settings": "mode=detect"}));
    assert!(why.contains("without a policy"), "{why}");
    let ended = ctl(folder, &["function", "start"]);
    assert!(ended.code == Some(2) && ended.stderr.contains("write `function-start FUNCTION`"), "{ended:?}");
}

#[test]
fn functions_are_configured_by_order_and_what_they_refuse_changes_nothing() {
    in_namespace(|| {
        let folder = Folder::new();
        let _sender = network();
        folder.write(
            "policy.yaml",
            "policies:\n  - name: all\n    chain: [portscan, sfw]\n    portscan: {ports: 20}\ndefault: {action: drop}\n",
        );
        let arguments = ["run", "--tap", "a1", "--policy", "policy.yaml", "--cache", "none", "--out", "out"];
        let mut command = Command::new(PROGRAM);
        command.args(arguments).args(["--control", "c.socket", "--workers", "1"]).current_dir(&folder.0);
        let running = Running::start(&mut command);
        ready(&folder, &running);
        let ended = ctl(&folder, &["function", "configure", "portscan", "ports=5", "action=drop"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        running.until("generation 2:");
        let mut client = Client::greeted(&folder.path("c.socket"));
        let mut refused = |settings: Value, says: &str| {
            let function = json!({"function": "portscan", "settings": settings});
            let why = client.refused("function-configure", function);
            assert!(why.contains(says), "{why}");
        };
        refused(json!({"ports": 1}), "generation 2 keeps running");
        refused(
            json!({"port": 9}),
            "has no setting `port` that can change while it runs; settings: ports, hosts, window",
        );
        refused(json!("ports"), "write NAME=VALUE");
        // Refused settings are not kept; settings given before are.
        assert_eq!(client.ok("reload-rules", NOTHING), "done");
        let back = json!({"function": "portscan", "settings": {"ports": null, "action": null}});
        assert_eq!(client.ok("function-configure", back)["state"], "running");
        let sfw = json!({"function": "sfw", "settings": "max-connections=100"});
        assert_eq!(client.ok("function-configure", sfw)["state"], "running");
        let why = client.refused("function-configure", json!({"function": "sfx", "settings": "a=1"}));
        assert!(why.contains("there is no function `sfx`"), "{why}");
        assert_eq!(running.stop().code, Some(0));
    });
}

fn flows(client: &mut Client, folder: &Folder) {
    let all = client.ok("explain-flow", json!({"flow": "192.0.2.1 1000 192.0.2.2 4000 udp"}));
    assert_eq!(all["count"], 1, "{all}");
    let flow = &all["flows"][0];
    assert_eq!(
        (&flow["ends"]["src_port"], &flow["link"], &flow["level"]),
        (&json!(1000), &json!("a1"), &json!("host"))
    );
    assert_eq!(
        (&flow["policy"], &flow["chain"], &flow["course"]),
        (&json!("default"), &json!(["ids"]), &json!("judged"))
    );
    assert_eq!(flow["stays"]["code"], "no_device");
    assert_eq!(flow["levels"]["host"]["pkts_toserver"], 1);
    // The number in events.
    let event = ["out/eve.json.1", "out/eve.json"].iter().flat_map(|file| events::read(&folder.path(file)));
    let event =
        event.into_iter().find(|event| event["event_type"] == "alert" && event["src_port"] == 1000).unwrap();
    assert_eq!(event["flow_id"], flow["flow_id"]);
    let stats = client.ok("get-flow-stats-by-id", json!({"flow_id": flow["flow_id"]}));
    assert_eq!((&stats["pkts_toserver"], &stats["pkts_toclient"]), (&json!(1), &json!(0)), "{stats}");
    // No flow has the last number that there can be; the first flow of a run has now and then 1.
    let nobody = json!({"flow_id": (1_u64 << 53) - 1});
    assert_eq!(client.refused("get-flow-stats-by-id", nobody), "Not existing flow");
    assert_eq!(client.ok("explain-flow", json!({"flow": "[2001:db8::2]:4000"}))["count"], 1);
    assert_eq!(client.ok("explain-flow", json!({"flow": "192.0.2.9"}))["count"], 0);
    assert!(client.refused("explain-flow", json!({"flow": "here"})).contains("`here` is not an address"));
    let levels = client.ok("levels", NOTHING);
    assert_eq!((&levels["flows"], &levels["levels"]), (&json!(2), &json!({"host": 2})), "{levels}");
    assert_eq!((&levels["stays"]["no_device"]["flows"], &levels["late_workers"]), (&json!(2), &json!([])));
}

#[test]
fn clients_that_do_not_behave_keep_nobody_waiting() {
    in_namespace(|| {
        let folder = Folder::new();
        let _sender = network();
        let running = tap(&folder, &[]);
        let path = folder.path("c.socket");
        // A silent client, half a first message, half a command, and a client that sends commands but reads
        // no answer.
        let _silent = Client::connect(&path);
        let mut half_hello = Client::connect(&path);
        half_hello.send(br#"{"version": "#);
        let mut half = Client::greeted(&path);
        half.send(br#"{"command": "upt"#);
        let mut deaf = Client::greeted(&path);
        deaf.stream.set_nonblocking(true).unwrap();
        let message = b"{\"command\": \"dump-counters\"}\n".repeat(100);
        // As much as it takes.
        while deaf.stream.write(&message).is_ok_and(|written| written > 0) {}
        let mut good = Client::greeted(&path);
        // No client waits for another.
        assert!(good.ok("uptime", NOTHING).is_u64());
        assert_eq!(good.ok("control-stats", NOTHING)["clients_now"], 5);

        for (bytes, says) in [
            (
                &b"GET / HTTP/1.1\r\n\r\n"[..],
                "a message is one JSON object, and this one begins with the byte 0x47",
            ),
            (b"\x00\xff", "begins with the byte 0x00"),
            (b"{\"version\": \"0.9\"}", "version `0.9` of the protocol is not supported"),
            (b"{\"command\": \"shutdown\"}", "the first message must have the version"),
            (b"{,}", "the message is not JSON"),
        ] {
            let mut client = Client::connect(&path);
            client.send(bytes);
            let answer: Value = serde_json::from_str(&client.line().unwrap()).unwrap();
            assert!(
                answer["return"] == "NOK" && answer["message"].as_str().unwrap().contains(says),
                "{answer}"
            );
            assert_eq!(client.line(), None, "it is let go");
        }
        for (bytes, says) in [
            (&b"{\"command\": 1}\n"[..], "the message has no command"),
            (b"{\"command\": \"x\", \"arguments\": 1}\n", "`arguments` is not an object"),
            (b"{\"command\": \"x\n", "control character 0x0a"),
        ] {
            let mut client = Client::greeted(&path);
            client.send(bytes);
            let answer = client.line().unwrap();
            assert!(answer.contains(says) && client.line().is_none(), "{answer}");
        }
        let mut large = Client::greeted(&path);
        let message = format!("{{\"command\": \"{}", "x".repeat(70_000));
        let _ = large.stream.write_all(message.as_bytes());
        assert!(large.line().unwrap().contains("more than 65536 bytes"));

        // Messages that are incomplete at the time limit.
        assert!(half.line().unwrap().contains("not complete within 5 seconds"));
        assert!(half_hello.line().unwrap().contains("not complete within 5 seconds"));
        until("all are let go but one", || good.ok("control-stats", NOTHING)["clients_now"] == 1);
        let counted = good.ok("control-stats", NOTHING);
        for (name, count) in [
            ("malformed", 8),
            ("too_long", 1),
            ("too_slow", 2),
            ("silent", 1),
            ("not_taken", 1),
            ("gave_way", 0),
        ] {
            assert_eq!(counted[name], count, "{name}: {counted}");
        }
        // In one piece, in many, and back to back without waiting.
        for byte in b"{\"command\": \"running-mode\"}\n" {
            good.send(&[*byte]);
        }
        good.send(b"{\"command\":\"running-mode\"}\n{\"command\":\"running-mode\"}\n");
        for _ in 0..3 {
            assert_eq!(good.line().unwrap(), r#"{"message":"workers","return":"OK"}"#);
        }
        // Version 0.1 has no line ends.
        let mut old = Client::connect(&path);
        old.send(br#"{"version": "0.1"}"#);
        let mut answer = [0u8; 15];
        old.stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, br#"{"return":"OK"}"#);
        old.send(br#"{"command": "running-mode"}"#);
        let mut answer = [0u8; 35];
        old.stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, br#"{"message":"workers","return":"OK"}"#);
        drop(old);
        assert_eq!(running.stop().code, Some(0));
    });
}

#[test]
fn who_does_nothing_makes_room() {
    in_namespace(|| {
        let folder = Folder::new();
        let _sender = network();
        let running = tap(&folder, &[]);
        let path = folder.path("c.socket");
        let mut first = Client::greeted(&path);
        let mut others: Vec<Client> = (0..15).map(|_| Client::greeted(&path)).collect();
        assert!(first.ok("uptime", NOTHING).is_u64());
        // The second was silent longest.
        let mut newcomer = Client::greeted(&path);
        assert_eq!(newcomer.ok("control-stats", NOTHING)["gave_way"], 1);
        assert_eq!(others[0].line(), None);
        for client in others.iter_mut().skip(1).chain([&mut first]) {
            assert!(client.ok("uptime", NOTHING).is_u64());
        }
        let ended = running.stop();
        assert_eq!(ended.code, Some(0), "an end waits for no client: {ended:?}");
    });
}

#[test]
fn the_socket_is_for_its_group_and_one_program() {
    in_namespace(|| {
        let folder = Folder::new();
        let _sender = network();
        folder.write("local.rules", RULES);
        let host = |group: &str, socket: &str| {
            let more = if group.is_empty() { String::new() } else { format!(", group: {group}") };
            folder.write(
                "b.yaml",
                format!(
                    "links: [{{name: t, tap: {{interface: a1}}}}]\nworkers: 1\ncache: none\nrules: [local.rules]\n\
                     outputs: {{eve: {{dir: out}}}}\ncontrol: {{socket: {socket}{more}}}\n"
                ),
            );
        };
        let start =
            || Running::start(Command::new(PROGRAM).args(["run", "-c", "b.yaml"]).current_dir(&folder.0));
        // One that broke off has left its socket.
        drop(UnixListener::bind(folder.path("c.socket")).unwrap());
        let ended = ctl(&folder, &["uptime"]);
        assert!(
            ended.code == Some(3)
                && ended.stderr.contains("a program that was killed; start the program again"),
            "{ended:?}"
        );
        host("adm", "c.socket");
        let running = start();
        running.until("commands: ");
        let found = std::fs::metadata(folder.path("c.socket")).unwrap();
        let adm = std::fs::read_to_string("/etc/group").unwrap();
        let adm = adm.lines().find_map(|line| line.strip_prefix("adm:x:")?.split(':').next()?.parse().ok());
        assert_eq!((found.permissions().mode() & 0o7777, Some(found.gid())), (0o660, adm));
        let second = Running::start(
            Command::new(PROGRAM)
                .args(["run", "--tap", "a1", "--cache", "none", "--out", "o2", "--control", "c.socket"])
                .current_dir(&folder.0),
        )
        .wait();
        let said =
            format!("another bartizan (process {}) listens on c.socket; or choose another", running.id());
        assert!(second.code == Some(3) && second.stderr.contains(&said), "{second:?}");
        assert_eq!(ctl(&folder, &["running-mode"]).stdout, "workers\n");
        assert_eq!(running.stop().code, Some(0));
        assert!(!folder.path("c.socket").exists());

        host("no-such-group", "c.socket");
        let ended = start().wait();
        assert!(
            ended.code == Some(1) && ended.stderr.contains("`no-such-group`: this machine has no such group"),
            "{ended:?}"
        );
        host("", "none");
        let running = start();
        running.until("running on");
        assert!(!running.stderr().contains("commands: "));
        assert_eq!(running.stop().code, Some(0));
        // Suricata's own key.
        folder.write(
            "suricata.yaml",
            "%YAML 1.1\n---\nunix-command:\n  enabled: yes\n  filename: FOLDER/s.socket\n"
                .replace("FOLDER", folder.0.to_str().unwrap()),
        );
        let running = Running::start(
            Command::new(PROGRAM)
                .args([
                    "run",
                    "--tap",
                    "a1",
                    "--cache",
                    "none",
                    "--out",
                    "o3",
                    "--suricata-config",
                    "suricata.yaml",
                ])
                .current_dir(&folder.0),
        );
        running.until("s.socket");
        assert!(Client::greeted(&folder.path("s.socket")).ok("uptime", NOTHING).is_u64());
        assert_eq!(running.stop().code, Some(0));
    });
}

#[test]
fn ctl_shows_what_comes_of_commands() {
    in_namespace(|| {
        let folder = Folder::new();
        let mut sender = network();
        let ended = ctl(&folder, &["uptime"]);
        assert!(ended.code == Some(3) && ended.stderr.contains("is bartizan running?"), "{ended:?}");
        let running = tap(&folder, &[]);
        send(&mut sender, &[udp(false, 1000, 4000, b"secret")]);
        until("the packet", || ctl(&folder, &["iface-stat", "a1"]).stdout.starts_with("pkts 1\n"));
        let told = |arguments: &[&str]| {
            let ended = ctl(&folder, arguments);
            assert_eq!(ended.code, Some(0), "{ended:?}");
            ended.stdout
        };
        assert!(told(&["reload-rules"]).starts_with("done\ngeneration 2\ncontent.all "));
        // As Suricata's clients look for it.
        assert!(
            told(&["--json", "reload-rules"])
                .starts_with("{\"message\":\"done\",\"return\":\"OK\",\"bartizan\":{")
        );
        assert!(told(&["dump-counters"]).contains("\ndecoder.pkts 1\n"));
        assert!(told(&["levels"]).contains("1 no_device: the link has no level below the host"));
        let explained = told(&["explain-flow", "udp", "192.0.2.1:1000", "192.0.2.2:4000"]);
        for line in
            ["udp 192.0.2.1:1000 -> 192.0.2.2:4000", "chain     ids; inspecting: ids", "level     host for "]
        {
            assert!(explained.lines().any(|found| found.starts_with(line)), "{line}\n{explained}");
        }
        let live = ["explain", "flow", "--live", "--socket", "c.socket", "192.0.2.2:4000"];
        let ended = common::run(&folder.0, &live);
        assert!(ended.code == Some(0) && ended.stdout.starts_with("udp 192.0.2.1:1000"), "{ended:?}");
        for (arguments, code, says) in [
            (&["explain-flow", "192.0.2.9"][..], 1, "no open flow matches"),
            (&["conf-get", "no.such"], 1, "Unable to get value"),
            (&["no-such"], 2, "there is no command `no-such`; known: `command-list`"),
            (&["iface-stat"], 2, "INTERFACE is missing; write `iface-stat INTERFACE`"),
        ] {
            let ended = ctl(&folder, arguments);
            let said = format!("{}{}", ended.stdout, ended.stderr);
            assert!(ended.code == Some(code) && said.contains(says), "{ended:?}");
        }
        assert_eq!(told(&["shutdown"]), "Closing Bartizan\n");
        assert_eq!(running.wait().code, Some(0));
    });
}

/// A connection of this host, on loopback, while it is open and after its end.
#[test]
fn a_live_connection_is_explained() {
    in_namespace(|| {
        let folder = Folder::new();
        ip("link set dev lo up");
        let policy = "policies: [{name: web, from: any, to: any, chain: [sfw, ids], ids: {rules: [local.rules]}}]\ndefault: {action: drop}\n";
        folder.write("policy.yaml", policy);
        folder.write("local.rules", RULES);
        let arguments = ["run", "--tap", "lo", "--policy", "policy.yaml", "--cache", "none", "--out", "out"];
        let more = ["--control", "c.socket", "--set", "capture.checksum-validation=none"];
        let mut command = Command::new(PROGRAM);
        let running = Running::start(command.args(arguments).args(more).current_dir(&folder.0));
        ready(&folder, &running);
        let mut asks = Client::greeted(&folder.path("c.socket"));
        let listener = std::net::TcpListener::bind("127.0.0.1:8080").unwrap();
        let mut client = std::net::TcpStream::connect("127.0.0.1:8080").unwrap();
        let (mut server, from) = listener.accept().unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        server.read_exact(&mut [0; 27]).unwrap();
        server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        client.read_exact(&mut [0; 40]).unwrap();
        // From either side.
        let wanted =
            [format!("tcp {from} 127.0.0.1:8080"), format!("127.0.0.1 8080 127.0.0.1 {} tcp", from.port())];
        let mut told = Value::Null;
        until("the connection", || {
            told = asks.ok("explain-flow", json!({"flow": wanted[0]}));
            told["flows"][0]["app_proto"] == "http"
                && told["flows"][0]["levels"]["host"]["pkts_toclient"].as_u64() >= Some(2)
        });
        let flow = &told["flows"][0];
        assert_eq!((&told["count"], &flow["ends"]["src_port"]), (&json!(1), &json!(from.port())), "{told}");
        assert_eq!((&flow["state"], &flow["tcp"]), (&json!("established"), &json!("established")));
        assert_eq!(
            (&flow["policy"], &flow["chain"], &flow["path"]),
            (&json!("web"), &json!(["sfw", "ids"]), &json!(["sfw", "ids"]))
        );
        assert!(flow["levels"]["host"]["bytes_toserver"].as_u64() >= Some(27 + 3 * 66), "{flow}");
        let number = flow["flow_id"].clone();
        assert_eq!(asks.ok("explain-flow", json!({"flow": wanted[1]}))["flows"][0]["flow_id"], number);
        assert_eq!(asks.ok("explain-flow", json!({"flow": number.to_string()}))["count"], 1);
        drop((client, server));
        until("its end", || {
            let told = asks.ok("explain-flow", json!({"flow": number.to_string()}));
            told["count"] == 0 || told["flows"][0]["state"] == "closed"
        });
        assert_eq!(running.stop().code, Some(0));
        let event = events::read(&folder.path("out/eve.json"));
        assert!(event.iter().any(|event| event["event_type"] == "flow" && event["flow_id"] == number));
    });
}

/// A reload that takes as long as the test wants: its rules come by a pipe.
#[test]
fn who_asks_is_answered_while_a_reload_is_built() {
    in_namespace(|| {
        let folder = Folder::new();
        let mut sender = network();
        let running = tap(&folder, &[]);
        let path = folder.path("c.socket");
        let (mut reloads, mut asks) = (Client::greeted(&path), Client::greeted(&path));
        send(&mut sender, &[udp(false, 1000, 4000, b"secret")]);
        until("the packet", || asks.ok("levels", NOTHING)["flows"] == 1);
        std::fs::remove_file(folder.path("local.rules")).unwrap();
        make_pipe(folder.path("local.rules"));
        reloads.send(b"{\"command\": \"reload-rules\"}\n");
        running.until("requests reload-rules");
        assert!(asks.ok("uptime", NOTHING).is_u64());
        assert_eq!(asks.ok("levels", NOTHING)["flows"], 1);
        assert_eq!(asks.ok("explain-flow", json!({"flow": "192.0.2.2:4000"}))["count"], 1);
        assert_eq!(asks.ok("dump-counters", NOTHING)["decoder"]["pkts"], 1);
        assert_eq!(asks.ok("iface-stat", json!({"iface": "a1"}))["pkts"], 1);
        assert_eq!(asks.ok("ruleset-stats", NOTHING)[0]["rules_loaded"], 2);
        assert!(!running.stderr().contains("generation 2"), "{}", running.stderr());
        std::fs::write(folder.path("local.rules"), RULES).unwrap();
        let answer = reloads.line().unwrap();
        assert!(
            answer.starts_with(r#"{"message":"done","return":"OK","bartizan":{"generation":2,"#),
            "{answer}"
        );
        running.until("generation 2: 2 rules loaded");
        assert_eq!(running.stop().code, Some(0));
    });
}

/// The steps of Suricata's own tool.
const SURICATASC: &str = r#"
import json, select, socket, sys
def receive(connection):
    data = ""
    while True:
        piece = connection.recv(1024).decode("iso-8859-1")
        if not piece:
            return None
        data += piece
        if data.endswith("\n"):
            return json.loads(data)
def send(connection, message, end):
    connection.send(bytes(json.dumps(message) + end, "iso-8859-1"))
    assert select.select([connection], [], [], 60)[0]
    return receive(connection)
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.settimeout(10)
assert send(connection, {"version": "0.2"}, "")["return"] == "OK"
known = send(connection, {"command": "command-list"}, "\n")["message"]["commands"]
for command, arguments in [("uptime", None), ("iface-stat", {"iface": "a1"}), ("dump-counters", None), ("ruleset-reload-rules", None), ("shutdown", None)]:
    assert command in known, command
    message = {"command": command}
    if arguments:
        message["arguments"] = arguments
    answer = send(connection, message, "\n")
    assert answer["return"] == "OK", answer
    print(command, json.dumps(answer["message"])[:40])
connection.close()
"#;

#[test]
fn suricatas_tool_finds_what_it_knows() {
    in_namespace(|| {
        let folder = Folder::new();
        let _sender = network();
        let running = tap(&folder, &[]);
        folder.write("suricatasc.py", SURICATASC);
        let client = Command::new("python3")
            .args(["suricatasc.py", "c.socket"])
            .current_dir(&folder.0)
            .stdin(Stdio::null())
            .output();
        let Ok(output) = client else {
            println!("there is no python3: left out");
            return;
        };
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(
            said.contains("ruleset-reload-rules \"done\"") && said.contains("shutdown \"Closing"),
            "{said}"
        );
        assert_eq!(running.wait().code, Some(0));
    });
}

/// A client of another user; the arguments are the path, the user's number, its group's, and those of its
/// other groups.
const OTHER_USER: &str = r#"
import os, socket, sys
user = int(sys.argv[2])
os.setgroups([int(group) for group in sys.argv[3:]])
os.setgid(user)
os.setuid(user)
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.send(b'{"version": "0.2"}{"command": "running-mode"}')
data = b""
while data.count(b"\n") < 2:
    data += connection.recv(1024)
print(data.decode())
"#;

#[test]
fn who_is_not_in_the_group_is_kept_out_and_who_asks_is_known() {
    in_namespace(|| {
        let folder = Folder::new();
        let _sender = network();
        std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o755)).unwrap();
        folder.write(
            "b.yaml",
            "links: [{name: t, tap: {interface: a1}}]\nworkers: 1\ncache: none\noutputs: {eve: {dir: out}}\n\
             control: {socket: c.socket, group: '4242'}\n",
        );
        let mut command = Command::new(PROGRAM);
        let running = Running::start(command.args(["run", "-c", "b.yaml"]).current_dir(&folder.0));
        ready(&folder, &running);
        folder.write("other.py", OTHER_USER);
        let as_user = |groups: &[&str]| {
            let arguments = [&["other.py", "c.socket", "65534"], groups].concat();
            Command::new("python3").args(arguments).current_dir(&folder.0).stdin(Stdio::null()).output()
        };
        let Ok(stranger) = as_user(&[]) else {
            println!("there is no python3: left out");
            return;
        };
        let said = String::from_utf8_lossy(&stranger.stderr).into_owned();
        assert!(!stranger.status.success() && said.contains("Permission denied"), "{said}");
        let member = as_user(&["4242"]).unwrap();
        let said = String::from_utf8_lossy(&member.stdout).into_owned();
        assert!(said.contains(r#"{"message":"workers","return":"OK"}"#), "{member:?}");
        running.until("(uid 65534, gid 65534) requests running-mode");
        assert_eq!(running.stop().code, Some(0));
    });
}

#[test]
fn a_reload_reads_classes_and_suppressions_anew() {
    in_namespace(|| {
        let folder = Folder::new();
        let mut sender = network();
        folder.write("t.config", "");
        folder.write("c.config", "config classification: odd,First,1\n");
        folder.write("a.rules", "alert udp any any -> any 4000 (msg:\"c\"; classtype:odd; sid:5;)\nalert udp any any -> any 4000 (msg:\"d\"; sid:6;)\n");
        let named = |key: &str| {
            format!(
                "{key}={}",
                folder.path(if key.starts_with('t') { "t.config" } else { "c.config" }).display()
            )
        };
        let (thresholds, classes) = (named("threshold-file"), named("classification-file"));
        let running = tap(&folder, &["--rules", "a.rules", "--set", &thresholds, "--set", &classes]);
        let mut client = Client::greeted(&folder.path("c.socket"));
        let alerts = || -> Vec<String> {
            let text = std::fs::read_to_string(folder.path("out/eve.json")).unwrap_or_default();
            let of = |event: &Value| {
                format!(
                    "{}/{}/{}",
                    event["src_port"], event["alert"]["signature_id"], event["alert"]["category"]
                )
            };
            text.lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok())
                .collect::<Vec<_>>()
                .iter()
                .filter(|event| event["event_type"] == "alert")
                .map(of)
                .collect()
        };
        let settings = |client: &mut Client| client.ok("status", NOTHING)["content"]["settings"].clone();
        let before = settings(&mut client);
        send(&mut sender, &[udp(false, 1000, 4000, b"x")]);
        until("both alerts", || alerts().len() == 2);
        folder.write("t.config", "suppress gen_id 1, sig_id 6\n");
        folder.write("c.config", "config classification: odd,Second,3\n");
        assert_eq!(client.ok("reload-rules", NOTHING), "done");
        assert_ne!(settings(&mut client), before, "the hash of settings has these files");
        send(&mut sender, &[udp(false, 2000, 4000, b"x")]);
        until("the alert that is not suppressed", || alerts().len() == 3);
        assert_eq!(alerts(), ["1000/5/\"First\"", "1000/6/\"\"", "2000/5/\"Second\""]);
        // A deleted file leaves its thresholds in force, with a warning.
        std::fs::remove_file(folder.path("t.config")).unwrap();
        assert_eq!(client.ok("reload-rules", NOTHING), "done");
        running.until("threshold-file: cannot read ");
        send(&mut sender, &[udp(false, 3000, 4000, b"x")]);
        until("still suppressed", || alerts().len() == 4);
        assert_eq!(alerts().last().unwrap(), "3000/5/\"Second\"");
        running.stop();
    });
}
