// SPDX-License-Identifier: Apache-2.0
//! Datagrams of guests: to plain sockets and between guests, with and without a connection, on IPv4 and IPv6.

use crate::common::{Bench, DATAGRAM_ATTACK, PATIENCE, Socket, spec};
use bartizan_toe::descriptor::{PLAIN_SOCKET, Transport};
use bartizan_toe::engine::GuestSpec;
use bartizan_toe::guest::{GuestProcess, ReceiveOptions, ReceivedDatagram};
use bartizan_toe::reason::StreamRefusal;
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering::SeqCst;

fn open(process: &GuestProcess, v6: bool) -> Socket<'_> {
    let socket = Socket { process, opened: process.open(v6, Transport::Udp).unwrap() };
    socket.stream().slot_state().guest.rx_timeout.store(u32::try_from(PATIENCE.as_millis()).unwrap(), SeqCst);
    socket
}

fn send(socket: &Socket<'_>, bytes: &[u8], to: Option<SocketAddr>) -> Result<usize, Errno> {
    socket.stream().transmit_datagram(&[IoSlice::new(bytes)], to, false)
}

fn receive(socket: &Socket<'_>, room: usize) -> Result<(Vec<u8>, ReceivedDatagram), Errno> {
    let mut bytes = vec![0; room];
    let options = ReceiveOptions::default();
    let received = socket.stream().receive_datagram(&mut [IoSliceMut::new(&mut bytes)], options)?;
    bytes.truncate(received.copied);
    Ok((bytes, received))
}

fn loopback(v6: bool) -> &'static str {
    if v6 { "[::1]:0" } else { "127.0.0.1:0" }
}

/// A plain socket that sends each datagram back.
fn echo(v6: bool) -> SocketAddr {
    let socket = UdpSocket::bind(loopback(v6)).unwrap();
    let at = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut bytes = vec![0; 70_000];
        while let Ok((count, from)) = socket.recv_from(&mut bytes) {
            let _ = socket.send_to(&bytes[..count], from);
        }
    });
    at
}

#[test]
fn datagrams_keep_their_bounds_and_their_senders() {
    for v6 in [false, true] {
        let bench = Bench::passing();
        let guest = bench.guest(spec(1));
        let (first, second) = (echo(v6), echo(v6));
        let socket = open(&guest, v6);
        let sizes = [0, 1, 512, 1_472, 30_000, 65_000];
        for (to, other) in [(first, second), (second, first)] {
            for size in sizes {
                let bytes = vec![7; size];
                assert_eq!(send(&socket, &bytes, Some(to)), Ok(size));
                let (got, received) = receive(&socket, 70_000).unwrap();
                assert!(got == bytes && received.from == Some(to), "{size} {received:?}");
                assert_ne!(received.from, Some(other));
            }
        }
        // A buffer that is too small cuts the datagram, and the rest is gone.
        send(&socket, b"0123456789", Some(first)).unwrap();
        let (got, received) = receive(&socket, 4).unwrap();
        assert_eq!((&got[..], received.length), (&b"0123"[..], 10));
        assert_eq!(send(&socket, &vec![0; 65_536], Some(first)), Err(Errno::MSGSIZE));
        assert_eq!(send(&socket, b"x", None), Err(Errno::DESTADDRREQ));
        // A port of its own, which stays.
        assert_ne!(socket.local().port(), 0);
        let report = bench.report(0);
        assert!(report.sent == report.received && report.sent > 190_000, "{report:?}");
    }
}

#[test]
fn a_connected_socket_hears_its_peer_alone_and_errors_come_later() {
    for v6 in [false, true] {
        let bench = Bench::passing();
        let guest = bench.guest(spec(1));
        let (socket, peer) = (open(&guest, v6), UdpSocket::bind(loopback(v6)).unwrap());
        let to = peer.local_addr().unwrap();
        socket.stream().connect(to).unwrap();
        assert_eq!(socket.stream().slot_state().peer.load(), Some(to));
        send(&socket, b"to the peer", None).unwrap();
        let mut bytes = [0; 64];
        let (count, from) = peer.recv_from(&mut bytes).unwrap();
        assert_eq!((&bytes[..count], from), (&b"to the peer"[..], socket.local()));
        UdpSocket::bind(loopback(v6)).unwrap().send_to(b"of a stranger", from).unwrap();
        peer.send_to(b"of the peer", from).unwrap();
        assert_eq!(receive(&socket, 64).unwrap().0, b"of the peer");
        drop(peer);
        send(&socket, b"nobody is there", None).unwrap();
        assert_eq!(receive(&socket, 64).unwrap_err(), Errno::CONNREFUSED);
        socket.stream().disconnect().unwrap();
        assert_eq!(send(&socket, b"x", None), Err(Errno::DESTADDRREQ));
        let other = echo(v6);
        send(&socket, b"again", Some(other)).unwrap();
        assert_eq!(receive(&socket, 64).unwrap().1.from, Some(other));
    }
}

