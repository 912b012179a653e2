// SPDX-License-Identifier: Apache-2.0
//! A driver's XDP capabilities, where the kernel reports them (Linux 6.3).
//!
//! Source: Linux `include/uapi/linux/netdev.h`, `genetlink.h`; `Documentation/netlink/specs/netdev.yaml`.

use crate::netlink::{self, attribute, find, u16_at, u64_at};
use crate::sys::Netlink;

/// The controller of generic netlink, and its request for a family by name.
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// The family's request for a device.
const GET_DEVICE: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_FEATURES: u16 = 3;

/// `NETDEV_XDP_ACT_NDO_XMIT_SG`.
const SENDS_PARTS: u64 = 1 << 6;

/// Length of the header of generic netlink.
const HEADER: usize = 4;

fn query(family: u16, command: u8, attribute: &[u8]) -> Option<Vec<u8>> {
    let body = [&[command, 1, 0, 0], attribute].concat();
    let answer = netlink::query(Netlink::Generic, family, &body).ok()?;
    answer.get(HEADER..).map(<[u8]>::to_vec)
}

/// Whether an interface sends redirected frames in several buffers. `false` also if the kernel does not
/// report it: in doubt such frames go up.
pub(crate) fn sends_parts(ifindex: u32) -> bool {
    let features = || {
        let family = query(CONTROLLER, GET_FAMILY, &attribute(FAMILY_NAME, b"netdev\0"))?;
        let family = u16_at(find(&family, FAMILY_ID)?, 0)?;
        let device = query(family, GET_DEVICE, &attribute(DEVICE_INDEX, &ifindex.to_ne_bytes()))?;
        u64_at(find(&device, DEVICE_FEATURES)?, 0)
    };
    features().is_some_and(|features| features & SENDS_PARTS != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_what_is_not_there_send_none() {
        assert!(!sends_parts(1) && !sends_parts(0x7fff_fff0));
    }
}
