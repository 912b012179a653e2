// SPDX-License-Identifier: Apache-2.0
//! Messages of DNS in streams (RFC 8484): in the data of POST and of answers, and in the URI of GET.

use super::events;
use super::hpack::HeaderField;
use crate::content::base64;
use crate::event::{EventCode, Events};
use crate::file::FileTrack;
use crate::memory::{Held as _, allocated};
use crate::protocols::dns::{self, DnsTransaction, Variant};
use crate::transaction::Transaction as _;
use bartizan_base::{Direction, PerDirection};

/// Limit of a message, in bytes.
pub(super) const MESSAGE_MAX: usize = 65_535;
/// Media type of messages.
const MEDIA_TYPE: &[u8] = b"application/dns-message";
/// The part of a URI before a message.
const PARAMETER: &[u8] = b"dns=";

/// The messages of a stream.
#[derive(Default)]
pub(super) struct DnsMessages {
    /// The data of this direction is a message.
    is_data: PerDirection<bool>,
    data: PerDirection<Vec<u8>>,
    /// Messages that were read.
    read: PerDirection<Option<Box<DnsTransaction>>>,
}

impl DnsMessages {
    /// Looks for the media type, and for a message in the URI. Returns whether a message was read.
    pub(super) fn read_fields(
        &mut self,
        direction: Direction,
        fields: &[HeaderField],
        lenient: bool,
    ) -> bool {
        let is_type = |field: &HeaderField| {
            let value = field.value.split(|byte| *byte == b';').next().unwrap_or_default();
            (field.is_named(b"content-type") || field.is_named(b"accept"))
                && value.trim_ascii().eq_ignore_ascii_case(MEDIA_TYPE)
        };
        self.is_data[direction] |= fields.iter().any(is_type);
        if direction == Direction::ToClient || !self.is_data.to_server {
            return false;
        }
        let path = fields.iter().find(|field| field.is_named(b":path"));
        let Some(message) = path.and_then(|path| in_uri(&path.value)) else { return false };
        self.read(direction, &message, lenient)
    }

    /// Whether the stream has messages, or may have.
    pub(super) fn is_used(&self) -> bool {
        let (is_data, read) = (&self.is_data, &self.read);
        is_data.to_server || is_data.to_client || read.to_server.is_some() || read.to_client.is_some()
    }

    /// Takes what is new of the data, as it is without content encodings.
    pub(super) fn receive(&mut self, direction: Direction, file: &FileTrack, raised: &mut Events) {
        if !self.is_data[direction] {
            return;
        }
        let held = &mut self.data[direction];
        let (data, offset) = file.content();
        if file.size > MESSAGE_MAX as u64 || offset > 0 {
            raised.set(too_long(direction));
        } else {
            held.extend_from_slice(data.get(held.len()..).unwrap_or_default());
        }
    }

    /// Handles the end of the data. Returns whether a message was read.
    pub(super) fn finish(&mut self, direction: Direction, lenient: bool) -> bool {
        let data = core::mem::take(&mut self.data[direction]);
        !data.is_empty() && self.read(direction, &data, lenient)
    }

    fn read(&mut self, direction: Direction, message: &[u8], lenient: bool) -> bool {
        let read = dns::transaction(Variant::Unicast, direction, message, lenient);
        let was_read = read.is_ok();
        if let Ok(message) = read {
            self.read[direction] = Some(Box::new(message));
        }
        was_read
    }

    /// The message of a direction.
    pub(super) fn of(&self, direction: Direction) -> Option<&DnsTransaction> {
        self.read[direction].as_deref()
    }

    /// The message that records show: the response, if there is one.
    pub(super) fn latest(&self) -> Option<&DnsTransaction> {
        self.of(Direction::ToClient).or_else(|| self.of(Direction::ToServer))
    }

    /// Bytes of memory held outside of the structure itself.
    pub(super) fn held(&self) -> usize {
        Direction::BOTH.into_iter().fold(0, |sum, direction| {
            let message = self
                .of(direction)
                .map_or(0, |tx| allocated(size_of::<DnsTransaction>()).saturating_add(tx.held()));
            sum.saturating_add(message).saturating_add(self.data[direction].held())
        })
    }
}

const fn too_long(direction: Direction) -> EventCode {
    match direction {
        Direction::ToServer => events::DNS_REQUEST_TOO_LONG,
        Direction::ToClient => events::DNS_RESPONSE_TOO_LONG,
    }
}

/// The message in a URI.
fn in_uri(uri: &[u8]) -> Option<Vec<u8>> {
    let query = uri.iter().position(|byte| *byte == b'?')?.checked_add(1)?;
    let mut parameters = uri.get(query..)?.split(|byte| *byte == b'&');
    let text = parameters.find_map(|parameter| parameter.strip_prefix(PARAMETER))?;
    Some(base64::decode_url(text)).filter(|message| !message.is_empty() && message.len() <= MESSAGE_MAX)
}

#[cfg(test)]
mod tests {
    use super::in_uri;

    #[test]
    fn messages_in_uris() {
        // RFC 8484 section 4.1.1.
        let uri = b"/dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB";
        let message = in_uri(uri).expect("a message");
        assert_eq!((message.len(), message.get(12..16)), (33, Some(&b"\x03www"[..])));
        assert!(in_uri(b"/dns-query?ct&dns=AAAB").is_some());
        assert!(in_uri(b"/dns-query").is_none() && in_uri(b"/?dns=").is_none());
    }
}
