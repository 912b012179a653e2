// SPDX-License-Identifier: Apache-2.0
//! Helpers for rules on packets built by hand: load rules, inspect packets, return the alerts.
#![allow(dead_code)]

use bartizan_base::{
    Direction, FunctionId, Generation, LinkId, PerDirection, SettingsMap, TenantId, Timestamp,
};
use bartizan_classify::Header;
use bartizan_detect::condition::ConditionContext;
use bartizan_detect::groups::{Groups, HeadGroup, RULES_MAX};
use bartizan_detect::inspect::{DetectWorker, Hit, InspectionInput, StreamWindow, inspect};
use bartizan_detect::ruleset::{LoadInput, Loaded, NEVER_WRITTEN, RuleSet, load};
use bartizan_detect::shared::Shared;
use bartizan_detect::txstate::FlowDetect;
use bartizan_detect::visibility::Visibility;
use bartizan_function::view::FlowView;
use bartizan_packet::{DecodeOutput, Decoder, DecoderConfig, LinkType, PacketView};
use bartizan_pattern::{Compiler, Config};
use bartizan_rules::RuleVariables;
use bartizan_testkit::packet::{Datagram, End, Ip, UDP};
use std::net::IpAddr;
use std::sync::Arc;

/// No rule alerted.
pub const NONE: [u32; 0] = [];

/// Loads rules without variables.
pub fn load_text(text: &str, settings: &SettingsMap, shared: &Arc<Shared>) -> Loaded {
    load_with(text, settings, shared, &RuleVariables::new())
}

/// Loads rules with variables.
pub fn load_with(
    text: &str,
    settings: &SettingsMap,
    shared: &Arc<Shared>,
    variables: &RuleVariables,
) -> Loaded {
    let compiler = Compiler::new(Config::default()).unwrap();
    let input = LoadInput {
        settings,
        variables,
        classifications: None,
        references: None,
        shared,
        compiler: &compiler,
        tenants: &[],
        known: None,
    };
    let file = bartizan_rules::parse_file(text.as_bytes(), "test.rules");
    load(&mut [file], &input).unwrap()
}

/// Findings about rules, without those about variables that no rule writes, which these tests intend.
pub fn complaints(loaded: &Loaded) -> Vec<String> {
    let wrong = loaded.diagnostics.iter().filter(|finding| finding.code != NEVER_WRITTEN);
    wrong.map(|finding| finding.message.clone()).collect()
}

/// Rules with ids from here on are not visible.
pub const HIDDEN: u32 = 1_000_000;

/// For each rule that alerts, a rule that passes the same traffic, with an id from [`HIDDEN`] on.
pub fn passing(rules: &str) -> String {
    let pass = |rule: &str| {
        let (head, rest) = rule.strip_prefix("alert ")?.split_once("sid:")?;
        let (sid, rest) = rest.split_once(';')?;
        Some(format!("pass {head}sid:{};{rest}\n", HIDDEN + sid.trim().parse::<u32>().ok()?))
    };
    rules.lines().filter_map(pass).collect()
}

/// A rule of UDP with options.
pub fn udp_rule(options: &str) -> String {
    format!("alert udp any any -> any any ({options} sid:1;)")
}

/// The refusal of a rule with these options: code and message; `None` if it loads.
pub fn refusal(options: &str) -> Option<(&'static str, String)> {
    let loaded = load_text(&udp_rule(options), &SettingsMap::new(), &Arc::default());
    loaded.diagnostics.iter().find(|d| d.code != NEVER_WRITTEN).map(|d| (d.code, d.message.clone()))
}

/// The refusal of a rule of HTTP with these options.
pub fn refusal_of_http(options: &str) -> Option<(&'static str, String)> {
    let rule = format!("alert http any any -> any any ({options} sid:1;)");
    let loaded = load_text(&rule, &SettingsMap::new(), &Arc::default());
    loaded.diagnostics.iter().find(|d| d.code != NEVER_WRITTEN).map(|d| (d.code, d.message.clone()))
}

