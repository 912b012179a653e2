// SPDX-License-Identifier: Apache-2.0
//! Content that protocols carry, whichever protocol it is: what several of them share and none owns.
//!
//! - `mime`: parameters of header values, messages in parts;
//! - `decompress`: content encodings undone, one after the other; `codec`, `gzip_header`: single encodings;
//! - [`base64`]: as receivers read it;
//! - [`mod@file`], `files`, [`magic`]: files: content, hashes, kinds; those of a direction;
//! - [`certificate`]: certificates that the sides show.

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
