// SPDX-License-Identifier: Apache-2.0
//! Conversations of packets that `testing` makes: records, events, bounds, prevention.

use super::events::{CRYPTO_DATA_CHANGED, CRYPTO_FRAG_TOO_LONG, ERROR_ON_DATA, FAILED_DECRYPT, FLOODED};
use super::limits::{MAX_CONNECTIONS, MAX_HELD};
use super::stream::{BYTES_MAX, PIECES_MAX};
use super::*;
use crate::event::EventCode;
use crate::protocol::Progress;
use crate::protocols::tls::hello::RETRY_REQUEST;
use crate::suite::{self, Driver, Seed, protocol_suite};
use crate::transaction::{BufferQuery, LogOptions};
use Direction::{ToClient, ToServer};
use bartizan_testkit::quic::{
    CLIENT_ID, InitialPacket, SERVER_ID, Sender, client, client_hello, crypto, long, retry, server,
    server_hello, server_hello_with, varint,
};

const NAME: &str = "server.example";

fn direction(packet: &InitialPacket) -> Direction {
    if packet.sender == Sender::Client { ToServer } else { ToClient }
}

/// Direction and bytes of a datagram with a packet.
fn datagram(packet: &InitialPacket) -> (Direction, Vec<u8>) {
    (direction(packet), packet.seal())
}

fn whole() -> Seed {
    let acknowledged = [&[2, 0, 0, 0, 0][..], &crypto(0, &server_hello())].concat();
    let answer = [server(0, &acknowledged).seal(), long(2, CLIENT_ID, b"encrypted handshake")].concat();
    vec![
        datagram(&client(0, &crypto(0, &client_hello(NAME)))),
        (ToClient, answer),
        (ToServer, b"\x41short header and its payload".to_vec()),
    ]
}

fn in_pieces() -> Seed {
    let hello = client_hello(NAME);
    let frames = [crypto(100, &hello[100..]), vec![1], crypto(0, &hello[..40])].concat();
    vec![
        datagram(&client(0, &frames)),
        datagram(&client(1, &crypto(30, &hello[30..110]))),
        datagram(&server(0, &crypto(0, &server_hello()))),
    ]
}

fn with_retry() -> Seed {
    let hello = crypto(0, &client_hello(NAME));
    vec![
        datagram(&client(0, &hello)),
        (ToClient, retry(b"chosen")),
        datagram(&client(1, &hello).of(b"chosen")),
        datagram(&server(0, &crypto(0, &server_hello())).of(b"chosen")),
    ]
}

fn version_two() -> Seed {
    let version = |packet: InitialPacket| datagram(&packet.version(header::V2));
    vec![version(client(0, &crypto(0, &client_hello(NAME)))), version(server(0, &crypto(0, &server_hello())))]
}

fn google() -> Seed {
    let mut chlo = b"CHLO\x02\0\0\0SNI\0\x06\0\0\0UAID\x0b\0\0\0a.testagent".to_vec();
    let mut bytes = [&b"\xc3Q046\x50first-id"[..], &[0, 0, 0, 1], &[7; 12], &[0xa0, 1]].concat();
    bytes.extend_from_slice(&(chlo.len() as u16).to_be_bytes());
    bytes.append(&mut chlo);
    bytes.extend_from_slice(&[0; 20]);
    vec![(ToServer, bytes)]
}

fn seeds() -> Vec<Seed> {
    vec![whole(), in_pieces(), with_retry(), version_two(), google()]
}

protocol_suite!(over_udp, &SPEC, Transport::Udp, seeds());

fn driver(prevents: bool) -> Driver {
    let mut driver = Driver::new(&SPEC, Transport::Udp);
    driver.prevents = prevents;
    driver
}

fn play(driver: &mut Driver, conversation: &Seed) {
    conversation.iter().for_each(|(direction, datagram)| driver.send(*direction, datagram));
}

fn send(driver: &mut Driver, packet: &InitialPacket) {
    driver.send(direction(packet), &packet.seal());
}

fn records(driver: &mut Driver) -> Vec<String> {
    let parser = driver.parser();
    let transactions = parser.tx_range().filter_map(|id| parser.tx(id));
    transactions.map(|tx| suite::record(tx, &LogOptions::default(), false)).collect()
}

