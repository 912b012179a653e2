// SPDX-License-Identifier: Apache-2.0
//! A guest that writes where it wants, at any time: the engine goes on, other guests do not notice, and only
//! inspected bytes leave.

use crate::common::{Bench, PATIENCE, Socket, echo_server, pattern, spec};
use bartizan_toe::descriptor::{
    DESCRIPTOR_BYTES, Message, Operation, Reply, Request, StreamHandle, Transport, from_bytes, to_bytes,
};
use bartizan_toe::guest::GuestProcess;
use bartizan_toe::layout::{Layout, RingEntry, RingHead};
use bartizan_toe::memory::SharedMemory;
use bartizan_toe::reason::StreamRefusal;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::io::{IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

/// A process of a guest without the guest's side of the library: it may write anything.
struct RawProcess {
    control: SharedMemory,
    data: SharedMemory,
    layout: Layout,
    ring: u32,
    bell: OwnedFd,
    channel: OwnedFd,
}

fn send(fd: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    let _ = sendmsg(fd, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
}

fn receive(fd: BorrowedFd<'_>) -> Option<(Reply, Vec<OwnedFd>)> {
    let mut bytes = [0; DESCRIPTOR_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut bytes)];
    let count = recvmsg(fd, parts, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?.bytes;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    let words = from_bytes(&bytes[..count])?;
    Some((Reply::parse(&words).ok()?, descriptors))
}

impl RawProcess {
    fn join(guest: BorrowedFd<'_>) -> RawProcess {
        let flags = SocketFlags::CLOEXEC;
        let (channel, engines) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        send(guest, &to_bytes(&Message::Join.words()), &[engines.as_fd()]);
        drop(engines);
        let (reply, mut descriptors) = receive(channel.as_fd()).unwrap();
        let layout =
            Layout { slots: reply.slots, rings: reply.rings.into(), buffer_shift: reply.buffer_shift };
        let bell = descriptors.pop().unwrap();
        let data = SharedMemory::map(&descriptors[1], layout.data_bytes()).unwrap();
        let control = SharedMemory::map(&descriptors[0], layout.control_bytes()).unwrap();
        RawProcess { control, data, layout, ring: reply.ring, bell, channel }
    }

    fn open(&self) -> Option<(StreamHandle, OwnedFd)> {
        self.open_of(Transport::Tcp)
    }

    fn open_of(&self, transport: Transport) -> Option<(StreamHandle, OwnedFd)> {
        let message = Message::Open { v6: false, transport, process: 0 };
        send(self.channel.as_fd(), &to_bytes(&message.words()), &[]);
        let (reply, mut descriptors) = receive(self.channel.as_fd())?;
        Some((reply.handle, descriptors.pop()?))
    }

    /// Puts any words into the ring, with an index of the caller's choice.
    fn put(&self, index: u32, words: &[u64; 8], tail: u32) {
        let place = self.layout.ring(self.ring);
        let entry = place + 4096 + (index % 64) as usize * DESCRIPTOR_BYTES;
        let entry: &RingEntry = self.control.at(entry).unwrap();
        entry.0.iter().zip(words).for_each(|(place, word)| place.store(*word, Relaxed));
        self.control.at::<RingHead>(place).unwrap().producer.tail.store(tail, SeqCst);
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Puts a request in, and waits until the engine has taken it.
    fn ask(&self, handle: StreamHandle, operation: Operation) {
        let head = self.head();
        self.put(head, &Request { handle, sequence: 1, operation }.words(), head.wrapping_add(1));
        while self.head() == head {
            std::thread::yield_now();
        }
    }

    fn head(&self) -> u32 {
        let ring: &RingHead = self.control.at(self.layout.ring(self.ring)).unwrap();
        ring.consumer.head.load(SeqCst)
    }
}

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.next().is_multiple_of(count)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Values that bounds are tested with.
    fn word(&mut self) -> u64 {
        match self.next() % 4 {
            0 => self.next(),
            1 => self.next() % 70,
            2 => u64::MAX - self.next() % 70,
            _ => 1 << (self.next() % 64),
        }
    }
}

/// Time of each of these tests; set `HOSTILE_SECONDS` for a longer run.
fn time() -> Duration {
    let seconds = std::env::var("HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(2))
}

/// Exchanges of a guest that nobody may disturb.
fn exchange_until(bench: &Bench, guest: &GuestProcess, end: Instant) -> usize {
    let server = echo_server("127.0.0.1:0");
    let mut exchanges = 0;
    while Instant::now() < end {
        let socket = Socket::connected(guest, server);
        for size in [1, 700, 9_000] {
            let bytes = pattern(size, exchanges as u64);
            assert_eq!(socket.send(&bytes), Ok(size));
            assert!(socket.receive_all(size).unwrap() == bytes);
            exchanges += 1;
        }
    }
    assert_eq!(bench.report(0).refused.total(), 0);
    exchanges
}

#[test]
fn random_writes_and_descriptors_disturb_nobody_else() {
    let bench = Bench::passing();
    let good = bench.guest(spec(1));
    let mut hostile_spec = spec(2);
    hostile_spec.limits.streams = 16;
    hostile_spec.limits.buffer_shift = 12;
    let descriptor = bench.control.add_guest(hostile_spec).unwrap();
    let raw = RawProcess::join(descriptor.as_fd());
    let server = echo_server("127.0.0.1:0");
    let end = Instant::now() + time();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut dice = Dice(11);
            while Instant::now() < end {
                for _ in 0..200 {
                    let memory = if dice.one_in(8) { &raw.data } else { &raw.control };
                    // The ring's own head is left to the other thread, which knows where it is.
                    let from = if dice.one_in(2) { raw.layout.slot(0) } else { raw.layout.ring(1) };
                    let from = if std::ptr::eq(memory, &raw.data) { 0 } else { from };
                    let place = (from + dice.below(memory.length() - from)) & !7;
                    memory.at::<AtomicU64>(place).unwrap().store(dice.word(), Relaxed);
                }
            }
        });
        scope.spawn(|| {
            let mut dice = Dice(12);
            let mut open = Vec::new();
            let mut raw = RawProcess::join(descriptor.as_fd());
            while Instant::now() < end {
                if dice.one_in(64) && open.len() > 4 {
                    open.remove(dice.below(open.len()));
                }
                if open.len() < 12
                    && let Some(opened) = raw.open()
                {
                    open.push(opened);
                }
                let handle = match dice.next() % 4 {
                    0 => StreamHandle { slot: dice.word() as u32, generation: dice.word() as u32 },
                    _ => {
                        open.get(dice.below(open.len().max(1))).map(|(handle, _)| *handle).unwrap_or_default()
                    }
                };
                let operation = match dice.next() % 8 {
                    0 => Operation::Connect(server),
                    1 => Operation::Bind("127.0.0.1:0".parse().unwrap()),
                    2 => Operation::Listen(dice.word() as u32),
                    3 => Operation::Finish,
                    4 => Operation::Disconnect,
                    5 => Operation::Synchronise,
                    6 => Operation::Window,
                    _ => Operation::Transmit,
                };
                let mut words = Request { handle, sequence: dice.word() as u32, operation }.words();
                if dice.one_in(4) {
                    words[dice.below(8)] = dice.word();
                }
                let head = raw.head();
                if dice.one_in(500) {
                    // Breaks the ring: the engine cuts this process off, and it joins again.
                    raw.put(head, &words, head.wrapping_add(dice.word() as u32));
                    raw = RawProcess::join(descriptor.as_fd());
                } else {
                    raw.put(head, &words, head.wrapping_add(1));
                }
            }
        });
        let exchanges = exchange_until(&bench, &good, end);
        assert!(exchanges > 0, "the other guest got on");
    });
    let refused = bench.report(1).refused;
    for reason in [StreamRefusal::Malformed, StreamRefusal::StaleHandle, StreamRefusal::IndexBounds] {
        assert!(refused.of(reason) > 0, "{reason:?} was not met: {refused:?}");
    }
    drop(raw);
    bench.wait_for(1, "all is given back", |report| report.streams == 0 && report.bytes == 0);
}

