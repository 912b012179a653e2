// SPDX-License-Identifier: Apache-2.0
//! The device's flow cache: keys, entries, numbers of connections and counts.
//!
//! The hash of a key names a bucket, and the driver chooses a place in it, so the logic never moves an entry.
//! The tables of the hash are drawn from a secret seed. An entry is written with its flag off and then with
//! it on; the device answers a write of the control word when no packet is under way that met the word before
//! (`hw/rtl/flow_cache.sv`).

use crate::driver::{DriverError, RegisterBus, TableDriver};
use crate::registers as map;
use bartizan_base::Reason;
use bartizan_flow::tcp::TcpState;
use bartizan_packet::TunnelKind;
use bartizan_packet::windows::{WindowSide, Windows};

/// Words of the longest key.
pub const CACHE_KEY_WORDS: usize = 12;

/// Bits of the key that choose a word of one table of the hash.
const CHUNK: usize = 5;

/// States of a connection, by number.
const STATES: [TcpState; 11] = [
    TcpState::None,
    TcpState::SynSent,
    TcpState::SynRecv,
    TcpState::Established,
    TcpState::FinWait1,
    TcpState::FinWait2,
    TcpState::TimeWait,
    TcpState::LastAck,
    TcpState::CloseWait,
    TcpState::Closing,
    TcpState::Closed,
];

/// A key of the flow cache, as the logic makes it from a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey([u32; CACHE_KEY_WORDS]);

impl CacheKey {
    /// The key of a flow from the words of its identity (`FlowKey::words` of crate flow). `None`: the logic
    /// makes no such key from any packet.
    #[must_use]
    pub const fn new(words: &[u64; 7]) -> Option<Self> {
        let [low_high, low, high_high, high, tunnel, ports, rest] = *words;
        let (link, level, flags) = (ports >> 48, rest >> 8 & 0xff, rest >> 16 & 0xff);
        let is_inside = tunnel >> 32 == TunnelKind::Vxlan as u64 && level == 1;
        let is_outside = tunnel == 0 && level == 0;
        // IPv6, and the side of the lower endpoint.
        let is_known = flags & !0b1_1001 == 0;
        // Three VLAN ids of 12 bits; the logic reads two.
        let vlans = rest >> 24;
        if link > 0x7f || !(is_inside || is_outside) || !is_known || vlans >> 24 != 0 {
            return None;
        }
        let (ipv6, first, second) = (flags & 1, flags >> 3 & 1, flags >> 4 & 1);
        let mut key = [0; CACHE_KEY_WORDS];
        key[0] = ports as u32;
        key[1] = (rest & 0xff | link << 8 | (is_inside as u64) << 15 | (ports >> 32 & 0xffff) << 16) as u32;
        key[2] = (tunnel & 0xff_ffff | ipv6 << 24 | first << 25 | second << 26) as u32;
        key[3] = vlans as u32;
        [key[4], key[5], key[6], key[7]] =
            [low as u32, (low >> 32) as u32, low_high as u32, (low_high >> 32) as u32];
        [key[8], key[9], key[10], key[11]] =
            [high as u32, (high >> 32) as u32, high_high as u32, (high_high >> 32) as u32];
        Some(CacheKey(key))
    }

    /// Whether its addresses are of IPv6.
    #[must_use]
    pub const fn is_ipv6(&self) -> bool {
        self.0[2] >> 24 & 1 != 0
    }

    /// Its words in a device, which reads IPv6 or has room for IPv4 only.
    fn words(&self, ipv6: bool) -> impl Iterator<Item = u32> {
        let [a, b, c, d, low, l1, l2, l3, high, h1, h2, h3] = self.0;
        let (long, short) = ([a, b, c, d, low, l1, l2, l3, high, h1, h2, h3], [a, b, c, d, low, high]);
        let (long, short) = if ipv6 { (Some(long), None) } else { (None, Some(short)) };
        long.into_iter().flatten().chain(short.into_iter().flatten())
    }
}

/// The handling of a flow's packets by its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryAction {
    /// They leave by the port across their link.
    Forward,
    /// They are dropped.
    Drop(Reason),
    /// They leave by this port.
    Redirect(u8),
}

/// The use of a flow's TCP window state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentCheck {
    /// None: of TCP, plain segments are handled.
    #[default]
    Nothing,
    /// The progress of both sides is noted.
    Note,
    /// Segments are compared with the numbers, which go forward.
    Compare,
}

