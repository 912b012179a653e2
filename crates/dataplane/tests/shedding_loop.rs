// SPDX-License-Identifier: Apache-2.0
//! The live loop, offered twice its capacity, with a clock that only frames and functions advance: flows that
//! lose packets, with and without priorities; and flows that other workers hand over.

use bartizan_base::{PacketDuration, Reason, Timestamp, WorkerId};
use bartizan_dataplane::driver::{Control, Driver, LiveOptions};
use bartizan_dataplane::handover::{Handled, Station};
use bartizan_dataplane::source::{InlineSource, Source, TapSource};
use bartizan_flow::FlowKey;
use bartizan_function::{FunctionKind, FunctionModel, FunctionSpec};
use bartizan_ports::{
    BACKLOG_PARTS, Batch, FrameInfo, InlinePair, Port, PortError, PortStats, SendRefusal, TestClock,
};
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit::hosts::{ethernet, ip, udp};
use bartizan_testkit_worker::{Captured, Made, Nothing, Stack, header_function};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time that a function takes for a packet, and the loop for a frame.
const COST: PacketDuration = PacketDuration::from_nanos(20_000);
const OVERHEAD: PacketDuration = PacketDuration::from_nanos(1_000);
const RING: usize = 1_024;
const BATCH: usize = 64;
const FRAMES: u64 = 40_000;

/// Frames by the last byte of the host that they go to.
type ByHost = [u64; 8];

static SPEC: FunctionSpec = FunctionSpec {
    name: "slow",
    summary: "Takes its time for each packet.",
    model: FunctionModel::StatefulHeaders,
    runs_after: &["gate"],
    runs_before: &["sfw", "ids"],
    header_half: None,
    host_slot: None,
    counters: &[],
};

/// A function that takes time for each packet, and counts packets by destination host.
fn slow(clock: TestClock, seen: Arc<Mutex<ByHost>>) -> Arc<dyn FunctionKind> {
    header_function(&SPEC, move |context| {
        clock.advance(COST);
        if let Some(packet) = context.facts.packet {
            seen.lock().unwrap()[usize::from(packet.payload()[0])] += 1;
        }
    })
}

/// A frame to a host, from one of some flows of it. Its payload names the host.
fn frame(host: u8, number: u64) -> Vec<u8> {
    let port = 1_000 + (number % 5) as u16;
    ethernet(false, &ip(false, (1, host), 17, &udp((port, 53), &[host; 20])))
}

fn host_of(frame: &[u8]) -> usize {
    usize::from(*frame.last().unwrap())
}

/// The source of frames: to these hosts in turn, one frame each `interval`.
struct Wire {
    clock: TestClock,
    hosts: Vec<u8>,
    interval: u64,
    number: u64,
    ring: VecDeque<(Vec<u8>, Timestamp)>,
    sent: ByHost,
    /// Found the ring full.
    lost: ByHost,
    left: ByHost,
    /// The greatest reported backlog.
    greatest: u8,
}

impl Wire {
    /// Puts what has come by now into the ring.
    fn advance(&mut self) {
        loop {
            let due = Timestamp::from_nanos(1_000_000_000 + self.number * self.interval);
            if self.number == FRAMES || due > self.clock.now() {
                return;
            }
            let host = self.hosts[self.number as usize % self.hosts.len()];
            self.sent[usize::from(host)] += 1;
            if self.ring.len() < RING {
                self.ring.push_back((frame(host, self.number), due));
            } else {
                self.lost[usize::from(host)] += 1;
            }
            self.number += 1;
        }
    }
}

/// The port that frames come in by, or the one that they leave by.
struct End {
    wire: Arc<Mutex<Wire>>,
    control: Arc<Control>,
    comes: bool,
    stats: PortStats,
}

