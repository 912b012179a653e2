// SPDX-License-Identifier: Apache-2.0
//! System calls behind safe functions: packet sockets, `sendmmsg`, `bpf`.
//!
//! Source: packet(7), sendmmsg(2), bpf(2), clock_gettime(2), Linux `include/uapi/linux/if_packet.h` and
//! `bpf.h`.

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// `SOL_PACKET`, `PACKET_QDISC_BYPASS` and `PACKET_IGNORE_OUTGOING` of packet(7).
const SOL_PACKET: i32 = 263;
const QDISC_BYPASS: i32 = 20;
const IGNORE_OUTGOING: i32 = 23;
/// Commands of bpf(2).
const MAP_CREATE: i64 = 0;
const MAP_LOOKUP_ELEM: i64 = 1;
const PROG_LOAD: i64 = 5;
const PROG_TEST_RUN: i64 = 10;
const LINK_CREATE: i64 = 28;
/// `BPF_F_TEST_XDP_LIVE_FRAMES`.
const LIVE_FRAMES: u32 = 1 << 1;
/// `BPF_MAP_TYPE_ARRAY`.
const ARRAY: u32 = 2;
/// `BPF_XDP` among the attachment types, and `XDP_FLAGS_DRV_MODE`: the driver runs the program.
const ATTACH_XDP: u32 = 37;
const BY_DRIVER: u32 = 1 << 2;

/// The largest number of frames sent by one call.
pub const BATCH: usize = 64;

fn check(result: i64) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

fn set(socket: &OwnedFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the kernel reads the four bytes of `value`, which lives through the call.
    let done = unsafe {
        let size = size_of::<i32>() as libc::socklen_t;
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size)
    };
    check(done.into()).map(drop)
}

/// A packet socket that receives nothing yet.
fn packet_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked before it becomes an owned descriptor, which nobody else
    // holds.
    unsafe {
        let made = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        Ok(OwnedFd::from_raw_fd(check(made.into())?))
    }
}

/// The number of an interface.
///
/// # Errors
/// `ENODEV`: there is no interface of this name.
pub fn index(interface: &str) -> io::Result<u32> {
    let name = CString::new(interface)?;
    // SAFETY: `name` ends with a zero byte.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Binds a packet socket to an interface, for all protocols if `receive` is set.
fn bind(socket: &OwnedFd, interface: &str, receive: bool) -> io::Result<()> {
    let index = index(interface)?;
    // SAFETY: all zeros are an address of no interface.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = index as i32;
    address.sll_protocol = if receive { (libc::ETH_P_ALL as u16).to_be() } else { 0 };
    // SAFETY: pointer and length describe `address`, which lives through the call.
    let done = unsafe {
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size)
    };
    check(done.into()).map(drop)
}

/// A packet socket that sends past the queueing discipline.
///
/// # Errors
/// As socket(2), setsockopt(2) and bind(2); `ENODEV` if there is no such interface.
pub fn sender(interface: &str) -> io::Result<OwnedFd> {
    let socket = packet_socket()?;
    set(&socket, SOL_PACKET, QDISC_BYPASS, 1)?;
    // Frames are charged to the socket until the far end has them.
    set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 32 << 20)?;
    bind(&socket, interface, false)?;
    Ok(socket)
}

/// A packet socket whose frames only a program of bpf(2) sees.
///
/// # Errors
/// As [`sender`].
pub fn listener(interface: &str, program: &OwnedFd) -> io::Result<OwnedFd> {
    let socket = packet_socket()?;
    set(&socket, SOL_PACKET, IGNORE_OUTGOING, 1)?;
    set(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, program.as_raw_fd())?;
    bind(&socket, interface, true)?;
    Ok(socket)
}

/// Sends frames, [`BATCH`] at most. Returns the number sent before the device rejected one.
///
/// # Errors
/// As sendmsg(2), if the first frame was not sent.
pub fn send(socket: &OwnedFd, frames: &[&[u8]]) -> io::Result<usize> {
    // SAFETY: all zeros are a message and a vector of nothing.
    let (mut parts, mut messages) =
        unsafe { (zeroed::<[libc::iovec; BATCH]>(), zeroed::<[libc::mmsghdr; BATCH]>()) };
    let count = frames.len().min(BATCH);
    for ((frame, part), message) in frames.iter().zip(&mut parts).zip(&mut messages) {
        *part = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
        message.msg_hdr.msg_iov = part;
        message.msg_hdr.msg_iovlen = 1;
    }
    // SAFETY: the first `count` messages point to as many parts, these to the frames; all live through the
    // call, which only reads the frames.
    let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count as u32, 0) };
    Ok(check(sent.into())? as usize)
}

/// Processor time of the calling thread, including the kernel's work on its behalf: with the interfaces used
/// here also the far end's receive path.
#[must_use]
pub fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes a time to where `time` lives; with these arguments it cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Attributes of bpf(2), as long as the commands used here need; the kernel takes the rest as zero.
#[repr(C, align(8))]
struct Attributes([u32; 32]);

impl Attributes {
    fn new(words: &[u32]) -> Self {
        let mut all = [0; 32];
        all[..words.len()].copy_from_slice(words);
        Attributes(all)
    }

