// SPDX-License-Identifier: Apache-2.0
//! Finds and reads files that rules name. This is not a keyword itself.
//!
//! Only this module does input while rules are loaded; nothing of it runs while packets are inspected.

use crate::compile::builder::Environment;
use crate::compile::keyword::{KeywordError, RefusalCode};
use crate::state::dataset::ListFile;
use std::path::{Path, PathBuf};

/// The order of folders in which a relative file name is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathSearchOrder {
    /// The folder of the rule file, then `default-rule-path`, then the working folder (`dataset`).
    RuleFolderFirst,
    /// `default-rule-path` or the working folder, then the folder of the rule file (`filemd5`).
    SettingsFirst,
}

/// The paths where a file may be.
pub(crate) fn places(environment: &Environment<'_>, name: &str, order: PathSearchOrder) -> Vec<PathBuf> {
    // Called for every kind of file: its content may differ at the next load.
    let folder = environment.rule_folder();
    let name = Path::new(name);
    if name.is_absolute() {
        return vec![name.to_owned()];
    }
    let beside = folder.join(name);
    let by_settings =
        environment.settings.get("default-rule-path").map(|folder| Path::new(folder).join(name));
    let mut places: Vec<PathBuf> = by_settings.into_iter().chain([name.to_owned()]).collect();
    match order {
        PathSearchOrder::RuleFolderFirst => places.insert(0, beside),
        PathSearchOrder::SettingsFirst => places.push(beside),
    }
    places.dedup();
    places
}

/// The first of the paths that exists.
pub(crate) fn find(
    environment: &Environment<'_>,
    name: &str,
    order: PathSearchOrder,
) -> Result<PathBuf, KeywordError> {
    let places = places(environment, name, order);
    places.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        let all: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
        KeywordError::new(RefusalCode::MissingFile, format!("there is no file `{name}`"))
            .help(format!("looked for at {}", all.join(", ")))
    })
}

/// Reads a file that a rule names; also returns its path.
pub(crate) fn read(
    environment: &Environment<'_>,
    name: &str,
    order: PathSearchOrder,
) -> Result<(PathBuf, Vec<u8>), KeywordError> {
    let path = find(environment, name, order)?;
    match std::fs::read(&path) {
        Ok(bytes) => {
            environment.outside().note_read(ListFile::new(&path, &bytes));
            Ok((path, bytes))
        }
        Err(error) => Err(KeywordError::new(
            RefusalCode::MissingFile,
            format!("cannot read {}: {error}", path.display()),
        )),
    }
}
