// SPDX-License-Identifier: Apache-2.0
//! A rule in its compiled form.

pub use crate::model::action::{RejectSide, RuleAction};
use crate::model::basis::{Basis, Packets};
use crate::model::buffers::BufferRef;
use crate::model::condition::{Effect, Limit, PacketCondition, Transform, TxCondition};
use crate::model::content::Program;
use crate::model::ordering::{Ordering, Use};
use crate::model::request::Request;
use bartizan_applayer::protocol::ProtocolId;
use bartizan_base::{Direction, PerDirection, RuleId};
use bartizan_function::RuleInfo;
use bitflags::bitflags;
use std::sync::Arc;

/// The packets and flows that the protocol in a rule's head covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtocolMatch {
    /// IP protocols; empty for all.
    pub ip: Vec<u8>,
    /// IPv4 only, IPv6 only, or both.
    pub family: Family,
    /// Application protocols; empty for any.
    pub app: Vec<ProtocolId>,
    /// The name in the head covers several protocols (`http`), whether or not this build has all of them.
    pub ambiguous: bool,
    /// `tcp-pkt`: packets only.
    pub packet_only: bool,
    /// `tcp-stream`: the stream only.
    pub stream_only: bool,
}

/// IP versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Family {
    /// Both.
    #[default]
    Any,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

bitflags! {
    /// Conditions of `flow:`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FlowNeeds: u16 {
        /// `to_server`, `from_client`.
        const TO_SERVER = 1 << 0;
        /// `to_client`, `from_server`.
        const TO_CLIENT = 1 << 1;
        /// `established`.
        const ESTABLISHED = 1 << 2;
        /// `not_established`.
        const NOT_ESTABLISHED = 1 << 3;
        /// `stateless`.
        const STATELESS = 1 << 4;
        /// `only_stream`.
        const ONLY_STREAM = 1 << 5;
        /// `no_stream`.
        const NO_STREAM = 1 << 6;
        /// `only_frag`.
        const ONLY_FRAGMENT = 1 << 7;
        /// `no_frag`.
        const NO_FRAGMENT = 1 << 8;
    }
}

/// A condition on one buffer: a program on its value after transforms.
#[derive(Clone)]
pub struct ValueCheck {
    /// The value that the program runs on.
    pub buffer: BufferRef,
    /// Direction in which the buffer is inspected, where the keyword narrows it (`file.data` of requests);
    /// else all directions of the buffer.
    pub direction: Option<Direction>,
    /// Transforms before matching, in order.
    pub transforms: Vec<Arc<dyn Transform>>,
    /// The program that must match.
    pub program: Program,
    /// The buffer must not exist (`absent`), or may (`absent:or_else`).
    pub absent: Absent,
}

/// `absent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Absent {
    /// The buffer must exist.
    #[default]
    No,
    /// The buffer must be missing.
    Only,
    /// The buffer must be missing, or the program must match.
    OrElse,
}

/// A condition on a transaction.
pub struct TxCheck {
    /// Protocols for which the condition can be evaluated; empty for all.
    pub protocols: Vec<ProtocolId>,
    /// Directions in which the condition is evaluated.
    pub directions: PerDirection<bool>,
    /// The state of such a direction that the condition belongs to: a rule does not begin with the condition
    /// after that state, as in Suricata. `None`: the condition can hold in any state.
    pub state: Option<u8>,
    /// The condition.
    pub condition: Box<dyn TxCondition>,
}

/// The literal that the prefilter searches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastPattern {
    /// Index into [`Signature::values`].
    pub value: usize,
    /// Index of the item in that value's program.
    pub item: usize,
    /// The bytes (a part of the literal when it was chopped).
    pub bytes: Arc<[u8]>,
    /// Letter case does not matter.
    pub nocase: bool,
}

/// The end of a connection that `target` names as the victim of the attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertTarget {
    /// `target:src_ip`.
    Source,
    /// `target:dest_ip`.
    Destination,
}

