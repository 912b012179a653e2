// SPDX-License-Identifier: Apache-2.0
//! A live run's workers: one in a thread with the recorder at hand, or several whose events another thread writes.

use crate::error::Failure;
use bartizan_applayer::flow::Engine;
use bartizan_base::{LinkId, Timestamp};
use bartizan_dataplane::board::Board;
use bartizan_dataplane::chain::Chains;
use bartizan_dataplane::eve::EveRecorder;
use bartizan_dataplane::event_ring::{
    EventReceiver, EventSender, RING_BYTES, RingCounters, WhenFull, event_ring, write_all,
};
use bartizan_dataplane::handover::HandOverCounters;
use bartizan_dataplane::live::together::{Balance, PARCELS, Ports, Post, run_together, stations};
use bartizan_dataplane::live::{Control, LiveCounters, LiveOptions, run_inline, run_passive};
use bartizan_dataplane::settings::EngineSettings;
use bartizan_dataplane::stats::{Counters, Sum, visit_capture};
use bartizan_dataplane::worker::{Worker, WorkerCounters};
use bartizan_dataplane::workers::{add_stats, stats_of};
use bartizan_ports::{PortStats, processors};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// What workers are made of.
pub struct Parts<'p> {
    /// Settings of all together.
    pub settings: EngineSettings,
    /// Application protocols.
    pub engine: Arc<Engine>,
    /// The first generation.
    pub chains: Arc<Chains>,
    /// Ports, for each worker.
    pub ports: Vec<Ports>,
    /// How ports are used.
    pub live: LiveOptions,
    /// How they are steered.
    pub control: &'p Control,
    /// Where they show their counters.
    pub board: Board,
}

/// What is told of a run when it has ended.
pub struct Ended {
    /// Why it ended that nobody stopped.
    pub failure: Option<Failure>,
    /// Counters of all workers.
    pub counters: WorkerCounters,
    /// What live workers count besides.
    pub live: LiveCounters,
    /// What was handed over between workers.
    pub hand_over: HandOverCounters,
    /// All counters of their parts by name.
    pub stats: Counters,
    /// Those of each worker.
    pub threads: Vec<Counters>,
    /// The packet clock.
    pub clock: Timestamp,
    /// Ports by name, each summed over the workers.
    pub ports: BTreeMap<String, PortStats>,
    /// Where all frames went.
    pub balance: Balance,
    /// Frames leave by the ports; else they are only watched.
    pub forwards: bool,
}

/// How long to look for packets before sleeping, unless somebody says: not at all where workers need all processors.
pub fn spin(workers: u16) -> Duration {
    let free = workers == 1 || processors() > usize::from(workers);
    if free { LiveOptions::default().spin } else { Duration::ZERO }
}

/// Runs the workers. `steer` is run beside them; it asks whether they have ended.
pub fn run(
    parts: Parts<'_>,
    recorder: &mut EveRecorder,
    for_worker: impl Fn(EventSender) -> Result<EveRecorder, Failure>,
    steer: impl FnOnce(&dyn Fn() -> bool),
) -> Result<Ended, Failure> {
    if parts.ports.len() > 1 {
        return together(parts, recorder, for_worker, steer);
    }
    let Parts { settings, engine, chains, mut ports, live, control, board } = parts;
    let mut worker = Worker::new(settings, engine, chains).map_err(Failure::stopped)?;
    board.presenter(0).into_iter().for_each(|presenter| worker.set_presenter(presenter));
    let Some(own) = ports.first_mut() else { return Err(Failure::usage("no port to run on")) };
    let result = std::thread::scope(|scope| {
        let working = scope.spawn(|| match own {
            Ports::Inline(pair) => run_inline(&mut worker, pair, LinkId(0), &live, control, recorder),
            Ports::Passive(port) => {
                run_passive(&mut worker, &mut **port, LinkId(0), &live, control, recorder)
            }
        });
        steer(&|| working.is_finished());
        working.join()
    });
    worker.shutdown(recorder);
    let (live, failure) = match result {
        Ok(Ok(live)) => (live, None),
        Ok(Err(error)) => (LiveCounters::default(), Some(Failure::stopped(error))),
        Err(_) => {
            let message = "the worker ended by a defect in the program; please report it";
            (LiveCounters::default(), Some(Failure::stopped(message)))
        }
    };
    let mut ended = Ended { failure, live, clock: worker.clock(), ..Ended::empty() };
    let mut sum = Sum::default();
    ended.add_worker(&worker, &live, &mut sum);
    ports.iter_mut().for_each(|ports| ended.add_ports(ports, &mut sum));
    ended.finish(sum);
    Ok(ended)
}

