// SPDX-License-Identifier: Apache-2.0
//! The rule sets of ClassBench: the device finds the rule that the linear search finds, and that the golden
//! files have. A set that takes more entries than the device has is loaded part by part; the first part with
//! a match decides. The data is outside of the repository: BARTIZAN_CLASSBENCH, as for crate classify.

use crate::common::GENERATION;
use crate::reference::IDS;
use bartizan_base::{Fid, Path};
use bartizan_classify::{Classifier, Header, HeaderRule, Linear, RankedRule};
use bartizan_packet::metadata::{Generic, MetadataFlags};
use bartizan_rtl::model::Configuration;
use bartizan_rtl::simulation::{FrameOut, Simulation};
use bartizan_rtl::{EntryClass, KeyLayout, TableDriver, TernaryEntry};
use bartizan_testkit::packet::{self, ACK};
use bartizan_testkit_golden::classbench::load;

fn frame(header: &Header) -> Vec<u8> {
    let ends = ((header.source, header.source_port), (header.destination, header.destination_port));
    match header.protocol {
        6 => packet::tcp(ends.0, ends.1, (1, 1), ACK as u8, &[]).frame(),
        _ => packet::udp(ends.0, ends.1, &[]).frame(),
    }
}

/// The entries of a set, and the parts of it that a device of so many entries takes at once.
struct Parts {
    entries: usize,
    parts: Vec<core::ops::Range<usize>>,
}

impl Parts {
    fn of(rules: &[HeaderRule], places: usize) -> Self {
        let mut parts = Vec::new();
        let (mut from, mut used, mut entries) = (0, 0, 0);
        for (number, rule) in rules.iter().enumerate() {
            let count = TernaryEntry::expansion(rule);
            if used + count > places {
                parts.push(from..number);
                (from, used) = (number, 0);
            }
            used += count;
            entries += count;
        }
        parts.push(from..rules.len());
        Parts { entries, parts }
    }
}

/// The first rule of a part that each header matches, by the device.
fn answers(
    driver: &mut TableDriver<Simulation>,
    rules: &[HeaderRule],
    first: usize,
    headers: &[Header],
) -> Vec<Option<u32>> {
    let places = driver.capabilities().entries;
    let path = Path(1 << IDS);
    let mut place = 0;
    for (number, rule) in rules.iter().enumerate() {
        for entry in TernaryEntry::of(rule, KeyLayout::Both) {
            let class =
                EntryClass { fid: Fid((first + number) as u32), path, generation: GENERATION, outcome: 0 };
            driver.set_entry(place, entry, class).unwrap();
            place += 1;
        }
    }
    for place in place..places {
        driver.clear_entry(place).unwrap();
    }
    let simulation = driver.bus();
    for header in headers {
        simulation.send(0, frame(header));
    }
    assert!(simulation.drain(100_000_000, 1_000));
    let fid = |out: FrameOut| match out {
        FrameOut::ToCpu { metadata, .. } => {
            let metadata = Generic::read(&metadata).unwrap();
            assert!(metadata.flags.contains(MetadataFlags::PARSED));
            metadata.flags.contains(MetadataFlags::CLASSIFIED).then_some(metadata.fid)
        }
        FrameOut::ToPort { .. } => panic!("no path leads to a port"),
    };
    simulation.take().into_iter().map(fid).collect()
}

#[test]
fn rule_sets_are_classified_as_by_the_linear_search() {
    let mut driver = TableDriver::new(Simulation::new(Configuration::Narrow, 1), 1).unwrap();
    driver.set_generation(GENERATION).unwrap();
    driver.enable(true).unwrap();
    for set in ["acl1_1k", "fw1_1k", "ipc1_1k"] {
        let Some((rules, golden)) = load(set) else { continue };
        let all = golden.len();
        let golden: Vec<_> =
            golden.into_iter().filter(|(header, _)| matches!(header.protocol, 6 | 17)).take(1_000).collect();
        let headers: Vec<Header> = golden.iter().map(|(header, _)| *header).collect();
        let mut linear = Linear::new(1);
        let ranked: Vec<RankedRule> = (0..)
            .zip(&rules)
            .map(|(n, rule)| RankedRule { fid: Fid(n + 1), priority: n, rule: *rule })
            .collect();
        linear.insert(0, &ranked).unwrap();

        let Parts { entries, parts } = Parts::of(&rules, driver.capabilities().entries);
        let mut found = vec![None; headers.len()];
        for part in &parts {
            let answers = answers(&mut driver, &rules[part.clone()], part.start, &headers);
            assert_eq!(answers.len(), headers.len());
            for (found, answer) in found.iter_mut().zip(answers) {
                *found = found.or(answer);
            }
        }
        for ((header, golden), found) in golden.iter().zip(&found) {
            let mut result = [None];
            linear.lookup(header, &mut result);
            assert_eq!(*found, result[0].map(|m| m.priority), "{set}: {header:?}");
            assert_eq!(found, golden, "{set}: {header:?}");
        }
        let hits = found.iter().flatten().count();
        println!(
            "{set}: {} rules are {entries} entries, in {} parts; {} headers of {all} (TCP and UDP), {hits} match",
            rules.len(),
            parts.len(),
            headers.len()
        );
        assert!(hits > headers.len() / 2);
    }
}
