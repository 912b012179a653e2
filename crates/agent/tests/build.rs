// SPDX-License-Identifier: Apache-2.0
//! Builds classes, paths and functions from the text of a policy; and errors with their places.

use crate::common;

use bartizan_agent::grt::{Meaning, NoFid};
use bartizan_agent::tenants::TenantQuestion;
use bartizan_agent::{Agent, FidAllocator, Prepared};
use bartizan_base::{Fid, FunctionId, Generation, LinkId, TenantId, Timestamp};
use bartizan_config::policy;
use bartizan_flow::{FlowKey, FlowScope};
use bartizan_function::header::header_of_flow;
use bartizan_function::{Function, FunctionKind, FunctionModel, FunctionSpec, RuleSource, RulesError};
use bartizan_packet::{TunnelKind, TunnelTag};
use bartizan_stages::chain::{Class, HeaderRuleMatches};
use common::agent_with_ids as agent;
use std::collections::BTreeSet;
use std::sync::Arc;

const LINKS: &[(&str, LinkId)] = &[("wan", LinkId(1)), ("dmz", LinkId(2))];

fn prepare(agent: &mut Agent, text: &str) -> Result<Prepared, String> {
    let names = agent.function_names();
    let file = policy::parse("policy.yaml", text, &names).map_err(|e| e.to_string())?;
    agent.prepare(&file, LINKS).map_err(|e| e.to_string())
}

fn classify(prepared: &Prepared, tenant: u16, from: &str, to: &str) -> Class {
    classify_on(prepared, tenant, 1, from, to)
}

fn classify_on(prepared: &Prepared, tenant: u16, link: u16, from: &str, to: &str) -> Class {
    let scope = FlowScope { tenant: TenantId(tenant), link: LinkId(link), ..FlowScope::default() };
    let key = FlowKey::ported(&scope, 6, (from.parse().unwrap(), 40_000), (to.parse().unwrap(), 80));
    prepared.chains.classifier.classify(
        &header_of_flow(&key, (0, 0)),
        Timestamp::ZERO,
        &mut HeaderRuleMatches::new(),
    )
}

fn describe(prepared: &Prepared, agent: &Agent, class: Class) -> String {
    let info = prepared.classes.iter().find(|i| i.fid == class.fid).expect("a known fid");
    assert_eq!(info.path, class.path);
    let names = agent.function_names();
    let names = names.iter().copied().chain(["gate"]);
    let mut chain: Vec<_> = names.filter(|n| class.path.contains(agent.function_id(n).unwrap())).collect();
    chain.sort_by_key(|n| agent.function_id(n));
    format!(
        "{}/{}/{}: {}",
        info.tenant,
        info.policy.as_deref().unwrap_or("-"),
        info.level.as_deref().unwrap_or("-"),
        chain.join(" ")
    )
}

const POLICY: &str = "\
groups: {lan: [10.0.0.0/8, 2001:db8::/32]}
rule-groups: {web: [web.rules], full: [all.rules]}
tenants:
  - {name: a, select: {vni: 101}}
  - {name: b, select: {vlan: 102}}
  - {name: c, select: {prefixes: [203.0.113.0/24]}}
service-levels:
  - {hosts: [10.1.1.1, 2001:db8:1::/48], level: none}
  - {hosts: 10.2.0.0/16, level: full, tenant: default}
policies:
  - name: web
    from: lan
    to: [192.168.1.0/24, fd00::/16]
    chain: [pfw, sfw, ids]
    pfw: {default: drop, rules: [{allow: tcp, to-ports: [80, 443]}]}
    sfw: {max-half-open: 100}
    ids: {level: web}
  - {name: tenants, tenant: [a, b], chain: [ids], staged: true, one-sided: drop}
  - {name: dmz, link: dmz, chain: []}
default: {action: drop}
";

