// SPDX-License-Identifier: Apache-2.0
//! A client of the command socket that sends what a test wants, also messages against the protocol.
#![allow(dead_code)]

use crate::common::{Ended, Folder, PROGRAM, Running, until};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Longest time for an answer.
const LIMIT: Duration = Duration::from_secs(60);

pub struct Client {
    pub stream: UnixStream,
    held: Vec<u8>,
}

impl Client {
    /// A connection on which nothing was sent yet.
    pub fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Client { stream, held: Vec::new() }
    }

    /// A client after the first exchange of messages.
    pub fn greeted(path: &Path) -> Self {
        let mut client = Client::connect(path);
        // Without a line end, as suricatasc does.
        client.send(br#"{"version": "0.2"}"#);
        assert_eq!(client.line().as_deref(), Some(r#"{"return":"OK"}"#));
        client
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next line; `None`: the other side has closed.
    pub fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.held.iter().position(|byte| *byte == b'\n') {
                let rest = self.held.split_off(end + 1);
                let line = std::mem::replace(&mut self.held, rest);
                return Some(String::from_utf8(line).unwrap().trim_end().to_owned());
            }
            let mut chunk = [0u8; 4096];
            match self.stream.read(&mut chunk).expect("an answer or the end") {
                0 => return None,
                read => self.held.extend_from_slice(&chunk[..read]),
            }
        }
    }

    /// Sends a command; returns whether it is OK, and the message.
    pub fn ask(&mut self, command: &str, arguments: Value) -> (bool, Value) {
        let mut message = serde_json::json!({"command": command});
        if !arguments.is_null() {
            message["arguments"] = arguments;
        }
        self.send(format!("{message}\n").as_bytes());
        let line = self.line().expect("an answer");
        let mut answer: Value = serde_json::from_str(&line).unwrap();
        (answer["return"] == "OK", answer["message"].take())
    }

    /// The message of a command that has to be OK.
    pub fn ok(&mut self, command: &str, arguments: Value) -> Value {
        let (ok, message) = self.ask(command, arguments);
        assert!(ok, "{command}: {message}");
        message
    }

    /// The reason of a command that has to be refused.
    pub fn refused(&mut self, command: &str, arguments: Value) -> String {
        let (ok, message) = self.ask(command, arguments);
        assert!(!ok, "{command}: {message}");
        message.as_str().unwrap().to_owned()
    }
}

/// `bartizan ctl` for the socket of a folder.
pub fn ctl(folder: &Folder, arguments: &[&str]) -> Ended {
    let all = [&["ctl", "--socket", "c.socket"], arguments].concat();
    Running::start(Command::new(PROGRAM).args(all).current_dir(&folder.0)).wait()
}

/// Waits until the program accepts commands.
pub fn ready(folder: &Folder, running: &Running) {
    running.until("commands: ");
    until("the socket", || folder.path("c.socket").exists());
}
