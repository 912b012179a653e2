// SPDX-License-Identifier: Apache-2.0
//! Tests of SMB.

use super::secblob::tests::ntlm;
use super::*;
use crate::event::EventCode;
use crate::suite::{self, Driver, Seed, protocol_suite};
use crate::transaction::{BufferQuery, LogOptions};
use Direction::{ToClient, ToServer};

/// A NetBIOS message.
fn envelope(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("short").to_be_bytes();
    [&[0][..], &length[1..], message].concat()
}

/// A text in UTF-16.
fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// A message of SMB2.
#[derive(Clone, Copy)]
struct Two {
    command: u16,
    message: u64,
    tree: u32,
    status: u32,
    is_response: bool,
    next: u32,
}

/// A message of a session, about the tree 1.
const fn two(command: u16, message: u64, is_response: bool) -> Two {
    Two { command, message, tree: 1, status: 0, is_response, next: 0 }
}

impl Two {
    fn bytes(self, body: &[u8]) -> Vec<u8> {
        let mut bytes = b"\xfeSMB\x40\0\0\0".to_vec();
        bytes.extend(self.status.to_le_bytes());
        bytes.extend(self.command.to_le_bytes());
        bytes.extend([1, 0]);
        bytes.extend(u32::from(self.is_response).to_le_bytes());
        bytes.extend(self.next.to_le_bytes());
        bytes.extend(self.message.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.tree.to_le_bytes());
        bytes.extend(0x77u64.to_le_bytes());
        bytes.extend([0; 16]);
        bytes.extend(body);
        bytes
    }
}

/// Fixed fields of a body: numbers, each with its number of bytes.
fn fields(list: &[(u64, usize)]) -> Vec<u8> {
    let zeros = core::iter::repeat(0);
    let number =
        |(value, length): &(u64, usize)| value.to_le_bytes().into_iter().chain(zeros.clone()).take(*length);
    list.iter().flat_map(number).collect()
}

const HANDLE: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

fn negotiate_request() -> Vec<u8> {
    let head = fields(&[(36, 2), (2, 2), (1, 2), (0, 2), (0, 4)]);
    two(0, 0, false).bytes(&[head, vec![7; 16], vec![0; 8], fields(&[(0x210, 2), (0x311, 2)])].concat())
}

fn negotiate_response() -> Vec<u8> {
    let head = fields(&[(65, 2), (1, 2), (0x311, 2), (0, 2)]);
    let sizes = fields(&[(0, 4), (65_536, 4), (65_536, 4), (65_536, 4)]);
    two(0, 0, true).bytes(&[head, vec![9; 16], sizes, vec![0; 24]].concat())
}

fn login(user: &str) -> Vec<u8> {
    let token = ntlm("WIRE", user, "HOST");
    let head = fields(&[(25, 2), (0, 2), (0, 4), (0, 4), (88, 2), (token.len() as u64, 2), (0, 8)]);
    two(1, 1, false).bytes(&[head, token].concat())
}

fn connect(message: u64, path: &str) -> Vec<u8> {
    let path = wide(path);
    let head = fields(&[(9, 2), (0, 2), (72, 2), (path.len() as u64, 2)]);
    Two { tree: 0, ..two(3, message, false) }.bytes(&[head, path].concat())
}

fn connected(message: u64, kind: u8) -> Vec<u8> {
    two(3, message, true).bytes(&fields(&[(16, 2), (kind.into(), 1), (0, 1), (0, 4), (0, 4), (0, 4)]))
}

fn open(message: u64, path: &str) -> Vec<u8> {
    let path = wide(path);
    let mut body = fields(&[(57, 2), (0, 34), (1, 4), (0, 4), (120, 2), (path.len() as u64, 2), (0, 8)]);
    body.extend(path);
    two(5, message, false).bytes(&body)
}

fn opened(message: u64) -> Vec<u8> {
    let time = 133_500_000_000_000_000u64;
    let mut body =
        fields(&[(89, 2), (0, 6), (time, 8), (time, 8), (time, 8), (time, 8), (4_096, 8), (6, 8), (0, 8)]);
    body.extend(HANDLE);
    body.extend([0; 8]);
    two(5, message, true).bytes(&body)
}

fn write(message: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    let head = fields(&[(49, 2), (112, 2), (data.len() as u64, 4), (offset, 8)]);
    two(9, message, false).bytes(&[head, HANDLE.to_vec(), vec![0; 16], data.to_vec()].concat())
}

fn read(message: u64, offset: u64, length: u64) -> Vec<u8> {
    let head = fields(&[(49, 2), (0, 2), (length, 4), (offset, 8)]);
    two(8, message, false).bytes(&[head, HANDLE.to_vec(), vec![0; 17]].concat())
}

