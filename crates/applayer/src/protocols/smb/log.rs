// SPDX-License-Identifier: Apache-2.0
//! The record of a transaction, with Suricata's fields.

use super::handle::guid;
use super::names;
use super::tx::{
    Detail, Dialect, Disposition, Login, NativeNames, Negotiation, Opening, PipeCall, SmbStatus,
    SmbTransaction, TreeConnect,
};
use crate::protocols::dcerpc::pdu;
use crate::rpc::RpcInterface;
use bartizan_base::Direction;
use bartizan_events::JsonWriter;

/// Name in records of the root of a share.
const ROOT: &str = "<share_root>";

/// Dispositions of an opening ([MS-SMB2] section 2.2.13).
const DISPOSITIONS: [&str; 6] =
    ["FILE_SUPERSEDE", "FILE_OPEN", "FILE_CREATE", "FILE_OPEN_IF", "FILE_OVERWRITE", "FILE_OVERWRITE_IF"];

/// Functions of TRANS2 that set information.
const FUNCTIONS: [(u16, &str); 2] = [(8, "SET_FILE_INFO"), (6, "SET_PATH_INFO")];
/// Level of TRANS2 at which a file is to be deleted.
const DISPOSITION_LEVEL: u16 = 1_013;

/// Writes a text; what is no UTF-8 in it is replaced.
fn text(json: &mut JsonWriter, key: &str, value: &[u8]) {
    json.str(key, &String::from_utf8_lossy(value));
}

/// Writes the fields of a record.
pub(super) fn write(tx: &SmbTransaction, json: &mut JsonWriter) {
    json.num("id", tx.common.id.saturating_add(1));
    match &tx.dialect {
        Dialect::Unknown => json.str("dialect", "unknown"),
        Dialect::Named(name) => json.str("dialect", core::str::from_utf8(name).unwrap_or("invalid")),
        Dialect::Revision(revision) => json.str("dialect", &names::dialect(*revision)),
    }
    json.str("command", &names::command(tx.version, tx.command));
    match tx.status {
        Some(SmbStatus::Nt(status)) => {
            json.str("status", &names::nt_status(status));
            json.str("status_code", &format!("0x{status:x}"));
        }
        Some(SmbStatus::Dos { class, code }) => {
            json.str("status", &names::dos_error(class, code));
            json.str("status_code", &format!("0x{code:04x}"));
        }
        None => {}
    }
    json.num("session_id", tx.key.session);
    json.num("tree_id", tx.key.tree);
    match &tx.detail {
        Detail::None => {}
        Detail::Negotiation(it) => negotiation(it, json),
        Detail::Login(it) => login(it, json),
        Detail::Tree(it) => tree(it, tx.version, json),
        Detail::Opening(it) => opening(it, json),
        Detail::File(it) => {
            text(json, "filename", it.name());
            text(json, "share", &it.share);
            json.str("fuid", &it.id.text());
        }
        Detail::Control(function) => json.str("function", &names::function(*function)),
        Detail::Renaming(it) => {
            if tx.version == 2 {
                json.object("set_info");
                json.str("class", "FILE_INFO");
                json.str("info_level", "SMB2_FILE_RENAME_INFO");
                json.end_object();
            }
            json.object("rename");
            text(json, "from", &it.from);
            text(json, "to", &it.to);
            json.end_object();
            json.str("fuid", &it.id.text());
        }
        Detail::Disposition(it) => disposition(it, json),
        Detail::Call(it) => call(it, json),
    }
}

fn negotiation(it: &Negotiation, json: &mut JsonWriter) {
    json.array("client_dialects");
    for dialect in &it.dialects {
        json.item_str(&String::from_utf8_lossy(dialect));
    }
    json.end_array();
    if let Some(client) = &it.client {
        json.str("client_guid", &guid(client));
    }
    json.str("server_guid", &it.server.as_ref().map(guid).unwrap_or_default());
    for (key, size) in [("max_read_size", it.max_read), ("max_write_size", it.max_write)] {
        if size > 0 {
            json.num(key, size);
        }
    }
}