#[test]
fn bytes_that_change_while_they_are_sent_leave_as_inspected() {
    let bench = Bench::passing();
    let descriptor = bench.control.add_guest(spec(1)).unwrap();
    let process = GuestProcess::join(descriptor.as_fd()).unwrap();
    let raw = RawProcess::join(descriptor.as_fd());
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = Socket::connected(&process, server.local_addr().unwrap());
    let (mut connection, _) = server.accept().unwrap();
    let stop = AtomicBool::new(false);
    let slot = socket.opened.handle.slot;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut dice = Dice(13);
            let bytes = raw.layout.buffer() as usize;
            while !stop.load(Relaxed) {
                let place = raw.layout.tx(slot) + (dice.below(bytes) & !7);
                raw.data.at::<AtomicU64>(place).unwrap().store(dice.next(), Relaxed);
            }
        });
        let reader = scope.spawn(move || {
            let mut all = Vec::new();
            connection.read_to_end(&mut all).unwrap();
            all
        });
        let (end, mut sent) = (Instant::now() + time(), 0);
        while Instant::now() < end && sent < 200 << 20 {
            sent += socket.send(&[0; 20_000]).unwrap();
        }
        socket.stream().shutdown(rustix::net::Shutdown::Write).unwrap();
        let got = reader.join().unwrap();
        stop.store(true, Relaxed);
        assert_eq!(got.len(), sent);
        let record = bench.record.lock().unwrap();
        assert!(got == record.outgoing, "the receiver got other bytes than the function");
        assert!(got.iter().any(|byte| *byte != 0), "no byte was changed on its way");
    });
}

