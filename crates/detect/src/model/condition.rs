// SPDX-License-Identifier: Apache-2.0
//! Traits that keywords compile to: conditions on packets, transactions and buffers, and effects after a
//! match.
//!
//! Each keyword implements one of the traits. The implementations are made when rules load, and are called
//! without allocation.

use crate::model::action::RuleAction;
use crate::model::left::AlertContext;
use crate::state::FlowRuleState;
use bartizan_applayer::file::FileTrack;
use bartizan_applayer::transaction::Transaction;
use bartizan_base::{Direction, RuleId};
use bartizan_function::PacketFacts;
use bartizan_packet::PacketFlags;

/// Data that a condition may inspect.
#[derive(Clone, Copy)]
pub struct ConditionContext<'a> {
    /// The inspected packet, its flow, and the piece of the stream that is inspected with it. Without a
    /// packet the remaining stream of a flow is inspected, or held-back data.
    pub facts: &'a PacketFacts<'a>,
    /// The part of the packet's payload that rules inspect (see [`inspected_payload`]).
    pub payload: &'a [u8],
    /// Current flow variables.
    pub state: Option<&'a FlowRuleState>,
    /// Values that earlier matches on this packet captured.
    pub left: &'a [AlertContext],
    /// The inspecting function; its bit marks the directions of transactions that it has finished.
    pub function: bartizan_base::FunctionId,
    /// The tenant that the traffic belongs to.
    pub tenant: bartizan_base::TenantId,
    /// State outside of flows: host table, names.
    pub shared: &'a crate::state::shared::Shared,
}

impl ConditionContext<'_> {
    /// IP protocol of the inspected packet or flow.
    #[must_use]
    pub fn ip_protocol(&self) -> Option<u8> {
        match self.facts.packet {
            Some(packet) => packet.decoded().proto(),
            None => self.facts.flow.map(|flow| flow.protocol),
        }
    }

    /// Source and destination address of the inspected packet or flow.
    #[must_use]
    pub fn addresses(&self) -> Option<(core::net::IpAddr, core::net::IpAddr)> {
        if let Some(packet) = self.facts.packet {
            let decoded = packet.decoded();
            return decoded.src().zip(decoded.dst());
        }
        let flow = self.facts.flow?;
        let direction = self.facts.direction;
        Some((flow.source(direction).0, flow.destination(direction).0))
    }
}

/// The part of a packet's payload that rules inspect. In detection this is nothing for a packet that carries
/// another one in a tunnel, since the inner packet is inspected by itself (as in Suricata). In prevention it
/// is the whole payload, since a receiver may not decode the tunnel and read the payload as it is.
#[must_use]
pub fn inspected_payload<'a>(facts: &PacketFacts<'a>) -> &'a [u8] {
    let hidden = facts.headers_only || facts.payload_hidden;
    let Some(packet) = facts.packet.or(facts.bytes).filter(|_| !hidden) else { return &[] };
    if !facts.prevention && packet.decoded().flags.contains(PacketFlags::HAS_INNER) {
        &[]
    } else {
        packet.payload()
    }
}

/// A condition on the packet or flow.
pub trait PacketCondition: Send + Sync {
    /// Whether the condition holds.
    fn matches(&self, scene: &ConditionContext<'_>) -> bool;

    /// Key by which rules without literals are looked up instead of being evaluated for each packet.
    fn prefilter(&self) -> Option<PrefilterKey> {
        None
    }

    /// Whether the condition concerns one packet (flags, `dsize`, header fields, the flow's counts at that
    /// time): a rule with it and content is evaluated on packets, not on the stream, and cannot inspect
    /// transactions.
    fn needs_packet(&self) -> bool {
        false
    }

    /// Whether the condition cannot hold when the remaining stream of a flow is inspected without a packet,
    /// as in Suricata (`real_pkt` among the requirements of its `--engine-analysis`; conditions on a flow's
    /// counts are evaluated even so).
    fn needs_real_packet(&self) -> bool {
        self.needs_packet()
    }

    /// Whether a rule with content and this condition is evaluated on each packet as well as on the stream
    /// (`stream_size`, as in Suricata).
    fn wants_packets_too(&self) -> bool {
        false
    }

    /// Length of the longest payload, in bytes, with which the condition can hold; `None`: any. Longer
    /// payloads are not searched for the rule's literals.
    fn longest_payload(&self) -> Option<usize> {
        None
    }

    /// Length of payload, in bytes, that Suricata 8.0.8 assumes when it checks whether the rule's contents
    /// fit; `None`: it does not check. (`dsize:<5` counts as 5 there.)
    fn room_for_contents(&self) -> Option<i64> {
        None
    }

    /// Whether the condition needs a flow (otherwise the rule is evaluated for packets without one as well).
    fn needs_flow(&self) -> bool {
        false
    }

    /// Whether the condition concerns addresses only: a rule with nothing else is evaluated once per flow and
    /// direction.
    fn is_ip_only(&self) -> bool {
        false
    }

    /// Whether the condition concerns the result of protocol detection: a rule with nothing else is evaluated
    /// once per direction, when detection ends ([`PacketFacts::detection_done`]).
    fn is_detection(&self) -> bool {
        false
    }
}

/// A cheap property of a packet that selects rules without a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PrefilterKey {
    /// The packet raised this decode event (number of `bartizan_packet::DecodeEvent`).
    DecodeEvent(u16),
    /// The packet raised this stream event.
    StreamEvent(u16),
    /// The packet has this ICMP or ICMPv6 type.
    IcmpType(u8),
}

