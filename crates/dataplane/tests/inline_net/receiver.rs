// SPDX-License-Identifier: Apache-2.0
//! The kernel's TCP with an application that reads, sometimes slowly, and keeps the data.

use bartizan_testkit::random::Random;
use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Whose connection it is.
pub type Peer = (IpAddr, u16);

/// End state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Open,
    Closed,
    Reset,
}

/// The bytes that an application read.
#[derive(Clone, Debug)]
pub struct Got {
    pub bytes: Vec<u8>,
    pub end: End,
}

struct Reader {
    peer: Peer,
    stream: Option<TcpStream>,
    got: Got,
    random: Random,
    slow: bool,
    next: Instant,
}

/// Accepts connections and reads until `stop` holds. Returns the data of each connection of a peer, in the
/// order of their acceptance. `look` is called after each read, with all data of the connection so far.
pub fn serve(
    listener: &TcpListener,
    stop: &AtomicBool,
    mut look: impl FnMut(&Peer, &[u8]),
) -> HashMap<Peer, Vec<Got>> {
    listener.set_nonblocking(true).unwrap();
    let mut readers: Vec<Reader> = Vec::new();
    let mut buffer = [0u8; 4096];
    while !stop.load(Ordering::Acquire) {
        while let Ok((stream, from)) = listener.accept() {
            stream.set_nonblocking(true).unwrap();
            let peer = (from.ip().to_canonical(), from.port());
            let random = Random::new(u64::from(from.port()));
            let slow = from.port() % 3 == 0;
            let got = Got { bytes: Vec::new(), end: End::Open };
            readers.push(Reader { peer, stream: Some(stream), got, random, slow, next: Instant::now() });
        }
        for reader in &mut readers {
            if reader.next <= Instant::now() {
                reader.read(&mut buffer, &mut look);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut all: HashMap<Peer, Vec<Got>> = HashMap::new();
    for reader in readers {
        all.entry(reader.peer).or_default().push(reader.got);
    }
    all
}

impl Reader {
    fn read(&mut self, buffer: &mut [u8], look: &mut impl FnMut(&Peer, &[u8])) {
        let Some(stream) = &mut self.stream else { return };
        let most = if self.slow { 1 + self.random.below(700) } else { buffer.len() };
        match stream.read(&mut buffer[..most]) {
            Ok(0) => (self.got.end, self.stream) = (End::Closed, None),
            Ok(read) => {
                self.got.bytes.extend_from_slice(&buffer[..read]);
                look(&self.peer, &self.got.bytes);
                if self.slow {
                    self.next = Instant::now() + Duration::from_millis(self.random.below(30) as u64);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => (self.got.end, self.stream) = (End::Reset, None),
        }
    }
}
