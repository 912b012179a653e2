// SPDX-License-Identifier: Apache-2.0
//! Connections that flows announce, such as FTP's data connections, for all flows and workers:
//! docs/design/0030-expected-connections.md.
//!
//! They are kept by tenant and pair of hosts, in a [`HostTable`]. A worker asks once for each connection,
//! with its first data. Over captures with several workers it asks in its turn, so that the answer is that of
//! a single worker; for connections to or from a well-known port it does not wait.

use bartizan_applayer::expectation::{ConnectionPlace, ExpectationStore, ExpectedConnection};
use bartizan_applayer::flow::{AppLayer, Engine, FlowInfo};
use bartizan_applayer::protocols;
use bartizan_base::{Direction, LinkId, PacketDuration, Timestamp, turns};
use bartizan_flow::FlowHasher;
use bartizan_flow::host::{HostKey, HostTable, HostTableConfig, HostValue, WhenHostsFull};
use bartizan_flow::stream::{Duplex as _, InOrder as _};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::record::Entry;

/// Time for which a connection is expected.
pub const EXPECTED_FOR: PacketDuration = PacketDuration::from_millis(30_000);
/// Limit of the connections that are expected between two hosts.
pub const PER_PAIR_MAX: usize = 32;
/// Limit of the pairs of hosts.
pub const PAIRS_MAX: u32 = 2_048;
/// Entries of the table that expire at most with each announcement.
const EXPIRED_AT_ONCE: u32 = 64;
/// Port from which an FTP server opens data connections.
const FTP_DATA: u16 = 20;
/// Well-known ports are below this one. Servers open no data connections to them.
const WELL_KNOWN: u16 = 1_024;

/// A connection that is expected between two hosts.
#[derive(Debug)]
struct Waiting {
    until: Timestamp,
    link: LinkId,
    server_port: u16,
    /// The host with the lower address opens the connection.
    is_upward: bool,
    connection: ExpectedConnection,
}

/// The connections that are expected between two hosts, oldest first.
#[derive(Debug, Default)]
struct PairExpectations {
    list: Vec<Waiting>,
    refused: u64,
}

impl HostValue for PairExpectations {
    fn keep_until(&mut self, now: Timestamp) -> Timestamp {
        self.list.retain(|waiting| waiting.until > now);
        self.list.iter().map(|waiting| waiting.until).max().unwrap_or(now)
    }

    fn take_refused(&mut self) -> u64 {
        core::mem::take(&mut self.refused)
    }
}

impl Waiting {
    fn is_at(&self, place: &ConnectionPlace) -> bool {
        self.link == place.link && self.server_port == place.server_port && self.is_upward == is_upward(place)
    }
}

fn is_upward(place: &ConnectionPlace) -> bool {
    place.client <= place.server
}

fn key(place: &ConnectionPlace) -> HostKey {
    HostKey::pair(place.tenant, place.client, place.server)
}

/// The expected connections of all flows of an application layer.
#[derive(Debug)]
pub struct ExpectationTable {
    pairs: HostTable<PairExpectations>,
    /// A connection was expected once: before, no connection is looked up.
    is_used: AtomicBool,
}

impl ExpectationTable {
    /// An empty table; `hasher`: the instance's secret hash.
    #[must_use]
    pub fn new(hasher: FlowHasher) -> Self {
        let config =
            HostTableConfig { capacity: PAIRS_MAX, shards: 16, hasher, when_full: WhenHostsFull::Evict };
        ExpectationTable { pairs: HostTable::new(&config), is_used: AtomicBool::new(false) }
    }
}

impl ExpectationStore for ExpectationTable {
    fn add(&self, place: &ConnectionPlace, connection: ExpectedConnection, now: Timestamp) {
        turns::wait_for_turn();
        self.pairs.expire(now, EXPIRED_AT_ONCE);
        let waiting = Waiting {
            until: now + EXPECTED_FOR,
            link: place.link,
            server_port: place.server_port,
            is_upward: is_upward(place),
            connection,
        };
        // A table without room has counted the refusal.
        let _ = self.pairs.with(&key(place), now, |pair| {
            pair.list.retain(|other| other.until > now && !other.is_at(place));
            if pair.list.len() >= PER_PAIR_MAX {
                pair.list.remove(0);
                pair.refused += 1;
            }
            pair.list.push(waiting);
        });
        self.is_used.store(true, Ordering::Release);
    }

    fn take(&self, place: &ConnectionPlace, now: Timestamp) -> Option<ExpectedConnection> {
        let is_likely = place.server_port >= WELL_KNOWN
            && (place.client_port >= WELL_KNOWN || place.client_port == FTP_DATA);
        if is_likely {
            turns::wait_for_turn();
        }
        if !self.is_used.load(Ordering::Acquire) {
            return None;
        }
        let found = self.pairs.if_there(&key(place), now, |pair| {
            let at = pair.list.iter().position(|waiting| waiting.until > now && waiting.is_at(place))?;
            Some(pair.list.remove(at).connection)
        });
        found.flatten()
    }

    fn len(&self) -> u64 {
        let mut count = 0;
        self.pairs.for_each(|_, pair| count += pair.list.len() as u64);
        count
    }

    fn displaced(&self) -> u64 {
        let counters = self.pairs.counters();
        counters.evicted.saturating_add(counters.refused).saturating_add(counters.slot_refused)
    }
}

/// The place of a flow.
fn place_of(entry: &Entry) -> ConnectionPlace {
    let key = entry.key();
    ConnectionPlace {
        tenant: key.tenant(),
        link: key.scope().link,
        client: key.source(),
        server: key.destination(),
        client_port: key.source_port(),
        server_port: key.destination_port(),
    }
}

