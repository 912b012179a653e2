// SPDX-License-Identifier: Apache-2.0
//! What the program answers.

use super::Version;
use serde_json::{Map, Value, json};

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The command was carried out.
    pub ok: bool,
    /// What came of it, or why not.
    pub message: Value,
}

/// What a client takes for no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is no answer of this protocol ({0}); does another program listen there?")]
pub struct BadReply(String);

impl Reply {
    /// It was carried out.
    pub fn ok(message: impl Into<Value>) -> Self {
        Reply { ok: true, message: message.into() }
    }

    /// It was not: why.
    pub fn refused(why: impl core::fmt::Display) -> Self {
        Reply { ok: false, message: why.to_string().into() }
    }

    /// The answer to a client's first message, which has no more in it where all is well.
    #[must_use]
    pub fn welcome() -> Self {
        Reply::ok(Value::Null)
    }

    /// As a client of a version takes it.
    #[must_use]
    pub fn to_message(&self, version: Version) -> Vec<u8> {
        let word = if self.ok { "OK" } else { "NOK" };
        let object = match &self.message {
            Value::Null => json!({"return": word}),
            message => json!({"message": message, "return": word}),
        };
        let mut bytes = object.to_string().into_bytes();
        if version == Version::V2 {
            bytes.push(b'\n');
        }
        bytes
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(message: &[u8]) -> Result<Self, BadReply> {
        let mut object: Map<String, Value> =
            serde_json::from_slice(message).map_err(|error| BadReply(error.to_string()))?;
        let ok = match object.get("return").and_then(Value::as_str) {
            Some("OK") => true,
            Some("NOK") => false,
            _ => return Err(BadReply("it has no `return` that is OK or NOK".to_owned())),
        };
        Ok(Reply { ok, message: object.remove("message").unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_form_that_tools_compare() {
        // Tools compare the text: message first, no blanks.
        assert_eq!(Reply::ok("done").to_message(Version::V2), b"{\"message\":\"done\",\"return\":\"OK\"}\n");
        assert_eq!(Reply::refused("no").to_message(Version::V1), br#"{"message":"no","return":"NOK"}"#);
        assert_eq!(Reply::welcome().to_message(Version::V2), b"{\"return\":\"OK\"}\n");
        for reply in [Reply::ok(json!({"count": 1})), Reply::refused("x\ny"), Reply::welcome()] {
            assert_eq!(Reply::parse(&reply.to_message(Version::V2)), Ok(reply));
        }
        for text in [&b"{}"[..], b"{\"return\": 1}", b"[]", b"{"] {
            assert!(Reply::parse(text).is_err());
        }
    }
}
