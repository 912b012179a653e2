// SPDX-License-Identifier: Apache-2.0
//! Conversations of SMB 2 and 3 ([MS-SMB2]): negotiation, sessions, trees, files, pipes with DCERPC, compound
//! messages. Those of SMB 1 are in `smb_one`.

use super::conversation::Talk;
use super::dcerpc::RpcSession;
use super::smb_one;
use super::writer::{Writer, wide};
use crate::scene::Scene;
use crate::talk::Way;
use crate::text::{data, name};
use bartizan_testkit::random::Random;

/// Conditions of rules on SMB.
pub(super) const CONDITIONS: &[&str] = &[
    "app-layer-event:smb.malformed_data",
    "app-layer-event:smb.record_overflow",
    "app-layer-event:smb.malformed_ntlmssp_request",
    "app-layer-event:smb.malformed_ntlmssp_response",
    "app-layer-event:smb.duplicate_negotiate",
    "app-layer-event:smb.negotiate_malformed_dialects",
    "app-layer-event:smb.file_overlap",
    "app-layer-event:smb.response_to_server",
    "app-layer-event:smb.request_to_client",
    "app-layer-event:smb.read_response_too_large",
    "smb.version:1",
    "smb.version:2",
    "smb.share; content:\"share\"",
    "smb.share; content:\"|5c 5c|\"; startswith",
    "smb.named_pipe; content:\"IPC$\"; endswith",
    "smb.ntlmssp_user; content:\"a\"",
    "smb.ntlmssp_domain; content:\"a\"",
    "smb.ntlmssp_user; content:!\"abc\"",
    "filesize:>20",
    "filesize:<40",
    "fileext:\"end\"",
    "file.name; content:\"a\"",
    "file.name; content:\"|5c|\"",
    "file.data; content:\"a\"",
    "file.data; content:\"MZ\"; startswith",
    "dcerpc.iface:4b324fc8-1670-01d3-1278-5a47bf6ee188",
    "dcerpc.iface:4b324fc8-1670-01d3-1278-5a47bf6ee188,any_frag",
    "dcerpc.iface:e1af8308-5d1f-11c9-91a4-08002b14a0fa",
    "dcerpc.opnum:15",
    "dcerpc.opnum:0-3",
    "dcerpc.stub_data; content:\"a\"",
    "frame:smb2.hdr; content:\"|fe|SMB\"; startswith",
    "frame:smb2.pdu; bsize:>90",
    "frame:smb2.data; content:\"a\"",
    "frame:smb1.pdu; content:\"|ff|SMB\"; startswith",
    "frame:smb1.data; content:\"a\"",
    "frame:nbss.pdu; content:\"|00|\"; startswith",
    "frame:nbss.hdr; content:\"|00 00|\"; startswith",
    "frame:nbss.data; content:\"SMB\"",
];

/// Commands ([MS-SMB2] section 2.2.1).
const NEGOTIATE: u16 = 0;
const SESSION_SETUP: u16 = 1;
const TREE_CONNECT: u16 = 3;
const CREATE: u16 = 5;
const CLOSE: u16 = 6;
const READ: u16 = 8;
const WRITE: u16 = 9;
const IOCTL: u16 = 11;

/// The message after the length of its transport (RFC 1002, "session message").
pub(super) fn framed(random: &mut Random, message: &[u8]) -> Vec<u8> {
    let length = match random.below(90) {
        0 => message.len() + 4,
        1 => message.len().saturating_sub(4),
        _ => message.len(),
    };
    let kind = if random.percent(1) { 0x85 } else { 0 };
    [vec![kind], (length as u32).to_be_bytes()[1..].to_vec(), message.to_vec()].concat()
}

