// SPDX-License-Identifier: Apache-2.0
//! The host: the real agent builds a case's policy, and a worker in prevention gets its frames.

use super::case::{Case, Outcome, bytes, folder};
use crate::common;
use bartizan_applayer::file::FileSettings;
use bartizan_applayer::flow::Engine;
use bartizan_base::{Decision, LinkId, SettingsMap, TenantId, Timestamp, Verdict};
use bartizan_config::policy::{self, PolicyFile};
use bartizan_dataplane::worker::{Frame, Worker};
use bartizan_flow::FlowEntry;
use bartizan_packet::LinkType;
use bartizan_stages::early::Early;
use bartizan_stages::flow_ext::FlowExt;
use bartizan_stages::record::Recorder;
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit_worker::{Nothing, ids};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The links by which frames come in the files, numbered from 0.
const LINKS: [&str; 2] = ["one", "two"];
/// Settings that switch off the stream engine's own drops.
const ENGINE_OFF: [(&str, &str); 2] = [("stream.midstream-policy", "ignore"), ("stream.drop-invalid", "no")];

/// The configuration of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    /// As on a live link: the stream engine drops some segments before functions run.
    Live,
    /// With [`ENGINE_OFF`]: functions decide, except on bytes that receivers may interpret in two ways.
    Functions,
    /// Functions decide on these bytes, too.
    FunctionsAlone,
    /// As over captures in prevention (`inspect --ips`): nothing has real receivers.
    Captures,
}

/// The level under test: the host.
pub struct Host {
    pub worker: Worker,
    /// The engine's settings.
    pub settings: SettingsMap,
    tenants: Vec<(String, TenantId)>,
    /// The early list, if the case has a level that drops packets without a flow.
    pub early: Option<Arc<Early>>,
    pub clock: Timestamp,
    /// The number of the case's flow, once a frame of it was forwarded.
    open: Option<u64>,
}

impl Host {
    pub fn new(case: &Case, stands: Stands) -> Result<Self, String> {
        Self::with(case, stands, false)
    }

    /// A host for a case; `early`: with the list for a level that drops packets without a flow.
    pub fn with(case: &Case, stands: Stands, early: bool) -> Result<Self, String> {
        // Rules of detection stand beside the policy that names them.
        let rules = std::fs::read_to_string(folder().join(format!("policies/{}.rules", case.policy)));
        let mut agent = rules.map_or_else(|_| common::agent(), |rules| common::agent_and(ids(&rules)));
        agent.set_early(early);
        let file = policy_file(&case.policy, &agent.function_names())?;
        let links: Vec<(&str, LinkId)> = common::links(&LINKS);
        let tenants = agent.policy_entries(&file, &links).map_err(|error| error.to_string())?.tenants;
        let prepared = agent.prepare(&file, &links).map_err(|error| error.to_string())?;
        let early = prepared.chains.early.clone();
        let mut settings = bartizan_config::suricata::shipped();
        settings.set("flow.memcap", "4mb");
        // All drops are reported, not only the first of a flow.
        assert!(settings.get("outputs.1.eve-log.types.34").is_none(), "the first that is free");
        settings.set("outputs.1.eve-log.types.34", "drop");
        settings.set("outputs.1.eve-log.types.34.drop.flows", "all");
        settings.set("outputs.1.eve-log.types.34.drop.alerts", "yes");
        let own = case.settings.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let is_off = matches!(stands, Stands::Functions | Stands::FunctionsAlone);
        for (key, value) in ENGINE_OFF.into_iter().filter(|_| is_off).chain(own) {
            settings.set(key, value);
        }
        let engine = Arc::new(Engine::new(&settings, FileSettings::default()).expect("an engine"));
        let (engine_settings, _) = EngineSettings::from_settings(&settings, true, [1, 2]).expect("settings");
        let engine_settings = if stands == Stands::Captures {
            engine_settings
        } else {
            let mut live = engine_settings.for_real_receivers(true).for_live_links();
            live.stream.strict = stands != Stands::FunctionsAlone;
            live
        };
        let worker = Worker::new(engine_settings, engine, Arc::new(prepared.chains))
            .map_err(|error| error.to_string())?;
        let clock = Timestamp::from_parts(1_000_000, 0);
        Ok(Host { worker, settings, tenants, early, clock, open: None })
    }

