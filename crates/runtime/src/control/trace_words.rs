// SPDX-License-Identifier: Apache-2.0
//! Trace requests in their textual form.

use super::flow_words;
use crate::traces::{PACKETS, PACKETS_MAX, RuleNumber, SECONDS, SECONDS_MAX, TraceRequest, parse_sid};
use bartizan_api::control::ControlRequest;
use bartizan_detect::explain::trace::{ATTEMPTS, ATTEMPTS_MAX};
use serde_json::Value;
use std::time::Duration;

/// The arguments; all but the rule are optional.
const ARGUMENTS: [&str; 6] = ["rule", "packets", "seconds", "attempts", "flow", "tenant"];

/// Parses a trace request.
///
/// # Errors
/// The wrong argument, and its valid values.
pub fn parse(request: &ControlRequest) -> Result<TraceRequest, String> {
    if let Some(other) = request.arguments.keys().find(|name| !ARGUMENTS.contains(&name.as_str())) {
        return Err(format!("there is no argument `{other}`; arguments are {}", ARGUMENTS.join(", ")));
    }
    let rule = match request.arguments.get("rule") {
        Some(Value::Number(number)) => number.to_string(),
        _ => request.text("rule")?.to_owned(),
    };
    let (gid, sid) = parse_sid(&rule)?;
    let most = ATTEMPTS_MAX as u64;
    let attempts = number(request, "attempts", ATTEMPTS as u64, 0, most)?;
    let text = |name: &str| request.arguments.contains_key(name).then(|| request.text(name)).transpose();
    Ok(TraceRequest {
        rule: RuleNumber { gid, sid },
        packets: number(request, "packets", PACKETS, 1, PACKETS_MAX)?,
        time: Duration::from_secs(number(request, "seconds", SECONDS, 1, SECONDS_MAX)?),
        attempts: usize::try_from(attempts).unwrap_or(ATTEMPTS_MAX),
        flows: text("flow")?.map(flow_words::parse).transpose()?,
        tenant: text("tenant")?.map(str::to_owned),
    })
}

fn number(request: &ControlRequest, name: &str, usual: u64, least: u64, most: u64) -> Result<u64, String> {
    if !request.arguments.contains_key(name) {
        return Ok(usual);
    }
    let number = request.number(name)?;
    let fits = (least..=most).contains(&number);
    fits.then_some(number).ok_or_else(|| format!("`{name}` {number} is out of range; use {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(arguments: Value) -> Result<TraceRequest, String> {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        parse(&ControlRequest { command: "trace".to_owned(), arguments })
    }

    #[test]
    fn what_is_left_out_is_as_usual() {
        let plain = read(json!({"rule": 7})).unwrap();
        assert_eq!((plain.rule.gid, plain.rule.sid, plain.packets), (None, 7, PACKETS));
        assert_eq!((plain.time.as_secs(), plain.attempts, plain.flows), (SECONDS, ATTEMPTS, None));
        let all = json!({"rule": "3:7", "packets": "9", "seconds": 2, "attempts": 0, "flow": "udp 10.0.0.1", "tenant": "a"});
        let all = read(all).unwrap();
        assert_eq!((all.rule.gid, all.packets, all.time.as_secs(), all.attempts), (Some(3), 9, 2, 0));
        assert!(
            all.flows.is_some_and(|flows| flows.protocol == Some(17)) && all.tenant.as_deref() == Some("a")
        );
    }

    #[test]
    fn wrong_arguments_are_named_with_what_they_may_be() {
        for (arguments, says) in [
            (json!({}), "`rule` is missing"),
            (json!({"rule": "x"}), "`x` is not a number"),
            (json!({"rule": 1, "packets": 0}), "`packets` 0 is out of range; use 1 to 10000"),
            (json!({"rule": 1, "seconds": 601}), "`seconds` 601 is out of range; use 1 to 600"),
            (json!({"rule": 1, "attempts": 10_001}), "`attempts` 10001 is out of range"),
            (json!({"rule": 1, "packets": "many"}), "`packets` is not a number"),
            (json!({"rule": 1, "flow": "tcp"}), "an address is missing"),
            (json!({"rule": 1, "tenant": 1}), "`tenant` is not a string"),
            (json!({"rule": 1, "pakets": 1}), "there is no argument `pakets`; arguments are rule, packets"),
        ] {
            let error = read(arguments.clone()).unwrap_err();
            assert!(error.contains(says), "{arguments}: {error}");
        }
    }
}
