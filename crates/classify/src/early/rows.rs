// SPDX-License-Identifier: Apache-2.0
//! The list of rules that an early table is made from.

use super::sets::{ValueInterval, Values, both, values};
use crate::header::{HeaderRule, Net};
use bartizan_base::{LinkId, TenantId};
use std::collections::BTreeMap;

/// The selector of a tenant's traffic. An absent field matches all packets; an empty list matches none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlyTenant {
    /// The tenant.
    pub tenant: TenantId,
    /// Numbers of the tunnel around the packet.
    pub tunnels: Option<Vec<u32>>,
    /// VLAN ids; a tag of the packet must have one of them.
    pub vlans: Option<Vec<u16>>,
    /// Links; the packet must have arrived on one of them.
    pub links: Option<Vec<LinkId>>,
    /// Networks; one of the packet's addresses must be in one of them.
    pub networks: Option<Vec<Net>>,
}

/// Protocols that are judged, each with a bit.
pub(super) const PROTOCOLS: [u8; 4] = [6, 17, 1, 58];
/// The bit of all other protocols together. Only a rule without a protocol has it, or one that sends packets
/// up.
pub(super) const OTHERS: u8 = 16;
pub(super) const ALL_PROTOCOLS: u8 = 15 | OTHERS;

/// The condition of a row: a set of values for each field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EarlyCondition {
    pub sources: Values,
    pub destinations: Values,
    pub source_ports: Values,
    pub destination_ports: Values,
    /// A bit for each protocol.
    pub protocols: u8,
    pub links: OneOf<LinkId>,
    pub tenants: OneOf<TenantId>,
}

/// The allowed values, sorted; `None`: any.
pub(super) type OneOf<T> = Option<Vec<T>>;

/// The intersection of both lists.
fn in_both<T: PartialEq + Clone>(a: &OneOf<T>, b: &OneOf<T>) -> OneOf<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.iter().filter(|value| b.contains(value)).cloned().collect()),
        (a, b) => a.as_ref().or(b.as_ref()).cloned(),
    }
}

/// All addresses.
pub(super) fn everywhere() -> Values {
    vec![ValueInterval::version(false), ValueInterval::version(true)]
}

/// All ports.
pub(super) fn any_port() -> Values {
    vec![ValueInterval { v6: false, first: 0, last: u16::MAX.into() }]
}

impl EarlyCondition {
    fn of(rule: &HeaderRule) -> Self {
        let addresses =
            |net: Option<Net>| net.map_or_else(everywhere, |net| vec![ValueInterval::of_net(net)]);
        let protocols = match rule.protocol {
            None => ALL_PROTOCOLS,
            Some(one) => PROTOCOLS.iter().position(|known| *known == one).map_or(OTHERS, |bit| 1 << bit),
        };
        EarlyCondition {
            sources: addresses(rule.source),
            destinations: addresses(rule.destination),
            source_ports: vec![ValueInterval::of_ports(rule.source_ports)],
            destination_ports: vec![ValueInterval::of_ports(rule.destination_ports)],
            protocols,
            links: rule.link.map(|link| vec![link]),
            tenants: rule.tenant.map(|tenant| vec![tenant]),
        }
    }

    fn is_empty(&self) -> bool {
        self.sources.is_empty()
            || self.destinations.is_empty()
            || self.source_ports.is_empty()
            || self.destination_ports.is_empty()
            || self.protocols == 0
            || self.links.as_ref().is_some_and(Vec::is_empty)
            || self.tenants.as_ref().is_some_and(Vec::is_empty)
    }

    /// The intersection of both; `None` if it is empty.
    fn and(&self, other: &EarlyCondition) -> Option<Self> {
        let fields = EarlyCondition {
            sources: both(&self.sources, &other.sources),
            destinations: both(&self.destinations, &other.destinations),
            source_ports: both(&self.source_ports, &other.source_ports),
            destination_ports: both(&self.destination_ports, &other.destination_ports),
            protocols: self.protocols & other.protocols,
            links: in_both(&self.links, &other.links),
            tenants: in_both(&self.tenants, &other.tenants),
        };
        (!fields.is_empty()).then_some(fields)
    }
}

