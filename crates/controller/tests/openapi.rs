// SPDX-License-Identifier: Apache-2.0
//! The committed OpenAPI document matches the routes and types. `cargo xtask generate` writes it.

use bartizan_controller::{resources, rest::openapi};
use bartizan_testkit::generated;

#[test]
fn the_committed_document_is_that_of_the_routes() {
    let document = openapi::document(&resources::routes());
    let expected = serde_json::to_string_pretty(&document).unwrap() + "\n";
    generated::check("docs/reference/openapi.json", &expected);
}

#[test]
fn operations_have_names_of_their_own_and_every_reference_is_defined() {
    let document = openapi::document(&resources::routes());
    let mut names: Vec<_> = resources::routes().into_iter().map(|route| route.operation).collect();
    names.sort();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    let text = document.to_string();
    for part in text.split("\"$ref\":\"#").skip(1) {
        let pointer = part.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer} is not defined");
    }
}
