// SPDX-License-Identifier: Apache-2.0
//! System calls of the level as safe functions.
//!
//! Source: bpf(2), Linux `include/uapi/linux/bpf.h` and `magic.h`, rtnetlink(7), netdevice(7),
//! `include/uapi/linux/ethtool.h`. This is one of the crate's two modules with `unsafe` (the other one is
//! `memory`). The loader's own maps know neither groups of entries nor a run of a program, and have no owner
//! that several threads may use, so these calls are made here; every function is safe to call with any
//! arguments: lengths of slices are compared with what the kernel reads and writes, which the caller says
//! with the map's sizes.

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

const MAP_UPDATE_ELEM: libc::c_long = 2;
const MAP_DELETE_ELEM: libc::c_long = 3;
const OBJ_PIN: libc::c_long = 6;
const OBJ_GET: libc::c_long = 7;
const PROG_TEST_RUN: libc::c_long = 10;
const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const LINK_CREATE: libc::c_long = 28;
const LINK_UPDATE: libc::c_long = 29;
const LINK_GET_FD_BY_ID: libc::c_long = 30;
const LINK_DETACH: libc::c_long = 34;

/// `BPF_XDP`.
const ATTACH_XDP: u32 = 37;
/// `BPF_LINK_TYPE_XDP`.
const LINK_XDP: u32 = 6;
/// `BPF_FS_MAGIC`.
const BPF_FILE_SYSTEM: u64 = 0xcafe_4a11;

/// The entry must not exist yet.
const NO_EXIST: u64 = 1;
/// Frames that a program redirects are really sent.
const LIVE_FRAMES: u32 = 1 << 1;

/// A map whose entries have these lengths, which the kernel reads and writes.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    key: usize,
    value: usize,
}

/// Whether an existing entry may be overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapUpdateMode {
    /// It may be.
    Any,
    /// It may not be: `EEXIST`.
    New,
}

#[repr(C)]
#[derive(Default)]
struct Element {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    unused: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkNumber {
    id: u32,
    next: u32,
    flags: u32,
}

#[repr(C)]
struct LinkDetach {
    link: u32,
}

#[repr(C)]
struct LinkUpdate {
    link: u32,
    program: u32,
    flags: u32,
    old_program: u32,
}

#[repr(C)]
#[derive(Default)]
struct Object {
    path: u64,
    fd: u32,
    flags: u32,
}

#[repr(C)]
struct Ask {
    fd: u32,
    length: u32,
    info: u64,
}

/// The first bytes of `struct bpf_link_info`, as they are of a link of XDP.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    unused: u32,
    interface: u32,
    unused_too: u32,
}

/// `struct xdp_md`.
#[repr(C)]
#[derive(Default)]
struct XdpMd {
    data: u32,
    data_end: u32,
    data_meta: u32,
    ingress_ifindex: u32,
    rx_queue_index: u32,
    egress_ifindex: u32,
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

/// # Safety
/// `attributes` is what the command reads, and its pointers are valid for the lengths that it reads and
/// writes.
unsafe fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: pointer and length describe `attributes`; what they point to is the caller's promise.
    check(unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) })
}

impl Map {
    /// Wraps a map that was loaded with these lengths of keys and values. (For maps with a value for each
    /// processor the kernel would write more: none is passed here.)
    pub(crate) fn new(fd: OwnedFd, key: usize, value: usize) -> Self {
        Map { fd, key, value }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.fd)
    }

    fn element(&self, key: &[u8], value: Option<*const u8>, flags: u64) -> io::Result<Element> {
        if key.len() != self.key {
            return Err(invalid());
        }
        Ok(Element {
            map: self.fd.as_raw_fd() as u32,
            key: key.as_ptr() as u64,
            value: value.map_or(0, |value| value as u64),
            flags,
            ..Element::default()
        })
    }

    /// Writes an entry.
    pub(crate) fn update(&self, key: &[u8], value: &[u8], write: MapUpdateMode) -> io::Result<()> {
        if value.len() != self.value {
            return Err(invalid());
        }
        let flags = if write == MapUpdateMode::New { NO_EXIST } else { 0 };
        let mut attributes = self.element(key, Some(value.as_ptr()), flags)?;
        // SAFETY: key and value have the map's lengths; the kernel only reads them.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut attributes) }.map(|_| ())
    }

    /// Deletes an entry.
    pub(crate) fn delete(&self, key: &[u8]) -> io::Result<()> {
        let mut attributes = self.element(key, None, 0)?;
        // SAFETY: the key has the map's length; the kernel only reads it.
        unsafe { bpf(MAP_DELETE_ELEM, &mut attributes) }.map(|_| ())
    }
}

