// SPDX-License-Identifier: Apache-2.0
//! The XDP level finds a flow by the key that the host's flow table has for it, handles no frame with a
//! decode event at the host, keeps refusing after the flow manager has ended, and has a heartbeat. (The tests
//! are here since their crates are of one layer.)
//!
//! The kernel runs the program on each frame, in a network namespace that ends with the test.

use crate::xdp_program;

use bartizan_base::{Generation, Reason, Spread, Timestamp};
use bartizan_flow::{FlowHasher, FlowTable, FlowTableConfig, Insert};
use bartizan_offload::{Action as Fate, Device as _, Done, FlowManager, Offer};
use bartizan_packet::PacketFlags;
use bartizan_testkit::namespace::{inside, number};
use bartizan_testkit::random::Random;
use bartizan_xdp::XdpDevice;
use bartizan_xdp::{Fail, FlowSlotControl, Watch, XdpFlowAction, boot_time, monotonic_time};
use std::sync::Arc;
use std::time::Duration;
use xdp_program::{DROP, PASS, REDIRECT, Setting, attach, decode, key, packet, program, spoil};

#[test]
fn the_program_makes_the_keys_of_the_flow_table() {
    if !inside("the_program_makes_the_keys_of_the_flow_table") {
        return;
    }
    let mut program = program();
    let (tables, mut random) = (program.tables(), Random::new(20));
    let interfaces = [number("lan"), number("wan")];
    for (sides, vlans) in [(false, false), (false, true), (true, false), (true, true)] {
        let setting = Setting { sides, vlans };
        attach(&mut program, setting);
        for round in 0..500 {
            let (frame, second) = (packet(&mut random).frame(), random.percent(50));
            let decoded = decode(&frame);
            let [packet] = decoded.as_slice() else { panic!("a plain packet: {decoded:?}") };
            let key = key(packet, setting, second, random.draw() as u16).unwrap();
            assert!(
                tables.clear(0)
                    && tables
                        .set_control(0, FlowSlotControl { action: XdpFlowAction::Forward, generation: 0 })
            );
            tables.insert(key.words(), 0).unwrap();
            let run = program.run_on(&frame, interfaces[usize::from(second)], 1).unwrap();
            assert_eq!(run.result, REDIRECT, "{round}: {key:?}");
            let mut packets = [0, 0];
            packets[usize::from(key.is_reversed())] = 1;
            assert_eq!(tables.counts(0, boot_time()).unwrap().packets, packets, "{round}: {key:?}");
            assert!(tables.remove(key.words()));
        }
        (0..2).for_each(|index| program.detach(index).unwrap());
    }
}

#[test]
fn nothing_is_handled_that_the_host_finds_odd() {
    if !inside("nothing_is_handled_that_the_host_finds_odd") {
        return;
    }
    let mut program = program();
    let setting = Setting { sides: true, vlans: true };
    attach(&mut program, setting);
    let (tables, mut random, lan) = (program.tables(), Random::new(21), number("lan"));
    assert!(tables.set_control(0, FlowSlotControl { action: XdpFlowAction::Forward, generation: 0 }));
    let (mut handled, mut odd) = (0, 0);
    for round in 0..20_000 {
        let mut frame = packet(&mut random).frame();
        spoil(&mut random, &mut frame);
        let decoded = decode(&frame);
        let Some(key) = decoded.first().and_then(|packet| key(packet, setting, false, 0)) else { continue };
        tables.insert(key.words(), 0).unwrap();
        let result = program.run_on(&frame, lan, 1).unwrap().result;
        assert!(tables.remove(key.words()));
        let packet = &decoded[0];
        let plain = decoded.len() == 1
            && !packet.is_invalid()
            && !packet.flags.intersects(PacketFlags::UNREADABLE | PacketFlags::FRAGMENT);
        assert!(result != REDIRECT || plain, "{round}: {packet:?}\n{frame:02x?}");
        handled += usize::from(result == REDIRECT);
        odd += usize::from(!plain);
    }
    assert!(handled > 5_000 && odd > 1_000, "{handled} were handled, {odd} were odd");
}

