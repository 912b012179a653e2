// SPDX-License-Identifier: Apache-2.0
//! A kind of level below the host: its opening, attachment to links, supervision and closing.
//!
//! ```text
//!   LevelDriver --open--> OpenLevel --device--> Device (one for each worker)
//!                           |   |
//!                  ports ---+   +--view--> LevelView (counters and signs of life, for anyone)
//! ```
//!
//! A [`LevelDriver`] is in a program's list of levels under its name. [`OpenLevel`] is a running level: all
//! links of a process share it, each with two ports. A level lets packets up until a link is attached, and
//! reports features that it does not have (signs of life, rules without a flow, state of a killed process) by
//! the values of its methods.

use crate::device::Device;
use bartizan_base::{Generation, LinkId, Spread, Timestamp};
use bartizan_packet::DecoderConfig;
use bartizan_packet::casts::Casts;
use bartizan_packet::sizes::Sizes;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A fault of a level: what, where, why, what to do.
pub trait LevelFault: std::error::Error + Send + Sync {
    /// The message with details that take a search: the holders of a resource that the level needs.
    fn explain(self: Box<Self>) -> String;
}

/// The reason why a level cannot do something.
#[derive(Debug)]
pub struct LevelError(Box<dyn LevelFault>);

impl LevelError {
    /// Wraps a fault of one kind of level.
    pub fn new(fault: impl LevelFault + 'static) -> Self {
        LevelError(Box::new(fault))
    }

    /// The message with details that take a search.
    #[must_use]
    pub fn explain(self) -> String {
        self.0.explain()
    }
}

impl fmt::Display for LevelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for LevelError {}

/// One kind of level.
pub trait LevelDriver: Send + Sync {
    /// Its name in the host file.
    fn name(&self) -> &'static str;

    /// Its name in messages.
    fn title(&self) -> &'static str;

    /// Whether it reads no more layers of a packet in a tunnel than a host with this limit of layers.
    fn reads_tunnels(&self, max_layers: u8) -> bool;

    /// Opens the level without attaching it.
    ///
    /// # Errors
    /// This machine does not support it, or the process lacks rights.
    fn open(&self, options: &LevelOptions) -> Result<Box<dyn OpenLevel>, LevelError>;

    /// Interfaces of this network namespace on which a process left this kind of level, whether it lives or
    /// not.
    ///
    /// # Errors
    /// The search fails.
    fn left(&self) -> Result<Vec<LeftOn>, LevelError>;

    /// The place where an operator finds the state that a killed process left.
    fn left_place(&self) -> &'static str;

    /// Removes the state that a killed process left on an interface; returns whether there was any.
    ///
    /// # Errors
    /// It cannot be removed.
    fn remove_left(&self, ifindex: u32) -> Result<bool, LevelError>;
}

/// A running level. It ends when this is dropped. A method with a default is for a feature that not all
/// levels have: state that outlives the process, rules on packets without a flow, ports that fail.
pub trait OpenLevel: Send {
    /// Checks interfaces before they are attached.
    ///
    /// # Errors
    /// Some of them are unfit: all faults in one message.
    fn check(&mut self, interfaces: &[u32]) -> Result<(), LevelError>;

    /// Attaches a port.
    ///
    /// # Errors
    /// The interface is unfit, or taken.
    fn attach(&mut self, port: &PortSetup) -> Result<AttachedPort, LevelError>;

    /// Detaches a port's interface; nothing happens if there is none.
    fn detach(&mut self, index: u8);

    /// Whether the attachment of a port still exists.
    fn is_attached(&mut self, index: u8) -> bool;

    /// Follows a changed MTU of a port's interface.
    fn refresh_mtu(&mut self, index: u8);

    /// Lets redirected packets leave by an interface under this number.
    ///
    /// # Errors
    /// The level cannot send by it.
    fn set_exit(&mut self, index: u8, ifindex: u32) -> Result<(), LevelError>;

    /// Ends sending by an interface of [`OpenLevel::set_exit`].
    fn clear_exit(&mut self, index: u8);

    /// Whether a program that a process left had these interfaces as the two sides of one link; `None`: that
    /// cannot be read.
    ///
    /// # Errors
    /// The kernel refuses.
    fn left_paired(&mut self, left: u32, interfaces: [u32; 2]) -> Result<Option<bool>, LevelError> {
        let _ = (left, interfaces);
        Ok(None)
    }

