// SPDX-License-Identifier: Apache-2.0
//! Reads an existing suricata.yaml into [`SettingsMap`].
//!
//! The result is that of `suricata --dump-config`: dotted keys, numbered list items, with the single key of a
//! mapping as the item's value (`outputs.1 = eve-log`). Suricata's shipped defaults apply only without a file
//! ([`shipped`]).

mod check;
mod effects;
mod known;
mod unsupported;

pub use check::check;
pub use effects::{SettingEffect, declared_effects, effect_of};
pub use known::{is_known, known_settings, nearest_known};
pub use unsupported::{UnsupportedSetting, is_off, unsupported_rows, unsupported_settings};

use crate::yaml::{self, Node, Value, YamlError};
use bartizan_base::SettingsMap;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A configuration that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SuricataConfigError {
    /// The file cannot be opened or read.
    #[error(
        "cannot read the Suricata settings {path}: {source}; check the path (includes are looked for beside the file that \
         includes them) and its permissions"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not YAML.
    #[error("{path}: {source}")]
    Yaml {
        /// The file.
        path: PathBuf,
        /// The error with its position.
        source: YamlError,
    },
    /// The file is not a mapping at the top.
    #[error("{path}: expected `key: value` lines at the top level, as in suricata.yaml")]
    NotAMapping {
        /// The file.
        path: PathBuf,
    },
    /// Includes are nested too deeply, or form a cycle.
    #[error("{path}: includes nest deeper than {INCLUDE_DEPTH_MAX} levels; does a file include itself?")]
    IncludeDepth {
        /// The file.
        path: PathBuf,
    },
    /// A `--set` without `=`.
    #[error("`--set {given}`: expected KEY=VALUE, for example `--set stream.midstream=true`")]
    Override {
        /// The text given.
        given: String,
    },
}

/// Deepest chain of includes.
pub(crate) const INCLUDE_DEPTH_MAX: usize = 16;
/// Most notes that are kept of one configuration.
pub(crate) const NOTES_MAX: usize = 20;

/// The settings of Suricata's shipped configuration.
#[must_use]
pub fn shipped() -> SettingsMap {
    let mut settings = SettingsMap::new();
    for line in include_str!("shipped.conf").lines() {
        if let Some((key, value)) = line.split_once('=')
            && !line.starts_with('#')
        {
            settings.set(key.trim(), value.trim());
        }
    }
    settings
}

/// Reads a suricata.yaml with its includes. Relative includes are searched beside the including file, then in
/// the working folder.
///
/// # Errors
/// A file cannot be read or is not YAML; see [`SuricataConfigError`].
pub fn load(path: &Path) -> Result<SettingsMap, SuricataConfigError> {
    load_noting(path, &mut ConfigNotes::default())
}

/// Receives the name and bytes of each file that is read.
pub type FileObserver<'n> = &'n mut dyn FnMut(&Path, &[u8]);

/// Notes taken while a configuration is read.
#[derive(Default)]
pub struct ConfigNotes<'n> {
    /// Oddities that do not prevent reading.
    pub odd: Vec<String>,
    /// Called with each file that is read, and its bytes.
    pub on_file: Option<FileObserver<'n>>,
}

impl ConfigNotes<'_> {
    fn read(&mut self, path: &Path, bytes: &[u8]) {
        if let Some(on_file) = &mut self.on_file {
            on_file(path, bytes);
        }
    }
}

/// As [`load`], with notes.
///
/// # Errors
/// As [`load`].
pub fn load_noting(path: &Path, notes: &mut ConfigNotes<'_>) -> Result<SettingsMap, SuricataConfigError> {
    let mut settings = SettingsMap::new();
    load_into(&mut settings, path, "", 0, notes)?;
    Ok(settings)
}

