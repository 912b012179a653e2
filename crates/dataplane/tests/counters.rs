// SPDX-License-Identifier: Apache-2.0
//! Places of counters: Suricata's counters are in EVE's `stats` under Suricata's names, all others under
//! `bartizan.stats`.

use bartizan_applayer::file::FileSettings;
use bartizan_applayer::flow::Engine;
use bartizan_base::SettingsMap;
use bartizan_dataplane::driver::LiveCounters;
use bartizan_dataplane::event_ring::RingCounters;
use bartizan_dataplane::handover::HandOverCounters;
use bartizan_dataplane::worker::Worker;
use bartizan_events::record::is_own;
use bartizan_events::{FileStoreCounters, TlsStoreCounters};
use bartizan_ports::PortStats;
use bartizan_stages::chain::Chains;
use bartizan_stages::settings::EngineSettings;
use bartizan_stages::stats::visit_capture;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Counters of Suricata's own events; the file names their source.
const KNOWN: &str = include_str!("data/suricata-counters.txt");

#[test]
fn every_counter_is_suricatas_or_our_own() {
    let (mut settings, _) = EngineSettings::from_settings(&SettingsMap::new(), true, [1, 2]).unwrap();
    settings.count_stream_events = true;
    let engine = Arc::new(Engine::new(&SettingsMap::new(), FileSettings::default()).unwrap());
    let chains = Chains::one(bartizan_base::Generation(1), Vec::new());
    let worker = Worker::new(settings, engine, Arc::new(chains)).unwrap();
    let mut names = BTreeSet::new();
    let mut add = |name: &'static str| assert!(names.insert(name), "{name} is there twice");
    worker.visit_stats(|name, _| add(name));
    visit_capture(&PortStats::default(), |name, _| add(name));
    let live = LiveCounters::default();
    live.normaliser.for_each(|name, _| add(name));
    live.for_each_loss(|name, _| add(name));
    HandOverCounters::default().for_each(|name, _| add(name));
    RingCounters::default().for_each(|name, _| add(name));
    FileStoreCounters::default().for_each(|name, _| add(name));
    TlsStoreCounters::default().for_each(|name, _| add(name));
    let known: BTreeSet<&str> = KNOWN.lines().filter(|line| !line.starts_with('#')).collect();
    let strange: Vec<_> = names.iter().filter(|name| !is_own(name) && !known.contains(*name)).collect();
    assert!(
        strange.is_empty(),
        "Suricata has no such counters: say in record/stats.rs that they are own ones: {strange:?}"
    );
    let taken: Vec<_> = names.iter().filter(|name| is_own(name) && known.contains(*name)).collect();
    assert!(taken.is_empty(), "Suricata has these: {taken:?}");
    assert!(names.len() > 300, "{}", names.len());
}
