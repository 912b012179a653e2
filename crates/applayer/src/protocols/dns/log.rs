// SPDX-License-Identifier: Apache-2.0
//! EVE records of DNS (versions 3 and 2) and mDNS.
//!
//! Source: the records that Suricata 8.0.8 writes. In version 2 each question of a query has a record of its
//! own.

use super::message::{Data, DnsRecord, Message, Section, options, strings};
use super::name::Name;
use super::record::{rcode_name, type_name};
use super::transaction::{DnsTransaction, Variant};
use crate::transaction::{LogOptions, Transaction as _};
use bartizan_base::SettingsMap;
use bartizan_events::JsonWriter;
use core::fmt::Write as _;

/// Options that apply to a record.
struct DnsLogFilter {
    detailed: bool,
    grouped: bool,
    types: Types,
}

/// Record types that are logged.
enum Types {
    /// All types, including those without a name.
    All,
    /// All types with a name. Suricata logs these as soon as any filter is set.
    Named,
    /// Types in the list `types`.
    Listed(Vec<String>),
}

impl DnsLogFilter {
    /// The filter for an alert: everything, in detail.
    fn alert() -> Self {
        DnsLogFilter { detailed: true, grouped: false, types: Types::Named }
    }

    /// The filter of the settings; `None` if this kind of message is not logged.
    fn new(options: &LogOptions, response: bool) -> Option<Self> {
        let settings = &options.settings;
        let requests = settings.bool("requests", true).unwrap_or(false);
        let responses = settings.bool("responses", true).unwrap_or(false);
        if !(if response { responses } else { requests }) {
            return None;
        }
        let has = |name: &str| options.formats.iter().any(|f| f.eq_ignore_ascii_case(name));
        let (mut detailed, mut grouped) = (has("detailed"), has("grouped"));
        // The list of formats is read only if responses are logged, and counts only if it names one.
        if !responses || !(detailed || grouped) {
            (detailed, grouped) = (true, true);
        }
        let types = if settings.has("types") {
            Types::Listed(list(settings, "types"))
        } else if requests && responses && detailed && grouped {
            Types::All
        } else {
            Types::Named
        };
        Some(DnsLogFilter { detailed, grouped, types })
    }

    fn wants(&self, rrtype: u16) -> bool {
        match (&self.types, type_name(rrtype)) {
            (Types::All, _) | (Types::Named, Some(_)) => true,
            (Types::Named | Types::Listed(_), None) => false,
            (Types::Listed(list), Some(name)) => list.iter().any(|t| t.eq_ignore_ascii_case(name)),
        }
    }
}

/// The values of a list in the settings.
fn list(settings: &SettingsMap, key: &str) -> Vec<String> {
    settings.children(key).filter_map(|i| settings.get(&format!("{key}.{i}"))).map(str::to_owned).collect()
}

/// Writes the record of a transaction into an open object; `number`: index of the record; `in_alert`: as part
/// of an alert.
pub(super) fn write(
    tx: &DnsTransaction,
    json: &mut JsonWriter,
    options: &LogOptions,
    number: usize,
    in_alert: bool,
) {
    let mut writer = DnsLogWriter { json, message: tx.message(), scratch: Vec::new() };
    if tx.variant() == Variant::Multicast {
        writer.multicast(tx.is_response());
        return;
    }
    if in_alert {
        writer.version3(tx, &DnsLogFilter::alert());
        return;
    }
    let Some(filter) = DnsLogFilter::new(options, tx.is_response()) else { return };
    match (options.version, tx.is_response()) {
        (2, false) => writer.version2_query(tx, &filter, number),
        (2, true) => writer.version2_answer(&filter),
        _ => writer.version3(tx, &filter),
    }
}

/// Latest version of the records.
pub(super) const LATEST: u8 = 3;

/// Number of records of a transaction under the options (`requests`, `responses`, `types`).
pub(super) fn records(tx: &DnsTransaction, options: &LogOptions) -> usize {
    if tx.variant() == Variant::Multicast {
        return 1;
    }
    let Some(filter) = DnsLogFilter::new(options, tx.is_response()) else { return 0 };
    let queries = tx.message().queries.iter().filter(|q| filter.wants(q.rrtype)).count();
    if options.version == 2 && !tx.is_response() { queries } else { queries.min(1) }
}

