// SPDX-License-Identifier: Apache-2.0
//! Snap lengths of taps: a number of bytes, or headers and a number of bytes after them.

use super::{HostFile, SNAP_LENGTH};
use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};
use std::borrow::Cow;

/// Bytes of each frame of a tap that are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Snap {
    /// This number of bytes, from the link header on.
    Frame(u32),
    /// The headers, and bytes after them.
    After(SnapAfter),
}

/// A snap length that counts from the end of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SnapAfter {
    /// The layer of the last header that is captured whole. In tunnels, the innermost packet counts.
    pub after: SnapLayer,
    /// Bytes after that header: from 120 after `layer2`, from 60 after `layer3`, from 0 after `layer4`;
    /// 65,535 at most.
    pub bytes: u32,
    /// Most bytes of any frame, from 128 to 65,535 and more than `bytes`: also of frames without an IP header
    /// or with malformed headers, which are captured whole unless this is given.
    pub max: Option<u32>,
}

/// A layer of headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SnapLayer {
    /// The link header with VLAN tags, and everything else before the IP header.
    Layer2,
    /// The IP header with its options or extension headers.
    Layer3,
    /// The header of TCP, UDP, SCTP, ICMP, GRE, ESP or AH; the IP header of other packets.
    Layer4,
}

impl SnapLayer {
    const ALL: [SnapLayer; 3] = [SnapLayer::Layer2, SnapLayer::Layer3, SnapLayer::Layer4];

    /// The layer's name in a host file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            SnapLayer::Layer2 => "layer2",
            SnapLayer::Layer3 => "layer3",
            SnapLayer::Layer4 => "layer4",
        }
    }

    /// Fewest and most bytes after the layer. The fewest hold the longest headers of IPv4 and TCP, 60 bytes
    /// each.
    #[must_use]
    pub const fn bytes(self) -> RangeInclusive<u32> {
        match self {
            SnapLayer::Layer2 => 120..=65_535,
            SnapLayer::Layer3 => 60..=65_535,
            SnapLayer::Layer4 => 0..=65_535,
        }
    }
}

impl Snap {
    /// The problem of this snap length, with the key at fault and the valid range.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        let out = |value: u32, range: RangeInclusive<u32>, of: &str| {
            let (least, most) = (range.start(), range.end());
            let problem = || format!("{value} bytes{of} are out of range; give {least} to {most}");
            (!range.contains(&value)).then(problem)
        };
        match *self {
            Snap::Frame(bytes) => Some(("", out(bytes, SNAP_LENGTH, "")?)),
            Snap::After(SnapAfter { after, bytes, max }) => {
                if let Some(problem) = out(bytes, after.bytes(), &format!(" after {}", after.name())) {
                    return Some(("/bytes", problem));
                }
                let max = max?;
                if let Some(problem) = out(max, SNAP_LENGTH, " at most") {
                    return Some(("/max", problem));
                }
                let problem = || {
                    format!(
                        "{bytes} bytes after {} do not fit into {max} bytes of a frame; give a `max` of more than {bytes}, or write `snap-length: {max}`",
                        after.name()
                    )
                };
                (max <= bytes).then(|| ("/max", problem()))
            }
        }
    }
}

impl fmt::Display for Snap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Snap::Frame(bytes) => write!(f, "{bytes} bytes of each frame"),
            Snap::After(SnapAfter { after, bytes, max }) => {
                write!(f, "the headers up to {} and {bytes} bytes after them", after.name())?;
                max.map_or(Ok(()), |max| write!(f, ", {max} bytes at most,"))?;
                f.write_str(" of each frame")
            }
        }
    }
}

/// Parses the form of the command line: `128`, `layer4+64`.
impl FromStr for Snap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u32>().ok();
        let read = match text.split_once('+') {
            None => number(text).map(Snap::Frame),
            Some((layer, bytes)) => SnapLayer::ALL
                .into_iter()
                .find(|known| known.name() == layer)
                .zip(number(bytes))
                .map(|(after, bytes)| Snap::After(SnapAfter { after, bytes, max: None })),
        };
        let Some(snap) = read else {
            let (least, most) = (SNAP_LENGTH.start(), SNAP_LENGTH.end());
            return Err(format!(
                "give {least} to {most} bytes of a frame, or a layer and the bytes after its header: `layer2+120`, `layer3+60`, `layer4+64`"
            ));
        };
        snap.problem().map_or(Ok(snap), |(_, problem)| Err(problem))
    }
}

