// SPDX-License-Identifier: Apache-2.0
//! System calls that the standard library lacks.

use std::io;
use std::os::fd::AsRawFd;

/// Sets a socket's receive buffer to `bytes`, which may be very small or beyond the system's limit. Needs the
/// right to administer the network.
///
/// # Errors
/// As setsockopt(2).
pub fn set_receive_buffer(socket: &impl AsRawFd, bytes: i32) -> io::Result<()> {
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the descriptor is open while `socket` is borrowed; the kernel reads `length` bytes of a number
    // that outlives the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const bytes).cast(),
            length,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Number of the calling thread.
#[must_use]
pub fn thread() -> i32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::gettid() }
}

/// Moves the calling thread into a network namespace of its own. Returns the thread's number.
///
/// # Errors
/// As unshare(2).
pub fn own_namespace() -> io::Result<i32> {
    // SAFETY: no memory is passed; the call changes which network the calling thread sees, and nothing else.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(thread())
}
