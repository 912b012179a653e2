// SPDX-License-Identifier: Apache-2.0
//! The loop of a live worker, and the threads of several: on one link or on many, each worker with ports of
//! its own. Frames of flows that another worker of the link owns are handed over between them
//! ([`crate::handover`]) and leave by the owner's ports.
//!
//! A turn of a worker: take the frames that each port has, handle them, send them; then the same with the
//! frames that others handed over. When one worker ends (a port is gone, a defect), all end: each takes what
//! was handed over to it, until nothing is on its way. Workers with a [`Berth`] do not end with their ports:
//! they wait for others.
//!
//! What becomes of every frame is counted, and [`Balance`] holds the sums against each other.
//!
//! Flows move to other workers of their link when somebody asks for it ([`Control::move_flow`]).
//!
//! Not done: whoever asks, because one worker has much to do and another one little.

use super::berth::{Retired, retire};
use super::control::Control;
use super::exits::{self, Exits};
use super::unsent::UnsentFrames;
use super::{
    LastTurns, LiveCounters, LiveOptions, Rejecter, checksums_of, fill_in_checksums, frame_of, is_followed,
    is_to_be_cut, look_ahead, newest_of, release, send_as_segments, send_large, send_released, settle,
    take_apart,
};
use crate::handover::{Handled, Station, connect};
use crate::worker::{Worker, WorkerCounters};
use crate::workers::share_of;
use bartizan_applayer::flow::Engine;
use bartizan_base::{Decision, LinkId, Timestamp, Verdict, WorkerId};
use bartizan_flow::TableError;
use bartizan_ports::{
    Awake, Batch, FrameFlags, FrameInfo, MergedTap, PortError, PortStats, Segmentation, Side, Woke,
    stay_on_processor,
};
use bartizan_stages::chain::Chains;
use bartizan_stages::moving::Chance;
use bartizan_stages::normaliser;
use bartizan_stages::record::Recorder;
use bartizan_stages::settings::EngineSettings;
use std::ops::DerefMut;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

pub use super::berth::{Berth, Ports};

/// Frames that a worker can have under way to others at one time.
pub const PARCELS: usize = 2048;
/// The side that a frame came in by, in its parcel's tag.
const SIDE_B: u32 = 1;
/// The frame may not leave as it is: only its first bytes are here, or it is several datagrams.
const INCOMPLETE: u32 = 2;
/// From here on where the header begins that segments repeat, so many at most.
const HEADER: u32 = 2;
const HEADER_MOST: u16 = 0x3fff;
/// From here on the size that its sender told.
const TOLD: u32 = 16;

/// One of several workers, with all that it needs.
pub struct Post<R> {
    /// The worker and its rings to the others of its link.
    pub station: Station,
    /// Where its packets come from.
    pub ports: Ports,
    /// The recorder of its events: a box with it, or a reference to it.
    pub recorder: R,
    /// What it counted besides.
    pub counters: LiveCounters,
    /// The processor that its thread stays on, as one of those that the process may use.
    pub processor: Option<usize>,
    /// What its packets come in by.
    pub link: LinkId,
    /// Number of its link's first worker among those of all links.
    pub first: u16,
    /// Where it gets other ports when these are gone; of a tap of several interfaces one for each. None: the
    /// end of its ports is the end of all.
    pub berths: Vec<Arc<Berth>>,
    /// For tests: moves one of its flows at random at each turn.
    pub chance: Option<Chance>,
    /// Frames leave by its ports; else they are only watched.
    forwards: bool,
    retired: Vec<Retired>,
    /// Its flows have ended and are recorded.
    has_ended: bool,
}

impl<R> Post<R> {
    /// A worker of the only link.
    pub fn new(station: Station, ports: Ports, recorder: R) -> Self {
        Post {
            station,
            forwards: matches!(ports, Ports::Inline(_)),
            ports,
            recorder,
            counters: LiveCounters::default(),
            processor: None,
            link: LinkId(0),
            first: 0,
            berths: Vec::new(),
            chance: None,
            retired: Vec::new(),
            has_ended: false,
        }
    }