/// The control word of an entry (`hw/rtl/flow_cache.sv`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryControl {
    /// It decides of the flow's packets. Otherwise it only serves the stateful firewall, if that is on a
    /// packet's path.
    pub decides: bool,
    /// The handling of the packets.
    pub action: EntryAction,
    /// The use of the flow's TCP window state.
    pub check: SegmentCheck,
    /// Only packets of the lower endpoint (`false`) or of the higher one; others go up.
    pub only_from: Option<bool>,
    /// Low 8 bits of the generation.
    pub generation: u8,
    /// The stateful firewall may change the state of the connection.
    pub follows: bool,
    /// The client is the higher endpoint.
    pub client_is_high: bool,
}

impl EntryControl {
    /// An entry that forwards.
    #[must_use]
    pub const fn forward(generation: u8) -> Self {
        EntryControl {
            decides: true,
            action: EntryAction::Forward,
            check: SegmentCheck::Nothing,
            only_from: None,
            generation,
            follows: false,
            client_is_high: false,
        }
    }

    const fn word(&self, valid: bool) -> u32 {
        let (action, reason, port) = match self.action {
            EntryAction::Forward => (0, 0, 0),
            EntryAction::Drop(reason) => (1, reason as u32, 0),
            EntryAction::Redirect(port) => (2, 0, port as u32),
        };
        let check = match self.check {
            SegmentCheck::Nothing => 0,
            SegmentCheck::Compare => 1,
            SegmentCheck::Note => 2,
        };
        let only = match self.only_from {
            None => 0,
            Some(false) => 1,
            Some(true) => 2,
        };
        valid as u32
            | (self.decides as u32) << 1
            | action << 2
            | check << 4
            | only << 6
            | (self.generation as u32) << 8
            | (reason & 63) << 16
            | port << 22
            | (self.follows as u32) << 30
            | (self.client_is_high as u32) << 31
    }
}

/// The TCP window state of a connection in its cache entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheNumbers {
    /// The windows of both endpoints.
    pub windows: Windows,
    /// State of the connection.
    pub state: TcpState,
    /// Whether progress of the lower endpoint and of the higher one was noted.
    pub noted: [bool; 2],
}

/// The counts of an entry, of packets of the lower endpoint and of the higher one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryCounts {
    /// Packets.
    pub packets: [u64; 2],
    /// Bytes of their frames.
    pub bytes: [u64; 2],
    /// The device's time of the latest packet, in nanoseconds.
    pub last_seen: [u64; 2],
}

/// The TCP window state and the counts of an entry before a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryReading {
    /// The TCP window state, without scales and the use of timestamps, which only the host keeps.
    pub numbers: CacheNumbers,
    /// The counts.
    pub counts: EntryCounts,
}

/// A command for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum FlowCommand {
    Load = 1,
    Publish = 2,
    Read = 3,
}

/// The driver's copy of the flow cache.
#[derive(Debug, Default)]
pub(crate) struct FlowPlaces {
    /// Entries of a bucket.
    ways: usize,
    /// By chunk of the key and value.
    hash: Vec<u32>,
    keys: Vec<Option<CacheKey>>,
}

/// The next number of a generator (splitmix64; Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators", 2014).
const fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut number = *state;
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

impl FlowPlaces {
    fn buckets(&self) -> usize {
        self.keys.len().checked_div(self.ways).unwrap_or(0)
    }

    /// The bucket of a key.
    fn bucket(&self, key: &CacheKey, ipv6: bool) -> usize {
        let mut hash = 0;
        let (mut rest, mut bits, mut chunk) = (0u64, 0, 0);
        let mut join = |rest: u64, chunk: usize| {
            let at = chunk << CHUNK | (rest & ((1 << CHUNK) - 1)) as usize;
            hash ^= self.hash.get(at).copied().unwrap_or(0);
        };
        for word in key.words(ipv6) {
            rest |= u64::from(word) << bits;
            bits += 32;
            while bits >= CHUNK {
                join(rest, chunk);
                (rest, bits, chunk) = (rest >> CHUNK, bits - CHUNK, chunk + 1);
            }
        }
        if bits > 0 {
            join(rest, chunk);
        }
        hash as usize % self.buckets().max(1)
    }
}

impl<B: RegisterBus> TableDriver<B> {
    /// Draws the tables of the hash, and makes all entries invalid.
    pub(crate) fn begin_flows(&mut self, mut seed: u64) -> Result<(), DriverError> {
        let word = self.bus.read(map::CAPABILITY_FLOWS)?;
        let (flows, ways) = ((word & 0xffff) as usize, (word >> 16 & 0xff) as usize);
        let words = if self.capabilities().ipv6 { CACHE_KEY_WORDS } else { 6 };
        let count = (32 * words).div_ceil(CHUNK) << CHUNK;
        let hash: Vec<u32> = (0..count).map(|_| next(&mut seed) as u32 & 0xffff).collect();
        for (at, number) in (0u32..).zip(&hash) {
            let (chunk, value) = (at >> CHUNK, at & 31);
            self.bus.write(map::FLOW_HASH_BASE | chunk << 7 | value << 2, *number)?;
        }
        for place in 0..flows {
            self.bus.write(control_address(place), 0)?;
        }
        self.flows = FlowPlaces { ways, hash, keys: vec![None; flows] };
        Ok(())
    }

