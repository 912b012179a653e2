// SPDX-License-Identifier: Apache-2.0
//! Good traffic next to the dirty traffic, from a host with an unmodified stack: all of it must arrive.

use crate::net::{HONEST, SERVER};
use crate::receivers::{Key, Service};
use bartizan_testkit::random::Random;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A sort of good traffic.
pub struct Good {
    /// Its name.
    pub name: &'static str,
    /// Part of the short run. Off while the program has a fault that this sort finds.
    pub holds: bool,
    /// Played once per run, not continuously.
    pub once: bool,
    play: fn(&mut Random, IpAddr) -> Result<Option<Sent>, String>,
}

/// The data sent and its key, for comparison with the receiver's record.
pub type Sent = (Key, Vec<u8>);

/// All sorts of good traffic.
pub const GOODS: &[Good] = &[
    Good { name: "stream", holds: true, once: false, play: stream },
    Good { name: "fin-at-once", holds: true, once: false, play: fin_at_once },
    Good { name: "requests", holds: true, once: false, play: requests },
    Good { name: "datagram", holds: true, once: false, play: datagram },
    Good { name: "tls", holds: true, once: true, play: tls },
    Good { name: "keep-alive-past-depth", holds: true, once: true, play: keep_alive },
];

/// Result of the good traffic.
#[derive(Debug, Default)]
pub struct Report {
    /// Number played of each sort, in the order of [`GOODS`].
    pub played: Vec<u64>,
    /// Failures: the sort, and the reason.
    pub lost: Vec<(&'static str, String)>,
    /// Data sent, to be compared with the receivers' records.
    pub sent: Vec<(&'static str, Sent)>,
}

/// The source addresses of good traffic.
#[must_use]
pub fn addresses() -> Vec<IpAddr> {
    HONEST.iter().filter_map(|address| address.parse().ok()).collect()
}

/// Sends until `stop` is set, at least once of each sort in `wanted`. Sorts marked `once` are played only
/// with `first`.
pub fn play(seed: u64, wanted: &[usize], first: bool, stop: &AtomicBool) -> Report {
    let mut random = Random::new(seed);
    let mut report = Report { played: vec![0; GOODS.len()], ..Report::default() };
    let now: Vec<usize> = wanted.iter().copied().filter(|at| first || !GOODS[*at].once).collect();
    for (turn, &at) in now.iter().cycle().enumerate() {
        if turn >= 6 * now.len() && stop.load(Ordering::Acquire) {
            break;
        }
        let sort = &GOODS[at];
        if sort.once && turn >= 2 * now.len() {
            continue;
        }
        // Plays each sort over both IP versions.
        let server = SERVER[(turn / now.len()) % 2].parse().unwrap_or(IpAddr::from([127, 0, 0, 1]));
        report.played[at] += 1;
        match (sort.play)(&mut random, server) {
            Ok(sent) => report.sent.extend(sent.map(|sent| (sort.name, sent))),
            Err(why) => report.lost.push((sort.name, format!("to {server}: {why}"))),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    report
}

fn connect(server: IpAddr, service: Service) -> Result<TcpStream, String> {
    let limit = Duration::from_secs(10);
    let socket = TcpStream::connect_timeout(&SocketAddr::new(server, service.port()), limit)
        .map_err(|error| format!("connect: {error}"))?;
    socket
        .set_read_timeout(Some(limit))
        .and_then(|()| socket.set_write_timeout(Some(limit)))
        .map_err(|e| e.to_string())?;
    Ok(socket)
}

/// Sends the data and closes the sending half; the receiver then closes, too.
fn deliver(data: Vec<u8>, server: IpAddr, wait: bool) -> Result<Option<Sent>, String> {
    let mut socket = connect(server, Service::Raw)?;
    let own = socket.local_addr().map_err(|error| error.to_string())?;
    socket.write_all(&data).map_err(|error| format!("write: {error}"))?;
    let mut answer = [0; 3];
    if wait {
        socket.read_exact(&mut answer).map_err(|error| format!("read: {error}"))?;
    }
    socket.shutdown(Shutdown::Write).map_err(|error| format!("shutdown: {error}"))?;
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).map_err(|error| format!("no end: {error}"))?;
    Ok(Some(((own.ip(), own.port(), Service::Raw.port()), data)))
}

fn stream(random: &mut Random, server: IpAddr) -> Result<Option<Sent>, String> {
    let length = if random.percent(80) { random.within(1, 5000) } else { random.within(1, 200_000) };
    deliver(random.letters(length), server, true)
}

fn fin_at_once(random: &mut Random, server: IpAddr) -> Result<Option<Sent>, String> {
    let length = random.within(1, 40);
    deliver(random.letters(length), server, false)
}

/// Sends requests in one connection, and reads each answer.
fn ask(socket: &mut TcpStream, path: &str, times: usize) -> Result<(), String> {
    let mut buffer = vec![0; 16_384];
    for turn in 0..times {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        socket.write_all(request.as_bytes()).map_err(|error| format!("request {turn}: {error}"))?;
        let mut answer = Vec::new();
        loop {
            let read = socket.read(&mut buffer).map_err(|error| format!("answer {turn}: {error}"))?;
            answer.extend_from_slice(&buffer[..read]);
            if read == 0 || answer.ends_with(b"ok\n") {
                break;
            }
        }
        if !answer.starts_with(b"HTTP/1.1 200") || !answer.ends_with(b"ok\n") {
            return Err(format!(
                "answer {turn}: {:?}",
                String::from_utf8_lossy(&answer[..answer.len().min(60)])
            ));
        }
    }
    Ok(())
}

fn requests(random: &mut Random, server: IpAddr) -> Result<Option<Sent>, String> {
    let path = format!("/{}", String::from_utf8_lossy(&random.letters(12)));
    ask(&mut connect(server, Service::Http)?, &path, random.within(1, 8))?;
    Ok(None)
}

/// Reads answers beyond the default depth of reassembly (1 MB), with as many requests again as transactions
/// may be open.
fn keep_alive(_: &mut Random, server: IpAddr) -> Result<Option<Sent>, String> {
    ask(&mut connect(server, Service::Http)?, "/long", 1200)?;
    Ok(None)
}

fn datagram(random: &mut Random, server: IpAddr) -> Result<Option<Sent>, String> {
    let own = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(own).map_err(|error| error.to_string())?;
    socket.set_read_timeout(Some(Duration::from_secs(10))).map_err(|error| error.to_string())?;
    let data = {
        let length = random.within(1, 4000);
        random.letters(length)
    };
    socket.send_to(&data, (server, Service::Udp.port())).map_err(|error| error.to_string())?;
    let mut buffer = vec![0; 65_536];
    let length = socket.recv(&mut buffer).map_err(|error| format!("{} bytes: {error}", data.len()))?;
    if buffer[..length] != data {
        return Err(format!("{} bytes came back as {length} others", data.len()));
    }
    Ok(None)
}

/// Client in Python, with OpenSSL: TLS 1.2 and 1.3.
const TLS_CLIENT: &str = "
import socket, ssl, sys
for turn in range(20):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2 if turn % 2 else ssl.TLSVersion.TLSv1_3
    with socket.create_connection((sys.argv[1], 443), 3) as plain:
        with context.wrap_socket(plain, server_hostname='www.good.example') as tls:
            tls.sendall(b'hello')
            assert tls.recv(5) == b'hello'
";

fn tls(_: &mut Random, server: IpAddr) -> Result<Option<Sent>, String> {
    let ran =
        Command::new("python3").args(["-c", TLS_CLIENT, &server.to_string()]).stdin(Stdio::null()).output();
    let ran = ran.map_err(|error| format!("python3: {error}"))?;
    if ran.status.success() {
        return Ok(None);
    }
    Err(String::from_utf8_lossy(&ran.stderr).lines().last().unwrap_or("it failed").to_owned())
}
