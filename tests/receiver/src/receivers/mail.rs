// SPDX-License-Identifier: Apache-2.0
//! Exim as the receiver of mail. It delivers nothing: what it has taken waits in its queue, where `mail.py`
//! reads it as readers of mail do.

use super::daemon::{Daemon, Keeper, await_port, empty_folder, put};
use super::{Records, Service};
use crate::net::{Problem, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// User of the distribution's package.
const USER: &str = "Debian-exim";
/// Time limit for the reader to take up what lies in the queue.
const READS: Duration = Duration::from_secs(10);

/// The running server.
pub(super) struct Exim {
    _daemon: Daemon,
    _reader: Daemon,
    queue: PathBuf,
}

impl Exim {
    pub(super) fn start(folder: &Path, records: &Arc<Records>) -> Result<Self, Problem> {
        let spool = folder.join("spool");
        empty_folder(folder)?;
        empty_folder(&spool.join("input"))?;
        put(&folder.join("exim.conf"), &settings(folder))?;
        let reader = folder.join("mail.py");
        put(&reader, include_str!("mail.py"))?;
        let queue = spool.join("input");
        run(&format!("chown -R {USER}:{USER} {}", spool.display()))?;
        let log = folder.join("output");
        let daemon =
            Daemon::spawn(Command::new("exim4").arg("-C").arg(folder.join("exim.conf")).arg("-bdf"), &log)?;
        let exim = Exim {
            _daemon: daemon,
            _reader: Daemon::python(&reader, &[&queue], Service::Mail, records)?,
            queue,
        };
        await_port(Service::Mail, &log)?;
        Ok(exim)
    }
}

impl Keeper for Exim {
    fn collect(&mut self, _records: &Records) -> Result<(), Problem> {
        let begun = Instant::now();
        let is_empty = || std::fs::read_dir(&self.queue).is_ok_and(|mut files| files.next().is_none());
        while !is_empty() && begun.elapsed() < READS {
            std::thread::sleep(Duration::from_millis(20));
        }
        // The reader prints before it removes; its lines are read in a thread.
        std::thread::sleep(Duration::from_millis(50));
        Ok(())
    }
}

/// Exim's settings: as lenient as it can be made, without names, keys and deliveries.
fn settings(folder: &Path) -> String {
    format!(
        "primary_hostname = mail.test
spool_directory = {folder}/spool
log_file_path = {folder}/spool/%slog
pid_file_path = {folder}/pid
exim_user = {USER}
exim_group = {USER}
daemon_smtp_ports = {port}
local_interfaces = <; 0.0.0.0 ; ::0
host_lookup =
rfc1413_query_timeout = 0s
helo_accept_junk_hosts = *
helo_allow_chars = _
smtp_enforce_sync = false
smtp_accept_max = 0
smtp_accept_queue = 0
smtp_accept_queue_per_connection = 0
smtp_accept_max_per_connection = 1000
smtp_accept_max_nonmail = 1000
smtp_connect_backlog = 4096
smtp_max_synprot_errors = 1000
smtp_max_unknown_commands = 1000
smtp_receive_timeout = 5s
chunking_advertise_hosts = *
pipelining_advertise_hosts = *
smtputf8_advertise_hosts = *
tls_advertise_hosts =
strip_excess_angle_brackets
strip_trailing_dot
allow_utf8_domains
queue_only
message_logs = false
received_header_text =
keep_environment =
log_selector = +incoming_port +smtp_protocol_error +smtp_syntax_error
acl_smtp_rcpt = accept
acl_smtp_data = accept
begin acl
begin routers
begin transports
",
        folder = folder.display(),
        port = Service::Mail.port()
    )
}
