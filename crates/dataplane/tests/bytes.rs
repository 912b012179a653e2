// SPDX-License-Identifier: Apache-2.0
//! Connections whose bytes arrive in order, without packets: the same conversations as packets give the same
//! records, alerts and refusals, and leave nothing behind.

use bartizan_base::{Decision, Direction, LinkId, PacketDuration, Reason, Timestamp};
use bartizan_dataplane::driver::{Control, Driver, LiveOptions};
use bartizan_dataplane::source::{Arrivals, Source, Taken};
use bartizan_dataplane::worker::{ByteArrival, ByteFlow, ByteFlowState, DatagramArrival, Frame, Worker};
use bartizan_packet::LinkType;
use bartizan_ports::{PortError, PortStats, Waker, Woke};
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit::packet::{ACK, FIN, PSH, SYN, address, tcp};
use bartizan_testkit_worker::{Made, Stack, events};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

const RULES: &str = "\
    alert http any any -> any any (http.uri; content:\"/secret\"; sid:1;)\n\
    alert tcp any any -> any any (content:\"stream words\"; sid:2;)\n\
    alert http any any -> any any (file.data; content:\"body words\"; sid:3;)\n\
    drop http any any -> any any (http.uri; content:\"/forbidden\"; sid:4;)\n\
    alert tcp any any -> any any (flow:established,to_client; content:\"220 ready\"; startswith; sid:5;)\n";

/// Bytes that a side sends: the server, if `true`.
type Said<'s> = (bool, &'s [u8]);

fn live(_: &mut EngineSettings) {}

struct Run {
    stack: Stack,
    nanos: u64,
}

impl Run {
    fn new(name: &str, policy: &'static str) -> Self {
        Run::of(name, policy, RULES)
    }

    fn of(name: &str, policy: &'static str, rules: &str) -> Self {
        let stack = Stack::new(&Made { name, policy, set: &[], tune: live, rules, thresholds: "" });
        Run { stack, nanos: 1_000_000_000 }
    }

    fn now(&mut self) -> Timestamp {
        self.nanos += 100_000;
        Timestamp::from_nanos(self.nanos)
    }

