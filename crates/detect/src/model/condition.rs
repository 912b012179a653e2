// SPDX-License-Identifier: Apache-2.0
//! What keywords compile to: conditions on packets, transactions and buffers, and effects after a match.
//!
//! Each is a trait with one implementation per keyword, made when rules load and called without allocation.

use crate::model::action::RuleAction;
use crate::model::left::Left;
use crate::state::FlowRuleState;
use bartizan_applayer::file::FileTrack;
use bartizan_applayer::transaction::Transaction;
use bartizan_base::{Direction, RuleId, Timestamp};
use bartizan_function::view::FlowView;
use bartizan_packet::{PacketFlags, PacketView};

/// What a condition may look at.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// Packet clock.
    pub now: Timestamp,
    /// The packet that is being inspected; for what is left of a flow, or waits, there is none.
    pub packet: Option<&'a PacketView<'a>>,
    /// What rules are shown of its payload (see [`shown_payload`]).
    pub payload: &'a [u8],
    /// Direction of the packet within its flow.
    pub direction: Direction,
    /// The flow, unless the packet has none.
    pub flow: Option<&'a FlowView<'a>>,
    /// Flow variables as they stand now.
    pub state: Option<&'a FlowRuleState>,
    /// What rules that matched before left of this packet.
    pub left: &'a [Left],
    /// Events that the stream engine raised for this packet.
    pub stream_events: &'a [bartizan_flow::tcp::StreamEvent],
    /// Events of protocol detection (`bartizan_applayer::event::GENERIC`) that this packet raised.
    pub app_events: &'a [bartizan_applayer::event::EventCode],
    /// New data of the stream are shown with this packet, whether it brought them itself or not.
    pub shows_stream: bool,
    /// With this packet protocol detection of its direction came to an end.
    pub detection_done: bool,
    /// The function that asks: with which directions of transactions it is done its bit says.
    pub function: bartizan_base::FunctionId,
    /// Whose traffic it is.
    pub tenant: bartizan_base::TenantId,
    /// What belongs to no flow: host table, names.
    pub shared: &'a crate::state::shared::Shared,
}

impl Scene<'_> {
    /// IP protocol of what is being inspected.
    #[must_use]
    pub fn ip_protocol(&self) -> Option<u8> {
        match self.packet {
            Some(packet) => packet.decoded().proto(),
            None => self.flow.map(|flow| flow.protocol),
        }
    }

    /// Source and destination address of what is being inspected.
    #[must_use]
    pub fn addresses(&self) -> Option<(core::net::IpAddr, core::net::IpAddr)> {
        if let Some(packet) = self.packet {
            let decoded = packet.decoded();
            return decoded.src().zip(decoded.dst());
        }
        let flow = self.flow?;
        Some((flow.source(self.direction).0, flow.destination(self.direction).0))
    }
}

/// What rules are shown of a packet's payload: all of it, but in detection nothing of one that carries a
/// packet in a tunnel, as that is inspected by itself (as in Suricata). In prevention all of it: a receiver
/// that knows nothing of the tunnel reads it as it is.
#[must_use]
pub fn shown_payload<'a>(packet: Option<&PacketView<'a>>, prevention: bool) -> &'a [u8] {
    let Some(packet) = packet else { return &[] };
    if !prevention && packet.decoded().flags.contains(PacketFlags::HAS_INNER) {
        &[]
    } else {
        packet.payload()
    }
}

/// A condition on the packet or flow.
pub trait PacketCondition: Send + Sync {
    /// Whether it holds.
    fn matches(&self, scene: &Scene<'_>) -> bool;

    /// Key by which rules without literals are looked up instead of being evaluated for each packet.
    fn prefilter(&self) -> Option<PrefilterKey> {
        None
    }

    /// The condition is about one packet (flags, `dsize`, header fields, what its flow has counted by then):
    /// a rule with it and content looks at packets, not at the stream, and cannot ask for transactions.
    fn needs_packet(&self) -> bool {
        false
    }

    /// The condition cannot hold where what is left of a flow is inspected without a packet, as in Suricata
    /// (`real_pkt` among the requirements of its `--engine-analysis`; counts of a flow are asked all the same
    /// there).
    fn needs_real_packet(&self) -> bool {
        self.needs_packet()
    }

    /// The condition makes a rule with content look at each packet as well as at the stream (`stream_size`,
    /// as in Suricata).
    fn wants_packets_too(&self) -> bool {
        false
    }

    /// The longest payload of a packet, in bytes, with which it can hold; `None`: any. Longer ones are not
    /// searched for the rule's literals.
    fn longest_payload(&self) -> Option<usize> {
        None
    }

    /// The most bytes of payload that Suricata 8.0.8 reckons with when it asks whether the rule's contents
    /// fit at all; `None`: it does not ask. (`dsize:<5` counts as 5 there.)
    fn room_for_contents(&self) -> Option<i64> {
        None
    }

    /// The condition needs a flow (else the rule is evaluated for packets without one as well).
    fn needs_flow(&self) -> bool {
        false
    }

    /// The condition is about addresses only: a rule with nothing else is evaluated once per flow and
    /// direction.
    fn is_ip_only(&self) -> bool {
        false
    }

    /// The condition is about the result of protocol detection: a rule with nothing else is evaluated once
    /// per direction, when detection ends ([`Scene::detection_done`]).
    fn is_detection(&self) -> bool {
        false
    }
}

/// A cheap property of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PrefilterKey {
    /// The packet raised this decode event (number of `bartizan_packet::DecodeEvent`).
    DecodeEvent(u16),
    /// The packet raised this stream event.
    StreamEvent(u16),
    /// The ICMP or ICMPv6 type is this.
    IcmpType(u8),
}

