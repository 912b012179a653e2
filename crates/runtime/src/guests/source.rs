// SPDX-License-Identifier: Apache-2.0
//! The engine of the stream path as a source of connections in order.
//!
//! Each stream is a flow of its guest's link, and each chunk of payload is judged by the chain of the flow's
//! policy before it leaves the engine: it passes, is held, leaves with bytes that rules replaced, or the
//! stream is blocked. A bypassed flow's chunks are judged as well, by its disposition: they are counted, and
//! a policy that is loaded later applies to them. A connection between two guests of one tenant is one flow,
//! which enters by the client's link. Guests of two tenants have a flow each, since tenants never meet: the
//! server's policy sees what the client's has passed. Datagrams are packets of their guest's link.

use super::origin::KnownPrograms;
use super::view::{BlockedStream, GuestView};
use bartizan_base::{Decision, Direction, LinkId, Timestamp, Verdict};
use bartizan_dataplane::source::{Arrivals, Source, Taken};
use bartizan_dataplane::worker::{ByteArrival, ByteFlow, ByteFlowState, DatagramArrival, Worker};
use bartizan_ports::{PortError, PortStats, Waker, Woke, packet_clock};
use bartizan_stages::flow_ext::StreamOrigin;
use bartizan_toe::engine::{Engine, EngineError, EngineWoke};
use bartizan_toe::inspect::{
    Admission, DatagramVerdict, PayloadDirection, PayloadInspector, PayloadVerdict, PayloadWindow, StreamId,
    StreamInfo,
};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

/// Name of the source among ports.
const NAME: &str = "guests";
/// The operation that an error names if the wait for guests fails.
const WAITING: &str = "waiting for guests";

/// Streams by their number in the engine. Bounded: each belongs to a stream of a guest, whose limit counts.
#[derive(Default)]
struct StreamFlows(HashMap<StreamId, StreamFlow>);

/// The flow of a stream.
enum StreamFlow {
    /// Its own.
    Own(Box<OwnFlow>),
    /// That of the other end.
    Partner,
    /// None: a socket of datagrams, whose flows are those of its packets. The program behind it.
    Datagrams(Arc<StreamOrigin>),
}

/// A flow, and whether the view knows it as bypassed.
struct OwnFlow {
    flow: ByteFlow,
    is_bypassed: bool,
}

/// The source; see the module.
pub(super) struct GuestSource {
    engine: Engine,
    /// The link of each guest, by the guest's number.
    links: Vec<LinkId>,
    flows: StreamFlows,
    programs: KnownPrograms,
    view: Arc<GuestView>,
    stats: PortStats,
    /// The engine's waits end with the worker's waker.
    watches_waker: bool,
}

fn failed(what: &'static str) -> impl FnOnce(EngineError) -> PortError {
    move |error| {
        let source = io::Error::other(error.to_string());
        PortError::System { name: NAME.to_owned(), what, source }
    }
}

impl GuestSource {
    pub(super) fn new(engine: Engine, links: Vec<LinkId>, view: Arc<GuestView>) -> Self {
        let (flows, stats) = (StreamFlows::default(), PortStats::default());
        let programs = KnownPrograms::default();
        GuestSource { engine, links, flows, programs, view, stats, watches_waker: false }
    }
}

impl Source for GuestSource {
    fn forwards(&self) -> bool {
        true
    }

    fn begin(&mut self, _worker: &mut Worker, _batch: usize) {}

    fn take(&mut self, arrivals: &mut Arrivals<'_>) -> Result<Taken, PortError> {
        let mut chain = ChainInspector {
            arrivals: &mut *arrivals,
            links: &self.links,
            flows: &mut self.flows,
            programs: &mut self.programs,
            view: &self.view,
            now: packet_clock(),
        };
        let served = self.engine.turn(&mut chain).map_err(failed("serving guests"))?;
        // Every chunk that the worker judges comes from here, and leaves here if it passes.
        let counters = arrivals.worker_mut().counters();
        self.stats.received = counters.packets;
        self.stats.sent = counters.forwarded + counters.let_go;
        Ok(Taken { frames: served, ..Taken::default() })
    }

