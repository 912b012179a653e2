// SPDX-License-Identifier: Apache-2.0
//! Explanations agree with the classifier: for any flow, the walk through the file finds the same policy.

use crate::common;

use bartizan_agent::explain::{FlowExplanation, FlowQuestion, Subject, explain};
use bartizan_agent::{Agent, Prepared};
use bartizan_applayer::flow::Engine;
use bartizan_base::{LinkId, SettingsMap, TenantId};
use bartizan_config::policy::PolicyFile;
use bartizan_stages::settings::EngineSettings;
use common::{agent_with_ids, engine, links, read};
use proptest::prelude::*;
use std::sync::Arc;

const LINKS: [&str; 2] = ["wan", "dmz"];

const POLICY: &str = "\
groups: {lan: [10.0.0.0/8, \"2001:db8::/32\"], odd: [lan, 172.16.0.0/12]}
rule-groups: {web: [web.rules]}
tenants:
  - {name: a, select: {vlan: 102}}
  - {name: b, select: {prefixes: [203.0.113.0/24]}}
service-levels:
  - {hosts: [10.1.0.0/16, \"2001:db8:1::/48\"], level: none}
policies:
  - {name: dmz, link: dmz, from: lan, chain: [ids]}
  - name: web
    from: lan
    to: [192.0.2.0/24, \"fd00::/16\"]
    chain: [pfw, sfw, ids]
    pfw: {default: drop, rules: [{allow: tcp, to-ports: [80, 443]}, {reject: udp, to: 192.0.2.53}, {allow: icmp, type: 8}]}
    sfw: {initiate: both}
    ids: {level: web}
  - {name: inner, from: odd, to: odd, chain: [sfw], tenant: [default, a]}
  - {name: tenants, tenant: [a, b], chain: [ids], staged: true}
default: {action: drop}
";

struct World {
    agent: Agent,
    file: PolicyFile,
    prepared: Prepared,
    settings: EngineSettings,
    engine: Arc<Engine>,
}

fn world() -> World {
    let (mut agent, _) = agent_with_ids();
    let file = read(&agent, POLICY);
    let prepared = agent.prepare(&file, &links(&LINKS)).expect("a generation");
    let (settings, engine) = engine(&SettingsMap::default());
    World { agent, file, prepared, settings, engine }
}

impl World {
    fn names(&self) -> Vec<&'static str> {
        let mut names = vec!["?"; 32];
        for name in self.agent.function_names().into_iter().chain(["gate"]) {
            names[usize::from(self.agent.function_id(name).expect("a function").0)] = name;
        }
        names
    }

    fn ask(self, questions: &[FlowQuestion]) -> Vec<FlowExplanation> {
        let names = self.names();
        let tenants = self.agent.tenants();
        let Prepared { chains, tenants: selector, classes, .. } = self.prepared;
        let chains = Arc::new(chains);
        let links: Vec<(String, LinkId)> =
            LINKS.iter().zip(0..).map(|(n, i)| ((*n).to_owned(), LinkId(i))).collect();
        let subject = Subject {
            file: &self.file,
            classes: &classes,
            tenants: &selector,
            tenant_ids: &tenants,
            links: &links,
            chains: &chains,
            functions: &names,
            settings: &self.settings,
            engine: &self.engine,
        };
        questions.iter().map(|q| explain(&subject, q).expect("an explanation")).collect()
    }
}

fn question(protocol: u8, from: (&str, u16), to: (&str, u16)) -> FlowQuestion {
    FlowQuestion {
        protocol,
        source: Some((from.0.parse().unwrap(), from.1)),
        destination: Some((to.0.parse().unwrap(), to.1)),
        // A link that no policy names.
        link: LinkId(9),
        ..FlowQuestion::default()
    }
}

const V4: [&str; 7] =
    ["10.0.0.1", "10.1.2.3", "192.0.2.7", "192.0.2.53", "172.16.0.1", "203.0.113.5", "8.8.8.8"];
const V6: [&str; 5] = ["2001:db8::1", "2001:db8:1::1", "fd00::7", "2001:4860::8888", "fe80::1"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn walk_and_classifier_agree(
        picks in proptest::collection::vec(
            (any::<bool>(), any::<prop::sample::Index>(), any::<prop::sample::Index>(),
             prop::sample::select(vec![1u8, 6, 17, 47, 58, 132]), prop::sample::select(vec![0u16, 53, 80, 443, 5000]),
             0u16..4, prop::sample::select(vec![0u16, 7, 102]), 0u16..4),
            40,
        )
    ) {
        let questions: Vec<FlowQuestion> = picks.iter().map(|(v6, a, b, protocol, port, link, vlan, tenant)| {
            let list: &[&str] = if *v6 { &V6 } else { &V4 };
            let mut question = question(*protocol, (list[a.index(list.len())], 40_000), (list[b.index(list.len())], *port));
            question.link = LinkId(*link);
            question.vlans = if *vlan == 0 { vec![] } else { vec![*vlan] };
            question.tenant = (*tenant < 3).then_some(TenantId(*tenant));
            question
        }).collect();
        for (question, told) in questions.iter().zip(world().ask(&questions)) {
            prop_assert_eq!(&told.disagreement, &None, "{:?}", question);
            // Every function of the path decided, in order.
            let asked: Vec<&str> = told.functions.iter().map(|f| f.function).collect();
            prop_assert_eq!(&asked, &told.path, "{:?}", question);
            // The first drop decides, and later functions are not reached.
            let first = told.functions.iter().position(|f| f.reason.is_some());
            prop_assert_eq!(first.is_some(), told.verdict.reason.is_some());
            for (index, function) in told.functions.iter().enumerate() {
                prop_assert_eq!(function.reached, first.is_none_or(|f| index <= f));
                prop_assert!(function.place.is_some());
            }
        }
    }
}

#[test]
fn answers_have_their_places() {
    let questions = [
        question(6, ("10.0.0.1", 40_000), ("192.0.2.7", 80)),
        question(17, ("10.0.0.1", 40_000), ("192.0.2.53", 53)),
        question(1, ("10.0.0.1", 0), ("192.0.2.7", 0)),
        question(6, ("10.1.0.1", 40_000), ("192.0.2.7", 22)),
        question(6, ("8.8.8.8", 1), ("9.9.9.9", 2)),
    ];
    let told = world().ask(&questions);
    let pfw = |n: usize| {
        let answer = told[n].functions.iter().find(|f| f.function == "pfw").expect("pfw");
        (answer.rule, answer.place.clone().expect("a place"), answer.verdict)
    };
    assert_eq!(pfw(0), (Some(1), "policy.yaml:14:34".to_owned(), "continue"));
    assert_eq!(pfw(1), (Some(2), "policy.yaml:14:69".to_owned(), "reject"));
    assert_eq!(pfw(2), (Some(3), "policy.yaml:14:100".to_owned(), "continue"));
    assert_eq!(pfw(3), (None, "policy.yaml:14:20".to_owned(), "drop"));
    assert_eq!(told[3].service_level.as_ref().map(|l| (l.level.as_str(), l.counts)), Some(("none", true)));
    assert_eq!(told[3].path, ["pfw", "sfw"]);
    assert_eq!(told[4].path, ["gate"]);
    assert_eq!(told[4].verdict.reason, Some("policy_default"));
    assert_eq!(told[4].functions[0].place.as_deref(), Some("policy.yaml:19:1"));
    // One side is not enough, and both have to be of one IP version.
    let mixed = question(6, ("10.0.0.1", 1), ("2001:db8::1", 2));
    let w = world();
    let names = w.names();
    let tenants = w.agent.tenants();
    let chains = Arc::new(w.prepared.chains);
    let subject = Subject {
        file: &w.file,
        classes: &w.prepared.classes,
        tenants: &w.prepared.tenants,
        tenant_ids: &tenants,
        links: &[],
        chains: &chains,
        functions: &names,
        settings: &w.settings,
        engine: &w.engine,
    };
    let error = explain(&subject, &mixed).expect_err("two versions").to_string();
    assert!(error.contains("two addresses of one IP version: found 10.0.0.1 and 2001:db8::1"), "{error}");
}
