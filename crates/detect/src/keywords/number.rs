// SPDX-License-Identifier: Apache-2.0
//! What numeric keywords share: a condition on one number of a packet or of a transaction.
//!
//! Not a keyword itself. The language of the numbers is [`bartizan_rules::UintMatch`].

pub(crate) use super::text::utf8 as text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::KeywordError;
use crate::model::condition::{Answer, PacketCondition, PrefilterKey, Scene, TxCondition};
use bartizan_applayer::protocols;
use bartizan_applayer::transaction::Transaction;
use bartizan_base::{Direction, PerDirection};
use bartizan_packet::PacketView;
use bartizan_rules::{Uint, UintMatch};

/// Reads a number of a packet; `None` when the packet has none, and then no condition on it holds.
pub(crate) type Read<T> = fn(&PacketView<'_>) -> Option<T>;

/// A condition on a number of the packet.
struct PacketNumber<T> {
    check: UintMatch<T>,
    read: Read<T>,
    key: Option<PrefilterKey>,
}

impl<T: Uint + Send + Sync> PacketCondition for PacketNumber<T> {
    fn matches(&self, scene: &Scene<'_>) -> bool {
        scene.packet.and_then(self.read).is_some_and(|value| self.check.matches(value))
    }

    fn prefilter(&self) -> Option<PrefilterKey> {
        self.key
    }

    fn needs_packet(&self) -> bool {
        true
    }
}

/// The argument without quotes around it, for keywords that take some ([`super::QUOTED`]).
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

/// Adds a condition on a number of the packet that is read already.
pub(crate) fn packet_check<T: Uint + Send + Sync + 'static>(
    builder: &mut SignatureBuilder<'_>,
    check: UintMatch<T>,
    read: Read<T>,
) {
    builder.packet.push(Box::new(PacketNumber { check, read, key: None }));
}

/// A decimal number and nothing else: what the older keywords of Suricata take.
pub(crate) fn plain<T: Uint>(argument: &[u8]) -> Result<T, KeywordError> {
    let digits = Some(argument).filter(|text| text.iter().all(u8::is_ascii_digit));
    let number = digits.and_then(|text| core::str::from_utf8(text).ok()?.parse().ok()).and_then(T::from_u64);
    number.ok_or_else(|| {
        KeywordError::argument(format!("`{}` is no decimal number up to {}", argument.escape_ascii(), T::MAX))
            .help("this keyword takes one number, no range, comparison or unit (as in Suricata)")
    })
}

/// Adds a condition that a number of the packet is this one: [`plain`].
pub(crate) fn packet_equals<T: Uint + Send + Sync + 'static>(
    builder: &mut SignatureBuilder<'_>,
    argument: &[u8],
    read: Read<T>,
) -> Result<(), KeywordError> {
    packet_check(builder, UintMatch::Equal(plain(argument)?), read);
    Ok(())
}

/// As [`packet_number`], found by a prefilter key when the condition is "equal to".
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

/// The answer of a condition that does not hold now and is asked in both directions: it can hold later while one of
/// them is open or was not yet looked at.
pub(crate) fn later(
    tx: &dyn Transaction,
    direction: Direction,
    complete: PerDirection<u8>,
    scene: &Scene<'_>,
) -> Answer {
    let other = direction.flip();
    let looked_at = tx.common().is_done(other, scene.function);
    if is_open(tx, direction, complete) || is_open(tx, other, complete) || !looked_at {
        Answer::NotYet
    } else {
        Answer::No
    }
}

/// A condition on a number that a transaction has, by its name.
pub(crate) struct TxNumber<T> {
    /// Name for [`Transaction::number`].
    pub name: &'static str,
    /// What must hold.
    pub check: UintMatch<T>,
    /// Progress of a finished transaction.
    pub complete: PerDirection<u8>,
}

impl<T: Uint + Send + Sync> TxCondition for TxNumber<T> {
    fn matches(&self, tx: &dyn Transaction, direction: Direction, scene: &Scene<'_>) -> Answer {
        let value = tx.number(self.name, direction).and_then(T::from_u64);
        let holds = value.is_some_and(|value| self.check.matches(value));
        if holds { Answer::Yes } else { later(tx, direction, self.complete, scene) }
    }
}

/// Adds a condition on a number of the transactions of a protocol; `names` are spellings of values.
pub(crate) fn tx_number<T: Uint + Send + Sync + 'static>(
    builder: &mut SignatureBuilder<'_>,
    protocol: &str,
    name: &'static str,
    argument: &[u8],
    directions: PerDirection<bool>,
    names: &[(&str, u64)],
) -> Result<(), KeywordError> {
    let names = names.iter().filter_map(|(name, value)| Some((*name, T::from_u64(*value)?)));
    let check = UintMatch::<T>::parse_or_name(argument, names)?;
    let complete = complete_of(protocol);
    builder.push_tx(protocol, name, directions, None, Box::new(TxNumber { name, check, complete }))
}

/// Progress of a finished transaction of a protocol.
pub(crate) fn complete_of(protocol: &str) -> PerDirection<u8> {
    protocols::by_name(protocol).map_or(PerDirection::new(u8::MAX, u8::MAX), |(_, spec)| spec.complete)
}
