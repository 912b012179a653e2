// SPDX-License-Identifier: Apache-2.0
//! The AF_PACKET ports on veth pairs in a network namespace of their own (needs root; without, it prints so
//! and returns).

use crate::common;

use bartizan_packet::DecoderConfig;
use bartizan_ports::{
    AfterHeaders, Batch, FrameFlags, FrameInfo, HeaderLayer, InlineOptions, InlinePair, InlinePort, Offload,
    OpenError, PairSide, PassiveOptions, PassivePort, Port, PortError, SendRefusal, SnapLength, TransmitPath,
    Waker, Woke, offloads_on, wait_any,
};
use bartizan_testkit::layers::vxlan;
use bartizan_testkit::packet::{ACK, Datagram, Ip, Segment, address, udp};
use common::{frame, in_namespace, ip, tagged_frame, veth};
use std::time::{Duration, Instant};

const PATHS: [TransmitPath; 2] = [TransmitPath::Ring, TransmitPath::Calls];

fn options(transmit: TransmitPath) -> InlineOptions {
    InlineOptions { frames: 256, transmit_frames: 256, transmit, ..Default::default() }
}

/// Receives at a port until `count` frames came or two seconds went by.
fn collect(port: &mut dyn Port, count: usize) -> Vec<Vec<u8>> {
    let mut batch = Batch::with_capacity(64);
    let mut frames = Vec::new();
    let end = Instant::now() + Duration::from_secs(2);
    while frames.len() < count && Instant::now() < end {
        port.receive(&mut batch).unwrap();
        frames.extend(batch.indices().map(|i| batch.bytes(i).unwrap().to_vec()));
        if batch.is_empty() {
            wait_any(&mut [&mut *port], None, Duration::ZERO, Duration::from_millis(20)).unwrap();
        }
    }
    frames
}

/// Receives at a port until no frame came for a while (a block is handed over within 10 ms).
fn drain(port: &mut PassivePort) -> Vec<Vec<u8>> {
    let mut batch = Batch::with_capacity(64);
    let mut frames = Vec::new();
    let mut quiet = 0;
    while quiet < 5 {
        quiet = if port.receive(&mut batch).unwrap() > 0 { 0 } else { quiet + 1 };
        frames.extend(batch.indices().map(|i| batch.bytes(i).unwrap().to_vec()));
        batch.clear();
        if quiet > 0 {
            wait_any(&mut [&mut *port], None, Duration::ZERO, Duration::from_millis(20)).unwrap();
        }
    }
    frames
}

/// Sends all frames, as many a batch as fit.
fn send(port: &mut dyn Port, frames: &[Vec<u8>]) {
    let mut batch = Batch::with_capacity(32);
    for chunk in frames.chunks(32) {
        batch.clear();
        for frame in chunk {
            assert!(batch.push_copy(frame, Default::default()));
        }
        batch.forward_all();
        assert_eq!(port.transmit(&mut batch), chunk.len());
        port.flush().unwrap();
    }
}

/// Client a0, middle a1 and b1, server b0.
fn bench(mtu: u32, transmit: TransmitPath) -> (InlinePort, InlinePair, InlinePort) {
    veth("a0", "a1", mtu);
    veth("b0", "b1", mtu);
    let options = options(transmit);
    let client = InlinePort::open("a0", &options).unwrap();
    let (pair, _) = InlinePair::open("a1", "b1", &options, false).unwrap();
    let server = InlinePort::open("b0", &options).unwrap();
    (client, pair, server)
}

/// Forwards frames from one side until `count` frames passed or two seconds went by.
fn forward(pair: &mut InlinePair, side: PairSide, count: usize) {
    let mut batch = Batch::with_capacity(50);
    let (mut passed, end) = (0, Instant::now() + Duration::from_secs(2));
    while passed < count && Instant::now() < end {
        let (ingress, egress) = pair.direction(side);
        passed += ingress.receive(&mut batch).unwrap();
        batch.forward_all();
        egress.transmit(&mut batch);
        egress.flush().unwrap();
        batch.clear();
    }
}

fn both_ways(mtu: u32, transmit: TransmitPath, frames: Vec<Vec<u8>>) {
    in_namespace(move || {
        let (mut client, mut pair, mut server) = bench(mtu, transmit);
        for side in PairSide::BOTH {
            let (from, to) = match side {
                PairSide::A => (&mut client, &mut server),
                PairSide::B => (&mut server, &mut client),
            };
            send(from, &frames);
            forward(&mut pair, side, frames.len());
            let arrived = collect(to, frames.len());
            assert_eq!(arrived.len(), frames.len());
            assert!(arrived == frames, "frames leave as they came, in order");
        }
        for side in PairSide::BOTH {
            let stats = pair.port(side).stats();
            assert_eq!(stats.received, frames.len() as u64);
            assert_eq!(stats.ring_received, stats.received);
            assert_eq!((stats.sent, stats.send_failures.total()), (frames.len() as u64, 0));
            assert_eq!(stats.sent_bytes, frames.iter().map(|f| f.len() as u64).sum::<u64>());
            assert_eq!((stats.ring_dropped, stats.oversized, stats.skipped), (0, 0, 0));
        }
    });
}

