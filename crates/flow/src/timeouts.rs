// SPDX-License-Identifier: Apache-2.0
//! Timeouts of silent flows, by protocol and state.
//!
//! Values and names are those of Suricata 8: `flow-timeouts` of its configuration, its built-in values (for a
//! setting that a file leaves out) and the values of its shipped file. A flow is due once `now >= last seen +
//! timeout`. In emergency mode the shorter of both values applies.
//!
//! A closed TCP flow stays for `tcp.closed` (0 built in, 60 s shipped) so that late segments still find it;
//! with 0 the next packet of the same key starts a new flow. Whether a SYN on a closed connection starts a
//! new one is up to the TCP module (see `FlowTable::replace`).
//!
//! SCTP has no group of its own (it counts as `default`). ICMPv6 uses the group `icmp`.

use crate::entry::FlowState;
use crate::key::protocol;
use bartizan_base::PacketDuration;

/// Timeouts of one protocol, one for each state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateTimeouts {
    /// Only one direction was seen, or the TCP handshake is not finished.
    pub new: PacketDuration,
    /// Both directions were seen.
    pub established: PacketDuration,
    /// TCP: the connection has ended.
    pub closed: PacketDuration,
    /// No function is left on the flow's path.
    pub bypassed: PacketDuration,
}

/// Timeouts of one protocol in normal operation and in emergency mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolTimeouts {
    /// While there is room.
    pub normal: StateTimeouts,
    /// After the table was full, until enough room is free again.
    pub emergency: StateTimeouts,
}

/// All timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowTimeouts {
    /// TCP.
    pub tcp: ProtocolTimeouts,
    /// UDP.
    pub udp: ProtocolTimeouts,
    /// ICMP of both versions.
    pub icmp: ProtocolTimeouts,
    /// Every other protocol (`default` in the configuration).
    pub other: ProtocolTimeouts,
}

/// A setting under `flow-timeouts` that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "flow-timeouts.{name}: unknown timeout; groups are tcp, udp, icmp and default, settings are new, \
     established, closed and bypassed, each also with the prefix \"emergency-\""
)]
pub struct UnknownTimeout {
    /// The name of the setting, `tcp.new` for example.
    pub name: String,
}

const fn states(new: u64, established: u64, closed: u64, bypassed: u64) -> StateTimeouts {
    StateTimeouts {
        new: PacketDuration::from_secs(new),
        established: PacketDuration::from_secs(established),
        closed: PacketDuration::from_secs(closed),
        bypassed: PacketDuration::from_secs(bypassed),
    }
}

/// Suricata's built-in values, the same for every protocol.
const BUILT_IN: ProtocolTimeouts =
    ProtocolTimeouts { normal: states(30, 300, 0, 100), emergency: states(10, 100, 0, 50) };

/// Least silence of a connection before it may be dropped if that cuts it: 2 hours and 4 minutes, so that
/// keep-alives, which hosts send after two hours, arrive in time (RFC 5382 section 5, REQ-5; RFC 1122 section
/// 4.2.3.6).
pub const TCP_IDLE_KEPT: PacketDuration = PacketDuration::from_secs(2 * 3600 + 4 * 60);

/// Timer classes of a protocol: four states, and unopened flows.
pub(crate) const CLASSES_EACH: usize = 5;
/// Index of unopened flows within a protocol's timer classes. They have the timeout of new ones, and are the
/// first to make room.
pub(crate) const UNOPENED_CLASS: usize = 4;
/// Timer classes of flows at the host, of 4 protocols.
pub(crate) const HOST_CLASSES: usize = 4 * CLASSES_EACH;
/// Timer classes including those of offloaded flows, which have the same timeouts as at the host.
pub(crate) const CLASSES: usize = 2 * HOST_CLASSES;

/// The group of a protocol; TCP's is the first.
const fn group(ip_protocol: u8) -> usize {
    match ip_protocol {
        protocol::TCP => 0,
        protocol::UDP => 1,
        protocol::ICMP | protocol::ICMPV6 => 2,
        _ => 3,
    }
}

/// Index of a protocol and state among the timer classes.
pub(crate) const fn class(ip_protocol: u8, state: FlowState) -> usize {
    group(ip_protocol) * CLASSES_EACH + state_class(state)
}

/// Index of unopened flows of a protocol among the timer classes.
pub(crate) const fn unopened_class(ip_protocol: u8) -> usize {
    group(ip_protocol) * CLASSES_EACH + UNOPENED_CLASS
}

/// Index of offloaded flows of a protocol and state among the timer classes.
pub(crate) const fn sunk_class(ip_protocol: u8, state: FlowState) -> usize {
    HOST_CLASSES + class(ip_protocol, state)
}

/// Index of a state within a protocol's timer classes.
pub(crate) const fn state_class(state: FlowState) -> usize {
    match state {
        FlowState::New => 0,
        FlowState::Established => 1,
        FlowState::Closed => 2,
        FlowState::LocalBypassed | FlowState::CaptureBypassed => 3,
    }
}

impl FlowTimeouts {
    /// Suricata's built-in values, for settings that a configuration leaves out.
    pub const BUILT_IN: FlowTimeouts =
        FlowTimeouts { tcp: BUILT_IN, udp: BUILT_IN, icmp: BUILT_IN, other: BUILT_IN };

    /// The values of Suricata's shipped configuration: the default of this program.
    pub const SHIPPED: FlowTimeouts = FlowTimeouts {
        tcp: ProtocolTimeouts { normal: states(60, 600, 60, 100), emergency: states(5, 100, 10, 50) },
        ..Self::BUILT_IN
    };

