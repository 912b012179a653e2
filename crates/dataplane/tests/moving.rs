// SPDX-License-Identifier: Apache-2.0
//! Flows that move between stations: every packet once and in order, amounts exact, whatever moves when;
//! flows that end away, rings and tables that are full, errors about flows that have moved, tenants with
//! equal addresses.

use crate::common;

use bartizan_base::{Generation, LinkId, Path, TenantId, Timestamp, WorkerId};
use bartizan_classify::Header;
use bartizan_dataplane::captures::{Pool, PoolOptions};
use bartizan_dataplane::handover::{AWAY_MAX, Handled, Owners, Station, connect};
use bartizan_dataplane::worker::Worker;
use bartizan_flow::{FlowKey, FlowScope};
use bartizan_packet::Decoded;
use bartizan_stages::chain::{Chains, Class, FlowClassifier, HeaderRuleMatches};
use bartizan_stages::moving::NotMoved;
use bartizan_stages::quotas::{Quota, Quotas};
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit::layers::tagged;
use common::{Bench, Captured, Nothing, Shape, bench, ethernet, ip, ip_as_is, marked, tcp, udp, unreachable};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

const SYN: u8 = 2;
const ACK: u8 = 16;

fn stations_with(bench: &Bench, settings: &EngineSettings, count: usize, parcels: usize) -> Vec<Station> {
    let workers = (0..count)
        .map(|_| Worker::new(settings.clone(), Arc::clone(&bench.engine), Arc::clone(&bench.chains)).unwrap())
        .collect();
    connect(workers, settings, parcels)
}

fn stations(bench: &Bench, count: usize, parcels: usize) -> Vec<Station> {
    stations_with(bench, &bench.engine_settings, count, parcels)
}

fn captured(bytes: Vec<u8>, millis: u64) -> Captured {
    Captured { now: Timestamp::from_nanos(1_000_000_000 + millis * 1_000_000), bytes }
}

fn arrive(station: &mut Station, bytes: Vec<u8>, millis: u64) -> Handled {
    station.frame(&captured(bytes, millis).frame(1), 0, &mut Nothing)
}

/// Lets all stations take messages until none is left. Returns the frames that left.
fn settle(stations: &mut [Station]) -> u64 {
    let mut left = 0;
    loop {
        let mut taken = 0;
        for station in stations.iter_mut() {
            taken += take(station, 100, &mut left);
        }
        // What the last one said is heard by those before it.
        if taken == 0 && !stations.iter().any(Station::has_parcels) {
            return left;
        }
    }
}

fn take(station: &mut Station, budget: usize, left: &mut u64) -> usize {
    let mut frame = Vec::new();
    station.handed_over(budget, &mut Nothing, |worker, _, decision, _| {
        while worker.take_released(&mut frame).is_some() {
            *left += 1;
        }
        *left += u64::from(decision.verdict.forwards());
    })
}

/// Packets, bytes and state of each flow.
type Flows = BTreeMap<String, (u64, u64, String)>;

fn flows(stations: &[Station]) -> Flows {
    let mut all = Flows::new();
    for entry in stations.iter().flat_map(|station| station.worker().flows().iter().map(|(_, entry)| entry)) {
        let key = entry.key();
        let name = format!(
            "{} {}:{} {}:{} {} {:?}",
            key.protocol(),
            key.source(),
            key.source_port(),
            key.destination(),
            key.destination_port(),
            key.scope().level,
            // The tunnels' ends send by both sides.
            key.scope().side
        );
        let (packets, bytes) = (entry.packets, entry.bytes);
        let of = (packets.to_server + packets.to_client, bytes.to_server + bytes.to_client);
        let before = all.insert(name.clone(), (of.0, of.1, format!("{:?}", entry.state())));
        assert_eq!(before, None, "{name} is at two workers");
    }
    all
}

/// All counters and amounts, summed, that depend on traffic only.
fn sums(stations: &[Station]) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    for station in stations {
        station.worker().visit_stats(|name, value| *sums.entry(name).or_insert(0) += value);
    }
    // How full tables are, what was at most held at a time, and how often timers fired for flows that went
    // on.
    let other = [
        "flow.memuse",
        "defrag.memuse",
        "room",
        "peak",
        "limit",
        "memcap",
        "max",
        "avg",
        "flows_checked",
        "notimeout",
    ];
    sums.retain(|name, _| !other.iter().any(|part| name.contains(part)));
    sums
}

