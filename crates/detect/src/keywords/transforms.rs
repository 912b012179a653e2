// SPDX-License-Identifier: Apache-2.0
//! Transforms of a sticky buffer before it is matched. They stand between the buffer's keyword and the first
//! match and apply in order.
//!
//! A transform that fails (no group of `pcrexform` matched, or an empty one, no base64) leaves the buffer
//! unchanged; `gunzip` and `zlib_deflate` leave nothing. An empty value stays empty. Sources: Suricata 8's
//! user guide ("Transformations"), RFC 3986 section 2.1, RFC 1950, RFC 1952. `domain` and `tld` use the
//! public suffix list that was current when the program was built. Not supported: Lua (`luaxform`).

use super::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, RefusalCode, Role};
use crate::model::condition::Transform;
use bartizan_applayer::content::base64::{Base64Mode, decode};
use bartizan_pattern::{JitMode, Limits, MatchOptions, Regex, RegexFlags, Scratch};
use flate2::read::{GzDecoder, ZlibDecoder};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::io::Read;
use std::sync::Arc;

macro_rules! simple {
    ($(($name:literal, $summary:literal, $apply:expr)),* $(,)?) => {
        &[
            $(Keyword {
                name: $name,
                aliases: &[],
                summary: $summary,
                argument: Argument::None,
                role: Role::Condition,
                syntax: $name,
                example: concat!("alert http any any -> any any (msg:\"transform\"; http.request_body; ", $name, "; content:\"|01|\"; sid:1;)"),
                note: "",
                parse: |builder, _| {
                    builder.push_transform(Arc::new(Simple { name: $name, apply: $apply }), $name)
                },
            },)*
            Keyword {
                name: "xor",
                aliases: &[],
                summary: "Exclusive or with a key in hexadecimal digits: `xor:\"0d0a\";`.",
                argument: Argument::Required,
                role: Role::Condition,
                syntax: r#"xor:"HEX""#,
                example: r#"alert http any any -> any any (msg:"xor"; http.request_body; xor:"0d0a"; content:"x"; sid:1;)"#,
                note: "",
                parse: xor,
            },
            Keyword {
                name: "pcrexform",
                aliases: &[],
                summary: "The first group of a regular expression: `pcrexform:\"id=(\\w+)\";`.",
                argument: Argument::Required,
                role: Role::Condition,
                syntax: r#"pcrexform:"EXPRESSION""#,
                example: r#"alert http any any -> any any (msg:"pcrexform"; http.uri; pcrexform:"id=(\w+)"; content:"x"; sid:1;)"#,
                note: "",
                parse: pcrexform,
            },
            Keyword {
                name: "from_base64",
                aliases: &[],
                summary: "Decodes base64: `from_base64:offset 3,bytes 20,mode rfc4648;`.",
                argument: Argument::Optional,
                role: Role::Condition,
                syntax: "from_base64[:bytes N][, offset N][, mode rfc2045|rfc4648|strict]",
                example: r#"alert http any any -> any any (msg:"from_base64"; http.uri; from_base64:offset 3, bytes 20; content:"x"; sid:1;)"#,
                note: "",
                parse: from_base64,
            },
            Keyword {
                name: "gunzip",
                aliases: &[],
                summary: "Decompresses gzip, up to `max-size` bytes (1024 unless given).",
                argument: Argument::Optional,
                role: Role::Condition,
                syntax: "gunzip[:max-size N]",
                example: r#"alert http any any -> any any (msg:"gunzip"; http.request_body; gunzip; content:"x"; sid:1;)"#,
                note: "`max-size` is at most 16 MiB.",
                parse: gunzip,
            },
            Keyword {
                name: "zlib_deflate",
                aliases: &[],
                summary: "Decompresses zlib, up to `max-size` bytes (1024 unless given).",
                argument: Argument::Optional,
                role: Role::Condition,
                syntax: "zlib_deflate[:max-size N]",
                example: r#"alert http any any -> any any (msg:"zlib_deflate"; http.request_body; zlib_deflate; content:"x"; sid:1;)"#,
                note: "`max-size` is at most 16 MiB.",
                parse: zlib,
            },
        ]
    };
}

