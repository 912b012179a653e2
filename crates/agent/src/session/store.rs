// SPDX-License-Identifier: Apache-2.0
//! What outlives the agent's process: the generation that runs, as the controller sent it.
//!
//! A folder: each object is a file under its hash, written once; a list has the hashes of a generation's objects. What changes after it is appended to a
//! journal, a line a generation, which takes one write and one flush, however many objects there are. Now and then, and with the first change after a start, objects and
//! list are written anew, and with the list a journal of a new name begins. So whatever stops it: the list that is there names files that are there, and
//! its journal is whole up to a last line that may be cut off, which nobody was told is stored. Objects and journals that belong to no list are removed behind it.

use super::disk::{Disk, SystemDisk};
use super::stage::Held;
use bartizan_api::southbound::{Hash, Object, ObjectKey};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where an agent keeps its generation. What was stored is there after a crash, whole.
pub trait Store {
    /// What was stored last; nothing at the first start.
    ///
    /// # Errors
    /// It cannot be read.
    fn load(&mut self) -> io::Result<Held>;

    /// Stores a generation in place of the one before. When this returns it is durable.
    ///
    /// # Errors
    /// It cannot be written; the one before is still there.
    fn save(&mut self, held: &Held) -> io::Result<()>;
}

/// A folder of the agent's.
#[derive(Debug)]
pub struct FileStore<D = SystemDisk> {
    folder: PathBuf,
    disk: D,
    /// What was stored last, with its hashes, which are not worked out again for objects that stay.
    written: BTreeMap<ObjectKey, (Arc<Object>, Hash)>,
    /// Of those that have a file.
    filed: BTreeSet<Hash>,
    /// Number of the list, by which its journal is called.
    number: u64,
    /// What may be appended to; `None`: list and objects are written first.
    journal: Option<Journal>,
    /// Lines of a journal with which it ends.
    records_max: usize,
}

/// How much is in a journal.
#[derive(Clone, Copy, Debug, Default)]
struct Journal {
    records: usize,
    bytes: usize,
}

/// The list of a generation's objects.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    /// Version of the form.
    form: u32,
    generation: u64,
    objects: BTreeMap<ObjectKey, Hash>,
    /// Number of its journal; none up to form 2.
    #[serde(default)]
    journal: u64,
}

/// A line of the journal: what a generation has that the one before had not.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record<O> {
    generation: u64,
    put: Vec<(Hash, O)>,
    gone: Vec<ObjectKey>,
}

/// How a generation differs from what was stored last.
#[derive(Default)]
struct Change {
    put: Vec<(ObjectKey, Arc<Object>, Hash)>,
    gone: Vec<ObjectKey>,
}

/// Version of the list's form, and the oldest that is read.
const FORM: u32 = 3;
const FORM_READ: u32 = 2;

const LIST: &str = "generation.json";
const OBJECTS: &str = "objects";
/// Objects that are written together, and their bytes.
const TOGETHER: usize = 1_024;
const TOGETHER_BYTES: usize = 16 << 20;
/// Before the number of a journal.
const JOURNAL: &str = "journal.";
/// Behind the names of files that are being written.
const NEW: &str = ".new";

/// Lines and bytes of a journal with which it ends: a start goes through all of it.
const RECORDS_MAX: usize = 256;
const JOURNAL_MAX: usize = 1 << 20;
/// Bytes that an object takes in a line beside its text, about.
const OBJECT_BESIDE: usize = 150;
/// Bytes of a change up to which it goes into the journal.
const RECORD_MAX: usize = 64 << 10;

impl FileStore {
    /// Keeps it in a folder, which is made if it is not there.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self::on(folder, SystemDisk)
    }
}

impl<D: Disk> FileStore<D> {
    /// Keeps it in a folder of a disk.
    #[must_use]
    pub fn on(folder: &Path, disk: D) -> Self {
        FileStore {
            folder: folder.to_owned(),
            disk,
            written: BTreeMap::new(),
            filed: BTreeSet::new(),
            number: 0,
            journal: None,
            records_max: RECORDS_MAX,
        }
    }

    fn objects(&self) -> PathBuf {
        self.folder.join(OBJECTS)
    }

    /// What is wrong with a file, and what to do.
    fn wrong(&self, path: &Path, what: &str) -> io::Error {
        let (path, folder) = (path.display(), self.folder.display());
        let message = format!("{path}: {what}; move the folder {folder} away to begin without a generation");
        io::Error::new(io::ErrorKind::InvalidData, message)
    }

