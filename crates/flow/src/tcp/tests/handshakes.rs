// SPDX-License-Identifier: Apache-2.0
//! Attacks on the handshake: whatever SYNs, SYN/ACKs, RSTs and data precede and surround the true ones, a
//! receiver's application reads bytes that were inspected at the same offsets, of one beginning; and
//! connections of conforming hosts pass completely.

use super::host::{ACK, FIN, Host, ModelHostState, RST, SYN, Seg};
use super::*;
use crate::stream::RawChunk;
use bartizan_testkit::random::Random;

/// A random number of letters.
fn letters(random: &mut Random, most: usize) -> Vec<u8> {
    let count = random.below(most + 1);
    (0..count).map(|_| b'a' + random.below(26) as u8).collect()
}

/// The engine configured as in prevention, with the flow of one tuple, and the bytes that its readers saw.
struct PreventionRig {
    rig: Rig,
    shown: PerDirection<Vec<u8>>,
    /// Whether the readers missed bytes.
    apart: PerDirection<bool>,
    flipped: bool,
    refused: bool,
    log: Vec<String>,
    dropped: usize,
}

fn strict(one_sided: bool) -> StreamConfig {
    StreamConfig {
        strict: true,
        one_sided,
        midstream_policy: ExceptionPolicy::DropFlow,
        reassembly: ReassemblyConfig { raw_overlap: 100, ..ReassemblyConfig::default() },
        ..inline()
    }
}

impl PreventionRig {
    fn new(one_sided: bool) -> Self {
        PreventionRig {
            rig: Rig::new(strict(one_sided)),
            shown: PerDirection::default(),
            apart: PerDirection::default(),
            flipped: false,
            refused: false,
            log: Vec::new(),
            dropped: 0,
        }
    }

    /// Handles a segment; returns the segment that leaves.
    fn pass(&mut self, direction: Direction, seg: &Seg, fail: &dyn Fn(&PreventionRig, &str)) -> Option<Seg> {
        let way = if direction == ToServer { '>' } else { '<' };
        let text = String::from_utf8_lossy(&seg.data).into_owned();
        let Seg { flags, seq, ack, dies, .. } = seg;
        self.log.push(format!(
            "{way} {flags:#04x} seq {seq} ack {ack} dies {dies} fast {} {text}",
            seg.fast_open
        ));
        let left = self.judge(direction, seg, fail);
        if left.is_none() {
            self.dropped += 1;
            self.log.push("  refused".to_owned());
        }
        left.filter(|left| !left.dies)
    }

    fn judge(&mut self, direction: Direction, seg: &Seg, fail: &dyn Fn(&PreventionRig, &str)) -> Option<Seg> {
        if self.refused {
            return None;
        }
        let mut direction = if self.flipped { direction.flip() } else { direction };
        let mut segment = segment(TcpFlags::from_bits_retain(seg.flags), seg.seq, seg.ack, &seg.data);
        segment.options.ts = seg.ts;
        segment.options.fast_open = seg.fast_open;
        segment.options.wscale = seg.wscale.filter(|_| seg.has(SYN));
        let mut out = self.handle(direction, &segment);
        if out.reuse {
            self.log.push("  a new flow".to_owned());
            let config = self.rig.config;
            self.rig = Rig::new(config);
            self.apart = PerDirection::default();
            // The side that opens it is the client.
            (self.shown, self.flipped) = (PerDirection::default(), self.flipped != (direction == ToClient));
            direction = ToServer;
            out = self.handle(direction, &segment);
        }
        if out.reverse {
            self.flipped = !self.flipped;
            direction = direction.flip();
        }
        if out.exception.is_some_and(|(_, policy)| policy.refuses()) {
            self.refused = true;
            return None;
        }
        if !matches!(out.advice, Advice::Drop(_)) {
            self.read(direction, &seg.data, fail);
        }
        let mut left = seg.clone();
        let first = Seq(seg.seq).plus(u32::from(seg.has(SYN)));
        let stream = self.rig.pair.stream(direction);
        let passes = match out.advice {
            Advice::Forward => true,
            Advice::Rewrite => {
                stream.restore(first, &mut left.data);
                true
            }
            Advice::Complete(missing) => {
                let mut front = vec![0; usize::from(missing)];
                if !stream.beginning(&mut front) {
                    fail(self, "the beginning is not held");
                }
                left.seq = left.seq.wrapping_sub(u32::from(missing));
                left.data.splice(0..0, front);
                true
            }
            Advice::Trim(trimmed) => {
                left.data.drain(..trimmed as usize);
                if !left.data.is_empty() || left.has(FIN) {
                    left.seq = left.seq.wrapping_add(trimmed);
                }
                true
            }
            Advice::Drop(_) => false,
        };
        self.rig.pair.end_packet(direction, &seg.data, &mut self.rig.budget);
        passes.then_some(left)
    }

