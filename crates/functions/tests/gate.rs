// SPDX-License-Identifier: Apache-2.0
//! The gate, packet by packet.

use crate::common;

use bartizan_base::Reason;
use bartizan_functions::gate::GateKind;
use common::*;

#[test]
fn refuses_what_no_policy_names() {
    for (client, server) in PAIRS {
        let mut bench = Bench::new(&GateKind, r#"{"refuse": true}"#);
        for _ in 0..2 {
            assert_eq!(
                bench.refused(&udp((ip(client), 1), (ip(server), 2), b"")),
                Some(Reason::PolicyDefault)
            );
        }
        assert_eq!(bench.counter("refused"), 2);
    }
}

#[test]
fn drops_one_sided_flows_once_they_are_known_to_be() {
    for (client, server) in PAIRS {
        let (c, s) = ((ip(client), 1), (ip(server), 80));
        let mut bench = Bench::new(&GateKind, r#"{"drop-one-sided": true}"#);
        assert_eq!(bench.refused(&tcp(c, s, SYN, 100, 0, b"")), None);
        let later: Vec<_> = (0..10).map(|n| bench.refused(&tcp(c, s, ACK, 101 + n, 1, b"x"))).collect();
        assert_eq!(later.iter().filter(|r| **r == Some(Reason::OneSided)).count(), 4);
        assert_eq!(later.last(), Some(&Some(Reason::OneSided)));
        // With a reply it is not one-sided.
        let mut bench = Bench::new(&GateKind, r#"{"drop-one-sided": true}"#);
        assert_eq!(bench.refused(&tcp(c, s, SYN, 100, 0, b"")), None);
        assert_eq!(bench.refused(&tcp(s, c, SYN | ACK, 500, 101, b"")), None);
        for n in 0..10 {
            assert_eq!(bench.refused(&tcp(c, s, ACK, 101 + n, 501, b"x")), None);
        }
    }
}
