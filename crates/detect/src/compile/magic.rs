// SPDX-License-Identifier: Apache-2.0
//! libmagic, which determines the type of a file.

use bartizan_applayer::magic::{Magic, MagicError};

/// The buffer that libmagic fills.
pub(crate) const BUFFER: &str = "file.magic";

/// libmagic, with the database that the settings name.
///
/// # Errors
/// libmagic or its database is missing.
pub fn libmagic(settings: &bartizan_base::SettingsMap) -> Result<Magic, MagicError> {
    Magic::of(&settings.get("magic-file").map(str::to_owned))
}
