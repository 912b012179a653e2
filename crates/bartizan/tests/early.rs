// SPDX-License-Identifier: Apache-2.0
//! `bartizan run` with `early-drop`, in a network namespace of its own (needs root; without, it prints so and
//! returns): the kernel drops a flood from a block list of 10,000 prefixes while other connections go on,
//! also during reloads of policies; every packet is counted for its rule.

use crate::command_socket;
use crate::common;
use crate::level;
use crate::namespace;

use bartizan_ports::{InlinePort, Port};
use bartizan_testkit::packet::{self, Datagram, Layer, Packet};
use bartizan_testkit::packet::{Ip, SYN, Segment, TCP, UDP};
use bartizan_testkit::tunnels::Tunnel;
use bartizan_testkit_worker::events;
use command_socket::{Client, ready};
use common::{Folder, PROGRAM, Running, get, until, value};
use level::{counter, datagrams, ends_well, network, quiet, send, take};
use namespace::{Still, in_namespace, own_bpf_file_system};
use serde_json::Value;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::{Duration, Instant};

/// Prefixes of the block list: every second network of 24 bits from 11.0.0.0 on.
const PREFIXES: u32 = 10_000;
/// Frames of the flood sent at once.
const BURST: usize = 500;

/// A policy that drops sources on the list, and UDP to a port.
fn policy(port: u16) -> String {
    let mut list = String::new();
    for number in 0..PREFIXES {
        let _ = write!(list, "{}/24, ", Ipv4Addr::from(0x0b00_0000 + number * 512));
    }
    format!(
        "groups: {{bad: [{list}10.255.0.0/16]}}\n\
         policies: [{{name: all, from: any, to: any, chain: [pfw], pfw: {{default: allow, rules: [{{drop: any, from: bad, name: bad}}, {{drop: udp, to-ports: {port}}}]}}}}]\n\
         default: {{action: drop}}\n"
    )
}

fn start(folder: &Folder, workers: u16, early: bool) -> Running {
    folder.write("policy.yaml", policy(1));
    folder.write(
        "bartizan.yaml",
        format!(
            "links: [{{name: wan, inline: {{a: a1, b: b1, offload: {{level: xdp, entries: 1024, stale: 30s, early-drop: {early}, drop-samples: 1024}}}}, workers: {workers}}}]\n\
             policy: policy.yaml\ncache: none\noutputs: {{eve: {{dir: out}}}}\nmetrics: {{listen: '127.0.0.1:9100'}}\nreload: {{max-loss: 100%}}\n"
        ),
    );
    let mut command = Command::new(PROGRAM);
    let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    running.until("running on");
    running
}

/// A packet of the flood: another source and another port each time.
fn of_flood(number: u32) -> Vec<u8> {
    let source = IpAddr::V4(Ipv4Addr::from(0x0b00_0000 + number % PREFIXES * 512 + number % 251));
    let target = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
    let ports = (1024 + (number.wrapping_mul(40_503) % 60_000) as u16, 80);
    if number.is_multiple_of(3) {
        let layer = Layer::Udp(Datagram::new(ports, b"flood"));
        return Packet { ip: Ip::new(source, target, UDP), layer, piece: None }.frame();
    }
    let mut segment = Segment::new(ports, (number, 0), SYN, &[]);
    segment.options = vec![(2, vec![5, 0xb4]), (1, vec![]), (3, vec![7])];
    Packet::tcp(&Ip::new(source, target, TCP), segment).frame()
}

/// Sends so many packets of the flood from a number on, as fast as possible.
fn flood(port: &mut InlinePort, first: u32, count: usize) {
    for number in (first..).take(count) {
        port.transmit_frame(&of_flood(number)).unwrap();
        if (number as usize).is_multiple_of(64) {
            port.flush().unwrap();
        }
    }
    port.flush().unwrap();
}

/// Packets counted for the rule `bad` of the policy, by the metrics.
fn of_rule() -> u64 {
    value(&get("/metrics"), "bartizan_filter_rule_packets_total", &["policy=\"all\"", "rule=\"bad\""])
}

