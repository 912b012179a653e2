// SPDX-License-Identifier: Apache-2.0
//! The settings of the data plane, read from Suricata's.

use crate::app_memory::AppMemoryLimits;
use crate::hosts::HostPolicies;
use crate::lifecycle::RestartBounds;
use bartizan_applayer::flow::HoldBounds;
use bartizan_applayer::protocol::{ProtocolId, ProtocolSpec};
use bartizan_applayer::protocols;
use bartizan_base::{PacketDuration, SettingError, SettingsMap, Spread};
use bartizan_flow::rate::RateLimit;
use bartizan_flow::tcp::{ExceptionPolicy, StreamConfig, StreamMode, UrgentPolicy};
use bartizan_flow::{FlowTimeouts, WhenFull};
use bartizan_packet::defrag::DefragConfig;
use bartizan_packet::{DecoderConfig, PortList, TunnelPorts};

/// The treatment of wrong checksums in captured packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumMode {
    /// Packets with a wrong checksum are not tracked.
    Check,
    /// Checksums are not checked.
    Ignore,
    /// Checksums are checked, until a sample shows that the capture was taken before a device computes them
    /// (offload).
    Auto,
}

/// Settings of a worker.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Decoder.
    pub decoder: DecoderConfig,
    /// Defragmentation.
    pub defrag: DefragConfig,
    /// TCP.
    pub stream: StreamConfig,
    /// Timeouts of flows.
    pub timeouts: FlowTimeouts,
    /// Entries of the flow table.
    pub flow_capacity: u32,
    /// The policy that makes room in a full flow table.
    pub flows_when_full: WhenFull,
    /// Most flows that end by timeout for each packet.
    pub ends_per_packet: u32,
    /// The policy for packets whose flow finds no room.
    pub flow_memory: ExceptionPolicy,
    /// The policy for a flow whose application-layer parser fails.
    pub app_error: ExceptionPolicy,
    /// Policies that refuse flows of protocols which are recognised and not parsed.
    pub unparsed: Vec<UnparsedPolicy>,
    /// Bounds on bytes that prevention holds while the protocol that a rule needs is undecided.
    pub hold: HoldBounds,
    /// At these bounds the flow is refused; otherwise it continues without a known protocol, and rules may
    /// refuse it.
    pub hold_refuses: bool,
    /// Bounds of the memory of application layers.
    pub app_memory: AppMemoryLimits,
    /// The policy for a flow whose application layer is closed because this memory is exhausted, unless the
    /// flow's own policy sets another.
    pub app_memory_policy: ExceptionPolicy,
    /// VLAN ids are part of a flow's key.
    pub vlan_in_key: bool,
    /// Tunnel depth and tunnel id are part of a flow's key.
    pub tunnel_in_key: bool,
    /// The side of an inline link on which a packet arrived is part of a flow's key
    /// ([`EngineSettings::between_two_sides`]).
    pub side_in_key: bool,
    /// The rate above which a flow is an elephant flow (`flow.rate-tracking`); `None`: rates are not tracked.
    pub flow_rate: Option<RateLimit>,
    /// Host policies.
    pub hosts: HostPolicies,
    /// Checksums.
    pub checksums: ChecksumMode,
    /// Refusals are enforced.
    pub prevention: bool,
    /// Firewall mode: packets that no firewall rule accepts are refused.
    pub firewall: bool,
    /// Stream events are part of the statistics (`stats.stream-events`).
    pub count_stream_events: bool,
    /// Ethernet addresses of flows are kept for their records (`ethernet` of some eve-log output).
    pub keep_macs: bool,
    /// Bounds on restarts of failed functions.
    pub restarts: RestartBounds,
    /// Seed of the keyed hashes.
    pub seed: [u64; 2],
}

impl EngineSettings {
    /// The assignment of flows to `workers` workers: by the parts of the key that do not depend on policies.
    #[must_use]
    pub fn spread(&self, workers: u16) -> Spread {
        Spread::new(self.seed, workers).counting(self.vlan_in_key, self.tunnel_in_key)
    }

