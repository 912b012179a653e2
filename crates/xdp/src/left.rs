// SPDX-License-Identifier: Apache-2.0
//! The state that a killed process leaves: its program on interfaces, with tables that no process reads any
//! more.
//!
//! None of its decisions is trusted: the flows of its entries are unknown. The entries act until its
//! program is replaced; then its counters are added up.

use crate::counters::bytes_of;
use crate::error::XdpError;
use crate::link::XdpInterface;
use crate::memory::Words;
use crate::pin::Pin;
use crate::sys::{self, Attachment};
use crate::tables::{PORT_WORDS, SLOT_WORDS, words_of_slot};
use aya::maps::{HashMap, Map, MapData, MapInfo};
use aya::programs::{ProgramInfo, loaded_programs};
use bartizan_offload::level::{FrameTotals, LeftOn, StalePrograms};
use bartizan_packet::slots::{ControlFlags, PORTS, PortLine, PortWord, SlotAction, SlotControl, SlotLine};
use std::os::fd::AsFd as _;
use std::sync::atomic::AtomicU64;

/// The map of ports by their interfaces.
const PORTS_MAP: &str = "ports";

/// An attachment left by an older process, and the program on it.
pub(crate) struct StaleAttachment {
    pub attachment: Attachment,
    /// Number of its program.
    pub program: u32,
}

/// Interfaces of this network namespace with a pinned running program, whether the process that pinned it
/// lives or not. Pins of interfaces that are gone are removed.
///
/// # Errors
/// The folder is not this user's alone, a program is not ours, the kernel refuses.
pub fn pinned() -> Result<Vec<LeftOn>, XdpError> {
    let mut all = Vec::new();
    for (ifindex, pin) in Pin::all()? {
        let Some(attachment) = pin.find()? else { continue };
        match attachment.numbers() {
            Ok((program, interface)) if interface == ifindex => {
                is_ours(&pin, program)?;
                if let Ok(XdpInterface { name, .. }) = crate::program::query_interface(ifindex) {
                    all.push(LeftOn { ifindex, name, program });
                }
            }
            // The attachment is made before its pin, so it was removed since, or went with its interface.
            Ok((_, 0)) => pin.remove(),
            _ => {}
        }
    }
    all.sort_by_key(|pinned| pinned.ifindex);
    Ok(all)
}

/// Looks for a running attachment that an older process left on an interface. A pin of an older interface
/// with the same number is removed.
///
/// # Errors
/// The folder is not this user's alone, or it is no program of ours.
pub(crate) fn find(
    pin: &Pin,
    ifindex: u32,
    link: &XdpInterface,
) -> Result<Option<StaleAttachment>, XdpError> {
    let Some(attachment) = pin.find()? else { return Ok(None) };
    match (attachment.numbers(), link.program) {
        (Ok((program, interface)), Some((id, _))) if interface == ifindex && program == id => {
            is_ours(pin, program)?;
            Ok(Some(StaleAttachment { attachment, program }))
        }
        _ => {
            pin.remove();
            Ok(None)
        }
    }
}

/// Checks that a pinned program is one of this project, of whatever build. If the kernel does not report
/// that, the folder decides: it is this user's alone.
fn is_ours(pin: &Pin, id: u32) -> Result<(), XdpError> {
    let program = program_name(id);
    if program.is_empty() || program == crate::program::NAME {
        return Ok(());
    }
    Err(XdpError::ForeignPin { path: pin.path(), id, program })
}

impl StaleAttachment {
    /// Detaches the program, and removes its pin.
    pub(crate) fn detach(self, pin: &Pin, name: &str) -> Result<(), XdpError> {
        self.attachment
            .detach()
            .map_err(|source| XdpError::system(Some(name), "detaching what was left", source))?;
        pin.remove();
        // The process that left it had switched this on.
        let _ = sys::set_promiscuous(name, false);
        Ok(())
    }
}

/// Removes the program that an older process left on an interface without a level now. `false`: there was
/// none.
///
/// # Errors
/// There is no such interface; the kernel refuses.
pub fn remove_left(ifindex: u32) -> Result<bool, XdpError> {
    let pin = Pin::of(ifindex)?;
    let link = crate::program::query_interface(ifindex)?;
    match find(&pin, ifindex, &link)? {
        Some(found) => found.detach(&pin, &link.name).map(|()| true),
        None => Ok(false),
    }
}

