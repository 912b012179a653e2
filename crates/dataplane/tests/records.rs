// SPDX-License-Identifier: Apache-2.0
//! Records of flows that are hardly inspected: refused and bypassed ones, those picked up in the wrong
//! direction, those without a protocol.

use bartizan_base::{LinkId, Reason, SettingsMap, Timestamp};
use bartizan_dataplane::worker::Frame;
use bartizan_flow::tcp::ExceptionPolicy;
use bartizan_packet::LinkType;
use bartizan_stages::settings::{EngineSettings, UnparsedPolicy};
use bartizan_testkit::dns;
use bartizan_testkit::layers::{ethernet_ip, vxlan};
use bartizan_testkit::packet::{ACK, End, FIN, PSH, Packet, SYN, address, tcp, udp};
use bartizan_testkit_worker::{Made, Stack, events};
use serde_json::{Value, json};

/// Netflow records beside those of flows.
const NETFLOW: &[(&str, &str)] = &[("outputs.1.eve-log.types.35", "netflow")];

/// Settings of detection, as they are shipped.
fn passive(settings: &mut EngineSettings) {
    let shipped: SettingsMap = bartizan_config::suricata::shipped();
    *settings = EngineSettings::from_settings(&shipped, false, [1, 2]).unwrap().0;
}

fn live(_: &mut EngineSettings) {}

struct Run {
    stack: Stack,
    nanos: u64,
}

impl Run {
    fn new(name: &str, tune: fn(&mut EngineSettings), rules: &str) -> Self {
        Run::with(name, NETFLOW, tune, rules)
    }

    fn with(
        name: &str,
        set: &'static [(&'static str, &'static str)],
        tune: fn(&mut EngineSettings),
        rules: &str,
    ) -> Self {
        let policy = "chain: [ids], ids: {rules: [r]}";
        let stack = Stack::new(&Made { name, policy, set, tune, rules, thresholds: "" });
        Run { stack, nanos: 1_000_000_000 }
    }

    /// The reason for which a packet is refused.
    fn sees(&mut self, packet: &Packet) -> Option<Reason> {
        self.nanos += 100_000;
        let bytes = packet.frame();
        let frame = Frame {
            now: Timestamp::from_nanos(self.nanos),
            bytes: &bytes,
            wire_len: bytes.len() as u32,
            link_type: LinkType::ETHERNET,
            link: LinkId(0),
            number: None,
        };
        let decision = self.stack.worker.frame(&frame, &mut self.stack.recorder).expect("a decision");
        if decision.verdict.forwards() { None } else { decision.reason }
    }

    /// A TCP conversation: what each side sends, client first if `false`.
    fn talks(&mut self, v6: bool, port: u16, says: &[(bool, &[u8])], closes: bool) -> Vec<Option<Reason>> {
        let ends: [End; 2] = [(address(v6, 1), port), (address(v6, 2), 80)];
        let mut next = [100u32, 900];
        let mut sends = |run: &mut Self, side: usize, flags: u16, load: &[u8]| {
            let ack = if flags & ACK == 0 { 0 } else { next[1 - side] };
            let packet = tcp(ends[side], ends[1 - side], (next[side], ack), flags as u8, load);
            next[side] += load.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
            run.sees(&packet)
        };
        for (side, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
            sends(self, side, flags, b"");
        }
        let mut reasons = Vec::new();
        for (server, load) in says {
            reasons.push(sends(self, usize::from(*server), PSH | ACK, load));
            sends(self, usize::from(!*server), ACK, b"");
        }
        if closes {
            for (side, flags) in [(0, FIN | ACK), (1, FIN | ACK), (0, ACK)] {
                sends(self, side, flags, b"");
            }
        }
        reasons
    }

    fn finish(self) -> Vec<Value> {
        self.stack.finish().1
    }
}

fn with_ttl(mut packet: Packet, ttl: u8) -> Packet {
    packet.ip.ttl = ttl;
    packet
}

/// Source port, packets, smallest and largest TTL of each netflow record.
fn ttls(all: &[Value]) -> Vec<Value> {
    let mut found: Vec<Value> = events::of_type(all, "netflow")
        .map(|e| {
            json!([e["src_port"], e["netflow"]["pkts"], e["netflow"]["min_ttl"], e["netflow"]["max_ttl"]])
        })
        .collect();
    found.sort_by_key(ToString::to_string);
    found
}