/// The keywords.
pub const KEYWORDS: &[Keyword] = simple![
    ("to_lowercase", "Converts letters to lower case.", |input, out| out
        .extend(input.iter().map(u8::to_ascii_lowercase))),
    ("to_uppercase", "Converts letters to upper case.", |input, out| out
        .extend(input.iter().map(u8::to_ascii_uppercase))),
    ("strip_whitespace", "Removes white space.", |input, out| {
        out.extend(input.iter().copied().filter(|b| !is_space(*b)));
    }),
    ("compress_whitespace", "Replaces each run of white space by its first byte.", compress_whitespace),
    ("to_md5", "The MD5 hash (16 bytes); an empty value stays empty.", |input, out| {
        out.extend(non_empty(input).map(Md5::digest).into_iter().flatten());
    }),
    ("to_sha1", "The SHA-1 hash (20 bytes); an empty value stays empty.", |input, out| {
        out.extend(non_empty(input).map(Sha1::digest).into_iter().flatten());
    }),
    ("to_sha256", "The SHA-256 hash (32 bytes); an empty value stays empty.", |input, out| {
        out.extend(non_empty(input).map(Sha256::digest).into_iter().flatten());
    }),
    (
        "dotprefix",
        "Adds a dot at the beginning, so that `.example.com` matches whole labels; an empty value stays empty.",
        |input, out| {
            out.extend(non_empty(input).map(|_| b'.'));
            out.extend_from_slice(input);
        }
    ),
    ("domain", "The registered domain of a name: `example.co.uk` of `www.example.co.uk`.", |input, out| {
        // As in Suricata, nothing is left of a value that is no host name.
        out.extend_from_slice(psl::domain(input).map_or(&[], |domain| domain.as_bytes()));
    }),
    ("tld", "The public suffix of a name: `co.uk` of `www.example.co.uk`.", |input, out| {
        // Only names that are or could be registered have a suffix: Suricata leaves nothing of `com` or
        // `co.uk` alone.
        let suffix = psl::domain(input).and_then(|_| psl::suffix(input));
        out.extend_from_slice(suffix.map_or(&[], |suffix| suffix.as_bytes()));
    }),
    ("header_lowercase", "Converts the names of header lines to lower case.", header_lowercase),
    ("strip_pseudo_headers", "Removes lines that begin with a colon.", |input, out| {
        input.split_inclusive(|b| *b == b'\n').filter(|l| !l.starts_with(b":")).for_each(|l| out.extend(l));
    }),
    ("url_decode", "`%41` becomes `A`, `+` a blank.", url_decode),
];

struct Simple {
    name: &'static str,
    apply: fn(&[u8], &mut Vec<u8>),
}

impl Transform for Simple {
    fn apply(&self, input: &[u8], output: &mut Vec<u8>) {
        (self.apply)(input, output);
    }

    fn key(&self) -> String {
        self.name.to_owned()
    }

    fn needs_all(&self) -> bool {
        matches!(self.name, "to_md5" | "to_sha1" | "to_sha256")
    }
}

/// A value that is not empty. As in Suricata, an empty value stays empty.
fn non_empty(input: &[u8]) -> Option<&[u8]> {
    (!input.is_empty()).then_some(input)
}

const fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

fn compress_whitespace(input: &[u8], output: &mut Vec<u8>) {
    let mut space = false;
    for byte in input {
        if !(space && is_space(*byte)) {
            output.push(*byte);
        }
        space = is_space(*byte);
    }
}

fn header_lowercase(input: &[u8], output: &mut Vec<u8>) {
    let mut value = false;
    for byte in input {
        output.push(if value { *byte } else { byte.to_ascii_lowercase() });
        match byte {
            b':' => value = true,
            b'\n' => value = false,
            _ => {}
        }
    }
}