/// A conversation.
pub(super) fn scene(random: &mut Random) -> Scene {
    let mut way = Way { port: *random.pick(&[445, 445, 445, 139]), ..Way::default() };
    let mut talk = if random.percent(35) { smb_one::talk(random) } else { two(random) };
    if talk.messages.is_empty() {
        talk.client(framed(&mut random.clone(), b"\xfeSMB"));
    }
    if random.percent(22) {
        talk.disturb(random);
    }
    let some: Vec<_> = talk.messages.iter().map(|one| (one.data.clone(), one.to_server)).take(12).collect();
    for (at, (bytes, to_server)) in some.into_iter().enumerate() {
        let body = bytes.get(4..).unwrap_or_default().to_vec();
        let is_one = body.starts_with(b"\xff");
        let pdu = if is_one { "frame:smb1.pdu" } else { "frame:smb2.pdu" };
        let rest = if is_one { "frame:smb1.data" } else { "frame:smb2.data" };
        match at % 5 {
            0 => talk.target("tcp", "", bytes, to_server),
            1 => talk.target("smb", pdu, body, to_server),
            2 => talk.target("smb", "", bytes, to_server),
            3 => talk.target("smb", rest, body.get(64..).unwrap_or_default(), to_server),
            _ => talk.target("smb", "frame:nbss.pdu", bytes, to_server),
        }
    }
    if random.percent(15) {
        way.sizes = (0..6).map(|_| random.within(1, 150)).collect();
    }
    Scene { messages: talk.messages, way, targets: talk.targets, beside: Vec::new() }
}

/// A connection of SMB 2 in the making.
struct Two<'r> {
    random: &'r mut Random,
    talk: Talk,
    message: u64,
    session: u64,
    tree: u32,
}

/// One command of a message: request and response, without headers.
struct Command {
    code: u16,
    request: Vec<u8>,
    status: u32,
    response: Vec<u8>,
}

fn two(random: &mut Random) -> Talk {
    let mut two = Two { talk: Talk::default(), message: 0, session: 0, tree: 0, random };
    let dialect = two.negotiate();
    if two.random.percent(8) {
        return two.talk;
    }
    two.log_in();
    if dialect >= 0x0300 && two.random.percent(10) {
        two.encrypted();
        return two.talk;
    }
    for _ in 0..*two.random.pick(&[0, 1, 1, 1, 2]) {
        let is_pipe = two.random.percent(35);
        two.connect(is_pipe);
        for _ in 0..*two.random.pick(&[1, 1, 1, 2]) {
            if is_pipe { two.pipe() } else { two.file() }
        }
    }
    two.talk
}

