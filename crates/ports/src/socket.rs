// SPDX-License-Identifier: Apache-2.0
//! Shared parts of the AF_PACKET ports: opening the socket, kernel counters, the clock, interfaces that go
//! away.
//!
//! Source: packet(7).

use crate::bpf::JA;
use crate::error::{OPENING, OpenError, PortError};
use crate::ffi_pcap::PacketFilter;
use crate::filter;
use crate::interface::Interface;
use crate::offload::{Offload, OffloadGuard, Warning, offloads_on};
use crate::port::PortStats;
use crate::ring::VNET_RESERVE;
use crate::snap::{self, SnapLength};
use crate::sys::{self, Receives, set_option};
use crate::timestamps::{Decision, NoStamps, StampGuard, TimestampDevice, Timestamps, decide, usable};
use bartizan_base::{Spread, Timestamp};
use bartizan_packet::casts::add_casts;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Whether the device of an interface stamps its frames with [`Timestamps::Auto`]; the inner error is the
/// reason why not.
///
/// # Errors
/// There is no such interface, or it is down.
pub fn stamps_by_device(name: &str) -> Result<Result<(), NoStamps>, OpenError> {
    let interface = Interface::lookup(name)?;
    let device = TimestampDevice::query(&interface.name)
        .map_err(|e| OpenError::system(name, "asking for its timestamps", e))?;
    Ok(usable(false, &device).map(|_| ()))
}

/// The distribution of an interface's frames among the sockets of a fanout group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanoutMode {
    /// By the kernel's flow hash: both directions of a flow reach one socket.
    Hash,
    /// In turn.
    LoadBalance,
    /// By the processor on which a frame arrived.
    Cpu,
    /// The first socket, and the next when it is full.
    Rollover,
    /// At random.
    Random,
    /// By the device's receive queue.
    Queue,
}

impl FanoutMode {
    const fn number(self) -> u32 {
        match self {
            FanoutMode::Hash => libc::PACKET_FANOUT_HASH,
            FanoutMode::LoadBalance => libc::PACKET_FANOUT_LB,
            FanoutMode::Cpu => libc::PACKET_FANOUT_CPU,
            FanoutMode::Rollover => libc::PACKET_FANOUT_ROLLOVER,
            FanoutMode::Random => libc::PACKET_FANOUT_RND,
            FanoutMode::Queue => libc::PACKET_FANOUT_QM,
        }
    }
}

/// Membership of a fanout group: several ports on one interface, each of which gets a part of its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fanout {
    /// Number of the group, the same for all its ports.
    pub group: u16,
    /// The distribution of frames.
    pub mode: FanoutMode,
    /// Have the kernel reassemble IP fragments before it hashes (alters the frames seen; off for an IDS).
    pub defragment: bool,
}

/// The final instruction of a socket filter's program: keep so many bytes of the frame.
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// The program of a socket: frames that a filter passes continue with the steps of a snap length. A classic
/// BPF program returns the number of bytes of a frame to keep; 0 drops it.
fn program_of(filter: Option<&[libc::sock_filter]>, snap: &[libc::sock_filter]) -> Vec<libc::sock_filter> {
    let mut program = filter.unwrap_or_default().to_vec();
    let length = program.len();
    // libpcap's programs end with constants.
    for (place, step) in program.iter_mut().enumerate().filter(|(_, step)| step.code == RETURN && step.k != 0)
    {
        let distance = u32::try_from(length - place - 1).unwrap_or(u32::MAX);
        *step = libc::sock_filter { code: JA, jt: 0, jf: 0, k: distance };
    }
    program.extend_from_slice(snap);
    program
}

/// Options that both kinds of AF_PACKET port have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketOptions {
    pub(crate) promiscuous: bool,
    pub(crate) outgoing: bool,
    pub(crate) fanout: Option<Fanout>,
    pub(crate) timestamps: Timestamps,
    pub(crate) fix_offloads: bool,
    /// With these, also those that matter to a level below.
    pub(crate) for_level: bool,
}

