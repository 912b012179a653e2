// SPDX-License-Identifier: Apache-2.0
//! `tcp.session`: the phase of a TCP connection. Source: Suricata 8.0.8's keyword list, and its results for
//! connections of all kinds.

use super::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{ConditionContext, PacketCondition};
use bartizan_flow::tcp::TcpState;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "tcp.session",
    aliases: &[],
    summary: "The phase of the TCP connection is one of these: `tcp.session:established,closing;`.",
    argument: Argument::Required,
    role: Role::Condition,
    syntax: "tcp.session:setup|established|closing[,...]",
    example: r#"alert tcp any any -> any any (msg:"tcp.session"; tcp.session:setup; sid:1;)"#,
    note: "`setup`: until the handshake is complete, including the packet that completes it. `established`: all later packets. `closing`: from the first FIN until both sides have closed; such packets are `established` as well.",
    parse,
}];

/// IP protocol number.
const TCP: u8 = 6;

/// Phases, any of which may hold.
struct TcpSessionCondition {
    setup: bool,
    established: bool,
    closing: bool,
}

impl PacketCondition for TcpSessionCondition {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        let Some(flow) = scene.facts.flow.filter(|flow| flow.tcp.is_some()) else { return false };
        let state = flow.tcp.map_or(TcpState::None, |session| session.state());
        let closing = matches!(
            state,
            TcpState::FinWait1
                | TcpState::FinWait2
                | TcpState::TimeWait
                | TcpState::LastAck
                | TcpState::CloseWait
                | TcpState::Closing
        );
        self.setup && !flow.established || self.established && flow.established || self.closing && closing
    }

    fn needs_packet(&self) -> bool {
        true
    }

    fn needs_real_packet(&self) -> bool {
        false
    }

    fn needs_flow(&self) -> bool {
        true
    }
}

fn parse(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let protocols = &builder.protocol.ip;
    if !protocols.is_empty() && !protocols.contains(&TCP) {
        return Err(KeywordError::context("`tcp.session` needs a rule on TCP"));
    }
    let mut session = TcpSessionCondition { setup: false, established: false, closing: false };
    for phase in text::items(argument)? {
        let place = match phase {
            "setup" => &mut session.setup,
            "established" => &mut session.established,
            "closing" => &mut session.closing,
            other => {
                return Err(KeywordError::argument(format!("unknown phase `{other}` of a connection"))
                    .help("setup, established or closing"));
            }
        };
        *place = true;
    }
    builder.packet.push(Box::new(session));
    Ok(())
}
