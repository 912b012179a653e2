// SPDX-License-Identifier: Apache-2.0
//! Invariant 1 against a real receiver: an application reads from Linux's TCP exactly the inspected bytes,
//! whatever a sender tries, and none before its inspection.
//!
//! Hand-made frames pass the inline loop between two interfaces to sockets of the kernel. A function that
//! records its stream takes the place of ids. `BARTIZAN_SEED=n` plays one connection, `BARTIZAN_TRACE=port`
//! shows one segment by segment (ports count from 10000 in the order of the seeds), `BARTIZAN_BASE=n` begins
//! at another seed.

use crate::inline_net;

use bartizan_applayer::file::FileSettings;
use bartizan_applayer::flow::Engine;
use bartizan_base::{Decision, Direction, FunctionId, Generation};
use bartizan_dataplane::driver::{Control, LiveCounters, LiveOptions};
use bartizan_dataplane::worker::{Worker, WorkerCounters};
use bartizan_function::{Function, FunctionModel, FunctionSpec, PacketContext};
use bartizan_ports::{Batch, InlineOptions, InlinePair, InlinePort, Port, wait_any};
use bartizan_stages::chain::Chains;
use bartizan_stages::settings::EngineSettings;
use inline_net::receiver::{self, End, Got, Peer};
use inline_net::sender::Connection;
use inline_net::{AtEnd, in_namespace, link, sysctl, wire};
use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use crate::common;
use bartizan_testkit_worker::live;

/// The inspected bytes of each connection's data to the server.
#[derive(Default)]
struct Inspected(Mutex<HashMap<Peer, Vec<u8>>>);

/// Takes the place of ids and records the stream.
struct Witness(Arc<Inspected>);

static WITNESS: FunctionSpec = FunctionSpec {
    name: "witness",
    summary: "Writes down the stream.",
    model: FunctionModel::Payload,
    runs_after: &[],
    runs_before: &[],
    header_half: None,
    host_slot: None,
    counters: &[],
};

impl Function for Witness {
    fn spec(&self) -> &'static FunctionSpec {
        &WITNESS
    }

    fn id(&self) -> FunctionId {
        FunctionId(0)
    }

    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        let news = context.facts.stream.as_ref().filter(|news| !news.about_packet);
        let (Some(news), Some(packet)) = (news, context.facts.packet) else { return Decision::CONTINUE };
        if context.facts.direction == Direction::ToServer {
            let packet = packet.decoded();
            let peer = (packet.src().unwrap(), packet.ports().unwrap().0);
            let mut inspected = self.0.0.lock().unwrap();
            let bytes = inspected.entry(peer).or_default();
            let start = news.offset as usize + news.seen;
            assert!(start >= bytes.len(), "{peer:?}: bytes from {start} on are inspected again");
            if traced(peer.1) {
                println!(
                    "{}        inspected {start}: {}",
                    peer.1,
                    String::from_utf8_lossy(&news.bytes[news.seen..])
                );
            }
            // A hole shows in the comparison.
            bytes.resize(start, 0);
            bytes.extend_from_slice(&news.bytes[news.seen..]);
        }
        Decision::CONTINUE
    }
}

fn worker(inspected: &Arc<Inspected>, set: &[(&str, &str)]) -> Worker {
    let mut settings = bartizan_config::suricata::shipped();
    for (key, value) in set {
        settings.set(*key, *value);
    }
    let engine_settings =
        EngineSettings::from_settings(&settings, true, [5, 6]).unwrap().0.for_real_receivers(true);
    let engine = Arc::new(Engine::new(&settings, FileSettings::default()).unwrap());
    let chains = Chains::one(Generation(1), vec![Arc::new(Witness(Arc::clone(inspected)))]);
    Worker::new(engine_settings, engine, Arc::new(chains)).unwrap()
}

/// The connection with this client port is to be shown segment by segment: `BARTIZAN_TRACE=port`.
fn traced(port: u16) -> bool {
    static PORTS: LazyLock<Vec<u16>> = LazyLock::new(|| {
        let text = std::env::var("BARTIZAN_TRACE").unwrap_or_default();
        text.split(',').filter_map(|port| port.parse().ok()).collect()
    });
    PORTS.contains(&port)
}