impl Port for End {
    fn name(&self) -> &str {
        if self.comes { "in" } else { "out" }
    }
    fn mtu(&self) -> u32 {
        1_500
    }
    fn mac(&self) -> [u8; 6] {
        [2, 0, 0, 0, 0, u8::from(self.comes)]
    }
    fn receive(&mut self, batch: &mut Batch) -> Result<usize, PortError> {
        batch.clear();
        if !self.comes {
            return Ok(0);
        }
        let mut wire = self.wire.lock().unwrap();
        while wire.ring.is_empty() && wire.number < FRAMES {
            wire.clock.advance(PacketDuration::from_nanos(wire.interval));
            wire.advance();
        }
        wire.advance();
        while batch.has_room()
            && let Some((frame, timestamp)) = wire.ring.pop_front()
        {
            let info = FrameInfo { timestamp, wire_length: frame.len() as u32, ..FrameInfo::default() };
            assert!(batch.push_copy(&frame, info));
            wire.clock.advance(OVERHEAD);
        }
        if batch.is_empty() {
            self.control.stop();
        }
        self.stats.received += batch.len() as u64;
        Ok(batch.len())
    }
    fn transmit(&mut self, batch: &mut Batch) -> usize {
        let wire = &self.wire;
        batch.send_each(|_, frame| {
            wire.lock().unwrap().left[host_of(frame)] += 1;
            Ok(())
        })
    }
    fn transmit_frame(&mut self, _: &[u8]) -> Result<(), SendRefusal> {
        panic!("nothing is made here")
    }
    fn flush(&mut self) -> Result<(), PortError> {
        Ok(())
    }
    fn ready(&self) -> bool {
        self.comes
    }
    fn backlog(&self) -> u8 {
        let mut wire = self.wire.lock().unwrap();
        if !self.comes {
            return 0;
        }
        wire.advance();
        let backlog = (wire.ring.len() * usize::from(BACKLOG_PARTS) / RING).min(7) as u8;
        wire.greatest = wire.greatest.max(backlog);
        backlog
    }
    fn stats(&mut self) -> PortStats {
        self.stats
    }
    fn now(&mut self) -> Timestamp {
        self.wire.lock().unwrap().clock.now()
    }
}

/// The kind of link.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loop {
    Inline,
    Passive,
}

/// Outcome of a run.
#[derive(Debug)]
struct Ran {
    sent: ByHost,
    lost: ByHost,
    left: ByHost,
    seen: ByHost,
    refused: u64,
    uninspected: u64,
    greatest: u8,
}

impl Ran {
    fn part_seen(&self, host: usize) -> f64 {
        self.seen[host] as f64 / self.sent[host] as f64
    }
}

/// Policies for hosts 2, 3, ... with these priorities.
fn policies(priorities: &[u8]) -> String {
    let one = |(host, priority): (u8, &u8)| {
        format!(
            "- {{name: h{host}, to: [10.0.0.{host}], chain: [slow], overload: {{priority: {priority}}}}}\n    "
        )
    };
    format!(
        "policies:\n    {}\ndefault: {{action: drop, overload: {{priority: {}}}}}\n",
        (2u8..).zip(priorities).map(one).collect::<String>(),
        priorities[0]
    )
}

fn tune(settings: &mut EngineSettings) {
    settings.flow_capacity = 4_096;
}

fn passive(settings: &mut EngineSettings) {
    tune(settings);
    settings.prevention = false;
}

