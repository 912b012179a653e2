// SPDX-License-Identifier: Apache-2.0
//! Hand-made sessions through the parser, and properties: any segmentation gives the same, garbage never
//! panics, memory stays bounded.

mod changes;

use super::hello::HelloFields;
use super::{SPEC, events, handshake, probe};
use crate::content::certificate::Storing;
use crate::event::Events;
use crate::file::FileSettings;
use crate::protocol::{Input, ParseContext, Parser, Probe, Progress, Transport};
use crate::transaction::{BufferQuery, LogOptions, Transaction};
use bartizan_base::{Direction, PerDirection, SettingsMap, Timestamp};
use bartizan_events::JsonWriter;
use proptest::prelude::*;

const TS: Direction = Direction::ToServer;
const TC: Direction = Direction::ToClient;

/// Length in `bytes` bytes, then the body.
fn sized(bytes: usize, body: &[u8]) -> Vec<u8> {
    let mut out = (body.len() as u32).to_be_bytes()[4 - bytes..].to_vec();
    out.extend_from_slice(body);
    out
}

fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn record(kind: u8, version: u16, body: &[u8]) -> Vec<u8> {
    join(&[&[kind], &version.to_be_bytes(), &sized(2, body)])
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    join(&[&[kind], &sized(3, body)])
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    join(&[&kind.to_be_bytes(), &sized(2, body)])
}

fn words(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_be_bytes()).collect()
}

fn client_hello(version: u16, session: &[u8], ciphers: &[u16], extensions: &[Vec<u8>]) -> Vec<u8> {
    let body = join(&[
        &version.to_be_bytes(),
        &[7; 32],
        &sized(1, session),
        &sized(2, &words(ciphers)),
        &[1, 0],
        &sized(2, &extensions.concat()),
    ]);
    message(1, &body)
}

fn server_hello(version: u16, session: &[u8], cipher: u16, extensions: &[Vec<u8>]) -> Vec<u8> {
    let body = join(&[
        &version.to_be_bytes(),
        &[9; 32],
        &sized(1, session),
        &cipher.to_be_bytes(),
        &[0],
        &sized(2, &extensions.concat()),
    ]);
    message(2, &body)
}

fn sni(name: &[u8]) -> Vec<u8> {
    extension(0, &sized(2, &join(&[&[0], &sized(2, name)])))
}

fn alpn(names: &[&[u8]]) -> Vec<u8> {
    let list: Vec<u8> = names.iter().flat_map(|n| sized(1, n)).collect();
    extension(16, &sized(2, &list))
}

fn usual_extensions() -> Vec<Vec<u8>> {
    vec![
        extension(0x3a3a, &[]),
        sni(b"host.example"),
        extension(10, &sized(2, &words(&[0x1a1a, 29, 23]))),
        extension(11, &sized(1, &[0])),
        extension(13, &sized(2, &words(&[0x0403, 0x0804]))),
        alpn(&[b"h2", b"http/1.1"]),
    ]
}

// --- certificates in DER ---

fn der(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = match body.len() {
        n @ 0..=127 => vec![n as u8],
        n @ 128..=255 => vec![0x81, n as u8],
        n => vec![0x82, (n >> 8) as u8, n as u8],
    };
    join(&[&[tag], &length, body])
}

fn name(attributes: &[(u8, &str)]) -> Vec<u8> {
    let parts: Vec<u8> = attributes
        .iter()
        .flat_map(|(id, text)| {
            der(0x31, &der(0x30, &join(&[&der(6, &[0x55, 4, *id]), &der(0x0c, text.as_bytes())])))
        })
        .collect();
    der(0x30, &parts)
}

fn certificate(serial: &[u8], subject: &[(u8, &str)], alternatives: &[(u8, &[u8])]) -> Vec<u8> {
    let algorithm =
        der(0x30, &join(&[&der(6, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11]), &der(5, &[])]));
    let key = der(0x30, &join(&[&algorithm, &der(3, &[0, 1, 2, 3])]));
    let names: Vec<u8> = alternatives.iter().flat_map(|(tag, value)| der(0x80 | tag, value)).collect();
    let san = der(0x30, &join(&[&der(6, &[0x55, 0x1d, 0x11]), &der(4, &der(0x30, &names))]));
    let extensions = if alternatives.is_empty() { vec![] } else { der(0xa3, &der(0x30, &san)) };
    let tbs = join(&[
        &der(0xa0, &der(2, &[2])),
        &der(2, serial),
        &algorithm,
        &name(&[(6, "US"), (10, "Issuer, Inc."), (3, "CA")]),
        &der(0x30, &join(&[&der(0x17, b"690101000000Z"), &der(0x18, b"20380119031408Z")])),
        &name(subject),
        &key,
        &extensions,
    ]);
    der(0x30, &join(&[&der(0x30, &tbs), &algorithm, &der(3, &[0, 5, 6])]))
}

fn usual_certificate() -> Vec<u8> {
    certificate(
        &[0, 0xab, 1],
        &[(6, "DE"), (10, "Example \0 \"GmbH\""), (3, "host.example")],
        &[(2, b"host.example"), (7, &[192, 0, 2, 1]), (1, b"me@host.example")],
    )
}

