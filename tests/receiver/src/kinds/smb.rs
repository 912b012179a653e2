// SPDX-License-Identifier: Apache-2.0
//! Conversations with an SMB server: a file with a forbidden name or content, written in pieces of any order
//! and length, in compounds of related requests, with gaps between fields, and behind other messages.

use super::case::Play;
use super::made::Made;
use crate::receivers::Service;
use crate::talk::{Failure, Talk};

/// Conversations in odd forms.
pub(super) fn forms(made: &mut Made<'_>) -> Play {
    made.talk(Service::Smb, dirty, good)
}

const NEGOTIATE: u16 = 0;
const SESSION_SETUP: u16 = 1;
const TREE_CONNECT: u16 = 3;
const CREATE: u16 = 5;
const CLOSE: u16 = 6;
const READ: u16 = 8;
const WRITE: u16 = 9;
const ECHO: u16 = 13;

/// Length of a header ([MS-SMB2] section 2.2.1).
const HEAD: usize = 64;
/// The file of the request before, in related requests.
const SAME_FILE: [u8; 16] = [0xff; 16];
/// Bytes of a write before its data.
const WRITE_FIELDS: usize = 48;

/// A request: its command and its body, whose offsets count from the header.
#[derive(Clone)]
struct Request {
    command: u16,
    body: Vec<u8>,
    /// It goes on with session, tree and file of the request before.
    is_related: bool,
}

/// An open connection of SMB2.
#[derive(Default)]
struct Session {
    message: u64,
    session: u64,
    tree: u32,
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn request(command: u16, body: Vec<u8>) -> Request {
    Request { command, body, is_related: false }
}

/// NEGOTIATE ([MS-SMB2] section 2.2.3).
fn negotiate() -> Request {
    let dialects = [0x0202u16, 0x0210, 0x0300];
    let list: Vec<u8> = dialects.iter().flat_map(|dialect| dialect.to_le_bytes()).collect();
    let head =
        [&36u16.to_le_bytes()[..], &(dialects.len() as u16).to_le_bytes(), &1u16.to_le_bytes(), &[0; 2]]
            .concat();
    request(NEGOTIATE, joined(&[&head, &[0; 4], b"harness-of-tests", &[0; 8], &list]))
}

/// SESSION_SETUP with a token of NTLMSSP ([MS-SMB2] section 2.2.5, [MS-NLMP] section 2.2.1).
fn session_setup(token: &[u8]) -> Request {
    let offset = (HEAD + 24) as u16;
    let head = [
        &25u16.to_le_bytes()[..],
        &[0, 1],
        &[0; 4],
        &[0; 4],
        &offset.to_le_bytes(),
        &(token.len() as u16).to_le_bytes(),
        &[0; 8],
    ]
    .concat();
    request(SESSION_SETUP, joined(&[&head, token]))
}

/// The first token: what the client can do.
fn token_of_client() -> Vec<u8> {
    joined(&[b"NTLMSSP\0", &1u32.to_le_bytes(), &0xa000_8207u32.to_le_bytes(), &[0; 16]])
}

/// The last token, of a client without a name.
fn token_of_nobody() -> Vec<u8> {
    let end = 64u32.to_le_bytes();
    let empty = [&[0; 4][..], &end].concat();
    let fields = empty.repeat(6);
    joined(&[b"NTLMSSP\0", &3u32.to_le_bytes(), &fields, &0xa000_8a05u32.to_le_bytes()])
}

/// TREE_CONNECT ([MS-SMB2] section 2.2.9).
fn tree_connect(share: &str) -> Request {
    let path = utf16(&format!("\\\\server\\{share}"));
    let head = [
        &9u16.to_le_bytes()[..],
        &[0; 2],
        &((HEAD + 8) as u16).to_le_bytes(),
        &(path.len() as u16).to_le_bytes(),
    ]
    .concat();
    request(TREE_CONNECT, joined(&[&head, &path]))
}

/// CREATE ([MS-SMB2] section 2.2.13); `gap`: bytes before the name.
fn create(name: &str, gap: usize) -> Request {
    let name = utf16(name);
    let offset = HEAD + 56 + gap;
    let mut body = Vec::new();
    body.extend(57u16.to_le_bytes());
    body.extend([0, 0]);
    body.extend(2u32.to_le_bytes());
    body.extend([0; 16]);
    // Access, attributes, sharing, disposition (open or create), options.
    for number in [0x0012_019fu32, 0x80, 7, 3, 0] {
        body.extend(number.to_le_bytes());
    }
    body.extend((offset as u16).to_le_bytes());
    body.extend((name.len() as u16).to_le_bytes());
    body.extend([0; 8]);
    body.extend(vec![0; gap]);
    body.extend(&name);
    request(CREATE, body)
}

/// WRITE ([MS-SMB2] section 2.2.21); `gap`: bytes before the data.
fn write(file: &[u8; 16], offset: u64, data: &[u8], gap: usize) -> Request {
    let mut body = Vec::new();
    body.extend(49u16.to_le_bytes());
    body.extend(((HEAD + WRITE_FIELDS + gap) as u16).to_le_bytes());
    body.extend((data.len() as u32).to_le_bytes());
    body.extend(offset.to_le_bytes());
    body.extend(file);
    body.extend([0; 16]);
    body.extend(vec![0; gap]);
    body.extend(data);
    request(WRITE, body)
}

/// READ ([MS-SMB2] section 2.2.19).
fn read(file: &[u8; 16], offset: u64, length: u32) -> Request {
    let mut body = Vec::new();
    body.extend(49u16.to_le_bytes());
    body.extend([80, 0]);
    body.extend(length.to_le_bytes());
    body.extend(offset.to_le_bytes());
    body.extend(file);
    body.extend([0; 17]);
    request(READ, body)
}

/// CLOSE ([MS-SMB2] section 2.2.15).
fn close(file: &[u8; 16]) -> Request {
    request(CLOSE, joined(&[&24u16.to_le_bytes(), &[0; 6], file]))
}

impl Session {
    /// The bytes of requests in one message of NetBIOS.
    fn bytes(&mut self, requests: &[Request]) -> Vec<u8> {
        let mut all = Vec::new();
        for (at, request) in requests.iter().enumerate() {
            let mut body = request.body.clone();
            let is_last = at + 1 == requests.len();
            if !is_last {
                body.resize((HEAD + body.len()).next_multiple_of(8) - HEAD, 0);
            }
            let next = if is_last { 0 } else { (HEAD + body.len()) as u32 };
            let flags = if request.is_related { 4u32 } else { 0 };
            all.extend(b"\xfeSMB");
            all.extend(64u16.to_le_bytes());
            all.extend(1u16.to_le_bytes());
            all.extend([0; 4]);
            all.extend(request.command.to_le_bytes());
            all.extend(64u16.to_le_bytes());
            all.extend(flags.to_le_bytes());
            all.extend(next.to_le_bytes());
            all.extend(self.message.to_le_bytes());
            all.extend([0; 4]);
            let (tree, session) =
                if request.is_related { (u32::MAX, u64::MAX) } else { (self.tree, self.session) };
            all.extend(tree.to_le_bytes());
            all.extend(session.to_le_bytes());
            all.extend([0; 16]);
            all.extend(body);
            self.message += 1;
        }
        let length = (all.len() as u32).to_be_bytes();
        [&[0, length[1], length[2], length[3]][..], &all].concat()
    }