/// A condition on a transaction.
pub trait TxCondition: Send + Sync {
    /// Whether the condition holds; [`Answer::NotYet`] while more data may change the answer.
    fn matches(&self, tx: &dyn Transaction, direction: Direction, scene: &ConditionContext<'_>) -> Answer;

    /// Whether the answer for a transaction that stays as it is can change (with the time).
    fn varies(&self) -> bool {
        false
    }

    /// Whether the condition holds for one file, if it concerns files.
    fn holds_for(&self, file: &FileTrack) -> Option<bool> {
        let _ = file;
        None
    }
}

/// Answer of a condition on data that may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The condition holds.
    Yes,
    /// The condition does not hold and never will.
    No,
    /// The condition does not hold, but more data may change that.
    NotYet,
}

impl From<bool> for Answer {
    fn from(holds: bool) -> Self {
        if holds { Answer::Yes } else { Answer::No }
    }
}

/// A number that a condition computed from a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    /// Interned name of the buffer.
    pub name: u32,
    /// The result.
    pub value: f64,
    /// Whether the condition holds for the number.
    pub holds: bool,
}

/// A condition on the value of a buffer as a whole (`bsize`, `to_sha256` datasets ...), besides the content
/// program.
pub trait BufferCondition: Send + Sync {
    /// Whether the condition holds. `complete`: no more data will follow.
    fn matches(&self, data: &[u8], complete: bool, scene: &ConditionContext<'_>) -> Answer;

    /// Whether the result needs the complete value (the entropy of all bytes).
    fn needs_all(&self) -> bool {
        false
    }

    /// Number that the condition computes from the value, matching or not, for events of the flow.
    fn measure(&self, data: &[u8]) -> Option<Measure> {
        let _ = data;
        None
    }

    /// Context of a value that matched, for the alert: interned name and JSON.
    fn context(&self, data: &[u8]) -> Option<(u32, std::sync::Arc<[u8]>)> {
        let _ = data;
        None
    }
}

/// A change of a buffer's value before it is matched (`to_lowercase`, `url_decode`, `to_sha256` ...).
pub trait Transform: Send + Sync {
    /// Writes the changed value of `input` to `output`, which is empty.
    fn apply(&self, input: &[u8], output: &mut Vec<u8>);

    /// Identity of transform and options: buffers with equal transforms are computed once.
    fn key(&self) -> String;

    /// Whether the result needs the complete value (a hash).
    fn needs_all(&self) -> bool {
        false
    }
}

/// An action when all conditions of a rule hold, before the alert is written.
pub trait Effect: Send + Sync {
    /// Applies the effect. `false` revokes the match (a threshold that is not reached).
    fn apply(&self, rule: RuleId, scene: &ConditionContext<'_>, state: Option<&mut FlowRuleState>) -> bool;

    /// Whether the effect needs to be applied only once per flow and direction, so that a rule on addresses
    /// stays one that is evaluated once. Effects that count or toggle apply to each packet.
    fn is_ip_only(&self) -> bool {
        true
    }
}

/// The decision of a threshold on a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// The match counts unchanged.
    Alert,
    /// The match counts with another action (rate filter).
    Act(RuleAction),
    /// The action applies without a report.
    Silent,
    /// The match does not count: neither action nor report.
    Nothing,
}

/// The keyword or file entry that a threshold comes from; decides how entries of a threshold file combine
/// with it.
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

/// A threshold, which limits the effect of matches. Thresholds are applied in order after the effects, until
/// one gives less than [`Limited::Alert`].
pub trait Limit: Send + Sync {
    /// Counts the match and judges it.
    fn judge(&self, rule: RuleId, scene: &ConditionContext<'_>, state: Option<&mut FlowRuleState>)
    -> Limited;

    /// The origin of the threshold.
    fn kind(&self) -> LimitKind;
}
