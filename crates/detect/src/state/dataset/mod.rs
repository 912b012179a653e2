// SPDX-License-Identifier: Apache-2.0
//! Sets of values that rules look up and change (`dataset`, `datarep`), and reputations of addresses
//! (`iprep`).
//!
//! Sets belong to no generation: what rules add stays when rules are loaded anew, except for sets that only
//! load a file, which are read again ([`Datasets::forget_loaded`]). Each set has a bound on its memory; what
//! does not fit is not added, and counted. Semantics: Suricata 8's user guide, "Datasets".
//!
//! Values come and go by rules and by commands of an operator.

mod load;
mod reputation;
mod skipped;

pub use load::Format;
pub use reputation::{Reputation, ReputationError};
pub use skipped::{ENTRIES_SHOWN, SkippedEntries, SkippedEntry};

use bartizan_applayer::content::base64;
use bartizan_base::{SettingError, Settings, parse_size};
use bartizan_events::output::Rights;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

/// Bound on a set's memory where neither rule nor settings give one, in bytes.
pub const MEMCAP_DEFAULT: u64 = 100 << 20;

/// What a value costs besides its bytes: entry of the table, allocation.
const COST_PER_VALUE: u64 = 64;

/// What the values of a set are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any bytes.
    String,
    /// MD5 digests.
    Md5,
    /// SHA-256 digests.
    Sha256,
    /// IPv4 addresses.
    Ipv4,
    /// Addresses of both versions; an IPv4 address and the same mapped into IPv6 are one.
    Ip,
}

impl Kind {
    /// From its name in rules and settings.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "string" => Kind::String,
            "md5" => Kind::Md5,
            "sha256" => Kind::Sha256,
            "ipv4" => Kind::Ipv4,
            "ip" | "ipv6" => Kind::Ip,
            _ => return None,
        })
    }

    /// The value under which bytes of a buffer are kept; `None` for bytes that cannot be of this kind.
    #[must_use]
    pub fn key(self, data: &[u8]) -> Option<Key<'_>> {
        match self {
            Kind::String => (!data.is_empty()).then_some(Key::Bytes(data)),
            Kind::Md5 => (data.len() == 16).then_some(Key::Bytes(data)),
            Kind::Sha256 => (data.len() == 32).then_some(Key::Bytes(data)),
            Kind::Ipv4 => (data.len() == 4).then_some(Key::Bytes(data)),
            Kind::Ip => {
                let address = match data {
                    [a, b, c, d] => Ipv4Addr::new(*a, *b, *c, *d).to_ipv6_mapped(),
                    _ => Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?),
                };
                Some(Key::Address(address.octets()))
            }
        }
    }

    /// The bytes of a value as files write it, strings in base64.
    ///
    /// # Errors
    /// It is none: what one would be.
    pub fn read(self, text: &str) -> Result<Vec<u8>, &'static str> {
        let wanted = match self {
            Kind::String => "text in base64",
            Kind::Md5 => "MD5 digest in hex",
            Kind::Sha256 => "SHA-256 digest in hex",
            Kind::Ipv4 => "IPv4 address",
            Kind::Ip => "IP address",
        };
        let mut decoded = Vec::new();
        let bytes = match self {
            Kind::String => {
                let whole = base64::decode(text.as_bytes(), base64::Mode::Strict, &mut decoded);
                whole.then_some(decoded)
            }
            _ => self.parse(text),
        };
        bytes.filter(|bytes| self.key(bytes).is_some()).ok_or(wanted)
    }

    /// The bytes of a value as files write it, other than base64.
    fn parse(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Kind::String => Some(text.as_bytes().to_vec()),
            Kind::Md5 | Kind::Sha256 => crate::encoding::hex::from_hex(text.as_bytes()),
            Kind::Ipv4 => Some(text.parse::<Ipv4Addr>().ok()?.octets().to_vec()),
            Kind::Ip => match text.parse::<IpAddr>().ok()? {
                IpAddr::V4(v4) => Some(v4.octets().to_vec()),
                IpAddr::V6(v6) => Some(v6.octets().to_vec()),
            },
        }
    }

    /// A value as files write it.
    fn print(self, value: &[u8]) -> String {
        match self {
            Kind::String => bartizan_applayer::content::base64::encode(value),
            Kind::Md5 | Kind::Sha256 => value.iter().map(|b| format!("{b:02x}")).collect(),
            Kind::Ipv4 => {
                <[u8; 4]>::try_from(value).map(|a| Ipv4Addr::from(a).to_string()).unwrap_or_default()
            }
            Kind::Ip => {
                let address =
                    <[u8; 16]>::try_from(value).map(Ipv6Addr::from).unwrap_or(Ipv6Addr::UNSPECIFIED);
                address.to_canonical().to_string()
            }
        }
    }
}

