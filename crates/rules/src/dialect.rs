// SPDX-License-Identifier: Apache-2.0
//! Rules for other engines: recognises their dialect by a keyword, so that a refusal can name it instead of
//! "unknown keyword". Sources: the Snort 2.9 and Snort 3 rule manuals, the Sagan rule reference. Such rules
//! are not translated.

use core::fmt;

/// A rule language related to Suricata's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Snort 2, for features that Snort 3 and Suricata dropped.
    Snort2,
    /// Snort 3.
    Snort3,
    /// Both versions of Snort; never Suricata.
    Snort,
    /// Sagan, which reads log lines.
    Sagan,
}

impl Dialect {
    /// The name for messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Dialect::Snort2 => "Snort 2",
            Dialect::Snort3 => "Snort 3",
            Dialect::Snort => "Snort",
            Dialect::Sagan => "Sagan",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

const SNORT2: &[&str] = &[
    "activated_by",
    "activates",
    "count",
    "cvs",
    "ftpbounce_alert",
    "hash",
    "length",
    "logto",
    "protected_content",
    "react",
    "resp",
    "session",
];

const SNORT: &[&str] = &[
    "appid",
    "appids",
    "gtp_info",
    "gtp_type",
    "gtp_version",
    "modbus_data",
    "modbus_func",
    "modbus_unit",
    "sd_pattern",
    "sip_body",
    "sip_header",
    "sip_stat_code",
    "soid",
    "stream_reassemble",
];

const SNORT3: &[&str] = &[
    "ber_data",
    "ber_skip",
    "bufferlen",
    "cip_attribute",
    "cip_class",
    "cip_conn_path_class",
    "cip_instance",
    "cip_req",
    "cip_rsp",
    "cip_status",
    "enable",
    "enip_req",
    "enip_rsp",
    "file_meta",
    "file_type",
    "http_header_test",
    "http_max_header_line",
    "http_max_trailer_line",
    "http_num_cookies",
    "http_num_headers",
    "http_num_trailers",
    "http_param",
    "http_raw_body",
    "http_raw_cookie",
    "http_raw_request",
    "http_raw_status",
    "http_raw_trailer",
    "http_trailer",
    "http_trailer_test",
    "http_true_ip",
    "http_version",
    "http_version_match",
    "iec104_apci_type",
    "iec104_asdu_func",
    "js_data",
    "mms_data",
    "mms_func",
    "opcua_msg_service",
    "opcua_msg_type",
    "opcua_node_id",
    "opcua_node_namespace_index",
    "raw_data",
    "regex",
    "rem",
    "s7commplus_content",
    "s7commplus_func",
    "s7commplus_opcode",
    "service",
    "sha256",
    "sha512",
    "so",
    "vba_data",
    "wscale",
];

const SAGAN: &[&str] = &[
    "after",
    "aetas",
    "alert_time",
    "append_program",
    "blacklist",
    "bluedot",
    "country_code",
    "default_dst_port",
    "default_proto",
    "default_src_port",
    "dynamic_load",
    "email",
    "event_id",
    "event_type",
    "external",
    "facility",
    "flexbits",
    "json_content",
    "json_contains",
    "json_map",
    "json_meta_content",
    "json_pcre",
    "json_strstr",
    "level",
    "meta_content",
    "meta_nocase",
    "meta_offset",
    "normalize",
    "parse_dst_ip",
    "parse_hash",
    "parse_port",
    "parse_proto",
    "parse_proto_program",
    "parse_src_ip",
    "pri",
    "program",
    "syslog_facility",
    "syslog_level",
    "syslog_priority",
    "syslog_tag",
    "zeek-intel",
];

/// The dialect that a keyword belongs to; `None` if the keyword indicates none.
#[must_use]
pub fn dialect_of(keyword: &str) -> Option<Dialect> {
    let has = |list: &[&str]| list.iter().any(|k| k.eq_ignore_ascii_case(keyword));
    if has(SAGAN) {
        Some(Dialect::Sagan)
    } else if has(SNORT3) {
        Some(Dialect::Snort3)
    } else if has(SNORT2) {
        Some(Dialect::Snort2)
    } else if has(SNORT) {
        Some(Dialect::Snort)
    } else {
        None
    }
}

/// The dialect that the argument of a shared keyword indicates: Snort 3 puts modifiers after a comma
/// (`content:"a",nocase`) and gives its buffers arguments (`http_header: field host`); Suricata has neither.
#[must_use]
pub fn dialect_of_argument(keyword: &str, value: Option<&[u8]>) -> Option<Dialect> {
    const BUFFERS: &[&str] = &[
        "http_uri",
        "http_raw_uri",
        "http_header",
        "http_raw_header",
        "http_cookie",
        "http_method",
        "http_client_body",
        "http_stat_code",
        "http_stat_msg",
    ];
    let value = value?;
    let buffer = BUFFERS.iter().any(|b| keyword.eq_ignore_ascii_case(b));
    let modified = keyword.eq_ignore_ascii_case("content") && modifiers_behind_comma(value);
    (modified || (buffer && !value.trim_ascii().is_empty())).then_some(Dialect::Snort3)
}

/// Whether a comma and a word follow a quoted value: `"abc",nocase` or `"abc", depth 4`.
fn modifiers_behind_comma(value: &[u8]) -> bool {
    let mut escaped = false;
    let mut quotes = 0;
    for (at, byte) in value.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => {
                quotes += 1;
                if quotes == 2 {
                    let rest = value.get(at + 1..).unwrap_or_default().trim_ascii_start();
                    return matches!(rest, [b',', tail @ ..]
                        if tail.trim_ascii_start().first().is_some_and(u8::is_ascii_alphabetic));
                }
            }
            _ => {}
        }
    }
    false
}

/// The dialect of a foreign action, and advice for Suricata's equivalent.
#[must_use]
pub fn dialect_of_action(action: &str) -> Option<(Dialect, &'static str)> {
    let lower = action.to_ascii_lowercase();
    Some(match lower.as_str() {
        "block" => (Dialect::Snort3, "write `drop`"),
        "log" => (Dialect::Snort, "write `alert`"),
        "sdrop" => (Dialect::Snort2, "write `drop` with the keyword `noalert`"),
        "react" => (Dialect::Snort3, "write `reject`"),
        "rewrite" => (Dialect::Snort3, "write `alert` with the keyword `replace`"),
        "activate" | "dynamic" => (Dialect::Snort2, "use `flowbits` or `xbits`"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_give_their_dialect_away() {
        assert_eq!(dialect_of("parse_src_ip"), Some(Dialect::Sagan));
        assert_eq!(dialect_of("NORMALIZE"), Some(Dialect::Sagan));
        assert_eq!(dialect_of("js_data"), Some(Dialect::Snort3));
        assert_eq!(dialect_of("protected_content"), Some(Dialect::Snort2));
        assert_eq!(dialect_of("sd_pattern"), Some(Dialect::Snort));
        assert_eq!(dialect_of("content"), None);
    }

    #[test]
    fn arguments_give_snort3_away() {
        let of = |k, v: &str| dialect_of_argument(k, Some(v.as_bytes()));
        assert_eq!(of("content", r#""a,b",nocase"#), Some(Dialect::Snort3));
        assert_eq!(of("content", r#"!"a\",b""#), None);
        assert_eq!(of("http_header", " field host"), Some(Dialect::Snort3));
        assert_eq!(dialect_of_argument("http_header", None), None);
        assert_eq!(dialect_of_action("block").map(|d| d.0), Some(Dialect::Snort3));
    }
}
