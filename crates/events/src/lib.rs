// SPDX-License-Identifier: Apache-2.0
//! Event types to EVE JSON, schema, sinks and metrics declarations.
//!
//! The data plane fills the record structs of [`record`], each with borrowed fields and a `write` that puts
//! one EVE line into a reused [`JsonWriter`]; a [`sink::Sink`] takes the line. Records follow Suricata 8.0.8
//! in names, types, presence and order of fields; Bartizan's additions are in the one top-level object
//! `bartizan`.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod community_id;
pub mod config;
pub mod file_store;
mod harmless;
pub mod json;
pub mod limits;
pub mod metrics;
pub mod names;
pub mod output;
pub mod record;
pub mod schema;
pub mod sink;
mod text;
pub mod tls_store;
pub mod xff;

pub use config::{EveOutput, EveOutputs, HeaderOptions};
pub use file_store::{FileStoreCounters, FileStoreHandle, FileStoreOptions, FileStoreOutput};
pub use harmless::{harmless, harmless_line, is_control};
pub use json::JsonWriter;
pub use record::{BartizanFields, Common, Tuple};
pub use sink::{Sink, expand_time};
pub use text::{micros_of, time_text};
pub use tls_store::{StoredChain, TlsStore, TlsStoreCounters, TlsStoreHandle, TlsStoreOptions};

/// The Suricata version whose records these are, for `suricata_version`.
pub const SURICATA_VERSION: &str = "8.0.8";
