// SPDX-License-Identifier: Apache-2.0
//! A socket of datagrams that says to which address each came, and sends from any local address. Source:
//! ip(7) (`IP_PKTINFO`), ipv6(7) (`IPV6_PKTINFO`), RFC 3542 section 6.

use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

/// `IPV6_FREEBIND` of Linux: replies come from addresses that no interface has.
const IPV6_FREEBIND: i32 = 78;
/// Bytes of control data: the larger of the two kinds of packet information with its head.
const CONTROL: usize = 64;

/// Control data at the alignment of its heads.
#[repr(C, align(8))]
struct ControlSpace([u8; CONTROL]);

/// A datagram as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArrivedDatagram {
    /// Bytes of it in the buffer.
    pub(crate) length: usize,
    /// The sender.
    pub(crate) from: SocketAddr,
    /// The address that it was sent to.
    pub(crate) to: IpAddr,
}

/// The socket.
#[derive(Debug)]
pub(crate) struct PacketInfoSocket {
    socket: UdpSocket,
    is_v6: bool,
}

impl PacketInfoSocket {
    /// Binds to all local addresses of a family, at a port that the kernel chooses. It never waits.
    pub(crate) fn bind(is_v6: bool) -> io::Result<PacketInfoSocket> {
        let any = if is_v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        let socket = UdpSocket::bind((any, 0))?;
        socket.set_nonblocking(true)?;
        let socket = PacketInfoSocket { socket, is_v6 };
        if is_v6 {
            socket.switch_on(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)?;
            socket.switch_on(libc::IPPROTO_IPV6, IPV6_FREEBIND)?;
        } else {
            socket.switch_on(libc::IPPROTO_IP, libc::IP_PKTINFO)?;
        }
        Ok(socket)
    }

    pub(crate) fn port(&self) -> io::Result<u16> {
        self.socket.local_addr().map(|at| at.port())
    }

    fn switch_on(&self, level: i32, name: i32) -> io::Result<()> {
        let one = 1_i32;
        let length = libc::socklen_t::try_from(size_of::<i32>()).unwrap_or(0);
        let value = (&raw const one).cast();
        // SAFETY: the pointer and length are those of a local number, which the kernel only reads.
        let status = unsafe { libc::setsockopt(self.socket.as_raw_fd(), level, name, value, length) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Receives a datagram; one whose destination the kernel does not tell is an error.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<ArrivedDatagram> {
        let mut name = MaybeUninit::<libc::sockaddr_storage>::zeroed();
        let mut space = ControlSpace([0; CONTROL]);
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: a head of zeros is valid: no name, no parts, no control data.
        let mut head: libc::msghdr = unsafe { zeroed() };
        head.msg_name = name.as_mut_ptr().cast();
        head.msg_namelen = libc::socklen_t::try_from(size_of::<libc::sockaddr_storage>()).unwrap_or(0);
        head.msg_iov = &raw mut part;
        head.msg_iovlen = 1;
        head.msg_control = space.0.as_mut_ptr().cast();
        head.msg_controllen = CONTROL;
        // SAFETY: all pointers of the head are to locals and to the buffer, with their lengths; they outlive
        // the call.
        let count = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut head, 0) };
        let length = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        // SAFETY: the kernel has written an address there, or left the zeros; both are valid.
        let from = socket_address(unsafe { name.assume_init_ref() });
        let (Some(from), Some(to)) = (from, self.sent_to(&head)) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        Ok(ArrivedDatagram { length, from, to })
    }

