// SPDX-License-Identifier: Apache-2.0
//! A generation that was reached by many changes decides and explains as one built from scratch, and is
//! refused for the same reasons.

use crate::common;

use bartizan_agent::{Agent, ClassInfo, Prepared};
use bartizan_base::{FunctionId, LinkId, TenantId, Timestamp};
use bartizan_classify::Header;
use bartizan_classify::names::Lease;
use bartizan_config::policy::{self, Parts, PolicyFile, PolicyText};
use bartizan_stages::chain::HeaderRuleMatches;
use bartizan_testkit::random::Random;
use common::{agent_with_ids, links, read};
use core::net::{Ipv4Addr, Ipv6Addr};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

const TENANTS: usize = 4;
const LINKS: [&str; 2] = ["wan", "dmz"];
const NETS: [&str; 8] = [
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.1.2.0/24",
    "10.1.2.3/32",
    "192.0.2.0/24",
    "2001:db8::/32",
    "2001:db8:1::/48",
    "any",
];
/// Members of each list, which no header has: every list has both IP versions, since policies and rules that
/// never match are errors.
const FILLERS: [&str; 2] = ["203.0.113.7/32", "2001:db8:ffff::7/128"];
const DNS: [&str; 3] = ["a.example", "b.example", "*.c.example"];
const GROUPS: [&str; 3] = ["web", "db", "far"];
const NOW: Timestamp = Timestamp::from_parts(1_000, 0);

/// A controller's documents, with random changes.
#[derive(Clone)]
struct World {
    random: Random,
    tenants: Vec<usize>,
    quotas: Vec<Option<u64>>,
    groups: Vec<Value>,
    levels: Vec<Value>,
    policies: Vec<(u64, Value)>,
    next: u64,
}

