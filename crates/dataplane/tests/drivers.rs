// SPDX-License-Identifier: Apache-2.0
//! Several inline workers with ports of their own, in threads: each frame leaves once, in order within its
//! flow, with exact sums, whichever worker it arrives at; generations are swapped under traffic and on idle
//! links; the end of one worker ends all.

use crate::common;
#[path = "refusing_ports/mod.rs"]
mod refusing_ports;

use bartizan_base::{LinkId, PacketDuration, Reason, Timestamp, WorkerId};
use bartizan_dataplane::driver::inquiry::{FLOWS_TOLD, FlowsWanted, PART, Question};
use bartizan_dataplane::driver::{
    Balance, Control, Driver, LiveError, LiveOptions, WorkerNumbers, run_drivers, stations, stations_of,
};
use bartizan_dataplane::source::{InlineSource, Slot, Source};
use bartizan_flow::{FlowKey, FlowScope};
use bartizan_ports::{
    Batch, InlinePair, PairSide, Port, PortError, PortStats, SendRefusal, TestClock, TestPort,
};
use bartizan_stages::chain::Chains;
use bartizan_stages::moving::Chance;
use bartizan_stages::record::{Recorder, RecorderEvent};
use common::{Bench, Shape, bench, chains, marked_saying, read_mark};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Longest time that anything here may take.
const LIMIT: Duration = Duration::from_secs(30);
const SHAPES: [Shape; 4] = [Shape::Plain, Shape::Fragmented, Shape::Tunnel, Shape::FragmentedTunnel];

/// A record of frames that a port refused.
#[derive(Debug)]
struct Refused {
    port: String,
    cause: &'static str,
    frames: u64,
    /// The frame's mark, which its record shows.
    mark: Option<(u32, u32)>,
}

/// Records time and generation of each alert, flows, and frames that ports refused; panics on request.
#[derive(Clone, Default)]
struct Log {
    alerts: Arc<Mutex<Vec<(Timestamp, u64)>>>,
    flows: Arc<Mutex<Vec<u64>>>,
    unsent: Arc<Mutex<Vec<Refused>>>,
    breaks: bool,
}

impl Recorder for Log {
    fn record(&mut self, event: RecorderEvent<'_>) {
        match event {
            RecorderEvent::Alert { occasion, .. } => {
                assert!(!self.breaks, "a defect, made by the test");
                self.alerts.lock().unwrap().push((occasion.now, occasion.generation.0));
            }
            // Those of GRE are the tunnels', whatever they carry.
            RecorderEvent::Flow { flow, .. } if flow.key().protocol() != 47 => {
                self.flows.lock().unwrap().push(flow.packets.to_server + flow.packets.to_client);
            }
            RecorderEvent::Unsent { occasion, unsent } => {
                self.unsent.lock().unwrap().push(Refused {
                    port: unsent.port.to_owned(),
                    cause: unsent.cause,
                    frames: unsent.frames,
                    mark: read_mark(occasion.payload()),
                });
            }
            _ => {}
        }
    }
}

/// Workers, and what is at the other ends of their ports.
struct Rig {
    drivers: Vec<Driver<Box<Log>>>,
    /// By worker, then side.
    outside: Vec<[TestPort; 2]>,
    control: Control,
    clock: TestClock,
    log: Log,
    options: LiveOptions,
}

fn rig(bench: &Bench, count: u16, parcels: usize) -> Rig {
    rig_at(Timestamp::from_nanos(1_000_000_000), bench, count, parcels)
}

fn rig_at(start: Timestamp, bench: &Bench, count: u16, parcels: usize) -> Rig {
    let clock = TestClock::starting_at(start);
    let log = Log::default();
    let stations = stations(&bench.engine_settings, &bench.engine, &bench.chains, count, parcels).unwrap();
    let (mut drivers, mut outside) = (Vec::new(), Vec::new());
    for station in stations {
        let (client, a) = TestPort::pair(["client", "a"], 1500, 1 << 20, &clock).unwrap();
        let (server, b) = TestPort::pair(["server", "b"], 1500, 1 << 20, &clock).unwrap();
        outside.push([client, server]);
        let source = Box::new(InlineSource::new(InlinePair::new(Box::new(a), Box::new(b), false).unwrap()));
        drivers.push(Driver::new(station, source, Box::new(log.clone())));
    }
    let options =
        LiveOptions { batch: 16, spin: Duration::ZERO, awake: false, tick: Duration::from_millis(20) };
    Rig { drivers, outside, control: Control::for_workers(count).unwrap(), clock, log, options }
}

