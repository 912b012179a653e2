// SPDX-License-Identifier: Apache-2.0
//! A request's URI: split into parts and joined again in normal form (RFC 3986, with the liberties of
//! libhtp).

use crate::memory::Held as _;

use super::bytes::span;
use super::fields::{self, host_port, port_number};
use super::settings::UriSettings;
use super::urldecode::{decode_component, decode_path, remove_dot_segments, utf8_to_bytes};

/// Parts of a URI; `None` for a missing part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Uri {
    pub scheme: Option<Vec<u8>>,
    pub username: Option<Vec<u8>>,
    pub password: Option<Vec<u8>>,
    pub hostname: Option<Vec<u8>>,
    pub port: Option<u16>,
    pub path: Option<Vec<u8>>,
    /// The query as sent.
    pub query: Option<Vec<u8>>,
    pub fragment: Option<Vec<u8>>,
    /// The host or port in the URI is invalid.
    pub host_invalid: bool,
}

/// The parts as they were sent.
#[derive(Default)]
struct UriParts<'a> {
    scheme: Option<&'a [u8]>,
    username: Option<&'a [u8]>,
    password: Option<&'a [u8]>,
    hostname: Option<&'a [u8]>,
    port: Option<&'a [u8]>,
    path: Option<&'a [u8]>,
    query: Option<&'a [u8]>,
    fragment: Option<&'a [u8]>,
    /// The path is the text after the scheme, without a slash before it.
    bare: bool,
}

fn split_at_byte(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(byte, text)?;
    let (head, tail) = text.split_at_checked(at)?;
    Some((head, tail.get(1..).unwrap_or_default()))
}

fn non_empty(text: &[u8]) -> Option<&[u8]> {
    (!text.is_empty()).then_some(text)
}

impl<'a> UriParts<'a> {
    fn parse(input: &'a [u8]) -> Self {
        let mut parts = UriParts::default();
        let mut rest = input;
        // No slash at the beginning, but a colon somewhere: the text before it counts as the scheme.
        if input.first() != Some(&b'/')
            && let Some((scheme, tail)) = split_at_byte(input, b':')
        {
            parts.scheme = Some(scheme);
            rest = parts.authority(tail);
            // Without slashes after the scheme many servers take all of the rest for the path; libhtp sees a
            // host.
            let is_web = scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https");
            if is_web && !tail.starts_with(b"/") {
                rest = tail;
                parts.bare = true;
            }
        }
        let (path, tail) = span(rest, |b| !matches!(b, b'#' | b'?'));
        parts.path = non_empty(path);
        rest = tail;
        if let Some(query) = rest.strip_prefix(b"?") {
            let (query, tail) = span(query, |b| b != b'#');
            parts.query = Some(query);
            rest = tail;
        }
        parts.fragment = rest.strip_prefix(b"#");
        parts
    }

    fn authority(&mut self, input: &'a [u8]) -> &'a [u8] {
        let mut rest = input;
        if let Some(tail) = input.strip_prefix(b"//")
            && tail.first() != Some(&b'/')
            && let Some((credentials, tail)) = split_at_byte(tail, b'@')
        {
            match split_at_byte(credentials, b':') {
                Some((user, password)) => {
                    self.username = Some(user);
                    self.password = Some(password);
                }
                None => self.username = Some(credentials),
            }
            rest = tail;
        }
        if let Some((host, tail)) = fields::host(rest) {
            self.hostname = Some(host);
            rest = tail;
            if let Some((port, tail)) = fields::port(rest) {
                self.port = Some(port);
                rest = tail;
            }
        }
        rest
    }
}

impl Uri {
    /// Bytes of memory held outside of the structure itself.
    pub(super) fn held(&self) -> usize {
        let parts = [
            &self.scheme,
            &self.username,
            &self.password,
            &self.hostname,
            &self.path,
            &self.query,
            &self.fragment,
        ];
        parts.iter().fold(0, |sum, part| sum.saturating_add(part.held()))
    }

    /// Splits a request's URI and normalises the parts.
    pub(super) fn parse(input: &[u8], settings: &UriSettings) -> Self {
        let parts = UriParts::parse(input);
        let component = |part: Option<&[u8]>| part.map(|p| decode_component(p, settings));
        let hostname = component(parts.hostname).map(|mut host| {
            host.make_ascii_lowercase();
            while host.last() == Some(&b'.') {
                host.pop();
            }
            host
        });
        let port = parts.port.and_then(port_number);
        let host_invalid = (parts.port.is_some() && port.is_none())
            || hostname.as_ref().is_some_and(|host| !fields::valid_host(host));
        let path = parts.path.map(|path| {
            let mut path = decode_path(path, settings);
            if settings.utf8_bestfit {
                path = utf8_to_bytes(&path, settings);
            }
            if parts.bare {
                path.insert(0, b'/');
            }
            remove_dot_segments(&path)
        });
        Uri {
            scheme: parts.scheme.map(<[u8]>::to_ascii_lowercase),
            username: component(parts.username),
            password: component(parts.password),
            hostname,
            port,
            path,
            query: parts.query.map(<[u8]>::to_vec),
            fragment: component(parts.fragment),
            host_invalid,
        }
    }

    /// The URI of a CONNECT request: host and port. Servers that treat CONNECT as any other method take a
    /// path for what it is.
    pub(super) fn parse_authority(input: &[u8], settings: &UriSettings) -> Self {
        if input.starts_with(b"/") {
            return Uri::parse(input, settings);
        }
        let Some(parsed) = host_port(input) else { return Uri::default() };
        let mut hostname = decode_component(&parsed.host.to_ascii_lowercase(), settings);
        while hostname.last() == Some(&b'.') {
            hostname.pop();
        }
        let port = parsed.port.and_then(|(_, number)| number);
        let host_invalid = !parsed.valid || !fields::valid_host(&hostname);
        Uri { hostname: Some(hostname), port, host_invalid, ..Uri::default() }
    }

