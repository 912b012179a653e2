// SPDX-License-Identifier: Apache-2.0
//! Stores beside the events: of files and of certificates.

use crate::error::Failure;
use crate::load;
use bartizan_base::SettingsMap;
use bartizan_dataplane::eve::EveRecorder;
use bartizan_detect::needs::Needs;
use bartizan_events::file_store::{FileStoreHandle, FileStoreOutput, WhenBehind};
use bartizan_events::tls_store::{TlsStore, TlsStoreHandle};
use std::path::Path;

/// The stores that the settings enable.
pub struct Stores {
    files: Option<FileStoreOutput>,
    certificates: Option<TlsStore>,
}

/// Handles of the stores, for a recorder.
#[derive(Clone)]
pub struct StoreHandles {
    files: Option<FileStoreHandle>,
    certificates: Option<TlsStoreHandle>,
}

impl Stores {
    /// Opens the stores below a folder.
    ///
    /// # Errors
    /// A setting is malformed, or a folder cannot be made.
    pub fn open(
        settings: &SettingsMap,
        needs: &Needs,
        folder: &Path,
        behind: WhenBehind,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Failure> {
        Ok(Stores {
            files: load::file_store(settings, needs, folder, behind, warnings)?,
            certificates: load::tls_store(settings, needs, folder, behind, warnings)?,
        })
    }

    /// Handles of the stores.
    #[must_use]
    pub fn handles(&self) -> StoreHandles {
        StoreHandles {
            files: self.files.as_ref().and_then(FileStoreOutput::handle),
            certificates: self.certificates.as_ref().and_then(TlsStore::handle),
        }
    }

    /// Waits until everything is written. Returns the failures.
    pub fn finish(&mut self) -> Vec<String> {
        let files = self.files.as_mut().and_then(FileStoreOutput::finish);
        let certificates = self.certificates.as_mut().and_then(TlsStore::finish);
        files.into_iter().chain(certificates).collect()
    }
}

impl StoreHandles {
    /// Gives the handles to a recorder.
    pub fn attach(self, recorder: &mut EveRecorder) {
        recorder.keep_files(self.files);
        recorder.store_certificates_in(self.certificates);
    }
}
