// SPDX-License-Identifier: Apache-2.0
//! Capabilities with which a program could leave its namespace or its control group, change hooks, or send
//! frames. Source: capabilities(7).

use crate::error::{BoundaryError, system};
use rustix::thread::{
    CapabilitySet, capabilities, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Capabilities that no program of a guest has, whatever it executes.
const KEPT_AWAY: [CapabilitySet; 9] = [
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::NET_ADMIN,
    CapabilitySet::NET_RAW,
    CapabilitySet::SYS_PTRACE,
    CapabilitySet::SYS_MODULE,
    CapabilitySet::SYS_RAWIO,
    CapabilitySet::DAC_READ_SEARCH,
    CapabilitySet::BPF,
    CapabilitySet::PERFMON,
];

/// Drops these capabilities of this thread and of all that it starts, for good.
pub(crate) fn drop_those_that_leave() -> Result<(), BoundaryError> {
    let failed = || system("drop capabilities");
    set_no_new_privs(true).map_err(failed())?;
    for capability in KEPT_AWAY {
        remove_capability_from_bounding_set(capability).map_err(failed())?;
    }
    let mut sets = capabilities(None).map_err(failed())?;
    for capability in KEPT_AWAY {
        sets.effective.remove(capability);
        sets.permitted.remove(capability);
        sets.inheritable.remove(capability);
    }
    set_capabilities(None, sets).map_err(failed())
}
