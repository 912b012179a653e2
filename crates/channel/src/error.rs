// SPDX-License-Identifier: Apache-2.0
//! Errors of certificates, keys and their files.

use std::path::{Path, PathBuf};

/// Why an operation on certificates failed.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// A file or folder cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file has invalid content.
    #[error("{}: {what}", path.display())]
    Content {
        /// The path.
        path: PathBuf,
        /// The error.
        what: String,
    },
    /// A certificate, request or key cannot be parsed or used.
    #[error("{0}")]
    Certificate(String),
    /// No certificate has this name or number.
    #[error("{0}")]
    Unknown(String),
}

impl ChannelError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| ChannelError::File { path, source }
    }

    pub(crate) fn certificate(what: &str) -> impl FnOnce(rcgen::Error) -> Self {
        move |error| ChannelError::Certificate(format!("{what}: {error}"))
    }
}
