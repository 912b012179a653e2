// SPDX-License-Identifier: Apache-2.0
//! Conversations with real servers over sockets of the kernel: dirty in what they say, not in their packets.
//! A conversation waits for answers, opens further connections, and keeps a transcript for its finding.

use crate::client::PATIENCE;
use crate::kinds::Case;
use crate::net::SERVER;
use crate::receivers::Service;
use bartizan_testkit::random::Random;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Concurrent conversations.
const TOGETHER: usize = 48;
/// Time limit of an answer that a conversation waits for.
const ANSWER: Duration = Duration::from_millis(PATIENCE);
/// Time limit of an answer in a conversation that has to succeed: a busy server is no loss.
const PATIENT: Duration = Duration::from_secs(10);
/// Limit of the transcript, in bytes.
const TRANSCRIPT: usize = 6_000;
/// Ports at which clients wait for connections of the server.
const ACTIVE_PORTS: (u16, u16) = (30_000, 30_999);

/// The reason why a conversation ends early, for people.
pub type Failure = String;

/// The function that holds a conversation.
pub type Act = fn(&mut Talk) -> Result<(), Failure>;

/// One conversation of a host with a server.
pub struct Talk {
    /// Address of the client; each conversation has its own.
    pub source: IpAddr,
    /// Decides what is said.
    pub random: Random,
    /// The word that the conversation says where a rule may look: the forbidden one, or a harmless one.
    pub word: &'static str,
    /// Likelihood of an odd form where one is possible, in percent.
    pub oddness: usize,
    /// The conversation is one of an ordinary client and has to succeed.
    pub is_good: bool,
    /// A text that only this conversation says.
    pub mark: String,
    /// Number of bytes heard.
    pub heard: usize,
    /// Bytes that came over data connections.
    pub data: Vec<u8>,
    /// The conversation came to its end.
    pub is_finished: bool,
    /// Transcript.
    pub story: String,
    port: u16,
    act: Act,
    socket: Option<TcpStream>,
    /// Bytes that were heard and not read yet.
    unread: Vec<u8>,
}

impl Talk {
    /// Creates a conversation.
    #[must_use]
    pub fn new(source: IpAddr, service: Service, act: Act, mut random: Random) -> Self {
        let mark = format!("mark-{}", String::from_utf8_lossy(&random.letters(14)));
        let oddness = *random.pick(&[3, 8, 20, 50]);
        Talk {
            source,
            random,
            oddness,
            word: "evil",
            is_good: false,
            mark,
            heard: 0,
            data: Vec::new(),
            is_finished: false,
            story: String::new(),
            port: service.port(),
            act,
            socket: None,
            unread: Vec::new(),
        }
    }

    /// Holds the conversation.
    pub fn hold(&mut self) {
        match (self.act)(self) {
            Ok(()) => self.is_finished = true,
            Err(why) => self.note(&format!("!! {why}")),
        }
        self.close();
    }

    /// The server's address.
    #[must_use]
    pub fn server(&self) -> IpAddr {
        SERVER[usize::from(self.source.is_ipv6())].parse().unwrap_or(self.source)
    }

    /// Whether the next thing is said in an odd form.
    pub fn is_odd(&mut self) -> bool {
        self.random.percent(self.oddness)
    }