/// Several workers; a thread more writes their events.
fn together(
    parts: Parts<'_>,
    recorder: &mut EveRecorder,
    for_worker: impl Fn(EventSender) -> Result<EveRecorder, Failure>,
    steer: impl FnOnce(&dyn Fn() -> bool),
) -> Result<Ended, Failure> {
    let Parts { settings, engine, chains, ports, live, control, board } = parts;
    let count = u16::try_from(ports.len()).unwrap_or(u16::MAX);
    let stations = stations(&settings, &engine, &chains, count, PARCELS).map_err(Failure::stopped)?;
    // The control has the generations from here on.
    drop(chains);
    // One processor is left for all else: the kernel's work, the writer, who steers.
    let pinned = processors() > usize::from(count);
    let mut rings: Vec<EventReceiver> = Vec::new();
    let mut posts = Vec::new();
    for (index, (mut station, ports)) in stations.into_iter().zip(ports).enumerate() {
        if let Some(presenter) = u16::try_from(index).ok().and_then(|number| board.presenter(number)) {
            station.worker_mut().set_presenter(presenter);
        }
        let (sender, receiver) = event_ring(RING_BYTES, WhenFull::Lose);
        rings.push(receiver);
        posts.push(Post {
            station,
            ports,
            recorder: for_worker(sender)?,
            counters: LiveCounters::default(),
            processor: pinned.then_some(index + 1),
        });
    }
    let (result, events) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_all(rings, recorder));
        let result = run_together(&mut posts, LinkId(0), &live, control, steer);
        let mut events = RingCounters::default();
        for post in &mut posts {
            events = events.plus(post.recorder.close_ring());
        }
        // A failure of the writer is one of the outputs, which are asked for their problems later.
        let _ = writer.join();
        (result, events)
    });
    let mut ended = Ended { failure: result.err().map(Failure::stopped), ..Ended::empty() };
    let mut sum = Sum::default();
    for post in &mut posts {
        recorder.absorb(&post.recorder);
        ended.clock = ended.clock.max(post.station.worker().clock());
        ended.live = ended.live.plus(&post.counters);
        ended.hand_over = ended.hand_over.plus(post.station.counters());
        ended.add_worker(post.station.worker(), &post.counters, &mut sum);
        ended.add_ports(&mut post.ports, &mut sum);
    }
    ended.hand_over.for_each(|name, value| sum.add(name, value));
    events.for_each(|name, value| sum.add(name, value));
    ended.finish(sum);
    Ok(ended)
}

impl Ended {
    fn empty() -> Self {
        Ended {
            failure: None,
            counters: WorkerCounters::default(),
            live: LiveCounters::default(),
            hand_over: HandOverCounters::default(),
            stats: Counters::new(),
            threads: Vec::new(),
            clock: Timestamp::ZERO,
            ports: BTreeMap::new(),
            balance: Balance::default(),
            forwards: false,
        }
    }

    fn add_worker(&mut self, worker: &Worker, live: &LiveCounters, sum: &mut Sum) {
        self.counters = self.counters.plus(worker.counters());
        self.balance.add(worker.counters(), live);
        self.threads.push(stats_of(worker));
        add_stats(sum, worker);
    }

    /// What is counted beside the workers.
    fn finish(&mut self, mut sum: Sum) {
        self.live.normaliser.for_each(|name, value| sum.add(name, value));
        self.live.for_each_loss(|name, value| sum.add(name, value));
        self.stats = sum.finish();
    }

    fn add_ports(&mut self, ports: &mut Ports, counters: &mut Sum) {
        self.forwards |= matches!(ports, Ports::Inline(_));
        ports.each(|port| {
            let stats = port.stats();
            self.balance.add_port(&stats, port.pending() as u64);
            visit_capture(&stats, |name, value| counters.add(name, value));
            let sum = self.ports.entry(port.name().to_owned()).or_default();
            *sum = sum.plus(&stats);
        });
    }

    /// What became of the frames, for people.
    pub fn print(&self, text: &mut String) {
        let c = &self.counters;
        let refused = c.refused.iter().sum::<u64>() - c.let_go;
        let went_on = c.forwarded + c.let_go;
        // Where nothing is forwarded nothing can be refused.
        let (on, off) = if self.forwards { ("forwarded", "refused") } else { ("inspected", "lost") };
        let _ = writeln!(text, "{} frames, {went_on} {on}, {refused} {off}, {} alerts", c.packets, c.alerts);
        let lost = bartizan_base::Reason::HandOverRing;
        for (reason, count) in bartizan_base::Reason::ALL.iter().zip(c.refused) {
            // In detection only what no worker could take does not go on.
            let would = !self.forwards || c.let_go > 0;
            let word = if *reason == lost || !would { off } else { "would be refused" };
            if count > 0 {
                let _ = writeln!(text, "    {count} {word}: {}", reason.name());
            }
        }
        let mut tell = |name: &str, value: u64| {
            if value > 0 {
                let _ = writeln!(text, "    {value} {name}");
            }
        };
        self.live.normaliser.for_each(&mut tell);
        self.live.for_each_loss(&mut tell);
        self.hand_over.for_each(&mut tell);
        for (name, stats) in &self.ports {
            let _ = write!(
                text,
                "{name}: {} received, {} dropped in the ring",
                stats.received, stats.ring_dropped
            );
            if self.forwards {
                let _ = write!(text, ", {} sent", stats.sent);
            }
            let _ = writeln!(text);
            for (refusal, frames) in stats.send_failures.iter().filter(|(_, frames)| *frames > 0) {
                let _ = writeln!(text, "    {frames} not sent: {}", refusal.name());
            }
        }
        let exact = if self.forwards { self.balance.is_exact() } else { self.balance.is_taken() };
        if self.failure.is_none() && !exact {
            let _ = writeln!(text, "the sums do not agree, please report it: {:?}", self.balance);
        }
    }
}
