// SPDX-License-Identifier: Apache-2.0
//! The other structures on a set, each compared with the compiled tables: nanoseconds, memory, time to build,
//! or that it does not fit the budget.

use crate::common::{BUDGET, CALL, Rows, build, cpu_ns, entries, load, v4};
use bartizan_base::Fid;
use bartizan_classify::trace::{Draw, draw};
use bartizan_classify::{BitVector, Classifier, FlatV4, HeaderRule, Linear, NO_FID};
use bartizan_testkit_golden::{Hsm, Segmentation, StrideBv};
use std::path::Path;
use std::time::Instant;

/// Passes per measurement, the best of which counts.
const PASSES: usize = 5;
/// Thread CPU time after which a pass ends, in nanoseconds: some structures are slow, and their headers need
/// not be all.
const PASS_NS: u64 = 100_000_000;

/// A structure filled with a rule set.
pub struct Structure {
    /// Its name.
    pub name: &'static str,
    /// `None` if it does not fit.
    pub filled: Option<Box<dyn Classifier>>,
    /// Seconds until it was filled or refused.
    pub seconds: f64,
}

/// Fills each structure except the compiled tables.
pub fn fill(rules: &[HeaderRule]) -> Vec<Structure> {
    let empty: [(&str, Box<dyn Classifier>); 4] = [
        ("linear", Box::new(Linear::new(1))),
        ("bit vectors", Box::new(BitVector::new(1, BUDGET))),
        ("HSM", Box::new(Hsm::new(1, Segmentation::Integrated, BUDGET))),
        ("StrideBV", Box::new(StrideBv::new(1, BUDGET))),
    ];
    let entries = entries(rules);
    let fill = |(name, mut structure): (&'static str, Box<dyn Classifier>)| {
        let start = Instant::now();
        let fits = structure.insert(0, &entries).is_ok();
        Structure { name, filled: fits.then_some(structure), seconds: start.elapsed().as_secs_f64() }
    };
    empty.into_iter().map(fill).collect()
}

/// Looks headers up until they end or time is over; returns nanoseconds per header, and the number of
/// lookups.
pub fn pass(classifier: &dyn Classifier, headers: &[FlatV4], results: &mut [Fid]) -> (f64, usize) {
    let (start, mut done, mut spent) = (cpu_ns(), 0, 0);
    for (headers, results) in headers.chunks(CALL).zip(results.chunks_mut(CALL)) {
        classifier.fids_v4(headers, results);
        done += headers.len();
        // Asking for the time costs as much as a few headers.
        if done % (16 * CALL) == 0 || done < 16 * CALL {
            spent = cpu_ns() - start;
            if spent > PASS_NS {
                return (spent as f64 / done as f64, done);
            }
        }
    }
    spent = spent.max(cpu_ns() - start);
    (spent as f64 / done.max(1) as f64, done)
}

/// The rows of a set.
pub fn structures(rows: &mut Rows, folder: &Path, set: &str) {
    let rules = load(folder, set);
    let (live, _, fastest) = build(&rules);
    let headers = v4(&draw(&rules, Draw::Uniform, 400_000));
    let mut right = vec![NO_FID; headers.len()];
    pass_all(&live, &headers, &mut right);
    for structure in fill(&rules) {
        let name = format!("{set} {}", structure.name);
        let Some(filled) = structure.filled else {
            rows.refused(&name, &format!("does not fit {} MiB", BUDGET >> 20));
            continue;
        };
        let (mut ns, mut tables, mut differ) = (f64::MAX, f64::MAX, 0);
        for _ in 0..PASSES {
            let mut results = vec![NO_FID; headers.len()];
            let (taken, done) = pass(filled.as_ref(), &headers, &mut results);
            ns = ns.min(taken);
            differ = results.iter().zip(&right).take(done).filter(|(a, b)| a != b).count();
            tables = tables.min(pass(&live, &headers, &mut results).0);
        }
        let mib = |bytes: usize| bytes as f64 / 1_048_576.0;
        let (bytes, seconds) = (filled.memory(), structure.seconds);
        let (own, peer) = (mib(bytes), mib(live.memory()));
        let differ = format!(",\"differ\":{differ}");
        rows.add(&format!("{name} U"), ns, "ns/header", "compiled tables", tables, tables / ns, &differ);
        rows.add(&format!("{name} memory"), own, "MiB", "compiled tables", peer, peer / own, "");
        rows.add(&format!("{name} build"), seconds, "s", "compiled tables", fastest, fastest / seconds, "");
    }
}

/// Looks all headers up.
pub fn pass_all(classifier: &dyn Classifier, headers: &[FlatV4], results: &mut [Fid]) {
    for (headers, results) in headers.chunks(CALL).zip(results.chunks_mut(CALL)) {
        classifier.fids_v4(headers, results);
    }
}
