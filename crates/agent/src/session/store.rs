// SPDX-License-Identifier: Apache-2.0
//! The agent's stored generation, as the controller sent it.
//!
//! The store is a folder. Each object is a file named by its hash, written once; a list has the hashes of a
//! generation's objects. Later changes are appended to a journal, one line per generation, which takes one
//! write and one flush however many objects there are. Now and then, and at the first change after a start,
//! objects and list are written anew, and a journal with a new name begins.
//!
//! A line is written while its generation is being built, and is marked so; a proof line follows once the
//! build succeeds, and if it fails, the next line leads back to the generation before. A start that finds
//! neither has both generations: it tries the unproven one once, noted in a file of its own, and a start
//! after one that did not survive this attempt begins with the generation before.
//!
//! So wherever the store is stopped, the list names existing files, and the journal is whole except for a
//! last line that may be cut off and was never confirmed as stored. Objects and journals of no list are
//! removed later.

use super::disk::{Disk, SystemDisk};
use super::stage::ControllerGeneration;
use bartizan_api::southbound::{Hash, Object, ObjectKey};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Storage of an agent's generation. A stored generation is complete after a crash.
pub trait GenerationStore {
    /// Loads the generation stored last; empty at the first start.
    ///
    /// # Errors
    /// The store cannot be read.
    fn load(&mut self) -> io::Result<ControllerGeneration>;

    /// Stores a generation in place of the one before, durably.
    ///
    /// # Errors
    /// The generation cannot be written; the one before is still stored.
    fn save(&mut self, held: &ControllerGeneration) -> io::Result<()>;

    /// Stores a generation durably before it is known whether it can run, so that build and disk work in
    /// parallel; [`GenerationStore::withdraw`] undoes it. `false`: not possible for this generation, which
    /// must be saved after its build.
    ///
    /// # Errors
    /// The generation cannot be written; the one before is still stored.
    fn save_ahead(&mut self, _held: &ControllerGeneration) -> io::Result<bool> {
        Ok(false)
    }

    /// Records that the generation saved ahead last can run.
    ///
    /// # Errors
    /// The record cannot be written: the next start tries the generation once, and also has the one before.
    fn prove(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Undoes the last save ahead, because the generation cannot run.
    ///
    /// # Errors
    /// The record cannot be written: a start finds the generation saved ahead, and the one before.
    fn withdraw(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A store in a folder.
#[derive(Debug)]
pub struct FileStore<D = SystemDisk> {
    folder: PathBuf,
    disk: D,
    /// The objects stored last, with their hashes, so that hashes of unchanged objects are not computed
    /// again.
    written: BTreeMap<ObjectKey, (Arc<Object>, Hash)>,
    /// The number of the generation stored last.
    generation: u64,
    /// The generation before, and the change that leads back to it; present after a save ahead, also if a
    /// start found one.
    back: Option<(u64, GenerationDelta)>,
    /// Whether the generation stored last was saved ahead and not proven.
    is_unproven: bool,
    /// Hashes of the objects that have a file.
    filed: BTreeSet<Hash>,
    /// Number of the list, which names its journal.
    number: u64,
    /// The journal, if lines may be appended; `None`: list and objects are written first.
    journal: Option<Journal>,
    /// Most lines of a journal.
    records_max: usize,
}

/// The size of a journal.
#[derive(Clone, Copy, Debug, Default)]
struct Journal {
    records: usize,
    bytes: usize,
}

/// The list of a generation's objects.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GenerationIndex {
    /// Version of the format.
    form: u32,
    generation: u64,
    objects: BTreeMap<ObjectKey, Hash>,
    /// Number of the journal; absent up to format 2.
    #[serde(default)]
    journal: u64,
}

/// A line of the journal: the changes from the generation before.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JournalRecord<O> {
    generation: u64,
    put: Vec<(Hash, O)>,
    gone: Vec<ObjectKey>,
    #[serde(default, skip_serializing_if = "JournalLineState::is_usual")]
    line: JournalLineState,
}

/// The state of a line's generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum JournalLineState {
    /// The generation was built before the line was written.
    #[default]
    Built,
    /// The line was written during the build.
    Ahead,
    /// The generation of the last line was built; no objects change.
    Proof,
}

impl JournalLineState {
    fn is_usual(&self) -> bool {
        *self == JournalLineState::Built
    }
}

/// The generation that a start is about to try, unproven.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trial {
    generation: u64,
}

/// The difference between a generation and the one stored last.
#[derive(Debug, Default)]
struct GenerationDelta {
    put: Vec<(ObjectKey, Arc<Object>, Hash)>,
    gone: Vec<ObjectKey>,
}

/// Version of the list's format, and the oldest that is read. Up to format 3, lines of the journal do not
/// have the state of the build.
const FORM: u32 = 4;
const FORM_READ: u32 = 2;

