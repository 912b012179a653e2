// SPDX-License-Identifier: Apache-2.0
//! Translates messages to commands, and results to answers in the form of Suricata's tools.

use super::{flow_words, trace_words};
use crate::channel::{Channel, CommandOutcome, ControlCommand, SetCommand, ValueCommand};
use crate::functions::{self, Functions};
use crate::queries::{ControlQuery, View};
use crate::traces::{ClientState, TraceError, TraceRequest, Traces};
use bartizan_api::control::{COMMANDS, ControlReply, ControlRequest, command};
use bartizan_api::southbound::{FunctionOrder, FunctionState};
use bartizan_dataplane::driver::inquiry::{self, Collector, FlowsWanted};
use bartizan_dataplane::driver::{Counted, LiveFlow};
use bartizan_dataplane::eve::RulesInForce;
use bartizan_detect::ruleset::RefusedRule;
use bartizan_events::SURICATA_VERSION;
use bartizan_offload::OffloadDenied;
use bartizan_ports::PeerProcess;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::info;

/// Longest wait for workers that answer a query about their flows, or enter another generation. An idle
/// worker checks ten times a second, and is woken.
const WORKERS: Duration = Duration::from_secs(5);

/// Carries out the commands of clients.
pub struct Desk {
    channel: Channel,
    view: View,
    functions: Functions,
    traces: Arc<Traces>,
    /// Names of the links, by number.
    links: Vec<String>,
}

impl Desk {
    /// A desk with these names of links, by number.
    pub fn new(channel: Channel, view: View, traces: Arc<Traces>, links: Vec<String>) -> Self {
        let functions = Functions::new(channel.clone(), view.clone());
        Desk { channel, view, functions, traces, links }
    }

    /// Traces of rules.
    pub fn traces(&self) -> &Traces {
        &self.traces
    }

    /// Carries out a command, and logs the client. A lengthy command checks with `client` whether the client
    /// still waits.
    pub fn carry_out(
        &self,
        request: &ControlRequest,
        peer: &PeerProcess,
        client: &dyn Fn() -> ClientState,
    ) -> ControlReply {
        let name = request.command.as_str();
        let Some(spec) = command(name) else {
            let known: Vec<&str> = COMMANDS.iter().map(|command| command.name).collect();
            return ControlReply::refused(format!("unknown command; commands are {}", known.join(", ")));
        };
        info!("control: {peer} requests {}", spec.name);
        match spec.name {
            "command-list" | "help" => commands(),
            "version" => ControlReply::ok(version()),
            "running-mode" => ControlReply::ok("workers"),
            "capture-mode" => ControlReply::ok("AF_PACKET_DEV"),
            _ => match dispatch_of(request) {
                Ok(RequestDispatch::Question(question)) => self.reply(name, self.view.answer(&question)),
                Ok(RequestDispatch::List) => {
                    self.functions.list().map_or_else(ControlReply::refused, ControlReply::ok)
                }
                Ok(RequestDispatch::Order(order, function, settings)) => {
                    let reply = state(&self.functions.carry_out(order, &function, &settings));
                    match order {
                        FunctionOrder::Configure => reply.with(self.view.in_force.newest().to_json()),
                        _ => reply,
                    }
                }
                Ok(RequestDispatch::Command(command)) => {
                    let reloads = command == ControlCommand::Reload;
                    let reply = self.reply(name, self.channel.execute(command));
                    // The answer to a refused reload shows the generation that continues.
                    if reloads { reply.with(self.view.in_force.newest().to_json()) } else { reply }
                }
                Ok(RequestDispatch::Trace(wanted)) => self.trace(&wanted, client),
                Err(why) => ControlReply::refused(format!("{why}; write `{}`", spec.usage())),
            },
        }
    }

    fn trace(&self, wanted: &TraceRequest, client: &dyn Fn() -> ClientState) -> ControlReply {
        match self.traces.trace(wanted, client) {
            Ok(answer) => match serde_json::to_value(&answer) {
                Ok(told) => ControlReply::ok(told),
                Err(error) => ControlReply::refused(format!(
                    "the trace cannot be written ({error}); please report this defect"
                )),
            },
            Err(TraceError::Other(why)) => ControlReply::refused(why),
            Err(TraceError::Unknown(why)) => ControlReply::refused(self.left_out(wanted, why)),
        }
    }

