// SPDX-License-Identifier: Apache-2.0
//! Floods of SYNs: half-open flows are evicted for each other and for all other flows, never connections;
//! they cost only their place in the table; and one packet does not pay for all timeouts that are due at
//! once.

use crate::common;

use bartizan_base::{PacketDuration, Reason, Timestamp};
use bartizan_dataplane::worker::Worker;
use bartizan_flow::FlowState;
use bartizan_stages::settings::EngineSettings;
use common::{Bench, Captured, Nothing, bench, ethernet, ip, tcp};
use std::sync::Arc;

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const SERVER: u8 = 255;

/// A worker of live prevention, and its clock.
struct Host {
    worker: Worker,
    now: Timestamp,
    v6: bool,
}

/// One side's view of a connection: host and port of the client.
#[derive(Clone, Copy)]
struct Client(u8, u16);

impl Host {
    fn new(v6: bool, change: impl FnOnce(&mut EngineSettings)) -> Self {
        let Bench { engine_settings, engine, chains, .. } = bench(true, "no");
        let mut settings = engine_settings.for_live_links().for_real_receivers(true);
        change(&mut settings);
        let worker = Worker::new(settings, engine, Arc::clone(&chains)).unwrap();
        Host { worker, now: Timestamp::from_parts(1_700_000_000, 0), v6 }
    }

    /// Time passes, without a packet.
    fn wait(&mut self, millis: u64) {
        self.now = self.now + PacketDuration::from_millis(millis);
    }

    /// A frame comes. Whether it leaves.
    fn send(&mut self, (src, dst): (u8, u8), segment: &[u8]) -> bool {
        let bytes = ethernet(self.v6, &ip(self.v6, (src, dst), 6, segment));
        let captured = Captured { now: self.now, bytes };
        self.worker.frame(&captured.frame(1), &mut Nothing).is_some_and(|d| d.verdict.forwards())
    }

    fn syn(&mut self, Client(host, port): Client) -> bool {
        self.send((host, SERVER), &tcp((port, 80), 1000, 0, SYN, b""))
    }

    fn answer(&mut self, Client(host, port): Client) -> bool {
        self.send((SERVER, host), &tcp((80, port), 5000, 1001, SYN | ACK, b""))
    }

    /// The client's data, `round` times 4 bytes in.
    fn data(&mut self, Client(host, port): Client, round: u32) -> bool {
        self.send((host, SERVER), &tcp((port, 80), 1001 + 4 * round, 5001, ACK, b"good"))
    }

    fn connect(&mut self, client: Client) -> bool {
        let opened = self.syn(client) && self.answer(client);
        let Client(host, port) = client;
        opened && self.send((host, SERVER), &tcp((port, 80), 1001, 5001, ACK, b""))
    }