#[test]
fn flows_get_the_class_of_the_first_policy_that_they_fit() {
    let (mut agent, ids) = agent();
    let prepared = prepare(&mut agent, POLICY).expect("a generation");
    let cases = [
        (0, 1, "10.9.0.1", "192.168.1.5", "default/web/-: pfw sfw ids"),
        (0, 1, "192.168.1.5", "10.9.0.1", "default/web/-: pfw sfw ids"),
        (0, 1, "2001:db8::1", "fd00::5", "default/web/-: pfw sfw ids"),
        (0, 1, "10.9.0.1", "fd00::5", "default/-/-: gate"),
        (0, 1, "10.1.1.1", "192.168.1.5", "default/web/none: pfw sfw"),
        (0, 1, "fd00::1", "2001:db8:1::1", "default/web/none: pfw sfw"),
        (0, 1, "10.2.3.4", "192.168.1.5", "default/web/full: pfw sfw ids"),
        (0, 1, "8.8.8.8", "9.9.9.9", "default/-/-: gate"),
        (0, 2, "8.8.8.8", "9.9.9.9", "default/dmz/-: "),
        (1, 1, "10.9.0.1", "192.168.1.5", "a/tenants/-: gate ids"),
        (2, 1, "10.1.1.1", "192.168.1.5", "b/tenants/none: gate"),
        (2, 1, "10.2.3.4", "192.168.1.5", "b/tenants/-: gate ids"),
        (3, 1, "10.9.0.1", "192.168.1.5", "c/-/-: gate"),
    ];
    for (tenant, link, from, to, expected) in cases {
        // Mixed versions do not occur in packets; they only show that nothing matches by accident.
        let class = classify_on(&prepared, tenant, link, from, to);
        assert_eq!(describe(&prepared, &agent, class), expected, "{tenant} {link} {from} {to}");
    }
    // No fid belongs to two tenants.
    for info in &prepared.classes {
        let meaning = agent.table().meaning(info.fid).expect("in the table");
        assert_eq!(prepared.classes.iter().filter(|i| i.fid == info.fid).count(), 1);
        assert_eq!(
            meaning.tenant,
            TenantId(["default", "a", "b", "c"].iter().position(|n| *n == info.tenant).unwrap() as u16)
        );
    }
    let order: Vec<_> = prepared.chains.functions.iter().map(|f| f.spec().name).collect();
    assert_eq!(order, ["gate", "pfw", "sfw", "ids"]);
    let given = ids.0.lock().unwrap();
    let levels: Vec<_> =
        given[0]["classes"].as_array().unwrap().iter().map(|c| c["rules"]["level"].clone()).collect();
    assert!(levels.contains(&"web".into()) && levels.contains(&"full".into()), "{levels:?}");
    assert_eq!(given[0]["rule-groups"]["full"][0], "all.rules");
}

#[test]
fn tenants_are_selected_in_either_direction() {
    let (mut agent, _) = agent();
    let prepared = prepare(&mut agent, POLICY).expect("a generation");
    let question = |tunnel, vlans, addresses| {
        prepared.tenants.select(&TenantQuestion { tunnel, vlans, link: LinkId(1), addresses }).0
    };
    let pair = |a: &str, b: &str| Some((a.parse().unwrap(), b.parse().unwrap()));
    assert_eq!(question(TunnelTag::new(TunnelKind::Vxlan, 101), &[], None), 1);
    assert_eq!(question(TunnelTag::new(TunnelKind::Vxlan, 100), &[], None), 0);
    assert_eq!(question(TunnelTag::NONE, &[7, 102], None), 2);
    assert_eq!(question(TunnelTag::NONE, &[], pair("203.0.113.9", "8.8.8.8")), 3);
    assert_eq!(question(TunnelTag::NONE, &[], pair("8.8.8.8", "203.0.113.9")), 3);
    assert_eq!(question(TunnelTag::NONE, &[], pair("8.8.8.8", "9.9.9.9")), 0);
}

/// A list that is empty because its group has no members matches no packet.
#[test]
fn a_tenant_whose_group_has_no_members_gets_nothing() {
    let (mut agent, _) = agent();
    let text = |members: &str| {
        format!(
            "groups: {{some: [{members}]}}\ntenants: [{{name: a, select: {{prefixes: some}}}}]\n\
             policies: [{{name: p, tenant: a, chain: []}}]\ndefault: {{action: drop}}\n"
        )
    };
    for (members, expected) in [("", 0), ("192.0.2.0/24, '2001:db8::/32'", 1), ("", 0)] {
        let prepared = prepare(&mut agent, &text(members)).expect("a generation");
        for (from, to) in [("192.0.2.1", "198.51.100.1"), ("2001:db8::1", "2001:db8:1::1")] {
            let addresses = Some((from.parse().unwrap(), to.parse().unwrap()));
            let question =
                TenantQuestion { tunnel: TunnelTag::NONE, vlans: &[7], link: LinkId(1), addresses };
            assert_eq!(prepared.tenants.select(&question).0, expected, "{members}: {from}");
        }
    }
}

