// SPDX-License-Identifier: Apache-2.0
//! The commands in the pages are commands of the program: its own parser of arguments reads each.

use crate::Cli;
use clap::CommandFactory as _;
use clap::error::ErrorKind;
use std::path::{Path, PathBuf};

/// All pages: the book, and those of the repository's root.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    for page in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SPECIFICATION.md"] {
        found.push(root.join(page));
    }
    found
}

/// The commands of a page with their lines: those in blocks of code, and those between back quotes.
fn commands(page: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let mut lines = (1..).zip(page.lines());
    let mut is_code = false;
    while let Some((number, line)) = lines.next() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            continue;
        }
        let mut whole = line.to_owned();
        while whole.ends_with('\\') {
            whole.pop();
            whole.push_str(lines.next().map_or("", |(_, line)| line));
        }
        let pieces: Vec<&str> = if is_code || line.starts_with("    ") {
            vec![whole.as_str()]
        } else {
            whole.split('`').skip(1).step_by(2).collect()
        };
        for part in pieces.iter().flat_map(|piece| piece.split(['|', '<', '>', '&', ';', '(', ')'])) {
            let words = words(part);
            if words.first().is_some_and(|word| is_program(word)) {
                found.push((number, words));
            }
        }
    }
    found
}

fn is_program(word: &str) -> bool {
    matches!(word, "bartizan" | "target/release/bartizan" | "target/debug/bartizan")
}

/// The words of a command, up to a comment.
fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut quoted = None;
    let mut word: Option<String> = None;
    for character in text.chars() {
        match (quoted, character) {
            (Some(quote), _) if character == quote => quoted = None,
            (None, '\'' | '"') => {
                quoted = Some(character);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ') => found.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    found.extend(word);
    found.retain(|word| word != "..." && word != "sudo");
    found
}

/// The parts of a command that the program does not have. Parts left out (`bartizan run` in a sentence) and
/// placeholders (`FILE`) are no fault.
fn fault(words: &[String]) -> Option<String> {
    // Suricata's own command line has another parser.
    if words.get(1).is_none_or(|word| word.starts_with('-')) {
        return None;
    }
    let error = match Cli::command().try_get_matches_from(words) {
        Ok(matches) => return unknown_to_ctl(&matches),
        Err(error) => error,
    };
    let named = [
        ErrorKind::UnknownArgument,
        ErrorKind::InvalidSubcommand,
        ErrorKind::TooManyValues,
        ErrorKind::WrongNumberOfValues,
        ErrorKind::NoEquals,
    ];
    named.contains(&error.kind()).then(|| error.to_string().lines().next().unwrap_or_default().to_owned())
}

/// The subcommand of `ctl` that neither a controller nor a running program has, if it is one: the parser
/// accepts any.
fn unknown_to_ctl(matches: &clap::ArgMatches) -> Option<String> {
    let (name, below) = matches.subcommand().filter(|(name, _)| *name == "ctl")?.1.subcommand()?;
    let own = Cli::command().find_subcommand("ctl")?.get_subcommands().any(|known| known.get_name() == name);
    let mut arguments = below.try_get_many::<String>("ARGUMENT").ok().flatten().into_iter().flatten();
    let verb = arguments.next().filter(|_| name == "function");
    let verb_is_known =
        verb.is_none_or(|verb| bartizan_api::control::command(&format!("function-{verb}")).is_some());
    (!own || !verb_is_known).then(|| format!("there is no command `{name}` of `ctl`"))
}

#[test]
fn commands_of_the_pages_exist() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for path in pages() {
        let text = std::fs::read_to_string(&path).unwrap();
        for (line, words) in commands(&text) {
            count += 1;
            if let Some(fault) = fault(&words) {
                wrong.push(format!("{}:{line}: `{}`: {fault}", path.display(), words.join(" ")));
            }
        }
    }
    assert!(count > 100, "{count} commands found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn faults_are_found_and_what_is_left_out_is_none() {
    let page = "`bartizan run` and `bartizan explain flow --live tcp 10.0.0.1:1 10.0.0.2:2` and `bartizan explode`\n\n    \
        bartizan inspect --rules my.rules \\\n      --no-such x.pcap | jq . # bartizan none\n```\nbartizan ctl nonsense list\nbartizan ctl function explode ids\nbartizan ctl function stop ids\n```\n";
    let found: Vec<_> =
        commands(page).into_iter().map(|(line, words)| (line, fault(&words).is_some())).collect();
    assert_eq!(found, [(1, false), (1, false), (1, true), (3, true), (6, true), (7, true), (8, false)]);
}
