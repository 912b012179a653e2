// SPDX-License-Identifier: Apache-2.0
//! Settings of the HTTP parser: `app-layer.protocols.http.libhtp.default-config.*`, with Suricata's names and
//! defaults.
//!
//! Not supported: `server-config` (settings by server address; the parse context has no addresses), flash
//! decompression, randomised inspection sizes (results must not depend on chance).

use bartizan_base::{SettingError, SettingsMap};

/// Treatment of an invalid percent encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum InvalidEncoding {
    /// The percent sign stays.
    #[default]
    Keep,
    /// The percent sign is removed.
    Remove,
    /// Any two characters are computed into a byte.
    Decode,
}

/// Normalisation of URIs.
#[derive(Clone, Debug)]
pub(super) struct UriSettings {
    pub backslash_to_slash: bool,
    pub lowercase: bool,
    pub compress_separators: bool,
    pub decode_separators: bool,
    pub plus_to_space: bool,
    pub raw_nul_ends: bool,
    pub encoded_nul_ends: bool,
    pub decode_u: bool,
    pub invalid: InvalidEncoding,
    pub utf8_bestfit: bool,
    pub replacement: u8,
    pub allow_space: bool,
    pub double_decode_path: bool,
    pub double_decode_query: bool,
    pub include_all: bool,
}

impl Default for UriSettings {
    fn default() -> Self {
        UriSettings {
            backslash_to_slash: false,
            lowercase: false,
            compress_separators: false,
            decode_separators: false,
            plus_to_space: false,
            raw_nul_ends: false,
            encoded_nul_ends: false,
            decode_u: false,
            invalid: InvalidEncoding::Keep,
            utf8_bestfit: false,
            replacement: b'?',
            allow_space: true,
            double_decode_path: false,
            double_decode_query: false,
            include_all: false,
        }
    }
}

/// Limits of one direction's bodies, in bytes; 0 is no limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodySettings {
    /// Bytes kept and inspected.
    pub limit: u64,
    /// Minimum size, in bytes, from which a growing body is inspected.
    pub inspect_from: u64,
    /// Bytes of already inspected data that stay in the window.
    pub window: u64,
}

/// All settings.
#[derive(Clone, Debug)]
pub(super) struct HttpSettings {
    pub uri: UriSettings,
    pub request: BodySettings,
    pub response: BodySettings,
    /// Limit of a line or header field, in bytes.
    pub field_limit: usize,
    /// Limit of the headers of one message.
    pub headers_limit: usize,
    /// Limit of content encodings that are removed; `None`: no limit.
    pub layer_limit: Option<u32>,
    /// Limit of LZMA encodings among the removed content encodings; `None`: no limit.
    pub lzma_layers: Option<u32>,
    /// Decompressed bytes from which the ratio is checked.
    pub bomb_limit: u64,
    /// Number of bodies in a flow above that limit after which an event is raised.
    pub bomb_count: u32,
    /// Limit of transactions at a time.
    pub max_tx: usize,
    /// The request line ends at a NUL.
    pub nul_ends_request_line: bool,
    /// White space before the method belongs to it.
    pub keep_leading_space: bool,
    /// Rules see bodies as they grow, without a minimum size (`inspect_from`).
    pub body_inline: bool,
    /// Prevention is on: a message that receivers read differently is an error
    /// ([`super::headers::RawField::is_ambiguous`]).
    pub strict: bool,
}

impl Default for HttpSettings {
    fn default() -> Self {
        let body = BodySettings { limit: 4096, inspect_from: 32_768, window: 4096 };
        HttpSettings {
            uri: UriSettings::default(),
            request: body,
            response: body,
            field_limit: 18_000,
            headers_limit: 1024,
            layer_limit: Some(2),
            lzma_layers: None,
            bomb_limit: 1 << 20,
            bomb_count: 3,
            max_tx: 512,
            nul_ends_request_line: false,
            keep_leading_space: false,
            body_inline: false,
            strict: false,
        }
    }
}

const PREFIX: &str = "libhtp.default-config.";

impl HttpSettings {
    /// Reads the settings.
    pub(super) fn read(settings: &SettingsMap) -> Result<Self, SettingError> {
        let mut read = HttpSettings::default();
        let key = |name: &str| format!("{PREFIX}{name}");
        if let Some(personality) = settings.get(&key("personality")) {
            read.personality(personality, &key("personality"))?;
        }
        for (side, body) in [("request", &mut read.request), ("response", &mut read.response)] {
            body.limit = settings.size(&key(&format!("{side}-body-limit")), body.limit)?;
            body.inspect_from =
                settings.size(&key(&format!("{side}-body-minimal-inspect-size")), body.inspect_from)?;
            body.window = settings.size(&key(&format!("{side}-body-inspect-window")), body.window)?;
        }
        let field_limit = settings.size(&key("meta-field-limit"), read.field_limit as u64)?;
        read.field_limit = usize::try_from(field_limit).unwrap_or(usize::MAX).max(1);
        read.max_tx = settings.number(&key("max-tx"), read.max_tx)?;
        read.headers_limit = settings.number(&key("headers-limit"), read.headers_limit)?;
        read.bomb_limit = settings.size(&key("compression-bomb-limit"), read.bomb_limit)?;
        read.bomb_count = settings.number(&key("compression-bomb-count"), read.bomb_count)?.max(1);
        let layers: i64 = settings.number(&key("response-body-decompress-layer-limit"), 2)?;
        read.layer_limit = u32::try_from(layers).ok().filter(|n| *n > 0);
        if let Some(text) = settings.get(&key("lzma-enabled")) {
            read.lzma_layers = match bartizan_base::parse_bool(text) {
                Some(true) => Some(1),
                Some(false) => None,
                None => {
                    let layers = text.trim().parse::<u32>();
                    let layers = layers
                        .map_err(|_| error(&key("lzma-enabled"), text, "yes, no or a number of layers"))?;
                    Some(layers).filter(|n| *n > 0)
                }
            };
        }
        let mode = settings.get(&key("http-body-inline")).unwrap_or("auto");
        // `auto` follows the engine's mode, which the maker of the parser adds as `inline`.
        read.body_inline = match bartizan_base::parse_bool(mode) {
            Some(inline) => inline,
            None if mode.trim().eq_ignore_ascii_case("auto") => settings.bool("inline", false)?,
            None => return Err(error(&key("http-body-inline"), mode, "yes, no or auto")),
        };
        // The maker of the parser sets this, too.
        read.strict = settings.bool("strict", false)?;
        read.read_uri(settings)?;
        Ok(read)
    }