/// A record that is being written.
struct DnsLogWriter<'w> {
    json: &'w mut JsonWriter,
    message: &'w Message,
    /// Reused for names.
    scratch: Vec<u8>,
}

impl DnsLogWriter<'_> {
    fn version3(&mut self, tx: &DnsTransaction, filter: &DnsLogFilter) {
        let header = self.message.header;
        self.json.num("version", 3u8);
        self.json.str("type", if tx.is_response() { "response" } else { "request" });
        self.json.num("tx_id", tx.common().id);
        self.json.num("id", header.id);
        self.flags(header.flags);
        self.json.num("opcode", header.opcode());
        self.rcode(header.rcode());
        let message = self.message;
        if !message.queries.is_empty() {
            self.json.array("queries");
            for query in message.queries.iter().filter(|q| filter.wants(q.rrtype)) {
                self.json.begin_object();
                self.name("rrname", query.name);
                self.rrtype(query.rrtype);
                self.truncated("rrname_truncated", query.name);
                self.json.end_object();
            }
            self.json.end_array();
        }
        self.answers(filter);
        self.rest();
    }

    /// Writes the record of a query in version 2, about one of its logged questions.
    fn version2_query(&mut self, tx: &DnsTransaction, filter: &DnsLogFilter, number: usize) {
        let header = self.message.header;
        let mut queries = self.message.queries.iter().filter(|q| filter.wants(q.rrtype));
        let Some(query) = queries.nth(number) else { return };
        self.json.num("version", 2u8);
        self.json.str("type", "query");
        self.json.num("id", header.id);
        self.name("rrname", query.name);
        self.truncated("rrname_truncated", query.name);
        self.rrtype(query.rrtype);
        self.json.num("tx_id", tx.common().id);
        if header.flags & 0x0040 != 0 {
            self.json.bool("z", true);
        }
        self.json.num("opcode", header.opcode());
    }

    fn version2_answer(&mut self, filter: &DnsLogFilter) {
        let header = self.message.header;
        self.json.num("version", 2u8);
        self.json.str("type", "answer");
        self.json.num("id", header.id);
        self.flags(header.flags);
        self.json.num("opcode", header.opcode());
        if let Some(query) = self.message.queries.first() {
            self.name("rrname", query.name);
            self.truncated("rrname_truncated", query.name);
            self.rrtype(query.rrtype);
        }
        self.rcode(header.rcode());
        self.answers(filter);
        self.rest();
    }

    fn multicast(&mut self, response: bool) {
        let message = self.message;
        let header = message.header;
        self.json.str("type", if response { "response" } else { "request" });
        self.json.num("id", header.id);
        const FLAGS: [(u16, &str); 7] = [
            (0x0400, "aa"),
            (0x0200, "tc"),
            (0x0100, "rd"),
            (0x0080, "ra"),
            (0x0040, "z"),
            (0x0020, "ad"),
            (0x0010, "cd"),
        ];
        if FLAGS.iter().any(|(bit, _)| header.flags & bit != 0) {
            self.json.array("flags");
            for (_, name) in FLAGS.iter().filter(|(bit, _)| header.flags & bit != 0) {
                self.json.item_str(name);
            }
            self.json.end_array();
        }
        self.json.num("opcode", header.opcode());
        self.json.num("rcode", header.rcode());
        if !message.queries.is_empty() {
            self.json.array("queries");
            for query in &message.queries {
                self.json.begin_object();
                self.name("rrname", query.name);
                self.json.str("rrtype", &lower(query.rrtype));
                self.truncated("rrname_truncated", query.name);
                self.json.end_object();
            }
            self.json.end_array();
        }
        for (key, section) in [
            ("answers", Section::Answers),
            ("authorities", Section::Authorities),
            ("additionals", Section::Additionals),
        ] {
            self.section(key, section, DnsLogWriter::multicast_record);
        }
    }

    /// Writes the header's flags, as hexadecimal text and one by one.
    fn flags(&mut self, flags: u16) {
        let mut text = String::new();
        let _ = write!(text, "{flags:x}");
        self.json.str("flags", &text);
        for (bit, name) in
            [(0x8000, "qr"), (0x0400, "aa"), (0x0200, "tc"), (0x0100, "rd"), (0x0080, "ra"), (0x0040, "z")]
        {
            if flags & bit != 0 {
                self.json.bool(name, true);
            }
        }
    }

    fn rcode(&mut self, rcode: u8) {
        match rcode_name(rcode) {
            Some(name) => self.json.str("rcode", name),
            None => self.json.str("rcode", &rcode.to_string()),
        }
    }

    fn rrtype(&mut self, rrtype: u16) {
        match type_name(rrtype) {
            Some(name) => self.json.str("rrtype", name),
            None => self.json.str("rrtype", &rrtype.to_string()),
        }
    }

    fn name(&mut self, key: &str, name: Name) {
        self.json.key(key);
        self.item_name(name);
    }

    fn item_name(&mut self, name: Name) {
        self.scratch.clear();
        name.decode(self.message.bytes(), &mut self.scratch);
        self.json.item_text(&self.scratch);
    }

    fn truncated(&mut self, key: &str, name: Name) {
        if name.is_truncated() {
            self.json.bool(key, true);
        }
    }

    /// Writes the answers, in detail and grouped by type.
    fn answers(&mut self, filter: &DnsLogFilter) {
        let message = self.message;
        let answers = message.section(Section::Answers);
        if answers.is_empty() {
            return;
        }
        if filter.detailed {
            self.json.array("answers");
            for answer in answers {
                self.details(answer);
            }
            self.json.end_array();
        }
        if filter.grouped {
            self.json.object("grouped");
            self.groups(answers);
            self.json.end_object();
        }
    }

    /// Writes authorities and additionals.
    fn rest(&mut self) {
        self.section("authorities", Section::Authorities, DnsLogWriter::details);
        self.section("additionals", Section::Additionals, DnsLogWriter::details);
    }

    /// Writes an array of a section's records. Additionals leave out EDNS without options.
    fn section(&mut self, key: &str, section: Section, write: impl Fn(&mut Self, &DnsRecord)) {
        let message = self.message;
        let skipped = |record: &&DnsRecord| {
            section == Section::Additionals && matches!(message.data(record), Data::Opt(&[]))
        };
        let mut open = false;
        for record in message.section(section).iter().filter(|r| !skipped(r)) {
            if !open {
                self.json.array(key);
                open = true;
            }
            write(self, record);
        }
        if open {
            self.json.end_array();
        }
    }

    /// Writes a record as an object; a text record as one object for each of its strings.
    fn details(&mut self, record: &DnsRecord) {
        match self.message.data(record) {
            Data::Text(data) => {
                for text in strings(data) {
                    self.open_details(record);
                    self.json.text("rdata", text);
                    self.json.end_object();
                }
            }
            data => {
                self.open_details(record);
                match data {
                    Data::Address(address) => self.json.str("rdata", &address_text(address)),
                    Data::Name(name) => {
                        self.name("rdata", name);
                        self.truncated("rdata_truncated", name);
                    }
                    Data::Null(bytes) => self.json.text("rdata", bytes),
                    Data::Text(_) | Data::Other(_) => {}
                    Data::Soa { .. } => self.compound("soa", data),
                    Data::Sshfp { .. } => self.compound("sshfp", data),
                    Data::Srv { .. } => self.compound("srv", data),
                    Data::Opt(_) => self.compound("opt", data),
                }
                self.json.end_object();
            }
        }
    }

    fn open_details(&mut self, record: &DnsRecord) {
        self.json.begin_object();
        self.name("rrname", record.name);
        self.truncated("rrname_truncated", record.name);
        self.rrtype(record.rrtype);
        self.json.num("ttl", record.ttl);
    }

    fn compound(&mut self, key: &str, data: Data<'_>) {
        self.json.key(key);
        self.item(data);
    }

    /// Writes data as a value: text, an object, or an array of options.
    fn item(&mut self, data: Data<'_>) {
        match data {
            Data::Address(address) => self.json.item_str(&address_text(address)),
            Data::Name(name) => self.item_name(name),
            Data::Text(bytes) | Data::Null(bytes) | Data::Other(bytes) => self.json.item_text(bytes),
            Data::Soa { server, mailbox, numbers } => {
                self.json.begin_object();
                self.name("mname", server);
                self.truncated("mname_truncated", server);
                self.name("rname", mailbox);
                self.truncated("rname_truncated", mailbox);
                for (key, number) in ["serial", "refresh", "retry", "expire", "minimum"].iter().zip(numbers) {
                    self.json.num(key, number);
                }
                self.json.end_object();
            }
            Data::Srv { numbers, target } => {
                self.json.begin_object();
                for (key, number) in ["priority", "weight", "port"].iter().zip(numbers) {
                    self.json.num(key, number);
                }
                self.name("name", target);
                self.json.end_object();
            }
            Data::Sshfp { algorithm, kind, fingerprint } => {
                let mut text = String::new();
                for (index, byte) in fingerprint.iter().enumerate() {
                    let _ = write!(text, "{}{byte:02x}", if index > 0 { ":" } else { "" });
                }
                self.json.begin_object();
                self.json.str("fingerprint", &text);
                self.json.num("algo", algorithm);
                self.json.num("type", kind);
                self.json.end_object();
            }
            Data::Opt(data) => {
                self.json.begin_array();
                for (code, value) in options(data) {
                    self.json.begin_object();
                    self.json.num("code", code);
                    self.json.hex("data", value);
                    self.json.end_object();
                }
                self.json.end_array();
            }
        }
    }

    /// Writes values by type, in the order in which the types first appear.
    fn groups(&mut self, answers: &[DnsRecord]) {
        let message = self.message;
        let grouped = |record: &DnsRecord| !matches!(message.data(record), Data::Opt(_) | Data::Other(_));
        // At most twelve types have grouped data, so this list stays short.
        let mut done: Vec<u16> = Vec::new();
        for first in answers.iter().filter(|r| grouped(r)) {
            if done.contains(&first.rrtype) {
                continue;
            }
            done.push(first.rrtype);
            self.json.array(type_name(first.rrtype).unwrap_or_default());
            for record in answers.iter().filter(|r| r.rrtype == first.rrtype) {
                match message.data(record) {
                    Data::Text(data) => strings(data).for_each(|text| self.json.item_text(text)),
                    data => self.item(data),
                }
            }
            self.json.end_array();
        }
    }

    /// Writes a record of mDNS: its type is the key of its value.
    fn multicast_record(&mut self, record: &DnsRecord) {
        self.json.begin_object();
        self.name("rrname", record.name);
        self.truncated("rrname_truncated", record.name);
        let key = lower(record.rrtype);
        match self.message.data(record) {
            Data::Text(data) => {
                self.json.array(&key);
                strings(data).for_each(|text| self.json.item_text(text));
                self.json.end_array();
            }
            Data::Name(name) => {
                self.name(&key, name);
                self.truncated("rdata_truncated", name);
            }
            data => self.compound(&key, data),
        }
        self.json.end_object();
    }
}

/// A record type in lower case, as mDNS records write it.
fn lower(rrtype: u16) -> String {
    type_name(rrtype).map_or_else(|| rrtype.to_string(), str::to_ascii_lowercase)
}

/// An address as Suricata writes it (IPv6 in full); empty if its length is wrong.
fn address_text(address: &[u8]) -> String {
    let mut text = String::new();
    match address.len() {
        4 => {
            for (index, byte) in address.iter().enumerate() {
                let _ = write!(text, "{}{byte}", if index > 0 { "." } else { "" });
            }
        }
        16 => {
            for (index, byte) in address.iter().enumerate() {
                let colon = if index > 0 && index % 2 == 0 { ":" } else { "" };
                let _ = write!(text, "{colon}{byte:02x}");
            }
        }
        _ => {}
    }
    text
}
