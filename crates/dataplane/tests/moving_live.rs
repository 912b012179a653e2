// SPDX-License-Identifier: Apache-2.0
//! Two workers between real interfaces: transfers by curl are held open while their flows are moved back and
//! forth all the time. The bodies arrive whole, every byte is inspected once and in order, sums agree. Needs
//! root, network namespaces and curl; says so otherwise.
//!
//! The client has a namespace of its own, which ends with a process of the test.

use crate::common;
use crate::inline_net;

use bartizan_base::{Decision, Direction, FunctionId, Generation};
use bartizan_dataplane::driver::{Balance, Control, Driver, LiveOptions, PARCELS, run_drivers, stations};
use bartizan_dataplane::source::InlineSource;
use bartizan_flow::{FlowKey, FlowScope, FlowSide};
use bartizan_function::{Function, FunctionModel, FunctionSpec, PacketContext};
use bartizan_ports::{InlineOptions, InlinePair};
use bartizan_stages::chain::Chains;
use bartizan_stages::record::{Recorder, RecorderEvent};
use inline_net::{AtEnd, in_namespace, run, sysctl};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(40);
/// Bytes of a body, and in how many pieces it is sent, one each few milliseconds.
const BODY: usize = 3 << 20;
const PIECES: usize = 300;
/// The clients' ports.
const CLIENTS: [(bool, u16); 2] = [(false, 40_000), (true, 40_001)];

fn body(port: u16) -> Vec<u8> {
    (0..BODY).map(|at| (at.wrapping_mul(31).wrapping_add(at >> 8).wrapping_add(port.into())) as u8).collect()
}

fn head() -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\nConnection: close\r\n\r\n")
}

/// The inspected bytes of the servers' data, by the client's port.
#[derive(Default)]
struct Inspected(Mutex<HashMap<u16, Vec<u8>>>);

/// Takes the place of ids and records the stream to the client.
struct Witness(Arc<Inspected>);

static WITNESS: FunctionSpec = common::spec("witness", FunctionModel::Payload);

impl Function for Witness {
    fn spec(&self) -> &'static FunctionSpec {
        &WITNESS
    }

    fn id(&self) -> FunctionId {
        FunctionId(0)
    }

    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        let news = context.facts.stream.as_ref().filter(|news| !news.about_packet);
        if let (Some(news), Some(packet), Direction::ToClient) =
            (news, context.facts.packet, context.facts.direction)
        {
            let mut inspected = self.0.0.lock().unwrap();
            let bytes = inspected.entry(packet.decoded().ports().unwrap().1).or_default();
            assert_eq!(news.offset as usize + news.seen, bytes.len(), "once, and in order");
            bytes.extend_from_slice(&news.bytes[news.seen..]);
        }
        Decision::CONTINUE
    }
}

/// Writes down TCP flows: the client's port and how many packets it had.
#[derive(Clone, Default)]
struct Flows(Arc<Mutex<Vec<(u16, u64)>>>);

impl Recorder for Flows {
    fn record(&mut self, event: RecorderEvent<'_>) {
        if let RecorderEvent::Flow { flow, .. } = event
            && flow.key().protocol() == 6
        {
            let packets = flow.packets.to_server + flow.packets.to_client;
            self.0.lock().unwrap().push((flow.key().source_port(), packets));
        }
    }
}

/// Answers each connection with its body, slowly.
fn serve(listener: &TcpListener) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        std::thread::spawn(move || {
            let mut request = Vec::new();
            let mut buffer = [0; 1024];
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read(&mut buffer) {
                    Ok(got @ 1..) => request.extend_from_slice(&buffer[..got]),
                    _ => return,
                }
            }
            stream.write_all(head().as_bytes()).unwrap();
            for piece in body(stream.peer_addr().unwrap().port()).chunks(BODY / PIECES) {
                stream.write_all(piece).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    }
}

fn address(v6: bool, host: u8) -> IpAddr {
    format!("{}{host}", if v6 { "fd66::" } else { "10.66.0." }).parse().unwrap()
}

/// The client's namespace, and the link: `a0` is the client's, the program stands between `a1` and `b1`, the
/// server's addresses are on `b0`. Gives how commands run in the client's namespace begin.
fn link(client: u32) -> String {
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    let begun = Instant::now();
    while std::fs::read_link(format!("/proc/{client}/ns/net")).is_ok_and(|ns| ns == own) {
        assert!(begun.elapsed() < LIMIT, "the client has no namespace");
        std::thread::yield_now();
    }
    let inside = format!("nsenter -t {client} -n");
    sysctl("net.ipv6.conf.default.accept_dad", "0");
    sysctl("net.ipv6.conf.default.router_solicitations", "0");
    for side in ["a", "b"] {
        run(&format!("ip link add {side}0 type veth peer name {side}1"));
        sysctl(&format!("net.ipv6.conf.{side}1.disable_ipv6"), "1");
    }
    run(&format!("ip link set a0 netns {client}"));
    for (prefix, device, host) in [(inside.as_str(), "a0", 1), ("env", "b0", 2)] {
        run(&format!("{prefix} ip address add 10.66.0.{host}/24 dev {device}"));
        run(&format!("{prefix} ip address add fd66::{host}/64 dev {device} nodad"));
        run(&format!("{prefix} ethtool -K {device} rx off tx off sg off tso off gso off gro off"));
        run(&format!("{prefix} ip link set dev {device} up"));
    }
    for device in ["a1", "b1"] {
        run(&format!("ethtool -K {device} rx off tx off sg off tso off gso off gro off"));
        run(&format!("ip link set dev {device} up"));
    }
    inside
}

