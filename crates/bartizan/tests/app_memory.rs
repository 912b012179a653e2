// SPDX-License-Identifier: Apache-2.0
//! Memory of application layers stays within its bound, however much senders make connections hold, and good
//! requests beside them are still parsed, matched and passed (docs/limits.md).

use bartizan_base::{Reason, Timestamp};
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit::hosts::{ethernet, ip, tcp};
use bartizan_testkit_worker::{Captured, Made, Stack, events};

const SYN: u8 = 2;
const ACK: u8 = 16;
const SEGMENT: usize = 1400;

/// One connection of a client's port to a server's, with the number of bytes sent so far by each side.
struct Connection {
    v6: bool,
    ports: (u16, u16),
    sent: [u32; 2],
}

impl Connection {
    fn frame(&self, to_server: bool, flags: u8, payload: &[u8]) -> Vec<u8> {
        let [client, server] = self.sent;
        let (from, to) = self.ports;
        if to_server {
            let ack = if flags & ACK > 0 { server } else { 0 };
            return ethernet(self.v6, &ip(self.v6, (1, 2), 6, &tcp((from, to), client, ack, flags, payload)));
        }
        ethernet(self.v6, &ip(self.v6, (2, 1), 6, &tcp((to, from), server, client, flags, payload)))
    }

    fn open(v6: bool, ports: (u16, u16)) -> (Self, Vec<Vec<u8>>) {
        let mut it = Connection { v6, ports, sent: [100, 500] };
        let mut frames = vec![it.frame(true, SYN, b"")];
        it.sent[0] += 1;
        frames.push(it.frame(false, SYN | ACK, b""));
        it.sent[1] += 1;
        frames.push(it.frame(true, ACK, b""));
        (it, frames)
    }

    /// Data in segments, each acknowledged.
    fn send(&mut self, to_server: bool, data: &[u8]) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for piece in data.chunks(SEGMENT) {
            frames.push(self.frame(to_server, ACK | 8, piece));
            self.sent[usize::from(!to_server)] += piece.len() as u32;
            frames.push(self.frame(!to_server, ACK, b""));
        }
        frames
    }
}

/// The frames that a connection sends to make the engine hold much memory.
type Shape = fn(&mut Connection) -> Vec<Vec<u8>>;

fn open_post(c: &mut Connection) -> Vec<Vec<u8>> {
    let mut data = b"POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n".to_vec();
    data.resize(100_000, b'b');
    c.send(true, &data)
}

fn open_form(c: &mut Connection) -> Vec<Vec<u8>> {
    let mut data = b"POST /form HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/form-data; boundary=xx\r\n\
        Content-Length: 1000000\r\n\r\n--xx\r\nContent-Disposition: form-data; filename=a\r\n\r\n"
        .to_vec();
    data.resize(60_000, b'f');
    c.send(true, &data)
}

fn open_headers(c: &mut Connection) -> Vec<Vec<u8>> {
    let mut data = b"GET /headers HTTP/1.1\r\nHost: h\r\n".to_vec();
    for n in 0..800 {
        data.extend_from_slice(format!("X-{n}: {n:016}\r\n").as_bytes());
    }
    c.send(true, &data)
}

fn pipelined(c: &mut Connection) -> Vec<Vec<u8>> {
    c.send(true, &b"GET /pipelined HTTP/1.1\r\nHost: h\r\nUser-Agent: someone\r\n\r\n".repeat(200))
}

fn gzip_answer(c: &mut Connection) -> Vec<Vec<u8>> {
    use std::io::Write as _;
    let mut frames = c.send(true, b"GET /zip HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&vec![b'0'; 1 << 20]).unwrap();
    let body = encoder.finish().unwrap();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\nContent-Length: 100000\r\n\r\n";
    frames.extend(c.send(false, &[head.as_bytes(), &body[..body.len() - 20]].concat()));
    frames
}

/// A hello that spreads over records and does not end.
fn tls_hello(c: &mut Connection) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut hello = vec![1, 3, 0xff, 0xff, 3, 3];
    hello.resize(200_000, 7);
    for piece in hello.chunks(10_000) {
        let length = (piece.len() as u16).to_be_bytes();
        frames.extend(c.send(true, &[&[0x16, 3, 1], &length[..], piece].concat()));
    }
    frames
}

/// Many queries in one segment, then one that does not end.
fn dns_tcp(c: &mut Connection) -> Vec<Vec<u8>> {
    let query = b"\0\x1d\0\x01\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01";
    let mut data = query.repeat(40);
    data.extend_from_slice(b"\xff\xff\0\x02\x01\0\0\x01\0\0\0\0\0\0");
    data.resize(40_000, b'd');
    c.send(true, &data)
}

