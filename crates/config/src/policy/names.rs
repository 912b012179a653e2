// SPDX-License-Identifier: Apache-2.0
//! Groups by DNS name: names in policies, members of groups, and trusted resolvers (section `dns`).

use super::values::{OneOrMany, Prefix, Seconds, Target, from_text, text_value};
use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::borrow::Cow;

/// Longest name, as text without the final dot (RFC 1035 section 2.3.4).
const LENGTH_MAX: usize = 253;
/// Longest label (RFC 1035 section 2.3.4).
const LABEL_MAX: usize = 63;

/// A DNS name, or all names below one (`*.example.com`, which excludes `example.com` itself). Stored as on
/// the wire: lower case, A-labels (UTS 46), no final dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DnsName(String);

impl DnsName {
    /// The name; with the prefix `*.` for all names below it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name after `*.`, if it matches the names below it.
    #[must_use]
    pub fn below(&self) -> Option<&str> {
        self.0.strip_prefix("*.")
    }
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for DnsName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write it like api.example.com or *.example.com";
        let (star, name) = match text.strip_prefix("*.") {
            Some(name) => ("*.", name),
            None => ("", text),
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        if name.contains('*') {
            return Err(format!(
                "`{text}`: a `*` may only stand for whole labels at the beginning; {example}"
            ));
        }
        let ascii =
            idna::domain_to_ascii(name).map_err(|_| format!("`{text}` is not a DNS name; {example}"))?;
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'_';
        let label = |label: &str| (1..=LABEL_MAX).contains(&label.len()) && label.bytes().all(plain);
        if ascii.len() > LENGTH_MAX || !ascii.split('.').all(label) {
            return Err(format!(
                "`{text}` is not a DNS name: labels are 1 to {LABEL_MAX} letters, digits, `-` and `_`, with dots between, \
                 {LENGTH_MAX} characters in all; {example}"
            ));
        }
        if ascii.parse::<core::net::Ipv4Addr>().is_ok() {
            return Err(format!("`{text}` is an address; write it without `dns`"));
        }
        Ok(DnsName(format!("{star}{ascii}")))
    }
}

text_value!(DnsName, "A DNS name, or `*.` and a name for all names below it.", "string");

/// An item of a group: addresses, another group, or the addresses in answers for DNS names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupMember {
    /// Addresses or a group.
    Target(Target),
    /// `{dns: NAMES}`.
    Names(OneOrMany<DnsName>),
}

impl Serialize for GroupMember {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            GroupMember::Target(target) => target.serialize(serializer),
            GroupMember::Names(names) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("dns", names)?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for GroupMember {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct GroupMemberVisitor(PhantomData<()>);
        impl<'de> Visitor<'de> for GroupMemberVisitor {
            type Value = GroupMember;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address, a prefix, the name of a group, or `dns: NAME`")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<GroupMember, E> {
                text.parse().map(GroupMember::Target).map_err(E::custom)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<GroupMember, A::Error> {
                let mut names = None;
                while let Some(key) = map.next_key::<String>()? {
                    if key == "label" {
                        return map.next_value().map(|labels| GroupMember::Target(Target::Label(labels)));
                    }
                    if key != "dns" {
                        return Err(de::Error::custom(format!(
                            "the key `{key}` is not known here; write `dns: NAME`"
                        )));
                    }
                    names = Some(map.next_value()?);
                }
                names.map(GroupMember::Names).ok_or_else(|| de::Error::custom("write `dns: NAME`"))
            }
        }
        deserializer.deserialize_any(GroupMemberVisitor(PhantomData))
    }
}

impl JsonSchema for GroupMember {
    fn schema_name() -> Cow<'static, str> {
        "GroupMember".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (target, names) =
            (generator.subschema_for::<Target>(), generator.subschema_for::<OneOrMany<DnsName>>());
        json_schema!({
            "anyOf": [target, {
                "type": "object",
                "description": "The addresses of these names in answers of the file's resolvers, for the lifetime of the answers.",
                "properties": {"dns": names},
                "required": ["dns"],
                "additionalProperties": false
            }]
        })
    }
}

/// A resolved member of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResolvedMember {
    /// Addresses with a prefix.
    Prefix(Prefix),
    /// The addresses in answers for a name.
    Name(DnsName),
}

impl ResolvedMember {
    /// The address whose IP version it has; none for a name, whose addresses may be of both.
    #[must_use]
    pub const fn address(&self) -> Option<core::net::IpAddr> {
        match self {
            ResolvedMember::Prefix(prefix) => Some(prefix.address),
            ResolvedMember::Name(_) => None,
        }
    }
}

/// Section `dns`: the resolvers that are trusted for the addresses of DNS names.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct DnsSection {
    /// Trusted resolvers. Without any, names have no addresses.
    pub resolvers: OneOrMany<Target>,
    /// Shortest time that an address stays a member, also if the TTL of its answer is shorter.
    pub ttl_min: Seconds,
    /// Longest time that an address stays a member.
    pub ttl_max: Seconds,
    /// Most addresses that each tenant has by names at a time.
    pub addresses: u32,
}

/// Largest value of `addresses`.
pub const ADDRESSES_MAX: u32 = 1 << 20;

impl Default for DnsSection {
    fn default() -> Self {
        let (ttl_min, ttl_max) = (Seconds(60), Seconds(86_400));
        DnsSection { resolvers: OneOrMany::default(), ttl_min, ttl_max, addresses: 16_384 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_held_as_on_the_wire() {
        for (text, want) in [
            ("Api.Example.COM.", "api.example.com"),
            ("*.example.com", "*.example.com"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("*.Bücher.example", "*.xn--bcher-kva.example"),
            ("_dmarc.example", "_dmarc.example"),
        ] {
            assert_eq!(text.parse::<DnsName>().as_ref().map(DnsName::as_str), Ok(want), "{text}");
        }
        let long = format!("{}.example", "a".repeat(64));
        for wrong in
            ["", ".", "*", "*.", "a..b", "a.*.example", "**.example", "a b.example", "192.0.2.1", &long]
        {
            let said = wrong.parse::<DnsName>().unwrap_err();
            assert!(said.contains("example.com") || said.contains("without `dns`"), "{wrong}: {said}");
        }
    }
}
