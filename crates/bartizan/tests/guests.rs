// SPDX-License-Identifier: Apache-2.0
//! Guests: programs on the stream path, in a network namespace of its own (needs root; without, it prints so
//! and returns). The programs are those of Python's library, with the socket library loaded.

use crate::common;
use crate::namespace;

use bartizan_testkit_worker::events;
use common::{Ended, Folder, PROGRAM, Running};
use namespace::{in_namespace, ip};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

const HOST: &str = "\
links:
  - {name: client, guest: {addresses: [192.0.2.1, '2001:db8::1'], socket: client.socket}}
  - {name: server, guest: {addresses: [192.0.2.2, '2001:db8::2'], socket: server.socket}}
policy: policy.yaml
cache: none
outputs: {eve: {dir: out}}
control: {socket: control.socket}
";

const POLICY: &str = "\
policies:
  - name: web
    from: any
    to: any
    chain: [pfw, ids]
    pfw: {default: allow, rules: [{drop: tcp, to-ports: 25}]}
    ids: {rules: [web.rules]}
default: {action: drop}
";

const RULES: &str = "\
drop http any any -> any any (msg:\"attack\"; http.uri; content:\"/attack\"; sid:1;)\n\
drop tcp any any -> any any (msg:\"changed\"; content:\"harmful\"; replace:\"harmles\"; sid:2;)\n\
";

/// Tries to get each URL, and prints its status, or the error's number.
const CLIENT: &str = "\
import sys, urllib.request, urllib.error
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for url in sys.argv[1:]:
    try:
        with opener.open(url, timeout=60) as answer:
            print(answer.status, len(answer.read()), flush=True)
    except OSError as error:
        reason = getattr(error, 'reason', error)
        print('error', getattr(reason, 'errno', reason), flush=True)
";

/// The socket library as cargo built it beside this test program.
fn library() -> PathBuf {
    let folder = std::env::current_exe().unwrap();
    let library = folder.parent().unwrap().join("libbartizan_sock.so");
    assert!(library.exists(), "{}: cargo builds it with this test", library.display());
    library
}

fn network() {
    ip("link set dev lo up");
    ip("link add g0 type dummy");
    ip("link set dev g0 up");
    for host in 1..=3 {
        ip(&format!("addr add 192.0.2.{host}/24 dev g0"));
        ip(&format!("addr add 2001:db8::{host}/64 dev g0 nodad"));
    }
}

fn begin(folder: &Folder) -> Running {
    folder.write("policy.yaml", POLICY);
    folder.write("web.rules", RULES);
    folder.write("bartizan.yaml", HOST);
    folder.write("good.txt", "good words\n");
    folder.write("attack.txt", "never to be read\n");
    let running =
        Running::start(Command::new(PROGRAM).args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
    running.until("running on client, server");
    running
}

/// A command of a guest.
fn guest(folder: &Folder, name: &str, words: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["guest", "run", "--socket"]).arg(folder.path(&format!("{name}.socket")));
    command.arg("--library").arg(library()).arg("--").args(words).current_dir(&folder.0);
    command
}

fn web_server(folder: &Folder, guest_name: Option<&str>, address: &str) -> Running {
    let words = ["python3", "-u", "-m", "http.server", "8000", "--bind", address];
    let mut command = match guest_name {
        Some(name) => guest(folder, name, &words),
        None => {
            let mut plain = Command::new(words[0]);
            plain.args(&words[1..]).current_dir(&folder.0);
            plain
        }
    };
    let server = Running::start(&mut command);
    server.until_on_stdout("Serving HTTP on");
    server
}

fn get(folder: &Folder, urls: &[&str]) -> Ended {
    let words = [&["python3", "-c", CLIENT], urls].concat();
    Running::start(&mut guest(folder, "client", &words)).wait()
}

/// An answer to a query about guests.
fn query(folder: &Folder, words: &[&str]) -> Value {
    let socket = folder.path("control.socket");
    let asked =
        Command::new(PROGRAM).arg("guest").args(words).arg("--json").arg("--socket").arg(socket).output();
    let asked = asked.unwrap();
    let text = String::from_utf8_lossy(&asked.stdout);
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{asked:?}"))
}

fn of_type<'e>(all: &'e [Value], kind: &str) -> Vec<&'e Value> {
    all.iter().filter(|event| event["event_type"] == kind).collect()
}

fn eve(folder: &Folder) -> Vec<Value> {
    events::parse(&folder.read("out/eve.json"))
}

#[test]
fn an_attack_between_two_guests_is_blocked_and_a_good_request_passes() {
    in_namespace(|| {
        for (v6, address, host) in [(false, "192.0.2.2", "192.0.2.2"), (true, "2001:db8::2", "[2001:db8::2]")]
        {
            network_once(v6);
            let folder = Folder::new();
            let running = begin(&folder);
            let server = web_server(&folder, Some("server"), address);
            let (good, attack) =
                (format!("http://{host}:8000/good.txt"), format!("http://{host}:8000/attack.txt"));
            let ended = get(&folder, &[&good, &attack, &good]);
            let lines: Vec<&str> = ended.stdout.lines().collect();
            // 13: EACCES.
            assert_eq!(lines, ["200 11", "error 13", "200 11"], "{ended:?} {}", running.stderr());
            let listed = query(&folder, &["list"]);
            let client = &listed["message"]["guests"][0];
            assert_eq!(client["connections_without_tcp"], 3, "{listed}");
            assert!(client["bytes"]["sent"].as_u64() > Some(100), "{listed}");
            let status = query(&folder, &["status", "client"]);
            let blocked = &status["message"]["blocked"][0];
            assert_eq!(
                (&blocked["function"], &blocked["rule"], &blocked["reason"], &blocked["peer_guest"]),
                (&"ids".into(), &1.into(), &"ids_rule".into(), &"server".into()),
                "{status}"
            );
            let server = server.stop();
            assert!(server.stderr.contains("/good.txt") && !server.stderr.contains("/attack"), "{server:?}");
            let stopped = running.stop();
            assert_eq!(stopped.code, Some(0), "{stopped:?}");
            assert!(!stopped.stdout.contains("do not agree"), "{stopped:?}");
            check_records(&folder, address);
        }
    });
}

