// SPDX-License-Identifier: Apache-2.0
//! Invariant 5: a frame leaves as it came, byte for byte, unless the normaliser counted a change. Frames of
//! all kinds and the suite's captures go through the inline loop between ports in memory; a second worker,
//! which has no port and cannot change anything, determines the frames that have to leave.

use crate::common;

use bartizan_base::Timestamp;
use bartizan_dataplane::driver::{Control, Driver, LiveCounters, LiveOptions};
use bartizan_dataplane::handover::Station;
use bartizan_dataplane::source::InlineSource;
use bartizan_dataplane::worker::Worker;
use bartizan_packet::capture::CaptureReader;
use bartizan_packet::{DecodeOutput, Decoder, LinkType};
use bartizan_ports::{InlinePair, TestClock, TestPort};
use bartizan_stages::normaliser::{self, NormaliserCounters};
use bartizan_testkit_worker::live;
use common::{Bench, Captured, Nothing, bench, ethernet, fragments, gre, ip, tcp, udp};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest network-layer packet: with header and a tag a frame of 65,535 bytes.
const MTU: u32 = 65_517;

fn worker(bench: &Bench) -> Worker {
    // Urgent flags are taken off as in a live run.
    let settings = bench.engine_settings.clone().for_real_receivers(true);
    Worker::new(settings, Arc::clone(&bench.engine), Arc::clone(&bench.chains)).unwrap()
}

/// The frames that must leave, and the changes made to them.
fn expected(bench: &Bench, frames: &[Captured]) -> (Vec<Vec<u8>>, NormaliserCounters, u64) {
    let (mut worker, mut counters) = (worker(bench), NormaliserCounters::default());
    let (mut out, mut changed) = (Vec::new(), 0);
    for frame in frames {
        let before = counters;
        let decision = worker.frame(&frame.frame(1), &mut Nothing);
        // Fragments whose datagram is whole now.
        let mut held = Vec::new();
        while worker.take_released(&mut held).is_some() {
            out.push(held.clone());
        }
        let Some(decision) = decision else { continue };
        let mut bytes = frame.bytes.clone();
        if let Some(change) = worker.take_rewrite()
            && decision.verdict.forwards()
        {
            let (mut longer, mut output) = (Vec::new(), DecodeOutput::new());
            Decoder::default().decode(LinkType::ETHERNET, &bytes, bytes.len() as u32, &mut output);
            let packets = output.packets();
            assert!(normaliser::rewrite(&mut bytes, &change, packets, &mut longer, &mut counters));
            if !longer.is_empty() {
                bytes = longer;
            }
        }
        if bytes != frame.bytes {
            changed += 1;
            assert_ne!(counters, before, "a change is counted");
        }
        // A frame without a whole link header cannot be sent.
        if decision.verdict.forwards() && bytes.len() >= 14 {
            out.push(bytes);
        }
    }
    (out, counters, changed)
}

/// Sends all frames through the inline loop; returns the leaving frames and the counters.
fn through(bench: &Bench, frames: &[Captured], leaving: usize) -> (Vec<Vec<u8>>, LiveCounters) {
    let clock = TestClock::starting_at(Timestamp::ZERO);
    let capacity = frames.len() + 1;
    let (_client, a) = TestPort::pair(["c", "a"], MTU, capacity, &clock).unwrap();
    let (b, mut server) = TestPort::pair(["b", "s"], MTU, capacity, &clock).unwrap();
    for frame in frames {
        a.inject(&frame.bytes, frame.now);
    }
    let pair = InlinePair::new(Box::new(a), Box::new(b), false).unwrap();
    let (worker, control) = (worker(bench), Control::new().unwrap());
    let options = LiveOptions { batch: 32, spin: Duration::ZERO, ..LiveOptions::default() };
    let recorder = &mut Nothing;
    let (mut out, driver) = live::inline(worker, pair, recorder, &options, &control, |has_ended| {
        let (mut out, begun) = (Vec::new(), Instant::now());
        while out.len() < leaving && begun.elapsed() < Duration::from_secs(10) && !has_ended() {
            match server.take() {
                Some(frame) => out.push(frame),
                None => std::thread::sleep(Duration::from_micros(100)),
            }
        }
        // What should not have left would come now.
        std::thread::sleep(Duration::from_millis(2));
        out
    });
    out.extend(std::iter::from_fn(|| server.take()));
    (out, driver.counters)
}

