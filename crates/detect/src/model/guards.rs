// SPDX-License-Identifier: Apache-2.0
//! Guards: literals without which rules cannot match a transaction, for rules that no search of a
//! transaction's buffer finds.
//!
//! Many rules have their fast pattern in the stream and a common condition on a transaction (`content:"|0d 0a
//! 0d 0a|id="; fast_pattern; http.method; content:"POST"`). Each of them is a candidate for each transaction.
//! Their conditions share few literals: each literal is searched once, and where it is missing, all rules
//! that need it are skipped.
//!
//! `compile::guards` chooses the guards, `engine::guards` searches them.

use crate::model::content::Literal;
use bartizan_applayer::protocol::BufferSpec;

/// Limit of guards for the rules on the transactions of one protocol and direction; the guards that most
/// rules share are kept.
pub const GUARDS_MAX: usize = 64;

/// A literal that must occur in a single value that does not grow.
pub struct Guard {
    /// The buffer of the value.
    pub spec: &'static BufferSpec,
    /// The literal; its place in the value does not matter here.
    pub literal: Literal,
}