    /// Removes the state that a killed process left on an interface; returns whether there was any.
    ///
    /// # Errors
    /// It cannot be removed.
    fn remove_left(&mut self, ifindex: u32) -> Result<bool, LevelError> {
        let _ = ifindex;
        Ok(false)
    }

    /// Whether ports wait for [`OpenLevel::take_over`].
    fn waits(&self) -> bool {
        false
    }

    /// Call this when all workers serve their frames: replaces the program that a killed process left, and
    /// pins ports that fail open.
    ///
    /// # Errors
    /// It failed; the call may be repeated.
    fn take_over(&mut self) -> Result<StalePrograms, LevelError> {
        Ok(StalePrograms::default())
    }

    /// Ports that take no frames any more, or take frames again, since the last call.
    fn follow_losses(&mut self) -> Vec<PortNews> {
        Vec::new()
    }

    /// The number of outcomes that a table of rules without a flow can have. `None`: it has no such tables.
    fn early_outcomes(&self) -> Option<u32> {
        None
    }

    /// Writes the table of a generation that refuses packets without a flow. `false`: it has no room.
    fn write_early(&mut self, generation: Generation, table: &[u64]) -> bool {
        let _ = (generation, table);
        false
    }

    /// Entries and tables of this generation act from now on.
    fn enter_generation(&mut self, generation: Generation);

    /// One worker's device.
    fn device(&self, setup: DeviceSetup) -> Box<dyn Device>;

    /// The way of frames through a level of this process: a source shows it each frame before its worker.
    /// `None`: the level takes frames before they reach the process.
    fn frame_path(&self) -> Option<Arc<dyn FramePath>> {
        None
    }

    /// The view that any thread may read at any time.
    fn view(&self) -> Arc<dyn LevelView>;

    /// Ends the watch: workers are about to end as intended.
    fn end_watch(&mut self);

    /// Ends the level, with ports that would fail open.
    fn end(self: Box<Self>);

    /// Ends the process's part as if it were killed: attachments of ports that fail open stay.
    fn leave(self: Box<Self>);
}

/// The way of frames through a level that runs in this process, as a model of hardware does.
pub trait FramePath: Send + Sync {
    /// Handles a frame that arrived by a port; `now`: the time of the frame.
    fn pass(&self, index: u8, frame: &[u8], now: Timestamp) -> FramePassage;
}

/// The result of a frame at a level of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramePassage {
    /// The worker judges it.
    Up,
    /// It leaves by this port.
    Leaves(u8),
    /// It is dropped.
    Dropped,
}

/// The part of a running level that any thread may read.
pub trait LevelView: fmt::Debug + Send + Sync {
    /// Counters of a port; `None`: there is no such port.
    fn port_counters(&self, index: u8) -> Option<PortCounters>;

    /// The generation whose entries act.
    fn generation(&self) -> Generation;

    /// The time since a worker's last sign of life; `None`: it has given none yet.
    fn silence(&self, worker: u32) -> Option<Duration>;

    /// Further counters of the level, by name.
    fn more(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// Options for opening a level.
#[derive(Clone, Copy, Debug)]
pub struct LevelOptions {
    /// The most flows that it holds, of all links.
    pub flows: u32,
    /// The mode of attachment to interfaces.
    pub mode: AttachMode,
    /// The datagrams that may carry tunnels.
    pub tunnels: DecoderConfig,
    /// Workers of all links together, which give signs of life.
    pub workers: u32,
    /// Options for refusing packets without a flow.
    pub early: Option<EarlyOptions>,
    /// The seed of hashes of flows' keys; it must stay secret.
    pub seed: u64,
}

/// Sizes for refusing packets without a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlyOptions {
    /// Links whose packets are judged.
    pub links: u32,
    /// The most flows that the host can have on these links together.
    pub flows: u64,
}

/// The mode of attachment to interfaces, where the level has several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AttachMode {
    /// The fastest mode that the interface supports.
    #[default]
    Auto,
    /// The driver runs the program.
    Native,
    /// The kernel runs the program.
    Generic,
}

