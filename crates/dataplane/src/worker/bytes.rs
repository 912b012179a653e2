// SPDX-License-Identifier: Apache-2.0
//! Connections whose bytes arrive in order and without packets: from a source that ends TCP itself, or that
//! knows no TCP.
//!
//! Such a connection is a flow like any other: policies, functions, application layer, limits, moves, records
//! and explanations see no difference. Its bytes are accepted as a TCP segment would be that follows the last
//! one and whose predecessors are all acknowledged, without what only packets need: no decoding, no checksum,
//! no comparison with retransmitted data. Rules inspect the bytes of a call as the payload of one segment;
//! conditions on headers do not hold for them.
//!
//! Bytes that are refused for the time being are held ([`Worker::bytes_wait`]): their source hands them in
//! again, with those that came meanwhile, as a sender of segments sends again what was dropped.

use super::{Frame, Worker};
use bartizan_base::{Decision, Direction, LinkId, PacketDuration, PerDirection, Reason, TenantId, Timestamp};
use bartizan_packet::{
    Decoded, Ipv4, Ipv6, LinkType, Network, PacketFlags, PacketSource, Tcp, TcpFlags, TcpOptions,
    TransportLayer,
};
use bartizan_stages::flow_ext::StreamOrigin;
use bartizan_stages::frame::PacketPosition;
use bartizan_stages::record::Recorder;
use bartizan_stages::standing::PacketDisposition;
use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// IP protocol of TCP.
const TCP: u8 = 6;
/// Window of both sides, scaled by 14.
const WINDOW: u16 = u16::MAX;
const WINDOW_SCALE: u8 = 14;
/// Time after which bytes are handed in again that were refused for the time being.
const RETRY: PacketDuration = PacketDuration::from_millis(200);
/// Most bytes that are inspected at a time.
const PIECE: usize = 16 << 20;

/// A connection whose bytes arrive in order.
#[derive(Clone, Debug)]
pub struct ByteFlow {
    client: SocketAddr,
    server: SocketAddr,
    link: LinkId,
    /// The program that opened or accepted it, on the stream path.
    origin: Option<Arc<StreamOrigin>>,
    /// The next sequence number of each side.
    next: PerDirection<u32>,
    ended: PerDirection<bool>,
}

/// The bytes of one call.
#[derive(Clone, Copy, Debug)]
pub struct ByteArrival<'b> {
    /// Time of the arrival.
    pub now: Timestamp,
    /// Direction: the sender of the bytes.
    pub direction: Direction,
    /// The bytes; maybe none.
    pub bytes: &'b [u8],
    /// The sender has finished: no bytes follow in this direction.
    pub end: bool,
}

/// The flow of a connection, as it is in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteFlowState {
    /// It is not in the table: it timed out, or gave way.
    Gone,
    /// Functions judge its bytes.
    Judged,
    /// No function is left on its path: its bytes pass, and are counted.
    Bypassed,
    /// Its bytes are refused.
    Refused,
}

impl ByteFlow {
    /// A connection from `client` to `server`, addresses of one family, that enters by a link.
    #[must_use]
    pub fn new(client: SocketAddr, server: SocketAddr, link: LinkId) -> Self {
        let (next, ended) = (PerDirection::default(), PerDirection::default());
        ByteFlow { client, server, link, origin: None, next, ended }
    }

    /// The connection with the program behind it, which records show.
    #[must_use]
    pub fn of_program(self, origin: Arc<StreamOrigin>) -> Self {
        ByteFlow { origin: Some(origin), ..self }
    }

    /// Client and server.
    #[must_use]
    pub const fn ends(&self) -> (SocketAddr, SocketAddr) {
        (self.client, self.server)
    }

    /// Whether a side has finished.
    #[must_use]
    pub fn has_ended(&self, direction: Direction) -> bool {
        self.ended[direction]
    }

