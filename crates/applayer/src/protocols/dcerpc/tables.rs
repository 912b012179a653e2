// SPDX-License-Identifier: Apache-2.0
//! Progress values, bounds, buffers and settings of DCERPC.

use crate::protocol::{BufferKind, BufferSpec, buffer};

/// Progress of a direction that is complete.
pub(super) const COMPLETE: u8 = 1;

/// The arguments of a request, or the results.
pub(super) const STUB: u16 = 0;

pub(super) const BUFFERS: &[BufferSpec] =
    &[buffer(STUB, "dcerpc.stub_data", true, true, COMPLETE, BufferKind::Single).of_state(0)];

/// Default of `max-tx`.
pub(super) const TX_MAX: usize = 1_024;
/// Default of `max-stub-size`.
pub(super) const STUB_MAX: usize = 1 << 20;
/// Limit of the interfaces of a connection.
pub(super) const INTERFACES_MAX: usize = 256;

/// Settings that all flows share.
#[derive(Clone, Copy, Debug)]
pub(super) struct RpcConfig {
    pub(super) max_tx: usize,
    pub(super) stub: usize,
}

/// Whether a representation of data is one that exists: byte order and characters, floating point.
pub(super) const fn is_representation(first: u8, second: u8) -> bool {
    first & 0xee == 0 && second <= 3
}
