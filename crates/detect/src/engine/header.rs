// SPDX-License-Identifier: Apache-2.0
//! The head of a rule: protocol, addresses, ports, and `flow:`.

use crate::model::condition::ConditionContext;
pub use crate::model::ends::{Ends, ports};
use crate::model::heads::Heads;
use crate::model::signature::{Family, FlowNeeds, Member, ProtocolMatch};
use bartizan_base::Direction;
use bartizan_packet::PacketFlags;

/// Whether protocol and flow conditions of a rule hold; [`ends_hold`] answers for addresses and ports.
#[must_use]
pub(crate) fn flow_and_protocol_hold(signature: &Member, scene: &ConditionContext<'_>) -> bool {
    // As in Suricata, a packet that is no IP is evaluated against rules on decoding alone; a packet with
    // broken IP, also against rules on addresses alone.
    let is_ip = scene.facts.packet.is_none_or(|packet| {
        let decoded = packet.decoded();
        decoded.src().is_some() || signature.is_ip_only() && matches!(decoded.ether_type, 0x0800 | 0x86dd)
    });
    (is_ip || signature.firewall.is_some() || signature.is_about_decoding())
        && protocol_holds(&signature.protocol, scene)
        && flow_holds(signature.flow, scene)
}

/// Whether packets of a flow in a direction can match the head of a rule, for any payload and any later
/// result of protocol detection and handshake.
#[must_use]
pub fn can_hold(
    signature: &Member,
    heads: &Heads,
    flow: &bartizan_function::view::FlowView<'_>,
    direction: Direction,
) -> bool {
    let protocol = &signature.protocol;
    let turned = match direction {
        Direction::ToServer => FlowNeeds::TO_CLIENT,
        Direction::ToClient => FlowNeeds::TO_SERVER,
    };
    family_holds(protocol.family, flow)
        && (protocol.ip.is_empty() || protocol.ip.contains(&flow.protocol))
        && !signature.flow.contains(turned)
        && heads
            .get(flow.tenant, signature.head)
            .is_some_and(|head| head.holds(Ends::of_flow(flow, direction)))
}

/// Whether a flow's addresses have the IP version of a rule.
fn family_holds(family: Family, flow: &bartizan_function::view::FlowView<'_>) -> bool {
    match family {
        Family::Any => true,
        Family::V4 => flow.client.0.is_ipv4(),
        Family::V6 => flow.client.0.is_ipv6(),
    }
}

pub(crate) fn protocol_holds(protocol: &ProtocolMatch, scene: &ConditionContext<'_>) -> bool {
    if let Some(packet) = scene.facts.packet {
        let decoded = packet.decoded();
        let family = match protocol.family {
            Family::Any => true,
            Family::V4 => decoded.ipv4().is_some(),
            Family::V6 => decoded.ipv6().is_some(),
        };
        if !family {
            return false;
        }
        if !protocol.ip.is_empty() && !decoded.proto().is_some_and(|p| protocol.ip.contains(&p)) {
            return false;
        }
    } else if let Some(flow) = scene.facts.flow
        && (!family_holds(protocol.family, flow)
            || !protocol.ip.is_empty() && !protocol.ip.contains(&flow.protocol))
    {
        return false;
    }
    if protocol.app.is_empty() {
        return true;
    }
    scene.facts.flow.and_then(|f| f.app.current()).is_some_and(|p| protocol.app.contains(&p))
}

pub(crate) fn flow_holds(needs: FlowNeeds, scene: &ConditionContext<'_>) -> bool {
    if needs.is_empty() {
        return true;
    }
    let fragment = scene.facts.packet.is_some_and(|p| p.decoded().flags.contains(PacketFlags::REBUILT));
    if needs.contains(FlowNeeds::ONLY_FRAGMENT) && !fragment
        || needs.contains(FlowNeeds::NO_FRAGMENT) && fragment
    {
        return false;
    }
    // As in Suricata, a packet without a flow counts as the client's if `flow:` names only the direction. No
    // other option of `flow:`, `stateless` and `no_frag` included, holds for such a packet.
    let Some(flow) = scene.facts.flow else { return needs == FlowNeeds::TO_SERVER };
    if needs.contains(FlowNeeds::TO_SERVER) && scene.facts.direction != Direction::ToServer
        || needs.contains(FlowNeeds::TO_CLIENT) && scene.facts.direction != Direction::ToClient
    {
        return false;
    }
    if needs.contains(FlowNeeds::ESTABLISHED) && !flow.established
        || needs.contains(FlowNeeds::NOT_ESTABLISHED) && flow.established
    {
        return false;
    }
    true
}

/// Whether addresses and ports of a rule's head hold.
pub(crate) fn ends_hold(signature: &Member, heads: &Heads, scene: &ConditionContext<'_>) -> bool {
    heads.get(scene.tenant, signature.head).is_some_and(|head| head.is_any() || head.holds(Ends::of(scene)))
}