    fn read_uri(&mut self, settings: &SettingsMap) -> Result<(), SettingError> {
        let uri = &mut self.uri;
        let flags: [(&str, &mut bool); 13] = [
            ("path-convert-backslash-separators", &mut uri.backslash_to_slash),
            ("path-convert-lowercase", &mut uri.lowercase),
            ("path-nul-encoded-terminates", &mut uri.encoded_nul_ends),
            ("path-nul-raw-terminates", &mut uri.raw_nul_ends),
            ("path-separators-compress", &mut uri.compress_separators),
            ("path-separators-decode", &mut uri.decode_separators),
            ("path-u-encoding-decode", &mut uri.decode_u),
            ("path-utf8-convert-bestfit", &mut uri.utf8_bestfit),
            ("uri-include-all", &mut uri.include_all),
            ("query-plusspace-decode", &mut uri.plus_to_space),
            ("double-decode-path", &mut uri.double_decode_path),
            ("double-decode-query", &mut uri.double_decode_query),
            ("allow-space-uri", &mut uri.allow_space),
        ];
        for (name, flag) in flags {
            *flag = settings.bool(&format!("{PREFIX}{name}"), *flag)?;
        }
        let key = format!("{PREFIX}path-url-encoding-invalid-handling");
        if let Some(text) = settings.get(&key) {
            uri.invalid = match text.to_ascii_lowercase().as_str() {
                "preserve_percent" => InvalidEncoding::Keep,
                "remove_percent" => InvalidEncoding::Remove,
                "decode_invalid" => InvalidEncoding::Decode,
                _ => return Err(error(&key, text, "preserve_percent, remove_percent or decode_invalid")),
            };
        }
        let key = format!("{PREFIX}path-bestfit-replacement-char");
        if let Some(text) = settings.get(&key) {
            let [byte] = text.as_bytes() else { return Err(error(&key, text, "one character")) };
            uri.replacement = *byte;
        }
        Ok(())
    }

    fn personality(&mut self, name: &str, key: &str) -> Result<(), SettingError> {
        let upper = name.to_ascii_uppercase();
        let uri = &mut self.uri;
        match upper.as_str() {
            "MINIMAL" => {}
            "APACHE" | "APACHE_2" | "APACHE_2_2" => {
                uri.compress_separators = true;
                self.nul_ends_request_line = true;
                self.keep_leading_space = true;
            }
            "GENERIC" | "IDS" | "IIS_4_0" | "IIS_5_0" | "IIS_5_1" | "IIS_6_0" | "IIS_7_0" | "IIS_7_5" => {
                uri.backslash_to_slash = true;
                uri.decode_separators = true;
                uri.compress_separators = true;
                uri.decode_u = matches!(upper.as_str(), "IDS" | "IIS_6_0" | "IIS_7_0" | "IIS_7_5");
                uri.utf8_bestfit = upper == "IDS";
            }
            _ => {
                return Err(error(
                    key,
                    name,
                    "a server personality such as IDS, Generic, Apache_2 or IIS_7_5",
                ));
            }
        }
        Ok(())
    }
}

fn error(key: &str, value: &str, expected: &'static str) -> SettingError {
    SettingError { key: format!("app-layer.protocols.http.{key}"), value: value.to_owned(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_settings_are_understood() {
        let mut s = SettingsMap::new();
        s.set("libhtp.default-config.personality", "IDS");
        s.set("libhtp.default-config.request-body-limit", "100 KiB");
        s.set("libhtp.default-config.response-body-decompress-layer-limit", "3");
        s.set("libhtp.default-config.http-body-inline", "auto");
        s.set("libhtp.default-config.double-decode-path", "yes");
        let read = HttpSettings::read(&s).expect("valid");
        assert!(read.uri.backslash_to_slash && read.uri.utf8_bestfit && read.uri.double_decode_path);
        assert!(!read.uri.lowercase);
        assert_eq!(read.request.limit, 102_400);
        assert_eq!(read.response.limit, 4096);
        assert_eq!(read.layer_limit, Some(3));
        assert!(!read.body_inline);
        s.set("libhtp.default-config.personality", "Nginx");
        assert!(HttpSettings::read(&s).is_err());
    }
}
