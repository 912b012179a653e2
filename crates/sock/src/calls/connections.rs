// SPDX-License-Identifier: Apache-2.0
//! socket, connect, bind, listen, accept, shutdown, names.

use crate::answer::{done, fail};
use crate::pointers::{address, write_address};
use crate::process::{ProgramStream, process, stream};
use crate::real;
use crate::table::{forget, remember};
use bartizan_toe::descriptor::{PLAIN_SOCKET, Transport};
use bartizan_toe::guest::OpenedStream;
use bartizan_toe::layout::state;
use libc::{c_int, sockaddr, socklen_t};
use rustix::fd::{AsFd, IntoRawFd};
use rustix::fs::OFlags;
use rustix::io::{Errno, FdFlags};
use rustix::net::Shutdown;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering::SeqCst;

/// Bits of a socket's type that are its kind.
const KIND: c_int = 0xF;

/// Least bytes of an IPv6 address, as in RFC 2133 (without the scope).
const V6_LEAST: socklen_t = 24;

/// The address of a call on this stream; `Ok(None)`: of no family.
///
/// # Safety
/// The caller's pointer and length.
pub(super) unsafe fn address_for(
    stream: &ProgramStream,
    at: *const sockaddr,
    length: socklen_t,
) -> Result<Option<SocketAddr>, Errno> {
    // SAFETY: as the caller promises.
    match unsafe { address(at, length) } {
        Ok(Some(_)) if stream.has(state::V6) && length < V6_LEAST => Err(Errno::INVAL),
        other => other,
    }
}

/// Gives a new stream to the program, with the flags of `socket` or `accept4`.
fn return_stream(opened: OpenedStream, flags: c_int) -> Result<c_int, Errno> {
    let process = process().ok_or(Errno::NETDOWN)?;
    let slot = process.slot(opened.handle).ok_or(Errno::CONNABORTED)?;
    if flags & libc::SOCK_NONBLOCK != 0 {
        slot.guest.nonblocking.store(1, SeqCst);
        rustix::fs::fcntl_setfl(opened.fd.as_fd(), OFlags::NONBLOCK)?;
    }
    if flags & libc::SOCK_CLOEXEC == 0 {
        rustix::io::fcntl_setfd(opened.fd.as_fd(), FdFlags::empty())?;
    }
    let handle = opened.handle;
    let fd = opened.fd.into_raw_fd();
    remember(fd, Some(handle));
    Ok(fd)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let is_internet = domain == libc::AF_INET || domain == libc::AF_INET6;
    let transport = match kind & KIND {
        libc::SOCK_STREAM if protocol == 0 || protocol == libc::IPPROTO_TCP => Some(Transport::Tcp),
        libc::SOCK_DGRAM if protocol == 0 || protocol == libc::IPPROTO_UDP => Some(Transport::Udp),
        _ => None,
    };
    if let Some(transport) = transport.filter(|_| is_internet)
        && let Some(process) = process()
    {
        match process.open(domain == libc::AF_INET6, transport) {
            Ok(opened) => return return_stream(opened, kind).unwrap_or_else(fail),
            // The engine is gone: the namespace decides what a plain socket may.
            Err(PLAIN_SOCKET | Errno::NETDOWN) => {}
            Err(error) => return fail(error),
        }
    }
    // SAFETY: no pointers.
    let fd = unsafe { real::socket(domain, kind, protocol) };
    forget(fd);
    fd
}

