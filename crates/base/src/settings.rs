// SPDX-License-Identifier: Apache-2.0
//! A tree of settings, flat: dotted keys to scalar values, as `suricata --dump-config` prints them.
//!
//! It is on layer 0 because every crate reads its own section from it (`stream.`,
//! `app-layer.protocols.http.`), while crate `config` reads the YAML file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// Settings by dotted key; list items are numbered from 0 (`outputs.1.eve-log.types.0`).
///
/// Remembers the keys that were read, so that the program can warn once about every key of a user's file that
/// nothing reads ([`SettingsMap::unread`]).
#[derive(Debug, Default)]
pub struct SettingsMap {
    values: BTreeMap<String, String>,
    /// Source of each value, for messages: `suricata.yaml:12:3`, `--set`.
    origins: BTreeMap<String, String>,
    /// Prefix of the keys in the tree of which this is a section.
    prefix: String,
    read: Mutex<BTreeSet<String>>,
}

/// A setting with a malformed value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// Dotted key.
    pub key: String,
    /// The value found.
    pub value: String,
    /// Description of valid values.
    pub expected: &'static str,
}

impl core::fmt::Display for SettingError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "setting `{}`: `{}` is not {}", self.key, self.value, self.expected)
    }
}

impl std::error::Error for SettingError {}

impl Clone for SettingsMap {
    fn clone(&self) -> Self {
        SettingsMap {
            values: self.values.clone(),
            origins: self.origins.clone(),
            prefix: self.prefix.clone(),
            read: Mutex::default(),
        }
    }
}

impl SettingsMap {
    /// No settings: every reader uses its built-in default.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key, replacing an earlier value.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>) {
        let key = key.into();
        self.origins.remove(&key);
        self.values.insert(key, value.into());
    }

    /// Sets a key with the source of its value.
    pub fn set_from(&mut self, key: impl Into<String>, value: impl Into<String>, origin: impl Into<String>) {
        let key = key.into();
        self.origins.insert(key.clone(), origin.into());
        self.values.insert(key, value.into());
    }

    /// The source of a key's value, if it was given.
    #[must_use]
    pub fn origin(&self, key: &str) -> Option<&str> {
        self.origins.get(key).map(String::as_str)
    }

    /// The message for a malformed value, with its source.
    #[must_use]
    pub fn explain(&self, error: &SettingError) -> String {
        match self.origin(&error.key) {
            Some(origin) => format!("{origin}: {error}"),
            None => error.to_string(),
        }
    }

    /// Removes a key and everything below it.
    pub fn prune(&mut self, key: &str) {
        let dotted = format!("{key}.");
        self.values.retain(|k, _| k != key && !k.starts_with(&dotted));
        self.origins.retain(|k, _| k != key && !k.starts_with(&dotted));
    }

    /// The value of exactly this key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.values.get(key)?;
        if let Ok(mut read) = self.read.lock()
            && !read.contains(key)
        {
            read.insert(key.to_owned());
        }
        Some(found.as_str())
    }

    /// Whether the key or anything below it exists.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some() || self.children(key).next().is_some()
    }

    /// A switch: yes/no, true/false, on/off, 1/0.
    ///
    /// # Errors
    /// The value is none of these.
    pub fn bool(&self, key: &str, default: bool) -> Result<bool, SettingError> {
        match self.get(key) {
            None => Ok(default),
            Some(text) => parse_bool(text).ok_or_else(|| self.error(key, text, "yes or no")),
        }
    }

    /// A whole number.
    ///
    /// # Errors
    /// The value is not a whole number that fits.
    pub fn number<T: core::str::FromStr>(&self, key: &str, default: T) -> Result<T, SettingError> {
        match self.get(key) {
            None => Ok(default),
            Some(text) => text.trim().parse().map_err(|_| self.error(key, text, "a whole number in range")),
        }
    }

    /// A size in bytes: a number with an optional unit (`100 KiB`, `32mb`, `1gb`).
    ///
    /// # Errors
    /// The value is not a size.
    pub fn size(&self, key: &str, default: u64) -> Result<u64, SettingError> {
        match self.get(key) {
            None => Ok(default),
            Some(text) => {
                parse_size(text).ok_or_else(|| self.error(key, text, "a size such as 64 KiB or 32mb"))
            }
        }
    }

    /// The direct children of a key, each once, list items in numeric order.
    pub fn children<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let prefix = if key.is_empty() { String::new() } else { format!("{key}.") };
        let mut names: Vec<&'a str> = Vec::new();
        for (full, _) in self.values.range(prefix.clone()..) {
            let Some(rest) = full.strip_prefix(prefix.as_str()) else { break };
            let name = rest.split('.').next().unwrap_or(rest);
            if names.last() != Some(&name) && !names.contains(&name) {
                names.push(name);
            }
        }
        if names.iter().all(|n| n.parse::<u32>().is_ok()) {
            names.sort_by_key(|n| n.parse::<u32>().unwrap_or(u32::MAX));
        }
        names.into_iter()
    }

    /// Every key with its value, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// The settings below `prefix` as settings of their own, with their sources, keys without the prefix.
    /// Errors name keys in full.
    #[must_use]
    pub fn section(&self, prefix: &str) -> SettingsMap {
        let start = format!("{prefix}.");
        let mut section = SettingsMap { prefix: format!("{}{start}", self.prefix), ..SettingsMap::new() };
        for (key, value) in self.values.range(start.clone()..) {
            let Some(rest) = key.strip_prefix(start.as_str()) else { break };
            match self.origins.get(key) {
                Some(origin) => section.set_from(rest, value.clone(), origin.clone()),
                None => section.set(rest, value.clone()),
            }
        }
        section
    }

    /// Keys that were not read so far. A key counts as read if one below it was read (`outputs.1`, the name
    /// of an item).
    #[must_use]
    pub fn unread(&self) -> Vec<String> {
        let read = self.read.lock().map(|r| r.clone()).unwrap_or_default();
        let below = |key: &str| {
            let dotted = format!("{key}.");
            read.range(dotted.clone()..).next().is_some_and(|found| found.starts_with(&dotted))
        };
        self.values.keys().filter(|k| !read.contains(*k) && !below(k)).cloned().collect()
    }

    /// Marks all keys below `prefix` as read: for a section that [`SettingsMap::section`] takes over, or that
    /// does not concern this program.
    pub fn mark_read(&self, prefix: &str) {
        if let Ok(mut read) = self.read.lock() {
            let dotted = format!("{prefix}.");
            for key in self.values.keys() {
                if key == prefix || key.starts_with(&dotted) {
                    read.insert(key.clone());
                }
            }
        }
    }

    /// Marks keys as read that were read in a copy with additional settings.
    pub fn mark_read_as(&self, copy: &SettingsMap) {
        if let (Ok(mut own), Ok(read)) = (self.read.lock(), copy.read.lock()) {
            own.extend(read.iter().filter(|key| self.values.contains_key(*key)).cloned());
        }
    }

    /// Marks keys as read that were read in a section of these settings.
    pub fn mark_section_read(&self, section: &SettingsMap) {
        let Some(prefix) = section.prefix.strip_prefix(self.prefix.as_str()) else { return };
        if let (Ok(mut own), Ok(read)) = (self.read.lock(), section.read.lock()) {
            own.extend(read.iter().map(|key| format!("{prefix}{key}")));
        }
    }

    /// The error for a malformed value.
    #[must_use]
    pub fn error(&self, key: &str, value: &str, expected: &'static str) -> SettingError {
        SettingError { key: format!("{}{key}", self.prefix), value: value.to_owned(), expected }
    }
}