/// Offers twice what a worker takes, to hosts in turn.
fn run(name: &str, how: Loop, priorities: &[u8], hosts: &[u8]) -> Ran {
    let clock = TestClock::starting_at(Timestamp::from_nanos(1_000_000_000));
    let seen = Arc::new(Mutex::new(ByHost::default()));
    let tune = if how == Loop::Passive { passive } else { tune };
    let made = Made { name, policy: "chain: [slow]", set: &[], tune, rules: "", thresholds: "" };
    let kind = slow(clock.clone(), Arc::clone(&seen));
    let mut stack = Stack::with_functions(&made, vec![kind]);
    stack.swap_file(&policies(priorities), "");
    let wire = Wire {
        clock,
        hosts: hosts.to_vec(),
        interval: COST.as_nanos() / 2,
        number: 0,
        ring: VecDeque::new(),
        sent: ByHost::default(),
        lost: ByHost::default(),
        left: ByHost::default(),
        greatest: 0,
    };
    let (wire, control) = (Arc::new(Mutex::new(wire)), Arc::new(Control::new().unwrap()));
    let end = |comes| End {
        wire: Arc::clone(&wire),
        control: Arc::clone(&control),
        comes,
        stats: PortStats::default(),
    };
    let options = LiveOptions { batch: BATCH, spin: Duration::ZERO, awake: false, ..LiveOptions::default() };
    let source: Box<dyn Source> = match how {
        Loop::Inline => Box::new(InlineSource::new(
            InlinePair::new(Box::new(end(true)), Box::new(end(false)), false).unwrap(),
        )),
        Loop::Passive => Box::new(TapSource::new(Box::new(end(true)))),
    };
    let mut driver = Driver::new(stack.stations(1).remove(0), source, Box::new(Nothing));
    driver.run(&options, &control).unwrap();
    let counters = driver.station.worker().counters();
    assert_eq!(counters.packets, counters.forwarded + counters.refused.iter().sum::<u64>());
    let (refused, uninspected) = (counters.refused[Reason::Overload as usize], counters.shed.uninspected);
    let Wire { sent, lost, left, greatest, .. } = *wire.lock().unwrap();
    let seen = *seen.lock().unwrap();
    if how != Loop::Passive {
        let sum = |of: &ByHost| of.iter().sum::<u64>();
        assert_eq!(sum(&sent), sum(&lost) + refused + sum(&left), "every frame is in one place");
    }
    Ran { sent, lost, left, seen, refused, uninspected, greatest }
}

/// Two frames of five are host 3's, of the higher priority.
const OF_TWO: [u8; 5] = [2, 3, 2, 3, 2];

#[test]
fn at_twice_the_rate_flows_of_the_higher_priority_lose_nothing() {
    for how in [Loop::Inline, Loop::Passive] {
        let ran = run("loop-priority", how, &[100, 200], &OF_TWO);
        assert_eq!(ran.lost, ByHost::default(), "{how:?}: {ran:?}");
        assert_eq!(ran.seen[3], ran.sent[3], "{how:?}: {ran:?}");
        // What the others lose is what there is no time for, and no more than that by much.
        let part = ran.part_seen(2);
        assert!((0.05..0.35).contains(&part), "{how:?}: {ran:?}");
        let shed = ran.sent[2] - ran.seen[2];
        if how == Loop::Passive {
            assert_eq!((ran.refused, ran.uninspected), (0, shed), "{ran:?}");
        } else {
            assert_eq!((ran.left[3], ran.refused), (ran.sent[3], shed), "{how:?}: {ran:?}");
        }
        assert!((4..7).contains(&ran.greatest), "{how:?}: {ran:?}");
    }
}

#[test]
fn without_priorities_the_ring_is_full_for_all() {
    for how in [Loop::Inline, Loop::Passive] {
        let ran = run("loop-equal", how, &[100, 100], &OF_TWO);
        assert!(ran.lost[2] > ran.sent[2] / 3 && ran.lost[3] > ran.sent[3] / 3, "{how:?}: {ran:?}");
        assert_eq!((ran.refused, ran.uninspected, ran.greatest), (0, 0, 0), "{how:?}: nobody looks");
    }
}

#[test]
fn the_lowest_of_several_priorities_loses_first() {
    // Of ten frames five are host 2's, one host 3's and four host 4's: host 4 takes four fifths of the time.
    let ran = run("loop-three", Loop::Inline, &[1, 2, 3], &[2, 4, 2, 4, 3, 2, 4, 2, 4, 2]);
    assert_eq!((ran.lost, ran.left[4]), (ByHost::default(), ran.sent[4]), "{ran:?}");
    assert!(ran.part_seen(2) < ran.part_seen(3), "{ran:?}");
    // There is little time for both of the others.
    let ran = run("loop-three", Loop::Inline, &[1, 2, 3], &[4, 2, 4, 3, 4, 2, 3, 4, 2, 3]);
    assert_eq!(ran.lost, ByHost::default(), "{ran:?}");
    assert!(ran.part_seen(2) < ran.part_seen(3), "{ran:?}");
}