/// Frames that arrived by the client's port, by outcome. Frames that its ring had no room for are in none.
fn by_port(what: &str) -> u64 {
    value(&get("/metrics"), "bartizan_port_level_total", &["port=\"a1\"", &format!("what=\"{what}\"")])
}

fn arrived() -> u64 {
    ["up", "forwarded", "dropped", "early"].iter().map(|what| by_port(what)).sum()
}

/// Waits until all frames are counted: counts are updated once a second, on a busy machine later.
fn counted() {
    let begin = Instant::now();
    let (mut before, mut steady) = (arrived(), 0);
    while steady < 2 && begin.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(1_200));
        let now = arrived();
        steady = if now == before { steady + 1 } else { 0 };
        before = now;
    }
}

/// Records of flows of the flood.
fn records(events: &[serde_json::Value]) -> u64 {
    let of_flood = |event: &&serde_json::Value| {
        event["event_type"] == "flow"
            && event["src_ip"].as_str().is_some_and(|source| source.starts_with("11."))
    };
    events.iter().filter(of_flood).count() as u64
}

#[test]
fn a_flood_from_a_block_list_is_dropped_early_and_counted_for_its_rule() {
    for workers in [1, 2] {
        in_namespace(move || dropped_early(workers));
    }
}

fn dropped_early(workers: u16) {
    let folder = Folder::new();
    let [mut client, mut server] = network(1500);
    let running = start(&folder, workers, true);
    let (mut sent, mut good) = (0, 0);
    let mut round = |client: &mut InlinePort, server: &mut InlinePort| {
        flood(client, sent, BURST);
        sent += BURST as u32;
        send(client, &datagrams(4000, b"good"));
        good += 8;
        assert_eq!(take(server, 8), 8, "good packets arrive, and no others");
    };
    for generation in 2..6u16 {
        (0..5).for_each(|_| round(&mut client, &mut server));
        // Another generation, in which another port is closed, while the flood goes on.
        folder.write("policy.yaml", policy(generation));
        running.signal("USR2");
        let begin = Instant::now();
        while !running.stderr().contains(&format!("generation {generation}:")) {
            assert!(begin.elapsed() < Duration::from_secs(30), "{}", running.stderr());
            round(&mut client, &mut server);
        }
    }
    (0..5).for_each(|_| round(&mut client, &mut server));
    counted();
    let (early, of_rule, flood) = (by_port("early"), of_rule(), arrived() - good);
    eprintln!(
        "{workers} workers: {sent} sent, {flood} came, {early} dropped early, {of_rule} counted for the rule"
    );
    ends_well(running);
    assert!(flood > u64::from(sent) / 2);
    // One of 1,024 comes up, and what came by an older generation while a worker was not in the new one.
    assert!(early > flood * 95 / 100, "{early} of {flood}");
    assert_eq!(counter(&folder, "offload.early_pkts"), early);
    let lost = counter(&folder, "capture.kernel_drops");
    assert_eq!(counter(&folder, "ips.blocked") + lost, flood, "every packet is counted, at one level");
    // Drops just before a reload are counted for no rule.
    assert!(of_rule <= flood && of_rule > flood * 95 / 100, "{of_rule} of {flood}");
    let events = events::read(&folder.path("out/eve.json"));
    assert!(records(&events) <= flood - early, "{} records", records(&events));
    let of_good = events.iter().filter(|event| event["event_type"] == "flow" && event["dest_port"] == 4000);
    let packets: u64 = of_good.map(|flow| flow["flow"]["pkts_toserver"].as_u64().unwrap()).sum();
    assert_eq!(packets, good);
}

