// SPDX-License-Identifier: Apache-2.0
//! A device executes flows' verdicts below the host: its capabilities, the requests to it, and its replies.
//!
//! A device holds one entry for both directions of a flow, in a *place* that the host has assigned (0, 1,
//! ...), and never removes one by itself. Requests come in bulk; replies and counts may come later, in the
//! order of the requests for a place. Contract, for each entry:
//!
//! | asked | from then on | answer |
//! |---|---|---|
//! | [`Wish::Install`] | its action is done with the flow's packets, and counted | `Installed`, or `Refused` and there is none |
//! | [`Wish::Mark`] | its packets go up, and are not counted; what had found the entry before may still be | `Marked` |
//! | [`Wish::Update`] | its packets are handled by that generation; what is counted goes on | none: it cannot fail while the entry is there |
//! | [`Wish::Read`] | | counts |
//! | [`Wish::Last`] | | counts, then `Read`: all that was under way before the grace is in them |
//! | [`Wish::Delete`] | the entry is gone | counts, then `Deleted` |
//!
//! A device that is taken away reports for each entry, without a request, its last counts and `Deleted`, and
//! refuses new ones as [`OffloadDenied::Away`].
//!
//! When in doubt a packet goes up: of another generation, of TCP with RST or SYN or without ACK, a fragment,
//! anything odd. So does a FIN, unless the entry forwards without comparing and the FIN begins where its
//! sender's segments have ended at that level: then it is forwarded, and reported with the counts
//! ([`Counts::sides`]).
//!
//! A packet in a tunnel and the outer packet are of two flows, but one frame. The device handles it if both
//! have entries, the outer flow's forwards, and the inner flow's forwards or drops; it counts for both: for
//! the inner flow the bytes from the inner packet's beginning, as the host's decoder does. A packet dropped
//! inside is dropped with the outer packet, which counts for the outer flow, and besides in
//! [`Counts::refused_inside`]. Otherwise the frame goes up, and counts for neither. An entry of the outer
//! flow never acts by itself upon a frame that may have a tunnel: the host decodes it.

use crate::key::{DeviceKey, Fields};
use crate::marks::Mark;
use crate::stays::OffloadDenied;
use bartizan_base::{Generation, Level, PacketDuration, PortIndex, Reason, Timestamp};
use bartizan_flow::level::{LevelReply, SunkId};
use bartizan_flow::tcp::TcpProgress;
use bartizan_packet::TunnelKind;
use bartizan_packet::windows::Windows;

/// IP protocols of packets that carry a packet of IPv4, and of IPv6.
const IP_IN_IP: [u8; 2] = [4, 41];

/// The handling of the packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Packets leave by the other port of their link.
    Forward,
    /// Packets leave by this named port, whichever side sends them.
    Redirect(PortIndex),
    /// Packets are dropped, for this reason.
    Drop(Reason),
    /// Packets of this endpoint are dropped, for this reason. Those of the other one go up: they may open the
    /// flow.
    DropFrom(Reason, Endpoint),
}

/// One of the two endpoints of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The endpoint that comes first in the key.
    Low,
    /// The second endpoint.
    High,
}

impl Action {
    /// The reason for which packets are dropped, if they are.
    #[must_use]
    pub const fn drops(self) -> Option<Reason> {
        match self {
            Action::Drop(reason) | Action::DropFrom(reason, _) => Some(reason),
            Action::Forward | Action::Redirect(_) => None,
        }
    }

    /// Whether the action is for packets of an endpoint.
    #[must_use]
    pub const fn is_for(self, from_low: bool) -> bool {
        match self {
            Action::DropFrom(_, endpoint) => matches!(endpoint, Endpoint::Low) == from_low,
            Action::Forward | Action::Redirect(_) | Action::Drop(_) => true,
        }
    }
}

/// The actions on packets that a device can do. Whether it can redirect is known by port
/// ([`Capabilities::exits`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actions {
    /// [`Action::Forward`].
    pub forward: bool,
    /// [`Action::Drop`].
    pub drop: bool,
}

impl Actions {
    /// All actions.
    pub const ALL: Actions = Actions { forward: true, drop: true };
}

