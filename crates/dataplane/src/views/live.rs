// SPDX-License-Identifier: Apache-2.0
//! Views of live flows: key, disposition and the function behind it, level and the reason for no lower one;
//! and the number of flows by level and reason.

use super::history::{AllowedBy, HistoryEndpoints};
use bartizan_base::PerDirection;
use bartizan_offload::manager::LevelFacts;
use bartizan_offload::{KeyField, OffloadDenied};
use bartizan_stages::chain::NameExplained;
use serde::Serialize;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A live flow in its present state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LiveFlow {
    /// Number in events.
    pub flow_id: u64,
    /// Number of the worker that owns it.
    pub worker: u16,
    /// Number of the link.
    pub link: u16,
    /// Number of the tenant.
    pub tenant: u16,
    /// Both ends.
    pub ends: HistoryEndpoints,
    /// VLAN ids of the first packet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<u16>,
    /// DNS names of policies that the flow's addresses have at present.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<NameExplained>,
    /// Class of the flow.
    pub fid: u32,
    /// The policy of the class.
    pub policy: String,
    /// Whether the policy is staged: its verdicts are only reported.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub staged: bool,
    /// Generation that classified the flow; if it is not [`LiveFlow::running`], no packet has reached the
    /// host since the swap.
    pub generation: u64,
    /// Generation that runs.
    pub running: u64,
    /// Functions that the policy puts on the flow's path.
    pub chain: Vec<&'static str>,
    /// Functions of the chain that still judge the flow.
    pub path: Vec<&'static str>,
    /// State.
    pub state: &'static str,
    /// State of the TCP connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<&'static str>,
    /// Application protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_proto: Option<&'static str>,
    /// Disposition of the next packet: `judged`, `uninspected`, `bypassed`, `refused`.
    pub course: &'static str,
    /// The function that refuses the flow, and the reason; for a judged flow, the function that refuses each
    /// packet alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedBy>,
    /// The last function that was done with the flow and allowed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<AllowedBy>,
    /// The named port that packets leave by, if the flow is redirected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<String>,
    /// Level that handles the flow's packets.
    pub level: &'static str,
    /// Step of the transition to a level or back.
    pub step: &'static str,
    /// Time since which the level handles the flow, seconds since 1970: for a lower level, since it was
    /// requested to take the flow; for the host, since the flow began or came back, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<f64>,
    /// Reason why no lower level handles the flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stays: Option<StaysBy>,
    /// Counters of each level.
    pub levels: BTreeMap<&'static str, Counted>,
    /// First packet, seconds since 1970.
    pub start: f64,
    /// Last known packet; packets that a level below has counted since its last report are not included.
    pub last: f64,
    /// The worker's packet clock.
    pub now: f64,
}

/// A refusal of a flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedBy {
    /// The function, or `engine`.
    pub function: &'static str,
    /// Verdict.
    pub verdict: &'static str,
    /// Reason.
    pub reason: &'static str,
    /// Explanation of the reason.
    pub meaning: &'static str,
    /// Rule of the function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<u32>,
}

/// Reason why no lower level handles a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StaysBy {
    /// The reason's name in events and counters.
    pub code: &'static str,
    /// Explanation of the reason, with the remedy.
    pub meaning: &'static str,
}

/// Packets and bytes of a flow that a level has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Packets to the server.
    pub pkts_toserver: u64,
    /// Packets to the client.
    pub pkts_toclient: u64,
    /// Bytes to the server.
    pub bytes_toserver: u64,
    /// Bytes to the client.
    pub bytes_toclient: u64,
}

impl Counted {
    pub(crate) fn of(packets: &PerDirection<u64>, bytes: &PerDirection<u64>) -> Self {
        Counted {
            pkts_toserver: packets.to_server,
            pkts_toclient: packets.to_client,
            bytes_toserver: bytes.to_server,
            bytes_toclient: bytes.to_client,
        }
    }
}

