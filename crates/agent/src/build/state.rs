// SPDX-License-Identifier: Apache-2.0
//! State that outlives generations: numbers of classes, tenants and policies. A build works on a copy, which
//! replaces the state if the build succeeds; the copy shares everything unchanged.

use crate::grt::{GlobalRuleTable, Meaning, NoFid};
use bartizan_base::{Fid, Generation, TenantId};
use bartizan_config::policy::DEFAULT_TENANT;
use bartizan_stages::chain::PolicyMap;
use bartizan_stages::quotas::Meter;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The state; see the module.
#[derive(Clone, Debug)]
pub(super) struct PolicyBuildState {
    pub table: Arc<GlobalRuleTable>,
    /// Numbers of tenants, by name; a number is never given to another name.
    pub tenants: Arc<BTreeMap<String, TenantId>>,
    /// Meters of tenants with quotas, by number.
    meters: Arc<BTreeMap<TenantId, Arc<Meter>>>,
    policies: Arc<Numbers>,
    /// Names of policies by number, as the data plane gets them; the same by address until a name is added.
    names: Arc<[Arc<str>]>,
    pub generation: Generation,
}

/// Numbers of policies for counters, from 1; a number belongs to one name for good.
#[derive(Clone, Debug, Default)]
struct Numbers {
    by_name: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
}

impl Default for PolicyBuildState {
    fn default() -> Self {
        PolicyBuildState {
            table: Arc::default(),
            tenants: Arc::new(BTreeMap::from([(DEFAULT_TENANT.to_owned(), TenantId(0))])),
            meters: Arc::default(),
            policies: Arc::default(),
            names: Arc::default(),
            generation: Generation(0),
        }
    }
}

impl PolicyBuildState {
    /// The fid of a class; allocates one if it has none.
    pub(super) fn fid(&mut self, meaning: Meaning) -> Result<Fid, NoFid> {
        match self.table.known(&meaning) {
            Some(fid) => Ok(fid),
            None => Arc::make_mut(&mut self.table).fid(meaning),
        }
    }

    /// Deletes all fids but these, which are distinct and in use.
    pub(super) fn retain(&mut self, fids: &[Fid]) {
        if self.table.len() != fids.len() {
            let end = fids.iter().map(|fid| fid.0 as usize + 1).max().unwrap_or(0);
            let mut used = vec![false; end];
            for fid in fids {
                used.get_mut(fid.0 as usize).into_iter().for_each(|used| *used = true);
            }
            Arc::make_mut(&mut self.table).retain(|fid| used.get(fid.0 as usize) == Some(&true));
        }
    }

    /// The number of a tenant; allocates one if it has none. `None`: all are used up.
    pub(super) fn tenant(&mut self, name: &str) -> Option<TenantId> {
        if let Some(known) = self.tenants.get(name) {
            return Some(*known);
        }
        // Numbers are consecutive, and none is taken back.
        let next = u16::try_from(self.tenants.len()).ok().map(TenantId)?;
        Arc::make_mut(&mut self.tenants).insert(name.to_owned(), next);
        Some(next)
    }

    /// The meter of a tenant.
    pub(super) fn meter(&mut self, tenant: TenantId) -> Arc<Meter> {
        match self.meters.get(&tenant) {
            Some(known) => Arc::clone(known),
            None => Arc::clone(Arc::make_mut(&mut self.meters).entry(tenant).or_default()),
        }
    }

    /// The number of a policy; allocates one if it has none.
    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(known) = self.policies.by_name.get(name) {
            return *known;
        }
        let Numbers { by_name, names } = Arc::make_mut(&mut self.policies);
        let name: Arc<str> = Arc::from(name);
        names.push(Arc::clone(&name));
        let number = u32::try_from(names.len()).unwrap_or(u32::MAX);
        by_name.insert(name, number);
        number
    }

    /// The names of policies by number; 0 stands for no policy.
    pub(super) fn policies(&mut self) -> Arc<[Arc<str>]> {
        let names = &self.policies.names;
        if self.names.len() != names.len() + 1 {
            self.names = [Arc::from(PolicyMap::NONE)].iter().chain(names).cloned().collect();
        }
        Arc::clone(&self.names)
    }
}