fn events(driver: &mut Driver) -> Vec<EventCode> {
    let parser = driver.parser();
    let transactions = parser.tx_range().filter_map(|id| parser.tx(id));
    transactions.flat_map(|tx| tx.common().events.as_slice().to_vec()).collect()
}

/// The server names of client hellos, in order.
fn names(driver: &mut Driver) -> Vec<String> {
    let parser = driver.parser();
    let transactions = parser.tx_range().filter_map(|id| parser.tx(id));
    let query = BufferQuery { id: buffers::SNI, direction: ToServer, index: 0 };
    transactions
        .filter_map(|tx| {
            tx.buffer(query, &mut Vec::new()).map(|view| String::from_utf8_lossy(view.data).into_owned())
        })
        .collect()
}

const CLIENT_RECORD: &str = concat!(
    r#"{"version":"1","sni":"server.example","ja3":{"hash":"HASH","#,
    r#""string":"771,4865-4866,64250-0-16-43-10-13-57,2570-29,"},"#,
    r#""ja4":"q13d0206h3_62ed6f6ca7ad_edd9286bdfcb","extensions":[{"type":64250},"#,
    r#"{"name":"server_name","type":0,"values":["server.example"]},"#,
    r#"{"name":"alpn","type":16,"values":["h3"]},"#,
    r#"{"name":"supported_versions","type":43,"values":["Tls13"]},{"name":"supported_groups","type":10},"#,
    r#"{"name":"signature_algorithms","type":13,"values":["1027"]},"#,
    r#"{"name":"quic_transport_parameters","type":57}]}"#
);
const SERVER_RECORD: &str = concat!(
    r#"{"version":"1","ja3s":{"hash":"f4febc55ea12b31ae17cfb7e614afda8","string":"771,4865,43-51"},"#,
    r#""extensions":[{"name":"supported_versions","type":43,"values":["Tls13"]},"#,
    r#"{"name":"key_share","type":51}]}"#
);