fn check(bench: &Bench, frames: &[Captured]) -> (usize, u64) {
    let (expected, changes, changed) = expected(bench, frames);
    let (left, counters) = through(bench, frames, expected.len());
    assert_eq!(left.len(), expected.len(), "as many frames leave as have to");
    for (number, (left, expected)) in left.iter().zip(&expected).enumerate() {
        assert!(left == expected, "frame {number} is another one: {left:02x?} instead of {expected:02x?}");
    }
    assert_eq!(counters.normaliser, changes);
    (left.len(), changed)
}

fn captured(frames: Vec<Vec<u8>>) -> Vec<Captured> {
    (0u64..)
        .zip(frames)
        .map(|(n, bytes)| Captured { now: Timestamp::from_nanos(1_000_000 * n), bytes })
        .collect()
}

/// VLAN tags before the EtherType.
fn tagged(frame: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let mut out = frame[..12.min(frame.len())].to_vec();
    for (kind, tag) in tags {
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&tag.to_be_bytes());
    }
    out.extend_from_slice(frame.get(12..).unwrap_or_default());
    out
}

/// A frame of any kind.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop::collection::vec(any::<u8>(), 0..300);
    let large = (1_000usize..65_450).prop_map(|length| vec![b'J'; length]);
    let bytes = prop_oneof![8 => payload, 1 => large];
    let tags = prop_oneof![
        3 => Just(vec![]),
        1 => any::<u16>().prop_map(|tag| vec![(0x8100, tag)]),
        1 => any::<(u16, u16)>().prop_map(|(a, b)| vec![(0x88a8, a), (0x8100, b)]),
    ];
    (any::<bool>(), 0..9u8, bytes, any::<u32>(), 0..64u8, tags).prop_map(
        |(v6, kind, bytes, number, flags, tags)| {
            let ports = (1000 + (number % 4) as u16, 80);
            let frame = match kind {
                0 => ethernet(v6, &ip(v6, (1, 2), 17, &udp(ports, &bytes))),
                // Segments that overlap, with any flags, of a few flows.
                1..=3 => {
                    let seq = 100 + number % 50;
                    ethernet(
                        v6,
                        &ip(v6, (1, 2), 6, &tcp(ports, seq, 1, flags, &bytes[..bytes.len().min(60)])),
                    )
                }
                4 => ethernet(
                    v6,
                    &fragments(v6, (1, 2), 17, number, &udp(ports, &[7; 100]), 24)[number as usize % 5],
                ),
                5 => ethernet(v6, &ip(v6, (1, 2), 47, &gre(v6, &ip(v6, (3, 4), 17, &udp(ports, &bytes))))),
                // ARP, STP, LLDP and what else there is.
                6 => [
                    &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..],
                    &[[8, 6], [0x88, 0xcc], [0, 38]][number as usize % 3],
                    &bytes,
                ]
                .concat(),
                // Runts and noise.
                7 => bytes.clone(),
                _ => bytes[..bytes.len().min(13)].to_vec(),
            };
            let mut frame = tagged(&frame, &tags);
            frame.truncate(65_535);
            frame
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn frames_of_all_kinds_leave_as_they_came(frames in prop::collection::vec(any_frame(), 1..60)) {
        let bench = bench(true, "no");
        check(&bench, &captured(frames));
    }
}

/// Connections in which bytes are sent again as others, and urgent ones: both changes are made and counted.
#[test]
fn changes_are_counted() {
    for v6 in [false, true] {
        let bench = bench(true, "no");
        let segment = |to_server: bool, seq, ack, flags, payload: &[u8]| {
            let (ends, ports) = if to_server { ((1, 2), (1000, 80)) } else { ((2, 1), (80, 1000)) };
            ethernet(v6, &ip(v6, ends, 6, &tcp(ports, seq, ack, flags, payload)))
        };
        let frames = vec![
            segment(true, 100, 0, 2, b""),
            segment(false, 500, 101, 18, b""),
            segment(true, 101, 501, 16, b""),
            segment(false, 501, 101, 16, b""),
            segment(true, 101, 501, 16, b"good bytes"),
            segment(true, 101, 501, 16, b"evil bytes"),
            segment(true, 111, 501, 48, b"urgent"),
        ];
        let (left, changed) = check(&bench, &captured(frames));
        assert_eq!((left, changed), (7, 2));
    }
}

