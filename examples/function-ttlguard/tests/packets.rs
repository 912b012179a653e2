// SPDX-License-Identifier: Apache-2.0
//! The function alone: rules are installed and packets shown to it as the host does.

use bartizan_base::{Decision, Direction, Fid, FunctionId, Generation, Reason, Timestamp};
use bartizan_function::{
    ChainResults, Function, FunctionKind, HostTables, PacketContext, PacketFacts, PatternSets, RulePart,
    RuleSource, RulesError, WorkerState,
};
use bartizan_packet::{DecodeOutput, Decoder, DecoderConfig, LinkType, PacketView};
use bartizan_testkit::packet;
use function_ttlguard::TtlGuardKind;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;

/// The class that the policy applies to.
const FID: Fid = Fid(7);

/// The function with this section in a policy.
fn made(section: Value) -> Result<Box<dyn Function>, Vec<RulesError>> {
    let class = json!({"policy": "web", "fids": [FID.0], "rules": section});
    let (common, classes) = RulePart::split(json!({"classes": [class]}));
    TtlGuardKind.rules(&RuleSource {
        common: &Arc::new(common),
        classes: &classes,
        place: "policy.yaml",
        generation: Generation(1),
        id: FunctionId(0),
        hosts: &HostTables::default(),
        patterns: &PatternSets::default(),
        names: &Arc::default(),
    })
}

/// The decision on a frame of a class.
fn decision(function: &dyn Function, worker: &mut WorkerState, fid: Fid, frame: &[u8]) -> Decision {
    let mut out = DecodeOutput::default();
    let length = u32::try_from(frame.len()).unwrap();
    Decoder::new(DecoderConfig::built_in()).decode(LinkType::ETHERNET, frame, length, &mut out);
    let view = PacketView::new(frame, out.outer().unwrap());
    function.packet(&mut PacketContext {
        facts: &PacketFacts::of(Timestamp::ZERO, Direction::ToServer, Some(&view), true),
        app: None,
        reject: &mut None,
        notes: &ChainResults { fid, ..ChainResults::default() },
        worker,
        slot: &mut None,
        staged: &mut 0,
        findings: &mut Vec::new(),
        edits: &mut Vec::new(),
    })
}

#[test]
fn packets_below_the_floor_are_dropped_and_counted() {
    for [client, server] in [["192.0.2.1", "192.0.2.2"], ["2001:db8::1", "2001:db8::2"]] {
        let end = |address: &str, port| (address.parse::<IpAddr>().unwrap(), port);
        // Its time to live, or hop limit, is 64.
        let frame = packet::udp(end(client, 4000), end(server, 53), b"question").frame();
        for (floor, refuses) in [(64, false), (65, true)] {
            let function = made(json!({"floor": floor})).unwrap();
            let mut worker = function.worker();
            let reason = decision(&*function, &mut worker, FID, &frame).reason;
            assert_eq!(reason, refuses.then_some(Reason::PfwRule), "{client}, floor {floor}");
            // A class of no policy of it.
            assert_eq!(decision(&*function, &mut worker, Fid(1), &frame), Decision::CONTINUE);
            let mut counters = Vec::new();
            function.log(&worker, &mut |name, value| counters.push((name, value)));
            assert_eq!(counters, [("dropped", u64::from(refuses))]);
        }
    }
}

#[test]
fn a_wrong_section_is_refused_with_its_place() {
    for (section, place) in [
        (json!({}), "classes/0/rules"),
        (json!({"floor": 0}), "classes/0/rules/floor"),
        (json!({"flor": 3}), "classes/0/rules/flor/"),
    ] {
        let errors = made(section.clone()).err().unwrap_or_else(|| panic!("{section} is accepted"));
        assert_eq!(errors[0].place, place, "{errors:?}");
    }
}