#[test]
fn datagrams_between_guests_are_judged_and_attacks_do_not_arrive() {
    for v6 in [false, true] {
        let bench = Bench::passing();
        let (client, server) = (bench.guest(spec(1)), bench.guest(spec(2)));
        let listener = open(&server, v6);
        listener.stream().bind(loopback(v6).parse().unwrap()).unwrap();
        let (at, socket) = (listener.local(), open(&client, v6));
        send(&socket, DATAGRAM_ATTACK, Some(at)).unwrap();
        send(&socket, b"hello", Some(at)).unwrap();
        let (got, received) = receive(&listener, 64).unwrap();
        let port = received.from.map(|from| from.port());
        assert_eq!((&got[..], port), (&b"hello"[..], Some(socket.local().port())));
        send(&listener, b"hello to you", received.from).unwrap();
        assert_eq!(receive(&socket, 64).unwrap().0, b"hello to you");
        // A connected socket is told why.
        socket.stream().connect(at).unwrap();
        send(&socket, DATAGRAM_ATTACK, None).unwrap();
        assert_eq!(receive(&socket, 64).unwrap_err(), Errno::ACCESS);
        assert_eq!(bench.report(0).refused.of(StreamRefusal::Function), 2);
    }
}

#[test]
fn nothing_is_sent_to_loopback_addresses_that_are_the_guests_own() {
    let bench = Bench::passing();
    let guest = bench.guest(GuestSpec::default());
    let outside = UdpSocket::bind("127.0.0.1:0").unwrap();
    outside.set_nonblocking(true).unwrap();
    let port = outside.local_addr().unwrap().port();
    for to in ["127.0.0.1", "0.0.0.0", "127.9.9.9", "[::ffff:127.0.0.1]", "[::ffff:0.0.0.0]", "[::1]", "[::]"]
    {
        let to: SocketAddr = format!("{to}:{port}").parse().unwrap();
        let socket = open(&guest, to.is_ipv6());
        assert_eq!(socket.stream().connect(to), Err(PLAIN_SOCKET), "{to}");
        send(&socket, b"out of the guest", Some(to)).unwrap();
        assert_eq!(receive(&socket, 64).unwrap_err(), Errno::NETUNREACH, "{to}");
        let stream = Socket::open(&guest, to.is_ipv6());
        assert_eq!(stream.stream().connect(to), Err(PLAIN_SOCKET), "{to}");
    }
    assert!(outside.recv(&mut [0; 64]).is_err());
    assert_eq!(bench.report(0).refused.of(StreamRefusal::Address), 7);
}

#[test]
fn a_program_that_does_not_read_loses_datagrams_and_nothing_else() {
    let bench = Bench::passing();
    let guest = bench.guest(spec(1));
    let socket = open(&guest, false);
    socket.stream().bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let flood = UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..2_000_u32 {
        flood.send_to(&[&number.to_le_bytes()[..], &[0; 1_000]].concat(), socket.local()).unwrap();
    }
    bench.wait_for(0, "a full buffer", |report| report.received > 50_000);
    // In order, without one cut; the kernel dropped those for which nobody had room.
    let mut last = None;
    socket.stream().slot_state().guest.nonblocking.store(1, SeqCst);
    let begin = std::time::Instant::now();
    while let Ok((got, received)) = receive(&socket, 2_000) {
        assert_eq!(received.length, 1_004);
        let number = u32::from_le_bytes(got[..4].try_into().unwrap());
        assert!(last < Some(number) && begin.elapsed() < PATIENCE);
        last = Some(number);
    }
    assert!(last >= Some(60), "{last:?}");
    // Closing with unread datagrams leaves nothing.
    drop(socket);
    bench.wait_for(0, "no stream", |report| report.streams == 0 && report.bytes == 0);
}