/// Whether a rule with these options alerts on a datagram, over IPv4 and over IPv6 alike.
pub fn matches(options: &str, payload: &[u8]) -> bool {
    let of = |v6| {
        let mut lab = Lab::new(&udp_rule(options));
        lab.v6 = v6;
        !lab.send_to_server(payload).is_empty()
    };
    let four = of(false);
    assert_eq!(four, of(true), "IPv4 and IPv6 differ: {options}");
    four
}

/// Rules and one flow.
pub struct Lab {
    pub rules: RuleSet,
    groups: Groups,
    pub shared: Arc<Shared>,
    pub flow: FlowDetect,
    pub now: Timestamp,
    pub v6: bool,
    pub established: bool,
    pub packets: PerDirection<u64>,
    pub bytes: PerDirection<u64>,
    pub start: Timestamp,
    /// Last octet of client and server.
    pub hosts: (u8, u8),
    pub tenant: TenantId,
    /// The visible rules.
    pub visible: Option<Visibility>,
    pub generation: Generation,
    /// Packets belong to no flow.
    pub flowless: bool,
    worker: DetectWorker,
}

impl Lab {
    /// Loads rules; all of them must load.
    pub fn new(text: &str) -> Self {
        Self::with(text, &SettingsMap::new())
    }

    /// Loads rules with settings; all of them must load.
    pub fn with(text: &str, settings: &SettingsMap) -> Self {
        let shared = Arc::default();
        let loaded = load_text(text, settings, &shared);
        let said = complaints(&loaded);
        assert!(said.is_empty(), "{text}: {said:?}");
        let worker = DetectWorker::new(&loaded.rules);
        Lab {
            groups: Groups::new(&[&loaded.rules.heads], RULES_MAX),
            rules: loaded.rules,
            shared,
            flow: FlowDetect::default(),
            now: Timestamp::from_parts(1_000, 0),
            v6: false,
            established: true,
            packets: PerDirection::default(),
            bytes: PerDirection::default(),
            start: Timestamp::from_parts(1_000, 0),
            hosts: (1, 2),
            tenant: TenantId::default(),
            visible: None,
            generation: Generation(1),
            flowless: false,
            worker,
        }
    }

    /// Enters the next generation, with other rules for the same flow.
    pub fn enter(&mut self, text: &str) {
        let loaded = load_text(text, &SettingsMap::new(), &self.shared);
        self.worker.fit(&loaded.rules);
        self.groups = Groups::new(&[&loaded.rules.heads], RULES_MAX);
        self.rules = loaded.rules;
        self.visible = None;
        self.generation = Generation(self.generation.0 + 1);
    }

    /// Begins another flow.
    pub fn new_flow(&mut self) {
        self.flow = FlowDetect::default();
        self.packets = PerDirection::default();
        self.bytes = PerDirection::default();
    }

    /// Advances the clock.
    pub fn wait(&mut self, seconds: u64) {
        self.now = Timestamp::from_nanos(self.now.as_nanos() + seconds * 1_000_000_000);
    }

    /// Numbers of the rules that alert on a datagram of the client.
    pub fn send_to_server(&mut self, payload: &[u8]) -> Vec<u32> {
        self.send(Direction::ToServer, payload)
    }

    /// Numbers of the rules that alert on a datagram of the server.
    pub fn send_to_client(&mut self, payload: &[u8]) -> Vec<u32> {
        self.send(Direction::ToClient, payload)
    }

    /// Inspects a datagram.
    pub fn send(&mut self, direction: Direction, payload: &[u8]) -> Vec<u32> {
        let hits = self.hits(direction, payload);
        hits.iter().filter(|h| h.alert).map(|h| self.rules.signatures[h.rule as usize].id.sid).collect()
    }

    /// All matches, those that raise no alert included.
    pub fn hits(&mut self, direction: Direction, payload: &[u8]) -> Vec<Hit> {
        self.look(direction, payload, None)
    }