    /// The reasons for which what is said is refused, as packets.
    fn packets(&mut self, ends: [SocketAddr; 2], said: &[Said<'_>]) -> Vec<Option<Reason>> {
        let sides = ends.map(|end| (end.ip(), end.port()));
        let mut next = [100u32, 900];
        let mut sends = |run: &mut Self, side: usize, flags: u16, load: &[u8]| {
            let ack = if flags & ACK == 0 { 0 } else { next[1 - side] };
            let bytes = tcp(sides[side], sides[1 - side], (next[side], ack), flags as u8, load).frame();
            next[side] += load.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
            let (now, wire_len) = (run.now(), bytes.len() as u32);
            let (link_type, link) = (LinkType::ETHERNET, LinkId(0));
            let frame = Frame { now, bytes: &bytes, wire_len, link_type, link, number: None };
            reason(run.stack.worker.frame(&frame, &mut run.stack.recorder).expect("a decision"))
        };
        for (side, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
            if let Some(reason) = sends(self, side, flags, b"") {
                return vec![Some(reason)];
            }
        }
        let mut reasons = Vec::new();
        for (server, load) in said {
            reasons.push(sends(self, usize::from(*server), PSH | ACK, load));
            sends(self, usize::from(!*server), ACK, b"");
        }
        for (side, flags) in [(0, FIN | ACK), (1, FIN | ACK), (0, ACK)] {
            sends(self, side, flags, b"");
        }
        reasons
    }

    /// As [`Run::packets`], with bytes in order.
    fn bytes(&mut self, ends: [SocketAddr; 2], said: &[Said<'_>]) -> Vec<Option<Reason>> {
        let mut flow = ByteFlow::new(ends[0], ends[1], LinkId(0));
        let now = self.now();
        let Stack { worker, recorder, .. } = &mut self.stack;
        if let Some(reason) = reason(worker.open_bytes(&mut flow, now, recorder)) {
            return vec![Some(reason)];
        }
        let mut reasons = Vec::new();
        for (server, bytes) in said {
            let direction = if *server { Direction::ToClient } else { Direction::ToServer };
            let arrival = ByteArrival { now: self.now(), direction, bytes, end: false };
            let Stack { worker, recorder, .. } = &mut self.stack;
            reasons.push(reason(worker.bytes(&mut flow, &arrival, recorder)));
        }
        for direction in Direction::BOTH {
            let arrival = ByteArrival { now: self.now(), direction, bytes: b"", end: true };
            let Stack { worker, recorder, .. } = &mut self.stack;
            worker.bytes(&mut flow, &arrival, recorder);
        }
        reasons
    }
}

fn reason(decision: Decision) -> Option<Reason> {
    if decision.verdict.forwards() { None } else { decision.reason }
}

fn ends(v6: bool, port: u16) -> [SocketAddr; 2] {
    [SocketAddr::new(address(v6, 1), port), SocketAddr::new(address(v6, 2), 80)]
}

/// The fields of events about payloads and flows, without those that only packets have.
fn gist(all: &[Value]) -> Vec<Value> {
    let mut told: Vec<Value> = all
        .iter()
        .filter(|event| event["event_type"] != "stats")
        .map(|event| {
            let mut flow = event["flow"].clone();
            if let Some(flow) = flow.as_object_mut() {
                for key in [
                    "start",
                    "end",
                    "age",
                    "bytes_toserver",
                    "bytes_toclient",
                    "pkts_toserver",
                    "pkts_toclient",
                ] {
                    flow.remove(key);
                }
            }
            let kind = &event["event_type"];
            json!([
                kind,
                event["src_ip"],
                event["src_port"],
                event["dest_ip"],
                event["dest_port"],
                event["app_proto"],
                event["alert"]["signature_id"],
                event["alert"]["action"],
                event["http"],
                event["fileinfo"],
                if kind == "flow" { flow } else { Value::Null },
            ])
        })
        .collect();
    told.sort_by_key(ToString::to_string);
    // Acknowledgements are refused too, one by one.
    told.dedup();
    told
}

const OPEN: &str =
    "chain: [pfw, ids], pfw: {rules: [{drop: tcp, to-ports: 25}], default: allow}, ids: {rules: [r]}";

fn conversations() -> Vec<Vec<Said<'static>>> {
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\nhas body words..";
    vec![
        vec![(false, b"GET /secret HTTP/1.1\r\nHost: h\r\n\r\n"), (true, response)],
        // In pieces, with a rule's words across them.
        vec![
            (false, b"GET /sec"),
            (false, b"ret HTTP/1.1\r\nHost: h\r"),
            (false, b"\n\r\n"),
            (true, &response[..50]),
            (true, &response[50..]),
        ],
        vec![(true, b"220 ready\r\n"), (false, b"hello stream wo"), (false, b"rds and more\r\n")],
        vec![
            (false, b"GET /forbidden HTTP/1.1\r\nHost: h\r\n\r\n"),
            (true, response),
            (false, b"GET / HTTP/1.1\r\n\r\n"),
        ],
        vec![],
    ]
}

#[test]
fn bytes_in_order_give_the_events_of_packets() {
    for v6 in [false, true] {
        let (mut by_packets, mut by_bytes) = (Run::new("by-packets", OPEN), Run::new("by-bytes", OPEN));
        for (port, said) in (1_024..).zip(conversations()) {
            let expected = by_packets.packets(ends(v6, port), &said);
            assert_eq!(by_bytes.bytes(ends(v6, port), &said), expected, "conversation {port}");
        }
        let (expected, found) = (gist(&by_packets.stack.finish().1), gist(&by_bytes.stack.finish().1));
        assert!(events_of(&expected, "alert") >= 5 && events_of(&expected, "flow") == 5, "{expected:?}");
        assert_eq!(found, expected, "IPv6: {v6}");
    }
}

fn events_of(told: &[Value], kind: &str) -> usize {
    told.iter().filter(|event| event[0] == kind).count()
}

#[test]
fn a_connection_that_a_policy_refuses_is_refused_when_it_opens() {
    for v6 in [false, true] {
        let mut run = Run::new("refused", OPEN);
        let [client, server] = ends(v6, 1_024);
        let mail = SocketAddr::new(server.ip(), 25);
        assert_eq!(run.bytes([client, mail], &[(false, b"EHLO h\r\n")]), [Some(Reason::PfwRule)]);
        let all = run.stack.finish().1;
        let drop = events::first(&all, "drop");
        assert_eq!(
            (&drop["dest_port"], &drop["drop"]),
            (&json!(25), &json!({"reason": "pfw_rule"})),
            "{drop}"
        );
    }
}

/// More than a window, in one direction and without an answer: nothing is refused and no memory is kept.
#[test]
fn a_long_transfer_without_an_answer_keeps_no_bytes() {
    let mut run = Run::new("long", OPEN);
    let mut flow = ByteFlow::new(ends(false, 1)[0], ends(false, 1)[1], LinkId(0));
    let now = run.now();
    let Stack { worker, recorder, .. } = &mut run.stack;
    assert_eq!(reason(worker.open_bytes(&mut flow, now, recorder)), None);
    let megabyte = vec![b'.'; 1 << 20];
    let mut most = 0;
    for _ in 0..40 {
        let arrival = ByteArrival { now, direction: Direction::ToServer, bytes: &megabyte, end: false };
        assert_eq!(reason(worker.bytes(&mut flow, &arrival, recorder)), None);
        let mut held = 0;
        worker.visit_stats(|name, value| held += if name == "tcp.reassembly_memuse" { value } else { 0 });
        most = most.max(held);
    }
    assert!(most < 2 << 20, "{most} bytes are held");
}

fn flows_of(run: &mut Run) -> usize {
    run.stack.worker.flows().ids().len()
}

/// Rules on addresses, on headers that a connection has, and on the payload of segments apply to bytes;
/// conditions on a packet's headers do not hold.
#[test]
fn rules_on_packets_apply_to_bytes_as_far_as_they_have_what_packets_have() {
    for v6 in [false, true] {
        let [client, server] = ends(v6, 1_024);
        for (rule, refused) in [
            (format!("drop ip any any -> [{}] any (msg:\"a\"; sid:1;)", server.ip()), true),
            ("drop tcp any any -> any 80 (msg:\"p\"; sid:1;)".to_owned(), true),
            ("drop tcp-pkt any any -> any any (msg:\"k\"; content:\"hello\"; sid:1;)".to_owned(), true),
            ("drop tcp any any -> any any (msg:\"w\"; content:\"w\"; startswith; sid:1;)".to_owned(), true),
            (
                "drop tcp any any -> any any (msg:\"d\"; dsize:>3; content:\"hello\"; sid:1;)".to_owned(),
                false,
            ),
            ("drop tcp any any -> any any (msg:\"f\"; flags:A; content:\"hello\"; sid:1;)".to_owned(), false),
            ("drop ip any any -> any any (msg:\"t\"; ttl:0; sid:1;)".to_owned(), false),
            ("drop tcp any any -> any 81 (msg:\"o\"; sid:1;)".to_owned(), false),
        ] {
            let mut run = Run::of("on-packets", OPEN, &rule);
            let reasons = run.bytes([client, server], &[(false, b"hello\r\n"), (false, b"world\r\n")]);
            assert_eq!(reasons.iter().any(Option::is_some), refused, "{rule}, IPv6 {v6}: {reasons:?}");
        }
    }
}

/// Bytes that rules replace leave in their place, with the same length.
#[test]
fn rules_replace_bytes() {
    let rule = "alert tcp any any -> any any (msg:\"r\"; content:\"secret\"; replace:\"******\"; sid:1;)";
    let mut run = Run::of("replaced", OPEN, rule);
    let [client, server] = ends(false, 1_024);
    let mut flow = ByteFlow::new(client, server, LinkId(0));
    let now = run.now();
    let Stack { worker, recorder, .. } = &mut run.stack;
    worker.open_bytes(&mut flow, now, recorder);
    for (bytes, expected) in [
        (&b"a secret, no secret\r\n"[..], Some(&b"a ******, no secret\r\n"[..])),
        (b"nothing of it\r\n", None),
        (b"the last secret", Some(b"the last ******")),
    ] {
        let arrival = ByteArrival { now, direction: Direction::ToServer, bytes, end: false };
        assert_eq!(reason(worker.bytes(&mut flow, &arrival, recorder)), None);
        assert_eq!(worker.take_replaced().as_deref(), expected);
    }
}

/// Bytes are held while the protocol that a rule needs is open, and no longer than the time of holding.
#[test]
fn bytes_that_are_held_are_handed_in_again() {
    let rule = "drop tcp any any -> any any (msg:\"n\"; app-layer-protocol:!tls; sid:1;)";
    let start = b"\x16\x03\x01\0\x50\x01\0\0\x4c\x03\x03";
    let hello = [&start[..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0, 0, 0]].concat();
    for more in [false, true] {
        let mut run = Run::of("held", OPEN, rule);
        let [client, server] = ends(false, 1_024);
        let mut flow = ByteFlow::new(client, server, LinkId(0));
        let begin = run.now();
        let Stack { worker, recorder, .. } = &mut run.stack;
        worker.open_bytes(&mut flow, begin, recorder);
        let mut arrive = |worker: &mut Worker, flow: &mut ByteFlow, bytes: &[u8], later: u64| {
            let now = Timestamp::from_nanos(begin.as_nanos() + later);
            let arrival = ByteArrival { now, direction: Direction::ToServer, bytes, end: false };
            worker.bytes(flow, &arrival, recorder)
        };
        let first = arrive(worker, &mut flow, &start[..2], 0);
        let wait = worker.bytes_wait(&flow, &first, begin);
        assert_eq!(wait, Some(PacketDuration::from_millis(150)), "{first:?}");
        let (again, later) = if more { (&hello[..], 1_000) } else { (&start[..2], 151_000_000) };
        let second = arrive(worker, &mut flow, again, later);
        assert_eq!(worker.bytes_wait(&flow, &second, begin), None, "{second:?}");
        let refused = if more { None } else { Some(Reason::IdsRule) };
        assert_eq!(reason(second), refused, "more: {more}");
    }
}

/// A bypassed connection's bytes pass without a function, are counted, and are judged by the next policy.
#[test]
fn a_bypassed_connection_is_known_as_such() {
    let rules = "pass tcp any any -> any 80 (msg:\"k\"; content:\"known\"; bypass; sid:1;)\n\
        drop tcp any any -> any any (msg:\"w\"; content:\"words\"; sid:2;)";
    let mut run = Run::of("bypassed", OPEN, rules);
    let [client, server] = ends(true, 1_024);
    let mut flow = ByteFlow::new(client, server, LinkId(0));
    let now = run.now();
    let Stack { worker, recorder, .. } = &mut run.stack;
    worker.open_bytes(&mut flow, now, recorder);
    for bytes in [&b"well known\r\n"[..], b"bad words\r\n"] {
        let arrival = ByteArrival { now, direction: Direction::ToServer, bytes, end: false };
        assert_eq!(reason(worker.bytes(&mut flow, &arrival, recorder)), None);
        assert_eq!(worker.bytes_flow_state(&flow, now), ByteFlowState::Bypassed);
    }
    worker.close_bytes(&mut flow, now, recorder);
    assert_eq!(worker.bytes_flow_state(&flow, now), ByteFlowState::Bypassed);
    let all = run.stack.finish().1;
    let record = events::first(&all, "flow");
    assert_eq!(record["flow"]["state"], "bypassed", "{record}");
    assert_eq!(record["flow"]["bytes_toserver"], 23, "{record}");
}

/// A source that is done with a connection says so: its flow ends at once, in order or as by a reset.
#[test]
fn a_connection_that_its_source_is_done_with_ends() {
    for (ended, flag) in
        [(None, "rst"), (Some(Direction::ToServer), "fin"), (Some(Direction::ToClient), "fin")]
    {
        let mut run = Run::new("closed", OPEN);
        let [client, server] = ends(false, 1_024);
        let mut flow = ByteFlow::new(client, server, LinkId(0));
        let now = run.now();
        let Stack { worker, recorder, .. } = &mut run.stack;
        assert_eq!(reason(worker.open_bytes(&mut flow, now, recorder)), None);
        assert_eq!(worker.bytes_flow_state(&flow, now), ByteFlowState::Judged);
        if let Some(direction) = ended {
            worker.bytes(
                &mut flow,
                &ByteArrival { now, direction, bytes: b"hello\r\n", end: true },
                recorder,
            );
        }
        worker.close_bytes(&mut flow, now, recorder);
        assert!(flow.has_ended(Direction::ToServer) && flow.has_ended(Direction::ToClient));
        // Once more has no effect.
        worker.close_bytes(&mut flow, now, recorder);
        let all = run.stack.finish().1;
        let record = events::first(&all, "flow");
        assert_eq!(
            (&record["tcp"][flag], &record["flow"]["state"]),
            (&json!(true), &json!("closed")),
            "{record}"
        );
        assert_eq!(record["tcp"]["rst"].as_bool().unwrap_or(false), flag == "rst", "{record}");
    }
}

/// Datagrams without headers are packets for rules, parsers and records, and leave with what rules replace.
#[test]
fn datagrams_without_headers_are_judged_as_packets() {
    let rules = "drop dns any any -> any 53 (msg:\"q\"; dns.query; content:\"evil.example\"; sid:1;)\n\
        drop udp any any -> any any (msg:\"t\"; ttl:1; sid:2;)\n\
        drop udp any any -> any any (msg:\"d\"; dsize:7; sid:3;)\n\
        alert udp any any -> any any (msg:\"r\"; content:\"secret\"; replace:\"******\"; sid:4;)";
    let query = |name: &str| {
        let mut message = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            message.push(label.len() as u8);
            message.extend_from_slice(label.as_bytes());
        }
        message.extend_from_slice(&[0, 0, 1, 0, 1]);
        message
    };
    let origin = std::sync::Arc::new(bartizan_stages::flow_ext::StreamOrigin {
        guest: "web".into(),
        peer_guest: None,
        process: 77,
        executable: Some("/usr/bin/dig".to_owned()),
        cgroup: None,
    });
    for v6 in [false, true] {
        let mut run = Run::of("datagrams", OPEN, rules);
        let [client, server] = ends(v6, 1_024);
        let dns = SocketAddr::new(server.ip(), 53);
        for (to, bytes, refused, replaced) in [
            (dns, query("good.example"), None, None),
            (dns, query("evil.example"), Some(Reason::IdsRule), None),
            (server, b"seven..".to_vec(), Some(Reason::IdsRule), None),
            (server, b"a secret word".to_vec(), None, Some(b"a ****** word".to_vec())),
            (SocketAddr::new(server.ip(), 9), b"nothing".repeat(9_000), None, None),
        ] {
            let arrival = DatagramArrival {
                now: run.now(),
                link: LinkId(0),
                from: SocketAddr::new(client.ip(), 1_000 + bytes.len() as u16 % 100),
                to,
                bytes: &bytes,
                origin: &origin,
            };
            let Stack { worker, recorder, .. } = &mut run.stack;
            assert_eq!(reason(worker.datagram(&arrival, recorder)), refused, "{to} {v6}");
            assert_eq!(worker.take_replaced(), replaced);
        }
        let all = run.stack.finish().1;
        let alert = all.iter().find(|event| event["alert"]["signature_id"] == 1).expect("an alert");
        assert_eq!(alert["alert"]["action"], "blocked");
        assert_eq!(alert["bartizan"]["stream_path"], json!({"pid": 77, "executable": "/usr/bin/dig"}));
        assert_eq!(alert["bartizan"]["link"], "web", "{alert}");
        let queries: Vec<_> = all.iter().filter(|event| event["event_type"] == "dns").collect();
        assert_eq!(queries.len(), 2, "{queries:?}");
    }
}

