// SPDX-License-Identifier: Apache-2.0
//! Tests of ports before a packet depends on them: active offloads, frame lengths, and whether redirected
//! frames really leave.
//!
//! Source: Linux `include/uapi/linux/ethtool.h`, `include/trace/events/xdp.h`. Redirects are tested with
//! frames of an experimental EtherType (IEEE 802, 0x88b5), which no host listens to; the kernel reports
//! what the port's device did with them (`ebpf/probe.bpf.c`). A failed redirect is reported nowhere else:
//! on a virtual Ethernet device whose other end does not poll, all frames would be lost silently.
//!
//! Not seen from here: offloads of the other end of a virtual Ethernet pair. The host sees from frames that
//! come up whether that end leaves checksums open.

use crate::error::XdpError;
use crate::link::XdpInterface;
use crate::memory::Words;
use crate::object::{load, load_with_retry, map, not_loaded};
use crate::sys::{self, Map, MapUpdateMode};
use aya::programs::{RawTracePoint, Xdp};
use aya::{Ebpf, EbpfLoader};
use bartizan_packet::slots::ProbeOutcome;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/probe.o"));
const NAME: &str = "bartizan_probe";
const REPORTER: &str = "bartizan_sent";

/// The MTU at which every driver that supports XDP runs programs.
pub(crate) const ANY_DRIVER_MTU: u32 = 1500;

/// The numbers of frames sent to test a port, in each of several attempts. All have to be taken: a driver
/// that takes none causes no report at all, and a report of another sender's frames on the same processor,
/// before the outcome is read, would count in its place; but hardly three times, and with these numbers.
const TRIES: [u32; 3] = [4, 1, 3];

/// Offloads: the word of `ethtool -K`, the request that reads it, and the bit where the answer has several.
const OFFLOADS: [(&str, u32, u32); 6] = [
    ("tx", 0x16, u32::MAX),
    ("tso", 0x1e, u32::MAX),
    ("gso", 0x23, u32::MAX),
    ("gro", 0x2b, u32::MAX),
    ("lro", 0x25, 1 << 15),
    // A tag removed from the frame is neither part of its key nor sent with it.
    ("rxvlan", 0x25, 1 << 8),
];

/// Checks the state and the offloads of one port.
pub(crate) fn port(link: &XdpInterface) -> Result<(), XdpError> {
    if !link.is_up() {
        return Err(XdpError::Down { name: link.name.clone() });
    }
    let mut command = String::new();
    for (word, request, bit) in OFFLOADS {
        // A device that does not support the request has no such offload.
        if sys::ethtool_value(&link.name, request).unwrap_or(0) & bit != 0 {
            command.push_str(&format!(" {word} off"));
        }
    }
    if command.is_empty() {
        return Ok(());
    }
    Err(XdpError::Offloads { name: link.name.clone(), command: format!("ethtool -K {}{command}", link.name) })
}

/// Checks that frames of one port may leave by the other one.
pub(crate) fn same_mtu(a: &XdpInterface, b: &XdpInterface) -> Result<(), XdpError> {
    if a.mtu == b.mtu {
        return Ok(());
    }
    Err(XdpError::MtuDiffers { a: a.name.clone(), mtu_a: a.mtu, b: b.name.clone(), mtu_b: b.mtu })
}

/// `struct bpf_devmap_val`: a device, without a program to run before frames leave by it.
pub(crate) fn device(ifindex: u32) -> [u8; 8] {
    let mut value = [0; 8];
    if let Some(place) = value.first_chunk_mut() {
        *place = ifindex.to_ne_bytes();
    }
    value
}

/// Tests whether ports take redirected frames.
#[derive(Debug)]
pub(crate) struct RedirectProbe {
    bpf: Ebpf,
    target: Map,
    outcome: Words,
    /// The number of probe frames that were not taken.
    lost: u64,
}

impl RedirectProbe {
    pub(crate) fn load() -> Result<Self, XdpError> {
        let mut bpf = load(&mut EbpfLoader::new(), OBJECT, NAME)?;
        let missing = |program| XdpError::Load { program, problem: "the object has no such program".into() };
        let sender: &mut Xdp =
            bpf.program_mut(NAME).and_then(|program| program.try_into().ok()).ok_or_else(|| missing(NAME))?;
        load_with_retry(|| sender.load()).map_err(|error| not_loaded(NAME, &error))?;
        let reporter: &mut RawTracePoint = bpf
            .program_mut(REPORTER)
            .and_then(|program| program.try_into().ok())
            .ok_or_else(|| missing(REPORTER))?;
        load_with_retry(|| reporter.load()).map_err(|error| not_loaded(REPORTER, &error))?;
        reporter.attach("xdp_devmap_xmit").map_err(|error| not_loaded(REPORTER, &error))?;
        let target = map(&bpf, "target", 4, 8)?;
        let outcome = map(&bpf, "outcome", 4, ProbeOutcome::LEN)?;
        let outcome = Words::map(outcome.fd(), ProbeOutcome::LEN / 8)
            .map_err(|source| XdpError::system(None, "mapping a table", source))?;
        Ok(RedirectProbe { bpf, target, outcome, lost: 0 })
    }

    /// The number of probe frames lost since the last call.
    pub(crate) fn take_lost(&mut self) -> u64 {
        core::mem::take(&mut self.lost)
    }

    /// Sends frames to a port, and reads the reports about them. Returns the device, as reports name it.
    pub(crate) fn try_port(&mut self, name: &str, kind: &str, ifindex: u32) -> Result<u64, XdpError> {
        let failed = |what| move |source| XdpError::system(Some(name), what, source);
        self.target
            .update(&0_u32.to_ne_bytes(), &device(ifindex), MapUpdateMode::Any)
            .map_err(failed("naming it to the probe"))?;
        TRIES.into_iter().try_fold(0, |_, frames| self.send(name, kind, frames))
    }

    fn send(&mut self, name: &str, kind: &str, frames: u32) -> Result<u64, XdpError> {
        let failed = |what| move |source| XdpError::system(Some(name), what, source);
        let frame = frame();
        self.outcome.get().iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let program: &mut Xdp = self
            .bpf
            .program_mut(NAME)
            .and_then(|program| program.try_into().ok())
            .ok_or(XdpError::Kernel { what: "the probe" })?;
        let fd = program.fd().map_err(|error| not_loaded(NAME, &error))?;
        sys::live_run(fd.as_fd(), &frame, frames).map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => XdpError::Kernel { what: "running a program on live frames" },
            _ => failed("sending frames to try it")(error),
        })?;
        let outcome = ProbeOutcome::read(&crate::counters::bytes_of(self.outcome.get()));
        self.lost += outcome.dropped;
        if outcome.sent == u64::from(frames) {
            return Ok(outcome.device);
        }
        let source = (outcome.error != 0).then(|| io::Error::from_raw_os_error(outcome.error as i32));
        Err(XdpError::TakesNothing { name: name.to_owned(), kind: kind.to_owned(), source })
    }
}

/// A frame that no host listens to: to an unassigned address of the local network, of an EtherType for
/// experiments.
fn frame() -> [u8; 60] {
    let mut frame = [0; 60];
    let head = [0x02, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0x88, 0xb5];
    frame.iter_mut().zip(head).for_each(|(place, byte)| *place = byte);
    frame
}
