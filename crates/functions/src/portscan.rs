// SPDX-License-Identifier: Apache-2.0
//! `portscan` finds hosts that scan: many ports of one host (port scan), or one port of many hosts (sweep).
//! The function counts, by source and in a window, the distinct (host, port) pairs of failed attempts, as the
//! scan detectors of Snort and Zeek do. An attempt fails when it is refused (TCP: RST; both: ICMP
//! unreachable), or, for TCP, when a SYN has no reply after some seconds. A port that answers does not count,
//! so a busy client of live servers is never reported; a source to which many hosts answered while others
//! failed makes no sweep. Segments that open nothing and carry none of SYN, ACK and RST (FIN, NULL and XMAS
//! scans) count at once.
//!
//! The state of a source outlives its flows ([`HostSlot`]): bounded, for all workers, over reloads. The
//! second function of the tutorial, docs/writing-a-function.md.
//!
//! Not detected: ports that answer; ACK scans (a connection that its server has forgotten looks the same);
//! UDP probes without any reply (syslog and many others look the same); sweeps of web ports by single SYNs
//! that no host refuses (a browser without working IPv6 sends these); sources whose address is shared with
//! hosts that get more replies than failures.

use bartizan_base::{
    Cursor, Decision, Direction, FunctionId, PacketDuration, Reason, RuleId, TenantId, Timestamp, Verdict,
};
use bartizan_config::policy::Seconds;
use bartizan_flow::host::{HostKey, HostValue};
use bartizan_flow::tcp::TcpState;
use bartizan_function::classes::{self, ByFid};
use bartizan_function::{
    Finding, FindingAction, FlowView, Function, FunctionCounter, FunctionKind, FunctionModel, FunctionSpec,
    HostData, HostKeeper, HostSlot, HostValues, PacketContext, RuleInfo, RuleSource, RulesError, SlotState,
    WorkerState, slot_as,
};
use bartizan_packet::{TcpFlags, TransportLayer};
use core::net::IpAddr;
use core::ops::RangeInclusive;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::VecDeque;
use std::sync::Arc;

/// The specification of the function.
pub static SPEC: FunctionSpec = FunctionSpec {
    name: "portscan",
    summary: "Detects hosts that scan ports or sweep networks by their failed attempts; alerts, or drops the flows that they open.",
    model: FunctionModel::StatefulHeaders,
    // Before the functions that refuse: packets that they drop have no reply, and count.
    runs_after: &["gate"],
    runs_before: &["pfw", "sfw", "ids"],
    header_half: None,
    host_slot: Some(HostSlot { version: 1, held_max: ATTEMPTS_MAX * size_of::<Attempt>() }),
    counters: &[
        FunctionCounter { name: "refused", help: "Failed attempts, and probes that open no connection." },
        FunctionCounter { name: "scans", help: "Scans and sweeps reported." },
        FunctionCounter { name: "dropped", help: "Packets dropped." },
        FunctionCounter {
            name: "untracked",
            help: "Attempts not counted: the host table had no room for their source.",
        },
    ],
};

/// The action on a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Action")]
pub enum PortscanAction {
    /// The scan is reported.
    #[default]
    Alert,
    /// The scan is reported, and packets with which its source opens flows are dropped for some time.
    Drop,
}

/// Section `portscan`: the definition of a scan.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Section")]
pub struct PortscanSection {
    /// Number of ports of one host, with failed attempts within the window, that make a port scan: 2 to 100.
    #[serde(default = "default_count")]
    pub ports: u16,
    /// Number of hosts, with failed attempts on one port within the window, that make a sweep: 2 to 100.
    #[serde(default = "default_count")]
    pub hosts: u16,
    /// The window: 1s to 1h.
    #[serde(default = "a_minute")]
    pub window: Seconds,
    /// The action on a scan.
    #[serde(default)]
    pub action: PortscanAction,
    /// With `drop`: time for which new flows of the source are dropped, counted from each finding; 0s: only
    /// the current packet is dropped.
    #[serde(default = "a_minute")]
    pub block: Seconds,
}

const fn default_count() -> u16 {
    20
}

const fn a_minute() -> Seconds {
    Seconds(60)
}

