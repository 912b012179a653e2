// SPDX-License-Identifier: Apache-2.0
//! `threshold`, `detection_filter`, and the entries of threshold files: limits of a rule's reports.
//!
//! Counting follows Suricata 8 on the packet clock: an interval begins with the first match and ends,
//! inclusively, `seconds` later; the next match begins another interval. The host table keeps counts per
//! address, pair or rule, and the flow's state keeps counts per flow; all of them outlive a generation.
//! Packets without addresses are not limited.

use super::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{ConditionContext, Limit, LimitKind, Limited};
use crate::model::signature::{Member, RejectSide, RuleAction};
use crate::state::FlowRuleState;
use bartizan_base::{PacketDuration, RuleId, Timestamp};
use bartizan_flow::host::{HostKey, RuleKey};
use bartizan_rules::{
    AddressSet, Diagnostic, NewAction, RuleVariables, ThresholdEntry, ThresholdKind, ThresholdTrack,
    ThresholdType, Thresholds, code,
};
use std::collections::HashSet;
use std::sync::Arc;

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "threshold",
        aliases: &[],
        summary: "A limit on the alerts of the rule: `threshold:type limit,track by_src,count 1,seconds 60;`.",
        argument: Argument::Required,
        role: Role::Limit,
        syntax: "threshold:type limit|threshold|both|backoff, track by_src|by_dst|by_rule|by_both|by_flow, count N, seconds N[, multiplier N]",
        example: r#"alert tcp any any -> any any (msg:"threshold"; threshold:type limit, track by_src, count 1, seconds 60; sid:1;)"#,
        note: "",
        parse: threshold,
    },
    Keyword {
        name: "detection_filter",
        aliases: &[],
        summary: "The rule matches only above a rate: `detection_filter:track by_src,count 5,seconds 10;`.",
        argument: Argument::Required,
        role: Role::Limit,
        syntax: "detection_filter:track by_src|by_dst|by_flow, count N, seconds N",
        example: r#"alert tcp any any -> any any (msg:"detection_filter"; detection_filter:track by_src, count 5, seconds 10; sid:1;)"#,
        note: "",
        parse: detection_filter,
    },
];

/// The method by which matches are counted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ThresholdMethod {
    Limit,
    Threshold,
    Both,
    Backoff { multiplier: u32 },
    Detection,
    Rate { action: NewAction, timeout: u32 },
}

/// A counting threshold.
struct Counting {
    method: ThresholdMethod,
    track: ThresholdTrack,
    count: u32,
    seconds: u32,
}

/// Count that is kept between matches; a new one has no start.
#[derive(Clone, Copy, Default)]
struct Tally {
    count: u32,
    started: Timestamp,
    /// Second since which a rate filter acts; 0 if it does not.
    acting: u64,
    /// Count at which a back-off reports next.
    next: u32,
}

impl Counting {
    /// Counts the first match of an entry.
    fn begin(&self, tally: &mut Tally, now: Timestamp) -> Limited {
        *tally = Tally { count: 1, started: now, acting: 0, next: self.count };
        let reached = if self.count == 1 { Limited::Alert } else { Limited::Nothing };
        match self.method {
            ThresholdMethod::Limit | ThresholdMethod::Rate { .. } => Limited::Alert,
            ThresholdMethod::Threshold | ThresholdMethod::Both => reached,
            ThresholdMethod::Backoff { multiplier } => {
                if self.count == 1 {
                    tally.next = multiplier;
                }
                reached
            }
            ThresholdMethod::Detection => Limited::Nothing,
        }
    }

