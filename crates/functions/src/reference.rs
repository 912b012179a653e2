// SPDX-License-Identifier: Apache-2.0
//! The reference page of the functions, from their specifications alone: `cargo xtask generate` writes
//! docs/reference/functions.md.

use crate::registry::{self, Services};
use crate::{ids, sfw};
use bartizan_base::page::wrapped;
use bartizan_function::{FunctionModel, FunctionSpec};
use std::fmt::Write as _;
use std::sync::Arc;

/// Every function, in the order of the registry; `ids`, which the registry does not have, last.
#[must_use]
pub fn specs(hosts: &sfw::Hosts) -> Vec<&'static FunctionSpec> {
    let kinds = registry::kinds(&Services { hosts: Arc::clone(hosts) });
    kinds.iter().map(|kind| kind.spec()).chain([&ids::SPEC]).collect()
}

/// The page.
#[must_use]
pub fn page(specs: &[&FunctionSpec]) -> String {
    let mut page = String::from(
        "# Functions\n\n<!-- Generated from the specifications of the functions; do not edit. -->\n\nThe \
         functions that a policy's chain can contain. A header half may run below the host; its entries and \
         lookups are those of\n[header halves as data](../design/0014-header-halves.md). Counters are those \
         of `bartizan_function_total` in [metrics](metrics.md).\n",
    );
    for spec in specs {
        let model = match spec.model {
            FunctionModel::StatelessHeaders => "1: headers, without state",
            FunctionModel::StatefulHeaders => "2: headers and flow state",
            FunctionModel::Payload => "3: payloads, streams and transactions",
        };
        let _ = writeln!(page, "\n## {}\n\n{}\n\n* Model {model}.", spec.name, spec.summary);
        for (what, names) in [("after", spec.runs_after), ("before", spec.runs_before)] {
            if !names.is_empty() {
                let _ = writeln!(page, "* Runs {what} `{}`.", names.join("`, `"));
            }
        }
        if let Some(half) = spec.header_half {
            let (bytes, lookups) = (half.entry_bytes, half.lookups);
            let fields: Vec<String> = half
                .fields
                .iter()
                .map(|header_field| format!("`{}` {}", header_field.name, header_field.width))
                .collect();
            let many = if lookups == 1 { "lookup" } else { "lookups" };
            let fields = fields.join(", ");
            let line = format!(
                "* Header half: entries of at most {bytes} bytes, {lookups} {many}; fields and their bits: {fields}."
            );
            let _ = writeln!(page, "{}", wrapped(&line, "  "));
        }
        if let Some(slot) = spec.host_slot {
            let _ = writeln!(
                page,
                "* Keeps a value per host, also over reloads: version {}, at most {} bytes each beside the entry.",
                slot.version, slot.held_max
            );
        }
        if !spec.counters.is_empty() {
            page.push_str("\n| counter | meaning |\n|---|---|\n");
        }
        for counter_spec in spec.counters {
            let _ = writeln!(page, "| `{}` | {} |", counter_spec.name, counter_spec.help);
        }
    }
    page
}
