// SPDX-License-Identifier: Apache-2.0
//! Registers, reset, and what the device does with what it cannot judge or hold.

use crate::common::{self, Device, GENERATION};
use crate::reference::{PFW, Policy, PolicyRule};
use bartizan_base::{Path, Verdict};
use bartizan_classify::HeaderRule;
use bartizan_packet::metadata::Generic;
use bartizan_rtl::driver::TenantEntry;
use bartizan_rtl::model::Configuration;
use bartizan_rtl::registers::{self as map, FrameDisposition};
use bartizan_rtl::simulation::{FrameOut, StreamPace};
use bartizan_rtl::{BusError, DriverError, RegisterBus as _};
use bartizan_testkit::{layers, packet};

fn forwarding(configuration: Configuration) -> Device {
    let rule = PolicyRule { rule: HeaderRule::default(), path: Path(1 << PFW), verdict: Verdict::Continue };
    Device::new(configuration, 4, &Policy { rules: vec![rule], tenants: Vec::new() })
}

fn frame(size: usize) -> Vec<u8> {
    let (from, to) = (packet::address(false, 1), packet::address(false, 2));
    let mut frame = packet::udp((from, 1000), (to, 2000), &vec![7; size.saturating_sub(42)]).frame();
    frame.resize(size, 0);
    frame
}

#[test]
fn the_device_says_what_it_is() {
    for (configuration, beat, stride, entries, ipv6, flows) in [
        (Configuration::Narrow, 8, 4, 128, true, 256),
        (Configuration::Middle, 16, 9, 64, true, 4096),
        (Configuration::Wide, 64, 9, 128, false, 256),
    ] {
        let device = forwarding(configuration);
        let capabilities = device.driver.capabilities();
        assert_eq!((capabilities.beat, capabilities.stride), (beat, stride));
        assert_eq!((capabilities.entries, capabilities.ipv6, capabilities.tenants), (entries, ipv6, 16));
        assert_eq!(device.driver.flow_entries(), flows);
    }
}

#[test]
fn what_is_not_in_the_map_is_refused() {
    let mut device = forwarding(Configuration::Narrow);
    let bus = device.driver.bus();
    for address in
        [map::ID, map::STATUS, 0x3c, map::FLOW_TOUCHED_BASE, map::ENTRY_BASE + 16 * 128, map::VALID_BASE + 16]
    {
        assert_eq!(bus.write(address, 1), Err(BusError::Refused(address)), "{address:#x}");
    }
    for address in [
        map::FLOW_NUMBERS + 36,
        map::FLOW_COUNTS,
        map::FLOW_BASE + 64 * 256,
        map::FLOW_BASE + 4 * 12,
        map::FLOW_HASH_BASE + (77 << 7),
    ] {
        assert_eq!(bus.write(address, 1), Err(BusError::Refused(address)), "{address:#x}");
    }
    let command = 3 << 28 | 256;
    assert_eq!(bus.write(map::FLOW_COMMAND, command), Err(BusError::Refused(map::FLOW_COMMAND)));
    let beyond = map::ROW_BASE | 81 << 16;
    assert_eq!(bus.write(beyond, 1), Err(BusError::Refused(beyond)));
    for address in [
        0x3c,
        map::FLOW_NUMBERS + 36,
        map::FLOW_COUNTS + 48,
        map::COUNT_BASE + 8 * 128,
        map::RULE_COUNT_BASE + 8 * 128,
        map::ROW_BASE,
    ] {
        assert_eq!(bus.read(address), Err(BusError::Refused(address)), "{address:#x}");
    }
    let places = 128;
    assert_eq!(device.driver.clear_entry(128), Err(DriverError::NoPlace { place: 128, places }));
    let wrong = common::outcome(3, Verdict::Drop);
    assert_eq!(device.driver.set_outcome(2, &wrong), Err(DriverError::Counter { place: 2, counter: 3 }));
}

#[test]
fn a_frame_that_is_too_long_is_lost_and_counted() {
    for configuration in [Configuration::Narrow, Configuration::Middle, Configuration::Wide] {
        let mut device = forwarding(configuration);
        let simulation = device.driver.bus();
        for size in [100, 2048, 2049, 5000, 64, 9000, 2040] {
            simulation.send(0, frame(size));
        }
        assert!(simulation.drain(10_000, 1_000));
        let lengths: Vec<usize> = simulation
            .take()
            .iter()
            .map(|out| match out {
                FrameOut::ToPort { bytes, .. } => bytes.len(),
                FrameOut::ToCpu { .. } => panic!("{out:?}"),
            })
            .collect();
        assert_eq!(lengths, [100, 2048, 64, 2040]);
        assert_eq!(device.driver.disposition(FrameDisposition::LostOversize).unwrap(), 3);
        assert_eq!(device.driver.frames().unwrap(), 7);
    }
}

