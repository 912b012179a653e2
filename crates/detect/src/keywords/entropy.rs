// SPDX-License-Identifier: Apache-2.0
//! `entropy`: Shannon's entropy of a buffer, in bits a byte. The flow's events show the computed value,
//! whether or not the rule matched. Source: Suricata 8's user guide, "entropy".

use super::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{Answer, BufferCondition, ConditionContext, Measure};
use crate::model::content::Item;
use std::sync::Arc;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "entropy",
    aliases: &[],
    summary: "The entropy of a buffer, from 0 to 8 bits a byte: `entropy:value >= 6.5;`.",
    argument: Argument::Required,
    role: Role::Condition,
    syntax: "entropy:[bytes N, ][offset N, ]value [<|<=|>|>=|=|!=] N or N-M or !N-M",
    example: r#"alert http any any -> any any (msg:"entropy"; http.uri; entropy:bytes 40, value >= 4.5; sid:1;)"#,
    note: "`bytes` counts from `offset`; a shorter buffer does not match. The value is in `metadata.entropy` of the flow's events, by the name of the buffer.",
    parse,
}];

/// Comparison of the entropy with the rule's value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Test {
    Equal(f64),
    NotEqual(f64),
    Less(f64),
    LessEqual(f64),
    Greater(f64),
    GreaterEqual(f64),
    Within(f64, f64),
    Outside(f64, f64),
}

impl Test {
    #[allow(clippy::float_cmp)] // `=` means equal.
    fn holds(self, value: f64) -> bool {
        match self {
            Test::Equal(n) => value == n,
            Test::NotEqual(n) => value != n,
            Test::Less(n) => value < n,
            Test::LessEqual(n) => value <= n,
            Test::Greater(n) => value > n,
            Test::GreaterEqual(n) => value >= n,
            Test::Within(low, high) => value > low && value < high,
            Test::Outside(low, high) => value <= low || value >= high,
        }
    }
}

struct Entropy {
    /// Interned name of the buffer.
    name: u32,
    /// 0: all.
    bytes: usize,
    offset: usize,
    test: Test,
}

impl Entropy {
    fn of(&self, data: &[u8]) -> Option<f64> {
        let part = data.get(self.offset..)?;
        let part = if self.bytes == 0 { part } else { part.get(..self.bytes)? };
        // An empty value has an entropy, that of a value of one letter; a part beyond the end of a value has
        // none.
        (!part.is_empty() || data.is_empty()).then(|| shannon(part))
    }
}

/// Entropy of bytes in bits a byte.
fn shannon(data: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    for byte in data {
        if let Some(count) = counts.get_mut(usize::from(*byte)) {
            *count = count.saturating_add(1);
        }
    }
    let all = data.len() as f64;
    let part = |count: u32| {
        let share = f64::from(count) / all;
        share * share.log2()
    };
    let sum: f64 = counts.into_iter().filter(|c| *c > 0).map(part).sum();
    // Avoids negative zero.
    if sum == 0.0 { 0.0 } else { -sum }
}

impl BufferCondition for Entropy {
    fn matches(&self, data: &[u8], _complete: bool, _scene: &ConditionContext<'_>) -> Answer {
        Answer::from(self.of(data).is_some_and(|value| self.test.holds(value)))
    }

    fn needs_all(&self) -> bool {
        self.bytes == 0
    }

    fn measure(&self, data: &[u8]) -> Option<Measure> {
        // An empty value is evaluated, but the recorded entropy stays that of the last value with bytes, as
        // in Suricata.
        let value = self.of(data).filter(|_| !data.is_empty())?;
        Some(Measure { name: self.name, value, holds: self.test.holds(value) })
    }
}

/// The name under which Suricata shows a buffer's value.
fn output_name(buffer: &str) -> String {
    match buffer {
        "payload" => "content".to_owned(),
        "file.data" | "http.response_body" => "file_data".to_owned(),
        "http.request_body" => "http_client_body".to_owned(),
        "http.header.raw" => "http_raw_header".to_owned(),
        "http.host.raw" => "http_raw_host".to_owned(),
        "http.uri.raw" => "http_raw_uri".to_owned(),
        "http.server" | "http.location" => buffer.to_owned(),
        "dns.query" => "dns_query".to_owned(),
        http if http.starts_with("http.") => http.replace('.', "_"),
        other => other.to_owned(),
    }
}

