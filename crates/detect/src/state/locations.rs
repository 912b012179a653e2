// SPDX-License-Identifier: Apache-2.0
//! Countries of addresses from a database in MaxMind's format (`geoip-database`), for the keyword `geoip`.

use crate::state::dataset::ListFile;
use bartizan_base::SettingsMap;
use maxminddb::{PathElement, Reader};
use std::net::IpAddr;
use std::path::PathBuf;

/// Setting that names the database.
pub const KEY: &str = "geoip-database";

/// A database of countries, in memory.
pub struct Locations(Reader<Vec<u8>>);

/// The reason why there is no database.
#[derive(Debug, thiserror::Error)]
pub enum LocationError {
    /// No database is configured.
    #[error("no database of locations is configured (`{KEY}`)")]
    NotConfigured,
    /// The database cannot be read or understood.
    #[error("cannot read the database of locations {path}: {why}", path = .0.display(), why = .1)]
    Unreadable(PathBuf, String),
}

impl Locations {
    /// Reads the database that the settings name; also returns the file.
    ///
    /// # Errors
    /// The settings name no database, or it cannot be read or understood.
    pub fn load(settings: &SettingsMap) -> Result<(Self, ListFile), LocationError> {
        let path = settings.get(KEY).map(str::trim).filter(|path| !path.is_empty());
        let path = PathBuf::from(path.ok_or(LocationError::NotConfigured)?);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) => return Err(LocationError::Unreadable(path, error.to_string())),
        };
        let list = ListFile::new(&path, &bytes);
        match Reader::from_source(bytes) {
            Ok(reader) => Ok((Locations(reader), list)),
            Err(error) => Err(LocationError::Unreadable(path, error.to_string())),
        }
    }

    /// ISO code of an address's country; `None` if the database has none.
    #[must_use]
    pub fn country(&self, address: IpAddr) -> Option<&str> {
        let path = [PathElement::Key("country"), PathElement::Key("iso_code")];
        self.0.lookup(address).ok()?.decode_path(&path).ok()?
    }
}

impl core::fmt::Debug for Locations {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Locations").field(&self.0.metadata().database_type).finish()
    }
}
