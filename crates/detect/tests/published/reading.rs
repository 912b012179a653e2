// SPDX-License-Identifier: Apache-2.0
//! A second reader of rules, from Suricata's user guide alone: the requirements of a rule's text, in a form
//! that is compared with the compiled rule. It shares no code with the loader, so that both do not have the
//! same faults.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// A rule as its text states it.
pub struct Reading {
    pub action: String,
    pub protocol: String,
    pub source: String,
    pub source_ports: String,
    pub bidirectional: bool,
    pub destination: String,
    pub destination_ports: String,
    pub options: Vec<(String, String)>,
}

impl Reading {
    /// gid and sid.
    pub fn id(&self) -> (u32, u32) {
        let of =
            |keyword: &str| self.options.iter().find(|(name, _)| name == keyword).map(|(_, value)| value);
        let number = |keyword: &str, unset: u32| of(keyword).map_or(unset, |value| value.parse().unwrap());
        (number("gid", 1), number("sid", 0))
    }
}

/// Splits a rule into its parts; `None` for a line that is no rule.
pub fn read(line: &str) -> Option<Reading> {
    let (head, rest) = line.split_once('(')?;
    let words = words(head);
    let [action, protocol, source, source_ports, arrow, destination, destination_ports] = words.as_slice()
    else {
        return None;
    };
    let body = rest.trim_end().strip_suffix(')')?;
    Some(Reading {
        action: action.clone(),
        protocol: protocol.to_ascii_lowercase(),
        source: source.clone(),
        source_ports: source_ports.clone(),
        bidirectional: arrow == "<>",
        destination: destination.clone(),
        destination_ports: destination_ports.clone(),
        options: options(body),
    })
}

/// Words of a head; a list in brackets is one, with blanks or without.
fn words(head: &str) -> Vec<String> {
    let (mut words, mut depth, mut word) = (Vec::new(), 0, String::new());
    for letter in head.chars() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if !letter.is_whitespace() {
            word.push(letter);
        } else if depth == 0 && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Splits options at semicolons without a backslash before them.
fn options(body: &str) -> Vec<(String, String)> {
    let (mut found, mut option, mut escaped) = (Vec::new(), String::new(), false);
    for letter in body.chars() {
        if letter == ';' && !escaped {
            let text = option.trim();
            let (keyword, value) = text.split_once(':').unwrap_or((text, ""));
            found.push((keyword.trim().to_ascii_lowercase(), value.trim().to_owned()));
            option.clear();
            continue;
        }
        escaped = letter == '\\' && !escaped;
        option.push(letter);
    }
    assert!(option.trim().is_empty(), "behind the last option: {option}");
    found
}

/// The value of a keyword between its quotes, and whether `!` precedes them.
pub fn unquoted(value: &str) -> (bool, &str) {
    let (negated, value) = value.strip_prefix('!').map_or((false, value), |rest| (true, rest.trim()));
    let inner = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
    (negated, inner)
}

/// Bytes of a `content`: text, escapes of `"`, `;`, `:` and `\`, and bytes in hexadecimal between bars.
pub fn bytes(text: &str) -> Vec<u8> {
    let (mut bytes, mut digits, mut in_hex, mut escaped) = (Vec::new(), String::new(), false, false);
    for letter in text.chars() {
        match letter {
            '|' if !escaped => in_hex = !in_hex,
            _ if in_hex => {
                digits.extend(letter.is_ascii_hexdigit().then_some(letter));
                if digits.len() == 2 {
                    bytes.push(u8::from_str_radix(&digits, 16).unwrap());
                    digits.clear();
                }
            }
            '\\' if !escaped => escaped = true,
            _ => {
                escaped = false;
                bytes.extend(letter.to_string().as_bytes());
            }
        }
    }
    bytes
}

/// Variables by name.
pub type Variables = BTreeMap<&'static str, &'static str>;

/// The comparison of an expression's item with an address or a port.
pub struct Comparison<T> {
    /// Whether the item contains the value.
    pub is: fn(&str, T) -> bool,
    /// Whether the value is of the item's kind: an IPv4 network does not concern IPv6 addresses, negated or
    /// not.
    pub speaks_of: fn(&str, T) -> bool,
}

/// Ports are of one kind.
pub const PORT: Comparison<u16> = Comparison { is: port_is, speaks_of: |_, _| true };

/// Addresses are of two.
pub const ADDRESS: Comparison<IpAddr> =
    Comparison { is: address_is, speaks_of: |text, address| text.contains(':') == address.is_ipv6() };

/// Whether an address or a port meets an expression: a list contains what one of its items contains, except
/// for its negated items; a list of negated items alone contains all others of their kind.
pub fn holds<T: Copy>(expression: &str, of: T, variables: &Variables, how: &Comparison<T>) -> bool {
    let expression = expression.trim();
    if let Some(rest) = expression.strip_prefix('!') {
        return speaks_of(rest, of, variables, how) && !holds(rest, of, variables, how);
    }
    if let Some(name) = expression.strip_prefix('$') {
        return holds(variables[name], of, variables, how);
    }
    if expression.eq_ignore_ascii_case("any") {
        return true;
    }
    let Some(list) = expression.strip_prefix('[').and_then(|list| list.strip_suffix(']')) else {
        return (how.is)(expression, of);
    };
    let about = |part: &&str| speaks_of(part, of, variables, how);
    let (negated, plain): (Vec<_>, Vec<_>) =
        items(list).into_iter().filter(about).partition(|part| part.starts_with('!'));
    let one = if plain.is_empty() {
        !negated.is_empty()
    } else {
        plain.iter().any(|part| holds(part, of, variables, how))
    };
    one && negated.iter().all(|part| holds(part, of, variables, how))
}

fn speaks_of<T: Copy>(expression: &str, of: T, variables: &Variables, how: &Comparison<T>) -> bool {
    let expression = expression.trim().trim_start_matches('!');
    if let Some(name) = expression.strip_prefix('$') {
        return speaks_of(variables[name], of, variables, how);
    }
    match expression.strip_prefix('[').and_then(|list| list.strip_suffix(']')) {
        Some(list) => items(list).iter().any(|part| speaks_of(part, of, variables, how)),
        None => expression.eq_ignore_ascii_case("any") || (how.speaks_of)(expression, of),
    }
}

/// Items of a list; inner lists stay whole.
fn items(list: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, letter) in list.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(list[start..].trim());
    parts
}

