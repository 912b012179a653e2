// SPDX-License-Identifier: Apache-2.0
//! Streams by TCP both ways and between guests, on IPv4 and IPv6.

use crate::common::{Bench, REFUSED_PORT, Socket, echo_server, pattern, spec};
use bartizan_toe::inspect::StreamPartner;
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

const ADDRESSES: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

#[test]
fn a_guest_connects_and_gets_its_bytes_back() {
    for address in ADDRESSES {
        let bench = Bench::passing();
        let guest = bench.guest(spec(1));
        let server = echo_server(address);
        let socket = Socket::connected(&guest, server);
        assert_eq!(socket.stream().slot_state().peer.load(), Some(server));
        for count in [1, 64, 1000, 16_384] {
            let bytes = pattern(count, 1);
            assert_eq!(socket.send(&bytes), Ok(count));
            assert_eq!(socket.receive_all(count).unwrap(), bytes);
        }
        socket.stream().shutdown(Shutdown::Write).unwrap();
        assert_eq!(socket.receive(10).unwrap(), b"");
        assert_eq!(socket.send(b"x"), Err(Errno::PIPE));
        drop(socket);
        bench.wait_for(0, "the stream is removed", |report| report.streams == 0 && report.bytes == 0);
        let record = bench.record.lock().unwrap().clone();
        assert_eq!((record.outgoing.len(), record.incoming.len()), (17_449, 17_449));
        assert_eq!((record.ends, record.closed), (2, 1));
        assert_eq!(record.admitted[0].tenant.0, 1);
    }
}

#[test]
fn large_transfers_go_through_small_buffers() {
    for (address, shift) in [(ADDRESSES[0], 12), (ADDRESSES[1], 16)] {
        let bench = Bench::passing();
        let mut spec = spec(1);
        spec.limits.buffer_shift = shift;
        let guest = bench.guest(spec);
        let socket = Socket::connected(&guest, echo_server(address));
        let bytes = pattern(5_000_000, 2);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                assert_eq!(socket.send(&bytes), Ok(bytes.len()));
                socket.stream().shutdown(Shutdown::Write).unwrap();
            });
            assert!(socket.receive_to_end().unwrap() == bytes);
            sender.join().unwrap();
        });
        assert!(bench.record.lock().unwrap().outgoing == bytes);
    }
}

#[test]
fn a_guest_accepts_connections() {
    for address in ADDRESSES {
        let bench = Bench::passing();
        let guest = bench.guest(spec(1));
        let listener = Socket::listening(&guest, address.parse().unwrap());
        let at = listener.local();
        assert_ne!(at.port(), 0);
        let client = std::thread::spawn(move || {
            let mut client = TcpStream::connect(at).unwrap();
            client.write_all(b"hello").unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            (client.local_addr().unwrap(), answer)
        });
        let connection = listener.accept();
        assert_eq!(connection.receive_to_end().unwrap(), b"hello");
        connection.send(b"bye").unwrap();
        let peer = connection.stream().slot_state().peer.load();
        drop(connection);
        let (from, answer) = client.join().unwrap();
        assert_eq!((answer.as_str(), peer), ("bye", Some(from)));
        assert!(bench.record.lock().unwrap().admitted[0].accepted);
    }
}

#[test]
fn guests_of_one_host_exchange_payload_without_tcp() {
    for address in ADDRESSES {
        let bench = Bench::passing();
        let (client, server) = (bench.guest(spec(1)), bench.guest(spec(2)));
        let listener = Socket::listening(&server, address.parse().unwrap());
        let bytes = pattern(1_000_000, 3);
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let connection = listener.accept();
                let got = connection.receive_to_end().unwrap();
                connection.send(b"done").unwrap();
                (got, connection.local(), connection.stream().slot_state().peer.load().unwrap())
            });
            let socket = Socket::connected(&client, listener.local());
            assert_eq!(socket.send(&bytes), Ok(bytes.len()));
            socket.stream().shutdown(Shutdown::Write).unwrap();
            assert_eq!(socket.receive_to_end().unwrap(), b"done");
            let (got, local, peer) = server.join().unwrap();
            assert!(got == bytes);
            assert_eq!((local, peer), (listener.local(), socket.local()));
        });
        for guest in [0, 1] {
            let report = bench.wait_for(guest, "closed", |report| report.streams == 1 - (1 - guest));
            assert_eq!(report.local_connections, 1, "{report:?}");
        }
        // Both chains saw both directions.
        let record = bench.record.lock().unwrap().clone();
        assert_eq!((record.outgoing.len(), record.incoming.len()), (1_000_004, 1_000_004));
        let [client, server] = &record.admitted[..] else { panic!("{:?}", record.admitted) };
        assert_eq!((server.tenant.0, client.tenant.0), (2, 1));
        assert_eq!(
            (client.partner, server.partner.is_some()),
            (Some(StreamPartner { id: server.id, guest: server.guest }), true)
        );
    }
}

