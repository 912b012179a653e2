// SPDX-License-Identifier: Apache-2.0
//! Successive policy files in parts: parts unchanged from the previous file are neither read nor checked
//! again.
//!
//! Parts are compared by address: the caller passes unchanged parts by the same `Arc`. So a change of one of
//! thousands of policies costs the reading of one.

use super::shares::ChangedPolicies;
use super::{
    ITEMS_MAX, PolicyDefinition, PolicyError, PolicyFile, PolicyFileBuilder, finished, read, resolve, shares,
};
use serde_json::Value as Json;
use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The text of a policy, as under `policies`, with the policy that was read from it.
#[derive(Debug, Default)]
pub struct PolicyText {
    json: Json,
    /// The policy, with a hash of the function names that it was read with.
    read: OnceLock<(u64, Arc<PolicyDefinition>)>,
}

impl PolicyText {
    /// A policy in JSON.
    #[must_use]
    pub const fn new(json: Json) -> Self {
        PolicyText { json, read: OnceLock::new() }
    }

    /// The JSON.
    #[must_use]
    pub const fn json(&self) -> &Json {
        &self.json
    }
}

impl PartialEq for PolicyText {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

/// The parts of a policy file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    /// The file without its policies.
    pub common: Arc<Json>,
    /// The policies, in order.
    pub policies: Vec<Arc<PolicyText>>,
}

impl Parts {
    /// The whole file as JSON.
    #[must_use]
    pub fn whole(&self) -> Json {
        let mut whole = Json::clone(&self.common);
        if let Some(file) = whole.as_object_mut() {
            let policies = self.policies.iter().map(|policy| policy.json.clone()).collect();
            file.insert("policies".to_owned(), Json::Array(policies));
        }
        whole
    }
}

/// As [`super::from_node`], from parts. `before`: the previous file, read for the same functions.
///
/// # Errors
/// As [`super::from_node`]; problems have paths only.
pub fn from_parts(
    name: &str,
    parts: &Parts,
    functions: &[&str],
    before: Option<&PolicyFile>,
) -> Result<PolicyFile, PolicyError> {
    let mut builder = PolicyFileBuilder { problems: Vec::new(), unread: Vec::new(), functions, before };
    let same = |before: &&PolicyFile| {
        before.common_text.as_ref().is_some_and(|text| Arc::ptr_eq(text, &parts.common))
    };
    let file = match before.filter(same) {
        Some(before) => builder.file_behind(name, parts, before),
        None => {
            let root = read::from_json(&parts.common);
            let file = builder.file_with(name, root, |builder, _| builder.texts(&parts.policies));
            file.map(|file| PolicyFile { common_text: Some(Arc::clone(&parts.common)), ..file })
        }
    };
    finished(name, file, builder.problems)
}

impl PolicyFileBuilder<'_> {
    /// A file that differs only in policies from a valid previous one.
    fn file_behind(&mut self, name: &str, parts: &Parts, before: &PolicyFile) -> Option<PolicyFile> {
        let policies = self.texts(&parts.policies)?;
        let mut file = PolicyFile {
            name: name.to_owned(),
            common: Arc::clone(&before.common),
            policies,
            taken: Arc::clone(&before.taken),
            common_text: before.common_text.clone(),
            root: Arc::clone(&before.root),
        };
        let (was, is) = bartizan_base::between(&before.policies, &file.policies, Arc::ptr_eq);
        let names = |policies: &[Arc<PolicyDefinition>], range: Range<usize>| {
            policies.get(range).into_iter().flatten().map(|p| p.name.clone()).collect::<HashSet<_>>()
        };
        // The names stay distinct if the same names replace others.
        let all_new = is.len();
        let new = names(&file.policies, is.clone());
        if new.len() != all_new || names(&before.policies, was.clone()) != new {
            resolve::policy_names(self, &file);
        }
        resolve::policies(self, &file, is.clone());
        let changed = ChangedPolicies {
            gone: before.policies.get(was).unwrap_or_default(),
            new: file.policies.get(is).unwrap_or_default(),
        };
        file.taken = shares::taken_behind(self, before, changed, &file);
        Some(file)
    }

    fn texts(&mut self, texts: &[Arc<PolicyText>]) -> Option<Vec<Arc<PolicyDefinition>>> {
        if texts.len() > ITEMS_MAX {
            let message =
                format!("more than {ITEMS_MAX} items are not supported; split the file among instances");
            self.problem(Default::default(), "policies", message);
            return None;
        }
        let functions = BuildHasherDefault::<DefaultHasher>::default().hash_one(self.functions);
        let read: Vec<_> =
            texts.iter().enumerate().map(|(at, text)| self.text(functions, at, text)).collect();
        read.into_iter().collect()
    }

    fn text(&mut self, functions: u64, index: usize, text: &PolicyText) -> Option<Arc<PolicyDefinition>> {
        if let Some((_, known)) = text.read.get().filter(|(with, _)| *with == functions) {
            return Some(Arc::clone(known));
        }
        let problems = self.problems.len();
        let policy = self.policy(&read::from_json(&text.json), &format!("policies/{index}"))?;
        let policy = Arc::new(policy);
        if self.problems.len() == problems {
            let _ = text.read.set((functions, Arc::clone(&policy)));
        }
        Some(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::from_node;
    use serde_json::json;

    fn policy(name: &str, tenant: &str) -> Arc<PolicyText> {
        Arc::new(PolicyText::new(json!({"name": name, "tenant": [tenant], "chain": ["pfw"]})))
    }

    fn said(parts: &Parts, before: Option<&PolicyFile>) -> Result<PolicyFile, String> {
        from_parts("x", parts, &["pfw"], before).map_err(|error| error.to_string())
    }

    #[test]
    fn parts_are_read_as_the_whole_file_is_and_only_once() {
        let common = json!({"tenants": [{"name": "a", "select": {"vni": 1}}], "default": {"action": "drop"}});
        let mut parts = Parts {
            common: Arc::new(common),
            policies: ["p", "q", "r"].map(|name| policy(name, "a")).to_vec(),
        };
        let first = said(&parts, None).unwrap();
        let mut before = first.clone();
        let changes: [(usize, &str, &str); 6] =
            [(1, "q", "a"), (1, "new", "a"), (0, "r", "a"), (2, "r", "b"), (2, "r", "any"), (1, "", "a")];
        for (at, name, tenant) in changes {
            let kept = parts.policies[at].clone();
            parts.policies[at] = policy(name, tenant);
            let whole = from_node("x", read::from_json(&parts.whole()), &["pfw"]);
            match (said(&parts, Some(&before)), whole) {
                (Ok(file), Ok(whole)) => {
                    assert_eq!(file.policies, whole.policies);
                    assert!(Arc::ptr_eq(&file.common, &first.common));
                    let same = file.policies.iter().zip(&before.policies);
                    assert_eq!(same.filter(|(a, b)| Arc::ptr_eq(a, b)).count(), 2);
                    before = file;
                }
                (Err(error), Err(whole)) => {
                    assert_eq!(error, whole.to_string());
                    parts.policies[at] = kept;
                }
                (file, whole) => panic!("{file:?}\n{whole:?}"),
            }
        }
        // Also without some of them; other functions make other policies.
        parts.policies.remove(0);
        assert_eq!(said(&parts, Some(&before)).unwrap().policies, before.policies[1..]);
        assert!(from_parts("x", &parts, &["sfw"], None).is_err());
        // A changed common part is read.
        parts.common = Arc::new(json!({"default": {"action": "drop"}}));
        assert!(said(&parts, Some(&before)).unwrap_err().contains("there is no tenant `a`"));
    }
}
