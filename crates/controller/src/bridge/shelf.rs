// SPDX-License-Identifier: Apache-2.0
//! Parts that were made, by document and generation. What a change did not touch is not made again, nor hashed, for no device and no
//! generation: they share it.

use crate::device::{ALL, DeviceSpec};
use crate::model::Model;
use crate::numbers;
use crate::parts::{self, Part};
use crate::render;
use crate::southbound::Wanted;
use crate::store::Document;
use bartizan_api::southbound::{Manifest, Object, ObjectKey};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Parts of removed documents that may lie about, in any case.
const SPARE: usize = 1_024;

/// The parts of one kind of document, by its name: the generation that wrote it, and the part.
type Kept = HashMap<String, (u64, Arc<Part>)>;

/// The parts.
#[derive(Debug, Default)]
pub struct Shelf {
    kinds: BTreeMap<&'static str, Kept>,
    /// Parts that were made: those that did not lie here.
    pub made: u64,
}

/// What is collected for a device.
#[derive(Default)]
struct Collected {
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    manifest: Manifest,
}

impl Collected {
    fn add(&mut self, part: &Part) {
        self.objects.insert(part.key.clone(), part.object.clone());
        self.manifest.0.insert(part.key.clone(), part.hash);
    }
}

impl Shelf {
    /// What a device is sent of a generation, under a number. `numbered`: what stands, which has the numbers; the older generations in
    /// `model` have none.
    pub fn wanted(&mut self, model: &Model, numbered: &Model, spec: &DeviceSpec, number: u64) -> Wanted {
        let mut all = Collected::default();
        let mut libraries = BTreeSet::new();
        if spec.tenants.iter().any(|tenant| tenant == ALL) {
            for tenant in model.all(render::TENANTS) {
                self.tenant(model, numbered, tenant, &mut all, &mut libraries);
            }
        } else {
            for tenant in spec.tenants.iter().filter_map(|name| model.get(render::TENANTS, name)) {
                self.tenant(model, numbered, tenant, &mut all, &mut libraries);
            }
        }
        self.shared(model, numbered, &libraries, &mut all);
        self.purge(numbered);
        Wanted::known(number, all.objects, all.manifest)
    }

    fn tenant(
        &mut self,
        model: &Model,
        numbered: &Model,
        tenant: &Document,
        all: &mut Collected,
        libraries: &mut BTreeSet<String>,
    ) {
        // Every tenant has one from when it was made.
        let Some(number) = numbers::tenant(numbered, &tenant.id) else { return };
        let prefix = format!("{}/", tenant.id);
        all.add(&self.part(render::TENANTS, tenant, || parts::tenant(number, tenant)));
        let mut groups: Option<BTreeMap<String, Value>> = None;
        for group in model.list(render::GROUPS, &prefix, None) {
            all.add(&self.part(render::GROUPS, group, || {
                let groups = groups.get_or_insert_with(|| render::groups(model, &tenant.id));
                parts::group(number, &tenant.id, group, groups)
            }));
        }
        for policy in model.list(render::POLICIES, &prefix, None) {
            let part = self.part(render::POLICIES, policy, || {
                let groups = groups.get_or_insert_with(|| render::groups(model, &tenant.id));
                parts::policy(number, &tenant.id, policy, groups)
            });
            all.add(&part);
            libraries.extend(part.needs.iter().cloned());
        }
    }

    /// What belongs to no tenant: the settings, and the libraries that its policies name, with their files.
    fn shared(&mut self, model: &Model, numbered: &Model, libraries: &BTreeSet<String>, all: &mut Collected) {
        match model.get(render::SETTINGS, render::DEFAULT) {
            Some(document) => all.add(&self.part(render::SETTINGS, document, || parts::default(model))),
            None => all.add(&parts::default(model)),
        }
        if let Some(document) = model.get(render::SETTINGS, render::DNS) {
            all.add(&self.part(render::SETTINGS, document, || parts::dns(document)));
        }
        for library in libraries.iter().filter_map(|name| model.get(render::LIBRARIES, name)) {
            let part = self.part(render::LIBRARIES, library, || parts::library(numbered, library));
            all.add(&part);
            for hash in &part.needs {
                let number = numbers::rule_file(numbered, hash);
                let text = model.get(render::RULE_TEXTS, hash);
                if let (Some(number), Some(text)) = (number, text) {
                    all.add(&self.part(render::RULE_TEXTS, text, || parts::rule_file(number, text)));
                }
            }
        }
    }

    fn part(&mut self, kind: &'static str, document: &Document, make: impl FnOnce() -> Part) -> Arc<Part> {
        let kept = self.kinds.entry(kind).or_default();
        let known = kept.get(&document.id);
        if let Some((_, part)) = known.filter(|(generation, _)| *generation == document.generation) {
            return part.clone();
        }
        self.made += 1;
        let part = Arc::new(make());
        // One of an older generation does not push out what stands.
        if known.is_none_or(|(generation, _)| *generation < document.generation) {
            kept.insert(document.id.clone(), (document.generation, part.clone()));
        }
        part
    }

    /// Lets go of parts whose documents are gone, once they are many.
    fn purge(&mut self, model: &Model) {
        for (kind, kept) in &mut self.kinds {
            if kept.len() > model.count(kind) + SPARE {
                kept.retain(|id, _| model.get(kind, id).is_some());
            }
        }
    }
}
