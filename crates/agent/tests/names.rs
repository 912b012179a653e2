// SPDX-License-Identifier: Apache-2.0
//! Groups by DNS name, in a worker in prevention: the resolvers whose answers add members, the duration of
//! membership, and attempts to inject members.

use crate::common;

use bartizan_agent::Agent;
use bartizan_base::{LinkId, Reason, SettingsMap, TenantId, Timestamp};
use bartizan_dataplane::explain::first::Nobody;
use bartizan_dataplane::worker::{Frame, Worker};
use bartizan_packet::LinkType;
use bartizan_stages::lifecycle::LifecycleCommand;
use bartizan_testkit::dns::{self, Record};
use bartizan_testkit::packet;
use common::{agent, engine, read};
use core::net::IpAddr;
use std::sync::Arc;

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
const SYN: u8 = 2;
const RESOLVER: &str = "10.0.0.53";
const CLIENT: &str = "10.0.0.1";

const POLICY: &str = "\
groups: {apis: [{dns: [\"api.example.com\", \"*.cdn.example\"]}, 198.51.100.0/24], lan: [10.0.0.0/8, \"2001:db8::/32\"]}
dns: {resolvers: [10.0.0.53], ttl-min: 60s, ttl-max: 1h}
policies:
  - {name: dns, from: lan, to: 10.0.0.53, chain: [pfw], pfw: {default: drop, rules: [{allow: [tcp, udp], to-ports: 53}]}}
  - {name: out, from: lan, to: apis, chain: [pfw, sfw], pfw: {default: drop, rules: [{allow: tcp, to: apis, to-ports: 443}]}, sfw: {}}
default: {action: drop}
";

struct Bench {
    agent: Agent,
    worker: Worker,
    now: u64,
    port: u16,
}

impl Bench {
    fn new(text: &str) -> Self {
        let mut agent = agent();
        let file = read(&agent, text);
        let chains = Arc::new(agent.prepare(&file, &[]).expect("a generation").chains);
        let mut settings = SettingsMap::default();
        settings.set("pcap-file.checksum-checks", "no");
        let (settings, engine) = engine(&settings);
        let worker = Worker::new(settings, engine, chains).expect("a worker");
        Bench { agent, worker, now: 1_000, port: 20_000 }
    }

    fn swap(&mut self, text: &str) {
        let file = read(&self.agent, text);
        let chains = Arc::new(self.agent.prepare(&file, &[]).expect("a generation").chains);
        self.worker.enter_generation(chains);
    }

    fn decide(&mut self, bytes: &[u8]) -> Option<Reason> {
        let frame = Frame {
            now: Timestamp::from_parts(self.now, 0),
            bytes,
            wire_len: bytes.len() as u32,
            link_type: LinkType::RAW,
            link: LinkId(1),
            number: None,
        };
        self.worker.frame(&frame, &mut Nobody).expect("no fragment").reason
    }

    fn udp(&mut self, from: (&str, u16), to: (&str, u16), load: &[u8]) -> Option<Reason> {
        self.decide(&packet::udp(end(from), end(to), load).bytes())
    }

    /// A query, with the message that arrives as its answer.
    fn ask(&mut self, id: u16, question: (&str, u16), answer: &[u8]) {
        self.port += 1;
        let (port, query) = (self.port, dns::query(id, question.0, question.1));
        assert_eq!(self.udp((CLIENT, port), (RESOLVER, 53), &query), None);
        assert_eq!(self.udp((RESOLVER, 53), (CLIENT, port), answer), None);
    }

    /// A query with its correct answer.
    fn resolve(&mut self, asked: &str, rrtype: u16, records: &[Record<'_>]) {
        self.ask(7, (asked, rrtype), &dns::answer(7, (asked, rrtype), records));
    }

    /// Whether a new connection to an address is allowed.
    fn goes(&mut self, to: &str) -> bool {
        self.port += 1;
        let from = if to.contains(':') { "2001:db8::1" } else { CLIENT };
        let syn = packet::tcp(end((from, self.port)), end((to, 443)), (1, 0), SYN, &[]).bytes();
        self.decide(&syn).is_none()
    }

    fn counted(&self, name: &str) -> u64 {
        let mut found = 0;
        self.worker.visit_functions_by_name(&mut |function, counter, value| {
            if (function, counter) == ("names", name) {
                found = value;
            }
        });
        found
    }
}

fn end((address, port): (&str, u16)) -> packet::End {
    (address.parse().unwrap(), port)
}

fn a(owner: &str, ttl: u32, address: &str) -> Record<'static> {
    let owner: &'static str = Box::leak(owner.to_owned().into_boxed_str());
    match address.parse().unwrap() {
        IpAddr::V4(v4) => (owner, A, ttl, v4.octets().to_vec()),
        IpAddr::V6(v6) => (owner, AAAA, ttl, v6.octets().to_vec()),
    }
}

