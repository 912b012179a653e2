// SPDX-License-Identifier: Apache-2.0
//! Stores files of the traffic on disk, laid out as Suricata's file-store v2: `DIR/ab/abcd...` by SHA-256,
//! `DIR/tmp/file.N` while a file is open, and beside it a record if `write-fileinfo` enables it. Source:
//! Suricata 8's user guide, "File-store".
//!
//! A thread writes. Workers pass pieces of files to it by a bounded queue; if the queue is full, a worker
//! either waits (captures) or gives the file up and counts it (live). Not supported: `force-magic`; the 256
//! folders are made on demand.

use crate::output::Rights;
use crate::xff::XffOptions;
use bartizan_base::turns::wait_for_turn;
use bartizan_base::{SettingError, SettingsMap};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

/// Length of the writer's queue, in pieces.
pub(crate) const QUEUE: usize = 1024;
/// Limit of files that the writer keeps open; other files are opened for each piece.
pub(crate) const OPEN_MAX: usize = 256;

/// Settings of the output `file-store`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileStoreOptions {
    /// Folder below the output folder, or absolute.
    pub dir: Option<PathBuf>,
    /// Every file is stored, not only those that rules request.
    pub force: bool,
    /// A record is written beside each file.
    pub write_fileinfo: bool,
    /// Bytes of a direction that are reassembled for stored files; 0 for all, `None` for the setting of the
    /// stream engine.
    pub stream_depth: Option<u64>,
    /// Limit of open files (`max-open-files`); 0 for the built-in limit.
    pub max_open: usize,
    /// Addresses for which proxies forward, in the records.
    pub xff: Option<XffOptions>,
    /// Access rights of the files.
    pub rights: Rights,
}

impl FileStoreOptions {
    /// Reads the first enabled `file-store` output; `None` without one. `warnings` gets messages about values
    /// that were not followed.
    ///
    /// # Errors
    /// A value has the wrong type for its key.
    pub fn from_settings(
        settings: &SettingsMap,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Self>, SettingError> {
        for item in settings.children("outputs") {
            let prefix = format!("outputs.{item}.file-store");
            if !settings.has(&prefix) || !settings.bool(&format!("{prefix}.enabled"), false)? {
                continue;
            }
            let key = |name: &str| format!("{prefix}.{name}");
            settings.mark_read(&key("version"));
            let depth = match settings.get(&key("stream-depth")) {
                Some(_) => Some(settings.size(&key("stream-depth"), 0)?),
                None => None,
            };
            return Ok(Some(FileStoreOptions {
                dir: settings.get(&key("dir")).map(PathBuf::from),
                force: settings.bool(&key("force-filestore"), false)?,
                write_fileinfo: settings.bool(&key("write-fileinfo"), false)?,
                stream_depth: depth,
                max_open: settings.number(&key("max-open-files"), 0)?,
                xff: XffOptions::read(settings, &prefix, warnings)?,
                rights: Rights::from_settings(settings)?,
            }));
        }
        Ok(None)
    }
}

/// The treatment of a piece for which the queue has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenBehind {
    /// The worker waits for room.
    Wait,
    /// The file is given up and counted.
    GiveUp,
}

/// Counters of the store.
#[derive(Debug, Default)]
pub struct FileStoreCounters {
    /// Files stored, complete ones and cut ones.
    pub stored: AtomicU64,
    /// Failures of the file system.
    pub fs_errors: AtomicU64,
    /// Pieces of files that were not kept open, since the limit was reached.
    pub open_files_max_hit: AtomicU64,
    /// Files that are open now.
    pub open_files: AtomicU64,
    /// Files given up because the queue was full.
    pub lost: AtomicU64,
    /// Files that a rule requested after some of their content was dropped.
    pub too_late: AtomicU64,
}

