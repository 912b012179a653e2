// SPDX-License-Identifier: Apache-2.0
//! Holding back: a device that refuses the documents of some tenants keeps running their older ones, and
//! takes the documents of all others (docs/design/0026).
//!
//! A device builds a generation whole or not at all, and a refusal names the tenants at fault. The controller
//! then sends the generation again under a new number, with those tenants' policies and groups as the device
//! runs them. The next change of such a tenant is tried anew.

use crate::device::{self, ALL, DeviceSpec, DeviceStatus, State};
use crate::kept::{HeldBack, OlderParts};
use crate::model::Model;
use crate::parts;
use crate::render::{self, GROUPS, LIBRARIES, POLICIES, RULE_TEXTS, TENANTS, library_of};
use crate::store::{Document, StoreContent};
use crate::waiting;
use bartizan_api::southbound::PolicyDiagnostic;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Diagnostics against tenants' documents: lines for people, by tenant.
pub type Blame = BTreeMap<String, Vec<String>>;

/// The tenants that may have caused a refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accused {
    /// The tenants that the device blames; not empty only if every diagnostic concerns one of them.
    pub blame: Blame,
    /// Without blame: the tenants among which to look for the newest change; `None`: all that the device
    /// serves.
    pub suspects: Option<BTreeSet<String>>,
}

impl Accused {
    /// Derives the accused from a refusal's diagnostics and their lines for people. `tenant` maps the number
    /// of a served tenant to its name; `files` maps the number of a rule file to its hash. A setting is
    /// nobody's fault; a library or rule file can be the fault of a tenant whose policy began to name it.
    #[must_use]
    pub fn of(
        model: &Model,
        found: &[PolicyDiagnostic],
        lines: &[String],
        tenant: impl Fn(u16) -> Option<String>,
        file: impl Fn(u32) -> Option<String>,
    ) -> Self {
        let (mut blame, mut suspects) = (Blame::new(), Some(BTreeSet::new()));
        let mut all = true;
        for (found, line) in found.iter().zip(lines) {
            let libraries = match (found.object.policy_name(), found.object.group_id()) {
                (Some((parts::EVERYBODY, parts::DEFAULT | parts::DNS)), _) => {
                    (all, suspects) = (false, None);
                    continue;
                }
                (Some((parts::EVERYBODY, name)), _) => match name.strip_prefix(parts::LIBRARY) {
                    Some(library) => vec![library.to_owned()],
                    None => return Accused::default(),
                },
                (Some((number, _)), _) => {
                    // The tenant is not served: nothing can be concluded.
                    let Some(name) = tenant(number) else { return Accused::default() };
                    blame.entry(name).or_default().push(line.clone());
                    continue;
                }
                (None, Some(group)) => match file(group) {
                    Some(hash) => with_file(model, &hash),
                    None => return Accused::default(),
                },
                (None, None) => return Accused::default(),
            };
            all = false;
            // The default names one of the libraries: holding back tenants would not help.
            suspects = suspects.filter(|_| !libraries.iter().any(|library| of_default(model, library)));
            suspects.iter_mut().for_each(|all| all.extend(libraries.iter().flat_map(|l| naming(model, l))));
        }
        match (all, found.is_empty()) {
            (_, true) => Accused::default(),
            (true, false) => Accused { blame, suspects: None },
            (false, false) => {
                let either = suspects.map(|suspects| suspects.into_iter().chain(blame.into_keys()).collect());
                Accused { blame: Blame::new(), suspects: Some(either.unwrap_or_default()) }
            }
        }
    }
}

/// The libraries that contain a rule file.
fn with_file(model: &Model, hash: &str) -> Vec<String> {
    let has = |body: &Value| {
        body.get("files").and_then(Value::as_array).is_some_and(|files| files.iter().any(|file| file == hash))
    };
    model.all(LIBRARIES).filter(|library| has(&library.body)).map(|library| library.id.clone()).collect()
}

/// Whether the default names a library.
fn of_default(model: &Model, library: &str) -> bool {
    library_of(&render::default(model)) == Some(library)
}

/// The tenants whose policies name a library.
fn naming(model: &Model, library: &str) -> BTreeSet<String> {
    let names = |policy: Option<&Value>| policy.and_then(library_of) == Some(library);
    let policies = model.all(POLICIES).filter(|document| names(document.body.get("policy")));
    policies.filter_map(|document| Some(document.id.split_once('/')?.0.to_owned())).collect()
}

/// The devices that refuse a tenant's current documents.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct HeldStatus {
    /// By device: the tenant's documents that it runs instead of the current ones, and the reason.
    pub held_back: BTreeMap<String, HeldBack>,
}

impl HeldStatus {
    /// `None` if all devices accept the tenant's documents, or have not answered yet.
    #[must_use]
    pub fn of(model: &Model, tenant: &str) -> Option<Self> {
        // Called for each tenant and policy of a page: devices that hold nothing back are not deserialized.
        let held = |body: &Value| body.get("held-back")?.get(tenant).cloned();
        let lines = model.statuses(device::KIND, "");
        let of = |(id, body): (&str, &Value)| {
            let mut held = HeldBack::deserialize(held(body)?).ok()?;
            waiting::only_of(&mut held.diagnostics, model, tenant);
            Some((id.to_owned(), held))
        };
        let held_back: BTreeMap<_, _> = lines.filter_map(of).collect();
        (!held_back.is_empty()).then_some(HeldStatus { held_back })
    }
}

