// SPDX-License-Identifier: Apache-2.0
//! Records rebuilt from lines of EVE JSON, for tests. Borrowed data is leaked, since a test ends soon.

use bartizan_base::{Direction, PerDirection, RuleId, Timestamp};
use bartizan_events::community_id::community_id;
use bartizan_events::config::{AlertOptions, AnomalyOptions, DropOptions};
use bartizan_events::names::protocol_number;
use bartizan_events::record::*;
use bartizan_events::{HeaderOptions, JsonWriter};
use serde_json::{Map, Value};

/// Rebuilds and writes one event.
pub fn rewrite(event: &Value) -> String {
    let e = Event(event.as_object().unwrap());
    let mut w = JsonWriter::new();
    let kind = e.text("event_type").unwrap();
    let (options, common) = head(&e, kind);
    match kind {
        "flow" => flow(&e).write(&mut w, &options, &common),
        "netflow" => netflow(&e).write(&mut w, &options, &common),
        "anomaly" => {
            let anomaly =
                AnomalyOptions { decode: true, stream: true, applayer: true, packethdr: e.has("packet") };
            anomaly_record(&e).write(&mut w, &options, &anomaly, &common);
        }
        "drop" => {
            let drop = DropOptions { alerts: true, all_packets: true, verdict: true };
            drop_record(&e).write(&mut w, &options, &drop, &common);
        }
        "alert" => write_alert(&e, &mut w, &options, &common),
        "fileinfo" => {
            let file = e.object("fileinfo").unwrap();
            let record =
                FileRecord { app_proto: e.text("app_proto"), file: file_info(&file), xff: e.text("xff") };
            record.write(&mut w, &options, &common, |w| others(&e, w));
        }
        "packet" => {
            PacketRecord { packet: packet(&e).unwrap() }.write(&mut w, &options, &common);
        }
        "metadata" => MetadataRecord.write(&mut w, &options, &common),
        "arp" => arp(&e.object("arp").unwrap()).write(&mut w, &options, &common),
        "frame" => frame(&e).unwrap().write(&mut w, &options, &common),
        "stats" => write_stats(&e, &mut w, &options, &common),
        other => {
            let record = TransactionRecord { event_type: leak(other.to_owned()) };
            record.write(&mut w, &options, &common, |w| others(&e, w));
        }
    }
    String::from_utf8(w.bytes().to_vec()).unwrap()
}

fn leak<T: ?Sized>(value: impl Into<Box<T>>) -> &'static T {
    Box::leak(value.into())
}

/// An object with short accessors to its values.
struct Event<'e>(&'e Map<String, Value>);

impl<'e> Event<'e> {
    fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    fn text(&self, key: &str) -> Option<&'static str> {
        self.0.get(key).map(|value| leak(value.as_str().unwrap()))
    }

    fn num<T: TryFrom<u64>>(&self, key: &str) -> Option<T>
    where
        T::Error: core::fmt::Debug,
    {
        self.0.get(key).map(|value| T::try_from(value.as_u64().unwrap()).unwrap())
    }

    fn flag(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|value| value.as_bool().unwrap())
    }

    fn object(&self, key: &str) -> Option<Event<'e>> {
        self.0.get(key).map(|value| Event(value.as_object().unwrap()))
    }

    fn list(&self, key: &str) -> &'e [Value] {
        self.0.get(key).map_or(&[], |value| value.as_array().unwrap())
    }

    fn texts(&self, key: &str) -> Vec<&'static str> {
        self.list(key).iter().map(|item| leak(item.as_str().unwrap())).collect()
    }

    fn time(&self, key: &str) -> Option<Timestamp> {
        self.text(key).map(parse_time)
    }
}

/// Fields of a head and of the records; all others belong to application protocols.
const KNOWN: &[&str] = &[
    "timestamp",
    "flow_id",
    "parent_id",
    "in_iface",
    "pcap_cnt",
    "event_type",
    "vlan",
    "src_ip",
    "src_port",
    "dest_ip",
    "dest_port",
    "proto",
    "ip_v",
    "icmp_type",
    "icmp_code",
    "pkt_src",
    "ether",
    "traffic",
    "metadata",
    "community_id",
    "suricata_version",
    "tx_id",
    "tx_guessed",
    "alert",
    "tunnel",
    "ts_progress",
    "tc_progress",
    "files",
    "app_proto",
    "app_proto_orig",
    "app_proto_ts",
    "app_proto_tc",
    "app_proto_expected",
    "direction",
    "flow",
    "payload",
    "payload_length",
    "payload_printable",
    "stream",
    "frame",
    "packet",
    "packet_info",
    "verdict",
    "pcap_filename",
    "fileinfo",
    "host",
];

