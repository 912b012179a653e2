// SPDX-License-Identifier: Apache-2.0
//! Counters of the packet filter's rules over generations, in a worker in prevention: a counter follows its
//! rule, and a new rule begins at zero.

use crate::common;

use bartizan_agent::Agent;
use bartizan_base::{LinkId, SettingsMap, Timestamp};
use bartizan_dataplane::explain::first::Nobody;
use bartizan_dataplane::worker::{Frame, Worker};
use bartizan_packet::LinkType;
use bartizan_testkit::packet;
use common::{agent, engine, read};
use std::collections::BTreeMap;
use std::sync::Arc;

struct Bench {
    agent: Agent,
    worker: Worker,
    port: u16,
}

/// A policy `web` with these rules.
fn policy(rules: &str, more: &str) -> String {
    format!(
        "policies:\n- {{name: web, from: any, to: any, chain: [pfw], pfw: {{default: drop, rules: [{rules}]}}{more}}}\ndefault: {{action: drop}}\n"
    )
}

impl Bench {
    fn new(rules: &str) -> Self {
        let mut agent = agent();
        let file = read(&agent, &policy(rules, ""));
        let chains = Arc::new(agent.prepare(&file, &[]).expect("a generation").chains);
        let mut settings = SettingsMap::default();
        settings.set("pcap-file.checksum-checks", "no");
        let (settings, engine) = engine(&settings);
        let worker = Worker::new(settings, engine, chains).expect("a worker");
        Bench { agent, worker, port: 20_000 }
    }

    fn swap(&mut self, text: &str) {
        let file = read(&self.agent, text);
        let chains = Arc::new(self.agent.prepare(&file, &[]).expect("a generation").chains);
        self.worker.enter_generation(chains);
    }

    /// Opens new flows to a port, of IPv4 and IPv6 by turns.
    fn flows(&mut self, port: u16, count: u16) {
        for number in 0..count {
            self.port += 1;
            let host = |last: u16| match number % 2 {
                0 => format!("10.0.0.{last}"),
                _ => format!("2001:db8::{last}"),
            };
            let end = |last, port| (host(last).parse().unwrap(), port);
            let bytes = packet::udp(end(1, self.port), end(2, port), b"x").bytes();
            let frame = Frame {
                now: Timestamp::from_parts(1_000, 0),
                bytes: &bytes,
                wire_len: bytes.len() as u32,
                link_type: LinkType::RAW,
                link: LinkId(1),
                number: None,
            };
            let _ = self.worker.frame(&frame, &mut Nobody);
        }
    }

    /// Packets by rule; a rule without a name by its action.
    fn counted(&self) -> BTreeMap<String, u64> {
        let mut counted = BTreeMap::new();
        self.worker.visit_rules(&mut |function, rule| {
            assert_eq!((function, rule.name.policy.as_str()), ("pfw", "web"));
            let name = rule.name.rule.split(':').next().unwrap_or_default().to_owned();
            assert!(counted.insert(name, rule.packets).is_none(), "each once");
        });
        counted
    }
}

fn is(counted: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counted.iter().map(|(name, packets)| ((*name).to_owned(), *packets)).collect()
}

#[test]
fn a_rule_that_is_put_in_front_takes_no_count_of_another_one() {
    const FIRST: &str = "{allow: udp, to-ports: 53, name: dns}, {reject: udp, to-ports: 23}";
    let mut bench = Bench::new(FIRST);
    bench.flows(53, 3);
    bench.flows(23, 2);
    bench.flows(99, 4);
    assert_eq!(bench.counted(), is(&[("dns", 3), ("reject", 2), ("default", 4)]));
    // In front, and the two others the other way round; a policy of the name that is staged is the same
    // policy.
    let second = "{drop: udp, to-ports: 80}, {reject: udp, to-ports: 23}, {allow: udp, to-ports: 53, name: dns, comment: moved}";
    for more in ["", ", staged: true"] {
        bench.swap(&policy(second, more));
        assert_eq!(bench.counted(), is(&[("drop", 0), ("dns", 3), ("reject", 2), ("default", 4)]));
    }
    bench.flows(80, 1);
    bench.flows(53, 1);
    assert_eq!(bench.counted(), is(&[("drop", 1), ("dns", 4), ("reject", 2), ("default", 4)]));
    // A rule with another text is another rule; a rule with a name is identified by the name.
    bench.swap(&policy("{drop: udp, to-ports: 81}, {allow: udp, to-ports: [53, 853], name: dns}", ""));
    assert_eq!(bench.counted(), is(&[("drop", 0), ("dns", 4), ("default", 4)]));
    // Rules that come back begin at zero.
    bench.swap(&policy(FIRST, ""));
    assert_eq!(bench.counted(), is(&[("dns", 4), ("reject", 0), ("default", 4)]));
    bench.flows(23, 1);
    assert_eq!(bench.counted()["reject"], 1);
    // A policy that is removed and comes back, too.
    bench.swap("policies: []\ndefault: {action: drop}\n");
    assert_eq!(bench.counted(), is(&[]));
    bench.swap(&policy(FIRST, ""));
    assert_eq!(bench.counted(), is(&[("dns", 0), ("reject", 0), ("default", 0)]));
}
