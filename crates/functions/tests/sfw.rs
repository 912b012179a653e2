// SPDX-License-Identifier: Apache-2.0
//! The stateful firewall, packet by packet: each of its reasons is reached, in both IP versions.

use crate::common;

use bartizan_base::{Reason, Timestamp};
use bartizan_flow::FlowHasher;
use bartizan_flow::host::{HostKey, HostTable, HostTableConfig, WhenHostsFull};
use bartizan_functions::sfw::{Hosts, SfwKind};
use common::*;
use core::net::IpAddr;
use std::sync::Arc;

type Side = (IpAddr, u16);

fn hosts() -> Hosts {
    Arc::new(HostTable::new(&HostTableConfig {
        capacity: 64,
        shards: 2,
        hasher: FlowHasher::new([1, 2]),
        when_full: WhenHostsFull::Refuse,
    }))
}

fn bench(rules: &str) -> (Bench, Hosts) {
    let hosts = hosts();
    (Bench::new(&SfwKind::new(Arc::clone(&hosts)), rules), hosts)
}

fn sides() -> impl Iterator<Item = (Side, Side)> {
    PAIRS.iter().map(|(c, s)| ((ip(c), 40_000), (ip(s), 80)))
}

/// Opens a connection that must be allowed; the client's next byte is 101, the server's 501.
fn connect(b: &mut Bench, c: Side, s: Side) {
    assert_eq!(b.refused(&tcp(c, s, SYN, 100, 0, b"")), None);
    assert_eq!(b.refused(&tcp(s, c, SYN | ACK, 500, 101, b"")), None);
    assert_eq!(b.refused(&tcp(c, s, ACK, 101, 501, b"")), None);
}

#[test]
fn a_connection_lives_and_closes() {
    for (c, s) in sides() {
        let (mut b, _) = bench("{}");
        connect(&mut b, c, s);
        assert_eq!(b.refused(&tcp(c, s, ACK | PSH, 101, 501, b"GET")), None);
        assert_eq!(b.refused(&tcp(s, c, ACK | PSH, 501, 104, b"hello")), None);
        // A retransmission, because the ACK was lost after the firewall.
        assert_eq!(b.refused(&tcp(c, s, ACK, 104, 506, b"")), None);
        assert_eq!(b.refused(&tcp(s, c, ACK | PSH, 501, 104, b"hello")), None);
        assert_eq!(b.refused(&tcp(c, s, ACK, 104, 506, b"")), None);
        assert_eq!(b.refused(&tcp(c, s, FIN | ACK, 104, 506, b"")), None);
        assert_eq!(b.refused(&tcp(s, c, FIN | ACK, 506, 105, b"")), None);
        assert_eq!(b.refused(&tcp(c, s, ACK, 105, 507, b"")), None);
        assert_eq!((b.counter("admitted"), b.counter("dropped")), (1, 0));
    }
}

