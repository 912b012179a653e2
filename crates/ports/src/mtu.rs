// SPDX-License-Identifier: Apache-2.0
//! The MTU of an interface while a port is open on it: an operator may change it at any time.
//!
//! A port checks it once a second, not for each frame. Its reaction to another MTU is its own: longer frames
//! leave by a larger ring, or are refused with their reason.

use crate::interface::Interface;
use crate::sys;
use bartizan_base::{PacketDuration, Timestamp};
use std::os::fd::BorrowedFd;

/// The interval of a port's checks.
const EVERY: PacketDuration = PacketDuration::from_secs(1);

/// The time of a port's next check.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MtuWatch {
    next: Timestamp,
}

impl MtuWatch {
    /// Reads the interface's present MTU, up to `most`; updates `interface` if a check is due and it has
    /// changed. `fd`: a socket of its network namespace.
    pub(crate) fn refresh(
        &mut self,
        now: Timestamp,
        fd: BorrowedFd<'_>,
        interface: &Interface,
        most: u32,
    ) -> Option<Interface> {
        if now < self.next {
            return None;
        }
        self.next = now + EVERY;
        let mtu = sys::interface_mtu(fd, &interface.name).ok()?.min(most);
        (mtu != interface.mtu).then(|| Interface { mtu, ..interface.clone() })
    }
}
