// SPDX-License-Identifier: Apache-2.0
//! docs/identifiers.md: the values of its tables are those that a worker writes and rules match.

use crate::common::{Folder, capture, run};
use bartizan_testkit::generated;

use bartizan_testkit::packet::{ACK, End, FIN, Ip, PSH, SYN, address, icmp, tcp, udp};
use bartizan_testkit_worker::{Captured, Made, Stack};
use flate2::Compression;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::Write as _;

/// Settings in which records carry all identifiers.
const SET: &[(&str, &str)] = &[
    ("outputs.1.eve-log.community-id", "true"),
    ("app-layer.protocols.tls.ja3-fingerprints", "yes"),
    ("app-layer.protocols.tls.ja4-fingerprints", "yes"),
];

/// The events of frames under some rules.
fn events(frames: impl IntoIterator<Item = Vec<u8>>, rules: &str) -> Vec<Value> {
    let policy = "chain: [ids], ids: {rules: [r]}";
    let mut stack =
        Stack::new(&Made { name: "identifiers", policy, set: SET, tune: |_| (), rules, thresholds: "" });
    for (number, frame) in (0..).zip(frames) {
        let frame = Captured::at_millis(number, frame);
        stack.worker.frame(&frame.frame(number + 1), &mut stack.recorder).expect("no fragment");
    }
    stack.finish().1
}

fn of_type<'e>(events: &'e [Value], kind: &'e str) -> impl Iterator<Item = &'e Value> {
    events.iter().filter(move |event| event["event_type"] == kind)
}

/// A TCP connection to a port, with the data of each side, the client first; it is closed unless it stays
/// open.
fn connection(port: u16, says: &[(bool, &[u8])], closes: bool) -> Vec<Vec<u8>> {
    let ends: [End; 2] = [(address(false, 1), 40_000), (address(false, 2), port)];
    let mut next = [100u32, 900];
    let mut frames = Vec::new();
    let mut put = |side: usize, flags: u16, load: &[u8]| {
        let ack = if flags & ACK == 0 { 0 } else { next[1 - side] };
        frames.push(tcp(ends[side], ends[1 - side], (next[side], ack), flags as u8, load).frame());
        next[side] += load.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
    };
    put(0, SYN, b"");
    put(1, SYN | ACK, b"");
    put(0, ACK, b"");
    for (by_server, bytes) in says {
        for part in bytes.chunks(1_000) {
            put(usize::from(*by_server), PSH | ACK, part);
            put(usize::from(!*by_server), ACK, b"");
        }
    }
    if closes {
        put(1, FIN | ACK, b"");
        put(0, FIN | ACK, b"");
        put(1, ACK, b"");
    }
    frames
}

fn sized(bytes: usize, body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes()[4 - bytes..], body].concat()
}

fn words(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

/// A ClientHello of TLS 1.2 in its record.
struct Hello {
    case: &'static str,
    ciphers: &'static [u16],
    /// Types and bodies.
    extensions: &'static [(u16, &'static [u8])],
    /// The value here, and in Suricata 8.0.8.
    ja4: &'static str,
    /// The value by FoxIO's text.
    text: &'static str,
}

impl Hello {
    fn record(&self) -> Vec<u8> {
        let extensions: Vec<u8> = self
            .extensions
            .iter()
            .flat_map(|(kind, body)| [words(&[*kind]), sized(2, body)].concat())
            .collect();
        let mut body = [&[3, 3][..], &[7; 32], &[0], &sized(2, &words(self.ciphers)), &[1, 0]].concat();
        if !self.extensions.is_empty() {
            body.extend(sized(2, &extensions));
        }
        let message = [&[1][..], &sized(3, &body)].concat();
        [&[22, 3, 1][..], &sized(2, &message)].concat()
    }
}

const CIPHERS: &[u16] = &[0x1301, 0xc02f];
const NAME: (u16, &[u8]) = (0, b"\0\x0f\0\0\x0chost.example");
const GROUPS: (u16, &[u8]) = (10, &[0, 2, 0, 29]);
const ALGORITHMS: (u16, &[u8]) = (13, &[0, 4, 4, 3, 8, 4]);
const H2: (u16, &[u8]) = (16, b"\0\x03\x02h2");

