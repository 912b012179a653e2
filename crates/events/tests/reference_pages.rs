// SPDX-License-Identifier: Apache-2.0
//! The committed schema and reference pages are those of the tables. `UPDATE_REFERENCE=1` writes them.

use bartizan_events::schema::{FIELDS, json_schema, reference_page};
use std::path::Path;

fn committed(name: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/reference/{name} differs from the tables; run UPDATE_REFERENCE=1 cargo test -p bartizan-events"
    );
}

#[test]
fn schema() {
    let mut text = serde_json::to_string_pretty(&json_schema(&[FIELDS])).unwrap();
    text.push('\n');
    committed("eve-schema.json", &text);
}

#[test]
fn fields() {
    committed("eve-fields.md", &reference_page(&[FIELDS]));
}

#[test]
fn metrics() {
    committed("metrics.md", &bartizan_events::metrics::reference_page());
}