fn url_decode(input: &[u8], output: &mut Vec<u8>) {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|d| (d & 0xf) as u8);
    let mut rest = input;
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        let pair = match (byte, tail) {
            (b'%', [high, low, ..]) => digit(high).zip(digit(low)),
            _ => None,
        };
        match pair {
            Some((high, low)) => {
                output.push(high << 4 | low);
                rest = tail.get(2..).unwrap_or(&[]);
            }
            None if *byte == b'+' => output.push(b' '),
            None => output.push(*byte),
        }
    }
}

struct Xor {
    key: Vec<u8>,
}

impl Transform for Xor {
    fn apply(&self, input: &[u8], output: &mut Vec<u8>) {
        output.extend(input.iter().zip(self.key.iter().cycle()).map(|(a, b)| a ^ b));
    }

    fn key(&self) -> String {
        format!("xor {:02x?}", self.key)
    }
}

fn xor(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let value = bartizan_rules::unwrap_value(argument, false)?;
    if !value.quoted {
        return Err(KeywordError::argument("the key of `xor` must be in double quotes"));
    }
    let digits = value.text;
    let digit = |b: &u8| char::from(*b).to_digit(16).map(|d| (d & 0xf) as u8);
    let key: Option<Vec<u8>> = digits
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        })
        .collect();
    match key {
        Some(key) if !key.is_empty() && key.len() <= 255 => {
            builder.push_transform(Arc::new(Xor { key }), "xor")
        }
        _ => Err(KeywordError::argument("the key of `xor` is 1 to 255 bytes in pairs of hexadecimal digits")),
    }
}

struct PcreTransform {
    regex: Regex,
}

thread_local! {
    /// Scratch memory of `pcrexform`: transforms are called without one.
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
}

impl Transform for PcreTransform {
    fn apply(&self, input: &[u8], output: &mut Vec<u8>) {
        let group = SCRATCH.with(|scratch| {
            let mut scratch = scratch.try_borrow_mut().ok()?;
            let found = self.regex.find_at(&mut scratch, input, 0, MatchOptions::empty());
            found.ok().flatten().and_then(|m| m.group(1))
        });
        let part = group.and_then(|(from, to)| input.get(from..to)).and_then(non_empty).unwrap_or(input);
        output.extend_from_slice(part);
    }

    fn key(&self) -> String {
        format!("pcrexform {}", self.regex.pattern().escape_ascii())
    }
}

fn pcrexform(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let expression = bartizan_rules::unwrap_value(argument, false)?.text;
    let regex =
        Regex::new(expression, RegexFlags::empty(), Limits::default(), JitMode::Lazy).map_err(|e| {
            KeywordError::new(
                RefusalCode::BadPattern,
                format!("the regular expression is wrong at its byte {}: {}", e.offset, e.message),
            )
        })?;
    if regex.group_count() != 1 {
        return Err(KeywordError::argument("the expression of `pcrexform` needs exactly one group"));
    }
    builder.push_transform(Arc::new(PcreTransform { regex }), "pcrexform")
}

struct FromBase64 {
    offset: usize,
    bytes: usize,
    mode: Base64Mode,
}

impl Transform for FromBase64 {
    fn apply(&self, input: &[u8], output: &mut Vec<u8>) {
        let mut text = input.get(self.offset..);
        if self.bytes > 0 {
            // As in Suricata, text with no more than these bytes stays unchanged.
            text = text.filter(|t| t.len() > self.bytes).and_then(|t| t.get(..self.bytes));
        }
        let decoded = text.is_some_and(|text| decode(text, self.mode, output));
        if !decoded || output.is_empty() {
            output.clear();
            output.extend_from_slice(input);
        }
    }

    fn key(&self) -> String {
        format!("from_base64 {} {} {:?}", self.offset, self.bytes, self.mode)
    }
}