/// Two workers, and what the second one has been handed and has not taken.
fn stations(name: &str) -> (Stack, Vec<Station>) {
    let clock = TestClock::default();
    let made = Made { name, policy: "chain: [slow]", set: &[], tune, rules: "", thresholds: "" };
    let kind = slow(clock, Arc::default());
    let mut stack = Stack::with_functions(&made, vec![kind]);
    stack.swap_file(&policies(&[100, 200]), "");
    let stations = stack.stations(2);
    (stack, stations)
}

/// Hands frames in at the first worker; how many of each host are under way to the second.
fn hand_in(station: &mut Station, frames: &[Vec<u8>]) -> ByHost {
    let mut away = ByHost::default();
    for (number, bytes) in frames.iter().enumerate() {
        let captured = Captured::at_millis(number as u64, bytes.clone());
        if let Handled::Away(to) = station.frame(&captured.frame(1), 0, &mut Nothing) {
            assert_eq!(to, WorkerId(1));
            away[host_of(bytes)] += 1;
        }
    }
    away
}

/// The second worker takes all: how many of each host may leave.
fn take(station: &mut Station) -> ByHost {
    let mut left = ByHost::default();
    station.shed_by(|| 0);
    while station.handed_over(100, &mut Nothing, |_, frame, decision, _| {
        left[host_of(frame.bytes)] += u64::from(decision.verdict.forwards());
    }) > 0
    {}
    left
}

/// A flow to a host of which the first worker is not the home, or is.
fn flow(stations: &mut [Station], host: u8, home: u16) -> Vec<u8> {
    let mut of = (1_000..1_100u16).map(|port| {
        let bytes = ethernet(false, &ip(false, (1, host), 17, &udp((port, 53), &[host; 20])));
        let captured = Captured::at_millis(0, bytes.clone());
        let handled = stations[0].frame(&captured.frame(1), 0, &mut Nothing);
        (bytes, if matches!(handled, Handled::Here(_)) { 0 } else { 1 })
    });
    let found = of.find(|(_, of)| *of == home).expect("half of them are").0;
    take(&mut stations[1]);
    found
}

#[test]
fn a_worker_to_which_others_hand_over_more_than_it_takes_sheds_as_well() {
    let (stack, mut stations) = stations("loop-handed");
    let frames = [flow(&mut stations, 2, 1), flow(&mut stations, 3, 1)];
    // A ring of 64.
    for (each, shed) in [(12, 0), (20, 20)] {
        let sent: Vec<_> = (0..each).flat_map(|_| frames.clone()).collect();
        let away = hand_in(&mut stations[0], &sent);
        assert_eq!((away[2], away[3]), (each, each));
        let left = take(&mut stations[1]);
        assert_eq!((left[2], left[3]), (each - shed, each));
    }
    assert_eq!(stations[1].worker().counters().refused[Reason::Overload as usize], 20);
    drop(stack);
}

#[test]
fn flows_that_have_moved_give_way_where_they_are() {
    let (stack, mut stations) = stations("loop-moved");
    let frames = [flow(&mut stations, 2, 0), flow(&mut stations, 3, 0)];
    let keys: Vec<FlowKey> = stations[0].worker().flows().iter().map(|(_, entry)| *entry.key()).collect();
    for key in keys {
        stations[0].move_flow(&key, WorkerId(1)).unwrap();
        for _ in 0..2 {
            for station in &mut stations {
                station.handed_over(100, &mut Nothing, |_, _, _, _| ());
            }
        }
    }
    let sent: Vec<_> = (0..20).flat_map(|_| frames.clone()).collect();
    // The first worker has much to do as well; what is not its own it does not judge.
    stations[0].shed_by(|| 7);
    let away = hand_in(&mut stations[0], &sent);
    assert_eq!((away[2], away[3]), (20, 20));
    let left = take(&mut stations[1]);
    assert_eq!((left[2], left[3]), (0, 20));
    let refused = |station: &Station| station.worker().counters().refused[Reason::Overload as usize];
    assert_eq!([refused(&stations[0]), refused(&stations[1])], [0, 20]);
    drop(stack);
}