/// Counters whose sum over many workers differs from that of one.
fn differences(many: &[Station], one: &[Station]) -> Vec<(&'static str, u64, u64)> {
    let (many, one) = (sums(many), sums(one));
    assert!(many.keys().eq(one.keys()));
    many.into_iter().zip(one.into_values()).map(|((n, a), b)| (n, a, b)).filter(|(_, a, b)| a != b).collect()
}

/// The next packet of a TCP connection, of an HTTP client that asks and a server that answers.
fn conversation(v6: bool, flow: u32, number: u32) -> Vec<u8> {
    let request: &[u8] = b"GET /evil HTTP/1.1\r\nHost: example.org\r\n\r\n";
    let answer: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let (round, step) = (number.saturating_sub(3) / 3, number.saturating_sub(3) % 3);
    let (asked, answered) = (101 + round * request.len() as u32, 501 + round * answer.len() as u32);
    let (cut, asked_now) = (20u32, asked + request.len() as u32);
    let (from_client, seq, ack, flags, payload): (bool, u32, u32, u8, &[u8]) = match (number, step) {
        (0, _) => (true, 100, 0, SYN, b""),
        (1, _) => (false, 500, 101, SYN | ACK, b""),
        (2, _) => (true, 101, 501, ACK, b""),
        (_, 0) => (true, asked, answered, ACK, &request[..cut as usize]),
        (_, 1) => (true, asked + cut, answered, ACK, &request[cut as usize..]),
        _ => (false, answered, asked_now, ACK, answer),
    };
    let (ends, ports) = (((flow % 7) as u8 + 1, 90), (10_000 + flow as u16, 80));
    let (ends, ports) = if from_client { (ends, ports) } else { ((ends.1, ends.0), (ports.1, ports.0)) };
    ethernet(v6, &ip(v6, ends, 6, &tcp(ports, seq, ack, flags, payload)))
}

