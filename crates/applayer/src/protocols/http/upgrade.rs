// SPDX-License-Identifier: Apache-2.0
//! The switch to another protocol that a request asks for (RFC 9110 section 7.8): the protocol of which both
//! sides agree, data ahead of the agreement, and the request that asks for HTTP/2 (RFC 7540 section 3.2), as
//! the frames that it stands for: it is the first stream of the connection, and the settings in it are the
//! client's first.

use super::bytes::{equals_nocase_nonul, trim};
use super::feed::Feed;
use super::state::HttpParser;
use super::tx::{HttpTx, LINE};
use crate::content::base64;
use crate::content::bytes::is_token;
use crate::protocols::http2::{self, request_frame, settings_frame};
use crate::protocols::websocket;
use crate::transaction::TxId;

/// The known protocol that a list of `Upgrade` names, in any letters and with any version.
fn in_list(value: &[u8]) -> Option<&'static str> {
    value.split(|byte| *byte == b',').find_map(|item| {
        let name = item.split(|byte| *byte == b'/').next().unwrap_or_default();
        match trim(name) {
            name if name.eq_ignore_ascii_case(b"h2c") => Some(http2::SPEC.name),
            name if name.eq_ignore_ascii_case(b"websocket") => Some(websocket::SPEC.name),
            _ => None,
        }
    })
}

impl HttpParser {
    /// The protocol after an accepted upgrade, if it is a known one. In prevention it is also looked for in
    /// lists, and in the request if the answer names none: senders of such answers go on in it.
    pub(super) fn upgrade(&self) -> Option<&'static str> {
        let tx = self.txs.get(self.response_id).filter(|tx| tx.response.code == Some(101))?;
        match tx.response.message.fields.value("upgrade") {
            Some(value) if self.settings.strict => in_list(value),
            Some(b"h2c") => Some(http2::SPEC.name),
            Some(value) => equals_nocase_nonul(value, b"websocket").then_some(websocket::SPEC.name),
            None if self.settings.strict => in_list(tx.request.message.fields.value("upgrade")?),
            None => None,
        }
    }

    /// Whether the client goes on with what is no request before the server has answered the upgrade that a
    /// request asks for. A server that accepts it reads these bytes in the other protocol, after they have
    /// left here; clients have to wait (RFC 6455 section 4.1, RFC 7540 section 3.2).
    pub(super) fn is_ahead_of_upgrade(&self, request: TxId, feed: &Feed<'_>) -> bool {
        let begin = self.request.line.first().or(feed.rest().first());
        self.settings.strict
            && begin.is_some_and(|byte| !is_token(*byte))
            && self.txs.get(request).is_some_and(|tx| {
                tx.response.message.progress <= LINE && tx.request.message.fields.get("upgrade").is_some()
            })
    }
}

/// The frames.
pub(super) fn as_frames(tx: &HttpTx) -> Vec<u8> {
    let request = &tx.request;
    let mut settings: Option<Vec<u8>> = None;
    let mut fields: Vec<(&[u8], &[u8])> = Vec::new();
    let line = [(&b":method"[..], request.method.as_deref()), (b":path", request.uri.as_deref())];
    fields.extend(line.into_iter().filter_map(|(name, value)| Some((name, value?))));
    for field in &request.message.fields.list {
        if field.name.eq_ignore_ascii_case(b"http2-settings") {
            settings = Some(base64::decode_url(&field.value));
        } else if field.name.eq_ignore_ascii_case(b"host") {
            fields.push((b":authority", &field.value));
        } else {
            fields.push((&field.name, &field.value));
        }
    }
    let mut frames = request_frame(&fields);
    if let Some(settings) = settings {
        frames.extend(settings_frame(&settings));
    }
    frames
}