    /// Whether frames leave by its ports; else they are only watched.
    pub const fn forwards(&self) -> bool {
        self.forwards
    }

    /// Its number among the workers of all links.
    fn number(&self) -> WorkerId {
        WorkerId(self.first.saturating_add(self.station.id().0))
    }

    /// Each of its ports: name, what it and those before it have counted, frames that wait there.
    pub fn each_port(&mut self, mut each: impl FnMut(&str, &PortStats, u64)) {
        let Post { ports, retired, .. } = self;
        if matches!(ports, Ports::Away) {
            retired.iter().for_each(|port| each(&port.name, &port.stats, port.waiting));
        }
        let mut before = retired.iter();
        ports.each(|name, stats, waiting| match before.next() {
            Some(known) => each(name, &known.stats.plus(stats), known.waiting + waiting),
            None => each(name, stats, waiting),
        });
    }
}

/// Where the workers of a link stand among those of all links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Number of the link's first worker.
    pub first: u16,
    /// Workers of the link.
    pub count: u16,
    /// Workers of all links.
    pub all: u16,
}

/// Why workers ended that nobody stopped.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// A port failed for good.
    #[error(transparent)]
    Port(#[from] PortError),
    /// There is no thread.
    #[error("cannot start worker {worker}: {source}; ask for fewer with --workers")]
    Thread {
        /// Worker.
        worker: u16,
        /// What the system said.
        source: std::io::Error,
    },
    /// A worker ended by a defect.
    #[error(
        "worker {worker} ended by a defect in the program ({lost} frames were on their way between workers and are \
         lost); please report it"
    )]
    Defect {
        /// Worker.
        worker: u16,
        /// Frames that were on their way between workers.
        lost: u64,
    },
}

/// Makes the stations of so many workers. Limits of `settings` are those of all together; `parcels` frames of
/// each can be under way to others.
///
/// # Errors
/// A flow table cannot be reserved.
pub fn stations(
    settings: &EngineSettings,
    engine: &Arc<Engine>,
    chains: &Arc<Chains>,
    count: u16,
    parcels: usize,
) -> Result<Vec<Station>, TableError> {
    let count = count.max(1);
    stations_of(settings, engine, chains, Places { first: 0, count, all: count }, parcels)
}

/// [`stations`] of one of several links: connected with each other, not with those of other links. Limits of
/// `settings` are those of the workers of all links.
///
/// # Errors
/// A flow table cannot be reserved.
pub fn stations_of(
    settings: &EngineSettings,
    engine: &Arc<Engine>,
    chains: &Arc<Chains>,
    places: Places,
    parcels: usize,
) -> Result<Vec<Station>, TableError> {
    let all = places.all.max(1);
    let mut share = share_of(settings, all);
    share.defrag.memory = settings.defrag.memory.div_ceil(all.into());
    share.defrag.max_trackers = settings.defrag.max_trackers.div_ceil(all.into());
    share.defrag.max_fragments = settings.defrag.max_fragments.div_ceil(all.into());
    let workers = (0..places.count.max(1))
        .map(|index| {
            let mut worker = Worker::new(share.clone(), Arc::clone(engine), Arc::clone(chains))?;
            worker.number_flows(WorkerId(places.first.saturating_add(index)));
            Ok(worker)
        })
        .collect::<Result<Vec<_>, TableError>>()?;
    Ok(connect(workers, settings, parcels))
}