impl Two<'_> {
    fn head(&mut self, code: u16, status: u32, is_response: bool, next: u32, related: bool) -> Vec<u8> {
        let mut head = Writer::default();
        let flags = u32::from(is_response) | if related { 4 } else { 0 };
        head.put(b"\xfeSMB").u16(64).u16(1).u32(status).u16(code).u16(31).u32(flags).u32(next);
        head.u64(self.message).u32(0xfeff).u32(self.tree).u64(self.session).zero(16);
        head.bytes
    }

    /// A message of each side with these commands, chained if there are several.
    fn exchange(&mut self, commands: &[Command]) {
        let first = self.message;
        for to_server in [true, false] {
            self.message = first;
            let mut all = Vec::new();
            for (at, command) in commands.iter().enumerate() {
                let mut body = if to_server { command.request.clone() } else { command.response.clone() };
                let is_last = at + 1 == commands.len();
                if !is_last {
                    body.resize(body.len().next_multiple_of(8), 0);
                }
                let next = if is_last { 0 } else { 64 + body.len() as u32 };
                let status = if to_server { 0 } else { command.status };
                all.extend(self.head(command.code, status, !to_server, next, at > 0));
                all.extend(body);
                self.message += 1;
            }
            if !to_server && self.random.percent(4) {
                // The server is still busy: an interim response.
                let (message, code) = (self.message, commands[0].code);
                self.message = first;
                let mut interim = self.head(code, 0x103, true, 0, false);
                self.message = message;
                interim.extend(error_body());
                let framed = framed(self.random, &interim);
                self.talk.server(framed);
            }
            let framed = framed(self.random, &all);
            if to_server { self.talk.client(framed) } else { self.talk.server(framed) }
        }
    }

    fn one(&mut self, code: u16, request: Vec<u8>, response: Vec<u8>) {
        let (status, response) = match self.random.below(14) {
            0 => (*self.random.pick(&[0xc000_0022, 0xc000_0034, 0xc000_00cc, 0xc000_0016]), error_body()),
            _ => (0, response),
        };
        self.exchange(&[Command { code, request, status, response }]);
    }

    fn negotiate(&mut self) -> u16 {
        if self.random.percent(30) {
            let dialects = smb_one::dialects(self.random);
            let request = smb_one::negotiation(&dialects);
            let framed = framed(self.random, &request);
            self.talk.client(framed);
            let mut response = self.head(NEGOTIATE, 0, true, 0, false);
            response.extend(negotiation_answer(0x02ff));
            let framed = super::smb::framed(self.random, &response);
            self.talk.server(framed);
        }
        let dialects = *self.random.pick::<&[u16]>(&[
            &[0x0202, 0x0210, 0x0300, 0x0302, 0x0311],
            &[0x0202, 0x0210],
            &[0x0202],
            &[0x0311],
            &[0x0300, 0x0302],
            &[],
        ]);
        let dialect = dialects.last().copied().unwrap_or(0x0202);
        let mut request = Writer::default();
        let count = if self.random.percent(3) { dialects.len() + 2 } else { dialects.len() };
        request.u16(36).u16(count as u16).u16(1).zero(2).u32(0x7f).put([5; 16]).zero(8);
        dialects.iter().for_each(|dialect| {
            request.u16(*dialect);
        });
        self.one(NEGOTIATE, request.bytes, negotiation_answer(dialect));
        dialect
    }

    fn log_in(&mut self) {
        let (user, domain, host) = (name(self.random, 1), name(self.random, 1), name(self.random, 1));
        let (first, challenge, last) = ntlm(self.random, &user, &domain, &host);
        self.talk.target("smb", "smb.ntlmssp_user", &user, true);
        self.talk.target("smb", "smb.ntlmssp_domain", &domain, true);
        let wraps = self.random.percent(60);
        let blobs = [first, challenge, last].map(|token| if wraps { wrapped(&token) } else { token });
        let [first, challenge, last] = blobs;
        let id = 0x10_0000_0001 + self.random.below(3) as u64;
        if self.random.percent(92) {
            let response = setup_answer(&challenge);
            let session = self.session;
            self.session = id;
            let request = setup(&first);
            self.session = session;
            let status = 0xc000_0016;
            self.exchange(&[Command { code: SESSION_SETUP, request, status, response }]);
        }
        self.session = id;
        let (request, response) = (setup(&last), setup_answer(b""));
        self.one(SESSION_SETUP, request, response);
    }

    /// A tree.
    fn connect(&mut self, is_pipe: bool) {
        let share = if is_pipe { "IPC$".to_string() } else { format!("share{}", name(self.random, 1)) };
        let path = format!("\\\\{}\\{share}", name(self.random, 1));
        let text = wide(&path);
        let mut request = Writer::default();
        request.u16(9).u16(0).u16(72).u16(text.len() as u16).put(&text);
        let mut response = Writer::default();
        response.u16(16).u8(if is_pipe { 2 } else { 1 }).u8(0).u32(0x30).u32(0).u32(0x1f01ff);
        self.talk.target("smb", if is_pipe { "smb.named_pipe" } else { "smb.share" }, &path, true);
        self.tree = 0;
        let tree = 1 + self.random.below(3) as u32;
        self.exchange_tree(tree, request.bytes, response.bytes);
    }

    /// TREE_CONNECT, whose response names the tree.
    fn exchange_tree(&mut self, tree: u32, request: Vec<u8>, response: Vec<u8>) {
        let refused = self.random.percent(6);
        let mut message = self.head(TREE_CONNECT, 0, false, 0, false);
        message.extend(request);
        let framed_request = framed(self.random, &message);
        self.talk.client(framed_request);
        self.tree = if refused { 0 } else { tree };
        let status = if refused { 0xc000_00cc } else { 0 };
        let mut message = self.head(TREE_CONNECT, status, true, 0, false);
        message.extend(if refused { error_body() } else { response });
        self.message += 1;
        let framed_response = framed(self.random, &message);
        self.talk.server(framed_response);
    }

    fn open(&mut self, file: &str, id: [u8; 16]) -> Command {
        let text = wide(file);
        let mut request = Writer::default();
        let disposition = *self.random.pick(&[0, 1, 2, 3, 5]);
        let options = if self.random.percent(8) { 0x1000 } else { 0x40 };
        request.u16(57).u8(0).u8(0).u32(2).u64(0).u64(0).u32(0x12_0089).u32(0x80).u32(7);
        request.u32(disposition).u32(options).u16(120).u16(text.len() as u16).u32(0).u32(0).put(&text);
        let mut response = Writer::default();
        response.u16(89).u8(0).u8(0).u32(1).u64(0x01dc_0000_0000_0000).u64(0x01dc_0000_0000_0001);
        response.u64(0x01dc_0000_0000_0002).u64(0x01dc_0000_0000_0003).u64(4_096).u64(77).u32(0x20).zero(4);
        response.put(id).u32(0).u32(0);
        Command { code: CREATE, request: request.bytes, status: 0, response: response.bytes }
    }

    fn file(&mut self) {
        let mut file = format!("{}.{}", name(self.random, 2), self.random.pick(&["end", "txt", "exe"]));
        if self.random.percent(30) {
            file = format!("{}\\{file}", name(self.random, 1));
        }
        let id = [3 + self.random.below(3) as u8; 16];
        let words = self.random.within(1, 60);
        let mut bytes = data(self.random, words);
        if self.random.percent(10) {
            bytes = [b"MZ\x90\0".to_vec(), bytes].concat();
        }
        let writes = self.random.percent(50);
        self.talk.target("smb", "file.name", &file, writes);
        self.talk.target("smb", "file.data", &bytes, writes);
        let open = self.open(&file, id);
        let pieces = *self.random.pick(&[1, 1, 2]);
        let size = bytes.len().div_ceil(pieces).max(1);
        let mut commands = vec![open];
        let mut at = 0;
        for piece in bytes.chunks(size) {
            let at_wire = match self.random.below(25) {
                0 => at + 10,
                1 => 0,
                _ => at,
            };
            commands.push(if writes { write(piece, at_wire, id) } else { read(piece, at_wire, id) });
            at += piece.len() as u64;
        }
        if !writes && self.random.percent(30) {
            commands.push(Command { status: 0xc000_0011, response: error_body(), ..read(b"", at, id) });
        }
        if self.random.percent(15) {
            commands.push(self.information(id, &file));
        }
        if self.random.percent(85) {
            commands.push(close(id));
        }
        if self.random.percent(10) {
            // The file is not found.
            commands.truncate(1);
            commands[0].status = 0xc000_0034;
            commands[0].response = error_body();
        }
        if self.random.percent(18) {
            for command in &mut commands[1..] {
                // A related command may have the file of the one before ([MS-SMB2] section 3.3.5.2.7.2).
                if let Some(at) = command.request.windows(16).position(|window| window == id) {
                    command.request[at..at + 16].fill(0xff);
                }
            }
            return self.exchange(&commands);
        }
        for command in commands {
            self.exchange(&[command]);
        }
    }

    /// SET_INFO (rename, disposition) or QUERY_INFO.
    fn information(&mut self, id: [u8; 16], file: &str) -> Command {
        let mut request = Writer::default();
        if self.random.percent(35) {
            request.u16(41).u8(1).u8(18).u32(1_024).u16(0).zero(2).u32(0).u32(0).u32(0).put(id).zero(1);
            let mut response = Writer::default();
            response.u16(9).u16(72).u32(8).put([0; 8]);
            return Command { code: 16, request: request.bytes, status: 0, response: response.bytes };
        }
        let (class, body) = if self.random.percent(50) {
            let text = wide(&format!("new{file}"));
            let mut body = Writer::default();
            body.u8(0).zero(15).u32(text.len() as u32).put(&text);
            (10, body.bytes)
        } else {
            (13, vec![1])
        };
        request.u16(33).u8(1).u8(class).u32(body.len() as u32).u16(96).zero(2).u32(0).put(id).put(&body);
        Command { code: 17, request: request.bytes, status: 0, response: vec![2, 0] }
    }

    fn pipe(&mut self) {
        let id = [9; 16];
        let pipe = *self.random.pick(&["srvsvc", "samr", "lsarpc"]);
        let open = self.open(pipe, id);
        self.exchange(&[open]);
        for messages in RpcSession::in_a_pipe(self.random, &mut self.talk) {
            let questions: Vec<_> = messages.iter().filter(|one| one.to_server).collect();
            let answers: Vec<_> = messages.iter().filter(|one| !one.to_server).collect();
            let transacts = self.random.percent(45) && questions.len() == 1 && answers.len() == 1;
            if transacts {
                let command = transact(&questions[0].bytes, &answers[0].bytes, id);
                self.exchange(&[command]);
                continue;
            }
            for question in questions {
                let command = write(&question.bytes, 0, id);
                self.exchange(&[command]);
            }
            for answer in answers {
                let command = read(&answer.bytes, 0, id);
                self.exchange(&[command]);
            }
        }
        self.exchange(&[close(id)]);
    }

    /// Messages that are encrypted ([MS-SMB2] section 2.2.41).
    fn encrypted(&mut self) {
        for to_server in [true, false, true, false] {
            let length = self.random.within(70, 120);
            let secret = self.random.bytes(length);
            let mut message = Writer::default();
            message.put(b"\xfdSMB").put([8; 16]).put([7; 16]).u32(length as u32).zero(2).u16(1);
            message.u64(self.session).put(&secret);
            let framed = framed(self.random, &message.bytes);
            if to_server { self.talk.client(framed) } else { self.talk.server(framed) }
        }
    }
}

