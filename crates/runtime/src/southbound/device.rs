// SPDX-License-Identifier: Apache-2.0
//! The device of the southbound client: this program, whose supervisor receives the client's commands through
//! the common channel.

use super::in_force::InForce;
use crate::channel::{Asking, Channel, CommandOutcome, ControlCommand};
use crate::functions::Functions;
use crate::generation::GenerationError;
use crate::offload::stand::{LevelNow, LevelsStand};
use crate::plan::{LinkPlan, RunPlan};
use bartizan_agent::joined::{JoinedPolicy, Joiner};
use bartizan_agent::session::Candidate;
use bartizan_agent::session::client::AgentDevice;
use bartizan_api::content::ContentHashes;
use bartizan_api::southbound::{
    FunctionOrder, FunctionState, GenerationRefusal, GenerationRefusalCode, Interfaces, LevelStands,
    LevelState, LevelStatus, LocalContent, PolicyDiagnostic, WorkerRuns,
};
use bartizan_base::{Generation, WorkerId};
use bartizan_config::policy::{ConfigProblem, PolicyError};
use bartizan_dataplane::driver::Control;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tracing::{error, info};

/// Time limit for workers to run a generation that they were given. An idle worker checks ten times a second,
/// and is woken.
const WORKERS: Duration = Duration::from_secs(5);

/// Generations of the workers, and states of their links' levels.
#[derive(Clone)]
pub struct Workers {
    /// The workers.
    pub control: Arc<Control>,
    /// The controller's numbers of generations and tenants.
    pub in_force: Arc<InForce>,
    /// Links in order, with the number of workers of each.
    links: Vec<(String, u16)>,
    /// Names of the ports that policies may redirect to.
    ports: Vec<String>,
    /// States of the levels.
    levels: LevelsStand,
}

/// A link, the number of a worker on the link, and its number among the workers of all links.
type WorkerLocation<'w> = (&'w str, u16, WorkerId);

impl Workers {
    /// The workers of a run's links.
    pub fn new(control: &Arc<Control>, in_force: &Arc<InForce>, plan: &RunPlan, levels: LevelsStand) -> Self {
        let of = |link: &LinkPlan| (link.name.clone(), link.workers);
        let links = plan.links.iter().map(of).collect();
        let ports = plan.exits.iter().map(|port| port.name.clone()).collect();
        Workers { control: Arc::clone(control), in_force: Arc::clone(in_force), links, ports, levels }
    }

    /// The links and ports that policies may name.
    pub fn interfaces(&self) -> Interfaces {
        let links = self.links.iter().map(|(link, _)| link.clone()).collect();
        Interfaces { links, ports: self.ports.clone() }
    }

    fn places(&self) -> impl Iterator<Item = WorkerLocation<'_>> {
        let places =
            self.links.iter().flat_map(|(link, workers)| (0..*workers).map(move |worker| (link, worker)));
        (0u16..).zip(places).map(|(number, (link, worker))| (link.as_str(), worker, WorkerId(number)))
    }

    /// The controller's number that goes with a worker's generation.
    fn running_in(&self, worker: WorkerId) -> u64 {
        self.in_force.generation(self.control.running_in(worker).unwrap_or(Generation(0))).controller
    }

    /// The controller's number that goes with the generation of a level; 0 if none.
    fn acting(&self, level: &LevelNow) -> u64 {
        level.generation.map_or(0, |own| self.in_force.generation(own).controller)
    }

    /// The present generation of each worker, and that of the levels that packets of its link pass before it.
    pub fn runs(&self) -> Vec<WorkerRuns> {
        let one = |(link, worker, number): WorkerLocation<'_>| {
            let mut levels = BTreeMap::from([("host".to_owned(), self.running_in(number))]);
            let below = self.levels.below(link).into_iter().filter(|level| level.generation.is_some());
            levels.extend(below.map(|level| (level.level.to_owned(), self.acting(&level))));
            WorkerRuns { link: link.to_owned(), worker, levels }
        };
        self.places().map(one).collect()
    }

    /// The present states of each link's levels, and the rules that are not evaluated.
    pub fn level_status(&self) -> LevelStatus {
        let mut levels = Vec::new();
        for (link, _) in &self.links {
            levels.push(self.host(link));
            levels.extend(self.levels.below(link).into_iter().map(|level| LevelStands {
                link: link.clone(),
                level: level.level.to_owned(),
                generation: self.acting(&level),
                state: level.state,
                why: level.why,
                rules: level.rules,
            }));
        }
        let ContentHashes { lists, settings, .. } = self.in_force.newest().content;
        let content = Some(LocalContent { lists, settings });
        LevelStatus { levels, left_out: self.in_force.left_out(), content }
    }

    /// The state of the host level: the oldest generation among its workers.
    fn host(&self, link: &str) -> LevelStands {
        let own = self.places().filter(|(of, ..)| *of == link);
        let generation = own.map(|(.., worker)| self.running_in(worker)).min().unwrap_or(0);
        let (is_off, why) = self.levels.away(link).unwrap_or_default();
        let state = if is_off { LevelState::Off } else { LevelState::On };
        let (link, level) = (link.to_owned(), "host".to_owned());
        LevelStands { link, level, generation, state, why, rules: None }
    }
}

