// SPDX-License-Identifier: Apache-2.0
//! Passive capture: an AF_PACKET port with a TPACKET_V3 ring, block by block. It cannot send.
//!
//! Source: packet(7), Linux `packet_mmap.rst`. A block is handed over when it is full or after the retire
//! time, so a packet may be that old when it is received: cheap for a tap, wrong inline (see
//! [`crate::InlinePort`]).

use crate::batch::Batch;
use crate::duplicates::Duplicates;
use crate::error::{OpenError, PortError};
use crate::ffi_pcap::PacketFilter;
use crate::interface::Interface;
use crate::offload::Warning;
use crate::port::{LinkLayer, MAX_FRAME, Port, PortStats};
use crate::refusal::SendRefusal;
use crate::ring::Mapping;
use crate::ring::v3::RxV3;
use crate::snap::SnapLength;
use crate::socket::{Fanout, Socket, SocketOptions};
use crate::sys;
use crate::timestamps::Timestamps;
use bartizan_base::{PacketDuration, Spread, Timestamp};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Options of a passive port.
#[derive(Clone, Copy, Debug)]
pub struct PassiveOptions<'f> {
    /// Bytes of a block: a multiple of the page, at least 128 KiB (a frame must fit into it).
    pub block_size: usize,
    /// Number of blocks, at least 2.
    pub blocks: usize,
    /// The longest time before the kernel hands over a block that is not full (whole milliseconds, at least
    /// 1).
    pub retire: Duration,
    /// Receive frames that are not addressed to this host.
    pub promiscuous: bool,
    /// Also receive frames that this host sends (on the loopback interface every frame would then appear
    /// twice, so it is always off for that).
    pub outgoing: bool,
    /// Share the interface with other ports.
    pub fanout: Option<Fanout>,
    /// The source of timestamps.
    pub timestamps: Timestamps,
    /// Switch offloads off, and on again when the port is dropped.
    pub fix_offloads: bool,
    /// Receive only frames that this filter passes ([`PacketFilter::compile_for`]); the kernel filters, and
    /// counts no others.
    pub filter: Option<&'f PacketFilter>,
    /// The bytes of each frame that the kernel puts into the ring; all of them by default. Longer frames are
    /// cut ([`crate::FrameFlags::TRUNCATED`]) and counted ([`PortStats::oversized`]).
    pub snap_length: Option<SnapLength>,
    /// Mark a frame with the bytes of another one that came at most so long before it, as mirror ports
    /// duplicate them ([`crate::FrameFlags::DUPLICATE`]).
    pub duplicate_window: Option<PacketDuration>,
}

impl PassiveOptions<'_> {
    /// Size and number of the blocks of a ring of this number of bytes: 16 at least. A block is handed over
    /// when its time is over, however few frames are in it, so a ring of a few blocks is full as soon as no
    /// worker reads it for a few times `retire`.
    #[must_use]
    pub const fn blocks_of(ring: usize) -> (usize, usize) {
        let block_size = if ring < 32 << 20 { 128 << 10 } else { 1 << 20 };
        (block_size, ring / block_size)
    }
}

impl Default for PassiveOptions<'_> {
    fn default() -> Self {
        Self {
            block_size: 1 << 20,
            blocks: 32,
            retire: Duration::from_millis(10),
            promiscuous: true,
            outgoing: true,
            fanout: None,
            timestamps: Timestamps::Software,
            fix_offloads: false,
            filter: None,
            snap_length: None,
            duplicate_window: None,
        }
    }
}

/// A passive port.
pub struct PassivePort {
    socket: Socket,
    rx: RxV3,
    duplicates: Option<Duplicates>,
    retire: Duration,
}

impl PassivePort {
    /// Opens one on interface `name`.
    ///
    /// # Errors
    /// The fault of interface, rights, options or memory, with what to do.
    pub fn open(name: &str, options: &PassiveOptions<'_>) -> Result<Self, OpenError> {
        Self::prepare(name, options, false)
    }