const SHAPES: &[(&str, u16, Shape)] = &[
    ("open POST", 80, open_post),
    ("open form", 80, open_form),
    ("open headers", 80, open_headers),
    ("pipelined requests", 80, pipelined),
    ("gzip answer", 80, gzip_answer),
    ("TLS hello in pieces", 443, tls_hello),
    ("DNS over TCP", 53, dns_tcp),
];

const RULES: &str = "alert http any any -> any any (msg:\"good\"; http.uri; content:\"/good\"; sid:1;)\n\
    drop http any any -> any any (msg:\"evil\"; http.uri; content:\"/evil\"; sid:2;)\n\
    alert http any any -> any any (msg:\"body\"; http.request_body; content:\"nothing of it\"; sid:3;)\n\
    alert tls any any -> any any (msg:\"name\"; tls.sni; content:\"nothing of it\"; sid:4;)\n\
    alert tcp any any -> any any (msg:\"stream\"; content:\"bytes in the stream\"; sid:5;)";

/// The bound of the tests.
const LIMIT: u64 = 2 << 20;

struct Run {
    stack: Stack,
    frames: u64,
    refused: u64,
}

impl Run {
    fn new(name: &str, policy: &str, set: &[(&str, &str)], tune: fn(&mut EngineSettings)) -> Self {
        let rules = RULES;
        Run {
            stack: Stack::new(&Made { name, policy, set, tune, rules, thresholds: "" }),
            frames: 0,
            refused: 0,
        }
    }

    /// Handles a frame, a fifth of a millisecond after the one before. Returns whether it passed.
    fn frame(&mut self, bytes: Vec<u8>) -> bool {
        self.frames += 1;
        let now = Timestamp::from_nanos(1_000_000_000 + self.frames * 200_000);
        let frame = Captured { now, bytes };
        let decision = self.stack.worker.frame(&frame.frame(self.frames), &mut self.stack.recorder);
        let decision = decision.expect("no fragment");
        self.refused += u64::from(!decision.verdict.forwards());
        decision.verdict.forwards()
    }

    fn frames(&mut self, frames: Vec<Vec<u8>>) -> bool {
        let mut all = true;
        for frame in frames {
            all &= self.frame(frame);
        }
        all
    }

    fn used(&self) -> u64 {
        self.stack.worker.app_memory().used()
    }
}

/// A good connection with a slow request.
struct Good {
    connection: Connection,
    left: Vec<Vec<u8>>,
}

