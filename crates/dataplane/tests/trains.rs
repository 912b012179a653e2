// SPDX-License-Identifier: Apache-2.0
//! Trains: whether functions see segments of a batch together or one by one, the same frames leave, the same
//! bytes are inspected and the counters are equal; and a refusal of a train's bytes refuses all its segments.

use crate::common;

use bartizan_base::{Decision, Direction, FunctionId, Generation, Reason, Timestamp, Verdict, WorkerId};
use bartizan_dataplane::handover::{Handled, connect};
use bartizan_dataplane::worker::{Worker, WorkerCounters};
use bartizan_flow::{FlowKey, FlowScope};
use bartizan_function::{Function, FunctionModel, FunctionSpec, PacketContext, Together};
use bartizan_stages::chain::Chains;
use bartizan_stages::moving::NotMoved;
use bartizan_stages::train;
use common::{Bench, Captured, Nothing, bench, ethernet, ip, spec, tcp};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
const SYN: u8 = 0x02;
const FIN: u8 = 0x01;

/// Inputs of the payload function: the stream of each client port and direction, and the number of calls.
#[derive(Default)]
struct Seen {
    streams: HashMap<(u16, bool), Vec<u8>>,
    /// Calls with a packet, by the packet's sequence number.
    packets: Vec<u32>,
    calls: usize,
    /// Acknowledgements without data that were shown.
    bare: usize,
}

/// Writes down streams; refuses the flow whose stream says `evil`, and the packet that says `worse`.
struct Reader {
    together: Together,
    seen: Arc<Mutex<Seen>>,
}

static READER: FunctionSpec = spec("reader", FunctionModel::Payload);
static GUARD: FunctionSpec = spec("guard", FunctionModel::StatefulHeaders);

fn says(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|w| w == word)
}

impl Function for Reader {
    fn spec(&self) -> &'static FunctionSpec {
        &READER
    }

    fn id(&self) -> FunctionId {
        FunctionId(1)
    }

    fn together(&self) -> Together {
        self.together
    }

    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        let mut seen = self.seen.lock().unwrap();
        seen.calls += 1;
        let refuse =
            |done| Decision { done, ..Decision::refuse(Verdict::Drop, Reason::IdsRule, FunctionId(1)) };
        let packet = context.facts.packet.filter(|_| !context.facts.again);
        if let Some(packet) = packet
            && let bartizan_packet::TransportLayer::Tcp(tcp) = &packet.decoded().transport
        {
            seen.packets.push(tcp.seq);
            seen.bare += usize::from(packet.payload().is_empty() && tcp.flags.bits() == ACK);
        }
        let news = context.facts.stream.as_ref().filter(|news| !news.about_packet);
        if let (Some(news), Some(flow)) = (news, &context.facts.flow) {
            let to_server = context.facts.direction == Direction::ToServer;
            let stream = seen.streams.entry((flow.client.1, to_server)).or_default();
            let start = news.offset as usize + news.seen;
            assert!(start >= stream.len(), "bytes are shown twice");
            // A hole stays visible.
            stream.resize(start, 0);
            stream.extend_from_slice(&news.bytes[news.seen..]);
            if says(news.bytes, b"evil") {
                return refuse(true);
            }
        }
        let worse = packet.is_some_and(|packet| says(packet.payload(), b"worse"));
        if worse { refuse(false) } else { Decision::CONTINUE }
    }
}

/// Refuses packets whose payload begins with `no`.
struct Guard;

impl Function for Guard {
    fn spec(&self) -> &'static FunctionSpec {
        &GUARD
    }

    fn id(&self) -> FunctionId {
        FunctionId(0)
    }

    fn packet(&self, context: &mut PacketContext<'_>) -> Decision {
        if context.facts.packet.is_some_and(|p| p.payload().starts_with(b"no")) {
            return Decision::refuse(Verdict::Drop, Reason::PfwRule, FunctionId(0));
        }
        Decision::CONTINUE
    }
}

struct Run {
    /// By frame: whether it leaves.
    leaves: Vec<bool>,
    seen: Seen,
    counters: WorkerCounters,
    /// Frames that waited.
    waited: usize,
}