    /// Opens a port for each worker on interface `name`: a frame reaches one of them, all frames of a flow
    /// the same one, as [`Spread::worker`] selects. Option `fanout` is ignored.
    ///
    /// # Errors
    /// As [`PassivePort::open`], and a kernel without such groups (before 4.12).
    pub fn open_group(
        name: &str,
        options: &PassiveOptions<'_>,
        spread: &Spread,
    ) -> Result<Vec<Self>, OpenError> {
        if spread.workers() == 1 {
            return Ok(vec![Self::open(name, options)?]);
        }
        let options = PassiveOptions { fanout: None, ..*options };
        let mut ports: Vec<Self> = Vec::with_capacity(usize::from(spread.workers()));
        let mut group = None;
        for _ in 0..spread.workers() {
            let mut port = Self::prepare(name, &options, true)?;
            group = Some(port.socket.join(spread, group, options.outgoing)?);
            ports.push(port);
        }
        ports.iter().try_for_each(|port| port.socket.listen(options.filter, options.snap_length.as_ref()))?;
        Ok(ports)
    }

    /// Prepares a port; `member`: it joins a group later.
    fn prepare(name: &str, options: &PassiveOptions<'_>, member: bool) -> Result<Self, OpenError> {
        let request = request(name, options)?;
        let interface = Interface::lookup(name)?;
        let shared = SocketOptions {
            promiscuous: options.promiscuous,
            outgoing: options.outgoing && !interface.loopback,
            fanout: options.fanout,
            timestamps: options.timestamps,
            fix_offloads: options.fix_offloads,
            for_level: false,
        };
        let mut socket = Socket::open(interface, libc::tpacket_versions::TPACKET_V3 as u32, &shared)?;
        if socket.interface.mtu as usize + 18 > MAX_FRAME {
            socket.warnings.push(Warning::LargeMtu { interface: name.to_owned(), mtu: socket.interface.mtu });
        }
        let vnet = socket.request_segmentation();
        let bytes = options.block_size * options.blocks;
        socket.set_ring(libc::PACKET_RX_RING, &request, bytes)?;
        let mapping = Mapping::new(socket.borrow(), bytes).map_err(|source| OpenError::RingMemory {
            name: name.to_owned(),
            mebibytes: bytes >> 20,
            source,
        })?;
        let mut rx = RxV3::new(mapping, options.block_size, options.blocks);
        rx.vnet = vnet;
        rx.by_device = socket.by_device;
        rx.raw_ip = socket.interface.link_layer == LinkLayer::RawIp;
        rx.skip_outgoing = socket.skip_outgoing || member && !shared.outgoing;
        if member {
            socket.attach_drop_filter()?;
        } else if options.filter.is_some() || options.snap_length.is_some() {
            socket.listen(options.filter, options.snap_length.as_ref())?;
        }
        socket.start(&shared)?;
        let duplicates = options.duplicate_window.map(Duplicates::new);
        Ok(Self { socket, rx, duplicates, retire: options.retire })
    }

    /// The warnings about this port for the operator.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.socket.warnings
    }
}

