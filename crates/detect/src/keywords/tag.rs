// SPDX-License-Identifier: Apache-2.0
//! `tag`: after a match the next packets of the flow or host are marked.
//!
//! The mark is kept in the flow's state or in the host table; logging the packets is the business of who reads it.

use super::text;
use crate::builder::SignatureBuilder;
use crate::condition::{Effect, Scene};
use crate::keyword::{Argument, Keyword, KeywordError, Role};
use crate::state::FlowState;
use bartizan_base::{PacketDuration, RuleId, Timestamp};
use bartizan_flow::host::{HostKey, RuleKey, Tag};

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "tag",
    aliases: &[],
    summary: "Marks packets that follow: `tag:session,10,packets;`, `tag:host,60,seconds,src;`.",
    argument: Argument::Required,
    role: Role::Effect,
    syntax: "tag:session|host,COUNT,packets|seconds|bytes[,src|dst]",
    example: r#"alert tcp any any -> any any (msg:"tag"; tag:session,10,packets; sid:1;)"#,
    note: "16 tags a host.",
    parse,
}];

/// Packets that are tagged unless something else is said or nothing else limits (as in Suricata).
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
    fn apply(&self, rule: RuleId, scene: &Scene<'_>, state: Option<&mut FlowState>) -> bool {
        let mut tag = Tag {
            rule: RuleKey { gid: rule.gid, sid: rule.sid },
            packets: u32::MAX,
            bytes: u64::MAX,
            until: Timestamp::from_nanos(u64::MAX),
        };
        match self.metric {
            Metric::Packets => tag.packets = self.count,
            Metric::Bytes => tag.bytes = u64::from(self.count),
            Metric::Seconds => tag.until = scene.now + PacketDuration::from_secs(u64::from(self.count)),
        }
        if let Whose::Session = self.whose {
            if let Some(state) = state {
                state.tag = Some(tag);
            }
            return true;
        }
        let Some((source, destination)) = scene.addresses() else { return true };
        let host = if let Whose::Source = self.whose { source } else { destination };
        scene.shared.tag_host(&HostKey::host(scene.tenant, host), tag, scene.now);
        true
    }
}

fn parse(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let items = text::items(argument)?;
    let [kind, rest @ ..] = items.as_slice() else { return Err(KeywordError::argument("tag needs a type")) };
    let (count, metric, side) = match rest {
        [] => (PACKETS_MAX, "packets", None),
        [count, metric] => (text::within("count", count, 1..=u32::MAX)?, *metric, None),
        [count, metric, side] => (text::within("count", count, 1..=u32::MAX)?, *metric, Some(*side)),
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
        ("session", None) => Whose::Session,
        ("host", Some("src")) => Whose::Source,
        ("host", Some("dst")) => Whose::Destination,
        ("host", _) => return Err(KeywordError::argument("`tag:host` needs `src` or `dst`")),
        ("session", Some(_)) => return Err(KeywordError::argument("`tag:session` takes no side")),
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
