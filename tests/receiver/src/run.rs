// SPDX-License-Identifier: Apache-2.0
//! A whole run: the network, the receivers, the program in each of its setups, round after round of cases.

use crate::honest::{self, GOODS};
use crate::judge::{Finding, Judge, toothless};
use crate::kinds::{self, Case, KINDS, Listed};
use crate::net::{self, Problem, problem};
use crate::player::Player;
use crate::program::{Program, Setup, Told};
use crate::receivers::{Callers, Records, Servers, Service, Sinks, Web};
use crate::talk;
use bartizan_testkit::random::Random;
use serde_json::json;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program under test.
    pub program: PathBuf,
    /// Seed of everything except timing.
    pub seed: u64,
    /// Number of cases of each setup in prevention.
    pub cases: u64,
    /// Setups, including the control.
    pub setups: Vec<Setup>,
    /// Families to play: indexes in [`KINDS`].
    pub kinds: Vec<usize>,
    /// Sorts of good traffic: indexes in [`GOODS`].
    pub goods: Vec<usize>,
    /// A single case: family and number.
    pub only: Option<(usize, u64)>,
    /// Published strategies with their tests.
    pub strategies: Vec<Listed>,
    /// Time limit of a setup.
    pub limit: Duration,
    /// A setup ends with its first finding.
    pub first: bool,
    /// Folder for captures and logs.
    pub folder: PathBuf,
}

/// Number of cases in a round.
const ROUND: u64 = 600;
/// Lost good datagrams of a round that are played again, and repetitions of each.
const DOUBTS: usize = 20;
const TIMES: usize = 5;
/// Attempts to play them again while receivers lose packets for want of room.
const TRIES: usize = 4;

/// Result of a run.
pub struct Outcome {
    /// Violations found.
    pub findings: Vec<Finding>,
    /// The result as JSON.
    pub json: serde_json::Value,
}

type Job = (Vec<Case>, u64, bool);
type Done = Result<Played, Problem>;

/// Result of the clients' thread for one round.
struct Played {
    cases: Vec<Case>,
    good: honest::Report,
    /// Frames that the player could not send for want of room.
    unsent: u64,
}

/// The clients' thread, which plays the cases that it receives.
struct Clients {
    jobs: mpsc::Sender<Job>,
    done: mpsc::Receiver<Done>,
}

impl Clients {
    fn start(goods: Vec<usize>, callers: Callers) -> Result<Self, Problem> {
        let (jobs, todo) = mpsc::channel::<Job>();
        let (told, done) = mpsc::channel();
        net::in_side("a0", move |give, ready| {
            let mut player = match net::clients_side(give).and_then(|()| Player::open(callers)) {
                Ok(player) => player,
                Err(why) => return drop(ready.send(Err(why))),
            };
            let _ = ready.send(Ok(()));
            while let Ok((mut cases, seed, first)) = todo.recv() {
                let stop = AtomicBool::new(false);
                let before = player.crowded;
                let played = std::thread::scope(|scope| {
                    let good = scope.spawn(|| honest::play(seed, &goods, first, &stop));
                    // Conversations have sockets of their own.
                    let (mut talks, mut packets): (Vec<Case>, Vec<Case>) =
                        cases.drain(..).partition(|case| case.talked().is_some());
                    let talking = scope.spawn(|| {
                        talk::hold_all(&mut talks);
                        talks
                    });
                    let played = player.play(&mut packets, || false);
                    let talks = talking.join().map_err(|_| problem("a conversation has panicked"))?;
                    cases.extend(packets.into_iter().chain(talks));
                    stop.store(true, Ordering::Release);
                    let good = good.join().map_err(|_| problem("good traffic has panicked"))?;
                    played.map(|()| good)
                });
                let unsent = player.crowded - before;
                if told.send(played.map(|good| Played { cases, good, unsent })).is_err() {
                    return;
                }
            }
        })?;
        Ok(Clients { jobs, done })
    }

    fn play(&self, cases: Vec<Case>, seed: u64, first: bool) -> Done {
        let gone = |_| problem("the clients' thread has ended");
        self.jobs.send((cases, seed, first)).map_err(|_| problem("the clients' thread has ended"))?;
        self.done.recv().map_err(gone)?
    }
}

/// The receivers, which end when this is dropped.
struct Receivers {
    web: Web,
    servers: Servers,
    sinks: Sinks,
    callers: Callers,
    hop: bool,
}

