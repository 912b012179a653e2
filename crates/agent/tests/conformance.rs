// SPDX-License-Identifier: Apache-2.0
//! The host passes the conformance files in `tests/conformance/` (docs/conformance.md): the real agent builds each case's policy, a worker in
//! prevention gets its frames. Every case runs twice: with the stream engine's own refusals off, as levels below have no stream engine, where
//! verdict, reason, rule and state are those of the line; and as a live link has it, where what goes on and what does not is the same.

mod common;

use bartizan_applayer::file::FileSettings;
use bartizan_applayer::flow::Engine;
use bartizan_base::{Decision, Direction, LinkId, TenantId, Timestamp, Verdict};
use bartizan_config::policy::{self, PolicyFile};
use bartizan_dataplane::flow_ext::FlowExt;
use bartizan_dataplane::settings::EngineSettings;
use bartizan_dataplane::worker::{Frame, Worker};
use bartizan_flow::FlowEntry;
use bartizan_packet::LinkType;
use bartizan_testkit_worker::Nothing;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The links by which frames come in the files, numbered from 0.
const LINKS: [&str; 2] = ["one", "two"];
/// A case's frames come so far apart, unless it says otherwise.
const BETWEEN_MS: u64 = 1;

/// Switches off what the stream engine refuses for payload functions.
const ENGINE_OFF: [(&str, &str); 2] = [("stream.midstream-policy", "ignore"), ("stream.drop-invalid", "no")];

/// How the host stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    /// As a live link has it. The stream engine refuses some segments before functions are asked.
    Live,
    /// Without [`ENGINE_OFF`]: functions speak, except of what receivers may understand in two ways.
    Functions,
    /// Without that, too.
    FunctionsAlone,
}

/// Cases in which the host does otherwise than it should: each is known, and a line goes when its case passes. The case, for both versions unless
/// it ends in one; what the runner says; what is wrong.
const DIFFERS: &[(&str, &str, &str)] = &[
    ("tcp.established.fin_rst", "state after", "a refused segment closes the session"),
    ("tcp.established.fin_rst", "after 0", "a refused segment closes the session"),
    ("tcp.established.fin_without_ack", "state after", "a refused FIN counts as the client's"),
    ("tcp.established.christmas", "state after", "a refused FIN counts as the client's"),
    ("tcp.closing.data_behind_own_fin", "Forward", "data behind the sender's own FIN goes on"),
    (
        "tcp.established.ack_just_ahead",
        "Forward",
        "an ACK of what was never sent goes on as long as the window would allow it",
    ),
    (
        "tcp.established.over_the_edge",
        "Drop",
        "a segment that begins in the window and ends behind it is refused, not left to be trimmed",
    ),
    (
        "tcp.established.window_check_off_far",
        "Drop",
        "the stream engine's own window check overrules the policy",
    ),
    ("tcp.handshake.answer_after_90_seconds", "Drop", "flow-timeouts.tcp.new is 60 seconds"),
    ("udp.answer_after_a_minute", "Drop", "flow-timeouts.udp.new is 30 seconds"),
    (
        "icmp.reply_to_other_request",
        "Forward",
        "replies are matched by addresses only, not by their identifier",
    ),
    ("broken.options_malformed.v6", "Forward", "a malformed option of IPv4 is refused, one of IPv6 is not"),
    (
        "broken.options_malformed_udp.v6",
        "Forward",
        "a malformed option of IPv4 is refused, one of IPv6 is not",
    ),
];

/// A line of a conformance file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    id: String,
    ip: u8,
    policy: String,
    #[serde(default)]
    settings: BTreeMap<String, String>,
    link: String,
    tenant: String,
    flow: Option<Flow>,
    before: Vec<String>,
    #[serde(default)]
    before_verdicts: Vec<Outcome>,
    state_before: Option<String>,
    numbers: Option<Numbers>,
    wait_ms: Option<u64>,
    packet: String,
    verdict: Outcome,
    reason: Option<String>,
    rule: Option<String>,
    state_after: Option<String>,
    #[serde(default)]
    after: Vec<Later>,
    why: String,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    /// It goes on.
    Forward,
    /// It does not.
    Drop,
    /// It does not, and its sender is told.
    Reject,
    /// It waits for the rest of its datagram.
    Hold,
}

