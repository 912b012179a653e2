// SPDX-License-Identifier: Apache-2.0
//! Conversations of SSH (RFC 4253): identification lines, key exchange, and what is encrypted.

use super::conversation::Talk;
use super::writer::Writer;
use crate::scene::Scene;
use crate::talk::Way;
use crate::text::name;
use bartizan_testkit::random::Random;

/// Conditions of rules on SSH.
pub(super) const CONDITIONS: &[&str] = &[
    "app-layer-event:ssh.invalid_banner",
    "app-layer-event:ssh.long_banner",
    "app-layer-event:ssh.invalid_record",
    "app-layer-event:ssh.long_kex_record",
    "ssh.proto; content:\"2.0\"; bsize:3",
    "ssh.proto; content:\"1.\"",
    "ssh.software; content:\"OpenSSH\"",
    "ssh.software; content:!\"abc\"",
    "ssh.software; bsize:>8",
    "ssh.hassh; pcre:\"/^[0-9a-f]{32}$/\"",
    "ssh.hassh; content:\"a\"",
    "ssh.hassh.server; content:\"0\"",
    "ssh.hassh.string; content:\"sha2\"",
    "ssh.hassh.server.string; content:\"|3b|\"",
    "ssh.protoversion:2.0",
    "ssh.softwareversion:\"OpenSSH\"",
    "frame:ssh.record.hdr; content:\"|00 00|\"; startswith",
    "frame:ssh.record.pdu; bsize:>100",
    "frame:ssh.record.data; content:\"a\"",
];