#[test]
fn fids_stay_and_are_used_again() {
    let (mut agent, _) = agent();
    let text = |names: &[&str]| {
        let policies: Vec<_> = names.iter().map(|n| format!("  - {{name: {n}, chain: []}}\n")).collect();
        format!("policies:\n{}default: {{action: allow}}\n", policies.concat())
    };
    let fids = |prepared: &Prepared| -> Vec<(Option<String>, u32)> {
        prepared.classes.iter().map(|c| (c.policy.clone(), c.fid.0)).collect()
    };
    let one = prepare(&mut agent, &text(&["x", "y"])).unwrap();
    assert_eq!(fids(&one), [(Some("x".into()), 0), (Some("y".into()), 1), (None, 2)]);
    let two = prepare(&mut agent, &text(&["y"])).unwrap();
    assert_eq!(fids(&two), [(Some("y".into()), 1), (None, 2)]);
    let three = prepare(&mut agent, &text(&["z", "y"])).unwrap();
    assert_eq!(fids(&three), [(Some("z".into()), 0), (Some("y".into()), 1), (None, 2)]);
    assert_eq!(three.chains.generation, Generation(3));
}

/// An allocator that gives each tenant a block of numbers, the largest first.
#[derive(Clone, Debug, Default)]
struct Blocks {
    used: BTreeSet<u32>,
}

impl FidAllocator for Blocks {
    fn allocate(&mut self, meaning: &Meaning) -> Result<Fid, NoFid> {
        let first = u32::from(meaning.tenant.0) * 1_000;
        let free =
            (first..first + 1_000).rev().find(|number| !self.used.contains(number)).ok_or(NoFid::Full)?;
        self.used.insert(free);
        Ok(Fid(free))
    }

    fn take_back(&mut self, fid: Fid, meaning: &Meaning) {
        assert!(self.used.remove(&fid.0) && fid.0 / 1_000 == u32::from(meaning.tenant.0));
    }

    fn copy(&self) -> Box<dyn FidAllocator> {
        Box::new(self.clone())
    }
}

#[test]
fn another_allocator_of_fids_changes_numbers_and_nothing_else() {
    let ((mut usual, _), (mut agent, _)) = (agent(), agent());
    agent.set_fid_allocator(Box::new(Blocks::default()));
    let fids =
        |prepared: &Prepared| -> Vec<u32> { prepared.classes.iter().map(|class| class.fid.0).collect() };
    let first = prepare(&mut agent, POLICY).expect("a generation");
    for text in [POLICY.replace("name: dmz", "name: other"), POLICY.to_owned()] {
        let expected = prepare(&mut usual, &text).expect("a generation");
        let prepared = prepare(&mut agent, &text).expect("a generation");
        for info in &prepared.classes {
            let tenant =
                ["default", "a", "b", "c"].iter().position(|name| *name == info.tenant).unwrap() as u32;
            assert_eq!(info.fid.0 / 1_000, tenant, "{info:?}");
        }
        assert_ne!(fids(&prepared), fids(&expected));
        for (tenant, link, from, to) in [
            (0, 1, "10.9.0.1", "192.168.1.5"),
            (0, 1, "10.2.3.4", "192.168.1.5"),
            (0, 2, "8.8.8.8", "9.9.9.9"),
            (1, 1, "10.9.0.1", "192.168.1.5"),
            (3, 1, "10.9.0.1", "192.168.1.5"),
        ] {
            let class = |prepared: &Prepared, agent: &Agent| {
                describe(prepared, agent, classify_on(prepared, tenant, link, from, to))
            };
            assert_eq!(class(&prepared, &agent), class(&expected, &usual));
        }
    }
    // A failed build takes no number; a class that comes back gets the number that was given back.
    prepare(&mut agent, &POLICY.replace("name: web", "name: more").replace("[80, 443]", "[80, 99999]"))
        .unwrap_err();
    assert_eq!(fids(&prepare(&mut agent, POLICY).expect("a generation")), fids(&first));
}