/// Makes the application layer of a flow with its first data, if it has none: that of an expected connection,
/// if it is one.
pub fn begin(engine: &Engine, entry: &mut Entry, now: Timestamp) {
    if entry.ext.app.is_some() {
        return;
    }
    let mut app = Box::<AppLayer>::default();
    if let Some(store) = engine.expectations()
        && let Some(connection) = store.take(&place_of(entry), now)
    {
        let is_empty = entry
            .ext
            .streams
            .as_deref_mut()
            .is_some_and(|pair| Direction::BOTH.iter().all(|side| pair.source(*side).end() == 0));
        if is_empty {
            app.expect_nothing(&connection);
        } else {
            entry.ext.rare_mut().parent = Some(connection.parent);
            app.expect(engine, &connection);
        }
    }
    entry.ext.app = Some(app);
}

/// Passes the connections that a flow's parser expects to the store. In prevention a flow that announces the
/// address of a third host is refused.
pub fn pass_on(engine: &Engine, entry: &mut Entry, info: &FlowInfo) {
    let expectations = entry.ext.app.as_deref_mut().map(AppLayer::take_expectations).unwrap_or_default();
    for expectation in expectations {
        let Some(store) = engine.expectations() else { return };
        let Some((protocol, _)) = protocols::by_name(expectation.protocol) else { continue };
        let own = place_of(entry);
        let (client, server) = match expectation.opened {
            Direction::ToServer => (own.client, own.server),
            Direction::ToClient => (own.server, own.client),
        };
        // A bounce: the other side is to open a connection to a third host (RFC 2577 section 3).
        let is_bounce = expectation.address.is_some_and(|address| {
            !address.is_unspecified() && address.to_canonical() != server.to_canonical()
        });
        if is_bounce
            && info.prevents
            && let Some(app) = entry.ext.app.as_deref_mut()
        {
            app.refuse(engine, info);
        }
        let place = ConnectionPlace { client, server, client_port: 0, server_port: expectation.port, ..own };
        let connection =
            ExpectedConnection { protocol, parent: entry.ext.event_id, context: expectation.context };
        store.add(&place, connection, info.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_applayer::protocol::ProtocolId;
    use bartizan_base::TenantId;
    use core::net::IpAddr;

    fn place(client: &str, server: &str, port: u16) -> ConnectionPlace {
        let of = |text: &str| text.parse::<IpAddr>().expect(text);
        ConnectionPlace {
            tenant: TenantId(1),
            link: LinkId(2),
            client: of(client),
            server: of(server),
            client_port: 0,
            server_port: port,
        }
    }

    fn connection(parent: u64) -> ExpectedConnection {
        ExpectedConnection { protocol: ProtocolId(1), parent, context: Box::default() }
    }

    fn table() -> ExpectationTable {
        ExpectationTable::new(FlowHasher::new([1, 2]))
    }

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::ZERO + PacketDuration::from_millis(milliseconds)
    }

    #[test]
    fn a_connection_is_found_once_at_its_place() {
        for (a, b) in [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")] {
            let table = table();
            let here = place(a, b, 40_000);
            assert_eq!((table.take(&here, at(1)), table.is_empty()), (None, true));
            table.add(&here, connection(7), at(1));
            for other in [
                ConnectionPlace { tenant: TenantId(2), ..here },
                ConnectionPlace { link: LinkId(1), ..here },
                ConnectionPlace { server_port: 40_001, ..here },
                place(b, a, 40_000),
                place("10.0.0.3", b, 40_000),
            ] {
                assert_eq!(table.take(&other, at(2)), None, "{other:?}");
            }
            assert_eq!(table.len(), 1);
            let from = ConnectionPlace { client_port: 33_333, ..here };
            assert_eq!(table.take(&from, at(2)).map(|found| found.parent), Some(7));
            assert_eq!((table.take(&here, at(2)), table.len()), (None, 0));
        }
    }

    #[test]
    fn a_connection_expires() {
        let table = table();
        let here = place("10.0.0.1", "10.0.0.2", 40_000);
        table.add(&here, connection(7), at(0));
        table.add(&ConnectionPlace { server_port: 1, ..here }, connection(8), at(29_000));
        assert_eq!(table.take(&here, at(30_000)), None);
        assert_eq!(
            table.take(&ConnectionPlace { server_port: 1, ..here }, at(30_000)).map(|f| f.parent),
            Some(8)
        );
    }

    #[test]
    fn connections_are_bounded() {
        let table = table();
        let here = place("10.0.0.1", "10.0.0.2", 0);
        for port in 0..100u16 {
            table.add(&ConnectionPlace { server_port: port, ..here }, connection(u64::from(port)), at(0));
        }
        assert_eq!((table.len(), table.displaced()), (PER_PAIR_MAX as u64, 100 - PER_PAIR_MAX as u64));
        assert_eq!(table.take(&ConnectionPlace { server_port: 67, ..here }, at(1)), None);
        assert!(table.take(&ConnectionPlace { server_port: 68, ..here }, at(1)).is_some());
        // One place has one connection.
        for parent in 0..3 {
            table.add(&place("10.9.0.1", "10.9.0.2", 5_000), connection(parent), at(1));
        }
        assert_eq!(table.take(&place("10.9.0.1", "10.9.0.2", 5_000), at(2)).map(|f| f.parent), Some(2));
        assert_eq!(table.take(&place("10.9.0.1", "10.9.0.2", 5_000), at(2)), None);
        for host in 0..10_000u32 {
            let client = IpAddr::from(host.to_be_bytes());
            table.add(&ConnectionPlace { client, server_port: 1, ..here }, connection(0), at(2));
        }
        let most = u64::from(PAIRS_MAX);
        assert!(table.pairs.counters().active <= most && table.displaced() >= 10_000 - most);
    }
}
