// SPDX-License-Identifier: Apache-2.0
//! The remainder of a flow is inspected without a packet: functions see the flow, its stream and its
//! transactions, and no header. Rules with conditions on a header do not match, those on addresses do, as in
//! Suricata.

use bartizan_base::{Decision, Direction, FunctionId};
use bartizan_function::{
    Function, FunctionKind, FunctionModel, FunctionSpec, PacketContext, RuleSource, RulesError,
};
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit::hosts::{ethernet, ip, tcp};
use bartizan_testkit_worker::{Captured, Made, Stack};
use serde_json::Value;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

const RULES: &str = "alert tcp any any -> any 80 (msg:\"stream\"; flow:established; content:\"never/whole\"; sid:1;)\n\
    alert http any any -> any any (msg:\"addresses\"; ip.src; content:\"|01|\"; endswith; http.uri; content:\"whole\"; sid:2;)\n\
    alert http any any -> any any (msg:\"the other side's address\"; ip.src; content:\"|02|\"; endswith; http.uri; content:\"whole\"; sid:3;)\n\
    alert tcp any any -> any 80 (msg:\"header\"; flow:established; ttl:64; sid:4;)\n\
    alert tcp any any -> any 80 (msg:\"flags\"; flow:established; flags:A+; sid:5;)\n\
    alert http any any -> any any (msg:\"protocol\"; sid:6;)\n";

/// One call of a function on a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    packet: bool,
    flow_ends: bool,
    direction: Direction,
    source: Option<(IpAddr, u16)>,
    transactions: usize,
}

#[derive(Clone)]
struct Looker {
    id: FunctionId,
    model: FunctionModel,
    looks: Arc<Mutex<Vec<Look>>>,
}

const fn spec(name: &'static str, model: FunctionModel) -> FunctionSpec {
    FunctionSpec {
        name,
        summary: "Notes what it is shown.",
        model,
        runs_after: &["sfw"],
        runs_before: &["ids"],
        header_half: None,
        host_slot: None,
        counters: &[],
    }
}

static PAYLOAD: FunctionSpec = spec("looker", FunctionModel::Payload);
static HEADER: FunctionSpec = spec("peeker", FunctionModel::StatefulHeaders);

impl FunctionKind for Looker {
    fn spec(&self) -> &'static FunctionSpec {
        if self.model == FunctionModel::Payload { &PAYLOAD } else { &HEADER }
    }

    fn rules(&self, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>> {
        Ok(Box::new(Looker { id: source.id, ..self.clone() }))
    }
}

impl Looker {
    fn look(&self, context: &mut PacketContext<'_>) -> Decision {
        let direction = context.facts.direction;
        self.looks.lock().unwrap().push(Look {
            packet: context.facts.packet.is_some(),
            flow_ends: context.facts.flow_ends,
            direction,
            source: context.facts.flow.map(|flow| flow.source(direction)),
            transactions: context.app.as_mut().map_or(0, |app| app.transactions().count()),
        });
        Decision::CONTINUE
    }
}

impl Function for Looker {
    fn spec(&self) -> &'static FunctionSpec {
        FunctionKind::spec(self)
    }

    fn id(&self) -> FunctionId {
        self.id
    }

    fn packet(&self, context: &mut PacketContext<'_>) -> Decision {
        if self.model == FunctionModel::StatefulHeaders { self.look(context) } else { Decision::CONTINUE }
    }

    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        self.look(context)
    }
}

/// Passively, an unacknowledged request is parsed when its flow ends.
fn passive(settings: &mut EngineSettings) {
    let shipped = bartizan_config::suricata::shipped();
    *settings = EngineSettings::from_settings(&shipped, false, [1, 2]).unwrap().0;
}

struct Ran {
    payload: Vec<Look>,
    header: Vec<Look>,
    alerts: Vec<Value>,
}