/// The client's access to this program.
pub struct SteeredDevice {
    /// Channel to the supervisor.
    channel: Channel,
    /// Workers, for the result.
    workers: Workers,
    /// Orders about functions.
    functions: Functions,
    /// Converts the controller's objects to the parts of a policy file.
    joiner: Joiner,
    /// Whether the failure to store the last generation was logged.
    unstored: bool,
    /// The build in progress.
    begun: Option<Begun>,
}

/// A generation that is being built, or the refusal of its parts.
type Begun = Result<(Arc<JoinedPolicy>, Asking), GenerationRefusal>;

impl SteeredDevice {
    /// The access through a run's channel, its workers and its functions.
    pub const fn new(channel: Channel, workers: Workers, functions: Functions, joiner: Joiner) -> Self {
        SteeredDevice { channel, workers, functions, joiner, unstored: false, begun: None }
    }

    fn begun(&mut self, candidate: &Candidate) -> Begun {
        let joined = self
            .joiner
            .join(&candidate.held, candidate.manifest)
            .map_err(|wrong| refusal(GenerationRefusalCode::Policy, wrong))?;
        let joined = Arc::new(joined);
        let asking = self.channel.begin(ControlCommand::Build(Arc::clone(&joined)));
        Ok((joined, asking))
    }
}

/// A refusal of this kind.
fn refusal(code: GenerationRefusalCode, diagnostics: Vec<PolicyDiagnostic>) -> GenerationRefusal {
    GenerationRefusal { code, diagnostics, more: 0 }
}

/// A diagnostic about no particular object of a generation.
fn whole(joined: &JoinedPolicy, message: String) -> PolicyDiagnostic {
    joined.diagnostic(&ConfigProblem { position: Default::default(), path: String::new(), message })
}

/// The errors of a generation, assigned to its objects.
pub fn refused(joined: &JoinedPolicy, error: GenerationError) -> GenerationRefusal {
    let problem =
        |message: String| ConfigProblem { position: Default::default(), path: String::new(), message };
    let problems = match error {
        GenerationError::Policy(PolicyError::Wrong { problems, .. }) => problems,
        GenerationError::Policy(error) => vec![problem(error.to_string())],
        GenerationError::Other(failure) => vec![problem(failure.to_string())],
    };
    refusal(
        GenerationRefusalCode::Policy,
        problems.iter().map(|problem| joined.diagnostic(problem)).collect(),
    )
}

/// A refusal as readable lines.
pub fn describe_refusal(refusal: &GenerationRefusal) -> String {
    const SHOWN: usize = 10;
    let said = |d: &PolicyDiagnostic| match d.line {
        0 => format!("\n  {} {}: {}", d.object.as_str(), d.pointer, d.message),
        line => format!("\n  {} {line}:{}: {}", d.object.as_str(), d.column, d.message),
    };
    let mut text: String = refusal.diagnostics.iter().take(SHOWN).map(said).collect();
    let more = (refusal.diagnostics.len().saturating_sub(SHOWN) as u64).saturating_add(refusal.more);
    if more > 0 {
        text.push_str(&format!("\n  ... and {more} more"));
    }
    text
}

impl AgentDevice for SteeredDevice {
    fn begin(&mut self, candidate: &Candidate) {
        self.begun = Some(self.begun(candidate));
    }

    fn build(&mut self, candidate: &Candidate) -> Result<(), GenerationRefusal> {
        let number = candidate.held.generation;
        let begun = self.begun.take().unwrap_or_else(|| self.begun(candidate));
        let built = begun.and_then(|(joined, asking)| match asking.wait() {
            CommandOutcome::Done => Ok(()),
            CommandOutcome::NotBuilt(refusal) => Err(*refusal),
            // The run is about to end, or too many commands wait: the generation may be accepted later.
            CommandOutcome::Refused(why) => {
                Err(refusal(GenerationRefusalCode::Store, vec![whole(&joined, why)]))
            }
            _ => Err(refusal(GenerationRefusalCode::Store, Vec::new())),
        });
        if let Err(refusal) = &built {
            let content = self.workers.in_force.newest().content;
            info!(
                "generation {number} of the controller is refused; the running generation continues \
                 ({content}):{}",
                describe_refusal(refusal)
            );
        }
        built
    }

    fn swap(&mut self) -> Vec<WorkerRuns> {
        if std::mem::take(&mut self.unstored) {
            info!("controller: generations can be stored again");
        }
        if let CommandOutcome::Reloaded(now) = self.channel.execute(ControlCommand::Swap) {
            // Workers that are late are reported with their present generation.
            let _ = self.workers.control.wait_running(now.generation, WORKERS);
        }
        self.workers.runs()
    }

    fn level_status(&mut self) -> Option<LevelStatus> {
        Some(self.workers.level_status())
    }

    fn abandon(&mut self, why: &std::io::Error) {
        // Logged once for all attempts: the log may be on the same disk.
        if !std::mem::replace(&mut self.unstored, true) {
            error!(
                "a generation of the controller cannot be stored, and the running one continues: {why}; free disk space; storing is retried"
            );
        }
        let _ = self.channel.execute(ControlCommand::Abandon);
    }

    fn order(
        &mut self,
        order: FunctionOrder,
        function: &str,
        settings: &Map<String, Value>,
    ) -> FunctionState {
        self.functions.carry_out(order, function, settings)
    }
}
