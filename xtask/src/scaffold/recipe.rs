// SPDX-License-Identifier: Apache-2.0
//! The recipes: which files an extension touches, from the pages of the book.
//!
//! A page has the list between two marks, a file in the first cell of each row, with `NAME` for the name:
//!
//! ```text
//! <!-- cargo xtask new level -->
//! | file | content |
//! |---|---|
//! | `crates/NAME/src/lib.rs` | the level |
//! <!-- end of the files -->
//! ```

use super::{Files, Kind, Name};
use std::collections::BTreeSet;

/// The line below the list.
const END: &str = "<!-- end of the files -->";

/// The files that an extension of this name touches.
///
/// # Errors
/// The page has no such list.
pub fn of(kind: &Kind, name: &Name, files: &Files) -> Result<BTreeSet<String>, String> {
    let mark = format!("<!-- cargo xtask new {} -->", kind.name);
    let page = files.get(kind.page).ok_or_else(|| format!("{} is missing: it has the recipe", kind.page))?;
    let list = page.split_once(&mark).and_then(|(_, rest)| rest.split_once(END)).map(|(list, _)| list);
    let list = list.ok_or_else(|| format!("{} has no list between `{mark}` and `{END}`", kind.page))?;
    let of_row = |row: &str| {
        let path = row.trim().strip_prefix("| `")?.split('`').next()?;
        // The folder of a crate is named as its package.
        let name = name.fill(if path.starts_with("crates/NAME/") { "{{kebab}}" } else { "{{name}}" });
        Some(path.replace("NAME", &name))
    };
    Ok(list.lines().filter_map(of_row).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{KINDS, check};
    use super::*;

    #[test]
    fn each_kind_has_its_recipe_and_changes_all_of_its_files() {
        let files = check::repository().unwrap();
        for kind in KINDS {
            let name = Name::new("two_words").unwrap();
            let changed: BTreeSet<String> =
                super::super::plan(kind, &name, &files).unwrap().into_keys().collect();
            assert_eq!(of(kind, &name, &files), Ok(changed), "{}", kind.page);
        }
    }

    /// The bounds that the structure has to keep.
    #[test]
    fn an_event_a_level_and_a_source_touch_few_files() {
        let files = check::repository().unwrap();
        for (name, most) in [("event", 3), ("level", 4), ("source", 4)] {
            let kind = super::super::kind(name).unwrap();
            let count = of(kind, &Name::new("a").unwrap(), &files).unwrap().len();
            assert!(count <= most, "{name}: {count} files");
        }
    }
}
