// SPDX-License-Identifier: Apache-2.0
//! `attack`: the receiver harness as a program. Exit status: 0 no finding, 1 a finding, 2 the run failed.

use bartizan_receiver::honest::GOODS;
use bartizan_receiver::kinds::{KINDS, Listed};
use bartizan_receiver::net::{Problem, problem};
use bartizan_receiver::receivers::{Service, servers};
use bartizan_receiver::run::{Plan, places, run, setups, wanted};
use bartizan_receiver::strategy::Strategy;
use clap::Parser;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Sends dirty traffic through the inline program to Linux receivers, and checks that they read no forbidden
/// bytes and that good traffic arrives.
#[derive(Parser)]
#[command(name = "attack")]
struct Args {
    /// The program under test.
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
    /// Seed of everything except timing.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of cases of each setup.
    #[arg(long, default_value_t = 13_500)]
    cases: u64,
    /// Play only two setups, the families that hold, and few cases.
    #[arg(long)]
    short: bool,
    /// Families and sorts of good traffic, by name; `list` lists them.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    kinds: Vec<String>,
    /// Repeat one case, named as in a finding.
    #[arg(long, value_name = "FAMILY:NUMBER")]
    only: Option<String>,
    /// The setup of this name (`[ids]x1`), or those whose name contains it (`x2`, `control`).
    #[arg(long, value_name = "TEXT")]
    setup: Option<String>,
    /// File of published strategies: a list of objects with `strategy` and `test`; may be repeated.
    #[arg(long, value_name = "FILE")]
    strategies: Vec<PathBuf>,
    /// Time limit of each setup, in seconds.
    #[arg(long, default_value_t = 900)]
    seconds: u64,
    /// A level below the program, which handles decided flows.
    #[arg(long, value_name = "LEVEL", value_parser = ["xdp"])]
    offload: Option<String>,
    /// End a setup with its first round that has a finding.
    #[arg(long)]
    first: bool,
    /// Folder for logs and captures of findings.
    #[arg(long, value_name = "DIR", default_value = "target/attack")]
    out: PathBuf,
    /// File for the result as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Environment variable set in the child process that has its own network namespace.
const INSIDE: &str = "BARTIZAN_ATTACK_INSIDE";

fn main() -> ExitCode {
    let args = Args::parse();
    if args.kinds.iter().any(|name| name == "list") {
        for kind in KINDS {
            println!(
                "{:22} {}{}",
                kind.name,
                kind.what,
                if kind.holds { "" } else { " (not in the short run)" }
            );
        }
        for good in GOODS {
            println!(
                "{:22} good traffic{}",
                good.name,
                if good.holds { "" } else { " (not in the short run)" }
            );
        }
        return ExitCode::SUCCESS;
    }
    let done = if std::env::var_os(INSIDE).is_some() {
        attack(&args)
    } else {
        plan(&args).and_then(|plan| in_namespace(&wanted(&plan)))
    };
    done.unwrap_or_else(|why| {
        eprintln!("attack: {why}");
        ExitCode::from(2)
    })
}

/// Whether a program is installed.
fn is_there(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.into_iter().any(|folder| folder.join(tool).exists())
}

/// Runs this program again in a network namespace that ends with it, with a high limit of open files.
fn in_namespace(wanted: &HashSet<Service>) -> Result<ExitCode, Problem> {
    for (tool, package) in [
        ("unshare", "util-linux"),
        ("prlimit", "util-linux"),
        ("ip", "iproute2"),
        ("ethtool", "ethtool"),
        ("nginx", "nginx-light"),
        ("openssl", "openssl"),
        ("python3", "python3"),
        ("curl", "curl"),
    ] {
        if !is_there(tool) {
            return Err(problem(format!("not run: needs the program {tool}: apt-get install {package}")));
        }
    }
    for needed in servers::NEEDED.iter().filter(|needed| wanted.contains(&needed.service)) {
        if !is_there(needed.program) {
            let (program, package) = (needed.program, needed.package);
            return Err(problem(format!("not run: needs the program {program}: apt-get install {package}")));
        }
    }
    let space = Command::new("unshare").args(["-n", "true"]).output();
    if !space.is_ok_and(|output| output.status.success()) {
        return Err(problem("not run: no network namespace can be made here (it takes root)"));
    }
    let own = std::env::current_exe().map_err(|error| problem(error.to_string()))?;
    let path = std::env::var("PATH").unwrap_or_default();
    // Raises the limit of open files to the maximum.
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
    let files = line.split_whitespace().nth(4).unwrap_or("1024");
    let status = Command::new("unshare")
        .args(["-n", "prlimit", &format!("--nofile={files}")])
        .arg(own)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .status()
        .map_err(|error| problem(format!("unshare: {error}")))?;
    Ok(ExitCode::from(status.code().map_or(2, |code| code as u8)))
}

fn attack(args: &Args) -> Result<ExitCode, Problem> {
    let plan = plan(args)?;
    let outcome = run(&plan)?;
    if let Some(path) = &args.json {
        let text = format!("{:#}\n", outcome.json);
        std::fs::write(path, text).map_err(|error| problem(format!("{}: {error}", path.display())))?;
    }
    let mut told = std::collections::BTreeMap::<&str, usize>::new();
    for finding in &outcome.findings {
        let count = told.entry(&finding.family).or_default();
        *count += 1;
        if *count <= 3 {
            println!(
                "FOUND {} {} after {:.1} s: {}",
                finding.setup, finding.family, finding.after, finding.what
            );
            println!("   {}", finding.story.escape_debug());
            if let Some(capture) = &finding.capture {
                println!("   its packets: {}", capture.display());
                println!(
                    "   again: make attack SEED={} ONLY={}:{}",
                    plan.seed, finding.family, finding.number
                );
            }
        }
    }
    if outcome.findings.is_empty() {
        println!("nothing found, seed {}", plan.seed);
        return Ok(ExitCode::SUCCESS);
    }
    println!("{} findings, seed {}: {told:?}", outcome.findings.len(), plan.seed);
    Ok(ExitCode::FAILURE)
}

fn plan(args: &Args) -> Result<Plan, Problem> {
    let unknown = |name: String| problem(format!("no family is called `{name}`: --kinds list lists them"));
    let (kinds, goods) = if args.kinds.is_empty() {
        let of = |holds: &[bool]| (0..holds.len()).filter(|at| !args.short || holds[*at]).collect();
        let kinds: Vec<bool> = KINDS.iter().map(|kind| kind.holds).collect();
        let goods: Vec<bool> = GOODS.iter().map(|good| good.holds).collect();
        (of(&kinds), of(&goods))
    } else {
        places(&args.kinds).map_err(unknown)?
    };
    let only = match args.only.as_deref().map(|only| only.split_once(':').ok_or(only)) {
        None => None,
        Some(Ok((name, number))) => {
            let (kinds, _) = places(&[name.to_owned()]).map_err(unknown)?;
            let number = number.parse().map_err(|_| problem(format!("--only {name}:{number}: no number")))?;
            Some((*kinds.first().ok_or_else(|| problem("--only is for families"))?, number))
        }
        Some(Err(only)) => return Err(problem(format!("--only {only}: FAMILY:NUMBER is wanted"))),
    };
    let mut setups = setups(args.short, true, args.offload.is_some());
    if let Some(text) = &args.setup {
        let exact = setups.iter().any(|setup| setup.name() == *text);
        setups
            .retain(|setup| if exact { setup.name() == *text } else { setup.name().contains(text.as_str()) });
    }
    let mut strategies = Vec::new();
    for path in &args.strategies {
        strategies.extend(read_strategies(path)?);
    }
    Ok(Plan {
        program: args.program.clone(),
        seed: args.seed,
        cases: if args.short { args.cases.min(2400) } else { args.cases },
        setups,
        kinds,
        goods,
        only,
        strategies,
        limit: Duration::from_secs(args.seconds),
        first: args.first,
        folder: args.out.clone(),
    })
}

/// Reads a list of strategies of the client's side and of the server's side.
fn read_strategies(path: &Path) -> Result<Vec<Listed>, Problem> {
    let fail = |why: String| problem(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
    let list: Vec<serde_json::Value> =
        serde_json::from_str(&text).map_err(|error| fail(error.to_string()))?;
    let mut strategies = Vec::new();
    for entry in &list {
        let Some(text) = entry["strategy"].as_str() else {
            return Err(fail("an entry has no `strategy`".into()));
        };
        let strategy = Strategy::parse(text).map_err(|why| fail(format!("`{text}`: {why}")))?;
        let test = entry["test"].as_str().unwrap_or("http").to_owned();
        strategies.push(Listed { strategy, test, server: entry["side"] == "server" });
    }
    Ok(strategies)
}