const fn hello(
    case: &'static str,
    (ciphers, extensions): (&'static [u16], &'static [(u16, &'static [u8])]),
    ja4: &'static str,
    text: &'static str,
) -> Hello {
    Hello { case, ciphers, extensions, ja4, text }
}

const HELLOS: &[Hello] = &[
    hello(
        "a usual hello",
        (CIPHERS, &[NAME, ALGORITHMS, H2, (43, &[4, 3, 4, 3, 3])]),
        "t13d0204h2_c1929292aa6b_ef5f37ab036a",
        "t13d0204h2_c1929292aa6b_ef5f37ab036a",
    ),
    hello(
        "ALPN of one character",
        (CIPHERS, &[ALGORITHMS, (16, b"\0\x02\x01h")]),
        "t12i0202hh_c1929292aa6b_ef95ca21a004",
        "t12i0202hh_c1929292aa6b_ef95ca21a004",
    ),
    hello(
        "ALPN that is no letter or digit (`ab cd`)",
        (CIPHERS, &[ALGORITHMS, (16, b"\0\x03\x02\xab\xcd")]),
        "t12i0202ad_c1929292aa6b_ef95ca21a004",
        "t12i0202ad_c1929292aa6b_ef95ca21a004",
    ),
    hello(
        "no `signature_algorithms`",
        (CIPHERS, &[NAME, GROUPS]),
        "t12d020200_c1929292aa6b_bc1f8d297068",
        "t12d020200_c1929292aa6b_a8f3e973773c",
    ),
    hello(
        "no extensions",
        (CIPHERS, &[]),
        "t12i020000_c1929292aa6b_d2e2adf7177b",
        "t12i020000_c1929292aa6b_000000000000",
    ),
    hello(
        "only a server name and ALPN",
        (CIPHERS, &[NAME, H2]),
        "t12d0202h2_c1929292aa6b_d2e2adf7177b",
        "t12d0202h2_c1929292aa6b_000000000000",
    ),
    hello(
        "no ciphers but GREASE",
        (&[0x0a0a], &[ALGORITHMS]),
        "t12i000100_e3b0c44298fc_ef95ca21a004",
        "t12i000100_000000000000_ef95ca21a004",
    ),
    hello(
        "`supported_versions` with 1.2 before 1.3",
        (CIPHERS, &[ALGORITHMS, (43, &[4, 3, 3, 3, 4])]),
        "t12i020200_c1929292aa6b_ef5f37ab036a",
        "t13i020200_c1929292aa6b_ef5f37ab036a",
    ),
    hello(
        "ALPN that begins with GREASE (`0a 0a`)",
        (CIPHERS, &[ALGORITHMS, (16, b"\0\x06\x02\x0a\x0a\x02h2")]),
        "t12i020200_c1929292aa6b_ef95ca21a004",
        "t12i02020a_c1929292aa6b_ef95ca21a004",
    ),
];

#[test]
fn ja4_is_the_one_of_the_page() {
    for Hello { case, ja4, text, .. } in HELLOS {
        assert_eq!((ja4.len(), text.len()), (36, 36), "{case}");
    }
    for hello in HELLOS {
        let mut rules = String::new();
        for (sid, value) in [(1, hello.ja4), (2, hello.text)] {
            let _ =
                writeln!(rules, "alert tls any any -> any any (ja4.hash; content:\"{value}\"; sid:{sid};)");
        }
        let events = events(connection(443, &[(false, &hello.record())], false), &rules);
        let mut sids: Vec<_> =
            of_type(&events, "alert").map(|alert| alert["alert"]["signature_id"].as_u64().unwrap()).collect();
        sids.sort_unstable();
        let expected: &[u64] = if hello.ja4 == hello.text { &[1, 2] } else { &[1] };
        assert_eq!(sids, expected, "{}", hello.case);
    }
}

/// Packets of a flow with its Community ID.
struct Community {
    case: &'static str,
    frame: fn() -> Vec<u8>,
    here: &'static str,
    suricata: &'static str,
}

const COMMUNITY: &[Community] = &[
    Community {
        case: "TCP, IPv4",
        frame: || tcp((address(false, 1), 40_000), (address(false, 2), 80), (1, 0), SYN as u8, b"").frame(),
        here: "1:3k1SoWXs/FltHw2aBCgUTgbDQF4=",
        suricata: "1:3k1SoWXs/FltHw2aBCgUTgbDQF4=",
    },
    Community {
        case: "UDP, IPv6",
        frame: || udp((address(true, 1), 40_000), (address(true, 2), 53), b"x").frame(),
        here: "1:eO0ltZ3MqOvc7QA+zuku3dNgCuE=",
        suricata: "1:eO0ltZ3MqOvc7QA+zuku3dNgCuE=",
    },
    Community {
        case: "SCTP",
        frame: || other(132, &[0x13, 0x88, 0x17, 0x70, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 4]),
        here: "1:u+ApnWK0XsbKEbLUCDWQ74o2ZrY=",
        suricata: "1:u+ApnWK0XsbKEbLUCDWQ74o2ZrY=",
    },
    Community {
        case: "echo request",
        frame: || icmp(address(false, 1), address(false, 2), (8, 128), 0, &[0, 7, 0, 1]).frame(),
        here: "1:YcMyyWJfhc95EW1GfXt6jlZ3DiQ=",
        suricata: "1:YcMyyWJfhc95EW1GfXt6jlZ3DiQ=",
    },
    Community {
        case: "echo request of ICMPv6",
        frame: || icmp(address(true, 1), address(true, 2), (8, 128), 0, &[0, 7, 0, 1]).frame(),
        here: "1:u2vMS3HiWth2lIMKHB1fjELshpQ=",
        suricata: "1:u2vMS3HiWth2lIMKHB1fjELshpQ=",
    },
    Community {
        case: "neighbour solicitation",
        frame: || icmp(address(true, 1), address(true, 2), (8, 135), 0, &[0; 20]).frame(),
        here: "1:R9HBIi387RnKhKUU53rFlnl803U=",
        suricata: "1:R9HBIi387RnKhKUU53rFlnl803U=",
    },
    Community {
        case: "an ICMPv6 error about no known flow",
        frame: || {
            let quoted = udp((address(true, 2), 9), (address(true, 1), 9), b"x").bytes();
            icmp(address(true, 1), address(true, 2), (3, 1), 1, &[&[0; 4], &quoted[..]].concat()).frame()
        },
        here: "1:UhSPniQZJsBQiowHBqGIUpRGH4c=",
        suricata: "1:SigGRUfKLNEctsQnJdQQedPPjJQ=",
    },
    Community {
        case: "ESP",
        frame: || other(50, &[0, 0, 0, 9, 0, 0, 0, 1, 1, 2, 3, 4]),
        here: "1:dX+1pd7Z9Y9hJE/IuQlfvK7bxuA=",
        suricata: "1:SeRjx73nPpzIY/07uC51TJk1Eo4=",
    },
    Community {
        case: "IP in IP, the packet around",
        frame: || {
            let [a, b] = ["10.9.0.1", "10.9.0.2"].map(|text| text.parse().unwrap());
            other(4, &udp((a, 1), (b, 2), b"x").bytes())
        },
        here: "1:iB+vgMoMAfIKteIjfiId4U0Vi7E=",
        suricata: "1:SVm1Olz3H1mF2f/4uQWO3z1cB7M=",
    },
];

/// A packet of another protocol between the two hosts.
fn other(protocol: u8, body: &[u8]) -> Vec<u8> {
    Ip::new(address(false, 1), address(false, 2), protocol).frame(body, None)
}

#[test]
fn community_ids_are_those_of_the_page() {
    for row in COMMUNITY {
        let events = events([(row.frame)()], "");
        let found: Vec<_> = of_type(&events, "flow").map(|flow| flow["community_id"].clone()).collect();
        assert!(found.contains(&row.here.into()), "{}: {found:?}", row.case);
        assert!(row.here == row.suricata || !found.contains(&row.suricata.into()), "{}", row.case);
    }
}

/// A file in an answer.
struct Download {
    case: &'static str,
    answer: fn() -> Vec<u8>,
    /// State and size; the text whose SHA-256 the event has, or none.
    here: (&'static str, u64, Option<&'static str>),
    suricata: &'static str,
}

fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

const CODED: &str = "Content-Encoding: gzip\r\n";
const WHOLE: Option<&str> = Some("92088ec140fc553e4b1ede202edccb65a807bbf8a38d765a3ad38013c0f13688");

const DOWNLOADS: &[Download] = &[
    Download {
        case: "`first second`",
        answer: || answer("", b"first second"),
        here: ("CLOSED", 12, WHOLE),
        suricata: "the same",
    },
    Download {
        case: "the same, with `Content-Encoding: gzip`",
        answer: || answer(CODED, &gzip(b"first second")),
        here: ("CLOSED", 12, WHOLE),
        suricata: "the same",
    },
    Download {
        case: "gzip of two members, `first ` and `second`",
        answer: || answer(CODED, &[gzip(b"first "), gzip(b"second")].concat()),
        here: ("CLOSED", 12, WHOLE),
        suricata: "`CLOSED`, 6 bytes, the hash of the first member",
    },
    Download {
        case: "12 bytes of 50, then the connection ends",
        answer: || b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nfirst second".to_vec(),
        here: ("CLOSED", 12, WHOLE),
        suricata: "the same",
    },
    Download {
        case: "200,000 bytes, of which the limit of bodies leaves 102,400",
        answer: || answer("", &[b'x'; 200_000]),
        here: ("TRUNCATED", 102_400, None),
        suricata: "`TRUNCATED`, 102400 bytes, the hash of these",
    },
];

#[test]
fn hashes_of_files_are_those_of_the_page() {
    for row in DOWNLOADS {
        let says: [(bool, &[u8]); 2] =
            [(false, b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n"), (true, &(row.answer)())];
        let folder = Folder::new();
        folder.write("in.pcap", capture(&connection(80, &says, true)));
        let hashes = "outputs.1.eve-log.types.7.files.force-hash.0=sha256";
        let ended = run(&folder.0, &["inspect", "--set", hashes, "--out", "out", "in.pcap"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let events: Vec<Value> =
            folder.read("out/eve.json").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let file = &of_type(&events, "fileinfo").next().expect("a file")["fileinfo"];
        let (state, size, hash) = row.here;
        assert_eq!(
            (file["state"].as_str(), file["size"].as_u64(), file["sha256"].as_str()),
            (Some(state), Some(size), hash),
            "{}",
            row.case
        );
    }
}

#[test]
fn numbers_of_flows_transactions_and_rules_are_those_that_the_page_says() {
    let request: &[u8] = b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n";
    let response: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let says = [(false, request), (true, response), (false, request), (true, response)];
    let mut frames = connection(80, &says, true);
    frames.push(udp((address(false, 1), 9), (address(false, 2), 9), b"other").frame());
    let rules = "alert http any any -> any any (http.uri; content:\"/f\"; sid:4294967295; rev:3;)\n\
        alert udp any any -> any any (content:\"other\"; gid:7; sid:5;)\n";
    let events = events(frames, rules);
    let transactions: Vec<_> = of_type(&events, "http").map(|event| event["tx_id"].as_u64()).collect();
    assert_eq!(transactions, [Some(0), Some(1)]);
    let of_tcp = |event: &&Value| event["proto"] == "TCP";
    let numbers: Vec<_> =
        events.iter().filter(of_tcp).map(|event| event["flow_id"].as_u64().unwrap()).collect();
    assert!(numbers.len() >= 5 && numbers.iter().all(|number| *number == numbers[0]), "{numbers:?}");
    let other = events.iter().find(|event| event["proto"] == "UDP").unwrap();
    assert_ne!(other["flow_id"].as_u64().unwrap(), numbers[0]);
    assert!(numbers[0] < 1 << 53, "exact in every reader of JSON");
    let identity =
        |alert: &Value| ["gid", "signature_id", "rev"].map(|key| alert["alert"][key].as_u64().unwrap());
    let alerts: Vec<_> = of_type(&events, "alert").map(identity).collect();
    assert!(alerts.contains(&[1, 4_294_967_295, 3]) && alerts.contains(&[7, 5, 0]), "{alerts:?}");
}

#[test]
fn the_tables_of_the_page_are_those_of_the_tests() {
    let mut text = "| hello | here and in Suricata 8.0.8 | by FoxIO's text |\n|---|---|---|\n".to_owned();
    for Hello { case, ja4, text: other, .. } in HELLOS {
        let other = if ja4 == other { "the same".to_owned() } else { format!("`{other}`") };
        let _ = writeln!(text, "| {case} | `{ja4}` | {other} |");
    }
    generated::check_section("docs/identifiers.md", "ja4", &text);
    let mut text =
        "| first packet | here, and by the specification | Suricata 8.0.8 |\n|---|---|---|\n".to_owned();
    for Community { case, here, suricata, .. } in COMMUNITY {
        let other = if here == suricata { "the same".to_owned() } else { format!("`{suricata}`") };
        let _ = writeln!(text, "| {case} | `{here}` | {other} |");
    }
    generated::check_section("docs/identifiers.md", "community ids", &text);
    let mut text = "| body of an answer | here | Suricata 8.0.8 |\n|---|---|---|\n".to_owned();
    for Download { case, here: (state, size, hash), suricata, .. } in DOWNLOADS {
        let hash = hash.map_or("no hash".to_owned(), |hash| format!("`{}...`", &hash[..16]));
        let _ = writeln!(text, "| {case} | `{state}`, {size} bytes, {hash} | {suricata} |");
    }
    generated::check_section("docs/identifiers.md", "files", &text);
}