    /// Reads the settings. `prevention`: inline, or its simulation over captures. Also returns warnings.
    ///
    /// # Errors A value is malformed.
    pub fn from_settings(
        settings: &SettingsMap,
        prevention: bool,
        seed: [u64; 2],
    ) -> Result<(Self, Vec<String>), SettingError> {
        let (hosts, unread) = HostPolicies::from_settings(settings);
        let warnings =
            unread.into_iter().map(|u| format!("{u}: not an address or network; it is ignored")).collect();
        let result = EngineSettings {
            decoder: decoder(settings)?,
            defrag: defrag(settings, prevention, seed)?,
            stream: stream(settings, prevention)?,
            timeouts: timeouts(settings)?,
            flow_capacity: flow_capacity(settings)?,
            flows_when_full: WhenFull::Evict { quiet: PacketDuration::ZERO },
            ends_per_packet: ENDS_REPLAYED,
            flow_memory: policy(settings, "flow.memcap-policy", prevention)?,
            app_error: policy(settings, "app-layer.error-policy", prevention)?,
            unparsed: unparsed(settings, prevention)?,
            hold: HoldBounds {
                bytes: settings.number("app-layer.hold.bytes", HOLD_BYTES)?,
                time: PacketDuration::from_millis(
                    settings.number("app-layer.hold.milliseconds", HOLD_MILLIS)?,
                ),
            },
            hold_refuses: match settings.get("app-layer.hold.policy") {
                None | Some("inspect") => false,
                Some("drop-flow") => true,
                Some(other) => return Err(error("app-layer.hold.policy", other, "inspect or drop-flow")),
            },
            app_memory: app_memory(settings)?,
            app_memory_policy: policy(settings, "app-layer.memcap-policy", prevention)?,
            vlan_in_key: settings.bool("vlan.use-for-tracking", true)?,
            tunnel_in_key: settings.bool("decoder.recursion-level.use-for-tracking", true)?,
            side_in_key: false,
            flow_rate: flow_rate(settings)?,
            hosts,
            checksums: checksums(settings)?,
            prevention,
            firewall: settings.bool("firewall.enabled", false)?,
            count_stream_events: settings.bool("stats.stream-events", false)?,
            keep_macs: keep_macs(settings)?,
            restarts: restarts(settings)?,
            seed,
        };
        Ok((result, warnings))
    }

    /// The settings for live links, where packets cannot wait.
    #[must_use]
    pub const fn for_live_links(mut self) -> Self {
        self.ends_per_packet = ENDS_LIVE;
        self
    }

    /// Settings for traffic across a link with two sides, when the caller names the side of each frame
    /// (`Worker::arrives_by`). A host then cannot spoof its peer: packets that acknowledge, reply or reset in
    /// the peer's name arrive on the wrong side and so belong to another flow. Without the side, the engine
    /// would believe packets that their receiver never gets.
    #[must_use]
    pub const fn between_two_sides(mut self) -> Self {
        self.side_in_key = true;
        self
    }

    /// Whether forwarded packets reach receivers: in prevention, except its simulation over captures.
    #[must_use]
    pub const fn has_real_receivers(&self) -> bool {
        self.prevention && self.stream.strict
    }

    /// Settings of live prevention that differ from Suricata's. Its receivers are real, so segments which
    /// they may read in another way than inspection are dropped ([`StreamConfig::strict`]). `urgent`: the
    /// settings leave the treatment of urgent bytes open; they are inspected in their place, and the
    /// normaliser clears the flag, so that receivers read them there. (The bytes that a receiver takes out of
    /// band cannot be known from outside.) Fragments are held until their datagram may leave
    /// ([`DefragConfig::hold`]). Open connections are kept while there is room, since connections picked up
    /// in the middle are refused ([`FlowTimeouts::keeping_idle_tcp`]). Checksums count unless the settings
    /// exclude them: no sample decides.
    #[must_use]
    pub fn for_real_receivers(mut self, urgent: bool) -> Self {
        self.stream.strict = true;
        self.defrag.hold = true;
        // The sender of the first thousand segments controls what a sample shows.
        if self.checksums == ChecksumMode::Auto {
            self.checksums = ChecksumMode::Check;
        }
        self.timeouts = self.timeouts.keeping_idle_tcp();
        if urgent {
            self.stream.reassembly.urgent = UrgentPolicy::Inline;
        }
        self
    }
}

