// SPDX-License-Identifier: Apache-2.0
//! Content that several protocols carry.
//!
//! - `mime`: parameters of header values, messages in parts;
//! - `decompress`: removes content encodings, one after the other; `codec`, `gzip_header`: single encodings;
//! - [`base64`]: base64 as receivers decode it;
//! - [`mod@file`], `files`, [`magic`]: content, hashes and types of files, and the files of a direction;
//! - [`certificate`]: certificates that the sides present.

pub mod base64;
pub(crate) mod bytes;
pub mod certificate;
pub(crate) mod codec;
pub(crate) mod decompress;
pub mod file;
pub(crate) mod files;
mod gzip_header;
pub mod magic;
pub(crate) mod mime;
