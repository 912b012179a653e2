// SPDX-License-Identifier: Apache-2.0
//! Causes of differences of application protocols that are on purpose; docs/limits.md states each ("SSH, FTP,
//! SMTP, SMB, DCERPC").

use crate::causes::Case;
use crate::finding::{Alert, Finding, FlowKey, What};

/// The client's first flow.
const FIRST: FlowKey = (1, 0);

fn is_of(case: &Case<'_>, protocol: &str) -> bool {
    case.pair.is_application && case.pair.name.split('/').next() == Some(protocol)
}

/// Whether an alert's rule is about one of these protocols.
fn is_about(case: &Case<'_>, alert: &Alert, protocols: &[&str]) -> bool {
    let proto = case.rule(alert).and_then(|rule| rule.head.split([' ', ':']).next());
    proto.is_some_and(|proto| protocols.contains(&proto))
}

/// Kinds of messages that Suricata's parser of DCERPC goes on after.
const USUAL: &[u8] = &[0, 2, 11, 12, 14, 15];

/// Whether the messages at the front of some data have one of another kind than the usual ones.
fn has_another_kind(data: &[u8]) -> bool {
    let mut rest = data;
    while let [5, 0 | 1, kind, _, order, _, _, _, first, second, ..] = rest {
        if !USUAL.contains(kind) {
            return true;
        }
        let length = match order & 0x10 {
            0 => u16::from_be_bytes([*first, *second]),
            _ => u16::from_le_bytes([*first, *second]),
        };
        let Some(behind) = rest.get(usize::from(length).max(16)..) else { break };
        rest = behind;
    }
    false
}

/// DCERPC: Suricata's parser stops at FAULT and BIND_NAK, and has transactions of other kinds.
pub(crate) fn behind_another_kind(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    if !is_of(case, "dcerpc") || case.pair.packets.iter().any(|packet| packet.port == 1_024) {
        return None;
    }
    let kinds = [true, false].map(|side| has_another_kind(&case.passage.first(FIRST, side, u32::MAX)));
    let fits = match &finding.what {
        What::Alert(alert) => is_about(case, alert, &["dcerpc"]),
        What::Record(name) => name.starts_with("dcerpc:"),
        What::Drop(..) => false,
    };
    (fits && kinds.contains(&true))
        .then_some("FAULT and BIND_NAK are answers, and other kinds have no transaction")
}

/// SMB: this program passes over a message that is none, and goes on; Suricata stops.
pub(crate) fn behind_a_broken_message(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const MALFORMED: &str = "anomaly:malformed_data";
    let fits = match &finding.what {
        What::Alert(alert) => is_about(case, alert, &["smb"]),
        What::Record(name) => ["smb:", "fileinfo:", MALFORMED].iter().any(|begin| name.starts_with(begin)),
        What::Drop(..) => false,
    };
    (is_of(case, "smb") && finding.more && fits && case.got.has(MALFORMED))
        .then_some("a message of SMB that is none is passed over")
}

/// FTP: replies without a known command are shown to rules.
pub(crate) fn reply_without_a_command(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let asks =
        case.asks(alert, &["ftp.reply", "ftp.completion_code"]) && !case.asks(alert, &["ftp.reply_received"]);
    (is_of(case, "ftp") && finding.more && !alert.to_server && asks)
        .then_some("replies to no known command are shown")
}

/// FTP: a data connection stays one, whatever its first bytes are.
pub(crate) fn another_protocol_in_a_data_connection(
    case: &Case<'_>,
    finding: &Finding,
) -> Option<&'static str> {
    const BEGINNINGS: &[&[u8]] = &[b"SSH-", b"GET /"];
    let flow = match &finding.what {
        What::Alert(alert) => alert.flow,
        _ => finding.flow?,
    };
    let begins = |side| {
        let first = case.passage.first(flow, side, 5);
        BEGINNINGS.iter().any(|begin| first.starts_with(begin))
    };
    (is_of(case, "ftp") && flow.1 > 0 && (begins(true) || begins(false)))
        .then_some("an announced data connection is one, whatever its first bytes are")
}

/// SSH in prevention: parsing goes on after lines before the server's identification line.
pub(crate) fn lines_before_a_banner(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let first = case.passage.first(FIRST, false, 4);
    let fits = match &finding.what {
        What::Alert(alert) => is_about(case, alert, &["ssh"]),
        What::Record(name) => name.starts_with("ssh:"),
        What::Drop(..) => false,
    };
    (case.ips && is_of(case, "ssh") && fits && first.len() == 4 && first != b"SSH-")
        .then_some("lines before an identification line are skipped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_message_by_message() {
        let message = |kind: u8, little: bool| {
            let order = if little { 0x10 } else { 0 };
            let length = if little { [20, 0] } else { [0, 20] };
            [&[5, 0, kind, 3, order, 0, 0, 0][..], &length, &[0; 10]].concat()
        };
        for little in [true, false] {
            let usual = [message(11, little), message(0, little)].concat();
            assert!(!has_another_kind(&usual));
            assert!(has_another_kind(&[usual.clone(), message(3, little)].concat()));
            // What follows something that is no message does not count.
            assert!(!has_another_kind(&[usual, b"zz".to_vec(), message(3, little)].concat()));
        }
    }
}
