// SPDX-License-Identifier: Apache-2.0
//! Socket options by number: a guest's program may set those of a list, and no safe wrapper takes numbers.

use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

fn last_error() -> Errno {
    Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Sets a socket option.
///
/// # Errors
/// The kernel refuses it.
pub(crate) fn set_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
    let length = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the pointer and length are those of a slice, which the kernel only reads during the call.
    let status = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), length) };
    if status == 0 { Ok(()) } else { Err(last_error()) }
}

/// Reads a socket option into `value`; returns the bytes that were written.
///
/// # Errors
/// The kernel refuses it.
pub(crate) fn option(fd: BorrowedFd<'_>, level: i32, name: i32, value: &mut [u8]) -> Result<usize, Errno> {
    let mut length = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the pointer and length are those of a slice that this call owns; the kernel writes at most
    // `length` bytes and then the length, which are plain numbers.
    let status =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut length) };
    if status == 0 { Ok(usize::try_from(length).unwrap_or(0)) } else { Err(last_error()) }
}