fn certificates(list: &[Vec<u8>]) -> Vec<u8> {
    let chain: Vec<u8> = list.iter().flat_map(|c| sized(3, c)).collect();
    message(11, &sized(3, &chain))
}

// --- a flow under test ---

struct Flow {
    parser: Box<dyn Parser>,
    files: FileSettings,
    events: Events,
    pending: PerDirection<Vec<u8>>,
    last: Progress,
}

impl Flow {
    fn with(settings: &[(&str, &str)]) -> Self {
        let mut all = SettingsMap::new();
        settings.iter().for_each(|(k, v)| all.set(*k, *v));
        let parser = (SPEC.configure)(&all).expect("settings").make();
        Flow {
            parser,
            files: FileSettings::default(),
            events: Events::default(),
            pending: PerDirection::default(),
            last: Progress::Done,
        }
    }

    fn new() -> Self {
        Self::with(&[("ja3-fingerprints", "yes")])
    }

    fn context<R>(&mut self, call: impl FnOnce(&mut dyn Parser, &mut ParseContext<'_>) -> R) -> R {
        let mut context = ParseContext {
            now: Timestamp::default(),
            server_port: 443,
            client_port: 40_000,
            transport: Transport::Tcp,
            files: &self.files,
            prevents: false,
            events: &mut self.events,
        };
        call(self.parser.as_mut(), &mut context)
    }

    fn feed(&mut self, direction: Direction, data: &[u8]) -> &mut Self {
        if matches!(self.last, Progress::Error | Progress::Stop { .. }) {
            return self;
        }
        let mut pending = core::mem::take(&mut self.pending[direction]);
        pending.extend_from_slice(data);
        self.last =
            self.context(|p, c| p.parse(direction, Input { data: &pending, offset: 0, eof: false }, c));
        let consumed = match self.last {
            Progress::Incomplete { consumed, needed } => {
                assert!(needed > 0 && consumed < pending.len());
                assert!(needed > pending.len() - consumed, "asks for what is there");
                consumed
            }
            _ => pending.len(),
        };
        pending.drain(..consumed);
        self.pending[direction] = pending;
        self
    }

    fn end(&mut self) -> &mut Self {
        for direction in Direction::BOTH {
            self.context(|p, c| p.end(direction, c));
        }
        self.parser.tx_mut(0).expect("tx").common_mut().ended = PerDirection::new(true, true);
        self
    }

    fn tx(&self) -> &dyn Transaction {
        self.parser.tx(0).expect("transaction")
    }

    fn states(&self) -> (u8, u8) {
        (self.tx().progress(TS), self.tx().progress(TC))
    }

    fn ready(&self) -> bool {
        self.tx().log_ready(SPEC.complete)
    }

    fn raised(&self) -> Vec<&'static str> {
        self.tx().common().events.as_slice().iter().map(|c| SPEC.events[usize::from(*c)]).collect()
    }

    fn bytes(&self, name: &str, direction: Direction, index: u32) -> Option<Vec<u8>> {
        let spec = SPEC.buffers.iter().find(|b| b.name == name).expect("buffer");
        let mut scratch = Vec::new();
        let query = BufferQuery { id: spec.id, direction, index };
        self.tx().buffer(query, &mut scratch).map(|v| v.data.to_vec())
    }

    fn text(&self, name: &str, direction: Direction) -> Option<String> {
        self.bytes(name, direction, 0).map(|b| String::from_utf8(b).expect("text"))
    }

    fn number(&self, name: &str, direction: Direction) -> Option<u64> {
        self.tx().number(super::SPEC.number(name).expect(name), direction)
    }

    fn log(&self, settings: &[(&str, &str)], custom: &[&str]) -> serde_json::Value {
        let mut options =
            LogOptions { custom: custom.iter().map(|n| (*n).to_owned()).collect(), ..LogOptions::default() };
        settings.iter().for_each(|(k, v)| options.settings.set(*k, *v));
        let mut json = JsonWriter::new();
        json.begin_object();
        self.tx().log(&mut json, &options, false);
        json.end_object();
        serde_json::from_slice(json.bytes()).expect("JSON")
    }
}

const ALL: &[&str] = &[
    "version",
    "subject",
    "issuer",
    "serial",
    "fingerprint",
    "not_before",
    "not_after",
    "sni",
    "certificate",
    "chain",
    "ja3",
    "ja3s",
    "client_certificate",
    "client_chain",
    "ja4",
    "subjectaltname",
    "client_alpns",
    "server_alpns",
    "client_handshake",
    "server_handshake",
];

