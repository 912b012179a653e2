// SPDX-License-Identifier: Apache-2.0
//! Tests of WebSocket.

use super::frame::{FrameHeader, unmask};
use super::inflate::OUTPUT_MAX;
use super::tables::*;
use super::*;
use crate::event::EventCode;
use crate::suite::{self, Driver, Seed, protocol_suite};
use crate::transaction::{BufferQuery, LogOptions};
use Direction::{ToClient, ToServer};
use flate2::{Compress, Compression, FlushCompress};

/// The masking key of the client's frames.
const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
const TEXT: u8 = 0x81;
const COMPRESSED_TEXT: u8 = 0xc1;

/// A frame with the shortest form of its length.
fn frame(first: u8, key: Option<[u8; 4]>, payload: &[u8]) -> Vec<u8> {
    let mask = if key.is_some() { 0x80 } else { 0 };
    let mut bytes = vec![first];
    match payload.len() {
        short @ 0..=125 => bytes.push(mask | short as u8),
        long @ 126..=0xffff => {
            bytes.push(mask | 126);
            bytes.extend_from_slice(&(long as u16).to_be_bytes());
        }
        longer => {
            bytes.push(mask | 127);
            bytes.extend_from_slice(&(longer as u64).to_be_bytes());
        }
    }
    bytes.extend(key.into_iter().flatten());
    unmask(payload, key, 0, &mut bytes);
    bytes
}

fn client(first: u8, payload: &[u8]) -> Vec<u8> {
    frame(first, Some(KEY), payload)
}

/// A compressor that keeps its window.
struct Deflater(Compress);

impl Deflater {
    fn new() -> Self {
        Deflater(Compress::new(Compression::best(), false))
    }

    /// A message without its end.
    fn message(&mut self, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(data.len() + 1024);
        self.0.compress_vec(data, &mut out, FlushCompress::Sync).expect("compresses");
        assert_eq!(out.split_off(out.len() - 4), [0, 0, 0xff, 0xff]);
        out
    }
}

fn seeds() -> Vec<Seed> {
    let mut deflater = Deflater::new();
    let (one, two) = (deflater.message(b"compress me compress me"), deflater.message(b"compress me again"));
    let (head, tail) = two.split_at(3);
    let corrupt = [Deflater::new().message(b"what comes before").as_slice(), &[0xff; 5]].concat();
    let ended = [0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0, 0, 0];
    vec![
        vec![
            (ToServer, client(TEXT, b"hello")),
            (ToClient, [frame(TEXT, None, b"echo hello"), frame(0x89, None, b"ping")].concat()),
            (ToServer, client(0x8a, b"ping")),
            (ToServer, [client(1, b"first "), client(0x89, b"between"), client(0x80, b"second")].concat()),
            (ToServer, client(0x82, &[b'l'; 300])),
            (ToClient, frame(TEXT, None, b"")),
            (ToServer, client(0x88, b"\x03\xe8bye")),
        ],
        vec![
            (ToServer, client(COMPRESSED_TEXT, &one)),
            (ToServer, client(0x41, head)),
            (ToServer, client(0x80, tail)),
            (ToServer, client(TEXT, b"plain")),
        ],
        vec![(ToServer, client(COMPRESSED_TEXT, &corrupt)), (ToServer, client(TEXT, b"after"))],
        vec![(ToServer, client(COMPRESSED_TEXT, &ended))],
    ]
}

protocol_suite!(over_tcp, &SPEC, Transport::Tcp, seeds());

fn driver(pairs: &[(&str, &str)]) -> Driver {
    let mut settings = SettingsMap::new();
    for (key, value) in pairs {
        settings.set(*key, *value);
    }
    Driver::with(&SPEC, Transport::Tcp, &settings)
}

fn in_prevention() -> Driver {
    let mut driver = driver(&[]);
    driver.prevents = true;
    driver
}

/// Payload of a transaction as rules see it, with the offset of its first byte.
fn payload(driver: &mut Driver, id: u64, direction: Direction) -> (Vec<u8>, u64) {
    let query = BufferQuery { id: PAYLOAD, direction, index: 0 };
    let tx = driver.parser().tx(id).expect("a transaction");
    let mut scratch = Vec::new();
    let view = tx.buffer(query, &mut scratch).expect("a payload");
    (view.data.to_vec(), view.offset)
}

/// Payloads of all transactions of the client.
fn payloads(driver: &mut Driver) -> Vec<String> {
    let range = driver.parser().tx_range();
    range.map(|id| String::from_utf8_lossy(&payload(driver, id, ToServer).0).into_owned()).collect()
}

fn events(driver: &mut Driver) -> Vec<EventCode> {
    let range = driver.parser().tx_range();
    range.flat_map(|id| driver.parser().tx(id).expect("held").common().events.as_slice().to_vec()).collect()
}