#[test]
fn long_lists_are_built_on_one_side_and_refused_on_both() {
    let scattered = |n: u32| std::net::Ipv4Addr::from(n.reverse_bits() | 1).to_string();
    let list: Vec<String> = (0..65_537).map(scattered).collect();
    let text = |to: &str| {
        format!(
            "groups: {{listed: [{}]}}\ntenants: [{{name: a, select: {{vni: 7}}}}]\n\
             policies: [{{name: long, tenant: a, from: listed, to: {to}, chain: [sfw]}}]\ndefault: {{action: drop}}\n",
            list.join(", ")
        )
    };
    let (mut agent, _) = agent();
    let prepared = prepare(&mut agent, &text("192.0.2.0/24")).expect("a generation");
    for (from, to, is) in [
        (list[65_536].as_str(), "192.0.2.9", "a/long/-: sfw"),
        ("192.0.2.9", list[7].as_str(), "a/long/-: sfw"),
        (list[7].as_str(), list[8].as_str(), "a/-/-: gate"),
    ] {
        assert_eq!(describe(&prepared, &agent, classify(&prepared, 1, from, to)), is);
    }
    let wrong = prepare(&mut agent, &text("listed")).unwrap_err();
    assert!(
        wrong.contains("policy.yaml:3:") && wrong.contains("with this tenant `a` has more than 262144 pairs"),
        "{wrong}"
    );
}

/// A group of scattered addresses.
fn scattered(name: &str, first: u32, size: u32) -> String {
    let addresses =
        (first..first + size).map(|n| std::net::Ipv4Addr::from((n * 2 + 1).reverse_bits()).to_string());
    format!("{name}: [{}]", addresses.collect::<Vec<_>>().join(", "))
}

/// A line of the kernel's status of this process.
fn memory(key: &str) -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned()
}

/// Prints the cost of policies at their bounds: time and memory of a build, and time of a new flow's lookup
/// (`--ignored --nocapture`).
#[test]
#[ignore = "takes a minute: for figures"]
fn as_much_as_tenants_may_have() {
    for (tenants, from, to) in [(1u32, 262_144, 1), (1, 512, 512), (4, 512, 512)] {
        let groups: Vec<String> = (0..tenants)
            .flat_map(|n| {
                [
                    scattered(&format!("from{n}"), n * from, from),
                    scattered(&format!("to{n}"), 1_000_000 + n * to, to),
                ]
            })
            .collect();
        let each = |what: &dyn Fn(u32) -> String| (0..tenants).map(what).collect::<Vec<_>>().join(", ");
        let text = format!(
            "groups: {{{}}}\ntenants: [{}]\npolicies: [{}]\ndefault: {{action: drop}}\n",
            groups.join(", "),
            each(&|n| format!("{{name: t{n}, select: {{vni: {n}}}}}")),
            each(&|n| format!("{{name: p{n}, tenant: t{n}, from: from{n}, to: to{n}, chain: [sfw]}}")),
        );
        let (mut agent, _) = agent();
        let begun = std::time::Instant::now();
        let prepared = prepare(&mut agent, &text).expect("a generation");
        let built = begun.elapsed();
        let begun = std::time::Instant::now();
        for n in 0..10_000u32 {
            let address = std::net::Ipv4Addr::from(n.wrapping_mul(2_654_435_761)).to_string();
            classify(&prepared, 1, &address, "192.0.2.1");
        }
        let each = begun.elapsed() / 10_000;
        println!(
            "{tenants} tenants, {from} x {to}: {built:?}, {each:?} a lookup; {}, {}",
            memory("VmRSS"),
            memory("VmHWM")
        );
    }
}

