// SPDX-License-Identifier: Apache-2.0
//! The events that the data plane reports, and the interface of the recorder that writes them.

use crate::flow_ext::FlowExt;
pub use crate::frame::OuterHeader;
use crate::notice::Notice;
use bartizan_applayer::frames::{Frames, ProtocolFrame};
use bartizan_applayer::protocol::{ProtocolId, ProtocolSpec};
use bartizan_applayer::transaction::{Transaction, TxId};
use bartizan_base::{Decision, Direction, Generation, Reason, Timestamp};
use bartizan_events::record::DeclaredRecord;
use bartizan_flow::level::FlowLevelCounts;
use bartizan_flow::tcp::StreamEvent;
use bartizan_flow::{EndReason, FlowEntry};
use bartizan_function::{Finding, RejectTo};
use bartizan_packet::{DecodeEvent, Decoded, PacketSource, PacketView};

/// A flow's entry, as the data plane fills it.
pub type Entry = FlowEntry<FlowExt>;

/// The cause of a call to functions.
#[derive(Clone, Copy, Debug)]
pub enum Cause<'a> {
    /// A packet arrived.
    Packet(&'a PacketView<'a>),
    /// Bytes of a connection arrived in order, without a packet: the view has addresses and ports, and no
    /// header that was sent.
    Bytes(&'a PacketView<'a>),
    /// Queued bytes, or data that a protocol leaves open when another protocol replaces it, are inspected
    /// without a packet.
    Flush,
    /// The flow ends and its remaining data is inspected. Nothing of it can be refused any more.
    FlowEnd,
}

/// The context of an event: its packet, time, generation and direction.
#[derive(Clone, Copy)]
pub struct EventContext<'a> {
    /// The cause of the call to functions.
    pub cause: Cause<'a>,
    /// Number of the frame in the capture, from 1; `None` without a packet of the capture.
    pub number: Option<u64>,
    /// Time of the packet clock.
    pub now: Timestamp,
    /// The generation in which the packet is handled: the same in all its events.
    pub generation: Generation,
    /// Direction within the flow.
    pub direction: Direction,
    /// The outer packet of the capture in which the packet was found.
    pub around: Option<&'a OuterHeader>,
    /// Variables that rules have set for the packet.
    pub variables: &'a [(String, Vec<u8>)],
}

impl<'a> EventContext<'a> {
    /// The context of a packet of the capture's frame `number`.
    pub const fn of(
        packet: &'a PacketView<'a>,
        number: Option<u64>,
        now: Timestamp,
        generation: Generation,
    ) -> Self {
        let cause = match packet.decoded().source {
            PacketSource::Ordered => Cause::Bytes(packet),
            _ => Cause::Packet(packet),
        };
        EventContext { number, ..EventContext::by_itself(cause, now, generation) }
    }

    /// The context of an event without a packet of a capture.
    pub const fn by_itself(cause: Cause<'a>, now: Timestamp, generation: Generation) -> Self {
        EventContext {
            cause,
            number: None,
            now,
            generation,
            direction: Direction::ToServer,
            around: None,
            variables: &[],
        }
    }

    /// This context with another direction.
    pub const fn with_direction(self, direction: Direction) -> Self {
        EventContext { direction, ..self }
    }

    /// The packet, if there is one.
    #[must_use]
    pub const fn packet(&self) -> Option<&'a PacketView<'a>> {
        match self.cause {
            Cause::Packet(packet) => Some(packet),
            Cause::Bytes(_) | Cause::Flush | Cause::FlowEnd => None,
        }
    }

    /// The bytes that arrived in order and without a packet, if that is what arrived.
    #[must_use]
    pub const fn bytes(&self) -> Option<&'a PacketView<'a>> {
        match self.cause {
            Cause::Bytes(view) => Some(view),
            Cause::Packet(_) | Cause::Flush | Cause::FlowEnd => None,
        }
    }

    /// The packet, or the bytes that arrived without one.
    #[must_use]
    pub const fn arrived(&self) -> Option<&'a PacketView<'a>> {
        match self.cause {
            Cause::Packet(view) | Cause::Bytes(view) => Some(view),
            Cause::Flush | Cause::FlowEnd => None,
        }
    }

    /// Addresses, ports and lengths of what arrived.
    #[must_use]
    pub fn decoded(&self) -> Option<&'a Decoded> {
        self.arrived().map(PacketView::decoded)
    }

    /// The payload of what arrived; empty otherwise.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.arrived().map(PacketView::payload).unwrap_or_default()
    }
}

/// A transaction with its protocol and number.
#[derive(Clone, Copy)]
pub struct TxRecord<'a> {
    /// Number of the protocol.
    pub protocol: ProtocolId,
    /// The protocol's specification.
    pub spec: &'static ProtocolSpec,
    /// Number in its flow.
    pub id: TxId,
    /// The transaction.
    pub tx: &'a dyn Transaction,
}

