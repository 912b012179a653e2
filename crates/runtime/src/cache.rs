// SPDX-License-Identifier: Apache-2.0
//! The folder of compiled patterns, which are kept between runs.
//!
//! Source: XDG Base Directory Specification for the user's folder, the Filesystem Hierarchy Standard for
//! root's. `bartizan_pattern::Cache` defines the content of the folder and the rights to write it.

use crate::error::Failure;
use crate::lock;
use bartizan_pattern::{Cache, CacheError};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens the cache. A requested folder has to work; without the default one the run continues, with a
/// warning.
pub fn open(choice: Option<&Path>, warnings: &mut Vec<String>) -> Result<Option<Arc<Cache>>, Failure> {
    let (Some(folder), asked) = folder(choice) else { return Ok(None) };
    match Cache::open(&folder) {
        Ok(cache) => Ok(Some(Arc::new(cache))),
        Err(error) if asked => {
            Err(Failure::input(format!("{error} (`--cache none` switches the cache off)")))
        }
        Err(error @ (CacheError::Folder { .. } | CacheError::Unsafe { .. })) => {
            warnings.push(format!(
                "rules are compiled at every start, without a pattern cache: {error} \
                 (`--cache DIR|none`)"
            ));
            Ok(None)
        }
    }
}

/// The folder of a choice, and whether it was chosen; no folder: no cache.
pub fn folder(choice: Option<&Path>) -> (Option<PathBuf>, bool) {
    match choice {
        Some(none) if none.as_os_str() == "none" => (None, true),
        Some(folder) => (Some(folder.to_owned()), true),
        None => {
            let of_root = is_root() || lock::is_own(Path::new(ROOTS));
            (default_folder(of_root, |name| std::env::var_os(name)), false)
        }
    }
}

/// The folder of root, and of the user to whom it belongs.
const ROOTS: &str = "/var/cache/bartizan";

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

fn default_folder(root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // By the specification, a path that is not absolute is ignored.
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // That of a unit (`CacheDirectory=`).
    if let Some(of_unit) = absolute("CACHE_DIRECTORY") {
        return Some(of_unit);
    }
    if root {
        return Some(PathBuf::from(ROOTS));
    }
    let folder = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    folder.map(|folder| folder.join("bartizan"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_folder_is_the_users_own() {
        let with = |xdg: Option<&str>, home: Option<&str>| {
            let variable = |name: &str| match name {
                "HOME" => home,
                "XDG_CACHE_HOME" => xdg,
                _ => None,
            };
            default_folder(false, |name| variable(name).map(OsString::from))
        };
        assert_eq!(with(Some("/x"), Some("/h")), Some("/x/bartizan".into()));
        assert_eq!(with(Some("x"), Some("/h")), Some("/h/.cache/bartizan".into()));
        assert_eq!(with(None, None), None);
        assert_eq!(default_folder(true, |_| None), Some(ROOTS.into()));
        let of_unit = |name: &str| (name == "CACHE_DIRECTORY").then(|| OsString::from("/var/cache/b"));
        assert_eq!(default_folder(true, of_unit), Some("/var/cache/b".into()));
    }
}