    /// Number of entries of the flow cache.
    #[must_use]
    pub fn flow_entries(&self) -> usize {
        self.flows.keys.len()
    }

    /// Sets which fields keys have: the side of the link, VLAN ids. The flow cache must be empty.
    ///
    /// # Errors
    /// The bus fails.
    pub fn set_flow_keys(&mut self, sides: bool, vlans: bool) -> Result<(), DriverError> {
        Ok(self.bus.write(map::FLOW_KEYS, u32::from(sides) | u32::from(vlans) << 1)?)
    }

    /// Makes an entry, under traffic; returns its place.
    ///
    /// # Errors
    /// The bus fails, the key has an entry, its bucket has no room, or the device cannot hold the key.
    pub fn insert_flow(
        &mut self,
        key: &CacheKey,
        control: &EntryControl,
        numbers: &CacheNumbers,
    ) -> Result<usize, DriverError> {
        let ipv6 = self.capabilities().ipv6;
        if key.is_ipv6() && !ipv6 {
            return Err(DriverError::Family);
        }
        let first = self.flows.bucket(key, ipv6) * self.flows.ways;
        let places = first..first + self.flows.ways;
        let keys = self.flows.keys.get(places.clone()).unwrap_or_default();
        if keys.contains(&Some(*key)) {
            return Err(DriverError::FlowExists);
        }
        let Some((place, _)) = places.zip(keys).find(|(_, key)| key.is_none()) else {
            return Err(DriverError::BucketFull);
        };
        for (word, content) in (0u32..).zip(key.words(ipv6)) {
            self.bus.write(map::FLOW_BASE | (place as u32) << 6 | word << 2, content)?;
        }
        self.stage(numbers)?;
        self.command(FlowCommand::Load, place)?;
        self.bus.write(control_address(place), control.word(true))?;
        if let Some(slot) = self.flows.keys.get_mut(place) {
            *slot = Some(*key);
        }
        Ok(place)
    }

    /// Changes an entry's action under traffic: a packet reads the old word or the new one. When this
    /// returns, no packet in the pipeline has read the old one.
    ///
    /// # Errors
    /// The bus fails, or there is no such entry.
    pub fn set_flow(&mut self, place: usize, control: &EntryControl) -> Result<(), DriverError> {
        self.known(place)?;
        Ok(self.bus.write(control_address(place), control.word(true))?)
    }

    /// Has the packets of an entry's flow go up. When this returns all packets that had met it are counted.
    ///
    /// # Errors
    /// The bus fails, or there is no such entry.
    pub fn mark_flow(&mut self, place: usize) -> Result<(), DriverError> {
        self.known(place)?;
        Ok(self.bus.write(control_address(place), 0)?)
    }

    /// Removes an entry; returns its TCP window state and all that it has counted.
    ///
    /// # Errors
    /// The bus fails, or there is no such entry.
    pub fn remove_flow(&mut self, place: usize) -> Result<EntryReading, DriverError> {
        self.mark_flow(place)?;
        let reading = self.read_flow(place)?;
        if let Some(slot) = self.flows.keys.get_mut(place) {
            *slot = None;
        }
        Ok(reading)
    }

    /// Numbers and counts of an entry.
    ///
    /// # Errors
    /// The bus fails, or there is no such entry.
    pub fn read_flow(&mut self, place: usize) -> Result<EntryReading, DriverError> {
        self.known(place)?;
        self.command(FlowCommand::Read, place)?;
        let mut numbers = [0; 9];
        for (word, address) in numbers.iter_mut().zip((map::FLOW_NUMBERS..).step_by(4)) {
            *word = self.bus.read(address)?;
        }
        let mut counts = [0; 12];
        for (word, address) in counts.iter_mut().zip((map::FLOW_COUNTS..).step_by(4)) {
            *word = self.bus.read(address)?;
        }
        Ok(EntryReading { numbers: numbers_of(&numbers), counts: counts_of(&counts) })
    }

