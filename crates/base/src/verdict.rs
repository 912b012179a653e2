// SPDX-License-Identifier: Apache-2.0
//! The decision on a packet, and its reason.

use crate::{FunctionId, PortIndex, RuleId};
use core::num::NonZeroU32;

/// The verdict of a function on a packet, least severe first, so that `max` is the verdict that wins.
///
/// `Pass` applies to one function only; the others still decide. The bypass of a flow is not a verdict of its
/// own but [`Decision::done`]: "this function is done with the flow".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Verdict {
    /// No decision.
    #[default]
    Continue = 0,
    /// Accepted by this function.
    Pass = 1,
    /// Dropped.
    Drop = 2,
    /// Dropped, with an answer to the sender (TCP RST or ICMP unreachable).
    Reject = 3,
}

impl Verdict {
    /// Whether the packet is forwarded.
    #[must_use]
    pub const fn forwards(self) -> bool {
        matches!(self, Verdict::Continue | Verdict::Pass)
    }

    /// Name in events and counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Continue => "continue",
            Verdict::Pass => "pass",
            Verdict::Drop => "drop",
            Verdict::Reject => "reject",
        }
    }
}

/// The metadata's order to a lower level or the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MetadataAction {
    /// Pass up to the host.
    #[default]
    ToCpu = 0,
    /// Send by the egress port.
    ToPort = 1,
    /// Drop.
    Drop = 2,
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident => $name:literal,)+) => {
        /// The reason why a packet was not simply forwarded, or why an action was not taken. There is no
        /// catch-all: a new reason is added here with its name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Reason { $($(#[doc = $doc])+ $variant,)+ }

        impl Reason {
            /// Every reason, in the order of the counters.
            pub const ALL: &'static [Reason] = &[$(Reason::$variant,)+];
            /// Number of reasons.
            pub const COUNT: usize = Self::ALL.len();

            /// Name in events, counters and the reference page.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Reason::$variant => $name,)+ }
            }

            /// The meaning, one sentence for people.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Reason::$variant => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

reasons! {
    /// A packet filter rule drops or rejects the packet.
    PfwRule => "pfw_rule",
    /// No packet filter rule matches, and the default action drops or rejects.
    PfwDefault => "pfw_default",
    /// TCP packet that opens no connection and belongs to none.
    SfwNoConnection => "sfw_no_connection",
    /// TCP packet that the connection's state does not allow.
    SfwState => "sfw_state",
    /// TCP sequence or acknowledgement number outside the window.
    SfwWindow => "sfw_window",
    /// The policy does not allow this side to open connections.
    SfwInitiator => "sfw_initiator",
    /// ICMP error that quotes no known flow.
    SfwUnrelatedIcmp => "sfw_unrelated_icmp",
    /// Too many half-open connections of one source.
    SfwSynLimit => "sfw_syn_limit",
    /// Too many connections of one source.
    SfwConnectionLimit => "sfw_connection_limit",
    /// A detection rule drops or rejects the packet.
    IdsRule => "ids_rule",
    /// A rate filter turns a detection rule's match into a drop.
    IdsThreshold => "ids_threshold",
    /// A detection rule blocked the whole flow earlier.
    IdsFlow => "ids_flow",
    /// A firewall rule drops or rejects the packet (firewall mode).
    FirewallRule => "firewall_rule",
    /// No firewall rule accepts the packet, and the policy for packets drops.
    FirewallPacketPolicy => "firewall_packet_policy",
    /// No firewall rule accepts a state of a transaction, and the policy of that state drops.
    FirewallAppPolicy => "firewall_app_policy",
    /// A firewall rule of the pre-flow hook drops the packet.
    FirewallPreFlow => "firewall_pre_flow",
    /// A firewall rule of the pre-stream hook drops the packet.
    FirewallPreStream => "firewall_pre_stream",
    /// The firewall blocked the whole flow earlier.
    FirewallFlow => "firewall_flow",
    /// An exception policy blocked the whole flow earlier.
    ExceptionFlow => "exception_flow",
    /// A packet inside this tunnel packet is dropped.
    TunnelInner => "tunnel_inner",
    /// A fragment could not be stored, or its datagram must not be completed.
    Defrag => "defrag",
    /// Malformed headers: the payload cannot be located and inspected, but a receiver may find it.
    Unreadable => "unreadable",
    /// A TCP segment that the stream engine does not accept inline.
    StreamError => "stream_error",
    /// Retransmitted bytes that differ from the inspected ones, and the policy drops such segments.
    StreamOverlap => "stream_overlap",
    /// Memory for TCP sessions is exhausted, and the exception policy drops.
    StreamMemory => "stream_memory",
    /// Reassembly memory is exhausted, and the exception policy drops.
    StreamReassembly => "stream_reassembly",
    /// Midstream TCP packet that the policy does not pick up.
    StreamMidstream => "stream_midstream",
    /// The flow table is full, and the exception policy drops packets without a flow.
    FlowMemory => "flow_memory",
    /// The application-layer parser failed, and the exception policy blocks such flows.
    AppLayerError => "applayer_error",
    /// A rule depends on the protocol, which the bytes so far do not show: the packet is forwarded after more
    /// bytes or some time.
    ProtocolOpen => "protocol_open",
    /// Memory for application layers is exhausted, and the exception policy blocks the flows that it closes.
    AppLayerMemory => "applayer_memory",
    /// Fragments cannot be stored: defragmentation memory is exhausted.
    DefragMemory => "defrag_memory",
    /// The default action for traffic that no policy matches.
    PolicyDefault => "policy_default",
    /// One direction of the flow is not visible, and the policy drops such flows.
    OneSided => "one_sided",
    /// The frame is larger than the egress port can send.
    EgressMtu => "egress_mtu",
    /// The egress port's ring had no room.
    EgressRing => "egress_ring",
    /// A hand-over ring between workers had no room.
    HandOverRing => "hand_over_ring",
    /// Its source scans ports or sweeps the network, and the policy drops new flows of such a source.
    Portscan => "portscan",
    /// A function of the chain has failed, and the policy drops packets without it.
    FunctionFailed => "function_failed",
    /// A function of the chain was stopped by an operator, and the policy drops packets without it.
    FunctionStopped => "function_stopped",
    /// HTTP/2 in clear text, which is not parsed, and the policy blocks it.
    Http2 => "http2",
    /// The load exceeds the worker's capacity, and flows with the priority of this policy are shed.
    Overload => "overload",
}

/// The decision of one function: verdict, reason, cause, and whether the function is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// The reason; `None` only for `Continue` and for a plain `Pass`. For a packet as a whole, `Continue`
    /// with a reason means that a staged policy would refuse it.
    pub reason: Option<Reason>,
    /// The function that decided.
    pub function: FunctionId,
    /// The function's rule: index + 1 of a packet-filter rule, or a detection rule's sid.
    pub rule: Option<NonZeroU32>,
    /// Full identity if a detection rule decided.
    pub rule_id: Option<RuleId>,
    /// Whether the function needs no more packets of this flow: its bit leaves the path.
    pub done: bool,
    /// Whether the function's decision is the same for all packets of this flow in this generation, so that a
    /// level below the host may decide.
    pub repeats: bool,
    /// The named port through which a forwarded packet leaves, instead of the other port of its link. With
    /// `done`, all packets of both directions of the flow leave through it.
    pub egress: Option<PortIndex>,
}

