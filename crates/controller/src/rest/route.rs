// SPDX-License-Identifier: Apache-2.0
//! Routes: method, path, permission, input, output and handler. Dispatch, the OpenAPI document and the tests
//! of every route with every scope use the same table.

use super::body;
use super::http::{Head, Method, Reply, decode};
use crate::access::{Need, Principal};
use crate::controller::{ChangeOutcome, Controller};
use crate::problem::{Fault, Refusal};
use bartizan_config::policy::read;
use bartizan_config::yaml::Node;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::cell::Cell;
use std::time::Duration;

/// Most bytes of a body unless a route sets its own bound.
pub const BODY_MAX: usize = 1 << 20;
/// Most items of a page, and the default.
pub const PAGE_MAX: usize = 500;
/// Most characters of a name.
pub const NAME_MAX: usize = 64;
/// The pattern of names, for the OpenAPI document.
pub const NAME_PATTERN: &str = "^[a-z0-9][a-z0-9._-]{0,63}$";
/// The pattern of file names, for the OpenAPI document.
pub const FILE_NAME_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";

/// Makes the schema of a body or reply.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The schema of a type.
#[must_use]
pub fn schema<T: JsonSchema>() -> SchemaOf {
    |generator| generator.subschema_for::<T>()
}

/// A query parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The parameter's name.
    pub name: &'static str,
    /// The description.
    pub about: &'static str,
    /// The type and range.
    pub kind: ParameterKind,
}

/// The type and range of a query parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// `true` or `false`.
    Flag,
    /// A number between the two bounds, both included.
    Number(u64, u64),
    /// A cursor from a page: the last key of that page, in hexadecimal. Keys are names or numbers.
    Cursor,
    /// A cursor of a list whose keys are numbers.
    NumberCursor,
    /// A name, with the pattern of names in paths.
    Name,
    /// The name of a file without its folder.
    FileName,
}

/// The query parameter of a dry run: reports the effect of a change without making it.
pub const DRY_RUN: Parameter = Parameter {
    name: "dry-run",
    about: "Only report the changes, and the devices that would run them.",
    kind: ParameterKind::Flag,
};
/// The query parameter that waits for the devices' answers.
pub const WAIT: Parameter = Parameter {
    name: "wait",
    about: "Longest time in seconds to wait for the answers of the devices concerned; `answers` has them.",
    kind: ParameterKind::Number(1, crate::waiting::SECONDS_MAX),
};
/// The query parameter with the number of items of a page.
pub const LIMIT: Parameter =
    Parameter { name: "limit", about: "Items of the page.", kind: ParameterKind::Number(1, PAGE_MAX as u64) };
/// The query parameter with the cursor of a page.
pub const CURSOR: Parameter =
    Parameter { name: "cursor", about: "`next` of the page before.", kind: ParameterKind::Cursor };

/// The query parameter with the cursor of a list by numbers.
pub const NUMBER_CURSOR: Parameter = Parameter { kind: ParameterKind::NumberCursor, ..CURSOR };
/// Pattern of cursors: characters of names, `/` and `*`, in hexadecimal.
pub const CURSOR_PATTERN: &str = "^([2-7][0-9a-f]){1,200}$";
/// Pattern of cursors of lists by numbers: digits, in hexadecimal.
pub const NUMBER_CURSOR_PATTERN: &str = "^(3[0-9]){1,19}$";

/// Whether a text has the form of a cursor: accepts only texts that a page may have given out.
#[must_use]
pub fn is_cursor(text: &str, of_numbers: bool) -> bool {
    let (most, letters) = if of_numbers { (19, b'0'..=b'9') } else { (200, b' '..=0x7f) };
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let letter = |pair: &[u8; 2]| {
        let text = std::str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(is_digit));
        text.and_then(|text| u8::from_str_radix(text, 16).ok())
    };
    rest.is_empty()
        && (1..=most).contains(&pairs.len())
        && pairs.iter().all(|pair| letter(pair).is_some_and(|letter| letters.contains(&letter)))
}

