// SPDX-License-Identifier: Apache-2.0
//! Counters of the southbound side since the start.

use bartizan_api::southbound::{ErrorKind, RefuseCode};
use std::collections::BTreeMap;

/// Counters of a [`super::SouthboundServer`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SouthboundCounters {
    /// Connections accepted.
    pub connections: u64,
    /// Connections refused because the bound was reached.
    pub connections_refused: u64,
    /// Sessions opened.
    pub sessions: u64,
    /// Sessions refused or ended, by reason.
    pub refused: BTreeMap<RefuseCode, u64>,
    /// Malformed messages, by kind of error.
    pub malformed: BTreeMap<ErrorKind, u64>,
    /// Objects not sent because the device does not serve their tenant, once per generation and session.
    pub withheld: u64,
    /// Alerts discarded because the device does not serve their tenant.
    pub alerts_foreign: u64,
    /// Statistics and alerts that had arrived before.
    pub repeated: u64,
    /// Objects sent.
    pub objects_sent: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Generations that devices acknowledged.
    pub acknowledged: u64,
    /// Generations that devices refused.
    pub generations_refused: u64,
    /// Reports of devices that ran a generation ahead of the desired one.
    pub ahead: u64,
    /// Sessions that replaced an open one, from another start of the agent.
    pub twins: u64,
    /// Failures of functions that devices reported.
    pub functions_failed: u64,
    /// Orders refused because too many were open.
    pub orders_refused: u64,
    /// Certificates issued.
    pub enrolled: u64,
}
