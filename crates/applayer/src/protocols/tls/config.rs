// SPDX-License-Identifier: Apache-2.0
//! Settings of TLS.

use bartizan_base::{SettingError, SettingsMap, parse_bool};

/// The setting on which JA3 is computed.
pub(super) const JA3: &str = "ja3-fingerprints";

/// Condition for making a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fingerprint {
    Off,
    /// For rules only.
    Auto,
    On,
}

impl Fingerprint {
    fn read(settings: &SettingsMap, key: &str) -> Result<Self, SettingError> {
        match settings.get(key) {
            None => Ok(Fingerprint::Auto),
            Some(text) if text.eq_ignore_ascii_case("auto") => Ok(Fingerprint::Auto),
            Some(text) => match parse_bool(text) {
                Some(true) => Ok(Fingerprint::On),
                Some(false) => Ok(Fingerprint::Off),
                None => Err(error(key, text, "auto, yes or no")),
            },
        }
    }

    pub(super) fn computed(self) -> bool {
        self != Fingerprint::Off
    }

    pub(super) fn logged(self) -> bool {
        self == Fingerprint::On
    }
}

/// Treatment of encrypted sessions (`encryption-handling`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encryption {
    /// Records are parsed, payload is not inspected.
    TrackOnly,
    /// The flow is bypassed.
    Bypass,
    /// The flow is inspected as any other flow.
    Full,
}

/// Settings that all flows share.
#[derive(Debug)]
pub(super) struct TlsParserConfig {
    pub(super) ja3: Fingerprint,
    /// Rules may inspect JA4.
    pub(super) ja4: bool,
    pub(super) encryption: Encryption,
}

impl TlsParserConfig {
    /// Reads the configuration.
    pub(super) fn read(settings: &SettingsMap) -> Result<Self, SettingError> {
        let encryption = match settings.get("encryption-handling") {
            Some("full") => Encryption::Full,
            Some("bypass") => Encryption::Bypass,
            Some("track-only" | "default") => Encryption::TrackOnly,
            Some(other) => {
                return Err(error("encryption-handling", other, "track-only, bypass or full"));
            }
            None if settings.bool("no-reassemble", false)? => Encryption::Bypass,
            None => Encryption::TrackOnly,
        };
        Ok(TlsParserConfig {
            ja3: Fingerprint::read(settings, JA3)?,
            ja4: Fingerprint::read(settings, "ja4-fingerprints")?.computed(),
            encryption,
        })
    }

    pub(super) fn bypass(&self) -> bool {
        self.encryption == Encryption::Bypass
    }

    pub(super) fn full_inspection(&self) -> bool {
        self.encryption == Encryption::Full
    }
}

fn error(key: &str, value: &str, expected: &'static str) -> SettingError {
    SettingError { key: format!("app-layer.protocols.tls.{key}"), value: value.to_owned(), expected }
}
