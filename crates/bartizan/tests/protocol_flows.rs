// SPDX-License-Identifier: Apache-2.0
//! Every IP protocol has a flow where functions judge headers: packets pass as the policy's `initiate`
//! says, whatever the protocol, version and side. The whole matrix on a worker, from which
//! docs/protocols.md is made, and the same with the running program between two interfaces (needs root;
//! without, it prints so and returns).

use crate::command_socket::ready;
use crate::common::{Folder, PROGRAM, Running};
use crate::level::network;
use crate::namespace::in_namespace;
use crate::protocols::{CASES, Exchange, First, policies};
use bartizan_testkit::generated;

use bartizan_flow::FlowKey;
use bartizan_ports::{Batch, InlinePort, Port, wait_any};
use bartizan_testkit::packet::{Datagram, Ip};
use bartizan_testkit_worker::{Captured, Made, Nothing, Stack};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

/// The packets of each exchange that passed.
type Passed = BTreeMap<Exchange, [bool; 3]>;

fn stack(policy: &str) -> Stack {
    let mut stack = Stack::new(&Made {
        name: "protocols",
        policy: "chain: [sfw]",
        set: &[],
        tune: |settings| settings.flow_capacity = 1 << 17,
        rules: "",
        thresholds: "",
    });
    stack.swap_file(policy, "");
    stack
}

/// Runs the whole matrix on a worker; returns the packets that passed, and the flows.
fn on_a_worker() -> (Passed, Vec<FlowKey>) {
    let mut stack = stack(&policies());
    let mut passed = Passed::new();
    for packet in 0..3 {
        for exchange in Exchange::all() {
            let before = passed.get(&exchange).map_or(0, |p| p[..packet].iter().filter(|p| **p).count());
            let frame = Captured::at_millis(packet as u64, exchange.frame(packet, before));
            let decision = stack.worker.frame(&frame.frame(1), &mut Nothing).expect("no fragment");
            passed.entry(exchange).or_default()[packet] = decision.verdict.forwards();
        }
    }
    let keys = stack.worker.flows().iter().map(|(_, entry)| *entry.key()).collect();
    (passed, keys)
}

#[test]
fn every_protocol_passes_as_the_policy_says_on_a_worker() {
    let (passed, _) = on_a_worker();
    let wrong: Vec<_> = passed.iter().filter(|(exchange, passed)| exchange.passes() != **passed).collect();
    let some = &wrong[..wrong.len().min(20)];
    assert!(wrong.is_empty(), "{} of {}: {some:?}", wrong.len(), passed.len());
}

/// Numbers as ranges: `0 to 5, 7`.
fn ranges(numbers: &BTreeSet<u8>) -> String {
    let mut text = String::new();
    let mut rest = numbers.iter().copied().peekable();
    while let Some(first) = rest.next() {
        let mut last = first;
        while let Some(next) = rest.next_if(|next| u16::from(*next) == u16::from(last) + 1) {
            last = next;
        }
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = if first == last {
            write!(text, "{comma}{first}")
        } else {
            write!(text, "{comma}{first} to {last}")
        };
    }
    if text.is_empty() { "none".to_owned() } else { text }
}

const INTRODUCTION: &str = "\
# Flows of IP protocols

A test makes this page (`cargo xtask generate`). It sends the packets of all 256 IP protocols of both versions through a worker. A second test sends the same
packets through the running program between two interfaces.

Where any policy in force has `pfw`, `sfw` or another function of headers, or `default: {action: drop}`, every complete IP packet has a flow. Ports, or the
type of ICMP, select the flow where the protocol has them, otherwise addresses and protocol do. The first packet that is forwarded opens the flow. A packet
that these functions refuse neither opens a flow nor keeps one: after it the other side may open a flow as if the packet had not come. Answers are packets of
a flow that is open. So a policy treats all protocols alike.

