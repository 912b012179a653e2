// SPDX-License-Identifier: Apache-2.0
//! A worker whose generation holds one function: returns the function's decision for each packet, in the real
//! data plane.
//!
//! The function's header rules are searched one by one, and all flows are of one class and tenant, which the
//! test chooses; [`Stack`](crate::Stack) has policies and their lookup.

use crate::Nothing;
use bartizan_applayer::file::FileSettings;
use bartizan_applayer::flow::Engine;
use bartizan_base::{Decision, Fid, FunctionId, Generation, LinkId, Path, Reason, TenantId, Timestamp};
use bartizan_classify::Header;
use bartizan_dataplane::worker::{Frame, Worker};
use bartizan_function::{
    Function, FunctionKind, FunctionModel, FunctionSpec, HeaderRules, HostKeeper, HostTables, PacketContext,
    PatternSets, RulePart, RuleSource, RulesError, Together, WorkerState,
};
use bartizan_packet::{Decoded, LinkType};
use bartizan_stages::chain::{Chains, Class, FlowClassifier, HeaderRuleMatches};
use bartizan_stages::settings::EngineSettings;
use std::sync::{Arc, LazyLock, Mutex};

/// See the module.
pub struct Alone {
    /// Time of the next packet.
    pub now: Timestamp,
    worker: Worker,
    watched: Arc<Watched>,
    whose: Arc<Mutex<(Fid, TenantId)>>,
    hosts: HostTables,
}

/// The function's bit.
const ID: FunctionId = FunctionId(1);

/// A function that records its decisions, and whose state for the worker tests can read.
struct Watched {
    inner: Box<dyn Function>,
    state: Mutex<WorkerState>,
    said: Mutex<Vec<Decision>>,
}

impl Watched {
    fn call(
        &self,
        context: &mut PacketContext<'_>,
        callback: impl Fn(&dyn Function, &mut PacketContext<'_>) -> Decision,
    ) -> Decision {
        // The worker holds no state for the function: it is here.
        let mut state = self.state.lock().unwrap();
        core::mem::swap(context.worker, &mut *state);
        let decision = callback(self.inner.as_ref(), context);
        core::mem::swap(context.worker, &mut *state);
        self.said.lock().unwrap().push(decision);
        decision
    }
}

impl Function for Watched {
    fn spec(&self) -> &'static FunctionSpec {
        self.inner.spec()
    }

    fn id(&self) -> FunctionId {
        self.inner.id()
    }

    fn packet(&self, context: &mut PacketContext<'_>) -> Decision {
        if self.spec().model == FunctionModel::Payload {
            return self.inner.packet(context);
        }
        self.call(context, |function, context| function.packet(context))
    }

    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        self.call(context, |function, context| function.payload(context))
    }

    fn together(&self) -> Together {
        self.inner.together()
    }

    fn hosts(&self) -> Option<Arc<dyn HostKeeper>> {
        self.inner.hosts()
    }

    fn waits_for_protocol(&self) -> bool {
        self.inner.waits_for_protocol()
    }
}

/// All flows are of one class; the function's header rules are searched one by one.
struct OneClass {
    whose: Arc<Mutex<(Fid, TenantId)>>,
    rules: Vec<HeaderRules>,
}

impl FlowClassifier for OneClass {
    fn classify(&self, header: &Header, _: Timestamp, matches: &mut HeaderRuleMatches) -> Class {
        let (fid, _) = *self.whose.lock().unwrap();
        let own = self.rules.iter().find(|rules| rules.fids.is_empty() || rules.fids.contains(&fid));
        let matching = own.iter().flat_map(|own| own.rules.iter()).filter(|(_, rule)| rule.matches(header));
        matches.clear();
        matches.extend(matching.map(|(number, _)| (ID, *number)).min());
        Class { fid, path: Path::EMPTY.with(ID) }
    }

    fn tenant_of(&self, _: &Decoded, _: LinkId) -> TenantId {
        self.whose.lock().unwrap().1
    }
}

/// Settings and engine of all these workers: making them takes longer than most tests.
static ENGINE: LazyLock<(EngineSettings, Arc<Engine>)> = LazyLock::new(|| {
    let mut settings = bartizan_config::suricata::shipped();
    settings.set("flow.memcap", "1mb");
    // The engine does not ask functions about packets that it refuses itself.
    settings.set("exception-policy", "ignore");
    let engine = Engine::new(&settings, FileSettings::default()).expect("an engine");
    let (settings, _) = EngineSettings::from_settings(&settings, true, [1, 2]).expect("settings");
    (settings, Arc::new(engine))
});

/// One policy's class for a function's rules: fid 1, from 10/8 and 2001:db8::/32.
fn class(rules: &str) -> String {
    format!(
        r#"{{"tenants": {{"default": 0, "a": 1}}, "groups": {{"bad": ["10.9.0.0/16", "2001:db8:9::/48"]}},
            "classes": [{{"policy": "web", "fids": [1], "from": ["10.0.0.0/8", "2001:db8::/32"], "to": ["0.0.0.0/0", "::/0"], "rules": {rules}}}]}}"#
    )
}

impl Alone {
    /// A worker with the function and these rules, in prevention. Its class is of a policy `web` with fid 1,
    /// from 10.0.0.0/8 and 2001:db8::/32; there are a group `bad` (10.9.0.0/16, 2001:db8:9::/48) and a tenant
    /// `a` with number 1.
    ///
    /// # Panics
    /// The function refuses the rules.
    #[must_use]
    pub fn new(kind: &dyn FunctionKind, rules: &str) -> Self {
        Alone::tuned(kind, rules, |_| ())
    }

