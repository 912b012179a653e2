// SPDX-License-Identifier: Apache-2.0
//! Pins of attachments, by which these outlive the process: a file for each interface, in a folder of the
//! bpf file system that only its owner reads.
//!
//! Source: Linux `Documentation/bpf/`, `kernel/bpf/inode.c`. An attachment holds its program, and that its
//! tables: nothing else has to be pinned, and there is no moment at which parts of two runs are pinned. The
//! file system is gone after a restart of the machine. A name has the numbers of the network namespace and
//! of the interface in it, since numbers of interfaces repeat in others; the attachment's own interface is
//! read from the kernel, to be sure that it is the same.

use crate::error::XdpError;
use crate::sys::{self, Attachment};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

const FILE_SYSTEM: &str = "/sys/fs/bpf";
/// The folder of all pins: removing its files removes programs that a process has left.
pub const PINS: &str = "/sys/fs/bpf/bartizan";
/// The permission bits of other users.
const OTHERS: u32 = 0o077;

/// The file of an interface's pinned attachment.
#[derive(Debug)]
pub(crate) struct Pin(PathBuf);

impl Pin {
    /// The pin of an interface of this network namespace.
    pub(crate) fn of(ifindex: u32) -> Result<Self, XdpError> {
        // No dot: the file system refuses it.
        Ok(Pin(Path::new(PINS).join(format!("net{}_if{ifindex}", namespace()?))))
    }

    /// All pins of interfaces of this network namespace, by their numbers.
    pub(crate) fn all() -> Result<Vec<(u32, Self)>, XdpError> {
        let begin = format!("net{}_if", namespace()?);
        let files = match fs::read_dir(PINS) {
            Ok(files) => files,
            // Either nothing is pinned, or the folder is another user's.
            Err(error) if is_not_ours(&error) => return Ok(Vec::new()),
            Err(error) => return Err(XdpError::system(None, "reading the folder of pins", error)),
        };
        let of = |name: &str| name.strip_prefix(&begin)?.parse().ok();
        let names = files.filter_map(Result::ok).map(|file| file.file_name());
        let numbers = names.filter_map(|name| of(&name.to_string_lossy()));
        Ok(numbers.map(|ifindex| (ifindex, Pin(Path::new(PINS).join(format!("{begin}{ifindex}"))))).collect())
    }

    /// The pinned attachment, if there is one.
    ///
    /// # Errors
    /// There is one, and another user may have pinned it.
    pub(crate) fn find(&self) -> Result<Option<Attachment>, XdpError> {
        match fs::symlink_metadata(&self.0) {
            Ok(_) => check_folder()?,
            Err(error) if is_not_ours(&error) => return Ok(None),
            Err(error) => return Err(XdpError::system(None, "looking for its pin", error)),
        }
        Ok(Attachment::pinned(&self.0).ok())
    }

    /// Its path, for people.
    pub(crate) fn path(&self) -> String {
        self.0.display().to_string()
    }

    /// Checks that an attachment can be pinned.
    pub(crate) fn prepare(&self) -> Result<(), XdpError> {
        make_folder()
    }

    /// Pins an attachment.
    pub(crate) fn put(&self, attachment: &Attachment) -> Result<(), XdpError> {
        make_folder()?;
        attachment.pin(&self.0).map_err(|source| XdpError::system(None, "pinning its program", source))
    }

    /// Removes the file. The folder stays: another run may be about to pin something in it.
    pub(crate) fn remove(&self) {
        // It may be removed already.
        let _ = fs::remove_file(&self.0);
    }
}

/// Number of this network namespace.
fn namespace() -> Result<u64, XdpError> {
    let namespace = fs::metadata("/proc/thread-self/ns/net")
        .map_err(|source| XdpError::system(None, "asking for the network namespace", source))?;
    Ok(namespace.ino())
}

/// Whether there is no such file, or only other users may read it: this user has not made it.
fn is_not_ours(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

/// Makes the folder; no other user may be able to write to it.
fn make_folder() -> Result<(), XdpError> {
    let failed = |source| XdpError::system(None, "making the folder of its pins", source);
    if !sys::is_bpf_file_system(Path::new(FILE_SYSTEM)).unwrap_or(false) {
        return Err(XdpError::NoFileSystem);
    }
    match DirBuilder::new().mode(0o700).create(PINS) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    check_folder()
}

/// Checks that the folder exists, and that no other user can write to it.
fn check_folder() -> Result<(), XdpError> {
    let failed = |source| XdpError::system(None, "looking at the folder of its pins", source);
    let found = fs::symlink_metadata(PINS).map_err(failed)?;
    if !found.is_dir() || found.uid() != sys::user() || found.mode() & OTHERS != 0 {
        return Err(XdpError::OpenFolder);
    }
    Ok(())
}
