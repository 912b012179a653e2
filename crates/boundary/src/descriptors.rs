// SPDX-License-Identifier: Apache-2.0
//! Descriptors that a guest's program inherits: its standard streams and the guest's descriptor. Source:
//! close_range(2).

use crate::error::{BoundaryError, system};
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

/// Marks all descriptors but the standard streams and `kept` to be closed at exec.
///
/// # Errors
/// A standard stream is a network socket; the kernel refuses.
pub(crate) fn keep_only(kept: &OwnedFd) -> Result<(), BoundaryError> {
    is_no_network_socket(0, std::io::stdin())?;
    is_no_network_socket(1, std::io::stdout())?;
    is_no_network_socket(2, std::io::stderr())?;
    let kept = u32::try_from(kept.as_raw_fd()).unwrap_or(u32::MAX);
    for (first, last) in [(3, kept.saturating_sub(1)), (kept.saturating_add(1), u32::MAX)] {
        if first > last {
            continue;
        }
        // SAFETY: no pointers; with this flag no descriptor is closed, only marked for exec.
        let result = unsafe { libc::close_range(first, last, libc::CLOSE_RANGE_CLOEXEC as i32) };
        if result != 0 {
            let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            return Err(system("mark inherited descriptors")(Errno::from_raw_os_error(code)));
        }
    }
    Ok(())
}

fn is_no_network_socket(number: i32, stream: impl AsFd) -> Result<(), BoundaryError> {
    match sockopt::socket_domain(stream) {
        Err(_) | Ok(AddressFamily::UNIX) => Ok(()),
        Ok(_) => Err(BoundaryError::Inherited(number)),
    }
}