/// The tenants to hold back, with their lines: those that the device blames; otherwise one suspect, if there
/// is one, with all lines.
#[must_use]
pub fn blamed(
    model: &Model,
    spec: &DeviceSpec,
    status: &DeviceStatus,
    accused: &Accused,
    lines: &[String],
) -> Blame {
    if !accused.blame.is_empty() || status.state != State::Refused {
        return accused.blame.clone();
    }
    let mut among = served(model, spec);
    among.retain(|tenant| accused.suspects.as_ref().is_none_or(|suspects| suspects.contains(*tenant)));
    let suspect = status.suspect(model, &among);
    suspect.map(|tenant| (tenant, lines.to_vec())).into_iter().collect()
}

/// The existing tenants that a device serves.
#[must_use]
pub fn served<'m>(model: &'m Model, spec: &'m DeviceSpec) -> Vec<&'m str> {
    if spec.tenants.iter().any(|tenant| tenant == ALL) {
        return model.all(TENANTS).map(|document| document.id.as_str()).collect();
    }
    spec.tenants.iter().map(String::as_str).filter(|name| model.get(TENANTS, name).is_some()).collect()
}

/// The part of a generation that is kept for one tenant: its own documents, and the libraries that its
/// policies name, with their files.
#[must_use]
pub fn old(model: &Model, tenant: &str) -> Model {
    let prefix = format!("{tenant}/");
    let policies: Vec<&Document> = model.list(POLICIES, &prefix, None).collect();
    let named = policies.iter().filter_map(|document| library_of(document.body.get("policy")?));
    let libraries: Vec<&Document> = named.filter_map(|name| model.get(LIBRARIES, name)).collect();
    let files = libraries.iter().filter_map(|library| library.body.get("files")?.as_array()).flatten();
    let texts: Vec<&Document> = files.filter_map(|hash| model.get(RULE_TEXTS, hash.as_str()?)).collect();
    let own = model.get(TENANTS, tenant).into_iter().chain(model.list(GROUPS, &prefix, None));
    let documents = own.chain(policies).chain(libraries).chain(texts).cloned().collect();
    Model::of(StoreContent { generation: model.generation, documents, status: Vec::new() })
}

impl DeviceStatus {
    /// The generation of the tenant's policies that the device runs; 0: none.
    fn runs_of(&self, tenant: &str) -> u64 {
        let serves = |tenants: &Vec<String>| tenants.iter().any(|own| own == tenant || own == ALL);
        // A device that has not answered since the field exists has no list: the tenant then counts as
        // served.
        if self.runs_tenants.as_ref().is_some_and(|tenants| !serves(tenants)) {
            return 0;
        }
        self.runs_keeps().get(tenant).map_or(self.running, |kept| kept.generation)
    }

    /// The generation of the administrators' document of the tenant that the device runs; 0: none.
    fn runs_tenant_of(&self, tenant: &str) -> u64 {
        match self.runs_of(tenant) {
            0 => 0,
            _ => self.runs_keeps().get(tenant).and_then(|kept| kept.tenant).unwrap_or(self.running),
        }
    }

    /// Makes the refused generation desired again, without the new documents of the blamed tenants. `None` if
    /// no tenant is blamed, or if all documents of a blamed tenant are older ones already.
    #[must_use]
    pub fn hold_back(mut self, blame: &Blame, now: u64) -> Option<Self> {
        if blame.is_empty() || self.state != State::Refused {
            return None;
        }
        let mut keeps = self.keeps();
        for (tenant, lines) in blame {
            let runs = self.runs_of(tenant);
            match keeps.get_mut(tenant) {
                None => drop(keeps.insert(tenant.clone(), OlderParts { generation: runs, tenant: None })),
                Some(kept) if kept.tenant.is_none() => kept.tenant = Some(self.runs_tenant_of(tenant)),
                Some(_) => return None,
            }
            let first = HeldBack { runs, refused: self.wanted, since: now, diagnostics: Vec::new() };
            let held = self.held_back.entry(tenant.clone()).or_insert(first);
            for line in lines {
                if !held.diagnostics.contains(line) {
                    held.diagnostics.push(line.clone());
                }
            }
        }
        self.send(0, keeps);
        self.state = State::Waiting;
        self.diagnostics.clear();
        Some(self)
    }

    /// The tenant to hold back if the device names none: of the tenants with newer documents than the device
    /// runs, and not held back yet, the one that changed last.
    #[must_use]
    pub fn suspect(&self, model: &Model, served: &[&str]) -> Option<String> {
        let keeps = self.keeps();
        let newest = |tenant: &str| {
            let prefix = format!("{tenant}/");
            let own = model.get(TENANTS, tenant).into_iter();
            let all = own.chain(model.list(POLICIES, &prefix, None)).chain(model.list(GROUPS, &prefix, None));
            all.map(|document| document.generation).filter(|generation| *generation <= self.wanted).max()
        };
        let open = served.iter().filter(|tenant| !keeps.contains_key(**tenant));
        let changed = open.filter_map(|tenant| Some((newest(tenant)?, *tenant)));
        let changed = changed.filter(|(generation, tenant)| *generation > self.runs_of(tenant));
        changed.max().map(|(_, tenant)| tenant.to_owned())
    }
}