/// A program on an interface. Dropping it detaches the program, unless it stays.
#[derive(Debug)]
pub(crate) struct Attachment {
    fd: OwnedFd,
    stays: bool,
}

impl Attachment {
    /// Attaches an XDP program. `flags`: the mode, `XDP_FLAGS_*`.
    pub(crate) fn new(program: BorrowedFd<'_>, interface: u32, flags: u32) -> io::Result<Self> {
        let mut attributes =
            LinkCreate { program: program.as_raw_fd() as u32, interface, attach_type: ATTACH_XDP, flags };
        // SAFETY: the attributes hold no pointers.
        let fd = unsafe { bpf(LINK_CREATE, &mut attributes)? };
        // SAFETY: the kernel has just made the descriptor, and nobody else holds it.
        Ok(Attachment { fd: unsafe { OwnedFd::from_raw_fd(fd as RawFd) }, stays: false })
    }

    /// Opens a pinned attachment. It stays when this is dropped.
    pub(crate) fn pinned(path: &Path) -> io::Result<Self> {
        Ok(Attachment { fd: open_pinned(path)?, stays: true })
    }

    /// Opens any link by its number, to read its properties. It stays when this is dropped.
    pub(crate) fn of_number(id: u32) -> io::Result<Self> {
        let mut attributes = LinkNumber { id, ..LinkNumber::default() };
        // SAFETY: the attributes hold no pointers.
        let fd = unsafe { bpf(LINK_GET_FD_BY_ID, &mut attributes)? };
        // SAFETY: the kernel has just made the descriptor, and nobody else holds it.
        Ok(Attachment { fd: unsafe { OwnedFd::from_raw_fd(fd as RawFd) }, stays: true })
    }

    /// Pins it: the attachment stays when all descriptors are closed, until the file is removed.
    pub(crate) fn pin(&self, path: &Path) -> io::Result<()> {
        let path = c_path(path)?;
        let mut attributes =
            Object { path: path.as_ptr() as u64, fd: self.fd.as_raw_fd() as u32, ..Object::default() };
        // SAFETY: the path is NUL-terminated and lives through the call; the kernel only reads it.
        unsafe { bpf(OBJ_PIN, &mut attributes) }.map(|_| ())
    }

    /// Sets whether it stays when this is dropped.
    pub(crate) const fn set_stays(&mut self, stays: bool) {
        self.stays = stays;
    }

    /// The numbers of the program and of the interface, which is 0 once the interface is gone.
    pub(crate) fn numbers(&self) -> io::Result<(u32, u32)> {
        let mut info = LinkInfo::default();
        let mut attributes = Ask {
            fd: self.fd.as_raw_fd() as u32,
            length: size_of::<LinkInfo>() as u32,
            info: std::ptr::from_mut(&mut info) as u64,
        };
        // SAFETY: pointer and length describe `info`, which lives through the call; the kernel writes at most
        // its length.
        unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut attributes)? };
        if info.kind == LINK_XDP { Ok((info.program, info.interface)) } else { Err(invalid()) }
    }

    /// Replaces the running program by another one, in one step: each frame meets one of them.
    pub(crate) fn update(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let mut attributes = LinkUpdate {
            link: self.fd.as_raw_fd() as u32,
            program: program.as_raw_fd() as u32,
            flags: 0,
            old_program: 0,
        };
        // SAFETY: the attributes hold no pointers.
        unsafe { bpf(LINK_UPDATE, &mut attributes) }.map(|_| ())
    }

    /// Detaches the program at once. Closing the descriptor would not suffice: another thread may start a
    /// process at this moment, which has a copy of it until it runs its program.
    pub(crate) fn detach(&self) -> io::Result<()> {
        let mut attributes = LinkDetach { link: self.fd.as_raw_fd() as u32 };
        // SAFETY: the attributes hold no pointers.
        unsafe { bpf(LINK_DETACH, &mut attributes) }.map(|_| ())
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if !self.stays {
            // The interface may be gone; then there is no program to detach.
            let _ = self.detach();
        }
    }
}

