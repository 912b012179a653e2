// SPDX-License-Identifier: Apache-2.0
//! Sets of values that rules look up and change (`dataset`, `datarep`), and reputations of addresses
//! (`iprep`).
//!
//! Sets outlive generations: values that rules add stay when rules are loaded again, except in sets that only
//! load a file, which are read again ([`Datasets::forget_loaded`]). Each set has a memory limit; values
//! beyond it are not added, and counted. Semantics: Suricata 8's user guide, "Datasets".
//!
//! Rules and commands of an operator add and remove values.

mod load;
mod reputation;
mod skipped;

pub use load::Format;
pub use reputation::{Reputation, ReputationError};
pub use skipped::{ENTRIES_SHOWN, SkippedEntries, SkippedEntry};

use bartizan_applayer::content::base64;
use bartizan_base::{SettingError, SettingsMap, parse_size};
use bartizan_events::output::Rights;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

/// Default limit of a set's memory, in bytes, if neither rule nor settings give one.
pub const MEMCAP_DEFAULT: u64 = 100 << 20;

/// Memory of a value beside its own bytes, in bytes: table entry, allocation.
const COST_PER_VALUE: u64 = 64;

/// The type of a set's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetType {
    /// Any bytes.
    String,
    /// MD5 digests.
    Md5,
    /// SHA-256 digests.
    Sha256,
    /// IPv4 addresses.
    Ipv4,
    /// Addresses of both versions; an IPv4 address and its IPv4-mapped IPv6 address are one value.
    Ip,
}

impl DatasetType {
    /// The type by its name in rules and settings.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "string" => DatasetType::String,
            "md5" => DatasetType::Md5,
            "sha256" => DatasetType::Sha256,
            "ipv4" => DatasetType::Ipv4,
            "ip" | "ipv6" => DatasetType::Ip,
            _ => return None,
        })
    }

    /// The key under which the set keeps bytes of a buffer; `None` for bytes that cannot have this type.
    #[must_use]
    pub fn key(self, data: &[u8]) -> Option<DatasetKey<'_>> {
        match self {
            DatasetType::String => (!data.is_empty()).then_some(DatasetKey::Bytes(data)),
            DatasetType::Md5 => (data.len() == 16).then_some(DatasetKey::Bytes(data)),
            DatasetType::Sha256 => (data.len() == 32).then_some(DatasetKey::Bytes(data)),
            DatasetType::Ipv4 => (data.len() == 4).then_some(DatasetKey::Bytes(data)),
            DatasetType::Ip => {
                let address = match data {
                    [a, b, c, d] => Ipv4Addr::new(*a, *b, *c, *d).to_ipv6_mapped(),
                    _ => Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?),
                };
                Some(DatasetKey::Address(address.octets()))
            }
        }
    }

    /// Parses a value as files write it, strings in base64.
    ///
    /// # Errors
    /// The text is no such value; the error names the expected form.
    pub fn read(self, text: &str) -> Result<Vec<u8>, &'static str> {
        let wanted = match self {
            DatasetType::String => "base64",
            DatasetType::Md5 => "an MD5 digest in hex",
            DatasetType::Sha256 => "a SHA-256 digest in hex",
            DatasetType::Ipv4 => "IPv4 address",
            DatasetType::Ip => "IP address",
        };
        let mut decoded = Vec::new();
        let bytes = match self {
            DatasetType::String => {
                let whole = base64::decode(text.as_bytes(), base64::Base64Mode::Strict, &mut decoded);
                whole.then_some(decoded)
            }
            _ => self.parse(text),
        };
        bytes.filter(|bytes| self.key(bytes).is_some()).ok_or(wanted)
    }

    /// Parses a value as files write it, except base64.
    fn parse(self, text: &str) -> Option<Vec<u8>> {
        match self {
            DatasetType::String => Some(text.as_bytes().to_vec()),
            DatasetType::Md5 | DatasetType::Sha256 => crate::encoding::hex::from_hex(text.as_bytes()),
            DatasetType::Ipv4 => Some(text.parse::<Ipv4Addr>().ok()?.octets().to_vec()),
            DatasetType::Ip => match text.parse::<IpAddr>().ok()? {
                IpAddr::V4(v4) => Some(v4.octets().to_vec()),
                IpAddr::V6(v6) => Some(v6.octets().to_vec()),
            },
        }
    }

    /// A value as files write it.
    fn print(self, value: &[u8]) -> String {
        match self {
            DatasetType::String => bartizan_applayer::content::base64::encode(value),
            DatasetType::Md5 | DatasetType::Sha256 => value.iter().map(|b| format!("{b:02x}")).collect(),
            DatasetType::Ipv4 => {
                <[u8; 4]>::try_from(value).map(|a| Ipv4Addr::from(a).to_string()).unwrap_or_default()
            }
            DatasetType::Ip => {
                let address =
                    <[u8; 16]>::try_from(value).map(Ipv6Addr::from).unwrap_or(Ipv6Addr::UNSPECIFIED);
                address.to_canonical().to_string()
            }
        }
    }
}

