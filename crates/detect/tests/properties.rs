// SPDX-License-Identifier: Apache-2.0
//! A content program gives the same answer as a plain interpretation, on small alphabets where literals meet
//! and overlap.
//!
//! The plain interpretation has no windows, finders or give-up rules: it tries every assignment of
//! occurrences. It runs only on programs where giving up early cannot matter: chains in which every literal
//! is placed by `within` (which requires further occurrences of the one before it) or stands alone.

use crate::common;

use common::Lab;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Content {
    bytes: Vec<u8>,
    negated: bool,
    nocase: bool,
    endswith: bool,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Free,
    Absolute { offset: usize, depth: Option<usize> },
    Relative { distance: i64, within: i64 },
}

/// Whether `content` lies at `at` and meets its place.
fn lies(content: &Content, payload: &[u8], at: usize, cursor: usize) -> bool {
    let Some(found) = payload.get(at..at + content.bytes.len()) else { return false };
    let equal =
        if content.nocase { found.eq_ignore_ascii_case(&content.bytes) } else { found == content.bytes };
    let end = at + content.bytes.len();
    let placed = match content.place {
        Place::Free => true,
        Place::Absolute { offset, depth } => at >= offset && depth.is_none_or(|d| end <= offset + d),
        Place::Relative { distance, within } => {
            let first = cursor as i64 + distance;
            // A room that ends before the payload is no limit.
            at as i64 >= first && (first + within < 0 || end as i64 <= first + within)
        }
    };
    equal && placed && (!content.endswith || end == payload.len())
}

fn holds(contents: &[Content], payload: &[u8], cursor: usize) -> bool {
    let Some((content, rest)) = contents.split_first() else { return true };
    let mut places = (0..payload.len()).filter(|at| lies(content, payload, *at, cursor));
    if content.negated {
        return places.next().is_none() && holds(rest, payload, cursor);
    }
    places.any(|at| holds(rest, payload, at + content.bytes.len()))
}

fn options(contents: &[Content]) -> String {
    contents
        .iter()
        .map(|c| {
            let not = if c.negated { "!" } else { "" };
            let text = String::from_utf8(c.bytes.clone()).unwrap();
            let mut out = format!("content:{not}\"{text}\";");
            out += if c.nocase { " nocase;" } else { "" };
            out += if c.endswith { " endswith;" } else { "" };
            match c.place {
                Place::Free => {}
                Place::Absolute { offset, depth } => {
                    out += &format!(" offset:{offset};");
                    if let Some(depth) = depth {
                        out += &format!(" depth:{depth};");
                    }
                }
                Place::Relative { distance, within } => {
                    out += &format!(" distance:{distance}; within:{within};");
                }
            }
            out
        })
        .collect::<Vec<_>>()
        .join(" ")
}

fn letters(size: core::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(b"abB".to_vec()), size)
}

fn content() -> impl Strategy<Value = Content> {
    (letters(1..4), any::<[bool; 3]>(), 0..6usize, 0..5usize, 0..8i64, 0..3u8, prop::bool::weighted(0.3))
        .prop_map(|(bytes, [nocase, endswith, limited], offset, room, distance, place, negated)| {
            let length = bytes.len();
            let place = match place {
                0 => Place::Free,
                1 => Place::Absolute { offset, depth: limited.then_some(length + room) },
                _ => Place::Relative { distance: distance - 4, within: (length + room) as i64 },
            };
            // The end of a negated literal is compared at its first occurrence only.
            Content { bytes, negated, nocase, endswith: endswith && !negated, place }
        })
}

/// Chains of contents. A content relative to a literal directly follows it: if a negated content without a
/// place comes in between, no further occurrence of the literal is tried (as in Suricata).
fn chain() -> impl Strategy<Value = Vec<Content>> {
    prop::collection::vec(content(), 1..5).prop_map(|mut contents| {
        for index in 1..contents.len() {
            let relative = |c: &Content| matches!(c.place, Place::Relative { .. });
            if relative(&contents[index]) && !relative(&contents[index - 1]) {
                contents[index - 1].negated = false;
            }
        }
        contents
    })
}

