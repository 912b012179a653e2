// SPDX-License-Identifier: Apache-2.0
//! What the order of evaluation depends on besides action and priority.

/// How a rule uses a kind of variable: rules that write come before those that read (Suricata's order).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// Not at all.
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
    /// This use and another one in the same rule.
    #[must_use]
    pub fn and(self, other: Use) -> Use {
        match (self, other) {
            (Use::None, one) | (one, Use::None) => one,
            (a, b) if a == b => a,
            _ => Use::ReadWrite,
        }
    }
}

/// What the order of evaluation depends on besides action and priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ordering {
    /// `flowbits`.
    pub flowbits: Use,
    /// `flowbits:set`: not part of the order, but rules that ask for the bit are asked again behind it.
    pub sets_flowbit: bool,
    /// `flowint`.
    pub flowints: Use,
    /// Captured flow variables.
    pub flowvars: Use,
    /// Captured packet variables.
    pub pktvars: Use,
    /// Marks on hosts, as far as they count: `hostbits` that write, and `xbits` of a source or destination
    /// that read.
    pub hosts: Use,
    /// Marks on pairs of hosts, as far as they count: `xbits` that read.
    pub pairs: Use,
    /// `hostbits` or `xbits` are asked for: not part of the order.
    pub reads_marks: bool,
}

impl Ordering {
    /// Whether the rule asks for bits or numbers that others set.
    pub(crate) fn reads_bits(&self) -> bool {
        let reads = |of: Use| matches!(of, Use::Read | Use::ReadWrite);
        self.reads_marks || reads(self.flowbits) || reads(self.flowints)
    }
}
