// SPDX-License-Identifier: Apache-2.0
//! What a function says of a flow in the flow's records: who writes them knows no function's state.

/// What a function has decided of all of a flow; in detection, what it would have. The strictest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OfFlow {
    /// It refuses the flow.
    Refuses,
    /// Its firewall rules accept the flow.
    Accepts,
    /// It passes the flow.
    Passes,
}

/// What a function says of a flow. Variables stand there by their numbers: [`VariableNames`].
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowDescription<'s> {
    /// What it has decided of all of the flow (EVE's `flow.action`).
    pub decided: Option<OfFlow>,
    /// Bits that are set (EVE's `metadata.flowbits`).
    pub bits: &'s [u32],
    /// Numbers (`metadata.flowints`).
    pub integers: &'s [(u32, u32)],
    /// Values that were taken out of the traffic (`metadata.flowvars`).
    pub variables: &'s [(u32, Vec<u8>)],
    /// Measures in bits a byte (`metadata.entropy`).
    pub measures: &'s [(u32, f64)],
}

/// What the numbers in a function's descriptions are called. The same for all of its generations, so that
/// flows of an older one are told with the names of now; it keeps no rules alive.
pub trait VariableNames: Send + Sync {
    /// The name of a number; `None`: there is no such variable.
    fn name(&self, number: u32) -> Option<String>;
}
