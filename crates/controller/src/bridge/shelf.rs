// SPDX-License-Identifier: Apache-2.0
//! Cache of parts by document and generation. A part that a change did not touch is neither made nor hashed
//! again: all devices and generations share it.

use crate::device::DeviceSpec;
use crate::held;
use crate::model::Model;
use crate::numbers;
use crate::parts::{self, DocumentPart};
use crate::render;
use crate::southbound::Wanted;
use crate::store::Document;
use bartizan_api::southbound::{Manifest, Object, ObjectKey};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Most cached parts of removed documents before a purge.
const SPARE: usize = 1_024;

/// Models with the older documents of a tenant.
pub struct Old {
    /// Model with the tenant's older policies and groups; none if the tenant has none there.
    pub policies: Option<Arc<Model>>,
    /// Model with the administrators' older document of the tenant, if that is kept as well; the inner
    /// `None`: the tenant did not exist there.
    pub tenant: Option<Option<Arc<Model>>>,
}

/// Older documents by tenant.
pub type Olds = BTreeMap<String, Old>;

/// The parts of one kind of document, by its name: the generation that wrote it, and the part.
type KindParts = HashMap<String, (u64, Arc<DocumentPart>)>;

/// The cache of parts.
#[derive(Debug, Default)]
pub struct PartCache {
    kinds: BTreeMap<&'static str, KindParts>,
    /// Parts that were made, because the cache did not have them.
    pub made: u64,
}

/// Objects and manifest collected for one device.
#[derive(Default)]
struct Collected {
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    manifest: Manifest,
}

impl Collected {
    fn add(&mut self, part: &DocumentPart) {
        self.objects.insert(part.key.clone(), part.object.clone());
        self.manifest.0.insert(part.key.clone(), part.hash);
    }
}

impl PartCache {
    /// The set that a device is sent of a generation, under a number, with the older documents of `olds`.
    /// `numbered` is the current model, which has the numbers of tenants and files; older generations in
    /// `model` have none.
    pub fn wanted(
        &mut self,
        model: &Model,
        numbered: &Model,
        spec: &DeviceSpec,
        number: u64,
        olds: &Olds,
    ) -> Wanted {
        let mut all = Collected::default();
        let mut libraries = BTreeSet::new();
        for tenant in
            held::served(model, spec).into_iter().filter_map(|name| model.get(render::TENANTS, name))
        {
            match olds.get(&tenant.id) {
                None => self.tenant(model, numbered, tenant, &mut all, &mut libraries),
                Some(old) => self.old_tenant(old, numbered, tenant, &mut all, &mut libraries),
            }
        }
        // Libraries that older policies name may be gone from the current model.
        let models: Vec<&Model> =
            [model].into_iter().chain(olds.values().filter_map(|old| old.policies.as_deref())).collect();
        self.shared(&models, numbered, &libraries, &mut all);
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
        // Every tenant gets its number when it is made.
        let Some(number) = numbers::tenant(numbered, &tenant.id) else { return };
        all.add(&self.part(render::TENANTS, tenant, || parts::tenant(number, tenant)));
        self.policies(model, &tenant.id, number, all, libraries);
    }

    /// Adds a tenant with the policies of an older generation; nothing if the tenant had none there.
    fn old_tenant(
        &mut self,
        old: &Old,
        numbered: &Model,
        tenant: &Document,
        all: &mut Collected,
        libraries: &mut BTreeSet<String>,
    ) {
        let Some(number) = numbers::tenant(numbered, &tenant.id) else { return };
        let before = |old: &Option<Arc<Model>>| {
            old.as_ref().and_then(|old| old.get(render::TENANTS, &tenant.id)).cloned()
        };
        match old.tenant.as_ref().map(before) {
            None => all.add(&self.part(render::TENANTS, tenant, || parts::tenant(number, tenant))),
            Some(Some(before)) => all.add(&parts::tenant(number, &as_before(&before, tenant))),
            // The tenant did not exist there.
            Some(None) => return,
        }
        if let Some(old) = &old.policies {
            self.policies(old, &tenant.id, number, all, libraries);
        }
    }

