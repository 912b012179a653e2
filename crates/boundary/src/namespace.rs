// SPDX-License-Identifier: Apache-2.0
//! A network namespace without routes to anywhere else: its only interface is its loopback. Source:
//! network_namespaces(7), rtnetlink(7).

use crate::error::{BoundaryError, system};
use crate::hooks::DATAGRAMS_V6;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// Index of the loopback in each namespace: the first interface that there is.
const LOOPBACK: u32 = 1;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const IFF_UP: u32 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RT_SCOPE_HOST: u8 = 254;
const RT_TABLE_LOCAL: u8 = 255;
const RTPROT_BOOT: u8 = 3;
const RTN_LOCAL: u8 = 2;
/// Bits of the prefix of [`DATAGRAMS_V6`].
const DATAGRAMS_BITS: u8 = 112;
/// Bytes of a netlink header.
const HEADER: usize = 16;

/// Moves this thread into a network namespace of its own, whose loopback is up. Returns whether the loopback
/// has the addresses of [`DATAGRAMS_V6`]: not without IPv6 in the kernel.
pub(crate) fn enter_new() -> Result<bool, BoundaryError> {
    // SAFETY: a new network namespace shares no memory, no descriptor table and no file system with the old
    // one; sockets that are open stay in theirs.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }
        .map_err(system("make a network namespace"))?;
    set_up().map_err(system("set the loopback of its namespace up"))?;
    Ok(take_numbered().is_ok())
}

/// A netlink request: header, body, attributes.
fn request(kind: u16, flags: u16, body: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut message = vec![0; HEADER];
    message.extend_from_slice(body);
    for (kind, value) in attributes {
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        message.extend_from_slice(&length.to_ne_bytes());
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(value);
        message.resize(message.len().next_multiple_of(4), 0);
    }
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let places: [(usize, &[u8]); 3] = [
        (0, &length.to_ne_bytes()),
        (4, &kind.to_ne_bytes()),
        (6, &(NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes()),
    ];
    for (place, bytes) in places {
        if let Some(into) = message.get_mut(place..place + bytes.len()) {
            into.copy_from_slice(bytes);
        }
    }
    message
}

/// Sends a request and waits for its acknowledgement.
fn send_request(message: &[u8]) -> Result<(), Errno> {
    // NETLINK_ROUTE is protocol 0.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sendto(&socket, message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
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

/// Sets the loopback up, and gives it an address of IPv4 beside 127.0.0.1: a namespace that has only this one
/// has no IPv4 for `getaddrinfo` with `AI_ADDRCONFIG`.
fn set_up() -> Result<(), Errno> {
    let mut body = [0; 16];
    let words = [(4, LOOPBACK), (8, IFF_UP), (12, IFF_UP)];
    for (place, word) in words {
        if let Some(into) = body.get_mut(place..place + 4) {
            into.copy_from_slice(&word.to_ne_bytes());
        }
    }
    send_request(&request(RTM_NEWLINK, 0, &body, &[]))?;
    let second = [127, 0, 0, 2];
    add_address(AF_INET, 8, &second)
}

fn add_address(family: u8, bits: u8, address: &[u8]) -> Result<(), Errno> {
    let [a, b, c, d] = LOOPBACK.to_ne_bytes();
    let body = [family, bits, 0, RT_SCOPE_HOST, a, b, c, d];
    send_request(&request(RTM_NEWADDR, NLM_F_CREATE, &body, &[(IFA_LOCAL, address), (IFA_ADDRESS, address)]))
}

/// Has the kernel deliver all of [`DATAGRAMS_V6`] here, as it does 127.0.0.0/8, and an address of it for
/// `AI_ADDRCONFIG` as above.
fn take_numbered() -> Result<(), Errno> {
    let prefix = DATAGRAMS_V6.octets();
    let body =
        [AF_INET6, DATAGRAMS_BITS, 0, 0, RT_TABLE_LOCAL, RTPROT_BOOT, RT_SCOPE_HOST, RTN_LOCAL, 0, 0, 0, 0];
    let attributes: [(u16, &[u8]); 2] = [(RTA_DST, &prefix), (RTA_OIF, &LOOPBACK.to_ne_bytes())];
    send_request(&request(RTM_NEWROUTE, NLM_F_CREATE, &body, &attributes))?;
    add_address(AF_INET6, 128, &prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_their_length_and_whole_words() {
        let message = request(RTM_NEWADDR, NLM_F_CREATE, &[1, 2, 3, 4], &[(7, &[9, 9, 9]), (8, &[5; 4])]);
        assert_eq!(message.len(), HEADER + 4 + 8 + 8);
        assert_eq!(message[..8], [36, 0, 0, 0, 20, 0, 5, 4]);
        assert_eq!(message[16..], [1, 2, 3, 4, 7, 0, 7, 0, 9, 9, 9, 0, 8, 0, 8, 0, 5, 5, 5, 5]);
    }
}
