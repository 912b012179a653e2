// SPDX-License-Identifier: Apache-2.0
//! Tests of FTP.

use super::tables::{FILE_BEFORE_PORT, FILE_WITHOUT_NAME, FLOODED, REQUEST_TOO_LONG, RESPONSE_TOO_LONG};
use super::*;
use crate::expectation::Expectation;
use crate::file::FileState;
use crate::protocol::{Input, ParseContext, Progress};
use crate::suite::{self, Driver, Seed, protocol_suite};
use crate::transaction::LogOptions;
use Direction::{ToClient, ToServer};

fn seed(lines: &[(Direction, &str)]) -> Seed {
    lines.iter().map(|(direction, text)| (*direction, text.as_bytes().to_vec())).collect()
}

fn seeds() -> Vec<Seed> {
    vec![
        seed(&[
            (ToClient, "220 (vsFTPd 3.0.5)\r\n"),
            (ToServer, "USER alice\r\n"),
            (ToClient, "331 Please specify the password.\r\n"),
            (ToServer, "PASS secret\r\nPASV\r\n"),
            (ToClient, "230 Login successful.\r\n227 Entering Passive Mode (10,77,0,2,156,148).\r\n"),
            (ToServer, "RETR a b.txt\r\n"),
            (ToClient, "150 Here it comes.\r\n226 Done.\r\n"),
            (ToServer, "QUIT\r\n"),
            (ToClient, "221 Goodbye.\r\n"),
        ]),
        seed(&[
            (ToServer, "USER anonymous\n"),
            (ToClient, "331 go on\n"),
            (ToServer, "EPRT |2|::1|5282|\r\nSTOR x\r\nFEAT\r\nSTAT\r\n"),
            (ToClient, "200 ok\r\n150 go\r\n226 done\r\n211-Features:\r\n EPSV\r\n211 End\r\n"),
            (ToServer, "MODE Z"),
        ]),
    ]
}

protocol_suite!(over_tcp, &SPEC, Transport::Tcp, seeds());

fn play(lines: &[(Direction, &str)]) -> Driver {
    let mut driver = Driver::new(&SPEC, Transport::Tcp);
    for (direction, text) in lines {
        driver.send(*direction, text.as_bytes());
    }
    driver
}

fn record(driver: &mut Driver, id: u64) -> String {
    suite::record(driver.parser().tx(id).expect("a transaction"), &LogOptions::default(), false)
}

fn expected(driver: &mut Driver) -> Vec<Expectation> {
    driver.parser().expectations().map(core::mem::take).unwrap_or_default()
}

#[test]
fn records_are_suricatas() {
    let mut driver = Driver::new(&SPEC, Transport::Tcp);
    for (direction, bytes) in seeds().remove(0) {
        driver.send(direction, &bytes);
    }
    for (id, record_expected) in [
        (
            0,
            r#"{"completion_code":["220"],"reply":["(vsFTPd 3.0.5)"],"reply_received":"yes","reply_truncated":false}"#,
        ),
        (
            1,
            r#"{"command":"USER","command_data":"alice","command_truncated":false,"completion_code":["331"],"reply":["Please specify the password."],"reply_received":"yes","reply_truncated":false}"#,
        ),
        (
            3,
            r#"{"command":"PASV","completion_code":["227"],"reply":["Entering Passive Mode (10,77,0,2,156,148)."],"dynamic_port":40084,"mode":"passive","reply_received":"yes","reply_truncated":false}"#,
        ),
        (
            4,
            r#"{"command":"RETR","command_data":"a b.txt","command_truncated":false,"completion_code":["150","226"],"reply":["Here it comes.","Done."],"reply_received":"yes","reply_truncated":false}"#,
        ),
        (
            5,
            r#"{"command":"QUIT","completion_code":["221"],"reply":["Goodbye."],"reply_received":"yes","reply_truncated":false}"#,
        ),
    ] {
        assert_eq!(record(&mut driver, id), record_expected);
    }
    let found = expected(&mut driver);
    let [only] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((only.opened, only.port), (ToServer, 40_084));
}

