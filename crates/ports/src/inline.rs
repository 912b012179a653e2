// SPDX-License-Identifier: Apache-2.0
//! Inline: an AF_PACKET port that receives and sends, with TPACKET_V2 rings, where a frame is visible at
//! once.
//!
//! Source: packet(7), Linux `packet_mmap.rst`. Frames are sent through a transmit ring (copied once, one
//! `send` call a flush) or by `sendmmsg` straight from the receive ring (no copy in user space, one call a
//! batch). A VLAN tag that the kernel removed is restored in the frame, so a forwarded frame is the one that
//! arrived.
//!
//! It has two sockets: one receives, and learns the segmentation of large frames
//! ([`crate::FrameInfo::segmentation`]), one sends frames as they leave. Frames larger than the MTU are
//! refused here; the data plane cuts them first. When the MTU is changed, the port follows within a second:
//! it makes a larger transmit ring, or refuses frames that the device no longer carries.
//!
//! Not done: leaving the segmentation of sent frames to the kernel (`PACKET_VNET_HDR` on the sending socket).

use crate::batch::{Batch, Disposition};
use crate::error::{OpenError, PortError};
use crate::frame::FrameInfo;
use crate::interface::Interface;
use crate::mtu::MtuWatch;
use crate::offload::Warning;
use crate::port::{LinkLayer, MAX_FRAME, Port, PortStats, TransmitCounts};
use crate::refusal::SendRefusal;
use crate::ring::tx::TxRing;
use crate::ring::v2::RxV2;
use crate::ring::{Geometry, Mapping};
use crate::socket::{Fanout, SendSocket, Socket, SocketOptions, set_ring};
use crate::sys::{self, Messages};
use crate::wait::packet_clock;
use bartizan_base::{Spread, Timestamp};
use bartizan_packet::casts::cast_of;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The path of frames to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransmitPath {
    /// Through a transmit ring: one copy in user space, one `send` call a flush.
    #[default]
    Ring,
    /// By `sendmmsg` while the batch holds its frames: no copy in user space, one call a batch.
    Calls,
}

/// Options of an inline port.
#[derive(Clone, Copy, Debug)]
pub struct InlineOptions {
    /// The fewest slots of the receive ring.
    pub frames: usize,
    /// The fewest slots of the transmit ring; with one also the most frames that can wait.
    pub transmit_frames: usize,
    /// The path of frames to the device.
    pub transmit: TransmitPath,
    /// Pass frames to the driver without the queueing discipline (no shaping, no taps on the way out).
    pub qdisc_bypass: bool,
    /// Receive frames that are not addressed to this host (off only if the host is the router).
    pub promiscuous: bool,
    /// Share the interface with other ports.
    pub fanout: Option<Fanout>,
    /// Switch offloads off, and on again when the port is dropped.
    pub fix_offloads: bool,
    /// With these, also switch off those that matter to a level below, which reads frames itself.
    pub for_level: bool,
    /// Room for a frame in a slot, in bytes; by default from the MTU. Larger frames are fetched through the
    /// socket, with a system call each.
    pub slot_room: Option<usize>,
}

impl Default for InlineOptions {
    fn default() -> Self {
        Self {
            frames: 4096,
            transmit_frames: 1024,
            transmit: TransmitPath::Ring,
            qdisc_bypass: true,
            promiscuous: true,
            fanout: None,
            fix_offloads: false,
            for_level: false,
            slot_room: None,
        }
    }
}

/// Ethernet header.
const HEADER: usize = 14;
/// One VLAN tag.
const TAG: usize = 4;
/// The largest supported MTU: a frame with header and one tag has at most [`MAX_FRAME`] bytes.
pub const MAX_MTU: u32 = (MAX_FRAME - HEADER - TAG) as u32;
/// Flushes without progress because the device refuses a frame, after which the frame is dropped.
const PATIENCE: u32 = 4;

