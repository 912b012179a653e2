// SPDX-License-Identifier: Apache-2.0
//! Runs a packet through the trees of a strategy.

use super::{Action, Change, Gas, Strategy, Tree, fields};
use bartizan_testkit::packet::{Layer, Packet, Piece};
use bartizan_testkit::random::Random;

/// The resulting packets in order, each with its delay in milliseconds after the original packet.
pub type Sent = Vec<(u64, Packet)>;

impl Strategy {
    /// The packets sent in place of a packet.
    pub fn out(&mut self, packet: Packet, random: &mut Random) -> Sent {
        run(&mut self.outbound, packet, random)
    }

    /// The packets received in place of a packet.
    pub fn heard(&mut self, packet: Packet, random: &mut Random) -> Sent {
        run(&mut self.inbound, packet, random)
    }
}

fn run(trees: &mut [Tree], packet: Packet, random: &mut Random) -> Sent {
    let mut sent = Vec::new();
    let mut ran = false;
    for tree in trees {
        if tree.trigger.fires(&packet) {
            ran = true;
            let mut clock = 0;
            act(&tree.action, packet.clone(), random, &mut clock, &mut sent);
        }
    }
    if !ran {
        sent.push((0, packet));
    }
    sent
}

impl super::Trigger {
    fn fires(&mut self, packet: &Packet) -> bool {
        if !fields::matches(packet, &self.protocol, &self.field, &self.value) {
            return false;
        }
        match &mut self.gas {
            Gas::Unlimited | Gas::After(0) => true,
            Gas::Times(0) => false,
            Gas::Times(left) => {
                *left -= 1;
                true
            }
            Gas::After(left) => {
                *left -= 1;
                false
            }
        }
    }
}

fn act(action: &Action, mut packet: Packet, random: &mut Random, clock: &mut u64, sent: &mut Sent) {
    match action {
        Action::Send => sent.push((*clock, packet)),
        Action::Drop => {}
        Action::Duplicate(left, right) => {
            act(left, packet.clone(), random, clock, sent);
            act(right, packet, random, clock, sent);
        }
        Action::Sleep(time, next) => {
            *clock += time;
            act(next, packet, random, clock, sent);
        }
        Action::Tamper { protocol, field, how, next } => {
            let value = match how {
                Change::Replace(value) => Some(value.clone()),
                Change::Corrupt => fields::random(&packet, protocol, field, random),
                Change::Add(amount) => fields::get(&packet, protocol, field)
                    .and_then(|own| own.parse::<i64>().ok())
                    .map(|own| own.wrapping_add(*amount).to_string()),
            };
            if let Some(value) = value {
                fields::set(&mut packet, protocol, field, &value);
            }
            act(next, packet, random, clock, sent);
        }
        Action::Fragment { segments, size, in_order, overlap, left, right } => {
            let (first, second) =
                if *segments { cut_segment(&packet, *size, *overlap) } else { cut_packet(&packet, *size) };
            let (first, second) = if *in_order { (first, second) } else { (second, first) };
            act(left, first, random, clock, sent);
            act(right, second, random, clock, sent);
        }
    }
}

/// Cuts into two segments; a packet that cannot be cut is duplicated.
fn cut_segment(packet: &Packet, size: i64, overlap: usize) -> (Packet, Packet) {
    let Layer::Tcp(tcp) = &packet.layer else { return (packet.clone(), packet.clone()) };
    let length = tcp.load.len();
    if length == 0 {
        return (packet.clone(), packet.clone());
    }
    let size = usize::try_from(size).ok().filter(|size| *size < length).unwrap_or(length / 2);
    let part = |from: usize, to: usize| {
        let mut part = packet.clone();
        if let Layer::Tcp(own) = &mut part.layer {
            own.load = tcp.load[from..to].to_vec();
            own.seq = tcp.seq.wrapping_add(from as u32);
            (own.chksum, own.dataofs) = (None, None);
        }
        (part.ip.fixed.len, part.ip.fixed.chksum) = (None, None);
        part
    };
    (part(0, (size + overlap).min(length)), part(size, length))
}