/// The body that a route accepts.
#[derive(Clone, Copy)]
pub struct Body {
    /// The body's schema; `None` for plain text.
    pub schema: Option<SchemaOf>,
    /// Most bytes.
    pub max: usize,
}

/// A route.
#[derive(Clone)]
pub struct Route {
    /// Method.
    pub method: Method,
    /// Path; parts in braces are names.
    pub path: String,
    /// Name of the operation.
    pub operation: String,
    /// The operation's description, one sentence.
    pub about: String,
    /// The required permission.
    pub need: Need,
    /// Query parameters; others are refused.
    pub query: &'static [Parameter],
    /// The body.
    pub body: Option<Body>,
    /// Whether `If-Match` and `If-None-Match` are evaluated, and replies have an `ETag`.
    pub tagged: bool,
    /// Status codes of success; if there are two, the first if the resource existed, the other if it was
    /// made.
    pub statuses: &'static [u16],
    /// Schema of the reply; `None` for plain text.
    pub answer: Option<SchemaOf>,
    /// The handler.
    pub handler: fn(&Call<'_>) -> Result<Reply, Refusal>,
}

/// A request as its handler gets it: caller, names, query and body.
pub struct Call<'c> {
    /// The controller.
    pub controller: &'c Controller,
    /// The caller; `None` on routes that need no token.
    pub who: Option<Principal>,
    /// The request.
    pub head: Head,
    /// Names in the path.
    pub names: Vec<(String, String)>,
    /// Parameters of the query, checked.
    pub query: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// Set by the handler if the requested state equals the current one.
    pub changes_nothing: Cell<bool>,
}

impl Call<'_> {
    /// A name in the path. A handler uses names of its own route only.
    #[must_use]
    pub fn name(&self, key: &str) -> &str {
        self.names.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }

    /// The caller; the controller itself on routes that need no token.
    #[must_use]
    pub fn principal(&self) -> Principal {
        self.who.clone().unwrap_or_else(Principal::controller)
    }

    /// The value of a query parameter.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The value of a numeric query parameter, which dispatch has checked.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.parameter(name)?.parse().ok()
    }

    /// The path of the resource of the request.
    #[must_use]
    pub fn location(&self) -> String {
        // Names need no escapes in paths.
        decode(&self.head.path).unwrap_or_default()
    }

    /// Whether the request is a dry run.
    #[must_use]
    pub fn dry(&self) -> bool {
        self.parameter("dry-run") == Some("true")
    }

    /// Makes a change, and waits for its devices if the request has `wait`.
    ///
    /// # Errors
    /// Errors of the change; too many requests wait.
    pub fn waiting(
        &self,
        change: impl FnOnce() -> Result<ChangeOutcome, Refusal>,
    ) -> Result<ChangeOutcome, Refusal> {
        let Some(seconds) = self.number("wait").filter(|_| !self.dry()) else { return change() };
        let who = self.principal();
        let place = self.controller.wait_place(&who)?;
        let mut outcome = change()?;
        let answers = self.controller.answers(&place, &who, &outcome, Duration::from_secs(seconds));
        outcome.answers = Some(answers);
        Ok(outcome)
    }

    /// Number of items of the page.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.number("limit").and_then(|n| usize::try_from(n).ok()).unwrap_or(PAGE_MAX).min(PAGE_MAX)
    }

    /// The key after which the page begins.
    ///
    /// # Errors
    /// The text is not a cursor.
    pub fn cursor(&self) -> Result<Option<String>, Refusal> {
        let wrong =
            || Refusal::Malformed("`cursor` is not the `next` of a page; begin without `cursor`".to_owned());
        let Some(text) = self.parameter("cursor") else { return Ok(None) };
        let byte = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
        bytes.and_then(|bytes| String::from_utf8(bytes).ok()).map(Some).ok_or_else(wrong)
    }

    /// The number after which the page begins.
    ///
    /// # Errors
    /// The text is not a cursor of numbers.
    pub fn number_cursor(&self) -> Result<Option<u64>, Refusal> {
        let number = |text: String| {
            text.parse().map_err(|_| {
                Refusal::Malformed("`cursor` is not the `next` of a page; begin without `cursor`".to_owned())
            })
        };
        self.cursor()?.map(number).transpose()
    }

    /// Parses the body, JSON or YAML.
    ///
    /// # Errors
    /// The body is neither; with the place of the error.
    pub fn json(&self) -> Result<Value, Refusal> {
        let kind = self.head.field("content-type").unwrap_or("application/json");
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "application/json" => body::json(&self.body),
            "application/yaml" | "application/x-yaml" | "text/yaml" => body::from_yaml(&self.body),
            other => {
                let message = format!(
                    "the format `{other}` is not supported; send application/json or application/yaml"
                );
                Err(Refusal::MediaType(message))
            }
        }
    }
}