/// Name of a loaded program; empty if the kernel does not report it.
pub(crate) fn program_name(id: u32) -> String {
    info(id).and_then(|program| program.name_as_str().map(str::to_owned)).unwrap_or_default()
}

/// A loaded program. `None`: there is none of this number, or the kernel does not report it.
fn info(program: u32) -> Option<ProgramInfo> {
    loaded_programs().filter_map(Result::ok).find(|info| info.id() == program)
}

/// The maps of a program. `None`: the kernel does not give them.
fn maps(info: &ProgramInfo) -> Option<Vec<(MapData, MapInfo)>> {
    let map = |id| {
        let map = MapData::from_id(id).ok()?;
        let info = map.info().ok()?;
        Some((map, info))
    };
    info.map_ids().ok()??.into_iter().map(map).collect()
}

/// Whether an older process's program has two interfaces as the two sides of one link; false if that cannot
/// be read. `None`: its build differs from that of this `tag`.
pub(crate) fn are_paired(program: u32, tag: u64, interfaces: [u32; 2]) -> Option<bool> {
    let Some(info) = info(program) else { return Some(false) };
    if info.tag() != tag {
        return None;
    }
    let ports = || {
        let is_ports = |(_, info): &(MapData, MapInfo)| info.name_as_str() == Some(PORTS_MAP);
        let (map, _) = maps(&info)?.into_iter().find(is_ports)?;
        HashMap::<_, u32, u64>::try_from(Map::HashMap(map)).ok()
    };
    let Some(ports) = ports() else { return Some(false) };
    // An interface without a word is no port of it.
    let of = |ifindex| Some(PortWord::read(&ports.get(&ifindex, 0).ok()?.to_le_bytes()));
    let [Some(first), Some(second)] = interfaces.map(of) else { return Some(false) };
    Some((first.index, first.pair) == (second.pair, second.index))
}

/// The tables of an older process's program.
#[derive(Debug)]
pub(crate) struct LeftTables {
    slots: Words,
    counts: Words,
    processors: u32,
}

impl LeftTables {
    /// Opens the tables of a program. `None`: its build differs from that of this `tag`, or the kernel does
    /// not give them.
    pub(crate) fn open(program: u32, tag: u64, processors: u32) -> Option<Self> {
        let (mut slots, mut counts) = (None, None);
        let info = info(program).filter(|info| info.tag() == tag)?;
        for (map, info) in maps(&info)? {
            let words = |each: usize| Words::map(map.fd().as_fd(), info.max_entries() as usize * each).ok();
            match info.name_as_str() {
                Some("slots") => slots = words(SLOT_WORDS),
                Some("counts") => counts = words(PORT_WORDS),
                _ => {}
            }
        }
        Some(LeftTables { slots: slots?, counts: counts?, processors })
    }

    /// Adds up the counters. Exact once no frame meets the program any more.
    pub(crate) fn add_to(&self, left: &mut StalePrograms) {
        for lines in self.slots.get().chunks_exact(words_of_slot(self.processors)) {
            add_slot(lines.get(SLOT_WORDS..).unwrap_or_default(), left);
        }
        for line in self.counts.get().chunks_exact(PORT_WORDS).take((PORTS * self.processors) as usize) {
            let line = PortLine::read(&bytes_of(line));
            left.open.add(FrameTotals { frames: line.open, bytes: line.open_bytes });
            left.closed.add(FrameTotals { frames: line.closed, bytes: line.closed_bytes });
        }
    }
}

/// Actions that drop.
const DROPS: [u8; 3] = [SlotAction::Drop as u8, SlotAction::DropLow as u8, SlotAction::DropHigh as u8];

fn add_slot(lines: &[AtomicU64], left: &mut StalePrograms) {
    let mut action = None;
    for line in lines.chunks_exact(SLOT_WORDS) {
        let line = SlotLine::read(&bytes_of(line));
        let control = SlotControl::read(&line.control.to_le_bytes());
        if control.flags & ControlFlags::VALID.bits() == 0 {
            return;
        }
        action = Some(control.action);
        let handled = match control.action {
            action if DROPS.contains(&action) => &mut left.dropped,
            _ => &mut left.forwarded,
        };
        handled.add(FrameTotals {
            frames: line.packets_low.saturating_add(line.packets_high),
            bytes: line.bytes_low.saturating_add(line.bytes_high),
        });
    }
    left.entries += u64::from(action.is_some());
}
