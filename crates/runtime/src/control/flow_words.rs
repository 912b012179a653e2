// SPDX-License-Identifier: Apache-2.0
//! Selection of live flows in its textual form: a 5-tuple in one of several forms, a part of one, or the
//! `flow_id` of an event.

use crate::tuple;
use bartizan_dataplane::driver::inquiry::FlowsWanted;
use std::net::IpAddr;

const FORM: &str = "write `tcp 10.0.0.1:40000 192.0.2.7:80`, `10.0.0.1 40000 192.0.2.7 80 tcp`, `192.0.2.7:80`, or the `flow_id` of an event";

/// Parses a selection. Ports, ends and the protocol may be left out; they fit all then.
///
/// # Errors
/// A message with the error and the right form.
pub fn parse(text: &str) -> Result<FlowsWanted, String> {
    let words: Vec<&str> = tuple::words(text).collect();
    if let [one] = words.as_slice()
        && let Ok(number) = one.parse()
    {
        return Ok(FlowsWanted { number: Some(number), ..FlowsWanted::default() });
    }
    let mut wanted = FlowsWanted::default();
    let mut ends: Vec<(IpAddr, Option<u16>)> = Vec::new();
    for word in words {
        let number = word.parse::<u64>().is_ok();
        match (ends.last_mut(), tuple::end(word)) {
            (_, Ok(end)) => ends.push(end),
            // A port follows an address that has none yet.
            (Some((_, port @ None)), Err(_)) if number => {
                *port =
                    Some(word.parse().map_err(|_| format!("`{word}` is not a port; ports are 0 to 65535"))?);
            }
            (_, Err(end)) => match tuple::protocol_of(word) {
                Ok((protocol, _)) if wanted.protocol.is_none() => wanted.protocol = Some(protocol),
                Ok(_) => return Err(format!("`{word}` is a second protocol; {FORM}")),
                Err(_) if word.contains(['.', ':', '[']) => return Err(end),
                Err(_) => return Err(format!("`{word}` is not an address, port or protocol; {FORM}")),
            },
        }
    }
    match ends.as_slice() {
        [] => return Err(format!("an address is missing; {FORM}")),
        [one] => wanted.ends = [Some(*one), None],
        [a, b] if a.0.is_ipv4() != b.0.is_ipv4() => {
            return Err(format!("{} and {} are of different IP versions; a flow has one", a.0, b.0));
        }
        [a, b] => wanted.ends = [Some(*a), Some(*b)],
        _ => return Err(format!("{} addresses are given, and a flow has two; {FORM}", ends.len())),
    }
    if wanted.protocol == Some(1) && ends.iter().all(|(address, _)| address.is_ipv6()) {
        wanted.protocol = Some(58);
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_named_in_the_forms_that_people_have_at_hand() {
        let end = |address: &str, port: Option<u16>| Some((address.parse::<IpAddr>().unwrap(), port));
        let (a, b) = (end("10.0.0.1", Some(40_000)), end("192.0.2.7", Some(80)));
        for (text, protocol, ends) in [
            ("tcp 10.0.0.1:40000 192.0.2.7:80", Some(6), [a, b]),
            ("tcp 10.0.0.1:40000 -> 192.0.2.7:80", Some(6), [a, b]),
            ("10.0.0.1 40000 192.0.2.7 80 tcp", Some(6), [a, b]),
            ("10.0.0.1 40000 192.0.2.7 80", None, [a, b]),
            ("10.0.0.1:40000 192.0.2.7:80 6", Some(6), [a, b]),
            ("192.0.2.7:80", None, [b, None]),
            ("udp 192.0.2.7 80", Some(17), [b, None]),
            ("10.0.0.1 192.0.2.7:80", None, [end("10.0.0.1", None), b]),
            ("[2001:db8::1]:80 2001:db8::2", None, [end("2001:db8::1", Some(80)), end("2001:db8::2", None)]),
            ("icmp 2001:db8::2", Some(58), [end("2001:db8::2", None), None]),
        ] {
            assert_eq!(parse(text), Ok(FlowsWanted { number: None, protocol, ends }), "{text}");
        }
        let number = Some(1_234_567_890_123);
        assert_eq!(parse("1234567890123"), Ok(FlowsWanted { number, ..FlowsWanted::default() }));
    }

    #[test]
    fn what_is_no_flow_is_told_with_how_it_is_written() {
        for (text, says) in [
            ("", "an address is missing"),
            ("tcp", "an address is missing"),
            ("10.0.0.1 70000 192.0.2.7 80", "`70000` is not a port"),
            ("10.0.0.1 2001:db8::1", "different IP versions"),
            ("10.0.0.1 10.0.0.2 10.0.0.3", "3 addresses are given"),
            ("tcp udp 10.0.0.1", "`udp` is a second protocol"),
            ("10.0.0.1.2", "is not an address"),
            ("host 10.0.0.1", "`host` is not an address, port or protocol"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
