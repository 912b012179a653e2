// SPDX-License-Identifier: Apache-2.0
//! Bad fragments through a worker in live prevention to models of receivers: each datagram that one of them
//! builds from the frames that left was inspected as such, and was allowed. And good ones: all arrive.
//!
//! Per fragment: its datagram, offset and length, its fault, and a delay. Each fragment is filled with a byte
//! of its own, so two datagrams that differ in one of their fragments differ.

use crate::planted::planted;
use crate::receivers::{ALL, Datagram, LINUX, Receiver};
use crate::take::Take;
use bartizan_applayer::{file::FileSettings, flow::Engine};
use bartizan_base::{Decision, FunctionId, Generation, LinkId, Reason, Timestamp, Verdict};
use bartizan_dataplane::worker::{Frame, Worker};
use bartizan_function::{Function, FunctionModel, FunctionSpec, PacketContext};
use bartizan_packet::{LinkType, Network, PacketView};
use bartizan_stages::chain::Chains;
use bartizan_stages::record::{Recorder, RecorderEvent};
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit::packet::{self, Ip};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock, Mutex};

/// The receivers' hardware address.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Records the datagrams that are allowed, and refuses some.
struct Witness(Arc<Mutex<BTreeSet<Datagram>>>);

static SPEC: FunctionSpec = FunctionSpec {
    name: "witness",
    summary: "Writes down what it sees.",
    model: FunctionModel::StatefulHeaders,
    runs_after: &[],
    runs_before: &[],
    header_half: None,
    host_slot: None,
    counters: &[],
};

impl Function for Witness {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn id(&self) -> FunctionId {
        FunctionId(0)
    }

    fn packet(&self, context: &mut PacketContext<'_>) -> Decision {
        let Some(datagram) = context.facts.packet.and_then(datagram_of) else { return Decision::CONTINUE };
        if is_forbidden(&datagram.bytes) {
            return Decision::refuse(Verdict::Drop, Reason::PfwRule, FunctionId(0));
        }
        self.0.lock().expect("no panic before").insert(datagram);
        Decision::CONTINUE
    }
}

fn is_forbidden(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|byte| byte % 7 == 3)
}

/// The datagram that a receiver would deliver for a packet that the engine inspects.
fn datagram_of(view: &PacketView<'_>) -> Option<Datagram> {
    let packet = view.decoded();
    let at = packet.l3 as usize;
    let (v6, addresses, end, protocol) = match &packet.network {
        Network::Ipv4(ip) => (false, at + 12..at + 20, at + usize::from(ip.total_len), ip.proto),
        Network::Ipv6(ip) => (true, at + 8..at + 40, at + 40 + usize::from(ip.payload_len), ip.proto),
        _ => return None,
    };
    let addresses = view.frame().get(addresses)?.to_vec();
    let bytes = view.frame().get(packet.l4 as usize..end)?.to_vec();
    Some(Datagram { v6, addresses, protocol, bytes })
}

/// A recorder that keeps nothing and checks that each refusal has a reason.
struct Nobody;

impl Recorder for Nobody {
    fn record(&mut self, event: RecorderEvent<'_>) {
        if let RecorderEvent::Refused { verdict: fate, .. } = event {
            assert!(fate.decision.reason.is_some(), "a refusal without a reason");
        }
    }
}

static SETTINGS: LazyLock<(EngineSettings, Arc<Engine>)> = LazyLock::new(|| {
    let settings = bartizan_config::suricata::shipped();
    let (mut engine, _) =
        EngineSettings::from_settings(&settings, true, [3, 4]).expect("the shipped settings");
    engine.flow_capacity = 64;
    engine.defrag.memory = 1 << 20;
    engine.defrag.max_trackers = 64;
    let applayer = Engine::new(&settings, FileSettings::default()).expect("the shipped settings");
    (engine.for_real_receivers(true), Arc::new(applayer))
});

/// The engine between sender and receivers.
struct Link {
    worker: Worker,
    inspected: Arc<Mutex<BTreeSet<Datagram>>>,
    /// The numbers of frames received, and of those that left.
    sent: u64,
    left: u64,
}

