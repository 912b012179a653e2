// SPDX-License-Identifier: Apache-2.0
//! The committed reference of keywords is that of the registry. `cargo xtask keywords` writes it.

use std::path::Path;

#[test]
fn the_reference_is_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    for (name, expected) in bartizan_detect::reference::pages() {
        let path = folder.join(name);
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(&path, &expected).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == expected,
            "docs/reference/{name} differs from the registry; run `cargo xtask keywords`"
        );
    }
}
