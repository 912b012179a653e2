// SPDX-License-Identifier: Apache-2.0
//! The program under overload: which flows are evicted first, by policy and by tenant, with one worker and
//! with two; and that it does not end for want of address space within the sum of its bounds
//! (docs/limits.md).

use crate::sample;

use bartizan_testkit::capture::{BEGIN, ETHERNET, paced, pcap};
use bartizan_testkit::hosts::{ethernet, ip, tcp};
use sample::{ACK, FIN, Folder, PSH, RST, SYN};
use std::collections::BTreeMap;
use std::process::Command;

const SEGMENT: usize = 1400;
const CLIENT: u8 = 1;
/// The numbers that client and server begin with.
const FIRST: [u32; 2] = [100, 500];
const RULES: &str = "alert http any any -> any any (msg:\"good\"; http.uri; content:\"/good\"; sid:1;)\n\
    alert http any any -> any any (msg:\"body\"; http.request_body; content:\"nothing of it\"; sid:2;)\n";

/// Data, and whether it is for the server.
type Said = Vec<(bool, Vec<u8>)>;
/// The data of a connection of a shape.
type Shape = fn() -> Said;

/// A connection of port `from` to a server's port 80, and its data.
struct Talk {
    v6: bool,
    server: u8,
    vlan: Option<u16>,
    from: u16,
    said: Vec<(bool, Vec<u8>)>,
    /// Whether both sides end it.
    ends: bool,
    /// The numbers that client and server begin with.
    at: [u32; 2],
}

impl Talk {
    fn frame(&self, to_server: bool, sent: [u32; 2], flags: u8, payload: &[u8]) -> Vec<u8> {
        let [client, server] = sent;
        let packet = if to_server {
            let ack = if flags & ACK > 0 { server } else { 0 };
            let segment = tcp((self.from, 80), client, ack, flags, payload);
            ip(self.v6, (CLIENT, self.server), 6, &segment)
        } else {
            ip(self.v6, (self.server, CLIENT), 6, &tcp((80, self.from), server, client, flags, payload))
        };
        let mut frame = ethernet(self.v6, &packet);
        if let Some(vlan) = self.vlan {
            let [high, low] = vlan.to_be_bytes();
            frame.splice(12..12, [0x81, 0, high, low]);
        }
        frame
    }

    /// Its frames, the last one first.
    fn frames(&self) -> Vec<Vec<u8>> {
        let mut sent = self.at;
        let mut frames = vec![self.frame(true, sent, SYN, b"")];
        sent[0] += 1;
        frames.push(self.frame(false, sent, SYN | ACK, b""));
        sent[1] += 1;
        frames.push(self.frame(true, sent, ACK, b""));
        for (to_server, data) in &self.said {
            for piece in data.chunks(SEGMENT) {
                frames.push(self.frame(*to_server, sent, ACK | PSH, piece));
                sent[usize::from(!to_server)] += piece.len() as u32;
                frames.push(self.frame(!to_server, sent, ACK, b""));
            }
        }
        if self.ends {
            frames.push(self.frame(true, sent, FIN | ACK, b""));
            sent[0] += 1;
            frames.push(self.frame(false, sent, FIN | ACK, b""));
            sent[1] += 1;
            frames.push(self.frame(true, sent, ACK, b""));
        }
        frames.reverse();
        frames
    }
}

/// A POST whose body does not end.
fn post(bytes: usize) -> Vec<(bool, Vec<u8>)> {
    let mut data = b"POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n".to_vec();
    data.resize(bytes, b'b');
    vec![(true, data)]
}

fn good() -> Vec<(bool, Vec<u8>)> {
    vec![
        (true, b"GET /good HTTP/1.1\r\nHo".to_vec()),
        (true, b"st: h\r\n\r\n".to_vec()),
        (false, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()),
    ]
}

/// A capture of connections by turns, a millisecond between packets.
fn capture(talks: &[Talk]) -> Vec<u8> {
    let mut left: Vec<_> = talks.iter().map(Talk::frames).collect();
    let mut frames = Vec::new();
    while left.iter().any(|frames| !frames.is_empty()) {
        frames.extend(left.iter_mut().filter_map(Vec::pop));
    }
    paced(1_000, frames)
}

/// The result of a run: evicted flows by the key that `of` returns, good requests that matched, and the
/// event of its statistics.
struct Told {
    gave_way: BTreeMap<String, usize>,
    good: usize,
    stats: serde_json::Value,
}

