// SPDX-License-Identifier: Apache-2.0
//! Entries that change under full rate: no packet meets a part of one. And a differential run of a million
//! packets with such changes.

use crate::common::{GENERATION, outcome};
use crate::reference::{IDS, PFW, SFW};
use bartizan_base::{Fid, LinkId, Path, TenantId, Verdict};
use bartizan_classify::{Header, HeaderRule, Net, Range};
use bartizan_packet::metadata::Generic;
use bartizan_rtl::model::Configuration;
use bartizan_rtl::simulation::{FrameOut, Simulation, StreamPace};
use bartizan_rtl::{EntryClass, TableDriver, TernaryEntry};
use bartizan_testkit::packet;
use bartizan_testkit::random::Random;
use core::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

/// The class of what no other entry matches.
const REST: Fid = Fid(0x00ff_ffff);

/// A header whose fields are each of one of two worlds, so that an entry made of parts of two would match it.
fn header(random: &mut Random) -> Header {
    let address = |random: &mut Random| {
        IpAddr::V4(Ipv4Addr::new(10 + random.below(2) as u8, random.below(2) as u8, 0, random.below(4) as u8))
    };
    Header {
        tenant: TenantId(0),
        link: LinkId(0),
        source: address(random),
        destination: address(random),
        protocol: *random.pick(&[6, 17]),
        source_port: 1024 + random.below(4) as u16,
        destination_port: 80 + random.below(4) as u16,
    }
}

fn rule(random: &mut Random) -> HeaderRule {
    let of = header(random);
    let net = |random: &mut Random, address| {
        random.percent(80).then(|| Net { address, length: *random.pick(&[8, 16, 31, 32]) })
    };
    let ports = |random: &mut Random, port| if random.percent(60) { Range::one(port) } else { Range::ANY };
    HeaderRule {
        source: net(random, of.source),
        destination: net(random, of.destination),
        protocol: random.percent(70).then_some(of.protocol),
        source_ports: ports(random, of.source_port),
        destination_ports: ports(random, of.destination_port),
        ..HeaderRule::default()
    }
}

fn frame(header: &Header, number: u64, size: usize) -> Vec<u8> {
    let (from, to) = ((header.source, header.source_port), (header.destination, header.destination_port));
    let mut frame = match header.protocol {
        6 => packet::tcp(from, to, (1, 1), 0x10, &[]).frame(),
        _ => packet::udp(from, to, &[]).frame(),
    };
    frame.resize(frame.len().max(size), 0);
    for (place, byte) in frame.iter_mut().zip(number.to_le_bytes()).take(6) {
        *place = byte;
    }
    frame
}

/// A version of a place, with the frames that had gone in at each step.
struct Version {
    rule: HeaderRule,
    place: usize,
    /// When its writes began and ended; its flag goes on with the last one.
    begun: u64,
    stands: u64,
    /// When its flag was asked to go off, and was off for good.
    leaves: u64,
    gone: u64,
}

