// SPDX-License-Identifier: Apache-2.0
//! Entries of the device's classifier: header rules as keys with masks.
//!
//! A mask says which bits count, so networks and protocols are one entry; a range of ports is as many entries
//! as aligned blocks make it up, at most 30, and a rule has the product of both ranges' (the *expansion*).
//! Every header that a rule matches is matched by exactly one of its entries.

use bartizan_classify::{HeaderRule, Net, Range};

/// Bytes of the longest key: a bit for the version, then the fields.
pub const KEY_BYTES: usize = 41;

/// The fields of the key, by whether the device reads IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyLayout {
    /// Addresses of 32 bits; 128 bits in all.
    V4,
    /// A bit that is set for IPv6, then addresses of 128 bits, IPv4 in the lowest; 321 bits in all.
    Both,
}

impl KeyLayout {
    /// Number of bits.
    #[must_use]
    pub const fn bits(self) -> usize {
        match self {
            KeyLayout::V4 => 128,
            KeyLayout::Both => 321,
        }
    }
}

/// A key with the bits that count. Bits are in the order of the hardware's key, the highest first; the first
/// bit is the highest one of the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TernaryEntry {
    key: [u8; KEY_BYTES],
    mask: [u8; KEY_BYTES],
}

/// Writes fields one after the other.
struct EntryWriter {
    entry: TernaryEntry,
    at: usize,
}

impl EntryWriter {
    /// Appends the lowest `bits` of a value and of its mask.
    fn push(&mut self, value: u128, mask: u128, bits: usize) {
        for bit in (0..bits).rev() {
            let (byte, shift) = (self.at / 8, 7 - self.at % 8);
            let of = |number: u128| ((number >> bit & 1) as u8) << shift;
            for (field, number) in [(&mut self.entry.key, value & mask), (&mut self.entry.mask, mask)] {
                if let Some(place) = field.get_mut(byte) {
                    *place |= of(number);
                }
            }
            self.at += 1;
        }
    }
}

/// A range of ports as one aligned block: the value and the bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PortBlock {
    value: u16,
    mask: u16,
}

/// The aligned blocks of a range, the lowest first.
fn blocks(range: Range) -> Vec<PortBlock> {
    let mut out = Vec::new();
    let (mut at, last) = (u32::from(range.first), u32::from(range.last));
    while at <= last {
        let mut bits = at.trailing_zeros().min(16);
        while at + (1 << bits) - 1 > last {
            bits -= 1;
        }
        out.push(PortBlock { value: at as u16, mask: !((1u32 << bits) - 1) as u16 });
        at += 1 << bits;
    }
    out
}

/// An address field: its value and the bits that count.
#[derive(Clone, Copy, Debug, Default)]
struct AddressField {
    value: u128,
    mask: u128,
}

fn address(net: Option<Net>) -> AddressField {
    let Some(net) = net else { return AddressField::default() };
    let (_, first, last) = net.range();
    // Of IPv4 all bits above the address are zero in the key, and count.
    AddressField { value: first, mask: !(first ^ last) }
}

impl TernaryEntry {
    /// The entries of a rule; none if the device meets no header that it matches: of a version that the
    /// device does not read, a link or a tenant beyond its fields, a condition on names.
    #[must_use]
    pub fn of(rule: &HeaderRule, layout: KeyLayout) -> Vec<TernaryEntry> {
        let versions = [rule.source, rule.destination].map(|net| net.map(|net| net.address.is_ipv6()));
        let version = match versions {
            [Some(a), Some(b)] if a != b => return Vec::new(),
            [a, b] => a.or(b),
        };
        if rule.is_named() || (version == Some(true) && layout == KeyLayout::V4) {
            return Vec::new();
        }
        // The ingress port's upper seven bits.
        let link = match rule.link.map(|link| link.0) {
            Some(link) if link > 0x7f => return Vec::new(),
            link => {
                AddressField { value: link.unwrap_or(0).into(), mask: if link.is_some() { 0xff } else { 0 } }
            }
        };
        let mut out = Vec::new();
        for source_port in blocks(rule.source_ports) {
            for destination_port in blocks(rule.destination_ports) {
                let empty = TernaryEntry { key: [0; KEY_BYTES], mask: [0; KEY_BYTES] };
                let mut writer = EntryWriter { entry: empty, at: 0 };
                let bits = match layout {
                    KeyLayout::V4 => 32,
                    KeyLayout::Both => {
                        writer.push(u128::from(version == Some(true)), u128::from(version.is_some()), 1);
                        128
                    }
                };
                for field in [address(rule.source), address(rule.destination)] {
                    writer.push(field.value, field.mask, bits);
                }
                for block in [source_port, destination_port] {
                    writer.push(block.value.into(), block.mask.into(), 16);
                }
                let protocol = rule.protocol;
                writer.push(protocol.unwrap_or(0).into(), if protocol.is_some() { 0xff } else { 0 }, 8);
                writer.push(link.value, link.mask, 8);
                let tenant = rule.tenant.map(|tenant| tenant.0);
                writer.push(tenant.unwrap_or(0).into(), if tenant.is_some() { 0xffff } else { 0 }, 16);
                out.push(writer.entry);
            }
        }
        out
    }

