// SPDX-License-Identifier: Apache-2.0
//! `flow.age`, `flow.pkts`, `flow.bytes`, `flow.elephant` and related keywords: age and size of the flow;
//! `stream_size`: amount of stream data.

use super::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{ConditionContext, PacketCondition};
use bartizan_base::{Direction, PerDirection};
use bartizan_flow::tcp::TcpSession;
use bartizan_rules::UintMatch;

macro_rules! counts {
    ($(($name:literal, $argument:literal, $example:literal, $summary:literal, $parse:expr)),* $(,)?) => {
        &[$(Keyword {
            name: $name,
            aliases: &[],
            summary: $summary,
            argument: Argument::Required,
            role: Role::Condition,
            syntax: concat!($name, ":", $argument),
            example: concat!("alert tcp any any -> any any (msg:\"count\"; ", $name, ":", $example, "; sid:1;)"),
            note: "",
            parse: $parse,
        },)*]
    };
}

/// The keywords.
pub const KEYWORDS: &[Keyword] = counts![
    ("flow.age", "[<|>|!]SECONDS or N-M", ">60", "Age of the flow in seconds: `flow.age:>60;`.", age),
    (
        "flow.pkts",
        "toserver|toclient|both|either,[<|>|!]N",
        "toserver,>3",
        "Packets of the flow: `flow.pkts:toserver,>3;` (toclient, both, either).",
        packets
    ),
    (
        "flow.bytes",
        "toserver|toclient|both|either,[<|>|!]N",
        "both,<3000",
        "Bytes of the flow: `flow.bytes:both,<3000;` (toclient, toserver, either).",
        bytes
    ),
    ("flow.pkts_toserver", "[<|>|!]N", ">3", "Packets to the server.", |b, a| one_side(
        b,
        a,
        true,
        Direction::ToServer
    )),
    ("flow.pkts_toclient", "[<|>|!]N", ">3", "Packets to the client.", |b, a| one_side(
        b,
        a,
        true,
        Direction::ToClient
    )),
    ("flow.bytes_toserver", "[<|>|!]N", ">3000", "Bytes to the server.", |b, a| one_side(
        b,
        a,
        false,
        Direction::ToServer
    )),
    ("flow.bytes_toclient", "[<|>|!]N", ">3000", "Bytes to the client.", |b, a| one_side(
        b,
        a,
        false,
        Direction::ToClient
    )),
    (
        "flow.elephant",
        "toserver|toclient|both|either",
        "toserver",
        "The flow has become an elephant flow in a direction, by `flow.rate-tracking` of the settings: `flow.elephant:either;`. Without that it never matches.",
        elephant
    ),
    (
        "stream_size",
        "server|client|both|either,<|>|=|!=|<=|>=,BYTES",
        "server,<,100",
        "Data of a TCP flow so far: `stream_size:server,<,100;` (client, both, either).",
        stream_size
    ),
];

struct Age(UintMatch<u32>);

impl PacketCondition for Age {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        let Some(flow) = scene.facts.flow else { return false };
        let seconds = scene.facts.now.as_secs().saturating_sub(flow.start.as_secs());
        self.0.matches(u32::try_from(seconds).unwrap_or(u32::MAX))
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

/// The directions in which the condition must hold.
#[derive(Clone, Copy)]
enum Sides {
    One(Direction),
    Both,
    Either,
}

/// The flow has exceeded the bound of an elephant flow.
struct Elephant(Sides);

impl PacketCondition for Elephant {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        scene.facts.flow.is_some_and(|flow| self.0.hold(flow.elephant, |is| is))
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

impl Sides {
    fn hold<T: Copy>(self, values: PerDirection<T>, holds: impl Fn(T) -> bool) -> bool {
        match self {
            Sides::One(direction) => holds(values[direction]),
            Sides::Both => holds(values.to_server) && holds(values.to_client),
            Sides::Either => holds(values.to_server) || holds(values.to_client),
        }
    }
}

struct Count<T> {
    sides: Sides,
    check: UintMatch<T>,
    value: fn(&ConditionContext<'_>) -> Option<PerDirection<u64>>,
    cut: fn(u64) -> T,
    /// The condition counts bytes of the stream: a rule with content is evaluated on the stream and on each
    /// segment, too. Otherwise it is evaluated on packets, as Suricata's is.
    of_stream: bool,
}

impl<T: bartizan_rules::Uint + Send + Sync> PacketCondition for Count<T> {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        (self.value)(scene).is_some_and(|v| self.sides.hold(v, |n| self.check.matches((self.cut)(n))))
    }

    fn wants_packets_too(&self) -> bool {
        self.of_stream
    }