/// Joins alternatives that differ in one field only, field by field: a product of sets becomes one row again.
fn put_together(mut all: Vec<EarlyCondition>) -> Vec<EarlyCondition> {
    type Take = fn(&mut EarlyCondition) -> Values;
    let takes: [Take; 4] = [
        |fields| core::mem::take(&mut fields.sources),
        |fields| core::mem::take(&mut fields.destinations),
        |fields| core::mem::take(&mut fields.source_ports),
        |fields| core::mem::take(&mut fields.destination_ports),
    ];
    let puts: [fn(&mut EarlyCondition, Values); 4] = [
        |fields, set| fields.sources = set,
        |fields, set| fields.destinations = set,
        |fields, set| fields.source_ports = set,
        |fields, set| fields.destination_ports = set,
    ];
    for (take, put) in takes.iter().zip(puts) {
        let mut groups: BTreeMap<EarlyCondition, Vec<ValueInterval>> = BTreeMap::new();
        for mut fields in all {
            let set = take(&mut fields);
            groups.entry(fields).or_default().extend(set);
        }
        all = groups
            .into_iter()
            .map(|(mut fields, set)| {
                put(&mut fields, values(set));
                fields
            })
            .collect();
    }
    let mut groups: BTreeMap<EarlyCondition, u8> = BTreeMap::new();
    for mut fields in all {
        let protocols = core::mem::take(&mut fields.protocols);
        *groups.entry(fields).or_default() |= protocols;
    }
    let all = groups.into_iter().map(|(fields, protocols)| EarlyCondition { protocols, ..fields }).collect();
    let all = put_lists_together(all, |fields| &mut fields.links);
    put_lists_together(all, |fields| &mut fields.tenants)
}

/// Joins rows that are equal except in one list.
fn put_lists_together<T: Ord>(
    all: Vec<EarlyCondition>,
    of: fn(&mut EarlyCondition) -> &mut OneOf<T>,
) -> Vec<EarlyCondition> {
    let mut groups: BTreeMap<EarlyCondition, OneOf<T>> = BTreeMap::new();
    for mut fields in all {
        let own = of(&mut fields).take();
        let known = groups.entry(fields).or_insert(Some(Vec::new()));
        *known = known.take().zip(own).map(|(known, own)| known.into_iter().chain(own).collect());
    }
    let put = |(mut fields, list): (EarlyCondition, OneOf<T>)| {
        *of(&mut fields) = list.map(|mut list| {
            list.sort_unstable();
            list.dedup();
            list
        });
        fields
    };
    groups.into_iter().map(put).collect()
}

/// A row of the list.
#[derive(Clone, Debug)]
pub(super) struct EarlyRow {
    pub fields: EarlyCondition,
    /// The outcome to count for a refused packet; `None`: the packet goes up.
    pub outcome: Option<u32>,
    /// The number of its rule in the list.
    pub rule: usize,
    /// A condition that a level below cannot check: the row may match, and the packet goes up.
    pub unknown: Option<Unknown>,
}

impl EarlyRow {
    /// The row for a table that does not distinguish tenants: a row of a tenant may match, so its packets
    /// go up.
    pub fn without_tenants(&self) -> EarlyRow {
        let mut row = self.clone();
        if row.fields.tenants.take().is_some() {
            row.outcome = None;
        }
        row
    }
}

/// A condition of a header rule that a level below cannot check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unknown {
    /// The tenant: the level has no room for the selectors.
    Tenant,
    /// The tenant: only the number of a tunnel identifies it, and the level does not read tunnels.
    Tunnel,
    /// The DNS name of an address.
    Name,
    /// A protocol that early tables do not distinguish.
    Protocol,
}

/// A rule of the list that can match on a link ([`EarlyRules::on`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnLink {
    /// The number of the rule in the list.
    pub rule: usize,
    /// The reason why some packets that it matches go up undecided, though the rule is in the table.
    pub unknown: Option<Unknown>,
}

/// Rules in order: the first that matches a packet decides.
#[derive(Clone, Debug, Default)]
pub struct EarlyRules {
    pub(super) rows: Vec<EarlyRow>,
    /// Selectors of tenants, in the order in which they are tried.
    pub(super) tenants: Vec<EarlyTenant>,
    rules: usize,
}

/// The part of a list that a table has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarlyReach {
    /// The number of rules that it holds: the first ones of the list.
    pub rules: usize,
    /// Whether it distinguishes tenants. If not, packets that may match a tenant's rule go up.
    pub tenants: bool,
    /// Whether packets in tunnels are judged.
    pub tunnels: bool,
}

