// SPDX-License-Identifier: Apache-2.0
//! Every structure and the peer on rule sets of growing size, drawn from the statistics of a supplied one.

use crate::common::{BUDGET, CALL, Rows, build, load, v4};
use crate::peer::{METHODS, Peer, write_files};
use crate::structures::{Structure, fill, pass, pass_all};
use bartizan_classify::generate::RuleSetStatistics;
use bartizan_classify::trace::{Draw, draw};
use bartizan_classify::{Classifier, NO_FID};
use std::path::Path;

/// The number of rules.
const SIZES: [usize; 7] = [100, 300, 1_000, 3_000, 10_000, 30_000, 100_000];
const SEED: u64 = 1;
/// Processes of the peer, and alternations in each.
const PROCESSES: usize = 3;
const ROUNDS: usize = 3;
const HEADERS: usize = 400_000;

/// Sweeps the sizes. `SIZE_MAX` in the environment ends it earlier.
pub fn sweep(rows: &mut Rows, folder: &Path, acl: &Path, files: &Path, source: &str) {
    let statistics = RuleSetStatistics::measure(&load(folder, source)).expect("statistics");
    let largest = std::env::var("SIZE_MAX").ok().and_then(|n| n.parse().ok()).unwrap_or(usize::MAX);
    for size in SIZES.into_iter().filter(|size| *size <= largest) {
        let rules = statistics.draw(size, false, SEED).expect("a rule set of this size");
        let headers = v4(&draw(&rules, Draw::Uniform, HEADERS));
        write_files(files, &rules, &headers);
        let (live, _, fastest) = build(&rules);
        let mut right = vec![NO_FID; headers.len()];
        pass_all(&live, &headers, &mut right);
        let mut results = vec![NO_FID; headers.len()];
        let (mut ours, mut theirs) = (f64::MAX, f64::MAX);
        let (mut method, mut differ, mut known) = ("", 0, None);
        for process in 0..PROCESSES {
            let Some(mut peer) = Peer::try_start(acl, files) else { break };
            if process == 0 {
                let time = |peer: &mut Peer, name| peer.ask(&format!("{name} {CALL}")).unwrap_or(f64::MAX);
                let times = METHODS.map(|name| (time(&mut peer, name), name));
                method = times.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).map_or("scalar", |(_, n)| n);
                differ = peer.differ(method, files, &right);
            }
            known = Some((peer.memory, peer.build));
            for _ in 0..ROUNDS {
                if let Some(ns) = peer.ask(&format!("{method} {CALL}")) {
                    theirs = theirs.min(ns / headers.len() as f64);
                }
                ours = ours.min(pass(&live, &headers, &mut results).0);
            }
        }
        if known.is_none() {
            ours = (0..9).map(|_| pass(&live, &headers, &mut results).0).fold(f64::MAX, f64::min);
        }
        let peer = known.map(|_| theirs);
        let mib = |bytes: f64| bytes / 1_048_576.0;
        let own = [ours, mib(live.memory() as f64), fastest];
        rows.swept([source, "compiled tables"], size, own, peer, differ);
        match known {
            Some((bytes, seconds)) => {
                rows.swept([source, "librte_acl"], size, [theirs, mib(bytes), seconds], peer, differ);
            }
            None => rows.refused(&format!("{source} {size} librte_acl"), "cannot build these rules"),
        }
        for Structure { name, filled, seconds } in fill(&rules) {
            let Some(filled) = filled else {
                let why = format!("does not fit {} MiB", BUDGET >> 20);
                rows.refused(&format!("{source} {size} {name}"), &why);
                continue;
            };
            let (mut best, mut differ) = (f64::MAX, 0);
            for _ in 0..ROUNDS {
                let (ns, done) = pass(filled.as_ref(), &headers, &mut results);
                best = best.min(ns);
                differ = results.iter().zip(&right).take(done).filter(|(a, b)| a != b).count();
            }
            let figures = [best, mib(filled.memory() as f64), seconds];
            rows.swept([source, name], size, figures, peer, differ);
        }
    }
}
