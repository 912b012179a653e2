// SPDX-License-Identifier: Apache-2.0
//! What happened on the southbound side, counted since the start.

use bartizan_api::southbound::{ErrorKind, RefuseCode};
use std::collections::BTreeMap;

/// Counters of a [`super::Server`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that came.
    pub connections: u64,
    /// Connections that came while there were as many as may be.
    pub connections_refused: u64,
    /// Sessions that were taken.
    pub sessions: u64,
    /// Sessions that were refused or ended, by reason.
    pub refused: BTreeMap<RefuseCode, u64>,
    /// What was no message, by kind.
    pub malformed: BTreeMap<ErrorKind, u64>,
    /// Objects that were not sent because the device serves other tenants, once for each generation and
    /// session.
    pub withheld: u64,
    /// Alerts of tenants that the device does not serve, which were thrown away.
    pub alerts_foreign: u64,
    /// Statistics and alerts that had come before.
    pub repeated: u64,
    /// Objects that were sent.
    pub objects_sent: u64,
    /// Bytes that were sent.
    pub bytes_sent: u64,
    /// Generations that devices acknowledged.
    pub acknowledged: u64,
    /// Generations that devices refused.
    pub generations_refused: u64,
    /// Devices that ran a generation ahead of the wanted one.
    pub ahead: u64,
    /// Sessions that took the place of one that stood, from another start of the agent.
    pub twins: u64,
    /// Functions that failed on devices, as these said.
    pub functions_failed: u64,
    /// Orders that were not taken because too many were open.
    pub orders_refused: u64,
    /// Certificates that were given.
    pub enrolled: u64,
}