/// Without early drop the same flood comes up and has records. The cost of both is printed.
#[test]
fn without_early_drop_the_flood_comes_up_and_has_records() {
    in_namespace(|| {
        let mut rates = Vec::new();
        for early in [true, false] {
            let folder = Folder::new();
            let [mut client, server] = network(1500);
            let running = start(&folder, 1, early);
            let begin = Instant::now();
            (0..40).for_each(|round| flood(&mut client, round * BURST as u32, BURST));
            let seconds = begin.elapsed().as_secs_f64();
            counted();
            let (came, refused_early) = (arrived(), by_port("early"));
            rates.push(came as f64 / seconds);
            ends_well(running);
            let lost = counter(&folder, "capture.kernel_drops");
            assert_eq!(counter(&folder, "ips.blocked") + lost, came);
            let records = records(&events::read(&folder.path("out/eve.json")));
            eprintln!(
                "early-drop {early}: {came} of {} came in {seconds:.2} s, {refused_early} early, {lost} lost, {records} records",
                40 * BURST
            );
            assert!(if early {
                refused_early > came * 9 / 10
            } else {
                refused_early == 0 && records + lost == came
            });
            drop((client, server));
            for name in ["a0", "b0"] {
                namespace::ip(&format!("link del {name}"));
            }
        }
        eprintln!("packets/s that came: {rates:.0?}");
    });
}

/// Reloads in quick succession while workers do not run: the table that the level reads is not overwritten,
/// so refusals by rules hold while the link is open.
#[test]
fn reloads_before_a_worker_runs_the_first_of_them_leave_the_table_in_use_alone() {
    in_namespace(|| {
        own_bpf_file_system();
        let folder = Folder::new();
        let [mut client, mut server] = network(1500);
        folder.write("policy.yaml", policy(1));
        folder.write(
            "bartizan.yaml",
            "links: [{name: wan, inline: {a: a1, b: b1, offload: {level: xdp, entries: 1024, fail: open, stale: 1s}}, workers: 2}]\n\
             policy: policy.yaml\ncache: none\noutputs: {eve: {dir: out}}\nmetrics: {listen: '127.0.0.1:9100'}\nreload: {max-loss: 100%}\n",
        );
        let mut command = Command::new(PROGRAM);
        let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
        running.until("running on");
        // Workers live, so the link may be open.
        send(&mut client, &datagrams(5_000, b"load"));
        assert_eq!(take(&mut server, 8), 8);
        until("pins", || level::pins().len() == 2);
        let refused: Vec<_> = (0..20).map(of_flood).collect();
        let mut port = 5_100;
        let mut goes_on = |when: &str| {
            send(&mut client, &refused);
            assert!(quiet(&mut server), "{when}: what rules refuse does not pass");
            send(&mut client, &datagrams(port, b"load"));
            assert_eq!(take(&mut server, 8), 8, "{when}");
            port += 1;
        };
        let runs = |worker: u16, generation: u64| {
            let is = format!("worker=\"{worker}\"");
            until("the worker has it", || {
                value(&get("/metrics"), "bartizan_generation", &[&is]) >= generation
            });
        };
        let mut generation = 1;
        for still in [&["worker-1"][..], &["worker-0", "worker-1"]] {
            let held: Vec<_> = still.iter().map(|name| Still::hold(running.id(), name)).collect();
            std::thread::sleep(Duration::from_millis(1_500));
            goes_on("nobody serves some of them");
            for _ in 0..2 {
                generation += 1;
                running.signal("USR2");
                running.until(&format!("generation {generation}:"));
                if still.len() == 1 {
                    runs(0, generation);
                }
                goes_on(&format!("generation {generation}, {still:?}"));
            }
            drop(held);
            [0, 1].into_iter().for_each(|worker| runs(worker, generation));
        }
        // Of the last one there was no room; once it runs there is.
        running.until("not dropped early in generation 5");
        generation += 1;
        running.signal("USR2");
        [0, 1].into_iter().for_each(|worker| runs(worker, generation));
        goes_on("all run");
        let said = ends_well(running).stderr;
        assert_eq!(said.matches("not dropped early").count(), 1, "{said}");
    });
}