    /// Timeouts for deployments in which dropping a flow cuts a connection (live prevention refuses
    /// connections picked up in the middle): open and bypassed TCP connections are kept for at least
    /// [`TCP_IDLE_KEPT`] while there is room. In emergency mode the configured values apply, the longer of
    /// both modes.
    #[must_use]
    pub fn keeping_idle_tcp(mut self) -> Self {
        let ProtocolTimeouts { normal, emergency } = &mut self.tcp;
        emergency.established = emergency.established.max(normal.established);
        emergency.bypassed = emergency.bypassed.max(normal.bypassed);
        normal.established = normal.established.max(TCP_IDLE_KEPT);
        normal.bypassed = normal.bypassed.max(TCP_IDLE_KEPT);
        self
    }

    /// Sets a value by its name in the configuration, `tcp.new` or `default.emergency-closed`.
    ///
    /// # Errors
    /// [`UnknownTimeout`] when the setting does not exist.
    pub fn set(&mut self, name: &str, value: PacketDuration) -> Result<(), UnknownTimeout> {
        let slot = self.slot(name).ok_or_else(|| UnknownTimeout { name: name.to_owned() })?;
        *slot = value;
        Ok(())
    }

    fn slot(&mut self, name: &str) -> Option<&mut PacketDuration> {
        let (group, setting) = name.split_once('.')?;
        let group = match group {
            "tcp" => &mut self.tcp,
            "udp" => &mut self.udp,
            "icmp" => &mut self.icmp,
            "default" => &mut self.other,
            _ => return None,
        };
        let (states, setting) = match setting.strip_prefix("emergency-") {
            Some(rest) => (&mut group.emergency, rest),
            None => (&mut group.normal, setting),
        };
        Some(match setting {
            "new" => &mut states.new,
            "established" => &mut states.established,
            "closed" => &mut states.closed,
            "bypassed" => &mut states.bypassed,
            _ => return None,
        })
    }

    /// The normal value of every timer class and the shorter one of emergency mode.
    pub(crate) fn by_class(&self) -> [(PacketDuration, PacketDuration); CLASSES] {
        let mut all = [(PacketDuration::ZERO, PacketDuration::ZERO); CLASSES];
        let groups = [&self.tcp, &self.udp, &self.icmp, &self.other];
        for (out, (normal, emergency)) in all
            .iter_mut()
            .zip(groups.iter().flat_map(|g| g.normal.list().into_iter().zip(g.emergency.list())))
        {
            *out = (normal, normal.min(emergency));
        }
        let (host, sunk) = all.split_at_mut(HOST_CLASSES);
        sunk.copy_from_slice(host);
        all
    }
}

impl Default for FlowTimeouts {
    fn default() -> Self {
        Self::SHIPPED
    }
}

impl StateTimeouts {
    /// The timeouts in the order of [`state_class`], with that of [`UNOPENED_CLASS`].
    const fn list(&self) -> [PacketDuration; CLASSES_EACH] {
        [self.new, self.established, self.closed, self.bypassed, self.new]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_by_their_configuration_name() {
        let mut t = FlowTimeouts::BUILT_IN;
        for (name, seconds) in [
            ("tcp.new", 60),
            ("tcp.established", 600),
            ("tcp.closed", 60),
            ("tcp.emergency-new", 5),
            ("tcp.emergency-closed", 10),
        ] {
            t.set(name, PacketDuration::from_secs(seconds)).unwrap();
        }
        assert_eq!(t, FlowTimeouts::SHIPPED);
        for wrong in ["tcp.newest", "sctp.new", "tcp", "udp.emergency-"] {
            assert!(t.set(wrong, PacketDuration::ZERO).is_err(), "{wrong}");
        }
    }

    #[test]
    fn idle_tcp_is_kept_and_longer_settings_stay() {
        let kept = FlowTimeouts::SHIPPED.keeping_idle_tcp();
        assert_eq!(kept.tcp.normal, states(60, 7440, 60, 7440));
        assert_eq!(kept.tcp.emergency, states(5, 600, 10, 100));
        assert_eq!((kept.udp, kept.icmp, kept.other), (BUILT_IN, BUILT_IN, BUILT_IN));
        let mut days = FlowTimeouts::SHIPPED;
        days.set("tcp.established", PacketDuration::from_secs(86_400)).unwrap();
        assert_eq!(days.keeping_idle_tcp().tcp.normal.established.as_secs(), 86_400);
    }

    #[test]
    fn classes_line_up_with_the_values() {
        let all = FlowTimeouts::SHIPPED.by_class();
        let of = |p, s| all[class(p, s)].0.as_secs();
        assert_eq!(of(6, FlowState::Established), 600);
        assert_eq!(of(6, FlowState::Closed), 60);
        assert_eq!(of(17, FlowState::Closed), 0);
        assert_eq!(of(58, FlowState::New), of(1, FlowState::New));
        assert_eq!(of(47, FlowState::CaptureBypassed), 100);
        assert_eq!(all[class(6, FlowState::New)].1.as_secs(), 5);
        for protocol in [6, 17, 1, 58, 47] {
            for state in FlowState::ALL {
                assert_eq!(all[sunk_class(protocol, state)], all[class(protocol, state)]);
            }
        }
        let kept = FlowTimeouts::SHIPPED.keeping_idle_tcp().by_class();
        let of = |protocol, state| kept[sunk_class(protocol, state)].0;
        assert_eq!(of(6, FlowState::LocalBypassed), TCP_IDLE_KEPT);
        assert_eq!(of(6, FlowState::Established), TCP_IDLE_KEPT);
        assert_eq!(of(17, FlowState::LocalBypassed).as_secs(), 100);
        assert_eq!(of(17, FlowState::Established).as_secs(), 300);
    }
}