fn alias(owner: &'static str, ttl: u32, target: &str) -> Record<'static> {
    (owner, CNAME, ttl, dns::name(target))
}

#[test]
fn an_answer_acts_on_the_next_flow_and_for_as_long_as_it_says() {
    for (rrtype, address) in [(A, "192.0.2.7"), (AAAA, "2001:db8:ffff::7")] {
        let mut bench = Bench::new(POLICY);
        assert!(!bench.goes(address), "nobody has answered");
        bench.resolve("API.Example.com", rrtype, &[a("api.EXAMPLE.com", 300, address)]);
        assert!(bench.goes(address));
        bench.now += 299;
        assert!(bench.goes(address));
        bench.now += 1;
        assert!(!bench.goes(address), "its time is over");
        assert_eq!(["answers", "added", "not_asked"].map(|c| bench.counted(c)), [1, 1, 0]);
    }
}

#[test]
fn names_below_match_and_the_name_itself_does_not() {
    let mut bench = Bench::new(POLICY);
    bench.resolve("x.y.cdn.example", A, &[a("x.y.cdn.example", 300, "192.0.2.1")]);
    bench.resolve("cdn.example", A, &[a("cdn.example", 300, "192.0.2.2")]);
    bench.resolve("evilcdn.example", A, &[a("evilcdn.example", 300, "192.0.2.3")]);
    bench.resolve("sub.api.example.com", A, &[a("sub.api.example.com", 300, "192.0.2.4")]);
    let went = [1, 2, 3, 4].map(|n| bench.goes(&format!("192.0.2.{n}")));
    assert_eq!(went, [true, false, false, false]);
    assert!(bench.goes("198.51.100.9"), "addresses of the group need no answer");
}

#[test]
fn aliases_are_followed_and_lead_into_nobody_elses_name() {
    let mut bench = Bench::new(POLICY);
    let chain = [
        alias("api.example.com", 500, "edge.provider.net"),
        a("edge.provider.net", 400, "192.0.2.10"),
        // Nothing leads to it.
        a("other.provider.net", 400, "192.0.2.11"),
    ];
    bench.resolve("api.example.com", A, &chain);
    // A foreign name, with one of ours as an alias target, and an address claimed to be ours.
    let evil = [alias("evil.example.org", 500, "api.example.com"), a("api.example.com", 500, "192.0.2.12")];
    bench.resolve("evil.example.org", A, &evil);
    // A circle ends.
    let circle = [alias("api.example.com", 9, "b.example"), alias("b.example", 9, "api.example.com")];
    bench.resolve("api.example.com", A, &circle);
    assert_eq!([10, 11, 12].map(|n| bench.goes(&format!("192.0.2.{n}"))), [true, false, false]);
    bench.now += 399;
    assert!(bench.goes("192.0.2.10"));
    bench.now += 1;
    assert!(!bench.goes("192.0.2.10"), "the least time on the way counts");
}

#[test]
fn times_to_live_are_held_in_bounds() {
    let mut bench = Bench::new(POLICY);
    let ttls = [(0, 1), (1 << 31, 2), (u32::MAX, 3), ((1 << 31) - 1, 4)];
    for (ttl, n) in ttls {
        bench.resolve("api.example.com", A, &[a("api.example.com", ttl, &format!("192.0.2.{n}"))]);
    }
    let mut went = |after: u64| {
        bench.now = 1_000 + after;
        [1, 2, 3, 4].map(|n| bench.goes(&format!("192.0.2.{n}")))
    };
    assert_eq!(went(59), [true; 4]);
    assert_eq!(went(60), [false, false, false, true]);
    assert_eq!(went(3_599), [false, false, false, true]);
    assert_eq!(went(3_600), [false; 4]);
}

#[test]
fn who_was_not_asked_writes_no_policy() {
    let mut bench = Bench::new(POLICY);
    let asked = ("api.example.com", A);
    let records = [a("api.example.com", 300, "192.0.2.66")];
    let right = dns::answer(7, asked, &records);
    // Wrong number, wrong type, another name in the question, no question, an error, cut short.
    bench.ask(7, asked, &dns::answer(8, asked, &records));
    bench.ask(7, asked, &dns::answer(7, ("api.example.com", AAAA), &records));
    bench.ask(7, asked, &dns::answer(7, ("x.cdn.example", A), &records));
    bench.ask(7, ("evil.example.org", A), &right);
    assert_eq!(bench.counted("not_asked"), 4);
    bench.ask(7, asked, &dns::message(7, 0x8183, asked, &records));
    bench.ask(7, asked, &dns::message(7, 0x8380, asked, &records));
    assert_eq!(bench.counted("failed"), 2);
    // An answer without a query: dropped by the policy, which lets only the client open; also from a resolver
    // that is not trusted.
    assert!(bench.udp((RESOLVER, 53), (CLIENT, 9_999), &right).is_some());
    bench.swap(&POLICY.replace("to: 10.0.0.53,", "to: [10.0.0.53, 10.0.0.54],"));
    assert_eq!(bench.udp((CLIENT, 9_000), ("10.0.0.54", 53), &dns::query(7, asked.0, A)), None);
    assert_eq!(bench.udp(("10.0.0.54", 53), (CLIENT, 9_000), &right), None);
    // An answer to a question that has its answer: the first one counts.
    bench.resolve(asked.0, A, &[a(asked.0, 300, "192.0.2.5")]);
    let port = bench.port;
    assert_eq!(bench.udp((RESOLVER, 53), (CLIENT, port), &right), None);
    assert!(!bench.goes("192.0.2.66"));
    assert!(bench.goes("192.0.2.5"));
}

#[test]
fn who_only_reads_answers_refuses_nothing_when_it_is_away() {
    let mut bench = Bench::new(POLICY);
    assert!(bench.worker.order("names", LifecycleCommand::Stop).is_some());
    // Queries and answers are forwarded, whatever `on-failure` states for functions with verdicts; but no
    // addresses are learned.
    bench.resolve("api.example.com", A, &[a("api.example.com", 300, "192.0.2.7")]);
    assert!(!bench.goes("192.0.2.7"));
    bench.worker.order("names", LifecycleCommand::Start).unwrap();
    bench.resolve("api.example.com", A, &[a("api.example.com", 300, "192.0.2.7")]);
    assert!(bench.goes("192.0.2.7"));
}

#[test]
fn an_open_flow_stays_when_its_address_has_no_name_any_more() {
    let mut bench = Bench::new(POLICY);
    bench.resolve("api.example.com", A, &[a("api.example.com", 60, "192.0.2.7")]);
    let segment =
        |from, to, numbers, flags, load: &[u8]| packet::tcp(end(from), end(to), numbers, flags, load).bytes();
    let (client, server) = ((CLIENT, 5_000), ("192.0.2.7", 443));
    assert_eq!(bench.decide(&segment(client, server, (1, 0), SYN, &[])), None);
    assert_eq!(bench.decide(&segment(server, client, (9, 2), 0x12, &[])), None);
    assert_eq!(bench.decide(&segment(client, server, (2, 10), 0x10, &[])), None);
    bench.now += 100;
    assert_eq!(bench.decide(&segment(client, server, (2, 10), 0x10, &[])), None);
    assert!(!bench.goes("192.0.2.7"));
    // Another generation looks it up anew: with the names by which it was found.
    bench.swap(POLICY);
    assert_eq!(bench.decide(&segment(client, server, (2, 10), 0x18, b"more")), None);
    assert!(!bench.goes("192.0.2.7"));
    // A generation without the name ends the membership.
    bench.swap(&POLICY.replace("api.example.com", "www.example.com"));
    assert!(bench.decide(&segment(client, server, (6, 10), 0x18, b"more")).is_some());
}

#[test]
fn members_stay_over_a_reload_and_belong_to_one_tenant() {
    let tenants = "tenants: [{name: a, select: {prefixes: [10.0.0.0/8]}}, {name: b, select: {prefixes: [172.16.0.0/12]}}]\n";
    let text = format!("{tenants}{}", POLICY.replace("chain:", "tenant: any, chain:"));
    let mut bench = Bench::new(&text);
    bench.resolve("api.example.com", A, &[a("api.example.com", 300, "192.0.2.7")]);
    let names = Arc::clone(bench.agent.names());
    let of = |tenant| {
        names.of(TenantId(tenant), "192.0.2.7".parse().unwrap(), Timestamp::from_parts(1_001, 0)).len()
    };
    assert_eq!([0, 1, 2].map(of), [0, 1, 0], "the default tenant, a, b");
    bench.swap(&text);
    assert!(bench.goes("192.0.2.7"));
}

#[test]
fn names_that_no_generation_has_any_more_leave_room_and_come_back_as_others() {
    let mut bench = Bench::new(POLICY);
    let names = Arc::clone(bench.agent.names());
    let of = |name: &str| names.id(name);
    let (api, cdn) = (of("api.example.com").unwrap(), of("*.cdn.example").unwrap());
    bench.resolve("api.example.com", A, &[a("api.example.com", 3_600, "192.0.2.7")]);
    assert!(bench.goes("192.0.2.7"));
    for turn in 0..100 {
        bench.swap(&POLICY.replace("api.example.com", &format!("n{turn}.example")));
        assert_eq!((names.held(), of("*.cdn.example")), (2, Some(cdn)));
    }
    assert!(!bench.goes("192.0.2.7"));
    // It is not the name that it was, whose number flows may have: its addresses are learned anew.
    bench.swap(POLICY);
    assert_ne!(of("api.example.com").unwrap(), api);
    assert!(!bench.goes("192.0.2.7"));
    bench.resolve("api.example.com", A, &[a("api.example.com", 3_600, "192.0.2.7")]);
    assert!(bench.goes("192.0.2.7"));
    // A file that is only examined holds no names afterwards.
    let more = read(&bench.agent, &POLICY.replace("api.example.com", "looked-at.example"));
    bench.agent.policy_entries(&more, &[]).unwrap();
    assert_eq!(names.held(), 2);
}

#[test]
fn a_tenants_resolvers_count_for_its_own_traffic_only() {
    let text = |of: &str| {
        POLICY.replace("dns: {resolvers: [10.0.0.53], ", "dns: {").replace(
            "policies:\n",
            &format!("tenants: [{{name: acme, select: {{prefixes: {of}}}, resolvers: [10.0.0.53]}}]\npolicies:\n"),
        ).replace("{name: dns,", "{name: dns, tenant: any,").replace("{name: out,", "{name: out, tenant: any,")
    };
    for (of, goes) in [("10.0.0.0/8", true), ("10.9.0.0/16", false)] {
        let mut bench = Bench::new(&text(of));
        bench.resolve("api.example.com", A, &[a("api.example.com", 300, "192.0.2.7")]);
        assert_eq!(bench.goes("192.0.2.7"), goes, "{of}");
    }
}

#[test]
fn without_resolvers_nothing_is_a_member_and_it_is_said() {
    let text = POLICY.replace("dns: {resolvers: [10.0.0.53], ttl-min: 60s, ttl-max: 1h}\n", "");
    let mut bench = Bench::new(&text);
    let warnings = read(&bench.agent, &text).warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("resolvers"), "{warnings:?}");
    bench.resolve("api.example.com", A, &[a("api.example.com", 300, "192.0.2.7")]);
    assert!(!bench.goes("192.0.2.7"));
    assert!(read(&bench.agent, POLICY).warnings().is_empty());
}

#[test]
fn thousands_of_names_take_no_more_than_their_bound_and_put_nobody_out() {
    let text = POLICY.replace("ttl-max: 1h}", "ttl-max: 1h, addresses: 100}");
    let mut bench = Bench::new(&text);
    bench.resolve("api.example.com", A, &[a("api.example.com", 3_600, "192.0.2.7")]);
    for n in 0..3_000u32 {
        let name = format!("n{n}.cdn.example");
        let address = core::net::Ipv4Addr::from(0xcb00_7100 + n).to_string();
        bench.resolve(&name, A, &[a(&name, 3_600, &address)]);
    }
    assert_eq!(bench.agent.names().len(), 100);
    assert_eq!([bench.counted("added"), bench.counted("full")], [100, 2_901]);
    assert!(bench.goes("192.0.2.7") && bench.goes("203.0.113.98") && !bench.goes("203.0.113.99"));
}
