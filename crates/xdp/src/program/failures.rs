// SPDX-License-Identifier: Apache-2.0
//! Reasons why the program is not attached.

use crate::error::XdpError;
use crate::left::program_name;
use crate::link::XdpInterface;
use crate::port::Mode;
use crate::prove;
use std::io;

/// The error of an interface that refuses the program.
pub(super) fn not_attached(link: &XdpInterface, ifindex: u32, mode: Mode, error: io::Error) -> XdpError {
    let name = link.name.clone();
    match error.raw_os_error() {
        // Drivers differ in the error by which they refuse an MTU.
        Some(libc::ERANGE | libc::EINVAL) if mode == Mode::Native && link.mtu > prove::ANY_DRIVER_MTU => {
            XdpError::MtuTooLarge { name, mtu: link.mtu }
        }
        Some(libc::EOPNOTSUPP) if mode == Mode::Native => XdpError::NoNativeMode { name },
        // Another process has attached its program since the check.
        Some(libc::EBUSY | libc::EEXIST) => {
            let (id, native) =
                XdpInterface::query(ifindex).ok().and_then(|link| link.program).unwrap_or((0, true));
            let mode = if native { Mode::Native } else { Mode::Generic };
            XdpError::HookTaken { name, id, program: program_name(id), mode, ifindex, holders: None }
        }
        _ => XdpError::system(Some(&name), "attaching", error),
    }
}
