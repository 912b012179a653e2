// SPDX-License-Identifier: Apache-2.0
//! TLS: versions, handshake state, validity and chain of the certificate, and the older keywords for its
//! names. The sticky buffers (`tls.sni`) come from the table of the protocol. `tls.store` marks the session,
//! and the writer of certificates reads the mark.

use super::number::{NumberRef, TxNumber, text};
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{Answer, ConditionContext, TxCondition};
use crate::model::content::{Item, Literal};
use crate::model::request::Request;
use bartizan_applayer::protocol::ProtocolSpec;
use bartizan_applayer::transaction::Transaction;
use bartizan_base::{Direction, PerDirection};
use bartizan_rules::UintMatch;

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "tls.version",
        aliases: &[],
        summary: "The version of the direction's TLS: 1.0 to 1.3, or a number such as 0x7f12 for a draft.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "tls.version:1.0|1.1|1.2|1.3|0xNNNN",
        example: r#"alert tls any any -> any any (msg:"tls.version"; tls.version:1.2; sid:1;)"#,
        note: "",
        parse: version,
    },
    Keyword {
        name: "ssl_version",
        aliases: &[],
        summary: "The version is one of sslv2, sslv3, tls1.0 to tls1.3; with `!` it is none of them.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "ssl_version:[!]sslv2|sslv3|tls1.0|tls1.1|tls1.2|tls1.3[,...]",
        example: r#"alert tls any any -> any any (msg:"ssl_version"; ssl_version:tls1.0; sid:1;)"#,
        note: "",
        parse: ssl_version,
    },
    Keyword {
        name: "ssl_state",
        aliases: &[],
        summary: "The handshake is at client_hello, server_hello, client_keyx or server_keyx; several with `|`.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "ssl_state:[!]client_hello|server_hello|client_keyx|server_keyx|unknown[|...]",
        example: r#"alert tls any any -> any any (msg:"ssl_state"; ssl_state:client_hello; sid:1;)"#,
        note: "",
        parse: state,
    },
    Keyword {
        name: "tls.cert_chain_len",
        aliases: &[],
        summary: "The number of certificates that the server sent.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "tls.cert_chain_len:[<|>|!]N or N-M",
        example: r#"alert tls any any -> any any (msg:"tls.cert_chain_len"; tls.cert_chain_len:>3; sid:1;)"#,
        note: "",
        parse: chain_length,
    },
    Keyword {
        name: "tls_cert_notbefore",
        aliases: &[],
        summary: "The date from which the certificate is valid: a date, `<` or `>` and a date, or two with `<>`.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "tls_cert_notbefore:[<|>]DATE or DATE<>DATE",
        example: r#"alert tls any any -> any any (msg:"tls_cert_notbefore"; tls_cert_notbefore:>2026-01-01; sid:1;)"#,
        note: "Dates before 1970 and after 2050 are compared like all others. A date equal to the first second of 1970 counts as missing, as in Suricata.",
        parse: |builder, argument| date(builder, "tls_cert_notbefore", "tls.not_before", argument),
    },
    Keyword {
        name: "tls_cert_notafter",
        aliases: &[],
        summary: "The date until which the certificate is valid: a date, `<` or `>` and a date, or two with `<>`.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "tls_cert_notafter:[<|>]DATE or DATE<>DATE",
        example: r#"alert tls any any -> any any (msg:"tls_cert_notafter"; tls_cert_notafter:<2026-01-01; sid:1;)"#,
        note: "Dates before 1970 and after 2050 are compared like all others. A date equal to the first second of 1970 counts as missing, as in Suricata.",
        parse: |builder, argument| date(builder, "tls_cert_notafter", "tls.not_after", argument),
    },
    Keyword {
        name: "tls_cert_expired",
        aliases: &[],
        summary: "The certificate has expired.",
        argument: Argument::None,
        role: Role::Condition,
        syntax: "tls_cert_expired",
        example: r#"alert tls any any -> any any (msg:"tls_cert_expired"; tls_cert_expired; sid:1;)"#,
        note: "",
        parse: |builder, _| on_date(builder, "tls_cert_expired", "tls.not_after", When::Over),
    },
    Keyword {
        name: "tls_cert_valid",
        aliases: &[],
        summary: "The certificate has not expired.",
        argument: Argument::None,
        role: Role::Condition,
        syntax: "tls_cert_valid",
        example: r#"alert tls any any -> any any (msg:"tls_cert_valid"; tls_cert_valid; sid:1;)"#,
        note: "",
        parse: |builder, _| on_date(builder, "tls_cert_valid", "tls.not_after", When::NotOver),
    },
    Keyword {
        name: "tls.subject",
        aliases: &[],
        summary: "The certificate's subject contains this (older form of `tls.cert_subject`).",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: r#"tls.subject:[!]"TEXT""#,
        example: r#"alert tls any any -> any any (msg:"tls.subject"; tls.subject:"CN=example.com"; sid:1;)"#,
        note: "",
        parse: |builder, argument| contains(builder, "tls.cert_subject", argument),
    },
    Keyword {
        name: "tls.issuerdn",
        aliases: &[],
        summary: "The certificate's issuer contains this (older form of `tls.cert_issuer`).",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: r#"tls.issuerdn:[!]"TEXT""#,
        example: r#"alert tls any any -> any any (msg:"tls.issuerdn"; tls.issuerdn:"CN=example.com"; sid:1;)"#,
        note: "",
        parse: |builder, argument| contains(builder, "tls.cert_issuer", argument),
    },
    Keyword {
        name: "tls.fingerprint",
        aliases: &[],
        summary: "The certificate's SHA-1 fingerprint (older form of `tls.cert_fingerprint`).",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: r#"tls.fingerprint:[!]"TEXT""#,
        example: r#"alert tls any any -> any any (msg:"tls.fingerprint"; tls.fingerprint:"f3:40:21:48:70:2c:31:bc:b5:aa:22:ad:63:d6:bc:2e:b3:46:e2:5a"; sid:1;)"#,
        note: "",
        parse: |builder, argument| contains(builder, "tls.cert_fingerprint", argument),
    },
    Keyword {
        name: "tls.store",
        aliases: &["tls_store"],
        summary: "Stores the certificate chain of the side that sent the matching packet: the server's for a match on packets to the client.",
        argument: Argument::None,
        role: Role::Effect,
        syntax: "tls.store",
        example: r#"alert tls any any -> any any (msg:"tls.store"; tls.cert_issuer; content:"Example"; tls.store; sid:1;)"#,
        note: "Needs the output `tls-store`; without it the rule matches and nothing is stored, with a warning when rules load. Each side is stored once in a session, when its certificates are complete. `.meta` files contain a NUL byte of a name (Suricata ends the name there), and their times are UTC. The keyword `tlsstore` does not exist, as in Suricata 8.",
        parse: store,
    },
];