/// The program behind a connection is in all its records, and no other connection's.
#[test]
fn records_name_the_program_of_a_connection() {
    let mut run = Run::new("program", OPEN);
    let program = std::sync::Arc::new(bartizan_stages::flow_ext::StreamOrigin {
        guest: "web".into(),
        peer_guest: None,
        process: 77,
        executable: Some("/usr/bin/curl".to_owned()),
        cgroup: None,
    });
    for (port, program) in [(1_024, Some(program)), (1_025, None)] {
        let [client, server] = ends(true, port);
        let mut flow = ByteFlow::new(client, server, LinkId(0));
        if let Some(program) = program {
            flow = flow.of_program(program);
        }
        let now = run.now();
        let Stack { worker, recorder, .. } = &mut run.stack;
        worker.open_bytes(&mut flow, now, recorder);
        let bytes = b"GET /forbidden HTTP/1.1\r\nHost: h\r\n\r\n";
        let arrival = ByteArrival { now, direction: Direction::ToServer, bytes, end: false };
        assert_eq!(reason(worker.bytes(&mut flow, &arrival, recorder)), Some(Reason::IdsRule));
    }
    assert_eq!(flows_of(&mut run), 2);
    let all = run.stack.finish().1;
    for kind in ["alert", "drop", "flow"] {
        let of_kind: Vec<_> = all.iter().filter(|event| event["event_type"] == kind).collect();
        assert_eq!(of_kind.len(), 2, "{kind}: {of_kind:?}");
        for event in of_kind {
            let own = &event["bartizan"];
            let expected = match event["src_port"].as_u64() {
                Some(1_024) => (json!({"pid": 77, "executable": "/usr/bin/curl"}), json!("web")),
                _ => (Value::Null, Value::Null),
            };
            assert_eq!((&own["stream_path"], &own["link"]), (&expected.0, &expected.1), "{event}");
        }
    }
}

