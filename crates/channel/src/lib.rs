// SPDX-License-Identifier: Apache-2.0
//! Channels between planes: mutual authentication and TLS.
//!
//! * [`authority`]: the certificate authority in a folder: makes, issues, rotates, revokes;
//! * [`identity`]: a device's key, which the device makes itself, and its certificate;
//! * [`certificate`]: facts read from certificates;
//! * [`token`]: one-time tokens for a device's first certificate;
//! * [`tls`]: TLS 1.3 with certificates on both sides, by rustls with the primitives of ring;
//! * [`wire`]: a non-blocking socket with TLS.
//!
//! The crate implements no cryptography of its own, and reads no clock: times are arguments.
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
