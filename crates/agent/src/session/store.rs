// SPDX-License-Identifier: Apache-2.0
//! What outlives the agent's process: the generation that runs, as the controller sent it.
//!
//! A folder: each object is a file under its hash, written once; a list has the hashes of a generation's
//! objects. What changes after it is appended to a journal, a line a generation, which takes one write and
//! one flush, however many objects there are. Now and then, and with the first change after a start, objects
//! and list are written anew, and with the list a journal of a new name begins. A line is written while its
//! generation is built, and says so; what is built is proven by a line behind it, and if it cannot run, the
//! next line leads back. A start that finds neither has the one before at hand: it tries what is not proven
//! once, noted in a file of its own, and behind a start that did not outlive the attempt it begins with the
//! one before. So whatever stops it: the list that is there names files that are there, and its journal is
//! whole up to a last line that may be cut off, which nobody was told is stored. Objects and journals that
//! belong to no list are removed behind it.

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

    /// The same while it is not known yet whether it can run, so that the disk is waited for beside the
    /// build; [`Store::withdraw`] takes it back. `false`: not this one, it has to be saved when that is
    /// known.
    ///
    /// # Errors
    /// It cannot be written; the one before is still there.
    fn save_ahead(&mut self, _held: &Held) -> io::Result<bool> {
        Ok(false)
    }

    /// What was saved ahead last is built and can run.
    ///
    /// # Errors
    /// It cannot be written: the next start tries it once, and has the one before at hand.
    fn prove(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// What was saved ahead last cannot run: the one before holds.
    ///
    /// # Errors
    /// It cannot be written: a start finds what was saved ahead, and the one before with it.
    fn withdraw(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A folder of the agent's.
#[derive(Debug)]
pub struct FileStore<D = SystemDisk> {
    folder: PathBuf,
    disk: D,
    /// What was stored last, with its hashes, which are not worked out again for objects that stay.
    written: BTreeMap<ObjectKey, (Arc<Object>, Hash)>,
    /// Its generation.
    generation: u64,
    /// The generation before that, and what leads back to it; only of one that was saved ahead, or that a
    /// start has found.
    back: Option<(u64, Change)>,
    /// What was stored last was saved ahead, and it is not known to have been built.
    is_unproven: bool,
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
    #[serde(default, skip_serializing_if = "Line::is_usual")]
    line: Line,
}

/// What a line of the journal says of its generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    /// It was built before it was written.
    #[default]
    Built,
    /// It is written while it is built.
    Ahead,
    /// The one that was written ahead is built; nothing of it changes.
    Proof,
}

impl Line {
    fn is_usual(&self) -> bool {
        *self == Line::Built
    }
}

/// The generation that a start is about to build without knowing that it ever was.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trial {
    generation: u64,
}

/// How a generation differs from what was stored last.
#[derive(Debug, Default)]
struct Change {
    put: Vec<(ObjectKey, Arc<Object>, Hash)>,
    gone: Vec<ObjectKey>,
}

/// Version of the list's form, and the oldest that is read. Up to form 3 lines of the journal do not say
/// whether they were built.
const FORM: u32 = 4;
const FORM_READ: u32 = 2;

const LIST: &str = "generation.json";
const OBJECTS: &str = "objects";
const TRIAL: &str = "trial.json";
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
            generation: 0,
            back: None,
            is_unproven: false,
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
    fn replay(&mut self, number: u64) -> io::Result<()> {
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
            self.is_unproven = record.line == Line::Ahead;
            if record.line == Line::Proof {
                continue;
            }
            let put = record.put.into_iter().map(|(hash, object)| (object.key(), Arc::new(object), hash));
            let change = Change { put: put.collect(), gone: record.gone };
            self.step(record.generation, change);
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
    fn line(&self, generation: u64, change: &Change, line: Line) -> io::Result<Option<Vec<u8>>> {
        let Some(Journal { records, bytes }) = self.journal else { return Ok(None) };
        let put = change.put.iter().map(|(_, object, _)| object.bytes() + OBJECT_BESIDE);
        let large = put.chain(change.gone.iter().map(|key| key.as_str().len())).sum::<usize>();
        if records >= self.records_max || bytes >= JOURNAL_MAX || large > RECORD_MAX {
            return Ok(None);
        }
        write_record(generation, change, line).map(Some)
    }

    /// Notes what is stored now. What leads back.
    fn apply(&mut self, change: Change) -> Change {
        let mut back = Change::default();
        for key in change.gone {
            let known = self.written.remove(&key);
            back.put.extend(known.map(|(object, hash)| (key, object, hash)));
        }
        for (key, object, hash) in change.put {
            match self.written.insert(key.clone(), (object, hash)) {
                Some((object, hash)) => back.put.push((key, object, hash)),
                None => back.gone.push(key),
            }
        }
        back
    }

    /// The same with the way back.
    fn step(&mut self, generation: u64, change: Change) {
        let before = std::mem::replace(&mut self.generation, generation);
        self.back = Some((before, self.apply(change)));
    }

    /// The generation before what was stored last, where that was saved ahead: for a start that finds that it
    /// cannot run.
    #[must_use]
    pub fn before(&self) -> Option<Held> {
        let (generation, back) = self.back.as_ref()?;
        let mut objects = self.objects_of();
        back.gone.iter().for_each(|key| drop(objects.remove(key)));
        objects.extend(back.put.iter().map(|(key, object, _)| (key.clone(), Arc::clone(object))));
        Some(Held { generation: *generation, objects })
    }

    fn objects_of(&self) -> BTreeMap<ObjectKey, Arc<Object>> {
        self.written.iter().map(|(key, (object, _))| (key.clone(), Arc::clone(object))).collect()
    }

    /// Writes a line behind the others, if there is a journal.
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        // If it fails, part of it may be there: nothing is appended behind that.
        let Some(Journal { records, bytes }) = self.journal.take() else { return Ok(()) };
        self.disk.append(&self.journal(self.number), line)?;
        self.journal = Some(Journal { records: records + 1, bytes: bytes + line.len() });
        Ok(())
    }

    /// An error with the folder.
    fn named<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.folder.display())))
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

    /// Removes objects and journals that belong to no list, and what was tried of the one before. What cannot
    /// be removed is tried again behind the next list.
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
            if name == TRIAL || name.starts_with(JOURNAL) && name != own {
                let _ = self.disk.remove(&self.folder.join(name));
            }
        }
    }
}

