// SPDX-License-Identifier: Apache-2.0
//! An engine in a thread, guests that join it, functions of tests.

use bartizan_base::TenantId;
use bartizan_toe::descriptor::Transport;
use bartizan_toe::engine::{Engine, EngineControl, GuestReport, GuestSpec};
use bartizan_toe::guest::{GuestProcess, GuestStream, OpenedStream, ReceiveOptions};
use bartizan_toe::inspect::{
    Admission, DatagramVerdict, PayloadDirection, PayloadInspector, PayloadVerdict, PayloadWindow, StreamInfo,
};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Everything that an inspector was shown.
#[derive(Clone, Debug, Default)]
pub struct Record {
    pub admitted: Vec<StreamInfo>,
    pub outgoing: Vec<u8>,
    pub incoming: Vec<u8>,
    pub ends: usize,
    pub closed: usize,
}

/// A function of a test: records all, and answers by a closure.
pub struct Recorder<F> {
    pub record: Arc<Mutex<Record>>,
    pub answer: F,
}

impl<F: FnMut(&StreamInfo, &PayloadWindow<'_>) -> PayloadVerdict> PayloadInspector for Recorder<F> {
    fn admit(&mut self, stream: &StreamInfo) -> Admission {
        self.record.lock().unwrap().admitted.push(*stream);
        if stream.peer.port() == REFUSED_PORT { Admission::Refuse } else { Admission::Inspect }
    }

    fn inspect(&mut self, stream: &StreamInfo, window: PayloadWindow<'_>) -> PayloadVerdict {
        {
            let mut record = self.record.lock().unwrap();
            let fresh = &window.bytes[window.fresh..];
            match window.direction {
                PayloadDirection::Outgoing => record.outgoing.extend_from_slice(fresh),
                PayloadDirection::Incoming => record.incoming.extend_from_slice(fresh),
            }
            record.ends += usize::from(window.end);
        }
        (self.answer)(stream, &window)
    }

    fn datagram(&mut self, _: &StreamInfo, _: PayloadDirection, bytes: &[u8]) -> DatagramVerdict {
        if bytes == DATAGRAM_ATTACK { DatagramVerdict::Drop } else { DatagramVerdict::Pass }
    }

    fn close(&mut self, _: &StreamInfo) {
        self.record.lock().unwrap().closed += 1;
    }
}

/// A datagram that every inspector here drops.
pub const DATAGRAM_ATTACK: &[u8] = b"an attack in a datagram";

/// Streams to this port are refused.
pub const REFUSED_PORT: u16 = 9;

/// A running engine.
pub struct Bench {
    pub control: EngineControl,
    pub record: Arc<Mutex<Record>>,
    thread: Option<JoinHandle<()>>,
}

impl Bench {
    /// Everything passes.
    pub fn passing() -> Bench {
        Bench::with(|_, _| PayloadVerdict::Pass(usize::MAX))
    }

    pub fn with(
        answer: impl FnMut(&StreamInfo, &PayloadWindow<'_>) -> PayloadVerdict + Send + 'static,
    ) -> Bench {
        let record = Arc::new(Mutex::new(Record::default()));
        let inspector = Recorder { record: Arc::clone(&record), answer };
        Bench::of(Box::new(inspector), record)
    }

    pub fn of(mut inspector: Box<dyn PayloadInspector + Send>, record: Arc<Mutex<Record>>) -> Bench {
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let engine = Engine::new().unwrap();
            sender.send(engine.control()).unwrap();
            engine.run(inspector.as_mut()).unwrap();
        });
        Bench { control: receiver.recv().unwrap(), record, thread: Some(thread) }
    }

    pub fn guest(&self, spec: GuestSpec) -> GuestProcess {
        let descriptor = self.control.add_guest(spec).unwrap();
        GuestProcess::join(descriptor.as_fd()).unwrap()
    }

    pub fn report(&self, guest: usize) -> GuestReport {
        self.control.report().unwrap().guests[guest].clone()
    }

    /// Waits until the report of a guest is as wanted.
    pub fn wait_for(&self, guest: usize, what: &str, wanted: impl Fn(&GuestReport) -> bool) -> GuestReport {
        let begin = Instant::now();
        loop {
            let report = self.report(guest);
            if wanted(&report) {
                return report;
            }
            assert!(begin.elapsed() < PATIENCE, "{what}: {report:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.control.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(matches!(ended, Some(Ok(()))), "the engine panicked");
        }
    }
}

/// A guest that may use the loopback addresses of the test.
pub fn spec(tenant: u16) -> GuestSpec {
    GuestSpec { tenant: TenantId(tenant), shares_loopback: true, ..GuestSpec::default() }
}

/// A socket of a guest.
pub struct Socket<'g> {
    pub process: &'g GuestProcess,
    pub opened: OpenedStream,
}

impl<'g> Socket<'g> {
    pub fn open(process: &'g GuestProcess, v6: bool) -> Socket<'g> {
        Socket { process, opened: process.open(v6, Transport::Tcp).unwrap() }
    }

    pub fn connected(process: &'g GuestProcess, address: SocketAddr) -> Socket<'g> {
        let socket = Socket::open(process, address.is_ipv6());
        socket.stream().connect(address).unwrap();
        socket
    }

    pub fn listening(process: &'g GuestProcess, address: SocketAddr) -> Socket<'g> {
        let socket = Socket::open(process, address.is_ipv6());
        socket.stream().bind(address).unwrap();
        socket.stream().listen(64).unwrap();
        socket
    }

    pub fn accept(&self) -> Socket<'g> {
        Socket { process: self.process, opened: self.stream().accept().unwrap() }
    }

    pub fn stream(&self) -> GuestStream<'_> {
        self.process.stream(self.opened.handle, self.opened.fd.as_fd()).unwrap()
    }

    pub fn local(&self) -> SocketAddr {
        self.stream().slot_state().local.load().unwrap()
    }

    pub fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        self.stream().transmit(&[IoSlice::new(bytes)], false)
    }

    pub fn receive(&self, most: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; most];
        let count = self.stream().receive(&mut [IoSliceMut::new(&mut bytes)], ReceiveOptions::default())?;
        bytes.truncate(count);
        Ok(bytes)
    }

    pub fn receive_all(&self, count: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; count];
        let options = ReceiveOptions { wait_all: true, ..ReceiveOptions::default() };
        let got = self.stream().receive(&mut [IoSliceMut::new(&mut bytes)], options)?;
        bytes.truncate(got);
        Ok(bytes)
    }

    pub fn receive_to_end(&self) -> Result<Vec<u8>, Errno> {
        let mut all = Vec::new();
        loop {
            let part = self.receive(65_536)?;
            if part.is_empty() {
                return Ok(all);
            }
            all.extend_from_slice(&part);
        }
    }
}

/// Bytes that differ at each position.
pub fn pattern(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

/// A TCP server of the kernel that sends back what it gets; returns its address.
pub fn echo_server(address: &str) -> SocketAddr {
    let listener = std::net::TcpListener::bind(address).unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            std::thread::spawn(move || {
                let mut back = connection.try_clone().unwrap();
                let _ = std::io::copy(&mut connection, &mut back);
                let _ = back.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    at
}
