// SPDX-License-Identifier: Apache-2.0
//! Requirements of a rule's text, keyword by keyword, from Suricata's user guide.

use super::reading::{Reading, bytes, unquoted};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Older spellings of buffers that precede their conditions.
const STICKY: &[(&str, &str)] = &[
    ("file_data", "file.data"),
    ("dns_query", "dns.query"),
    ("tls_sni", "tls.sni"),
    ("tls_cert_issuer", "tls.cert_issuer"),
    ("tls_cert_subject", "tls.cert_subject"),
    ("tls_cert_serial", "tls.cert_serial"),
    ("tls_cert_fingerprint", "tls.cert_fingerprint"),
    ("ja3_hash", "ja3.hash"),
    ("ja3_string", "ja3.string"),
    ("http_header_names", "http.header_names"),
    ("http_request_line", "http.request_line"),
    ("http_response_line", "http.response_line"),
    ("http_protocol", "http.protocol"),
    ("http_start", "http.start"),
    ("http_content_type", "http.content_type"),
    ("http_content_len", "http.content_len"),
    ("http_accept", "http.accept"),
    ("http_accept_lang", "http.accept_lang"),
    ("http_accept_enc", "http.accept_enc"),
    ("http_connection", "http.connection"),
    ("http_referer", "http.referer"),
    ("ssh_proto", "ssh.proto"),
    ("ssh_software", "ssh.software"),
];

/// Keywords after a `content` that name its buffer, and the flags of `pcre` that do.
const BEHIND: &[(&str, char, &str)] = &[
    ("http_uri", 'U', "http.uri"),
    ("http_raw_uri", 'I', "http.uri.raw"),
    ("http_client_body", 'P', "http.request_body"),
    ("http_server_body", 'Q', "file.data"),
    ("http_header", 'H', "http.header"),
    ("http_raw_header", 'D', "http.header.raw"),
    ("http_method", 'M', "http.method"),
    ("http_cookie", 'C', "http.cookie"),
    ("http_stat_code", 'S', "http.stat_code"),
    ("http_stat_msg", 'Y', "http.stat_msg"),
    ("http_user_agent", 'V', "http.user_agent"),
    ("http_host", 'W', "http.host"),
    ("http_raw_host", 'Z', "http.host.raw"),
];

/// Keywords that describe the rule and are no condition.
const ABOUT: &[&str] = &[
    "msg",
    "sid",
    "rev",
    "gid",
    "reference",
    "classtype",
    "priority",
    "metadata",
    "target",
    "noalert",
    "rawbytes",
    "requires",
];

/// The items of each buffer, in the order of the rule.
pub type Asked = BTreeMap<String, Vec<String>>;

/// A rule's requirements, in a form that text and compiled rule have in common.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Meaning {
    pub action: String,
    pub flow: String,
    pub noalert: bool,
    pub bypass: bool,
    pub buffers: Asked,
    pub limits: usize,
    /// Other conditions and effects.
    pub others: usize,
}

#[derive(Default)]
pub struct Content {
    pub bytes: Vec<u8>,
    pub negated: bool,
    pub nocase: bool,
    pub places: [Option<String>; 4],
    pub ends: bool,
    pub fast: String,
}

impl Content {
    pub fn text(&self) -> String {
        let mut text =
            format!("content {}{}", if self.negated { "!" } else { "" }, self.bytes.escape_ascii());
        for (name, value) in ["offset", "depth", "distance", "within"].iter().zip(&self.places) {
            if let Some(value) = value {
                let _ = write!(text, " {name} {value}");
            }
        }
        for (name, is_set) in [("nocase", self.nocase), ("endswith", self.ends)] {
            text.push_str(if is_set { " " } else { "" });
            text.push_str(if is_set { name } else { "" });
        }
        text + &self.fast
    }
}

/// An item of a buffer while the text is read.
enum Piece {
    Content(Content),
    Other(String),
}