fn others(e: &Event<'_>, w: &mut JsonWriter) {
    for (key, value) in e.0.iter().filter(|(key, _)| !KNOWN.contains(&key.as_str())) {
        w.raw(key, value.to_string().as_bytes());
    }
}

fn parse_time(text: &str) -> Timestamp {
    let part = |from: usize, to: usize| text[from..to].parse::<u64>().unwrap();
    let (year, month, day) = (part(0, 4), part(5, 7), part(8, 10));
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut days: u64 = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum();
    let lengths = [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    days += lengths[..month as usize - 1].iter().sum::<u64>() + day - 1;
    let seconds = days * 86_400 + part(11, 13) * 3_600 + part(14, 16) * 60 + part(17, 19);
    let end = text.len() - 5;
    Timestamp::from_nanos(seconds * 1_000_000_000 + part(20, end) * 1_000)
}

fn parse_mac(text: &str) -> [u8; 6] {
    let bytes: Vec<u8> = text.split(':').map(|part| u8::from_str_radix(part, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

fn parse_hex<const N: usize>(text: &str) -> [u8; N] {
    let bytes: Vec<u8> =
        (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

fn parse_base64(text: &str) -> &'static [u8] {
    let mut bytes = Vec::new();
    let (mut word, mut bits) = (0u32, 0);
    for symbol in text.bytes().filter(|symbol| *symbol != b'=') {
        let value = match symbol {
            b'A'..=b'Z' => symbol - b'A',
            b'a'..=b'z' => symbol - b'a' + 26,
            b'0'..=b'9' => symbol - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        word = word << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8);
        }
    }
    leak(bytes)
}

fn tuple(e: &Event<'_>) -> Option<Tuple> {
    let ports = e.num("src_port").zip(e.num("dest_port"));
    Some(Tuple {
        src: e.text("src_ip")?.parse().unwrap(),
        dest: e.text("dest_ip")?.parse().unwrap(),
        ports,
        proto: e.text("proto").map_or(0, |name| protocol_number(name).unwrap()),
    })
}

fn packet_source(e: &Event<'_>) -> Option<EventPacketSource> {
    let name = e.text("pkt_src")?;
    Some(*EventPacketSource::ALL.iter().find(|source| source.name() == name).unwrap())
}

fn head(e: &Event<'_>, kind: &str) -> (HeaderOptions, Common<'static>) {
    let tuple = tuple(e);
    let icmp = e.num("icmp_type").zip(e.num("icmp_code"));
    let mut options = HeaderOptions {
        ethernet: true,
        suricata_version: e.has("suricata_version"),
        pcap_file: true,
        ..HeaderOptions::default()
    };
    let community = tuple.map(|tuple| (tuple, icmp));
    if let (Some(id), Some((tuple, icmp))) = (e.text("community_id"), &community) {
        // The settings of the references use these seeds.
        options.community_id = [0, 1, 1234].into_iter().find(|seed| community_id(*seed, tuple, *icmp) == id);
        assert!(options.community_id.is_some(), "no seed gives {id} for {tuple:?}");
    }
    let common = Common {
        in_place: None,
        timestamp: e.time("timestamp").unwrap(),
        flow_id: e.num("flow_id"),
        parent_id: e.num("parent_id"),
        in_iface: e.text("in_iface"),
        pcap_cnt: e.num("pcap_cnt"),
        vlan: leak(e.list("vlan").iter().map(|id| id.as_u64().unwrap() as u16).collect::<Vec<_>>()),
        tuple,
        icmp,
        packet_source: packet_source(e),
        variables: variables(e),
        ether: ether(e),
        community,
        tx_id: if kind == "alert" || kind == "drop" { None } else { e.num("tx_id") },
        pcap_filename: e.text("pcap_filename"),
        own: Default::default(),
    };
    (options, common)
}

fn ether(e: &Event<'_>) -> Ether<'static> {
    let Some(ether) = e.object("ether") else { return Ether::None };
    let macs = |key: &str| leak::<[[u8; 6]]>(ether.texts(key).into_iter().map(parse_mac).collect::<Vec<_>>());
    if ether.has("src_macs") {
        return Ether::Flow { src: macs("src_macs"), dest: macs("dest_macs") };
    }
    Ether::Packet {
        ether_type: ether.num("ether_type"),
        src: parse_mac(ether.text("src_mac").unwrap()),
        dest: parse_mac(ether.text("dest_mac").unwrap()),
    }
}

fn variables(e: &Event<'_>) -> Variables<'static> {
    let Some(metadata) = e.object("metadata") else { return Variables::default() };
    let mut flowbits = Vec::new();
    if let Some(traffic) = e.object("traffic") {
        for (key, prefix) in [("id", "traffic/id/"), ("label", "traffic/label/")] {
            flowbits
                .extend(traffic.texts(key).iter().map(|name| leak::<str>(format!("{prefix}{name}")) as &str));
        }
    }
    flowbits.extend(metadata.texts("flowbits"));
    let named = |key: &str| {
        let mut all: Vec<(&'static str, &'static [u8])> = Vec::new();
        for item in metadata.list(key) {
            for (name, value) in item.as_object().unwrap() {
                all.push((leak(name.as_str()), leak::<str>(value.as_str().unwrap()).as_bytes()));
            }
        }
        leak::<[_]>(all)
    };
    let pairs = |key: &str| metadata.object(key).into_iter().flat_map(|map| map.0.iter());
    Variables {
        flowbits: leak(flowbits),
        flowints: leak(
            pairs("flowints")
                .map(|(k, v)| (leak(k.as_str()) as &str, v.as_u64().unwrap()))
                .collect::<Vec<_>>(),
        ),
        entropy: leak(
            pairs("entropy")
                .map(|(k, v)| (leak(k.as_str()) as &str, v.as_f64().unwrap()))
                .collect::<Vec<_>>(),
        ),
        flowvars: named("flowvars"),
        pktvars: named("pktvars"),
        unnamed: metadata.0.is_empty(),
    }
}

fn app(e: &Event<'_>) -> AppProtocols<'static> {
    AppProtocols {
        flow: e.text("app_proto"),
        to_server: e.text("app_proto_ts"),
        to_client: e.text("app_proto_tc"),
        original: e.text("app_proto_orig"),
        expected: e.text("app_proto_expected"),
    }
}

fn counts(e: &Event<'_>) -> (PerDirection<u64>, PerDirection<u64>) {
    let pair = |what: &str| {
        PerDirection::new(
            e.num(&format!("{what}_toserver")).unwrap(),
            e.num(&format!("{what}_toclient")).unwrap(),
        )
    };
    (pair("pkts"), pair("bytes"))
}

fn counters(e: &Event<'_>) -> FlowCounters {
    let (packets, bytes) = counts(e);
    FlowCounters { packets, bytes, bypassed: e.object("bypassed").map(|bypassed| counts(&bypassed)) }
}

fn flow(e: &Event<'_>) -> FlowRecord<'static> {
    let flow = e.object("flow").unwrap();
    let state = match (flow.text("state").unwrap(), flow.text("bypass")) {
        ("new", _) => EveFlowState::New,
        ("established", _) => EveFlowState::Established,
        ("closed", _) => EveFlowState::Closed,
        (_, Some("local")) => EveFlowState::LocalBypassed,
        _ => EveFlowState::CaptureBypassed,
    };
    let reasons = [
        FlowRecordReason::Timeout,
        FlowRecordReason::Shutdown,
        FlowRecordReason::Forced,
        FlowRecordReason::TcpReuse,
        FlowRecordReason::Unknown,
    ];
    let reason = flow.text("reason").unwrap();
    let policies = flow.list("exception_policy").iter().map(|item| {
        let item = Event(item.as_object().unwrap());
        (item.text("target").unwrap(), item.text("policy").unwrap())
    });
    FlowRecord {
        response_icmp: e.num("response_icmp_type").zip(e.num("response_icmp_code")),
        spi: e.num("spi"),
        app: app(e),
        counters: counters(&flow),
        start: flow.time("start").unwrap(),
        end: flow.time("end").unwrap(),
        emergency: flow.flag("emergency"),
        state,
        reason: *reasons.iter().find(|known| known.name() == reason).unwrap(),
        alerted: flow.flag("alerted"),
        elephant: flow.flag("elephant"),
        action: flow.text("action").map(|name| {
            let actions = [FlowAction::Drop, FlowAction::Accept, FlowAction::Pass];
            *actions.iter().find(|action| action.name() == name).unwrap()
        }),
        exception_policy: leak(policies.collect::<Vec<_>>()),
        tx_cnt: flow.num("tx_cnt").unwrap_or(0),
        tcp: e.object("tcp").map(|tcp| tcp_record(&tcp)),
    }
}

fn hex_flags(e: &Event<'_>, key: &str) -> u8 {
    u8::from_str_radix(e.text(key).unwrap(), 16).unwrap()
}

fn tcp_record(tcp: &Event<'_>) -> TcpRecord<'static> {
    let numbers = |ts: &str, tc: &str| PerDirection::new(tcp.num(ts).unwrap_or(0), tcp.num(tc).unwrap_or(0));
    TcpRecord {
        flags: hex_flags(tcp, "tcp_flags"),
        flags_to_server: hex_flags(tcp, "tcp_flags_ts"),
        flags_to_client: hex_flags(tcp, "tcp_flags_tc"),
        session: tcp.has("ts_max_regions").then(|| TcpSessionInfo {
            state: tcp.text("state"),
            gap: PerDirection::new(tcp.flag("ts_gap"), tcp.flag("tc_gap")),
            max_regions: numbers("ts_max_regions", "tc_max_regions"),
            urgent_oob_data: numbers("ts_urgent_oob_data", "tc_urgent_oob_data"),
        }),
    }
}

fn netflow(e: &Event<'_>) -> NetflowRecord<'static> {
    let netflow = e.object("netflow").unwrap();
    NetflowRecord {
        spi: e.num("spi"),
        app_proto: e.text("app_proto").filter(|name| *name != "unknown"),
        packets: netflow.num("pkts").unwrap(),
        bytes: netflow.num("bytes").unwrap(),
        start: netflow.time("start").unwrap(),
        end: netflow.time("end").unwrap(),
        ttl: netflow.num("min_ttl").zip(netflow.num("max_ttl")),
        tx_cnt: netflow.num("tx_cnt").unwrap_or(0),
        tcp_flags: e.object("tcp").map(|tcp| hex_flags(&tcp, "tcp_flags")),
    }
}

fn packet(e: &Event<'_>) -> Option<PacketBytes<'static>> {
    let info = e.object("packet_info")?;
    Some(PacketBytes { bytes: parse_base64(e.text("packet")?), linktype: info.num("linktype").unwrap() })
}

fn anomaly_record(e: &Event<'_>) -> AnomalyRecord<'static> {
    let anomaly = e.object("anomaly").unwrap();
    let event = anomaly.text("event").unwrap();
    let kind = match anomaly.text("type").unwrap() {
        "decode" => AnomalyKind::Decode { event },
        "stream" => AnomalyKind::Stream { event },
        _ => AnomalyKind::AppLayer {
            app_proto: anomaly.text("app_proto"),
            event,
            layer: anomaly.text("layer").unwrap(),
        },
    };
    AnomalyRecord { kind, packet: packet(e) }
}

fn direction(e: &Event<'_>) -> Option<Direction> {
    e.text("direction")
        .map(|name| if name == "to_server" { Direction::ToServer } else { Direction::ToClient })
}

fn drop_record(e: &Event<'_>) -> DropRecord<'static> {
    let drop = e.object("drop").unwrap();
    let network = if drop.has("ttl") {
        Some(NetworkHeader::V4 {
            len: drop.num("len").unwrap(),
            tos: drop.num("tos").unwrap(),
            ttl: drop.num("ttl").unwrap(),
            id: drop.num("ipid").unwrap(),
        })
    } else {
        drop.num("len").map(|len| NetworkHeader::V6 {
            len,
            class: drop.num("tc").unwrap(),
            hop_limit: drop.num("hoplimit").unwrap(),
            flow_label: drop.num("flowlbl").unwrap(),
        })
    };
    let transport = if drop.has("tcpseq") {
        let bits = [("syn", 2), ("ack", 16), ("psh", 8), ("rst", 4), ("urg", 32), ("fin", 1)];
        TransportHeader::Tcp {
            seq: drop.num("tcpseq").unwrap(),
            ack: drop.num("tcpack").unwrap(),
            window: drop.num("tcpwin").unwrap(),
            flags: bits.iter().filter(|(name, _)| drop.flag(name)).map(|(_, bit)| bit).sum(),
            reserved: drop.num("tcpres").unwrap(),
            urgent: drop.num("tcpurgp").unwrap(),
        }
    } else if let Some(len) = drop.num("udplen") {
        TransportHeader::Udp { len }
    } else if let (Some(id), Some(seq)) = (drop.num("icmp_id"), drop.num("icmp_seq")) {
        TransportHeader::Icmp { id, seq }
    } else {
        TransportHeader::None
    };
    DropRecord {
        direction: direction(e),
        network,
        transport,
        reason: drop.text("reason"),
        verdict: verdict(e),
        alert: e.has("alert").then(|| alert_info(e)),
    }
}

fn verdict(e: &Event<'_>) -> Option<VerdictInfo> {
    let verdict = e.object("verdict")?;
    let word = match verdict.text("action").unwrap() {
        "drop" => VerdictWord::Drop,
        "alert" => VerdictWord::Alert,
        "accept" => VerdictWord::Accept,
        _ => VerdictWord::Pass,
    };
    let with = verdict.texts("reject").first().copied();
    Some(VerdictInfo { word, reject: verdict.text("reject-target").map(|target| Reject { target, with }) })
}

fn alert_info(e: &Event<'_>) -> AlertInfo<'static> {
    let alert = e.object("alert").unwrap();
    let json =
        |key: &str| alert.0.get(key).map(|value| leak::<[u8]>(value.to_string().into_bytes()) as &[u8]);
    AlertInfo {
        transaction: e.num("tx_id").map(|id| AlertTransaction { id, guessed: e.flag("tx_guessed") }),
        blocked: alert.text("action") == Some("blocked"),
        engine: None,
        rule_id: RuleId {
            gid: alert.num("gid").unwrap(),
            sid: alert.num("signature_id").unwrap(),
            rev: alert.num("rev").unwrap(),
        },
        signature: alert.text("signature").unwrap().as_bytes(),
        category: alert.text("category").unwrap(),
        severity: alert.num("severity").unwrap(),
        target: alert.object("target").map(|target| {
            if target.text("ip") == e.text("dest_ip") { TargetSide::Destination } else { TargetSide::Source }
        }),
        references: leak(alert.texts("references")),
        metadata: json("metadata"),
        context: json("context"),
        rule: alert.text("rule").map(str::as_bytes),
        xff: alert.text("xff"),
    }
}

fn write_alert(e: &Event<'_>, w: &mut JsonWriter, options: &HeaderOptions, common: &Common<'_>) {
    let shows = e.has("payload") || e.has("payload_length") || e.has("payload_printable");
    let alert = AlertOptions {
        payload: e.has("payload") || (e.has("stream") && !shows),
        payload_printable: e.has("payload_printable"),
        payload_length: e.has("payload_length"),
        packet: true,
        verdict: true,
        rule_raw: true,
        rule_reference: true,
        ..AlertOptions::default()
    };
    let bytes = match (e.text("payload"), e.text("payload_printable")) {
        (Some(base64), _) => Some(parse_base64(base64)),
        (None, Some(text)) => Some(text.as_bytes()),
        (None, None) => {
            e.num::<u64>("payload_length").map(|length| leak::<[u8]>(vec![0; length as usize]) as &[u8])
        }
    };
    let files: Vec<FileInfo<'_>> =
        e.list("files").iter().map(|file| file_info(&Event(file.as_object().unwrap()))).collect();
    let record = AlertRecord {
        firewall: None,
        alert: alert_info(e),
        tunnel: e.object("tunnel").map(|tunnel| Tunnel {
            tuple: self::tuple(&tunnel).unwrap(),
            depth: tunnel.num("depth").unwrap(),
            pcap_cnt: tunnel.num("pcap_cnt"),
            packet_source: packet_source(&tunnel).unwrap(),
        }),
        progress: e.text("ts_progress").zip(e.text("tc_progress")),
        files: &files,
        app: app(e),
        direction: direction(e),
        flow: e.object("flow").map(|flow| AlertFlow {
            counters: counters(&flow),
            start: flow.time("start").unwrap(),
            tuple: self::tuple(&flow).unwrap(),
        }),
        payload: e.num::<u64>("stream").map(|stream| Payload { bytes, stream: stream == 1 }),
        frame: frame(e),
        packet: packet(e),
        capture_file: None,
        verdict: verdict(e),
    };
    record.write(w, options, &alert, common, |w| others(e, w));
}

fn file_info(file: &Event<'_>) -> FileInfo<'static> {
    let states = [
        FileRecordState::Unknown,
        FileRecordState::Closed,
        FileRecordState::Truncated,
        FileRecordState::Error,
    ];
    let state = file.text("state").unwrap();
    FileInfo {
        filename: file.text("filename").map(str::as_bytes),
        sids: leak(file.list("sid").iter().map(|sid| sid.as_u64().unwrap() as u32).collect::<Vec<_>>()),
        magic: file.text("magic"),
        gaps: file.flag("gaps"),
        state: *states.iter().find(|known| known.name() == state).unwrap(),
        md5: file.text("md5").map(parse_hex),
        sha1: file.text("sha1").map(parse_hex),
        sha256: file.text("sha256").map(parse_hex),
        file_id: file.num("file_id"),
        storing: file.flag("storing"),
        size: file.num("size").unwrap(),
        range: file.num("start").zip(file.num("end")),
        tx_id: file.num("tx_id").unwrap(),
    }
}

fn frame(e: &Event<'_>) -> Option<FrameRecord<'static>> {
    let frame = e.object("frame")?;
    Some(FrameRecord {
        app_proto: e.text("app_proto"),
        kind: frame.text("type").unwrap(),
        id: frame.num("id").unwrap(),
        direction: if frame.text("direction") == Some("toserver") {
            Direction::ToServer
        } else {
            Direction::ToClient
        },
        stream_offset: frame.num("stream_offset"),
        length: frame.num("length"),
        payload: frame.text("payload").map(|payload| (parse_base64(payload), frame.flag("complete"))),
        tx_id: frame.num("tx_id"),
    })
}

fn write_stats(e: &Event<'_>, w: &mut JsonWriter, options: &HeaderOptions, common: &Common<'_>) {
    fn flatten(prefix: &str, map: &Map<String, Value>, counters: &mut Vec<Counter<'static>>) {
        for (key, value) in map {
            let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
            match value {
                Value::Object(inner) => flatten(&name, inner, counters),
                Value::Number(number) => {
                    counters.push(Counter { name: leak(name), value: number.as_u64().unwrap(), last: 0 });
                }
                _ => {}
            }
        }
    }
    let stats = e.object("stats").unwrap();
    let mut totals = Vec::new();
    flatten("", stats.0, &mut totals);
    totals.retain(|counter| counter.name != "uptime");
    let engines: Vec<_> = stats.object("detect").map_or(Vec::new(), |detect| {
        let engines = detect.list("engines").iter().map(|engine| {
            let engine = Event(engine.as_object().unwrap());
            DetectEngine {
                id: engine.num("id").unwrap(),
                last_reload: engine.text("last_reload").unwrap(),
                rules_loaded: engine.num("rules_loaded").unwrap(),
                rules_failed: engine.num("rules_failed").unwrap(),
                rules_skipped: engine.num("rules_skipped").unwrap(),
            }
        });
        engines.collect()
    });
    let record = StatsRecord {
        uptime: stats.num("uptime").unwrap(),
        totals: &totals,
        engines: &engines,
        ..StatsRecord::default()
    };
    record.write(w, options, &Default::default(), common);
}

fn arp(arp: &Event<'_>) -> ArpRecord<'static> {
    ArpRecord {
        hw_type: arp.text("hw_type").unwrap(),
        proto_type: arp.text("proto_type").unwrap(),
        opcode: arp.text("opcode").unwrap(),
        src_mac: parse_mac(arp.text("src_mac").unwrap()),
        src_ip: arp.text("src_ip").unwrap().parse().unwrap(),
        dest_mac: parse_mac(arp.text("dest_mac").unwrap()),
        dest_ip: arp.text("dest_ip").unwrap().parse().unwrap(),
    }
}