/// Two links with rules of their own: in odd generations the first one refuses datagrams to a port, in even
/// ones the second one; both refuse sources on a list.
fn policy_of_two(generation: u32) -> String {
    let (closed, open) = if generation % 2 == 1 { ("one", "two") } else { ("two", "one") };
    let bad = 0x0b00_0000 + generation % 7 * 512;
    format!(
        "groups: {{bad: [{}/24, 12.0.0.0/8]}}\n\
         policies:\n\
         - {{name: closed, link: [{closed}], from: any, to: any, chain: [pfw], pfw: {{default: allow, rules: [{{drop: any, from: bad}}, {{drop: udp, to-ports: 4000}}]}}}}\n\
         - {{name: open, link: [{open}], from: any, to: any, chain: [pfw], pfw: {{default: allow, rules: [{{drop: any, from: bad}}]}}}}\n\
         default: {{action: drop}}\n",
        Ipv4Addr::from(bad)
    )
}

/// A datagram of a flow of its own, from a host or from a source on the list.
fn datagram_of(number: u32, bad: bool) -> Vec<u8> {
    let source = Ipv4Addr::from(if bad { 0x0c00_0000 + number } else { 0x0a00_0001 + number % 60_000 });
    let ports = (1024 + (number % 50_000) as u16, 4000);
    let layer = Layer::Udp(Datagram::new(ports, b"one"));
    Packet { ip: Ip::new(source.into(), Ipv4Addr::new(192, 0, 2, 2).into(), UDP), layer, piece: None }.frame()
}

/// Hundreds of reloads with two links: each packet is judged by its own link's rules of the running
/// generation, and counted once.
#[test]
fn two_links_keep_their_own_rules_over_hundreds_of_reloads() {
    in_namespace(|| {
        const RELOADS: u32 = 200;
        let folder = Folder::new();
        let [mut client_one, mut server_one] = network(1500);
        let [mut client_two, mut server_two] = level::ends(["c", "d"], 1500);
        folder.write("policy.yaml", policy_of_two(1));
        let offload = "offload: {level: xdp, entries: 1024, stale: 30s, early-drop: true, drop-samples: 64}";
        folder.write(
            "bartizan.yaml",
            format!(
                "links: [{{name: one, inline: {{a: a1, b: b1, {offload}}}, workers: 1}}, {{name: two, inline: {{a: c1, b: d1, {offload}}}, workers: 1}}]\n\
                 policy: policy.yaml\ncontrol: {{socket: c.socket}}\ncache: none\noutputs: {{eve: {{dir: out}}}}\nreload: {{max-loss: 100%}}\n"
            ),
        );
        let mut command = Command::new(PROGRAM);
        let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
        ready(&folder, &running);
        running.until("running on");
        let mut commands = Client::greeted(&folder.path("c.socket"));
        let (mut number, mut refused, mut passed) = (0, 0, 0);
        for generation in 1..=RELOADS {
            if generation > 1 {
                folder.write("policy.yaml", policy_of_two(generation));
                // Answered when all workers run it; the log tells it before.
                assert_eq!(commands.ok("reload-rules", Value::Null), "done");
            }
            for (link, client, server) in
                [(1, &mut client_one, &mut server_one), (0, &mut client_two, &mut server_two)]
            {
                let listed: Vec<_> = (0..10).map(|at| datagram_of(number + at, true)).collect();
                send(client, &listed);
                send(client, &[datagram_of(number, false)]);
                number += 10;
                refused += 10;
                if generation % 2 == link {
                    refused += 1;
                } else {
                    assert_eq!(take(server, 1), 1, "generation {generation}: it is open on this link");
                    passed += 1;
                }
            }
        }
        for server in [&mut server_one, &mut server_two] {
            assert!(quiet(server), "nothing else has passed");
        }
        std::thread::sleep(Duration::from_millis(1_500));
        ends_well(running);
        let (early, lost) =
            (counter(&folder, "offload.early_pkts"), counter(&folder, "capture.kernel_drops"));
        eprintln!("{refused} refused, {early} of them early, {passed} passed");
        assert_eq!(counter(&folder, "ips.blocked") + lost, refused, "every packet is counted, at one level");
        assert!(early > refused * 80 / 100, "{early} of {refused}");
    });
}