#[test]
fn frames_pass_unchanged_both_ways() {
    for path in PATHS {
        both_ways(1500, path, (0..200).map(|n| frame(n, 60 + n as usize * 7)).collect());
    }
}

#[test]
fn vlan_tags_pass_unchanged() {
    let tags: [&[(u16, u16)]; 4] =
        [&[(0x8100, 0x2064)], &[(0x8100, 5), (0x8100, 6)], &[(0x88a8, 0xe00a), (0x8100, 7)], &[(0x8100, 0)]];
    for path in PATHS {
        both_ways(1500, path, (0..120).map(|n| tagged_frame(n, 200, tags[n as usize % 4])).collect());
    }
    // As long as the MTU allows: 1500 bytes after Ethernet header and one tag.
    both_ways(1500, TransmitPath::Ring, vec![tagged_frame(1, 1518, &[(0x8100, 9)])]);
}

#[test]
fn jumbo_frames_pass_unchanged() {
    for path in PATHS {
        both_ways(9000, path, (0..100).map(|n| frame(n, 9014 - n as usize)).collect());
    }
}

#[test]
fn the_largest_frames_pass_unchanged() {
    for path in PATHS {
        both_ways(65_517, path, (0..20).map(|n| frame(n, 65_531 - n as usize * 1000)).collect());
    }
    both_ways(65_517, TransmitPath::Ring, vec![tagged_frame(1, 65_535, &[(0x8100, 9)])]);
}

#[test]
fn every_frame_is_received_or_counted_as_dropped() {
    in_namespace(|| {
        veth("a0", "a1", 1500);
        let mut sender = InlinePort::open("a0", &options(TransmitPath::Ring)).unwrap();
        let mut inline = InlinePort::open("a1", &options(TransmitPath::Ring)).unwrap();
        let small = PassiveOptions { block_size: 128 << 10, blocks: 2, ..Default::default() };
        let mut passive = PassivePort::open("a1", &small).unwrap();
        let frames: Vec<Vec<u8>> = (0..1000).map(|n| frame(n, 1000)).collect();
        send(&mut sender, &frames);
        let first = collect(&mut inline, 1000);
        let seen = collect(&mut passive, 1000);
        let stats = inline.stats();
        assert_eq!(first.len(), 256, "as many as the ring has slots");
        assert_eq!((stats.ring_dropped, stats.received), (1000 - 256, 256));
        assert!(first == frames[..256]);
        let stats = passive.stats();
        assert_eq!(stats.received + stats.ring_dropped, 1000);
        assert_eq!(stats.received, seen.len() as u64);
        assert!(stats.received > 100 && stats.ring_dropped > 100, "{stats:?}");
        // The ring works on after it was full, many rounds.
        for round in 0..20 {
            let frames: Vec<Vec<u8>> = (0..100).map(|n| frame(round * 100 + n, 400)).collect();
            send(&mut sender, &frames);
            assert!(collect(&mut inline, 100) == frames);
            assert!(collect(&mut passive, 100) == frames);
        }
        assert_eq!(inline.stats().received, 2256);
        assert_eq!(sender.stats().sent, 3000);
    });
}

#[test]
fn passive_capture_restores_tags_and_reports_sizes() {
    in_namespace(|| {
        veth("a0", "a1", 9000);
        let mut sender = InlinePort::open("a0", &options(TransmitPath::Ring)).unwrap();
        let mut tap = PassivePort::open("a1", &PassiveOptions::default()).unwrap();
        let frames = vec![
            tagged_frame(1, 9018, &[(0x8100, 0x6003)]),
            tagged_frame(2, 100, &[(0x88a8, 1), (0x8100, 2)]),
            frame(3, 9014),
        ];
        let before = tap.now();
        send(&mut sender, &frames);
        let mut batch = Batch::with_capacity(2);
        let mut seen = Vec::new();
        let end = Instant::now() + Duration::from_secs(2);
        while seen.len() < 3 && Instant::now() < end {
            tap.receive(&mut batch).unwrap();
            for i in batch.indices() {
                let info = batch.info(i).unwrap();
                let tagged = info.flags.contains(FrameFlags::VLAN_RESTORED);
                assert!(info.timestamp >= before && info.timestamp <= tap.now());
                seen.push((batch.bytes(i).unwrap().to_vec(), info.wire_length as usize, tagged));
            }
        }
        let expected: Vec<_> = frames
            .into_iter()
            .enumerate()
            .map(|(i, f)| {
                let length = f.len();
                (f, length, i < 2)
            })
            .collect();
        assert!(seen == expected);
        let mut held = Batch::with_capacity(2);
        held.push_copy(&frame(1, 60), Default::default());
        held.forward_all();
        assert_eq!(tap.transmit(&mut held), 0, "a tap cannot send");
        assert_eq!(tap.stats().send_failures.get(SendRefusal::ReceiveOnly), 1);
    });
}

