// SPDX-License-Identifier: Apache-2.0
//! Channels between planes: who is at the other end, and bytes that nobody else reads or changes.
//!
//! * [`authority`]: the certificate authority in a folder: makes, issues, rotates, revokes;
//! * [`identity`]: a device's key, which it makes itself, and its certificate;
//! * [`certificate`]: what a certificate says;
//! * [`token`]: one-time tokens for a device's first certificate;
//! * [`tls`]: TLS 1.3 with certificates on both sides, by rustls with the primitives of ring;
//! * [`wire`]: a socket with its TLS, which never blocks.
//!
//! There is no cryptography of its own here, and no clock: times are arguments.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod authority;
pub mod certificate;
mod error;
mod files;
pub mod identity;
pub mod tls;
pub mod token;
pub mod wire;

pub use error::ChannelError;