    /// The case's flow, with its number of packets.
    fn seen(&self, case: &Case) -> Option<(u64, u64)> {
        let entry = self.entry(case)?;
        Some((entry.serial(), entry.packets.to_server + entry.packets.to_client))
    }

    /// Advances the clock to the next frame of a case.
    pub fn advance(&mut self, after_ms: u64) {
        self.clock = Timestamp::from_nanos(self.clock.as_nanos() + after_ms * 1_000_000);
    }

    /// Processes a frame of a case; returns its outcome.
    pub fn frame(
        &mut self,
        case: &Case,
        hex: &str,
        after_ms: u64,
    ) -> Result<(Outcome, Option<Decision>), String> {
        self.advance(after_ms);
        let before = self.seen(case);
        let (outcome, decision) = self.hand_in(&bytes(hex)?, link(case)?, &mut Nothing);
        let after = self.seen(case);
        if outcome == Outcome::Forward && before != after {
            self.open = after.map(|(flow, _)| flow);
        }
        Ok((outcome, decision))
    }

    /// Processes a frame at the present time.
    pub fn hand_in(
        &mut self,
        bytes: &[u8],
        link: LinkId,
        recorder: &mut dyn Recorder,
    ) -> (Outcome, Option<Decision>) {
        let frame = Frame {
            now: self.clock,
            bytes,
            wire_len: bytes.len() as u32,
            link_type: LinkType::ETHERNET,
            link,
            number: None,
        };
        let decision = self.worker.frame(&frame, recorder);
        let outcome = match decision.map(|decision| decision.verdict) {
            None => Outcome::Hold,
            Some(Verdict::Continue | Verdict::Pass) => Outcome::Forward,
            Some(Verdict::Drop) => Outcome::Drop,
            Some(Verdict::Reject) => Outcome::Reject,
        };
        (outcome, decision)
    }

    pub fn entry(&self, case: &Case) -> Option<&FlowEntry<FlowExt>> {
        let flow = case.flow.as_ref()?;
        let tenant = self.tenants.iter().find(|(name, _)| *name == case.tenant)?.1;
        let ports = matches!(flow.protocol, 6 | 17 | 132);
        let flows = self.worker.flows();
        let is_it = |entry: &&FlowEntry<FlowExt>| {
            let key = entry.key();
            entry.tenant() == tenant
                && (key.protocol(), key.source(), key.destination())
                    == (flow.protocol, flow.client, flow.server)
                && (!ports
                    || (key.source_port(), key.destination_port()) == (flow.client_port, flow.server_port))
        };
        flows.iter().map(|(_, entry)| entry).find(is_it)
    }

    /// The state of the case's flow, by its name in the files.
    pub fn state(&self, case: &Case) -> &'static str {
        match self.entry(case) {
            Some(entry) if self.open == Some(entry.serial()) => match entry.ext.session.state().eve_name() {
                Some(name) => name,
                None if entry.both_seen() || entry.ext.session.is_midstream() => "established",
                None => "new",
            },
            _ => "none",
        }
    }

    /// Counters of the packet filter's rules, by policy and place: `web.3`, `web.default`.
    pub fn rules(&self) -> BTreeMap<String, u64> {
        let mut rules = BTreeMap::new();
        self.worker.visit_rules(&mut |_, rule| {
            let place = if rule.place == 0 { "default".to_owned() } else { rule.place.to_string() };
            rules.insert(format!("{}.{place}", rule.name.policy), rule.packets);
        });
        rules
    }
}

/// The link by which a case's frames come.
pub fn link(case: &Case) -> Result<LinkId, String> {
    let link = LINKS.iter().position(|link| *link == case.link).ok_or("no such link")?;
    Ok(LinkId(link as u16))
}

fn policy_file(name: &str, functions: &[&str]) -> Result<PolicyFile, String> {
    policy::load(&folder().join(format!("policies/{name}.yaml")), functions)
        .map_err(|error| error.to_string())
}
