// SPDX-License-Identifier: Apache-2.0
//! What can go wrong with a capture file, in words that say what to do.

use std::io;

/// Why a capture could not be opened, or why reading ended before its end. Offsets are in bytes from
/// the start of the file; for a compressed file, of what comes out of it (the name then says so).
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
    /// The first bytes belong to no capture format that is read here.
    #[error(
        "{name}: not a capture file: it starts with {start} where pcap or pcapng has its magic number{hint}"
    )]
    NotACapture {
        /// The capture.
        name: String,
        /// The first bytes, printable.
        start: String,
        /// What the file may be and how to get a capture from it; empty when unknown.
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
        /// Where the header with the version starts.
        offset: u64,
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
        /// What is supported.
        supported: &'static str,
    },
    /// The file ends before its header does.
    #[error(
        "{name}: the file ends inside its {format} header ({have} of {need} bytes are there), so no packet can be read; copy or capture it again"
    )]
    HeaderCut {
        /// The capture.
        name: String,
        /// `pcap` or `pcapng`.
        format: &'static str,
        /// Bytes that are there.
        have: u64,
        /// Bytes that the header needs.
        need: u64,
    },
    /// A packet's length cannot be true.
    #[error(
        "{name}: packet {number} at offset {offset} claims {length} captured bytes (limit {limit}); the file is damaged there. The packets before it were read; what follows needs a repair tool such as pcapfix"
    )]
    RecordLength {
        /// The capture.
        name: String,
        /// Number of the packet, from 1.
        number: u64,
        /// Where its record starts.
        offset: u64,
        /// What the record claims.
        length: u64,
        /// The most that is accepted there.
        limit: u64,
    },
    /// A pcapng block's length cannot be true.
    #[error(
        "{name}: the pcapng block of type {kind:#010x} at offset {offset} has length {length}, {problem}; the file is damaged there. The packets before it were read; what follows needs a repair tool such as pcapfix"
    )]
    BlockLength {
        /// The capture.
        name: String,
        /// Block type.
        kind: u32,
        /// Where the block starts.
        offset: u64,
        /// Its length field.
        length: u32,
        /// Why that cannot be.
        problem: &'static str,
    },
    /// A pcapng section header without a known byte-order mark.
    #[error(
        "{name}: the pcapng section at offset {offset} has the byte-order mark {mark:#010x} where 0x1a2b3c4d is expected; the file is damaged there. The packets before it were read"
    )]
    SectionHeader {
        /// The capture.
        name: String,
        /// Where the section starts.
        offset: u64,
        /// What stands there.
        mark: u32,
    },
    /// A packet names an interface that its section does not describe.
    #[error(
        "{name}: the packet block at offset {offset} belongs to interface {interface}, but its section describes only {known}, so its link type is unknown; the packets before it were read. Write the file again with a current tool, or repair it"
    )]
    UnknownInterface {
        /// The capture.
        name: String,
        /// Where the packet's block starts.
        offset: u64,
        /// The interface it names.
        interface: u32,
        /// How many interfaces the section has described so far.
        known: u32,
    },
    /// More interfaces than any real capture has.
    #[error(
        "{name}: the section describes more than {limit} interfaces (offset {offset}); the file is damaged or made to exhaust memory. The packets before it were read; split it with `editcap` if it is genuine"
    )]
    TooManyInterfaces {
        /// The capture.
        name: String,
        /// Where the interface too many is described.
        offset: u64,
        /// The limit.
        limit: usize,
    },
    /// The operating system could not read on.
    #[error(
        "{name}: reading failed at offset {offset}: {source}; what was before was read, check the disk or the pipe"
    )]
    Io {
        /// The capture.
        name: String,
        /// How far reading came.
        offset: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// The compressed data is damaged.
    #[error(
        "{name}: the {format} data is damaged (after {offset} decompressed bytes): {source}; what was before was read, check the file with `{format} -t`"
    )]
    Decompress {
        /// The capture.
        name: String,
        /// `gzip` or `zstd`.
        format: &'static str,
        /// How many decompressed bytes were good.
        offset: u64,
        /// What the decompressor said.
        source: io::Error,
    },
}