impl World {
    fn new(seed: u64, policies: usize) -> Self {
        let mut world = World {
            random: Random::new(seed),
            tenants: (0..TENANTS).collect(),
            quotas: vec![None; TENANTS],
            groups: Vec::new(),
            levels: Vec::new(),
            policies: Vec::new(),
            next: 0,
        };
        world.groups = (0..GROUPS.len()).map(|_| world.members()).collect();
        for _ in 0..policies {
            world.add();
        }
        world
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.random.below(of.len())]
    }

    fn members(&mut self) -> Value {
        let mut members = vec![json!(self.pick(&NETS[..7])), json!(FILLERS[0]), json!(FILLERS[1])];
        if self.random.percent(40) {
            members.push(json!({"dns": [self.pick(&DNS)]}));
        }
        json!(members)
    }

    fn targets(&mut self) -> Value {
        match self.random.below(3) {
            0 => json!([self.pick(&GROUPS)]),
            1 => json!([self.pick(&NETS), FILLERS[0], FILLERS[1]]),
            _ => json!([self.pick(&NETS), self.pick(&NETS), FILLERS[0], FILLERS[1]]),
        }
    }

    fn rule(&mut self) -> Value {
        let action = self.pick(&["allow", "drop", "reject"]);
        let mut rule = json!({action: self.pick(&["tcp", "udp"])});
        if self.random.percent(80) {
            let port = 1 + self.random.below(6);
            rule["to-ports"] = json!([port, format!("{}-{}", 20 + port, 40 + port)]);
        }
        if self.random.percent(30) {
            rule["from"] = self.targets();
        }
        rule
    }

    fn policy(&mut self, number: u64) -> Value {
        let chain = self.pick(&["pfw", "pfw sfw", "pfw ids", "sfw ids", "ids", ""]);
        let chain: Vec<&str> = chain.split_whitespace().collect();
        let tenant = match self.random.below(4) {
            0 => json!(["any"]),
            _ => json!([format!("t{}", self.tenants[self.random.below(self.tenants.len())])]),
        };
        let mut policy = json!({
            "name": format!("p{number}"), "tenant": tenant, "from": self.targets(), "to": self.targets(),
            "chain": chain, "staged": self.random.percent(10),
        });
        if chain.contains(&"pfw") {
            let rules: Vec<Value> = (0..self.random.below(6)).map(|_| self.rule()).collect();
            policy["pfw"] = json!({"default": self.pick(&["drop", "allow"]), "rules": rules});
        }
        if self.random.percent(20) {
            policy["link"] = json!([self.pick(&LINKS)]);
        }
        policy
    }

    fn add(&mut self) {
        let number = self.next;
        self.next += 1;
        let at = self.random.below(self.policies.len() + 1);
        let policy = self.policy(number);
        self.policies.insert(at, (number, policy));
    }

    fn change(&mut self) {
        let at = self.random.below(self.policies.len().max(1));
        match self.random.below(12) {
            0..=2 => self.add(),
            3 if self.policies.len() > 3 => drop(self.policies.remove(at)),
            4 if self.policies.len() > 3 => {
                let moved = self.policies.remove(at);
                self.policies.push(moved);
            }
            5 => {
                let group = self.random.below(GROUPS.len());
                self.groups[group] = self.members();
            }
            6 => {
                let tenant = self.random.below(TENANTS);
                self.quotas[tenant] = self.random.percent(50).then_some(1_000);
            }
            7 if self.tenants.len() > 1 => {
                let gone = self.tenants.remove(self.random.below(self.tenants.len()));
                let of = json!([format!("t{gone}")]);
                self.policies.retain(|(_, policy)| policy["tenant"] != of);
            }
            8 => {
                let missing = (0..TENANTS).find(|tenant| !self.tenants.contains(tenant));
                self.tenants.extend(missing);
            }
            9 => {
                let level = self.pick(&["full", "some", "none"]);
                let hosts = json!([self.pick(&NETS[..7])]);
                self.levels = vec![json!({"hosts": hosts, "level": level})];
            }
            _ if !self.policies.is_empty() => {
                let number = self.policies[at].0;
                self.policies[at].1 = self.policy(number);
            }
            _ => self.add(),
        }
    }

    fn text(&self) -> Value {
        let tenant = |number: &usize| {
            let mut tenant = json!({"name": format!("t{number}"), "select": {"vlan": 10 + number}});
            if let Some(rules) = self.quotas[*number] {
                tenant["quotas"] = json!({"rules": rules});
            }
            tenant
        };
        let groups: serde_json::Map<String, Value> = GROUPS
            .iter()
            .zip(&self.groups)
            .map(|(name, members)| (name.to_string(), members.clone()))
            .collect();
        json!({
            "groups": groups,
            "dns": {"resolvers": ["10.0.0.53"]},
            "rule-groups": {"full": ["a.rules", "b.rules"], "some": ["a.rules"]},
            "tenants": self.tenants.iter().map(tenant).collect::<Vec<_>>(),
            "service-levels": self.levels,
            "policies": self.policies.iter().map(|(_, policy)| policy).collect::<Vec<_>>(),
            "default": {"action": "allow", "chain": []},
        })
    }

    fn header(&mut self) -> Header {
        let v6 = self.random.percent(25);
        let mut address = || match v6 {
            false => {
                let of = ["10.9.0.1", "10.1.9.1", "10.1.2.9", "10.1.2.3", "192.0.2.7", "198.51.100.1"];
                of[self.random.below(of.len())].parse::<Ipv4Addr>().unwrap().into()
            }
            true => {
                let of = ["2001:db8::1", "2001:db8:1::1", "2001:db9::1"];
                of[self.random.below(of.len())].parse::<Ipv6Addr>().unwrap().into()
            }
        };
        let (source, destination) = (address(), address());
        Header {
            tenant: TenantId(self.random.below(TENANTS + 1) as u16),
            link: LinkId(self.random.below(2) as u16),
            source,
            destination,
            protocol: [6, 17][self.random.below(2)],
            source_port: 40_000,
            destination_port: 1 + self.random.below(50) as u16,
        }
    }
}

/// An agent that has numbered the tenants, and in which some addresses have names; the lease keeps the names'
/// numbers.
fn begun() -> (Agent, Lease) {
    let (mut agent, _) = agent_with_ids();
    let file = read(&agent, &World::new(0, 0).text().to_string());
    agent.prepare(&file, &links(&LINKS)).expect("a generation");
    let lease = agent.names().lease(DNS).expect("numbers");
    for (number, name) in DNS.iter().enumerate() {
        let id = lease.id(name).expect("a number");
        for tenant in 0..=TENANTS as u16 {
            let address = Ipv4Addr::new(198, 51, 100, number as u8).into();
            let asked: Arc<str> = Arc::from(*name);
            agent.names().learn(TenantId(tenant), address, id, &asked, Timestamp::from_parts(9_000, 0), NOW);
        }
    }
    (agent, lease)
}

/// The description of a class without its fid, which depends on earlier generations.
fn unnumbered(prepared: &Prepared, fid: bartizan_base::Fid) -> ClassInfo {
    let info = prepared.classes.iter().find(|class| class.fid == fid).expect("a class");
    ClassInfo { fid: bartizan_base::Fid(0), ..ClassInfo::clone(info) }
}

fn decided(prepared: &Prepared, header: &Header) -> (ClassInfo, Vec<(FunctionId, u32)>, String) {
    let mut matches = HeaderRuleMatches::new();
    let class = prepared.chains.classifier.classify(header, NOW, &mut matches);
    let info = unnumbered(prepared, class.fid);
    let told = prepared.chains.classifier.explain(header, NOW).expect("an explanation");
    let told = serde_json::to_string(&told).expect("text");
    (info, matches.iter().copied().collect(), format!("{:?} {told}", class.path))
}