impl Reason {
    /// Whether firewall mode refused: then detection has not decided.
    #[must_use]
    pub const fn is_firewall(self) -> bool {
        matches!(
            self,
            Reason::FirewallRule
                | Reason::FirewallPacketPolicy
                | Reason::FirewallAppPolicy
                | Reason::FirewallPreFlow
                | Reason::FirewallPreStream
                | Reason::FirewallFlow
        )
    }

    /// The reason for the packets after one with this reason, if the whole flow is refused.
    #[must_use]
    pub const fn of_flow(self) -> Reason {
        match self {
            Reason::FunctionFailed => self,
            _ if self.is_firewall() => Reason::FirewallFlow,
            _ => Reason::IdsFlow,
        }
    }
}

impl Decision {
    /// No decision.
    pub const CONTINUE: Decision = Decision {
        verdict: Verdict::Continue,
        reason: None,
        function: FunctionId(0),
        rule: None,
        rule_id: None,
        done: false,
        repeats: false,
        egress: None,
    };

    /// A refusal with its reason.
    #[must_use]
    pub const fn refuse(verdict: Verdict, reason: Reason, function: FunctionId) -> Self {
        Decision {
            verdict,
            reason: Some(reason),
            function,
            rule: None,
            rule_id: None,
            done: false,
            repeats: false,
            egress: None,
        }
    }

    /// The more severe of two decisions; the earlier of two equal ones. A forwarded packet leaves by the port
    /// of the earlier one, or else that of the later one.
    #[must_use]
    pub fn strictest(self, later: Decision) -> Decision {
        let egress = self.egress.or(later.egress);
        let mut strictest = if later.verdict > self.verdict { later } else { self };
        if strictest.verdict == Verdict::Continue {
            strictest.reason = self.reason.or(later.reason);
        }
        Decision { egress: egress.filter(|_| strictest.verdict.forwards()), ..strictest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn reasons_have_distinct_names_and_dense_numbers() {
        let names: HashSet<_> = Reason::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), Reason::COUNT);
        for (index, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
        }
    }

    #[test]
    fn the_most_severe_verdict_wins_and_the_first_of_equals() {
        let drop = Decision::refuse(Verdict::Drop, Reason::PfwRule, FunctionId(0));
        let again = Decision::refuse(Verdict::Drop, Reason::IdsRule, FunctionId(2));
        let reject = Decision::refuse(Verdict::Reject, Reason::IdsRule, FunctionId(2));
        assert_eq!(Decision::CONTINUE.strictest(drop).reason, Some(Reason::PfwRule));
        assert_eq!(drop.strictest(again).reason, Some(Reason::PfwRule));
        assert_eq!(drop.strictest(reject).verdict, Verdict::Reject);
    }

    #[test]
    fn what_goes_on_leaves_by_the_port_that_is_named_first() {
        let to = |port| Decision { egress: Some(PortIndex(port)), ..Decision::CONTINUE };
        let pass = Decision { verdict: Verdict::Pass, ..Decision::CONTINUE };
        assert_eq!(to(1).strictest(to(2)).egress, Some(PortIndex(1)));
        let passed = to(1).strictest(pass);
        assert_eq!((passed.verdict, passed.egress), (Verdict::Pass, Some(PortIndex(1))));
        assert_eq!(pass.strictest(to(2)).egress, Some(PortIndex(2)));
        let drop = Decision::refuse(Verdict::Drop, Reason::IdsRule, FunctionId(2));
        assert_eq!(to(1).strictest(drop).egress, None);
    }
}
