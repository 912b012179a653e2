// SPDX-License-Identifier: Apache-2.0
//! Hosts that use Multipath TCP (RFC 8684) through `bartizan run` inline, in both IP versions: where
//! payloads are inspected both fall back to plain TCP, which the receiver reads in the inspected order;
//! without inspection they keep Multipath TCP (needs root and a kernel with Multipath TCP; without, it
//! prints so and returns).

use crate::common;
use crate::held_open::host;
use crate::level;
use crate::namespace;
use crate::windows::own_network;

use bartizan_testkit_worker::events;
use common::{Folder, PROGRAM, Running};
use level::{ends_well, network};
use namespace::{in_namespace_for, ip};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const SERVERS: [(&str, &str); 2] = [("AF_INET", "192.0.2.2"), ("AF_INET6", "2001:db8::2")];

/// Answers each connection with its data, and whether it is one of Multipath TCP.
const SERVER: &str = "
import socket, threading
def serve(listener):
    while True:
        there = listener.accept()[0]
        said = there.recv(100)
        there.sendall(said + b' %d' % there.getsockopt(6, 43))
        there.close()
for family in socket.AF_INET, socket.AF_INET6:
    listener = socket.socket(family, socket.SOCK_STREAM, 262)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listener.bind(('', 4000))
    listener.listen()
    threading.Thread(target=serve, args=(listener,)).start()
print('there', flush=True)
";

/// Sends some text, and prints the answer and whether the connection is one of Multipath TCP.
const CLIENT: &str = "
import socket, sys
family, server, says, patience = sys.argv[1:]
here = socket.socket(getattr(socket, family), socket.SOCK_STREAM, 262)
here.settimeout(float(patience))
here.connect((server, 4000))
here.sendall(says.encode())
try:
    print(here.recv(100).decode(), here.getsockopt(6, 43))
except TimeoutError:
    print('nothing')
";

fn python(script: &str) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", script]).stdin(Stdio::null());
    command
}

/// The server's process, in a namespace of its own that has `b0`.
struct Server {
    child: Child,
}

impl Server {
    fn new() -> Self {
        let (say, hear) = mpsc::channel();
        let (there, wait) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            say.send(own_network()).unwrap();
            wait.recv().unwrap();
            host("b0", (2, 1));
            let mut child = python(SERVER).stdout(Stdio::piped()).spawn().unwrap();
            let mut said = [0; 5];
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
            child
        });
        ip(&format!("link set b0 netns {}", hear.recv().unwrap()));
        there.send(()).unwrap();
        Server { child: thread.join().unwrap() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn asks((family, server): (&str, &str), says: &str, patience: &str) -> String {
    let output = python(CLIENT).args([family, server, says, patience]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn hosts_with_multipath_fall_back_to_what_was_inspected() {
    if std::fs::read_to_string("/proc/sys/net/mptcp/enabled").is_ok_and(|enabled| enabled.trim() == "1") {
        in_namespace_for(PATIENCE, both);
    } else {
        eprintln!("skipped: this kernel has no Multipath TCP");
    }
}

fn both() {
    let ports = network(1500);
    drop(ports);
    let server = Server::new();
    host("a0", (1, 2));
    for (chain, speaks) in [("[]", "1"), ("[ids], ids: {rules: [local.rules]}", "0")] {
        let folder = Folder::new();
        folder.write(
            "policy.yaml",
            format!(
                "policies: [{{name: all, from: any, to: any, chain: {chain}}}]\ndefault: {{action: drop}}\n"
            ),
        );
        folder.write(
            "local.rules",
            "drop tcp any any -> any 4000 (msg:\"no\"; flow:established,to_server; content:\"forbidden\"; sid:1;)\n",
        );
        folder.write(
            "bartizan.yaml",
            "links: [{name: wan, inline: {a: a1, b: b1}, workers: 1}]\npolicy: policy.yaml\ncache: none\noutputs: {eve: {dir: out}}\n",
        );
        let mut command = Command::new(PROGRAM);
        let running = Running::start(
            command.args(["run", "-c", "bartizan.yaml", "--control", "none"]).current_dir(&folder.0),
        );
        running.until("running on");
        let inspected = speaks == "0";
        for server in SERVERS {
            assert_eq!(asks(server, "hello", "20"), format!("hello {speaks} {speaks}"), "{chain} {server:?}");
            let forbidden = asks(server, "forbidden", if inspected { "1" } else { "20" });
            let expected =
                if inspected { "nothing".to_owned() } else { format!("forbidden {speaks} {speaks}") };
            assert_eq!(forbidden, expected, "{chain} {server:?}");
        }
        ends_well(running);
        let events = events::read(&folder.path("out/eve.json"));
        let alerts = events::of_type(&events, "alert").count();
        assert_eq!(alerts >= 2, inspected, "{chain}");
        let cleared = level::counter(&folder, "normaliser.multipath_cleared");
        assert_eq!(cleared >= 4, inspected, "{chain}: {cleared}");
    }
    drop(server);
}
