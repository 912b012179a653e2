// SPDX-License-Identifier: Apache-2.0
//! The committed schema and reference pages match the tables.

use bartizan_events::schema::{json_schema, reference_page, tables};
use bartizan_testkit::generated;

#[test]
fn schema() {
    let mut text = serde_json::to_string_pretty(&json_schema(&tables())).unwrap();
    text.push('\n');
    generated::check("docs/reference/eve-schema.json", &text);
}

#[test]
fn fields() {
    generated::check("docs/reference/eve-fields.md", &reference_page(&tables()));
}

#[test]
fn metrics() {
    generated::check("docs/reference/metrics.md", &bartizan_events::metrics::reference_page());
}