/// Applies `KEY=VALUE` overrides, as Suricata's `--set` does.
///
/// # Errors
/// An override has no `=`.
pub fn apply_overrides<S: AsRef<str>>(
    settings: &mut SettingsMap,
    overrides: &[S],
) -> Result<(), SuricataConfigError> {
    for given in overrides {
        let given = given.as_ref();
        let Some((key, value)) = given.split_once('=').filter(|(k, _)| !k.trim().is_empty()) else {
            return Err(SuricataConfigError::Override { given: given.to_owned() });
        };
        settings.set_from(key.trim(), value, "--set");
    }
    Ok(())
}

fn load_into(
    settings: &mut SettingsMap,
    path: &Path,
    prefix: &str,
    depth: usize,
    notes: &mut ConfigNotes<'_>,
) -> Result<(), SuricataConfigError> {
    if depth > INCLUDE_DEPTH_MAX {
        return Err(SuricataConfigError::IncludeDepth { path: path.to_owned() });
    }
    let bytes =
        std::fs::read(path).map_err(|source| SuricataConfigError::Read { path: path.to_owned(), source })?;
    notes.read(path, &bytes);
    let text = String::from_utf8_lossy(&bytes);
    let root =
        yaml::parse(&text).map_err(|source| SuricataConfigError::Yaml { path: path.to_owned(), source })?;
    if !matches!(root.value, Value::Mapping(_)) {
        return Err(SuricataConfigError::NotAMapping { path: path.to_owned() });
    }
    flatten(settings, &root, prefix, SettingsFile { path, depth }, notes)
}

/// A file with settings that is being read.
#[derive(Clone, Copy)]
struct SettingsFile<'f> {
    path: &'f Path,
    /// Number of files that include it, one inside the other.
    depth: usize,
}

fn flatten(
    settings: &mut SettingsMap,
    node: &Node,
    prefix: &str,
    file: SettingsFile<'_>,
    notes: &mut ConfigNotes<'_>,
) -> Result<(), SuricataConfigError> {
    if node.tag.as_deref() == Some("include")
        && let Some(target) = node.as_str()
    {
        return load_into(settings, &resolve(file.path, target), prefix, file.depth + 1, notes);
    }
    match &node.value {
        Value::Scalar { text, .. } => {
            if !node.is_null() {
                let (line, column) = (node.position.line, node.position.column);
                settings.set_from(prefix, text.clone(), format!("{}:{line}:{column}", file.path.display()));
            }
        }
        Value::Sequence(items) => {
            for (index, item) in items.iter().enumerate() {
                let key = join(prefix, &index.to_string());
                // An item that is a mapping has its first key as value: `outputs.1 = eve-log`.
                if let Value::Mapping(pairs) = &item.value
                    && let Some((first, _)) = pairs.first()
                    && let Some(name) = first.as_str()
                {
                    let (line, column) = (first.position.line, first.position.column);
                    settings.set_from(key.clone(), name, format!("{}:{line}:{column}", file.path.display()));
                }
                flatten(settings, item, &key, file, notes)?;
            }
        }
        Value::Mapping(pairs) => {
            let mut seen = HashSet::new();
            for (node, value) in pairs {
                let Some(key) = node.as_str() else { continue };
                if key == "include" {
                    include(settings, value, prefix, file, notes)?;
                    continue;
                }
                let full = join(prefix, &dashed(prefix, key));
                if !seen.insert(full.clone()) && notes.odd.len() < NOTES_MAX {
                    notes.odd.push(format!(
                        "{}:{}:{}: the key `{full}` occurs again; its earlier value is dropped, as Suricata does",
                        file.path.display(),
                        node.position.line,
                        node.position.column
                    ));
                }
                // A repeated key replaces its whole earlier value, as in Suricata ("redefined").
                settings.prune(&full);
                flatten(settings, value, &full, file, notes)?;
            }
        }
    }
    Ok(())
}

