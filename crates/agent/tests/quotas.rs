// SPDX-License-Identifier: Apache-2.0
//! Quotas of tenants: flows over all workers, flows that give way, rules of a file.

use crate::common;

use bartizan_agent::Agent;
use bartizan_base::{LinkId, SettingsMap, Timestamp};
use bartizan_dataplane::explain::first::Nobody;
use bartizan_dataplane::worker::{Frame, Worker};
use bartizan_packet::LinkType;
use bartizan_stages::chain::Chains;
use bartizan_stages::quotas::QuotaUsage;
use bartizan_testkit::packet;
use common::{agent, engine, read};
use std::sync::Arc;

const POLICY: &str = "\
tenants:
  - {name: a, select: {prefixes: [10.1.0.0/16, \"2001:db8:1::/48\"]}, quotas: {flows: 20}}
  - {name: b, select: {prefixes: [10.2.0.0/16]}}
policies: [{name: all, tenant: any, chain: [pfw], pfw: {default: allow}}]
default: {action: allow}
";

struct Bench {
    agent: Agent,
    workers: Vec<Worker>,
    chains: Arc<Chains>,
    now: u64,
}

impl Bench {
    fn new(text: &str, workers: usize) -> Self {
        let mut agent = agent();
        let file = read(&agent, text);
        let chains = Arc::new(agent.prepare(&file, &[]).expect("a generation").chains);
        let mut settings = SettingsMap::default();
        settings.set("pcap-file.checksum-checks", "no");
        let (settings, engine) = engine(&settings);
        let worker =
            || Worker::new(settings.clone(), Arc::clone(&engine), Arc::clone(&chains)).expect("a worker");
        let workers = (0..workers).map(|_| worker()).collect();
        Bench { agent, workers, chains, now: 1_000 }
    }

    fn swap(&mut self, text: &str) {
        let file = read(&self.agent, text);
        self.chains = Arc::new(self.agent.prepare(&file, &[]).expect("a generation").chains);
        self.workers.iter_mut().for_each(|worker| worker.enter_generation(Arc::clone(&self.chains)));
    }

    fn datagram(&mut self, worker: usize, from: &str, to: &str, port: u16) -> bool {
        let end = |text: &str, port| (text.parse().unwrap(), port);
        let bytes = packet::udp(end(from, port), end(to, 9_000), b"x").bytes();
        let frame = Frame {
            now: Timestamp::from_parts(self.now, 0),
            bytes: &bytes,
            wire_len: bytes.len() as u32,
            link_type: LinkType::RAW,
            link: LinkId(1),
            number: None,
        };
        self.workers[worker].frame(&frame, &mut Nobody).expect("no fragment").verdict.forwards()
    }

    /// Opens a flow with both directions.
    fn open(&mut self, worker: usize, port: u16) -> bool {
        let (a, to) = if port.is_multiple_of(2) {
            ("10.1.0.1", "192.0.2.1")
        } else {
            ("2001:db8:1::1", "2001:db8:9::1")
        };
        let opened = self.datagram(worker, a, to, port);
        let end = |text: &str, port| (text.parse().unwrap(), port);
        let bytes = packet::udp(end(to, 9_000), end(a, port), b"y").bytes();
        let frame = Frame {
            now: Timestamp::from_parts(self.now, 0),
            bytes: &bytes,
            wire_len: bytes.len() as u32,
            link_type: LinkType::RAW,
            link: LinkId(1),
            number: None,
        };
        self.workers[worker].frame(&frame, &mut Nobody).expect("no fragment");
        opened
    }

    fn used(&self) -> QuotaUsage {
        self.chains.quotas().used().next().expect("a quota").2
    }

    fn flows(&self, worker: usize) -> usize {
        self.workers[worker].flows().len()
    }
}

#[test]
fn a_tenants_flows_keep_to_their_quota_and_others_are_not_touched() {
    let mut bench = Bench::new(POLICY, 2);
    for n in 0..50 {
        assert!(bench.datagram(usize::from(n % 2), "10.2.0.1", "192.0.2.1", 2_000 + n / 2));
    }
    // Unanswered: the oldest of its own gives way, on both workers together no more than the quota.
    for n in 0..100u16 {
        bench.datagram(usize::from(n % 2), "10.1.0.1", "192.0.2.1", 1_000 + n);
        assert!(bench.used().flows <= 20);
    }
    let used = bench.used();
    assert_eq!((used.flows, used.gave_way, used.flows_refused), (20, 80, 0));
    assert_eq!(bench.flows(0) + bench.flows(1), 50 + 20);
}

#[test]
fn established_flows_stay_until_they_are_idle() {
    let mut bench = Bench::new(POLICY, 1);
    (0..20).for_each(|n| assert!(bench.open(0, 1_000 + n)));
    bench.now += 5;
    // One that answers within the time stays fresh.
    assert!(bench.open(0, 1_000));
    bench.datagram(0, "10.1.0.1", "192.0.2.1", 5_000);
    assert_eq!((bench.used().gave_way, bench.used().flows_refused), (0, 1), "none is idle");
    bench.now += 6;
    bench.datagram(0, "10.1.0.1", "192.0.2.1", 5_001);
    let used = bench.used();
    assert_eq!((used.flows, used.gave_way), (20, 1));
    assert!(bench.workers[0].flows().ids().len() == 20);
}

#[test]
fn a_quota_that_comes_counts_flows_from_their_next_packet_on_and_one_that_goes_is_free() {
    let mut bench = Bench::new(&POLICY.replace(", quotas: {flows: 20}", ""), 1);
    (0..30).for_each(|n| assert!(bench.datagram(0, "10.1.0.1", "192.0.2.1", 1_000 + n)));
    bench.swap(POLICY);
    assert_eq!(bench.used().flows, 0);
    (0..30).for_each(|n| assert!(bench.datagram(0, "10.1.0.1", "192.0.2.1", 1_000 + n)));
    assert_eq!(bench.used().flows, 30, "those that are there stay");
    bench.now += 400;
    bench.workers[0].expire(Timestamp::from_parts(bench.now, 0), &mut Nobody);
    while bench.workers[0].idle(Timestamp::from_parts(bench.now, 0), &mut Nobody) {}
    assert_eq!(bench.used().flows, 0);
    bench.swap(&POLICY.replace("flows: 20", "flows: 2"));
    (0..9).for_each(|n| assert!(bench.datagram(0, "10.1.0.1", "192.0.2.1", 1_000 + n)));
    assert_eq!(bench.used().flows, 2);
    drop(bench.workers.pop());
    assert_eq!(bench.used().flows, 0, "a worker that is gone holds nothing");
}

#[test]
fn a_file_with_more_rules_than_a_tenant_may_have_is_refused_with_its_place() {
    let text = |most: u32| {
        format!(
            "tenants:\n  - {{name: a, select: {{vlan: 1}}, quotas: {{rules: {most}}}}}\n\
             policies:\n  - {{name: own, tenant: a, to: 192.0.2.1, chain: [pfw], pfw: {{default: drop, rules: [{{allow: tcp}}, {{allow: udp}}]}}}}\n\
             \x20 - {{name: more, tenant: [a, default], chain: [pfw], pfw: {{default: drop, rules: [{{allow: icmp}}]}}}}\n\
             \x20 - {{name: operator, tenant: any, chain: [pfw], pfw: {{default: drop, rules: [{{allow: any}}]}}}}\n\
             default: {{action: drop}}\n"
        )
    };
    let mut agent = agent();
    assert!(agent.prepare(&read(&agent, &text(3)), &[]).is_ok());
    let said = agent.prepare(&read(&agent, &text(2)), &[]).expect_err("too many").to_string();
    assert!(
        said.starts_with("policy.yaml:2:") && said.contains("have 3 rules, more than its quota of 2"),
        "{said}"
    );
}
