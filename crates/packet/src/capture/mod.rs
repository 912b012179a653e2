// SPDX-License-Identifier: Apache-2.0
//! Capture files as streams of packets: pcap and pcapng from any [`Read`].
//!
//! Sources: libpcap's `savefile` format (draft-ietf-opsawg-pcap), pcapng (draft-ietf-opsawg-pcapng).
//! Supported are pcap 2.x with microseconds or nanoseconds in both byte orders and Kuznetzov's modified
//! form; pcapng with any number of sections and interfaces (link type, `if_tsresol`, `if_tsoffset` each),
//! enhanced, simple and obsolete packet blocks; all of them plain, gzip or zstd, detected by the magic
//! number, never by the file's name.
//!
//! A file that breaks off is read as far as it goes; [`CaptureReader::status`] then says where and what is
//! missing. Not done: comments, name resolution, statistics and decryption secrets of pcapng (skipped and
//! counted), formats other than these two (the error names a converter).

mod compressed;
mod error;
mod input;
mod pcap;
mod pcapng;
mod status;
#[cfg(test)]
mod tests;
mod writer;

pub use compressed::{Compression, Decompressed};
pub use error::CaptureError;
pub use status::{CaptureEnd, CaptureFormat, CaptureStatus};
pub use writer::{PcapWriter, Precision};

use bartizan_base::Timestamp;
use input::{InputWindow, Stop};
use std::io::Read;

/// The most bytes that one packet may have: libpcap's `MAXIMUM_SNAPLEN`. Longer claims are damage.
pub const MAX_PACKET_LEN: u32 = 262_144;

/// One packet of a capture. The bytes live in the reader's buffer until the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureRecord<'a> {
    /// Number of the packet in the capture, from 1 (`pcap_cnt` in EVE).
    pub number: u64,
    /// The time of capture. A simple packet block has no time: it gets that of the packet before.
    pub timestamp: Timestamp,
    /// The captured bytes.
    pub data: &'a [u8],
    /// Length on the wire; more than `data` has when the snapshot length cut it.
    pub wire_len: u32,
    /// Link type as the file has it (the LINKTYPE_ registry; frame check sequence bits removed).
    pub link_type: u32,
    /// Index of the interface within its section; 0 for pcap.
    pub interface: u32,
}

/// The position of a record in the input's window, relative to the window's start.
#[derive(Clone, Copy, Debug)]
struct Located {
    timestamp: Timestamp,
    at: usize,
    len: usize,
    wire_len: u32,
    link_type: u32,
    interface: u32,
}

/// The next item that a format's reader found.
enum CaptureStep {
    Record(Located),
    End,
    /// The file ends inside an item: its name, its offset, and the bytes present and needed.
    Cut(CaptureEnd),
}

enum FormatReader {
    Pcap(pcap::Pcap),
    PcapNg(pcapng::PcapNg),
}

/// Reads the packets of one capture, in order, through one reused buffer.
///
/// ```
/// use bartizan_packet::capture::{CaptureReader, PcapWriter, Precision};
/// use bartizan_base::Timestamp;
///
/// let mut file = Vec::new();
/// let mut writer = PcapWriter::new(&mut file, 1, Precision::Nanos)?;
/// writer.write(Timestamp::from_parts(7, 5), 60, &[0; 60])?;
/// let mut capture = CaptureReader::new(std::io::Cursor::new(file), "example.pcap")?;
/// while let Some(packet) = capture.next()? {
///     assert_eq!((packet.number, packet.data.len(), packet.timestamp.as_secs()), (1, 60, 7));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CaptureReader {
    name: String,
    input: InputWindow,
    format: FormatReader,
    status: CaptureStatus,
}

impl CaptureReader {
    /// Reads the head of a capture. `name` is its name in messages, usually the path.
    ///
    /// # Errors
    /// When the file is empty, no capture, of an unknown version, or ends inside its header.
    pub fn new(source: impl Read + Send + 'static, name: impl Into<String>) -> Result<Self, CaptureError> {
        let mut name = name.into();
        let mut input = match InputWindow::new(Box::new(source)) {
            Ok(input) => input,
            Err(source) => return Err(CaptureError::Io { name, offset: 0, source }),
        };
        if input.compression().is_some() {
            name.push_str(" (decompressed)");
        }
        let magic = match input.want(4) {
            Ok(true) => input.peek::<4>(0),
            Ok(false) => None,
            Err(stop) => return Err(failure(stop, &name, &input)),
        };
        let Some(magic) = magic else {
            if input.available() == 0 && !input.broke_off() {
                return Err(CaptureError::Empty { name });
            }
            return Err(not_a_capture(name, input.window()));
        };
        let format = if magic == pcapng::SECTION_MAGIC {
            FormatReader::PcapNg(pcapng::PcapNg::open(&mut input, &name)?)
        } else if let Some(kind) = pcap::Magic::find(magic) {
            FormatReader::Pcap(pcap::Pcap::open(kind, &mut input, &name)?)
        } else {
            // A few more bytes identify the file better in the message; it does not matter if they are
            // missing.
            let _ = input.want(8);
            let start = input.window().get(..input.available().min(8)).unwrap_or_default();
            return Err(not_a_capture(name, start));
        };
        let status = CaptureStatus::new(
            match format {
                FormatReader::Pcap(_) => CaptureFormat::Pcap,
                FormatReader::PcapNg(_) => CaptureFormat::PcapNg,
            },
            input.compression(),
        );
        Ok(Self { name, input, format, status })
    }

