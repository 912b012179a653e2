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
use bartizan_base::{LinkId, Timestamp};
use bartizan_dataplane::captures::{Pool, PoolError};
use bartizan_dataplane::source::{Arrivals, Source, Taken};
use bartizan_dataplane::worker::{Frame, Worker};
use bartizan_events::sink::SinkWatch;
use bartizan_offload::level::{FramePassage, FramePath};
use bartizan_packet::capture::{CaptureEnd, CaptureReader};
use bartizan_packet::{Checksums, LinkType};
use bartizan_ports::{PacketFilter, PortError, PortStats, Waker, Woke};
use bartizan_stages::record::Recorder;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;
use tracing::{info, warn};

/// Interval in which a wait for standard input checks for a signal to end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

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

/// Checks that the named files can be opened and are captures, before rules are loaded, which may take
/// seconds.
/// Folders, pipes and standard input are left to [`open`].
///
/// # Errors
/// A file does not exist or is no capture.
pub fn check(names: &[PathBuf]) -> Result<(), Failure> {
    for name in names.iter().filter(|name| !is_stdin(name)) {
        if std::fs::metadata(name).map_or(true, |about| about.is_file()) {
            open_input(name)?;
        }
    }
    Ok(())
}

/// Opens the named captures. `links`: one for each name; all files of a folder have its link.
///
/// # Errors
/// A file does not exist or is no capture, or a folder has none.
pub fn open(names: &[PathBuf], links: &[LinkId], requests: &'static Requests) -> Result<Found, Failure> {
    let mut found = Found { captures: Vec::new(), skipped: Vec::new() };
    if names.iter().filter(|name| is_stdin(name)).count() > 1 {
        return Err(Failure::usage("`-` (standard input) can be read only once; give it once"));
    }
    for (name, link) in names.iter().zip(links) {
        if is_stdin(name) {
            let reader = StandardInput::open(requests)?;
            found.captures.push(LinkCapture { link: *link, source: CaptureInput::Open(Box::new(reader)) });
        } else if name.is_dir() {
            found.add_folder(name, *link)?;
        } else {
            found.captures.push(LinkCapture { link: *link, source: open_input(name)? });
        }
    }
    Ok(found)
}