/// A frame whose destination is another address.
fn to(address: [u8; 6], mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&address);
    frame
}

#[test]
fn frames_are_counted_by_their_destination_in_both_directions() {
    const GROUPS: [[u8; 6]; 2] = [[0x33, 0x33, 0, 0, 0, 1], [1, 0, 0x5e, 0, 0, 9]];
    for path in PATHS {
        in_namespace(move || {
            let (mut client, mut pair, mut server) = bench(1500, path);
            let mut frames: Vec<_> = (0..5).map(|n| frame(n, 100)).collect();
            frames.extend((0..7).map(|n| to(GROUPS[n % 2], frame(10 + n as u32, 200))));
            frames.extend((0..3).map(|n| to([0xff; 6], tagged_frame(20 + n, 300, &[(0x8100, 5)]))));
            let octets = 5 * 100 + 7 * 200 + 3 * 300;
            send(&mut client, &frames);
            forward(&mut pair, PairSide::A, frames.len());
            assert!(collect(&mut server, frames.len()) == frames);
            let (came, left) = (pair.port(PairSide::A).stats(), pair.port(PairSide::B).stats());
            for (bytes, casts) in [
                (client.stats().sent_bytes, client.stats().sent_casts),
                (came.received_bytes, came.received_casts),
                (left.sent_bytes, left.sent_casts),
                (server.stats().received_bytes, server.stats().received_casts),
            ] {
                assert_eq!((bytes, casts), (octets, [5, 7, 3]));
            }
            assert_eq!((came.sent_casts, left.received_casts), ([0; 3], [0; 3]));
            // One frame that is in no batch, as the normaliser's.
            server.transmit_frame(&to([0xff; 6], frame(1, 60))).unwrap();
            server.flush().unwrap();
            assert_eq!((server.stats().sent_casts, server.stats().sent_bytes), ([0, 0, 1], 60));
        });
    }
}

/// The kernel runs the program that counts from the end of headers: the captured length of each frame.
#[test]
fn a_snap_length_from_behind_headers_is_cut_by_the_kernel() {
    in_namespace(|| {
        veth("a0", "a1", 1500);
        let mut sender = InlinePort::open("a0", &options(TransmitPath::Ring)).unwrap();
        let load = [7; 600];
        let tcp = |v6: bool, ip: &dyn Fn(&mut Ip)| {
            let mut around = Ip::new(address(v6, 1), address(v6, 2), 6);
            ip(&mut around);
            around.frame(&Segment::new((40_000, 80), (1, 2), ACK, &load).bytes(&around), None)
        };
        let udp_to =
            |port: u16, load: &[u8]| udp((address(false, 3), 9), (address(false, 4), port), load).frame();
        let inside = tcp(true, &|_| {});
        let fragments = Ip { id: 7, ..Ip::new(address(false, 1), address(false, 2), 17) };
        let fragments = fragments.fragment_frames(&Datagram::new((1, 2), &[3; 1_000]).bytes(&fragments), 504);
        let extension = |ip: &mut Ip| ip.extensions = vec![(60, vec![0, 1, 4, 0, 0, 0, 0])];
        let ethernet =
            |kind: u16, length: usize| [&frame(1, 60)[..12], &kind.to_be_bytes(), &vec![1; length]].concat();
        // Each frame, and how much of it is headers.
        let mut cases = vec![
            (tcp(false, &|_| {}), Some(54)),
            (tcp(false, &|ip| ip.options = vec![1; 40]), Some(94)),
            (tcp(true, &|_| {}), Some(74)),
            (tcp(true, &extension), Some(82)),
            (tcp(false, &|ip| ip.tags = vec![5]), Some(58)),
            (tcp(true, &|ip| ip.tags = vec![5, 6]), Some(82)),
            (udp_to(53, &load), Some(42)),
            (udp_to(4_789, &vxlan(5, &inside)), Some(42 + 8 + 74)),
            (ethernet(0x0806, 46), None),
            (ethernet(0x88cc, 400), None),
            // Shorter than the headers and what may follow.
            (udp_to(53, &[1; 20]), Some(42)),
        ];
        cases.extend(
            fragments.iter().zip([42, 34, 34]).map(|(frame, headers)| (frame.clone(), Some(headers))),
        );
        let frames: Vec<_> = cases.iter().map(|(frame, _)| frame.clone()).collect();
        let filter = bartizan_ports::PacketFilter::compile("not port 53", 1).ok();
        let mut tunnels = DecoderConfig::default();
        tunnels.gtp.enabled = true;
        for (workers, max, filter) in
            [(1, None, None), (2, None, None), (1, Some(128), filter.as_ref()), (2, None, filter.as_ref())]
        {
            let after = AfterHeaders { layer: HeaderLayer::Transport, bytes: 32, max, tunnels };
            let snap_length = Some(SnapLength::Headers(after));
            let options = PassiveOptions { snap_length, filter, blocks: 4, ..Default::default() };
            let spread = bartizan_base::Spread::new([1, 2], workers);
            let mut taps = PassivePort::open_group("a1", &options, &spread).unwrap();
            send(&mut sender, &frames);
            let mut seen: Vec<_> = taps.iter_mut().flat_map(drain).collect();
            let wanted = |frame: &[u8]| filter.is_none() || frame.get(36..38) != Some(&[0, 53]);
            let expected = cases.iter().filter(|(frame, _)| wanted(frame)).map(|(frame, headers)| {
                let most = max.map_or(usize::MAX, |max| max as usize);
                // A tag that the kernel takes out does not count.
                let taken_out = if frame.get(12..14) == Some(&[0x81, 0]) { 4 } else { 0 };
                let kept = headers.map_or(most, |headers| most.min(headers - taken_out + 32));
                frame[..frame.len().min(kept.saturating_add(taken_out))].to_vec()
            });
            let mut expected: Vec<_> = expected.collect();
            let cut = cases.iter().filter(|(frame, _)| wanted(frame)).zip(&expected);
            let cut = cut.filter(|((frame, _), kept)| kept.len() < frame.len()).count() as u64;
            seen.sort_unstable();
            expected.sort_unstable();
            let lengths = |frames: &[Vec<u8>]| frames.iter().map(Vec::len).collect::<Vec<_>>();
            assert!(seen == expected, "{workers} {max:?}: {:?} {:?}", lengths(&seen), lengths(&expected));
            let stats = taps.iter_mut().map(|tap| tap.stats()).reduce(|sum, one| sum.plus(&one)).unwrap();
            assert_eq!((stats.cut(), stats.received), (cut, expected.len() as u64));
            // Octets are those of the wire.
            let octets: usize = frames.iter().filter(|frame| wanted(frame)).map(Vec::len).sum();
            assert_eq!(stats.received_bytes, octets as u64);
        }
    });
}

