// SPDX-License-Identifier: Apache-2.0
//! The non-blocking target of a [`super::stream::Stream`]: a connected socket, a pipe or terminal with an
//! open file of its own, or a socket that is standard output.

use crate::config::FileDestination;
use rustix::net::{SendFlags, send};
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The system's name of this process' standard output.
const STDOUT: &str = "/proc/self/fd/1";

/// Bytes that a socket gets at a time: with the system's header they fit in one page. The system frees a
/// piece of a socket's queue only when the reader has taken it whole, so the queue of a slow reader gets
/// shorter, and is written to again, with each few kilobytes that it takes.
const SOCKET_PIECE: usize = 3_584;

/// The address of a reader.
#[derive(Clone, Debug)]
pub(super) enum Address {
    /// The reader listens on a socket.
    Socket(PathBuf),
    /// The reader has a pipe open.
    Pipe(PathBuf, FileDestination),
    /// The reader of standard output.
    Stdout,
}

impl Address {
    /// Connects. Blocks for a socket whose backlog is full.
    pub(super) fn connect(&self) -> io::Result<Channel> {
        match self {
            Address::Socket(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(Channel::Socket(stream))
            }
            Address::Pipe(path, destination) => Ok(Channel::File(destination.rights.append(path)?)),
            Address::Stdout => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Whether another reader may come after one has gone.
    pub(super) const fn is_found_again(&self) -> bool {
        !matches!(self, Address::Stdout)
    }

    /// Whether the name may lead to another target now.
    pub(super) const fn is_reopened(&self) -> bool {
        matches!(self, Address::Pipe(..))
    }
}

/// A non-blocking target; see the module.
#[derive(Debug)]
pub(super) enum Channel {
    Socket(UnixStream),
    File(File),
    Shared(OwnedFd),
}

impl Channel {
    /// Standard output, if it can be written to without blocking; `None` for files and other kinds.
    pub(super) fn stdout() -> Option<Self> {
        let kind = std::fs::metadata(STDOUT).ok()?.file_type();
        if kind.is_socket() {
            // The socket is shared with other processes, so its flags must not change.
            return Some(Channel::Shared(io::stdout().as_fd().try_clone_to_owned().ok()?));
        }
        if !kind.is_fifo() && !io::stdout().is_terminal() {
            return None;
        }
        // An open file of its own, for the same reason.
        let mut options = OpenOptions::new();
        options.append(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        options.open(STDOUT).ok().map(Channel::File)
    }

    /// Writes the bytes that the target takes at once; returns their number.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Channel::Socket(stream) => stream.write(piece(bytes)),
            Channel::File(file) => file.write(bytes),
            Channel::Shared(socket) => {
                Ok(send(&*socket, piece(bytes), SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
            }
        }
    }
}

/// The first bytes, as many as a socket gets at a time.
fn piece(bytes: &[u8]) -> &[u8] {
    bytes.get(..SOCKET_PIECE).unwrap_or(bytes)
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Channel::Socket(stream) => stream.as_fd(),
            Channel::File(file) => file.as_fd(),
            Channel::Shared(socket) => socket.as_fd(),
        }
    }
}

/// Whether a path is a pipe.
pub(super) fn is_pipe(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}