/// The conversation that a case is about: the side that opened it first.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Flow {
    protocol: u8,
    client: IpAddr,
    client_port: u16,
    server: IpAddr,
    server_port: u16,
}

/// The next sequence number of each side, before the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbers {
    client: u32,
    server: u32,
}

/// A frame behind the packet, which shows what the packet has left behind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Later {
    packet: String,
    verdict: Outcome,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance")
}

fn bytes(hex: &str) -> Result<Vec<u8>, String> {
    let digit = |at: usize| hex.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    (0..hex.len())
        .step_by(2)
        .map(digit)
        .collect::<Option<_>>()
        .ok_or_else(|| format!("not hexadecimal: {hex}"))
}

/// Every case with its file and line.
fn cases() -> Vec<(String, Case)> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    let mut all = Vec::new();
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        for (number, line) in (1..).zip(std::fs::read_to_string(&path).unwrap().lines()) {
            let place = format!("tests/conformance/{name}:{number}");
            let case = serde_json::from_str(line).unwrap_or_else(|error| panic!("{place}: {error}"));
            all.push((place, case));
        }
    }
    all
}

/// The level under test: the host.
struct Host {
    worker: Worker,
    tenants: Vec<(String, TenantId)>,
    clock: Timestamp,
    /// The flow of the case of which a frame has gone on, by its place in the order of flows.
    open: Option<u64>,
}

impl Host {
    fn new(case: &Case, stands: Stands) -> Result<Self, String> {
        let mut agent = common::agent();
        let file = policy_file(&case.policy, &agent.function_names())?;
        let links: Vec<(&str, LinkId)> = common::links(&LINKS);
        let tenants = agent.policy_entries(&file, &links).map_err(|error| error.to_string())?.tenants;
        let prepared = agent.prepare(&file, &links).map_err(|error| error.to_string())?;
        let mut settings = bartizan_config::suricata::shipped();
        settings.set("flow.memcap", "4mb");
        let own = case.settings.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        for (key, value) in ENGINE_OFF.into_iter().filter(|_| stands != Stands::Live).chain(own) {
            settings.set(key, value);
        }
        let engine = Arc::new(Engine::new(&settings, FileSettings::default()).expect("an engine"));
        let (settings, _) = EngineSettings::from_settings(&settings, true, [1, 2]).expect("settings");
        let mut settings = settings.for_real_receivers(true).for_live_links();
        settings.stream.strict = stands != Stands::FunctionsAlone;
        let worker =
            Worker::new(settings, engine, Arc::new(prepared.chains)).map_err(|error| error.to_string())?;
        Ok(Host { worker, tenants, clock: Timestamp::from_parts(1_000_000, 0), open: None })
    }

    /// The case's flow and how many packets it had.
    fn seen(&self, case: &Case) -> Option<(u64, u64)> {
        let entry = self.entry(case)?;
        Some((entry.serial(), entry.packets.to_server + entry.packets.to_client))
    }

    /// Hands a frame of a case in; gives what became of it.
    fn frame(
        &mut self,
        case: &Case,
        hex: &str,
        after_ms: u64,
    ) -> Result<(Outcome, Option<Decision>), String> {
        let link = LINKS.iter().position(|link| *link == case.link).ok_or("no such link")?;
        let link = LinkId(link as u16);
        let before = self.seen(case);
        let bytes = bytes(hex)?;
        self.clock = Timestamp::from_nanos(self.clock.as_nanos() + after_ms * 1_000_000);
        let frame = Frame {
            now: self.clock,
            bytes: &bytes,
            wire_len: bytes.len() as u32,
            link_type: LinkType::ETHERNET,
            link,
            number: None,
        };
        let decision = self.worker.frame(&frame, &mut Nothing);
        let outcome = match decision.map(|decision| decision.verdict) {
            None => Outcome::Hold,
            Some(Verdict::Continue | Verdict::Pass) => Outcome::Forward,
            Some(Verdict::Drop) => Outcome::Drop,
            Some(Verdict::Reject) => Outcome::Reject,
        };
        let after = self.seen(case);
        if outcome == Outcome::Forward && before != after {
            self.open = after.map(|(flow, _)| flow);
        }
        Ok((outcome, decision))
    }

