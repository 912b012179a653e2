// SPDX-License-Identifier: Apache-2.0
//! Firewall rules: valid ones, and the refusals of all others.

use bartizan_base::SettingsMap;
use bartizan_detect::firewall::{At, PacketHook, Policies, Reach};
use bartizan_detect::ruleset::{LoadInput, Loaded, load};
use bartizan_detect::shared::Shared;
use bartizan_pattern::{Compiler, Config};
use bartizan_rules::RuleVariables;
use std::sync::Arc;

fn load_both(firewall: &str, detection: &str, mode: bool) -> Loaded {
    let mut settings = SettingsMap::new();
    settings.set("firewall.enabled", if mode { "yes" } else { "no" });
    let compiler = Compiler::new(Config::default()).unwrap();
    let input = LoadInput {
        settings: &settings,
        variables: &RuleVariables::new(),
        classifications: None,
        references: None,
        shared: &Arc::<Shared>::default(),
        compiler: &compiler,
        tenants: &[],
        known: None,
    };
    let mut files = [
        bartizan_rules::parse_file(firewall.as_bytes(), "f.rules").of_firewall(),
        bartizan_rules::parse_file(detection.as_bytes(), "d.rules"),
    ];
    load(&mut files, &input).unwrap()
}

/// The message with which a firewall rule is refused.
fn refused(rule: &str) -> Option<String> {
    let loaded = load_both(rule, "", true);
    assert_eq!(loaded.firewall_refused, u64::from(!loaded.diagnostics.is_empty()), "{rule}");
    loaded.diagnostics.first().map(|d| d.message.clone())
}

#[test]
fn what_suricata_takes_is_taken() {
    for head in [
        "accept:hook tcp:all any any -> any any (",
        "accept:packet,alert udp:all any any <> any 53 (",
        "accept:flow,pass,alert tls:<client_hello_done any any -> any any (tls.sni; content:\"x\";",
        "accept:flow,pass:flow tcp:flow_start any any -> any any (",
        "accept:hook,alert,alert ip:pre_stream any any -> any any (",
        "accept:tx http1:response_started any any -> any any (",
        "accept:packet dns:request_complete any any -> any any (dns.query; content:\"x\";",
        "drop:packet tcp:pre_flow any any -> any any (flags:S;",
        "drop:flow,alert http1:request_line any any -> any any (http.uri; content:\"x\";",
        "reject:packet icmp:all any any -> any any (",
        "rejectboth:flow tcp:all any any -> any any (",
        "config:packet dns:request_complete any any -> any any (dns.query; content:\"x\"; config:logging disable, type tx, scope tx;",
    ] {
        let rule = format!("{head} sid:1;)");
        assert_eq!(refused(&rule), None, "{rule}");
    }
}

#[test]
fn what_suricata_refuses_is_refused_with_the_reason() {
    let mut others = Vec::new();
    for (rule, said) in [
        ("accept tcp:all any any -> any any (sid:1;)", "has no scope"),
        ("accept:all tcp:all any any -> any any (sid:1;)", "no scope `all`"),
        ("accept:hook tcp any any -> any any (sid:1;)", "the rule has no hook"),
        ("accept:hook tcp:somewhere any any -> any any (sid:1;)", "no hook"),
        ("accept:hook http:request_line any any -> any any (sid:1;)", "no hook"),
        ("accept:hook http1:somewhere any any -> any any (sid:1;)", "no hook"),
        ("alert tcp:all any any -> any any (sid:1;)", "cannot begin with `"),
        ("pass:flow tcp:all any any -> any any (sid:1;)", "cannot begin with `"),
        ("accept:hook,drop:flow tcp:all any any -> any any (sid:1;)", "cannot follow another action"),
        ("accept:hook,pass tcp:all any any -> any any (sid:1;)", "no scope `hook`"),
        ("accept:flow,pass:packet tcp:all any any -> any any (sid:1;)", "the same scope"),
        ("drop:flow,pass:flow tcp:all any any -> any any (sid:1;)", "`accept` only"),
        ("drop:hook tcp:all any any -> any any (sid:1;)", "no scope `hook`"),
        ("drop:tx http1:request_started any any -> any any (sid:1;)", "no scope `tx`"),
        ("accept:flow tcp:pre_flow any any -> any any (sid:1;)", "the scope `flow` is not possible"),
        ("drop:flow tcp:pre_flow any any -> any any (sid:1;)", "the scope `flow` is not possible"),
        ("accept:packet http1:request_started any any -> any any (sid:1;)", "scope `packet`"),
        ("accept:hook tcp:<all any any -> any any (sid:1;)", "`<` goes with"),
        ("drop:flow http1:<request_line any any -> any any (sid:1;)", "`<` goes with"),
        ("accept:packet dns:<request_complete any any -> any any (sid:1;)", "`<` goes with"),
        ("accept:hook http1:request_line any any => any any (sid:1;)", "`=>`"),
        (
            "accept:hook http1:request_line any any -> any any (http.host; content:\"x\"; sid:1;)",
            "another state",
        ),
        ("accept:hook http1:request_line any any -> any any (flow:to_client; sid:1;)", "direction"),
        (
            "accept:hook tcp:all any any -> any any (http.uri; content:\"x\"; sid:1;)",
            "hook is one of packets",
        ),
    ] {
        let got = refused(rule).unwrap_or_else(|| panic!("taken: {rule}"));
        if !got.contains(said) {
            others.push((rule, said, got));
        }
    }
    assert_eq!(others, []);
}