/// A worker's device.
#[derive(Clone, Debug)]
pub struct DeviceSetup {
    /// The first of its slots.
    pub first_slot: u32,
    /// Flows that it can hold.
    pub entries: u32,
    /// The limit of layers at which the host gives a packet up (`decoder.max-layers`).
    pub max_layers: u8,
    /// The worker's number among the workers of all links.
    pub worker: u32,
    /// The handling of its frames when it fails.
    pub watch: Watch,
    /// Named ports that redirected packets can leave by: the number of each at the level; `None`: the level
    /// cannot send by it.
    pub exits: Vec<Option<u8>>,
    /// The link's number among the links with rules for packets without a flow, and whether this worker
    /// reports their counters.
    pub early: Option<(u8, bool)>,
}

/// An attached port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedPort {
    /// An older process's program runs on it until [`OpenLevel::take_over`].
    pub waits: bool,
    /// A note about its attachment for the operator.
    pub note: Option<String>,
}

/// An interface on which a process has left a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOn {
    /// Number of the interface.
    pub ifindex: u32,
    /// The interface's name.
    pub name: String,
    /// The number of the program that was left; interfaces with the same number belonged to one process.
    pub program: u32,
}

/// The side of its link on which a port's senders are, as in keys (`FlowSide` of crate `flow`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PortSide {
    /// Unknown or irrelevant: sides are no part of keys.
    #[default]
    Unknown = 0,
    /// The side of the link's first port.
    First = 1,
    /// The side of its second port.
    Second = 2,
}

/// The handling of frames that would go up to a failed worker: one that gives no sign of life, since it
/// hangs, or its process is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fail {
    /// The frames are dropped. If the process is gone, so is the program.
    #[default]
    Closed,
    /// The frames leave by the port across the link. The attachment is pinned once workers live
    /// ([`OpenLevel::take_over`]), so the program goes on when the process is gone, until the next one takes
    /// it over.
    Open,
}

/// The workers that serve the frames of a port that go up, and the time without a sign of life after which
/// they have failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The handling of their frames then.
    pub fail: Fail,
    /// The time without a heartbeat after which workers have failed. Zero watches no worker.
    pub stale: Duration,
    /// The distribution of frames among the link's workers.
    pub spread: Spread,
    /// Number of the first of the port's workers among the workers of all links.
    pub first: u32,
}

/// The times when early tables refuse packets without a flow. Each variant has the number of the port's link
/// among those with such tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyMode {
    /// At any time.
    Always(u8),
    /// Only while no worker serves the link and it fails open: until then they go up.
    WhileOpen(u8),
}

impl EarlyMode {
    /// The number of the link among those with such tables.
    #[must_use]
    pub const fn link(self) -> u8 {
        match self {
            EarlyMode::Always(link) | EarlyMode::WhileOpen(link) => link,
        }
    }
}

/// A port of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSetup {
    /// Number of its interface in this network namespace.
    pub ifindex: u32,
    /// The link, as in keys.
    pub link: LinkId,
    /// The side of the link, as in keys of frames that arrive by this port.
    pub side: PortSide,
    /// The port's own number, from 0 to 63.
    pub index: u8,
    /// Number of the port across the link.
    pub pair: u8,
    /// Whether VLAN ids are part of keys.
    pub vlans_in_key: bool,
    /// One of 2^n packets that would be dropped is handed up instead, at random; this is n. `None`: no
    /// packet is.
    pub drop_samples: Option<u8>,
    /// Whether early tables refuse packets without a flow. `None`: these go up.
    pub early: Option<EarlyMode>,
    /// The watchdog of its workers. `None`: no worker is watched, and frames always go up.
    pub watch: Option<Watch>,
}

