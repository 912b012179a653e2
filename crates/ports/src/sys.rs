// SPDX-License-Identifier: Apache-2.0
//! System calls of the live ports as safe functions.
//!
//! Source: packet(7), netdevice(7), poll(2), eventfd(2), sched_setaffinity(2), Linux
//! `include/uapi/linux/ethtool.h`. This is one of the crate's three modules with `unsafe` (the others are
//! `ring` and `ffi_pcap`): the standard library has no packet sockets, interface requests or `poll`, so each
//! is called through `libc` here, once, and every function below is safe to call with any arguments.
//!
//! Not done: no netlink (interface requests by `ioctl` suffice).

use std::ffi::{CStr, CString};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Marks option values that are plain bytes: any bit pattern is a value, no padding is read.
///
/// # Safety
/// Only for `repr(C)` types without references, niches or invariants.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: integers have no invalid bit pattern.
unsafe impl Plain for i32 {}
// SAFETY: C structures of unsigned integers, filled by the kernel.
unsafe impl Plain for libc::tpacket_stats {}
// SAFETY: as above.
unsafe impl Plain for libc::tpacket_stats_v3 {}
// SAFETY: as above.
unsafe impl Plain for libc::tpacket_req {}
// SAFETY: as above.
unsafe impl Plain for libc::tpacket_req3 {}
// SAFETY: integers and a byte array.
unsafe impl Plain for libc::packet_mreq {}
// SAFETY: integers.
unsafe impl Plain for libc::ucred {}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A packet socket that receives nothing yet: the protocol is set by [`bind`], so that no frame of another
/// interface arrives before.
pub(crate) fn packet_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked before it becomes an owned descriptor.
    let fd = check(unsafe {
        libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)
    })?;
    // SAFETY: `fd` was just made and nobody else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Any datagram socket, for interface requests that need no rights.
pub(crate) fn request_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked before it becomes an owned descriptor.
    let fd = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: `fd` was just made and nobody else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `setsockopt`.
pub(crate) fn set_option<T: Plain>(fd: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`, which lives through the call; the kernel only reads.
    check(unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length)
    })?;
    Ok(())
}

/// Sets an option whose value is a BPF program; the kernel copies it.
pub(crate) fn set_program(
    fd: BorrowedFd<'_>,
    level: i32,
    name: i32,
    program: &mut [libc::sock_filter],
) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let value = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    let size = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: `value` describes `program`; both live through the call, and the kernel only reads.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(&value).cast(), size) })?;
    Ok(())
}

/// `getsockopt`.
pub(crate) fn get_option<T: Plain>(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<T> {
    // SAFETY: `Plain` types have no invalid bit pattern, so zeros are a value.
    let mut value: T = unsafe { zeroed() };
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`; the kernel writes at most `length` bytes.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, std::ptr::from_mut(&mut value).cast(), &raw mut length)
    })?;
    Ok(value)
}

/// Whether the running kernel has this version or a later one; `false` also if it does not report it.
pub(crate) fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    is_at_least(&release, major, minor)
}

/// Whether the text of a release ("6.12.38+deb13-amd64") is at least this version.
fn is_at_least(release: &str, major: u32, minor: u32) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse::<u32>().ok());
    numbers.next().zip(numbers.next()).is_some_and(|version| version >= (major, minor))
}

/// The frames that a packet socket receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receives {
    /// All frames.
    All,
    /// No frames: the socket only sends.
    Nothing,
}

/// Binds a packet socket to one interface, from which on it receives.
pub(crate) fn bind(fd: BorrowedFd<'_>, interface_index: u32, receives: Receives) -> io::Result<()> {
    // SAFETY: integers and bytes only; zeros are a value.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = match receives {
        Receives::All => (libc::ETH_P_ALL as u16).to_be(),
        Receives::Nothing => 0,
    };
    address.sll_ifindex = interface_index as i32;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: pointer and length describe `address`, which lives through the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), length) })?;
    Ok(())
}

/// Index of an interface in this process's network namespace.
pub(crate) fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    // SAFETY: `name` is NUL-terminated and lives through the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 { Err(io::Error::last_os_error()) } else { Ok(index) }
}

/// Whether an interface with this index exists in this process's network namespace (it may have been
/// renamed).
pub(crate) fn interface_exists(index: u32) -> bool {
    interface_name(index).is_some()
}

