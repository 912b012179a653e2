// SPDX-License-Identifier: Apache-2.0
//! The address for which a proxy declares to forward (`xff`): the choice of the header's value and the
//! address in it.
//!
//! Source: Suricata's user guide, "XFF" of the EVE output, and the behaviour of Suricata 8.0.8 for headers.
//! Not supported: a check that the proxy can be trusted; anybody can write such a header.

use bartizan_base::{SettingError, SettingsMap};
use std::net::IpAddr;

/// Lengths of a header that are accepted, in bytes; others give no address.
const LENGTHS: core::ops::Range<usize> = 7..256;

/// Use of the address for which a proxy declares to forward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XffOptions {
    /// `enabled`; a section with `no` overrides an outer one.
    pub enabled: bool,
    /// `mode: overwrite`: the address also replaces the client's; else it is the field `xff` only.
    pub overwrite: bool,
    /// `deployment: forward`: the first address of the list counts; else the last.
    pub forward: bool,
    /// `header`: name of the HTTP header.
    pub header: String,
}

impl XffOptions {
    /// Reads the section `xff` below `prefix`; `None` without one. `warnings` gets messages about invalid
    /// choices.
    ///
    /// # Errors
    /// `enabled` is no switch.
    pub(crate) fn read(
        settings: &SettingsMap,
        prefix: &str,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Self>, SettingError> {
        let section = format!("{prefix}.xff");
        if !settings.has(&section) {
            return Ok(None);
        }
        let key = |name: &str| format!("{section}.{name}");
        let enabled = match settings.get(&key("enabled")) {
            None | Some("") => false,
            Some(_) => settings.bool(&key("enabled"), false)?,
        };
        // Whether a value is the second of two choices; any other value counts as the first.
        let mut second = |name: &str, choices: [&str; 2]| {
            let Some(value) = settings.get(&key(name)).filter(|value| !value.is_empty()) else {
                return false;
            };
            let [first, other] = choices.map(|choice| value.eq_ignore_ascii_case(choice));
            if enabled && !first && !other {
                let [first, other] = choices;
                warnings.push(format!(
                    "{}: `{value}` is neither {first} nor {other}; {first} is done",
                    key(name)
                ));
            }
            other
        };
        Ok(Some(XffOptions {
            enabled,
            overwrite: second("mode", ["extra-data", "overwrite"]),
            forward: second("deployment", ["reverse", "forward"]),
            header: settings.get(&key("header")).unwrap_or("X-Forwarded-For").to_owned(),
        }))
    }

    /// The address that a value of the header names, in its original form.
    #[must_use]
    pub fn address_in<'v>(&self, value: &'v [u8]) -> Option<&'v str> {
        if !self.enabled || !LENGTHS.contains(&value.len()) {
            return None;
        }
        let named = if self.forward {
            value.split(|b| *b == b',').next()
        } else {
            // After the last blank: a list with commas alone is no list.
            value.rsplit(|b| *b == b' ').next()
        };
        let named = named?.split(|b| *b == 0).next()?;
        let bare = core::str::from_utf8(without_port(named)?).ok()?;
        bare.parse::<IpAddr>().is_ok().then_some(bare)
    }
}

