// SPDX-License-Identifier: Apache-2.0
//! The pairs of a seed: groups of a scene and its variants, which differ from it by one feature.

use crate::applications::conversation::place;
use crate::family::FAMILIES;
use crate::order::{Family, Order};
use crate::pair::{Packet, Pair, Rule};
use crate::scene::Scene;
use crate::states::BONDS;
use crate::talk::packets;
use crate::twist::{TWISTS, UDP_TWISTS, UDP_WAYS, WAYS};
use crate::wider::WIDER;
use bartizan_testkit::random::Random;

/// Number of pairs in a group: the scene, and its variants.
pub const GROUP: u32 = 8;

/// The number of the first pair of the wider grammar.
pub const FIRST_WIDER: u32 = 2_400;

/// The parts from which a pair is made.
#[derive(Clone)]
struct Draft {
    scene: Scene,
    rules: Vec<Rule>,
    v6: bool,
    setting: usize,
    twist: Option<(crate::twist::Twist, u64)>,
    /// Small segments end after a few of each message.
    has_long_messages: bool,
}

/// The pair with this number.
#[must_use]
pub fn pair(seed: u64, number: u32) -> Pair {
    let (group, variant) = (number / GROUP, number % GROUP);
    let mut random = Random::of(seed, &[u64::from(group)]);
    let families = if number < FIRST_WIDER { FAMILIES } else { WIDER };
    let family = &families[group as usize % families.len()];
    let draft = draft(&mut random, family);
    let random = Random::of(seed, &[u64::from(group), u64::from(variant) + 1]);
    finish(random, number, family, draft)
}

/// The pair with this number whose group, of an application's protocol, has these words.
pub(crate) fn application(seed: u64, words: &[u64; 2], number: u32, family: &Family) -> Pair {
    let mut random = Random::of(seed, words);
    let v6 = random.percent(40);
    let mut scene = (family.scene)(&mut random);
    place(&mut scene, number, v6);
    let draft = rules(&mut random, family, scene);
    let variant = u64::from(number % GROUP);
    let random = Random::of(seed, &[words[0], words[1], variant + 1]);
    let pair = finish(random, number, family, Draft { v6, has_long_messages: true, ..draft });
    Pair { is_application: true, ..pair }
}

/// Makes the pair of a draft, with the feature of its variant.
fn finish(mut random: Random, number: u32, family: &Family, mut draft: Draft) -> Pair {
    let feature = match number % GROUP {
        0 => "base".to_string(),
        1 | 3 | 5 => other_rule(&mut random, &mut draft, family),
        7 => bond(&mut random, &mut draft),
        _ => other_way(&mut random, &mut draft),
    };
    if draft.has_long_messages && !draft.scene.way.udp {
        limit_segments(&mut draft.scene.way.sizes);
    }
    let mut made = packets(&draft.scene.messages, &draft.scene.way);
    spread(&mut made, &draft.scene.beside);
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
        is_application: false,
    }
}

/// Bounds the number of segments of a long message.
fn limit_segments(sizes: &mut Vec<usize>) {
    const SMALL: usize = 24;
    let last = sizes.last().copied().unwrap_or(1_460);
    if last < 200 {
        sizes.resize(SMALL.max(sizes.len()), last);
        sizes.push(300);
    }
}

/// Distributes packets among others, as far from each other as possible.
fn spread(packets: &mut Vec<Packet>, beside: &[Packet]) {
    let all = packets.len();
    for (at, packet) in beside.iter().enumerate().rev() {
        packets.insert(at * (all + 1) / beside.len(), packet.clone());
    }
}

fn draft(random: &mut Random, family: &Family) -> Draft {
    let scene = (family.scene)(random);
    let draft = rules(random, family, scene);
    Draft { v6: random.percent(40), ..draft }
}

/// A draft over IPv4 with four rules on a scene.
fn rules(random: &mut Random, family: &Family, scene: Scene) -> Draft {
    let mut rules = Vec::new();
    for at in 0..4 {
        let target = random.pick(&scene.targets).clone();
        let extra = if family.name == "state" { 60 } else { 25 };
        let action = if at == 0 { None } else { Some("alert") };
        let order = Order { scene: &scene, target: &target, conditions: family.conditions, extra, action };
        let (_, rule) = (family.rule)(random, &order);
        rules.push(rule);
    }
    let setting = match random.below(12) {
        0 => 1,
        1 => 2,
        2 => 3,
        _ => 0,
    };
    Draft { scene, rules, v6: false, setting, twist: None, has_long_messages: false }
}

fn other_rule(random: &mut Random, draft: &mut Draft, family: &Family) -> String {
    let target = random.pick(&draft.scene.targets).clone();
    let order = Order {
        scene: &draft.scene,
        target: &target,
        conditions: family.conditions,
        extra: 40,
        action: Some(draft.rules[0].action),
    };
    let (name, rule) = (family.rule)(random, &order);
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
        // Enough segments for a twist to affect one of them.
        draft.scene.way.sizes = vec![random.within(10, 40)];
    }
    draft.twist = Some((*twist, random.draw()));
    format!("twist:{name}")
}

/// Links two of the rules.
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