fn inspect(folder: &Folder, out: &str, more: &[&str], of: fn(&serde_json::Value) -> String) -> Told {
    folder.write("r.rules", RULES);
    let arguments =
        ["inspect", "--ips", "--cache", "none", "--out", out, "--policy", "p.yaml", "--rules", "r.rules"];
    let settings = ["--set", "pcap-file.checksum-checks=no"];
    let ran = folder.run(&[&arguments[..], &settings[..], more, &["c.pcap"]].concat());
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let mut gave_way = BTreeMap::new();
    for flow in folder.events(out, "flow") {
        if flow["flow"]["exception_policy"][0]["target"] == "app_layer_memcap" {
            *gave_way.entry(of(&flow)).or_default() += 1;
        }
    }
    let good = folder.events(out, "alert").iter().filter(|a| a["alert"]["signature_id"] == 1).count();
    let stats = folder.events(out, "stats").pop().expect("statistics");
    Told { gave_way, good, stats }
}

#[test]
fn flows_of_lower_priority_give_way_first_with_one_worker_and_with_two() {
    let folder = Folder::new("overload-priority");
    folder.write(
        "p.yaml",
        "policies:\n  - {name: shop, to: [10.0.0.3, \"2001:db8::3\"], chain: [ids], overload: {priority: 200}}\n  \
         - {name: rest, to: [10.0.0.2, \"2001:db8::2\"], chain: [ids], overload: {priority: 10}}\ndefault: {action: drop}\n",
    );
    let mut talks = Vec::new();
    for n in 0..80u16 {
        // Those of the shop begin before the others, and fit into the part of one of two workers.
        let (server, bytes) = if n % 2 == 0 { (3, 15_000) } else { (2, 45_000) };
        talks.push(Talk {
            v6: n % 4 < 2,
            server,
            vlan: None,
            ends: false,
            from: 10_000 + n,
            said: post(bytes),
            at: FIRST,
        });
        talks.push(Talk {
            v6: n % 4 < 2,
            server: 3,
            vlan: None,
            ends: false,
            from: 30_000 + n,
            said: good(),
            at: FIRST,
        });
    }
    folder.write("c.pcap", capture(&talks));
    for threads in ["1", "2"] {
        let bound = 2_100_000u64;
        let bound_set = format!("app-layer.memcap={bound}");
        let more = ["--set", bound_set.as_str(), "--threads", threads];
        let told =
            inspect(&folder, threads, &more, |flow| flow["dest_ip"].as_str().unwrap_or_default().to_owned());
        let of = |server: &str| told.gave_way.get(server).copied().unwrap_or(0);
        let [rest4, rest6] = [of("10.0.0.2"), of("2001:0db8:0000:0000:0000:0000:0000:0002")];
        assert!(rest4 > 3 && rest6 > 3, "{threads}: {:?}", told.gave_way);
        assert_eq!(told.gave_way.values().sum::<usize>(), rest4 + rest6, "{threads}: {:?}", told.gave_way);
        assert_eq!(told.good, 80, "{threads}");
        let memory = &told.stats["bartizan"]["stats"]["app_layer_memory"];
        let peak = memory["peak"].as_u64().unwrap();
        assert!(peak > bound / 2 && peak < bound + (64 << 10), "{threads}: {memory}");
        assert_eq!(memory["closed"], (rest4 + rest6) as u64, "{threads}: {memory}");
    }
}

#[test]
fn tenants_that_hold_less_than_their_share_keep_it() {
    let folder = Folder::new("overload-tenants");
    folder.write(
        "p.yaml",
        "tenants:\n  - {name: red, select: {vlan: 7}}\n  - {name: blue, select: {vlan: 8}}\n\
         policies:\n  - {name: all, tenant: any, chain: [ids]}\ndefault: {action: drop}\n",
    );
    let mut talks = Vec::new();
    for n in 0..60u16 {
        let vlan = [Some(7), Some(7), Some(7), Some(7), Some(8), None][usize::from(n % 6)];
        let said = post(if vlan == Some(7) { 40_000 } else { 10_000 });
        talks.push(Talk { v6: n % 12 < 6, server: 2, vlan, ends: false, from: 10_000 + n, said, at: FIRST });
    }
    folder.write("c.pcap", capture(&talks));
    for threads in ["1", "2"] {
        let more = ["--set", "app-layer.memcap=1500000", "--threads", threads];
        let told = inspect(&folder, threads, &more, |flow| flow["vlan"][0].to_string());
        let red = told.gave_way.get("7").copied().unwrap_or(0);
        assert!(red > 5 && told.gave_way.len() == 1, "{threads}: {:?}", told.gave_way);
    }
}

