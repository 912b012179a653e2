// SPDX-License-Identifier: Apache-2.0
//! Changes whose checks take long: those of tenants with large groups or many rules. The checks run on a copy
//! of the model on the disk, in parallel to other changes; only their result goes through the queue.

use crate::access::Principal;
use crate::controller::{ChangeOutcome, Controller, Draft, TOKENS};
use crate::model::Model;
use crate::problem::Refusal;
use crate::render::{GROUPS, POLICIES, RULE_FILES, RULE_TEXTS};
use crate::rollout;
use serde_json::Value;

/// Members of groups and rules of filters of a tenant from which its checks count as long. A policy counts as
/// `POLICY` of them.
const HEAVY: usize = 2_000;
const POLICY: usize = 4;
/// Attempts of a check if the tenant's documents change meanwhile.
const ATTEMPTS: usize = 4;

impl Controller {
    /// As [`Controller::change`], for a tenant's own document with `body` as its content. If the checks
    /// take long, changes of others are made meanwhile.
    ///
    /// # Errors
    /// Errors of the draft and of the store; too many such checks are running, or the tenant's documents
    /// change during every attempt.
    pub fn change_of_tenant(
        &self,
        who: &Principal,
        action: &str,
        dry: bool,
        tenant: &str,
        body: Option<&Value>,
        draft: impl Fn(&Model) -> Result<Draft, Refusal>,
    ) -> Result<ChangeOutcome, Refusal> {
        if dry || weight(&self.model(), tenant, body) < HEAVY {
            return self.change(who, action, dry, draft);
        }
        let _place = self.check_place(who)?;
        for _ in 0..ATTEMPTS {
            let checked = self.model().clone();
            let drafted = draft(&checked)?;
            let mut is_stale = false;
            let done = self.change(who, action, false, |now| {
                is_stale = !rests_on_the_same(now, &checked, tenant);
                if is_stale { Err(changed()) } else { Ok(drafted) }
            });
            if !is_stale {
                return done;
            }
        }
        Err(changed())
    }
}

fn changed() -> Refusal {
    Refusal::Busy(
        "the tenant's documents were changed by others while this change was checked; nothing was changed: try again"
            .to_owned(),
    )
}

/// Number of members and rules that a check of the tenant visits.
fn weight(model: &Model, tenant: &str, body: Option<&Value>) -> usize {
    let prefix = format!("{tenant}/");
    let groups = model.list(GROUPS, &prefix, None).map(|document| weight_of(&document.body));
    let policies = model.list(POLICIES, &prefix, None).map(|document| weight_of(&document.body) + POLICY);
    groups.chain(policies).chain(body.map(weight_of)).sum()
}

fn weight_of(body: &Value) -> usize {
    let length = |value: Option<&Value>| value.and_then(Value::as_array).map_or(0, Vec::len);
    length(body.get("members")) + length(body.pointer("/policy/pfw/rules"))
}

/// Whether two models agree in all documents that a tenant's checks read: its own, and those of no tenant.
fn rests_on_the_same(now: &Model, checked: &Model, tenant: &str) -> bool {
    let prefix = format!("{tenant}/");
    let of = |model: &'_ Model| {
        let all = model.documents().filter(|document| match document.kind.as_str() {
            POLICIES | GROUPS => document.id.starts_with(&prefix),
            TOKENS | RULE_FILES | RULE_TEXTS | rollout::KIND => false,
            _ => true,
        });
        all.map(|document| (document.kind.clone(), document.id.clone(), document.generation))
            .collect::<Vec<_>>()
    };
    of(now) == of(checked)
}