/// Plays all connections, until they are over or the time is up.
fn play(port: &mut InlinePort, connections: &mut [Connection], limit: Duration, ended: impl Fn() -> bool) {
    let by_peer: HashMap<Peer, usize> = connections.iter().enumerate().map(|(i, c)| (c.peer(), i)).collect();
    let mut batch = Batch::with_capacity(256);
    let begun = Instant::now();
    while begun.elapsed() < limit && !ended() && !connections.iter().all(Connection::is_over) {
        port.receive(&mut batch).unwrap();
        for index in batch.indices() {
            if let Some(answer) = wire::parse(batch.bytes(index).unwrap())
                && let Some(at) = by_peer.get(&(wire::client_address(answer.v6, answer.client), answer.port))
            {
                connections[*at].hear(&answer);
                if traced(connections[*at].port) {
                    let acked = connections[*at].offset_of(answer.ack);
                    println!(
                        "{}        < ack {acked} flags {:#04x} window {}",
                        answer.port, answer.flags, answer.window
                    );
                }
            }
        }
        let idle = batch.is_empty();
        batch.clear();
        let now = begun.elapsed().as_millis() as u64;
        for connection in connections.iter_mut() {
            for segment in connection.speak(now) {
                let frame = segment.frame();
                if traced(connection.port) {
                    let (at, text) =
                        (connection.offset_of(segment.seq), String::from_utf8_lossy(&segment.payload));
                    println!(
                        "{} {now} > {at} +{} flags {:#04x} urgent {} options {:02x?} {} sum+{} mac {} ack {}: {text}",
                        segment.ports.0,
                        text.len(),
                        segment.flags,
                        segment.urgent,
                        segment.options,
                        segment.ttl,
                        segment.checksum_error,
                        segment.to_server,
                        segment.ack,
                    );
                }
                port.transmit_frame(&frame).unwrap_or_else(|why| panic!("{} bytes: {why:?}", frame.len()));
            }
            port.flush().unwrap();
        }
        if idle {
            wait_any(&mut [&mut *port], None, Duration::ZERO, Duration::from_millis(1)).unwrap();
        }
    }
}

struct Outcome {
    got: HashMap<Peer, Vec<Got>>,
    /// Read before it was inspected.
    early: Vec<Peer>,
    counters: WorkerCounters,
    live: LiveCounters,
}

fn run(
    connections: &mut [Connection],
    inspected: &Arc<Inspected>,
    set: &[(&str, &str)],
    limit: Duration,
) -> Outcome {
    link(1..=20);
    // Small buffers, so that windows close.
    sysctl("net.ipv4.tcp_rmem", "4096 12288 16384");
    let worker = worker(inspected, set);
    let mut client = InlinePort::open("a0", &InlineOptions::default()).unwrap();
    let (pair, _) = InlinePair::open("a1", "b1", &InlineOptions::default(), false).unwrap();
    let listener = TcpListener::bind("[::]:80").unwrap();
    let (control, stop) = (Control::new().unwrap(), AtomicBool::new(false));
    let mut early = Vec::new();
    let options = LiveOptions { spin: Duration::ZERO, ..LiveOptions::default() };
    let recorder = &mut common::Nothing;
    let play_and_read = |has_ended: &dyn Fn() -> bool| {
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                receiver::serve(&listener, &stop, |peer, bytes| {
                    let inspected = inspected.0.lock().unwrap();
                    if !inspected.get(peer).is_some_and(|i| i.starts_with(bytes)) {
                        early.push(*peer);
                    }
                })
            });
            let end = AtEnd(|| {
                stop.store(true, Ordering::Release);
                control.stop();
            });
            play(&mut client, connections, limit, has_ended);
            std::thread::sleep(Duration::from_millis(200));
            drop(end);
            reading.join().unwrap()
        })
    };
    let (got, driver) = live::inline(worker, pair, recorder, &options, &control, play_and_read);
    Outcome { got, early, counters: *driver.station.worker().counters(), live: driver.counters }
}