#[test]
fn detection_keeps_to_its_own_actions() {
    let first = |rule: &str, mode| {
        let loaded = load_both("", rule, mode);
        assert_eq!(loaded.firewall_refused, 0);
        loaded.diagnostics.first().map(|d| d.message.clone()).unwrap_or_default()
    };
    for mode in [false, true] {
        assert!(
            first("accept:flow tcp any any -> any any (sid:1;)", mode)
                .contains("only an action of firewall rules")
        );
        assert!(first("drop,alert tcp any any -> any any (sid:1;)", mode).contains("several actions"));
        assert!(first("alert http1:<request_line any any -> any any (sid:1;)", mode).contains("`<`"));
        assert_eq!(first("drop:packet tcp any any -> any any (sid:1;)", mode), "");
    }
    let config = "config dns any any -> any any (dns.query; content:\"x\"; config:logging disable, type tx, scope tx; sid:1;)";
    assert_eq!(first(config, false), "");
    assert!(first(config, true).contains("firewall mode"));
    // A number identifies one rule, of the firewall or of detection.
    let loaded = load_both(
        "accept:hook tcp:all any any -> any any (sid:1;)",
        "alert tcp any any -> any any (sid:1;)",
        true,
    );
    assert_eq!((loaded.diagnostics.len(), loaded.firewall_refused), (1, 0));
    // Also with a newer revision.
    let loaded = load_both(
        "accept:hook tcp:all any any -> any any (sid:1;)",
        "alert tcp any any -> any any (sid:1; rev:2;)",
        true,
    );
    assert_eq!((loaded.diagnostics.len(), loaded.rules.firewall.unwrap().packets[2].rules.len()), (1, 1));
}

#[test]
fn rules_stand_in_their_tables_in_the_order_of_the_files() {
    let rules = "\
accept:hook http1:request_line any any -> any any (sid:5;)
accept:hook tcp:all any any -> any any (sid:1;)
drop:packet tcp:pre_flow any any -> any any (sid:2;)
accept:tx,pass:tx http1:request_line any any -> any any (sid:3;)
accept:flow http1:<request_started any any -> any any (priority:1; sid:4;)
drop:packet ip:flow_start any any -> any any (sid:6;)
";
    let loaded = load_both(rules, "drop tcp any any -> any any (sid:9;)", true);
    assert_eq!(loaded.firewall_refused, 1, "pass has no scope tx");
    let set = &loaded.rules;
    let firewall = set.firewall.as_ref().unwrap();
    let sids = |rules: &[u32]| rules.iter().map(|r| set.signatures[*r as usize].id.sid).collect::<Vec<_>>();
    let [flow, stream, filter] = &firewall.packets;
    assert_eq!((sids(&flow.rules), sids(&stream.rules), sids(&filter.rules)), (vec![2], vec![], vec![1, 6]));
    assert!(
        flow.is_asked(Some(6))
            && !flow.is_asked(Some(17))
            && !stream.is_asked(Some(6))
            && filter.is_asked(None)
    );
    let place = |sid: u32| set.signatures.iter().position(|s| s.id.sid == sid);
    let of = |sid: u32| set.signatures.iter().find(|s| s.id.sid == sid).unwrap();
    let own = |sid: u32| of(sid).firewall.as_deref().unwrap().clone();
    assert!(matches!(own(5).at, At::State(_, _, 1)) && own(2).at == At::Packet(PacketHook::PreFlow));
    assert!(own(4).act.accepts_flow() && own(4).covers_earlier && !own(5).covers_earlier);
    assert_eq!((own(1).policy.as_str(), own(5).hook.as_deref()), ("accept:hook", Some("http:request_line")));
    assert!(own(1).act == bartizan_detect::firewall::Act::Accept(Reach::Hook));
    assert!(
        of(9).firewall.is_none() && place(9) < place(1),
        "detection comes first in the set, and has its prefilters"
    );
}

#[test]
fn policies_that_cannot_be_are_told_with_their_key() {
    for (key, value, good) in [
        ("packet.filter.0", "accept:hook", true),
        ("packet.filter.0", "drop:flow", true),
        ("packet.filter.0", "accept:tx", false),
        ("packet.filter.0", "pass:packet", false),
        ("packet.filter.0", "drop", false),
        ("packet.filter", "accept:hook", false),
        ("packet.pre-flow.0", "drop:flow", false),
        ("packet.pre-stream.0", "drop:flow", true),
        ("app.http1.request-line.0", "accept:tx", true),
        ("app.http1.request-line.0", "accept:packet", false),
        ("app.http1.request-line.0", "accept:hook,alert", false),
        ("app.tls.client-hello-done.0", "reject:flow", true),
        ("app.dns.request-complete.0", "accept:hook", true),
        ("default-policy.0", "accept:hook", true),
        ("default-policy.0", "accept:tx", false),
        ("accept-arp", "maybe", false),
    ] {
        let mut settings = SettingsMap::new();
        settings.set(format!("firewall.policies.{key}"), value);
        let read = Policies::from_settings(&settings);
        assert_eq!(read.is_ok(), good, "{key}: {value}");
        if let Err(error) = read {
            assert!(error.to_string().contains("firewall.policies"), "{error}");
        }
    }
}