/// A condition on a transaction.
pub trait TxCondition: Send + Sync {
    /// Whether it holds; [`Answer::NotYet`] while more data may change that.
    fn matches(&self, tx: &dyn Transaction, direction: Direction, scene: &Scene<'_>) -> Answer;

    /// Whether it holds for one file, where it is about files.
    fn holds_for(&self, file: &FileTrack) -> Option<bool> {
        let _ = file;
        None
    }
}

/// Answer of a condition on something that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It holds.
    Yes,
    /// It does not and never will.
    No,
    /// It does not, but more data may change that.
    NotYet,
}

impl From<bool> for Answer {
    fn from(holds: bool) -> Self {
        if holds { Answer::Yes } else { Answer::No }
    }
}

/// What a condition computed of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    /// Interned name of the buffer.
    pub name: u32,
    /// The result.
    pub value: f64,
    /// Whether the condition holds for it.
    pub holds: bool,
}

/// A condition on the value of a buffer as a whole (`bsize`, `to_sha256` datasets ...), besides the content
/// program.
pub trait BufferCondition: Send + Sync {
    /// Whether it holds. `complete`: no more data will follow.
    fn matches(&self, data: &[u8], complete: bool, scene: &Scene<'_>) -> Answer;

    /// Whether the result for a part of a value says nothing of the whole (the entropy of all bytes).
    fn needs_all(&self) -> bool {
        false
    }

    /// What it computes of the value, matching or not, that events of the flow show.
    fn measure(&self, data: &[u8]) -> Option<Measure> {
        let _ = data;
        None
    }

    /// What is known of a value that matched, for the alert: interned name and JSON.
    fn context(&self, data: &[u8]) -> Option<(u32, std::sync::Arc<[u8]>)> {
        let _ = data;
        None
    }
}

/// A change of a buffer's value before it is matched (`to_lowercase`, `url_decode`, `to_sha256` ...).
pub trait Transform: Send + Sync {
    /// Writes the changed value of `input` to `output`, which is empty.
    fn apply(&self, input: &[u8], output: &mut Vec<u8>);

    /// Identity of transform and options: buffers with equal chains are computed once.
    fn key(&self) -> String;

    /// Whether the result for a part of a value says nothing of the whole (a hash).
    fn needs_all(&self) -> bool {
        false
    }
}

/// What happens when all conditions of a rule hold, before the alert is written.
pub trait Effect: Send + Sync {
    /// Applies the effect. `false` takes the match back (a threshold that is not reached).
    fn apply(&self, rule: RuleId, scene: &Scene<'_>, state: Option<&mut FlowRuleState>) -> bool;

    /// Whether once a flow and direction is enough, so that a rule on addresses with it is evaluated no more
    /// often. What counts or turns
    /// round acts on each packet.
    fn is_ip_only(&self) -> bool {
        true
    }
}

/// What a threshold makes of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// The match counts as it is.
    Alert,
    /// It counts with another action (rate filter).
    Act(RuleAction),
    /// Its action applies, but it is not reported.
    Silent,
    /// It does not count: neither action nor report.
    Nothing,
}

/// Which keyword or entry a threshold comes from; decides how entries of a threshold file combine with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// `threshold`, or `event_filter` of a file.
    Threshold,
    /// `detection_filter`.
    DetectionFilter,
    /// `rate_filter` of a file.
    RateFilter,
    /// `suppress` of a file.
    Suppress,
}

/// A threshold: says how much of a match counts. Asked after the effects, in order, until one says less than
/// [`Limited::Alert`].
pub trait Limit: Send + Sync {
    /// Counts the match and judges it.
    fn judge(&self, rule: RuleId, scene: &Scene<'_>, state: Option<&mut FlowRuleState>) -> Limited;

    /// What it is.
    fn kind(&self) -> LimitKind;
}
