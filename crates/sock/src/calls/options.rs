// SPDX-License-Identifier: Apache-2.0
//! Socket options: those of the program's side here, the others by the engine's socket.

use crate::answer::done;
use crate::pointers::{value, write_value};
use crate::process::{ProgramStream, stream};
use crate::real;
use bartizan_toe::layout::state;
use libc::{c_int, c_void, linger, socklen_t, timeval};
use rustix::io::Errno;
use std::sync::atomic::Ordering::SeqCst;

/// `SO_RCVTIMEO_NEW` and `SO_SNDTIMEO_NEW`, which 64-bit programs use as well.
const RECEIVE_TIME: c_int = 66;
const SEND_TIME: c_int = 67;

/// Options that ask for a queue of errors beside `SO_ERROR`.
const ERROR_QUEUES: [(c_int, c_int); 2] =
    [(libc::IPPROTO_IP, libc::IP_RECVERR), (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)];

fn milliseconds(time: timeval) -> Result<u32, Errno> {
    if !(0..1_000_000).contains(&time.tv_usec) {
        return Err(Errno::DOM);
    }
    if time.tv_sec < 0 {
        return Ok(0);
    }
    let whole = time.tv_sec.saturating_mul(1000).saturating_add((time.tv_usec + 999) / 1000);
    Ok(u32::try_from(whole).unwrap_or(u32::MAX))
}

/// Sets an option of the program's side; `None`: it is the engine's.
fn set_own(
    stream: &ProgramStream,
    name: c_int,
    at: *const c_void,
    length: usize,
) -> Option<Result<(), Errno>> {
    let guest = &stream.slot_state().guest;
    let time = |word: &std::sync::atomic::AtomicU32| {
        // SAFETY: the caller's pointer and length.
        let time = unsafe { value::<timeval>(at, length) }?;
        word.store(milliseconds(time)?, SeqCst);
        Ok(())
    };
    match name {
        libc::SO_RCVTIMEO | RECEIVE_TIME => Some(time(&guest.rx_timeout)),
        libc::SO_SNDTIMEO | SEND_TIME => Some(time(&guest.tx_timeout)),
        libc::SO_LINGER => {
            // SAFETY: the caller's pointer and length.
            let wanted = unsafe { value::<linger>(at, length) };
            Some(wanted.map(|wanted| {
                let seconds = u32::try_from(wanted.l_linger).unwrap_or(0);
                let word = if wanted.l_onoff == 0 { 0 } else { seconds.saturating_add(1) };
                guest.linger.store(word, SeqCst);
            }))
        }
        libc::SO_TYPE | libc::SO_DOMAIN | libc::SO_PROTOCOL | libc::SO_ERROR | libc::SO_ACCEPTCONN => {
            Some(Err(Errno::NOPROTOOPT))
        }
        _ => None,
    }
}

/// The value of an option of the program's side; `None`: it is the engine's.
fn own(stream: &ProgramStream, name: c_int) -> Option<Vec<u8>> {
    let guest = &stream.slot_state().guest;
    let number = |value: i32| Some(value.to_ne_bytes().to_vec());
    let time = |milliseconds: u32| {
        let (seconds, micros) = (i64::from(milliseconds / 1000), i64::from(milliseconds % 1000) * 1000);
        Some([seconds.to_ne_bytes(), micros.to_ne_bytes()].concat())
    };
    match name {
        libc::SO_ERROR => number(stream.take_error().map_or(0, Errno::raw_os_error)),
        libc::SO_TYPE if stream.is_datagram() => number(libc::SOCK_DGRAM),
        libc::SO_TYPE => number(libc::SOCK_STREAM),
        libc::SO_DOMAIN => number(if stream.has(state::V6) { libc::AF_INET6 } else { libc::AF_INET }),
        libc::SO_PROTOCOL if stream.is_datagram() => number(libc::IPPROTO_UDP),
        libc::SO_PROTOCOL => number(libc::IPPROTO_TCP),
        libc::SO_ACCEPTCONN => number(i32::from(stream.has(state::LISTENING))),
        libc::SO_RCVLOWAT => number(1),
        libc::SO_RCVTIMEO | RECEIVE_TIME => time(guest.rx_timeout.load(SeqCst)),
        libc::SO_SNDTIMEO | SEND_TIME => time(guest.tx_timeout.load(SeqCst)),
        libc::SO_LINGER => {
            let word = guest.linger.load(SeqCst);
            let parts = [u32::from(word != 0), word.saturating_sub(1)];
            Some(parts.map(u32::to_ne_bytes).concat())
        }
        _ => None,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    at: *const c_void,
    length: socklen_t,
) -> c_int {
    let Some(stream) = stream(fd) else {
        // SAFETY: the caller's call.
        return unsafe { real::setsockopt(fd, level, name, at, length) };
    };
    if level == libc::SOL_SOCKET
        && let Some(result) = set_own(&stream, name, at, length as usize)
    {
        return done(result);
    }
    if stream.is_datagram() && ERROR_QUEUES.contains(&(level, name)) {
        // Errors of datagrams come with a later call; there is no queue of them.
        return 0;
    }
    // SAFETY: the caller's pointer and length.
    let value = match unsafe { crate::pointers::bytes(at, length as usize) } {
        Ok(value) => value,
        Err(error) => return crate::answer::fail(error),
    };
    done(stream.set_option(level.unsigned_abs(), name.unsigned_abs(), &value))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    at: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    let Some(stream) = stream(fd) else {
        // SAFETY: the caller's call.
        return unsafe { real::getsockopt(fd, level, name, at, length) };
    };
    if level == libc::SOL_SOCKET
        && let Some(value) = own(&stream, name)
    {
        // SAFETY: the caller's pointers.
        return done(unsafe { write_value(&value, at, length) });
    }
    if length.is_null() {
        return crate::answer::fail(Errno::FAULT);
    }
    // SAFETY: the caller's length, not null.
    let room = (unsafe { length.read_unaligned() } as usize).min(256);
    let mut value = [0; 256];
    let Some(part) = value.get_mut(..room) else { return crate::answer::fail(Errno::INVAL) };
    match stream.option(level.unsigned_abs(), name.unsigned_abs(), part) {
        // SAFETY: the caller's pointers.
        Ok(count) => done(unsafe { write_value(value.get(..count).unwrap_or_default(), at, length) }),
        Err(error) => crate::answer::fail(error),
    }
}