fn worker(bench: &Bench, together: Together) -> (Worker, Arc<Mutex<Seen>>) {
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let reader = Reader { together, seen: Arc::clone(&seen) };
    let chains = Arc::new(Chains::one(Generation(1), vec![Arc::new(Guard), Arc::new(reader)]));
    let worker = Worker::new(bench.engine_settings.clone(), Arc::clone(&bench.engine), chains).unwrap();
    (worker, seen)
}

/// Hands a worker frames as a batch; `joined`: with word of what follows.
fn run(bench: &Bench, frames: &[Captured], together: Together, joined: bool, station: bool) -> Run {
    let (worker, seen) = worker(bench, together);
    let mut leaves = vec![false; frames.len()];
    let mut waited = 0;
    let mut stations = connect(vec![worker], &bench.engine_settings, 16);
    let at = &mut stations[0];
    for (index, frame) in frames.iter().enumerate() {
        let next = frames.get(index + 1);
        let follows = joined && next.is_some_and(|next| train::follows(&frame.bytes, &next.bytes));
        let frame = frame.frame(index as u64 + 1);
        let decision = if station {
            at.frame_in_batch(&frame, 0, follows, &mut Nothing).map(|handled| match handled {
                Handled::Here(decision) => decision,
                Handled::Away(_) | Handled::Held => panic!("there is nobody else, and no fragment"),
            })
        } else {
            at.worker_mut().frame_in_batch(&frame, follows, &mut Nothing)
        };
        let worker = at.worker_mut();
        let Some(decision) = decision else {
            assert_eq!(worker.waiting(), 0, "nothing is decided yet");
            waited += 1;
            continue;
        };
        leaves[index] = decision.verdict.forwards();
        for before in index - worker.waiting()..index {
            let frame = frames[before].frame(before as u64 + 1);
            leaves[before] = worker.release(&frame, &mut Nothing).verdict.forwards();
        }
        assert_eq!(worker.waiting(), 0);
    }
    let worker = at.worker_mut();
    let counters = *worker.counters();
    worker.shutdown(&mut Nothing);
    let refused: u64 = counters.refused.iter().sum();
    assert_eq!(counters.packets, frames.len() as u64);
    assert_eq!(counters.forwarded + refused, counters.packets, "every frame has one place");
    assert_eq!(counters.forwarded, leaves.iter().filter(|l| **l).count() as u64);
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    Run { leaves, seen, counters, waited }
}

/// A connection's next segment.
#[derive(Clone, Debug)]
enum Step {
    /// This number of consecutive full segments.
    Full(usize),
    /// A segment of that length.
    Some(usize),
    /// The one before once more.
    Again,
    /// Two in the wrong order.
    Swapped,
    /// The other side acknowledges.
    Acknowledge,
    /// Says it in the middle of full segments.
    Word(&'static [u8]),
    /// Another connection speaks.
    Other,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1usize..12).prop_map(Step::Full),
        2 => (1usize..1400).prop_map(Step::Some),
        1 => Just(Step::Again),
        1 => Just(Step::Swapped),
        3 => Just(Step::Acknowledge),
        2 => Just(Step::Other),
    ];
    prop::collection::vec(step, 1..30)
}

struct Script {
    frames: Vec<Captured>,
    ports: (u16, u16),
    seq: u32,
    sent: Vec<u8>,
    v6: bool,
}

impl Script {
    fn push(&mut self, from_client: bool, seq: u32, ack: u32, flags: u8, payload: &[u8]) {
        let (ends, ports) =
            if from_client { ((1, 9), self.ports) } else { ((9, 1), (self.ports.1, self.ports.0)) };
        let mut segment = tcp(ports, seq, ack, flags, payload);
        // The largest window without scaling.
        segment[14..16].fill(0xff);
        let bytes = ethernet(self.v6, &ip(self.v6, ends, 6, &segment));
        let now = Timestamp::from_nanos(self.frames.len() as u64 * 1000 + 1);
        self.frames.push(Captured { now, bytes });
    }

    fn open(port: u16, v6: bool) -> Self {
        let mut script = Script { frames: Vec::new(), ports: (port, 7), seq: 101, sent: Vec::new(), v6 };
        script.push(true, 100, 0, SYN, b"");
        script.push(false, 500, 101, SYN | ACK, b"");
        script.push(true, 101, 501, ACK, b"");
        script
    }

