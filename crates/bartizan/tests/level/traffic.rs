// SPDX-License-Identifier: Apache-2.0
//! Random traffic through a link as fast as the link takes it; every frame is counted by its sender and by
//! its receiver.
//!
//! The sender waits for frames that have to arrive: at most as many are under way as every queue between
//! two ends has room for. So no frame is lost for want of room, however fast or slow the machine is, and
//! each missing frame was refused or lost by the program.

use crate::common::{address, get};
use bartizan_ports::{Batch, InlinePort, Port};
use bartizan_testkit::packet::{self, ACK, FIN, RST, SYN};
use bartizan_testkit::random::Random;
use std::time::{Duration, Instant};

/// The port that a client's flow has, by the flow's number.
pub const FIRST_PORT: u16 = 10_000;
/// The most frames of one side under way that have to arrive. A virtual Ethernet pair has room for 256
/// frames; as many again under way need not arrive.
const UNDER_WAY: u64 = 96;
/// Frames passed to the kernel at once.
const BURST: usize = 32;
/// The lengths of a flow's payloads, in each direction.
const LENGTHS: usize = 4;
/// The longest payload.
const LONGEST: usize = 700;
/// The most bytes under way of a connection: within any window.
const IN_WINDOW: u32 = 10_000;
/// The time limit for a frame that has to arrive.
const PATIENCE: Duration = Duration::from_secs(20);

/// The expected handling of a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Each packet passes.
    Passes,
    /// No packet passes.
    Refused,
    /// As the present policy says.
    Depends,
}

/// The sequence of a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Datagrams, in both directions.
    Datagrams,
    /// A connection that lives as long as the test.
    Connection,
    /// Connections of the same ports, one after the other, each with an orderly end.
    Connections,
}

/// Flows of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Flows {
    pub kind: Kind,
    pub fate: Fate,
    /// The number of the host that begins them; the other one is 2.
    pub client: u8,
    /// The port of the other host.
    pub port: u16,
    pub count: u16,
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub packets: u64,
    pub bytes: u64,
}

impl Sum {
    pub const fn add(&mut self, other: Sum) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }

    const fn one(&mut self, bytes: usize) {
        self.add(Sum { packets: 1, bytes: bytes as u64 });
    }
}

/// The state of the connections of the same ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Closed,
    Opening,
    Answered,
    Open,
    /// A side has closed.
    Half(usize),
    /// The other side has closed, too.
    Last(usize),
}

/// A flow, and the counts of its frames. Side 0 is the client.
pub struct Flow {
    pub kind: Kind,
    pub fate: Fate,
    pub v6: bool,
    /// The frames that each side has sent, and those that have arrived at the other end.
    pub sent: [Sum; 2],
    pub arrived: [Sum; 2],
    /// Templates of each side's frames by length; segments have the numbers 0.
    frames: [Vec<Vec<u8>>; 2],
    ends: [packet::End; 2],
    course: Course,
    /// For connections, of each side: the next number, the number that the other side has received up to,
    /// and the number that it has acknowledged up to.
    next: [u32; 2],
    read: [u32; 2],
    acknowledged: [u32; 2],
    /// The frame that has to arrive before the connection goes on or is abandoned.
    awaited: Option<(usize, u64)>,
    idle: u32,
}

impl Flow {
    fn new(flows: &Flows, number: u16, v6: bool, random: &mut Random) -> Self {
        let ends = [(address(v6, flows.client), FIRST_PORT + number), (address(v6, 2), flows.port)];
        let load = |random: &mut Random| vec![b'x'; random.below(LONGEST)];
        let frame = |side: usize, load: &[u8]| match flows.kind {
            Kind::Datagrams => packet::udp(ends[side], ends[1 - side], load).frame(),
            _ => packet::tcp(ends[side], ends[1 - side], (0, 0), ACK as u8, load).frame(),
        };
        let frames = [0, 1].map(|side| (0..LENGTHS).map(|_| frame(side, &load(random))).collect());
        let start = [random.draw() as u32, random.draw() as u32];
        Flow {
            kind: flows.kind,
            fate: flows.fate,
            v6,
            sent: Default::default(),
            arrived: Default::default(),
            frames,
            ends,
            course: Course::Closed,
            next: start,
            read: start,
            acknowledged: start,
            awaited: None,
            idle: 0,
        }
    }

