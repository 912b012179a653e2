// SPDX-License-Identifier: Apache-2.0
//! A worker: owns flows and runs their packets to completion. Module `passage` defines the handling of a
//! frame; this one holds the state of the stages, and the worker's interface.

mod bytes;
mod datagrams;
mod moving;
mod shown;

use crate::ahead::{AHEAD, Guess};
use crate::board::Presenter;
use crate::inquiry::Inquiry;
use crate::passage::{ENDS_WHEN_IDLE, Passage, credit_early};
use crate::walk::{DatagramRoom, FramePosition, Visitor, Walk, only_packet};
use bartizan_applayer::flow::Engine;
use bartizan_base::turns::CaptureTurn;
use bartizan_base::{Decision, Generation, LinkId, Reason, Timestamp, WorkerId};
use bartizan_flow::{FlowHash, FlowTable, TableError};
use bartizan_function::RuleCount;
use bartizan_offload::{FlowManager, ManagerCounters, OffloadDenied};
use bartizan_packet::{Checksums, Decoded, DecoderConfig};
use bartizan_stages::account::Account;
use bartizan_stages::app_memory::AppMemory;
use bartizan_stages::chain::Chains;
use bartizan_stages::checksums::ChecksumSample;
use bartizan_stages::context::{FrameContext, RunPosition};
use bartizan_stages::flow_ext::FlowExt;
use bartizan_stages::flows::Flows;
use bartizan_stages::frame::PacketPosition;
use bartizan_stages::host_tables::HostCare;
use bartizan_stages::identity::PacketOrigin;
use bartizan_stages::intake::Intake;
use bartizan_stages::intake::fragment::{Fragmented, Settled};
use bartizan_stages::intake::joined::Joined;
use bartizan_stages::leaving::Leaving;
use bartizan_stages::lifecycle::{FunctionEvent, FunctionNow, LifecycleCommand};
use bartizan_stages::normaliser::{NormaliserCounters, Rewrite};
use bartizan_stages::notice::Notice;
use bartizan_stages::observers::Observers;
use bartizan_stages::record::{Entry, Recorder};
use bartizan_stages::runner::Runner;
use bartizan_stages::settings::{ChecksumMode, EngineSettings};
use bartizan_stages::shedding::Shedding;
use shown::TrafficMemory;
use std::sync::Arc;

pub use bartizan_stages::counts::{ExceptionCounters, RefusalCounters, StreamEventCounters, WorkerCounters};
pub use bartizan_stages::frame::Frame;
pub use bytes::{ByteArrival, ByteFlow, ByteFlowState};
pub use datagrams::DatagramArrival;

/// The worker; see the module.
pub struct Worker {
    pub(crate) settings: EngineSettings,
    pub(crate) position: RunPosition,
    pub(crate) checksums: ChecksumSample,
    pub(crate) intake: Intake,
    flows: Flows,
    runner: Runner,
    account: Account,
    shedding: Shedding,
    leaving: Leaving,
    hosts: HostCare,
    presenter: Option<Presenter>,
    /// The walk over a frame with several packets.
    walk: Walk,
    /// The query about flows that the worker is answering.
    pub(crate) inquiry: Option<Box<Inquiry>>,
    /// The packet that a datagram without headers becomes.
    datagram: Vec<u8>,
    /// Memory held at the end of the run, before the flows were freed.
    held_at_end: Option<TrafficMemory>,
}

impl Worker {
    /// Makes a worker.
    ///
    /// # Errors
    /// The flow table cannot be reserved.
    pub fn new(
        settings: EngineSettings,
        engine: Arc<Engine>,
        chains: Arc<Chains>,
    ) -> Result<Self, TableError> {
        Ok(Worker {
            position: RunPosition::default(),
            checksums: ChecksumSample::new(settings.checksums),
            intake: Intake::new(&settings),
            flows: Flows::new(&settings)?,
            account: Account::new(&settings, &chains),
            runner: Runner::new(&settings, engine, chains),
            shedding: Shedding::default(),
            leaving: Leaving::default(),
            hosts: HostCare::default(),
            presenter: None,
            walk: Walk::default(),
            inquiry: None,
            datagram: Vec::new(),
            held_at_end: None,
            settings,
        })
    }

