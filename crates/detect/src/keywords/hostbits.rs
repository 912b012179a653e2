// SPDX-License-Identifier: Apache-2.0
//! `xbits` and `hostbits`: marks on hosts and on pairs of hosts, kept in the host table for a time.
//!
//! Not supported: `xbits` by transaction (`track tx`).

use super::text;
use crate::compile::builder::{SignatureBuilder, Use};
use crate::compile::keyword::{Argument, Keyword, KeywordError, RefusalCode, Role};
use crate::model::condition::{ConditionContext, Effect, PacketCondition};
use crate::state::FlowRuleState;
use bartizan_base::{PacketDuration, RuleId, Timestamp};
use bartizan_flow::host::{BitScope, HostKey};

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "xbits",
        aliases: &[],
        summary: "A mark on a host or pair: `xbits:set,x,track ip_src,expire 60;`, `xbits:isset,x,track ip_dst;`.",
        argument: Argument::Required,
        role: Role::Effect,
        syntax: "xbits:set|unset|isset|isnotset|toggle,NAME,track ip_src|ip_dst|ip_pair[,expire SECONDS]",
        example: r#"alert tcp any any -> any any (msg:"xbits"; xbits:set,seen,track ip_src,expire 60; sid:1;)"#,
        note: "A host has at most 64 bits. A rule with conditions on addresses and such bits only is evaluated once for each direction of a flow, before all other rules on the packet.",
        parse: xbits,
    },
    Keyword {
        name: "hostbits",
        aliases: &[],
        summary: "A mark on a host for five minutes: `hostbits:set,x,src;`, `hostbits:isset,x,dst;`.",
        argument: Argument::Required,
        role: Role::Effect,
        syntax: "hostbits:set|unset|isset|isnotset|toggle,NAME[,src|dst|both]",
        example: r#"alert tcp any any -> any any (msg:"hostbits"; hostbits:set,seen,src; sid:1;)"#,
        note: "A host has at most 64 bits. A rule with conditions on addresses and such bits only is evaluated once for each direction of a flow, before all other rules on the packet.",
        parse: hostbits,
    },
];

/// Default life of an `xbits` mark, in seconds.
const XBITS_EXPIRE: u32 = 30;
/// Default life of a `hostbits` mark, in seconds.
const HOSTBITS_EXPIRE: u32 = 300;

#[derive(Clone, Copy, PartialEq)]
enum Track {
    Source,
    Destination,
    Pair,
}

impl Track {
    fn key(self, scene: &ConditionContext<'_>) -> Option<HostKey> {
        let (source, destination) = scene.addresses()?;
        let tenant = scene.tenant;
        Some(match self {
            Track::Source => HostKey::host(tenant, source),
            Track::Destination => HostKey::host(tenant, destination),
            Track::Pair => HostKey::pair(tenant, source, destination),
        })
    }
}

#[derive(Clone, Copy)]
enum HostbitAction {
    Set,
    Unset,
    Toggle,
}

struct Bit {
    scope: BitScope,
    name: u32,
    track: Track,
}

struct HostbitCondition {
    bit: Bit,
    set: bool,
}

impl PacketCondition for HostbitCondition {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        let Some(key) = self.bit.track.key(scene) else { return false };
        let bit = &self.bit;
        let is_set = scene
            .shared
            .hosts
            .if_there(&key, scene.facts.now, |host| host.is_set(bit.scope, bit.name, scene.facts.now))
            .unwrap_or(false);
        is_set == self.set
    }

    fn is_ip_only(&self) -> bool {
        true
    }
}

struct HostbitEffect {
    bit: Bit,
    change: HostbitAction,
    expire: u32,
}

impl Effect for HostbitEffect {
    fn apply(&self, _: RuleId, scene: &ConditionContext<'_>, _: Option<&mut FlowRuleState>) -> bool {
        let Some(key) = self.bit.track.key(scene) else { return true };
        let Bit { scope, name, .. } = self.bit;
        let now = scene.facts.now;
        let until = end(now, self.expire);
        let hosts = &scene.shared.hosts;
        // The host table counts marks for which it has no room.
        match self.change {
            HostbitAction::Set => {
                let _ = hosts.with(&key, now, |host| host.set(scope, name, now, until));
            }
            HostbitAction::Toggle => {
                let _ = hosts.with(&key, now, |host| host.toggle(scope, name, now, until));
            }
            HostbitAction::Unset => {
                let _ = hosts.if_there(&key, now, |host| host.unset(scope, name));
            }
        }
        true
    }
}

