// SPDX-License-Identifier: Apache-2.0
//! The driver of the device's tables, over a bus that reaches its registers.
//!
//! **Under traffic.** The logic reads all rows of a lookup, and all flags of entries, at one clock edge, and
//! answers a write of flags when no lookup is under way that met the flags before. So an entry is changed in
//! this order: flag off, class and path and rows, flag on. A packet meets the entry as it was, not at all, or
//! as it is. Outcomes are written before an entry names them, and changed only while no valid entry does.

use crate::entries::{KeyLayout, TernaryEntry};
use crate::flows::FlowPlaces;
use crate::registers::{self as map, DISPOSITION_DROP, FrameDisposition};
use bartizan_base::{Fid, Path, Reason};
use bartizan_packet::tables::RuleEntry;
use bartizan_packet::{DecoderConfig, VxlanReservedBits};

/// The device answered with an error, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// The address is not in the device's map, or is not written by words.
    #[error("the device refuses address {0:#08x}: it is not in its map")]
    Refused(u32),
    /// No answer.
    #[error("the device does not answer at address {0:#08x}: it hangs or is not clocked; reset it")]
    Silent(u32),
}

/// A way to the registers of a device.
pub trait RegisterBus {
    /// Writes a word.
    ///
    /// # Errors
    /// The device refuses the address, or does not answer.
    fn write(&mut self, address: u32, word: u32) -> Result<(), BusError>;

    /// Reads a word.
    ///
    /// # Errors
    /// The device refuses the address, or does not answer.
    fn read(&mut self, address: u32) -> Result<u32, BusError>;
}

/// The reason why the driver could not carry out a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// See [`BusError`].
    #[error(transparent)]
    Bus(#[from] BusError),
    /// Another device, or another version of the map.
    #[error(
        "identity {id:#010x}, version {version}: this driver knows version 2 of 0x425a5254; load the logic that belongs to this program"
    )]
    Unknown {
        /// Its identity register.
        id: u32,
        /// Its version register.
        version: u32,
    },
    /// A place beyond a table.
    #[error("place {place} of a table of {places}: ask for a place below, or let the host keep the rule")]
    NoPlace {
        /// The place.
        place: usize,
        /// The places that there are.
        places: usize,
    },
    /// A counter that is not at its outcome's place.
    #[error("outcome {place} counts at place {counter}: the device counts at the outcome's own place")]
    Counter {
        /// The place of the outcome.
        place: usize,
        /// The place of its counter.
        counter: u32,
    },
    /// The key has an entry in the flow cache.
    #[error("the flow cache has an entry of this key: take it away first")]
    FlowExists,
    /// The bucket of a key is full.
    #[error("the flow's bucket in the flow cache is full: its packets go up until another flow of it leaves")]
    BucketFull,
    /// A key of IPv6.
    #[error("the logic was made without IPv6: such flows stay at the host")]
    Family,
    /// The decoder looks for tunnels on more ports.
    #[error(
        "the decoder looks for tunnels on any port, or on more than four ports beside VXLAN's: the device cannot tell such datagrams from others; name the ports (`decoder.teredo.ports` and the like), or use another level"
    )]
    Tunnels,
    /// The card's thread has ended.
    #[error("the card's thread has ended after an error of its own: start the program again")]
    Gone,
    /// The card's thread cannot be started.
    #[error("no thread can be started for the card: the system has no more; end other programs")]
    NoThread,
}

/// Configuration of the logic, from its capability registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogicCapabilities {
    /// Bytes of a beat.
    pub beat: usize,
    /// Bits of a stride.
    pub stride: usize,
    /// Entries of the classifier, and outcomes.
    pub entries: usize,
    /// Whether it reads IPv6.
    pub ipv6: bool,
    /// Entries of the tenant table.
    pub tenants: usize,
}

impl LogicCapabilities {
    /// The layout of its keys.
    #[must_use]
    pub const fn layout(&self) -> KeyLayout {
        if self.ipv6 { KeyLayout::Both } else { KeyLayout::V4 }
    }

    const fn strides(&self) -> usize {
        self.layout().bits().div_ceil(self.stride)
    }

    const fn words(&self) -> usize {
        self.entries / 32
    }
}

/// Result of an entry of the classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryClass {
    /// Flow class.
    pub fid: Fid,
    /// Functions that its packets visit.
    pub path: Path,
    /// Low 8 bits of the generation.
    pub generation: u8,
    /// Place of the rule's outcome.
    pub outcome: u16,
}

