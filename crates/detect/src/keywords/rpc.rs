// SPDX-License-Identifier: Apache-2.0
//! `rpc`: calls of Sun RPC (RFC 5531, section 9) by program, version and procedure. Source: Suricata 8's user
//! guide, "Payload Keywords".

use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{ConditionContext, PacketCondition};
use bartizan_packet::{PacketView, TransportLayer};

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "rpc",
    aliases: &[],
    summary: "The packet begins with a Sun RPC call to a program; `*`: any version, any procedure: `rpc:100000,2,3;`.",
    argument: Argument::Required,
    role: Role::Condition,
    syntax: "rpc:PROGRAM[,VERSION|*[,PROCEDURE|*]]",
    example: r#"alert udp any any -> any 111 (msg:"rpc"; rpc:100000,*,3; sid:1;)"#,
    note: "Over TCP the call follows the record mark. The RPC version is not checked, as in Suricata.",
    parse,
}];

/// Message type of a call.
const CALL: u32 = 0;
/// Bytes of a record mark (RFC 5531, section 11).
const MARK: usize = 4;

struct RpcCall {
    program: u32,
    version: Option<u32>,
    procedure: Option<u32>,
}

impl RpcCall {
    fn is(&self, packet: &PacketView<'_>) -> bool {
        let before = match packet.decoded().transport {
            TransportLayer::Tcp(_) => MARK,
            TransportLayer::Udp(_) => 0,
            _ => return false,
        };
        let message = packet.payload().get(before..).unwrap_or_default();
        // Identifier, message type, version of RPC, program, its version, procedure.
        let mut words = message.chunks_exact(4).map(|word| word.try_into().map_or(0, u32::from_be_bytes));
        let [_, Some(CALL), _, Some(program), Some(version), Some(procedure)] =
            core::array::from_fn(|_| words.next())
        else {
            return false;
        };
        program == self.program
            && self.version.is_none_or(|wanted| wanted == version)
            && self.procedure.is_none_or(|wanted| wanted == procedure)
    }
}

impl PacketCondition for RpcCall {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        scene.facts.packet.is_some_and(|packet| self.is(packet))
    }

    fn needs_packet(&self) -> bool {
        true
    }
}

fn parse(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let written =
        || KeywordError::argument("rpc is written `program[,version[,procedure]]`, numbers or `*` for any");
    let mut parts = argument.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let number = |text: &[u8]| -> Option<u32> {
        let digits = core::str::from_utf8(text).ok().filter(|t| t.bytes().all(|b| b.is_ascii_digit()))?;
        digits.parse().ok()
    };
    let mut call = RpcCall {
        program: parts.next().and_then(number).ok_or_else(written)?,
        version: None,
        procedure: None,
    };
    for place in [&mut call.version, &mut call.procedure] {
        *place = match parts.next() {
            None | Some(b"*") => None,
            Some(text) => Some(number(text).ok_or_else(written)?),
        };
    }
    if parts.next().is_some() {
        return Err(written());
    }
    builder.packet.push(Box::new(call));
    Ok(())
}