/// Puts a plain socket in the place of a stream that the engine leaves to the guest's own stack.
fn make_plain(fd: c_int, stream: &ProgramStream) -> Result<(), Errno> {
    let v6 = stream.has(state::V6);
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    let kind = if stream.is_datagram() { libc::SOCK_DGRAM } else { libc::SOCK_STREAM };
    // SAFETY: no pointers.
    let plain = unsafe { real::socket(family, kind | libc::SOCK_CLOEXEC, 0) };
    if plain < 0 {
        return Err(Errno::NOBUFS);
    }
    for (level, name) in [
        (libc::SOL_SOCKET, libc::SO_REUSEADDR),
        (libc::SOL_SOCKET, libc::SO_REUSEPORT),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    ] {
        if !v6 && level == libc::IPPROTO_IPV6 {
            continue;
        }
        let mut value = [0; 4];
        if stream.option(level.unsigned_abs(), name.unsigned_abs(), &mut value) == Ok(4) {
            // SAFETY: four bytes of this function.
            unsafe { real::setsockopt(plain, level, name, value.as_ptr().cast(), 4) };
        }
    }
    // SAFETY: descriptors of this program and numbers; the plain socket's first number is closed once.
    unsafe {
        let flags = real::fcntl(fd, libc::F_GETFL, 0);
        real::fcntl(plain, libc::F_SETFL, usize::try_from(flags).unwrap_or(0));
        let on_exec = real::fcntl(fd, libc::F_GETFD, 0);
        let flags = if on_exec & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
        real::dup3(plain, fd, flags);
        real::close(plain);
    }
    remember(fd, None);
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn connect(fd: c_int, to: *const sockaddr, length: socklen_t) -> c_int {
    if let Some(stream) = stream(fd) {
        // SAFETY: the caller's pointer and length.
        let result = match unsafe { address_for(&stream, to, length) } {
            Ok(Some(address)) => stream.connect(address),
            Ok(None) => stream.disconnect(),
            Err(error) => Err(error),
        };
        if result != Err(PLAIN_SOCKET) {
            return done(result);
        }
        if let Err(error) = make_plain(fd, &stream) {
            return fail(error);
        }
    }
    // SAFETY: the caller's call.
    unsafe { real::connect(fd, to, length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bind(fd: c_int, to: *const sockaddr, length: socklen_t) -> c_int {
    if let Some(stream) = stream(fd) {
        // SAFETY: the caller's pointer and length.
        let result = match unsafe { address_for(&stream, to, length) } {
            Ok(Some(address)) => stream.bind(address),
            Ok(None) => Err(Errno::AFNOSUPPORT),
            Err(error) => Err(error),
        };
        if result != Err(PLAIN_SOCKET) {
            return done(result);
        }
        if let Err(error) = make_plain(fd, &stream) {
            return fail(error);
        }
    }
    // SAFETY: the caller's call.
    unsafe { real::bind(fd, to, length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    match stream(fd) {
        Some(stream) => done(stream.listen(u32::try_from(backlog).unwrap_or(u32::MAX))),
        // SAFETY: no pointers.
        None => unsafe { real::listen(fd, backlog) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept(fd: c_int, from: *mut sockaddr, length: *mut socklen_t) -> c_int {
    if stream(fd).is_none() {
        // SAFETY: the caller's call.
        let fd = unsafe { real::accept(fd, from, length) };
        forget(fd);
        return fd;
    }
    // SAFETY: the caller's call.
    unsafe { accept4(fd, from, length, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(fd: c_int, from: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
    let Some(stream) = stream(fd) else {
        // SAFETY: the caller's call.
        let fd = unsafe { real::accept4(fd, from, length, flags) };
        forget(fd);
        return fd;
    };
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return fail(Errno::INVAL);
    }
    let opened = match stream.accept() {
        Ok(opened) => opened,
        Err(error) => return fail(error),
    };
    if !from.is_null()
        && let Some(peer) = process().and_then(|process| process.slot(opened.handle)?.peer.load())
    {
        // SAFETY: the caller's pointers, not null.
        if let Err(error) = unsafe { write_address(peer, from, length) } {
            return fail(error);
        }
    }
    return_stream(opened, flags).unwrap_or_else(fail)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    let Some(stream) = stream(fd) else {
        // SAFETY: no pointers.
        return unsafe { real::shutdown(fd, how) };
    };
    match how {
        libc::SHUT_RD => done(stream.shutdown(Shutdown::Read)),
        libc::SHUT_WR => done(stream.shutdown(Shutdown::Write)),
        libc::SHUT_RDWR => done(stream.shutdown(Shutdown::Both)),
        _ => fail(Errno::INVAL),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getsockname(fd: c_int, at: *mut sockaddr, length: *mut socklen_t) -> c_int {
    let Some(stream) = stream(fd) else {
        // SAFETY: the caller's call.
        return unsafe { real::getsockname(fd, at, length) };
    };
    let any = if stream.has(state::V6) {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    } else {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    };
    let local = stream.slot_state().local.load().unwrap_or(SocketAddr::new(any, 0));
    // SAFETY: the caller's pointers.
    done(unsafe { write_address(local, at, length) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getpeername(fd: c_int, at: *mut sockaddr, length: *mut socklen_t) -> c_int {
    let Some(stream) = stream(fd) else {
        // SAFETY: the caller's call.
        return unsafe { real::getpeername(fd, at, length) };
    };
    let bits = stream.state();
    let is_open = bits & state::CONNECTED != 0 && bits & (state::DEAD | state::CONNECTING) == 0;
    match stream.slot_state().peer.load().filter(|_| is_open) {
        // SAFETY: the caller's pointers.
        Some(peer) => done(unsafe { write_address(peer, at, length) }),
        None => fail(Errno::NOTCONN),
    }
}
