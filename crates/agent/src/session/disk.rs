// SPDX-License-Identifier: Apache-2.0
//! File operations of a store, as a trait, so that tests can stop it at any step.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;

/// Files that are written in parallel.
const WRITERS: usize = 16;

/// File operations. They are durable only where stated.
pub trait Disk {
    /// The content of a file.
    ///
    /// # Errors
    /// The file does not exist, or cannot be read.
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>>;

    /// Writes a file, replacing an existing one. Its content is durable then.
    ///
    /// # Errors
    /// The file cannot be written; part of it may exist.
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Appends to an existing file, durably.
    ///
    /// # Errors
    /// The data cannot be written; part of it may exist.
    fn append(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Appends without waiting for the disk: the data survives a crash of the program, but maybe not of the
    /// system.
    ///
    /// # Errors
    /// The data cannot be written; part of it may exist.
    fn append_soon(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.append(path, bytes)
    }

    /// Writes several files, each as [`Disk::write`] does. Waits for the disk may be combined.
    ///
    /// # Errors
    /// A file cannot be written; some may exist in part.
    fn write_each(&mut self, files: &[(PathBuf, Vec<u8>)]) -> io::Result<()> {
        files.iter().try_for_each(|(path, bytes)| self.write(path, bytes))
    }

    /// Renames a file, replacing an existing one.
    ///
    /// # Errors
    /// Nothing has changed.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes new names in a folder durable.
    ///
    /// # Errors
    /// The names may not be durable.
    fn sync_folder(&mut self, folder: &Path) -> io::Result<()>;

    /// Makes a folder, with its parents, accessible to the owner only, unless it exists.
    ///
    /// # Errors
    /// The folder cannot be made.
    fn make_folder(&mut self, folder: &Path) -> io::Result<()>;

    /// Names of the files in a folder.
    ///
    /// # Errors
    /// The folder cannot be read.
    fn names(&mut self, folder: &Path) -> io::Result<Vec<String>>;

    /// Removes a file.
    ///
    /// # Errors
    /// The file still exists.
    fn remove(&mut self, path: &Path) -> io::Result<()>;
}

/// The system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn append(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).open(path)?;
        file.write_all(bytes)?;
        file.sync_data()
    }

    fn append_soon(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        OpenOptions::new().append(true).open(path)?.write_all(bytes)
    }

    fn write_each(&mut self, files: &[(PathBuf, Vec<u8>)]) -> io::Result<()> {
        // A journaling file system commits files that are written at the same time with one wait.
        let share = files.len().div_ceil(WRITERS).max(1);
        thread::scope(|scope| {
            let one = |own: &'_ [(PathBuf, Vec<u8>)]| {
                own.iter().try_for_each(|(path, bytes)| SystemDisk.write(path, bytes))
            };
            let begin = |own| thread::Builder::new().spawn_scoped(scope, move || one(own));
            // All writers start before the first is joined.
            let writers = files.chunks(share).map(begin).collect::<io::Result<Vec<_>>>()?;
            let mut done = writers.into_iter().map(thread::ScopedJoinHandle::join);
            done.try_for_each(|done| done.unwrap_or_else(|_| Err(io::Error::other("a writer thread failed"))))
        })
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&mut self, folder: &Path) -> io::Result<()> {
        // A relative path of one part has an empty parent.
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(folder)?.sync_all()
    }

    fn make_folder(&mut self, folder: &Path) -> io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        // Makes the names of the new folders durable, up to an existing one.
        folder.ancestors().skip(1).take(2).try_for_each(|above| self.sync_folder(above))
    }

    fn names(&mut self, folder: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_the_working_folder_can_be_made_durable() {
        assert!(SystemDisk.sync_folder(Path::new("")).is_ok());
        let made = format!("made-by-a-test-{}/objects", std::process::id());
        let made = Path::new(&made);
        let done = SystemDisk.make_folder(made);
        let there = made.is_dir();
        let _ = fs::remove_dir_all(made.parent().unwrap_or(made));
        assert!(done.is_ok() && there, "{done:?}");
    }
}
