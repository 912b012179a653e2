// SPDX-License-Identifier: Apache-2.0
//! The committed schema and reference pages match the tables.

use bartizan_events::schema::{FIELDS, json_schema, reference_page};
use bartizan_testkit::generated;

#[test]
fn schema() {
    let mut text = serde_json::to_string_pretty(&json_schema(&[FIELDS])).unwrap();
    text.push('\n');
    generated::check("docs/reference/eve-schema.json", &text);
}

#[test]
fn fields() {
    generated::check("docs/reference/eve-fields.md", &reference_page(&[FIELDS]));
}

#[test]
fn metrics() {
    generated::check("docs/reference/metrics.md", &bartizan_events::metrics::reference_page());
}
