// SPDX-License-Identifier: Apache-2.0
//! `inspect --policy`: captures go through the policy's chains, and every refusal has its function and
//! reason.

use crate::sample as common;

use common::stage;
use serde_json::Value;

/// The refused packets, by policy, function and reason.
fn refused(summary: &Value) -> Vec<(String, String, String, u64)> {
    let by = summary["refused"]["by"].as_array().expect("a list").iter();
    let text = |v: &Value| v.as_str().unwrap_or("-").to_owned();
    by.map(|b| (text(&b["policy"]), text(&b["function"]), text(&b["reason"]), b["packets"].as_u64().unwrap()))
        .collect()
}

#[test]
fn prevention_drops_with_reasons_and_own_fields() {
    let folder = stage("prevention");
    for (threads, out) in [("1", "one"), ("3", "three")] {
        let args = [
            "inspect",
            "--policy",
            "p.yaml",
            "--ips",
            "--json",
            "--threads",
            threads,
            "--out",
            out,
            "c.pcap",
        ];
        let summary = folder.run(&args).json();
        let text = |p: &str, f: &str, r: &str, n| (p.to_owned(), f.to_owned(), r.to_owned(), n);
        let by = refused(&summary);
        assert!(by.contains(&text("web", "pfw", "pfw_default", 2)), "{by:?}");
        // The request itself, once for each IP version.
        assert!(by.contains(&text("web", "ids", "ids_rule", 2)), "{by:?}");
        assert_eq!(summary["refused"]["dropped"], true);
        let total: u64 = by.iter().map(|b| b.3).sum();
        assert_eq!(summary["refused"]["packets"], total);
        let drops = folder.events(out, "drop");
        let by_pfw: Vec<&Value> = drops.iter().filter(|d| d["bartizan"]["function"] == "pfw").collect();
        assert_eq!(by_pfw.len(), 2);
        for drop in by_pfw {
            let own = &drop["bartizan"];
            assert_eq!(own["policy"], "web");
            assert_eq!(own["reason"], "pfw_default");
            assert_eq!(own["verdict"], "drop");
            assert_eq!(own["level"], "host");
            assert_eq!(own["generation"], 1);
            assert_eq!(own["path"], serde_json::json!(["pfw", "sfw", "ids"]));
            assert!(own["fid"].is_u64());
            assert_eq!(drop["dest_port"], 22);
        }
        let blocked = folder.events(out, "alert");
        assert!(blocked.iter().any(|a| a["alert"]["action"] == "blocked" && a["alert"]["signature_id"] == 1));
        for flow in folder.events(out, "flow") {
            let own = &flow["bartizan"];
            assert_eq!(own["policy"], "web", "{flow}");
            // The record of an allowed flow names the function that allowed it, as that of a refused one
            // does.
            let web = flow["dest_port"] == 80;
            assert_eq!(own["allowed_by"], if web { "pfw".into() } else { Value::Null }, "{flow}");
            assert_eq!(own["allowed_rule"], if web { 2.into() } else { Value::Null }, "{flow}");
        }
    }
}

/// Traffic that no policy names, and traffic that functions inspect to the end without a verdict.
#[test]
fn a_flow_that_no_function_decided_names_the_default_that_allowed_it() {
    let folder = stage("by-default");
    let policies = [
        ("policies: []\ndefault: {action: allow, chain: []}\n", "default", "default"),
        ("policies: []\ndefault: {action: allow, chain: [ids]}\n", "default", "default"),
        ("policies: [{name: bare, chain: []}]\ndefault: {action: drop}\n", "bare", "default"),
        ("policies: []\ndefault: {action: allow, chain: [pfw], pfw: {default: allow}}\n", "default", "pfw"),
    ];
    for (out, (text, policy, by)) in ["1", "2", "3", "4"].into_iter().zip(policies) {
        folder.write("by.yaml", text);
        let inspect = ["inspect", "--policy", "by.yaml", "--ips", "--out", out, "c.pcap"];
        assert_eq!(folder.run(&inspect).code(), 0);
        let flows = folder.events(out, "flow");
        assert!(!flows.is_empty());
        for flow in flows {
            let own = &flow["bartizan"];
            assert_eq!((&own["policy"], &own["allowed_by"]), (&policy.into(), &by.into()), "{text}{flow}");
            assert_eq!((&own["allowed_rule"], &own["reason"]), (&Value::Null, &Value::Null), "{text}{flow}");
        }
        let explain = ["explain", "flow", "--capture", "c.pcap", "--policy", "by.yaml", "--ips", "--flow"];
        let explain = [&explain[..], &["tcp 10.0.0.1:40000 192.0.2.7:80"]].concat();
        let told = folder.run(&explain);
        let line = match by {
            "default" => "allowed   by default: no function decided".to_owned(),
            function => format!("allowed   by {function}: its default"),
        };
        assert!(told.stdout().lines().any(|found| found == line), "{text}{}{}", told.stdout(), told.stderr());
    }
    // The record of a refused flow names the function that refused it, and no default.
    folder.write("by.yaml", "policies: []\ndefault: {action: drop}\n");
    folder.run(&["inspect", "--policy", "by.yaml", "--ips", "--out", "refused", "c.pcap"]);
    for flow in folder.events("refused", "flow") {
        let own = &flow["bartizan"];
        assert_eq!((&own["function"], &own["reason"]), (&"gate".into(), &"policy_default".into()), "{flow}");
        assert_eq!((&own["policy"], &own["allowed_by"]), (&"default".into(), &Value::Null), "{flow}");
    }
}