fn error_body() -> Vec<u8> {
    let mut body = Writer::default();
    body.u16(9).u8(0).u8(0).u32(0).u8(0);
    body.bytes
}

fn negotiation_answer(dialect: u16) -> Vec<u8> {
    let token = b"\x60\x06\x06\x04\x2b\x06\x01\x05";
    let mut answer = Writer::default();
    answer
        .u16(65)
        .u16(1)
        .u16(dialect)
        .u16(0)
        .put([6; 16])
        .u32(0x2f)
        .u32(0x10_0000)
        .u32(0x10_0000)
        .u32(0x10_0000);
    answer.u64(0x01dc_0000_0000_0000).u64(0).u16(128).u16(token.len() as u16).u32(0).put(token);
    answer.bytes
}

fn setup(blob: &[u8]) -> Vec<u8> {
    let mut request = Writer::default();
    request.u16(25).u8(0).u8(1).u32(1).u32(0).u16(88).u16(blob.len() as u16).u64(0).put(blob);
    request.bytes
}

fn setup_answer(blob: &[u8]) -> Vec<u8> {
    let mut response = Writer::default();
    response.u16(9).u16(0).u16(72).u16(blob.len() as u16).put(blob);
    response.bytes
}

fn write(bytes: &[u8], at: u64, id: [u8; 16]) -> Command {
    let mut request = Writer::default();
    request
        .u16(49)
        .u16(112)
        .u32(bytes.len() as u32)
        .u64(at)
        .put(id)
        .u32(0)
        .u32(0)
        .u16(0)
        .u16(0)
        .u32(0)
        .put(bytes);
    let mut response = Writer::default();
    response.u16(17).u16(0).u32(bytes.len() as u32).u32(0).u32(0);
    Command { code: WRITE, request: request.bytes, status: 0, response: response.bytes }
}