    fn load_object(&mut self, key: &ObjectKey, hash: Hash) -> io::Result<Arc<Object>> {
        let path = self.objects().join(hash.to_string());
        let bytes = self.disk.read(&path).map_err(|error| self.wrong(&path, &error.to_string()))?;
        let object: Object =
            serde_json::from_slice(&bytes).map_err(|error| self.wrong(&path, &error.to_string()))?;
        if object.hash() != hash || object.key() != *key {
            return Err(self.wrong(&path, "this is not what was stored under the name"));
        }
        Ok(Arc::new(object))
    }

    fn journal(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{JOURNAL}{number}"))
    }

    /// Does what a journal says once more.
    fn replay(&mut self, number: u64, generation: &mut u64) -> io::Result<()> {
        let path = self.journal(number);
        let bytes = match self.disk.read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            read => read.map_err(|error| self.wrong(&path, &error.to_string()))?,
        };
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').peekable();
        while let Some(line) = lines.next() {
            let record = match read_record(line) {
                Ok(record) => record,
                // It was cut off while it was written: nobody was told that it is stored.
                Err(_) if lines.peek().is_none() => return Ok(()),
                Err(what) => return Err(self.wrong(&path, &what)),
            };
            *generation = record.generation;
            for (hash, object) in record.put {
                self.written.insert(object.key(), (Arc::new(object), hash));
            }
            for key in record.gone {
                self.written.remove(&key);
            }
        }
        Ok(())
    }

    /// How a generation differs from what was stored last.
    fn change(&self, held: &Held) -> Change {
        let mut change = Change::default();
        let mut before = self.written.iter().peekable();
        for (key, object) in &held.objects {
            while let Some((gone, _)) = before.next_if(|(known, _)| *known < key) {
                change.gone.push(gone.clone());
            }
            let known = before.next_if(|(known, _)| *known == key).map(|(_, known)| known);
            if known.is_some_and(|(known, _)| Arc::ptr_eq(known, object)) {
                continue;
            }
            change.put.push((key.clone(), Arc::clone(object), object.hash()));
        }
        change.gone.extend(before.map(|(gone, _)| gone.clone()));
        change
    }

    /// A change as a line of the journal, if it may be appended there.
    fn line(&self, generation: u64, change: &Change) -> io::Result<Option<Vec<u8>>> {
        let Some(Journal { records, bytes }) = self.journal else { return Ok(None) };
        let put = change.put.iter().map(|(_, object, _)| object.bytes() + OBJECT_BESIDE);
        let large = put.chain(change.gone.iter().map(|key| key.as_str().len())).sum::<usize>();
        if records >= self.records_max || bytes >= JOURNAL_MAX || large > RECORD_MAX {
            return Ok(None);
        }
        let put = change.put.iter().map(|(_, object, hash)| (*hash, object.as_ref())).collect();
        let mut line = serde_json::to_vec(&Record { generation, put, gone: change.gone.clone() })?;
        line.push(b'\n');
        Ok(Some(line))
    }

    /// Notes what is stored now.
    fn apply(&mut self, change: Change) {
        for key in change.gone {
            self.written.remove(&key);
        }
        for (key, object, hash) in change.put {
            self.written.insert(key, (object, hash));
        }
    }

    /// Writes the objects that have no file yet; those that a generation consists of, with their hashes.
    fn write_objects(&mut self, all: &BTreeMap<ObjectKey, (Arc<Object>, Hash)>) -> io::Result<()> {
        let folder = self.objects();
        self.disk.make_folder(&folder)?;
        let (mut new, mut bytes, mut any) = (Vec::new(), 0, false);
        for (object, hash) in all.values() {
            if self.filed.contains(hash) {
                continue;
            }
            any = true;
            let text = serde_json::to_vec(object.as_ref())?;
            bytes += text.len();
            new.push((folder.join(format!("{hash}{NEW}")), text));
            if bytes > TOGETHER_BYTES || new.len() >= TOGETHER {
                self.put(&std::mem::take(&mut new))?;
                bytes = 0;
            }
        }
        self.put(&new)?;
        if any {
            self.disk.sync_folder(&folder)?;
        }
        Ok(())
    }

    /// Writes files, and gives them the names without what stands behind those of new ones.
    fn put(&mut self, files: &[(PathBuf, Vec<u8>)]) -> io::Result<()> {
        match files {
            [(new, bytes)] => self.disk.write(new, bytes)?,
            several => self.disk.write_each(several)?,
        }
        files.iter().try_for_each(|(new, _)| self.disk.rename(new, &new.with_extension("")))
    }

    /// Writes objects, list and an empty journal.
    fn write_whole(&mut self, generation: u64, change: &Change) -> io::Result<()> {
        let mut all = self.written.clone();
        change.gone.iter().for_each(|key| drop(all.remove(key)));
        all.extend(change.put.iter().map(|(key, object, hash)| (key.clone(), (Arc::clone(object), *hash))));
        self.write_objects(&all)?;
        let number = self.number + 1;
        self.disk.write(&self.journal(number), &[])?;
        let objects = all.iter().map(|(key, (_, hash))| (key.clone(), *hash)).collect();
        let list = List { form: FORM, generation, objects, journal: number };
        let (path, new) = (self.folder.join(LIST), self.folder.join(format!("{LIST}{NEW}")));
        self.disk.write(&new, &serde_json::to_vec(&list)?)?;
        self.disk.rename(&new, &path)?;
        self.disk.sync_folder(&self.folder)?;
        self.filed = all.values().map(|(_, hash)| *hash).collect();
        (self.number, self.journal) = (number, Some(Journal::default()));
        self.collect();
        Ok(())
    }

    /// Removes objects and journals that belong to no list. What cannot be removed is tried again behind the next list.
    fn collect(&mut self) {
        let folder = self.objects();
        let names: BTreeSet<String> = self.filed.iter().map(Hash::to_string).collect();
        for name in self.disk.names(&folder).unwrap_or_default() {
            if !names.contains(&name) {
                let _ = self.disk.remove(&folder.join(name));
            }
        }
        let own = format!("{JOURNAL}{}", self.number);
        for name in self.disk.names(&self.folder).unwrap_or_default() {
            if name.starts_with(JOURNAL) && name != own {
                let _ = self.disk.remove(&self.folder.join(name));
            }
        }
    }
}