/// Changes entries while frames pass; every frame goes up, and its class has to be that of an entry that
/// matched it while it was inside, or none did for sure.
fn changes(configuration: Configuration, seed: u64, pace: StreamPace) {
    let mut random = Random::new(seed);
    let mut driver = TableDriver::new(Simulation::new(configuration, seed as u32), seed).unwrap();
    driver.set_generation(GENERATION).unwrap();
    driver.enable(true).unwrap();
    let path = Path(1 << IDS);
    let class = |fid| EntryClass { fid, path: Path(path.0 | fid.0 << 3), generation: GENERATION, outcome: 0 };
    let layout = driver.capabilities().layout();
    let last = driver.capabilities().entries - 1;
    driver.set_entry(last, TernaryEntry::of(&HeaderRule::default(), layout)[0], class(REST)).unwrap();
    driver.bus().set_pace(pace);

    let mut headers = Vec::new();
    let mut versions: Vec<Version> = Vec::new();
    let places = [0, 1, 31, 32, 40];
    let mut standing = vec![None; places.len()];
    for _ in 0..25 {
        // Enough frames that some are under way whatever the driver does.
        while driver.bus().waiting() < 2_000 {
            let header = header(&mut random);
            driver.bus().send(0, frame(&header, headers.len() as u64, 60));
            headers.push(header);
        }
        let at = random.below(places.len());
        let new = rule(&mut random);
        let entries = TernaryEntry::of(&new, layout);
        let leaves = driver.bus().taken();
        driver.clear_entry(places[at]).unwrap();
        let begun = driver.bus().taken();
        if let Some(old) = standing[at].take() {
            let old: &mut Version = &mut versions[old];
            (old.leaves, old.gone) = (leaves, begun);
        }
        driver.set_entry(places[at], entries[0], class(Fid(versions.len() as u32))).unwrap();
        let stands = driver.bus().taken();
        standing[at] = Some(versions.len());
        versions.push(Version {
            rule: new,
            place: places[at],
            begun,
            stands,
            leaves: u64::MAX,
            gone: u64::MAX,
        });
    }
    assert!(driver.bus().drain(10_000_000, 2_000));
    let out = driver.bus().take();
    assert_eq!(out.len(), headers.len());
    assert_eq!(driver.bus().fault(), None);
    let mut met = vec![0u64; versions.len()];
    for (number, out) in out.iter().enumerate() {
        let FrameOut::ToCpu { metadata, .. } = out else { panic!("no path leads to a port") };
        let metadata = Generic::read(metadata).unwrap();
        let header = &headers[number];
        let number = number as u64;
        let fid = Fid(metadata.fid);
        assert_eq!(metadata.path, class(fid).path, "class and path are of one entry");
        let context = format!("frame {number}, {header:?}: class {fid:?}");
        let chosen = versions.get(fid.0 as usize);
        if let Some(version) = chosen {
            assert!(version.rule.matches(header), "{context}: {:?} does not match it", version.rule);
            // A frame that had begun may have gone in as a whole after a count; those inside are at most 64.
            let near = version.begun.saturating_sub(64)..version.gone.saturating_add(64);
            assert!(near.contains(&number), "{context}: met outside of {near:?}");
            met[fid.0 as usize] += 1;
        } else {
            assert_eq!(fid, REST, "{context}");
        }
        // An entry that stood for sure and comes first would have decided.
        let place = chosen.map_or(last, |version| version.place);
        let missed = versions.iter().find(|version| {
            let sure = version.stands + 64..version.leaves.saturating_sub(64);
            version.place < place && sure.contains(&number) && version.rule.matches(header)
        });
        assert!(missed.is_none(), "{context}, but a place before stood for it");
    }
    let used = met.iter().filter(|count| **count > 0).count();
    println!("{configuration:?}: {} frames, {} changes, {used} entries met", headers.len(), versions.len());
    assert!(used > 10);
}

#[test]
fn no_packet_meets_half_an_entry_at_64_bits() {
    changes(Configuration::Narrow, 5, StreamPace::default());
}

#[test]
fn no_packet_meets_half_an_entry_at_512_bits() {
    changes(Configuration::Wide, 6, StreamPace { idle: 20, cpu_busy: 0, port_busy: 0 });
}

