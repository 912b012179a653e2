// SPDX-License-Identifier: Apache-2.0
//! A function's description of a flow for the flow's records, whose writer does not know the function's
//! state.

/// A function's decision on all of a flow; in detection, the would-be decision. In descending order of
/// strictness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OfFlow {
    /// The function refuses the flow.
    Refuses,
    /// The function's firewall rules accept the flow.
    Accepts,
    /// The function passes the flow.
    Passes,
}

/// A function's description of a flow. Variables have numbers: [`VariableNames`].
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowDescription<'s> {
    /// The decision on all of the flow (EVE's `flow.action`).
    pub decided: Option<OfFlow>,
    /// Bits that are set (EVE's `metadata.flowbits`).
    pub bits: &'s [u32],
    /// Numbers (`metadata.flowints`).
    pub integers: &'s [(u32, u32)],
    /// Values extracted from the traffic (`metadata.flowvars`).
    pub variables: &'s [(u32, Vec<u8>)],
    /// Entropies in bits per byte (`metadata.entropy`).
    pub measures: &'s [(u32, f64)],
}

/// The names of the numbers in a function's descriptions. All generations of the function share them, so that
/// flows of an older generation are described with current names; they keep no rules alive.
pub trait VariableNames: Send + Sync {
    /// The name of a number; `None`: the variable does not exist.
    fn name(&self, number: u32) -> Option<String>;
}