/// The mark that separates two tenants with equal addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Vlan,
    Vni,
}

/// A datagram of one of two tenants, whose packets differ only in the tag or the tunnel: each of a flow of
/// its own.
fn of_tenant(told: Told, tenant: usize, v6: bool, number: u16, port: u16) -> Vec<u8> {
    let host = |last: u16| common::address(v6, last as u8);
    let mut packet = packet::udp((host(11), 1024 + number), (host(12), port), b"equal");
    match told {
        Told::Vlan => {
            packet.ip.tags = vec![[10, 20][tenant]];
            packet.frame()
        }
        Told::Vni => {
            let tunnel = Tunnel::Vxlan([10, 20][tenant]);
            tunnel.around(((host(1), 50_000), (host(2), 0)), v6, &packet.bytes()).frame()
        }
    }
}

/// Each of the tenants refuses datagrams to a port of its own.
fn policy_of_tenants(told: Told, [red, blue]: [u16; 2], staged: bool) -> String {
    let key = if told == Told::Vlan { "vlan" } else { "vni" };
    let [a, b] =
        [false, true].map(|v6| format!("\"{}\", \"{}\"", common::address(v6, 1), common::address(v6, 2)));
    let policy = |name: &str, port: u16, more: &str| {
        format!(
            "- {{name: {name}, tenant: [{name}], from: any, to: any{more}, chain: [pfw], pfw: {{default: allow, rules: [{{drop: udp, to-ports: {port}, name: closed}}]}}}}\n"
        )
    };
    format!(
        "tenants: [{{name: red, select: {{{key}: [10]}}}}, {{name: blue, select: {{{key}: [20]}}}}]\n\
         policies:\n- {{name: around, tenant: [default], from: [{a}, {b}], to: [{a}, {b}], chain: []}}\n{}{}\
         default: {{action: drop}}\n",
        policy("red", red, if staged { ", staged: true" } else { "" }),
        policy("blue", blue, ""),
    )
}

fn of_closed(policy: &str) -> u64 {
    let labels = [&format!("policy=\"{policy}\"")[..], "rule=\"closed\""];
    value(&get("/metrics"), "bartizan_filter_rule_packets_total", &labels)
}

/// A tenant's refusal acts below, another tenant's equal addresses pass: by VLANs and by VXLAN, for IPv4 and
/// IPv6, over a reload that swaps the two, and not under a staged policy.
#[test]
fn a_tenants_refusal_acts_below_and_anothers_equal_addresses_pass() {
    let ways = [Told::Vlan, Told::Vni].into_iter().flat_map(|told| [1, 2].map(|workers| (told, workers)));
    level::beside_each_other(ways, |(told, workers)| two_tenants(told, workers));
}

