// SPDX-License-Identifier: Apache-2.0
//! The record of a source: bounded, exported and imported.

use super::*;
use bartizan_function::{HostKeeper, HostTables, HostTablesConfig};

fn section() -> PortscanSection {
    serde_json::from_str("{}").unwrap()
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_parts(1_000, 0) + PacketDuration::from_millis(millis)
}

fn host(n: u16) -> IpAddr {
    let [high, low] = n.to_be_bytes();
    if n.is_multiple_of(2) {
        [192, 0, high, low].into()
    } else {
        IpAddr::from([0x20 + u16::from(low), 1, 2, 3, 4, 5, n, 7])
    }
}

/// A source with all kinds of state.
fn busy() -> ScanSource {
    let mut source = ScanSource::default();
    for n in 0..150 {
        let outcome = if n % 3 == 0 { AttemptState::Refused } else { AttemptState::Open };
        source.tries(&section(), (6, host(n), 22), outcome, at(u64::from(n) * 40));
        source.is_answered(&section(), (17, host(n / 8), 53), at(u64::from(n) * 40));
    }
    source.tries(&section(), (6, host(149), 22), AttemptState::Open, at(7_000));
    source.blocked = at(99_000);
    source
}

#[test]
fn attempts_are_bounded_and_what_is_forgotten_is_counted() {
    let mut source = busy();
    assert_eq!(source.attempts.len(), ATTEMPTS_MAX);
    assert_eq!(source.take_refused(), 150 - ATTEMPTS_MAX as u64);
    assert_eq!(source.take_refused(), 0);
    let allocated = source.attempts.capacity() * size_of::<Attempt>();
    assert!(allocated <= SPEC.host_slot.unwrap().held_max, "{allocated}");
    assert!(source.reported.iter().any(Option::is_some));
    // The window slides, and the block is kept longest.
    assert_eq!(source.keep_until(at(66_500)), at(99_000));
    assert!(source.attempts.is_empty());
}

#[test]
fn what_is_exported_is_imported_and_no_cut_is_taken_for_whole() {
    let source = ScanSource { forgotten: 0, ..busy() };
    let mut bytes = Vec::new();
    source.export(&mut bytes);
    assert_eq!(ScanSource::import(&bytes), Some(source.clone()));
    // Records of attempts have two lengths; a cut at any other place is detected.
    for cut in bytes.len() - 17..bytes.len() {
        assert_eq!(ScanSource::import(&bytes[..cut]), None, "cut at {cut}");
    }
    let one = bytes.len() - 2;
    bytes[one] = 7;
    assert_eq!(ScanSource::import(&bytes), None, "no such outcome");
    let mut many = Vec::new();
    source.export(&mut many);
    let record = many[many.len() - 30..].to_vec();
    many.extend(record);
    assert_eq!(ScanSource::import(&many), None, "more than are kept");
}

#[test]
fn a_table_takes_up_what_another_one_exported() {
    let (from, to) = (HostTables::default(), HostTables::default());
    let key = HostKey::host(TenantId(3), host(2));
    let sources = from.of::<ScanSource>(&SPEC).unwrap();
    sources.with(&key, at(7_000), |source| *source = busy()).unwrap();
    let mut bytes = Vec::new();
    sources.export(&mut bytes);
    let other = to.of::<ScanSource>(&SPEC).unwrap();
    assert_eq!(other.import(&bytes, at(7_000)), Ok(1));
    assert_eq!(other.if_there(&key, at(7_000), |source| source.attempts.len()), Some(ATTEMPTS_MAX));
}

#[test]
fn invented_sources_of_one_tenant_hide_no_scan_of_another() {
    let config = HostTablesConfig { memory: 1 << 20, ..HostTablesConfig::default() };
    for v6 in [false, true] {
        let sources = HostTables::new(config).of::<ScanSource>(&SPEC).unwrap();
        let tries = |tenant, from: IpAddr, port, now| {
            let tried = |source: &mut ScanSource| {
                source.tries(&section(), (6, host(1), port), AttemptState::Refused, now)
            };
            sources.with(&HostKey::host(TenantId(tenant), from), now, tried).unwrap().len()
        };
        let address = |n: u32| -> IpAddr {
            if v6 {
                (0x2001_0db8_u128 << 96 | u128::from(n)).to_be_bytes().into()
            } else {
                n.to_be_bytes().into()
            }
        };
        let (mut scans, mut invented) = (0, 0);
        for port in 0..20 {
            let now = at(u64::from(port) * 100);
            scans += tries(2, address(1), 1_000 + port, now);
            for _ in 0..1_000 {
                invented += 1;
                tries(1, address(invented), 80, now);
            }
        }
        assert_eq!(scans, 1, "the twentieth port is a scan");
        let counters = HostKeeper::counters(&*sources);
        assert!(counters.evicted > 10_000 && counters.evicted_for_others == 0, "{counters:?}");
    }
}