    /// Writes an address at an even index, counted in 32-bit words.
    fn address<T>(mut self, place: usize, what: *const T) -> Self {
        let address = what as u64;
        self.0[place] = address as u32;
        self.0[place + 1] = (address >> 32) as u32;
        self
    }

    /// # Safety
    /// Addresses in the attributes point to memory that lives through the call and has the size that the
    /// command requires.
    unsafe fn call(&self, command: i64) -> io::Result<i32> {
        // SAFETY: as the caller says; the attributes themselves live through the call, and the kernel copies
        // them.
        check(unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_ptr(), size_of::<Self>()) })
    }
}

/// Creates an array map of bpf(2) whose values are pairs of numbers.
///
/// # Errors
/// As bpf(2).
pub fn array_of_pairs(entries: u32) -> io::Result<OwnedFd> {
    // SAFETY: no addresses; the result is checked before it becomes an owned descriptor, which nobody else
    // holds.
    unsafe { Ok(OwnedFd::from_raw_fd(Attributes::new(&[ARRAY, 4, 16, entries]).call(MAP_CREATE)?)) }
}

/// The pair at an index of a map made by [`array_of_pairs`].
///
/// # Errors
/// As bpf(2): there is no such index.
pub fn pair(map: &OwnedFd, index: u32) -> io::Result<[u64; 2]> {
    let mut value = [0_u64; 2];
    let attributes = Attributes::new(&[map.as_raw_fd() as u32]);
    let attributes = attributes.address(2, &raw const index).address(4, &raw mut value);
    // SAFETY: key and value are of the sizes that the map was made with, and live through the call.
    unsafe { attributes.call(MAP_LOOKUP_ELEM)? };
    Ok(value)
}

/// Program type: `BPF_PROG_TYPE_SOCKET_FILTER` or `BPF_PROG_TYPE_XDP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Run by a packet socket on each frame.
    Socket = 1,
    /// Run by a driver on each incoming frame.
    Xdp = 6,
}

/// Lets the driver of an interface drop all incoming frames while the returned descriptors are open. The
/// interface counts the frames as received.
///
/// # Errors
/// As bpf(2): the driver runs no programs, or another program is attached; `ENODEV` if there is no such
/// interface.
pub fn drop_all(interface: &str) -> io::Result<[OwnedFd; 2]> {
    // r0 = XDP_DROP; exit.
    let program = load(&[0xb7 | 1 << 32, 0x95], Kind::Xdp)?;
    let attributes = Attributes::new(&[program.as_raw_fd() as u32, index(interface)?, ATTACH_XDP, BY_DRIVER]);
    // SAFETY: no addresses; the result is checked before it becomes an owned descriptor, which nobody else
    // holds.
    let link = unsafe { OwnedFd::from_raw_fd(attributes.call(LINK_CREATE)?) };
    Ok([program, link])
}

/// Runs an XDP program on `count` copies of a frame; frames that it redirects are really sent.
///
/// # Errors
/// As bpf(2).
pub fn run_live(program: &OwnedFd, frame: &[u8], count: u32) -> io::Result<()> {
    let mut attributes = Attributes::new(&[program.as_raw_fd() as u32, 0, frame.len() as u32]);
    (attributes.0[8], attributes.0[16]) = (count, LIVE_FRAMES);
    let attributes = attributes.address(4, frame.as_ptr());
    // SAFETY: the frame lives through the call and has the length that is passed; the kernel only reads it.
    unsafe { attributes.call(PROG_TEST_RUN) }.map(drop)
}

/// Loads a program. The error contains the verifier's log.
///
/// # Errors
/// As bpf(2).
pub fn load(program: &[u64], kind: Kind) -> io::Result<OwnedFd> {
    let (licence, mut log) = (c"Apache-2.0", vec![0_u8; 16 << 10]);
    let attributes = Attributes::new(&[kind as u32, program.len() as u32, 0, 0, 0, 0, 1, log.len() as u32]);
    let attributes = attributes.address(2, program.as_ptr()).address(4, licence.as_ptr());
    let attributes = attributes.address(8, log.as_mut_ptr());
    // SAFETY: program, licence and log live through the call, the lengths of program and log are passed, the
    // licence ends with a zero byte; the result is checked before it becomes an owned descriptor, which
    // nobody else holds.
    let loaded = unsafe { attributes.call(PROG_LOAD).map(|fd| OwnedFd::from_raw_fd(fd)) };
    loaded.map_err(|error| {
        let said = log.split(|byte| *byte == 0).next().unwrap_or_default();
        let said = String::from_utf8_lossy(said);
        io::Error::new(error.kind(), format!("{error}; the kernel says of the program: {}", said.trim()))
    })
}

/// Moves the calling thread into a network namespace of its own that has only a loopback interface, which is
/// down.
///
/// # Errors
/// As unshare(2).
#[cfg(test)]
pub fn own_namespace() -> io::Result<()> {
    // SAFETY: no memory is passed; the call changes which network the calling thread sees, and nothing else.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }.into()).map(drop)
}
