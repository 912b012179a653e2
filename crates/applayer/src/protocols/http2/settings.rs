// SPDX-License-Identifier: Apache-2.0
//! Settings of HTTP/2 (`app-layer.protocols.http2.*`), with Suricata's names and defaults.

use bartizan_base::{SettingError, SettingsMap};

/// Default of `max-streams`.
pub(super) const STREAMS_MAX: usize = 256;
/// Default of `max-table-size`.
pub(super) const TABLE_MAX: usize = 65_536;
/// Default of `max-reassembly-size`.
pub(super) const BLOCK_MAX: usize = 102_400;
/// Default of `max-frames`.
pub(super) const FRAMES_MAX: u32 = 65_536;
/// Default of `compression-bomb-limit`.
pub(super) const BOMB_LIMIT: u64 = 1 << 20;

/// The settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Http2Settings {
    /// Limit of the transactions that a flow holds.
    pub(super) streams: usize,
    /// Limit of a table of fields, in bytes.
    pub(super) table: usize,
    /// Limit of a block of fields in several frames, in bytes.
    pub(super) block: usize,
    /// Limit of the frames of a transaction in a direction.
    pub(super) frames: u32,
    /// Decompressed bytes beyond which the ratio to the compressed ones is limited.
    pub(super) bomb: u64,
}

impl Http2Settings {
    pub(super) fn read(settings: &SettingsMap) -> Result<Self, SettingError> {
        let size = |key: &str, default: usize| -> Result<usize, SettingError> {
            Ok(usize::try_from(settings.size(key, default as u64)?).unwrap_or(usize::MAX))
        };
        // Without effect: rules on HTTP apply to HTTP/2 in any case.
        settings.mark_read("http1-rules");
        Ok(Http2Settings {
            streams: settings.number("max-streams", STREAMS_MAX)?.max(1),
            table: size("max-table-size", TABLE_MAX)?,
            block: size("max-reassembly-size", BLOCK_MAX)?,
            frames: settings.number("max-frames", FRAMES_MAX)?.max(1),
            bomb: settings.size("compression-bomb-limit", BOMB_LIMIT)?,
        })
    }
}
