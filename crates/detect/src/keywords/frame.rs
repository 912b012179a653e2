// SPDX-License-Identifier: Apache-2.0
//! `frame`: the following keywords inspect protocol frames, pieces of a stream or datagram that a parser has
//! named ([`bartizan_applayer::frames`]). Source: Suricata 8's guide for developers, "Application Layer Frame
//! Support".

use super::number::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::compile::protocol;
use bartizan_applayer::protocols;
use bartizan_rules::suggest;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "frame",
    aliases: &[],
    summary: "The next conditions inspect protocol frames of a kind: `frame:http1.request;`, or `frame:request;` in a rule on that protocol.",
    argument: Argument::Required,
    role: Role::Buffer,
    syntax: "frame:[PROTOCOL.]KIND",
    example: r#"alert http1 any any -> any any (msg:"frame"; frame:request; content:"GET"; startswith; sid:1;)"#,
    note: "Kinds are `stream`, `request`, `response` of `http1`; `stream`, `pdu`, `hdr`, `data`, `alert`, `heartbeat`, `ssl2.hdr`, \
           `ssl2.pdu` of `tls`; `stream`, `pdu` of `dns`. A rule matches a frame once. Rules see the latest bytes of a frame longer than 64 KiB. A match never spans missing bytes.",
    parse: frame,
}];

fn frame(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let written = text(argument)?;
    // `ssl2.pdu` contains a dot, so the protocol's name is tried first.
    let named = written.split_once('.').and_then(|(protocol, kind)| {
        // A family has no frames of its own, since its members differ.
        let (id, _) = protocols::by_name(protocol).filter(|_| !protocols::is_family(protocol))?;
        Some((id, kind))
    });
    let (id, kind) = match (named, crate::compile::hook::single(builder)) {
        (Some(named), _) => named,
        (None, Some(id)) => (id, written),
        (None, None) => {
            let named = written.split_once('.').map(|(name, _)| name);
            if let Some(name) = named.filter(|name| !protocols::is_family(name) && protocol::is_known(name)) {
                return Err(protocol::unsupported(name));
            }
            return Err(KeywordError::argument(format!("no protocol names frames `{written}`"))
                .help("write the protocol before the kind: `frame:http1.request`"));
        }
    };
    let spec = protocols::spec(id).ok_or_else(|| KeywordError::argument("unknown protocol"))?;
    let Some(buffer) = builder.environment.buffers.find_frame(id, kind) else {
        let error = KeywordError::argument(format!("`{}` has no frames `{kind}`", spec.name));
        return Err(match suggest(kind, spec.frames.iter().copied()) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None => error,
        });
    };
    builder.narrow_app(&[id], "frame")?;
    builder.sticky_frame(buffer)
}
