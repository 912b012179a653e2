// SPDX-License-Identifier: Apache-2.0
//! The receivers: kernel sockets with applications that record the bytes they read.

mod callers;
mod daemon;
pub mod ftp;
mod mail;
pub mod servers;
mod sinks;
mod smb;
mod ssh;
mod web;

pub use callers::Callers;
pub use servers::Servers;
pub use sinks::Sinks;
pub use web::Web;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;

/// A receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Datagrams.
    Udp,
    /// DNS messages.
    Dns,
    /// A stream.
    Raw,
    /// A stream, with rules that match at the beginning of segments.
    Depth(u8),
    /// A stream whose receiver has a small window and reads late.
    Slow,
    /// nginx.
    Http,
    /// Python's web server.
    Web,
    /// OpenSSL.
    Tls,
    /// A server of the harness that a client calls, with a plain stream. See [`Callers`].
    Answers,
    /// A server of the harness that a client calls, with HTTP.
    WebAnswers,
    /// Exim.
    Mail,
    /// vsftpd.
    Ftp,
    /// Samba.
    Smb,
    /// OpenSSH's server.
    Ssh,
}

impl Service {
    /// The service's port.
    #[must_use]
    pub fn port(self) -> u16 {
        match self {
            Service::Udp => 9000,
            Service::Dns => 53,
            Service::Raw | Service::Answers => 9001,
            Service::Depth(form) => 9010 + u16::from(form),
            Service::Slow => 9013,
            Service::Http | Service::WebAnswers => 80,
            Service::Web => 8080,
            Service::Tls => 443,
            Service::Mail => 25,
            Service::Ftp => 21,
            Service::Smb => 445,
            Service::Ssh => 22,
        }
    }

    /// The bytes that the rules forbid the receiver to read.
    #[must_use]
    pub fn forbidden(self) -> &'static [u8] {
        match self {
            Service::Udp => b"EVIL-UDP",
            Service::Raw | Service::Slow | Service::Answers => b"EVIL-RAW",
            Service::Depth(_) => b"PONG ",
            Service::Dns | Service::Http | Service::Web | Service::Tls | Service::WebAnswers => b"evil",
            Service::Mail | Service::Ftp | Service::Smb | Service::Ssh => b"evil",
        }
    }
}

/// The rules, which forbid the bytes of [`Service::forbidden`].
pub const RULES: &str = r#"drop udp any any -> any 9000 (msg:"datagram"; content:"EVIL-UDP"; sid:1;)
drop dns any any -> any 53 (msg:"query"; dns.query; content:"evil"; sid:2;)
drop tcp any any -> any 9001 (msg:"stream"; flow:established,to_server; content:"EVIL-RAW"; sid:3;)
drop tcp any 9001 -> any any (msg:"answer"; flow:established,to_client; content:"EVIL-RAW"; sid:4;)
drop tcp any any -> any 9013 (msg:"slow stream"; flow:established,to_server; content:"EVIL-RAW"; sid:5;)
drop tcp any any -> any 9010 (msg:"depth"; flow:established,to_server; content:"PONG "; depth:5; sid:10;)
drop tcp any any -> any 9011 (msg:"offset"; flow:established,to_server; content:"PONG "; offset:3; depth:8; sid:11;)
drop tcp any any -> any 9012 (msg:"startswith"; flow:established,to_server; content:"PONG "; startswith; sid:12;)
drop http any any -> any any (msg:"path"; flow:established,to_server; http.uri; content:"evil"; sid:20;)
drop http any any -> any any (msg:"body"; flow:established,to_client; file_data; content:"evil"; sid:21;)
drop http any any -> any any (msg:"request's body"; flow:established,to_server; http.request_body; content:"evil"; content:!"AaB03x"; sid:22;)
drop http any any -> any any (msg:"file"; flow:established,to_server; file.name; content:"evil"; sid:23;)
drop tls any any -> any any (msg:"name"; flow:established,to_server; tls.sni; content:"evil"; nocase; sid:30;)
drop smtp any any -> any any (msg:"client"; smtp.helo; content:"evil"; sid:40;)
drop smtp any any -> any any (msg:"sender"; smtp.mail_from; content:"evil"; sid:41;)
drop smtp any any -> any any (msg:"recipient"; smtp.rcpt_to; content:"evil"; sid:42;)
drop smtp any any -> any any (msg:"attachment"; file.name; content:"evil"; sid:43;)
drop smtp any any -> any any (msg:"content of an attachment"; file.data; content:"evil"; sid:44;)
drop smtp any any -> any any (msg:"subject"; email.subject; content:"evil"; sid:45;)
drop ftp any any -> any any (msg:"argument"; ftp.command_data; content:"evil"; sid:50;)
drop ftp-data any any -> any any (msg:"transferred file"; file.data; content:"evil"; sid:51;)
drop ftp-data any any -> any any (msg:"name of a transferred file"; file.name; content:"evil"; sid:52;)
drop smb any any -> any any (msg:"name of a shared file"; file.name; content:"evil"; sid:60;)
drop smb any any -> any any (msg:"shared file"; file.data; content:"evil"; sid:61;)
drop ssh any any -> any any (msg:"software"; ssh.software; content:"evil"; sid:70;)
"#;

/// Record of the bytes read from one host and port.
#[derive(Clone, Debug, Default)]
pub struct Read {
    /// Bytes of a stream, or concatenated texts (paths, names).
    pub stream: Vec<u8>,
    /// Datagrams.
    pub datagrams: Vec<Vec<u8>>,
}

impl Read {
    /// Whether a server accepts the message as a query. It does not if the message is marked as an answer or
    /// holds answers (dnsmasq rejects it, other servers report a format error), or claims more questions than
    /// fit.
    fn is_query(message: &[u8]) -> bool {
        let asked = message.get(4..6).map_or(0, |count| u16::from_be_bytes([count[0], count[1]]));
        message.len() > 12
            && message[2] & 0x80 == 0
            && message[6..8] == [0, 0]
            && usize::from(asked) * 5 <= message.len() - 12
    }

    /// Whether any part of the record contains these bytes. Names are compared in lower case.
    #[must_use]
    pub fn holds(&self, service: Service, bytes: &[u8]) -> bool {
        let find = |text: &[u8]| text.windows(bytes.len()).any(|window| window == bytes);
        match service {
            Service::Dns => {
                let mut queries = self.datagrams.iter().filter(|datagram| Self::is_query(datagram));
                queries.any(|datagram| find(&datagram.to_ascii_lowercase()))
            }
            Service::Tls => find(&self.stream.to_ascii_lowercase()),
            _ => find(&self.stream) || self.datagrams.iter().any(|datagram| find(datagram)),
        }
    }
}

/// Sender's address and port, and the receiver's port.
pub type Key = (IpAddr, u16, u16);

/// All records of the receivers.
#[derive(Default)]
pub struct Records(Mutex<HashMap<Key, Read>>);

impl Records {
    /// Adds to a record.
    pub fn add(&self, key: Key, add: impl FnOnce(&mut Read)) {
        let mut all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        add(all.entry(key).or_default());
    }

    /// Removes and returns all records.
    pub fn take(&self) -> HashMap<Key, Read> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}
