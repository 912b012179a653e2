// SPDX-License-Identifier: Apache-2.0
//! Converts device reports on levels and on rules that are not evaluated to their stored form.

use super::office::cut;
use crate::device::{DeviceLevelState, LeftOutReport, LevelReport, LevelRules, RuleReport};
use crate::model::Model;
use crate::render::with_files_shown;
use bartizan_api::southbound as wire;

/// A level report, with the controller's generation instead of the device's number.
pub(super) fn level(said: &wire::LevelStands, generation_of: impl Fn(u64) -> u64) -> LevelReport {
    LevelReport {
        link: cut(said.link.clone()),
        level: cut(said.level.clone()),
        generation: generation_of(said.generation),
        state: state(said.state),
        reason: cut(said.why.clone()),
        rules: said.rules.as_ref().map(rules),
    }
}

/// Report on rules that are not evaluated, with rule files named for people.
pub(super) fn left_out_shown(model: &Model, said: &wire::LeftOut) -> LeftOutReport {
    let mut report = left_out(said);
    report.first.iter_mut().for_each(|one| one.rule = with_files_shown(model, &one.rule));
    report
}

/// Report on rules that are not evaluated.
fn left_out(said: &wire::LeftOut) -> LeftOutReport {
    let of = |one: &wire::RuleLeftOut| RuleReport { rule: cut(one.rule.clone()), why: cut(one.why.clone()) };
    LeftOutReport { count: said.count, first: said.first.iter().map(of).collect() }
}

fn state(said: wire::LevelState) -> DeviceLevelState {
    match said {
        wire::LevelState::On => DeviceLevelState::On,
        wire::LevelState::Off => DeviceLevelState::Off,
        wire::LevelState::Open => DeviceLevelState::Open,
        wire::LevelState::Closed => DeviceLevelState::Closed,
    }
}

fn rules(said: &wire::RulesAtLevel) -> LevelRules {
    let evaluates = said.evaluates.iter().take(FUNCTIONS_MAX);
    LevelRules {
        while_open: said.while_open,
        evaluates: evaluates.map(|(function, rules)| (cut(function.clone()), *rules)).collect(),
        left_out: left_out(&said.left_out),
    }
}

/// Most functions that are kept of a level.
const FUNCTIONS_MAX: usize = 32;