/// The key of a value; see [`DatasetType::key`].
pub enum DatasetKey<'d> {
    /// As in the buffer.
    Bytes(&'d [u8]),
    /// An address in its IPv6 form.
    Address([u8; 16]),
}

impl DatasetKey<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            DatasetKey::Bytes(bytes) => bytes,
            DatasetKey::Address(address) => address,
        }
    }
}

/// The reason why a set is not available.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// Neither rule nor settings name the type of the values.
    #[error("the dataset `{0}` has no type; write `type string`, `md5`, `sha256`, `ipv4` or `ip`")]
    NoType(String),
    /// The set exists with another type.
    #[error("the dataset `{0}` exists with another type")]
    OtherType(String),
    /// The set exists with another file.
    #[error("the dataset `{name}` exists with the file {there}, not {asked}")]
    OtherFile {
        /// Name of the set.
        name: String,
        /// The file of the existing set.
        there: String,
        /// The requested file.
        asked: String,
    },
    /// The set's file cannot be read.
    #[error("cannot read {path}: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The set's file has an invalid value.
    #[error("{path}, line {line}: {what}")]
    BadValue {
        /// The file.
        path: PathBuf,
        /// Line from 1.
        line: usize,
        /// Description of the error.
        what: &'static str,
    },
    /// The set's file needs more memory than the set's limit.
    #[error("{path} does not fit into the dataset's memcap of {memcap} bytes; raise `memcap`")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit, in bytes.
        memcap: u64,
    },
    /// A setting of the set cannot be understood.
    #[error(transparent)]
    Setting(#[from] SettingError),
}

#[derive(Debug, Default)]
struct Values {
    /// Value to reputation (0 in sets without).
    table: HashMap<Box<[u8]>, u16>,
    /// JSON contexts of values, from JSON files.
    contexts: HashMap<Box<[u8]>, Arc<[u8]>>,
    bytes: u64,
}

/// One set of values.
#[derive(Debug)]
pub struct Dataset {
    name: String,
    kind: DatasetType,
    memcap: u64,
    loaded_from: Option<PathBuf>,
    saved_to: Option<PathBuf>,
    values: RwLock<Values>,
    refused: AtomicU64,
    /// Rules may change the set.
    changes: AtomicBool,
}

impl Dataset {
    /// Records that a rule adds or removes values: from now on workers over captures access the set in the
    /// order of the packets.
    pub fn note_changes(&self) {
        self.changes.store(true, Ordering::Relaxed);
    }

    fn wait_for_turn(&self) {
        if self.changes.load(Ordering::Relaxed) {
            bartizan_base::turns::wait_for_turn();
        }
    }

    /// Name of the set.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Type of the values.
    #[must_use]
    pub const fn kind(&self) -> DatasetType {
        self.kind
    }

    /// Removes all values.
    pub fn clear(&self) {
        self.wait_for_turn();
        // The old values are freed after the lock is released.
        let old = self.values.write().map(|mut values| std::mem::take(&mut *values));
        drop(old);
    }