fn has_read(message: u64, data: &[u8]) -> Vec<u8> {
    let head = fields(&[(17, 2), (80, 1), (0, 1), (data.len() as u64, 4), (0, 8)]);
    two(8, message, true).bytes(&[head, data.to_vec()].concat())
}

fn close(message: u64) -> Vec<u8> {
    two(6, message, false).bytes(&[fields(&[(24, 2), (0, 6)]), HANDLE.to_vec()].concat())
}

fn closed(message: u64, status: u32) -> Vec<u8> {
    Two { status, ..two(6, message, true) }.bytes(&fields(&[(60, 2), (0, 58)]))
}

/// A file of SMB2, written and read.
fn files() -> Seed {
    let send = |message: Vec<u8>| (ToServer, envelope(&message));
    let answer = |message: Vec<u8>| (ToClient, envelope(&message));
    vec![
        send(negotiate_request()),
        answer(negotiate_response()),
        send(login("alice")),
        answer(two(1, 1, true).bytes(&fields(&[(9, 2), (0, 2), (72, 2), (0, 2)]))),
        send(connect(2, r"\\srv\share")),
        answer(connected(2, 1)),
        send(open(3, r"d\a.txt")),
        answer(opened(3)),
        send([write(4, 3, b"def"), vec![0; 2]].concat()),
        send(write(5, 0, b"abc")),
        answer(two(9, 5, true).bytes(&fields(&[(17, 2), (0, 2), (3, 4), (0, 8)]))),
        send(read(6, 0, 700)),
        answer(has_read(6, &[b'x'; 700])),
        send(close(7)),
        answer(closed(7, 0)),
    ]
}

/// A message of DCERPC, in one fragment.
fn call(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    let length = u64::try_from(body.len() + 16).expect("short");
    [vec![5, 0, kind, flags, 0x10, 0, 0, 0], fields(&[(length, 2), (0, 2), (1, 4)]), body.to_vec()].concat()
}

const SRVSVC: [u8; 16] =
    [0xc8, 0x4f, 0x32, 0x4b, 0x70, 0x16, 0xd3, 0x01, 0x12, 0x78, 0x5a, 0x47, 0xbf, 0x6e, 0xe1, 0x88];

/// A remote call in a pipe.
fn pipe() -> Seed {
    let control = |message: u64, is_response: bool, data: &[u8]| {
        let length = data.len() as u64;
        let head = fields(&[(if is_response { 49 } else { 57 }, 2), (0, 2), (0x0011_c017, 4)]);
        let rest = if is_response {
            fields(&[(112, 4), (0, 4), (112, 4), (length, 4), (0, 8)])
        } else {
            fields(&[(120, 4), (length, 4), (0, 8), (0, 8), (1, 4), (0, 4)])
        };
        envelope(&two(11, message, is_response).bytes(&[head, HANDLE.to_vec(), rest, data.to_vec()].concat()))
    };
    let context =
        [fields(&[(0, 2), (1, 2)]), SRVSVC.to_vec(), fields(&[(3, 2), (0, 2)]), vec![1; 20]].concat();
    let bind = call(11, 3, &[fields(&[(4_280, 2), (4_280, 2), (0, 4), (1, 4)]), context].concat());
    let result = [fields(&[(0, 2), (0, 2)]), vec![1; 20]].concat();
    let ack =
        call(12, 3, &[fields(&[(4_280, 2), (4_280, 2), (0, 4), (1, 2), (0, 2), (1, 4)]), result].concat());
    let request = |flags: u8, text: &str| {
        call(0, flags, &[fields(&[(0, 4), (0, 2), (15, 2)]), text.as_bytes().to_vec()].concat())
    };
    let response = call(2, 3, &[fields(&[(0, 8)]), b"result".to_vec()].concat());
    vec![
        (ToServer, envelope(&connect(2, r"\\srv\IPC$"))),
        (ToClient, envelope(&connected(2, 2))),
        (ToServer, envelope(&open(3, "srvsvc"))),
        (ToClient, envelope(&opened(3))),
        (ToServer, control(4, false, &bind)),
        (ToClient, control(4, true, &ack)),
        (ToServer, envelope(&write(5, 0, &request(1, "argu")))),
        (ToClient, envelope(&two(9, 5, true).bytes(&fields(&[(17, 2), (0, 2), (3, 4), (0, 8)])))),
        (ToServer, envelope(&write(6, 0, &request(2, "ments")))),
        (ToServer, envelope(&read(7, 0, 1_024))),
        (ToClient, envelope(&has_read(7, &response))),
    ]
}