#[test]
fn when_the_host_has_ended_refused_flows_stay_refused_and_the_others_go_up() {
    if !inside("when_the_host_has_ended_refused_flows_stay_refused_and_the_others_go_up") {
        return;
    }
    let mut program = program();
    let setting = Setting { sides: true, vlans: true };
    attach(&mut program, setting);
    let (generation, now) = (Generation(1), Timestamp::from_parts(100, 0));
    let mut table: FlowTable<()> =
        FlowTable::new(&FlowTableConfig::new(64, FlowHasher::new([1, 2]))).unwrap();
    let mut manager = FlowManager::new(Box::new(XdpDevice::new(program.tables(), 0, 16)), generation);
    let (mut random, lan) = (Random::new(22), number("lan"));
    let fates = [Fate::Drop(Reason::IdsRule), Fate::Forward];
    let frames = fates.map(|_| packet(&mut random).frame());
    for (frame, action) in frames.iter().zip(fates) {
        let key = key(&decode(frame)[0], setting, false, 0).unwrap();
        let Insert::Created { id } = table.insert(&key, now) else { panic!("two flows of one key") };
        let offer = Offer { action, generation, expected: 0, again: false, windows: None };
        manager.offer(&mut table, id, offer, now).unwrap();
    }
    manager.turn(&mut table, now);
    let mut results = |expected: [u32; 2]| {
        for (frame, expected) in frames.iter().zip(expected) {
            assert_eq!(program.run_on(frame, lan, 1).unwrap().result, expected);
        }
    };
    results([DROP, REDIRECT]);
    manager.close(&mut table, now);
    let done: Vec<_> = std::iter::from_fn(|| manager.next_done()).collect();
    let counted = done.iter().filter(|done| matches!(done, Done::Counted { packets: 1, .. }));
    assert_eq!((counted.count(), manager.counters().entries), (2, 0), "{done:?}");
    results([DROP, PASS]);
}

/// If another generation decides alike, the entry stays in place, refused or forwarded, and keeps its
/// counters.
#[test]
fn an_entry_goes_on_in_place_in_another_generation() {
    if !inside("an_entry_goes_on_in_place_in_another_generation") {
        return;
    }
    let mut program = program();
    let setting = Setting { sides: true, vlans: true };
    attach(&mut program, setting);
    let now = Timestamp::from_parts(100, 0);
    let mut table: FlowTable<()> =
        FlowTable::new(&FlowTableConfig::new(64, FlowHasher::new([1, 2]))).unwrap();
    let device = XdpDevice::new(program.tables(), 0, 16);
    assert_eq!(device.capabilities().insert_rate, None, "it has made none");
    let mut manager = FlowManager::new(Box::new(device), Generation(1));
    let (mut random, lan) = (Random::new(23), number("lan"));
    let fates = [Fate::Drop(Reason::IdsRule), Fate::Forward];
    let frames = fates.map(|_| packet(&mut random).frame());
    let offer = |action, generation| Offer { action, generation, expected: 0, again: false, windows: None };
    let mut ids = Vec::new();
    for (frame, action) in frames.iter().zip(fates) {
        let key = key(&decode(frame)[0], setting, false, 0).unwrap();
        let Insert::Created { id } = table.insert(&key, now) else { panic!("two flows of one key") };
        manager.offer(&mut table, id, offer(action, Generation(1)), now).unwrap();
        ids.push(id);
    }
    manager.turn(&mut table, now);
    let rate = manager.levels().next().unwrap().capabilities.insert_rate.unwrap();
    assert!((100..100_000_000).contains(&rate), "{rate} entries a second");
    let mut results = |expected: [u32; 2]| {
        for (frame, expected) in frames.iter().zip(expected) {
            assert_eq!(program.run_on(frame, lan, 1).unwrap().result, expected);
        }
    };
    results([DROP, REDIRECT]);
    manager.enter_generation(Generation(2));
    results([PASS, PASS]);
    for (id, action) in ids.iter().zip(fates) {
        assert!(manager.is_outdated(&table, *id));
        assert!(manager.renew(&mut table, *id, &offer(action, Generation(2)), now));
    }
    manager.turn(&mut table, now);
    results([DROP, REDIRECT]);
    manager.close(&mut table, now);
    let done: Vec<_> = std::iter::from_fn(|| manager.next_done()).collect();
    let counted = done.iter().filter(|done| matches!(done, Done::Counted { packets: 2, .. }));
    assert_eq!((counted.count(), manager.counters().renewed), (2, 2), "{done:?}");
}

#[test]
fn a_worker_that_was_silent_for_too_long_knows_what_its_link_did() {
    if !inside("a_worker_that_was_silent_for_too_long_knows_what_its_link_did") {
        return;
    }
    let (tables, now) = (program().tables(), Timestamp::from_parts(100, 0));
    for fail in [Fail::Open, Fail::Closed] {
        // So long that a busy machine does not make it stale by itself.
        let stale = Duration::from_secs(2);
        let watch = Watch { fail, stale, spread: Spread::new([1, 2], 1), first: 0 };
        let mut device = XdpDevice::new(Arc::clone(&tables), 0, 16).watched(0, &watch);
        let poll = |device: &mut XdpDevice| device.poll(now, &mut Vec::new());
        let begun = monotonic_time();
        poll(&mut device);
        assert!(!device.has_missed(), "it has just begun");
        let first = tables.last_beat(0).unwrap();
        assert!((begun..=monotonic_time()).contains(&first));
        poll(&mut device);
        assert_eq!(tables.last_beat(0), Some(first), "one sign is enough for a while");
        std::thread::sleep(stale / 4);
        poll(&mut device);
        assert!(tables.last_beat(0).unwrap() >= first + 500_000_000 && !device.has_missed());
        std::thread::sleep(stale + Duration::from_millis(10));
        poll(&mut device);
        assert_eq!(device.has_missed(), fail == Fail::Open);
        assert!(!device.has_missed(), "that is told once");
    }
}
