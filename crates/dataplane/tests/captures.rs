// SPDX-License-Identifier: Apache-2.0
//! Several workers for one reader: the results of a single one for any traffic; every packet is handled once,
//! by its owner, in order.

use crate::common;

use bartizan_base::{Generation, Reason, TenantId, Timestamp, Verdict, WorkerId};
use bartizan_dataplane::captures::{Pool, PoolOptions};
use bartizan_dataplane::eve::{EveRecorder, RunInfo};
use bartizan_dataplane::event_ring::{RingFullPolicy, event_ring, write_all};
use bartizan_dataplane::worker::{Frame, Worker, WorkerCounters};
use bartizan_packet::LinkType;
use bartizan_packet::capture::CaptureReader;
use bartizan_stages::quotas::{Quota, Quotas};
use bartizan_stages::record::{Recorder, RecorderEvent};
use bartizan_testkit::layers;
use bartizan_testkit_worker::events;
use common::{
    Bench, Captured, Nothing, Seen, Shape, bench, chains, ethernet, fragments, ip, ip_as_is, marked,
    marked_saying, marked_wrong, tcp, udp, unreachable,
};
use proptest::prelude::*;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Takes a frame.
type Take<'t> = dyn FnMut(&Frame<'_>) + 't;
/// Gives frames, again each time.
type Source<'s> = &'s dyn Fn(&mut Take<'_>);

/// Output and counters of a run.
struct Outcome {
    lines: Vec<String>,
    alerts: u64,
    counters: WorkerCounters,
    stats: Vec<(String, u64)>,
    /// Number of moves of flows between workers.
    moved: u64,
}

/// Lines without their random part (the flow's number), sorted.
fn comparable(folder: &Path) -> Vec<String> {
    let all = events::read(&folder.join("eve.json"));
    let plain = all.iter().filter(|event| event["event_type"] != "stats");
    let mut lines: Vec<String> = plain.map(events::without_flow_id).collect();
    lines.sort();
    lines
}

fn temporary(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("bartizan-workers-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Inspects with so many workers, through the real recorder; 0: without a pool. `moves`: flows move between
/// them by this seed.
fn inspect(bench: &Bench, frames: Source<'_>, workers: usize, moves: Option<u64>, name: &str) -> Outcome {
    let folder = temporary(&format!("{name}-{workers}"));
    let prevention = bench.engine_settings.prevention;
    let mut warnings = Vec::new();
    let mut whole =
        EveRecorder::new(&bench.settings, &folder, prevention, RunInfo::default(), &mut warnings).unwrap();
    let (counters, stats, moved) = if workers == 0 {
        let mut worker =
            Worker::new(bench.engine_settings.clone(), Arc::clone(&bench.engine), Arc::clone(&bench.chains))
                .unwrap();
        frames(&mut |frame| {
            worker.frame(frame, &mut whole);
        });
        worker.shutdown(&mut whole);
        let mut stats = Vec::new();
        worker.visit_stats(|name, value| stats.push((name.to_owned(), value)));
        (*worker.counters(), stats, 0)
    } else {
        let mut halves = Vec::new();
        let mut rings = Vec::new();
        for _ in 0..workers {
            let (sender, receiver) = event_ring(1 << 20, RingFullPolicy::Wait);
            let half = EveRecorder::for_worker(&bench.settings, prevention, RunInfo::default(), sender);
            halves.push(half.unwrap());
            rings.push(receiver);
        }
        let options = PoolOptions { rounds: 4, frames: 7, bytes: 1 << 16, moves };
        let mut pool =
            Pool::start(&bench.engine_settings, &bench.engine, &bench.chains, halves, options).unwrap();
        let mut finished = std::thread::scope(|scope| {
            let writer = scope.spawn(|| write_all(rings, &mut whole));
            frames(&mut |frame| pool.frame(frame).unwrap());
            let mut finished = pool.finish().unwrap();
            for half in &mut finished.recorders {
                assert_eq!(half.close_ring().lost, 0);
            }
            writer.join().unwrap();
            finished
        });
        for half in finished.recorders.drain(..) {
            whole.absorb(&half);
        }
        let stats = finished.stats.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect();
        (finished.counters, stats, finished.moved)
    };
    assert!(whole.finish().is_empty());
    let alerts = whole.alerts().values().sum();
    drop(whole);
    let lines = comparable(&folder);
    std::fs::remove_dir_all(&folder).unwrap();
    Outcome { lines, alerts, counters, stats, moved }
}

/// Counters that say how full something is, or was at its fullest, are not sums.
fn is_gauge(name: &str) -> bool {
    [
        "app_layer_memory.used",
        "app_layer_memory.peak",
        "app_layer_memory.limit",
        "memuse",
        "memcap",
        "capacity",
        "active",
        "room",
        "max",
        "avg",
        "emerg",
        "wheel",
        "timer",
    ]
    .iter()
    .any(|part| name.contains(part))
}

fn compare(bench: &Bench, frames: Source<'_>, name: &str) -> Outcome {
    let one = inspect(bench, frames, 0, None, name);
    for workers in [1, 2, 4] {
        let many = inspect(bench, frames, workers, None, name);
        are_equal(&one, &many, &format!("{name}, {workers} workers"));
    }
    one
}

fn are_equal(one: &Outcome, many: &Outcome, name: &str) {
    let missing: Vec<&String> = one.lines.iter().filter(|l| !many.lines.contains(l)).take(3).collect();
    let more: Vec<&String> = many.lines.iter().filter(|l| !one.lines.contains(l)).take(3).collect();
    assert!(missing.is_empty() && more.is_empty(), "{name}: missing {missing:#?} more {more:#?}");
    assert_eq!(one.lines.len(), many.lines.len(), "{name}");
    assert_eq!(one.alerts, many.alerts, "{name}");
    assert_eq!(one.counters, many.counters, "{name}");
    let sums: HashMap<&str, u64> = many.stats.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    for (counter, value) in one.stats.iter().filter(|(n, _)| !is_gauge(n)) {
        assert_eq!(sums.get(counter.as_str()), Some(value), "{name}: {counter}");
    }
}

/// Compares runs in which flows move between workers at random, by several seeds, with a run of one worker.
fn compare_moving(bench: &Bench, frames: Source<'_>, least: u64, name: &str) {
    let one = inspect(bench, frames, 0, None, name);
    for (workers, seed) in [(4, 1), (4, 2), (4, 3), (2, 4)] {
        let many = inspect(bench, frames, workers, Some(seed), name);
        are_equal(&one, &many, &format!("{name}, {workers} workers, seed {seed}"));
        assert!(many.moved >= least, "{name}, seed {seed}: {} moves", many.moved);
    }
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(1_700_000_000_000_000_000 + millis * 1_000_000)
}

/// Frames with a refused part: datagrams in tunnels and fragments; and later fragments of the same datagrams.
fn refused_inside(v6: bool, round: u32) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (flow, shape) in (20..).zip([Shape::Tunnel, Shape::Fragmented, Shape::FragmentedTunnel]) {
        for word in ["evil, drop", "evil"] {
            // Another number is another datagram.
            let number = 2 * round + u32::from(word == "evil");
            let all = marked_saying(v6, flow + round % 3 * 3, number, shape, word.as_bytes());
            let again = all.last().cloned();
            frames.extend(all);
            frames.extend(again);
        }
    }
    for word in [b"an evil drop".as_slice(), b"an evil word"] {
        let inner = ip(!v6, (3, 4 + (round % 5) as u8), 17, &udp((5000 + (round % 4) as u16, 77), word));
        let body = udp((4790, 4789), &layers::vxlan(9, &ethernet(!v6, &inner)));
        frames.push(ethernet(v6, &ip(v6, (200, 201), 17, &body)));
        // The same in fragments, of which the last comes twice.
        let all = fragments(v6, (200, 201), 17, 70_000 + 2 * round + u32::from(word[8] == b'w'), &body, 32);
        let again = all.last().cloned();
        frames.extend(all.iter().chain(&again).map(|piece| ethernet(v6, piece)));
    }
    if v6 {
        // Fragments behind an "atomic" fragment header, whose packets no receiver is known to read alike.
        let body = udp((9, 10), b"some text that is long enough");
        frames.extend(fragments(true, (6, 7), 17, round, &body, 16).into_iter().map(|mut bytes| {
            bytes[5] += 8;
            bytes.splice(40..40, [44, 0, 0, 0, 0, 0, 0, 9]);
            ethernet(true, &bytes)
        }));
    }
    frames
}

/// Connections, datagrams, errors about them, broken frames; gaps in time, so that flows end on the way.
fn mixture() -> Vec<Captured> {
    let mut frames: Vec<Captured> = Vec::new();
    let mut millis = 0;
    let mut put = |bytes: Vec<u8>, gap: u64| {
        millis += gap;
        frames.push(Captured { now: at(millis), bytes });
    };
    for round in 0..60u32 {
        for v6 in [false, true] {
            let (client, server) = ((round % 7) as u8 + 1, 90);
            let ports = (10_000 + (round % 40) as u16, if round % 5 == 0 { 80 } else { 7000 });
            let back = (ports.1, ports.0);
            let mut tcp_frame = |from_client: bool, seq: u32, ack: u32, flags: u8, payload: &[u8]| {
                let (ends, ports) =
                    if from_client { ((client, server), ports) } else { ((server, client), back) };
                put(ethernet(v6, &ip_as_is(v6, ends, 6, &tcp(ports, seq, ack, flags, payload))), 3);
            };
            tcp_frame(true, 100, 0, SYN, b"");
            tcp_frame(false, 500, 101, SYN | ACK, b"");
            tcp_frame(true, 101, 501, ACK, b"");
            let request = b"GET /evil HTTP/1.1\r\nHost: example.org\r\n\r\n";
            tcp_frame(true, 101, 501, ACK, &request[..20]);
            tcp_frame(true, 121, 501, ACK, &request[20..]);
            let end = 101 + request.len() as u32;
            tcp_frame(false, 501, end, ACK, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            if round % 3 == 0 {
                tcp_frame(true, end, 541, RST | ACK, b"");
            } else {
                tcp_frame(true, end, 541, FIN | ACK, b"");
                tcp_frame(false, 541, end + 1, FIN | ACK, b"");
                tcp_frame(true, end + 1, 542, ACK, b"");
            }
            let mut question = ip(v6, (client, 53), 17, &udp((4000 + round as u16, 99), b"an evil drop"));
            question[if v6 { 47 } else { 27 }] ^= 1;
            put(ethernet(v6, &question), 1);
            if !v6 {
                put(ethernet(false, &ip(false, (53, client), 1, &unreachable(&question))), 1);
            }
            for shape in [Shape::Plain, Shape::Fragmented, Shape::Tunnel, Shape::FragmentedTunnel] {
                for frame in marked_wrong(v6, round % 11, round, shape) {
                    put(frame, 1);
                }
            }
            for frame in refused_inside(v6, round) {
                put(frame, 1);
            }
        }
        put(vec![1, 2, 3], 0);
        put(ethernet(false, &[0x45, 0, 0, 99, 1]), if round % 10 == 9 { 45_000 } else { 200 });
    }
    frames
}

/// With a record of each packet that is refused.
fn telling_all(prevention: bool, checksums: &str) -> Bench {
    let mut bench = bench(prevention, checksums);
    bench.settings.set("outputs.1.eve-log.types.34", "drop");
    bench.settings.set("outputs.1.eve-log.types.34.drop.flows", "all");
    bench
}

/// Time within which a worker that runs has taken a generation, on any machine.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn results_do_not_depend_on_the_number_of_workers() {
    let frames = mixture();
    let each = |take: &mut Take<'_>| {
        for (number, frame) in (1..).zip(&frames) {
            take(&frame.frame(number));
        }
    };
    // Checksums of these frames are wrong: with `auto` a thousand of them decide for the rest, in the
    // capture's order.
    for (prevention, checksums) in [(false, "no"), (true, "no"), (false, "auto"), (false, "yes")] {
        let bench = telling_all(prevention, checksums);
        let one = compare(&bench, &each, &format!("mixture-{prevention}-{checksums}"));
        assert!(one.alerts > 100, "{}", one.alerts);
        assert_eq!(one.counters.packets, frames.len() as u64);
        let refused = [Reason::PfwRule, Reason::Defrag].map(|why| one.counters.refused[why as usize]);
        assert_eq!(refused.map(|count| count > 100), [prevention; 2], "{refused:?}");
        let inside = one.lines.iter().filter(|line| line.contains("tunnel packet drop")).count();
        assert_eq!(inside > 100, prevention, "{inside}");
        let ended =
            |why: &str| one.lines.iter().filter(|l| l.contains(&format!(r#""reason":"{why}""#))).count();
        assert!(ended("timeout") > 20 && ended("shutdown") > 2, "{} {}", ended("timeout"), ended("shutdown"));
    }
}

#[test]
fn results_do_not_depend_on_where_flows_move() {
    let frames = mixture();
    let each = |take: &mut Take<'_>| {
        for (number, frame) in (1..).zip(&frames) {
            take(&frame.frame(number));
        }
    };
    for prevention in [false, true] {
        let mut bench = telling_all(prevention, "no");
        // Never used up: what is counted for it waits for its turn, also while flows are given away and taken
        // in.
        let quota = Quota { flows: Some(1 << 20), alerts: Some(1 << 20), state: Some(1 << 40) };
        let quotas = Quotas::new(vec![(TenantId(0), "all".into(), quota, Arc::default())]);
        Arc::get_mut(&mut bench.chains).unwrap().quotas = quotas;
        compare_moving(&bench, &each, 300, &format!("moving-{prevention}"));
    }
}

/// Captures that stand beside the repository; nothing is done without them.
#[test]
fn results_over_real_captures_do_not_depend_on_the_number_of_workers() {
    let Some(shared) = common::beside("data/captures") else {
        println!("shared captures are not here: not tested");
        return;
    };
    let bench = bench(false, "auto");
    for name in ["tenants-vlan.pcap", "tenants-vxlan.pcap"] {
        let path = shared.join(name);
        if !path.is_file() {
            continue;
        }
        let each = |take: &mut Take<'_>| {
            let mut reader =
                CaptureReader::new(std::fs::File::open(&path).unwrap(), name.to_owned()).unwrap();
            let mut number = 0;
            while let Ok(Some(record)) = reader.next() {
                number += 1;
                take(&Frame {
                    now: record.timestamp,
                    bytes: record.data,
                    wire_len: record.wire_len,
                    link_type: LinkType::from_capture(record.link_type as u16),
                    link: bartizan_base::LinkId(0),
                    number: Some(number),
                });
            }
        };
        assert!(!compare(&bench, &each, name).lines.is_empty());
        compare_moving(&bench, &each, 1, &format!("moving-{name}"));
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Plain),
        Just(Shape::Fragmented),
        Just(Shape::Tunnel),
        Just(Shape::FragmentedTunnel),
    ]
}

/// Each marked packet once, in order; all of a flow at one worker, where they `stay`.
fn check_marks(seen: &[Seen], sent: &HashMap<u32, u32>, stay: bool) {
    let mut next: HashMap<u32, u32> = HashMap::new();
    let mut owner: HashMap<u32, u16> = HashMap::new();
    for packet in seen {
        let Some((flow, number)) = packet.mark else { continue };
        let expected = next.entry(flow).or_default();
        assert_eq!(number, *expected, "flow {flow}");
        *expected += 1;
        assert!(*owner.entry(flow).or_insert(packet.worker) == packet.worker || !stay, "flow {flow}");
    }
    assert_eq!(&next, sent);
}

/// The packets around the marked ones: each flow at one worker.
fn check_owners(seen: &[Seen]) {
    let mut owner = HashMap::new();
    for packet in seen {
        let Some(flow) = packet.flow else { continue };
        let first = *owner.entry((flow, packet.protocol, packet.level)).or_insert(packet.worker);
        assert_eq!(first, packet.worker, "{packet:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_is_handled_once_by_its_owner_in_order(
        packets in prop::collection::vec((0u32..12, any::<bool>(), shapes()), 1..120),
        workers in 1usize..6,
        frames in 1usize..9,
        moves in prop::option::of(any::<u64>()),
    ) {
        let bench = bench(false, "no");
        let options = PoolOptions { rounds: 3, frames, bytes: 1 << 16, moves };
        let halves = (0..workers).map(|_| Nothing).collect();
        let mut pool =
            Pool::start(&bench.engine_settings, &bench.engine, &bench.chains, halves, options).unwrap();
        let mut sent: HashMap<u32, u32> = HashMap::new();
        let mut count = 0;
        for (millis, (flow, v6, shape)) in (0u64..).zip(&packets) {
            // A flow has one IP version, and is inside or outside of tunnels.
            let inside = matches!(shape, Shape::Tunnel | Shape::FragmentedTunnel);
            let flow = flow * 4 + u32::from(*v6) * 2 + u32::from(inside);
            let number = sent.entry(flow).or_default();
            for bytes in marked(*v6, flow, *number, *shape) {
                count += 1;
                pool.frame(&Captured { now: at(millis), bytes }.frame(count)).unwrap();
            }
            *number += 1;
        }
        let finished = pool.finish().unwrap();
        let seen = bench.seen.lock().unwrap();
        check_marks(&seen, &sent, moves.is_none());
        if moves.is_none() {
            check_owners(&seen);
        }
        prop_assert_eq!(finished.counters.packets, count);
        let refused: u64 = finished.counters.refused.iter().sum();
        prop_assert_eq!(finished.counters.forwarded + refused, count);
    }
}

#[test]
fn a_swap_reaches_all_workers_between_two_frames_also_idle_ones() {
    let bench = bench(false, "no");
    let options = PoolOptions { rounds: 3, frames: 5, bytes: 1 << 16, moves: None };
    let halves = (0..4).map(|_| Nothing).collect();
    let mut pool =
        Pool::start(&bench.engine_settings, &bench.engine, &bench.chains, halves, options).unwrap();
    let (steering, control) = (pool.steering(), pool.control());
    assert!(control.wait_running(Generation(1), LONG));
    let mut number = 0;
    let mut swapped_at = Vec::new();
    for generation in 2..=40u64 {
        for _ in 0..3 {
            // One flow only: three workers have nothing to do.
            for bytes in marked(false, 3, number, Shape::Plain) {
                pool.frame(&Captured { now: at(u64::from(number)), bytes }.frame(1)).unwrap();
            }
            number += 1;
        }
        steering.swap(chains(generation, &bench.seen));
        swapped_at.push(number);
    }
    // No more frames: the last swap arrives all the same.
    pool.flush().unwrap();
    assert!(control.wait_running(Generation(40), LONG));
    assert!((0..4).all(|w| control.running_in(WorkerId(w)) == Some(Generation(40))));
    assert_eq!(control.running_in(WorkerId(4)), None);
    let finished = pool.finish().unwrap();
    assert_eq!(finished.counters.packets, u64::from(number));
    let seen = bench.seen.lock().unwrap();
    for packet in seen.iter() {
        let (_, number) = packet.mark.unwrap();
        let expected = 1 + swapped_at.iter().filter(|at| **at <= number).count() as u64;
        assert_eq!(packet.generation, expected, "packet {number}");
    }
    assert_eq!(seen.len(), number as usize);
}

/// Refuses everything.
struct Refuses;

impl bartizan_function::Function for Refuses {
    fn spec(&self) -> &'static bartizan_function::FunctionSpec {
        &common::HEADER_SPEC
    }

    fn id(&self) -> bartizan_base::FunctionId {
        bartizan_base::FunctionId(0)
    }

    fn packet(&self, _: &mut bartizan_function::PacketContext<'_>) -> bartizan_base::Decision {
        bartizan_base::Decision::refuse(Verdict::Drop, Reason::PfwRule, bartizan_base::FunctionId(0))
    }
}

/// Fails at the first refusal. (What fails in a function costs no worker.)
struct Fails;

impl Recorder for Fails {
    fn record(&mut self, event: RecorderEvent<'_>) {
        if let RecorderEvent::Refused { .. } = event {
            panic!("a defect, made for this test");
        }
    }
}

#[test]
fn a_worker_that_fails_is_an_error_and_no_standstill() {
    let mut bench = bench(true, "no");
    bench.chains = Arc::new(bartizan_stages::chain::Chains::one(Generation(1), vec![Arc::new(Refuses)]));
    let options = PoolOptions { rounds: 2, frames: 2, bytes: 1 << 16, moves: None };
    let halves = (0..2).map(|_| Fails).collect();
    let mut pool =
        Pool::start(&bench.engine_settings, &bench.engine, &bench.chains, halves, options).unwrap();
    let mut failed = None;
    for number in 0..1_000 {
        let bytes = marked(false, 3, number, Shape::Plain).remove(0);
        if let Err(error) = pool.frame(&Captured { now: at(0), bytes }.frame(1)) {
            failed = Some(error.to_string());
            break;
        }
    }
    let message = match failed {
        Some(message) => message,
        None => pool.finish().err().map(|e| e.to_string()).unwrap_or_default(),
    };
    assert!(message.contains("--threads 1"), "{message}");
}

#[test]
fn time_without_frames_ends_flows() {
    let bench = bench(false, "no");
    let halves = (0..3).map(|_| Nothing).collect();
    let mut pool =
        Pool::start(&bench.engine_settings, &bench.engine, &bench.chains, halves, PoolOptions::default())
            .unwrap();
    for flow in 0..20 {
        for bytes in marked(true, flow, 0, Shape::Plain) {
            pool.frame(&Captured { now: at(0), bytes }.frame(1)).unwrap();
        }
    }
    pool.tick(at(4_000_000)).unwrap();
    let finished = pool.finish().unwrap();
    let stat = |name: &str| finished.stats.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
    assert_eq!(stat("flow.total"), Some(20));
    assert_eq!(stat("flow.end.reason.timeout"), Some(20));
    assert_eq!(finished.clock, at(4_000_000));
    assert_eq!(finished.counters.packets, 20);
}