    fn refused(&self) -> Vec<(Reason, u64)> {
        let counts = Reason::ALL.iter().copied().zip(self.worker.counters().refused);
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

#[test]
fn a_flood_makes_room_for_everyone_out_of_itself() {
    // What runs out first: entries of the flow table, or memory of sessions.
    for (v6, flows, sessions) in [(false, 96, 0), (true, 96, 0), (false, 1024, 96), (true, 1024, 96)] {
        let mut host = Host::new(v6, |settings| {
            settings.flow_capacity = flows;
            settings.stream.memcap = sessions * 200;
        });
        let mut connections: Vec<Client> = (0..8).map(|n| Client(1, 1000 + n)).collect();
        for client in &connections {
            assert!(host.connect(*client));
        }
        let spoofed = |n: u32| Client(10 + (n % 200) as u8, 2000 + n as u16);
        let mut round = 0;
        for n in 0..600 {
            host.wait(10);
            assert!(host.syn(spoofed(n)), "SYN {n}: {:?}", host.refused());
            // Each is answered later: its timer, armed with the SYN, says less than is true.
            if let Some(earlier) = n.checked_sub(20) {
                assert!(host.answer(spoofed(earlier)), "answer {earlier}: {:?}", host.refused());
            }
            if n % 50 == 0 {
                // Who comes meanwhile is let in, and who is there goes on.
                let new = Client(2, 1000 + n as u16);
                assert!(host.connect(new), "{:?}", host.refused());
                (0..round).for_each(|earlier| assert!(host.data(new, earlier)));
                connections.push(new);
                for client in &connections {
                    assert!(host.data(*client, round), "{:?}", host.refused());
                }
                round += 1;
            }
        }
        assert_eq!(host.refused(), [], "v6 {v6}, {flows} flows, {sessions} sessions");
        let table = host.worker.flows();
        let open = table.iter().filter(|(_, flow)| flow.state() == FlowState::Established).count();
        assert_eq!(open, connections.len());
        // Nothing ends uncounted.
        let mut stats = std::collections::HashMap::new();
        host.worker.visit_stats(|name, value| {
            stats.insert(name, value);
        });
        let forced = stats["flow.end.reason.forced"];
        assert!(forced >= 450, "{forced}");
        assert_eq!(stats["flow.total"], table.len() as u64 + forced + stats["flow.end.reason.timeout"]);
        assert_eq!((stats["flow.get_used_failed"], host.worker.counters().no_flow), (0, 0));
        assert_eq!(stats.get("tcp.ssn_memcap_drop").copied().unwrap_or(0), 0);
    }
}

#[test]
fn where_all_memory_is_that_of_connections_a_new_one_is_refused() {
    for v6 in [false, true] {
        let mut host = Host::new(v6, |settings| settings.stream.memcap = 16 * 200);
        let mut open = Vec::new();
        for n in 0..64 {
            let client = Client(1, 1000 + n);
            if !host.connect(client) {
                break;
            }
            open.push(client);
        }
        assert!((16..20).contains(&open.len()), "{}", open.len());
        open.iter().for_each(|client| assert!(host.data(*client, 0)));
        assert_eq!(host.refused()[0].0, Reason::StreamMemory);
        // A closed one gives way.
        let Client(from, port) = open.swap_remove(0);
        assert!(host.send((from, SERVER), &tcp((port, 80), 1005, 5001, ACK | 0x04, b"")));
        assert!(host.connect(Client(2, 1000)));
        open.iter().for_each(|client| assert!(host.data(*client, 1)));
    }
}

#[test]
fn what_is_half_open_has_a_place_in_the_table_and_nothing_else() {
    for v6 in [false, true] {
        let mut host = Host::new(v6, |_| ());
        let client = Client(1, 1000);
        let streams = |host: &Host| host.worker.flows().iter().any(|(_, flow)| flow.ext.streams.is_some());
        assert!(host.syn(client) && host.syn(client) && host.answer(client));
        assert!(!streams(&host));
        // It is over as it is: no packets are made to look at what is left of it.
        host.wait(61_000);
        while host.worker.idle(host.now, &mut Nothing) {}
        assert!(host.worker.flows().is_empty());
        let mut pseudo = u64::MAX;
        host.worker.visit_stats(|name, value| {
            if name == "tcp.ends_inspected" {
                pseudo = value;
            }
        });
        assert_eq!(pseudo, 0);
        // What it becomes is read from its beginning.
        assert!(host.connect(client) && host.data(client, 0) && host.data(client, 1));
        let table = host.worker.flows();
        let right = table.iter().find_map(|(_, flow)| {
            Some(flow.ext.streams.as_deref()?.stream(bartizan_base::Direction::ToServer).right_edge())
        });
        assert_eq!(right, Some(8));
    }
}

#[test]
fn flows_that_are_due_at_once_do_not_end_at_one_packets_expense() {
    for v6 in [false, true] {
        let open = |host: &mut Host| {
            for n in 0..1000 {
                assert!(host.syn(Client(10, 2000 + n)));
            }
            host.wait(61_000);
        };
        let mut live = Host::new(v6, |_| ());
        open(&mut live);
        for n in 0..100 {
            let before = live.worker.flows().len();
            assert!(live.syn(Client(1, n)));
            assert!(before + 1 - live.worker.flows().len() <= 2);
        }
        // More end than packets open, and the rest as soon as there is time.
        assert!(live.worker.flows().len() < 1000, "{}", live.worker.flows().len());
        let mut turns = 0;
        while live.worker.idle(live.now, &mut Nothing) {
            turns += 1;
        }
        assert!((20..60).contains(&turns), "{turns}");
        assert_eq!(live.worker.flows().len(), 100);
        // A replay has time.
        let mut replay = Host::new(v6, |settings| {
            *settings = bench(true, "no").engine_settings;
        });
        open(&mut replay);
        for n in 0..10 {
            assert!(replay.syn(Client(1, n)));
        }
        assert!(replay.worker.flows().len() < 900, "{}", replay.worker.flows().len());
    }
}