const BOTH: PerDirection<bool> = PerDirection::new(true, true);
const TO_CLIENT: PerDirection<bool> = PerDirection::new(false, true);

/// The state in which certificates are complete: that of their buffers.
fn state_of_certificates(spec: &ProtocolSpec) -> Option<u8> {
    spec.buffers.iter().find(|buffer| buffer.name == "tls.certs").map(|buffer| buffer.state)
}

/// Maps drafts of TLS 1.3 to TLS 1.3.
const fn without_drafts(version: u64) -> u64 {
    if version >> 8 == 0x7f { 0x304 } else { version }
}

/// The versions that a keyword names.
struct NamedVersions {
    versions: Vec<u64>,
    negated: bool,
    /// Compares the number itself: drafts are not TLS 1.3.
    exact: bool,
}

/// Matches one of these versions, or any other one if negated.
struct TlsVersionCondition {
    named: NamedVersions,
    number: NumberRef,
}

impl TxCondition for TlsVersionCondition {
    fn matches(&self, tx: &dyn Transaction, direction: Direction, scene: &ConditionContext<'_>) -> Answer {
        let holds = self.number.of(tx, direction).is_some_and(|version: u64| {
            let version = if self.named.exact { version } else { without_drafts(version) };
            self.named.versions.contains(&version) != self.named.negated
        });
        if holds { Answer::Yes } else { self.number.later(tx, direction, scene) }
    }
}

fn push_version(
    builder: &mut SignatureBuilder<'_>,
    keyword: &str,
    named: NamedVersions,
) -> Result<(), KeywordError> {
    let number = NumberRef::named("tls.version")?;
    let condition = TlsVersionCondition { named, number };
    builder.push_tx(number.protocol, keyword, BOTH, Some(0), Box::new(condition))
}