    fn segment(&mut self, payload: &[u8]) {
        let flags = if payload.len().is_multiple_of(5) { ACK | PSH } else { ACK };
        self.push(true, self.seq, 501, flags, payload);
        self.seq += payload.len() as u32;
        self.sent.extend_from_slice(payload);
    }

    fn fill(&self, len: usize) -> Vec<u8> {
        (0..len).map(|n| b'a' + ((self.sent.len() + n) * 7 % 23) as u8).collect()
    }

    fn play(&mut self, steps: &[Step], other: &mut Script) {
        for step in steps {
            match step {
                Step::Full(count) => (0..*count).for_each(|_| self.segment(&self.fill(1000))),
                Step::Some(len) => self.segment(&self.fill(*len)),
                Step::Again => {
                    let len = self.sent.len().min(700);
                    let last = self.sent[self.sent.len() - len..].to_vec();
                    self.push(true, self.seq - len as u32, 501, ACK, &last);
                }
                Step::Swapped => {
                    let at = self.frames.len();
                    (0..2).for_each(|_| self.segment(&self.fill(900)));
                    self.frames.swap(at, at + 1);
                }
                Step::Acknowledge => self.push(false, 501, self.seq, ACK, b""),
                Step::Word(word) => {
                    (0..3).for_each(|_| self.segment(&self.fill(1000)));
                    let mut payload = self.fill(1000);
                    payload[..word.len()].copy_from_slice(word);
                    self.segment(&payload);
                    (0..3).for_each(|_| self.segment(&self.fill(1000)));
                }
                Step::Other => {
                    other.segment(&other.fill(800));
                    self.frames.append(&mut other.frames);
                }
            }
        }
        self.push(true, self.seq, 501, FIN | ACK, b"");
    }
}

fn script(steps: &[Step], v6: bool) -> (Vec<Captured>, Vec<u8>) {
    let mut other = Script::open(2000, v6);
    let mut script = Script::open(1000, v6);
    script.frames.splice(0..0, std::mem::take(&mut other.frames));
    script.play(steps, &mut other);
    for (at, frame) in script.frames.iter_mut().enumerate() {
        frame.now = Timestamp::from_nanos(at as u64 * 1000 + 1);
    }
    (script.frames, script.sent)
}

const WAYS: [Together; 3] = [Together::Apart, Together::StreamJoined, Together::Joined];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn the_same_is_seen_and_leaves(steps in steps(), v6 in any::<bool>(), station in any::<bool>()) {
        let bench = bench(true, "no");
        let (frames, sent) = script(&steps, v6);
        let one_by_one = run(&bench, &frames, Together::Apart, false, station);
        prop_assert_eq!(one_by_one.waited, 0);
        prop_assert_eq!(one_by_one.seen.streams.get(&(1000, true)).cloned().unwrap_or_default(), sent);
        for together in WAYS {
            let joined = run(&bench, &frames, together, true, station);
            prop_assert_eq!(&joined.leaves, &one_by_one.leaves);
            prop_assert_eq!(&joined.seen.streams, &one_by_one.seen.streams);
            prop_assert_eq!(&joined.counters, &one_by_one.counters);
            if together == Together::Joined {
                let bare = one_by_one.seen.bare - joined.seen.bare;
                prop_assert_eq!(joined.seen.calls + joined.waited + bare, one_by_one.seen.calls);
            } else {
                prop_assert_eq!(&joined.seen.packets, &one_by_one.seen.packets, "each packet is shown");
            }
        }
    }
}

#[test]
fn full_segments_wait_for_the_last_of_them() {
    let bench = bench(true, "no");
    let (frames, _) = script(&[Step::Full(10)], false);
    for station in [false, true] {
        assert_eq!(run(&bench, &frames, Together::Joined, true, station).waited, 9);
        assert_eq!(run(&bench, &frames, Together::StreamJoined, true, station).waited, 9);
        assert_eq!(run(&bench, &frames, Together::Apart, true, station).waited, 0);
    }
}

