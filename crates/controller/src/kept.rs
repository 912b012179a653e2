// SPDX-License-Identifier: Apache-2.0
//! Older documents of tenants in a device's desired set, and the refusals that caused them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The generation of a tenant's older documents in a device's set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct OlderParts {
    /// The generation of its policies and groups; 0: none.
    pub generation: u64,
    /// The generation of the administrators' document of the tenant, if that is older as well (0: the tenant
    /// did not exist). `select` and `order` are always current, so that two tenants never get the same
    /// packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<u64>,
}

/// Tenants with older documents.
pub type Keeps = BTreeMap<String, OlderParts>;

/// A tenant whose change a device refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct HeldBack {
    /// The generation of the tenant's policies that the device runs; 0: none.
    pub runs: u64,
    /// The first generation that the device refused.
    pub refused: u64,
    /// Time of the refusal, in microseconds since 1970.
    pub since: u64,
    /// Reasons of the refusal.
    pub diagnostics: Vec<String>,
}