/// A TLS 1.2 session by pieces: direction and bytes.
fn session() -> Vec<(Direction, Vec<u8>)> {
    let ciphers = [0x2a2a, 0xc02f, 0x009c];
    let hello = record(22, 0x0301, &client_hello(0x0303, b"", &ciphers, &usual_extensions()));
    let flight = join(&[
        &server_hello(0x0303, b"abc", 0xc02f, &[alpn(&[b"h2"]), extension(0xff01, &[0])]),
        &certificates(&[usual_certificate(), certificate(&[5], &[(3, "CA")], &[])]),
        &message(12, &[1; 40]),
        &message(14, &[]),
    ]);
    // Messages span records: the flight is cut every 100 bytes, far enough from the messages' heads.
    let mut server = Vec::new();
    for piece in cut_at_heads(&flight, 100) {
        server.extend(record(22, 0x0303, piece));
    }
    vec![
        (TS, hello),
        (TC, server),
        (
            TS,
            join(&[
                &record(22, 0x0303, &message(16, &[2; 66])),
                &record(20, 0x0303, &[1]),
                &record(22, 0x0303, &[0x55; 40]),
            ]),
        ),
        (TC, join(&[&record(20, 0x0303, &[1]), &record(22, 0x0303, &[0xaa; 40])])),
        (TS, record(23, 0x0303, &[3; 300])),
        (TC, record(23, 0x0303, &[4; 700])),
        (TS, record(21, 0x0303, &[8; 31])),
    ]
}

/// Cuts messages into pieces of about `size` bytes without cutting a head.
fn cut_at_heads(messages: &[u8], size: usize) -> Vec<&[u8]> {
    let mut heads = Vec::new();
    let mut at = 0;
    while at < messages.len() {
        heads.push(at);
        at += 4 + usize::from(u16::from_be_bytes([messages[at + 2], messages[at + 3]]));
    }
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < messages.len() {
        let mut end = (start + size).min(messages.len());
        if let Some(head) = heads.iter().find(|h| **h < end && end < **h + 4) {
            end = head + 4;
        }
        pieces.push(&messages[start..end]);
        start = end;
    }
    pieces
}

#[test]
fn the_end_of_a_side_leaves_the_state_that_its_last_record_told() {
    let mut flow = Flow::new();
    flow.feed(TS, &session()[0].1);
    flow.context(|p, c| p.parse(TS, Input { data: &[], offset: 0, eof: true }, c));
    assert_eq!(flow.number("ssl.state", TS), Some(1));
}

#[test]
fn tls12_session() {
    let mut flow = Flow::new();
    let pieces = session();
    flow.feed(TS, &pieces[0].1);
    assert_eq!(flow.states(), (1, 0));
    assert_eq!(flow.number("ssl.state", TS), Some(1));
    flow.feed(TS, b"");
    assert_eq!(flow.number("ssl.state", TS), Some(1), "an end without data is no record");
    assert_eq!(flow.text("tls.sni", TS).as_deref(), Some("host.example"));
    assert_eq!(flow.bytes("tls.alpn", TS, 1).as_deref(), Some(b"http/1.1".as_slice()));
    assert_eq!(flow.bytes("tls.alpn", TS, 2), None);
    assert_eq!(flow.bytes("tls.random_time", TS, 0).as_deref(), Some([7; 4].as_slice()));
    assert_eq!(flow.bytes("tls.random_bytes", TS, 0).map(|b| b.len()), Some(28));
    assert_eq!(flow.bytes("tls.random", TC, 0), None);
    assert_eq!(flow.text("ja3.string", TS).as_deref(), Some("771,49199-156,0-10-11-13-16,29-23,0"));
    assert_eq!(flow.text("ja4.hash", TS).map(|t| t[..10].to_owned()).as_deref(), Some("t12d0205h2"));
    assert!(!flow.ready());

    flow.feed(TC, &pieces[1].1);
    assert_eq!(flow.states(), (3, 4));
    assert!(flow.ready(), "a certificate is enough");
    assert_eq!(
        flow.text("tls.cert_subject", TC).as_deref(),
        Some("C=DE, O=Example \0 \"GmbH\", CN=host.example")
    );
    assert_eq!(flow.text("tls.cert_issuer", TC).as_deref(), Some("C=US, O=Issuer, Inc., CN=CA"));
    assert_eq!(flow.text("tls.cert_serial", TC).as_deref(), Some("00:AB:01"));
    assert_eq!(flow.text("tls.cert_fingerprint", TC).map(|t| t.len()), Some(59));
    assert_eq!(flow.bytes("tls.certs", TC, 0), Some(usual_certificate()));
    assert!(flow.bytes("tls.certs", TC, 1).is_some() && flow.bytes("tls.certs", TC, 2).is_none());
    assert_eq!(flow.bytes("tls.subjectaltname", TC, 1).as_deref(), Some(b"192.0.2.1".as_slice()));
    assert_eq!(flow.text("ja3s.string", TC).as_deref(), Some("771,49199,16-65281"));
    assert_eq!(flow.number("tls.chain_len", TC), Some(2));
    assert_eq!(flow.number("tls.version", TC), Some(0x0303));
    assert_eq!(flow.number("tls.not_before", TC).map(u64::cast_signed), Some(-31_536_000));
    assert_eq!(flow.number("tls.not_after", TC), Some(2_147_483_648));

    pieces[2..].iter().for_each(|(d, data)| {
        flow.feed(*d, data);
    });
    assert_eq!(flow.last, Progress::Done);
    assert_eq!(flow.number("tls.encrypted", TS), Some(1));
    assert_eq!(flow.raised(), Vec::<&str>::new());
    flow.end();
    assert_eq!(flow.states(), (SPEC.complete.to_server, SPEC.complete.to_client));

    let record = flow.log(&[("extended", "yes")], &[]);
    assert_eq!(record["version"], "TLS 1.2");
    assert_eq!(record["notbefore"], "1969-01-01T00:00:00");
    assert_eq!(record["notafter"], "2038-01-19T03:14:08");
    assert_eq!(record["subjectaltname"][2], "me@host.example");
    assert_eq!(record["client_alpns"][0], "h2");
    assert_eq!(record["server_alpns"][0], "h2");
    assert!(record.get("session_resumed").is_none() && record.get("certificate").is_none());
    let record = flow.log(&[], ALL);
    assert_eq!(record["chain"].as_array().map(Vec::len), Some(2));
    assert_eq!(record["chain"][0], record["certificate"]);
    assert_eq!(record["client_handshake"]["sig_algs"][1], 0x0804);
    assert_eq!(record["server_handshake"]["cipher"], 0xc02f);
    assert_eq!(flow.log(&[], &[]).as_object().map(|o| o.len()), Some(3), "subject, issuer, names");
}