    /// The reason why a rule is not in force, if it was left out when rules were loaded.
    fn left_out(&self, wanted: &TraceRequest, why: String) -> String {
        let CommandOutcome::FailedRules(failed, more) = self.channel.execute(ControlCommand::FailedRules)
        else {
            return why;
        };
        let rule = wanted.rule;
        let is_it = |failed: &&RefusedRule| {
            failed.id.is_some_and(|(gid, sid)| sid == rule.sid && rule.gid.is_none_or(|asked| asked == gid))
        };
        match failed.iter().find(is_it) {
            Some(RefusedRule { file, place: (line, column), message, .. }) => {
                format!(
                    "rule {rule} is not in force, because it was skipped when it was loaded: {file}:{line}:{column}: {message}"
                )
            }
            None if more > 0 => format!(
                "{why}. {more} skipped rules are not listed, and it may be one of them: see the log of the start"
            ),
            None => why,
        }
    }

    fn reply(&self, name: &str, answer: CommandOutcome) -> ControlReply {
        match answer {
            CommandOutcome::Done => ControlReply::ok(match name {
                "shutdown" => "Closing Bartizan",
                "dataset-clear" => "dataset cleared",
                "dataset-dump" => "datasets dump done",
                _ => "done",
            }),
            CommandOutcome::Reloaded(now) if self.view.wait_for(now.generation, WORKERS) => {
                ControlReply::ok("done")
            }
            CommandOutcome::Reloaded(now) => ControlReply::refused(format!(
                "generation {} is loaded, but a worker does not run it yet and may hang; see the log and the metric bartizan_worker_late",
                now.generation.0
            )),
            CommandOutcome::Refused(why) => ControlReply::refused(why),
            CommandOutcome::Counters(event) => counters(&event),
            CommandOutcome::Interface(stat) => ControlReply::ok(json!({
                "pkts": stat.packets,
                "invalid-checksums": stat.invalid_checksums,
                "drop": stat.dropped,
                "bypassed": stat.bypassed,
            })),
            CommandOutcome::Names(names) => ControlReply::ok(json!({"count": names.len(), "ifaces": names})),
            CommandOutcome::Rules(rules) => {
                ControlReply::ok(self::rules(name, &rules)).with(self.view.in_force.newest().to_json())
            }
            CommandOutcome::FailedRules(rules, more) => failed(&rules, more),
            CommandOutcome::Text(text) => ControlReply::ok(text),
            CommandOutcome::Number(number) => ControlReply::ok(number),
            CommandOutcome::Told(told) => ControlReply::ok(told),
            CommandOutcome::NotBuilt(_) => ControlReply::refused("it cannot be built"),
            CommandOutcome::Workers(mut collector) => {
                let end = Instant::now() + WORKERS;
                collector.collect(|| end.saturating_duration_since(Instant::now()));
                match name {
                    "levels" => levels(collector),
                    "get-flow-stats-by-id" => flow_stats(collector),
                    _ => self.flows(collector),
                }
            }
        }
    }

    fn flows(&self, collector: Collector) -> ControlReply {
        let (answer, late) = collector.finish();
        let told: Vec<Value> = answer.flows.iter().filter_map(|flow| self.flow(flow)).collect();
        let late: Vec<u16> = late.iter().map(|worker| worker.0).collect();
        ControlReply::ok(json!({
            "count": told.len() as u64 + answer.omitted,
            "flows": told,
            "omitted": answer.omitted,
            "late_workers": late,
        }))
    }

    fn flow(&self, flow: &LiveFlow) -> Option<Value> {
        let mut told = serde_json::to_value(flow).ok()?;
        let link = self.links.get(usize::from(flow.link)).cloned();
        told.as_object_mut()?.insert("link".to_owned(), link.map_or_else(|| flow.link.into(), Value::from));
        Some(told)
    }
}

fn commands() -> ControlReply {
    let names: Vec<&str> = COMMANDS.iter().map(|command| command.name).collect();
    ControlReply::ok(json!({"count": names.len(), "commands": names}))
}

/// Suricata's version first, which tools compare.
fn version() -> String {
    format!("{SURICATA_VERSION} as Bartizan {} has it", env!("CARGO_PKG_VERSION"))
}

/// The recipient of a request: the supervisor, or state that can be read at once.
#[derive(Debug, PartialEq)]
enum RequestDispatch {
    Command(ControlCommand),
    Question(ControlQuery),
    /// List of all functions.
    List,
    /// An order about a function, with settings.
    Order(FunctionOrder, String, Map<String, Value>),
    /// A trace of a rule on the next packets.
    Trace(TraceRequest),
}