/// Payload of the largest frame size leaves in one piece.
#[test]
fn the_largest_frames_leave_as_they_came() {
    let bench = bench(true, "no");
    let whole = |v6, length: usize| {
        let header = if v6 { 54 } else { 34 };
        ethernet(v6, &ip(v6, (1, 2), 17, &udp((1, 2), &vec![9; length - header - 8])))
    };
    let tag = [(0x8100, 5)];
    let frames =
        vec![whole(false, 9_014), whole(true, 65_531), tagged(&whole(false, 65_531), &tag), whole(false, 60)];
    assert_eq!(frames[2].len(), 65_535);
    assert_eq!(check(&bench, &captured(frames)).0, 4);
}

/// The Ethernet captures of the compatibility suite, which stands beside the repository.
#[test]
fn frames_of_captures_leave_as_they_came() {
    let Some(folder) = common::beside("compat") else {
        let line: &[u8] = b"frames_of_captures_leave_as_they_came: not run, ../shared/compat is not there\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), line);
        return;
    };
    let mut paths = Vec::new();
    collect(&folder, &mut paths);
    paths.sort();
    let (mut captures, mut frames_left) = (0, 0);
    let begun = Instant::now();
    for path in paths {
        // So many as there is time for; the first are always the same.
        if begun.elapsed() > Duration::from_secs(12) {
            break;
        }
        let Ok(file) = std::fs::File::open(&path) else { continue };
        let Ok(mut reader) = CaptureReader::new(file, path.display().to_string()) else { continue };
        let mut frames = Vec::new();
        while let Ok(Some(record)) = reader.next() {
            if record.link_type != 1 || record.data.len() > 65_535 || frames.len() == 300 {
                break;
            }
            frames.push(Captured { now: record.timestamp, bytes: record.data.to_vec() });
        }
        if !frames.is_empty() {
            frames_left += check(&bench(true, "no"), &frames).0;
            captures += 1;
        }
    }
    println!("{captures} captures, {frames_left} frames left");
    assert!(captures > 50 && frames_left > 1000, "{captures} captures, {frames_left} frames");
}

fn collect(folder: &std::path::Path, into: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, into);
        } else if path.extension().is_some_and(|e| e == "pcap" || e == "pcapng") {
            into.push(path);
        }
    }
}

#[test]
fn what_lies_in_the_ring_leaves_after_the_word_to_stop() {
    let bench = bench(true, "no");
    let frames: Vec<Captured> = (0..1000u32)
        .map(|n| Captured {
            now: Timestamp::from_nanos(1_000_000_000 + u64::from(n)),
            bytes: ethernet(false, &ip(false, (1, 2), 17, &udp((1000 + n as u16, 53), b"question"))),
        })
        .collect();
    let clock = TestClock::starting_at(Timestamp::ZERO);
    let (_client, a) = TestPort::pair(["c", "a"], MTU, frames.len() + 1, &clock).unwrap();
    let (b, _server) = TestPort::pair(["b", "s"], MTU, frames.len() + 1, &clock).unwrap();
    for frame in &frames {
        a.inject(&frame.bytes, frame.now);
    }
    let worker = worker(&bench);
    let pair = InlinePair::new(Box::new(a), Box::new(b), false).unwrap();
    let control = Control::new().unwrap();
    control.stop();
    let options = LiveOptions { batch: 64, spin: Duration::ZERO, ..LiveOptions::default() };
    let mut driver =
        Driver::new(Station::alone(worker), Box::new(InlineSource::new(pair)), Box::new(Nothing));
    driver.run(&options, &control).unwrap();
    assert_eq!(driver.station.worker().counters().packets, 1000);
    let mut sent = 0;
    driver.each_port(|name, stats, _| sent += if name == "b" { stats.sent } else { 0 });
    assert_eq!(sent, 1000);
}