    fn each_port(&mut self, each: &mut dyn FnMut(&str, &PortStats, u64)) {
        each(NAME, &self.stats, 0);
    }

    fn now(&mut self) -> Timestamp {
        packet_clock()
    }

    fn busy_poll(&mut self, else_ready: &dyn Fn() -> bool, _spin: Duration) -> bool {
        // No polling: the engine's programs mostly need this processor to have something to say.
        self.engine.has_work() || else_ready()
    }

    fn wait(&mut self, waker: Option<&Waker>, timeout: Duration) -> Result<Woke, PortError> {
        // One call of the kernel finds events and the waker alike.
        if let Some(waker) = waker.filter(|_| !self.watches_waker) {
            self.engine.watch_waker(waker.as_fd()).map_err(failed(WAITING))?;
            self.watches_waker = true;
        }
        Ok(match self.engine.wait(Some(timeout)).map_err(failed(WAITING))? {
            EngineWoke::Events => Woke::Packets,
            EngineWoke::Timeout => Woke::Timeout,
            EngineWoke::Called => {
                if let Some(waker) = waker {
                    waker.take();
                }
                Woke::Called
            }
        })
    }
}

/// Judges streams by the chains of their tenants' policies.
struct ChainInspector<'i, 'd> {
    arrivals: &'i mut Arrivals<'d>,
    links: &'i [LinkId],
    flows: &'i mut StreamFlows,
    programs: &'i mut KnownPrograms,
    view: &'i GuestView,
    now: Timestamp,
}

impl ChainInspector<'_, '_> {
    /// The connection that a stream is, without its program.
    fn connection(&self, stream: &StreamInfo) -> Option<ByteFlow> {
        let link = *self.links.get(usize::from(stream.guest))?;
        let (client, server) =
            if stream.accepted { (stream.peer, stream.local) } else { (stream.local, stream.peer) };
        Some(ByteFlow::new(client, server, link))
    }

    /// Whether a stream's bytes are judged as those of the flow of its other end.
    fn belongs_to_partner(&mut self, stream: &StreamInfo, own: &ByteFlow) -> bool {
        let partner = stream.partner.filter(|_| stream.accepted).and_then(|end| self.flows.0.get(&end.id));
        let Some(StreamFlow::Own(theirs)) = partner else { return false };
        let worker = self.arrivals.worker_mut();
        worker.tenant_of_bytes(&theirs.flow) == worker.tenant_of_bytes(own)
    }

    fn origin(&mut self, stream: &StreamInfo) -> StreamOrigin {
        let program = self.programs.of(stream, self.now);
        StreamOrigin {
            guest: self.view.name(stream.guest),
            peer_guest: stream.partner.map(|partner| self.view.name(partner.guest)),
            process: stream.process,
            executable: program.executable,
            cgroup: program.cgroup,
        }
    }

    /// Notes why a stream is blocked.
    fn note_blocked(&self, stream: &StreamInfo, decision: &Decision) {
        self.view.note(BlockedStream { stream: *stream, at: self.now, decision: *decision });
    }
}

impl PayloadInspector for ChainInspector<'_, '_> {
    fn admit(&mut self, stream: &StreamInfo) -> Admission {
        self.now = packet_clock();
        let Some(flow) = self.connection(stream) else { return Admission::Refuse };
        if self.belongs_to_partner(stream, &flow) {
            self.flows.0.insert(stream.id, StreamFlow::Partner);
            return Admission::Inspect;
        }
        let mut flow = flow.of_program(Arc::new(self.origin(stream)));
        let decision = self.arrivals.open_bytes(&mut flow, self.now);
        // A port of the host by which a rule would have packets leave is no way for a connection.
        if !decision.verdict.forwards() || decision.egress.is_some() {
            self.note_blocked(stream, &decision);
            return Admission::Refuse;
        }
        let own = OwnFlow { flow, is_bypassed: false };
        self.flows.0.insert(stream.id, StreamFlow::Own(Box::new(own)));
        Admission::Inspect
    }

