// SPDX-License-Identifier: Apache-2.0
//! System calls that the standard library does not have.

use std::io;

/// Gives the calling thread a network namespace of its own. Returns the thread's number.
///
/// # Errors
/// As unshare(2).
pub fn own_namespace() -> io::Result<i32> {
    // SAFETY: no memory is passed; the call changes which network the calling thread sees, and nothing else.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has no arguments and cannot fail.
    Ok(unsafe { libc::gettid() })
}