#[test]
fn what_an_ended_connection_leaves_behind_goes_on() {
    for (c, s) in sides() {
        // The last acknowledgement was lost: the FIN is retransmitted, with the data before it.
        let (mut b, _) = bench("{}");
        connect(&mut b, c, s);
        assert_eq!(b.refused(&tcp(c, s, FIN | ACK, 101, 501, b"")), None);
        assert_eq!(b.refused(&tcp(s, c, ACK, 501, 102, b"")), None);
        assert_eq!(b.refused(&tcp(s, c, ACK | PSH, 501, 102, b"last")), None);
        assert_eq!(b.refused(&tcp(s, c, FIN | ACK, 505, 102, b"")), None);
        assert_eq!(b.refused(&tcp(c, s, ACK, 102, 506, b"")), None);
        assert_eq!(b.refused(&tcp(s, c, FIN | ACK, 505, 102, b"")), None);
        assert_eq!(b.refused(&tcp(s, c, FIN | ACK | PSH, 501, 102, b"last")), None);
        assert_eq!(b.refused(&tcp(c, s, ACK, 102, 506, b"")), None);
        // New data is refused.
        assert_eq!(b.refused(&tcp(s, c, ACK | PSH, 506, 102, b"more")), Some(Reason::SfwState));
        assert_eq!(b.refused(&tcp(c, s, ACK | PSH, 102, 506, b"more")), Some(Reason::SfwState));

        // The side that closes second retransmits its last data and FIN, since an acknowledgement of earlier
        // data was in flight.
        for client_first in [true, false] {
            let (mut b, _) = bench("{}");
            connect(&mut b, c, s);
            let (one, other, own, peer) = if client_first { (c, s, 101, 501) } else { (s, c, 501, 101) };
            assert_eq!(b.refused(&tcp(one, other, FIN | ACK | PSH, own, peer, b"all")), None);
            assert_eq!(b.refused(&tcp(other, one, ACK | PSH, peer, own + 4, b"next")), None);
            assert_eq!(b.refused(&tcp(other, one, FIN | ACK | PSH, peer + 4, own + 4, b"last")), None);
            assert_eq!(b.refused(&tcp(one, other, ACK, own + 4, peer + 4, b"")), None);
            assert_eq!(b.refused(&tcp(other, one, FIN | ACK | PSH, peer + 4, own + 4, b"last")), None);
            assert_eq!(b.refused(&tcp(one, other, ACK, own + 4, peer + 9, b"")), None);
            assert_eq!(b.refused(&tcp(other, one, FIN | ACK | PSH, peer + 4, own + 4, b"last")), None);
            assert_eq!(
                b.refused(&tcp(other, one, ACK | PSH, peer + 9, own + 4, b"more")),
                Some(Reason::SfwState)
            );
        }

        // In flight when the RST passed.
        for rst_by_client in [true, false] {
            let (mut b, _) = bench("{}");
            connect(&mut b, c, s);
            let (one, other, own, peer) = if rst_by_client { (c, s, 101, 501) } else { (s, c, 501, 101) };
            assert_eq!(b.refused(&tcp(one, other, ACK | PSH, own, peer, b"all")), None);
            assert_eq!(b.refused(&tcp(one, other, RST | ACK, own + 3, peer, b"")), None);
            assert_eq!(b.refused(&tcp(other, one, ACK, peer, own + 3, b"")), None);
            assert_eq!(b.refused(&tcp(other, one, ACK | PSH, peer, own + 3, b"data")), None);
            assert_eq!(b.refused(&tcp(other, one, FIN | ACK, peer + 4, own + 3, b"")), None);
            assert_eq!(b.refused(&tcp(one, other, RST, own + 3, 0, b"")), None);
            // More than the window at that time was not in flight.
            let far = b.refused(&tcp(other, one, ACK | PSH, peer + 70_000, own + 3, b"far"));
            assert!(far.is_some(), "{far:?}");
        }
    }
}

#[test]
fn what_opens_no_connection_and_belongs_to_none() {
    for (c, s) in sides() {
        for flags in [ACK, ACK | PSH, SYN | ACK, RST, RST | ACK, FIN | ACK] {
            let (mut b, _) = bench("{}");
            assert_eq!(
                b.refused(&tcp(c, s, flags, 100, 200, b"")),
                Some(Reason::SfwNoConnection),
                "{flags:#x}"
            );
        }
    }
}

