// SPDX-License-Identifier: Apache-2.0
//! `geoip`: the country that an address is in. Source: Suricata 8's user guide, "geoip".

use super::number::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, RefusalCode, Role};
use crate::model::condition::{ConditionContext, PacketCondition};
use crate::state::locations::{LocationError, Locations};
use std::net::IpAddr;
use std::sync::Arc;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "geoip",
    aliases: &[],
    summary: "The country of an address (src, dst, both, any) is one of these, by ISO code; with `!` it is none of them.",
    argument: Argument::Required,
    role: Role::Condition,
    syntax: "geoip:[src|dst|both|any,][!]CC[,CC...]",
    example: r#"alert ip any any -> any any (msg:"geoip"; geoip:src,DE,FR; sid:1;)"#,
    note: "Needs `geoip-database`, a file of the MaxMind format. An address that the database does not know is in no country: a negated list \
           does not match it either. A `!` before any of the codes negates the list.",
    parse: geoip,
}];

#[derive(Clone, Copy, PartialEq, Eq)]
enum GeoipSide {
    Source,
    Destination,
    Both,
    Any,
}

struct InCountry {
    locations: Arc<Locations>,
    side: GeoipSide,
    countries: Vec<[u8; 2]>,
    negated: bool,
}

impl InCountry {
    fn holds(&self, address: IpAddr) -> bool {
        let country = self.locations.country(address);
        country.is_some_and(|c| self.countries.iter().any(|k| k == c.as_bytes()) != self.negated)
    }
}

impl PacketCondition for InCountry {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        let Some((source, destination)) = scene.addresses() else { return false };
        match self.side {
            GeoipSide::Source => self.holds(source),
            GeoipSide::Destination => self.holds(destination),
            GeoipSide::Both => self.holds(source) && self.holds(destination),
            GeoipSide::Any => self.holds(source) || self.holds(destination),
        }
    }
}

fn geoip(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let mut items = text(argument)?.split(',').map(str::trim).peekable();
    let side = match items.peek() {
        Some(&"src") => GeoipSide::Source,
        Some(&"dst") => GeoipSide::Destination,
        Some(&"both") => GeoipSide::Both,
        Some(&"any") => GeoipSide::Any,
        _ => {
            return codes(builder, GeoipSide::Any, items);
        }
    };
    items.next();
    codes(builder, side, items)
}

fn codes<'a>(
    builder: &mut SignatureBuilder<'_>,
    side: GeoipSide,
    items: impl Iterator<Item = &'a str>,
) -> Result<(), KeywordError> {
    let (mut countries, mut negated) = (Vec::new(), false);
    for item in items {
        let code = item.strip_prefix('!').map(str::trim_start);
        negated |= code.is_some();
        let code = code.unwrap_or(item);
        match *code.as_bytes() {
            [a, b] if a.is_ascii_uppercase() && b.is_ascii_uppercase() => countries.push([a, b]),
            _ => {
                return Err(KeywordError::argument(format!("`{item}` is not a country code"))
                    .help("codes are two capital letters (ISO 3166-1): `geoip:src,DE,FR`"));
            }
        }
    }
    if countries.is_empty() {
        return Err(KeywordError::argument("no country is named"));
    }
    let environment = builder.environment;
    let locations = environment.outside().locations(environment.settings).map_err(|error| {
        let code = match error {
            LocationError::NotConfigured => RefusalCode::UnsupportedKeyword,
            LocationError::Unreadable(..) => RefusalCode::MissingFile,
        };
        KeywordError::new(code, error.to_string())
            .help("set `geoip-database` to a database of countries in MaxMind's format (.mmdb)")
    })?;
    builder.packet.push(Box::new(InCountry { locations, side, countries, negated }));
    Ok(())
}