/// Reads the text: the current buffer, and the requirements so far.
struct TextReader {
    pieces: Vec<(String, Piece)>,
    sticky: Option<String>,
    transforms: String,
    base64: Option<String>,
    variables: Vec<String>,
}

impl TextReader {
    fn key(&self) -> String {
        if let Some(decoded) = &self.base64 {
            return decoded.clone();
        }
        self.sticky.clone().unwrap_or_else(|| "payload".to_owned()) + &self.transforms
    }

    fn push(&mut self, piece: Piece) {
        let key = self.key();
        self.pieces.push((key, piece));
    }

    /// Without a sticky buffer, an item that starts from the match before it is in the buffer of that match.
    fn push_positional(&mut self, text: String, relative: bool) {
        let key = match self.pieces.last() {
            Some((key, _)) if relative && self.sticky.is_none() && self.base64.is_none() => key.clone(),
            _ => self.key(),
        };
        self.pieces.push((key, Piece::Other(text)));
    }

    fn content(&mut self) -> &mut Content {
        let last = self.pieces.iter_mut().rev().find_map(|(_, piece)| match piece {
            Piece::Content(content) => Some(content),
            Piece::Other(_) => None,
        });
        last.expect("a content before its modifier")
    }

    /// A number, or a variable's name as its index among those of the rule.
    fn number(&self, text: &str) -> String {
        let text = text.trim();
        let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
        if let Some(value) = unsigned(digits) {
            let sign = if value == 0 { "" } else { sign };
            return format!("{sign}{value}");
        }
        let at = self.variables.iter().position(|name| name == text).expect("a variable of the rule");
        format!("v{at}")
    }
}

