// SPDX-License-Identifier: Apache-2.0
//! Tests of SMTP.

use super::*;
use crate::file::FileState;
use crate::protocol::{Input, ParseContext, Progress};
use crate::suite::{self, Driver, Seed, protocol_suite};
use crate::transaction::{BufferQuery, LogOptions, Transaction};
use Direction::{ToClient, ToServer};
use bartizan_events::JsonWriter;

const MAIL: &str = "From: Alice <a@x>\r\nTo: \"B, ob\" <b@x>, c@x\r\nSubject: hello\r\n there\r\n\
    Content-Type: multipart/mixed; boundary=q\r\n\r\n--q\r\n\r\nhttp://x.y/z\r\n--q\r\nContent-Disposition: attachment; filename=f.bin\r\n\
    Content-Transfer-Encoding: base64\r\n\r\nAAEC\r\n--q--\r\n";

fn seed(lines: &[(Direction, &str)]) -> Seed {
    lines.iter().map(|(direction, text)| (*direction, text.as_bytes().to_vec())).collect()
}

fn one_mail() -> Seed {
    seed(&[
        (ToServer, "EHLO client\r\n"),
        (ToClient, "220 mail.x ESMTP\r\n250-mail.x\r\n250 SIZE 1\r\n"),
        (ToServer, "MAIL FROM:<a@x> SIZE=3\r\n"),
        (ToClient, "250 ok\r\n"),
        (ToServer, "RCPT TO:<b@x>\r\nRCPT TO: <c@x>\r\nDATA\r\n"),
        (ToClient, "250 ok\r\n250 ok\r\n354 go\r\n"),
        (ToServer, &format!("{MAIL}..dot\r\n.\r\n")),
        (ToClient, "250 queued\r\n"),
        (ToServer, "QUIT\r\n"),
        (ToClient, "221 bye\r\n"),
    ])
}

