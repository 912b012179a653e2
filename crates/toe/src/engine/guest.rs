// SPDX-License-Identifier: Apache-2.0
//! A guest in the engine: its segments, its table of streams, its processes, its counters.

use super::config::{EngineError, GuestReport, GuestSpec, system};
use super::slab::StreamKey;
use super::stream::StreamProgram;
use crate::descriptor::StreamHandle;
use crate::layout::{Layout, SlotState};
use crate::memory::{ByteRing, SharedMemory};
use crate::reason::{RefusalCounts, StreamRefusal};
use crate::ring::RingReader;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use std::time::Instant;

/// Bytes of a stream's buffers beyond which their pages go back to the kernel when the stream ends.
const KEPT_BYTES: u64 = 8192;

/// The two segments of a guest.
#[derive(Debug)]
pub(crate) struct GuestSegments {
    pub(crate) layout: Layout,
    pub(crate) control: SharedMemory,
    pub(crate) data: SharedMemory,
    pub(crate) control_fd: OwnedFd,
    pub(crate) data_fd: OwnedFd,
}

impl GuestSegments {
    fn create(layout: Layout) -> Result<GuestSegments, EngineError> {
        let make =
            |name: &str, bytes| SharedMemory::create(name, bytes).map_err(system("make a guest's segments"));
        let (control_fd, control) = make("bartizan-control", layout.control_bytes())?;
        let (data_fd, data) = make("bartizan-data", layout.data_bytes())?;
        Ok(GuestSegments { layout, control, data, control_fd, data_fd })
    }

    /// The shown state of a slot.
    pub(crate) fn slot(&self, index: u32) -> Option<&SlotState> {
        if index < self.layout.slots { self.control.at(self.layout.slot(index)) } else { None }
    }

    /// The buffer of bytes from the guest.
    pub(crate) fn tx(&self, slot: u32) -> ByteRing<'_> {
        ByteRing { memory: &self.data, offset: self.layout.tx(slot), size: self.layout.buffer() }
    }

    /// The buffer of bytes for the guest.
    pub(crate) fn rx(&self, slot: u32) -> ByteRing<'_> {
        ByteRing { memory: &self.data, offset: self.layout.rx(slot), size: self.layout.buffer() }
    }
}

/// A process that joined.
#[derive(Debug)]
pub(crate) struct Member {
    /// The engine's end of its channel.
    pub(crate) channel: OwnedFd,
    /// Rung by the process when the engine does not look at its ring.
    pub(crate) bell: OwnedFd,
    pub(crate) ring: RingReader,
    /// The engine looks at the ring in every round.
    pub(crate) is_active: bool,
    /// Process, as the kernel named it when its channel was made.
    pub(crate) program: StreamProgram,
}

/// Permits for opening connections: a second's worth at most.
#[derive(Debug)]
struct ConnectRate {
    permits: f64,
    at: Instant,
}

/// Place of a stream in the guest's table.
#[derive(Clone, Copy, Debug)]
struct TableEntry {
    generation: u32,
    stream: Option<StreamKey>,
}

/// A guest.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) spec: GuestSpec,
    /// The socket at which programs are started.
    pub(crate) door: Option<OwnedFd>,
    /// The engine's ends of the descriptors that programs were started with.
    pub(crate) starts: Vec<Option<OwnedFd>>,
    pub(crate) segments: Arc<GuestSegments>,
    table: Vec<TableEntry>,
    free: VecDeque<u32>,
    pub(crate) members: Vec<Option<Member>>,
    rate: ConnectRate,
    /// Streams that wait for room in the engine's memory.
    pub(crate) starved: VecDeque<StreamKey>,
    pub(crate) bytes: usize,
    pub(crate) counts: GuestReport,
    pub(crate) refused: RefusalCounts,
}

impl Guest {
    /// Makes a guest.
    pub(crate) fn create(
        number: u16,
        spec: GuestSpec,
        door: Option<OwnedFd>,
        now: Instant,
    ) -> Result<Guest, EngineError> {
        let layout = spec.layout();
        if !layout.is_valid() {
            return Err(EngineError::Limits);
        }
        let segments = Arc::new(GuestSegments::create(layout)?);
        let free = TableEntry { generation: 0, stream: None };
        Ok(Guest {
            door,
            starts: Vec::new(),
            segments,
            table: vec![free; layout.slots as usize],
            free: (0..layout.slots).collect(),
            members: (0..layout.rings).map(|_| None).collect(),
            rate: ConnectRate { permits: f64::from(spec.limits.connects_per_second), at: now },
            starved: VecDeque::new(),
            bytes: 0,
            counts: GuestReport { guest: number, tenant: spec.tenant, ..GuestReport::default() },
            refused: RefusalCounts::default(),
            spec,
        })
    }