/// Prints the cost of packet filters at their bounds: tenants with all combinations that they may have, and a
/// change of a small policy beside them.
#[test]
#[ignore = "prints figures and takes half a gigabyte; what the bounds refuse is tested in the policy reader"]
fn as_many_combinations_as_tenants_may_have() {
    for tenants in [1u32, 4, 15] {
        let groups: Vec<String> = (0..tenants).map(|n| scattered(&format!("g{n}"), n * 256, 256)).collect();
        let each = |what: &dyn Fn(u32) -> String| (0..tenants).map(what).collect::<Vec<_>>().join(", ");
        let policies = each(&|n| {
            let of = |policy: u32| {
                format!(
                    "{{name: p{n}-{policy}, tenant: t{n}, to: 192.0.2.{policy}, chain: [pfw], pfw: {{default: drop, rules: [{{allow: tcp, from: g{n}, to: g{n}}}]}}}}"
                )
            };
            (0..4).map(of).collect::<Vec<_>>().join(", ")
        });
        let text = |port: u16| {
            format!(
                "groups: {{{}}}\ntenants: [{}, {{name: small, select: {{vni: 999}}}}]\npolicies: [{policies}, \
                 {{name: small, tenant: small, chain: [pfw], pfw: {{default: drop, rules: [{{allow: tcp, to-ports: {port}}}]}}}}]\ndefault: {{action: drop}}\n",
                groups.join(", "),
                each(&|n| format!("{{name: t{n}, select: {{vni: {n}}}}}")),
            )
        };
        let (mut agent, _) = agent();
        let timed = |agent: &mut _, port| {
            let begun = std::time::Instant::now();
            let prepared = prepare(agent, &text(port)).expect("a generation");
            (begun.elapsed(), prepared)
        };
        let (first, kept) = timed(&mut agent, 80);
        let (next, _kept) = timed(&mut agent, 81);
        println!(
            "{tenants} tenants: {first:?}, one changed {next:?}; {}, {}",
            memory("VmRSS"),
            memory("VmHWM")
        );
        drop(kept);
    }
}

#[test]
fn a_generation_that_does_not_build_changes_nothing() {
    let (mut agent, _) = agent();
    prepare(&mut agent, POLICY).expect("a generation");
    let before = format!("{agent:?}");
    let broken =
        POLICY.replace("name: web", "name: other").replace("to-ports: [80, 443]", "to-ports: [80, 99999]");
    prepare(&mut agent, &broken).expect_err("a broken policy");
    assert_eq!(format!("{agent:?}"), before);
}

#[test]
fn errors_say_where_and_what_to_do() {
    let (mut agent, _) = agent();
    let with = |policy: &str| format!("default: {{action: drop}}\npolicies:\n  - {policy}\n");
    let cases = [
        ("{name: a, chain: [pfv]}", "3:23: there is no function `pfv`; did you mean `pfw`?"),
        (
            "{name: a, chain: [pfv], pfw: {default: drop}}",
            "3:23: there is no function `pfv`; did you mean `pfw`?\n\
             policy.yaml:3:29: the section `pfw` has no effect: `pfw` is not in the chain; add it there, or remove the section",
        ),
        (
            "{name: a, chain: [gate]}",
            "3:23: there is no function `gate`; known: `portscan`, `pfw`, `sfw`, `ids`",
        ),
        (
            "{name: a, chain: [ids, sfw]}",
            "3:15: these functions run in another order; write `chain: [sfw, ids]`",
        ),
        ("{name: a, chain: [ids, ids]}", "3:28: the chain has `ids` twice; remove one"),
        ("{name: a, chain: [], link: wam}", "3:32: the host file has no link `wam`; did you mean `wan`?"),
        ("{name: a, chain: [pfw]}", "3:15: pfw: the key `default` is missing; add it"),
        (
            "{name: a, chain: [pfw], pfw: {default: dorp}}",
            "3:44: pfw: `dorp` is not known here; did you mean `drop`?",
        ),
        (
            "{name: a, chain: [pfw], pfw: {default: drop, rules: [{allow: tcp, to-ports: [80, 99999]}]}}",
            "3:86: pfw: `99999` is not a port; write 443, 8000-8999 or any",
        ),
        (
            "{name: a, chain: [pfw], pfw: {default: drop, rules: [{allow: tcp, from: lan}]}}",
            "3:77: pfw: there is no group `lan`; none exists",
        ),
        (
            "{name: a, chain: [sfw], sfw: {max-connection: 3}}",
            "3:35: sfw: the key `max-connection` is not known; did you mean `max-connections`?",
        ),
    ];
    for (policy, expected) in cases {
        let error = prepare(&mut agent, &with(policy)).expect_err(policy);
        assert_eq!(error, format!("policy.yaml:{expected}"), "{policy}");
    }
}

#[test]
fn functions_that_the_reader_did_not_know_are_found_by_the_agent() {
    let (mut agent, _) = agent();
    for (name, says) in [("pfv", "did you mean `pfw`?"), ("gate", "known: `portscan`, `pfw`, `sfw`, `ids`")] {
        let text = format!("default: {{action: drop}}\npolicies: [{{name: a, chain: [{name}]}}]\n");
        let file = policy::parse("policy.yaml", &text, &[]).expect("names are not looked at");
        let error = agent.prepare(&file, LINKS).expect_err(name).to_string();
        assert_eq!(error, format!("policy.yaml:2:30: there is no function `{name}`; {says}"));
    }
}

