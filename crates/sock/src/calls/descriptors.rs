// SPDX-License-Identifier: Apache-2.0
//! close, vfork, dup, fcntl, ioctl, and streams of the C library.

use crate::answer::fail;
use crate::process::{is_own, own, stream};
use crate::real;
use crate::table::{forget, forget_range};
use bartizan_toe::layout::state;
use libc::{FILE, c_char, c_int, c_uint, c_ulong, c_void, off64_t, pid_t, size_t, ssize_t};
use rustix::io::Errno;
use std::sync::atomic::Ordering::SeqCst;

#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    if is_own(fd) {
        return fail(Errno::BADF);
    }
    forget(fd);
    // SAFETY: no pointers.
    unsafe { real::close(fd) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const ON_EXEC: c_int = libc::CLOSE_RANGE_CLOEXEC as c_int;
    if flags & ON_EXEC == 0 {
        forget_range(first, last);
    }
    let mut begin = first;
    for own in own().into_iter().filter_map(|own| c_uint::try_from(own).ok()) {
        if own < begin || own > last {
            continue;
        }
        if own > begin {
            // SAFETY: no pointers.
            let status = unsafe { real::close_range(begin, own - 1, flags) };
            if status != 0 {
                return status;
            }
        }
        begin = own + 1;
    }
    if begin > last && begin != first {
        return 0;
    }
    // SAFETY: no pointers.
    unsafe { real::close_range(begin, last, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: no pointers.
    unsafe { close_range(c_uint::try_from(first).unwrap_or(0), c_uint::MAX, 0) };
}

/// A `fork`: the child of a `vfork` has its parent's memory but descriptors of its own, so what this library
/// notes there would be wrong in the parent.
#[unsafe(no_mangle)]
unsafe extern "C" fn vfork() -> pid_t {
    // SAFETY: no pointers; what a child of `vfork` may do, a child of `fork` may do as well.
    unsafe { libc::fork() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: no pointers.
    let new = unsafe { real::dup(fd) };
    forget(new);
    new
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    if is_own(to) {
        return fail(Errno::BUSY);
    }
    // SAFETY: no pointers.
    let new = unsafe { real::dup2(fd, to) };
    forget(new);
    new
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    if is_own(to) {
        return fail(Errno::BUSY);
    }
    // SAFETY: no pointers.
    let new = unsafe { real::dup3(fd, to, flags) };
    forget(new);
    new
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's call; a variadic argument is in the same register.
    let result = unsafe { real::fcntl(fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => forget(result),
        libc::F_SETFL if result == 0 => {
            if let Some(stream) = stream(fd) {
                let nonblocking = u32::from(argument & libc::O_NONBLOCK as usize != 0);
                stream.slot_state().guest.nonblocking.store(nonblocking, SeqCst);
            }
        }
        _ => {}
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's call; both are one on 64-bit Linux.
    unsafe { fcntl(fd, command, argument) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    let is_known = matches!(request, libc::FIONREAD | libc::FIONBIO | libc::TIOCOUTQ | SIOCATMARK);
    let Some(stream) = is_known.then(|| stream(fd)).flatten() else {
        // SAFETY: the caller's call.
        return unsafe { real::ioctl(fd, request, argument) };
    };
    let number = argument as *mut c_int;
    if number.is_null() {
        return fail(Errno::FAULT);
    }
    let count = match request {
        libc::FIONBIO => {
            // SAFETY: the caller's number, not null.
            let wanted = unsafe { number.read_unaligned() };
            stream.slot_state().guest.nonblocking.store(u32::from(wanted != 0), SeqCst);
            // SAFETY: the caller's call.
            return unsafe { real::ioctl(fd, request, argument) };
        }
        _ if stream.has(state::LISTENING) => return fail(Errno::INVAL),
        libc::FIONREAD if stream.is_datagram() => stream.next_datagram(),
        libc::FIONREAD => stream.unread(),
        libc::TIOCOUTQ => stream.untaken(),
        _ => 0,
    };
    // SAFETY: the caller's number, not null.
    unsafe { number.write_unaligned(c_int::try_from(count).unwrap_or(c_int::MAX)) };
    0
}

/// `SIOCATMARK`, which libc does not have.
const SIOCATMARK: c_ulong = 0x8905;

/// The descriptor that a cookie is.
fn of_cookie(cookie: *mut c_void) -> c_int {
    c_int::try_from(cookie as usize).unwrap_or(-1)
}

unsafe extern "C" fn read_cookie(cookie: *mut c_void, at: *mut c_char, size: size_t) -> ssize_t {
    // SAFETY: the C library's buffer and its size.
    unsafe { super::transfer::read(of_cookie(cookie), at.cast(), size) }
}

unsafe extern "C" fn write_cookie(cookie: *mut c_void, from: *const c_char, size: size_t) -> ssize_t {
    let mut written = 0;
    while written < size {
        // SAFETY: the C library's buffer, from what was written on.
        let count =
            unsafe { super::transfer::write(of_cookie(cookie), from.add(written).cast(), size - written) };
        match usize::try_from(count) {
            Ok(count) if count > 0 => written += count,
            _ => break,
        }
    }
    // A cookie's writer says 0 for an error.
    ssize_t::try_from(written).unwrap_or(0)
}

unsafe extern "C" fn seek_cookie(_: *mut c_void, _: *mut off64_t, _: c_int) -> c_int {
    fail(Errno::SPIPE)
}

unsafe extern "C" fn close_cookie(cookie: *mut c_void) -> c_int {
    // SAFETY: no pointers.
    unsafe { close(of_cookie(cookie)) }
}

/// Functions of `fopencookie(3)`, as the C library has them.
#[repr(C)]
struct CookieFunctions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: CookieFunctions) -> *mut FILE;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if stream(fd).is_none() {
        // SAFETY: the caller's call.
        return unsafe { real::fdopen(fd, mode) };
    }
    let functions =
        CookieFunctions { read: read_cookie, write: write_cookie, seek: seek_cookie, close: close_cookie };
    let cookie = usize::try_from(fd).unwrap_or(0) as *mut c_void;
    // SAFETY: the caller's mode; the functions have the form that the manual page gives, and the cookie is a
    // number that they do not follow.
    unsafe { fopencookie(cookie, mode, functions) }
}
