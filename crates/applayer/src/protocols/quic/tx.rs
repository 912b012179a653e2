// SPDX-License-Identifier: Apache-2.0
//! A QUIC transaction: one packet with a long header, as in Suricata.

use super::buffers::{self, COMPLETE};
use super::google::Cyu;
use super::header::{V1, version_name};
use super::hello::{ExtensionValues, QuicHello, extensions, host_names, protocol_names};
use super::names::{extension_name, tls_version};
use crate::memory::{Held as _, allocated};
use crate::protocols::tls::hello::numbers;
use crate::transaction::{BufferQuery, BufferView, LogOptions, Transaction, TxCommon};
use bartizan_base::{Direction, Path};
use bartizan_events::JsonWriter;

/// One packet.
#[derive(Debug)]
pub struct QuicTransaction {
    pub(super) common: TxCommon,
    pub(super) direction: Direction,
    /// The version, if the packet has a header that names one.
    pub(super) version: Option<u32>,
    pub(super) server_name: Option<Box<[u8]>>,
    pub(super) user_agent: Option<Box<[u8]>>,
    pub(super) cyu: Vec<Cyu>,
    pub(super) hello: Option<Box<QuicHello>>,
}

impl QuicTransaction {
    pub(super) fn new(direction: Direction, version: Option<u32>) -> Self {
        let mut common = TxCommon::default();
        // The other direction has no part of the packet.
        common.done[direction.flip()] = Path::ALL;
        QuicTransaction {
            common,
            direction,
            version,
            server_name: None,
            user_agent: None,
            cyu: Vec::new(),
            hello: None,
        }
    }

    /// The name of the server that a client hello asks for.
    fn server_name(&self) -> Option<&[u8]> {
        let hello = self.hello.as_deref().and_then(|hello| hello.server_name.as_deref());
        hello.or(self.server_name.as_deref())
    }

    fn value<'a>(&'a self, query: BufferQuery, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let index = usize::try_from(query.index).ok()?;
        match query.id {
            buffers::CYU_HASH => return self.cyu.get(index).map(|cyu| cyu.hash.as_bytes()),
            buffers::CYU_STRING => return self.cyu.get(index).map(|cyu| cyu.text.as_bytes()),
            _ if index > 0 || query.direction != self.direction => return None,
            _ => {}
        }
        let hello = self.hello.as_deref();
        let ja3 = || hello.and_then(|hello| hello.ja3.as_ref());
        match query.id {
            buffers::VERSION => {
                scratch.extend_from_slice(&self.version?.to_be_bytes());
                Some(scratch)
            }
            buffers::SNI => self.server_name(),
            buffers::UA => self.user_agent.as_deref(),
            buffers::JA3_HASH | buffers::JA3S_HASH => ja3()?.hash().map(str::as_bytes),
            buffers::JA3_STRING | buffers::JA3S_STRING => ja3()?.text().map(str::as_bytes),
            buffers::JA4_HASH => hello?.ja4.as_deref().map(str::as_bytes),
            _ => None,
        }
    }
}

impl Transaction for QuicTransaction {
    fn common(&self) -> &TxCommon {
        &self.common
    }

    fn common_mut(&mut self) -> &mut TxCommon {
        &mut self.common
    }

    fn progress(&self, _direction: Direction) -> u8 {
        COMPLETE
    }

    fn buffer<'a>(&'a self, query: BufferQuery, scratch: &'a mut Vec<u8>) -> Option<BufferView<'a>> {
        self.value(query, scratch).map(BufferView::whole)
    }

    fn message_direction(&self) -> Option<Direction> {
        Some(self.direction)
    }

    fn held(&self) -> usize {
        let texts = [&self.server_name, &self.user_agent];
        let texts = texts.iter().fold(self.cyu.held(), |sum, text| {
            sum.saturating_add(text.as_deref().map_or(0, |text| allocated(text.len())))
        });
        let cyu = self.cyu.iter().fold(0, |sum: usize, cyu| sum.saturating_add(cyu.held()));
        let hello = self
            .hello
            .as_deref()
            .map_or(0, |hello| allocated(size_of::<QuicHello>()).saturating_add(hello.held()));
        texts.saturating_add(cyu).saturating_add(hello)
    }

    fn log(&self, json: &mut JsonWriter, _options: &LogOptions, _in_alert: bool) {
        if let Some(version) = self.version {
            match version_name(version) {
                Some(name) => json.str("version", name),
                None if version == V1 => json.str("version", "1"),
                None => json.str("version", &format!("{version:x}")),
            }
        }
        if let Some(name) = self.server_name() {
            text(json, "sni", name);
        }
        if let Some(agent) = &self.user_agent {
            text(json, "ua", agent);
        }
        if !self.cyu.is_empty() {
            json.array("cyu");
            for cyu in &self.cyu {
                json.begin_object();
                json.str("hash", &cyu.hash);
                json.str("string", &cyu.text);
                json.end_object();
            }
            json.end_array();
        }
        if let Some(hello) = &self.hello {
            log_hello(json, hello, self.direction);
        }
    }
}

/// A field of foreign bytes: as in Suricata's records of QUIC, bytes that are not UTF-8 are replaced.
fn text(json: &mut JsonWriter, key: &str, value: &[u8]) {
    json.str(key, &String::from_utf8_lossy(value));
}

fn log_hello(json: &mut JsonWriter, hello: &QuicHello, direction: Direction) {
    if let Some(ja3) = &hello.ja3
        && let (Some(hash), Some(text)) = (ja3.hash(), ja3.text())
    {
        json.object(if direction == Direction::ToServer { "ja3" } else { "ja3s" });
        json.str("hash", hash);
        json.str("string", text);
        json.end_object();
    }
    if let Some(ja4) = &hello.ja4 {
        json.str("ja4", ja4);
    }
    let mut all = extensions(&hello.extensions).peekable();
    if all.peek().is_none() {
        return;
    }
    json.array("extensions");
    for (extension, values) in all {
        json.begin_object();
        if let Some(name) = extension_name(extension) {
            json.str("name", name);
        }
        json.num("type", extension);
        log_values(json, values);
        json.end_object();
    }
    json.end_array();
}

fn log_values(json: &mut JsonWriter, values: ExtensionValues<'_>) {
    let list = match values {
        ExtensionValues::Names(list)
        | ExtensionValues::Protocols(list)
        | ExtensionValues::Versions(list)
        | ExtensionValues::Algorithms(list) => list,
        _ => return,
    };
    let mark = json.mark();
    json.array("values");
    let mut empty = true;
    let mut item = |text: &str| {
        json.item_str(text);
        empty = false;
    };
    match values {
        ExtensionValues::Names(_) => host_names(list).for_each(|name| item(&String::from_utf8_lossy(name))),
        ExtensionValues::Protocols(_) => {
            protocol_names(list).for_each(|name| item(&String::from_utf8_lossy(name)));
        }
        ExtensionValues::Versions(_) => numbers(list).for_each(|version| match tls_version(version) {
            Some(name) => item(name),
            None => item(&format!("TlsVersion({version} / {version:#x})")),
        }),
        _ => numbers(list).for_each(|algorithm| item(&algorithm.to_string())),
    }
    json.end_array();
    if empty {
        json.rewind(mark);
    }
}
