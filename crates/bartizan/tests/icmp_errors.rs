// SPDX-License-Identifier: Apache-2.0
//! ICMP errors belong to the flow that they quote, whichever worker they arrive at: all kinds of both
//! versions, also in tunnels, get the verdict that one worker gives, which is the right one.

use crate::common::{Folder, capture, run as run_program};

use bartizan_base::{Decision, Reason, Timestamp};
use bartizan_dataplane::handover::{Handled, Station};
use bartizan_testkit::hosts::{ethernet, gre, ip, tcp, udp};
use bartizan_testkit_worker::{Captured, Made, Nothing, Stack};
use proptest::prelude::*;

/// Errors: type of ICMP, code.
const KINDS_V4: [(u8, u8); 7] = [(3, 1), (3, 3), (3, 4), (4, 0), (5, 1), (11, 0), (12, 0)];
const KINDS_V6: [(u8, u8); 6] = [(1, 0), (1, 4), (2, 0), (3, 0), (3, 1), (4, 1)];

/// The packet that an error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// A packet of the flow; from the client or the server.
    Sent { by_server: bool },
    /// A segment with a number that was never sent, or an echo that was never requested.
    Foreign,
    /// The flow, with a quote too short to include the sequence number.
    Short,
    /// Another flow.
    Unknown,
    /// The flow, sent to another host.
    Elsewhere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Tcp,
    Udp,
    Echo,
}

#[derive(Clone, Copy, Debug)]
struct Error {
    flow: Flow,
    number: u8,
    kind: usize,
    about: About,
    v6: bool,
    tunnel: bool,
    arrival: usize,
}

const CLIENT: u8 = 1;
const SERVER: u8 = 2;
const ROUTER: u8 = 9;

fn echo(v6: bool, answer: bool, id: u16) -> Vec<u8> {
    let kind = match (v6, answer) {
        (false, false) => 8,
        (false, true) => 0,
        (true, false) => 128,
        (true, true) => 129,
    };
    let [a, b] = id.to_be_bytes();
    vec![kind, 0, 0, 0, a, b, 0, 1, b'p', b'i', b'n', b'g']
}

fn number_of(protocol: Flow, v6: bool) -> u8 {
    match protocol {
        Flow::Tcp => 6,
        Flow::Udp => 17,
        Flow::Echo if v6 => 58,
        Flow::Echo => 1,
    }
}

/// The outer header: Ethernet, or a tunnel as well.
fn wrap(v6: bool, tunnel: bool, packet: Vec<u8>) -> Vec<u8> {
    if tunnel { ethernet(!v6, &ip(!v6, (200, 201), 47, &gre(v6, &packet))) } else { ethernet(v6, &packet) }
}

/// The first packets of a flow; the last data of client and server are at 101 and 501.
fn opening(flow: Flow, number: u8, v6: bool) -> Vec<Vec<u8>> {
    let port = 1000 + u16::from(number);
    let there = |body: &[u8]| ip(v6, (CLIENT, SERVER), number_of(flow, v6), body);
    let back = |body: &[u8]| ip(v6, (SERVER, CLIENT), number_of(flow, v6), body);
    match flow {
        Flow::Tcp => vec![
            there(&tcp((port, 80), 100, 0, 2, b"")),
            back(&tcp((80, port), 500, 101, 18, b"")),
            there(&tcp((port, 80), 101, 501, 16, b"data")),
            back(&tcp((80, port), 501, 105, 16, b"data")),
        ],
        Flow::Udp => vec![there(&udp((port, 53), b"?")), back(&udp((53, port), b"!"))],
        Flow::Echo => vec![there(&echo(v6, false, port)), back(&echo(v6, true, port))],
    }
}

impl Error {
    fn frame(&self) -> Vec<u8> {
        let Error { flow, number, v6, .. } = *self;
        let port = 1000 + u16::from(number);
        let by_server = self.about == About::Sent { by_server: true };
        let foreign = self.about == About::Foreign;
        let other = if self.about == About::Unknown { 5000 } else { 0 };
        let body = match (flow, by_server) {
            (Flow::Tcp, false) => {
                tcp((port + other, 80), if foreign { 0x7000_0000 } else { 101 }, 501, 16, b"data")
            }
            (Flow::Tcp, true) => tcp((80, port), 501, 105, 16, b"data"),
            (Flow::Udp, false) => udp((port + other, 53), b"?"),
            (Flow::Udp, true) => udp((53, port), b"!"),
            (Flow::Echo, _) => echo(v6, by_server, if foreign { 7 } else { port }),
        };
        // There is one flow of echoes between two hosts.
        let to = if flow == Flow::Echo && self.about == About::Unknown { 77 } else { SERVER };
        let ends = if by_server { (SERVER, CLIENT) } else { (CLIENT, to) };
        let mut quoted = ip(v6, ends, number_of(flow, v6), &body);
        if self.about == About::Short {
            quoted.truncate(if v6 { 44 } else { 24 });
        }
        let (kind, code) =
            if v6 { KINDS_V6[self.kind % KINDS_V6.len()] } else { KINDS_V4[self.kind % KINDS_V4.len()] };
        let message = [&[kind, code, 0, 0, 0, 0, 5, 0], quoted.as_slice()].concat();
        let receiver = if self.about == About::Elsewhere { 77 } else { ends.0 };
        let packet = ip(v6, (ROUTER, receiver), if v6 { 58 } else { 1 }, &message);
        wrap(v6, self.tunnel, packet)
    }