/// The next frames of a flow, each with the side that it comes from: a connection, datagrams in four shapes,
/// and errors about the plain ones.
fn next_frames(flow: u32, number: u32) -> Vec<(u32, Vec<u8>)> {
    let v6 = flow % 2 == 1;
    let shape = match flow / 2 % 6 {
        0 | 1 => {
            let by_server = number == 1 || number > 3 && number % 3 == 2;
            return vec![(by_server.into(), conversation(v6, flow, number))];
        }
        2 => Shape::Tunnel,
        3 => Shape::Fragmented,
        4 => Shape::FragmentedTunnel,
        _ => Shape::Plain,
    };
    let side = u32::from(number % 3 == 2);
    let mut frames: Vec<_> = marked(v6, flow, number, shape).into_iter().map(|bytes| (side, bytes)).collect();
    if shape == Shape::Plain && !v6 && number % 4 == 1 {
        // From the side to which the datagram went, about it.
        let quoted = &frames[0].1[14..];
        let error = ip(false, (quoted[19], quoted[15]), 1, &unreachable(quoted));
        frames.push((1 - side, ethernet(false, &error)));
    }
    frames
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// All frames of a flow arrive at one station; stations move flows and take when they like.
    #[test]
    fn flows_that_move_are_the_flows_of_one_worker(
        steps in prop::collection::vec((0u32..24, any::<u64>(), 0usize..4, any::<bool>()), 1..220),
        count in 2usize..5,
        prevention in any::<bool>(),
    ) {
        let bench = bench(prevention, "no");
        let mut live = bench.engine_settings.clone().for_real_receivers(prevention);
        if prevention {
            live = live.between_two_sides();
        }
        let mut many = stations_with(&bench, &live, count, 4_000);
        let alone = common::bench(prevention, "no");
        let mut one = stations_with(&alone, &live, 1, 4_000);
        let mut sent: HashMap<u32, u32> = HashMap::new();
        let (mut frames, mut left, mut left_of_one) = (0u64, 0u64, 0u64);
        let mut released = Vec::new();
        for (millis, (flow, chance, budget, moves)) in (0u64..).zip(steps) {
            let number = sent.entry(flow).or_default();
            for (side, bytes) in next_frames(flow, *number) {
                frames += 1;
                let frame = captured(bytes, millis);
                for (stations, left) in [(&mut many, &mut left), (&mut one, &mut left_of_one)] {
                    let at = flow as usize % stations.len();
                    let station = &mut stations[at];
                    if let Handled::Here(decision) = station.frame(&frame.frame(frames), side, &mut Nothing) {
                        *left += u64::from(decision.verdict.forwards());
                    }
                    while station.worker_mut().take_released(&mut released).is_some() {
                        *left += 1;
                    }
                }
            }
            *number += 1;
            if moves {
                // What cannot be moved now stays.
                let _ = many[chance as usize % count].move_at_random(chance.rotate_left(17));
            }
            take(&mut many[(chance >> 8) as usize % count], budget, &mut left);
        }
        left += settle(&mut many);
        left_of_one += settle(&mut one);
        prop_assert_eq!(flows(&many), flows(&one));
        prop_assert_eq!(differences(&many, &one), []);
        prop_assert_eq!((left, left_of_one), (frames, frames));
        let counters = many.iter().map(Station::counters).reduce(|a, b| a.plus(b)).unwrap();
        prop_assert_eq!((counters.handed_over, counters.refused), (counters.taken, 0));
        // Each once, and in order where a flow's packets come by one way.
        let order = |bench: &Bench| {
            let mut order: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for (flow, number) in bench.seen.lock().unwrap().iter().filter_map(|packet| packet.mark) {
                order.entry(flow).or_default().push(number);
            }
            order
        };
        prop_assert_eq!(order(&bench), order(&alone));
        let held = |stations: &[Station]| -> Vec<u64> {
            stations.iter().map(|s| s.worker().app_memory().used()).collect()
        };
        prop_assert_eq!(held(&many).iter().sum::<u64>(), held(&one)[0]);
        for station in many.iter_mut().chain(&mut one) {
            station.close();
        }
        prop_assert!(many.iter().chain(&one).all(Station::is_over));
        for station in many.iter_mut().chain(&mut one) {
            station.worker_mut().shutdown(&mut Nothing);
        }
        prop_assert_eq!(differences(&many, &one), []);
        prop_assert!(many.iter().all(|s| s.worker().flows().is_empty() && s.worker().app_memory().used() == 0));
    }

    /// Few parcels: frames that do not fit are refused and counted, refused moves have no effect, and
    /// everything comes to an end.
    #[test]
    fn moves_with_full_rings_lose_nothing_uncounted(
        steps in prop::collection::vec((0u32..12, any::<u64>(), 0usize..3), 1..150),
        parcels in 1usize..5,
    ) {
        let bench = bench(false, "no");
        let mut stations = stations(&bench, 3, parcels);
        let (mut frames, mut left) = (0u64, 0u64);
        for (number, (flow, chance, budget)) in (0u32..).zip(steps) {
            for bytes in marked(flow % 2 == 1, flow, number, Shape::Plain) {
                frames += 1;
                let at = flow as usize % 3;
                if let Handled::Here(decision) = arrive(&mut stations[at], bytes, number.into()) {
                    left += u64::from(decision.verdict.forwards());
                }
            }
            let _ = stations[chance as usize % 3].move_at_random(chance.rotate_left(17));
            take(&mut stations[(chance >> 8) as usize % 3], budget, &mut left);
        }
        left += settle(&mut stations);
        let counters = stations.iter().map(Station::counters).reduce(|a, b| a.plus(b)).unwrap();
        prop_assert_eq!(left + counters.refused, frames);
        prop_assert_eq!(counters.handed_over, counters.taken);
        prop_assert_eq!(bench.seen.lock().unwrap().len() as u64, left);
        // Whatever was handled is in one flow each.
        prop_assert_eq!(flows(&stations).values().map(|(packets, ..)| packets).sum::<u64>(), left);
        let mut last: HashMap<u32, u32> = HashMap::new();
        for (flow, number) in bench.seen.lock().unwrap().iter().filter_map(|packet| packet.mark) {
            let before = last.insert(flow, number);
            prop_assert!(before.is_none_or(|before| before < number), "flow {}", flow);
        }
        for station in &mut stations {
            station.close();
        }
        prop_assert!(stations.iter().all(Station::is_over));
    }
}

/// The key of a marked flow.
fn key_of(v6: bool, flow: u32) -> FlowKey {
    let end = |host: u8, port: u16| (bartizan_testkit::packet::address(v6, host), port);
    let (client, server) = (end((flow % 5) as u8 + 1, 1000 + flow as u16), end((flow % 3) as u8 + 100, 2000));
    FlowKey::ported(&FlowScope::default(), 17, client, server)
}