#[test]
fn transfers_are_paired_with_ports() {
    let of = |lines: &[(Direction, &str)]| {
        let found = expected(&mut play(lines));
        found.iter().map(|e| (e.opened, e.port, e.context.to_vec())).collect::<Vec<_>>()
    };
    // The command comes before the reply that names its port: prevention expects the connection.
    let early = [(ToServer, "EPSV\r\nNLST\r\n"), (ToClient, "229 ok (|||1025|)\r\n150 go\r\n")];
    assert!(of(&early).is_empty());
    let mut driver = Driver::new(&SPEC, Transport::Tcp);
    driver.prevents = true;
    early.iter().for_each(|(direction, text)| driver.send(*direction, text.as_bytes()));
    let found = expected(&mut driver);
    // First for bytes that come before their command, then for those of the command.
    assert_eq!(found.iter().map(|e| (e.opened, e.port)).collect::<Vec<_>>(), [(ToServer, 1_025); 2]);
    assert_eq!(found[1].context.to_vec(), [6, 0]);
    let active = [(ToServer, "PORT 10,0,0,1,4,1\r\n"), (ToClient, "200 ok\r\n"), (ToServer, "STOR up\r\n")];
    assert_eq!(of(&active), [(ToClient, 1_025, b"\x02\x01up".to_vec())]);
    // A port serves one transfer, and a refused one none.
    let twice =
        [(ToServer, "EPSV\r\n"), (ToClient, "229 ok (|||1025|)\r\n"), (ToServer, "RETR a\r\nRETR b\r\n")];
    assert_eq!(of(&twice), [(ToServer, 1_025, b"\x01\x00a".to_vec())]);
    for reply in ["500 no\r\n", "229 ok\r\n", "227 (1,2,3,4,5,6)\r\n"] {
        assert!(of(&[(ToServer, "EPSV\r\n"), (ToClient, reply), (ToServer, "RETR a\r\n")]).is_empty());
    }
    let refused = [
        (ToServer, "RETR a\r\n"),
        (ToClient, "550 no\r\n"),
        (ToServer, "PASV\r\n"),
        (ToClient, "227 (1,2,3,4,5,6)\r\n"),
    ];
    assert!(of(&refused).is_empty());
    // A name has to be there for a file, and the port stays for the next command.
    let nameless =
        [(ToServer, "EPSV\r\n"), (ToClient, "229 ok (|||1025|)\r\n"), (ToServer, "STOR\r\nMLSD\r\n")];
    assert_eq!(of(&nameless), [(ToServer, 1_025, vec![7, 0])]);
}

#[test]
fn the_newest_command_says_which_port_is_announced() {
    let of = |lines: &[(Direction, &str)], id| record(&mut play(lines), id);
    // The replies to a group of commands: the port belongs to the newest.
    let group = [(ToServer, "EPSV\r\nPWD\r\n"), (ToClient, "229 ok (|||1025|)\r\n257 x\r\n")];
    assert!(!of(&group, 0).contains("dynamic_port"));
    let lower = [(ToServer, "port 10,0,0,1,4,1\r\n"), (ToClient, "200 ok\r\n")];
    assert_eq!(
        of(&lower, 0),
        r#"{"command":"PORT","command_data":"10,0,0,1,4,1","command_truncated":false,"mode":"passive","reply_received":"yes","reply_truncated":false}"#
    );
    let unknown = [(ToServer, "PWD\r\nXYZZY\r\n"), (ToClient, "257 a\r\n500 b\r\n")];
    assert!(!of(&unknown, 0).contains("command\""));
    let mut driver = play(&[(ToServer, "RETR a\r\nSTOR\r\n")]);
    let events = [0, 1].map(|id| driver.parser().tx(id).expect("one").common().events.as_slice().to_vec());
    assert_eq!(events, [[FILE_BEFORE_PORT], [FILE_WITHOUT_NAME]]);
}

