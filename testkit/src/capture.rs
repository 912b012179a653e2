// SPDX-License-Identifier: Apache-2.0
//! Classic capture files, without the reader and the writer under test.

/// Link type of Ethernet.
pub const ETHERNET: u32 = 1;

/// The time at which captures of tests begin, in microseconds since 1970.
pub const BEGIN: u64 = 1_700_000_000_000_000;

/// A capture file (microseconds, little-endian) of frames with their times in microseconds.
pub fn pcap<F: AsRef<[u8]>>(link_type: u32, frames: impl IntoIterator<Item = (u64, F)>) -> Vec<u8> {
    let mut file = Vec::new();
    let words = |file: &mut Vec<u8>, words: &[u32]| {
        file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    };
    words(&mut file, &[0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, link_type]);
    for (at, frame) in frames {
        let frame = frame.as_ref();
        let length = frame.len() as u32;
        words(&mut file, &[(at / 1_000_000) as u32, (at % 1_000_000) as u32, length, length]);
        file.extend_from_slice(frame);
    }
    file
}

/// A capture file of Ethernet frames, one every so many microseconds from [`BEGIN`] on.
pub fn paced<F: AsRef<[u8]>>(micros: u64, frames: impl IntoIterator<Item = F>) -> Vec<u8> {
    pcap(ETHERNET, (0..).map(|number| BEGIN + number * micros).zip(frames))
}

/// Times and frames of a file in the form that [`pcap`] writes.
///
/// # Panics
/// It has another form.
#[must_use]
pub fn read(file: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
    assert_eq!(word(0), 0xa1b2_c3d4, "a classic capture file of microseconds, little-endian");
    let (mut at, mut frames) = (24, Vec::new());
    while at < file.len() {
        let (time, length) = (u64::from(word(at)) * 1_000_000 + u64::from(word(at + 4)), word(at + 8));
        let end = at + 16 + length as usize;
        frames.push((time, file[at + 16..end].to_vec()));
        at = end;
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let frames = [&b"one"[..], b"", b"three"];
        let file = paced(1_500_000, frames);
        assert_eq!((file.len(), &file[20..24]), (24 + 3 * 16 + 8, &[1, 0, 0, 0][..]));
        let read = read(&file);
        let times: Vec<u64> = read.iter().map(|(at, _)| at - BEGIN).collect();
        assert_eq!(times, [0, 1_500_000, 3_000_000]);
        assert!(read.iter().map(|(_, frame)| &frame[..]).eq(frames));
    }
}
