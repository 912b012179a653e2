// SPDX-License-Identifier: Apache-2.0
//! Answers of the program.

use super::Version;
use serde_json::{Map, Value, json};

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlReply {
    /// Whether the command was carried out.
    pub ok: bool,
    /// The result, or the reason of a failure.
    pub message: Value,
    /// Fields beyond those of Suricata's answers: the object `bartizan`.
    pub own: Map<String, Value>,
}

/// Why a client cannot use an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is not of this protocol ({0}); does another program listen on the socket?")]
pub struct BadReply(String);

impl ControlReply {
    /// A successful answer.
    pub fn ok(message: impl Into<Value>) -> Self {
        ControlReply { ok: true, message: message.into(), own: Map::new() }
    }

    /// A failure, with the reason.
    pub fn refused(why: impl core::fmt::Display) -> Self {
        ControlReply { ok: false, message: why.to_string().into(), own: Map::new() }
    }

    /// Adds fields beyond those of Suricata's answers.
    #[must_use]
    pub fn with(mut self, own: Map<String, Value>) -> Self {
        self.own = own;
        self
    }

    /// The answer to a client's first message; without further fields on success.
    #[must_use]
    pub fn welcome() -> Self {
        ControlReply::ok(Value::Null)
    }

    /// The bytes of the answer in a client's version.
    #[must_use]
    pub fn to_message(&self, version: Version) -> Vec<u8> {
        let word = if self.ok { "OK" } else { "NOK" };
        let object = match &self.message {
            Value::Null => json!({"return": word}),
            message => json!({"message": message, "return": word}),
        };
        let mut text = object.to_string();
        if !self.own.is_empty() {
            // After the fields that Suricata's clients look for.
            text.truncate(text.len().saturating_sub(1));
            text.push_str(&format!(",\"bartizan\":{}}}", Value::Object(self.own.clone())));
        }
        let mut bytes = text.into_bytes();
        if version == Version::V2 {
            bytes.push(b'\n');
        }
        bytes
    }

    /// Parses an answer.
    ///
    /// # Errors
    /// The message is not an answer.
    pub fn parse(message: &[u8]) -> Result<Self, BadReply> {
        let mut object: Map<String, Value> =
            serde_json::from_slice(message).map_err(|error| BadReply(error.to_string()))?;
        let ok = match object.get("return").and_then(Value::as_str) {
            Some("OK") => true,
            Some("NOK") => false,
            _ => return Err(BadReply("it has no `return` that is OK or NOK".to_owned())),
        };
        let own = match object.remove("bartizan") {
            Some(Value::Object(own)) => own,
            _ => Map::new(),
        };
        Ok(ControlReply { ok, message: object.remove("message").unwrap_or_default(), own })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_form_that_tools_compare() {
        // Tools compare the text: message first, no blanks.
        assert_eq!(
            ControlReply::ok("done").to_message(Version::V2),
            b"{\"message\":\"done\",\"return\":\"OK\"}\n"
        );
        assert_eq!(
            ControlReply::refused("no").to_message(Version::V1),
            br#"{"message":"no","return":"NOK"}"#
        );
        assert_eq!(ControlReply::welcome().to_message(Version::V2), b"{\"return\":\"OK\"}\n");
        for reply in
            [ControlReply::ok(json!({"count": 1})), ControlReply::refused("x\ny"), ControlReply::welcome()]
        {
            assert_eq!(ControlReply::parse(&reply.to_message(Version::V2)), Ok(reply));
        }
        let own = Map::from_iter([("generation".to_owned(), json!(2))]);
        let reply = ControlReply::ok("done").with(own);
        let text = reply.to_message(Version::V1);
        assert_eq!(text, br#"{"message":"done","return":"OK","bartizan":{"generation":2}}"#);
        assert_eq!(ControlReply::parse(&text), Ok(reply));
        for text in [&b"{}"[..], b"{\"return\": 1}", b"[]", b"{"] {
            assert!(ControlReply::parse(text).is_err());
        }
    }
}
