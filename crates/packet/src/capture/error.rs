// SPDX-License-Identifier: Apache-2.0
//! Errors of capture files, in messages that say what to do.

use std::io;

/// The reason why a capture could not be opened, or why reading ended before its end. Offsets are in bytes
/// from the start of the file; for a compressed file, of the decompressed data (the name then says so).
///
/// Every record that was complete before the error has been delivered.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// No bytes at all.
    #[error(
        "{name}: the file is empty; check that the capturing program has written and closed it, and that this is the right file"
    )]
    Empty {
        /// The capture.
        name: String,
    },
    /// The first bytes belong to no supported capture format.
    #[error(
        "{name}: not a capture file: it starts with {start} where pcap or pcapng has its magic number{hint}"
    )]
    NotACapture {
        /// The capture.
        name: String,
        /// The first bytes, printable.
        start: String,
        /// A guess at the file's kind, and the way to get a capture from it; empty when unknown.
        hint: &'static str,
    },
    /// The format is known, its version is not.
    #[error(
        "{name}: {format} version {major}.{minor} at offset {offset} is not supported (only {supported}); convert the file, for example with `editcap -F pcapng {name} new.pcapng`"
    )]
    UnsupportedVersion {
        /// The capture.
        name: String,
        /// `pcap` or `pcapng`.
        format: &'static str,
        /// The offset of the header with the version.
        offset: u64,
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
        /// The supported versions.
        supported: &'static str,
    },
    /// The file ends before its header does.
    #[error(
        "{name}: the file ends inside its {format} header ({have} of {need} bytes are present), so no packet can be read; copy or capture it again"
    )]
    HeaderCut {
        /// The capture.
        name: String,
        /// `pcap` or `pcapng`.
        format: &'static str,
        /// Bytes in the file.
        have: u64,
        /// Bytes that the header needs.
        need: u64,
    },
    /// A packet's length is impossible.
    #[error(
        "{name}: packet {number} at offset {offset} claims {length} captured bytes (limit {limit}); the file is damaged there. The packets before it were read; a repair tool such as pcapfix may recover the rest"
    )]
    RecordLength {
        /// The capture.
        name: String,
        /// Number of the packet, from 1.
        number: u64,
        /// The offset of its record.
        offset: u64,
        /// The length that the record claims, in bytes.
        length: u64,
        /// The most bytes accepted.
        limit: u64,
    },
    /// A pcapng block's length is impossible.
    #[error(
        "{name}: the pcapng block of type {kind:#010x} at offset {offset} has length {length}, {problem}; the file is damaged there. The packets before it were read; a repair tool such as pcapfix may recover the rest"
    )]
    BlockLength {
        /// The capture.
        name: String,
        /// Block type.
        kind: u32,
        /// The offset of the block.
        offset: u64,
        /// Its length field.
        length: u32,
        /// The reason why the block is impossible.
        problem: &'static str,
    },
    /// A pcapng section header without a known byte-order mark.
    #[error(
        "{name}: the pcapng section at offset {offset} has the byte-order mark {mark:#010x} where 0x1a2b3c4d is expected; the file is damaged there. The packets before it were read"
    )]
    SectionHeader {
        /// The capture.
        name: String,
        /// The offset of the section.
        offset: u64,
        /// The byte-order mark found.
        mark: u32,
    },
    /// A packet names an interface that its section does not describe.
    #[error(
        "{name}: the packet block at offset {offset} belongs to interface {interface}, but its section describes only {known}, so its link type is unknown; the packets before it were read. Write the file again with a current tool, or repair it"
    )]
    UnknownInterface {
        /// The capture.
        name: String,
        /// The offset of the packet's block.
        offset: u64,
        /// The interface it names.
        interface: u32,
        /// The number of interfaces that the section has described so far.
        known: u32,
    },
    /// More interfaces than any real capture has.
    #[error(
        "{name}: the section describes more than {limit} interfaces (offset {offset}); the file is damaged or made to exhaust memory. The packets before it were read; split it with `editcap` if it is genuine"
    )]
    TooManyInterfaces {
        /// The capture.
        name: String,
        /// The offset of the description of the interface that exceeds the bound.
        offset: u64,
        /// The limit.
        limit: usize,
    },
    /// The operating system's read failed.
    #[error(
        "{name}: reading failed at offset {offset}: {source}; the packets before it were read; check the disk or the pipe"
    )]
    Io {
        /// The capture.
        name: String,
        /// The offset that reading reached.
        offset: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// The compressed data is damaged.
    #[error(
        "{name}: the {format} data is damaged (after {offset} decompressed bytes): {source}; the packets before it were read; check the file with `{format} -t`"
    )]
    Decompress {
        /// The capture.
        name: String,
        /// `gzip` or `zstd`.
        format: &'static str,
        /// The number of good decompressed bytes.
        offset: u64,
        /// The decompressor's error.
        source: io::Error,
    },
}
