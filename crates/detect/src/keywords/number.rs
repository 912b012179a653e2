// SPDX-License-Identifier: Apache-2.0
//! Shared by numeric keywords: a condition on one number of a packet or of a transaction.
//!
//! This is not a keyword itself. The language of the numbers is [`bartizan_rules::UintMatch`].

pub(crate) use super::text::utf8 as text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{KeywordError, RefusalCode};
use crate::model::condition::{Answer, ConditionContext, PacketCondition, PrefilterKey, TxCondition};
use bartizan_applayer::protocol::{NumberId, ProtocolId, ProtocolSpec};
use bartizan_applayer::protocols;
use bartizan_applayer::transaction::Transaction;
use bartizan_base::{Direction, PerDirection};
use bartizan_packet::PacketView;
use bartizan_rules::{Uint, UintMatch};

/// Reads a number of a packet. `None`: the packet has no such number, and no condition on it holds.
pub(crate) type Read<T> = fn(&PacketView<'_>) -> Option<T>;

/// A condition on a number of the packet.
struct PacketNumber<T> {
    check: UintMatch<T>,
    read: Read<T>,
    key: Option<PrefilterKey>,
}

impl<T: Uint + Send + Sync> PacketCondition for PacketNumber<T> {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        scene.facts.packet.and_then(self.read).is_some_and(|value| self.check.matches(value))
    }

    fn prefilter(&self) -> Option<PrefilterKey> {
        self.key
    }

    fn needs_packet(&self) -> bool {
        true
    }
}

/// The argument without its quotes, for keywords that accept quotes ([`super::QUOTED`]).
pub(crate) fn unquoted(argument: &[u8]) -> &[u8] {
    match argument {
        [b'"', inner @ .., b'"'] => inner.trim_ascii(),
        _ => argument,
    }
}

/// Adds a condition on a number of the packet.
pub(crate) fn packet_number<T: Uint + Send + Sync + 'static>(
    builder: &mut SignatureBuilder<'_>,
    argument: &[u8],
    read: Read<T>,
) -> Result<(), KeywordError> {
    let check = UintMatch::<T>::parse(argument)?;
    packet_check(builder, check, read);
    Ok(())
}

/// Adds a condition on a number of the packet, with a parsed comparison.
pub(crate) fn packet_check<T: Uint + Send + Sync + 'static>(
    builder: &mut SignatureBuilder<'_>,
    check: UintMatch<T>,
    read: Read<T>,
) {
    builder.packet.push(Box::new(PacketNumber { check, read, key: None }));
}

/// Parses a decimal number and nothing else, as Suricata's older keywords take it.
pub(crate) fn plain<T: Uint>(argument: &[u8]) -> Result<T, KeywordError> {
    let digits = Some(argument).filter(|text| text.iter().all(u8::is_ascii_digit));
    let number = digits.and_then(|text| core::str::from_utf8(text).ok()?.parse().ok()).and_then(T::from_u64);
    number.ok_or_else(|| {
        KeywordError::argument(format!(
            "`{}` is not a decimal number up to {}",
            argument.escape_ascii(),
            T::MAX
        ))
        .help("this keyword takes one number, no range, comparison or unit (as in Suricata)")
    })
}

/// Adds a condition that a number of the packet equals the argument, parsed by [`plain`].
pub(crate) fn packet_equals<T: Uint + Send + Sync + 'static>(
    builder: &mut SignatureBuilder<'_>,
    argument: &[u8],
    read: Read<T>,
) -> Result<(), KeywordError> {
    packet_check(builder, UintMatch::Equal(plain(argument)?), read);
    Ok(())
}

/// Does as [`packet_number`]; a prefilter key finds the rule when the condition is "equal to".
pub(crate) fn packet_number_keyed(
    builder: &mut SignatureBuilder<'_>,
    argument: &[u8],
    read: Read<u8>,
    key: fn(u8) -> PrefilterKey,
) -> Result<(), KeywordError> {
    let check = UintMatch::<u8>::parse(argument)?;
    let key = if let UintMatch::Equal(value) = check { Some(key(value)) } else { None };
    builder.packet.push(Box::new(PacketNumber { check, read, key }));
    Ok(())
}

