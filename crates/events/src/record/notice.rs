// SPDX-License-Identifier: Apache-2.0
//! `bartizan`: an event of the engine itself, or of a tenant's quota. It concerns no packet, so it does not
//! fit Suricata's types of events; all of its data is in the object `bartizan`.

use super::common::Common;
use crate::JsonWriter;
use crate::config::HeaderOptions;

/// The subject of the event.
#[derive(Clone, Copy, Debug)]
pub enum NoticeRecord<'a> {
    /// A function failed, runs again, was stopped, or is given up.
    Function {
        /// Name of the function.
        function: &'a str,
        /// State of the function now: `failed`, `running`, `stopped`.
        state: &'a str,
        /// Message of a failure, with its place in the source.
        message: Option<&'a str>,
        /// Milliseconds until the failed function is started again automatically; absent if it is not.
        restart_in_ms: Option<u64>,
    },
    /// A tenant has used up a quota.
    Quota {
        /// Name of the tenant.
        tenant: &'a str,
        /// Name of the quota, as in a policy file.
        quota: &'a str,
        /// The quota's limit.
        limit: u64,
        /// Number of times since the start that something was refused, left out or ended because of the
        /// quota.
        exceeded: u64,
    },
}

impl NoticeRecord<'_> {
    /// Writes the event.
    pub fn write(&self, w: &mut JsonWriter, options: &HeaderOptions, common: &Common<'_>) {
        common.begin_packet_event(w, options, "bartizan");
        common.finish_and(w, options, |w| match *self {
            NoticeRecord::Function { function, state, message, restart_in_ms } => {
                w.str("notice", "function");
                w.str("function", function);
                w.str("state", state);
                if let Some(message) = message {
                    w.str("message", message);
                }
                if let Some(restart_in_ms) = restart_in_ms {
                    w.num("restart_in_ms", restart_in_ms);
                }
            }
            NoticeRecord::Quota { tenant, quota, limit, exceeded } => {
                w.str("notice", "quota");
                w.str("tenant_name", tenant);
                w.str("quota", quota);
                w.num("limit", limit);
                w.num("exceeded", exceeded);
            }
        });
    }
}
