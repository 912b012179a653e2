// SPDX-License-Identifier: Apache-2.0
//! The fields of EVE's `smtp` and `email`.

use super::tx::SmtpTransaction;
use crate::content::mime::message::MailMessage;
use crate::transaction::LogOptions;
use bartizan_events::JsonWriter;
use md5::{Digest as _, Md5};

/// Header fields that an output can ask for (`smtp.custom`): key in the record, name of the field and of the
/// option, whether all its values are listed.
const CUSTOM: &[(&str, &str, bool)] = &[
    ("reply_to", "reply-to", false),
    ("bcc", "bcc", true),
    ("message_id", "message-id", false),
    ("subject", "subject", false),
    ("x_mailer", "x-mailer", false),
    ("user_agent", "user-agent", false),
    ("received", "received", true),
    ("x_originating_ip", "x-originating-ip", false),
    ("in_reply_to", "in-reply-to", false),
    ("references", "references", false),
    ("importance", "importance", false),
    ("priority", "priority", false),
    ("sensitivity", "sensitivity", false),
    ("organization", "organization", false),
    ("content_md5", "content-md5", false),
    ("date", "date", false),
];

/// Writes the envelope.
pub(super) fn envelope(tx: &SmtpTransaction, json: &mut JsonWriter) {
    if let Some(helo) = tx.helo.as_deref() {
        json.text("helo", helo);
    }
    if let Some(from) = tx.mail_from.as_deref() {
        json.text("mail_from", from);
    }
    array(json, "rcpt_to", tx.rcpt_to.iter().map(|recipient| &**recipient));
}

/// Writes the message as an object beside the envelope.
pub(super) fn email(message: &MailMessage, json: &mut JsonWriter, options: &LogOptions) {
    json.object("email");
    if let Some(from) = message.values("from").next() {
        json.text("from", from);
    }
    for (key, field) in [("to", "to"), ("cc", "cc")] {
        array(json, key, message.values(field).next().into_iter().flat_map(addresses));
    }
    json.str("status", "PARSE_DONE");
    array(json, "attachment", message.attachments().iter().map(Vec::as_slice));
    array(json, "url", message.urls().iter().rev().map(Vec::as_slice));
    let asks = |field: &str| options.custom.iter().any(|name| name.eq_ignore_ascii_case(field));
    for (key, field, all) in CUSTOM.iter().filter(|(_, field, _)| asks(field)) {
        if *all {
            array(json, key, message.values(field));
        } else if let Some(value) = message.values(field).next() {
            json.text(key, value);
        }
    }
    if wants_md5(options, "subject")
        && let Some(subject) = message.values("subject").next()
    {
        let digest = Md5::digest(subject);
        json.hex("subject_md5", &digest);
    }
    if wants_md5(options, "body")
        && let Some(digest) = message.body_md5()
    {
        json.str("body_md5", digest);
    }
    json.end_object();
}

/// Whether an output asks for a hash (`smtp.md5: [body, subject]`).
fn wants_md5(options: &LogOptions, what: &str) -> bool {
    let settings = &options.settings;
    settings.children("md5").any(|child| settings.get(&format!("md5.{child}")) == Some(what))
}

/// Writes a list, unless it is empty.
fn array<'a>(json: &mut JsonWriter, key: &str, values: impl Iterator<Item = &'a [u8]>) {
    let mut values = values.peekable();
    if values.peek().is_none() {
        return;
    }
    json.array(key);
    values.for_each(|value| json.item_text(value));
    json.end_array();
}

/// The addresses of a list, between commas outside of quotes.
fn addresses(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let is_comma = move |byte: &u8| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_quoted,
            b'"' => is_quoted = !is_quoted,
            b',' => return !is_quoted,
            _ => {}
        }
        false
    };
    list.split(is_comma).map(<[u8]>::trim_ascii).filter(|address| !address.is_empty())
}
