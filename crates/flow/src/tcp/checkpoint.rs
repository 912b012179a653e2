// SPDX-License-Identifier: Apache-2.0
//! Sessions return to their state before a segment that does not reach its receiver.

use super::{Segment, TcpFlags, TcpSession, TcpState};
use crate::stream::StreamPair;
use bartizan_base::{Direction, PerDirection};

/// The flags of segments that begin or end something.
const CONTROL: TcpFlags = TcpFlags::SYN.union(TcpFlags::FIN).union(TcpFlags::RST);

/// A session before a segment that may move it. [`TcpSession::restore`] brings it back.
///
/// Tracking takes a segment before functions judge it. If one of them refuses it by its headers, neither side
/// gets it, and the connection does not move. A worker keeps one checkpoint and uses it again for each
/// segment: taking one allocates nothing, unless segments are queued.
#[derive(Debug, Default)]
pub struct Checkpoint {
    session: TcpSession,
    /// The directions that were over.
    ended: PerDirection<bool>,
}

impl TcpSession {
    /// Whether a segment may lead the session elsewhere than its sender is: one that begins or ends something
    /// or lies beyond the window, and each outside of an established connection. A session that does not
    /// exist yet cannot be led anywhere.
    #[inline]
    #[must_use]
    pub fn may_be_moved(&self, segment: &Segment<'_>, direction: Direction) -> bool {
        let moves = segment.flags.intersects(CONTROL)
            || self.state != TcpState::Established
            || segment.end().after(self.window_edge(direction));
        moves && self.exists()
    }

    /// Writes the session down, and which streams have ended.
    pub fn checkpoint(&self, streams: Option<&StreamPair>, into: &mut Checkpoint) {
        let ended = |direction| streams.is_some_and(|pair| pair.stream(direction).over());
        into.ended = PerDirection::new(ended(Direction::ToServer), ended(Direction::ToClient));
        into.session = self.clone();
    }

    /// Forgets what was tracked since a checkpoint. Bytes that the streams received stay: no reader has
    /// read them, and data sent again for the same range is compared with them.
    pub fn restore(&mut self, checkpoint: &Checkpoint, streams: Option<&mut StreamPair>) {
        let Checkpoint { session, ended } = checkpoint;
        *self = session.clone();
        if let Some(pair) = streams {
            for direction in Direction::BOTH.into_iter().filter(|direction| !ended[*direction]) {
                pair.stream_mut(direction).resume();
            }
        }
    }
}
