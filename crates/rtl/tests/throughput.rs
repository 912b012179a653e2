// SPDX-License-Identifier: Apache-2.0
//! A beat a cycle: frames of one size behind each other, of every size, go in without a stall and come out
//! without a gap, to a port and dropped; latency in cycles.

use crate::common::Device;
use crate::reference::{PFW, Policy, PolicyRule};
use bartizan_base::{Path, Verdict};
use bartizan_classify::HeaderRule;
use bartizan_rtl::model::Configuration;
use bartizan_rtl::registers::FrameDisposition;
use bartizan_rtl::simulation::FrameOut;
use bartizan_testkit::packet;

/// Frames of one size in a row.
const ROW: usize = 3;

fn device(configuration: Configuration, verdict: Verdict) -> Device {
    let rule = PolicyRule { rule: HeaderRule::default(), path: Path(1 << PFW), verdict };
    Device::new(configuration, 3, &Policy { rules: vec![rule], tenants: Vec::new() })
}

fn frame(size: usize) -> Vec<u8> {
    let (from, to) = (packet::address(false, 1), packet::address(false, 2));
    let mut frame = packet::udp((from, 1000), (to, 2000), &vec![7; size.saturating_sub(42)]).frame();
    frame.resize(size, 0);
    frame
}

fn to_ports(configuration: Configuration) {
    let mut device = device(configuration, Verdict::Continue);
    let width = configuration.width() / 8;
    let simulation = device.driver.bus();
    let mut latencies = Vec::new();
    for size in 60..=1514 {
        let (beats, stalls) = (simulation.beats_in(), simulation.stalls());
        for _ in 0..ROW {
            simulation.send(0, frame(size));
        }
        let begin = simulation.cycle();
        assert!(simulation.drain(10_000, 0));
        let end = simulation.cycle();
        let each = size.div_ceil(width) as u64;
        simulation.run(120 + 2 * each);
        assert_eq!(simulation.beats_in() - beats, each * ROW as u64, "beats of {size} bytes");
        assert_eq!(simulation.stalls(), stalls, "stalls with {size} bytes");
        assert_eq!(end - begin, each * ROW as u64, "cycles of {size} bytes");
        let out: Vec<u64> = simulation
            .take()
            .iter()
            .map(|out| match out {
                FrameOut::ToPort { cycle, bytes, .. } => {
                    assert_eq!(bytes.len(), size);
                    *cycle
                }
                FrameOut::ToCpu { .. } => panic!("a frame went up"),
            })
            .collect();
        assert_eq!(out.len(), ROW);
        assert!(
            out.windows(2).all(|pair| pair[1] - pair[0] == each),
            "gaps between frames of {size}: {out:?}"
        );
        // From the cycle of the last beat in to that of the last beat out.
        latencies.extend(out.iter().zip(1..).map(|(out, number)| out - (begin + number * each)));
    }
    latencies.sort_unstable();
    let median = latencies[latencies.len() / 2];
    let (least, most) = (latencies[0], latencies[latencies.len() - 1]);
    println!(
        "{configuration:?}: last beat in to last beat out, cycles: {least} {median} {most} (min, median, max)"
    );
}

fn dropped(configuration: Configuration) {
    let mut device = device(configuration, Verdict::Drop);
    for size in (60..=1514).step_by(7) {
        let simulation = device.driver.bus();
        let stalls = simulation.stalls();
        for _ in 0..ROW * 4 {
            simulation.send(0, frame(size));
        }
        // A frame of 190 beats leaves up to 220 cycles after its last beat came.
        assert!(simulation.drain(50_000, 400));
        assert_eq!(simulation.stalls(), stalls, "stalls with {size} bytes");
        assert_eq!(simulation.take(), []);
    }
    let sizes = (60..=1514).step_by(7).count();
    let count = device.driver.refused(bartizan_base::Reason::PfwRule).unwrap();
    assert_eq!(count, (sizes * ROW * 4) as u64);
    assert_eq!(device.driver.disposition(FrameDisposition::ToPort).unwrap(), 0);
}

#[test]
fn every_size_at_64_bits() {
    to_ports(Configuration::Narrow);
    dropped(Configuration::Narrow);
}

#[test]
fn every_size_at_128_bits() {
    to_ports(Configuration::Middle);
    dropped(Configuration::Middle);
}

#[test]
fn every_size_at_512_bits() {
    to_ports(Configuration::Wide);
    dropped(Configuration::Wide);
}

#[test]
fn many_small_frames_at_512_bits_are_a_frame_a_cycle() {
    let mut device = device(Configuration::Wide, Verdict::Continue);
    let simulation = device.driver.bus();
    for _ in 0..20_000 {
        simulation.send(1, frame(64));
    }
    let begin = simulation.cycle();
    assert!(simulation.drain(100_000, 0));
    assert_eq!(simulation.cycle() - begin, 20_000);
    simulation.run(100);
    assert_eq!(simulation.take().len(), 20_000);
}