fn include(
    settings: &mut SettingsMap,
    value: &Node,
    prefix: &str,
    file: SettingsFile<'_>,
    notes: &mut ConfigNotes<'_>,
) -> Result<(), SuricataConfigError> {
    match &value.value {
        Value::Sequence(items) => {
            items.iter().try_for_each(|item| include(settings, item, prefix, file, notes))
        }
        _ => match value.as_str() {
            Some(target) => load_into(settings, &resolve(file.path, target), prefix, file.depth + 1, notes),
            None => Ok(()),
        },
    }
}

/// Old spellings: Suricata reads `checksum_validation` as `checksum-validation`, but leaves names of
/// variables unchanged.
fn dashed(prefix: &str, key: &str) -> String {
    if prefix.starts_with("vars.") || prefix.starts_with("multi-detect") || prefix.starts_with("datasets") {
        key.to_owned()
    } else {
        key.replace('_', "-")
    }
}

fn join(prefix: &str, key: &str) -> String {
    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") }
}

fn resolve(file: &Path, target: &str) -> PathBuf {
    let target = Path::new(target);
    if target.is_absolute() {
        return target.to_owned();
    }
    let beside = file.parent().unwrap_or(Path::new("")).join(target);
    if beside.exists() { beside } else { target.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> SettingsMap {
        let mut settings = SettingsMap::new();
        let root = yaml::parse(text).expect("yaml");
        flatten(
            &mut settings,
            &root,
            "",
            SettingsFile { path: Path::new("test.yaml"), depth: 0 },
            &mut ConfigNotes::default(),
        )
        .expect("flat");
        settings
    }

    #[test]
    fn lists_are_numbered_and_items_named() {
        let s = read(
            "outputs:\n  - fast:\n      enabled: no\n  - eve-log:\n      enabled: yes\n      types: [alert, {http: {extended: yes}}]\n",
        );
        assert_eq!(s.get("outputs.1"), Some("eve-log"));
        assert_eq!(s.get("outputs.1.eve-log.types.0"), Some("alert"));
        assert_eq!(s.get("outputs.1.eve-log.types.1"), Some("http"));
        assert_eq!(s.get("outputs.1.eve-log.types.1.http.extended"), Some("yes"));
    }

    #[test]
    fn underscores_are_dashes_but_not_in_variables() {
        let s = read("stream:\n  checksum_validation: no\nvars:\n  address-groups:\n    HOME_NET: any\n");
        assert_eq!(s.get("stream.checksum-validation"), Some("no"));
        assert_eq!(s.get("vars.address-groups.HOME_NET"), Some("any"));
    }

    #[test]
    fn a_key_that_comes_again_replaces_the_first() {
        let s = read("a:\n  b: 1\n  c: 2\na:\n  c: 3\n");
        assert_eq!((s.get("a.b"), s.get("a.c")), (None, Some("3")));
    }

    #[test]
    fn the_shipped_settings_are_there() {
        let s = shipped();
        assert_eq!(s.get("outputs.1.eve-log.types.2"), Some("anomaly"));
        assert_eq!(s.size("stream.reassembly.depth", 0), Ok(1 << 20));
    }

    #[test]
    fn includes_are_found_beside_the_file_and_loops_end() {
        let dir = std::env::temp_dir().join(format!("bartizan-config-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("dir");
        std::fs::write(dir.join("a.yaml"), "x: 1\ninclude: b.yaml\nv: !include c.yaml\n").expect("a");
        std::fs::write(dir.join("b.yaml"), "y: 2\n").expect("b");
        std::fs::write(dir.join("c.yaml"), "z: 3\n").expect("c");
        std::fs::write(dir.join("loop.yaml"), "include: loop.yaml\n").expect("loop");
        let s = load(&dir.join("a.yaml")).expect("loaded");
        assert_eq!((s.get("x"), s.get("y"), s.get("v.z")), (Some("1"), Some("2"), Some("3")));
        assert!(matches!(load(&dir.join("loop.yaml")), Err(SuricataConfigError::IncludeDepth { .. })));
        std::fs::remove_dir_all(&dir).expect("clean");
    }
}
