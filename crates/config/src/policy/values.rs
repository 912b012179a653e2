// SPDX-License-Identifier: Apache-2.0
//! Scalar types of policies: addresses, ports, protocols; and lists that may be written as their only item.

use core::fmt;
use core::marker::PhantomData;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A list; the brackets may be left out around a single item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        OneOrMany(Vec::new())
    }
}

impl<T> OneOrMany<T> {
    /// Whether the list is empty.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> core::ops::Deref for OneOrMany<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = OneOrMany<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or a list of values")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<OneOrMany<T>, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(OneOrMany(list))
            }
        }
        // The reader of policies presents a single value as a list of one under this call.
        deserializer.deserialize_tuple_struct("List", 1, Items(PhantomData))
    }
}

impl<T: Serialize> Serialize for OneOrMany<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("ListOf{}", T::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let item = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [item, { "type": "array", "items": item }] })
    }
    fn inline_schema() -> bool {
        true
    }
}

/// The error about an empty list where items are required.
pub const EMPTY_LIST: &str = "this list is empty, so it selects nothing; add an item, or remove the key";

/// Deserializes a list that must not be empty.
pub(super) fn filled<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<OneOrMany<T>, D::Error> {
    let list = OneOrMany::deserialize(deserializer)?;
    if list.is_none() { Err(de::Error::custom(EMPTY_LIST)) } else { Ok(list) }
}

/// Deserializes an optional list that must not be empty.
pub(super) fn filled_if_any<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<OneOrMany<T>>, D::Error> {
    match Option::<OneOrMany<T>>::deserialize(deserializer)? {
        Some(list) if list.is_none() => Err(de::Error::custom(EMPTY_LIST)),
        list => Ok(list),
    }
}

/// Deserializes text through `FromStr`; numbers count as their text.
pub(super) fn from_text<'de, D: Deserializer<'de>, T: FromStr<Err = String>>(
    deserializer: D,
) -> Result<T, D::Error> {
    struct TextVisitor<T>(PhantomData<T>);
    impl<T: FromStr<Err = String>> Visitor<'_> for TextVisitor<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("text or a number")
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }
    deserializer.deserialize_str(TextVisitor(PhantomData))
}

macro_rules! text_value {
    ($type:ident, $description:literal, $schema:tt) => {
        text_value!($type as stringify!($type), $description, $schema);
    };
    // `$name`: the type's name in schemas.
    ($type:ident as $name:expr, $description:literal, $schema:tt) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                from_text(deserializer)
            }
        }
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "description": $description, "type": $schema })
            }
        }
    };
}

/// Addresses in the syntax of rules: networks, ranges, lists in brackets, variables (`$HOME_NET`), each
/// negated by `!`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressGroup(pub String);

impl FromStr for AddressGroup {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        bartizan_rules::RuleVariables::new().set_address("", text).map_err(|error| error.to_string())?;
        Ok(AddressGroup(text.to_owned()))
    }
}

/// Ports in the syntax of rules: numbers, ranges (`1024:`), lists in brackets, variables, each negated by
/// `!`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortGroup(pub String);

impl FromStr for PortGroup {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        bartizan_rules::RuleVariables::new().set_port("", text).map_err(|error| error.to_string())?;
        Ok(PortGroup(text.to_owned()))
    }
}

impl fmt::Display for AddressGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for PortGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<T: fmt::Display> OneOrMany<T> {
    /// The list in the syntax of rules.
    #[must_use]
    pub fn expression(&self) -> String {
        match self.0.as_slice() {
            [only] => only.to_string(),
            all => format!("[{}]", all.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
        }
    }
}

pub(super) use text_value;

text_value!(
    AddressGroup,
    "Addresses as rules name them: `10.0.0.0/8`, `[10.0.0.0/8,!10.1.0.0/16]`, `!$HOME_NET`.",
    "string"
);
text_value!(
    PortGroup,
    "Ports as rules name them: `80`, `[80,8000:8100]`, `!$HTTP_PORTS`.",
    ["string", "integer"]
);

/// A network: addresses with common leading bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    /// First address; host bits are zero.
    pub address: IpAddr,
    /// Number of leading bits: 0 to 32 or 128.
    pub length: u8,
}

impl Prefix {
    /// The network of `length` bits that contains an address.
    #[must_use]
    pub fn new(address: IpAddr, length: u8) -> Self {
        match address {
            IpAddr::V4(v4) => {
                let length = length.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                Prefix { address: IpAddr::V4((u32::from(v4) & mask).into()), length }
            }
            IpAddr::V6(v6) => {
                let length = length.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                Prefix { address: IpAddr::V6((u128::from(v6) & mask).into()), length }
            }
        }
    }