/// A source whose connections have no packets.
struct Conversations {
    said: Vec<Vec<Said<'static>>>,
    now: Timestamp,
}

impl Source for Conversations {
    fn replays(&self) -> bool {
        true
    }

    fn begin(&mut self, _worker: &mut Worker, _batch: usize) {}

    fn take(&mut self, arrivals: &mut Arrivals<'_>) -> Result<Taken, PortError> {
        let Some(said) = self.said.pop() else { return Ok(Taken { has_ended: true, ..Taken::default() }) };
        let [client, server] = ends(false, 2_000 + self.said.len() as u16);
        let mut flow = ByteFlow::new(client, server, arrivals.link());
        arrivals.open_bytes(&mut flow, self.now);
        for (server, bytes) in &said {
            let direction = if *server { Direction::ToClient } else { Direction::ToServer };
            let (now, end) = (self.now, false);
            arrivals.bytes(&mut flow, &ByteArrival { now, direction, bytes, end });
        }
        Ok(Taken { frames: said.len() + 1, newest: self.now, has_ended: false })
    }

    fn each_port(&mut self, _each: &mut dyn FnMut(&str, &PortStats, u64)) {}

    fn now(&mut self) -> Timestamp {
        self.now
    }

    fn busy_poll(&mut self, _else_ready: &dyn Fn() -> bool, _spin: Duration) -> bool {
        true
    }

    fn wait(&mut self, _waker: Option<&Waker>, _timeout: Duration) -> Result<Woke, PortError> {
        Ok(Woke::Packets)
    }
}

#[test]
fn a_source_of_bytes_runs_in_the_driver_of_all_sources() {
    let run = Run::new("driven", OPEN);
    let station = run.stack.stations(1).remove(0);
    let mut recorder = run.stack.recorder;
    let source = Conversations { said: conversations(), now: Timestamp::from_nanos(1_000_000_000) };
    let mut driver = Driver::new(station, Box::new(source), &mut recorder);
    driver.run(&LiveOptions::default(), &Control::new().unwrap()).unwrap();
    let mut flows = 0;
    driver.station.worker().visit_stats(|name, value| flows += if name == "flow.total" { value } else { 0 });
    assert_eq!(flows, 5);
    assert_eq!(recorder.alerts().keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
}
