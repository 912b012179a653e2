// SPDX-License-Identifier: Apache-2.0
//! `stats.json`: the file of counters that a run or an inspection writes at its end.

use crate::error::Failure;
use bartizan_events::output::{Rights, Unfit};
use bartizan_stages::stats::NamedCounters;
use std::collections::BTreeMap;
use std::path::Path;

/// Partial counters, by the names of their owners, beside the sums.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatsParts<'s> {
    /// Links, where there are several.
    pub links: &'s [(String, NamedCounters)],
    /// Ports.
    pub ports: &'s [(String, NamedCounters)],
}

/// Writes `stats.json`: every counter by its dotted name; those of several links under `links`, and those of
/// ports under `ports`.
pub fn write_stats(
    folder: &Path,
    counters: &[(&'static str, u64)],
    parts: &StatsParts<'_>,
    rights: &Rights,
) -> Result<(), Failure> {
    let object = |counters: &[(&'static str, u64)]| -> serde_json::Map<String, serde_json::Value> {
        // Sorted by name.
        let sorted: BTreeMap<&str, u64> = counters.iter().copied().collect();
        sorted.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
    };
    let mut map = object(counters);
    for (key, all) in [("links", parts.links), ("ports", parts.ports)] {
        let of = |(name, counters): &(String, NamedCounters)| (name.clone(), object(counters).into());
        if !all.is_empty() {
            map.insert(key.to_owned(), serde_json::Value::Object(all.iter().map(of).collect()));
        }
    }
    let path = folder.join("stats.json");
    let failed =
        |error: &dyn std::fmt::Display| Failure::stopped(format!("cannot write {}: {error}", path.display()));
    let text = serde_json::to_vec_pretty(&map).map_err(|e| failed(&e))?;
    rights.write(&path, &text).map_err(|e| match Unfit::of(&e) {
        Some(unfit) => failed(&format!("{unfit}; {}", unfit.advice())),
        None => failed(&e),
    })
}