/// Deserializes JSON; refuses with the pointer of every fault. For types whose lists may be written without
/// brackets, as in policy files, use [`read_lenient`].
///
/// # Errors
/// All faults.
pub fn read_as<T: DeserializeOwned>(value: &Value) -> Result<T, Refusal> {
    read_lenient::<T>(value)?;
    // The policy reader accepts `false` or 7 for a text, as YAML does; the API does not.
    T::deserialize(value).map_err(|error| Refusal::wrong("", error.to_string()))
}

/// As [`read_as`], by the rules of policy files.
///
/// # Errors
/// All faults.
pub fn read_lenient<T: DeserializeOwned>(value: &Value) -> Result<T, Refusal> {
    if !value.is_object() {
        return Err(Refusal::wrong("", "expected an object"));
    }
    let node: Node = read::from_json(value);
    read::read(&node)
        .map_err(|problems| Refusal::Wrong(problems.iter().map(|p| Fault::of("", p).within(value)).collect()))
}

/// The cursor of a page that begins after a key, as [`Call::cursor`] reads it.
#[must_use]
pub fn cursor_behind(key: &str) -> String {
    crate::store::hex(key.as_bytes())
}

/// A page of a list.
#[must_use]
pub fn page(items: Vec<Value>, next: Option<&str>) -> Reply {
    let next = next.map(cursor_behind);
    Reply::json(200, &serde_json::json!({ "items": items, "next": next }))
}

/// The first page of the remaining items, each with its key for the next cursor.
pub fn first_page(items: impl IntoIterator<Item = (String, Value)>, limit: usize) -> Reply {
    let (mut shown, mut last) = (Vec::new(), None);
    for (key, item) in items {
        if shown.len() == limit {
            return page(shown, last.as_deref());
        }
        shown.push(item);
        last = Some(key);
    }
    page(shown, None)
}

/// Why a text is not a valid name; `None` if it is.
#[must_use]
pub fn bad_name(text: &str) -> Option<String> {
    let fits = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let good = first && text.len() <= NAME_MAX && text.bytes().all(fits);
    (!good).then(|| {
        format!(
            "`{}` is not a name: up to {NAME_MAX} of a-z, 0-9, `.`, `_` and `-`, the first a letter or digit",
            text.chars().take(NAME_MAX).collect::<String>().escape_debug()
        )
    })
}

/// Whether a text can be the name of a file: as other names, with capitals as well.
#[must_use]
pub fn is_file_name(text: &str) -> bool {
    bad_name(&text.to_ascii_lowercase()).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_what_pages_say_and_nothing_else() {
        let longest = format!("{0}/{0}", "z".repeat(NAME_MAX));
        for key in ["acme/web", "r000000000017", "_.-*", longest.as_str()] {
            assert!(is_cursor(&cursor_behind(key), false), "{key}");
        }
        let numbers = [0, 7, u64::MAX >> 1];
        assert!(numbers.iter().all(|number| is_cursor(&cursor_behind(&number.to_string()), true)));
        for none in ["", "6", "616", "4A", "0a", "zz", "c3a4", "+1", "6 ", &"61".repeat(201)] {
            assert!(!is_cursor(none, false), "{none}");
        }
        assert!(!is_cursor("61", true) && !is_cursor(&"39".repeat(20), true) && !is_cursor("", true));
    }
}
