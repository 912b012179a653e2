// SPDX-License-Identifier: Apache-2.0
//! Requests to a controller. A refusal becomes a failure with the place in the document, and the exit code.

use super::document::LocalDocument;
use crate::error::{Exit, Failure};
use bartizan_controller::client::{Client, ClientResponse};
use bartizan_controller::rest::Method;
use bartizan_controller::rest::route::PAGE_MAX;
use serde_json::Value;

/// A request.
pub struct ClientRequest<'r> {
    /// Method.
    pub method: Method,
    /// Path, with its query.
    pub path: String,
    /// The body and its content type.
    pub body: Option<(Vec<u8>, &'static str)>,
    /// Header fields.
    pub fields: Vec<(&'static str, String)>,
    /// Document of the body, and the pointer to the part that is the body.
    pub of: Option<(&'r LocalDocument, &'r str)>,
}

impl ClientRequest<'_> {
    /// A request to read.
    pub fn get(path: String) -> Self {
        ClientRequest { method: Method::Get, path, body: None, fields: Vec::new(), of: None }
    }
}

/// Content type of JSON bodies.
pub const JSON: &str = "application/json";

/// Sends a request; a refusal is an error.
///
/// # Errors
/// The controller refuses, or does not answer.
pub fn send_request(client: &mut Client, request: ClientRequest<'_>) -> Result<ClientResponse, Failure> {
    let answer = try_send_request(client, &request)?;
    if answer.done() { Ok(answer) } else { Err(refused(&answer, request.of)) }
}

/// Reads a document; `None` if it does not exist.
///
/// # Errors
/// The controller refuses for another reason, or does not answer.
pub fn find(client: &mut Client, path: String) -> Result<Option<ClientResponse>, Failure> {
    let answer = try_send_request(client, &ClientRequest::get(path))?;
    match answer.status {
        404 => Ok(None),
        _ if answer.done() => Ok(Some(answer)),
        _ => Err(refused(&answer, None)),
    }
}

fn try_send_request(client: &mut Client, request: &ClientRequest<'_>) -> Result<ClientResponse, Failure> {
    let mut fields: Vec<(&str, &str)> = request.fields.iter().map(|(n, v)| (*n, v.as_str())).collect();
    if let Some((_, kind)) = request.body {
        fields.push(("content-type", kind));
    }
    let body = request.body.as_ref().map(|(bytes, _)| bytes.clone().into());
    client.request_bytes(request.method, &request.path, body, &fields).map_err(Failure::stopped)
}

/// Converts a refusal to a failure.
fn refused(answer: &ClientResponse, of: Option<(&LocalDocument, &str)>) -> Failure {
    let exit = if answer.status / 100 == 4 { Exit::Input } else { Exit::Stopped };
    let text =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let errors = answer.body.get("errors").and_then(Value::as_array);
    let fault = |fault: &Value| {
        let (pointer, message) = (text(fault, "pointer"), text(fault, "message"));
        let shown = if pointer.is_empty() { String::new() } else { format!("{pointer}: ") };
        match of {
            Some((document, under)) => {
                format!("{}: {shown}{message}", document.place(&format!("{under}{pointer}")))
            }
            None => format!("{shown}{message}"),
        }
    };
    let message = match errors {
        Some(all) if !all.is_empty() => all.iter().map(fault).collect::<Vec<_>>().join("\n"),
        _ => match (text(&answer.body, "detail"), of) {
            (detail, _) if detail.is_empty() => {
                format!("the controller answered {} without a body", answer.status)
            }
            (detail, Some((document, _))) => format!("{}: {detail}", document.file),
            (detail, None) => detail,
        },
    };
    Failure { message, exit }
}

/// At most `most` items of a list, page by page. `path` has no query of its own.
///
/// # Errors
/// The controller refuses, or does not answer.
pub fn items(client: &mut Client, path: &str, most: Option<usize>) -> Result<Vec<Value>, Failure> {
    let mut all: Vec<Value> = Vec::new();
    let mut cursor = String::new();
    loop {
        let left = most.map_or(usize::MAX, |most| most.saturating_sub(all.len()));
        let page = left.min(PAGE_MAX);
        let mut answer = send_request(client, ClientRequest::get(format!("{path}?limit={page}{cursor}")))?;
        if let Some(Value::Array(items)) = answer.body.get_mut("items").map(Value::take) {
            all.extend(items);
        }
        match answer.body.get("next").and_then(Value::as_str) {
            Some(next) if most.is_none_or(|most| all.len() < most) => cursor = format!("&cursor={next}"),
            _ => return Ok(all),
        }
    }
}

/// A name, escaped as a part of a path.
pub fn path_part(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'~');
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(one).collect()
}

/// The number of an item of a log.
pub fn number(item: &Value) -> Option<u64> {
    item.get("number")?.as_u64()
}

/// Items of a log since a number, the newest first. An alert that occurs again has a new number, with its new
/// count.
///
/// # Errors
/// The controller refuses, or does not answer.
pub fn newer(client: &mut Client, path: &str, last: u64) -> Result<Vec<Value>, Failure> {
    let is_new = |item: &Value| number(item).is_some_and(|number| number > last);
    let mut most = 50;
    loop {
        let items = items(client, path, Some(most))?;
        if items.len() < most || !items.iter().all(is_new) {
            return Ok(items.into_iter().filter(is_new).collect());
        }
        most *= 10;
    }
}
