// SPDX-License-Identifier: Apache-2.0
//! What happened to the engine itself, or to a tenant's quota: told to recorders as it happens, though it is
//! about no packet.

use crate::lifecycle::FunctionEvent;
use bartizan_base::TenantId;
use std::sync::Arc;

/// What happened.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a> {
    /// A function fails, is started again, is stopped.
    Function(&'a FunctionEvent),
    /// A tenant has used up a quota.
    Quota(&'a Exceeded),
}

/// Which of a tenant's quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// Flows at a time.
    Flows,
    /// Alerts of a second.
    Alerts,
    /// Bytes of state.
    State,
}

impl QuotaKind {
    /// All of them.
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
    /// Whose.
    pub tenant: TenantId,
    /// The tenant's name.
    pub name: Arc<str>,
    /// Which.
    pub quota: QuotaKind,
    /// What it allows.
    pub limit: u64,
    /// How often something was refused, left out or ended for it, since the start.
    pub times: u64,
}