/// A connection whose request is never answered, and which is never closed.
fn run(test: &str, v6: bool) -> Ran {
    let name = format!("rest-{test}-{v6}");
    let policy = "chain: [peeker, looker, ids], ids: {rules: r}";
    let made = Made { name: &name, policy, set: &[], tune: passive, rules: RULES, thresholds: "" };
    let looks = [Arc::<Mutex<Vec<Look>>>::default(), Arc::default()];
    let kind = |model, looks: &Arc<Mutex<Vec<Look>>>| -> Arc<dyn FunctionKind> {
        Arc::new(Looker { id: FunctionId(0), model, looks: Arc::clone(looks) })
    };
    let kinds =
        vec![kind(FunctionModel::StatefulHeaders, &looks[1]), kind(FunctionModel::Payload, &looks[0])];
    let mut stack = Stack::with_functions(&made, kinds);
    let request = b"GET /never/whole HTTP/1.1\r\nHost: h\r\n\r\n";
    let packets: [(usize, u8, &[u8]); 4] = [(0, 2, b""), (1, 18, b""), (0, 16, b""), (0, 24, request)];
    let mut next = [100, 500];
    for (at, (side, flags, payload)) in packets.into_iter().enumerate() {
        let (ends, ports) = [((1, 2), (1000, 80)), ((2, 1), (80, 1000))][side];
        let ack = if flags & 16 > 0 { next[1 - side] } else { 0 };
        let segment = tcp(ports, next[side], ack, flags, payload);
        next[side] += payload.len() as u32 + u32::from(flags & 3 > 0);
        let frame = Captured::at_millis(at as u64 + 1, ethernet(v6, &ip(v6, ends, 6, &segment)));
        let decision = stack.worker.frame(&frame.frame(at as u64 + 1), &mut stack.recorder);
        assert!(decision.expect("no fragment").verdict.forwards());
    }
    let (_, events) = stack.finish();
    let alerts = events.into_iter().filter(|event| event["event_type"] == "alert").collect();
    let [payload, header] = looks.map(|looks| looks.lock().unwrap().clone());
    Ran { payload, header, alerts }
}

#[test]
fn functions_are_shown_the_rest_of_a_flow_without_a_packet() {
    for v6 in [false, true] {
        let ran = run("looks", v6);
        assert_eq!(ran.header.len(), 4, "header functions see packets alone");
        assert!(ran.header.iter().all(|look| look.packet && !look.flow_ends));
        let (packets, rest): (Vec<_>, Vec<_>) = ran.payload.into_iter().partition(|look| look.packet);
        assert!(packets.iter().all(|look| !look.flow_ends));
        assert!(rest.iter().all(|look| look.flow_ends && look.transactions <= 1), "{rest:?}");
        let of = |direction| rest.iter().find(|look| look.direction == direction).expect("each direction");
        let (client, server) = (of(Direction::ToServer).source, of(Direction::ToClient).source);
        assert_eq!(client, packets[0].source, "the client sends to the server");
        assert_eq!((client.unwrap().1, server.unwrap().1), (1000, 80));
        assert_eq!(client.unwrap().0.is_ipv6(), v6);
    }
}

#[test]
fn at_the_end_rules_on_headers_hold_nothing_and_alerts_show_the_flows_ends() {
    for v6 in [false, true] {
        let ran = run("rules", v6);
        let sids = |ends: bool| {
            let at_end = |alert: &&Value| (alert["pkt_src"] == "stream (flow timeout)") == ends;
            let mut sids: Vec<_> = ran
                .alerts
                .iter()
                .filter(at_end)
                .map(|a| a["alert"]["signature_id"].as_u64().unwrap())
                .collect();
            sids.sort_unstable();
            sids.dedup();
            sids
        };
        assert_eq!(sids(false), [4, 5]);
        assert_eq!(sids(true), [1, 2, 6]);
        for alert in ran.alerts.iter().filter(|alert| alert["pkt_src"] == "stream (flow timeout)") {
            assert!(alert.get("pcap_cnt").is_none() && alert.get("packet").is_none(), "{alert}");
            let to_server = alert["direction"] == "to_server";
            let ports = if to_server { (1000, 80) } else { (80, 1000) };
            let shown = (alert["src_port"].as_u64().unwrap(), alert["dest_port"].as_u64().unwrap());
            assert_eq!(shown, ports, "{alert}");
            assert_eq!(alert["ip_v"], if v6 { 6 } else { 4 });
        }
    }
}