fn from_base64(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let (mut offset, mut bytes, mut mode) = (None, None, None);
    for item in text::items(argument)?.into_iter().filter(|i| !i.is_empty()) {
        let (name, value) = text::word(item);
        let twice = match name {
            "offset" => offset.replace(text::within("offset", value, 0..=65_535usize)?).is_some(),
            "bytes" => bytes.replace(text::within("bytes", value, 0..=65_535usize)?).is_some(),
            "mode" => {
                let value = match value {
                    "strict" => Base64Mode::Strict,
                    "rfc4648" => Base64Mode::Rfc4648,
                    "rfc2045" => Base64Mode::Rfc2045,
                    other => return Err(KeywordError::argument(format!("unknown mode `{other}` of base64"))),
                };
                mode.replace(value).is_some()
            }
            _ => return Err(KeywordError::argument(format!("unknown option `{item}`"))),
        };
        if twice {
            return Err(KeywordError::argument(format!("`{name}` is given twice")));
        }
    }
    let transform = FromBase64 {
        offset: offset.unwrap_or(0),
        bytes: bytes.unwrap_or(0),
        mode: mode.unwrap_or(Base64Mode::Rfc4648),
    };
    builder.push_transform(Arc::new(transform), "from_base64")
}

/// Default limit of a decompressed buffer, in bytes.
const DECOMPRESSED: u64 = 1024;
/// Largest limit that a rule may set, in bytes.
const DECOMPRESSED_MAX: u64 = 16 << 20;

struct Decompress {
    gzip: bool,
    most: u64,
}

impl Transform for Decompress {
    fn apply(&self, input: &[u8], output: &mut Vec<u8>) {
        let read = if self.gzip {
            GzDecoder::new(input).take(self.most).read_to_end(output)
        } else {
            ZlibDecoder::new(input).take(self.most).read_to_end(output)
        };
        if read.is_err() {
            output.clear();
        }
    }

    fn key(&self) -> String {
        format!("decompress {} {}", self.gzip, self.most)
    }
}

fn max_size(argument: &[u8]) -> Result<u64, KeywordError> {
    let argument = text::utf8(argument)?;
    if argument.is_empty() {
        return Ok(DECOMPRESSED);
    }
    let (name, value) = text::word(argument);
    if name != "max-size" {
        return Err(
            KeywordError::argument(format!("unknown option `{name}`")).help("the option is `max-size`")
        );
    }
    let size = bartizan_rules::size(value.as_bytes())?;
    if !(1..=DECOMPRESSED_MAX).contains(&size) {
        return Err(KeywordError::argument(format!("max-size is 1 to {DECOMPRESSED_MAX} bytes")));
    }
    Ok(size)
}

fn gunzip(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let most = max_size(argument)?;
    builder.push_transform(Arc::new(Decompress { gzip: true, most }), "gunzip")
}

