// SPDX-License-Identifier: Apache-2.0
//! Fragments to a real receiver: Linux's reassembly behind the inline loop. Decoys that Linux throws away do
//! not let a forbidden datagram through, and good datagrams arrive.

use crate::common;
use crate::inline_net;

use bartizan_dataplane::driver::{Control, LiveOptions};
use bartizan_dataplane::worker::Worker;
use bartizan_ports::{InlineOptions, InlinePair, InlinePort, Port};
use bartizan_testkit::packet::{Datagram, Ip, UDP, sum_ipv4_header};
use bartizan_testkit_worker::live;
use inline_net::{in_namespace, link, wire};
use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

const PORT: u16 = 7_000;

/// One datagram to the server's port, in fragments of `size` bytes: frames.
fn datagram(v6: bool, id: u32, text: &[u8], size: usize) -> Vec<Vec<u8>> {
    let ip = Ip { id, ..wire::header(v6, 1, UDP) };
    ip.fragment_frames(&Datagram::new((5_000, PORT), text).bytes(&ip), size)
}

/// Heads that Linux throws away, made of a good one.
fn decoys(v6: bool, head: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut foreign = head.to_vec();
    foreign[5] = 99;
    let mut all = vec![("a foreign hardware address", foreign)];
    if v6 {
        let extended = |first: u8, extensions: &[u8]| {
            let mut frame = head.to_vec();
            let length = u16::from_be_bytes([frame[18], frame[19]]) + extensions.len() as u16;
            frame[18..20].copy_from_slice(&length.to_be_bytes());
            frame[20] = first;
            frame.splice(54..54, extensions.iter().copied());
            frame
        };
        let routing = |kind: u8| [&[44, 2, kind, 1, 0, 0, 0, 0][..], &[0xfd; 16]].concat();
        all.extend([
            ("hop-by-hop options, discard", extended(0, &[44, 0, 0x80, 4, 0, 0, 0, 0])),
            ("destination options, discard", extended(60, &[44, 0, 0x9e, 4, 0, 0, 0, 0])),
            ("routing header 0", extended(43, &routing(0))),
            ("routing header 2", extended(43, &routing(2))),
            ("hop-by-hop out of place", extended(60, &[0, 0, 1, 4, 0, 0, 0, 0, 44, 0, 1, 4, 0, 0, 0, 0])),
            ("two fragment headers", extended(44, &[44, 0, 0, 0, 0, 0, 0, 9])),
        ]);
    } else {
        let optioned = |options: &[u8]| {
            let mut header = head[14..34].to_vec();
            header[0] += options.len() as u8 / 4;
            let length = u16::from_be_bytes([header[2], header[3]]) + options.len() as u16;
            header[2..4].copy_from_slice(&length.to_be_bytes());
            header.extend(options);
            sum_ipv4_header(&mut header);
            [&head[..14], &header, &head[34..]].concat()
        };
        let mut unsummed = head.to_vec();
        unsummed[24] ^= 1;
        all.extend([
            ("a bad checksum", unsummed),
            ("a broken record route", optioned(&[7, 7, 3, 0, 0, 0, 0, 0])),
            ("a loose source route", optioned(&[0x83, 7, 4, 10, 0, 0, 9, 0])),
            ("a strict source route", optioned(&[0x89, 7, 4, 10, 0, 0, 9, 0])),
            ("an option of length 0", optioned(&[7, 0, 0, 0])),
        ]);
    }
    all
}

/// Datagrams that the server's socket reads until it is silent for `quiet`, or has read `wanted`.
fn read(socket: &UdpSocket, wanted: usize, quiet: Duration) -> BTreeSet<Vec<u8>> {
    socket.set_read_timeout(Some(quiet)).unwrap();
    let (mut got, mut buffer) = (BTreeSet::new(), vec![0; 65_536]);
    while got.len() < wanted {
        let Ok(length) = socket.recv(&mut buffer) else { break };
        got.insert(buffer[..length].to_vec());
    }
    got
}

fn send(port: &mut InlinePort, frames: &[Vec<u8>]) {
    for frame in frames {
        port.transmit_frame(frame).unwrap();
    }
    port.flush().unwrap();
    // So that they come in this order, in batches of their own.
    std::thread::sleep(Duration::from_millis(2));
}