    /// Takes a free slot for a stream, with its new generation (odd).
    pub(crate) fn allot(&mut self, state: u32) -> Option<StreamHandle> {
        let slot = self.free.pop_front()?;
        let entry = self.table.get_mut(slot as usize)?;
        entry.generation = entry.generation.wrapping_add(1) | 1;
        let generation = entry.generation;
        self.segments.slot(slot)?.begin(generation, state);
        Some(StreamHandle { slot, generation })
    }

    /// Puts a stream into the slot that was taken for it.
    pub(crate) fn enter(&mut self, handle: StreamHandle, key: StreamKey) {
        if let Some(entry) = self.table.get_mut(handle.slot as usize) {
            entry.stream = Some(key);
        }
    }

    /// The stream that a handle names; `None`: it names none, or one that is gone.
    pub(crate) fn find(&self, handle: StreamHandle) -> Option<StreamKey> {
        let entry = self.table.get(handle.slot as usize)?;
        if entry.generation == handle.generation { entry.stream } else { None }
    }

    /// All streams.
    pub(crate) fn streams(&self) -> impl Iterator<Item = StreamKey> {
        self.table.iter().filter_map(|entry| entry.stream)
    }

    /// Frees a slot; pages of its buffers go back to the kernel if many were used.
    pub(crate) fn release(&mut self, handle: StreamHandle, used: u64) {
        let Some(entry) = self.table.get_mut(handle.slot as usize) else { return };
        entry.stream = None;
        entry.generation = entry.generation.wrapping_add(1);
        let generation = entry.generation;
        if let Some(slot) = self.segments.slot(handle.slot) {
            slot.engine.generation.store(generation, Release);
        }
        if used > KEPT_BYTES {
            let layout = self.segments.layout;
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let (place, length) = (layout.tx(handle.slot) as u64, u64::from(layout.buffer()) * 2);
            let _ = fallocate(&self.segments.data_fd, flags, place, length);
        }
        self.free.push_back(handle.slot);
    }

    /// Whether another connection may be opened now.
    pub(crate) fn may_connect(&mut self, now: Instant) -> bool {
        let most = f64::from(self.spec.limits.connects_per_second);
        let passed = now.saturating_duration_since(self.rate.at).as_secs_f64();
        self.rate.at = now;
        self.rate.permits = (self.rate.permits + passed * most).min(most.max(1.0));
        if self.rate.permits < 1.0 {
            return false;
        }
        self.rate.permits -= 1.0;
        true
    }

    /// The address to bind to for one that the guest asked for.
    pub(crate) fn local_address(&self, wanted: SocketAddr) -> Result<SocketAddr, Errno> {
        let own = &self.spec.addresses;
        if own.is_empty() || (self.spec.shares_loopback && wanted.ip().is_loopback()) {
            return Ok(wanted);
        }
        if wanted.ip().is_unspecified() {
            let address = own.iter().find(|address| address.is_ipv4() == wanted.is_ipv4());
            return address.map(|ip| SocketAddr::new(*ip, wanted.port())).ok_or(Errno::ADDRNOTAVAIL);
        }
        let canonical = wanted.ip().to_canonical();
        own.contains(&canonical).then_some(wanted).ok_or(Errno::ADDRNOTAVAIL)
    }

    /// The address of IPv4 to bind to beside that of IPv6 for a wildcard of IPv6; `None`: the kernel's own
    /// wildcard does, or the guest has one family.
    pub(crate) fn twin_address(&self, wanted: SocketAddr) -> Option<SocketAddr> {
        let is_wildcard = wanted.is_ipv6() && wanted.ip().is_unspecified();
        let own = self.spec.addresses.iter().find(|address| is_wildcard && address.is_ipv4());
        own.map(|ip| SocketAddr::new(*ip, wanted.port()))
    }

    /// Whether an address is the guest's own and none of the engine's.
    pub(crate) fn keeps(&self, address: IpAddr) -> bool {
        let canonical = address.to_canonical();
        !self.spec.shares_loopback && canonical.is_loopback()
    }

    /// Counts a refusal.
    pub(crate) fn refuse(&mut self, reason: StreamRefusal) {
        self.refused.count(reason);
    }

    /// Its state now.
    pub(crate) fn report(&self) -> GuestReport {
        GuestReport {
            streams: self.streams().count(),
            processes: self.members.iter().flatten().count(),
            bytes: self.bytes,
            refused: self.refused.clone(),
            ..self.counts.clone()
        }
    }

    /// Descriptors that a new process gets.
    pub(crate) fn segment_descriptors(&self) -> [std::os::fd::BorrowedFd<'_>; 2] {
        [self.segments.control_fd.as_fd(), self.segments.data_fd.as_fd()]
    }
}