fn zlib(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let most = max_size(argument)?;
    builder.push_transform(Arc::new(Decompress { gzip: false, most }), "zlib_deflate")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn run(transform: &dyn Transform, input: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        transform.apply(input, &mut out);
        out
    }

    fn simple(name: &'static str, apply: fn(&[u8], &mut Vec<u8>), input: &[u8]) -> Vec<u8> {
        run(&Simple { name, apply }, input)
    }

    #[test]
    fn text_transforms() {
        assert_eq!(simple("c", compress_whitespace, b"a \t b\n c"), b"a b\nc");
        assert_eq!(simple("h", header_lowercase, b"Host: A:B\r\nX-Y: Z"), b"host: A:B\r\nx-y: Z");
        assert_eq!(simple("u", url_decode, b"a%41+%zz%4"), b"aA %zz%4");
        assert_eq!(run(&Xor { key: vec![1, 2] }, b"abc"), [b'a' ^ 1, b'b' ^ 2, b'c' ^ 1]);
    }

    #[test]
    fn parts_of_names() {
        let named = |name: &str, input: &[u8]| {
            let built = crate::keywords::testing::build(
                "http",
                &[("http.uri", ""), (name, ""), ("content", "\"a\"")],
            );
            run(&*built.unwrap().values[0].transforms[0], input)
        };
        assert_eq!(named("domain", b"www.example.co.uk"), b"example.co.uk");
        assert_eq!(named("tld", b"www.example.co.uk"), b"co.uk");
        for no_name in [b"/index".as_slice(), b"[::1]", b".", b"a.", b""] {
            assert_eq!((named("domain", no_name), named("tld", no_name)), (vec![], vec![]));
        }
        for suffix in [b"com".as_slice(), b"co.uk"] {
            assert_eq!((named("domain", suffix), named("tld", suffix)), (vec![], vec![]));
        }
    }

    #[test]
    fn base64_that_fails_leaves_the_buffer() {
        let from = |offset, bytes, mode| FromBase64 { offset, bytes, mode };
        assert_eq!(run(&from(0, 0, Base64Mode::Rfc4648), b"SGVsbG8="), b"Hello");
        assert_eq!(run(&from(2, 4, Base64Mode::Rfc4648), b"xxSGVsbG8="), b"Hel");
        assert_eq!(run(&from(0, 0, Base64Mode::Strict), b"SGVsbG8"), b"SGVsbG8");
        assert_eq!(run(&from(9, 0, Base64Mode::Rfc4648), b"SGVs"), b"SGVs");
        // As in Suricata, the text must be longer than the part to decode.
        assert_eq!(run(&from(0, 4, Base64Mode::Rfc4648), b"SGVs"), b"SGVs");
        assert_eq!(run(&from(0, 4, Base64Mode::Rfc4648), b"SGVsx"), b"Hel");
        assert_eq!(run(&from(0, 9, Base64Mode::Rfc4648), b"SGVs"), b"SGVs");
    }

    #[test]
    fn decompression_is_bounded() {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gz.write_all(&[b'a'; 100_000]).unwrap();
        let gz = gz.finish().unwrap();
        assert_eq!(run(&Decompress { gzip: true, most: 8 }, &gz), b"aaaaaaaa");
        assert_eq!(run(&Decompress { gzip: true, most: 1 << 20 }, &gz).len(), 100_000);
        assert_eq!(run(&Decompress { gzip: true, most: 1024 }, b"no gzip"), b"");
        let mut z = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        z.write_all(b"hello").unwrap();
        assert_eq!(run(&Decompress { gzip: false, most: 1024 }, &z.finish().unwrap()), b"hello");
    }

    #[test]
    fn the_first_group_is_taken() {
        let regex =
            |text: &[u8]| Regex::new(text, RegexFlags::empty(), Limits::default(), JitMode::Off).unwrap();
        let transform = PcreTransform { regex: regex(b"id=(\\w+)") };
        assert_eq!(run(&transform, b"x id=abc;"), b"abc");
        assert_eq!(run(&transform, b"none"), b"none");
        let transform = PcreTransform { regex: regex(b"id=(\\w*)") };
        assert_eq!(run(&transform, b"id=;"), b"id=;", "an empty group is none");
    }

    #[test]
    fn an_empty_value_stays_empty() {
        for keyword in KEYWORDS {
            let argument = match keyword.name {
                "xor" => "\"0d\"",
                "pcrexform" => "\"(b*)\"",
                _ => "",
            };
            let options = [("http.uri", ""), (keyword.name, argument), ("bsize", "0")];
            let built = crate::keywords::testing::build("http", &options).unwrap();
            assert_eq!(run(&*built.values[0].transforms[0], b""), b"", "{}", keyword.name);
        }
        let named = |name: &str, input: &[u8]| {
            let built =
                crate::keywords::testing::build("http", &[("http.uri", ""), (name, ""), ("bsize", "1")]);
            run(&*built.unwrap().values[0].transforms[0], input)
        };
        assert_eq!((named("dotprefix", b"a"), named("to_md5", b"a").len()), (b".a".to_vec(), 16));
        assert_eq!((named("to_sha1", b"a").len(), named("to_sha256", b"a").len()), (20, 32));
    }
}