/// An open packet socket and its state.
pub(crate) struct Socket {
    pub(crate) interface: Interface,
    pub(crate) fd: OwnedFd,
    pub(crate) stats: PortStats,
    pub(crate) warnings: Vec<Warning>,
    /// The kernel cannot leave out frames that this host sends: the reader has to.
    pub(crate) skip_outgoing: bool,
    /// Frames should have the device's timestamps.
    pub(crate) by_device: bool,
    version: i32,
    last: u64,
    _offloads: Option<OffloadGuard>,
    _stamps: Option<StampGuard>,
}

impl Socket {
    /// Opens a socket on `interface` that does not receive yet: rings first, then [`Socket::start`].
    pub(crate) fn open(
        interface: Interface,
        version: u32,
        options: &SocketOptions,
    ) -> Result<Self, OpenError> {
        let name = interface.name.clone();
        let fd = sys::packet_socket().map_err(|e| OpenError::system(&name, OPENING, e))?;
        let mut warnings = Vec::new();
        let (guard, on) = if options.fix_offloads {
            let which = if options.for_level { &Offload::OF_LEVEL[..] } else { &Offload::ALL };
            let (guard, left) = OffloadGuard::switch_off_these(&name, which);
            (Some(guard), left)
        } else {
            (None, offloads_on(&name))
        };
        if !on.is_empty() && !interface.loopback {
            warnings.push(Warning::Offloads { interface: name.clone(), on });
        }
        let version = i32::try_from(version).unwrap_or(0);
        let mut socket = Self {
            interface,
            fd,
            stats: PortStats::default(),
            warnings,
            skip_outgoing: false,
            by_device: false,
            version,
            last: 0,
            _offloads: guard,
            _stamps: None,
        };
        socket.set(libc::PACKET_VERSION, &version, "choosing the ring version (TPACKET)")?;
        if !options.outgoing {
            // In a group the option has no effect: the reader checks, too.
            socket.skip_outgoing =
                set_option(socket.fd.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32).is_err()
                    || options.fanout.is_some();
        }
        socket.choose_timestamps(options.timestamps)?;
        Ok(socket)
    }

    /// Has the device stamp frames, if requested and possible.
    fn choose_timestamps(&mut self, wanted: Timestamps) -> Result<(), OpenError> {
        if wanted == Timestamps::Software {
            return Ok(());
        }
        let name = self.interface.name.clone();
        let device = TimestampDevice::query(&name)
            .map_err(|e| OpenError::system(&name, "asking for its timestamps", e))?;
        let refuse = |why| OpenError::NoHardwareTimestamps { name: name.clone(), why };
        match decide(wanted, &device).map_err(refuse)? {
            Decision::Kernel(why) => {
                self.warnings
                    .extend(why.map(|why| Warning::SoftwareTimestamps { interface: name.clone(), why }));
            }
            Decision::Device(settings) => {
                if let Some(ours) = settings {
                    let before = device.settings.unwrap_or_default();
                    let guard = StampGuard::set(&name, before, ours);
                    self._stamps = Some(guard.map_err(|error| refuse(NoStamps::Refused(error.to_string())))?);
                }
                let raw = libc::SOF_TIMESTAMPING_RAW_HARDWARE as i32;
                self.set(libc::PACKET_TIMESTAMP, &raw, "asking for the device's timestamps")?;
                self.by_device = true;
            }
        }
        Ok(())
    }

    /// Sets an option of the packet layer.
    pub(crate) fn set<T: sys::Plain>(
        &self,
        option: i32,
        value: &T,
        what: &'static str,
    ) -> Result<(), OpenError> {
        set_option(self.fd.as_fd(), libc::SOL_PACKET, option, value)
            .map_err(|e| OpenError::system(&self.interface.name, what, e))
    }

    /// Sets a ring, with the error that names its size.
    pub(crate) fn set_ring<T: sys::Plain>(
        &self,
        option: i32,
        value: &T,
        bytes: usize,
    ) -> Result<(), OpenError> {
        set_ring(self.fd.as_fd(), &self.interface.name, option, value, bytes)
    }