#[test]
fn detection_says_what_would_be_dropped_and_inspects_all_the_same() {
    let folder = stage("detection");
    let summary = folder.run(&["inspect", "--policy", "p.yaml", "--json", "--out", "o", "c.pcap"]).json();
    assert_eq!(refused(&summary), [("web".into(), "pfw".into(), "pfw_default".into(), 2)]);
    assert_eq!(summary["refused"]["dropped"], false);
    assert_eq!(folder.events("o", "drop").len(), 0);
    assert_eq!(summary["alerts"]["1"], 2);
    // Rule 5 sees every packet, also those that pfw would have dropped.
    let any: Vec<u64> = folder
        .events("o", "alert")
        .iter()
        .filter(|a| a["alert"]["signature_id"] == 5)
        .map(|a| a["pcap_cnt"].as_u64().unwrap())
        .collect();
    assert!(any.contains(&10) && any.contains(&20), "{any:?}");
    let responses = folder.events("o", "http");
    assert!(responses.iter().any(|h| h["http"]["status"] == 404), "{responses:?}");
}

#[test]
fn rules_of_the_command_line_join_those_of_the_policy() {
    let folder = stage("join");
    folder.write("more.rules", "alert tcp any any -> any 80 (msg:\"more\"; flags:S; sid:77;)\n");
    let args = ["inspect", "--policy", "p.yaml", "--rules", "more.rules", "--json", "--out", "o", "c.pcap"];
    let summary = folder.run(&args).json();
    assert_eq!(summary["alerts"]["77"], 2);
    assert_eq!(summary["alerts"]["1"], 2);
    // A policy without `ids` in any chain has a warning.
    folder.write("none.yaml", "policies: [{name: a, chain: [sfw]}]\ndefault: {action: drop}\n");
    let ran =
        folder.run(&["inspect", "--policy", "none.yaml", "--rules", "more.rules", "--out", "o", "c.pcap"]);
    assert_eq!(ran.code(), 0);
    assert!(
        ran.stderr().contains("--rules has no effect: no chain of none.yaml has `ids`"),
        "{}",
        ran.stderr()
    );
}

#[test]
fn a_capture_can_come_from_a_link() {
    let folder = stage("link");
    let args =
        ["inspect", "--policy", "p.yaml", "--link", "branch", "--ips", "--json", "--out", "o", "c.pcap"];
    let summary = folder.run(&args).json();
    assert!(refused(&summary).iter().all(|b| b.0 == "branch" && b.1 != "pfw"), "{summary}");
    let cases: [(&[&str], i32, &str); 4] = [
        (&["--link", "brnch"], 1, "no policy names a link `brnch`; did you mean `branch`?"),
        (&["--link", "branch", "--link", "branch"], 2, "there are more --link options than captures"),
        (&["--policy", "nowhere.yaml"], 1, "cannot open policy file nowhere.yaml: no such file"),
        (&["--policy", "bad.yaml"], 1, "bad.yaml:1:30: there is no function `pfv`; did you mean `pfw`?"),
    ];
    folder.write("bad.yaml", "policies: [{name: a, chain: [pfv]}]\ndefault: {action: drop}\n");
    for (more, code, message) in cases {
        let mut args = vec!["inspect", "--out", "o", "c.pcap"];
        if !more.contains(&"--policy") {
            args.extend(["--policy", "p.yaml"]);
        }
        args.extend(more);
        let ran = folder.run(&args);
        assert_eq!(ran.code(), code, "{more:?}: {}", ran.stderr());
        assert!(ran.stderr().contains(message), "{more:?}: {}", ran.stderr());
        assert!(ran.stdout().is_empty());
    }
}

#[test]
fn without_a_policy_events_are_as_with_suricata() {
    let folder = stage("plain");
    let summary =
        folder.run(&["inspect", "--rules", "web.rules", "--ips", "--json", "--out", "o", "c.pcap"]).json();
    assert!(summary.get("refused").is_none());
    for kind in ["alert", "flow"] {
        let events = folder.events("o", kind);
        assert!(!events.is_empty(), "{kind}");
        assert!(events.iter().all(|e| e.get("bartizan").is_none()), "{kind}");
    }
}