    /// The destination among the control data.
    fn sent_to(&self, head: &libc::msghdr) -> Option<IpAddr> {
        // SAFETY: the head is one that the kernel filled; its control data lives in the caller.
        let mut control = unsafe { libc::CMSG_FIRSTHDR(head) };
        // SAFETY: what the macros return lies within the control data, or is null.
        while let Some(found) = unsafe { control.as_ref() } {
            // SAFETY: as above.
            let data = unsafe { libc::CMSG_DATA(control) };
            match (self.is_v6, found.cmsg_level, found.cmsg_type) {
                (false, libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    // SAFETY: the kernel writes this struct for this type; it need not be aligned.
                    let info = unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
                    return Some(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes()).into());
                }
                (true, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    // SAFETY: as above.
                    let info = unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
                    return Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                }
                _ => {}
            }
            // SAFETY: as above.
            control = unsafe { libc::CMSG_NXTHDR(head, control) };
        }
        None
    }

    /// Sends a datagram from a local address to a client.
    pub(crate) fn send(&self, bytes: &[u8], to: SocketAddr, from: IpAddr) -> io::Result<()> {
        let mut space = ControlSpace([0; CONTROL]);
        let (mut name, length) = kernel_address(to);
        let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: a head of zeros is valid.
        let mut head: libc::msghdr = unsafe { zeroed() };
        head.msg_name = (&raw mut name).cast();
        head.msg_namelen = length;
        head.msg_iov = &raw mut part;
        head.msg_iovlen = 1;
        head.msg_control = space.0.as_mut_ptr().cast();
        head.msg_controllen = CONTROL;
        let used = match from {
            IpAddr::V4(from) => {
                let address = libc::in_addr { s_addr: u32::from_ne_bytes(from.octets()) };
                let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: address, ipi_addr: address };
                put(&head, libc::IPPROTO_IP, libc::IP_PKTINFO, info)
            }
            IpAddr::V6(from) => {
                let address = libc::in6_addr { s6_addr: from.octets() };
                let info = libc::in6_pktinfo { ipi6_addr: address, ipi6_ifindex: 0 };
                put(&head, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info)
            }
        };
        head.msg_controllen = used;
        // SAFETY: as in `receive`; the kernel only reads.
        let count = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const head, 0) };
        if count < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for PacketInfoSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Puts a value into a head's control data; returns the bytes that it takes there.
fn put<T: Copy>(head: &libc::msghdr, level: i32, kind: i32, value: T) -> usize {
    let length = libc::c_uint::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: the head has `CONTROL` bytes of control data, aligned, more than the head of a message and the
    // larger of the two kinds of values need.
    unsafe {
        let control = libc::CMSG_FIRSTHDR(head);
        (*control).cmsg_level = level;
        (*control).cmsg_type = kind;
        (*control).cmsg_len = libc::CMSG_LEN(length) as usize;
        libc::CMSG_DATA(control).cast::<T>().write_unaligned(value);
        libc::CMSG_SPACE(length) as usize
    }
}

fn socket_address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let place = std::ptr::from_ref(storage);
    match i32::from(storage.ss_family) {
        // SAFETY: the family says which struct is there; the storage is larger and aligned for each.
        libc::AF_INET => unsafe {
            let at = *place.cast::<libc::sockaddr_in>();
            let ip = Ipv4Addr::from(at.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(ip.into(), u16::from_be(at.sin_port)))
        },
        // SAFETY: as above.
        libc::AF_INET6 => unsafe {
            let at = *place.cast::<libc::sockaddr_in6>();
            Some(SocketAddr::new(Ipv6Addr::from(at.sin6_addr.s6_addr).into(), u16::from_be(at.sin6_port)))
        },
        _ => None,
    }
}

fn kernel_address(address: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: zeros are a valid address of no family.
    let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
    let place = &raw mut storage;
    let length = match address {
        SocketAddr::V4(address) => {
            let at = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is larger, and aligned for each kind of address.
            unsafe { place.cast::<libc::sockaddr_in>().write(at) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(address) => {
            let at = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: 0,
            };
            // SAFETY: as above.
            unsafe { place.cast::<libc::sockaddr_in6>().write(at) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, libc::socklen_t::try_from(length).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_answered_from_the_address_that_it_came_to() {
        let server = PacketInfoSocket::bind(false).unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let to = SocketAddr::new("127.64.3.4".parse().unwrap(), server.port().unwrap());
        // Connected: answers from elsewhere would not arrive.
        client.connect(to).unwrap();
        client.send(b"question").unwrap();
        let mut buffer = [0; 32];
        let arrived = loop {
            match server.receive(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                other => break other.unwrap(),
            }
        };
        let expected = ArrivedDatagram { length: 8, from: client.local_addr().unwrap(), to: to.ip() };
        assert_eq!(arrived, expected);
        server.send(b"answer", arrived.from, arrived.to).unwrap();
        assert_eq!((client.recv(&mut buffer).unwrap(), &buffer[..6]), (6, &b"answer"[..]));
    }
}