/// In passive mode the server's side may be acknowledged first: rules on the client's hello must wait for it.
#[test]
fn a_client_that_was_not_heard_yet_is_in_progress() {
    let mut flow = Flow::new();
    let pieces = session();
    flow.feed(TC, &pieces[1].1);
    assert_eq!(flow.states(), (0, 4));
    flow.feed(TS, &pieces[0].1);
    assert_eq!(flow.states(), (3, 4));
    assert_eq!(flow.text("tls.sni", TS).as_deref(), Some("host.example"));
    // A broken hello alone does not advance the state, but the server has answered it.
    let mut flow = Flow::new();
    flow.feed(TS, &record(22, 0x0301, &message(1, &[3, 3, 1])));
    assert_eq!(flow.states(), (0, 0));
    flow.feed(TC, &pieces[1].1);
    assert_eq!(flow.states(), (3, 4));
}

#[test]
fn client_certificate_is_waited_for() {
    let mut flow = Flow::new();
    flow.feed(TS, &record(22, 0x0301, &client_hello(0x0303, b"", &[0x2f], &[])));
    let flight = join(&[
        &server_hello(0x0303, b"", 0x2f, &[]),
        &certificates(&[usual_certificate()]),
        &message(13, &[1, 1, 0, 0]),
        &message(14, &[]),
    ]);
    flow.feed(TC, &record(22, 0x0303, &flight));
    assert_eq!(flow.states(), (1, 3));
    assert!(!flow.ready());
    let own = certificate(&[7], &[(3, "client")], &[]);
    flow.feed(TS, &record(22, 0x0303, &certificates(&[own])));
    assert_eq!(flow.states(), (3, 4));
    assert!(flow.ready());
    assert_eq!(flow.text("tls.cert_subject", TS).as_deref(), Some("CN=client"));
    assert_eq!(flow.log(&[("extended", "yes")], &[])["client"]["subject"], "CN=client");
}

#[test]
fn certificates_are_due_once_when_asked_for_and_there() {
    let mut flow = Flow::new();
    let ask = |flow: &mut Flow, side: Direction| {
        let storing = flow.parser.tx_mut(0).unwrap().storing_mut().unwrap();
        if side == TC { storing.to_client.request() } else { storing.to_server.request() }
    };
    let due = |flow: &Flow, side| {
        let view = flow.parser.tx(0).unwrap().certificates().unwrap();
        view.due(side).map(|c| (c.subject.to_owned(), c.chain.concat()))
    };
    flow.feed(TS, &record(22, 0x0301, &client_hello(0x0303, b"", &[0x2f], &[])));
    assert!(ask(&mut flow, TC) && !ask(&mut flow, TC), "before they came");
    assert_eq!(due(&flow, TC), None);
    let chain = [certificate(&[1], &[(3, "host")], &[]), certificate(&[2], &[(3, "above")], &[])];
    let flight = join(&[
        &server_hello(0x0303, b"", 0x2f, &[]),
        &certificates(&chain),
        &message(13, &[1, 1, 0, 0]),
        &message(14, &[]),
    ]);
    flow.feed(TC, &record(22, 0x0303, &flight));
    assert_eq!(due(&flow, TC), Some(("CN=host".to_owned(), chain.concat())));
    *flow.parser.tx_mut(0).unwrap().storing_mut().unwrap().to_client = Storing::Done;
    assert_eq!(due(&flow, TC), None);
    assert!(!ask(&mut flow, TC), "they were stored");
    // The client's certificates: not before a request, and then although they came earlier.
    let own = certificate(&[7], &[(3, "client")], &[]);
    flow.feed(TS, &record(22, 0x0303, &certificates(core::slice::from_ref(&own))));
    assert_eq!(due(&flow, TS), None);
    assert!(ask(&mut flow, TS));
    assert_eq!(due(&flow, TS), Some(("CN=client".to_owned(), own)));
}

