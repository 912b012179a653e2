// SPDX-License-Identifier: Apache-2.0
//! Inserts and deletes during lookups.

use crate::common::{CALL, Rows, build, cpu_ns, entries, load, v4};
use bartizan_base::Fid;
use bartizan_classify::trace::{Draw, Random, draw};
use bartizan_classify::{Classifier, Live, NO_FID};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Lookups, then lookups under updates, then lookups again.
pub fn updates(rows: &mut Rows, folder: &Path, set: &str, rate: Option<u64>) {
    let rules = load(folder, set);
    let all = entries(&rules);
    let (mut live, ..) = build(&rules);
    let headers = v4(&draw(&rules, Draw::Uniform, 100_000));
    let reader = live.reader();
    let (stop, passes) = (AtomicBool::new(false), AtomicU64::new(0));
    let spent = AtomicU64::new(0);
    let label = rate.map_or("as fast as they go".to_owned(), |r| format!("{r}/s"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut results = vec![NO_FID; CALL];
            while !stop.load(Ordering::Relaxed) {
                for part in headers.chunks(6_400) {
                    let start = cpu_ns();
                    for headers in part.chunks(CALL) {
                        reader.version().fids_v4(headers, &mut results);
                    }
                    spent.fetch_add(cpu_ns() - start, Ordering::Relaxed);
                    passes.fetch_add(part.len() as u64, Ordering::Relaxed);
                }
            }
        });
        let measure = |time: Duration, mut work: Box<dyn FnMut(&mut Live) -> u64 + '_>, live: &mut Live| {
            let (p, s, start) =
                (passes.load(Ordering::Relaxed), spent.load(Ordering::Relaxed), Instant::now());
            let mut done = 0;
            while start.elapsed() < time {
                done += work(live);
            }
            let headers = passes.load(Ordering::Relaxed) - p;
            let ns = (spent.load(Ordering::Relaxed) - s) as f64 / headers.max(1) as f64;
            (ns, done as f64 / start.elapsed().as_secs_f64())
        };
        let sleep = |time: Duration| -> Box<dyn FnMut(&mut Live) -> u64> {
            Box::new(move |_| {
                std::thread::sleep(time);
                0
            })
        };
        let (idle, _) = measure(Duration::from_secs(2), sleep(Duration::from_millis(50)), &mut live);
        // 64 entries are out at any time: one leaves, the one that left longest ago comes back.
        let mut random = Random(1);
        let mut out = std::collections::VecDeque::new();
        let mut absent = vec![false; all.len()];
        let begin = Instant::now();
        let mut total = 0u64;
        let mut one = |live: &mut Live| {
            let batch = if rate.is_some() { 1 } else { 256 };
            for _ in 0..batch {
                let i = random.below(all.len());
                if !std::mem::replace(&mut absent[i], true) {
                    live.delete(Fid(i as u32));
                    out.push_back(i);
                    total += 1;
                }
                if out.len() > 64 {
                    let i = out.pop_front().expect("one of 65");
                    live.insert(0, &all[i..=i]).expect("set 0");
                    absent[i] = false;
                    total += 1;
                }
            }
            if let Some(rate) = rate {
                let due = Duration::from_secs_f64(total as f64 / rate as f64);
                std::thread::sleep(due.saturating_sub(begin.elapsed()));
            }
            total
        };
        let mut last = 0;
        let work = Box::new(|live: &mut Live| {
            let total = one(live);
            let new = total - last;
            last = total;
            new
        });
        let (busy, done) = measure(Duration::from_secs(10), work, &mut live);
        for i in out {
            live.insert(0, &all[i..=i]).expect("set 0");
        }
        let rebuild = live.begin(true);
        live.finish(rebuild.run());
        std::thread::sleep(Duration::from_millis(500));
        let (again, _) = measure(Duration::from_secs(1), sleep(Duration::from_millis(50)), &mut live);
        stop.store(true, Ordering::Relaxed);
        rows.add(
            &format!("{set} updates, {label}"),
            done,
            "/s",
            "TupleMerge (paper's host)",
            2.3e6,
            done / 2.3e6,
            "",
        );
        rows.add(&format!("{set} lookups, {label}"), busy, "ns/header", "idle", idle, idle / busy, "");
        rows.add(&format!("{set} after, {label}"), again, "ns/header", "idle before", idle, idle / again, "");
    });
}