    /// Whether the network contains an address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && Prefix::new(address, self.length).address == self.address
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Prefix {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write it like 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32";
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr =
            address.parse().map_err(|_| format!("`{text}` is not an address or prefix; {example}"))?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let length =
            match length {
                None => longest,
                Some(length) => length.parse::<u8>().ok().filter(|l| *l <= longest).ok_or_else(|| {
                    format!("`{text}`: the prefix length must be 0 to {longest}; {example}")
                })?,
            };
        let prefix = Prefix::new(address, length);
        if let IpAddr::V6(v6) = address
            && let Some(mapped) = v6.to_ipv4_mapped()
            && length > MAPPED
        {
            let inside = Prefix::new(IpAddr::V4(mapped), length - MAPPED);
            return Err(format!(
                "`{text}` is an IPv4 address in IPv6 notation, which no IPv4 packet matches; write `{inside}`"
            ));
        }
        if prefix.address != address {
            return Err(format!("`{text}` has host bits set; write `{prefix}` for the network"));
        }
        Ok(prefix)
    }
}

/// Prefix length of the IPv4-mapped IPv6 addresses (`::ffff:0:0/96`). Only the whole network may be named: no
/// IPv6 packet should have such an address.
const MAPPED: u8 = 96;

text_value!(Prefix, "An address or prefix: 192.0.2.7, 10.0.0.0/8, 2001:db8::/32.", "string");

/// The IP versions of the addresses that a list selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpVersions {
    /// It selects addresses of IPv4.
    pub v4: bool,
    /// It selects addresses of IPv6.
    pub v6: bool,
}

impl IpVersions {
    /// The versions of some members: an address of each; none counts for both versions.
    pub fn of(members: impl Iterator<Item = Option<IpAddr>>) -> Self {
        members.fold(IpVersions::default(), |all, address| IpVersions {
            v4: all.v4 || address.is_none_or(|address| address.is_ipv4()),
            v6: all.v6 || address.is_none_or(|address| address.is_ipv6()),
        })
    }

    /// The versions that two sides have in common.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        IpVersions { v4: self.v4 && other.v4, v6: self.v6 && other.v6 }
    }

    /// The reason why no packet has these two sides, if that is so. A side that selects nothing yet is none.
    #[must_use]
    pub fn apart(self, to: Self) -> Option<String> {
        let none = IpVersions::default();
        if self == none || to == none || self.and(to) != none {
            return None;
        }
        let name = |versions: Self| if versions.v4 { "IPv4" } else { "IPv6" };
        Some(format!(
            "`from` has addresses of {} only and `to` of {} only; give both sides addresses of one IP version",
            name(self),
            name(to)
        ))
    }
}

/// An item of `from`, `to` and groups: a prefix, the name of a group, or `any`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// All addresses of both IP versions.
    Any,
    /// The addresses of a network.
    Prefix(Prefix),
    /// The addresses of a group.
    Group(String),
    /// `{label: {role: web}}`: the addresses of all groups with these labels.
    Label(Labels),
}

/// Labels of groups, or of a selector: keys and values.
pub type Labels = BTreeMap<String, String>;

/// Whether labels `carried` include all of `required`.
#[must_use]
pub fn carries(carried: &Labels, required: &Labels) -> bool {
    required.iter().all(|(key, value)| carried.get(key) == Some(value))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Any => f.write_str("any"),
            Target::Prefix(prefix) => prefix.fmt(f),
            Target::Group(name) => f.write_str(name),
            Target::Label(labels) => {
                let texts: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
                f.write_str(&texts.join(", "))
            }
        }
    }
}

impl FromStr for Target {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "any" {
            return Ok(Target::Any);
        }
        let named = text.starts_with(|c: char| c.is_ascii_alphabetic()) && !text.contains([':', '/']);
        if named { Ok(Target::Group(text.to_owned())) } else { text.parse().map(Target::Prefix) }
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Target::Label(labels) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("label", labels)?;
                map.end()
            }
            other => serializer.collect_str(other),
        }
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TargetVisitor;
        impl<'de> Visitor<'de> for TargetVisitor {
            type Value = Target;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address, a prefix, the name of a group, `any`, or `label: {KEY: VALUE}`")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Target, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Target, A::Error> {
                let mut labels = None;
                while let Some(key) = map.next_key::<String>()? {
                    if key != "label" {
                        let message =
                            format!("the key `{key}` is not known here; write `label: {{KEY: VALUE}}`");
                        return Err(de::Error::custom(message));
                    }
                    labels = Some(map.next_value::<Labels>()?);
                }
                let labels = labels.filter(|labels| !labels.is_empty());
                labels.map(Target::Label).ok_or_else(|| de::Error::custom("write `label: {KEY: VALUE}`"))
            }
        }
        deserializer.deserialize_any(TargetVisitor)
    }
}

