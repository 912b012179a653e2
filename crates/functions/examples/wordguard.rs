// SPDX-License-Identifier: Apache-2.0
//! `wordguard` drops flows in whose payload one of its words, or of its regular expressions, occurs: over UDP
//! in one datagram, over TCP in the reassembled stream, wherever segments begin.
//!
//! The third function of the tutorial, docs/writing-a-function.md.

use bartizan_base::{Decision, FunctionId, Reason, Verdict};
use bartizan_function::classes::{self, ByFid};
use bartizan_function::{
    Function, FunctionCounter, FunctionKind, FunctionModel, FunctionSpec, PacketContext, RuleSource,
    RulesError, WorkerState,
};
use bartizan_pattern::{Pattern, PatternSet, RegexFlags, RegexPattern, RegexSet, Scratch};
use serde::Deserialize;
use std::sync::Arc;

/// The declaration.
pub static SPEC: FunctionSpec = FunctionSpec {
    name: "wordguard",
    summary: "Drops flows in whose payload one of its words or expressions occurs.",
    model: FunctionModel::Payload,
    runs_after: &["gate", "pfw", "sfw"],
    runs_before: &["ids"],
    header_half: None,
    host_slot: None,
    counters: &[
        FunctionCounter { name: "dropped", help: "Packets dropped: a word or an expression occurs." },
        FunctionCounter { name: "undecided", help: "Packets dropped: a scan ended without an answer." },
    ],
};

/// Section `wordguard` of a policy.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// Found in either letter case.
    #[serde(default)]
    pub words: Vec<String>,
    /// Regular expressions in PCRE2's syntax. Each is matched in a window of the stream.
    #[serde(default)]
    pub expressions: Vec<String>,
}

/// Makes the function.
pub struct WordGuardKind;

impl FunctionKind for WordGuardKind {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn rules(&self, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>> {
        let (_, classes) = classes::read::<Section>(SPEC.name, source)?;
        let mut sets = Vec::new();
        for (index, made) in classes.iter().enumerate() {
            let wrong = |key: &str, message: String| {
                vec![classes::error(SPEC.name, format!("{}/{key}", classes::path(index)), &message)]
            };
            sets.push(Sets::new(&made.class.rules, source).map_err(|(key, message)| wrong(&key, message))?);
        }
        Ok(Box::new(WordGuard { id: source.id, sets, by_fid: ByFid::new(&classes) }))
    }
}

/// The pattern sets of a policy.
struct Sets {
    words: Arc<PatternSet>,
    expressions: Arc<RegexSet>,
}

impl Sets {
    fn new(section: &Section, source: &RuleSource<'_>) -> Result<Self, (String, String)> {
        let words = (0..).zip(&section.words);
        let words: Vec<_> =
            words.map(|(id, word)| Pattern { id, bytes: word.as_bytes(), nocase: true }).collect();
        let flags = RegexFlags::empty();
        let expressions = (0..).zip(&section.expressions);
        let expressions: Vec<_> =
            expressions.map(|(id, text)| RegexPattern { id, pattern: text.as_bytes(), flags }).collect();
        let expressions = source.patterns.expressions(&expressions);
        Ok(Sets {
            words: source
                .patterns
                .literals(&words)
                .map_err(|error| ("words".to_owned(), error.to_string()))?,
            expressions: expressions
                .map_err(|wrong| (format!("expressions/{}", wrong.id), wrong.error.to_string()))?,
        })
    }

    /// Whether a word occurs in `words`, or an expression matches in `text`; `None`: a scan ended without a
    /// result.
    fn occur(&self, scratch: &mut Scratch, words: &[u8], text: &[u8]) -> Option<bool> {
        let (mut word, mut expression) = (false, false);
        let mut note = |_, _| {
            word = true;
            false
        };
        self.words.scan(scratch, words, &mut note).ok()?;
        let mut note = |_| {
            expression = true;
            false
        };
        let unanswered = self.expressions.scan(scratch, text, &mut note).ok()?;
        if word || expression { Some(true) } else { (unanswered == 0).then_some(false) }
    }
}

/// The pattern sets of one generation, by class.
pub struct WordGuard {
    id: FunctionId,
    sets: Vec<Sets>,
    by_fid: ByFid,
}

/// The state of a worker: the scratch of scans, and counters.
#[derive(Default)]
struct Kept {
    scratch: Scratch,
    dropped: u64,
    undecided: u64,
}

impl Function for WordGuard {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn id(&self) -> FunctionId {
        self.id
    }

    fn worker(&self) -> WorkerState {
        let mut kept = Kept::default();
        for sets in &self.sets {
            // Without memory now, the first scan fails.
            let _ = kept.scratch.prepare_patterns(&sets.words);
            let _ = kept.scratch.prepare_regexes(&sets.expressions);
        }
        Box::new(kept)
    }

    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        let sets = self.by_fid.get(context.notes.fid).and_then(|place| self.sets.get(place));
        let (Some(sets), Some(kept)) = (sets, context.worker.downcast_mut::<Kept>()) else {
            return Decision::CONTINUE;
        };
        let (words, text) = match (context.facts.stream, context.facts.packet) {
            (Some(news), _) => (news.with_overlap(sets.words.longest()), news.bytes),
            (None, Some(packet)) if !context.facts.payload_in_stream && !context.facts.headers_only => {
                (packet.payload(), packet.payload())
            }
            _ => return Decision::CONTINUE,
        };
        match sets.occur(&mut kept.scratch, words, text) {
            Some(false) => return Decision::CONTINUE,
            Some(true) => kept.dropped += 1,
            None => kept.undecided += 1,
        }
        // Done: the rest of the flow is refused as well.
        Decision { done: true, ..Decision::refuse(Verdict::Drop, Reason::PfwRule, self.id) }
    }

    fn log(&self, worker: &WorkerState, each: &mut dyn FnMut(&'static str, u64)) {
        let Some(kept) = worker.downcast_ref::<Kept>() else { return };
        each("dropped", kept.dropped);
        each("undecided", kept.undecided);
    }
}

#[allow(dead_code)] // The tests take the function alone.
fn main() {
    println!("{}: {}", SPEC.name, SPEC.summary);
}
