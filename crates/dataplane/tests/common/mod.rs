// SPDX-License-Identifier: Apache-2.0
//! Common code of the tests of workers: functions that record their inputs, and the parts of a worker.
#![allow(dead_code, unused_imports)] // Not every test uses everything.

pub use bartizan_testkit::hosts::*;
pub use bartizan_testkit_worker::{Captured, Nothing};

use bartizan_applayer::file::FileSettings;
use bartizan_applayer::flow::Engine;
use bartizan_base::{Decision, FunctionId, Generation, RuleId, SettingsMap, Timestamp};
use bartizan_function::{
    Finding, FindingAction, Function, FunctionModel, FunctionSpec, PacketContext, RuleInfo, WorkerState,
};
use bartizan_packet::{PacketSource, TransportLayer};
use bartizan_stages::chain::Chains;
use bartizan_stages::settings::EngineSettings;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

/// A packet as a function received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub worker: u16,
    pub generation: u64,
    pub now: Timestamp,
    /// Lower and higher (address, port), protocol: the flow whichever way round.
    pub flow: Option<[(IpAddr, u16); 2]>,
    pub protocol: u8,
    /// Inside so many tunnels: another flow for each.
    pub level: u8,
    /// Flow and number that the test put into the payload.
    pub mark: Option<(u32, u32)>,
}

/// Writes down each packet; refuses those whose payload says `drop`, reports those that say `evil`.
pub struct Watch {
    pub generation: u64,
    pub workers: AtomicU16,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    pub rule: Arc<RuleInfo>,
}

static SPEC: FunctionSpec = spec("find", FunctionModel::Payload);
pub static HEADER_SPEC: FunctionSpec = spec("watch", FunctionModel::StatefulHeaders);

/// A function of a test that only looks.
pub const fn spec(name: &'static str, model: FunctionModel) -> FunctionSpec {
    FunctionSpec {
        name,
        summary: "Writes down what it sees.",
        model,
        runs_after: &[],
        runs_before: &[],
        header_half: None,
        host_slot: None,
        counters: &[],
    }
}

fn find(payload: &[u8], word: &[u8]) -> bool {
    payload.windows(word.len()).any(|w| w == word)
}

impl Function for Watch {
    fn spec(&self) -> &'static FunctionSpec {
        &HEADER_SPEC
    }

    fn id(&self) -> FunctionId {
        FunctionId(0)
    }

    fn worker(&self) -> WorkerState {
        Box::new(self.workers.fetch_add(1, Ordering::Relaxed))
    }

    fn packet(&self, context: &mut PacketContext<'_>) -> Decision {
        let Some(packet) = context.facts.packet else { return Decision::CONTINUE };
        let decoded = packet.decoded();
        let payload = packet.payload();
        let ports = decoded.ports().unwrap_or_default();
        let flow = decoded.src().zip(decoded.dst()).map(|(src, dst)| {
            let mut ends = [(src, ports.0), (dst, ports.1)];
            ends.sort_unstable();
            ends
        });
        let has_inner = decoded.flags.contains(bartizan_packet::PacketFlags::HAS_INNER);
        self.seen.lock().unwrap().push(Seen {
            worker: *context.worker.downcast_ref::<u16>().unwrap(),
            generation: self.generation,
            now: context.facts.now,
            flow: flow.filter(|_| context.facts.flow.is_some()),
            protocol: decoded.proto().unwrap_or(0),
            level: decoded.recursion,
            mark: if has_inner { None } else { read_mark(payload) },
        });
        if context.facts.prevention && find(payload, b"drop") {
            return Decision::refuse(
                bartizan_base::Verdict::Drop,
                bartizan_base::Reason::PfwRule,
                FunctionId(0),
            );
        }
        Decision::CONTINUE
    }
}

/// Reports `evil` in payloads and streams.
pub struct Finder(pub Arc<RuleInfo>);

impl Function for Finder {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn id(&self) -> FunctionId {
        FunctionId(1)
    }

    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        let in_packet = context.facts.packet.is_some_and(|p| {
            find(p.payload(), b"evil") && matches!(p.decoded().transport, TransportLayer::Udp(_))
        });
        let in_stream = context.facts.stream.as_ref().is_some_and(|s| find(s.bytes, b"evil"));
        if in_packet || in_stream {
            let finding = Finding::new(Arc::clone(&self.0), FindingAction::Allowed);
            context.findings.push(Finding { stream: in_stream, ..finding });
        }
        Decision::CONTINUE
    }
}

/// All that a run needs.
pub struct Bench {
    pub settings: SettingsMap,
    pub engine_settings: EngineSettings,
    pub engine: Arc<Engine>,
    pub chains: Arc<Chains>,
    pub seen: Arc<Mutex<Vec<Seen>>>,
}

/// The rule of who reports `evil`.
pub fn evil() -> Arc<RuleInfo> {
    Arc::new(RuleInfo {
        id: RuleId { gid: 1, sid: 9, rev: 1 },
        message: "evil".into(),
        category: String::new(),
        severity: 3,
        references: Vec::new(),
        metadata: Vec::new(),
        target_is_source: None,
        text: String::new(),
        firewall: None,
    })
}

pub fn chains(generation: u64, seen: &Arc<Mutex<Vec<Seen>>>) -> Arc<Chains> {
    let rule = evil();
    let watch =
        Watch { generation, workers: AtomicU16::new(0), seen: Arc::clone(seen), rule: Arc::clone(&rule) };
    Arc::new(Chains::one(Generation(generation), vec![Arc::new(watch), Arc::new(Finder(rule))]))
}

pub fn bench(prevention: bool, checksums: &str) -> Bench {
    let mut settings = bartizan_config::suricata::shipped();
    settings.set("pcap-file.checksum-checks", checksums);
    settings.set("flow.memcap", "4mb");
    let engine_settings = EngineSettings::from_settings(&settings, prevention, [11, 22]).unwrap().0;
    let engine = Arc::new(Engine::new(&settings, FileSettings::default()).unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let chains = chains(1, &seen);
    Bench { settings, engine_settings, engine, chains, seen }
}

/// A folder that stands beside the repository, or one up for a worktree.
pub fn beside(name: &str) -> Option<std::path::PathBuf> {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    ["../../../shared", "../../../../shared"].iter().map(|p| here.join(p).join(name)).find(|p| p.is_dir())
}
