// SPDX-License-Identifier: Apache-2.0
//! The resources, one file each, and the table of all their routes. A new resource is a file and a line in
//! [`routes`].

mod agents;
mod devices;
mod document;
mod effects;
mod generations;
mod inventory;
pub mod libraries;
mod logs;
mod openapi;
mod order;
mod policies;
mod rollouts;
mod settings;
mod shares;
mod statistics;
mod tenants;
mod tokens;

use crate::rest::Route;

/// All routes. The first that matches a request is used.
#[must_use]
pub fn routes() -> Vec<Route> {
    [
        document::routes::<tenants::Tenants>(),
        document::routes::<policies::PoliciesResource>(),
        document::routes::<policies::GroupsResource>(),
        document::routes::<libraries::Libraries>(),
        libraries::routes(),
        document::routes::<devices::Devices>(),
        devices::routes(),
        agents::routes(),
        document::routes::<settings::SettingKind>(),
        tokens::routes(),
        rollouts::routes(),
        generations::routes(),
        statistics::routes(),
        logs::routes(),
        openapi::routes(),
    ]
    .concat()
}
