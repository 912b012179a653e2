// SPDX-License-Identifier: Apache-2.0
//! Reading and writing.

use super::connections::address_for;
use crate::answer::{answer, fail};
use crate::pointers::{bytes, room, rooms, slices, write_address};
use crate::process::{ProgramStream, borrow, stream};
use crate::real;
use crate::table::forget;
use bartizan_toe::guest::{ReceiveOptions, ReceivedDatagram};
use libc::{
    c_int, c_long, c_uint, c_void, iovec, mmsghdr, msghdr, off64_t, size_t, sockaddr, socklen_t, ssize_t,
};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

/// Bytes of a file or pipe copied at once.
const COPIED: usize = 16 << 10;

/// Sends, with the signal that a broken pipe has.
fn transmit(stream: &ProgramStream, parts: &[IoSlice<'_>], flags: c_int) -> Result<usize, Errno> {
    transmit_to(stream, parts, None, flags)
}

/// As [`transmit`]; a datagram may have a destination of its own.
fn transmit_to(
    stream: &ProgramStream,
    parts: &[IoSlice<'_>],
    to: Option<SocketAddr>,
    flags: c_int,
) -> Result<usize, Errno> {
    if flags & (libc::MSG_OOB | libc::MSG_FASTOPEN | libc::MSG_ZEROCOPY) != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    if stream.is_datagram() {
        return stream.transmit_datagram(parts, to, flags & libc::MSG_DONTWAIT != 0);
    }
    let result = stream.transmit(parts, flags & libc::MSG_DONTWAIT != 0);
    if result == Err(Errno::PIPE) && flags & libc::MSG_NOSIGNAL == 0 {
        // SAFETY: no pointers; as the kernel does.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    result
}

fn receive(stream: &ProgramStream, parts: &mut [IoSliceMut<'_>], flags: c_int) -> Result<usize, Errno> {
    receive_from(stream, parts, flags).map(|received| match flags & libc::MSG_TRUNC {
        0 => received.copied,
        _ => received.length,
    })
}

/// As [`receive`], with the sender of a datagram.
fn receive_from(
    stream: &ProgramStream,
    parts: &mut [IoSliceMut<'_>],
    flags: c_int,
) -> Result<ReceivedDatagram, Errno> {
    if flags & libc::MSG_OOB != 0 {
        return Err(Errno::INVAL);
    }
    if flags & libc::MSG_ERRQUEUE != 0 {
        return Err(Errno::AGAIN);
    }
    let options = ReceiveOptions {
        peek: flags & libc::MSG_PEEK != 0,
        wait_all: flags & libc::MSG_WAITALL != 0,
        dont_wait: flags & libc::MSG_DONTWAIT != 0,
        discard: flags & libc::MSG_TRUNC != 0,
    };
    if stream.is_datagram() {
        return stream.receive_datagram(parts, options);
    }
    let count = stream.receive(parts, options)?;
    Ok(ReceivedDatagram { copied: count, length: count, from: None })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn send(fd: c_int, from: *const c_void, length: size_t, flags: c_int) -> ssize_t {
    match stream(fd) {
        Some(stream) => {
            // SAFETY: the caller's pointer and length.
            let bytes = unsafe { bytes(from, length) };
            answer(bytes.and_then(|bytes| transmit(&stream, &[bytes], flags)))
        }
        // SAFETY: the caller's call.
        None => unsafe { real::send(fd, from, length, flags) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendto(
    fd: c_int,
    from: *const c_void,
    length: size_t,
    flags: c_int,
    to: *const sockaddr,
    size: socklen_t,
) -> ssize_t {
    match stream(fd) {
        Some(stream) if stream.is_datagram() && !to.is_null() => {
            // SAFETY: the caller's pointers and lengths.
            let (to, bytes) = unsafe { (address_for(&stream, to, size), bytes(from, length)) };
            answer(to.and_then(|to| transmit_to(&stream, &[bytes?], to, flags)))
        }
        // SAFETY: the caller's pointer and length. TCP does not look at the address.
        Some(_) => unsafe { send(fd, from, length, flags) },
        // SAFETY: the caller's call.
        None => unsafe { real::sendto(fd, from, length, flags, to, size) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    let Some(stream) = stream(fd) else {
        // SAFETY: the caller's call.
        return unsafe { real::sendmsg(fd, message, flags) };
    };
    // SAFETY: null, or the caller's message.
    let Some(message) = (unsafe { message.as_ref() }) else { return fail(Errno::FAULT) };
    // SAFETY: the parts of the caller's message.
    let parts = unsafe { slices(message.msg_iov, message.msg_iovlen) };
    let to = if stream.is_datagram() && !message.msg_name.is_null() {
        // SAFETY: the address of the caller's message, and its length.
        unsafe { address_for(&stream, message.msg_name.cast_const().cast(), message.msg_namelen) }
    } else {
        Ok(None)
    };
    answer(to.and_then(|to| transmit_to(&stream, &parts?, to, flags)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    if stream(fd).is_none() {
        // SAFETY: the caller's call.
        return unsafe { real::sendmmsg(fd, messages, count, flags) };
    }
    for index in 0..count.min(1024) as usize {
        // SAFETY: the caller has so many messages there.
        let message = unsafe { &mut *messages.add(index) };
        // SAFETY: the caller's message.
        let sent = unsafe { sendmsg(fd, &raw const message.msg_hdr, flags) };
        let Ok(sent) = u32::try_from(sent) else {
            return if index > 0 { i32::try_from(index).unwrap_or(-1) } else { -1 };
        };
        message.msg_len = sent;
    }
    i32::try_from(count.min(1024)).unwrap_or(-1)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recv(fd: c_int, at: *mut c_void, length: size_t, flags: c_int) -> ssize_t {
    match stream(fd) {
        Some(stream) => {
            // SAFETY: the caller's pointer and length.
            let room = unsafe { room(at, length) };
            answer(room.and_then(|room| receive(&stream, &mut [room], flags)))
        }
        // SAFETY: the caller's call.
        None => unsafe { real::recv(fd, at, length, flags) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvfrom(
    fd: c_int,
    at: *mut c_void,
    length: size_t,
    flags: c_int,
    from: *mut sockaddr,
    size: *mut socklen_t,
) -> ssize_t {
    let Some(stream) = stream(fd) else {
        // SAFETY: the caller's call.
        return unsafe { real::recvfrom(fd, at, length, flags, from, size) };
    };
    if stream.is_datagram() {
        // SAFETY: the caller's pointer and length.
        let room = unsafe { room(at, length) };
        let received = room.and_then(|room| receive_from(&stream, &mut [room], flags));
        if let Ok(ReceivedDatagram { from: Some(sender), .. }) = &received
            && !from.is_null()
        {
            // SAFETY: the caller's pointers, the first not null.
            if let Err(error) = unsafe { write_address(*sender, from, size) } {
                return fail(error);
            }
        }
        let is_whole = flags & libc::MSG_TRUNC != 0;
        return answer(received.map(|got| if is_whole { got.length } else { got.copied }));
    }
    // SAFETY: the caller's pointers. TCP gives no address.
    unsafe {
        if !from.is_null() && !size.is_null() {
            size.write_unaligned(0);
        }
        recv(fd, at, length, flags)
    }
}

/// Forgets the numbers of descriptors that came with a message.
///
/// # Safety
/// The message was filled by the kernel.
unsafe fn forget_received(message: &msghdr) {
    // SAFETY: walks the control data that the kernel wrote, with its own macros' functions.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(message);
        while let Some(head) = control.as_ref() {
            if head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(control).cast::<c_int>();
                let count = (head.cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<c_int>();
                (0..count).for_each(|index| forget(data.add(index).read_unaligned()));
            }
            control = libc::CMSG_NXTHDR(message, control);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    let Some(stream) = stream(fd) else {
        // SAFETY: the caller's call.
        let received = unsafe { real::recvmsg(fd, message, flags) };
        if received >= 0 {
            // SAFETY: the kernel filled it.
            unsafe { forget_received(&*message) };
        }
        return received;
    };
    // SAFETY: null, or the caller's message.
    let Some(message) = (unsafe { message.as_mut() }) else { return fail(Errno::FAULT) };
    // SAFETY: the parts of the caller's message.
    let parts = unsafe { rooms(message.msg_iov, message.msg_iovlen) };
    let received = match parts.and_then(|mut parts| receive_from(&stream, &mut parts, flags)) {
        Ok(received) => received,
        Err(error) => return fail(error),
    };
    let room = message.msg_namelen;
    (message.msg_namelen, message.msg_controllen, message.msg_flags) = (0, 0, 0);
    if let Some(from) = received.from.filter(|_| !message.msg_name.is_null()) {
        message.msg_namelen = room;
        let length = &raw mut message.msg_namelen;
        // SAFETY: the room for an address in the caller's message, and its length.
        let given = unsafe { write_address(from, message.msg_name.cast(), length) };
        if let Err(error) = given {
            return fail(error);
        }
    }
    if received.length > received.copied {
        message.msg_flags |= libc::MSG_TRUNC;
    }
    let is_whole = flags & libc::MSG_TRUNC != 0;
    answer(Ok(if is_whole { received.length } else { received.copied }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut libc::timespec,
) -> c_int {
    let Some(stream) = stream(fd) else {
        // SAFETY: the caller's call.
        return unsafe { real::recvmmsg(fd, messages, count, flags, timeout) };
    };
    let mut flags = flags & !libc::MSG_WAITFORONE;
    for index in 0..count.min(1024) as usize {
        // SAFETY: the caller has so many messages there.
        let message = unsafe { &mut *messages.add(index) };
        // SAFETY: the caller's message.
        let received = unsafe { recvmsg(fd, &raw mut message.msg_hdr, flags) };
        let Ok(received) = u32::try_from(received) else {
            return if index > 0 { i32::try_from(index).unwrap_or(-1) } else { -1 };
        };
        message.msg_len = received;
        if received == 0 && !stream.is_datagram() {
            return i32::try_from(index + 1).unwrap_or(-1);
        }
        flags |= libc::MSG_DONTWAIT;
    }
    i32::try_from(count.min(1024)).unwrap_or(-1)
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn read(fd: c_int, at: *mut c_void, length: size_t) -> ssize_t {
    match stream(fd) {
        // SAFETY: the caller's pointer and length.
        Some(_) => unsafe { recv(fd, at, length, 0) },
        // SAFETY: the caller's call.
        None => unsafe { real::read(fd, at, length) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    let Some(stream) = stream(fd) else {
        // SAFETY: the caller's call.
        return unsafe { real::readv(fd, parts, count) };
    };
    let Ok(count) = usize::try_from(count) else { return fail(Errno::INVAL) };
    // SAFETY: the caller's parts.
    let parts = unsafe { rooms(parts, count) };
    answer(parts.and_then(|mut parts| receive(&stream, &mut parts, 0)))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn write(fd: c_int, from: *const c_void, length: size_t) -> ssize_t {
    match stream(fd) {
        // SAFETY: the caller's pointer and length.
        Some(_) => unsafe { send(fd, from, length, 0) },
        // SAFETY: the caller's call.
        None => unsafe { real::write(fd, from, length) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    let Some(stream) = stream(fd) else {
        // SAFETY: the caller's call.
        return unsafe { real::writev(fd, parts, count) };
    };
    let Ok(count) = usize::try_from(count) else { return fail(Errno::INVAL) };
    // SAFETY: the caller's parts.
    let parts = unsafe { slices(parts, count) };
    answer(parts.and_then(|parts| transmit(&stream, &parts, 0)))
}

/// Copies a file to a stream, from an offset or from where the file is.
fn copy_file(
    stream: &ProgramStream,
    from: c_int,
    offset: Option<&mut off64_t>,
    count: usize,
) -> Result<usize, Errno> {
    let file = borrow(from).ok_or(Errno::BADF)?;
    let mut place = match &offset {
        Some(offset) => u64::try_from(**offset).map_err(|_| Errno::INVAL)?,
        // A file without a place is none that sendfile takes.
        None => rustix::fs::seek(file, rustix::fs::SeekFrom::Current(0)).map_err(|_| Errno::INVAL)?,
    };
    let (begin, mut buffer) = (place, [0; COPIED]);
    let mut result = Ok(());
    while (place - begin) < count as u64 {
        let left = count - usize::try_from(place - begin).unwrap_or(count);
        let Some(part) = buffer.get_mut(..left.min(COPIED)) else { break };
        let read = match rustix::io::pread(file, part, place) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) => {
                result = Err(error);
                break;
            }
        };
        match transmit(stream, &[IoSlice::new(buffer.get(..read).unwrap_or_default())], 0) {
            Ok(sent) => {
                place += sent as u64;
                if sent < read {
                    break;
                }
            }
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    let copied = usize::try_from(place - begin).unwrap_or(0);
    if copied == 0 {
        result?;
    }
    match offset {
        Some(offset) => *offset = off64_t::try_from(place).map_err(|_| Errno::OVERFLOW)?,
        None => {
            rustix::fs::seek(file, rustix::fs::SeekFrom::Start(place))?;
        }
    }
    Ok(copied)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile(to: c_int, from: c_int, offset: *mut off64_t, count: size_t) -> ssize_t {
    let Some(to) = stream(to) else {
        if stream(from).is_some() {
            return fail(Errno::INVAL);
        }
        // SAFETY: the caller's call.
        return unsafe { real::sendfile(to, from, offset, count) };
    };
    if stream(from).is_some() {
        return fail(Errno::INVAL);
    }
    // SAFETY: null, or the caller's offset.
    answer(copy_file(&to, from, unsafe { offset.as_mut() }, count))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile64(to: c_int, from: c_int, offset: *mut off64_t, count: size_t) -> ssize_t {
    // SAFETY: the caller's call; both are one on 64-bit Linux.
    unsafe { sendfile(to, from, offset, count) }
}

/// Copies of a pipe to a stream: no more than there is room for, since bytes cannot be put back.
fn copy_from_pipe(to: &ProgramStream, pipe: c_int, count: usize, dont_wait: bool) -> Result<usize, Errno> {
    let pipe = borrow(pipe).ok_or(Errno::BADF)?;
    let waits = !dont_wait && !to.is_nonblocking();
    let space = if waits { COPIED } else { to.space_now() };
    if space == 0 {
        return Err(Errno::AGAIN);
    }
    let mut buffer = [0; COPIED];
    let part = buffer.get_mut(..count.min(space).min(COPIED)).unwrap_or_default();
    let read = rustix::io::read(pipe, &mut *part)?;
    let mut sent = 0;
    while sent < read {
        sent += transmit(to, &[IoSlice::new(part.get(sent..read).unwrap_or_default())], 0)?;
    }
    Ok(read)
}

/// Copies of a stream to a pipe: what the pipe takes is taken out of the stream.
fn copy_to_pipe(from: &ProgramStream, pipe: c_int, count: usize, flags: c_int) -> Result<usize, Errno> {
    let pipe = borrow(pipe).ok_or(Errno::BADF)?;
    let mut buffer = [0; COPIED];
    let part = buffer.get_mut(..count.min(COPIED)).unwrap_or_default();
    let seen = receive(from, &mut [IoSliceMut::new(part)], flags | libc::MSG_PEEK)?;
    if seen == 0 {
        return Ok(0);
    }
    let written = rustix::io::write(pipe, part.get(..seen).unwrap_or_default())?;
    receive(from, &mut [IoSliceMut::new(part.get_mut(..written).unwrap_or_default())], libc::MSG_TRUNC)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn splice(
    from: c_int,
    from_offset: *mut off64_t,
    to: c_int,
    to_offset: *mut off64_t,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    let dont_wait = flags & libc::SPLICE_F_NONBLOCK != 0;
    let receive_flags = if dont_wait { libc::MSG_DONTWAIT } else { 0 };
    let is_pipe = |fd| rustix::pipe::fcntl_getpipe_size(fd).is_ok();
    match (stream(from), stream(to)) {
        (None, None) => {
            // SAFETY: the caller's call.
            unsafe { real::splice(from, from_offset, to, to_offset, length, flags) }
        }
        _ if !from_offset.is_null() || !to_offset.is_null() => fail(Errno::SPIPE),
        (None, Some(stream)) if borrow(from).is_some_and(is_pipe) => {
            answer(copy_from_pipe(&stream, from, length, dont_wait))
        }
        (Some(stream), None) if borrow(to).is_some_and(is_pipe) => {
            answer(copy_to_pipe(&stream, to, length, receive_flags))
        }
        _ => fail(Errno::INVAL),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __read_chk(fd: c_int, at: *mut c_void, length: size_t, size: size_t) -> ssize_t {
    // SAFETY: the caller's pointer; a length beyond its buffer ends the program, as in the C library.
    unsafe {
        if length > size {
            libc::abort();
        }
        read(fd, at, length)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __recv_chk(
    fd: c_int,
    at: *mut c_void,
    length: size_t,
    size: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as above.
    unsafe {
        if length > size {
            libc::abort();
        }
        recv(fd, at, length, flags)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    at: *mut c_void,
    length: size_t,
    size: size_t,
    flags: c_int,
    from: *mut sockaddr,
    address_size: *mut socklen_t,
) -> ssize_t {
    // SAFETY: as above.
    unsafe {
        if length > size {
            libc::abort();
        }
        recvfrom(fd, at, length, flags, from, address_size)
    }
}

/// Calls by number: libuv sends and receives datagrams so (dig, node). Others go on as they are; an argument
/// that the caller did not give is whatever its register or place on the stack has, as in the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> ssize_t {
    let by_number = number == libc::SYS_sendmmsg || number == libc::SYS_recvmmsg;
    if !by_number {
        // SAFETY: the caller's call.
        return unsafe { real::syscall(number, a, b, c, d, e, f) };
    }
    // The registers of a call have more bits than its arguments.
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
    let (fd, count, flags) = (a as c_int, c as c_uint, d as c_int);
    if stream(fd).is_none() {
        // SAFETY: the caller's call.
        return unsafe { real::syscall(number, a, b, c, d, e, f) };
    }
    // SAFETY: the caller's pointers, as those calls demand.
    let result = unsafe {
        match number {
            libc::SYS_sendmmsg => sendmmsg(fd, b as *mut mmsghdr, count, flags),
            _ => recvmmsg(fd, b as *mut mmsghdr, count, flags, e as *mut libc::timespec),
        }
    };
    isize::try_from(result).unwrap_or(-1)
}