/// Opens the object pinned at a path, whatever it is.
pub(crate) fn open_pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    let mut attributes = Object { path: path.as_ptr() as u64, ..Object::default() };
    // SAFETY: the path is NUL-terminated and lives through the call; the kernel only reads it.
    let fd = unsafe { bpf(OBJ_GET, &mut attributes)? };
    // SAFETY: the kernel has just made the descriptor, and nobody else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// The user that this process acts as.
pub(crate) fn user() -> u32 {
    // SAFETY: no pointers, cannot fail.
    unsafe { libc::geteuid() }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| invalid())
}

/// Whether a folder is one of the bpf file system.
pub(crate) fn is_bpf_file_system(folder: &Path) -> io::Result<bool> {
    let folder = c_path(folder)?;
    // SAFETY: integers; zeros are a value.
    let mut found: libc::statfs = unsafe { zeroed() };
    // SAFETY: the path is NUL-terminated and `found` is what the call writes; both live through it.
    check(unsafe { libc::statfs(folder.as_ptr(), &raw mut found) }.into())?;
    Ok(found.f_type as u64 & 0xffff_ffff == BPF_FILE_SYSTEM)
}

/// The result of a run of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The program's return value.
    pub result: u32,
    /// Mean nanoseconds of a run.
    pub nanoseconds: u32,
}

/// Runs an XDP program `repeat` times on a frame that arrives by an interface of this network namespace. The
/// frame is not sent.
pub(crate) fn test_run(program: BorrowedFd<'_>, frame: &[u8], ingress: u32, repeat: u32) -> io::Result<Run> {
    let length = u32::try_from(frame.len()).map_err(|_| invalid())?;
    let context = XdpMd { data_end: length, ingress_ifindex: ingress, ..XdpMd::default() };
    let mut attributes = TestRun {
        program: program.as_raw_fd() as u32,
        data_in: frame.as_ptr() as u64,
        data_size_in: length,
        ctx_in: std::ptr::from_ref(&context) as u64,
        ctx_size_in: size_of::<XdpMd>() as u32,
        repeat,
        ..TestRun::default()
    };
    // SAFETY: pointers and lengths describe `frame` and `context`, which live through the call; the kernel
    // only reads them.
    unsafe { bpf(PROG_TEST_RUN, &mut attributes)? };
    Ok(Run { result: attributes.retval, nanoseconds: attributes.duration })
}

/// Runs an XDP program on `count` frames, which are really sent where it redirects them.
pub(crate) fn live_run(program: BorrowedFd<'_>, frame: &[u8], count: u32) -> io::Result<()> {
    let mut attributes = TestRun {
        program: program.as_raw_fd() as u32,
        data_in: frame.as_ptr() as u64,
        data_size_in: u32::try_from(frame.len()).map_err(|_| invalid())?,
        repeat: count,
        flags: LIVE_FRAMES,
        ..TestRun::default()
    };
    // SAFETY: pointer and length describe `frame`, which lives through the call; the kernel only reads it.
    unsafe { bpf(PROG_TEST_RUN, &mut attributes) }.map(|_| ())
}

fn socket(family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked before it becomes an owned descriptor.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    check(fd.into())?;
    // SAFETY: `fd` was just made and nobody else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The family of a netlink message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Netlink {
    /// Links, addresses, routes.
    Route,
    /// All later families.
    Generic,
}

