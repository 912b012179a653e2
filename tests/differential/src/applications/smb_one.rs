// SPDX-License-Identifier: Apache-2.0
//! Conversations of SMB 1 ([MS-CIFS], [MS-SMB]).

use super::conversation::Talk;
use super::dcerpc::RpcSession;
use super::smb::{framed, ntlm, wrapped};
use super::writer::{Writer, wide, wide_z};
use crate::text::{data, name};
use bartizan_testkit::random::Random;

/// The dialects of a client.
pub(super) fn dialects(random: &mut Random) -> Vec<&'static str> {
    let all = *random.pick::<&[&str]>(&[
        &["PC NETWORK PROGRAM 1.0", "LANMAN1.0", "NT LM 0.12", "SMB 2.002", "SMB 2.???"],
        &["NT LM 0.12", "SMB 2.002", "SMB 2.???"],
        &["SMB 2.???"],
    ]);
    all.to_vec()
}

/// NEGOTIATE with these dialects.
pub(super) fn negotiation(dialects: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for dialect in dialects {
        bytes.push(2);
        bytes.extend(dialect.bytes());
        bytes.push(0);
    }
    let ids = Ids { tree: 0xffff, user: 0, message: 1 };
    command(0x72, 0, false, ids, &[], &bytes)
}

/// Numbers of a header.
#[derive(Clone, Copy)]
struct Ids {
    tree: u16,
    user: u16,
    message: u16,
}

/// A message with one command: its words as bytes, and its bytes.
fn command(code: u8, status: u32, is_response: bool, ids: Ids, words: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut message = Writer::default();
    message.put(b"\xffSMB").u8(code).u32(status).u8(if is_response { 0x98 } else { 0x18 }).u16(0xc803);
    message.u16(0).zero(8).zero(2).u16(ids.tree).u16(0x1234).u16(ids.user).u16(ids.message);
    message.u8((words.len() / 2) as u8).put(words).u16(bytes.len() as u16).put(bytes);
    message.bytes
}

/// A connection in the making.
struct One<'r> {
    random: &'r mut Random,
    talk: Talk,
    ids: Ids,
}

/// A conversation.
pub(super) fn talk(random: &mut Random) -> Talk {
    let ids = Ids { tree: 0xffff, user: 0, message: 1 };
    let mut one = One { random, talk: Talk::default(), ids };
    one.negotiate();
    if one.random.percent(92) {
        one.log_in();
    }
    for _ in 0..*one.random.pick(&[0, 1, 1, 1, 2]) {
        let is_pipe = one.random.percent(35);
        one.connect(is_pipe);
        if is_pipe {
            one.pipe()
        } else {
            one.file()
        }
        if one.random.percent(20) {
            one.exchange(0x71, &[], &[], &[], &[]);
        }
    }
    if one.random.percent(15) {
        one.exchange(0x74, &[0xff, 0, 0, 0], &[], &[0xff, 0, 0, 0], &[]);
    }
    one.talk
}

