// SPDX-License-Identifier: Apache-2.0
//! Quotas of tenants: bounds that the data plane enforces, and the number of rules.

use super::{Build, CompiledOwner};
use bartizan_base::{Fid, FunctionId};
use bartizan_function::Function;
use bartizan_stages::quotas::{Quota, Quotas};
use core::num::NonZeroU64;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

impl Build<'_> {
    /// The tenants' quotas in the data plane.
    pub(super) fn quotas(&mut self) -> Quotas {
        let mut of = Vec::new();
        for tenant in &self.file.tenants {
            let quota = Quota {
                flows: tenant.quotas.flows.map(NonZeroU64::get),
                alerts: tenant.quotas.alerts_per_second,
                state: tenant.quotas.state_bytes.map(|size| size.0),
            };
            let id = self.state.tenants.get(&tenant.name).filter(|_| quota != Quota::default());
            if let Some(id) = id {
                let id = *id;
                let meter = self.state.meter(id);
                of.push((id, Arc::from(tenant.name.as_str()), quota, meter));
            }
        }
        Quotas::new(of)
    }

    /// Checks that no tenant exceeds its quota of rules, over the policies that name it. A set of rules that
    /// several of its classes share counts once.
    pub(super) fn check_rule_quotas(
        &mut self,
        owners: &[Arc<CompiledOwner>],
        functions: &[Arc<dyn Function>],
    ) {
        let file = self.file;
        let mut of_tenants: HashMap<&str, Vec<Fid>> = HashMap::new();
        if file.tenants.iter().any(|tenant| tenant.quotas.rules.is_some()) {
            for owner in owners {
                let names = |tenant| owner.policy.as_ref().is_some_and(|p| p.tenant.contains(tenant));
                for info in owner.infos.iter().filter(|info| names(&info.tenant)) {
                    of_tenants.entry(&info.tenant).or_default().push(info.fid);
                }
            }
        }
        for (index, tenant) in file.tenants.iter().enumerate() {
            let Some(most) = tenant.quotas.rules else { continue };
            let own = of_tenants.get(tenant.name.as_str()).map(Vec::as_slice).unwrap_or_default();
            let mut sets: BTreeMap<(FunctionId, usize), usize> = BTreeMap::new();
            for fid in own.iter().copied() {
                sets.extend(functions.iter().filter_map(|f| {
                    let (set, rules) = f.rules_of(fid)?;
                    Some(((f.id(), set), rules))
                }));
            }
            let rules = sets.values().fold(0u64, |sum, rules| sum.saturating_add(*rules as u64));
            if rules > most {
                let message = format!(
                    "the policies of tenant `{}` have {rules} rules, more than its quota of {most}; use fewer, or raise `rules` here",
                    tenant.name
                );
                self.problem(&format!("tenants/{index}/quotas/rules"), message);
            }
        }
    }
}
