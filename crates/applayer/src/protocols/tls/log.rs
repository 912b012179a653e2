// SPDX-License-Identifier: Apache-2.0
//! The fields of EVE's `tls` record.
//!
//! The writer of the record adds `from_proto`: the flow knows its earlier protocol, the transaction does not.

use super::certificate::{Certificate, Chain};
use super::hello::HelloFields;
use super::tx::{TlsSide, TlsTx};
use super::{buffers, version};
use crate::transaction::LogOptions;
use bartizan_events::JsonWriter;

bitflags::bitflags! {
    /// Fields, by the names of `tls.custom`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct TlsLogFields: u32 {
        const VERSION = 1;
        const SUBJECT = 1 << 1;
        const ISSUER = 1 << 2;
        const SERIAL = 1 << 3;
        const FINGERPRINT = 1 << 4;
        const NOT_BEFORE = 1 << 5;
        const NOT_AFTER = 1 << 6;
        const SNI = 1 << 7;
        const CERTIFICATE = 1 << 8;
        const CHAIN = 1 << 9;
        const SESSION_RESUMED = 1 << 10;
        const JA3 = 1 << 11;
        const JA3S = 1 << 12;
        const CLIENT = 1 << 13;
        const CLIENT_CERTIFICATE = 1 << 14;
        const CLIENT_CHAIN = 1 << 15;
        const JA4 = 1 << 16;
        const SUBJECTALTNAME = 1 << 17;
        const CLIENT_ALPNS = 1 << 18;
        const SERVER_ALPNS = 1 << 19;
        const CLIENT_HANDSHAKE = 1 << 20;
        const SERVER_HANDSHAKE = 1 << 21;
    }
}

const BASIC: TlsLogFields =
    TlsLogFields::SUBJECT.union(TlsLogFields::ISSUER).union(TlsLogFields::SUBJECTALTNAME);

const EXTENDED: TlsLogFields = BASIC
    .union(TlsLogFields::VERSION)
    .union(TlsLogFields::SERIAL)
    .union(TlsLogFields::FINGERPRINT)
    .union(TlsLogFields::NOT_BEFORE)
    .union(TlsLogFields::NOT_AFTER)
    .union(TlsLogFields::JA3)
    .union(TlsLogFields::JA3S)
    .union(TlsLogFields::JA4)
    .union(TlsLogFields::CLIENT)
    .union(TlsLogFields::CLIENT_ALPNS)
    .union(TlsLogFields::SERVER_ALPNS)
    .union(TlsLogFields::SNI);

fn by_name(name: &str) -> TlsLogFields {
    match name.to_ascii_lowercase().as_str() {
        "version" => TlsLogFields::VERSION,
        "subject" => TlsLogFields::SUBJECT,
        "issuer" => TlsLogFields::ISSUER,
        "serial" => TlsLogFields::SERIAL,
        "fingerprint" => TlsLogFields::FINGERPRINT,
        "not_before" => TlsLogFields::NOT_BEFORE,
        "not_after" => TlsLogFields::NOT_AFTER,
        "sni" => TlsLogFields::SNI,
        "certificate" => TlsLogFields::CERTIFICATE,
        "chain" => TlsLogFields::CHAIN,
        "session_resumed" => TlsLogFields::SESSION_RESUMED,
        "ja3" => TlsLogFields::JA3,
        "ja3s" => TlsLogFields::JA3S,
        "client" => TlsLogFields::CLIENT,
        "client_certificate" => TlsLogFields::CLIENT | TlsLogFields::CLIENT_CERTIFICATE,
        "client_chain" => TlsLogFields::CLIENT | TlsLogFields::CLIENT_CHAIN,
        "ja4" => TlsLogFields::JA4,
        "subjectaltname" => TlsLogFields::SUBJECTALTNAME,
        "client_alpns" => TlsLogFields::CLIENT_ALPNS,
        "server_alpns" => TlsLogFields::SERVER_ALPNS,
        "client_handshake" => TlsLogFields::CLIENT_HANDSHAKE,
        "server_handshake" => TlsLogFields::SERVER_HANDSHAKE,
        _ => TlsLogFields::empty(),
    }
}

fn chosen(options: &LogOptions, in_alert: bool) -> TlsLogFields {
    if in_alert {
        return EXTENDED;
    }
    let mut fields = if !options.custom.is_empty() {
        options.custom.iter().map(|n| by_name(n)).fold(TlsLogFields::empty(), TlsLogFields::union)
    } else if options.settings.bool("extended", false).unwrap_or(false) {
        EXTENDED
    } else {
        BASIC
    };
    if resumption(options) {
        fields.insert(TlsLogFields::SESSION_RESUMED);
    }
    fields
}