/// A flow whose home and first packet are at a station, and its key.
fn flow_at(stations: &mut [Station], v6: bool, home: usize) -> (u32, FlowKey) {
    let owners = stations[0].owners();
    let flow = (0..).find(|flow| owners.home(&key_of(v6, *flow)) == Some(WorkerId(home as u16))).unwrap();
    let handled = arrive(&mut stations[home], marked(v6, flow, 0, Shape::Plain).remove(0), 0);
    assert!(matches!(handled, Handled::Here(_)), "{handled:?}");
    assert_eq!(stations[home].worker().flows().len(), 1);
    (flow, key_of(v6, flow))
}

#[test]
fn the_home_of_a_key_is_where_its_packets_go() {
    let bench = bench(false, "no");
    let mut stations = stations(&bench, 4, 4_000);
    let mut frames: Vec<Vec<u8>> =
        (0..120).flat_map(|flow| next_frames(flow, flow / 40)).map(|(_, bytes)| bytes).collect();
    for host in 3..40 {
        for v6 in [false, true] {
            let echo = [if v6 { 128 } else { 8 }, 0, 0, 0, 0, 1, 0, 1];
            frames.push(ethernet(v6, &ip(v6, (host, 2), if v6 { 58 } else { 1 }, &echo)));
            frames.push(ethernet(v6, &ip_as_is(v6, (host, 2), 50, &[0, 0, 1, host, 0, 0, 0, 1, 9, 9, 9, 9])));
            frames.push(ethernet(
                v6,
                &ip_as_is(v6, (host, 2), 132, &[0, 7, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 4]),
            ));
        }
    }
    for (millis, bytes) in (0..).zip(frames) {
        arrive(&mut stations[0], bytes, millis);
        settle(&mut stations);
    }
    let mut protocols = std::collections::BTreeSet::new();
    for (number, station) in (0u16..).zip(&stations) {
        for (_, entry) in station.worker().flows().iter() {
            let key = entry.key();
            assert_eq!(station.owners().home(key), Some(WorkerId(number)), "{key:?}");
            protocols.insert(key.protocol());
        }
    }
    assert_eq!(protocols.into_iter().collect::<Vec<_>>(), [1, 6, 17, 47, 50, 58, 132]);
}

fn lens(stations: &[Station]) -> Vec<usize> {
    stations.iter().map(|station| station.worker().flows().len()).collect()
}

#[test]
fn a_flow_goes_to_another_worker_to_yet_another_and_home() {
    for v6 in [false, true] {
        let bench = bench(false, "no");
        let mut stations = stations(&bench, 3, 64);
        let (flow, key) = flow_at(&mut stations, v6, 0);
        let mut number = 1;
        for (to, at) in [(1, [0, 1, 0]), (2, [0, 0, 1]), (1, [0, 1, 0]), (0, [1, 0, 0]), (2, [0, 0, 1])] {
            stations[0].move_flow(&key, WorkerId(to)).unwrap();
            assert_eq!(stations[0].move_flow(&key, WorkerId(to)), Err(NotMoved::UnderWay));
            // One at home, one elsewhere, while it is on its way.
            for station in [0, 1] {
                let handled =
                    arrive(&mut stations[station], marked(v6, flow, number, Shape::Plain).remove(0), 5);
                assert!(matches!(handled, Handled::Away(_)), "{handled:?}");
                number += 1;
                assert_eq!(settle(&mut stations), 1);
            }
            assert_eq!(lens(&stations), at);
            assert_eq!(stations[0].flows_away(), usize::from(to != 0));
            assert_eq!(stations[0].move_flow(&key, WorkerId(to)), Err(NotMoved::There));
        }
        assert_eq!(stations[0].counters().moved, 6 - 1);
        let marks: Vec<u32> = bench.seen.lock().unwrap().iter().filter_map(|s| s.mark).map(|m| m.1).collect();
        assert_eq!(marks, (0..number).collect::<Vec<_>>());
        let packets: Vec<u64> = flows(&stations).values().map(|(packets, ..)| *packets).collect();
        assert_eq!(packets, [u64::from(number)]);
    }
}