    /// The reputation of a value (0 in sets without reputations); `None` when the set lacks the value.
    #[must_use]
    pub fn get(&self, data: &[u8]) -> Option<u16> {
        let key = self.kind.key(data)?;
        self.wait_for_turn();
        self.values.read().ok()?.table.get(key.bytes()).copied()
    }

    /// JSON context of a value: its object in the set's JSON file.
    #[must_use]
    pub fn context(&self, data: &[u8]) -> Option<Arc<[u8]>> {
        let key = self.kind.key(data)?;
        self.values.read().ok()?.contexts.get(key.bytes()).cloned()
    }

    /// Stores the JSON context of a value of the set.
    fn set_context(&self, data: &[u8], json: &[u8]) {
        let Some(key) = self.kind.key(data) else { return };
        let Ok(mut values) = self.values.write() else { return };
        let cost = COST_PER_VALUE.saturating_add((key.bytes().len() + json.len()) as u64);
        if values.bytes.saturating_add(cost) > self.memcap {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        values.bytes = values.bytes.saturating_add(cost);
        values.contexts.insert(key.bytes().into(), json.into());
    }

    /// Adds a value. Returns whether it is new.
    pub fn add(&self, data: &[u8]) -> bool {
        self.wait_for_turn();
        self.add_with(data, 0)
    }

    fn add_with(&self, data: &[u8], reputation: u16) -> bool {
        let Some(key) = self.kind.key(data) else { return false };
        let Ok(mut values) = self.values.write() else { return false };
        if values.table.contains_key(key.bytes()) {
            return false;
        }
        let cost = COST_PER_VALUE.saturating_add(key.bytes().len() as u64);
        if values.bytes.saturating_add(cost) > self.memcap {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        values.bytes = values.bytes.saturating_add(cost);
        values.table.insert(key.bytes().into(), reputation);
        true
    }

    /// Removes a value. Returns whether the set had it.
    pub fn remove(&self, data: &[u8]) -> bool {
        let Some(key) = self.kind.key(data) else { return false };
        self.wait_for_turn();
        let Ok(mut values) = self.values.write() else { return false };
        let there = values.table.remove(key.bytes()).is_some();
        if there {
            let cost = COST_PER_VALUE.saturating_add(key.bytes().len() as u64);
            values.bytes = values.bytes.saturating_sub(cost);
        }
        there
    }

    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.read().map_or(0, |values| values.table.len())
    }

    /// Whether the set has no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory of the values, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.values.read().map_or(0, |values| values.bytes)
    }

    /// Number of values that were not added because of the memory limit.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn save(&self, path: &Path, rights: &Rights) -> std::io::Result<()> {
        let mut lines: Vec<String> = match self.values.read() {
            Ok(values) => values.table.keys().map(|value| self.kind.print(value)).collect(),
            Err(_) => return Ok(()),
        };
        lines.sort_unstable();
        let mut text = lines.join("\n");
        if !text.is_empty() {
            text.push('\n');
        }
        rights.write(path, text.as_bytes())
    }
}

/// Properties of a set, as a rule or the settings name them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatasetSpec {
    /// Name of the set.
    pub name: String,
    /// Type of the values.
    pub kind: Option<DatasetType>,
    /// File to read; it must exist unless it is also `save`.
    pub load: Option<PathBuf>,
    /// File to write when the program ends.
    pub save: Option<PathBuf>,
    /// Limit of the set's memory, in bytes.
    pub memcap: Option<u64>,
    /// Format of the file.
    pub format: Format,
}

/// All sets, by name.
#[derive(Debug, Default)]
pub struct Datasets {
    sets: Mutex<HashMap<String, Arc<Dataset>>>,
    /// Entries that were left out of files, until [`Datasets::take_skipped`].
    skipped: Mutex<SkippedEntries>,
    /// Files that were read, until [`Datasets::take_read`].
    read: Mutex<Vec<ListFile>>,
}

/// A list that was read from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListFile {
    /// The file.
    pub path: PathBuf,
    /// SHA-256 of its bytes.
    pub sha256: [u8; 32],
}

impl ListFile {
    /// The entry for a file with these bytes.
    #[must_use]
    pub fn new(path: &Path, bytes: &[u8]) -> Self {
        ListFile { path: path.to_owned(), sha256: Sha256::digest(bytes).into() }
    }
}