impl JsonSchema for Target {
    fn schema_name() -> Cow<'static, str> {
        "Target".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                {"type": "string", "description": "An address, a prefix, the name of a group, or `any`."},
                {
                    "type": "object",
                    "description": "The groups that have all of these labels.",
                    "properties": {"label": {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string"}}},
                    "required": ["label"],
                    "additionalProperties": false
                }
            ]
        })
    }
}

/// A range of ports (or of ICMP types or codes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ports {
    /// First.
    pub first: u16,
    /// Last, itself included.
    pub last: u16,
}

impl Ports {
    /// All ports.
    pub const ANY: Ports = Ports { first: 0, last: u16::MAX };
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl FromStr for Ports {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "any" {
            return Ok(Ports::ANY);
        }
        let wrong = || format!("`{text}` is not a port; write 443, 8000-8999 or any");
        let number = |t: &str| t.trim().parse::<u16>().map_err(|_| wrong());
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(text)?, number(text)?),
        };
        if first > last {
            return Err(format!("`{text}` ends before it begins; write `{last}-{first}`"));
        }
        Ok(Ports { first, last })
    }
}

text_value!(Ports, "A port, a range (8000-8999) or `any`.", ["string", "integer"]);

/// Protocols that have names here; others are written as numbers.
pub const PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ospf", 89),
    ("vrrp", 112),
    ("sctp", 132),
];

/// An IP protocol, or any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpProtocol(pub Option<u8>);

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("any"),
            Some(number) => match PROTOCOLS.iter().find(|(_, n)| *n == number) {
                Some((name, _)) => f.write_str(name),
                None => number.fmt(f),
            },
        }
    }
}

impl FromStr for IpProtocol {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "any" {
            return Ok(IpProtocol(None));
        }
        if let Some((_, number)) = PROTOCOLS.iter().find(|(name, _)| *name == text) {
            return Ok(IpProtocol(Some(*number)));
        }
        text.parse().map(|n| IpProtocol(Some(n))).map_err(|_| {
            let names = PROTOCOLS.iter().map(|(name, _)| *name).chain(["any"]);
            format!(
                "`{text}` is not a protocol; {} (or its number, 0 to 255)",
                super::read::did_you_mean(text, names)
            )
        })
    }
}

text_value!(
    IpProtocol as "Protocol",
    "An IP protocol by name (tcp, udp, icmp, icmpv6, sctp, ...) or number, or `any`.",
    ["string", "integer"]
);

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n > 0 && n % (1 << 30) == 0 => write!(f, "{}GiB", n >> 30),
            n if n > 0 && n % (1 << 20) == 0 => write!(f, "{}MiB", n >> 20),
            n if n > 0 && n % (1 << 10) == 0 => write!(f, "{}KiB", n >> 10),
            n => n.fmt(f),
        }
    }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let shift = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            _ => 64,
        };
        let number = digits.parse::<u64>().ok().filter(|_| shift < 64);
        let bytes = number.and_then(|n| n.checked_mul(1 << (shift % 64)));
        bytes
            .map(Size)
            .ok_or_else(|| format!("`{text}` is not a size; write 64MiB, 2GiB or a number of bytes"))
    }
}

text_value!(Size, "A number of bytes: 64MiB, 2GiB, 1000000.", ["string", "integer"]);

/// Seconds, written with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seconds(pub u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0)
    }
}

impl FromStr for Seconds {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let factor = match unit.trim() {
            "" | "s" => Some(1),
            "m" | "min" => Some(60),
            "h" => Some(3600),
            "d" => Some(86_400),
            _ => None,
        };
        let seconds = factor.zip(digits.parse::<u64>().ok()).and_then(|(f, n)| n.checked_mul(f));
        seconds.map(Seconds).ok_or_else(|| format!("`{text}` is not a time span; write 30s, 10m, 1h or 1d"))
    }
}

text_value!(Seconds, "A time span: 30s, 10m, 1h, 1d.", ["string", "integer"]);

/// A share in percent, from 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(pub u8);

impl Share {
    /// Whether `part` is more than this share of `whole`.
    #[must_use]
    pub const fn is_exceeded(self, part: usize, whole: usize) -> bool {
        part as u128 * 100 > whole as u128 * self.0 as u128
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl FromStr for Share {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse().ok());
        number
            .filter(|number| *number <= 100)
            .map(Share)
            .ok_or_else(|| format!("`{text}` is not a share; write a whole number of percent, 0% to 100%"))
    }
}

text_value!(Share, "A share: 0% to 100%.", ["string"]);

/// Every address of IPv4, every address of IPv6.
pub(super) const EVERYTHING: [Prefix; 2] = [
    Prefix { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), length: 0 },
    Prefix { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), length: 0 },
];
