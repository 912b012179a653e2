// SPDX-License-Identifier: Apache-2.0
//! The committed reference of keywords is that of the registry.

use bartizan_testkit::generated;

#[test]
fn the_reference_is_up_to_date() {
    for (name, expected) in bartizan_detect::reference::pages() {
        generated::check(&format!("docs/reference/{name}"), &expected);
    }
}