/// See [`Kind::key`].
pub enum Key<'d> {
    /// As in the buffer.
    Bytes(&'d [u8]),
    /// An address in its one form.
    Address([u8; 16]),
}

impl Key<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Key::Bytes(bytes) => bytes,
            Key::Address(address) => address,
        }
    }
}

/// Why a set cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// Neither rule nor settings say what its values are.
    #[error("the dataset `{0}` has no type; write `type string`, `md5`, `sha256`, `ipv4` or `ip`")]
    NoType(String),
    /// It exists with other values.
    #[error("the dataset `{0}` exists with another type")]
    OtherType(String),
    /// It exists with another file.
    #[error("the dataset `{name}` exists with the file {there}, not {asked}")]
    OtherFile {
        /// Its name.
        name: String,
        /// The file it was made with.
        there: String,
        /// The file asked for.
        asked: String,
    },
    /// Its file cannot be read.
    #[error("cannot read {path}: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Its file cannot be understood.
    #[error("{path}, line {line}: {what}")]
    BadValue {
        /// The file.
        path: PathBuf,
        /// Line from 1.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// Its file needs more memory than it may have.
    #[error("{path} does not fit into the dataset's memcap of {memcap} bytes; raise `memcap`")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The bound.
        memcap: u64,
    },
    /// A setting of it cannot be understood.
    #[error(transparent)]
    Setting(#[from] SettingError),
}

#[derive(Debug, Default)]
struct Values {
    /// Value to reputation (0 in sets without).
    table: HashMap<Box<[u8]>, u16>,
    /// What JSON files say of a value.
    contexts: HashMap<Box<[u8]>, Arc<[u8]>>,
    bytes: u64,
}

/// One set.
#[derive(Debug)]
pub struct Dataset {
    name: String,
    kind: Kind,
    memcap: u64,
    loaded_from: Option<PathBuf>,
    saved_to: Option<PathBuf>,
    values: RwLock<Values>,
    refused: AtomicU64,
    /// Traffic may change it.
    changes: AtomicBool,
}

impl Dataset {
    /// A rule adds or removes values: from here on workers over captures look into it in the order of the
    /// packets.
    pub fn note_changes(&self) {
        self.changes.store(true, Ordering::Relaxed);
    }