/// An inline port.
pub struct InlinePort {
    socket: Socket,
    rx: RxV2,
    sender: Sender,
    options: InlineOptions,
    mtu: MtuWatch,
}

impl InlinePort {
    /// Opens one on interface `name`.
    ///
    /// # Errors
    /// The fault of interface, rights, options or memory, with what to do.
    pub fn open(name: &str, options: &InlineOptions) -> Result<Self, OpenError> {
        Self::prepare(name, options, false)
    }

    /// Opens a port for each worker on interface `name`: a frame reaches one of them, all frames of a flow
    /// the same one, as [`Spread::worker`] selects. Option `fanout` is ignored.
    ///
    /// # Errors
    /// As [`InlinePort::open`], and a kernel without such groups (before 4.12).
    pub fn open_group(name: &str, options: &InlineOptions, spread: &Spread) -> Result<Vec<Self>, OpenError> {
        if spread.workers() == 1 {
            return Ok(vec![Self::open(name, options)?]);
        }
        let options = InlineOptions { fanout: None, ..*options };
        let mut ports: Vec<Self> = Vec::with_capacity(usize::from(spread.workers()));
        let mut group = None;
        for _ in 0..spread.workers() {
            let mut port = Self::prepare(name, &options, true)?;
            group = Some(port.socket.join(spread, group, false)?);
            ports.push(port);
        }
        // Each frame goes to one of them from here on.
        ports.iter().try_for_each(|port| port.socket.listen(None, None))?;
        Ok(ports)
    }

    /// Prepares a port; `member`: it joins a group later.
    fn prepare(name: &str, options: &InlineOptions, member: bool) -> Result<Self, OpenError> {
        check_options(name, options)?;
        let interface = Interface::lookup(name)?;
        check_interface(&interface)?;
        let shared = SocketOptions {
            promiscuous: options.promiscuous,
            outgoing: false,
            fanout: options.fanout,
            timestamps: crate::timestamps::Timestamps::Software,
            fix_offloads: options.fix_offloads,
            for_level: options.for_level,
        };
        let mut socket = Socket::open(interface, libc::tpacket_versions::TPACKET_V2 as u32, &shared)?;
        socket.large_buffers(16 << 20);
        // Frames larger than a slot (the MTU was raised, offloads are on) are also queued whole.
        socket.set(libc::PACKET_COPY_THRESH, &1i32, "asking for copies of large frames")?;
        let vnet = socket.request_segmentation();
        let (mut rx, sender) = rings(&socket, options)?;
        rx.vnet = vnet;
        rx.skip_outgoing = socket.skip_outgoing || member;
        if member {
            socket.attach_drop_filter()?;
        }
        socket.start(&shared)?;
        Ok(Self { socket, rx, sender, options: *options, mtu: MtuWatch::default() })
    }

    /// The warnings about this port for the operator.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.socket.warnings
    }

    /// Follows the present MTU of the interface.
    fn follow_mtu(&mut self) {
        let fd = self.sender.descriptor();
        let Some(interface) = self.mtu.refresh(packet_clock(), fd, &self.socket.interface, MAX_MTU) else {
            return;
        };
        if self.sender.follow(&interface, &self.options, &mut self.socket.stats) {
            self.socket.interface = interface;
        }
    }
}

/// Whether frames can be sent as they are.
pub(crate) fn check_interface(interface: &Interface) -> Result<(), OpenError> {
    let name = || interface.name.clone();
    if interface.link_layer != LinkLayer::Ethernet {
        return Err(OpenError::LinkType { name: name(), hardware: libc::ARPHRD_NONE });
    }
    if interface.mtu > MAX_MTU {
        return Err(OpenError::MtuTooLarge { name: name(), mtu: interface.mtu, max: MAX_MTU });
    }
    if interface.is_bridge_port() {
        return Err(OpenError::BridgePort { name: name() });
    }
    Ok(())
}

