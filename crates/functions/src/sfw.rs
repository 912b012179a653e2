// SPDX-License-Identifier: Apache-2.0
//! `sfw`, the stateful firewall (UniSec's model 2): decides who may open flows, and whether a packet belongs
//! to one.
//!
//! TCP tracking, flow table and host table belong to the platform; this function is the firewall's policy
//! over them. TCP: a connection begins with a SYN of a side that may open flows, its packets follow the state
//! machine of RFC 9293 and are in the window, and a RST is one that the receiver would accept. The decision
//! on a packet is in tables of values ([`sfw_table`], [`sfw_messages`]), by state and by class of the packet;
//! `sfw_tcp` finds a segment's class. UDP and others: the first packet opens, replies follow. ICMP: queries
//! open, replies need a query, errors need the flow that they quote (RFC 5927, section 4). Limits count in
//! the host table and survive generations; if the host table has no room, a flow is admitted and counted as
//! `untracked`.
//!
//! Expectations of FTP and SIP and NAT are not supported.

use crate::sfw_messages::{self, IcmpKind, SfwAdmission, SfwMessageKind};
use crate::sfw_table::{self, ConnectionShare, SfwAction, Transition};
use crate::sfw_tcp::{self, Tracked, Wants};
use bartizan_base::{Decision, Direction, Fid, FunctionId, Generation, Reason, Timestamp, Verdict};
use bartizan_classify::NameId;
use bartizan_config::policy::OneSided;
use bartizan_config::policy::sections::{Initiate, Midstream, SfwSection};
use bartizan_flow::host::{HostKey, HostState, HostTable};
use bartizan_flow::tcp::TcpState;
use bartizan_function::classes::{self, AddressMember, ByFid, CompiledClass, PolicyClass};
use bartizan_function::{
    ChainResults, FlowView, Function, FunctionCounter, FunctionKind, FunctionModel, FunctionSpec,
    HeaderField, HeaderHalf, HostKeeper, OffloadRequirement, PacketContext, RuleSource, RulesError,
    SlotState, StateSlot, WorkerState, names_among, slot_as, slot_as_mut,
};
use bartizan_packet::tables::FlowEntry;
use bartizan_packet::{Decoded, Icmp, TransportLayer};
use core::net::IpAddr;
use smallvec::SmallVec;
use std::sync::Arc;

/// The specification of the function.
pub static SPEC: FunctionSpec = FunctionSpec {
    name: "sfw",
    summary: "Stateful firewall: which side may open flows, TCP states and windows, ICMP errors related to a flow, limits per source.",
    model: FunctionModel::StatefulHeaders,
    runs_after: &["pfw"],
    runs_before: &["ids"],
    header_half: Some(HeaderHalf {
        fields: &[
            HeaderField { name: "fid", width: 32 },
            HeaderField { name: "tcp_flags", width: 8 },
            HeaderField { name: "sequence", width: 32 },
            HeaderField { name: "acknowledgement", width: 32 },
            HeaderField { name: "window", width: 16 },
        ],
        entry_bytes: FlowEntry::LEN as u16,
        // The flow, and the action of its state on the segment.
        lookups: 2,
    }),
    host_slot: None,
    counters: &[
        FunctionCounter { name: "admitted", help: "Flows admitted." },
        FunctionCounter { name: "dropped", help: "Packets dropped." },
        FunctionCounter {
            name: "untracked",
            help: "Flows admitted without counting their source: the host table had no room.",
        },
    ],
};

/// The host table in which limits count; it outlives generations.
pub type Hosts = Arc<HostTable<HostState>>;

/// Makes stateful firewalls.
#[derive(Debug)]
pub struct SfwKind {
    hosts: Hosts,
}

impl SfwKind {
    /// A kind whose `hosts` all workers and generations share.
    #[must_use]
    pub const fn new(hosts: Hosts) -> Self {
        SfwKind { hosts }
    }
}

impl FunctionKind for SfwKind {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn changeable(&self) -> &'static [&'static str] {
        &["max-half-open", "max-connections", "midstream", "window-check"]
    }

    fn rules(&self, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>> {
        let (_, classes) = classes::read::<SfwSection>(SPEC.name, source)?;
        let by_fid = ByFid::new(&classes);
        let rules = classes.into_iter().map(SfwPolicyRules::new).collect();
        Ok(Box::new(Sfw {
            id: source.id,
            generation: source.generation,
            rules,
            by_fid,
            hosts: Arc::clone(&self.hosts),
        }))
    }
}

