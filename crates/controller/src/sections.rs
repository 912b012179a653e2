// SPDX-License-Identifier: Apache-2.0
//! The functions' own checks of their policy sections, before a device sees these. The program provides them,
//! since the controller has no functions.

use bartizan_config::policy::{ConfigProblem, PolicyDefinition, PolicyFile};
use std::fmt;
use std::sync::Arc;

/// The remarks of a function on its section of a policy, with places within the section.
#[derive(Clone, Debug, Default)]
pub struct SectionFindings {
    /// Errors.
    pub problems: Vec<ConfigProblem>,
    /// Warnings: sections that are valid and have no effect.
    pub warnings: Vec<ConfigProblem>,
}

/// Looks at the section of a function in a policy.
pub type SectionCheck<'f> = Box<dyn Fn(&PolicyDefinition, &str) -> SectionFindings + 'f>;
/// Asks about the sections of a file, which has the groups that they may name: what all of them need is made
/// once.
pub type Check = dyn for<'f> Fn(&'f PolicyFile) -> SectionCheck<'f> + Send + Sync;

/// The checks, see the module. By default they find no problems.
#[derive(Clone, Default)]
pub struct Sections(Option<Arc<Check>>);

impl Sections {
    /// Checks made by `check`.
    pub fn new(check: impl for<'f> Fn(&'f PolicyFile) -> SectionCheck<'f> + Send + Sync + 'static) -> Self {
        Sections(Some(Arc::new(check)))
    }

    /// The check for the sections of a file.
    #[must_use]
    pub fn of<'f>(&self, file: &'f PolicyFile) -> SectionCheck<'f> {
        match &self.0 {
            Some(check) => check(file),
            None => Box::new(|_, _| SectionFindings::default()),
        }
    }
}

impl fmt::Debug for Sections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sections").field(&self.0.is_some()).finish()
    }
}