/// Runs all workers until the control says stop or one of them fails; their flows are ended then. `steer`
/// runs in this thread meanwhile; it gets a question to ask, whether the workers have ended, and returns when
/// they have.
///
/// # Errors
/// The first failure of a worker, by its number.
pub fn run_together<R: DerefMut<Target: Recorder + Sized> + Send>(
    posts: &mut [Post<R>],
    options: &LiveOptions,
    control: &Control,
    steer: impl FnOnce(&dyn Fn() -> bool),
) -> Result<(), LiveError> {
    let mut failure = None;
    std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(posts.len());
        for post in posts.iter_mut() {
            let worker = post.number().0;
            let builder = std::thread::Builder::new().name(format!("worker-{worker}"));
            let body = move || {
                let _all = Ender(control);
                post.run(options, control)
            };
            match builder.spawn_scoped(scope, body) {
                Ok(thread) => threads.push((worker, thread)),
                Err(source) => {
                    failure = Some(LiveError::Thread { worker, source });
                    // Its station never opens, so the others must not wait for it.
                    control.set_broken();
                    control.stop();
                    break;
                }
            }
        }
        let fallen = Fallen(control);
        steer(&|| threads.iter().all(|(_, thread)| thread.is_finished()));
        drop(fallen);
        for (worker, thread) in threads {
            let error = match thread.join() {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => LiveError::Port(error),
                Err(_) => LiveError::Defect { worker, lost: 0 },
            };
            // A defect says more than the ports that may have failed with it.
            if failure.is_none() || matches!(error, LiveError::Defect { .. }) {
                failure = Some(error);
            }
        }
    });
    if matches!(failure, Some(LiveError::Defect { .. })) {
        posts.iter_mut().for_each(Post::end_after_defect);
    }
    let mut under_way = 0;
    // The first worker of each link speaks for all of that link.
    for post in posts.iter_mut().filter(|post| post.station.id() == WorkerId(0)) {
        post.counters.under_way = post.station.under_way();
        under_way += post.counters.under_way;
    }
    match failure {
        None => Ok(()),
        Some(LiveError::Defect { worker, .. }) => Err(LiveError::Defect { worker, lost: under_way }),
        Some(error) => Err(error),
    }
}

/// Who steers ended by a defect: nobody else would end the workers.
struct Fallen<'c>(&'c Control);

impl Drop for Fallen<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

/// The end of one worker is the end of all, however it comes.
struct Ender<'c>(&'c Control);

impl Drop for Ender<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set_broken();
        }
        self.0.stop();
    }
}