/// The stateful firewall with the rules of one generation.
#[derive(Debug)]
pub struct Sfw {
    id: FunctionId,
    generation: Generation,
    rules: Vec<SfwPolicyRules>,
    by_fid: ByFid,
    hosts: Hosts,
}

/// The rules of one policy; shared with other generations.
#[derive(Debug)]
struct SfwPolicyRules {
    /// The checks of TCP segments.
    wants: Wants,
    made: Arc<CompiledClass<SfwSection, ()>>,
}

/// The state of a flow. Dropping it releases the flow's share of the limits in the host table.
#[derive(Debug)]
struct SfwFlowState {
    generation: Generation,
    counted: Option<SfwSourceShare>,
    /// ICMP: the latest identifiers, in the order of use.
    icmp_ids: SmallVec<[u16; 8]>,
}

/// The state never grows beyond its own size.
impl SlotState for SfwFlowState {}

/// Most identifiers of ICMP kept for a flow: an error about an earlier exchange is refused.
pub(crate) const ICMP_IDS_MAX: usize = 8;

impl SfwFlowState {
    fn note_icmp_id(&mut self, id: Option<u16>) {
        let Some(id) = id.filter(|id| self.icmp_ids.last() != Some(id)) else { return };
        self.icmp_ids.retain(|known| *known != id);
        if self.icmp_ids.len() >= ICMP_IDS_MAX {
            self.icmp_ids.remove(0);
        }
        self.icmp_ids.push(id);
    }

    /// Whether an identifier is one of the flow's; a flow without identifiers accepts any.
    fn has_icmp_id(&self, id: Option<u16>) -> bool {
        self.icmp_ids.is_empty() || id.is_some_and(|id| self.icmp_ids.contains(&id))
    }
}

#[derive(Debug, Default)]
struct SfwCounts {
    admitted: u64,
    dropped: u64,
    untracked: u64,
}

/// The effect of a source's limit on a flow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SourceLimitEffect {
    /// The flow is counted.
    Counts,
    /// The flow is counted, and refused if there are too many.
    Refuses,
}

/// A flow's share of its source's counts.
#[derive(Debug)]
struct SfwSourceShare {
    hosts: Hosts,
    key: HostKey,
    half_open: bool,
    last: Timestamp,
}

impl SfwSourceShare {
    fn opened(&mut self) {
        if core::mem::take(&mut self.half_open) {
            self.hosts.if_there(&self.key, self.last, |h| h.half_open = h.half_open.saturating_sub(1));
        }
    }
}

impl Drop for SfwSourceShare {
    fn drop(&mut self) {
        let half = u32::from(self.half_open);
        self.hosts.if_there(&self.key, self.last, |h| {
            h.half_open = h.half_open.saturating_sub(half);
            h.connections = h.connections.saturating_sub(1);
        });
    }
}

impl SfwPolicyRules {
    fn new(made: Arc<CompiledClass<SfwSection, ()>>) -> Self {
        let PolicyClass { rules, one_sided, .. } = &made.class;
        let wants = Wants {
            window_check: rules.window_check,
            beginning: rules.midstream == Midstream::Drop,
            one_sided_inspected: *one_sided == OneSided::IdsOnly,
        };
        SfwPolicyRules { wants, made }
    }

    fn section(&self) -> &SfwSection {
        &self.made.class.rules
    }

    /// Whether the side that opened the flow may do so.
    fn may_open(&self, flow: &FlowView<'_>, notes: &ChainResults<'_>) -> bool {
        self.may_open_between(flow.client.0, flow.server.0, notes)
    }

    /// Whether the first of two addresses may open flows to the other one.
    fn may_open_between(&self, client: IpAddr, server: IpAddr, notes: &ChainResults<'_>) -> bool {
        let PolicyClass { from, to, .. } = &self.made.class;
        let (from, to) = match self.section().initiate {
            Initiate::From => (from, to),
            Initiate::To => (to, from),
            Initiate::Both => return true,
        };
        let names = names_among(notes.matches);
        let lies = |list: &[AddressMember], address, names: &[NameId]| {
            list.is_empty() || list.iter().any(|member| member.is(address, names))
        };
        lies(from, client, &names.source) && lies(to, server, &names.destination)
    }
}