/// A port, or a range that may be open at one end.
fn port_is(text: &str, port: u16) -> bool {
    match text.split_once(':') {
        None => text.parse() == Ok(port),
        Some((low, high)) => {
            let low = if low.trim().is_empty() { 0 } else { low.trim().parse().unwrap() };
            let high = if high.trim().is_empty() { u16::MAX } else { high.trim().parse().unwrap() };
            (low..=high).contains(&port)
        }
    }
}

/// An address, or a network by its prefix.
fn address_is(text: &str, address: IpAddr) -> bool {
    let (network, bits) = text.split_once('/').map_or((text, None), |(network, bits)| (network, Some(bits)));
    let network: IpAddr = network.parse().unwrap();
    let (network, address, width) = match (network, address) {
        (IpAddr::V4(n), IpAddr::V4(a)) => (u128::from(u32::from(n)), u128::from(u32::from(a)), 32),
        (IpAddr::V6(n), IpAddr::V6(a)) => (u128::from(n), u128::from(a), 128),
        _ => return false,
    };
    let bits: u32 = bits.map_or(width, |bits| bits.parse().unwrap());
    bits == 0 || network >> (width - bits) == address >> (width - bits)
}

/// Numbers in an expression, and their neighbours: the ports at which it may change its answer.
pub fn ports_to_try(expressions: [&str; 2], variables: &Variables) -> Vec<u16> {
    let mut ports = vec![0, 1, 53, 80, 443, 1023, 1024, 8080, 50_000, u16::MAX];
    for expression in expressions {
        let resolved: String = expression
            .split_inclusive(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != '$')
            .map(|word| {
                let name = word.trim_matches(|letter: char| "[],!:".contains(letter));
                name.strip_prefix('$').map_or(word.to_owned(), |name| format!("{} ", variables[name]))
            })
            .collect();
        for number in resolved.split(|letter: char| !letter.is_ascii_digit()) {
            if let Ok(port) = number.parse::<u16>() {
                ports.extend([port.saturating_sub(1), port, port.saturating_add(1)]);
            }
        }
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}
