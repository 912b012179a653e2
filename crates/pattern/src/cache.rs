// SPDX-License-Identifier: Apache-2.0
//! Compiled databases on disk, found by the hash of all their inputs.
//!
//! A file is used only if its own checksum holds and libhs accepts its version and platform; any other file
//! is replaced by a new compilation, silently and counted. Several processes may use one folder: files appear
//! by rename, and a file that vanishes while it is read is a miss. The folder's size is limited; the least
//! recently used files are removed first (by the file system's own times, as exact as these are).
//!
//! libhs executes a database like code: anybody who can write one controls the program. Hence the folder must
//! belong to the user (or root) and be writable for nobody else.
//!
//! Not supported: compression (databases are small and load fast), sharing over a network.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest as _, Sha256};

/// Identifies a file and the version of its layout: these bytes, key, checksum of the rest, rest.
const MAGIC: &[u8; 8] = b"BZPATC01";
const HEADER: usize = MAGIC.len() + 32 + 32;
const EXTENSION: &str = "hsdb";
/// Age, in seconds before the newest file, from which a temporary file counts as left over by a process that
/// ended early.
const ABANDONED_AFTER: i64 = 3600;
/// Default limit of all files, in bytes; see [`Cache::with_limit`].
pub const CACHE_BYTES: u64 = 256 << 20;
/// Size of a file system's block, in bytes; a file takes at least one.
const BLOCK: u64 = 4096;

/// A folder of compiled databases.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    limit: u64,
    /// Size of the folder's files in bytes, as far as this process knows.
    total: AtomicU64,
    sequence: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    refused: AtomicU64,
    stored: AtomicU64,
    pruned: AtomicU64,
    failed: AtomicU64,
}

/// Counters of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Complete files found.
    pub hits: u64,
    /// Databases not found.
    pub misses: u64,
    /// Files that were damaged, foreign, or refused by libhs, and whose databases were compiled again.
    pub refused: u64,
    /// Files written.
    pub stored: u64,
    /// Files removed because of the limit.
    pub pruned: u64,
    /// Files that could not be written (full disk, no permission); the program continues without them.
    pub failed: u64,
}

/// A folder that cannot be a cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The folder cannot be made or read.
    #[error(
        "the pattern cache {folder} cannot be used: {source}; choose another folder or go without a cache"
    )]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// Other users could put code into the folder.
    #[error(
        "the pattern cache {folder} {problem}: make it yours and `chmod 700` it, or choose another folder"
    )]
    Unsafe {
        /// The folder.
        folder: PathBuf,
        /// Description of the problem.
        problem: &'static str,
    },
}

/// Hash of a database's inputs; each part is hashed with its length, so that parts cannot run together.
pub(crate) struct CacheKey(Sha256);

impl CacheKey {
    pub(crate) fn new(kind: &str) -> Self {
        let mut key = Self(Sha256::new());
        key.part(MAGIC);
        key.part(kind.as_bytes());
        key
    }