/// A selector of the tenant table; an absent condition selects every packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantEntry {
    /// VXLAN network around the packet.
    pub vni: Option<u32>,
    /// A VLAN of the packet.
    pub vlan: Option<u16>,
    /// Link.
    pub link: Option<u8>,
    /// The tenant.
    pub tenant: u16,
}

/// The driver, with its copy of the rows.
#[derive(Debug)]
pub struct TableDriver<B> {
    pub(crate) bus: B,
    capabilities: LogicCapabilities,
    /// By stride, value and word.
    rows: Vec<u32>,
    flags: Vec<u32>,
    pub(crate) flows: FlowPlaces,
}

impl<B: RegisterBus> TableDriver<B> {
    /// Recognises the device and makes its tables empty. It is left disabled: every frame goes up. `seed`: of
    /// the flow cache's hash; it must stay secret.
    ///
    /// # Errors
    /// The bus fails, or the device is another one.
    pub fn new(mut bus: B, seed: u64) -> Result<Self, DriverError> {
        let (id, version) = (bus.read(map::ID)?, bus.read(map::VERSION)?);
        if id != map::ID_VALUE || version != map::VERSION_VALUE {
            return Err(DriverError::Unknown { id, version });
        }
        let [beat, stride, low, high] = bus.read(map::CAPABILITY)?.to_le_bytes();
        let more = bus.read(map::CAPABILITY_MORE)?;
        let capabilities = LogicCapabilities {
            beat: beat.into(),
            stride: stride.into(),
            entries: u16::from_le_bytes([low, high]).into(),
            ipv6: more & 1 != 0,
            tenants: (more >> 8 & 0xff) as usize,
        };
        bus.write(map::CONTROL, 0)?;
        let words = capabilities.words();
        for word in 0..words {
            bus.write(map::VALID_BASE + 4 * word as u32, 0)?;
        }
        let count = capabilities.strides() * (1 << capabilities.stride) * words;
        let (rows, flags) = (vec![0; count], vec![0; words]);
        let mut driver = TableDriver { bus, capabilities, rows, flags, flows: FlowPlaces::default() };
        driver.begin_flows(seed)?;
        // What memory holds after power-on is not defined: the copy and the device begin equal.
        for at in 0..count {
            driver.write_row(at)?;
        }
        for entry in 0..capabilities.tenants {
            driver.set_tenant(entry, None)?;
        }
        Ok(driver)
    }

    /// Configuration of the logic.
    #[must_use]
    pub const fn capabilities(&self) -> &LogicCapabilities {
        &self.capabilities
    }

    /// The bus.
    pub const fn bus(&mut self) -> &mut B {
        &mut self.bus
    }

    /// Lets the device decide packets, or has every frame go up.
    ///
    /// # Errors
    /// The bus fails.
    pub fn enable(&mut self, enabled: bool) -> Result<(), DriverError> {
        // The first write is answered when packets that met tables before have their verdict.
        self.bus.write(map::CONTROL, 0)?;
        Ok(self.bus.write(map::CONTROL, enabled.into())?)
    }

    /// Drops the frames inside, counted as lost by the reset, and waits until none is left. Tables stay.
    ///
    /// # Errors
    /// The bus fails, or frames do not leave within `polls` looks.
    pub fn reset(&mut self, enabled: bool, polls: usize) -> Result<(), DriverError> {
        self.bus.write(map::CONTROL, 2 | u32::from(enabled))?;
        for _ in 0..polls {
            if self.bus.read(map::CONTROL)? & 2 == 0 {
                return Ok(());
            }
        }
        Err(BusError::Silent(map::CONTROL).into())
    }

    /// Sets the low 8 bits of the generation: packets whose entries are of another one go up.
    ///
    /// # Errors
    /// The bus fails.
    pub fn set_generation(&mut self, generation: u8) -> Result<(), DriverError> {
        Ok(self.bus.write(map::GENERATION, generation.into())?)
    }