    fn wait_for_turn(&self) {
        if self.changes.load(Ordering::Relaxed) {
            bartizan_base::turns::wait_for_turn();
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its values are.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Takes all values out.
    pub fn clear(&self) {
        self.wait_for_turn();
        // Freed when nobody waits for the set any more.
        let old = self.values.write().map(|mut values| std::mem::take(&mut *values));
        drop(old);
    }

    /// The reputation of a value (0 in sets without); `None` when it is not in the set.
    #[must_use]
    pub fn get(&self, data: &[u8]) -> Option<u16> {
        let key = self.kind.key(data)?;
        self.wait_for_turn();
        self.values.read().ok()?.table.get(key.bytes()).copied()
    }

    /// What the set's JSON file says of a value: the object that it stood in.
    #[must_use]
    pub fn context(&self, data: &[u8]) -> Option<Arc<[u8]>> {
        let key = self.kind.key(data)?;
        self.values.read().ok()?.contexts.get(key.bytes()).cloned()
    }

    /// Keeps what is known of a value that is in the set.
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

    /// Adds a value; whether it is new.
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

    /// Removes a value; whether it was there.
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

    /// How many values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.read().map_or(0, |values| values.table.len())
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that its values take.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.values.read().map_or(0, |values| values.bytes)
    }

    /// How many values were not added because of the bound.
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

/// What a rule or the settings say of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Its name.
    pub name: String,
    /// What its values are.
    pub kind: Option<Kind>,
    /// File to read; it must be there unless it is `save`, too.
    pub load: Option<PathBuf>,
    /// File to write at the end.
    pub save: Option<PathBuf>,
    /// Bound on its memory, in bytes.
    pub memcap: Option<u64>,
    /// How the file is written.
    pub format: Format,
}

/// All sets, by name.
#[derive(Debug, Default)]
pub struct Datasets {
    sets: Mutex<HashMap<String, Arc<Dataset>>>,
    /// Entries that were left out of files and not taken yet.
    skipped: Mutex<SkippedEntries>,
    /// Files that were read since they were taken.
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
    /// A file with these bytes.
    #[must_use]
    pub fn new(path: &Path, bytes: &[u8]) -> Self {
        ListFile { path: path.to_owned(), sha256: Sha256::digest(bytes).into() }
    }
}

impl Datasets {
    /// The set that a request is about, made if it does not exist. Sets of the settings
    /// (`datasets.NAME.type`) are known without further words.
    ///
    /// # Errors
    /// It has no type or contradicts the one that exists; its file cannot be read, understood or held.
    pub fn get(&self, settings: &Settings, request: &Request) -> Result<Arc<Dataset>, DatasetError> {
        let mut sets = match self.sets.lock() {
            Ok(sets) => sets,
            // A panic elsewhere while it was held: the table itself is whole.
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

    /// Keeps what was left out of a list until it is reported.
    pub(in crate::state) fn note_skipped(&self, entries: SkippedEntries) {
        if let Ok(mut skipped) = self.skipped.lock() {
            skipped.append(entries);
        }
    }

    /// Takes what was left out of lists since the last call.
    pub(in crate::state) fn take_skipped(&self) -> SkippedEntries {
        self.skipped.lock().map(|mut skipped| std::mem::take(&mut *skipped)).unwrap_or_default()
    }

    /// Keeps that a list was read until it is asked for.
    pub(in crate::state) fn note_read(&self, list: ListFile) {
        if let Ok(mut read) = self.read.lock() {
            read.push(list);
        }
    }

    /// Takes the lists that were read since the last call.
    pub(in crate::state) fn take_read(&self) -> Vec<ListFile> {
        self.read.lock().map(|mut read| std::mem::take(&mut *read)).unwrap_or_default()
    }

    /// Before rules are loaded anew: sets that only load a file are read again when a rule asks for them.
    /// Rules that still run keep theirs.
    pub fn forget_loaded(&self) {
        if let Ok(mut sets) = self.sets.lock() {
            sets.retain(|_, set| set.loaded_from.is_none() || set.saved_to.is_some());
        }
    }

    /// Writes the sets that have a file for it; what could not be written, with the reason.
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

    /// The set of a name.
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

fn agree(set: &Dataset, request: &Request) -> Result<(), DatasetError> {
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

/// Fills in what the settings say of a set (`datasets.NAME.*`).
fn with_settings(settings: &Settings, request: &Request) -> Result<Request, DatasetError> {
    let mut merged = request.clone();
    let base = format!("datasets.{}", request.name);
    let wrong = |key: String, value: &str, expected| SettingError { key, value: value.to_owned(), expected };
    let of = |part: &str| settings.get(&format!("{base}.{part}"));
    if let (None, Some(name)) = (merged.kind, of("type")) {
        let kind = Kind::from_name(name);
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

/// Makes a set. A file that the set is also saved to is the program's own state, and no list that it was
/// given.
fn make(
    request: &Request,
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
            // A state that was never written is empty.
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

    fn request(name: &str, kind: Kind) -> Request {
        Request { name: name.to_owned(), kind: Some(kind), ..Request::default() }
    }

    #[test]
    fn add_get_remove() {
        let sets = Datasets::default();
        let set = sets.get(&Settings::new(), &request("seen", Kind::String)).unwrap();
        assert!(set.add(b"a") && !set.add(b"a") && !set.add(b""));
        assert_eq!((set.get(b"a"), set.get(b"b"), set.len(), set.bytes()), (Some(0), None, 1, 65));
        // The same name is the same set; another type is an error.
        let again =
            sets.get(&Settings::new(), &Request { kind: None, ..request("seen", Kind::String) }).unwrap();
        assert!(Arc::ptr_eq(&set, &again));
        assert!(matches!(
            sets.get(&Settings::new(), &request("seen", Kind::Md5)),
            Err(DatasetError::OtherType(_))
        ));
        assert!(set.remove(b"a") && !set.remove(b"a") && set.is_empty());
        assert_eq!(set.bytes(), 0);
        let untyped = Request { kind: None, ..request("other", Kind::String) };
        assert!(matches!(sets.get(&Settings::new(), &untyped), Err(DatasetError::NoType(_))));
    }

    #[test]
    fn values_are_read_as_files_write_them_and_go_together() {
        for (kind, text, bytes) in [
            (Kind::String, "YQ==", Some(&b"a"[..])),
            (Kind::String, "a", None),
            (Kind::String, "", None),
            (
                Kind::Md5,
                "00112233445566778899aabbccddeeff",
                Some(b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff"),
            ),
            (Kind::Md5, "0011", None),
            (Kind::Ipv4, "10.0.0.1", Some(&[10, 0, 0, 1])),
            (Kind::Ipv4, "2001:db8::1", None),
        ] {
            assert_eq!(kind.read(text).ok().as_deref(), bytes, "{kind:?} {text}");
        }
        assert_eq!(Kind::Sha256.read("x"), Err("SHA-256 digest in hex"));
        let sets = Datasets::default();
        let set = sets.get(&Settings::new(), &request("seen", Kind::String)).unwrap();
        assert!(set.add(b"a") && set.add(b"b") && set.kind() == Kind::String);
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
        let of = |name: &str, kind| sets.get(&Settings::new(), &request(name, kind)).unwrap();
        let (md5, ipv4, ip) = (of("a", Kind::Md5), of("b", Kind::Ipv4), of("c", Kind::Ip));
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
        let set =
            sets.get(&Settings::new(), &Request { memcap: Some(140), ..request("s", Kind::String) }).unwrap();
        assert!(set.add(b"one") && set.add(b"two") && !set.add(b"three"));
        assert_eq!((set.len(), set.refused()), (2, 1));
        assert!(set.remove(b"one") && set.add(b"six"));
    }

    #[test]
    fn settings_describe_sets() {
        let mut settings = Settings::new();
        settings.set("datasets.ua.type", "string");
        settings.set("datasets.ua.memcap", "1kb");
        let sets = Datasets::default();
        let by_name = Request { name: "ua".to_owned(), ..Request::default() };
        assert_eq!(sets.get(&settings, &by_name).unwrap().memcap, 1024);
        settings.set("datasets.bad.type", "text");
        let bad = Request { name: "bad".to_owned(), ..Request::default() };
        assert!(matches!(sets.get(&settings, &bad), Err(DatasetError::Setting(_))));
    }

    #[test]
    fn state_survives() {
        let folder = std::env::temp_dir().join(format!("bartizan-dataset-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (kind, values) in [
            (Kind::String, [b"a value".as_slice(), b"\x00\xff"]),
            (Kind::Md5, [&[1; 16], &[2; 16]]),
            (Kind::Ip, [&[192, 0, 2, 1], &[0x20; 16]]),
        ] {
            let path = folder.join(format!("{kind:?}"));
            let with_state =
                Request { load: Some(path.clone()), save: Some(path.clone()), ..request("state", kind) };
            let sets = Datasets::default();
            let set = sets.get(&Settings::new(), &with_state).unwrap();
            assert!(values.iter().all(|value| set.add(value)));
            assert!(sets.save(&Rights::default()).is_empty());
            let again = Datasets::default().get(&Settings::new(), &with_state).unwrap();
            assert!(values.iter().all(|value| again.get(value).is_some()), "{kind:?}");
            assert_eq!(again.len(), 2);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