/// A message of SMB1.
fn one(command: u8, is_response: bool, words: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut message = b"\xffSMB".to_vec();
    message.extend([command, 0, 0, 0, 0, if is_response { 0x80 } else { 0 }, 0x01, 0xc0]);
    message.extend([0; 12]);
    message.extend(fields(&[(5, 2), (0, 2), (9, 2), (7, 2)]));
    message.push(u8::try_from(words.len() / 2).expect("few"));
    message.extend(words);
    message.extend(fields(&[(bytes.len() as u64, 2)]));
    message.extend(bytes);
    envelope(&message)
}

/// A file of SMB1.
fn older() -> Seed {
    let none = (0xffu64, 4);
    let path = [vec![0], wide("\\\\srv\\pub\0"), b"?????\0".to_vec()].concat();
    let create = [fields(&[none, (0, 1), (10, 2), (0, 28), (1, 4), (0, 4), (0, 5)]), vec![]].concat();
    let created =
        [fields(&[none, (0, 1), (0x4001, 2), (1, 4)]), vec![0; 36], fields(&[(6, 8), (6, 8), (0, 7)])]
            .concat();
    vec![
        (ToServer, one(0x72, false, &[], b"\x02LM1.2X002\0\x02NT LM 0.12\0")),
        (
            ToClient,
            one(
                0x72,
                true,
                &[fields(&[(1, 2), (3, 1), (0, 16), (0x8000_0000, 4), (0, 11)])].concat(),
                &[4; 16],
            ),
        ),
        (ToServer, one(0x75, false, &fields(&[none, (0, 2), (1, 2)]), &path)),
        (ToClient, one(0x75, true, &fields(&[none, (0, 2)]), b"A:\0N\0T\0\0\0")),
        (ToServer, one(0xa2, false, &create, &[vec![0], wide("a.txt")].concat())),
        (ToClient, one(0xa2, true, &created, &[])),
        (
            ToServer,
            one(
                0x2f,
                false,
                &fields(&[none, (0x4001, 2), (0, 4), (0, 8), (0, 2), (6, 2), (64, 2), (0, 4)]),
                b"?abcdef",
            ),
        ),
        (ToServer, one(0x04, false, &fields(&[(0x4001, 2), (0, 4)]), &[])),
        (ToClient, one(0x04, true, &[], &[])),
    ]
}

fn seeds() -> Vec<Seed> {
    vec![files(), pipe(), older()]
}

protocol_suite!(over_tcp, &SPEC, Transport::Tcp, seeds());

fn played(seed: Seed) -> Driver {
    let mut driver = Driver::new(&SPEC, Transport::Tcp);
    for (direction, bytes) in seed {
        driver.send(direction, &bytes);
    }
    driver
}

fn records(driver: &mut Driver) -> Vec<String> {
    let range = driver.parser().tx_range();
    let parser = driver.parser();
    range.filter_map(|id| parser.tx(id)).map(|tx| suite::record(tx, &LogOptions::default(), false)).collect()
}

fn events(driver: &mut Driver) -> Vec<EventCode> {
    let range = driver.parser().tx_range();
    let parser = driver.parser();
    range.filter_map(|id| parser.tx(id)).flat_map(|tx| tx.common().events.as_slice().to_vec()).collect()
}

fn value(driver: &mut Driver, tx: u64, name: &str, direction: Direction) -> Option<String> {
    let id = BUFFERS.iter().find(|buffer| buffer.name == name).expect(name).id;
    let mut scratch = Vec::new();
    let query = BufferQuery { id, direction, index: 0 };
    let view = driver.parser().tx(tx)?.buffer(query, &mut scratch)?;
    Some(String::from_utf8_lossy(view.data).into_owned())
}

const HEAD: &str = r#""dialect":"3.11","command":"SMB2_COMMAND_"#;
const NAMES: &str = r#""status":"STATUS_SUCCESS","status_code":"0x0","session_id":119,"tree_id":1"#;

