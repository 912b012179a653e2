// SPDX-License-Identifier: Apache-2.0
//! The program behind a flow of the stream path (docs/stream.md).

use std::sync::Arc;

/// The program that opened, or accepted, a flow whose bytes arrive without packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOrigin {
    /// Name of the guest, which is a link.
    pub guest: Arc<str>,
    /// Name of the guest at the other end, if no TCP is in between.
    pub peer_guest: Option<Arc<str>>,
    /// Number of the process.
    pub process: i32,
    /// Path of its executable; `None`: the process was gone, or may not be read.
    pub executable: Option<String>,
    /// Its control group; `None` as above.
    pub cgroup: Option<String>,
}
