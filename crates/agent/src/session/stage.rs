// SPDX-License-Identifier: Apache-2.0
//! The stage of the next generation: the running generation's objects with the controller's changes. It
//! outlives a connection, so that only missing objects are sent again.

use bartizan_api::southbound::{
    GenerationRefusalCode, Hash, Manifest, Object, ObjectKey, RuleMessage, RuleOp, RuleParts, limits,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Objects of a generation, by key.
pub(super) type Objects = BTreeMap<ObjectKey, Arc<Object>>;

/// A complete generation of a controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerGeneration {
    /// The generation's number; 0 if there was none yet.
    pub generation: u64,
    /// The objects of the generation.
    pub objects: BTreeMap<ObjectKey, Arc<Object>>,
}

impl ControllerGeneration {
    /// The manifest of the objects.
    #[must_use]
    pub fn manifest(&self) -> Manifest {
        Manifest::of(self.objects.values().map(Arc::as_ref))
    }
}

/// The staged objects.
#[derive(Debug)]
pub(super) struct Stage {
    objects: Objects,
    manifest: Manifest,
    bytes: usize,
    parts: RuleParts,
    /// Why the next commit is refused, whatever its manifest.
    spoilt: Option<GenerationRefusalCode>,
}

impl Stage {
    /// A stage with the objects of a generation.
    pub(super) fn of(held: &ControllerGeneration) -> Self {
        Stage {
            objects: held.objects.clone(),
            manifest: held.manifest(),
            bytes: held.objects.values().map(|object| object.bytes()).sum(),
            parts: RuleParts::default(),
            spoilt: None,
        }
    }

    /// Puts an object, replacing one with the same key.
    pub(super) fn put(&mut self, object: Object) {
        let key = object.key();
        let gone = self.objects.get(&key).map_or(0, |object| object.bytes());
        let bytes = self.bytes - gone + object.bytes();
        let full = self.objects.len() >= limits::OBJECTS && !self.objects.contains_key(&key);
        if full || bytes > limits::OBJECT_BYTES {
            self.spoilt = Some(GenerationRefusalCode::Limit);
            return;
        }
        self.bytes = bytes;
        self.manifest.0.insert(key.clone(), object.hash());
        self.objects.insert(key, Arc::new(object));
    }

    pub(super) fn delete(&mut self, key: &ObjectKey) {
        self.manifest.0.remove(key);
        self.bytes -= self.objects.remove(key).map_or(0, |object| object.bytes());
    }

    /// Takes a part of a rule group. An invalid part invalidates the generation, not the session.
    pub(super) fn rules(&mut self, message: RuleMessage) {
        if message.op == RuleOp::Delete {
            self.delete(&ObjectKey::group(message.group));
            return;
        }
        match self.parts.take(message) {
            Ok(Some(group)) => self.put(group),
            Ok(None) => {}
            Err(_) => self.spoilt = Some(GenerationRefusalCode::Manifest),
        }
    }

    /// Begins a connection: incomplete groups are discarded.
    pub(super) fn reconnected(&mut self) {
        self.parts.clear();
    }

    /// The staged objects, if they match the manifest.
    pub(super) fn commit(&mut self, manifest: Hash) -> Result<Objects, GenerationRefusalCode> {
        if let Some(code) = self.spoilt {
            return Err(code);
        }
        if self.parts.is_open() || self.manifest.hash() != manifest {
            return Err(GenerationRefusalCode::Manifest);
        }
        Ok(self.objects.clone())
    }

    /// At most `most` entries of the manifest after a key, and whether there are more.
    pub(super) fn page(&self, behind: Option<&ObjectKey>, most: usize) -> (Manifest, bool) {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let mut entries = self.manifest.0.range::<ObjectKey, _>((from, Bound::Unbounded));
        let page = entries.by_ref().take(most).map(|(key, hash)| (key.clone(), *hash)).collect();
        (Manifest(page), entries.next().is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_api::southbound::{GroupRules, Policy, RuleGroup, RuleType};

    fn policy(name: &str, text: &str) -> Object {
        Object::Policy(Policy { name: name.into(), tenant: 1, text: text.into() })
    }

    #[test]
    fn only_what_the_manifest_says_is_committed() {
        let mut stage = Stage::of(&ControllerGeneration::default());
        stage.put(policy("a", "x"));
        stage.put(policy("b", "y"));
        let manifest = Manifest::of(&[policy("a", "x"), policy("b", "y")]);
        assert_eq!(stage.commit(manifest.hash()).unwrap().len(), 2);
        assert_eq!(stage.commit(Manifest::default().hash()), Err(GenerationRefusalCode::Manifest));
        stage.delete(&policy("b", "").key());
        assert_eq!(stage.commit(manifest.hash()), Err(GenerationRefusalCode::Manifest));
        assert_eq!(stage.bytes, 2);
    }

    #[test]
    fn groups_come_in_parts_and_in_order() {
        let rules =
            GroupRules::Raw((0..10).map(|n| format!("alert tcp any any -> any any (sid:{n};)")).collect());
        let group = RuleGroup { id: 7, tenant: 1, rule_type: RuleType::Ids, rules };
        let parts = RuleParts::split(&group, 1, 1, RuleOp::Add, 200);
        assert!(parts.len() > 3);
        let object = Object::Group(group);
        let manifest = Manifest::of([&object]).hash();
        let mut stage = Stage::of(&ControllerGeneration::default());
        parts.iter().for_each(|part| stage.rules(part.clone()));
        assert_eq!(*stage.commit(manifest).unwrap()[&object.key()], object);
        let mut stage = Stage::of(&ControllerGeneration::default());
        parts.iter().rev().for_each(|part| stage.rules(part.clone()));
        assert_eq!(stage.commit(manifest), Err(GenerationRefusalCode::Manifest));
        let mut stage = Stage::of(&ControllerGeneration::default());
        stage.rules(parts[0].clone());
        assert_eq!(stage.commit(Manifest::default().hash()), Err(GenerationRefusalCode::Manifest));
    }

    #[test]
    fn a_device_holds_so_much_and_no_more() {
        let mut stage = Stage::of(&ControllerGeneration::default());
        stage.bytes = limits::OBJECT_BYTES;
        stage.put(policy("a", "x"));
        assert_eq!(stage.commit(Manifest::default().hash()), Err(GenerationRefusalCode::Limit));
    }

    #[test]
    fn inventories_come_in_pages() {
        let mut stage = Stage::of(&ControllerGeneration::default());
        (0..5).for_each(|n| stage.put(policy(&n.to_string(), "x")));
        let (first, more) = stage.page(None, 3);
        assert_eq!((first.0.len(), more), (3, true));
        let (second, more) = stage.page(first.0.keys().last(), 3);
        assert_eq!((second.0.len(), more), (2, false));
    }
}