    /// The stages, for the passage of a frame.
    pub(crate) fn passage<'w>(&'w mut self, recorder: &'w mut dyn Recorder) -> Passage<'w> {
        Passage {
            intake: &mut self.intake,
            flows: &mut self.flows,
            runner: &mut self.runner,
            cx: FrameContext {
                settings: &self.settings,
                position: &mut self.position,
                checksums: &mut self.checksums,
                account: &mut self.account,
                shedding: &mut self.shedding,
                leaving: &mut self.leaving,
                recorder,
            },
        }
    }

    /// The worker's counters.
    #[must_use]
    pub const fn counters(&self) -> &WorkerCounters {
        &self.account.counters
    }

    /// The packet clock.
    #[must_use]
    pub const fn clock(&self) -> Timestamp {
        self.position.clock
    }

    /// The running chains.
    #[must_use]
    pub const fn chains(&self) -> &Arc<Chains> {
        self.runner.chains()
    }

    /// Memory of application layers.
    #[must_use]
    pub const fn app_memory(&self) -> &AppMemory {
        &self.account.memory
    }

    /// The flows.
    #[must_use]
    pub const fn flows(&self) -> &FlowTable<FlowExt> {
        self.flows.table()
    }

    /// The configuration of the decoder.
    #[must_use]
    pub const fn decoder_config(&self) -> &DecoderConfig {
        self.intake.decoder().config()
    }

    /// Handles a frame; the decision says whether it may leave. In detection every frame may; refusals are
    /// counted and recorded as hypothetical. `None`: the frame is a held fragment ([`DefragConfig::hold`])
    /// and must not leave; [`Worker::take_released`] returns it later, or never.
    ///
    /// [`DefragConfig::hold`]: bartizan_packet::defrag::DefragConfig::hold
    pub fn frame(&mut self, frame: &Frame<'_>, recorder: &mut dyn Recorder) -> Option<Decision> {
        // No next frame is announced, so the frame waits for no other segment.
        self.frame_in_batch(frame, false, recorder)
    }

    /// [`Worker::frame`], for a frame of a batch. `follows`: the next frame continues this one's TCP segment
    /// ([`bartizan_stages::train::follows`]), and is passed in next. `None`: the frame waits for the next
    /// one, or is held as a fragment. After each call, the [`Worker::waiting`] frames before this one must be
    /// released.
    pub fn frame_in_batch(
        &mut self,
        frame: &Frame<'_>,
        follows: bool,
        recorder: &mut dyn Recorder,
    ) -> Option<Decision> {
        self.begin_frame(frame, follows, recorder);
        let mut output = self.intake.decode(frame);
        let settled = if let Some(packet) = only_packet(&self.settings, &output) {
            let decision = self.packet(
                frame,
                frame.bytes,
                packet,
                &PacketPosition::from(packet.recursion > 0),
                recorder,
            );
            self.intake.done(output);
            if self.train_took() {
                return None;
            }
            Settled::Decided(decision)
        } else {
            // A frame with several packets forms no train.
            self.leave_train();
            let mut walk = core::mem::take(&mut self.walk);
            walk.begin(&mut output, frame.number);
            self.intake.done(output);
            walk.run(WorkerId(0), &mut Handler { worker: self, recorder }, frame);
            let settled = self.finish_frame(frame, &mut walk, recorder);
            self.walk = walk;
            settled
        };
        self.close_train(recorder);
        match settled {
            Settled::Decided(decision) => Some(self.decided(&decision)),
            Settled::Held => None,
        }
    }

