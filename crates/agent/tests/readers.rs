// SPDX-License-Identifier: Apache-2.0
//! Payload functions are equals: a transaction is freed when each function on the flow's path is done with
//! it, and no later. A function of the test reads HTTP, before or after `ids`; whatever it does, the events
//! are those of `ids` alone.

use bartizan_applayer::flow::{HOLDS_MAX, HOLDS_SPAN};
use bartizan_applayer::transaction::TxId;
use bartizan_base::{Decision, Direction, FunctionId, Verdict};
use bartizan_function::{
    AppView, Function, FunctionKind, FunctionModel, FunctionSpec, PacketContext, RuleSource, RulesError,
};
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit::hosts::{ethernet, ip, tcp, udp};
use bartizan_testkit_worker::{Captured, Made, Stack};
use serde_json::Value;
use std::sync::{Arc, Mutex};

/// Requests on one connection.
const REQUESTS: u64 = 1_000;
/// One transaction in ten alerts at its request, one in seven at its answer.
const RULES: &str = "alert http any any -> any any (msg:\"q\"; http.uri; content:\"7\"; endswith; sid:1;)\n\
    alert http any any => any any (msg:\"a\"; http.uri; content:\"3\"; endswith; http.stat_code; content:\"200\"; sid:2;)\n";

/// The reader's reply on the transactions that it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Nothing,
    /// The function needs no transaction after its first look.
    Done,
    /// Each transaction is held until this many have begun after it.
    HoldFor(u64),
    /// The first transaction is held.
    HoldFirst,
    /// All transactions are held.
    HoldAll,
    /// The function looks at every nth packet only.
    LaterThan(u64),
    /// The function leaves the flow at this transaction, and holds all earlier ones.
    LeaveAt(TxId),
}

/// The transactions that the reader saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    calls: u64,
    /// Each call with a transaction.
    shown: Vec<(TxId, Direction)>,
    refused: u64,
}

const fn spec(
    name: &'static str,
    before: &'static [&'static str],
    after: &'static [&'static str],
) -> FunctionSpec {
    FunctionSpec {
        name,
        summary: "Reads transactions.",
        model: FunctionModel::Payload,
        runs_after: after,
        runs_before: before,
        header_half: None,
        host_slot: None,
        counters: &[],
    }
}

static BEFORE: FunctionSpec = spec("before", &["ids"], &["sfw"]);
static BEHIND: FunctionSpec = spec("behind", &[], &["ids"]);

#[derive(Clone)]
struct Reader {
    spec: &'static FunctionSpec,
    says: Says,
    id: FunctionId,
    seen: Arc<Mutex<Seen>>,
}

impl FunctionKind for Reader {
    fn spec(&self) -> &'static FunctionSpec {
        self.spec
    }

    fn rules(&self, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>> {
        Ok(Box::new(Reader { id: source.id, ..self.clone() }))
    }
}

impl Reader {
    fn read(&self, app: &mut AppView<'_>, direction: Direction) -> Decision {
        let mut seen = self.seen.lock().unwrap();
        seen.calls += 1;
        if let Says::LaterThan(many) = self.says
            && !seen.calls.is_multiple_of(many)
        {
            app.later();
            return Decision::CONTINUE;
        }
        let mut leaves = false;
        for (id, tx) in app.transactions() {
            assert_eq!(tx.common().id, id);
            seen.shown.push((id, direction));
            let holds = match self.says {
                Says::Nothing | Says::LaterThan(_) => false,
                Says::Done => {
                    app.done(id);
                    false
                }
                Says::HoldFor(behind) => {
                    if let Some(old) = id.checked_sub(behind) {
                        app.done(old);
                    }
                    true
                }
                Says::HoldFirst => id == 0,
                Says::HoldAll => true,
                Says::LeaveAt(last) => {
                    leaves |= id == last;
                    true
                }
            };
            // The function requests a hold once per transaction, however often it sees it.
            let asks = holds && direction == Direction::ToServer;
            seen.refused += u64::from(asks && !app.hold(id));
        }
        Decision {
            verdict: if leaves { Verdict::Pass } else { Verdict::Continue },
            done: leaves,
            ..Decision::CONTINUE
        }
    }
}

impl Function for Reader {
    fn spec(&self) -> &'static FunctionSpec {
        self.spec
    }

    fn id(&self) -> FunctionId {
        self.id
    }

    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        let direction = context.facts.direction;
        context.app.as_mut().map_or(Decision::CONTINUE, |app| self.read(app, direction))
    }
}