impl Rig {
    /// Runs the workers and `drive` beside them; stops the workers when `drive` returns.
    fn run(
        &mut self,
        drive: impl FnOnce(&mut [[TestPort; 2]], &Control, &TestClock),
    ) -> Result<(), LiveError> {
        let Rig { drivers, outside, control, clock, options, .. } = self;
        run_drivers(drivers, options, control, |_| {
            drive(outside, control, clock);
            control.stop();
        })
    }

    fn balance(&mut self) -> Balance {
        let mut balance = Balance::default();
        for driver in &mut self.drivers {
            balance.add(driver.station.worker().counters(), &driver.counters);
            driver.each_port(|_, stats, waiting| balance.add_port(stats, waiting));
        }
        balance
    }

    fn refused(&self, reason: Reason) -> u64 {
        self.drivers.iter().map(|p| p.station.worker().counters().refused[reason as usize]).sum()
    }
}

/// A worker's source, and the other ends of its ports.
fn source(clock: &TestClock) -> (Box<dyn Source>, [TestPort; 2]) {
    let (client, a) = TestPort::pair(["client", "a"], 1500, 1 << 20, clock).unwrap();
    let (server, b) = TestPort::pair(["server", "b"], 1500, 1 << 20, clock).unwrap();
    (Box::new(InlineSource::new(InlinePair::new(Box::new(a), Box::new(b), false).unwrap())), [client, server])
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < end, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Lets a frame arrive at a worker's port; each at a time of its own.
fn arrive(outside: &mut [[TestPort; 2]], clock: &TestClock, worker: usize, side: PairSide, frame: &[u8]) {
    clock.advance(PacketDuration::from_nanos(1000));
    let port = &mut outside[worker][side as usize];
    port.transmit_frame(frame).unwrap();
    port.flush().unwrap();
}

/// Every third packet of a flow is one of the other direction.
fn side_of(number: u32) -> PairSide {
    if number % 3 == 2 { PairSide::B } else { PairSide::A }
}

/// The mark in a frame, if the frame holds all of it.
fn mark_in(frame: &[u8]) -> Option<(u32, u32)> {
    (0..frame.len()).find_map(|at| read_mark(&frame[at..]))
}

#[test]
fn each_frame_leaves_once_in_order_and_sums_are_exact_whoever_gets_it() {
    for (count, flows, per_flow) in [(1u16, 8u32, 30u32), (2, 16, 60), (3, 24, 60)] {
        let bench = bench(true, "no");
        let mut rig = rig(&bench, count, 4_000);
        let seen = Arc::clone(&bench.seen);
        let mut expected: [Vec<Vec<u8>>; 2] = Default::default();
        let (mut sent, mut dropped) = (0u64, 0u64);
        let shape_of = |flow: u32| SHAPES[flow as usize % 4];
        rig.run(|outside, _, clock| {
            for number in 0..per_flow {
                for flow in 0..flows {
                    // What is refused opens no flow: the first packet of each goes on.
                    let drop = number > 0 && (number + flow) % 7 == 3;
                    let word: &[u8] = if drop { b"drop" } else { b"" };
                    let frames = marked_saying(flow % 8 > 3, flow, number, shape_of(flow), word);
                    let last = frames.len() - 1;
                    dropped += u64::from(drop);
                    for (piece, frame) in frames.into_iter().enumerate() {
                        sent += 1;
                        // A flow arrives at one worker, its fragments at any.
                        let way = match shape_of(flow) {
                            Shape::Plain | Shape::Tunnel => flow as usize,
                            _ => (number as usize) * 5 + piece,
                        } % usize::from(count);
                        arrive(outside, clock, way, side_of(number), &frame);
                        // A datagram is whole with the piece that comes last to its owner, whichever that is.
                        if !drop || piece < last {
                            expected[side_of(number).other() as usize].push(frame);
                        }
                    }
                }
                // No packet of a flow overtakes its first one on another worker's way.
                let so_far = if number == 0 { flows } else { flows * per_flow };
                if number == 0 || number + 1 == per_flow {
                    wait_until("all packets are seen", || {
                        seen.lock().unwrap().iter().filter(|s| s.mark.is_some()).count() as u32 == so_far
                    });
                }
            }
        })
        .unwrap();
        let balance = rig.balance();
        assert!(balance.is_exact(), "{balance:?}");
        assert_eq!((balance.received, balance.refused), (sent, dropped), "{balance:?}");
        assert_eq!((balance.sent, balance.not_sent, balance.under_way), (sent - dropped, 0, 0));
        let mut left: [Vec<Vec<u8>>; 2] = Default::default();
        let mut orders: HashMap<(u32, PairSide), Vec<(usize, u32)>> = HashMap::new();
        for (worker, ends) in rig.outside.iter_mut().enumerate() {
            for (side, port) in ends.iter_mut().enumerate() {
                while let Some(frame) = port.take() {
                    if let Some((flow, number)) = mark_in(&frame)
                        && matches!(shape_of(flow), Shape::Plain | Shape::Tunnel)
                    {
                        orders.entry((flow, side_of(number))).or_default().push((worker, number));
                    }
                    left[side].push(frame);
                }
            }
        }
        for side in [0, 1] {
            assert_eq!(left[side].len(), expected[side].len());
            // Which piece of a refused datagram is the last differs: those are compared without pieces.
            let whole = |frames: &mut Vec<Vec<u8>>| {
                frames.retain(|f| {
                    mark_in(f).is_some_and(|(flow, _)| matches!(shape_of(flow), Shape::Plain | Shape::Tunnel))
                });
                frames.sort();
            };
            whole(&mut left[side]);
            whole(&mut expected[side]);
            assert!(left[side] == expected[side], "frames leave as they came");
        }
        for (flow, order) in &orders {
            assert!(order.iter().all(|(worker, _)| *worker == order[0].0), "{flow:?} leaves by one worker");
            assert!(order.windows(2).all(|w| w[0].1 < w[1].1), "{flow:?} {order:?}");
        }
        assert_eq!(orders.len(), flows as usize, "both directions of those that stay whole");
        let handed: u64 = rig.drivers.iter().map(|p| p.station.counters().handed_over).sum();
        let taken: u64 = rig.drivers.iter().map(|p| p.station.counters().taken).sum();
        assert_eq!(handed, taken);
        assert_eq!(handed > 0, count > 1);
        // Each flow once, at its owner: each packet in one.
        let packets = rig.log.flows.lock().unwrap().clone();
        assert_eq!(packets.len(), flows as usize, "{packets:?}");
        assert_eq!(packets.iter().sum::<u64>(), u64::from(flows * per_flow));
    }
}

/// Each mark once, and in the order of each direction of a flow that comes by one way.
fn check_order(seen: &[common::Seen], in_order: impl Fn(u32) -> bool, per_flow: u32, flows: usize) {
    let mut order: HashMap<(u32, PairSide), Vec<u32>> = HashMap::new();
    for (flow, number) in seen.iter().filter_map(|packet| packet.mark) {
        order.entry((flow, side_of(number))).or_default().push(number);
    }
    assert_eq!(order.len(), flows * 2);
    for ((flow, side), mut numbers) in order {
        if !in_order(flow) {
            numbers.sort_unstable();
        }
        let expected: Vec<u32> = (0..per_flow).filter(|number| side_of(*number) == side).collect();
        assert_eq!(numbers, expected, "flow {flow}, {side:?}");
    }
}

#[test]
fn flows_move_between_workers_under_traffic() {
    for (count, seed) in [(2u16, 1u64), (3, 2), (4, 3)] {
        let bench = bench(true, "no");
        let mut rig = rig(&bench, count, 4_000);
        for (number, driver) in (0u64..).zip(&mut rig.drivers) {
            driver.chance = Some(Chance(seed << 8 | number));
        }
        let seen = Arc::clone(&bench.seen);
        let (flows, per_flow) = (16u32, 120u32);
        let shape_of = |flow: u32| SHAPES[flow as usize % 4];
        let mut sent = 0u64;
        rig.run(|outside, _, clock| {
            for number in 0..per_flow {
                for flow in 0..flows {
                    for frame in marked_saying(flow % 8 > 3, flow, number, shape_of(flow), b"") {
                        sent += 1;
                        arrive(outside, clock, flow as usize % usize::from(count), side_of(number), &frame);
                    }
                }
            }
            wait_until("all packets are seen", || {
                seen.lock().unwrap().iter().filter(|s| s.mark.is_some()).count() as u32 == flows * per_flow
            });
        })
        .unwrap();
        let balance = rig.balance();
        assert!(balance.is_exact(), "{balance:?}");
        assert_eq!((balance.received, balance.sent, balance.refused), (sent, sent, 0), "{balance:?}");
        let plain = |flow| matches!(shape_of(flow), Shape::Plain | Shape::Tunnel);
        check_order(&seen.lock().unwrap(), plain, per_flow, flows as usize);
        let counters = rig.drivers.iter().map(|p| p.station.counters()).reduce(|a, b| a.plus(b)).unwrap();
        assert_eq!(counters.handed_over, counters.taken);
        assert!(counters.moved > 20, "{counters:?}");
        // Each flow once, with all of its packets.
        let packets = rig.log.flows.lock().unwrap().clone();
        assert_eq!(packets.len(), flows as usize);
        assert!(packets.iter().all(|packets| *packets == u64::from(per_flow)), "{packets:?}");
    }
}

#[test]
fn whoever_steers_moves_a_flow_back_and_forth() {
    let bench = bench(true, "no");
    let mut rig = rig(&bench, 2, 4_000);
    let seen = Arc::clone(&bench.seen);
    let end = |host: u8, port: u16| (bartizan_testkit::packet::address(false, host), port);
    let key = FlowKey::ported(&FlowScope::default(), 17, end(1, 1000), end(100, 2000));
    let home = rig.drivers[0].station.owners().home(&key).unwrap();
    let worker_of = |at: u32| seen.lock().unwrap().get(at as usize).map(|packet| packet.worker);
    let moves = 40u64;
    let mut sent = 0u32;
    rig.run(|outside, control, clock| {
        assert!(!control.move_flow(WorkerId(2), &key, WorkerId(0)), "there is no such worker");
        let mut next_is_with = |worker: u16| {
            let frame = marked_saying(false, 0, sent, Shape::Plain, b"").remove(0);
            arrive(outside, clock, usize::from(home.0), side_of(sent), &frame);
            wait_until("the packet is seen", || worker_of(sent).is_some());
            sent += 1;
            worker_of(sent - 1) == Some(worker)
        };
        assert!(next_is_with(home.0));
        for number in 0..moves {
            let to = if number % 2 == 0 { 1 - home.0 } else { home.0 };
            assert!(control.move_flow(home, &key, WorkerId(to)));
            // A packet that is handled there says that the move is over.
            wait_until("the flow is with the other worker", || next_is_with(to));
        }
    })
    .unwrap();
    assert_eq!(rig.drivers[usize::from(home.0)].station.counters().moved, moves);
    assert!(rig.balance().is_exact());
    check_order(&seen.lock().unwrap(), |_| true, sent, 1);
    assert_eq!(*rig.log.flows.lock().unwrap(), [u64::from(sent)]);
}

#[test]
fn what_a_full_ring_refuses_is_counted_and_the_rest_leaves() {
    let bench = bench(true, "no");
    let mut rig = rig(&bench, 2, 1);
    let seen = Arc::clone(&bench.seen);
    let (flows, per_flow) = (10u32, 400u32);
    rig.options.batch = 256;
    rig.run(|outside, _, clock| {
        for number in 0..per_flow {
            for flow in 0..flows {
                let frame = marked_saying(false, flow, number, Shape::Plain, b"").remove(0);
                clock.advance(PacketDuration::from_nanos(1000));
                outside[0][side_of(number) as usize].transmit_frame(&frame).unwrap();
            }
        }
        // At once, so that the other worker cannot keep up.
        outside[0].iter_mut().for_each(|port| port.flush().unwrap());
        wait_until("the last packets are seen", || {
            let seen = seen.lock().unwrap();
            (0..2).any(|_| seen.iter().filter(|s| s.mark.is_some_and(|m| m.1 == per_flow - 1)).count() > 0)
        });
        std::thread::sleep(Duration::from_millis(50));
    })
    .unwrap();
    let balance = rig.balance();
    assert!(balance.is_exact(), "{balance:?}");
    assert_eq!(balance.received, u64::from(flows * per_flow));
    assert_eq!(balance.refused, rig.refused(Reason::HandOverRing));
    assert!(balance.refused > 0, "{balance:?}");
    let by_stations: u64 = rig.drivers.iter().map(|p| p.station.counters().refused).sum();
    assert_eq!(by_stations, balance.refused);
    assert_eq!(seen.lock().unwrap().len() as u64, balance.sent);
}

#[test]
fn swaps_under_traffic_lose_nothing_and_each_frame_has_one_generation() {
    let bench = bench(true, "no");
    let count = 3u16;
    let mut rig = rig(&bench, count, 4_000);
    let seen = Arc::clone(&bench.seen);
    let (flows, per_flow, swaps) = (8u32, 1_000u32, 200u32);
    let mut generations: Vec<Weak<Chains>> = Vec::new();
    rig.run(|outside, control, clock| {
        for number in 0..per_flow {
            for flow in 0..flows {
                // Two packets a frame, which mostly belong to two workers.
                let frame = marked_saying(flow % 2 == 1, flow, number, Shape::Tunnel, b"evil").remove(0);
                arrive(outside, clock, flow as usize % usize::from(count), side_of(number), &frame);
            }
            if number % (per_flow / swaps) == 0 {
                let next = chains(2 + u64::from(number / (per_flow / swaps)), &seen);
                generations.push(Arc::downgrade(&next));
                control.swap(next);
                std::thread::yield_now();
            }
        }
        wait_until("all packets are seen", || seen.lock().unwrap().len() as u32 == 2 * flows * per_flow);
        wait_until("the last generation runs everywhere", || control.running().0 == u64::from(swaps) + 1);
        for worker in 0..count {
            assert_eq!(control.running_in(WorkerId(worker)).unwrap().0, u64::from(swaps) + 1);
        }
        assert_eq!(control.running_in(WorkerId(count)), None);
        wait_until("what nobody runs is freed", || {
            control.free_left();
            generations.iter().filter(|g| g.strong_count() > 0).count() == 1
        });
    })
    .unwrap();
    let balance = rig.balance();
    assert!(balance.is_exact(), "{balance:?}");
    assert_eq!((balance.sent, balance.refused), (u64::from(flows * per_flow), 0));
    let mut by_frame: HashMap<Timestamp, Vec<u64>> = HashMap::new();
    let seen = seen.lock().unwrap();
    for packet in seen.iter() {
        by_frame.entry(packet.now).or_default().push(packet.generation);
    }
    for (now, generation) in rig.log.alerts.lock().unwrap().iter() {
        by_frame.get_mut(now).unwrap().push(*generation);
    }
    assert_eq!(by_frame.len() as u32, flows * per_flow);
    for (now, generations) in &by_frame {
        assert_eq!(generations.len(), 3, "two packets and an alert: {now:?} {generations:?}");
        assert!(generations.iter().all(|g| *g == generations[0]), "{now:?} {generations:?}");
    }
    let used: std::collections::HashSet<u64> = seen.iter().map(|s| s.generation).collect();
    assert!(used.len() > 10, "{}", used.len());
}

#[test]
fn workers_end_when_who_steers_fails() {
    let bench = bench(false, "no");
    let mut rig = rig(&bench, 2, 16);
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = rig.run(|_, control, _| {
            wait_until("both run", || control.running().0 == 1);
            panic!("who steers fails");
        });
    }));
    assert!(failed.is_err());
}