/// Cuts into two fragments; a packet that cannot be cut is duplicated.
fn cut_packet(packet: &Packet, size: i64) -> (Packet, Packet) {
    let bytes = packet.payload();
    let size = match usize::try_from(size).map(|units| units * 8) {
        Ok(size) if size <= bytes.len() && bytes.len() > 8 => size,
        _ => bytes.len() / 16 * 8,
    };
    let before = packet.piece.unwrap_or(Piece { offset: 0, more: false });
    if size == 0 || size >= bytes.len() {
        return (packet.clone(), packet.clone());
    }
    let part = |from: usize, to: usize, more: bool| {
        let mut part = packet.clone();
        part.layer = Layer::Part(bytes[from..to].to_vec());
        part.piece = Some(Piece { offset: before.offset + from, more });
        (part.ip.fixed.len, part.ip.fixed.chksum) = (None, None);
        if part.ip.id == 0 {
            part.ip.id = 0x6765;
        }
        part
    };
    (part(0, size, true), part(size, bytes.len(), before.more))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_testkit::packet::{ACK, Ip, PSH, SYN, Segment, TCP};

    fn packet(flags: u16, load: &[u8]) -> Packet {
        let ip = Ip::new("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap(), TCP);
        let options = if flags & SYN != 0 { vec![(2, vec![5, 180])] } else { Vec::new() };
        Packet::tcp(&ip, Segment { flags, load: load.to_vec(), seq: 100, options, ..Segment::default() })
    }

    fn tcp(packet: &Packet) -> &Segment {
        match &packet.layer {
            Layer::Tcp(tcp) => tcp,
            other => panic!("{other:?}"),
        }
    }

    fn play(text: &str, packet: Packet) -> Sent {
        Strategy::parse(text).unwrap().out(packet, &mut Random::new(1))
    }

    #[test]
    fn branches_are_played_left_first() {
        let text =
            "[TCP:flags:PA]-duplicate(tamper{TCP:dataofs:replace:10}(tamper{TCP:chksum:replace:25776},),)-";
        let sent = play(text, packet(PSH | ACK, b"GET /"));
        assert_eq!(sent.len(), 2);
        let first = sent[0].1.payload();
        assert_eq!((first[12] >> 4, &first[16..18]), (10, &25776u16.to_be_bytes()[..]));
        assert_eq!(tcp(&sent[1].1).chksum, None);
        // All of the flags, and no others.
        assert_eq!(play(text, packet(ACK, b"GET /")).len(), 1);
    }

    #[test]
    fn segments_and_fragments_join_to_what_they_were_cut_from() {
        let sent = play("[TCP:flags:PA]-fragment{tcp:8:False:3}-|", packet(PSH | ACK, b"0123456789abcdef"));
        let (first, second) = (tcp(&sent[1].1), tcp(&sent[0].1));
        assert_eq!((first.seq, &first.load[..]), (100, &b"0123456789a"[..]));
        assert_eq!((second.seq, &second.load[..]), (108, &b"89abcdef"[..]));
        let whole = packet(PSH | ACK, b"0123456789abcdef");
        let sent = play("[TCP:flags:PA]-fragment{ip:1:True}(,fragment{ip:-1:True})-|", whole.clone());
        let pieces: Vec<_> = sent.iter().map(|(_, part)| part.piece.unwrap()).collect();
        assert_eq!(
            pieces.iter().map(|piece| (piece.offset, piece.more)).collect::<Vec<_>>(),
            [(0, true), (8, true), (16, false)]
        );
        assert_eq!(sent.iter().flat_map(|(_, part)| part.payload()).collect::<Vec<_>>(), whole.payload());
    }

    #[test]
    fn gas_bounds_how_often_and_says_from_when_on() {
        let mut twice = Strategy::parse("[TCP:flags:A:2]-drop-|").unwrap();
        let mut later = Strategy::parse("[TCP:flags:A:-2]-drop-|").unwrap();
        let mut random = Random::new(1);
        let mut dropped = |strategy: &mut Strategy| -> Vec<bool> {
            (0..4).map(|_| strategy.out(packet(ACK, b""), &mut random).is_empty()).collect()
        };
        assert_eq!(dropped(&mut twice), [true, true, false, false]);
        assert_eq!(dropped(&mut later), [false, false, true, true]);
    }

    #[test]
    fn absent_options_are_empty_and_can_be_added() {
        let text = "[TCP:options-mss:]-tamper{TCP:options-md5header:corrupt}-|";
        assert_eq!(tcp(&play(text, packet(SYN, b""))[0].1).options.len(), 1, "a SYN has an MSS");
        let sent = play(text, packet(PSH | ACK, b"x"));
        assert_eq!(tcp(&sent[0].1).options[0].0, 19);
        assert_eq!(sent[0].1.payload()[20..22], [19, 18]);
        let sent = play("[TCP:flags:S]-tamper{TCP:options-wscale:replace:7}-|", packet(SYN, b""));
        assert_eq!(tcp(&sent[0].1).options, [(2, vec![5, 180]), (3, vec![7])]);
    }

    #[test]
    fn sleeping_delays_what_follows() {
        let sent = play("[TCP:flags:A]-sleep{0.05}(duplicate(,sleep{0.01}),)-|", packet(ACK, b""));
        assert_eq!(sent.iter().map(|(wait, _)| *wait).collect::<Vec<_>>(), [50, 60]);
    }
}