    fn entry(&self, case: &Case) -> Option<&FlowEntry<FlowExt>> {
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

    /// The state of the case's flow by its name in the files.
    fn state(&self, case: &Case) -> &'static str {
        match self.entry(case) {
            Some(entry) if self.open == Some(entry.serial()) => match entry.ext.session.state().eve_name() {
                Some(name) => name,
                None if entry.both_seen() || entry.ext.session.is_midstream() => "established",
                None => "new",
            },
            _ => "none",
        }
    }

    /// Counters of the packet filter's rules.
    fn rules(&self) -> BTreeMap<String, u64> {
        let mut rules = BTreeMap::new();
        self.worker.visit_functions_by_name(&mut |function, name, value| {
            if function == "pfw" && (name.starts_with("rule.") || name.starts_with("default.")) {
                rules.insert(name.to_owned(), value);
            }
        });
        rules
    }
}

fn policy_file(name: &str, functions: &[&str]) -> Result<PolicyFile, String> {
    policy::load(&folder().join(format!("policies/{name}.yaml")), functions)
        .map_err(|error| error.to_string())
}

/// `web.3` and `web.default` as the packet filter's counters are called.
fn counter(rule: &str) -> Option<String> {
    let (policy, rule) = rule.rsplit_once('.')?;
    Some(if rule == "default" { format!("default.{policy}") } else { format!("rule.{policy}.{rule}") })
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: T, expected: T) -> Result<(), String> {
    if is == expected { Ok(()) } else { Err(format!("{what} {is:?}, expected {expected:?}")) }
}

/// Runs a case.
fn run(case: &Case, stands: Stands) -> Result<(), String> {
    let mut host = Host::new(case, stands)?;
    let alone = stands == Stands::Functions;
    for (index, hex) in case.before.iter().enumerate() {
        let (outcome, decision) = host.frame(case, hex, BETWEEN_MS)?;
        let goes_on = matches!(outcome, Outcome::Forward | Outcome::Hold);
        let right = case.before_verdicts.get(index).map_or(goes_on, |expected| outcome == *expected);
        if !right {
            return Err(format!("before {index}: {outcome:?}, {:?}", decision.and_then(|d| d.reason)));
        }
    }
    if alone && let Some(expected) = &case.state_before {
        same("state before", host.state(case), expected)?;
        if let Some(numbers) = case.numbers {
            let session = &host.entry(case).ok_or("no flow")?.ext.session;
            let (client, server) =
                (session.next_seq(Direction::ToServer).0, session.next_seq(Direction::ToClient).0);
            same("numbers", Numbers { client, server }, numbers)?;
        }
    }
    let rules = host.rules();
    let (outcome, decision) = host.frame(case, &case.packet, case.wait_ms.unwrap_or(BETWEEN_MS))?;
    let reason = decision.and_then(|decision| decision.reason).map(|reason| reason.name());
    if outcome != case.verdict {
        return Err(format!("{outcome:?} ({reason:?}), expected {:?}", case.verdict));
    }
    if stands == Stands::FunctionsAlone {
        return same("reason", reason, case.reason.as_deref());
    }
    if alone {
        let of_functions = case.reason.as_deref().is_some_and(|reason| reason.starts_with("sfw_"));
        if of_functions && reason == Some("stream_error") {
            // The engine spoke first: ask the function.
            run(case, Stands::FunctionsAlone)?;
        } else {
            same("reason", reason, case.reason.as_deref())?;
        }
        if let Some(rule) = &case.rule {
            let counted: Vec<String> = host
                .rules()
                .into_iter()
                .filter(|(name, n)| rules.get(name) != Some(n))
                .map(|(name, _)| name)
                .collect();
            same("rule", counted, counter(rule).into_iter().collect())?;
        }
        if let Some(expected) = &case.state_after {
            same("state after", host.state(case), expected)?;
        }
    }
    for (index, later) in case.after.iter().enumerate() {
        let (outcome, decision) = host.frame(case, &later.packet, BETWEEN_MS)?;
        if outcome != later.verdict {
            let reason = decision.and_then(|decision| decision.reason);
            return Err(format!("after {index}: {outcome:?} ({reason:?}), expected {:?}", later.verdict));
        }
    }
    Ok(())
}