/// The text in brackets, or before the port of an IPv4 address.
fn without_port(named: &[u8]) -> Option<&[u8]> {
    if let Some(rest) = named.strip_prefix(b"[") {
        return rest.split_at_checked(rest.iter().position(|b| *b == b']')?).map(|(inside, _)| inside);
    }
    let count = |wanted: u8| named.iter().filter(|b| **b == wanted).count();
    if count(b'.') == 3 && count(b':') == 1 {
        return named.split(|b| *b == b':').next();
    }
    Some(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(forward: bool) -> XffOptions {
        XffOptions { enabled: true, overwrite: false, forward, header: String::new() }
    }

    /// Headers with Suricata 8.0.8's result for a reverse and a forward deployment.
    #[test]
    fn headers_are_read_as_suricata_reads_them() {
        let long = |length: usize| format!("1.1.1.1,{} 2.2.2.2", "x".repeat(length - 16));
        let (longest, longer) = (long(255), long(256));
        let whole = "2001:2001:2001:2001:2001:2001:192.168.100.100";
        let bracketed = format!("[{whole}]:1");
        let both = |text| (Some(text), Some(text));
        for (header, (reverse, forward)) in [
            ("1.2.3.4", both("1.2.3.4")),
            ("1.2.3.4, 5.6.7.8", (Some("5.6.7.8"), Some("1.2.3.4"))),
            ("1.2.3.4,5.6.7.8", (None, Some("1.2.3.4"))),
            ("1.2.3.4 , 5.6.7.8", (Some("5.6.7.8"), None)),
            ("1.2.3.4 5.6.7.8", (Some("5.6.7.8"), None)),
            ("1.2.3.4,\t5.6.7.8", (None, Some("1.2.3.4"))),
            ("1.2.3.4\t,\t5.6.7.8", (None, None)),
            ("1.2.3.4;5.6.7.8", (None, None)),
            ("1.2.3.4, 5.6.7.8,", (None, Some("1.2.3.4"))),
            (",1.2.3.4", (None, None)),
            ("1.2.3.4, unknown", (None, Some("1.2.3.4"))),
            ("unknown, 1.2.3.4", (Some("1.2.3.4"), None)),
            ("unknown", (None, None)),
            ("", (None, None)),
            ("1.2.3.4:80", both("1.2.3.4")),
            ("1.2.3.4:", both("1.2.3.4")),
            ("1.2.3.4:xx", both("1.2.3.4")),
            ("1.2.3.4:80:90", (None, None)),
            ("[1.2.3.4]:80", both("1.2.3.4")),
            ("[1.2.3.4", (None, None)),
            ("[ 1.2.3.4]", (None, None)),
            ("x [1.2.3.4]", (Some("1.2.3.4"), None)),
            ("2001:db8::5", both("2001:db8::5")),
            ("2001:0DB8:0:0:0:0:0:5", both("2001:0DB8:0:0:0:0:0:5")),
            ("2001:DB8::AbCd", both("2001:DB8::AbCd")),
            ("[2001:db8::5]:80", both("2001:db8::5")),
            ("[2001:db8::5]rubbish", both("2001:db8::5")),
            ("[2001:db8::5", (None, None)),
            ("2001:db8::5]", (None, None)),
            ("::ffff:1.2.3.4", both("::ffff:1.2.3.4")),
            ("2001:db8::192.0.2.33", both("2001:db8::192.0.2.33")),
            ("1:2:3:4:5:6:7::", both("1:2:3:4:5:6:7::")),
            ("1::2:3:4:5:6:7:8", (None, None)),
            ("fe80::1%eth0", (None, None)),
            (whole, both(whole)),
            (&bracketed, both(whole)),
            // Shorter than any IPv4 address: ignored.
            ("12::34", (None, None)),
            ("01.2.3.4", (None, None)),
            ("999.1.1.1", (None, None)),
            ("+1.2.3.4", (None, None)),
            ("\"1.2.3.4\"", (None, None)),
            ("1.2.3.4\0abc, 5.6.7.8", (Some("5.6.7.8"), Some("1.2.3.4"))),
            (&longest, (Some("2.2.2.2"), Some("1.1.1.1"))),
            (&longer, (None, None)),
        ] {
            assert_eq!(options(false).address_in(header.as_bytes()), reverse, "reverse: {header}");
            assert_eq!(options(true).address_in(header.as_bytes()), forward, "forward: {header}");
        }
        assert_eq!(options(false).address_in(b"\xff, 1.2.3.4"), Some("1.2.3.4"));
        assert_eq!(options(true).address_in(b"\xff, 1.2.3.4"), None);
        let off = XffOptions { enabled: false, ..options(false) };
        assert_eq!(off.address_in(b"1.2.3.4"), None);
    }

    #[test]
    fn what_is_no_choice_is_told() {
        let mut settings = SettingsMap::new();
        for (key, value) in
            [("enabled", "yes"), ("mode", "both"), ("deployment", "Forward"), ("header", "Via")]
        {
            settings.set(format!("o.xff.{key}"), value);
        }
        let mut warnings = Vec::new();
        let read = XffOptions::read(&settings, "o", &mut warnings).unwrap().unwrap();
        assert_eq!(
            read,
            XffOptions { enabled: true, overwrite: false, forward: true, header: "Via".to_owned() }
        );
        assert_eq!(warnings, ["o.xff.mode: `both` is neither extra-data nor overwrite; extra-data is done"]);
        assert_eq!(XffOptions::read(&settings, "other", &mut warnings), Ok(None));
    }
}