/// Half of a TLS record: the stream holds it until the rest comes.
fn half_a_record() -> Said {
    let mut data = b"\x16\x03\x01\x3f\xff\x01\x03\xff\xff\x03\x03".to_vec();
    data.resize(14_000, 7);
    vec![(true, data)]
}

/// Half a record in which a receiver of lines finds a line's end.
fn half_a_record_with_a_line() -> Said {
    let mut said = half_a_record();
    said[0].1[60] = b'\n';
    said
}

#[test]
fn flows_give_way_before_memory_of_streams_refuses_others() {
    let folder = Folder::new("overload-streams");
    folder.write("p.yaml", "policies:\n  - {name: all, chain: [ids]}\ndefault: {action: drop}\n");
    for (flood, half) in [("half", half_a_record as Shape), ("line", half_a_record_with_a_line)] {
        let talk = |from, said| Talk {
            v6: from % 2 == 0,
            server: 2,
            vlan: None,
            ends: false,
            from,
            said,
            at: FIRST,
        };
        let mut talks: Vec<_> = (0..200u16).map(|n| talk(10_000 + n, half())).collect();
        // They come when all the others wait.
        talks.extend((0..50u16).map(|n| {
            let mut said = vec![(true, b"GET /before HTTP/1.1\r\nHost: h\r\n\r\n".to_vec()); 12];
            said.extend(good());
            talk(30_000 + n, said)
        }));
        folder.write("c.pcap", capture(&talks));
        let more = ["--set", "stream.reassembly.memcap=2mb"];
        let told = inspect(&folder, flood, &more, |flow| flow["app_proto"].to_string());
        let (tcp, own) = (&told.stats["stats"]["tcp"], &told.stats["bartizan"]["stats"]["tcp"]);
        assert!(own["reassembly_memory_closed"].as_u64() > Some(50), "{flood}: {own}");
        let refused = &tcp["segment_memcap_drop"];
        assert_eq!((told.good, refused), (50, &serde_json::json!(0)), "{flood}: {tcp}");
    }
}

/// A connection opened at a time (in microseconds), with its frames and their times.
fn timed(
    from: u16,
    at: u64,
    said: impl IntoIterator<Item = (u64, bool, u32, Vec<u8>)>,
) -> Vec<(u64, Vec<u8>)> {
    let v6 = from.is_multiple_of(2);
    let talk = Talk { v6, server: 2, vlan: None, from, said: Vec::new(), ends: false, at: FIRST };
    let mut frames: Vec<_> = (0..).map(|n| at + n * 200).zip(talk.frames().into_iter().rev()).collect();
    let mut sent = FIRST.map(|first| first + 1);
    for (wait, to_server, hole, data) in said {
        let at = frames.last().map_or(at, |(at, _)| *at) + wait;
        let own = usize::from(!to_server);
        sent[own] += hole;
        for (piece, at) in data.chunks(SEGMENT).zip((at..).step_by(100)) {
            frames.push((at, talk.frame(to_server, sent, ACK | PSH, piece)));
            sent[own] += piece.len() as u32;
        }
        if hole == 0 {
            frames.push((at + 500, talk.frame(!to_server, sent, ACK, b"")));
        }
    }
    frames
}