/// The services of the families of a plan.
#[must_use]
pub fn wanted(plan: &Plan) -> HashSet<Service> {
    let only = plan.only.map(|(kind, _)| kind);
    let kinds = plan.kinds.iter().copied().filter(|_| only.is_none()).chain(only);
    kinds.map(|kind| kinds::make(kind, plan.seed, 0, 0).service).collect()
}

/// Starts the receivers on their side.
fn receivers(plan: &Plan, records: &Arc<Records>) -> Result<Receivers, Problem> {
    let (folder, records) = (plan.folder.clone(), Arc::clone(records));
    let services = wanted(plan);
    net::in_side("b0", move |give, ready| {
        let start = || {
            let hop = net::receivers_side(give)?;
            let honest = honest::addresses().try_into().map_err(|_| problem("two addresses are wanted"))?;
            let sinks =
                Sinks::open(&records, honest).map_err(|error| problem(format!("receivers: {error}")))?;
            Ok(Receivers {
                web: Web::start(&folder, &records)?,
                servers: Servers::start(&services, &folder, &records)?,
                sinks,
                callers: Callers::start(&records),
                hop,
            })
        };
        let _ = ready.send(start());
    })
}

/// Adds findings from the program's records of a setup: good frames that were dropped, and a level that
/// handled no frames.
fn judge_told(judge: &mut Judge, setup: &Setup, told: &Told, after: Duration, single: bool) {
    if !setup.prevention {
        return;
    }
    for refused in told.good_refused.iter().take(5) {
        judge.good_finding("refused", refused.clone(), after.as_secs_f64());
    }
    if setup.level && told.below == 0 && !single {
        judge.good_finding("level", "it has handled no frame".into(), after.as_secs_f64());
    }
}

/// Writes the transcripts of a round's conversations to a file.
fn write_talks(plan: &Plan, setup: &Setup, cases: &[Case]) -> Result<(), Problem> {
    let talks = cases.iter().filter(|case| case.talked().is_some());
    let texts: Vec<String> = talks
        .map(|case| format!("=== {}:{} {}\n{}\n", case.family(), case.number, case.peer.0, case.story()))
        .collect();
    if texts.is_empty() {
        return Ok(());
    }
    let path = plan.folder.join(format!("talks-{}.txt", setup.name()));
    std::fs::write(&path, texts.concat()).map_err(|error| problem(format!("{}: {error}", path.display())))
}

/// The account of a setup, as JSON.
fn account_of(judge: &Judge, setup: &Setup, told: &Told, after: Duration) -> serde_json::Value {
    println!("   refused by reason: {:?}; of good traffic: {}", told.refused, told.good_refused.len());
    if setup.level {
        println!("   handled by the level below: {} frames", told.below);
    }
    let mut value = judge.json();
    value["seconds"] = json!(after.as_secs_f64());
    value["below"] = json!(told.below);
    value["refused"] = json!(told.refused);
    value["good_refused"] = json!(told.good_refused.len());
    value
}

/// Number of datagrams in fragments and of dirty connections of all setups in prevention.
fn totals(judges: &[(Setup, Judge)]) -> (u64, u64) {
    let judged = judges.iter().filter(|(setup, _)| setup.prevention).map(|(_, judge)| judge.totals());
    judged.fold((0, 0), |(datagrams, connections), more| (datagrams + more.0, connections + more.1))
}

/// Adds a finding for each family of which nothing forbidden is read without prevention.
fn judge_control(judge: &mut Judge) {
    for name in toothless(judge) {
        let what = "nothing forbidden is read without prevention: it tests nothing";
        judge.good_finding(name, what.into(), 0.0);
    }
}

