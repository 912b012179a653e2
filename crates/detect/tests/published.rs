// SPDX-License-Identifier: Apache-2.0
//! Each loaded rule of the published sets means what its text states: a second reader of the text
//! (`published/reading.rs`, `published/asked.rs`) derives the requirements, and the compiled rule must have
//! the same, no more and no less. The sets are beside the repository, in `shared`; the comparison's own
//! findings are tested with a sample rule.

#[path = "published/asked.rs"]
mod asked;
#[path = "published/compiled.rs"]
mod compiled;
#[path = "published/reading.rs"]
mod reading;

use crate::common::load_with;
use crate::meaning::{assert_names_are_there, print_left_out, rule_text, shared_rules};
use asked::meaning_of_text;
use bartizan_applayer::protocols;
use bartizan_base::{SettingsMap, TenantId};
use bartizan_detect::buffers::{BufferRef, Buffers};
use bartizan_detect::ends::Ends;
use bartizan_detect::heads::RuleHead;
use bartizan_detect::ruleset::Loaded;
use bartizan_detect::signature::Member;
use compiled::meaning_of_rule;
use reading::{ADDRESS, PORT, Reading, Variables, holds, ports_to_try};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// The variables that the published sets use, as the shipped settings have them.
const ADDRESSES: &[(&str, &str)] = &[
    ("HOME_NET", "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]"),
    ("EXTERNAL_NET", "!$HOME_NET"),
    ("HTTP_SERVERS", "$HOME_NET"),
    ("SMTP_SERVERS", "$HOME_NET"),
    ("SQL_SERVERS", "$HOME_NET"),
    ("DNS_SERVERS", "$HOME_NET"),
    ("TELNET_SERVERS", "$HOME_NET"),
    ("AIM_SERVERS", "$EXTERNAL_NET"),
    ("DC_SERVERS", "$HOME_NET"),
    ("DNP3_SERVER", "$HOME_NET"),
    ("DNP3_CLIENT", "$HOME_NET"),
    ("MODBUS_CLIENT", "$HOME_NET"),
    ("MODBUS_SERVER", "$HOME_NET"),
    ("ENIP_CLIENT", "$HOME_NET"),
    ("ENIP_SERVER", "$HOME_NET"),
    ("SIP_SERVERS", "$HOME_NET"),
    ("SSH_SERVERS", "$HOME_NET"),
    ("FTP_SERVERS", "$HOME_NET"),
];
const PORTS: &[(&str, &str)] = &[
    ("HTTP_PORTS", "80"),
    ("SHELLCODE_PORTS", "!80"),
    ("ORACLE_PORTS", "1521"),
    ("SSH_PORTS", "22"),
    ("DNP3_PORTS", "20000"),
    ("MODBUS_PORTS", "502"),
    ("FILE_DATA_PORTS", "[$HTTP_PORTS,110,143]"),
    ("FTP_PORTS", "21"),
    ("GENEVE_PORTS", "6081"),
    ("VXLAN_PORTS", "4789"),
    ("TEREDO_PORTS", "3544"),
    ("SIP_PORTS", "[5060,5061]"),
];

/// The IP protocols that a name in a rule's head stands for, if any.
fn ip_protocols(name: &str) -> Option<&'static [u8]> {
    Some(match name {
        "ip" | "ipv4" | "ip4" | "ipv6" | "ip6" | "pkthdr" => &[],
        "tcp" | "tcp-pkt" | "tcp-stream" => &[6],
        "udp" => &[17],
        "icmp" => &[1, 58],
        "icmpv4" => &[1],
        "icmpv6" => &[58],
        "sctp" => &[132],
        _ => return None,
    })
}

