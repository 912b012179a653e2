// SPDX-License-Identifier: Apache-2.0
//! DCERPC (C706) over TCP and UDP, in both byte orders, with fragments; its messages also go through SMB.

use super::conversation::Talk;
use super::writer::Writer;
use crate::scene::Scene;
use crate::talk::Way;
use crate::text::data;
use bartizan_testkit::random::Random;

/// Conditions of rules on DCERPC.
pub(super) const CONDITIONS: &[&str] = &[
    "dcerpc.iface:4b324fc8-1670-01d3-1278-5a47bf6ee188",
    "dcerpc.iface:4b324fc8-1670-01d3-1278-5a47bf6ee188,>2",
    "dcerpc.iface:4b324fc8-1670-01d3-1278-5a47bf6ee188,<3",
    "dcerpc.iface:4b324fc8-1670-01d3-1278-5a47bf6ee188,=3",
    "dcerpc.iface:4b324fc8-1670-01d3-1278-5a47bf6ee188,!3",
    "dcerpc.iface:e1af8308-5d1f-11c9-91a4-08002b14a0fa",
    "dcerpc.iface:e1af8308-5d1f-11c9-91a4-08002b14a0fa,any_frag",
    "dcerpc.iface:4b324fc8-1670-01d3-1278-5a47bf6ee188,any_frag",
    "dcerpc.iface:4b324fc8-1670-01d3-1278-5a47bf6ee188; dcerpc.opnum:15",
    "dcerpc.iface:e1af8308-5d1f-11c9-91a4-08002b14a0fa; dcerpc.opnum:0-5; dcerpc.stub_data; content:\"a\"",
    "dcerpc.opnum:15",
    "dcerpc.opnum:0-3",
    "dcerpc.opnum:2,15,30-40",
    "dcerpc.opnum:0",
    "dcerpc.stub_data; content:\"|00|\"",
    "dcerpc.stub_data; content:!\"abc\"",
    "dcerpc.stub_data; bsize:>20",
    "dce_stub_data; byte_test:4,>,1,0,dce",
    "dce_stub_data; byte_test:2,=,1,0,dce",
    "dce_stub_data; byte_jump:4,0,dce",
    "dce_iface:4b324fc8-1670-01d3-1278-5a47bf6ee188; dce_opnum:15",
    "frame:dcerpc.pdu; bsize:>30",
    "frame:dcerpc.hdr; content:\"|05 00|\"; startswith",
    "frame:dcerpc.data; content:\"a\"",
];

/// Interfaces: text, major and minor version.
const INTERFACES: &[(&str, u16, u16)] = &[
    ("4b324fc8167001d312785a47bf6ee188", 3, 0),
    ("e1af83085d1f11c991a408002b14a0fa", 3, 0),
    ("123457781234abcdef000123456789ac", 1, 0),
];
const NDR: &str = "8a885d041ceb11c99fe808002b104860";

/// A UUID on the wire.
fn uuid(text: &str, is_big: bool) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..16).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap_or_default()).collect();
    if !is_big {
        bytes[..4].reverse();
        bytes[4..6].reverse();
        bytes[6..8].reverse();
    }
    bytes
}

/// One message with its head.
pub(super) struct Rpc {
    pub bytes: Vec<u8>,
    pub to_server: bool,
}

/// A connection's messages in the making.
pub(super) struct RpcSession {
    is_big: bool,
    call: u32,
    /// Client's stub data of the first request, for targets.
    pub stubs: Vec<(Vec<u8>, bool)>,
}

impl RpcSession {
    pub fn new(random: &mut Random) -> Self {
        RpcSession { is_big: random.percent(25), call: random.within(1, 3) as u32, stubs: Vec::new() }
    }

    /// The exchanges of a session in a pipe of SMB; the conversation gets their stub data as targets.
    pub fn in_a_pipe(random: &mut Random, talk: &mut Talk) -> Vec<Vec<Rpc>> {
        let mut session = RpcSession::new(random);
        let mut exchanges = vec![session.bind(random, false)];
        for _ in 0..*random.pick(&[0, 1, 1, 2]) {
            exchanges.push(session.call(random));
        }
        for (stub, to_server) in &session.stubs {
            talk.target("smb", "dcerpc.stub_data", stub, *to_server);
        }
        exchanges
    }

    fn message(&self, random: &mut Random, kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
        let mut message = Writer::new(self.is_big);
        let length = body.len() + 16;
        let length = match random.below(70) {
            0 => length + 5,
            1 => length.saturating_sub(2),
            2 => 10,
            _ => length,
        };
        let minor = u8::from(random.percent(2));
        message.u8(5).u8(minor).u8(kind).u8(flags).put([if self.is_big { 0 } else { 0x10 }, 0, 0, 0]);
        message.u16(length as u16).u16(0).u32(self.call).put(body);
        message.bytes
    }

