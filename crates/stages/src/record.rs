// SPDX-License-Identifier: Apache-2.0
//! Where the data plane's findings go: a recorder turns them into events.

use crate::flow_ext::FlowExt;
pub use crate::frame::Around;
use crate::notice::Notice;
use bartizan_applayer::frames::{Frame, Frames};
use bartizan_applayer::protocol::{ProtocolId, ProtocolSpec};
use bartizan_applayer::transaction::{Transaction, TxId};
use bartizan_base::{Decision, Direction, Generation, Reason, Timestamp};
use bartizan_flow::level::Amounts;
use bartizan_flow::tcp::StreamEvent;
use bartizan_flow::{EndReason, FlowEntry};
use bartizan_function::{Finding, RejectTo};
use bartizan_packet::{DecodeEvent, Decoded, PacketView};

/// A flow's entry, as the data plane fills it.
pub type Entry = FlowEntry<FlowExt>;

/// Why functions look at a flow.
#[derive(Clone, Copy, Debug)]
pub enum Cause<'a> {
    /// A packet came.
    Packet(&'a PacketView<'a>),
    /// Bytes that wait, or what a protocol leaves open when another takes its place, are shown without a
    /// packet.
    Flush,
    /// The flow ends, and what is left of it is shown. Nothing of it can be refused any more.
    FlowEnd,
}

/// When something was found, and of what.
#[derive(Clone, Copy)]
pub struct Occasion<'a> {
    /// Why functions looked.
    pub cause: Cause<'a>,
    /// Number of the frame in the capture, from 1; `None` without a packet of the capture.
    pub number: Option<u64>,
    /// Packet clock.
    pub now: Timestamp,
    /// The generation in which it is handled: the same in all its events.
    pub generation: Generation,
    /// Direction within the flow.
    pub direction: Direction,
    /// The packet of the capture that the packet was found in.
    pub around: Option<&'a Around>,
    /// Variables that rules have set for the packet.
    pub variables: &'a [(String, Vec<u8>)],
}

impl<'a> Occasion<'a> {
    /// Of a packet that is of a capture's frame `number`, by itself.
    pub const fn of(
        packet: &'a PacketView<'a>,
        number: Option<u64>,
        now: Timestamp,
        generation: Generation,
    ) -> Self {
        Occasion { number, ..Occasion::by_itself(Cause::Packet(packet), now, generation) }
    }

    /// Of what is no packet of a capture.
    pub const fn by_itself(cause: Cause<'a>, now: Timestamp, generation: Generation) -> Self {
        Occasion {
            cause,
            number: None,
            now,
            generation,
            direction: Direction::ToServer,
            around: None,
            variables: &[],
        }
    }

    /// The same, in a direction.
    pub const fn going(self, direction: Direction) -> Self {
        Occasion { direction, ..self }
    }

    /// The packet, if one came.
    #[must_use]
    pub const fn packet(&self) -> Option<&'a PacketView<'a>> {
        match self.cause {
            Cause::Packet(packet) => Some(packet),
            Cause::Flush | Cause::FlowEnd => None,
        }
    }

    /// The packet's headers.
    #[must_use]
    pub fn decoded(&self) -> Option<&'a Decoded> {
        self.packet().map(PacketView::decoded)
    }

    /// The packet's payload; empty without a packet.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.packet().map(PacketView::payload).unwrap_or_default()
    }
}

/// A transaction with what it belongs to.
#[derive(Clone, Copy)]
pub struct TxRecord<'a> {
    /// Its protocol.
    pub protocol: ProtocolId,
    /// The protocol's entry.
    pub spec: &'static ProtocolSpec,
    /// Number in its flow.
    pub id: TxId,
    /// The transaction.
    pub tx: &'a dyn Transaction,
}

/// What anomaly records are about.
#[derive(Clone, Copy)]
pub enum Anomaly<'a> {
    /// A header.
    Decode(DecodeEvent),
    /// A TCP stream.
    Stream(StreamEvent),
    /// An application protocol; the transaction's number where there is one.
    App {
        /// Protocol, when known.
        protocol: Option<&'static ProtocolSpec>,
        /// Name of the event.
        event: &'a str,
        /// Transaction.
        tx: Option<TxId>,
        /// The protocol's detection, not its parser, raised it.
        detection: bool,
    },
}

/// How a flow ended.
#[derive(Clone, Copy, Debug)]
pub struct EndOfFlow {
    /// Why.
    pub reason: EndReason,
    /// Packet clock.
    pub now: Timestamp,
    /// What levels below the host have counted of it, XDP and RTL; `None`: it never was there. The entry has
    /// the sums over all levels.
    pub below: Option<[Amounts; 2]>,
}

/// What becomes of a packet, over all its rules.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fate {
    /// The decision.
    pub decision: Decision,
    /// Who is told, when rules reject; known in detection as well.
    pub reject: Option<RejectTo>,
}

