// SPDX-License-Identifier: Apache-2.0
//! Tests of DCERPC.

use super::tables::STUB;
use super::*;
use crate::suite::{self, Driver, Seed, protocol_suite};
use crate::transaction::{BufferQuery, LogOptions};
use Direction::{ToClient, ToServer};

const SRVSVC: &str = "4b324fc8-1670-01d3-1278-5a47bf6ee188";

/// RpcFields of a message: numbers, each with its number of bytes, in a byte order.
#[derive(Clone, Copy)]
struct RpcFields {
    is_little: bool,
}

impl RpcFields {
    fn of(self, list: &[(u64, usize)]) -> Vec<u8> {
        let number = |(value, length): &(u64, usize)| {
            let mut bytes = value.to_le_bytes()[..*length].to_vec();
            if !self.is_little {
                bytes.reverse();
            }
            bytes
        };
        list.iter().flat_map(number).collect()
    }

    fn uuid(self) -> Vec<u8> {
        let numbers = self.of(&[(0x4b32_4fc8, 4), (0x1670, 2), (0x01d3, 2)]);
        [numbers, vec![0x12, 0x78, 0x5a, 0x47, 0xbf, 0x6e, 0xe1, 0x88]].concat()
    }

    fn message(self, kind: u8, flags: u8, call: u64, body: &[u8]) -> Vec<u8> {
        let length = u64::try_from(body.len() + pdu::HEAD).expect("short");
        let order = if self.is_little { 0x10 } else { 0 };
        [vec![5, 0, kind, flags, order, 0, 0, 0], self.of(&[(length, 2), (0, 2), (call, 4)]), body.to_vec()]
            .concat()
    }

    fn bind(self, kind: u8, call: u64, flags: u8) -> Vec<u8> {
        let head = self.of(&[(4_280, 2), (4_280, 2), (0, 4)]);
        let context =
            [self.of(&[(0, 2)]), vec![1, 0], self.uuid(), self.of(&[(3, 2), (0, 2)]), vec![1; 20]].concat();
        self.message(kind, flags, call, &[head, vec![1, 0, 0, 0], context].concat())
    }

    fn bind_ack(self, kind: u8, call: u64, result: u64) -> Vec<u8> {
        let head = self.of(&[(4_280, 2), (4_280, 2), (0, 4), (4, 2)]);
        let answer = [self.of(&[(result, 2), (0, 2)]), vec![1; 20]].concat();
        self.message(kind, 3, call, &[head, b"135\0\0\0".to_vec(), vec![1, 0, 0, 0], answer].concat())
    }

    fn request(self, call: u64, flags: u8, opnum: u64, stub: &[u8]) -> Vec<u8> {
        self.message(0, flags, call, &[self.of(&[(0, 4), (0, 2), (opnum, 2)]), stub.to_vec()].concat())
    }

    fn response(self, call: u64, stub: &[u8]) -> Vec<u8> {
        self.message(2, 3, call, &[self.of(&[(0, 8)]), stub.to_vec()].concat())
    }

    fn datagram(self, kind: u8, flags: u8, stub: &[u8]) -> Vec<u8> {
        let order = if self.is_little { 0x10 } else { 0 };
        let length = u64::try_from(stub.len()).expect("short");
        [
            vec![4, kind, flags, 0, order, 0, 0, 0],
            vec![0; 16],
            self.uuid(),
            self.uuid(),
            self.of(&[(0, 4), (3, 4), (7, 4), (21, 2), (0, 2), (0, 2), (length, 2), (0, 2), (0, 2)]),
            stub.to_vec(),
        ]
        .concat()
    }
}

const LITTLE: RpcFields = RpcFields { is_little: true };
const BIG: RpcFields = RpcFields { is_little: false };

fn conversation(order: RpcFields) -> Seed {
    vec![
        (ToServer, order.bind(11, 1, 3)),
        (ToClient, order.bind_ack(12, 1, 0)),
        (ToServer, [order.request(2, 1, 15, b"argu"), order.request(2, 2, 15, b"ments")].concat()),
        (ToClient, order.response(2, b"result")),
        (ToServer, order.bind(14, 3, 3)),
        (ToClient, order.bind_ack(15, 3, 2)),
        (ToServer, order.message(16, 3, 4, b"auth")),
    ]
}

fn datagrams() -> Seed {
    vec![
        (ToServer, LITTLE.datagram(0, 4, b"argu")),
        (ToServer, LITTLE.datagram(0, 6, b"ments")),
        (ToClient, LITTLE.datagram(2, 0, b"result")),
    ]
}

protocol_suite!(over_tcp, &SPEC, Transport::Tcp, vec![conversation(LITTLE), conversation(BIG)]);
protocol_suite!(over_udp, &SPEC, Transport::Udp, vec![datagrams()]);

fn played(transport: Transport, seed: Seed) -> Driver {
    let mut driver = Driver::new(&SPEC, transport);
    for (direction, bytes) in seed {
        driver.send(direction, &bytes);
    }
    driver
}

fn records(driver: &mut Driver) -> Vec<String> {
    let range = driver.parser().tx_range();
    let parser = driver.parser();
    range.filter_map(|id| parser.tx(id)).map(|tx| suite::record(tx, &LogOptions::default(), false)).collect()
}