impl FileStoreCounters {
    /// Calls `each` for every counter with its name in EVE's `stats`.
    pub fn for_each(&self, mut each: impl FnMut(&'static str, u64)) {
        for (name, counter) in [
            ("file_store.open_files", &self.open_files),
            ("file_store.open_files_max_hit", &self.open_files_max_hit),
            ("file_store.fs_errors", &self.fs_errors),
            ("file_store.stored", &self.stored),
            ("file_store.lost", &self.lost),
            ("file_store.too_late", &self.too_late),
        ] {
            each(name, counter.load(Ordering::Relaxed));
        }
    }
}

enum FileStoreMessage {
    Piece { id: u32, bytes: Vec<u8> },
    Close { id: u32, sha256: [u8; 32], record: Option<(u64, Vec<u8>)> },
    Drop { id: u32 },
    Finish,
}

/// A worker's connection to the store.
#[derive(Clone)]
pub struct FileStoreHandle {
    sender: SyncSender<FileStoreMessage>,
    next: Arc<AtomicU32>,
    counters: Arc<FileStoreCounters>,
    behind: WhenBehind,
    /// A record is written beside each file.
    pub write_fileinfo: bool,
    /// Addresses for which proxies forward, in these records.
    pub xff: Option<Arc<XffOptions>>,
}

impl FileStoreHandle {
    /// Assigns a number to a file that is about to be stored, from 1; over captures in the order of the
    /// packets.
    #[must_use]
    pub fn open(&self) -> u32 {
        wait_for_turn();
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes the worker wait for the writer from now on: at the end of a run no traffic is delayed.
    pub const fn wait_for_writer(&mut self) {
        self.behind = WhenBehind::Wait;
    }

    /// Counters of the store.
    #[must_use]
    pub fn counters(&self) -> &FileStoreCounters {
        &self.counters
    }

    /// Counters of the store, which outlive the handle.
    #[must_use]
    pub fn shared_counters(&self) -> Arc<FileStoreCounters> {
        Arc::clone(&self.counters)
    }

    /// Passes a piece of a file to the writer. `false`: the file is given up.
    #[must_use]
    pub fn piece(&self, id: u32, bytes: &[u8]) -> bool {
        bytes.is_empty() || self.send(FileStoreMessage::Piece { id, bytes: bytes.to_vec() })
    }

    /// Closes a file that is complete, or as complete as it will be. `record`: seconds and text of the record
    /// beside it.
    #[must_use]
    pub fn close(&self, id: u32, sha256: [u8; 32], record: Option<(u64, Vec<u8>)>) -> bool {
        self.send(FileStoreMessage::Close { id, sha256, record })
    }

    /// Discards the pieces of a file that is not to be stored.
    pub fn drop_file(&self, id: u32) {
        let _ = self.send(FileStoreMessage::Drop { id });
    }

    fn send(&self, message: FileStoreMessage) -> bool {
        let sent = match self.behind {
            WhenBehind::Wait => self.sender.send(message).is_ok(),
            WhenBehind::GiveUp => match self.sender.try_send(message) {
                Ok(()) => true,
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
            },
        };
        if !sent {
            self.counters.lost.fetch_add(1, Ordering::Relaxed);
        }
        sent
    }
}

/// The store: a folder and the thread that writes into it.
pub struct FileStoreOutput {
    handle: Option<FileStoreHandle>,
    counters: Arc<FileStoreCounters>,
    writer: Option<JoinHandle<Option<String>>>,
}

impl FileStoreOutput {
    /// Makes the folder and starts the writer. A relative `dir` lies below `folder`.
    ///
    /// # Errors
    /// The folder cannot be made, or the thread not started.
    pub fn start(options: &FileStoreOptions, folder: &Path, behind: WhenBehind) -> std::io::Result<Self> {
        let dir = options.dir.clone().unwrap_or_else(|| PathBuf::from("files"));
        let dir = folder.join(dir);
        options.rights.make_folder(&dir.join("tmp"))?;
        let counters = Arc::new(FileStoreCounters::default());
        let (sender, receiver) = sync_channel(QUEUE);
        let most = if options.max_open == 0 { OPEN_MAX } else { options.max_open.min(OPEN_MAX) };
        let mut writer = Writer {
            dir,
            most,
            rights: options.rights,
            files: HashMap::new(),
            counters: Arc::clone(&counters),
            problem: None,
        };
        let thread = std::thread::Builder::new().name("file-store".to_owned());
        let thread = thread.spawn(move || writer.run(&receiver))?;
        let handle = FileStoreHandle {
            sender,
            next: Arc::new(AtomicU32::new(1)),
            counters: Arc::clone(&counters),
            behind,
            write_fileinfo: options.write_fileinfo,
            xff: options.xff.clone().map(Arc::new),
        };
        Ok(FileStoreOutput { handle: Some(handle), counters, writer: Some(thread) })
    }