    /// The number of entries of a rule.
    #[must_use]
    pub fn expansion(rule: &HeaderRule) -> usize {
        blocks(rule.source_ports).len() * blocks(rule.destination_ports).len()
    }

    /// Key and mask of a stride, with zeros behind the key's last bit.
    pub(crate) fn stride(&self, stride: usize, bits: usize) -> (u16, u16) {
        let of = |field: &[u8; KEY_BYTES]| {
            (stride * bits..(stride + 1) * bits).fold(0, |number: u16, bit| {
                let byte = field.get(bit / 8).copied().unwrap_or(0);
                number << 1 | u16::from(byte >> (7 - bit % 8) & 1)
            })
        };
        (of(&self.key), of(&self.mask))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_base::TenantId;

    #[test]
    fn a_range_is_covered_once_by_its_blocks() {
        for range in [
            Range::ANY,
            Range::one(80),
            Range { first: 1, last: 65_534 },
            Range { first: 1024, last: 65_535 },
            Range { first: 5, last: 77 },
        ] {
            let blocks = blocks(range);
            for port in 0..=u16::MAX {
                let covering = blocks.iter().filter(|block| port & block.mask == block.value).count();
                assert_eq!(covering, usize::from(range.contains(port)), "{range:?} {port}");
            }
        }
        assert_eq!(blocks(Range { first: 1, last: 65_534 }).len(), 30);
    }

    #[test]
    fn fields_lie_in_the_order_of_the_key() {
        let rule = HeaderRule {
            tenant: Some(TenantId(0x1234)),
            source: Some(Net { address: "192.0.2.1".parse().unwrap(), length: 24 }),
            protocol: Some(6),
            source_ports: Range::one(0x0102),
            destination_ports: Range::one(0x0304),
            ..HeaderRule::default()
        };
        let entries = TernaryEntry::of(&rule, KeyLayout::V4);
        assert_eq!(entries.len(), 1);
        let entry = entries[0];
        assert_eq!(entry.key[..16], [192, 0, 2, 0, 0, 0, 0, 0, 1, 2, 3, 4, 6, 0, 0x12, 0x34]);
        assert_eq!(entry.mask[..16], [255, 255, 255, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 0, 255, 255]);
        assert_eq!(entry.stride(0, 4), (12, 15));
        assert_eq!(entry.stride(1, 9), (0, 0x1ff));
        // The last stride of nine bits has seven bits behind the key.
        assert_eq!(entry.stride(14, 9), (0b00 << 7, 0b11 << 7));
        let both = TernaryEntry::of(&rule, KeyLayout::Both);
        assert_eq!(both[0].mask[0] >> 7, 1, "the version counts");
        assert_eq!(both[0].key[0] >> 7, 0);
    }

    #[test]
    fn what_the_device_cannot_meet_has_no_entry() {
        let v6 = Net { address: "2001:db8::".parse().unwrap(), length: 32 };
        let rule = HeaderRule { source: Some(v6), ..HeaderRule::default() };
        assert!(TernaryEntry::of(&rule, KeyLayout::V4).is_empty());
        assert_eq!(TernaryEntry::of(&rule, KeyLayout::Both).len(), 1);
        let far = HeaderRule { link: Some(bartizan_base::LinkId(128)), ..HeaderRule::default() };
        assert!(TernaryEntry::of(&far, KeyLayout::Both).is_empty());
    }
}
