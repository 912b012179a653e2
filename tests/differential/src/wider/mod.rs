// SPDX-License-Identifier: Apache-2.0
//! The wider grammar: negated, absent or empty content, packet buffers next to a transaction's, port lists on
//! packets without ports, state keywords alone, negated and several protocols.
//!
//! Its pairs follow those of the first grammar ([`crate::make::FIRST_WIDER`]), which stay unchanged.

mod empty;
mod negated;

use crate::family::{raw_tcp, raw_udp, repeated};
use crate::look::LOOKS;
use crate::order::{Family, Order};
use crate::pair::{Body, Packet, Rule};
use crate::scene::{Scene, Target};
use crate::talk::{Message, Way, packet};
use crate::text::{content, data};
use crate::usual::head;
use crate::{dns, http, tls};
use bartizan_testkit::random::Random;

/// The families; an entry that appears twice is chosen twice as often.
pub const WIDER: &[Family] = &[
    Family { name: "negated", scene: raw, conditions: &[], rule: negated::rule },
    Family { name: "absent", scene: http::scene, conditions: &[], rule: absent },
    Family { name: "packet-buffer", scene: spoken, conditions: &[], rule: beside_a_packet },
    Family { name: "portless", scene: portless, conditions: &[], rule: by_ports },
    Family { name: "negated", scene: http::scene, conditions: &[], rule: negated::rule },
    Family { name: "state-alone", scene: repeated, conditions: &[], rule: state_alone },
    Family { name: "protocol", scene: any_protocol, conditions: &[], rule: by_protocol },
    Family { name: "empty", scene: empty::scene, conditions: &[], rule: empty::rule },
];

fn raw(random: &mut Random) -> Scene {
    if random.percent(60) { raw_tcp(random) } else { raw_udp(random) }
}

/// A conversation with transactions.
fn spoken(random: &mut Random) -> Scene {
    let scene = random.pick(&[http::scene, http::scene, dns::scene, tls::scene]);
    scene(random)
}

fn any_protocol(random: &mut Random) -> Scene {
    if random.percent(40) { raw(random) } else { spoken(random) }
}

/// A rule with `absent`, alone or next to a condition on another buffer.
fn absent(random: &mut Random, order: &Order<'_>) -> (String, Rule) {
    const REQUEST: &[&str] = &[
        "http.request_body",
        "file.data",
        "http.cookie",
        "http.referer",
        "http.user_agent",
        "http.content_type",
        "http.host",
        "http.accept",
        "http.content_len",
    ];
    const RESPONSE: &[&str] = &[
        "http.response_body",
        "file.data",
        "http.cookie",
        "http.server",
        "http.location",
        "http.content_type",
        "http.content_len",
    ];
    let to_server = random.percent(50);
    let buffer = *random.pick(if to_server { REQUEST } else { RESPONSE });
    let way = if random.percent(60) { "absent".into() } else { format!("absent:or_else; {}", other(random)) };
    let condition = if to_server {
        *random.pick(&[
            "",
            "",
            "http.method; content:\"POST\"",
            "http.uri; content:\"/\"",
            "flow:established",
        ])
    } else {
        *random.pick(&["", "", "http.stat_code; content:\"200\"", "flow:to_client", "flow:established"])
    };
    let mut options = vec![buffer.to_string(), way.clone()];
    if !condition.is_empty() {
        options.insert(
            if condition.starts_with("flow") || random.percent(50) { 0 } else { 2 },
            condition.into(),
        );
    }
    let target = Target { proto: "http", to_server, ..order.target.clone() };
    let head = head(random, &target);
    (format!("{buffer}+{}", &way[..way.find(';').unwrap_or(way.len())]), order.rule(random, head, options))
}

/// A negated option to add after `absent`.
fn other(random: &mut Random) -> String {
    const BYTES: &[&[u8]] = &[b"ab", b"e", b"qqqq", b"tok"];
    let bytes: &&[u8] = random.pick(BYTES);
    content(bytes).replacen(':', ":!", 1)
}

/// A condition on the packet next to one on a transaction's buffer: the rule acts on the packet.
fn beside_a_packet(random: &mut Random, order: &Order<'_>) -> (String, Rule) {
    const ANY: &[&str] = &[
        "ip.src; content:\"|0a|\"; startswith; pkt_data",
        "ip.dst; content:!\"zz\"; pkt_data",
        "ttl:64",
        "ttl:<65",
        "dsize:>0",
        "tos:0",
        "ipv4.hdr; bsize:20; pkt_data",
        "fragbits:!M",
    ];
    const TCP: &[&str] =
        &["flags:PA", "flags:A+", "window:8192", "tcp.hdr; bsize:20; pkt_data", "ack:900001", "tcp.flags:PA"];
    let target = order.target;
    let (_, look) = random.pick(LOOKS);
    let looked = look(random, &target.data);
    let of_tcp = !order.scene.way.udp && random.percent(40);
    let packet = *random.pick(if of_tcp { TCP } else { ANY });
    let mut options = Vec::new();
    if !target.buffer.is_empty() {
        options.push(target.buffer.into());
    }
    options.extend(looked);
    let (first, last) = (options.clone(), options);
    let options = if random.percent(50) {
        // Options before the first buffer are about the packet.
        [vec![packet.to_string()], first].concat()
    } else {
        [last, vec![packet.trim_end_matches("; pkt_data").to_string()]].concat()
    };
    let any = *random.pick(&["alert", "drop", "drop", "pass", "pass", "reject"]);
    let action = order.action.unwrap_or(any);
    let rule = Rule { action, head: head(random, target), options };
    (format!("{}+{packet}", target.buffer), rule)
}

