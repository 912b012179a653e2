// SPDX-License-Identifier: Apache-2.0
//! Groups by DNS name in a live inline run, in a network namespace of its own (needs root; without, it prints
//! so and returns): an answer holds for the packet that its receiver sends because of it, whichever worker
//! gets that packet, and metrics count.

use crate::common;
use crate::namespace;

use bartizan_ports::{Batch, InlineOptions, InlinePort, Port, wait_any};
use bartizan_testkit::{dns, packet};
use common::{Folder, PROGRAM, Running, get, value};
use core::net::IpAddr;
use namespace::{in_namespace, ip, veth};
use std::process::Command;
use std::time::{Duration, Instant};

const A: u16 = 1;
const AAAA: u16 = 28;

const POLICY: &str = "\
groups:
  lan: [10.0.0.0/8, '2001:db8:1::/48']
  apis: [{dns: '*.example.com'}]
dns: {resolvers: [192.0.2.53, '2001:db8:2::53']}
policies:
  - {name: dns, from: lan, to: [192.0.2.53, '2001:db8:2::53'], chain: [pfw], pfw: {default: drop, rules: [{allow: udp, to-ports: 53}]}}
  - {name: out, from: lan, to: apis, chain: [pfw, sfw], pfw: {default: drop, rules: [{allow: tcp, to-ports: 443}]}, sfw: {}}
default: {action: drop}
";

fn host_file(workers: u16) -> String {
    format!(
        "links: [{{name: wan, inline: {{a: a1, b: b1}}}}]\npolicy: policy.yaml\ncache: none\nworkers: {workers}\n\
         metrics: {{listen: '127.0.0.1:9100'}}\ncontrol: {{socket: control.socket}}\n"
    )
}

/// Waits until a packet with these bytes at its end comes; false if none does in time.
fn comes(port: &mut InlinePort, last: &[u8], patience: Duration) -> bool {
    let mut batch = Batch::with_capacity(64);
    let end = Instant::now() + patience;
    while Instant::now() < end {
        port.receive(&mut batch).unwrap();
        if batch.indices().any(|i| batch.bytes(i).is_some_and(|bytes| bytes.ends_with(last))) {
            return true;
        }
        if batch.is_empty() {
            wait_any(&mut [&mut *port], None, Duration::ZERO, Duration::from_millis(5)).unwrap();
        }
    }
    false
}

fn send(port: &mut InlinePort, frame: &[u8]) {
    port.transmit_frame(frame).unwrap();
    port.flush().unwrap();
}

fn address(v6: bool, net: u8, host: u16) -> IpAddr {
    let text = if v6 {
        format!("2001:db8:{net}::{host:x}")
    } else {
        format!(
            "{}.{}",
            ["", "10.0", "192.0", "198.51"][usize::from(net)],
            if net == 2 { format!("2.{host}") } else { format!("{}.{}", host / 200, host % 200 + 1) }
        )
    };
    text.parse().unwrap_or_else(|_| panic!("{text}"))
}

#[test]
fn an_answer_holds_for_what_is_sent_because_of_it() {
    for workers in [1, 2] {
        in_namespace(move || run(workers));
    }
}

fn run(workers: u16) {
    const ROUNDS: u16 = 100;
    let folder = Folder::new();
    folder.write("policy.yaml", POLICY);
    folder.write("bartizan.yaml", host_file(workers));
    ip("link set dev lo up");
    veth("a0", "a1", 1500);
    veth("b0", "b1", 1500);
    let options = InlineOptions { frames: 1024, ..InlineOptions::default() };
    let (mut client, mut server) =
        (InlinePort::open("a0", &options).unwrap(), InlinePort::open("b0", &options).unwrap());
    let running =
        Running::start(Command::new(PROGRAM).args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    running.until("running on");
    running.until("metrics: ");
    let syn = |v6: bool, n: u16, again: u8| {
        let (from, to) = ((address(v6, 1, 7), 30_000 + n), (address(v6, 3, n), 443));
        packet::tcp(from, to, (u32::from(n), 0), 2, &[again, (n >> 8) as u8, n as u8, 0x5a]).frame()
    };
    let patience = Duration::from_secs(20);
    for n in 0..ROUNDS {
        let v6 = n % 2 == 1;
        let (from, to) = ((address(v6, 1, 7), 20_000 + n), (address(v6, 2, 53), 53));
        let to = if v6 { ("2001:db8:2::53".parse().unwrap(), 53) } else { to };
        let name = format!("n{n}.example.com");
        let rrtype = if v6 { AAAA } else { A };
        let data = match address(v6, 3, n) {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let query = dns::query(n, &name, rrtype);
        let answer = dns::answer(n, (&name, rrtype), &[(&name, rrtype, 300, data.clone())]);
        send(&mut client, &packet::udp(from, to, &query).frame());
        assert!(comes(&mut server, &query, patience), "query {n}");
        send(&mut server, &packet::udp(to, from, &answer).frame());
        assert!(comes(&mut client, &answer, patience), "answer {n}");
        // At once.
        let frame = syn(v6, n, 0);
        send(&mut client, &frame);
        assert!(
            comes(&mut server, &frame[frame.len() - 4..], patience),
            "SYN {n} after its answer, {workers} workers"
        );
    }
    // A client that answers itself, from its own side, with the resolver's address.
    let (from, to) = ((address(false, 1, 7), 19_000), (address(false, 2, 53), 53));
    let (query, forged) = {
        let (asked, data) = (("forged.example.com", A), vec![198, 51, 0, 150]);
        (dns::query(9, asked.0, A), dns::answer(9, asked, &[(asked.0, A, 300, data)]))
    };
    send(&mut client, &packet::udp(from, to, &query).frame());
    assert!(comes(&mut server, &query, patience));
    send(&mut client, &packet::udp(to, from, &forged).frame());
    // These are not answered; 198.51.0.150 is none of the others.
    assert_eq!(address(false, 3, 149).to_string(), "198.51.0.150");
    send(&mut client, &syn(false, 149, 1));
    for n in ROUNDS..ROUNDS + 4 {
        send(&mut client, &syn(n % 2 == 1, n, 1));
    }
    let frame = syn(false, 0, 2);
    send(&mut client, &frame);
    let mut came = 0;
    common::until("the refused ones are counted", || {
        came += u32::from(comes(&mut server, &[1], Duration::from_millis(1)));
        value(&get("/metrics"), "bartizan_packets_total", &["policy=\"default\"", "verdict=\"drop\""]) >= 4
    });
    let page = get("/metrics");
    let counted = |name: &str| {
        value(&page, "bartizan_function_total", &["function=\"names\"", &format!("counter=\"{name}\"")])
    };
    assert_eq!(
        [counted("answers"), counted("added"), counted("not_asked")],
        [u64::from(ROUNDS), u64::from(ROUNDS), 0]
    );
    let told = common::run(
        &folder.0,
        &["ctl", "--socket", "control.socket", "explain-flow", &address(false, 3, 0).to_string()],
    );
    let why = "is a member of `*.example.com` for ";
    assert!(told.stdout.contains(why) && told.stdout.contains("an answer for n0.example.com"), "{told:?}");
    let ended = running.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}
