// SPDX-License-Identifier: Apache-2.0
//! The process at the other end of a Unix socket. It has nothing to do with packets, but the standard library
//! does not report it, and system calls are in this crate.
//!
//! Source: unix(7), `SO_PEERCRED`.

use crate::sys;
use std::fmt;
use std::io;
use std::os::fd::AsFd;

/// A process, as the kernel recorded it at the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProcess {
    /// The process's number; `None` if it has none in this process namespace.
    pub process: Option<u32>,
    /// The process's user.
    pub user: u32,
    /// The process's group.
    pub group: u32,
}

impl PeerProcess {
    /// The peer of a stream socket.
    ///
    /// # Errors
    /// It is no connected Unix socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let found: libc::ucred = sys::get_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED)?;
        let process = u32::try_from(found.pid).ok().filter(|pid| *pid != 0);
        Ok(PeerProcess { process, user: found.uid, group: found.gid })
    }
}

impl fmt::Display for PeerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process {
            Some(process) => write!(f, "process {process} (uid {}, gid {})", self.user, self.group),
            None => write!(f, "a process elsewhere (uid {}, gid {})", self.user, self.group),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_kernel_says_who_connected() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = PeerProcess::of(&one).unwrap();
        assert_eq!(peer.process, Some(std::process::id()));
        assert!(peer.to_string().starts_with(&format!("process {} (uid {}", std::process::id(), peer.user)));
        assert!(PeerProcess::of(std::fs::File::open("/dev/null").unwrap()).is_err());
        let elsewhere = PeerProcess { process: None, user: 1, group: 2 };
        assert_eq!(elsewhere.to_string(), "a process elsewhere (uid 1, gid 2)");
    }
}