    /// A connection to the store, for a worker.
    #[must_use]
    pub fn handle(&self) -> Option<FileStoreHandle> {
        self.handle.clone()
    }

    /// Waits until all pieces so far are written; later ones are lost. Returns the first problem, if there
    /// was one.
    pub fn finish(&mut self) -> Option<String> {
        if let Some(handle) = self.handle.take() {
            // Fails only if the writer has ended, which joining it reports.
            let _ = handle.sender.send(FileStoreMessage::Finish);
        }
        self.writer
            .take()?
            .join()
            .unwrap_or_else(|_| Some("the writer of files ended by a defect".to_owned()))
    }

    /// Counters of the store.
    #[must_use]
    pub fn counters(&self) -> &FileStoreCounters {
        &self.counters
    }
}

struct Writer {
    dir: PathBuf,
    most: usize,
    rights: Rights,
    files: HashMap<u32, File>,
    counters: Arc<FileStoreCounters>,
    problem: Option<String>,
}

impl Writer {
    fn run(&mut self, receiver: &Receiver<FileStoreMessage>) -> Option<String> {
        while let Ok(message) = receiver.recv() {
            let done = match message {
                FileStoreMessage::Piece { id, bytes } => self.piece(id, &bytes),
                FileStoreMessage::Close { id, sha256, record } => self.close(id, &sha256, record),
                FileStoreMessage::Finish => break,
                FileStoreMessage::Drop { id } => {
                    self.files.remove(&id);
                    std::fs::remove_file(self.temporary(id))
                }
            };
            if let Err(error) = done {
                self.counters.fs_errors.fetch_add(1, Ordering::Relaxed);
                let dir = self.dir.display();
                self.problem.get_or_insert_with(|| format!("files are not kept in {dir}: {error}"));
            }
            self.counters.open_files.store(self.files.len() as u64, Ordering::Relaxed);
        }
        self.problem.take()
    }

    fn temporary(&self, id: u32) -> PathBuf {
        self.dir.join("tmp").join(format!("file.{id}"))
    }

