// SPDX-License-Identifier: Apache-2.0
//! Handles of open files and pipes, and the text of GUIDs.

use crate::memory::Held;

/// The handle of an open file or pipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum FileId {
    /// There is none.
    #[default]
    None,
    /// SMB1: a number within a session.
    Number { file: u16, session: u64 },
    /// SMB2: a number of 16 bytes.
    Long([u8; 16]),
    /// SMB2, in prevention: the file that an earlier request of the same message opens, whose number is not
    /// known yet.
    Opened { session: u64, message: u64 },
}

/// The number by which a related request names the file of the request before it ([MS-SMB2] section
/// 3.2.4.1.4).
const SAME_FILE: [u8; 16] = [0xff; 16];

impl Held for FileId {
    fn held(&self) -> usize {
        0
    }
}

impl FileId {
    pub(super) const SAME: FileId = FileId::Long(SAME_FILE);

    /// The text in records.
    pub(super) fn text(&self) -> String {
        match self {
            FileId::None => String::new(),
            FileId::Number { file, .. } => format!("{file:04x}"),
            FileId::Long(bytes) => guid(bytes),
            FileId::Opened { .. } => guid(&SAME_FILE),
        }
    }
}

/// The text of 16 bytes as Suricata writes it: four groups, each as a little-endian number.
pub(super) fn guid(bytes: &[u8; 16]) -> String {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
    let first = u32::from_le_bytes([a, b, c, d]);
    let [e, g, i, k] = [[e, f], [g, h], [i, j], [k, l]].map(u16::from_le_bytes);
    let last = u32::from_le_bytes([m, n, o, p]);
    format!("{first:08x}-{e:04x}-{g:04x}-{i:04x}-{k:04x}{last:08x}")
}
