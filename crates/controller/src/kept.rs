// SPDX-License-Identifier: Apache-2.0
//! What of tenants is older in what a device is to run, and what was refused of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a tenant gets of an older generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct OlderParts {
    /// The generation that its policies and groups are of; 0: it has none there.
    pub generation: u64,
    /// What administrators say of the tenant is older as well, that of this generation (0: it was not there),
    /// but for whose traffic it is and its order: two tenants never get the same packets by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<u64>,
}

/// Tenants that get something of an older generation.
pub type Keeps = BTreeMap<String, OlderParts>;

/// A tenant whose change a device does not take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct HeldBack {
    /// The generation of the policies that the device runs of the tenant; 0: none.
    pub runs: u64,
    /// The generation that was refused first.
    pub refused: u64,
    /// Since when, in microseconds since 1970.
    pub since: u64,
    /// Why.
    pub diagnostics: Vec<String>,
}