    /// The view of an arrival as a segment, and the length of its payload.
    fn segment(&self, direction: Direction, flags: TcpFlags, length: u32, options: TcpOptions) -> Decoded {
        let (from, to) = match direction {
            Direction::ToServer => (self.client, self.server),
            Direction::ToClient => (self.server, self.client),
        };
        let network = match (from.ip(), to.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Network::Ipv4(Ipv4::between(src, dst, TCP)),
            (src, dst) => Network::Ipv6(Ipv6::between(v6(src), v6(dst), TCP)),
        };
        let acknowledges = flags.contains(TcpFlags::ACK);
        let transport = TransportLayer::Tcp(Tcp {
            sport: from.port(),
            dport: to.port(),
            seq: self.next[direction],
            ack: if acknowledges { self.next[direction.flip()] } else { 0 },
            window: WINDOW,
            flags,
            header_len: 20,
            options,
            ..Tcp::default()
        });
        Decoded {
            link_type: LinkType::RAW,
            source: PacketSource::Ordered,
            flags: PacketFlags::WANTS_FLOW | PacketFlags::CHECKSUM_VALID,
            end: length,
            wire_len: length,
            network,
            transport,
            // There are no headers to be read: their places lie behind the bytes.
            l3: length,
            l4: length,
            payload_len: length,
            ..Decoded::default()
        }
    }
}

fn v6(address: IpAddr) -> core::net::Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn frame_of(link: LinkId, now: Timestamp, bytes: &[u8]) -> Frame<'_> {
    let wire_len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    Frame { now, bytes, wire_len, link_type: LinkType::RAW, link, number: None }
}

impl Worker {
    /// Opens a connection whose bytes will arrive in order. Returns the decision on it: functions that judge
    /// by headers, and rules on addresses and ports, may refuse it.
    pub fn open_bytes(
        &mut self,
        flow: &mut ByteFlow,
        now: Timestamp,
        recorder: &mut dyn Recorder,
    ) -> Decision {
        let syn = TcpFlags::SYN;
        let opening = TcpOptions { wscale: Some(WINDOW_SCALE), ..TcpOptions::default() };
        let steps = [
            (Direction::ToServer, syn, opening),
            (Direction::ToClient, syn | TcpFlags::ACK, opening),
            (Direction::ToServer, TcpFlags::ACK, TcpOptions::default()),
        ];
        let mut decision = Decision::CONTINUE;
        self.leaving.change = None;
        self.position.origin.clone_from(&flow.origin);
        for (direction, flags, options) in steps {
            let segment = flow.segment(direction, flags, 0, options);
            decision = self.segment_of_bytes(flow.link, now, &segment, &[], recorder);
            if !decision.verdict.forwards() {
                break;
            }
            let number = &mut flow.next[direction];
            *number = number.wrapping_add(u32::from(flags.contains(syn)));
        }
        self.position.origin = None;
        decision
    }

    /// Ends a connection that its source is done with: in order if the client or the server has finished,
    /// else as by a reset. Without effect where both have finished.
    pub fn close_bytes(&mut self, flow: &mut ByteFlow, now: Timestamp, recorder: &mut dyn Recorder) {
        let (to_server, to_client) = (flow.ended.to_server, flow.ended.to_client);
        let direction = match (to_server, to_client) {
            (true, true) => return,
            (true, false) => Direction::ToClient,
            (false, true) => Direction::ToServer,
            (false, false) => {
                let reset = TcpFlags::RST | TcpFlags::ACK;
                let segment = flow.segment(Direction::ToServer, reset, 0, TcpOptions::default());
                flow.ended = PerDirection::new(true, true);
                self.segment_of_bytes(flow.link, now, &segment, &[], recorder);
                return;
            }
        };
        self.bytes(flow, &ByteArrival { now, direction, bytes: &[], end: true }, recorder);
    }

    /// The tenant of a connection.
    #[must_use]
    pub fn tenant_of_bytes(&self, flow: &ByteFlow) -> TenantId {
        let segment = flow.segment(Direction::ToServer, TcpFlags::ACK, 0, TcpOptions::default());
        self.chains().classifier.tenant_of(&segment, flow.link)
    }