impl Datasets {
    /// The set of a request; makes it if it does not exist. Sets in the settings (`datasets.NAME.type`) need
    /// no more than their name.
    ///
    /// # Errors
    /// The set has no type or differs from the existing one; its file cannot be read or understood, or is too
    /// large.
    pub fn get(&self, settings: &SettingsMap, request: &DatasetSpec) -> Result<Arc<Dataset>, DatasetError> {
        let mut sets = match self.sets.lock() {
            Ok(sets) => sets,
            // Another thread panicked while it held the lock; the table itself is intact.
            Err(poisoned) => poisoned.into_inner(),
        };
        if let Some(set) = sets.get(&request.name) {
            agree(set, request)?;
            return Ok(Arc::clone(set));
        }
        let merged = with_settings(settings, request)?;
        let mut skipped = SkippedEntries::default();
        let (set, read) = make(&merged, &mut skipped)?;
        let set = Arc::new(set);
        self.note_skipped(skipped);
        read.into_iter().for_each(|list| self.note_read(list));
        sets.insert(request.name.clone(), Arc::clone(&set));
        Ok(set)
    }

    /// Stores entries that were left out of a list until they are reported.
    pub(in crate::state) fn note_skipped(&self, entries: SkippedEntries) {
        if let Ok(mut skipped) = self.skipped.lock() {
            skipped.append(entries);
        }
    }

    /// Returns and clears the entries that were left out of lists since the last call.
    pub(in crate::state) fn take_skipped(&self) -> SkippedEntries {
        self.skipped.lock().map(|mut skipped| std::mem::take(&mut *skipped)).unwrap_or_default()
    }

    /// Records that a list was read.
    pub(in crate::state) fn note_read(&self, list: ListFile) {
        if let Ok(mut read) = self.read.lock() {
            read.push(list);
        }
    }

    /// Returns and clears the lists that were read since the last call.
    pub(in crate::state) fn take_read(&self) -> Vec<ListFile> {
        self.read.lock().map(|mut read| std::mem::take(&mut *read)).unwrap_or_default()
    }

    /// Prepares a load of rules: sets that only load a file are read again when a rule names them. Running
    /// rules keep their sets.
    pub fn forget_loaded(&self) {
        if let Ok(mut sets) = self.sets.lock() {
            sets.retain(|_, set| set.loaded_from.is_none() || set.saved_to.is_some());
        }
    }

    /// Writes the sets that have a `save` file. Returns the files that could not be written, with the reason.
    pub fn save(&self, rights: &Rights) -> Vec<(PathBuf, std::io::Error)> {
        let sets: Vec<Arc<Dataset>> =
            self.sets.lock().map(|s| s.values().cloned().collect()).unwrap_or_default();
        sets.iter()
            .filter_map(|set| {
                let path = set.saved_to.as_ref()?;
                set.save(path, rights).err().map(|error| (path.clone(), error))
            })
            .collect()
    }

    /// The set of this name, if it exists.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<Arc<Dataset>> {
        self.sets.lock().ok()?.get(name).cloned()
    }

    /// All sets, for counters.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Dataset>> {
        self.sets.lock().map(|sets| sets.values().cloned().collect()).unwrap_or_default()
    }
}

fn agree(set: &Dataset, request: &DatasetSpec) -> Result<(), DatasetError> {
    if request.kind.is_some_and(|kind| kind != set.kind) {
        return Err(DatasetError::OtherType(request.name.clone()));
    }
    for (asked, there) in [(&request.load, &set.loaded_from), (&request.save, &set.saved_to)] {
        if let Some(asked) = asked
            && there.as_ref() != Some(asked)
        {
            let there = there.as_ref().map_or("none".to_owned(), |p| p.display().to_string());
            let asked = asked.display().to_string();
            return Err(DatasetError::OtherFile { name: request.name.clone(), there, asked });
        }
    }
    Ok(())
}