    /// Requests the segmentation of frames from the kernel, before the rings are made. False, with a warning,
    /// if it cannot report it: kernels without UDP in it (before 6.2) would drop such frames.
    pub(crate) fn request_segmentation(&mut self) -> bool {
        let fd = self.fd.as_fd();
        let level = libc::SOL_PACKET;
        let why = if !sys::kernel_is_at_least(6, 2) {
            "the kernel does not say that it is Linux 6.2 or newer"
        } else if set_option(fd, level, libc::PACKET_RESERVE, &(VNET_RESERVE as i32)).is_err()
            || set_option(fd, level, libc::PACKET_VNET_HDR, &1i32).is_err()
        {
            "the kernel does not offer PACKET_VNET_HDR"
        } else {
            return true;
        };
        self.warnings.push(Warning::NoSegmentSizes { interface: self.interface.name.clone(), why });
        false
    }

    /// Enlarges the socket's send and receive buffers, beyond the administrator's limit if the process may.
    pub(crate) fn large_buffers(&self, bytes: i32) {
        large_buffers(self.fd.as_fd(), bytes);
    }

    /// Begins to receive.
    pub(crate) fn start(&mut self, options: &SocketOptions) -> Result<(), OpenError> {
        let name = self.interface.name.clone();
        sys::bind(self.fd.as_fd(), self.interface.index, Receives::All)
            .map_err(|e| OpenError::system(&name, "binding to the interface", e))?;
        if options.promiscuous {
            let request = libc::packet_mreq {
                mr_ifindex: i32::try_from(self.interface.index).unwrap_or(0),
                mr_type: libc::PACKET_MR_PROMISC as u16,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            self.set(libc::PACKET_ADD_MEMBERSHIP, &request, "switching promiscuous mode on")?;
        }
        if let Some(fanout) = options.fanout {
            let mut mode = fanout.mode.number();
            if fanout.defragment {
                mode |= libc::PACKET_FANOUT_FLAG_DEFRAG;
            }
            let argument = (mode << 16) | u32::from(fanout.group);
            self.set(
                libc::PACKET_FANOUT,
                &(argument as i32),
                "joining the fanout group (all its ports need the same mode and options)",
            )?;
        }
        Ok(())
    }

    /// Receives nothing until [`Socket::listen`]: a socket gets all frames of its interface until it is in
    /// its group.
    pub(crate) fn attach_drop_filter(&self) -> Result<(), OpenError> {
        let mut nothing = [libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: 0 }];
        sys::set_program(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &mut nothing)
            .map_err(|e| OpenError::system(&self.interface.name, "attaching a filter", e))
    }

    /// Receives frames that a filter passes, with so many bytes of each at most; without them, whole frames
    /// of all kinds. Ends [`Socket::attach_drop_filter`]: a program replaces the one before it in one step.
    pub(crate) fn listen(
        &self,
        filter: Option<&PacketFilter>,
        snap: Option<&SnapLength>,
    ) -> Result<(), OpenError> {
        let name = &self.interface.name;
        let filter = filter.map(PacketFilter::program);
        let mut program = match (filter, snap) {
            (_, Some(snap)) => {
                let steps =
                    snap::steps(snap, self.interface.link_layer).ok_or_else(|| OpenError::Option {
                        name: name.clone(),
                        option: "snap_length",
                        problem:
                            "its program has a jump that is too far (a fault of this program; report it)"
                                .to_owned(),
                    })?;
                program_of(filter, &steps)
            }
            (Some(filter), None) => filter.to_vec(),
            (None, None) => {
                return set_option(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0i32)
                    .map_err(|e| OpenError::system(name, "detaching the filter", e));
            }
        };
        sys::set_program(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &mut program).map_err(
            |e| {
                if e.raw_os_error() == Some(libc::ENOMEM) {
                    return OpenError::FilterMemory { name: name.clone(), steps: program.len(), source: e };
                }
                OpenError::system(name, "attaching the packet filter", e)
            },
        )
    }