    /// The next packet; `None` at the end, also when the file broke off (see [`Self::status`]).
    ///
    /// # Errors
    /// When the file is damaged or reading fails. After an error there are no more packets.
    // A lending reader cannot be an `Iterator`: the packet borrows the buffer until the next call.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<CaptureRecord<'_>>, CaptureError> {
        if self.status.end != CaptureEnd::Reading {
            return Ok(None);
        }
        let number = self.status.packets.saturating_add(1);
        let step = match &mut self.format {
            FormatReader::Pcap(pcap) => pcap.step(&mut self.input, &self.name, number),
            FormatReader::PcapNg(pcapng) => {
                pcapng.step(&mut self.input, &self.name, number, &mut self.status)
            }
        };
        let found = match step {
            Ok(CaptureStep::Record(found)) => found,
            Ok(CaptureStep::End) => {
                self.status.end = if self.input.broke_off() {
                    CaptureEnd::compressed_cut(self.input.offset())
                } else {
                    CaptureEnd::Complete
                };
                return Ok(None);
            }
            Ok(CaptureStep::Cut(end)) => {
                self.status.end = end;
                return Ok(None);
            }
            Err(error) => {
                self.status.end = CaptureEnd::Failed { offset: self.input.offset() };
                return Err(error);
            }
        };
        let data = self.input.bytes(found.at, found.len);
        self.status.packets = number;
        self.status.bytes = self.status.bytes.saturating_add(data.len() as u64);
        if (data.len() as u64) < u64::from(found.wire_len) {
            self.status.cut_packets = self.status.cut_packets.saturating_add(1);
        }
        Ok(Some(CaptureRecord {
            number,
            timestamp: found.timestamp,
            data,
            wire_len: found.wire_len,
            link_type: found.link_type,
            interface: found.interface,
        }))
    }

    /// The counts so far and, after the last packet, the way the file ended.
    #[must_use]
    pub fn status(&self) -> &CaptureStatus {
        &self.status
    }

    /// The name of this capture in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Turns a failed read into the error for the user.
fn failure(stop: Stop, name: &str, input: &InputWindow) -> CaptureError {
    let (name, offset) = (name.to_owned(), input.read_offset());
    match (stop, input.compression()) {
        (Stop::Decompress(source), Some(compression)) => {
            CaptureError::Decompress { name, format: compression.name(), offset, source }
        }
        (Stop::Decompress(source) | Stop::Read(source), _) => CaptureError::Io { name, offset, source },
    }
}

/// The error for a file that is no capture, with a guess at its kind.
fn not_a_capture(name: String, start: &[u8]) -> CaptureError {
    const KNOWN: &[(&[u8], &str)] = &[
        (b"\xfd7zXZ", "; this is xz: decompress it first with `xz -d`"),
        (b"BZh", "; this is bzip2: decompress it first with `bunzip2`"),
        (b"\x04\x22\x4d\x18", "; this is lz4: decompress it first with `lz4 -d`"),
        (b"\x1f\x8b", "; this is gzip inside gzip: decompress it once with `gunzip`"),
        (b"\x28\xb5\x2f\xfd", "; this is zstd inside another compression: decompress it once with `zstd -d`"),
        (b"PK\x03\x04", "; this is a zip archive: unpack it first"),
        (b"snoop\0", "; this is a snoop file: convert it with `editcap -F pcapng`"),
        (b"GMBU", "; this is a Network Monitor file: convert it with `editcap -F pcapng`"),
        (b"TRSNIFF", "; this is a Sniffer file: convert it with `editcap -F pcapng`"),
        (b"5VTH", "; this is a NetXRay file: convert it with `editcap -F pcapng`"),
    ];
    let hint =
        KNOWN.iter().find(|(magic, _)| start.starts_with(magic)).map_or(
            "; give a capture written by tcpdump, Wireshark or another libpcap program",
            |(_, hint)| hint,
        );
    let start = start.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    CaptureError::NotACapture { name, start: if start.is_empty() { "nothing".into() } else { start }, hint }
}