    /// Numbers of the rules that alert on a piece of a stream; `again`: it comes with the previous packet.
    pub fn show_piece(&mut self, piece: &[u8], again: bool) -> Vec<u32> {
        let hits = self.look(Direction::ToServer, b"", Some((piece, again)));
        hits.iter().filter(|h| h.alert).map(|h| self.rules.signatures[h.rule as usize].id.sid).collect()
    }

    fn look(&mut self, direction: Direction, payload: &[u8], piece: Option<(&[u8], bool)>) -> Vec<Hit> {
        let (client, server) = (self.address(self.hosts.0), self.address(self.hosts.1));
        let frame = match direction {
            Direction::ToServer => datagram((client, 4_000), (server, 53), payload),
            Direction::ToClient => datagram((server, 53), (client, 4_000), payload),
        };
        let mut decoder = Decoder::new(DecoderConfig::default());
        let mut out = DecodeOutput::default();
        decoder.decode(LinkType::ETHERNET, &frame, frame.len() as u32, &mut out);
        let decoded = out.outer().unwrap();
        let view = PacketView::new(&frame, decoded);
        assert_eq!(view.payload(), payload);
        self.packets[direction] += 1;
        self.bytes[direction] += frame.len() as u64;
        let flow = FlowView {
            id: 1,
            tenant: self.tenant,
            protocol: 17,
            client: (client, 4_000),
            server: (server, 53),
            turned: false,
            start: self.start,
            last_seen: self.now,
            packets: self.packets,
            bytes: self.bytes,
            established: self.established,
            elephant: PerDirection::default(),
            tcp: None,
            app: Default::default(),
        };
        let scene = ConditionContext {
            now: self.now,
            packet: Some(&view),
            payload: view.payload(),
            direction,
            flow: (!self.flowless).then_some(&flow),
            state: None,
            left: &[],
            stream_events: &[],
            app_events: &[],
            shows_stream: false,
            detection_done: false,
            function: FunctionId(1),
            tenant: self.tenant,
            shared: &self.shared,
        };
        let work = InspectionInput {
            waits: false,
            stray: false,
            scene,
            stream: piece.map(|(data, _)| StreamWindow { data, offset: 0, fresh: data.len(), whole: false }),
            payload_in_stream: false,
            bytes: false,
            again: piece.is_some_and(|(_, again)| again),
            prevention: false,
            generation: self.generation,
            visible: self.visible.as_ref(),
            group: group_of(&self.groups, &flow, direction),
            app: None,
        };
        let state = (!self.flowless).then_some(&mut self.flow);
        inspect(&self.rules, &mut self.worker, state, work);
        self.worker.hits.clone()
    }

    fn address(&self, last: u8) -> IpAddr {
        if self.v6 {
            IpAddr::from([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last])
        } else {
            IpAddr::from([192, 0, 2, last])
        }
    }
}

/// The signature group of a flow, as its lookup would find it.
pub fn group_of<'g>(groups: &'g Groups, flow: &FlowView<'_>, direction: Direction) -> Option<HeadGroup<'g>> {
    let header = Header {
        tenant: flow.tenant,
        link: LinkId::default(),
        source: flow.client.0,
        destination: flow.server.0,
        protocol: flow.protocol,
        source_port: flow.client.1,
        destination_port: flow.server.1,
    };
    let matching = groups.header_rules().iter().filter(|(_, rule)| rule.matches(&header));
    groups.find(matching.map(|(number, _)| *number).min()?, 0, flow.client.1, direction)
}

/// An Ethernet frame with a datagram. The UDP checksum of IPv4 is left out, that of IPv6 is right.
pub fn datagram(from: End, to: End, payload: &[u8]) -> Vec<u8> {
    let chksum = from.0.is_ipv4().then_some(0);
    let datagram = Datagram { chksum, ..Datagram::new((from.1, to.1), payload) };
    let ip = Ip::new(from.0, to.0, UDP);
    ip.frame(&datagram.bytes(&ip), None)
}
