// SPDX-License-Identifier: Apache-2.0
//! Payload of connections: for each receiver a forbidden and a clean version of the same length, and requests
//! and hellos in odd forms that real receivers understand.

use crate::receivers::Service;
use bartizan_testkit::random::Random;

/// A forbidden text and a clean one of the same length.
pub fn pair(service: Service, random: &mut Random) -> (Vec<u8>, Vec<u8>) {
    match service {
        Service::Http | Service::WebAnswers | Service::Web => {
            let (before, behind) = (random.within(0, 20), random.within(0, 200));
            let (before, behind) = (random.letters(before), random.letters(behind));
            let request = |word: &[u8]| {
                [b"GET /", &before[..], word, &behind, b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"]
                    .concat()
            };
            (request(b"evil"), request(b"good"))
        }
        Service::Tls => {
            let mut both = [b"www.evil.example", b"www.good.example"].into_iter().map(|name| {
                // The same random numbers in both texts.
                let mut random = random.clone();
                record(0x0301, &hello(&[(0, name.to_vec())], false, &mut random))
            });
            let pair = (both.next().unwrap_or_default(), both.next().unwrap_or_default());
            drop(both);
            random.draw();
            pair
        }
        Service::Dns => (query(b"evil", random), query(b"good", random)),
        // Conversations say what they have to say themselves.
        Service::Mail => (b"evil".to_vec(), b"good".to_vec()),
        Service::Raw | Service::Slow | Service::Answers | Service::Depth(_) | Service::Udp => {
            let mark: &[u8] = if service == Service::Udp { b"EVIL-UDP" } else { b"EVIL-RAW" };
            let length = if random.percent(70) { random.within(20, 400) } else { random.within(20, 1300) };
            let clean = random.letters(length);
            let mut evil = clean.clone();
            let at = random.below(length - mark.len());
            evil[at..at + mark.len()].copy_from_slice(mark);
            (evil, clean)
        }
    }
}

/// A query for a name under `test`, with random numbers.
fn query(name: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = random.bytes(2);
    bytes.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 4]);
    bytes.extend(name);
    bytes.extend(b"\x04test\0\0\x01\0\x01");
    bytes
}

