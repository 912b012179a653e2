// SPDX-License-Identifier: Apache-2.0
//! vsftpd as the receiver of FTP commands and files. Its log says what it has done for which host; uploaded
//! files are read.

use super::daemon::{Daemon, GrowingLog, Keeper, await_port, empty_folder, put, record};
use super::{Records, Service};
use crate::net::{Problem, run};
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The running server.
pub(super) struct Vsftpd {
    _daemon: Daemon,
    log: GrowingLog,
    root: PathBuf,
    /// Uploads whose files were read.
    known: HashMap<String, usize>,
}

/// Content of the file that every client may fetch, which a rule forbids.
pub const FORBIDDEN: &str = "some evil content";

impl Vsftpd {
    pub(super) fn start(folder: &Path) -> Result<Self, Problem> {
        empty_folder(folder)?;
        let root = folder.join("root");
        for part in ["root/pub", "empty"] {
            empty_folder(&folder.join(part))?;
        }
        for (name, text) in
            [("evil.txt", "fine content"), ("fine.txt", FORBIDDEN), ("good.txt", "good content\n")]
        {
            put(&root.join("pub").join(name), text)?;
        }
        run(&format!("chmod 755 {}", root.display()))?;
        run(&format!("chown -R ftp {}", root.join("pub").display()))?;
        let log = folder.join("log");
        put(&log, "")?;
        let output = folder.join("output");
        put(&folder.join("vsftpd.conf"), &settings(folder))?;
        let daemon = Daemon::spawn(Command::new("vsftpd").arg(folder.join("vsftpd.conf")), &output)?;
        await_port(Service::Ftp, &output)?;
        Ok(Vsftpd { _daemon: daemon, log: GrowingLog::new(log), root, known: HashMap::new() })
    }

    /// Records what a line of the log says.
    fn line(&mut self, line: &str, records: &Records) {
        // `... [pid 7] [ftp] OK UPLOAD: Client "::ffff:10.69.0.1", "/pub/name", 5 bytes, ...`
        let Some((head, behind)) = line.split_once(": Client \"") else { return };
        let Some((client, rest)) = behind.split_once('"') else { return };
        let Ok(address) = client.parse::<IpAddr>() else { return };
        let name = rest.split('"').nth(1).unwrap_or_default();
        let is_upload = head.ends_with(" UPLOAD");
        if head.ends_with("OK LOGIN") || !(head.contains("] OK ") || is_upload) {
            return;
        }
        if !name.is_empty() {
            record(address, Service::Ftp, name.as_bytes(), records);
        }
        if is_upload {
            let path = self.root.join(name.trim_start_matches('/'));
            let content = std::fs::read(path).unwrap_or_default();
            // A file that grows by APPE is recorded once.
            let known = self.known.entry(format!("{client} {name}")).or_default();
            record(address, Service::Ftp, content.get(*known..).unwrap_or_default(), records);
            *known = content.len();
        }
    }
}

impl Keeper for Vsftpd {
    fn collect(&mut self, records: &Records) -> Result<(), Problem> {
        let lines = self.log.lines()?;
        lines.iter().for_each(|line| self.line(line, records));
        Ok(())
    }
}

/// Settings of vsftpd: everybody may read and write, connections go to any host and port.
fn settings(folder: &Path) -> String {
    format!(
        "listen=NO
listen_ipv6=YES
background=NO
anonymous_enable=YES
no_anon_password=YES
local_enable=NO
write_enable=YES
anon_upload_enable=YES
anon_mkdir_write_enable=YES
anon_other_write_enable=YES
anon_world_readable_only=NO
anon_root={folder}/root
secure_chroot_dir={folder}/empty
xferlog_enable=YES
vsftpd_log_file={folder}/log
log_ftp_protocol=NO
connect_from_port_20=NO
port_promiscuous=YES
pasv_promiscuous=YES
pasv_min_port=40000
pasv_max_port=40999
async_abor_enable=YES
ascii_upload_enable=YES
seccomp_sandbox=NO
isolate=NO
isolate_network=NO
one_process_model=NO
session_support=NO
max_clients=0
max_per_ip=0
idle_session_timeout=8
data_connection_timeout=8
accept_timeout=4
connect_timeout=4
",
        folder = folder.display()
    )
}
