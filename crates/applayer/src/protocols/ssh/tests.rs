// SPDX-License-Identifier: Apache-2.0
//! Tests of SSH.

use super::*;
use crate::event::EventCode;
use crate::suite::{self, Driver, Seed, protocol_suite};
use crate::transaction::LogOptions;
use Direction::{ToClient, ToServer};

const CLIENT: &[u8] = b"SSH-2.0-OpenSSH_10.0p2 Debian-7\r\n";
const SERVER: &[u8] = b"SSH-2.0-dropbear_2022.83\n";

/// A packet of the binary protocol without padding.
fn packet(message: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 2).expect("short");
    [&length.to_be_bytes()[..], &[0, message], body].concat()
}

/// SSH_MSG_KEXINIT with these lists, which are named by their numbers unless given.
fn kexinit(methods: &str) -> Vec<u8> {
    let mut body = vec![7; 16];
    for number in 0..10 {
        let list = if number == 0 { methods.to_owned() } else { format!("l{number}") };
        body.extend_from_slice(&u32::try_from(list.len()).expect("short").to_be_bytes());
        body.extend_from_slice(list.as_bytes());
    }
    body.extend_from_slice(&[0; 5]);
    packet(20, &body)
}

fn seeds() -> Vec<Seed> {
    let encrypted = [packet(21, b"").as_slice(), &[0x93, 1, 2, 3, 4, 5, 6, 7, 8]].concat();
    vec![
        vec![(ToServer, CLIENT.to_vec()), (ToClient, SERVER.to_vec())],
        vec![
            (ToClient, [SERVER, &kexinit("curve25519-sha256")].concat()),
            (ToServer, [CLIENT, &kexinit("ecdh-sha2-nistp256")].concat()),
            (ToServer, packet(30, &[1; 40])),
            (ToClient, [packet(31, &[2; 60]), encrypted.clone()].concat()),
            (ToServer, encrypted),
        ],
    ]
}

protocol_suite!(over_tcp, &SPEC, Transport::Tcp, seeds());

fn settings(pairs: &[(&str, &str)]) -> SettingsMap {
    let mut settings = SettingsMap::new();
    for (key, value) in pairs {
        settings.set(*key, *value);
    }
    settings
}

fn driver(pairs: &[(&str, &str)]) -> Driver {
    Driver::with(&SPEC, Transport::Tcp, &settings(pairs))
}

/// The record of the transaction.
fn record(driver: &mut Driver) -> String {
    suite::record(driver.parser().tx(0).expect("the transaction"), &LogOptions::default(), false)
}

fn events(driver: &mut Driver) -> Vec<EventCode> {
    driver.parser().tx(0).map(|tx| tx.common().events.as_slice().to_vec()).unwrap_or_default()
}

#[test]
fn the_record_is_suricatas() {
    let mut driver = driver(&[("hassh", "yes")]);
    for (direction, bytes) in seeds().remove(1) {
        driver.send(direction, &bytes);
    }
    // `printf 'ecdh-sha2-nistp256;l2;l4;l6' | md5sum`, `printf 'curve25519-sha256;l3;l5;l7' | md5sum`
    let client =
        r#""hassh":{"hash":"8053e60effeb24a89cbd9e7e7c973a58","string":"ecdh-sha2-nistp256;l2;l4;l6"}"#;
    let server =
        r#""hassh":{"hash":"cd047f8924d3d25151ea769300eafff3","string":"curve25519-sha256;l3;l5;l7"}"#;
    let expected = format!(
        r#"{{"client":{{"proto_version":"2.0","software_version":"OpenSSH_10.0p2",{client}}},"server":{{"proto_version":"2.0","software_version":"dropbear_2022.83",{server}}}}}"#
    );
    assert_eq!(record(&mut driver), expected);
    let tx = driver.parser().tx(0).expect("the transaction");
    assert_eq!(Direction::BOTH.map(|direction| tx.progress(direction)), [COMPLETE, COMPLETE]);
    assert!(tx.log_ready(SPEC.complete) && driver.parser().is_encrypted());
}

#[test]
fn without_fingerprints_the_lines_make_the_record() {
    let mut driver = driver(&[]);
    driver.send(ToClient, SERVER);
    assert!(!driver.parser().tx(0).expect("one").log_ready(SPEC.complete));
    driver.send(ToServer, &[CLIENT, &kexinit("x")].concat());
    let tx = driver.parser().tx(0).expect("one");
    assert!(tx.log_ready(SPEC.complete));
    let mut scratch = Vec::new();
    for id in [HASSH, HASSH_STRING] {
        let query = crate::transaction::BufferQuery { id, direction: ToServer, index: 0 };
        assert!(tx.buffer(query, &mut scratch).is_none());
    }
}