#[test]
fn an_idle_link_swaps_as_well() {
    let bench = bench(false, "no");
    let mut rig = rig(&bench, 2, 16);
    // Nobody looks by himself within the time of this test.
    rig.options.tick = LIMIT * 2;
    let seen = Arc::clone(&bench.seen);
    let begun = Instant::now();
    rig.run(|_, control, _| {
        wait_until("both run", || control.running().0 == 1);
        std::thread::sleep(Duration::from_millis(20));
        for number in 2..20 {
            control.swap(chains(number, &seen));
            wait_until("both run the next", || control.running().0 == number);
        }
    })
    .unwrap();
    assert!(begun.elapsed() < LIMIT);
}

/// A port that is gone after some frames.
struct Going {
    port: TestPort,
    left: u32,
}

impl Port for Going {
    fn name(&self) -> &str {
        "going"
    }
    fn mtu(&self) -> u32 {
        self.port.mtu()
    }
    fn mac(&self) -> [u8; 6] {
        self.port.mac()
    }
    fn receive(&mut self, batch: &mut Batch) -> Result<usize, PortError> {
        let got = self.port.receive(batch)?;
        self.left = self.left.saturating_sub(got as u32);
        if self.left == 0 { Err(PortError::Gone { name: "going".into() }) } else { Ok(got) }
    }
    fn transmit(&mut self, batch: &mut Batch) -> usize {
        self.port.transmit(batch)
    }
    fn transmit_frame(&mut self, frame: &[u8]) -> Result<(), SendRefusal> {
        self.port.transmit_frame(frame)
    }
    fn flush(&mut self) -> Result<(), PortError> {
        self.port.flush()
    }
    fn ready(&self) -> bool {
        self.port.ready()
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.port.descriptor()
    }
    fn stats(&mut self) -> PortStats {
        self.port.stats()
    }
    fn now(&mut self) -> Timestamp {
        self.port.now()
    }
}