fn client_record() -> String {
    use md5::{Digest as _, Md5};
    let hash = Md5::digest(b"771,4865-4866,64250-0-16-43-10-13-57,2570-29,");
    CLIENT_RECORD.replace("HASH", &hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

#[test]
fn records_are_suricatas() {
    let bare = r#"{"version":"1"}"#.to_owned();
    for (conversation, expected) in [
        (whole(), vec![client_record(), SERVER_RECORD.to_owned()]),
        (in_pieces(), vec![bare.clone(), client_record(), SERVER_RECORD.to_owned()]),
        (with_retry(), vec![client_record(), bare, client_record(), SERVER_RECORD.to_owned()]),
        (
            version_two(),
            vec![
                client_record().replace(r#""version":"1""#, r#""version":"v2""#),
                SERVER_RECORD.replace(r#""version":"1""#, r#""version":"v2""#),
            ],
        ),
    ] {
        for prevents in [false, true] {
            let mut driver = driver(prevents);
            play(&mut driver, &conversation);
            assert_eq!(records(&mut driver), expected, "in prevention: {prevents}");
            assert!(driver.parser().is_encrypted());
            assert_eq!(events(&mut driver), [0; 0]);
        }
    }
}

#[test]
fn hellos_of_google_are_read() {
    let mut driver = driver(false);
    play(&mut driver, &google());
    let record = records(&mut driver).join("");
    assert!(
        record.starts_with(r#"{"version":"Q046","sni":"a.test","ua":"agent","cyu":[{"hash":""#),
        "{record}"
    );
    assert!(record.ends_with(r#","string":"46,SNI-UAID"}]}"#), "{record}");
    assert!(!driver.parser().is_encrypted());
}

#[test]
fn version_negotiation_and_unknown_versions_are_shown() {
    let mut driver = driver(false);
    driver.send(ToClient, b"\x80\0\0\0\0\x02cc\x02ss\0\0\0\x01");
    driver.send(ToServer, b"\xd0\x1a\x2a\x3a\x4a\x02cc\x02ss");
    assert_eq!(records(&mut driver), [r#"{"version":"0"}"#, r#"{"version":"1a2a3a4a"}"#]);
}

#[test]
fn a_damaged_packet_decides_nothing_for_the_next_one() {
    let hello = crypto(0, &client_hello(NAME));
    let mut damaged = client(0, &hello).seal();
    if let Some(last) = damaged.last_mut() {
        *last ^= 1;
    }
    for prevents in [false, true] {
        let mut driver = driver(prevents);
        driver.send(ToServer, &damaged);
        driver.send(ToServer, b"\xc0\0");
        send(&mut driver, &client(1, &hello));
        assert_eq!(events(&mut driver), [FAILED_DECRYPT], "in prevention: {prevents}");
        assert_eq!(names(&mut driver), [NAME]);
        assert!(!driver.failed);
    }
}

#[test]
fn frames_that_cannot_be_read_are_told() {
    for frames in [crypto(0, b"\x08\0\0\x02hi"), vec![6, 0, 0x7f, 1], vec![2, 0, 0, 0x7f, 0xff, 0]] {
        for prevents in [false, true] {
            let mut driver = driver(prevents);
            send(&mut driver, &client(0, &frames));
            assert!(events(&mut driver).contains(&ERROR_ON_DATA), "{frames:x?}, in prevention: {prevents}");
        }
    }
    // A hello before such a frame may have reached its reader.
    let mut driver = driver(true);
    send(&mut driver, &client(0, &[crypto(0, &client_hello(NAME)), vec![6, 0, 0x7f, 1]].concat()));
    assert_eq!(names(&mut driver), [NAME]);
}

#[test]
fn tiny_frames_and_repeated_ones_make_a_hello() {
    let hello = client_hello(NAME);
    let frames: Vec<u8> =
        (0..hello.len()).rev().flat_map(|at| crypto(at, &hello[at..(at + 3).min(hello.len())])).collect();
    for prevents in [false, true] {
        let mut driver = driver(prevents);
        send(&mut driver, &client(0, &frames));
        assert_eq!(names(&mut driver), [NAME], "in prevention: {prevents}");
        assert_eq!(events(&mut driver), [0; 0]);
    }
}

#[test]
fn many_acknowledgements_end_with_their_packet() {
    // Counts that no packet can contain, and many frames.
    let endless = [&[2, 0, 0, 0xff][..], &[0xff; 7], &[0; 900]].concat();
    let many: Vec<u8> = [2, 0x40, 9, 0, 1, 0, 0, 0].repeat(1000);
    for prevents in [false, true] {
        let mut driver = driver(prevents);
        send(&mut driver, &client(0, &endless));
        send(&mut driver, &client(1, &[many.clone(), crypto(0, &client_hello(NAME))].concat()));
        assert_eq!(names(&mut driver), [NAME], "in prevention: {prevents}");
    }
}

#[test]
fn bounds_of_a_hello_are_told_and_prevention_refuses_beyond() {
    let far = [&[6][..], &0x8000_ffff_u32.to_be_bytes(), &[1, b'x']].concat();
    const { assert!(BYTES_MAX <= 0xffff) };
    let scattered = |from: usize| -> Vec<u8> {
        (from..from + 200).flat_map(|piece| crypto(4 + piece * 2, b"x")).collect()
    };
    for prevents in [false, true] {
        let mut driver = driver(prevents);
        send(&mut driver, &client(0, &far));
        assert_eq!(events(&mut driver), [CRYPTO_FRAG_TOO_LONG]);
        assert_eq!(driver.failed, prevents);
        let mut driver = self::driver(prevents);
        for packet in 0..PIECES_MAX.div_ceil(200) + 1 {
            send(&mut driver, &client(packet as u64, &scattered(packet * 200)));
        }
        assert!(events(&mut driver).contains(&CRYPTO_FRAG_TOO_LONG));
        assert_eq!(driver.failed, prevents);
    }
}

#[test]
fn changed_handshake_bytes_are_told_and_prevention_refuses_them() {
    let (good, bad) = (client_hello("good.example"), client_hello("evil.example"));
    for prevents in [false, true] {
        // Before the hello is whole.
        let mut driver = driver(prevents);
        send(&mut driver, &client(0, &crypto(0, &good[..80])));
        send(&mut driver, &client(1, &crypto(0, &bad)));
        assert!(events(&mut driver).contains(&CRYPTO_DATA_CHANGED), "in prevention: {prevents}");
        assert_eq!(driver.failed, prevents);
        // And after it: the server may have received the second packet alone.
        let mut driver = self::driver(prevents);
        send(&mut driver, &client(0, &crypto(0, &good)));
        send(&mut driver, &client(1, &crypto(0, &good)));
        assert!(!driver.failed);
        send(&mut driver, &client(2, &crypto(0, &bad)));
        assert_eq!(driver.failed, prevents);
    }
}

#[test]
fn prevention_reads_each_connection_between_the_same_ports() {
    let mut driver = driver(true);
    play(&mut driver, &whole());
    let second = client_hello("second.example");
    send(&mut driver, &client(0, &crypto(60, &second[60..])).of(b"second-id"));
    send(&mut driver, &client(0, &crypto(0, &client_hello("third.example"))).of(b"third"));
    assert!(!driver.parser().is_encrypted());
    send(&mut driver, &client(1, &crypto(0, &second[..60])).of(b"second-id"));
    send(&mut driver, &server(0, &crypto(0, &server_hello())).of(b"second-id"));
    assert_eq!(names(&mut driver), [NAME, "third.example", "second.example"]);
    send(&mut driver, &server(0, &crypto(0, &server_hello())).of(b"third"));
    assert!(driver.parser().is_encrypted());
}

#[test]
fn prevention_refuses_more_connections_without_an_answer() {
    let hello = crypto(0, &client_hello(NAME));
    let id = |number: usize| format!("id-{number:05}").into_bytes();
    let mut driver = driver(true);
    for number in 0..MAX_CONNECTIONS {
        send(&mut driver, &client(0, &hello).of(&id(number)));
    }
    // Another one replaces one that has an answer.
    send(&mut driver, &server(0, &crypto(0, &server_hello())).of(&id(3)));
    send(&mut driver, &client(0, &hello).of(&id(MAX_CONNECTIONS)));
    assert!(!driver.failed);
    let mut damaged = client(0, &hello).of(&id(500)).seal();
    damaged.truncate(damaged.len() - 1);
    driver.send(ToServer, &damaged);
    assert!(!driver.failed);
    send(&mut driver, &client(0, &hello).of(&id(501)));
    assert!(driver.failed);
    assert!(events(&mut driver).contains(&FLOODED));
}

#[test]
fn prevention_reads_the_hello_that_a_server_asks_for_again() {
    let first = client_hello("first.example");
    let mut driver = driver(true);
    send(&mut driver, &client(0, &crypto(0, &first)));
    let request = server_hello_with(&RETRY_REQUEST);
    send(&mut driver, &server(0, &crypto(0, &request)));
    assert!(!driver.parser().is_encrypted());
    send(&mut driver, &client(1, &crypto(first.len(), &client_hello("other.example"))));
    send(&mut driver, &server(1, &crypto(request.len(), &server_hello())));
    assert_eq!(names(&mut driver), ["first.example", "other.example"]);
    assert!(driver.parser().is_encrypted());
}

#[test]
fn prevention_reads_packets_as_receivers_do() {
    let hello = client_hello(NAME);
    // A type in two bytes; Handshake and 0-RTT packets before an Initial packet; a later connection id.
    let two_bytes = [&[0x40, 6][..], &varint(0), &varint(40), &hello[..40]].concat();
    let mut driver = driver(true);
    send(&mut driver, &client(0, &two_bytes));
    let rest = InitialPacket { destination: SERVER_ID.into(), ..client(1, &crypto(40, &hello[40..])) };
    let datagram = [long(2, SERVER_ID, b"handshake"), long(1, SERVER_ID, b"early"), rest.seal()].concat();
    driver.send(ToServer, &datagram);
    assert_eq!(names(&mut driver), [NAME]);
}

#[test]
fn in_prevention_no_flood_of_packets_hides_a_hello() {
    let hello = client(0, &crypto(0, &client_hello(NAME))).seal();
    // Initial packets of nobody's keys, before and behind the hello.
    let junk = InitialPacket { destination: b"otherone".to_vec(), ..client(9, &[1]) }.seal();
    let mut broken = junk.clone();
    *broken.last_mut().expect("a packet") ^= 1;
    let few = broken.repeat(100);
    let many = broken.repeat(60_000 / broken.len());
    assert!(many.len() / broken.len() > MAX_HELD, "{}", broken.len());
    for (datagram, is_seen) in [
        ([hello.as_slice(), &many].concat(), true),
        ([few.as_slice(), &hello, &many].concat(), true),
        ([many.as_slice(), &hello].concat(), false),
    ] {
        let mut driver = driver(true);
        driver.send(ToServer, &datagram);
        assert!(events(&mut driver).contains(&FLOODED));
        assert_eq!((names(&mut driver) == [NAME], driver.failed), (is_seen, !is_seen));
    }
}

#[test]
fn a_flood_of_packets_is_bounded_and_told() {
    let mut driver = driver(false);
    let ping = client(0, &[1]).seal();
    let datagram = ping.repeat(60_000 / ping.len());
    driver.send(ToServer, &datagram);
    driver.send(ToServer, &datagram);
    let range = driver.parser().tx_range();
    assert_eq!(range.end - range.start, MAX_HELD as u64);
    assert!(events(&mut driver).contains(&FLOODED));
    assert!(driver.parser().held() < 1 << 20);
}

#[test]
fn fingerprints_can_be_switched_off() {
    let off = |key: &str| {
        let mut settings = SettingsMap::new();
        settings.set(key, "no");
        settings
    };
    for (key, missing) in [("ja3-fingerprints", "ja3"), ("ja4-fingerprints", "ja4")] {
        let mut driver = Driver::with(&SPEC, Transport::Udp, &off(key));
        play(&mut driver, &whole());
        let record = records(&mut driver).join("");
        assert!(!record.contains(missing), "{record}");
        assert!(record.contains("server.example"));
    }
}

#[test]
fn the_rest_of_a_flow_costs_nothing() {
    let mut driver = driver(false);
    play(&mut driver, &whole());
    let mut context_events = crate::event::Events::default();
    let files = crate::file::FileSettings::default();
    let mut context = crate::protocol::ParseContext {
        now: bartizan_base::Timestamp::default(),
        server_port: 443,
        client_port: 40_000,
        transport: Transport::Udp,
        files: &files,
        prevents: false,
        events: &mut context_events,
    };
    let input = crate::protocol::Input { data: b"\x41short", offset: 0, eof: false };
    let progress = driver.parser().parse(ToServer, input, &mut context);
    assert_eq!(progress, Progress::Stop { bypass: false });
}

/// Properties of any frames, beneath encryption.
mod any_frames {
    use super::*;
    use proptest::prelude::*;

    /// Frames that begin well, with some bytes changed.
    fn frames() -> impl Strategy<Value = Vec<u8>> {
        let hello = client_hello(NAME);
        let good = prop::sample::select(vec![
            crypto(0, &hello),
            crypto(0, &server_hello()),
            crypto(60, &hello[60..]),
            crypto(0, &hello[..70]),
            vec![2, 0x40, 9, 0, 1, 3, 0, 2, 1, 0, 0, 0],
            vec![0x1c, 0, 6, 2, b'n', b'o', 0x80, 1, 2, 3],
        ]);
        let change = (any::<prop::sample::Index>(), any::<u8>());
        (prop::collection::vec(good, 1..5), prop::collection::vec(change, 0..5)).prop_map(
            |(good, changes)| {
                let mut frames = good.concat();
                for (at, value) in changes {
                    let at = at.index(frames.len());
                    frames[at] = value;
                }
                frames
            },
        )
    }

    proptest! {
        #[test]
        fn are_read_within_bounds(
            packets in prop::collection::vec((any::<bool>(), 0u64..300, any::<bool>(), frames()), 1..8),
        ) {
            for prevents in [false, true] {
                let mut driver = driver(prevents);
                let mut sent = 0;
                for (to_server, number, second, frames) in &packets {
                    let packet = if *to_server { client(*number, frames) } else { server(*number, frames) };
                    let packet = if *second { packet.of(b"another") } else { packet };
                    send(&mut driver, &packet);
                    sent += frames.len();
                }
                prop_assert!(records(&mut driver).len() <= 4 * packets.len());
                let held = driver.parser().held();
                prop_assert!(held < (32 << 10) + 200 * sent + BYTES_MAX * 8, "{held} bytes for {sent}");
            }
        }
    }
}
