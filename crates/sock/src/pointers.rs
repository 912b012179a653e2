// SPDX-License-Identifier: Apache-2.0
//! The caller's pointers as Rust values.
//!
//! Every function here is given pointers of a C program's call. It promises what the call's manual page
//! demands: buffers of the lengths that it gives, valid until the call returns. A null pointer is refused.

use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Most parts of a vector (`IOV_MAX`).
const PARTS_MOST: usize = 1024;

pub(crate) fn set_errno(error: i32) {
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() = error };
}

/// Bytes to be sent.
///
/// # Safety
/// As the module says.
pub(crate) unsafe fn bytes<'a>(from: *const libc::c_void, length: usize) -> Result<IoSlice<'a>, Errno> {
    if length == 0 {
        return Ok(IoSlice::new(&[]));
    }
    if from.is_null() || isize::try_from(length).is_err() {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller has so many bytes there, not null.
    Ok(IoSlice::new(unsafe { std::slice::from_raw_parts(from.cast(), length) }))
}

/// Room for bytes.
///
/// # Safety
/// As the module says.
pub(crate) unsafe fn room<'a>(at: *mut libc::c_void, length: usize) -> Result<IoSliceMut<'a>, Errno> {
    if length == 0 {
        return Ok(IoSliceMut::new(&mut []));
    }
    if at.is_null() || isize::try_from(length).is_err() {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller has room for so many bytes there, not null; it is only written.
    Ok(IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(at.cast(), length) }))
}

/// Parts of a vector.
///
/// # Safety
/// As the module says.
unsafe fn parts<'a>(at: *const libc::iovec, count: usize) -> Result<&'a [libc::iovec], Errno> {
    if count > PARTS_MOST {
        return Err(Errno::INVAL);
    }
    if count == 0 {
        return Ok(&[]);
    }
    if at.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller has so many parts there, not null.
    Ok(unsafe { std::slice::from_raw_parts(at, count) })
}

/// The buffers of a vector to be sent.
///
/// # Safety
/// As the module says.
pub(crate) unsafe fn slices<'a>(at: *const libc::iovec, count: usize) -> Result<Vec<IoSlice<'a>>, Errno> {
    // SAFETY: as the caller promises.
    let parts = unsafe { parts(at, count) }?;
    // SAFETY: as the caller promises, for each part.
    parts.iter().map(|part| unsafe { bytes(part.iov_base, part.iov_len) }).collect()
}

/// The buffers of a vector to be filled.
///
/// # Safety
/// As the module says.
pub(crate) unsafe fn rooms<'a>(at: *const libc::iovec, count: usize) -> Result<Vec<IoSliceMut<'a>>, Errno> {
    // SAFETY: as the caller promises.
    let parts = unsafe { parts(at, count) }?;
    // SAFETY: as the caller promises, for each part.
    parts.iter().map(|part| unsafe { room(part.iov_base, part.iov_len) }).collect()
}

/// A plain value of the caller.
///
/// # Safety
/// As the module says; `T` is plain C data.
pub(crate) unsafe fn value<T: Copy>(at: *const libc::c_void, length: usize) -> Result<T, Errno> {
    if length < size_of::<T>() {
        return Err(Errno::INVAL);
    }
    if at.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller has at least the bytes of a `T` there, aligned or not.
    Ok(unsafe { at.cast::<T>().read_unaligned() })
}

/// Writes a value cut to the length that the caller has room for, and the length, as `getsockopt` does.
///
/// # Safety
/// As the module says.
pub(crate) unsafe fn write_value(
    from: &[u8],
    at: *mut libc::c_void,
    length: *mut libc::socklen_t,
) -> Result<(), Errno> {
    if at.is_null() || length.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: not null; the caller's length.
    let room = unsafe { length.read_unaligned() } as usize;
    let count = from.len().min(room);
    // SAFETY: the caller has room for `room` bytes, of which `count` are written; then the length.
    unsafe {
        std::ptr::copy_nonoverlapping(from.as_ptr(), at.cast(), count);
        length.write_unaligned(libc::socklen_t::try_from(count).unwrap_or(0));
    }
    Ok(())
}

/// An address of the caller; `Ok(None)`: of no family (`AF_UNSPEC`).
///
/// # Safety
/// As the module says.
pub(crate) unsafe fn address(
    at: *const libc::sockaddr,
    length: libc::socklen_t,
) -> Result<Option<SocketAddr>, Errno> {
    let length = length as usize;
    // SAFETY: as the caller promises; lengths are compared.
    let family = unsafe { value::<libc::sa_family_t>(at.cast(), length) }?;
    match i32::from(family) {
        libc::AF_UNSPEC => Ok(None),
        libc::AF_INET => {
            // SAFETY: as above.
            let v4 = unsafe { value::<libc::sockaddr_in>(at.cast(), length) }?;
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { value::<libc::sockaddr_in6>(at.cast(), length) }?;
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Ok(Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id))))
        }
        _ => Err(Errno::AFNOSUPPORT),
    }
}

fn raw<T>(value: &T) -> Vec<u8> {
    // SAFETY: a plain struct of C without padding that is not zeroed by its maker.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) }.to_vec()
}

/// An address as C has it.
fn encoded(address: SocketAddr) -> Vec<u8> {
    match address {
        SocketAddr::V4(v4) => raw(&libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: v4.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
            sin_zero: [0; 8],
        }),
        SocketAddr::V6(v6) => raw(&libc::sockaddr_in6 {
            sin6_family: libc::AF_INET6 as libc::sa_family_t,
            sin6_port: v6.port().to_be(),
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
            sin6_scope_id: v6.scope_id(),
        }),
    }
}

/// Writes an address cut to the caller's room, and its full length, as `getsockname` does.
///
/// # Safety
/// As the module says.
pub(crate) unsafe fn write_address(
    address: SocketAddr,
    at: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> Result<(), Errno> {
    let bytes = encoded(address);
    // SAFETY: as the caller promises.
    unsafe { write_value(&bytes, at.cast(), length) }?;
    // SAFETY: not null, as `write_value` compared.
    unsafe { length.write_unaligned(libc::socklen_t::try_from(bytes.len()).unwrap_or(0)) };
    Ok(())
}