/// The recipient and content of a request.
fn dispatch_of(request: &ControlRequest) -> Result<RequestDispatch, String> {
    let text = |name: &str| request.text(name).map(str::to_owned);
    let value = |what| {
        Ok::<_, String>(SetCommand::Value(what, text("setname")?, text("settype")?, text("datavalue")?))
    };
    let order = |order, settings| Ok(RequestDispatch::Order(order, text("function")?, settings));
    let question = match request.command.as_str() {
        "uptime" => ControlQuery::Uptime,
        "dump-counters" => ControlQuery::Counters,
        "iface-list" => ControlQuery::Interfaces,
        "iface-stat" => ControlQuery::Interface(text("iface")?),
        "ruleset-reload-time" | "ruleset-stats" => ControlQuery::Rules,
        "get-flow-stats-by-id" => {
            let number = Some(request.number("flow_id")?);
            ControlQuery::Flows(FlowsWanted { number, ..FlowsWanted::default() })
        }
        "trace" => return trace_words::parse(request).map(RequestDispatch::Trace),
        "levels" => ControlQuery::Levels,
        "status" => ControlQuery::Status,
        "controller" => ControlQuery::Controller,
        "guest-list" => ControlQuery::Guests,
        "guest-status" => ControlQuery::GuestStreams(Some(text("guest")?).filter(|guest| !guest.is_empty())),
        "function-list" => return Ok(RequestDispatch::List),
        "function-health" => return order(FunctionOrder::Health, Map::new()),
        "function-stop" => return order(FunctionOrder::Stop, Map::new()),
        "function-start" => return order(FunctionOrder::Start, Map::new()),
        "function-restart" => return order(FunctionOrder::Restart, Map::new()),
        "function-configure" => return order(FunctionOrder::Configure, settings_of(request)?),
        "explain-flow" => ControlQuery::Flows(flow_words::parse(request.text("flow")?)?),
        name => {
            return Ok(RequestDispatch::Command(match name {
                "conf-get" => ControlCommand::Setting(text("variable")?),
                "reload-rules" | "ruleset-reload-rules" => ControlCommand::Reload,
                "ruleset-reload-nonblocking" => ControlCommand::ReloadLater,
                "ruleset-failed-rules" => ControlCommand::FailedRules,
                "reopen-log-files" => ControlCommand::Reopen,
                "dataset-add" => ControlCommand::Set(value(ValueCommand::Add)?),
                "dataset-remove" => ControlCommand::Set(value(ValueCommand::Remove)?),
                "dataset-lookup" => ControlCommand::Set(value(ValueCommand::Lookup)?),
                "dataset-clear" => ControlCommand::Set(SetCommand::Clear(text("setname")?, text("settype")?)),
                "dataset-dump" => ControlCommand::Set(SetCommand::Dump),
                "shutdown" => ControlCommand::Stop,
                other => return Err(format!("the command `{other}` is not supported here")),
            }));
        }
    };
    Ok(RequestDispatch::Question(question))
}

/// Settings as an object, or as words of a command line.
fn settings_of(request: &ControlRequest) -> Result<Map<String, Value>, String> {
    match request.arguments.get("settings") {
        Some(Value::Object(settings)) => Ok(settings.clone()),
        _ => functions::settings(request.text("settings")?),
    }
}

/// The health of a function. An order that was not carried out is a refusal.
fn state(state: &FunctionState) -> ControlReply {
    match state.done {
        true => ControlReply::ok(
            json!({"function": state.function, "state": state.state, "reason": state.reason}),
        ),
        false => ControlReply::refused(format!("`{}` is {}: {}", state.function, state.state, state.reason)),
    }
}

/// Counters of a `stats` event, with those that Suricata does not have.
fn counters(event: &[u8]) -> ControlReply {
    let Ok(Value::Object(mut event)) = serde_json::from_slice(event) else {
        return ControlReply::refused("the counters cannot be read; please report this defect");
    };
    let own = event.remove("bartizan").and_then(|mut own| own.get_mut("stats").map(Value::take));
    let Some(Value::Object(mut stats)) = event.remove("stats") else {
        return ControlReply::refused("there are no counters; please report this defect");
    };
    own.into_iter().for_each(|own| _ = stats.insert("bartizan".to_owned(), own));
    ControlReply::ok(stats)
}

