// SPDX-License-Identifier: Apache-2.0
//! The kinds of dirty traffic: each kind is a family of attacks, whose cases are a function of the seed and
//! the case's number.

mod case;
mod forms;
pub mod fragments;
mod lenient;
mod made;
mod mail;
pub mod odd;
pub mod payload;
mod pieces;
pub mod server;
mod stream;

pub use case::Case;

use crate::client::{Client, Opening, Out, Style};
use crate::receivers::Service;
use crate::strategy::{Strategy, random as trees};
use bartizan_testkit::packet::{Datagram, Ip, SYN, TCP, UDP};
use bartizan_testkit::random::Random;
use case::Play;
use made::Made;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A family of attacks.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Relative frequency among the families.
    pub weight: usize,
    /// Part of the short run, which must find nothing. Off while the program has a fault that this family
    /// finds.
    pub holds: bool,
    /// Description for people.
    pub what: &'static str,
    make: fn(&mut Made<'_>) -> Play,
}

/// All kinds. The flags mark those that are part of the short run.
pub const KINDS: &[Kind] = &[
    kind(
        "udp-fragments",
        130,
        true,
        udp_fragments,
        "datagrams in fragments, with decoys that receivers throw away",
    ),
    kind("udp-headers", 6, true, udp_headers, "whole datagrams with odd options and extension headers"),
    kind("tcp-fragments", 16, true, tcp_fragments, "requests in fragments, with decoys"),
    kind("rough", 24, true, rough, "segments in any order with other contents, flags, options, times"),
    kind("second-syn", 10, true, second_syn, "more SYNs, with data of another protocol"),
    kind("tcp-options", 8, true, tcp_options, "options that lie about their length, or that nobody knows"),
    kind("http-forms", 10, true, http_forms, "requests as servers understand them, too"),
    kind("tls-forms", 10, true, tls_forms, "hellos in odd records, with odd names"),
    kind("depth", 8, true, depth, "what a rule forbids at the beginning of a segment, in later segments"),
    kind("trees", 20, true, tree, "random strategies of Geneva's grammar"),
    kind("odd-packets", 14, true, odd_packets, "whole packets with odd lengths, options, extension headers"),
    kind("forged-answers", 10, true, forged, "packets of the server that the client has made itself"),
    kind("decoy-datagrams", 10, true, decoy_datagrams, "queries behind datagrams that are thrown away"),
    kind(
        "fragment-runs",
        14,
        true,
        pieces::runs,
        "several datagrams in fragments: numbers used again, parts without a byte, parts that come late",
    ),
    kind("fragmented-queries", 10, true, pieces::queries, "DNS queries in fragments, with decoys"),
    kind(
        "bent-servers",
        16,
        true,
        server::tree,
        "random strategies that a server plays towards a client that is Linux",
    ),
    kind("answer-forms", 5, true, forms::answers, "answers with encodings and framings, for curl"),
    kind(
        "request-framings",
        10,
        true,
        forms::framings,
        "requests with odd framing, a forbidden one behind them",
    ),
    kind("lenient-requests", 8, true, lenient::requests, "requests that only lenient servers take"),
    kind(
        "form-parts",
        8,
        true,
        lenient::forms,
        "forms with a forbidden file, whose parts servers find by their own rules",
    ),
    kind("dns-forms", 6, true, forms::queries, "queries that do not look like the common ones"),
    kind("tls-again", 4, true, forms::hellos, "a second hello, because the server asks for one"),
    kind("urgent", 8, true, stream::urgent, "urgent bytes that the receiver takes out of the stream"),
    kind("times", 8, true, stream::times, "timestamps that are old, odd or there twice"),
    kind("syn-data", 8, true, stream::syn_data, "data with the SYN, for listeners with TCP fast open"),
    kind("ports-again", 8, true, stream::again, "another connection at once over the same ports"),
    kind("strays", 8, true, stream::strays, "packets of no connection, and then one on their ports"),
    kind("icmp-errors", 6, true, stream::icmp_errors, "bad news of the connection by ICMP"),
    kind("mail-forms", 12, true, mail::forms, "mail with odd commands, line ends and chunks, for Exim"),
    kind("mail-parts", 12, true, mail::parts, "mail whose parts receivers find by their own rules"),
    kind("windows", 6, true, stream::windows, "more than fits into the window, then other content"),
];