    /// Path, query and fragment in normal form, after the other parts if the settings include them; and
    /// whether some text was encoded twice.
    pub(super) fn normalized(&self, settings: &UriSettings) -> (Option<Vec<u8>>, bool) {
        let mut out = Vec::new();
        let mut twice = false;
        let mut again = |text: Vec<u8>, wanted: bool| {
            if !wanted {
                return text;
            }
            let decoded = decode_component(&text, settings);
            twice |= decoded.len() < text.len();
            decoded
        };
        if settings.include_all {
            self.write_authority(&mut out);
        }
        if let Some(path) = &self.path {
            out.append(&mut again(path.clone(), settings.double_decode_path));
        }
        if let Some(query) = &self.query {
            out.push(b'?');
            out.append(&mut again(decode_component(query, settings), settings.double_decode_query));
        }
        if let Some(fragment) = &self.fragment {
            out.push(b'#');
            out.extend_from_slice(fragment);
        }
        ((!out.is_empty()).then_some(out), twice)
    }

    fn write_authority(&self, out: &mut Vec<u8>) {
        if let Some(scheme) = &self.scheme {
            out.extend_from_slice(scheme);
            out.extend_from_slice(b"://");
        }
        if self.username.is_some() || self.password.is_some() {
            out.extend_from_slice(self.username.as_deref().unwrap_or_default());
            out.push(b':');
            out.extend_from_slice(self.password.as_deref().unwrap_or_default());
            out.push(b'@');
        }
        out.extend_from_slice(self.hostname.as_deref().unwrap_or_default());
    }
}

/// Splits the text after the method into URI and protocol.
pub(super) fn split_uri_protocol(rest: &[u8], last: bool, separates: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let at =
        if last { rest.iter().rposition(|b| separates(*b)) } else { rest.iter().position(|b| separates(*b)) };
    let Some((uri, protocol)) = at.and_then(|at| rest.split_at_checked(at)) else {
        return (super::bytes::trim(rest), &[]);
    };
    (super::bytes::trim(uri), super::bytes::trim(protocol.get(1..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> UriSettings {
        UriSettings {
            backslash_to_slash: true,
            decode_separators: true,
            compress_separators: true,
            decode_u: true,
            utf8_bestfit: true,
            ..UriSettings::default()
        }
    }

    #[test]
    fn parts() {
        let uri = Uri::parse(b"http://user:pass@www.Example.com.:1234/path1/../p?a=b%20c#frag", &ids());
        assert_eq!(uri.hostname.as_deref(), Some(&b"www.example.com"[..]));
        assert_eq!(uri.port, Some(1234));
        assert_eq!(uri.username.as_deref(), Some(&b"user"[..]));
        assert_eq!(uri.path.as_deref(), Some(&b"/p"[..]));
        assert_eq!(uri.normalized(&ids()).0.as_deref(), Some(&b"/p?a=b c#frag"[..]));
        let all = UriSettings { include_all: true, ..ids() };
        assert_eq!(
            uri.normalized(&all).0.as_deref(),
            Some(&b"http://user:pass@www.example.com/p?a=b c#frag"[..])
        );
        assert!(Uri::parse(b"http://host.com:0/", &ids()).host_invalid);
        assert_eq!(Uri::parse(b"", &ids()).normalized(&ids()), (None, false));
        assert_eq!(Uri::parse(b"http://", &ids()).path.as_deref(), Some(&b"/"[..]));
        let connect = Uri::parse_authority(b"abc.net:443", &ids());
        assert_eq!((connect.hostname.as_deref(), connect.port), (Some(&b"abc.net"[..]), Some(443)));
    }

    #[test]
    fn what_servers_take_for_a_path_is_one() {
        for (line, path) in [
            (&b"http:evil.php"[..], Some(&b"/evil.php"[..])),
            (b"HTTPS:a/../evil.php?x", Some(b"/evil.php")),
            (b"http:/evil.php", Some(b"/evil.php")),
            (b"host.example:80", None),
        ] {
            let text = String::from_utf8_lossy(line);
            assert_eq!(Uri::parse(line, &ids()).path.as_deref(), path, "{text}");
        }
        assert_eq!(Uri::parse(b"http:evil.php", &ids()).hostname.as_deref(), Some(&b"evil.php"[..]));
        assert_eq!(Uri::parse_authority(b"/evil.php", &ids()).path.as_deref(), Some(&b"/evil.php"[..]));
    }

    #[test]
    fn double_decoding() {
        let twice = UriSettings { double_decode_path: true, double_decode_query: true, ..ids() };
        let uri = Uri::parse(b"/abc%2541?x=%2542", &twice);
        assert_eq!(uri.normalized(&twice), (Some(b"/abcA?x=B".to_vec()), true));
        assert_eq!(uri.normalized(&ids()), (Some(b"/abc%41?x=%42".to_vec()), false));
    }

    #[test]
    fn request_line_parts() {
        let space = |b: u8| b == b' ';
        assert_eq!(split_uri_protocol(b"/a b HTTP/1.1", false, space), (&b"/a"[..], &b"b HTTP/1.1"[..]));
        assert_eq!(split_uri_protocol(b"/a b HTTP/1.1", true, space), (&b"/a b"[..], &b"HTTP/1.1"[..]));
        assert_eq!(split_uri_protocol(b"/a", true, space), (&b"/a"[..], &b""[..]));
    }
}
