// SPDX-License-Identifier: Apache-2.0
//! Connections that use other features of TCP than plain data: urgent bytes, timestamps, data with the SYN,
//! reused ports, windows, ICMP errors.

use super::case::Play;
use super::made::Made;
use super::payload;
use crate::client::{Opening, Step, Style};
use crate::icmp;
use crate::receivers::Service;
use bartizan_testkit::packet::{ACK, FIN, PSH, RST, SYN, URG};

/// The forbidden text with urgent bytes, which Linux removes from the stream or leaves in it.
pub(super) fn urgent(made: &mut Made<'_>) -> Play {
    made.service = *made.random.pick(&[Service::Raw, Service::Raw, Service::Http, Service::Tls]);
    let (evil, _) = payload::pair(made.service, made.random);
    let word = made.service.forbidden();
    let at = evil.windows(word.len()).position(|window| window == word).unwrap_or(0);
    // Cuts inside the word; each part may have an urgent byte at its end, or elsewhere.
    let mut cuts: Vec<usize> =
        (0..made.random.within(1, 3)).map(|_| at + made.random.within(0, word.len())).collect();
    cuts.push(evil.len());
    cuts.sort_unstable();
    cuts.dedup();
    let (mut data, mut steps, mut begin) = (Vec::new(), Vec::new(), 0);
    for cut in cuts {
        let mut load = evil[begin..cut].to_vec();
        begin = cut;
        let mut step = Step { flags: ACK | PSH, offset: data.len() as i64, ..Step::default() };
        if made.random.percent(75) {
            let place = if made.random.percent(70) { load.len() } else { made.random.within(0, load.len()) };
            load.insert(place, *made.random.pick(b"XYZ"));
            step.flags |= URG;
            step.urgptr = match made.random.below(8) {
                // After the byte, as Linux reads the pointer; at the byte, as RFC 1122 does.
                0..=5 => place as u16 + 1,
                6 => place as u16,
                _ => (load.len() + made.random.below(20)) as u16,
            };
        }
        step.wait = *made.random.pick(&[0, 0, 1, 4]);
        data.extend_from_slice(&load);
        step.load = load;
        steps.push(step);
    }
    if made.random.percent(30) {
        made.random.shuffle(&mut steps);
    }
    if made.random.percent(25) {
        // A pointer without data, before or after the rest.
        let offset = made.random.below(data.len()) as i64;
        let urgptr = made.random.within(0, 40) as u16;
        let place = made.random.below(steps.len() + 1);
        steps.insert(place, Step { flags: ACK | URG, offset, urgptr, ..Step::default() });
    }
    made.note =
        steps.iter().map(|step| format!("{}+{}:{}; ", step.offset, step.load.len(), step.urgptr)).collect();
    let mut client = made.client_of(data.clone(), data);
    client.style = Style::Script(steps);
    Play::Tcp(Box::new(client))
}

/// Decoys with timestamps, or duplicate options, for which Linux discards a segment or does not.
pub(super) fn times(made: &mut Made<'_>) -> Play {
    made.tcp_service();
    let mut client = made.client();
    client.timestamps = made.random.percent(85);
    let all = client.truth.len();
    let mut steps = Vec::new();
    for _ in 0..made.random.within(1, 4) {
        let begin = if made.random.percent(70) { 0 } else { made.random.below(all) };
        let end = made.random.within(begin + 1, all);
        let load = if made.random.percent(70) { &client.lie } else { &client.truth };
        let mut step = Step {
            flags: ACK | PSH,
            offset: begin as i64,
            load: load[begin..end].to_vec(),
            ..Step::default()
        };
        step.age = *made.random.pick(&[0, 0, 1, 2, 1000, 1 << 31, (1 << 31) - 1, u32::MAX, u32::MAX - 1000]);
        step.wait = *made.random.pick(&[0, 0, 1, 5]);
        if made.random.percent(50) {
            // Linux takes the last option of its kind; an odd list takes Linux's slow path.
            let stamp = |value: u32| (8, [value.to_be_bytes(), [0; 4]].concat());
            let old = *made.random.pick(&[1u32, 999_000, 1 << 31]);
            let new = 1_000_000 + made.random.below(5000) as u32;
            let lists = [
                vec![stamp(old), stamp(new)],
                vec![stamp(new), stamp(old)],
                vec![stamp(new), (0, vec![]), stamp(old)],
                vec![stamp(old), (1, vec![]), (8, vec![1, 2, 3]), (1, vec![])],
                vec![(8, vec![0; 9]), stamp(new)],
                vec![(1, vec![]), stamp(old), (1, vec![])],
                vec![(19, vec![7; 15]), stamp(new)],
                vec![(19, vec![1; 16])],
                vec![(29, vec![0, 0, 1, 2, 3, 4, 5, 6])],
                vec![(5, vec![0, 0, 0, 1, 0, 0, 0, 9]), stamp(new)],
                vec![(30, vec![0x20, 0])],
            ];
            step.options = Some(made.random.pick(&lists).clone());
        }
        made.note.push_str(&format!("{begin}..{end} age {} {:?}; ", step.age, step.options));
        steps.push(step);
    }
    client.style = Style::Script(steps);
    Play::Tcp(Box::new(client))
}

