// SPDX-License-Identifier: Apache-2.0
//! Properties of a rule that determine the order of evaluation besides action and priority.

/// The use of a kind of variable by a rule: writers are evaluated before readers (Suricata's order).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// No use.
    #[default]
    None,
    /// Reads.
    Read,
    /// Reads and writes.
    ReadWrite,
    /// Writes.
    Write,
}

impl Use {
    /// Combines this use with another one in the same rule.
    #[must_use]
    pub fn and(self, other: Use) -> Use {
        match (self, other) {
            (Use::None, one) | (one, Use::None) => one,
            (a, b) if a == b => a,
            _ => Use::ReadWrite,
        }
    }
}

/// Properties of a rule that determine the order of evaluation besides action and priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ordering {
    /// `flowbits`.
    pub flowbits: Use,
    /// The rule has `flowbits:set`. This does not affect the order, but rules that read the bit are evaluated
    /// again after it.
    pub sets_flowbit: bool,
    /// `flowint`.
    pub flowints: Use,
    /// Captured flow variables.
    pub flowvars: Use,
    /// Captured packet variables.
    pub pktvars: Use,
    /// Marks on hosts that affect the order: `hostbits` that write, and `xbits` of a source or destination
    /// that read.
    pub hosts: Use,
    /// Marks on pairs of hosts that affect the order: `xbits` that read.
    pub pairs: Use,
    /// The rule reads `hostbits` or `xbits`; this does not affect the order.
    pub reads_marks: bool,
}

impl Ordering {
    /// Whether the rule reads bits or numbers that other rules set.
    pub(crate) fn reads_bits(&self) -> bool {
        let reads = |of: Use| matches!(of, Use::Read | Use::ReadWrite);
        self.reads_marks || reads(self.flowbits) || reads(self.flowints)
    }
}