/// A conversation among packets without ports: echoes, other protocols; fragments come from the transport
/// parameters.
fn portless(random: &mut Random) -> Scene {
    let mut scene = raw(random);
    for _ in 0..random.within(2, 5) {
        let load = data(random, 3);
        let body = match random.below(3) {
            0 => Body::Echo(random.percent(60), random.below(9) as u32, load),
            1 => Body::Other(*random.pick(&[99, 61, 253]), load),
            _ => Body::Udp(load),
        };
        let mut beside: Packet = packet((random.below(2) as u8, 0), &scene.way, random.percent(70), body);
        if matches!(beside.body, Body::Udp(_)) {
            beside.fragments = Some(8);
        }
        scene.beside.push(beside);
    }
    scene
}

/// Rules with port lists of every form.
fn by_ports(random: &mut Random, order: &Order<'_>) -> (String, Rule) {
    const PORTS: &[&str] = &[
        "any",
        "!80",
        ":5000",
        "0:",
        "4000:",
        "[80,!81]",
        "[1:5000,!4000]",
        "!4000",
        "!0",
        "0",
        "[!80,!443]",
        "1024:65535",
        "4000",
        "[4000,53]",
        "!1:1024",
    ];
    let proto = *random.pick(&["ip", "ip", "ip", "icmp", "udp", "tcp"]);
    let (from, to) = (*random.pick(PORTS), *random.pick(PORTS));
    let (from, to) = if random.percent(60) { ("any", to) } else { (from, to) };
    let arrow = if random.percent(15) { "<>" } else { "->" };
    let mut options = Vec::new();
    match random.below(5) {
        0 => options.push((*random.pick(&["dsize:>0", "ttl:64", "ip_proto:!6", "fragbits:!M"])).to_string()),
        1 => {
            let (_, look) = random.pick(LOOKS);
            options.extend(look(random, &order.target.data));
        }
        _ => {}
    }
    let hosts = *random.pick(&[("[@C,@S]", "any"), ("any", "@S"), ("@C", "any"), ("@S", "any")]);
    let head = format!("{proto} {} {from} {arrow} {} {to}", hosts.0, hosts.1);
    (format!("{proto}+{to}"), order.rule(random, head, options))
}

/// Rules with state keywords only, or with a header condition.
fn state_alone(random: &mut Random, order: &Order<'_>) -> (String, Rule) {
    const STATES: &[&str] = &[
        "flowbits:set,s@N",
        "flowbits:unset,s@N",
        "flowbits:toggle,s@N",
        "flowbits:isset,s@N",
        "flowbits:isnotset,s@N",
        "flowint:i@N,+,1",
        "flowint:i@N,+,1",
        "flowint:i@N,=,3",
        "flowint:i@N,-,1",
        "flowint:i@N,>,2",
        "flowint:i@N,<,4",
        "flowint:i@N,isset",
        "flowint:i@N,notset",
        "xbits:set,x@N,track ip_src,expire 60",
        "xbits:isset,x@N,track ip_src",
        "xbits:isnotset,x@N,track ip_src",
        "xbits:toggle,x@N,track ip_pair,expire 60",
        "xbits:unset,x@N,track ip_src",
        "hostbits:set,h@N,src",
        "hostbits:isset,h@N,src",
        "hostbits:isnotset,h@N,dst",
        "hostbits:toggle,h@N,src",
    ];
    let state = *random.pick(STATES);
    let mut options = vec![state.to_string()];
    match random.below(6) {
        0 => options.insert(0, "flow:to_server".into()),
        1 => options.push("dsize:>0".into()),
        2 => options.push((*random.pick(STATES)).into()),
        _ => {}
    }
    let head = head(random, order.target);
    (state.split(',').next().unwrap_or_default().into(), order.rule(random, head, options))
}

/// Rules on protocols: negated, several, and by side.
fn by_protocol(random: &mut Random, order: &Order<'_>) -> (String, Rule) {
    const NAMES: &[&str] = &["http", "tls", "dns", "failed", "unknown", "tls|http", "http|dns"];
    const MODES: &[&str] =
        &["", "", "", ",either", ",final", ",original", ",exact", ",to_server", ",to_client"];
    let not = if random.percent(50) { "!" } else { "" };
    let (name, mode) = (*random.pick(NAMES), *random.pick(MODES));
    let mut options = vec![format!("app-layer-protocol:{not}{name}{mode}")];
    match random.below(6) {
        0 => options.push("dsize:>0".into()),
        1 => options.push("flow:established".into()),
        2 if !order.scene.way.udp => {
            options.push((*random.pick(&["flags:S", "flags:PA", "flags:A+"])).into())
        }
        3 if order.target.buffer.is_empty() => {
            let (_, look) = random.pick(LOOKS);
            options.extend(look(random, &order.target.data));
        }
        _ => {}
    }
    let proto = if order.scene.way.udp { "udp" } else { "tcp" };
    let proto = if random.percent(66) { proto } else { "ip" };
    let target = Target { proto, ..order.target.clone() };
    let head = head(random, &target);
    (format!("{not}{name}{mode}"), order.rule(random, head, options))
}

/// A message of a flow of the first client.
fn message(to_server: bool, text: String) -> Message {
    Message::new(to_server, text.into_bytes())
}

/// Transport parameters of HTTP requests.
fn web(random: &mut Random) -> Way {
    Way { port: *random.pick(&[80, 8080]), ..Way::default() }
}