#[test]
fn bare_acknowledgements_are_not_shown_with_trains() {
    let bench = bench(true, "no");
    let steps = [Step::Full(3), Step::Acknowledge, Step::Full(3), Step::Acknowledge];
    let (frames, sent) = script(&steps, false);
    for (together, shown) in [(Together::Apart, 4), (Together::StreamJoined, 4), (Together::Joined, 2)] {
        let run = run(&bench, &frames, together, true, false);
        // Those that complete the two handshakes are always shown.
        assert_eq!(run.seen.bare, shown, "{together:?}");
        assert_eq!(run.seen.streams[&(1000, true)], sent);
    }
}

#[test]
fn a_train_has_an_end() {
    let bench = bench(true, "no");
    let (frames, sent) = script(&[Step::Full(60)], false);
    let run = run(&bench, &frames, Together::Joined, true, false);
    // 32 segments of 1,000 bytes wait at most; the next shows them.
    assert_eq!(run.waited, 59 - 59 / 33);
    assert_eq!(run.seen.streams[&(1000, true)], sent);
}

/// Places of the full segments of `Step::Word`: behind two handshakes and what `before` full segments there
/// are.
fn word_at(before: usize) -> usize {
    6 + before
}

#[test]
fn what_is_refused_of_the_stream_is_refused_of_the_train() {
    let bench = bench(true, "no");
    let (frames, _) = script(&[Step::Full(2), Step::Acknowledge, Step::Word(b"evil"), Step::Full(2)], false);
    let first = word_at(3);
    for together in [Together::StreamJoined, Together::Joined] {
        let run = run(&bench, &frames, together, true, false);
        assert!(run.leaves[..first].iter().all(|l| *l), "{:?}", run.leaves);
        assert!(run.leaves[first..].iter().all(|l| !l), "{:?}", run.leaves);
        let reasons = |reason: Reason| run.counters.refused[reason as usize];
        // The train and, later, what is left of the flow.
        assert_eq!((reasons(Reason::IdsRule), reasons(Reason::IdsFlow)), (9, 1));
    }
}

#[test]
fn what_is_refused_of_a_packet_is_refused_alone() {
    let bench = bench(true, "no");
    for (word, together) in
        [(&b"worse"[..], Together::StreamJoined), (b"no", Together::StreamJoined), (b"no", Together::Joined)]
    {
        let (frames, sent) =
            script(&[Step::Full(2), Step::Acknowledge, Step::Word(word), Step::Full(2)], false);
        let run = run(&bench, &frames, together, true, false);
        let refused: Vec<usize> = (0..frames.len()).filter(|at| !run.leaves[*at]).collect();
        assert_eq!(refused, [word_at(3) + 3], "{word:?} {together:?}");
        assert!(run.waited > 0);
        // What the refused packet carried was inspected all the same.
        assert_eq!(run.seen.streams[&(1000, true)], sent);
    }
}

#[test]
fn what_waits_is_inspected_though_the_last_goes_another_way() {
    let bench = bench(true, "no");
    for (evil, leaves) in [(false, true), (true, false)] {
        let (mut frames, _) = script(&[Step::Full(4), Step::Full(4)], false);
        if evil {
            frames[word_at(1)].bytes[80..84].copy_from_slice(b"evil");
        }
        // The last of the train turns out not to be TCP at all.
        let broken = word_at(4);
        let follows: Vec<bool> =
            frames.windows(2).map(|pair| train::follows(&pair[0].bytes, &pair[1].bytes)).collect();
        frames[broken].bytes[14] = 0x46;
        let (mut worker, _) = worker(&bench, Together::Joined);
        let mut decided = Vec::new();
        for (at, frame) in frames[..=broken].iter().enumerate() {
            let decision = worker.frame_in_batch(&frame.frame(1), follows[at], &mut Nothing);
            assert_eq!(decision.is_none(), (word_at(0)..broken).contains(&at), "{at}");
            if decision.is_some() {
                let waiting = worker.waiting();
                decided = frames[at - waiting..at]
                    .iter()
                    .map(|frame| worker.release(&frame.frame(1), &mut Nothing).verdict.forwards())
                    .collect();
            }
        }
        assert_eq!(decided, [leaves; 4]);
    }
}

