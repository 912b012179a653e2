// SPDX-License-Identifier: Apache-2.0
//! Variables of tenants: one compiled set of rules, and each tenant's traffic is judged as if the settings
//! had its variables.

use crate::common;

use bartizan_testkit_worker::events;
use common::{Folder, capture, run, udp};
use std::fs;

/// Rules whose heads depend on variables, directly and through others.
const RULES: &str = "\
alert udp $HOME_NET any -> any any (msg:\"from inside\"; sid:1;)
alert udp any any -> $HOME_NET any (msg:\"to inside\"; sid:2;)
alert udp $EXTERNAL_NET any -> $HOME_NET any (msg:\"inwards\"; content:\"x\"; sid:3;)
alert udp any any -> any $HTTP_PORTS (msg:\"port\"; content:\"x\"; sid:4;)
alert udp any !$HTTP_PORTS <> [$HOME_NET,198.51.100.0/24] any (msg:\"either way\"; dsize:>0; sid:5;)
alert udp any any -> any any (msg:\"all\"; content:\"nothing like it\"; sid:6;)
";

/// Names and values.
type Groups = &'static [(&'static str, &'static str)];

/// VLAN and variables of each tenant: address groups, port groups.
const TENANTS: [(u16, Groups, Groups); 4] = [
    (10, &[("HOME_NET", "192.0.2.1")], &[]),
    (20, &[("HOME_NET", "[192.0.2.0/24,!192.0.2.1]")], &[("HTTP_PORTS", "[53,8000:8100]")]),
    (30, &[], &[]),
    (40, &[("HOME_NET", "2001:db8::/64"), ("EXTERNAL_NET", "any")], &[("HTTP_PORTS", "!53")]),
];

/// Traffic of a VLAN; 0 for none.
fn frames(vlan: u16) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (v6, port, payload) in
        [(false, 53, "x"), (false, 80, "y"), (false, 8080, "xx"), (true, 53, "x"), (true, 81, "")]
    {
        let mut frame = udp(v6, 4_000 + port, port, payload.as_bytes());
        if vlan > 0 {
            let tag = [0x81, 0, (vlan >> 8) as u8, vlan as u8];
            frame.splice(12..12, tag);
        }
        frames.push(frame);
    }
    frames
}

/// Sid, VLAN and destination port of all alerts of a run, sorted.
fn alerts(folder: &Folder, arguments: &[&str]) -> Vec<(u64, u64, u64)> {
    let _ = fs::remove_dir_all(folder.path("o"));
    let ended = run(&folder.0, arguments);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let events = events::read(&folder.path("o/eve.json"));
    let mut alerts: Vec<_> = events::of_type(&events, "alert")
        .map(|e| {
            let sid = e["alert"]["signature_id"].as_u64().unwrap();
            (sid, e["vlan"][0].as_u64().unwrap_or(0), e["dest_port"].as_u64().unwrap())
        })
        .collect();
    alerts.sort_unstable();
    alerts
}

fn policy() -> String {
    let mut policy = "tenants:\n".to_owned();
    for (vlan, addresses, ports) in TENANTS {
        policy += &format!("  - name: t{vlan}\n    select: {{vlan: {vlan}}}\n");
        if addresses.is_empty() && ports.is_empty() {
            continue;
        }
        policy += "    vars:\n";
        for (kind, groups) in [("address-groups", addresses), ("port-groups", ports)] {
            let groups: Vec<_> = groups.iter().map(|(name, value)| format!("{name}: '{value}'")).collect();
            policy += &format!("      {kind}: {{{}}}\n", groups.join(", "));
        }
    }
    policy
        + "policies:\n  - {name: all, tenant: any, chain: [ids], ids: {rules: [r.rules]}}\ndefault: {action: drop}\n"
}

#[test]
fn each_tenant_is_judged_as_if_the_settings_had_its_variables() {
    let folder = Folder::new();
    folder.write("r.rules", RULES);
    folder.write("p.yaml", policy());
    let all: Vec<_> = TENANTS.iter().flat_map(|(vlan, ..)| frames(*vlan)).collect();
    folder.write("all.pcap", capture(&all));
    let mut expected = Vec::new();
    for (vlan, addresses, ports) in TENANTS {
        folder.write("one.pcap", capture(&frames(vlan)));
        let set = |kind: &str, (name, value): &(&str, &str)| format!("vars.{kind}.{name}={value}");
        let settings: Vec<String> = addresses
            .iter()
            .map(|group| set("address-groups", group))
            .chain(ports.iter().map(|group| set("port-groups", group)))
            .collect();
        let mut arguments = vec!["inspect", "--rules", "r.rules", "--out", "o", "one.pcap"];
        for setting in &settings {
            arguments.extend(["--set", setting]);
        }
        expected.extend(alerts(&folder, &arguments));
    }
    expected.sort_unstable();
    for threads in ["1", "2"] {
        let arguments = ["inspect", "--policy", "p.yaml", "--threads", threads, "--out", "o", "all.pcap"];
        assert_eq!(alerts(&folder, &arguments), expected, "{threads} threads");
    }
    // Each rule but the last distinguishes tenants.
    for sid in 1..=5 {
        let of =
            |vlan| expected.iter().filter(|a| a.0 == sid && a.1 == vlan).map(|a| a.2).collect::<Vec<_>>();
        let each = TENANTS.map(|(vlan, ..)| of(u64::from(vlan)));
        assert!(each.iter().any(|a| *a != each[0]), "rule {sid}: {each:?}");
    }
}

#[test]
fn a_quota_that_is_used_up_is_an_event_once_and_not_for_each_packet() {
    let folder = Folder::new();
    folder.write("r.rules", "alert udp any any -> any any (msg:\"each\"; sid:1;)\n");
    folder.write(
        "p.yaml",
        "tenants:
  - {name: acme, select: {vlan: 10}, quotas: {flows: 2, alerts-per-second: 1}}
  - {name: other, select: {vlan: 20}}
policies:
  - {name: all, tenant: any, chain: [ids], ids: {rules: [r.rules]}}
default: {action: drop}
",
    );
    let all: Vec<_> = [10, 20, 10, 20].into_iter().flat_map(frames).collect();
    folder.write("all.pcap", capture(&all));
    let mut first = None;
    for threads in ["1", "3"] {
        let _ = fs::remove_dir_all(folder.path("o"));
        let ended = run(
            &folder.0,
            &["inspect", "--policy", "p.yaml", "--threads", threads, "--out", "o", "all.pcap"],
        );
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let events = events::read(&folder.path("o/eve.json"));
        for event in events::of_type(&events, "bartizan") {
            assert_eq!(bartizan_events::schema::check(event), Ok(()), "{event}");
        }
        let mut told: Vec<_> = events::of_type(&events, "bartizan").map(|e| e["bartizan"].clone()).collect();
        told.sort_by_key(|own| own["quota"].to_string());
        let words: Vec<String> =
            told.iter().map(|own| format!("{} {}", own["quota"], own["limit"])).collect();
        assert_eq!(words, [r#""alerts-per-second" 1"#, r#""flows" 2"#], "{told:?}");
        for own in &told {
            assert_eq!((own["notice"].as_str(), own["tenant_name"].as_str()), (Some("quota"), Some("acme")));
            assert_eq!((own["exceeded"].as_u64(), own["generation"].as_u64()), (Some(1), Some(1)));
        }
        let all = first.get_or_insert_with(|| told.clone());
        assert_eq!(*all, told, "{threads} threads");
    }
}

#[test]
fn what_is_wrong_with_variables_is_said_with_its_place() {
    let folder = Folder::new();
    folder.write("r.rules", RULES);
    folder.write("c.pcap", capture(&frames(0)));
    let cases = [
        ("{address-groups: {HOME_NET: 10.0.0.0/33}}", "p.yaml:2:69: `/33` is not a prefix length"),
        ("{address-groups: {HOME_NET: !10.0.0.0/8}}", "p.yaml:2:69: "),
        ("{address-groups: {HOME_NET: []}}", "p.yaml:2:59: variable `HOME_NET`: the list is empty"),
        ("{port-groups: {HTTP_PORTS: [80, 70000]}}", "p.yaml:2:73: 70000 is not a port"),
        (
            "{address-groups: {HOME_NET: $NOPE}}",
            "p.yaml:2:69: variable `HOME_NET`: the address variable $NOPE",
        ),
        (
            "{address-groups: {HOME_NET: '!any'}}",
            "p.yaml:2:69: variable `HOME_NET`: all addresses are negated",
        ),
        (
            "{address-groups: {HOME_NET: any}}",
            "p.yaml:2:35: these definitions leave variables of the settings empty: `AIM_SERVERS`, `EXTERNAL_NET`",
        ),
        (
            "{adress-groups: {}}",
            "p.yaml:2:42: the key `adress-groups` is not known; did you mean `address-groups`?",
        ),
    ];
    for (vars, place) in cases {
        let tenants = format!("tenants:\n  - {{name: a, select: {{vlan: 10}}, vars: {vars}}}\n");
        let policies = "policies: [{name: p, tenant: any, chain: [ids], ids: {rules: [r.rules]}}]\n";
        folder.write("p.yaml", format!("{tenants}{policies}default: {{action: drop}}\n"));
        let ended = run(&folder.0, &["inspect", "--policy", "p.yaml", "--out", "o", "c.pcap"]);
        assert_eq!(ended.code, Some(1), "{vars}: {}", ended.stderr);
        assert!(ended.stderr.contains(place), "{vars}: {}", ended.stderr);
        assert_eq!(ended.stderr.trim_end().lines().count(), 1, "{vars}: {}", ended.stderr);
    }
}