/// The first instant at which a mark is gone: the mark still holds at the end of its time, to the nanosecond.
fn end(now: Timestamp, seconds: u32) -> Timestamp {
    now + PacketDuration::from_secs(u64::from(seconds)) + PacketDuration::from_nanos(1)
}

fn xbits(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let items = text::items(argument)?;
    if items.as_slice() == ["noalert"] {
        builder.silence();
        return Ok(());
    }
    let [command, name, options @ ..] = items.as_slice() else {
        return Err(KeywordError::argument("xbits is written `command,name,track ip_src[,expire N]`"));
    };
    let (mut track, mut expire) = (None, XBITS_EXPIRE);
    for option in options {
        match text::word(option) {
            ("track", by) => {
                track = Some(match by {
                    "ip_src" => Track::Source,
                    "ip_dst" => Track::Destination,
                    "ip_pair" => Track::Pair,
                    "tx" => {
                        return Err(KeywordError::new(
                            RefusalCode::UnsupportedKeyword,
                            "xbits by transaction are not evaluated by this engine yet",
                        ));
                    }
                    other => {
                        return Err(KeywordError::argument(format!("unknown track `{other}` of `xbits`")));
                    }
                });
            }
            ("expire", n) => expire = text::within("expire", n, 1..=u32::MAX)?,
            _ => return Err(KeywordError::argument(format!("unknown option `{option}` of `xbits`"))),
        }
    }
    let track = track.ok_or_else(|| {
        KeywordError::argument("`xbits` lacks the host or pair that has the bit")
            .help("add `track ip_src`, `ip_dst` or `ip_pair`")
    })?;
    add(builder, "xbits", command, name, BitScope::XBit, track, expire)
}

fn hostbits(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let items = text::items(argument)?;
    if items.as_slice() == ["noalert"] {
        builder.silence();
        return Ok(());
    }
    let (command, name, track) = match items.as_slice() {
        [command, name] | [command, name, "src"] => (command, name, Track::Source),
        [command, name, "dst"] => (command, name, Track::Destination),
        [_, _, "both"] => {
            return Err(KeywordError::argument("a bit of both hosts at once is not possible")
                .help("use `xbits` with `track ip_pair`"));
        }
        _ => return Err(KeywordError::argument("hostbits is written `command,name[,src|dst]`")),
    };
    add(builder, "hostbits", command, name, BitScope::HostBit, track, HOSTBITS_EXPIRE)
}

fn add(
    builder: &mut SignatureBuilder<'_>,
    keyword: &str,
    command: &str,
    name: &str,
    scope: BitScope,
    track: Track,
    expire: u32,
) -> Result<(), KeywordError> {
    if name.is_empty() || name.contains(|c: char| c.is_ascii_whitespace() || c == '|') {
        return Err(KeywordError::argument(format!("`{name}`: the name of a bit is one word")));
    }
    let bit = Bit { scope, name: builder.environment.names().intern(name), track };
    let change = match command {
        "set" => Some(HostbitAction::Set),
        "unset" => Some(HostbitAction::Unset),
        "toggle" => Some(HostbitAction::Toggle),
        "isset" | "isnotset" => None,
        other => {
            return Err(KeywordError::argument(format!("unknown command `{other}` of `{keyword}`"))
                .help("commands are set, unset, toggle, isset, isnotset, noalert"));
        }
    };
    let used = match change {
        Some(change) => {
            builder.effects.push(Box::new(HostbitEffect { bit, change, expire }));
            Use::Write
        }
        None => {
            builder.packet.push(Box::new(HostbitCondition { bit, set: command == "isset" }));
            Use::Read
        }
    };
    // As in Suricata, rules that write `hostbits` come first and those that read `xbits` next, so that a
    // packet sees its hosts' `xbits` as they were before it.
    let ordering = &mut builder.ordering;
    match (scope, used) {
        (BitScope::HostBit, Use::Write) => ordering.hosts = ordering.hosts.and(Use::Write),
        (BitScope::XBit, Use::Read) if track == Track::Pair => ordering.pairs = Use::Read,
        (BitScope::XBit, Use::Read) => ordering.hosts = ordering.hosts.and(Use::Read),
        _ => {}
    }
    ordering.reads_marks |= used == Use::Read;
    Ok(())
}