#[test]
fn tls13_session() {
    let mut extensions = usual_extensions();
    extensions.push(extension(43, &sized(1, &words(&[0x5a5a, 0x0304, 0x0303]))));
    let mut flow = Flow::new();
    flow.feed(TS, &record(22, 0x0301, &client_hello(0x0303, &[1; 32], &[0x1301], &extensions)));
    assert_eq!(flow.number("tls.version", TS), Some(0x0304));
    let hello = server_hello(0x0303, &[1; 32], 0x1301, &[extension(43, &words(&[0x0304]))]);
    flow.feed(
        TC,
        &join(&[&record(22, 0x0303, &hello), &record(20, 0x0303, &[1]), &record(23, 0x0303, &[1; 50])]),
    );
    assert_eq!(flow.states(), (1, 4));
    flow.feed(TS, &record(20, 0x0303, &[1]));
    assert!(flow.ready(), "no certificate can be seen");
    let record = flow.log(&[("extended", "yes")], &[]);
    assert_eq!(record["version"], "TLS 1.3");
    assert!(record.get("session_resumed").is_none());
    assert!(record["ja4"].as_str().is_some_and(|t| t.starts_with("t13d0106h2_")));
}

#[test]
fn resumed_session() {
    let mut flow = Flow::new();
    flow.feed(TS, &record(22, 0x0301, &client_hello(0x0301, b"same", &[0x2f], &[])));
    let hello = server_hello(0x0301, b"same", 0x2f, &[]);
    flow.feed(
        TC,
        &join(&[&record(22, 0x0301, &hello), &record(20, 0x0301, &[1]), &record(22, 0x0301, &[7; 36])]),
    );
    flow.feed(TS, &join(&[&record(20, 0x0301, &[1]), &record(23, 0x0301, &[7; 36])]));
    assert!(!flow.ready());
    flow.feed(TC, &record(23, 0x0301, &[7; 36]));
    assert!(flow.ready());
    assert_eq!(flow.log(&[("extended", "no")], &[])["session_resumed"], true);
    let mut options = LogOptions::default();
    assert_eq!(flow.tx().records(&options), 0, "a bare type");
    options.settings.set("session-resumption", "yes");
    assert_eq!(flow.tx().records(&options), 1);
}

#[test]
fn a_session_is_resumed_whichever_hello_is_read_first() {
    let mut flow = Flow::new();
    flow.feed(TC, &record(22, 0x0301, &server_hello(0x0301, b"same", 0x2f, &[])));
    flow.feed(TS, &record(22, 0x0301, &client_hello(0x0301, b"same", &[0x2f], &[]))).end();
    assert_eq!(flow.log(&[("extended", "no")], &[])["session_resumed"], true);
    let mut flow = Flow::new();
    flow.feed(TC, &record(22, 0x0301, &server_hello(0x0301, b"other", 0x2f, &[])));
    flow.feed(TS, &record(22, 0x0301, &client_hello(0x0301, b"same", &[0x2f], &[]))).end();
    assert!(flow.log(&[("extended", "no")], &[]).get("session_resumed").is_none());
}

#[test]
fn a_session_of_tls_1_3_has_a_record_whichever_hello_is_read_first() {
    let offers = client_hello(0x0303, b"", &[0x1301], &[extension(43, &sized(1, &words(&[0x0304])))]);
    for chosen in [0x0304, 0x0303] {
        let answer = server_hello(0x0303, b"", 0x1301, &[extension(43, &words(&[chosen]))]);
        let mut flow = Flow::new();
        flow.feed(TC, &record(22, 0x0303, &answer));
        flow.feed(TS, &record(22, 0x0301, &offers)).end();
        assert_eq!(flow.ready(), chosen == 0x0304);
    }
}

#[test]
fn nothing_to_log_without_certificate() {
    let mut flow = Flow::new();
    flow.feed(TS, &record(22, 0x0301, &client_hello(0x0303, b"", &[0x2f], &[]))).end();
    assert!(!flow.ready());
    assert_eq!(flow.text("ja3.string", TS).as_deref(), Some("771,47,,,"));
    assert_eq!(
        flow.log(&[("extended", "yes")], &[])["version"],
        "TLS 1.2",
        "the client's, for want of another"
    );
}

#[test]
fn ssl2_hello_then_tls() {
    let hello = join(&[&[0x80, 0x0c, 1, 3, 1, 0, 3, 0, 0, 0, 0], &[1, 2, 3]]);
    assert_eq!(probe(Transport::Tcp, TS, &hello), Probe::Yes(TS));
    let mut flow = Flow::new();
    flow.feed(TS, &hello[..2]).feed(TS, &hello[2..]);
    assert_eq!((flow.last, flow.states()), (Progress::Done, (1, 0)));
    assert_eq!(flow.number("tls.version", TS), Some(0x0301));
    flow.feed(TC, &record(22, 0x0301, &server_hello(0x0301, b"", 0x2f, &[])));
    flow.feed(TC, &record(22, 0x0301, &certificates(&[usual_certificate()])));
    assert!(flow.ready());
    // A hello in the old form has no parts for a JA4.
    assert!(flow.log(&[("extended", "yes")], &[]).get("ja4").is_none());
}

