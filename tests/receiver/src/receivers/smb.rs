// SPDX-License-Identifier: Apache-2.0
//! Samba as the receiver of files over SMB: its record are the files of its share, with their names and
//! content.

use super::daemon::{Daemon, Keeper, await_port, empty_folder, put, record};
use super::{Records, Service};
use crate::net::{Problem, problem, run};
use std::collections::HashSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The running server.
pub(super) struct Samba {
    _daemon: Daemon,
    folder: PathBuf,
    /// Files that were recorded.
    known: HashSet<PathBuf>,
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
        Ok(Samba { _daemon: daemon, folder: folder.to_owned(), known: HashSet::new() })
    }
}

impl Keeper for Samba {
    fn collect(&mut self, records: &Records) -> Result<(), Problem> {
        let share = self.folder.join("share");
        let fail = |error: std::io::Error| problem(format!("{}: {error}", share.display()));
        for path in std::fs::read_dir(&share).map_err(fail)?.flatten().map(|entry| entry.path()) {
            // Files are called after the host that writes them: `fd69__1_3 mark.txt`.
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let host = name.split(' ').next().unwrap_or_default().replace('_', ":");
            let Ok(address) = host.parse::<IpAddr>() else { continue };
            let content = std::fs::read(&path).map_err(fail)?;
            // The name of a file without content is none that a rule can look at.
            if !content.is_empty() && self.known.insert(path) {
                record(address, Service::Smb, name.as_bytes(), records);
                record(address, Service::Smb, &content, records);
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
log file = {folder}/logs/log
log level = 1
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