impl Link {
    fn new() -> Self {
        let inspected: Arc<Mutex<BTreeSet<Datagram>>> = Arc::default();
        let (settings, engine) = &*SETTINGS;
        let chains = Chains::one(Generation(1), vec![Arc::new(Witness(Arc::clone(&inspected)))]);
        let worker = Worker::new(settings.clone(), Arc::clone(engine), Arc::new(chains)).expect("room");
        Link { worker, inspected, sent: 0, left: 0 }
    }

    /// Sends a frame at a time in milliseconds; returns the frames that leave then.
    fn frame(&mut self, bytes: &[u8], millis: u64) -> Vec<Vec<u8>> {
        let frame = Frame {
            now: Timestamp::from_nanos(millis * 1_000_000),
            bytes,
            wire_len: bytes.len() as u32,
            link_type: LinkType::ETHERNET,
            link: LinkId(0),
            number: None,
        };
        self.sent += 1;
        let decision = self.worker.frame(&frame, &mut Nobody);
        let (mut held, mut left) = (Vec::new(), Vec::new());
        while self.worker.take_released(&mut held).is_some() {
            left.push(held.clone());
        }
        if decision.is_some_and(|decision| decision.verdict.forwards()) {
            left.push(bytes.to_vec());
        }
        assert!(decision.is_some_and(|d| d.verdict.forwards()) || left.is_empty());
        self.left += left.len() as u64;
        left
    }

    /// Checks that every frame has left, or was refused with a reason.
    fn end(mut self) {
        self.worker.shutdown(&mut Nobody);
        let counters = self.worker.counters();
        assert_eq!(counters.packets, self.sent);
        assert_eq!(counters.forwarded, self.left);
        assert_eq!(counters.packets, counters.forwarded + counters.refused.iter().sum::<u64>());
    }
}

/// A fragment, or a whole packet (offset 0, nothing more).
#[derive(Clone, Debug)]
struct Sent {
    v6: bool,
    id: u32,
    protocol: u8,
    offset: usize,
    more: bool,
    data: Vec<u8>,
    /// Its fault: see [`Sent::frame`].
    wrong: u8,
}

/// Kinds of [`Sent::wrong`], 0 for none; those of one IP version have no effect in the other.
const WRONGS: u8 = 26;

