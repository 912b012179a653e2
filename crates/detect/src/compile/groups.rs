// SPDX-License-Identifier: Apache-2.0
//! Signature groups: the rule heads that a flow's packets can meet, found by the lookup of the flow's first
//! packet.
//!
//! For flows of TCP and UDP the space of headers is cut into cells (networks of the client and of the server,
//! ports of the server) at the bounds that the heads name. All headers of a cell meet the same heads, which
//! are one bit for each head and direction. The cells are header rules in the generation's one lookup. Ports
//! of the client would multiply the cells, so conditions on the client's port have a table of their own. Cell
//! and client port together give the flow's group; detection evaluates rules of the group only, and skips all
//! others that no literal finds.
//!
//! A group may have more heads than a flow meets, never fewer: the inspection checks the head of a candidate
//! in any case. Bounds that would make too many cells are therefore left out: address sets beyond those that
//! most heads name, and bounds of ports that lie close together.

use crate::model::heads::{Heads, RuleHead};
use crate::model::signature::Family;
use bartizan_base::{Direction, PerDirection, TenantId};
use bartizan_classify::{HeaderRule, Net, Range};
use bartizan_rules::{AddressSet, PortSet};
use core::cmp::Ordering;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::HashMap;
use std::sync::Arc;

/// Limit of header rules of all groups.
pub const RULES_MAX: usize = 8192;
/// Limit of all groups, in bytes.
pub(crate) const BYTES_MAX: usize = 16 << 20;
/// Limit of pairs of a client's and a server's network for one tenant.
pub(crate) const PAIRS_MAX: usize = 64;
/// A tenant with fewer header rules has no groups.
const CELLS_MIN: usize = 8;
/// Number of address sets that are tried; sets that most heads name come first.
const SETS_TRIED: usize = 256;
/// The IP protocols whose flows have groups: TCP and UDP.
const PROTOCOLS: [u8; 2] = [6, 17];

/// A set of heads, one bit each.
type Bits = Box<[u64]>;

/// The signature groups of a generation; see the module.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// Number of a header rule and what it matches; see [`bartizan_function::HeaderRules`].
    rules: Arc<[(u32, HeaderRule)]>,
    /// By header rule number: index of the cell's heads, and index of the table of client ports.
    of_rule: Vec<(u32, u32)>,
    cells: Vec<PerDirection<Bits>>,
    /// Conditions of heads on the client's port, by tenant and protocol.
    clients: Vec<ClientPorts>,
    /// First word of each rule set's heads, and the end.
    firsts: Vec<usize>,
}

/// Client ports in classes, each with the heads that accept its ports.
#[derive(Clone, Debug, Default)]
struct ClientPorts {
    /// Last port of each class, ascending.
    ends: Vec<u16>,
    classes: Vec<PerDirection<Bits>>,
}

/// The heads that packets of a flow in one direction can meet: by the flow's cell, and by the client's port.
#[derive(Clone, Copy, Debug)]
pub struct HeadGroup<'g> {
    cell: &'g [u64],
    client: &'g [u64],
}

impl HeadGroup<'_> {
    /// Whether the group has a head.
    #[inline]
    #[must_use]
    pub fn has(self, head: u32) -> bool {
        self.word(head / 64) >> (head % 64) & 1 == 1
    }

    /// 64 heads at once: bit b of word w is head 64 w + b.
    #[inline]
    #[must_use]
    pub fn word(self, word: u32) -> u64 {
        // An unknown head may be met.
        let word = word as usize;
        self.cell.get(word).zip(self.client.get(word)).map_or(u64::MAX, |(cell, client)| cell & client)
    }
}