A packet with IPv6 extension headers has the protocol that they carry. Mobility, HIP and shim messages (135, 139, 140) that carry nothing have their own
protocol. Addresses select the flows of ESP (50) and AH (51), whatever the SPI: each end of a tunnel has another one. ESP in UDP has the flow of its ports. In
a tunnel (4, 41, GRE, and those in UDP) the outer packet and the inner packet have flows, and both have to pass.

Where only `ids` judges, flows are those of Suricata: TCP, UDP, SCTP, ICMP, IP in IP, and ESP by its SPI. `ids` always inspects packets of other protocols
without a flow, as Suricata does, so rules match alike; alerts about such packets name no flow. These protocols have flow records where they have flows.

Routing and group protocols, whose packets are no answers (IGMP, OSPF, VRRP, PIM), need a policy that lets their senders open flows. `initiate` does not apply
to neighbour discovery and multicast listener discovery (ICMPv6 types 130 to 137 and 143), because an IPv6 link does not work without them (RFC 4890, section
4.4.1): `sfw` forwards them from both sides; rules of `pfw` can refuse them.

## What passes

Two hosts send packets in turn: where the inside sends the first packet, the outside sends the second, and the other way round. Rules of `pfw` allow the flows
that the inside opens.

| chain | `initiate` | inside first | outside first | protocols |
|---|---|---|---|---|
";

