// SPDX-License-Identifier: Apache-2.0
//! Rules of the first grammar: one way to match the bytes of a target, with additional conditions.

use crate::extra::{About, EXTRAS, TCP_EXTRAS};
use crate::look::LOOKS;
use crate::order::Order;
use crate::pair::Rule;
use crate::scene::{Scene, Target};
use crate::text::near_positive;
use bartizan_testkit::random::Random;

/// Transforms of buffers.
pub const TRANSFORMS: &[&str] = &[
    "to_lowercase",
    "to_uppercase",
    "strip_whitespace",
    "compress_whitespace",
    "to_md5",
    "to_sha1",
    "to_sha256",
    "url_decode",
    "dotprefix",
    "header_lowercase",
    "strip_pseudo_headers",
    "xor:\"0d0ac8ff\"",
    "pcrexform:\"(a.*)\"",
];

fn about(scene: &Scene, target: &Target) -> About {
    let sum = |client: bool| {
        scene
            .messages
            .iter()
            .filter(|message| message.to_server == client)
            .map(|message| message.data.len())
            .sum()
    };
    About { size: target.data.len(), client: sum(true), server: sum(false), messages: scene.messages.len() }
}

/// A rule on a target, and the name of its way to match.
pub(crate) fn usual(random: &mut Random, order: &Order<'_>) -> (String, Rule) {
    let &Order { scene, target, conditions, extra, .. } = order;
    let about = about(scene, target);
    let mut options = Vec::new();
    let mut name = String::new();
    if random.percent(extra) {
        let tcp = !scene.way.udp && random.percent(40);
        let (what, make) = if tcp { random.pick(TCP_EXTRAS) } else { random.pick(EXTRAS) };
        options.extend(make(random, &about));
        name.push_str(what);
        name.push('+');
    }
    if !conditions.is_empty() && random.percent(25) {
        let condition = *random.pick(conditions);
        options.push(condition.into());
        name.push_str(condition.split([':', ';']).next().unwrap_or_default());
        name.push('+');
        if !condition.starts_with("app-layer-event") && random.percent(50) {
            name.pop();
            let head = head(random, target);
            return (name, order.rule(random, head, options));
        }
        // The following options are about another buffer.
        if target.buffer.is_empty() && condition.contains("content") {
            options.push("pkt_data".into());
        }
    }
    let (what, look) = random.pick(LOOKS);
    let looked = look(random, &target.data);
    if !target.buffer.is_empty() {
        options.push(target.buffer.into());
        name.push_str(target.buffer);
        name.push('+');
        if random.percent(12) {
            let transform = *random.pick(TRANSFORMS);
            options.push(transform.into());
            name.push_str(transform);
            name.push('+');
        }
        // Combinations of several contents are tested elsewhere.
        if random.percent(12)
            && !looked.iter().any(|option| option.contains("distance") || option.contains("within"))
        {
            let size = near_positive(random, target.data.len());
            options.push(format!("bsize:{}{size}", random.pick(&["", "", ">", "<", "!"])));
            name.push_str("bsize+");
        }
    }
    options.extend(looked);
    name.push_str(what);
    let head = head(random, target);
    (name, order.rule(random, head, options))
}

/// Protocol, addresses and ports of a rule on a target.
pub(crate) fn head(random: &mut Random, target: &Target) -> String {
    let proto = target.proto;
    let (from, to) = if target.to_server { ("@C", "@S") } else { ("@S", "@C") };
    match random.below(12) {
        0 => format!("{proto} {from} any <> {to} any"),
        1 => format!("{proto} [@C,@S] any -> any any"),
        2 => format!("{proto} any any -> {to} any"),
        3 => format!("{proto} {to} any -> {from} any"),
        4 => format!("{proto} {from} any -> [{to},10.255.255.0/24] ![1:10]"),
        _ => format!("{proto} {from} any -> {to} any"),
    }
}