#[test]
fn foreign_descriptors_are_no_channels() {
    let bench = Bench::passing();
    let descriptor = bench.control.add_guest(spec(1)).unwrap();
    let join = to_bytes(&Message::Join.words());
    let file = std::fs::File::open("/dev/null").unwrap();
    let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    send(descriptor.as_fd(), &join, &[file.as_fd()]);
    send(descriptor.as_fd(), &join, &[stream.as_fd()]);
    send(descriptor.as_fd(), &join, &[]);
    send(descriptor.as_fd(), b"short", &[]);
    send(descriptor.as_fd(), &[0; 65], &[]);
    bench.wait_for(0, "refused", |report| report.refused.of(StreamRefusal::Malformed) == 5);
    // A second join over a channel is refused, and the channel goes on.
    let raw = RawProcess::join(descriptor.as_fd());
    send(raw.channel.as_fd(), &join, &[]);
    let error = rustix::io::Errno::ALREADY.raw_os_error().unsigned_abs();
    assert_eq!(receive(raw.channel.as_fd()).unwrap().0.error, error);
    assert_eq!(bench.report(0).refused.of(StreamRefusal::SecondJoin), 1);
    assert!(raw.open().is_some());
}

#[test]
fn a_handle_of_another_guest_names_nothing() {
    let bench = Bench::passing();
    let other = bench.guest(spec(1));
    let sockets: Vec<_> = (0..3).map(|_| Socket::connected(&other, echo_server("127.0.0.1:0"))).collect();
    let descriptor = bench.control.add_guest(spec(2)).unwrap();
    let raw = RawProcess::join(descriptor.as_fd());
    for socket in &sockets {
        let request = Request { handle: socket.opened.handle, sequence: 1, operation: Operation::Finish };
        let head = raw.head();
        raw.put(head, &request.words(), head.wrapping_add(1));
        while raw.head() == head {
            std::thread::yield_now();
        }
    }
    assert_eq!(bench.report(1).refused.of(StreamRefusal::StaleHandle), 3);
    for socket in &sockets {
        socket.send(b"still here").unwrap();
        assert_eq!(socket.receive_all(10).unwrap(), b"still here");
    }
}

/// Whatever a guest writes over a descriptor that the engine has read, or reads just then: the connection
/// that is made is the one that was admitted.
#[test]
fn a_connection_is_the_admitted_one_whatever_becomes_of_its_descriptor() {
    let bench = Bench::passing();
    let descriptor = bench.control.add_guest(spec(1)).unwrap();
    let raw = RawProcess::join(descriptor.as_fd());
    let servers = ["127.0.0.1:0", "127.0.0.2:0"].map(|address| TcpListener::bind(address).unwrap());
    let at = servers.each_ref().map(|server| server.local_addr().unwrap());
    let stop = AtomicBool::new(false);
    let accepted = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let words = at.map(|at| {
                let handle = StreamHandle::default();
                Request { handle, sequence: 1, operation: Operation::Connect(at) }.words()
            });
            let mut dice = Dice(21);
            while !stop.load(Relaxed) {
                let entry = raw.layout.ring(raw.ring) + 4096 + dice.below(64) * DESCRIPTOR_BYTES;
                let entry: &RingEntry = raw.control.at(entry).unwrap();
                let which = &words[dice.below(2)];
                for (place, word) in entry.0.iter().zip(which).skip(3).take(3) {
                    place.store(*word, Relaxed);
                }
            }
        });
        for (server, at) in servers.iter().zip(at) {
            let (stop, accepted) = (&stop, &accepted);
            scope.spawn(move || {
                for connection in server.incoming() {
                    if stop.load(Relaxed) {
                        return;
                    }
                    let from = connection.and_then(|connection| connection.peer_addr());
                    accepted.lock().unwrap().extend(from.map(|from| (from, at)));
                }
            });
        }
        let (begin, mut dice) = (Instant::now(), Dice(22));
        let to_both = || {
            let accepted = accepted.lock().unwrap();
            at.iter().all(|at| accepted.iter().filter(|(_, to)| to == at).count() > 10)
        };
        while begin.elapsed() < time() || !to_both() {
            assert!(begin.elapsed() < PATIENCE, "no connections");
            let Some((handle, _descriptor)) = raw.open() else { break };
            raw.ask(handle, Operation::Connect(at[dice.below(2)]));
        }
        stop.store(true, Relaxed);
        for at in at {
            let _ = std::net::TcpStream::connect(at);
        }
    });
    let accepted = accepted.into_inner().unwrap();
    let record = bench.record.lock().unwrap();
    for (from, to) in &accepted {
        let is_admitted = record.admitted.iter().any(|info| (info.local, info.peer) == (*from, *to));
        assert!(is_admitted, "{from} to {to} was not admitted");
    }
}