    /// Counts one more match.
    fn step(&self, tally: &mut Tally, now: Timestamp) -> Limited {
        if tally.started == Timestamp::ZERO {
            return self.begin(tally, now);
        }
        if let ThresholdMethod::Backoff { multiplier } = self.method {
            return backoff(tally, multiplier);
        }
        let inside = now <= tally.started + PacketDuration::from_secs(u64::from(self.seconds));
        if let ThresholdMethod::Rate { action, timeout } = self.method {
            return self.rate(tally, now, inside, action, timeout);
        }
        if inside {
            tally.count = tally.count.saturating_add(1);
        } else {
            tally.started = now;
            tally.count = 1;
        }
        match self.method {
            ThresholdMethod::Limit if tally.count <= self.count || !inside => Limited::Alert,
            ThresholdMethod::Limit => Limited::Silent,
            ThresholdMethod::Threshold if inside && tally.count >= self.count => {
                tally.count = 0;
                Limited::Alert
            }
            ThresholdMethod::Both if tally.count == self.count => Limited::Alert,
            ThresholdMethod::Both if tally.count > self.count => Limited::Silent,
            ThresholdMethod::Detection if tally.count > self.count && inside => Limited::Alert,
            _ => Limited::Nothing,
        }
    }

    fn rate(
        &self,
        tally: &mut Tally,
        now: Timestamp,
        inside: bool,
        action: NewAction,
        timeout: u32,
    ) -> Limited {
        if tally.acting != 0 {
            if now.as_secs().saturating_sub(tally.acting) > u64::from(timeout) {
                tally.acting = 0;
                return Limited::Alert;
            }
            return acting(action);
        }
        if !inside {
            tally.started = now;
            tally.count = 1;
            return Limited::Alert;
        }
        tally.count = tally.count.saturating_add(1);
        if tally.count <= self.count {
            return Limited::Alert;
        }
        tally.acting = now.as_secs().max(1);
        acting(action)
    }

    /// Time until which an entry has to be kept.
    fn until(&self, tally: &Tally) -> Timestamp {
        let interval = PacketDuration::from_secs(u64::from(self.seconds));
        let mut until = tally.started + interval;
        if let ThresholdMethod::Rate { timeout, .. } = self.method
            && tally.acting != 0
        {
            let acts = Timestamp::from_parts(tally.acting.saturating_add(u64::from(timeout)), 0);
            until = until.max(acts + interval + PacketDuration::from_secs(1));
        }
        until + PacketDuration::from_nanos(1)
    }

    fn key(&self, rule: RuleKey, scene: &ConditionContext<'_>) -> Option<HostKey> {
        let (source, destination) = scene.addresses()?;
        let tenant = scene.tenant;
        Some(match self.track {
            ThresholdTrack::Source => HostKey::host(tenant, source),
            ThresholdTrack::Destination => HostKey::host(tenant, destination),
            ThresholdTrack::Both | ThresholdTrack::Either => HostKey::pair(tenant, source, destination),
            ThresholdTrack::Rule | ThresholdTrack::Flow => HostKey::rule(tenant, rule),
        })
    }

    fn in_flow(&self, rule: RuleKey, now: Timestamp, state: Option<&mut FlowRuleState>) -> Limited {
        let Some(state) = state else { return Limited::Nothing };
        // Without room the match counts as a first one.
        let Some(slot) = state.count(rule, self.track as u32) else {
            return self.begin(&mut Tally::default(), now);
        };
        let mut tally = Tally {
            count: slot.count,
            started: slot.started,
            acting: slot.acting.as_secs(),
            next: slot.next,
        };
        let limited = self.step(&mut tally, now);
        slot.count = tally.count;
        slot.started = tally.started;
        slot.acting = Timestamp::from_parts(tally.acting, 0);
        slot.next = tally.next;
        limited
    }
}

/// A back-off reports at `count`, then each time that the count has grown by the multiplier.
fn backoff(tally: &mut Tally, multiplier: u32) -> Limited {
    if tally.count == u32::MAX {
        return Limited::Silent;
    }
    tally.count += 1;
    if tally.count != tally.next {
        return Limited::Silent;
    }
    tally.next = tally.next.saturating_mul(multiplier);
    Limited::Alert
}

