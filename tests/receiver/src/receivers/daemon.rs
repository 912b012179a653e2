// SPDX-License-Identifier: Apache-2.0
//! Parts of the real servers: a child process, its folder and files, its start and the record of it.

use super::{Key, Records, Service};
use crate::net::{Problem, problem};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::net::{IpAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time limit of a server's start.
const STARTS: Duration = Duration::from_secs(20);

/// A running server, and the reader of its record.
pub trait Keeper: Send {
    /// Adds what the server has recorded since the last call.
    ///
    /// # Errors
    /// The record cannot be read.
    fn collect(&mut self, records: &Records) -> Result<(), Problem>;
}

/// A growing file of lines, read from where the last call ended.
#[derive(Debug)]
pub(super) struct GrowingLog {
    path: PathBuf,
    /// Number of bytes that were read.
    read: u64,
}

impl GrowingLog {
    pub(super) fn new(path: PathBuf) -> Self {
        GrowingLog { path, read: 0 }
    }

    /// The whole lines that were added.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn lines(&mut self) -> Result<Vec<String>, Problem> {
        let fail = |error: std::io::Error| problem(format!("{}: {error}", self.path.display()));
        let mut file = std::fs::File::open(&self.path).map_err(fail)?;
        file.seek(SeekFrom::Start(self.read)).map_err(fail)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(fail)?;
        // An incomplete line is left for the next call.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.read += whole as u64;
        Ok(String::from_utf8_lossy(&bytes[..whole]).lines().map(str::to_owned).collect())
    }
}

/// A child process that ends when this is dropped.
pub(super) struct Daemon(Child);

impl Daemon {
    /// Starts a program; its output goes to a file.
    pub(super) fn spawn(command: &mut Command, log: &Path) -> Result<Self, Problem> {
        let name = command.get_program().to_string_lossy().into_owned();
        let fail = |error: std::io::Error| problem(format!("{name}: {error}"));
        let out = std::fs::File::create(log).map_err(fail)?;
        let both = out.try_clone().map_err(fail)?;
        // A group of its own: Samba ends all of its group when it is told to end.
        command.process_group(0).stdin(Stdio::null()).stdout(out).stderr(both);
        Ok(Daemon(command.spawn().map_err(fail)?))
    }

    /// Starts a program of Python that prints a line of JSON for each host and the texts it was sent:
    /// `{"address": ..., "names": [...]}`.
    pub(super) fn python(
        program: &Path,
        arguments: &[&Path],
        service: Service,
        records: &Arc<Records>,
    ) -> Result<Self, Problem> {
        let mut child = Command::new("python3")
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| problem(format!("python3: {error}")))?;
        let lines = child.stdout.take().map(BufReader::new);
        let records = Arc::clone(records);
        std::thread::spawn(move || {
            for line in lines.into_iter().flat_map(|lines| lines.lines().map_while(Result::ok)) {
                record_line(&line, service, &records);
            }
        });
        Ok(Daemon(child))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Daemons stop their children; killed ones could not.
        let _ = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            if let Ok(Some(_)) = self.0.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Adds a line of JSON to the records.
fn record_line(line: &str, service: Service, records: &Records) {
    let Ok(said) = serde_json::from_str::<serde_json::Value>(line) else { return };
    let Some(Ok(address)) = said["address"].as_str().map(str::parse::<IpAddr>) else { return };
    for name in said["names"].as_array().into_iter().flatten().filter_map(|name| name.as_str()) {
        record(address, service, name.as_bytes(), records);
    }
}

/// Adds a text that a host has sent.
pub(super) fn record(address: IpAddr, service: Service, text: &[u8], records: &Records) {
    let key: Key = (address.to_canonical(), 0, service.port());
    records.add(key, |read| {
        read.stream.extend_from_slice(text);
        read.stream.push(b'\n');
    });
}

/// Makes an empty folder.
pub(super) fn empty_folder(path: &Path) -> Result<(), Problem> {
    let _ = std::fs::remove_dir_all(path);
    std::fs::create_dir_all(path).map_err(|error| problem(format!("{}: {error}", path.display())))
}

/// Writes a file of a server.
pub(super) fn put(path: &Path, text: &str) -> Result<(), Problem> {
    std::fs::write(path, text).map_err(|error| problem(format!("{}: {error}", path.display())))
}

/// Waits until a server answers at the service's port.
pub(super) fn await_port(service: Service, log: &Path) -> Result<(), Problem> {
    let begun = Instant::now();
    while TcpStream::connect(("::1", service.port())).is_err() {
        if begun.elapsed() > STARTS {
            return Err(problem(format!("{service:?}: no server starts: see {}", log.display())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