fn read(bytes: &[u8], at: u64, id: [u8; 16]) -> Command {
    let mut request = Writer::default();
    request.u16(49).u8(80).u8(0).u32(1_024).u64(at).put(id).u32(0).u32(0).u32(0).u16(0).u16(0).u8(0);
    let mut response = Writer::default();
    response.u16(17).u8(80).u8(0).u32(bytes.len() as u32).u32(0).u32(0).put(bytes);
    Command { code: READ, request: request.bytes, status: 0, response: response.bytes }
}

fn close(id: [u8; 16]) -> Command {
    let mut request = Writer::default();
    request.u16(24).u16(1).u32(0).put(id);
    let mut response = Writer::default();
    response.u16(60).u16(0).u32(0).zero(52);
    Command { code: CLOSE, request: request.bytes, status: 0, response: response.bytes }
}

/// FSCTL_PIPE_TRANSCEIVE.
fn transact(question: &[u8], answer: &[u8], id: [u8; 16]) -> Command {
    let mut request = Writer::default();
    request.u16(57).u16(0).u32(0x0011_c017).put(id).u32(120).u32(question.len() as u32).u32(0).u32(0).u32(0);
    request.u32(1_024).u32(1).u32(0).put(question);
    let mut response = Writer::default();
    response.u16(49).u16(0).u32(0x0011_c017).put(id).u32(112).u32(0).u32(112).u32(answer.len() as u32);
    response.u32(0).u32(0).put(answer);
    Command { code: IOCTL, request: request.bytes, status: 0, response: response.bytes }
}