    /// Advances the TCP window state of an entry to `numbers`, none of which goes back, and sets its state.
    ///
    /// # Errors
    /// The bus fails, or there is no such entry.
    pub fn publish_flow(&mut self, place: usize, numbers: &CacheNumbers) -> Result<(), DriverError> {
        self.known(place)?;
        self.stage(numbers)?;
        self.command(FlowCommand::Publish, place)
    }

    /// Calls `each` for the entries that a packet has counted for since the last call.
    ///
    /// # Errors
    /// The bus fails.
    pub fn touched_flows(&mut self, each: &mut dyn FnMut(usize)) -> Result<(), DriverError> {
        for word in 0..self.flow_entries() / 32 {
            let mut bits = self.bus.read(map::FLOW_TOUCHED_BASE + 4 * word as u32)?;
            while bits != 0 {
                each(32 * word + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
        Ok(())
    }

    fn known(&self, place: usize) -> Result<(), DriverError> {
        let places = self.flow_entries();
        let is_there = self.flows.keys.get(place).is_some_and(Option::is_some);
        if is_there { Ok(()) } else { Err(DriverError::NoPlace { place, places }) }
    }

    fn stage(&mut self, numbers: &CacheNumbers) -> Result<(), DriverError> {
        let Windows { sides: [low, high], timestamps } = numbers.windows;
        let [noted_low, noted_high] = numbers.noted.map(u32::from);
        let scale = |side: WindowSide| u32::from(side.scale.min(14));
        let rules = u32::from(numbers.state as u8)
            | noted_low << 4
            | noted_high << 5
            | scale(low) << 8
            | scale(high) << 12
            | u32::from(timestamps) << 16;
        let words = [
            low.sent,
            low.timestamp,
            low.acknowledged,
            low.edge,
            high.sent,
            high.timestamp,
            high.acknowledged,
            high.edge,
            rules,
        ];
        for (word, address) in words.into_iter().zip((map::FLOW_NUMBERS..).step_by(4)) {
            self.bus.write(address, word)?;
        }
        Ok(())
    }

    fn command(&mut self, command: FlowCommand, place: usize) -> Result<(), DriverError> {
        Ok(self.bus.write(map::FLOW_COMMAND, (command as u32) << 28 | place as u32)?)
    }
}

const fn control_address(place: usize) -> u32 {
    map::FLOW_BASE | (place as u32) << 6 | 15 << 2
}

fn numbers_of(words: &[u32; 9]) -> CacheNumbers {
    let side = |[sent, timestamp, acknowledged, edge]: [u32; 4]| WindowSide {
        sent,
        timestamp,
        acknowledged,
        edge,
        scale: 0,
    };
    let [a, b, c, d, e, f, g, h, rules] = *words;
    let state = STATES.get((rules & 15) as usize).copied().unwrap_or_default();
    CacheNumbers {
        windows: Windows { sides: [side([a, b, c, d]), side([e, f, g, h])], timestamps: false },
        state,
        noted: [rules >> 4 & 1 != 0, rules >> 5 & 1 != 0],
    }
}

fn counts_of(words: &[u32; 12]) -> EntryCounts {
    let number = |at: usize| {
        let word = |at: usize| u64::from(words.get(at).copied().unwrap_or(0));
        word(at) | word(at + 1) << 32
    };
    EntryCounts {
        packets: [number(0), number(6)],
        bytes: [number(2), number(8)],
        last_seen: [number(4), number(10)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_in_the_order_of_their_numbers() {
        assert!(STATES.iter().enumerate().all(|(number, state)| *state as usize == number));
    }

    #[test]
    fn a_key_that_the_logic_makes_from_no_packet_is_refused() {
        let tunnel = |kind: TunnelKind, id: u64| (kind as u64) << 32 | id;
        let key = |tunnel, link: u64, rest| CacheKey::new(&[0, 1, 0, 2, tunnel, link << 48, rest]);
        assert!(key(0, 0x7f, 6).is_some());
        assert!(key(0, 0x80, 6).is_none(), "a link beyond the field");
        assert!(key(tunnel(TunnelKind::Vxlan, 9), 0, 6 | 1 << 8).is_some());
        assert!(key(tunnel(TunnelKind::Vxlan, 9), 0, 6 | 2 << 8).is_none(), "a tunnel in a tunnel");
        assert!(key(tunnel(TunnelKind::Geneve, 9), 0, 6 | 1 << 8).is_none(), "another tunnel");
        assert!(key(0, 0, 6 | 2 << 16).is_none(), "one direction");
        assert!(key(0, 0, 6 | 0xfff << 24 | 0xfff << 36).is_some());
        assert!(key(0, 0, 6 | 1 << 48).is_none(), "a third VLAN");
    }
}