fn check_options(name: &str, options: &InlineOptions) -> Result<(), OpenError> {
    for (option, value) in [("frames", options.frames), ("transmit_frames", options.transmit_frames)] {
        if !(16..=1 << 20).contains(&value) {
            let problem = format!("{value}; from 16 to {}", 1 << 20);
            return Err(OpenError::Option { name: name.to_owned(), option, problem });
        }
    }
    if options.slot_room.is_some_and(|room| !(64..=MAX_FRAME).contains(&room)) {
        let problem = format!("{:?}; from 64 to {MAX_FRAME} bytes", options.slot_room);
        return Err(OpenError::Option { name: name.to_owned(), option: "slot_room", problem });
    }
    Ok(())
}

/// Makes both rings, each for its socket.
fn rings(socket: &Socket, options: &InlineOptions) -> Result<(RxV2, Sender), OpenError> {
    let interface = &socket.interface;
    let rx = Geometry::new(options.slot_room.unwrap_or(slot_room(interface)), options.frames);
    let request = rx.request().ok_or_else(|| too_large(interface, rx.bytes()))?;
    socket.set_ring(libc::PACKET_RX_RING, &request, rx.bytes())?;
    let mapping =
        Mapping::new(socket.borrow(), rx.bytes()).map_err(|e| no_memory(interface, rx.bytes(), e))?;
    Ok((RxV2::new(mapping, rx, MAX_FRAME), sender(interface, options)?))
}

/// The most bytes of an interface's frame: it can have a second tag besides the one that the kernel removes.
const fn slot_room(interface: &Interface) -> usize {
    interface.mtu as usize + HEADER + 2 * TAG
}

fn no_memory(interface: &Interface, bytes: usize, source: io::Error) -> OpenError {
    OpenError::RingMemory { name: interface.name.clone(), mebibytes: bytes >> 20, source }
}

fn too_large(interface: &Interface, bytes: usize) -> OpenError {
    no_memory(interface, bytes, io::Error::from_raw_os_error(libc::E2BIG))
}

/// Makes the sending half for an interface.
pub(crate) fn sender(interface: &Interface, options: &InlineOptions) -> Result<Sender, OpenError> {
    let tx = Geometry::new(slot_room(interface), options.transmit_frames);
    let out = SendSocket::open(interface, options.qdisc_bypass)?;
    let path = match options.transmit {
        TransmitPath::Ring => {
            let request = tx.request().ok_or_else(|| too_large(interface, tx.bytes()))?;
            set_ring(out.fd.as_fd(), &interface.name, libc::PACKET_TX_RING, &request, tx.bytes())?;
            let mapping = Mapping::new(out.fd.as_fd(), tx.bytes());
            SendPath::Ring(TxRing::new(mapping.map_err(|e| no_memory(interface, tx.bytes(), e))?, 0, tx))
        }
        TransmitPath::Calls => SendPath::Calls(Messages::with_capacity(options.transmit_frames)),
    };
    out.start(interface)?;
    Ok(Sender { out, path, limit: interface.mtu as usize + HEADER, stalls: 0 })
}

enum SendPath {
    Ring(TxRing),
    Calls(Messages),
}

/// The sending half of a port.
pub(crate) struct Sender {
    out: SendSocket,
    path: SendPath,
    /// Largest untagged frame.
    limit: usize,
    /// Flushes in a row in which the device refused the first waiting frame.
    stalls: u32,
}

/// The refusal of a frame by the error of a failed `send` call.
fn refusal_of(error: &io::Error) -> SendRefusal {
    match error.raw_os_error() {
        Some(libc::EMSGSIZE) => SendRefusal::TooLarge,
        Some(libc::EINVAL) => SendRefusal::TooShort,
        Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => SendRefusal::DeviceDown,
        Some(libc::EAGAIN | libc::ENOMEM) => SendRefusal::NoMemory,
        _ => SendRefusal::DeviceRefused,
    }
}