/// Most attempts kept of a source; the oldest is dropped.
pub(crate) const ATTEMPTS_MAX: usize = 128;
/// Least and greatest number of ports or hosts in a policy: somewhat fewer than are kept.
pub(crate) const COUNTS: RangeInclusive<u16> = 2..=100;
/// Shortest and longest window, in seconds.
pub(crate) const WINDOWS: RangeInclusive<u64> = 1..=3_600;
/// Time after which a SYN without a reply has failed.
const ANSWER: PacketDuration = PacketDuration::from_secs(3);
/// Time after which a second SYN is a retry of the same connection, not one of several at a time.
const RETRY: PacketDuration = PacketDuration::from_millis(900);

/// The state of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttemptState {
    Open,
    Unanswered,
    Refused,
}

/// An attempt of a source on a port of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attempt {
    at: Timestamp,
    host: IpAddr,
    port: u16,
    protocol: u8,
    outcome: AttemptState,
    again: bool,
}

impl Attempt {
    fn is_of(&self, (protocol, host, port): ScanTarget) -> bool {
        (self.protocol, self.host, self.port) == (protocol, host, port)
    }

    /// Whether the attempt counts for a sweep. Browsers try IPv6 first and continue without it: one SYN to
    /// each server.
    fn sweeps(&self) -> bool {
        self.outcome == AttemptState::Refused || self.again || !matches!(self.port, 80 | 443)
    }
}

/// Protocol, host and port.
type ScanTarget = (u8, IpAddr, u16);

/// Kinds of scans: of ports and of hosts, by TCP and by UDP.
const KINDS: usize = 4;

/// A scan, as found in the source's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scan {
    sweep: bool,
    target: ScanTarget,
    count: u16,
}

impl Scan {
    const fn kind(&self) -> usize {
        2 * (self.target.0 == 17) as usize + self.sweep as usize
    }
}

/// The record of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanSource {
    /// Attempts in the order of their time.
    attempts: VecDeque<Attempt>,
    /// A bit for each host that answered, by its hash, in this half of the window and in the previous one.
    answered: [[u64; 4]; 2],
    half: Timestamp,
    /// Time of the last report for each kind of scan.
    reported: [Option<Timestamp>; KINDS],
    blocked: Timestamp,
    seen: Timestamp,
    /// The longest configured window.
    window: PacketDuration,
    forgotten: u32,
}

impl HostValue for ScanSource {
    fn keep_until(&mut self, now: Timestamp) -> Timestamp {
        while self.attempts.front().is_some_and(|oldest| oldest.at + self.window <= now) {
            self.attempts.pop_front();
        }
        (self.seen + self.window).max(self.blocked)
    }

    fn take_refused(&mut self) -> u64 {
        u64::from(core::mem::take(&mut self.forgotten))
    }
}

