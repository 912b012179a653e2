// SPDX-License-Identifier: Apache-2.0
//! A worker's counters beside those of its parts: plain numbers that can be summed over workers.

use crate::shedding::ShedCounters;
use bartizan_base::{Decision, Reason, Verdict};
use bartizan_flow::tcp::{ExceptionPolicy, ExceptionTarget, StreamEvent};

/// Names of `stats.exception_policy.tcp.midstream` by policy; the order of [`ExceptionCounters`].
const MIDSTREAM: [(ExceptionPolicy, &str); 8] = [
    (ExceptionPolicy::Ignore, "exception_policy.tcp.midstream.ignore"),
    (ExceptionPolicy::DropFlow, "exception_policy.tcp.midstream.drop_flow"),
    (ExceptionPolicy::DropPacket, "exception_policy.tcp.midstream.drop_packet"),
    (ExceptionPolicy::PassFlow, "exception_policy.tcp.midstream.pass_flow"),
    (ExceptionPolicy::PassPacket, "exception_policy.tcp.midstream.pass_packet"),
    (ExceptionPolicy::Bypass, "exception_policy.tcp.midstream.bypass"),
    (ExceptionPolicy::Reject, "exception_policy.tcp.midstream.reject"),
    (ExceptionPolicy::RejectBoth, "exception_policy.tcp.midstream.reject_both"),
];

/// Applications of exception policies to sessions whose start was not seen, by policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExceptionCounters([u64; MIDSTREAM.len()]);

impl ExceptionCounters {
    /// Counts one application of a midstream policy other than `Ignore`.
    pub fn add(&mut self, target: ExceptionTarget, policy: ExceptionPolicy) {
        if target == ExceptionTarget::Midstream
            && policy != ExceptionPolicy::Ignore
            && let Some(at) = MIDSTREAM.iter().position(|(p, _)| *p == policy)
            && let Some(count) = self.0.get_mut(at)
        {
            *count += 1;
        }
    }
}

/// Refusals, by the number of their reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalCounters(pub [u64; Reason::COUNT]);

impl Default for RefusalCounters {
    fn default() -> Self {
        RefusalCounters([0; Reason::COUNT])
    }
}