/// The counts that a device keeps for its entries. The host's records are exact, so the host offloads flows
/// only to devices that count all ([`OffloadDenied::Uncounted`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counting {
    /// Packets.
    pub packets: bool,
    /// Bytes of their frames.
    pub bytes: bool,
    /// Each direction separately.
    pub directions: bool,
}

impl Counting {
    /// All counts.
    pub const ALL: Counting = Counting { packets: true, bytes: true, directions: true };
}

/// The capabilities of a device, found when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The level of its entries.
    pub level: Level,
    /// Entries that it can hold for this owner.
    pub entries: u32,
    /// Whether it supports IPv4.
    pub ipv4: bool,
    /// Whether it supports IPv6.
    pub ipv6: bool,
    /// Fields of the key that it holds.
    pub fields: Fields,
    /// IP protocols of the flows that it can hold.
    pub protocols: &'static [u8],
    /// Kinds of tunnels that it decodes, one deep.
    pub tunnels: &'static [TunnelKind],
    /// Whether the device holds the TCP window state of connections and compares segments with it
    /// ([`Install::windows`]).
    pub windows: bool,
    /// The actions that it can do; the host does the others ([`OffloadDenied::Action`]).
    pub actions: Actions,
    /// Named ports that packets can leave by ([`Action::Redirect`]), a bit each.
    pub exits: u64,
    /// The counts that it keeps.
    pub counting: Counting,
    /// Whether it supports [`Wish::Update`].
    pub updates: bool,
    /// It reports entries that were silent for so long ([`DeviceReply::Idle`]). `None`: it does not.
    pub ageing: Option<PacketDuration>,
    /// Measured entries per second that it can make; by default measured over all so far. `None`: not known.
    pub insert_rate: Option<u64>,
}

/// An entry to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Install {
    /// Identity, equal for both directions.
    pub key: DeviceKey,
    /// The handling of its packets.
    pub action: Action,
    /// Packets of another generation go up.
    pub generation: Generation,
    /// For TCP, of the lower endpoint of the key, and of the higher one: only segments that continue these
    /// sequence numbers are handled, and advance them, by the rule of [`bartizan_packet::windows`]. Others
    /// go up.
    pub windows: Option<Windows>,
}

impl Capabilities {
    /// The reason why a device of these capabilities cannot hold an entry. `None`: it can.
    #[must_use]
    pub fn refuses(&self, key: &bartizan_flow::FlowKey, action: Action) -> Option<OffloadDenied> {
        let lacks = match action {
            Action::Forward => (!self.actions.forward).then_some(OffloadDenied::Action),
            Action::Drop(_) | Action::DropFrom(..) => (!self.actions.drop).then_some(OffloadDenied::Action),
            Action::Redirect(port) => {
                let leads = self.exits.checked_shr(port.0.into()).unwrap_or(0) & 1 == 1;
                (!leads).then_some(OffloadDenied::Egress)
            }
        };
        let family = if key.is_ipv6() { self.ipv6 } else { self.ipv4 };
        // The flow of IP-in-IP packets is an outer flow.
        let around = IP_IN_IP.contains(&key.protocol());
        let known =
            self.protocols.contains(&key.protocol()) || around && self.tunnels.contains(&TunnelKind::Ip);
        let inside = DeviceKey::of(key);
        let reaches = |kind: &TunnelKind| !around && inside.is_in(*kind);
        if !family {
            Some(OffloadDenied::Family)
        } else if !known {
            Some(OffloadDenied::Protocol)
        } else if inside.is_in_tunnel() && !self.tunnels.iter().any(reaches) {
            Some(OffloadDenied::Tunnel)
        } else if !inside.is_within(self.fields) {
            Some(OffloadDenied::Key)
        } else if lacks.is_some() {
            lacks
        } else if self.counting != Counting::ALL {
            Some(OffloadDenied::Uncounted)
        } else {
            None
        }
    }
}

/// A request for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Make the entry.
    Install(Install),
    /// Handle its packets in place, if it is of another generation, as before: only where
    /// [`Capabilities::updates`]. (Not with another action: packets under way would count for that one.)
    Update {
        /// Packets of another generation go up.
        generation: Generation,
        /// For a connection whose segments are compared: its numbers advance to these.
        windows: Option<Windows>,
    },
    /// Pass the flow's packets up.
    Mark,
    /// Report the counts, while the entry goes on.
    Read,
    /// Report the counts, for the last time but one.
    Last,
    /// Remove the entry.
    Delete,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// Place of the entry.
    pub place: u32,
    /// The stay that the entry belongs to; every report of the entry carries it.
    pub sunk: SunkId,
    /// The request.
    pub wish: Wish,
}

