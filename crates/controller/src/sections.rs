// SPDX-License-Identifier: Apache-2.0
//! What functions say of their sections of a policy before a device sees them: asked of whoever has the functions, since the controller has none.

use bartizan_config::policy::{Policy, PolicyFile, Problem};
use std::fmt;
use std::sync::Arc;

/// What is wrong with a function's section of a policy, with places within the section. The file has the groups that it may name.
pub type Check = dyn Fn(&PolicyFile, &Policy, &str) -> Vec<Problem> + Send + Sync;

/// See the module. By default nothing is wrong.
#[derive(Clone, Default)]
pub struct Sections(Option<Arc<Check>>);

impl Sections {
    /// Asks this.
    pub fn new(check: impl Fn(&PolicyFile, &Policy, &str) -> Vec<Problem> + Send + Sync + 'static) -> Self {
        Sections(Some(Arc::new(check)))
    }

    /// What is wrong with the section of a function.
    #[must_use]
    pub fn check(&self, file: &PolicyFile, policy: &Policy, function: &str) -> Vec<Problem> {
        self.0.as_ref().map(|check| check(file, policy, function)).unwrap_or_default()
    }
}

impl fmt::Debug for Sections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sections").field(&self.0.is_some()).finish()
    }
}
