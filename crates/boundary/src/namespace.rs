// SPDX-License-Identifier: Apache-2.0
//! A network namespace without routes: its only interface is its loopback. Source: network_namespaces(7),
//! rtnetlink(7).

use crate::error::{BoundaryError, system};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// Index of the loopback in each namespace: the first interface that there is.
const LOOPBACK: i32 = 1;
const RTM_NEWLINK: u16 = 16;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLMSG_ERROR: u16 = 2;
const IFF_UP: u32 = 1;
/// Bytes of a netlink header, and of the message about an interface.
const HEADER: usize = 16;
const MESSAGE: usize = HEADER + 16;

/// Moves this thread into a network namespace of its own, whose loopback is up.
pub(crate) fn enter_new() -> Result<(), BoundaryError> {
    // SAFETY: a new network namespace shares no memory, no descriptor table and no file system with the old
    // one; sockets that are open stay in theirs.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }
        .map_err(system("make a network namespace"))?;
    set_up(LOOPBACK).map_err(system("set the loopback of its namespace up"))
}

/// The request that sets an interface up.
fn request(index: i32) -> [u8; MESSAGE] {
    let mut message = [0; MESSAGE];
    let words: [(usize, &[u8]); 6] = [
        (0, &u32::try_from(MESSAGE).unwrap_or(0).to_ne_bytes()),
        (4, &RTM_NEWLINK.to_ne_bytes()),
        (6, &(NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes()),
        (HEADER + 4, &index.to_ne_bytes()),
        (HEADER + 8, &IFF_UP.to_ne_bytes()),
        (HEADER + 12, &IFF_UP.to_ne_bytes()),
    ];
    for (place, bytes) in words {
        if let Some(into) = message.get_mut(place..place + bytes.len()) {
            into.copy_from_slice(bytes);
        }
    }
    message
}

fn set_up(index: i32) -> Result<(), Errno> {
    // NETLINK_ROUTE is protocol 0.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sendto(&socket, &request(index), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 256];
    let (count, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    let answer = answer.get(..count).unwrap_or_default();
    let kind = answer.get(4..6).and_then(|bytes| <[u8; 2]>::try_from(bytes).ok());
    let code = answer.get(HEADER..HEADER + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
    match (kind.map(u16::from_ne_bytes), code.map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(code)) => Err(Errno::from_raw_os_error(-code)),
        _ => Err(Errno::PROTO),
    }
}
