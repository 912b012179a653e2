// SPDX-License-Identifier: Apache-2.0
//! Sessions are put back to where they were before a segment that does not go on.

use super::{Segment, TcpFlags, TcpSession, TcpState};
use crate::stream::StreamPair;
use bartizan_base::{Direction, PerDirection};

/// The flags of segments that begin or end something.
const CONTROL: TcpFlags = TcpFlags::SYN.union(TcpFlags::FIN).union(TcpFlags::RST);

/// A session before a segment that may move it. [`TcpSession::restore`] brings it back.
///
/// Tracking takes a segment before functions judge it. Where one of them refuses it by its headers, neither
/// side gets it: the connection is where it was.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    session: TcpSession,
    /// The directions that were over.
    ended: PerDirection<bool>,
}

impl TcpSession {
    /// A checkpoint, if a segment may lead the session elsewhere than its sender is: one that begins or ends
    /// something or lies beyond the window, and each outside of an established connection. A session that
    /// does not exist yet needs none.
    #[inline]
    #[must_use]
    pub fn checkpoint(
        &self,
        segment: &Segment<'_>,
        direction: Direction,
        streams: Option<&StreamPair>,
    ) -> Option<Box<Checkpoint>> {
        let moves = segment.flags.intersects(CONTROL)
            || self.state != TcpState::Established
            || segment.end().after(self.window_edge(direction));
        if !moves || !self.exists() {
            return None;
        }
        let ended = |direction| streams.is_some_and(|pair| pair.stream(direction).over());
        let ended = PerDirection::new(ended(Direction::ToServer), ended(Direction::ToClient));
        Some(Box::new(Checkpoint { session: self.clone(), ended }))
    }

    /// Forgets what was tracked since a checkpoint. Bytes that the streams were fed stay: nobody has read
    /// them, and what is sent in their place is compared with them.
    pub fn restore(&mut self, checkpoint: Checkpoint, streams: Option<&mut StreamPair>) {
        let Checkpoint { session, ended } = checkpoint;
        *self = session;
        if let Some(pair) = streams {
            for direction in Direction::BOTH.into_iter().filter(|direction| !ended[*direction]) {
                pair.stream_mut(direction).go_on();
            }
        }
    }
}
