// SPDX-License-Identifier: Apache-2.0
//! `tls.store` through the whole program: the stored certificates have the form of Suricata 8.0.8. IPv4 and
//! IPv6 alike.

use crate::sample as common;

use common::{ACK, Capture, FIN, Folder, SYN};
use serde_json::Value;
use std::net::IpAddr;
use std::os::unix::fs::{PermissionsExt as _, symlink};

/// Length in `bytes` bytes, then the body.
fn sized(bytes: usize, body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes()[4 - bytes..], body].concat()
}

fn record(body: &[u8]) -> Vec<u8> {
    [&[22, 3, 3][..], &sized(2, body)].concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &sized(3, body)].concat()
}

fn der(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = match body.len() {
        n @ 0..=127 => vec![n as u8],
        n @ 128..=255 => vec![0x81, n as u8],
        n => vec![0x82, (n >> 8) as u8, n as u8],
    };
    [&[tag][..], &length, body].concat()
}

fn common_name(text: &str) -> Vec<u8> {
    let attribute = [der(6, &[0x55, 4, 3]), der(0x0c, text.as_bytes())].concat();
    der(0x30, &der(0x31, &der(0x30, &attribute)))
}

/// A certificate, as far as it is read.
fn certificate(issuer: &str, subject: &str) -> Vec<u8> {
    let algorithm =
        der(0x30, &[der(6, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11]), der(5, &[])].concat());
    let key = der(0x30, &[algorithm.clone(), der(3, &[0, 1, 2, 3])].concat());
    let validity = der(0x30, &[der(0x17, b"200101000000Z"), der(0x17, b"400101000000Z")].concat());
    let version = der(0xa0, &der(2, &[2]));
    let (issuer, subject) = (common_name(issuer), common_name(subject));
    let fields = [version, der(2, &[7]), algorithm.clone(), issuer, validity, subject, key].concat();
    der(0x30, &[der(0x30, &fields), algorithm, der(3, &[0, 5, 6])].concat())
}

fn certificates(list: &[Vec<u8>]) -> Vec<u8> {
    let all: Vec<u8> = list.iter().flat_map(|c| sized(3, c)).collect();
    message(11, &sized(3, &all))
}

fn server_chain() -> Vec<Vec<u8>> {
    vec![certificate("inter", "server\nx"), certificate("root", "inter")]
}

fn client_chain() -> Vec<Vec<u8>> {
    vec![certificate("inter", "client")]
}

/// For each IP version a session of TLS 1.2 in which both sides send certificates: 10 packets.
fn capture() -> Vec<u8> {
    let hello = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0, 0x2f, 1, 0]].concat();
    let answer = [&[3, 3][..], &[9; 32], &[0, 0, 0x2f, 0]].concat();
    let asked = message(13, &[1, 1, 0, 0]);
    let flight = [message(2, &answer), certificates(&server_chain()), asked, message(14, &[])].concat();
    let (hello, flight) = (record(&message(1, &hello)), record(&flight));
    let own = record(&certificates(&client_chain()));
    let (h, f, o) = (hello.len() as u32, flight.len() as u32, own.len() as u32);
    let mut capture = Capture::default();
    for (client, server) in [("10.0.0.1", "192.0.2.7"), ("2001:db8::1", "2001:db8:1::7")] {
        let client: (IpAddr, u16) = (client.parse().unwrap(), 40_000);
        let server: (IpAddr, u16) = (server.parse().unwrap(), 443);
        capture.tcp(client, server, (100, 0), SYN, b"");
        capture.tcp(server, client, (900, 101), SYN | ACK, b"");
        capture.tcp(client, server, (101, 901), ACK, b"");
        capture.tcp(client, server, (101, 901), ACK, &hello);
        capture.tcp(server, client, (901, 101 + h), ACK, &flight);
        capture.tcp(client, server, (101 + h, 901 + f), ACK, &own);
        capture.tcp(server, client, (901 + f, 101 + h + o), ACK, b"");
        capture.tcp(client, server, (101 + h + o, 901 + f), FIN | ACK, b"");
        capture.tcp(server, client, (901 + f, 102 + h + o), FIN | ACK, b"");
        capture.tcp(client, server, (102 + h + o, 902 + f), ACK, b"");
    }
    capture.pcap()
}

fn stage(name: &str) -> Folder {
    let folder = Folder::new(name);
    folder.write("c.pcap", capture());
    folder
}