/// Completes a request by the settings of its set (`datasets.NAME.*`).
fn with_settings(settings: &SettingsMap, request: &DatasetSpec) -> Result<DatasetSpec, DatasetError> {
    let mut merged = request.clone();
    let base = format!("datasets.{}", request.name);
    let wrong = |key: String, value: &str, expected| SettingError { key, value: value.to_owned(), expected };
    let of = |part: &str| settings.get(&format!("{base}.{part}"));
    if let (None, Some(name)) = (merged.kind, of("type")) {
        let kind = DatasetType::from_name(name);
        merged.kind =
            Some(kind.ok_or_else(|| wrong(format!("{base}.type"), name, "string, md5, sha256, ipv4 or ip"))?);
    }
    let path = |name: Option<&str>| name.map(PathBuf::from);
    let state = path(of("state"));
    if merged.load.is_none() && merged.save.is_none() {
        merged.load = path(of("load")).or_else(|| state.clone());
        merged.save = path(of("save")).or(state);
    }
    if merged.memcap.is_none() {
        for key in [format!("{base}.memcap"), "datasets.defaults.memcap".to_owned()] {
            if let (None, Some(text)) = (merged.memcap, settings.get(&key)) {
                let size = parse_size(text);
                merged.memcap = Some(size.ok_or_else(|| wrong(key, text, "a size such as 100mb"))?);
            }
        }
    }
    Ok(merged)
}