/// Sends one netlink message; returns the one message that answers it, of at most 32 KiB.
pub(crate) fn query_netlink(family: Netlink, request: &[u8]) -> io::Result<Vec<u8>> {
    let family = match family {
        Netlink::Route => libc::NETLINK_ROUTE,
        Netlink::Generic => libc::NETLINK_GENERIC,
    };
    let socket = socket(libc::AF_NETLINK, libc::SOCK_RAW, family)?;
    let mut answer = vec![0_u8; 1 << 15];
    // SAFETY: pointer and length describe `request`, which the kernel only reads.
    let sent = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    check(sent as libc::c_long)?;
    // SAFETY: pointer and length describe `answer`; the kernel writes at most its length.
    let length = unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    check(length as libc::c_long)?;
    answer.truncate(length as usize);
    Ok(answer)
}

/// A request about an interface.
fn request_about(interface: &str) -> io::Result<libc::ifreq> {
    let name = CString::new(interface).map_err(|_| invalid())?;
    let bytes = name.as_bytes_with_nul();
    // SAFETY: integers, bytes and a pointer; zeros are a value.
    let mut ask: libc::ifreq = unsafe { zeroed() };
    if bytes.len() > ask.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in ask.ifr_name.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(ask)
}

/// Switches promiscuous mode of an interface on or off: for good, not for this process only. Returns whether
/// that changed anything.
pub(crate) fn set_promiscuous(interface: &str, on: bool) -> io::Result<bool> {
    const BIT: libc::c_short = libc::IFF_PROMISC as libc::c_short;
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let mut ask = request_about(interface)?;
    let request = |number: libc::Ioctl, ask: &mut libc::ifreq| {
        // SAFETY: `ask` names an interface and is what these requests read and write; it lives through the
        // call.
        check(unsafe { libc::ioctl(socket.as_raw_fd(), number, std::ptr::from_mut(ask)) }.into())
    };
    request(libc::SIOCGIFFLAGS, &mut ask)?;
    // SAFETY: the request has just written the flags.
    let flags = unsafe { ask.ifr_ifru.ifru_flags };
    if (flags & BIT != 0) == on {
        return Ok(false);
    }
    ask.ifr_ifru.ifru_flags = if on { flags | BIT } else { flags & !BIT };
    request(libc::SIOCSIFFLAGS, &mut ask)?;
    Ok(true)
}

/// Reads a value of ethtool's: `request` is the number of the request.
pub(crate) fn ethtool_value(interface: &str, request: u32) -> io::Result<u32> {
    /// `SIOCETHTOOL`.
    const ETHTOOL: libc::Ioctl = 0x8946;
    #[repr(C)]
    struct Value {
        request: u32,
        data: u32,
    }
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let mut value = Value { request, data: 0 };
    let mut ask = request_about(interface)?;
    ask.ifr_ifru.ifru_data = std::ptr::from_mut(&mut value).cast();
    // SAFETY: `ask` names an interface and points to a value of the length that these requests read and
    // write; both live through the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), ETHTOOL, std::ptr::from_mut(&mut ask)) }.into())?;
    Ok(value.data)
}

/// Nanoseconds of one of the kernel's clocks.
fn clock(which: libc::clockid_t) -> i64 {
    // SAFETY: integers; zeros are a value.
    let mut time: libc::timespec = unsafe { zeroed() };
    // SAFETY: the pointer is to `time`; these clocks are always there, so the call does not fail.
    unsafe { libc::clock_gettime(which, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// CLOCK_BOOTTIME, in nanoseconds.
pub(crate) fn boot_time() -> u64 {
    clock(libc::CLOCK_BOOTTIME).cast_unsigned()
}

/// CLOCK_MONOTONIC, in nanoseconds.
pub(crate) fn monotonic_time() -> u64 {
    clock(libc::CLOCK_MONOTONIC).cast_unsigned()
}

/// The difference from CLOCK_BOOTTIME to CLOCK_REALTIME, in nanoseconds.
pub(crate) fn boot_to_real() -> i64 {
    // In between, so that the error is half of the time of reading.
    let (before, real, after) =
        (clock(libc::CLOCK_BOOTTIME), clock(libc::CLOCK_REALTIME), clock(libc::CLOCK_BOOTTIME));
    real - (before + (after - before) / 2)
}