/// A compiled rule.
pub struct Signature {
    /// gid, sid, rev.
    pub id: RuleId,
    /// The rule's action.
    pub action: RuleAction,
    /// Scope of the action, packet or flow, where the rule names it (`drop:packet`).
    pub scope: Option<bartizan_rules::ActionScope>,
    /// The firewall's part, for firewall rules.
    pub firewall: Option<Box<crate::model::firewall::FirewallRule>>,
    /// Description for events: `msg`, class, references, metadata, `target`, the rule's text.
    pub info: Arc<RuleInfo>,
    /// 1 is the most severe.
    pub priority: u32,
    /// `noalert`.
    pub noalert: bool,
    /// `alert`: report, although the action alone would not.
    pub alert: bool,
    /// Subject of the rule's matches.
    pub kind: Kind,
    /// Protocol of the header.
    pub protocol: ProtocolMatch,
    /// `flow:`.
    pub flow: FlowNeeds,
    /// Conditions on packet and flow, cheap ones first.
    pub packet: Vec<Box<dyn PacketCondition>>,
    /// Conditions on buffers, in the order of the rule; payload first if there is one.
    pub values: Vec<ValueCheck>,
    /// Conditions on transactions.
    pub tx: Vec<TxCheck>,
    /// The rule names a state of transactions: it is evaluated when something of its direction was parsed.
    pub hooked: bool,
    /// The rule has only the state of a transaction as condition, and matches at each inspection (see
    /// [`crate::compile::hook`]).
    pub repeats: bool,
    /// No single direction has all that the values and conditions on transactions need.
    pub spans_directions: bool,
    /// The answer for a transaction that stays as it is can change: the rule has conditions on packets, the
    /// stream, bits, sets of values or the time.
    pub varies: bool,
    /// Effects in order; applied when all conditions hold.
    pub effects: Vec<Box<dyn Effect>>,
    /// Requests about records and files when all conditions hold.
    pub requests: Vec<Request>,
    /// The rule's own thresholds; those that apply are in [`Member::thresholds`].
    pub thresholds: Vec<Arc<dyn Limit>>,
    /// The literal that the prefilter searches for.
    pub fast_pattern: Option<FastPattern>,
    /// A match bypasses the flow.
    pub bypass: bool,
    /// A match marks the flow's or host's next packets.
    pub tags: bool,
    /// Hashes of files that the rule needs: MD5, SHA-1, SHA-256.
    pub file_hashes: [bool; 3],
    /// Properties that determine the order of evaluation besides action and priority.
    pub ordering: Ordering,
}

/// A rule as a member of a set: the signature, which all sets and generations with the rule share, and the
/// properties that do not follow from the rule's text alone.
pub struct Member {
    /// The rule.
    pub signature: Arc<Signature>,
    /// Number of its head in [`crate::ruleset::RuleSet::heads`].
    pub head: u32,
    /// A threshold file suppresses all of the rule's reports.
    pub suppressed: bool,
    /// Thresholds of the rule and of a threshold file; applied last, before an alert is written.
    pub thresholds: Vec<Arc<dyn Limit>>,
}

impl Member {
    /// A member with the thresholds of the rule's text.
    #[must_use]
    pub fn new(signature: Arc<Signature>, head: u32) -> Self {
        let thresholds = signature.thresholds.clone();
        Member { signature, head, suppressed: false, thresholds }
    }

    /// Whether a match is reported.
    #[must_use]
    pub fn reports(&self) -> bool {
        self.signature.would_report(self.suppressed)
    }
}

impl core::ops::Deref for Member {
    type Target = Signature;

    fn deref(&self) -> &Signature {
        &self.signature
    }
}

/// The subject of a rule's matches; decides whether its action applies to the packet or to the whole flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Addresses, ports and protocol: evaluated once per flow and direction.
    IpOnly,
    /// Addresses, ports and protocol with negated addresses: evaluated for each packet.
    LikeIpOnly,
    /// The result of protocol detection.
    Detection,
    /// One packet.
    #[default]
    Packet,
    /// Payload, of packets or of the stream.
    PacketStream,
    /// The stream.
    Stream,
    /// The flow's application protocol.
    App,
    /// Transactions.
    Tx,
}

impl Kind {
    /// The kind of a rule; `negated`: some of its addresses are written with a negation.
    #[must_use]
    pub fn of(signature: &Signature, negated: bool) -> Kind {
        let direction_only = (FlowNeeds::TO_SERVER | FlowNeeds::TO_CLIENT).contains(signature.flow);
        if signature.is_detection_only() {
            Kind::Detection
        } else if signature.is_about_addresses() {
            if negated { Kind::LikeIpOnly } else { Kind::IpOnly }
        } else if signature.values.iter().any(|v| matches!(v.buffer, BufferRef::Packet(_))) {
            // Also together with a transaction's buffers, as in Suricata.
            Kind::Packet
        } else if signature.inspects_tx() || signature.inspects_frames() {
            Kind::Tx
        } else if !signature.values.is_empty() {
            match Basis::of(signature) {
                Basis { stream: false, .. } => Kind::Packet,
                Basis { packets: Packets::None, .. } => Kind::Stream,
                Basis { packets: Packets::OutsideStream | Packets::All, .. } => Kind::PacketStream,
            }
        } else if signature.packet.is_empty() && direction_only && !signature.protocol.app.is_empty() {
            Kind::App
        } else {
            Kind::Packet
        }
    }