#[test]
fn what_this_host_sends_is_seen_only_when_asked_for() {
    in_namespace(|| {
        veth("a0", "a1", 1500);
        // With the queueing discipline in the way sent frames reach the taps.
        let slow = InlineOptions { qdisc_bypass: false, ..options(TransmitPath::Ring) };
        let mut sender = InlinePort::open("a0", &slow).unwrap();
        let mut all = PassivePort::open("a0", &PassiveOptions::default()).unwrap();
        let mut incoming =
            PassivePort::open("a0", &PassiveOptions { outgoing: false, ..Default::default() }).unwrap();
        send(&mut sender, &[frame(1, 60), frame(2, 60)]);
        assert_eq!(collect(&mut all, 2).len(), 2);
        assert_eq!(incoming.stats().ring_received, 0);
        assert_eq!(sender.stats().ring_received, 0);
    });
}

#[test]
fn frames_larger_than_a_slot_are_fetched_whole() {
    in_namespace(|| {
        veth("a0", "a1", 9000);
        let mut sender = InlinePort::open("a0", &options(TransmitPath::Ring)).unwrap();
        let small = InlineOptions { slot_room: Some(1514), ..options(TransmitPath::Ring) };
        let mut receiver = InlinePort::open("a1", &small).unwrap();
        let frames: Vec<Vec<u8>> = (0..60)
            .map(|n| match n % 3 {
                0 => frame(n, 9000),
                1 => frame(n, 100),
                _ => tagged_frame(n, 8000, &[(0x8100, 77)]),
            })
            .collect();
        send(&mut sender, &frames);
        assert!(collect(&mut receiver, 60) == frames);
        let stats = receiver.stats();
        assert_eq!((stats.oversized, stats.copied), (40, 40));
    });
}