    fn handle(&mut self, direction: Direction, segment: &Segment<'_>) -> Outcome {
        let rig = &mut self.rig;
        let now = Timestamp::from_parts(rig.seconds, 0);
        let arrival = Arrival { direction, now, policy: HostPolicy::Bsd };
        let mut context =
            StreamContext { config: &rig.config, counters: &mut rig.counters, budget: &mut rig.budget };
        let mut out = Outcome::default();
        rig.session.handle(segment, arrival, Some(&mut rig.pair), &mut context, &mut out);
        out
    }

    /// Runs the readers. Each sees one stream, from one beginning, in order.
    fn read(&mut self, direction: Direction, own: &[u8], fail: &dyn Fn(&PreventionRig, &str)) {
        for which in Direction::BOTH {
            let packet = if which == direction { own } else { &[] };
            loop {
                let stream = self.rig.pair.stream_mut(which);
                let (offset, bytes) = match stream.app(packet) {
                    Some(AppChunk::Data { offset, bytes }) => (offset, bytes.to_vec()),
                    Some(AppChunk::Gap { offset, len }) => (offset, vec![b'?'; len as usize]),
                    None => break,
                };
                stream.app_consume(bytes.len() as u64);
                self.apart[which] |= bytes.contains(&b'?');
                let shown = &mut self.shown[which];
                let right = shown.len() as u64 == offset;
                shown.extend_from_slice(&bytes);
                if !right {
                    fail(self, "readers are shown another beginning");
                }
            }
            loop {
                let stream = self.rig.pair.stream_mut(which);
                let Some(RawChunk { offset, bytes, .. }) = stream.raw(packet) else { break };
                let (from, end) = (offset as usize, offset + bytes.len() as u64);
                // After bytes that the receiver has acknowledged and no reader saw (a FIN after old data
                // counts as one), both readers continue independently: the receiver reads no more.
                self.apart[which] |= from > self.shown[which].len();
                let right =
                    self.apart[which] || self.shown[which].get(from..from + bytes.len()) == Some(bytes);
                stream.raw_consume(end);
                if !right {
                    fail(self, "both readers see the same");
                }
            }
        }
    }

    /// Checks that the bytes read by the destination host of `direction` were inspected.
    fn compare(&self, direction: Direction, read: &[u8], fail: &dyn Fn(&PreventionRig, &str)) {
        let direction = if self.flipped { direction.flip() } else { direction };
        if !self.shown[direction].starts_with(read) {
            let (read, shown) =
                (String::from_utf8_lossy(read), String::from_utf8_lossy(&self.shown[direction]));
            fail(self, &format!("read {read:?}, shown {shown:?}"));
        }
    }
}

/// An attacker: its knowledge, and the segments made from it.
struct Liar {
    random: Random,
    /// Numbers that it uses as its own, and as those of the other side.
    own: Vec<u32>,
    other: Vec<u32>,
    /// The last answer.
    heard: Option<Seg>,
    /// The segment that acknowledges the last SYN/ACK.
    cookie: Option<u32>,
    stamps: bool,
}

impl Liar {
    fn data(&mut self, percent: usize) -> Vec<u8> {
        if self.random.percent(percent) { letters(&mut self.random, 24) } else { Vec::new() }
    }

    fn number(&mut self, other: bool) -> u32 {
        let base = *self.random.pick(if other { &self.other } else { &self.own });
        let before = 0u32.wrapping_sub(9);
        let off =
            *self.random.pick(&[0, 0, 0, 0, 1, 1, 2, 3, 4, 7, u32::MAX, before, 12, 3000, 1 << 20, 1 << 31]);
        base.wrapping_add(off)
    }

    /// A forged segment around the handshake of a client or of a server.
    fn lie(&mut self, server: bool) -> Seg {
        let (seq, ack) = (self.number(false), self.number(true));
        let opens = if server { SYN | ACK } else { SYN };
        let flags = match self.random.below(20) {
            0..=6 => opens,
            7 => SYN | ACK,
            8 => SYN,
            9 => RST,
            10 => RST | ACK,
            11 => ACK | FIN,
            12 => FIN,
            13 => 0,
            14 => SYN | FIN,
            _ => ACK,
        };
        let exact = flags & SYN != 0 && self.random.percent(80);
        let seq = if exact { *self.random.pick(&self.own) } else { seq };
        let ack = if flags & ACK != 0 || self.random.percent(5) { ack } else { 0 };
        let stamp = *self.random.pick(&[1000u32, 1000, 1000, 1010, 1020, 500]);
        // Timestamps that the other side has sent, and that no side has.
        let echo = *self.random.pick(&[0, 0, 1010, 4711, 1011]);
        Seg {
            ts: (self.stamps && !self.random.percent(10)).then_some((stamp, echo)),
            fast_open: self.random.percent(20),
            wscale: self.random.percent(30).then_some(7),
            dies: self.random.percent(35),
            ..Seg::new(flags, seq, ack, &self.data(45))
        }
    }