/// The kind of an ICMP message, by its type.
fn icmp_kind(packet: &Decoded) -> Option<(IcmpKind, &Icmp)> {
    match &packet.transport {
        TransportLayer::Icmp(icmp) => Some((sfw_messages::icmpv4_kind(icmp.kind), icmp)),
        TransportLayer::Icmpv6(icmp) => Some((sfw_messages::icmpv6_kind(icmp.kind), icmp)),
        _ => None,
    }
}

/// Whether an error is about a packet that its receiver has sent in the flow with which it is associated (RFC
/// 5927 section 4): the TCP sequence number or the ICMP identifier has to be one of the flow's. An error that
/// quotes too little to decide is refused.
fn quotes(packet: &Decoded, flow: &FlowView<'_>, state: Option<&SfwFlowState>) -> bool {
    let Some(quoted) = packet.about().filter(|quoted| quoted.proto == flow.protocol) else { return false };
    match (flow.tcp, quoted.icmp) {
        (Some(session), _) => {
            let sender = (quoted.src, quoted.ports.map_or(0, |ports| ports.0));
            let direction = if sender == flow.client { Direction::ToServer } else { Direction::ToClient };
            let sent = |seq| sfw_tcp::was_sent(session, direction, seq);
            session.exists() && quoted.tcp_seq.is_some_and(sent)
        }
        (None, Some(icmp)) => state.is_none_or(|state| state.has_icmp_id(icmp.id)),
        (None, None) => true,
    }
}

impl Sfw {
    /// The decision on a packet: whether the function is done with its flow, or the reason of a refusal.
    fn judge(
        &self,
        rules: &SfwPolicyRules,
        context: &mut PacketContext<'_>,
        counts: &mut SfwCounts,
    ) -> Result<bool, Reason> {
        let Some(packet) = context.facts.packet.map(|p| p.decoded()) else { return Ok(false) };
        match (context.facts.flow, packet.transport.tcp()) {
            (Some(flow), Some(segment)) if flow.protocol == 6 => {
                let (Some(outcome), Some(session)) = (context.notes.tcp, flow.tcp) else { return Ok(false) };
                let tracked = Tracked {
                    outcome,
                    session,
                    segment,
                    payload_len: packet.payload_len,
                    direction: context.facts.direction,
                    established: flow.established,
                };
                let cell = tracked.cell(rules.wants);
                self.segment(rules, cell, flow, session.state(), context, counts)?;
                Ok(false)
            }
            _ => self.message(rules, packet, context, counts),
        }
    }

    /// Carries out the table's decision on a segment.
    fn segment(
        &self,
        rules: &SfwPolicyRules,
        cell: Transition,
        flow: &FlowView<'_>,
        state: TcpState,
        context: &mut PacketContext<'_>,
        counts: &mut SfwCounts,
    ) -> Result<(), Reason> {
        match cell.action {
            SfwAction::Skip => return Ok(()),
            SfwAction::Refuse => return Err(cell.reason.unwrap_or(Reason::SfwState)),
            SfwAction::Admit => {}
        }
        let settled = |known: &SfwFlowState| known.generation == self.generation && known.counted.is_none();
        if self.state(context).is_some_and(settled) {
            // The flow is admitted and counted already, as for nearly every segment of a connection.
            return Ok(());
        }
        let share = sfw_table::share(state);
        self.admit(rules, flow, share == ConnectionShare::HalfOpen, context, counts)?;
        self.follow(share, context);
        Ok(())
    }

