// SPDX-License-Identifier: Apache-2.0
//! Domain names on the wire: labels and compression pointers (RFC 1035 section 4.1.4).
//!
//! A name is not copied when a message is read: [`Name`] holds its position, and [`Name::decode`] writes the
//! text on demand. A message of 64 KiB can expand to megabytes of names; this form holds only positions.
//!
//! Limits are those of Suricata 8: 1,025 bytes of text, 255 labels and pointers. A name that exceeds a limit
//! is refused if its end is not known yet, and cut if it is (because a pointer was followed).
//!
//! Not supported: escapes for dots within labels (a label `a.b` and two labels `a`, `b` give the same text,
//! as in Suricata).

/// Limit of a name's text, in bytes; longer text is cut.
pub const MAX_TEXT: usize = 1025;

/// Limit of labels and pointers that are followed in one name; also the guard against loops.
pub(super) const MAX_STEPS: u32 = 255;

bitflags::bitflags! {
    /// Anomalies of a name.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct NameFlags: u8 {
        /// A pointer points at itself.
        const LOOP = 1;
        /// The name is longer than [`MAX_TEXT`] or has too many labels: the text is only its beginning.
        const TRUNCATED = 2;
        /// The name has more labels and pointers than are followed.
        const LABELS = 4;
    }
}

/// The reason why a part of a message cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// The part ends too early.
    Short,
    /// The part contradicts itself.
    Broken,
}

/// The position of a name in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// Offset of the first byte.
    start: u16,
    /// End of the surrounding field: labels may not cross it before a pointer was followed.
    end: u16,
    /// Length of the text, in bytes.
    length: u16,
    /// Anomalies of the name.
    flags: NameFlags,
}

impl Name {
    /// Reads the name at `start` in a field that ends at `end`. Returns the name and the offset after it.
    ///
    /// # Errors
    /// The end of the name cannot be found; see [`Bad`].
    pub fn read(message: &[u8], start: usize, end: usize) -> Result<(Name, usize), Bad> {
        let walk = walk(message, start, end, |_| ())?;
        let (Ok(start), Ok(end), Ok(length)) =
            (u16::try_from(start), u16::try_from(end), u16::try_from(walk.length))
        else {
            return Err(Bad::Broken);
        };
        Ok((Name { start, end, length, flags: walk.flags }, walk.next))
    }

    /// Whether the name is the root, or has no text for another reason.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.length == 0
    }

    /// Whether only the beginning of the text is known.
    #[must_use]
    pub fn is_truncated(self) -> bool {
        self.flags.contains(NameFlags::TRUNCATED)
    }

    /// Anomalies of the name.
    #[must_use]
    pub fn flags(self) -> NameFlags {
        self.flags
    }

    /// Appends the text to `out`: labels with dots in between, none at the end.
    pub fn decode(self, message: &[u8], out: &mut Vec<u8>) {
        let before = out.len();
        // This walk has succeeded on the same bytes before.
        let _ = walk(message, usize::from(self.start), usize::from(self.end), |piece| {
            out.extend_from_slice(piece);
        });
        out.truncate(before.saturating_add(usize::from(self.length)));
    }
}

/// Result of [`walk`].
struct DnsNameWalk {
    /// Offset after the name's own bytes.
    next: usize,
    /// Length of the text.
    length: usize,
    flags: NameFlags,
}

