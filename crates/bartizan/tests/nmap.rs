// SPDX-License-Identifier: Apache-2.0
//! `portscan` finds real scans: nmap's connect, SYN and UDP scans of a host on the other side of the
//! running program, IPv4 and IPv6; a client of that host's open port is none. Two hosts and the program are
//! in network namespaces that end with the test.

use crate::inline_net;

use bartizan_testkit_worker::events;
use inline_net::{AtEnd, in_namespace, run, sysctl};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time limit of a scan in seconds.
const LIMIT: &str = "20";
/// The longest wait for an event.
const PATIENCE: Duration = Duration::from_secs(10);

/// A namespace without a name: it lives as long as a process that sleeps in it.
fn host() -> Child {
    let child = Command::new("unshare").args(["-n", "sleep", "60"]).spawn().unwrap();
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    let namespace = format!("/proc/{}/ns/net", child.id());
    wait("a namespace", || std::fs::read_link(&namespace).is_ok_and(|of| of != own).then_some(()));
    child
}

/// Waits until `get` returns a value.
fn wait<T>(what: &str, mut there: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(there) = there() {
            return there;
        }
        assert!(begun.elapsed() < PATIENCE, "there is no {what} after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Moves an interface into a host's namespace and gives it addresses; `number` is the host's.
fn settle(host: &Child, interface: &str, number: u8) {
    run(&format!("ip link set {interface} netns {}", host.id()));
    for command in [
        "ip link set lo up".to_owned(),
        // Answers to probes of closed ports are not held back.
        "sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0 net.ipv6.conf.all.accept_dad=0"
            .to_owned(),
        format!("ip link set {interface} up"),
        format!("ip address add 10.67.0.{number}/24 dev {interface}"),
        format!("ip address add fd67::{number}/64 dev {interface} nodad"),
        format!("ethtool -K {interface} rx off tx off sg off tso off gso off gro off"),
    ] {
        run(&inside(host, &command));
    }
}

fn inside(host: &Child, command: &str) -> String {
    format!("nsenter --net=/proc/{}/ns/net {command}", host.id())
}

/// The alerts so far: number of the rule, and the scanning address.
fn alerts(eve: &Path) -> Vec<(u64, String)> {
    let text = std::fs::read_to_string(eve).unwrap_or_default();
    // The last line may not be whole yet.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let alert = |event: &Value| {
        let said = &event["alert"];
        assert_eq!(said["gid"], 122, "{event}");
        let source = said["context"]["portscan"]["source"].as_str().unwrap();
        (said["signature_id"].as_u64().unwrap(), source.to_owned())
    };
    events::of_type(&events::parse(whole), "alert").map(alert).collect()
}

#[test]
fn nmap_is_found_and_a_client_is_not() {
    in_namespace("nmap_is_found_and_a_client_is_not", || {
        let is_there =
            |program: &str| Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
        if let Some(lacking) = ["nmap", "nsenter"].into_iter().find(|program| !is_there(program)) {
            eprintln!("nmap_is_found_and_a_client_is_not: not run, needs the program {lacking}");
            return;
        }
        sysctl("net.ipv6.conf.default.disable_ipv6", "1");
        run("ip link add a0 type veth peer name a1");
        run("ip link add b0 type veth peer name b1");
        for end in ["a1", "b1"] {
            run(&format!("ethtool -K {end} rx off tx off sg off tso off gso off gro off"));
            run(&format!("ip link set {end} up"));
        }
        let (mut client, mut server) = (host(), host());
        settle(&client, "a0", 1);
        settle(&server, "b0", 2);
        let folder = std::env::temp_dir().join(format!("bartizan-nmap-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let policy = folder.join("policy.yaml");
        let text = "policies:\n  - {name: all, chain: [portscan], portscan: {window: 3s}}\ndefault: {action: allow}\n";
        std::fs::write(&policy, text).unwrap();
        let mut program = Command::new(env!("CARGO_BIN_EXE_bartizan"))
            .args(["run", "--inline", "a1", "b1", "--spin", "0", "--workers", "2", "--out"])
            .arg(folder.join("out"))
            .arg("--policy")
            .arg(&policy)
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.join("log")).unwrap())
            .spawn()
            .unwrap();
        let ids = [client.id(), server.id(), program.id()];
        let _end = AtEnd(|| {
            for child in [&mut client, &mut server, &mut program] {
                let _ = child.kill();
                let _ = child.wait();
            }
            let _ = std::fs::remove_dir_all(&folder);
        });
        let log = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        wait("running program", || log().contains("running on").then_some(()));
        let eve = folder.join("out/eve.json");
        let [client, server, _] = ids.map(|id| format!("nsenter --net=/proc/{id}/ns/net "));

        // An open port with a client of its own, which comes again and again.
        let listener = "import socket,sys\ns=socket.create_server(('::',80),family=socket.AF_INET6,dualstack_ipv6=True)\nprint('up',flush=True)\nwhile 1: s.accept()[0].close()";
        let mut words = server.split_whitespace().chain(["python3", "-c", listener]);
        let open = Command::new(words.next().unwrap()).args(words).stdout(Stdio::null()).spawn();
        let mut open = open.unwrap();
        let _open_end = AtEnd(|| {
            let _ = open.kill();
            let _ = open.wait();
        });
        let connect = "import socket,sys\nfor a in ('10.67.0.2','fd67::2'):\n for n in range(100):\n  for t in range(200):\n   try: socket.create_connection((a,80),1).close(); break\n   except ConnectionRefusedError: __import__('time').sleep(.05)";
        let mut words = client.split_whitespace().chain(["timeout", LIMIT, "python3", "-c", connect]);
        let connected = Command::new(words.next().unwrap()).args(words).status().unwrap();
        assert!(connected.success(), "{}", log());

        let mut expected = Vec::new();
        for (target, from, version) in [("10.67.0.2", "10.67.0.1", ""), ("fd67::2", "fd67::1", "-6 ")] {
            for (scan, rule) in [("-sT", 1), ("-sS", 1), ("-sU", 17)] {
                assert_eq!(alerts(&eve), expected, "before {scan} {target}");
                let command =
                    format!("{client}timeout {LIMIT} nmap {version}{scan} -n -Pn -T4 -p 60-120 {target}");
                run(&command);
                expected.push((rule, from.to_owned()));
                wait("alert", || (alerts(&eve).len() >= expected.len()).then_some(()));
                // The next one is in a window of its own.
                std::thread::sleep(Duration::from_millis(3_200));
            }
        }
        assert_eq!(alerts(&eve), expected);
    });
}
