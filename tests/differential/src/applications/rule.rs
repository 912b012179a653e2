// SPDX-License-Identifier: Apache-2.0
//! Rules on application protocols: as those of the first grammar, on a state (hook), or on the protocol
//! alone.

use crate::order::Order;
use crate::pair::Rule;
use crate::scene::Target;
use crate::usual::{head, usual};
use bartizan_testkit::random::Random;

/// States that rules are bound to.
const STATES: &[(&str, &[&str])] = &[
    ("smtp", &["request_started", "request_data", "request_complete", "response_data", "response_complete"]),
    ("ftp", &["request_started", "request_complete", "response_complete"]),
    ("ftp-data", &["request_complete", "response_complete"]),
    (
        "ssh",
        &[
            "request_banner_done",
            "request_finished",
            "response_banner_wait_eol",
            "response_banner_done",
            "response_finished",
        ],
    ),
    ("smb", &["request_started", "request_complete", "response_complete"]),
    ("dcerpc", &["request_started", "request_complete", "response_complete"]),
];

/// Conditions on the protocol.
const PROTOCOLS: &[&str] = &[
    "app-layer-protocol:smtp",
    "app-layer-protocol:ftp",
    "app-layer-protocol:ftp-data",
    "app-layer-protocol:ssh",
    "app-layer-protocol:smb",
    "app-layer-protocol:dcerpc",
    "app-layer-protocol:tls",
    "app-layer-protocol:!smtp",
    "app-layer-protocol:!ftp",
    "app-layer-protocol:!smb",
    "app-layer-protocol:failed",
    "app-layer-protocol:smtp,either",
    "app-layer-protocol:smtp,original",
    "app-layer-protocol:tls,final",
    "app-layer-protocol:ssh,to_server",
    "app-layer-protocol:ftp,to_client",
    "app-layer-event:applayer_detect_protocol_only_one_direction",
    "app-layer-event:applayer_mismatch_protocol_both_directions",
    "app-layer-event:applayer_wrong_direction_first_data",
    "app-layer-event:applayer_proto_detection_skipped",
    "app-layer-event:applayer_unexpected_protocol",
    "app-layer-event:applayer_no_tls_after_starttls",
];

/// A rule on a target, and the name of its way to match.
pub(crate) fn by_application(random: &mut Random, order: &Order<'_>) -> (String, Rule) {
    let target = order.target;
    match random.below(30) {
        0 => of_state(random, order),
        1 => {
            let mut options = Vec::new();
            if random.percent(60) {
                options.push(
                    (*random.pick(&[
                        "flow:established",
                        "flow:to_server",
                        "flow:to_client,established",
                        "dsize:>0",
                        "flowbits:isnotset,once@N; flowbits:set,once@N",
                    ]))
                    .to_string(),
                );
            }
            let head = head(random, target);
            ("protocol".into(), order.rule(random, head, options))
        }
        2 => {
            let condition = *random.pick(PROTOCOLS);
            let of_packets =
                Target { proto: if order.scene.way.udp { "udp" } else { "tcp" }, ..target.clone() };
            let head = head(random, &of_packets);
            (condition.into(), order.rule(random, head, vec![condition.into()]))
        }
        3 if !order.conditions.is_empty() => {
            let condition = *random.pick(order.conditions);
            let head = head(random, target);
            (condition.into(), order.rule(random, head, vec![condition.into()]))
        }
        _ => usual(random, order),
    }
}

/// A rule on a state, alone or with a buffer.
fn of_state(random: &mut Random, order: &Order<'_>) -> (String, Rule) {
    let target = order.target;
    let Some((proto, states)) = STATES.iter().find(|(proto, _)| *proto == target.proto) else {
        return usual(random, order);
    };
    let state = *random.pick(states);
    let (name, mut rule) = usual(random, order);
    // A state beside a protocol frame is no rule for a comparison.
    if random.percent(50) || rule.options.iter().any(|option| option.contains("frame:")) {
        rule.options.clear();
    }
    rule.head = rule.head.replacen(proto, &format!("{proto}:{state}"), 1);
    (format!("{state}+{name}"), rule)
}
