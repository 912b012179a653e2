// SPDX-License-Identifier: Apache-2.0
//! Protocol versions as numbers and as EVE names them.
//!
//! Source: RFC 8446 section 4.2.1 and the version numbers that drafts of TLS 1.3 used.

use bartizan_events::JsonWriter;

/// No version seen yet.
pub(super) const UNKNOWN: u16 = 0;
/// SSL 2.0 (an internal number: on the wire it is 0x0002).
pub(super) const SSL2: u16 = 0x0200;
/// TLS 1.2.
pub(super) const TLS12: u16 = 0x0303;
/// TLS 1.3.
pub(super) const TLS13: u16 = 0x0304;
/// A draft of TLS 1.3 before number 16; such drafts cannot be distinguished.
pub(super) const PRE_DRAFT16: u16 = 0x7f01;

/// Whether a value is GREASE (RFC 8701), which has no meaning and must be ignored.
pub(crate) const fn is_grease(value: u16) -> bool {
    value & 0x0f0f == 0x0a0a && value >> 8 == value & 0xff
}

/// Whether a record or a hello may carry this version.
pub(super) const fn is_valid(version: u16) -> bool {
    matches!(version, 0x0300..=0x0304 | PRE_DRAFT16 | 0x7f10..=0x7f1c | 0xfb14..=0xfb17 | 0xfb1a)
}

/// EVE's name; `None` for versions without one.
pub(super) const fn name(version: u16) -> Option<&'static str> {
    Some(match version {
        UNKNOWN => "UNDETERMINED",
        SSL2 => "SSLv2",
        0x0300 => "SSLv3",
        0x0301 => "TLSv1",
        0x0302 => "TLS 1.1",
        TLS12 => "TLS 1.2",
        TLS13 => "TLS 1.3",
        PRE_DRAFT16 => "TLS 1.3 draft-<16",
        0x7f10 => "TLS 1.3 draft-16",
        0x7f11 => "TLS 1.3 draft-17",
        0x7f12 => "TLS 1.3 draft-18",
        0x7f13 => "TLS 1.3 draft-19",
        0x7f14 => "TLS 1.3 draft-20",
        0x7f15 => "TLS 1.3 draft-21",
        0x7f16 => "TLS 1.3 draft-22",
        0x7f17 => "TLS 1.3 draft-23",
        0x7f18 => "TLS 1.3 draft-24",
        0x7f19 => "TLS 1.3 draft-25",
        0x7f1a => "TLS 1.3 draft-26",
        0x7f1b => "TLS 1.3 draft-27",
        0x7f1c => "TLS 1.3 draft-28",
        0xfb14 => "TLS 1.3 draft-20-fb",
        0xfb15 => "TLS 1.3 draft-21-fb",
        0xfb16 => "TLS 1.3 draft-22-fb",
        0xfb17 => "TLS 1.3 draft-23-fb",
        0xfb1a => "TLS 1.3 draft-26-fb",
        _ => return None,
    })
}

/// Writes a version; numbers without a name are written in decimal: `1023`.
pub(super) fn log(json: &mut JsonWriter, key: &str, version: u16) {
    match name(version) {
        Some(name) => json.str(key, name),
        None => json.str(key, &version.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grease_values_are_sixteen() {
        let all: Vec<u16> = (0..=u16::MAX).filter(|v| is_grease(*v)).collect();
        assert_eq!(all.len(), 16);
        assert_eq!((all[0], all[15]), (0x0a0a, 0xfafa));
    }

    #[test]
    fn each_valid_version_has_a_name() {
        assert!((0..=u16::MAX).filter(|v| is_valid(*v)).all(|v| name(v).is_some()));
        let mut json = JsonWriter::new();
        json.begin_object();
        log(&mut json, "version", 0x03ff);
        json.end_object();
        assert_eq!(json.bytes(), br#"{"version":"1023"}"#);
    }
}