/// A handle of a stream that is gone, and of one that is not made yet, names nothing, also where its slot is
/// in use again.
#[test]
fn forged_handles_name_nothing() {
    let bench = Bench::passing();
    let descriptor = bench.control.add_guest(spec(1)).unwrap();
    let raw = RawProcess::join(descriptor.as_fd());
    let (gone, closed) = raw.open().unwrap();
    drop(closed);
    bench.wait_for(0, "it is gone", |report| report.streams == 0);
    let (live, _descriptor) = raw.open().unwrap();
    let mut forged = vec![gone, StreamHandle { slot: raw.layout.slots, ..live }, StreamHandle::default()];
    for by in [1, 2, 3, u32::MAX] {
        forged.push(StreamHandle { generation: live.generation.wrapping_add(by), ..live });
        forged.push(StreamHandle { slot: live.slot.wrapping_add(by), ..live });
    }
    for handle in &forged {
        raw.ask(*handle, Operation::Listen(1));
    }
    let report = bench.report(0);
    assert_eq!(report.refused.of(StreamRefusal::StaleHandle), forged.len() as u64);
    assert_eq!((report.streams, report.refused.total()), (1, forged.len() as u64));
}

/// Records of datagrams whose heads lie: the socket ends, nothing else does, and nothing is sent of them.
#[test]
fn forged_records_of_datagrams_end_their_socket() {
    use bartizan_toe::datagram::{RECORD_HEAD, RecordHead};
    let bench = Bench::passing();
    let descriptor = bench.control.add_guest(spec(1)).unwrap();
    let raw = RawProcess::join(descriptor.as_fd());
    let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_nonblocking(true).unwrap();
    let good = RecordHead { length: 4, address: Some(receiver.local_addr().unwrap()) }.bytes();
    let with = |at: usize, byte: u8| {
        let mut head = good;
        head[at] = byte;
        head
    };
    let forged = [
        (with(0, 5), 36),    // longer than what is there
        (with(2, 1), 36),    // longer than the ring
        (with(3, 0xFF), 36), // longer than a datagram
        (with(7, 1), 36),    // a length of more than 32 bits
        (with(8, 99), 36),   // a family that there is none of
        (with(20, 1), 36),   // an IPv4 address of more than 32 bits
        (good, 31),          // half a head
        (good, 35),          // all but the last byte
        (good, 1 << 20),     // more than the buffer has
    ];
    for (number, (head, tail)) in forged.into_iter().enumerate() {
        let (handle, _descriptor) = raw.open_of(Transport::Udp).unwrap();
        let place = raw.layout.tx(handle.slot);
        for (index, word) in head.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(word.try_into().unwrap());
            raw.data.at::<AtomicU64>(place + index * 8).unwrap().store(word, Relaxed);
        }
        let slot: &bartizan_toe::layout::SlotState = raw.control.at(raw.layout.slot(handle.slot)).unwrap();
        slot.guest.tx_tail.store(tail, SeqCst);
        raw.ask(handle, Operation::Transmit);
        let broken = bench.report(0).refused.of(StreamRefusal::IndexBounds);
        assert_eq!(broken, number as u64 + 1, "record {number}");
    }
    assert!(receiver.recv(&mut [0; 64]).is_err());
    // A true record goes on.
    let (handle, _descriptor) = raw.open_of(Transport::Udp).unwrap();
    let place = raw.layout.tx(handle.slot);
    for (index, word) in good.chunks_exact(8).enumerate() {
        let word = u64::from_le_bytes(word.try_into().unwrap());
        raw.data.at::<AtomicU64>(place + index * 8).unwrap().store(word, Relaxed);
    }
    let slot: &bartizan_toe::layout::SlotState = raw.control.at(raw.layout.slot(handle.slot)).unwrap();
    slot.guest.tx_tail.store(u32::try_from(RECORD_HEAD).unwrap() + 4, SeqCst);
    raw.ask(handle, Operation::Transmit);
    receiver.set_nonblocking(false).unwrap();
    assert_eq!(receiver.recv(&mut [0; 64]).unwrap(), 4);
}