    pub(crate) fn part(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

impl Cache {
    /// Opens `folder`, and makes it (for its owner only) if it does not exist.
    ///
    /// # Errors
    /// The folder cannot be made or read, belongs to another user, or other users can write to it.
    pub fn open(folder: &Path) -> Result<Self, CacheError> {
        Self::with_limit(folder, CACHE_BYTES)
    }

    /// Does as [`Self::open`], with at most `limit` bytes of files.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn with_limit(folder: &Path, limit: u64) -> Result<Self, CacheError> {
        let failed = |source| CacheError::Folder { folder: folder.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let metadata = fs::metadata(folder).map_err(failed)?;
        let refuse = |problem| Err(CacheError::Unsafe { folder: folder.to_owned(), problem });
        if metadata.mode() & 0o022 != 0 {
            return refuse("can be written by other users");
        }
        // The owner of a process' own entry is its effective user.
        if let Ok(me) = fs::metadata("/proc/self")
            && metadata.uid() != me.uid()
            && metadata.uid() != 0
        {
            return refuse("belongs to another user");
        }
        let cache = Self {
            folder: folder.to_owned(),
            limit,
            total: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            pruned: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        };
        cache.tidy(limit).map_err(failed)?;
        Ok(cache)
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Counters so far.
    #[must_use]
    pub fn counters(&self) -> CacheCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheCounters {
            hits: read(&self.hits),
            misses: read(&self.misses),
            refused: read(&self.refused),
            stored: read(&self.stored),
            pruned: read(&self.pruned),
            failed: read(&self.failed),
        }
    }

    /// The database stored for `key`, if its file exists and is intact.
    pub(crate) fn load(&self, key: &[u8; 32]) -> Option<Vec<u8>> {
        let Ok(mut content) = self.read(&self.path(key)) else {
            count(&self.misses);
            return None;
        };
        if !whole(&content, key) {
            count(&self.refused);
            return None;
        }
        content.drain(..HEADER);
        count(&self.hits);
        Some(content)
    }

    /// Counts a database from [`Self::load`] as unusable: one hit less, one refusal more.
    pub(crate) fn refuse(&self) {
        self.hits.fetch_sub(1, Ordering::Relaxed);
        count(&self.refused);
    }

    /// Stores a database. A failure is only counted: the next start compiles again.
    pub(crate) fn store(&self, key: &[u8; 32], database: &[u8]) {
        let size = file_size((HEADER + database.len()) as u64);
        if size > self.limit {
            count(&self.failed);
            return;
        }
        if self.write(key, database).is_err() {
            count(&self.failed);
            return;
        }
        count(&self.stored);
        if self.total.fetch_add(size, Ordering::Relaxed) + size > self.limit {
            // Down to three quarters, so that not every further file causes another removal.
            let _ = self.tidy(self.limit - self.limit / 4);
        }
    }

    fn path(&self, key: &[u8; 32]) -> PathBuf {
        self.folder.join(format!("{}.{EXTENSION}", hex(key)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = File::open(path)?;
        // A foreign file may have any size.
        let mut content = Vec::new();
        file.take(self.limit.max(HEADER as u64)).read_to_end(&mut content)?;
        Ok(content)
    }

    fn write(&self, key: &[u8; 32], database: &[u8]) -> io::Result<()> {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let temporary = self.folder.join(format!("{}.{}.{sequence}.tmp", hex(key), std::process::id()));
        let write = || -> io::Result<()> {
            // Always a new file, never an existing one or the target of a link.
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o640).open(&temporary)?;
            file.write_all(MAGIC)?;
            file.write_all(key)?;
            file.write_all(&Sha256::digest(database))?;
            file.write_all(database)?;
            drop(file);
            fs::rename(&temporary, self.path(key))
        };
        write().inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
    }

    /// Measures the folder, removes abandoned temporary files, and the oldest files until at most `target`
    /// bytes are left.
    fn tidy(&self, target: u64) -> io::Result<()> {
        let mut files: Vec<(i64, u64, PathBuf)> = Vec::new();
        let mut temporary: Vec<(i64, PathBuf)> = Vec::new();
        let mut newest = i64::MIN;
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            // Another process may have removed the file meanwhile.
            let Ok(metadata) = entry.metadata() else { continue };
            let path = entry.path();
            newest = newest.max(metadata.mtime());
            match path.extension().and_then(|e| e.to_str()) {
                Some(EXTENSION) => files.push((last_use(&metadata), file_size(metadata.len()), path)),
                Some("tmp") => temporary.push((metadata.mtime(), path)),
                _ => {}
            }
        }
        for (_, path) in temporary.iter().filter(|(time, _)| newest.saturating_sub(*time) > ABANDONED_AFTER) {
            let _ = fs::remove_file(path);
        }
        files.sort_unstable();
        let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
        for (_, size, path) in &files {
            if total <= target {
                break;
            }
            if fs::remove_file(path).is_ok() {
                count(&self.pruned);
            }
            total -= size;
        }
        self.total.store(total, Ordering::Relaxed);
        Ok(())
    }
}

/// Whether a file has the complete content that was written for `key`.
fn whole(content: &[u8], key: &[u8; 32]) -> bool {
    let Some((magic, rest)) = content.split_first_chunk::<8>() else { return false };
    let Some((stored_key, rest)) = rest.split_first_chunk::<32>() else { return false };
    let Some((checksum, database)) = rest.split_first_chunk::<32>() else { return false };
    magic == MAGIC && stored_key == key && Sha256::digest(database)[..] == checksum[..]
}

/// Time of a file's last use, in nanoseconds: the access time (which reading updates rarely, on most file
/// systems) or the modification time, whichever is later.
fn last_use(metadata: &Metadata) -> i64 {
    let nanoseconds = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
    nanoseconds(metadata.mtime(), metadata.mtime_nsec())
        .max(nanoseconds(metadata.atime(), metadata.atime_nsec()))
}

fn file_size(length: u64) -> u64 {
    length.max(BLOCK)
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn hex(key: &[u8; 32]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}