#[test]
fn frames_that_cannot_leave_are_refused_with_the_reason() {
    for path in PATHS {
        in_namespace(move || {
            veth("a0", "a1", 1500);
            let mut sender = InlinePort::open("a0", &options(path)).unwrap();
            let mut receiver = InlinePort::open("a1", &options(path)).unwrap();
            assert_eq!(sender.transmit_frame(&[0; 13]), Err(SendRefusal::TooShort));
            assert_eq!(sender.transmit_frame(&frame(1, 1515)), Err(SendRefusal::TooLarge));
            let mut cut = Batch::with_capacity(1);
            cut.push_copy(&frame(1, 60), FrameInfo { flags: FrameFlags::TRUNCATED, ..Default::default() });
            cut.forward_all();
            assert_eq!(sender.transmit(&mut cut), 0);
            // The MTU becomes smaller under the open port: the kernel refuses the second frame, not those
            // around it.
            ip("link set dev a0 mtu 1000");
            ip("link set dev a1 mtu 1000");
            let frames = [frame(1, 900), frame(2, 1400), frame(3, 901), frame(4, 902)];
            let mut batch = Batch::with_capacity(8);
            for frame in &frames {
                batch.push_copy(frame, Default::default());
            }
            batch.forward_all();
            sender.transmit(&mut batch);
            sender.flush().unwrap();
            assert_eq!(collect(&mut receiver, 3), [frame(1, 900), frame(3, 901), frame(4, 902)]);
            // Down: nothing waits for better times.
            ip("link set dev a0 down");
            batch.forward_all();
            sender.transmit(&mut batch);
            sender.flush().unwrap();
            assert_eq!(sender.pending(), 0);
            ip("link set dev a0 up");
            send(&mut sender, &[frame(5, 70)]);
            let last = collect(&mut receiver, 1);
            assert_eq!(last, [frame(5, 70)]);
            let stats = sender.stats();
            let failures = stats.send_failures;
            assert_eq!(failures.get(SendRefusal::Incomplete), 1);
            assert_eq!(failures.get(SendRefusal::TooShort), 1);
            assert_eq!(failures.get(SendRefusal::TooLarge), 2);
            assert_eq!(failures.get(SendRefusal::DeviceDown), 4);
            assert_eq!(stats.sent + failures.total(), 3 + 4 + 4 + 1, "{stats:?}");
        });
    }
}