/// Walks through a name and passes its text to `piece`.
fn walk(message: &[u8], start: usize, end: usize, mut piece: impl FnMut(&[u8])) -> Result<DnsNameWalk, Bad> {
    let mut position = start;
    let mut limit = end;
    let mut behind: Option<usize> = None;
    let mut length = 0usize;
    let mut steps = 0u32;
    let mut flags = NameFlags::empty();
    loop {
        let rest = message.get(..limit).and_then(|m| m.get(position..)).unwrap_or_default();
        match rest.first().copied() {
            // A name may end with its field, without the root's zero.
            None => break,
            Some(0) => {
                position = position.saturating_add(1);
                break;
            }
            Some(count @ 1..=0x3f) => {
                let (_, tail) = rest.split_at_checked(1).ok_or(Bad::Short)?;
                let label = tail.get(..usize::from(count)).ok_or(Bad::Short)?;
                if !flags.contains(NameFlags::TRUNCATED) {
                    if length > 0 {
                        piece(b".");
                        length = length.saturating_add(1);
                    }
                    piece(label);
                    length = length.saturating_add(label.len());
                }
                position = position.saturating_add(label.len()).saturating_add(1);
            }
            Some(high @ 0xc0..) => {
                let low = *rest.get(1).ok_or(Bad::Short)?;
                let target = usize::from(u16::from_be_bytes([high & 0x3f, low]));
                if target > message.len() {
                    return Err(Bad::Broken);
                }
                if target == position && limit == message.len() {
                    if behind.is_none() {
                        return Err(Bad::Broken);
                    }
                    flags |= NameFlags::LOOP;
                    break;
                }
                behind.get_or_insert(position.saturating_add(2));
                position = target;
                limit = message.len();
            }
            Some(_) => return Err(Bad::Broken),
        }
        steps = steps.saturating_add(1);
        if steps > MAX_STEPS {
            if behind.is_none() {
                return Err(Bad::Broken);
            }
            flags |= NameFlags::LABELS | NameFlags::TRUNCATED;
            break;
        }
        if length > MAX_TEXT {
            length = MAX_TEXT;
            flags |= NameFlags::TRUNCATED;
            // Without a pointer the walk must continue, to find the end of the name.
            if behind.is_some() {
                break;
            }
        }
    }
    Ok(DnsNameWalk { next: behind.unwrap_or(position), length, flags })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(message: &[u8], start: usize) -> Result<(String, usize, NameFlags), Bad> {
        let (name, next) = Name::read(message, start, message.len())?;
        let mut out = Vec::new();
        name.decode(message, &mut out);
        assert_eq!(out.is_empty(), name.is_empty());
        Ok((String::from_utf8_lossy(&out).into_owned(), next, name.flags()))
    }

    #[test]
    fn labels_and_pointers() {
        let message = b"\x03www\x04oisf\x03net\x00\xc0\x04\x01a\xc0\x0e!";
        assert_eq!(text(message, 0), Ok(("www.oisf.net".into(), 14, NameFlags::empty())));
        assert_eq!(text(message, 14), Ok(("oisf.net".into(), 16, NameFlags::empty())));
        assert_eq!(text(message, 16), Ok(("a.oisf.net".into(), 20, NameFlags::empty())));
        assert_eq!(text(b"\x00", 0), Ok((String::new(), 1, NameFlags::empty())));
        assert_eq!(text(b"\x02ab", 0), Ok(("ab".into(), 3, NameFlags::empty())), "the field may end first");
    }

    #[test]
    fn what_cannot_be_read() {
        assert_eq!(text(b"\x05ab", 0), Err(Bad::Short));
        assert_eq!(text(b"\xc0", 0), Err(Bad::Short));
        assert_eq!(text(b"\xc0\x09", 0), Err(Bad::Broken), "beyond the message");
        assert_eq!(text(b"\x80\x00", 0), Err(Bad::Broken), "reserved label type");
        assert_eq!(text(b"\xc0\x00", 0), Err(Bad::Broken), "points at itself, no end known");
    }

    #[test]
    fn loops_end() {
        // A pointer to a pointer that points at itself: the end of the name is known.
        assert_eq!(text(b"\xc0\x02\xc0\x02", 0), Ok((String::new(), 2, NameFlags::LOOP)));
        // a -> b -> a: ended by the number of steps.
        let (name, next, flags) = text(b"\x01x\xc0\x00", 0).expect("a name");
        assert_eq!(next, 4);
        assert!(name.starts_with("x.x.x"));
        assert_eq!(flags, NameFlags::LABELS | NameFlags::TRUNCATED);
    }

    #[test]
    fn long_names_are_cut() {
        let mut message = Vec::new();
        for _ in 0..40 {
            message.push(63);
            message.extend_from_slice(&[b'a'; 63]);
        }
        message.extend_from_slice(&[0, 0xc0, 0]);
        let end = message.len();
        let (name, next, flags) = text(&message, 0).expect("a name");
        assert_eq!((name.len(), next, flags), (MAX_TEXT, end - 2, NameFlags::TRUNCATED));
        let (name, next, flags) = text(&message, end - 2).expect("a name");
        assert_eq!((name.len(), next, flags), (MAX_TEXT, end, NameFlags::TRUNCATED));
        // 300 labels without an end in sight: refused.
        let many: Vec<u8> = [1u8, b'a'].repeat(300);
        assert_eq!(text(&many, 0), Err(Bad::Broken));
    }

    #[test]
    fn a_field_bounds_its_name() {
        let message = b"\x03abc\x00";
        assert_eq!(Name::read(message, 0, 3), Err(Bad::Short));
        assert!(Name::read(message, 0, 4).is_ok());
        assert!(Name::read(message, 9, 9).is_ok_and(|(n, next)| n.is_empty() && next == 9));
    }
}
