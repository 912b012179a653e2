// SPDX-License-Identifier: Apache-2.0
//! Encodings of bytes as text that contents, datasets and transforms share.

pub mod base64;
pub(crate) mod hex;
