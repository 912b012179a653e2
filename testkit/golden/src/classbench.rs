// SPDX-License-Identifier: Apache-2.0
//! The ClassBench sets with their golden results, from the folder that BARTIZAN_CLASSBENCH names or
//! `shared/data/classbench` beside the project.

use bartizan_classify::{Header, HeaderRule, classbench};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Headers with the number of the first rule that matches.
pub type Golden = Vec<(Header, Option<u32>)>;

/// The sets that have golden files.
pub const SETS: [&str; 7] = ["acl1_1k", "fw1_1k", "ipc1_1k", "acl1_10k", "fw1_10k", "ipc1_10k", "acl1_100k"];

fn folder() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("BARTIZAN_CLASSBENCH") {
        return Some(folder.into());
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().map(|a| a.join("shared/data/classbench")).find(|f| f.is_dir())
}

fn read(path: &Path) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    let mut text = String::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).ok()?;
    } else {
        text = String::from_utf8(bytes).ok()?;
    }
    Some(text)
}

/// Rules and golden results of a set; `None`, with a message on stderr, if the data is missing.
///
/// # Panics
/// The data is malformed.
#[must_use]
pub fn load(set: &str) -> Option<(Vec<HeaderRule>, Golden)> {
    let loaded = folder().and_then(|folder| {
        let rules = [format!("rules/{set}.rules"), format!("rules/{set}.rules.gz")];
        let rules = rules.iter().find_map(|name| read(&folder.join(name)))?;
        let golden = read(&folder.join(format!("golden/{set}.golden.gz")))?;
        Some((classbench::rules(&rules).unwrap(), classbench::golden(&golden).unwrap()))
    });
    if loaded.is_none() {
        eprintln!("{set}: no data; set BARTIZAN_CLASSBENCH to the folder with `rules` and `golden`");
    }
    loaded
}