#[test]
fn an_error_about_a_flow_finds_it_where_it_is() {
    for v6 in [false, true] {
        let bench = bench(false, "no");
        let mut stations = stations(&bench, 2, 64);
        let (flow, key) = flow_at(&mut stations, v6, 0);
        stations[0].move_flow(&key, WorkerId(1)).unwrap();
        settle(&mut stations);
        let datagram = marked(v6, flow, 0, Shape::Plain).remove(0);
        let (quoted, hosts) = (&datagram[14..], ((flow % 3) as u8 + 100, (flow % 5) as u8 + 1));
        let error = if v6 {
            ip(v6, hosts, 58, &[&[1, 4, 0, 0, 0, 0, 0, 0], quoted].concat())
        } else {
            ip(v6, hosts, 1, &unreachable(quoted))
        };
        for station in [0, 1] {
            arrive(&mut stations[station], ethernet(v6, &error), 5);
            settle(&mut stations);
        }
        assert_eq!(lens(&stations), [0, 1], "no flow of its own");
        let packets: Vec<u64> = flows(&stations).values().map(|(packets, ..)| *packets).collect();
        assert_eq!(packets, [3], "v6: {v6}");
        // The own flow of an error about nothing known has no home that its key would say.
        let own = FlowKey::icmp(&FlowScope::default(), 58, key.source(), key.destination(), 1, 4);
        if v6 {
            assert_eq!(stations[0].move_flow(&own, WorkerId(1)), Err(NotMoved::Kind));
        }
    }
}

/// Lets so much time pass at a station that its flows end.
fn end_flows(station: &mut Station, millis: u64) {
    let now = Timestamp::from_nanos(1_000_000_000 + millis * 1_000_000);
    while station.worker_mut().idle(now, &mut Nothing) {}
}

#[test]
fn a_flow_that_ends_elsewhere_is_not_away_any_more() {
    let bench = bench(false, "no");
    let mut stations = stations(&bench, 2, 64);
    let (flow, key) = flow_at(&mut stations, false, 0);
    stations[0].move_flow(&key, WorkerId(1)).unwrap();
    settle(&mut stations);
    assert_eq!((lens(&stations), stations[0].flows_away()), (vec![0, 1], 1));
    end_flows(&mut stations[1], 4_000_000);
    assert!(stations[1].has_parcels(), "home is to be told");
    settle(&mut stations);
    assert_eq!((lens(&stations), stations[0].flows_away()), (vec![0, 0], 0));
    // The next one of its key begins at home.
    let handled = arrive(&mut stations[0], marked(false, flow, 1, Shape::Plain).remove(0), 4_000_001);
    assert!(matches!(handled, Handled::Here(_)));
    assert_eq!(lens(&stations), [1, 0]);
}

#[test]
fn a_packet_on_its_way_when_its_flow_ends_opens_the_next_one_there() {
    let bench = bench(false, "no");
    for told_first in [false, true] {
        let mut stations = stations(&bench, 2, 64);
        let (flow, key) = flow_at(&mut stations, false, 0);
        stations[0].move_flow(&key, WorkerId(1)).unwrap();
        settle(&mut stations);
        end_flows(&mut stations[1], 4_000_000);
        if told_first {
            // The end is told; home does not hear it before it sends another packet.
            assert_eq!(stations[1].handed_over(0, &mut Nothing, |_, _, _, _| {}), 0);
        }
        let handled = arrive(&mut stations[0], marked(false, flow, 1, Shape::Plain).remove(0), 4_000_001);
        assert_eq!(handled, Handled::Away(WorkerId(1)));
        assert_eq!(settle(&mut stations), 1);
        assert_eq!((lens(&stations), stations[0].flows_away()), (vec![0, 1], 1), "{told_first}");
        // And it can be asked back.
        stations[0].move_flow(&key, WorkerId(0)).unwrap();
        settle(&mut stations);
        assert_eq!((lens(&stations), stations[0].flows_away()), (vec![1, 0], 0));
    }
}