    /// Whether sfw passes it.
    fn is_good(&self) -> bool {
        match self.about {
            About::Sent { .. } => true,
            // A datagram has no number.
            About::Foreign | About::Short => self.flow == Flow::Udp,
            About::Unknown | About::Elsewhere => false,
        }
    }
}

fn captured(bytes: Vec<u8>, millis: u64) -> Captured {
    Captured { now: Timestamp::from_nanos(1_000_000_000 + millis * 1_000_000), bytes }
}

/// Passes a frame to a station; waits until it is decided.
fn decide(stations: &mut [Station], arrival: usize, frame: &Captured) -> Decision {
    let arrival = arrival % stations.len();
    let mut decided = match stations[arrival].frame(&frame.frame(1), 0, &mut Nothing) {
        Handled::Here(decision) => return decision,
        Handled::Away(_) => None,
        Handled::Held => panic!("no fragment"),
    };
    while decided.is_none() {
        for station in stations.iter_mut() {
            station.handed_over(8, &mut Nothing, |_, _, decision, _| decided = Some(decision));
        }
    }
    decided.unwrap()
}

fn abouts() -> impl Strategy<Value = About> {
    prop_oneof![
        4 => any::<bool>().prop_map(|by_server| About::Sent { by_server }),
        1 => Just(About::Foreign),
        1 => Just(About::Short),
        1 => Just(About::Unknown),
        1 => Just(About::Elsewhere),
    ]
}

fn errors() -> impl Strategy<Value = Error> {
    let flow = prop_oneof![Just(Flow::Tcp), Just(Flow::Udp), Just(Flow::Echo)];
    (flow, 0u8..12, 0usize..42, abouts(), any::<bool>(), any::<bool>(), 0usize..4).prop_map(
        |(flow, number, kind, about, v6, tunnel, arrival)| Error {
            flow,
            number,
            kind,
            about,
            v6,
            tunnel,
            arrival,
        },
    )
}

/// Runs errors on so many workers; returns the reason of each refusal.
fn run(stack: &Stack, workers: usize, errors: &[Error]) -> Vec<Option<Reason>> {
    let mut stations = stack.stations(workers);
    let mut millis = 0;
    let mut opened = Vec::new();
    let mut reasons = Vec::new();
    for error in errors {
        let flow = (error.flow, error.number, error.v6, error.tunnel);
        if !opened.contains(&flow) {
            opened.push(flow);
            for packet in opening(error.flow, error.number, error.v6) {
                millis += 1;
                let frame = captured(wrap(error.v6, error.tunnel, packet), millis);
                let decision = decide(&mut stations, usize::from(error.number), &frame);
                assert!(decision.verdict.forwards(), "{flow:?}: {decision:?}");
            }
        }
        millis += 1;
        let decision = decide(&mut stations, error.arrival, &captured(error.frame(), millis));
        assert_eq!(decision.verdict.forwards(), decision.reason.is_none());
        reasons.push(decision.reason);
    }
    reasons
}

fn stack(name: &str, policy: &str) -> Stack {
    let set = [("stream.midstream", "false")];
    Stack::new(&Made { name, policy, set: &set, tune: |_| (), rules: "", thresholds: "" })
}

/// The policy applies only to errors about packets between the client and the server; the router has none.
const OF_THE_FLOW: &str = "to: [10.0.0.2, '2001:db8::2'], chain: [pfw, sfw], \
    pfw: {default: drop, rules: [{allow: tcp, to-ports: 80}, {allow: udp, to-ports: 53}, {allow: [icmp, icmpv6], type: [8, 128]}]}";

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn errors_have_one_verdict_with_any_number_of_workers(errors in prop::collection::vec(errors(), 1..40)) {
        let stack = stack("errors", "chain: [sfw]");
        for workers in [1, 2, 4] {
            for (error, reason) in errors.iter().zip(run(&stack, workers, &errors)) {
                let expected = (!error.is_good()).then_some(Reason::SfwUnrelatedIcmp);
                prop_assert_eq!(reason, expected, "{} workers, {:?}", workers, error);
            }
        }
    }
}

