// SPDX-License-Identifier: Apache-2.0
//! Encodings of bytes as text that contents and datasets share.

pub(crate) mod hex;