const LIST: &str = "generation.json";
const OBJECTS: &str = "objects";
const TRIAL: &str = "trial.json";
/// Most objects that are written together, and most bytes of them.
const TOGETHER: usize = 1_024;
const TOGETHER_BYTES: usize = 16 << 20;
/// Prefix of the names of journals.
const JOURNAL: &str = "journal.";
/// Suffix of the names of files that are being written.
const NEW: &str = ".new";

/// Most lines and bytes of a journal: a start reads all of it.
const RECORDS_MAX: usize = 256;
const JOURNAL_MAX: usize = 1 << 20;
/// Approximate bytes of an object in a line beside its text.
const OBJECT_BESIDE: usize = 150;
/// Most bytes of a change that goes into the journal.
const RECORD_MAX: usize = 64 << 10;

impl FileStore {
    /// A store in a folder, which is made if it does not exist.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self::on(folder, SystemDisk)
    }
}

impl<D: Disk> FileStore<D> {
    /// A store in a folder of a disk.
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

    /// An error of a file, with what to do.
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
            return Err(self.wrong(&path, "the content differs from the stored object of this name"));
        }
        Ok(Arc::new(object))
    }

    fn journal(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{JOURNAL}{number}"))
    }

    /// Applies the lines of a journal.
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
                // The line was cut off during writing, and never confirmed as stored.
                Err(_) if lines.peek().is_none() => return Ok(()),
                Err(what) => return Err(self.wrong(&path, &what)),
            };
            self.is_unproven = record.line == JournalLineState::Ahead;
            if record.line == JournalLineState::Proof {
                continue;
            }
            let put = record.put.into_iter().map(|(hash, object)| (object.key(), Arc::new(object), hash));
            let change = GenerationDelta { put: put.collect(), gone: record.gone };
            self.step(record.generation, change);
        }
        Ok(())
    }

    /// The difference between a generation and the one stored last.
    fn change(&self, held: &ControllerGeneration) -> GenerationDelta {
        let mut change = GenerationDelta::default();
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

    /// A change as a line of the journal, if the line may be appended.
    fn line(
        &self,
        generation: u64,
        change: &GenerationDelta,
        line: JournalLineState,
    ) -> io::Result<Option<Vec<u8>>> {
        let Some(Journal { records, bytes }) = self.journal else { return Ok(None) };
        let put = change.put.iter().map(|(_, object, _)| object.bytes() + OBJECT_BESIDE);
        let large = put.chain(change.gone.iter().map(|key| key.as_str().len())).sum::<usize>();
        if records >= self.records_max || bytes >= JOURNAL_MAX || large > RECORD_MAX {
            return Ok(None);
        }
        write_record(generation, change, line).map(Some)
    }

    /// Updates the record of what is stored. Returns the change that leads back.
    fn apply(&mut self, change: GenerationDelta) -> GenerationDelta {
        let mut back = GenerationDelta::default();
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

    /// Updates the record of what is stored, and keeps the change that leads back.
    fn step(&mut self, generation: u64, change: GenerationDelta) {
        let before = std::mem::replace(&mut self.generation, generation);
        self.back = Some((before, self.apply(change)));
    }

    /// The generation before the last one, if that was saved ahead: for a start that cannot build the last
    /// one.
    #[must_use]
    pub fn before(&self) -> Option<ControllerGeneration> {
        let (generation, back) = self.back.as_ref()?;
        let mut objects = self.objects_of();
        back.gone.iter().for_each(|key| drop(objects.remove(key)));
        objects.extend(back.put.iter().map(|(key, object, _)| (key.clone(), Arc::clone(object))));
        Some(ControllerGeneration { generation: *generation, objects })
    }

    fn objects_of(&self) -> BTreeMap<ObjectKey, Arc<Object>> {
        self.written.iter().map(|(key, (object, _))| (key.clone(), Arc::clone(object))).collect()
    }

    /// Appends a line, if there is a journal.
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        // If the write fails, part of the line may exist: no line may follow.
        let Some(Journal { records, bytes }) = self.journal.take() else { return Ok(()) };
        self.disk.append(&self.journal(self.number), line)?;
        self.journal = Some(Journal { records: records + 1, bytes: bytes + line.len() });
        Ok(())
    }

    /// Adds the folder to an error.
    fn named<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.folder.display())))
    }

    /// Writes the objects that have no file yet. `all`: the objects of a generation, with their hashes.
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

    /// Writes files under names with [`NEW`], and renames them.
    fn put(&mut self, files: &[(PathBuf, Vec<u8>)]) -> io::Result<()> {
        match files {
            [(new, bytes)] => self.disk.write(new, bytes)?,
            several => self.disk.write_each(several)?,
        }
        files.iter().try_for_each(|(new, _)| self.disk.rename(new, &new.with_extension("")))
    }

    /// Writes objects, list and an empty journal.
    fn write_whole(&mut self, generation: u64, change: &GenerationDelta) -> io::Result<()> {
        let mut all = self.written.clone();
        change.gone.iter().for_each(|key| drop(all.remove(key)));
        all.extend(change.put.iter().map(|(key, object, hash)| (key.clone(), (Arc::clone(object), *hash))));
        self.write_objects(&all)?;
        let number = self.number + 1;
        self.disk.write(&self.journal(number), &[])?;
        let objects = all.iter().map(|(key, (_, hash))| (key.clone(), *hash)).collect();
        let list = GenerationIndex { form: FORM, generation, objects, journal: number };
        let (path, new) = (self.folder.join(LIST), self.folder.join(format!("{LIST}{NEW}")));
        self.disk.write(&new, &serde_json::to_vec(&list)?)?;
        self.disk.rename(&new, &path)?;
        self.disk.sync_folder(&self.folder)?;
        self.filed = all.values().map(|(_, hash)| *hash).collect();
        (self.number, self.journal) = (number, Some(Journal::default()));
        self.collect();
        Ok(())
    }

    /// Removes objects and journals of no list, and the note of an attempt. Removals that fail are repeated
    /// after the next list.
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