    /// Data of the true connection, about half of it correct, at any place.
    fn speak(&mut self, truth: &[u8], begin: u32, ack: u32) -> Seg {
        let from = self.random.below(truth.len() - 1);
        let len = 1 + self.random.below(truth.len() - from);
        let mut data = truth[from..(from + len).min(truth.len())].to_vec();
        if self.random.percent(40) {
            data.make_ascii_uppercase();
        }
        let flags = if self.random.percent(8) { ACK | FIN } else { ACK };
        let ts = self.stamps.then_some((1100, 0));
        let dies = self.random.percent(30);
        Seg { ts, dies, ..Seg::new(flags, begin.wrapping_add(from as u32), ack, &data) }
    }
}

fn failing(seed: u64) -> impl Fn(&PreventionRig, &str) {
    move |engine: &PreventionRig, what: &str| {
        panic!("seed {seed}: {what}, {:?}\n{}", engine.rig.session.state(), engine.log.join("\n"))
    }
}

/// A segment with true data. The attacker uses the last answer, or its knowledge of the host. `mine`: the
/// number of its true SYN.
fn tell_truth(liar: &mut Liar, host: &Host, mine: u32, truth: &[u8]) -> Seg {
    let is_open = host.at == ModelHostState::Established;
    let begin = if host.cookies && !is_open { mine } else { host.irs }.wrapping_add(1);
    let ack = liar.heard.as_ref().map_or(host.snd_nxt, |heard| heard.seq.wrapping_add(1));
    let ack = liar.cookie.filter(|_| host.at == ModelHostState::Listen).unwrap_or(ack);
    let ack = if is_open { host.snd_nxt } else { ack };
    if liar.random.percent(20) {
        Seg { ts: liar.stamps.then_some((1100, 0)), ..Seg::new(ACK, begin, ack, b"") }
    } else {
        liar.speak(truth, begin, ack)
    }
}

/// Plays an attacker against a host; returns the number of bytes that the host has read.
fn lie_to(seed: u64, server: bool) -> usize {
    let fail = failing(seed);
    let mut random = Random::new(seed);
    let direction = if server { ToServer } else { ToClient };
    let own = [random.draw() as u32, random.draw() as u32, 0x7fff_fff0];
    let iss = random.draw() as u32;
    let (cookies, fast, stamps) = (server && random.percent(30), random.percent(30), random.percent(40));
    let mut host = if server { Host::new(ModelHostState::Listen, iss, b"") } else { Host::client(iss, b"") };
    (host.cookies, host.fast, host.stamps) = (cookies, fast, stamps);
    host.checks_echo = random.percent(50);
    host.takes = random.below(30);
    let mut engine = PreventionRig::new(false);
    let mut liar =
        Liar { random, own: own.to_vec(), other: vec![iss, 77], heard: None, cookie: None, stamps };
    let tell = |engine: &mut PreventionRig, host: &mut Host, liar: &mut Liar, seg: &Seg| {
        let mut answers = Vec::new();
        if let Some(left) = engine.pass(direction, seg, &fail) {
            let had = host.taken;
            answers = host.take(&left);
            if host.taken > had {
                engine.compare(direction, &host.read, &fail);
            }
        }
        for answer in answers {
            if let Some(answer) = engine.pass(direction.flip(), &answer, &fail) {
                liar.other.push(answer.seq.wrapping_add(u32::from(answer.has(SYN))));
                if answer.has(SYN | ACK) {
                    liar.cookie = Some(answer.seq.wrapping_add(1));
                }
                if answer.has(ACK) && !answer.has(RST) {
                    liar.heard = Some(answer);
                }
            }
        }
    };
    if !server {
        for syn in host.speak(1) {
            if let Some(syn) = engine.pass(ToServer, &syn, &fail) {
                liar.other.push(syn.seq.wrapping_add(1));
            }
        }
    }
    let begins = liar.random.below(8);
    for _ in 0..begins {
        let seg = liar.lie(!server);
        tell(&mut engine, &mut host, &mut liar, &seg);
    }
    // The true handshake, if the attack has left room for one.
    let mine = *liar.random.pick(&own);
    let (flags, ack) = if server { (SYN, 0) } else { (SYN | ACK, iss.wrapping_add(1)) };
    let ts = stamps.then_some((1050, 0));
    for _ in 0..2 {
        tell(&mut engine, &mut host, &mut liar, &Seg { ts, ..Seg::new(flags, mine, ack, b"") });
        if liar.random.percent(30) {
            let seg = liar.lie(!server);
            tell(&mut engine, &mut host, &mut liar, &seg);
        }
    }
    let truth = b"the true bytes of the connection, that the application is to read";
    for _ in 0..40 {
        if cookies && host.at == ModelHostState::Established && liar.random.percent(8) {
            let fin = host.close();
            if engine.pass(ToClient, &fin, &fail).is_some() && liar.random.percent(70) {
                // Half of the servers get it late.
                let (seq, ack, dies) = (host.rcv_nxt, fin.seq.wrapping_add(1), liar.random.percent(50));
                tell(&mut engine, &mut host, &mut liar, &Seg { dies, ..Seg::new(ACK, seq, ack, b"") });
            }
        }
        let seg = if liar.random.percent(25) {
            liar.own.push(host.rcv_nxt);
            liar.lie(!server)
        } else {
            tell_truth(&mut liar, &host, mine, truth)
        };
        tell(&mut engine, &mut host, &mut liar, &seg);
    }
    host.taken
}