/// Whether a direction of a transaction can still change.
pub(crate) fn is_open(tx: &dyn Transaction, direction: Direction, complete: PerDirection<u8>) -> bool {
    tx.progress(direction) < complete[direction] && !tx.common().ended[direction]
}

/// The answer of a condition that does not hold now and is evaluated in both directions: it can hold later
/// while a direction is open or not yet inspected.
pub(crate) fn later(
    tx: &dyn Transaction,
    direction: Direction,
    complete: PerDirection<u8>,
    scene: &ConditionContext<'_>,
) -> Answer {
    let other = direction.flip();
    let looked_at = tx.common().is_done(other, scene.function);
    if is_open(tx, direction, complete) || is_open(tx, other, complete) || !looked_at {
        Answer::NotYet
    } else {
        Answer::No
    }
}

/// A number of a protocol's transactions.
#[derive(Clone, Copy)]
pub(crate) struct NumberRef {
    /// The protocol.
    pub protocol: ProtocolId,
    /// The protocol's declaration.
    pub spec: &'static ProtocolSpec,
    /// The number, for [`Transaction::number`].
    pub id: NumberId,
}

impl NumberRef {
    /// Finds a number by its name.
    ///
    /// # Errors
    /// No parser of this build has it.
    pub(crate) fn named(name: &str) -> Result<Self, KeywordError> {
        let (protocol, spec, id) = protocols::by_number(name).ok_or_else(|| {
            KeywordError::new(
                RefusalCode::UnsupportedKeyword,
                format!("no parser for `{name}` in this build"),
            )
        })?;
        Ok(NumberRef { protocol, spec, id })
    }

    /// The number of a transaction; `None` if it does not fit into `T`.
    pub(crate) fn of<T: Uint>(&self, tx: &dyn Transaction, direction: Direction) -> Option<T> {
        tx.number(self.id, direction).and_then(T::from_u64)
    }

    /// The answer of a condition on this number that does not hold now.
    pub(crate) fn later(
        &self,
        tx: &dyn Transaction,
        direction: Direction,
        scene: &ConditionContext<'_>,
    ) -> Answer {
        // The protocol that carries this one may count otherwise.
        let current = scene.facts.flow.and_then(|flow| flow.app.current()).and_then(protocols::spec);
        later(tx, direction, current.unwrap_or(self.spec).complete, scene)
    }
}

/// A condition on a number of a transaction.
pub(crate) struct TxNumber<T> {
    /// The number.
    pub number: NumberRef,
    /// The comparison.
    pub check: UintMatch<T>,
}

impl<T: Uint + Send + Sync> TxCondition for TxNumber<T> {
    fn matches(&self, tx: &dyn Transaction, direction: Direction, scene: &ConditionContext<'_>) -> Answer {
        let value = self.number.of::<T>(tx, direction);
        let holds = value.is_some_and(|value| self.check.matches(value));
        if holds { Answer::Yes } else { self.number.later(tx, direction, scene) }
    }
}

/// Adds a condition on the number of this name; `names` are spellings of values.
pub(crate) fn tx_number<T: Uint + Send + Sync + 'static>(
    builder: &mut SignatureBuilder<'_>,
    name: &str,
    argument: &[u8],
    directions: PerDirection<bool>,
    names: &[(&str, u64)],
) -> Result<(), KeywordError> {
    let names = names.iter().filter_map(|(name, value)| Some((*name, T::from_u64(*value)?)));
    let check = UintMatch::<T>::parse_or_name(argument, names)?;
    let number = NumberRef::named(name)?;
    let own = (number.protocol, number.spec);
    let carriers = protocols::called(number.spec.name).filter(|(_, spec)| spec.carries_all_of(own.1));
    let protocols = core::iter::once(own).chain(carriers).map(|(id, _)| id).collect();
    builder.push_tx_among(protocols, name, directions, None, Box::new(TxNumber { number, check }))
}
