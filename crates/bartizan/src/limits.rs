// SPDX-License-Identifier: Apache-2.0
//! The tables of docs/limits.md are those of the declarations of all crates, and the declarations are true:
//! the constants are in the files that they name, and the counters and events that they name exist. `cargo
//! xtask generate` writes the page.

use bartizan_applayer::event::GENERIC;
use bartizan_applayer::file::FileSettings;
use bartizan_applayer::flow::Engine;
use bartizan_applayer::protocols;
use bartizan_base::limit::{LimitSpec, LimitTable, LimitTrace};
use bartizan_base::{Generation, SettingsMap};
use bartizan_dataplane::driver::LiveCounters;
use bartizan_dataplane::event_ring::RingCounters;
use bartizan_dataplane::handover::HandOverCounters;
use bartizan_dataplane::worker::Worker;
use bartizan_events::file_store::FileStoreCounters;
use bartizan_events::metrics::METRICS;
use bartizan_events::tls_store::TlsStoreCounters;
use bartizan_flow::host::HostCounters;
use bartizan_flow::tcp::StreamEvent;
use bartizan_functions::{gate, ids, names, pfw, portscan, sfw};
use bartizan_packet::DecodeEvent;
use bartizan_stages::chain::Chains;
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit::generated;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// All declared limits, in the order in which packets meet them.
fn declared() -> impl Iterator<Item = &'static LimitSpec> {
    let applayer = bartizan_applayer::limits::all();
    let crates = [
        bartizan_api::limits::LIMITS,
        bartizan_runtime::limits::control::LIMITS,
        bartizan_controller::limits::LIMITS,
        bartizan_packet::limits::LIMITS,
        bartizan_flow::limits::LIMITS,
        bartizan_dataplane::limits::LIMITS,
        bartizan_functions::limits::LIMITS,
        bartizan_detect::limits::LIMITS,
        bartizan_ports::limits::LIMITS,
        bartizan_toe::limits::LIMITS,
        bartizan_boundary::limits::LIMITS,
        bartizan_config::limits::LIMITS,
        bartizan_classify::limits::LIMITS,
        bartizan_agent::limits::LIMITS,
        bartizan_events::limits::LIMITS,
        bartizan_runtime::limits::LIMITS,
    ];
    crates.into_iter().chain(applayer).flatten()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

const END: &str = "<!-- end of limits -->";

/// The page with new tables.
fn page(before: &str) -> String {
    let mut text = before.to_owned();
    for table in LimitTable::ALL {
        let mark = format!("<!-- limits: {} -->\n", table.name());
        let (head, rest) = text.split_once(&mark).unwrap_or_else(|| panic!("no {mark}"));
        let (_, tail) = rest.split_once(END).unwrap_or_else(|| panic!("no {END} behind {mark}"));
        let rows: String = declared().filter(|limit| limit.table == table).map(LimitSpec::row).collect();
        let columns =
            "| limit | value | where | what happens there | counter or trace |\n|---|---|---|---|---|\n";
        text = format!("{head}{mark}{columns}{rows}{END}{tail}");
    }
    text
}

#[test]
fn the_tables_of_the_page_are_those_of_the_declarations() {
    let found = std::fs::read_to_string(generated::committed("docs/limits.md")).unwrap();
    generated::check("docs/limits.md", &page(&found));
}

/// Names of constants in an expression: words of capitals.
fn constants(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| {
        word.len() > 2
            && !word.contains(|c: char| c.is_ascii_lowercase())
            && !word.starts_with(|c: char| c.is_ascii_digit())
    })
}

