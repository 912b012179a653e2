// SPDX-License-Identifier: Apache-2.0
//! Streams and refusals of guests, for queries (`bartizan guest list`, `bartizan guest status`).

use crate::queries::lock;
use bartizan_base::{Decision, FunctionId, Timestamp};
use bartizan_events::metrics as m;
use bartizan_events::metrics::Exposition;
use bartizan_events::time_text;
use bartizan_toe::engine::{EngineControl, GuestReport, StreamReport};
use bartizan_toe::inspect::{StreamId, StreamInfo};
use bartizan_toe::reason::StreamRefusal;
use serde_json::{Map, Value, json};
use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Blocked streams that are kept for queries, of all guests.
pub const BLOCKED_KEPT: usize = 256;

/// The socket at which programs of a guest are started.
#[derive(Debug)]
pub(super) struct GuestDoor {
    pub(super) name: Arc<str>,
    pub(super) path: PathBuf,
    /// Device and inode of the file.
    pub(super) file: (u64, u64),
}

impl Drop for GuestDoor {
    fn drop(&mut self) {
        use std::os::unix::fs::MetadataExt as _;
        // Another program may have replaced the file.
        let found = std::fs::symlink_metadata(&self.path).map(|found| (found.dev(), found.ino()));
        if found.is_ok_and(|found| found == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A stream that a policy has blocked.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockedStream {
    pub(super) stream: StreamInfo,
    pub(super) at: Timestamp,
    pub(super) decision: Decision,
}

/// The state of all guests; see the module.
#[derive(Debug)]
pub struct GuestView {
    engine: EngineControl,
    doors: Vec<GuestDoor>,
    /// Names of the functions, by their bit in paths.
    functions: Vec<&'static str>,
    /// The newest is last.
    blocked: Mutex<VecDeque<BlockedStream>>,
    /// Streams whose flows are bypassed. Bounded as the streams themselves.
    bypassed: Mutex<HashSet<StreamId>>,
}

impl GuestView {
    pub(super) fn new(engine: EngineControl, doors: Vec<GuestDoor>, functions: Vec<&'static str>) -> Self {
        GuestView { engine, doors, functions, blocked: Mutex::default(), bypassed: Mutex::default() }
    }

    /// The name of a guest.
    pub(super) fn name(&self, guest: u16) -> Arc<str> {
        self.doors.get(usize::from(guest)).map(|door| Arc::clone(&door.name)).unwrap_or_default()
    }

    /// Notes whether a stream's flow is bypassed.
    pub(super) fn note_bypassed(&self, stream: StreamId, is_bypassed: bool) {
        let mut bypassed = lock(&self.bypassed);
        if is_bypassed {
            bypassed.insert(stream);
        } else if !bypassed.is_empty() {
            bypassed.remove(&stream);
        }
    }

    /// Keeps a blocked stream for queries.
    pub(super) fn note(&self, blocked: BlockedStream) {
        let mut kept = lock(&self.blocked);
        if kept.len() == BLOCKED_KEPT {
            kept.pop_front();
        }
        kept.push_back(blocked);
    }

    /// All guests: processes, streams, bytes, refusals.
    ///
    /// # Errors
    /// The engine has ended.
    pub fn list(&self) -> Result<Map<String, Value>, String> {
        let report = self.engine.report().map_err(|error| error.to_string())?;
        let guests: Vec<Value> = report.guests.iter().map(|guest| self.guest(guest)).collect();
        Ok(Map::from_iter([("count".to_owned(), guests.len().into()), ("guests".to_owned(), guests.into())]))
    }

    /// Adds the counters of all guests to a page of metrics; none once the engine has ended.
    pub fn add_metrics(&self, page: &mut Exposition) {
        let Ok(report) = self.engine.report() else { return };
        for guest in &report.guests {
            let name = self.name(guest.guest);
            let now = [("streams", guest.streams), ("processes", guest.processes), ("bytes", guest.bytes)];
            for (what, count) in now {
                page.add(&m::GUEST_NOW, &[&name, what], count as u64);
            }
            let by_tcp = guest.connections.saturating_sub(guest.local_connections);
            page.add(&m::GUEST_CONNECTIONS, &[&name, "tcp"], by_tcp);
            page.add(&m::GUEST_CONNECTIONS, &[&name, "local"], guest.local_connections);
            page.add(&m::GUEST_BYTES, &[&name, "out"], guest.sent);
            page.add(&m::GUEST_BYTES, &[&name, "in"], guest.received);
            for reason in StreamRefusal::ALL {
                page.add(&m::GUEST_REFUSED, &[&name, reason.name()], guest.refused.of(*reason));
            }
        }
    }

    fn guest(&self, report: &GuestReport) -> Value {
        let refused: Map<String, Value> = StreamRefusal::ALL
            .iter()
            .filter(|reason| report.refused.of(**reason) > 0)
            .map(|reason| (reason.name().to_owned(), report.refused.of(*reason).into()))
            .collect();
        let socket = self.doors.get(usize::from(report.guest)).map(|door| door.path.display().to_string());
        json!({
            "guest": &*self.name(report.guest),
            "socket": socket,
            "processes": report.processes,
            "streams": report.streams,
            "connections": report.connections,
            "connections_without_tcp": report.local_connections,
            "bytes": {"sent": report.sent, "received": report.received, "held": report.bytes},
            "refused": refused,
        })
    }

    /// The streams of a guest, or of all, and those that were blocked last.
    ///
    /// # Errors
    /// The engine has ended, or there is no such guest.
    pub fn status(&self, guest: Option<&str>) -> Result<Map<String, Value>, String> {
        if let Some(name) = guest.filter(|name| !self.doors.iter().any(|door| *door.name == **name)) {
            let known: Vec<&str> = self.doors.iter().map(|door| &*door.name).collect();
            return Err(format!("`{name}` is not a guest of this run; guests are {}", known.join(", ")));
        }
        let is_asked = |stream: &StreamInfo| guest.is_none_or(|name| *self.name(stream.guest) == *name);
        let streams = self.engine.streams().map_err(|error| error.to_string())?;
        let streams = streams.iter().filter(|report| is_asked(&report.info));
        let streams: Vec<Value> = streams.map(|report| self.stream(report)).collect();
        let kept = lock(&self.blocked).clone();
        let blocked = kept.iter().rev().filter(|blocked| is_asked(&blocked.stream));
        let blocked: Vec<Value> = blocked.map(|blocked| self.blocked(blocked)).collect();
        Ok(Map::from_iter([("streams".to_owned(), streams.into()), ("blocked".to_owned(), blocked.into())]))
    }

    fn stream(&self, report: &StreamReport) -> Value {
        let mut told = self.properties(&report.info);
        let verdict = match report.refused {
            Some(_) => "drop",
            None if report.held > 0 => "hold",
            None if lock(&self.bypassed).contains(&report.info.id) => "bypass",
            None => "pass",
        };
        told.insert("verdict".to_owned(), verdict.into());
        if let Some(reason) = report.refused {
            told.insert("reason".to_owned(), reason.name().into());
        }
        let bytes = json!({"sent": report.sent, "received": report.received, "held": report.held});
        told.insert("bytes".to_owned(), bytes);
        Value::Object(told)
    }

    fn blocked(&self, blocked: &BlockedStream) -> Value {
        let mut told = self.properties(&blocked.stream);
        let Decision { verdict, reason, function, rule, .. } = blocked.decision;
        told.insert("time".to_owned(), time_text(blocked.at).into());
        told.insert("verdict".to_owned(), verdict.name().into());
        let function = match function {
            FunctionId::ENGINE => Some("engine"),
            id => self.functions.get(usize::from(id.0)).copied(),
        };
        told.insert("function".to_owned(), function.into());
        told.insert("reason".to_owned(), reason.map(bartizan_base::Reason::name).into());
        if let Some(rule) = rule {
            told.insert("rule".to_owned(), rule.get().into());
        }
        Value::Object(told)
    }

    fn properties(&self, stream: &StreamInfo) -> Map<String, Value> {
        let (client, server) =
            if stream.accepted { (stream.peer, stream.local) } else { (stream.local, stream.peer) };
        let mut told = Map::new();
        told.insert("stream".to_owned(), stream.id.0.into());
        told.insert("guest".to_owned(), (*self.name(stream.guest)).into());
        told.insert("pid".to_owned(), stream.process.into());
        told.insert("client".to_owned(), client.to_string().into());
        told.insert("server".to_owned(), server.to_string().into());
        if stream.is_datagram {
            told.insert("protocol".to_owned(), "udp".into());
        }
        told.insert("side".to_owned(), if stream.accepted { "server" } else { "client" }.into());
        if let Some(partner) = stream.partner {
            told.insert("peer_guest".to_owned(), (*self.name(partner.guest)).into());
        }
        told
    }
}