fn same(changed: &Prepared, anew: &Prepared, headers: &[Header], what: &str) {
    for header in headers {
        assert_eq!(decided(changed, header), decided(anew, header), "{header:?}, {what}");
    }
    let known = |prepared: &Prepared| {
        let mut classes: Vec<_> =
            prepared.classes.iter().map(|class| format!("{:?}", unnumbered(prepared, class.fid))).collect();
        classes.sort();
        classes
    };
    assert_eq!(known(changed), known(anew), "{what}");
}

/// Successive files whose unchanged parts are the same by address.
struct Files {
    common: Arc<Value>,
    policies: HashMap<String, Arc<PolicyText>>,
    read: Option<PolicyFile>,
}

impl Files {
    fn new() -> Self {
        Files { common: Arc::default(), policies: HashMap::new(), read: None }
    }

    fn next(&mut self, agent: &Agent, said: &Value) -> PolicyFile {
        let mut common = said.clone();
        let policies = common.as_object_mut().and_then(|file| file.remove("policies"));
        if common != *self.common {
            self.common = Arc::new(common);
        }
        let text = |policy: &Value| {
            let text = self.policies.entry(policy.to_string());
            Arc::clone(text.or_insert_with(|| Arc::new(PolicyText::new(policy.clone()))))
        };
        let policies = policies.as_ref().and_then(Value::as_array).expect("policies").iter().map(text);
        let parts = Parts { policies: policies.collect(), common: Arc::clone(&self.common) };
        let names = agent.function_names();
        let file = policy::from_parts("chain", &parts, &names, self.read.as_ref()).expect("a policy file");
        self.read = Some(file.clone());
        file
    }
}

/// Checks that compiled policies are the same by address if neither they nor the common input changed.
/// Returns how many are shared.
fn shared((before, old): &(PolicyFile, Prepared), (file, new): &(PolicyFile, Prepared)) -> usize {
    if !Arc::ptr_eq(&before.common, &file.common) {
        return 0;
    }
    let mut count = 0;
    for class in &new.classes {
        let stays = |file: &PolicyFile| {
            file.policies.iter().find(|p| class.policy.as_ref() == Some(&p.name)).cloned()
        };
        let (was, is) = (stays(before), stays(file));
        if was.zip(is).is_some_and(|(was, is)| Arc::ptr_eq(&was, &is)) {
            assert!(old.classes.iter().any(|known| Arc::ptr_eq(known, class)), "{class:?} was made again");
            count += 1;
        }
    }
    count
}

fn chain(seed: u64, policies: usize, together_max: usize) -> usize {
    let mut world = World::new(seed, policies);
    let (mut agent, _names) = begun();
    agent.set_together_max(together_max);
    let (mut files, mut before, mut count) = (Files::new(), None, 0);
    let headers: Vec<Header> = (0..80).map(|_| world.header()).collect();
    for step in 0..40 {
        world.change();
        let said = world.text();
        // Some that are refused, and leave everything as it was.
        if step % 9 == 5 {
            let mut broken = said.clone();
            broken["policies"]
                .as_array_mut()
                .expect("a list")
                .push(json!({"name": "odd", "chain": ["pfw"], "pfw":
                {"default": "drop", "rules": [{"allow": "icmp", "to-ports": 1}]}}));
            let names = agent.function_names();
            let file = policy::parse("odd.yaml", &broken.to_string(), &names).expect("it can be read");
            let before = format!("{agent:?}");
            assert!(agent.prepare(&file, &links(&LINKS)).is_err());
            assert_eq!(format!("{agent:?}"), before);
        }
        let file = files.next(&agent, &said);
        let prepared = agent.prepare(&file, &links(&LINKS)).unwrap_or_else(|e| panic!("{e}\n{said}"));
        let file = read(&agent, &said.to_string());
        let (mut other, _names) = begun();
        other.set_together_max(together_max);
        let anew = other.prepare(&file, &links(&LINKS)).expect("a generation");
        same(&prepared, &anew, &headers, &format!("seed {seed}, step {step}"));
        let now = (files.read.clone().expect("a file"), prepared);
        count += before.as_ref().map_or(0, |before| shared(before, &now));
        before = Some(now);
    }
    count
}

#[test]
fn many_changes_decide_as_building_anew() {
    let shared: usize = (0..6).map(|seed| chain(seed, 20, bartizan_agent::TOGETHER_MAX)).sum();
    assert!(shared > 1_000, "{shared} classes were the same by address");
    chain(7, 3, bartizan_agent::TOGETHER_MAX);
}

#[test]
fn many_changes_of_policies_with_rules_of_their_own_lookup() {
    for seed in 10..13 {
        chain(seed, 20, 0);
    }
}
