// SPDX-License-Identifier: Apache-2.0
//! Hand-over between stations: every packet once, at its owner, in order; full rings counted exactly; the end
//! found.

use crate::common;

use bartizan_base::{LinkId, Reason, Timestamp};
use bartizan_dataplane::handover::{Handled, Station, connect};
use bartizan_dataplane::worker::{Frame, Worker};
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit::layers::{tagged, vxlan};
use common::{Bench, Captured, Nothing, Seen, Shape, bench, ethernet, ip, marked, udp};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

fn stations(bench: &Bench, count: usize, parcels: usize) -> Vec<Station> {
    stations_with(bench, &bench.engine_settings, count, parcels)
}

fn stations_with(bench: &Bench, settings: &EngineSettings, count: usize, parcels: usize) -> Vec<Station> {
    let workers = (0..count)
        .map(|_| Worker::new(settings.clone(), Arc::clone(&bench.engine), Arc::clone(&bench.chains)).unwrap())
        .collect();
    connect(workers, settings, parcels)
}

fn captured(bytes: Vec<u8>, millis: u64) -> Captured {
    Captured { now: Timestamp::from_nanos(1_000_000_000 + millis * 1_000_000), bytes }
}

/// As [`stations`], in live prevention.
fn preventing(bench: &Bench, count: usize, parcels: usize) -> Vec<Station> {
    stations_with(bench, &bench.engine_settings.clone().for_real_receivers(true), count, parcels)
}

/// Fragments that had been held and leave now.
fn released(worker: &mut Worker) -> u64 {
    let mut frame = Vec::new();
    let mut left = 0;
    while let Some((tag, _)) = worker.take_released(&mut frame) {
        assert!(!frame.is_empty() && (tag == 5 || tag == 0));
        left += 1;
    }
    left
}

/// Lets all stations take messages until none is left. Returns the frames that left.
fn settle(stations: &mut [Station]) -> u64 {
    let mut left = 0;
    loop {
        let mut taken = 0;
        for station in stations.iter_mut() {
            taken += station.handed_over(100, &mut Nothing, |worker, _, decision, _| {
                left += released(worker) + u64::from(decision.verdict.forwards());
            });
        }
        if taken == 0 {
            return left;
        }
    }
}

/// Sums over stations: packets, forwarded, refused, handed over, taken.
fn sums(stations: &[Station]) -> (u64, u64, u64, u64, u64) {
    let mut sums = (0, 0, 0, 0, 0);
    for station in stations {
        let worker = station.worker().counters();
        sums.0 += worker.packets;
        sums.1 += worker.forwarded;
        sums.2 += worker.refused.iter().sum::<u64>();
        let counters = station.counters();
        assert_eq!(counters.refused, worker.refused[Reason::HandOverRing as usize]);
        sums.3 += counters.handed_over;
        sums.4 += counters.taken;
    }
    sums
}

fn shapes() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Plain),
        Just(Shape::Fragmented),
        Just(Shape::Tunnel),
        Just(Shape::FragmentedTunnel),
    ]
}

