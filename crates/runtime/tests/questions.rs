// SPDX-License-Identifier: Apache-2.0
//! Runtime commands that run no link: a check, explanations of rules and flows, a replay, header rules. Their
//! results are values.

use bartizan_classify::Auto;
use bartizan_runtime::check::{self, CheckOptions};
use bartizan_runtime::error::Exit;
use bartizan_runtime::explain::flow::{self, CaptureFlow, FlowContext};
use bartizan_runtime::explain::rule::{self, RuleOptions};
use bartizan_runtime::generation::BuildOptions;
use bartizan_runtime::headers::{HeaderRuleSet, lookups};
use bartizan_runtime::log::Report;
use bartizan_runtime::offline::OfflineGeneration;
use bartizan_runtime::replay::{self, ReplayOptions, Traffic};
use bartizan_runtime::tuple;
use bartizan_testkit::capture::paced;
use bartizan_testkit::packet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

const RULES: &str = "\
alert udp any any -> any 5300 (msg:\"query\"; content:\"ask\"; sid:1;)
alert udp any any -> any any (msg:\"no such keyword\"; nokeyword:1; sid:2;)
";

const POLICY: &str = "\
policies:
  - name: lab
    from: 192.0.2.0/24
    to: any
    chain: [pfw]
    pfw: {default: drop, rules: [{allow: udp, to-ports: [5300]}]}
default: {action: allow}
";

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("bartizan-questions-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn file(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// A capture with three datagrams to each of two ports.
fn capture(folder: &Path) -> PathBuf {
    let client = (Ipv4Addr::new(192, 0, 2, 1).into(), 4000);
    let server = |port: u16| (Ipv4Addr::new(192, 0, 2, 2).into(), port);
    let frames = [5300, 53].iter().flat_map(|port| {
        (0..3).map(move |_| packet::udp(client, server(*port), b"ask").frame()).collect::<Vec<_>>()
    });
    file(folder, "c.pcap", paced(1000, frames.collect::<Vec<_>>()))
}

fn build(policy: Option<&Path>) -> BuildOptions {
    BuildOptions { cache: Some("none".into()), policy: policy.map(Path::to_owned), ..BuildOptions::default() }
}

#[test]
fn a_check_hands_over_what_is_wrong() {
    let folder = folder("check");
    let rules = vec![file(&folder, "r.rules", RULES)];
    let policies = vec![file(&folder, "p.yaml", "policies: 3\n")];
    let mut options = CheckOptions { build: build(None), rules, policies, ..CheckOptions::default() };
    let checked = check::run(&options).unwrap();
    assert!(!checked.is_valid && checked.content.is_none() && checked.has_rules);
    assert_eq!((checked.rules.loaded, checked.findings.len()), (1, 1));
    let is_placed = |problem: &String| problem.contains("p.yaml:1:11: `policies` must be a list");
    assert!(checked.problems.iter().any(is_placed), "{:?}", checked.problems);
    assert_eq!(checked.policies[0].problems, checked.problems);
    options.policies.clear();
    assert!(!check::run(&options).unwrap().is_valid, "a rule is malformed");
    // A rule of Suricata that is not evaluated here.
    let unsupported =
        "alert tcp any any -> any 161 (msg:\"long\"; content:\"x\"; asn1:bitstring_overflow; sid:2;)\n";
    options.rules = vec![file(&folder, "u.rules", unsupported)];
    let checked = check::run(&options).unwrap();
    assert_eq!((checked.rules.unsupported_total(), checked.findings.len()), (1, 1));
    assert!(checked.is_valid && checked.content.is_some() && checked.problems.is_empty());
    options.build.strict = true;
    assert!(!check::run(&options).unwrap().is_valid, "a rule is left out");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_configuration_is_a_host_file_or_settings() {
    let folder = folder("configuration");
    let host = file(
        &folder,
        "host.yaml",
        "links: [{name: a, tap: {interface: lo}}]\nrules: [r.rules]\npolicy: p.yaml\n",
    );
    let more = [PathBuf::from("more.rules")];
    let of = |path: &Path| CheckOptions::of_configuration(Some(path), build(None), &[], &more).unwrap();
    let options = of(&host);
    assert_eq!(options.policies, [folder.join("p.yaml")]);
    // One set with those of the policy.
    assert_eq!(options.build.rules, [folder.join("r.rules"), more[0].clone()]);
    assert!(options.rules.is_empty() && !options.of_settings);
    let settings = file(&folder, "suricata.yaml", "stream: {midstream: true}\n");
    let options = of(&settings);
    assert_eq!(options.build.suricata_config, Some(settings));
    assert!(options.rules == more && options.of_settings && options.policies.is_empty());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_rule_is_explained_with_its_conditions_over_captures() {
    let folder = folder("rule");
    let options = RuleOptions {
        sid: (None, 1),
        rules: vec![file(&folder, "r.rules", RULES)],
        captures: vec![capture(&folder)],
        attempts: 1,
        ..RuleOptions::default()
    };
    let explained = rule::explained(&options).unwrap();
    assert!(explained.text.contains("sid:1;") && explained.explanation.message == "query");
    let trace = explained.trace.unwrap();
    assert_eq!((trace.alerts, trace.best.len()), (3, 1));
    let refusal = |sid| {
        let options = RuleOptions { sid: (None, sid), ..options.clone() };
        rule::explained(&options).err().unwrap()
    };
    assert!(refusal(2).message.contains("r.rules:2: the engine does not load sid 2"), "{}", refusal(2));
    assert!(refusal(9).message.contains("no rule with sid 9") && refusal(9).exit == Exit::Input);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn flows_are_explained_by_tuple_and_by_capture() {
    let folder = folder("flow");
    let (policy, capture) = (file(&folder, "p.yaml", POLICY), capture(&folder));
    let generation = OfflineGeneration::build(&build(Some(&policy)), true).unwrap();
    let explained = |port: u16| {
        let tuple = tuple::parse(&format!("udp 192.0.2.1:4000 192.0.2.2:{port}")).unwrap();
        let question = flow::question(&generation, &tuple, &FlowContext::default()).unwrap();
        (flow::as_json(&question, None), flow::explained(&generation, &question).unwrap())
    };
    let (json, told) = explained(53);
    assert_eq!(json["dest_port"], 53);
    assert_eq!((told.policy.name.as_str(), told.verdict.function), ("lab", Some("pfw")));
    assert_eq!(explained(5300).1.verdict.function, None);
    let link = generation.link(None).unwrap();
    let all = flow::capture(&generation, &capture, link, None).unwrap();
    assert_eq!((all.frames, all.flows.len(), all.omitted, all.prevention), (6, 2, 0, true));
    let fourth = CaptureFlow::parse("4").unwrap();
    let one = flow::capture(&generation, &capture, link, Some(&fourth)).unwrap();
    assert_eq!((one.flows.len(), one.flows[0].history.refused.len()), (1, 1));
    let seventh = CaptureFlow::parse("7").unwrap();
    let refused = flow::capture(&generation, &capture, link, Some(&seventh)).err().unwrap();
    assert!(refused.message.contains("has no packet 7: it has 6"), "{refused}");
    assert!(CaptureFlow::parse("0").is_err() && CaptureFlow::parse("tcp").is_err());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn captures_are_replayed_under_two_policies() {
    let folder = folder("replay");
    let policy = file(&folder, "p.yaml", POLICY);
    let base = file(&folder, "base.yaml", POLICY.replace("5300", "53"));
    let records = file(&folder, "eve.json", "{\"event_type\": \"stats\"}\n");
    let traffic = Traffic::of(&[capture(&folder), records.clone()]).unwrap();
    assert_eq!((traffic.captures.len(), traffic.records.as_slice()), (1, [records].as_slice()));
    let options = ReplayOptions { build: build(None), ..ReplayOptions::default() };
    let replayed = replay::run(&options, &traffic, &policy, Some(&base)).unwrap();
    assert_eq!((replayed.report.all.flows, replayed.report.changing.flows, replayed.left_out), (2, 2, 0));
    let same = replay::run(&options, &traffic, &policy, Some(&policy)).unwrap();
    assert_eq!((same.report.all.flows, same.report.changing.flows), (2, 0));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn headers_find_the_rules_of_a_file() {
    let folder = folder("headers");
    let rules = "\
@192.0.2.0/24\t0.0.0.0/0\t0 : 65535\t53 : 53\t0x11/0xFF
@0.0.0.0/0\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF
";
    let rules = file(&folder, "acl.rules", rules);
    let trace = file(&folder, "headers.txt", "3221225985 1 4000 53 17\n3221225985 1 4000 80 6\n1 2 3 4 5\n");
    let rules = HeaderRuleSet::read(&rules, None, None, Report::default()).unwrap();
    let auto = Auto::new(core::slice::from_ref(&rules.entries), 1 << 20).unwrap();
    let headers = rules.trace(&trace).unwrap();
    assert_eq!(lookups::answers(auto.classifier.as_ref(), &headers), [0, 1, -1]);
    assert!(lookups::speed(auto.classifier.as_ref(), &headers) > 0.0);
    let policy = file(&folder, "p.yaml", POLICY);
    let policies = HeaderRuleSet::read(&policy, None, None, Report::default()).unwrap();
    assert_eq!(policies.count, 1);
    assert!(HeaderRuleSet::read(&policy, Some("none"), None, Report::default()).is_err());
    std::fs::remove_dir_all(folder).unwrap();
}