fn network_once(already: bool) {
    if !already {
        network();
    }
}

fn check_records(folder: &Folder, server: &str) {
    let all = eve(folder);
    let alerts = of_type(&all, "alert");
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    assert_eq!(
        (&alerts[0]["alert"]["action"], &alerts[0]["http"]["url"]),
        (&"blocked".into(), &"/attack.txt".into())
    );
    let (flows, http) = (of_type(&all, "flow"), of_type(&all, "http"));
    // One flow for both ends.
    assert_eq!((flows.len(), http.len() >= 2), (3, true), "{flows:?} {http:?}");
    for event in alerts.iter().chain(&flows).chain(&http) {
        let own = &event["bartizan"];
        let program = &own["stream_path"];
        let executable = program["executable"].as_str().unwrap_or_default();
        assert!(executable.contains("python"), "{event}");
        assert!(program["pid"].as_u64() > Some(1) && program["cgroup"].as_str().is_some(), "{event}");
        assert_eq!((&own["link"], &program["peer_guest"]), (&"client".into(), &"server".into()), "{event}");
    }
    for flow in flows {
        assert_eq!(
            (&flow["dest_ip"], &flow["dest_port"], &flow["app_proto"]),
            (&server.into(), &8000.into(), &"http".into())
        );
    }
}

#[test]
fn what_a_policy_refuses_of_a_guest_is_refused_before_the_first_packet() {
    in_namespace(|| {
        network();
        let folder = Folder::new();
        let running = begin(&folder);
        // A server without the library: the engine connects to it by TCP.
        let server = web_server(&folder, None, "192.0.2.3");
        let [good, attack, mail] = ["192.0.2.3:8000/good.txt", "192.0.2.3:8000/attack.txt", "192.0.2.3:25/"]
            .map(|rest| format!("http://{rest}"));
        let ended = get(&folder, &[&good, &attack, &mail]);
        assert_eq!(ended.stdout.lines().collect::<Vec<_>>(), ["200 11", "error 13", "error 13"], "{ended:?}");
        let server = server.stop();
        assert!(!server.stderr.contains("/attack"), "{server:?}");
        let stopped = running.stop();
        assert_eq!(stopped.code, Some(0), "{stopped:?}");
        let all = eve(&folder);
        let flows = of_type(&all, "flow");
        assert_eq!(flows.len(), 3, "{flows:?}");
        // The addresses are those that the server sees.
        assert!(
            flows.iter().all(|flow| flow["src_ip"] == "192.0.2.1" && flow["src_port"].as_u64() > Some(1))
        );
        let drops = of_type(&all, "drop");
        assert!(
            drops.iter().any(|drop| drop["dest_port"] == 25 && drop["bartizan"]["function"] == "pfw"),
            "{drops:?}"
        );
    });
}

#[test]
fn a_command_runs_under_a_policy_of_its_own() {
    in_namespace(|| {
        network();
        let folder = Folder::new();
        folder.write("policy.yaml", POLICY);
        folder.write("web.rules", RULES);
        folder.write("good.txt", "good words\n");
        let server = web_server(&folder, None, "192.0.2.3");
        let mut command = Command::new(PROGRAM);
        command.args(["guest", "run", "--policy", "policy.yaml", "--out", "out", "--library"]).arg(library());
        command.args([
            "--",
            "python3",
            "-c",
            CLIENT,
            "http://192.0.2.3:8000/good.txt",
            "http://192.0.2.3:8000/attack",
        ]);
        let ended = Running::start(command.current_dir(&folder.0)).wait();
        assert_eq!(ended.stdout.lines().collect::<Vec<_>>(), ["200 11", "error 13"], "{ended:?}");
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let all = eve(&folder);
        assert_eq!(of_type(&all, "alert").len(), 1, "{all:?}");
        drop(server);
    });
}

#[test]
fn a_guest_that_cannot_be_is_refused_with_what_to_do() {
    let folder = Folder::new();
    let socket = folder.path("none.socket");
    let mut command = guest(&folder, "none", &["true"]);
    let ended = Running::start(&mut command).wait();
    assert!(ended.code == Some(3) && ended.stderr.contains(&*socket.to_string_lossy()), "{ended:?}");
    assert!(ended.stderr.contains("is bartizan running"), "{ended:?}");
    let ended =
        common::run(&folder.0, &["guest", "run", "--library", &library().to_string_lossy(), "--", "true"]);
    assert!(ended.code == Some(2) && ended.stderr.contains("--link NAME"), "{ended:?}");
}
