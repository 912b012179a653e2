// SPDX-License-Identifier: Apache-2.0
//! Objects that this crate contains: loading them, finding their maps, and the meanings of the loader's
//! errors.

use crate::error::XdpError;
use crate::memory::Words;
use crate::rights;
use crate::sys::Map;
use aya::maps::Map as Loaded;
use aya::programs::ProgramError;
use aya::{Ebpf, EbpfLoader};
use std::io;
use std::os::fd::AsFd as _;

/// Loads an object of this crate.
pub(crate) fn load(
    loader: &mut EbpfLoader<'_>,
    object: &[u8],
    program: &'static str,
) -> Result<Ebpf, XdpError> {
    loader.load(object).map_err(|error| match raw_error(&error) {
        Some(libc::EPERM | libc::EACCES) => XdpError::no_permission("making its tables"),
        Some(libc::ENOSYS) => XdpError::Kernel { what: "the system call bpf" },
        Some(code @ (libc::ENOMEM | libc::E2BIG)) => {
            XdpError::system(None, "making its tables", io::Error::from_raw_os_error(code))
        }
        _ => XdpError::Load { program, problem: chain(&error) },
    })
}

/// The system's error number that is the cause of a loader's error.
pub(crate) fn raw_error(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(code) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(code);
        }
        next = error.source();
    }
    None
}

/// The text of an error, causes included.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}

/// Attempts to load a program: the verifier gives up when its thread gets a signal. Most attempts end early
/// then; five of them have proved too few on a busy machine.
const TRIES: u32 = 40;

/// Loads a program into the kernel, repeatedly if a signal interrupts that.
pub(crate) fn load_with_retry(
    mut load: impl FnMut() -> Result<(), ProgramError>,
) -> Result<(), ProgramError> {
    let mut result = load();
    for _ in 1..TRIES {
        match &result {
            Err(error) if raw_error(error) == Some(libc::EAGAIN) => result = load(),
            _ => break,
        }
    }
    result
}

/// The level's error for a failed load of a program into the kernel.
pub(crate) fn not_loaded(program: &'static str, error: &ProgramError) -> XdpError {
    match raw_error(error) {
        Some(libc::EPERM) => XdpError::no_permission("loading its program"),
        // Without rights the verifier refuses programs that it accepts with them.
        Some(libc::EACCES) if !rights::missing().is_empty() => XdpError::no_permission("loading its program"),
        Some(libc::ENOSYS) => XdpError::Kernel { what: "the system call bpf" },
        _ => XdpError::Load { program, problem: chain(error) },
    }
}

/// A map of an object, with the lengths of its keys and values.
pub(crate) fn map(bpf: &Ebpf, name: &'static str, key: usize, value: usize) -> Result<Map, XdpError> {
    // The loader keeps its own descriptor: the program refers to maps by its descriptors until it is loaded.
    let data = match bpf.map(name) {
        Some(Loaded::Array(data) | Loaded::HashMap(data) | Loaded::DevMap(data)) => data,
        _ => return Err(XdpError::Load { program: name, problem: "the object has no such map".into() }),
    };
    let fd = data.fd().as_fd().try_clone_to_owned();
    let fd = fd.map_err(|source| XdpError::system(None, "holding a table", source))?;
    Ok(Map::new(fd, key, value))
}

/// Maps an array of an object: the number of entries, and 64-bit numbers of each.
pub(crate) fn array(bpf: &Ebpf, name: &'static str, count: u32, each: usize) -> Result<Words, XdpError> {
    let map = map(bpf, name, 4, each * 8)?;
    Words::map(map.fd(), count as usize * each)
        .map_err(|source| XdpError::system(None, "mapping a table", source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aya::sys::SyscallError;

    /// The number of attempts where each fails with this error of the system; none: it succeeds.
    fn tries(error: Option<i32>) -> u32 {
        let mut tries = 0;
        let _ = load_with_retry(|| {
            tries += 1;
            let failed = |code| SyscallError { call: "", io_error: io::Error::from_raw_os_error(code) };
            error.map_or(Ok(()), |code| Err(ProgramError::SyscallError(failed(code))))
        });
        tries
    }

    #[test]
    fn what_a_signal_has_interrupted_is_tried_again_a_few_times() {
        assert_eq!([tries(None), tries(Some(libc::EPERM)), tries(Some(libc::EAGAIN))], [1, 1, TRIES]);
    }
}
