// SPDX-License-Identifier: Apache-2.0
//! `bartizan guest`: programs on the stream path: starts one as a guest, shows the guests of a running
//! program.

use super::ctl::running::{self, To};
use crate::signals;
use bartizan_api::control::command;
use bartizan_boundary::{Boundary, BoundaryCounts, relay};
use bartizan_config::host::GuestSection;
use bartizan_events::harmless;
use bartizan_runtime::error::{Exit, Failure};
use bartizan_runtime::generation::BuildOptions;
use bartizan_runtime::guests::start::{self, PreparedGuest};
use bartizan_runtime::guests::usual_socket;
use bartizan_runtime::plan::{GuestLink, RunOptions};
use bartizan_runtime::requests::Requests;
use bartizan_runtime::run;
use clap::Subcommand;
use std::ffi::OsString;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Examples of the command.
pub const EXAMPLES: &str = "\
Examples:
  bartizan guest run --link web -- nginx -g 'daemon off;'
                               as a guest of the running program, link `web` of its host file
  bartizan guest run --policy policy.yaml -- curl http://192.0.2.1/
                               under a policy of its own, for as long as the command runs
  bartizan guest status web    its streams, and those that were blocked last";

/// Name of the only guest of a program that runs under a policy of its own.
const OWN_GUEST: &str = "guest";
/// Longest wait until the policy and rules of such a guest are loaded.
const LOADING: Duration = Duration::from_secs(600);
/// Interval of the checks whether they are.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Arguments.
#[derive(clap::Args)]
pub struct GuestArgs {
    #[command(subcommand)]
    command: GuestCommand,
}

#[derive(Subcommand)]
enum GuestCommand {
    /// Start a command as a guest: its payloads go through this machine's bartizan, without TCP/IP between.
    Run(GuestRunArgs),
    /// List the guests of a running program: processes, streams, bytes, refusals.
    List(GuestQueryArgs),
    /// Show streams of a guest, or of all, and those that were blocked last.
    Status(GuestStatusArgs),
}

#[derive(clap::Args)]
struct GuestRunArgs {
    /// Link of the running program's host file.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["socket", "policy"])]
    link: Option<String>,
    /// Socket of the guest, where the host file gives it one.
    #[arg(long, value_name = "PATH", conflicts_with = "policy")]
    socket: Option<PathBuf>,
    /// Policy file: the command runs under it alone, without a running program.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// With --policy: rule file (may be repeated).
    #[arg(long, value_name = "FILE", requires = "policy")]
    rules: Vec<PathBuf>,
    /// With --policy: folder for eve.json and stats.json [default: bartizan-out].
    #[arg(long, value_name = "DIR", requires = "policy")]
    out: Option<PathBuf>,
    /// Draw a boundary around the command: a network namespace without routes, in which programs that do not
    /// use the socket library are relayed to it, and everything else is refused. Needs root.
    #[arg(long, conflicts_with = "policy")]
    confine: bool,
    /// The socket library [default: libbartizan_sock.so beside this program or in ../lib].
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The command with its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(clap::Args)]
struct GuestQueryArgs {
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    to: To,
}

#[derive(clap::Args)]
struct GuestStatusArgs {
    /// The guest [default: all].
    guest: Option<String>,
    #[command(flatten)]
    query: GuestQueryArgs,
}

/// Runs the command. The exit code of `guest run` is that of the command that it starts.
pub fn run(args: &GuestArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        GuestCommand::Run(args) => start_guest(args),
        GuestCommand::List(query) => run_query(query, "guest-list", None),
        GuestCommand::Status(args) => {
            run_query(&args.query, "guest-status", Some(args.guest.clone().unwrap_or_default()))
        }
    }
}

fn run_query(query: &GuestQueryArgs, name: &str, guest: Option<String>) -> Result<ExitCode, Failure> {
    let spec = command(name).ok_or_else(|| Failure::usage(format!("there is no command `{name}`")))?;
    let words: Vec<String> = guest.into_iter().collect();
    let request = spec.request(&words).map_err(Failure::usage)?;
    running::run_command(&query.to, &request, query.json).map(ExitCode::from)
}

fn start_guest(args: &GuestRunArgs) -> Result<ExitCode, Failure> {
    let library = start::library(args.library.as_deref())?;
    if args.policy.is_some() {
        return run_alone(args, &library);
    }
    let socket = match (&args.socket, &args.link) {
        (Some(socket), _) => socket.clone(),
        (None, Some(link)) => usual_socket(link).ok_or_else(|| {
            Failure::usage("this user has no default path for a guest's socket; name it with --socket PATH")
        })?,
        (None, None) => {
            return Err(Failure::usage(
                "name the guest: --link NAME of a running bartizan, or --policy FILE for a guest of its own",
            ));
        }
    };
    supervise(start::prepare(&socket, &library, &args.command)?, args)
}