const fn acting(action: NewAction) -> Limited {
    match action {
        NewAction::Alert => Limited::Act(RuleAction::Alert),
        NewAction::Drop => Limited::Act(RuleAction::Drop),
        NewAction::Pass => Limited::Act(RuleAction::Pass),
        NewAction::Reject => Limited::Act(RuleAction::Reject(RejectSide::Source)),
        NewAction::None => Limited::Alert,
    }
}

impl Limit for Counting {
    fn judge(
        &self,
        rule: RuleId,
        scene: &ConditionContext<'_>,
        state: Option<&mut FlowRuleState>,
    ) -> Limited {
        let rule = RuleKey { gid: rule.gid, sid: rule.sid };
        let Some(key) = self.key(rule, scene) else { return Limited::Alert };
        if self.method == ThresholdMethod::Threshold && self.count == 1 {
            return Limited::Alert;
        }
        let now = scene.facts.now;
        if self.track == ThresholdTrack::Flow {
            return self.in_flow(rule, now, state);
        }
        let counted = scene.shared.hosts.with(&key, now, |host| {
            let slot = host.threshold(rule, self.track as u32).ok()?;
            let mut tally =
                Tally { count: slot.count, started: slot.started, acting: slot.mark.as_secs(), next: 0 };
            let limited = self.step(&mut tally, now);
            slot.count = tally.count;
            slot.started = tally.started;
            slot.mark = Timestamp::from_parts(tally.acting, 0);
            slot.until = self.until(&tally);
            Some(limited)
        });
        // Without room, which the host table counts, the match counts as a first one.
        counted.ok().flatten().unwrap_or_else(|| self.begin(&mut Tally::default(), now))
    }

    fn kind(&self) -> LimitKind {
        match self.method {
            ThresholdMethod::Detection => LimitKind::DetectionFilter,
            ThresholdMethod::Rate { .. } => LimitKind::RateFilter,
            _ => LimitKind::Threshold,
        }
    }
}

/// Implements `suppress` for some addresses.
struct Suppress {
    track: ThresholdTrack,
    addresses: Arc<AddressSet>,
}

impl Limit for Suppress {
    fn judge(&self, _: RuleId, scene: &ConditionContext<'_>, _: Option<&mut FlowRuleState>) -> Limited {
        let Some((source, destination)) = scene.addresses() else { return Limited::Alert };
        let found = match self.track {
            ThresholdTrack::Source => self.addresses.contains(source),
            ThresholdTrack::Destination => self.addresses.contains(destination),
            _ => self.addresses.contains(source) || self.addresses.contains(destination),
        };
        if found { Limited::Silent } else { Limited::Alert }
    }

    fn kind(&self) -> LimitKind {
        LimitKind::Suppress
    }
}

/// The fields of a keyword's argument, each at most once.
#[derive(Default)]
struct ThresholdFields<'a> {
    kind: Option<&'a str>,
    track: Option<ThresholdTrack>,
    count: Option<u32>,
    seconds: Option<u32>,
    multiplier: Option<u32>,
}

fn fields<'a>(keyword: &str, argument: &'a [u8]) -> Result<ThresholdFields<'a>, KeywordError> {
    let mut fields = ThresholdFields::default();
    for item in text::items(argument)? {
        let (name, value) = text::word(item);
        let number = |name| text::within(name, value, 1..=u32::MAX);
        let twice = match name {
            "type" => fields.kind.replace(value).is_some(),
            "track" => fields.track.replace(track(value)?).is_some(),
            "count" => fields.count.replace(number("count")?).is_some(),
            "seconds" => fields.seconds.replace(number("seconds")?).is_some(),
            "multiplier" => fields.multiplier.replace(number("multiplier")?).is_some(),
            _ => return Err(KeywordError::argument(format!("unknown field `{name}` of `{keyword}`"))),
        };
        if twice {
            return Err(KeywordError::argument(format!("`{name}` is given twice")));
        }
    }
    Ok(fields)
}