impl From<Decision> for Fate {
    fn from(decision: Decision) -> Self {
        Fate { decision, reject: None }
    }
}

/// Frames that had passed and that the port they were to leave by did not take.
#[derive(Clone, Copy, Debug)]
pub struct Unsent<'a> {
    /// Name of the port.
    pub port: &'a str,
    /// What the port said, as in its counters.
    pub cause: &'static str,
    /// The reason that this makes.
    pub reason: Reason,
    /// How many frames: the occasion's one and those after it.
    pub frames: u64,
}

/// What became of a file that is to be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreOutcome {
    /// Nobody keeps files.
    #[default]
    Nothing,
    /// So much of it was handed on, under this number.
    SoFar {
        /// Number of the file, from 1.
        id: u32,
        /// Bytes from its beginning.
        bytes: u64,
    },
    /// It was kept to its end.
    Done {
        /// Number of the file, from 1.
        id: u32,
    },
    /// It is not kept after all.
    GivenUp,
}

/// An event that may be recorded.
#[derive(Clone, Copy)]
pub enum RecorderEvent<'a> {
    /// A rule matched and an alert is due.
    Alert {
        /// The packet around it.
        occasion: &'a Occasion<'a>,
        /// The packet's flow.
        flow: Option<&'a Entry>,
        /// The match.
        finding: &'a Finding,
        /// The packet's verdict.
        fate: &'a Fate,
        /// The transaction that it is about.
        tx: Option<TxRecord<'a>>,
    },
    /// A packet that a rule asked for earlier.
    Tagged {
        /// The packet.
        occasion: &'a Occasion<'a>,
        /// Its flow.
        flow: Option<&'a Entry>,
    },
    /// Rules set variables for a packet.
    Variables {
        /// The packet.
        occasion: &'a Occasion<'a>,
        /// Its flow.
        flow: Option<&'a Entry>,
        /// The finding that holds them.
        variables: &'a Finding,
    },
    /// A protocol frame of the packet's direction is complete.
    Frame {
        /// The packet that completes it.
        occasion: &'a Occasion<'a>,
        /// Its flow.
        flow: &'a Entry,
        /// The protocol.
        spec: &'static ProtocolSpec,
        /// The frames of the flow.
        frames: &'a Frames,
        /// The frame.
        frame: &'a Frame,
    },
    /// A packet of ARP.
    Arp {
        /// The packet around it.
        occasion: &'a Occasion<'a>,
        /// What it says.
        arp: &'a bartizan_packet::Arp,
    },
    /// An anomaly of a packet, a stream or an application protocol.
    Anomaly {
        /// The packet.
        occasion: &'a Occasion<'a>,
        /// Its flow.
        flow: Option<&'a Entry>,
        /// The anomaly.
        anomaly: Anomaly<'a>,
    },
    /// A packet was refused, or would have been.
    Refused {
        /// The packet.
        occasion: &'a Occasion<'a>,
        /// Its flow.
        flow: Option<&'a Entry>,
        /// The verdict.
        fate: &'a Fate,
        /// Matches with the packet.
        findings: &'a [Finding],
    },
    /// A notice of the engine itself, or of a tenant's quota.
    Notice {
        /// Time of the packet clock.
        now: Timestamp,
        /// The generation in force.
        generation: Generation,
        /// The notice.
        notice: Notice<'a>,
    },
    /// Frames could not leave, the occasion's and others. Their port counts them.
    Unsent {
        /// One of the frames.
        occasion: &'a Occasion<'a>,
        /// Port, cause and number.
        unsent: &'a Unsent<'a>,
    },
    /// A transaction is complete.
    Transaction {
        /// The packet that completes it.
        occasion: &'a Occasion<'a>,
        /// Its flow.
        flow: &'a Entry,
        /// The transaction.
        tx: TxRecord<'a>,
    },
    /// A file of a transaction is complete.
    File {
        /// The packet that completes it.
        occasion: &'a Occasion<'a>,
        /// Its flow.
        flow: &'a Entry,
        /// The transaction.
        tx: TxRecord<'a>,
        /// The direction that sends the file.
        direction: Direction,
        /// The file's place among those of its direction.
        index: usize,
    },
    /// The certificates of a side of a session are to be stored ([`Transaction::certificates`]).
    Certificates {
        /// The packet.
        occasion: &'a Occasion<'a>,
        /// Its flow.
        flow: &'a Entry,
        /// The transaction.
        tx: TxRecord<'a>,
        /// The side that shows them.
        side: Direction,
    },
    /// A flow ended.
    Flow {
        /// The flow.
        flow: &'a Entry,
        /// How it ended.
        ended: &'a EndOfFlow,
    },
}