fn page(passed: &Passed, keys: &[FlowKey]) -> String {
    let mut text = INTRODUCTION.to_owned();
    for (number, case) in CASES.iter().enumerate() {
        // The protocols by the outcome of both exchanges.
        let mut same: BTreeMap<[[bool; 3]; 2], [BTreeSet<u8>; 2]> = BTreeMap::new();
        for (v6, protocol) in [false, true].into_iter().flat_map(|v6| (0..=255).map(move |p| (v6, p))) {
            let of = |first| passed[&Exchange { case: number, v6, protocol, first }];
            let both = [of(First::Inside), of(First::Outside)];
            same.entry(both).or_default()[usize::from(v6)].insert(protocol);
        }
        for (both, [v4, v6]) in same {
            let [inside, outside] =
                both.map(|passed| passed.map(|p| if p { "passes" } else { "-" }).join(", "));
            let _ = writeln!(
                text,
                "| {} | {} | {inside} | {outside} | IPv4: {}; IPv6: {} |",
                case.chain,
                case.initiate.unwrap_or("not stated"),
                ranges(&v4),
                ranges(&v6)
            );
        }
    }
    text.push_str("\n## What tells flows apart\n\n| by | IPv4 | IPv6 |\n|---|---|---|\n");
    type Kind = (&'static str, fn(&FlowKey) -> bool);
    let kinds: [Kind; 3] = [
        ("addresses, protocol and ports", FlowKey::has_ports),
        ("addresses, protocol and type of message", FlowKey::is_icmp),
        ("addresses and protocol", |key| !key.has_ports() && !key.is_icmp()),
    ];
    for (name, is_it) in kinds {
        let of = |v6: bool| {
            let those = keys.iter().filter(|key| key.is_ipv6() == v6 && is_it(key));
            ranges(&those.map(FlowKey::protocol).collect())
        };
        let _ = writeln!(text, "| {name} | {} | {} |", of(false), of(true));
    }
    text
}

#[test]
fn the_committed_page_of_protocols_is_what_a_worker_does() {
    let (passed, keys) = on_a_worker();
    generated::check("docs/protocols.md", &page(&passed, &keys));
}

/// Frames sent at once, before the test waits for those that pass.
const BURST: usize = 256;
/// The time limit for frames that have to come, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Datagrams that all policies allow, by number: sent after other frames, so that those are handled when
/// the datagram arrives.
fn signal(number: u16) -> Vec<u8> {
    let address = |host| IpAddr::from([192, 0, 2, host]);
    let ip = Ip::new(address(1), address(2), 17);
    ip.frame(&ip.summed(&Datagram::new((number, 9), b"signal").unsummed()), None)
}

fn is_signal(frame: &[u8], number: u16) -> bool {
    frame.get(26..30) == Some(&[192, 0, 2, 1]) && frame.get(34..36) == Some(&number.to_be_bytes())
}

/// Sends frames and then a signal; returns the exchanges of the frames that come out before the signal.
fn through(
    from: &mut InlinePort,
    to: &mut InlinePort,
    frames: &[Vec<u8>],
    number: u16,
) -> BTreeSet<Exchange> {
    for frame in frames.iter().chain([&signal(number)]) {
        from.transmit_frame(frame).unwrap();
        from.flush().unwrap();
    }
    let mut batch = Batch::with_capacity(256);
    let (mut came, begun) = (BTreeSet::new(), Instant::now());
    loop {
        assert!(begun.elapsed() < PATIENCE, "no signal came");
        to.receive(&mut batch).unwrap();
        let mut is_over = false;
        for bytes in batch.indices().filter_map(|at| batch.bytes(at)) {
            came.extend(Exchange::of_frame(bytes));
            is_over |= is_signal(bytes, number);
        }
        if is_over {
            return came;
        }
        if batch.is_empty() {
            wait_any(&mut [&mut *to], None, Duration::ZERO, Duration::from_millis(20)).unwrap();
        }
    }
}

#[test]
fn every_protocol_passes_as_the_policy_says_live() {
    in_namespace(|| {
        let [mut inside, mut outside] = network(1500);
        let folder = Folder::new();
        folder.write("policy.yaml", policies());
        folder.write("none.rules", "");
        folder.write(
            "bartizan.yaml",
            "links: [{name: wan, inline: {a: a1, b: b1}, workers: 1}]\npolicy: policy.yaml\ncache: none\noutputs: {eve: {dir: out}}\ncontrol: {socket: c.socket}\n",
        );
        let mut command = Command::new(PROGRAM);
        let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
        ready(&folder, &running);
        let (mut number, mut wrong) = (0, Vec::new());
        for packet in 0..3 {
            for by_outside in [false, true] {
                let those: Vec<Exchange> =
                    Exchange::all().filter(|e| e.is_by_outside(packet) == by_outside).collect();
                let (from, to) =
                    if by_outside { (&mut outside, &mut inside) } else { (&mut inside, &mut outside) };
                for burst in those.chunks(BURST) {
                    number += 1;
                    let frame = |exchange: &Exchange| {
                        let before = exchange.passes()[..packet].iter().filter(|passed| **passed).count();
                        exchange.frame(packet, before)
                    };
                    let frames: Vec<_> = burst.iter().map(frame).collect();
                    let came = through(from, to, &frames, number);
                    wrong.extend(
                        burst.iter().filter(|e| came.contains(e) != e.passes()[packet]).map(|e| (*e, packet)),
                    );
                }
            }
        }
        running.stop();
        let some = &wrong[..wrong.len().min(20)];
        assert!(wrong.is_empty(), "{}: {some:?}", wrong.len());
    });
}

/// A policy with which only the inside may open.
const FROM: &str = "groups: {inside: [10.0.0.0/8, 'fd00::/16']}\n\
    policies: [{name: lan, from: [inside], to: any, chain: CHAIN}]\ndefault: {action: drop}\n";

/// Chains with which only the inside may open.
const CHAINS: [&str; 3] = [
    "[sfw], sfw: {initiate: from}",
    "[pfw], pfw: {default: drop, rules: [{allow: any}]}",
    "[pfw, sfw], pfw: {default: drop, rules: [{allow: any}]}",
];

fn policy_of(chain: &str) -> String {
    FROM.replace("CHAIN", chain)
}

/// Exchanges of the first policy's addresses, of all protocols whose packets are like datagrams: no
/// connection, no ICMP query.
fn plain_exchanges(first: First) -> impl Iterator<Item = Exchange> {
    let plain = |e: &Exchange| {
        e.case == 0 && e.protocol != 6 && !matches!((e.protocol, e.v6), (1, false) | (58, true))
    };
    Exchange::all().filter(move |exchange| plain(exchange) && exchange.first == first)
}

/// Passes a frame in at a time in milliseconds; returns whether it passes.
fn passes(stack: &mut Stack, millis: u64, frame: Vec<u8>) -> bool {
    let frame = Captured::at_millis(millis, frame);
    stack.worker.frame(&frame.frame(1), &mut stack.recorder).expect("no fragment").verdict.forwards()
}

#[test]
fn who_is_refused_cuts_nobody_off_for_as_long_as_anybody_goes_on() {
    for chain in CHAINS {
        let mut stack = stack(&policy_of(chain));
        for exchange in plain_exchanges(First::Outside) {
            let (stray, own) = (exchange.frame(0, 0), exchange.frame(1, 0));
            for millis in [0, 5_000, 29_000, 31_000] {
                assert!(!passes(&mut stack, millis, stray.clone()), "{chain} {exchange:?}");
            }
            assert!(passes(&mut stack, 31_001, own.clone()), "{chain} {exchange:?}");
            assert!(passes(&mut stack, 31_002, stray.clone()), "{chain} {exchange:?}: its answer");
            assert!(passes(&mut stack, 31_003, own), "{chain} {exchange:?}");
        }
    }
}

#[test]
fn a_refused_syn_is_no_part_of_the_connection_that_the_other_side_opens() {
    for chain in CHAINS {
        let mut stack = stack(&policy_of(chain));
        for v6 in [false, true] {
            let exchange = Exchange { case: 0, v6, protocol: 6, first: First::Outside };
            let mut millis = 0;
            let mut next = |packet, passed| {
                millis += 1;
                passes(&mut stack, millis, exchange.frame(packet, passed))
            };
            assert!(!next(0, 0) && !next(0, 0), "{chain}");
            assert!(next(1, 0), "{chain}: the inside's SYN");
            assert!(next(0, 0), "{chain}: both open at once (RFC 5382 REQ-2)");
            assert!(next(2, 1) && next(1, 2), "{chain}: SYN and ACK, and ACK");
        }
    }
}

#[test]
fn a_refused_flow_is_not_kept_and_a_later_generation_asks_who_opens() {
    for exchange in plain_exchanges(First::Inside) {
        if exchange.protocol % 16 != 1 && exchange.protocol != 50 {
            continue;
        }
        let mut stack = stack(&policy_of(CHAINS[0]));
        assert!(passes(&mut stack, 0, exchange.frame(0, 0)) && passes(&mut stack, 1, exchange.frame(1, 1)));
        // Only the outside may open now: the answer is refused, and opens then.
        stack.swap_file(&policy_of("[sfw], sfw: {initiate: to}"), "");
        assert!(!passes(&mut stack, 2, exchange.frame(0, 2)), "{exchange:?}");
        assert!(passes(&mut stack, 3, exchange.frame(1, 0)), "{exchange:?}");
        assert!(passes(&mut stack, 4, exchange.frame(0, 1)), "{exchange:?}");
    }
}

#[test]
fn refused_packets_take_no_room_from_others_and_their_flows_end() {
    let mut stack = Stack::new(&Made {
        name: "room",
        policy: "from: [10.0.0.0/8, 'fd00::/16'], to: any, chain: [sfw]",
        set: &[],
        tune: |settings| settings.flow_capacity = 64,
        rules: "",
        thresholds: "",
    });
    // These are not answered yet.
    let good: Vec<_> =
        plain_exchanges(First::Inside).filter(|e| e.protocol >= 200 && e.protocol < 220).collect();
    for exchange in &good {
        assert!(passes(&mut stack, 0, exchange.frame(0, 0)));
    }
    let strays: Vec<_> = plain_exchanges(First::Outside).collect();
    for (millis, exchange) in (1..).zip(&strays) {
        assert!(!passes(&mut stack, millis, exchange.frame(0, 0)));
    }
    for exchange in &good {
        assert!(passes(&mut stack, 1_000, exchange.frame(1, 1)), "{exchange:?} was pushed out");
    }
    let (worker, events) = stack.finish();
    assert_eq!(worker.flows().len(), 0);
    let flows = events.iter().filter(|event| event["event_type"] == "flow");
    // Packets around others have records of their own, with the reason `tunnel_inner`.
    let refused = flows.filter(|event| event["bartizan"]["reason"] == "sfw_initiator");
    assert_eq!(refused.count(), strays.len(), "each refused flow has its record");
}

/// ICMP errors with all codes about a packet that was sent, and about one that was not.
#[test]
fn an_error_is_about_what_it_quotes_whatever_its_code_and_the_protocol() {
    const CODES_V4: [(u8, u8); 8] = [(3, 4), (3, 1), (3, 16), (5, 4), (11, 0), (11, 2), (12, 1), (12, 2)];
    const CODES_V6: [(u8, u8); 9] = [(1, 0), (1, 7), (1, 8), (1, 9), (2, 0), (2, 1), (3, 2), (4, 3), (4, 11)];
    let mut stack = stack(&policy_of(CHAINS[0]));
    for exchange in Exchange::all().filter(|e| e.case == 0 && e.first == First::Inside) {
        let Exchange { v6, protocol, .. } = exchange;
        let sent = exchange.frame(0, 0);
        let stray = Exchange { first: First::Outside, ..exchange };
        // A refused packet of the outside is nothing that the inside has sent.
        assert!(!passes(&mut stack, 0, stray.frame(0, 0)));
        let never_sent = Exchange { first: First::Outside, ..exchange }.frame(1, 0);
        let error = |(kind, code): (u8, u8), quoted: &[u8]| {
            let packet = &quoted[14..];
            let source = if v6 {
                IpAddr::V6(<[u8; 16]>::try_from(&packet[8..24]).unwrap().into())
            } else {
                IpAddr::V4(<[u8; 4]>::try_from(&packet[12..16]).unwrap().into())
            };
            let router: IpAddr =
                if v6 { "2001:db8::99".parse().unwrap() } else { "203.0.113.9".parse().unwrap() };
            let ip = Ip::new(router, source, if v6 { 58 } else { 1 });
            let message = [&[kind, code, 0, 0, 0, 0, 5, 0], packet].concat();
            ip.frame(&ip.summed(&message), None)
        };
        let codes: &[(u8, u8)] = if v6 { &CODES_V6 } else { &CODES_V4 };
        let codes = if protocol % 32 == 17 { codes } else { &codes[..1] };
        for code in codes {
            assert!(
                !passes(&mut stack, 1, error(*code, &never_sent)),
                "{protocol} {v6} {code:?}: never sent"
            );
        }
        assert!(passes(&mut stack, 2, sent.clone()));
        for code in codes {
            assert!(passes(&mut stack, 3, error(*code, &sent)), "{protocol} {v6} {code:?}");
        }
    }
}

#[test]
fn answers_of_probe_belong_to_their_questions() {
    let mut stack = stack(&policy_of(CHAINS[0]));
    for (v6, question, answer) in [(false, 42, 43), (true, 160, 161)] {
        let ends: [IpAddr; 2] = if v6 {
            ["fd00::1", "2001:db8::1"].map(|a| a.parse().unwrap())
        } else {
            ["10.0.0.1", "198.51.100.1"].map(|a| a.parse().unwrap())
        };
        let message = |from: IpAddr, to: IpAddr, kind| {
            let ip = Ip::new(from, to, if v6 { 58 } else { 1 });
            ip.frame(&ip.summed(&[kind, 0, 0, 0, 0, 7, 1, 0]), None)
        };
        let [inside, outside] = ends;
        assert!(!passes(&mut stack, 0, message(outside, inside, answer)), "nobody asked");
        assert!(!passes(&mut stack, 1, message(outside, inside, question)), "the outside may not ask");
        assert!(passes(&mut stack, 2, message(inside, outside, question)));
        assert!(passes(&mut stack, 3, message(outside, inside, answer)));
    }
}