    /// Sends requests and reads the answer to the last one: its status and its bytes from the header on.
    fn ask(&mut self, talk: &mut Talk, requests: &[Request]) -> Result<(u32, Vec<u8>), Failure> {
        let bytes = self.bytes(requests);
        let last = self.message - 1;
        talk.send(&bytes)?;
        loop {
            let head = talk.bytes(4)?;
            let length = usize::from(head[1]) << 16 | usize::from(head[2]) << 8 | usize::from(head[3]);
            let message = talk.bytes(length)?;
            let mut at = 0;
            // The answers may be compounds, too.
            while let Some(part) = message.get(at..).filter(|part| part.len() >= HEAD) {
                let number =
                    |at: usize| u32::from_le_bytes([part[at], part[at + 1], part[at + 2], part[at + 3]]);
                let status = number(8);
                let pending = 0x103;
                if u64::from(number(24)) == last && status != pending {
                    return Ok((status, part.to_vec()));
                }
                match number(20) as usize {
                    0 => break,
                    next => at += next,
                }
            }
        }
    }

    /// Opens a session as a client without a name, and the share.
    fn open(talk: &mut Talk) -> Result<Self, Failure> {
        let mut session = Session::default();
        talk.connect()?;
        if talk.is_odd() {
            let before: &[&[u8]] = &[b"\x85\0\0\0", b"\x85\0\0\0\x85\0\0\0"];
            let before = *talk.random.pick(before);
            talk.send(before)?;
        }
        let all = [
            negotiate(),
            session_setup(&token_of_client()),
            session_setup(&token_of_nobody()),
            tree_connect("data"),
        ];
        for (at, request) in all.into_iter().enumerate() {
            let (status, answer) = session.ask(talk, &[request])?;
            // MORE_PROCESSING_REQUIRED is the answer to the first token.
            if status != 0 && !(at == 1 && status == 0xc000_0016) {
                return Err(format!("step {at}: status {status:08x}"));
            }
            let number = |at: usize| {
                answer
                    .get(at..at + 8)
                    .map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
            };
            session.session = number(40);
            session.tree = number(36) as u32;
        }
        Ok(session)
    }