fn text(word: &str, v6: bool, n: usize) -> Vec<u8> {
    format!("{word} {v6} {n}: this is long enough for four fragments").into_bytes()
}

/// Forbidden datagrams: the tail, a decoy in the place of the head, the true head; in prevention then all
/// fragments once more. Returns the datagrams that the server read.
fn forbidden(
    client: &mut InlinePort,
    socket: &UdpSocket,
    first_id: u32,
    again: bool,
) -> (usize, BTreeSet<Vec<u8>>) {
    let (mut sent, mut got) = (0, BTreeSet::new());
    for v6 in [false, true] {
        let kinds = decoys(v6, &datagram(v6, 0, &text("good", v6, 0), 16)[0]).len();
        for n in 0..kinds {
            let id = first_id + sent as u32;
            sent += 1;
            let [evil, good] = ["drop", "good"].map(|word| datagram(v6, id, &text(word, v6, n), 16));
            let (_, decoy) = decoys(v6, &good[0]).swap_remove(n);
            send(client, &evil[1..]);
            send(client, &[decoy]);
            send(client, &evil[..1]);
            if again {
                send(client, &evil);
            }
        }
    }
    // In detection each arrives; behind that, and in prevention, what comes until it is quiet.
    if !again {
        got.extend(read(socket, sent, Duration::from_secs(10)));
    }
    got.extend(read(socket, usize::MAX, Duration::from_millis(400)));
    (sent, got)
}

/// Runs the inline loop while `test` plays.
fn through<T>(prevention: bool, test: impl FnOnce(&mut InlinePort) -> T) -> T {
    let bench = common::bench(prevention, "no");
    let settings = bench.engine_settings.clone();
    let settings = if prevention { settings.for_real_receivers(true) } else { settings };
    let worker = Worker::new(settings, Arc::clone(&bench.engine), Arc::clone(&bench.chains)).unwrap();
    let mut client = InlinePort::open("a0", &InlineOptions::default()).unwrap();
    let (pair, _) = InlinePair::open("a1", "b1", &InlineOptions::default(), false).unwrap();
    let control = Control::new().unwrap();
    let options = LiveOptions { spin: Duration::ZERO, ..LiveOptions::default() };
    let recorder = &mut common::Nothing;
    let (result, driver) = live::inline(worker, pair, recorder, &options, &control, |_| test(&mut client));
    let counters = driver.station.worker().counters();
    let refused: u64 = counters.refused.iter().sum();
    assert_eq!(counters.packets, counters.forwarded + refused);
    result
}

#[test]
fn a_linux_receiver_gets_good_datagrams_and_no_decoyed_ones() {
    in_namespace("a_linux_receiver_gets_good_datagrams_and_no_decoyed_ones", || {
        link(1..=1);
        let socket = UdpSocket::bind(("::", PORT)).unwrap();
        // In detection everything goes on: Linux throws each decoy away, and reads the rest.
        let (sent, got) = through(false, |client| forbidden(client, &socket, 100, false));
        let evil = got.iter().filter(|bytes| bytes.starts_with(b"drop")).count();
        let names: Vec<_> = got.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
        assert_eq!(evil, sent, "these are no decoys here: {names:?}");
        through(true, |client| {
            let (_, got) = forbidden(client, &socket, 1_000, true);
            let names: Vec<_> = got.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
            assert!(names.is_empty(), "{names:?}");
            let mut id = 2_000;
            for v6 in [false, true] {
                for (length, size) in [(60_000, 1_232), (20_000, 1_448), (3_000, 1_440), (100, 8)] {
                    for order in 0..3 {
                        id += 1;
                        let mut payload = text("fine", v6, id as usize);
                        payload.resize(length, b'.');
                        let mut parts = datagram(v6, id, &payload, size);
                        match order {
                            1 => parts.reverse(),
                            2 => parts.rotate_left(1),
                            _ => {}
                        }
                        send(client, &parts);
                        let got = read(&socket, 1, Duration::from_secs(10));
                        assert!(got.contains(&payload), "{length} bytes by {size}, order {order}, v6 {v6}");
                    }
                }
            }
        });
    });
}