impl Sent {
    fn frame(&self) -> Vec<u8> {
        let address = |host: u8| match self.v6 {
            true => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(host)]),
            false => packet::address(false, host),
        };
        let mut ip = Ip::new(address(1), address(2), self.protocol);
        (ip.mac, ip.from_mac, ip.id) = (MAC, [2, 0, 0, 0, 0, 1], self.id);
        match self.wrong {
            1 => ip.mac[5] = 9,
            // Another sender's address, which is no fault.
            2 => ip.from_mac[5] = 9,
            3 => ip.tags.push(0),
            4 => ip.tags.push(5),
            _ => {}
        }
        let hops = if self.wrong == 5 { 3 } else { 64 };
        let mut ecn = match self.wrong {
            6 => 3,
            7 => 2,
            _ => 0,
        };
        if self.wrong == 8 {
            // Another code point, which is no fault.
            ecn |= 0x28;
        }
        (ip.ttl, ip.tos) = (hops, ecn);
        let mut frame = if self.v6 { self.ipv6(ip) } else { self.ipv4(ip) };
        // Padding, as in short frames.
        if self.wrong == 9 {
            frame.extend([0; 6]);
        }
        frame
    }

    fn ipv4(&self, mut ip: Ip) -> Vec<u8> {
        let options: &[u8] = match self.wrong {
            10 => &[7, 7, 3, 0, 0, 0, 0, 0],
            11 => &[0x83, 7, 4, 10, 0, 0, 9, 0],
            12 => &[0x89, 7, 4, 10, 0, 0, 9, 0],
            13 => &[7, 0, 0, 0],
            14 => &[0x94, 4, 0, 0],
            15 => &[7, 7, 4, 0, 0, 0, 0, 0],
            16 => &[1, 1, 1, 0],
            17 => &[0x44, 40, 5, 0],
            _ => &[],
        };
        ip.options = options.to_vec();
        let flags = match self.wrong {
            18 => 2,
            19 => 4,
            _ => 0,
        };
        ip.fixed.flags = Some(flags | u8::from(self.more));
        ip.fixed.frag = Some((self.offset / 8) as u16);
        if self.wrong == 20 {
            ip.fixed.len = Some((28 + options.len() + self.data.len()) as u16);
        }
        let mut frame = ip.frame(&self.data, None);
        if self.wrong == 21 {
            let sum = 14 + ip.tags.len() * 4 + 10;
            frame[sum] ^= 1;
            frame[sum + 1] ^= 1;
        }
        frame
    }

    fn ipv6(&self, mut ip: Ip) -> Vec<u8> {
        let routing = |kind: u8| [&[44, 2, kind, 1, 0, 0, 0, 0][..], &[0xfd; 16]].concat();
        let (first, extensions) = match self.wrong {
            10 => (0, vec![44, 0, 0x80, 4, 0, 0, 0, 0]),
            11 => (60, vec![44, 0, 0xc0, 4, 0, 0, 0, 0]),
            12 => (43, routing(0)),
            13 => (43, routing(2)),
            14 => (60, vec![0, 0, 1, 4, 0, 0, 0, 0, 44, 0, 1, 4, 0, 0, 0, 0]),
            15 => (60, vec![44, 0, 7, 9, 0, 0, 0, 0]),
            16 => (0, vec![44, 0, 5, 2, 0, 0, 1, 0]),
            17 => (0, vec![44, 0, 0xc2, 4, 0, 1, 0, 0]),
            // A fragment header before this one, of an unfragmented datagram.
            18 => (44, vec![44, 0, 0, 0, 0, 0, 0, 3]),
            _ => (44, vec![]),
        };
        let whole = self.offset == 0 && !self.more && self.wrong != 19;
        let mut rest = extensions;
        if !whole {
            let mut field = self.offset as u16 | u16::from(self.more);
            let mut protocol = self.protocol;
            match self.wrong {
                20 => field |= 4,
                22 => protocol = 60,
                _ => {}
            }
            rest.extend([protocol, u8::from(self.wrong == 23)]);
            rest.extend(field.to_be_bytes());
            rest.extend(self.id.to_be_bytes());
        }
        rest.extend(&self.data);
        if self.wrong == 24 {
            ip.fixed.len = Some(8 + rest.len() as u16);
        }
        ip.protocol = if whole { self.protocol } else { first };
        ip.frame(&rest, None)
    }
}

/// Sends bad fragments, and compares the datagrams that receivers build with the inspected ones.
pub fn run(data: &[u8]) {
    let mut take = Take(data);
    let mut link = Link::new();
    let mut receivers: Vec<Receiver> = ALL.iter().map(|(_, habits)| Receiver::new(*habits, MAC)).collect();
    // Two more receivers, which lose frames on the way.
    let losses = u64::from(take.long());
    for _ in 0..2 {
        let mut receiver = Receiver::new(LINUX, MAC);
        receiver.losses = losses.rotate_left(receivers.len() as u32);
        receivers.push(receiver);
    }
    let (mut millis, mut fill) = (1_000u64, 0u8);
    while !take.is_empty() {
        let (which, place, wrong) = (take.byte(), take.byte(), take.byte());
        // Most follow at once; some after the timeouts of receivers.
        millis += [1, 1, 1, 1, 1, 500, 31_000, 61_000][usize::from(wrong >> 5)];
        let sent = Sent {
            v6: which & 1 == 1,
            id: 5 + u32::from(which >> 1 & 1),
            protocol: if which & 0x1c == 0x1c { 99 } else { 50 },
            offset: usize::from(place & 7) * 8,
            more: place & 8 == 0,
            data: vec![0; (1 + usize::from(place >> 4 & 3)) * 8 + usize::from(which >> 5 == 7)],
            wrong: if wrong & 0x1f < 16 { 0 } else { take.byte() % WRONGS },
        };
        // The fragment alone, or in a whole datagram: the tail, the head as it is (perhaps wrong), a good
        // head.
        let mut all = vec![sent.clone()];
        if place >> 6 != 0 {
            let head = Sent { offset: 0, more: true, data: vec![0; 16], ..sent };
            let tail = Sent { offset: 16, more: false, data: vec![0; 8], wrong: 0, ..head.clone() };
            all = if head.wrong == 0 {
                vec![tail, head]
            } else {
                vec![tail, head.clone(), Sent { wrong: 0, ..head }]
            };
        }
        for mut sent in all {
            fill = fill.wrapping_add(1);
            sent.data.fill(fill);
            // A whole packet with unreadable options is no IP to the engine, and leaves; no common receiver
            // accepts it.
            if !sent.v6 && sent.offset == 0 && !sent.more && matches!(sent.wrong, 13 | 17) {
                sent.wrong = 0;
            }
            for frame in link.frame(&sent.frame(), millis) {
                for (at, receiver) in receivers.iter_mut().enumerate() {
                    let Some(built) = receiver.take(&frame, millis / 1_000) else { continue };
                    let inspected = link.inspected.lock().expect("no panic before");
                    let name = ALL.get(at).map_or("lossy", |(name, _)| name);
                    assert!(inspected.contains(&built), "{name} reads what was not inspected: {built:x?}");
                    planted(fill > 12 && built.bytes.len() > 64);
                }
            }
        }
    }
    link.end();
}