/// A connection with successive requests.
struct Talk {
    stack: Stack,
    v6: bool,
    millis: u64,
    next: [u32; 2],
    seen: Arc<Mutex<Seen>>,
    /// Most transactions present after a packet.
    peak: usize,
}

/// The mode of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Inline,
    Passive,
}

fn passive(settings: &mut EngineSettings) {
    let shipped = bartizan_config::suricata::shipped();
    *settings = EngineSettings::from_settings(&shipped, false, [1, 2]).unwrap().0;
}

impl Talk {
    fn new(name: &str, v6: bool, way: Way, chain: &str, says: Says) -> Self {
        let name = format!("readers-{name}-{v6}-{way:?}");
        let tune = if way == Way::Inline { |_: &mut EngineSettings| () } else { passive };
        let policy = policy(chain);
        let made = Made { name: &name, policy: &policy, set: &[], tune, rules: RULES, thresholds: "" };
        let seen = Arc::<Mutex<Seen>>::default();
        let kind = |spec| -> Arc<dyn FunctionKind> {
            Arc::new(Reader { spec, says, id: FunctionId(0), seen: Arc::clone(&seen) })
        };
        let stack = Stack::with_functions(&made, vec![kind(&BEFORE), kind(&BEHIND)]);
        let mut talk = Talk { stack, v6, millis: 0, next: [100, 500], seen: Arc::clone(&seen), peak: 0 };
        for (side, flags) in [(0, 2), (1, 18), (0, 16)] {
            talk.segment(side, flags, b"");
        }
        talk
    }

    fn segment(&mut self, side: usize, flags: u8, payload: &[u8]) {
        let (ends, ports) = [((1, 2), (1000, 80)), ((2, 1), (80, 1000))][side];
        let ack = if flags & 16 > 0 { self.next[1 - side] } else { 0 };
        let segment = tcp(ports, self.next[side], ack, flags, payload);
        self.next[side] += payload.len() as u32 + u32::from(flags & 3 > 0);
        self.frame(ends, 6, &segment);
    }

    fn frame(&mut self, ends: (u8, u8), protocol: u8, body: &[u8]) {
        self.millis += 1;
        let frame = Captured::at_millis(self.millis, ethernet(self.v6, &ip(self.v6, ends, protocol, body)));
        let stack = &mut self.stack;
        let decision =
            stack.worker.frame(&frame.frame(self.millis), &mut stack.recorder).expect("no fragment");
        assert!(decision.verdict.forwards(), "{decision:?}");
        self.peak = self.peak.max(self.live().len());
    }

    fn ask(&mut self, number: u64) {
        let request = format!("GET /{number} HTTP/1.1\r\nHost: h\r\n\r\n");
        self.segment(0, 24, request.as_bytes());
    }

