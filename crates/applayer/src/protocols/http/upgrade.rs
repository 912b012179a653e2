// SPDX-License-Identifier: Apache-2.0
//! The request of HTTP/1 that asks for HTTP/2 (RFC 7540 section 3.2), as the frames that it stands for: it is
//! the first stream of the connection, and the settings in it are the client's first.

use super::tx::HttpTx;
use crate::content::base64;
use crate::protocols::http2::{request_frame, settings_frame};

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