/// Held bytes are the beginning of a pattern or probe, some ten bytes; this bound exceeds all of them.
const HOLD_BYTES: u32 = 1_024;
/// Shorter than the first retransmission timeout of common TCP stacks (200 ms); the retransmission is
/// forwarded.
const HOLD_MILLIS: u64 = 150;

/// In captures all flows that are due end with the packet at which they are due, in the order in which they
/// began, so that the result is the same with any number of workers.
pub const ENDS_REPLAYED: u32 = u32::MAX;
/// Maximum number of flows that end per packet on a live link: more than a packet can open, so that the
/// number of due flows decreases with each packet, and few, so that no packet waits for the ends of a
/// thousand flows (as many are due at once when a flood fills the table and timeouts shorten).
pub const ENDS_LIVE: u32 = 2;

fn error(key: &str, value: &str, expected: &'static str) -> SettingError {
    SettingError { key: key.to_owned(), value: value.to_owned(), expected }
}

fn restarts(settings: &SettingsMap) -> Result<RestartBounds, SettingError> {
    let usual = RestartBounds::default();
    let seconds = |key: &str, usual: PacketDuration| {
        settings.number(key, usual.as_secs()).map(PacketDuration::from_secs)
    };
    Ok(RestartBounds {
        attempts: settings.number("functions.restart.attempts", usual.attempts)?,
        first: seconds("functions.restart.first", usual.first)?,
        longest: seconds("functions.restart.longest", usual.longest)?,
        steady: seconds("functions.restart.steady", usual.steady)?,
    })
}