/// Live flows by level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LevelsNow {
    /// Number of flows.
    pub flows: u64,
    /// Flows by level.
    pub levels: BTreeMap<&'static str, u64>,
    /// Flows of the host, by the reason for no lower level.
    pub stays: BTreeMap<&'static str, u64>,
    /// Flows in transition to a level or back.
    pub moving: u64,
    /// Devices of the links by level, over all workers.
    pub devices: BTreeMap<&'static str, DeviceNow>,
}

/// The devices of one level: capabilities, and outcome of the flows offered to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceNow {
    /// Workers that have a device of the level.
    pub workers: u64,
    /// Entries that the devices have room for.
    pub room: u64,
    /// Entries in use.
    pub entries: u64,
    /// Flows offered to the devices.
    pub offered: u64,
    /// Offered flows that the devices did not take, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Entries that a device can insert per second, as measured; the minimum over the devices. `None`:
    /// unknown.
    pub insert_rate: Option<u64>,
    /// IP versions.
    pub families: Vec<&'static str>,
    /// IP protocols, by their numbers.
    pub protocols: Vec<u8>,
    /// Kinds of tunnels that the devices decode.
    pub tunnels: Vec<&'static str>,
    /// Key fields that the devices match.
    pub key: Vec<&'static str>,
    /// Actions that the devices support.
    pub actions: Vec<&'static str>,
    /// Whether the devices check segments against the windows of their connections.
    pub windows: bool,
    /// Counters that the devices keep.
    pub counts: Vec<&'static str>,
    /// Whether an entry is kept when another generation decides alike.
    pub updates: bool,
    /// Silence after which the devices report an entry, in milliseconds. `None`: they do not report silent
    /// entries.
    pub ageing_ms: Option<u64>,
}

impl DeviceNow {
    /// The device of a worker.
    #[must_use]
    pub fn of(facts: &LevelFacts<'_>) -> Self {
        let can = facts.capabilities;
        let those = |all: &[(&'static str, bool)]| {
            all.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect::<Vec<_>>()
        };
        let refused = OffloadDenied::ALL.iter().zip(facts.refused).filter(|(_, flows)| **flows > 0);
        let counting = can.counting;
        DeviceNow {
            workers: 1,
            room: can.entries.into(),
            entries: facts.entries,
            offered: facts.offered,
            refused: refused.map(|(why, flows)| (why.name(), *flows)).collect(),
            insert_rate: can.insert_rate,
            families: those(&[("ipv4", can.ipv4), ("ipv6", can.ipv6)]),
            protocols: can.protocols.to_vec(),
            tunnels: can.tunnels.iter().map(|kind| kind.name()).collect(),
            key: can.fields.each().map(KeyField::name).collect(),
            actions: those(&[
                ("forward", can.actions.forward),
                ("redirect", can.exits > 0),
                ("drop", can.actions.drop),
            ]),
            windows: can.windows,
            counts: those(&[
                ("packets", counting.packets),
                ("bytes", counting.bytes),
                ("directions", counting.directions),
            ]),
            updates: can.updates,
            ageing_ms: can.ageing.map(|after| after.as_nanos() / 1_000_000),
        }
    }

    /// Adds the device of another worker. Capabilities are those of the first worker: the workers of a link
    /// share a device.
    fn add(&mut self, other: &DeviceNow) {
        self.workers += other.workers;
        self.room += other.room;
        self.entries += other.entries;
        self.offered += other.offered;
        for (why, flows) in &other.refused {
            *self.refused.entry(why).or_default() += flows;
        }
        self.insert_rate = match (self.insert_rate, other.insert_rate) {
            (Some(own), Some(others)) => Some(own.min(others)),
            (own, others) => own.or(others),
        };
    }
}

impl LevelsNow {
    /// Adds the flows and devices of other workers.
    pub fn add(&mut self, other: &LevelsNow) {
        self.flows += other.flows;
        self.moving += other.moving;
        for (name, flows) in &other.levels {
            *self.levels.entry(name).or_default() += flows;
        }
        for (name, flows) in &other.stays {
            *self.stays.entry(name).or_default() += flows;
        }
        for (name, device) in &other.devices {
            match self.devices.entry(name) {
                Entry::Vacant(place) => drop(place.insert(device.clone())),
                Entry::Occupied(mut own) => own.get_mut().add(device),
            }
        }
    }
}