impl Sender {
    /// Checks whether the device can carry the frame: the kernel allows four bytes more if it has an 802.1Q
    /// tag.
    fn check(&self, info: &FrameInfo, frame: &[u8]) -> Result<(), SendRefusal> {
        info.refusal()?;
        let tagged = frame.get(12..14) == Some(&[0x81, 0x00]);
        if frame.len() < HEADER {
            Err(SendRefusal::TooShort)
        } else if frame.len() > self.limit + if tagged { TAG } else { 0 } {
            Err(SendRefusal::TooLarge)
        } else {
            Ok(())
        }
    }

    fn send_batch(&mut self, batch: &mut Batch, stats: &mut PortStats) -> usize {
        if matches!(self.path, SendPath::Ring(_)) {
            return batch.send_each(|info, frame| self.queue(info, frame, stats));
        }
        for index in batch.indices() {
            if batch.disposition(index) == Some(Disposition::Forward)
                && let (Some(info), Some(frame)) = (batch.info(index), batch.bytes(index))
                && let Err(refusal) = self.check(info, frame)
            {
                stats.send_failures.add(refusal, 1);
                batch.set_disposition(index, Disposition::Refused(refusal));
            }
        }
        let SendPath::Calls(messages) = &mut self.path else { return 0 };
        let mut failed: Option<Vec<(usize, SendRefusal)>> = None;
        stats.send_calls +=
            messages.send(self.out.fd.as_fd(), batch.marked().map(|(_, frame)| frame), |position, error| {
                // Allocates only when the device refuses frames.
                failed.get_or_insert_default().push((position, refusal_of(&error)));
            });
        let mut refused = failed.unwrap_or_default().into_iter().peekable();
        let (mut position, mut sent) = (0, TransmitCounts::default());
        for index in batch.indices() {
            if batch.disposition(index) != Some(Disposition::Forward) {
                continue;
            }
            let outcome = match refused.next_if(|(at, _)| *at == position) {
                Some((_, refusal)) => {
                    stats.send_failures.add(refusal, 1);
                    Disposition::Refused(refusal)
                }
                None => {
                    let frame = batch.bytes(index).unwrap_or_default();
                    sent.add(frame.len() as u64, cast_of(frame));
                    Disposition::Sent
                }
            };
            batch.set_disposition(index, outcome);
            position += 1;
        }
        stats.note_sent(&sent);
        sent.frames as usize
    }

    /// Follows a new MTU of its interface. False if that is impossible now: frames still wait, or there is no
    /// memory for a larger ring.
    pub(crate) fn follow(
        &mut self,
        interface: &Interface,
        options: &InlineOptions,
        stats: &mut PortStats,
    ) -> bool {
        let limit = interface.mtu as usize + HEADER;
        if limit < self.limit {
            self.limit = limit;
            return true;
        }
        self.flush(stats);
        if self.waiting() > 0 {
            return false;
        }
        match sender(interface, options) {
            Ok(larger) => *self = larger,
            Err(_) => return false,
        }
        true
    }