/// A content with its distances multiplied by `scale`.
fn spread(mut content: Content, scale: usize) -> Content {
    match &mut content.place {
        Place::Free => {}
        Place::Absolute { offset, depth } => {
            *offset *= scale;
            *depth = depth.map(|d| d * scale);
        }
        Place::Relative { distance, within } => {
            *distance *= scale as i64;
            *within *= scale as i64;
        }
    }
    content
}

/// Least number of bytes that have room for the contents, each at its place.
fn room(contents: &[Content]) -> usize {
    let before = |place: &Place| match place {
        Place::Free => 0,
        Place::Absolute { offset, .. } => *offset,
        Place::Relative { distance, .. } => usize::try_from(*distance).unwrap_or(0),
    };
    contents.iter().map(|content| before(&content.place) + content.bytes.len()).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn programs_mean_what_they_say(contents in chain(), payload in letters(1..16)) {
        let mut lab = Lab::new(&common::udp_rule(&options(&contents)));
        let got = !lab.send_to_server(&payload).is_empty();
        prop_assert_eq!(got, holds(&contents, &payload, 0), "{}", options(&contents));
    }

    /// Wherever literals lie in a payload, and however long the payload is, the searched part contains them.
    #[test]
    fn literals_are_found_wherever_they_lie(
        contents in chain(),
        scale in 1..60usize,
        planted in prop::collection::vec((0..300usize, letters(1..4)), 1..5),
        longest in prop::option::of(1..1200usize),
    ) {
        let contents: Vec<Content> = contents.into_iter().map(|c| spread(c, scale)).collect();
        let payload: Vec<u8> = planted.into_iter().flat_map(|(gap, text)| [vec![b'z'; gap], text].concat()).collect();
        let mut options = options(&contents);
        // A rule whose contents have no room is refused.
        let longest = longest.map(|more| room(&contents) + more);
        if let Some(longest) = longest {
            options += &format!(" dsize:<{longest};");
        }
        let mut lab = Lab::new(&common::udp_rule(&options));
        let got = !lab.send_to_server(&payload).is_empty();
        let short = longest.is_none_or(|longest| payload.len() < longest);
        prop_assert_eq!(got, short && holds(&contents, &payload, 0), "{}", options);
    }

    #[test]
    fn arguments_never_panic(
        keyword in prop::sample::select(bartizan_detect::keywords::all().map(|k| k.name).collect::<Vec<_>>()),
        argument in "[ -:<-~]{0,24}",
    ) {
        let text = common::udp_rule(&format!("content:\"a\"; {keyword}:{argument};"));
        let _ = common::load_text(&text, &bartizan_base::SettingsMap::new(), &std::sync::Arc::default());
    }

    #[test]
    fn byte_keywords_never_panic(
        bytes in 0..24u8,
        offset in -70_000..70_000i64,
        kind in 0..4u8,
        relative: bool,
        payload in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let relative = if relative { ",relative" } else { "" };
        let option = match kind {
            0 => format!("byte_test:{bytes},>,1,{offset}{relative};"),
            1 => format!("byte_jump:{bytes},{offset}{relative},multiplier 65535,post_offset -65535;"),
            2 => format!("byte_extract:{bytes},{offset},n{relative}; content:!\"x\"; distance:n; within:n;"),
            _ => format!("byte_math:bytes {bytes},offset {offset},oper <<,rvalue 70,result n{relative}; isdataat:!n;"),
        };
        let text = common::udp_rule(&format!("content:!\"zz\"; {option}"));
        let loaded = common::load_text(&text, &bartizan_base::SettingsMap::new(), &std::sync::Arc::default());
        if loaded.diagnostics.is_empty() && !payload.is_empty() {
            Lab::new(&text).send_to_server(&payload);
        }
    }
}
