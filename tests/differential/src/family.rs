// SPDX-License-Identifier: Apache-2.0
//! The families of scenes.

use crate::order::Family;
use crate::scene::{Scene, Target};
use crate::talk::{Message, Way};
use crate::text::data;
use crate::usual::usual;
use crate::{dns, http, tls};
use bartizan_testkit::random::Random;

/// All families; an entry that appears twice is chosen twice as often.
pub const FAMILIES: &[Family] = &[
    Family { name: "tcp", scene: raw_tcp, conditions: &[], rule: usual },
    Family { name: "http", scene: http::scene, conditions: HTTP_CONDITIONS, rule: usual },
    Family { name: "udp", scene: raw_udp, conditions: &[], rule: usual },
    Family { name: "tcp", scene: raw_tcp, conditions: &[], rule: usual },
    Family { name: "dns", scene: dns::scene, conditions: dns::CONDITIONS, rule: usual },
    Family { name: "http", scene: http::scene, conditions: HTTP_CONDITIONS, rule: usual },
    Family { name: "tls", scene: tls::scene, conditions: tls::CONDITIONS, rule: usual },
    Family { name: "state", scene: repeated, conditions: &[], rule: usual },
];

const HTTP_CONDITIONS: &[&str] = &[
    "urilen:>5",
    "urilen:<9",
    "urilen:5<>12",
    "urilen:8,raw",
    "urilen:!8,norm",
    "filesize:>20",
    "filesize:<40",
    "fileext:\"end\"",
    "filename:\"abc\"",
    "file.name; content:\"a\"",
    "filemd5:!nothing",
    "app-layer-event:http.missing_host_header",
    "app-layer-event:http.unable_to_match_response_to_request",
    "app-layer-event:http.request_header_repetition",
    "http.header_names; content:\"|0d 0a|Host|0d 0a|\"",
    "http.header_names; content:!\"Cookie\"",
    "http.stat_code; content:\"200\"",
    "http.method; content:\"GET\"",
    "http.content_len; byte_test:0,>,10,0,string,dec",
    "http.uri; pcre:\"/a/U\"",
    "content:\"a\"; http_uri",
    "content:\"a\"; http_header",
    "content:\"a\"; http_client_body",
    "content:\"a\"; http_server_body; nocase",
    "content:\"a\"; http_cookie",
    "content:\"GET\"; http_method",
    "content:\"2\"; http_stat_code",
    "content:\"/\"; depth:1; http_uri",
    "pcre:\"/a/P\"",
    "pcre:\"/a/Q\"",
    "pcre:\"/a/H\"",
    "uricontent:\"a\"",
    "http.uri; content:\"/\"; startswith; bsize:>4",
    "http.user_agent; bsize:5",
    "file.data; content:\"e\"; pkt_data; content:\"HTTP\"",
];

pub(crate) fn raw_tcp(random: &mut Random) -> Scene {
    let mut messages = Vec::new();
    for at in 0..random.within(1, 4) {
        let words = random.within(2, 14);
        let to_server = if at == 0 { random.percent(85) } else { random.percent(50) };
        messages.push(Message::new(to_server, data(random, words)));
    }
    let way = Way { port: *random.pick(&[4_000, 4_000, 25_000, 80, 53]), ..Way::default() };
    over(random, messages, way, &["tcp", "tcp", "tcp", "tcp", "ip", "tcp-pkt", "tcp-stream"])
}

pub(crate) fn raw_udp(random: &mut Random) -> Scene {
    let mut messages = Vec::new();
    for _ in 0..random.within(1, 5) {
        let words = random.within(1, 10);
        messages.push(Message::new(random.percent(65), data(random, words)));
    }
    let way = Way { udp: true, ..Way::default() };
    over(random, messages, way, &["udp", "udp", "udp", "ip"])
}

/// Words that several clients repeat in several flows: tests rules that count or remember.
pub(crate) fn repeated(random: &mut Random) -> Scene {
    let words: Vec<Vec<u8>> = (0..2).map(|_| data(random, 4)).collect();
    let mut messages = Vec::new();
    for _ in 0..random.within(4, 9) {
        let mut message = Message::new(random.percent(80), random.pick(&words).clone());
        message.client = *random.pick(&[0, 0, 0, 1]);
        message.flow = *random.pick(&[0, 0, 1]);
        message.pause = *random.pick(&[0, 0, 0, 350]);
        messages.push(message);
    }
    let way = Way { udp: random.percent(50), ..Way::default() };
    let protos: &[&'static str] = if way.udp { &["udp"] } else { &["tcp", "tcp-pkt"] };
    over(random, messages, way, protos)
}

fn over(random: &mut Random, messages: Vec<Message>, way: Way, protos: &[&'static str]) -> Scene {
    let targets = messages
        .iter()
        .flat_map(|message| {
            let proto = *random.pick(protos);
            let target =
                Target { proto, buffer: "", data: message.data.clone(), to_server: message.to_server };
            [target]
        })
        .collect();
    Scene { messages, way, targets, beside: Vec::new() }
}