/// A line of the journal, whole, with objects that are what was stored.
fn read_record(line: &[u8]) -> Result<Record<Object>, String> {
    let line = line.strip_suffix(b"\n").ok_or("a line is cut off")?;
    let record: Record<Object> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    match record.put.iter().all(|(hash, object)| object.hash() == *hash) {
        true => Ok(record),
        false => Err("a line has another object than was stored".to_owned()),
    }
}

impl<D: Disk> Store for FileStore<D> {
    fn load(&mut self) -> io::Result<Held> {
        let path = self.folder.join(LIST);
        let bytes = match self.disk.read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Held::default()),
            read => read?,
        };
        let list: List =
            serde_json::from_slice(&bytes).map_err(|error| self.wrong(&path, &error.to_string()))?;
        if !(FORM_READ..=FORM).contains(&list.form) {
            return Err(self.wrong(&path, &format!("form {} is not known here", list.form)));
        }
        let mut written = BTreeMap::new();
        for (key, hash) in list.objects {
            let object = self.load_object(&key, hash)?;
            written.insert(key, (object, hash));
        }
        self.filed = written.values().map(|(_, hash)| *hash).collect();
        self.written = written;
        (self.number, self.journal) = (list.journal, None);
        let mut generation = list.generation;
        self.replay(list.journal, &mut generation)?;
        let objects =
            self.written.iter().map(|(key, (object, _))| (key.clone(), Arc::clone(object))).collect();
        Ok(Held { generation, objects })
    }

    fn save(&mut self, held: &Held) -> io::Result<()> {
        let folder = self.folder.display().to_string();
        self.replace(held).map_err(|error| io::Error::new(error.kind(), format!("{folder}: {error}")))
    }
}

impl<D: Disk> FileStore<D> {
    /// Puts a generation in the place of what is stored.
    fn replace(&mut self, held: &Held) -> io::Result<()> {
        let change = self.change(held);
        match self.line(held.generation, &change)? {
            Some(line) => {
                // If it fails, part of it may be there: nothing is appended behind that.
                let journal = self.journal.take();
                self.disk.append(&self.journal(self.number), &line)?;
                self.journal = journal.map(|Journal { records, bytes }| Journal {
                    records: records + 1,
                    bytes: bytes + line.len(),
                });
            }
            None => {
                self.journal = None;
                self.write_whole(held.generation, &change)?;
            }
        }
        self.apply(change);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