fn track(value: &str) -> Result<ThresholdTrack, KeywordError> {
    Ok(match value {
        "by_src" => ThresholdTrack::Source,
        "by_dst" => ThresholdTrack::Destination,
        "by_both" => ThresholdTrack::Both,
        "by_rule" => ThresholdTrack::Rule,
        "by_flow" => ThresholdTrack::Flow,
        other => {
            return Err(KeywordError::argument(format!("unknown track `{other}`"))
                .help("by_src, by_dst, by_both, by_rule or by_flow"));
        }
    })
}

fn missing(keyword: &str, what: &str) -> KeywordError {
    KeywordError::argument(format!("`{keyword}` lacks {what}"))
}

fn alone(builder: &SignatureBuilder<'_>, other: &'static str) -> Result<(), KeywordError> {
    if builder.seen.contains(&other) {
        return Err(KeywordError::context(format!(
            "the rule already has `{other}`, and only one of the two can apply"
        )));
    }
    Ok(())
}

fn threshold(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    alone(builder, "detection_filter")?;
    let fields = fields("threshold", argument)?;
    let track = fields.track.ok_or_else(|| missing("threshold", "`track`"))?;
    let count = fields.count.ok_or_else(|| missing("threshold", "`count`"))?;
    let method = match fields.kind.ok_or_else(|| missing("threshold", "`type`"))? {
        "limit" => ThresholdMethod::Limit,
        "threshold" => ThresholdMethod::Threshold,
        "both" => ThresholdMethod::Both,
        "backoff" => {
            let multiplier = fields.multiplier.ok_or_else(|| missing("threshold", "`multiplier`"))?;
            if track != ThresholdTrack::Flow {
                return Err(KeywordError::argument("`type backoff` counts by flow only")
                    .help("write `track by_flow`"));
            }
            ThresholdMethod::Backoff { multiplier }
        }
        other => {
            return Err(KeywordError::argument(format!("unknown type `{other}` of `threshold`"))
                .help("limit, threshold, both or backoff"));
        }
    };
    let is_backoff = matches!(method, ThresholdMethod::Backoff { .. });
    if is_backoff == fields.seconds.is_some() || !is_backoff && fields.multiplier.is_some() {
        return Err(KeywordError::argument("`backoff` takes a `multiplier`, the other types take `seconds`"));
    }
    let seconds = fields.seconds.unwrap_or(0);
    builder.thresholds.push(Arc::new(Counting { method, track, count, seconds }));
    Ok(())
}

fn detection_filter(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    alone(builder, "threshold")?;
    alone(builder, "detection_filter")?;
    let fields = fields("detection_filter", argument)?;
    if fields.kind.is_some() || fields.multiplier.is_some() {
        return Err(KeywordError::argument("`detection_filter` takes track, count and seconds only"));
    }
    let track = fields.track.ok_or_else(|| missing("detection_filter", "`track`"))?;
    if matches!(track, ThresholdTrack::Both | ThresholdTrack::Rule) {
        return Err(KeywordError::argument("`detection_filter` counts by_src, by_dst or by_flow")
            .help("`threshold` and `event_filter` count by_both and by_rule as well"));
    }
    builder.thresholds.push(Arc::new(Counting {
        method: ThresholdMethod::Detection,
        track,
        count: fields.count.ok_or_else(|| missing("detection_filter", "`count`"))?,
        seconds: fields.seconds.ok_or_else(|| missing("detection_filter", "`seconds`"))?,
    }));
    Ok(())
}

