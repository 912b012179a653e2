// SPDX-License-Identifier: Apache-2.0
//! `bartizan ca`: certificates of controllers and devices, and tokens for a device's first one.

use crate::console;
use bartizan_agent::session::client::{self, wall_clock};
use bartizan_api::southbound::DeviceId;
use bartizan_channel::ChannelError;
use bartizan_channel::authority::{Authority, IssuedCertificate, Withdrawn};
use bartizan_channel::certificate::{chain, fingerprint};
use bartizan_channel::token::Tokens;
use bartizan_runtime::error::{Exit, Failure};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Shown with `bartizan ca --help`.
pub const EXAMPLES: &str = "\
Examples:
  bartizan ca make                                  a new authority in /var/lib/bartizan/ca
  bartizan ca controller main --out /etc/bartizan   a controller's key and certificate
  bartizan ca token edge-1 --controller /etc/bartizan/controller.pem >edge-1.token
  bartizan ca enrol edge-1 --controller 192.0.2.1:7443 --identity /var/lib/bartizan/agent <edge-1.token
  bartizan ca revoke edge-1                         its certificates are not taken any more";

/// Arguments.
#[derive(clap::Args)]
pub struct CaArgs {
    #[command(subcommand)]
    command: CaCommand,
    /// Folder of the authority.
    #[arg(long, global = true, default_value = "/var/lib/bartizan/ca", value_name = "DIR")]
    folder: PathBuf,
}

