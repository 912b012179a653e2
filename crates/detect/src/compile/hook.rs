// SPDX-License-Identifier: Apache-2.0
//! Hooks: the state at which a rule is evaluated (`tls:client_hello_done`, `tcp:flow_start`). Source:
//! Suricata 8's user guide, "Explicit rule hook (states)".
//!
//! A rule with a hook and no other condition matches at each inspection of a transaction between the state of
//! the previous inspection and the present one. So the rule reports a state that was passed within one
//! packet, and reports again while the transaction stays in the state. A rule with further conditions matches
//! once.

use crate::compile::builder::SignatureBuilder;
use crate::compile::refusal::KeywordError;
use crate::model::buffers::{BufferRef, Buffers};
use crate::model::condition::{Answer, ConditionContext, PacketCondition, TxCondition};
pub use crate::model::hook::{Hook, all};
pub(crate) use crate::model::hook::{find, find_own, names, progress};
use crate::model::signature::{FlowNeeds, Signature, TxCheck};
use bartizan_applayer::protocol::ProtocolId;
use bartizan_applayer::protocols;
use bartizan_applayer::transaction::Transaction;
use bartizan_base::{Direction, PerDirection};
use bartizan_rules::suggest;

/// Hooks of packets, for protocols below the application layer.
const OF_PACKETS: [&str; 4] = ["flow_start", "pre_flow", "pre_stream", "all"];

/// Matches the first packet of its direction.
struct FlowStart;

impl PacketCondition for FlowStart {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        scene.facts.flow.is_some_and(|flow| flow.packets[scene.facts.direction] == 1)
    }

    fn needs_packet(&self) -> bool {
        true
    }

    fn needs_flow(&self) -> bool {
        true
    }
}

/// Matches each packet. `bound`: the rule inspects the packet and not the stream.
struct EachPacket {
    bound: bool,
}

impl PacketCondition for EachPacket {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        scene.facts.packet.is_some()
    }

    fn needs_packet(&self) -> bool {
        self.bound
    }

    fn needs_real_packet(&self) -> bool {
        true
    }
}

/// Matches while a transaction is at a state; see the module.
struct AtState {
    hook: Hook,
    /// The rule has no other condition on the transaction.
    alone: bool,
}

impl TxCondition for AtState {
    fn matches(&self, tx: &dyn Transaction, _direction: Direction, _scene: &ConditionContext<'_>) -> Answer {
        let Hook { direction, state, .. } = self.hook;
        let left = tx.common().inspected[direction] > state;
        if progress(tx, direction) < state { Answer::NotYet } else { Answer::from(!(self.alone && left)) }
    }
}

/// Parses the hook after the protocol's name in a rule's head.
///
/// # Errors
/// The protocol has no such state.
pub fn apply(builder: &mut SignatureBuilder<'_>, protocol: &str, hook: &str) -> Result<(), KeywordError> {
    if builder.protocol.app.is_empty() {
        return apply_to_packets(builder, protocol, hook);
    }
    let id = single(builder).ok_or_else(|| unknown(protocol, hook, &[]))?;
    let found = protocols::spec(id).and_then(|spec| find(id, spec, hook));
    let hook = found.ok_or_else(|| {
        let names = protocols::spec(id).map(names).unwrap_or_default();
        unknown(protocol, hook, &names)
    })?;
    // A state is one of this protocol, not of those that carry it.
    builder.narrow_app(&[id], "hook")?;
    set(builder, hook)
}

fn apply_to_packets(
    builder: &mut SignatureBuilder<'_>,
    protocol: &str,
    hook: &str,
) -> Result<(), KeywordError> {
    match hook {
        "flow_start" => builder.packet.push(Box::new(FlowStart)),
        "pre_flow" | "pre_stream" => builder.packet.push(Box::new(EachPacket { bound: true })),
        // Contents of such a rule are searched as without the hook, so also in the stream.
        "all" => builder.packet.push(Box::new(EachPacket { bound: false })),
        _ => return Err(unknown(protocol, hook, &OF_PACKETS)),
    }
    Ok(())
}