/// The condition of a header rule that a level below cannot check, if it has one.
fn unknown_of(rule: &HeaderRule) -> Option<Unknown> {
    match rule.protocol {
        _ if rule.is_named() => Some(Unknown::Name),
        Some(protocol) if !PROTOCOLS.contains(&protocol) => Some(Unknown::Protocol),
        _ => None,
    }
}

/// The first condition among some rules that a level below cannot check.
fn first_unknown(rules: &[HeaderRule]) -> Option<Unknown> {
    rules.iter().find_map(unknown_of)
}

/// Header rules as rows of the list: those that a header alone decides, and those with a condition that a
/// level below cannot check.
fn split(rules: &[HeaderRule]) -> [Vec<EarlyCondition>; 2] {
    let of = |unknown: bool| {
        let own = rules.iter().filter(|rule| unknown_of(rule).is_some() == unknown);
        put_together(own.map(EarlyCondition::of).collect())
    };
    [of(false), of(true)]
}

impl EarlyRules {
    /// Sets the selectors of tenants: a packet is of the tenant of the first that fits, or of tenant 0.
    pub fn set_tenants(&mut self, tenants: Vec<EarlyTenant>) {
        self.tenants = tenants;
    }

    /// Appends a rule that matches a packet if one of `alternatives` and one of `within` do. `outcome` is
    /// counted for the packets that it decides; `None`: they go up. If one of these has a DNS name or a
    /// protocol that the table does not distinguish, a level below cannot decide it: packets that it may
    /// match go up.
    pub fn push(&mut self, within: &[HeaderRule], alternatives: &[HeaderRule], outcome: Option<u32>) {
        let unknown = first_unknown(alternatives).or_else(|| first_unknown(within));
        let ([sure, unsure], [within, within_unsure]) = (split(alternatives), split(within));
        // A certain match is decided; a possible match goes up before any later row decides.
        let all = |a: &[EarlyCondition], b: &[EarlyCondition]| {
            put_together(a.iter().flat_map(|x| b.iter().filter_map(|y| x.and(y))).collect())
        };
        let mut add = |fields: Vec<EarlyCondition>, outcome, unknown| {
            let rule = self.rules;
            self.rows.extend(fields.into_iter().map(|fields| EarlyRow { fields, outcome, rule, unknown }));
        };
        add(all(&sure, &within), outcome, None);
        for (a, b) in [(&sure, &within_unsure), (&unsure, &within), (&unsure, &within_unsure)] {
            add(all(a, b), None, unknown);
        }
        self.rules += 1;
    }

    /// The rules that can match packets on a link, in order. `reach` is that of the level's table.
    pub fn on(&self, link: LinkId, reach: EarlyReach) -> impl Iterator<Item = OnLink> {
        let on_link = move |links: &OneOf<LinkId>| links.as_ref().is_none_or(|links| links.contains(&link));
        let can_be = move |tenant: &TenantId| {
            tenant.0 == 0 || self.tenants.iter().any(|own| own.tenant == *tenant && on_link(&own.links))
        };
        let own = move |row: &&EarlyRow| {
            on_link(&row.fields.links) && row.fields.tenants.as_ref().is_none_or(|all| all.iter().any(can_be))
        };
        self.rows.chunk_by(|a, b| a.rule == b.rule).filter_map(move |rows| {
            let first = rows.iter().find(own)?;
            let of_tenants = || rows.iter().filter(own).find_map(|row| self.unknown_tenant(row, reach));
            let unknown = rows.iter().filter(own).find_map(|row| row.unknown).or_else(of_tenants);
            Some(OnLink { rule: first.rule, unknown })
        })
    }

    /// The reason why a level with this reach cannot check a row's tenants; `None` if it can.
    fn unknown_tenant(&self, row: &EarlyRow, reach: EarlyReach) -> Option<Unknown> {
        let asked = row.fields.tenants.as_ref()?;
        let in_tunnels = |own: &&EarlyTenant| asked.contains(&own.tenant) && own.tunnels.is_some();
        if !reach.tenants {
            Some(Unknown::Tenant)
        } else if !reach.tunnels && self.tenants.iter().any(|own| in_tunnels(&own)) {
            Some(Unknown::Tunnel)
        } else {
            None
        }
    }

    /// The number of its rules.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rules
    }

    /// Whether the list has no rule.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rules == 0
    }
}