    /// A socket of the interface's network namespace.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.out.fd.as_fd()
    }

    /// The number of frames that wait for a flush.
    pub(crate) fn waiting(&self) -> usize {
        match &self.path {
            SendPath::Ring(ring) => ring.queued(),
            SendPath::Calls(_) => 0,
        }
    }

    /// Accepts one frame: into the ring, or sent at once.
    pub(crate) fn queue(
        &mut self,
        info: &FrameInfo,
        frame: &[u8],
        stats: &mut PortStats,
    ) -> Result<(), SendRefusal> {
        let result = self.check(info, frame).and_then(|()| self.queue_checked(frame, stats));
        if let Err(refusal) = result {
            stats.send_failures.add(refusal, 1);
        }
        result
    }

    fn queue_checked(&mut self, frame: &[u8], stats: &mut PortStats) -> Result<(), SendRefusal> {
        match &mut self.path {
            SendPath::Ring(ring) => match ring.push(frame) {
                Err(SendRefusal::RingFull) => {
                    self.flush(stats);
                    match &mut self.path {
                        SendPath::Ring(ring) => ring.push(frame),
                        SendPath::Calls(_) => Err(SendRefusal::RingFull),
                    }
                }
                other => other,
            },
            SendPath::Calls(messages) => {
                let mut result = Ok(());
                stats.send_calls += messages
                    .send(self.out.fd.as_fd(), std::iter::once(frame), |_, e| result = Err(refusal_of(&e)));
                if result.is_ok() {
                    stats.note_sent(&TransmitCounts::one(frame));
                }
                result
            }
        }
    }

    /// Sends the frames that wait in the ring, by one call, and more only where the kernel stopped at a
    /// frame. True when the interface may be gone.
    pub(crate) fn flush(&mut self, stats: &mut PortStats) -> bool {
        let SendPath::Ring(ring) = &mut self.path else { return false };
        let mut stale = true;
        while ring.queued() > 0 {
            stats.send_calls += 1;
            let result = sys::send_ring(self.out.fd.as_fd());
            let sent = ring.reap();
            stats.note_sent(&sent);
            if sent.frames > 0 {
                self.stalls = 0;
            }
            let Err(error) = result else { return false };
            if ring.head_is_malformed() {
                // The MTU became smaller after the port was opened.
                ring.drop_head();
                stats.send_failures.add(SendRefusal::TooLarge, 1);
                continue;
            }
            match refusal_of(&error) {
                // May be left over from a time when the interface was down: reported once, then forgotten.
                SendRefusal::DeviceDown if stale && error.raw_os_error() == Some(libc::ENETDOWN) => {
                    stale = false
                }
                SendRefusal::DeviceDown => {
                    stats.send_failures.add(SendRefusal::DeviceDown, ring.drop_all());
                    return true;
                }
                // Memory is freed when the device has sent: the next flush continues.
                SendRefusal::NoMemory => return false,
                _ if error.kind() == io::ErrorKind::Interrupted => {}
                refusal => {
                    self.stalls += 1;
                    if self.stalls >= PATIENCE {
                        self.stalls = 0;
                        ring.drop_head();
                        stats.send_failures.add(refusal, 1);
                    }
                }
            }
        }
        false
    }
}

impl Port for InlinePort {
    fn name(&self) -> &str {
        &self.socket.interface.name
    }

    fn mtu(&self) -> u32 {
        self.socket.interface.mtu
    }

    fn mac(&self) -> [u8; 6] {
        self.socket.interface.mac
    }

    fn receive(&mut self, batch: &mut Batch) -> Result<usize, PortError> {
        self.follow_mtu();
        let filled = self.rx.fill(self.socket.fd.as_fd(), batch);
        self.socket.count(&filled)
    }

    fn transmit(&mut self, batch: &mut Batch) -> usize {
        self.sender.send_batch(batch, &mut self.socket.stats)
    }

    fn transmit_frame(&mut self, frame: &[u8]) -> Result<(), SendRefusal> {
        self.sender.queue(&FrameInfo::default(), frame, &mut self.socket.stats)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        if self.sender.flush(&mut self.socket.stats) {
            return self.socket.still_there();
        }
        Ok(())
    }

    fn pending(&self) -> usize {
        self.sender.waiting()
    }

    fn ready(&self) -> bool {
        self.rx.ready()
    }

    fn backlog(&self) -> u8 {
        self.rx.backlog()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd.as_fd())
    }

    fn woken(&mut self, failed: bool) -> Result<(), PortError> {
        self.socket.woken(failed)
    }

    fn stats(&mut self) -> PortStats {
        self.socket.refresh_stats();
        self.socket.stats
    }

    fn now(&mut self) -> Timestamp {
        self.socket.now()
    }
}