const STORE: [&str; 4] =
    ["--set", "outputs.9.tls-store.enabled=yes", "--set", "outputs.9.tls-store.certs-log-dir=certs"];
const ANY: &str = "alert tls any any -> any any (msg:\"x\"; tls.store; sid:1;)";

/// Inspects the folder's capture with a rule; returns standard error.
fn inspect(folder: &Folder, rule: &str, out: &str, more: &[&str]) -> String {
    folder.write("r.rules", rule);
    let args = ["inspect", "--rules", "r.rules", "--out", out, "--json"];
    let ran = folder.run(&[&args[..], more, &["c.pcap"][..]].concat());
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    ran.stderr()
}

fn stats(folder: &Folder, out: &str) -> Value {
    let text = std::fs::read(folder.path().join(out).join("stats.json")).expect("stats");
    serde_json::from_slice(&text).expect("JSON")
}

/// Names in the folder of certificates, in order.
fn names(folder: &Folder, out: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder.path().join(out).join("certs")) else { return Vec::new() };
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn read(folder: &Folder, out: &str, name: &str) -> String {
    std::fs::read_to_string(folder.path().join(out).join("certs").join(name)).expect(name)
}

/// The certificates in a PEM file.
fn from_pem(text: &str) -> Vec<Vec<u8>> {
    let sextet = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("{c}"),
    };
    let body = |part: &str| -> Vec<u8> {
        let text: Vec<u8> = part.lines().flat_map(|line| line.bytes()).filter(|c| *c != b'=').collect();
        let group = |four: &[u8]| -> Vec<u8> {
            let word = four.iter().fold(0u32, |word, c| word << 6 | u32::from(sextet(*c)));
            let word = word << (6 * (4 - four.len()));
            word.to_be_bytes()[1..four.len()].to_vec()
        };
        text.chunks(4).flat_map(group).collect()
    };
    assert!(text.lines().all(|line| line.len() <= 64) && text.ends_with("-----END CERTIFICATE-----\n"));
    let parts = text.split("-----BEGIN CERTIFICATE-----\n").skip(1);
    parts.map(|part| body(part.split("-----END").next().unwrap())).collect()
}

#[test]
fn both_sides_are_stored_once_as_suricata_does() {
    let folder = stage("tls-store");
    for (threads, out) in [("1", "one"), ("2", "two")] {
        inspect(&folder, ANY, out, &[&STORE[..], &["--threads", threads]].concat());
        assert_eq!(stats(&folder, out)["tls_store.stored"], 4);
        assert_eq!(names(&folder, out).len(), 8);
        for name in names(&folder, out) {
            let path = folder.path().join(out).join("certs").join(&name);
            assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o7777, 0o640, "{name}");
            if name.ends_with(".pem") {
                let client = name.starts_with("client-");
                let expected = if client { client_chain() } else { server_chain() };
                assert_eq!(from_pem(&read(&folder, out, &name)), expected, "{name}");
            }
        }
    }
    // The packet that acknowledges the certificates, its time, and a number that goes on. Microseconds are
    // not filled up.
    let pems: Vec<_> = names(&folder, "one").into_iter().filter(|n| n.ends_with(".pem")).collect();
    assert_eq!(
        pems,
        [
            "1700000000.150000-3.pem",
            "1700000000.50000-1.pem",
            "client-1700000000.160000-4.pem",
            "client-1700000000.60000-2.pem"
        ]
    );
    let fingerprint = |which: usize| {
        let record = &folder.events("one", "tls")[which]["tls"]["fingerprint"];
        record.as_str().expect("a fingerprint").to_owned()
    };
    assert_eq!(
        read(&folder, "one", "1700000000.50000-1.meta"),
        format!(
            "TIME:              11/14/2023-22:13:20.050000\nPCAP PKT NUM:      6\nSRC IP:            10.0.0.1\n\
             DST IP:            192.0.2.7\nPROTO:             6\nSRC PORT:          40000\nDST PORT:          443\n\
             TLS SUBJECT:       CN=server\\u000ax\nTLS ISSUERDN:      CN=inter\nTLS FINGERPRINT:   {}\n",
            fingerprint(0)
        )
    );
    let client = read(&folder, "one", "client-1700000000.160000-4.meta");
    let head = "TIME:              11/14/2023-22:13:20.160000\nPCAP PKT NUM:      17\n\
                SRC IP:            2001:0db8:0000:0000:0000:0000:0000:0001\n\
                DST IP:            2001:0db8:0001:0000:0000:0000:0000:0007\nPROTO:             6\n\
                SRC PORT:          40000\nDST PORT:          443\nTLS SUBJECT:       CN=client\n";
    assert!(client.starts_with(head), "{client}");
}

