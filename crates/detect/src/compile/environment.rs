// SPDX-License-Identifier: Apache-2.0
//! What compiling needs from outside of the rule.

use crate::model::buffers::Buffers;
use crate::state::Names;
use crate::state::shared::Shared;
use bartizan_base::Settings;
use std::cell::Cell;
use std::sync::Arc;

/// What building needs from outside of the rule.
pub struct Environment<'e> {
    /// Buffers by name.
    pub buffers: &'e Buffers,
    /// Settings of the engine.
    pub settings: &'e Settings,
    shared: &'e Arc<Shared>,
    rule_folder: &'e std::path::Path,
    /// Whether something was asked for that may be another thing at the next load.
    outside: Cell<bool>,
}

impl<'e> Environment<'e> {
    /// What building needs. `shared`: names, datasets, thresholds, what outlives a generation; `rule_folder`:
    /// to which relative file names in rules are resolved after the working folder (the rule file's own).
    #[must_use]
    pub const fn new(
        buffers: &'e Buffers,
        settings: &'e Settings,
        shared: &'e Arc<Shared>,
        rule_folder: &'e std::path::Path,
    ) -> Self {
        Environment { buffers, settings, shared, rule_folder, outside: Cell::new(false) }
    }

    /// Names of variables: they stay what they are.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.shared.names
    }

    /// Some rule tags hosts.
    pub fn note_host_tags(&self) {
        self.shared.note_host_tags();
    }

    /// What is read from files, anew for each generation: datasets, reputations, places. A rule that asked is
    /// compiled anew as well.
    #[must_use]
    pub fn outside(&self) -> &'e Shared {
        self.outside.set(true);
        self.shared
    }

    /// The folder of the rule file, to read a file of it: as [`Environment::outside`].
    #[must_use]
    pub fn rule_folder(&self) -> &'e std::path::Path {
        self.outside.set(true);
        self.rule_folder
    }

    /// Whether a rule asked for something that may be another thing at the next load, since the last
    /// question.
    pub(crate) fn take_outside(&self) -> bool {
        self.outside.replace(false)
    }
}