/// A dozen connections send requests steadily; 1,500 others leave segments after a gap, or in order, and
/// fill the memory of streams within less than the dozen's pause between requests. The dozen goes on.
#[test]
fn connections_that_go_on_outlive_a_flood_that_fills_the_memory_of_streams() {
    let folder = Folder::new("overload-keep-alive");
    folder.write("p.yaml", "policies:\n  - {name: all, chain: [ids]}\ndefault: {action: drop}\n");
    let answer = [&b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n"[..], &[b'a'; 3000]].concat();
    // The pause between requests in milliseconds; the size of the others' gap, and of the segments after
    // it.
    for (rest, hole, size) in [(300, 100, SEGMENT), (1_700, 100, SEGMENT), (300, 100, 200), (300, 0, SEGMENT)]
    {
        let mut frames = Vec::new();
        for n in 0..12u16 {
            let asked = 6_000 / rest;
            let said = (0..asked).flat_map(|turn| {
                // Not all at once.
                let wait = rest * 1_000 + (u64::from(n) * 7_919 + turn * 104_729) % 100_000;
                [
                    (wait, true, 0, b"GET /good HTTP/1.1\r\nHost: h\r\n\r\n".to_vec()),
                    (1_000, false, 0, answer.clone()),
                ]
            });
            frames.extend(timed(20_000 + n, 0, said));
        }
        for n in 0..1_500u16 {
            let count = 5 + usize::from(n % 3);
            let said =
                (0..count).map(|piece| (100, true, if piece == 0 { hole } else { 0 }, vec![b'f'; size]));
            // Bytes after a gap are not acknowledged.
            let kept: Vec<_> =
                if hole == 0 { said.collect() } else { vec![(100, true, hole, vec![b'f'; size * count])] };
            frames.extend(timed(1_000 + n, 4_000_000 + u64::from(n) * 660, kept));
        }
        frames.sort_by_key(|(at, _)| *at);
        let frames = frames.into_iter().map(|(at, frame)| (BEGIN + at, frame));
        folder.write("c.pcap", pcap(ETHERNET, frames));
        let what = format!("rest {rest}, hole {hole}, segments of {size}");
        let more = ["--set", "stream.reassembly.memcap=2mb"];
        let out = format!("out-{rest}-{hole}-{size}");
        let told = inspect(&folder, &out, &more, |flow| flow["src_port"].to_string());
        let gave_way = folder
            .events(&out, "flow")
            .into_iter()
            .filter(|flow| !flow["flow"]["exception_policy"].is_null());
        let busy = gave_way.clone().filter(|flow| flow["src_port"].as_u64() >= Some(20_000)).count();
        assert!(busy == 0 && gave_way.count() > 300, "{what}: {busy} of those that go on");
        assert_eq!(told.good as u64, 12 * (6_000 / rest), "{what}");
    }
}

#[test]
fn connections_that_are_over_give_way_before_those_that_are_not() {
    let folder = Folder::new("overload-over");
    folder.write("p.yaml", "policies:\n  - {name: all, chain: [ids]}\ndefault: {action: drop}\n");
    let talk =
        |from, said, ends| Talk { v6: from % 2 == 0, server: 2, vlan: None, ends, from, said, at: FIRST };
    // They wait with more than any of the others keeps, which come and end one after the other.
    let waiting = (0..40).map(|n| talk(10_000 + n, half_a_record(), false));
    let mut long = vec![(true, b"GET /before HTTP/1.1\r\nHost: h\r\n\r\n".to_vec()); 150];
    long.extend(good());
    let ending = (0..400).map(|n| talk(30_000 + n, long.clone(), true));
    let in_order = |talk: Talk| talk.frames().into_iter().rev().collect::<Vec<_>>();
    folder.write("c.pcap", paced(1_000, waiting.chain(ending).flat_map(in_order)));
    let more = ["--set", "stream.reassembly.memcap=2mb"];
    let told = inspect(&folder, "out", &more, |flow| flow["app_proto"].to_string());
    let (tcp, own) = (&told.stats["stats"]["tcp"], &told.stats["bartizan"]["stats"]["tcp"]);
    assert!(own["reassembly_memory_closed"].as_u64() > Some(50), "{own}");
    let flows = folder.events("out", "flow");
    let disturbed: Vec<_> = flows.iter().filter(|flow| !flow["flow"]["exception_policy"].is_null()).collect();
    assert_eq!((disturbed.len(), told.good, flows.len()), (0, 400, 440), "{:?}", disturbed.first());
    assert_eq!(tcp["segment_memcap_drop"], 0, "{tcp}");
}

/// The receiver may not regard a reset connection as over: its later segments are refused once it is
/// evicted. The next connection of its ports is a new one.
#[test]
fn the_ports_of_a_reset_connection_that_gave_way_are_used_again() {
    let folder = Folder::new("overload-reset");
    folder.write("p.yaml", "policies:\n  - {name: all, chain: [ids]}\ndefault: {action: drop}\n");
    let talk =
        |from, said, at| Talk { v6: from % 2 == 0, server: 2, vlan: None, ends: false, from, said, at };
    let mut long = vec![(true, b"GET /before HTTP/1.1\r\nHost: h\r\n\r\n".to_vec()); 150];
    long.extend(good());
    let ports = 30_000..30_400;
    let reset = |from| {
        let talk = talk(from, long.clone(), [100, 500]);
        let mut frames = talk.frames();
        let sent = talk
            .said
            .iter()
            .filter(|(to_server, _)| *to_server)
            .map(|(_, data)| data.len() as u32)
            .sum::<u32>();
        frames.insert(0, talk.frame(true, [101 + sent, 0], RST, b""));
        frames
    };
    let again = ports.clone().map(|from| talk(from, good(), [900_000, 700_000]).frames());
    let frames = ports.map(reset).chain(again).flat_map(|frames| frames.into_iter().rev());
    folder.write("c.pcap", paced(100, frames));
    let more = ["--set", "stream.reassembly.memcap=2mb"];
    let told = inspect(&folder, "out", &more, |flow| flow["app_proto"].to_string());
    let own = &told.stats["bartizan"]["stats"]["tcp"];
    assert!(own["reassembly_memory_closed"].as_u64() > Some(50), "{own}");
    assert_eq!((told.good, folder.events("out", "flow").len()), (800, 800), "{own}");
}

#[test]
fn a_connection_that_is_over_keeps_nothing_for_rules_that_look_back() {
    let folder = Folder::new("overload-back");
    folder.write("p.yaml", "policies:\n  - {name: all, chain: [ids]}\ndefault: {action: drop}\n");
    folder.write(
        "raw.rules",
        "alert tcp any any -> any any (msg:\"raw\"; content:\"nothing\"; content:\"of it\"; within:9000; sid:3;)\n",
    );
    let answer = [b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n".as_slice(), &[b'a'; 4_000]].concat();
    let said: Said = good().into_iter().take(2).chain([(false, answer)]).collect();
    let talk = |n: u16| Talk {
        v6: n.is_multiple_of(2),
        server: 2,
        vlan: None,
        ends: true,
        from: 30_000 + n,
        said: said.clone(),
        at: FIRST,
    };
    let in_order = |talk: Talk| talk.frames().into_iter().rev().collect::<Vec<_>>();
    folder.write("c.pcap", paced(100, (0..400u16).map(talk).flat_map(in_order)));
    // All of them together have 2 MB to look back at, within the time that a closed connection stays in the
    // table.
    let more = ["--set", "stream.reassembly.memcap=1mb", "--rules", "raw.rules"];
    let told = inspect(&folder, "out", &more, |flow| flow["app_proto"].to_string());
    let own = &told.stats["bartizan"]["stats"]["tcp"];
    assert_eq!((&own["reassembly_memory_closed"], told.good), (&serde_json::json!(0), 400), "{own}");
}

#[test]
fn it_runs_within_the_address_space_that_its_bounds_add_up_to() {
    let folder = Folder::new("overload-space");
    folder.write("p.yaml", "policies:\n  - {name: all, chain: [ids]}\ndefault: {action: drop}\n");
    folder.write("r.rules", RULES);
    let pipelined =
        || vec![(true, b"GET /pipelined HTTP/1.1\r\nHost: h\r\nUser-Agent: someone\r\n\r\n".repeat(200))];
    let shapes: [(&str, Shape); 3] =
        [("post", || post(100_000)), ("pipelined", pipelined), ("tls", half_a_record)];
    for (name, said) in shapes {
        let talk = |n: u16| Talk {
            v6: n & 1 == 0,
            server: 2,
            vlan: None,
            ends: false,
            from: 1_000 + n,
            said: said(),
            at: FIRST,
        };
        folder.write("c.pcap", capture(&(0..1_000).map(talk).collect::<Vec<_>>()));
        let memory =
            ["app-layer.memcap=16mb", "stream.reassembly.memcap=8mb", "flow.memcap=1mb", "defrag.memcap=4mb"];
        // docs/limits.md: the bounds, with 2 KiB a flow, and 64 MiB for the program and its only worker; half
        // as much again, and 64 MiB.
        let total = ((16 + 8 + 4 + 5 + 64) * 3 / 2 + 64) * 1024;
        let mut command = Command::new("sh");
        command.args([
            "-c",
            &format!("ulimit -v {total} && exec \"$0\" \"$@\""),
            env!("CARGO_BIN_EXE_bartizan"),
        ]);
        command.args(["inspect", "--ips", "--cache", "none", "--out", name, "--policy", "p.yaml"]);
        command.args(["--rules", "r.rules", "--set", "pcap-file.checksum-checks=no"]);
        command.args(memory.iter().flat_map(|set| ["--set", set])).arg("c.pcap");
        let ran = command.current_dir(folder.path()).output().unwrap();
        assert!(ran.status.success(), "{name}: {:?} {}", ran.status, String::from_utf8_lossy(&ran.stderr));
        let stats = folder.events(name, "stats").pop().expect("statistics")["bartizan"]["stats"].clone();
        let closed = [&stats["app_layer_memory"]["closed"], &stats["tcp"]["reassembly_memory_closed"]];
        assert!(closed.iter().filter_map(|c| c.as_u64()).sum::<u64>() > 300, "{name}: {stats}");
    }
}