/// The counts of an entry since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets: from the lower endpoint of the key, and from the higher one.
    pub packets: [u64; 2],
    /// Bytes of their frames.
    pub bytes: [u64; 2],
    /// The time of the latest packet.
    pub last_seen: [Timestamp; 2],
    /// Packets and bytes among those that were dropped because their inner packet is refused.
    pub refused_inside: (u64, u64),
    /// The sequence numbers of a TCP connection after the packets that were forwarded; `None` if the entry
    /// drops.
    pub sides: Sides,
    /// The TCP window state of a connection whose segments are compared with it. Instead of `sides`.
    pub windows: Option<Windows>,
}

/// The progress of the sides of a TCP connection by the packets that an entry has handled: of the lower
/// endpoint of the key, and of the higher one. `None` where no packet came.
pub type Sides = [Option<TcpProgress>; 2];

/// A reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// Done as requested.
    Done(LevelReply),
    /// It cannot be installed.
    Refused(OffloadDenied),
}

/// A device's report about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceReply {
    /// Its counts.
    Counts(Counts),
    /// A reply.
    Answer(Answered),
    /// No packet has found it since then. Reported once for each silence.
    Idle(Timestamp),
}

/// A device below the host that executes the verdicts of flows: takes requests, and gives replies and counts.
pub trait Device: Send {
    /// Its capabilities.
    fn capabilities(&self) -> &Capabilities;

    /// Takes requests in bulk. Even an immediate reply is delivered by the next [`Device::poll`].
    fn submit(&mut self, requests: &[DeviceRequest], now: Timestamp);

    /// Appends the reports since the last call: place, stay, report.
    fn poll(&mut self, now: Timestamp, replies: &mut Vec<(u32, SunkId, DeviceReply)>);

    /// The present progress of a TCP connection: by all packets that have left, even if not counted yet. The
    /// host judges a segment that comes up by it. `None`: there is no such entry.
    fn sides(&self, place: u32, sunk: SunkId) -> Option<Sides>;

    /// The present numbers of a connection whose segments are compared with them. `None`: there is no such
    /// entry, or it has none.
    fn windows(&self, place: u32, sunk: SunkId) -> Option<Windows>;

    /// Advances the numbers of a connection to these, none back, after the host has judged a segment that
    /// came up and before that leaves. Without such an entry nothing happens.
    fn publish(&mut self, place: u32, sunk: SunkId, windows: &Windows);

    /// Whether packets that this owner has to judge have passed without it since the last call: it gave no
    /// sign of life, and its link fails open. Packets from now on are its own again.
    fn has_missed(&mut self) -> bool;

    /// Makes packets of this owner's entries of other generations go up from now on.
    fn enter_generation(&mut self, generation: Generation);

    /// Whether the device's link refuses packets without a flow early; [`Device::mark`] and [`Device::early`]
    /// work only then.
    fn is_early(&self) -> bool {
        false
    }

    /// Marks a flow that the host knows and passes: while the mark exists, the device refuses no packet of it
    /// for want of an entry. `None`: it refuses none.
    fn mark(&self, key: &DeviceKey) -> Option<Mark> {
        let _ = key;
        None
    }

    /// Calls `each` for the packets without a flow that the list of a generation with so many outcomes has
    /// refused since the last call for this or an earlier one: number of the outcome, packets, bytes.
    fn early(&mut self, generation: Generation, outcomes: u32, each: &mut dyn FnMut(u32, u64, u64)) {
        let _ = (generation, outcomes, each);
    }

    /// Removes all entries of this owner: passes their packets up, waits until no packet that had found one
    /// is under way (some milliseconds), and removes them. The next [`Device::poll`] delivers their last
    /// counts and `Deleted` of each. Entries that refuse flows may act until the device itself goes,
    /// uncounted.
    fn close(&mut self, now: Timestamp);
}
