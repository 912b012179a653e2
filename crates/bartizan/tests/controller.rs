// SPDX-License-Identifier: Apache-2.0
//! The controller as a program: acknowledged changes survive its sudden end, a full disk loses nothing,
//! malformed requests are refused and counted, and only one controller runs on a state.

use crate::common;
use crate::planes;

use bartizan_controller::client::{Client, ClientError};
use bartizan_controller::rest::Method;
use common::{Folder, PROGRAM};
use planes::Controller;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The administrator's token, made by the bootstrap token of the state.
fn administrator(running: &Controller, state: &Path) -> String {
    let bootstrap = std::fs::read_to_string(state.join("bootstrap-token")).unwrap();
    let mut client = running.client(state, bootstrap.trim());
    let body = json!({ "name": "me", "scope": "admin" });
    let made = client.request(Method::Post, "/v1/tokens", Some(&body), &[]).unwrap();
    assert_eq!(made.status, 201, "{}", made.body);
    made.body["token"].as_str().unwrap().to_owned()
}

fn put(client: &mut Client, path: &str, body: &Value) -> Result<u16, ClientError> {
    client.request(Method::Put, path, Some(body), &[]).map(|answer| answer.status)
}

/// The number of times to kill the controller: BARTIZAN_KILLS, or a few.
fn kills() -> u32 {
    std::env::var("BARTIZAN_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

#[test]
fn what_was_answered_is_there_after_a_sudden_end() {
    let folder = Folder::new();
    let state = folder.path("state");
    let mut running = Controller::start(&state);
    let token = administrator(&running, &state);
    let mut answered: Vec<(String, Value)> = Vec::new();
    let mut open = running.client(&state, &token);
    assert_eq!(
        put(
            &mut open,
            "/v1/tenants/acme",
            &json!({ "select": { "vni": 1 }, "quotas": { "groups": 1000000 } })
        )
        .unwrap(),
        201
    );
    for round in 0..kills() {
        // Two writers, so that some change is on its way at any time; killed at another moment each time.
        // Changes of this round that were answered.
        let count = Arc::new(AtomicU64::new(0));
        let write = |letter: char, mut client: Client| {
            let count = Arc::clone(&count);
            std::thread::spawn(move || {
                let mut done = Vec::new();
                for number in 0.. {
                    let path = format!("/v1/tenants/acme/groups/{letter}{round}-{number}");
                    let body = json!({ "members": [format!("10.{}.{}.0/24", round % 256, number % 256)] });
                    match put(&mut client, &path, &body) {
                        Ok(200 | 201) => {
                            done.push((path, body));
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(other) => panic!("{path}: {other}"),
                        Err(_) => break,
                    }
                }
                done
            })
        };
        let writers =
            [write('a', running.client(&state, &token)), write('b', running.client(&state, &token))];
        // On a busy machine the first answer takes its time.
        while count.load(Ordering::Relaxed) == 0 && writers.iter().any(|writer| !writer.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(40 + u64::from(round * 37 % 160)));
        running.kill();
        for writer in writers {
            answered.extend(writer.join().unwrap());
        }
        running = Controller::start(&state);
    }
    assert!(!answered.is_empty());
    let mut client = running.client(&state, &token);
    for (path, body) in &answered {
        let answer = client.request(Method::Get, path, None, &[]).unwrap();
        assert_eq!((answer.status, &answer.body["spec"]), (200, body), "{path}");
    }
    // Every generation has its row of the audit log, without a gap.
    let newest = client.request(Method::Get, "/v1/generations", None, &[]).unwrap().body["generation"]
        .as_u64()
        .unwrap();
    let (mut seen, mut cursor) = (0, String::new());
    loop {
        let page =
            client.request(Method::Get, &format!("/v1/audit?limit=500{cursor}"), None, &[]).unwrap().body;
        for row in page["items"].as_array().unwrap() {
            let generation = row["generation"].as_u64().unwrap();
            assert!(generation == seen || generation == seen + 1, "{row}");
            seen = generation;
        }
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, newest);
    assert!(newest >= answered.len() as u64);
    std::println!("{} answered changes are there after {} kills", answered.len(), kills());
}

/// Whether this process may mount: as root, and not in a container that forbids it.
fn may_mount() -> bool {
    Command::new("unshare")
        .args(["--mount", "true"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

#[test]
fn a_full_disk_is_said_and_loses_nothing() {
    if !may_mount() {
        std::eprintln!("skipped: no mount namespace here");
        return;
    }
    let folder = Folder::new();
    let state = folder.path("state");
    std::fs::create_dir(&state).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=1m none {0} && exec {PROGRAM} controller --listen 127.0.0.1:0 --state {0}",
        state.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--", "sh", "-c", &script]);
    let running = Controller::of(command).unwrap();
    // The folder as the controller sees it.
    let inside = Path::new("/proc")
        .join(running.child.id().to_string())
        .join("root")
        .join(state.strip_prefix("/").unwrap());
    let token = administrator(&running, &inside);
    let mut client = running.client(&inside, &token);
    let tenant = json!({ "select": { "vni": 1 }, "quotas": { "groups": 1000000 } });
    assert_eq!(put(&mut client, "/v1/tenants/acme", &tenant).unwrap(), 201);
    let body = json!({ "description": "x".repeat(20_000), "members": ["10.0.0.0/8"] });
    let mut done = 0;
    let full = loop {
        let answer = client
            .request(Method::Put, &format!("/v1/tenants/acme/groups/g{done}"), Some(&body), &[])
            .unwrap();
        if answer.status != 201 {
            break answer;
        }
        done += 1;
        assert!(done < 200, "a disk of 1 MiB has room for more than it can have");
    };
    assert_eq!(full.status, 507, "{}", full.body);
    assert!(full.body["detail"].as_str().unwrap().contains("make room"), "{}", full.body);
    // The restarted controller has every acknowledged change and no other.
    for number in 0..=done {
        let path = format!("/v1/tenants/acme/groups/g{number}");
        let answer = client.request(Method::Get, &path, None, &[]).unwrap();
        assert_eq!(answer.status, if number < done { 200 } else { 404 }, "{path}");
    }
    // Room again: it goes on.
    let more = Command::new("nsenter")
        .args([
            "--mount",
            "--target",
            &running.child.id().to_string(),
            "--",
            "mount",
            "-o",
            "remount,size=8m",
        ])
        .arg(&state)
        .status()
        .unwrap();
    assert!(more.success());
    assert_eq!(put(&mut client, &format!("/v1/tenants/acme/groups/g{done}"), &body).unwrap(), 201);
}

#[test]
fn a_second_controller_on_a_state_says_what_to_do() {
    let folder = Folder::new();
    let state = folder.path("state");
    let first = Controller::start(&state);
    let said = Controller::of(Controller::command(&state)).err().expect("a second one runs");
    assert!(said.contains("another controller has it open"), "{said}");
    // The first start printed the token's path; only the owner can read its file.
    use std::os::unix::fs::PermissionsExt;
    for name in ["bootstrap-token", "tls-key.pem"] {
        let mode = std::fs::metadata(state.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    // Once used, its file goes with the next start.
    administrator(&first, &state);
    first.kill();
    let again = Controller::start(&state);
    assert!(!state.join("bootstrap-token").exists());
    drop(again);
}

#[test]
fn what_is_no_request_is_refused_and_counted() {
    let folder = Folder::new();
    let state = folder.path("state");
    let running = Controller::start(&state);
    let token = administrator(&running, &state);
    // No TLS at all.
    let mut plain = TcpStream::connect(running.address).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    plain.write_all(b"GET /v1/tenants HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said);
    assert!(!said.windows(4).any(|w| w == b"HTTP"), "{said:?}");
    let mut client = running.client(&state, &token);
    let large = vec![b' '; (1 << 20) + 1];
    let answer = client
        .request_bytes(Method::Put, "/v1/tenants/a", Some(large.into()), &[])
        .map(|answer| answer.status);
    assert!(matches!(answer, Ok(413)), "{answer:?}");
    let mut client = running.client(&state, &token);
    assert_eq!(
        client.request_bytes(Method::Put, "/v1/tenants/a", Some("{".into()), &[]).unwrap().status,
        400
    );
    client.set_token(None);
    assert_eq!(client.request(Method::Get, "/v1/tenants", None, &[]).unwrap().status, 401);
    let mut client = running.client(&state, &token);
    let metrics = client.request(Method::Get, "/v1/metrics", None, &[]).unwrap().body;
    for what in ["tls", "too-large", "malformed", "unauthenticated"] {
        let line = format!("bartizan_controller_requests_total{{what=\"{what}\"}} 1\n");
        assert!(metrics.as_str().unwrap().contains(&line), "{what}: {metrics}");
    }
    // Another certificate is not that of this controller.
    let other = folder.path("other");
    drop(Controller::start(&other));
    let certificate = other.join("tls-certificate.pem");
    let mut wrong = Client::new(running.address, &certificate, Some(token)).unwrap();
    assert!(matches!(
        wrong.request(Method::Get, "/v1/tenants", None, &[]),
        Err(ClientError::Unreachable { .. })
    ));
}

/// Silent connections beyond the limit: a client with a token is answered all the same, at once.
#[test]
fn connections_that_say_nothing_keep_nobody_out() {
    let folder = Folder::new();
    let state = folder.path("state");
    let running = Controller::start(&state);
    let token = administrator(&running, &state);
    let mut open = running.client(&state, &token);
    assert_eq!(open.request(Method::Get, "/v1/tenants", None, &[]).unwrap().status, 200);
    let mut silent = Vec::new();
    for _ in 0..600 {
        silent.push(TcpStream::connect(running.address).unwrap());
        // Faster than they are taken the system itself would hold them up.
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..3 {
        let mut client = running.client(&state, &token);
        assert_eq!(client.request(Method::Get, "/v1/tenants", None, &[]).unwrap().status, 200);
    }
    // Who had shown its token has not made room.
    let metrics = open.request(Method::Get, "/v1/metrics", None, &[]).unwrap().body;
    let metrics = metrics.as_str().unwrap();
    let counted = |what: &str| {
        let head = format!("bartizan_controller_requests_total{{what=\"{what}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&head)?.parse::<u64>().ok()).unwrap()
    };
    assert!(counted("gave-way") >= 88 && counted("busy") == 0, "{metrics}");
    drop(silent);
}

/// The start messages of a controller that listens for agents.
fn says_with_agents(state: &Path) -> String {
    let mut child = Command::new(PROGRAM)
        .args(["controller", "--listen", "127.0.0.1:0", "--southbound", "127.0.0.1:0", "--state"])
        .arg(state)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut said = String::new();
    for line in lines {
        said.push_str(&line);
        if line.contains("listens for agents on 127.0.0.1:") {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    said
}

#[test]
fn the_first_start_makes_what_agents_need_and_the_next_one_takes_it() {
    let folder = Folder::new();
    let state = folder.path("state");
    let said = says_with_agents(&state);
    assert!(
        said.contains("made an authority in") && said.contains("made the controller's certificate"),
        "{said}"
    );
    let authority = std::fs::read(state.join("ca/ca.pem")).unwrap();
    let certificate = std::fs::read(state.join("controller.pem")).unwrap();
    let said = says_with_agents(&state);
    assert!(!said.contains("made"), "{said}");
    assert_eq!(std::fs::read(state.join("ca/ca.pem")).unwrap(), authority);
    assert_eq!(std::fs::read(state.join("controller.pem")).unwrap(), certificate);
    // `--ca` without a southbound address is a mistake.
    let done =
        Command::new(PROGRAM).args(["controller", "--ca", "x", "--state"]).arg(&state).output().unwrap();
    assert_eq!(done.status.code(), Some(2));
}
