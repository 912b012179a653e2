// SPDX-License-Identifier: Apache-2.0
//! The library that programs of a guest load (`LD_PRELOAD`, or linked): calls on TCP and UDP sockets go to
//! the engine by shared memory, all others to the C library.
//!
//! A stream is a kernel descriptor, one end of a socket pair, so that `poll`, `epoll`, `dup`, `fork`, `exec`
//! and `SCM_RIGHTS` are the kernel's business. The other end has a name, by which a descriptor is
//! recognised wherever it came from. The table here (module `table`) only remembers that.
//!
//! The library is no boundary: a program may go round it. The boundary is the guest's namespace.
//!
//! Limits: x86-64 and 64-bit Arm (variadic calls); a bad pointer ends the program where the kernel says
//! `EFAULT`; no calls on streams in signal handlers that interrupted one; no `MSG_OOB`; `EPOLLHUP` and
//! `EPOLLERR` are `EPOLLIN | EPOLLRDHUP`.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod answer;
// Calls of C with the caller's pointers; the argument is at the top of each file.
#[allow(unsafe_code)]
mod calls;
#[allow(unsafe_code)]
mod pointers;
#[allow(unsafe_code)]
mod process;
#[allow(unsafe_code)]
mod real;
mod table;
