// SPDX-License-Identifier: Apache-2.0
//! Pairs of a seed: groups of a scene and its variants, which differ from it by one feature.

use crate::extra::{About, EXTRAS, TCP_EXTRAS};
use crate::family::FAMILIES;
use crate::look::LOOKS;
use crate::pair::{Pair, Rule};
use crate::scene::{Scene, Target};
use crate::states::{BONDS, action};
use crate::talk::packets;
use crate::text::near_positive;
use crate::twist::{TWISTS, UDP_TWISTS, UDP_WAYS, WAYS};
use bartizan_testkit::random::Random;

/// Pairs of a group: the scene, and its variants.
pub const GROUP: u32 = 8;

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

/// What a pair is made of.
#[derive(Clone)]
struct Draft {
    scene: Scene,
    rules: Vec<Rule>,
    v6: bool,
    setting: usize,
    twist: Option<(crate::twist::Twist, u64)>,
}

/// The pair with this number.
#[must_use]
pub fn pair(seed: u64, number: u32) -> Pair {
    let (group, variant) = (number / GROUP, number % GROUP);
    let mut random = Random::of(seed, &[u64::from(group)]);
    let family = &FAMILIES[group as usize % FAMILIES.len()];
    let mut draft = draft(&mut random, family.scene, family.conditions, family.name == "state");
    let mut random = Random::of(seed, &[u64::from(group), u64::from(variant) + 1]);
    let feature = match variant {
        0 => "base".to_string(),
        1 | 3 | 5 => other_rule(&mut random, &mut draft, family.conditions),
        7 => bond(&mut random, &mut draft),
        _ => other_way(&mut random, &mut draft),
    };
    let mut made = packets(&draft.scene.messages, &draft.scene.way);
    if let Some((twist, seed)) = draft.twist
        && !made.is_empty()
    {
        twist(&mut Random::new(seed), &mut made);
    }
    Pair {
        number,
        name: format!("{}/{feature}", family.name),
        v6: draft.v6,
        setting: draft.setting,
        rules: draft.rules,
        packets: made,
    }
}

fn draft(
    random: &mut Random,
    scene: fn(&mut Random) -> Scene,
    conditions: &'static [&'static str],
    counted: bool,
) -> Draft {
    let scene = scene(random);
    let mut rules = Vec::new();
    for at in 0..4 {
        let target = random.pick(&scene.targets).clone();
        let extra = if counted { 60 } else { 25 };
        let (_, rule) =
            rule(random, &scene, &target, conditions, extra, if at == 0 { None } else { Some("alert") });
        rules.push(rule);
    }
    let setting = match random.below(12) {
        0 => 1,
        1 => 2,
        2 => 3,
        _ => 0,
    };
    Draft { scene, rules, v6: random.percent(40), setting, twist: None }
}

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

/// A rule that looks at a target, and the name of the way in which it does.
fn rule(
    random: &mut Random,
    scene: &Scene,
    target: &Target,
    conditions: &[&'static str],
    extra: usize,
    act: Option<&'static str>,
) -> (String, Rule) {
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
            return (name, Rule { action: act.unwrap_or_else(|| action(random)), head, options });
        }
        // What follows is about another buffer.
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
        // What several contents need together is another matter.
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
    (name, Rule { action: act.unwrap_or_else(|| action(random)), head, options })
}

fn head(random: &mut Random, target: &Target) -> String {
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

fn other_rule(random: &mut Random, draft: &mut Draft, conditions: &[&'static str]) -> String {
    let target = random.pick(&draft.scene.targets).clone();
    let act = draft.rules[0].action;
    let (name, rule) = rule(random, &draft.scene, &target, conditions, 40, Some(act));
    draft.rules[0] = rule;
    format!("rule:{name}")
}

fn other_way(random: &mut Random, draft: &mut Draft) -> String {
    let udp = draft.scene.way.udp;
    if random.percent(6) {
        draft.v6 = !draft.v6;
        return "ip-version".into();
    }
    if random.percent(50) {
        let (name, change) = random.pick(if udp { UDP_WAYS } else { WAYS });
        change(random, &mut draft.scene.way);
        return format!("way:{name}");
    }
    let (name, twist) = random.pick(if udp { UDP_TWISTS } else { TWISTS });
    if !udp && random.percent(60) {
        // Enough segments that something can happen to one of them.
        draft.scene.way.sizes = vec![random.within(10, 40)];
    }
    draft.twist = Some((*twist, random.draw()));
    format!("twist:{name}")
}

/// Two of the rules belong together.
fn bond(random: &mut Random, draft: &mut Draft) -> String {
    let (name, make) = random.pick(BONDS);
    let (first, second) = make(random);
    for (at, text) in [(1, first), (2, second)] {
        draft.rules[at].options.insert(0, text);
    }
    if random.percent(30) {
        draft.rules.swap(1, 2);
    }
    format!("bond:{name}")
}
