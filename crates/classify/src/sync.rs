// SPDX-License-Identifier: Apache-2.0
//! The primitives by which readers and the writer of [`crate::Live`] share a version, and its sizes.
//!
//! They are a module of their own, so that the model check (`tests/model.rs`) can replace them and go
//! through the orders in which threads may see each other's steps; it uses small sizes, because it goes
//! through all.

pub(crate) use arc_swap::ArcSwap;
pub(crate) use core::hint::spin_loop;
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
pub(crate) use std::sync::OnceLock;

/// The most entries that may be added to a version.
pub(crate) const DELTA_MAX: usize = 256;
/// Roots of an address among added entries: the number of leading bits of an IPv4 address; for IPv6, of bits
/// of a hash of 32 leading bits.
pub(crate) const ROOT_BITS: u32 = 10;