#[test]
fn a_port_that_goes_away_ends_all_workers_with_one_error() {
    let bench = bench(true, "no");
    let mut rig = rig(&bench, 3, 4_000);
    let (client, a) = TestPort::pair(["client", "a"], 1500, 1 << 20, &rig.clock).unwrap();
    let (server, b) = TestPort::pair(["server", "b"], 1500, 1 << 20, &rig.clock).unwrap();
    rig.outside[1] = [client, server];
    let pair = InlinePair::new(Box::new(Going { port: a, left: 40 }), Box::new(b), false).unwrap();
    rig.drivers[1].source = Some(Box::new(InlineSource::new(pair)));
    let Rig { drivers, outside, control, clock, options, .. } = &mut rig;
    let result = run_drivers(drivers, options, control, |finished| {
        for number in 0..100u32 {
            for flow in 0..9u32 {
                let frame = marked_saying(false, flow, number, Shape::Plain, b"").remove(0);
                arrive(outside, clock, flow as usize % 3, PairSide::A, &frame);
            }
        }
        wait_until("all have ended", finished);
    });
    let error = result.unwrap_err();
    assert!(matches!(error, LiveError::Port(PortError::Gone { .. })), "{error}");
    // What was handed out and not given to the worker is lost with the port.
    let counters: Vec<_> = rig.drivers.iter().map(|p| *p.station.worker().counters()).collect();
    let (packets, forwarded): (u64, u64) =
        counters.iter().fold((0, 0), |(p, f), c| (p + c.packets, f + c.forwarded));
    assert_eq!(packets, forwarded, "drained: nothing is left under way");
    assert_eq!(rig.drivers[0].station.under_way(), 0);
}

