// SPDX-License-Identifier: Apache-2.0
//! Guards: literals without which rules cannot match a transaction, for rules that no search of a
//! transaction's buffer finds.
//!
//! Many rules have their fast pattern in the stream and ask a transaction for something common (`content:"|0d
//! 0a 0d 0a|id="; fast_pattern; http.method; content:"POST"`). Each of them is a candidate for each
//! transaction. What they ask for is the same few literals: each is looked for once, and where it is not
//! there all rules that want it are passed over.
//!
//! `compile::guards` finds them, `engine::guards` looks for them.

use crate::model::content::Literal;
use bartizan_applayer::protocol::BufferSpec;

/// So many guards have the rules on the transactions of one protocol and direction: those that most rules
/// share.
pub const GUARDS_MAX: usize = 64;

/// A literal that has to occur in a value that is there once and does not grow.
pub struct Guard {
    /// The value.
    pub spec: &'static BufferSpec,
    /// The literal; where it lies does not matter here.
    pub literal: Literal,
}