/// The bit of a host among those that answered.
fn bit_of(host: IpAddr) -> (usize, u64) {
    let number = match host {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    };
    let mixed = ((number >> 64) as u64 ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    ((mixed >> 6) as usize, 1 << (mixed & 63))
}

fn ones(bits: [u64; 4]) -> u32 {
    bits.iter().map(|word| word.count_ones()).sum()
}

impl ScanSource {
    /// Notes activity of the source.
    fn touch(&mut self, section: &PortscanSection, now: Timestamp) {
        self.seen = self.seen.max(now);
        self.window = self.window.max(PacketDuration::from_secs(section.window.0));
        let half = PacketDuration::from_nanos(self.window.as_nanos() / 2);
        if now >= self.half + half {
            let [this, _] = self.answered;
            let before = if now >= self.half + self.window { [0; 4] } else { this };
            (self.answered, self.half) = ([[0; 4], before], now);
        }
    }

    /// Adds an attempt. Returns scans, which may be due to attempts that have no reply by now.
    fn tries(
        &mut self,
        section: &PortscanSection,
        target: ScanTarget,
        outcome: AttemptState,
        now: Timestamp,
    ) -> Vec<Scan> {
        self.touch(section, now);
        // Before the new attempt, which may evict the oldest.
        let unanswered = self.fail_unanswered(now);
        let (protocol, host, port) = target;
        match self.attempts.iter_mut().find(|attempt| attempt.is_of(target)) {
            Some(known) => {
                known.again |= now >= known.at + RETRY;
                if outcome == AttemptState::Refused {
                    known.outcome = outcome;
                }
            }
            None => {
                if self.attempts.len() >= ATTEMPTS_MAX {
                    self.attempts.pop_front();
                    self.forgotten += 1;
                }
                self.attempts.push_back(Attempt { at: now, host, port, protocol, outcome, again: false });
            }
        }
        let refused = (outcome == AttemptState::Refused).then_some(target);
        self.check_limits(section, [unanswered, refused], now)
    }

    /// Marks attempts without a reply in time as failed. Returns the latest of them.
    fn fail_unanswered(&mut self, now: Timestamp) -> Option<ScanTarget> {
        let mut latest = None;
        for attempt in &mut self.attempts {
            if attempt.at + ANSWER > now {
                break;
            }
            if attempt.outcome == AttemptState::Open {
                attempt.outcome = AttemptState::Unanswered;
                latest = Some((attempt.protocol, attempt.host, attempt.port));
            }
        }
        latest
    }

    /// Checks whether the ports of these targets' hosts, or the hosts on their ports, exceed the limits.
    fn check_limits(
        &mut self,
        section: &PortscanSection,
        targets: [Option<ScanTarget>; 2],
        now: Timestamp,
    ) -> Vec<Scan> {
        let mut found = Vec::new();
        let enough = usize::from(section.ports.min(section.hosts));
        if self.attempts.len() < enough {
            return found;
        }
        let window = PacketDuration::from_secs(section.window.0);
        let blocks = section.action == PortscanAction::Drop;
        for target in targets.into_iter().flatten() {
            let (protocol, host, port) = target;
            let (mut ports, mut hosts, mut failed) = (0, 0, [0; 4]);
            let counts = |a: &&Attempt| {
                a.outcome != AttemptState::Open && a.protocol == protocol && a.at + window > now
            };
            for attempt in self.attempts.iter().filter(counts) {
                ports += u16::from(attempt.host == host);
                if attempt.port == port && attempt.sweeps() {
                    hosts += 1;
                    let (word, bit) = bit_of(attempt.host);
                    failed.get_mut(word).into_iter().for_each(|w: &mut u64| *w |= bit);
                }
            }
            let [this, before] = self.answered;
            let answered: [u64; 4] = core::array::from_fn(|i| {
                this.get(i).copied().unwrap_or(0) | before.get(i).copied().unwrap_or(0)
            });
            let sweeps = hosts >= section.hosts && ones(failed) >= ones(answered);
            for scan in [
                (ports >= section.ports).then_some(Scan { sweep: false, target, count: ports }),
                sweeps.then_some(Scan { sweep: true, target, count: hosts }),
            ] {
                let Some(scan) = scan else { continue };
                let Some(told) = self.reported.get_mut(scan.kind()) else { continue };
                // A scan that was only reported is reported again by a policy that drops scans: blocked
                // sources were reported before the end of their block.
                let only_told = |told| blocks && told > self.blocked;
                if told.is_none_or(|told| now >= told + window || only_told(told)) {
                    *told = Some(now);
                    found.push(scan);
                    if blocks {
                        self.blocked = now + PacketDuration::from_secs(section.block.0);
                    }
                }
            }
        }
        found
    }

    /// Notes a reply of a host to the source.
    fn is_answered(&mut self, section: &PortscanSection, target: ScanTarget, now: Timestamp) {
        self.touch(section, now);
        if let Some(place) = self.attempts.iter().position(|attempt| attempt.is_of(target)) {
            self.attempts.remove(place);
        }
        let ((word, bit), [this, _]) = (bit_of(target.1), &mut self.answered);
        this.get_mut(word).into_iter().for_each(|w| *w |= bit);
    }
}

/// Little endian: times of half, block, last packet and window, those of the kinds (0: never reported), bits,
/// then the attempts.
impl HostData for ScanSource {
    fn export(&self, out: &mut Vec<u8>) {
        let told = self.reported.map(|told| told.unwrap_or_default().as_nanos());
        let times =
            [self.half.as_nanos(), self.blocked.as_nanos(), self.seen.as_nanos(), self.window.as_nanos()];
        let bits = self.answered.iter().flatten().copied();
        times.into_iter().chain(told).chain(bits).for_each(|word| out.extend(word.to_le_bytes()));
        for attempt in &self.attempts {
            out.extend(attempt.at.as_nanos().to_le_bytes());
            match attempt.host {
                IpAddr::V4(v4) => out.extend([&[4][..], &v4.octets()].concat()),
                IpAddr::V6(v6) => out.extend([&[6][..], &v6.octets()].concat()),
            }
            out.extend(attempt.port.to_le_bytes());
            out.extend([attempt.protocol, attempt.outcome as u8, u8::from(attempt.again)]);
        }
    }

    fn import(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let mut words = [0u64; 16];
        for word in &mut words {
            *word = cursor.array().map(u64::from_le_bytes)?;
        }
        let time = Timestamp::from_nanos;
        let [half, blocked, seen, window, t0, t1, t2, t3, a0, a1, a2, a3, b0, b1, b2, b3] = words;
        let told = [t0, t1, t2, t3].map(|told| (told != 0).then_some(time(told)));
        let mut source = ScanSource {
            answered: [[a0, a1, a2, a3], [b0, b1, b2, b3]],
            half: time(half),
            reported: told,
            blocked: time(blocked),
            seen: time(seen),
            window: PacketDuration::from_nanos(window),
            ..ScanSource::default()
        };
        while !cursor.is_empty() {
            let at = time(cursor.array().map(u64::from_le_bytes)?);
            let host = match cursor.u8()? {
                4 => IpAddr::from(cursor.array::<4>()?),
                6 => IpAddr::from(cursor.array::<16>()?),
                _ => return None,
            };
            let (port, protocol) = (cursor.u16_le()?, cursor.u8()?);
            let outcome = match cursor.u8()? {
                0 => AttemptState::Open,
                1 => AttemptState::Unanswered,
                2 => AttemptState::Refused,
                _ => return None,
            };
            let again = cursor.u8()? != 0;
            source.attempts.push_back(Attempt { at, host, port, protocol, outcome, again });
        }
        (source.attempts.len() <= ATTEMPTS_MAX).then_some(source)
    }
}

/// The kind of function `portscan`: builds it from its rules.
#[derive(Debug, Default)]
pub struct PortscanKind;

impl FunctionKind for PortscanKind {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn rules(&self, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>> {
        let (_, classes) = classes::read::<PortscanSection>(SPEC.name, source)?;
        let mut errors = Vec::new();
        for (index, made) in classes.iter().enumerate() {
            let (class, path) = (&made.class, classes::path(index));
            for (key, count) in [("ports", class.rules.ports), ("hosts", class.rules.hosts)] {
                if !COUNTS.contains(&count) {
                    let (least, most) = COUNTS.into_inner();
                    let message = format!("{count} is out of range; use {least} to {most}");
                    errors.push(classes::error(SPEC.name, format!("{path}/{key}"), message));
                }
            }
            if !WINDOWS.contains(&class.rules.window.0) {
                let [least, most] = [WINDOWS.start(), WINDOWS.end()].map(|seconds| Seconds(*seconds));
                let message =
                    format!("`window` {} is out of range; use {least} to {most}", class.rules.window);
                errors.push(classes::error(SPEC.name, format!("{path}/window"), message));
            }
        }
        // The table is that of the generation before, with all that it knows.
        let sources = source.hosts.of::<ScanSource>(&SPEC);
        match sources.filter(|_| errors.is_empty()) {
            Some(sources) => {
                let by_fid = ByFid::new(&classes);
                let sections = classes.iter().map(|made| Arc::clone(&made.class.rules)).collect();
                Ok(Box::new(Portscan { id: source.id, sections, by_fid, sources, rules: rules() }))
            }
            None => Err(errors),
        }
    }

    fn changeable(&self) -> &'static [&'static str] {
        &["ports", "hosts", "window", "action", "block"]
    }

    fn section_schema(&self) -> Option<serde_json::Value> {
        Some(classes::schema::<PortscanSection>())
    }
}

/// The rules of alerts, by kind. Generator and numbers are those of Snort's detector.
fn rules() -> [Arc<RuleInfo>; KINDS] {
    let rule = |sid, message: &str| {
        Arc::new(RuleInfo {
            id: RuleId { gid: 122, sid, rev: 1 },
            message: message.to_owned(),
            category: "Detection of a Network Scan".to_owned(),
            severity: 3,
            ..RuleInfo::default()
        })
    };
    [
        rule(1, "portscan: TCP port scan"),
        rule(3, "portscan: TCP sweep"),
        rule(17, "portscan: UDP port scan"),
        rule(19, "portscan: UDP sweep"),
    ]
}

/// The function with the rules of one generation.
pub struct Portscan {
    id: FunctionId,
    sections: Vec<Arc<PortscanSection>>,
    by_fid: ByFid,
    sources: Arc<HostValues<ScanSource>>,
    rules: [Arc<RuleInfo>; KINDS],
}

/// Counters of a worker.
#[derive(Debug, Default)]
struct PortscanCounts {
    refused: u64,
    scans: u64,
    dropped: u64,
    untracked: u64,
}

/// The state of a dropped flow: the end of the block. Other flows have none.
#[derive(Debug)]
struct Dropped(Timestamp);

impl SlotState for Dropped {}

/// The meaning of a packet for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttemptEffect {
    /// None.
    Nothing,
    /// None, and neither has any later packet of the flow.
    NoMore,
    /// It opens: a SYN, the first datagram.
    Opens,
    /// It is a probe that opens nothing.
    Probes,
    /// It refuses the source's attempt.
    Refuses,
    /// It answers the source's attempt.
    Answers,
}

