// SPDX-License-Identifier: Apache-2.0
//! Inputs of compilation from outside of the rule: settings, buffers, shared state, folders.

use crate::model::buffers::Buffers;
use crate::state::Names;
use crate::state::shared::Shared;
use bartizan_base::SettingsMap;
use std::cell::Cell;
use std::sync::Arc;

/// Inputs of a signature's construction from outside of the rule.
pub struct Environment<'e> {
    /// Buffers by name.
    pub buffers: &'e Buffers,
    /// Settings of the engine.
    pub settings: &'e SettingsMap,
    shared: &'e Arc<Shared>,
    rule_folder: &'e std::path::Path,
    /// A keyword has used an input that may differ at the next load.
    outside: Cell<bool>,
}

impl<'e> Environment<'e> {
    /// Collects the inputs. `shared`: names, datasets, thresholds and other state that outlives a generation;
    /// `rule_folder`: the rule file's own folder, where relative file names in rules are resolved after the
    /// working folder.
    #[must_use]
    pub const fn new(
        buffers: &'e Buffers,
        settings: &'e SettingsMap,
        shared: &'e Arc<Shared>,
        rule_folder: &'e std::path::Path,
    ) -> Self {
        Environment { buffers, settings, shared, rule_folder, outside: Cell::new(false) }
    }

    /// Names of variables, which are the same at every load.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.shared.names
    }

    /// Records that some rule tags hosts.
    pub fn note_host_tags(&self) {
        self.shared.note_host_tags();
    }

    /// State that each generation reads again from files: datasets, reputations, locations. A rule that
    /// uses this state is compiled again at each load.
    #[must_use]
    pub fn outside(&self) -> &'e Shared {
        self.outside.set(true);
        self.shared
    }

    /// The folder of the rule file, for reading files beside it; marks the rule as [`Environment::outside`]
    /// does.
    #[must_use]
    pub fn rule_folder(&self) -> &'e std::path::Path {
        self.outside.set(true);
        self.rule_folder
    }

    /// Whether a rule has used an input that may differ at the next load since the last call; resets the
    /// mark.
    pub(crate) fn take_outside(&self) -> bool {
        self.outside.replace(false)
    }
}