fn check_owners(seen: &[Seen]) {
    let mut owner = HashMap::new();
    for packet in seen {
        let Some(flow) = packet.flow else { continue };
        let first = *owner.entry((flow, packet.protocol, packet.level)).or_insert(packet.worker);
        assert_eq!(first, packet.worker, "{packet:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// All packets of a flow have one form and arrive at one station, fragments at any; stations take at
    /// random times.
    #[test]
    fn every_packet_is_handled_once_by_its_owner(
        packets in prop::collection::vec((0u32..10, any::<u8>(), 0usize..4), 1..100),
        kinds in prop::collection::vec((any::<bool>(), shapes()), 10),
        count in 1usize..5,
        prevention in any::<bool>(),
    ) {
        let bench = bench(prevention, "no");
        let mut stations =
            if prevention { preventing(&bench, count, 4_000) } else { stations(&bench, count, 4_000) };
        let mut sent: HashMap<u32, u32> = HashMap::new();
        let (mut frames, mut left) = (0u64, 0u64);
        for (millis, (flow, chance, budget)) in (0u64..).zip(packets) {
            let (v6, shape) = kinds[flow as usize];
            let number = sent.entry(flow).or_default();
            for (piece, bytes) in marked(v6, flow, *number, shape).into_iter().enumerate() {
                frames += 1;
                let arrival = match shape {
                    Shape::Plain | Shape::Tunnel => flow as usize % count,
                    _ => (usize::from(chance) + piece) % count,
                };
                let frame = captured(bytes, millis);
                if let Handled::Here(decision) =
                    stations[arrival].frame(&frame.frame(frames), 5, &mut Nothing)
                {
                    left += u64::from(decision.verdict.forwards());
                }
                left += released(stations[arrival].worker_mut());
            }
            *number += 1;
            let turn = usize::from(chance) % count;
            stations[turn].handed_over(budget, &mut Nothing, |worker, frame, decision, tag| {
                assert!(!frame.bytes.is_empty());
                assert_eq!(tag, 5);
                left += released(worker) + u64::from(decision.verdict.forwards());
            });
        }
        left += settle(&mut stations);
        let (packets, forwarded, refused, handed, taken) = sums(&stations);
        prop_assert_eq!((packets, forwarded, refused), (frames, frames, 0));
        prop_assert_eq!(left, frames);
        prop_assert_eq!(handed, taken);
        let seen = bench.seen.lock().unwrap();
        check_owners(&seen);
        // Once each; in order where a flow's packets come by one way.
        let mut got: HashMap<u32, Vec<u32>> = HashMap::new();
        for (flow, number) in seen.iter().filter_map(|p| p.mark) {
            got.entry(flow).or_default().push(number);
        }
        for (flow, numbers) in &mut got {
            if matches!(kinds[*flow as usize].1, Shape::Fragmented | Shape::FragmentedTunnel) {
                numbers.sort_unstable();
            }
            let expected: Vec<u32> = (0..sent[flow]).collect();
            prop_assert_eq!(&*numbers, &expected, "flow {}", flow);
        }
        prop_assert_eq!(got.len(), sent.len());
    }

    /// Few parcels, and stations that do not take: frames that do not fit are refused, and the sums are
    /// exact.
    #[test]
    fn what_a_full_ring_refuses_is_counted_exactly(
        flows in prop::collection::vec(0u32..30, 1..200),
        parcels in 1usize..6,
        take_every in 1usize..40,
    ) {
        let bench = bench(false, "no");
        let mut stations = stations(&bench, 3, parcels);
        let mut here = 0u64;
        let mut refused_here = 0u64;
        let mut left = 0u64;
        for (index, flow) in flows.iter().enumerate() {
            for bytes in marked(flow % 2 == 1, *flow, index as u32, Shape::Plain) {
                let frame = captured(bytes, 0);
                match stations[index % 3].frame(&frame.frame(1), 0, &mut Nothing) {
                    Handled::Here(decision) if decision.verdict.forwards() => here += 1,
                    Handled::Here(decision) => {
                        prop_assert_eq!(decision.reason, Some(Reason::HandOverRing));
                        refused_here += 1;
                    }
                    Handled::Away(_) | Handled::Held => {}
                }
            }
            if index % take_every == 0 {
                left += settle(&mut stations);
            }
        }
        left += settle(&mut stations);
        let (packets, forwarded, refused, handed, taken) = sums(&stations);
        prop_assert_eq!(packets, flows.len() as u64);
        prop_assert_eq!(forwarded + refused, packets);
        prop_assert_eq!(refused, refused_here);
        prop_assert_eq!(forwarded, here + left);
        prop_assert_eq!(handed, taken);
        prop_assert_eq!(bench.seen.lock().unwrap().len() as u64, forwarded);
        if take_every == 39 && flows.len() > 100 {
            prop_assert!(refused > 0);
        }
    }
}

#[test]
fn two_parcels_carry_two_frames_and_come_home() {
    let bench = bench(false, "no");
    let mut stations = stations(&bench, 2, 2);
    // A flow of the other station's.
    let flow = (0..)
        .find(|flow| {
            let frame = captured(marked(false, *flow, 0, Shape::Plain).remove(0), 0);
            let away = matches!(stations[0].frame(&frame.frame(1), 0, &mut Nothing), Handled::Away(_));
            settle(&mut stations);
            away
        })
        .unwrap();
    let before = sums(&stations);
    for round in 1..=3u64 {
        let handled: Vec<bool> = (0..10)
            .map(|number| {
                let frame = captured(marked(false, flow, number, Shape::Plain).remove(0), 0);
                matches!(stations[0].frame(&frame.frame(1), 0, &mut Nothing), Handled::Away(_))
            })
            .collect();
        assert_eq!(handled, [[true; 2].as_slice(), [false; 8].as_slice()].concat());
        assert_eq!(settle(&mut stations), 2);
        let now = sums(&stations);
        assert_eq!(
            (now.0 - before.0, now.1 - before.1, now.2 - before.2),
            (10 * round, 2 * round, 8 * round)
        );
        assert_eq!(stations[0].counters().refused, 8 * round);
    }
}

/// A frame whose inner packet belongs to one station and whose outer one to another, to arrive at the first.
fn two_owners(stations: &mut [Station]) -> (Captured, usize, usize) {
    for flow in 0..200 {
        let frame = captured(marked(false, flow, 0, Shape::Tunnel).remove(0), u64::from(flow));
        for first in [0, 1] {
            let before = stations[first].worker().counters().packets;
            let handled = stations[first].frame(&frame.frame(1), 0, &mut Nothing);
            assert_eq!(stations[first].worker().counters().packets, before + 1);
            let second = 1 - first;
            let on = matches!(handled, Handled::Away(_));
            let mut back = false;
            stations[second].handed_over(1, &mut Nothing, |_, _, _, _| back = true);
            settle(stations);
            // It ended at the second, and the first has seen the inner packet.
            if on && back && !stations[first].worker().flows().ids().is_empty() {
                return (frame, first, second);
            }
        }
    }
    panic!("no flow of two owners");
}

#[test]
fn a_frame_has_one_generation_whatever_its_owners_run() {
    let bench = bench(false, "no");
    let mut stations = stations(&bench, 2, 8);
    let (frame, first, second) = two_owners(&mut stations);
    let weak: Vec<_> = (2..5)
        .map(|number| {
            let next = common::chains(number, &bench.seen);
            let weak = Arc::downgrade(&next);
            bench.seen.lock().unwrap().clear();
            if number == 2 {
                // The second is ahead when it gets the rest of the frame.
                stations[first].frame(&frame.frame(1), 0, &mut Nothing);
                stations[second].worker_mut().enter_generation(next);
            } else {
                // The first is ahead, by two in the end.
                stations[first].worker_mut().enter_generation(next);
                stations[first].frame(&frame.frame(1), 0, &mut Nothing);
            }
            assert_eq!(settle(&mut stations), 1);
            let seen: Vec<_> = bench.seen.lock().unwrap().iter().map(|s| (s.level, s.generation)).collect();
            let expected = if number == 2 { 1 } else { number };
            assert_eq!(seen, [(1, expected), (0, expected)]);
            assert_eq!(stations[second].worker().generation().0, 2);
            weak
        })
        .collect();
    // Nobody keeps what no worker runs.
    let counts: Vec<_> = weak.iter().map(std::sync::Weak::strong_count).collect();
    assert_eq!(counts, [1, 0, 1]);
}

#[test]
fn nothing_of_a_datagram_leaves_while_another_worker_decides() {
    let bench = bench(true, "no");
    let mut stations = preventing(&bench, 2, 64);
    let (mut held, mut passed) = (0, 0);
    for flow in 0..40u32 {
        let refuse = flow % 2 == 0;
        let word: &[u8] = if refuse { b"drop" } else { b"" };
        let frames = common::marked_saying(flow % 4 > 1, flow, 0, Shape::Fragmented, word);
        let (last, others) = frames.split_last().unwrap();
        let arrive = |stations: &mut [Station], bytes: &[u8]| {
            let frame = captured(bytes.to_vec(), u64::from(flow));
            let here = match stations[0].frame(&frame.frame(1), 0, &mut Nothing) {
                Handled::Here(decision) => u64::from(decision.verdict.forwards()),
                Handled::Away(_) | Handled::Held => 0,
            };
            released(stations[0].worker_mut()) + here
        };
        for bytes in others {
            let left = arrive(&mut stations, bytes) + settle(&mut stations);
            assert_eq!(left, 0);
        }
        let now = arrive(&mut stations, last);
        // The owner of the fragments has it whole; nobody has let the owner of the flow decide yet.
        let mut left = 0;
        stations[1].handed_over(1, &mut Nothing, |worker, _, decision, _| {
            left += released(worker) + u64::from(decision.verdict.forwards());
        });
        let again = arrive(&mut stations, last);
        left += settle(&mut stations);
        if refuse {
            assert_eq!((now, again, left), (0, 0, 0), "flow {flow}");
            held += 1;
        } else {
            assert_eq!(now + again + left, frames.len() as u64, "flow {flow}");
            // Afterwards the id is taken for a while.
            assert_eq!(arrive(&mut stations, &others[0]) + settle(&mut stations), 0, "flow {flow}");
            passed += 1;
        }
    }
    assert_eq!((held, passed), (20, 20));
    for station in &mut stations {
        station.worker_mut().shutdown(&mut Nothing);
    }
    let (packets, forwarded, refused, handed, taken) = sums(&stations);
    assert_eq!(packets, forwarded + refused);
    assert_eq!(handed, taken);
}

#[test]
fn threads_hand_over_to_each_other_and_find_the_end() {
    let bench = bench(false, "no");
    let count = 3;
    let per_station = 400u32;
    let mut threads = Vec::new();
    for (index, mut station) in (0u32..).zip(stations(&bench, count, 64)) {
        threads.push(std::thread::spawn(move || {
            let mut touched = 0;
            for number in 0..per_station {
                // Fragments of these flows come to all stations, a station's own flows to itself.
                let flow = index * 7 + number % 7;
                let shape =
                    [Shape::Plain, Shape::Tunnel, Shape::Plain, Shape::Fragmented][number as usize % 4];
                for bytes in marked(number % 2 == 1, flow, number, shape) {
                    let frame = captured(bytes, u64::from(number));
                    station.frame(&frame.frame(1), 0, &mut Nothing);
                }
                touched |= station.take_touched();
                station.handed_over(8, &mut Nothing, |_, _, _, _| {});
            }
            station.close();
            while !station.is_over() {
                if station.handed_over(64, &mut Nothing, |_, _, _, _| {}) == 0 {
                    std::thread::yield_now();
                }
            }
            assert_ne!(touched, 0);
            assert_eq!(touched & 1 << index, 0);
            station.worker_mut().shutdown(&mut Nothing);
            station
        }));
    }
    let stations: Vec<Station> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    let (packets, forwarded, refused, handed, taken) = sums(&stations);
    assert!(packets > u64::from(per_station) * 3 && handed > 0);
    assert_eq!(forwarded + refused, packets);
    assert_eq!(handed, taken);
    let seen = bench.seen.lock().unwrap();
    check_owners(&seen);
}

#[test]
fn link_vlans_and_tunnels_choose_the_home_and_packets_meet_there() {
    for (v6, vlan_in_key) in [(false, true), (true, true), (true, false)] {
        let bench = bench(false, "no");
        let settings = EngineSettings { vlan_in_key, ..bench.engine_settings.clone() };
        let mut stations = stations_with(&bench, &settings, 4, 64);
        let packet = ip(v6, (1, 2), 17, &udp((7, 9), b"hello"));
        let carried = |vni: u32| {
            let inner = vxlan(vni, &ethernet(v6, &packet));
            ethernet(v6, &ip(v6, (8, 9), 17, &udp((5_000, 4789), &inner)))
        };
        let mut frames: Vec<Vec<u8>> = (1..=40).map(|id| tagged(id, ethernet(v6, &packet))).collect();
        frames.extend((1..=40).map(carried));
        for bytes in frames {
            for station in 0..4 {
                for link in 0..3 {
                    let frame = captured(bytes.clone(), 1);
                    let frame = Frame { link: LinkId(link), ..frame.frame(1) };
                    stations[station].frame(&frame, 0, &mut Nothing);
                    settle(&mut stations);
                }
            }
        }
        // A flow's packets were handled at its home, whichever station they came to; those of the frames that
        // carry others, too.
        let mut homes: HashMap<&str, [usize; 4]> = HashMap::new();
        for (index, station) in stations.iter().enumerate() {
            for (_, entry) in station.worker().flows().iter() {
                let (key, scope) = (entry.key(), entry.key().scope());
                assert_eq!(station.owners().home(key), Some(station.id()), "{key:?}");
                let packets = entry.packets.to_server;
                let way = match (scope.tunnel, scope.vlans) {
                    (0, [0, ..]) if key.destination_port() == 4789 => "around",
                    (0, [0, ..]) => "not told",
                    (0, _) => "vlan",
                    _ => "tunnel",
                };
                let expected = if way == "around" || way == "not told" { 160 } else { 4 };
                assert_eq!(packets, expected, "{way} {key:?}");
                homes.entry(way).or_default()[index] += 1;
            }
        }
        let flows = |way| homes.get(way).map_or(0, |homes| homes.iter().sum());
        let expected = if vlan_in_key { (120, 0) } else { (0, 3) };
        assert_eq!((flows("vlan"), flows("not told")), expected, "{homes:?}");
        assert_eq!((flows("tunnel"), flows("around")), (120, 3), "{homes:?}");
        let even = |way: &str| homes[way].iter().all(|count| (12..=50).contains(count));
        assert!(even("tunnel") && (!vlan_in_key || even("vlan")), "{homes:?}");
    }
}