/// The anomaly that a record reports.
#[derive(Clone, Copy)]
pub enum Anomaly<'a> {
    /// A header.
    Decode(DecodeEvent),
    /// A TCP stream.
    Stream(StreamEvent),
    /// An application protocol, with the transaction's number if there is one.
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

/// The end of a flow.
#[derive(Clone, Copy, Debug)]
pub struct EndOfFlow {
    /// The reason of the end.
    pub reason: EndReason,
    /// Time of the packet clock.
    pub now: Timestamp,
    /// Amounts that the levels below the host have counted, XDP and RTL; `None`: no level below ever had the
    /// flow. The entry has the sums over all levels.
    pub below: Option<[FlowLevelCounts; 2]>,
}

/// The verdict on a packet, over all rules.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketVerdict {
    /// The decision.
    pub decision: Decision,
    /// The sides that get an answer when rules reject; set in detection as well.
    pub reject: Option<RejectTo>,
}

impl From<Decision> for PacketVerdict {
    fn from(decision: Decision) -> Self {
        PacketVerdict { decision, reject: None }
    }
}

/// Frames that passed inspection but that the egress port did not take.
#[derive(Clone, Copy, Debug)]
pub struct Unsent<'a> {
    /// Name of the port.
    pub port: &'a str,
    /// The port's error, as its counters name it.
    pub cause: &'static str,
    /// The reason with which the frames are counted.
    pub reason: Reason,
    /// Number of frames: that of the event's context and those after it.
    pub frames: u64,
}

/// The result of storing a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreOutcome {
    /// The recorder does not store files.
    #[default]
    Nothing,
    /// The file has a number and is stored up to this length.
    SoFar {
        /// Number of the file, from 1.
        id: u32,
        /// Bytes from its beginning.
        bytes: u64,
    },
    /// The file is stored completely.
    Done {
        /// Number of the file, from 1.
        id: u32,
    },
    /// Storing was abandoned.
    GivenUp,
}

/// An event that may be recorded.
#[derive(Clone, Copy)]
pub enum RecorderEvent<'a> {
    /// A rule matched and an alert is due.
    Alert {
        /// The context of the packet.
        occasion: &'a EventContext<'a>,
        /// The packet's flow.
        flow: Option<&'a Entry>,
        /// The match.
        finding: &'a Finding,
        /// The packet's verdict.
        verdict: &'a PacketVerdict,
        /// The transaction that matched.
        tx: Option<TxRecord<'a>>,
    },
    /// A packet of a flow or host that a rule has tagged.
    Tagged {
        /// The packet.
        occasion: &'a EventContext<'a>,
        /// Its flow.
        flow: Option<&'a Entry>,
    },
    /// Rules set variables for a packet.
    Variables {
        /// The packet.
        occasion: &'a EventContext<'a>,
        /// Its flow.
        flow: Option<&'a Entry>,
        /// The finding that holds them.
        variables: &'a Finding,
    },
    /// A protocol frame of the packet's direction is complete.
    Frame {
        /// The packet that completes it.
        occasion: &'a EventContext<'a>,
        /// Its flow.
        flow: &'a Entry,
        /// The protocol.
        spec: &'static ProtocolSpec,
        /// The frames of the flow.
        frames: &'a Frames,
        /// The frame.
        frame: &'a ProtocolFrame,
    },
    /// An event that is declared in crate `events`.
    Declared {
        /// The context of the event.
        occasion: &'a EventContext<'a>,
        /// The flow that the event is about.
        flow: Option<&'a Entry>,
        /// The event's record.
        record: &'a dyn DeclaredRecord,
    },
    /// An anomaly of a packet, a stream or an application protocol.
    Anomaly {
        /// The packet.
        occasion: &'a EventContext<'a>,
        /// Its flow.
        flow: Option<&'a Entry>,
        /// The anomaly.
        anomaly: Anomaly<'a>,
    },
    /// A packet was refused, or would have been.
    Refused {
        /// The packet.
        occasion: &'a EventContext<'a>,
        /// Its flow.
        flow: Option<&'a Entry>,
        /// The verdict.
        verdict: &'a PacketVerdict,
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
        occasion: &'a EventContext<'a>,
        /// Port, cause and number.
        unsent: &'a Unsent<'a>,
    },
    /// A transaction is complete.
    Transaction {
        /// The packet that completes it.
        occasion: &'a EventContext<'a>,
        /// Its flow.
        flow: &'a Entry,
        /// The transaction.
        tx: TxRecord<'a>,
    },
    /// A file of a transaction is complete.
    File {
        /// The packet that completes it.
        occasion: &'a EventContext<'a>,
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
        occasion: &'a EventContext<'a>,
        /// Its flow.
        flow: &'a Entry,
        /// The transaction.
        tx: TxRecord<'a>,
        /// The side that presents them.
        side: Direction,
    },
    /// A flow ended.
    Flow {
        /// The flow.
        flow: &'a Entry,
        /// The end of the flow.
        ended: &'a EndOfFlow,
    },
}

