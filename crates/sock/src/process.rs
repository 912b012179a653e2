// SPDX-License-Identifier: Apache-2.0
//! The process as a member of its guest, and the streams of its descriptors.
//!
//! `unsafe` is here for three things: a process value that lives for ever once it is shown (it is leaked, so
//! references to it stay valid, also in threads that took it before a `fork`); descriptors borrowed by
//! number for the time of a call, which the program keeps open as for any call of the kernel; the handler of
//! `pthread_atfork`, which only stores words and closes descriptors of the library.

use crate::table::{Remembered, forget, remember, remembered};
use bartizan_toe::guest::{GUEST_DESCRIPTOR, GuestProcess, GuestStream, forget_thread, named_stream};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr};

static PROCESS: AtomicPtr<GuestProcess> = AtomicPtr::new(ptr::null_mut());
/// The process has no guest, or could not join it: all calls go to the C library.
static IS_ALONE: AtomicBool = AtomicBool::new(false);
static JOINING: AtomicBool = AtomicBool::new(false);
static HAS_HANDLER: AtomicBool = AtomicBool::new(false);
/// Number of the guest's descriptor, to keep the program from closing it.
static GUEST: AtomicI32 = AtomicI32::new(-1);

/// Borrows a descriptor of the program for the time of a call.
pub(crate) fn borrow<'a>(fd: i32) -> Option<BorrowedFd<'a>> {
    // SAFETY: not -1; the program keeps it open during its call. If it does not, the kernel says EBADF or
    // takes the number for what it is then, as with its own calls.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// The guest's descriptor from the environment.
fn guest_descriptor() -> Option<i32> {
    let name = c"BARTIZAN_GUEST";
    debug_assert_eq!(name.to_bytes(), GUEST_DESCRIPTOR.as_bytes());
    // SAFETY: a terminated string; the answer is null or a string of the environment, which is read at once.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(value) }.to_str().ok()?.parse().ok()
}

/// Reads the environment when the library is loaded: programs clear it later, before they fork (nginx).
extern "C" fn at_load() {
    GUEST.store(guest_descriptor().unwrap_or(-1), Release);
}

// SAFETY: the loader calls the functions of this section after the C library is ready; the function only
// reads the environment and stores a number.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn after_fork() {
    let before = PROCESS.swap(ptr::null_mut(), AcqRel);
    JOINING.store(false, Release);
    forget_thread();
    if before.is_null() {
        return;
    }
    // SAFETY: shown by `join`, never freed.
    for fd in unsafe { &*before }.own_descriptors() {
        // The parent's channel must not outlive the parent in its child: the engine sees the end of it.
        // SAFETY: descriptors of the library, which this process does not use again.
        unsafe { rustix::io::close(fd) };
    }
}

/// The process as a member of its guest; `None`: it has none.
pub(crate) fn process() -> Option<&'static GuestProcess> {
    let shown = PROCESS.load(Acquire);
    if !shown.is_null() {
        // SAFETY: shown by `join`, never freed.
        return Some(unsafe { &*shown });
    }
    if IS_ALONE.load(Acquire) { None } else { join() }
}

#[cold]
fn join() -> Option<&'static GuestProcess> {
    while JOINING.swap(true, AcqRel) {
        std::thread::yield_now();
        if !PROCESS.load(Acquire).is_null() || IS_ALONE.load(Acquire) {
            break;
        }
    }
    let before = PROCESS.load(Acquire);
    if before.is_null() && !IS_ALONE.load(Acquire) {
        match borrow(GUEST.load(Acquire)).map(GuestProcess::join) {
            Some(Ok(process)) => {
                if !HAS_HANDLER.swap(true, AcqRel) {
                    // SAFETY: a function without arguments that is part of this library.
                    unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
                }
                PROCESS.store(Box::into_raw(Box::new(process)), Release);
            }
            _ => IS_ALONE.store(true, Release),
        }
    }
    JOINING.store(false, Release);
    let shown = PROCESS.load(Acquire);
    // SAFETY: null, or leaked above and never freed.
    unsafe { shown.as_ref() }
}

/// Whether a descriptor is the library's, so that the program must not close it.
pub(crate) fn is_own(fd: i32) -> bool {
    if IS_ALONE.load(Acquire) || fd < 0 {
        return false;
    }
    let shown = PROCESS.load(Acquire);
    // SAFETY: null, or leaked and never freed.
    let own = unsafe { shown.as_ref() }.map(GuestProcess::own_descriptors);
    fd == GUEST.load(Acquire) || own.is_some_and(|own| own.contains(&fd))
}

/// The library's descriptors, in order.
pub(crate) fn own() -> [i32; 3] {
    let shown = PROCESS.load(Acquire);
    // SAFETY: null, or leaked and never freed.
    let [bell, channel] = unsafe { shown.as_ref() }.map_or([-1, -1], GuestProcess::own_descriptors);
    let mut own = [bell, channel, GUEST.load(Acquire)];
    own.sort_unstable();
    own
}

/// A stream of the program.
pub(crate) type ProgramStream = GuestStream<'static>;

/// The stream of a descriptor; `None`: it is something else, which is the C library's business.
pub(crate) fn stream(fd: i32) -> Option<ProgramStream> {
    match remembered(fd) {
        Remembered::Other => None,
        Remembered::Stream(handle) => match process()?.stream(handle, borrow(fd)?) {
            Some(stream) => Some(stream),
            None => recognise(fd),
        },
        Remembered::Nothing => recognise(fd),
    }
}

/// Looks at the name of the descriptor's other end.
#[cold]
fn recognise(fd: i32) -> Option<ProgramStream> {
    let process = process()?;
    let borrowed = borrow(fd)?;
    let peer = match rustix::net::getpeername(borrowed) {
        Err(Errno::BADF) => {
            forget(fd);
            return None;
        }
        Err(_) | Ok(None) => None,
        Ok(Some(peer)) => rustix::net::SocketAddrUnix::try_from(peer).ok(),
    };
    let handle = peer.as_ref().and_then(|peer| peer.abstract_name()).and_then(named_stream);
    let stream = handle.and_then(|handle| process.stream(handle, borrowed));
    remember(fd, stream.map(|stream| stream.handle()));
    stream
}