    fn needs_packet(&self) -> bool {
        !self.of_stream
    }

    fn needs_real_packet(&self) -> bool {
        false
    }

    fn needs_flow(&self) -> bool {
        true
    }
}

fn age(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    builder.packet.push(Box::new(Age(UintMatch::parse(argument)?)));
    Ok(())
}

fn packet_counts(scene: &ConditionContext<'_>) -> Option<PerDirection<u64>> {
    scene.facts.flow.map(|f| f.packets)
}

fn byte_counts(scene: &ConditionContext<'_>) -> Option<PerDirection<u64>> {
    scene.facts.flow.map(|f| f.bytes)
}

fn to_u32(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn push(
    builder: &mut SignatureBuilder<'_>,
    packets: bool,
    sides: Sides,
    check: &[u8],
) -> Result<(), KeywordError> {
    if packets {
        let check = UintMatch::<u32>::parse(check)?;
        builder.packet.push(Box::new(Count {
            sides,
            check,
            value: packet_counts,
            cut: to_u32,
            of_stream: false,
        }));
    } else {
        let check = UintMatch::<u64>::parse(check)?;
        builder.packet.push(Box::new(Count {
            sides,
            check,
            value: byte_counts,
            cut: |n| n,
            of_stream: false,
        }));
    }
    Ok(())
}

fn one_side(
    builder: &mut SignatureBuilder<'_>,
    argument: &[u8],
    packets: bool,
    direction: Direction,
) -> Result<(), KeywordError> {
    push(builder, packets, Sides::One(direction), argument)
}

fn sided(argument: &[u8]) -> Result<(Sides, &str), KeywordError> {
    let (side, check) = text::utf8(argument)?
        .split_once(',')
        .ok_or_else(|| KeywordError::argument("a direction and a number are needed: `toserver,>3`"))?;
    Ok((sides(side.trim())?, check.trim()))
}

fn sides(name: &str) -> Result<Sides, KeywordError> {
    Ok(match name {
        "toserver" => Sides::One(Direction::ToServer),
        "toclient" => Sides::One(Direction::ToClient),
        "both" => Sides::Both,
        "either" => Sides::Either,
        other => {
            return Err(KeywordError::argument(format!("unknown direction `{other}`"))
                .help("toserver, toclient, both or either"));
        }
    })
}

fn elephant(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let sides = sides(text::utf8(argument)?)?;
    builder.packet.push(Box::new(Elephant(sides)));
    Ok(())
}

fn packets(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let (sides, check) = sided(argument)?;
    push(builder, true, sides, check.as_bytes())
}

fn bytes(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let (sides, check) = sided(argument)?;
    push(builder, false, sides, check.as_bytes())
}

fn stream_counts(scene: &ConditionContext<'_>) -> Option<PerDirection<u64>> {
    used(scene.facts.flow?.tcp?)
}

/// Sequence numbers used so far, the SYN included. Without a session (a connection met in the middle and not
/// picked up) there is no count, not even 0 bytes, as in Suricata.
fn used(tcp: &TcpSession) -> Option<PerDirection<u64>> {
    let used = |direction| u64::from(tcp.sequence_used(direction));
    tcp.exists().then(|| PerDirection::new(used(Direction::ToServer), used(Direction::ToClient)))
}

fn stream_size(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let items = text::items(argument)?;
    let [side, operator, size] = items.as_slice() else {
        return Err(KeywordError::argument("stream_size is written `side,operator,bytes`"));
    };
    let sides = match *side {
        "client" => Sides::One(Direction::ToServer),
        "server" => Sides::One(Direction::ToClient),
        "both" => Sides::Both,
        "either" => Sides::Either,
        other => {
            return Err(KeywordError::argument(format!("unknown side `{other}` of `stream_size`"))
                .help("client, server, both or either"));
        }
    };
    let size = text::within("stream_size", size, 0..=u32::MAX)?;
    // Unlike for other numbers, a condition that always or never holds is no error here, as in Suricata.
    let check = match *operator {
        "=" => UintMatch::Equal(size),
        "!=" => UintMatch::NotEqual(size),
        "<" => UintMatch::Less(size),
        "<=" => UintMatch::LessEqual(size),
        ">" => UintMatch::Greater(size),
        ">=" => UintMatch::GreaterEqual(size),
        _ => return Err(KeywordError::argument(format!("unknown operator `{operator}` of `stream_size`"))),
    };
    builder.packet.push(Box::new(Count { sides, check, value: stream_counts, cut: to_u32, of_stream: true }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_session_there_is_no_size() {
        assert_eq!(used(&TcpSession::default()), None);
    }
}
