// SPDX-License-Identifier: Apache-2.0
//! Named pipes.

use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::path::Path;

/// Makes a named pipe. No child process does it: until a child runs its program it holds the descriptors of
/// all tests of the process, and the end of a socket that a test closes is not seen.
///
/// # Panics
/// The pipe cannot be made.
pub fn make_pipe(path: impl AsRef<Path>) {
    let path = path.as_ref();
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
