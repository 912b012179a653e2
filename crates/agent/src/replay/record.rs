// SPDX-License-Identifier: Apache-2.0
//! A flow record of EVE (`event_type` `flow`), of Bartizan or of Suricata, as far as a replay needs it: whose
//! it was, and what became of it. The text is foreign: what is missing or wrong is said, and nothing is made
//! up for it.

use super::outcome::{Amounts, Fate, FlowName, Outcome};
use bartizan_events::names::protocol_name;
use core::net::IpAddr;
use serde_json::Value;

/// Bytes of a record that is read.
pub const RECORD_BYTES: usize = 64 << 10;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which flow.
    pub flow: FlowName,
    /// ICMP: type and code.
    pub icmp: Option<(u8, u8)>,
    /// VLAN ids, outermost first.
    pub vlans: Vec<u16>,
    /// Name of the link, where it says so.
    pub link: Option<String>,
    /// What became of it.
    pub was: Outcome,
    /// How much it was.
    pub amounts: Amounts,
}

/// Why a line is no record that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRead {
    /// Another kind of event: nothing is wrong.
    #[error("it is no flow record")]
    Other,
    /// It is longer than a record may be.
    #[error("it is longer than {RECORD_BYTES} bytes")]
    TooLong,
    /// It is no JSON.
    #[error("it is no JSON: {0}")]
    NoJson(String),
    /// A key is missing, or says something else than it can.
    #[error("`{0}` is missing or says something else than it can")]
    Key(&'static str),
}

impl Record {
    /// Reads a line.
    ///
    /// # Errors
    /// It is none that can be used.
    pub fn parse(line: &[u8]) -> Result<Self, NotRead> {
        if line.len() > RECORD_BYTES {
            return Err(NotRead::TooLong);
        }
        let value: Value =
            serde_json::from_slice(line).map_err(|error| NotRead::NoJson(error.to_string()))?;
        if value.get("event_type").and_then(Value::as_str) != Some("flow") {
            return Err(NotRead::Other);
        }
        Record::of(&value)
    }

    fn of(value: &Value) -> Result<Self, NotRead> {
        let own = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let (src_ip, dest_ip) = (address(value, "src_ip")?, address(value, "dest_ip")?);
        if src_ip.is_ipv4() != dest_ip.is_ipv4() {
            return Err(NotRead::Key("dest_ip"));
        }
        let protocol = value.get("proto").and_then(Value::as_str).and_then(number_of);
        let protocol = protocol.ok_or(NotRead::Key("proto"))?;
        let ported = matches!(protocol, 6 | 17 | 132);
        let (src_port, dest_port) = (port(value, "src_port", ported)?, port(value, "dest_port", ported)?);
        let start = own("/flow/start").ok_or(NotRead::Key("flow.start"))?;
        let sum = |a: &str, b: &str| {
            let of = |pointer: &str| value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
            of(a).saturating_add(of(b))
        };
        Ok(Record {
            flow: FlowName { protocol, src_ip, src_port, dest_ip, dest_port, start },
            icmp: small(value, "icmp_type")?.zip(small(value, "icmp_code")?),
            vlans: vlans(value)?,
            link: own("/bartizan/link"),
            was: was(value, own),
            amounts: Amounts {
                flows: 1,
                packets: sum("/flow/pkts_toserver", "/flow/pkts_toclient"),
                bytes: sum("/flow/bytes_toserver", "/flow/bytes_toclient"),
            },
        })
    }
}

fn was(value: &Value, own: impl Fn(&str) -> Option<String>) -> Outcome {
    let refused = |function, reason| {
        let rule = value.pointer("/bartizan/rule").and_then(Value::as_u64);
        Fate::Refused { function, reason, rule: rule.and_then(|rule| u32::try_from(rule).ok()) }
    };
    let verdict = own("/bartizan/verdict");
    let fate = match (verdict.as_deref(), own("/flow/action").as_deref()) {
        (Some("drop" | "reject" | "rate_limit"), _) => refused(
            own("/bartizan/function").unwrap_or_default(),
            own("/bartizan/reason").unwrap_or_default(),
        ),
        (_, Some("drop")) => refused(String::new(), "as the record says".to_owned()),
        _ => Fate::Forwarded,
    };
    // A tenant is only a number in records, and another policy file numbers them otherwise.
    Outcome { tenant: String::new(), policy: own("/bartizan/policy").unwrap_or_default(), fate }
}

fn address(value: &Value, key: &'static str) -> Result<IpAddr, NotRead> {
    let text = value.get(key).and_then(Value::as_str);
    text.and_then(|text| text.parse().ok()).ok_or(NotRead::Key(key))
}

fn port(value: &Value, key: &'static str, needed: bool) -> Result<u16, NotRead> {
    match value.get(key) {
        None if !needed => Ok(0),
        None => Err(NotRead::Key(key)),
        Some(port) => port.as_u64().and_then(|port| u16::try_from(port).ok()).ok_or(NotRead::Key(key)),
    }
}

fn small(value: &Value, key: &'static str) -> Result<Option<u8>, NotRead> {
    let Some(number) = value.get(key) else { return Ok(None) };
    number.as_u64().and_then(|n| u8::try_from(n).ok()).map(Some).ok_or(NotRead::Key(key))
}

fn vlans(value: &Value) -> Result<Vec<u16>, NotRead> {
    let wrong = || NotRead::Key("vlan");
    let id = |id: &Value| id.as_u64().and_then(|id| u16::try_from(id).ok()).ok_or_else(wrong);
    match value.get("vlan") {
        None => Ok(Vec::new()),
        Some(Value::Array(ids)) if ids.len() <= 3 => ids.iter().map(id).collect(),
        Some(_) => Err(wrong()),
    }
}

/// The number of a protocol that records have by its name, or as a number.
fn number_of(name: &str) -> Option<u8> {
    let known =
        (0..=u8::MAX).find(|number| protocol_name(*number).is_some_and(|n| n.eq_ignore_ascii_case(name)));
    known.or_else(|| name.parse().ok())
}