    /// Joins a group whose frames are distributed as `spread` says; without `group` it creates one. Returns
    /// the group. Only after [`Socket::start`]. `outgoing`: also frames that this host sends.
    pub(crate) fn join(
        &mut self,
        spread: &Spread,
        group: Option<u16>,
        outgoing: bool,
    ) -> Result<u16, OpenError> {
        const WHAT: &str = "joining the fanout group (Linux 4.12 or newer)";
        let outside = if outgoing { 0 } else { libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING };
        let founds = if group.is_none() { libc::PACKET_FANOUT_FLAG_UNIQUEID } else { 0 };
        let argument = |flags: u32| {
            let mode = libc::PACKET_FANOUT_CBPF | flags | founds;
            (mode << 16 | u32::from(group.unwrap_or(0))) as i32
        };
        // In a group the sockets' own option to leave out frames that this host sends has no effect. Kernels
        // before 5.12 do not support the group's, either: then the reader leaves them out.
        let fd = self.fd.as_fd();
        let (level, option) = (libc::SOL_PACKET, libc::PACKET_FANOUT);
        set_option(fd, level, option, &argument(outside))
            .or_else(|_| set_option(fd, level, option, &argument(0)))
            .map_err(|e| OpenError::system(&self.interface.name, WHAT, e))?;
        if let Some(group) = group {
            return Ok(group);
        }
        let mut program = filter::program(spread).unwrap_or_default();
        sys::set_program(fd, level, libc::PACKET_FANOUT_DATA, &mut program).map_err(|e| {
            OpenError::system(&self.interface.name, "setting the filter of the fanout group", e)
        })?;
        let number = sys::get_option::<i32>(fd, level, option)
            .map_err(|e| OpenError::system(&self.interface.name, WHAT, e))?;
        Ok((number & 0xffff) as u16)
    }

    /// Counters up to now.
    pub(crate) fn refresh_stats(&mut self) {
        let fd = self.fd.as_fd();
        // The kernel's counters start again at each reading; `tp_packets` contains the dropped ones.
        let read = if self.version == libc::tpacket_versions::TPACKET_V3 as i32 {
            sys::get_option::<libc::tpacket_stats_v3>(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS)
                .map(|s| (s.tp_packets, s.tp_drops))
        } else {
            sys::get_option::<libc::tpacket_stats>(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS)
                .map(|s| (s.tp_packets, s.tp_drops))
        };
        if let Ok((packets, drops)) = read {
            self.stats.ring_received += u64::from(packets.saturating_sub(drops));
            self.stats.ring_dropped += u64::from(drops);
        }
    }

    /// Adds the counts of one read of the ring.
    pub(crate) fn count(&mut self, filled: &crate::ring::v2::Filled) -> Result<usize, PortError> {
        if !filled.lease_free {
            return Err(PortError::BatchHeld { name: self.interface.name.clone() });
        }
        let stats = &mut self.stats;
        stats.received += filled.frames;
        stats.received_bytes += filled.bytes;
        add_casts(&mut stats.received_casts, &filled.casts);
        stats.received_sizes.iter_mut().zip(filled.sizes).for_each(|(sum, part)| *sum += part);
        stats.oversized += filled.oversized;
        stats.copied += filled.copied;
        stats.skipped += filled.skipped;
        stats.checksum_pending += filled.checksum_pending;
        stats.unstamped += filled.unstamped;
        Ok(filled.frames as usize)
    }

    /// Whether the interface still exists.
    pub(crate) fn still_there(&self) -> Result<(), PortError> {
        if sys::interface_exists(self.interface.index) {
            return Ok(());
        }
        Err(PortError::Gone { name: self.interface.name.clone() })
    }