/// Has the ports of a pair take turns until both have this MTU.
fn until_mtu(pair: &mut InlinePair, mtu: u32) {
    let mut batch = Batch::with_capacity(4);
    let end = Instant::now() + Duration::from_secs(10);
    while PairSide::BOTH.into_iter().any(|side| pair.port(side).mtu() != mtu) {
        assert!(Instant::now() < end, "the ports do not follow to {mtu}");
        for side in PairSide::BOTH {
            pair.direction(side).0.receive(&mut batch).unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn ports_follow_an_mtu_that_is_changed_while_they_are_open() {
    for path in PATHS {
        in_namespace(move || {
            let (client, mut pair, server) = bench(1500, path);
            drop((client, server));
            let set = |mtu: u32| {
                ["a0", "a1", "b0", "b1"].iter().for_each(|end| ip(&format!("link set dev {end} mtu {mtu}")))
            };
            let pass = |pair: &mut InlinePair, frames: &[Vec<u8>], passed: &[Vec<u8>]| {
                let open = |name| InlinePort::open(name, &options(path)).unwrap();
                let (mut client, mut server) = (open("a0"), open("b0"));
                send(&mut client, frames);
                forward(pair, PairSide::A, frames.len());
                assert!(collect(&mut server, passed.len()) == passed);
                send(&mut server, frames);
                forward(pair, PairSide::B, frames.len());
                assert!(collect(&mut client, passed.len()) == passed);
            };
            let tagged = tagged_frame(3, 9010, &[(0x8100, 77)]);
            let frames = [frame(1, 100), frame(2, 9014), tagged, frame(4, 1514)];
            for _ in 0..2 {
                // Larger frames go on as they came.
                set(9000);
                until_mtu(&mut pair, 9000);
                pass(&mut pair, &frames, &frames);
                // Smaller: what no longer fits is refused here, with its reason.
                ["a1", "b1"].iter().for_each(|end| ip(&format!("link set dev {end} mtu 1500")));
                until_mtu(&mut pair, 1500);
                let before = PairSide::BOTH
                    .map(|side| pair.port(side).stats().send_failures.get(SendRefusal::TooLarge));
                for side in PairSide::BOTH {
                    let port = pair.port(side);
                    assert_eq!(port.transmit_frame(&frame(9, 9014)), Err(SendRefusal::TooLarge));
                    assert_eq!(port.transmit_frame(&frame(9, 1514)), Ok(()));
                    port.flush().unwrap();
                }
                let after = PairSide::BOTH
                    .map(|side| pair.port(side).stats().send_failures.get(SendRefusal::TooLarge));
                assert_eq!(after, before.map(|count| count + 1));
            }
            // Back to where it was, all of it as before.
            set(1500);
            pass(&mut pair, &frames[..1], &frames[..1]);
        });
    }
}

#[test]
fn a_tap_shows_frames_of_an_mtu_that_was_raised() {
    in_namespace(|| {
        veth("a0", "a1", 1500);
        let mut tap = PassivePort::open("a1", &PassiveOptions::default()).unwrap();
        ["a0", "a1"].iter().for_each(|end| ip(&format!("link set dev {end} mtu 9000")));
        let mut sender = InlinePort::open("a0", &options(TransmitPath::Ring)).unwrap();
        let frames = [frame(1, 9014), frame(2, 1514), frame(3, 60)];
        send(&mut sender, &frames);
        assert!(drain(&mut tap) == frames);
        assert_eq!((tap.stats().cut(), tap.stats().ring_dropped), (0, 0));
    });
}

#[test]
fn a_peer_that_is_down_does_not_block_the_ring() {
    for path in PATHS {
        in_namespace(move || {
            veth("a0", "a1", 1500);
            let mut sender = InlinePort::open("a0", &options(path)).unwrap();
            ip("link set dev a1 down");
            let frames: Vec<Vec<u8>> = (0..40).map(|n| frame(n, 100)).collect();
            let mut batch = Batch::with_capacity(64);
            for frame in &frames {
                batch.push_copy(frame, Default::default());
            }
            batch.forward_all();
            sender.transmit(&mut batch);
            sender.flush().unwrap();
            assert_eq!(sender.pending(), 0);
            let stats = sender.stats();
            assert_eq!(stats.sent + stats.send_failures.total(), 40, "{stats:?}");
            assert!(stats.send_failures.total() > 0);
        });
    }
}

#[test]
fn fanout_gives_each_frame_to_one_port() {
    in_namespace(|| {
        use bartizan_ports::{Fanout, FanoutMode};
        veth("a0", "a1", 1500);
        let mut sender = InlinePort::open("a0", &options(TransmitPath::Ring)).unwrap();
        let fanout = Fanout { group: 7, mode: FanoutMode::LoadBalance, defragment: false };
        let shared = PassiveOptions { fanout: Some(fanout), ..Default::default() };
        let mut first = PassivePort::open("a1", &shared).unwrap();
        let mut second = PassivePort::open("a1", &shared).unwrap();
        let other = Fanout { mode: FanoutMode::Hash, ..fanout };
        assert!(PassivePort::open("a1", &PassiveOptions { fanout: Some(other), ..shared }).is_err());
        let frames: Vec<Vec<u8>> = (0..100).map(|n| frame(n, 100)).collect();
        send(&mut sender, &frames);
        let (a, b) = (collect(&mut first, 50), collect(&mut second, 50));
        assert_eq!((a.len(), b.len()), (50, 50));
        let mut all = [a, b].concat();
        all.sort();
        let mut expected = frames;
        expected.sort();
        assert!(all == expected);
    });
}

/// A UDP frame between hosts by number, with a VLAN tag or without.
fn udp_frame(v6: bool, (source, destination): (u8, u8), ports: (u16, u16), tag: bool) -> Vec<u8> {
    let address =
        |host| if v6 { [0xfd00, 0, 0, 0, 0, 0, 0, u16::from(host)].into() } else { address(false, host) };
    let mut packet = udp((address(source), ports.0), (address(destination), ports.1), &[7; 18]);
    packet.ip.tags.extend(tag.then_some(9));
    packet.frame()
}

#[test]
fn a_group_gives_each_flow_to_the_port_of_its_owner_from_both_sides() {
    in_namespace(|| {
        use bartizan_base::spread::{SpreadPorts, VirtualNetwork};
        use bartizan_base::{LinkId, Spread};
        use std::net::IpAddr;
        veth("a0", "a1", 1500);
        veth("b0", "b1", 1500);
        let options = options(TransmitPath::Ring);
        let mut client = InlinePort::open("a0", &options).unwrap();
        let mut server = InlinePort::open("b0", &options).unwrap();
        let spread = Spread::new([8, 9], 3).of_link(LinkId(2));
        let (mut pairs, _) = InlinePair::open_group("a1", "b1", &options, &spread, false).unwrap();
        assert_eq!(pairs.len(), 3);
        let (mut there, mut back) = (Vec::new(), Vec::new());
        let mut expected = [0usize; 3];
        for number in 0..120u16 {
            let (v6, tag, host) = (number % 2 == 1, number % 3 == 1, (number % 50) as u8);
            let address = |host: u8| {
                if v6 {
                    IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(host)])
                } else {
                    IpAddr::from([10, 0, 0, host])
                }
            };
            there.push(udp_frame(v6, (host, 200), (1000 + number, 53), tag));
            back.push(udp_frame(v6, (200, host), (53, 1000 + number), tag));
            let part = SpreadPorts::Ports(1000 + number, 53);
            let network = VirtualNetwork { vlans: [if tag { 9 } else { 0 }, 0, 0], tunnel: 0 };
            expected[usize::from(spread.worker_in(network, address(host), address(200), part))] += 1;
        }
        assert!(expected.iter().all(|n| *n > 10), "{expected:?}");
        send(&mut client, &there);
        send(&mut server, &back);
        for (pair, count) in pairs.iter_mut().zip(expected) {
            for (side, frames) in [(PairSide::A, &there), (PairSide::B, &back)] {
                let got = collect(pair.port(side), count);
                assert_eq!(got.len(), count);
                assert!(got.iter().all(|frame| frames.contains(frame)));
                assert!(!pair.port(side).ready(), "no frame comes twice");
                // The group sees nothing of what its members send.
                let mut batch = Batch::with_capacity(64);
                for frame in &got {
                    if !batch.push_copy(frame, Default::default()) {
                        break;
                    }
                }
                batch.forward_all();
                let (_, egress) = pair.direction(side);
                egress.transmit(&mut batch);
                egress.flush().unwrap();
            }
        }
        for pair in &mut pairs {
            for side in PairSide::BOTH {
                assert!(!pair.port(side).ready());
                assert_eq!(pair.port(side).stats().skipped, 0);
            }
        }
        // Two groups on one interface are two: each gets everything.
        let (more, _) = InlinePair::open_group("a1", "b1", &options, &spread, false).unwrap();
        assert_eq!(more.len(), 3);
    });
}

#[test]
fn a_passive_group_sees_every_frame_once() {
    in_namespace(|| {
        use bartizan_base::Spread;
        veth("a0", "a1", 1500);
        let mut sender = InlinePort::open("a0", &options(TransmitPath::Ring)).unwrap();
        let spread = Spread::new([3, 4], 4);
        for outgoing in [true, false] {
            let options = PassiveOptions { blocks: 4, outgoing, ..Default::default() };
            let mut group = PassivePort::open_group("a1", &options, &spread).unwrap();
            assert_eq!(group.len(), 4);
            let mut local =
                InlinePort::open("a1", &InlineOptions { qdisc_bypass: false, ..Default::default() }).unwrap();
            let flow = |number: u16| udp_frame(number % 2 == 1, (number as u8, 200), (number, 53), false);
            let there: Vec<Vec<u8>> = (0..100).map(flow).collect();
            // What this host sends itself.
            let own: Vec<Vec<u8>> = (100..150).map(flow).collect();
            send(&mut sender, &there);
            send(&mut local, &own);
            let mut all: Vec<Vec<u8>> = group.iter_mut().flat_map(drain).collect();
            let mut expected = if outgoing { [there, own].concat() } else { there };
            all.sort();
            expected.sort();
            assert_eq!(all.len(), expected.len());
            assert!(all == expected);
        }
    });
}

#[test]
fn a_ring_has_one_batch_at_a_time() {
    in_namespace(|| {
        veth("a0", "a1", 1500);
        let mut sender = InlinePort::open("a0", &options(TransmitPath::Ring)).unwrap();
        let mut receiver = InlinePort::open("a1", &options(TransmitPath::Ring)).unwrap();
        send(&mut sender, &[frame(1, 60), frame(2, 60), frame(3, 60)]);
        let (mut one, mut two) = (Batch::with_capacity(2), Batch::with_capacity(2));
        assert_eq!(receiver.receive(&mut one).unwrap(), 2);
        assert!(matches!(receiver.receive(&mut two), Err(PortError::BatchHeld { .. })));
        one.bytes_mut(0).unwrap()[20] = 99;
        assert_eq!(one.bytes(0).unwrap()[20], 99, "rewritten in the ring");
        drop(one);
        assert_eq!(receiver.receive(&mut two).unwrap(), 1);
        drop(receiver);
        assert_eq!(two.bytes(0), Some(&frame(3, 60)[..]), "a batch outlives its port");
    });
}

#[test]
fn sleeping_ends_with_packets_calls_and_time() {
    in_namespace(|| {
        veth("a0", "a1", 1500);
        let mut sender = InlinePort::open("a0", &options(TransmitPath::Ring)).unwrap();
        let mut receiver = InlinePort::open("a1", &options(TransmitPath::Ring)).unwrap();
        let waker = Waker::new().unwrap();
        let spin = Duration::from_micros(20);
        let short = Duration::from_millis(5);
        let wait = |receiver: &mut InlinePort| wait_any(&mut [receiver], Some(&waker), spin, short).unwrap();
        assert_eq!(wait(&mut receiver), Woke::Timeout);
        waker.wake();
        assert_eq!(wait(&mut receiver), Woke::Called);
        assert_eq!(wait(&mut receiver), Woke::Timeout, "a call counts once");
        send(&mut sender, &[frame(1, 60)]);
        assert_eq!(wait(&mut receiver), Woke::Packets);
        assert_eq!(collect(&mut receiver, 1).len(), 1);
        // Really asleep, without a waker, beside another port.
        let sleeps = receiver.stats().sleeps;
        veth("c0", "c1", 1500);
        let mut other = InlinePort::open("c0", &options(TransmitPath::Ring)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                send(&mut sender, &[frame(2, 60)]);
            });
            let both = &mut [&mut other as &mut dyn Port, &mut receiver];
            let long = Duration::from_secs(20);
            let begin = Instant::now();
            assert_eq!(wait_any(both, None, Duration::ZERO, long).unwrap(), Woke::Packets);
            assert!(begin.elapsed() < long / 2, "woken by the packet, not by the time");
        });
        assert_eq!(receiver.stats().sleeps, sleeps + 1);
        let (before, after) = (receiver.now(), receiver.now());
        assert!(after >= before);
    });
}

