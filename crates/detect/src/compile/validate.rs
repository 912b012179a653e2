// SPDX-License-Identifier: Apache-2.0
//! Checks that contents on some buffers have the form of the buffer's values. This is no keyword: the check
//! runs when a rule is complete, since modifiers (`nocase`) may follow the buffer's keyword.
//!
//! As in Suricata 8, rules whose content can never match are refused, and digests are changed to the letter
//! case of the buffer.

use crate::compile::keyword::KeywordError;
use crate::model::buffers::Buffers;
use crate::model::condition::Transform;
use crate::model::content::{Item, Literal};
use crate::model::signature::ValueCheck;
use bartizan_applayer::protocol::ValueForm;
use bartizan_applayer::protocols;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Letter case that the values of a buffer have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Lower,
    Upper,
}

/// Checks and adjusts the contents of all values of a rule.
pub(crate) fn values(values: &mut [ValueCheck], buffers: &Buffers) -> Result<(), KeywordError> {
    for value in values {
        let name = buffers.name(value.buffer);
        let mut first = true;
        for item in &mut value.program.items {
            if let Item::Literal(literal) = item {
                // After a transform the value has another form.
                if value.transforms.is_empty() {
                    one(name, literal, first)?;
                }
                first = false;
                if !literal.negated {
                    transformed(&value.transforms, literal)?;
                }
            }
        }
    }
    Ok(())
}

/// Refuses contents that cannot occur after a transform.
fn transformed(transforms: &[Arc<dyn Transform>], literal: &Literal) -> Result<(), KeywordError> {
    let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    for transform in transforms {
        let name = transform.key();
        let lost = match name.as_str() {
            "to_lowercase" => literal.bytes.iter().any(u8::is_ascii_uppercase),
            "to_uppercase" => literal.bytes.iter().any(u8::is_ascii_lowercase),
            "strip_whitespace" => literal.bytes.iter().any(blank),
            "compress_whitespace" => literal.bytes.windows(2).any(|two| two.iter().all(blank)),
            _ => false,
        };
        if lost {
            return Err(KeywordError::argument(format!("after `{name}` this content cannot match"))
                .help("write the content as it is after the transform"));
        }
    }
    Ok(())
}

/// Checks one content. Suricata checks only the first content on a serial number, so a later one may have any
/// form.
fn one(buffer: &str, literal: &mut Literal, first: bool) -> Result<(), KeywordError> {
    match form(buffer) {
        ValueForm::Any => Ok(()),
        ValueForm::LowerCase => lower_case(buffer, literal),
        ValueForm::Word => word(buffer, literal),
        ValueForm::Digest { length: wanted, colons: least } => {
            in_case(literal, Case::Lower);
            length(buffer, literal, wanted)?;
            colons(buffer, literal, least)
        }
        ValueForm::Number => {
            in_case(literal, Case::Upper);
            if first && literal.bytes.len() > 2 { colons(buffer, literal, 1) } else { Ok(()) }
        }
    }
}

/// The form of a buffer's values, which its protocol declares.
fn form(buffer: &str) -> ValueForm {
    static FORMS: OnceLock<HashMap<&'static str, ValueForm>> = OnceLock::new();
    let forms = FORMS.get_or_init(|| {
        let buffers = protocols::all().flat_map(|(_, spec)| spec.buffers);
        let declared = buffers.filter(|spec| spec.form != ValueForm::Any);
        declared.map(|spec| (spec.name, spec.form)).collect()
    });
    forms.get(buffer).copied().unwrap_or(ValueForm::Any)
}

fn lower_case(buffer: &str, literal: &Literal) -> Result<(), KeywordError> {
    if literal.nocase || literal.bytes.iter().any(u8::is_ascii_uppercase) {
        return Err(KeywordError::argument(format!(
            "`{buffer}` is in lower case: upper case never matches, and `nocase` has no effect"
        ))
        .help(format!("write the content in lower case and without `nocase`, or use `{buffer}.raw`")));
    }
    Ok(())
}

fn word(buffer: &str, literal: &Literal) -> Result<(), KeywordError> {
    let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if blank(literal.bytes.first()) || blank(literal.bytes.last()) {
        return Err(KeywordError::argument(format!(
            "`{buffer}` has no blanks around it: this content cannot match"
        )));
    }
    Ok(())
}

fn length(buffer: &str, literal: &Literal, wanted: usize) -> Result<(), KeywordError> {
    let length = literal.bytes.len();
    if length == wanted {
        return Ok(());
    }
    Err(KeywordError::argument(format!(
        "`{buffer}` has {wanted} characters, not {length}: this content cannot match"
    )))
}

fn colons(buffer: &str, literal: &Literal, least: usize) -> Result<(), KeywordError> {
    if literal.bytes.iter().filter(|b| **b == b':').count() >= least {
        return Ok(());
    }
    Err(KeywordError::argument(format!("`{buffer}` has colons between its bytes: this content cannot match")))
}

fn in_case(literal: &mut Literal, case: Case) {
    let changed = match case {
        Case::Lower => literal.bytes.to_ascii_lowercase(),
        Case::Upper => literal.bytes.to_ascii_uppercase(),
    };
    if *changed != *literal.bytes {
        let Literal { bytes, finder, .. } = Literal::new(&changed, literal.negated);
        (literal.bytes, literal.finder) = (bytes, finder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::keyword::RefusalCode;

    fn check(buffer: &str, content: &str, nocase: bool) -> Result<String, RefusalCode> {
        let mut literal = Literal::new(content.as_bytes(), false);
        if nocase {
            literal.set_nocase();
        }
        one(buffer, &mut literal, true).map_err(|e| e.code)?;
        Ok(String::from_utf8_lossy(&literal.bytes).into_owned())
    }

    #[test]
    fn contents_that_cannot_match() {
        let bad = Err(RefusalCode::BadArgument);
        assert_eq!(check("http.host", "example.org", false), Ok("example.org".to_owned()));
        assert_eq!(check("http.host", "Example", false), bad);
        assert_eq!(check("http.host", "example", true), bad);
        assert_eq!(check("http.host.raw", "Example", true), Ok("Example".to_owned()));
        assert_eq!(check("http.method", "GET ", false), bad);
        assert_eq!(check("http.method", "GET", false), Ok("GET".to_owned()));
        assert_eq!(check("ja3.hash", "short", false), bad);
        let digest = "0123456789ABCDEF0123456789ABCDEF";
        assert_eq!(check("ja3.hash", digest, false), Ok(digest.to_lowercase()));
        assert_eq!(check("tls.cert_serial", "5c:19", false), Ok("5C:19".to_owned()));
        assert_eq!(check("tls.cert_serial", "5c19", false), bad);
        let mut behind = Literal::new(b"5c19", true);
        assert!(one("tls.cert_serial", &mut behind, false).is_ok(), "Suricata checks the first content only");
        let fingerprint = ["4A"; 20].join(":");
        assert_eq!(check("tls.cert_fingerprint", &fingerprint, false), Ok(fingerprint.to_lowercase()));
        assert_eq!(check("tls.cert_fingerprint", &fingerprint.replace(':', "-"), false), bad);
    }
}