    /// The decision on a packet other than a segment of a tracked connection.
    fn message(
        &self,
        rules: &SfwPolicyRules,
        packet: &Decoded,
        context: &mut PacketContext<'_>,
        counts: &mut SfwCounts,
    ) -> Result<bool, Reason> {
        let icmp = icmp_kind(packet);
        let known = match context.facts.flow {
            None => SfwAdmission::NoFlow,
            Some(_) if self.is_admitted(context) => SfwAdmission::Admitted,
            Some(_) => SfwAdmission::New,
        };
        let message = match icmp.map(|(kind, _)| kind) {
            None if matches!(packet.transport, TransportLayer::Tcp(_)) => SfwMessageKind::Untracked,
            None => SfwMessageKind::Plain,
            Some(IcmpKind::Question) => SfwMessageKind::Question,
            Some(IcmpKind::Answer) if context.facts.direction == Direction::ToServer => {
                SfwMessageKind::AnswerOfAsker
            }
            Some(IcmpKind::Answer) => SfwMessageKind::Answer,
            Some(IcmpKind::Neighbour) => SfwMessageKind::Neighbour,
            Some(IcmpKind::Error) => {
                let about = context.facts.flow.is_none_or(|flow| quotes(packet, flow, self.state(context)));
                let related = context.notes.related == Some(true) && about;
                if related { SfwMessageKind::Error } else { SfwMessageKind::StrayError }
            }
        };
        let flow = match (sfw_messages::exchange(known, message), context.facts.flow) {
            ((SfwAction::Refuse, reason), _) => return Err(reason.unwrap_or(Reason::SfwNoConnection)),
            ((SfwAction::Admit, _), Some(flow)) => flow,
            // The exchange that it answers is unknown: the packet is forwarded if its sender may open flows.
            ((SfwAction::Admit, _), None) => {
                let ends = packet.src().zip(packet.dst());
                let may =
                    ends.is_none_or(|(client, server)| rules.may_open_between(client, server, context.notes));
                return if may { Ok(false) } else { Err(Reason::SfwInitiator) };
            }
            _ => return Ok(false),
        };
        self.admit(rules, flow, false, context, counts)?;
        if let Some((_, message)) = icmp
            && let Some(state) = slot_as_mut::<SfwFlowState>(context.slot)
        {
            state.note_icmp_id(message.id);
        }
        // No later packet can change the decision, except for ICMP, whose flows have several types.
        Ok(icmp.is_none() && flow.protocol != 6 && flow.established && !self.counts_in(context))
    }

    fn state<'c>(&self, context: &'c PacketContext<'_>) -> Option<&'c SfwFlowState> {
        slot_as::<SfwFlowState>(context.slot)
    }

    fn is_admitted(&self, context: &PacketContext<'_>) -> bool {
        self.state(context).is_some()
    }

    fn counts_in(&self, context: &PacketContext<'_>) -> bool {
        self.state(context).is_some_and(|s| s.counted.is_some())
    }

    /// Admits a flow, once; another generation checks again whether it may be opened.
    fn admit(
        &self,
        rules: &SfwPolicyRules,
        flow: &FlowView<'_>,
        half_open: bool,
        context: &mut PacketContext<'_>,
        counts: &mut SfwCounts,
    ) -> Result<(), Reason> {
        let known = slot_as_mut::<SfwFlowState>(context.slot);
        if known.as_ref().is_some_and(|s| s.generation == self.generation) {
            return Ok(());
        }
        if !rules.may_open(flow, context.notes) {
            return Err(Reason::SfwInitiator);
        }
        let now = context.facts.now;
        if let Some(known) = known {
            known.generation = self.generation;
            if known.counted.is_none() {
                // The flow was admitted before there was a limit, and stays; from now on it counts among the
                // open ones.
                known.counted = self.count(rules, flow, half_open, SourceLimitEffect::Counts, now, counts)?;
            }
            return Ok(());
        }
        let counted = self.count(rules, flow, half_open, SourceLimitEffect::Refuses, now, counts)?;
        counts.admitted += 1;
        *context.slot =
            Some(Box::new(SfwFlowState { generation: self.generation, counted, icmp_ids: SmallVec::new() }));
        Ok(())
    }

    /// Counts the flow for its source, if there is a limit.
    fn count(
        &self,
        rules: &SfwPolicyRules,
        flow: &FlowView<'_>,
        half_open: bool,
        limit: SourceLimitEffect,
        now: Timestamp,
        counts: &mut SfwCounts,
    ) -> Result<Option<SfwSourceShare>, Reason> {
        let SfwSection { max_half_open, max_connections, .. } = *rules.section();
        if max_half_open.is_none() && max_connections.is_none() {
            return Ok(None);
        }
        let key = HostKey::host(flow.tenant, flow.client.0);
        let result = self.hosts.with(&key, now, |host| {
            let refuses = limit == SourceLimitEffect::Refuses;
            if refuses && half_open && max_half_open.is_some_and(|max| host.half_open >= max) {
                return Err(Reason::SfwSynLimit);
            }
            if refuses && max_connections.is_some_and(|max| host.connections >= max) {
                return Err(Reason::SfwConnectionLimit);
            }
            host.half_open += u32::from(half_open);
            host.connections += 1;
            Ok(())
        });
        match result {
            Ok(Ok(())) => {
                Ok(Some(SfwSourceShare { hosts: Arc::clone(&self.hosts), key, half_open, last: now }))
            }
            Ok(Err(reason)) => Err(reason),
            Err(_) => {
                counts.untracked += 1;
                Ok(None)
            }
        }
    }