    const fn transport(&self) -> usize {
        if self.v6 { 54 } else { 34 }
    }

    /// The payload of a segment that has no options.
    const fn load(&self, frame: &[u8]) -> u32 {
        (frame.len() - self.transport() - 20) as u32
    }

    /// A segment of a side with these flags, this acknowledgement and no payload.
    fn bare(&mut self, side: usize, flags: u16, acknowledged: u32) -> Vec<u8> {
        let numbers = (self.next[side], if flags & ACK > 0 { acknowledged } else { 0 });
        self.next[side] = self.next[side].wrapping_add(u32::from(flags & (SYN | FIN) > 0));
        packet::tcp(self.ends[side], self.ends[1 - side], numbers, flags as u8, b"").frame()
    }

    /// A segment with data of a side, or a bare acknowledgement if too much is under way.
    fn data(&mut self, side: usize, random: &mut Random) -> Vec<u8> {
        let under_way = self.next[side].wrapping_sub(self.acknowledged[side]);
        let mut frame = random.pick(&self.frames[side]).clone();
        let (sequence, acknowledged) = (self.next[side], self.read[1 - side]);
        if under_way > IN_WINDOW {
            return self.bare(side, ACK, acknowledged);
        }
        let at = self.transport();
        frame[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
        frame[at + 8..at + 12].copy_from_slice(&acknowledged.to_be_bytes());
        let old = u16::from_be_bytes([frame[at + 16], frame[at + 17]]);
        frame[at + 16..at + 18].copy_from_slice(&summed(old, [sequence, acknowledged]).to_be_bytes());
        self.next[side] = self.next[side].wrapping_add(self.load(&frame));
        frame
    }

    /// The next frame and its side; none while another frame has to arrive first.
    fn frame(&mut self, random: &mut Random) -> Option<(usize, Vec<u8>)> {
        let mut side = random.below(2);
        if self.kind == Kind::Datagrams {
            // The client begins, and what it has sent has been judged.
            side *= usize::from(
                self.arrived[0].packets > 0 || self.fate != Fate::Passes && self.sent[0].packets > 8,
            );
            return Some((side, random.pick(&self.frames[side]).clone()));
        }
        if self.awaited.is_some_and(|(of, arrived)| self.arrived[of].packets < arrived) {
            self.idle += 1;
            // It was refused, as a connection that a reload has come between may be.
            if self.idle > 300 && self.kind == Kind::Connections {
                (self.awaited, self.idle, self.course) = (None, 0, Course::Closed);
            }
            return None;
        }
        (self.awaited, self.idle) = (None, 0);
        if self.kind == Kind::Connection && self.course == Course::Open {
            return Some((side, self.data(side, random)));
        }
        let (side, frame) = self.step(side, random);
        // Nothing else of this side is under way.
        self.awaited = Some((side, self.arrived[side].packets + 1));
        Some((side, frame))
    }

    /// A connection's next step.
    fn step(&mut self, side: usize, random: &mut Random) -> (usize, Vec<u8>) {
        let (side, flags, next) = match self.course {
            Course::Closed => {
                self.next = [random.draw() as u32, random.draw() as u32];
                self.read = [self.next[0].wrapping_add(1), self.next[1].wrapping_add(1)];
                self.acknowledged = self.read;
                (0, SYN, Course::Opening)
            }
            Course::Opening => (1, SYN | ACK, Course::Answered),
            Course::Answered => (0, ACK, Course::Open),
            Course::Open if random.below(400) == 0 => (side, RST | ACK, Course::Closed),
            Course::Open if random.percent(3) => (side, FIN | ACK, Course::Half(side)),
            Course::Open => return (side, self.data(side, random)),
            Course::Half(side) => (1 - side, FIN | ACK, Course::Last(side)),
            Course::Last(side) => (side, ACK, Course::Closed),
        };
        self.course = next;
        (side, self.bare(side, flags, self.next[1 - side]))
    }

    /// Takes a frame of a side that has arrived.
    fn take(&mut self, side: usize, frame: &[u8]) {
        self.arrived[side].one(frame.len());
        if self.kind != Kind::Datagrams {
            let at = self.transport();
            let number = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
            let forward = |to: &mut u32, number: u32| {
                if number.wrapping_sub(*to) < 1 << 30 {
                    *to = number;
                }
            };
            let end = number(at + 4).wrapping_add(self.load(frame));
            forward(&mut self.read[side], end);
            forward(&mut self.acknowledged[1 - side], number(at + 8));
        }
    }
}

/// The far ends merge segments that follow each other and have the same header (GRO, which they need for
/// polling): every second frame has another time to live, or class.
fn unlike_the_last(frame: &mut [u8]) {
    if frame[12..14] == [0x86, 0xdd] {
        frame[15] ^= 0x40;
        return;
    }
    frame[22] -= 1;
    let sum = u32::from(u16::from_be_bytes([frame[24], frame[25]])) + 0x100;
    frame[24..26].copy_from_slice(&(((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
}

/// The checksum after words of 0 have got values (RFC 1624).
pub fn summed(old: u16, words: [u32; 2]) -> u16 {
    let mut sum = u32::from(!old);
    for word in words {
        sum += (word >> 16) + (word & 0xffff);
    }
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

/// The traffic between the two ends of a link.
pub struct Traffic {
    pub flows: Vec<Flow>,
    ports: [InlinePort; 2],
    batch: Batch,
    random: Random,
    /// Frames of each side that still have to arrive.
    under_way: [u64; 2],
    /// Flows with much traffic, from this one on; all, if there are none.
    busy: Option<(usize, usize)>,
}

impl Traffic {
    pub fn new(ports: [InlinePort; 2], seed: u64, kinds: &[Flows]) -> Self {
        let mut random = Random::new(seed);
        let of = kinds.iter().flat_map(|flows| (0..flows.count).map(move |_| flows));
        let flows = of
            .zip(0u16..)
            .map(|(flows, number)| Flow::new(flows, number, number % 2 == 1, &mut random))
            .collect();
        let batch = Batch::with_capacity(256);
        Traffic { flows, ports, batch, random, under_way: [0; 2], busy: None }
    }

    /// So many flows from one on send fifty times as much as the others.
    pub const fn favour(&mut self, first: usize, count: usize) {
        self.busy = Some((first, count));
    }

    /// Makes all flows send equally again.
    pub const fn favour_none(&mut self) {
        self.busy = None;
    }

    /// Takes what has come to both ends.
    fn take(&mut self) {
        for at in 0..2 {
            let side = 1 - at;
            loop {
                self.ports[at].receive(&mut self.batch).unwrap();
                for frame in self.batch.indices().filter_map(|index| self.batch.bytes(index)) {
                    let Some(number) = flow_of(frame, side) else { continue };
                    let Some(flow) = self.flows.get_mut(number) else { continue };
                    flow.take(side, frame);
                    if flow.fate == Fate::Passes {
                        self.under_way[side] = self.under_way[side]
                            .checked_sub(1)
                            .unwrap_or_else(|| panic!("flow {number}: something came twice"));
                    }
                }
                if self.batch.is_empty() {
                    break;
                }
            }
        }
    }

    /// One burst of frames.
    pub fn step(&mut self) {
        for _ in 0..BURST {
            let number = match self.busy {
                Some((first, count)) if !self.random.percent(2) => {
                    (first + self.random.below(count)) % self.flows.len()
                }
                _ => self.random.below(self.flows.len()),
            };
            let flow = &mut self.flows[number];
            let Some((side, mut frame)) = flow.frame(&mut self.random) else { continue };
            if flow.sent[side].packets.is_multiple_of(2) {
                unlike_the_last(&mut frame);
            }
            self.ports[side].transmit_frame(&frame).unwrap();
            flow.sent[side].one(frame.len());
            self.under_way[side] += u64::from(flow.fate == Fate::Passes);
        }
        for port in &mut self.ports {
            port.flush().unwrap();
            assert_eq!(port.pending(), 0, "the kernel takes what is sent");
        }
        self.take();
        self.wait(UNDER_WAY);
    }

    /// Waits until only so many frames of each side still have to arrive.
    fn wait(&mut self, left: u64) {
        let begun = Instant::now();
        while self.under_way.iter().any(|under_way| *under_way > left) {
            std::hint::spin_loop();
            self.take();
            assert!(
                begun.elapsed() < PATIENCE,
                "{:?} do not arrive: {}\n{}",
                self.under_way,
                self.missing(),
                refusals()
            );
        }
    }

    /// Describes flows with frames that have not arrived.
    fn missing(&self) -> String {
        let missing = self.flows.iter().zip(0..).filter(|(flow, _)| {
            flow.fate == Fate::Passes && (0..2).any(|side| flow.arrived[side] != flow.sent[side])
        });
        let shown = missing.take(8).map(|(flow, number)| {
            format!("{number} {:?} {:?} {:?} of {:?}", flow.kind, flow.course, flow.arrived, flow.sent)
        });
        shown.collect::<Vec<_>>().join("; ")
    }

    /// Goes on until `holds` is true.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            for _ in 0..16 {
                self.step();
            }
            assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        }
    }

    /// Goes on for so many frames of each flow, on average.
    pub fn go_on(&mut self, frames: usize) {
        let end = self.sent().packets + (frames * self.flows.len()) as u64;
        while self.sent().packets < end {
            self.step();
        }
    }

    /// Waits until all frames have arrived that have to, and the others as far as they get.
    pub fn settle(&mut self) {
        self.wait(0);
        let mut last = (self.arrived(), Instant::now());
        while last.1.elapsed() < Duration::from_millis(300) {
            self.take();
            if self.arrived() != last.0 {
                last = (self.arrived(), Instant::now());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn all(&self, of: impl Fn(&Flow) -> [Sum; 2]) -> Sum {
        let mut all = Sum::default();
        self.flows.iter().flat_map(of).for_each(|sum| all.add(sum));
        all
    }

    /// The sum of the frames that both sides have sent.
    pub fn sent(&self) -> Sum {
        self.all(|flow| flow.sent)
    }

    /// The sum of the frames that have arrived.
    pub fn arrived(&self) -> Sum {
        self.all(|flow| flow.arrived)
    }
}

/// The program's metrics of refused and lost packets.
fn refusals() -> String {
    let page = get("/metrics");
    let told =
        ["bartizan_decisions_total", "bartizan_port_dropped_total", "bartizan_stats{name=\"ips.drop_reason"];
    let lines =
        page.lines().filter(|line| told.iter().any(|name| line.starts_with(name)) && !line.ends_with(" 0"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The number of a frame's flow, sent by a side. `None` for a frame that this test has not sent.
pub fn flow_of(frame: &[u8], side: usize) -> Option<usize> {
    let at = match frame.get(12..14)? {
        [8, 0] => 34,
        [0x86, 0xdd] => 54,
        _ => return None,
    };
    let port = frame.get(at + 2 * side..at + 2 * side + 2)?;
    u16::from_be_bytes([port[0], port[1]]).checked_sub(FIRST_PORT).map(usize::from)
}
