// SPDX-License-Identifier: Apache-2.0
//! Receivers of datagrams and of streams: kernel sockets, read in threads.

use super::{Key, Records, Service};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Receive buffer of a socket in bytes: room for many rounds, so that a busy machine loses nothing here.
const ROOM: i32 = 16 << 20;
/// Receive buffer of the receiver with a small window, in bytes; and its pause before it reads.
const SMALL: i32 = 2304;
const LATE: Duration = Duration::from_millis(15);
/// A stream is closed after this idle time.
const IDLE: Duration = Duration::from_secs(4);

/// The sockets and their threads.
pub struct Sinks {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Number of one of the threads, for access to its network namespace.
    thread: i32,
}

impl Sinks {
    /// Opens the sockets in this thread's network namespace. Data from the hosts in `honest` is echoed.
    ///
    /// # Errors
    /// If a port cannot be opened.
    pub fn open(records: &Arc<Records>, honest: [IpAddr; 2]) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for service in [Service::Udp, Service::Dns] {
            let socket = UdpSocket::bind(("::", service.port()))?;
            socket.set_read_timeout(Some(Duration::from_millis(100)))?;
            crate::sys::set_receive_buffer(&socket, ROOM)?;
            let (records, stop) = (Arc::clone(records), Arc::clone(&stop));
            threads.push(std::thread::spawn(move || datagrams(&socket, service, &records, honest, &stop)));
        }
        let ports = [Service::Raw, Service::Depth(0), Service::Depth(1), Service::Depth(2), Service::Slow]
            .map(Service::port);
        let listeners: Result<Vec<TcpListener>, _> =
            ports.iter().map(|port| TcpListener::bind(("::", *port))).collect();
        let listeners = listeners?;
        listeners.iter().try_for_each(|listener| listener.set_nonblocking(true))?;
        // Accepted connections inherit the buffer size.
        listeners.last().map_or(Ok(()), |slow| crate::sys::set_receive_buffer(slow, SMALL))?;
        let (records, ended) = (Arc::clone(records), Arc::clone(&stop));
        let (tell, told) = std::sync::mpsc::channel();
        threads.push(std::thread::spawn(move || {
            let _ = tell.send(crate::sys::thread());
            streams(&listeners, &records, &ended);
        }));
        Ok(Sinks { stop, threads, thread: told.recv().unwrap_or(0) })
    }

    /// Datagrams lost so far because the machine was busy, by the kernel's counters: sockets without room
    /// (`drops` in /proc/net/udp6), packets that no processor handled in time (of the whole machine,
    /// /proc/net/softnet_stat).
    #[must_use]
    pub fn dropped(&self) -> u64 {
        let read = |file: &str| {
            std::fs::read_to_string(format!("/proc/self/task/{}/net/{file}", self.thread)).unwrap_or_default()
        };
        let sockets = read("udp6");
        let sockets =
            sockets.lines().skip(1).filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok());
        let processors = read("softnet_stat");
        let processors =
            processors.lines().filter_map(|line| u64::from_str_radix(line.split(' ').nth(1)?, 16).ok());
        sockets.chain(processors).sum()
    }
}

impl Drop for Sinks {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn key(from: SocketAddr, port: u16) -> Key {
    (from.ip().to_canonical(), from.port(), port)
}

fn datagrams(
    socket: &UdpSocket,
    service: Service,
    records: &Records,
    honest: [IpAddr; 2],
    stop: &AtomicBool,
) {
    let mut buffer = vec![0; 65_536];
    while !stop.load(Ordering::Acquire) {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        let key = key(from, service.port());
        let bytes = buffer[..length].to_vec();
        if service == Service::Dns && length > 3 {
            // The message as a response without answers.
            let answer = [&bytes[..2], &[0x81, 0x83], &bytes[4..]].concat();
            let _ = socket.send_to(&answer, from);
        } else if honest.contains(&key.0) {
            let _ = socket.send_to(&bytes, from);
        }
        records.add(key, |read| read.datagrams.push(bytes));
    }
}

struct Stream {
    key: Key,
    socket: TcpStream,
    last: Instant,
    read: usize,
}

fn streams(listeners: &[TcpListener], records: &Records, stop: &AtomicBool) {
    let mut open: Vec<Stream> = Vec::new();
    let mut buffer = vec![0; 65_536];
    while !stop.load(Ordering::Acquire) {
        for listener in listeners {
            while let Ok((socket, from)) = listener.accept() {
                let port = listener.local_addr().map_or(0, |address| address.port());
                if socket.set_nonblocking(true).is_ok() {
                    open.push(Stream { key: key(from, port), socket, last: Instant::now(), read: 0 });
                }
            }
        }
        open.retain_mut(|stream| stream.read(&mut buffer, records));
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Stream {
    /// Reads the available bytes. Returns whether the stream goes on.
    fn read(&mut self, buffer: &mut [u8], records: &Records) -> bool {
        if self.key.2 == Service::Slow.port() && self.last.elapsed() < LATE {
            return true;
        }
        match self.socket.read(buffer) {
            Ok(0) => false,
            Ok(read) => {
                if self.read == 0 {
                    let _ = self.socket.write(b"ok\n");
                }
                self.read += read;
                self.last = Instant::now();
                records.add(self.key, |record| record.stream.extend_from_slice(&buffer[..read]));
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.last.elapsed() < IDLE,
            Err(_) => false,
        }
    }
}