#[test]
fn a_host_name_behind_a_name_of_another_kind_counts() {
    let list = |entries: &[(u8, &[u8])]| {
        let names: Vec<Vec<u8>> =
            entries.iter().map(|(kind, name)| join(&[&[*kind], &sized(2, name)])).collect();
        extension(0, &sized(2, &names.concat()))
    };
    let hello = |extensions: &[Vec<u8>]| record(22, 0x0301, &client_hello(0x0303, b"", &[0x2f], extensions));
    let other: (u8, &[u8]) = (1, b"good.test");
    let cases: [(Vec<Vec<u8>>, Option<&str>); 4] = [
        (vec![list(&[other, (0, b"evil.test")])], Some("evil.test")),
        (vec![list(&[other, other, (0, b"evil.test"), (0, b"later")])], Some("evil.test")),
        (vec![list(&[other]), list(&[other, (0, b"evil.test")])], Some("evil.test")),
        (vec![list(&[other, other])], None),
    ];
    for (extensions, name) in cases {
        let mut flow = Flow::new();
        flow.feed(TS, &hello(&extensions));
        assert_eq!(flow.text("tls.sni", TS).as_deref(), name);
    }
}

#[test]
fn odd_input_by_event() {
    let hello = |extensions: &[Vec<u8>]| record(22, 0x0301, &client_hello(0x0303, b"", &[0x2f], extensions));
    let long = [b'a'; 256];
    let broken_certificate = certificates(&[vec![0x30, 0x03, 2, 1, 1]]);
    let cases: &[(&str, Direction, Vec<u8>, bool)] = &[
        ("INVALID_SNI_TYPE", TS, hello(&[extension(0, &[0, 4, 1, 0, 1, b'a'])]), false),
        ("INVALID_SNI_LENGTH", TS, hello(&[sni(&long)]), false),
        ("INVALID_SNI_LENGTH", TS, hello(&[sni(b"")]), false),
        ("MULTIPLE_SNI_EXTENSIONS", TS, hello(&[sni(b"a"), sni(b"b")]), false),
        ("HANDSHAKE_INVALID_LENGTH", TS, record(22, 0x0301, &message(1, &[3, 3, 1])), false),
        ("HANDSHAKE_INVALID_LENGTH", TS, hello(&[extension(16, &[0, 9, 1])]), false),
        ("INVALID_RECORD_TYPE", TS, record(25, 0x0303, &[1; 8]), true),
        ("INVALID_RECORD_VERSION", TS, record(22, 0x0909, &[1; 8]), true),
        ("INVALID_RECORD_VERSION", TS, record(22, 0x0305, &[1; 8]), false),
        ("INVALID_RECORD_LENGTH", TS, record(22, 0x0303, &[]), false),
        ("INVALID_RECORD_LENGTH", TS, record(22, 0x0303, &[]).repeat(33), true),
        ("INVALID_RECORD_LENGTH", TC, record(22, 0x0303, &[0; 18_433]), true),
        ("INVALID_HANDSHAKE_MESSAGE", TC, record(22, 0x0303, &message(77, &[1])), false),
        ("INVALID_ALERT_MESSAGE", TC, record(21, 0x0303, &[1]), true),
        ("INVALID_HEARTBEAT_MESSAGE", TS, record(24, 0x0303, &[9, 0, 0]), true),
        ("OVERFLOW_HEARTBEAT_MESSAGE", TS, record(24, 0x0303, &[1, 0x40, 0, 0]), true),
        ("INVALID_HEARTBEAT_MESSAGE", TS, record(24, 0x0303, &[1, 0, 1, 0, 9]), true),
        ("INVALID_CERTIFICATE", TC, record(22, 0x0303, &message(11, &sized(3, &[0, 0, 9, 1]))), false),
        ("INVALID_SSLV2_HEADER", TS, vec![0x80, 0, 1], true),
        ("INVALID_SSL_RECORD", TS, vec![0x80, 2, 1, 0], true),
        ("ERROR_MESSAGE_ENCOUNTERED", TS, vec![0x80, 3, 0, 0, 1], false),
        ("TOO_MANY_RECORDS_IN_PACKET", TS, [0x80, 1, 5].repeat(10), true),
    ];
    for (event, direction, data, fatal) in cases {
        let mut flow = Flow::new();
        flow.feed(*direction, data);
        assert!(flow.raised().contains(event), "{event}: {:?}", flow.raised());
        assert_eq!(flow.last == Progress::Error, *fatal, "{event}");
    }
    let mut flow = Flow::new();
    flow.feed(TS, &record(22, 0x0305, &[0; 18_433]));
    assert_eq!((flow.raised(), flow.last), (vec!["INVALID_RECORD_VERSION"], Progress::Error), "one is told");
    let mut flow = Flow::new();
    flow.feed(TC, &record(22, 0x0303, &broken_certificate));
    assert!(flow.raised().iter().any(|e| e.contains("CERTIFICATE")), "{:?}", flow.raised());
    assert_eq!(flow.number("tls.chain_len", TC), Some(0));
    assert_eq!(events::NAMES.len(), 31);
}

#[test]
fn of_a_message_only_so_much_is_put_together() {
    const PIECE: usize = 1 << 14;
    let mut flow = Flow::new();
    // The message declares an impossible size; that much does not come.
    flow.feed(TC, &record(22, 0x0303, &[11, 0x40, 0, 0, 1, 1]));
    for _ in 0..handshake::MESSAGE_MAX / PIECE - 1 {
        flow.feed(TC, &record(22, 0x0303, &[7; PIECE]));
    }
    assert_eq!(flow.raised(), [""; 0]);
    flow.feed(TC, &record(22, 0x0303, &[7; PIECE]));
    assert_eq!(flow.raised(), ["INVALID_HANDSHAKE_MESSAGE"]);
    flow.feed(TC, &record(22, 0x0303, &[7; PIECE]));
    assert_eq!(flow.last, Progress::Done);
}

