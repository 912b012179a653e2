// SPDX-License-Identifier: Apache-2.0
//! What live workers tell of their flows: who a flow is, what is decided of it and by whom, where its packets
//! are handled and why not lower; and how many there are by that.

use super::history::{AllowedBy, Ends};
use bartizan_base::PerDirection;
use bartizan_offload::manager::LevelFacts;
use bartizan_offload::{Field, Stays};
use bartizan_stages::chain::NameExplained;
use serde::Serialize;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A flow, as it stands now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LiveFlow {
    /// Number in events.
    pub flow_id: u64,
    /// Number of the worker that owns it.
    pub worker: u16,
    /// Number of the link.
    pub link: u16,
    /// Number of its tenant.
    pub tenant: u16,
    /// Both ends.
    pub ends: Ends,
    /// VLAN ids of its first packet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<u16>,
    /// DNS names of policies that its addresses have now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<NameExplained>,
    /// Its class.
    pub fid: u32,
    /// The policy of the class.
    pub policy: String,
    /// The policy's verdicts are only reported.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub staged: bool,
    /// Generation that classified it; another than [`LiveFlow::running`]: no packet has come up since that
    /// runs.
    pub generation: u64,
    /// Generation that runs.
    pub running: u64,
    /// Functions that its policy has for it.
    pub chain: Vec<&'static str>,
    /// Those of them that still look.
    pub path: Vec<&'static str>,
    /// State.
    pub state: &'static str,
    /// State of the TCP connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<&'static str>,
    /// Application protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_proto: Option<&'static str>,
    /// What becomes of its next packet: `judged`, `uninspected`, `bypassed`, `refused`.
    pub course: &'static str,
    /// Who refuses it, and why; of a flow that is judged, who refuses each of its packets alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedBy>,
    /// Who was done with it last, and let it go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<AllowedBy>,
    /// The named port that its packets leave by, if it is redirected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<String>,
    /// Where its packets are handled.
    pub level: &'static str,
    /// How far it has come on its way to a level or back.
    pub step: &'static str,
    /// Since when it is there, seconds since 1970: since its level was told to take it, at the host since it
    /// began or came back, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<f64>,
    /// Why it is at no lower level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stays: Option<StaysBy>,
    /// What each level has counted.
    pub levels: BTreeMap<&'static str, Counted>,
    /// First packet, seconds since 1970.
    pub start: f64,
    /// Last packet that is known of; what a level below has counted since it was asked last is not.
    pub last: f64,
    /// The worker's clock.
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
    /// What the reason means.
    pub meaning: &'static str,
    /// Rule of the function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<u32>,
}

/// Why a flow is at no lower level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StaysBy {
    /// The reason's name in events and counters.
    pub code: &'static str,
    /// What it means, and what to do about it.
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

/// Live flows by where their packets are handled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LevelsNow {
    /// Flows.
    pub flows: u64,
    /// By level.
    pub levels: BTreeMap<&'static str, u64>,
    /// Those of the host by why they are there.
    pub stays: BTreeMap<&'static str, u64>,
    /// Those that are on their way to a level or back.
    pub moving: u64,
    /// What the devices can do that links have, by level, of all workers together.
    pub devices: BTreeMap<&'static str, DeviceNow>,
}

/// The devices of one level: what they can do, and what became of the flows that they were asked to take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceNow {
    /// Workers that have one.
    pub workers: u64,
    /// Entries that they have room for, and those in use.
    pub room: u64,
    /// See there.
    pub entries: u64,
    /// Flows that they were asked to take.
    pub offered: u64,
    /// Of those, flows that they did not, by their reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Entries that one makes in a second, as it was measured: the least. `None`: none knows.
    pub insert_rate: Option<u64>,
    /// IP versions.
    pub families: Vec<&'static str>,
    /// IP protocols, by their numbers.
    pub protocols: Vec<u8>,
    /// Kinds of tunnels that they look into.
    pub tunnels: Vec<&'static str>,
    /// Fields of the key that they hold.
    pub key: Vec<&'static str>,
    /// What they can do with packets.
    pub actions: Vec<&'static str>,
    /// Whether they compare segments with the numbers of their connections.
    pub windows: bool,
    /// What they count.
    pub counts: Vec<&'static str>,
    /// Whether an entry goes on in place when another generation has decided the same.
    pub updates: bool,
    /// They tell of entries that were silent for so many milliseconds. `None`: they do not.
    pub ageing_ms: Option<u64>,
}

impl DeviceNow {
    /// That of a worker.
    #[must_use]
    pub fn of(facts: &LevelFacts<'_>) -> Self {
        let can = facts.capabilities;
        let those = |all: &[(&'static str, bool)]| {
            all.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect::<Vec<_>>()
        };
        let refused = Stays::ALL.iter().zip(facts.refused).filter(|(_, flows)| **flows > 0);
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
            key: can.fields.each().map(Field::name).collect(),
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

    /// Adds that of another worker. What they can do is said of the first one: a link's workers share a
    /// device.
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
    /// Adds those of others.
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
