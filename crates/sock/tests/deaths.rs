// SPDX-License-Identifier: Apache-2.0
//! Programs that are killed at random under load: nothing of them stays, and no other guest notices.
//! `BARTIZAN_DEATHS=n` for more of them.

use crate::common::Host;
use bartizan_testkit::namespace::{inside, run};
use bartizan_testkit::random::Random;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Connects, sends and reads as fast as it can, with children that share its streams.
const LOAD: &str = r#"
import os, socket, sys, threading
address = ("127.0.0.1", int(sys.argv[1]))
def exchange():
    while True:
        s = socket.create_connection(address)
        for size in (10, 3000, 90000):
            sender = threading.Thread(target=s.sendall, args=(b"x" * size,))
            sender.start()
            left = size
            while left:
                left -= len(s.recv(left))
            sender.join()
        if os.fork() == 0:
            s.sendall(b"child")
            os._exit(0)
        os.waitpid(-1, 0)
        s.close()
print("ready", flush=True)
threading.Thread(target=exchange).start()
exchange()
"#;

/// Sends a number and waits for it, until its input ends; says how many there were.
const OTHER: &str = r#"
import select, socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
count = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    text = b"%08d" % count
    s.sendall(text)
    got = b""
    while len(got) < 8:
        part = s.recv(8 - len(got))
        assert part, "the stream ended"
        got += part
    assert got == text
    count += 1
print(count)
"#;

fn echo_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            std::thread::spawn(move || {
                let mut buffer = [0; 65_536];
                while let Ok(count @ 1..) = connection.read(&mut buffer) {
                    if connection.write_all(&buffer[..count]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn killed_programs_leave_nothing_and_disturb_nobody() {
    if !inside("killed_programs_leave_nothing_and_disturb_nobody") {
        return;
    }
    run("ip", "link set lo up");
    let deaths = std::env::var("BARTIZAN_DEATHS").map_or(20, |text| text.parse().expect("a number"));
    let host = Host::start();
    let (guest, other) = (host.guest(0, false), host.guest(1, false));
    let port = echo_server().to_string();
    let before = open_descriptors();
    let mut bystander = other.command("python3");
    bystander.args(["-c", OTHER, &port]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut bystander = bystander.spawn().unwrap();
    let mut random = Random::new(7);
    for _ in 0..deaths {
        let mut command = guest.command("python3");
        let mut program = command.args(["-c", LOAD, &port]).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        program.stdout.take().unwrap().read_exact(&mut ready).unwrap();
        std::thread::sleep(Duration::from_millis(random.below(60) as u64));
        program.kill().unwrap();
        program.wait().unwrap();
    }
    let report = host.wait_until_empty(&guest);
    assert!(report.connections > deaths, "{report:?}");
    drop(bystander.stdin.take());
    let output = bystander.wait_with_output().unwrap();
    assert!(output.status.success(), "the other guest's stream was disturbed");
    let count: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    assert!(count > 100, "{count}");
    host.wait_until_empty(&other);
    let begin = Instant::now();
    while open_descriptors() > before {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "{before} descriptors, then {}",
            open_descriptors()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}
