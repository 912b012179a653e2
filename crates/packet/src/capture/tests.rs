// SPDX-License-Identifier: Apache-2.0
//! Tests of the capture readers: every form of file is made here, byte by byte.

use super::*;
use proptest::prelude::*;
use std::io::{Cursor, Write};

/// The fields of a delivered record that tests compare.
#[derive(Clone, Debug, PartialEq)]
struct Got {
    nanos: u64,
    data: Vec<u8>,
    wire_len: u32,
    link_type: u32,
    interface: u32,
}

fn read(file: &[u8]) -> (Vec<Got>, Result<CaptureStatus, CaptureError>) {
    let mut got = Vec::new();
    let mut capture = match CaptureReader::new(Cursor::new(file.to_vec()), "t.pcap") {
        Ok(capture) => capture,
        Err(error) => return (got, Err(error)),
    };
    loop {
        match capture.next() {
            Ok(Some(r)) => {
                assert_eq!(r.number, got.len() as u64 + 1);
                got.push(Got {
                    nanos: r.timestamp.as_nanos(),
                    data: r.data.to_vec(),
                    wire_len: r.wire_len,
                    link_type: r.link_type,
                    interface: r.interface,
                });
            }
            Ok(None) => {
                assert!(capture.next().unwrap().is_none());
                return (got, Ok(*capture.status()));
            }
            Err(error) => {
                assert!(capture.next().unwrap().is_none(), "no packets after an error");
                assert!(matches!(capture.status().end, CaptureEnd::Failed { .. }));
                return (got, Err(error));
            }
        }
    }
}

/// Writes numbers in one byte order.
struct ByteOrderWriter {
    big: bool,
    bytes: Vec<u8>,
}

impl ByteOrderWriter {
    fn new(big: bool) -> Self {
        Self { big, bytes: Vec::new() }
    }
    fn u16(&mut self, n: u16) -> &mut Self {
        self.bytes.extend(if self.big { n.to_be_bytes() } else { n.to_le_bytes() });
        self
    }
    fn u32(&mut self, n: u32) -> &mut Self {
        self.bytes.extend(if self.big { n.to_be_bytes() } else { n.to_le_bytes() });
        self
    }
    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend(bytes);
        self
    }
    fn block(&mut self, kind: u32, body: impl FnOnce(&mut ByteOrderWriter)) -> &mut Self {
        let mut inner = ByteOrderWriter::new(self.big);
        body(&mut inner);
        let padded = inner.bytes.len().next_multiple_of(4);
        inner.bytes.resize(padded, 0);
        let length = padded as u32 + 12;
        self.u32(kind).u32(length).raw(&inner.bytes).u32(length)
    }
    fn section(&mut self) -> &mut Self {
        self.block(0x0a0d_0d0a, |b| {
            b.u32(0x1a2b_3c4d).u16(1).u16(0).u32(u32::MAX).u32(u32::MAX);
        })
    }
    /// `options`: (code, value).
    fn interface(&mut self, link_type: u16, snap_len: u32, options: &[(u16, Vec<u8>)]) -> &mut Self {
        self.block(1, |b| {
            b.u16(link_type).u16(0).u32(snap_len);
            for (code, value) in options {
                b.u16(*code).u16(value.len() as u16).raw(value);
                let padded = b.bytes.len().next_multiple_of(4);
                b.bytes.resize(padded, 0);
            }
            b.u16(0).u16(0);
        })
    }
    fn enhanced(&mut self, interface: u32, ticks: u64, data: &[u8], wire: u32) -> &mut Self {
        self.block(6, |b| {
            b.u32(interface)
                .u32((ticks >> 32) as u32)
                .u32(ticks as u32)
                .u32(data.len() as u32)
                .u32(wire)
                .raw(data);
            let padded = b.bytes.len().next_multiple_of(4);
            b.bytes.resize(padded, 0);
            b.u16(2).u16(4).u32(0).u16(0).u16(0);
        })
    }
}

fn pcap(big: bool, magic: u32, minor: u16, packets: &[(u32, u32, Vec<u8>, u32)]) -> Vec<u8> {
    let mut out = ByteOrderWriter::new(big);
    out.u32(magic).u16(2).u16(minor).u32(0).u32(0).u32(65_535).u32(0x1400_0000 | 113);
    for (seconds, fraction, data, wire) in packets {
        let mut lengths = [data.len() as u32, *wire];
        if minor < 3 {
            lengths.reverse();
        }
        out.u32(*seconds).u32(*fraction).u32(lengths[0]).u32(lengths[1]);
        if magic == 0xa1b2_cd34 {
            out.u32(3).u16(0x0800).raw(&[1, 0]);
        }
        out.raw(data);
    }
    out.bytes
}