impl Found {
    fn add_folder(&mut self, folder: &Path, link: LinkId) -> Result<(), Failure> {
        let failed = |error: io::Error| {
            Failure::input(format!(
                "cannot read the folder {}: {error}; check its permissions",
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
            info!("note: {}: its {folders} subfolders are not searched; give them as well", folder.display());
        }
        let before = self.captures.len();
        for (_, path) in files {
            match open_input(&path) {
                Ok(source) => self.captures.push(LinkCapture { link, source }),
                Err(error) => self.skip(error.to_string()),
            }
        }
        if self.captures.len() == before {
            return Err(Failure::input(format!(
                "the folder {} contains no capture; check the path",
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
fn open_input(path: &Path) -> Result<CaptureInput, Failure> {
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
        while !wait_readable(self.file.as_fd(), POLL_INTERVAL) {
            if self.requests.is_stopped() {
                return Err(io::Error::new(ErrorKind::ConnectionAborted, STOPPED));
            }
        }
        self.file.read(buffer)
    }
}

const STOPPED: &str = "stopped by a signal; the remaining packets were not read";

/// Receiver of the frames of captures.
pub trait FrameSink {
    /// Sets the capture that the following frames come from.
    ///
    /// # Errors
    /// A worker is gone.
    fn enter_capture(&mut self, name: &str) -> Result<(), PoolError>;
    /// Takes a frame.
    ///
    /// # Errors
    /// A worker is gone.
    fn frame(&mut self, frame: &Frame<'_>) -> Result<(), PoolError>;
}

impl FrameSink for Arrivals<'_> {
    fn enter_capture(&mut self, name: &str) -> Result<(), PoolError> {
        Arrivals::enter_capture(self, name);
        Ok(())
    }

    fn frame(&mut self, frame: &Frame<'_>) -> Result<(), PoolError> {
        self.watch(frame, Checksums::Unknown);
        Ok(())
    }
}

/// A worker below which a level of this process sees the frames first. A capture's link has the ports 2n and
/// 2n + 1; its frames come in by the first one.
struct BelowSink<'s, 'd> {
    arrivals: &'s mut Arrivals<'d>,
    path: &'s dyn FramePath,
}

impl FrameSink for BelowSink<'_, '_> {
    fn enter_capture(&mut self, name: &str) -> Result<(), PoolError> {
        self.arrivals.enter_capture(name);
        Ok(())
    }

    fn frame(&mut self, frame: &Frame<'_>) -> Result<(), PoolError> {
        let port = u8::try_from(frame.link.0.saturating_mul(2)).ok();
        let whole = frame.link_type == LinkType::ETHERNET && frame.bytes.len() == frame.wire_len as usize;
        let passage = port.filter(|_| whole).map(|port| self.path.pass(port, frame.bytes, frame.now));
        match passage {
            None | Some(FramePassage::Up) => self.arrivals.watch(frame, Checksums::Unknown),
            Some(_) => self.arrivals.passed_below(frame.now),
        }
        Ok(())
    }
}

impl<R: Recorder + Send + 'static> FrameSink for Pool<R> {
    fn enter_capture(&mut self, name: &str) -> Result<(), PoolError> {
        Pool::enter_capture(self, name)
    }

    fn frame(&mut self, frame: &Frame<'_>) -> Result<(), PoolError> {
        Pool::frame(self, frame)
    }
}

/// The source of a single worker: captures, one after the other.
pub struct CaptureSource {
    reading: Reading,
    results: Sender<ReadResults>,
    batch: usize,
    clock: Timestamp,
    /// A level of this process that sees the frames first.
    path: Option<Arc<dyn FramePath>>,
}

impl CaptureSource {
    /// A source of what `reading` reads. At the end the results of the reading are sent.
    pub fn new(reading: Reading, path: Option<Arc<dyn FramePath>>) -> (Self, Receiver<ReadResults>) {
        let (results, receiver) = mpsc::channel();
        (CaptureSource { reading, results, batch: 1, clock: Timestamp::ZERO, path }, receiver)
    }
}

impl Source for CaptureSource {
    fn replays(&self) -> bool {
        true
    }

    fn begin(&mut self, _worker: &mut Worker, batch: usize) {
        self.batch = batch;
    }

    fn take(&mut self, arrivals: &mut Arrivals<'_>) -> Result<Taken, PortError> {
        // Only several workers can be lost.
        let read = match &self.path {
            Some(path) => self.reading.read(self.batch, &mut BelowSink { arrivals, path: &**path }),
            None => self.reading.read(self.batch, arrivals),
        };
        let frames = read.unwrap_or_default();
        self.clock = arrivals.clock();
        Ok(Taken { frames, newest: self.clock, has_ended: frames == 0 })
    }

    fn end(&mut self, _worker: &mut Worker) {
        // Who waits for the results waits for this worker.
        let _ = self.results.send(self.reading.take_results());
    }

    fn each_port(&mut self, _each: &mut dyn FnMut(&str, &PortStats, u64)) {}

    fn now(&mut self) -> Timestamp {
        self.clock
    }

    fn busy_poll(&mut self, _else_ready: &dyn Fn() -> bool, _spin: Duration) -> bool {
        true
    }

    fn wait(&mut self, _waker: Option<&Waker>, _timeout: Duration) -> Result<Woke, PortError> {
        Ok(Woke::Packets)
    }
}

/// Results of reading captures.
#[derive(Debug, Default)]
pub struct ReadResults {
    /// Captures that could not be read to their end, with the reason.
    pub incomplete: Vec<String>,
    /// Number of packets that the filter left out.
    pub filtered: u64,
}

/// Reads captures, one after the other.
pub struct Reading {
    captures: std::vec::IntoIter<LinkCapture>,
    current: Option<OpenCapture>,
    /// Outputs, for signals that request to reopen them.
    outputs: Vec<Arc<SinkWatch>>,
    requests: &'static Requests,
    /// Number of packets so far.
    number: u64,
    filter: Filter,
    incomplete: Vec<String>,
}

/// A capture that is being read.
struct OpenCapture {
    reader: CaptureReader,
    link: LinkId,
    /// Number of packets with a link type that is not supported, and the last such type.
    unsupported: u64,
    unsupported_type: u32,
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
    fn matches_filter(&mut self, link_type: u32, bytes: &[u8], wire_len: u32) -> Result<bool, String> {
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

impl Reading {
    /// A reading of captures. `outputs`: the outputs of their events.
    pub fn new(
        captures: Vec<LinkCapture>,
        outputs: Vec<Arc<SinkWatch>>,
        filter: Filter,
        requests: &'static Requests,
    ) -> Self {
        let (captures, incomplete) = (captures.into_iter(), Vec::new());
        Reading { captures, current: None, outputs, requests, number: 0, filter, incomplete }
    }

    /// Reads all captures.
    ///
    /// # Errors
    /// A worker is gone.
    pub fn read_all(mut self, sink: &mut dyn FrameSink) -> Result<ReadResults, PoolError> {
        while self.read(usize::MAX, sink)? > 0 {}
        Ok(self.take_results())
    }

    fn take_results(&mut self) -> ReadResults {
        ReadResults { incomplete: core::mem::take(&mut self.incomplete), filtered: self.filter.left_out }
    }

    /// Reads at most `most` packets, and returns the number that `sink` got. 0: there are no more.
    ///
    /// # Errors
    /// A worker is gone.
    pub fn read(&mut self, most: usize, sink: &mut dyn FrameSink) -> Result<usize, PoolError> {
        let (mut current, mut taken) = (self.current.take(), 0);
        while taken < most {
            let Some(capture) = &mut current else {
                current = self.open_next(sink)?;
                if current.is_none() {
                    break;
                }
                continue;
            };
            match self.next_of(capture, sink)? {
                Next::Taken => taken += 1,
                Next::LeftOut => {}
                Next::End(why) => {
                    self.close(capture, why);
                    current = None;
                }
            }
        }
        self.current = current;
        Ok(taken)
    }

    /// Opens the next capture that can be opened. `None`: there is none.
    fn open_next(&mut self, sink: &mut dyn FrameSink) -> Result<Option<OpenCapture>, PoolError> {
        while let Some(LinkCapture { link, source }) = self.captures.next() {
            let reader = match source {
                CaptureInput::Open(reader) => Ok(*reader),
                CaptureInput::File(path) => input::open(&path, "capture").and_then(|file| {
                    CaptureReader::new(file, path.display().to_string()).map_err(Failure::input)
                }),
            };
            match reader {
                Ok(reader) => {
                    sink.enter_capture(reader.name())?;
                    return Ok(Some(OpenCapture { reader, link, unsupported: 0, unsupported_type: 0 }));
                }
                Err(error) => self.note_incomplete(error.to_string()),
            }
        }
        Ok(None)
    }

    fn note_incomplete(&mut self, why: String) {
        warn!("{why}");
        self.incomplete.push(why);
    }

    /// Carries out pending signals. Returns whether to end.
    fn handle_signals(&self) -> bool {
        if self.requests.take_reopen() {
            self.outputs.iter().for_each(|output| output.request_reopen());
        }
        if self.requests.take_reload() {
            info!(
                "note: SIGUSR2 has no effect on `inspect`: captures are inspected with the rules loaded at the start"
            );
        }
        self.requests.is_stopped()
    }

    /// Reads a capture's next packet.
    fn next_of(&mut self, capture: &mut OpenCapture, sink: &mut dyn FrameSink) -> Result<Next, PoolError> {
        let OpenCapture { reader, link, unsupported, unsupported_type } = capture;
        if self.handle_signals() {
            return Ok(Next::End(Some(format!("{}: {STOPPED}", reader.name()))));
        }
        let record = match reader.next() {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(Next::End(None)),
            Err(error) => return Ok(Next::End(Some(error.to_string()))),
        };
        self.number += 1;
        match self.filter.matches_filter(record.link_type, record.data, record.wire_len) {
            Ok(true) => {}
            Ok(false) => return Ok(Next::LeftOut),
            Err(error) => return Ok(Next::End(Some(format!("{}: {error}", reader.name())))),
        }
        let link_type = LinkType::from_capture(u16::try_from(record.link_type).unwrap_or(u16::MAX));
        if !link_type.is_supported() {
            *unsupported += 1;
            *unsupported_type = record.link_type;
        }
        sink.frame(&Frame {
            now: record.timestamp,
            bytes: record.data,
            wire_len: record.wire_len,
            link_type,
            link: *link,
            number: Some(self.number),
        })?;
        Ok(Next::Taken)
    }

    /// Logs what became of a capture. `failed`: the reason why it ended early.
    fn close(&mut self, capture: &OpenCapture, failed: Option<String>) {
        let OpenCapture { reader, unsupported, unsupported_type, .. } = capture;
        if *unsupported > 0 {
            let known: Vec<String> = LinkType::SUPPORTED.iter().map(ToString::to_string).collect();
            warn!(
                "{}: {unsupported} packets have an unsupported link type ({unsupported_type}) and were counted only; supported are {}; capture on such an interface, or convert the file",
                reader.name(),
                known.join(", ")
            );
        }
        let notice = reader.status().notice().map(|notice| format!("{}: {notice}", reader.name()));
        let why = match (failed, &reader.status().end) {
            (Some(failed), _) => Some(failed),
            (None, CaptureEnd::BrokeOff { .. }) => notice,
            _ => {
                if let Some(notice) = notice {
                    info!("note: {notice}");
                }
                None
            }
        };
        if let Some(why) = why {
            self.note_incomplete(why);
        }
    }
}

/// Result of reading a capture's next packet.
enum Next {
    Taken,
    /// The filter leaves it out.
    LeftOut,
    /// The capture has ended, early for the given reason.
    End(Option<String>),
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
                warn!("{error}; the packets before that were inspected");
                break;
            }
        }
    }
    if let Some(notice) = reader.status().notice() {
        info!("note: {}: {notice}", path.display());
    }
    Ok(())
}