/// The present name of an interface.
pub(crate) fn interface_name(index: u32) -> Option<String> {
    let mut buffer = [0 as libc::c_char; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the size that the call demands.
    if unsafe { libc::if_indextoname(index, buffer.as_mut_ptr()) }.is_null() {
        return None;
    }
    let name: Vec<u8> = buffer.iter().map(|c| *c as u8).take_while(|byte| *byte != 0).collect();
    Some(String::from_utf8_lossy(&name).into_owned())
}

/// Names of all interfaces of this network namespace (`/sys/class/net` may show another namespace's).
pub(crate) fn interface_names() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: no arguments; the result is null or an array that ends with index 0.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return names;
    }
    let mut entry = list;
    // SAFETY: the array ends with an entry whose index is 0 and whose name is null; `entry` never passes it.
    while unsafe { (*entry).if_index != 0 && !(*entry).if_name.is_null() } {
        // SAFETY: `if_name` is a NUL-terminated string that lives until the list is freed.
        names.push(unsafe { CStr::from_ptr((*entry).if_name) }.to_string_lossy().into_owned());
        // SAFETY: not at the last entry, so the next one exists.
        entry = unsafe { entry.add(1) };
    }
    // SAFETY: `list` came from `if_nameindex` and is freed once.
    unsafe { libc::if_freenameindex(list) };
    names
}

fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: a C structure of integers, bytes and a pointer that may be null.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let bytes = name.as_bytes();
    if bytes.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(request)
}

fn interface_ioctl(fd: BorrowedFd<'_>, request: libc::Ioctl, argument: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: `argument` is an `ifreq` as every request used in this module takes; where it points
    // to more data (`ifru_data`) the caller's structure lives through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, std::ptr::from_mut(argument)) })?;
    Ok(())
}

/// MTU of an interface in bytes.
pub(crate) fn interface_mtu(fd: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    let mut request = interface_request(name)?;
    interface_ioctl(fd, libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: the kernel filled this member; any bit pattern is an integer.
    Ok(unsafe { request.ifr_ifru.ifru_mtu }.max(0) as u32)
}

/// Flags (`IFF_*`) of an interface.
pub(crate) fn interface_flags(fd: BorrowedFd<'_>, name: &str) -> io::Result<i32> {
    let mut request = interface_request(name)?;
    interface_ioctl(fd, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the kernel filled this member; any bit pattern is an integer.
    Ok(i32::from(unsafe { request.ifr_ifru.ifru_flags }))
}

/// Hardware type (`ARPHRD_*`) and address of an interface.
pub(crate) fn interface_hardware(fd: BorrowedFd<'_>, name: &str) -> io::Result<(u16, [u8; 6])> {
    let mut request = interface_request(name)?;
    interface_ioctl(fd, libc::SIOCGIFHWADDR, &mut request)?;
    // SAFETY: the kernel filled this member; integers and bytes.
    let hardware = unsafe { request.ifr_ifru.ifru_hwaddr };
    let mut mac = [0u8; 6];
    for (to, from) in mac.iter_mut().zip(hardware.sa_data) {
        *to = from as u8;
    }
    Ok((hardware.sa_family, mac))
}

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const SIOCSHWTSTAMP: libc::Ioctl = 0x89b0;
const SIOCGHWTSTAMP: libc::Ioctl = 0x89b1;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;

/// One ethtool request that carries a number: returns what the kernel wrote back.
pub(crate) fn ethtool_value(fd: BorrowedFd<'_>, name: &str, command: u32, data: u32) -> io::Result<u32> {
    let mut request = interface_request(name)?;
    let mut value = EthtoolValue { command, data };
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut value).cast();
    interface_ioctl(fd, SIOCETHTOOL, &mut request)?;
    Ok(value.data)
}

/// The timestamping capabilities of a device: a part of `struct ethtool_ts_info`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StampAbilities {
    /// `SOF_TIMESTAMPING_*`.
    pub(crate) able: u32,
    /// The number of its clock; -1: none.
    pub(crate) clock: i32,
    /// Filters for received frames, by their bits.
    pub(crate) filters: u32,
}

/// Reads the timestamping capabilities of a device.
pub(crate) fn stamp_abilities(fd: BorrowedFd<'_>, name: &str) -> io::Result<StampAbilities> {
    let mut request = interface_request(name)?;
    // Command, abilities, clock, kinds for sending, three reserved numbers, filters, three reserved numbers.
    let mut info = [ETHTOOL_GET_TS_INFO, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut info).cast();
    interface_ioctl(fd, SIOCETHTOOL, &mut request)?;
    let [_, able, clock, _, _, _, _, filters, ..] = info;
    Ok(StampAbilities { able, clock: clock as i32, filters })
}

