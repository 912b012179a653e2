// SPDX-License-Identifier: Apache-2.0
//! The C functions that this library puts in the place of the C library's.
//!
//! Each looks whether the descriptor is a stream; if not, the C library's function gets the call as it is.
//! All pointers are the caller's, as [`crate::pointers`] says; what they demand is what the manual page of
//! the function of the same name demands, and that is the argument of every `unsafe` block in this folder.

mod connections;
mod descriptors;
mod options;
mod transfer;
mod waiting;