#[test]
fn ten_lines_are_enough() {
    let (mut agent, _) = agent();
    let text = "\
policies:
  - name: web
    from: [10.0.0.0/8]
    to: [192.168.1.0/24]
    chain: [pfw, sfw, ids]
    pfw: {default: drop, rules: [{allow: tcp, to-ports: [80, 443]}]}
    sfw: {max-half-open: 100}
    ids: {rules: [web.rules]}
default: {action: drop}
";
    assert!(text.lines().count() <= 10);
    let prepared = prepare(&mut agent, text).expect("a generation");
    assert_eq!(
        describe(&prepared, &agent, classify(&prepared, 0, "10.0.0.1", "192.168.1.1")),
        "default/web/-: pfw sfw ids"
    );
}

#[test]
fn staged_policies_report_what_they_would_refuse_and_drop_nothing() {
    use bartizan_base::{Direction, Timestamp, Verdict};
    use bartizan_function::{ChainResults, FindingAction, PacketContext, PacketFacts};
    use bartizan_packet::{DecodeOutput, Decoder, DecoderConfig, LinkType, PacketView};
    use bartizan_testkit::hosts;

    let text = |staged: bool| {
        format!(
            "policies: [{{name: p, staged: {staged}, chain: [pfw], pfw: {{default: drop}}}}]\ndefault: {{action: allow}}\n"
        )
    };
    for staged in [true, false] {
        let (mut agent, _) = agent();
        let prepared = prepare(&mut agent, &text(staged)).expect("a generation");
        let class = classify(&prepared, 0, "10.0.0.1", "10.0.0.2");
        let function = &prepared.chains.functions[0];
        let bytes = hosts::ip(false, (1, 2), 17, &hosts::udp((9, 9), b""));
        let mut out = DecodeOutput::default();
        Decoder::new(DecoderConfig::built_in()).decode(LinkType::RAW, &bytes, 28, &mut out);
        let view = PacketView::new(&bytes, out.outer().unwrap());
        let notes = ChainResults { fid: class.fid, ..ChainResults::default() };
        let facts = PacketFacts::of(Timestamp::ZERO, Direction::ToServer, Some(&view), true);
        let (mut worker, mut slot, mut reported) = (function.worker(), None, 0);
        let mut findings = Vec::new();
        for _ in 0..3 {
            let decision = function.packet(&mut PacketContext {
                facts: &facts,
                app: None,
                reject: &mut None,
                notes: &notes,
                worker: &mut worker,
                slot: &mut slot,
                staged: &mut reported,
                findings: &mut findings,
                edits: &mut Vec::new(),
            });
            assert_eq!(decision.verdict, if staged { Verdict::Continue } else { Verdict::Drop });
        }
        let mut counters = Vec::new();
        function.log(&worker, &mut |name, value| counters.push((name, value)));
        assert!(counters.contains(&("dropped", 3)), "{counters:?}");
        assert_eq!(counters.contains(&("staged_refusals", 3)), staged);
        // Once per flow and reason.
        assert_eq!(findings.len(), usize::from(staged));
        for finding in &findings {
            assert_eq!(finding.action, FindingAction::Allowed);
            assert_eq!(finding.rule.message, "staged policy: pfw would refuse this (pfw_default)");
        }
    }
}

/// A function whose `rules` panics when the test requests it.
struct Brittle;

static BRITTLE: FunctionSpec = FunctionSpec {
    name: "brittle",
    summary: "Panics while its rules are read.",
    model: FunctionModel::StatelessHeaders,
    runs_after: &["sfw"],
    runs_before: &["ids"],
    header_half: None,
    host_slot: None,
    counters: &[],
};

struct Quiet(FunctionId);

impl Function for Quiet {
    fn spec(&self) -> &'static FunctionSpec {
        &BRITTLE
    }

    fn id(&self) -> FunctionId {
        self.0
    }
}

impl FunctionKind for Brittle {
    fn spec(&self) -> &'static FunctionSpec {
        &BRITTLE
    }

    fn changeable(&self) -> &'static [&'static str] {
        &["breaks", "level"]
    }

    fn rules(&self, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>> {
        let section = source.classes[0].section().json();
        assert!(section["breaks"] != true, "a defect, made by the test");
        if section["level"] == 9 {
            let (place, message) = ("classes/0/rules/level".to_owned(), "9 is too high".to_owned());
            return Err(vec![RulesError { function: "brittle", place, message }]);
        }
        Ok(Box::new(Quiet(source.id)))
    }
}