#[test]
fn lines_that_are_too_long() {
    let long = "x".repeat(LINE_MAX);
    let mut driver =
        play(&[(ToServer, &format!("RETR {long}yz\r\nPWD\r\n")), (ToClient, &format!("550 {long}\r\n"))]);
    let tx = driver.parser().tx(0).expect("one");
    assert_eq!(tx.common().events.as_slice(), [REQUEST_TOO_LONG, FILE_BEFORE_PORT, RESPONSE_TOO_LONG]);
    let text = record(&mut driver, 0);
    assert!(text.contains(r#""command_truncated":true"#) && text.contains(r#""reply_truncated":true"#));
    assert!(text.contains(&format!(r#""command_data":"{}""#, "x".repeat(LINE_MAX - 5))));
    assert!(record(&mut driver, 1).contains(r#""command":"PWD""#));
}

#[test]
fn bounds_are_told() {
    let mut driver = play(&[]);
    for _ in 0..=TX_MAX {
        driver.send(ToServer, b"NOOP\r\n");
    }
    let range = driver.parser().tx_range();
    assert_eq!((range.start, range.end), (1, TX_MAX as u64 + 1));
    assert!(driver.parser().tx(range.end - 1).expect("the newest").common().events.has(FLOODED));
    let mut driver = play(&[(ToServer, "STAT\r\n")]);
    for _ in 0..100 {
        driver.send(ToClient, format!("211-{}\r\n", "y".repeat(1_000)).as_bytes());
    }
    assert!(driver.parser().tx(0).expect("one").common().events.has(RESPONSE_TOO_LONG));
    assert!(driver.parser().held() < 2 * REPLIES_MAX, "{}", driver.parser().held());
}

#[test]
fn tls_follows_the_reply_to_its_command() {
    let files = crate::file::FileSettings::default();
    for (command, reply, to) in [
        ("AUTH TLS\r\n", "234 go\r\nrest", Some("tls")),
        ("AUTH TLS\r\n", "500 no\r\n", None),
        ("NOOP\r\n", "234 go\r\n", None),
        // Passively, as in Suricata, the command is none.
        ("AUTH TLS\r\n", "234 go\r\n", None),
    ] {
        let mut parser = parser::FtpParser::new(FtpConfig { max_line: 100, max_tx: 10 });
        let mut events = crate::event::Events::default();
        let mut parse = |direction, data: &str| {
            let mut context = ParseContext {
                now: bartizan_base::Timestamp::ZERO,
                server_port: 21,
                client_port: 1,
                transport: Transport::Tcp,
                files: &files,
                prevents: !(command.starts_with("AUTH") && reply == "234 go\r\n"),
                events: &mut events,
            };
            parser.parse(direction, Input { data: data.as_bytes(), offset: 0, eof: false }, &mut context)
        };
        assert_eq!(parse(ToServer, command), Progress::Done);
        let expected = match to {
            Some(to) => Progress::Switch { consumed: 8, to: Some(to) },
            None => Progress::Done,
        };
        assert_eq!(parse(ToClient, reply), expected, "{command} {reply}");
    }
}

#[test]
fn greetings_and_first_commands_show_the_protocol() {
    for (direction, text, expected) in [
        (ToClient, "220 (x", Probe::Yes(ToClient)),
        (ToClient, "220 x\r\n", Probe::Yes(ToClient)),
        (ToClient, "220-x\r\n", Probe::Yes(ToClient)),
        (ToClient, "220 x", Probe::More),
        (ToClient, "22", Probe::More),
        (ToClient, "221 x\r\n", Probe::No),
        (ToServer, "user a", Probe::Yes(ToServer)),
        (ToServer, "US", Probe::More),
        (ToServer, "QUIT", Probe::No),
    ] {
        assert_eq!(probe(Transport::Tcp, direction, text.as_bytes()), expected, "{text}");
    }
}

/// Plays a data connection.
fn transfer(context: &[u8], pieces: &[(Direction, &str, bool)]) -> Box<dyn Parser> {
    let factory = (data::SPEC.configure)(&SettingsMap::new()).expect("no settings");
    let mut parser = factory.make_expected(context);
    let (files, mut events) = (crate::file::FileSettings::default(), crate::event::Events::default());
    for (direction, text, eof) in pieces {
        let mut context = ParseContext {
            now: bartizan_base::Timestamp::ZERO,
            server_port: 40_000,
            client_port: 1,
            transport: Transport::Tcp,
            files: &files,
            prevents: false,
            events: &mut events,
        };
        let input = Input { data: text.as_bytes(), offset: 0, eof: *eof };
        assert_eq!(parser.parse(*direction, input, &mut context), Progress::Done);
        if *eof {
            parser.end(*direction, &mut context);
        }
    }
    parser
}

#[test]
fn a_data_connection_is_a_file() {
    for (is_active, stores, sender) in
        [(false, false, ToClient), (true, false, ToServer), (false, true, ToServer), (true, true, ToClient)]
    {
        let context = [u8::from(stores) + 1, u8::from(is_active), b'f'];
        let pieces = [(sender.flip(), "", true), (sender, "ab", false), (sender, "c", true)];
        let parser = transfer(&context, &pieces);
        let tx = parser.tx(0).expect("the transfer");
        let file = tx.files_of(sender).first().expect("a file");
        assert_eq!((file.size, file.state, file.name.as_slice()), (3, FileState::Closed, &b"f"[..]));
        assert!(tx.files_of(sender.flip()).is_empty());
        assert_eq!(tx.number(0, ToServer), Some(u64::from(stores) + 1));
        assert_eq!(Direction::BOTH.map(|direction| tx.progress(direction)), [1, 1]);
        let command = if stores { "STOR" } else { "RETR" };
        let record = suite::record(tx, &LogOptions::default(), false);
        assert_eq!(record, format!(r#"{{"filename":"f","command":"{command}"}}"#));
    }
}

#[test]
fn bytes_before_the_command_of_their_transfer_are_a_file() {
    for sender in Direction::BOTH {
        let parser = transfer(&data::context_of_any(false), &[(sender, "ab", false), (sender, "c", true)]);
        let tx = parser.tx(0).expect("the transfer");
        let file = tx.files_of(sender).first().expect("a file");
        assert_eq!((file.content().0, file.state), (&b"abc"[..], FileState::Closed));
        assert_eq!(suite::record(tx, &LogOptions::default(), false), "{}");
    }
}

/// Plays lines in prevention.
fn prevented(lines: &[(Direction, &str)]) -> Driver {
    let mut driver = Driver::new(&SPEC, Transport::Tcp);
    driver.prevents = true;
    for (direction, text) in lines {
        driver.send(*direction, text.as_bytes());
    }
    driver
}

#[test]
fn prevention_expects_what_lenient_servers_do() {
    let of = |lines: &[(Direction, &str)]| {
        let found = expected(&mut prevented(lines));
        found.iter().map(|e| (e.opened, e.port, e.address, e.context.to_vec())).collect::<Vec<_>>()
    };
    // The announced port, before the command of its transfer and after it, whatever was asked before.
    let reply = "227 Entering Passive Mode (10,0,0,2,4,1).\r\n";
    let passive = [
        (ToServer, "FOO\r\nPASV\r\n"),
        (ToClient, "500 no\r\n"),
        (ToClient, reply),
        (ToServer, " retr  a\r\n"),
    ];
    let server = "10.0.0.2".parse().ok();
    assert_eq!(
        of(&passive),
        [(ToServer, 1_025, server, vec![0, 0]), (ToServer, 1_025, None, b"\x01\0a".to_vec())]
    );
    // The port of a command, which also has the address that a bounce is found by.
    let third = "10.9.9.9".parse().ok();
    assert_eq!(of(&[(ToServer, "PORT 010, 9, 9, 9, 4, 257 x\r\n")]), [(ToClient, 1_025, third, vec![0, 1])]);
}

#[test]
fn prevention_reads_commands_as_lenient_servers_do() {
    for (line, argument) in
        [("XMKD evil", "evil"), ("\tMKD\t evil ", "evil"), ("FOO evil", "evil"), ("\u{ff}mkd evil", "evil")]
    {
        let mut driver = prevented(&[(ToServer, &format!("{line}\r\n"))]);
        let tx = driver.parser().tx(0).expect("a command");
        let query =
            crate::transaction::BufferQuery { id: tables::COMMAND_DATA, direction: ToServer, index: 0 };
        let mut scratch = Vec::new();
        assert_eq!(tx.buffer(query, &mut scratch).map(|view| view.data), Some(argument.as_bytes()), "{line}");
    }
    let long = format!("MKD {}evil\r\n", " ".repeat(LINE_MAX));
    assert!(prevented(&[(ToServer, &long)]).failed);
    // TLS follows, whatever it was called.
    let mut driver =
        prevented(&[(ToServer, "auth ssl\r\n"), (ToClient, "234 go\r\nrubbish"), (ToServer, "MKD a\r\n")]);
    assert_eq!(driver.parser().tx_range(), 0..1);
}

#[test]
fn a_listing_is_no_file() {
    let parser = transfer(&[5, 0, b'x'], &[(ToClient, "a\r\nb\r\n", true)]);
    let tx = parser.tx(0).expect("the transfer");
    assert!(tx.files_of(ToClient).is_empty() && tx.number(0, ToServer).is_none());
    // A damaged context makes no transaction.
    assert!(transfer(&[9, 0], &[(ToClient, "a", true)]).tx_range().is_empty());
}

#[test]
fn first_lines_of_other_protocols_are_not_those_of_ftp() {
    let likely = |text: &str| super::likely(Transport::Tcp, ToServer, text.as_bytes());
    for (text, expected) in [
        ("USER alice\r\n", Probe::Yes(ToServer)),
        ("PASS x\r\nTYPE I\r\nPASV\r\n", Probe::Yes(ToServer)),
        // NNTP, Redis, IRC.
        ("MODE READER\r\nLIST ACTIVE\r\n", Probe::More),
        ("AUTH secret\r\nTYPE key\r\n", Probe::More),
        ("NICK a\r\nUSER a 0 * :a\r\n", Probe::No),
    ] {
        assert_eq!(likely(text), expected, "{text:?}");
    }
}

#[test]
fn many_transfers_without_a_port_take_no_more_memory_than_their_commands() {
    let mut driver = Driver::new(&SPEC, Transport::Tcp);
    driver.prevents = true;
    for number in 0..5 * TX_MAX {
        driver.send(ToServer, format!("RETR {number}\r\n").as_bytes());
    }
    let held = driver.parser().held();
    assert!(held < 1 << 20, "{held}");
    // The port is that of the oldest one that is held.
    driver.send(ToServer, b"PORT 10,0,0,1,15,161\r\n");
    let contexts: Vec<_> = expected(&mut driver).into_iter().map(|it| it.context).collect();
    let oldest = (4 * TX_MAX + 1).to_string();
    assert!(contexts.iter().any(|context| context.ends_with(oldest.as_bytes())), "{contexts:?}");
}