fn login(it: &Login, json: &mut JsonWriter) {
    if let Some(ntlm) = &it.ntlm {
        json.object("ntlmssp");
        text(json, "domain", &ntlm.domain);
        text(json, "user", &ntlm.user);
        text(json, "host", &ntlm.host);
        if let Some(version) = &ntlm.version {
            json.str("version", version);
        }
        json.end_object();
    }
    if let Some(ticket) = &it.ticket {
        json.object("kerberos");
        text(json, "realm", &ticket.realm);
        json.array("snames");
        for name in &ticket.service {
            json.item_str(&String::from_utf8_lossy(name));
        }
        json.end_array();
        json.end_object();
    }
    let mut native = |key: &str, names: &Option<NativeNames>| {
        if let Some(names) = names {
            json.object(key);
            text(json, "native_os", &names.system);
            text(json, "native_lm", &names.manager);
            json.end_object();
        }
    };
    native("request", &it.client);
    native("response", &it.server);
}

fn tree(it: &TreeConnect, version: u8, json: &mut JsonWriter) {
    text(json, if it.is_pipe { "named_pipe" } else { "share" }, &it.name);
    if version == 1 {
        json.object("service");
        text(json, "request", &it.asked);
        if let Some(given) = &it.given {
            text(json, "response", given);
        }
        json.end_object();
        return;
    }
    let kind = match it.kind {
        1 => "FILE",
        2 => "PIPE",
        3 => "PRINT",
        _ => "UNKNOWN",
    };
    json.str("share_type", kind);
}

/// Writes the name of a file or a directory; the root of a share has none.
fn path(json: &mut JsonWriter, key: &str, name: &[u8]) {
    if name.is_empty() {
        json.str("filename", ROOT);
    } else {
        text(json, key, name);
    }
}

fn access(json: &mut JsonWriter, is_deleted: bool) {
    json.str("access", if is_deleted { "delete on close" } else { "normal" });
}

fn opening(it: &Opening, json: &mut JsonWriter) {
    path(json, if it.is_directory { "directory" } else { "filename" }, &it.name);
    let disposition = usize::try_from(it.disposition).ok().and_then(|index| DISPOSITIONS.get(index));
    json.str("disposition", disposition.unwrap_or(&"UNKNOWN"));
    access(json, it.is_deleted);
    for (key, seconds) in ["created", "accessed", "modified", "changed"].iter().zip(it.times) {
        json.num(key, seconds);
    }
    json.num("size", it.size);
    json.str("fuid", &it.id.text());
}

fn disposition(it: &Disposition, json: &mut JsonWriter) {
    path(json, "filename", &it.name);
    access(json, it.is_deleted);
    if let Some((_, name)) = FUNCTIONS.iter().find(|entry| entry.0 == it.function) {
        json.str("subcmd", name);
    }
    if it.level == DISPOSITION_LEVEL {
        json.str("level_of_interest", "Set Disposition Information");
    }
    json.str("fuid", &it.id.text());
}

fn interface(it: &RpcInterface, with_answer: bool, json: &mut JsonWriter) {
    json.begin_object();
    json.str("uuid", &it.uuid.to_string());
    json.str("version", &format!("{}.{}", it.version, it.minor));
    if let Some(result) = it.result.filter(|_| with_answer) {
        json.num("ack_result", result);
        // As in Suricata, which does not read the reason.
        json.num("ack_reason", 0);
    }
    json.end_object();
}

fn call(it: &PipeCall, json: &mut JsonWriter) {
    json.object("dcerpc");
    let name = |kind: Option<u8>, none: &str| kind.map_or_else(|| none.to_owned(), pdu::kind_name);
    json.str("request", &name(it.request, "REQUEST_LOST"));
    json.str("response", &name(it.response, "UNREPLIED"));
    let stub = |json: &mut JsonWriter, key: &str, direction: Direction| {
        json.object(key);
        json.num("frag_cnt", it.fragments[direction]);
        json.num("stub_data_size", it.sizes[direction]);
        json.end_object();
    };
    let is_request = it.request == Some(pdu::REQUEST);
    let wanted = |interface: &&RpcInterface| match it.request {
        Some(pdu::REQUEST) => interface.context == it.context,
        Some(pdu::BIND) => true,
        _ => false,
    };
    if is_request {
        json.num("opnum", it.opnum);
        stub(json, "req", Direction::ToServer);
    }
    if it.interfaces.iter().any(|it| wanted(&it)) {
        json.array("interfaces");
        for found in it.interfaces.iter().filter(wanted) {
            interface(found, !is_request, json);
        }
        json.end_array();
    }
    if it.response == Some(pdu::RESPONSE) {
        stub(json, "res", Direction::ToClient);
    }
    json.num("call_id", it.call);
    json.end_object();
}