fn seeds() -> Vec<Seed> {
    vec![
        one_mail(),
        seed(&[
            (ToServer, "HELO c\r\n"),
            (ToClient, "220 x\r\n250 x\r\n"),
            (ToServer, "MAIL FROM:<>\r\nRCPT TO:<b@x>\r\nBDAT 5\r\nabc\r\nBDAT 2 LAST\r\n.\n"),
            (ToClient, "250 a\r\n250 b\r\n250 c\r\n250 d\r\n"),
            (ToServer, "MAIL FROM:<d@x>\r\n"),
            (ToClient, "250 a\r\n"),
            (ToServer, "RSET\r\nNOOP\r\n"),
            (ToClient, "250 a\r\n250 a\r\n"),
        ]),
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

fn play_with(pairs: &[(&str, &str)], seed: &Seed) -> Driver {
    let mut driver = Driver::with(&SPEC, Transport::Tcp, &settings(pairs));
    for (direction, bytes) in seed {
        driver.send(*direction, bytes);
    }
    driver
}

fn play(lines: &[(Direction, &str)]) -> Driver {
    let greeted = [&[(ToClient, "220 x\r\n")], lines].concat();
    play_with(&[], &seed(&greeted))
}

fn record(driver: &mut Driver, id: u64) -> String {
    suite::record(driver.parser().tx(id).expect("an envelope"), &LogOptions::default(), false)
}

/// The object beside the record.
fn email(tx: &dyn Transaction, options: &LogOptions) -> String {
    let mut json = JsonWriter::new();
    json.begin_object();
    tx.log_beside(&mut json, options);
    json.end_object();
    String::from_utf8(json.bytes().to_vec()).expect("records are UTF-8")
}

fn events(driver: &mut Driver, id: u64) -> Vec<&'static str> {
    let tx = driver.parser().tx(id).expect("an envelope");
    tx.common().events.as_slice().iter().map(|code| EVENTS[usize::from(*code)]).collect()
}

fn progress(driver: &mut Driver, id: u64) -> [u8; 2] {
    let tx = driver.parser().tx(id).expect("an envelope");
    Direction::BOTH.map(|direction| tx.progress(direction))
}

#[test]
fn records_are_suricatas() {
    let mut driver = play_with(&[], &one_mail());
    assert_eq!(
        record(&mut driver, 0),
        r#"{"helo":"client","mail_from":"<a@x>","rcpt_to":["<b@x>","<c@x>"]}"#
    );
    let tx = driver.parser().tx(0).expect("one");
    assert_eq!(
        email(tx, &LogOptions::default()),
        r#"{"email":{"from":"Alice <a@x>","to":["\"B, ob\" <b@x>","c@x"],"status":"PARSE_DONE","attachment":["f.bin"],"url":["x.y/z\r\n"]}}"#
    );
    let mut options =
        LogOptions { custom: vec!["subject".into(), "Message-ID".into()], ..LogOptions::default() };
    options.settings.set("md5.0", "subject");
    // `printf 'hellothere' | md5sum`
    let ending = r#""subject":"hellothere","subject_md5":"c6f7c372641dd25e0fddf0215375561f"}}"#;
    assert!(email(tx, &options).ends_with(ending), "{}", email(tx, &options));
    let file = tx.files_of(ToServer).first().expect("a file");
    assert_eq!((file.content().0, file.state), (&[0, 1, 2][..], FileState::Closed));
    assert_eq!(driver.parser().tx_range(), 0..1);
    assert_eq!(progress(&mut driver, 0), [COMPLETE, COMPLETE]);
}

#[test]
fn buffers_have_the_parts_of_envelope_and_message() {
    let mut driver = play_with(&[], &one_mail());
    let shape = suite::shape(&SPEC, driver.parser().tx(0).expect("one"));
    let values: Vec<_> = shape
        .buffers
        .iter()
        .map(|(name, _, _, value)| (*name, String::from_utf8_lossy(value).into_owned()))
        .collect();
    for (name, value) in [
        ("smtp.helo", "client"),
        ("smtp.mail_from", "<a@x>"),
        ("smtp.rcpt_to", "<b@x>"),
        ("smtp.rcpt_to", "<c@x>"),
        ("email.from", "Alice <a@x>"),
        ("email.subject", "hellothere"),
        ("email.url", "x.y/z\r\n"),
        ("file.name", "f.bin"),
        ("file.data", "\0\u{1}\u{2}"),
    ] {
        assert!(values.contains(&(name, value.to_owned())), "{name}: {values:?}");
    }
}

#[test]
fn an_envelope_ends_with_the_answer() {
    let begin = [(ToServer, "EHLO c\r\nMAIL FROM:<a>\r\n"), (ToClient, "250 a\r\n250 a\r\n")];
    let after = |lines: &[(Direction, &str)]| play(&[&begin[..], lines].concat());
    for (lines, expected) in [
        (&[(ToServer, "RSET\r\n")][..], [0, 0]),
        (&[(ToServer, "RSET\r\n"), (ToClient, "500 no\r\n")], [0, 0]),
        (&[(ToServer, "RSET\r\n"), (ToClient, "250-ok\r\n")], [0, 0]),
        (&[(ToServer, "RSET\r\n"), (ToClient, "250 ok\r\n")], [2, 2]),
        (&[(ToServer, "EHLO c\r\n"), (ToClient, "250 ok\r\n")], [2, 2]),
        (&[(ToServer, "EHLO c\r\n"), (ToClient, "501 no\r\n")], [0, 0]),
        (&[(ToServer, "QUIT\r\n"), (ToClient, "221 bye\r\n")], [2, 2]),
        (&[(ToServer, "DATA\r\n"), (ToClient, "354 go\r\n")], [1, 1]),
        (&[(ToServer, "DATA\r\n"), (ToClient, "354 go\r\n"), (ToServer, "x\r\n.\r\n")], [2, 1]),
        (
            &[
                (ToServer, "DATA\r\n"),
                (ToClient, "354 go\r\n"),
                (ToServer, "x\r\n.\r\n"),
                (ToClient, "554 no\r\n"),
            ],
            [2, 2],
        ),
        (&[(ToServer, "DATA\r\n"), (ToClient, "554 no\r\n")], [0, 0]),
        (&[(ToServer, "BDAT 1\r\nx"), (ToClient, "250 ok\r\n")], [1, 1]),
        (&[(ToServer, "BDAT 0 LAST\r\n"), (ToClient, "250 ok\r\n")], [2, 2]),
    ] {
        let mut driver = after(lines);
        assert_eq!(progress(&mut driver, 0), expected, "{lines:?}");
    }
    // A reset that comes with the next envelope does not end that one.
    let mut driver = after(&[
        (ToServer, "DATA\r\n"),
        (ToClient, "354 go\r\n"),
        (ToServer, "x\r\n.\r\nRSET\r\nMAIL FROM:<b>\r\n"),
        (ToClient, "250 queued\r\n250 reset\r\n250 ok\r\n"),
    ]);
    assert_eq!((progress(&mut driver, 0), progress(&mut driver, 1)), ([2, 2], [0, 0]));
    assert_eq!(record(&mut driver, 1), r#"{"helo":"c","mail_from":"<b>"}"#);
}

#[test]
fn events_are_suricatas() {
    let long = "x".repeat(parser::LINE_MAX);
    for (lines, expected) in [
        (&[(ToServer, "EHLO a\r\nEHLO b\r\n")][..], &["DUPLICATE_FIELDS"][..]),
        (&[(ToServer, "MAIL FROM:<a>\r\nMAIL FROM:<b>\r\n")], &["DUPLICATE_FIELDS"]),
        (&[(ToServer, "DATA\r\nNOOP\r\n")], &["INVALID_PIPELINED_SEQUENCE"]),
        (&[(ToServer, "DATA\r\n"), (ToClient, "550 no\r\n")], &["DATA_COMMAND_REJECTED"]),
        (&[(ToServer, "STARTTLS\r\n"), (ToClient, "454 no\r\n")], &["TLS_REJECTED"]),
        (&[(ToServer, "NOOP\r\n"), (ToClient, "junk\r\n")], &["INVALID_REPLY"]),
        (&[(ToServer, "NOOP\r\n"), (ToClient, "299 new\r\n")], &["INVALID_REPLY"]),
        (&[(ToServer, "BDAT x\r\n")], &["INVALID_BDAT"]),
        (&[(ToServer, "BDAT 1 LAST x\r\n")], &["INVALID_BDAT"]),
        (&[(ToServer, &*format!("NOOP {long}\r\nRSET\r\n"))], &["TRUNCATED_LINE"]),
    ] {
        assert_eq!(events(&mut play(lines), 0), expected, "{lines:.60?}");
    }
    let mut driver = play_with(&[], &seed(&[(ToServer, "EHLO a\r\n")]));
    assert_eq!(events(&mut driver, 0), ["NO_SERVER_WELCOME_MESSAGE"]);
}

#[test]
fn a_message_may_follow_at_once_where_groups_are_taken() {
    let lines = [
        (ToServer, "EHLO c\r\n"),
        (ToClient, "250-x\r\n250-PIPELINING\r\n250 y\r\n"),
        (ToServer, "MAIL FROM:<a>\r\nDATA\r\nSubject: s\r\n\r\nb\r\n.\r\nQUIT\r\n"),
        (ToClient, "250 a\r\n354 b\r\n250 c\r\n221 d\r\n"),
    ];
    let mut driver = play(&lines);
    assert_eq!(
        (progress(&mut driver, 0), events(&mut driver, 0)),
        ([2, 2], vec!["INVALID_PIPELINED_SEQUENCE"])
    );
    let tx = driver.parser().tx(0).expect("one");
    assert_eq!(email(tx, &LogOptions::default()), r#"{"email":{"status":"PARSE_DONE"}}"#);
}

#[test]
fn long_lines_of_a_message_are_read_whole() {
    let content = "QUJD".repeat(3_000);
    let mail = format!(
        "Content-Disposition: attachment; filename=a\r\nContent-Transfer-Encoding: base64\r\n\r\n{content}\r\n.\r\n"
    );
    let mut driver = play(&[(ToServer, "DATA\r\n"), (ToClient, "354 go\r\n"), (ToServer, &mail)]);
    let tx = driver.parser().tx(0).expect("one");
    assert_eq!(tx.files_of(ToServer).first().map(|file| file.size), Some(9_000));
    assert_eq!(events(&mut driver, 0), ["MIME_LONG_LINE", "MIME_LONG_ENC_LINE"]);
}

#[test]
fn a_whole_message_can_be_a_file() {
    let mut driver = play_with(&[("raw-extraction", "yes")], &one_mail());
    let tx = driver.parser().tx(0).expect("one");
    let file = tx.files_of(ToServer).first().expect("a file");
    assert_eq!(file.content().0, format!("{MAIL}.dot\r\n").as_bytes());
    assert_eq!((file.name.as_slice(), file.state), (&b"rawmsg"[..], FileState::Closed));
    assert_eq!(email(tx, &LogOptions::default()), "{}");
    // Nothing of the message is kept.
    let mut driver = play_with(&[("mime.decode-mime", "no")], &one_mail());
    let tx = driver.parser().tx(0).expect("one");
    assert!(tx.files_of(ToServer).is_empty() && email(tx, &LogOptions::default()) == "{}");
}

#[test]
fn tls_follows_the_reply_to_its_command() {
    let files = crate::file::FileSettings::default();
    let mut parser =
        parser::SmtpParser::new(Arc::new(SmtpConfig::read(&SettingsMap::new()).expect("defaults")));
    let mut events = crate::event::Events::default();
    let mut parse = |direction, data: &str| {
        let mut context = ParseContext {
            now: bartizan_base::Timestamp::ZERO,
            server_port: 25,
            client_port: 1,
            transport: Transport::Tcp,
            files: &files,
            prevents: false,
            events: &mut events,
        };
        parser.parse(direction, Input { data: data.as_bytes(), offset: 0, eof: false }, &mut context)
    };
    assert_eq!(parse(ToClient, "220 x\r\n"), Progress::Done);
    assert_eq!(parse(ToServer, "EHLO c\r\nSTARTTLS\r\n"), Progress::Done);
    let switch = Progress::Switch { consumed: 15, to: Some("tls") };
    assert_eq!(parse(ToClient, "250 x\r\n220 go\r\n\x16\x03"), switch);
}

/// Parses pieces, each with its direction, in prevention: the last result, and the first message's files.
fn prevented(pieces: &[(Direction, &str)]) -> (Progress, Vec<String>) {
    let files = crate::file::FileSettings::default();
    let settings = SettingsMap::new();
    let mut parser = parser::SmtpParser::new(Arc::new(SmtpConfig::read(&settings).expect("defaults")));
    let mut events = crate::event::Events::default();
    let mut last = Progress::Done;
    if pieces.iter().all(|(direction, _)| *direction == ToServer) {
        parser.leave_out(ToClient);
    }
    for (direction, data) in pieces {
        let mut context = ParseContext {
            now: bartizan_base::Timestamp::ZERO,
            server_port: 25,
            client_port: 1,
            transport: Transport::Tcp,
            files: &files,
            prevents: true,
            events: &mut events,
        };
        last = parser.parse(*direction, Input { data: data.as_bytes(), offset: 0, eof: false }, &mut context);
        if last == Progress::Error {
            break;
        }
    }
    let names = |tx: &dyn Transaction| {
        let files = tx.files_of(ToServer);
        files.iter().map(|file| String::from_utf8_lossy(file.content().0).into_owned()).collect()
    };
    (last, parser.tx(0).map(names).unwrap_or_default())
}

/// The values of a buffer in all envelopes after these commands, in prevention; `None`: the flow is refused.
fn prevented_values(id: u16, pieces: &[(Direction, &str)]) -> Option<Vec<String>> {
    let greeting = [(ToClient, "220 x\r\n")];
    let mut driver = Driver::new(&SPEC, Transport::Tcp);
    driver.prevents = true;
    for (direction, text) in greeting.iter().chain(pieces) {
        driver.send(*direction, text.as_bytes());
    }
    if driver.failed {
        return None;
    }
    let mut values = Vec::new();
    let parser = driver.parser();
    for tx in parser.tx_range().filter_map(|at| parser.tx(at)) {
        let mut scratch = Vec::new();
        let query = BufferQuery { id, direction: ToServer, index: 0 };
        values.extend(
            tx.buffer(query, &mut scratch).map(|view| String::from_utf8_lossy(view.data).into_owned()),
        );
    }
    Some(values)
}

#[test]
fn prevention_reads_commands_as_lenient_servers_do() {
    for (line, sender) in [
        ("MAIL FROM:<evil@x> SIZE=3", "<evil@x>"),
        ("mail  from : <evil@x>", "<evil@x>"),
        (" MAIL\tFROM:\t<evil@x>  ", "<evil@x>"),
        ("MAIL FROM:evil@x BODY=7BIT", "evil@x"),
        ("MAIL FROM:<\"a evil\"@x>", "<\"a evil\"@x>"),
        ("MAIL FROM:<\"a> evil\"@x> SIZE=1", "<\"a> evil\"@x>"),
        ("MAIL FROM:A name <evil@x>", "A name <evil@x>"),
    ] {
        let line = format!("{line}\r\n");
        assert_eq!(
            prevented_values(tables::MAIL_FROM, &[(ToServer, &line)]),
            Some(vec![sender.into()]),
            "{line}"
        );
    }
    // The second sender, if the server has refused the first, and the second name of the client.
    let again =
        [(ToServer, "MAIL FROM:<good>\r\n"), (ToClient, "501 no\r\n"), (ToServer, "MAIL FROM:<evil>\r\n")];
    assert_eq!(prevented_values(tables::MAIL_FROM, &again), Some(vec!["<good>".into(), "<evil>".into()]));
    let reset = [(ToServer, "MAIL FROM:<good>\r\nRSET\r\nMAIL FROM:<evil>\r\n")];
    assert_eq!(prevented_values(tables::MAIL_FROM, &reset), Some(vec!["<good>".into(), "<evil>".into()]));
    let names = [(ToServer, "EHLO good\r\nEHLO evil\r\n")];
    assert_eq!(prevented_values(tables::HELO, &names), Some(vec!["good".into(), "evil".into()]));
}

#[test]
fn prevention_refuses_commands_that_servers_take_otherwise() {
    let long = format!("MAIL FROM:{}<evil>\r\n", " ".repeat(5_000));
    for pieces in [
        &[(ToServer, "MAIL FROM:<a>\r\nMAIL FROM:<b>\r\n")][..],
        &[(ToServer, long.as_str())],
        &[(ToServer, "MAIL FROM:<e\\vil>\r\n")],
        &[(ToServer, "BDAT +3\r\nabc")],
        &[(ToServer, "BDAT 3\r\nabc")],
        &[(ToServer, "\0DATA\r\n"), (ToClient, "354 go\r\n")],
    ] {
        assert_eq!(prevented_values(tables::MAIL_FROM, pieces), None, "{pieces:.60?}");
    }
}

#[test]
fn prevention_reads_messages_in_chunks() {
    let part = "Content-Disposition: attachment; filename=a\r\n\r\n.one\r\ntwo";
    for cut in 1..part.len() {
        let (first, second) = part.split_at(cut);
        let chunks = format!("BDAT {}\r\n{first}BDAT {} last\r\n{second}", first.len(), second.len());
        let pieces = [
            (ToClient, "220 x\r\n"),
            (ToServer, "EHLO c\r\n"),
            (ToClient, "250-x\r\n250 CHUNKING\r\n"),
            (ToServer, "MAIL FROM:<a>\r\nRCPT TO:<b>\r\n"),
            (ToServer, chunks.as_str()),
        ];
        assert_eq!(prevented(&pieces), (Progress::Done, vec![".one\r\ntwo".to_owned()]), "{cut}");
    }
}

#[test]
fn prevention_refuses_a_message_that_receivers_end_at_different_places() {
    let part = "Content-Type: application/x\r\nContent-Disposition: attachment; filename=a\r\n\r\n";
    let begin = [
        (ToClient, "220 x\r\n"),
        (ToServer, "EHLO c\r\n"),
        (ToClient, "250-x\r\n250 PIPELINING\r\n"),
        (ToServer, "MAIL FROM:<a>\r\nRCPT TO:<b>\r\nDATA\r\n"),
        (ToClient, "250 a\r\n250 b\r\n354 go\r\n"),
    ];
    let of = |end: &str| {
        let text = format!("{part}one{end}");
        prevented(&[&begin[..], &[(ToServer, text.as_str())]].concat())
    };
    assert_eq!(of("\r\n.\r\n"), (Progress::Done, vec!["one".to_owned()]));
    assert_eq!(of("\r\n..\r\ntwo\r\n.\r\n"), (Progress::Done, vec!["one\r\n.\r\ntwo".to_owned()]));
    for end in ["\n.\n", "\n.\r\n", "\r\n.\n", "\r\n.\r\r\n", "\n.\r\r\n"] {
        assert_eq!(of(end).0, Progress::Error, "{end:?}");
    }
    // Other lines may end as they like.
    assert_eq!(of("\ntwo\nthree\r\n.\r\n").0, Progress::Done);
}

#[test]
fn prevention_refuses_a_message_before_the_reply_to_its_command() {
    let begin = [
        (ToClient, "220 x\r\n"),
        (ToServer, "HELO c\r\n"),
        (ToClient, "250 x\r\n"),
        (ToServer, "MAIL FROM:<a>\r\nRCPT TO:<b>\r\nDATA\r\n"),
    ];
    let of = |pieces: &[(Direction, &str)]| prevented(&[&begin[..], pieces].concat()).0;
    assert_eq!(of(&[(ToServer, "Subject: a\r\n")]), Progress::Error);
    assert_eq!(of(&[(ToClient, "250 a\r\n250 b\r\n"), (ToServer, "Subject: a\r\n")]), Progress::Error);
    assert_eq!(of(&[(ToClient, "250 a\r\n250 b\r\n503 c\r\n"), (ToServer, "QUIT\r\n")]), Progress::Done);
    // A reply that was missed changes nothing.
    assert_eq!(of(&[(ToClient, "250 a\r\n354 go\r\n"), (ToServer, "Subject: a\r\n.\r\n")]), Progress::Done);
    // Of a client alone the message is read.
    let alone =
        [(ToServer, "EHLO c\r\nMAIL FROM:<a>\r\nRCPT TO:<b>\r\nDATA\r\nSubject: a\r\n\r\nx\r\n.\r\n")];
    assert_eq!(prevented(&alone).0, Progress::Done);
}

#[test]
fn bounds_are_told() {
    let mut driver = play(&[]);
    for _ in 0..=parser::TX_MAX {
        driver.send(ToServer, b"MAIL FROM:<a>\r\nRSET\r\n");
        driver.send(ToClient, b"250 a\r\n250 a\r\n");
    }
    let range = driver.parser().tx_range();
    assert_eq!(range.end - range.start, parser::TX_MAX as u64);
    assert_eq!(events(&mut driver, range.end - 1), ["FLOODED"]);
    let mut driver = play(&[]);
    for _ in 0..=tx::RECIPIENTS_MAX {
        driver.send(ToServer, b"RCPT TO:<a>\r\n");
    }
    assert_eq!(events(&mut driver, 0), ["FLOODED"]);
    assert!(driver.parser().held() < 100_000, "{}", driver.parser().held());
}

#[test]
fn settings_are_read() {
    let read = |pairs: &[(&str, &str)]| SmtpConfig::read(&settings(pairs));
    assert_eq!(read(&[]).expect("defaults").message.url_schemes, ["http://"]);
    let list = [("mime.extract-urls-schemes.0", "HTTPS"), ("mime.extract-urls-schemes.1", "ftp")];
    assert_eq!(read(&list).expect("a list").message.url_schemes, ["https://", "ftp://"]);
    assert!(read(&[("mime.extract-urls", "no")]).expect("no").message.url_schemes.is_empty());
    for (key, value) in
        [("mime.decode-mime", "perhaps"), ("mime.body-md5", "x"), ("inspected-tracker.content-limit", "y")]
    {
        assert!(read(&[(key, value)]).is_err(), "{key}");
    }
}

#[test]
fn greetings_and_first_commands_show_the_protocol() {
    for (direction, text, expected) in [
        (ToClient, "220 mail\r\n", Probe::Yes(ToClient)),
        (ToClient, "220-mail", Probe::More),
        (ToClient, "220mail\r\n", Probe::No),
        (ToServer, "ehlo x", Probe::Yes(ToServer)),
        (ToServer, "EH", Probe::More),
        (ToServer, "MAIL", Probe::No),
    ] {
        assert_eq!(probe(Transport::Tcp, direction, text.as_bytes()), expected, "{text}");
    }
}

#[test]
fn commands_of_ftp_are_refused_in_prevention() {
    for (prevents, failed) in [(false, false), (true, true)] {
        let mut driver = Driver::new(&SPEC, Transport::Tcp);
        driver.prevents = prevents;
        driver.send(ToServer, b"EHLO x\r\n");
        driver.send(ToClient, b"220 ready\r\n500 no\r\n");
        assert!(!driver.failed);
        driver.send(ToServer, b"USER anonymous\r\n");
        assert_eq!(driver.failed, failed, "{prevents}");
    }
}
