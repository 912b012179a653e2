// SPDX-License-Identifier: Apache-2.0
//! Generates the reference of the rule language: pages from the registry of keywords, the buffers of
//! protocols and packets, and the list of refused keywords. `cargo xtask keywords` writes the pages; a test
//! compares them with the committed ones.

use crate::compile::keyword::Keyword;
use crate::keywords::{self, sticky};
use crate::model::buffers::{Buffers, PACKET_BUFFERS};
use bartizan_applayer::protocol::BufferKind;
use bartizan_applayer::protocols;
use bartizan_base::PerDirection;
use bartizan_base::page::wrapped;
use core::fmt::Write;

const GENERATED: &str =
    "<!-- Generated from the registry in crate detect by `cargo xtask keywords`; do not edit. -->\n\n";

/// The pages: file name below `docs/reference/` and text.
#[must_use]
pub fn pages() -> Vec<(&'static str, String)> {
    vec![
        ("keywords.md", keyword_page()),
        ("buffers.md", buffer_page()),
        ("refused-keywords.md", refused_page()),
    ]
}

/// A keyword in the output of `--list-keywords`.
pub struct Listed {
    /// The keyword's name.
    pub name: &'static str,
    /// One sentence about the keyword.
    pub summary: String,
    /// The application protocols that have it; empty for all traffic.
    pub protocols: Vec<&'static str>,
    /// The keyword takes no value.
    pub no_option: bool,
    /// The keyword is a sticky buffer.
    pub is_buffer: bool,
    /// The keyword that this one is another spelling of.
    pub alias_of: Option<&'static str>,
    /// Page of the keyword in the reference.
    pub page: String,
}

/// Every keyword that is evaluated, sticky buffers and other spellings included, by name.
#[must_use]
pub fn list() -> Vec<Listed> {
    let mut all = Vec::new();
    for keyword in keywords::all() {
        let names = std::iter::once(keyword.name).chain(keyword.aliases.iter().copied());
        all.extend(names.map(|name| Listed {
            name,
            summary: keyword.summary.to_owned(),
            protocols: Vec::new(),
            no_option: keyword.argument == crate::compile::keyword::Argument::None,
            is_buffer: keyword.role == crate::compile::keyword::Role::Buffer,
            alias_of: (name != keyword.name).then_some(keyword.name),
            page: format!("docs/reference/keywords.md#{}", anchor(keyword.name)),
        }));
    }
    let buffers = Buffers::new();
    let of_packets = PACKET_BUFFERS.iter().map(|buffer| (buffer.name, Vec::new()));
    let of_transactions = buffers.iter().map(|buffer| {
        let specs = buffer.providers.iter().filter_map(|(id, _)| protocols::spec(*id));
        (buffer.name, specs.map(|spec| spec.name).collect())
    });
    for (buffer, protocols) in of_packets.chain(of_transactions) {
        let aliases = sticky::ALIASES.iter().filter(|(_, modern)| *modern == buffer).map(|(alias, _)| *alias);
        for name in std::iter::once(buffer).chain(aliases) {
            if sticky::find(name, &buffers).is_none() || all.iter().any(|known: &Listed| known.name == name) {
                continue;
            }
            all.push(Listed {
                name,
                summary: format!("sticky buffer `{buffer}`"),
                protocols: protocols.clone(),
                no_option: true,
                is_buffer: true,
                alias_of: (name != buffer).then_some(buffer),
                page: "docs/reference/buffers.md".to_owned(),
            });
        }
    }
    all.sort_by_key(|keyword| keyword.name);
    all
}

const KEYWORDS_INTRODUCTION: [&str; 2] = [
    "Every keyword of the rule language that this engine evaluates; sticky buffers are on [a page of their own](buffers.md), \
     and refused keywords are [listed by name](refused-keywords.md). Each has the meaning of Suricata 8, unless its entry \
     says otherwise. In *syntax*, capitals mark the parts to fill in, brackets the optional parts.",
    "No keyword is accepted and then ignored. When a rule loads, the loader verifies that each condition, modifier, effect \
     and limit has an effect, by the keyword's role, and refuses the rule otherwise.",
];

const BUFFERS_INTRODUCTION: &str = "\
    The buffers that a rule can inspect by name: `content`, `pcre`, `bsize`, `isdataat`, `dataset`, transforms and similar \
    keywords after the buffer's keyword inspect it. Rules see a *growing* buffer while its data arrives; a buffer with \
    *several* values matches if one of them matches.";

const REFUSED_INTRODUCTION: &str = "\
    Keywords of Suricata 8 that this engine does not evaluate. A rule with one of them is refused with the keyword's name, \
    counted as refused, and listed by `bartizan check`; a rule is never loaded without one of its keywords.";

