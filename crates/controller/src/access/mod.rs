// SPDX-License-Identifier: Apache-2.0
//! Who may do what: tokens, what they reach, and how often unknown ones may be tried.

pub(crate) mod limiter;
mod token;

pub use limiter::{Limiter, Rate};
pub use token::{Secret, TokenError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Everything.
    Admin,
    /// Reads and writes what belongs to one tenant.
    Operator,
    /// Reads what belongs to one tenant; without one, everything but tokens and the audit log.
    Reader,
    /// Reads one device's policy and reports for it.
    Device,
    /// Makes the first token of an administrator, once.
    Bootstrap,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The id of the token, for the audit log.
    pub id: String,
    /// What it is for.
    pub scope: Scope,
    /// The tenant of an operator or reader.
    pub tenant: Option<String>,
    /// The device of a device's token.
    pub device: Option<String>,
}

impl Principal {
    /// The controller itself: what follows from roll-outs and reports.
    #[must_use]
    pub fn controller() -> Self {
        Principal { id: "controller".to_owned(), scope: Scope::Admin, tenant: None, device: None }
    }
}

/// What a route asks of who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: no token.
    Nothing,
    /// Any token: what is the same for all.
    Known,
    /// An administrator.
    Admin,
    /// Makes tokens: an administrator, or the bootstrap token.
    MakeTokens,
    /// Reads what is not of one tenant.
    Read,
    /// Reads what belongs to the path's tenant.
    ReadTenant,
    /// Writes what belongs to the path's tenant.
    WriteTenant,
    /// Reads as the path's device.
    ReadDevice,
    /// Reports for the path's device.
    Report,
}

/// May this one do that? `tenant`, `device`: those of the path.
#[must_use]
pub fn allowed(who: Option<&Principal>, need: Need, tenant: Option<&str>, device: Option<&str>) -> bool {
    let Some(who) = who else { return need == Need::Nothing };
    let own_tenant = tenant.is_some() && who.tenant.as_deref() == tenant;
    let own_device = device.is_some() && who.device.as_deref() == device;
    match (who.scope, need) {
        (_, Need::Nothing | Need::Known) => true,
        (Scope::Bootstrap, need) => need == Need::MakeTokens,
        (Scope::Admin, _) => true,
        (Scope::Operator, Need::ReadTenant | Need::WriteTenant) => own_tenant,
        (Scope::Reader, Need::ReadTenant) => own_tenant || who.tenant.is_none(),
        (Scope::Reader, Need::Read | Need::ReadDevice) => who.tenant.is_none(),
        (Scope::Device, Need::ReadDevice | Need::Report) => own_device,
        (Scope::Operator | Scope::Reader | Scope::Device, _) => false,
    }
}
