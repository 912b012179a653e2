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
    /// Members beside those of Suricata's answers: `bartizan` of the object.
    pub own: Map<String, Value>,
}

/// What a client takes for no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is no answer of this protocol ({0}); does another program listen there?")]
pub struct BadReply(String);

impl Reply {
    /// It was carried out.
    pub fn ok(message: impl Into<Value>) -> Self {
        Reply { ok: true, message: message.into(), own: Map::new() }
    }

    /// It was not: why.
    pub fn refused(why: impl core::fmt::Display) -> Self {
        Reply { ok: false, message: why.to_string().into(), own: Map::new() }
    }

    /// With what Suricata's answers do not have.
    #[must_use]
    pub fn with(mut self, own: Map<String, Value>) -> Self {
        self.own = own;
        self
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
        let mut text = object.to_string();
        if !self.own.is_empty() {
            // Behind what clients of Suricata look for.
            text.truncate(text.len().saturating_sub(1));
            text.push_str(&format!(",\"bartizan\":{}}}", Value::Object(self.own.clone())));
        }
        let mut bytes = text.into_bytes();
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
        let own = match object.remove("bartizan") {
            Some(Value::Object(own)) => own,
            _ => Map::new(),
        };
        Ok(Reply { ok, message: object.remove("message").unwrap_or_default(), own })
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
        let own = Map::from_iter([("generation".to_owned(), json!(2))]);
        let reply = Reply::ok("done").with(own);
        let text = reply.to_message(Version::V1);
        assert_eq!(text, br#"{"message":"done","return":"OK","bartizan":{"generation":2}}"#);
        assert_eq!(Reply::parse(&text), Ok(reply));
        for text in [&b"{}"[..], b"{\"return\": 1}", b"[]", b"{"] {
            assert!(Reply::parse(text).is_err());
        }
    }
}