#[test]
fn a_flow_that_is_asked_back_may_have_ended() {
    let bench = bench(false, "no");
    for told_first in [false, true] {
        let mut stations = stations(&bench, 2, 64);
        let (flow, key) = flow_at(&mut stations, false, 0);
        stations[0].move_flow(&key, WorkerId(1)).unwrap();
        settle(&mut stations);
        end_flows(&mut stations[1], 4_000_000);
        if told_first {
            stations[1].handed_over(0, &mut Nothing, |_, _, _, _| {});
        }
        stations[0].move_flow(&key, WorkerId(0)).unwrap();
        // It waits for the flow, which does not come.
        let handled = arrive(&mut stations[0], marked(false, flow, 1, Shape::Plain).remove(0), 4_000_001);
        assert!(matches!(handled, Handled::Away(_)));
        assert_eq!(settle(&mut stations), 1);
        assert_eq!((lens(&stations), stations[0].flows_away()), (vec![1, 0], 0), "{told_first}");
        stations.iter_mut().for_each(Station::close);
        assert!(stations.iter().all(Station::is_over));
    }
}

#[test]
fn what_cannot_be_moved_is_refused_and_counted() {
    let bench = bench(false, "no");
    let mut stations = stations(&bench, 2, 4);
    let (_, key) = flow_at(&mut stations, false, 0);
    let elsewhere =
        (0..).map(|flow| key_of(false, flow)).find(|key| stations[0].owners().home(key) == Some(WorkerId(1)));
    let unknown =
        (50..).map(|flow| key_of(true, flow)).find(|key| stations[0].owners().home(key) == Some(WorkerId(0)));
    let portless = FlowKey::ported(&FlowScope::default(), 6, (key.source(), 0), (key.destination(), 0));
    assert_eq!(stations[0].move_flow(&key, WorkerId(2)), Err(NotMoved::NoWorker));
    assert_eq!(stations[0].move_flow(&key, WorkerId(0)), Err(NotMoved::There));
    assert_eq!(stations[0].move_flow(&elsewhere.unwrap(), WorkerId(1)), Err(NotMoved::NotHome(WorkerId(1))));
    assert_eq!(stations[0].move_flow(&unknown.unwrap(), WorkerId(1)), Err(NotMoved::NoFlow));
    assert_eq!(stations[0].move_flow(&portless, WorkerId(1)), Err(NotMoved::Kind));
    // Four frames of the other one's flows fill the ring.
    let owners = stations[0].owners();
    let others = (0..).filter(|flow| owners.home(&key_of(false, *flow)) == Some(WorkerId(1)));
    for flow in others.take(4) {
        let handled = arrive(&mut stations[0], marked(false, flow, 0, Shape::Plain).remove(0), 1);
        assert_eq!(handled, Handled::Away(WorkerId(1)));
    }
    assert_eq!(stations[0].move_flow(&key, WorkerId(1)), Err(NotMoved::Ring));
    assert_eq!(stations[0].counters().moves_refused, 6);
    settle(&mut stations);
    stations[0].close();
    assert_eq!(stations[0].move_flow(&key, WorkerId(1)), Err(NotMoved::Ending));
    assert_eq!(lens(&stations), [1, 4]);
}

#[test]
fn a_worker_without_room_gives_a_flow_back_and_home_has_kept_its_room() {
    let bench = bench(false, "no");
    let small = EngineSettings { flow_capacity: 1, ..bench.engine_settings.clone() };
    let mut stations = stations_with(&bench, &small, 2, 64);
    let (flow, key) = flow_at(&mut stations, false, 0);
    // The other one's table is full of one flow.
    let other = (0..).find(|f| stations[0].owners().home(&key_of(false, *f)) == Some(WorkerId(1))).unwrap();
    arrive(&mut stations[1], marked(false, other, 0, Shape::Plain).remove(0), 0);
    stations[0].move_flow(&key, WorkerId(1)).unwrap();
    let handled = arrive(&mut stations[0], marked(false, flow, 1, Shape::Plain).remove(0), 1);
    assert!(matches!(handled, Handled::Away(_)));
    // Meanwhile another one of home's wants to begin, and finds no room.
    let third =
        (flow + 1..).find(|f| stations[0].owners().home(&key_of(false, *f)) == Some(WorkerId(0))).unwrap();
    arrive(&mut stations[0], marked(false, third, 0, Shape::Plain).remove(0), 2);
    assert_eq!(settle(&mut stations), 1);
    assert_eq!((lens(&stations), stations[0].flows_away()), (vec![1, 1], 0));
    assert_eq!((stations[0].counters().moved, stations[0].counters().moves_refused), (0, 1));
    assert_eq!(flows(&stations).values().map(|(packets, ..)| *packets).max(), Some(2));
    assert_eq!(stations[0].worker().counters().no_flow, 1);
}