/// Checks that the head of a compiled rule accepts the same ends as its text. `tried`: heads that are
/// compared already.
fn compare_heads(rule: &Reading, head: &RuleHead, tried: &mut HashSet<String>) -> Result<(), String> {
    let text =
        [&rule.source, &rule.source_ports, &rule.destination, &rule.destination_ports].map(String::as_str);
    if !tried.insert(format!("{text:?} {}", rule.bidirectional)) {
        return Ok(());
    }
    let (addresses, ports) =
        (Variables::from_iter(ADDRESSES.iter().copied()), PORTS.iter().copied().collect());
    let hosts = [
        "10.1.2.3",
        "172.16.0.1",
        "172.32.0.1",
        "192.168.255.255",
        "8.8.8.8",
        "224.0.0.1",
        "255.255.255.255",
    ];
    let hosts: Vec<IpAddr> = hosts
        .iter()
        .chain(&["2001:db8::1", "::1"])
        .map(|host| host.parse().unwrap())
        .chain(named(&text))
        .collect();
    let port_holds = |text: &str, port: Option<u16>| match port {
        None => text == "any",
        Some(port) => holds(text, port, &ports, &PORT),
    };
    let asked = |from: (IpAddr, Option<u16>), to: (IpAddr, Option<u16>)| {
        holds(text[0], from.0, &addresses, &ADDRESS)
            && port_holds(text[1], from.1)
            && holds(text[2], to.0, &addresses, &ADDRESS)
            && port_holds(text[3], to.1)
    };
    let numbers = ports_to_try([text[1], text[3]], &ports);
    let near: Vec<Option<u16>> = [None].into_iter().chain(numbers.iter().copied().map(Some)).collect();
    // Ends that the text accepts, of which one part at a time is changed; if it accepts none, any.
    let first_port = |text| near.iter().copied().find(|port| port_holds(text, *port)).flatten();
    let first_host = |text: &str| {
        let found = hosts.iter().copied().find(|host| holds(text, *host, &addresses, &ADDRESS));
        found.unwrap_or(hosts[0])
    };
    let source = (first_host(text[0]), first_port(text[1]));
    let destination = (first_host(text[2]), first_port(text[3]));
    let mut pairs = vec![((source.0, None), (destination.0, None))];
    for port in near {
        pairs.extend([((source.0, port), destination), (source, (destination.0, port))]);
    }
    for host in hosts {
        pairs.extend([((host, source.1), destination), (source, (host, destination.1))]);
    }
    let turned: Vec<_> = pairs.iter().map(|(from, to)| (*to, *from)).collect();
    for (from, to) in pairs.into_iter().chain(turned) {
        let wanted = asked(from, to) || rule.bidirectional && asked(to, from);
        let got = head.holds(Ends { source: Some(from), destination: Some(to) });
        if wanted != got {
            return Err(format!("{from:?} -> {to:?}: the text holds it: {wanted}, the rule: {got}"));
        }
    }
    Ok(())
}

/// First and last addresses of the networks that a head names, each with its neighbours.
fn named(text: &[&str]) -> Vec<IpAddr> {
    let words = text.iter().flat_map(|text| text.split(|letter: char| "[],!".contains(letter)));
    let mut found = Vec::new();
    for word in words.take(20) {
        let (network, bits) = word.trim().split_once('/').unwrap_or((word.trim(), "128"));
        let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else { continue };
        match network {
            IpAddr::V4(network) => {
                let first = u32::from(network);
                let last = first | u32::MAX.checked_shr(bits).unwrap_or(0);
                let near = [first.wrapping_sub(1), first, last, last.wrapping_add(1)];
                found.extend(near.map(|bits| IpAddr::V4(bits.into())));
            }
            IpAddr::V6(network) => {
                let first = u128::from(network);
                let last = first | u128::MAX.checked_shr(bits).unwrap_or(0);
                let near = [first.wrapping_sub(1), first, last, last.wrapping_add(1)];
                found.extend(near.map(|bits| IpAddr::V6(bits.into())));
            }
        }
    }
    found
}

/// Loads rules with the variables of the shipped settings.
fn load(text: &str) -> Loaded {
    let mut variables = bartizan_rules::RuleVariables::new();
    for (name, value) in ADDRESSES {
        variables.set_address(name, value).unwrap();
    }
    for (name, value) in PORTS {
        variables.set_port(name, value).unwrap();
    }
    load_with(text, &SettingsMap::new(), &Arc::default(), &variables)
}

/// The differences between loaded rules and a text.
fn differences(loaded: &Loaded, text: &str) -> Vec<String> {
    let readings = text.lines().filter(|line| !line.starts_with('#')).filter_map(reading::read);
    let by_id: HashMap<(u32, u32), Reading> = readings.map(|reading| (reading.id(), reading)).collect();
    let (mut wrong, mut tried) = (Vec::new(), HashSet::new());
    for rule in &loaded.rules.signatures {
        match by_id.get(&(rule.id.gid, rule.id.sid)) {
            None => wrong.push(format!("{}: not in the text", rule.id)),
            Some(reading) => wrong.extend(difference(loaded, rule, reading, &mut tried)),
        }
    }
    wrong
}

/// The difference between a rule and its text.
fn difference(
    loaded: &Loaded,
    rule: &Member,
    reading: &Reading,
    tried: &mut HashSet<String>,
) -> Option<String> {
    let buffers = &loaded.rules.buffers;
    let is_buffer = |name: &str| buffers.find(name).is_some_and(|buffer| buffer != BufferRef::Payload);
    let (mut asked, compiled) = (meaning_of_text(reading, is_buffer), meaning_of_rule(rule, buffers));
    // Buffers that exist in one direction only fix the direction of a rule that names none.
    if !asked.flow.contains("to_") && compiled.flow.contains("to_") {
        asked.flow = with_direction(&asked.flow, only_direction(rule, buffers));
    }
    if asked != compiled {
        return Some(format!("{}:\n  text {asked:?}\n  rule {compiled:?}", rule.id));
    }
    let apps: Vec<_> =
        rule.protocol.app.iter().filter_map(|id| protocols::spec(*id)).map(|spec| spec.name).collect();
    let of_option = reading.options.iter().find(|(keyword, _)| keyword == "ip_proto");
    let is_right = match (ip_protocols(&reading.protocol), of_option) {
        (Some(_), Some((_, value))) if value.parse::<u8>().is_ok() => {
            Ok(rule.protocol.ip.as_slice()) == value.parse().map(|n: u8| [n]).as_ref().map(|n| n.as_slice())
        }
        (Some(numbers), _) => rule.protocol.ip == numbers,
        (None, _) => apps.contains(&reading.protocol.as_str()),
    };
    if !is_right {
        return Some(format!("{}: {} is {:?} {apps:?}", rule.id, reading.protocol, rule.protocol.ip));
    }
    let head = loaded.rules.heads.get(TenantId::default(), rule.head).cloned().unwrap_or_default();
    compare_heads(reading, &head, tried).err().map(|error| format!("{}: {error}", rule.id))
}

