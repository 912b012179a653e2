// SPDX-License-Identifier: Apache-2.0
//! Samba as the receiver of files over SMB. It has a log for each host, which names the files that were
//! opened; their content is read from the share.

use super::servers::{Daemon, Keeper, await_port, empty_folder, put, record};
use super::{Records, Service};
use crate::net::{Problem, problem, run};
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The running server.
pub(super) struct Samba {
    _daemon: Daemon,
    folder: PathBuf,
    /// Number of bytes read of each log.
    read: HashMap<PathBuf, usize>,
}

impl Samba {
    pub(super) fn start(folder: &Path) -> Result<Self, Problem> {
        empty_folder(folder)?;
        for part in ["share", "private", "state", "cache", "lock", "pid", "ncalrpc", "logs"] {
            empty_folder(&folder.join(part))?;
        }
        run(&format!("chmod 777 {}", folder.join("share").display()))?;
        put(&folder.join("share/fine.txt"), super::ftp::FORBIDDEN)?;
        let (config, output) = (folder.join("smb.conf"), folder.join("output"));
        put(&config, &settings(folder))?;
        let mut command = Command::new("smbd");
        command.args(["-F", "--no-process-group", "-s"]).arg(&config);
        let daemon = Daemon::spawn(&mut command, &output)?;
        await_port(Service::Smb, &output)?;
        Ok(Samba { _daemon: daemon, folder: folder.to_owned(), read: HashMap::new() })
    }

    /// Records the files that a host has opened.
    fn log(&mut self, path: &Path, address: IpAddr, records: &Records) -> Result<(), Problem> {
        let fail = |error: std::io::Error| problem(format!("{}: {error}", path.display()));
        let bytes = std::fs::read(path).map_err(fail)?;
        let read = self.read.entry(path.to_owned()).or_default();
        let text = String::from_utf8_lossy(bytes.get(*read..).unwrap_or_default()).into_owned();
        *read = bytes.len();
        // `nobody opened file NAME read=Yes write=No (numopen=1)`
        for line in text.lines() {
            let Some((_, rest)) = line.split_once(" opened file ") else { continue };
            let Some((name, mode)) = rest.rsplit_once(" read=") else { continue };
            if !mode.contains("write=Yes") {
                continue;
            }
            let content = std::fs::read(self.folder.join("share").join(name)).unwrap_or_default();
            // The name of a file without content is none that a rule can look at.
            if !content.is_empty() {
                record(address, Service::Smb, name.as_bytes(), records);
                record(address, Service::Smb, &content, records);
            }
        }
        Ok(())
    }
}

impl Keeper for Samba {
    fn collect(&mut self, records: &Records) -> Result<(), Problem> {
        let logs = self.folder.join("logs");
        let entries =
            std::fs::read_dir(&logs).map_err(|error| problem(format!("{}: {error}", logs.display())))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if let Ok(address) = name.parse::<IpAddr>() {
                self.log(&path, address, records)?;
            }
        }
        Ok(())
    }
}

/// Settings of Samba: one share that everybody may read and write, all state in the harness's folder.
fn settings(folder: &Path) -> String {
    format!(
        "[global]
workgroup = TEST
server role = standalone server
smb ports = {port}
disable netbios = yes
private dir = {folder}/private
state directory = {folder}/state
cache directory = {folder}/cache
lock directory = {folder}/lock
pid directory = {folder}/pid
ncalrpc dir = {folder}/ncalrpc
log file = {folder}/logs/%I
log level = 2
max log size = 0
debug timestamp = no
server min protocol = NT1
map to guest = Bad User
guest account = nobody
load printers = no
printing = bsd
printcap name = /dev/null
smb2 leases = no
[data]
path = {folder}/share
guest ok = yes
guest only = yes
read only = no
",
        folder = folder.display(),
        port = Service::Smb.port()
    )
}