/// Whether resumed sessions are logged: by default yes, but not with a bare `- tls` in the list of types.
fn resumption(options: &LogOptions) -> bool {
    let bare = options.settings.iter().next().is_none() && options.custom.is_empty();
    options.settings.bool("session-resumption", !bare).unwrap_or(!bare)
}

/// Whether an output with these options writes the record.
pub(super) fn wanted(tx: &TlsTx, options: &LogOptions) -> bool {
    resumption(options) || !tx.only_resumed()
}

/// Writes the fields.
pub(super) fn write(tx: &TlsTx, json: &mut JsonWriter, options: &LogOptions, in_alert: bool) {
    let fields = chosen(options, in_alert);
    let client = &tx.sides.to_server;
    let server = &tx.sides.to_client;
    server_certificate(json, fields, tx, server);
    if fields.contains(TlsLogFields::CERTIFICATE) {
        own_certificate(json, &server.chain);
    }
    if fields.contains(TlsLogFields::CHAIN) {
        chain(json, &server.chain);
    }
    fingerprints(json, fields, tx);
    if fields.contains(TlsLogFields::CLIENT_ALPNS) {
        alpns(json, "client_alpns", &client.hello);
    }
    if fields.contains(TlsLogFields::SERVER_ALPNS) {
        alpns(json, "server_alpns", &server.hello);
    }
    if fields.contains(TlsLogFields::CLIENT_HANDSHAKE) && !client.hello.is_empty() {
        json.object("client_handshake");
        handshake_version(json, &client.hello);
        numbers(json, "ciphers", &client.hello.ciphers);
        numbers(json, "exts", &client.hello.extensions);
        numbers(json, "sig_algs", &client.hello.signature_algorithms);
        json.end_object();
    }
    if fields.contains(TlsLogFields::SERVER_HANDSHAKE) && !server.hello.is_empty() {
        json.object("server_handshake");
        handshake_version(json, &server.hello);
        json.num("cipher", server.hello.ciphers.first().copied().unwrap_or(0));
        numbers(json, "exts", &server.hello.extensions);
        json.end_object();
    }
    if fields.contains(TlsLogFields::CLIENT)
        && let Some(certificate) = client.certificate.as_deref()
    {
        json.object("client");
        json.str("subject", &certificate.subject);
        json.str("issuerdn", &certificate.issuer);
        json.str("fingerprint", &certificate.fingerprint);
        json.str("serial", &certificate.serial);
        times(json, TlsLogFields::NOT_BEFORE | TlsLogFields::NOT_AFTER, certificate);
        if fields.contains(TlsLogFields::CLIENT_CERTIFICATE) {
            own_certificate(json, &client.chain);
        }
        if fields.contains(TlsLogFields::CLIENT_CHAIN) {
            chain(json, &client.chain);
        }
        json.end_object();
    }
}

fn server_certificate(json: &mut JsonWriter, fields: TlsLogFields, tx: &TlsTx, server: &TlsSide) {
    let certificate = server.certificate.as_deref();
    if let Some(certificate) = certificate {
        if fields.contains(TlsLogFields::SUBJECT) {
            json.str("subject", &certificate.subject);
        }
        if fields.contains(TlsLogFields::ISSUER) {
            json.str("issuerdn", &certificate.issuer);
        }
        if fields.contains(TlsLogFields::SUBJECTALTNAME) && !certificate.names.is_empty() {
            json.array("subjectaltname");
            certificate.names.iter().for_each(|n| json.item_str(n));
            json.end_array();
        }
    }
    if fields.contains(TlsLogFields::SESSION_RESUMED) && tx.resumed() {
        json.bool("session_resumed", true);
    }
    if let Some(certificate) = certificate {
        if fields.contains(TlsLogFields::SERIAL) {
            json.str("serial", &certificate.serial);
        }
        if fields.contains(TlsLogFields::FINGERPRINT) {
            json.str("fingerprint", &certificate.fingerprint);
        }
    }
    if fields.contains(TlsLogFields::SNI)
        && let Some(name) = &tx.sides.to_server.server_name
    {
        json.text("sni", name);
    }
    if fields.contains(TlsLogFields::VERSION) {
        // Without a version from the server the client's remains.
        let said = [server.version, tx.sides.to_server.version];
        let version = said.into_iter().find(|v| *v != version::UNKNOWN).unwrap_or(version::UNKNOWN);
        version::log(json, "version", version);
    }
    if let Some(certificate) = certificate {
        times(json, fields, certificate);
    }
}