#[test]
fn declarations_name_the_files_of_their_constants() {
    let mut names = BTreeSet::new();
    for limit in declared() {
        assert_eq!(limit.fault(), None);
        assert!(names.insert(limit.name), "{} is declared twice", limit.name);
        let texts = limit.at.iter().map(|file| {
            let (of, below) = file.split_once('/').unwrap_or_else(|| panic!("{file}: which crate?"));
            let path = repository().join("crates").join(of).join("src").join(below);
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {file}: {error}", limit.name))
        });
        let text: String = texts.collect();
        for constant in limit.made_of.iter().flat_map(|figure| constants(figure)) {
            let there = text.contains(&format!("const {constant}:"));
            assert!(there, "{}: {constant} is in none of {:?}", limit.name, limit.at);
        }
    }
    assert!(names.len() > 50, "{}", names.len());
}

/// The names of all counters of EVE's `stats`.
fn counters() -> BTreeSet<&'static str> {
    let (mut settings, _) = EngineSettings::from_settings(&SettingsMap::new(), true, [1, 2]).unwrap();
    settings.count_stream_events = true;
    let engine = Arc::new(Engine::new(&SettingsMap::new(), FileSettings::default()).unwrap());
    let chains = Arc::new(Chains::one(Generation(1), Vec::new()));
    let worker = Worker::new(settings, engine, chains).unwrap();
    // Functions count these, and this worker has none.
    let mut names = BTreeSet::from(["detect.alert_queue_overflow"]);
    let mut add = |name: &'static str| _ = names.insert(name);
    worker.visit_stats(|name, _| add(name));
    let live = LiveCounters::default();
    live.normaliser.for_each(|name, _| add(name));
    live.for_each_loss(|name, _| add(name));
    HandOverCounters::default().for_each(|name, _| add(name));
    RingCounters::default().for_each(|name, _| add(name));
    FileStoreCounters::default().for_each(|name, _| add(name));
    TlsStoreCounters::default().for_each(|name, _| add(name));
    HostCounters::default().visit(|name, _| add(name));
    names
}

/// The names of all events that rules can match.
fn events() -> BTreeSet<String> {
    let decoder = DecodeEvent::ALL.iter().map(|event| event.rule_name().to_owned());
    let stream = StreamEvent::ALL.iter().map(|event| format!("stream.{}", event.rule_name()));
    let generic = GENERIC.iter().map(|name| (*name).to_owned());
    let protocols = protocols::TABLE
        .iter()
        .flat_map(|spec| spec.events.iter().map(|event| format!("{}.{}", spec.name, event.to_lowercase())));
    decoder.chain(stream).chain(generic).chain(protocols).collect()
}

/// Whether the counter or event of a declaration exists.
fn exists(trace: LimitTrace, counters: &BTreeSet<&str>, events: &BTreeSet<String>) -> bool {
    match trace {
        LimitTrace::Stats(name) => match name.strip_suffix('*') {
            Some(beginning) => counters.iter().any(|counter| counter.starts_with(beginning)),
            None => counters.contains(name),
        },
        LimitTrace::Metric(name) => METRICS.iter().any(|metric| metric.name == name),
        LimitTrace::Event(name) => events.contains(name),
        LimitTrace::Function(name) => {
            [&gate::SPEC, &names::SPEC, &portscan::SPEC, &pfw::SPEC, &sfw::SPEC, &ids::SPEC]
                .iter()
                .any(|spec| spec.counters.iter().any(|counter| counter.name == name))
        }
        LimitTrace::Refused(_) | LimitTrace::Told(_) | LimitTrace::NotNeeded | LimitTrace::Nothing => true,
    }
}

#[test]
fn what_declarations_say_that_rises_is_there() {
    let (counters, events) = (counters(), events());
    for limit in declared() {
        for trace in limit.traces {
            assert!(exists(*trace, &counters, &events), "{}: there is no {}", limit.name, trace.text());
        }
    }
    for planted in [
        LimitTrace::Stats("flow.get_usd"),
        LimitTrace::Stats("flw.*"),
        LimitTrace::Metric("x"),
        LimitTrace::Event("x"),
        LimitTrace::Function("x"),
    ] {
        assert!(!exists(planted, &counters, &events), "{planted:?}");
    }
}
