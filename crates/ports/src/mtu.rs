// SPDX-License-Identifier: Apache-2.0
//! The MTU of an interface while a port is open on it: an operator may change it at any time.
//!
//! A port looks once a second, and not for each frame. What it then does about another MTU is its own: frames
//! that are longer
//! leave by a larger ring, or are refused with their reason.

use crate::interface::Interface;
use crate::sys;
use bartizan_base::{PacketDuration, Timestamp};
use std::os::fd::BorrowedFd;

/// Interval at which a port looks.
const EVERY: PacketDuration = PacketDuration::from_secs(1);

/// When a port looks next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MtuWatch {
    next: Timestamp,
}

impl MtuWatch {
    /// The interface with the MTU that it has now, up to `most`, if it is time to look and it is another one.
    /// `fd`: a socket of its network
    /// namespace.
    pub(crate) fn look(
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