    /// Updates a connection's share of the limits by its state.
    fn follow(&self, share: ConnectionShare, context: &mut PacketContext<'_>) {
        let now = context.facts.now;
        let Some(state) = slot_as_mut::<SfwFlowState>(context.slot) else { return };
        let Some(counted) = &mut state.counted else { return };
        counted.last = now;
        match share {
            ConnectionShare::HalfOpen => {}
            ConnectionShare::Open => counted.opened(),
            ConnectionShare::Nothing => state.counted = None,
        }
    }
}

impl Function for Sfw {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn id(&self) -> FunctionId {
        self.id
    }

    fn worker(&self) -> WorkerState {
        Box::new(SfwCounts::default())
    }

    fn packet(&self, context: &mut PacketContext<'_>) -> Decision {
        let Some(rules) = self.by_fid.get(context.notes.fid).and_then(|i| self.rules.get(i)) else {
            return Decision::CONTINUE;
        };
        let mut counts = SfwCounts::default();
        let result = self.judge(rules, context, &mut counts);
        let decision = match result {
            Ok(done) => Decision { done, ..Decision::CONTINUE },
            Err(reason) => {
                counts.dropped += 1;
                Decision::refuse(Verdict::Drop, reason, self.id)
            }
        };
        if let Some(sum) = context.worker.downcast_mut::<SfwCounts>() {
            sum.admitted += counts.admitted;
            sum.dropped += counts.dropped;
            sum.untracked += counts.untracked;
        }
        decision
    }

    /// An admitted flow of this generation needs no further checks or counts. A connection still needs its
    /// numbers; without the policy's window check they are compared nevertheless, since plain segments are
    /// within the window.
    fn below(&self, flow: &FlowView<'_>, fid: Fid, slot: &StateSlot) -> OffloadRequirement {
        let let_in = slot_as::<SfwFlowState>(slot).is_some_and(|known| {
            let half_open = known.counted.as_ref().is_some_and(|counted| counted.half_open);
            known.generation == self.generation && !half_open
        });
        match flow.protocol {
            _ if self.by_fid.get(fid).is_none() => OffloadRequirement::Nothing,
            _ if !let_in || !flow.established => OffloadRequirement::Judges,
            6 => OffloadRequirement::Windows,
            // The decision is the same for every packet of these; ICMP has several kinds.
            1 | 58 => OffloadRequirement::Judges,
            _ => OffloadRequirement::Nothing,
        }
    }

    fn hosts(&self) -> Option<Arc<dyn HostKeeper>> {
        Some(Arc::clone(&self.hosts) as Arc<dyn HostKeeper>)
    }

    fn explain(&self, context: &PacketContext<'_>) -> serde_json::Map<String, serde_json::Value> {
        let mut said = serde_json::Map::new();
        let rules = self.by_fid.get(context.notes.fid).and_then(|i| self.rules.get(i));
        let (Some(rules), Some(flow)) = (rules, context.facts.flow) else { return said };
        let initiate = match rules.section().initiate {
            Initiate::From => "from",
            Initiate::To => "to",
            Initiate::Both => "both",
        };
        said.insert("initiate".to_owned(), initiate.into());
        said.insert("may_open".to_owned(), rules.may_open(flow, context.notes).into());
        for (name, limit) in [
            ("max_half_open", rules.section().max_half_open),
            ("max_connections", rules.section().max_connections),
        ] {
            if let Some(limit) = limit {
                said.insert(name.to_owned(), limit.into());
            }
        }
        said
    }

    fn log(&self, worker: &WorkerState, each: &mut dyn FnMut(&'static str, u64)) {
        let Some(counts) = worker.downcast_ref::<SfwCounts>() else { return };
        each("admitted", counts.admitted);
        each("dropped", counts.dropped);
        each("untracked", counts.untracked);
    }
}
