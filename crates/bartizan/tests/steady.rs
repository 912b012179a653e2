// SPDX-License-Identifier: Apache-2.0
//! The XDP program is attached, changed, replaced and removed under a steady stream of numbered frames, both
//! ways (needs root; without, it prints so and returns). The frames that may be lost are stated for each case
//! (docs/offload.md); no other is lost, and none comes twice.

use crate::common;
use crate::level;
use crate::namespace;

use common::{Folder, PROGRAM, Running, get, until, value};
use level::stream::{Arrived, BYPASSED, INSPECTED, Moment, Of, Stream, UNDER_WAY};
use level::{ends_well, network, pin_of, pins};
use namespace::{detach_pinned, in_namespace_for, own_bpf_file_system};
use std::process::Command;
use std::time::{Duration, Instant};

/// Frames a second of each side.
const RATE: u64 = 20_000;
/// The time after which a worker has certainly failed (`stale`, 1 s).
const SURELY_STALE: Duration = Duration::from_millis(1_500);

/// Rules and policy of a generation: each refuses other packets, none of which the stream has.
fn write(folder: &Folder, generation: u64) {
    let refused = 700 + generation;
    folder.write(
        "policy.yaml",
        format!(
            "policies: [{{name: all, from: any, to: any, chain: [pfw, ids], pfw: {{default: allow, rules: [{{drop: udp, to-ports: {refused}}}]}}, ids: {{rules: [local.rules]}}}}]\n\
             default: {{action: drop}}\n"
        ),
    );
    folder.write(
        "local.rules",
        format!(
            "drop udp any any -> any {refused} (msg:\"no\"; sid:1;)\npass udp any any -> any {BYPASSED} (msg:\"known\"; bypass; sid:2;)\n\
             alert udp any any -> any {INSPECTED} (msg:\"none\"; content:\"none of {generation}\"; sid:3;)\n"
        ),
    );
}

fn start(folder: &Folder, fail: &str) -> Running {
    folder.write(
        "bartizan.yaml",
        format!(
            "links: [{{name: wan, inline: {{a: a1, b: b1, offload: {{level: xdp, entries: 1024, fail: {fail}, stale: 1s}}}}, workers: 2}}]\n\
             policy: policy.yaml\ncache: none\noutputs: {{eve: {{dir: out}}}}\nmetrics: {{listen: '127.0.0.1:9100'}}\nreload: {{max-loss: 100%}}\n"
        ),
    );
    let mut command = Command::new(PROGRAM);
    Running::start(command.args(["run", "-c", "bartizan.yaml", "--control", "none"]).current_dir(&folder.0))
}

/// Frames that may be lost: of one kind or both, between two moments.
struct May {
    what: &'static str,
    of: Option<Of>,
    from: Moment,
    to: Option<Moment>,
}

/// Checks that each missing frame is one that may be lost. Returns the number for each case.
fn check(arrived: &Arrived, cases: &[May]) {
    let mut lost_of = vec![0; cases.len()];
    for (way, (kind, lost)) in arrived.lost().into_iter().enumerate() {
        for number in lost.iter().cloned().flatten() {
            let case = cases.iter().position(|case| {
                case.of.is_none_or(|of| of == kind)
                    && number >= case.from[way]
                    && case.to.as_ref().is_none_or(|to| number < to[way])
            });
            let Some(case) = case else {
                let bounds: Vec<_> = cases
                    .iter()
                    .map(|case| (case.what, case.from[way], case.to.as_ref().map(|to| to[way])))
                    .collect();
                panic!("{way} {kind:?}: {number} is lost, of {lost:?}; what may be lost: {bounds:?}");
            };
            lost_of[case] += 1;
        }
        // A link that is closed for good lets nothing go on any more.
        assert!(
            lost.iter()
                .filter(|range| cases.iter().any(|case| case.to.is_none() && range.start >= case.from[way]))
                .count()
                <= 1,
            "{way} {kind:?}: {lost:?}"
        );
    }
    assert_eq!(arrived.twice(), 0, "frames came twice");
    let told: Vec<_> =
        cases.iter().zip(&lost_of).map(|(case, lost)| format!("{} {lost}", case.what)).collect();
    eprintln!("{} frames sent; lost: {}", arrived.sent(), told.join(", "));
}

/// The numbers without the frames that were under way at that moment.
fn before(mut moment: Moment) -> Moment {
    moment.iter_mut().for_each(|sent| *sent = sent.saturating_sub(UNDER_WAY));
    moment
}

/// Waits until all bypassed flows of the stream are below: only the frames of others go up.
fn is_below() {
    let counts = || {
        let page = get("/metrics");
        ["up", "forwarded"]
            .map(|what| value(&page, "bartizan_port_level_total", &[&format!("what=\"{what}\"")]))
    };
    let mut before = counts();
    until("bypassed flows are below", || {
        std::thread::sleep(Duration::from_millis(100));
        let now = counts();
        let [up, forwarded] = [0, 1].map(|at| now[at] - before[at]);
        before = now;
        forwarded * 10 > up * 9
    });
}

/// Generations under the stream.
fn change(folder: &Folder, running: &Running) {
    for generation in 2..=5 {
        write(folder, generation);
        running.signal("USR2");
        running.until(&format!("generation {generation}: "));
        is_below();
    }
}

/// Another user detaches the program from each interface.
fn take_away(running: &Running) {
    for (number, name) in ["a1", "b1"].into_iter().enumerate() {
        until("pins", || pins().len() == 2);
        detach_pinned(&pin_of(name));
        let again = "note: link `wan` uses its XDP level again";
        until("the level, again", || running.stderr().matches(again).count() == number + 1);
        is_below();
    }
}

#[test]
fn nothing_is_lost_while_the_program_is_attached_changed_and_replaced() {
    in_namespace_for(Duration::from_secs(120), || {
        own_bpf_file_system();
        let folder = Folder::new();
        let stream = Stream::begin(network(1500), RATE);
        let begin = stream.now();
        write(&folder, 1);
        let running = start(&folder, "open");
        running.until("running on");
        stream.arrives("frames after the start");
        stream.waits_for(&[Of::Bypassed, Of::Inspected]);
        let started = stream.now();
        is_below();
        change(&folder, &running);
        take_away(&running);
        // A killed run leaves the link to its program, which the next one replaces.
        let killed = before(stream.now());
        stream.waits_for(&[Of::Bypassed]);
        running.signal("KILL");
        assert_eq!(running.wait().code, None);
        let since = Instant::now();
        let open = stream.arrives("frames through the open link");
        let took = since.elapsed();
        stream.waits_for(&[Of::Bypassed, Of::Inspected]);
        std::thread::sleep(SURELY_STALE);
        write(&folder, 1);
        let running = start(&folder, "open");
        running.until("that a killed run left is replaced");
        running.until("running on");
        stream.arrives("frames after the replacement");
        is_below();
        let ended = before(stream.now());
        stream.waits_for(&[]);
        ends_well(running);
        std::thread::sleep(Duration::from_millis(300));
        let arrived = stream.end();
        check(
            &arrived,
            &[
                May { what: "before the start", of: None, from: begin, to: Some(started) },
                May { what: "of a killed run's", of: Some(Of::Inspected), from: killed, to: Some(open) },
                May { what: "behind the end", of: None, from: ended, to: None },
            ],
        );
        eprintln!("the link was open {} ms after the kill", took.as_millis());
        assert!(took < Duration::from_secs(3), "{took:?}");
    });
}