#[test]
fn identification_lines() {
    for (line, version, software) in [
        ("SSH-1.99-Cisco-1.25\n", "1.99", "Cisco-1.25"),
        ("SSH-2.0-\r\n", "2.0", ""),
        ("SSH-2.0-a comment - here\r\n", "2.0", "a"),
    ] {
        let mut driver = driver(&[]);
        driver.send(ToServer, line.as_bytes());
        let end =
            if software.is_empty() { String::new() } else { format!(r#","software_version":"{software}""#) };
        assert_eq!(record(&mut driver), format!(r#"{{"client":{{"proto_version":"{version}"{end}}}}}"#));
        assert!(events(&mut driver).is_empty() && !driver.failed);
    }
}

#[test]
fn a_client_begins_with_its_line_a_server_may_say_more() {
    for line in ["\n", "hello\r\n", "SSH-\n", "SSH-2.0\n", "ssh-2.0-x\n"] {
        let mut driver = driver(&[]);
        driver.send(ToServer, line.as_bytes());
        assert_eq!((events(&mut driver), driver.failed), (vec![INVALID_BANNER], true), "{line:?}");
    }
    let mut passive = driver(&[]);
    passive.send(ToClient, b"authorised use only\r\n");
    assert_eq!((events(&mut passive), passive.failed), (vec![INVALID_BANNER], true));
    let mut driver = driver(&[]);
    driver.prevents = true;
    driver.send(ToClient, b"authorised use only\r\n\r\n");
    driver.send(ToClient, SERVER);
    assert_eq!((events(&mut driver), driver.failed), (vec![INVALID_BANNER], false));
    assert!(record(&mut driver).contains("dropbear"), "{}", record(&mut driver));
    let mut endless = self::driver(&[]);
    endless.prevents = true;
    for _ in 0..=parser::LINES_MAX {
        assert!(!endless.failed);
        endless.send(ToClient, b"more\n");
    }
    assert!(endless.failed);
}

#[test]
fn long_lines() {
    let software = "x".repeat(300);
    let mut driver = driver(&[]);
    driver.send(ToServer, format!("SSH-2.0-{software}\n").as_bytes());
    assert_eq!(events(&mut driver), [LONG_BANNER]);
    assert!(record(&mut driver).contains(&software));
    // Passively, as in Suricata, the rest of a line of 256 bytes is skipped.
    let mut driver = self::driver(&[]);
    driver.send(ToServer, format!("SSH-2.0-{}", &software[..250]).as_bytes());
    assert_eq!(events(&mut driver), [LONG_BANNER]);
    // In prevention a line beyond the limit is refused: receivers read on.
    let mut driver = self::driver(&[]);
    driver.prevents = true;
    driver.send(ToServer, b"SSH-2.0-y ");
    driver.send(ToServer, &[b'z'; parser::LINE_MAX]);
    assert_eq!((events(&mut driver), driver.failed), (vec![LONG_BANNER], true));
}

#[test]
fn packets_that_are_none() {
    let mut driver = driver(&[]);
    driver.send(ToServer, CLIENT);
    driver.send(ToServer, &[0, 0, 0, 1, 0, 0]);
    assert_eq!((events(&mut driver), driver.failed), (vec![INVALID_RECORD], true));
    // Of encrypted bytes none is a length.
    let mut driver = self::driver(&[]);
    driver.send(ToServer, &[CLIENT, &packet(21, b"")].concat());
    driver.send(ToServer, &[0, 0, 0, 1, 0, 0, 9, 9]);
    assert_eq!((events(&mut driver), driver.failed), (vec![], false));
}

#[test]
fn a_long_or_broken_key_exchange_has_no_fingerprint() {
    for (body, expected) in [(vec![0; parser::KEX_MAX], vec![LONG_KEX_RECORD]), (vec![0xff; 40], vec![])] {
        let mut driver = driver(&[("hassh", "yes")]);
        driver.send(ToServer, CLIENT);
        driver.send(ToServer, &packet(20, &body));
        driver.send(ToServer, &packet(21, b""));
        assert_eq!((events(&mut driver), driver.failed), (expected, false));
        assert!(!record(&mut driver).contains("hassh"));
        assert_eq!(driver.parser().tx(0).map(|tx| tx.progress(ToServer)), Some(COMPLETE));
    }
}

#[test]
fn settings_are_read() {
    let number = |pairs: &[(&str, &str)]| {
        let mut driver = driver(pairs);
        for direction in Direction::BOTH {
            driver.send(direction, &[CLIENT, &packet(21, b"")].concat());
        }
        let before = driver.parser().tx(0).and_then(|tx| tx.number(ENCRYPTED, ToServer));
        driver.send(ToServer, b"encrypted bytes");
        (before, driver.parser().tx(0).and_then(|tx| tx.number(ENCRYPTED, ToServer)))
    };
    assert_eq!(number(&[]), (Some(0), Some(1)));
    assert_eq!(number(&[("encryption-handling", "full")]), (Some(0), Some(0)));
    for (key, value) in [("hassh", "perhaps"), ("encryption-handling", "ignore")] {
        let error = SshConfig::read(&settings(&[(key, value)])).expect_err(value);
        assert_eq!(error.key, format!("app-layer.protocols.ssh.{key}"));
    }
}

#[test]
fn a_gap_is_survived_within_a_packet_only() {
    let mut driver = driver(&[]);
    driver.send(ToServer, CLIENT);
    driver.send(ToServer, packet(30, &[1; 100]).get(..50).expect("a beginning"));
    driver.lose(ToServer, 56);
    driver.send(ToServer, &packet(21, b""));
    assert_eq!(driver.parser().tx(0).map(|tx| tx.progress(ToServer)), Some(COMPLETE));
}
