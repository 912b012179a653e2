// SPDX-License-Identifier: Apache-2.0
//! Real servers that conversations are held with, each with its own record of what it took: the programs of
//! the distribution, with settings and folders of the harness. Only those that a run needs are started.

use super::daemon::Keeper;
use super::{Records, Service, ftp, mail, smb, ssh};
use crate::net::{Problem, problem};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// A program that a server needs, and its Debian package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needed {
    /// Service of the families that need it.
    pub service: Service,
    /// Name of the program.
    pub program: &'static str,
    /// Name of the package.
    pub package: &'static str,
}

/// The programs of the servers.
pub const NEEDED: &[Needed] = &[
    Needed { service: Service::Mail, program: "exim4", package: "exim4-daemon-light" },
    Needed { service: Service::Ftp, program: "vsftpd", package: "vsftpd" },
    Needed { service: Service::Smb, program: "smbd", package: "samba" },
    Needed { service: Service::Ssh, program: "sshd", package: "openssh-server" },
    Needed { service: Service::Ssh, program: "ssh-keygen", package: "openssh-client" },
];

/// The running servers, which end when this is dropped.
#[derive(Default)]
pub struct Servers {
    running: Vec<Box<dyn Keeper>>,
}

impl Servers {
    /// Starts the servers of these services; their files are in `folder`.
    ///
    /// # Errors
    /// If a server cannot be started.
    pub fn start(wanted: &HashSet<Service>, folder: &Path, records: &Arc<Records>) -> Result<Self, Problem> {
        let folder =
            std::path::absolute(folder).map_err(|error| problem(format!("{}: {error}", folder.display())))?;
        let mut servers = Servers::default();
        if wanted.contains(&Service::Mail) {
            servers.running.push(Box::new(mail::Exim::start(&folder.join("exim"), records)?));
        }
        if wanted.contains(&Service::Ftp) {
            servers.running.push(Box::new(ftp::Vsftpd::start(&folder.join("vsftpd"))?));
        }
        if wanted.contains(&Service::Smb) {
            servers.running.push(Box::new(smb::Samba::start(&folder.join("samba"))?));
        }
        if wanted.contains(&Service::Ssh) {
            servers.running.push(Box::new(ssh::Sshd::start(&folder.join("sshd"), records)?));
        }
        Ok(servers)
    }

    /// Adds what the servers have recorded since the last call.
    ///
    /// # Errors
    /// A record cannot be read.
    pub fn collect(&mut self, records: &Records) -> Result<(), Problem> {
        self.running.iter_mut().try_for_each(|server| server.collect(records))
    }
}
