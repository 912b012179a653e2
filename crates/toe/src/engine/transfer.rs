// SPDX-License-Identifier: Apache-2.0
//! Moving payload: from the program's buffer through the inspector to the socket or the other guest, and
//! from the socket through the inspector to the program's buffer.

use super::config::{LEAST, PENDING_MOST};
use super::pipe::{HoldLimits, PipeStage, StageRefusal};
use super::slab::StreamKey;
use super::stream::{ConnectionState, EngineStream};
use super::{EngineTurn, StreamReport};
use crate::clock::now;
use crate::inspect::PayloadDirection::{Incoming, Outgoing};
use crate::layout::state;
use crate::reason::StreamRefusal;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send};
use std::sync::atomic::Ordering::SeqCst;

/// Times that a direction is served before other streams have their turn.
const ROUNDS: usize = 4;

/// The end of a stream's payload.
#[derive(Clone, Copy, Debug)]
enum TransferEnd {
    /// A verdict, a limit, or a guest that does not keep to the rules.
    Refused(StreamRefusal),
    /// A verdict or limit of the receiving guest.
    RefusedByReceiver(StreamRefusal),
    /// The connection is gone.
    Broken(Errno),
}

impl From<StreamRefusal> for TransferEnd {
    fn from(reason: StreamRefusal) -> TransferEnd {
        TransferEnd::Refused(reason)
    }
}

impl From<StageRefusal> for TransferEnd {
    fn from(refusal: StageRefusal) -> TransferEnd {
        match refusal.is_receivers {
            true => TransferEnd::RefusedByReceiver(refusal.reason),
            false => TransferEnd::Refused(refusal.reason),
        }
    }
}

/// Whether a direction has more to move at once.
type MoreToMove = bool;

