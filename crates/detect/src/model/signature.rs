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

/// Which packets and flows the header's protocol covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtocolMatch {
    /// IP protocols; empty for all.
    pub ip: Vec<u8>,
    /// IPv4 only, IPv6 only, or both.
    pub family: Family,
    /// Application protocols; empty when it does not matter.
    pub app: Vec<ProtocolId>,
    /// The name in the head covers several of them (`http`), whether or not this build has all.
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
    /// What `flow:` asks for.
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
    /// Which value.
    pub buffer: BufferRef,
    /// Direction in which the buffer is looked at, where the keyword narrows it (`file.data` of requests);
    /// else all that the buffer has.
    pub direction: Option<Direction>,
    /// Changes before matching, in order.
    pub transforms: Vec<Arc<dyn Transform>>,
    /// What must hold.
    pub program: Program,
    /// The buffer must not exist (`absent`), or may (`absent:or_else`).
    pub absent: Absent,
}

/// `absent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Absent {
    /// The buffer must be there.
    #[default]
    No,
    /// It must not be there.
    Only,
    /// It must not be there, or the program must match.
    OrElse,
}

/// A condition on a transaction.
pub struct TxCheck {
    /// Protocols for which it can be asked; empty for all.
    pub protocols: Vec<ProtocolId>,
    /// Directions in which it is asked.
    pub directions: PerDirection<bool>,
    /// The state of such a direction that it belongs to: behind that it is not begun with, as in Suricata.
    /// `None`: it can hold in any.
    pub state: Option<u8>,
    /// The condition.
    pub condition: Box<dyn TxCondition>,
}

/// Which literal the prefilter looks for.
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

/// A part of a transaction list that the rule's alert is about.
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
    /// What it does.
    pub action: RuleAction,
    /// Whether its action holds for the packet or for the flow, where the rule says so (`drop:packet`).
    pub scope: Option<bartizan_rules::ActionScope>,
    /// The firewall's part, of rules of the firewall.
    pub firewall: Option<Box<crate::model::firewall::FirewallRule>>,
    /// What is told of it: `msg`, class, references, metadata, `target`, its text.
    pub info: Arc<RuleInfo>,
    /// 1 is the most severe.
    pub priority: u32,
    /// `noalert`.
    pub noalert: bool,
    /// `alert`: report, although the action alone would not.
    pub alert: bool,
    /// What its match is about.
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
    /// The rule asks for a state of transactions: it is looked at when something of its direction was parsed.
    pub hooked: bool,
    /// The rule has nothing but the state of a transaction to look at, and matches at each look (see
    /// [`crate::compile::hook`]).
    pub repeats: bool,
    /// No single direction has all that the values and conditions on transactions ask for.
    pub spans_directions: bool,
    /// Effects in order; applied when everything holds.
    pub effects: Vec<Box<dyn Effect>>,
    /// What is asked of records and files when everything holds.
    pub requests: Vec<Request>,
    /// Its own thresholds; those that count are [`Member::thresholds`].
    pub thresholds: Vec<Arc<dyn Limit>>,
    /// What the prefilter looks for.
    pub fast_pattern: Option<FastPattern>,
    /// The rule asks for the flow to be bypassed.
    pub bypass: bool,
    /// Marks the flow's or host's next packets.
    pub tags: bool,
    /// Asks for hashes of files: MD5, SHA-1, SHA-256.
    pub file_hashes: [bool; 3],
    /// What its place in the order of evaluation depends on besides action and priority.
    pub ordering: Ordering,
}

/// A rule as a member of a set: what does not come from its text alone. The rest is shared by all sets and
/// generations that have the rule.
pub struct Member {
    /// The rule.
    pub signature: Arc<Signature>,
    /// Number of its addresses and ports in [`crate::ruleset::RuleSet::heads`].
    pub head: u32,
    /// A threshold file says that it reports nothing.
    pub suppressed: bool,
    /// Applied last, and only then an alert is written: thresholds, its own and those of a file.
    pub thresholds: Vec<Arc<dyn Limit>>,
}

impl Member {
    /// A rule with what its text says.
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

/// What the match of a rule is about; decides whether its action holds for the packet or for the whole flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Addresses, ports and protocol: evaluated once per flow and direction.
    IpOnly,
    /// The same with negated addresses, which is evaluated for each packet.
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
    /// Of a rule; `negated`: its addresses are, at least in part, given by what they are not.
    #[must_use]
    pub fn of(signature: &Signature, negated: bool) -> Kind {
        let direction_only = (FlowNeeds::TO_SERVER | FlowNeeds::TO_CLIENT).contains(signature.flow);
        if signature.is_detection_only() {
            Kind::Detection
        } else if signature.is_about_addresses() {
            if negated { Kind::LikeIpOnly } else { Kind::IpOnly }
        } else if signature.values.iter().any(|v| matches!(v.buffer, BufferRef::Packet(_))) {
            // Also beside a transaction's buffers, as in Suricata.
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

    /// Whether the action of a match holds for the rest of the flow. `stateful`: it matched on stream data or
    /// on a transaction.
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
    /// Whether a match would be reported. `suppressed`: something else than the rule says that it is not.
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

    /// Whether the rule asks for flowbits.
    #[must_use]
    pub fn asks_for_bits(&self) -> bool {
        matches!(self.ordering.flowbits, Use::Read | Use::ReadWrite)
    }

    /// Whether the rule looks at transactions (and is evaluated for these), or at packets and streams only.
    #[must_use]
    pub fn inspects_tx(&self) -> bool {
        !self.tx.is_empty() || self.values.iter().any(|v| matches!(v.buffer, BufferRef::Tx(_)))
    }

    /// Whether the rule looks at frames, and is evaluated for these.
    #[must_use]
    pub fn inspects_frames(&self) -> bool {
        self.values.iter().any(|v| matches!(v.buffer, BufferRef::Frame(_)))
    }

    /// Whether the rule looks at nothing but the result of protocol detection (and addresses, ports,
    /// direction, what is known of a host): such a rule is evaluated only when detection of a direction ends.
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

    /// Whether the rule asks for decode events and for nothing else.
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

    /// Whether the rule has nothing but addresses, ports and protocol to look at, and nothing to do for each
    /// packet.
    fn is_about_addresses(&self) -> bool {
        self.packet.iter().all(|c| c.is_ip_only())
            && self.effects.iter().all(|e| e.is_ip_only())
            && self.values.is_empty()
            && self.tx.is_empty()
            && self.flow.is_empty()
            && self.protocol.app.is_empty()
    }
}
