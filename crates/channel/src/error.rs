// SPDX-License-Identifier: Apache-2.0
//! What can go wrong with certificates, keys and their files.

use std::path::{Path, PathBuf};

/// Why something about certificates did not work.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// A file or folder.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file has other content than it should.
    #[error("{}: {what}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A certificate, request or key that cannot be read or used.
    #[error("{0}")]
    Certificate(String),
    /// There is none of that name or number.
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
