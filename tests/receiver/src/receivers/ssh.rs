// SPDX-License-Identifier: Apache-2.0
//! OpenSSH's server as the receiver of identification lines: its log says which software a client has named.

use super::daemon::{Daemon, Keeper, await_port, empty_folder, put};
use super::{Records, Service};
use crate::net::{Problem, problem};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// The running server.
pub(super) struct Sshd {
    _daemon: Daemon,
}

impl Sshd {
    pub(super) fn start(folder: &Path, records: &Arc<Records>) -> Result<Self, Problem> {
        empty_folder(folder)?;
        let (key, settings, program) = (folder.join("key"), folder.join("sshd.conf"), folder.join("ssh.py"));
        keygen(&key)?;
        // The folder that the distribution's server separates its rights in.
        let _ = std::fs::create_dir_all("/run/sshd");
        put(
            &settings,
            &format!("HostKey {}\nUsePAM no\nLoginGraceTime 5\nMaxStartups 1000\nUseDNS no\n", key.display()),
        )?;
        put(&program, include_str!("ssh.py"))?;
        let port = Service::Ssh.port().to_string();
        let arguments = [Path::new(&port), Path::new("/usr/sbin/sshd"), settings.as_path()];
        let daemon = Daemon::python(&program, &arguments, Service::Ssh, records)?;
        await_port(Service::Ssh, &program)?;
        Ok(Sshd { _daemon: daemon })
    }
}

/// Makes a key without a passphrase.
fn keygen(path: &Path) -> Result<(), Problem> {
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status();
    match made {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(problem(format!("ssh-keygen: {status}"))),
        Err(error) => Err(problem(format!("ssh-keygen: {error}"))),
    }
}

impl Keeper for Sshd {
    fn collect(&mut self, _records: &Records) -> Result<(), Problem> {
        // Its lines are read in a thread.
        std::thread::sleep(std::time::Duration::from_millis(200));
        Ok(())
    }
}