/// Every kind of error about every protocol, judged by the policy of the quoted flow, though the router has
/// no policy.
#[test]
fn errors_are_judged_by_the_policy_of_their_flow() {
    let stack = stack("errors-policy", OF_THE_FLOW);
    let mut errors = Vec::new();
    for v6 in [false, true] {
        for flow in [Flow::Tcp, Flow::Udp, Flow::Echo] {
            for kind in 0..7 {
                for by_server in [false, true] {
                    let about = About::Sent { by_server };
                    let number = kind as u8;
                    errors.push(Error { flow, number, kind, about, v6, tunnel: false, arrival: kind });
                }
            }
        }
    }
    for workers in [1, 2, 4] {
        for (error, reason) in errors.iter().zip(run(&stack, workers, &errors)) {
            assert_eq!(reason, None, "{workers} workers, {error:?}");
        }
    }
}

/// An error that quotes an unknown flow is judged by its own addresses, not by the policy of the quoted
/// ones.
#[test]
fn stray_errors_are_judged_by_their_own_addresses() {
    let stack = stack("errors-stray", OF_THE_FLOW);
    for v6 in [false, true] {
        for kind in 0..7 {
            let about = About::Unknown;
            let error = Error { flow: Flow::Udp, number: 1, kind, about, v6, tunnel: false, arrival: 1 };
            for workers in [1, 2, 4] {
                assert_eq!(run(&stack, workers, &[error]), [Some(Reason::PolicyDefault)], "{error:?}");
            }
        }
    }
}

/// An explanation by the packet number of an error shows the flow that it quotes: both IP versions, plain
/// and in a tunnel, an error that the flow may get and one that it may not.
#[test]
fn an_error_is_explained_as_a_packet_of_its_flow() {
    let folder = Folder::new();
    folder.write(
        "policy.yaml",
        "policies: [{name: all, from: any, to: any, chain: [sfw]}]\ndefault: {action: drop}\n",
    );
    let (mut frames, mut asked) = (Vec::new(), Vec::new());
    for (number, (v6, tunnel)) in (0..).zip([(false, false), (false, true), (true, false), (true, true)]) {
        let opening = opening(Flow::Tcp, number, v6);
        frames.extend(opening.into_iter().map(|packet| wrap(v6, tunnel, packet)));
        for about in [About::Sent { by_server: false }, About::Sent { by_server: true }, About::Foreign] {
            let error = Error { flow: Flow::Tcp, number, kind: number.into(), about, v6, tunnel, arrival: 0 };
            frames.push(error.frame());
            asked.push((error, frames.len() as u64));
        }
    }
    folder.write("errors.pcap", capture(&frames));
    for (error, packet) in asked {
        let wanted = packet.to_string();
        let args = [
            "explain",
            "flow",
            "errors.pcap",
            "--flow",
            &wanted,
            "--policy",
            "policy.yaml",
            "--ips",
            "--json",
        ];
        let ran = run_program(&folder.0, &args);
        assert_eq!(ran.code, Some(0), "{error:?}: {}", ran.stderr);
        let told: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(told["flows"].as_array().unwrap().len(), 1, "{error:?}: {told}");
        let history = &told["flows"][0]["history"];
        let ends = &history["ends"];
        let host = |n: u8| if error.v6 { format!("2001:db8::{n}") } else { format!("10.0.0.{n}") };
        assert_eq!(
            [&ends["src_ip"], &ends["src_port"], &ends["dest_ip"], &ends["dest_port"]],
            [
                &serde_json::json!(host(CLIENT)),
                &serde_json::json!(1000 + u16::from(error.number)),
                &serde_json::json!(host(SERVER)),
                &serde_json::json!(80)
            ],
            "{error:?}"
        );
        // The history of the flow: four segments and the three errors, the last of which is refused.
        let last = 7 * (u64::from(error.number) + 1);
        assert_eq!(history["frames"], serde_json::json!([last - 6, last]), "{error:?}");
        assert_eq!(history["functions"][0]["header_calls"], 7, "{error:?}");
        let refused = &history["refused"];
        assert_eq!(refused.as_array().unwrap().len(), 1, "{error:?}: {refused}");
        assert_eq!(
            (&refused[0]["reason"], &refused[0]["packet"], &refused[0]["count"]),
            (&"sfw_unrelated_icmp".into(), &last.into(), &1.into()),
            "{error:?}"
        );
    }
}
