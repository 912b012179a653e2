// SPDX-License-Identifier: Apache-2.0
//! Parts of what rules are made from, which outlive generations: what has been made of one is kept with it.

use core::any::Any;
use core::fmt;
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// JSON, and what its reader has made of it. Who builds a generation gives a part that is as it was the same
/// by address, so what was made of it once need not be made again; what goes takes along what was made of it.
#[derive(Default)]
pub struct RulePart {
    json: Value,
    made: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl RulePart {
    /// Of JSON.
    #[must_use]
    pub const fn new(json: Value) -> Self {
        RulePart { json, made: OnceLock::new() }
    }

    /// What it says.
    #[must_use]
    pub const fn json(&self) -> &Value {
        &self.json
    }

    /// What was made of it, if it is of this type.
    #[must_use]
    pub fn made<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::clone(self.made.get()?).downcast().ok()
    }

    /// Keeps what was made of it, unless something is kept already. That depends on nothing else, or says on
    /// what.
    pub fn keep<T: Any + Send + Sync>(&self, made: &Arc<T>) {
        let _ = self.made.set(Arc::clone(made) as Arc<dyn Any + Send + Sync>);
    }

    /// The parts of a whole: what classes have in common, and each of `classes`.
    #[must_use]
    pub fn split(mut whole: Value) -> (Self, Vec<Arc<Self>>) {
        let classes = whole.as_object_mut().and_then(|whole| whole.remove("classes"));
        let classes = match classes {
            Some(Value::Array(classes)) => classes,
            _ => Vec::new(),
        };
        (RulePart::new(whole), classes.into_iter().map(|class| Arc::new(RulePart::new(class))).collect())
    }
}

impl fmt::Debug for RulePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RulePart").field("json", &self.json).finish_non_exhaustive()
    }
}
