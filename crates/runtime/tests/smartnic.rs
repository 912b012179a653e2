// SPDX-License-Identifier: Apache-2.0
//! The SmartNIC's model as a level: over a capture and on a link, results are those without it.

use bartizan_ports::{Batch, InlineOptions, InlinePort, Port as _, wait_any};
use bartizan_runtime::generation::BuildOptions;
use bartizan_runtime::inspect::{self, InspectOptions, Inspection};
use bartizan_runtime::plan::RunOptions;
use bartizan_runtime::requests::Requests;
use bartizan_runtime::run;
use bartizan_testkit::packet::{self, Datagram, Ip, Layer, Packet};
use bartizan_testkit::{capture, layers, namespace};
use serde_json::Value;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The packet filter decides flows with their first packets.
const POLICY: &str =
    "default: {action: allow, chain: [pfw], pfw: {default: allow, rules: [{drop: udp, to-ports: 53}]}}\n";

/// A folder that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("bartizan-smartnic-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Scratch(folder)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn datagram(from: (IpAddr, u16), to: (IpAddr, u16)) -> Vec<u8> {
    packet::udp(from, to, b"datagram").frame()
}

/// Conversations in turn: plain, in a VLAN, in VXLAN, of both IP versions; of some the packets are dropped.
fn conversations() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for turn in 0..30u16 {
        for number in 0..24u8 {
            let v6 = number % 2 == 1;
            let port = if number % 6 == 0 { 53 } else { 4000 };
            let client = (packet::address(v6, number + 1), 1000 + u16::from(number));
            let server = (packet::address(v6, 100), port);
            // A packet of the server would open the flow that is refused.
            let answers = turn % 3 == 2 && port != 53;
            let (from, to) = if answers { (server, client) } else { (client, server) };
            let mut frame = datagram(from, to);
            match number % 4 {
                2 => frame = layers::tagged(9, frame),
                3 => {
                    let ip = Ip::new(packet::address(false, 201), packet::address(false, 202), 17);
                    let load = layers::vxlan(7, &frame);
                    let layer = Layer::Udp(Datagram::new((40_000, 4789), &load));
                    frame = Packet { ip, layer, piece: None }.frame();
                }
                _ => {}
            }
            frames.push(frame);
        }
    }
    frames
}

/// The flow records of a run, by their ends and tunnels, without what tells where their packets were handled.
fn records(out: &Path) -> Vec<(String, Value)> {
    let text = std::fs::read_to_string(out.join("eve.json")).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let record = |mut event: Value| {
        let ends = ["src_ip", "src_port", "dest_ip", "dest_port", "vlan", "tunnel"]
            .map(|key| event[key].to_string());
        let places = [("", vec!["flow_id", "timestamp"]), ("flow", vec!["bypassed", "bypass"])];
        for (of, keys) in places.into_iter().chain([("bartizan", vec!["level", "levels", "stays"])]) {
            let object = if of.is_empty() { Some(&mut event) } else { event.get_mut(of) };
            if let Some(object) = object.and_then(Value::as_object_mut) {
                keys.iter().for_each(|key| drop(object.remove(*key)));
            }
        }
        // Flags of packets that do not come up are not recorded.
        if let Some(tcp) = event.get_mut("tcp").and_then(Value::as_object_mut) {
            let flags = ["psh", "urg", "ecn", "cwr", "tcp_flags", "tcp_flags_ts", "tcp_flags_tc"];
            flags.iter().for_each(|key| drop(tcp.remove(*key)));
        }
        (format!("{} {}", ends.join(" "), event["flow"]["start"]), event)
    };
    let mut records: Vec<_> = events.filter(|event| event["event_type"] == "flow").map(record).collect();
    records.sort_by(|a, b| a.0.cmp(&b.0));
    records
}

