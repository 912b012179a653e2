// SPDX-License-Identifier: Apache-2.0
//! Access control: tokens, their scopes, the permissions of routes, and the limit of failed attempts.

pub(crate) mod limiter;
mod token;

pub use limiter::{Limiter, Rate};
pub use token::{Secret, TokenError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The scope of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Everything.
    Admin,
    /// Reads and writes what belongs to one tenant.
    Operator,
    /// Reads what belongs to one tenant; without one, everything but tokens and the audit log.
    Reader,
    /// Reads one device's policy and reports for the device.
    Device,
    /// Makes the first token of an administrator, once.
    Bootstrap,
}

/// The authenticated caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The id of the token, for the audit log.
    pub id: String,
    /// The scope of the token.
    pub scope: Scope,
    /// The tenant of an operator or reader.
    pub tenant: Option<String>,
    /// The device of a device's token.
    pub device: Option<String>,
}

impl Principal {
    /// The controller itself, as author of changes that follow from roll-outs and device reports.
    #[must_use]
    pub fn controller() -> Self {
        Principal { id: "controller".to_owned(), scope: Scope::Admin, tenant: None, device: None }
    }
}

/// The permission that a route requires of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// No token.
    Nothing,
    /// Any valid token: the data is the same for all callers.
    Known,
    /// An administrator.
    Admin,
    /// Makes tokens: an administrator, or the bootstrap token.
    MakeTokens,
    /// Reads data that belongs to no single tenant.
    Read,
    /// Reads what belongs to the path's tenant.
    ReadTenant,
    /// Writes what belongs to the path's tenant.
    WriteTenant,
    /// Reads data of the path's device, as that device.
    ReadDevice,
    /// Reports for the path's device.
    Report,
}

/// Whether a caller has a permission, for the tenant and device of the request's path.
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