/// yes/no, true/false, on/off, 1/0, without regard to case.
#[must_use]
pub fn parse_bool(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "yes" | "true" | "on" | "1" => Some(true),
        "no" | "false" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// Bytes of a number with an optional unit of 1024: `kb`, `KiB`, `k`, `mb`, `MiB`, `gb`, ...
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let fraction: f64 = number.parse().ok()?;
    Some((fraction * factor as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_listed_once_and_in_order() {
        let mut s = SettingsMap::new();
        for i in [10, 2, 0] {
            s.set(format!("outputs.{i}.eve-log.enabled"), "yes");
        }
        s.set("outputs.2.eve-log.filename", "x");
        s.set("outputs-more", "1");
        assert_eq!(s.children("outputs").collect::<Vec<_>>(), ["0", "2", "10"]);
        assert_eq!(s.children("").collect::<Vec<_>>(), ["outputs-more", "outputs"]);
    }

    #[test]
    fn sizes_and_switches() {
        assert_eq!(parse_size("100 KiB"), Some(102_400));
        assert_eq!(parse_size("32mb"), Some(32 << 20));
        assert_eq!(parse_size("1.5k"), Some(1536));
        assert_eq!(parse_size("many"), None);
        assert_eq!(parse_bool("Yes"), Some(true));
        assert_eq!(parse_bool("2"), None);
    }

    #[test]
    fn errors_say_where_the_value_comes_from() {
        let mut s = SettingsMap::new();
        s.set_from("a.b.c", "maybe", "x.yaml:3:4");
        s.set("a.b.d", "maybe");
        let error = s.section("a").section("b").bool("c", true).unwrap_err();
        assert_eq!(s.explain(&error), "x.yaml:3:4: setting `a.b.c`: `maybe` is not yes or no");
        let error = s.clone().bool("a.b.d", true).unwrap_err();
        assert_eq!(s.explain(&error), "setting `a.b.d`: `maybe` is not yes or no");
        // A new value has another source.
        s.set("a.b.c", "never");
        assert_eq!(s.origin("a.b.c"), None);
    }

    #[test]
    fn what_is_read_of_a_section_is_read() {
        let mut s = SettingsMap::new();
        s.set_from("a.b.c", "1", "x.yaml:1:1");
        s.set("a.b.d", "1");
        let outer = s.section("a");
        let inner = outer.section("b");
        assert_eq!((inner.get("c"), inner.origin("c")), (Some("1"), Some("x.yaml:1:1")));
        outer.mark_section_read(&inner);
        s.mark_section_read(&outer);
        assert_eq!(s.unread(), ["a.b.d"]);
    }

    #[test]
    fn unread_keys_are_known() {
        let mut s = SettingsMap::new();
        s.set("a.b", "1");
        s.set("a.c", "maybe");
        assert_eq!(s.number("a.b", 0), Ok(1));
        assert_eq!(s.unread(), ["a.c"]);
        assert!(s.bool("a.c", true).is_err());
        assert!(s.unread().is_empty());
    }
}