/// Inspects a capture, without a level or with one; the result, and the flow records.
fn inspect(
    scratch: &Scratch,
    capture: &Path,
    offload: Option<&str>,
    requests: &'static Requests,
) -> (Inspection, Vec<(String, Value)>) {
    let policy = scratch.file("policy.yaml", POLICY);
    let out = scratch.0.join(offload.unwrap_or("host"));
    let options = InspectOptions {
        build: BuildOptions { policy: Some(policy), cache: Some("none".into()), ..BuildOptions::default() },
        prevention: true,
        out: Some(out.clone()),
        threads: 1,
        captures: vec![capture.to_owned()],
        offload: offload.map(str::to_owned),
        ..InspectOptions::default()
    };
    let done = inspect::run(&options, requests).unwrap();
    let records = records(&out);
    (done, records)
}

#[test]
fn over_a_capture_verdicts_and_records_are_those_without_it() {
    static REQUESTS: Requests = Requests::new();
    let scratch = Scratch::new("capture");
    let frames = conversations();
    let file = scratch.file("conversations.pcap", capture::paced(1_000, &frames));
    let (without, expected) = inspect(&scratch, &file, None, &REQUESTS);
    let (with, found) = inspect(&scratch, &file, Some("rtl"), &REQUESTS);
    let level = with.summary.level.expect("what the level did");
    assert_eq!(without.summary.packets, frames.len() as u64);
    assert_eq!(level.frames, frames.len() as u64);
    assert_eq!(level.up, with.summary.packets);
    assert_eq!(level.up + level.forwarded + level.dropped, level.frames);
    assert_eq!(found, expected, "each packet is in one record, once");
    // The first packets of a flow come up; those of tunnels until both flows have entries.
    assert!(level.forwarded > level.frames / 2, "{level:?}");
    assert!(level.dropped > level.frames / 10, "{level:?}");
    let refused = |done: &inspect::Refused| done.packets;
    let [with, without] = [&with.summary.refused, &without.summary.refused].map(|r| r.as_ref().map(refused));
    assert_eq!(with.unwrap() + level.dropped, without.unwrap());
    assert!(level.counters["cycles"] > 0 && level.counters["UP_NO_ENTRY"] > 0, "{level:?}");
}

/// The first packets of a mix of captures of real networks; `None`: it is not there.
fn real_traffic(most: usize) -> Option<Vec<u8>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let beside = here.ancestors().map(|folder| folder.join("shared/data/captures/mix.pcap.gz"));
    let path = std::env::var_os("BARTIZAN_MIX")
        .map(PathBuf::from)
        .or_else(|| beside.into_iter().find(|path| path.is_file()))?;
    let mut file = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).ok()?).read_to_end(&mut file).unwrap();
    Some(capture::pcap(capture::ETHERNET, capture::read(&file).into_iter().take(most)))
}

#[test]
fn over_real_traffic_verdicts_and_records_are_those_without_it() {
    static REQUESTS: Requests = Requests::new();
    let Some(content) = real_traffic(5_000) else {
        eprintln!("no real traffic: set BARTIZAN_MIX to a compressed capture");
        return;
    };
    let scratch = Scratch::new("mix");
    let file = scratch.file("mix.pcap", content);
    let (without, expected) = inspect(&scratch, &file, None, &REQUESTS);
    let (with, found) = inspect(&scratch, &file, Some("rtl"), &REQUESTS);
    let level = with.summary.level.as_ref().expect("what the level did");
    println!("{level:?}");
    assert_eq!((level.frames, level.up), (without.summary.packets, with.summary.packets));
    let differ = found.iter().zip(&expected).filter(|(found, expected)| found != expected);
    let differ: Vec<_> = differ.take(3).collect();
    assert!(differ.is_empty() && found.len() == expected.len(), "{differ:#?}");
    let refused = |done: &Inspection| done.summary.refused.as_ref().map_or(0, |refused| refused.packets);
    assert_eq!(refused(&with) + level.dropped, refused(&without));
    assert!(level.forwarded > level.frames / 4, "{level:?}");
}

