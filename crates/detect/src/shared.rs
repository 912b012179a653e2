// SPDX-License-Identifier: Apache-2.0
//! State of detection that outlives a generation and belongs to no flow.

use crate::state::Names;

/// Names, thresholds, host bits, datasets; one for the whole program, shared by all workers.
#[derive(Debug, Default)]
pub struct Shared {
    /// Interned names.
    pub names: Names,
}