impl<'de> Deserialize<'de> for Snap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Length;
        impl<'de> Visitor<'de> for Length {
            type Value = Snap;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, or `{after: layer4, bytes: 64}`")
            }
            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Snap, E> {
                Ok(Snap::Frame(u32::try_from(bytes).unwrap_or(u32::MAX)))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Snap, A::Error> {
                SnapAfter::deserialize(MapAccessDeserializer::new(map)).map(Snap::After)
            }
        }
        deserializer.deserialize_any(Length)
    }
}

impl Serialize for Snap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Snap::Frame(bytes) => serializer.serialize_u32(*bytes),
            Snap::After(after) => after.serialize(serializer),
        }
    }
}

impl JsonSchema for Snap {
    fn schema_name() -> Cow<'static, str> {
        "Snap".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let after = generator.subschema_for::<SnapAfter>();
        json_schema!({
            "anyOf": [
                {"type": "integer", "minimum": SNAP_LENGTH.start(), "maximum": SNAP_LENGTH.end()},
                after,
            ]
        })
    }
}

/// Checks the snap lengths of taps.
pub(super) fn check(file: &HostFile, problem: &mut impl FnMut(String, String)) {
    for (index, link) in file.links.iter().enumerate() {
        let snap = link.tap.as_ref().and_then(|tap| tap.snap_length);
        if let Some((key, text)) = snap.and_then(|snap| snap.problem()) {
            let message = format!("link `{}`: {text}", link.name);
            problem(format!("links/{index}/tap/snap-length{key}"), message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn read(tap: &str) -> Result<Option<Snap>, String> {
        let text = format!("links: [{{name: a, tap: {{interface: e0, snap-length: {tap}}}}}]");
        let file = parse("bartizan.yaml", &text).map_err(|error| error.to_string())?;
        Ok(file.links[0].tap.as_ref().unwrap().snap_length)
    }

    #[test]
    fn headers_and_bytes_behind_them() {
        let after = |after, bytes, max| Snap::After(SnapAfter { after, bytes, max });
        for (text, expected) in [
            ("256", Snap::Frame(256)),
            ("{after: layer2, bytes: 120}", after(SnapLayer::Layer2, 120, None)),
            ("{after: layer3, bytes: 60, max: 128}", after(SnapLayer::Layer3, 60, Some(128))),
            ("{bytes: 0, after: layer4}", after(SnapLayer::Layer4, 0, None)),
        ] {
            let snap = read(text).unwrap().unwrap();
            assert_eq!(snap, expected);
            // Serialized values can be parsed again.
            let json = serde_json::to_string(&snap).unwrap();
            assert_eq!(serde_json::from_str::<Snap>(&json).unwrap(), snap);
        }
        for (text, expected) in [
            (
                "{after: layer2, bytes: 119}",
                "1:76: link `a`: 119 bytes after layer2 are out of range; give 120 to 65535",
            ),
            (
                "{after: layer3, bytes: 59}",
                "1:76: link `a`: 59 bytes after layer3 are out of range; give 60 to 65535",
            ),
            ("{after: layer4, bytes: 65536}", "65536 bytes after layer4 are out of range; give 0 to 65535"),
            ("{after: layer4, bytes: 64, max: 127}", "127 bytes at most are out of range; give 128 to 65535"),
            (
                "{after: layer4, bytes: 200, max: 200}",
                "give a `max` of more than 200, or write `snap-length: 200`",
            ),
            ("{after: layer5, bytes: 64}", "`layer5` is not known here; did you mean `layer2`?"),
            ("{after: layer4}", "bytes"),
            ("{after: layer4, bytes: 64, most: 9}", "most"),
            ("long", "a number of bytes, or `{after: layer4, bytes: 64}`"),
            ("-1", "a number of bytes, or `{after: layer4, bytes: 64}`"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(expected), "{text}\n{error}");
        }
    }

    #[test]
    fn a_command_line_has_them_in_one_word() {
        let error = |text: &str| text.parse::<Snap>().expect_err(text);
        assert_eq!("128".parse(), Ok(Snap::Frame(128)));
        let after = SnapAfter { after: SnapLayer::Layer4, bytes: 64, max: None };
        assert_eq!("layer4+64".parse(), Ok(Snap::After(after)));
        assert_eq!(error("127"), "127 bytes are out of range; give 128 to 65535");
        assert_eq!(error("layer3+9"), "9 bytes after layer3 are out of range; give 60 to 65535");
        for text in ["many", "layer9+64", "layer4+", "layer4", "+64", "4294967296", ""] {
            assert!(error(text).starts_with("give 128 to 65535 bytes of a frame, or a layer"), "{text}");
        }
    }
}
