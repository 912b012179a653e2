// SPDX-License-Identifier: Apache-2.0
//! Captures in reading order: files, the files of a folder (the oldest first, as in Suricata), standard input
//! (`-`).
//!
//! All captures are checked before any output is written. A named file must be a capture; files of a folder
//! that are none are reported and skipped. A signal ends the reading between two packets: packets read so far
//! are inspected and written.

use crate::error::Failure;
use crate::input;
use crate::poll::wait_readable;
use crate::requests::Requests;
use bartizan_base::LinkId;
use bartizan_dataplane::worker::Frame;
use bartizan_dataplane::workers::PoolError;
use bartizan_events::sink::SinkWatch;
use bartizan_packet::LinkType;
use bartizan_packet::capture::{CaptureEnd, CaptureReader};
use bartizan_ports::PacketFilter;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// Interval in which a wait for standard input checks for a signal to end.
const LOOK: Duration = Duration::from_millis(100);

/// A capture and the link that its packets enter by.
pub struct LinkCapture {
    link: LinkId,
    source: CaptureInput,
}

enum CaptureInput {
    /// A source that can be opened only once: standard input, pipes.
    Open(Box<CaptureReader>),
    /// A file that is opened when its turn comes: a folder may have more files than a process may open.
    File(PathBuf),
}

/// The captures to be read.
pub struct Found {
    /// Captures in reading order.
    pub captures: Vec<LinkCapture>,
    /// Files of folders that are no captures, with the reason.
    pub skipped: Vec<String>,
}

/// Opens the named captures. `links`: one for each name; all files of a folder have its link.
///
/// # Errors
/// A file does not exist or is no capture, or a folder has none.
pub fn open(names: &[PathBuf], links: &[LinkId], requests: &'static Requests) -> Result<Found, Failure> {
    let mut found = Found { captures: Vec::new(), skipped: Vec::new() };
    if names.iter().filter(|name| is_stdin(name)).count() > 1 {
        return Err(Failure::usage("`-` is standard input, which can be read once; name it once"));
    }
    for (name, link) in names.iter().zip(links) {
        if is_stdin(name) {
            let reader = StandardInput::open(requests)?;
            found.captures.push(LinkCapture { link: *link, source: CaptureInput::Open(Box::new(reader)) });
        } else if name.is_dir() {
            found.add_folder(name, *link)?;
        } else {
            found.captures.push(LinkCapture { link: *link, source: look_at(name)? });
        }
    }
    Ok(found)
}

impl Found {
    fn add_folder(&mut self, folder: &Path, link: LinkId) -> Result<(), Failure> {
        let failed = |error: io::Error| {
            Failure::input(format!(
                "cannot read the folder {}: {error}; check who may read it",
                folder.display()
            ))
        };
        let mut files = Vec::new();
        let mut folders = 0u64;
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            match std::fs::metadata(&path) {
                Ok(about) if about.is_dir() => folders += 1,
                Ok(about) => files.push((about.modified().ok(), path)),
                Err(error) => self.skip(format!("{}: {error}", path.display())),
            }
        }
        files.sort();
        if folders > 0 {
            info!("note: {}: its {folders} folders are not looked into; name them as well", folder.display());
        }
        let before = self.captures.len();
        for (_, path) in files {
            match look_at(&path) {
                Ok(source) => self.captures.push(LinkCapture { link, source }),
                Err(error) => self.skip(error.to_string()),
            }
        }
        if self.captures.len() == before {
            return Err(Failure::input(format!(
                "no capture is in the folder {}; check the path",
                folder.display()
            )));
        }
        Ok(())
    }

    fn skip(&mut self, why: String) {
        warn!("{why}; it is skipped");
        self.skipped.push(why);
    }
}

fn is_stdin(name: &Path) -> bool {
    name.as_os_str() == "-"
}

/// The source of a file that is a capture.
fn look_at(path: &Path) -> Result<CaptureInput, Failure> {
    let file = input::open(path, "capture")?;
    let again = file.metadata().is_ok_and(|about| about.is_file());
    let reader = CaptureReader::new(file, path.display().to_string()).map_err(Failure::input)?;
    Ok(if again { CaptureInput::File(path.to_owned()) } else { CaptureInput::Open(Box::new(reader)) })
}