impl Groups {
    /// Forms the groups of several rule sets together; `most` limits the header rules.
    #[must_use]
    pub fn new(sets: &[&Heads], most: usize) -> Self {
        let mut firsts = vec![0];
        for heads in sets {
            firsts.push(firsts.last().copied().unwrap_or(0) + heads.len().div_ceil(64));
        }
        let words = firsts.last().copied().unwrap_or(0);
        let mut tenants: Vec<TenantId> = sets.iter().flat_map(|s| s.tenants()).collect();
        tenants.sort_unstable();
        tenants.dedup();
        // Half of the bytes for cells, half for client ports.
        let fit = BYTES_MAX / 2 / (words * 16).max(1);
        let most = most.min(fit) / (tenants.len() + 1);
        let mut groups = Groups { firsts, ..Groups::default() };
        let (mut known, mut rules) = (HashMap::new(), Vec::new());
        // Tenants' own cells first: cells for all tenants match a tenant's headers, too.
        for tenant in tenants.into_iter().map(Some).chain([None]) {
            if most < CELLS_MIN {
                // A tenant's headers must not match the cells of other tenants; without cells the tenant has
                // no group.
                if tenant.is_some() {
                    let number = u32::try_from(groups.of_rule.len()).unwrap_or(u32::MAX);
                    groups.of_rule.push((u32::MAX, u32::MAX));
                    rules.push((number, HeaderRule { tenant, ..HeaderRule::default() }));
                }
                continue;
            }
            let scope = TenantHeads::new(sets, &groups.firsts, tenant);
            let first = groups.clients.len();
            let clients = scope.cells(most, |rule, protocol, cell| {
                let number = u32::try_from(groups.of_rule.len()).unwrap_or(u32::MAX);
                let next = u32::try_from(groups.cells.len()).unwrap_or(u32::MAX);
                let index = *known.entry(cell.clone()).or_insert(next);
                if index == next {
                    let (to_server, to_client) = cell;
                    groups.cells.push(PerDirection::new(to_server, to_client));
                }
                groups.of_rule.push((index, u32::try_from(first + protocol).unwrap_or(u32::MAX)));
                rules.push((number, rule));
            });
            groups.clients.extend(clients);
        }
        if groups.cells.len() <= 1 && groups.clients.iter().all(|c| c.ends.len() <= 1) {
            // All flows can meet the same heads, so no lookup is needed.
            rules.clear();
        }
        groups.rules = rules.into();
        groups
    }

    /// The header rules that find a flow's group.
    #[must_use]
    pub fn header_rules(&self) -> &Arc<[(u32, HeaderRule)]> {
        &self.rules
    }

    /// The heads of a rule set that packets of a flow can meet, by the number of the header rule that the
    /// flow's lookup found, and by the client's port.
    #[inline]
    #[must_use]
    pub fn find(
        &self,
        number: u32,
        set: usize,
        client_port: u16,
        direction: Direction,
    ) -> Option<HeadGroup<'_>> {
        let (cell, clients) = *self.of_rule.get(number as usize)?;
        let clients = self.clients.get(clients as usize)?;
        let class =
            if clients.ends.len() > 1 { clients.ends.partition_point(|e| *e < client_port) } else { 0 };
        let words = *self.firsts.get(set)?..*self.firsts.get(set + 1)?;
        Some(HeadGroup {
            cell: self.cells.get(cell as usize)?[direction].get(words.clone())?,
            client: clients.classes.get(class)?[direction].get(words)?,
        })
    }
}

/// The addresses of a network without those in smaller networks of the list.
struct AddressClass {
    net: Net,
    /// Heads that accept the class as source, and heads that accept it as destination.
    source: Bits,
    destination: Bits,
}

/// The address classes of an IP version, the class of the network of all addresses included.
struct FamilyClasses {
    family: Family,
    classes: Vec<AddressClass>,
}

/// Server ports between two bounds.
struct PortClass {
    ports: Range,
    /// Heads that accept some of the ports as source ports, and those that accept some as destination ports.
    source: Bits,
    destination: Bits,
}

/// The heads that apply to the traffic of one tenant, or of all others; each with its bit.
struct TenantHeads<'h> {
    tenant: Option<TenantId>,
    heads: Vec<(usize, &'h RuleHead)>,
    words: usize,
}

