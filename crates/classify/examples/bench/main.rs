// SPDX-License-Identifier: Apache-2.0
//! The classification bench, run by `benches/classify/run` and `benches/classify-sweep/run`:
//! `bench lookups|updates|sweep FOLDER ACL OUT`.
//!
//! FOLDER holds ClassBench sets (`rules/SET.rules[.gz]`); ACL is the program of the peer
//! (`benches/classify/acl.c`). Both sides look the same headers up in strict alternation on one core, by
//! thread CPU time; the results are compared header by header. Writes OUT: a JSON object a line.

mod common;
mod peer;
mod sets;
mod structures;
mod sweep;
mod updates;

use common::Rows;
use std::path::Path;

/// Sets with the intended ratio.
const SETS: [(&str, f64); 7] = [
    ("acl1_1k", 1.5),
    ("fw1_1k", 2.0),
    ("ipc1_1k", 1.5),
    ("acl1_10k", 1.5),
    ("ipc1_10k", 2.0),
    ("fw1_10k", 3.2),
    ("acl1_100k", 2.0),
];

/// Whether the variable SETS selects a set.
fn wanted(set: &str) -> bool {
    std::env::var("SETS").map_or(true, |only| only.split(',').any(|s| s == set))
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [what, folder, acl, out] = args.as_slice() else {
        eprintln!("usage: bench lookups|updates|sweep FOLDER ACL OUT");
        std::process::exit(2);
    };
    let (folder, acl) = (Path::new(folder), Path::new(acl));
    let mut rows = Rows::new(out);
    let files = std::env::temp_dir().join(format!("bartizan-classify-{}", std::process::id()));
    std::fs::create_dir_all(&files).expect("a scratch folder");
    match what.as_str() {
        "updates" => {
            for rate in [Some(1_000), None] {
                updates::updates(&mut rows, folder, "acl1_10k", rate);
            }
        }
        "sweep" => {
            for source in ["acl1_10k", "fw1_10k", "ipc1_10k"].into_iter().filter(|set| wanted(set)) {
                sweep::sweep(&mut rows, folder, acl, &files, source);
            }
        }
        _ => {
            for (set, aim) in SETS.into_iter().filter(|(set, _)| wanted(set)) {
                sets::one_set(&mut rows, folder, acl, &files, set, aim);
            }
            // Afterwards: what they leave in the allocator would hide the peaks of building.
            for (set, _) in SETS.into_iter().filter(|(set, _)| wanted(set)) {
                structures::structures(&mut rows, folder, set);
            }
            sets::versions_and_levels(&mut rows, folder);
        }
    }
    let _ = std::fs::remove_dir_all(&files);
}