#[test]
fn records_of_a_session_are_suricatas() {
    let mut driver = played(files());
    let records = records(&mut driver);
    let file = r#""filename":"d\\a.txt","share":"SHARE","fuid":"04030201-0605-0807-0a09-0c0b100f0e0d""#;
    let expected = [
        r#"{"id":1,"dialect":"3.11","command":"SMB2_COMMAND_NEGOTIATE_PROTOCOL","status":"STATUS_SUCCESS","status_code":"0x0","session_id":0,"tree_id":0,"client_dialects":["2.10","3.11"],"client_guid":"07070707-0707-0707-0707-070707070707","server_guid":"09090909-0909-0909-0909-090909090909","max_read_size":65536,"max_write_size":65536}"#.to_owned(),
        format!(r#"{{"id":2,{HEAD}SESSION_SETUP",{NAMES},"ntlmssp":{{"domain":"WIRE","user":"alice","host":"HOST","version":"6.1 build 7600 rev 15"}}}}"#),
        format!(r#"{{"id":3,{HEAD}TREE_CONNECT",{NAMES},"share":"\\\\srv\\share","share_type":"FILE"}}"#),
        format!(r#"{{"id":4,{HEAD}CREATE",{NAMES},"filename":"d\\a.txt","disposition":"FILE_OPEN","access":"normal","created":1705526400,"accessed":1705526400,"modified":1705526400,"changed":1705526400,"size":6,"fuid":"04030201-0605-0807-0a09-0c0b100f0e0d"}}"#),
        format!(r#"{{"id":5,{HEAD}WRITE",{NAMES},{}}}"#, file.replace("SHARE", "")),
        format!(r#"{{"id":6,{HEAD}READ",{NAMES},{}}}"#, file.replace("SHARE", r"\\\\srv\\share")),
        format!(r#"{{"id":7,{HEAD}CLOSE",{NAMES}}}"#),
    ];
    assert_eq!(records, expected);
    assert!(events(&mut driver).is_empty());
    assert_eq!(value(&mut driver, 4, "file.data", ToServer).as_deref(), Some("abcdef"));
    assert_eq!(value(&mut driver, 5, "file.data", ToClient), Some("x".repeat(700)));
    assert_eq!(value(&mut driver, 1, "smb.ntlmssp_user", ToServer).as_deref(), Some("alice"));
    assert_eq!(value(&mut driver, 2, "smb.share", ToServer).as_deref(), Some(r"\\srv\share"));
    assert_eq!(value(&mut driver, 2, "smb.named_pipe", ToServer), None);
}

#[test]
fn calls_in_pipes() {
    let mut driver = played(pipe());
    let records = records(&mut driver);
    let uuid = r#""uuid":"4b324fc8-1670-01d3-1278-5a47bf6ee188","version":"3.0""#;
    let unknown = HEAD.replace("3.11", "unknown");
    assert_eq!(
        records[2],
        format!(
            r#"{{"id":3,{unknown}IOCTL",{NAMES},"dcerpc":{{"request":"BIND","response":"BINDACK","interfaces":[{{{uuid},"ack_result":0,"ack_reason":0}}],"call_id":1}}}}"#
        )
    );
    assert_eq!(
        records[3],
        format!(
            r#"{{"id":4,{unknown}WRITE",{NAMES},"dcerpc":{{"request":"REQUEST","response":"RESPONSE","opnum":15,"req":{{"frag_cnt":2,"stub_data_size":9}},"interfaces":[{{{uuid}}}],"res":{{"frag_cnt":1,"stub_data_size":6}},"call_id":1}}}}"#
        )
    );
    assert_eq!(records.len(), 4);
    assert_eq!(value(&mut driver, 3, "dcerpc.stub_data", ToServer).as_deref(), Some("arguments"));
    assert_eq!(value(&mut driver, 3, "dcerpc.stub_data", ToClient).as_deref(), Some("result"));
    assert_eq!(value(&mut driver, 0, "smb.named_pipe", ToServer).as_deref(), Some(r"\\srv\IPC$"));
    let call = driver.parser().tx(3).and_then(|tx| tx.rpc()).expect("a call");
    let uuid = "4b324fc8-1670-01d3-1278-5a47bf6ee188".parse().expect("a UUID");
    assert!(
        call.is_to(uuid, false, |version| version == 3) && !call.is_to(uuid, false, |version| version > 3)
    );
}

#[test]
fn smb1_with_its_records() {
    let mut driver = played(older());
    let names = r#""status":"STATUS_SUCCESS","status_code":"0x0","session_id":9,"tree_id":5"#;
    let head = r#""dialect":"NT LM 0.12","command":"SMB1_COMMAND_"#;
    let file = r#""filename":"a.txt","share":"\\srv\\pub","fuid":"4001""#;
    let expected = [
        format!(
            r#"{{"id":1,{head}NEGOTIATE_PROTOCOL","status":"STATUS_SUCCESS","status_code":"0x0","session_id":0,"tree_id":0,"client_dialects":["LM1.2X002","NT LM 0.12"],"server_guid":"04040404-0404-0404-0404-040404040404"}}"#
        ),
        format!(
            r#"{{"id":2,{head}TREE_CONNECT_ANDX",{names},"share":"\\srv\\pub","service":{{"request":"?????","response":"A:"}}}}"#
        ),
        format!(
            r#"{{"id":3,{head}NT_CREATE_ANDX",{names},"filename":"a.txt","disposition":"FILE_OPEN","access":"normal","created":0,"accessed":0,"modified":0,"changed":0,"size":6,"fuid":"4001"}}"#
        ),
        format!(r#"{{"id":4,{head}WRITE_ANDX","session_id":0,"tree_id":0,{file}}}"#),
        format!(r#"{{"id":5,{head}CLOSE",{names}}}"#),
    ];
    assert_eq!(records(&mut driver), expected);
    assert_eq!(value(&mut driver, 3, "file.data", ToServer).as_deref(), Some("abcdef"));
    assert!(events(&mut driver).is_empty());
}

#[test]
fn messages_in_one_and_a_gap_in_a_piece() {
    let mut driver = Driver::new(&SPEC, Transport::Tcp);
    let first = Two { next: 64, ..two(13, 1, false) }.bytes(&[]);
    driver.send(ToServer, &envelope(&[first, two(7, 2, false).bytes(&[0; 24])].concat()));
    assert_eq!(driver.parser().tx_range(), 0..2);
    driver.send(ToServer, &envelope(&connect(2, "x")));
    driver.send(ToClient, &envelope(&connected(2, 1)));
    driver.send(ToServer, &envelope(&open(3, "a")));
    driver.send(ToClient, &envelope(&opened(3)));
    let message = envelope(&write(4, 0, &[b'y'; 1_000]));
    driver.send(ToServer, &message[..600]);
    driver.lose(ToServer, 100);
    driver.send(ToServer, &message[700..]);
    driver.send(ToServer, &envelope(&close(5)));
    let tx = driver.parser().tx(4).expect("a file");
    let file = &tx.files_of(ToServer)[0];
    assert_eq!((file.size, file.gaps, file.state), (1_000, true, crate::file::FileState::Truncated));
    // A gap that reaches over the end of a message: the next one is found.
    driver.send(ToServer, &message[..600]);
    driver.lose(ToServer, 1_000);
    driver.send(ToServer, &[b"rest SMB of it".to_vec(), envelope(&two(13, 9, false).bytes(&[]))].concat());
    let last = driver.parser().tx_range().end - 1;
    let tx = driver.parser().tx(last).expect("an echo");
    assert!(suite::record(tx, &LogOptions::default(), false).contains("KEEPALIVE"));
}

/// Requests of one message, each but the first related to the one before.
fn related(requests: &[Vec<u8>]) -> Vec<u8> {
    let mut all = Vec::new();
    for (at, request) in requests.iter().enumerate() {
        let mut bytes = request.clone();
        if at > 0 {
            bytes[16] = 4;
            bytes[36..48].fill(0xff);
        }
        if at + 1 < requests.len() {
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            let next = u32::try_from(bytes.len()).expect("short");
            bytes[20..24].copy_from_slice(&next.to_le_bytes());
        }
        all.extend(bytes);
    }
    all
}

/// A request for the file of the one before.
fn of_the_same_file(mut request: Vec<u8>) -> Vec<u8> {
    let at = request.windows(16).position(|bytes| bytes == HANDLE).expect("a handle");
    request[at..at + 16].fill(0xff);
    request
}

#[test]
fn in_prevention_related_requests_have_session_and_file_of_the_one_before() {
    let echo = |message: u64| two(13, message, false).bytes(&[4, 0, 0, 0]);
    let named = |requests: &[Vec<u8>], answers: &[Vec<u8>], prevents: bool| {
        let mut driver = Driver::new(&SPEC, Transport::Tcp);
        driver.prevents = prevents;
        for (direction, message) in
            [(ToServer, connect(2, r"\\s\d")), (ToClient, connected(2, 1)), (ToServer, related(requests))]
        {
            driver.send(direction, &envelope(&message));
        }
        answers.iter().for_each(|answer| driver.send(ToClient, &envelope(answer)));
        driver.send(ToServer, &envelope(&write(20, 3, b"def")));
        let parser = driver.parser();
        let txs = parser.tx_range().filter_map(|id| parser.tx(id));
        let files = txs.flat_map(|tx| Direction::BOTH.into_iter().flat_map(|side| tx.files_of(side)));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        files.map(|file| (text(&file.name), file.content().0.to_vec())).collect::<Vec<_>>()
    };
    let expected = |name: &str, content: &[u8]| (name.to_owned(), content.to_vec());
    let first = of_the_same_file(write(5, 0, b"abc"));
    // The bytes of the message of the opening, and of a later one by the handle: one transfer.
    let alone = [open(4, "evil"), first.clone()];
    assert_eq!(named(&alone, &[opened(4)], true), [expected("evil", b"abcdef")]);
    // The opening itself is related, and what follows another handle names that one's file.
    let behind = [echo(3), open(4, "evil"), first.clone(), of_the_same_file(close(6))];
    let found = named(&behind, &[opened(4), closed(6, 0)], true);
    assert_eq!(found, [expected("evil", b"abc"), expected("evil", b"def")]);
    let two_files = [open(4, "fine"), first.clone(), open(6, "evil"), of_the_same_file(write(7, 0, b"xyz"))];
    let found = named(&two_files, &[], true);
    assert_eq!(found[..2], [expected("fine", b"abc"), expected("evil", b"xyz")]);
    let reading = [open(4, "evil"), of_the_same_file(read(5, 0, 3))];
    let found = named(&reading, &[opened(4), has_read(5, b"abc")], true);
    assert_eq!(found, [expected("evil", b"abc"), expected("evil", b"def")]);
    // Passively as in Suricata, which does not know the file.
    let found = named(&alone, &[opened(4)], false);
    assert_eq!(found[0].0, "");
}

/// A conversation in prevention, behind the beginning of a session with an open file.
fn prevented(pieces: &[(Direction, Vec<u8>)]) -> Driver {
    let mut driver = Driver::new(&SPEC, Transport::Tcp);
    driver.prevents = true;
    for (direction, message) in [
        (ToServer, connect(2, r"\\s\d")),
        (ToClient, connected(2, 1)),
        (ToServer, open(3, "f")),
        (ToClient, opened(3)),
    ] {
        driver.send(direction, &envelope(&message));
    }
    for (direction, bytes) in pieces {
        driver.send(*direction, bytes);
    }
    driver
}

/// The contents of all files.
fn contents(driver: &mut Driver) -> Vec<String> {
    let parser = driver.parser();
    let txs = parser.tx_range().filter_map(|id| parser.tx(id));
    let files = txs.flat_map(|tx| Direction::BOTH.into_iter().flat_map(|side| tx.files_of(side)));
    files.map(|file| String::from_utf8_lossy(file.content().0).into_owned()).collect()
}

#[test]
fn in_prevention_related_requests_cannot_name_another_file() {
    // FLUSH, LOCK and QUERY_INFO name the file of what is related to them.
    for (command, at) in [(7, 8), (10, 8), (14, 8), (15, 8), (16, 24)] {
        let body = [vec![0; at], HANDLE.to_vec(), vec![0; 24]].concat();
        let requests = [two(command, 5, false).bytes(&body), of_the_same_file(write(6, 2, b"il"))];
        let pieces = [(ToServer, envelope(&write(4, 0, b"ev"))), (ToServer, envelope(&related(&requests)))];
        assert_eq!(contents(&mut prevented(&pieces)), ["evil"], "{command}");
    }
    let mut other = write(5, 2, b"il");
    let at = other.windows(16).position(|bytes| bytes == HANDLE).expect("a handle");
    other[at] = 99;
    let requests = [write(4, 0, b"ev"), other.clone()];
    assert!(prevented(&[(ToServer, envelope(&related(&requests)))]).failed);
    // A request of its own may do so.
    let both = [(ToServer, envelope(&requests[0])), (ToServer, envelope(&other))];
    assert!(!prevented(&both).failed);
}

#[test]
fn in_prevention_a_file_is_open_until_the_server_has_closed_it() {
    let refused = [
        (ToServer, envelope(&write(4, 0, b"ev"))),
        (ToServer, envelope(&close(5))),
        (ToClient, envelope(&closed(5, 0xc000_0128))),
        (ToServer, envelope(&write(6, 2, b"il"))),
    ];
    assert_eq!(contents(&mut prevented(&refused)), ["evil"]);
    let mut taken = refused.clone();
    taken[2].1 = envelope(&closed(5, 0));
    assert_eq!(contents(&mut prevented(&taken)), ["ev", "il"]);
    // The request overtakes the bytes of an answer.
    let answer = envelope(&has_read(4, &[b'x'; 1_000]));
    let overtaken = [
        (ToServer, envelope(&read(4, 0, 1_000))),
        (ToClient, answer[..600].to_vec()),
        (ToServer, envelope(&close(5))),
        (ToClient, [&answer[600..], &envelope(&closed(5, 0))].concat()),
    ];
    assert_eq!(contents(&mut prevented(&overtaken)), ["x".repeat(1_000)]);
    // SMB1.
    let write1 = |offset: u64, text: &str| {
        let length = text.len() as u64;
        let words = [(0xff, 4), (0x4001, 2), (offset, 4), (0, 8), (0, 2), (length, 2), (64, 2), (0, 4)];
        (ToServer, one(0x2f, false, &fields(&words), format!("?{text}").as_bytes()))
    };
    let close1 = (ToServer, one(0x04, false, &fields(&[(0x4001, 2), (0, 4)]), &[]));
    let mut answer = one(0x04, true, &[], &[]);
    let taken = [write1(0, "ev"), close1.clone(), (ToClient, answer.clone()), write1(2, "il")];
    assert_eq!(contents(&mut prevented(&taken)), ["ev", "il"]);
    answer[9] = 6;
    let refused = [write1(0, "ev"), close1, (ToClient, answer), write1(2, "il")];
    assert_eq!(contents(&mut prevented(&refused)), ["evil"]);
}

#[test]
fn in_prevention_all_that_is_read_is_inspected() {
    // Behind the end of a file that grows.
    let end = Two { status: 0xc000_0011, ..two(8, 5, true) }.bytes(&[9, 0, 0, 0, 0, 0, 0, 0, 0]);
    let grown = [
        (ToServer, envelope(&read(4, 0, 10))),
        (ToClient, envelope(&has_read(4, b"ev"))),
        (ToServer, envelope(&read(5, 2, 10))),
        (ToClient, envelope(&end)),
        (ToServer, envelope(&read(6, 2, 10))),
        (ToClient, envelope(&has_read(6, b"il"))),
    ];
    assert_eq!(contents(&mut prevented(&grown)), ["ev", "evil"]);
    // An answer whose request was not seen, and the first of many requests.
    let unseen = [(ToClient, envelope(&has_read(4, b"one"))), (ToClient, envelope(&has_read(5, b"two")))];
    assert_eq!(contents(&mut prevented(&unseen)), ["one", "two"]);
    let mut many: Vec<_> =
        (4..1_000).map(|message| (ToServer, envelope(&read(message, message * 2, 2)))).collect();
    many.extend([(ToClient, envelope(&has_read(4, b"ev"))), (ToClient, envelope(&has_read(5, b"il")))]);
    assert_eq!(contents(&mut prevented(&many)), ["evil"]);
    // More than the server has said to send.
    let large = [
        (ToServer, envelope(&negotiate_request())),
        (ToClient, envelope(&negotiate_response())),
        (ToServer, envelope(&read(4, 0, 65_537))),
        (ToClient, envelope(&has_read(4, b"evil"))),
    ];
    assert_eq!(contents(&mut prevented(&large)), ["evil"]);
}

#[test]
fn in_prevention_what_servers_may_pass_over_is_refused() {
    let message = envelope(&write(4, 0, b"evil"));
    let hidden = [&[1, 0, 0, 200][..], &message].concat();
    assert!(prevented(&[(ToServer, hidden)]).failed);
    assert!(!prevented(&[(ToServer, [&[0x85, 0, 0, 0][..], &message].concat())]).failed);
    let mut answer = write(4, 0, b"evil");
    answer[16] = 1;
    assert!(prevented(&[(ToServer, envelope(&answer))]).failed);
}

#[test]
fn other_transactions_may_come_and_go_while_a_file_is_open() {
    for prevents in [false, true] {
        let mut driver = Driver::new(&SPEC, Transport::Tcp);
        driver.prevents = prevents;
        driver.send(ToServer, &envelope(&write(1, 0, b"ev")));
        // A notification that does not come.
        driver.send(ToServer, &envelope(&two(15, 2, false).bytes(&[0; 32])));
        for message in 3..5_000 {
            driver.send(ToServer, &envelope(&two(13, message, false).bytes(&[4, 0, 0, 0])));
            driver.send(ToClient, &envelope(&two(13, message, true).bytes(&[4, 0, 0, 0])));
            driver.free_complete();
            let range = driver.parser().tx_range();
            assert!(!driver.failed && range.end - range.start <= 2 * tables::TX_MAX as u64 + 1);
        }
        driver.send(ToServer, &envelope(&write(5_000, 2, b"il")));
        assert_eq!(contents(&mut driver), [if prevents { "evil" } else { "il" }]);
        assert!(driver.parser().held() < 2 << 20);
    }
}

#[test]
fn what_is_raised() {
    let play = |pieces: &[(Direction, Vec<u8>)]| {
        let mut driver = Driver::new(&SPEC, Transport::Tcp);
        driver.send(ToServer, &envelope(&two(13, 1, false).bytes(&[])));
        for (direction, bytes) in pieces {
            driver.send(*direction, bytes);
        }
        events(&mut driver)
    };
    let echo = |is_response| envelope(&two(13, 2, is_response).bytes(&[]));
    assert_eq!(play(&[(ToServer, echo(true))]), [tables::RESPONSE_TO_SERVER]);
    assert_eq!(play(&[(ToClient, echo(false))]), [tables::REQUEST_TO_CLIENT]);
    assert_eq!(play(&[(ToServer, envelope(b"no message of SMB"))]), [tables::MALFORMED_DATA]);
    assert_eq!(
        play(&[(ToServer, envelope(&write(3, 0, &[0; 3]))), (ToServer, envelope(&write(4, 1, b"ab")))]),
        [tables::FILE_OVERLAP]
    );
    let cut = two(5, 3, false).bytes(&[57, 0]);
    assert_eq!(play(&[(ToServer, envelope(&cut))]), [tables::MALFORMED_DATA]);
    let token = login("alice");
    let cut = [&token[..HEADER + 14], &[20, 0][..], &token[HEADER + 16..]].concat();
    assert_eq!(play(&[(ToServer, envelope(&cut))]), [tables::MALFORMED_NTLMSSP]);
    let again = one(0x72, false, &[], b"\x02NT LM 0.12\0");
    assert_eq!(play(&[(ToServer, again.clone()), (ToServer, again)]), [tables::DUPLICATE_NEGOTIATE]);
    assert_eq!(play(&[(ToServer, one(0x72, false, &[], b"\x02\0"))]), [tables::MALFORMED_DIALECTS]);
}

/// Length of SMB2's header.
const HEADER: usize = 64;

#[test]
fn bounds_hold() {
    let mut settings = SettingsMap::new();
    settings.set("max-tx", "4");
    settings.set("max-write-size", "10");
    settings.set("max-write-queue-cnt", "1");
    let mut driver = Driver::with(&SPEC, Transport::Tcp, &settings);
    driver.send(ToServer, &envelope(&write(1, 0, &[0; 11])));
    for message in 2..40 {
        driver.send(ToServer, &envelope(&two(13, message, false).bytes(&[])));
    }
    assert!(driver.parser().tx_range().end - driver.parser().tx_range().start <= 8);
    assert!(events(&mut driver).contains(&tables::TOO_MANY_TRANSACTIONS));
    let mut driver = Driver::with(&SPEC, Transport::Tcp, &settings);
    driver.send(ToServer, &envelope(&write(1, 0, b"a")));
    for offset in [5, 7] {
        driver.send(ToServer, &envelope(&write(offset, offset, b"b")));
    }
    driver.send(ToServer, &envelope(&write(9, 0, &[0; 11])));
    let [too_large, _, too_many] = tables::PIECE_EVENTS.to_server;
    assert_eq!(events(&mut driver), [too_many, too_large]);
}

#[test]
fn a_netbios_session_comes_before_smb() {
    let request = [&[0x81, 0, 0, 4][..], b"name", &envelope(&negotiate_request())].concat();
    assert_eq!(probe(Transport::Tcp, ToServer, &request), Probe::Yes(ToServer));
    assert_eq!(probe(Transport::Tcp, ToServer, &[0x81, 0, 1, 0]), Probe::No);
    assert_eq!(probe(Transport::Tcp, ToServer, &envelope(&negotiate_response())), Probe::Yes(ToClient));
    assert_eq!(probe(Transport::Tcp, ToServer, b"GET / HTTP/1.1\r\n"), Probe::No);
    let mut driver = Driver::new(&SPEC, Transport::Tcp);
    driver.send(ToServer, &request);
    assert_eq!(driver.parser().tx_range(), 0..1);
}

#[test]
fn lenient_servers_pass_over_messages_before_the_first() {
    let likely = |bytes: &[u8]| super::likely(Transport::Tcp, Direction::ToServer, bytes);
    let smb = b"\0\0\0\x40\xfeSMB";
    for before in [&b""[..], b"\x85\0\0\0", b"\0\0\0\0\x81\0\0\x02ab\x85\0\0\0"] {
        let all = [before, smb].concat();
        assert_eq!(likely(&all), Probe::Yes(Direction::ToServer), "{before:?}");
        for end in 0..all.len() {
            assert_eq!(likely(&all[..end]), Probe::More, "{before:?} {end}");
        }
    }
    for other in [&b"GET"[..], b"\0\0\0\x40\xfeSMX", b"\x81\xff\0\0", b"\x16\x03\x01"] {
        assert_eq!(likely(other), Probe::No, "{other:?}");
    }
}