#[test]
fn the_ttl_of_each_packet_that_counts_is_told() {
    for v6 in [false, true] {
        let (client, server) = ((address(v6, 1), 4000), (address(v6, 2), 9000));
        let want = [json!([4000, 3, 50, 64]), json!([9000, 1, 30, 30])];
        for (name, tune, rule) in [
            (
                "refused",
                live as fn(&mut EngineSettings),
                "drop udp any any -> any 9000 (content:\"x\"; sid:1;)",
            ),
            ("bypassed", live, "alert udp any any -> any 9000 (content:\"x\"; bypass; sid:1;)"),
            ("bypassed-passively", passive, "alert udp any any -> any 9000 (content:\"x\"; bypass; sid:1;)"),
        ] {
            let mut run = Run::new(name, tune, rule);
            for ttl in [60, 50, 64] {
                run.sees(&with_ttl(udp(client, server, b"x"), ttl));
            }
            run.sees(&with_ttl(udp(server, client, b"x"), 30));
            assert_eq!(ttls(&run.finish()), want, "{name}, IPv6: {v6}");
        }
    }
}

#[test]
fn a_flow_that_is_turned_round_takes_its_ttls_along() {
    for v6 in [false, true] {
        let (client, server) = ((address(v6, 1), 53), (address(v6, 2), 53));
        let mut run = Run::new("turned", passive, "");
        // The answer comes first, so the flow begins with it.
        run.sees(&with_ttl(udp(server, client, &dns::answer(7, ("a.example", 1), &[])), 40));
        run.sees(&with_ttl(udp(client, server, &dns::query(8, "b.example", 1)), 60));
        run.sees(&with_ttl(udp(client, server, &dns::query(9, "c.example", 1)), 62));
        let all = run.finish();
        let flow = events::first(&all, "flow");
        let source = |event: &Value| event["src_ip"].as_str().and_then(|text| text.parse().ok());
        assert_eq!(source(flow), Some(client.0));
        for netflow in events::of_type(&all, "netflow") {
            let is_client = source(netflow) == Some(client.0);
            let told = ["pkts", "min_ttl", "max_ttl"].map(|key| &netflow["netflow"][key]);
            assert_eq!(json!(told), if is_client { json!([2, 60, 62]) } else { json!([1, 40, 40]) });
        }
    }
}

#[test]
fn a_flow_in_which_no_protocol_was_found_says_so() {
    const CONNECT: &[u8] = b"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n";
    for v6 in [false, true] {
        for tune in [passive as fn(&mut EngineSettings), live] {
            let mut run = Run::new("failed", tune, "");
            let (client, server) = (address(v6, 1), address(v6, 2));
            let from = |port, to, load: &[u8]| udp((client, port), (server, to), load);
            let inner = from(1001, 7, b"hello").bytes();
            for packet in [
                from(1, 9000, b"zz"),
                from(2, 9000, b""),
                from(3, 4789, &vxlan(1, &ethernet_ip(v6, &inner))),
                // What is there to be found is found all the same.
                from(4, 53, b""),
                from(4, 53, &dns::query(7, "a.example", 1)),
            ] {
                assert_eq!(run.sees(&packet), None);
            }
            let ok: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
            run.talks(v6, 5, &[(false, CONNECT), (true, ok)], true);
            run.talks(v6, 6, &[(false, CONNECT), (true, ok)], false);
            run.talks(v6, 7, &[], true);
            let all = run.finish();
            let mut found: Vec<Value> = events::of_type(&all, "flow")
                .map(|e| json!([e["src_port"], e["app_proto"], e["app_proto_orig"]]))
                .collect();
            found.sort_by_key(|row| row[0].as_u64());
            let want = json!([
                [1, "failed", null],
                [2, "failed", null],
                [3, "failed", null],
                [4, "dns", null],
                [5, "failed", "http"],
                [6, "failed", "http"],
                [7, null, null],
                [1001, "failed", null]
            ]);
            assert_eq!(json!(found), want, "IPv6: {v6}");
        }
    }
}

#[test]
fn http2_in_clear_text_goes_on_or_is_refused() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const ASKS: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n";
    const AGREES: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    fn refused(settings: &mut EngineSettings) {
        settings.unparsed = UnparsedPolicy::for_all(ExceptionPolicy::DropFlow);
    }
    for v6 in [false, true] {
        for (tune, reason) in [(live as fn(&mut EngineSettings), None), (refused, Some(Reason::Http2))] {
            let mut run = Run::new("http2", tune, "");
            assert_eq!(run.talks(v6, 1, &[(false, PREFACE)], false), [reason]);
            // The server's consent is refused, and so is what follows.
            let upgraded = run.talks(v6, 2, &[(false, ASKS), (true, AGREES), (false, PREFACE)], false);
            let behind = reason.map(|_| Reason::ExceptionFlow);
            assert_eq!(upgraded, [None, reason, behind]);
            // Others are left alone.
            let ok: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            assert_eq!(run.talks(v6, 3, &[(false, ASKS), (true, ok)], false), [None, None]);
            let all = run.finish();
            let drops: Vec<_> =
                events::of_type(&all, "drop").map(|e| e["bartizan"]["reason"].clone()).collect();
            assert_eq!(drops.iter().filter(|r| **r == "http2").count(), if reason.is_some() { 2 } else { 0 });
            for flow in events::of_type(&all, "flow").filter(|e| e["src_port"] == 1) {
                assert_eq!(flow["app_proto"], "http2");
            }
        }
    }
}