fn version_number(argument: &[u8]) -> Result<NamedVersions, KeywordError> {
    let name = text(argument)?;
    let wrong = || {
        KeywordError::argument(format!("unknown TLS version `{name}`"))
            .help("use 1.0, 1.1, 1.2, 1.3 or a number such as 0x7f12")
    };
    let number = match name {
        "1.0" => 0x301,
        "1.1" => 0x302,
        "1.2" => 0x303,
        "1.3" => 0x304,
        _ => {
            let digits = name.strip_prefix("0x").filter(|digits| digits.len() == 4).ok_or_else(wrong)?;
            let number = u64::from_str_radix(digits, 16).map_err(|_| wrong())?;
            return Ok(NamedVersions { versions: vec![number], negated: false, exact: true });
        }
    };
    Ok(NamedVersions { versions: vec![number], negated: false, exact: false })
}

fn version(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    push_version(builder, "tls.version", version_number(argument)?)
}

const SSL_VERSIONS: &[(&str, u64)] = &[
    ("sslv2", 0x200),
    ("sslv3", 0x300),
    ("tls1.0", 0x301),
    ("tls1.1", 0x302),
    ("tls1.2", 0x303),
    ("tls1.3", 0x304),
];

fn ssl_versions(argument: &[u8]) -> Result<NamedVersions, KeywordError> {
    let mut versions = Vec::new();
    let mut negated = false;
    for word in text(argument)?.split([',', ' ', '\t']).filter(|w| !w.is_empty()) {
        let (has_mark, name) = word.strip_prefix('!').map_or((false, word), |rest| (true, rest));
        if has_mark && !negated && !versions.is_empty() {
            return Err(KeywordError::argument(
                "a `!` precedes the first version, and applies to all of them",
            ));
        }
        negated |= has_mark;
        let found = SSL_VERSIONS.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        let (_, value) = found.ok_or_else(|| {
            KeywordError::argument(format!("unknown version `{name}`"))
                .help("use sslv2, sslv3, tls1.0, tls1.1, tls1.2 or tls1.3")
        })?;
        if versions.contains(value) {
            return Err(KeywordError::argument(format!("`{name}` is given twice")));
        }
        versions.push(*value);
    }
    if versions.is_empty() {
        return Err(KeywordError::argument("no version is named"));
    }
    Ok(NamedVersions { versions, negated, exact: false })
}

fn ssl_version(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    push_version(builder, "ssl_version", ssl_versions(argument)?)
}

const STATES: &[(&str, u64)] =
    &[("client_hello", 1), ("server_hello", 2), ("client_keyx", 4), ("server_keyx", 8), ("unknown", 16)];

/// Matches if one of these states is reached, or one of the negated states is not.
struct SslStateCondition {
    wanted: u64,
    negated: u64,
    number: NumberRef,
}

impl TxCondition for SslStateCondition {
    fn matches(&self, tx: &dyn Transaction, direction: Direction, scene: &ConditionContext<'_>) -> Answer {
        let now = self.number.of::<u64>(tx, direction);
        let holds = now.is_some_and(|now| (self.wanted & now) ^ self.negated != 0);
        if holds { Answer::Yes } else { self.number.later(tx, direction, scene) }
    }
}

fn states(argument: &[u8]) -> Result<(u64, u64), KeywordError> {
    let (mut wanted, mut without) = (0, 0);
    for word in text(argument)?.split('|') {
        let word = word.trim();
        let (negated, name) = word.strip_prefix('!').map_or((false, word), |rest| (true, rest.trim()));
        let (_, bit) = STATES.iter().find(|(n, _)| *n == name).ok_or_else(|| {
            KeywordError::argument(format!("unknown state `{name}`")).help(
                "use client_hello, server_hello, client_keyx, server_keyx or unknown, with `|` between them",
            )
        })?;
        wanted |= bit;
        if negated {
            without |= bit;
        }
    }
    Ok((wanted, without))
}

fn state(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let (wanted, negated) = states(argument)?;
    let number = NumberRef::named("ssl.state")?;
    builder.push_tx(
        number.protocol,
        "ssl_state",
        BOTH,
        Some(0),
        Box::new(SslStateCondition { wanted, negated, number }),
    )
}