    fn piece(&mut self, id: u32, bytes: &[u8]) -> std::io::Result<()> {
        if let Some(file) = self.files.get_mut(&id) {
            return file.write_all(bytes);
        }
        let mut file = self.rights.append(&self.temporary(id))?;
        file.write_all(bytes)?;
        if self.files.len() < self.most {
            self.files.insert(id, file);
        } else {
            self.counters.open_files_max_hit.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn close(&mut self, id: u32, sha256: &[u8; 32], record: Option<(u64, Vec<u8>)>) -> std::io::Result<()> {
        let temporary = self.temporary(id);
        if self.files.remove(&id).is_none() {
            // Without any piece the file is empty.
            self.rights.append(&temporary)?;
        }
        let name: String = sha256.iter().map(|b| format!("{b:02x}")).collect();
        let folder = self.dir.join(name.get(..2).unwrap_or("00"));
        self.rights.make_folder(&folder)?;
        let path = folder.join(&name);
        // A file with this content exists already: one copy is enough.
        if path.symlink_metadata().is_ok() {
            std::fs::remove_file(&temporary)?;
        } else {
            std::fs::rename(&temporary, &path)?;
        }
        self.counters.stored.fetch_add(1, Ordering::Relaxed);
        if let Some((seconds, text)) = record {
            self.rights.write(&folder.join(format!("{name}.{seconds}.{id}.json")), &text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_base::turns::CaptureTurns;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("bartizan-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn files_lie_by_their_hash() {
        let folder = folder("file-store");
        let options = FileStoreOptions { max_open: 1, ..FileStoreOptions::default() };
        let mut store = FileStoreOutput::start(&options, &folder, WhenBehind::Wait).unwrap();
        let handle = store.handle().unwrap();
        let (one, two, three, none) = (handle.open(), handle.open(), handle.open(), handle.open());
        assert_eq!((one, two), (1, 2));
        // Two files at once, with a limit of one open file.
        for bytes in [b"ab".as_slice(), b"cd"] {
            assert!(handle.piece(one, bytes) && handle.piece(two, bytes) && handle.piece(three, bytes));
        }
        assert!(
            handle.close(one, [0xab; 32], Some((7, b"{}".to_vec()))) && handle.close(two, [0xcd; 32], None)
        );
        // The content of the first file again, an empty file, and one that is discarded.
        let again = handle.open();
        assert!(handle.piece(again, b"abcd") && handle.close(again, [0xab; 32], None));
        assert!(handle.close(none, [0; 32], None));
        handle.drop_file(three);
        assert_eq!(store.finish(), None);
        let read = |name: &str| std::fs::read(folder.join("files").join(name)).ok();
        let hash = |byte: &str| format!("{byte}/{}", byte.repeat(32));
        assert_eq!(read(&hash("ab")).as_deref(), Some(b"abcd".as_slice()));
        assert_eq!(read(&hash("cd")).as_deref(), Some(b"abcd".as_slice()));
        assert_eq!(read(&hash("00")).as_deref(), Some(b"".as_slice()));
        assert_eq!(read(&format!("{}.7.1.json", hash("ab"))).as_deref(), Some(b"{}".as_slice()));
        assert_eq!(std::fs::read_dir(folder.join("files/tmp")).unwrap().count(), 0);
        let mut counted = Vec::new();
        store.counters().for_each(|name, value| counted.push((name, value)));
        assert!(
            counted.contains(&("file_store.stored", 4)) && counted.contains(&("file_store.fs_errors", 0))
        );
        assert!(counted.iter().any(|(name, value)| *name == "file_store.open_files_max_hit" && *value > 0));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn numbers_are_drawn_in_the_order_of_the_packets() {
        let (folder, turns) = (folder("file-store-turns"), CaptureTurns::new(2));
        let store = FileStoreOutput::start(&FileStoreOptions::default(), &folder, WhenBehind::Wait).unwrap();
        let (behind, ahead) = (turns.take_part(0), AtomicU64::new(0));
        behind.at(1, 0);
        std::thread::scope(|scope| {
            let (turns, ahead, handle) = (&turns, &ahead, store.handle().unwrap());
            let later = scope.spawn(move || {
                let turn = turns.take_part(1);
                turn.at(9, 0);
                ahead.store(1, Ordering::Release);
                handle.open()
            });
            while ahead.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            // Time for the event that must not happen.
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert_eq!(store.handle().unwrap().open(), 1, "the file of frame 1");
            drop(behind);
            assert_eq!(later.join().unwrap(), 2, "that of frame 9");
        });
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_folder_that_goes_away_is_said_once() {
        let folder = folder("file-store-gone");
        let mut store =
            FileStoreOutput::start(&FileStoreOptions::default(), &folder, WhenBehind::Wait).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let handle = store.handle().unwrap();
        for id in [handle.open(), handle.open()] {
            assert!(handle.piece(id, b"x"));
        }
        assert!(store.finish().unwrap().contains("files are not kept"));
        assert_eq!(store.counters().fs_errors.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn settings() {
        let mut settings = SettingsMap::new();
        assert_eq!(FileStoreOptions::from_settings(&settings, &mut Vec::new()), Ok(None));
        settings.set("outputs.0.file-store.enabled", "yes");
        settings.set("outputs.0.file-store.stream-depth", "1mb");
        settings.set("outputs.0.file-store.dir", "/var/files");
        settings.set("outputs.0.file-store.force-filestore", "yes");
        let read = FileStoreOptions::from_settings(&settings, &mut Vec::new()).unwrap().unwrap();
        assert!(read.force && !read.write_fileinfo);
        assert_eq!((read.stream_depth, read.dir), (Some(1 << 20), Some(PathBuf::from("/var/files"))));
        settings.set("outputs.0.file-store.force-filestore", "maybe");
        assert!(FileStoreOptions::from_settings(&settings, &mut Vec::new()).is_err());
    }
}