#[derive(clap::Subcommand)]
enum CaCommand {
    /// Make a new authority: its key, which only the owner of the folder reads, and its certificate.
    Make {
        /// Days that the authority's certificate is valid.
        #[arg(long, default_value_t = 3_650)]
        days: u64,
    },
    /// Make a controller's key and certificate.
    Controller {
        /// The controller's name.
        name: String,
        /// Folder for `controller.key` and `controller.pem`; it must exist.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Days that the certificate is valid.
        #[arg(long, default_value_t = 365)]
        days: u64,
    },
    /// Issue a certificate to a device for its request, and print it.
    Issue {
        /// The device's id.
        device: String,
        /// The request (PKCS #10, PEM).
        #[arg(long, value_name = "FILE")]
        request: PathBuf,
        /// Days that the certificate is valid.
        #[arg(long, default_value_t = 30)]
        days: u64,
    },
    /// Print a one-time token for a device's first certificate.
    Token {
        /// The device's id.
        device: String,
        /// The controller's certificate, which the token pins.
        #[arg(long, value_name = "FILE")]
        controller: PathBuf,
        /// Minutes that the token can be used.
        #[arg(long, default_value_t = 60)]
        minutes: u64,
    },
    /// On a device: make a key, and get a certificate for it with the token read from standard input.
    Enrol {
        /// The device's id.
        device: String,
        /// The controller, HOST:PORT.
        #[arg(long)]
        controller: String,
        /// Folder for the device's key and certificate.
        #[arg(long, default_value = "/var/lib/bartizan/agent", value_name = "DIR")]
        identity: PathBuf,
    },
    /// Make a new key for the authority; certificates of the old one stay valid for a while.
    Rotate {
        /// Days that the new certificate is valid.
        #[arg(long, default_value_t = 3_650)]
        days: u64,
        /// Days that the old one stays valid: more than certificates of devices are.
        #[arg(long, default_value_t = 90)]
        overlap: u64,
    },
    /// Revoke a device's certificate by its serial number, or all of a device by its id; and its one-time
    /// tokens.
    Revoke {
        /// Serial number or device id.
        which: String,
    },
    /// Print the certificates of the authorities that are valid now.
    Trusted,
    /// List all issued certificates.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command.
pub fn run(args: &CaArgs) -> Result<Exit, Failure> {
    let now = wall_clock()();
    match &args.command {
        CaCommand::Make { days } => make(&args.folder, now, *days)?,
        CaCommand::Enrol { device, controller, identity } => enrol(device, controller, identity)?,
        command => with(&open(&args.folder)?, command, now)?,
    }
    Ok(Exit::Done)
}

fn open(folder: &Path) -> Result<Authority, Failure> {
    Authority::open(folder)
        .map_err(|error| Failure::input(format!("{error}; `bartizan ca make` makes an authority")))
}

fn with(authority: &Authority, command: &CaCommand, now: u64) -> Result<(), Failure> {
    match command {
        CaCommand::Controller { name, out, days } => controller(authority, name, out, now, *days),
        CaCommand::Issue { device, request, days } => {
            let request = std::fs::read_to_string(request).map_err(at(request))?;
            let issued = authority.issue_device(id(device)?.as_str(), &request, now, *days);
            print(&issued.map_err(Failure::input)?.certificate);
            Ok(())
        }
        CaCommand::Token { device, controller, minutes } => {
            let text = std::fs::read_to_string(controller).map_err(at(controller))?;
            let chain = chain(&text).map_err(Failure::input)?;
            let first = chain.first().map_or(&[][..], |first| first.as_ref());
            let tokens = Tokens::new(authority.folder());
            let token =
                tokens.make(id(device)?.as_str(), fingerprint(first), now, minutes.saturating_mul(60));
            println!("{}", token.map_err(Failure::stopped)?.text());
            Ok(())
        }
        CaCommand::Rotate { days, overlap } => {
            authority.rotate(now, *days, *overlap).map_err(Failure::stopped)?;
            eprintln!(
                "bartizan: the authority has a new key; the old one holds for {overlap} days. Give controllers new certificates \
                 once all devices have renewed theirs"
            );
            Ok(())
        }
        CaCommand::Revoke { which } => {
            let Withdrawn { certificates, tokens } = authority.revoke(which, now).map_err(Failure::input)?;
            eprintln!(
                "bartizan: {certificates} certificate(s) and {tokens} token(s) revoked; running controllers see it within a second"
            );
            Ok(())
        }
        CaCommand::Trusted => {
            print(&authority.trusted(now).map_err(Failure::input)?);
            Ok(())
        }
        CaCommand::List { json } => list(&authority.list().map_err(Failure::input)?, *json, now),
        CaCommand::Make { .. } | CaCommand::Enrol { .. } => Ok(()),
    }
}

fn make(folder: &Path, now: u64, days: u64) -> Result<(), Failure> {
    let authority = Authority::make(folder, now, days).map_err(|error| not_made(&error))?;
    let fingerprint = authority.fingerprint().map_err(Failure::stopped)?;
    eprintln!(
        "bartizan: made an authority in {} (SHA-256 {fingerprint}); keep a copy of ca.key",
        folder.display()
    );
    Ok(())
}

fn controller(authority: &Authority, name: &str, out: &Path, now: u64, days: u64) -> Result<(), Failure> {
    let issued = authority.issue_controller(name, now, days).map_err(Failure::input)?;
    let write = |file: &str, mode, text: &str| {
        let path = out.join(file);
        let open = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        let mut file = open.map_err(at(&path))?;
        file.write_all(text.as_bytes()).map_err(|error| {
            // Half a file would block the next attempt.
            let _ = std::fs::remove_file(&path);
            at(&path)(error)
        })
    };
    write("controller.key", 0o600, issued.key.as_deref().unwrap_or_default())?;
    write("controller.pem", 0o644, &issued.certificate)
}

fn enrol(device: &str, controller: &str, identity: &Path) -> Result<(), Failure> {
    // Other users of the machine could see it on a command line.
    let mut token = String::new();
    let read = std::io::stdin().take(4_096).read_to_string(&mut token);
    read.map_err(|error| Failure::input(format!("the token cannot be read from standard input: {error}")))?;
    client::enrol(controller, &token, &id(device)?, identity, &wall_clock()).map_err(Failure::input)?;
    eprintln!("bartizan: `{device}` is enrolled; key and certificate are in {}", identity.display());
    Ok(())
}

fn list(entries: &[IssuedCertificate], json: bool, now: u64) -> Result<(), Failure> {
    if json {
        let text = serde_json::to_string_pretty(entries).map_err(Failure::stopped)?;
        println!("{text}");
        return Ok(());
    }
    for IssuedCertificate { serial, role, name, valid_until, revoked } in entries {
        let state = match revoked {
            Some(_) => "revoked".to_owned(),
            None if *valid_until < now => "expired".to_owned(),
            None => format!("{} days left", (valid_until - now) / bartizan_channel::authority::DAY),
        };
        println!("{serial}  {role:<10}  {name}  {state}");
    }
    Ok(())
}

fn id(device: &str) -> Result<DeviceId, Failure> {
    DeviceId::new(device).map_err(Failure::usage)
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> Failure + '_ {
    move |error| unwritten(&error, format!("{}: {error}", path.display()))
}

/// A failed write for want of space stops the command (exit 3); any other means that its arguments were
/// wrong.
fn unwritten(error: &std::io::Error, message: impl std::fmt::Display) -> Failure {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            Failure::stopped(message)
        }
        _ => Failure::input(message),
    }
}

/// The error of an authority that cannot be made.
fn not_made(error: &ChannelError) -> Failure {
    match error {
        ChannelError::File { source, .. } => unwritten(source, error),
        _ => Failure::input(error),
    }
}

fn print(pem: &str) {
    // `console::out` notes a failure, and the program reports it at its end.
    let _ = console::out().write_all(pem.as_bytes());
}