    /// Prefetches the flows of the frames that are passed in next, at most [`AHEAD`], which came in by this
    /// port ([`Worker::arrives_by`]).
    pub(crate) fn expect<'f>(&self, frames: impl Iterator<Item = &'f [u8]>, link: LinkId, arrived_by: u32) {
        let esp_flows = self.runner.chains().esp_flows();
        let whence = PacketOrigin { tenant: self.position.tenant, link, arrived_by, esp_flows };
        let guess = Guess { scope: whence.plain_scope(&self.settings), vlans: self.settings.vlan_in_key };
        let table = self.flows.table();
        let mut hashes = [FlowHash(0); AHEAD];
        let mut count = 0;
        for (place, key) in hashes.iter_mut().zip(frames.filter_map(|frame| guess.key(frame))) {
            *place = table.hash(&key);
            count += 1;
        }
        table.prefetch_batch(hashes.get(..count).unwrap_or_default());
    }

    /// Begins a frame whose packets are passed in one by one.
    pub(crate) fn begin_frame(&mut self, frame: &Frame<'_>, follows: bool, recorder: &mut dyn Recorder) {
        self.run_due_work(frame.now);
        self.report_function_events(recorder);
        self.passage(recorder).begin(frame, follows);
    }

    /// Reports lifecycle events of functions to the recorder, between frames. Called for each frame, which
    /// costs a comparison.
    #[inline]
    fn report_function_events(&mut self, recorder: &mut dyn Recorder) {
        if self.runner.lifecycle.is_unrecorded() {
            self.flush_function_events(recorder);
        }
    }

    #[cold]
    fn flush_function_events(&mut self, recorder: &mut dyn Recorder) {
        let generation = self.runner.generation();
        for (at, news) in self.runner.lifecycle.take_unrecorded() {
            recorder.notice(at, generation, Notice::Function(&news));
        }
    }

    /// Advances time for a frame, whose packets may belong to other workers.
    pub(crate) fn pass_frame(&mut self, now: Timestamp, recorder: &mut dyn Recorder) {
        self.run_due_work(now);
        self.report_function_events(recorder);
        self.position.advance(now);
        self.expire(now, recorder);
    }

    /// Leaves the expiry of values per host to another worker.
    pub(crate) const fn leave_hosts_to_another(&mut self) {
        self.hosts = HostCare::of_another();
    }

    /// Does the work that is due: expires values per host, restarts functions. Called for each frame, which
    /// costs two comparisons.
    #[inline]
    fn run_due_work(&mut self, now: Timestamp) {
        self.hosts.expire(self.runner.chains(), now);
        self.start_due(now);
    }

    /// Restarts failed functions when their time has come. The clock may be ahead of a frame from another
    /// worker.
    #[inline]
    fn start_due(&mut self, now: Timestamp) {
        self.runner.start_due(self.position.clock.max(now), &mut self.account.tally);
    }

    /// Handles one packet of a frame.
    pub(crate) fn packet(
        &mut self,
        frame: &Frame<'_>,
        bytes: &[u8],
        packet: &Decoded,
        place: &PacketPosition<'_>,
        recorder: &mut dyn Recorder,
    ) -> Decision {
        self.passage(recorder).packet(frame, bytes, packet, place)
    }

    /// Sets the port's knowledge of the checksums of the frames that are passed in from now on. For captures
    /// it is none.
    pub const fn arrives_with(&mut self, checksums: Checksums) {
        self.intake.arrives_with(checksums);
    }

    /// Sets the ingress of the frames that are passed in from now on: a number of the caller, which
    /// [`Worker::take_released`] returns. Fragments with different numbers form no datagram.
    pub const fn arrives_by(&mut self, number: u32) {
        self.intake.arrives_by(number);
    }

    /// Takes the backlog before a batch, in eighths of a ring: under overload flows are shed by the
    /// priorities of their policies ([`Shedding`]). `backlog` is called only where these differ.
    #[inline]
    pub fn shed_by(&mut self, backlog: impl FnOnce() -> u8) {
        let priorities = self.runner.chains().policies().priorities();
        if priorities.len() < 2 && !self.shedding.is_on() {
            return;
        }
        let begins = self.shedding.update(backlog(), priorities);
        self.account.counters.shed.begun += u64::from(begins);
    }

    /// The priority below which flows are shed at present; 0 while none are.
    #[must_use]
    pub const fn sheds_below(&self) -> u8 {
        self.shedding.below()
    }

    /// Does idle work: ends flows whose timeout has passed, gives up fragments. `true`: more is due; the
    /// caller checks for packets and calls again instead of sleeping.
    pub fn idle(&mut self, now: Timestamp, recorder: &mut dyn Recorder) -> bool {
        self.run_due_work(now);
        self.report_function_events(recorder);
        let mut passage = self.passage(recorder);
        passage.cx.position.advance(now);
        let more = passage.end_due(now, ENDS_WHEN_IDLE);
        passage.intake.expire_fragments(&mut passage.cx, passage.runner.chains(), now);
        passage.cx.recorder.idle();
        more
    }

    /// Adds a level below the host, for decided flows.
    pub fn set_level(&mut self, manager: FlowManager) {
        self.flows.manager = Some(Box::new(manager));
    }

    /// Whether the worker has a level below the host, which needs turns ([`Worker::drive_level`]).
    #[inline]
    #[must_use]
    pub const fn has_level(&self) -> bool {
        self.flows.manager.is_some()
    }

    /// Whether the level below has more work due than its last turn did, so that the driver must sleep
    /// briefly, if at all.
    #[must_use]
    pub fn level_owes(&self) -> bool {
        self.flows.manager.as_deref().is_some_and(FlowManager::has_due_work)
    }

    /// The reason why a flow of the host is at no lower level: the answer to its last offer, else the reason
    /// why it was not offered.
    pub(crate) fn offload_denial(&self, entry: &Entry) -> OffloadDenied {
        if !self.has_level() {
            return OffloadDenied::NoDevice;
        }
        entry.ext.stays.unwrap_or_else(|| self.runner.offer_denial(entry))
    }

    /// Drives the level below the host: called between batches, also when no packets arrive.
    pub fn drive_level(&mut self, now: Timestamp, recorder: &mut dyn Recorder) {
        self.passage(recorder).drive_level(now);
    }

    /// The manager of the flows on levels below the host.
    #[must_use]
    pub fn flow_manager(&self) -> Option<&FlowManager> {
        self.flows.manager.as_deref()
    }

    /// Counters of the level below the host.
    #[must_use]
    pub fn level_counters(&self) -> Option<&ManagerCounters> {
        self.flows.manager.as_deref().map(FlowManager::counters)
    }

    /// Ends some of the flows whose timeout has passed: called for each packet.
    pub fn expire(&mut self, now: Timestamp, recorder: &mut dyn Recorder) {
        self.passage(recorder).expire(now);
    }

    /// Gives up held fragments, and ends all flows, in the order of their creation. The memory that they held
    /// remains in the statistics.
    pub fn shutdown(&mut self, recorder: &mut dyn Recorder) {
        self.held_at_end = Some(self.memory_held());
        self.passage(recorder).end_all();
        self.report_function_events(recorder);
    }

    /// The change that the last frame needs before it may leave.
    pub fn take_rewrite(&mut self) -> Option<Rewrite> {
        self.leaving.change.take()
    }

    /// Returns the memory of a change for reuse.
    pub fn reuse_rewrite(&mut self, change: Rewrite) {
        self.leaving.reuse(change);
    }

    /// Counters of the normaliser for frames that were held or handed over, since the last call.
    pub fn take_normalised(&mut self) -> NormaliserCounters {
        core::mem::take(&mut self.leaving.done)
    }

    /// Whether [`Worker::take_released`] has a frame.
    #[must_use]
    pub const fn has_released(&self) -> bool {
        self.intake.has_released()
    }

    /// The next frame of a held datagram that may leave before the current frame: `bytes` becomes the frame.
    /// Returns its ingress ([`Worker::arrives_by`]) and its time of arrival. The frame has been counted as
    /// forwarded.
    pub fn take_released(&mut self, bytes: &mut Vec<u8>) -> Option<(u32, Timestamp)> {
        self.intake.take_released(bytes)
    }

    /// Number of frames that wait for a decision: those directly before the frame handled last, once that is
    /// decided. Each must be passed to [`Worker::release`], in order, before the next frame is handled.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.runner.train.waiting()
    }

    /// Whether segments can form trains: inline, and some function takes several segments together. Otherwise
    /// the caller need not check whether a frame continues another.
    #[must_use]
    pub fn forms_trains(&self) -> bool {
        self.runner.forms_trains(&self.settings)
    }

    /// Counts and records the decision on a frame that waited; returns the decision.
    pub fn release(&mut self, frame: &Frame<'_>, recorder: &mut dyn Recorder) -> Decision {
        self.passage(recorder).release(frame)
    }

    /// Whether the current frame waits and is not decided yet.
    pub(crate) const fn train_took(&self) -> bool {
        self.runner.train.is_queued()
    }

    /// Frames from now on form no train.
    pub(crate) fn leave_train(&mut self) {
        self.runner.train.begin(false);
    }

    /// Closes the train: payload functions inspect the queued segments now, unless this frame has already
    /// carried them.
    pub(crate) fn close_train(&mut self, recorder: &mut dyn Recorder) {
        self.passage(recorder).close_train();
    }

    /// Begins a frame from another worker, where it was counted.
    pub(crate) fn take_over(&mut self, frame: &Frame<'_>, tag: u32, recorder: &mut dyn Recorder) {
        self.start_due(frame.now);
        self.position.advance(frame.now);
        self.leaving.change = None;
        self.arrives_by(tag);
        self.leave_train();
        self.expire(frame.now, recorder);
    }

    /// Settles a frame whose packets are all handled, perhaps some of them by other workers.
    pub(crate) fn finish_frame(
        &mut self,
        frame: &Frame<'_>,
        walk: &mut Walk,
        recorder: &mut dyn Recorder,
    ) -> Settled {
        self.intake.exchange_joined(&mut walk.joined);
        self.leaving.change = walk.rewrite.take();
        self.passage(recorder).finish_frame(frame, walk.decision)
    }

    /// Gives up the datagrams of a frame that cannot be handed on.
    pub(crate) fn discard_datagrams(&mut self, joined: Joined, recorder: &mut dyn Recorder) {
        let passage = &mut self.passage(recorder);
        passage.intake.discard_datagrams(&mut passage.cx, passage.runner.chains(), joined);
    }

    /// Counts the decision on a frame; returns the decision that is carried out.
    pub(crate) fn decided(&mut self, decision: &Decision) -> Decision {
        self.account.counters.decided(decision, self.settings.prevention)
    }

    /// Counts a frame that is refused without being handled, by the reason.
    pub(crate) fn refuse_unseen(&mut self, reason: Reason) {
        if let Some(count) = self.account.counters.refused.get_mut(reason as usize) {
            *count += 1;
        }
    }

    /// Counts a frame that is read for other workers, which handle its packets.
    pub(crate) fn read(&mut self, frame: &Frame<'_>) {
        self.account.counters.count_arrival(frame.bytes.len());
        self.position.advance(frame.now);
    }

    /// Adds a fragment to its datagram; if the datagram is complete, the room holds it.
    /// `joined`: the datagrams that fragments of the frame were added to, here and at other workers.
    pub(crate) fn defragment(
        &mut self,
        FramePosition { frame, bytes, .. }: FramePosition<'_>,
        packet: &mut Decoded,
        DatagramRoom { bytes: datagram, output }: DatagramRoom<'_>,
        joined: &mut Joined,
    ) -> Fragmented {
        self.intake.exchange_joined(joined);
        let (settings, chains) = (&self.settings, self.runner.chains());
        let fragmented = self.intake.defragment(settings, chains, frame, bytes, packet, datagram);
        self.intake.exchange_joined(joined);
        if fragmented == Fragmented::Whole {
            self.intake.decode_datagram(packet, datagram, output);
        }
        fragmented
    }

    /// Advances time for fragments that are read for other workers.
    pub(crate) fn pass_time(&mut self, now: Timestamp) {
        self.position.advance(now);
        self.intake.forget_fragments(now);
    }

    /// Sets whether checksums count from now on: the reader takes the sample.
    pub(crate) const fn set_checksums(&mut self, mode: ChecksumMode) {
        self.checksums.set_mode(mode);
    }

    /// Sets the turn in which shared state is modified from now on; `None`: without turns.
    pub(crate) fn set_turn(&mut self, turn: Option<CaptureTurn>) {
        self.position.turn = turn;
    }

    /// The running generation.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.runner.generation()
    }

    /// Enters another generation. Called between frames.
    pub fn enter_generation(&mut self, chains: Arc<Chains>) {
        self.pause_observation();
        credit_early(&mut self.flows, &mut self.runner, &mut self.account, self.settings.prevention);
        self.flows.early.leave(self.runner.generation(), self.runner.chains().early.as_ref());
        self.account.memory.set_quotas(chains.quotas());
        self.runner.enter_generation(chains, self.position.clock, &mut self.account.tally);
        if let Some(manager) = self.flows.manager.as_deref_mut() {
            manager.enter_generation(self.runner.generation());
        }
        self.runner.resume_observation();
    }

    /// Sets observers of functions, in place of the present ones. Called between batches.
    pub(crate) fn observe(&mut self, observers: Observers, me: WorkerId) {
        self.runner.observe(observers, me);
    }

    /// Runs the chains without observers, until the next generation is entered.
    pub(crate) fn pause_observation(&mut self) {
        self.runner.pause_observation();
    }

    /// Runs `handle` in another generation, then returns to the worker's own.
    pub(crate) fn in_generation<T>(
        &mut self,
        chains: &Arc<Chains>,
        handle: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let own = self.runner.begin_visit(chains, &mut self.account.tally);
        let result = handle(self);
        if let Some(own) = own {
            self.runner.end_visit(own, &mut self.account.tally);
        }
        result
    }

    /// Frees the state kept for frames of another generation once none can arrive. Called between batches.
    pub(crate) fn forget_generation(&mut self) {
        self.runner.forget_generation();
    }

    /// Carries out an order about a function. Called between batches. `None`: no chain of the running
    /// generation has the function.
    pub fn order(&mut self, function: &str, act: LifecycleCommand) -> Option<FunctionNow> {
        let now = self.position.clock;
        let answer = self.runner.order(function, act, now, &mut self.account.tally)?;
        self.flows.leave_below(answer.effects.left);
        Some(answer.now)
    }

    /// Health of the functions of the running generation.
    pub fn functions_now(&self) -> impl Iterator<Item = FunctionNow> {
        self.runner.functions_now()
    }

    /// Whether [`Worker::take_events`] has something.
    #[inline]
    #[must_use]
    pub const fn has_news(&self) -> bool {
        self.runner.lifecycle.has_news()
    }

    /// Lifecycle events of functions since the last call.
    pub fn take_events(&mut self) -> Vec<FunctionEvent> {
        self.runner.lifecycle.take_events()
    }

    /// Visits the counters of functions (function, counter, value), over all generations.
    pub fn visit_functions_by_name(&self, each: &mut dyn FnMut(&'static str, &'static str, u64)) {
        self.runner.visit_functions_by_name(each);
    }

    /// Visits the counters of the rules of the running generation, by function.
    pub fn visit_rules(&self, each: &mut dyn FnMut(&'static str, RuleCount<'_>)) {
        self.runner.visit_rules(each);
    }

    /// Gives the worker its own range of flow numbers, which are unique in a run.
    pub(crate) const fn number_flows(&mut self, me: WorkerId) {
        self.flows.number(me);
    }
}

/// The visitor of a worker that handles packets of a frame: all of them, unless other workers own some.
pub(crate) struct Handler<'w> {
    pub(crate) worker: &'w mut Worker,
    pub(crate) recorder: &'w mut dyn Recorder,
}

impl Visitor for Handler<'_> {
    fn settings(&self) -> &EngineSettings {
        &self.worker.settings
    }

    fn defragment(
        &mut self,
        at: FramePosition<'_>,
        packet: &mut Decoded,
        datagram: DatagramRoom<'_>,
        joined: &mut Joined,
    ) -> Fragmented {
        self.worker.defragment(at, packet, datagram, joined)
    }

    fn packet(
        &mut self,
        at: FramePosition<'_>,
        packet: &Decoded,
        place: &PacketPosition<'_>,
    ) -> (Decision, Option<Rewrite>) {
        let decision = self.worker.packet(at.frame, at.bytes, packet, place, self.recorder);
        (decision, self.worker.take_rewrite())
    }
}