    /// BIND or ALTER_CONTEXT, and its answer.
    pub fn bind(&mut self, random: &mut Random, alters: bool) -> Vec<Rpc> {
        let mut body = Writer::new(self.is_big);
        let count = *random.pick(&[1, 1, 1, 2, 3]);
        body.u16(4_280).u16(4_280).u32(0).u8(count).zero(3);
        let first = random.below(INTERFACES.len());
        for context in 0..count {
            let (text, major, minor) = INTERFACES[(first + usize::from(context)) % INTERFACES.len()];
            let syntaxes = *random.pick(&[1, 1, 1, 2]);
            body.u16(context.into()).u8(syntaxes).u8(0).put(uuid(text, self.is_big)).u16(major).u16(minor);
            for _ in 0..syntaxes {
                body.put(uuid(NDR, self.is_big)).u32(2);
            }
        }
        let mut answer = Writer::new(self.is_big);
        answer.u16(4_280).u16(4_280).u32(0x1234);
        if alters {
            answer.u16(0).zero(2);
        } else {
            let pipe = *random.pick(&["\\PIPE\\srvsvc\0", "135\0"]);
            answer.u16(pipe.len() as u16).put(pipe);
            answer.zero((4 - (answer.bytes.len() % 4)) % 4);
        }
        let listed = if random.percent(4) { count - 1 } else { count };
        answer.u8(listed).zero(3);
        for _ in 0..listed {
            answer.u16(*random.pick(&[0, 0, 0, 2])).u16(0).put(uuid(NDR, self.is_big)).u32(2);
        }
        let (kind, back) = if alters { (14, 15) } else { (11, 12) };
        let mut messages = vec![Rpc { bytes: self.message(random, kind, 3, &body.bytes), to_server: true }];
        messages.push(match random.below(16) {
            0 => Rpc { bytes: self.message(random, 13, 3, &[0, 0, 0]), to_server: false },
            _ => Rpc { bytes: self.message(random, back, 3, &answer.bytes), to_server: false },
        });
        self.call += u32::from(random.percent(90));
        messages
    }

    /// A request and its response, each perhaps in fragments.
    pub fn call(&mut self, random: &mut Random) -> Vec<Rpc> {
        let opnum = *random.pick(&[0, 2, 3, 15, 15, 15, 31]);
        let words = random.within(1, 14);
        let (question, answer) = (data(random, words), data(random, words));
        let mut messages = Vec::new();
        self.stubs.push((question.clone(), true));
        self.stubs.push((answer.clone(), false));
        let context = *random.pick(&[0, 0, 0, 0, 1, 7]);
        for (to_server, stub) in [(true, question), (false, answer)] {
            if !to_server && random.percent(8) {
                let mut fault = Writer::new(self.is_big);
                fault.u32(32).u16(context).zero(2).u32(0x1c01_0003).zero(4);
                messages.push(Rpc { bytes: self.message(random, 3, 3, &fault.bytes), to_server });
                continue;
            }
            let count = *random.pick(&[1, 1, 1, 2, 3]);
            let size = stub.len().div_ceil(count).max(1);
            let pieces: Vec<&[u8]> = stub.chunks(size).collect();
            for (at, piece) in pieces.iter().enumerate() {
                let mut flags = u8::from(at == 0) | if at + 1 == pieces.len() { 2 } else { 0 };
                let mut body = Writer::new(self.is_big);
                body.u32(stub.len() as u32).u16(context);
                if to_server {
                    body.u16(opnum);
                    if random.percent(5) {
                        flags |= 0x80;
                        body.put(uuid(INTERFACES[0].0, self.is_big));
                    }
                } else {
                    body.u8(0).u8(0);
                }
                if random.percent(3) {
                    flags ^= *random.pick(&[1, 2, 3]);
                }
                body.put(piece);
                let kind = if to_server { 0 } else { 2 };
                messages.push(Rpc { bytes: self.message(random, kind, flags, &body.bytes), to_server });
            }
        }
        self.call += u32::from(random.percent(92));
        messages
    }

    /// AUTH3, a cancel, a ping, or another kind.
    fn other(&mut self, random: &mut Random) -> Rpc {
        let kind = *random.pick(&[16, 18, 19, 1, 17, 20, 9, 30]);
        let length = random.within(0, 12);
        let body = random.bytes(length);
        Rpc { bytes: self.message(random, kind, 3, &body), to_server: random.percent(70) }
    }
}

