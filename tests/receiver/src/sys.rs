// SPDX-License-Identifier: Apache-2.0
//! System calls that the standard library lacks.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd as _};
use std::time::Duration;

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

/// Connects from an address that need not be configured on any interface, as long as the routing table calls
/// it local.
///
/// # Errors
/// As bind(2) and connect(2); the connection is not established in time.
pub fn connect_from(from: IpAddr, to: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: no memory is passed.
    let descriptor = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    let socket = unsafe { TcpStream::from_raw_fd(descriptor) };
    // The time limit of sending is that of connect(2) as well (socket(7)).
    socket.set_write_timeout(Some(limit))?;
    for (address, is_peer) in [(SocketAddr::new(from, 0), false), (to, true)] {
        let (storage, length) = raw_address(address);
        // SAFETY: the descriptor is open while `socket` lives; the kernel reads `length` bytes of an address
        // that outlives the call.
        let done = unsafe {
            let pointer = (&raw const storage).cast::<libc::sockaddr>();
            if is_peer {
                libc::connect(descriptor, pointer, length)
            } else {
                libc::bind(descriptor, pointer, length)
            }
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(socket)
}

/// An address in the form of the kernel, and its length.
fn raw_address(address: SocketAddr) -> (libc::sockaddr_in6, libc::socklen_t) {
    // SAFETY: all fields are numbers, for which zeros are valid.
    let mut storage: libc::sockaddr_in6 = unsafe { core::mem::zeroed() };
    match address {
        SocketAddr::V6(address) => {
            storage.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            storage.sin6_port = address.port().to_be();
            storage.sin6_addr.s6_addr = address.ip().octets();
            (storage, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
        }
        SocketAddr::V4(address) => {
            // The fields of the shorter form lie at the same place: family, port, address.
            storage.sin6_family = libc::AF_INET as libc::sa_family_t;
            storage.sin6_port = address.port().to_be();
            storage.sin6_flowinfo = u32::from_ne_bytes(address.ip().octets());
            (storage, size_of::<libc::sockaddr_in>() as libc::socklen_t)
        }
    }
}