#[test]
fn what_a_capture_cannot_have_is_refused() {
    static REQUESTS: Requests = Requests::new();
    let scratch = Scratch::new("refused");
    let file = scratch.file("one.pcap", capture::paced(1, conversations().iter().take(1)));
    let refuse = |offload: &str, threads| {
        let options = InspectOptions {
            threads,
            build: BuildOptions { cache: Some("none".into()), ..BuildOptions::default() },
            captures: vec![file.clone()],
            out: Some(scratch.0.join("out")),
            offload: Some(offload.to_owned()),
            ..InspectOptions::default()
        };
        inspect::run(&options, &REQUESTS).err().expect("a refusal").to_string()
    };
    assert!(refuse("rtl", 2).contains("remove --threads"));
    assert!(refuse("xdp", 1).contains("works on interfaces"));
    assert!(refuse("rtk", 1).contains("there is `xdp`, `rtl`"));
}

const HOST: &str = "\
links: [{name: wan, inline: {a: a1, b: b1, offload: {level: rtl, entries: 64}}}]
workers: 1
save-power: true
control: {socket: none}
cache: none
";

/// Longest wait for flows to reach the level, or to leave it.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn on_a_link_flows_sink_and_a_changed_policy_raises_them() {
    static REQUESTS: Requests = Requests::new();
    if !namespace::inside("on_a_link_flows_sink_and_a_changed_policy_raises_them") {
        return;
    }
    for (outer, inner) in [("a0", "a1"), ("b0", "b1")] {
        namespace::run("ip", &format!("link add {outer} type veth peer name {inner}"));
        for name in [outer, inner] {
            namespace::run("ip", &format!("link set {name} up"));
        }
    }
    let scratch = Scratch::new("link");
    let (host, policy) = (scratch.file("host.yaml", HOST), scratch.file("policy.yaml", POLICY));
    let out = scratch.0.join("out");
    let options = RunOptions {
        config: Some(host),
        options: BuildOptions { policy: Some(policy), ..BuildOptions::default() },
        out: Some(out.clone()),
        ..RunOptions::default()
    };
    let running = std::thread::spawn(move || run::run(&options, &REQUESTS));
    let inline = InlineOptions { frames: 256, ..InlineOptions::default() };
    let mut client = InlinePort::open("a0", &inline).unwrap();
    let mut server = InlinePort::open("b0", &inline).unwrap();
    let mut batch = Batch::with_capacity(256);
    let mut round = |expected: bool| -> u64 {
        let from = (IpAddr::from(Ipv4Addr::new(10, 0, 0, 1)), 4001);
        for _ in 0..5 {
            let _ = client.transmit_frame(&datagram(from, (Ipv4Addr::new(10, 0, 0, 2).into(), 4000)));
        }
        let _ = client.flush();
        let wait = Duration::from_millis(if expected { 200 } else { 50 });
        wait_any(&mut [&mut server], None, Duration::ZERO, wait).unwrap();
        server.receive(&mut batch).unwrap();
        let own = |at: &usize| batch.bytes(*at).is_some_and(|bytes| bytes.ends_with(b"datagram"));
        batch.indices().filter(own).count() as u64
    };
    let (begun, mut came) = (Instant::now(), 0);
    while came < 400 {
        assert!(!running.is_finished() && begun.elapsed() < PATIENCE, "{came} frames");
        came += round(true);
    }
    scratch.file("policy.yaml", POLICY.replace("{default: allow", "{default: drop"));
    REQUESTS.reload();
    let (begun, mut silent) = (Instant::now(), 0);
    while silent < 10 {
        assert!(!running.is_finished() && begun.elapsed() < PATIENCE, "frames still pass");
        silent = if round(false) == 0 { silent + 1 } else { 0 };
    }
    REQUESTS.stop();
    let outcome = running.join().unwrap().unwrap();
    assert!(outcome.failure.is_none() && outcome.is_complete, "{}", outcome.summary);
    let handled = |what: &str| {
        let line = outcome.summary.lines().find(|line| line.ends_with(what));
        line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    assert!(handled(" forwarded by the level in this process") > 10, "{}", outcome.summary);
    assert!(!outcome.summary.contains("do not agree"), "{}", outcome.summary);
    let records = std::fs::read_to_string(out.join("eve.json")).unwrap();
    assert!(records.contains("\"rtl\""), "records tell what the level has handled: {records}");
}