fn two_tenants(told: Told, workers: u16) {
    const EACH: u16 = 60;
    let folder = Folder::new();
    let [mut client, mut server] = network(1500);
    folder.write("policy.yaml", policy_of_tenants(told, [4000, 5000], false));
    folder.write(
        "bartizan.yaml",
        format!(
            "links: [{{name: wan, inline: {{a: a1, b: b1, offload: {{level: xdp, entries: 1024, stale: 30s, early-drop: true, drop-samples: 1024}}}}, workers: {workers}}}]\n\
             policy: policy.yaml\ncontrol: {{socket: c.socket}}\ncache: none\noutputs: {{eve: {{dir: out}}}}\nmetrics: {{listen: '127.0.0.1:9100'}}\nreload: {{max-loss: 100%}}\n"
        ),
    );
    let mut command = Command::new(PROGRAM);
    let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    ready(&folder, &running);
    running.until("running on");
    let mut commands = Client::greeted(&folder.path("c.socket"));
    // The outer flows, which belong to no tenant, and some that both may send.
    let open: Vec<_> = [0, 1]
        .into_iter()
        .flat_map(|tenant| [false, true].map(|v6| of_tenant(told, tenant, v6, 50_000, 6000)))
        .collect();
    let known = |client: &mut InlinePort, server: &mut InlinePort| {
        (0..3).for_each(|_| {
            send(client, &open);
            assert_eq!(take(server, open.len()), open.len());
            std::thread::sleep(Duration::from_millis(300));
        });
        level::gone_below(if told == Told::Vni { 6 } else { 4 });
    };
    known(&mut client, &mut server);
    let (mut refused, mut passed, mut number) = ([0, 0], 3 * open.len() as u64, 0);
    let mut round = |closed: [Option<u16>; 2]| {
        for port in [4000, 5000] {
            for tenant in [0, 1] {
                let frames: Vec<_> =
                    (0..EACH).map(|at| of_tenant(told, tenant, at % 2 == 1, number + at, port)).collect();
                send(&mut client, &frames);
                let goes_on = closed[tenant] != Some(port);
                let came = if goes_on { take(&mut server, frames.len()) } else { 0 };
                assert_eq!(came, if goes_on { frames.len() } else { 0 }, "{told:?} {tenant} {port}");
                let counted = if goes_on { &mut passed } else { &mut refused[tenant] };
                *counted += u64::from(EACH);
            }
        }
        number += EACH;
        assert!(quiet(&mut server), "{told:?}: nothing else passes");
    };
    round([Some(4000), Some(5000)]);
    counted();
    let early = by_port("early");
    assert!(early >= 2 * u64::from(EACH) * 9 / 10, "{told:?}: {early} early");
    assert_eq!(["red", "blue"].map(of_closed), [60, 60], "{told:?}: each is counted for its tenant's rule");
    // Turned round.
    folder.write("policy.yaml", policy_of_tenants(told, [5000, 4000], false));
    assert_eq!(commands.ok("reload-rules", Value::Null), "done");
    std::thread::sleep(Duration::from_millis(1_500));
    // A carrier's entry comes down again some time after a reload, and with it what its packets carry.
    let mut turned = early;
    for _ in 0..5 {
        round([Some(5000), Some(4000)]);
        counted();
        let last = std::mem::replace(&mut turned, by_port("early"));
        if turned - last >= 2 * u64::from(EACH) * 9 / 10 {
            break;
        }
    }
    assert!(turned >= early + 2 * u64::from(EACH) * 9 / 10, "{told:?}: {early}, {turned}");
    // A staged refusal drops nothing, at no level; the other tenant's acts.
    folder.write("policy.yaml", policy_of_tenants(told, [5000, 4000], true));
    assert_eq!(commands.ok("reload-rules", Value::Null), "done");
    std::thread::sleep(Duration::from_millis(1_500));
    let mut staged = 0;
    for _ in 0..5 {
        round([None, Some(4000)]);
        counted();
        staged = by_port("early") - turned;
        turned += staged;
        assert!(staged <= u64::from(EACH), "{told:?}: {staged} of a staged policy");
        if staged >= u64::from(EACH) * 9 / 10 {
            break;
        }
    }
    assert!(staged >= u64::from(EACH) * 9 / 10, "{told:?}: {staged} of the other tenant's policy");
    ends_well(running);
    let lost = counter(&folder, "capture.kernel_drops");
    assert!(refused[0] >= 2 * u64::from(EACH) && refused[1] >= 3 * u64::from(EACH), "{refused:?}");
    assert_eq!(
        counter(&folder, "ips.blocked") + lost,
        refused.iter().sum::<u64>(),
        "{told:?}: every packet is counted, at one level"
    );
    // Packets that passed or came up to be refused are in records; packets dropped early are in none.
    let events = events::read(&folder.path("out/eve.json"));
    let of_tenants = |event: &&Value| {
        event["event_type"] == "flow" && [4000, 5000, 6000].iter().any(|port| event["dest_port"] == *port)
    };
    let packets = |event: &Value| event["flow"]["pkts_toserver"].as_u64().unwrap();
    let recorded: u64 = events.iter().filter(of_tenants).map(packets).sum();
    let early = counter(&folder, "offload.early_pkts");
    assert_eq!(recorded + early, passed + refused.iter().sum::<u64>(), "{told:?}: {early} early");
}
