// SPDX-License-Identifier: Apache-2.0
//! Verdicts of functions, as programs and peers see them.

use crate::common::{Bench, Socket, echo_server, pattern, spec};
use bartizan_toe::inspect::{PayloadDirection, PayloadVerdict};
use bartizan_toe::reason::StreamRefusal;
use rustix::io::Errno;
use std::io::Read;
use std::net::TcpListener;
use std::time::Duration;

#[test]
fn a_blocked_stream_says_so_to_program_and_peer() {
    let bench = Bench::with(|_, window| {
        let attack = window.bytes.windows(6).any(|bytes| bytes == b"ATTACK");
        if attack { PayloadVerdict::Drop } else { PayloadVerdict::Pass(usize::MAX) }
    });
    let guest = bench.guest(spec(1));
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = Socket::connected(&guest, server.local_addr().unwrap());
    let (mut connection, _) = server.accept().unwrap();
    socket.send(b"good").unwrap();
    let mut got = [0; 4];
    connection.read_exact(&mut got).unwrap();
    socket.send(b"an ATTACK").unwrap();
    assert_eq!(socket.receive(10), Err(Errno::ACCESS));
    assert_eq!(socket.receive(10), Err(Errno::CONNRESET));
    assert_eq!(socket.send(b"more"), Err(Errno::CONNRESET));
    let error = connection.read(&mut [0; 64]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(bench.report(0).refused.of(StreamRefusal::Function), 1);
}

#[test]
fn an_attack_between_guests_ends_both_streams() {
    let bench = Bench::with(|stream, window| {
        let is_attack = stream.accepted
            && window.direction == PayloadDirection::Incoming
            && window.bytes.starts_with(b"ATTACK");
        if is_attack { PayloadVerdict::Drop } else { PayloadVerdict::Pass(usize::MAX) }
    });
    let (client, server) = (bench.guest(spec(1)), bench.guest(spec(2)));
    let listener = Socket::listening(&server, "127.0.0.1:0".parse().unwrap());
    let socket = Socket::connected(&client, listener.local());
    let connection = listener.accept();
    socket.send(b"ATTACK").unwrap();
    assert_eq!(socket.receive(10), Err(Errno::CONNRESET));
    assert_eq!(connection.receive(10), Err(Errno::ACCESS));
    assert_eq!(connection.stream().unread(), 0);
    // The refusal is the receiver's.
    let refused = [0, 1].map(|guest| bench.report(guest).refused.of(StreamRefusal::Function));
    assert_eq!(refused, [0, 1]);
}

#[test]
fn held_bytes_leave_once_they_are_whole_and_replacements_arrive() {
    // Passes lines; the word "secret" is replaced.
    let bench = Bench::with(|_, window| {
        if window.direction == PayloadDirection::Incoming {
            return PayloadVerdict::Bypass;
        }
        if let Some(at) = window.bytes.windows(6).position(|bytes| bytes == b"secret") {
            return PayloadVerdict::Replace { range: at..at + 6, with: b"***".to_vec() };
        }
        match window.bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(line) => PayloadVerdict::Pass(line + 1),
            None if window.end => PayloadVerdict::Pass(usize::MAX),
            None => PayloadVerdict::Hold { retry_after: None },
        }
    });
    let guest = bench.guest(spec(1));
    let socket = Socket::connected(&guest, echo_server("127.0.0.1:0"));
    socket.send(b"a sec").unwrap();
    bench.wait_for(0, "held", |report| report.bytes == 5);
    socket.send(b"ret word\nrest").unwrap();
    assert_eq!(socket.receive_all(11).unwrap(), b"a *** word\n");
    socket.stream().shutdown(rustix::net::Shutdown::Write).unwrap();
    assert_eq!(socket.receive_to_end().unwrap(), b"rest");
}

#[test]
fn holding_ends_with_its_time_by_policy() {
    for fails_open in [false, true] {
        let bench = Bench::with(|_, _| PayloadVerdict::Hold { retry_after: None });
        let mut spec = spec(1);
        spec.limits.held_time = Duration::from_millis(50);
        spec.limits.hold_fails_open = fails_open;
        let guest = bench.guest(spec);
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Socket::connected(&guest, server.local_addr().unwrap());
        let (mut connection, _) = server.accept().unwrap();
        socket.send(b"held").unwrap();
        if fails_open {
            let mut got = [0; 4];
            connection.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"held");
        } else {
            assert_eq!(socket.receive(10), Err(Errno::ACCESS));
            assert!(connection.read(&mut [0; 4]).is_err());
        }
        let refused = bench.report(0).refused.of(StreamRefusal::HeldTime);
        assert_eq!(refused, u64::from(!fails_open));
    }
}

#[test]
fn the_receiver_gets_the_inspected_bytes_and_no_others() {
    // The hash that the function makes is the hash of what the receiver gets, byte for byte.
    let bench = Bench::passing();
    let guest = bench.guest(spec(1));
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = Socket::connected(&guest, server.local_addr().unwrap());
    let (mut connection, _) = server.accept().unwrap();
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        connection.read_to_end(&mut all).unwrap();
        all
    });
    for round in 0..50 {
        socket.send(&pattern(10_000 + round, round as u64)).unwrap();
    }
    drop(socket);
    assert!(reader.join().unwrap() == bench.record.lock().unwrap().outgoing);
}