const LISTS: &[&[&str]] = &[
    &["curve25519-sha256", "ecdh-sha2-nistp256", "diffie-hellman-group14-sha256", "ext-info-c", "abc"],
    &["ssh-ed25519", "rsa-sha2-512", "ssh-rsa", "ecdsa-sha2-nistp256"],
    &["aes128-ctr", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com", "3des-cbc"],
    &["aes128-ctr", "aes256-gcm@openssh.com", "aes192-ctr"],
    &["hmac-sha2-256", "hmac-sha1", "umac-64@openssh.com"],
    &["hmac-sha2-512", "hmac-md5"],
    &["none", "zlib@openssh.com"],
    &["none", "zlib"],
    &["", "de"],
    &["", "en"],
];

/// A conversation.
pub(super) fn scene(random: &mut Random) -> Scene {
    let mut talk = Talk::default();
    let mut way = Way { port: *random.pick(&[22, 22, 22, 2222]), ..Way::default() };
    let banners = [banner(random, &mut talk, true), banner(random, &mut talk, false)];
    let keys = [key_exchange(random, &mut talk, true), key_exchange(random, &mut talk, false)];
    let [client_banner, server_banner] = banners;
    let [client_keys, server_keys] = keys;
    // Some clients send their keys with the line; either side may begin.
    match random.below(6) {
        0 => {
            talk.client(client_banner);
            talk.server([server_banner, server_keys].concat());
            talk.client(client_keys);
        }
        1 => {
            talk.server(server_banner);
            talk.client([client_banner, client_keys].concat());
            talk.server(server_keys);
        }
        2 => {
            talk.client(client_banner);
            talk.server(server_banner);
            talk.client(client_keys);
            talk.server(server_keys);
        }
        _ => {
            talk.server(server_banner);
            talk.client(client_banner);
            talk.client(client_keys);
            talk.server(server_keys);
        }
    }
    rest(random, &mut talk);
    if random.percent(12) {
        let keep = random.within(1, talk.messages.len());
        talk.messages.truncate(keep);
    }
    if random.percent(22) {
        talk.disturb(random);
    }
    let some: Vec<_> = talk.messages.iter().map(|one| (one.data.clone(), one.to_server)).take(6).collect();
    for (at, (bytes, to_server)) in some.into_iter().enumerate() {
        let (proto, buffer) =
            [("tcp", ""), ("ssh", ""), ("ssh", "frame:ssh.record.pdu"), ("ssh", "frame:ssh.record.data")]
                [at % 4];
        talk.target(proto, buffer, bytes, to_server);
    }
    if random.percent(15) {
        way.sizes = (0..6).map(|_| random.within(1, 90)).collect();
    }
    Scene { messages: talk.messages, way, targets: talk.targets, beside: Vec::new() }
}

/// An identification line, of a server perhaps with others before it.
fn banner(random: &mut Random, talk: &mut Talk, to_server: bool) -> Vec<u8> {
    let software = match random.below(6) {
        0 => format!("OpenSSH_9.2p1 Debian-{}", name(random, 1)),
        1 => format!("{}_1.0 {} {}", name(random, 1), name(random, 1), name(random, 1)),
        2 => name(random, 2),
        _ => format!("OpenSSH_{}", name(random, 1)),
    };
    let version = *random.pick(&["2.0", "2.0", "2.0", "2.0", "1.99", "1.5"]);
    let end = *random.pick(&["\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r", ""]);
    let mut line = format!("SSH-{version}-{software}");
    match random.below(26) {
        0 => line = format!("SSH-{version}"),
        1 => line = format!("SSH-{version}-"),
        2 => line = format!("ssh-{version}-{software}"),
        3 => line = format!("SSH-{version}-{}", "x".repeat(random.within(240, 270))),
        4 => line = format!("SSH-{}-{software}", ""),
        5 => line = format!("SSH-{version}-{software}-{version}"),
        6 => line = format!("SSH{software}"),
        7 => line.clone_from(&software),
        _ => {}
    }
    talk.target("ssh", "ssh.proto", version, to_server);
    talk.target("ssh", "ssh.software", &software, to_server);
    let mut bytes = Vec::new();
    if !to_server && random.percent(8) {
        for _ in 0..random.within(1, 3) {
            bytes.extend(format!("{} before\r\n", name(random, 1)).bytes());
        }
    }
    bytes.extend(line.bytes());
    bytes.extend(end.bytes());
    bytes
}

/// A packet (RFC 4253 section 6) that is not encrypted.
fn record(random: &mut Random, code: u8, body: &[u8]) -> Vec<u8> {
    let padding = 4 + (8 - (body.len() + 10) % 8) % 8;
    let mut packet = Writer::new(true);
    let length = body.len() + 2 + padding;
    let length = match random.below(60) {
        0 => length + 3,
        1 => length.saturating_sub(3),
        2 => 0,
        3 => 1,
        4 => 0x00ff_ffff,
        5 => 36_000,
        _ => length,
    };
    packet.u32(length as u32).u8(padding as u8).u8(code).put(body).zero(padding);
    packet.bytes
}

fn key_exchange(random: &mut Random, talk: &mut Talk, to_server: bool) -> Vec<u8> {
    let cookie = random.bytes(16);
    let mut body = Writer::new(true);
    body.put(&cookie);
    let mut lists = Vec::new();
    for words in LISTS {
        let mut words: Vec<&str> = words.to_vec();
        random.shuffle(&mut words);
        let keep = match random.below(16) {
            0 => 0,
            _ => random.within(1, words.len()),
        };
        words.truncate(keep);
        let list = words.join(",");
        let length = if random.percent(1) { list.len() + 40 } else { list.len() };
        body.u32(length as u32).put(&list);
        lists.push(list);
    }
    body.u8(0).u32(0);
    if random.percent(3) {
        let keep = random.below(body.bytes.len());
        body.bytes.truncate(keep);
    }
    let sides = if to_server { [0, 2, 4, 6] } else { [0, 3, 5, 7] };
    let text = sides.map(|at| lists[at].clone()).join(";");
    let (hash, string) = if to_server {
        ("ssh.hassh", "ssh.hassh.string")
    } else {
        ("ssh.hassh.server", "ssh.hassh.server.string")
    };
    talk.target("ssh", string, &text, to_server);
    talk.target("ssh", hash, "0123456789abcdef", to_server);
    record(random, 20, &body.bytes)
}

/// The exchange of keys, and encrypted data.
fn rest(random: &mut Random, talk: &mut Talk) {
    let (secret, answer) = (random.bytes(36), random.bytes(90));
    let (init, reply) = *random.pick(&[(30, 31), (30, 31), (34, 33)]);
    let init = record(random, init, &secret);
    let reply = record(random, reply, &answer);
    let new_keys = [record(random, 21, &[]), record(random, 21, &[])];
    talk.client(init);
    let secret = random.bytes(40);
    if random.percent(70) {
        talk.server([reply, new_keys[0].clone()].concat());
    } else {
        talk.server(reply);
        talk.server(&new_keys[0]);
    }
    if random.percent(60) {
        talk.client([new_keys[1].clone(), secret].concat());
    } else {
        talk.client(&new_keys[1]);
        talk.client(secret);
    }
    for _ in 0..random.below(4) {
        let length = random.within(16, 70);
        let bytes = random.bytes(length);
        if random.percent(50) { talk.client(bytes) } else { talk.server(bytes) }
    }
}