/// The one protocol of a rule, beside those that carry it; `http` stands for two protocols with different
/// states.
pub(crate) fn single(builder: &SignatureBuilder<'_>) -> Option<ProtocolId> {
    let ([one, others @ ..], false) = (builder.protocol.app.as_slice(), builder.protocol.ambiguous) else {
        return None;
    };
    let name = protocols::spec(*one)?.name;
    let carries = |id: &ProtocolId| {
        protocols::spec(*id).and_then(|spec| spec.carries).is_some_and(|carried| carried.contains(&name))
    };
    others.iter().all(carries).then_some(*one)
}

/// Ties a rule to a state.
///
/// # Errors
/// The rule has another hook, or concerns the other direction.
pub(crate) fn set(builder: &mut SignatureBuilder<'_>, hook: Hook) -> Result<(), KeywordError> {
    if builder.hook.is_some_and(|known| known != hook) {
        return Err(KeywordError::context("the rule already has a hook to another state"));
    }
    narrow(builder, hook.direction)?;
    builder.hook = Some(hook);
    Ok(())
}

/// Limits the rule to the direction of its state.
pub(crate) fn narrow(builder: &mut SignatureBuilder<'_>, direction: Direction) -> Result<(), KeywordError> {
    let (this, other) = match direction {
        Direction::ToServer => (FlowNeeds::TO_SERVER, FlowNeeds::TO_CLIENT),
        Direction::ToClient => (FlowNeeds::TO_CLIENT, FlowNeeds::TO_SERVER),
    };
    if builder.flow.contains(other) {
        return Err(KeywordError::context("`flow` has the other direction than the state of the hook"));
    }
    builder.flow |= this;
    Ok(())
}

/// Makes the rule's hook, if it has one, the first of its conditions on transactions; in firewall rules the
/// firewall itself checks the state. Call this when all keywords are parsed.
///
/// # Errors
/// The rule inspects something that belongs to another state.
pub(crate) fn finish(
    hook: Option<Hook>,
    buffers: &Buffers,
    signature: &mut Signature,
    firewall: bool,
) -> Result<(), KeywordError> {
    let Some(hook) = hook else { return Ok(()) };
    let Some(spec) = protocols::spec(hook.protocol) else { return Ok(()) };
    for value in &signature.values {
        let BufferRef::Tx(index) = value.buffer else { continue };
        let Some(of) = buffers.tx(index).and_then(|b| b.of(hook.protocol)) else { continue };
        if of.state != hook.state || !of.directions[hook.direction] {
            let state = |d: Direction| spec.states[d].get(usize::from(of.state)).copied();
            let fits: Vec<_> =
                Direction::BOTH.into_iter().filter(|d| of.directions[*d]).filter_map(state).collect();
            return Err(KeywordError::context(format!(
                "`{}` belongs to another state than the hook",
                of.name
            ))
            .help(format!("hook the rule to {}", fits.join(" or "))));
        }
    }
    if firewall {
        return Ok(());
    }
    let alone = signature.values.is_empty() && signature.tx.is_empty();
    signature.repeats = alone;
    let mut directions = PerDirection::default();
    directions[hook.direction] = true;
    signature.tx.insert(
        0,
        TxCheck {
            protocols: vec![hook.protocol],
            directions,
            state: None,
            condition: Box::new(AtState { hook, alone }),
        },
    );
    Ok(())
}

/// A hook of the first protocol of a family: the state after `request_started`, which every protocol has.
fn own_hook(family: &str) -> String {
    let Some((_, spec)) = protocols::called(family).next() else { return String::new() };
    format!("{}:{}", spec.exact_name, spec.states.to_server.get(1).unwrap_or(&""))
}

fn unknown(protocol: &str, hook: &str, names: &[&str]) -> KeywordError {
    let error = KeywordError::argument(format!("`{protocol}` has no hook `{hook}`"));
    match suggest(hook, names.iter().copied()) {
        Some(near) => error.help(format!("did you mean `{protocol}:{near}`?")),
        None if protocols::is_family(protocol) => {
            error.help(format!("name one version: `{}`", own_hook(protocol)))
        }
        None if names.is_empty() => error.help("leave out the part after the colon"),
        None => error.help(format!("its hooks are {}", names.join(", "))),
    }
}