/// Receives events that may be recorded. The worker calls it, so it must not block. What a recorder leaves
/// out is not kept.
pub trait Recorder {
    /// Takes an event. Recorders of all events match it without a wildcard: one that they forget does not
    /// compile.
    fn record(&mut self, event: RecorderEvent<'_>);

    /// From here on packets see this generation.
    fn enter_generation(&mut self, chains: &crate::chain::Chains) {
        let _ = chains;
    }

    /// A file of a transaction is to be kept, and some of it may be new. `index` is its place among the
    /// direction's files. Returns what was done with it.
    fn store(
        &mut self,
        occasion: &Occasion<'_>,
        flow: &Entry,
        tx: TxRecord<'_>,
        direction: Direction,
        index: usize,
    ) -> StoreOutcome {
        let _ = (occasion, flow, tx, direction, index);
        StoreOutcome::Nothing
    }

    /// Between two batches of packets: what was made elsewhere is written.
    fn turn(&mut self) {}

    /// Nothing to do just now: what is buffered may be written out.
    fn idle(&mut self) {}

    /// The run ends: from here on no traffic waits for this worker, so nothing needs to be lost.
    fn ending(&mut self) {}
}

/// One method for each event, for those who report it.
impl dyn Recorder + '_ {
    /// [`RecorderEvent::Alert`].
    pub fn alert(
        &mut self,
        occasion: &Occasion<'_>,
        flow: Option<&Entry>,
        finding: &Finding,
        fate: &Fate,
        tx: Option<TxRecord<'_>>,
    ) {
        self.record(RecorderEvent::Alert { occasion, flow, finding, fate, tx });
    }

    /// [`RecorderEvent::Tagged`].
    pub fn tagged(&mut self, occasion: &Occasion<'_>, flow: Option<&Entry>) {
        self.record(RecorderEvent::Tagged { occasion, flow });
    }

    /// [`RecorderEvent::Variables`].
    pub fn variables(&mut self, occasion: &Occasion<'_>, flow: Option<&Entry>, variables: &Finding) {
        self.record(RecorderEvent::Variables { occasion, flow, variables });
    }

    /// [`RecorderEvent::Frame`].
    pub fn frame(
        &mut self,
        occasion: &Occasion<'_>,
        flow: &Entry,
        spec: &'static ProtocolSpec,
        frames: &Frames,
        frame: &Frame,
    ) {
        self.record(RecorderEvent::Frame { occasion, flow, spec, frames, frame });
    }

    /// [`RecorderEvent::Arp`].
    pub fn arp(&mut self, occasion: &Occasion<'_>, arp: &bartizan_packet::Arp) {
        self.record(RecorderEvent::Arp { occasion, arp });
    }

    /// [`RecorderEvent::Anomaly`].
    pub fn anomaly(&mut self, occasion: &Occasion<'_>, flow: Option<&Entry>, anomaly: Anomaly<'_>) {
        self.record(RecorderEvent::Anomaly { occasion, flow, anomaly });
    }

    /// [`RecorderEvent::Refused`].
    pub fn refused(
        &mut self,
        occasion: &Occasion<'_>,
        flow: Option<&Entry>,
        fate: &Fate,
        findings: &[Finding],
    ) {
        self.record(RecorderEvent::Refused { occasion, flow, fate, findings });
    }

    /// [`RecorderEvent::Notice`].
    pub fn notice(&mut self, now: Timestamp, generation: Generation, notice: Notice<'_>) {
        self.record(RecorderEvent::Notice { now, generation, notice });
    }

    /// [`RecorderEvent::Unsent`].
    pub fn unsent(&mut self, occasion: &Occasion<'_>, unsent: &Unsent<'_>) {
        self.record(RecorderEvent::Unsent { occasion, unsent });
    }

    /// [`RecorderEvent::Transaction`].
    pub fn transaction(&mut self, occasion: &Occasion<'_>, flow: &Entry, tx: TxRecord<'_>) {
        self.record(RecorderEvent::Transaction { occasion, flow, tx });
    }

    /// [`RecorderEvent::File`].
    pub fn file(
        &mut self,
        occasion: &Occasion<'_>,
        flow: &Entry,
        tx: TxRecord<'_>,
        direction: Direction,
        index: usize,
    ) {
        self.record(RecorderEvent::File { occasion, flow, tx, direction, index });
    }

    /// [`RecorderEvent::Certificates`].
    pub fn certificates(&mut self, occasion: &Occasion<'_>, flow: &Entry, tx: TxRecord<'_>, side: Direction) {
        self.record(RecorderEvent::Certificates { occasion, flow, tx, side });
    }

    /// [`RecorderEvent::Flow`].
    pub fn flow(&mut self, flow: &Entry, ended: &EndOfFlow) {
        self.record(RecorderEvent::Flow { flow, ended });
    }
}
