// SPDX-License-Identifier: Apache-2.0
//! Messages of a client: its protocol version, and commands.

use crate::json::{self, NotTaken};
use serde_json::{Map, Value, json};

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 0.1: without line ends.
    V1,
    /// 0.2: each answer ends with a line end.
    V2,
}

/// A command with its arguments, unchecked.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlRequest {
    /// The command's name.
    pub command: String,
    /// The command's arguments by name.
    pub arguments: Map<String, Value>,
}

/// Why a message is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It is not JSON.
    #[error("the message is not JSON: {0}")]
    Json(String),
    /// An object has a duplicate key.
    #[error("{0}")]
    Twice(String),
    /// The first message has no version.
    #[error("the first message must have the version: {{\"version\": \"0.2\"}}")]
    NoVersion,
    /// The version is not supported.
    #[error("version `{0}` of the protocol is not supported; write 0.1 or 0.2")]
    Version(String),
    /// A later message has no command.
    #[error("the message has no command; send {{\"command\": \"command-list\"}}")]
    NoCommand,
    /// The arguments are not an object.
    #[error(
        "`arguments` is not an object; send {{\"command\": \"iface-stat\", \"arguments\": {{\"iface\": \"eth0\"}}}}"
    )]
    Arguments,
}

fn object(message: &[u8]) -> Result<Map<String, Value>, Malformed> {
    match json::read(message) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Malformed::Json("it is not an object".to_owned())),
        Err(NotTaken::Json(error)) => Err(Malformed::Json(error)),
        Err(twice @ NotTaken::Twice { .. }) => Err(Malformed::Twice(twice.to_string())),
    }
}

/// The first message of a client.
#[must_use]
pub fn hello() -> Vec<u8> {
    b"{\"version\": \"0.2\"}\n".to_vec()
}

/// Parses the first message of a client.
///
/// # Errors
/// [`Malformed`].
pub fn version(message: &[u8]) -> Result<Version, Malformed> {
    let object = object(message)?;
    match object.get("version").and_then(Value::as_str) {
        Some("0.1") => Ok(Version::V1),
        Some("0.2") => Ok(Version::V2),
        Some(other) => Err(Malformed::Version(other.chars().take(40).collect())),
        None => Err(Malformed::NoVersion),
    }
}

/// Parses a command.
///
/// # Errors
/// [`Malformed`].
pub fn request(message: &[u8]) -> Result<ControlRequest, Malformed> {
    let mut object = object(message)?;
    let Some(Value::String(command)) = object.remove("command") else { return Err(Malformed::NoCommand) };
    let arguments = match object.remove("arguments") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments,
        Some(_) => return Err(Malformed::Arguments),
    };
    Ok(ControlRequest { command, arguments })
}

impl ControlRequest {
    /// The bytes of the request, as a client of version 0.2 sends it.
    #[must_use]
    pub fn to_message(&self) -> Vec<u8> {
        let mut message = if self.arguments.is_empty() {
            json!({"command": self.command})
        } else {
            json!({"command": self.command, "arguments": self.arguments})
        }
        .to_string()
        .into_bytes();
        message.push(b'\n');
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_that_there_are() {
        assert_eq!(version(br#"{"version": "0.1"}"#), Ok(Version::V1));
        assert_eq!(version(&hello()), Ok(Version::V2));
        assert_eq!(version(br#"{"version": "0.3"}"#), Err(Malformed::Version("0.3".into())));
        for text in [&b"{}"[..], br#"{"version": 0.2}"#, br#"{"command": "uptime"}"#] {
            assert_eq!(version(text), Err(Malformed::NoVersion));
        }
        assert!(matches!(version(b"{,}"), Err(Malformed::Json(_))));
    }

    #[test]
    fn commands_have_a_name_and_perhaps_arguments() {
        let plain = request(br#"{"command": "uptime", "arguments": null, "other": 1}"#).unwrap();
        assert_eq!((plain.command.as_str(), plain.arguments.len()), ("uptime", 0));
        let with = request(br#"{"command": "iface-stat", "arguments": {"iface": "e0"}}"#).unwrap();
        assert_eq!(with.arguments.get("iface"), Some(&json!("e0")));
        assert_eq!(request(&with.to_message()), Ok(with));
        assert_eq!(request(&plain.to_message()), Ok(plain));
        assert_eq!(request(br#"{"command": 1}"#), Err(Malformed::NoCommand));
        assert_eq!(request(br#"{"command": "x", "arguments": [1]}"#), Err(Malformed::Arguments));
        // A duplicate key is an error everywhere: which value holds is not guessed.
        for (text, at) in [
            (r#"{"command": "uptime", "command": "shutdown"}"#, "/command"),
            (r#"{"command": "x", "arguments": {}, "arguments": {"a": 1}}"#, "/arguments"),
            (r#"{"command": "x", "arguments": {"iface": "a", "iface": "b"}}"#, "/arguments/iface"),
            (
                r#"{"command": "x", "arguments": {"settings": {"ports": 1, "ports": 2}}}"#,
                "/arguments/settings/ports",
            ),
        ] {
            let error = request(text.as_bytes()).unwrap_err();
            assert!(matches!(&error, Malformed::Twice(said) if said.starts_with(at)), "{text}: {error}");
        }
        assert!(matches!(version(br#"{"version": "0.2", "version": "0.1"}"#), Err(Malformed::Twice(_))));
        // serde_json bounds the depth of values.
        let deep =
            format!("{{\"command\":\"x\",\"arguments\":{}{}}}", "{\"a\":".repeat(500), "}".repeat(500));
        assert!(matches!(request(deep.as_bytes()), Err(Malformed::Json(_))));
    }
}