fn test(written: &str) -> Option<Test> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
    let written = written.trim();
    for (sign, make) in [
        ("<=", Test::LessEqual as fn(f64) -> Test),
        (">=", Test::GreaterEqual),
        ("!=", Test::NotEqual),
        ("<", Test::Less),
        (">", Test::Greater),
        ("=", Test::Equal),
    ] {
        if let Some(rest) = written.strip_prefix(sign) {
            return number(rest).map(make);
        }
    }
    let (outside, range) = match written.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, written),
    };
    let pair = range.split_once("<>").or_else(|| range.split_once('-'));
    match pair.and_then(|(low, high)| number(low).zip(number(high))) {
        Some((low, high)) if low < high => {
            Some(if outside { Test::Outside(low, high) } else { Test::Within(low, high) })
        }
        Some(_) => None,
        None if outside => None,
        None => number(written).map(Test::Equal),
    }
}

fn parse(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let (mut bytes, mut offset, mut wanted) = (None, None, None);
    for item in text::items(argument)? {
        let (word, rest) = text::word(item);
        let twice = || KeywordError::argument(format!("`{word}` is given twice"));
        match word {
            "bytes" if bytes.is_some() => return Err(twice()),
            "offset" if offset.is_some() => return Err(twice()),
            "value" if wanted.is_some() => return Err(twice()),
            "bytes" => bytes = Some(text::within("bytes", rest, 0..=65_535usize)?),
            "offset" => offset = Some(text::within("offset", rest, 0..=65_535usize)?),
            "value" => {
                wanted = Some(test(rest).ok_or_else(|| {
                    KeywordError::argument(format!("`{rest}` is not a comparison with an entropy"))
                        .help("write for example `value >= 6.5` or `value 3-5`")
                })?);
            }
            _ => {
                return Err(KeywordError::argument(format!("`{item}` is not a part of `entropy`"))
                    .help("its parts are `bytes N`, `offset N` and `value`, between commas"));
            }
        }
    }
    let test = wanted.ok_or_else(|| KeywordError::argument("`entropy` needs a `value`"))?;
    let buffers = builder.environment.buffers;
    let name = builder.environment.names().intern(&output_name(buffers.name(builder.current_buffer())));
    let (bytes, offset) = (bytes.unwrap_or(0), offset.unwrap_or(0));
    builder.push_item(Item::Custom(Arc::new(Entropy { name, bytes, offset, test })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        assert!((shannon(b"ab") - 1.0).abs() < 1e-12);
        assert!((shannon(&(0..=255).collect::<Vec<u8>>()) - 8.0).abs() < 1e-12);
        assert!(shannon(b"aaaa").abs() < 1e-12 && shannon(b"aaaa").is_sign_positive());
        let entropy = |bytes, offset| Entropy { name: 0, bytes, offset, test: Test::Greater(0.0) };
        assert_eq!(entropy(0, 2).of(b"aabb"), Some(0.0));
        assert_eq!(entropy(2, 1).of(b"aabb"), Some(1.0));
        assert_eq!(entropy(5, 0).of(b"aabb"), None);
        assert_eq!(entropy(0, 4).of(b"aabb"), None);
        assert_eq!(entropy(0, 0).of(b""), Some(0.0));
        assert_eq!((entropy(3, 0).of(b""), entropy(0, 1).of(b"")), (None, None));
        assert!(entropy(0, 0).measure(b"").is_none());
        assert!(
            entropy(0, 0).measure(b"aaaa").is_some_and(|measured| measured.value == 0.0 && !measured.holds)
        );
    }

    #[test]
    fn comparisons() {
        assert_eq!(test(">= 6"), Some(Test::GreaterEqual(6.0)));
        assert_eq!(test("!=3.5"), Some(Test::NotEqual(3.5)));
        assert_eq!(test("3"), Some(Test::Equal(3.0)));
        assert_eq!(test("3-5.5"), Some(Test::Within(3.0, 5.5)));
        assert_eq!(test("3<>5"), Some(Test::Within(3.0, 5.0)));
        assert_eq!(test("!2.5-3.5"), Some(Test::Outside(2.5, 3.5)));
        for wrong in ["", "x", "!3", "5-3", "!=2-3", "nan"] {
            assert_eq!(test(wrong), None, "{wrong}");
        }
        assert!(Test::Within(3.0, 5.0).holds(4.0) && !Test::Within(3.0, 5.0).holds(5.0));
        assert!(Test::Outside(3.0, 5.0).holds(5.0) && !Test::Outside(3.0, 5.0).holds(4.0));
    }

    #[test]
    fn names_are_those_of_suricata() {
        for (buffer, shown) in [
            ("payload", "content"),
            ("http.user_agent", "http_user_agent"),
            ("http.header.raw", "http_raw_header"),
            ("dns.query", "dns_query"),
            ("tls.sni", "tls.sni"),
            ("http.server", "http.server"),
        ] {
            assert_eq!(output_name(buffer), shown);
        }
    }
}