    /// Adds the policies and groups of a tenant.
    fn policies(
        &mut self,
        model: &Model,
        tenant: &str,
        number: u16,
        all: &mut Collected,
        libraries: &mut BTreeSet<String>,
    ) {
        let prefix = format!("{tenant}/");
        let mut groups: Option<BTreeMap<String, Value>> = None;
        for group in model.list(render::GROUPS, &prefix, None) {
            all.add(&self.part(render::GROUPS, group, || {
                let groups = groups.get_or_insert_with(|| render::groups(model, tenant));
                parts::group(number, tenant, group, groups)
            }));
        }
        for policy in model.list(render::POLICIES, &prefix, None) {
            let part = self.part(render::POLICIES, policy, || {
                let groups = groups.get_or_insert_with(|| render::groups(model, tenant));
                parts::policy(number, tenant, policy, groups)
            });
            all.add(&part);
            libraries.extend(part.needs.iter().cloned());
        }
    }

    /// Adds what belongs to no tenant: the settings, and the libraries that policies and the default name,
    /// with their files. `models`: the generation, then older ones for libraries that the generation lacks.
    fn shared(
        &mut self,
        models: &[&Model],
        numbered: &Model,
        libraries: &BTreeSet<String>,
        all: &mut Collected,
    ) {
        let Some(model) = models.first() else { return };
        let default = match model.get(render::SETTINGS, render::DEFAULT) {
            Some(document) => self.part(render::SETTINGS, document, || parts::default(model)),
            None => Arc::new(parts::default(model)),
        };
        all.add(&default);
        if let Some(document) = model.get(render::SETTINGS, render::DNS) {
            all.add(&self.part(render::SETTINGS, document, || parts::dns(document)));
        }
        let find = |kind: &str, name: &str| models.iter().find_map(|model| model.get(kind, name));
        let named: BTreeSet<&String> = libraries.iter().chain(&default.needs).collect();
        for library in named.into_iter().filter_map(|name| find(render::LIBRARIES, name)) {
            let part = self.part(render::LIBRARIES, library, || parts::library(numbered, library));
            all.add(&part);
            for hash in &part.needs {
                let number = numbers::rule_file(numbered, hash);
                let text = find(render::RULE_TEXTS, hash);
                if let (Some(number), Some(text)) = (number, text) {
                    all.add(&self.part(render::RULE_TEXTS, text, || parts::rule_file(number, text)));
                }
            }
        }
    }

    fn part(
        &mut self,
        kind: &'static str,
        document: &Document,
        make: impl FnOnce() -> DocumentPart,
    ) -> Arc<DocumentPart> {
        let kept = self.kinds.entry(kind).or_default();
        let known = kept.get(&document.id);
        if let Some((_, part)) = known.filter(|(generation, _)| *generation == document.generation) {
            return part.clone();
        }
        self.made += 1;
        let part = Arc::new(make());
        // A part of an older generation does not replace a newer one in the cache.
        if known.is_none_or(|(generation, _)| *generation < document.generation) {
            kept.insert(document.id.clone(), (document.generation, part.clone()));
        }
        part
    }

    /// Drops parts of removed documents once there are more than [`SPARE`].
    fn purge(&mut self, model: &Model) {
        for (kind, kept) in &mut self.kinds {
            if kept.len() > model.count(kind) + SPARE {
                kept.retain(|id, _| model.get(kind, id).is_some());
            }
        }
    }
}

/// An older document of a tenant with the current `select` and `order`: with older ones, two tenants could
/// get the same packets.
fn as_before(before: &Document, now: &Document) -> Document {
    let mut body = before.body.clone();
    if let Some(object) = body.as_object_mut() {
        for key in ["select", "order"] {
            match now.body.get(key) {
                Some(said) => drop(object.insert(key.to_owned(), said.clone())),
                None => drop(object.remove(key)),
            }
        }
    }
    Document { body, ..before.clone() }
}