const fn kind(
    name: &'static str,
    weight: usize,
    holds: bool,
    make: fn(&mut Made<'_>) -> Play,
    what: &'static str,
) -> Kind {
    Kind { name, weight, holds, what, make }
}

/// The address of the host with this number. Half of the hosts are adjacent to the receivers, the others
/// beyond a hop that drops packets whose hop limit runs out.
#[must_use]
pub fn address(number: u64, hop: bool, v6: bool) -> IpAddr {
    let net = if hop { 68 } else { 67 };
    let host = (number % 65_536) as u16;
    if v6 {
        Ipv6Addr::new(0xfd00 | (net - 60 + 0x60), 0, 0, 0, 0, 0, 1, host).into()
    } else {
        let [high, low] = host.to_be_bytes();
        Ipv4Addr::new(10, net as u8, high, low).into()
    }
}

/// The address of the host that holds conversation number `number`.
#[must_use]
pub fn talker(number: u64, v6: bool) -> IpAddr {
    let host = (number % 65_536) as u16;
    if v6 {
        return Ipv6Addr::new(0xfd69, 0, 0, 0, 0, 0, 1, host).into();
    }
    let [high, low] = host.to_be_bytes();
    Ipv4Addr::new(10, 69, high, low).into()
}

/// Builds case `number` of kind `kind`; `host` is the number of its host.
#[must_use]
pub fn make(kind: usize, seed: u64, number: u64, host: u64) -> Case {
    let random = &mut Random::of(seed, &[kind as u64, number]);
    let (v6, hop) = (random.percent(50), random.percent(50));
    case(Some(kind), number, host, v6, hop, random, KINDS[kind].make)
}

fn case(
    kind: Option<usize>,
    number: u64,
    host: u64,
    v6: bool,
    hop: bool,
    random: &mut Random,
    make: impl FnOnce(&mut Made<'_>) -> Play,
) -> Case {
    let src = address(host, hop, v6);
    let sport = 1024 + (host / 65_536 * 977 + host % 60_000) as u16 % 60_000;
    let server = crate::net::SERVER[usize::from(v6)];
    let ip = Ip::new(src, server.parse().unwrap_or(src), TCP);
    let mut made = Made {
        random,
        ip,
        sport,
        service: Service::Raw,
        good: None,
        note: String::new(),
        call: None,
        fragmented: 0,
        talker: talker(host, v6),
    };
    let play = make(&mut made);
    // Receivers know a server by its port.
    let (src, sport) = match play {
        Play::Server(_) => (src, made.service.port()),
        // Servers record hosts only.
        Play::Talk(_) => (talker(host, v6), 0),
        Play::Frames(_) | Play::Tcp(_) => (src, sport),
    };
    Case {
        kind,
        number,
        peer: (src, sport),
        service: made.service,
        good: made.good,
        note: made.note,
        call: made.call,
        fragmented: made.fragmented,
        frames: Vec::new(),
        play,
    }
}

/// A strategy of a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The strategy.
    pub strategy: Strategy,
    /// Test that the strategy was found with: `dns`, a name that contains `https`, or HTTP.
    pub test: String,
    /// The server plays the strategy, towards a Linux client.
    pub server: bool,
}

/// A case of a strategy with a request of `test`: `dns`, a name that contains `https`, or HTTP.
#[must_use]
pub fn of_strategy(listed: &Listed, number: u64, host: u64, v6: bool, seed: u64) -> Case {
    let random = &mut Random::of(seed, &[77, number]);
    let (strategy, test) = (&listed.strategy, listed.test.as_str());
    case(None, number, host, v6, true, random, |made| {
        if listed.server {
            made.note = strategy.to_string();
            return server::play(made, true, Some(strategy.clone()));
        }
        made.service = match test {
            "dns" => Service::Dns,
            test if test.contains("https") => Service::Tls,
            _ => Service::Http,
        };
        made.note = strategy.to_string();
        made.with(strategy.clone())
    })
}

fn udp_pair(made: &mut Made<'_>, long: bool) -> (Vec<u8>, Vec<u8>) {
    made.service = Service::Udp;
    made.ip.protocol = UDP;
    let (mut evil, mut good) = payload::pair(Service::Udp, made.random);
    if long && made.random.percent(20) {
        let length = made.random.within(0, 4000);
        let more = made.random.letters(length);
        evil.extend_from_slice(&more);
        good.extend_from_slice(&more);
    }
    (evil, good)
}

fn udp_fragments(made: &mut Made<'_>) -> Play {
    let (evil, good) = udp_pair(made, true);
    // A clean datagram must arrive; decoys between its fragments may contain forbidden bytes.
    let (truth, lie) = if made.random.percent(65) { (&evil, &good) } else { (&good, &evil) };
    let ports = (made.sport, Service::Udp.port());
    let sum = if made.ip.src.is_ipv4() && made.random.percent(20) { Some(0) } else { None };
    let [whole, other] =
        [truth, lie].map(|load| Datagram { chksum: sum, ..Datagram::new(ports, load) }.bytes(&made.ip));
    let plan = fragments::plan(&made.ip, &whole, &other, made.random);
    if plan.clean && *truth == good {
        made.good = Some(good.clone());
    }
    made.note = plan.note;
    made.fragmented = 1;
    Play::Frames(plan.frames)
}

fn udp_headers(made: &mut Made<'_>) -> Play {
    let (evil, good) = udp_pair(made, false);
    let ports = (made.sport, Service::Udp.port());
    let v4 = made.ip.src.is_ipv4();
    let mut frames = Out::new();
    for _ in 0..made.random.within(1, 3) {
        let mut ip = made.ip.clone();
        for _ in 0..made.random.within(0, 2) {
            let fault = fragments::header(&mut ip, v4, made.random);
            made.note.push_str(fault);
            made.note.push_str("; ");
        }
        let load = if made.random.percent(70) { &evil } else { &good };
        let (sum, len) = (
            made.random.percent(5).then_some(0),
            made.random.percent(10).then(|| made.random.below(600) as u16),
        );
        // The checksum covers the true destination.
        let bytes = Datagram { chksum: sum, len, ..Datagram::new(ports, load) }.bytes(&made.ip);
        ip.trailer = if made.random.percent(10) { made.random.below(30) } else { 0 };
        frames.push((0, ip.frame(&bytes, None)));
    }
    Play::Frames(frames)
}

/// A case whose packets all have the same odd header.
fn odd_packets(made: &mut Made<'_>) -> Play {
    made.service =
        *made.random.pick(&[Service::Udp, Service::Udp, Service::Dns, Service::Raw, Service::Http]);
    let true_ip = made.ip.clone();
    if made.random.percent(85) {
        made.note = odd::header(&mut made.ip, made.random).to_owned();
    }
    if !matches!(made.service, Service::Udp | Service::Dns) {
        return Play::Tcp(Box::new(made.client()));
    }
    made.ip.protocol = UDP;
    let (evil, good) = payload::pair(made.service, made.random);
    let ports = (made.sport, made.service.port());
    let mut frames = Out::new();
    if made.random.percent(20) {
        frames.push((
            0,
            Ip { protocol: UDP, ..true_ip.clone() }.frame(&Datagram::new(ports, &good).bytes(&true_ip), None),
        ));
    }
    let mut bytes = Datagram::new(ports, &evil).bytes(&true_ip);
    if made.random.percent(30) {
        let (odd, note) = odd::odd_length(&true_ip, ports, &evil, made.random);
        bytes = odd;
        made.note.push_str(note);
    }
    made.ip.trailer = if made.random.percent(10) { made.random.below(30) } else { 0 };
    frames.push((1, made.ip.frame(&bytes, None)));
    Play::Frames(frames)
}

/// A forbidden query, after datagrams that its receiver never reads and that look like something else.
fn decoy_datagrams(made: &mut Made<'_>) -> Play {
    made.service = Service::Dns;
    made.ip.protocol = UDP;
    let ports = (made.sport, Service::Dns.port());
    let mut frames = Out::new();
    for turn in 0..made.random.within(1, 4) as u64 {
        let length = *made.random.pick(&[1usize, 11, 12, 40, 200]);
        let load = match made.random.below(4) {
            0 => payload::pair(Service::Dns, made.random).1,
            1 => made.random.bytes(length),
            2 => {
                // An answer, as if the client were the server; no resolver expects it.
                let mut answer = payload::pair(Service::Dns, made.random).1;
                answer[2] |= 0x80;
                answer
            }
            _ => made.random.letters(length),
        };
        let (mut frame, mut fault) = odd::decoy(&made.ip, ports, &load, made.random);
        if load.get(2).is_some_and(|flags| flags & 0x80 != 0) && made.random.percent(50) {
            (frame, fault) =
                (made.ip.frame(&Datagram::new(ports, &load).bytes(&made.ip), None), "none, an answer");
        }
        made.note.push_str(&format!("{} bytes with fault: {fault}; ", load.len()));
        frames.push((turn, frame));
    }
    let (evil, _) = payload::pair(Service::Dns, made.random);
    for turn in 0..made.random.within(1, 2) as u64 {
        frames.push((5 + 5 * turn, made.ip.frame(&Datagram::new(ports, &evil).bytes(&made.ip), None)));
    }
    Play::Frames(frames)
}

fn tcp_fragments(made: &mut Made<'_>) -> Play {
    made.tcp_service();
    let mut client = made.client();
    client.style = Style::Fragments;
    Play::Tcp(Box::new(client))
}

fn rough(made: &mut Made<'_>) -> Play {
    made.tcp_service();
    let mut client = made.client();
    if made.random.percent(35) {
        std::mem::swap(&mut client.truth, &mut client.lie);
        made.note.push_str("ends clean");
    }
    client.timestamps = made.random.percent(50);
    client.style = Style::Rough(made.random.within(3, 40));
    Play::Tcp(Box::new(client))
}

fn forged(made: &mut Made<'_>) -> Play {
    made.tcp_service();
    let mut client = made.client();
    client.timestamps = made.random.percent(50);
    client.style = Style::Forged;
    Play::Tcp(Box::new(client))
}

fn second_syn(made: &mut Made<'_>) -> Play {
    made.tcp_service();
    let mut client = made.client();
    for _ in 0..*made.random.pick(&[1, 1, 1, 2, 3]) {
        let length = *made.random.pick(&[0usize, 1, 5, 40, 200, 600, 1300]);
        let load = match made.random.below(6) {
            0 => payload::pair(Service::Dns, made.random).1,
            1 => payload::pair(Service::Http, made.random).1,
            2 => payload::pair(Service::Tls, made.random).1,
            3 => made.random.bytes(length),
            _ => made.random.letters(length),
        };
        let far = match made.random.below(6) {
            0 => 1 + made.random.below(2000) as u32,
            1 => (1 + made.random.below(2000) as u32).wrapping_neg(),
            2 => *made.random.pick(&[1 << 31, (1 << 31) - 1, 1 << 30, 70_000]),
            _ => made.random.draw() as u32,
        };
        let flags = SYN | *made.random.pick(&[0, 0, 0, 0, 8, 1, 0x20, 0xc0]);
        client.opening.push(Opening { far, flags, load, first: made.random.percent(20) });
    }
    Play::Tcp(Box::new(client))
}

fn tcp_options(made: &mut Made<'_>) -> Play {
    made.tcp_service();
    let mut client = made.client();
    for at in 0..2 {
        if made.random.percent(70) {
            let odd: &[&[u8]] = &[
                &[8, 10, 0, 1],
                &[8, 10],
                &[8, 0, 1, 1],
                &[8, 1, 1, 1],
                &[2, 3, 5, 0],
                &[2, 44, 5, 180],
                &[3, 2, 1, 1],
                &[3, 15, 7],
                &[4, 3, 0, 0],
                &[5, 3, 1, 0],
                &[5, 10, 0, 0, 0, 1, 0, 0, 0, 9],
                &[19, 18, 7, 7, 7, 7],
                &[19, 4, 7, 7],
                &[29, 4, 1, 1],
                &[34, 2, 1, 1],
                &[34, 1, 1, 1],
                &[253, 0, 1, 1],
                &[253, 200, 1, 1],
                &[0, 99, 99, 99],
                &[1, 1, 1, 30],
            ];
            client.raw_options[at] = made.random.pick(odd).to_vec();
        }
    }
    made.note = format!("options of SYN and data: {:?}", client.raw_options);
    Play::Tcp(Box::new(client))
}

/// Cuts the data at random offsets and sends piece after piece.
fn pieces(client: &mut Client, random: &mut Random) {
    let all = client.truth.len();
    let mut ends: Vec<usize> = match random.below(4) {
        0 => Vec::new(),
        1 => (1..all.min(30)).collect(),
        _ => (0..random.within(1, 5)).map(|_| random.within(1, all)).collect(),
    };
    ends.push(all);
    ends.sort_unstable();
    ends.dedup();
    client.style = Style::Pieces { ends, gap: *random.pick(&[None, None, Some(0), Some(3)]) };
}

fn http_forms(made: &mut Made<'_>) -> Play {
    made.service = Service::Http;
    let request = payload::http_form(made.random);
    made.note = String::from_utf8_lossy(&request).into_owned();
    let mut client = made.client_of(request.clone(), request);
    pieces(&mut client, made.random);
    Play::Tcp(Box::new(client))
}

fn tls_forms(made: &mut Made<'_>) -> Play {
    made.service = Service::Tls;
    let (hello, note) = payload::tls_form(made.random);
    made.note = note;
    let mut client = made.client_of(hello.clone(), hello);
    pieces(&mut client, made.random);
    Play::Tcp(Box::new(client))
}

/// Segments of letters, one of which, not cut and not overtaken, contains the bytes that a rule forbids at
/// this depth.
fn depth(made: &mut Made<'_>) -> Play {
    let form = made.random.below(3);
    made.service = Service::Depth(form as u8);
    let count = made.random.within(1, 6);
    let evil = made.random.below(count);
    let (mut data, mut ends) = (Vec::new(), Vec::new());
    for turn in 0..count {
        if turn == evil {
            // The rules: depth 5; offset 3, depth 8; startswith.
            let before = if form == 1 { made.random.within(3, 6) } else { 0 };
            data.extend(made.random.letters(before));
            data.extend(b"PONG ");
        }
        let length = made.random.within(1, 300);
        data.extend(made.random.letters(length));
        ends.push(data.len());
    }
    made.note = format!("segment {evil} of {count}, rule {form}");
    let mut client = made.client_of(data.clone(), data);
    client.style = Style::Pieces { ends, gap: *made.random.pick(&[None, None, Some(1)]) };
    Play::Tcp(Box::new(client))
}

fn tree(made: &mut Made<'_>) -> Play {
    made.tcp_service();
    let strategy = trees::strategy(made.random);
    made.note = strategy.to_string();
    made.with(strategy)
}

impl Case {
    /// The family's name.
    #[must_use]
    pub fn family(&self) -> &'static str {
        self.kind.map_or("geneva", |kind| KINDS[kind].name)
    }
}
