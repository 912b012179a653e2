// SPDX-License-Identifier: Apache-2.0
//! What a store does with files, so that tests can stop it at any step.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;

/// Files that are written at the same time.
const WRITERS: usize = 16;

/// See the module. What an operation has done is durable where it says so, and only there.
pub trait Disk {
    /// The content of a file.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>>;

    /// Writes a file in place of the one that may be there. Its content is durable then.
    ///
    /// # Errors
    /// It cannot be written; part of it may be there.
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Writes behind the end of a file that is there. When it returns that is durable.
    ///
    /// # Errors
    /// It cannot be written; part of it may be there.
    fn append(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// The same without waiting for the disk: behind a crash of the system it may not be there, behind one of
    /// the program it is.
    ///
    /// # Errors
    /// It cannot be written; part of it may be there.
    fn append_soon(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.append(path, bytes)
    }

    /// Writes several files, as [`Disk::write`] does each. What waits for the disk may do so together.
    ///
    /// # Errors
    /// One of them cannot be written; part of them may be there.
    fn write_each(&mut self, files: &[(PathBuf, Vec<u8>)]) -> io::Result<()> {
        files.iter().try_for_each(|(path, bytes)| self.write(path, bytes))
    }

    /// Gives a file another name, in place of the file that may have it.
    ///
    /// # Errors
    /// Nothing has changed.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;

    /// Names that were given in a folder are durable then.
    ///
    /// # Errors
    /// They may not be.
    fn sync_folder(&mut self, folder: &Path) -> io::Result<()>;

    /// Makes a folder, and those above it, for the owner only, if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    fn make_folder(&mut self, folder: &Path) -> io::Result<()>;

    /// The names of a folder's files.
    ///
    /// # Errors
    /// It cannot be read.
    fn names(&mut self, folder: &Path) -> io::Result<Vec<String>>;

    /// Removes a file.
    ///
    /// # Errors
    /// It is still there.
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
        // A journal takes many files with one wait, if they are there at the same time: fourteen times as
        // many a second.
        let share = files.len().div_ceil(WRITERS).max(1);
        thread::scope(|scope| {
            let one = |own: &'_ [(PathBuf, Vec<u8>)]| {
                own.iter().try_for_each(|(path, bytes)| SystemDisk.write(path, bytes))
            };
            let begin = |own| thread::Builder::new().spawn_scoped(scope, move || one(own));
            // All of them, before the first is waited for.
            let writers = files.chunks(share).map(begin).collect::<io::Result<Vec<_>>>()?;
            let mut done = writers.into_iter().map(thread::ScopedJoinHandle::join);
            done.try_for_each(|done| done.unwrap_or_else(|_| Err(io::Error::other("a writer broke off"))))
        })
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&mut self, folder: &Path) -> io::Result<()> {
        // What a relative path of one part lies in has no name.
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(folder)?.sync_all()
    }

    fn make_folder(&mut self, folder: &Path) -> io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        // The names of the new folders, up to one that was there.
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
