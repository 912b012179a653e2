// SPDX-License-Identifier: Apache-2.0
//! Results that cannot be written: the program reports it, and its exit code is not that of a success. A
//! reader that reads no further is no failure.

use crate::common;

use common::{Folder, PROGRAM};
use std::fs::OpenOptions;
use std::process::{Command, Stdio};

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("p.yaml", "policies: []\ndefault: {action: drop}\n");
    folder.write("a.rules", "alert tcp any any -> any any (msg:\"a\"; sid:1;)\n");
    folder.write("a.pcap", common::capture(&[common::udp(false, 1, 2, b"x")]));
    folder.write("h.txt", "@1.2.3.4/32 5.6.7.8/32 0 : 65535 0 : 65535 0x06/0xFF\n");
    folder
}

/// A command of each kind of result.
const COMMANDS: [&str; 18] = [
    "--help",
    "--version",
    "-V",
    "--build-info",
    "--notices",
    "--dump-config",
    "--list-keywords=csv",
    "--list-app-layer-protos",
    "--list-app-layer-hooks",
    "-T -S a.rules --json",
    "check p.yaml",
    "check --help",
    "completions bash",
    "completions zsh",
    "classify h.txt",
    "explain flow tcp 10.0.0.1:1 10.0.0.2:2 --policy p.yaml",
    "explain rule 1 --rules a.rules",
    "inspect --out o a.pcap",
];

#[test]
fn a_full_disk_is_told_and_is_no_success() {
    let folder = folder();
    for line in COMMANDS {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(line.split(' ')).current_dir(&folder.0).stdin(Stdio::null()).stdout(full);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{line}: {said}");
        let told = said.matches("cannot write to standard output: No space left on device").count();
        assert!(told == 1 && said.contains("the output is incomplete"), "{line}: {said}");
    }
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let folder = folder();
    for line in COMMANDS {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(PROGRAM);
        command.args(line.split(' ')).current_dir(&folder.0).stdin(Stdio::null()).stdout(writer);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // By the signal, as other programs, or in order where nothing was left to be written.
        assert!(matches!(output.status.code(), None | Some(0)), "{line}: {:?} {said}", output.status);
        assert!(!said.contains("standard output") && !said.contains("panicked"), "{line}: {said}");
    }
}