#[test]
fn a_server_reads_what_was_shown_whatever_came_around_the_handshake() {
    let read: Vec<usize> = (0..10_000).map(|seed| lie_to(seed, true)).collect();
    let some = read.iter().filter(|read| **read > 0).count();
    // Much is refused, but not everything: otherwise the test would compare nothing.
    assert!(some > 900, "only {some} servers have read anything");
}

#[test]
fn a_client_reads_what_was_shown_whatever_came_around_the_handshake() {
    let read: Vec<usize> = (0..10_000).map(|seed| lie_to(seed, false)).collect();
    let some = read.iter().filter(|read| **read > 0).count();
    assert!(some > 900, "only {some} clients have read anything");
}

/// The network between the engine and the hosts: loses, repeats and swaps segments.
fn disturb(random: &mut Random, percent: usize, segments: Vec<Seg>) -> Vec<Seg> {
    let mut out = Vec::new();
    for seg in segments {
        if random.percent(percent) {
            continue;
        }
        if random.percent(percent) {
            out.push(seg.clone());
        }
        out.push(seg);
    }
    if out.len() > 1 && random.percent(percent) {
        let at = random.below(out.len() - 1);
        out.swap(at, at + 1);
    }
    out
}

/// Lets two hosts talk through the engine until both are done. Returns the bytes that each has read, if they
/// are not.
fn talk(
    engine: &mut PreventionRig,
    client: &mut Host,
    server: &mut Host,
    random: &mut Random,
    bad: usize,
    seed: u64,
) {
    let fail = failing(seed);
    let pieces = (1 + random.below(30), 1 + random.below(30));
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    for _ in 0..400 {
        to_server.extend(client.speak(pieces.0));
        to_client.extend(server.speak(pieces.1));
        for (direction, segments) in
            [(ToServer, core::mem::take(&mut to_server)), (ToClient, core::mem::take(&mut to_client))]
        {
            let segments = disturb(random, bad, segments);
            let left = segments.iter().filter_map(|seg| engine.pass(direction, seg, &fail)).collect();
            for seg in disturb(random, bad, left) {
                let (host, back) = match direction {
                    ToServer => (&mut *server, &mut to_client),
                    ToClient => (&mut *client, &mut to_server),
                };
                let had = host.taken;
                back.extend(host.take(&seg));
                if host.taken > had {
                    engine.compare(direction, &host.read, &fail);
                }
            }
        }
        if client.is_done() && server.is_done() {
            break;
        }
    }
    if !(client.is_done() && server.is_done()) || client.read != server.out || server.read != client.out {
        fail(engine, &format!("not whole: client {:?}, server {:?}", client.at, server.at));
    }
}