fn fingerprints(json: &mut JsonWriter, fields: TlsLogFields, tx: &TlsTx) {
    if tx.config.ja3.logged() {
        for (field, key, side) in [
            (TlsLogFields::JA3, "ja3", &tx.sides.to_server),
            (TlsLogFields::JA3S, "ja3s", &tx.sides.to_client),
        ] {
            if fields.contains(field)
                && let Some(text) = side.ja3.text()
            {
                json.object(key);
                if let Some(hash) = side.ja3.hash() {
                    json.str("hash", hash);
                }
                json.str("string", text);
                json.end_object();
            }
        }
    }
    if fields.contains(TlsLogFields::JA4) {
        let mut text = Vec::with_capacity(36);
        if buffers::write_ja4(tx, &mut text) {
            json.text("ja4", &text);
        }
    }
}

fn handshake_version(json: &mut JsonWriter, hello: &HelloFields) {
    if let Some(name) = version::name(hello.version.unwrap_or(version::UNKNOWN)) {
        json.str("version", name);
    }
}

fn numbers(json: &mut JsonWriter, key: &str, list: &[u16]) {
    if !list.is_empty() {
        json.array(key);
        list.iter().for_each(|n| json.item_num(*n));
        json.end_array();
    }
}

fn alpns(json: &mut JsonWriter, key: &str, hello: &HelloFields) {
    let mut names = hello.alpns().peekable();
    if names.peek().is_some() {
        json.array(key);
        names.for_each(|n| json.item_text(n));
        json.end_array();
    }
}

fn own_certificate(json: &mut JsonWriter, chain: &Chain) {
    if let Some(der) = chain.get(0) {
        json.base64("certificate", der);
    }
}

fn chain(json: &mut JsonWriter, chain: &Chain) {
    if chain.len() == 0 {
        return;
    }
    json.array("chain");
    let mut scratch = JsonWriter::new();
    for der in chain.iter() {
        // The writer has base64 for fields only: the text after `{"":` is the value.
        scratch.clear();
        scratch.begin_object();
        scratch.base64("", der);
        json.item_raw(scratch.bytes().get(4..).unwrap_or(b"\"\""));
    }
    json.end_array();
}

fn times(json: &mut JsonWriter, fields: TlsLogFields, certificate: &Certificate) {
    for (field, key, time) in [
        (TlsLogFields::NOT_BEFORE, "notbefore", certificate.not_before),
        (TlsLogFields::NOT_AFTER, "notafter", certificate.not_after),
    ] {
        if fields.contains(field) && time != 0 {
            json.str(key, &iso_time(time));
        }
    }
}

/// `2015-02-12T18:07:27`, UTC, of seconds since 1970 (negative: before).
fn iso_time(seconds: i64) -> String {
    let days = seconds.div_euclid(86_400);
    let second = seconds.rem_euclid(86_400);
    // Days since 0000-03-01, in eras of 400 years (Howard Hinnant, "chrono-compatible low-level date
    // algorithms").
    let shifted = days.saturating_add(719_468);
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970() {
        assert_eq!(iso_time(-86_400), "1969-12-31T00:00:00");
        assert_eq!(iso_time(2_177_367_003), "2038-12-31T00:10:03");
        assert_eq!(iso_time(951_782_400), "2000-02-29T00:00:00");
        assert_eq!(iso_time(253_402_300_799), "9999-12-31T23:59:59");
    }

    #[test]
    fn a_bare_type_leaves_resumed_sessions_out() {
        let mut options = LogOptions { extended: true, ..LogOptions::default() };
        assert_eq!(chosen(&options, false), BASIC);
        options.settings.set("extended", "yes");
        assert_eq!(chosen(&options, false), EXTENDED | TlsLogFields::SESSION_RESUMED);
        options.settings.set("session-resumption", "no");
        assert_eq!(chosen(&options, false), EXTENDED);
    }

    #[test]
    fn custom_names() {
        let options = LogOptions {
            custom: vec!["SNI".into(), "client_chain".into(), "none".into()],
            ..LogOptions::default()
        };
        assert_eq!(
            chosen(&options, false),
            TlsLogFields::SNI
                | TlsLogFields::CLIENT
                | TlsLogFields::CLIENT_CHAIN
                | TlsLogFields::SESSION_RESUMED
        );
        assert_eq!(chosen(&options, true), EXTENDED);
    }

    #[test]
    fn chains_are_base64() {
        let mut scratch = JsonWriter::new();
        scratch.begin_object();
        scratch.base64("", b"abc");
        assert_eq!(scratch.bytes().get(4..), Some(br#""YWJj""#.as_slice()));
    }
}
