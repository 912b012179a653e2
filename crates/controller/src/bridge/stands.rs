// SPDX-License-Identifier: Apache-2.0
//! Converts device reports on levels and on rules that are not evaluated to their stored form.

use super::office::cut;
use crate::device::{DeviceLevelState, LeftOutReport, LevelReport, LevelRules, RuleReport};
use crate::model::Model;
use crate::render::with_files_shown;
use bartizan_api::southbound as wire;

/// A level report, with the controller's generation instead of the device's number.
pub(super) fn level(report: &wire::LevelStands, generation_of: impl Fn(u64) -> u64) -> LevelReport {
    LevelReport {
        link: cut(report.link.clone()),
        level: cut(report.level.clone()),
        generation: generation_of(report.generation),
        state: state(report.state),
        reason: cut(report.why.clone()),
        rules: report.rules.as_ref().map(rules),
    }
}

/// Report on rules that are not evaluated, with rule files named for people.
pub(super) fn left_out_shown(model: &Model, report: &wire::LeftOut) -> LeftOutReport {
    let mut report = left_out(report);
    report.first.iter_mut().for_each(|one| one.rule = with_files_shown(model, &one.rule));
    report
}

/// Report on rules that are not evaluated.
fn left_out(report: &wire::LeftOut) -> LeftOutReport {
    let of = |one: &wire::RuleLeftOut| RuleReport { rule: cut(one.rule.clone()), why: cut(one.why.clone()) };
    LeftOutReport { count: report.count, first: report.first.iter().map(of).collect() }
}

fn state(report: wire::LevelState) -> DeviceLevelState {
    match report {
        wire::LevelState::On => DeviceLevelState::On,
        wire::LevelState::Off => DeviceLevelState::Off,
        wire::LevelState::Open => DeviceLevelState::Open,
        wire::LevelState::Closed => DeviceLevelState::Closed,
    }
}

fn rules(report: &wire::RulesAtLevel) -> LevelRules {
    let evaluates = report.evaluates.iter().take(FUNCTIONS_MAX);
    LevelRules {
        while_open: report.while_open,
        evaluates: evaluates.map(|(function, rules)| (cut(function.clone()), *rules)).collect(),
        left_out: left_out(&report.left_out),
    }
}

/// Most functions that are kept of a level.
const FUNCTIONS_MAX: usize = 32;
