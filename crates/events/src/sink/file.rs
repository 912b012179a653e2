// SPDX-License-Identifier: Apache-2.0
//! A file that is appended to, and put aside when it is large enough.

use super::buffered::Medium;
use crate::config::FileDestination;
use std::ffi::OsString;
use std::fs::{File, OpenOptions, rename};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// An open file with its length.
#[derive(Debug)]
pub(super) struct FileMedium {
    destination: FileDestination,
    file: File,
    length: u64,
    /// Second of the first event that this program put into the file.
    begun: Option<u64>,
}

impl FileMedium {
    pub(super) fn open(destination: FileDestination) -> io::Result<Self> {
        let append = destination.append;
        let (file, length) = open(&destination.path, append)?;
        Ok(FileMedium { destination, file, length, begun: None })
    }

    /// `eve.json.3`.
    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = OsString::from(self.destination.path.as_os_str());
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }
}

/// Opens for appending, so that another program that shortens the file leaves no hole; a file that is not
/// continued is emptied first.
fn open(path: &Path, keep: bool) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    // Devices and pipes have no length to cut.
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok((file, 0));
    }
    if keep {
        return Ok((file, metadata.len()));
    }
    file.set_len(0)?;
    Ok((file, 0))
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
        let length = self.length.saturating_sub(bytes as u64);
        self.file.set_len(length)?;
        self.length = length;
        Ok(())
    }

    fn is_full(&self, bytes: usize) -> bool {
        match self.destination.rotate_size {
            Some(limit) => self.length > 0 && self.length.saturating_add(bytes as u64) > limit,
            None => false,
        }
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
        let keep = self.destination.rotate_keep;
        // Only up to the first gap: how many may be kept says nothing about how many there are.
        let mut last = 1;
        while last < keep && self.numbered(last).exists() {
            last += 1;
        }
        for number in (1..last).rev() {
            rename(self.numbered(number), self.numbered(number + 1))?;
        }
        if keep > 0 {
            rename(&self.destination.path, self.numbered(1))?;
        }
        // With nothing to keep the file itself is begun anew.
        (self.file, self.length) = open(&self.destination.path, keep > 0)?;
        Ok(())
    }

    fn reopen(&mut self) -> io::Result<()> {
        (self.file, self.length) = open(&self.destination.path, true)?;
        Ok(())
    }
}