/// The timestamping settings of a device: `struct hwtstamp_config`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StampSettings {
    pub(crate) flags: i32,
    /// The sent frames to stamp (`HWTSTAMP_TX_*`).
    pub(crate) transmit: i32,
    /// The received frames to stamp (`HWTSTAMP_FILTER_*`).
    pub(crate) filter: i32,
}

/// Reads the timestamping settings of a device.
pub(crate) fn stamp_settings(fd: BorrowedFd<'_>, name: &str) -> io::Result<StampSettings> {
    stamp_request(fd, name, SIOCGHWTSTAMP, StampSettings::default())
}

/// Changes the settings; returns those that the driver chose.
pub(crate) fn set_stamp_settings(
    fd: BorrowedFd<'_>,
    name: &str,
    settings: StampSettings,
) -> io::Result<StampSettings> {
    stamp_request(fd, name, SIOCSHWTSTAMP, settings)
}

fn stamp_request(
    fd: BorrowedFd<'_>,
    name: &str,
    which: libc::Ioctl,
    mut settings: StampSettings,
) -> io::Result<StampSettings> {
    let mut request = interface_request(name)?;
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut settings).cast();
    interface_ioctl(fd, which, &mut request)?;
    Ok(settings)
}

/// The nanoseconds by which a device's clock is ahead of the system's.
pub(crate) fn device_clock_beyond_system(clock: i32) -> io::Result<i64> {
    if clock < 0 {
        return Err(io::Error::other("there is none"));
    }
    let device = std::fs::File::open(format!("/dev/ptp{clock}"))?;
    // FD_TO_CLOCKID of clock_gettime(2).
    let number = (!device.as_raw_fd() << 3) | 3;
    let before = packet_clock_nanos();
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for the answer; a clock that is none is an error.
    check(unsafe { libc::clock_gettime(number, &raw mut now) })?;
    // In between.
    let system = before + packet_clock_nanos().saturating_sub(before) / 2;
    let device = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    Ok(i64::try_from(device - i128::from(system)).unwrap_or(i64::MAX))
}

