// SPDX-License-Identifier: Apache-2.0
//! The measured flows, by number: UDP from many clients to one server.

use bartizan_base::{FlowId, Generation, LinkId, PacketDuration, Timestamp};
use bartizan_flow::{FlowHasher, FlowKey, FlowScope, FlowTable, FlowTableConfig, Insert};
use bartizan_offload::{Action, FlowManager, Offer};
use bartizan_packet::DecoderConfig;
use bartizan_testkit::packet::{End, UDP};
use bartizan_xdp::XdpDevice;
use bartizan_xdp::{ModeChoice, Tables, XdpOptions, XdpProgram};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// An error that ends the program and is printed.
pub type Failed = Box<dyn std::error::Error>;

const GENERATION: Generation = Generation(1);
/// The link that all flows belong to.
pub const LINK: LinkId = LinkId(0);
/// Flows offloaded between two turns of the manager: about as many packets as a batch has.
const BATCH: u32 = 64;
/// Turns after which a removal counts as stuck.
const MOST_TURNS: u32 = 5_000;
/// Packet time between two turns.
pub const TURN: PacketDuration = PacketDuration::from_millis(1);

/// Address and port of a flow's client.
#[must_use]
pub fn client(flow: u32) -> (u32, u16) {
    (0x0a00_0000 | flow >> 4, 1024 + (flow & 15) as u16)
}

/// Address and port of the server of all flows.
pub const SERVER: (u32, u16) = (0xc000_0201, 9001);

fn key(flow: u32) -> FlowKey {
    let end = |(address, port): (u32, u16)| -> End { (Ipv4Addr::from(address).into(), port) };
    let scope = FlowScope { link: LINK, ..FlowScope::default() };
    FlowKey::ported(&scope, UDP, end(client(flow)), end(SERVER))
}

/// Loads the level's program, with room for `flows` flows.
pub fn program(flows: u32) -> Result<XdpProgram, Failed> {
    Ok(XdpProgram::load(&XdpOptions {
        flows,
        mode: ModeChoice::Auto,
        tunnels: DecoderConfig::default(),
        workers: 1,
        early: None,
        seed: 77,
    })?)
}

/// The part of a worker that offloading needs: a flow table, a flow manager, and its share of the level.
pub struct Share {
    /// The worker's flow table.
    pub table: FlowTable<()>,
    /// Moves the flows to the level and back.
    pub manager: FlowManager,
    /// The packet clock, which only [`Share::turn`] advances.
    pub now: Timestamp,
    /// Ids of the worker's flows.
    pub ids: Vec<FlowId>,
}

impl Share {
    /// Creates the flows from number `first` on, all of them at the host.
    pub fn new(tables: Arc<Tables>, first: u32, flows: u32) -> Result<Self, Failed> {
        let device = XdpDevice::new(tables, first, flows);
        let mut table = FlowTable::new(&FlowTableConfig::new(flows, FlowHasher::new([1, 2])))?;
        let manager = FlowManager::new(Box::new(device), GENERATION);
        let now = Timestamp::from_parts(1_000_000, 0);
        let insert = |flow| match table.insert(&key(flow), now) {
            Insert::Created { id } => Ok(id),
            other => Err(format!("flow {flow} is not made: {other:?}")),
        };
        let ids = (first..first + flows).map(insert).collect::<Result<Vec<_>, _>>()?;
        Ok(Share { table, manager, now, ids })
    }

    /// Advances the clock by `later` and runs a turn of the manager.
    pub fn turn(&mut self, later: PacketDuration) {
        self.now = self.now + later;
        self.manager.turn(&mut self.table, self.now);
        while self.manager.next_done().is_some() {}
    }

    /// Offloads all flows. No time passes, so no counters are read meanwhile.
    pub fn sink(&mut self) -> Result<(), Failed> {
        for at in 0..self.ids.len() {
            let offer = Offer {
                action: Action::Forward,
                generation: GENERATION,
                expected: 0,
                again: false,
                windows: None,
            };
            let offered = self.manager.offer(&mut self.table, self.ids[at], offer, self.now);
            offered.map_err(|why| format!("flow {at} stays at the host: {why:?}"))?;
            if (at as u32 + 1).is_multiple_of(BATCH) {
                self.turn(PacketDuration::ZERO);
            }
        }
        self.turn(PacketDuration::ZERO);
        self.check(self.ids.len())
    }

    /// Takes all flows back: marks each for removal, and runs as many turns as the removals take.
    pub fn raise(&mut self) -> Result<(), Failed> {
        for at in 0..self.ids.len() {
            self.table.raise(self.ids[at], self.now);
            if (at as u32 + 1).is_multiple_of(BATCH) {
                self.turn(PacketDuration::ZERO);
            }
        }
        for _ in 0..MOST_TURNS {
            if self.manager.counters().entries == 0 {
                break;
            }
            self.turn(TURN);
        }
        self.check(0)
    }

    fn check(&self, entries: usize) -> Result<(), Failed> {
        let counters = self.manager.counters();
        if counters.entries == entries as u64 && counters.stayed.iter().all(|count| *count == 0) {
            return Ok(());
        }
        Err(format!("{} entries where {entries} have to be; stayed {:?}", counters.entries, counters.stayed)
            .into())
    }
}