/// Runs a prepared command until it ends: passes signals on, ends its streams if the engine dies.
fn supervise(prepared: PreparedGuest, args: &GuestRunArgs) -> Result<ExitCode, Failure> {
    let PreparedGuest { mut command, descriptor } = prepared;
    relay::watch_engine(descriptor.as_fd()).map_err(Failure::stopped)?;
    let name = args.link.as_deref().unwrap_or(OWN_GUEST);
    let boundary =
        args.confine.then(|| Boundary::draw(&descriptor, name)).transpose().map_err(Failure::stopped)?;
    let mut child = command.spawn().map_err(|error| cannot_start(&args.command, &error))?;
    drop(descriptor);
    signals::pass_on_to(child.id())?;
    let code = wait(&mut child)?;
    if let Some(counts) =
        boundary.map(|boundary| boundary.counts()).filter(|counts| *counts != BoundaryCounts::default())
    {
        eprintln!(
            "bartizan: past the socket library: {} connects and {} datagrams were relayed, {} connects and {} datagrams were refused",
            counts.relayed, counts.relayed_datagrams, counts.refused_connects, counts.refused_datagrams
        );
        if counts.reset_relays > 0 {
            eprintln!(
                "bartizan: {} relayed connections were reset, as {} were open then: use the library in programs with more",
                counts.reset_relays,
                bartizan_boundary::relay::RELAYED_MOST
            );
        }
    }
    Ok(code)
}

/// Waits until a command has ended; returns its exit code, as shells say it.
fn wait(child: &mut Child) -> Result<ExitCode, Failure> {
    let status = child.wait().map_err(|error| {
        Failure::stopped(format!("cannot wait for the command: {error}; is SIGCHLD ignored?"))
    })?;
    // 128 and the number of the signal that ended it.
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

fn cannot_start(command: &[OsString], error: &std::io::Error) -> Failure {
    let name = command.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Failure::usage(format!("cannot start `{name}`: {error}"))
}

/// Runs a command under a policy of its own: the stack runs in this process until the command ends.
fn run_alone(args: &GuestRunArgs, library: &Path) -> Result<ExitCode, Failure> {
    let folder = std::env::temp_dir().join(format!("bartizan-guest-{}", std::process::id()));
    let made = std::fs::DirBuilder::new().mode(0o700).create(&folder);
    made.map_err(|error| {
        Failure::stopped(format!("cannot create {}: {error}; remove it, or set TMPDIR", folder.display()))
    })?;
    let result = run_in(args, library, &folder.join("guest.socket"));
    // The run has removed the socket; a folder that stays behind holds nothing.
    let _ = std::fs::remove_dir_all(&folder);
    result
}

fn run_in(args: &GuestRunArgs, library: &Path, socket: &Path) -> Result<ExitCode, Failure> {
    let requests = signals::install()?;
    let guest = GuestSection { socket: Some(socket.to_owned()), ..GuestSection::default() };
    let build = BuildOptions { rules: args.rules.clone(), policy: args.policy.clone(), ..Default::default() };
    let options = RunOptions {
        guest: Some(GuestLink { name: OWN_GUEST.to_owned(), guest }),
        options: build,
        out: args.out.clone(),
        control: Some("none".into()),
        ..RunOptions::default()
    };
    let (sender, ended) = mpsc::channel();
    let command =
        CommandToRun { socket: socket.to_owned(), library: library.to_owned(), words: args.command.clone() };
    let thread = std::thread::Builder::new().name("guest-command".to_owned()).spawn(move || {
        let _ = sender.send(command.run(requests));
        requests.stop();
    });
    thread
        .map_err(|error| Failure::stopped(format!("cannot start a thread: {error}; stop other programs")))?;
    let outcome = run::run(&options, requests)?;
    // Standard output is the command's; a failure of standard error cannot be reported.
    let _ = std::io::stderr().write_all(harmless(&outcome.summary).as_bytes());
    if let Some(failure) = outcome.failure {
        return Err(failure);
    }
    // A signal may have ended the run before the command; it has lost its streams then.
    ended.recv_timeout(Duration::from_secs(5)).unwrap_or(Ok(ExitCode::from(Exit::Stopped)))
}

/// A command that waits for its guest's socket.
struct CommandToRun {
    socket: PathBuf,
    library: PathBuf,
    words: Vec<OsString>,
}

impl CommandToRun {
    fn run(&self, requests: &Requests) -> Result<ExitCode, Failure> {
        let begin = Instant::now();
        while !self.socket.exists() {
            if requests.is_stopped() || begin.elapsed() > LOADING {
                return Err(Failure::stopped("the run has ended before the command was started"));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        let PreparedGuest { mut command, descriptor } =
            start::prepare(&self.socket, &self.library, &self.words)?;
        let mut child = command.spawn().map_err(|error| cannot_start(&self.words, &error))?;
        drop(descriptor);
        wait(&mut child)
    }
}
