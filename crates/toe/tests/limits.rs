// SPDX-License-Identifier: Apache-2.0
//! Limits of a guest: each is kept, counted, and touches no other guest.

use crate::common::{Bench, Socket, echo_server, pattern, spec};
use bartizan_toe::descriptor::Transport;
use bartizan_toe::engine::{Engine, GuestLimits, GuestSpec};
use bartizan_toe::guest::GuestProcess;
use bartizan_toe::inspect::{PayloadInspector, PayloadVerdict, PayloadWindow, StreamInfo};
use bartizan_toe::reason::StreamRefusal;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use std::io::Read;
use std::net::TcpListener;
use std::os::fd::AsFd;

/// Passes everything.
struct Passing;

impl PayloadInspector for Passing {
    fn inspect(&mut self, _: &StreamInfo, _: PayloadWindow<'_>) -> PayloadVerdict {
        PayloadVerdict::Pass(usize::MAX)
    }
}

#[test]
fn programs_join_by_connections_to_the_guests_socket() {
    let mut engine = Engine::new().unwrap();
    let name = format!("bartizan-door-{}", std::process::id());
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    let make = |flags| socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let door = make(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
    bind(&door, &address).unwrap();
    listen(&door, 4).unwrap();
    let limits = GuestLimits { processes: 2, ..GuestLimits::default() };
    engine.add_guest_at(GuestSpec { limits, ..spec(1) }, door).unwrap();
    let control = engine.control();
    let thread = std::thread::spawn(move || engine.run(&mut Passing));
    let program = || {
        let start = make(SocketFlags::CLOEXEC);
        connect(&start, &address).unwrap();
        start
    };
    let (first, second) = (program(), program());
    let joined = [&first, &second].map(|start| GuestProcess::join(start.as_fd()).unwrap());
    assert!(joined[0].open(false, Transport::Tcp).is_ok() && joined[1].open(true, Transport::Tcp).is_ok());
    // One more than there may be processes: it is closed and counted, and those that are there stay.
    let third = program();
    assert!(GuestProcess::join(third.as_fd()).is_err());
    let report = || control.report().unwrap().guests.remove(0);
    assert_eq!((report().processes, report().refused.of(StreamRefusal::Processes)), (2, 1));
    drop((joined, first, second, third));
    let begin = std::time::Instant::now();
    while report().processes > 0 || report().streams > 0 {
        assert!(begin.elapsed() < crate::common::PATIENCE, "{:?}", report());
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert!(GuestProcess::join(program().as_fd()).is_ok(), "there is room again");
    control.stop();
    thread.join().unwrap().unwrap();
}

#[test]
fn streams_are_bounded_and_their_places_come_back() {
    let bench = Bench::passing();
    let mut few = spec(1);
    few.limits.streams = 3;
    let (guest, other) = (bench.guest(few), bench.guest(spec(2)));
    for _ in 0..3 {
        let mut open: Vec<_> = (0..3).map(|_| Socket::open(&guest, false)).collect();
        assert_eq!(guest.open(false, Transport::Tcp).unwrap_err(), Errno::NFILE);
        let _ = Socket::open(&other, false);
        let stale = open.pop().unwrap().opened.handle;
        bench.wait_for(0, "closed", |report| report.streams == 2);
        assert!(guest.slot(stale).is_none());
        open.push(Socket::open(&guest, false));
        assert_eq!(bench.report(0).streams, 3);
        drop(open);
        bench.wait_for(0, "closed", |report| report.streams == 0);
    }
    assert_eq!(bench.report(0).refused.of(StreamRefusal::Streams), 3);
    assert_eq!(bench.report(1).refused.total(), 0);
}

#[test]
fn connections_a_second_are_bounded() {
    let bench = Bench::passing();
    let mut slow = spec(1);
    slow.limits.connects_per_second = 2;
    let guest = bench.guest(slow);
    let server = echo_server("127.0.0.1:0");
    let results: Vec<_> = (0..8).map(|_| Socket::open(&guest, false).stream().connect(server)).collect();
    assert!(results.contains(&Err(Errno::NOBUFS)), "{results:?}");
    assert_eq!(&results[..2], &[Ok(()), Ok(())]);
    let refused = results.iter().filter(|result| result.is_err()).count();
    assert_eq!(bench.report(0).refused.of(StreamRefusal::ConnectRate), refused as u64);
}

#[test]
fn processes_are_bounded_and_a_channel_joins_once() {
    let bench = Bench::passing();
    let mut few = spec(1);
    few.limits.processes = 2;
    let descriptor = bench.control.add_guest(few).unwrap();
    let first = GuestProcess::join(descriptor.as_fd()).unwrap();
    let second = GuestProcess::join(descriptor.as_fd()).unwrap();
    assert_eq!(GuestProcess::join(descriptor.as_fd()).unwrap_err(), Errno::AGAIN);
    drop(first);
    bench.wait_for(0, "left", |report| report.processes == 1);
    let third = GuestProcess::join(descriptor.as_fd()).unwrap();
    // Streams of one process are reached by the other.
    let opened = second.open(false, Transport::Tcp).unwrap();
    let stream = third.stream(opened.handle, opened.fd.as_fd()).unwrap();
    stream.connect(echo_server("127.0.0.1:0")).unwrap();
    assert_eq!(bench.report(0).refused.of(StreamRefusal::Processes), 1);
}

#[test]
fn bytes_in_the_engine_are_bounded_and_all_arrive() {
    let bench = Bench::passing();
    let mut small = spec(1);
    small.limits.bytes = 100_000;
    let guest = bench.guest(small);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let bytes = pattern(6_000_000, 5);
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..4)
            .map(|_| {
                let socket = Socket::connected(&guest, server.local_addr().unwrap());
                let bytes = &bytes;
                scope.spawn(move || assert_eq!(socket.send(bytes), Ok(bytes.len())))
            })
            .collect();
        let mut connections: Vec<_> = (0..4).map(|_| server.accept().unwrap().0).collect();
        // Nobody reads: the engine fills up to its bound and waits.
        let full = bench.wait_for(0, "full", |report| report.refused.of(StreamRefusal::Bytes) > 0);
        assert!(full.bytes <= 100_000 + 4 * 2 * 4096, "{full:?}");
        for connection in &mut connections {
            let mut got = Vec::new();
            connection.read_to_end(&mut got).unwrap();
            assert!(got == bytes);
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}

#[test]
fn held_bytes_are_bounded() {
    let bench = Bench::with(|_, _| PayloadVerdict::Hold { retry_after: None });
    let mut small = spec(1);
    small.limits.held_bytes = 10_000;
    let guest = bench.guest(small);
    let socket = Socket::connected(&guest, echo_server("127.0.0.1:0"));
    let _ = socket.send(&pattern(20_000, 6));
    assert_eq!(socket.receive(1), Err(Errno::ACCESS));
    assert_eq!(bench.report(0).refused.of(StreamRefusal::HeldBytes), 1);
}
