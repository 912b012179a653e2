// SPDX-License-Identifier: Apache-2.0
//! `bartizan ca`: an operator's commands, their results, and the rights of the files.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder that is removed with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn ca(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_bartizan"))
        .arg("ca")
        .args(arguments)
        .arg("--folder")
        .arg(folder.join("ca"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have ended without reading.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn an_operator_makes_lists_and_revokes_certificates() {
    let folder = Folder(std::env::temp_dir().join(format!("bartizan-ca-{}", std::process::id())));
    let _ = std::fs::remove_dir_all(&folder.0);
    std::fs::create_dir(&folder.0).unwrap();
    let root = &folder.0;
    let out = root.to_str().unwrap();
    let pem = root.join("controller.pem");
    let pem = pem.to_str().unwrap();
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let output = ca(root, arguments, "bzt1.no");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(output.stdout.is_empty());
        assert!(said(&output).contains(words), "{arguments:?}: {}", said(&output));
    };
    refused(&["list"], 1, "`bartizan ca make` makes an authority");
    assert!(ca(root, &["make"], "").status.success());
    refused(&["make"], 1, "`rotate` makes a new key");
    assert!(ca(root, &["controller", "main", "--out", out], "").status.success());
    for (file, mode) in
        [("ca", 0o700), ("ca/ca.key", 0o600), ("ca/register.json", 0o600), ("controller.key", 0o600)]
    {
        let rights = std::fs::metadata(root.join(file)).unwrap().permissions();
        assert_eq!(rights.mode() & 0o777, mode, "{file}");
    }
    // A controller's key is not written over.
    refused(&["controller", "main", "--out", out], 1, "controller.key");
    let token = said(&ca(root, &["token", "edge-1", "--controller", pem], ""));
    assert!(token.starts_with("bzt1.") && token.trim().len() == 5 + 16 + 1 + 64 + 1 + 64, "{token}");
    refused(&["token", "Edge 1", "--controller", pem], 2, "is not a device id");
    refused(&["enrol", "edge-1", "--controller", "127.0.0.1:1", "--identity", out], 1, "this is not a token");
    let list = said(&ca(root, &["list"], ""));
    // Whole days: a second after it was made it is one less.
    assert!(
        [365, 364].iter().any(|days| list.contains(&format!("controller  main  {days} days left"))),
        "{list}"
    );
    let json: serde_json::Value = serde_json::from_slice(&ca(root, &["list", "--json"], "").stdout).unwrap();
    assert_eq!(json[0]["role"], "controller");
    // A token of a device that never came is taken back; then there is nothing more of it.
    let revoked = ca(root, &["revoke", "edge-1"], "");
    let told = String::from_utf8_lossy(&revoked.stderr);
    assert!(revoked.status.success() && told.contains("0 certificate(s) and 1 token(s) revoked"), "{told}");
    refused(&["revoke", "edge-1"], 1, "`ca list` shows all");
    refused(&["revoke", "main"], 1, "rotate the authority");
    assert!(ca(root, &["rotate"], "").status.success());
    let trusted = said(&ca(root, &["trusted"], ""));
    assert_eq!(trusted.matches("BEGIN CERTIFICATE").count(), 2);
}
