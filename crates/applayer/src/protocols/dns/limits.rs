// SPDX-License-Identifier: Apache-2.0
//! Bounds of DNS, for docs/limits.md.

use super::{MAX_HELD, MAX_MEMORY, MAX_SILENT, name};
use bartizan_base::limit::LimitTrace::{Nothing, Told};
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::limits;

/// Bounds of this protocol.
pub(crate) const LIMITS: &[LimitSpec] = limits! {
    Protocol "DNS: messages held for a flow" = "{}, {}" [count(MAX_HELD), bytes(MAX_MEMORY)]
        in ["applayer/protocols/dns/mod.rs"], "the oldest are let go of", [Nothing];
    Protocol "DNS: text of a name, steps to read it" = "{}, {}" [bytes(name::MAX_TEXT), count(name::MAX_STEPS)]
        in ["applayer/protocols/dns/name.rs"], "the name is cut, flagged as truncated", [Told("`rrname_truncated` in the record")];
    Rule "DNS queries remembered whose responses are not logged (`config`)" = "{} a flow" [count(MAX_SILENT)]
        in ["applayer/protocols/dns/mod.rs"], "the oldest are forgotten: their response is logged", [Nothing];
};
