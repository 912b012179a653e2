// SPDX-License-Identifier: Apache-2.0
//! Counters of a flow table, under the names of EVE's `stats` record.
//!
//! Names are Suricata 8's where the meaning is the same. Those that describe threads this program does
//! not have (`flow.recycler.*`, `flow.wrk.spare_*`) are left to the caller.

use crate::entry::{EndReason, FlowState};
use crate::key::protocol;
use crate::tcp::TcpState;
use bartizan_base::PerDirection;

/// Names of `flow.end.tcp_state.*`, in the order of [`FlowTableCounters::end_tcp_state`].
pub const TCP_END_STATES: [&str; 11] = [
    "flow.end.tcp_state.none",
    "flow.end.tcp_state.syn_sent",
    "flow.end.tcp_state.syn_recv",
    "flow.end.tcp_state.established",
    "flow.end.tcp_state.fin_wait1",
    "flow.end.tcp_state.fin_wait2",
    "flow.end.tcp_state.time_wait",
    "flow.end.tcp_state.last_ack",
    "flow.end.tcp_state.close_wait",
    "flow.end.tcp_state.closing",
    "flow.end.tcp_state.closed",
];

const END_STATES: [&str; FlowState::COUNT] = [
    "flow.end.state.new",
    "flow.end.state.established",
    "flow.end.state.closed",
    "flow.end.state.local_bypassed",
    "flow.end.state.capture_bypassed",
];

const END_REASONS: [&str; EndReason::COUNT] = [
    "flow.end.reason.timeout",
    "flow.end.reason.forced",
    "flow.end.reason.shutdown",
    "flow.end.reason.tcp_reuse",
];

/// Counters of one table. All only grow, except `active`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTableCounters {
    /// Flows created.
    pub total: u64,
    /// Flows in the table now.
    pub active: u64,
    /// Created TCP flows.
    pub tcp: u64,
    /// Created UDP flows.
    pub udp: u64,
    /// Created flows of ICMP over IPv4.
    pub icmpv4: u64,
    /// Created ICMPv6 flows.
    pub icmpv6: u64,
    /// Flows that a new TCP connection with the same ports replaced.
    pub tcp_reuse: u64,
    /// Packets that found no flow and no room for one.
    pub memcap: u64,
    /// Flows that made room for another.
    pub get_used: u64,
    /// Entries visited in search of a flow to evict.
    pub get_used_eval: u64,
    /// Visited entries that had not been silent for long enough.
    pub get_used_eval_reject: u64,
    /// Times that no flow could make room.
    pub get_used_failed: u64,
    /// Flows ended, by their state then ([`FlowState`] as index).
    pub end_state: [u64; FlowState::COUNT],
    /// Flows ended, by reason ([`EndReason`] as index). Summed over all tables between which flows move, this
    /// is `total - active`.
    pub end_reason: [u64; EndReason::COUNT],
    /// TCP flows ended, by TCP state; counted by the caller, which has the session.
    pub end_tcp_state: [u64; TCP_END_STATES.len()],
    /// Flows found by a packet after their timeout.
    pub wrk_evicted: u64,
    /// Timers that fired.
    pub mgr_checked: u64,
    /// Timers that fired for a flow that had been used since and continues.
    pub mgr_notimeout: u64,
    /// Timers that fired and ended the flow.
    pub mgr_timeout: u64,
    /// Times that the table was full and the emergency timeouts began to apply.
    pub emerg_mode_entered: u64,
    /// Times that enough room was free again.
    pub emerg_mode_over: u64,
    /// Elephant flows; `None` if rates are not tracked.
    pub elephants: Option<Elephants>,
}

/// Flows above the rate that makes an elephant flow, each counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elephants {
    /// Flows above the rate in one direction or both.
    pub flows: u64,
    /// Flows above the rate, by direction.
    pub by_direction: PerDirection<u64>,
}

impl FlowTableCounters {
    pub(crate) fn created(&mut self, ip_protocol: u8) {
        self.total += 1;
        match ip_protocol {
            protocol::TCP => self.tcp += 1,
            protocol::UDP => self.udp += 1,
            protocol::ICMP => self.icmpv4 += 1,
            protocol::ICMPV6 => self.icmpv6 += 1,
            _ => {}
        }
    }

    pub(crate) fn ended(&mut self, state: FlowState, reason: EndReason) {
        self.active = self.active.saturating_sub(1);
        if let Some(count) = self.end_state.get_mut(state as usize) {
            *count += 1;
        }
        if let Some(count) = self.end_reason.get_mut(reason as usize) {
            *count += 1;
        }
        match reason {
            EndReason::TcpReuse => self.tcp_reuse += 1,
            EndReason::Forced => self.get_used += 1,
            EndReason::Timeout | EndReason::Shutdown => {}
        }
    }

    /// Counts the end of a flow that had a TCP session.
    pub fn ended_tcp(&mut self, state: TcpState) {
        if let Some(count) = self.end_tcp_state.get_mut(state as usize) {
            *count += 1;
        }
    }

    /// Visits every counter by its dotted EVE name.
    pub fn visit(&self, mut each: impl FnMut(&'static str, u64)) {
        for (name, value) in [
            ("flow.memcap", self.memcap),
            ("flow.total", self.total),
            ("flow.active", self.active),
            ("flow.tcp", self.tcp),
            ("flow.udp", self.udp),
            ("flow.icmpv4", self.icmpv4),
            ("flow.icmpv6", self.icmpv6),
            ("flow.tcp_reuse", self.tcp_reuse),
            ("flow.get_used", self.get_used),
            ("flow.get_used_eval", self.get_used_eval),
            ("flow.get_used_eval_reject", self.get_used_eval_reject),
            ("flow.get_used_failed", self.get_used_failed),
            ("flow.wrk.flows_evicted", self.wrk_evicted),
            ("flow.mgr.flows_checked", self.mgr_checked),
            ("flow.mgr.flows_notimeout", self.mgr_notimeout),
            ("flow.mgr.flows_timeout", self.mgr_timeout),
            ("flow.mgr.flows_evicted", self.mgr_timeout),
            ("flow.emerg_mode_entered", self.emerg_mode_entered),
            ("flow.emerg_mode_over", self.emerg_mode_over),
        ] {
            each(name, value);
        }
        if let Some(elephants) = &self.elephants {
            each("flow.elephant", elephants.flows);
            each("flow.elephant_toserver", elephants.by_direction.to_server);
            each("flow.elephant_toclient", elephants.by_direction.to_client);
        }
        for (names, values) in [
            (&END_STATES[..], &self.end_state[..]),
            (&END_REASONS[..], &self.end_reason[..]),
            (&TCP_END_STATES[..], &self.end_tcp_state[..]),
        ] {
            for (name, value) in names.iter().zip(values) {
                each(name, *value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_distinct() {
        let mut names = HashSet::new();
        FlowTableCounters::default().visit(|name, value| {
            assert!(names.insert(name), "{name}");
            assert_eq!(value, 0);
        });
        assert!(names.contains("flow.end.state.capture_bypassed"));
        assert_eq!(names.len(), 19 + 5 + 4 + 11);
        let tracked =
            FlowTableCounters { elephants: Some(Elephants::default()), ..FlowTableCounters::default() };
        tracked.visit(|name, _| {
            names.insert(name);
        });
        assert_eq!(names.len(), 19 + 5 + 4 + 11 + 3);
    }
}
