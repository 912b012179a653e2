// SPDX-License-Identifier: Apache-2.0
//! `app-layer-protocol`: what protocol detection found, by direction or for the flow.

use super::number::{text, unquoted};
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, RefusalCode, Role};
use crate::compile::protocol;
use crate::model::condition::{PacketCondition, Scene};
use bartizan_applayer::flow::Known;
use bartizan_applayer::protocol::ProtocolId;
use bartizan_base::Direction;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "app-layer-protocol",
    aliases: &[],
    summary: "The detected application protocol, `unknown` or `failed`; behind a comma which one is meant: `direction` (that of \
              the packet), `final`, `original`, `either`, `to_server`, `to_client`.",
    argument: Argument::Required,
    role: Role::Condition,
    syntax: "app-layer-protocol:[!]PROTOCOL[,final|original|either|direction|to_server|to_client]",
    example: r#"alert tcp any any -> any any (msg:"app-layer-protocol"; app-layer-protocol:!http,final; sid:1;)"#,
    note: "A protocol without a parser in this build is never found.",
    parse: app_layer_protocol,
}];

/// Which of a flow's protocols is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    OfPacket,
    Final,
    Original,
    Either,
    Of(Direction),
}

/// What was found, as far as this keyword can tell apart.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Failed,
    /// Not known yet.
    Unknown,
    /// One of these: `http` covers both versions. Empty when no parser of this build knows the protocol: it is then
    /// never found.
    Protocols(Vec<ProtocolId>),
}

struct OnProtocol {
    wanted: Wanted,
    negated: bool,
    mode: Mode,
}

impl OnProtocol {
    fn is(&self, known: Known) -> bool {
        match (&self.wanted, known) {
            (Wanted::Failed, known) => known == Known::Failed,
            (Wanted::Unknown, known) => known == Known::Pending,
            (Wanted::Protocols(list), Known::Protocol(id)) => list.contains(&id),
            (Wanted::Protocols(_), _) => false,
        }
    }
}

impl OnProtocol {
    /// What was found in one direction, given what is known of the flow: what one cannot tell any more the other one may, so for `unknown` nothing
    /// is known yet.
    fn counts_as(&self, found: Known, of_flow: Known) -> Known {
        match found {
            Known::Failed if self.wanted == Wanted::Unknown && of_flow == Known::Pending => Known::Pending,
            found => found,
        }
    }
}

impl PacketCondition for OnProtocol {
    fn matches(&self, scene: &Scene<'_>) -> bool {
        let Some(flow) = scene.flow else { return false };
        let (known, by_direction, original) = (flow.app.protocol, flow.app.by_direction, flow.app.original);
        let of = |direction: Direction| self.counts_as(by_direction[direction], known);
        let found = match self.mode {
            Mode::OfPacket => self.is(of(scene.direction)),
            Mode::Of(direction) => self.is(of(direction)),
            Mode::Final => self.is(known),
            Mode::Original => original.is_some_and(|id| self.is(Known::Protocol(id))),
            Mode::Either => Direction::BOTH.into_iter().any(|d| self.is(of(d))),
        };
        // Of a direction that is not looked at yet nothing can be said; Suricata does not match there either.
        let open = match self.mode {
            Mode::OfPacket => by_direction[scene.direction] == Known::Pending,
            Mode::Of(direction) => by_direction[direction] == Known::Pending,
            _ => false,
        };
        if open && self.wanted != Wanted::Unknown {
            return false;
        }
        // A protocol that is not known yet is not the one that is asked for: negated, the condition holds.
        found != self.negated
    }

    fn needs_flow(&self) -> bool {
        true
    }

    fn is_detection(&self) -> bool {
        true
    }
}