/// Runs all setups of a plan.
///
/// # Errors
/// If something could not be set up or played; findings are not errors.
pub fn run(plan: &Plan) -> Result<Outcome, Problem> {
    std::fs::create_dir_all(&plan.folder)
        .map_err(|error| problem(format!("{}: {error}", plan.folder.display())))?;
    net::middle(plan.setups.iter().any(|setup| setup.level))?;
    let records = Arc::new(Records::default());
    let own = honest::addresses();
    let Receivers { mut web, mut servers, sinks, callers, hop } = receivers(plan, &records)?;
    if !hop {
        println!("note: no hop before the receivers (is nftables installed?): time-to-live tricks arrive");
    }
    let clients = Clients::start(plan.goods.clone(), callers)?;
    let mut outcome = Outcome { findings: Vec::new(), json: json!({}) };
    let (mut hosts, mut runs, mut judges) = (0, Vec::new(), Vec::new());
    for setup in &plan.setups {
        let folder = plan.folder.join("program");
        let mut program = Program::start(&plan.program, setup, &folder)?;
        let begun = Instant::now();
        let mut judge = Judge::new(setup.name(), setup.prevention, plan.folder.clone());
        println!("== {}", setup.name());
        let mut rounds = Rounds::new(plan, setup);
        let dropped_before = sinks.dropped();
        let mut unsent = 0;
        while let Some(cases) = rounds.next(plan, &mut hosts) {
            let Played { cases, good, unsent: more } =
                clients.play(cases, plan.seed ^ hosts, rounds.number == 1)?;
            unsent += more;
            // Lets frames in flight arrive.
            std::thread::sleep(Duration::from_millis(150));
            program.is_alive()?;
            web.collect(&records)?;
            servers.collect(&records)?;
            let read = records.take();
            let after = begun.elapsed().as_secs_f64();
            judge.cases(&cases, &read, after)?;
            write_talks(plan, setup, &cases)?;
            judge.good(&good, &read, after);
            // Retries until the machine has time for them.
            for turn in 1..=TRIES {
                let again = again(plan, &judge, &mut hosts);
                if again.is_empty() {
                    break;
                }
                let before = sinks.dropped();
                let played = clients.play(again, plan.seed ^ hosts, false)?;
                std::thread::sleep(Duration::from_millis(150));
                servers.collect(&records)?;
                let read = records.take();
                judge.good(&played.good, &read, after);
                if sinks.dropped() == before || turn == TRIES {
                    judge.again(&played.cases, &read, after)?;
                }
            }
            if begun.elapsed() > plan.limit || plan.first && !judge.findings.is_empty() {
                break;
            }
        }
        let told = program.stop(&own)?;
        judge_told(&mut judge, setup, &told, begun.elapsed(), plan.only.is_some());
        judge.account(sinks.dropped() - dropped_before + told.not_taken + unsent);
        judge.told(&told.alerted);
        judge.table();
        runs.push(account_of(&judge, setup, &told, begun.elapsed()));
        if !setup.prevention && plan.only.is_none() {
            judge_control(&mut judge);
        }
        outcome.findings.append(&mut judge.findings);
        judges.push((setup.clone(), judge));
    }
    let (fragmented, connections) = totals(&judges);
    println!("== in prevention: {fragmented} datagrams in fragments, {connections} dirty connections");
    let strategies = strategies(plan, &judges);
    outcome.json = json!({
        "seed": plan.seed, "hop": hop, "runs": runs, "strategies": strategies,
        "fragmented": fragmented, "connections": connections,
        "findings": outcome.findings.iter().map(|f| json!({
            "family": f.family, "number": f.number, "setup": f.setup, "what": f.what, "story": f.story, "after": f.after,
            "capture": f.capture,
        })).collect::<Vec<_>>(),
    });
    Ok(outcome)
}

/// The cases of a setup, a round at a time.
struct Rounds {
    left: u64,
    numbers: Vec<u64>,
    random: Random,
    number: u64,
    lists: u64,
}

impl Rounds {
    fn new(plan: &Plan, setup: &Setup) -> Self {
        // Other cases in each setup, the same for the same seed.
        let own = plan.setups.iter().position(|other| other == setup).unwrap_or(0) as u64;
        Rounds {
            left: plan.cases,
            numbers: vec![own * 1_000_000; KINDS.len()],
            random: Random::of(plan.seed, &[own]),
            number: 0,
            lists: 0,
        }
    }