/// Standard input, which ends when a signal requests the end.
struct StandardInput {
    /// A separate descriptor: data that the standard library has read ahead could not be polled for.
    file: File,
    requests: &'static Requests,
}

impl StandardInput {
    fn open(requests: &'static Requests) -> Result<CaptureReader, Failure> {
        let own = io::stdin().as_fd().try_clone_to_owned();
        let file =
            own.map_err(|error| Failure::input(format!("cannot read standard input: {error}")))?.into();
        CaptureReader::new(StandardInput { file, requests }, "-").map_err(Failure::input)
    }
}

impl Read for StandardInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !wait_readable(self.file.as_fd(), LOOK) {
            if self.requests.is_stopped() {
                return Err(io::Error::new(ErrorKind::ConnectionAborted, STOPPED));
            }
        }
        self.file.read(buffer)
    }
}

const STOPPED: &str = "stopped by a signal; the rest was not read";

/// Receiver of the frames of captures.
pub trait Taker {
    /// Sets the capture that the following frames come from.
    fn enter_capture(&mut self, name: &str) -> Result<(), PoolError>;
    /// Takes a frame.
    fn frame(&mut self, frame: &Frame<'_>) -> Result<(), PoolError>;
}

/// Reads captures into a taker.
pub struct Reading<'r> {
    taker: &'r mut dyn Taker,
    /// Outputs, for signals that request to reopen them.
    outputs: Vec<Arc<SinkWatch>>,
    requests: &'static Requests,
    /// Number of packets so far.
    number: u64,
    filter: Filter,
}

/// Filter of the packets to be inspected, in tcpdump's language.
#[derive(Default)]
pub struct Filter {
    expression: Option<String>,
    /// Compiled filters by link type.
    compiled: Vec<(u32, PacketFilter)>,
    /// Packets that are not inspected.
    pub left_out: u64,
}

impl Filter {
    /// A filter. Compiles the expression for Ethernet at once, so that errors are reported before any output
    /// is written.
    pub fn new(expression: Option<&str>) -> Result<Self, Failure> {
        let mut filter = Filter { expression: expression.map(str::to_owned), ..Filter::default() };
        if expression.is_some() {
            filter.compile(LinkType::ETHERNET.0.into()).map_err(Failure::input)?;
        }
        Ok(filter)
    }

    fn compile(&mut self, link_type: u32) -> Result<(), String> {
        let Some(expression) = &self.expression else { return Ok(()) };
        let compiled = PacketFilter::compile(expression, link_type)
            .map_err(|error| format!("--filter, for packets of link type {link_type}: {error}"))?;
        self.compiled.push((link_type, compiled));
        Ok(())
    }

    /// Whether a packet is inspected. An error: the filter cannot be compiled for the link type.
    fn lets_through(&mut self, link_type: u32, bytes: &[u8], wire_len: u32) -> Result<bool, String> {
        if self.expression.is_none() {
            return Ok(true);
        }
        if !self.compiled.iter().any(|(known, _)| *known == link_type) {
            self.compile(link_type)?;
        }
        let filter = self.compiled.iter().find(|(known, _)| *known == link_type);
        let matches = filter.is_none_or(|(_, filter)| filter.matches(bytes, wire_len));
        self.left_out += u64::from(!matches);
        Ok(matches)
    }
}

