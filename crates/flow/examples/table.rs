// SPDX-License-Identifier: Apache-2.0
//! Prints the cost of a lookup with few and with many flows, and the memory of an empty table.
//!
//! `cargo run --release -p bartizan-flow --example table`

use bartizan_base::{PacketDuration, Timestamp};
use bartizan_flow::{
    FlowHash, FlowHasher, FlowKey, FlowScope, FlowTable, FlowTableConfig, Lookup, key::protocol,
};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

/// Twice the state of this crate, about as much as a data plane adds.
#[derive(Clone, Default)]
struct Extension([u64; 16]);

fn key(n: u32) -> FlowKey {
    let client = Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(n >> 12));
    let server = Ipv6Addr::from(0x2001_0db8 << 96 | 1 << 64 | u128::from(n & 0xff));
    let port = (n & 0xfff) as u16 + 1024;
    FlowKey::ported(
        &FlowScope::default(),
        protocol::TCP,
        (IpAddr::V6(client), port),
        (IpAddr::V6(server), 443),
    )
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn nanos(started: Instant, times: u32) -> f64 {
    started.elapsed().as_nanos() as f64 / f64::from(times)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const MILLION: u32 = 1 << 20;
    let config = FlowTableConfig::new(MILLION, FlowHasher::new([0x1234, 0x5678]));
    let before = resident();
    let started = Instant::now();
    let mut table: FlowTable<Extension> = FlowTable::new(&config)?;
    println!(
        "empty table for {MILLION} flows: {} MiB reserved, {} KiB resident, made in {:.0} us",
        table.memory().reserved >> 20,
        (resident() - before) >> 10,
        nanos(started, 1) / 1e3,
    );
    let mut clock = Timestamp::from_parts(1_700_000_000, 0);
    let mut made = 0;
    for flows in [1_000, MILLION] {
        let started = Instant::now();
        let new = flows - made;
        while made < flows {
            clock = clock + PacketDuration::from_nanos(100);
            if let Lookup::Created { id } = table.find_or_insert(&key(made), clock, |_, _, _| ()) {
                made += 1;
                if let Some(entry) = table.get_mut(id) {
                    entry.ext.0[0] = u64::from(made);
                }
            }
        }
        println!("{flows:>8} flows: {:6.1} ns per new flow", nanos(started, new));
        measure(&table, flows, clock);
    }
    println!("full table: {} MiB resident", (resident() - before) >> 20);
    let started = Instant::now();
    let ended = table.expire(clock + PacketDuration::from_secs(1_000), u32::MAX, |_, _, _| ());
    println!("expiry: {:.1} ns per flow ({ended} ended)", nanos(started, ended));
    Ok(())
}

fn measure(table: &FlowTable<Extension>, flows: u32, clock: Timestamp) {
    const BATCH: usize = 32;
    const ROUNDS: u32 = 1 << 16;
    // Packets of flows in an unpredictable order for caches, prepared so that only lookups are timed.
    let mut state = 1_u32;
    let packets: Vec<FlowKey> = (0..ROUNDS)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            key(((u64::from(state) * u64::from(flows)) >> 32) as u32)
        })
        .collect();
    let mut medians = Vec::new();
    for batched in [false, true] {
        let mut times = Vec::new();
        for _ in 0..9 {
            let mut sum = 0_u64;
            let started = Instant::now();
            for batch in packets.chunks(BATCH) {
                let mut hashes = [FlowHash(0); BATCH];
                for (hash, key) in hashes.iter_mut().zip(batch) {
                    *hash = table.hash(key);
                }
                if batched {
                    table.prefetch_batch(&hashes[..batch.len()]);
                }
                for (hash, key) in hashes.iter().zip(batch) {
                    if let bartizan_flow::Find::Found { id, .. } = table.find_hashed(*hash, key, clock) {
                        sum += table.get(id).map_or(0, |entry| entry.packets.to_server + 1);
                    }
                }
            }
            assert_eq!(sum, u64::from(ROUNDS), "every lookup finds its flow");
            times.push(nanos(started, ROUNDS));
        }
        times.sort_by(f64::total_cmp);
        medians.push(times[times.len() / 2]);
    }
    println!(
        "{flows:>8} flows: {:6.1} ns per lookup one by one, {:6.1} ns with a batch prefetched",
        medians[0], medians[1]
    );
}
