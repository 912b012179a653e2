// SPDX-License-Identifier: Apache-2.0
//! Tables of functions: the same in all generations, bounded, exported and imported.

use super::*;
use crate::spec::FunctionModel;
use bartizan_base::{PacketDuration, TenantId};
use core::net::IpAddr;

/// A number that is kept for a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TestHostValue(u32, Timestamp);

impl HostValue for TestHostValue {
    fn keep_until(&mut self, _: Timestamp) -> Timestamp {
        self.1
    }
}

impl HostData for TestHostValue {
    fn export(&self, out: &mut Vec<u8>) {
        out.extend(self.0.to_le_bytes());
        out.extend(self.1.as_nanos().to_le_bytes());
    }

    fn import(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let number = cursor.array().map(u32::from_le_bytes)?;
        let until = cursor.array().map(u64::from_le_bytes)?;
        cursor.is_empty().then_some(TestHostValue(number, Timestamp::from_nanos(until)))
    }
}

const fn spec(version: u16) -> FunctionSpec {
    FunctionSpec {
        name: "numbers",
        summary: "",
        model: FunctionModel::StatefulHeaders,
        runs_after: &[],
        runs_before: &[],
        header_half: None,
        host_slot: Some(HostSlot { version, held_max: 0 }),
        counters: &[],
    }
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_parts(1_000, 0) + PacketDuration::from_millis(millis)
}

fn key(v6: bool, host: u8) -> HostKey {
    let address: IpAddr = if v6 { [host; 16].into() } else { [10, 0, 0, host].into() };
    HostKey::host(TenantId(1), address)
}

fn put(table: &HostValues<TestHostValue>, key: &HostKey, number: u32) {
    table.with(key, at(0), |value| *value = TestHostValue(number, at(1_000))).unwrap();
}

fn get(table: &HostValues<TestHostValue>, key: &HostKey) -> Option<u32> {
    table.if_there(key, at(1), |value| value.0)
}

#[test]
fn a_table_outlives_generations_while_its_layout_is_the_same() {
    let tables = HostTables::default();
    for v6 in [false, true] {
        put(&tables.of::<TestHostValue>(&spec(1)).unwrap(), &key(v6, 1), 7);
        assert_eq!(get(&tables.of(&spec(1)).unwrap(), &key(v6, 1)), Some(7));
    }
    assert_eq!(get(&tables.of(&spec(2)).unwrap(), &key(false, 1)), None, "another version");
    assert_eq!(get(&tables.of(&spec(1)).unwrap(), &key(false, 1)), None, "the first one is gone");
    assert!(tables.of::<TestHostValue>(&FunctionSpec { host_slot: None, ..spec(1) }).is_none());
}

#[test]
fn memory_bounds_the_values_and_what_leaves_is_counted() {
    let tables = HostTables::new(HostTablesConfig { memory: 1 << 20, ..HostTablesConfig::default() });
    let slot = HostSlot { version: 1, held_max: 8 << 10 };
    let table = tables.of::<TestHostValue>(&FunctionSpec { host_slot: Some(slot), ..spec(1) }).unwrap();
    for host in 0..=255 {
        put(&table, &key(false, host), 1);
        put(&table, &key(true, host), 1);
    }
    let counters = HostKeeper::counters(&*table);
    assert!(counters.memuse <= counters.memcap && counters.memcap <= 1 << 20, "{counters:?}");
    assert_eq!((counters.created, counters.active + counters.evicted), (512, 512));
    assert!(counters.evicted > 300, "{counters:?}");
    let (mut went, mut rounds) = (0, 0);
    while rounds < 1_000 && HostKeeper::counters(&*table).active > 0 {
        went += HostKeeper::expire(&*table, at(3_000), 8);
        rounds += 1;
    }
    assert_eq!(u64::from(went), counters.active, "in small steps all of them go");
}

#[test]
fn what_is_exported_is_taken_up_by_the_same_layout_only() {
    let (from, to) = (HostTables::default(), HostTables::default());
    let table = from.of::<TestHostValue>(&spec(1)).unwrap();
    put(&table, &key(false, 1), 4);
    put(&table, &key(true, 1), 6);
    let mut bytes = Vec::new();
    table.export(&mut bytes);
    let other = to.of::<TestHostValue>(&spec(1)).unwrap();
    for cut in 0..bytes.len() {
        assert!(other.import(&bytes[..cut], at(1)).is_err(), "cut at {cut}");
    }
    assert_eq!(other.import(&bytes, at(1)), Ok(2));
    assert_eq!((get(&other, &key(false, 1)), get(&other, &key(true, 1))), (Some(4), Some(6)));
    let next = to.of::<TestHostValue>(&spec(2)).unwrap();
    assert_eq!(next.import(&bytes, at(1)), Ok(0));
    assert_eq!(get(&next, &key(false, 1)), None);
    bytes[0] = 9;
    assert_eq!(other.import(&bytes, at(1)), Err(HostImportError::Version { found: 9 }));
}