/// Servers look for the preface at the beginning, behind what a proxy says, behind empty lines, and at each
/// request (Go's and Jetty's).
#[test]
fn the_preface_of_http2_is_refused_wherever_a_server_takes_it() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi";
    const CHUNKED: &[u8] =
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    const ASKS: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    const CONNECTS: &[u8] = b"CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n";
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    const NO: &[u8] = b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n";
    const UPGRADES: &[u8] = b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    const IN_CAPITALS: &[u8] = b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUPGRADE: H2C, x\r\n\r\n";
    const PROXY: &[u8] = b"PROXY TCP4 10.0.0.1 10.0.0.2 1000 80\r\n";
    fn refused(settings: &mut EngineSettings) {
        settings.unparsed = UnparsedPolicy::for_all(ExceptionPolicy::DropFlow);
    }
    let behind = |first: &[u8]| [first, PREFACE].concat();
    let with_lines: &[u8] = b"PRI * HTTP/2.0\n\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    /// A name, the segments of both sides (true: the server's), and the index of the refused one.
    type Conversation = (&'static str, Vec<(bool, Vec<u8>)>, usize);
    let says: Vec<Conversation> = vec![
        ("at the beginning", vec![(false, PREFACE.to_vec())], 0),
        ("with other line ends", vec![(false, with_lines.to_vec())], 0),
        ("behind empty lines", vec![(false, behind(b"\r\n\r\n"))], 0),
        ("behind a proxy's header", vec![(false, behind(PROXY))], 0),
        ("behind a proxy's header of its own", vec![(false, PROXY.to_vec()), (false, PREFACE.to_vec())], 1),
        ("pipelined", vec![(false, behind(GET))], 0),
        ("pipelined behind a body", vec![(false, behind(POST))], 0),
        ("pipelined behind chunks", vec![(false, behind(CHUNKED))], 0),
        ("pipelined behind an upgrade", vec![(false, behind(ASKS))], 0),
        ("behind a request", vec![(false, GET.to_vec()), (false, PREFACE.to_vec())], 1),
        ("behind an answer", vec![(false, GET.to_vec()), (true, OK.to_vec()), (false, PREFACE.to_vec())], 2),
        (
            "behind an empty line",
            vec![(false, POST.to_vec()), (true, OK.to_vec()), (false, behind(b"\r\n"))],
            2,
        ),
        (
            "in two pieces",
            vec![(false, GET.to_vec()), (false, PREFACE[..7].to_vec()), (false, PREFACE[7..].to_vec())],
            2,
        ),
        ("behind the consent", vec![(false, ASKS.to_vec()), (true, UPGRADES.to_vec())], 1),
        ("behind the consent in capitals", vec![(false, ASKS.to_vec()), (true, IN_CAPITALS.to_vec())], 1),
        (
            "behind a refused upgrade",
            vec![(false, ASKS.to_vec()), (true, OK.to_vec()), (false, PREFACE.to_vec())],
            2,
        ),
        ("in a tunnel", vec![(false, CONNECTS.to_vec()), (true, OK.to_vec()), (false, PREFACE.to_vec())], 2),
        (
            "in a tunnel, behind a request",
            vec![(false, CONNECTS.to_vec()), (true, OK.to_vec()), (false, behind(GET))],
            2,
        ),
        (
            "in a tunnel, behind an empty line",
            vec![(false, CONNECTS.to_vec()), (true, OK.to_vec()), (false, behind(b"\r\n"))],
            2,
        ),
        (
            "behind a refused tunnel",
            vec![(false, CONNECTS.to_vec()), (true, NO.to_vec()), (false, PREFACE.to_vec())],
            2,
        ),
    ];
    for v6 in [false, true] {
        for (tune, reason) in [(live as fn(&mut EngineSettings), None), (refused, Some(Reason::Http2))] {
            // As live prevention has it.
            let strict = &[("app-layer.protocols.http.strict", "yes")];
            let mut run = Run::with("preface", strict, tune, "");
            for (port, (what, says, at)) in (1..).zip(&says) {
                let says: Vec<(bool, &[u8])> = says.iter().map(|(server, load)| (*server, &**load)).collect();
                let mut want = vec![None; says.len()];
                want[*at] = reason;
                assert_eq!(run.talks(v6, port, &says, false), want, "{what}, IPv6 {v6}");
            }
            run.finish();
        }
    }
}