/// The only direction of a rule's buffers, if some have only one.
fn only_direction(rule: &Member, buffers: &Buffers) -> Option<&'static str> {
    let of_buffers = rule.values.iter().filter_map(|value| match value.buffer {
        BufferRef::Tx(index) => Some(buffers.tx(index)?.directions()),
        _ => None,
    });
    let mut sides = of_buffers.filter_map(|of| match (of.to_server, of.to_client) {
        (true, false) => Some("to_server"),
        (false, true) => Some("to_client"),
        _ => None,
    });
    let first = sides.next()?;
    sides.all(|side| side == first).then_some(first)
}

fn with_direction(flow: &str, direction: Option<&str>) -> String {
    let mut words: Vec<&str> = flow.split(',').filter(|word| !word.is_empty()).chain(direction).collect();
    words.sort_unstable();
    words.join(",")
}

#[test]
fn rules_of_the_published_sets_mean_what_their_text_says() {
    for path in shared_rules() {
        let text = rule_text(&path);
        let loaded = load(&text);
        assert_names_are_there(&text, &loaded);
        print_left_out(&path, &loaded);
        let wrong = differences(&loaded, &text);
        let shown: Vec<&String> = wrong.iter().take(20).collect();
        assert!(wrong.is_empty(), "{}: {} rules differ: {shown:#?}", path.display(), wrong.len());
    }
}

/// A rule with most of the compared features.
const SAMPLE: &str = "alert tcp $EXTERNAL_NET [1024:,!5060] -> [10.0.0.0/8,!10.1.0.0/16,2001:db8::/32] $HTTP_PORTS \
    (msg:\"a\"; flow:established,to_server; http.method; content:\"GET\"; http.uri; content:\"/a|20|b\\;\"; \
    nocase; depth:9; fast_pattern; content:!\"c\"; distance:2; within:5; pcre:\"/x[0-9]+/iR\"; bsize:>8; \
    isdataat:!1,relative; byte_test:2,>,10,0,relative; byte_extract:1,4,n; content:\"e\"; offset:n; \
    http.host; dotprefix; content:\".com\"; endswith; threshold:type limit,track by_src,count 1,seconds 9; \
    flowbits:isset,a; flowbits:set,b; sid:7;)";

/// Changes of the sample's text, each of which changes its meaning.
const CHANGES: &[(&str, &str)] = &[
    ("alert", "drop"),
    ("tcp", "udp"),
    ("$EXTERNAL_NET", "$HOME_NET"),
    ("1024:", "1025:"),
    ("!5060", "!5061"),
    ("10.1.0.0/16", "10.1.0.0/15"),
    ("2001:db8::/32", "2001:db8::/31"),
    ("->", "<>"),
    ("$HTTP_PORTS", "any"),
    ("to_server", "to_client"),
    ("established,", ""),
    ("http.method", "http.host"),
    ("\"GET\"", "!\"GET\""),
    ("|20|", "|21|"),
    (" nocase;", ""),
    ("depth:9", "depth:10"),
    (" fast_pattern;", ""),
    ("content:!\"c\"", "content:\"c\""),
    ("distance:2", "distance:-2"),
    ("within:5", "within:6"),
    ("/iR", "/R"),
    ("/iR", "/i"),
    ("x[0-9]", "x[0-8]"),
    ("bsize:>8", "bsize:>=8"),
    ("isdataat:!1", "isdataat:1"),
    ("byte_test:2,>", "byte_test:2,!>"),
    ("10,0,relative", "10,0"),
    ("byte_extract:1,4", "byte_extract:1,5"),
    ("offset:n", "offset:1"),
    (" dotprefix;", ""),
    (" endswith;", ""),
    (" threshold:type limit,track by_src,count 1,seconds 9;", ""),
    (" flowbits:isset,a;", ""),
    (" flowbits:set,b;", ""),
    ("flowbits:set,b;", "flowbits:set,b; noalert;"),
];

#[test]
fn a_rule_that_means_something_else_is_found() {
    let loaded = load(SAMPLE);
    assert_eq!(loaded.rules.signatures.len(), 1, "{:?}", loaded.diagnostics);
    assert_eq!(differences(&loaded, SAMPLE), [""; 0]);
    for (from, to) in CHANGES {
        let changed = SAMPLE.replacen(from, to, 1);
        assert_ne!(changed, SAMPLE, "{from}");
        assert_eq!(differences(&loaded, &changed).len(), 1, "{from} -> {to}");
    }
}