/// Adds the entries of a threshold file to the rules that they name.
///
/// An `event_filter` for one rule replaces the rule's `threshold`, `detection_filter` or `rate_filter`. An
/// `event_filter` for all rules does not change rules that have one of these, and a `rate_filter` never
/// replaces one; so the first `rate_filter` of a rule in the file holds. Returns a finding for each entry
/// whose addresses cannot be resolved; such an entry is left out.
pub fn apply_thresholds(
    signatures: &mut [Member],
    thresholds: &Thresholds,
    variables: &RuleVariables,
) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    for entry in &thresholds.entries {
        let suppressed = match &entry.kind {
            ThresholdKind::Suppress { only: Some((track, addresses)) } => {
                match variables.address_set(addresses) {
                    Ok(set) => Some((*track, Arc::new(set))),
                    Err(error) => {
                        findings.push(Diagnostic::error(
                            &thresholds.source,
                            entry.span,
                            code::BAD_THRESHOLD,
                            error.kind.to_string(),
                        ));
                        continue;
                    }
                }
            }
            _ => None,
        };
        for signature in signatures.iter_mut().filter(|s| concerns(entry, s)) {
            apply(signature, entry, suppressed.as_ref());
        }
    }
    findings
}

/// A warning for each entry of a threshold file that names no running rule, as in Suricata. `running`: gid
/// and sid of the rules.
#[must_use]
pub fn unused_thresholds(running: &HashSet<(u32, u32)>, thresholds: &Thresholds) -> Vec<Diagnostic> {
    let generators: HashSet<u32> = running.iter().map(|(gid, _)| *gid).collect();
    let is_used = |entry: &ThresholdEntry| match (entry.gid, entry.sid) {
        (0, _) => true,
        (gid, 0) => generators.contains(&gid),
        id => running.contains(&id),
    };
    let unused = thresholds.entries.iter().filter(|entry| !is_used(entry));
    let finding = |entry: &ThresholdEntry| {
        let rule = match entry.sid {
            0 => format!("gid {}", entry.gid),
            sid => format!("gid {} and sid {sid}", entry.gid),
        };
        let message = format!("no loaded rule has {rule}: the line has no effect");
        Diagnostic::warning(&thresholds.source, entry.span, code::UNKNOWN_RULE, message)
            .help("correct the numbers, load the rule, or remove the line")
    };
    unused.map(finding).collect()
}

/// Whether an entry applies to a rule; 0 stands for all rules.
fn concerns(entry: &ThresholdEntry, signature: &Member) -> bool {
    (entry.gid == 0 || entry.gid == signature.id.gid) && (entry.sid == 0 || entry.sid == signature.id.sid)
}

fn apply(
    signature: &mut Member,
    entry: &ThresholdEntry,
    suppressed: Option<&(ThresholdTrack, Arc<AddressSet>)>,
) {
    let last = signature.thresholds.iter().rposition(|t| t.kind() != LimitKind::Suppress);
    let own = last.is_some();
    let counting = match (&entry.kind, suppressed) {
        (ThresholdKind::Suppress { .. }, Some((track, addresses))) => {
            // Suppression precedes counting.
            let at = signature.thresholds.iter().take_while(|t| t.kind() == LimitKind::Suppress).count();
            let limit = Suppress { track: *track, addresses: Arc::clone(addresses) };
            signature.thresholds.insert(at, Arc::new(limit));
            return;
        }
        (ThresholdKind::Suppress { .. }, None) => {
            signature.suppressed = true;
            return;
        }
        (ThresholdKind::RateFilter { track, count, seconds, action, timeout }, _) => {
            if own {
                return;
            }
            let method = ThresholdMethod::Rate { action: *action, timeout: *timeout };
            Counting { method, track: *track, count: *count, seconds: *seconds }
        }
        (ThresholdKind::EventFilter { kind, track, count, seconds }, _) => {
            if own && entry.sid == 0 {
                return;
            }
            if let Some(last) = last {
                signature.thresholds.remove(last);
            }
            let method = match kind {
                ThresholdType::Limit => ThresholdMethod::Limit,
                ThresholdType::Threshold => ThresholdMethod::Threshold,
                ThresholdType::Both => ThresholdMethod::Both,
            };
            Counting { method, track: *track, count: *count, seconds: *seconds }
        }
    };
    signature.thresholds.push(Arc::new(counting));
}