impl core::ops::Deref for RefusalCounters {
    type Target = [u64; Reason::COUNT];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl core::ops::DerefMut for RefusalCounters {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl IntoIterator for RefusalCounters {
    type Item = u64;
    type IntoIter = core::array::IntoIter<u64, { Reason::COUNT }>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Counters of a worker beyond those of its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounters {
    /// Frames.
    pub packets: u64,
    /// Captured bytes of these frames.
    pub bytes: u64,
    /// Alerts reported.
    pub alerts: u64,
    /// Packets refused, by [`bartizan_base::Reason`].
    pub refused: RefusalCounters,
    /// Frames forwarded (in detection: that would have been).
    pub forwarded: u64,
    /// Frames that are counted as refused and forwarded nevertheless (detection).
    pub let_go: u64,
    /// Packets for which the flow table had no room.
    pub no_flow: u64,
    /// Exception policies applied.
    pub exceptions: ExceptionCounters,
    /// Packets rejected: dropped with an answer to a side.
    pub rejected: u64,
    /// Rejected packets with a reason of the firewall.
    pub firewall_rejected: u64,
    /// Packets of bypassed flows that no level below has.
    pub bypassed_packets: u64,
    /// Bytes of these packets.
    pub bypassed_bytes: u64,
    /// Packets of bypassed flows that reached the host although a level below had an entry for their flow, or
    /// was about to have one.
    pub bypassed_late_packets: u64,
    /// Bytes of these packets.
    pub bypassed_late_bytes: u64,
    /// Flows that were bypassed.
    pub bypassed_flows: u64,
    /// Stream events, by their number; counted if the settings enable it.
    pub stream_events: StreamEventCounters,
    /// Packets in which a rule replaced bytes.
    pub replaced: u64,
    /// Packets in which a rule was to replace bytes and could not.
    pub not_replaced: u64,
    /// Packets without a payload function on their path, which need no reassembly or parsing.
    pub spared: u64,
    /// Datagrams whose end was not captured, which parsers therefore do not get.
    pub cut_unparsed: u64,
    /// Forwarded frames that are neither IP nor ARP, which no policy selects.
    pub not_ip: u64,
    /// Counters of shedding.
    pub shed: ShedCounters,
}

impl WorkerCounters {
    /// Counts a packet of a bypassed flow, of `length` bytes. `at_host`: no level below has its flow.
    #[inline]
    pub fn note_bypassed(&mut self, at_host: bool, length: u32) {
        let (packets, bytes) = if at_host {
            (&mut self.bypassed_packets, &mut self.bypassed_bytes)
        } else {
            (&mut self.bypassed_late_packets, &mut self.bypassed_late_bytes)
        };
        *packets += 1;
        *bytes += u64::from(length);
    }

    /// The counters of two workers together.
    #[must_use]
    pub fn plus(mut self, other: &WorkerCounters) -> Self {
        // Every field by name, so that a new one is not forgotten here.
        let WorkerCounters {
            packets,
            bytes,
            alerts,
            refused,
            forwarded,
            let_go,
            no_flow,
            exceptions,
            rejected,
            firewall_rejected,
            bypassed_packets,
            bypassed_bytes,
            bypassed_late_packets,
            bypassed_late_bytes,
            bypassed_flows,
            stream_events,
            replaced,
            not_replaced,
            spared,
            cut_unparsed,
            not_ip,
            shed,
        } = other;
        self.packets += packets;
        self.bytes += bytes;
        self.alerts += alerts;
        for (sum, more) in self.refused.0.iter_mut().zip(refused.0) {
            *sum += more;
        }
        self.forwarded += forwarded;
        self.let_go += let_go;
        self.no_flow += no_flow;
        for (sum, more) in self.exceptions.0.iter_mut().zip(exceptions.0) {
            *sum += more;
        }
        self.rejected += rejected;
        self.firewall_rejected += firewall_rejected;
        self.bypassed_packets += bypassed_packets;
        self.bypassed_bytes += bypassed_bytes;
        self.bypassed_late_packets += bypassed_late_packets;
        self.bypassed_late_bytes += bypassed_late_bytes;
        self.bypassed_flows += bypassed_flows;
        for (sum, more) in self.stream_events.0.iter_mut().zip(stream_events.0) {
            *sum += more;
        }
        self.replaced += replaced;
        self.not_replaced += not_replaced;
        self.spared += spared;
        self.cut_unparsed += cut_unparsed;
        self.not_ip += not_ip;
        self.shed = self.shed.plus(shed);
        self
    }
}

/// Stream events, by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEventCounters(pub [u64; StreamEvent::ALL.len()]);

impl Default for StreamEventCounters {
    fn default() -> Self {
        StreamEventCounters([0; StreamEvent::ALL.len()])
    }
}

impl WorkerCounters {
    /// Counts the decision on a frame and returns the decision to carry out. `acts`: refusals are enforced
    /// (prevention); in detection every frame is forwarded.
    pub fn decided(&mut self, decision: &Decision, acts: bool) -> Decision {
        let rejected = decision.verdict == Verdict::Reject;
        self.rejected += u64::from(rejected);
        let by_firewall = decision.reason.is_some_and(Reason::is_firewall);
        self.firewall_rejected += u64::from(rejected && by_firewall);
        match (decision.verdict.forwards(), decision.reason) {
            (false, Some(reason)) => {
                if let Some(count) = self.refused.get_mut(reason as usize) {
                    *count += 1;
                }
                self.let_go += u64::from(!acts);
            }
            _ => self.forwarded += 1,
        }
        match decision.verdict {
            // A reason with this verdict is only that of a staged policy.
            Verdict::Continue => Decision { reason: None, ..*decision },
            _ if acts => *decision,
            _ => Decision::CONTINUE,
        }
    }

    /// Counts a frame that arrives.
    pub const fn count_arrival(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

impl ExceptionCounters {
    /// Visits each policy that was applied, by its name in `stats`; if a policy is `in_force` in prevention,
    /// also the policies for flows that were not applied.
    pub fn visit(&self, in_force: bool, mut each: impl FnMut(&'static str, u64)) {
        let of_packets = [ExceptionPolicy::Ignore, ExceptionPolicy::DropPacket, ExceptionPolicy::PassPacket];
        for ((policy, name), count) in MIDSTREAM.iter().zip(self.0) {
            if count > 0 || (in_force && !of_packets.contains(policy)) {
                each(name, count);
            }
        }
    }
}