    /// Sets the UDP ports of tunnels: VXLAN's, and at most four of tunnels that only the host reads.
    ///
    /// # Errors
    /// The bus fails.
    pub fn set_tunnel_ports(&mut self, vxlan: u16, others: [u16; 4]) -> Result<(), DriverError> {
        let [a, b, c, d] = others.map(u32::from);
        self.bus.write(map::TUNNEL_PORTS_LOW, a | b << 16)?;
        self.bus.write(map::TUNNEL_PORTS_HIGH, c | d << 16)?;
        Ok(self.bus.write(map::VXLAN_PORT, vxlan.into())?)
    }

    /// Sets the ports of the tunnels that the host's decoder reads. The device looks into VXLAN on one port;
    /// datagrams of other tunnels, and VXLAN that is read in another way, go up.
    ///
    /// # Errors
    /// The bus fails, or there are more ports than the device compares.
    pub fn set_tunnels(&mut self, config: &DecoderConfig) -> Result<(), DriverError> {
        let DecoderConfig { teredo, vxlan, vxlan_reserved, geneve, gtp, .. } = config;
        let (own, others) = match vxlan.ports.listed() {
            [port] if *vxlan_reserved == VxlanReservedBits::Permissive => (*port, vec![teredo, geneve, gtp]),
            _ => (0, vec![teredo, geneve, gtp, vxlan]),
        };
        let mut ports = [0; 4];
        let mut free = ports.iter_mut();
        for tunnel in others.into_iter().filter(|tunnel| tunnel.enabled) {
            if tunnel.ports.is_any() {
                return Err(DriverError::Tunnels);
            }
            for port in tunnel.ports.listed() {
                *free.next().ok_or(DriverError::Tunnels)? = *port;
            }
        }
        self.set_tunnel_ports(if vxlan.enabled { own } else { 0 }, ports)
    }

    /// Sets the path bits of the packet filter and of the stateful firewall. A device without such a bit does
    /// not judge packets with it on their path: without a function, give a bit that no path has.
    ///
    /// # Errors
    /// The bus fails.
    pub fn set_function_bits(&mut self, pfw: u8, sfw: u8) -> Result<(), DriverError> {
        Ok(self.bus.write(map::FUNCTION_BITS, u32::from(pfw & 31) | u32::from(sfw & 31) << 8)?)
    }

    /// Writes a selector of the tenant table, or makes its place empty. The device must not be enabled.
    ///
    /// # Errors
    /// The bus fails, or there is no such place.
    pub fn set_tenant(&mut self, place: usize, entry: Option<TenantEntry>) -> Result<(), DriverError> {
        check(place, self.capabilities.tenants)?;
        let at = map::TENANT_BASE + 16 * place as u32;
        let TenantEntry { vni, vlan, link, tenant } = entry.unwrap_or_default();
        let flag = |is: bool, bit: u32| u32::from(is) << bit;
        self.bus.write(at + 4, u32::from(vlan.unwrap_or(0) & 0xfff) << 16 | u32::from(tenant))?;
        self.bus.write(at + 8, link.unwrap_or(0).into())?;
        let conditions = flag(vni.is_some(), 30) | flag(vlan.is_some(), 29) | flag(link.is_some(), 28);
        let word = flag(entry.is_some(), 31) | conditions | vni.unwrap_or(0) & 0xff_ffff;
        Ok(self.bus.write(at, word)?)
    }

    /// Writes the outcome of a rule. No valid entry may name it meanwhile.
    ///
    /// # Errors
    /// The bus fails, there is no such place, or the outcome's counter is at another one.
    pub fn set_outcome(&mut self, place: usize, outcome: &RuleEntry) -> Result<(), DriverError> {
        check(place, self.capabilities.entries)?;
        if outcome.counter as usize != place {
            return Err(DriverError::Counter { place, counter: outcome.counter });
        }
        let at = map::OUTCOME_BASE + 16 * place as u32;
        let bytes = outcome.write();
        let word = |n: usize| {
            bytes.get(4 * n..).and_then(|rest| rest.first_chunk()).map_or(0, |w| u32::from_le_bytes(*w))
        };
        self.bus.write(at + 12, word(3))?;
        Ok(self.bus.write(at + 8, word(2))?)
    }

    /// Writes an entry of the classifier under traffic. Of entries that match, the lowest place decides.
    ///
    /// # Errors
    /// The bus fails, or there is no such place.
    pub fn set_entry(
        &mut self,
        place: usize,
        entry: TernaryEntry,
        class: EntryClass,
    ) -> Result<(), DriverError> {
        self.clear_entry(place)?;
        let at = map::ENTRY_BASE + 16 * place as u32;
        self.bus.write(at, class.fid.0)?;
        self.bus.write(at + 4, class.path.0)?;
        self.bus.write(at + 8, u32::from(class.generation) << 10 | u32::from(class.outcome & 0x3ff))?;
        self.write_rows(place, entry)?;
        self.write_flag(place, true)
    }

