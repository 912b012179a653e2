// SPDX-License-Identifier: Apache-2.0
//! Refuses rules with parts that exclude each other, as Suricata does. Such rules would inspect other data
//! than their author means, or none.

use crate::compile::keyword::KeywordError;
use crate::model::buffers::{BufferRef, Buffers};
use crate::model::content::{Item, Number};
use crate::model::signature::{FlowNeeds, Signature, ValueCheck};
use bartizan_base::Direction;
use bartizan_rules::RuleDirection;

/// Both directions that `flow` can name.
const DIRECTED: FlowNeeds = FlowNeeds::TO_SERVER.union(FlowNeeds::TO_CLIENT);

/// Checks a rule before its direction is derived from its buffers.
///
/// # Errors
/// The rule combines conditions on one packet with conditions on transactions or on the stream only, or has
/// `http.header.raw` without a direction.
pub(crate) fn check(signature: &Signature, buffers: &Buffers) -> Result<(), KeywordError> {
    let of_packet = signature.protocol.packet_only
        || signature.flow.contains(FlowNeeds::NO_STREAM)
        || signature.packet.iter().any(|c| c.needs_packet())
        || signature.values.iter().any(|v| v.buffer.is_of_one_packet());
    if of_packet && signature.inspects_tx() {
        return Err(KeywordError::context(
            "the rule has conditions on one packet (`dsize`, `flags`, `ttl`, ...) and on a transaction, which has many packets",
        )
        .help("split it into two rules; `flowbits` can join them"));
    }
    if of_packet && (signature.protocol.stream_only || signature.flow.contains(FlowNeeds::ONLY_STREAM)) {
        return Err(KeywordError::context(
            "the rule has conditions on one packet (`dsize`, `flags`, `ttl`, ...) and inspects the stream only",
        )
        .help("leave out `only_stream`, or write `tcp` or `tcp-pkt` instead of `tcp-stream`"));
    }
    fits(signature)?;
    // Suricata applies this check to the buffer without transforms only.
    let raw = |v: &ValueCheck| v.transforms.is_empty() && buffers.name(v.buffer) == "http.header.raw";
    if !signature.flow.intersects(DIRECTED) && signature.values.iter().any(raw) {
        return Err(KeywordError::context(
            "`http.header.raw` needs a direction: requests and responses have it",
        )
        .help("add `flow:to_server` or `flow:to_client`"));
    }
    Ok(())
}

/// Checks that `dsize` leaves room for the contents on the payload: the first content with its offset, and
/// the contents relative to the one before, as Suricata counts them.
fn fits(signature: &Signature) -> Result<(), KeywordError> {
    let Some(most) = signature.packet.iter().filter_map(|c| c.room_for_contents()).min() else {
        return Ok(());
    };
    let payload =
        signature.values.iter().filter(|v| v.buffer == BufferRef::Payload && v.transforms.is_empty());
    let items = payload.flat_map(|v| &v.program.items);
    let literals = items.filter_map(|item| match item {
        Item::Literal(literal) => Some(literal),
        _ => None,
    });
    let fixed = |number: Option<Number>| match number {
        Some(Number::Constant(number)) => number,
        _ => 0,
    };
    let (mut length, mut offset) = (0i64, 0i64);
    for (index, literal) in literals.enumerate() {
        if index > 0 && (literal.negated || !literal.is_relative()) {
            continue;
        }
        let bytes = i64::try_from(literal.bytes.len()).unwrap_or(i64::MAX);
        length = length.saturating_add(fixed(literal.place.distance)).saturating_add(bytes);
        offset = offset.max(fixed(literal.place.offset));
    }
    let needed = length.saturating_add(offset);
    if needed <= most {
        return Ok(());
    }
    Err(KeywordError::context(format!(
        "the contents need {needed} bytes of payload, and `dsize` allows at most {most}: the rule can never match"
    ))
    .help("make `dsize` larger, or write a shorter content"))
}

/// Checks a rule whose direction is known.
///
/// # Errors
/// The rule inspects something that only the other direction of a transaction has.
pub(crate) fn check_direction(
    signature: &Signature,
    arrow: RuleDirection,
    has_all: impl Fn(Direction) -> bool,
) -> Result<(), KeywordError> {
    if arrow == RuleDirection::Transaction {
        return Ok(());
    }
    if signature.spans_directions {
        return Err(KeywordError::context(
            "the rule has conditions on requests and on responses, and no packet contains both",
        )
        .help("write `=>` instead of `->` for a rule on whole transactions"));
    }
    let other = if signature.flow.contains(FlowNeeds::TO_SERVER) {
        (Direction::ToServer, "to_server")
    } else if signature.flow.contains(FlowNeeds::TO_CLIENT) {
        (Direction::ToClient, "to_client")
    } else {
        return Ok(());
    };
    if has_all(other.0) {
        return Ok(());
    }
    Err(KeywordError::context(format!(
        "the rule has `flow:{}` and a condition on the other direction",
        other.1
    )))
}