#[test]
fn errors_of_connect_are_those_of_the_kernel() {
    let bench = Bench::passing();
    let guest = bench.guest(spec(1));
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let socket = Socket::open(&guest, false);
    assert_eq!(socket.stream().connect(unused), Err(Errno::CONNREFUSED));
    assert_eq!(socket.receive(1), Err(Errno::NOTCONN));
    assert_eq!(socket.send(b"x"), Err(Errno::PIPE));
    // The same socket connects afterwards.
    socket.stream().connect(echo_server("127.0.0.1:0")).unwrap();
    assert_eq!(socket.stream().connect(unused), Err(Errno::ISCONN));
    socket.send(b"again").unwrap();
    assert_eq!(socket.receive(10).unwrap(), b"again");
    let other = Socket::open(&guest, true);
    assert_eq!(other.stream().connect(unused), Err(Errno::AFNOSUPPORT));
    let refused = Socket::open(&guest, false);
    let address = SocketAddr::new(IpAddr::from([127, 0, 0, 1]), REFUSED_PORT);
    assert_eq!(refused.stream().connect(address), Err(Errno::ACCESS));
}

#[test]
fn a_reset_comes_through_in_both_directions() {
    let bench = Bench::passing();
    let guest = bench.guest(spec(1));
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = Socket::connected(&guest, server.local_addr().unwrap());
    let (connection, _) = server.accept().unwrap();
    rustix::net::sockopt::set_socket_linger(&connection, Some(std::time::Duration::ZERO)).unwrap();
    drop(connection);
    assert_eq!(socket.receive(1), Err(Errno::CONNRESET));
    assert_eq!(socket.receive(1).unwrap(), b"");
    assert_eq!(socket.send(b"x"), Err(Errno::PIPE));
    // Unread bytes at close: the peer gets a RST.
    let socket = Socket::connected(&guest, server.local_addr().unwrap());
    let (mut connection, _) = server.accept().unwrap();
    connection.write_all(b"unread").unwrap();
    bench.wait_for(0, "delivered", |report| report.received == 6);
    drop(socket);
    let error = connection.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn bytes_written_before_a_close_arrive() {
    let bench = Bench::passing();
    let guest = bench.guest(spec(1));
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = Socket::connected(&guest, server.local_addr().unwrap());
    let bytes = pattern(60_000, 4);
    socket.send(&bytes).unwrap();
    drop(socket);
    let mut got = Vec::new();
    server.accept().unwrap().0.read_to_end(&mut got).unwrap();
    assert!(got == bytes);
    bench.wait_for(0, "the stream is removed", |report| report.streams == 0);
}

#[test]
fn a_guest_keeps_to_its_addresses() {
    let bench = Bench::passing();
    let mut own = spec(1);
    own.addresses = vec![IpAddr::from([127, 0, 0, 5])];
    own.shares_loopback = false;
    let guest = bench.guest(own);
    let socket = Socket::open(&guest, false);
    let plain = bartizan_toe::descriptor::PLAIN_SOCKET;
    assert_eq!(socket.stream().bind("127.0.0.1:0".parse().unwrap()), Err(plain));
    assert_eq!(socket.stream().connect("127.0.0.1:80".parse().unwrap()), Err(plain));
    assert_eq!(socket.stream().bind("198.51.100.1:0".parse().unwrap()), Err(Errno::ADDRNOTAVAIL));
    socket.stream().bind("0.0.0.0:0".parse().unwrap()).unwrap();
    // The program sees the address that it asked for.
    assert_eq!(socket.local().ip(), IpAddr::from([0, 0, 0, 0]));
    socket.stream().listen(8).unwrap();
    let port = socket.local().port();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(TcpStream::connect(("127.0.0.5", port)).is_ok());
    // Its own listener is reached by its own loopback address.
    let client = Socket::connected(&guest, SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port));
    let _ = socket.accept();
    let server = socket.accept();
    client.send(b"inside").unwrap();
    assert_eq!(server.receive(10).unwrap(), b"inside");
}

#[test]
fn a_wildcard_of_ipv6_of_a_guest_with_both_families_takes_connections_of_both() {
    let bench = Bench::passing();
    let mut own = spec(1);
    own.addresses = vec![IpAddr::from([127, 0, 0, 6]), IpAddr::from(std::net::Ipv6Addr::LOCALHOST)];
    own.shares_loopback = false;
    let guest = bench.guest(own);
    let wildcard: SocketAddr = "[::]:0".parse().unwrap();
    let listener = Socket::listening(&guest, wildcard);
    assert_eq!(listener.local().ip(), wildcard.ip());
    let port = listener.local().port();
    for address in ["127.0.0.6", "::1"] {
        let address = SocketAddr::new(address.parse().unwrap(), port);
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"outside").unwrap();
        let server = listener.accept();
        assert_eq!(server.receive(20).unwrap(), b"outside");
        // An IPv6 socket shows IPv4 addresses in the notation of IPv6.
        let shown = server.local();
        assert!(shown.is_ipv6() && shown.ip().to_canonical() == address.ip(), "{shown}");
    }
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "no address of the guest");
    // Connections of the guest itself meet the listener by each of its addresses.
    let client = Socket::connected(&guest, SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port));
    let server = listener.accept();
    client.send(b"inside").unwrap();
    assert_eq!(server.receive(10).unwrap(), b"inside");
    // With V6ONLY it listens on IPv6 only, and the port of IPv4 stays free.
    drop(listener);
    let only = Socket::open(&guest, true);
    only.stream().set_option(41, 26, &1_i32.to_ne_bytes()).unwrap();
    only.stream().bind(wildcard).unwrap();
    only.stream().listen(8).unwrap();
    let port = only.local().port();
    assert!(TcpStream::connect(("127.0.0.6", port)).is_err());
    assert!(TcpStream::connect(("::1", port)).is_ok());
}