    /// Removes an entry. When this returns, no packet in the pipeline has matched it.
    ///
    /// # Errors
    /// The bus fails, or there is no such place.
    pub fn clear_entry(&mut self, place: usize) -> Result<(), DriverError> {
        check(place, self.capabilities.entries)?;
        if self.flags.get(place / 32).is_some_and(|flags| flags >> (place % 32) & 1 != 0) {
            self.write_flag(place, false)?;
        }
        Ok(())
    }

    fn write_flag(&mut self, place: usize, valid: bool) -> Result<(), DriverError> {
        let word = place / 32;
        let Some(flags) = self.flags.get_mut(word) else { return Ok(()) };
        *flags = *flags & !(1 << (place % 32)) | u32::from(valid) << (place % 32);
        let flags = *flags;
        Ok(self.bus.write(map::VALID_BASE + 4 * word as u32, flags)?)
    }

    /// Brings the rows to what `entry` needs at a place; words that have its bits already are not written.
    fn write_rows(&mut self, place: usize, entry: TernaryEntry) -> Result<(), DriverError> {
        let (bits, words) = (self.capabilities.stride, self.capabilities.words());
        for stride in 0..self.capabilities.strides() {
            let (key, mask) = entry.stride(stride, bits);
            for value in 0..1u16 << bits {
                let at = (stride * (1 << bits) + usize::from(value)) * words + place / 32;
                let Some(word) = self.rows.get_mut(at) else { continue };
                let bit = 1 << (place % 32);
                let new = if value & mask == key & mask { *word | bit } else { *word & !bit };
                if new != *word {
                    *word = new;
                    self.write_row(at)?;
                }
            }
        }
        Ok(())
    }

    fn write_row(&mut self, at: usize) -> Result<(), DriverError> {
        let words = self.capabilities.words();
        let (row, word) = (at / words, at % words);
        let (stride, value) = (row >> self.capabilities.stride, row & ((1 << self.capabilities.stride) - 1));
        let address = map::ROW_BASE | (stride << 16 | value << 7 | word << 2) as u32;
        let content = self.rows.get(at).copied().unwrap_or(0);
        Ok(self.bus.write(address, content)?)
    }

    fn read_pair(&mut self, address: u32) -> Result<u64, DriverError> {
        let low = self.bus.read(address)?;
        let high = self.bus.read(address + 4)?;
        Ok(u64::from(high) << 32 | u64::from(low))
    }

    /// Frames that have begun since the device was started.
    ///
    /// # Errors
    /// The bus fails.
    pub fn frames(&mut self) -> Result<u64, DriverError> {
        self.read_pair(map::FRAMES_LOW)
    }

    /// Frames inside.
    ///
    /// # Errors
    /// The bus fails.
    pub fn inside(&mut self) -> Result<u32, DriverError> {
        Ok(self.bus.read(map::STATUS)? & 0xffff)
    }

    /// Frames that ended so.
    ///
    /// # Errors
    /// The bus fails.
    pub fn disposition(&mut self, disposition: FrameDisposition) -> Result<u64, DriverError> {
        self.read_pair(map::COUNT_BASE + 8 * disposition as u32)
    }

    /// Frames that were refused for a reason.
    ///
    /// # Errors
    /// The bus fails.
    pub fn refused(&mut self, reason: Reason) -> Result<u64, DriverError> {
        self.read_pair(map::COUNT_BASE + 8 * (u32::from(DISPOSITION_DROP) + reason as u32))
    }

    /// Packets that an outcome has decided on the device.
    ///
    /// # Errors
    /// The bus fails, or there is no such place.
    pub fn outcome_count(&mut self, place: usize) -> Result<u64, DriverError> {
        check(place, self.capabilities.entries)?;
        self.read_pair(map::RULE_COUNT_BASE + 8 * place as u32)
    }
}

const fn check(place: usize, places: usize) -> Result<(), DriverError> {
    if place < places { Ok(()) } else { Err(DriverError::NoPlace { place, places }) }
}