/// Where two byte strings part, with what stands there.
fn parting(read: &[u8], inspected: &[u8]) -> String {
    let at = read.iter().zip(inspected).take_while(|(a, b)| a == b).count();
    let show = |bytes: &[u8]| {
        String::from_utf8_lossy(&bytes[at.saturating_sub(5).min(bytes.len())..(at + 15).min(bytes.len())])
            .into_owned()
    };
    format!(
        "read {} bytes, inspected {}; they part at {at}: read {:?}, inspected {:?}",
        read.len(),
        inspected.len(),
        show(read),
        show(inspected)
    )
}

fn connections(base: u64, count: u64) -> Vec<Connection> {
    let base = std::env::var("BARTIZAN_BASE").map_or(base, |base| base.parse().unwrap());
    let one = std::env::var("BARTIZAN_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    (base..base + count)
        .filter(|seed| one.is_none_or(|one| one == *seed))
        .map(|seed| {
            let at = seed - base;
            Connection::new(seed, at % 2 == 1, 1 + (at % 20) as u8, (10_000 + at as u16, 80), None)
        })
        .collect()
}

/// Compares read bytes with inspected ones; at least `least` percent of the connections must end in order.
fn compare(connections: &[Connection], inspected: &Inspected, outcome: &Outcome, least: usize) {
    let inspected = inspected.0.lock().unwrap();
    let mut failed = Vec::new();
    let (mut complete, mut again, mut bytes) = (0, 0, 0);
    for connection in connections {
        let peer = connection.peer();
        let none = [Got { bytes: Vec::new(), end: End::Open }];
        let seen: &[u8] = inspected.get(&peer).map_or(&[], Vec::as_slice);
        let all = outcome.got.get(&peer).map_or(&none[..], Vec::as_slice);
        let got = &all[0];
        // Where the receiver has forgotten the first one an old segment may open another, of which nothing
        // else is read.
        let others = all[1..].iter().all(|other| seen.starts_with(&other.bytes));
        again += all.len() - 1;
        bytes += got.bytes.len();
        // Where the receiver read to the end, it is all that was inspected; where the connection broke off,
        // the rest of it was inspected and not read.
        let whole = connection.complete && !connection.habits.early_fin;
        complete += usize::from(whole);
        let right = if whole { got.bytes == seen } else { seen.starts_with(&got.bytes) };
        let length = !whole || got.bytes.len() == connection.data.len();
        if !right || !length || !others || outcome.early.contains(&peer) {
            failed.push(format!(
                "seed {}, port {}: {} bytes, complete {}, {:?}, {:?}\n    {}",
                connection.seed,
                connection.port,
                connection.data.len(),
                connection.complete,
                got.end,
                connection.habits,
                all.iter().map(|got| parting(&got.bytes, seen)).collect::<Vec<_>>().join("\n    ")
            ));
        }
    }
    let c = &outcome.counters;
    println!(
        "{} connections, {complete} to the end, {again} opened again, {bytes} bytes read; {} frames, {} forwarded, {} refused, {:?}",
        connections.len(),
        c.packets,
        c.forwarded,
        c.refused.iter().sum::<u64>(),
        outcome.live.normaliser,
    );
    assert!(failed.is_empty(), "{} seeds failed:\n{}", failed.len(), failed.join("\n"));
    assert!(complete * 100 >= connections.len() * least, "only {complete} connections came to their end");
}

#[test]
fn an_application_reads_what_was_inspected() {
    in_namespace("an_application_reads_what_was_inspected", || {
        let inspected = Arc::default();
        let mut connections = connections(1000, 160);
        let outcome = run(&mut connections, &inspected, &[], Duration::from_secs(20));
        compare(&connections, &inspected, &outcome, 60);
    });
}

/// A server that answers with SYN cookies forgets a connection that is over, and takes an old segment for the
/// beginning of another.
#[test]
fn an_application_behind_syn_cookies_reads_what_was_inspected() {
    in_namespace("an_application_behind_syn_cookies_reads_what_was_inspected", || {
        // Cookies for each connection, not only when the queue is full.
        sysctl("net.ipv4.tcp_syncookies", "2");
        let inspected = Arc::default();
        let mut connections = connections(1000, 160);
        let outcome = run(&mut connections, &inspected, &[], Duration::from_secs(20));
        compare(&connections, &inspected, &outcome, 60);
    });
}
