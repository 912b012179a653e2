// SPDX-License-Identifier: Apache-2.0
//! Sticky buffers without a file of their own: every buffer of a protocol or packet is a keyword.
//!
//! A protocol that adds a buffer to its table needs no change here. Older spellings are in [`ALIASES`].

use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::KeywordError;
use crate::model::buffers::{BufferRef, Buffers};
use crate::model::signature::FlowNeeds;

/// Older spellings of sticky buffers: Suricata's aliases, and Snort's.
pub const ALIASES: &[(&str, &str)] = &[
    ("dce_stub_data", "dcerpc.stub_data"),
    ("dns_query", "dns.query"),
    ("file_data", "file.data"),
    ("http_accept", "http.accept"),
    ("http_accept_enc", "http.accept_enc"),
    ("http_accept_lang", "http.accept_lang"),
    ("http_connection", "http.connection"),
    ("http_content_len", "http.content_len"),
    ("http_content_type", "http.content_type"),
    ("http_header_names", "http.header_names"),
    ("http_protocol", "http.protocol"),
    ("http_referer", "http.referer"),
    ("http_request_line", "http.request_line"),
    ("http_response_line", "http.response_line"),
    ("http_start", "http.start"),
    ("ja3_hash", "ja3.hash"),
    ("ja3_string", "ja3.string"),
    ("ja4_hash", "ja4.hash"),
    ("smb_named_pipe", "smb.named_pipe"),
    ("smb_share", "smb.share"),
    ("ssh_proto", "ssh.proto"),
    ("ssh_software", "ssh.software"),
    ("tls_cert_fingerprint", "tls.cert_fingerprint"),
    ("tls_cert_issuer", "tls.cert_issuer"),
    ("tls_cert_serial", "tls.cert_serial"),
    ("tls_cert_subject", "tls.cert_subject"),
    ("tls_sni", "tls.sni"),
];

/// A buffer named in a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sticky {
    /// Name of the buffer, independent of the rule's spelling.
    pub name: &'static str,
}

/// The buffer that a keyword of a rule names, if one does.
#[must_use]
pub fn find(name: &str, buffers: &Buffers) -> Option<Sticky> {
    // Letter case is ignored, as for other keywords.
    let lower = name.to_ascii_lowercase();
    let name = ALIASES.iter().find(|(alias, _)| *alias == lower).map_or(lower.as_str(), |(_, modern)| modern);
    let found = buffers.find(name)?;
    (found != BufferRef::Payload).then(|| Sticky { name: buffers.name(found) })
}

impl Sticky {
    /// Selects the buffer that the following keywords inspect.
    ///
    /// # Errors
    /// The keyword has a value, the rule concerns other protocols, or the previous buffer has no condition.
    pub fn apply(self, builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
        if !argument.is_empty() {
            return Err(KeywordError::argument(format!("`{}` takes no value", self.name))
                .help("it is a sticky buffer: content and similar keywords follow it"));
        }
        if let Some((_, transport, words)) = TRANSPORTS.iter().find(|(name, ..)| *name == self.name)
            && !builder.protocol.ip.is_empty()
            && !builder.protocol.ip.contains(transport)
        {
            return Err(KeywordError::context(format!(
                "`{}` belongs to {words}, but the rule does not",
                self.name
            )));
        }
        // As in Suricata 8.0.8, which turns a rule round that named the other direction before this buffer,
        // and refuses a rule that names it later.
        if self.name == ONLY_TO_CLIENT && builder.flow.contains(FlowNeeds::TO_SERVER) {
            builder.flow = builder.flow.difference(FlowNeeds::TO_SERVER) | FlowNeeds::TO_CLIENT;
        }
        builder.sticky(self.name)
    }
}

/// The buffer that fixes a rule's direction to the client.
const ONLY_TO_CLIENT: &str = "http.response_body";

/// Protocols whose headers are buffers, with their IP protocol number.
const TRANSPORTS: &[(&str, u8, &str)] =
    &[("tcp.hdr", 6, "TCP"), ("udp.hdr", 17, "UDP"), ("icmpv4.hdr", 1, "ICMP"), ("icmpv6.hdr", 58, "ICMPv6")];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::keyword::RefusalCode;
    use crate::keywords::testing::refused_in;

    #[test]
    fn every_buffer_is_a_keyword() {
        let buffers = Buffers::new();
        for name in
            buffers.iter().map(|b| b.name).chain(crate::model::buffers::PACKET_BUFFERS.iter().map(|b| b.name))
        {
            assert_eq!(find(name, &buffers), Some(Sticky { name }));
        }
        assert_eq!(find("payload", &buffers), None);
        assert_eq!(find("nonsense", &buffers), None);
    }

    #[test]
    fn letter_case_does_not_matter() {
        assert_eq!(find("TCP.hdr", &Buffers::new()), Some(Sticky { name: "tcp.hdr" }));
    }

    #[test]
    fn aliases_are_no_keywords_of_their_own() {
        for (alias, name) in ALIASES {
            assert!(crate::keywords::find(alias).is_none(), "{alias}");
            assert!(ALIASES.iter().all(|(a, _)| a != name), "{name}");
        }
    }

    #[test]
    fn what_is_refused() {
        assert_eq!(refused_in("udp", &[("tcp.hdr", "")]), Some(RefusalCode::BadContext));
        assert_eq!(refused_in("tcp", &[("tcp.hdr", "x")]), Some(RefusalCode::BadArgument));
        // The first buffer has no condition.
        assert_eq!(refused_in("tcp", &[("tcp.hdr", ""), ("ip.src", "")]), Some(RefusalCode::BadContext));
        assert_eq!(refused_in("tcp", &[("ip.src", "")]), Some(RefusalCode::BadContext));
    }
}