impl<'r> Reading<'r> {
    /// A reading for a taker and the outputs of its events.
    pub fn new(
        taker: &'r mut dyn Taker,
        outputs: Vec<Arc<SinkWatch>>,
        (filter, requests): (Filter, &'static Requests),
    ) -> Self {
        Reading { taker, outputs, requests, number: 0, filter }
    }

    /// Reads captures one after the other. Returns those that could not be read to their end, with the
    /// reason, and the number of packets that the filter left out.
    pub fn all(mut self, captures: Vec<LinkCapture>) -> Result<(Vec<String>, u64), PoolError> {
        let mut incomplete = Vec::new();
        for LinkCapture { link, source } in captures {
            let reader = match source {
                CaptureInput::Open(reader) => Ok(*reader),
                CaptureInput::File(path) => input::open(&path, "capture").and_then(|file| {
                    CaptureReader::new(file, path.display().to_string()).map_err(Failure::input)
                }),
            };
            let why = match reader {
                Ok(reader) => self.one(reader, link)?,
                Err(error) => Some(error.to_string()),
            };
            if let Some(why) = why {
                warn!("{why}");
                incomplete.push(why);
            }
        }
        Ok((incomplete, self.filter.left_out))
    }

    /// Carries out pending signals. Returns whether to end.
    fn obeys(&self) -> bool {
        if self.requests.take_reopen() {
            self.outputs.iter().for_each(|output| output.ask_reopen());
        }
        if self.requests.take_reload() {
            info!("note: SIGUSR2 is for `bartizan run`; captures are inspected with the rules of the start");
        }
        self.requests.is_stopped()
    }

    /// Reads a capture to its end. `Some`: the reason why it ended early.
    fn one(&mut self, mut reader: CaptureReader, link: LinkId) -> Result<Option<String>, PoolError> {
        self.taker.enter_capture(reader.name())?;
        let mut unsupported = (0u64, 0u32);
        let failed = loop {
            if self.obeys() {
                break Some(format!("{}: {STOPPED}", reader.name()));
            }
            match reader.next() {
                Ok(Some(record)) => {
                    self.number += 1;
                    match self.filter.lets_through(record.link_type, record.data, record.wire_len) {
                        Ok(true) => {}
                        Ok(false) => continue,
                        Err(error) => break Some(format!("{}: {error}", reader.name())),
                    }
                    let link_type =
                        LinkType::from_capture(u16::try_from(record.link_type).unwrap_or(u16::MAX));
                    if !link_type.is_supported() {
                        unsupported = (unsupported.0 + 1, record.link_type);
                    }
                    let frame = Frame {
                        now: record.timestamp,
                        bytes: record.data,
                        wire_len: record.wire_len,
                        link_type,
                        link,
                        number: Some(self.number),
                    };
                    self.taker.frame(&frame)?;
                }
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        if unsupported.0 > 0 {
            let known: Vec<String> = LinkType::SUPPORTED.iter().map(ToString::to_string).collect();
            warn!(
                "{}: {} packets have a link type that is not supported ({}) and were only counted; supported are {}: capture it again on such an interface, or convert it",
                reader.name(),
                unsupported.0,
                unsupported.1,
                known.join(", ")
            );
        }
        Ok(match (&failed, &reader.status().end) {
            (Some(_), _) => failed,
            (None, CaptureEnd::BrokeOff { .. }) => {
                reader.status().notice().map(|n| format!("{}: {n}", reader.name()))
            }
            _ => {
                if let Some(notice) = reader.status().notice() {
                    info!("note: {}: {notice}", reader.name());
                }
                None
            }
        })
    }
}

/// Reads a capture until its end or until `take` has enough.
pub fn frames(path: &Path, link: LinkId, mut take: impl FnMut(&Frame<'_>) -> bool) -> Result<(), Failure> {
    let file = input::open(path, "capture")?;
    let mut reader = CaptureReader::new(file, path.display().to_string()).map_err(Failure::input)?;
    let mut number = 0;
    loop {
        match reader.next() {
            Ok(Some(record)) => {
                number += 1;
                let frame = Frame {
                    now: record.timestamp,
                    bytes: record.data,
                    wire_len: record.wire_len,
                    link_type: LinkType::from_capture(u16::try_from(record.link_type).unwrap_or(u16::MAX)),
                    link,
                    number: Some(number),
                };
                if !take(&frame) {
                    return Ok(());
                }
            }
            Ok(None) => break,
            Err(error) => {
                warn!("{error}; read as far as it goes");
                break;
            }
        }
    }
    if let Some(notice) = reader.status().notice() {
        info!("note: {}: {notice}", path.display());
    }
    Ok(())
}