impl Good {
    fn new(v6: bool, port: u16, path: &str) -> Self {
        let (mut connection, mut left) = Connection::open(v6, (port, 80));
        left.extend(connection.send(true, format!("GET {path}").as_bytes()));
        left.extend(connection.send(true, b" HTTP/1.1\r\nHost: h\r\n\r\n"));
        left.extend(connection.send(false, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
        left.reverse();
        Good { connection, left }
    }
}

/// So many connections of a shape, with good and evil requests between them.
fn attack(name: &str, (port, shape): (u16, Shape), v6: bool) {
    let set = [("app-layer.memcap", "2mb")];
    let mut run =
        Run::new(&format!("shape-{port}-{}-{v6}", name.replace(' ', "-")), "chain: [ids]", &set, |_| ());
    let (mut good, mut evil) = (Vec::new(), Vec::new());
    let (mut asked, mut good_refused) = (0u32, 0u32);
    for n in 0..60u16 {
        let (mut connection, mut frames) = Connection::open(v6, (10_000 + n, port));
        frames.extend(shape(&mut connection));
        let each = (frames.len() / 10).max(1);
        for (at, frame) in frames.into_iter().enumerate() {
            run.frame(frame);
            assert!(run.used() <= LIMIT, "{name}: {} after frame {}", run.used(), run.frames);
            if at % each == 0 {
                if at % (each * 5) == 0 {
                    asked += 1;
                    good.push(Good::new(v6, 20_000 + asked as u16, "/good"));
                    evil.push(Good::new(v6, 40_000 + asked as u16, "/evil"));
                }
                for good in &mut good {
                    good_refused += u32::from(good.left.pop().is_some_and(|frame| !run.frame(frame)));
                }
                for evil in &mut evil {
                    if let Some(frame) = evil.left.pop() {
                        run.frame(frame);
                    }
                }
            }
        }
    }
    for good in good.iter_mut() {
        while let Some(frame) = good.left.pop() {
            good_refused += u32::from(!run.frame(frame));
        }
        let _ = &good.connection;
    }
    for evil in evil.iter_mut() {
        while let Some(frame) = evil.left.pop() {
            run.frame(frame);
        }
    }
    let counters = *run.stack.worker.app_memory().counters();
    assert_eq!(good_refused, 0, "{name}: good frames refused; {counters:?}");
    let (worker, events) = run.stack.finish();
    let (used, peak) = (worker.app_memory().used(), worker.app_memory().peak());
    // One packet of a compressed body can bring some 300 KB.
    assert!(used == 0 && peak > 0 && peak <= LIMIT + (400 << 10), "{name}: {used}, {peak}");
    let alerts = |sid: u64| events.iter().filter(|e| e["alert"]["signature_id"] == sid).count();
    assert_eq!(alerts(1), asked as usize, "{name}: good requests are matched; {counters:?}");
    assert_eq!(alerts(2), asked as usize, "{name}: evil requests are found; {counters:?}");
    println!("{name} v6 {v6}: {asked} good, peak {}, {counters:?}", worker.app_memory().peak());
    // DNS messages go once they are inspected, so nothing piles up.
    assert_eq!(counters.closed > 0, port != 53, "{name}: {counters:?}");
}

#[test]
fn every_shape_stays_within_the_bound_and_good_requests_pass() {
    for (name, port, shape) in SHAPES {
        for v6 in [false, true] {
            attack(name, (*port, *shape), v6);
        }
    }
}

/// A connection that is closed for memory: whether its later bytes pass, the number of refusals for that
/// reason, and the events.
fn closed(
    name: &str,
    policy: &str,
    set: &[(&str, &str)],
    more: &[u8],
) -> (bool, u64, Vec<serde_json::Value>) {
    let set = [&[("app-layer.memcap", "100kb")], set].concat();
    let mut run = Run::new(name, policy, &set, |_| ());
    let (mut c, frames) = Connection::open(false, (1000, 80));
    assert!(run.frames(frames));
    // The packet that passes the bound was inspected, so it leaves; its flow is closed after it.
    let sent = open_post(&mut c);
    for frame in sent {
        run.frame(frame);
        if run.stack.worker.app_memory().counters().closed > 0 {
            break;
        }
    }
    assert_eq!(
        (run.refused, run.stack.worker.app_memory().counters().closed, run.used()),
        (0, 1, 0),
        "{name}"
    );
    let counters = run.stack.worker.app_memory().counters();
    assert!(counters.freed > 50_000 && counters.freed < 110 << 10, "{name}: {counters:?}");
    c.sent[0] = 101 + (run.frames as u32 - 3).div_ceil(2) * SEGMENT as u32;
    let passes = run.frames(c.send(true, more));
    let refused = run.stack.worker.counters().refused[Reason::AppLayerMemory as usize];
    (passes, refused, run.stack.finish().1)
}

#[test]
fn a_flow_that_gives_way_goes_on_as_its_policy_says() {
    let (passes, refused, events) = closed("auto", "chain: [ids]", &[], b"more");
    assert!(!passes && refused > 0, "prevention refuses what it cannot parse");
    // The bytes received before are inspected and recorded, and the flow's record has the reason of its
    // end.
    assert_eq!(events::of_type(&events, "http").filter(|e| e["http"]["url"] == "/upload").count(), 1);
    let flow = events::first(&events, "flow");
    assert_eq!(flow["app_proto"], "http");
    assert_eq!(flow["flow"]["exception_policy"][0]["target"], "app_layer_memcap", "{flow}");
    let drop = events::first(&events, "drop");
    assert_eq!(drop["bartizan"]["reason"], "applayer_memory");

    let ignore = [("app-layer.memcap-policy", "ignore")];
    let (passes, refused, _) = closed("ignore", "chain: [ids]", &ignore, b"more");
    assert_eq!((passes, refused), (true, 0));

    // A policy's word goes before the setting; `inspect` looks at the stream, `pass` at nothing.
    for (action, sees) in [("inspect", 1), ("pass", 0)] {
        let policy = format!("chain: [ids], overload: {{action: {action}}}");
        let (passes, refused, events) = closed(action, &policy, &[], b"bytes in the stream");
        assert_eq!((passes, refused), (true, 0), "{action}");
        assert_eq!(events.iter().filter(|e| e["alert"]["signature_id"] == 5).count(), sees, "{action}");
    }
    let (passes, refused, _) = closed("drop", "chain: [ids], overload: {action: drop}", &ignore, b"more");
    assert!(!passes && refused > 0);
}

/// A connection whose policy has ended its inspection still holds memory: it loses that before others lose
/// theirs, and its packets still pass.
#[test]
fn who_is_not_inspected_any_more_gives_way_and_goes_on() {
    let policy = "chain: [sfw, ids], bypass: {bytes: 60KiB}";
    let mut run = Run::new("let-go", policy, &[("app-layer.memcap", "150kb")], |_| ());
    let [(mut let_go, first), (mut other, second)] =
        [1000, 1001].map(|port| Connection::open(true, (port, 80)));
    assert!(run.frames(first) && run.frames(second));
    let sent = open_post(&mut let_go);
    assert!(run.frames(sent));
    let held = run.used();
    assert!(held > 20_000, "{held}");
    let mut body = b"POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n".to_vec();
    body.resize(50_000, b'b');
    for piece in body.chunks(1_000) {
        assert!(run.frames(other.send(true, piece)));
    }
    while run.stack.worker.app_memory().counters().closed == 0 {
        assert!(run.frames(other.send(true, &[b'b'; 1_000])), "{}", run.used());
        assert!(run.frames < 1_000, "nobody gives way: {}", run.used());
    }
    assert!(run.used() < 150 << 10);
    for connection in [&mut let_go, &mut other] {
        assert!(run.frames(connection.send(true, &[b'b'; 3_000])));
    }
    assert_eq!((run.refused, run.stack.worker.app_memory().counters().closed), (0, 1));
}

/// The memory of a kept-alive connection does not grow with its requests, with rules or without any, and
/// across reloads between both.
#[test]
fn transactions_go_with_rules_and_without() {
    const POLICY: &str = "chain: [ids]";
    let mut run = Run::new("rules-and-none", POLICY, &[], |_| ());
    let (mut c, frames) = Connection::open(true, (1000, 80));
    run.frames(frames);
    let (mut held, mut asked) = (Vec::new(), 0);
    for rules in [RULES, "", RULES, ""] {
        run.stack.swap(POLICY, rules);
        for _ in 0..100 {
            asked += 1;
            run.frames(c.send(true, b"GET /good HTTP/1.1\r\nHost: h\r\n\r\n"));
            run.frames(c.send(false, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
        }
        held.push(run.used());
    }
    // The engine remembers nothing of a flow where there are no rules, so it holds no more than with some.
    assert!(held[1] <= held[0] && held[3] <= held[0] && held[2] <= held[0] + 1024, "{held:?}");
    let (_, events) = run.stack.finish();
    let http = events::of_type(&events, "http").count();
    let alerts = events.iter().filter(|e| e["alert"]["signature_id"] == 1).count();
    assert_eq!((http, alerts), (asked, asked / 2));
}

#[test]
fn a_tenant_above_its_quota_gives_way_alone() {
    const QUOTA: u64 = 300 << 10;
    // The rest of the file after the policy's own text.
    let policy = "tenant: any, chain: [ids]}\ntenants:\n\
        \x20 - {name: a, select: {prefixes: [0.0.0.0/0]}, quotas: {state-bytes: 300KiB, alerts-per-second: 3}}\n\
        \x20 - {name: b, select: {prefixes: [\"::/0\"]}";
    let mut run = Run::new("state-quota", policy, &[], |_| ());
    let state = |run: &Run| run.stack.worker.chains().quotas().used().next().unwrap().2;
    let mut most = 0;
    for n in 0..40u16 {
        for v6 in [true, false] {
            let (mut connection, mut frames) = Connection::open(v6, (10_000 + n, 80));
            frames.extend(open_post(&mut connection));
            run.frames(frames);
            most = most.max(state(&run).state);
        }
    }
    let (used, counters) = (state(&run), *run.stack.worker.app_memory().counters());
    // The excess between two packets is at most what one packet brings.
    assert!(used.state <= QUOTA && most <= QUOTA + (64 << 10), "{most}, {used:?}");
    assert_eq!(used.closed, counters.closed + counters.streams, "only its flows gave way");
    assert!(used.closed >= 10, "{used:?}");
    // Without its quota nothing is counted; once the quota is back, all that the flows hold is counted
    // again.
    let without = policy.replace("state-bytes: 300KiB, ", "");
    run.stack.swap(&without, RULES);
    assert_eq!(state(&run).state, 0);
    run.stack.swap(policy, RULES);
    assert_eq!(state(&run).state, used.state);
    // Alerts beyond the quota act and are counted, and are not written.
    for n in 0..20u16 {
        for v6 in [true, false] {
            let (mut connection, mut frames) = Connection::open(v6, (30_000 + n, 80));
            frames.extend(connection.send(true, b"GET /good HTTP/1.1\r\nHost: h\r\n\r\n"));
            run.frames(frames);
        }
    }
    let left_out = state(&run).alerts_left_out;
    let (_, events) = run.stack.finish();
    let alerts = |v6| {
        let is_it = |e: &&serde_json::Value| {
            e["alert"]["signature_id"] == 1 && e["src_ip"].as_str().is_some_and(|ip| ip.contains(':') == v6)
        };
        events.iter().filter(is_it).count()
    };
    assert_eq!((alerts(true), alerts(false) as u64 + left_out), (20, 20));
    assert!(alerts(false) <= 6, "three a second, in two seconds at most: {}", alerts(false));
}