impl<'h> TenantHeads<'h> {
    fn new(sets: &[&'h Heads], firsts: &[usize], tenant: Option<TenantId>) -> Self {
        let mut heads = Vec::new();
        for (set, first) in sets.iter().zip(firsts) {
            let list = tenant.map_or(set.common(), |t| set.of(t));
            heads.extend(list.iter().enumerate().filter_map(|(i, h)| Some((first * 64 + i, h.as_ref()?))));
        }
        TenantHeads { tenant, heads, words: firsts.last().copied().unwrap_or(0) }
    }

    fn bits(&self, holds: impl Fn(&RuleHead) -> bool) -> Bits {
        let mut bits = vec![0u64; self.words].into_boxed_slice();
        for (bit, _) in self.heads.iter().filter(|(_, head)| holds(head)) {
            if let Some(word) = bits.get_mut(bit / 64) {
                *word |= 1 << (bit % 64);
            }
        }
        bits
    }

    /// Calls `each` for every cell in the order of matching, with the cell's header rule, the index of its
    /// protocol and its heads. Returns the conditions on the client's port, by protocol.
    fn cells(&self, most: usize, mut each: impl FnMut(HeaderRule, usize, (Bits, Bits))) -> Vec<ClientPorts> {
        let versions = self.versions(PAIRS_MAX.min(most / PROTOCOLS.len()));
        let pairs: usize = versions.iter().map(|v| v.classes.len() * v.classes.len()).sum();
        let ports = PROTOCOLS.map(|p| self.ports(p, most / pairs.max(1) / PROTOCOLS.len()));
        let either_way = self.bits(|h| h.bidirectional);
        for version in &versions {
            let here = PROTOCOLS.map(|protocol| self.bits(|h| is_about(h, protocol, version.family)));
            // A network's class is right only for addresses outside smaller networks, so long prefixes come
            // first.
            let all = &version.classes;
            let mut pairs: Vec<_> = all.iter().flat_map(|a| all.iter().map(move |b| (a, b))).collect();
            pairs.sort_by_key(|(a, b)| core::cmp::Reverse(u16::from(a.net.length) + u16::from(b.net.length)));
            for (client, server) in pairs {
                for (place, ((protocol, ports), here)) in PROTOCOLS.iter().zip(&ports).zip(&here).enumerate()
                {
                    let pair = Pair { client, server, here, either_way: &either_way };
                    for (destination_ports, heads) in pair.runs(ports) {
                        let rule = HeaderRule {
                            tenant: self.tenant,
                            source: Some(client.net),
                            destination: Some(server.net),
                            protocol: Some(*protocol),
                            destination_ports,
                            ..HeaderRule::default()
                        };
                        each(rule, place, heads);
                    }
                }
            }
        }
        ports.iter().map(|ports| ClientPorts::new(ports, &either_way)).collect()
    }

    /// Address sets by the number of heads that name them, most heads first.
    fn address_sets(&self) -> Vec<&'h AddressSet> {
        let mut counts: HashMap<&AddressSet, usize> = HashMap::new();
        for (_, head) in &self.heads {
            for set in [&head.source, &head.destination].into_iter().flatten() {
                *counts.entry(set).or_default() += 1;
            }
        }
        let mut sets: Vec<_> = counts.into_iter().collect();
        // Ties have a stable order, so that each run gives the same groups.
        sets.sort_by_cached_key(|(set, count)| (core::cmp::Reverse(*count), set.to_string()));
        sets.into_iter().map(|(set, _)| set).take(SETS_TRIED).collect()
    }

    /// Classes of addresses from the sets that most heads name, as long as they make few pairs.
    fn versions(&self, most: usize) -> [FamilyClasses; 2] {
        let mut chosen: Vec<&AddressSet> = Vec::new();
        let pairs = |sets: &[&AddressSet]| {
            let (v4, v6) = (networks(sets, Family::V4).len(), networks(sets, Family::V6).len());
            v4 * v4 + v6 * v6
        };
        // A set of more ranges has more networks than the limit.
        let is_small = |set: &&AddressSet| set.v4.as_slice().len() + set.v6.as_slice().len() <= most;
        for set in self.address_sets().into_iter().filter(is_small) {
            chosen.push(set);
            if pairs(&chosen) > most {
                chosen.pop();
            }
        }
        [Family::V4, Family::V6].map(|family| {
            let nets = networks(&chosen, family);
            let classes = nets.iter().map(|net| {
                let address = only_in(*net, &nets);
                let may = |set: Option<&AddressSet>| match set {
                    None => true,
                    // A set that was not chosen may contain any address.
                    Some(set) => !chosen.contains(&set) || address.is_none_or(|a| set.contains(a)),
                };
                AddressClass {
                    net: *net,
                    source: self.bits(|h| may(h.source.as_deref())),
                    destination: self.bits(|h| may(h.destination.as_deref())),
                }
            });
            FamilyClasses { family, classes: classes.collect() }
        })
    }

