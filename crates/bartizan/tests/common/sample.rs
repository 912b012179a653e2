// SPDX-License-Identifier: Apache-2.0
//! What the program's tests share: a folder of their own, the program, a small capture built byte by byte.
#![allow(dead_code)] // Not every test uses everything.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder that is gone with its test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bartizan-{name}-{}", std::process::id()));
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
        let text = std::fs::read_to_string(self.0.join(out).join("eve.json")).expect("events");
        let all = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        all.filter(|event| event["event_type"] == kind).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A run that is over.
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
pub const ACK: u8 = 16;
pub const PSH: u8 = 8;
pub const FIN: u8 = 1;

/// Frames with times 10 ms apart.
#[derive(Default)]
pub struct Capture(Vec<Vec<u8>>);

fn sum(parts: &[&[u8]]) -> u16 {
    let mut total = 0u32;
    for part in parts {
        for pair in part.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        }
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

impl Capture {
    /// A frame as it is.
    pub fn frame(&mut self, frame: Vec<u8>) {
        self.0.push(frame);
    }

    /// A packet: Ethernet, IP, and a segment whose checksum stands at `place`.
    pub fn ip(&mut self, from: IpAddr, to: IpAddr, protocol: u8, mut segment: Vec<u8>, place: usize) {
        let (source, destination) = (bytes(from), bytes(to));
        let length = (segment.len() as u16).to_be_bytes();
        let checksum = sum(&[&source, &destination, &[0, protocol], &length, &segment]).to_be_bytes();
        segment[place..place + 2].copy_from_slice(&checksum);
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if from.is_ipv4() {
            frame.extend_from_slice(&[8, 0]);
            let total = (20 + segment.len() as u16).to_be_bytes();
            let mut head = vec![0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, protocol, 0, 0];
            head.extend_from_slice(&source);
            head.extend_from_slice(&destination);
            let checksum = sum(&[&head]).to_be_bytes();
            head[10..12].copy_from_slice(&checksum);
            frame.extend_from_slice(&head);
        } else {
            frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, length[0], length[1], protocol, 64]);
            frame.extend_from_slice(&source);
            frame.extend_from_slice(&destination);
        }
        frame.extend_from_slice(&segment);
        self.0.push(frame);
    }

    pub fn tcp(
        &mut self,
        from: (IpAddr, u16),
        to: (IpAddr, u16),
        (seq, ack): (u32, u32),
        flags: u8,
        data: &[u8],
    ) {
        let mut segment = Vec::new();
        segment.extend_from_slice(&from.1.to_be_bytes());
        segment.extend_from_slice(&to.1.to_be_bytes());
        segment.extend_from_slice(&seq.to_be_bytes());
        segment.extend_from_slice(&ack.to_be_bytes());
        segment.extend_from_slice(&[0x50, flags, 0xfa, 0xf0, 0, 0, 0, 0]);
        segment.extend_from_slice(data);
        self.ip(from.0, to.0, 6, segment, 16);
    }

    /// A whole connection with a request and its response: 9 packets.
    pub fn exchange(
        &mut self,
        client: (IpAddr, u16),
        server: (IpAddr, u16),
        request: &[u8],
        response: &[u8],
    ) {
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

    /// As a classic capture file.
    pub fn pcap(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for (number, frame) in self.0.iter().enumerate() {
            let length = frame.len() as u32;
            for word in [1_700_000_000, number as u32 * 10_000, length, length] {
                out.extend_from_slice(&word.to_le_bytes());
            }
            out.extend_from_slice(frame);
        }
        out
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
