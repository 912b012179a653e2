// SPDX-License-Identifier: Apache-2.0
//! The client of the socket: sends a command to a running program, and reads the answer.

use super::{running_of, usual};
use crate::error::Failure;
use crate::lock;
use bartizan_api::control::{ANSWER_MAX, ControlReply, ControlRequest, Messages, hello};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Sends a command to the program that listens on a socket, the default one unless it is named. Returns the
/// answer with its text.
///
/// # Errors
/// The program cannot be reached, or does not answer in time.
pub fn send_request(
    socket: Option<&Path>,
    patience: Duration,
    request: &ControlRequest,
) -> Result<(ControlReply, String), Failure> {
    let path = match socket {
        Some(path) => path.to_owned(),
        None => usual(),
    };
    let end = Instant::now() + patience;
    let mut stream = UnixStream::connect(&path).map_err(|error| unreachable(&path, &error))?;
    let mut messages = Messages::new(ANSWER_MAX);
    let lost = |what: String| Failure::stopped(format!("{}: {what}", path.display()));
    let mut exchange = |message: &[u8]| -> Result<(ControlReply, String), Failure> {
        // A program that refuses all clients may have closed already: its answer can still be read.
        let sent = stream.write_all(message);
        let answer = read(&mut stream, &mut messages, end).map_err(lost)?;
        let Some(answer) = answer else {
            let why = sent.err().map_or_else(String::new, |error| format!(" ({error})"));
            return Err(lost(format!(
                "the program closed the connection without an answer{why}; see its log"
            )));
        };
        let reply = ControlReply::parse(&answer).map_err(|error| lost(error.to_string()))?;
        Ok((reply, String::from_utf8_lossy(&answer).into_owned()))
    };
    let (welcome, text) = exchange(&hello())?;
    if !welcome.ok {
        return Ok((welcome, text));
    }
    exchange(&request.to_message())
}

/// Advice where no program has the socket: the runs of this host.
fn others(runs: &[String]) -> String {
    if runs.is_empty() {
        return "is bartizan running? A run says where its socket lies when it starts (`commands: PATH`); name it with --socket PATH".to_owned();
    }
    format!("these runs have one: {}; choose with --run NAME", runs.join(", "))
}

fn unreachable(path: &Path, error: &std::io::Error) -> Failure {
    let advice = match error.kind() {
        ErrorKind::NotFound => {
            return Failure::stopped(format!(
                "cannot reach the program at {}: {error}; {}",
                path.display(),
                others(&running_of(&lock::folders()))
            ));
        }
        ErrorKind::ConnectionRefused => {
            "the socket is left over from a program that was killed; start the program again"
        }
        ErrorKind::PermissionDenied => {
            "only its owner and its group may use it (`ls -l` shows them); run this as one of them or as \
             root"
        }
        _ => "name the socket of a running bartizan with --socket PATH",
    };
    Failure::stopped(format!("cannot reach the program at {}: {error}; {advice}", path.display()))
}

/// Reads the next message; `None`: the other side has closed.
fn read(stream: &mut UnixStream, messages: &mut Messages, end: Instant) -> Result<Option<Vec<u8>>, String> {
    let mut chunk = [0u8; 16 * 1024];
    loop {
        if let Some(message) = messages.next_message().map_err(|error| error.to_string())? {
            return Ok(Some(message));
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(
                "no answer in time; the command may still be carried out (--timeout SECONDS waits longer)"
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