    /// Server ports between the bounds that heads of a protocol name; neighbours are joined until at most
    /// `most` classes are left.
    fn ports(&self, protocol: u8, most: usize) -> Vec<PortClass> {
        let concerned = |h: &RuleHead| h.protocols.is_empty() || h.protocols.contains(&protocol);
        let mut starts = vec![0u16];
        for (_, head) in self.heads.iter().filter(|(_, h)| concerned(h)) {
            for set in [&head.source_ports, &head.destination_ports].into_iter().flatten() {
                starts
                    .extend(set.as_slice().iter().flat_map(|(a, b)| [Some(*a), b.checked_add(1)]).flatten());
            }
        }
        starts.sort_unstable();
        starts.dedup();
        let step = starts.len().div_ceil(most.max(1)).max(1);
        let starts: Vec<u16> = starts.into_iter().step_by(step).collect();
        let end = |i: usize| starts.get(i + 1).map_or(u16::MAX, |next| next - 1);
        let new = |(i, first): (usize, &u16)| PortClass {
            ports: Range { first: *first, last: end(i) },
            source: vec![0; self.words].into_boxed_slice(),
            destination: vec![0; self.words].into_boxed_slice(),
        };
        let mut classes: Vec<PortClass> = starts.iter().enumerate().map(new).collect();
        // Ports are marked head by head: most heads name a single port.
        let set_bits = |classes: &mut [PortClass], set: Option<&PortSet>, bit: usize, side: HeadSide| {
            let all = [(0, u16::MAX)];
            for (first, last) in set.map_or(all.as_slice(), PortSet::as_slice) {
                let from = classes.partition_point(|c| c.ports.last < *first);
                for class in classes.iter_mut().skip(from).take_while(|c| c.ports.first <= *last) {
                    let bits = match side {
                        HeadSide::Source => &mut class.source,
                        HeadSide::Destination => &mut class.destination,
                    };
                    if let Some(word) = bits.get_mut(bit / 64) {
                        *word |= 1 << (bit % 64);
                    }
                }
            }
        };
        for (bit, head) in &self.heads {
            set_bits(&mut classes, head.source_ports.as_deref(), *bit, HeadSide::Source);
            set_bits(&mut classes, head.destination_ports.as_deref(), *bit, HeadSide::Destination);
        }
        classes
    }
}

#[derive(Clone, Copy)]
enum HeadSide {
    Source,
    Destination,
}

/// Whether a head applies to packets of a protocol and IP version.
fn is_about(head: &RuleHead, protocol: u8, family: Family) -> bool {
    (head.protocols.is_empty() || head.protocols.contains(&protocol))
        && (head.family == Family::Any || head.family == family)
}

/// Address classes of client and server, and the heads for packets of a protocol between them.
struct Pair<'c> {
    client: &'c AddressClass,
    server: &'c AddressClass,
    here: &'c Bits,
    either_way: &'c Bits,
}

impl Pair<'_> {
    /// Ranges of server ports with the heads that packets to the server and to the client meet; neighbours
    /// with equal heads are joined.
    fn runs(&self, ports: &[PortClass]) -> Vec<(Range, (Bits, Bits))> {
        let mut runs: Vec<(Range, (Bits, Bits))> = Vec::new();
        for class in ports {
            let heads = (self.heads(class, Direction::ToServer), self.heads(class, Direction::ToClient));
            match runs.last_mut() {
                Some((range, of_run)) if *of_run == heads => range.last = class.ports.last,
                _ => runs.push((class.ports, heads)),
            }
        }
        runs
    }

    /// The heads that packets in a direction meet, as written or, for bidirectional heads, turned round.
    fn heads(&self, ports: &PortClass, direction: Direction) -> Bits {
        let at = |bits: &Bits, word: usize| bits.get(word).copied().unwrap_or(0);
        // For a head whose source is the client, the server's ports are the destination ports.
        let from_client =
            |w| at(&self.client.source, w) & at(&self.server.destination, w) & at(&ports.destination, w);
        let from_server =
            |w| at(&self.server.source, w) & at(&self.client.destination, w) & at(&ports.source, w);
        let word = |(w, (here, either)): (usize, (&u64, &u64))| {
            let (straight, turned) = match direction {
                Direction::ToServer => (from_client(w), from_server(w)),
                Direction::ToClient => (from_server(w), from_client(w)),
            };
            here & (straight | either & turned)
        };
        self.here.iter().zip(self.either_way).enumerate().map(word).collect()
    }
}