/// Whether an ICMP message reports an unreachable destination, except for the size of a packet.
fn is_unreachable(transport: &TransportLayer) -> bool {
    match transport {
        TransportLayer::Icmp(icmp) => icmp.kind == 3 && icmp.code != 4,
        TransportLayer::Icmpv6(icmp) => icmp.kind == 1,
        _ => false,
    }
}

/// The meaning of a packet for its flow's attempt.
fn classify(context: &PacketContext<'_>, flow: &FlowView<'_>, transport: &TransportLayer) -> AttemptEffect {
    let to_client = context.facts.direction == Direction::ToClient;
    let state = flow.tcp.map(|session| session.state());
    if context.notes.related.is_some() {
        // An error about the other side's packet, or about an established connection, refuses no attempt.
        let open = if flow.protocol == 6 { state == Some(TcpState::SynSent) } else { !flow.established };
        return if to_client && open && is_unreachable(transport) {
            AttemptEffect::Refuses
        } else {
            AttemptEffect::Nothing
        };
    }
    let first = flow.packets.to_server + flow.packets.to_client == 1;
    match transport {
        TransportLayer::Tcp(tcp) => {
            let has = |flag| tcp.flags.contains(flag);
            let sent = context.notes.tcp.is_some_and(|outcome| outcome.previous == TcpState::SynSent);
            // Only an answered connection, or one followed from one side: a scanner's own acknowledgement
            // proves nothing.
            let open = state.is_some_and(|state| state >= TcpState::SynRecv);
            match (to_client, has(TcpFlags::SYN), has(TcpFlags::ACK), has(TcpFlags::RST)) {
                (false, true, false, false) => AttemptEffect::Opens,
                (false, false, false, false) if first => AttemptEffect::Probes,
                (false, _, true, false) if open => AttemptEffect::Answers,
                (true, _, _, true) if sent => AttemptEffect::Refuses,
                (true, true, true, false) => AttemptEffect::Answers,
                (true, ..) => AttemptEffect::NoMore,
                _ => AttemptEffect::Nothing,
            }
        }
        TransportLayer::Udp(_) if flow.established => AttemptEffect::Answers,
        TransportLayer::Udp(_) if first => AttemptEffect::Opens,
        TransportLayer::Udp(_) => AttemptEffect::Nothing,
        _ => AttemptEffect::NoMore,
    }
}