impl<R: DerefMut<Target: Recorder + Sized>> Post<R> {
    /// Runs the worker in this thread until the control says stop, and ends its flows.
    ///
    /// # Errors
    /// A port fails for good, and there is no [`Berth`] to get another one from.
    pub fn run(&mut self, options: &LiveOptions, control: &Control) -> Result<(), PortError> {
        if let Some(processor) = self.processor {
            // Where the kernel refuses, it goes without.
            let _ = stay_on_processor(processor);
        }
        let me = self.number();
        let mut hands = Hands::new(options, self.station.worker());
        // Who only watches delays nobody.
        let mut awake = if self.forwards { options.awake() } else { Awake::default() };
        let mut result = Ok(());
        let mut last = LastTurns::default();
        while last.goes_on(control, || self.ports.shows()) && result.is_ok() {
            control.take(me, self.station.worker_mut());
            self.recorder.turn();
            // What is refused is counted.
            control.take_moves(me, |key, to| {
                let _ = self.station.move_flow(key, to);
            });
            if let Some(random) = self.chance.as_mut().map(Chance::draw) {
                // As above.
                let _ = self.station.move_at_random(random);
            }
            if self.station.worker().is_asked() {
                self.show();
            }
            self.change_ports(&mut hands);
            if self.station.worker().has_level() {
                let now = self.ports.now();
                self.station.worker_mut().drive_level(now, &mut *self.recorder);
            }
            let turn = self.turn(control, &mut hands);
            last.saw(turn.as_ref().copied().unwrap_or(0), hands.newest);
            result = match turn {
                Ok(0) if control.stopping() => Ok(()),
                Ok(0) => self.rest(options, control).map(|woke| {
                    if woke == Some(Woke::Timeout) {
                        awake.silence();
                    }
                }),
                Ok(_) => {
                    awake.packets();
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = std::mem::replace(&mut result, Ok(())) {
                result = self.let_go(&mut hands, error);
            }
            if hands.unsent.waits() {
                let now = self.ports.now();
                self.tell_unsent(&mut hands, Some(now));
            }
        }
        control.stop();
        self.station.close();
        while !self.station.is_over() && !control.is_broken() {
            match self.parcels(control, &mut hands) {
                Ok(0) => std::thread::sleep(Duration::from_micros(50)),
                Ok(_) => {}
                Err(error) => result = result.and(self.let_go(&mut hands, error)),
            }
        }
        self.tell_unsent(&mut hands, None);
        self.recorder.ending();
        self.station.worker_mut().shutdown(&mut *self.recorder);
        self.has_ended = true;
        result
    }

    /// Ends the flows of a worker that a defect ended before it could: their records are written as far as
    /// its state allows.
    fn end_after_defect(&mut self) {
        if !self.has_ended {
            let _ = catch_unwind(AssertUnwindSafe(|| {
                self.recorder.ending();
                self.station.worker_mut().shutdown(&mut *self.recorder);
            }));
        }
    }

    /// Ports failed: their worker goes on without them where it may get others.
    fn let_go(&mut self, hands: &mut Hands, error: PortError) -> Result<(), PortError> {
        let whole = !matches!(self.ports, Ports::Merged(_));
        let Some(berth) = self.berths.first().filter(|_| whole).cloned() else { return Err(error) };
        self.leave_ports(hands);
        berth.left(Some(error));
        Ok(())
    }

    /// Lets go of the ports if that is asked for, and takes others if there are some.
    fn change_ports(&mut self, hands: &mut Hands) {
        if let Ports::Merged(tap) = &mut self.ports {
            self.berths.iter().enumerate().for_each(|(at, berth)| change_source(tap, at, berth));
            return;
        }
        let Some(berth) = self.berths.first() else { return };
        if !matches!(self.ports, Ports::Away) {
            if berth.is_to_be_left() {
                let berth = Arc::clone(berth);
                self.leave_ports(hands);
                berth.left(None);
            }
        } else if let Some(ports) = berth.take() {
            self.ports = ports;
        }
    }

    fn leave_ports(&mut self, hands: &mut Hands) {
        self.tell_unsent(hands, None);
        // Frames of a ring that goes with its port.
        hands.batch.clear();
        retire(&mut self.ports, &mut self.retired);
    }

    /// Records what ports did not take, as far as it is due.
    fn tell_unsent(&mut self, hands: &mut Hands, now: Option<Timestamp>) {
        let Post { station, ports, recorder, .. } = self;
        if let Ports::Inline(pair) = ports {
            let recorder = &mut **recorder;
            hands.unsent.tell(now, pair, station.worker().generation(), recorder);
        }
    }

    /// Shows what was counted to who asked for it.
    fn show(&mut self) {
        let mut ports = Vec::new();
        self.each_port(|name, stats, _| ports.push((name.to_owned(), *stats)));
        let Post { station, counters, .. } = self;
        station.worker().show(|snapshot| {
            snapshot.live = *counters;
            snapshot.hand_over = station.counters();
            snapshot.ports = ports;
        });
    }

    /// Takes what is there. Gives the number of frames.
    fn turn(&mut self, control: &Control, hands: &mut Hands) -> Result<usize, PortError> {
        let Post { station, ports, recorder, counters, link, first, .. } = self;
        let (link, first, recorder) = (*link, *first, &mut **recorder);
        station.shed_by(|| ports.backlog());
        let mut seen = 0;
        match ports {
            Ports::Inline(pair) => {
                let Hands { batch, rejecters, changed, unsent, .. } = &mut *hands;
                for (side, rejecter) in Side::BOTH.into_iter().zip(rejecters) {
                    let (ingress, egress, exits) = pair.ways(side);
                    if ingress.receive(batch)? == 0 {
                        continue;
                    }
                    let frames = take_apart(batch, rejecter, counters);
                    fill_in_checksums(batch, counters);
                    seen += frames;
                    for index in 0..frames {
                        look_ahead(station.worker(), batch, index, (link, side as u32));
                        let Some((frame, info)) = frame_of(batch, index, link) else { continue };
                        let tag = tag_of(side, info);
                        station.worker_mut().arrives_with(checksums_of(info.flags));
                        let follows = is_followed(station.worker(), batch, index);
                        let handled = station.frame_in_batch(&frame, tag, follows, recorder);
                        let worker = station.worker_mut();
                        let mut exits = Exits { ports: &mut *exits, unsent: &mut *unsent };
                        let here = match handled {
                            Some(Handled::Here(decision)) => Some(decision),
                            _ => None,
                        };
                        let way = (side, here.and_then(|decision| decision.egress));
                        let held = (&mut *changed, &mut exits);
                        send_released(worker, egress, Some(&mut *batch), way, held, rejecter, counters);
                        if let Some(decision) = here {
                            settle(worker, batch, index, &decision, &mut exits, rejecter, counters);
                        }
                        let first = index.saturating_sub(worker.waiting());
                        release(worker, batch, index, link, recorder);
                        send_large(egress, batch, first..=index, rejecter, counters);
                    }
                    egress.transmit(batch);
                    unsent.note_batch(side, batch);
                    egress.flush()?;
                    exits::flush(exits);
                    batch.clear();
                    rejecter.send(ingress);
                }
            }
            Ports::Passive(port) => {
                let [rejecter, _] = &mut hands.rejecters;
                port.receive(&mut hands.batch)?;
                hands.newest = newest_of(&hands.batch);
                seen = take_apart(&mut hands.batch, rejecter, counters);
                for index in 0..seen {
                    let Some((frame, info)) = frame_of(&hands.batch, index, link) else { continue };
                    if info.flags.contains(FrameFlags::DUPLICATE) {
                        counters.duplicates += 1;
                        continue;
                    }
                    station.worker_mut().arrives_with(checksums_of(info.flags));
                    station.frame(&frame, 0, recorder);
                }
                hands.batch.clear();
            }
            Ports::Merged(tap) => {
                let [rejecter, _] = &mut hands.rejecters;
                tap.look_again();
                while seen < hands.batch.capacity() {
                    let taken = tap.next(control.stopping(), &mut |batch| {
                        take_apart(batch, rejecter, counters);
                    });
                    let Some(taken) = taken else { break };
                    seen += 1;
                    let frame = tap.batch(taken.source).and_then(|batch| frame_of(batch, taken.index, link));
                    let Some((frame, info)) = frame else { continue };
                    hands.newest = info.timestamp;
                    if taken.duplicate {
                        counters.duplicates += 1;
                        continue;
                    }
                    station.worker_mut().arrives_with(checksums_of(info.flags));
                    station.frame(&frame, 0, recorder);
                }
            }
            Ports::Away => {}
        }
        counters.turns += u64::from(seen > 0);
        control.wake(first, station.take_touched());
        Ok(seen + self.parcels(control, hands)?)
    }

    /// Handles what others handed over, and sends what may leave. Gives the number of frames.
    fn parcels(&mut self, control: &Control, hands: &mut Hands) -> Result<usize, PortError> {
        if !self.station.has_parcels() {
            return Ok(0);
        }
        let Post { station, ports, recorder, counters, first, forwards, .. } = self;
        let (first, forwards, recorder) = (*first, *forwards, &mut **recorder);
        let Hands { batch, rejecters: [one, other], changed, unsent, .. } = hands;
        let mut used = [false; 2];
        let taken = station.handed_over(batch.capacity(), recorder, |worker, frame, decision, tag| {
            let pair = match ports {
                Ports::Inline(pair) => pair,
                Ports::Away if forwards => return gone(worker, decision, changed, counters),
                _ => return,
            };
            let (side, rejecter) =
                if tag & SIDE_B == 0 { (Side::A, &mut *one) } else { (Side::B, &mut *other) };
            let [a, b] = &mut used;
            *(if side == Side::A { a } else { b }) = true;
            let (_, egress, exits) = pair.ways(side);
            let mut exits = Exits { ports: exits, unsent: &mut *unsent };
            let held = (&mut *changed, &mut exits);
            send_released(worker, egress, None, (side, decision.egress), held, rejecter, counters);
            if decision.verdict == Verdict::Reject {
                rejecter.make(frame.bytes, &mut counters.normaliser);
            }
            if !decision.verdict.forwards() {
                return;
            }
            let mut bytes = frame.bytes;
            if let Some(change) = worker.take_rewrite() {
                changed.clear();
                changed.extend_from_slice(frame.bytes);
                let longer = &mut rejecter.longer;
                let done = normaliser::rewrite(changed, &change, longer, &mut counters.normaliser);
                if !longer.is_empty() {
                    core::mem::swap(changed, longer);
                }
                worker.reuse_rewrite(change);
                if !done {
                    counters.unwritable += 1;
                    return;
                }
                bytes = changed;
            }
            if tag & INCOMPLETE != 0 {
                counters.incomplete += 1;
                return;
            }
            let told =
                Segmentation { size: (tag >> TOLD) as u16, header: (tag >> HEADER) as u16 & HEADER_MOST };
            if let Some(to) = decision.egress {
                exits.send(to, (bytes, told, frame.now), rejecter, counters);
                return;
            }
            if is_to_be_cut(bytes, told.size, egress)
                && send_as_segments(egress, bytes, told, rejecter, counters)
            {
                return;
            }
            // The port counts it as well.
            if let Err(refusal) = egress.transmit_frame(bytes) {
                exits.unsent.note(side, refusal, bytes, frame.now);
            }
        });
        if let Ports::Inline(pair) = ports {
            exits::flush(pair.exits());
            for ((side, used), rejecter) in Side::BOTH.into_iter().zip(used).zip([one, other]) {
                let (ingress, egress) = pair.direction(side);
                if used {
                    egress.flush()?;
                }
                rejecter.send(ingress);
            }
        }
        control.wake(first, station.take_touched());
        Ok(taken)
    }

    /// Nothing was there: time passes, then sleeps until something is. Says why a sleep ended.
    fn rest(&mut self, options: &LiveOptions, control: &Control) -> Result<Option<Woke>, PortError> {
        let Post { station, ports, recorder, first, .. } = self;
        let me = WorkerId(first.saturating_add(station.id().0));
        let now = ports.now();
        let more = station.worker_mut().idle(now, &mut **recorder);
        let has_parcels = || station.has_parcels();
        if more || ports.look(&has_parcels, options.spin) {
            return Ok(None);
        }
        let waker = control.waker(me);
        let tick = options.sleep_of(station.worker());
        let sleep = || ports.wait(waker, tick);
        let woke = control.sleeping(me, has_parcels, sleep).transpose()?;
        // After a short sleep nobody knows yet whether it is silent.
        Ok(woke.filter(|_| tick == options.tick))
    }
}

/// Lets go of the port of one of a tap's interfaces if that is asked for or it failed, and takes another one
/// if there is one.
fn change_source(tap: &mut MergedTap, at: usize, berth: &Berth) {
    if let Some(why) = tap.take_left(at) {
        berth.left(why);
    }
    if tap.has_port(at) {
        if berth.is_to_be_left() {
            tap.leave(at);
        }
    } else if let Some(Ports::Passive(port)) = berth.take() {
        tap.take_up(at, port);
    }
}

/// What is decided of a frame whose link is gone: those that were to leave, it and what was held for it, are
/// lost.
fn gone(worker: &mut Worker, decision: Decision, room: &mut Vec<u8>, counters: &mut LiveCounters) {
    counters.normaliser = counters.normaliser.plus(worker.take_normalised());
    while worker.take_released(room).is_some() {
        counters.gone += 1;
    }
    if let Some(change) = worker.take_rewrite() {
        worker.reuse_rewrite(change);
    }
    counters.gone += u64::from(decision.verdict.forwards());
}

fn tag_of(side: Side, info: &FrameInfo) -> u32 {
    let incomplete = if info.refusal().is_err() { INCOMPLETE } else { 0 };
    let side = if side == Side::B { SIDE_B } else { 0 };
    let Segmentation { size, header } = info.segmentation;
    // Farther behind it is not known.
    let header = if header <= HEADER_MOST { header } else { 0 };
    u32::from(size) << TOLD | u32::from(header) << HEADER | incomplete | side
}

/// What a worker works with.
struct Hands {
    batch: Batch,
    /// By side.
    rejecters: [Rejecter; 2],
    /// A frame that is changed before it leaves.
    changed: Vec<u8>,
    unsent: UnsentFrames,
    /// Time of the newest frame that was watched.
    newest: Timestamp,
}

impl Hands {
    fn new(options: &LiveOptions, worker: &Worker) -> Self {
        Hands {
            batch: Batch::with_capacity(options.batch),
            rejecters: [Rejecter::new(worker), Rejecter::new(worker)],
            changed: Vec::new(),
            unsent: UnsentFrames::default(),
            newest: Timestamp::ZERO,
        }
    }
}

/// Where the frames of an inline run went, summed over workers and ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Handed out by the ports, and what was made by taking datagrams apart.
    pub received: u64,
    /// Decided to leave.
    pub forwarded: u64,
    /// Refused, by whatever reason.
    pub refused: u64,
    /// Under way between workers when one of them ended by a defect.
    pub under_way: u64,
    /// Watched ones that were not looked at: the second of a pair.
    pub duplicates: u64,
    /// Made by the normaliser: answers to rejected packets, segments beyond the first of a large frame.
    pub made: u64,
    /// Given to devices.
    pub sent: u64,
    /// Refused by the port that they were to leave by.
    pub not_sent: u64,
    /// Waiting in a transmit ring at the end.
    pub waiting: u64,
    /// Were to leave, and could not be: a change did not fit, only a part of the frame was here, or their
    /// link was gone.
    pub not_given: u64,
}

impl Balance {
    /// Adds a worker with its ports.
    pub fn add(&mut self, counters: &WorkerCounters, live: &LiveCounters) {
        self.received += live.normaliser.datagrams;
        self.forwarded += counters.forwarded + counters.let_go;
        self.refused += counters.refused.iter().sum::<u64>().saturating_sub(counters.let_go);
        self.under_way += live.under_way;
        self.duplicates += live.duplicates;
        self.made += live.normaliser.resets + live.normaliser.unreachables + live.normaliser.pieces;
        self.not_given += live.unwritable + live.incomplete + live.gone;
    }

    /// Adds a port.
    pub fn add_port(&mut self, stats: &PortStats, waiting: u64) {
        self.received += stats.received;
        self.sent += stats.sent;
        self.not_sent += stats.send_failures.total();
        self.waiting += waiting;
    }

    /// The first half, all there is where frames are only watched: received = forwarded + refused + under way
    /// + duplicates.
    #[must_use]
    pub const fn is_taken(&self) -> bool {
        self.received == self.forwarded + self.refused + self.under_way + self.duplicates
    }

    /// Whether every frame is in one place: received = forwarded + refused + under way, and forwarded + made
    /// = sent + not sent + waiting + not given.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.is_taken()
            && self.forwarded + self.made == self.sent + self.not_sent + self.waiting + self.not_given
    }
}
