// SPDX-License-Identifier: Apache-2.0
//! Flows as bytes, for warm restart and migration.
//!
//! Little endian: version u8, length u16 of the rest, then the fields in the order in which they are written.
//! A later version may only append, so an older reader skips unknown fields; the data plane exports its own
//! extension.
//!
//! | version | contents |
//! |---|---|
//! | 1 | the flow; its amounts are those of the host, the only level at the time |
//! | 2 | also the [`Step`], and the counts of levels if the flow was ever offloaded |
//!
//! A stay at a level moves with the flow. The new table gives the stay a new name, which the device has to
//! learn: answers under the old name are not for the new table, whose own names may be equal. A removal
//! starts again with the mark. A flow that no level has confirmed yet is withdrawn once the level answers.

use super::{EndReason, FlowEntry, FlowFlags, FlowState};
use crate::key::{FlowHash, FlowKey};
use crate::level::{FlowLevelCounts, Levels, Step};
use bartizan_base::{Cursor, Direction, Fid, Generation, Level, Path, PerDirection, Timestamp};

/// The reason why an exported flow cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The record is shorter than its length field.
    #[error("flow record: truncated; export it again")]
    Short,
    /// The version is older than any that this program can read.
    #[error(
        "flow record: version {found} cannot be read; this program reads version 1 and later versions that only append"
    )]
    Version {
        /// The version byte found.
        found: u8,
    },
    /// A field holds a value that no flow can have.
    #[error("flow record: field {field} holds an impossible value; the record is damaged")]
    Field {
        /// The field's name.
        field: &'static str,
    },
}

const VERSION: u8 = 2;
/// The first version: the host was the only level.
const VERSION_HOST: u8 = 1;
/// Bytes of version 1 after version and length.
const LENGTH_V1: u16 = 7 * 8 + 1 + 6 * 8 + 3 * 4 + 2 + 8 + 8;
/// Bytes that version 2 appends for a flow that was never offloaded.
const LENGTH_STEP: u16 = 1;
/// Further bytes for a flow that was.
const LENGTH_LEVELS: u16 = 8 + 2 * 6 * 8 + 2 * 8 + 2 + 3;

const TURNED: u8 = 1;
const UNANSWERED: u8 = 2;
const UNLISTED: u8 = 4;

/// An imported flow that is in no table yet.
#[derive(Clone, Debug)]
pub struct ImportedFlow<E> {
    /// The flow.
    pub entry: FlowEntry<E>,
    pub(crate) levels: Option<Box<Levels>>,
}

/// Appends this crate's part of a flow in the current version.
pub(crate) fn write<E>(entry: &FlowEntry<E>, levels: Option<&Levels>, out: &mut Vec<u8>) {
    let appended = LENGTH_STEP + if levels.is_some() { LENGTH_LEVELS } else { 0 };
    out.push(VERSION);
    out.extend((LENGTH_V1 + appended).to_le_bytes());
    for word in entry.key.words() {
        out.extend(word.to_le_bytes());
    }
    out.push(u8::from(entry.key.is_reversed()));
    for number in [
        entry.last_seen.as_nanos(),
        entry.packets.to_server,
        entry.packets.to_client,
        entry.bytes.to_server,
        entry.bytes.to_client,
        entry.start.as_nanos(),
    ] {
        out.extend(number.to_le_bytes());
    }
    for number in [entry.path.0, entry.fid.0, entry.flags.bits()] {
        out.extend(number.to_le_bytes());
    }
    out.extend([entry.state as u8, entry.level as u8]);
    out.extend(entry.generation.0.to_le_bytes());
    out.extend(entry.serial.to_le_bytes());
    out.push(entry.step as u8);
    let Some(levels) = levels else { return };
    out.extend(levels.host_seen.as_nanos().to_le_bytes());
    for FlowLevelCounts { packets, bytes, last_seen } in levels.counted {
        for direction in Direction::BOTH {
            for number in [packets[direction], bytes[direction], last_seen[direction].as_nanos()] {
                out.extend(number.to_le_bytes());
            }
        }
    }
    out.extend(levels.generation.0.to_le_bytes());
    out.extend(levels.since.as_nanos().to_le_bytes());
    out.extend(levels.turn.to_le_bytes());
    let marks = [(levels.turned, TURNED), (levels.unanswered, UNANSWERED), (levels.unlisted, UNLISTED)]
        .iter()
        .fold(0, |marks, (is, mark)| if *is { marks | mark } else { marks });
    out.extend([levels.level as u8, levels.ending.map_or(0, |reason| reason as u8 + 1), marks]);
}