    fn next(&mut self, plan: &Plan, hosts: &mut u64) -> Option<Vec<Case>> {
        self.number += 1;
        let mut cases = Vec::new();
        let mut host = || {
            *hosts += 1;
            *hosts
        };
        if let Some((kind, number)) = plan.only {
            // Repeats the case: effects of timing appear only now and then.
            return (self.number <= 3)
                .then(|| (0..20).map(|_| kinds::make(kind, plan.seed, number, host())).collect());
        }
        // The list first, over both IP versions, twice.
        if self.lists < 4 && !plan.strategies.is_empty() {
            let v6 = self.lists % 2 == 1;
            for (number, listed) in plan.strategies.iter().enumerate() {
                cases.push(kinds::of_strategy(listed, number as u64, host(), v6, plan.seed + self.lists));
            }
            self.lists += 1;
        }
        if plan.kinds.is_empty() {
            // Good traffic alone, or with the list.
            return (self.number <= 12).then_some(cases);
        }
        if self.left == 0 && cases.is_empty() {
            return None;
        }
        let weights: usize = plan.kinds.iter().map(|kind| KINDS[*kind].weight).sum();
        for _ in 0..self.left.min(ROUND) {
            let mut at = self.random.below(weights);
            let kind = plan.kinds.iter().copied().find(|kind| {
                let found = at < KINDS[*kind].weight;
                at = at.wrapping_sub(KINDS[*kind].weight);
                found
            });
            let Some(kind) = kind else { break };
            cases.push(kinds::make(kind, plan.seed, self.numbers[kind], host()));
            self.numbers[kind] += 1;
        }
        self.left = self.left.saturating_sub(ROUND);
        (!cases.is_empty()).then_some(cases)
    }
}

/// Cases whose good datagrams were lost, once more.
fn again(plan: &Plan, judge: &Judge, hosts: &mut u64) -> Vec<Case> {
    let doubts = judge.doubts.iter().take(DOUBTS).map(|doubt| (doubt.kind, doubt.number));
    let make = |(kind, number)| {
        *hosts += 1;
        kinds::make(kind, plan.seed, number, *hosts)
    };
    doubts.flat_map(|doubt| std::iter::repeat_n(doubt, TIMES)).map(make).collect()
}

/// The table of the list: result of each strategy in the control and in prevention.
fn strategies(plan: &Plan, judges: &[(Setup, Judge)]) -> Vec<serde_json::Value> {
    if plan.strategies.is_empty() {
        return Vec::new();
    }
    let of = |number: u64, prevention: bool| {
        let all = judges.iter().filter(|(setup, _)| setup.prevention == prevention);
        all.filter_map(|(_, judge)| judge.strategies.get(&number))
            .fold((false, false), |a, b| (a.0 | b.0, a.1 | b.1))
    };
    println!("== strategies: without prevention, with it");
    let word = |(lives, read): (bool, bool)| match (lives, read) {
        (_, true) => "forbidden",
        (true, false) => "answered",
        (false, false) => "-",
    };
    let rows = plan.strategies.iter().enumerate().map(|(number, listed)| {
        let (control, prevention) = (of(number as u64, false), of(number as u64, true));
        let Listed { strategy, test, server } = listed;
        let side = if *server { "server" } else { "client" };
        println!("   {:10} {:10} {side} {test:8} {strategy}", word(control), word(prevention));
        json!({"strategy": strategy.to_string(), "test": test, "side": side, "control": word(control),
            "prevention": word(prevention)})
    });
    rows.collect()
}

/// The setups of a run: two with `short`, else all; `control` adds the control; `level` uses a level below
/// the program.
#[must_use]
pub fn setups(short: bool, control: bool, level: bool) -> Vec<Setup> {
    let chains: [&[&'static str]; 2] = [&["ids"], &["pfw", "sfw", "ids"]];
    let mut setups = Vec::new();
    for (at, chain) in chains.iter().enumerate() {
        for workers in [1, 2] {
            if !short || at + 1 == workers {
                setups.push(Setup { chain: chain.to_vec(), workers, prevention: true, level });
            }
        }
    }
    if control {
        setups.push(Setup { chain: vec!["ids"], workers: 1, prevention: false, level });
    }
    setups
}

/// Indexes of names in [`KINDS`] and [`GOODS`].
///
/// # Errors
/// The first unknown name.
pub fn places(names: &[String]) -> Result<(Vec<usize>, Vec<usize>), String> {
    let (mut kinds, mut goods) = (Vec::new(), Vec::new());
    for name in names {
        let kind = KINDS.iter().position(|kind| kind.name == name);
        let good = GOODS.iter().position(|good| good.name == name);
        match (kind, good) {
            (Some(at), _) => kinds.push(at),
            (_, Some(at)) => goods.push(at),
            _ => return Err(name.clone()),
        }
    }
    Ok((kinds, goods))
}
