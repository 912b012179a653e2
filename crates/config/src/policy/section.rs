// SPDX-License-Identifier: Apache-2.0
//! A function's section of a policy, and the one place that reads a section into its type.
//!
//! A section is read in its JSON form, in which the southbound protocol carries it, so that a file and a
//! controller mean the same. The value stays with the section: the checks of a file, the controller and the
//! function take the same one, and an unchanged policy's section is not read again for the next generation.

use super::read::{self, ConfigProblem};
use crate::yaml::Position;
use core::any::Any;
use core::fmt;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use std::sync::{Arc, OnceLock};

/// The type of a function's section, for code that finds the section by its type.
pub trait SectionType: DeserializeOwned + Send + Sync + 'static {
    /// The function, which is the key of the section.
    const FUNCTION: &'static str;
}

/// The value of a section, or the problems that were found in it, with paths within the section.
pub type SectionValue<T> = Result<Arc<T>, Arc<[ConfigProblem]>>;

/// The content of a section: its JSON, and the value that it was read into.
#[derive(Default)]
pub struct SectionContent {
    json: Json,
    /// A [`SectionValue`] of the type that it was first read into.
    value: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl SectionContent {
    /// A content that has not been read.
    #[must_use]
    pub const fn new(json: Json) -> Self {
        SectionContent { json, value: OnceLock::new() }
    }

    /// The JSON.
    #[must_use]
    pub const fn json(&self) -> &Json {
        &self.json
    }

    /// The content with some keys set to other values.
    #[must_use]
    pub fn with(&self, keys: &Map<String, Json>) -> Self {
        let mut changed = self.json.as_object().cloned().unwrap_or_default();
        changed.extend(keys.iter().map(|(key, value)| (key.clone(), value.clone())));
        SectionContent::new(Json::Object(changed))
    }

    /// The value of the section. All calls for one type get the same value; a section has one type.
    ///
    /// # Errors
    /// Every problem of the section.
    pub fn value<T: DeserializeOwned + Send + Sync + 'static>(&self) -> SectionValue<T> {
        let read = || read::read::<T>(&read::from_json(&self.json)).map(Arc::new).map_err(Arc::from);
        let kept = self.value.get_or_init(|| Box::new(read()));
        // Two functions of one name, as tests have them, may give the section two types.
        kept.downcast_ref().map_or_else(read, SectionValue::<T>::clone)
    }
}

impl PartialEq for SectionContent {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl fmt::Debug for SectionContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.json.fmt(f)
    }
}

/// A function's section of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionSection {
    /// The function.
    pub function: String,
    /// Position of the section's key.
    pub position: Position,
    /// Content of the section.
    pub content: Arc<SectionContent>,
}

/// The value of the section of a type, if there is such a section.
pub fn section_of<T: SectionType>(sections: &[FunctionSection]) -> Option<SectionValue<T>> {
    let section = sections.iter().find(|section| section.function == T::FUNCTION)?;
    Some(section.content.value())
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicUsize, Ordering};
    use serde::{Deserialize, Deserializer};
    use serde_json::json;

    static READS: AtomicUsize = AtomicUsize::new(0);

    /// A section that counts how often one is read.
    #[derive(Debug, PartialEq)]
    struct CountedSection(u64);

    impl<'de> Deserialize<'de> for CountedSection {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            READS.fetch_add(1, Ordering::Relaxed);
            u64::deserialize(deserializer).map(CountedSection)
        }
    }

    #[test]
    fn a_section_is_read_once_also_if_it_is_wrong() {
        let reads = || READS.swap(0, Ordering::Relaxed);
        let content = Arc::new(SectionContent::new(json!(7)));
        let section = FunctionSection {
            function: "counted".to_owned(),
            position: Position::default(),
            content: Arc::clone(&content),
        };
        let first = content.value::<CountedSection>().unwrap();
        assert_eq!(*first, CountedSection(7));
        assert!(Arc::ptr_eq(&first, &section.clone().content.value().unwrap()));
        assert_eq!(reads(), 1);
        let wrong = SectionContent::new(json!("seven"));
        for _ in 0..2 {
            let problems = wrong.value::<CountedSection>().unwrap_err();
            assert!(problems[0].message.contains("expected a whole number"), "{problems:?}");
        }
        assert_eq!(reads(), 1);
        assert_eq!(content.value::<u8>(), Ok(Arc::new(7)), "another type is read as well");
    }

    #[test]
    fn keys_that_an_order_sets_replace_those_of_the_section() {
        let keys = json!({"mode": "detect"}).as_object().cloned().unwrap();
        let section = SectionContent::new(json!({"mode": "prevent", "level": "none"}));
        assert_eq!(section.with(&keys).json(), &json!({"mode": "detect", "level": "none"}));
        assert_eq!(SectionContent::default().with(&keys).json(), &json!({"mode": "detect"}));
    }
}
