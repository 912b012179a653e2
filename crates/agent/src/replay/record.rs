// SPDX-License-Identifier: Apache-2.0
//! The fields of an EVE flow record (`event_type` `flow`), of Bartizan or Suricata, that a replay needs: the
//! flow and its outcome. The text is untrusted: missing or wrong fields are reported, and no values are
//! invented.

use super::outcome::{Amounts, FlowName, ReplayOutcome, ReplayVerdict};
use bartizan_events::names::protocol_name;
use core::net::IpAddr;
use serde_json::Value;

/// Most bytes of a record.
pub const RECORD_BYTES: usize = 64 << 10;

/// A flow record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The flow.
    pub flow: FlowName,
    /// Type and code, for ICMP.
    pub icmp: Option<(u8, u8)>,
    /// VLAN ids, outermost first.
    pub vlans: Vec<u16>,
    /// Name of the link, if the record has one.
    pub link: Option<String>,
    /// The recorded outcome.
    pub was: ReplayOutcome,
    /// Number of packets and bytes.
    pub amounts: Amounts,
}

/// Why a line is not a usable record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRead {
    /// An event of another type, which is not an error.
    #[error("it is not a flow record")]
    Other,
    /// The line is longer than a record may be.
    #[error("it is longer than {RECORD_BYTES} bytes")]
    TooLong,
    /// The line is not JSON.
    #[error("it is not JSON: {0}")]
    NoJson(String),
    /// A key is missing or has an invalid value.
    #[error("`{0}` is missing or has an invalid value")]
    Key(&'static str),
}

impl Record {
    /// Parses a line.
    ///
    /// # Errors
    /// The line is not a usable record.
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

fn was(value: &Value, own: impl Fn(&str) -> Option<String>) -> ReplayOutcome {
    let refused = |function, reason| {
        let rule = value.pointer("/bartizan/rule").and_then(Value::as_u64);
        ReplayVerdict::Refused { function, reason, rule: rule.and_then(|rule| u32::try_from(rule).ok()) }
    };
    let verdict = own("/bartizan/verdict");
    let fate = match (verdict.as_deref(), own("/flow/action").as_deref()) {
        (Some("drop" | "reject" | "rate_limit"), _) => refused(
            own("/bartizan/function").unwrap_or_default(),
            own("/bartizan/reason").unwrap_or_default(),
        ),
        (_, Some("drop")) => refused(String::new(), "as the record says".to_owned()),
        _ => ReplayVerdict::Forwarded,
    };
    // Records have tenants by number only, and another policy file may number them differently.
    ReplayOutcome {
        tenant: String::new(),
        policy: own("/bartizan/policy").unwrap_or_default(),
        verdict: fate,
    }
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

/// The number of a protocol, from its name or number in a record.
fn number_of(name: &str) -> Option<u8> {
    let known =
        (0..=u8::MAX).find(|number| protocol_name(*number).is_some_and(|n| n.eq_ignore_ascii_case(name)));
    known.or_else(|| name.parse().ok())
}
