// SPDX-License-Identifier: Apache-2.0
//! Commands to a running program: given by its socket, with what comes of it.

use super::running_text;
use bartizan_api::control::{ANSWER_MAX, COMMANDS, Messages, Reply, Request, command, hello};
use bartizan_runtime::control;
use bartizan_runtime::error::{Exit, Failure};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The commands, for the help.
pub fn commands_help() -> String {
    let widest =
        COMMANDS.iter().map(|spec| spec.usage().len()).filter(|width| *width < 34).max().unwrap_or(0);
    let mut text = "Commands to a running program:\n".to_owned();
    for spec in COMMANDS {
        let usage = spec.usage();
        if usage.len() > widest {
            text += &format!("  {usage}\n  {:widest$}  {}\n", "", spec.about);
        } else {
            text += &format!("  {usage:widest$}  {}\n", spec.about);
        }
    }
    text
}

/// Which program, and how long it is waited for.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Which running program")]
pub struct To {
    /// The program's socket [default: control.socket in /run/bartizan, of other users in their own]; a run says where it lies when it starts.
    #[arg(long, value_name = "PATH", global = true)]
    pub socket: Option<PathBuf>,
    /// How long to wait for the answer; a reload takes as long as loading rules.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, global = true)]
    pub timeout: u64,
}

/// What commands about functions begin with.
pub const FUNCTION: &str = "function";

/// `function stop NAME` is `function-stop NAME`.
pub fn whole_name(command: &str, mut arguments: Vec<String>) -> (String, Vec<String>) {
    if command != FUNCTION {
        return (command.to_owned(), arguments);
    }
    let rest = arguments.split_off(arguments.len().min(1));
    let verb = arguments.pop().unwrap_or_else(|| "list".to_owned());
    (format!("{FUNCTION}-{verb}"), rest)
}

/// Gives a command by its name.
pub fn run(to: &To, name: &str, arguments: &[String], json: bool) -> Result<Exit, Failure> {
    let spec = command(name).ok_or_else(|| Failure::usage(format!("there is no command `{name}`")))?;
    let request = spec.request(arguments).map_err(Failure::usage)?;
    give(to, &request, json)
}

/// Gives a command, and shows what comes of it.
pub fn give(to: &To, request: &Request, json: bool) -> Result<Exit, Failure> {
    let (reply, text) = ask(to, request)?;
    if json {
        println!("{}", text.trim_end());
        return Ok(if reply.ok { Exit::Done } else { Exit::Input });
    }
    if !reply.ok {
        return Err(Failure::input(running_text::plain(&reply.message)));
    }
    let shown = running_text::answer(&request.command, &reply.message);
    println!("{}", shown.text);
    if !reply.own.is_empty() {
        println!("{}", running_text::own(&reply.own));
    }
    Ok(if shown.found { Exit::Done } else { Exit::Input })
}

/// The answer to a command, and its text.
pub fn ask(to: &To, request: &Request) -> Result<(Reply, String), Failure> {
    let path = match &to.socket {
        Some(path) => path.clone(),
        None => control::usual().ok_or_else(|| {
            Failure::usage(
                "this user has no usual place for the socket; say where it lies with --socket PATH",
            )
        })?,
    };
    let end = Instant::now() + Duration::from_secs(to.timeout);
    let mut stream = UnixStream::connect(&path).map_err(|error| unreachable(&path, &error))?;
    let mut messages = Messages::new(ANSWER_MAX);
    let lost = |what: String| Failure::stopped(format!("{}: {what}", path.display()));
    let mut say = |message: &[u8]| -> Result<(Reply, String), Failure> {
        // Who refuses all may have closed already: what was said then is still there to be read.
        let sent = stream.write_all(message);
        let answer = read(&mut stream, &mut messages, end).map_err(lost)?;
        let Some(answer) = answer else {
            let why = sent.err().map_or_else(String::new, |error| format!(" ({error})"));
            return Err(lost(format!(
                "the program has ended the connection without an answer{why}; see its log"
            )));
        };
        let reply = Reply::parse(&answer).map_err(|error| lost(error.to_string()))?;
        Ok((reply, String::from_utf8_lossy(&answer).into_owned()))
    };
    let (welcome, text) = say(&hello())?;
    if !welcome.ok {
        return Ok((welcome, text));
    }
    say(&request.to_message())
}

fn unreachable(path: &Path, error: &std::io::Error) -> Failure {
    let advice = match error.kind() {
        ErrorKind::NotFound => {
            "is bartizan running? A run says where its socket lies when it starts (`commands: PATH`); name it with --socket PATH"
        }
        ErrorKind::ConnectionRefused => {
            "nobody listens there any more: the program was killed; start it again"
        }
        ErrorKind::PermissionDenied => {
            "its owner and its group may use it (`ls -l` shows them); be one of them, or root"
        }
        _ => "name the socket of a running bartizan with --socket PATH",
    };
    Failure::stopped(format!("cannot reach the program at {}: {error}; {advice}", path.display()))
}

/// The next message; `None`: the other side has closed.
fn read(stream: &mut UnixStream, messages: &mut Messages, end: Instant) -> Result<Option<Vec<u8>>, String> {
    let mut chunk = [0u8; 16 * 1024];
    loop {
        if let Some(message) = messages.next_message().map_err(|error| error.to_string())? {
            return Ok(Some(message));
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(
                "no answer came in time; it may still be carried out (--timeout SECONDS waits longer)"
                    .to_owned(),
            );
        }
        let _ = stream.set_read_timeout(Some(left));
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(None),
            Ok(read) => messages.push(chunk.get(..read).unwrap_or_default()),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut
                ) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error.to_string()),
        }
    }
}
