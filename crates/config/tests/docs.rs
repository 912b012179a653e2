// SPDX-License-Identifier: Apache-2.0
//! The examples in the book are valid.

use bartizan_config::host::{self, HostFile, LinkKind};
use bartizan_config::suricata::{declared_effects, unsupported_rows};
use bartizan_testkit::generated;
use std::path::Path;

/// The first YAML block of a page.
fn example(page: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = std::fs::read_to_string(path).expect("the page");
    let (_, rest) = text.split_once("```yaml\n").expect("a block");
    rest.split_once("```").expect("its end").0.to_owned()
}

#[test]
fn the_host_file_of_the_book_is_read_and_names_every_key() {
    let text = example("running.md");
    let file = host::parse("bartizan.yaml", &text).unwrap_or_else(|error| panic!("{error}"));
    assert!(matches!(file.links[0].kind(), Some(LinkKind::Inline(pair)) if pair.fix_offloads));
    let HostFile { workers, policy, suricata_config, metrics, cache, outputs, memory, spin, .. } = &file;
    assert!(workers.is_some() && policy.is_some() && suricata_config.is_some() && metrics.is_some());
    assert!(cache.is_some() && outputs.socket.is_some() && outputs.eve.is_some() && spin.is_some());
    assert!(memory.flows.is_some() && memory.hosts.is_some() && memory.defrag.is_some());
    for key in host::schema()["properties"].as_object().expect("keys").keys() {
        assert!(
            text.lines().any(|line| line.starts_with(&format!("{key}:"))),
            "the page does not show `{key}`"
        );
    }
}

#[test]
fn the_table_of_settings_whose_loss_weakens_is_that_of_the_code() {
    let rows = unsupported_rows();
    let table =
        format!("| setting | weakens if it is | what follows | what to do |\n|---|---|---|---|\n{rows}");
    generated::check_section("docs/suricata.md", "weakened settings", &table);
}

#[test]
fn the_table_of_effects_is_that_of_the_code() {
    let rows: String = declared_effects()
        .map(|(pattern, effect)| format!("| `{pattern}` | {} |\n", effect.words()))
        .collect();
    let table = format!("| setting | effect |\n|---|---|\n{rows}");
    generated::check_section("docs/suricata.md", "effects of settings", &table);
}

#[test]
fn the_committed_schema_of_host_files_is_that_of_the_types() {
    let text = serde_json::to_string_pretty(&host::schema()).expect("json") + "\n";
    generated::check("docs/reference/host-schema.json", &text);
}
