// SPDX-License-Identifier: Apache-2.0
//! Writing classic pcap, for tests and tools.

use super::MAX_PACKET_LEN;
use bartizan_base::Timestamp;
use std::io::{self, Write};

/// Unit of the fraction of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Microseconds: every tool reads it.
    Micros,
    /// Nanoseconds.
    Nanos,
}

/// Writes little-endian pcap 2.4.
pub struct PcapWriter<W> {
    out: W,
    precision: Precision,
}

impl<W: Write> PcapWriter<W> {
    /// Writes the file's header.
    ///
    /// # Errors
    /// Those of the writer underneath.
    pub fn new(mut out: W, link_type: u32, precision: Precision) -> io::Result<Self> {
        let magic: u32 = match precision {
            Precision::Micros => 0xa1b2_c3d4,
            Precision::Nanos => 0xa1b2_3c4d,
        };
        for word in [magic, 4 << 16 | 2, 0, 0, MAX_PACKET_LEN, link_type] {
            out.write_all(&word.to_le_bytes())?;
        }
        Ok(Self { out, precision })
    }

    /// Writes one packet; seconds after 2106 wrap, as the format has only 32 bits for them.
    ///
    /// # Errors
    /// `InvalidInput` for a packet of more than [`MAX_PACKET_LEN`] bytes; those of the writer underneath.
    pub fn write(&mut self, timestamp: Timestamp, wire_len: u32, data: &[u8]) -> io::Result<()> {
        let Some(captured) = u32::try_from(data.len()).ok().filter(|len| *len <= MAX_PACKET_LEN) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "packet longer than pcap readers accept",
            ));
        };
        let nanos = timestamp.as_nanos() % 1_000_000_000;
        let fraction = match self.precision {
            Precision::Micros => nanos / 1_000,
            Precision::Nanos => nanos,
        };
        for word in [timestamp.as_secs() as u32, fraction as u32, captured, wire_len] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.out.write_all(data)
    }

    /// Gives the writer underneath back.
    pub fn into_inner(self) -> W {
        self.out
    }
}