    fn answer(&mut self) {
        self.segment(1, 24, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    }

    /// Sends the transactions of a range.
    fn exchange(&mut self, numbers: core::ops::Range<u64>) {
        for number in numbers {
            self.ask(number);
            self.answer();
        }
    }

    /// Ids of the transactions present.
    fn live(&self) -> Vec<TxId> {
        let flows = self.stack.worker.flows();
        let entry = flows.ids().last().and_then(|id| flows.get(*id));
        let Some(parser) = entry.and_then(|entry| entry.ext.app.as_deref()?.parser()) else {
            return Vec::new();
        };
        parser.tx_range().filter(|id| parser.tx(*id).is_some()).collect()
    }

    fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    /// Swaps to another policy.
    fn swap(&mut self, chain: &str) {
        self.stack.swap(&policy(chain), RULES);
        self.peak = 0;
    }

    fn holds_refused(&self) -> u64 {
        self.stack.worker.app_memory().counters().holds_refused
    }

    /// Closes the connection. Returns the events of transactions and alerts.
    fn close(mut self) -> Vec<Value> {
        for (side, flags) in [(0, 17), (1, 17), (0, 16)] {
            self.segment(side, flags, b"");
        }
        let (_, mut events) = self.stack.finish();
        events.retain(|event| event["event_type"] != "stats");
        for event in &mut events {
            // Chain and path stand there.
            event.as_object_mut().unwrap().remove("bartizan");
        }
        events
    }
}

fn policy(chain: &str) -> String {
    let ids = if chain.contains("ids") { ", ids: {rules: r}" } else { "" };
    format!("chain: [{chain}]{ids}")
}

/// Both modes, in both IP versions.
fn settings() -> impl Iterator<Item = (Way, bool)> {
    [Way::Inline, Way::Passive].into_iter().flat_map(|way| [(way, false), (way, true)])
}

/// Most transactions present after a packet if no function holds any: inline the one that awaits its answer;
/// passively the answer is parsed with the client's next packet, and the transaction is freed with the
/// server's next one, which brings the next request.
const DUE: usize = 1;

/// Transactions not parsed when the last answer has arrived: passively a request is parsed with its answer,
/// and seen after it.
fn unread(way: Way) -> u64 {
    u64::from(way == Way::Passive)
}

/// The transactions present after a number of answers, if no reader holds any.
fn left(way: Way, answers: u64) -> Vec<TxId> {
    (answers - unread(way)..answers).collect()
}

#[test]
fn a_transaction_is_held_as_long_as_a_function_needs_it_and_events_stay_the_same() {
    for (way, v6) in settings() {
        let run = |chain: &str, says: Says, most: usize, refused: u64| {
            let mut talk = Talk::new("matrix", v6, way, chain, says);
            talk.exchange(0..REQUESTS);
            let what = format!("{way:?} {v6} {chain} {says:?}");
            assert_eq!(talk.peak, most, "{what}");
            assert_eq!((talk.holds_refused(), talk.seen().refused), (refused, refused), "{what}");
            let seen = talk.seen();
            (seen, talk.close())
        };
        let (nobody, expected) = run("ids", Says::Nothing, DUE, 0);
        assert_eq!(nobody, Seen::default());
        let of =
            |kind: &str, events: &[Value]| events.iter().filter(|e| e["event_type"] == kind).count() as u64;
        assert_eq!(["http", "alert", "flow"].map(|kind| of(kind, &expected)), [REQUESTS, REQUESTS / 5, 1]);
        let records: Vec<Value> = expected.iter().filter(|e| e["event_type"] != "alert").cloned().collect();
        for chain in ["before", "before, ids", "ids, behind", "before, ids, behind"] {
            let both = chain == "before, ids, behind";
            let readers = if both { 2 } else { 1 };
            for (says, most, refused) in [
                (Says::Nothing, DUE, 0),
                (Says::Done, DUE, 0),
                (Says::HoldFor(20), 19 + DUE, 0),
                (Says::HoldFirst, DUE + 1, 0),
                (Says::HoldAll, HOLDS_MAX + DUE, REQUESTS - unread(way) - HOLDS_MAX as u64),
                (Says::LaterThan(7), 6 + DUE, 0),
            ] {
                if both && says != Says::Nothing {
                    continue;
                }
                let (seen, events) = run(chain, says, most, refused);
                let wanted = if chain == "before" { without_alerts(&records) } else { expected.clone() };
                let got = if chain == "before" { without_alerts(&events) } else { events };
                assert_eq!(got.len(), wanted.len(), "{chain} {says:?}");
                for (got, wanted) in got.iter().zip(&wanted) {
                    assert_eq!(got, wanted, "{way:?} {chain} {says:?}");
                }
                // A function that looks rarely misses the end of the last ones.
                for id in 0..REQUESTS - 10 {
                    let times = seen.shown.iter().filter(|(shown, _)| *shown == id).count();
                    let once = if says == Says::Done { times == 1 } else { times >= 2 * readers };
                    assert!(once, "{way:?} {chain} {says:?}: {id} was shown {times} times");
                }
            }
        }
    }
}

/// Records without the field that tells whether their flow alerted.
fn without_alerts(events: &[Value]) -> Vec<Value> {
    let mut events = events.to_vec();
    for event in &mut events {
        if let Some(flow) = event["flow"].as_object_mut() {
            flow.remove("alerted");
        }
    }
    events
}

#[test]
fn who_leaves_the_path_holds_nothing() {
    for (way, v6) in settings() {
        for chain in ["before, ids", "ids, behind"] {
            let mut talk = Talk::new("swap", v6, way, chain, Says::HoldAll);
            talk.exchange(0..30);
            assert_eq!(talk.live(), Vec::from_iter(0..30), "{way:?} {chain}");
            talk.swap("ids");
            talk.exchange(30..31);
            assert_eq!(talk.live(), left(way, 31), "{way:?} {chain}");
            talk.close();
        }
        for chain in ["before, ids", "ids, behind", "before"] {
            // The function leaves the flow: `ids` still inspects it, or no function does.
            let mut talk = Talk::new("leave", v6, way, chain, Says::LeaveAt(29));
            talk.exchange(0..29);
            assert_eq!(talk.live(), Vec::from_iter(0..29), "{way:?} {chain}");
            talk.exchange(29..31);
            // In a flow that no function inspects, the open transaction stays.
            let rest = if chain == "before" { vec![29] } else { left(way, 31) };
            assert_eq!(talk.live(), rest, "{way:?} {chain}");
            talk.close();
        }
    }
}

#[test]
fn who_joins_the_path_is_shown_what_is_there_and_waits_for_nothing_else() {
    for (way, v6) in settings() {
        let mut talk = Talk::new("join", v6, way, "ids", Says::Nothing);
        talk.exchange(0..10);
        talk.ask(10);
        talk.swap("before, ids");
        talk.answer();
        talk.exchange(11..30);
        // Transactions present when the function joined need a packet of each direction.
        let most = DUE + left(way, 30).len();
        assert_eq!((talk.peak, talk.live()), (most, left(way, 30)), "{way:?}");
        let seen = talk.seen().shown;
        let first = 10 - unread(way);
        assert!(seen.iter().all(|(id, _)| *id >= first), "{way:?}: what is gone is gone");
        for id in first + 1..30 - unread(way) {
            for direction in Direction::BOTH {
                assert!(seen.contains(&(id, direction)), "{way:?}: {id} {direction:?}");
            }
        }
        talk.close();

        // One that is over and held by another function is shown as well, once in each direction.
        let mut talk = Talk::new("join-held", v6, way, "before", Says::HoldFirst);
        talk.exchange(0..10);
        talk.seen.lock().unwrap().shown.clear();
        talk.swap("before, ids, behind");
        talk.exchange(10..20);
        let shown = talk.seen().shown;
        let first: Vec<Direction> =
            shown.iter().filter(|(id, _)| *id == 0).map(|(_, direction)| *direction).collect();
        assert_eq!(first, Direction::BOTH, "{way:?}");
        assert_eq!(talk.live(), [vec![0], left(way, 20)].concat(), "{way:?}");
        talk.swap("ids");
        talk.exchange(20..21);
        assert_eq!(talk.live(), left(way, 21), "{way:?}");
        talk.close();
    }
}

#[test]
fn a_hold_ends_when_its_transaction_lies_far_back() {
    for v6 in [false, true] {
        let mut talk = Talk::new("span", v6, Way::Inline, "before, ids", Says::HoldFirst);
        talk.exchange(0..HOLDS_SPAN);
        assert_eq!((talk.live(), talk.holds_refused()), (vec![0], 0));
        talk.exchange(HOLDS_SPAN..HOLDS_SPAN + 2);
        assert_eq!((talk.live(), talk.holds_refused()), (vec![], 1));
        assert_eq!(
            talk.close().iter().filter(|event| event["event_type"] == "http").count() as u64,
            HOLDS_SPAN + 2
        );
    }
}

#[test]
fn messages_that_are_transactions_of_one_direction_go_as_they_come() {
    for (way, v6) in settings() {
        for chain in ["before", "before, ids", "ids, behind"] {
            let mut talk = Talk::new("dns", v6, way, chain, Says::HoldFor(3));
            talk.peak = 0;
            for number in 0..20u8 {
                for (ends, ports, flags) in [((1, 2), (1000, 53), 1), ((2, 1), (53, 1000), 0x81)] {
                    let head = [0, number, flags, 0, 0, 1, 0, 0, 0, 0, 0, 0];
                    let message = [&head[..], b"\x01a\x01b\0\0\x01\0\x01"].concat();
                    talk.frame(ends, 17, &udp(ports, &message));
                }
            }
            // Only requests are held here: each is freed when the third after it arrives, counted with the
            // answers.
            assert_eq!((talk.peak, talk.seen().refused), (2, 0), "{way:?} {chain}");
            let records = talk.close().iter().filter(|event| event["event_type"] == "dns").count();
            assert_eq!(records, 40, "{way:?} {chain}");
        }
    }
}
