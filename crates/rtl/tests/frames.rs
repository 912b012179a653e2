// SPDX-License-Identifier: Apache-2.0
//! Random frames and policies: the device does with each frame what the host's decoder and the linear search
//! say, at every width, with gaps and back-pressure.

use crate::common::{self, Device, GENERATION};
use crate::reference::{End, Expected, Policy, Reference};
use bartizan_base::Reason;
use bartizan_packet::metadata::{Generic, MetadataFlags};
use bartizan_rtl::model::Configuration;
use bartizan_rtl::registers::FrameDisposition;
use bartizan_rtl::simulation::{FrameOut, StreamPace};
use bartizan_testkit::random::Random;
use std::collections::HashMap;

/// Expected frames, by the numbers in them.
pub struct Ledger {
    pub frames: Vec<Vec<u8>>,
    pub expected: Vec<Expected>,
    pub counted: Vec<u64>,
    ends: HashMap<End, u64>,
    ingress: Vec<u8>,
}

impl Ledger {
    pub fn new(rules: usize) -> Self {
        let (frames, expected, ingress) = (Vec::new(), Vec::new(), Vec::new());
        Ledger { frames, expected, counted: vec![0; rules], ends: HashMap::new(), ingress }
    }

    pub fn add(&mut self, frame: Vec<u8>, expected: Expected) {
        self.add_from(ingress(self.frames.len()), frame, expected);
    }

    pub fn add_from(&mut self, ingress: u8, frame: Vec<u8>, expected: Expected) {
        self.ingress.push(ingress);
        for rule in &expected.counted {
            self.counted[*rule] += 1;
        }
        *self.ends.entry(expected.end).or_default() += 1;
        self.frames.push(frame);
        self.expected.push(expected);
    }

    /// Compares what came out with what was expected: each frame once, in order, unchanged, with its
    /// metadata.
    pub fn check(&self, out: &[FrameOut]) {
        let mut cpu = out.iter().filter(|out| matches!(out, FrameOut::ToCpu { .. }));
        let mut port = out.iter().filter(|out| matches!(out, FrameOut::ToPort { .. }));
        for (number, (frame, expected)) in self.frames.iter().zip(&self.expected).enumerate() {
            let context = || format!("frame {number}, {expected:?}, {frame:02x?}");
            match expected.end {
                End::ToPort => match port.next() {
                    Some(FrameOut::ToPort { egress, bytes, .. }) => {
                        assert_eq!(bytes, frame, "{}", context());
                        assert_eq!(*egress, expected.egress, "{}", context());
                    }
                    out => panic!("{}: {out:?}", context()),
                },
                End::Up(_) | End::UpSomehow => match cpu.next() {
                    Some(FrameOut::ToCpu { metadata, bytes, .. }) => {
                        assert_eq!(bytes, frame, "{}", context());
                        check_metadata(metadata, self.ingress[number], frame, expected, &context);
                    }
                    out => panic!("{}: {out:?}", context()),
                },
                End::Drop(_) => {}
            }
        }
        assert_eq!((cpu.next(), port.next()), (None, None), "frames that nobody expected");
    }

    /// Compares the device's counters, of which those before are given.
    pub fn check_counters(&self, device: &mut Device) {
        let driver = &mut device.driver;
        assert_eq!(driver.frames().unwrap(), self.frames.len() as u64);
        assert_eq!(driver.inside().unwrap(), 0);
        let mut sum = 0;
        let mut somehow = 0;
        for disposition in FrameDisposition::ALL {
            let count = driver.disposition(*disposition).unwrap();
            let end =
                if *disposition == FrameDisposition::ToPort { End::ToPort } else { End::Up(*disposition) };
            let expected = self.ends.get(&end).copied().unwrap_or(0);
            // What goes up for one of several causes is among the others.
            assert!(count >= expected, "{disposition:?}: {count} and {expected}");
            somehow += count - expected;
            sum += count;
        }
        assert_eq!(somehow, self.ends.get(&End::UpSomehow).copied().unwrap_or(0));
        for reason in Reason::ALL {
            let count = driver.refused(*reason).unwrap();
            assert_eq!(count, self.ends.get(&End::Drop(*reason)).copied().unwrap_or(0), "{reason:?}");
            sum += count;
        }
        assert_eq!(sum, self.frames.len() as u64, "each frame is counted once");
        for (place, expected) in self.counted.iter().enumerate() {
            assert_eq!(driver.outcome_count(place).unwrap(), *expected, "rule {place}");
        }
    }

    pub fn share(&self, end: impl Fn(&End) -> bool) -> f64 {
        let count: u64 = self.ends.iter().filter(|(e, _)| end(e)).map(|(_, count)| count).sum();
        count as f64 / self.frames.len() as f64
    }
}

