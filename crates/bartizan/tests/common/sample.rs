// SPDX-License-Identifier: Apache-2.0
//! Shared parts of the program's tests: a folder of their own, the program, a small capture.
#![allow(dead_code)] // Not every test uses everything.

use bartizan_testkit::packet::{self, End, Layer};
use bartizan_testkit_worker::events;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed with its test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("bartizan-{name}-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).expect("a file");
        path
    }

    /// Runs the program in the folder.
    pub fn run(&self, args: &[&str]) -> Ran {
        let output = Command::new(env!("CARGO_BIN_EXE_bartizan")).args(args).current_dir(&self.0).output();
        Ran(output.expect("the program runs"))
    }

    /// The events that an earlier run wrote, of one type.
    pub fn events(&self, out: &str, kind: &str) -> Vec<serde_json::Value> {
        let all = events::read(&self.0.join(out).join("eve.json"));
        events::of_type(&all, kind).cloned().collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A finished run.
pub struct Ran(pub Output);

impl Ran {
    pub fn code(&self) -> i32 {
        self.0.status.code().unwrap_or(-1)
    }
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }
    /// The result of a run that succeeds.
    pub fn json(&self) -> serde_json::Value {
        assert_eq!(self.code(), 0, "{}", self.stderr());
        serde_json::from_str(&self.stdout()).expect("JSON on stdout")
    }
}

pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;
pub const PSH: u8 = 8;
pub const FIN: u8 = 1;

/// Frames with times 10 ms apart.
#[derive(Default)]
pub struct Capture(Vec<Vec<u8>>);

impl Capture {
    /// Adds a frame unchanged.
    pub fn frame(&mut self, frame: Vec<u8>) {
        self.0.push(frame);
    }

    pub fn udp(&mut self, from: End, to: End, data: &[u8]) {
        self.0.push(packet::udp(from, to, data).frame());
    }

    pub fn tcp(&mut self, from: End, to: End, numbers: (u32, u32), flags: u8, data: &[u8]) {
        let mut packet = packet::tcp(from, to, numbers, flags, data);
        if let Layer::Tcp(segment) = &mut packet.layer {
            segment.window = 0xfaf0;
        }
        self.0.push(packet.frame());
    }

    /// Adds a frame that its receiver discards: with a wrong checksum.
    pub fn unsummed(&mut self, from: End, to: End, numbers: (u32, u32), flags: u8, data: &[u8]) {
        let mut packet = packet::tcp(from, to, numbers, flags, data);
        if let Layer::Tcp(segment) = &mut packet.layer {
            segment.chksum_error = 77;
        }
        self.0.push(packet.frame());
    }

    /// A whole connection with a request and its response: 9 packets.
    pub fn exchange(&mut self, client: End, server: End, request: &[u8], response: &[u8]) {
        let (r, s) = (request.len() as u32, response.len() as u32);
        self.tcp(client, server, (100, 0), SYN, b"");
        self.tcp(server, client, (900, 101), SYN | ACK, b"");
        self.tcp(client, server, (101, 901), ACK, b"");
        self.tcp(client, server, (101, 901), PSH | ACK, request);
        self.tcp(server, client, (901, 101 + r), PSH | ACK, response);
        self.tcp(client, server, (101 + r, 901 + s), ACK, b"");
        self.tcp(client, server, (101 + r, 901 + s), FIN | ACK, b"");
        self.tcp(server, client, (901 + s, 102 + r), FIN | ACK, b"");
        self.tcp(client, server, (102 + r, 902 + s), ACK, b"");
    }

    /// The frames as a classic capture file.
    pub fn pcap(&self) -> Vec<u8> {
        bartizan_testkit::capture::paced(10_000, &self.0)
    }
}

pub const REQUEST: &[u8] = b"GET /cgi/../etc/passwd HTTP/1.1\r\nHost: shop.example\r\n\r\n";
pub const RESPONSE: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno";

/// For each IP version: packets 1 to 9 (and 11 to 19) an HTTP exchange, packet 10 (and 20) a SYN to port 22.
pub fn sample() -> Vec<u8> {
    let mut capture = Capture::default();
    for (client, server) in [("10.0.0.1", "192.0.2.7"), ("2001:db8::1", "2001:db8:1::7")] {
        let (client, server): (IpAddr, IpAddr) = (client.parse().unwrap(), server.parse().unwrap());
        capture.exchange((client, 40_000), (server, 80), REQUEST, RESPONSE);
        capture.tcp((client, 40_001), (server, 22), (7, 0), SYN, b"");
    }
    capture.pcap()
}

pub const POLICY: &str = "\
groups: {lan: [10.0.0.0/8, \"2001:db8::/48\"]}
rule-groups: {web: [web.rules]}
tenants:
  - {name: red, select: {vlan: 102}}
service-levels:
  - {hosts: 10.9.0.0/16, level: none}
policies:
  - {name: branch, link: branch, from: lan, chain: [ids], ids: {level: web}}
  - {name: red-only, tenant: red, chain: []}
  - name: web
    from: lan
    to: [192.0.2.0/24, \"2001:db8:1::/48\"]
    chain: [pfw, sfw, ids]
    pfw:
      default: drop
      rules:
        - {allow: [icmp, icmpv6]}
        - {allow: tcp, to-ports: [80, 443]}
        - {reject: tcp, to-ports: 23}
    sfw: {max-half-open: 100}
    ids: {level: web}
default: {action: drop}
";

pub const RULES: &str = "\
drop http any any -> any any (msg:\"traversal\"; flow:established,to_server; http.uri.raw; content:\"etc/\"; content:\"passwd\"; distance:0; sid:1; rev:3;)
alert tcp any any -> any 25 (msg:\"mail\"; flow:to_server; content:\"HELO\"; sid:2;)
alert tcp any any -> any any (msg:\"needs a bit\"; flowbits:isset,never.set; content:\"GET\"; sid:3;)
alert http any any -> any any (msg:\"other host\"; flow:to_server; http.host; content:\"other.example\"; bsize:13; sid:4;)
alert ip any any -> any any (msg:\"any packet\"; ttl:64; sid:5;)
";

/// A folder with capture, policy and rules.
pub fn stage(name: &str) -> Folder {
    let folder = Folder::new(name);
    folder.write("c.pcap", sample());
    folder.write("p.yaml", POLICY);
    folder.write("web.rules", RULES);
    folder
}
