// SPDX-License-Identifier: Apache-2.0
//! Chooses the literals that guard the rules which are candidates for every transaction.

use crate::model::buffers::{BufferRef, Buffers};
use crate::model::content::{Item, Literal};
use crate::model::guards::{GUARDS_MAX, Guard};
use crate::model::prefilter::{TxRules, check_directions};
use crate::model::signature::{Absent, Member, ValueCheck};
use bartizan_applayer::protocol::{BufferKind, BufferSpec, ProtocolId};
use bartizan_base::Direction;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Identity of a guard: buffer, letter case, bytes.
type GuardKey<'s> = (u16, bool, &'s [u8]);

/// Gives the rules on transactions of a protocol and direction their guards.
pub(crate) fn add(
    rules: &mut TxRules,
    signatures: &[Member],
    buffers: &Buffers,
    protocol: ProtocolId,
    direction: Direction,
) {
    if rules.always.is_empty() && rules.beside_stream.is_empty() {
        return;
    }
    let of_rule = |rule: u32| {
        let signature = signatures.get(rule as usize).filter(|signature| can_be_guarded(signature));
        let values = signature.map_or(&[][..], |signature| &signature.values);
        values.iter().filter_map(move |check| guard_of(check, buffers, protocol, direction))
    };
    let mut shared: HashMap<GuardKey<'_>, (usize, Guard)> = HashMap::new();
    for (_, rule) in rules.always.rules.iter().chain(&rules.beside_stream.rules) {
        for (key, spec, literal) in of_rule(*rule) {
            let guard = || (0, Guard { spec, literal: literal.clone() });
            shared.entry(key).or_insert_with(guard).0 += 1;
        }
    }
    let mut guards: Vec<_> = shared.into_iter().collect();
    // Guards that most rules want come first; ties have an order that is the same in each run.
    guards.sort_unstable_by_key(|(key, (rules, _))| (Reverse(*rules), *key));
    guards.truncate(GUARDS_MAX);
    let places: HashMap<GuardKey<'_>, usize> =
        guards.iter().enumerate().map(|(place, (key, _))| (*key, place)).collect();
    let wants = |rule: u32| {
        let places = of_rule(rule).filter_map(|(key, ..)| places.get(&key));
        places.fold(0u64, |bits, place| bits | 1 << place)
    };
    rules.always.wants = rules.always.rules.iter().map(|(_, rule)| wants(*rule)).collect();
    rules.beside_stream.wants = rules.beside_stream.rules.iter().map(|(_, rule)| wants(*rule)).collect();
    rules.guards = guards.into_iter().map(|(_, (_, guard))| guard).collect();
}

/// Whether guards may exclude the rule: not if missing data may still come with the other direction, and not
/// if the rule computes values that count even without a match.
fn can_be_guarded(signature: &Member) -> bool {
    let computes = |check: &ValueCheck| {
        check.program.items.iter().any(|item| matches!(item, Item::Custom(_) | Item::Base64 { .. }))
    };
    !signature.spans_directions && !signature.values.iter().any(computes)
}

/// The first literal of a check, if the check fails for every value without that literal.
fn guard_of<'s>(
    check: &'s ValueCheck,
    buffers: &Buffers,
    protocol: ProtocolId,
    direction: Direction,
) -> Option<(GuardKey<'s>, &'static BufferSpec, &'s Literal)> {
    let BufferRef::Tx(buffer) = check.buffer else { return None };
    let spec = buffers.tx(buffer)?.of(protocol)?;
    let Some(Item::Literal(literal)) = check.program.items.first() else { return None };
    let fails_without = spec.kind == BufferKind::Single
        && check_directions(check, spec)[direction]
        && check.transforms.is_empty()
        && check.absent == Absent::No
        && !literal.negated
        && !literal.fast_pattern_only
        && !literal.bytes.is_empty();
    fails_without.then_some(((buffer, literal.nocase, &literal.bytes[..]), spec, literal))
}