    /// Reads the socket's error after a sleep, if there is one.
    pub(crate) fn woken(&mut self, failed: bool) -> Result<(), PortError> {
        self.stats.sleeps += 1;
        if !failed {
            return Ok(());
        }
        let error = sys::get_option::<i32>(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR).unwrap_or(0);
        self.still_there()?;
        match error {
            0 => Ok(()),
            libc::ENETDOWN => {
                self.stats.went_down += 1;
                Ok(())
            }
            other => Err(PortError::System {
                name: self.interface.name.clone(),
                what: "waiting for packets",
                source: io::Error::from_raw_os_error(other),
            }),
        }
    }

    /// The kernel's packet clock, which never goes back.
    pub(crate) fn now(&mut self) -> Timestamp {
        self.last = self.last.max(sys::packet_clock_nanos());
        Timestamp::from_nanos(self.last)
    }

    pub(crate) fn borrow(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn large_buffers(fd: BorrowedFd<'_>, bytes: i32) {
    for (force, plain) in [(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF), (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)] {
        if set_option(fd, libc::SOL_SOCKET, force, &bytes).is_err() {
            // Without the right, the limit is the largest possible size.
            let _ = set_option(fd, libc::SOL_SOCKET, plain, &bytes);
        }
    }
}

/// Sets a ring, with the error that names its size.
pub(crate) fn set_ring<T: sys::Plain>(
    fd: BorrowedFd<'_>,
    name: &str,
    option: i32,
    value: &T,
    bytes: usize,
) -> Result<(), OpenError> {
    set_option(fd, libc::SOL_PACKET, option, value).map_err(|e| match e.raw_os_error() {
        Some(libc::ENOMEM | libc::ENOBUFS) => {
            OpenError::RingMemory { name: name.to_owned(), mebibytes: bytes >> 20, source: e }
        }
        _ => OpenError::system(name, "setting up the ring", e),
    })
}

/// A socket that only sends by an interface. It is not the receiving one: a socket that gets the segmentation
/// of frames must also give it for each frame that it sends, and the kernel no longer compares their sizes
/// with the MTU.
pub(crate) struct SendSocket {
    pub(crate) fd: OwnedFd,
}

impl SendSocket {
    /// Opens one. The caller has to bind it, after setting up its ring, if it gets one.
    pub(crate) fn open(interface: &Interface, qdisc_bypass: bool) -> Result<Self, OpenError> {
        let failed = |what| move |error| OpenError::system(&interface.name, what, error);
        let fd = sys::packet_socket().map_err(failed("opening a packet socket"))?;
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        let level = libc::SOL_PACKET;
        set_option(fd.as_fd(), level, libc::PACKET_VERSION, &version)
            .map_err(failed("choosing the ring version (TPACKET)"))?;
        if qdisc_bypass {
            set_option(fd.as_fd(), level, libc::PACKET_QDISC_BYPASS, &1i32)
                .map_err(failed("bypassing the queueing discipline"))?;
        }
        large_buffers(fd.as_fd(), 16 << 20);
        Ok(Self { fd })
    }

    /// Binds the socket to its interface.
    pub(crate) fn start(&self, interface: &Interface) -> Result<(), OpenError> {
        sys::bind(self.fd.as_fd(), interface.index, Receives::Nothing)
            .map_err(|e| OpenError::system(&interface.name, "binding to the interface", e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_filter_lets_through_goes_on_to_the_snap_length() {
        let step = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
        // A load, and both ends of a program of libpcap, in both orders.
        let compiled = [step(0x28, 12), step(RETURN, 262_144), step(RETURN, 0), step(RETURN, 60)];
        let told = |filter, snap: &[libc::sock_filter]| {
            let program = program_of(filter, snap);
            program.iter().map(|step| (step.code, step.k)).collect::<Vec<_>>()
        };
        let snap = snap::steps(&SnapLength::Frame(128), crate::port::LinkLayer::Ethernet).unwrap();
        assert_eq!(told(None, &snap), [(RETURN, 128)]);
        assert_eq!(told(Some(&[]), &snap), [(RETURN, 128)]);
        let cut = [(0x28, 12), (JA, 2), (RETURN, 0), (JA, 0), (RETURN, 128)];
        assert_eq!(told(Some(&compiled), &snap), cut);
    }
}