#[test]
fn a_defect_in_one_worker_ends_all_and_says_so() {
    let bench = bench(true, "no");
    let mut rig = rig(&bench, 2, 4_000);
    for driver in &mut rig.drivers {
        driver.recorder.breaks = true;
    }
    let Rig { drivers, outside, control, clock, options, .. } = &mut rig;
    let result = run_drivers(drivers, options, control, |finished| {
        for flow in 0..4u32 {
            let frame = marked_saying(false, flow, 0, Shape::Plain, b"evil").remove(0);
            arrive(outside, clock, flow as usize % 2, PairSide::A, &frame);
        }
        wait_until("all have ended", finished);
    });
    let message = result.unwrap_err().to_string();
    assert!(message.contains("defect") && message.contains("worker"), "{message}");
}

#[test]
fn workers_of_a_link_that_is_gone_go_on_with_other_ports_and_others_notice_nothing() {
    let bench = bench(true, "no");
    // Workers without a source have the kernel's clock.
    let mut rig = rig_at(bartizan_ports::packet_clock(), &bench, 2, 4_000);
    // A second link of two workers beside the first, with the same addresses.
    let numbers = WorkerNumbers { first: 2, count: 2, all: 4 };
    let second = stations_of(&bench.engine_settings, &bench.engine, &bench.chains, numbers, 4_000).unwrap();
    for station in second {
        let (source, outside) = source(&rig.clock);
        rig.outside.push(outside);
        let mut driver = Driver::new(station, source, Box::new(rig.log.clone()));
        (driver.link, driver.first) = (LinkId(1), 2);
        rig.drivers.push(driver);
    }
    let slots: [Arc<Slot<Box<dyn Source>>>; 2] = Default::default();
    for (driver, slot) in rig.drivers.iter_mut().zip(&slots) {
        driver.slot = Some(Arc::clone(slot));
    }
    rig.control = Control::for_workers(4).unwrap();
    let seen = Arc::clone(&bench.seen);
    let count = move || seen.lock().unwrap().iter().filter(|s| s.mark.is_some()).count();
    // Eight flows a link; fragments may arrive at any worker of it.
    let round = |outside: &mut [[TestPort; 2]], clock: &TestClock, number: u32, links: &[usize]| {
        for link in links {
            for flow in 0..8u32 {
                for (piece, frame) in
                    marked_saying(flow % 8 > 3, flow, number, SHAPES[flow as usize % 4], b"")
                        .iter()
                        .enumerate()
                {
                    let way = link * 2 + (flow as usize + piece) % 2;
                    arrive(outside, clock, way, PairSide::A, frame);
                }
            }
        }
    };
    rig.run(|outside, control, clock| {
        round(outside, clock, 0, &[0, 1]);
        wait_until("both links' packets", || count() == 16);
        slots.iter().for_each(|slot| slot.clear());
        wait_until("the first link is left", || slots.iter().all(|slot| slot.is_empty()));
        // What comes to the ports of before is not seen; the other link and generations are as ever.
        round(outside, clock, 1, &[0, 1]);
        wait_until("the other link's packets", || count() == 24);
        control.swap(chains(2, &bench.seen));
        wait_until("the swap", || control.running().0 == 2);
        for (slot, outside) in slots.iter().zip(outside.iter_mut()) {
            let (source, others) = source(clock);
            *outside = others;
            slot.offer(source);
        }
        round(outside, clock, 2, &[0, 1]);
        wait_until("both links' packets again", || count() == 40);
    })
    .unwrap();
    let balance = rig.balance();
    assert!(balance.is_exact(), "{balance:?}");
    // Flows of before the gap went on, each with its own link's packets.
    let mut flows = rig.log.flows.lock().unwrap().clone();
    flows.sort_unstable();
    let by_link: Vec<u64> = rig
        .drivers
        .chunks(2)
        .map(|drivers| drivers.iter().map(|driver| driver.station.worker().counters().packets).sum())
        .collect();
    assert!(by_link[0] < by_link[1], "{by_link:?}");
    assert_eq!(by_link[0] * 3, by_link[1] * 2, "{by_link:?}");
    assert!(!flows.is_empty() && flows.iter().all(|packets| *packets >= 2), "{flows:?}");
}