fn keyword_page() -> String {
    let mut page = format!("# Keywords\n\n{GENERATED}");
    let [first, second] = KEYWORDS_INTRODUCTION.map(|text| wrapped(text, ""));
    let _ = write!(page, "{first}\n\n{second}\n\n| keyword | role | what |\n|---|---|---|\n");
    let mut all: Vec<&Keyword> = keywords::all().collect();
    all.sort_by_key(|k| k.name);
    for keyword in &all {
        let _ = writeln!(
            page,
            "| [`{}`](#{}) | {} | {} |",
            keyword.name,
            anchor(keyword.name),
            keyword.role.name(),
            cell(keyword.summary)
        );
    }
    for keyword in all {
        entry(&mut page, keyword);
    }
    page
}

fn entry(page: &mut String, keyword: &Keyword) {
    let _ = writeln!(page, "\n## {}\n\n{}\n", keyword.name, wrapped(keyword.summary, ""));
    let _ = writeln!(page, "```text\nrole:    {}\nsyntax:  {}", keyword.role.name(), keyword.syntax);
    if !keyword.aliases.is_empty() {
        let _ = writeln!(page, "also:    {}", keyword.aliases.join(", "));
    }
    let _ = writeln!(page, "example: {}\n```", keyword.example);
    let note = if keyword.note.is_empty() { "As in Suricata 8." } else { keyword.note };
    let _ = writeln!(page, "\n{}", wrapped(note, ""));
}

fn buffer_page() -> String {
    let mut page = format!("# Sticky buffers\n\n{GENERATED}");
    let introduction = wrapped(BUFFERS_INTRODUCTION, "");
    let _ = write!(
        page,
        "{introduction}\n\n| buffer | of | direction | values | also |\n|---|---|---|---|---|\n"
    );
    for buffer in PACKET_BUFFERS {
        let _ = writeln!(page, "| `{}` | packets | both | one | {} |", buffer.name, spellings(buffer.name));
    }
    let buffers = Buffers::new();
    let mut all: Vec<_> = buffers.iter().collect();
    all.sort_by_key(|b| b.name);
    for buffer in all {
        let of: Vec<&str> =
            buffer.providers.iter().filter_map(|(id, _)| protocols::spec(*id)).map(|s| s.name).collect();
        let kind = match buffer.providers.first().map(|(_, spec)| spec.kind) {
            Some(BufferKind::Multi) => "several",
            Some(BufferKind::Streaming) => "one, grows",
            Some(BufferKind::Files) => "several, grow",
            Some(BufferKind::Single) | None => "one",
        };
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {kind} | {} |",
            buffer.name,
            of.join(", "),
            directions(buffer.directions()),
            spellings(buffer.name)
        );
    }
    page
}

fn refused_page() -> String {
    let mut page = format!("# Refused keywords\n\n{GENERATED}");
    let _ = writeln!(page, "{}", wrapped(REFUSED_INTRODUCTION, ""));
    for (reason, names) in keywords::refused_names() {
        if names.is_empty() {
            continue;
        }
        let _ = writeln!(page, "\n## {}\n", reason.trim_end_matches('.'));
        let listed: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
        let _ = writeln!(page, "{}", wrapped(&listed.join(", "), ""));
    }
    page
}

fn directions(of: PerDirection<bool>) -> &'static str {
    match (of.to_server, of.to_client) {
        (true, true) => "both",
        (true, false) => "to the server",
        (false, true) => "to the client",
        (false, false) => "none",
    }
}

fn spellings(name: &str) -> String {
    let others = sticky::ALIASES.iter().filter(|(_, modern)| *modern == name);
    others.map(|(alias, _)| format!("`{alias}`")).collect::<Vec<_>>().join(", ")
}

/// The anchor that mdBook gives a heading.
fn anchor(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect::<String>().to_lowercase()
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_name_everything_once() {
        let pages = pages();
        let (_, keywords_page) = &pages[0];
        for keyword in keywords::all() {
            let heading = format!("\n## {}\n", keyword.name);
            assert_eq!(keywords_page.matches(&heading).count(), 1, "{}", keyword.name);
        }
        let (_, buffers_page) = &pages[1];
        for buffer in Buffers::new().iter() {
            assert_eq!(
                buffers_page.matches(&format!("\n| `{}` |", buffer.name)).count(),
                1,
                "{}",
                buffer.name
            );
        }
        let (_, refused) = &pages[2];
        let names = keywords::refused_names().into_iter().flat_map(|(_, names)| names);
        assert!(names.into_iter().all(|name| refused.contains(&format!("`{name}`"))));
    }
}
