// SPDX-License-Identifier: Apache-2.0
//! Security tokens of a session setup: NTLMSSP ([MS-NLMP] section 2.2.1.3), Kerberos (RFC 4121, RFC 4120),
//! bare or in SPNEGO (RFC 4178).

use super::bytes::{NAME_MAX, array, name, part, size16_at, size32_at, u16_at, u32_at};
use crate::memory::Held;

/// Limit of the names of a Kerberos service that are kept.
const NAMES_MAX: usize = 16;

/// An NTLMSSP AUTHENTICATE message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ntlm {
    pub(super) domain: Vec<u8>,
    pub(super) user: Vec<u8>,
    pub(super) host: Vec<u8>,
    /// Version, build and revision in words.
    pub(super) version: Option<String>,
}

/// The service of a Kerberos ticket.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) realm: Vec<u8>,
    pub(super) service: Vec<Vec<u8>>,
}

/// The contents of a token.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) ntlm: Option<Ntlm>,
    pub(super) ticket: Option<Ticket>,
    /// An AUTHENTICATE message is broken.
    pub(super) is_malformed: bool,
}

impl Held for Ntlm {
    fn held(&self) -> usize {
        let texts = self.domain.held().saturating_add(self.user.held()).saturating_add(self.host.held());
        texts.saturating_add(self.version.held())
    }
}

impl Held for Ticket {
    fn held(&self) -> usize {
        let names = self.service.iter().fold(0usize, |sum, name| sum.saturating_add(name.held()));
        names.saturating_add(self.realm.held()).saturating_add(self.service.held())
    }
}

/// First bytes of NTLMSSP's messages.
const SIGNATURE: &[u8] = b"NTLMSSP\0";
/// Type of the AUTHENTICATE message.
const AUTHENTICATE: u32 = 3;
/// The message has a version.
const HAS_VERSION: u32 = 0x0200_0000;

impl Token {
    /// Reads a token.
    pub(super) fn read(token: &[u8]) -> Self {
        // SPNEGO adds nothing to NTLMSSP that is needed here.
        if let Some(at) = memchr::memmem::find(token, SIGNATURE) {
            let message = token.get(at..).unwrap_or_default();
            if u32_at(message, SIGNATURE.len()) != Some(AUTHENTICATE) {
                return Token::default();
            }
            let ntlm = authenticate(message);
            return Token { is_malformed: ntlm.is_none(), ntlm, ticket: None };
        }
        Token { ticket: kerberos(token), ..Token::default() }
    }
}

/// A text that the message describes at an offset: length, room, offset.
fn field(message: &[u8], at: usize) -> Option<Vec<u8>> {
    let length = size16_at(message, at)?;
    let start = size32_at(message, at.saturating_add(4))?;
    let text = part(message, start, length);
    (text.len() == length).then(|| name(text))
}

fn authenticate(message: &[u8]) -> Option<Ntlm> {
    let flags = u32_at(message, 60)?;
    let version = array::<2>(message, 64).filter(|_| flags & HAS_VERSION != 0).and_then(|[major, minor]| {
        let (build, [revision]) = (u16_at(message, 66)?, array::<1>(message, 71)?);
        Some(format!("{major}.{minor} build {build} rev {revision}"))
    });
    Some(Ntlm { domain: field(message, 28)?, user: field(message, 36)?, host: field(message, 44)?, version })
}

/// An element of DER.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
}