#[test]
fn connections_of_honest_hosts_pass_whole() {
    for seed in 0..600u64 {
        let mut random = Random::new(seed);
        let bad = [0, 0, 5, 20][random.below(4)];
        let mut engine = PreventionRig::new(random.percent(50));
        let (question, answer) = (letters(&mut random, 200), letters(&mut random, 200));
        let mut server = Host::new(ModelHostState::Listen, random.draw() as u32, &answer);
        // A host that keeps nothing but a cookie cannot tolerate the loss of the handshake's ACK.
        (server.stamps, server.cookies) = (random.percent(50), bad == 0 && random.percent(50));
        for _ in 0..2 {
            // A SYN/ACK may carry data, of which a client accepts all, some or none.
            server.eager = [0, 0, 1, 40][random.below(4)];
            // The same ports twice: the second connection begins when the first is over.
            let mut client = Host::client(random.draw() as u32, &question);
            client.stamps = random.percent(50);
            (client.fast, client.takes) = (random.percent(60), [1, 7, usize::MAX][random.below(3)]);
            client.checks_echo = random.percent(50);
            talk(&mut engine, &mut client, &mut server, &mut random, bad, seed);
            if bad == 0 && engine.dropped > 0 {
                failing(seed)(&engine, "refused something of a clean connection");
            }
            let cookies = server.cookies;
            server = Host::new(ModelHostState::Listen, random.draw() as u32, &answer);
            (server.stamps, server.cookies) = (random.percent(50), cookies);
        }
    }
}

#[test]
fn a_client_that_has_forgotten_its_connection_opens_another() {
    for seed in 0..200u64 {
        let mut random = Random::new(seed);
        let fail = failing(seed);
        let (question, answer) = (letters(&mut random, 60), letters(&mut random, 60));
        let mut engine = PreventionRig::new(random.percent(50));
        let mut server = Host::new(ModelHostState::Listen, random.draw() as u32, &answer);
        let mut client = Host::client(random.draw() as u32, b"first");
        let stamps = [random.percent(50), random.percent(50)];
        (server.stamps, client.stamps) = (stamps[0], stamps[1]);
        // Up to the middle of a connection, without its end.
        for _ in 0..3 {
            for seg in client.speak(2) {
                let left = engine.pass(ToServer, &Seg { flags: seg.flags & !FIN, ..seg }, &fail);
                for back in left.map(|left| server.take(&left)).unwrap_or_default() {
                    if let Some(back) = engine.pass(ToClient, &back, &fail) {
                        for last in client.take(&back) {
                            if let Some(last) = engine.pass(ToServer, &last, &fail) {
                                server.take(&last);
                            }
                        }
                    }
                }
            }
        }
        assert_eq!(server.at, ModelHostState::Established);
        if random.percent(50) {
            // The engine has lost the session, too.
            engine = PreventionRig::new(random.percent(50));
        }
        // The server's process still exists, or accepts the next connection after the RST.
        let mut client = Host::client(random.draw() as u32, &question);
        client.stamps = stamps[1];
        let mut reset = false;
        for _ in 0..40 {
            for seg in client.speak(2) {
                let left = engine.pass(ToServer, &seg, &fail);
                for back in left.map(|left| server.take(&left)).unwrap_or_default() {
                    if let Some(back) = engine.pass(ToClient, &back, &fail) {
                        for last in client.take(&back) {
                            if let Some(last) = engine.pass(ToServer, &last, &fail) {
                                server.take(&last);
                            }
                        }
                    }
                }
            }
            if server.at == ModelHostState::Closed {
                reset = true;
                server = Host::new(ModelHostState::Listen, random.draw() as u32, &answer);
                server.stamps = stamps[0];
            }
            if client.at == ModelHostState::Established {
                break;
            }
        }
        if !reset || client.at != ModelHostState::Established {
            fail(&engine, "the client does not get its new connection");
        }
        talk(&mut engine, &mut client, &mut server, &mut random, 0, seed);
    }
}

/// Fast Open: the server drops its half-open connection upon a RST that the session does not believe, and
/// takes the retransmitted SYN for a new one. Its data must be the same bytes.
#[test]
fn a_syn_behind_a_reset_brings_the_bytes_that_were_inspected() {
    let fail = failing(0);
    for (fast, len) in [(true, 8), (false, 8), (true, 3), (true, 12)] {
        let mut engine = PreventionRig::new(false);
        let syn = |data: &[u8]| Seg { fast_open: fast, ..Seg::new(SYN, 100, 0, data) };
        engine.pass(ToServer, &syn(b"inspects"), &fail).expect("the first SYN");
        engine.pass(ToClient, &Seg::new(SYN | ACK, 500, 109, b""), &fail).expect("its answer");
        engine.pass(ToServer, &Seg::new(RST | ACK, 100, 501, b""), &fail).expect("a RST");
        let left = engine.pass(ToServer, &syn(&b"XXXXXXXXXXXX"[..len]), &fail).expect("the SYN again").data;
        assert!(left.starts_with(&b"inspects"[..len.min(8)]), "{fast}, {len}: {left:?}");
        engine.compare(ToServer, &left, &fail);
    }
}