#[test]
fn workers_tell_of_their_flows_part_by_part_while_traffic_goes_on() {
    let bench = bench(true, "no");
    let mut rig = rig(&bench, 2, 4_000);
    let seen = Arc::clone(&bench.seen);
    let flows = 8 * PART;
    rig.run(|outside, control, clock| {
        let ask = |question: Question| {
            let mut collector = control.query(question).expect("room for a question");
            assert!(collector.collect(|| LIMIT), "all answer");
            let (answer, late) = collector.finish();
            assert!(late.is_empty(), "{late:?}");
            answer
        };
        let mut before = 0;
        for flow in 0..flows {
            for frame in marked_saying(false, flow, 0, Shape::Plain, b"") {
                arrive(outside, clock, flow as usize % 2, PairSide::A, &frame);
            }
            if flow % (PART / 2) == 0 {
                let levels = ask(Question::Levels).levels;
                assert!(levels.flows >= before && levels.flows <= u64::from(flow) + 1, "{levels:?}");
                before = levels.flows;
            }
        }
        wait_until("all packets are seen", || seen.lock().unwrap().len() as u32 == flows);
        // Idle workers as well, and several questions at once.
        let mut collectors: Vec<_> = (0..5).map(|_| control.query(Question::Levels).unwrap()).collect();
        for mut collector in collectors.drain(..) {
            assert!(collector.collect(|| LIMIT));
            let levels = collector.finish().0.levels;
            assert_eq!((levels.flows, levels.moving), (u64::from(flows), 0));
            assert_eq!(
                (levels.levels["host"], levels.stays["no_device"]),
                (u64::from(flows), u64::from(flows))
            );
        }
        let one = FlowsWanted {
            protocol: Some(17),
            ends: [Some(([192, 0, 2, 1].into(), None)), None],
            ..FlowsWanted::default()
        };
        let all = ask(Question::Flows(FlowsWanted::default()));
        assert_eq!(
            (all.flows.len(), all.omitted),
            (2 * FLOWS_TOLD, u64::from(flows) - 2 * FLOWS_TOLD as u64)
        );
        let wanted = all.flows.last().expect("flows");
        let number = FlowsWanted { number: Some(wanted.flow_id), ..FlowsWanted::default() };
        let told = ask(Question::Flows(number));
        assert_eq!(told.flows.iter().map(|flow| flow.flow_id).collect::<Vec<_>>(), [wanted.flow_id]);
        assert_eq!(
            (wanted.level, wanted.course, wanted.path.as_slice()),
            ("host", "judged", &["watch", "find"][..])
        );
        assert_eq!(wanted.levels["host"].pkts_toserver, 1);
        // From either side, with a port or without.
        let ends = &wanted.ends;
        let (client, server) = ((ends.src_ip, Some(ends.src_port)), (ends.dest_ip, None));
        for ends in [[Some(client), Some(server)], [Some(server), Some(client)], [Some(client), None]] {
            let told = ask(Question::Flows(FlowsWanted { ends, ..FlowsWanted::default() }));
            assert!(told.flows.iter().any(|flow| flow.flow_id == wanted.flow_id), "{ends:?}");
            assert_eq!(told.flows.len(), 1, "{ends:?}");
        }
        assert_eq!(ask(Question::Flows(one)).flows.len(), 0);
        // Who asks and goes keeps nobody from anything.
        drop(control.query(Question::Levels));
        assert_eq!(ask(Question::Levels).levels.flows, u64::from(flows));
    })
    .unwrap();
    // After the end nobody answers, and so many questions wait.
    let mut asked = 0;
    while let Some(mut collector) = rig.control.query(Question::Levels) {
        assert!(!collector.collect(|| Duration::ZERO));
        assert_eq!(collector.finish().1, [WorkerId(0), WorkerId(1)]);
        asked += 1;
    }
    assert_eq!(asked, bartizan_dataplane::driver::inquiry::QUESTIONS);
}