/// Counters of a port since the program was loaded, of the time while it was enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames that arrived by it: those that went up, were forwarded or dropped (for their flow or early),
    /// and those that failed open or closed.
    pub frames: u64,
    /// Frames that went up.
    pub up: u64,
    /// Bytes of the frames that went up, without the checksum of a frame; the byte counts below do not
    /// include it either.
    pub up_bytes: u64,
    /// Frames that left by another port, or were lost there.
    pub forwarded: u64,
    /// Bytes of these frames.
    pub forwarded_bytes: u64,
    /// Frames that were dropped for their flow.
    pub dropped: u64,
    /// Bytes of these frames.
    pub dropped_bytes: u64,
    /// Frames without a flow that were dropped early.
    pub early: u64,
    /// Bytes of these frames.
    pub early_bytes: u64,
    /// Frames that left by the port across the link because their worker had failed.
    pub open: u64,
    /// Bytes of these frames.
    pub open_bytes: u64,
    /// Frames that were dropped because their worker had failed.
    pub closed: u64,
    /// Bytes of these frames.
    pub closed_bytes: u64,
    /// Frames on their way out by this port that its device did not take or the kernel did not give it: they
    /// are lost.
    pub lost: u64,
    /// Frames by size ([`bartizan_packet::sizes`]).
    pub sizes: Sizes,
    /// Frames that arrived with a multicast destination.
    pub multicast: u64,
    /// Frames that arrived with a broadcast destination.
    pub broadcast: u64,
    /// Frames sent or lost on their way out by this port.
    pub out: u64,
    /// Bytes of these frames.
    pub out_bytes: u64,
    /// Frames sent or lost by this port with a multicast destination.
    pub out_multicast: u64,
    /// Frames sent or lost by this port with a broadcast destination.
    pub out_broadcast: u64,
}

impl PortCounters {
    /// The outcomes of all frames that arrived: name, frames, bytes.
    #[must_use]
    pub const fn outcomes(&self) -> [(&'static str, u64, u64); 6] {
        [
            ("up", self.up, self.up_bytes),
            ("forwarded", self.forwarded, self.forwarded_bytes),
            ("dropped", self.dropped, self.dropped_bytes),
            ("early", self.early, self.early_bytes),
            ("open", self.open, self.open_bytes),
            ("closed", self.closed, self.closed_bytes),
        ]
    }

    /// Frames that arrived, by the kind of their destination ([`bartizan_packet::casts`]).
    #[must_use]
    pub const fn casts(&self) -> Casts {
        casts(self.frames, self.multicast, self.broadcast)
    }

    /// Frames sent or lost on their way out, by the kind of their destination.
    #[must_use]
    pub const fn out_casts(&self) -> Casts {
        casts(self.out, self.out_multicast, self.out_broadcast)
    }

    /// Bytes of all frames that arrived.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.outcomes().iter().fold(0, |sum, (.., bytes)| sum.wrapping_add(*bytes))
    }
}

/// Counts by kind from the total `frames`, which may be read before or after the others while the line is
/// written.
const fn casts(frames: u64, multicast: u64, broadcast: u64) -> Casts {
    [frames.saturating_sub(multicast).saturating_sub(broadcast), multicast, broadcast]
}

/// Frames with their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameTotals {
    /// Frames.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
}

impl FrameTotals {
    /// Adds other counts.
    pub fn add(&mut self, more: FrameTotals) {
        self.frames = self.frames.saturating_add(more.frames);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// The contents of the tables that a killed process left: all counts since they were made; no flow record has
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StalePrograms {
    /// Programs found.
    pub programs: u64,
    /// Programs of another build. Their tables are not read, and not in the other numbers.
    pub unread: u64,
    /// Entries of flows in their tables.
    pub entries: u64,
    /// The packets that the left programs had forwarded.
    pub forwarded: FrameTotals,
    /// The packets that the left programs had dropped.
    pub dropped: FrameTotals,
    /// Frames that passed uninspected because their worker had failed.
    pub open: FrameTotals,
    /// Frames that had failed closed.
    pub closed: FrameTotals,
}

impl StalePrograms {
    /// Adds the counts of other programs.
    pub fn add(&mut self, more: &StalePrograms) {
        let sum = |own: &mut u64, more: u64| *own = own.saturating_add(more);
        sum(&mut self.programs, more.programs);
        sum(&mut self.unread, more.unread);
        sum(&mut self.entries, more.entries);
        self.forwarded.add(more.forwarded);
        self.dropped.add(more.dropped);
        self.open.add(more.open);
        self.closed.add(more.closed);
    }
}

/// A change of a port that packets leave by.
#[derive(Debug)]
pub enum PortNews {
    /// It takes no frames. Frames that would leave by it go up from now on.
    Closed {
        /// Its interface.
        name: String,
        /// The number of frames lost there since it was attached.
        lost: u64,
        /// The reason, and what to do.
        why: String,
    },
    /// It takes frames again: packets of flows leave by it as before.
    Open {
        /// Its interface.
        name: String,
    },
}
