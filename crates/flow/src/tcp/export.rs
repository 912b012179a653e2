// SPDX-License-Identifier: Apache-2.0
//! Serialised sessions, for warm restart and migration: a version, then every field, big endian. Imported
//! data is untrusted and validated.

use super::peer::PeerFlags;
use super::queued::Queued;
use super::session::SessionFlags;
use super::{Peer, Seq, TcpSession, TcpState};
use bartizan_base::{Cursor, Direction};

/// Version of the format.
const VERSION: u8 = 4;

impl TcpSession {
    /// Appends the session.
    pub fn export(&self, out: &mut Vec<u8>) {
        out.extend([VERSION, self.state as u8, self.previous as u8]);
        out.extend(self.flags.bits().to_be_bytes());
        for direction in Direction::BOTH {
            self.peers[direction].export(out);
        }
        // The queue is limited to 255 by configuration.
        let queued = u8::try_from(self.queue.len()).unwrap_or(u8::MAX);
        out.push(queued);
        for entry in self.queue.iter().take(usize::from(queued)) {
            entry.export(out);
        }
    }

    /// Imports a session; `None` when the bytes are not of this version.
    #[must_use]
    pub fn import(from: &mut Cursor<'_>) -> Option<Self> {
        if from.u8()? != VERSION {
            return None;
        }
        let mut session = TcpSession {
            state: state(from.u8()?)?,
            previous: state(from.u8()?)?,
            flags: SessionFlags::from_bits(from.u32()?)?,
            ..TcpSession::default()
        };
        for direction in Direction::BOTH {
            session.peers[direction] = Peer::import(from)?;
        }
        for _ in 0..from.u8()? {
            session.queue.push(Queued::import(from)?);
        }
        Some(session)
    }
}

fn state(byte: u8) -> Option<TcpState> {
    use TcpState as T;
    let all = [
        T::None,
        T::SynSent,
        T::SynRecv,
        T::Established,
        T::FinWait1,
        T::FinWait2,
        T::TimeWait,
        T::LastAck,
        T::CloseWait,
        T::Closing,
        T::Closed,
    ];
    all.get(usize::from(byte)).copied()
}

fn seq(from: &mut Cursor<'_>) -> Option<Seq> {
    from.u32().map(Seq)
}

impl Peer {
    fn export(&self, out: &mut Vec<u8>) {
        for seq in [self.isn, self.next_seq, self.last_ack, self.next_win, self.sent, self.fin] {
            out.extend(seq.0.to_be_bytes());
        }
        for number in [self.window, self.window_max, self.last_ts, self.last_pkt_ts] {
            out.extend(number.to_be_bytes());
        }
        out.extend([self.wscale, self.tcp_flags, self.flags.bits()]);
        for (left, right) in &self.sack {
            out.extend(left.0.to_be_bytes());
            out.extend(right.0.to_be_bytes());
        }
    }

    fn import(from: &mut Cursor<'_>) -> Option<Self> {
        let mut peer = Peer {
            isn: seq(from)?,
            next_seq: seq(from)?,
            last_ack: seq(from)?,
            next_win: seq(from)?,
            sent: seq(from)?,
            fin: seq(from)?,
            window: from.u32()?,
            window_max: from.u32()?,
            last_ts: from.u32()?,
            last_pkt_ts: from.u32()?,
            wscale: from.u8()?.min(super::WSCALE_MAX),
            tcp_flags: from.u8()?,
            flags: PeerFlags::from_bits(from.u8()?)?,
            ..Peer::default()
        };
        for range in &mut peer.sack {
            *range = (seq(from)?, seq(from)?);
        }
        Some(peer)
    }
}

impl Queued {
    fn export(&self, out: &mut Vec<u8>) {
        out.extend(self.seq.0.to_be_bytes());
        out.extend(self.ack.0.to_be_bytes());
        out.extend(self.window.to_be_bytes());
        out.extend([u8::from(self.wscale.is_some()), self.wscale.unwrap_or(0)]);
        out.push(u8::from(self.ts.is_some()));
        out.extend(self.ts.unwrap_or(0).to_be_bytes());
        out.push(u8::from(self.sack_ok));
        out.extend(self.pkt_ts.to_be_bytes());
        out.push(u8::from(self.answers));
    }

    fn import(from: &mut Cursor<'_>) -> Option<Self> {
        let (seq, ack, window) = (seq(from)?, seq(from)?, from.u16()?);
        let (scaled, shift) = (from.u8()? != 0, from.u8()?.min(super::WSCALE_MAX));
        let (stamped, ts) = (from.u8()? != 0, from.u32()?);
        Some(Queued {
            seq,
            ack,
            window,
            wscale: scaled.then_some(shift),
            ts: stamped.then_some(ts),
            sack_ok: from.u8()? != 0,
            pkt_ts: from.u32()?,
            answers: from.u8()? != 0,
        })
    }
}