/// The value of a station's counter.
fn held(station: &Station, what: &str) -> u64 {
    let mut held = None;
    station.worker().visit_stats(|name, value| {
        if name == what {
            held = Some(value);
        }
    });
    held.unwrap()
}

#[test]
fn what_does_not_fit_the_bounds_of_a_worker_is_given_back() {
    let bench = bench(false, "no");
    // Two streams with a hole fit, or two sessions; a third does not.
    let mut buffers = bench.engine_settings.clone();
    buffers.stream.reassembly.memcap = 6_000;
    let mut sessions = bench.engine_settings.clone();
    sessions.stream.memcap = 200 * 2;
    for (settings, what) in [(buffers, "tcp.reassembly_memuse"), (sessions, "tcp.memuse")] {
        for v6 in [false, true] {
            let mut stations = stations_with(&bench, &settings, 2, 64);
            let owners = stations[0].owners();
            let key = |flow: u32| {
                let end = |host: u8, port: u16| (bartizan_testkit::packet::address(v6, host), port);
                let scope = FlowScope::default();
                FlowKey::ported(&scope, 6, end((flow % 7) as u8 + 1, 10_000 + flow as u16), end(90, 80))
            };
            let of =
                |home: u16| (0..200u32).filter(move |flow| owners.home(&key(*flow)) == Some(WorkerId(home)));
            let (own, others) = (of(0).next().unwrap(), of(1).take(2));
            for (station, flow) in others.map(|flow| (1, flow)).chain([(0, own)]) {
                // The handshake, and the second half of the request.
                for number in [0, 1, 2, 4] {
                    arrive(&mut stations[station], conversation(v6, flow, number), number.into());
                }
            }
            let before = [held(&stations[0], what), held(&stations[1], what)];
            assert!(before[0] > 0 && before[1] == 2 * before[0], "{what}: {before:?}");
            stations[0].move_flow(&key(own), WorkerId(1)).unwrap();
            settle(&mut stations);
            assert_eq!([held(&stations[0], what), held(&stations[1], what)], before, "{what}");
            assert_eq!((lens(&stations), stations[0].counters().moves_refused), (vec![1, 2], 1), "{what}");
            // The other way there is room for one.
            let other = of(1).next().unwrap();
            stations[1].move_flow(&key(other), WorkerId(0)).unwrap();
            settle(&mut stations);
            assert_eq!(
                [held(&stations[0], what), held(&stations[1], what)],
                [before[1], before[0]],
                "{what}"
            );
            for station in &mut stations {
                station.worker_mut().shutdown(&mut Nothing);
                assert!(station.worker().flows().is_empty());
            }
        }
    }
}

#[test]
fn so_many_flows_are_away_and_no_more() {
    let bench = bench(false, "no");
    let mut stations = stations(&bench, 2, 4_000);
    let owners = stations[0].owners();
    let end = |host: u32| IpAddr::from([10, 0, (host >> 8) as u8, host as u8]);
    let mut refused = 0;
    let mut moved = 0;
    for host in 0..3_000u32 {
        let ends = (host % 250, host / 250 + 251);
        let key = FlowKey::ported(&FlowScope::default(), 17, (end(ends.0), 7), (end(ends.1), 9));
        if owners.home(&key) != Some(WorkerId(0)) {
            continue;
        }
        let mut header = ip(false, (1, 2), 17, &udp((7, 9), b"hello"));
        header[14..16].copy_from_slice(&[(ends.0 >> 8) as u8, ends.0 as u8]);
        header[18..20].copy_from_slice(&[(ends.1 >> 8) as u8, ends.1 as u8]);
        assert!(matches!(arrive(&mut stations[0], ethernet(false, &header), 1), Handled::Here(_)));
        match stations[0].move_flow(&key, WorkerId(1)) {
            Ok(()) => moved += 1,
            Err(error) => {
                assert_eq!(error, NotMoved::Full);
                refused += 1;
            }
        }
        settle(&mut stations);
    }
    assert_eq!((moved, stations[0].flows_away()), (AWAY_MAX, AWAY_MAX));
    assert!(refused > 100);
    assert_eq!(stations[0].counters().moves_refused, refused);
    assert_eq!(lens(&stations), [refused as usize, AWAY_MAX]);
}