#[test]
fn a_version_is_known_before_the_length_of_its_record() {
    let version = |pieces: &[&[u8]]| {
        let mut flow = Flow::new();
        for piece in pieces {
            flow.feed(Direction::ToClient, piece);
        }
        flow.number("tls.version", Direction::ToClient)
    };
    let unknown = version(&[]);
    assert_eq!(version(&[&[22, 3]]), unknown, "a half of it");
    assert_eq!(version(&[&[22, 3], &[3]]), Some(0x303));
    assert_eq!(version(&[&[22, 3, 1, 0]]), Some(0x301));
    assert_eq!(version(&[&[22, 9, 1, 0]]), unknown, "none");
    assert_eq!(version(&[&[25, 3, 1]]), unknown, "no record");
    // The hello's is kept.
    let hello = record(22, 0x301, &server_hello(0x303, &[], 0xc02f, &[]));
    assert_eq!(version(&[&hello, &[22, 3, 1]]), Some(0x303));
}

#[test]
fn unknown_records_are_ignored_in_tls10() {
    let mut flow = Flow::new();
    flow.feed(TS, &record(22, 0x0301, &client_hello(0x0301, b"", &[0x2f], &[])));
    flow.feed(TS, &join(&[&record(25, 0x0301, &[0; 9]), &record(20, 0x0301, &[1])]));
    assert_eq!((flow.last, flow.states()), (Progress::Done, (3, 0)));
    assert_eq!(flow.raised(), ["INVALID_RECORD_TYPE"]);
}

#[test]
fn heartbeat_that_leaks() {
    let mut flow = Flow::new();
    flow.feed(TS, &record(20, 0x0303, &[1])).feed(TC, &record(20, 0x0303, &[1]));
    flow.feed(TS, &record(24, 0x0303, &[1; 40])).feed(TC, &record(24, 0x0303, &[1; 40]));
    assert_eq!(flow.last, Progress::Done, "as long as the question");
    flow.feed(TS, &record(24, 0x0303, &[1; 40])).feed(TC, &record(24, 0x0303, &[1; 4000]));
    assert_eq!(flow.raised(), ["DATALEAK_HEARTBEAT_MISMATCH"]);
}

#[test]
fn fatal_alert_ends_the_session() {
    let mut flow = Flow::new();
    flow.feed(TS, &record(22, 0x0301, &client_hello(0x0303, b"", &[0x2f], &[])));
    flow.feed(TC, &record(21, 0x0303, &[1, 0]));
    assert_eq!(flow.states(), (1, 0));
    flow.feed(TC, &record(21, 0x0303, &[2, 40]));
    assert_eq!(flow.states(), (4, 5));
    assert!(!flow.ready());
}

#[test]
fn encryption_handling() {
    for (setting, stop, seen) in
        [("track-only", false, 1), ("default", false, 1), ("full", false, 0), ("bypass", true, 1)]
    {
        let mut flow = Flow::with(&[("encryption-handling", setting)]);
        session().iter().for_each(|(d, data)| {
            flow.feed(*d, data);
        });
        assert_eq!(flow.last == Progress::Stop { bypass: true }, stop, "{setting}");
        assert_eq!(flow.number("tls.encrypted", TC), Some(seen), "{setting}");
    }
    let mut odd = SettingsMap::new();
    odd.set("encryption-handling", "none");
    assert!((SPEC.configure)(&odd).is_err());
    let mut odd = SettingsMap::new();
    odd.set("ja3-fingerprints", "perhaps");
    assert!((SPEC.configure)(&odd).is_err());
}

#[test]
fn without_a_hello_there_is_no_fingerprint_to_look_at() {
    let mut flow = Flow::new();
    let hello = &session()[0].1;
    flow.feed(TS, &hello[..hello.len() - 1]).end();
    assert_eq!(flow.bytes("ja4.hash", TS, 0), None);
    assert_eq!(flow.bytes("ja3.hash", TS, 0), None);
    let logged = |flow: &Flow| flow.log(&[("extended", "yes")], &[]);
    assert!(logged(&flow).get("ja4").is_none(), "its last byte is missing");
    let mut one_sided = Flow::new();
    one_sided.feed(TC, &session()[1].1);
    assert!(logged(&one_sided).get("ja4").is_none() && logged(&one_sided).get("version").is_some());
    assert!(Flow::new().feed(TS, hello).bytes("ja4.hash", TS, 0).is_some());
}

#[test]
fn fingerprint_settings() {
    for (setting, buffer, logged) in [("auto", true, false), ("yes", true, true), ("no", false, false)] {
        let mut flow = Flow::with(&[("ja3-fingerprints", setting), ("ja4-fingerprints", setting)]);
        flow.feed(TS, &session()[0].1);
        assert_eq!(flow.text("ja3.hash", TS).is_some(), buffer, "{setting}");
        assert_eq!(flow.text("ja4.hash", TS).is_some(), buffer, "{setting}");
        assert_eq!(flow.log(&[], &["ja3"]).get("ja3").is_some(), logged, "{setting}");
    }
}