fn unsigned(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Words of a list between commas.
fn list(value: &str) -> Vec<&str> {
    value.split(',').map(str::trim).collect()
}

/// A number in a buffer, with the further options of `byte_test` and related keywords.
#[derive(Default)]
pub struct BufferNumber {
    pub relative: bool,
    pub little: bool,
    pub digits: bool,
    pub base: Option<&'static str>,
    pub bitmask: Option<u64>,
    pub rest: Vec<String>,
}

impl BufferNumber {
    fn of(options: &[&str], unset: &'static str) -> Self {
        let mut found = BufferNumber::default();
        for option in options {
            match option.to_ascii_lowercase().as_str() {
                "relative" => found.relative = true,
                "little" => found.little = true,
                "big" => {}
                "string" => found.digits = true,
                "hex" => found.base = Some("hex"),
                "dec" => found.base = Some("dec"),
                "oct" => found.base = Some("oct"),
                other => match other.strip_prefix("bitmask") {
                    Some(mask) => found.bitmask = unsigned(mask.trim()),
                    None => found.rest.push(other.split_whitespace().collect::<Vec<_>>().join(" ")),
                },
            }
        }
        if found.digits {
            found.base.get_or_insert(unset);
        }
        found.rest.sort_unstable();
        found
    }

    pub fn text(&self, bytes: &str, offset: &str) -> String {
        let how = if self.digits {
            self.base.unwrap_or_default()
        } else if self.little {
            "little"
        } else {
            "big"
        };
        let from = if self.relative { " relative" } else { "" };
        let mask = self.bitmask.map_or(String::new(), |mask| format!(" & {mask}"));
        format!("{bytes}@{offset}{from} {how}{mask}")
    }
}

/// The requirements of a rule's text. `is_buffer`: whether a name is one of a sticky buffer.
pub fn meaning_of_text(rule: &Reading, is_buffer: impl Fn(&str) -> bool) -> Meaning {
    let mut meaning = Meaning { action: rule.action.clone(), ..Meaning::default() };
    let mut reader = TextReader {
        pieces: Vec::new(),
        sticky: None,
        transforms: String::new(),
        base64: None,
        variables: Vec::new(),
    };
    for (keyword, value) in &rule.options {
        let sticky = STICKY.iter().find(|(old, _)| old == keyword).map_or(keyword.as_str(), |(_, new)| new);
        if is_buffer(sticky) && value.is_empty() {
            (reader.sticky, reader.transforms, reader.base64) =
                (Some(sticky.to_owned()), String::new(), None);
            continue;
        }
        if let Some((_, _, buffer)) = BEHIND.iter().find(|(name, ..)| name == keyword) {
            let moved = reader.pieces.last_mut().expect("a content before its buffer");
            moved.0 = (*buffer).to_owned();
            continue;
        }
        match keyword.as_str() {
            "noalert" => meaning.noalert = true,
            "bypass" => meaning.bypass = true,
            "flowbits" if value == "noalert" => meaning.noalert = true,
            "flow" => {
                let mut words: Vec<String> =
                    list(&value.to_ascii_lowercase()).into_iter().map(side).collect();
                words.sort_unstable();
                meaning.flow = words.join(",");
            }
            "threshold" | "detection_filter" => meaning.limits += 1,
            "pkt_data" => (reader.sticky, reader.transforms, reader.base64) = (None, String::new(), None),
            "base64_data" => {
                let at = reader.pieces.iter().rposition(
                    |(_, piece)| matches!(piece, Piece::Other(text) if text.starts_with("base64_decode")),
                );
                let key = &reader.pieces[at.expect("base64_decode before base64_data")].0;
                reader.base64 = Some(format!("{key} base64"));
            }
            "dotprefix"
            | "to_lowercase"
            | "to_uppercase"
            | "strip_whitespace"
            | "compress_whitespace"
            | "to_md5"
            | "to_sha1"
            | "to_sha256"
            | "url_decode"
            | "xor" => {
                reader.transforms.push_str(format!(" {keyword} {value}").trim_end());
            }
            // One protocol by number is part of the head.
            "ip_proto" if value.parse::<u8>().is_ok() => {}
            word if ABOUT.contains(&word) => {}
            _ => {
                if !in_buffer(&mut reader, keyword, value) {
                    meaning.others += 1;
                }
            }
        }
    }
    for (key, piece) in reader.pieces {
        let text = match piece {
            // Contents on values with a fixed letter case are compared in that case.
            Piece::Content(mut content) => {
                match key.as_str() {
                    "tls.cert_serial" => content.bytes.make_ascii_uppercase(),
                    "tls.cert_fingerprint" | "ja3.hash" | "ja3s.hash" => content.bytes.make_ascii_lowercase(),
                    _ => {}
                }
                content.text()
            }
            Piece::Other(text) => text,
        };
        meaning.buffers.entry(key).or_default().push(text);
    }
    meaning
}

/// A direction by one of its two names.
fn side(word: &str) -> String {
    match word {
        "from_client" => "to_server",
        "from_server" => "to_client",
        other => other,
    }
    .to_owned()
}

/// Adds a keyword on a buffer; `false`: the keyword is none.
fn in_buffer(reader: &mut TextReader, keyword: &str, value: &str) -> bool {
    let places = ["offset", "depth", "distance", "within"];
    if let Some(at) = places.iter().position(|place| *place == keyword) {
        let number = reader.number(value);
        reader.content().places[at] = Some(number);
        return true;
    }
    match keyword {
        "content" | "uricontent" => {
            let (negated, text) = unquoted(value);
            reader.push(Piece::Content(Content { bytes: bytes(text), negated, ..Content::default() }));
        }
        "nocase" => reader.content().nocase = true,
        "startswith" => {
            let content = reader.content();
            content.places[1] = Some(content.bytes.len().to_string());
        }
        "endswith" => reader.content().ends = true,
        "fast_pattern" => {
            let part = list(value).join(",");
            reader.content().fast = format!(" fast_pattern {part}").trim_end().to_owned() + " ";
        }
        "pcre" => pcre(reader, value),
        "isdataat" => {
            let (negated, value) = value.strip_prefix('!').map_or((false, value), |rest| (true, rest));
            let words = list(value);
            let relative = words.contains(&"relative");
            let at = reader.number(words[0]);
            // A negated content has no end to count from: the value must not end with it.
            if negated
                && relative
                && at == "1"
                && let Some((_, Piece::Content(content))) = reader.pieces.last_mut()
                && content.negated
            {
                content.ends = true;
                return true;
            }
            let text = format!("isdataat {}{at}{}", if negated { "!" } else { "" }, from(relative));
            reader.push_positional(text, relative);
        }
        "byte_test" => {
            let words = list(value);
            let number = BufferNumber::of(&words[4..], "auto");
            let (negated, sign) =
                words[1].strip_prefix('!').map_or(("", words[1]), |sign| ("!", sign.trim()));
            let sign = if sign.is_empty() { "=" } else { sign };
            let (bytes, offset) = (reader.number(words[0]), reader.number(words[3]));
            let value = reader.number(words[2]);
            let text = format!("byte_test {} {negated}{sign} {value}", number.text(&bytes, &offset));
            reader.push_positional(text, number.relative);
        }
        "byte_jump" => {
            let words = list(value);
            let number = BufferNumber::of(&words[2..], "auto");
            let (bytes, offset) = (reader.number(words[0]), reader.number(words[1]));
            let text = format!("byte_jump {} {}", number.text(&bytes, &offset), number.rest.join(","));
            reader.push_positional(text, number.relative);
        }
        "byte_extract" => {
            let words = list(value);
            let number = BufferNumber::of(&words[3..], "dec");
            let (bytes, offset) = (reader.number(words[0]), reader.number(words[1]));
            reader.variables.push(words[2].to_owned());
            let at = reader.variables.len() - 1;
            let text =
                format!("byte_extract {} v{at} {}", number.text(&bytes, &offset), number.rest.join(","));
            reader.push_positional(text, number.relative);
        }
        "base64_decode" => {
            let words = list(value);
            let of = |name: &str| {
                let found = words.iter().find_map(|word| word.strip_prefix(name));
                found.map_or("0", str::trim).to_owned()
            };
            let relative = words.contains(&"relative");
            let text = format!("base64_decode {}@{}{}", of("bytes"), of("offset"), from(relative));
            reader.push_positional(text, relative);
        }
        "bsize" | "urilen" => {
            if keyword == "urilen" {
                let raw = value.ends_with("raw");
                reader.sticky = None;
                let buffer = if raw { "http.uri.raw" } else { "http.uri" };
                let size = value.split(',').next().unwrap_or_default();
                reader
                    .pieces
                    .push((buffer.to_owned(), Piece::Other(format!("size {}", without_blanks(size)))));
            } else {
                reader.push(Piece::Other(format!("size {}", without_blanks(value))));
            }
        }
        "isutf8" | "entropy" => reader.push(Piece::Other("custom".to_owned())),
        _ => return false,
    }
    true
}

fn without_blanks(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_whitespace()).collect()
}

pub fn from(relative: bool) -> &'static str {
    if relative { " relative" } else { "" }
}

fn pcre(reader: &mut TextReader, value: &str) {
    let (negated, text) = unquoted(value);
    let end = text.rfind('/').expect("the end of an expression");
    let (expression, flags) = (&text[1..end], &text[end + 1..]);
    let moved = flags.chars().find_map(|flag| BEHIND.iter().find(|(_, letter, _)| *letter == flag));
    let relative = flags.contains('R');
    let of_expression: String = flags.chars().filter(|flag| "ismxAEG".contains(*flag)).collect();
    let text = format!(
        "pcre {}{expression}{}{}",
        if negated { "!" } else { "" },
        from(relative),
        sorted(&of_expression)
    );
    match moved {
        Some((_, _, buffer)) if reader.sticky.is_none() => {
            reader.pieces.push(((*buffer).to_owned(), Piece::Other(text)));
        }
        _ => reader.push(Piece::Other(text)),
    }
}

pub fn sorted(flags: &str) -> String {
    let mut letters: Vec<char> = flags.chars().collect();
    letters.sort_unstable();
    letters.into_iter().collect()
}