#[test]
fn a_flow_that_has_moved_gives_way_for_its_tenants_quota() {
    let mut bench = bench(false, "no");
    let Bench { chains, engine_settings, engine, .. } = &mut bench;
    let quota = Quota { flows: Some(4), ..Quota::default() };
    let quotas = Quotas::new(vec![(TenantId(0), "all".into(), quota, Arc::default())]);
    Arc::get_mut(chains).unwrap().quotas = quotas;
    let owners = Owners::new(engine_settings.spread(2));
    let mut pool =
        Pool::start(engine_settings, engine, chains, vec![Nothing, Nothing], PoolOptions::default()).unwrap();
    let key = |port: u16| {
        let end = |host: u8, port: u16| (bartizan_testkit::packet::address(false, host), port);
        FlowKey::ported(&FlowScope::default(), 17, end(1, port), end(2, 9))
    };
    let frame = |port: u16| ethernet(false, &ip(false, (1, 2), 17, &udp((port, 9), b"hello")));
    // So many are opened at home as there may be, and all of them go to the other worker.
    let at_home = |at: u16| (1_000..).filter(move |port| owners.home(&key(*port)) == Some(WorkerId(at)));
    for port in at_home(0).take(4) {
        pool.frame(&captured(frame(port), 1).frame(1)).unwrap();
        pool.move_flow(&key(port), WorkerId(1)).unwrap();
    }
    // There the oldest one gives way to the next, since none is answered.
    for (millis, port) in (2..).zip(at_home(1).take(3)) {
        pool.frame(&captured(frame(port), millis).frame(1)).unwrap();
    }
    let finished = pool.finish().unwrap();
    let used = chains.quotas().used().next().unwrap().2;
    assert_eq!((finished.moved, used.gave_way, used.flows_refused), (4, 3, 0));
}

/// Every tenant has a VLAN of the same number.
struct ByVlan(Path);

impl FlowClassifier for ByVlan {
    fn classify(&self, _: &Header, _: Timestamp, _: &mut HeaderRuleMatches) -> Class {
        Class { fid: bartizan_base::Fid(0), path: self.0 }
    }

    fn tenant_of(&self, packet: &Decoded, _: LinkId) -> TenantId {
        TenantId(packet.vlan.padded()[0])
    }
}

#[test]
fn of_two_tenants_with_equal_addresses_one_moves_without_the_other() {
    for v6 in [false, true] {
        let mut bench = bench(false, "no");
        let functions = bench.chains.functions.clone();
        let path = functions.iter().fold(Path::EMPTY, |path, function| path.with(function.id()));
        bench.chains = Arc::new(Chains::new(Generation(1), functions, Box::new(ByVlan(path))));
        let settings = EngineSettings { vlan_in_key: false, ..bench.engine_settings.clone() };
        let mut stations = stations_with(&bench, &settings, 2, 64);
        let packet = ip_as_is(v6, (1, 2), 17, &udp((7, 9), b"hello"));
        let frame = |tenant: u16| tagged(tenant, ethernet(v6, &packet));
        let key = |tenant: u16| {
            let scope = FlowScope { tenant: TenantId(tenant), ..FlowScope::default() };
            let end = |host: u8, port: u16| (bartizan_testkit::packet::address(v6, host), port);
            FlowKey::ported(&scope, 17, end(1, 7), end(2, 9))
        };
        let home = stations[0].owners().home(&key(1)).unwrap();
        assert_eq!(stations[0].owners().home(&key(2)), Some(home));
        let (home, other) = (usize::from(home.0), 1 - usize::from(home.0));
        for tenant in [1, 2] {
            arrive(&mut stations[home], frame(tenant), 0);
        }
        stations[home].move_flow(&key(2), WorkerId(other as u16)).unwrap();
        settle(&mut stations);
        for tenant in [1, 2] {
            for station in [0, 1] {
                arrive(&mut stations[station], frame(tenant), 1);
                settle(&mut stations);
            }
        }
        for (station, tenant) in [(home, 1), (other, 2)] {
            let found: Vec<_> = stations[station]
                .worker()
                .flows()
                .iter()
                .map(|(_, e)| (e.tenant(), e.packets.to_server))
                .collect();
            assert_eq!(found, [(TenantId(tenant), 3)], "v6: {v6}");
        }
    }
}