impl Portscan {
    /// Updates the source's record by a packet. Returns the scans found, and the end of the source's block.
    fn update_source(
        &self,
        section: &PortscanSection,
        tenant: TenantId,
        source: IpAddr,
        target: ScanTarget,
        meaning: AttemptEffect,
        now: Timestamp,
    ) -> Option<(Vec<Scan>, Timestamp)> {
        let key = HostKey::host(tenant, source);
        let udp = target.0 == 17;
        let drops = section.action == PortscanAction::Drop;
        match meaning {
            // A datagram alone is nothing: its refusal counts.
            AttemptEffect::Opens if udp && !drops => Some((Vec::new(), Timestamp::ZERO)),
            AttemptEffect::Opens if udp => {
                let blocked = self.sources.if_there(&key, now, |known| known.blocked);
                Some((Vec::new(), blocked.unwrap_or_default()))
            }
            AttemptEffect::Answers => {
                let answered = |known: &mut ScanSource| known.is_answered(section, target, now);
                self.sources.with(&key, now, answered).ok()?;
                Some((Vec::new(), Timestamp::ZERO))
            }
            _ => {
                let outcome =
                    if meaning == AttemptEffect::Opens { AttemptState::Open } else { AttemptState::Refused };
                let tries = |known: &mut ScanSource| {
                    // Dropped packets have no reply because they are dropped.
                    if drops && meaning != AttemptEffect::Refuses && known.blocked > now {
                        return (Vec::new(), known.blocked);
                    }
                    (known.tries(section, target, outcome, now), Timestamp::ZERO)
                };
                self.sources.with(&key, now, tries).ok()
            }
        }
    }