fn sample() -> Vec<(u32, u32, Vec<u8>, u32)> {
    (0..20_u32)
        .map(|i| {
            (1_700_000_000 + i, 999_990 + i, vec![i as u8; i as usize * 7], i * 7 + u32::from(i == 5) * 100)
        })
        .collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn pcap_in_every_form_gives_the_same_packets() {
    for big in [false, true] {
        for (magic, tick) in [(0xa1b2_c3d4, 1_000), (0xa1b2_3c4d, 1), (0xa1b2_cd34, 1_000)] {
            for minor in [2, 3, 4] {
                let file = pcap(big, magic, minor, &sample());
                let (head, tail) = file.split_at(file.len() / 2);
                let members = [gzip(head), gzip(tail)].concat();
                let skippable =
                    [&[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9][..], &zstd(head), &zstd(tail)].concat();
                for (file, compression) in
                    [(file, None), (members, Some(Compression::Gzip)), (skippable, Some(Compression::Zstd))]
                {
                    let (got, status) = read(&file);
                    let status = status.unwrap();
                    assert_eq!(got.len(), 20);
                    for (got, (seconds, fraction, data, wire)) in got.iter().zip(sample()) {
                        let nanos = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * tick;
                        let want = Got { nanos, data, wire_len: wire, link_type: 113, interface: 0 };
                        assert_eq!(*got, want);
                    }
                    assert_eq!((status.end, status.cut_packets), (CaptureEnd::Complete, 1));
                    assert_eq!((status.compression, status.format), (compression, CaptureFormat::Pcap));
                    assert!(status.notice().unwrap().contains("1 of 20 packets"));
                }
            }
        }
    }
}

#[test]
fn a_fraction_of_a_second_or_more_is_carried_over() {
    let (got, _) =
        read(&pcap(false, 0xa1b2_c3d4, 4, &[(10, 1_653_292, vec![1], 1), (10, u32::MAX, vec![1], 1)]));
    assert_eq!(got[0].nanos, 11_653_292_000);
    assert_eq!(got[1].nanos, 10_000_000_000 + u64::from(u32::MAX) * 1_000);
}

#[test]
fn pcapng_with_interfaces_sections_and_all_packet_blocks() {
    for big in [false, true] {
        let mut out = ByteOrderWriter::new(big);
        let offset = |seconds: i64| if big { seconds.to_be_bytes() } else { seconds.to_le_bytes() }.to_vec();
        out.section().block(0x0bad, |b| {
            b.raw(b"custom");
        });
        out.interface(1, 60, &[]);
        out.interface(101, 0, &[(2, b"eth0".to_vec()), (9, vec![9]), (14, offset(100))]);
        out.interface(113, 0, &[(9, vec![0x80 | 10])]);
        out.interface(228, 0, &[(9, vec![12]), (14, offset(-1))]);
        out.enhanced(0, 5_000_001, b"abc", 3);
        out.enhanced(1, 7, b"defg", 9);
        out.enhanced(2, 1024 + 512, b"", 0);
        out.enhanced(3, 3_000_000_000_999, b"h", 1);
        out.block(3, |b| {
            b.u32(70).raw(&[8; 60]);
        });
        out.block(2, |b| {
            b.u16(1).u16(7).u32(0).u32(8).u32(2).u32(2).raw(b"ij");
        });
        out.bytes.extend({
            let mut other = ByteOrderWriter::new(!big);
            other.section().interface(147, 0, &[]).enhanced(0, 1, b"other order", 11);
            other.bytes
        });
        let (got, status) = read(&out.bytes);
        let got: Vec<_> =
            got.into_iter().map(|g| (g.nanos, g.data, g.wire_len, g.link_type, g.interface)).collect();
        assert_eq!(
            got,
            [
                (5_000_001_000, b"abc".to_vec(), 3, 1, 0),
                (100_000_000_007, b"defg".to_vec(), 9, 101, 1),
                (1_500_000_000, vec![], 0, 113, 2),
                (2_000_000_000, b"h".to_vec(), 1, 228, 3),
                (2_000_000_000, vec![8; 60], 70, 1, 0),
                (100_000_000_008, b"ij".to_vec(), 2, 101, 1),
                (1_000, b"other order".to_vec(), 11, 147, 0),
            ]
        );
        let status = status.unwrap();
        assert_eq!((status.end, status.skipped_blocks, status.cut_packets), (CaptureEnd::Complete, 1, 2));
        assert_eq!(read(&gzip(&out.bytes)).0.len(), 7);
        assert_eq!(read(&zstd(&out.bytes)).0.len(), 7);
    }
}

#[test]
fn timestamps_never_wrap() {
    for options in [vec![(9, vec![0])], vec![(9, vec![0x7f])], vec![(9, vec![0xff])], vec![(9, vec![0x80])]] {
        let mut out = ByteOrderWriter::new(false);
        out.section().interface(1, 0, &options).enhanced(0, u64::MAX, b"x", 1);
        assert_eq!(read(&out.bytes).0.len(), 1);
    }
    let mut out = ByteOrderWriter::new(false);
    out.section().interface(1, 0, &[(14, i64::MIN.to_le_bytes().to_vec())]).enhanced(0, 5, b"x", 1);
    assert_eq!(read(&out.bytes).0[0].nanos, 0);
}

#[test]
fn the_writer_is_read_back_and_by_an_independent_parser() {
    use pcap_parser::{PcapBlockOwned, PcapError, create_reader};
    let mut writer = PcapWriter::new(Vec::new(), 1, Precision::Nanos).unwrap();
    for (seconds, _, data, wire) in sample() {
        writer.write(Timestamp::from_parts(u64::from(seconds), 77), wire, &data).unwrap();
    }
    assert!(writer.write(Timestamp::ZERO, 0, &vec![0; 300_000]).is_err());
    let file = writer.into_inner();
    let (ours, _) = read(&file);
    let mut reader = create_reader(65_536, Cursor::new(file)).unwrap();
    let mut theirs = Vec::new();
    loop {
        match reader.next() {
            Ok((used, block)) => {
                if let PcapBlockOwned::Legacy(b) = block {
                    let nanos = u64::from(b.ts_sec) * 1_000_000_000 + u64::from(b.ts_usec);
                    theirs.push((nanos, b.data[..b.caplen as usize].to_vec(), b.origlen));
                }
                reader.consume(used);
            }
            Err(PcapError::Eof) => break,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(ours.into_iter().map(|g| (g.nanos, g.data, g.wire_len)).collect::<Vec<_>>(), theirs);
}

/// A file and, for each packet, where its last byte ends.
fn with_ends() -> [(Vec<u8>, Vec<usize>, Vec<usize>); 2] {
    let mut ends = Vec::new();
    for n in 1..=sample().len() {
        ends.push(pcap(false, 0xa1b2_c3d4, 4, &sample()[..n]).len());
    }
    let mut out = ByteOrderWriter::new(true);
    let (mut ng_ends, mut blocks) = (Vec::new(), Vec::new());
    out.section();
    blocks.push(out.bytes.len());
    out.interface(1, 0, &[]);
    blocks.push(out.bytes.len());
    for (_, _, data, wire) in sample() {
        let at = out.bytes.len() + 28 + data.len();
        out.enhanced(0, 1, &data, wire);
        ng_ends.push(at);
        blocks.push(out.bytes.len());
    }
    let file = pcap(false, 0xa1b2_c3d4, 4, &sample());
    let records = [&[24][..], &ends].concat();
    [(file, ends, records), (out.bytes, ng_ends, blocks)]
}

#[test]
fn a_file_cut_at_any_byte_gives_exactly_its_complete_packets() {
    for (file, ends, boundaries) in with_ends() {
        for cut in 0..=file.len() {
            let (got, status) = read(&file[..cut]);
            assert_eq!(got.len(), ends.iter().filter(|end| **end <= cut).count(), "cut at {cut}");
            match status {
                Err(CaptureError::Empty { .. }) => assert_eq!(cut, 0),
                Err(CaptureError::NotACapture { .. }) => assert!((1..4).contains(&cut)),
                Err(CaptureError::HeaderCut { have, need, .. }) => {
                    assert!(have == cut as u64 && have < need);
                }
                Err(error) => panic!("{error}"),
                Ok(status) => {
                    let complete = boundaries.contains(&cut);
                    assert_eq!(status.end == CaptureEnd::Complete, complete, "cut at {cut}: {}", status.end);
                    if let CaptureEnd::BrokeOff { offset, have, need, .. } = status.end {
                        assert_eq!(offset + have, cut as u64);
                        assert!(have < need);
                    }
                }
            }
        }
    }
}

#[test]
fn a_compressed_file_cut_anywhere_gives_a_prefix_and_says_so() {
    let mut noise = 1_u32;
    let packets: Vec<_> = (0..400)
        .map(|i| {
            let data: Vec<u8> = (0..1_000)
                .map(|_| {
                    noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (noise >> 28) as u8
                })
                .collect();
            (i, 0, data, 1_000)
        })
        .collect();
    let file = pcap(false, 0xa1b2_c3d4, 4, &packets);
    let (all, _) = read(&file);
    for packed in [gzip(&file), zstd(&file)] {
        for cut in [20, 1_000, packed.len() / 2, packed.len() * 9 / 10, packed.len() - 5] {
            let (got, status) = read(&packed[..cut]);
            assert!(all.starts_with(&got));
            match status {
                Ok(status) => {
                    assert!(matches!(status.end, CaptureEnd::BrokeOff { .. }), "{}", status.end);
                    assert!(status.notice().unwrap().contains("the file ends at offset"));
                }
                Err(error) => assert!(cut <= 1_000, "{error}"),
            }
            // A block is at most 128 KiB: no more than one, and the compressed bytes after the cut, may be
            // lost.
            let expected = (cut as f64 / packed.len() as f64 * 400.0) as usize;
            assert!(got.len() + 150 >= expected, "{} of {expected}", got.len());
        }
    }
}

#[test]
fn damage_ends_reading_with_place_and_advice_after_all_good_packets() {
    let mut file = pcap(false, 0xa1b2_c3d4, 4, &sample()[..3]);
    let at = file.len();
    file.extend([0xff; 40]);
    let (got, error) = read(&file);
    let error = error.unwrap_err().to_string();
    assert_eq!(got.len(), 3);
    assert!(error.contains(&format!("packet 4 at offset {at}")) && error.contains("repair"), "{error}");

    let mut out = ByteOrderWriter::new(false);
    out.section().interface(1, 0, &[]).enhanced(0, 1, b"good", 4);
    let good = out.bytes.len();
    for (bad, what) in [
        (vec![6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "less than such a block needs"),
        (vec![6, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0, 0], "more than any real block has"),
        (vec![5, 0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0, 0], "no multiple of four"),
        (vec![5, 0, 0, 0, 12, 0, 0, 0, 16, 0, 0, 0], "another length"),
        ([&[0x0a, 0x0d, 0x0d, 0x0a][..], &[0; 24]].concat(), "byte-order mark"),
    ] {
        let (got, error) = read(&[&out.bytes[..], &bad].concat());
        let error = error.unwrap_err().to_string();
        assert_eq!(got.len(), 1);
        assert!(error.contains(what) && error.contains(&format!("offset {good}")), "{error}");
    }
    let mut unknown = ByteOrderWriter::new(false);
    unknown.section().interface(1, 0, &[]).enhanced(4, 1, b"?", 1);
    assert!(matches!(
        read(&unknown.bytes).1,
        Err(CaptureError::UnknownInterface { interface: 4, known: 1, .. })
    ));
    let mut long = ByteOrderWriter::new(false);
    long.section().interface(1, 0, &[]);
    long.block(6, |b| {
        b.u32(0).u32(0).u32(0).u32(9).u32(9).raw(&[1; 8]);
    });
    assert!(matches!(read(&long.bytes).1, Err(CaptureError::RecordLength { length: 9, limit: 8, .. })));
}

#[test]
fn what_is_no_capture_is_said_in_words() {
    assert!(matches!(read(b"").1, Err(CaptureError::Empty { .. })));
    for (bytes, words) in [
        (&b"<html>"[..], "not a capture file: it starts with 3c 68 74"),
        (b"\xfd7zXZ\0\0", "xz -d"),
        (b"snoop\0\0\0", "editcap"),
        (b"a", "starts with 61"),
        (&gzip(b""), "(decompressed): the file is empty"),
        (&gzip(&gzip(b"x")), "gzip inside gzip"),
    ] {
        let error = read(bytes).1.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let mut old = pcap(false, 0xa1b2_c3d4, 4, &[]);
    old[4] = 3;
    assert!(matches!(read(&old).1, Err(CaptureError::UnsupportedVersion { major: 3, .. })));
}

#[test]
fn damaged_compression_and_failing_reads_are_told_apart() {
    let file = pcap(false, 0xa1b2_c3d4, 4, &sample());
    let trailing = [&gzip(&file)[..], b"this is no gzip member at all"].concat();
    let (got, status) = read(&trailing);
    assert_eq!(got.len(), 20);
    assert!(matches!(status, Err(CaptureError::Decompress { format: "gzip", .. })), "{status:?}");

    struct Failing(Cursor<Vec<u8>>);
    impl Read for Failing {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            match self.0.read(out)? {
                0 => Err(std::io::Error::other("cable pulled")),
                n => Ok(n),
            }
        }
    }
    for file in [file.clone(), gzip(&file)] {
        let half = file[..file.len() * 3 / 4].to_vec();
        let mut capture = CaptureReader::new(Failing(Cursor::new(half)), "t").unwrap();
        let error = loop {
            match capture.next() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the failure must be reported"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, CaptureError::Io { .. }) && error.to_string().contains("cable pulled"));
    }
}

#[test]
fn packets_longer_than_the_window_and_options_longer_still() {
    let long = vec![7; MAX_PACKET_LEN as usize];
    let (got, _) = read(&pcap(true, 0xa1b2_3c4d, 4, &[(1, 1, long.clone(), 262_144), (2, 2, vec![1], 1)]));
    assert_eq!((got.len(), &got[0].data), (2, &long));
    let mut out = ByteOrderWriter::new(false);
    out.section().interface(1, 0, &[]);
    out.block(6, |b| {
        b.u32(0).u32(0).u32(0).u32(1).u32(1).raw(&[1, 0, 0, 0]).raw(&vec![0; 1_000_000]);
    });
    out.enhanced(0, 0, &long, 262_144);
    assert_eq!(read(&out.bytes).0.len(), 2);
}

/// Hands out a few bytes at a time, as a pipe may.
struct Dribble(Cursor<Vec<u8>>, usize);
impl Read for Dribble {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let n = out.len().min(self.1);
        self.0.read(&mut out[..n])
    }
}

proptest! {
    #[test]
    fn any_bytes_after_a_header_never_panic(
        big in any::<bool>(), ng in any::<bool>(), noise in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let mut file = if ng {
            let mut out = ByteOrderWriter::new(big);
            out.section().interface(1, 0, &[]);
            out.bytes
        } else {
            pcap(big, 0xa1b2_c3d4, 4, &[])
        };
        file.extend(&noise);
        let (got, _) = read(&file);
        prop_assert!(got.iter().map(|g| g.data.len()).sum::<usize>() <= noise.len());
    }

    #[test]
    fn a_changed_byte_never_panics(which in 0..2_usize, at in any::<prop::sample::Index>(), to in any::<u8>(), packed in 0..3) {
        let (mut file, ..) = with_ends()[which].clone();
        let at = at.index(file.len());
        file[at] = to;
        let file = match packed { 0 => file, 1 => gzip(&file), _ => zstd(&file) };
        let _ = read(&file);
    }

    #[test]
    fn damaged_compressed_files_never_panic(at in any::<prop::sample::Index>(), to in any::<u8>(), gz in any::<bool>()) {
        let file = pcap(false, 0xa1b2_c3d4, 4, &sample());
        let mut packed = if gz { gzip(&file) } else { zstd(&file) };
        let at = at.index(packed.len());
        packed[at] = to;
        let _ = read(&packed);
    }

    #[test]
    fn any_bytes_never_panic(noise in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&noise);
    }

    #[test]
    fn however_the_bytes_arrive_the_packets_are_the_same(step in 1..50_usize) {
        for (file, ..) in with_ends() {
            let (all, _) = read(&file);
            let mut capture = CaptureReader::new(Dribble(Cursor::new(file), step), "t").unwrap();
            for want in all {
                prop_assert_eq!(capture.next().unwrap().unwrap().data, &want.data[..]);
            }
            prop_assert!(capture.next().unwrap().is_none());
        }
    }
}