#[test]
fn repeated_hellos_add_up_within_bounds() {
    let many: Vec<u16> = (0..3000).collect();
    let hello = record(22, 0x0301, &client_hello(0x0303, b"", &many, &[alpn(&[b"h2"])]));
    let mut flow = Flow::new();
    flow.feed(TS, &hello);
    let first = flow.text("ja3.string", TS);
    for _ in 0..50 {
        flow.feed(TS, &hello);
    }
    assert_eq!(flow.text("ja3.string", TS), first);
    let record = flow.log(&[], &["client_handshake"]);
    assert_eq!(record["client_handshake"]["ciphers"].as_array().map(Vec::len), Some(1 << 15));
    let mut fields = HelloFields::default();
    (0..70_000).for_each(|_| fields.add_alpn(b"x"));
    assert!(fields.alpns().count() <= 1 << 15);
}

#[test]
fn what_comes_after_the_transaction_is_ignored() {
    let mut flow = Flow::new();
    flow.feed(TS, &session()[0].1);
    flow.parser.free_tx(0);
    assert!(flow.parser.tx(0).is_none() && flow.parser.tx_range().is_empty());
    flow.feed(TC, &session()[1].1);
    assert_eq!(flow.last, Progress::Done);
}

#[test]
fn probing() {
    assert_eq!(probe(Transport::Tcp, TS, &[0x16, 3]), Probe::More);
    assert_eq!(probe(Transport::Tcp, TS, &[0x16, 3, 1]), Probe::Yes(TS));
    assert_eq!(probe(Transport::Tcp, TC, &[0x17, 3, 3]), Probe::Yes(TC));
    assert_eq!(probe(Transport::Tcp, TS, b"GET "), Probe::No);
    assert_eq!(probe(Transport::Tcp, TS, &[0x16, 3, 4]), Probe::No);
}

/// All visible results of a flow at its end.
fn result(flow: &mut Flow) -> (serde_json::Value, Vec<&'static str>, (u8, u8), bool, bool) {
    flow.end();
    (flow.log(&[], ALL), flow.raised(), flow.states(), flow.ready(), flow.last == Progress::Error)
}

fn run(
    pieces: &[(Direction, Vec<u8>)],
    size: usize,
) -> (serde_json::Value, Vec<&'static str>, (u8, u8), bool, bool) {
    let mut flow = Flow::new();
    for (direction, data) in pieces {
        for chunk in data.chunks(size) {
            flow.feed(*direction, chunk);
        }
    }
    result(&mut flow)
}

#[test]
fn any_segmentation_gives_the_same() {
    let pieces = session();
    let whole = run(&pieces, usize::MAX);
    assert!(whole.3);
    for size in 1..200 {
        assert_eq!(run(&pieces, size), whole, "{size}");
    }
}

proptest! {
    #[test]
    fn damaged_sessions_in_any_segmentation(
        damage in prop::collection::vec((0usize..7, any::<prop::sample::Index>(), any::<u8>()), 0..6),
        size in 1usize..400,
    ) {
        let mut pieces = session();
        for (piece, index, value) in damage {
            let data = &mut pieces[piece].1;
            let index = index.index(data.len().min(400));
            data[index] = value;
        }
        prop_assert_eq!(run(&pieces, size), run(&pieces, usize::MAX));
    }

    #[test]
    fn arbitrary_bytes(
        pieces in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..200)), 0..12),
        kinds in prop::collection::vec(18u8..26, 12),
    ) {
        let mut flow = Flow::new();
        for ((to_server, data), kind) in pieces.iter().zip(kinds) {
            let direction = if *to_server { TS } else { TC };
            flow.feed(direction, data);
            if !data.is_empty() && flow.last != Progress::Error {
                flow.feed(direction, &record(kind, 0x0301, data));
            }
        }
        let _ = result(&mut flow);
    }

    #[test]
    fn arbitrary_messages(kind in 0u8..24, body in prop::collection::vec(any::<u8>(), 0..600), size in 1usize..700) {
        let data = record(22, 0x0303, &message(kind, &body));
        let pieces = vec![(TS, data.clone()), (TC, data)];
        prop_assert_eq!(run(&pieces, size), run(&pieces, usize::MAX));
    }

    #[test]
    fn damaged_certificates(index in any::<prop::sample::Index>(), value in any::<u8>()) {
        let mut der = usual_certificate();
        let index = index.index(der.len());
        der[index] = value;
        let mut flow = Flow::new();
        flow.feed(TC, &record(22, 0x0303, &certificates(&[der])));
        let _ = result(&mut flow);
    }
}

/// Each byte of the heads of records, and those near them.
#[test]
fn a_damaged_head_in_any_segmentation() {
    let pieces = session();
    for piece in 0..pieces.len() {
        for index in 0..12 {
            for value in [0, 2, 3, 21, 23, 72, 128, 255] {
                let mut damaged = pieces.clone();
                damaged[piece].1[index] = value;
                let whole = run(&damaged, usize::MAX);
                for size in [1, 3, 7] {
                    assert_eq!(run(&damaged, size), whole, "piece {piece}, byte {index}: {value}, by {size}");
                }
            }
        }
    }
}
