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
    /// Bytes that wait, or what a protocol leaves open when another takes its place, are shown without a packet.
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
    /// What levels below the host have counted of it, XDP and RTL; `None`: it never was there. The entry has the sums over all levels.
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

/// Receives what is to be recorded. Called by the worker, so it must not block. What a recorder leaves out it does not keep.
pub trait Recorder {
    /// A rule matched and an alert is due. `tx` is the transaction that it is about.
    fn alert(
        &mut self,
        occasion: &Occasion<'_>,
        flow: Option<&Entry>,
        finding: &Finding,
        fate: &Fate,
        tx: Option<TxRecord<'_>>,
    ) {
        let _ = (occasion, flow, finding, fate, tx);
    }

    /// A rule asked earlier for this packet to be recorded.
    fn tagged(&mut self, occasion: &Occasion<'_>, flow: Option<&Entry>) {
        let _ = (occasion, flow);
    }

    /// Rules set variables for this packet, which `variables` holds.
    fn variables(&mut self, occasion: &Occasion<'_>, flow: Option<&Entry>, variables: &Finding) {
        let _ = (occasion, flow, variables);
    }

    /// A frame of the packet's direction is complete.
    fn frame(
        &mut self,
        occasion: &Occasion<'_>,
        flow: &Entry,
        spec: &'static ProtocolSpec,
        frames: &Frames,
        frame: &Frame,
    ) {
        let _ = (occasion, flow, spec, frames, frame);
    }

    /// A packet of ARP.
    fn arp(&mut self, occasion: &Occasion<'_>, arp: &bartizan_packet::Arp) {
        let _ = (occasion, arp);
    }

    /// Something odd.
    fn anomaly(&mut self, occasion: &Occasion<'_>, flow: Option<&Entry>, anomaly: Anomaly<'_>) {
        let _ = (occasion, flow, anomaly);
    }

    /// A packet was refused (or would have been).
    fn refused(&mut self, occasion: &Occasion<'_>, flow: Option<&Entry>, fate: &Fate, findings: &[Finding]) {
        let _ = (occasion, flow, fate, findings);
    }

    /// Something has happened to the engine itself, or to a tenant's quota.
    fn notice(&mut self, now: Timestamp, generation: Generation, notice: Notice<'_>) {
        let _ = (now, generation, notice);
    }

    /// Frames could not leave, the occasion's and others. They are counted by their port.
    fn unsent(&mut self, occasion: &Occasion<'_>, unsent: &Unsent<'_>) {
        let _ = (occasion, unsent);
    }

    /// A transaction is complete.
    fn transaction(&mut self, occasion: &Occasion<'_>, flow: &Entry, tx: TxRecord<'_>) {
        let _ = (occasion, flow, tx);
    }

    /// A file of a transaction is complete. `index` is its place among the direction's files.
    fn file(
        &mut self,
        occasion: &Occasion<'_>,
        flow: &Entry,
        tx: TxRecord<'_>,
        direction: Direction,
        index: usize,
    ) {
        let _ = (occasion, flow, tx, direction, index);
    }

    /// From here on packets see this generation.
    fn enter_generation(&mut self, chains: &crate::chain::Chains) {
        let _ = chains;
    }

    /// A file of a transaction is to be kept, and some of it may be new. `index` is its place among the direction's
    /// files. Says what was done with it.
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

    /// The certificates of a side of a TLS session are to be stored ([`Transaction::certificates`]).
    fn certificates(&mut self, occasion: &Occasion<'_>, flow: &Entry, tx: TxRecord<'_>, side: Direction) {
        let _ = (occasion, flow, tx, side);
    }

    /// Between two batches of packets: what was made elsewhere is written.
    fn turn(&mut self) {}

    /// Nothing to do just now: what is buffered may be written out.
    fn idle(&mut self) {}

    /// The run ends: from here on no traffic waits for this worker, so nothing needs to be lost.
    fn ending(&mut self) {}

    /// A flow ended.
    fn flow(&mut self, flow: &Entry, ended: &EndOfFlow) {
        let _ = (flow, ended);
    }
}