/// The case's name without the IP version.
fn name(case: &Case) -> &str {
    case.id.rsplit_once('.').map_or("", |(name, _)| name)
}

fn all_pass(stands: Stands) {
    let mut wrong = Vec::new();
    for (place, case) in cases() {
        let known = |id: &str| id == case.id || id == name(&case);
        let known: Vec<_> = DIFFERS.iter().filter(|(id, ..)| known(id)).map(|(_, said, _)| *said).collect();
        let said = match run(&case, stands) {
            Ok(()) if known.is_empty() => continue,
            // A live link is asked less.
            Ok(()) if stands == Stands::Live => continue,
            Ok(()) => "passes: take it from the list of differences".to_owned(),
            Err(error) if known.iter().any(|said| error.starts_with(said)) => continue,
            Err(error) => error,
        };
        wrong.push(format!("{place}: {}: {said}\n    {}", case.id, case.why));
    }
    assert!(wrong.is_empty(), "{} cases are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn header_functions_pass_all_cases() {
    all_pass(Stands::Functions);
}

#[test]
fn a_live_link_lets_the_same_frames_go_on() {
    all_pass(Stands::Live);
}

#[test]
fn the_files_are_whole() {
    let cases = cases();
    assert!(cases.len() >= 200, "{}", cases.len());
    let of = |version| cases.iter().filter(|(_, case)| case.ip == version).count();
    assert_eq!(of(4), of(6));
    let ids: BTreeSet<&str> = cases.iter().map(|(_, case)| case.id.as_str()).collect();
    assert_eq!(ids.len(), cases.len());
    for (place, case) in &cases {
        assert!(!case.why.is_empty() && case.id.ends_with(&format!(".v{}", case.ip)), "{place}");
    }
    let used: BTreeSet<&str> = cases.iter().map(|(_, case)| case.policy.as_str()).collect();
    for (id, ..) in DIFFERS {
        assert!(cases.iter().any(|(_, case)| *id == case.id || *id == name(case)), "{id} is no case");
    }
    for entry in std::fs::read_dir(folder().join("policies")).unwrap() {
        let path = entry.unwrap().path();
        assert!(used.contains(path.file_stem().unwrap().to_str().unwrap()), "{} is not used", path.display());
    }
}

/// Who changes a case changes the script that writes it.
#[test]
fn the_files_are_those_of_their_script() {
    let done = Command::new("python3").arg(folder().join("generate")).arg("--check").output();
    let Ok(done) = done else {
        eprintln!("not run: python3 is not installed");
        return;
    };
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// What differs from a line is told: the runner looks at each part of it.
#[test]
fn a_wrong_line_is_found() {
    let cases = cases();
    let find = |id: &str| cases.iter().find(|(_, case)| case.id == id).unwrap().1.clone();
    let rule = find("pfw.order.reject.v6");
    let talk = find("tcp.established.far.v4");
    let limit = find("limit.third_half_open.v6");
    for case in [&rule, &talk, &limit] {
        run(case, Stands::Functions).unwrap();
    }
    let wrong = [
        ("Reject", Case { verdict: Outcome::Drop, ..rule.clone() }),
        ("reason", Case { reason: Some("pfw_default".to_owned()), ..rule.clone() }),
        ("rule", Case { rule: Some("web.5".to_owned()), ..rule.clone() }),
        ("state after", Case { state_after: Some("syn_sent".to_owned()), ..rule }),
        ("state before", Case { state_before: Some("syn_recv".to_owned()), ..talk.clone() }),
        ("numbers", Case { numbers: Some(Numbers { client: 1, server: 1 }), ..talk.clone() }),
        ("before 0", Case { before_verdicts: vec![Outcome::Drop; 6], ..talk.clone() }),
        (
            "after 0",
            Case { after: vec![Later { packet: talk.packet.clone(), verdict: Outcome::Forward }], ..talk },
        ),
        ("Forward", Case { policy: "sfw".to_owned(), ..limit }),
    ];
    for (said, case) in wrong {
        let error = run(&case, Stands::Functions).expect_err(said);
        assert!(error.starts_with(said), "{said}: {error}");
    }
}