    /// Opens a file.
    fn create(&mut self, talk: &mut Talk, name: &str, gap: usize) -> Result<[u8; 16], Failure> {
        let (status, answer) = self.ask(talk, &[create(name, gap)])?;
        let file = answer.get(HEAD + 64..HEAD + 80).filter(|_| status == 0);
        file.and_then(|file| file.try_into().ok()).ok_or_else(|| format!("{name}: status {status:08x}"))
    }
}

/// The answer to one request, which has to succeed.
fn must(session: &mut Session, talk: &mut Talk, one: Request) -> Result<Vec<u8>, Failure> {
    match session.ask(talk, &[one])? {
        (0, answer) => Ok(answer),
        (status, _) => Err(format!("status {status:08x}")),
    }
}

/// The beginning of the names of a host's files: its address and its mark.
fn own_name(talk: &Talk) -> String {
    format!("{} {}", talk.source.to_string().replace(':', "_"), talk.mark)
}

/// The conversation of an ordinary client: writes a file in pieces, and reads it again.
fn good(talk: &mut Talk) -> Result<(), Failure> {
    talk.oddness = 0;
    let mut session = Session::open(talk)?;
    let name = format!("{}.txt", own_name(talk));
    let length = talk.random.within(1, 20_000);
    let content = talk.random.letters(length);
    let file = session.create(talk, &name, 0)?;
    let mut at = 0;
    while at < content.len() {
        let length = talk.random.within(1, 8_000).min(content.len() - at);
        must(&mut session, talk, write(&file, at as u64, &content[at..at + length], 0))?;
        at += length;
    }
    let answer = must(&mut session, talk, read(&file, 0, 30_000))?;
    if !answer.ends_with(&content) {
        return Err("the file came back otherwise".into());
    }
    must(&mut session, talk, close(&file))?;
    let mut last = request(ECHO, vec![4, 0, 0, 0]);
    last.is_related = false;
    must(&mut session, talk, last)?;
    talk.drain();
    Ok(())
}

/// A conversation that writes a file with a forbidden name or content.
fn dirty(talk: &mut Talk) -> Result<(), Failure> {
    let mut session = Session::open(talk)?;
    let by_name = talk.random.percent(40);
    let mark = own_name(talk);
    let name = if by_name { format!("{mark}-evil.txt") } else { format!("{mark}.txt") };
    let content = if by_name {
        b"fine content".to_vec()
    } else {
        let length = talk.random.within(0, 3_000);
        let mut text = talk.random.letters(length);
        text.extend(b" evil ");
        text.extend(talk.random.letters(20));
        text
    };
    let gap = |talk: &mut Talk| if talk.is_odd() { 8 * talk.random.within(1, 40) } else { 0 };
    if talk.random.percent(30) {
        // All in one message.
        let mut all = vec![create(&name, gap(talk))];
        all.push(write(&SAME_FILE, 0, &content, gap(talk)));
        all.push(close(&SAME_FILE));
        for request in &mut all[1..] {
            request.is_related = true;
        }
        session.ask(talk, &all)?;
        talk.drain();
        return Ok(());
    }
    let space = gap(talk);
    let file = session.create(talk, &name, space)?;
    // Pieces in any order, that may overlap.
    let mut pieces = Vec::new();
    let mut at = 0;
    let most = if talk.is_odd() { 5 } else { content.len() };
    while at < content.len() && pieces.len() < 200 {
        let end = (at + talk.random.within(1, most.max(1))).min(content.len());
        pieces.push((at, end));
        at = end;
    }
    if let Some(last) = pieces.last_mut() {
        last.1 = content.len();
    }
    if talk.is_odd() {
        talk.random.shuffle(&mut pieces);
    }
    if talk.is_odd() {
        // First other content at the same place.
        let decoy = vec![b'x'; content.len()];
        session.ask(talk, &[write(&file, 0, &decoy, 0)])?;
    }
    for (begin, end) in pieces {
        let space = gap(talk);
        let one = write(&file, begin as u64, &content[begin..end], space);
        if talk.is_odd() {
            let echo = request(ECHO, vec![4, 0, 0, 0]);
            session.ask(talk, &[echo, one])?;
        } else {
            session.ask(talk, &[one])?;
        }
    }
    if !talk.is_odd() {
        session.ask(talk, &[close(&file)])?;
    }
    talk.drain();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_their_lengths() {
        let mut session = Session::default();
        let bytes = session.bytes(&[create("a", 8), close(&SAME_FILE)]);
        let length = usize::from(bytes[2]) << 8 | usize::from(bytes[3]);
        assert_eq!((length + 4, session.message), (bytes.len(), 2));
        let next = u32::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]) as usize;
        assert_eq!(&bytes[4 + next..8 + next], b"\xfeSMB");
    }
}
