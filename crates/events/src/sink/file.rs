// SPDX-License-Identifier: Apache-2.0
//! A file that is appended to and rotated by size, or several files with the time in their names
//! ([`super::name`]).
//!
//! Other programs may change the name meanwhile: a file that another program has renamed is written to until
//! [`Medium::reopen`] (logrotate's way), a removed file is begun again, and a missing file need not be
//! rotated. Pipes and devices that replace a regular file are written to as they are. A pipe that exists from
//! the start is a stream ([`super::stream`]).

use super::buffered::Medium;
use super::name;
use crate::config::{FileDestination, RotateInterval};
use std::ffi::OsString;
use std::fs::{File, rename};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// An open file with its length.
#[derive(Debug)]
pub(super) struct FileMedium {
    destination: FileDestination,
    /// Folder that relative names refer to.
    folder: PathBuf,
    /// The name of the file that is open.
    path: PathBuf,
    /// Seconds since the epoch by the wall clock, on which names and `rotate-interval` are based in Suricata,
    /// too.
    clock: fn() -> u64,
    /// Time of the next new name.
    rename_at: Option<u64>,
    /// The time of a new name has come.
    renames: bool,
    file: File,
    kind: FileKind,
    length: u64,
    /// Second of the first event that this program wrote to the file.
    begun: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Regular,
    Pipe,
    /// A pipe or device.
    Device,
}

impl FileMedium {
    /// Opens the file; a failure also returns the name. `clock`: seconds since the epoch.
    pub(super) fn open(
        destination: FileDestination,
        folder: &Path,
        clock: fn() -> u64,
    ) -> Result<Self, (PathBuf, io::Error)> {
        let now = clock();
        let path = name_at(&destination, folder, now);
        let (file, kind, length) = match open(&destination, &path, destination.append) {
            Ok(opened) => opened,
            Err(error) => return Err((path, error)),
        };
        let rename_at = destination.rotate_interval.map(|interval| interval.first_after(now));
        let folder = folder.to_owned();
        Ok(FileMedium {
            destination,
            folder,
            path,
            clock,
            rename_at,
            renames: false,
            file,
            kind,
            length,
            begun: None,
        })
    }

    /// The name of the file that is open.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Path of a rotated file: `eve.json.3`.
    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = OsString::from(self.path.as_os_str());
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }

    /// Opens the file that has the name now. If that fails, the old file stays open.
    fn open_anew(&mut self, keep: bool) -> io::Result<()> {
        let path = name_at(&self.destination, &self.folder, (self.clock)());
        // A file of another name may exist already.
        let keep = keep || path != self.path;
        (self.file, self.kind, self.length) = open(&self.destination, &path, keep)?;
        self.path = path;
        Ok(())
    }

    /// Gives the file and earlier rotated ones the next higher numbers.
    fn shift_rotated(&self) -> io::Result<()> {
        let keep = self.destination.rotate_keep;
        // If no rotated files are kept, the file itself is emptied; a file that another program removed need
        // not be rotated.
        if keep == 0 || !is_there(&self.path) {
            return Ok(());
        }
        // Only up to the first gap: the limit does not tell how many files exist.
        let mut last = 1;
        while last < keep && is_there(&self.numbered(last)) {
            last += 1;
        }
        for number in (1..last).rev() {
            rename_what_is_there(&self.numbered(number), &self.numbered(number + 1))?;
        }
        rename_what_is_there(&self.path, &self.numbered(1))
    }
}

/// Whether the name is in use, even by a dangling link.
fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Renames a file if it exists: another program may remove old files at the same time.
fn rename_what_is_there(from: &Path, to: &Path) -> io::Result<()> {
    match rename(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound && !is_there(from) => Ok(()),
        done => done,
    }
}

/// Seconds since the epoch.
pub(super) fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The file's name at a time.
pub(super) fn name_at(destination: &FileDestination, folder: &Path, now: u64) -> PathBuf {
    match destination.path.to_str().filter(|path| path.contains('%')) {
        Some(pattern) => folder.join(name::expand(pattern, now)),
        None => folder.join(&destination.path),
    }
}

impl RotateInterval {
    /// The first time after `now` at which the file gets a new name.
    fn first_after(self, now: u64) -> u64 {
        match self {
            RotateInterval::Next(span) => (now / span.max(1) + 1).saturating_mul(span.max(1)),
            RotateInterval::Every(span) => now.saturating_add(span),
        }
    }
}

/// Opens for appending, so that another program that shortens the file leaves no hole; a file that is not
/// continued is emptied first.
fn open(destination: &FileDestination, path: &Path, keep: bool) -> io::Result<(File, FileKind, u64)> {
    // Folders with the time in their names are made on demand.
    if destination.path.to_str().is_some_and(|pattern| pattern.contains('%'))
        && let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty())
    {
        destination.rights.make_folder(folder)?;
    }
    let file = destination.rights.append(path)?;
    // Devices and pipes have no length to truncate.
    let metadata = file.metadata()?;
    if metadata.file_type().is_fifo() {
        return Ok((file, FileKind::Pipe, 0));
    }
    if !metadata.is_file() {
        return Ok((file, FileKind::Device, 0));
    }
    if keep {
        return Ok((file, FileKind::Regular, metadata.len()));
    }
    file.set_len(0)?;
    Ok((file, FileKind::Regular, 0))
}

impl Medium for FileMedium {
    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.length += written as u64;
        Ok(written)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    fn take_back(&mut self, bytes: usize) -> io::Result<()> {
        if self.kind != FileKind::Regular {
            return Err(ErrorKind::Unsupported.into());
        }
        // Another program may have shortened the file (logrotate's `copytruncate`): the removed part must not
        // come back as zeros.
        let length = self.file.metadata()?.len().saturating_sub(bytes as u64);
        self.file.set_len(length)?;
        self.length = length;
        Ok(())
    }

    fn is_full(&mut self, bytes: usize) -> bool {
        let Some(limit) = self.destination.rotate_size.filter(|_| self.kind == FileKind::Regular) else {
            return false;
        };
        let is_over = |length: u64| length > 0 && length.saturating_add(bytes as u64) > limit;
        if !is_over(self.length) {
            return false;
        }
        // Unless another program has shortened the file meanwhile.
        if let Ok(found) = self.file.metadata() {
            self.length = found.len();
        }
        is_over(self.length)
    }

    fn is_renamed(&mut self) -> bool {
        let Some(at) = self.rename_at else { return false };
        let now = (self.clock)();
        if now < at {
            return false;
        }
        self.rename_at = self.destination.rotate_interval.map(|interval| interval.first_after(now));
        self.renames = true;
        true
    }

    fn is_timed(&self) -> bool {
        self.destination.rotate_every.is_some()
    }

    fn is_due(&mut self, second: u64) -> bool {
        let (Some(every), begun) = (self.destination.rotate_every, *self.begun.get_or_insert(second)) else {
            return false;
        };
        let due = second.saturating_sub(begun) >= every && self.length > 0;
        if due {
            self.begun = Some(second);
        }
        due
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.kind != FileKind::Regular {
            return Ok(());
        }
        // With the time in the name nothing is rotated; without it the same file is continued, as in
        // Suricata.
        if core::mem::take(&mut self.renames) {
            return self.open_anew(true);
        }
        self.shift_rotated()?;
        self.open_anew(self.destination.rotate_keep > 0)
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.open_anew(true)
    }

    fn is_gone(&self) -> bool {
        self.kind == FileKind::Regular && self.file.metadata().is_ok_and(|found| found.nlink() == 0)
    }
}