/// Formats a change as a line of the journal.
fn write_record(generation: u64, change: &GenerationDelta, line: JournalLineState) -> io::Result<Vec<u8>> {
    let put = change.put.iter().map(|(_, object, hash)| (*hash, object.as_ref())).collect();
    let mut text = serde_json::to_vec(&JournalRecord { generation, put, gone: change.gone.clone(), line })?;
    text.push(b'\n');
    Ok(text)
}

/// Parses a line of the journal, and checks the hashes of its objects.
fn read_record(line: &[u8]) -> Result<JournalRecord<Object>, String> {
    let line = line.strip_suffix(b"\n").ok_or("the last line is incomplete")?;
    let record: JournalRecord<Object> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    match record.put.iter().all(|(hash, object)| object.hash() == *hash) {
        true => Ok(record),
        false => Err("an object of a line does not have the stored hash".to_owned()),
    }
}

impl<D: Disk> GenerationStore for FileStore<D> {
    fn load(&mut self) -> io::Result<ControllerGeneration> {
        let path = self.folder.join(LIST);
        let bytes = match self.disk.read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(ControllerGeneration::default());
            }
            read => read?,
        };
        let list: GenerationIndex =
            serde_json::from_slice(&bytes).map_err(|error| self.wrong(&path, &error.to_string()))?;
        if !(FORM_READ..=FORM).contains(&list.form) {
            return Err(self.wrong(&path, &format!("form {} is unknown to this version", list.form)));
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
        Ok(ControllerGeneration { generation: self.generation, objects: self.objects_of() })
    }

    fn save(&mut self, held: &ControllerGeneration) -> io::Result<()> {
        let done = self.replace(held);
        self.named(done)
    }

    fn save_ahead(&mut self, held: &ControllerGeneration) -> io::Result<bool> {
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
        // An ordinary change: the generation before follows the one that cannot run.
        let line = write_record(generation, &back, JournalLineState::Built);
        self.apply(back);
        self.generation = generation;
        let done = line.and_then(|line| self.append(&line));
        self.named(done)
    }
}

impl<D: Disk> FileStore<D> {
    /// Stores a generation in place of the last one.
    fn replace(&mut self, held: &ControllerGeneration) -> io::Result<()> {
        let change = self.change(held);
        match self.line(held.generation, &change, JournalLineState::Built)? {
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

    /// Stores a generation ahead, if it fits a line of the journal. Returns whether it does.
    fn replace_ahead(&mut self, held: &ControllerGeneration) -> io::Result<bool> {
        let change = self.change(held);
        let Some(line) = self.line(held.generation, &change, JournalLineState::Ahead)? else {
            return Ok(false);
        };
        self.append(&line)?;
        self.step(held.generation, change);
        self.is_unproven = true;
        Ok(true)
    }

    /// Records that the generation saved ahead was built. Does not wait for the disk: if a crash of the
    /// system loses the line, the next start tries the generation once.
    fn write_proof(&mut self) -> io::Result<()> {
        let Some(Journal { records, bytes }) = self.journal.take() else {
            // After a start: its journal may end in half a line, so nothing is appended.
            self.back = None;
            return self.write_whole(self.generation, &GenerationDelta::default());
        };
        let line = write_record(self.generation, &GenerationDelta::default(), JournalLineState::Proof)?;
        self.disk.append_soon(&self.journal(self.number), &line)?;
        self.journal = Some(Journal { records, bytes: bytes + line.len() });
        Ok(())
    }

    /// The generation that an earlier start tried without proof.
    fn trial(&mut self) -> Option<u64> {
        let bytes = self.disk.read(&self.folder.join(TRIAL)).ok()?;
        serde_json::from_slice(&bytes).ok().map(|trial: Trial| trial.generation)
    }

    /// Permits to build the loaded generation. `false`: an earlier start tried it and did not survive, so
    /// [`FileStore::before`] should be built instead. A proven generation is always permitted.
    ///
    /// # Errors
    /// The attempt cannot be noted.
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
