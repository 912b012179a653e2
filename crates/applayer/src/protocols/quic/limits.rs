// SPDX-License-Identifier: Apache-2.0
//! Bounds of QUIC, for docs/limits.md.

use super::stream::{BYTES_MAX, PIECES_MAX};
use bartizan_base::Reason::AppLayerError;
use bartizan_base::limit::LimitTrace::{Event, Refused};
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::limits;

/// Limit of transactions held for a flow. They are freed once they are inspected and recorded, so only many
/// packets in one datagram reach it.
pub(super) const MAX_HELD: usize = 512;
/// Limit of connections of a flow that no server has answered yet, in prevention.
pub(super) const MAX_CONNECTIONS: usize = 32;

/// Bounds of this protocol.
pub(crate) const LIMITS: &[LimitSpec] = limits! {
    Protocol "QUIC: packets with long headers held for a flow" = "{}" [count(MAX_HELD)]
        in ["applayer/protocols/quic/limits.rs"], "the oldest are let go of; prevention leaves out those without a hello, and refuses a further hello", [Event("quic.flooded"), Refused(AppLayerError)];
    Protocol "QUIC: bytes of a hello in CRYPTO frames, separate pieces of it" = "{}, {}" [bytes(BYTES_MAX), count(PIECES_MAX)]
        in ["applayer/protocols/quic/stream.rs"], "further bytes are not held; prevention refuses", [Event("quic.crypto_frag_too_long"), Refused(AppLayerError)];
    Protocol "QUIC: connections without an answer between the same ports, in prevention" = "{}" [count(MAX_CONNECTIONS)]
        in ["applayer/protocols/quic/limits.rs"], "prevention refuses", [Event("quic.flooded"), Refused(AppLayerError)];
};