fn keep_macs(settings: &SettingsMap) -> Result<bool, SettingError> {
    for item in settings.children("outputs") {
        if settings.bool(&format!("outputs.{item}.eve-log.ethernet"), false)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn checksums(settings: &SettingsMap) -> Result<ChecksumMode, SettingError> {
    let key = "capture.checksum-validation";
    match settings.get(key) {
        Some("none") => return Ok(ChecksumMode::Ignore),
        Some("all") => return Ok(ChecksumMode::Check),
        Some(other) => return Err(error(key, other, "`none` or `all`")),
        None => {}
    }
    let key = "pcap-file.checksum-checks";
    match settings.get(key) {
        None | Some("auto") => Ok(ChecksumMode::Auto),
        Some(text) => match bartizan_base::parse_bool(text) {
            Some(true) => Ok(ChecksumMode::Check),
            Some(false) => Ok(ChecksumMode::Ignore),
            None => Err(error(key, text, "yes, no or auto")),
        },
    }
}

fn decoder(settings: &SettingsMap) -> Result<DecoderConfig, SettingError> {
    let built_in = DecoderConfig::built_in();
    let tunnel = |name: &str, default: TunnelPorts| -> Result<TunnelPorts, SettingError> {
        let enabled = settings.bool(&format!("decoder.{name}.enabled"), default.enabled)?;
        let ports = match ports(settings, &format!("decoder.{name}.ports"))? {
            Some(list) => PortList::new(&list),
            None => default.ports,
        };
        Ok(TunnelPorts { enabled, ports })
    };
    Ok(DecoderConfig {
        max_layers: settings.number("decoder.max-layers", built_in.max_layers)?,
        teredo: tunnel("teredo", built_in.teredo)?,
        vxlan: tunnel("vxlan", built_in.vxlan)?,
        geneve: tunnel("geneve", built_in.geneve)?,
        gtp: tunnel("gtp", built_in.gtp)?,
        vxlan_reserved: match settings.get("decoder.vxlan.reserved-bits-check") {
            None => built_in.vxlan_reserved,
            Some("permissive") => bartizan_packet::VxlanReservedBits::Permissive,
            Some("strict") => bartizan_packet::VxlanReservedBits::Strict,
            Some(other) => {
                return Err(error("decoder.vxlan.reserved-bits-check", other, "strict or permissive"));
            }
        },
        cut_frames: built_in.cut_frames,
    })
}

/// Ports of a list with `$VARIABLES` resolved. `None` for `any`.
fn ports(settings: &SettingsMap, key: &str) -> Result<Option<Vec<u16>>, SettingError> {
    let listed = || {
        let items: Vec<_> =
            settings.children(key).filter_map(|i| settings.get(&format!("{key}.{i}"))).collect();
        (!items.is_empty()).then(|| items.join(","))
    };
    let Some(given) = settings.get(key).map(str::to_owned).or_else(listed) else { return Ok(None) };
    let mut text = given.clone();
    for _ in 0..8 {
        let Some(name) = text.trim().strip_prefix('$') else { break };
        let Some(value) = settings.get(&format!("vars.port-groups.{name}")) else {
            return Err(error(
                key,
                &given,
                "a list of ports, or `$` and the name of one of vars.port-groups",
            ));
        };
        text = value.to_owned();
    }
    let inner = text.trim().trim_matches(['[', ']']).trim();
    if inner.is_empty() || inner.eq_ignore_ascii_case("any") {
        return Ok(None);
    }
    let list: Result<Vec<u16>, _> = inner.split(',').map(|port| port.trim().parse()).collect();
    list.map(Some).map_err(|_| error(key, &given, "a list of ports such as [4789, 4790]"))
}

fn defrag(settings: &SettingsMap, prevention: bool, seed: [u64; 2]) -> Result<DefragConfig, SettingError> {
    let default = DefragConfig::default();
    let memory = settings.size("defrag.memcap", default.memory as u64)?;
    Ok(DefragConfig {
        max_trackers: settings.number("defrag.trackers", default.max_trackers)?,
        max_fragments: settings.number("defrag.max-frags", default.max_fragments)?,
        memory: usize::try_from(memory).unwrap_or(usize::MAX),
        timeout: PacketDuration::from_secs(settings.number("defrag.timeout", 60)?),
        hash_seed: seed.iter().fold(0, |a, b| a ^ b),
        strict: prevention,
        ..default
    })
}

/// A timeout of 0 means "at the next sweep" in Suricata, which sweeps about once a second.
const TIMEOUT_MIN: u64 = 1;

fn timeouts(settings: &SettingsMap) -> Result<FlowTimeouts, SettingError> {
    let mut timeouts = FlowTimeouts::BUILT_IN;
    for protocol in ["default", "tcp", "udp", "icmp"] {
        for state in ["closed", "emergency-closed"] {
            let _ = timeouts.set(&format!("{protocol}.{state}"), PacketDuration::from_secs(TIMEOUT_MIN));
        }
    }
    for protocol in settings.children("flow-timeouts") {
        for state in settings.children(&format!("flow-timeouts.{protocol}")) {
            let key = format!("flow-timeouts.{protocol}.{state}");
            let seconds: u64 = settings.number(&key, 0)?;
            let name = format!("{protocol}.{state}");
            // Unknown names get the general warning about unused keys.
            let _ = timeouts.set(&name, PacketDuration::from_secs(seconds.max(TIMEOUT_MIN)));
        }
    }
    Ok(timeouts)
}

/// The approximate memory of a flow in Suricata's accounting; converts `flow.memcap` to a number of flows.
pub const SURICATA_FLOW_BYTES: u64 = 416;
/// Least capacity of a flow table, also if `flow.memcap` is smaller.
pub const FLOWS_LEAST: u32 = 1024;
/// Largest capacity of a worker's flow table, also if `flow.memcap` is larger.
pub const FLOWS_MOST: u32 = 1 << 24;

fn flow_capacity(settings: &SettingsMap) -> Result<u32, SettingError> {
    let memcap = settings.size("flow.memcap", 32 << 20)?;
    let flows = memcap / SURICATA_FLOW_BYTES;
    Ok(u32::try_from(flows).unwrap_or(u32::MAX).clamp(FLOWS_LEAST, FLOWS_MOST))
}

fn flow_rate(settings: &SettingsMap) -> Result<Option<RateLimit>, SettingError> {
    let (bytes, interval) = ("flow.rate-tracking.bytes", "flow.rate-tracking.interval");
    if settings.get(bytes).is_none() && settings.get(interval).is_none() {
        return Ok(None);
    }
    let limit = RateLimit { bytes: settings.size(bytes, 0)?, interval: settings.number(interval, 0)? };
    if limit.bytes == 0 {
        return Err(error(bytes, settings.get(bytes).unwrap_or_default(), "a size of at least one byte"));
    }
    if !(1..=RateLimit::INTERVAL_MAX).contains(&limit.interval) {
        return Err(error(interval, settings.get(interval).unwrap_or_default(), "seconds from 1 to 3600"));
    }
    Ok(Some(limit))
}

/// Default of `app-layer.memcap`: memory of all application layers together.
pub const APP_MEMORY: u64 = 256 << 20;

fn app_memory(settings: &SettingsMap) -> Result<AppMemoryLimits, SettingError> {
    let key = |name: &str| format!("app-layer.protocols.{name}.memcap");
    let by_protocol: Result<Vec<u64>, SettingError> =
        protocols::TABLE.iter().map(|spec| settings.size(&key(spec.name), 0)).collect();
    Ok(AppMemoryLimits { total: settings.size("app-layer.memcap", APP_MEMORY)?, by_protocol: by_protocol? })
}

fn policy(settings: &SettingsMap, key: &str, prevention: bool) -> Result<ExceptionPolicy, SettingError> {
    let general = "exception-policy";
    let own = settings.get(key).map(|text| (key, text));
    let (named, text) =
        own.or_else(|| settings.get(general).map(|text| (general, text))).unwrap_or((key, "auto"));
    let chosen = match text {
        "auto" => {
            // Prevention fails closed, detection fails open; where the settings allow midstream pickup, it is
            // no error.
            let picked_up = key.ends_with("midstream-policy") && settings.bool("stream.midstream", false)?;
            if prevention && !picked_up { ExceptionPolicy::DropFlow } else { ExceptionPolicy::Ignore }
        }
        "ignore" | "none" => ExceptionPolicy::Ignore,
        "pass-packet" => ExceptionPolicy::PassPacket,
        "pass-flow" => ExceptionPolicy::PassFlow,
        "bypass" => ExceptionPolicy::Bypass,
        "drop-packet" => ExceptionPolicy::DropPacket,
        "drop-flow" => ExceptionPolicy::DropFlow,
        "reject" => ExceptionPolicy::Reject,
        "reject-both" | "rejectboth" => ExceptionPolicy::RejectBoth,
        other => {
            let expected =
                "auto, ignore, pass-packet, pass-flow, bypass, drop-packet, drop-flow, reject or reject-both";
            return Err(error(named, other, expected));
        }
    };
    // Refusals need prevention.
    Ok(if chosen.refuses() && !prevention { ExceptionPolicy::Ignore } else { chosen })
}

/// The policy for flows of a protocol that is recognised and not parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnparsedPolicy {
    /// The protocol.
    pub protocol: ProtocolId,
    /// The policy.
    pub policy: ExceptionPolicy,
}

impl UnparsedPolicy {
    /// One policy for all such protocols.
    #[must_use]
    pub fn for_all(policy: ExceptionPolicy) -> Vec<UnparsedPolicy> {
        protocols::refusable().map(|(protocol, _)| UnparsedPolicy { protocol, policy }).collect()
    }
}

/// The key of the policy for a protocol that is recognised and not parsed.
#[must_use]
pub fn unparsed_key(spec: &ProtocolSpec) -> String {
    format!("app-layer.protocols.{}.policy", spec.name)
}

/// The policies for such protocols: unless the settings refuse one, it is forwarded, and rules on packets and
/// streams apply.
fn unparsed(settings: &SettingsMap, prevention: bool) -> Result<Vec<UnparsedPolicy>, SettingError> {
    let mut refused = Vec::new();
    for (protocol, spec) in protocols::refusable() {
        let key = unparsed_key(spec);
        let policy = match settings.get(&key) {
            None | Some("inspect") => continue,
            Some("drop-flow") => ExceptionPolicy::DropFlow,
            Some("reject") => ExceptionPolicy::Reject,
            Some(other) => return Err(error(&key, other, "inspect, drop-flow or reject")),
        };
        refused.push(UnparsedPolicy { protocol, policy });
    }
    // Refusals need prevention.
    Ok(if prevention { refused } else { Vec::new() })
}

fn urgent(settings: &SettingsMap, key: &str, default: UrgentPolicy) -> Result<UrgentPolicy, SettingError> {
    Ok(match settings.get(key) {
        None => default,
        Some("oob") => UrgentPolicy::OutOfBand,
        Some("inline") => UrgentPolicy::Inline,
        Some("drop") => UrgentPolicy::Drop,
        Some("gap") => UrgentPolicy::Gap,
        Some(other) => return Err(error(key, other, "oob, inline, drop or gap")),
    })
}

fn stream(settings: &SettingsMap, prevention: bool) -> Result<StreamConfig, SettingError> {
    let d = StreamConfig::default();
    let inline = match settings.get("stream.inline") {
        None | Some("auto") => prevention,
        Some(text) => {
            bartizan_base::parse_bool(text).ok_or_else(|| error("stream.inline", text, "yes, no or auto"))?
        }
    };
    let mut reassembly = d.reassembly;
    let key = |name: &str| format!("stream.reassembly.{name}");
    reassembly.memcap = settings.size(&key("memcap"), reassembly.memcap)?;
    reassembly.depth =
        u32::try_from(settings.size(&key("depth"), u64::from(reassembly.depth))?).unwrap_or(u32::MAX);
    let chunk = |name: &str, default: u16| -> Result<u16, SettingError> {
        Ok(u16::try_from(settings.size(&key(name), u64::from(default))?).unwrap_or(u16::MAX))
    };
    reassembly.toserver_chunk_size = chunk("toserver-chunk-size", reassembly.toserver_chunk_size)?;
    reassembly.toclient_chunk_size = chunk("toclient-chunk-size", reassembly.toclient_chunk_size)?;
    if inline {
        // Inline, the stream is inspected with each packet: rules see a window of this size, as in Suricata.
        let most = reassembly.toserver_chunk_size.max(reassembly.toclient_chunk_size);
        reassembly.raw_overlap = u32::from(most);
    }
    reassembly.raw = settings.bool(&key("raw"), reassembly.raw)?;
    reassembly.check_overlap_different_data =
        settings.bool(&key("check-overlap-different-data"), reassembly.check_overlap_different_data)?;
    reassembly.max_regions = settings.number(&key("max-regions"), reassembly.max_regions)?;
    reassembly.urgent = urgent(settings, &key("urgent.policy"), reassembly.urgent)?;
    reassembly.urgent_limit = urgent(settings, &key("urgent.oob-limit-policy"), reassembly.urgent_limit)?;
    reassembly.memcap_policy = policy(settings, &key("memcap-policy"), prevention)?;
    Ok(StreamConfig {
        memcap: settings.size("stream.memcap", d.memcap)?,
        memcap_policy: policy(settings, "stream.memcap-policy", prevention)?,
        checksum_validation: settings.bool("stream.checksum-validation", d.checksum_validation)?,
        midstream: settings.bool("stream.midstream", d.midstream)?,
        midstream_policy: policy(settings, "stream.midstream-policy", prevention)?,
        async_oneside: settings.bool("stream.async-oneside", d.async_oneside)?,
        one_sided: d.one_sided,
        mode: if inline { StreamMode::Inline } else { StreamMode::Passive },
        bypass: settings.bool("stream.bypass", d.bypass)?,
        drop_invalid: settings.bool("stream.drop-invalid", d.drop_invalid)?,
        strict: d.strict,
        max_syn_queued: settings.number("stream.max-syn-queued", d.max_syn_queued)?,
        max_synack_queued: settings.number("stream.max-synack-queued", d.max_synack_queued)?,
        liberal_timestamps: settings.bool("stream.liberal-timestamps", d.liberal_timestamps)?,
        reassembly,
    })
}
