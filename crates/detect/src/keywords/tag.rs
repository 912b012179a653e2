// SPDX-License-Identifier: Apache-2.0
//! `tag`: marks the next packets of the flow or host after a match.
//!
//! The flow's state or the host table keeps the mark; its readers log the packets.

use super::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{ConditionContext, Effect};
use crate::state::FlowRuleState;
use bartizan_base::{PacketDuration, RuleId, Timestamp};
use bartizan_flow::host::{HostKey, RuleKey, Tag};

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "tag",
    aliases: &[],
    summary: "Tags the packets that follow: `tag:session,10,packets;`, `tag:host,60,seconds,src;`.",
    argument: Argument::Required,
    role: Role::Effect,
    syntax: "tag:session|host,COUNT,packets|seconds|bytes[,src|dst]",
    example: r#"alert tcp any any -> any any (msg:"tag"; tag:session,10,packets; sid:1;)"#,
    note: "As in Suricata: the matching packet is counted but not tagged; a packet that exceeds the count ends the tag and is not tagged; another match of the rule restarts the count, at most ten times. A flow and a host have at most 16 tags.",
    parse,
}];

/// Default number of tagged packets where no other limit applies (as in Suricata).
const PACKETS_MAX: u32 = 256;

#[derive(Clone, Copy)]
enum Whose {
    Session,
    Source,
    Destination,
}

#[derive(Clone, Copy)]
enum Metric {
    Packets,
    Seconds,
    Bytes,
}

struct Start {
    whose: Whose,
    count: u32,
    metric: Metric,
}

impl Effect for Start {
    fn apply(&self, rule: RuleId, scene: &ConditionContext<'_>, state: Option<&mut FlowRuleState>) -> bool {
        let mut tag = Tag {
            rule: RuleKey { gid: rule.gid, sid: rule.sid },
            packets: u32::MAX,
            bytes: u64::MAX,
            until: Timestamp::from_nanos(u64::MAX),
            seen: scene.facts.now,
            fresh: true,
            matches: 0,
        };
        match self.metric {
            Metric::Packets => tag.packets = self.count,
            Metric::Bytes => tag.bytes = u64::from(self.count),
            // Whole seconds, as in Suricata: the last of them is included.
            Metric::Seconds => {
                tag.until = Timestamp::from_parts(scene.facts.now.as_secs(), 0)
                    + PacketDuration::from_secs(u64::from(self.count) + 1);
            }
        }
        if let Whose::Session = self.whose {
            if let Some(state) = state {
                state.refused += u64::from(state.tags.start(tag).is_err());
            }
            return true;
        }
        let Some((source, destination)) = scene.addresses() else { return true };
        let host = if let Whose::Source = self.whose { source } else { destination };
        scene.shared.tag_host(&HostKey::host(scene.tenant, host), tag, scene.facts.now);
        true
    }
}

fn parse(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let items = text::items(argument)?;
    let [kind, rest @ ..] = items.as_slice() else {
        return Err(KeywordError::argument("tag needs a type: session or host"));
    };
    let (count, metric, side) = match rest {
        [] => (PACKETS_MAX, "packets", None),
        [count, metric] => (text::within("count", count, 0..=u32::MAX)?, *metric, None),
        [count, metric, side] => (text::within("count", count, 0..=u32::MAX)?, *metric, Some(*side)),
        _ => return Err(KeywordError::argument("tag is written `type[,count,metric[,side]]`")),
    };
    let metric = match metric {
        "packets" => Metric::Packets,
        "seconds" => Metric::Seconds,
        "bytes" => Metric::Bytes,
        other => {
            return Err(KeywordError::argument(format!("unknown metric `{other}` of `tag`"))
                .help("packets, seconds or bytes"));
        }
    };
    let whose = match (*kind, side) {
        (_, Some(other)) if !["src", "dst"].contains(&other) => {
            return Err(KeywordError::argument(format!("unknown side `{other}` of `tag`: src or dst")));
        }
        // A side has no meaning for a session, and is accepted as in Suricata.
        ("session", _) => Whose::Session,
        ("host", Some("src")) => Whose::Source,
        ("host", _) => Whose::Destination,
        (other, _) => {
            return Err(KeywordError::argument(format!("unknown type `{other}` of `tag`: session or host")));
        }
    };
    if !matches!(whose, Whose::Session) {
        builder.environment.note_host_tags();
    }
    builder.effects.push(Box::new(Start { whose, count, metric }));
    Ok(())
}
