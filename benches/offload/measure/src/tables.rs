// SPDX-License-Identifier: Apache-2.0
//! Measures entries handled through the flow manager: insertion into the program's table, reading of their
//! counters, removal. Workers start each step together.

use crate::flows::{Failed, Share, TURN, program};
use bartizan_offload::manager::READ_EVERY;
use bartizan_xdp::{Key, Tables};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use std::time::Instant;

/// A worker's measurements: seconds of each step.
type Measured = Vec<(&'static str, f64)>;

/// The steps of one worker.
fn work(share: &mut Share, together: &Barrier) -> Result<Measured, Failed> {
    let mut steps = Vec::new();
    let mut step = |name, share: &mut Share, act: &dyn Fn(&mut Share) -> Result<(), Failed>| {
        together.wait();
        let begin = Instant::now();
        let done = act(share);
        steps.push((name, begin.elapsed().as_secs_f64()));
        done
    };
    let a_pass = |share: &mut Share| {
        for _ in 0..READ_EVERY.as_nanos() / TURN.as_nanos() {
            share.turn(TURN);
        }
        Ok(())
    };
    let down = step("insert", share, &Share::sink);
    let passed = step("pass", share, &a_pass);
    together.wait();
    // All workers have arrived and none has removed an entry yet: the moment to measure memory.
    let up = step("remove", share, &Share::raise);
    down.and(passed).and(up)?;
    Ok(steps)
}

/// Memory of the maps that this process holds, in bytes, as the kernel reports.
fn maps() -> Result<u64, Failed> {
    let mut maps = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/fdinfo")? {
        let text = std::fs::read_to_string(entry?.path()).unwrap_or_default();
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if let (Some(id), Some(size)) = (value("map_id:"), value("memlock:")) {
            maps.insert(id.to_owned(), size.parse::<u64>()?);
        }
    }
    Ok(maps.values().sum())
}

/// The process's anonymous memory in bytes, without the kernel's maps.
fn anonymous() -> Result<u64, Failed> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).ok_or("there is no RssAnon")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// Measures the table alone, without a manager, in seconds.
fn table_alone(tables: &Tables, flows: u32) -> Result<Vec<(&'static str, f64)>, Failed> {
    let all: Vec<(Key, u32)> = (0..flows).map(|flow| (bare_key(flow), flow)).collect();
    let mut steps = Vec::new();
    let mut step = |name, act: &dyn Fn() -> Result<(), Failed>| {
        let begin = Instant::now();
        act()?;
        steps.push((name, begin.elapsed().as_secs_f64()));
        Ok::<_, Failed>(())
    };
    step("table: insert", &|| Ok(all.iter().try_for_each(|(key, slot)| tables.insert(key, *slot))?))?;
    step("table: remove", &|| {
        all.iter().all(|(key, _)| tables.remove(key)).then_some(()).ok_or_else(|| "an entry was gone".into())
    })?;
    Ok(steps)
}

/// A key; its exact value does not matter here.
const fn bare_key(flow: u32) -> Key {
    [0, 0x0a00_0000 | flow as u64, 0, 0xc000_0201, 0, 1024 | 9001 << 16, 17]
}

/// Measures `flows` flows, divided among workers.
pub fn run(flows: u32, workers: u32) -> Result<(), Failed> {
    let program = program(flows)?;
    let (tables, each) = (program.tables(), flows / workers.max(1));
    let maps = maps()?;
    let alone = table_alone(&tables, flows)?;
    let mut shares = (0..workers)
        .map(|worker| Share::new(Arc::clone(&tables), worker * each, each))
        .collect::<Result<Vec<_>, _>>()?;
    // Includes the workers and the thread that measures memory.
    let together = Barrier::new(shares.len() + 1);
    let before = anonymous()?;
    let mut grown = Ok(0);
    let measured: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = shares
            .iter_mut()
            .map(|share| scope.spawn(|| work(share, &together).map_err(|error| error.to_string())))
            .collect();
        // The barriers before the insertion, before the pass, and after it; then before the removal.
        for _ in 0..3 {
            together.wait();
        }
        grown = anonymous().map(|now| now.saturating_sub(before));
        together.wait();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a worker panicked".to_owned())?).collect()
    });
    let measured = measured.into_iter().collect::<Result<Vec<Measured>, String>>()?;
    let (flows, grown) = (each * workers, grown?);
    let longest = |at: usize| measured.iter().map(|one| one[at].1).fold(0.0, f64::max);
    let names = measured.first().map_or(&[][..], Vec::as_slice);
    let steps = names.iter().enumerate().map(|(at, (name, _))| (*name, longest(at))).chain(alone);
    let seconds: BTreeMap<&str, f64> = steps.collect();
    println!(
        "{}",
        json!({
            "flows": flows,
            "workers": workers,
            "seconds": seconds,
            "maps": maps,
            "process": grown,
        })
    );
    Ok(())
}
