// SPDX-License-Identifier: Apache-2.0
//! `app-layer-protocol`: the result of protocol detection, by direction or for the flow.

use super::number::{text, unquoted};
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::compile::protocol;
use crate::model::condition::{ConditionContext, PacketCondition};
use crate::model::detection::{DetectedIn, DetectionQuery};
use bartizan_applayer::protocols;
use bartizan_base::Direction;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "app-layer-protocol",
    aliases: &[],
    summary: "The detected application protocol, one of several, `unknown` or `failed`; a word after a comma chooses one: \
              `direction` (that of the packet), `final`, `original`, `either`, `to_server`, `to_client`; and `exact`.",
    argument: Argument::Required,
    role: Role::Condition,
    syntax: "app-layer-protocol:[!]PROTOCOL[|PROTOCOL...][,final|original|either|direction|to_server|to_client][,exact]",
    example: r#"alert tcp any any -> any any (msg:"app-layer-protocol"; app-layer-protocol:!http,final; sid:1;)"#,
    note: "A negated list does not match while the protocol is unknown. A rule with a protocol without a parser in this build is left out, also if the protocol is negated. `exact` excludes the other protocols that a name covers; `http` covers versions and cannot be `exact`. A rule without other conditions is evaluated on the packet that ends protocol detection of a direction and on the next packet of that direction; over UDP, and after detection was given up, on the next packet of either direction.",
    parse: app_layer_protocol,
}];

struct OnProtocol(DetectionQuery);

impl PacketCondition for OnProtocol {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        scene.facts.flow.is_some_and(|flow| self.0.holds(&flow.app, scene.facts.direction))
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
        return Err(KeywordError::context("the rule is already about one application protocol")
            .help("write `tcp`, `udp` or `ip` as its protocol, or remove `app-layer-protocol`"));
    }
    let (negated, argument) = match argument {
        [b'!', rest @ ..] => (true, rest.trim_ascii_start()),
        _ => (false, argument),
    };
    let argument = text(unquoted(argument))?;
    let (names, qualifiers) = argument.split_once(',').unwrap_or((argument, ""));
    let (of, exact) = qualifiers_of(qualifiers)?;
    let mut query = DetectionQuery { of, negated, ..DetectionQuery::default() };
    for name in names.split('|') {
        match name {
            "" => return Err(KeywordError::argument("a protocol is missing")),
            "failed" => query.failed = true,
            "unknown" if negated => {
                return Err(KeywordError::argument(
                    "`unknown` cannot be negated: the condition never matches while the protocol is unknown",
                ));
            }
            "unknown" => query.unknown = true,
            family if exact && protocols::is_family(family) => {
                return Err(KeywordError::argument(format!(
                    "`{family}` covers several versions and is not exactly one protocol"
                ))
                .help(format!("write `{}`, or remove `exact`", protocol::exact_name(family))));
            }
            name => query.protocols.extend(protocol::app(name)?),
        }
    }
    if builder.detection.iter().any(|other| query.contradicts(other)) {
        return Err(KeywordError::context(
            "`app-layer-protocol` can occur several times only if each is negated and names other protocols",
        ));
    }
    builder.detection.push(query.clone());
    builder.packet.push(Box::new(OnProtocol(query)));
    Ok(())
}

/// Parses the qualifiers after the protocols: which of the flow's protocols is meant, and whether the match
/// is exact, without the members of a family.
fn qualifiers_of(written: &str) -> Result<(DetectedIn, bool), KeywordError> {
    let (mut of, mut exact) = (None, false);
    for name in written.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let known = match name {
            "exact" => {
                exact = true;
                continue;
            }
            "direction" => DetectedIn::OfPacket,
            "final" => DetectedIn::Final,
            "original" => DetectedIn::Original,
            "either" => DetectedIn::Either,
            "to_server" => DetectedIn::Of(Direction::ToServer),
            "to_client" => DetectedIn::Of(Direction::ToClient),
            other => {
                return Err(KeywordError::argument(format!("unknown mode `{other}`"))
                    .help("use direction, final, original, either, to_server or to_client, and exact"));
            }
        };
        if of.replace(known).is_some() {
            return Err(KeywordError::argument("two modes are given, and only one is possible"));
        }
    }
    Ok((of.unwrap_or_default(), exact))
}

#[cfg(test)]
mod tests {
    use crate::compile::refusal::RefusalCode;
    use crate::keywords::testing::{build, refused, refused_all};

    #[test]
    fn what_is_refused() {
        for argument in [
            "nonsense",
            "failed,never",
            "tls||http",
            "tls|",
            "http,exact",
            "tls|http,exact",
            "tls,final,either",
            "!unknown",
            "!tls|unknown",
            "tls | dns",
            "HTTP",
            "jabber",
        ] {
            assert_eq!(refused("app-layer-protocol", argument), Some(RefusalCode::BadArgument), "{argument}");
        }
        let twice = |a, b| refused_all(&[("app-layer-protocol", a), ("app-layer-protocol", b)]);
        assert_eq!(twice("failed", "!failed"), Some(RefusalCode::BadContext));
        assert_eq!(twice("!failed", "failed"), Some(RefusalCode::BadContext));
        assert_eq!(twice("failed", "failed"), Some(RefusalCode::BadContext));
        assert_eq!(twice("!tls|http", "!dns|tls"), Some(RefusalCode::BadContext));
        assert_eq!(twice("!failed", "!tls"), None);
        assert_eq!(twice("failed,final", "!tls,original"), None);
    }

    #[test]
    fn protocols_without_a_parser_are_refused_in_every_form() {
        for argument in
            ["nfs", "!nfs", "!nfs,final", "tls|nfs", "!tls|nfs,either", "failed|modbus", "nfs,exact", "! nfs"]
        {
            assert_eq!(
                refused("app-layer-protocol", argument),
                Some(RefusalCode::UnsupportedProtocol),
                "{argument}"
            );
        }
    }

    #[test]
    fn what_loads() {
        for argument in [
            "!failed",
            "tls|http",
            "!tls|dns,either",
            "http1,exact,final",
            "tls,final,exact",
            "http,",
            "unknown|failed",
        ] {
            let built = build("tcp", &[("app-layer-protocol", argument)]);
            assert!(built.is_ok_and(|built| built.packet[0].is_detection()), "{argument}");
        }
    }
}
