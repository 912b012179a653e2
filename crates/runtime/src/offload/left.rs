// SPDX-License-Identifier: Apache-2.0
//! The state of levels that killed runs left on interfaces: it is taken away where no link of this run has
//! that level, since it would take frames away from this run, or go on forwarding what nobody looks at.

use super::shared::SharedLevel;
use crate::error::Failure;
use crate::lock;
use crate::plan::{LinkPlan, RunPlan};
use bartizan_offload::level::{LeftOn, LevelDriver, LevelError, OpenLevel, StalePrograms};
use bartizan_ports::Interface;

/// Removes the state of killed runs from the interfaces of inline links that do not have its kind of level
/// now.
pub(super) fn take_away_from_links(
    plan: &RunPlan,
    interfaces: &[Vec<Interface>],
    notes: &mut Vec<String>,
) -> Result<(), Failure> {
    for driver in plan.levels.iter() {
        let without = |link: &LinkPlan| link.is_inline() && link.level(driver.name()).is_none();
        let links = plan.links.iter().zip(interfaces).filter(|(link, _)| without(link));
        for (link, interface) in links.flat_map(|(link, own)| own.iter().map(move |one| (link, one))) {
            let taken = driver
                .remove_left(interface.index)
                .map_err(|error| Failure::input(format!("link `{}`: {error}", link.name)))?;
            if taken {
                notes.push(format!(
                    "link `{}`: the {} program that a killed run left on `{}` is removed, since the link does not use that level now (`offload`)",
                    link.name,
                    driver.title(),
                    interface.name
                ));
            }
        }
    }
    Ok(())
}

/// Takes away what was left on the two interfaces of links that are to have a level, unless it was the same
/// link before: else it would forward what comes by one of them to an interface that is none of the link's.
/// Before anything is attached: it may be across from what is another link now.
pub(super) fn take_away_unpaired(
    driver: &dyn LevelDriver,
    level: &mut dyn OpenLevel,
    plan: &RunPlan,
    interfaces: &[Vec<Interface>],
    notes: &mut Vec<String>,
) -> Result<(), LevelError> {
    let left = driver.left()?;
    let on = |own: &Interface| left.iter().find(|left| left.ifindex == own.index).map(|left| left.program);
    let has = |link: &LinkPlan| link.level(driver.name()).is_some();
    for (link, interfaces) in plan.links.iter().zip(interfaces).filter(|(link, _)| has(link)) {
        let [first, second] = interfaces.as_slice() else { continue };
        let goes_on = match (on(first), on(second)) {
            (None, None) => true,
            (Some(old), Some(other)) if old == other => {
                // The tables of another build are not read: who updates the program has its links open
                // meanwhile.
                level.left_paired(old, [first.index, second.index])?.unwrap_or(true)
            }
            _ => false,
        };
        for own in interfaces.iter().filter(|_| !goes_on) {
            if level.remove_left(own.index)? {
                notes.push(format!(
                    "link `{}`: the {} program that a killed run left on `{}` is removed, since it did not belong to this link of `{}` and `{}`",
                    link.name,
                    driver.title(),
                    own.name,
                    first.name,
                    second.name
                ));
            }
        }
    }
    Ok(())
}

/// Removes the state of killed runs from interfaces that are in no inline link of this run, unless
/// another live process is inline there.
pub(super) fn take_away_others(
    levels: &mut [SharedLevel],
    plan: &RunPlan,
    interfaces: &[Vec<Interface>],
    notes: &mut Vec<String>,
) -> Result<(), Failure> {
    let inline = plan.links.iter().zip(interfaces).filter(|(link, _)| link.is_inline());
    let own: Vec<u32> =
        inline.flat_map(|(_, interfaces)| interfaces).map(|interface| interface.index).collect();
    for driver in plan.levels.iter() {
        let opened = levels.iter_mut().find(|level| level.driver.name() == driver.name());
        take_away_of(driver, opened, &own, notes)?;
    }
    Ok(())
}

/// Removes such state of one kind of level. `own`: interfaces of inline links of this run.
fn take_away_of(
    driver: &dyn LevelDriver,
    mut opened: Option<&mut SharedLevel>,
    own: &[u32],
    notes: &mut Vec<String>,
) -> Result<(), Failure> {
    let failed = |error: LevelError| {
        Failure::input(format!("the programs that a killed run may have left cannot be removed: {error}"))
    };
    for LeftOn { ifindex, name, .. } in driver.left().map_err(failed)? {
        if own.contains(&ifindex) {
            continue;
        }
        let _lock = match lock::interface(&name) {
            Ok(Some(lock)) => lock,
            // It lives.
            Err(_) => continue,
            Ok(None) => {
                notes.push(format!(
                    "a bartizan {} program is pinned on `{name}`, which is not an inline link here, and it is unknown whether its run is alive: {} cannot be used; if no run is alive, remove the file in {}",
                    driver.title(),
                    lock::ROOTS_FOLDER,
                    driver.left_place()
                ));
                continue;
            }
        };
        let taken = match &mut opened {
            Some(opened) => opened.level.remove_left(ifindex),
            None => driver.remove_left(ifindex),
        };
        if taken.map_err(failed)? {
            notes.push(format!(
                "the {} program that a killed run left on `{name}` is removed, since `{name}` is not an inline link now: packets on it are no longer forwarded",
                driver.title()
            ));
        }
    }
    Ok(())
}

/// The note about a killed run's state that was taken over.
pub(super) fn note(title: &str, left: &StalePrograms) -> String {
    let StalePrograms { programs, unread, entries, forwarded, dropped, open, closed } = left;
    if programs == unread {
        return format!(
            "note: the {title} program that a killed run left is replaced; it belongs to another build, so its counters are not read"
        );
    }
    format!(
        "note: the {title} program that a killed run left is replaced, and its {entries} flows are evaluated again; no flow record contains the packets that it handled ({} packets with {} bytes forwarded, {} with {} dropped); without a worker, {} packets passed uninspected and {} were dropped",
        forwarded.frames, forwarded.bytes, dropped.frames, dropped.bytes, open.frames, closed.frames
    )
}