#[test]
fn the_side_of_the_matching_packet_is_stored() {
    let folder = stage("tls-store-side");
    let of = |out: &str, rule: &str| {
        inspect(&folder, rule, out, &STORE);
        let names = names(&folder, out).into_iter().filter(|n| n.ends_with(".pem"));
        names.map(|n| n.starts_with("client-")).collect::<Vec<_>>()
    };
    assert_eq!(of("server", &ANY.replace("tls.store", "flow:to_client; tls_store")), [false, false]);
    assert_eq!(of("client", &ANY.replace("tls.store", "flow:to_server; tls.store")), [true, true]);
    // A match on a transaction, by a rule that reports nothing; and one that does not match.
    let subject = "alert tls any any -> any any (msg:\"x\"; noalert; tls.cert_subject; content:\"server\"; tls.store; sid:1;)";
    assert_eq!(of("subject", subject), [false, false]);
    assert!(folder.events("subject", "alert").is_empty());
    assert_eq!(of("none", &subject.replace("\"server", "\"other")), [] as [bool; 0]);
    assert_eq!(stats(&folder, "none")["tls_store.stored"], 0);
}

#[test]
fn without_the_output_nothing_is_stored_and_that_is_said() {
    let folder = stage("tls-store-off");
    let said = inspect(&folder, ANY, "out", &["--set", "outputs.9.tls-store.certs-log-dir=certs"]);
    assert!(said.contains("no certificate is stored"), "{said}");
    assert!(!folder.path().join("out/certs").exists());
    assert!(!folder.events("out", "alert").is_empty(), "the rule runs all the same");
    let said = inspect(&folder, &ANY.replace("tls.store; ", ""), "without", &[]);
    assert!(!said.contains("no certificate is stored"), "{said}");
    // A folder that cannot be had ends the run before it begins.
    folder.write("file", "x");
    let set =
        ["--set", "outputs.9.tls-store.enabled=yes", "--set", "outputs.9.tls-store.certs-log-dir=../file"];
    let args = [&["inspect", "--rules", "r.rules", "--out", "bad"][..], &set, &["c.pcap"]].concat();
    let ran = folder.run(&args);
    assert_ne!(ran.code(), 0);
    assert!(ran.stderr().contains("cannot store certificates in bad/../file"), "{}", ran.stderr());
}

#[test]
fn a_check_reads_the_settings() {
    let folder = stage("tls-store-check");
    folder.write("r.rules", ANY);
    let check = |set: &[&str]| folder.run(&[&["check", "-v", "r.rules"][..], set].concat());
    let fine = check(&STORE);
    assert_eq!(fine.code(), 0, "{}", fine.stderr());
    assert!(!fine.stderr().contains("tls-store"), "{}", fine.stderr());
    let bad = check(&["--set", "outputs.9.tls-store.enabled=maybe"]);
    assert_ne!(bad.code(), 0);
    assert!(bad.stderr().contains("outputs.9.tls-store.enabled"), "{}", bad.stderr());
    let misspelt =
        check(&["--set", "outputs.9.tls-store.enabled=yes", "--set", "outputs.9.tls-store.certs-dir=x"]);
    assert!(
        misspelt.stderr().contains("there is no setting `outputs.9.tls-store.certs-dir`"),
        "{}",
        misspelt.stderr()
    );
}

#[test]
fn a_link_in_a_files_place_is_not_followed() {
    let folder = stage("tls-store-link");
    let precious = folder.write("precious", "precious");
    std::fs::create_dir_all(folder.path().join("out/certs")).unwrap();
    symlink(&precious, folder.path().join("out/certs/1700000000.50000-1.pem")).unwrap();
    folder.write("r.rules", ANY);
    let args = [&["inspect", "--rules", "r.rules", "--out", "out"][..], &STORE, &["c.pcap"]].concat();
    let ran = folder.run(&args);
    assert!(ran.stderr().contains("it is a symbolic link"), "{}", ran.stderr());
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    let stats = stats(&folder, "out");
    assert_eq!((&stats["tls_store.stored"], &stats["tls_store.fs_errors"]), (&3.into(), &1.into()));
}
