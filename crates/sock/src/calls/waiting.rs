// SPDX-License-Identifier: Apache-2.0
//! poll, select, epoll: streams among the descriptors are watched from now on, and the kernel waits.

use crate::process::stream;
use crate::real;
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

/// Watches the streams of a set for `poll`.
///
/// # Safety
/// The caller has so many entries there.
unsafe fn watch_all(fds: *const pollfd, count: nfds_t) {
    let Ok(count) = usize::try_from(count) else { return };
    if fds.is_null() {
        return;
    }
    for index in 0..count {
        // SAFETY: as the caller promises.
        let fd = unsafe { fds.add(index).read_unaligned() }.fd;
        if fd >= 0
            && let Some(stream) = stream(fd)
        {
            stream.watch(false);
        }
    }
}

/// Watches the streams of sets for `select`.
///
/// # Safety
/// The caller's sets, or null.
unsafe fn watch_sets(count: c_int, sets: [*mut fd_set; 3]) {
    for set in sets {
        // SAFETY: as the caller promises.
        let Some(set) = (unsafe { set.as_ref() }) else { continue };
        // SAFETY: numbers below the size of a set.
        let is_in = |fd: &c_int| unsafe { libc::FD_ISSET(*fd, set) };
        for fd in (0..count.min(libc::FD_SETSIZE as c_int)).filter(is_in) {
            if let Some(stream) = stream(fd) {
                stream.watch(false);
            }
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's call.
    unsafe {
        watch_all(fds, count);
        real::poll(fds, count, timeout)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's call.
    unsafe {
        watch_all(fds, count);
        real::ppoll(fds, count, timeout, mask)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, _: size_t) -> c_int {
    // SAFETY: the caller's call.
    unsafe { poll(fds, count, timeout) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    _: size_t,
) -> c_int {
    // SAFETY: the caller's call.
    unsafe { ppoll(fds, count, timeout, mask) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    other: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's call.
    unsafe {
        watch_sets(count, [read, write, other]);
        real::select(count, read, write, other, timeout)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    other: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's call.
    unsafe {
        watch_sets(count, [read, write, other]);
        real::pselect(count, read, write, other, timeout, mask)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    let watches = operation == libc::EPOLL_CTL_ADD || operation == libc::EPOLL_CTL_MOD;
    if watches
        && !event.is_null()
        && let Some(stream) = stream(fd)
    {
        // SAFETY: the caller's event, not null.
        let events = unsafe { event.read_unaligned() }.events;
        stream.watch(events & libc::EPOLLET as u32 != 0);
    }
    // SAFETY: the caller's call.
    unsafe { real::epoll_ctl(epoll, operation, fd, event) }
}