#[test]
fn midstream_by_policy() {
    for (c, s) in sides() {
        for (rules, expected) in [("{}", Some(Reason::SfwNoConnection)), (r#"{"midstream": "allow"}"#, None)]
        {
            let mut b =
                Bench::tuned(&SfwKind::new(hosts()), rules, |settings| settings.stream.midstream = true);
            assert_eq!(b.refused(&tcp(c, s, ACK | PSH, 100, 200, b"data")), expected);
            assert_eq!(b.refused(&tcp(s, c, ACK | PSH, 200, 104, b"data")), expected);
        }
    }
}

#[test]
fn who_may_open() {
    for (c, s) in sides() {
        let cases = [
            ("from", None, Some(Reason::SfwInitiator)),
            ("to", Some(Reason::SfwInitiator), None),
            ("both", None, None),
        ];
        for (initiate, forward, backward) in cases {
            let (mut b, _) = bench(&format!(r#"{{"initiate": "{initiate}"}}"#));
            assert_eq!(b.refused(&tcp(c, s, SYN, 1, 0, b"")), forward);
            assert_eq!(b.refused(&udp(c, (s.0, 53), b"?")), forward);
            assert_eq!(b.refused(&icmp(c.0, s.0, (8, 128), 0, &[0; 4])), forward);
            b.end_flows();
            assert_eq!(b.refused(&tcp(s, c, SYN, 1, 0, b"")), backward);
            assert_eq!(b.refused(&udp(s, (c.0, 53), b"?")), backward);
            assert_eq!(b.refused(&icmp(s.0, c.0, (8, 128), 0, &[0; 4])), backward);
        }
    }
}

#[test]
fn a_refused_syn_opens_nothing() {
    for (c, s) in sides() {
        let (mut b, _) = bench("{}");
        assert_eq!(b.refused(&tcp(s, c, SYN, 1, 0, b"")), Some(Reason::SfwInitiator));
        // Packets that would answer or continue it belong to no connection.
        assert_eq!(b.refused(&tcp(c, s, SYN | ACK, 9, 2, b"")), Some(Reason::SfwNoConnection));
        assert_eq!(b.refused(&tcp(s, c, ACK, 2, 10, b"")), Some(Reason::SfwNoConnection));
        // And they do not prevent the other side from opening one.
        assert_eq!(b.refused(&tcp(c, s, SYN, 70, 0, b"")), None);
        assert_eq!(b.refused(&tcp(s, c, SYN | ACK, 90, 71, b"")), None);
    }
}

#[test]
fn numbers_out_of_the_window() {
    for (c, s) in sides() {
        let far = [
            tcp(c, s, ACK | PSH, 101 + 70_000, 501, b"far"),
            tcp(c, s, ACK, 101, 501 + 100_000, b""),
            tcp(c, s, ACK | PSH, 101u32.wrapping_sub(17 << 20), 501, b"old"),
            tcp(c, s, RST, 101 + 90_000, 0, b""),
            tcp(s, c, RST, 501 + 90_000, 0, b""),
            tcp(c, s, FIN | ACK, 101 + 70_000, 501, b""),
        ];
        for bytes in far {
            let (mut b, _) = bench("{}");
            connect(&mut b, c, s);
            assert_eq!(b.refused(&bytes), Some(Reason::SfwWindow), "{bytes:?}");
            // The connection continues.
            assert_eq!(b.refused(&tcp(c, s, ACK | PSH, 101, 501, b"ok")), None);
        }
        // Within the window, the receiver answers a RST with another number than the next one (RFC 5961
        // section 3.2).
        let (mut b, _) = bench("{}");
        connect(&mut b, c, s);
        assert_eq!(b.refused(&tcp(c, s, RST, 101 + 5_000, 0, b"")), None);
        assert_eq!(b.refused(&tcp(c, s, ACK | PSH, 101, 501, b"ok")), None);
        let (mut b, _) = bench(r#"{"window-check": false}"#);
        connect(&mut b, c, s);
        assert_eq!(b.refused(&tcp(c, s, ACK | PSH, 101 + 70_000, 501, b"far")), None);
        // An answer to another SYN.
        let (mut b, _) = bench("{}");
        assert_eq!(b.refused(&tcp(c, s, SYN, 100, 0, b"")), None);
        assert_eq!(b.refused(&tcp(s, c, SYN | ACK, 500, 777, b"")), Some(Reason::SfwWindow));
    }
}

/// After a spurious timeout a sender retransmits all of its flight, even if the receiver's window has become
/// small since.
#[test]
fn a_whole_flight_may_come_again() {
    for (c, s) in sides() {
        for by_client in [true, false] {
            let (mut b, _) = bench("{}");
            connect(&mut b, c, s);
            let (one, other, own, peer) = if by_client { (c, s, 101, 501) } else { (s, c, 501, 101) };
            let data = [b'x'; 1000];
            for n in 0..200 {
                let at = own + n * 1000;
                assert_eq!(b.refused(&tcp(one, other, ACK, at, peer, &data)), None);
                assert_eq!(b.refused(&tcp(other, one, ACK, peer, at + 1000, b"")), None);
            }
            for n in 0..200 {
                let again = tcp(one, other, ACK, own + n * 1000, peer, &data);
                assert_eq!(b.refused(&again), None, "{n}");
            }
        }
    }
}

#[test]
fn what_the_state_does_not_allow() {
    for (c, s) in sides() {
        for flags in [SYN | FIN, SYN | RST, FIN, 0, PSH, FIN | RST | ACK] {
            let (mut b, _) = bench("{}");
            assert_eq!(b.refused(&tcp(c, s, flags, 100, 0, b"")), Some(Reason::SfwState), "{flags:#x}");
        }
        let (mut b, _) = bench("{}");
        assert_eq!(b.refused(&tcp(c, s, SYN, 100, 0, b"")), None);
        assert_eq!(b.refused(&tcp(c, s, ACK | PSH, 101, 1, b"early")), Some(Reason::SfwState));
        assert_eq!(b.refused(&tcp(s, c, ACK | PSH, 1, 101, b"early")), Some(Reason::SfwState));
        let (mut b, _) = bench("{}");
        connect(&mut b, c, s);
        assert_eq!(b.refused(&tcp(s, c, SYN, 9_000, 0, b"")), Some(Reason::SfwState));
        assert_eq!(b.refused(&tcp(c, s, SYN | ACK, 9_000, 501, b"")), Some(Reason::SfwState));
        // A RST that the receiver accepts ends it.
        assert_eq!(b.refused(&tcp(c, s, RST, 101, 0, b"")), None);
        assert_eq!(b.refused(&tcp(c, s, ACK | PSH, 102, 501, b"late")), Some(Reason::SfwState));
        assert_eq!(b.refused(&tcp(s, c, PSH, 501, 101, b"late")), Some(Reason::SfwState));
    }
}

#[test]
fn half_open_connections_are_limited_per_source_and_counted_off() {
    for (c, s) in sides() {
        let (mut b, hosts) = bench(r#"{"max-half-open": 2}"#);
        let from = |n: u16| (c.0, 40_000 + n);
        for n in 0..2 {
            assert_eq!(b.refused(&tcp(from(n), s, SYN, 100, 0, b"")), None);
        }
        assert_eq!(b.refused(&tcp(from(2), s, SYN, 100, 0, b"")), Some(Reason::SfwSynLimit));
        // A completed connection makes room, also for the next attempt of the refused one.
        assert_eq!(b.refused(&tcp(s, from(0), SYN | ACK, 500, 101, b"")), None);
        assert_eq!(b.refused(&tcp(from(0), s, ACK, 101, 501, b"")), None);
        assert_eq!(b.refused(&tcp(from(2), s, SYN, 100, 0, b"")), None);
        b.end_flows();
        let key = HostKey::host(bartizan_base::TenantId(0), c.0);
        assert_eq!(hosts.if_there(&key, b.now, |h| (h.half_open, h.connections)), None);
    }
}

#[test]
fn connections_are_limited_per_source_and_survive_generations() {
    for (c, s) in sides() {
        let rules = r#"{"max-connections": 2}"#;
        let (mut b, hosts) = bench(rules);
        connect(&mut b, c, s);
        assert_eq!(b.refused(&udp(c, (s.0, 53), b"?")), None);
        assert_eq!(b.refused(&udp(c, (s.0, 54), b"?")), Some(Reason::SfwConnectionLimit));
        b.generation(&SfwKind::new(Arc::clone(&hosts)), rules, 2);
        assert_eq!(b.refused(&tcp(c, s, ACK | PSH, 101, 501, b"goes on")), None);
        assert_eq!(b.refused(&udp(c, (s.0, 55), b"?")), Some(Reason::SfwConnectionLimit));
        // A reset connection no longer counts.
        assert_eq!(b.refused(&tcp(c, s, RST, 108, 0, b"")), None);
        assert_eq!(b.refused(&udp(c, (s.0, 55), b"?")), None);
        // Another source has its own limits.
        let other = if c.0.is_ipv4() { ip("10.0.0.9") } else { ip("2001:db8::9") };
        assert_eq!(b.refused(&udp((other, 1), (s.0, 53), b"?")), None);
    }
}

#[test]
fn a_generation_that_takes_the_right_to_open_ends_the_flow() {
    for (c, s) in sides() {
        let (mut b, hosts) = bench("{}");
        connect(&mut b, c, s);
        b.generation(&SfwKind::new(hosts), r#"{"initiate": "to"}"#, 2);
        assert_eq!(b.refused(&tcp(c, s, ACK | PSH, 101, 501, b"x")), Some(Reason::SfwInitiator));
    }
}

#[test]
fn a_full_host_table_is_counted_and_lets_in() {
    let hosts: Hosts = Arc::new(HostTable::new(&HostTableConfig {
        capacity: 1,
        shards: 1,
        hasher: FlowHasher::new([1, 2]),
        when_full: WhenHostsFull::Refuse,
    }));
    let mut b = Bench::new(&SfwKind::new(hosts), r#"{"max-connections": 1}"#);
    for n in 1..4 {
        assert_eq!(b.refused(&udp((ip(&format!("10.0.0.{n}")), 1), (ip("192.0.2.1"), 53), b"?")), None);
    }
    assert_eq!(b.counter("untracked"), 2);
}

#[test]
fn udp_answers_follow_and_the_function_is_done() {
    for (c, s) in sides() {
        let (mut b, _) = bench("{}");
        assert!(!b.run(&udp(c, s, b"?")).unwrap().done);
        assert!(b.run(&udp(s, c, b"!")).unwrap().done);
        assert!(b.run(&udp(c, s, b"?")).is_none());
    }
}

#[test]
fn icmp_answers_need_a_question() {
    for (c, s) in sides() {
        let (mut b, _) = bench("{}");
        assert_eq!(b.refused(&icmp(s.0, c.0, (0, 129), 0, &[0; 4])), Some(Reason::SfwNoConnection));
        let (mut b, _) = bench("{}");
        assert_eq!(b.refused(&icmp(c.0, s.0, (8, 128), 0, &[0; 4])), None);
        assert_eq!(b.refused(&icmp(s.0, c.0, (0, 129), 0, &[0; 4])), None);
    }
}

/// IPv6 links need discovery of neighbours, routers and listeners of groups, and redirects (RFC 4890, section
/// 4.4.1). `initiate` applies to all other types.
#[test]
fn neighbours_and_listeners_are_found_whoever_may_open() {
    const NEIGHBOURS: [u8; 9] = [130, 131, 132, 133, 134, 135, 136, 137, 143];
    let mut body = vec![0; 4];
    body.extend(core::net::Ipv6Addr::LOCALHOST.octets());
    let (c, s) = PAIRS.iter().map(|(c, s)| (ip(c), ip(s))).find(|(c, _)| c.is_ipv6()).unwrap();
    for initiate in ["from", "to", "both"] {
        for kind in 128..=u8::MAX {
            for (opener, from, to) in [("from", c, s), ("to", s, c)] {
                let (mut b, _) = bench(&format!(r#"{{"initiate": "{initiate}"}}"#));
                let may = initiate == "both" || initiate == opener;
                let refused = match kind {
                    _ if NEIGHBOURS.contains(&kind) => None,
                    129 | 161 => Some(Reason::SfwNoConnection),
                    _ => (!may).then_some(Reason::SfwInitiator),
                };
                assert_eq!(
                    b.refused(&icmp(from, to, (0, kind), 0, &body)),
                    refused,
                    "{initiate} {kind} {opener}"
                );
            }
        }
    }
    // The groups and addresses of the link itself.
    let (mut b, _) = bench("{}");
    assert_eq!(b.refused(&icmp(ip("fe80::1"), ip("ff02::1:ff00:2"), (0, 135), 0, &body)), None);
}

/// All errors of ICMP and ICMPv6; the last one of the shorter list twice.
const ERRORS: [(u8, u8); 5] = [(3, 1), (4, 2), (5, 3), (11, 4), (12, 4)];

#[test]
fn icmp_errors_need_the_flow_that_they_quote() {
    for (c, s) in sides() {
        let router = if c.0.is_ipv4() { ip("203.0.113.1") } else { ip("2001:db8:ffff::1") };
        let head = if c.0.is_ipv4() { 20 } else { 40 };
        for kind in ERRORS {
            let error = |quoted: &[u8], to: IpAddr| icmp_error(router, to, kind, quoted);
            let unrelated = Some(Reason::SfwUnrelatedIcmp);
            let (mut b, _) = bench("{}");
            let sent = tcp(c, s, ACK | PSH, 101, 501, b"data");
            assert_eq!(b.refused(&error(&sent, c.0)), unrelated, "no such flow");
            let (mut b, _) = bench("{}");
            connect(&mut b, c, s);
            assert_eq!(b.refused(&sent), None);
            assert_eq!(b.refused(&error(&sent, c.0)), None, "{kind:?}");
            let answered = tcp(s, c, ACK | PSH, 501, 105, b"data");
            assert_eq!(b.refused(&answered), None);
            assert_eq!(b.refused(&error(&answered, s.0)), None, "about the server's packet");
            // Guessed sequence numbers, including the other side's.
            for number in [0x7000_0000, 100_000, 0u32.wrapping_sub(1 << 22)] {
                let guess = tcp(c, s, ACK, number, 501, b"");
                assert_eq!(b.refused(&error(&guess, c.0)), unrelated, "{kind:?} {number}");
                let guess = tcp(s, c, ACK, number, 105, b"");
                assert_eq!(b.refused(&error(&guess, s.0)), unrelated, "{kind:?} {number}");
            }
            assert_eq!(b.refused(&error(&sent[..head + 4], c.0)), unrelated, "ports without a number");
            assert_eq!(
                b.refused(&error(&sent, if c.0.is_ipv4() { ip("10.0.0.77") } else { ip("2001:db8::77") })),
                unrelated,
                "to somebody who did not send the packet"
            );

            let (mut b, _) = bench("{}");
            let question = udp(c, (s.0, 53), b"?");
            assert_eq!(b.refused(&error(&question, c.0)), unrelated);
            assert_eq!(b.refused(&question), None);
            assert_eq!(b.refused(&error(&question, c.0)), None);

            let (mut b, _) = bench("{}");
            let ping = |id: u8| icmp(c.0, s.0, (8, 128), 0, &[0, id, 0, 1]);
            assert_eq!(b.refused(&error(&ping(1), c.0)), unrelated);
            for id in 1..=4 {
                assert_eq!(b.refused(&ping(id)), None);
            }
            assert_eq!(b.refused(&error(&ping(1), c.0)), None);
            assert_eq!(b.refused(&error(&ping(9), c.0)), unrelated, "an echo that was not sent");
        }
    }
}

#[test]
fn another_connection_on_the_same_ports_is_a_new_one() {
    for (c, s) in sides() {
        let (mut b, _) = bench(r#"{"max-connections": 1}"#);
        connect(&mut b, c, s);
        assert_eq!(b.refused(&tcp(c, s, RST, 101, 0, b"")), None);
        b.now = Timestamp::from_parts(2_000, 0);
        assert_eq!(b.refused(&tcp(c, s, SYN, 90_000, 0, b"")), None);
        assert_eq!(b.refused(&tcp(s, c, SYN | ACK, 7_000, 90_001, b"")), None);
        assert_eq!(b.refused(&tcp(c, s, ACK, 90_001, 7_001, b"")), None);
    }
}

proptest::proptest! {
    /// For any segments in any order: no panic, and all counts return to zero.
    #[test]
    fn any_segments_leave_nothing_behind(
        steps in proptest::collection::vec((proptest::arbitrary::any::<bool>(), 0u16..3, proptest::arbitrary::any::<u8>(), 0u32..2_000, 0u32..2_000, 0usize..20), 0..60)
    ) {
        let (mut b, hosts) = bench(r#"{"max-half-open": 2, "max-connections": 2, "initiate": "both"}"#);
        let (c, s) = ((ip("10.0.0.1"), 40_000), (ip("2.2.2.2"), 80));
        for (forward, port, flags, seq, ack, len) in steps {
            let c = (c.0, c.1 + port);
            let data = vec![0u8; len];
            let bytes = if forward { tcp(c, s, flags & 0x3f, seq, ack, &data) } else { tcp(s, c, flags & 0x3f, seq, ack, &data) };
            let _ = b.run(&bytes);
        }
        b.end_flows();
        let mut left = 0;
        hosts.for_each(|_, h| left += h.connections + h.half_open);
        proptest::prop_assert_eq!(left, 0);
    }
}