/// Sends good datagrams, each in fragments of random size and order, with fragments of others between them:
/// all arrive at all receivers that accept good ones. `random` returns the numbers.
pub fn good(mut random: impl FnMut(usize) -> usize) {
    let mut link = Link::new();
    let mut receivers: Vec<(&str, Receiver)> = ALL
        .iter()
        .filter(|(name, _)| *name != "behind a smaller link")
        .map(|(n, h)| (*n, Receiver::new(*h, MAC)))
        .collect();
    let mut wanted = BTreeSet::new();
    let mut queue: Vec<Sent> = Vec::new();
    for id in 0..1 + random(8) as u32 {
        let v6 = random(2) == 1;
        let most = [100, 3_000, 60_000][random(3)];
        let length = 17 + random(most);
        // So that all differ, and none is forbidden.
        let mut bytes: Vec<u8> = (0..length).map(|_| random(256) as u8).collect();
        bytes[0] = 7 * (id as u8);
        let size = if length > 5_000 { 1_232 } else { 8 * (1 + random(160)) };
        let addresses = if v6 {
            [&[0xfd][..], &[0; 14], &[1, 0xfd], &[0; 14], &[2]].concat()
        } else {
            vec![10, 0, 0, 1, 10, 0, 0, 2]
        };
        wanted.insert(Datagram { v6, addresses, protocol: 50, bytes: bytes.clone() });
        let count = length.div_ceil(size);
        // The differences that good senders and paths cause.
        let harmless = [0, 2, 8, 9][random(4)];
        let mut parts: Vec<Sent> = bytes
            .chunks(size)
            .enumerate()
            .map(|(n, data)| Sent {
                v6,
                id,
                protocol: 50,
                offset: n * size,
                more: n + 1 < count,
                data: data.to_vec(),
                wrong: if random(3) == 0 { harmless } else { 0 },
            })
            .collect();
        match random(4) {
            0 => parts.reverse(),
            1 => {
                for at in (1..parts.len()).rev() {
                    parts.swap(at, random(at + 1));
                }
            }
            _ => {}
        }
        // Some come twice.
        if random(3) == 0 {
            let at = random(parts.len());
            let again = parts[at].clone();
            parts.push(again);
        }
        // Between the others, each in its own order.
        let mut mixed = Vec::with_capacity(queue.len() + parts.len());
        let (mut a, mut b) = (queue.into_iter().peekable(), parts.into_iter().peekable());
        while a.peek().is_some() || b.peek().is_some() {
            let first = b.peek().is_none() || a.peek().is_some() && random(2) == 0;
            mixed.extend(if first { a.next() } else { b.next() });
        }
        queue = mixed;
    }
    let mut built: Vec<BTreeSet<Datagram>> = vec![BTreeSet::new(); receivers.len()];
    for (n, sent) in (0u64..).zip(&queue) {
        for frame in link.frame(&sent.frame(), 1_000 + n) {
            for ((_, receiver), built) in receivers.iter_mut().zip(&mut built) {
                built.extend(receiver.take(&frame, 1));
            }
        }
    }
    for ((name, _), built) in receivers.iter().zip(&built) {
        assert_eq!(built.len(), wanted.len(), "{name}");
        assert!(*built == wanted, "{name}");
    }
    link.end();
}