/// Data with the SYN, for listeners that accept it (RFC 7413): once, twice with other content, with faults.
pub(super) fn syn_data(made: &mut Made<'_>) -> Play {
    made.tcp_service();
    let mut client = made.client();
    let all = client.truth.len();
    let part = if made.random.percent(40) { all } else { made.random.within(1, all) };
    client.syn_load = client.truth[..part].to_vec();
    if made.random.percent(30) {
        client.syn_load = client.lie[..part].to_vec();
    }
    if made.random.percent(40) {
        let length = made.random.within(1, all);
        let load = if made.random.percent(60) {
            client.lie[..length].to_vec()
        } else {
            client.truth[..length].to_vec()
        };
        let flags = SYN | *made.random.pick(&[0, 0, 8, 1, 0x20, 0x10, 4]);
        let far = *made.random.pick(&[0, 0, 0, 1, u32::MAX, 1000]);
        client.opening.push(Opening { far, flags, load, first: made.random.percent(60) });
    }
    if made.random.percent(40) {
        let cookie = made.random.bytes(8);
        let options: [Vec<u8>; 4] = [
            vec![34, 2],
            [&[34, 10][..], &cookie].concat(),
            vec![34, 6, 1, 2, 3, 4],
            vec![254, 4, 0xf9, 0x89],
        ];
        client.raw_options[0] = made.random.pick(&options).clone();
    }
    made.note = format!("{part} of {all} bytes with the SYN; more: {:?}", client.opening);
    Play::Tcp(Box::new(client))
}

/// A connection, and another one right after it over the same ports; either of them may be the forbidden one.
pub(super) fn again(made: &mut Made<'_>) -> Play {
    made.tcp_service();
    let mut first = made.client();
    let mut second = made.client();
    match made.random.below(3) {
        0 => std::mem::swap(&mut first.truth, &mut first.lie),
        1 => {
            std::mem::swap(&mut first.truth, &mut first.lie);
            first.style = Style::Rough(made.random.within(1, 6));
        }
        _ => {}
    }
    second.isn = match made.random.below(5) {
        0 => first.isn.wrapping_add(1 + made.random.below(70_000) as u32),
        1 => first.isn.wrapping_sub(1 + made.random.below(70_000) as u32),
        2 => first.isn,
        3 => first.isn.wrapping_add(first.truth.len() as u32 + 1),
        _ => second.isn,
    };
    if made.random.percent(30) {
        // The first connection never ends.
        first.silent = true;
    }
    if made.random.percent(30) {
        let part = made.random.within(1, second.truth.len());
        second.syn_load = second.truth[..part].to_vec();
    }
    first.patience = *made.random.pick(&[1500, 60, 150]);
    made.note =
        format!("first numbers {} and {}, first given up after {} ms", first.isn, second.isn, first.patience);
    first.next = Some(Box::new(second));
    Play::Tcp(Box::new(first))
}

/// Packets that belong to no connection, before the one that opens on their ports. Receivers answer them with
/// a RST and keep no state.
pub(super) fn strays(made: &mut Made<'_>) -> Play {
    made.tcp_service();
    let mut client = made.client();
    for _ in 0..made.random.within(1, 3) {
        let flags =
            *made.random.pick(&[ACK, ACK | PSH, SYN | ACK, RST, RST | ACK, FIN, FIN | ACK, SYN | FIN, 0]);
        let load = match made.random.below(3) {
            0 => client.lie.clone(),
            1 => made.random.letters(20),
            _ => Vec::new(),
        };
        let anywhere = made.random.draw() as u32;
        let far = *made.random.pick(&[0, 1, 70_000, 1 << 31, anywhere]);
        client.opening.push(Opening { far, flags, load, first: true });
    }
    made.note = format!("{:?}", client.opening);
    Play::Tcp(Box::new(client))
}

/// ICMP errors about the connection before its data, between its parts, and after them.
pub(super) fn icmp_errors(made: &mut Made<'_>) -> Play {
    made.tcp_service();
    let mut client = made.client();
    let all = client.truth.len();
    let cut = made.random.within(1, all);
    let mut steps = Vec::new();
    for (begin, end) in [(0, cut), (cut, all)] {
        for _ in 0..made.random.within(0, 2) {
            let error = icmp::Error::any(made.random);
            made.note.push_str(&format!("{error:?} before {begin}; "));
            steps.push(Step { icmp: Some(error), wait: made.random.below(2) as u64, ..Step::default() });
        }
        let load = client.truth[begin..end].to_vec();
        steps.push(Step {
            flags: ACK | PSH,
            offset: begin as i64,
            load,
            wait: made.random.below(3) as u64,
            ..Step::default()
        });
    }
    client.style = Style::Script(steps);
    Play::Tcp(Box::new(client))
}

/// A receiver with a small window that reads late: data beyond the window is discarded, and comes again with
/// other content.
pub(super) fn windows(made: &mut Made<'_>) -> Play {
    made.service = Service::Slow;
    let length = made.random.within(3000, 9000);
    let lie = made.random.letters(length);
    let mut truth = lie.clone();
    let mark = made.service.forbidden();
    let at = made.random.within(500, length - mark.len());
    truth[at..at + mark.len()].copy_from_slice(mark);
    let mut client = made.client_of(truth, lie);
    let mut steps = Vec::new();
    let mut begin = 0;
    while begin < length {
        let end = (begin + made.random.within(200, 1400)).min(length);
        let load = if made.random.percent(65) { &client.lie } else { &client.truth };
        let wait = *made.random.pick(&[0, 0, 0, 1, 20]);
        steps.push(Step {
            flags: ACK | PSH,
            offset: begin as i64,
            load: load[begin..end].to_vec(),
            wait,
            ..Step::default()
        });
        begin = if made.random.percent(20) { begin } else { end };
    }
    made.note = format!("{length} bytes, forbidden ones at {at}");
    client.style = Style::Script(steps);
    Play::Tcp(Box::new(client))
}