#[test]
fn examples_of_the_rfc_are_read() {
    // RFC 6455 section 5.7.
    let masked = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    let fragments = [0x01, 0x03, 0x48, 0x65, 0x6c, 0x80, 0x02, 0x6c, 0x6f];
    // RFC 7692 section 7.2.3.1, .2 (the window is kept), .4 (a final block).
    let compressed = [0xc1, 0x07, 0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    let shared = [0xc1, 0x05, 0xf2, 0x00, 0x11, 0x00, 0x00];
    let last_block = [0xc1, 0x08, 0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00];
    for prevents in [false, true] {
        let mut driver = driver(&[]);
        driver.prevents = prevents;
        for bytes in [&masked[..], &fragments, &compressed, &shared, &last_block, &compressed] {
            driver.send(ToServer, bytes);
        }
        let expected = ["Hello", "Hel", "Hello", "Hello", "Hello", "Hello", "Hello"];
        assert_eq!(payloads(&mut driver), expected, "{prevents}");
        assert!(events(&mut driver).is_empty());
    }
}

#[test]
fn records_and_numbers_are_suricatas() {
    let mut driver = driver(&[]);
    driver.send(ToServer, &client(1, b"ab"));
    driver.send(ToServer, &frame(0x93, None, b"ab"));
    let bodies = Bodies { base64: true, printable: true };
    let record = |tx: &dyn crate::transaction::Transaction, bodies| {
        suite::record(tx, &LogOptions { bodies, ..LogOptions::default() }, true)
    };
    let tx = driver.parser().tx(0).expect("a frame");
    assert_eq!(
        record(tx, bodies),
        r#"{"fin":false,"mask":939139389,"opcode":"text","payload_printable":"ab","payload_base64":"YWI="}"#
    );
    assert_eq!(
        [FLAGS, OPCODE, MASK].map(|id| tx.number(id, ToServer)),
        [Some(0), Some(1), Some(939_139_389)]
    );
    let tx = driver.parser().tx(1).expect("a frame");
    assert_eq!(record(tx, Bodies::default()), r#"{"fin":true,"opcode":"unknown-3"}"#);
    assert_eq!([FLAGS, OPCODE, MASK].map(|id| tx.number(id, ToServer)), [Some(0x90), Some(3), None]);
    assert_eq!(tx.number(OPCODE, ToClient), None);
}

#[test]
fn control_frames_between_fragments_are_no_part_of_the_message() {
    for prevents in [false, true] {
        let mut driver = driver(&[]);
        driver.prevents = prevents;
        driver.send(ToServer, &client(1, b"first-"));
        driver.send(ToServer, &client(0x89, b"ping"));
        driver.send(ToServer, &client(0, b"second-"));
        driver.send(ToServer, &client(0x80, b"third"));
        driver.send(ToServer, &client(TEXT, b"next"));
        let expected = ["first-", "ping", "second-", "first-second-third", "next"];
        assert_eq!(payloads(&mut driver), expected, "{prevents}");
    }
}

#[test]
fn passively_payloads_are_cut_at_the_limit() {
    let mut driver = driver(&[("max-payload-size", "10")]);
    let long = client(TEXT, b"0123456789 not read");
    driver.send(ToServer, &long[..20]);
    driver.send(ToServer, &long[20..]);
    driver.send(ToServer, &client(2, b"123456"));
    driver.send(ToServer, &client(0, b"789abc"));
    driver.send(ToServer, &client(0x80, b"d"));
    let compressed = Deflater::new().message(&[b'z'; 30]);
    driver.send(ToServer, &client(COMPRESSED_TEXT, &compressed));
    driver.send(ToServer, &client(TEXT, b"after"));
    assert_eq!(
        payloads(&mut driver),
        ["0123456789", "123456", "789abc", "123456789a", "zzzzzzzzzz", "after"]
    );
    let expected = [SKIP_END_OF_PAYLOAD, REASSEMBLY_LIMIT_REACHED, DECOMPRESSION_LIMIT_REACHED];
    assert_eq!(events(&mut driver), expected);
}

#[test]
fn the_rest_of_a_long_payload_may_be_lost() {
    let mut driver = driver(&[("max-payload-size", "10")]);
    let long = client(TEXT, &[b'x'; 100]);
    driver.send(ToServer, &long[..20]);
    driver.lose(ToServer, long.len() as u64 - 20);
    driver.send(ToServer, &client(TEXT, b"after"));
    assert_eq!(payloads(&mut driver), ["xxxxxxxxxx", "after"]);
}

#[test]
fn in_prevention_a_payload_is_seen_as_it_comes() {
    let mut driver = in_prevention();
    let bytes = client(TEXT, b"hello");
    driver.send(ToServer, &bytes[..8]);
    assert_eq!(payload(&mut driver, 0, ToServer), (b"he".to_vec(), 0));
    assert_eq!(driver.parser().tx(0).map(|tx| tx.progress(ToServer)), Some(0));
    driver.send(ToServer, &bytes[8..]);
    assert_eq!(payload(&mut driver, 0, ToServer), (b"hello".to_vec(), 0));
    assert_eq!(driver.parser().tx(0).map(|tx| tx.progress(ToServer)), Some(COMPLETE));
}

/// Every place of a message is seen in prevention together with what surrounds it, however long frames and
/// message are.
#[test]
fn in_prevention_no_place_of_a_message_hides() {
    let word = b"forbidden-word";
    for compressed in [false, true] {
        for lengths in
            [&[10, 10, 10][..], &[200_000, 50, 300_000, 7, 90_000], &[100_000, 500_000, 9, 9, 300_000]]
        {
            for border in 1..lengths.len() {
                let at = lengths[..border].iter().sum::<usize>();
                let mut message: Vec<u8> =
                    (0..lengths.iter().sum::<usize>()).map(|n| (n * 7 % 26) as u8).collect();
                message.splice(at - 5..at - 5 + word.len().min(10), word[..10].iter().copied());
                let mut driver = in_prevention();
                let (mut start, mut seen, mut deflater) = (0, false, Deflater::new());
                for (n, length) in lengths.iter().enumerate() {
                    let is_last = n + 1 == lengths.len();
                    let mut part = message[start..start + length].to_vec();
                    start += length;
                    let mut first = if n == 0 { 2 } else { 0 };
                    if compressed {
                        part = deflater.message(&part);
                        if !is_last {
                            part.extend_from_slice(&[0, 0, 0xff, 0xff]);
                        }
                        first |= if n == 0 { 0x40 } else { 0 };
                    }
                    let bytes = client(first | if is_last { 0x80 } else { 0 }, &part);
                    for piece in bytes.chunks(1_460) {
                        driver.send(ToServer, piece);
                        let newest = driver.parser().tx_range().end.saturating_sub(1);
                        if driver.parser().tx(newest).is_some() {
                            let (held, _) = payload(&mut driver, newest, ToServer);
                            seen |= memchr::memmem::find(&held, &word[..10]).is_some();
                        }
                    }
                    driver.free_complete();
                    let (_, bytes) = driver.held();
                    assert!(bytes < 2 << 20, "{bytes} bytes held");
                }
                assert!(seen, "{compressed} {lengths:?} {border}");
                assert!(events(&mut driver).is_empty());
            }
        }
    }
}

#[test]
fn prevention_refuses_what_receivers_refuse() {
    let deflated = Deflater::new().message(b"a message");
    let twice = [&[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00][..], &deflated].concat();
    for (bytes, event) in [
        (client(0x83, b"unknown opcode"), INVALID_FRAME),
        (client(0xa1, b"reserved"), INVALID_FRAME),
        (client(0x80, b"continues nothing"), INVALID_FRAME),
        ([client(1, b"open"), client(TEXT, b"another")].concat(), INVALID_FRAME),
        ([client(1, b"open"), client(0xc0, b"compressed")].concat(), INVALID_FRAME),
        (client(9, b"control in fragments"), INVALID_FRAME),
        (client(0x89, &[b'x'; 126]), INVALID_FRAME),
        (client(0xc9, b"compressed control"), INVALID_FRAME),
        ([&[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0][..], &KEY].concat(), INVALID_FRAME),
        (client(COMPRESSED_TEXT, b"\xff\xff\xff"), INVALID_COMPRESSION),
        (client(COMPRESSED_TEXT, &twice), INVALID_COMPRESSION),
    ] {
        let mut driver = in_prevention();
        driver.send(ToServer, &bytes);
        assert!(driver.failed, "{bytes:x?}");
        assert_eq!(events(&mut driver), [event], "{bytes:x?}");
        let mut driver = self::driver(&[]);
        driver.send(ToServer, &bytes);
        assert!(!driver.failed, "passively {bytes:x?}");
    }
}

#[test]
fn output_is_bounded() {
    let bomb = Deflater::new().message(&vec![0; OUTPUT_MAX + 1]);
    assert!(bomb.len() < 1 << 16);
    for prevents in [false, true] {
        let mut driver = driver(&[]);
        driver.prevents = prevents;
        driver.send(ToServer, &client(COMPRESSED_TEXT, &bomb));
        assert_eq!((driver.failed, events(&mut driver)), (prevents, vec![DECOMPRESSION_LIMIT_REACHED]));
    }
}

#[test]
fn a_flood_of_frames_is_bounded() {
    for prevents in [false, true] {
        let mut driver = driver(&[]);
        driver.prevents = prevents;
        driver.send(ToServer, &client(0x89, b"").repeat(TX_MAX + 1));
        assert_eq!((driver.failed, events(&mut driver)), (prevents, vec![FLOODED]));
    }
}

#[test]
fn headers_ask_for_what_they_need() {
    let long = frame(0x82, Some(KEY), &[0; 0x1_0000]);
    for (have, needed) in [(0, 2), (1, 2), (2, 14), (13, 14)] {
        assert_eq!(FrameHeader::read(&long[..have]), Err(needed));
    }
    let header = FrameHeader::read(&long).expect("a header");
    assert_eq!((header.size, header.length, header.mask), (14, 0x1_0000, Some(KEY)));
}