    fn inspect(&mut self, stream: &StreamInfo, window: PayloadWindow<'_>) -> PayloadVerdict {
        self.now = packet_clock();
        let OwnFlow { flow, is_bypassed } = match self.flows.0.get_mut(&stream.id) {
            Some(StreamFlow::Own(own)) => &mut **own,
            Some(StreamFlow::Partner) => return PayloadVerdict::Bypass,
            // No stream is inspected that was not admitted.
            Some(StreamFlow::Datagrams(_)) | None => return PayloadVerdict::Drop,
        };
        let state = self.arrivals.worker_mut().bytes_flow_state(flow, self.now);
        if *is_bypassed != (state == ByteFlowState::Bypassed) {
            *is_bypassed = !*is_bypassed;
            self.view.note_bypassed(stream.id, *is_bypassed);
        }
        let mut decision = Decision::CONTINUE;
        if state == ByteFlowState::Gone {
            // It timed out, or gave way: the rest of the stream is a flow of its own.
            decision = self.arrivals.open_bytes(flow, self.now);
        }
        if decision.verdict.forwards() {
            // The flow has not taken up bytes that were held, so all of the window follows its last ones.
            let direction = match (window.direction, stream.accepted) {
                (PayloadDirection::Outgoing, false) | (PayloadDirection::Incoming, true) => {
                    Direction::ToServer
                }
                (PayloadDirection::Outgoing, true) | (PayloadDirection::Incoming, false) => {
                    Direction::ToClient
                }
            };
            let arrival = ByteArrival { now: self.now, direction, bytes: window.bytes, end: window.end };
            decision = self.arrivals.bytes(flow, &arrival);
        }
        if let Some(time) = self.arrivals.worker_mut().bytes_wait(flow, &decision, self.now) {
            return PayloadVerdict::Hold { retry_after: Some(Duration::from_nanos(time.as_nanos())) };
        }
        if !decision.verdict.forwards() {
            self.note_blocked(stream, &decision);
            return PayloadVerdict::Drop;
        }
        match self.arrivals.take_replaced() {
            Some(with) => PayloadVerdict::Replace { range: 0..window.bytes.len(), with },
            None => PayloadVerdict::Pass(usize::MAX),
        }
    }

    fn datagram(
        &mut self,
        socket: &StreamInfo,
        direction: PayloadDirection,
        bytes: &[u8],
    ) -> DatagramVerdict {
        self.now = packet_clock();
        let Some(link) = self.links.get(usize::from(socket.guest)).copied() else {
            return DatagramVerdict::Drop;
        };
        let origin = match self.flows.0.get(&socket.id) {
            Some(StreamFlow::Datagrams(origin)) => Arc::clone(origin),
            _ => {
                let origin = Arc::new(self.origin(socket));
                self.flows.0.insert(socket.id, StreamFlow::Datagrams(Arc::clone(&origin)));
                origin
            }
        };
        let (from, to) = match direction {
            PayloadDirection::Outgoing => (socket.local, socket.peer),
            PayloadDirection::Incoming => (socket.peer, socket.local),
        };
        let arrival = DatagramArrival { now: self.now, link, from, to, bytes, origin: &origin };
        let decision = self.arrivals.datagram(&arrival);
        if !decision.verdict.forwards() || decision.egress.is_some() {
            self.note_blocked(socket, &decision);
            return match decision.verdict {
                Verdict::Reject => DatagramVerdict::Reject,
                _ => DatagramVerdict::Drop,
            };
        }
        match self.arrivals.take_replaced() {
            Some(with) => DatagramVerdict::Replace(with),
            None => DatagramVerdict::Pass,
        }
    }

    fn close(&mut self, stream: &StreamInfo) {
        self.view.note_bypassed(stream.id, false);
        if let Some(StreamFlow::Own(mut own)) = self.flows.0.remove(&stream.id) {
            self.arrivals.close_bytes(&mut own.flow, packet_clock());
        }
    }
}