fn with_brittle() -> Agent {
    let mut kinds = common::kinds_with_ids();
    kinds.push(Arc::new(Brittle));
    Agent::new(kinds).unwrap()
}

const CHAINED: &str = "policies: [{name: p, chain: [sfw, brittle, ids], brittle: {level: 1}, on-failure: {ids: pass}}]\ndefault: {action: drop}\n";

#[test]
fn a_function_that_panics_while_its_rules_are_read_is_an_error_with_a_place() {
    let mut agent = with_brittle();
    prepare(&mut agent, CHAINED).unwrap();
    let wrong = prepare(&mut agent, &CHAINED.replace("level: 1", "breaks: true")).unwrap_err();
    assert!(wrong.starts_with("policy.yaml:1:") && wrong.contains("made by the test"), "{wrong}");
    let prepared = prepare(&mut agent, CHAINED).unwrap();
    assert_eq!(prepared.chains.generation, Generation(2));
    let passes = prepared.classes.iter().find(|class| class.policy.is_some()).unwrap().fail_open_functions;
    // Also without the reader of resolvers' answers, which no policy names.
    let expected = ["ids", "names"].map(|name| agent.function_id(name).unwrap());
    assert_eq!(passes.functions().collect::<Vec<_>>(), expected);
}

#[test]
fn settings_by_order_are_those_that_the_function_names_and_accepts() {
    let mut agent = with_brittle();
    let settings = |text: &str| serde_json::from_str::<serde_json::Map<_, _>>(text).unwrap();
    for (function, given, says) in [
        ("brittel", r#"{"level": 2}"#, "there is no function `brittel`; did you mean `brittle`"),
        (
            "brittle",
            r#"{"lever": 2}"#,
            "no setting `lever` that can change while it runs; settings: breaks, level",
        ),
        ("brittle", "{}", "no setting is given; settings of `brittle`: breaks, level"),
        ("pfw", r#"{"default": "drop"}"#, "`pfw` has no settings that can change"),
        ("gate", r#"{"refuse": false}"#, "there is no function `gate`"),
    ] {
        let why = agent.configure(function, &settings(given)).unwrap_err();
        assert!(why.contains(says), "{why}");
    }
    prepare(&mut agent, CHAINED).unwrap();
    let before = agent.configure("brittle", &settings(r#"{"level": 9}"#)).unwrap();
    let wrong = prepare(&mut agent, CHAINED).unwrap_err();
    assert!(wrong.starts_with("policy.yaml:1:") && wrong.contains("9 is too high"), "{wrong}");
    agent.restore(before);
    prepare(&mut agent, CHAINED).unwrap();
    agent.configure("brittle", &settings(r#"{"level": 3, "breaks": true}"#)).unwrap();
    assert!(prepare(&mut agent, CHAINED).unwrap_err().contains("made by the test"));
    agent.configure("brittle", &settings(r#"{"breaks": null}"#)).unwrap();
    prepare(&mut agent, CHAINED).unwrap();
}

#[test]
fn a_chain_that_cannot_run_in_its_order_is_refused_whole_with_its_place() {
    let mut agent = with_brittle();
    prepare(&mut agent, CHAINED).unwrap();
    let text = "\
policies:
  - {name: good, to: [192.0.2.1], chain: [sfw, ids]}
  - name: broken
    chain: [sfw, ids, brittle]
  - name: other
    chain: [brittle, sfw]
default: {action: drop}
";
    let wrong = prepare(&mut agent, text).unwrap_err();
    for says in [
        "policy.yaml:4:5: these functions run in another order; write `chain: [sfw, brittle, ids]`",
        "policy.yaml:6:5: these functions run in another order; write `chain: [sfw, brittle]`",
    ] {
        assert!(wrong.contains(says), "{wrong}");
    }
    // No part of the failed generation is used, not even its valid policy.
    let prepared = prepare(&mut agent, CHAINED).unwrap();
    assert_eq!(prepared.chains.generation, Generation(2));
    assert!(!prepared.classes.iter().any(|class| class.policy.as_deref() == Some("good")));
}
