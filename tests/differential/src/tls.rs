// SPDX-License-Identifier: Apache-2.0
//! TLS handshakes with certificates, as far as they are not encrypted.

use crate::scene::{Scene, Target};
use crate::talk::{Message, Way};
use crate::text::name;
use bartizan_testkit::random::Random;

/// A handshake and some data.
#[must_use]
pub fn scene(random: &mut Random) -> Scene {
    let server = format!("{}.example.org", name(random, 2));
    let (subject, issuer) = (name(random, 2), name(random, 1));
    let version = *random.pick(&[0x0301_u16, 0x0302, 0x0303, 0x0303]);
    let thirteen = random.percent(25);
    let hello = client_hello(random, version, &server, thirteen);
    let serial = random.bytes(6);
    let leaf = certificate(&serial, &subject, &issuer);
    let mut answer = server_hello(random, version, thirteen);
    let listed = !thirteen && random.percent(85);
    if listed {
        let second = random.percent(30).then(|| certificate(b"\x01\x02", &issuer, &issuer));
        answer.extend(certificates(&[Some(leaf), second]));
        answer.extend(message(14, &[]));
    }
    let mut back = record(22, version, &answer);
    if random.percent(30) {
        // The same content in records of another size.
        let size = random.within(5, 200);
        back = answer.chunks(size).flat_map(|piece| record(22, version, piece)).collect();
    }
    let (secret, data) = (random.bytes(40), random.bytes(60));
    let client =
        [record(20, version, &[1]), record(22, version, &secret), record(23, version, &data)].concat();
    let text = |value: String| value.into_bytes();
    let mut targets = Vec::new();
    let mut add = |buffer: &'static str, data: Vec<u8>, to_server| {
        targets.push(Target { proto: "tls", buffer, data, to_server })
    };
    add("tls.sni", text(server.clone()), true);
    add("tls.sni", text(server), true);
    add("", hello.clone(), true);
    add("tls.random", vec![7; 32], true);
    add("ja3.string", text(format!("{version},", version = u32::from(version))), true);
    add("ja3s.string", text(format!("{version},", version = u32::from(version))), false);
    if listed {
        add("tls.cert_subject", text(format!("CN={subject}")), false);
        add("tls.cert_issuer", text(format!("CN={issuer}")), false);
        let serial: Vec<String> = serial.iter().map(|byte| format!("{byte:02X}")).collect();
        add("tls.cert_serial", text(serial.join(":")), false);
        add("tls.certs", text(subject), false);
        add("tls.cert_fingerprint", b"0a:".to_vec(), false);
    }
    let mut messages = vec![Message::new(true, hello), Message::new(false, back), Message::new(true, client)];
    let (change, more) = (record(20, version, &[1]), random.bytes(50));
    messages
        .push(Message::new(false, [change, record(22, version, &more), record(23, version, &more)].concat()));
    if random.percent(20) {
        messages.push(Message::new(true, record(21, version, &[1, 0])));
    }
    if random.percent(15) {
        let keep = random.within(1, messages.len() - 1);
        messages.truncate(keep);
    }
    Scene {
        messages,
        way: Way { port: *random.pick(&[443, 443, 8443]), ..Way::default() },
        targets,
        beside: Vec::new(),
    }
}

/// Additional conditions of TLS rules.
pub const CONDITIONS: &[&str] = &[
    "tls.version:1.0",
    "tls.version:1.2",
    "tls.version:\"1.3\"",
    "ssl_version:tls1.2",
    "ssl_version:!tls1.0",
    "ssl_version:tls1.0,tls1.1",
    "ssl_state:client_hello",
    "ssl_state:server_hello",
    "ssl_state:client_hello|server_hello",
    "ssl_state:!client_hello",
    "ssl_state:client_keyx",
    "tls.subject:\"CN=abc\"",
    "tls.issuerdn:!\"CN=abc\"",
    "tls.fingerprint:!\"00:11\"",
    "tls.cert_chain_len:1",
    "tls.cert_chain_len:>1",
    "tls_cert_expired",
    "tls_cert_valid",
    "tls_cert_notafter:>2015",
    "tls_cert_notbefore:<2030",
    "app-layer-event:tls.invalid_record_type",
    "app-layer-event:tls.invalid_certificate",
    "ja3.hash; content:\"0\"",
    "ja3s.hash; content:\"a\"",
    "ja4.hash; content:\"t\"",
    "tls.alpn; content:\"h2\"",
];

