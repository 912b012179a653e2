// SPDX-License-Identifier: Apache-2.0
//! Bounds of files that operators write, for docs/limits.md.

use crate::host::{FLOWS, HOSTS};
use crate::policy::ITEMS_MAX;
use crate::policy::read::{NEAREST_MAX, PROBLEMS_MAX};
use crate::policy::resolve::GROUP_DEPTH_MAX;
use crate::suricata::{INCLUDE_DEPTH_MAX, NOTES_MAX};
use crate::yaml::{DEPTH_MAX, NODES_MAX, REPEATED_MAX};
use bartizan_base::limit::LimitTrace::{NotNeeded, Told};
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::limits;

/// All bounds of this crate.
pub const LIMITS: &[LimitSpec] = limits! {
    File "depth of YAML, of `include`" = "{}, {}" [count(DEPTH_MAX), count(INCLUDE_DEPTH_MAX)]
        in ["config/yaml.rs", "config/suricata/mod.rs"], "refused with the position", [Told("the message")];
    File "nodes of a YAML document, those that aliases repeat included" = "{}" [count(NODES_MAX)] in ["config/yaml.rs"],
        "refused with the position", [Told("the message")];
    File "bytes that aliases of a YAML document repeat" = "{}" [bytes(REPEATED_MAX)] in ["config/yaml.rs"],
        "refused with the position", [Told("the message")];
    File "nesting depth of groups" = "{}" [count(GROUP_DEPTH_MAX)] in ["config/policy/resolve.rs"],
        "refused with the position", [Told("the message")];
    File "a word that is compared with known words (\"did you mean\")" = "{}" [bytes(NEAREST_MAX)]
        in ["config/policy/read.rs"], "not compared", [NotNeeded];
    File "notes listed of a suricata.yaml" = "{}" [count(NOTES_MAX)] in ["config/suricata/mod.rs"],
        "the rest is not listed", [NotNeeded];
    File "flows, hosts of the host file" = "{} to {}, {} to {}"
        [count(*FLOWS.start()), count(*FLOWS.end()), count(*HOSTS.start()), count(*HOSTS.end())] in ["config/host.rs"],
        "refused with the position", [Told("the message")];
    File "policies and tenants of a file" = "{}" [count(ITEMS_MAX)] in ["config/policy/mod.rs"],
        "refused with the position", [Told("the message")];
    File "problems listed of a policy file" = "{}" [count(PROBLEMS_MAX)] in ["config/policy/read.rs"],
        "the rest is not listed", [NotNeeded];
};
