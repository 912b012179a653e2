// SPDX-License-Identifier: Apache-2.0
//! Bounds of header classification, for docs/limits.md.

use crate::SETS_MAX;
use crate::early::{HOSTS_MAX, SELECTED_MAX, TUNNELS_MAX};
use crate::flat::LINK_MAX;
use crate::split::PORT_CELLS;
use crate::split::displace::SLOTS_MAX;
use crate::sync::DELTA_MAX;
use bartizan_base::limit::LimitTrace::{NotNeeded, Told};
use bartizan_base::limit::{LimitSpec, count};
use bartizan_base::limits;

/// All bounds of this crate but those of addresses with DNS names, which are declared beside the code that
/// learns them.
pub const LIMITS: &[LimitSpec] = limits! {
    File "rule sets of a classifier" = "{}" [count(SETS_MAX)] in ["classify/classifier.rs"], "refused",
        [Told("the message")];
    File "tables of a set that is compiled" = "the budget / sets; {} slots, {} cells of port classes"
        [count(SLOTS_MAX), count(PORT_CELLS)] in ["classify/split/displace.rs", "classify/split/mod.rs"],
        "rules beyond are searched linearly", [NotNeeded];
    File "entries added since the tables were compiled" = "{}" [count(DELTA_MAX)] in ["classify/sync.rs"],
        "the next insert compiles anew", [NotNeeded];
    File "links in a batched lookup" = "{}" [count(LINK_MAX)] in ["classify/flat.rs"],
        "looked up one by one, linearly", [NotNeeded];
    File "tables that distinguish tenants at a level below: pairs of classes of tags and addresses; segments of addresses; of numbers of tunnels" = "{}; {}; {}"
        [count(SELECTED_MAX), count(HOSTS_MAX), count(TUNNELS_MAX)] in ["classify/early/tenants.rs"],
        "packets that a tenant's rule may match come up", [Told("a warning, `left-out` of levels")];
};
