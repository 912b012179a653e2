// SPDX-License-Identifier: Apache-2.0
//! Settings of SMTP.

use crate::content::mime::message::MessageConfig;
use bartizan_base::{SettingError, SettingsMap, parse_bool};
use std::sync::Arc;

/// Settings that all flows share.
#[derive(Clone, Debug)]
pub(super) struct SmtpConfig {
    /// Messages are parsed.
    pub(super) decode_mime: bool,
    /// The whole message is a file, and is not parsed.
    pub(super) raw_extraction: bool,
    pub(super) message: Arc<MessageConfig>,
}

impl SmtpConfig {
    /// Reads the configuration.
    pub(super) fn read(settings: &SettingsMap) -> Result<Self, SettingError> {
        let raw_extraction = settings.bool("raw-extraction", false)?;
        let decode_mime = settings.bool("mime.decode-mime", true)?;
        let body_md5 = match settings.get("mime.body-md5") {
            None => false,
            Some(text) if text.eq_ignore_ascii_case("auto") => false,
            Some(text) => parse_bool(text).ok_or_else(|| SettingError {
                key: "app-layer.protocols.smtp.mime.body-md5".to_owned(),
                value: text.to_owned(),
                expected: "auto, yes or no",
            })?,
        };
        // Files are inspected in the window that all protocols share.
        for key in ["content-limit", "content-inspect-min-size", "content-inspect-window"] {
            settings.size(&format!("inspected-tracker.{key}"), 0)?;
        }
        let extracts = settings.bool("mime.extract-urls", true)?;
        let message = MessageConfig {
            decode_base64: settings.bool("mime.decode-base64", true)?,
            decode_quoted_printable: settings.bool("mime.decode-quoted-printable", true)?,
            header_value_depth: settings.number("mime.header-value-depth", 2_000)?,
            url_schemes: if extracts { schemes(settings) } else { Vec::new() },
            keep_scheme: settings.bool("mime.log-url-scheme", false)?,
            body_md5,
        };
        Ok(SmtpConfig {
            decode_mime: decode_mime && !raw_extraction,
            raw_extraction,
            message: Arc::new(message),
        })
    }
}

/// Beginnings of URLs: those of the list `extract-urls-schemes`, or that of HTTP.
fn schemes(settings: &SettingsMap) -> Vec<String> {
    const LIST: &str = "mime.extract-urls-schemes";
    let listed: Vec<String> = settings
        .children(LIST)
        .filter_map(|child| settings.get(&format!("{LIST}.{child}")))
        .map(|scheme| scheme.to_ascii_lowercase())
        .collect();
    let names = if listed.is_empty() { vec!["http".to_owned()] } else { listed };
    names.into_iter().map(|name| if name.ends_with(':') { name } else { format!("{name}://") }).collect()
}