impl ClientPorts {
    /// Conditions of heads on the client's port: source ports to the server, destination ports to the client,
    /// and either for a bidirectional rule.
    fn new(ports: &[PortClass], either_way: &Bits) -> Self {
        let mut clients = ClientPorts::default();
        for class in ports {
            let bits = |one: &Bits, other: &Bits| -> Bits {
                one.iter()
                    .zip(other)
                    .zip(either_way)
                    .map(|((one, other), either)| one | either & other)
                    .collect()
            };
            let (source, destination) = (&class.source, &class.destination);
            let heads = PerDirection::new(bits(source, destination), bits(destination, source));
            match (clients.ends.last_mut(), clients.classes.last()) {
                (Some(end), Some(last)) if *last == heads => *end = class.ports.last,
                _ => {
                    clients.ends.push(class.ports.last);
                    clients.classes.push(heads);
                }
            }
        }
        clients
    }
}

/// Networks that represent address sets, the network of all addresses included: a set has all or none of a
/// network's addresses outside smaller networks.
fn networks(sets: &[&AddressSet], family: Family) -> Vec<Net> {
    let v4 = family == Family::V4;
    let mut nets = vec![net(0, 0, v4)];
    for set in sets {
        let ranges: Vec<(u128, u128)> = match v4 {
            true => set.v4.as_slice().iter().map(|(a, b)| ((*a).into(), (*b).into())).collect(),
            false => set.v6.as_slice().to_vec(),
        };
        let around = cover(&ranges, NumberPrefix { number: 0, length: 0 }, if v4 { 32 } else { 128 });
        let fewest = around.into_iter().min_by_key(Vec::len).unwrap_or_default();
        nets.extend(fewest.into_iter().map(|prefix| net(prefix.number, prefix.length, v4)));
    }
    nets.sort_unstable_by_key(|net| (net.length, net.address));
    nets.dedup();
    nets
}

/// A prefix of an address as a number.
#[derive(Clone, Copy)]
struct NumberPrefix {
    number: u128,
    length: u8,
}

/// The fewest prefixes inside `prefix` that separate addresses in the ranges from all others
/// by longest match: first for surroundings outside of the ranges, then for surroundings inside.
fn cover(ranges: &[(u128, u128)], prefix: NumberPrefix, bits: u8) -> [Vec<NumberPrefix>; 2] {
    let NumberPrefix { number: first, length } = prefix;
    let last = first | u128::MAX.checked_shr(128 - u32::from(bits - length)).unwrap_or(0);
    let from = ranges.partition_point(|(_, end)| *end < first);
    match ranges.get(from) {
        Some((start, end)) if *start <= first && last <= *end => return [vec![prefix], Vec::new()],
        Some((start, _)) if *start <= last => {}
        _ => return [Vec::new(), vec![prefix]],
    }
    let half = 1u128.checked_shl(u32::from(bits - length - 1)).unwrap_or(0);
    let inner = |number| cover(ranges, NumberPrefix { number, length: length + 1 }, bits);
    let mut both = inner(first);
    for (all, more) in both.iter_mut().zip(inner(first | half)) {
        all.extend(more);
    }
    // Alternatively this prefix inverts its surroundings.
    let [out, inside] = &both;
    let turned = |other: &[NumberPrefix]| [prefix].into_iter().chain(other.iter().copied()).collect();
    match out.len().cmp(&inside.len()) {
        Ordering::Less => [out.clone(), turned(out)],
        Ordering::Greater => [turned(inside), inside.clone()],
        Ordering::Equal => both,
    }
}

/// An address of a network outside all smaller networks; `None` if they cover all of it.
fn only_in(net: Net, nets: &[Net]) -> Option<IpAddr> {
    let inside = || nets.iter().filter(|n| n.length > net.length && net.contains(n.address));
    let behind = inside().filter_map(|n| match n.address {
        IpAddr::V4(a) => {
            let last = u32::from(a) | u32::MAX.checked_shr(n.length.into()).unwrap_or(0);
            Some(IpAddr::V4(last.checked_add(1)?.into()))
        }
        IpAddr::V6(a) => {
            let last = u128::from(a) | u128::MAX.checked_shr(n.length.into()).unwrap_or(0);
            Some(IpAddr::V6(last.checked_add(1)?.into()))
        }
    });
    // Gaps begin at the network's first address or after a smaller network.
    [net.address].into_iter().chain(behind).find(|a| net.contains(*a) && !inside().any(|n| n.contains(*a)))
}

fn net(number: u128, length: u8, v4: bool) -> Net {
    let address = match v4 {
        true => IpAddr::V4(Ipv4Addr::from(number as u32)),
        false => IpAddr::V6(Ipv6Addr::from(number)),
    };
    Net { address, length }
}
