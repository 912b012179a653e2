// SPDX-License-Identifier: Apache-2.0
//! Empty or missing buffers, and conditions that hold for them.

use super::{message, web};
use crate::order::Order;
use crate::pair::Rule;
use crate::scene::{Scene, Target};
use crate::usual::head;
use bartizan_testkit::random::Random;

/// One or two requests with headers that have a value, have none, or are missing; with and without bodies.
pub(super) fn scene(random: &mut Random) -> Scene {
    let mut messages = Vec::new();
    for _ in 0..random.within(1, 2) {
        let method = *random.pick(&["GET", "GET", "POST"]);
        let uri = *random.pick(&["/", "/?", "/?a=", "/ab"]);
        let mut text =
            format!("{method} {uri} HTTP/1.1\r\nHost:{}\r\n", random.pick(&["", " ", " a.example"]));
        for name in ["User-Agent", "Cookie", "Referer", "Content-Type", "Accept"] {
            header(random, &mut text, name);
        }
        let body = if method == "POST" { *random.pick(&["", "", "abc"]) } else { "" };
        if method == "POST" || random.percent(20) {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        messages.push(message(true, format!("{text}\r\n{body}")));
        let body = *random.pick(&["", "", "abc"]);
        let mut text = format!("HTTP/1.1 200{}\r\n", random.pick(&["", " ", " OK"]));
        for name in ["Server", "Location", "Set-Cookie", "Content-Type"] {
            header(random, &mut text, name);
        }
        let length = body.len();
        messages.push(message(false, format!("{text}Content-Length: {length}\r\n\r\n{body}")));
    }
    let target = |to_server| Target { proto: "http", buffer: "", data: b"abc".to_vec(), to_server };
    Scene { messages, way: web(random), targets: vec![target(true), target(false)], beside: Vec::new() }
}

fn header(random: &mut Random, text: &mut String, name: &str) {
    match random.below(4) {
        0 => text.push_str(&format!("{name}:\r\n")),
        1 => text.push_str(&format!("{name}: \r\n")),
        2 => text.push_str(&format!("{name}: ab\r\n")),
        _ => {}
    }
}

/// A rule on a buffer of the scene, perhaps after a transform, with a condition that an empty value can meet.
pub(super) fn rule(random: &mut Random, order: &Order<'_>) -> (String, Rule) {
    const REQUEST: &[&str] = &[
        "http.host",
        "http.host.raw",
        "http.uri",
        "http.user_agent",
        "http.cookie",
        "http.referer",
        "http.content_type",
        "http.accept",
        "http.request_body",
        "http.content_len",
    ];
    const RESPONSE: &[&str] = &[
        "http.server",
        "http.location",
        "http.cookie",
        "http.content_type",
        "http.stat_msg",
        "http.response_body",
        "file.data",
    ];
    const TRANSFORMS: &[&str] = &[
        "to_md5",
        "to_sha1",
        "to_sha256",
        "dotprefix",
        "url_decode",
        "strip_whitespace",
        "compress_whitespace",
        "to_lowercase",
        "xor:\"0d0ac8ff\"",
        "strip_whitespace; to_md5",
        "from_base64",
    ];
    const LOOKS: &[&str] = &[
        "bsize:0",
        "bsize:<3",
        "bsize:!0",
        "bsize:1",
        "bsize:>0",
        "content:!\"a\"",
        "absent",
        "absent:or_else; content:!\"a\"",
        "isdataat:!1",
        "isdataat:1",
        "pcre:\"/^$/\"",
        "pcre:!\"/a/\"",
        "entropy: value < 1",
        "entropy: value >= 0",
        "content:\"ab\"",
        "content:\".\"",
        "byte_test:1,!=,1,0",
    ];
    let to_server = order.target.to_server;
    let buffer = *random.pick(if to_server { REQUEST } else { RESPONSE });
    let mut options = vec![buffer.to_string()];
    let mut name = buffer.to_string();
    let look = *random.pick(LOOKS);
    if random.percent(35) {
        let transform = *random.pick(TRANSFORMS);
        options.push(transform.into());
        name.push('+');
        name.push_str(transform.split([':', ';']).next().unwrap_or_default());
    }
    options.push(look.into());
    name.push('+');
    name.push_str(look.split(';').next().unwrap_or_default());
    let head = head(random, order.target);
    (name, order.rule(random, head, options))
}