#[test]
fn records_are_suricatas_in_both_byte_orders() {
    let interface = format!(r#"[{{"uuid":"{SRVSVC}","version":"3.0","ack_result":0}}]"#);
    let expected = [
        format!(
            r#"{{"request":"BIND","interfaces":{interface},"response":"BINDACK","call_id":1,"rpc_version":"5.0"}}"#
        ),
        format!(
            r#"{{"request":"REQUEST","req":{{"opnum":15,"frag_cnt":1,"stub_data_size":9}},"interfaces":{interface},"response":"RESPONSE","res":{{"frag_cnt":1,"stub_data_size":14}},"call_id":2,"rpc_version":"5.0"}}"#
        ),
        r#"{"request":"ALTER_CONTEXT","response":"ALTER_CONTEXT_RESP","call_id":3,"rpc_version":"5.0"}"#
            .to_owned(),
    ];
    for order in [LITTLE, BIG] {
        let mut driver = played(Transport::Tcp, conversation(order));
        assert_eq!(records(&mut driver), expected);
        assert!(!driver.failed);
        let call = driver.parser().tx(1).and_then(|tx| tx.rpc()).expect("a call");
        assert_eq!((call.opnum, call.is_little), (Some(15), order.is_little));
        let uuid = SRVSVC.parse().expect(SRVSVC);
        assert!(call.is_to(uuid, false, |version| version == 3));
        let query = BufferQuery { id: STUB, direction: ToServer, index: 0 };
        let mut scratch = Vec::new();
        let stub = driver
            .parser()
            .tx(1)
            .and_then(|tx| tx.buffer(query, &mut scratch).map(|view| view.data.to_vec()));
        assert_eq!(stub.as_deref(), Some(&b"arguments"[..]));
    }
}

#[test]
fn interfaces_that_are_refused_or_of_later_fragments() {
    let uuid = SRVSVC.parse().expect(SRVSVC);
    for (flags, result, holds, holds_of_any) in
        [(3, 0, true, true), (3, 2, false, false), (2, 0, false, true)]
    {
        let mut driver = played(
            Transport::Tcp,
            vec![
                (ToServer, LITTLE.bind(11, 1, flags)),
                (ToClient, LITTLE.bind_ack(12, 1, result)),
                (ToServer, LITTLE.request(2, 3, 1, b"x")),
            ],
        );
        let call = driver.parser().tx(1).and_then(|tx| tx.rpc()).expect("a call");
        assert_eq!(
            (call.is_to(uuid, false, |_| true), call.is_to(uuid, true, |_| true)),
            (holds, holds_of_any)
        );
    }
}

#[test]
fn calls_in_datagrams() {
    let mut driver = played(Transport::Udp, datagrams());
    let expected = format!(
        r#"{{"request":"REQUEST","req":{{"opnum":21,"frag_cnt":2,"stub_data_size":9}},"response":"RESPONSE","res":{{"frag_cnt":1,"stub_data_size":6}},"activityuuid":"{SRVSVC}","seqnum":7,"rpc_version":"4.0"}}"#
    );
    assert_eq!(records(&mut driver), [expected]);
    assert_eq!(probe(Transport::Udp, ToServer, &[4; 90]), Probe::No);
}

#[test]
fn what_is_lost_or_broken() {
    let mut driver = Driver::new(&SPEC, Transport::Tcp);
    driver.send(ToClient, &LITTLE.response(9, b"x"));
    driver.finish();
    let expected = r#"{"request":"REQUEST_LOST","response":"RESPONSE","res":{"frag_cnt":1,"stub_data_size":9},"call_id":9,"rpc_version":"5.0"}"#;
    assert_eq!(records(&mut driver), [expected]);
    let mut driver = Driver::new(&SPEC, Transport::Tcp);
    driver.send(ToServer, &LITTLE.request(1, 3, 1, b"x")[..20]);
    driver.lose(ToServer, 10);
    driver.send(ToServer, &[b"rest".to_vec(), LITTLE.request(2, 3, 1, b"x")].concat());
    assert_eq!((records(&mut driver).len(), driver.failed), (1, false));
    driver.send(ToServer, &LITTLE.message(21, 3, 1, b""));
    assert!(driver.failed);
    assert_eq!(probe(Transport::Tcp, ToServer, b"\x05\x00\x0b"), Probe::More);
    assert_eq!(probe(Transport::Tcp, ToServer, &LITTLE.bind_ack(12, 1, 0)), Probe::Yes(ToClient));
    assert_eq!(probe(Transport::Tcp, ToServer, b"\x05\x01\x00"), Probe::No);
}

#[test]
fn too_many_transactions_end_the_oldest() {
    let mut settings = SettingsMap::new();
    settings.set("max-tx", "4");
    settings.set("max-stub-size", "3");
    let mut driver = Driver::with(&SPEC, Transport::Tcp, &settings);
    for call in 0..40 {
        driver.send(ToServer, &LITTLE.request(call, 3, 1, b"abcdef"));
    }
    let range = driver.parser().tx_range();
    assert!(range.end - range.start <= 8);
    assert_eq!(driver.held().1, 3 * 8);
}
