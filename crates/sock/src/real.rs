// SPDX-License-Identifier: Apache-2.0
//! The C library's functions behind those of this library: the next ones of the same name.
//!
//! Each address is looked up once. It is the address of a function with the declared arguments, since the
//! name is that of a C function with these; a function that does not exist fails with `ENOSYS`.

use crate::answer::{CResult, fail};
use libc::{FILE, off64_t, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval};
use libc::{
    c_char, c_int, c_long, c_uint, c_void, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, pollfd,
};
use rustix::io::Errno;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

impl CResult for *mut FILE {
    const FAILED: *mut FILE = std::ptr::null_mut();
    fn of(_: usize) -> *mut FILE {
        std::ptr::null_mut()
    }
}

macro_rules! real {
    ($($symbol:literal $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(
            /// The C library's function of this name.
            ///
            /// # Safety
            /// As that function demands.
            pub(crate) unsafe fn $name($($argument: $kind),*) -> $result {
                static ADDRESS: AtomicUsize = AtomicUsize::new(0);
                let mut address = ADDRESS.load(Relaxed);
                if address == 0 {
                    // SAFETY: a terminated string.
                    address = unsafe { libc::dlsym(libc::RTLD_NEXT, $symbol.as_ptr()) } as usize;
                    if address == 0 {
                        return fail(Errno::NOSYS);
                    }
                    ADDRESS.store(address, Relaxed);
                }
                // SAFETY: the address of the C function with these arguments, as the module says; the caller
                // keeps to its demands.
                unsafe {
                    let function: unsafe extern "C" fn($($kind),*) -> $result =
                        std::mem::transmute::<usize, _>(address);
                    function($($argument),*)
                }
            }
        )*
    };
}

real! {
    c"socket" socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    c"connect" connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    c"bind" bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    c"listen" listen(fd: c_int, backlog: c_int) -> c_int;
    c"accept" accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    c"accept4" accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    c"getsockname" getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    c"getpeername" getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    c"send" send(fd: c_int, bytes: *const c_void, length: size_t, flags: c_int) -> ssize_t;
    c"sendto" sendto(fd: c_int, bytes: *const c_void, length: size_t, flags: c_int, address: *const sockaddr, size: socklen_t) -> ssize_t;
    c"sendmsg" sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    c"sendmmsg" sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    c"recv" recv(fd: c_int, bytes: *mut c_void, length: size_t, flags: c_int) -> ssize_t;
    c"recvfrom" recvfrom(fd: c_int, bytes: *mut c_void, length: size_t, flags: c_int, address: *mut sockaddr, size: *mut socklen_t) -> ssize_t;
    c"recvmsg" recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    c"recvmmsg" recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    c"read" read(fd: c_int, bytes: *mut c_void, length: size_t) -> ssize_t;
    c"readv" readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    c"write" write(fd: c_int, bytes: *const c_void, length: size_t) -> ssize_t;
    c"writev" writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    c"sendfile" sendfile(out: c_int, from: c_int, offset: *mut off64_t, count: size_t) -> ssize_t;
    c"splice" splice(from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, length: size_t, flags: c_uint) -> ssize_t;
    c"shutdown" shutdown(fd: c_int, how: c_int) -> c_int;
    c"getsockopt" getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int;
    c"setsockopt" setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int;
    c"close" close(fd: c_int) -> c_int;
    c"dup" dup(fd: c_int) -> c_int;
    c"dup2" dup2(fd: c_int, to: c_int) -> c_int;
    c"dup3" dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    c"fcntl" fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    c"ioctl" ioctl(fd: c_int, request: libc::c_ulong, argument: usize) -> c_int;
    c"poll" poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    c"ppoll" ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    c"select" select(count: c_int, read: *mut fd_set, write: *mut fd_set, other: *mut fd_set, timeout: *mut timeval) -> c_int;
    c"pselect" pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, other: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    c"epoll_ctl" epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    c"close_range" close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    c"syscall" syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> ssize_t;
    c"fdopen" fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
}