fn store(builder: &mut SignatureBuilder<'_>, _: &[u8]) -> Result<(), KeywordError> {
    builder.narrow_app_named("tls", "tls.store")?;
    builder.requests.push(Request::StoreCertificates);
    Ok(())
}

fn chain_length(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let check = UintMatch::<u32>::parse(argument)?;
    let number = NumberRef::named("tls.chain_len")?;
    let state = state_of_certificates(number.spec);
    let condition = Box::new(TxNumber { number, check });
    builder.push_tx(number.protocol, "tls.cert_chain_len", TO_CLIENT, state, condition)
}

/// The range of a date in seconds since 1970 (negative before); both ends belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    At(i64),
    Until(i64),
    From(i64),
    Between(i64, i64),
    Over,
    NotOver,
}

struct Date {
    number: NumberRef,
    when: When,
}

impl TxCondition for Date {
    fn matches(&self, tx: &dyn Transaction, direction: Direction, scene: &ConditionContext<'_>) -> Answer {
        let now = i64::try_from(scene.facts.now.as_secs()).unwrap_or(i64::MAX);
        // The first second of 1970 counts as no date, as in Suricata.
        let date = self.number.of::<u64>(tx, direction).map(u64::cast_signed).filter(|date| *date != 0);
        let holds = date.is_some_and(|date| match self.when {
            When::At(a) => date == a,
            When::Until(a) => date <= a,
            When::From(a) => date >= a,
            When::Between(a, b) => date >= a && date <= b,
            When::Over => now > date,
            When::NotOver => now <= date,
        });
        if holds { Answer::Yes } else { self.number.later(tx, direction, scene) }
    }

    fn varies(&self) -> bool {
        matches!(self.when, When::Over | When::NotOver)
    }
}

fn on_date(
    builder: &mut SignatureBuilder<'_>,
    keyword: &str,
    name: &str,
    when: When,
) -> Result<(), KeywordError> {
    let number = NumberRef::named(name)?;
    let state = state_of_certificates(number.spec);
    builder.push_tx(number.protocol, keyword, TO_CLIENT, state, Box::new(Date { number, when }))
}

fn date(
    builder: &mut SignatureBuilder<'_>,
    keyword: &str,
    name: &str,
    argument: &[u8],
) -> Result<(), KeywordError> {
    on_date(builder, keyword, name, when(argument)?)
}

fn when(argument: &[u8]) -> Result<When, KeywordError> {
    let argument = text(argument)?.trim();
    if let Some((from, until)) = argument.split_once("<>") {
        let (from, until) = (epoch(from)?, epoch(until)?);
        if until <= from {
            return Err(KeywordError::argument("the second date is not after the first"));
        }
        return Ok(When::Between(from, until));
    }
    if let Some(date) = argument.strip_prefix('<') {
        return Ok(When::Until(epoch(date)?));
    }
    match argument.strip_prefix('>') {
        Some(date) => Ok(When::From(epoch(date)?)),
        None => Ok(When::At(epoch(argument)?)),
    }
}

/// Seconds since 1970 of `YYYY-MM[-DD[( |T)HH[:MM[:SS]]]]`, UTC, negative before; digits alone are such
/// seconds already.
fn epoch(written: &str) -> Result<i64, KeywordError> {
    let written = written.trim();
    if !written.is_empty() && written.bytes().all(|b| b.is_ascii_digit()) {
        return written.parse().map_err(|_| KeywordError::argument("the number of seconds is too large"));
    }
    parts(written).and_then(seconds).ok_or_else(|| {
        KeywordError::argument(format!("`{written}` is not a date"))
            .help("write YYYY-MM-DD, followed by HH:MM:SS where needed, or seconds since 1970")
    })
}

/// Year, month, day, hour, minute, second.
fn parts(written: &str) -> Option<[u32; 6]> {
    let (date, time) = written.split_once(['T', ' ']).unwrap_or((written, ""));
    let mut fields = [0, 1, 1, 0, 0, 0];
    let dates = date.split('-').chain(core::iter::repeat_n("", 4)).take(3);
    let times = time.trim().split(':').chain(core::iter::repeat_n("", 4)).take(3);
    let in_date = date.split('-').count();
    // A time needs a day before it.
    if !(2..=3).contains(&in_date) || in_date == 2 && !time.is_empty() || time.split(':').count() > 3 {
        return None;
    }
    for (index, (field, digits)) in fields.iter_mut().zip(dates.chain(times)).enumerate() {
        if !digits.is_empty() {
            *field = digits.parse().ok()?;
        } else if index < 2 {
            return None;
        }
    }
    Some(fields)
}

