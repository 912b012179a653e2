// SPDX-License-Identifier: Apache-2.0
//! Bounds of QUIC, for docs/limits.md.

use super::MAX_HELD;
use super::stream::{BYTES_MAX, PIECES_MAX};
use bartizan_base::limit::{LimitSpec, LimitTrace, bytes, count};
use bartizan_base::limits;

/// Bounds of this protocol.
pub(crate) const LIMITS: &[LimitSpec] = limits! {
    Protocol "QUIC: packets with long headers held for a flow" = "{}" [count(MAX_HELD)]
        in ["applayer/protocols/quic/mod.rs"], "the oldest are let go of", [LimitTrace::Event("quic.flooded")];
    Protocol "QUIC: bytes of a hello in CRYPTO frames, separate pieces of it" = "{}, {}" [bytes(BYTES_MAX), count(PIECES_MAX)]
        in ["applayer/protocols/quic/stream.rs"], "further bytes are not held", [LimitTrace::Event("quic.crypto_frag_too_long")];
};