/// The body of a record, whose fields are read in order.
struct FlowRecordReader<'a>(Cursor<'a>);

impl FlowRecordReader<'_> {
    fn u8(&mut self) -> Result<u8, ImportError> {
        self.0.u8().ok_or(ImportError::Short)
    }

    fn u16(&mut self) -> Result<u16, ImportError> {
        self.0.u16_le().ok_or(ImportError::Short)
    }

    fn u32(&mut self) -> Result<u32, ImportError> {
        self.0.u32_le().ok_or(ImportError::Short)
    }

    fn u64(&mut self) -> Result<u64, ImportError> {
        self.0.array().map(u64::from_le_bytes).ok_or(ImportError::Short)
    }

    fn time(&mut self) -> Result<Timestamp, ImportError> {
        self.u64().map(Timestamp::from_nanos)
    }

    fn level(&mut self) -> Result<Level, ImportError> {
        match self.u8()? {
            0 => Ok(Level::Host),
            1 => Ok(Level::Xdp),
            2 => Ok(Level::Rtl),
            _ => Err(ImportError::Field { field: "level" }),
        }
    }

    fn ending(&mut self) -> Result<Option<EndReason>, ImportError> {
        Ok(match self.u8()? {
            0 => None,
            1 => Some(EndReason::Timeout),
            2 => Some(EndReason::Forced),
            3 => Some(EndReason::Shutdown),
            4 => Some(EndReason::TcpReuse),
            _ => return Err(ImportError::Field { field: "ending" }),
        })
    }

    fn levels(&mut self) -> Result<Levels, ImportError> {
        let mut levels = Levels::new(self.time()?);
        for counted in &mut levels.counted {
            for direction in Direction::BOTH {
                counted.packets[direction] = self.u64()?;
                counted.bytes[direction] = self.u64()?;
                counted.last_seen[direction] = self.time()?;
            }
        }
        levels.generation = Generation(self.u64()?);
        levels.since = self.time()?;
        levels.turn = self.u16()?;
        levels.level = self.level()?;
        levels.ending = self.ending()?;
        let marks = self.u8()?;
        levels.turned = marks & TURNED != 0;
        levels.unanswered = marks & UNANSWERED != 0;
        levels.unlisted = marks & UNLISTED != 0;
        Ok(levels)
    }
}

impl<E> ImportedFlow<E> {
    /// Reads one exported flow and returns the number of bytes read. Its hash is computed when a table adopts
    /// the flow, since another instance has another secret.
    ///
    /// # Errors
    /// [`ImportError`] when the bytes are cut off, of another format, or damaged.
    pub fn read(bytes: &[u8], ext: E) -> Result<(Self, usize), ImportError> {
        let mut outer = Cursor::new(bytes);
        let version = outer.u8().ok_or(ImportError::Short)?;
        if version < VERSION_HOST {
            return Err(ImportError::Version { found: version });
        }
        let length = outer.u16_le().ok_or(ImportError::Short)?;
        let mut body =
            FlowRecordReader(Cursor::new(outer.take(usize::from(length)).ok_or(ImportError::Short)?));
        let mut words = [0; 7];
        for word in &mut words {
            *word = body.u64()?;
        }
        let reversed = match body.u8()? {
            0 => false,
            1 => true,
            _ => return Err(ImportError::Field { field: "reversed" }),
        };
        let key = FlowKey::from_words(words, reversed).ok_or(ImportError::Field { field: "key" })?;
        let last_seen = body.time()?;
        let packets = PerDirection::new(body.u64()?, body.u64()?);
        let bytes_seen = PerDirection::new(body.u64()?, body.u64()?);
        let start = body.time()?;
        let path = Path(body.u32()?);
        let fid = Fid(body.u32()?);
        let flags = FlowFlags::from_bits_truncate(body.u32()?);
        let state = FlowState::ALL.get(usize::from(body.u8()?)).copied();
        let mut entry = FlowEntry {
            key,
            last_seen,
            packets,
            bytes: bytes_seen,
            hash: FlowHash(0),
            path,
            fid,
            flags,
            state: state.ok_or(ImportError::Field { field: "state" })?,
            level: body.level()?,
            step: Step::Host,
            start,
            generation: Generation(body.u64()?),
            serial: body.u64()?,
            ext,
        };
        let mut levels = None;
        if version == VERSION_HOST {
            entry.level = Level::Host;
        } else {
            let step = Step::ALL.get(usize::from(body.u8()?)).copied();
            entry.step = step.ok_or(ImportError::Field { field: "step" })?;
            if entry.step != Step::Host {
                levels = Some(Box::new(body.levels()?));
            }
        }
        check(&entry, levels.as_deref())?;
        Ok((Self { entry, levels }, outer.position()))
    }
}

