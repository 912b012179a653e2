// SPDX-License-Identifier: Apache-2.0
//! The counts of reading a capture, and the way it ended.

use super::Compression;
use core::fmt;

/// The two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureFormat {
    /// libpcap's classic format.
    Pcap,
    /// The block format.
    PcapNg,
}

impl CaptureFormat {
    /// `pcap` or `pcapng`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            CaptureFormat::Pcap => "pcap",
            CaptureFormat::PcapNg => "pcapng",
        }
    }
}

/// The way a capture ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureEnd {
    /// Reading has not ended yet.
    Reading,
    /// At the end of its last record.
    Complete,
    /// The file ends inside a record: it was cut, or is still being written.
    BrokeOff {
        /// The offset of the incomplete part, in (decompressed) bytes.
        offset: u64,
        /// The name of the incomplete part.
        what: &'static str,
        /// The number of its bytes in the file.
        have: u64,
        /// The number of bytes that it needs; 0 when unknown.
        need: u64,
    },
    /// An error was returned.
    Failed {
        /// The offset that reading reached.
        offset: u64,
    },
}

impl CaptureEnd {
    /// The compressed data ends early, at a record's end.
    pub(super) const fn compressed_cut(offset: u64) -> Self {
        CaptureEnd::BrokeOff { offset, what: "the compressed data", have: 0, need: 0 }
    }
}

impl fmt::Display for CaptureEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaptureEnd::Reading => f.write_str("not read to its end"),
            CaptureEnd::Complete => f.write_str("complete"),
            CaptureEnd::BrokeOff { offset, what, need: 0, .. } => {
                write!(f, "the file ends at offset {offset}, within {what}")
            }
            CaptureEnd::BrokeOff { offset, what, have, need } => {
                write!(
                    f,
                    "the file ends at offset {offset}, within {what}: {have} of {need} bytes are present"
                )
            }
            CaptureEnd::Failed { offset } => write!(f, "reading failed at offset {offset}"),
        }
    }
}

/// The counts of reading a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureStatus {
    /// The format.
    pub format: CaptureFormat,
    /// The file's compression.
    pub compression: Option<Compression>,
    /// Packets delivered.
    pub packets: u64,
    /// Captured bytes delivered.
    pub bytes: u64,
    /// Delivered packets with fewer bytes captured than were on the wire (snapshot length).
    pub cut_packets: u64,
    /// pcapng blocks that carry no packet and were skipped.
    pub skipped_blocks: u64,
    /// The way the capture ended.
    pub end: CaptureEnd,
}

impl CaptureStatus {
    pub(super) const fn new(format: CaptureFormat, compression: Option<Compression>) -> Self {
        Self {
            format,
            compression,
            packets: 0,
            bytes: 0,
            cut_packets: 0,
            skipped_blocks: 0,
            end: CaptureEnd::Reading,
        }
    }

    /// One line for the user if there is a message: the file broke off, or packets are cut.
    #[must_use]
    pub fn notice(&self) -> Option<String> {
        let broke_off = matches!(self.end, CaptureEnd::BrokeOff { .. })
            .then(|| format!("{}; the {} packets before that were read", self.end, self.packets));
        let cut = (self.cut_packets > 0).then(|| {
            format!(
                "{} of {} packets were captured only in part (snapshot length); capture with `-s 0` to inspect them whole",
                self.cut_packets, self.packets
            )
        });
        match (broke_off, cut) {
            (None, None) => None,
            (Some(one), None) | (None, Some(one)) => Some(one),
            (Some(a), Some(b)) => Some(format!("{a}; {b}")),
        }
    }
}