#[test]
fn only_what_follows_follows() {
    let (frames, _) = script(&[Step::Full(3)], false);
    let [one, two] = [&frames[6].bytes, &frames[7].bytes];
    assert!(train::follows(one, two));
    let (v6, _) = script(&[Step::Full(3)], true);
    assert!(train::follows(&v6[6].bytes, &v6[7].bytes));
    let tagged = |bytes: &[u8], tag: u8| {
        let mut frame = bytes[..12].to_vec();
        frame.extend_from_slice(&[0x81, 0, 0, tag]);
        frame.extend_from_slice(&bytes[12..]);
        frame
    };
    assert!(train::follows(&tagged(one, 5), &tagged(two, 5)));
    assert!(!train::follows(&tagged(one, 5), &tagged(two, 6)), "other VLAN");
    let changed = |at: usize, value: u8| {
        let mut frame = two.clone();
        frame[at] = value;
        frame
    };
    // MAC, version and length, fragment, protocol, addresses, ports, sequence, header length, flags.
    for (at, value) in [
        (3, 9),
        (14, 0x46),
        (16, 0xff),
        (20, 0x20),
        (21, 1),
        (23, 17),
        (29, 77),
        (33, 77),
        (35, 77),
        (37, 77),
        (41, 78),
        (46, 0x40),
        (47, 0x11),
    ] {
        assert!(!train::follows(one, &changed(at, value)), "byte {at}");
    }
    assert!(!train::follows(two, one) && !train::follows(one, one));
    for cut in 0..two.len() {
        assert!(!train::follows(one, &two[..cut]) && !train::follows(&one[..cut], two), "cut at {cut}");
    }
}

#[test]
fn a_flow_whose_segments_wait_is_not_moved() {
    for v6 in [false, true] {
        let bench = bench(true, "no");
        let workers = (0..2).map(|_| worker(&bench, Together::Joined).0).collect();
        let mut stations = connect(workers, &bench.engine_settings, 16);
        let owners = stations[0].owners();
        let key = |port: u16| {
            let end = |host: u8, port: u16| (bartizan_testkit::packet::address(v6, host), port);
            FlowKey::ported(&FlowScope::default(), 6, end(1, port), end(2, 80))
        };
        let port = (1000..).find(|port| owners.home(&key(*port)) == Some(WorkerId(0))).unwrap();
        let frame = |to_server: bool, seq: u32, ack: u32, flags: u8, load: &[u8]| {
            let (ends, ports) = if to_server { ((1, 2), (port, 80)) } else { ((2, 1), (80, port)) };
            let bytes = ethernet(v6, &ip(v6, ends, 6, &tcp(ports, seq, ack, flags, load)));
            Captured { now: Timestamp::from_nanos(1_000_000_000 + u64::from(seq)), bytes }
        };
        for opening in [
            frame(true, 100, 0, SYN, b""),
            frame(false, 500, 101, SYN | ACK, b""),
            frame(true, 101, 501, ACK, b""),
        ] {
            stations[0].frame(&opening.frame(1), 0, &mut Nothing);
        }
        let load = [b'x'; 1000];
        let [first, second] = [frame(true, 101, 501, ACK, &load), frame(true, 1101, 501, ACK, &load)];
        assert!(train::follows(&first.bytes, &second.bytes));
        assert_eq!(stations[0].frame_in_batch(&first.frame(4), 0, true, &mut Nothing), None);
        assert_eq!(stations[0].move_flow(&key(port), WorkerId(1)), Err(NotMoved::Waits));
        assert!(stations[0].frame_in_batch(&second.frame(5), 0, false, &mut Nothing).is_some());
        assert_eq!(stations[0].worker().waiting(), 1);
        assert!(stations[0].worker_mut().release(&first.frame(4), &mut Nothing).verdict.forwards());
        assert_eq!(stations[0].move_flow(&key(port), WorkerId(1)), Ok(()));
        for station in [1, 0] {
            stations[station].handed_over(10, &mut Nothing, |_, _, _, _| {});
        }
        let flows: Vec<usize> = stations.iter().map(|station| station.worker().flows().len()).collect();
        assert_eq!((flows, stations[0].counters().moves_refused), (vec![0, 1], 1), "v6: {v6}");
    }
}