    /// Reports scans. Returns whether the packet is to be dropped.
    fn report(
        &self,
        section: &PortscanSection,
        source: IpAddr,
        scans: &[Scan],
        context: &mut PacketContext<'_>,
    ) -> bool {
        let drops = section.action == PortscanAction::Drop && !scans.is_empty();
        let action =
            if drops && context.facts.prevention { FindingAction::Blocked } else { FindingAction::Allowed };
        for scan in scans {
            let Some(rule) = self.rules.get(scan.kind()) else { continue };
            let (_, host, port) = scan.target;
            let (what, of, tried) = match scan.sweep {
                true => ("hosts", "port", port.to_string()),
                false => ("ports", "host", format!("\"{host}\"")),
            };
            let (count, window) = (scan.count, section.window.0);
            let said = format!(
                r#"{{"portscan":{{"source":"{source}","{of}":{tried},"{what}":{count},"window":{window}}}}}"#
            );
            let mut finding = Finding::new(Arc::clone(rule), action);
            finding.context = Some(said.into_bytes().into_boxed_slice());
            context.findings.push(finding);
        }
        drops
    }

    fn refuse(&self, counts: &mut PortscanCounts) -> Decision {
        counts.dropped += 1;
        Decision::refuse(Verdict::Drop, Reason::Portscan, self.id)
    }

    fn judge(
        &self,
        section: &PortscanSection,
        context: &mut PacketContext<'_>,
        counts: &mut PortscanCounts,
    ) -> Decision {
        let (Some(flow), Some(packet)) = (context.facts.flow, context.facts.packet) else {
            return Decision::CONTINUE;
        };
        if let Some(Dropped(until)) = slot_as(context.slot) {
            if context.facts.now < *until {
                return self.refuse(counts);
            }
            *context.slot = None;
        }
        let said = classify(context, flow, &packet.decoded().transport);
        if said == AttemptEffect::Nothing || said == AttemptEffect::NoMore {
            return Decision { done: said == AttemptEffect::NoMore, ..Decision::CONTINUE };
        }
        let (source, target) = (flow.client.0, (flow.protocol, flow.server.0, flow.server.1));
        let Some((scans, blocked)) =
            self.update_source(section, flow.tenant, source, target, said, context.facts.now)
        else {
            counts.untracked += 1;
            return Decision::CONTINUE;
        };
        counts.refused += u64::from(matches!(said, AttemptEffect::Refuses | AttemptEffect::Probes));
        counts.scans += scans.len() as u64;
        if blocked > context.facts.now {
            *context.slot = Some(Box::new(Dropped(blocked)));
            return self.refuse(counts);
        }
        if self.report(section, source, &scans, context) {
            return self.refuse(counts);
        }
        // Answered or refused attempts are known as such.
        Decision {
            done: matches!(said, AttemptEffect::Answers | AttemptEffect::Refuses),
            ..Decision::CONTINUE
        }
    }
}

impl Function for Portscan {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn id(&self) -> FunctionId {
        self.id
    }

    fn worker(&self) -> WorkerState {
        Box::new(PortscanCounts::default())
    }

    fn packet(&self, context: &mut PacketContext<'_>) -> Decision {
        let section = self.by_fid.get(context.notes.fid).and_then(|place| self.sections.get(place));
        let Some(section) = section else { return Decision::CONTINUE };
        let mut counts = PortscanCounts::default();
        let decision = self.judge(section, context, &mut counts);
        if let Some(sum) = context.worker.downcast_mut::<PortscanCounts>() {
            sum.refused += counts.refused;
            sum.scans += counts.scans;
            sum.dropped += counts.dropped;
            sum.untracked += counts.untracked;
        }
        decision
    }

    fn hosts(&self) -> Option<Arc<dyn HostKeeper>> {
        Some(Arc::clone(&self.sources) as Arc<dyn HostKeeper>)
    }

    fn log(&self, worker: &WorkerState, each: &mut dyn FnMut(&'static str, u64)) {
        let Some(counts) = worker.downcast_ref::<PortscanCounts>() else { return };
        each("refused", counts.refused);
        each("scans", counts.scans);
        each("dropped", counts.dropped);
        each("untracked", counts.untracked);
    }
}

#[cfg(test)]
#[path = "portscan_tests.rs"]
mod tests;
