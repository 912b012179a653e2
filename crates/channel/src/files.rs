// SPDX-License-Identifier: Apache-2.0
//! Files that are written atomically, and that other users cannot read.

use crate::ChannelError;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Mode of keys and tokens.
pub(crate) const SECRET: u32 = 0o600;

/// Mode of certificates.
pub(crate) const PUBLIC: u32 = 0o644;

/// Makes a folder that only its owner can enter, unless it exists.
pub(crate) fn make_folder(path: &Path) -> Result<(), ChannelError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(ChannelError::file(path))
}

/// Writes a file, replacing an existing one. Durable on return.
pub(crate) fn replace(folder: &Path, name: &str, mode: u32, bytes: &[u8]) -> Result<(), ChannelError> {
    let path = folder.join(name);
    let new = folder.join(format!("{name}.new"));
    let write = || {
        // A remainder of a crash may have another mode.
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(ChannelError::file(&path))
}

/// The text of a file.
pub(crate) fn read(folder: &Path, name: &str) -> Result<String, ChannelError> {
    let path = folder.join(name);
    fs::read_to_string(&path).map_err(ChannelError::file(&path))
}

/// Locks a folder for one process, until the returned file is dropped.
pub(crate) fn hold(folder: &Path) -> Result<File, ChannelError> {
    let path = folder.join("lock");
    let open = || {
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(SECRET).open(&path)?;
        file.lock()?;
        Ok(file)
    };
    open().map_err(ChannelError::file(&path))
}

/// Formats bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Random bytes from the system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], ChannelError> {
    let mut bytes = [0; N];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes)
        .map_err(|_| ChannelError::Certificate("the system provides no random numbers".to_owned()))?;
    Ok(bytes)
}