/// The port by which a frame comes, by its number.
pub const fn ingress(number: usize) -> u8 {
    (number % 4) as u8
}

fn check_metadata(
    block: &[u8],
    ingress: u8,
    frame: &[u8],
    expected: &Expected,
    context: &dyn Fn() -> String,
) {
    let metadata = Generic::read(block).unwrap_or_else(|| panic!("{}: no metadata", context()));
    assert_eq!(usize::from(metadata.length), frame.len(), "{}", context());
    assert_eq!(metadata.ingress.0, ingress, "{}", context());
    assert_eq!(metadata.action as u8, 0, "{}", context());
    assert!(metadata.flags.contains(MetadataFlags::EXTENDED));
    if let Some(offsets) = expected.offsets {
        assert!(metadata.flags.contains(MetadataFlags::PARSED), "{}", context());
        let found = [metadata.l3, metadata.l4, metadata.payload].map(u32::from);
        assert_eq!(found, offsets, "{}", context());
        assert_eq!(metadata.tenant, expected.tenant, "{}", context());
    }
    if let Some((fid, path)) = expected.class {
        assert!(metadata.flags.contains(MetadataFlags::CLASSIFIED), "{}", context());
        assert_eq!((metadata.fid, metadata.path), (fid.0, path), "{}", context());
        assert_eq!(metadata.generation, GENERATION);
    }
    let done = metadata.flags.contains(MetadataFlags::HEADER_HALVES_DONE);
    let only_path_left = expected.end == End::Up(FrameDisposition::UpPath);
    assert!(!done || only_path_left, "{}", context());
    assert!(!only_path_left || done || expected.counted.is_empty(), "{}", context());
}

/// Runs random frames through a device at a pace.
fn run(configuration: Configuration, seed: u64, count: usize, paces: &[StreamPace]) -> [f64; 3] {
    let mut random = Random::new(seed);
    let policy: Policy = common::policy(&mut random, 12);
    let mut device = Device::new(configuration, seed as u32, &policy);
    assert_eq!(device.rules, policy.rules.len(), "the policy fits");
    let ipv6 = device.driver.capabilities().ipv6;
    let mut reference = Reference::new(policy, ipv6);
    let mut ledger = Ledger::new(device.rules);
    let mut out = Vec::new();
    for pace in paces {
        let simulation = device.driver.bus();
        simulation.set_pace(*pace);
        for _ in 0..count {
            let number = ledger.frames.len();
            let frame = common::frame(&mut random, number as u64, ipv6 || number.is_multiple_of(8));
            let expected = reference.judge(ingress(number), &frame);
            simulation.send(ingress(number), frame.clone());
            ledger.add(frame, expected);
        }
        assert!(simulation.drain(10_000_000, 20_000), "frames do not go in");
        assert_eq!(simulation.fault(), None);
        out.extend(simulation.take());
    }
    ledger.check(&out);
    ledger.check_counters(&mut device);
    let mut ends: Vec<(u64, String)> = ledger.ends.iter().map(|(end, n)| (*n, format!("{end:?}"))).collect();
    ends.sort_unstable_by(|a, b| b.cmp(a));
    println!("{configuration:?}: {ends:?}");
    [
        ledger.share(|end| *end == End::ToPort),
        ledger.share(|end| matches!(end, End::Drop(_))),
        ledger.share(|end| matches!(end, End::Up(_) | End::UpSomehow)),
    ]
}

pub const PACES: [StreamPace; 5] = [
    StreamPace { idle: 0, cpu_busy: 0, port_busy: 0 },
    StreamPace { idle: 128, cpu_busy: 0, port_busy: 0 },
    StreamPace { idle: 0, cpu_busy: 128, port_busy: 128 },
    StreamPace { idle: 0, cpu_busy: 230, port_busy: 30 },
    StreamPace { idle: 60, cpu_busy: 60, port_busy: 200 },
];

/// Runs of several seeds; BARTIZAN_RTL_SEEDS sets how many.
fn all(configuration: Configuration) {
    let seeds = std::env::var("BARTIZAN_RTL_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    for seed in 1..=seeds {
        let [to_port, dropped, up] = run(configuration, seed, 300, &PACES);
        println!("{configuration:?}, seed {seed}: to ports {to_port:.3}, refused {dropped:.3}, up {up:.3}");
        assert!(to_port > 0.05 && dropped > 0.02, "the policy is one by which something happens");
    }
}

#[test]
fn at_64_bits() {
    all(Configuration::Narrow);
}

#[test]
fn at_128_bits() {
    all(Configuration::Middle);
}

#[test]
fn at_512_bits() {
    all(Configuration::Wide);
}