/// The three messages of NTLMSSP ([MS-NLMP] section 2.2.1).
pub(super) fn ntlm(random: &mut Random, user: &str, domain: &str, host: &str) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let mut first = Writer::default();
    first.put(b"NTLMSSP\0").u32(1).u32(0xe208_8297).zero(16).put([10, 0, 0x61, 0x58, 0, 0, 0, 15]);
    let mut challenge = Writer::default();
    let target = wide(domain);
    challenge.put(b"NTLMSSP\0").u32(2).u16(target.len() as u16).u16(target.len() as u16).u32(56);
    challenge.u32(0xe289_8215).put([1, 2, 3, 4, 5, 6, 7, 8]).zero(8).u16(0).u16(0).u32(56);
    challenge.put([6, 1, 0xb1, 0x1d, 0, 0, 0, 15]).put(&target);
    let texts = [vec![0; 24], vec![9; 24], wide(domain), wide(user), wide(host), vec![4; 16]];
    let mut last = Writer::default();
    last.put(b"NTLMSSP\0").u32(3);
    let with_version = random.percent(80);
    let mut at = if with_version { 72 } else { 64 };
    for text in &texts {
        let length = if random.percent(1) { text.len() + 60 } else { text.len() };
        last.u16(length as u16).u16(length as u16).u32(at as u32);
        at += text.len();
    }
    last.u32(if with_version { 0xe288_8215 } else { 0xe088_8215 });
    if with_version {
        last.put([10, 0, 0x61, 0x58, 0, 0, 0, 15]);
    }
    texts.iter().for_each(|text| {
        last.put(text);
    });
    (first.bytes, challenge.bytes, last.bytes)
}

/// A length in DER.
fn der(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    match body.len() {
        length @ 0..=127 => bytes.push(length as u8),
        length => bytes.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    bytes.extend_from_slice(body);
    bytes
}

/// A token within SPNEGO (RFC 4178): the first one with the list of mechanisms.
pub(super) fn wrapped(token: &[u8]) -> Vec<u8> {
    let mechanism = der(6, &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 10]);
    if token.get(8) == Some(&1) {
        let list = der(0xa0, &der(0x30, &mechanism));
        let token = der(0xa2, &der(4, token));
        let inner = der(0xa0, &der(0x30, &[list, token].concat()));
        return der(0x60, &[der(6, &[0x2b, 6, 1, 5, 5, 2]), inner].concat());
    }
    let mut body = der(0xa0, &[10, 1, 1]);
    if token.get(8) == Some(&2) {
        body.extend(der(0xa1, &mechanism));
    }
    body.extend(der(0xa2, &der(4, token)));
    der(0xa1, &der(0x30, &body))
}