impl EngineTurn<'_> {
    /// Events of a stream's socket.
    pub(super) fn serve_socket(&mut self, key: StreamKey, flags: EventFlags) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        match stream.state {
            ConnectionState::Listening => {
                stream.readable = true;
                self.accept_connections(key);
            }
            ConnectionState::Connecting => self.finish_connecting(key),
            ConnectionState::Open => {
                let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
                stream.hangup |= flags.intersects(ends);
                stream.readable |= flags.intersects(EventFlags::IN | ends);
                stream.writable |= flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR);
                self.pump(key);
            }
            ConnectionState::Idle | ConnectionState::Dead => {}
        }
    }

    /// The program's descriptor was closed by all who had it.
    pub(super) fn serve_token(&mut self, key: StreamKey, flags: EventFlags) {
        if !flags.contains(EventFlags::HUP) {
            return;
        }
        let Some(mut stream) = self.streams.take(key) else { return };
        stream.closed = true;
        let aborts = stream.slot().is_some_and(|slot| slot.guest.linger.load(SeqCst) == 1);
        let unread = !stream.is_datagram && (stream.has_unread() || stream.inward.len() > 0);
        if stream.state == ConnectionState::Open && !aborts && !unread {
            stream.finish = true;
            let linger = self.guest(stream.guest).map(|guest| guest.spec.limits.linger).unwrap_or_default();
            stream.lingers_until = Some(now() + linger);
            self.streams.put(key, stream);
            self.pump(key);
            return;
        }
        // As the kernel does: unread bytes, or a linger time of zero, reset the connection.
        if stream.state == ConnectionState::Open {
            stream.reset_on_close();
        }
        self.streams.put(key, stream);
        self.end_partner(key);
        self.remove(key);
    }

    /// Moves the payload of a stream in both directions as far as it goes now.
    pub(super) fn pump(&mut self, key: StreamKey) {
        let Some(mut stream) = self.streams.take(key) else { return };
        if stream.state == ConnectionState::Listening || stream.is_datagram {
            let is_datagram = stream.is_datagram;
            self.streams.put(key, stream);
            match is_datagram {
                true => self.pump_datagrams(key),
                false => self.accept_connections(key),
            }
            return;
        }
        let mut more = false;
        if stream.state == ConnectionState::Open {
            let moved = self.move_outward(&mut stream);
            more |= self.end_if_failed(&mut stream, moved);
        }
        if stream.state == ConnectionState::Open && !stream.is_local {
            let moved = self.move_inward(&mut stream);
            more |= self.end_if_failed(&mut stream, moved);
        }
        self.account(&mut stream);
        self.watch_times(&mut stream);
        let is_sent = stream.state != ConnectionState::Open || stream.finish_sent;
        let is_over = stream.closed && is_sent;
        let (partner, unread) = (stream.partner, stream.is_local && stream.has_unread());
        self.streams.put(key, stream);
        if is_over {
            if let Some(other) = partner.and_then(|partner| self.streams.get_mut(partner)) {
                other.partner = None;
                if unread {
                    other.die(Errno::CONNRESET, 0);
                }
            }
            self.remove(key);
        } else if more {
            self.queue(key);
        }
    }

    /// Ends the stream if its payload ended in an error.
    fn end_if_failed(
        &mut self,
        stream: &mut EngineStream,
        moved: Result<MoreToMove, TransferEnd>,
    ) -> MoreToMove {
        match moved {
            Ok(more) => more,
            Err(TransferEnd::Broken(error)) => {
                stream.die(error, 0);
                false
            }
            Err(TransferEnd::Refused(reason)) => {
                self.block(stream, reason);
                false
            }
            Err(TransferEnd::RefusedByReceiver(reason)) => {
                if let Some(key) = stream.partner.take()
                    && let Some(mut other) = self.streams.take(key)
                {
                    other.partner = None;
                    self.block(&mut other, reason);
                    self.streams.put(key, other);
                }
                // The sender learns no more than from a peer that resets.
                stream.die(Errno::CONNRESET, 0);
                false
            }
        }
    }

    /// Blocks a stream: the program gets `EACCES`, the peer a RST.
    pub(super) fn block(&mut self, stream: &mut EngineStream, reason: StreamRefusal) {
        self.count(stream.guest, reason);
        stream.refused = Some(reason);
        (stream.held_until, stream.retry_at) = (None, None);
        if reason == StreamRefusal::IndexBounds {
            stream.die(Errno::CONNRESET, 0);
        } else {
            stream.die(Errno::ACCESS, state::BLOCKED);
        }
        if let Some(other) = stream.partner.take().and_then(|partner| self.streams.get_mut(partner)) {
            other.partner = None;
            other.die(Errno::CONNRESET, 0);
        }
    }

    /// The streams of all guests that are, or were, connected.
    pub(super) fn stream_reports(&mut self) -> Vec<StreamReport> {
        let keys: Vec<_> = self.guests.iter().flatten().flat_map(|guest| guest.streams()).collect();
        let report = |key| {
            let stream = self.streams.get_mut(key)?;
            let stages = if stream.is_local { 2 } else { 1 };
            Some(StreamReport {
                info: stream.info?,
                refused: stream.refused,
                sent: stream.out.total,
                received: stream.received,
                held: (stream.out.held(stages) + stream.inward.held(1)) as u64,
            })
        };
        let mut reports: Vec<StreamReport> = keys.into_iter().filter_map(report).collect();
        reports.sort_by_key(|report| report.info.id);
        reports
    }

    fn hold_limits(&mut self, guest: u16) -> HoldLimits {
        self.guest(guest).map_or(HoldLimits { bytes: 0, fails_open: false }, |guest| HoldLimits {
            bytes: guest.spec.limits.held_bytes,
            fails_open: guest.spec.limits.hold_fails_open,
        })
    }

    /// Bytes that a direction may take in now.
    fn room_for(&mut self, stream: &EngineStream, pending: usize, released: usize, held: usize) -> usize {
        if released >= PENDING_MOST {
            return 0;
        }
        let room = (PENDING_MOST + held).saturating_sub(pending).min(PENDING_MOST);
        let Some(guest) = self.guest(stream.guest) else { return 0 };
        let left = guest.spec.limits.bytes.saturating_sub(guest.bytes);
        // Each direction gets on, however much the guest's other streams have.
        let left = if pending == 0 { left.max(LEAST) } else { left };
        if left == 0 && room > 0 {
            guest.refuse(StreamRefusal::Bytes);
            guest.starved.push_back(stream.key);
        }
        room.min(left)
    }

    fn move_outward(&mut self, stream: &mut EngineStream) -> Result<MoreToMove, TransferEnd> {
        let limits = self.hold_limits(stream.guest);
        let own = stream.info;
        let partner = stream.partner.and_then(|key| self.streams.get_mut(key)).and_then(|other| other.info);
        let (Some(own), stage_count) = (own, if stream.is_local { 2 } else { 1 }) else {
            return Err(StreamRefusal::Admission.into());
        };
        let mut is_full = false;
        if stream.is_local && stream.partner.is_none() && (stream.waiting() > 0 || stream.out.len() > 0) {
            // As a segment to a closed socket, which answers with a RST.
            return Err(TransferEnd::Broken(Errno::PIPE));
        }
        for _ in 0..ROUNDS {
            if let Some(slot) = stream.slot() {
                slot.both.tx_announced.store(0, SeqCst);
            }
            self.account(stream);
            let released = stream.out.released(stage_count).len();
            let room = self.room_for(stream, stream.out.len(), released, limits.bytes);
            stream.out.borrow(&mut self.spare);
            is_full = room == 0;
            let taken = if stream.out.ended { 0 } else { stream.take_transmitted(room)? };
            if taken > 0 {
                stream.notify_writable();
            }
            stream.out.ended |= stream.finish && stream.waiting() == 0;
            let first = PipeStage { info: &own, direction: Outgoing };
            match &partner {
                Some(other) if stream.is_local => {
                    let second = PipeStage { info: other, direction: Incoming };
                    stream.out.inspect(self.inspector, &[first, second], limits)?;
                }
                _ => stream.out.inspect(self.inspector, &[first], limits)?,
            }
            let sent = self.send_released(stream, stage_count)?;
            if (taken == 0 && sent == 0) || (stream.waiting() == 0 && stream.out.len() == 0) {
                break;
            }
        }
        if stream.out.is_done() && !stream.finish_sent {
            stream.finish_sent = true;
            if let Some(other) = stream.partner.and_then(|partner| self.streams.get_mut(partner)) {
                other.show_end();
            } else if let Some(socket) = stream.socket.as_ref().filter(|_| !stream.is_local) {
                let _ = rustix::net::shutdown(socket, Shutdown::Write);
            }
        }
        stream.out.reclaim_buffer(&mut self.spare);
        let is_stuck = is_full || !stream.out.released(stage_count).is_empty();
        Ok(stream.waiting() > 0 && !is_stuck && !stream.out.ended)
    }

    /// Sends what passed all stages; returns the bytes that left.
    fn send_released(&mut self, stream: &mut EngineStream, stages: usize) -> Result<usize, TransferEnd> {
        let mut sent = 0;
        while !stream.out.released(stages).is_empty() {
            let bytes = stream.out.released(stages);
            let count = if stream.is_local {
                let Some(other) = stream.partner.and_then(|partner| self.streams.get_mut(partner)) else {
                    return Err(TransferEnd::Broken(Errno::PIPE));
                };
                match other.deliver(bytes) {
                    Ok(count) => count,
                    Err(reason) => {
                        // The receiver broke its indices; the sender learns that it is gone.
                        let guest = other.guest;
                        other.partner = None;
                        other.die(Errno::CONNRESET, 0);
                        self.count(guest, reason);
                        return Err(TransferEnd::Broken(Errno::CONNRESET));
                    }
                }
            } else if stream.writable {
                let Some(socket) = &stream.socket else { return Err(TransferEnd::Broken(Errno::PIPE)) };
                match send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    Ok(count) => {
                        stream.writable = count == bytes.len();
                        count
                    }
                    Err(Errno::AGAIN) => {
                        stream.writable = false;
                        0
                    }
                    Err(Errno::INTR) => continue,
                    Err(error) => return Err(TransferEnd::Broken(error)),
                }
            } else {
                0
            };
            if count == 0 {
                break;
            }
            stream.out.consume(count);
            sent += count;
        }
        if let Some(guest) = self.guest(stream.guest) {
            guest.counts.sent += sent as u64;
        }
        let partner = stream.partner.filter(|_| sent > 0).and_then(|key| self.streams.get_mut(key));
        if let Some(receiver) = partner.map(|other| other.guest)
            && let Some(guest) = self.guest(receiver)
        {
            guest.counts.received += sent as u64;
        }
        Ok(sent)
    }

    fn move_inward(&mut self, stream: &mut EngineStream) -> Result<MoreToMove, TransferEnd> {
        let limits = self.hold_limits(stream.guest);
        let Some(own) = stream.info else { return Err(StreamRefusal::Admission.into()) };
        let stage = PipeStage { info: &own, direction: Incoming };
        if stream.inward.is_due() {
            stream.inward.inspect(self.inspector, &[stage], limits)?;
        }
        let mut full = false;
        for _ in 0..ROUNDS {
            full = !self.deliver_released(stream)?;
            if full || !stream.readable || stream.inward.ended {
                break;
            }
            self.account(stream);
            let room = self.room_for(stream, stream.inward.len(), 0, limits.bytes);
            if room == 0 {
                break;
            }
            stream.inward.borrow(&mut self.spare);
            self.receive(stream, room);
            stream.inward.inspect(self.inspector, &[stage], limits)?;
        }
        if !full {
            full = !self.deliver_released(stream)?;
        }
        stream.inward.reclaim_buffer(&mut self.spare);
        if stream.inward.is_done() {
            stream.show_end();
        }
        if stream.inward.len() == 0
            && let Some(error) = stream.error.take()
        {
            return Err(TransferEnd::Broken(error));
        }
        Ok(stream.readable && !full && !stream.inward.ended)
    }

    /// Reads of the socket into the inward pipe.
    fn receive(&mut self, stream: &mut EngineStream, room: usize) {
        let Some(socket) = &stream.socket else { return };
        let tail = stream.inward.tail();
        tail.reserve(room);
        match recv(socket, rustix::buffer::spare_capacity(tail), RecvFlags::DONTWAIT) {
            Ok((0, _)) => {
                stream.inward.ended = true;
                stream.readable = false;
            }
            Ok((count, _)) => stream.readable = stream.hangup || count >= room,
            Err(Errno::AGAIN) => stream.readable = false,
            Err(Errno::INTR) => {}
            Err(error) => {
                stream.readable = false;
                stream.error = Some(error);
            }
        }
    }

    /// Delivers what passed to the program's buffer; `false`: there is no room for all.
    fn deliver_released(&mut self, stream: &mut EngineStream) -> Result<bool, TransferEnd> {
        let mut inward = std::mem::take(&mut stream.inward);
        let count = inward.released(1).len();
        let delivered = if count == 0 || stream.closed { Ok(0) } else { stream.deliver(inward.released(1)) };
        if let Ok(delivered) = delivered {
            inward.consume(delivered);
        }
        stream.inward = inward;
        let delivered = delivered?;
        if let Some(guest) = self.guest(stream.guest) {
            guest.counts.received += delivered as u64;
        }
        Ok(delivered == count)
    }

    /// Brings the guest's account up to date, and lets streams go on that waited for room in it.
    pub(super) fn account(&mut self, stream: &mut EngineStream) {
        let unsent = stream.unsent.as_ref().map_or(0, |datagram| datagram.bytes.len());
        let bytes = stream.out.len() + stream.inward.len() + unsent;
        if bytes == stream.accounted {
            return;
        }
        let before = std::mem::replace(&mut stream.accounted, bytes);
        let Some(guest) = self.guest(stream.guest) else { return };
        guest.bytes = (guest.bytes + bytes).saturating_sub(before);
        if bytes < before && !guest.starved.is_empty() {
            let starved = std::mem::take(&mut guest.starved);
            for key in starved {
                if key == stream.key {
                    stream.is_queued = true;
                    self.ready.push_back(key);
                } else {
                    self.queue(key);
                }
            }
        }
    }

    /// Starts or ends the times at which a stream is looked at again: of holding, of asking functions again,
    /// of lingering.
    pub(super) fn watch_times(&mut self, stream: &mut EngineStream) {
        let stages = if stream.is_local { 2 } else { 1 };
        let holds = stream.state == ConnectionState::Open
            && (stream.out.held(stages) > 0 || stream.inward.held(1) > 0);
        if !holds {
            (stream.held_until, stream.retry_at) = (None, None);
            (stream.out.retry_after, stream.inward.retry_after) = (None, None);
        } else {
            let since = now();
            if stream.held_until.is_none() {
                let time = self.guest(stream.guest).map(|guest| guest.spec.limits.held_time);
                stream.held_until = Some(since + time.unwrap_or_default());
            }
            let retry = stream.out.retry_after.into_iter().chain(stream.inward.retry_after).min();
            // The earliest wish counts: later ones do not put it off.
            stream.retry_at = retry.map(|after| stream.retry_at.unwrap_or(since + after));
        }
        let times = [stream.held_until, stream.retry_at, stream.lingers_until];
        let first = times.into_iter().flatten().min();
        self.set_deadline(stream, first);
    }

    /// A time of a stream is over.
    pub(super) fn expire(&mut self, key: StreamKey) {
        let Some(mut stream) = self.streams.take(key) else { return };
        stream.deadline = None;
        let time = now();
        let is_over = |at: Option<std::time::Instant>| at.is_some_and(|at| at <= time);
        if is_over(stream.lingers_until) {
            stream.reset_on_close();
            self.streams.put(key, stream);
            self.end_partner(key);
            self.remove(key);
            return;
        }
        if is_over(stream.held_until) {
            if self.hold_limits(stream.guest).fails_open {
                let stages = if stream.is_local { 2 } else { 1 };
                stream.out.release_held(stages);
                stream.inward.release_held(1);
            } else {
                self.block(&mut stream, StreamRefusal::HeldTime);
            }
        } else if is_over(stream.retry_at) {
            stream.retry_at = None;
            stream.out.retry();
            stream.inward.retry();
        }
        self.streams.put(key, stream);
        self.pump(key);
    }
}
