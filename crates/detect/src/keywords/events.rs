// SPDX-License-Identifier: Apache-2.0
//! `decode-event` (`engine-event`) and `stream-event`: anomalies that the decoder or the stream engine found
//! in the packet.

use super::number::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{ConditionContext, PacketCondition, PrefilterKey};
use bartizan_flow::tcp::StreamEvent;
use bartizan_packet::DecodeEvent;
use bartizan_rules::suggest;

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "decode-event",
        aliases: &["engine-event"],
        summary: "The decoder raised this event for the packet: `decode-event:ipv4.trunc_pkt`.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "decode-event:EVENT",
        example: r#"alert pkthdr any any -> any any (msg:"decode-event"; decode-event:ipv4.trunc_pkt; sid:1;)"#,
        note: "",
        parse: decode_event,
    },
    Keyword {
        name: "stream-event",
        aliases: &[],
        summary: "The stream engine raised this event for the packet: `stream-event:est_invalid_ack`.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "stream-event:EVENT",
        example: r#"alert tcp any any -> any any (msg:"stream-event"; stream-event:est_invalid_ack; sid:1;)"#,
        note: "",
        parse: stream_event,
    },
];

struct OnDecode(DecodeEvent);

impl PacketCondition for OnDecode {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        scene.facts.packet.is_some_and(|packet| packet.decoded().events.contains(self.0))
    }

    fn prefilter(&self) -> Option<PrefilterKey> {
        Some(PrefilterKey::DecodeEvent(self.0 as u16))
    }

    fn needs_real_packet(&self) -> bool {
        true
    }
}

struct OnStream(StreamEvent);

impl PacketCondition for OnStream {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        scene.facts.stream_events.contains(&self.0)
    }

    fn prefilter(&self) -> Option<PrefilterKey> {
        Some(PrefilterKey::StreamEvent(self.0 as u16))
    }

    fn needs_real_packet(&self) -> bool {
        true
    }
}

fn decode_event(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let name = text(argument)?;
    if let Some(event) = DecodeEvent::from_rule_name(name) {
        builder.packet.push(Box::new(OnDecode(event)));
        return Ok(());
    }
    // Suricata has both kinds of events in one table.
    if let Some(stream) = name.strip_prefix("stream.") {
        return stream_event(builder, stream.as_bytes());
    }
    Err(unknown(name, suggest(name, DecodeEvent::ALL.iter().map(|e| e.rule_name()))))
}

fn stream_event(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let name = text(argument)?;
    let event = StreamEvent::from_name(&name.to_ascii_lowercase())
        .ok_or_else(|| unknown(name, suggest(name, StreamEvent::ALL.iter().map(|e| e.rule_name()))))?;
    builder.packet.push(Box::new(OnStream(event)));
    Ok(())
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
    use crate::compile::keyword::RefusalCode;
    use crate::keywords::testing::{build, ipv4, ipv6, matches, on_changed_scene, refused, tcp, udp};
    use crate::model::condition::PrefilterKey;
    use bartizan_flow::tcp::StreamEvent;
    use bartizan_packet::DecodeEvent;

    #[test]
    fn events_of_the_decoder() {
        // The length of the UDP header is below the header's own.
        let mut short = udp(b"abc");
        short[5] = 4;
        for packet in [ipv4(17, &short), ipv6(17, &short)] {
            assert!(matches("decode-event", "udp.len_invalid", &packet));
            assert!(matches("engine-event", "UDP.len_invalid", &packet));
            assert!(!matches("decode-event", "ipv4.trunc_pkt", &packet));
        }
        assert!(!matches("decode-event", "udp.len_invalid", &ipv4(17, &udp(b"abc"))));
        let built = build("pkthdr", &[("decode-event", "udp.len_invalid")]).unwrap();
        let key = PrefilterKey::DecodeEvent(DecodeEvent::UdpLenInvalid as u16);
        assert_eq!(built.packet[0].prefilter(), Some(key));
    }

    #[test]
    fn events_of_the_stream_engine() {
        let packet = ipv4(6, &tcp(0x10, 1, 1, 1, b""));
        for (keyword, name) in [
            ("stream-event", "est_invalid_ack"),
            ("stream-event", "EST_invalid_ack"),
            ("decode-event", "stream.est_invalid_ack"),
        ] {
            let built = build("tcp", &[(keyword, name)]).unwrap();
            let holds = |events: &'static [StreamEvent]| {
                on_changed_scene(
                    &packet,
                    |facts| facts.stream_events = events,
                    |scene| built.packet[0].matches(scene),
                )
            };
            assert!(holds(&[StreamEvent::FinSyn, StreamEvent::EstInvalidAck]), "{keyword}:{name}");
            assert!(!holds(&[StreamEvent::FinSyn]) && !holds(&[]), "{keyword}:{name}");
        }
    }

    #[test]
    fn what_is_refused() {
        for (keyword, argument) in
            [("decode-event", "ipv4.trunk_pkt"), ("stream-event", "nonsense"), ("decode-event", "stream.x")]
        {
            assert_eq!(refused(keyword, argument), Some(RefusalCode::BadArgument), "{keyword}:{argument}");
        }
        let error = build("ip", &[("decode-event", "ipv4.trunk_pkt")]).unwrap_err();
        assert_eq!(error.help.as_deref(), Some("did you mean `ipv4.trunc_pkt`?"));
    }
}