/// Checks that step, level and amounts are consistent.
fn check<E>(entry: &FlowEntry<E>, levels: Option<&Levels>) -> Result<(), ImportError> {
    if entry.step.at_host() && entry.level != Level::Host {
        return Err(ImportError::Field { field: "level" });
    }
    let Some(levels) = levels else { return Ok(()) };
    if levels.level == Level::Host {
        return Err(ImportError::Field { field: "level" });
    }
    // A flow that has left its level has an end reason; a flow outside removal does not end and is listed
    // under its key.
    let ends = levels.ending.is_some();
    let fits = match entry.step {
        Step::Left => ends,
        step if step.in_removal() => ends || !levels.unlisted,
        _ => !ends && !levels.unlisted,
    };
    if !fits {
        return Err(ImportError::Field { field: "ending" });
    }
    let turned = entry.flags.contains(FlowFlags::FLIPPED);
    for direction in Direction::BOTH {
        let counted = if turned { direction.flip() } else { direction };
        let sum = |of: fn(&FlowLevelCounts) -> &PerDirection<u64>| {
            levels.counted.iter().fold(0, |sum: u64, level| sum.saturating_add(of(level)[counted]))
        };
        if sum(|level| &level.packets) > entry.packets[direction]
            || sum(|level| &level.bytes) > entry.bytes[direction]
        {
            return Err(ImportError::Field { field: "amounts" });
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::key::FlowScope;
    use bartizan_base::TenantId;
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    pub(in crate::entry) fn sample(v6: bool) -> FlowEntry<()> {
        let address = |n: u8| -> IpAddr {
            if v6 { Ipv6Addr::from(u128::from(n)).into() } else { Ipv4Addr::new(10, 0, 0, n).into() }
        };
        FlowEntry {
            key: FlowKey::ported(
                &FlowScope { tenant: TenantId(3), tunnel: 7, ..FlowScope::default() },
                6,
                (address(9), 1000),
                (address(1), 80),
            ),
            last_seen: Timestamp::from_parts(20, 5),
            packets: PerDirection::new(3, 2),
            bytes: PerDirection::new(300, 200),
            hash: FlowHash(0),
            path: Path(5),
            fid: Fid(17),
            flags: FlowFlags::TO_SERVER_SEEN | FlowFlags::ALERTED,
            state: FlowState::Closed,
            level: Level::Host,
            step: Step::Host,
            start: Timestamp::from_parts(10, 1),
            generation: Generation(258),
            serial: 42,
            ext: (),
        }
    }

    /// A flow at a level: XDP has seen its packets to the server, RTL those to the client.
    fn sunk(v6: bool) -> (FlowEntry<()>, Levels) {
        let mut entry = sample(v6);
        (entry.step, entry.level) = (Step::Reading, Level::Rtl);
        let mut levels = Levels::new(Timestamp::from_parts(11, 0));
        levels.counted[0].add(Direction::ToServer, 3, 200, Timestamp::from_parts(12, 7));
        levels.counted[1].add(Direction::ToClient, 2, 190, Timestamp::from_parts(20, 5));
        (levels.generation, levels.since) = (Generation(257), Timestamp::from_parts(13, 0));
        (levels.turn, levels.level) = (2, Level::Rtl);
        levels.ending = Some(EndReason::TcpReuse);
        levels.unlisted = true;
        (entry, levels)
    }

    fn text(entry: &FlowEntry<()>) -> String {
        format!("{entry:?}")
    }

    #[test]
    fn export_and_import_round_trip() {
        for v6 in [false, true] {
            let (at_host, (below, levels)) = (sample(v6), sunk(v6));
            for (entry, levels, appended) in
                [(at_host, None, LENGTH_STEP), (below, Some(&levels), LENGTH_STEP + LENGTH_LEVELS)]
            {
                let mut bytes = Vec::new();
                write(&entry, levels, &mut bytes);
                let length = bytes.len();
                assert_eq!(length, usize::from(LENGTH_V1 + appended) + 3);
                write(&entry, levels, &mut bytes);
                let (again, used) = ImportedFlow::read(&bytes, ()).unwrap();
                assert_eq!(used, length);
                assert_eq!(text(&again.entry), text(&entry));
                assert_eq!(again.levels.as_deref(), levels);
                for cut in 0..length {
                    assert!(ImportedFlow::read(&bytes[..cut], ()).is_err(), "{cut}");
                }
            }
        }
    }

    #[test]
    fn the_first_version_is_read() {
        // Records written when the host was the only level, one for each address family.
        let texts = [
            "01870000000000000000000100000a0000000000000000000000000900000a0000000007000000000000005000e80303000000\
             06000000000000000105c817a804000000030000000000000002000000000000002c01000000000000c80000000000000001e4\
             0b5402000000050000001100000009000000020002010000000000002a00000000000000",
            "018700000000000000000001000000000000000000000000000000090000000000000007000000000000005000e80303000000\
             06000100000000000105c817a804000000030000000000000002000000000000002c01000000000000c80000000000000001e4\
             0b5402000000050000001100000009000000020002010000000000002a00000000000000",
        ];
        for (record, v6) in texts.into_iter().zip([false, true]) {
            let digits: Vec<u8> = record.chars().map(|c| c.to_digit(16).unwrap() as u8).collect();
            let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
            let (flow, used) = ImportedFlow::read(&bytes, ()).unwrap();
            assert_eq!((used, flow.levels.is_none()), (bytes.len(), true));
            assert_eq!(text(&flow.entry), text(&sample(v6)));
        }
    }

    #[test]
    fn a_later_version_that_appends_is_read() {
        let mut bytes = Vec::new();
        write(&sample(true), None, &mut bytes);
        bytes[0] = 3;
        bytes[1..3].copy_from_slice(&(LENGTH_V1 + LENGTH_STEP + 4).to_le_bytes());
        bytes.extend([1, 2, 3, 4, 99]);
        let (flow, used) = ImportedFlow::read(&bytes, ()).unwrap();
        assert_eq!(used, bytes.len() - 1);
        assert_eq!(flow.entry.serial(), 42);
        bytes[0] = 0;
        assert_eq!(ImportedFlow::read(&bytes, ()).err(), Some(ImportError::Version { found: 0 }));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let fault = |change: &dyn Fn(&mut FlowEntry<()>, &mut Levels)| {
            let (mut entry, mut levels) = sunk(false);
            change(&mut entry, &mut levels);
            let mut bytes = Vec::new();
            write(&entry, Some(&levels), &mut bytes);
            match ImportedFlow::read(&bytes, ()) {
                Err(ImportError::Field { field }) => field,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(fault(&|entry, _| entry.packets.to_client = 1), "amounts");
        assert_eq!(fault(&|entry, _| entry.bytes.to_server = 199), "amounts");
        assert_eq!(fault(&|entry, _| entry.flags.insert(FlowFlags::FLIPPED)), "amounts");
        assert_eq!(fault(&|entry, _| entry.step = Step::Back), "level");
        assert_eq!(fault(&|_, levels| levels.level = Level::Host), "level");
        assert_eq!(fault(&|_, levels| levels.ending = None), "ending");
        assert_eq!(fault(&|entry, _| entry.step = Step::Active), "ending");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            version in 0_u8..4,
            length in 100_u16..300,
        ) {
            for bytes in [bytes.clone(), [&[version][..], &length.to_le_bytes(), &bytes].concat()] {
                if let Ok((_, used)) = ImportedFlow::read(&bytes, ()) {
                    prop_assert!(used <= bytes.len());
                }
            }
        }
    }
}