#[test]
fn an_interface_that_goes_down_or_away_is_told_apart() {
    in_namespace(|| {
        veth("a0", "a1", 1500);
        veth("b0", "b1", 1500);
        let mut port = InlinePort::open("a1", &options(TransmitPath::Ring)).unwrap();
        let wait =
            |port: &mut InlinePort| wait_any(&mut [port], None, Duration::ZERO, Duration::from_millis(50));
        ip("link set dev a1 down");
        wait(&mut port).unwrap();
        assert_eq!(port.stats().went_down, 1);
        ip("link set dev a1 up");
        let mut sender = InlinePort::open("a0", &options(TransmitPath::Ring)).unwrap();
        send(&mut sender, &[frame(1, 60)]);
        assert_eq!(collect(&mut port, 1).len(), 1, "it works again when the interface is up");
        ip("link del a1");
        assert!(matches!(wait(&mut port), Err(PortError::Gone { .. })));
    });
}

#[test]
fn a_port_that_cannot_work_is_refused_with_the_remedy() {
    in_namespace(|| {
        veth("lan0", "lan1", 1500);
        veth("wan0", "wan1", 9000);
        ip("link add idle0 type veth peer name idle1");
        veth("big0", "big1", 65_535);
        let defaults = InlineOptions { frames: 64, transmit_frames: 64, ..Default::default() };
        let open = |name: &str| InlinePort::open(name, &defaults).map(|_| ()).unwrap_err().to_string();
        assert!(open("lna1").contains("did you mean `lan"), "{}", open("lna1"));
        assert!(open("idle0").contains("`ip link set dev idle0 up`"), "{}", open("idle0"));
        assert!(open("big0").contains("mtu 65517"), "{}", open("big0"));
        let pair = InlinePair::open("lan1", "wan1", &defaults, false).map(|_| ()).unwrap_err();
        assert!(matches!(pair, OpenError::MtuMismatch { .. }));
        assert!(pair.to_string().contains("ip link set dev wan1 mtu 1500"), "{pair}");
        assert!(InlinePair::open("lan1", "wan1", &defaults, true).is_ok());
        assert!(matches!(
            InlinePair::open("lan1", "lan1", &defaults, false).map(|_| ()),
            Err(OpenError::SameInterface { .. })
        ));
        let huge = InlineOptions { frames: 1 << 20, ..defaults };
        match InlinePort::open("wan1", &InlineOptions { frames: 5, ..huge }).map(|_| ()) {
            Err(OpenError::Option { option: "frames", .. }) => {}
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn offloads_are_reported_and_can_be_switched_off_for_the_ports_life() {
    in_namespace(|| {
        veth("a0", "a1", 1500);
        let before = offloads_on("a1");
        assert!(before.contains(&Offload::Tso), "veth has segmentation offload on: {before:?}");
        let warned = InlinePort::open("a1", &options(TransmitPath::Ring)).unwrap();
        let text: Vec<String> = warned.warnings().iter().map(ToString::to_string).collect();
        assert!(text[0].contains("ethtool -K a1 tx off tso off"), "{text:?}");
        drop(warned);
        let fixing = InlineOptions { fix_offloads: true, ..options(TransmitPath::Ring) };
        let port = InlinePort::open("a1", &fixing).unwrap();
        assert!(port.warnings().is_empty(), "{:?}", port.warnings());
        assert!(offloads_on("a1").is_empty());
        drop(port);
        assert_eq!(offloads_on("a1"), before, "as it was");
    });
}

#[test]
fn loopback_shows_each_packet_once() {
    in_namespace(|| {
        ip("link set dev lo up");
        let mut tap = PassivePort::open("lo", &PassiveOptions::default()).unwrap();
        assert!(tap.warnings().iter().any(|w| w.to_string().contains("65517")), "the MTU of lo is 65536");
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        for length in [10usize, 1400, 60_000] {
            socket.send_to(&vec![7; length], to).unwrap();
        }
        let seen: Vec<usize> = collect(&mut tap, 3).iter().map(Vec::len).collect();
        assert_eq!(seen, [10 + 42, 1400 + 42, 60_000 + 42]);
        assert_eq!(tap.stats().ring_received, 3);
    });
}

#[test]
fn a_missing_checksum_is_flagged_and_counted() {
    in_namespace(|| {
        // The other end's kernel leaves UDP checksums to a device that does not exist.
        veth("a0", "a1", 1500);
        ip("addr add 10.9.9.1/24 dev a0");
        ip("neigh add 10.9.9.2 lladdr 02:00:00:00:00:09 dev a0");
        let mut receiver = InlinePort::open("a1", &options(TransmitPath::Ring)).unwrap();
        let socket = std::net::UdpSocket::bind("10.9.9.1:0").unwrap();
        socket.send_to(b"hello", "10.9.9.2:9").unwrap();
        let end = Instant::now() + Duration::from_secs(2);
        let mut batch = Batch::with_capacity(8);
        while receiver.receive(&mut batch).unwrap() == 0 && Instant::now() < end {}
        assert!(batch.info(0).unwrap().flags.contains(FrameFlags::CHECKSUM_PENDING));
        assert_eq!(receiver.stats().checksum_pending, 1);
    });
}