/// A request for a forbidden path in a form that a server may understand.
pub fn http_form(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    if random.percent(45) {
        for _ in 0..random.within(1, 4) {
            bytes.extend_from_slice(random.pick(&["\r\n", "\n", "\r\n", "\n", "\n\r\n"]).as_bytes());
        }
    }
    let host = "Host: a\r\n";
    for _ in 0..*random.pick(&[0, 0, 0, 1, 2]) {
        // Good requests before it in the same connection.
        let good = [
            format!("GET /good HTTP/1.1\r\n{host}\r\n"),
            format!("POST /good HTTP/1.1\r\n{host}Content-Length: 5\r\n\r\nabcde"),
            format!("POST /good HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
            format!("HEAD /good HTTP/1.1\r\n{host}\r\n"),
        ];
        bytes.extend_from_slice(random.pick(&good).as_bytes());
        if random.percent(20) {
            bytes.extend_from_slice(b"\r\n");
        }
    }
    let method = *random.pick(&[
        "GET", "GET", "GET", "GET", "HEAD", "PUT", "FOO", "X-Y", "PROPFIND", "XGET", "G_T", "OPTIONS",
        "DELETE", "PATCH",
    ]);
    let path = *random.pick(&[
        "/evil.php",
        "/evil.php",
        "/evil.php",
        "/%65vil",
        "/ev%69l",
        "/a/../evil",
        "//evil",
        "/./evil?x=1",
        "http://a/evil",
        "/evil#x",
        "/x/evil/",
        "/evil?a=%00",
        "/e%76il%20x",
    ]);
    let version = *random.pick(&["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.01", "HTTP/1.1 "]);
    let end = *random.pick(&["\r\n", "\r\n", "\r\n", "\n"]);
    let space = *random.pick(&[" ", " ", " ", " ", "  "]);
    let mut request = format!("{method}{space}{path} {version}{end}");
    if random.percent(20) {
        request.push_str(&format!(
            "{}: {}{end}",
            String::from_utf8_lossy(&random.letters(8)),
            "x".repeat(random.within(0, 300))
        ));
    }
    if random.percent(10) {
        request.push_str(&format!("No-Colon{end}"));
    }
    request.push_str(&format!("Host:{}a{end}", random.pick(&[" ", "", "\t"])));
    request.push_str(end);
    bytes.extend_from_slice(request.as_bytes());
    bytes
}

fn short(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

/// A TLS record with a handshake message, or a part of one.
fn record(version: u16, bytes: &[u8]) -> Vec<u8> {
    [&[22][..], &version.to_be_bytes(), &short(bytes)].concat()
}

/// A ClientHello (RFC 8446 section 4.1.2) that OpenSSL answers: names as (type, name).
fn hello(names: &[(u8, Vec<u8>)], odd: bool, random: &mut Random) -> Vec<u8> {
    hello_of(names, None, odd, random)
}

/// A ClientHello; `key` decides whether it has a key share of its group, `None` leaves this to chance.
fn hello_of(names: &[(u8, Vec<u8>)], key: Option<bool>, odd: bool, random: &mut Random) -> Vec<u8> {
    let with_key = key;
    let list: Vec<u8> = names.iter().flat_map(|(kind, name)| [&[*kind][..], &short(name)].concat()).collect();
    let mut extensions: Vec<(u16, Vec<u8>)> = vec![
        (0, short(&list)),
        (10, short(&[0, 0x1d, 0, 0x17])),
        (11, vec![1, 0]),
        (13, short(&[4, 3, 8, 4, 4, 1, 5, 3, 8, 5, 5, 1])),
    ];
    let key = random.bytes(32);
    if names.is_empty() {
        extensions.remove(0);
    }
    if !odd || random.percent(60) {
        extensions.push((43, vec![4, 3, 4, 3, 3]));
        let share = if with_key == Some(false) { Vec::new() } else { [&[0, 0x1d, 0, 32][..], &key].concat() };
        extensions.push((51, short(&share)));
    }
    if odd {
        if random.percent(30) {
            extensions.push((0x0a0a, Vec::new()));
        }
        if random.percent(30) {
            extensions.push((16, short(b"\x08http/1.1")));
        }
        random.shuffle(&mut extensions);
        if random.percent(30) {
            // Padding (RFC 7685).
            extensions.push((21, vec![0; random.within(0, 1500)]));
        }
    }
    let extensions: Vec<u8> = extensions
        .iter()
        .flat_map(|(kind, value)| [&kind.to_be_bytes()[..], &short(value)].concat())
        .collect();
    let mut body = vec![3, 3];
    body.extend(random.bytes(32));
    let session = *random.pick(&[0, 32]);
    body.push(session as u8);
    body.extend(random.bytes(session));
    body.extend(short(&[0x13, 1, 0x13, 2, 0x13, 3, 0xc0, 0x2b, 0xc0, 0x2c, 0xc0, 0x2f, 0xc0, 0x30]));
    body.extend([1, 0]);
    body.extend(short(&extensions));
    [&[1, 0][..], &(body.len() as u16).to_be_bytes(), &body].concat()
}

/// Two hellos: one without a key share that the server accepts, so that the server requests a retry, and the
/// second one. The forbidden name is in the second, or in both. Returns also the length of the first.
pub fn tls_again(random: &mut Random) -> (Vec<u8>, usize, String) {
    let own = random.clone();
    let names: [&[u8]; 2] = *random.pick(&[
        [&b"www.good.example"[..], &b"www.evil.example"[..]],
        [b"www.good.example", b"www.evil.example"],
        [b"www.evil.example", b"www.evil.example"],
        [b"", b"www.evil.example"],
    ]);
    let (mut bytes, mut first) = (Vec::new(), 0);
    for (turn, name) in names.into_iter().enumerate() {
        // The same numbers in both, except for the key share.
        let mut random = own.clone();
        let list = if name.is_empty() { Vec::new() } else { vec![(0, name.to_vec())] };
        let message = hello_of(&list, Some(turn == 1), false, &mut random);
        bytes.extend(record(if turn == 0 { 0x0301 } else { 0x0303 }, &message));
        if turn == 0 {
            first = bytes.len();
            if random.percent(50) {
                bytes.extend([20, 3, 3, 0, 1, 1]);
            }
        }
    }
    (
        bytes,
        first,
        format!(
            "asked again: {:?} and {:?}",
            String::from_utf8_lossy(names[0]),
            String::from_utf8_lossy(names[1])
        ),
    )
}

/// A hello for a forbidden name in a form that a server may understand, and a description.
pub fn tls_form(random: &mut Random) -> (Vec<u8>, String) {
    let mut name = random
        .pick(&[
            &b"www.evil.example"[..],
            b"www.evil.example",
            b"evil",
            b"WWW.EVIL.EXAMPLE",
            b"evil.example.",
            b"a\0evil",
            b"evil\0a",
        ])
        .to_vec();
    if random.percent(10) {
        name = [random.letters(150), b".evil.example".to_vec()].concat();
    }
    let mut names = vec![(0, name)];
    if random.percent(5) {
        // A name of another type.
        names.insert(0, (1, b"www.good.example".to_vec()));
    }
    let message = hello(&names, true, random);
    let mut ends = Vec::new();
    match random.below(5) {
        0 => ends.push(random.within(1, 3)),
        1 => ends.extend([1, 2, 3, 4].into_iter().filter(|_| random.percent(50))),
        2 => {
            let from = random.below(message.len());
            ends.extend(from..(from + random.within(1, 12)).min(message.len()));
        }
        3 => ends.extend((0..random.within(1, 6)).map(|_| random.within(1, message.len() - 1))),
        _ => {}
    }
    ends.push(message.len());
    ends.retain(|end| *end > 0);
    ends.sort_unstable();
    ends.dedup();
    let mut bytes = Vec::new();
    let mut begin = 0;
    let mut note = format!("records to {ends:?} of versions");
    for end in ends {
        let version = *random.pick(&[0x0301, 0x0301, 0x0301, 0x0303, 0x0304, 0x0300, 0x0302]);
        note.push_str(&format!(" {version:04x}"));
        bytes.extend(record(version, &message[begin..end]));
        begin = end;
    }
    (bytes, note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_as_long_and_differ() {
        for service in [
            Service::Http,
            Service::Web,
            Service::Answers,
            Service::Tls,
            Service::Dns,
            Service::Raw,
            Service::Udp,
        ] {
            for seed in 0..100 {
                let (evil, good) = pair(service, &mut Random::new(seed));
                assert_eq!(evil.len(), good.len(), "{service:?}");
                assert_ne!(evil, good);
                let differing = evil.iter().zip(&good).filter(|(a, b)| a != b).count();
                assert!(differing <= 10, "{service:?}: they differ in {differing} bytes");
            }
        }
    }

    #[test]
    fn records_of_a_hello_join_to_it() {
        for seed in 0..500 {
            let (bytes, _) = tls_form(&mut Random::new(seed));
            let (mut at, mut message) = (0, Vec::new());
            while at < bytes.len() {
                let length = usize::from(u16::from_be_bytes([bytes[at + 3], bytes[at + 4]]));
                assert!(bytes[at] == 22 && length > 0);
                message.extend_from_slice(&bytes[at + 5..at + 5 + length]);
                at += 5 + length;
            }
            assert_eq!(message.len(), 4 + usize::from(u16::from_be_bytes([message[2], message[3]])));
        }
    }
}
