// SPDX-License-Identifier: Apache-2.0
//! The links and ports of a device's host file, which policies may name: sent by the agent after each
//! `welcome`, from version 5 on.

use super::body;
use super::error::DecodeError;
use super::limits;
use serde::{Deserialize, Serialize};

/// The first version with [`super::SessionMessage::Interfaces`].
pub const INTERFACES_SINCE: u8 = 5;

/// The links and ports of a device's host file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interfaces {
    /// Names of the links: `link` of policies and of tenants' selectors.
    pub links: Vec<String>,
    /// Names of the ports that packets may be redirected to: `egress` of filter rules.
    pub ports: Vec<String>,
}

impl Interfaces {
    /// Whether a message can hold all names.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.check().is_ok()
    }

    pub(super) fn check(&self) -> Result<(), DecodeError> {
        const MESSAGE: &str = "interfaces";
        for (what, names) in [("links", &self.links), ("ports", &self.ports)] {
            body::bound(MESSAGE, what, names.len(), limits::INTERFACES)?;
            let longest = names.iter().map(String::len).max().unwrap_or(0);
            body::bound(MESSAGE, "bytes of a name", longest, limits::INTERFACE_BYTES)?;
        }
        Ok(())
    }
}