    /// One of the odd forms, or else the plain one.
    pub fn form<'a>(&mut self, plain: &'a str, odd: &[&'a str]) -> &'a str {
        if self.is_odd() { self.random.pick::<&str>(odd) } else { plain }
    }

    fn note(&mut self, text: &str) {
        if self.story.len() < TRANSCRIPT {
            self.story.push_str(text);
            self.story.push('\n');
        }
    }

    fn patience(&self) -> Duration {
        if self.is_good { PATIENT } else { ANSWER }
    }

    /// Opens the connection.
    ///
    /// # Errors
    /// It is not established.
    pub fn connect(&mut self) -> Result<(), Failure> {
        let socket = self.open(self.port)?;
        (self.socket, self.unread) = (Some(socket), Vec::new());
        Ok(())
    }

    /// Opens a connection to a port of the server.
    ///
    /// # Errors
    /// It is not established.
    pub fn open(&mut self, port: u16) -> Result<TcpStream, Failure> {
        self.note(&format!("-- connect {port}"));
        let to = SocketAddr::new(self.server(), port);
        let socket = crate::sys::connect_from(self.source, to, self.patience())
            .map_err(|error| format!("connect {port}: {error}"))?;
        let patience = self.patience();
        socket
            .set_nodelay(true)
            .and_then(|()| socket.set_read_timeout(Some(patience)))
            .and_then(|()| socket.set_write_timeout(Some(patience)))
            .map_err(|error| error.to_string())?;
        Ok(socket)
    }

    /// Waits at a port for a connection of the server.
    ///
    /// # Errors
    /// No port is free.
    pub fn listen(&mut self) -> Result<TcpListener, Failure> {
        for _ in 0..50 {
            let port = self.random.within(usize::from(ACTIVE_PORTS.0), usize::from(ACTIVE_PORTS.1)) as u16;
            if let Ok(listener) = TcpListener::bind((self.source, port)) {
                return Ok(listener);
            }
        }
        Err("no port is free".into())
    }

    /// The connection that a server opens.
    ///
    /// # Errors
    /// None comes in time.
    pub fn accept(&mut self, listener: &TcpListener) -> Result<TcpStream, Failure> {
        let begun = Instant::now();
        listener.set_nonblocking(true).map_err(|error| error.to_string())?;
        while begun.elapsed() < self.patience() {
            if let Ok((socket, _)) = listener.accept() {
                let patience = self.patience();
                socket
                    .set_nonblocking(false)
                    .and_then(|()| socket.set_read_timeout(Some(patience)))
                    .map_err(|error| error.to_string())?;
                self.note("-- the server has connected");
                return Ok(socket);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err("the server opens no connection".into())
    }

    /// Sends bytes, in segments of any length.
    ///
    /// # Errors
    /// The connection is over.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let mut ends: Vec<usize> = match self.random.below(5) {
            0 if bytes.len() < 40 => (1..bytes.len()).collect(),
            1 | 2 if bytes.len() > 1 => {
                (0..self.random.within(1, 4)).map(|_| self.random.within(1, bytes.len() - 1)).collect()
            }
            _ => Vec::new(),
        };
        ends.push(bytes.len());
        ends.sort_unstable();
        let pause = Duration::from_millis(*self.random.pick(&[0, 1, 3]));
        let cuts = if ends.len() > 1 { format!(" (cut at {ends:?})") } else { String::new() };
        self.note(&format!("> {}{cuts}", bytes.escape_ascii()));
        let mut begin = 0;
        for end in ends {
            let Some(socket) = self.socket.as_mut() else { return Err("no connection".into()) };
            socket.write_all(&bytes[begin..end]).map_err(|error| format!("write: {error}"))?;
            if end < bytes.len() {
                std::thread::sleep(pause);
            }
            begin = end;
        }
        Ok(())
    }

    /// Reads more of the answer; `false`: the server has ended the connection.
    fn more(&mut self) -> Result<bool, Failure> {
        let mut buffer = [0; 16_384];
        let Some(socket) = self.socket.as_mut() else { return Err("no connection".into()) };
        let read = socket.read(&mut buffer).map_err(|error| format!("read: {error}"))?;
        let text = format!("< {}", buffer[..read].escape_ascii());
        self.heard += read;
        self.unread.extend_from_slice(&buffer[..read]);
        self.note(&text);
        Ok(read > 0)
    }

    /// Reads this number of bytes.
    ///
    /// # Errors
    /// They do not come.
    pub fn bytes(&mut self, count: usize) -> Result<Vec<u8>, Failure> {
        while self.unread.len() < count {
            if !self.more()? {
                return Err("the server has ended the connection".into());
            }
        }
        Ok(self.unread.drain(..count).collect())
    }

    /// Reads a line.
    ///
    /// # Errors
    /// None comes.
    pub fn line(&mut self) -> Result<String, Failure> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if !self.more()? {
                return Err("the server has ended the connection".into());
            }
        }
    }

    /// Reads a reply with a code (RFC 5321 section 4.2, RFC 959 section 4.2), of one line or several.
    ///
    /// # Errors
    /// None comes.
    pub fn reply(&mut self) -> Result<String, Failure> {
        let mut text = String::new();
        loop {
            let line = self.line()?;
            let is_last = line.as_bytes().get(..3).is_some_and(|code| code.iter().all(u8::is_ascii_digit))
                && line.as_bytes().get(3) != Some(&b'-');
            text.push_str(&line);
            if is_last {
                return Ok(text);
            }
            text.push('\n');
        }
    }

    /// Reads a reply. In a good conversation its code has to begin with `digit`.
    ///
    /// # Errors
    /// None comes, or another one does.
    pub fn expect(&mut self, digit: char) -> Result<String, Failure> {
        let reply = self.reply()?;
        // In a multi-line reply the code stands in each line.
        if self.is_good && !reply.starts_with(digit) {
            return Err(format!("a reply {digit}xx is expected: {reply}"));
        }
        Ok(reply)
    }

    /// Waits until the server ends the connection, or for a while.
    pub fn drain(&mut self) {
        if let Some(socket) = self.socket.as_mut() {
            let _ = socket.shutdown(Shutdown::Write);
        }
        let begun = Instant::now();
        while begun.elapsed() < ANSWER && self.more().unwrap_or(false) {}
    }

    /// Ends the connection.
    pub fn close(&mut self) {
        self.socket = None;
    }
}

/// Holds the conversations among the cases, many at once.
pub fn hold_all(cases: &mut [Case]) {
    let next = AtomicUsize::new(0);
    let talks: Vec<Mutex<&mut Talk>> = cases.iter_mut().filter_map(Case::talk).map(Mutex::new).collect();
    std::thread::scope(|scope| {
        for _ in 0..TOGETHER.min(talks.len()) {
            scope.spawn(|| {
                while let Some(talk) = talks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Ok(mut talk) = talk.lock() {
                        talk.hold();
                    }
                }
            });
        }
    });
}