/// Receives events. The worker calls the recorder, so it must not block. Events that a recorder ignores are
/// lost.
pub trait Recorder {
    /// Takes an event. Recorders of all events match without a wildcard, so that a new event does not compile
    /// until they handle it.
    fn record(&mut self, event: RecorderEvent<'_>);

    /// Announces the generation of the packets that follow.
    fn enter_generation(&mut self, chains: &crate::chain::Chains) {
        let _ = chains;
    }

    /// Announces the capture that the following packets come from.
    fn enter_capture(&mut self, name: &str) {
        let _ = name;
    }

    /// Offers a file of a transaction that is to be stored and that may have new bytes. `index` is its place
    /// among the direction's files. Returns the result.
    fn store(
        &mut self,
        occasion: &EventContext<'_>,
        flow: &Entry,
        tx: TxRecord<'_>,
        direction: Direction,
        index: usize,
    ) -> StoreOutcome {
        let _ = (occasion, flow, tx, direction, index);
        StoreOutcome::Nothing
    }

    /// Writes events from other threads, between two batches of packets.
    fn turn(&mut self) {}

    /// May write out buffers: the worker is idle.
    fn idle(&mut self) {}

    /// Announces the end of the run: no traffic waits for this worker any more, so no event needs to be
    /// dropped.
    fn ending(&mut self) {}
}

/// One method for each event, for code that reports it.
impl dyn Recorder + '_ {
    /// [`RecorderEvent::Alert`].
    pub fn alert(
        &mut self,
        occasion: &EventContext<'_>,
        flow: Option<&Entry>,
        finding: &Finding,
        verdict: &PacketVerdict,
        tx: Option<TxRecord<'_>>,
    ) {
        self.record(RecorderEvent::Alert { occasion, flow, finding, verdict, tx });
    }

    /// [`RecorderEvent::Tagged`].
    pub fn tagged(&mut self, occasion: &EventContext<'_>, flow: Option<&Entry>) {
        self.record(RecorderEvent::Tagged { occasion, flow });
    }

    /// [`RecorderEvent::Variables`].
    pub fn variables(&mut self, occasion: &EventContext<'_>, flow: Option<&Entry>, variables: &Finding) {
        self.record(RecorderEvent::Variables { occasion, flow, variables });
    }

    /// [`RecorderEvent::Frame`].
    pub fn frame(
        &mut self,
        occasion: &EventContext<'_>,
        flow: &Entry,
        spec: &'static ProtocolSpec,
        frames: &Frames,
        frame: &ProtocolFrame,
    ) {
        self.record(RecorderEvent::Frame { occasion, flow, spec, frames, frame });
    }

    /// [`RecorderEvent::Declared`].
    pub fn declared(
        &mut self,
        occasion: &EventContext<'_>,
        flow: Option<&Entry>,
        record: &dyn DeclaredRecord,
    ) {
        self.record(RecorderEvent::Declared { occasion, flow, record });
    }

    /// [`RecorderEvent::Anomaly`].
    pub fn anomaly(&mut self, occasion: &EventContext<'_>, flow: Option<&Entry>, anomaly: Anomaly<'_>) {
        self.record(RecorderEvent::Anomaly { occasion, flow, anomaly });
    }

    /// [`RecorderEvent::Refused`].
    pub fn refused(
        &mut self,
        occasion: &EventContext<'_>,
        flow: Option<&Entry>,
        verdict: &PacketVerdict,
        findings: &[Finding],
    ) {
        self.record(RecorderEvent::Refused { occasion, flow, verdict, findings });
    }

    /// [`RecorderEvent::Notice`].
    pub fn notice(&mut self, now: Timestamp, generation: Generation, notice: Notice<'_>) {
        self.record(RecorderEvent::Notice { now, generation, notice });
    }

    /// [`RecorderEvent::Unsent`].
    pub fn unsent(&mut self, occasion: &EventContext<'_>, unsent: &Unsent<'_>) {
        self.record(RecorderEvent::Unsent { occasion, unsent });
    }

    /// [`RecorderEvent::Transaction`].
    pub fn transaction(&mut self, occasion: &EventContext<'_>, flow: &Entry, tx: TxRecord<'_>) {
        self.record(RecorderEvent::Transaction { occasion, flow, tx });
    }

    /// [`RecorderEvent::File`].
    pub fn file(
        &mut self,
        occasion: &EventContext<'_>,
        flow: &Entry,
        tx: TxRecord<'_>,
        direction: Direction,
        index: usize,
    ) {
        self.record(RecorderEvent::File { occasion, flow, tx, direction, index });
    }

    /// [`RecorderEvent::Certificates`].
    pub fn certificates(
        &mut self,
        occasion: &EventContext<'_>,
        flow: &Entry,
        tx: TxRecord<'_>,
        side: Direction,
    ) {
        self.record(RecorderEvent::Certificates { occasion, flow, tx, side });
    }

    /// [`RecorderEvent::Flow`].
    pub fn flow(&mut self, flow: &Entry, ended: &EndOfFlow) {
        self.record(RecorderEvent::Flow { flow, ended });
    }
}
