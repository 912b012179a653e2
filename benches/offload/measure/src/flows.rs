// SPDX-License-Identifier: Apache-2.0
//! The flows: UDP from many clients to one server, by number.

use bartizan_base::{FlowId, Generation, LinkId, PacketDuration, Timestamp};
use bartizan_flow::{FlowHasher, FlowKey, FlowScope, FlowTable, FlowTableConfig, Insert};
use bartizan_offload::{Action, FlowManager, Offer};
use bartizan_packet::DecoderConfig;
use bartizan_testkit::packet::{End, UDP};
use bartizan_xdp::XdpDevice;
use bartizan_xdp::{ModeChoice, Options, Program, Tables};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// What goes wrong ends the program, with its words.
pub type Failed = Box<dyn std::error::Error>;

const GENERATION: Generation = Generation(1);
/// Of the link that all of them cross.
pub const LINK: LinkId = LinkId(0);
/// Flows that go down between two turns of the manager: about as many packets as a batch has.
const BATCH: u32 = 64;
/// A removal that takes more turns than this does not end.
const MOST_TURNS: u32 = 5_000;
/// Packets' time between two turns.
pub const TURN: PacketDuration = PacketDuration::from_millis(1);

/// Address and port of a flow's client.
#[must_use]
pub fn client(flow: u32) -> (u32, u16) {
    (0x0a00_0000 | flow >> 4, 1024 + (flow & 15) as u16)
}

/// The server of all.
pub const SERVER: (u32, u16) = (0xc000_0201, 9001);

fn key(flow: u32) -> FlowKey {
    let end = |(address, port): (u32, u16)| -> End { (Ipv4Addr::from(address).into(), port) };
    let scope = FlowScope { link: LINK, ..FlowScope::default() };
    FlowKey::ported(&scope, UDP, end(client(flow)), end(SERVER))
}

/// The level's program, with room for so many flows.
pub fn program(flows: u32) -> Result<Program, Failed> {
    Ok(Program::load(&Options {
        flows,
        mode: ModeChoice::Auto,
        tunnels: DecoderConfig::default(),
        workers: 1,
        early: None,
        seed: 77,
    })?)
}

/// A worker as far as its flows below are concerned: a flow table, a flow manager, and its share of the
/// level.
pub struct Share {
    /// The flows.
    pub table: FlowTable<()>,
    /// Hands them down.
    pub manager: FlowManager,
    /// The packets' clock, which goes only as it is told to.
    pub now: Timestamp,
    /// Its flows.
    pub ids: Vec<FlowId>,
}

impl Share {
    /// The flows from `first` on, all of them at the host.
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

    /// A turn of the manager, so much later.
    pub fn turn(&mut self, later: PacketDuration) {
        self.now = self.now + later;
        self.manager.turn(&mut self.table, self.now);
        while self.manager.next_done().is_some() {}
    }

    /// Hands all flows down. No time passes, so no counts are read meanwhile.
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

    /// Takes all flows up: tells all, and then has as many turns as the steps of their removal take.
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