/// A conversation.
pub(super) fn scene(random: &mut Random) -> Scene {
    if random.percent(22) {
        return datagrams(random);
    }
    let mut talk = Talk::default();
    let mut way = Way { port: *random.pick(&[135, 135, 49_160]), ..Way::default() };
    let mut session = RpcSession::new(random);
    let mut messages = Vec::new();
    if random.percent(92) {
        messages.extend(session.bind(random, false));
    }
    for _ in 0..*random.pick(&[0, 1, 1, 2, 3]) {
        if random.percent(12) {
            messages.push(session.other(random));
        }
        if random.percent(15) {
            messages.extend(session.bind(random, true));
        }
        messages.extend(session.call(random));
    }
    if messages.is_empty() {
        messages.extend(session.bind(random, false));
    }
    let joins = random.percent(20);
    for message in messages {
        match talk.messages.last_mut() {
            Some(last) if joins && last.to_server == message.to_server => last.data.extend(message.bytes),
            _ if message.to_server => talk.client(message.bytes),
            _ => talk.server(message.bytes),
        }
    }
    for (stub, to_server) in &session.stubs {
        talk.target("dcerpc", "dcerpc.stub_data", stub, *to_server);
    }
    if random.percent(20) {
        talk.disturb(random);
    }
    payloads(&mut talk, &["frame:dcerpc.pdu", "frame:dcerpc.data", "frame:dcerpc.hdr"]);
    if random.percent(15) {
        way.sizes = (0..6).map(|_| random.within(1, 60)).collect();
    }
    Scene { messages: talk.messages, way, targets: talk.targets, beside: Vec::new() }
}

fn payloads(talk: &mut Talk, frames: &[&'static str; 3]) {
    let some: Vec<_> = talk.messages.iter().map(|one| (one.data.clone(), one.to_server)).take(6).collect();
    for (at, (bytes, to_server)) in some.into_iter().enumerate() {
        let places = [
            ("tcp", ""),
            ("dcerpc", frames[0]),
            ("dcerpc", ""),
            ("dcerpc", frames[1]),
            ("dcerpc", frames[2]),
        ];
        let (proto, buffer) = places[at % places.len()];
        talk.target(proto, buffer, bytes, to_server);
    }
}

/// A conversation without a connection (C706 section 12.5).
fn datagrams(random: &mut Random) -> Scene {
    let mut talk = Talk::default();
    let is_big = random.percent(25);
    let way = Way { udp: true, port: *random.pick(&[135, 1_024, 5_000]), ..Way::default() };
    for sequence in 0..random.within(1, 3) {
        let (text, major, _) = INTERFACES[random.below(INTERFACES.len())];
        let activity = [7_u8; 16];
        let opnum = *random.pick(&[0, 2, 15, 15]);
        let words = random.within(1, 12);
        for to_server in [true, false] {
            let stub = data(random, words);
            talk.target("dcerpc", "dcerpc.stub_data", &stub, to_server);
            let count = *random.pick(&[1, 1, 1, 2]);
            let size = stub.len().div_ceil(count).max(1);
            let pieces: Vec<&[u8]> = stub.chunks(size).collect();
            for (at, piece) in pieces.iter().enumerate() {
                let mut flags = if pieces.len() > 1 { 4 } else { 0 };
                if at + 1 == pieces.len() && pieces.len() > 1 {
                    flags |= 2;
                }
                let kind = match random.below(30) {
                    0 => *random.pick(&[1, 3, 5, 6, 7, 9, 11, 20]),
                    _ if to_server => 0,
                    _ => 2,
                };
                let mut message = Writer::new(is_big);
                message.u8(4).u8(kind).u8(flags).u8(0).u8(if is_big { 0 } else { 0x10 }).u8(0).u8(0).u8(0);
                message.zero(16).put(uuid(text, is_big)).put(activity).u32(0).u32(major.into());
                message.u32(sequence as u32).u16(opnum).u16(0xffff).u16(0xffff);
                let length = if random.percent(3) { piece.len() + 4 } else { piece.len() };
                message.u16(length as u16).u16(at as u16).u8(0).u8(0).put(piece);
                if to_server { talk.client(message.bytes) } else { talk.server(message.bytes) }
            }
        }
    }
    if random.percent(20) {
        talk.disturb(random);
    }
    let some: Vec<_> = talk.messages.iter().map(|one| (one.data.clone(), one.to_server)).take(3).collect();
    for (at, (bytes, to_server)) in some.into_iter().enumerate() {
        talk.target(["udp", "dcerpc", "dcerpc"][at], ["", "", "frame:dcerpc.pdu"][at], bytes, to_server);
    }
    Scene { messages: talk.messages, way, targets: talk.targets, beside: Vec::new() }
}
