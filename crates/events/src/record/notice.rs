// SPDX-License-Identifier: Apache-2.0
//! `bartizan`: what happened to the engine itself, or to a tenant's quota. It is about no packet, so it has
//! no place among Suricata's types of events; all of it stands in the object `bartizan`.

use super::common::Common;
use crate::JsonWriter;
use crate::config::HeaderOptions;

/// What happened.
#[derive(Clone, Copy, Debug)]
pub enum NoticeRecord<'a> {
    /// A function has failed, runs again, was stopped, or is given up.
    Function {
        /// Name of the function.
        function: &'a str,
        /// How it stands now: `failed`, `running`, `stopped`.
        state: &'a str,
        /// What was said, and where in the source; of a failure.
        message: Option<&'a str>,
        /// Milliseconds until it is started again by itself; of a failure, absent if it is not.
        restart_in_ms: Option<u64>,
    },
    /// A tenant has used up a quota.
    Quota {
        /// Name of the tenant.
        tenant: &'a str,
        /// Name of the quota, as in a policy file.
        quota: &'a str,
        /// What it allows.
        limit: u64,
        /// How often something was refused, left out or ended for it, since the start.
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