/// The elements of a value, up to one that is broken. What is longer than the bytes that are there ends with
/// them.
struct Elements<'a>(&'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let [tag, first, rest @ ..] = self.0 else { return None };
        let (length, rest) = match first {
            0x00..=0x7f => (usize::from(*first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (digits.iter().fold(0usize, |sum, digit| sum << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let content = part(rest, 0, length);
        self.0 = rest.get(content.len()..).unwrap_or_default();
        Some(Element { tag: *tag, content })
    }
}

/// The content of the first element with a tag.
fn find(value: &[u8], tag: u8) -> Option<&[u8]> {
    Elements(value).find(|element| element.tag == tag).map(|element| element.content)
}

const OID: u8 = 0x06;
const OCTETS: u8 = 0x04;
const SEQUENCE: u8 = 0x30;
const GENERAL_STRING: u8 = 0x1b;
/// `[APPLICATION 0]`, of GSS-API (RFC 2743 section 3.1).
const GSS: u8 = 0x60;
/// `[APPLICATION 14]`, the request of an application.
const AP_REQ: u8 = 0x6e;
/// `[APPLICATION 1]`, a ticket.
const TICKET: u8 = 0x61;
/// 1.2.840.113554.1.2.2
const KERBEROS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];

/// A tag of the class `context-specific`.
const fn context(number: u8) -> u8 {
    0xa0 | number
}

/// The ticket of a token, bare or in SPNEGO.
fn kerberos(token: &[u8]) -> Option<Ticket> {
    let mut inner = find(token, GSS)?;
    if find(inner, OID)? != KERBEROS {
        let init = find(find(inner, context(0))?, SEQUENCE)?;
        inner = find(find(find(init, context(2))?, OCTETS)?, GSS)?;
        if find(inner, OID)? != KERBEROS {
            return None;
        }
    }
    // The identifier of the mechanism, two bytes for the kind of token, the request.
    let after = inner.get(KERBEROS.len().saturating_add(4)..)?;
    let request = find(find(after, AP_REQ)?, SEQUENCE)?;
    let ticket = find(find(find(request, context(3))?, TICKET)?, SEQUENCE)?;
    let realm = find(find(ticket, context(1))?, GENERAL_STRING)?;
    let service = find(find(ticket, context(2))?, SEQUENCE)?;
    let names = find(find(service, context(1))?, SEQUENCE)?;
    let text = |text: &[u8]| part(text, 0, NAME_MAX).to_vec();
    let names = Elements(names).filter(|element| element.tag == GENERAL_STRING);
    Some(Ticket {
        realm: text(realm),
        service: names.take(NAMES_MAX).map(|element| text(element.content)).collect(),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An element of DER.
    pub(crate) fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).expect("short");
        let head = if length < 128 { vec![tag, length] } else { vec![tag, 0x81, length] };
        [&head, content].concat()
    }

    /// A token of Kerberos for `cifs/HOST`.
    fn ticket() -> Vec<u8> {
        let text = |text: &str| der(GENERAL_STRING, text.as_bytes());
        let names = der(SEQUENCE, &[text("cifs"), text("srv.example.test")].concat());
        let service = der(SEQUENCE, &[der(0xa0, &der(2, &[2])), der(0xa1, &names)].concat());
        let version = der(0xa0, &der(2, &[5]));
        let ticket = [version.clone(), der(0xa1, &text("EXAMPLE.TEST")), der(0xa2, &service)].concat();
        let ticket = der(0xa3, &der(TICKET, &der(SEQUENCE, &ticket)));
        let request = der(AP_REQ, &der(SEQUENCE, &[version, ticket].concat()));
        der(GSS, &[der(OID, KERBEROS), vec![1, 0], request].concat())
    }

    #[test]
    fn the_service_of_a_ticket() {
        let wanted = Ticket {
            realm: b"EXAMPLE.TEST".to_vec(),
            service: vec![b"cifs".to_vec(), b"srv.example.test".to_vec()],
        };
        let spnego = der(OID, &[0x2b, 6, 1, 5, 5, 2]);
        let init = der(
            SEQUENCE,
            &[der(0xa0, &der(SEQUENCE, &der(OID, KERBEROS))), der(0xa2, &der(OCTETS, &ticket()))].concat(),
        );
        let wrapped = der(GSS, &[spnego, der(0xa0, &init)].concat());
        for token in [ticket(), wrapped] {
            assert_eq!(Token::read(&token).ticket.as_ref(), Some(&wanted));
            for end in 0..token.len() {
                let part = Token::read(&token[..end]);
                assert!(part.ntlm.is_none() && !part.is_malformed);
            }
        }
    }

    /// An AUTHENTICATE message.
    pub(crate) fn ntlm(domain: &str, user: &str, host: &str) -> Vec<u8> {
        let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
        let (mut message, mut texts) = (b"NTLMSSP\0\x03\0\0\0".to_vec(), Vec::new());
        for text in ["", "", domain, user, host, ""] {
            let (text, at) = (wide(text), 72 + texts.len());
            let length = u16::try_from(text.len()).expect("short").to_le_bytes();
            message.extend([length, length].concat());
            message.extend(u32::try_from(at).expect("short").to_le_bytes());
            texts.extend(text);
        }
        message.extend(HAS_VERSION.to_le_bytes());
        message.extend([6, 1, 0xb0, 0x1d, 0, 0, 0, 15]);
        [message, texts].concat()
    }

    #[test]
    fn who_logs_in() {
        let message = ntlm("WIRE", "alice", "HOST");
        let token = Token::read(&[b"before".as_slice(), &message].concat());
        let version = Some("6.1 build 7600 rev 15".to_owned());
        let wanted =
            Ntlm { domain: b"WIRE".to_vec(), user: b"alice".to_vec(), host: b"HOST".to_vec(), version };
        assert_eq!(token, Token { ntlm: Some(wanted), ticket: None, is_malformed: false });
        let broken = Token::read(&message[..80]);
        assert!(broken.is_malformed && broken.ntlm.is_none());
        assert_eq!(Token::read(b"NTLMSSP\0\x01\0\0\0"), Token::default());
    }
}
