// SPDX-License-Identifier: Apache-2.0
//! Parts of the rules' source, which outlive generations: the compiled form of each is kept with it.

use bartizan_config::policy::SectionContent;
use core::any::Any;
use core::fmt;
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// JSON and, in a class's part, the section of its policy, with the reader's compiled form. The builder of
/// a generation passes an unchanged part by the same address, so that it need not be compiled again; a part
/// that is dropped drops its compiled form.
#[derive(Default)]
pub struct RulePart {
    json: Value,
    section: Arc<SectionContent>,
    made: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl RulePart {
    /// A part without a section and without a compiled form.
    #[must_use]
    pub fn new(json: Value) -> Self {
        RulePart::with_section(json, Arc::default())
    }

    /// The part of a class: `json` has all but the section.
    #[must_use]
    pub const fn with_section(json: Value, section: Arc<SectionContent>) -> Self {
        RulePart { json, section, made: OnceLock::new() }
    }

    /// The JSON, without the section.
    #[must_use]
    pub const fn json(&self) -> &Value {
        &self.json
    }

    /// The function's section of the policy.
    #[must_use]
    pub const fn section(&self) -> &Arc<SectionContent> {
        &self.section
    }

    /// The compiled form, if it has this type.
    #[must_use]
    pub fn made<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::clone(self.made.get()?).downcast().ok()
    }

    /// Stores the compiled form, unless there is one. It must depend on this part alone, or record its other
    /// inputs.
    pub fn keep<T: Any + Send + Sync>(&self, made: &Arc<T>) {
        let _ = self.made.set(Arc::clone(made) as Arc<dyn Any + Send + Sync>);
    }

    /// Splits JSON into its parts: the part that classes share, and each of `classes`, whose `rules` are its
    /// section.
    #[must_use]
    pub fn split(mut whole: Value) -> (Self, Vec<Arc<Self>>) {
        let classes = whole.as_object_mut().and_then(|whole| whole.remove("classes"));
        let classes = match classes {
            Some(Value::Array(classes)) => classes,
            _ => Vec::new(),
        };
        (RulePart::new(whole), classes.into_iter().map(|class| Arc::new(RulePart::of_class(class))).collect())
    }

    fn of_class(mut class: Value) -> Self {
        let section = class.as_object_mut().and_then(|class| class.remove("rules")).unwrap_or_default();
        RulePart::with_section(class, Arc::new(SectionContent::new(section)))
    }
}

impl fmt::Debug for RulePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RulePart")
            .field("json", &self.json)
            .field("section", &self.section)
            .finish_non_exhaustive()
    }
}
