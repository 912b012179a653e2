// SPDX-License-Identifier: Apache-2.0
//! The host passes the conformance files in `tests/conformance/` (docs/conformance.md): the real agent builds
//! each case's policy, and a worker in prevention gets its frames. Every case runs twice: with the stream
//! engine's own drops off, because levels below have no stream engine, where verdict, reason, rule and state
//! must be those of the line; and as on a live link, where the verdicts must be.
//!
//! With a level below the worker every packet has the same outcome as without one, and flows have the same
//! records (`levels.rs`).

mod case;
mod host;
mod levels;

use bartizan_base::Direction;
use bartizan_flow::tcp::TcpState;
use case::{BETWEEN_MS, Case, Later, Numbers, Outcome, cases, folder};
use host::{Host, Stands};
use std::collections::BTreeSet;
use std::process::Command;

/// Cases in which the host differs from the files: each is known, and its line is removed when the case
/// passes. The case (for both IP versions unless it ends in one), the runner's message, the defect.
const DIFFERS: &[(&str, &str, &str)] = &[
    ("tcp.closing.data_behind_own_fin", "Forward", "data behind the sender's own FIN goes on"),
    (
        "tcp.established.over_the_edge",
        "Drop",
        "a segment that begins in the window and ends behind it is refused, not left to be trimmed",
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
    (
        "kind.ipv6_ipv4-odd.v4",
        "Drop",
        "what cannot be read in a packet of IPv4 is refused, in one of IPv6 not",
    ),
    (
        "kind.ipv6_ipv6-odd.v4",
        "Drop",
        "what cannot be read in a packet of IPv4 is refused, in one of IPv6 not",
    ),
    (
        "kind.mpls_ipv6_ipv6-odd.v4",
        "Drop",
        "what cannot be read in a packet of IPv4 is refused, in one of IPv6 not",
    ),
];

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
        let of_functions = case
            .reason
            .as_deref()
            .is_some_and(|reason| reason.starts_with("sfw_") || reason.starts_with("pfw_"));
        if of_functions && reason == Some("stream_error") {
            // The engine decided first: run the function alone.
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
            same("rule", counted, vec![rule.clone()])?;
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
            // A live link checks less.
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

/// The connection of a case: its flow and state, and for each direction what is expected next, what is
/// acknowledged and where the window ends.
fn connection(host: &Host, case: &Case) -> Option<(u64, TcpState, [[u32; 3]; 2])> {
    let entry = host.entry(case)?;
    let session = &entry.ext.session;
    let of = |direction| {
        let numbers =
            (session.next_seq(direction), session.last_ack(direction), session.window_edge(direction));
        [numbers.0.0, numbers.1.0, numbers.2.0]
    };
    Some((entry.serial(), session.state(), Direction::BOTH.map(of)))
}

#[test]
fn what_a_function_refuses_moves_no_connection() {
    let mut wrong = Vec::new();
    for stands in [Stands::Live, Stands::Functions, Stands::Captures] {
        let mut refused = 0;
        for (place, case) in cases().iter().filter(|(_, case)| case.verdict == Outcome::Drop) {
            let mut host = Host::new(case, stands).unwrap();
            for hex in &case.before {
                host.frame(case, hex, BETWEEN_MS).unwrap();
            }
            let Some(before) = connection(&host, case).filter(|(_, state, _)| *state != TcpState::None)
            else {
                continue;
            };
            let (outcome, decision) = host.frame(case, &case.packet, BETWEEN_MS).unwrap();
            let by = decision.and_then(|decision| decision.reason).map_or("", |reason| reason.name());
            if outcome != Outcome::Drop || !by.starts_with("sfw_") {
                continue;
            }
            // One that begins another connection in the place of this one moves nothing of this one.
            let Some(after) = connection(&host, case).filter(|after| after.0 == before.0) else { continue };
            refused += 1;
            if after != before {
                wrong.push(format!("{place}: {}, {stands:?}, {by}: {before:?}, then {after:?}", case.id));
            }
        }
        assert!(refused >= 40, "{stands:?}: {refused}");
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_client_that_was_refused_opens_again_over_captures() {
    let again = |case: &&(String, Case)| case.1.id.starts_with("tcp.handshake.syn_again_behind_");
    let cases = cases();
    let cases: Vec<_> = cases.iter().filter(again).collect();
    assert_eq!(cases.len(), 4);
    for (place, case) in cases {
        run(case, Stands::Captures).unwrap_or_else(|error| panic!("{place}: {}: {error}", case.id));
    }
}

#[test]
fn a_packet_filter_lets_the_same_segments_go_on_over_captures() {
    let numbers = ["no_ack", "far_data", "ack_of_unsent", "data_with_ack_of_unsent"];
    let asks = |case: &Case| numbers.iter().any(|what| case.id.starts_with(&format!("between.tcp.{what}.")));
    let mut asked = 0;
    for (place, case) in cases().iter().filter(|(_, case)| asks(case)) {
        run(case, Stands::Captures).unwrap_or_else(|error| panic!("{place}: {}: {error}", case.id));
        asked += 1;
    }
    assert_eq!(asked, 16);
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

/// The files of cases are the output of their script.
#[test]
fn the_files_are_those_of_their_script() {
    let done = Command::new("python3").arg(folder().join("generate")).arg("--check").output();
    let Ok(done) = done else {
        eprintln!("not run: python3 is not installed");
        return;
    };
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// The runner checks every part of a line, so that any difference is found.
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