/// A body after its length in `bytes` bytes.
fn sized(bytes: usize, body: &[u8]) -> Vec<u8> {
    let mut out = (body.len() as u32).to_be_bytes()[4 - bytes..].to_vec();
    out.extend_from_slice(body);
    out
}

fn record(kind: u8, version: u16, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &version.to_be_bytes(), &sized(2, body)].concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &sized(3, body)].concat()
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &sized(2, body)].concat()
}

fn client_hello(random: &mut Random, version: u16, server: &str, thirteen: bool) -> Vec<u8> {
    let mut extensions = extension(0, &sized(2, &[&[0][..], &sized(2, server.as_bytes())].concat()));
    if random.percent(50) {
        extensions.extend(extension(10, &sized(2, &[0, 23, 0, 24])));
        extensions.extend(extension(11, &[1, 0]));
    }
    if random.percent(40) {
        extensions.extend(extension(16, &sized(2, b"\x02h2\x08http/1.1")));
    }
    if thirteen {
        extensions.extend(extension(43, &[4, 3, 4, 3, 3]));
    }
    let session = random.bytes(8);
    let ciphers: Vec<u8> =
        (0..random.within(1, 4)).flat_map(|_| [0xc0, *random.pick(&[0x2b, 0x2f, 0x30])]).collect();
    let body = [
        &version.to_be_bytes()[..],
        &[7; 32],
        &sized(1, &session),
        &sized(2, &ciphers),
        &[1, 0],
        &sized(2, &extensions),
    ];
    record(22, 0x0301, &message(1, &body.concat()))
}

fn server_hello(random: &mut Random, version: u16, thirteen: bool) -> Vec<u8> {
    let extensions = if thirteen { extension(43, &[3, 4]) } else { extension(0xff01, &[0]) };
    let session = random.bytes(8);
    let body =
        [&version.to_be_bytes()[..], &[9; 32], &sized(1, &session), &[0xc0, 0x2f, 0], &sized(2, &extensions)];
    message(2, &body.concat())
}

fn certificates(list: &[Option<Vec<u8>>]) -> Vec<u8> {
    let all: Vec<u8> = list.iter().flatten().flat_map(|one| sized(3, one)).collect();
    message(11, &sized(3, &all))
}

/// A value in DER (X.690), shorter than 64 KiB.
fn der(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut out = vec![tag];
    match length {
        0..=127 => out.push(length as u8),
        128..=255 => out.extend([0x81, length as u8]),
        _ => out.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    out.extend_from_slice(body);
    out
}

/// A certificate (RFC 5280) with an RSA key and an invalid signature.
fn certificate(serial: &[u8], subject: &str, issuer: &str) -> Vec<u8> {
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
    const SHA256_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
    let algorithm = |oid: &[u8]| der(0x30, &[der(6, oid), der(5, &[])].concat());
    let named = |text: &str| {
        der(0x30, &der(0x31, &der(0x30, &[der(6, &[0x55, 4, 3]), der(12, text.as_bytes())].concat())))
    };
    let mut number = serial.to_vec();
    number[0] &= 0x7f;
    number[0] |= 1;
    let times = der(0x30, &[der(23, b"190101000000Z"), der(23, b"390101000000Z")].concat());
    let key = der(0x30, &[der(2, &[0x5f; 64]), der(2, &[1, 0, 1])].concat());
    let key = der(0x30, &[algorithm(RSA), der(3, &[&[0][..], &key].concat())].concat());
    let body = [
        der(0xa0, &der(2, &[2])),
        der(2, &number),
        algorithm(SHA256_RSA),
        named(issuer),
        times,
        named(subject),
        key,
    ];
    der(0x30, &[der(0x30, &body.concat()), algorithm(SHA256_RSA), der(3, &[0; 65])].concat())
}
