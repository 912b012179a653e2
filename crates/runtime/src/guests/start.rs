// SPDX-License-Identifier: Apache-2.0
//! Starts a program as a guest: connects to the guest's socket, and gives the program the connection and the
//! socket library.

use crate::error::Failure;
use bartizan_toe::guest::GUEST_DESCRIPTOR;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

/// File name of the socket library.
pub const LIBRARY: &str = "libbartizan_sock.so";
/// Numbers from here on are for the guest's descriptor: programs expect the lowest free number.
const DESCRIPTOR: i32 = 800;
/// Variable that names libraries which programs load first.
const PRELOAD: &str = "LD_PRELOAD";

/// Connects to a guest's socket.
///
/// # Errors
/// The kernel's error.
pub fn connect(path: &Path) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket)
}

/// The socket library: the named one, or that beside this program, in `../lib/bartizan` or `../lib`.
///
/// # Errors
/// There is none.
pub fn library(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let found = |path: PathBuf| path.is_file().then(|| path.canonicalize().unwrap_or(path));
    if let Some(named) = named {
        return found(named.to_owned()).ok_or_else(|| {
            Failure::usage(format!(
                "the socket library {} does not exist; name the path of {LIBRARY}",
                named.display()
            ))
        });
    }
    let folder = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.to_owned()));
    let folder = folder.unwrap_or_default();
    let places = [folder.clone(), folder.join("../lib/bartizan"), folder.join("../lib")];
    places.iter().find_map(|place| found(place.join(LIBRARY))).ok_or_else(|| {
        Failure::usage(format!(
            "the socket library {LIBRARY} is neither beside this program nor in ../lib; name its path with --library FILE"
        ))
    })
}

/// A command that is a guest once it is started.
#[derive(Debug)]
pub struct PreparedGuest {
    /// The command.
    pub command: Command,
    /// The guest's descriptor, which the command inherits: to be kept until it is started.
    pub descriptor: OwnedFd,
}

/// Prepares a command to be started as a guest.
///
/// # Errors
/// The guest's socket cannot be reached, or no command is named.
pub fn prepare(socket: &Path, library: &Path, command: &[OsString]) -> Result<PreparedGuest, Failure> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| Failure::usage("the command to start is missing"))?;
    let guest = connect(socket).map_err(|error| {
        let advice = match error {
            Errno::NOENT => {
                "is bartizan running, and is the link a guest (`guest: {}` in the host file)? Name another socket with --socket PATH"
            }
            Errno::CONNREFUSED => "the socket is left over from a program that was killed; start the \
                 program again",
            Errno::ACCESS => "only its owner and its group may use it (`ls -l` shows them); run this as one of them or as root",
            _ => "name the socket of a guest with --socket PATH",
        };
        Failure::stopped(format!(
            "cannot start a program as a guest at {}: {error}; {advice}",
            socket.display()
        ))
    })?;
    let failed = |error: Errno| {
        Failure::stopped(format!(
            "cannot pass the guest's descriptor on: {error}; raise the limit of open files (ulimit -n)"
        ))
    };
    // It stays open over exec.
    let descriptor = rustix::io::fcntl_dupfd_cloexec(&guest, DESCRIPTOR).map_err(failed)?;
    rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::empty()).map_err(failed)?;
    let mut started = Command::new(program);
    started.args(arguments);
    started.env(PRELOAD, preload(library, std::env::var_os(PRELOAD).as_deref()));
    started.env(GUEST_DESCRIPTOR, descriptor.as_raw_fd().to_string());
    Ok(PreparedGuest { command: started, descriptor })
}

/// The library before others that are loaded already.
fn preload(library: &Path, others: Option<&OsStr>) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_the_first_of_those_that_are_loaded() {
        let of = |others: Option<&str>| preload(Path::new("/l/s.so"), others.map(OsStr::new));
        assert_eq!((of(None), of(Some(""))), ("/l/s.so".into(), "/l/s.so".into()));
        assert_eq!(of(Some("/a.so")), "/l/s.so:/a.so");
    }

    #[test]
    fn a_missing_library_or_guest_is_named() {
        let error = library(Some(Path::new("/no/such.so"))).unwrap_err().to_string();
        assert!(error.contains("/no/such.so does not exist"), "{error}");
        let error = prepare(Path::new("/no/such.socket"), Path::new("/l.so"), &["true".into()]).unwrap_err();
        assert!(
            error.to_string().contains("/no/such.socket") && error.to_string().contains("guest: {}"),
            "{error}"
        );
    }
}