    /// As [`Alone::new`], with other settings of the engine.
    ///
    /// # Panics
    /// The function refuses the rules.
    #[must_use]
    pub fn tuned(kind: &dyn FunctionKind, rules: &str, tune: fn(&mut EngineSettings)) -> Self {
        let (settings, engine) = &*ENGINE;
        let mut settings = settings.clone();
        tune(&mut settings);
        let whose = Arc::new(Mutex::new((Fid(1), TenantId(0))));
        let hosts = HostTables::default();
        let (chains, watched) = generation(kind, rules, 1, &hosts, &whose);
        let worker = Worker::new(settings, Arc::clone(engine), chains).expect("a worker");
        Alone { now: Timestamp::from_parts(1_000, 0), worker, watched, whose, hosts }
    }

    /// Makes a function of a kind from the rules of a class.
    ///
    /// # Errors
    /// Those of the function.
    ///
    /// # Panics
    /// The rules are no JSON.
    pub fn make(kind: &dyn FunctionKind, rules: &str) -> Result<Box<dyn Function>, Vec<RulesError>> {
        make(kind, rules, 1, &HostTables::default())
    }

    /// Enters another generation, of the same rules or others.
    ///
    /// # Panics
    /// The function refuses the rules.
    pub fn generation(&mut self, kind: &dyn FunctionKind, rules: &str, number: u64) {
        let (chains, watched) = generation(kind, rules, number, &self.hosts, &self.whose);
        self.worker.enter_generation(chains);
        self.watched = watched;
    }

    /// Sets the class of flows that begin from now on.
    ///
    /// # Panics
    /// Never.
    pub fn set_class(&mut self, fid: Fid) {
        self.whose.lock().unwrap().0 = fid;
    }

    /// Sets the tenant of packets from now on.
    ///
    /// # Panics
    /// Never.
    pub fn set_tenant(&mut self, tenant: TenantId) {
        self.whose.lock().unwrap().1 = tenant;
    }

    /// Ends all flows.
    pub fn end_flows(&mut self) {
        self.worker.shutdown(&mut Nothing);
    }

    /// A counter of the function in this generation.
    ///
    /// # Panics
    /// It has no counter of this name.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        let mut value = None;
        self.watched.inner.log(&self.watched.state.lock().unwrap(), &mut |n, v| {
            if n == name {
                value = Some(v);
            }
        });
        value.unwrap_or_else(|| panic!("no counter {name}"))
    }

    /// The packets counted for the rule at a place, from 1, in this generation; 0: for the default.
    ///
    /// # Panics
    /// There is no such rule.
    #[must_use]
    pub fn rule_counter(&self, place: u32) -> u64 {
        let mut packets = None;
        self.watched.inner.log_rules(&self.watched.state.lock().unwrap(), &mut |rule| {
            if rule.place == place {
                packets = Some(rule.packets);
            }
        });
        packets.unwrap_or_else(|| panic!("no rule {place}"))
    }

    /// Runs an IP packet; returns the function's decision, `None` when the function is no longer on the
    /// flow's path.
    ///
    /// # Panics
    /// The packet is malformed, or the worker decides otherwise than the function.
    pub fn run(&mut self, bytes: &[u8]) -> Option<Decision> {
        let frame = Frame {
            now: self.now,
            bytes,
            wire_len: bytes.len() as u32,
            link_type: LinkType::RAW,
            link: LinkId(0),
            number: None,
        };
        let decided = self.worker.frame(&frame, &mut Nothing).expect("no fragment");
        let said = core::mem::take(&mut *self.watched.said.lock().unwrap());
        assert!(said.len() < 2, "asked twice of one packet: {said:?}");
        let said = said.first().copied();
        // The engine may have a reason of its own as well.
        let refused = said.is_some_and(|said| !said.verdict.forwards());
        assert!(!refused || !decided.verdict.forwards(), "{said:?} is not done: {decided:?}");
        said
    }

    /// The reason why the function refuses a packet; `None` when it passes.
    ///
    /// # Panics
    /// It refuses without a reason.
    pub fn refused(&mut self, bytes: &[u8]) -> Option<Reason> {
        let decision = self.run(bytes)?;
        (!decision.verdict.forwards()).then(|| decision.reason.expect("no refusal without a reason"))
    }
}

fn make(
    kind: &dyn FunctionKind,
    rules: &str,
    number: u64,
    hosts: &HostTables,
) -> Result<Box<dyn Function>, Vec<RulesError>> {
    let rules = serde_json::from_str(&class(rules)).expect("JSON");
    let (common, classes) = RulePart::split(rules);
    let (common, names) = (Arc::new(common), Arc::default());
    let (place, generation) = ("test", Generation(number));
    let (common, classes) = (&common, classes.as_slice());
    let patterns = &PatternSets::default();
    kind.rules(&RuleSource { common, classes, place, generation, id: ID, hosts, patterns, names: &names })
}

fn generation(
    kind: &dyn FunctionKind,
    rules: &str,
    number: u64,
    hosts: &HostTables,
    whose: &Arc<Mutex<(Fid, TenantId)>>,
) -> (Arc<Chains>, Arc<Watched>) {
    let mut inner = make(kind, rules, number, hosts).expect("the rules are right");
    let classifier = OneClass { whose: Arc::clone(whose), rules: inner.take_header_rules() };
    let state = Mutex::new(inner.worker());
    let watched = Arc::new(Watched { inner, state, said: Mutex::default() });
    let functions = vec![Arc::clone(&watched) as Arc<dyn Function>];
    (Arc::new(Chains::new(Generation(number), functions, Box::new(classifier))), watched)
}
