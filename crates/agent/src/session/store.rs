// SPDX-License-Identifier: Apache-2.0
//! What outlives the agent's process: the generation that runs, as the controller sent it.

use super::stage::Held;
use bartizan_api::southbound::Object;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where an agent keeps its generation. What was stored is there after a crash, whole.
pub trait Store {
    /// What was stored last; nothing at the first start.
    ///
    /// # Errors
    /// It cannot be read.
    fn load(&self) -> io::Result<Held>;

    /// Stores a generation in place of the one before. When this returns it is durable.
    ///
    /// # Errors
    /// It cannot be written; the one before is still there.
    fn save(&mut self, held: &Held) -> io::Result<()>;
}

/// A file in a folder of the agent's.
#[derive(Debug)]
pub struct FileStore {
    folder: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Stored<T> {
    /// Version of the form.
    form: u32,
    generation: u64,
    objects: T,
}

/// Version of the file's form.
const FORM: u32 = 1;

const FILE: &str = "generation.json";

impl FileStore {
    /// Keeps it in a folder, which is there.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        FileStore { folder: folder.to_owned() }
    }
}

impl Store for FileStore {
    fn load(&self) -> io::Result<Held> {
        let path = self.folder.join(FILE);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Held::default()),
            read => read?,
        };
        let wrong = |what: String| {
            let message = format!("{}: {what}; move it away to begin without a generation", path.display());
            io::Error::new(io::ErrorKind::InvalidData, message)
        };
        let stored: Stored<Vec<Object>> =
            serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        if stored.form != FORM {
            return Err(wrong(format!("form {} is not known here", stored.form)));
        }
        let objects = stored.objects.into_iter().map(|object| (object.key(), Arc::new(object))).collect();
        Ok(Held { generation: stored.generation, objects })
    }

    fn save(&mut self, held: &Held) -> io::Result<()> {
        let objects: Vec<&Object> = held.objects.values().map(Arc::as_ref).collect();
        let stored = Stored { form: FORM, generation: held.generation, objects };
        let new = self.folder.join(format!("{FILE}.new"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(&stored)?)?;
        file.sync_all()?;
        fs::rename(&new, self.folder.join(FILE))?;
        File::open(&self.folder)?.sync_all()
    }
}