fn app_layer_protocol(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    if !builder.protocol.app.is_empty() {
        return Err(KeywordError::context("the rule is about one application protocol already")
            .help("write `tcp`, `udp` or `ip` as its protocol, or leave `app-layer-protocol` out"));
    }
    let (negated, argument) = match argument {
        [b'!', rest @ ..] => (true, rest.trim_ascii_start()),
        _ => (false, argument),
    };
    let argument = text(unquoted(argument))?;
    let (name, mode) = match argument.split_once(',') {
        Some((name, mode)) => (name, mode_of(mode)?),
        None => (argument, Mode::OfPacket),
    };
    let wanted = if name == "failed" {
        Wanted::Failed
    } else if name == "unknown" {
        Wanted::Unknown
    } else if protocol::is_known(name) {
        Wanted::Protocols(protocol::parse(name).map(|p| p.app).unwrap_or_default())
    } else {
        return Err(KeywordError::argument(format!("unknown protocol `{name}`")));
    };
    if matches!(&wanted, Wanted::Protocols(list) if list.is_empty()) && !negated {
        return Err(KeywordError::new(
            RefusalCode::UnsupportedKeyword,
            format!("no parser for the protocol `{name}` in this build"),
        ));
    }
    let (positive, negative) = marks(mode);
    // For each mode one positive or several negated ones.
    if builder.seen.contains(&positive) || !negated && builder.seen.contains(&negative) {
        return Err(KeywordError::context(
            "`app-layer-protocol` can stand several times only if each is negated",
        ));
    }
    builder.seen.push(if negated { negative } else { positive });
    builder.packet.push(Box::new(OnProtocol { wanted, negated, mode }));
    Ok(())
}

fn mode_of(name: &str) -> Result<Mode, KeywordError> {
    Ok(match name.trim() {
        "direction" => Mode::OfPacket,
        "final" => Mode::Final,
        "original" => Mode::Original,
        "either" => Mode::Either,
        "to_server" => Mode::Of(Direction::ToServer),
        "to_client" => Mode::Of(Direction::ToClient),
        other => {
            return Err(KeywordError::argument(format!("no mode `{other}`"))
                .help("use direction, final, original, either, to_server or to_client"));
        }
    })
}

/// Marks among the keywords seen, for a positive and for a negated condition.
const fn marks(mode: Mode) -> (&'static str, &'static str) {
    match mode {
        Mode::OfPacket => ("+direction", "!direction"),
        Mode::Final => ("+final", "!final"),
        Mode::Original => ("+original", "!original"),
        Mode::Either => ("+either", "!either"),
        Mode::Of(Direction::ToServer) => ("+to_server", "!to_server"),
        Mode::Of(Direction::ToClient) => ("+to_client", "!to_client"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keywords::testing::{build, refused, refused_all};

    #[test]
    fn what_holds() {
        let http = Known::Protocol(ProtocolId(1));
        let on = |wanted| OnProtocol { wanted, negated: false, mode: Mode::OfPacket };
        assert!(on(Wanted::Protocols(vec![ProtocolId(0), ProtocolId(1)])).is(http));
        assert!(!on(Wanted::Protocols(vec![ProtocolId(0)])).is(http));
        assert!(on(Wanted::Failed).is(Known::Failed) && !on(Wanted::Failed).is(Known::Pending));
        let unknown = on(Wanted::Unknown);
        assert!(unknown.is(unknown.counts_as(Known::Failed, Known::Pending)));
        assert!(!unknown.is(unknown.counts_as(Known::Failed, Known::Failed)));
        assert!(!unknown.is(unknown.counts_as(http, http)));
        // A direction that is closed has failed, whatever the other one may say (`app-layer.hold`).
        assert_eq!(on(Wanted::Failed).counts_as(Known::Failed, Known::Pending), Known::Failed);
    }

    #[test]
    fn what_is_refused() {
        assert_eq!(refused("app-layer-protocol", "nonsense"), Some(RefusalCode::BadArgument));
        assert_eq!(refused("app-layer-protocol", "failed,never"), Some(RefusalCode::BadArgument));
        assert_eq!(refused("app-layer-protocol", "modbus"), Some(RefusalCode::UnsupportedKeyword));
        let twice = |a, b| refused_all(&[("app-layer-protocol", a), ("app-layer-protocol", b)]);
        assert_eq!(twice("failed", "!failed"), Some(RefusalCode::BadContext));
        assert_eq!(twice("!failed", "failed"), Some(RefusalCode::BadContext));
        assert_eq!(twice("failed", "failed"), Some(RefusalCode::BadContext));
        assert_eq!(twice("!failed", "!modbus"), None);
        assert_eq!(twice("failed,final", "!modbus,original"), None);
        assert!(build("tcp", &[("app-layer-protocol", "!failed")]).unwrap().packet[0].is_detection());
    }
}
