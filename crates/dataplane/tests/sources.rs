// SPDX-License-Identifier: Apache-2.0
//! The contract of sources, held by the smallest one: it plays back recorded frames and is only watched.

use crate::common::{Captured, Nothing, bench, ethernet, ip, udp};

use bartizan_base::{PacketDuration, Timestamp};
use bartizan_dataplane::driver::{Control, Driver, LiveError, LiveOptions, run_drivers};
use bartizan_dataplane::handover::Station;
use bartizan_dataplane::source::{Arrivals, Slot, Source, Taken};
use bartizan_dataplane::worker::Worker;
use bartizan_packet::Checksums;
use bartizan_ports::{PortError, PortStats, Waker, Woke, packet_clock, wait_any};
use std::sync::Arc;
use std::time::Duration;

/// Frames that are handed out in order, at most a batch at a time.
struct Playback {
    frames: Vec<Captured>,
    next: usize,
    batch: usize,
    /// Whether the source fails after its last frame.
    fails: bool,
}

impl Playback {
    fn of(frames: Vec<Captured>) -> Self {
        Playback { frames, next: 0, batch: 0, fails: false }
    }
}

impl Source for Playback {
    fn begin(&mut self, _worker: &mut Worker, batch: usize) {
        self.batch = batch;
    }

    fn take(&mut self, arrivals: &mut Arrivals<'_>) -> Result<Taken, PortError> {
        let end = self.frames.len().min(self.next + self.batch);
        let mut taken = Taken::default();
        for frame in &self.frames[self.next..end] {
            arrivals.watch(&frame.frame(1), Checksums::Unknown);
            taken.frames += 1;
            taken.newest = frame.now;
        }
        self.next = end;
        if taken.frames == 0 && self.fails {
            return Err(PortError::Gone { name: "playback".to_owned() });
        }
        Ok(taken)
    }

    fn each_port(&mut self, each: &mut dyn FnMut(&str, &PortStats, u64)) {
        let stats = PortStats { received: self.next as u64, ..PortStats::default() };
        each("playback", &stats, 0);
    }

    fn now(&mut self) -> Timestamp {
        packet_clock()
    }

    fn visible_until(&mut self) -> (Timestamp, PacketDuration) {
        (packet_clock(), PacketDuration::ZERO)
    }

    fn busy_poll(&mut self, else_ready: &dyn Fn() -> bool, _spin: Duration) -> bool {
        self.next < self.frames.len() || else_ready()
    }

    fn wait(&mut self, waker: Option<&Waker>, timeout: Duration) -> Result<Woke, PortError> {
        wait_any(&mut [], waker, Duration::ZERO, timeout)
    }
}

/// Datagrams of `flows` flows, `each` of every one, from the port `first` on.
fn datagrams(first: u16, flows: u16, each: u16) -> Vec<Captured> {
    let now = packet_clock();
    let frame =
        |port| Captured { now, bytes: ethernet(false, &ip(false, (1, 2), 17, &udp((port, 53), b"x"))) };
    (0..flows * each).map(|number| frame(first + number % flows)).collect()
}

/// A counter of a worker by its name in `stats`.
fn stat(driver: &Driver<Box<Nothing>>, name: &str) -> u64 {
    let mut sum = 0;
    driver.station.worker().visit_stats(|of, value| sum += if of == name { value } else { 0 });
    sum
}

fn options() -> LiveOptions {
    LiveOptions { batch: 16, spin: Duration::ZERO, tick: Duration::from_millis(10), ..LiveOptions::default() }
}

fn driver(source: Playback) -> Driver<Box<Nothing>> {
    let bench = bench(true, "no");
    let (settings, engine, chains) =
        (bench.engine_settings.clone(), Arc::clone(&bench.engine), Arc::clone(&bench.chains));
    let worker = Worker::new(settings, engine, chains).unwrap();
    Driver::new(Station::alone(worker), Box::new(source), Box::new(Nothing))
}

#[test]
fn frames_of_a_source_become_flows_and_are_counted_as_its_own() {
    let mut driver = driver(Playback::of(datagrams(1000, 10, 7)));
    let control = Control::new().unwrap();
    control.stop();
    driver.run(&options(), &control).unwrap();
    assert!(!driver.forwards());
    assert_eq!(driver.station.worker().counters().packets, 70);
    assert_eq!(stat(&driver, "flow.total"), 10);
    let mut received = 0;
    driver.each_port(|_, stats, _| received += stats.received);
    assert_eq!(received, 70);
    assert_eq!(driver.counters.turns, 5, "70 frames, 16 a turn");
}

#[test]
fn the_end_of_a_source_without_a_slot_is_the_end_of_the_run() {
    let mut drivers = [driver(Playback { fails: true, ..Playback::of(datagrams(1000, 1, 40)) })];
    let control = Control::new().unwrap();
    let ended = run_drivers(&mut drivers, &options(), &control, |has_ended| {
        while !has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    assert!(matches!(ended, Err(LiveError::Port(PortError::Gone { name })) if name == "playback"));
    assert_eq!(drivers[0].station.worker().counters().packets, 40);
}

#[test]
fn a_worker_with_a_slot_goes_on_with_another_source_and_keeps_its_flows() {
    let slot: Arc<Slot<Box<dyn Source>>> = Arc::default();
    let mut drivers = [driver(Playback { fails: true, ..Playback::of(datagrams(1000, 10, 2)) })];
    drivers[0].slot = Some(Arc::clone(&slot));
    let control = Control::new().unwrap();
    let wait = |done: &dyn Fn() -> bool| {
        let began = std::time::Instant::now();
        while !done() {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not come about");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    run_drivers(&mut drivers, &options(), &control, |_| {
        wait(&|| slot.is_empty());
        assert!(matches!(slot.take_failure(), Some(PortError::Gone { .. })), "the reason is handed on");
        assert!(slot.take_failure().is_none(), "once");
        // Five of its flows are those of before.
        slot.offer(Box::new(Playback { fails: true, ..Playback::of(datagrams(1005, 10, 3)) }));
        wait(&|| slot.is_empty());
        control.stop();
    })
    .unwrap();
    assert_eq!(drivers[0].station.worker().counters().packets, 20 + 30);
    assert_eq!(stat(&drivers[0], "flow.total"), 15);
    let mut ports = Vec::new();
    drivers[0].each_port(|name, stats, _| ports.push((name.to_owned(), stats.received)));
    assert_eq!(ports, [("playback".to_owned(), 50)], "the counters of both sources are one port's");
}