impl One<'_> {
    fn send(&mut self, is_response: bool, message: &[u8]) {
        let framed = framed(self.random, message);
        if is_response { self.talk.server(framed) } else { self.talk.client(framed) }
    }

    /// A command and its response: words and bytes of each.
    fn exchange(&mut self, code: u8, words: &[u8], bytes: &[u8], back: &[u8], answer: &[u8]) {
        let request = command(code, 0, false, self.ids, words, bytes);
        self.send(false, &request);
        let refused = self.random.percent(6);
        let response = if refused {
            let status = *self.random.pick(&[0xc000_0022, 0xc000_0034, 0x0005_0001]);
            command(code, status, true, self.ids, &[], &[])
        } else {
            command(code, 0, true, self.ids, back, answer)
        };
        self.send(true, &response);
        self.ids.message += 1;
    }

    fn negotiate(&mut self) {
        let known = *self.random.pick::<&[&str]>(&[
            &["PC NETWORK PROGRAM 1.0", "LANMAN1.0", "Windows for Workgroups 3.1a", "NT LM 0.12"],
            &["NT LM 0.12"],
            &["NT LM 0.12", "Samba"],
        ]);
        let mut message = negotiation(known);
        if self.random.percent(4) {
            // A dialect without its format.
            let at = message.len() - 6;
            message[at] = 7;
        }
        self.send(false, &message);
        let mut words = Writer::default();
        let chosen = known.iter().position(|one| *one == "NT LM 0.12").unwrap_or_default() as u16;
        words.u16(if self.random.percent(4) { 40 } else { chosen });
        words.u8(3).u16(50).u16(1).u32(16_644).u32(65_536).u32(0).u32(0x8000_f3fd).u64(0x01dc_0000_0000_0000);
        words.u16(0).u8(0);
        let mut bytes = vec![6_u8; 16];
        bytes.extend(b"\x60\x06\x06\x04\x2b\x06\x01\x05");
        let message = command(0x72, 0, true, self.ids, &words.bytes, &bytes);
        self.send(true, &message);
        self.ids.message += 1;
    }

    fn log_in(&mut self) {
        let (user, domain, host) = (name(self.random, 1), name(self.random, 1), name(self.random, 1));
        if self.random.percent(20) {
            return self.log_in_plainly(&user, &domain);
        }
        let (first, challenge, last) = ntlm(self.random, &user, &domain, &host);
        self.talk.target("smb", "smb.ntlmssp_user", &user, true);
        self.talk.target("smb", "smb.ntlmssp_domain", &domain, true);
        let wraps = self.random.percent(60);
        let [first, challenge, last] =
            [first, challenge, last].map(|token| if wraps { wrapped(&token) } else { token });
        for (token, answer, status) in [(first, challenge, 0xc000_0016), (last, Vec::new(), 0)] {
            let mut words = Writer::default();
            words.put([0xff, 0, 0, 0]).u16(16_644).u16(50).u16(1).u32(0).u16(token.len() as u16).u32(0);
            words.u32(0x8000_00d4);
            let names = [wide_z("Unix"), wide_z("Client 1.0"), wide_z("")].concat();
            let padding = vec![0; (token.len() + 1) % 2];
            let bytes = [token, padding, names].concat();
            let request = command(0x73, 0, false, self.ids, &words.bytes, &bytes);
            self.send(false, &request);
            self.ids.user = 2_048;
            let mut words = Writer::default();
            words.put([0xff, 0, 0, 0]).u16(0).u16(answer.len() as u16);
            let padding = vec![0; (answer.len() + 1) % 2];
            let bytes = [answer, padding, wide_z("Unix"), wide_z("Server 2.0"), wide_z("WORK")].concat();
            let response = command(0x73, status, true, self.ids, &words.bytes, &bytes);
            self.send(true, &response);
            self.ids.message += 1;
        }
    }

    /// A session without NTLMSSP.
    fn log_in_plainly(&mut self, user: &str, domain: &str) {
        let mut words = Writer::default();
        words.put([0xff, 0, 0, 0]).u16(16_644).u16(2).u16(1).u32(0).u16(24).u16(0).u32(0).u32(0xd4);
        let mut bytes = vec![5; 24];
        bytes.push(0);
        for text in [user, domain, "Unix", "Client"] {
            bytes.extend(wide_z(text));
        }
        let request = command(0x73, 0, false, self.ids, &words.bytes, &bytes);
        self.send(false, &request);
        self.ids.user = 2_048;
        let bytes = [vec![0], wide_z("Unix"), wide_z("Server"), wide_z("WORK")].concat();
        let response = command(0x73, 0, true, self.ids, &[0xff, 0, 0, 0, 0, 0], &bytes);
        self.send(true, &response);
        self.ids.message += 1;
    }

    fn connect(&mut self, is_pipe: bool) {
        let share = if is_pipe { "IPC$".to_string() } else { format!("share{}", name(self.random, 1)) };
        let path = format!("\\\\{}\\{share}", name(self.random, 1));
        self.talk.target("smb", if is_pipe { "smb.named_pipe" } else { "smb.share" }, &path, true);
        let mut words = Writer::default();
        words.put([0xff, 0, 0, 0]).u16(8).u16(1);
        let service: &[u8] = if is_pipe { b"IPC\0" } else { b"A:\0" };
        let service = if self.random.percent(30) { b"?????\0" } else { service };
        let bytes = [vec![0], wide_z(&path), service.to_vec()].concat();
        self.ids.tree = 0;
        let request = command(0x75, 0, false, self.ids, &words.bytes, &bytes);
        self.send(false, &request);
        self.ids.tree = 1 + self.random.below(3) as u16;
        let answer: &[u8] = if is_pipe { b"IPC\0\0\0" } else { b"A:\0N\0T\0F\0S\0\0\0" };
        let response = command(0x75, 0, true, self.ids, &[0xff, 0, 0, 0, 1, 0], answer);
        self.send(true, &response);
        self.ids.message += 1;
    }

    fn open(&mut self, file: &str, fid: u16) {
        let text = wide_z(file);
        let mut words = Writer::default();
        words
            .put([0xff, 0, 0, 0, 0])
            .u16(text.len() as u16 - 2)
            .u32(0)
            .u32(0)
            .u32(0x12_0089)
            .u64(0)
            .u32(0x80);
        words.u32(7).u32(*self.random.pick(&[1, 1, 2, 3, 5])).u32(0x40).u32(2).u8(3);
        let mut back = Writer::default();
        back.put([0xff, 0, 0, 0, 0]).u16(fid).u32(1).u64(0x01dc_0000_0000_0000).u64(0x01dc_0000_0000_0001);
        back.u64(0x01dc_0000_0000_0002)
            .u64(0x01dc_0000_0000_0003)
            .u32(0x80)
            .u64(4_096)
            .u64(77)
            .u16(0)
            .u16(7)
            .u8(0);
        self.exchange(0xa2, &words.bytes, &[vec![0], text].concat(), &back.bytes, &[]);
    }

    fn write(&mut self, fid: u16, bytes: &[u8], at: u32) {
        let mut words = Writer::default();
        words
            .put([0xff, 0, 0, 0])
            .u16(fid)
            .u32(at)
            .u32(0)
            .u16(0)
            .u16(0)
            .u16(0)
            .u16(bytes.len() as u16)
            .u16(64);
        words.u32(0);
        let mut back = Writer::default();
        back.put([0xff, 0, 0, 0]).u16(bytes.len() as u16).u16(0xffff).u32(0);
        self.exchange(0x2f, &words.bytes, &[&[0xee][..], bytes].concat(), &back.bytes, &[]);
    }

    fn read(&mut self, fid: u16, bytes: &[u8], at: u32) {
        let mut words = Writer::default();
        words.put([0xff, 0, 0, 0]).u16(fid).u32(at).u16(1_024).u16(1_024).u32(0).u16(0).u32(0);
        let mut back = Writer::default();
        back.put([0xff, 0, 0, 0]).u16(0xffff).u16(0).u16(0).u16(bytes.len() as u16).u16(60).u16(0).zero(8);
        self.exchange(0x2e, &words.bytes, &[], &back.bytes, &[&[0][..], bytes].concat());
    }

    fn close(&mut self, fid: u16) {
        let mut words = Writer::default();
        words.u16(fid).u32(0);
        self.exchange(0x04, &words.bytes, &[], &[], &[]);
    }

    fn file(&mut self) {
        let mut file = format!("\\{}.{}", name(self.random, 2), self.random.pick(&["end", "txt"]));
        if self.random.percent(25) {
            file = format!("\\{}{file}", name(self.random, 1));
        }
        let fid = 0x4000 + self.random.below(4) as u16;
        let words = self.random.within(1, 50);
        let bytes = data(self.random, words);
        let writes = self.random.percent(50);
        self.talk.target("smb", "file.name", &file, writes);
        self.talk.target("smb", "file.data", &bytes, writes);
        self.open(&file, fid);
        let size = bytes.len().div_ceil(*self.random.pick(&[1, 1, 2])).max(1);
        let mut at = 0;
        for piece in bytes.chunks(size) {
            if writes {
                self.write(fid, piece, at)
            } else {
                self.read(fid, piece, at)
            }
            at += piece.len() as u32;
        }
        if self.random.percent(20) {
            self.information(fid, &file);
        }
        if self.random.percent(85) {
            self.close(fid);
        }
    }

    /// TRANS2: sets or asks for information of a file; RENAME.
    fn information(&mut self, fid: u16, file: &str) {
        if self.random.percent(30) {
            let bytes = [vec![4], wide_z(file), vec![4, 0], wide_z("\\new.end")].concat();
            return self.exchange(0x07, &[0x16, 0], &bytes, &[], &[]);
        }
        let (function, parameters, load) = match self.random.below(3) {
            0 => (8_u16, [fid.to_le_bytes(), 1_013_u16.to_le_bytes(), [0, 0]].concat(), vec![1]),
            1 => {
                let text = wide("new.end");
                let load = [vec![0; 8], (text.len() as u32).to_le_bytes().to_vec(), text].concat();
                (8, [fid.to_le_bytes(), 1_010_u16.to_le_bytes(), [0, 0]].concat(), load)
            }
            _ => (5, [vec![1, 1, 0, 0, 0, 0], wide_z(file)].concat(), Vec::new()),
        };
        let mut words = Writer::default();
        // Offsets count from the header: 32, a count of 15 words, the count of bytes, three of padding.
        let at = 32 + 1 + 30 + 2 + 3;
        words.u16(parameters.len() as u16).u16(load.len() as u16).u16(2).u16(100).u8(0).u8(0).u16(0).u32(0);
        words.u16(0).u16(parameters.len() as u16).u16(at).u16(load.len() as u16);
        words.u16(at + parameters.len() as u16).u8(1).u8(0).u16(function);
        let bytes = [vec![0; 3], parameters, load].concat();
        let mut back = Writer::default();
        back.u16(2).u16(0).u16(0).u16(2).u16(56).u16(0).u16(0).u16(60).u16(0).u8(0).u8(0);
        self.exchange(0x32, &words.bytes, &bytes, &back.bytes, &[0, 0, 0]);
    }

    fn pipe(&mut self) {
        let fid = 0x4010;
        let pipe = *self.random.pick(&["\\srvsvc", "\\samr"]);
        self.open(pipe, fid);
        for messages in RpcSession::in_a_pipe(self.random, &mut self.talk) {
            let (questions, answers): (Vec<_>, Vec<_>) = messages.into_iter().partition(|one| one.to_server);
            if self.random.percent(55) && questions.len() == 1 && answers.len() == 1 {
                self.transact(fid, &questions[0].bytes, &answers[0].bytes);
                continue;
            }
            for question in questions {
                self.write(fid, &question.bytes, 0);
            }
            for answer in answers {
                self.read(fid, &answer.bytes, 0);
            }
        }
        self.close(fid);
    }

    /// TRANS with TransactNmPipe.
    fn transact(&mut self, fid: u16, question: &[u8], answer: &[u8]) {
        let pipe = wide_z("\\PIPE\\");
        let mut words = Writer::default();
        // A count of 16 words, the count of bytes, one of padding, the name, padding to four.
        let end = 32 + 1 + 32 + 2 + 1 + pipe.len();
        let at = end.next_multiple_of(4);
        words.u16(0).u16(question.len() as u16).u16(0).u16(1_024).u8(0).u8(0).u16(0).u32(0).u16(0).u16(0);
        words.u16(at as u16).u16(question.len() as u16).u16(at as u16).u8(2).u8(0).u16(0x26).u16(fid);
        let bytes = [vec![0], pipe, vec![0; at - end], question.to_vec()].concat();
        let mut back = Writer::default();
        back.u16(0)
            .u16(answer.len() as u16)
            .u16(0)
            .u16(0)
            .u16(56)
            .u16(0)
            .u16(answer.len() as u16)
            .u16(56)
            .u16(0);
        back.u8(0).u8(0);
        self.exchange(0x25, &words.bytes, &bytes, &back.bytes, &[&[0][..], answer].concat());
    }
}