fn seconds([year, month, day, hour, minute, second]: [u32; 6]) -> Option<i64> {
    if year > 9999 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days of the civil calendar, counted from March so that the leap day is the year's last.
    let (year, month) =
        if month > 2 { (i64::from(year), month - 3) } else { (i64::from(year) - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = 365 * year + leap_days + (153 * i64::from(month) + 2) / 5 + i64::from(day) - 1 - 719_468;
    Some(days * 86_400 + i64::from(hour) * 3_600 + i64::from(minute) * 60 + i64::from(second))
}

fn contains(builder: &mut SignatureBuilder<'_>, buffer: &str, argument: &[u8]) -> Result<(), KeywordError> {
    let argument = bartizan_rules::unwrap_value(argument, true)?;
    builder.push_aside(buffer, Item::Literal(Literal::new(argument.text, argument.negated)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::keyword::RefusalCode;
    use crate::keywords::testing::{FakeTx, build, ipv4, on_scene, tcp};

    fn number(name: &str) -> NumberRef {
        NumberRef::named(name).unwrap()
    }

    fn answer(condition: &dyn TxCondition, numbers: &[(&str, u64)]) -> Answer {
        let numbers = numbers.iter().map(|(name, value)| (number(name).id, *value)).collect();
        let tx = FakeTx { numbers, ..FakeTx::default() };
        on_scene(&ipv4(6, &tcp(16, 1, 1, 1, b"")), |scene| condition.matches(&tx, Direction::ToClient, scene))
    }

    #[test]
    fn versions() {
        let holds = |named: NamedVersions, version: u64| {
            let condition = TlsVersionCondition { named, number: number("tls.version") };
            answer(&condition, &[("tls.version", version)]) == Answer::Yes
        };
        assert!(holds(version_number(b"1.2").unwrap(), 0x303));
        assert!(!holds(version_number(b"1.2").unwrap(), 0x304));
        assert!(
            holds(version_number(b"1.3").unwrap(), 0x7f12)
                && holds(version_number(b"0x7f12").unwrap(), 0x7f12)
        );
        assert!(!holds(version_number(b"0x0304").unwrap(), 0x7f12));
        assert!(
            holds(ssl_versions(b"sslv2, sslv3").unwrap(), 0x300)
                && !holds(ssl_versions(b"sslv2,sslv3").unwrap(), 0x301)
        );
        // The mark stands for all of the list.
        assert!(
            holds(ssl_versions(b"!tls1.3,tls1.2").unwrap(), 0x301)
                && !holds(ssl_versions(b"!tls1.3,tls1.2").unwrap(), 0x303)
        );
        assert!(
            holds(ssl_versions(b"!sslv3,!tls1.0").unwrap(), 0x303)
                && !holds(ssl_versions(b"!tls1.0").unwrap(), 0x301)
        );
        for bad in ["1.4", "0x30", "2"] {
            assert_eq!(version_number(bad.as_bytes()).err().unwrap().code, RefusalCode::BadArgument, "{bad}");
        }
        for bad in ["tls2", "", "tls1.0,tls1.0", "tls1.0,!tls1.2"] {
            assert_eq!(ssl_versions(bad.as_bytes()).err().unwrap().code, RefusalCode::BadArgument, "{bad}");
        }
    }

    #[test]
    fn certificates_are_asked_for_by_rules_on_tls() {
        for name in ["tls.store", "tls_store"] {
            for protocol in ["tls", "tcp", "ip"] {
                let built = build(protocol, &[(name, "")]).unwrap();
                assert_eq!(built.protocol.app, [bartizan_applayer::protocols::by_name("tls").unwrap().0]);
            }
            // As in Suricata.
            assert_eq!(build("http", &[(name, "")]).unwrap_err().code, RefusalCode::BadContext, "{name}");
        }
        assert!(crate::keywords::find("tlsstore").is_none());
    }

    #[test]
    fn handshake_states() {
        let holds = |argument: &str, now: u64| {
            let (wanted, negated) = states(argument.as_bytes()).unwrap();
            let condition = SslStateCondition { wanted, negated, number: number("ssl.state") };
            answer(&condition, &[("ssl.state", now)]) == Answer::Yes
        };
        assert!(holds("client_hello", 1) && !holds("client_hello", 2));
        assert!(
            holds("server_hello | client_keyx", 4) && holds("!client_hello", 2) && !holds("!client_hello", 1)
        );
        for bad in ["| client_hello", "client_hello |", "hello"] {
            assert_eq!(states(bad.as_bytes()).unwrap_err().code, RefusalCode::BadArgument, "{bad}");
        }
    }

    #[test]
    fn dates() {
        assert_eq!(epoch("1970-01-01"), Ok(0));
        assert_eq!(epoch("1969-12-31 23:59:59"), Ok(-1));
        assert_eq!(epoch("1950-01-01"), Ok(-631_152_000));
        assert_eq!(epoch("1600-01-01"), Ok(-11_676_096_000));
        assert_eq!(epoch("0000-03-01"), Ok(-719_468 * 86_400));
        assert_eq!(epoch("2050-01-01"), Ok(2_524_608_000));
        assert_eq!(epoch("9999-12-31T23:59:59"), Ok(253_402_300_799));
        assert_eq!(epoch("2000-03-01"), Ok(951_868_800));
        assert_eq!(epoch("2016-02-29 12:30:01"), Ok(1_456_749_001));
        assert_eq!(epoch("2015-10T07").unwrap_err().code, RefusalCode::BadArgument);
        assert_eq!(epoch("2015-10-22T23"), Ok(1_445_554_800));
        assert_eq!(epoch("1445852105"), Ok(1_445_852_105));
        assert_eq!(when(b">2015-10"), Ok(When::From(1_443_657_600)));
        assert_eq!(when(b"<2015-10-01"), Ok(When::Until(1_443_657_600)));
        assert_eq!(when(b"1998-05-01<>2008-05-01"), Ok(When::Between(893_980_800, 1_209_600_000)));
        for bad in ["", "2015-13-01", "yesterday", "2009-01-01<>2008-01-01", ">", "2015-1-2-3"] {
            assert_eq!(when(bad.as_bytes()).unwrap_err().code, RefusalCode::BadArgument, "{bad}");
        }
    }

    #[test]
    fn validity() {
        // The scene's clock stands at 1,000,000,000.
        let on = |when| Date { number: number("tls.not_after"), when };
        let at = |seconds: i64| [("tls.not_after", seconds.cast_unsigned())];
        assert_eq!(answer(&on(When::Over), &at(999_999_999)), Answer::Yes);
        assert_eq!(answer(&on(When::NotOver), &at(1_000_000_000)), Answer::Yes);
        assert_eq!(answer(&on(When::Over), &at(1_000_000_000)), Answer::NotYet);
        assert_eq!(answer(&on(When::Between(5, 7)), &at(7)), Answer::Yes);
        assert_eq!(answer(&on(When::Until(7)), &at(8)), Answer::NotYet);
        // Before 1970.
        assert_eq!(answer(&on(When::Over), &at(-315_619_200)), Answer::Yes);
        assert_eq!(answer(&on(When::NotOver), &at(-1)), Answer::NotYet);
        assert_eq!(answer(&on(When::Until(-315_619_200)), &at(-315_619_200)), Answer::Yes);
        assert_eq!(answer(&on(When::Until(-315_619_200)), &at(-315_619_199)), Answer::NotYet);
        assert_eq!(answer(&on(When::From(0)), &at(-1)), Answer::NotYet);
        assert_eq!(answer(&on(When::From(-2)), &at(-1)), Answer::Yes);
        assert_eq!(answer(&on(When::Between(-5, 5)), &at(-5)), Answer::Yes);
        assert_eq!(answer(&on(When::At(-5)), &at(-5)), Answer::Yes);
        // Beyond 2038 and 2050.
        assert_eq!(answer(&on(When::From(2_524_608_000)), &at(253_402_300_799)), Answer::Yes);
        assert_eq!(answer(&on(When::NotOver), &at(253_402_300_799)), Answer::Yes);
        // No certificate (yet).
        assert_eq!(answer(&on(When::NotOver), &[]), Answer::NotYet);
    }
}