#[test]
fn a_device_that_is_not_enabled_sends_everything_up() {
    let mut device = forwarding(Configuration::Narrow);
    device.driver.enable(false).unwrap();
    device.driver.bus().send(2, frame(60));
    assert!(device.driver.bus().drain(1_000, 500));
    let out = device.driver.bus().take();
    assert!(matches!(&out[..], [FrameOut::ToCpu { bytes, .. }] if *bytes == frame(60)));
    assert_eq!(device.driver.disposition(FrameDisposition::UpDisabled).unwrap(), 1);
    assert_eq!(device.driver.outcome_count(0).unwrap(), 0, "the host counts it");
}

#[test]
fn another_generation_sends_everything_up() {
    let mut device = forwarding(Configuration::Narrow);
    device.driver.set_generation(GENERATION + 1).unwrap();
    device.driver.bus().send(0, frame(60));
    assert!(device.driver.bus().drain(1_000, 500));
    assert!(matches!(&device.driver.bus().take()[..], [FrameOut::ToCpu { .. }]));
    assert_eq!(device.driver.disposition(FrameDisposition::UpGeneration).unwrap(), 1);
    device.driver.set_generation(GENERATION).unwrap();
    device.driver.bus().send(0, frame(60));
    assert!(device.driver.bus().drain(1_000, 500));
    assert!(matches!(&device.driver.bus().take()[..], [FrameOut::ToPort { egress: 1, .. }]));
}

#[test]
fn a_reset_drops_and_counts_what_is_inside() {
    for configuration in [Configuration::Narrow, Configuration::Wide] {
        let mut device = forwarding(configuration);
        // Nobody takes what comes out, so the device fills up.
        device.driver.bus().set_pace(StreamPace { idle: 0, cpu_busy: 255, port_busy: 255 });
        for _ in 0..200 {
            device.driver.bus().send(0, frame(100));
        }
        device.driver.bus().run(2_000);
        assert!(device.driver.inside().unwrap() > 10);
        device.driver.bus().set_pace(StreamPace::default());
        device.driver.reset(true, 10_000).unwrap();
        assert!(device.driver.bus().drain(10_000, 1_000));
        let came = device.driver.bus().take().len() as u64;
        let lost = device.driver.disposition(FrameDisposition::LostReset).unwrap();
        assert!(lost > 5, "{lost}");
        assert_eq!(device.driver.frames().unwrap(), 200);
        assert_eq!(came + lost, 200);
        assert_eq!(device.driver.inside().unwrap(), 0);
        assert_eq!(device.driver.bus().fault(), None);
    }
}

#[test]
fn equal_tuples_in_two_networks_never_meet() {
    let mut policy = Policy::default();
    for (vni, tenant) in [(100, 11), (200, 12)] {
        policy.tenants.push(TenantEntry { vni: Some(vni), tenant, ..TenantEntry::default() });
    }
    for (tenant, verdict) in
        [(Some(11), Verdict::Continue), (Some(12), Verdict::Drop), (None, Verdict::Continue)]
    {
        let rule = HeaderRule { tenant: tenant.map(bartizan_base::TenantId), ..HeaderRule::default() };
        policy.rules.push(PolicyRule { rule, path: Path(1 << PFW), verdict });
    }
    let mut device = Device::new(Configuration::Narrow, 8, &policy);
    let tunnel = |vni| {
        let (from, to) = (packet::address(false, 8), packet::address(false, 9));
        packet::udp((from, 5555), (to, 4789), &layers::vxlan(vni, &frame(60))).frame()
    };
    for vni in [100, 200, 300] {
        device.driver.bus().send(0, tunnel(vni));
    }
    assert!(device.driver.bus().drain(1_000, 500));
    let out = device.driver.bus().take();
    // The second one is refused inside: the host drops it, under its own policy.
    let forwarded = |out: &&FrameOut| matches!(out, FrameOut::ToPort { .. });
    let bytes: Vec<Vec<u8>> = out
        .iter()
        .filter(forwarded)
        .map(|out| match out {
            FrameOut::ToPort { bytes, .. } | FrameOut::ToCpu { bytes, .. } => bytes.clone(),
        })
        .collect();
    assert_eq!(bytes, [tunnel(100), tunnel(300)]);
    assert_eq!(device.driver.disposition(FrameDisposition::UpTunnelRefused).unwrap(), 1);
    let counts: Vec<u64> = (0..3).map(|place| device.driver.outcome_count(place).unwrap()).collect();
    assert_eq!(counts, [1, 0, 3], "two packets outside, one inside of no tenant, one of the first");
}

#[test]
fn a_frame_to_the_host_has_its_time() {
    let mut device = forwarding(Configuration::Narrow);
    device.driver.enable(false).unwrap();
    let before = device.driver.bus().cycle();
    device.driver.bus().send(3, frame(60));
    assert!(device.driver.bus().drain(1_000, 500));
    let out = device.driver.bus().take();
    let [FrameOut::ToCpu { metadata, cycle, .. }] = &out[..] else { panic!("{out:?}") };
    let read = Generic::read(metadata).unwrap();
    assert!((before..*cycle).contains(&u64::from(read.timestamp_us)));
    let extended = bartizan_packet::metadata::Extended::read(metadata).unwrap();
    assert_eq!(extended.timestamp_ns, u64::from(read.timestamp_us) << 3);
    assert_eq!((read.ingress.0, read.egress.0), (3, 2));
}
