// SPDX-License-Identifier: Apache-2.0
//! Functions that panic, are stopped and started under traffic: packets go on or are refused as policies say,
//! the others notice nothing.

use bartizan_base::{Decision, Direction, Fid, FunctionId, LinkId, PacketDuration, Reason, Timestamp};
use bartizan_dataplane::worker::{ByteArrival, ByteFlow, Frame, Worker};
use bartizan_flow::{FlowKey, FlowScope};
use bartizan_function::{
    FlowView, Function, FunctionKind, FunctionModel, FunctionSpec, OffloadRequirement, PacketContext,
    RuleSource, RulesError, SlotState, StateSlot, WorkerState, state_in,
};
use bartizan_offload::{Action, DeviceKey, FlowManager};
use bartizan_packet::LinkType;
use bartizan_stages::lifecycle::{FunctionCondition, FunctionEventKind, LifecycleCommand};
use bartizan_stages::notice::Notice;
use bartizan_stages::record::{Recorder, RecorderEvent};
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit::hosts::{address, ethernet, ip, tcp, udp};
use bartizan_testkit::random::Random;
use bartizan_testkit_device::{Habits, MockDevice, MockPacket, MockWire};
use bartizan_testkit_worker::{Made, Stack};
use serde_json::Value;
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;

const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// Panics with packets whose payload has the word `panic`, and counts packets by worker and by flow.
struct Fragile(FunctionId, &'static FunctionSpec);
struct FragileKind(&'static FunctionSpec);

const fn spec(name: &'static str, model: FunctionModel) -> FunctionSpec {
    FunctionSpec {
        name,
        summary: "Panics.",
        model,
        runs_after: &["gate"],
        runs_before: &["pfw", "sfw", "ids"],
        header_half: None,
        host_slot: None,
        counters: &[],
    }
}

/// Between `portscan` and the others, and behind all.
static HEADER: FunctionSpec = spec("fragile", FunctionModel::StatefulHeaders);
static PAYLOAD: FunctionSpec =
    FunctionSpec { runs_after: &["ids"], runs_before: &[], ..spec("brittle", FunctionModel::Payload) };

/// State that the function keeps for flows, counted per thread: state that is not released shows in the
/// count.
struct Kept;

thread_local! {
    static KEPT: Cell<i64> = const { Cell::new(0) };
}

impl Default for Kept {
    fn default() -> Self {
        KEPT.set(KEPT.get() + 1);
        Kept
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        KEPT.set(KEPT.get() - 1);
    }
}

#[derive(Default)]
struct InFlow {
    packets: u64,
    _kept: Kept,
}

impl SlotState for InFlow {
    fn held(&self) -> usize {
        100
    }
}

impl FunctionKind for FragileKind {
    fn spec(&self) -> &'static FunctionSpec {
        self.0
    }

    fn rules(&self, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>> {
        Ok(Box::new(Fragile(source.id, self.0)))
    }
}

impl Fragile {
    fn look(&self, context: &mut PacketContext<'_>) -> Decision {
        let facts = context.facts;
        let Some(packet) = facts.packet.or(facts.bytes) else { return Decision::CONTINUE };
        if let Some(count) = context.worker.downcast_mut::<[u64; 2]>() {
            count[0] += 1;
        }
        if context.facts.flow.is_some()
            && let Some((flow, _)) = state_in::<InFlow>(context.slot)
        {
            flow.packets += 1;
            let most = flow.packets;
            if let Some(count) = context.worker.downcast_mut::<[u64; 2]>() {
                count[1] = count[1].max(most);
            }
        }
        assert!(!packet.payload().windows(5).any(|w| w == b"panic"), "a defect, made by the test");
        Decision::CONTINUE
    }
}

impl Function for Fragile {
    fn spec(&self) -> &'static FunctionSpec {
        self.1
    }

    fn id(&self) -> FunctionId {
        self.0
    }

    fn worker(&self) -> WorkerState {
        Box::new([0u64; 2])
    }

    fn packet(&self, context: &mut PacketContext<'_>) -> Decision {
        if self.1.model == FunctionModel::Payload { Decision::CONTINUE } else { self.look(context) }
    }

    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        self.look(context)
    }

    /// Each datagram gets the same decision, so a level may have their flows.
    fn below(&self, flow: &FlowView<'_>, _: Fid, _: &StateSlot) -> OffloadRequirement {
        if flow.protocol == 17 && flow.established {
            OffloadRequirement::Nothing
        } else {
            OffloadRequirement::Judges
        }
    }

    fn log(&self, worker: &WorkerState, each: &mut dyn FnMut(&'static str, u64)) {
        let [seen, longest] = worker.downcast_ref::<[u64; 2]>().copied().unwrap_or_default();
        each("seen", seen);
        each("longest", longest);
    }
}

struct Bench {
    stack: Stack,
    nanos: u64,
}

impl Bench {
    fn new(name: &str, policy: &str, rules: &str, tune: fn(&mut EngineSettings)) -> Self {
        let made = Made { name, policy, set: &[], tune, rules, thresholds: "" };
        let kinds: Vec<Arc<dyn FunctionKind>> =
            vec![Arc::new(FragileKind(&HEADER)), Arc::new(FragileKind(&PAYLOAD))];
        Bench { stack: Stack::with_functions(&made, kinds), nanos: 1_000_000_000 }
    }

    fn send(&mut self, bytes: &[u8]) -> Decision {
        self.nanos += 1_000_000;
        let now = Timestamp::from_nanos(self.nanos);
        let frame = Frame {
            now,
            bytes,
            wire_len: bytes.len() as u32,
            link_type: LinkType::ETHERNET,
            link: LinkId(0),
            number: None,
        };
        self.stack.worker.frame(&frame, &mut self.stack.recorder).expect("no fragment")
    }

    fn datagram(&mut self, v6: bool, port: u16, payload: &[u8]) -> Decision {
        self.send(&ethernet(v6, &ip(v6, (1, 2), 17, &udp((port, 53), payload))))
    }

    /// A segment of the client (`true`) or of the server.
    fn segment(
        &mut self,
        v6: bool,
        client: bool,
        (seq, ack): (u32, u32),
        flags: u8,
        payload: &[u8],
    ) -> Decision {
        let (hosts, ports) = if client { ((1, 2), (1000, 80)) } else { ((2, 1), (80, 1000)) };
        self.send(&ethernet(v6, &ip(v6, hosts, 6, &tcp(ports, seq, ack, flags, payload))))
    }

    fn open(&mut self, v6: bool) {
        for (client, numbers, flags) in
            [(true, (100, 0), SYN), (false, (500, 101), SYN | ACK), (true, (101, 501), ACK)]
        {
            assert_eq!(self.segment(v6, client, numbers, flags, b"").reason, None);
        }
    }

    fn own(&self, function: &str, counter: &str) -> u64 {
        let mut found = 0;
        self.stack.worker.visit_functions_by_name(&mut |of, name, value| {
            if (of, name) == (function, counter) {
                found = value;
            }
        });
        found
    }

    fn stat(&self, name: &str) -> u64 {
        let mut found = 0;
        self.stack.worker.visit_stats(|of, value| {
            if of == name {
                found = value;
            }
        });
        found
    }

    fn condition(&self, function: &str) -> FunctionCondition {
        self.stack.worker.functions_now().find(|now| now.function == function).unwrap().condition
    }

    fn wait(&mut self, seconds: u64) {
        self.nanos += seconds * 1_000_000_000;
    }
}

const CLOSED: &str = "chain: [portscan, fragile, pfw, sfw, ids], pfw: {default: allow}, ids: {}";
const OPEN: &str =
    "chain: [portscan, fragile, pfw, sfw, ids], pfw: {default: allow}, ids: {}, on-failure: {fragile: pass}";
const BRITTLE: &str = "chain: [pfw, sfw, ids, brittle], pfw: {default: allow}, ids: {}";
const BRITTLE_OPEN: &str =
    "chain: [pfw, sfw, ids, brittle], pfw: {default: allow}, ids: {}, on-failure: {brittle: pass}";
const SEES: &str = "alert udp any any -> any any (content:\"seen\"; sid:1;)";

#[test]
fn a_function_that_panics_is_away_until_its_time_and_its_flow_is_refused() {
    for (policy, name) in [(CLOSED, "fragile"), (BRITTLE, "brittle")] {
        for v6 in [false, true] {
            let mut bench = Bench::new("closed", policy, SEES, |_| ());
            assert_eq!(bench.datagram(v6, 1, b"seen").reason, None);
            let refused = bench.datagram(v6, 2, b"panic");
            assert_eq!(refused.reason, Some(Reason::FunctionFailed));
            assert_eq!(bench.condition(name), FunctionCondition::Failed);
            // All others wait for it.
            assert_eq!(bench.datagram(v6, 1, b"seen").reason, Some(Reason::FunctionFailed));
            assert_eq!(bench.datagram(v6, 3, b"seen").reason, Some(Reason::FunctionFailed));
            bench.wait(1);
            assert_eq!(bench.datagram(v6, 1, b"seen").reason, None);
            assert_eq!(bench.condition(name), FunctionCondition::Running);
            // The flow that has led to it does not come back to it.
            assert_eq!(bench.datagram(v6, 2, b"panic").reason, Some(Reason::FunctionFailed));
            assert_eq!(bench.condition(name), FunctionCondition::Running);
            assert_eq!(bench.stat("function.failures"), 1);
            assert_eq!(bench.stat("detect.alert"), 2, "what was refused nobody has seen");
            let news: Vec<FunctionEventKind> =
                bench.stack.worker.take_events().into_iter().map(|news| news.what).collect();
            let [FunctionEventKind::Failed(panicked, Some(wait)), FunctionEventKind::Started] = &news[..]
            else {
                panic!("{news:?}")
            };
            assert_eq!(*wait, PacketDuration::from_secs(1));
            assert!(panicked.message.contains("made by the test"), "{panicked}");
            assert!(panicked.place.contains("tests/lifecycle.rs:"), "{panicked}");
        }
    }
}

/// A function that panics with a connection's bytes: the policy decides as for packets. The connection that
/// has led to it is over; the bytes of others wait while it is away.
#[test]
fn bytes_without_packets_wait_while_a_function_is_away() {
    for (policy, is_open) in [(CLOSED, false), (BRITTLE, false), (OPEN, true), (BRITTLE_OPEN, true)] {
        for v6 in [false, true] {
            let mut bench = Bench::new("bytes", policy, SEES, |_| ());
            let server = SocketAddr::new(address(v6, 2), 80);
            let mut flows = [1, 2].map(|port| {
                let client = SocketAddr::new(address(v6, 1), port);
                ByteFlow::new(client, server, LinkId(0))
            });
            let Stack { worker, recorder, .. } = &mut bench.stack;
            let at = |seconds: u64| Timestamp::from_parts(1_000 + seconds, 0);
            for flow in &mut flows {
                assert!(worker.open_bytes(flow, at(0), recorder).verdict.forwards());
            }
            let [guilty, other] = &mut flows;
            let mut send = |worker: &mut Worker, flow: &mut ByteFlow, seconds, bytes: &[u8]| {
                let (now, direction) = (at(seconds), Direction::ToServer);
                let arrival = ByteArrival { now, direction, bytes, end: false };
                let decision = worker.bytes(flow, &arrival, recorder);
                let reason = decision.reason.filter(|_| !decision.verdict.forwards());
                (reason, worker.bytes_wait(flow, &decision, now).is_some())
            };
            let failed = if is_open { None } else { Some(Reason::FunctionFailed) };
            assert_eq!(send(worker, guilty, 0, b"panic"), (failed, false), "{policy}");
            assert_eq!(send(worker, other, 0, b"words"), (failed, !is_open), "{policy}");
            assert_eq!(send(worker, other, 2, b"words and more"), (None, false), "{policy}");
            assert_eq!(send(worker, guilty, 2, b"harmless").0, failed, "{policy}");
        }
    }
}

/// Lifecycle and quota events that the recorder receives.
#[derive(Default)]
struct Told(Vec<(u64, String)>);

impl Recorder for Told {
    fn record(&mut self, event: RecorderEvent<'_>) {
        if let RecorderEvent::Notice { now, notice: Notice::Function(news), .. } = event {
            self.0.push((now.as_secs(), news.to_string()));
        }
    }
}

#[test]
fn the_recorder_is_told_what_happens_to_functions_by_the_packet_clock() {
    let mut bench = Bench::new("told", CLOSED, SEES, |_| ());
    bench.datagram(false, 1, b"panic");
    let mut told = Told::default();
    let at = |seconds| Timestamp::from_parts(seconds, 0);
    // A quiet network: time alone starts it again.
    let begun =
        bench.stack.worker.functions_now().find(|f| f.function == "fragile").expect("it is there").since;
    bench.stack.worker.idle(begun, &mut told);
    bench.stack.worker.idle(at(begun.as_secs() + 5), &mut told);
    bench.stack.worker.order("fragile", LifecycleCommand::Stop).expect("it is there");
    bench.stack.worker.shutdown(&mut told);
    let (times, texts): (Vec<u64>, Vec<String>) = told.0.into_iter().unzip();
    assert_eq!(times[0], begun.as_secs());
    assert_eq!(times[1], begun.as_secs() + 5);
    assert!(texts[0].starts_with("function `fragile` failed: "), "{texts:?}");
    assert_eq!(texts[1..], ["function `fragile` is running again", "function `fragile` was stopped"]);
}

#[test]
fn where_the_policy_lets_packets_go_the_chain_goes_on_without_it() {
    for (policy, name) in [(OPEN, "fragile"), (BRITTLE_OPEN, "brittle")] {
        for v6 in [false, true] {
            let mut bench = Bench::new("open", policy, SEES, |_| ());
            bench.open(v6);
            assert_eq!(bench.datagram(v6, 2, b"panic, seen").reason, None);
            assert_eq!(bench.condition(name), FunctionCondition::Failed);
            let before = bench.own(name, "seen");
            assert_eq!(bench.datagram(v6, 2, b"seen").reason, None);
            assert_eq!(bench.datagram(v6, 3, b"seen").reason, None);
            assert_eq!(bench.segment(v6, true, (101, 501), ACK, b"data").reason, None);
            assert_eq!(bench.stat("detect.alert"), 3, "the others see all");
            assert_eq!(bench.own(name, "seen"), before, "what it had counted stays");
            bench.wait(1);
            assert_eq!(bench.datagram(v6, 2, b"panic").reason, None, "of this flow it is not asked any more");
            assert_eq!(bench.own(name, "seen"), before);
            assert_eq!(bench.datagram(v6, 3, b"seen").reason, None);
            assert_eq!(bench.own(name, "seen"), before + 1);
            assert_eq!(bench.condition(name), FunctionCondition::Running);
        }
    }
}

#[test]
fn a_connection_outlives_the_absence_of_a_function() {
    for policy in [CLOSED, BRITTLE] {
        for v6 in [false, true] {
            let mut bench = Bench::new(
                "outlives",
                policy,
                "drop tcp any any -> any any (content:\"evil\"; sid:1;)",
                |_| (),
            );
            bench.open(v6);
            assert_eq!(bench.segment(v6, true, (101, 501), ACK, b"half of ev").reason, None);
            assert!(bench.datagram(v6, 2, b"panic").reason.is_some());
            // It was never here: neither its session nor inspection takes it for sent.
            for _ in 0..2 {
                let refused = bench.segment(v6, true, (111, 501), ACK, b"il, the rest");
                assert_eq!(refused.reason, Some(Reason::FunctionFailed));
                let refused = bench.segment(v6, true, (123, 501), ACK | FIN, b"");
                assert_eq!(refused.reason, Some(Reason::FunctionFailed));
            }
            bench.wait(1);
            assert_eq!(bench.segment(v6, false, (501, 111), ACK, b"").reason, None);
            assert_eq!(
                bench.segment(v6, true, (111, 501), ACK, b"il, the rest").reason,
                Some(Reason::IdsRule)
            );
        }
    }
}

#[test]
fn a_stopped_function_touches_no_other_and_begins_anew() {
    const RULES: &str = "alert udp any any -> any any (content:\"first\"; flowbits:set,a; sid:1;)\n\
        alert udp any any -> any any (content:\"then\"; flowbits:isset,a; sid:2;)";
    for v6 in [false, true] {
        let mut bench = Bench::new("stopped", OPEN, RULES, |_| ());
        bench.open(v6);
        bench.datagram(v6, 1, b"first");
        let (admitted, seen) = (bench.own("sfw", "admitted"), bench.own("fragile", "seen"));
        let stopped = bench.stack.worker.order("fragile", LifecycleCommand::Stop).unwrap();
        assert_eq!(stopped.condition, FunctionCondition::Stopped);
        assert!(bench.stack.worker.order("sfx", LifecycleCommand::Stop).is_none());
        for _ in 0..3 {
            assert_eq!(bench.datagram(v6, 1, b"then").reason, None);
        }
        assert_eq!(bench.segment(v6, true, (101, 501), ACK, b"data").reason, None);
        assert_eq!(bench.own("fragile", "seen"), seen);
        bench.wait(3_600);
        assert_eq!(bench.condition("fragile"), FunctionCondition::Stopped, "nothing but an order starts it");
        bench.nanos -= 3_600_000_000_000;
        assert_eq!(
            bench.stack.worker.order("fragile", LifecycleCommand::Start).unwrap().condition,
            FunctionCondition::Running
        );
        assert_eq!(bench.datagram(v6, 1, b"then").reason, None);
        assert_eq!(bench.segment(v6, true, (105, 501), ACK, b"data").reason, None);
        assert_eq!(bench.own("fragile", "seen"), seen + 2);
        assert_eq!(bench.stat("detect.alert"), 1 + 4, "flowbits go on");
        assert_eq!(bench.own("sfw", "admitted"), admitted, "connections go on");
    }
}

#[test]
fn a_stop_refuses_where_the_policy_lets_nothing_go_without_it_and_restarts_forget() {
    let mut bench = Bench::new("stop-closed", CLOSED, "", |_| ());
    bench.datagram(false, 1, b"a");
    bench.datagram(false, 1, b"a");
    bench.stack.worker.order("fragile", LifecycleCommand::Stop);
    assert_eq!(bench.datagram(false, 1, b"a").reason, Some(Reason::FunctionStopped));
    assert_eq!(bench.datagram(false, 2, b"a").reason, Some(Reason::FunctionStopped));
    // Another generation keeps it stopped.
    bench.stack.swap(CLOSED, "");
    assert_eq!(bench.datagram(false, 2, b"a").reason, Some(Reason::FunctionStopped));
    bench.stack.worker.order("fragile", LifecycleCommand::Restart);
    assert_eq!(bench.datagram(false, 1, b"a").reason, None);
    bench.stack.worker.order("fragile", LifecycleCommand::Restart);
    assert_eq!(bench.datagram(false, 1, b"a").reason, None);
    assert_eq!(bench.own("fragile", "seen"), 4);
    // What it had known of the flow went with each beginning.
    let longest = bench.own("fragile", "longest");
    assert_eq!(longest, 2 + 1 + 1, "counters of all its states together");
}

#[test]
fn another_generation_starts_what_has_failed() {
    let mut bench = Bench::new("reload", CLOSED, "", |settings| settings.restarts.attempts = 0);
    bench.datagram(false, 1, b"panic");
    bench.wait(10_000);
    assert_eq!(bench.datagram(false, 2, b"a").reason, Some(Reason::FunctionFailed));
    bench.stack.swap(CLOSED, "");
    assert_eq!(bench.datagram(false, 2, b"a").reason, None);
    assert_eq!(bench.condition("fragile"), FunctionCondition::Running);
    // One without it forgets that it had failed.
    bench.datagram(false, 3, b"panic");
    bench.stack.swap("chain: [pfw], pfw: {default: allow}", "");
    assert_eq!(bench.datagram(false, 2, b"a").reason, None);
    assert_eq!(bench.stat("function.failed"), 0);
    bench.stack.swap(CLOSED, "");
    assert_eq!(bench.datagram(false, 2, b"a").reason, None);
    assert_eq!(bench.condition("fragile"), FunctionCondition::Running);
}

#[test]
fn a_staged_policy_lets_everything_go() {
    let mut bench = Bench::new("staged", &format!("{CLOSED}, staged: true"), SEES, |_| ());
    assert_eq!(bench.datagram(false, 1, b"seen").reason, None);
    let before = bench.own("fragile", "seen");
    assert_eq!(bench.datagram(false, 2, b"panic").reason, None);
    assert_eq!(bench.own("fragile", "seen"), before + 1, "counted though it panicked");
    assert_eq!(bench.datagram(false, 1, b"seen").reason, None);
    assert_eq!(bench.condition("fragile"), FunctionCondition::Failed);
    assert_eq!(bench.stat("detect.alert"), 2);
}

/// Texts of would-be refusals with the client's port, in their order.
fn would_be(events: &[Value]) -> Vec<(u64, &str)> {
    let staged = events.iter().filter(|event| event["alert"]["gid"] == 9_000);
    let told = |event: &'_ Value| event["src_port"].as_u64().unwrap();
    staged.map(|event| (told(event), event["alert"]["signature"].as_str().unwrap())).collect()
}

/// Refusals for a missing function, where the policy is enforced, are reported where it is staged: for the
/// packet in which the function panics and for those that arrive while it is missing, once for each flow and
/// reason.
#[test]
fn a_staged_policy_reports_what_would_be_refused_for_want_of_a_function() {
    for v6 in [false, true] {
        for (function, policy) in [("fragile", CLOSED), ("brittle", BRITTLE)] {
            let staged = format!("{policy}, staged: true");
            let mut bench = Bench::new(&format!("would-{function}-{v6}"), &staged, "", |_| ());
            for (port, payload) in [(1, &b"a"[..]), (2, b"panic"), (1, b"a"), (1, b"a"), (3, b"a")] {
                assert_eq!(bench.datagram(v6, port, payload).reason, None, "{function} {port}");
            }
            bench.stack.worker.order(function, LifecycleCommand::Stop);
            assert_eq!(bench.datagram(v6, 1, b"a").reason, None);
            let (_, events) = bench.stack.finish();
            let text = |why: &str| format!("staged policy: {function} would refuse this ({why})");
            let [failed, stopped] = ["function_failed", "function_stopped"].map(text);
            let expected = [(2, &*failed), (1, &failed), (3, &failed), (1, &stopped)];
            assert_eq!(would_be(&events), expected, "{function}");
            for flow in events.iter().filter(|event| event["event_type"] == "flow") {
                let would_be = &flow["bartizan"]["would_be"];
                let told =
                    serde_json::json!({"function": function, "verdict": "drop", "reason": "function_failed"});
                assert_eq!(*would_be, told, "{flow}");
            }
        }
        // A policy that goes on without it reports nothing.
        let mut bench = Bench::new(&format!("would-open-{v6}"), &format!("{OPEN}, staged: true"), "", |_| ());
        bench.datagram(v6, 2, b"panic");
        bench.datagram(v6, 1, b"a");
        assert_eq!(would_be(&bench.stack.finish().1), []);
    }
}

#[test]
fn drop_records_say_whose_absence_it_is() {
    let mut bench = Bench::new("records", CLOSED, "", |_| ());
    bench.datagram(false, 1, b"panic");
    bench.datagram(false, 2, b"a");
    let (_, events) = bench.stack.finish();
    let reasons: Vec<&str> = events
        .iter()
        .filter(|event| event["event_type"] == "drop")
        .filter_map(|event: &Value| event["bartizan"]["reason"].as_str())
        .collect();
    assert_eq!(reasons, ["function_failed"; 2], "{events:#?}");
}

/// A datagram of the random traffic: its flow, and its payload.
fn random_payload(random: &mut Random) -> (u16, &'static [u8]) {
    let port = 1 + random.below(200) as u16;
    let payload: &[u8] = match random.below(20) {
        0 => b"panic, seen",
        1..=8 => b"seen",
        _ => b"nothing",
    };
    (port, payload)
}

fn at_once(settings: &mut EngineSettings) {
    settings.restarts.attempts = u32::MAX;
    settings.restarts.first = PacketDuration::ZERO;
    settings.flow_capacity = 1_024;
}

#[test]
fn of_a_hundred_failures_the_others_notice_nothing() {
    const RULES: &str = "alert udp any any -> any any (content:\"seen\"; sid:1;)\n\
        drop udp any any -> any any (content:\"nothing\"; threshold: type threshold, track by_src, count 50, seconds 600; sid:2;)";
    let without = "chain: [portscan, pfw, sfw, ids], pfw: {default: allow}, ids: {}";
    for (policy, name) in [(OPEN, "fragile"), (BRITTLE_OPEN, "brittle")] {
        let mut bench = Bench::new("hundred", policy, RULES, at_once);
        let mut alone = Bench::new("hundred-alone", without, RULES, at_once);
        let mut random = Random::new(7);
        let mut packets = 0;
        while bench.stat("function.failures") < 100 {
            packets += 1;
            let (port, payload) = random_payload(&mut random);
            // Flows end in the meantime, and come again.
            let port = port + packets / 20;
            let (with, without) =
                (bench.datagram(false, port, payload), alone.datagram(false, port, payload));
            assert_eq!((with.verdict, with.reason), (without.verdict, without.reason));
            assert!(packets < 20_000);
        }
        for counter in ["detect.alert", "flow.total", "ips.blocked", "decoder.pkts"] {
            assert_eq!(bench.stat(counter), alone.stat(counter), "{counter}");
        }
        assert_eq!(bench.own("sfw", "admitted"), alone.own("sfw", "admitted"));
        let restarts = bench.stat("function.restarts");
        assert!((99..=100).contains(&restarts), "{restarts}");
        // It keeps something of flows that it was called for since it began last; of those that have gone,
        // nothing.
        assert!(KEPT.get() <= i64::from(bench.stat("flow.total") as u32), "{}", KEPT.get());
        assert!(bench.own(name, "seen") > u64::from(packets) / 3, "it comes back each time");
        let (worker, _) = bench.stack.finish();
        assert_eq!(worker.app_memory().used(), 0);
        drop(worker);
        assert_eq!(KEPT.get(), 0);
        alone.stack.finish();
    }
}

#[test]
fn a_hundred_failures_refuse_what_the_policy_says_and_all_is_counted() {
    for policy in [CLOSED, BRITTLE] {
        let mut bench = Bench::new("hundred-closed", policy, SEES, |settings| {
            at_once(settings);
            settings.restarts.first = PacketDuration::from_millis(5);
            settings.restarts.longest = PacketDuration::from_millis(5);
        });
        let mut random = Random::new(9);
        let (mut packets, mut refused, mut seen) = (0, 0, 0);
        while bench.stat("function.failures") < 100 {
            packets += 1;
            let (port, payload) = random_payload(&mut random);
            let decision = bench.datagram(false, port + packets as u16 / 10, payload);
            match decision.reason {
                Some(Reason::FunctionFailed) => refused += 1,
                None => seen += u64::from(payload == b"seen"),
                other => panic!("{other:?}"),
            }
            assert!(packets < 40_000);
        }
        assert_eq!(bench.stat("ips.blocked"), refused);
        assert_eq!(bench.stat("ips.accepted"), packets - refused);
        // Alerts on packets that were refused for want of `brittle`, which comes last, there are as well.
        assert!(bench.stat("detect.alert") >= seen && seen > 500, "{seen}");
        let (worker, _) = bench.stack.finish();
        drop(worker);
        assert_eq!(KEPT.get(), 0);
    }
}

/// Datagrams both ways that a level handles once they are decided.
struct Sunk {
    bench: Bench,
    wire: MockWire,
}

impl Sunk {
    fn new(policy: &str) -> Self {
        let mut bench = Bench::new("sunk", policy, SEES, |_| ());
        let (device, wire) = MockDevice::new(Habits::default());
        bench.stack.worker.set_level(FlowManager::new(Box::new(device), bench.stack.worker.generation()));
        Sunk { bench, wire }
    }

    /// Sends a datagram. Returns whether it was forwarded, and whether the level handled it.
    fn datagram(&mut self, client: bool, port: u16, payload: &[u8]) -> (bool, bool) {
        let (hosts, ports) = if client { ((1, 2), (port, 53)) } else { ((2, 1), (53, port)) };
        let bytes = ethernet(false, &ip(false, hosts, 17, &udp(ports, payload)));
        let ends = |(host, port): (u8, u16)| (address(false, host), port);
        let key =
            FlowKey::ported(&FlowScope::default(), 17, ends((hosts.0, ports.0)), ends((hosts.1, ports.1)));
        let seen = MockPacket { from_low: !key.is_reversed(), bytes: bytes.len() as u64, segment: None };
        match self.wire.packet(&DeviceKey::of(&key), seen, Timestamp::from_nanos(self.bench.nanos)) {
            Some(action) => (action == Action::Forward, true),
            None => (self.bench.send(&bytes).verdict.forwards(), false),
        }
    }

    fn turns(&mut self, count: u64) {
        for _ in 0..count {
            self.bench.nanos += 20_000_000;
            let now = Timestamp::from_nanos(self.bench.nanos);
            self.bench.stack.worker.drive_level(now, &mut self.bench.stack.recorder);
        }
    }

    /// Sends both ways until the level has the flow.
    fn sink(&mut self, port: u16) {
        for number in 0..100 {
            self.turns(1);
            if self.datagram(number % 2 == 0, port, b"x").1 {
                return;
            }
        }
        panic!("it does not go down");
    }
}

#[test]
fn flows_at_a_level_below_come_up_when_a_function_of_theirs_fails_or_is_stopped() {
    let closed = "chain: [fragile]";
    let open = "chain: [fragile], on-failure: pass";
    for (policy, goes_on) in [(closed, false), (open, true)] {
        for fails in [true, false] {
            let mut sunk = Sunk::new(policy);
            sunk.sink(7);
            if fails {
                assert_eq!(sunk.datagram(true, 8, b"panic"), (goes_on, false));
            } else {
                sunk.bench.stack.worker.order("fragile", LifecycleCommand::Stop).unwrap();
            }
            sunk.turns(10);
            for client in [true, false, true, false] {
                assert_eq!(sunk.datagram(client, 7, b"x"), (goes_on, false), "{policy}, {fails}");
                sunk.turns(1);
            }
            assert_eq!(sunk.bench.stat("offload.left"), 1);
            // Who has nobody to judge it does not go down.
            if !fails {
                sunk.bench.stack.worker.order("fragile", LifecycleCommand::Start).unwrap();
            }
            sunk.bench.wait(2);
            sunk.sink(7);
            sunk.bench.stack.finish();
        }
    }
}
