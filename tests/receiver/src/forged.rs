// SPDX-License-Identifier: Apache-2.0
//! A client that forges packets of its server: they have the server's addresses and come from the client's
//! side of the link. They reach no host, but an observer may believe that the server has acknowledged,
//! answered or reset.

use crate::client::{Client, Out};
use bartizan_testkit::packet::{ACK, CLIENT_MAC, FIN, Ip, PSH, Packet, RST, SERVER_MAC, SYN, Segment};

/// Sends data that the receiver discards, then the server's reply as if it had accepted them.
pub fn frames(client: &mut Client) -> Out {
    let mut out = Out::new();
    let mut clock = 0;
    let all = client.truth.len();
    for _ in 0..client.random.within(1, 3) {
        let begin = if client.random.percent(70) { 0 } else { client.random.below(all) };
        let end = client.random.within(begin + 1, all);
        if client.random.percent(75) {
            let load = client.lie[begin..end].to_vec();
            let mut decoy = client.segment(ACK | PSH, begin as i64, &load);
            let mut ip = client.ip.clone();
            match client.random.below(4) {
                0 => ip.mac = [2, 9, 9, 9, 9, 9],
                1 => ip.ttl = 2,
                2 if ip.src.is_ipv4() => ip.options = vec![0x83, 7, 4, 10, 66, 0, 9, 0],
                2 => ip.extensions.push((60, vec![0, 0x81, 4, 0, 0, 0, 0])),
                _ => decoy.options.push((19, vec![7; 16])),
            }
            out.push((clock, with(&ip, decoy)));
        }
        clock += client.random.below(3) as u64;
        let answer = answer(client, end);
        out.push((clock, answer));
        clock += client.random.below(3) as u64;
    }
    out
}

fn with(ip: &Ip, segment: Segment) -> Vec<u8> {
    let mut packet = Packet::tcp(ip, segment);
    packet.ip = ip.clone();
    packet.frame()
}

/// A forged packet of the server that acknowledges data up to `end`.
fn answer(client: &mut Client, end: usize) -> Vec<u8> {
    let mut ip = client.ip.clone();
    core::mem::swap(&mut ip.src, &mut ip.dst);
    ip.mac = if client.random.percent(50) { CLIENT_MAC } else { SERVER_MAC };
    let begun = client.isn.wrapping_add(1);
    let mut segment = Segment {
        sport: client.ports.1,
        dport: client.ports.0,
        seq: client.peer,
        ack: begun.wrapping_add(end as u32),
        flags: ACK,
        window: 29_200,
        ..Segment::default()
    };
    if client.timestamps {
        let value = client.echo.wrapping_add(client.random.below(3) as u32);
        segment.options.push((8, [value.to_be_bytes(), client.now_stamp().to_be_bytes()].concat()));
    }
    match client.random.below(8) {
        0 => segment.load = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec(),
        1 => segment.flags |= FIN,
        2 => segment.flags = RST | ACK,
        3 => segment.window = 0,
        4 => {
            segment.flags |= SYN;
            segment.seq = client.peer.wrapping_sub(1);
        }
        _ => {}
    }
    with(&ip, segment)
}