    /// Whether the action of a match applies to the rest of the flow. `stateful`: the rule matched on stream
    /// data or on a transaction.
    #[must_use]
    pub const fn acts_on_flow(self, stateful: bool) -> bool {
        match self {
            Kind::IpOnly | Kind::LikeIpOnly | Kind::Detection | Kind::App | Kind::Tx => true,
            Kind::PacketStream | Kind::Stream => stateful,
            Kind::Packet => false,
        }
    }
}

impl Signature {
    /// Whether a match would be reported. `suppressed`: a threshold file suppresses the report.
    fn would_report(&self, suppressed: bool) -> bool {
        if self.firewall.is_some() {
            return self.alert && !suppressed;
        }
        match self.action {
            RuleAction::Pass => self.alert,
            RuleAction::Config | RuleAction::Accept => false,
            RuleAction::Alert | RuleAction::Drop | RuleAction::Reject(_) => !(self.noalert || suppressed),
        }
    }

    /// Whether the rule's answer depends only on its transaction, and on properties that all packets of an
    /// established flow's direction share; the opposite of [`Signature::varies`].
    fn depends_on_transaction_alone(&self) -> bool {
        let shared =
            FlowNeeds::TO_SERVER | FlowNeeds::TO_CLIENT | FlowNeeds::ESTABLISHED | FlowNeeds::STATELESS;
        self.packet.is_empty()
            && shared.contains(self.flow)
            && !self.repeats
            && self.values.iter().all(|v| matches!(v.buffer, BufferRef::Tx(_)) && !v.program.has_custom())
            && !self.tx.iter().any(|check| check.condition.varies())
    }

    /// Sets [`Signature::varies`].
    pub(crate) fn note_whether_it_varies(&mut self) {
        self.varies = !self.depends_on_transaction_alone();
    }

    /// Whether the rule reads flowbits.
    #[must_use]
    pub fn reads_flowbits(&self) -> bool {
        matches!(self.ordering.flowbits, Use::Read | Use::ReadWrite)
    }

    /// Whether the rule inspects transactions and is evaluated for these, instead of packets and streams
    /// only.
    #[must_use]
    pub fn inspects_tx(&self) -> bool {
        !self.tx.is_empty() || self.values.iter().any(|v| matches!(v.buffer, BufferRef::Tx(_)))
    }

    /// Whether the rule inspects protocol frames and is evaluated for these.
    #[must_use]
    pub fn inspects_frames(&self) -> bool {
        self.values.iter().any(|v| matches!(v.buffer, BufferRef::Frame(_)))
    }

    /// Whether the rule depends only on the result of protocol detection (and addresses, ports, direction,
    /// state of a host): such a rule is evaluated only when detection of a direction ends.
    #[must_use]
    pub fn is_detection_only(&self) -> bool {
        self.packet.iter().any(|c| c.is_detection())
            && self.packet.iter().all(|c| c.is_detection() || c.is_ip_only())
            && self.values.is_empty()
            && self.tx.is_empty()
            && (FlowNeeds::TO_SERVER | FlowNeeds::TO_CLIENT).contains(self.flow)
            && self.protocol.app.is_empty()
    }

    /// Whether the rule is evaluated once per flow and direction, not once per packet.
    #[must_use]
    pub fn is_ip_only(&self) -> bool {
        self.kind == Kind::IpOnly
    }

    /// Whether the rule depends on decode events only.
    #[must_use]
    pub fn is_about_decoding(&self) -> bool {
        let is_event = |c: &dyn PacketCondition| {
            matches!(c.prefilter(), Some(crate::model::condition::PrefilterKey::DecodeEvent(_)))
        };
        !self.packet.is_empty()
            && self.packet.iter().all(|c| is_event(&**c))
            && self.values.is_empty()
            && self.tx.is_empty()
    }

    /// Whether the rule depends only on addresses, ports and protocol, and has no effect on each packet.
    fn is_about_addresses(&self) -> bool {
        self.packet.iter().all(|c| c.is_ip_only())
            && self.effects.iter().all(|e| e.is_ip_only())
            && self.values.is_empty()
            && self.tx.is_empty()
            && self.flow.is_empty()
            && self.protocol.app.is_empty()
    }
}