/// Makes a set. A file that the set is also saved to is the program's own state, not a list from an operator.
fn make(
    request: &DatasetSpec,
    skipped: &mut SkippedEntries,
) -> Result<(Dataset, Option<ListFile>), DatasetError> {
    let mut read = None;
    let kind = request.kind.ok_or_else(|| DatasetError::NoType(request.name.clone()))?;
    let set = Dataset {
        name: request.name.clone(),
        kind,
        memcap: request.memcap.filter(|m| *m != 0).unwrap_or(MEMCAP_DEFAULT),
        loaded_from: request.load.clone(),
        saved_to: request.save.clone(),
        values: RwLock::default(),
        refused: AtomicU64::new(0),
        changes: AtomicBool::new(false),
    };
    if let Some(path) = &request.load {
        match std::fs::read(path) {
            Ok(bytes) => {
                load::load(&set, path, &bytes, &request.format, skipped)?;
                read = request.save.is_none().then(|| ListFile::new(path, &bytes));
            }
            // State that was never saved is empty.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && request.save.is_some() => {}
            Err(error) => return Err(DatasetError::Unreadable { path: path.clone(), error }),
        }
        if set.refused() > 0 {
            return Err(DatasetError::TooLarge { path: path.clone(), memcap: set.memcap });
        }
    }
    Ok((set, read))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &str, kind: DatasetType) -> DatasetSpec {
        DatasetSpec { name: name.to_owned(), kind: Some(kind), ..DatasetSpec::default() }
    }

    #[test]
    fn add_get_remove() {
        let sets = Datasets::default();
        let set = sets.get(&SettingsMap::new(), &request("seen", DatasetType::String)).unwrap();
        assert!(set.add(b"a") && !set.add(b"a") && !set.add(b""));
        assert_eq!((set.get(b"a"), set.get(b"b"), set.len(), set.bytes()), (Some(0), None, 1, 65));
        // The same name is the same set; another type is an error.
        let again = sets
            .get(&SettingsMap::new(), &DatasetSpec { kind: None, ..request("seen", DatasetType::String) })
            .unwrap();
        assert!(Arc::ptr_eq(&set, &again));
        assert!(matches!(
            sets.get(&SettingsMap::new(), &request("seen", DatasetType::Md5)),
            Err(DatasetError::OtherType(_))
        ));
        assert!(set.remove(b"a") && !set.remove(b"a") && set.is_empty());
        assert_eq!(set.bytes(), 0);
        let untyped = DatasetSpec { kind: None, ..request("other", DatasetType::String) };
        assert!(matches!(sets.get(&SettingsMap::new(), &untyped), Err(DatasetError::NoType(_))));
    }

    #[test]
    fn values_are_read_as_files_write_them_and_go_together() {
        for (kind, text, bytes) in [
            (DatasetType::String, "YQ==", Some(&b"a"[..])),
            (DatasetType::String, "a", None),
            (DatasetType::String, "", None),
            (
                DatasetType::Md5,
                "00112233445566778899aabbccddeeff",
                Some(b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff"),
            ),
            (DatasetType::Md5, "0011", None),
            (DatasetType::Ipv4, "10.0.0.1", Some(&[10, 0, 0, 1])),
            (DatasetType::Ipv4, "2001:db8::1", None),
        ] {
            assert_eq!(kind.read(text).ok().as_deref(), bytes, "{kind:?} {text}");
        }
        assert_eq!(DatasetType::Sha256.read("x"), Err("a SHA-256 digest in hex"));
        let sets = Datasets::default();
        let set = sets.get(&SettingsMap::new(), &request("seen", DatasetType::String)).unwrap();
        assert!(set.add(b"a") && set.add(b"b") && set.kind() == DatasetType::String);
        assert!(
            sets.named("seen").is_some_and(|other| Arc::ptr_eq(&set, &other)) && sets.named("x").is_none()
        );
        set.clear();
        assert_eq!((set.len(), set.bytes()), (0, 0));
        assert!(set.add(b"a"));
    }

    #[test]
    fn kinds() {
        let sets = Datasets::default();
        let of = |name: &str, kind| sets.get(&SettingsMap::new(), &request(name, kind)).unwrap();
        let (md5, ipv4, ip) =
            (of("a", DatasetType::Md5), of("b", DatasetType::Ipv4), of("c", DatasetType::Ip));
        assert!(!md5.add(b"short") && md5.add(&[7; 16]));
        assert!(ipv4.add(&[192, 0, 2, 1]) && !ipv4.add(&[0; 16]));
        assert!(ip.add(&[192, 0, 2, 1]));
        let mapped = Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().octets();
        assert_eq!(ip.get(&mapped), Some(0));
        assert!(ip.add(&"2001:db8::1".parse::<Ipv6Addr>().unwrap().octets()));
    }

    #[test]
    fn memory_is_bounded_and_counted() {
        let sets = Datasets::default();
        let set = sets
            .get(&SettingsMap::new(), &DatasetSpec { memcap: Some(140), ..request("s", DatasetType::String) })
            .unwrap();
        assert!(set.add(b"one") && set.add(b"two") && !set.add(b"three"));
        assert_eq!((set.len(), set.refused()), (2, 1));
        assert!(set.remove(b"one") && set.add(b"six"));
    }

    #[test]
    fn settings_describe_sets() {
        let mut settings = SettingsMap::new();
        settings.set("datasets.ua.type", "string");
        settings.set("datasets.ua.memcap", "1kb");
        let sets = Datasets::default();
        let by_name = DatasetSpec { name: "ua".to_owned(), ..DatasetSpec::default() };
        assert_eq!(sets.get(&settings, &by_name).unwrap().memcap, 1024);
        settings.set("datasets.bad.type", "text");
        let bad = DatasetSpec { name: "bad".to_owned(), ..DatasetSpec::default() };
        assert!(matches!(sets.get(&settings, &bad), Err(DatasetError::Setting(_))));
    }

    #[test]
    fn state_survives() {
        let folder = std::env::temp_dir().join(format!("bartizan-dataset-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (kind, values) in [
            (DatasetType::String, [b"a value".as_slice(), b"\x00\xff"]),
            (DatasetType::Md5, [&[1; 16], &[2; 16]]),
            (DatasetType::Ip, [&[192, 0, 2, 1], &[0x20; 16]]),
        ] {
            let path = folder.join(format!("{kind:?}"));
            let with_state =
                DatasetSpec { load: Some(path.clone()), save: Some(path.clone()), ..request("state", kind) };
            let sets = Datasets::default();
            let set = sets.get(&SettingsMap::new(), &with_state).unwrap();
            assert!(values.iter().all(|value| set.add(value)));
            assert!(sets.save(&Rights::default()).is_empty());
            let again = Datasets::default().get(&SettingsMap::new(), &with_state).unwrap();
            assert!(values.iter().all(|value| again.get(value).is_some()), "{kind:?}");
            assert_eq!(again.len(), 2);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