/// Sends the frames in the socket's transmit ring; returns the bytes handed to the device.
pub(crate) fn send_ring(fd: BorrowedFd<'_>) -> io::Result<usize> {
    // SAFETY: a null buffer of length 0: the data is in the ring.
    let sent = unsafe {
        libc::sendto(
            fd.as_raw_fd(),
            std::ptr::null(),
            0,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            std::ptr::null(),
            0,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Reads one frame from the socket's queue (not the ring); returns its length.
pub(crate) fn receive_copy(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: pointer and length describe `buffer`; the kernel writes at most that much.
    let got =
        unsafe { libc::recv(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Memory for one `sendmmsg` call, kept so that sending allocates nothing.
pub(crate) struct Messages {
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers inside mean nothing between calls: `send` fills them from its arguments and
// nothing reads them after it has returned.
unsafe impl Send for Messages {}

impl Messages {
    /// Memory for `capacity` frames a call.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { vectors: Vec::with_capacity(capacity), headers: Vec::with_capacity(capacity) }
    }

    /// Sends the frames in order with as few calls as possible. Calls `failed(position, error)` for each
    /// frame that the kernel refused (later ones are still sent). Returns the number of calls made.
    pub(crate) fn send<'a>(
        &mut self,
        fd: BorrowedFd<'_>,
        frames: impl Iterator<Item = &'a [u8]>,
        mut failed: impl FnMut(usize, io::Error),
    ) -> u64 {
        self.vectors.clear();
        self.headers.clear();
        self.vectors
            .extend(frames.map(|f| libc::iovec { iov_base: f.as_ptr().cast_mut().cast(), iov_len: f.len() }));
        for vector in &mut self.vectors {
            // SAFETY: integers and pointers that may be null.
            let mut header: libc::mmsghdr = unsafe { zeroed() };
            header.msg_hdr.msg_iov = std::ptr::from_mut(vector);
            header.msg_hdr.msg_iovlen = 1;
            self.headers.push(header);
        }
        let mut calls = 0;
        let mut done = 0usize;
        let mut stale = true;
        while let Some(rest) = self.headers.get_mut(done..).filter(|rest| !rest.is_empty()) {
            calls += 1;
            // SAFETY: `rest` holds headers whose vectors (not moved since) point to frames borrowed for
            // this call; the kernel reads the frames and writes only the headers' `msg_len`.
            let sent = unsafe {
                libc::sendmmsg(
                    fd.as_raw_fd(),
                    rest.as_mut_ptr(),
                    rest.len() as libc::c_uint,
                    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                )
            };
            if sent > 0 {
                done += sent as usize;
            } else {
                let error = io::Error::last_os_error();
                if error.raw_os_error() == Some(libc::ENETDOWN) && stale {
                    // May be left over from a time when the interface was down: reported once, then
                    // forgotten.
                    stale = false;
                } else if error.kind() != io::ErrorKind::Interrupted {
                    failed(done, error);
                    done += 1;
                }
            }
        }
        calls
    }
}

/// The events that a descriptor is watched for, and those seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    /// The descriptor.
    pub(crate) fd: RawFd,
    /// Whether there is something to read.
    pub(crate) readable: bool,
    /// Whether the kernel has an error for it.
    pub(crate) failed: bool,
}

/// The most descriptors that [`poll`] watches at once.
pub(crate) const MAX_WATCHES: usize = 16;

/// Sleeps until a descriptor has something to read or `timeout` is over. Watches beyond [`MAX_WATCHES`] are
/// ignored. A signal ends the sleep early without an error.
pub(crate) fn poll(watches: &mut [Watch], timeout: Duration) -> io::Result<()> {
    let mut fds = [libc::pollfd { fd: -1, events: 0, revents: 0 }; MAX_WATCHES];
    let mut count = 0;
    for (to, from) in fds.iter_mut().zip(watches.iter()) {
        *to = libc::pollfd { fd: from.fd, events: libc::POLLIN, revents: 0 };
        count += 1;
    }
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
    };
    // SAFETY: `fds` holds at least `count` entries; the time-out lives through the call; no signal mask.
    let result = unsafe { libc::ppoll(fds.as_mut_ptr(), count, &raw const timeout, std::ptr::null()) };
    if result < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
    }
    for (from, to) in fds.iter().zip(watches.iter_mut()) {
        to.readable = from.revents & libc::POLLIN != 0;
        to.failed = from.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0;
    }
    Ok(())
}

/// A counter descriptor that another thread can make readable.
pub(crate) fn event_descriptor() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked before it becomes an owned descriptor.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: `fd` was just made and nobody else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes an event descriptor readable.
pub(crate) fn event_set(fd: BorrowedFd<'_>) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: pointer and length describe `one`. A full counter is as good as set, so the result is of no
    // use.
    let _ = unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Makes an event descriptor unreadable again.
pub(crate) fn event_clear(fd: BorrowedFd<'_>) {
    let mut buffer = [0u8; 8];
    // SAFETY: pointer and length describe `buffer`. "Nothing to read" is the wanted state.
    let _ = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
}

/// The clock of the kernel's timestamps of frames, in nanoseconds since the epoch (no system call if the vDSO
/// has it).
pub(crate) fn packet_clock_nanos() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for the answer; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    (now.tv_sec.max(0) as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec.max(0) as u64)
}

/// Processors that this thread may run on, ascending.
pub(crate) fn allowed_processors() -> Vec<usize> {
    // SAFETY: a set of bits; zeros are a value.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: pointer and size describe `set`; 0 is the calling thread.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } != 0 {
        return Vec::new();
    }
    let most = usize::try_from(libc::CPU_SETSIZE).unwrap_or(0);
    // SAFETY: `cpu` is below the size of the set.
    (0..most).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// Pins the calling thread to one processor.
pub(crate) fn stay_on(processor: usize) -> io::Result<()> {
    if processor >= usize::try_from(libc::CPU_SETSIZE).unwrap_or(0) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: a set of bits; zeros are a value.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: `processor` is below the size of the set.
    unsafe { libc::CPU_SET(processor, &mut set) };
    // SAFETY: pointer and size describe `set`; 0 is the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) })?;
    Ok(())
}

/// Size of a memory page.
pub(crate) fn page_size() -> usize {
    // SAFETY: no pointers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::is_at_least;

    #[test]
    fn releases_are_compared_by_numbers() {
        for (release, newer) in [
            ("6.2.0", true),
            ("6.12.38+deb13-amd64", true),
            ("10.0", true),
            ("6.1.99-foo", false),
            ("5.14.0-503.el9", false),
        ] {
            assert_eq!(is_at_least(release, 6, 2), newer, "{release}");
        }
        assert!(!is_at_least("", 6, 2) && !is_at_least("6", 6, 2) && !is_at_least("next", 6, 2));
    }
}