#[test]
fn transfers_go_on_while_their_flows_move() {
    in_namespace("transfers_go_on_while_their_flows_move", || {
        let needed = ["curl", "nsenter"].into_iter().find(|program| {
            !Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success())
        });
        if let Some(program) = needed {
            eprintln!("not run: needs {program}");
            return;
        }
        transfers();
    });
}

fn transfers() {
    let client = Command::new("unshare").args(["-n", "sleep", "50"]).spawn().unwrap();
    let client = Arc::new(Mutex::new(client));
    let _end = AtEnd(|| {
        let mut client = client.lock().unwrap();
        let _ = client.kill();
        let _ = client.wait();
    });
    let inside = link(client.lock().unwrap().id());

    let inspected = Arc::new(Inspected::default());
    let chains = Arc::new(Chains::one(Generation(1), vec![Arc::new(Witness(Arc::clone(&inspected)))]));
    let bench = common::bench(true, "yes");
    let live = bench.engine_settings.clone().for_real_receivers(true);
    let mut settings = live.between_two_sides().for_live_links();
    // All of a body is inspected.
    settings.stream.reassembly.depth = 0;
    let made = stations(&settings, &bench.engine, &chains, 2, PARCELS).unwrap();
    let spread = settings.spread(2);
    let (pairs, _) = InlinePair::open_group("a1", "b1", &InlineOptions::default(), &spread, false).unwrap();
    let flows = Flows::default();
    let mut drivers: Vec<Driver<Box<Flows>>> = made
        .into_iter()
        .zip(pairs)
        .map(|(station, pair)| {
            Driver::new(station, Box::new(InlineSource::new(pair)), Box::new(flows.clone()))
        })
        .collect();
    let owners = drivers[0].station.owners();
    let keys = CLIENTS.map(|(v6, port)| {
        let scope = FlowScope { side: FlowSide::First, ..FlowScope::default() };
        FlowKey::ported(&scope, 6, (address(v6, 1), port), (address(v6, 2), 80))
    });

    let listener = TcpListener::bind("[::]:80").unwrap();
    std::thread::spawn(move || serve(&listener));
    let control = Control::for_workers(2).unwrap();
    let options = LiveOptions { spin: Duration::ZERO, ..LiveOptions::default() };
    let mut asked = 0u64;
    let mut got = Vec::new();
    run_drivers(&mut drivers, &options, &control, |is_over| {
        let _stop = AtEnd(|| control.stop());
        let mut words = inside.split(' ');
        let program = words.next().unwrap();
        let words: Vec<&str> = words.collect();
        let mut curls: Vec<_> = CLIENTS
            .iter()
            .map(|(v6, port)| {
                let host = if *v6 { "[fd66::2]" } else { "10.66.0.2" };
                let mut curl = Command::new(program);
                curl.args(&words).args(["curl", "-sS", "--max-time", "30", "--local-port"]);
                curl.arg(port.to_string()).arg(format!("http://{host}/")).stdout(Stdio::piped());
                let mut curl = curl.spawn().unwrap();
                let mut out = curl.stdout.take().unwrap();
                let reading = std::thread::spawn(move || {
                    let mut body = Vec::new();
                    out.read_to_end(&mut body).unwrap();
                    body
                });
                (curl, reading)
            })
            .collect();
        let begun = Instant::now();
        while curls.iter_mut().any(|(curl, _)| curl.try_wait().unwrap().is_none()) {
            assert!(begun.elapsed() < LIMIT && !is_over(), "the transfers do not end");
            for key in &keys {
                // To and fro: from the one that has it to the other one, whichever that is.
                for to in [0, 1] {
                    let home = owners.home(key).unwrap();
                    asked += u64::from(control.move_flow(home, key, bartizan_base::WorkerId(to)));
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        for (mut curl, reading) in curls {
            assert!(curl.wait().unwrap().success());
            got.push(reading.join().unwrap());
        }
    })
    .unwrap();

    for ((_, port), got) in CLIENTS.iter().zip(&got) {
        assert!(*got == body(*port), "port {port}: {} of {BODY} bytes, or others", got.len());
        let expected = [head().into_bytes(), body(*port)].concat();
        let inspected = &inspected.0.lock().unwrap()[port];
        assert!(
            *inspected == expected,
            "port {port}: {} of {} bytes inspected, or others",
            inspected.len(),
            expected.len()
        );
    }
    let counters = drivers.iter().map(|driver| driver.station.counters()).reduce(|a, b| a.plus(b)).unwrap();
    eprintln!("{counters:?}, {asked} moves asked for");
    assert!(counters.moved > 100, "{counters:?}");
    assert_eq!((counters.handed_over, counters.refused), (counters.taken, 0));
    let mut balance = Balance::default();
    for driver in &mut drivers {
        balance.add(driver.station.worker().counters(), &driver.counters);
        driver.each_port(|_, stats, waiting| balance.add_port(stats, waiting));
    }
    assert!(balance.is_exact(), "{balance:?}");
    // One record each, with all packets of the connection: more than segments of its body.
    let mut flows = flows.0.lock().unwrap().clone();
    flows.sort_unstable();
    assert_eq!(flows.iter().map(|(port, _)| *port).collect::<Vec<_>>(), CLIENTS.map(|(_, port)| port));
    assert!(flows.iter().all(|(_, packets)| *packets > (BODY / 1448) as u64), "{flows:?}");
    for driver in &drivers {
        let worker = driver.station.worker();
        assert_eq!((worker.flows().len(), worker.app_memory().used()), (0, 0));
    }
}