/// A change as a line of the journal.
fn write_record(generation: u64, change: &Change, line: Line) -> io::Result<Vec<u8>> {
    let put = change.put.iter().map(|(_, object, hash)| (*hash, object.as_ref())).collect();
    let mut text = serde_json::to_vec(&Record { generation, put, gone: change.gone.clone(), line })?;
    text.push(b'\n');
    Ok(text)
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
        (self.generation, self.back, self.is_unproven) = (list.generation, None, false);
        self.replay(list.journal)?;
        Ok(Held { generation: self.generation, objects: self.objects_of() })
    }

    fn save(&mut self, held: &Held) -> io::Result<()> {
        let done = self.replace(held);
        self.named(done)
    }

    fn save_ahead(&mut self, held: &Held) -> io::Result<bool> {
        let done = self.replace_ahead(held);
        self.named(done)
    }

    fn prove(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.is_unproven) {
            return Ok(());
        }
        let done = self.write_proof();
        self.named(done)
    }

    fn withdraw(&mut self) -> io::Result<()> {
        let Some((generation, back)) = self.back.take() else { return Ok(()) };
        self.is_unproven = false;
        // In the words of any change: the one before comes behind the one that cannot run.
        let line = write_record(generation, &back, Line::Built);
        self.apply(back);
        self.generation = generation;
        let done = line.and_then(|line| self.append(&line));
        self.named(done)
    }
}

impl<D: Disk> FileStore<D> {
    /// Puts a generation in the place of what is stored.
    fn replace(&mut self, held: &Held) -> io::Result<()> {
        let change = self.change(held);
        match self.line(held.generation, &change, Line::Built)? {
            Some(line) => self.append(&line)?,
            None => {
                self.journal = None;
                self.write_whole(held.generation, &change)?;
            }
        }
        self.apply(change);
        (self.generation, self.back, self.is_unproven) = (held.generation, None, false);
        Ok(())
    }

    /// The same if it takes a line of the journal. Whether it does.
    fn replace_ahead(&mut self, held: &Held) -> io::Result<bool> {
        let change = self.change(held);
        let Some(line) = self.line(held.generation, &change, Line::Ahead)? else { return Ok(false) };
        self.append(&line)?;
        self.step(held.generation, change);
        self.is_unproven = true;
        Ok(true)
    }

    /// Writes that what was saved ahead is built. Nobody waits for the disk: where the system crashes and the
    /// line is lost, a start finds out by itself.
    fn write_proof(&mut self) -> io::Result<()> {
        let Some(Journal { records, bytes }) = self.journal.take() else {
            // Of a start, which appends to no journal that may end in half a line.
            self.back = None;
            return self.write_whole(self.generation, &Change::default());
        };
        let line = write_record(self.generation, &Change::default(), Line::Proof)?;
        self.disk.append_soon(&self.journal(self.number), &line)?;
        self.journal = Some(Journal { records, bytes: bytes + line.len() });
        Ok(())
    }

    /// The generation that a start tried to build and that was never proven.
    fn trial(&mut self) -> Option<u64> {
        let bytes = self.disk.read(&self.folder.join(TRIAL)).ok()?;
        serde_json::from_slice(&bytes).ok().map(|trial: Trial| trial.generation)
    }

    /// What was loaded is about to be built. `false`: an earlier start tried that, and ended before it was
    /// known whether it can run: so [`FileStore::before`] is to be built in its place. What was built once
    /// before may always be.
    ///
    /// # Errors
    /// It cannot be noted that it is tried.
    pub fn may_build(&mut self) -> io::Result<bool> {
        if !self.is_unproven || self.back.is_none() {
            return Ok(true);
        }
        if self.trial() == Some(self.generation) {
            return Ok(false);
        }
        let (path, trial) =
            (self.folder.join(TRIAL), serde_json::to_vec(&Trial { generation: self.generation })?);
        let done = self.disk.write(&path, &trial).and_then(|()| self.disk.sync_folder(&self.folder.clone()));
        self.named(done).map(|()| true)
    }
}

#[cfg(test)]
mod tests;
