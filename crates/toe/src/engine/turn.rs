// SPDX-License-Identifier: Apache-2.0
//! A turn of the engine: descriptors of rings, events, deadlines, orders.

use super::config::EngineReport;
use super::control::Command;
use super::guest::Guest;
use super::{Engine, EventSource, MemberKey, RING_BATCH};
use crate::clock::now;
use crate::inspect::PayloadInspector;
use rustix::event::epoll;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The engine while it serves guests, with the inspector that sees their payloads.
pub(super) struct EngineTurn<'t> {
    pub(super) engine: &'t mut Engine,
    pub(super) inspector: &'t mut dyn PayloadInspector,
}

impl Deref for EngineTurn<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.engine
    }
}

impl DerefMut for EngineTurn<'_> {
    fn deref_mut(&mut self) -> &mut Engine {
        self.engine
    }
}

impl EngineTurn<'_> {
    /// Serves the events that were found. Returns their number.
    pub(super) fn serve_arrived(&mut self) -> usize {
        let mut arrived = std::mem::take(&mut self.arrived);
        let count = arrived.len();
        for (source, flags) in arrived.drain(..) {
            self.serve(source, flags);
        }
        // The room stays; nothing that is served waits for events.
        self.arrived = arrived;
        count
    }

    fn serve(&mut self, source: EventSource, flags: epoll::EventFlags) {
        match source {
            EventSource::Commands => self.serve_commands(),
            EventSource::Waker => {}
            EventSource::Door(guest) => self.serve_door(guest),
            EventSource::Start(guest, place) => self.serve_start(guest, place, flags),
            EventSource::Channel(key) => self.serve_channel(key, flags),
            EventSource::Bell(key) => self.activate(key),
            EventSource::Socket(key) => self.serve_socket(key, flags),
            EventSource::Token(key) => self.serve_token(key, flags),
        }
    }

    /// Takes the descriptors of all active rings; a ring without any is left to its bell. Returns their
    /// number.
    pub(super) fn serve_rings(&mut self) -> usize {
        if self.active.is_empty() {
            return 0;
        }
        let mut active = std::mem::take(&mut self.active);
        let mut served = 0;
        for key in active.drain(..) {
            let mut taken = 0;
            let stays = loop {
                if taken == RING_BATCH {
                    break true;
                }
                match self.take_descriptor(key) {
                    Some(Some(words)) => {
                        taken += 1;
                        self.serve_descriptor(key, &words);
                    }
                    Some(None) => break !self.sleep_ring(key),
                    None => break false,
                }
            };
            served += taken;
            if stays {
                self.active.push(key);
            }
        }
        if self.active.is_empty() {
            // The room stays.
            self.active = active;
        }
        served
    }

    /// The next descriptor of a ring; `None`: the process is gone, or broke its ring and is cut off.
    fn take_descriptor(&mut self, key: MemberKey) -> Option<Option<crate::descriptor::DescriptorWords>> {
        let guest = self.guest(key.guest)?;
        let segments = Arc::clone(&guest.segments);
        let member = guest.members.get_mut(usize::from(key.ring))?.as_mut()?;
        if let Ok(words) = member.ring.take(&segments.control) {
            return Some(words);
        }
        guest.refuse(crate::reason::StreamRefusal::IndexBounds);
        self.remove_member(key);
        None
    }

    /// Moves payload of the streams that had more than a round's worth. Returns their number.
    pub(super) fn serve_ready(&mut self) -> usize {
        let count = self.ready.len();
        for _ in 0..count {
            let Some(key) = self.ready.pop_front() else { break };
            if let Some(stream) = self.streams.get_mut(key) {
                stream.is_queued = false;
            }
            self.pump(key);
        }
        count
    }

    /// Serves the deadlines that are over. Returns their number.
    pub(super) fn serve_deadlines(&mut self) -> usize {
        if self.deadlines.is_empty() {
            return 0;
        }
        let (mut served, time) = (0, now());
        while let Some((deadline, key)) = self.deadlines.first().copied() {
            if deadline > time {
                break;
            }
            self.deadlines.pop_first();
            self.expire(key);
            served += 1;
        }
        served
    }

    fn serve_commands(&mut self) {
        for command in self.commands.take() {
            match command {
                Command::AddGuest(spec, reply) => {
                    let _ = reply.send(self.add_guest(spec));
                }
                Command::Streams(reply) => {
                    let _ = reply.send(self.stream_reports());
                }
                Command::Report(reply) => {
                    let guests = self.guests.iter().flatten().map(Guest::report).collect();
                    let _ = reply.send(EngineReport { guests });
                }
                Command::Stop => self.stops = true,
            }
        }
    }
}