fn request(name: &str, options: &PassiveOptions<'_>) -> Result<libc::tpacket_req3, OpenError> {
    const FRAME: u32 = 2048;
    let refuse = |option, problem| OpenError::Option { name: name.to_owned(), option, problem };
    let page = sys::page_size();
    if !options.block_size.is_multiple_of(page) || !(128 << 10..=64 << 20).contains(&options.block_size) {
        let problem =
            format!("{} bytes; it must be a multiple of {page} from 128 KiB to 64 MiB", options.block_size);
        return Err(refuse("block_size", problem));
    }
    if options.blocks < 2 || options.blocks.saturating_mul(options.block_size) > 4 << 30 {
        return Err(refuse(
            "blocks",
            format!("{}; at least 2, and at most 4 GiB altogether", options.blocks),
        ));
    }
    let retire = u32::try_from(options.retire.as_millis()).ok().filter(|ms| (1..=10_000).contains(ms));
    let Some(retire) = retire else {
        return Err(refuse("retire", format!("{:?}; from 1 ms to 10 s", options.retire)));
    };
    let most = options.snap_length.map(|snap| match snap {
        SnapLength::Frame(bytes) => bytes,
        SnapLength::Headers(after) => after.max.unwrap_or(u32::MAX),
    });
    if most == Some(0) {
        return Err(refuse("snap_length", "0 bytes; the kernel drops such frames".to_owned()));
    }
    let block_size = options.block_size as u32;
    let blocks = options.blocks as u32;
    Ok(libc::tpacket_req3 {
        tp_block_size: block_size,
        tp_block_nr: blocks,
        tp_frame_size: FRAME,
        tp_frame_nr: (block_size / FRAME).saturating_mul(blocks),
        tp_retire_blk_tov: retire,
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    })
}

impl Port for PassivePort {
    fn name(&self) -> &str {
        &self.socket.interface.name
    }

    fn mtu(&self) -> u32 {
        self.socket.interface.mtu
    }

    fn mac(&self) -> [u8; 6] {
        self.socket.interface.mac
    }

    fn link_layer(&self) -> LinkLayer {
        self.socket.interface.link_layer
    }

    fn receive(&mut self, batch: &mut Batch) -> Result<usize, PortError> {
        let filled = self.rx.fill(batch);
        if let Some(duplicates) = &mut self.duplicates {
            duplicates.mark(batch);
        }
        self.socket.count(&filled)
    }

    fn transmit(&mut self, batch: &mut Batch) -> usize {
        let failures = &mut self.socket.stats.send_failures;
        batch.send_each(|_, _| {
            failures.add(SendRefusal::ReceiveOnly, 1);
            Err(SendRefusal::ReceiveOnly)
        })
    }

    fn transmit_frame(&mut self, _frame: &[u8]) -> Result<(), SendRefusal> {
        self.socket.stats.send_failures.add(SendRefusal::ReceiveOnly, 1);
        Err(SendRefusal::ReceiveOnly)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    fn ready(&self) -> bool {
        self.rx.ready()
    }

    fn pressed(&self) -> bool {
        self.rx.pressed()
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

    fn delay(&self) -> PacketDuration {
        // The kernel checks a block twice before it hands it over, and is itself late on a busy machine.
        PacketDuration::from_nanos(3 * self.retire.as_nanos() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_has_blocks_enough() {
        for (mib, expected) in
            [(2, (128 << 10, 16)), (31, (128 << 10, 248)), (32, (1 << 20, 32)), (4096, (1 << 20, 4096))]
        {
            assert_eq!(PassiveOptions::blocks_of(mib << 20), expected);
        }
        let usual = PassiveOptions::default();
        assert_eq!(
            PassiveOptions::blocks_of(usual.block_size * usual.blocks),
            (usual.block_size, usual.blocks)
        );
    }

    #[test]
    fn options_that_cannot_work_are_refused_before_anything_is_opened() {
        for (options, option) in [
            (PassiveOptions { block_size: 100_000, ..Default::default() }, "block_size"),
            (PassiveOptions { block_size: 4096, ..Default::default() }, "block_size"),
            (PassiveOptions { blocks: 1, ..Default::default() }, "blocks"),
            (PassiveOptions { retire: Duration::from_micros(10), ..Default::default() }, "retire"),
            (PassiveOptions { snap_length: Some(SnapLength::Frame(0)), ..Default::default() }, "snap_length"),
        ] {
            match PassivePort::open("lo", &options).map(|_| ()) {
                Err(OpenError::Option { option: named, .. }) => assert_eq!(named, option),
                other => panic!("{option}: {other:?}"),
            }
        }
    }
}