/// Packets of 60 to 128 bytes at 512 bits with gaps, back-pressure and changes of entries, against the linear
/// search. BARTIZAN_RTL_PACKETS sets how many.
#[test]
fn a_differential_run() {
    let count: u64 =
        std::env::var("BARTIZAN_RTL_PACKETS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let mut random = Random::new(9);
    let mut driver = TableDriver::new(Simulation::new(Configuration::Wide, 9), 9).unwrap();
    driver.set_generation(GENERATION).unwrap();
    driver.set_function_bits(PFW, SFW).unwrap();
    let layout = driver.capabilities().layout();
    let places = driver.capabilities().entries;
    // Rules at odd places stay; those at even ones change, and lead to what the odd one behind them says: so
    // the end of a packet is known whichever it meets.
    let mut rules = Vec::new();
    for place in 0..places {
        let verdict = if random.percent(50) { Verdict::Continue } else { Verdict::Drop };
        driver.set_outcome(place, &outcome(place, verdict)).unwrap();
        rules.push((rule(&mut random), verdict));
    }
    let class = |place: usize| EntryClass {
        fid: Fid(place as u32),
        path: Path(1 << PFW),
        generation: GENERATION,
        outcome: place as u16,
    };
    for (place, (rule, _)) in rules.iter().enumerate().skip(1).step_by(2) {
        driver.set_entry(place, TernaryEntry::of(rule, layout)[0], class(place)).unwrap();
    }
    driver.enable(true).unwrap();
    driver.bus().set_pace(StreamPace { idle: 25, cpu_busy: 25, port_busy: 25 });

    let ends = |header: &Header| {
        rules.iter().skip(1).step_by(2).find(|(rule, _)| rule.matches(header)).map(|(_, v)| *v)
    };
    let begin = Instant::now();
    let (mut sent, mut expected, mut changes, mut compared) =
        (0, std::collections::VecDeque::new(), 0u64, [0u64; 3]);
    let mut next_change = 0;
    while sent < count || !expected.is_empty() {
        while sent < count && driver.bus().waiting() < 10_000 {
            let header = header(&mut random);
            driver.bus().send(0, frame(&header, sent, 60 + random.below(69)));
            match ends(&header) {
                Some(Verdict::Drop) => compared[1] += 1,
                end => expected.push_back((sent, end)),
            }
            sent += 1;
        }
        // A place that changes holds a rule narrower than one behind it, with that one's outcome.
        let place = (next_change % places) & !1;
        next_change += 2;
        driver.clear_entry(place).unwrap();
        let behind = rules[place + 1].0;
        let of = header(&mut random);
        let narrow =
            HeaderRule { source: Some(Net { address: of.source, length: 32 }), ..HeaderRule::default() };
        if let Some(both) = behind.and(&narrow) {
            driver.set_entry(place, TernaryEntry::of(&both, layout)[0], class(place + 1)).unwrap();
            changes += 1;
        } else {
            driver.bus().run(500);
        }
        let is_last = sent == count && driver.bus().waiting() == 0;
        if is_last {
            driver.bus().run(1_000);
        }
        // Frames of one output are in order; those of the two are not by last beats.
        let mut out: Vec<(u64, bool)> = driver
            .bus()
            .take()
            .iter()
            .map(|out| match out {
                FrameOut::ToCpu { bytes, .. } => (crate::common::number(bytes).unwrap(), false),
                FrameOut::ToPort { bytes, .. } => (crate::common::number(bytes).unwrap(), true),
            })
            .collect();
        out.sort_unstable();
        for (number, is_port) in out {
            let at = expected.iter().position(|(of, _)| *of == number).expect("a frame that comes out once");
            let (_, end) = expected.remove(at).unwrap();
            assert_eq!(is_port, end.is_some(), "frame {number}");
            compared[usize::from(!is_port) * 2] += 1;
        }
        if is_last {
            assert!(expected.is_empty(), "{} frames did not come out", expected.len());
        }
    }
    assert_eq!(driver.bus().fault(), None);
    assert_eq!(driver.frames().unwrap(), count);
    assert_eq!(driver.refused(bartizan_base::Reason::PfwRule).unwrap(), compared[1]);
    println!(
        "{count} packets in {} cycles and {:.1} s, {changes} changes: {} to ports, {} refused, {} up; 0 differences",
        driver.bus().cycle(),
        begin.elapsed().as_secs_f64(),
        compared[0],
        compared[1],
        compared[2]
    );
}
