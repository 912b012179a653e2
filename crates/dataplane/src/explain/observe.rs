// SPDX-License-Identifier: Apache-2.0
//! A function under observation: calls are passed through to it and recorded.

use bartizan_base::{Decision, Direction, FunctionId, RuleId, TenantId};
use bartizan_function::{FlowView, Function, FunctionModel, FunctionSpec, PacketContext};
use bartizan_stages::chain::Chains;
use bartizan_stages::observers::with_functions;
use core::net::IpAddr;
use serde_json::{Map, Value};
use std::sync::{Arc, Mutex, PoisonError};

/// The half of a function that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Half {
    /// On headers and flow state.
    Header,
    /// On payload, streams and transactions.
    Payload,
}

/// A flow as it was at a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSeen {
    /// Number of the flow in events.
    pub id: u64,
    /// Tenant of the traffic.
    pub tenant: TenantId,
    /// IP protocol.
    pub protocol: u8,
    /// Address and port of the side that opened the flow.
    pub client: (IpAddr, u16),
    /// Address and port of the other side.
    pub server: (IpAddr, u16),
    /// State of the TCP connection.
    pub tcp: Option<&'static str>,
    /// Application protocol, as far as detected.
    pub app: Option<&'static str>,
}

impl FlowSeen {
    pub(super) fn of_entry(flow: &bartizan_stages::record::Entry) -> Self {
        let key = flow.key();
        let summary = flow.ext.app.as_deref().map(|app| app.summary()).unwrap_or_default();
        let session = &flow.ext.session;
        FlowSeen {
            id: flow.ext.event_id,
            tenant: flow.tenant(),
            protocol: key.protocol(),
            client: (key.source(), key.source_port()),
            server: (key.destination(), key.destination_port()),
            tcp: (key.protocol() == 6 && session.exists()).then(|| session.state().eve_name()).flatten(),
            app: summary.current().and_then(bartizan_applayer::protocols::spec).map(|s| s.eve_name),
        }
    }

    fn of(flow: &FlowView<'_>) -> Self {
        let protocol = flow.app.current().and_then(bartizan_applayer::protocols::spec);
        FlowSeen {
            id: flow.id,
            tenant: flow.tenant,
            protocol: flow.protocol,
            client: flow.client,
            server: flow.server,
            tcp: flow.tcp.filter(|session| session.exists()).and_then(|session| session.state().eve_name()),
            app: protocol.map(|spec| spec.eve_name),
        }
    }
}

/// One call of a function.
#[derive(Clone, Debug)]
pub struct FunctionCall {
    /// The function.
    pub function: FunctionId,
    /// Name of the function.
    pub name: &'static str,
    /// Called half.
    pub half: Half,
    /// Direction of the packet within its flow.
    pub direction: Direction,
    /// The flow, unless the packet has none.
    pub flow: Option<FlowSeen>,
    /// Decision of the function.
    pub decision: Decision,
    /// Findings: rule and message.
    pub findings: Vec<(RuleId, String)>,
    /// Details from the function's `explain`, if requested.
    pub details: Map<String, Value>,
}

/// Calls in their order, shared by the observed functions and the reader.
pub type Calls = Arc<Mutex<Vec<FunctionCall>>>;

/// Takes the recorded calls.
#[must_use]
pub fn take(calls: &Calls) -> Vec<FunctionCall> {
    core::mem::take(&mut *calls.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Mode of the observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// Each call requests details ([`Function::explain`]): for few packets only.
    pub details: bool,
    /// Refusals are recorded but not enforced, so that later functions are called as well.
    pub go_on: bool,
}

/// An observed function; see the module.
pub struct Observed {
    inner: Arc<dyn Function>,
    calls: Calls,
    how: How,
}

impl Observed {
    fn call(
        &self,
        half: Half,
        context: &mut PacketContext<'_>,
        callback: impl Fn(&dyn Function, &mut PacketContext<'_>) -> Decision,
    ) -> Decision {
        let details = if self.how.details { self.inner.explain(context) } else { Map::new() };
        let before = context.findings.len();
        let decision = callback(self.inner.as_ref(), context);
        let findings = context.findings.iter().skip(before);
        let call = FunctionCall {
            function: self.inner.id(),
            name: self.inner.spec().name,
            half,
            direction: context.facts.direction,
            flow: context.facts.flow.map(FlowSeen::of),
            decision,
            findings: findings.map(|f| (f.rule.id, f.rule.message.clone())).collect(),
            details,
        };
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
        if self.how.go_on && !decision.verdict.forwards() { Decision::CONTINUE } else { decision }
    }
}

impl Function for Observed {
    fn spec(&self) -> &'static FunctionSpec {
        self.inner.spec()
    }

    fn id(&self) -> FunctionId {
        self.inner.id()
    }

    fn inner(&self) -> Option<&dyn Function> {
        Some(self.inner.as_ref())
    }

    fn is_idle(&self) -> bool {
        // Every call is recorded.
        false
    }

    fn packet(&self, context: &mut PacketContext<'_>) -> Decision {
        // Without a flow, payload functions are called for both halves; theirs is the payload half.
        if self.spec().model == FunctionModel::Payload {
            return self.inner.packet(context);
        }
        self.call(Half::Header, context, |function, context| function.packet(context))
    }

    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        self.call(Half::Payload, context, |function, context| function.payload(context))
    }
}

/// A copy of the chains in which every function is observed.
#[must_use]
pub fn observed(chains: &Arc<Chains>, tenant: Option<TenantId>, how: How) -> (Arc<Chains>, Calls) {
    let calls = Calls::default();
    let functions = (chains.functions.iter())
        .map(|inner| {
            let observed = Observed { inner: Arc::clone(inner), calls: Arc::clone(&calls), how };
            Arc::new(observed) as Arc<dyn Function>
        })
        .collect();
    (Arc::new(with_functions(chains, functions, tenant)), calls)
}