    /// The state of a connection's flow.
    #[must_use]
    pub fn bytes_flow_state(&self, flow: &ByteFlow, now: Timestamp) -> ByteFlowState {
        let segment = flow.segment(Direction::ToServer, TcpFlags::ACK, 0, TcpOptions::default());
        let frame = frame_of(flow.link, now, &[]);
        let entry = self.own_key(&frame, &segment).and_then(|key| self.flow_of_key(&key));
        let Some(entry) = entry.and_then(|id| self.flows.get(id)) else { return ByteFlowState::Gone };
        match entry.ext.standing.course(entry.state()) {
            PacketDisposition::Bypassed => ByteFlowState::Bypassed,
            PacketDisposition::Refused(_) => ByteFlowState::Refused,
            _ => ByteFlowState::Judged,
        }
    }

    /// The time after which bytes with this decision are handed in again; `None`: they pass, or are refused
    /// finally.
    #[must_use]
    pub fn bytes_wait(&self, flow: &ByteFlow, decision: &Decision, now: Timestamp) -> Option<PacketDuration> {
        if decision.verdict.forwards() {
            return None;
        }
        match decision.reason? {
            Reason::ProtocolOpen => Some(self.settings.hold.time),
            // A function is away, or there is no room now. A flow that is refused as a whole stays so.
            Reason::FunctionFailed
            | Reason::FunctionStopped
            | Reason::StreamMemory
            | Reason::StreamReassembly
            | Reason::FlowMemory
            | Reason::Overload => {
                (self.bytes_flow_state(flow, now) != ByteFlowState::Refused).then_some(RETRY)
            }
            _ => None,
        }
    }

    /// The bytes of the last call with those that rules replaced (keyword `replace`), which leave in their
    /// place; `None`: they leave as they came.
    pub fn take_replaced(&mut self) -> Option<Vec<u8>> {
        let mut change = self.take_rewrite()?;
        let bytes = change.replaced.then(|| core::mem::take(&mut change.bytes));
        self.reuse_rewrite(change);
        bytes
    }

    /// Handles bytes of a connection. The decision says whether they may be delivered; refused bytes count as
    /// never sent.
    pub fn bytes(
        &mut self,
        flow: &mut ByteFlow,
        arrival: &ByteArrival<'_>,
        recorder: &mut dyn Recorder,
    ) -> Decision {
        let ByteArrival { now, direction, bytes, end } = *arrival;
        let mut decision = Decision::CONTINUE;
        let mut rest = bytes;
        self.leaving.change = None;
        loop {
            let (piece, after) = rest.split_at_checked(PIECE).unwrap_or((rest, &[]));
            rest = after;
            let is_last = rest.is_empty();
            let fin = end && is_last && !flow.ended[direction];
            if piece.is_empty() && !fin {
                return decision;
            }
            let flags = if fin { TcpFlags::FIN | TcpFlags::ACK } else { TcpFlags::ACK };
            let length = u32::try_from(piece.len()).unwrap_or(u32::MAX);
            let segment = flow.segment(direction, flags, length, TcpOptions::default());
            decision = self.segment_of_bytes(flow.link, now, &segment, piece, recorder);
            if !decision.verdict.forwards() {
                return decision;
            }
            let number = &mut flow.next[direction];
            *number = number.wrapping_add(length).wrapping_add(u32::from(fin));
            flow.ended[direction] |= fin;
            if is_last {
                break;
            }
        }
        if flow.ended.to_server && flow.ended.to_client {
            // Both ends are acknowledged: the connection is closed.
            let last = flow.segment(direction.flip(), TcpFlags::ACK, 0, TcpOptions::default());
            self.segment_of_bytes(flow.link, now, &last, &[], recorder);
        }
        decision
    }

    fn segment_of_bytes(
        &mut self,
        link: LinkId,
        now: Timestamp,
        segment: &Decoded,
        bytes: &[u8],
        recorder: &mut dyn Recorder,
    ) -> Decision {
        let frame = frame_of(link, now, bytes);
        self.begin_frame(&frame, false, recorder);
        self.leave_train();
        let decision = self.packet(&frame, bytes, segment, &PacketPosition::default(), recorder);
        self.close_train(recorder);
        self.decided(&decision)
    }
}