fn rules(name: &str, rules: &RulesInForce) -> Value {
    if name == "ruleset-reload-time" {
        return json!([{"id": 0, "last_reload": bartizan_events::time_text(rules.since)}]);
    }
    json!([{
        "id": 0,
        "rules_loaded": rules.loaded,
        "rules_failed": rules.failed,
        "rules_skipped": rules.skipped,
    }])
}

fn failed(rules: &[RefusedRule], more: u64) -> ControlReply {
    let one = |rule: &RefusedRule| {
        let id = rule.id.map(|(gid, sid)| format!("{gid}:{sid}")).unwrap_or_default();
        json!({
            "tenant_id": 0,
            "rule": id,
            "filename": rule.file.as_ref(),
            "line": rule.place.0,
            "error": rule.message,
        })
    };
    let mut all: Vec<Value> = rules.iter().map(one).collect();
    if more > 0 {
        all.push(json!({"omitted": more}));
    }
    ControlReply::ok(all)
}

fn levels(collector: Collector) -> ControlReply {
    let (inquiry::WorkerReply { levels, .. }, late) = collector.finish();
    let mut stays = Map::new();
    for (code, flows) in &levels.stays {
        let why = OffloadDenied::ALL.iter().find(|why| why.name() == *code).map_or("", |why| why.explained());
        stays.insert((*code).to_owned(), json!({"flows": flows, "meaning": why}));
    }
    let late: Vec<u16> = late.iter().map(|worker| worker.0).collect();
    ControlReply::ok(json!({
        "flows": levels.flows,
        "levels": levels.levels,
        "moving": levels.moving,
        "stays": stays,
        "devices": levels.devices,
        "late_workers": late,
    }))
}

/// Packets and bytes at all levels together.
fn flow_stats(collector: Collector) -> ControlReply {
    let (answer, _) = collector.finish();
    let Some(flow) = answer.flows.first() else { return ControlReply::refused("Not existing flow") };
    let sum = |of: fn(&Counted) -> u64| flow.levels.values().map(of).fold(0, u64::saturating_add);
    ControlReply::ok(json!({
        "pkts_toclient": sum(|counted| counted.pkts_toclient),
        "pkts_toserver": sum(|counted| counted.pkts_toserver),
        "bytes_toclient": sum(|counted| counted.bytes_toclient),
        "bytes_toserver": sum(|counted| counted.bytes_toserver),
        "age": (flow.last - flow.start).max(0.0) as u64,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command of the table can be sent, and requires its mandatory arguments.
    #[test]
    fn every_command_of_the_table_is_carried_out() {
        for spec in COMMANDS {
            let words: Vec<String> = spec
                .arguments
                .iter()
                .map(|argument| match argument.name {
                    "flow" => "tcp 10.0.0.1".to_owned(),
                    "settings" => "ports=2".to_owned(),
                    _ => "1".to_owned(),
                })
                .collect();
            let request = spec.request(&words).unwrap();
            let here = matches!(
                spec.name,
                "command-list" | "help" | "version" | "running-mode" | "capture-mode" | "control-stats"
            );
            assert_eq!(dispatch_of(&request).is_err(), here, "{}", spec.name);
            if !spec.arguments.is_empty() {
                let request = ControlRequest { command: spec.name.to_owned(), arguments: Map::new() };
                assert!(dispatch_of(&request).unwrap_err().contains("is missing"), "{}", spec.name);
            }
        }
    }

    #[test]
    fn answers_have_the_form_of_suricatas() {
        let event = br#"{"timestamp":"x","event_type":"stats","stats":{"uptime":3,"tcp":{"syn":1}},"bartizan":{"version":1,"stats":{"flow":{"room":2}}}}"#;
        let reply = counters(event);
        assert_eq!(reply.message, json!({"uptime": 3, "tcp": {"syn": 1}, "bartizan": {"flow": {"room": 2}}}));
        assert!(!counters(b"{}").ok);
        let in_force = RulesInForce { loaded: 3, failed: 2, skipped: 1, ..RulesInForce::default() };
        assert_eq!(
            rules("ruleset-stats", &in_force),
            json!([{"id": 0, "rules_loaded": 3, "rules_failed": 2, "rules_skipped": 1}])
        );
        assert_eq!(
            rules("ruleset-reload-time", &in_force),
            json!([{"id": 0, "last_reload": "1970-01-01T00:00:00.000000+0000"}])
        );
        assert!(version().starts_with("8."));
    }
}
