// SPDX-License-Identifier: Apache-2.0
//! `app-layer-event`: anomalies found by protocol detection (`applayer_...`) or a parser (`http....`).
//!
//! Events of protocol detection belong to the packet that raised them, events of a parser to a transaction.
//! Suricata's events `file....` (decompression of Flash files) are not supported.

use super::number::{later, text};
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, RefusalCode, Role};
use crate::compile::protocol;
use crate::model::condition::{Answer, ConditionContext, PacketCondition, TxCondition};
use bartizan_applayer::event::{EventCode, GENERIC, GENERIC_BASE};
use bartizan_applayer::protocols;
use bartizan_applayer::transaction::Transaction;
use bartizan_base::{Direction, PerDirection};
use bartizan_rules::suggest;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "app-layer-event",
    aliases: &[],
    summary: "Protocol detection or a protocol's parser raised this event.",
    argument: Argument::Required,
    role: Role::Condition,
    syntax: "app-layer-event:PROTOCOL.EVENT",
    example: r#"alert http any any -> any any (msg:"app-layer-event"; app-layer-event:http.request_field_missing_colon; sid:1;)"#,
    note: "",
    parse: app_layer_event,
}];

/// An event of protocol detection.
struct OnDetection(EventCode);

impl PacketCondition for OnDetection {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        scene.facts.app_events.contains(&self.0)
    }

    fn needs_flow(&self) -> bool {
        true
    }
}

/// An event of a parser.
struct OnParser {
    code: EventCode,
    complete: PerDirection<u8>,
}

impl TxCondition for OnParser {
    fn matches(&self, tx: &dyn Transaction, direction: Direction, scene: &ConditionContext<'_>) -> Answer {
        if tx.common().events.has(self.code) {
            Answer::Yes
        } else {
            later(tx, direction, self.complete, scene)
        }
    }
}

fn app_layer_event(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let name = text(argument)?;
    match name.split_once('.') {
        None => on_detection(builder, name),
        Some(("file", _)) => Err(KeywordError::new(
            RefusalCode::UnsupportedKeyword,
            format!("this engine does not raise the event `{name}`"),
        )),
        Some((protocol, event)) => on_parser(builder, protocol, event),
    }
}

fn on_detection(builder: &mut SignatureBuilder<'_>, name: &str) -> Result<(), KeywordError> {
    let index = GENERIC.iter().position(|n| n.eq_ignore_ascii_case(name));
    let Some(index) = index.and_then(|i| u8::try_from(i).ok()) else {
        return Err(unknown(name, suggest(name, GENERIC.iter().copied())));
    };
    builder.packet.push(Box::new(OnDetection(GENERIC_BASE.saturating_add(index))));
    Ok(())
}

fn on_parser(builder: &mut SignatureBuilder<'_>, written: &str, event: &str) -> Result<(), KeywordError> {
    // A name stands for one protocol here, even if it covers a family as a rule's protocol.
    let Some((id, spec)) = protocols::by_name(written) else {
        return Err(if protocol::is_known(written) {
            protocol::unsupported(written)
        } else {
            KeywordError::argument(format!("unknown protocol `{written}`"))
        });
    };
    if !builder.protocol.ip.is_empty() && !builder.protocol.ip.iter().any(|p| matches!(p, 6 | 17)) {
        return Err(KeywordError::context(
            "`app-layer-event` is for rules on TCP and UDP, and the rule is on another protocol",
        ));
    }
    let index = spec.events.iter().position(|n| n.eq_ignore_ascii_case(event));
    let Some(code) = index.and_then(|i| u8::try_from(i).ok()) else {
        return Err(unknown(&format!("{written}.{event}"), suggest(event, spec.events.iter().copied())));
    };
    let condition = OnParser { code, complete: spec.complete };
    let both = PerDirection::new(true, true);
    // A protocol that carries this one may have its parser, and so its events.
    let carriers = protocols::called(spec.name).filter(|(_, carrier)| carrier.events == spec.events);
    let others = carriers.map(|(carrier, _)| carrier).filter(|carrier| *carrier != id);
    let protocols = core::iter::once(id).chain(others).collect();
    builder.push_tx_among(protocols, "app-layer-event", both, None, Box::new(condition))
}

fn unknown(name: &str, near: Option<&str>) -> KeywordError {
    let error = KeywordError::argument(format!("unknown event `{name}`"));
    match near {
        Some(near) => error.help(format!("did you mean `{near}`?")),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keywords::testing::{FakeTx, build, ipv4, on_changed_scene, on_scene, refused, tcp};
    use bartizan_applayer::event::WRONG_DIRECTION_FIRST_DATA;
    use bartizan_base::Path;

    #[test]
    fn events_of_detection() {
        let packet = ipv4(6, &tcp(0x10, 1, 1, 1, b""));
        let built = build("ip", &[("app-layer-event", "applayer_wrong_direction_first_data")]).unwrap();
        let holds = |events: &'static [EventCode]| {
            on_changed_scene(
                &packet,
                |facts| facts.app_events = events,
                |scene| built.packet[0].matches(scene),
            )
        };
        assert!(holds(&[WRONG_DIRECTION_FIRST_DATA]));
        assert!(!holds(&[]) && !holds(&[WRONG_DIRECTION_FIRST_DATA + 1]));
    }

    #[test]
    fn events_of_a_parser_wait_for_both_directions() {
        let condition = OnParser { code: 3, complete: PerDirection::new(2, 2) };
        let packet = ipv4(6, &tcp(0x10, 1, 1, 1, b""));
        let answer =
            |tx: &FakeTx| on_scene(&packet, |scene| condition.matches(tx, Direction::ToServer, scene));
        let mut tx = FakeTx::default();
        assert_eq!(answer(&tx), Answer::NotYet);
        tx.progress = PerDirection::new(2, 2);
        assert_eq!(answer(&tx), Answer::NotYet, "the other direction was not looked at");
        tx.common.done.to_client = Path::ALL;
        assert_eq!(answer(&tx), Answer::No);
        tx.common.events.set(3);
        assert_eq!(answer(&tx), Answer::Yes);
    }

    #[test]
    fn what_is_refused() {
        for (argument, code) in [
            ("applayer_nonsense", RefusalCode::BadArgument),
            ("nonsense.event", RefusalCode::BadArgument),
            ("file.x", RefusalCode::UnsupportedKeyword),
            ("modbus.flooded", RefusalCode::UnsupportedProtocol),
        ] {
            assert_eq!(refused("app-layer-event", argument), Some(code), "app-layer-event:{argument}");
        }
    }
}
