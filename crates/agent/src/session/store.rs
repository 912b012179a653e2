// SPDX-License-Identifier: Apache-2.0
//! What outlives the agent's process: the generation that runs, as the controller sent it.
//!
//! A folder: each object is a file under its hash, written once; a generation is the list of its objects' hashes. So a change writes what is
//! new and the list, and whatever stops it, the list that is there names files that are there. Objects that no list names are removed
//! behind it.

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
    /// What is known to be written, with its hash, which is not worked out again for objects that stay.
    written: BTreeMap<ObjectKey, (Arc<Object>, Hash)>,
    /// What a killed save may have left was looked for.
    swept: bool,
}

/// The list of a generation's objects.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    /// Version of the form.
    form: u32,
    generation: u64,
    objects: BTreeMap<ObjectKey, Hash>,
}

/// Version of the list's form.
const FORM: u32 = 2;

const LIST: &str = "generation.json";
const OBJECTS: &str = "objects";
/// Behind the names of files that are being written.
const NEW: &str = ".new";

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
        FileStore { folder: folder.to_owned(), disk, written: BTreeMap::new(), swept: false }
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

    /// Writes the objects that are not there yet. What the generation consists of.
    fn write_objects(&mut self, held: &Held) -> io::Result<BTreeMap<ObjectKey, (Arc<Object>, Hash)>> {
        let folder = self.objects();
        self.disk.make_folder(&folder)?;
        let there: BTreeSet<Hash> = self.written.values().map(|(_, hash)| *hash).collect();
        let mut all = BTreeMap::new();
        let mut any = false;
        for (key, object) in &held.objects {
            let known = self.written.get(key).filter(|(known, _)| Arc::ptr_eq(known, object));
            let hash = known.map_or_else(|| object.hash(), |(_, hash)| *hash);
            all.insert(key.clone(), (Arc::clone(object), hash));
            if there.contains(&hash) {
                continue;
            }
            let path = folder.join(hash.to_string());
            let new = folder.join(format!("{hash}{NEW}"));
            self.disk.write(&new, &serde_json::to_vec(object.as_ref())?)?;
            self.disk.rename(&new, &path)?;
            any = true;
        }
        if any {
            self.disk.sync_folder(&folder)?;
        }
        Ok(all)
    }

    /// Removes objects that no list names. What cannot be removed is tried again behind the next generation.
    fn collect(&mut self) {
        let folder = self.objects();
        let names: BTreeSet<String> = self.written.values().map(|(_, hash)| hash.to_string()).collect();
        for name in self.disk.names(&folder).unwrap_or_default() {
            if !names.contains(&name) {
                let _ = self.disk.remove(&folder.join(name));
            }
        }
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
        if list.form != FORM {
            return Err(self.wrong(&path, &format!("form {} is not known here", list.form)));
        }
        let mut written = BTreeMap::new();
        for (key, hash) in list.objects {
            let object = self.load_object(&key, hash)?;
            written.insert(key, (object, hash));
        }
        self.written = written;
        let objects =
            self.written.iter().map(|(key, (object, _))| (key.clone(), Arc::clone(object))).collect();
        Ok(Held { generation: list.generation, objects })
    }

    fn save(&mut self, held: &Held) -> io::Result<()> {
        let folder = self.folder.display().to_string();
        self.replace(held).map_err(|error| io::Error::new(error.kind(), format!("{folder}: {error}")))
    }
}

impl<D: Disk> FileStore<D> {
    fn replace(&mut self, held: &Held) -> io::Result<()> {
        let all = self.write_objects(held)?;
        let objects = all.iter().map(|(key, (_, hash))| (key.clone(), *hash)).collect();
        let list = List { form: FORM, generation: held.generation, objects };
        let (path, new) = (self.folder.join(LIST), self.folder.join(format!("{LIST}{NEW}")));
        self.disk.write(&new, &serde_json::to_vec(&list)?)?;
        self.disk.rename(&new, &path)?;
        self.disk.sync_folder(&self.folder)?;
        let fewer =
            self.written.iter().any(|(key, (_, hash))| all.get(key).is_none_or(|(_, now)| now != hash));
        self.written = all;
        if fewer || !std::mem::replace(&mut self.swept, true) {
            self.collect();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
