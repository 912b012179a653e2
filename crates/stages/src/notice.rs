// SPDX-License-Identifier: Apache-2.0
//! Events of the engine itself or of a tenant's quota, which recorders get at once although no packet belongs
//! to them.

use crate::lifecycle::FunctionEvent;
use bartizan_base::TenantId;
use std::sync::Arc;

/// An event of the engine or of a quota.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a> {
    /// A function fails, is started or is stopped.
    Function(&'a FunctionEvent),
    /// A tenant has used up a quota.
    Quota(&'a Exceeded),
}

/// The kind of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// Concurrent flows.
    Flows,
    /// Alerts per second.
    Alerts,
    /// Bytes of state.
    State,
}

impl QuotaKind {
    /// All kinds of quotas.
    pub const ALL: [QuotaKind; 3] = [QuotaKind::Flows, QuotaKind::Alerts, QuotaKind::State];

    /// Name, as in a policy file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            QuotaKind::Flows => "flows",
            QuotaKind::Alerts => "alerts-per-second",
            QuotaKind::State => "state-bytes",
        }
    }

    /// Number, from 1: the signature id of the alert that a controller gets.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            QuotaKind::Flows => 1,
            QuotaKind::Alerts => 2,
            QuotaKind::State => 3,
        }
    }
}

/// A quota that is used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// The tenant.
    pub tenant: TenantId,
    /// The tenant's name.
    pub name: Arc<str>,
    /// The quota.
    pub quota: QuotaKind,
    /// The bound that the quota sets.
    pub limit: u64,
    /// Number of refusals, omissions and evictions for this quota since the start.
    pub times: u64,
}
