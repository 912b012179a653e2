// SPDX-License-Identifier: Apache-2.0
//! Confinement of a run: its user, its capabilities, and the files and system calls that it can reach
//! (docs/design/0031-rights.md).
//!
//! It begins before the first thread, so that all threads inherit it, and takes away further capabilities
//! once ports and levels are open. Without a user in the host file or the settings, a run keeps the rights
//! that it was started with.
//!
//! * [`user`]: the user and its groups;
//! * [`files`]: folders that may be written (Landlock);
//! * [`calls`]: system calls (seccomp).

mod calls;
mod capabilities;
mod files;
mod user;

use crate::error::Failure;
use crate::plan::{LinkPlan, LinkPorts, RunPlan};
use crate::{cache, lock};
use bartizan_base::{SettingsMap, parse_bool};
use bartizan_events::output::Rights;
use rustix::thread::CapabilitySet;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, lchown};
use std::path::{Path, PathBuf};
use tracing::{info, warn};
use user::RunUser;

/// The confinement of a run.
#[derive(Debug)]
pub struct Confinement {
    /// The user; `None`: the present one.
    user: Option<RunUser>,
    /// Folders that are made for the user.
    own: Vec<PathBuf>,
    /// Folders, and single files, that may be written beside these.
    writable: Vec<PathBuf>,
    /// Files that are made before the user changes, since their folder is not the user's.
    files: Vec<PathBuf>,
    /// Capabilities until ports and levels are open.
    opening: CapabilitySet,
    /// Capabilities from then on.
    running: CapabilitySet,
    /// Whether levels below need `bpf(2)`.
    bpf: bool,
}

/// Confines the run of a plan, before its first thread and before it makes files. Returns the plan and its
/// confinement; `None`: it wants none.
///
/// # Errors
/// There is no such user; a link, the process or the kernel cannot be confined.
pub fn begin(plan: RunPlan) -> Result<(RunPlan, Option<Confinement>), Failure> {
    let confinement = Confinement::of(&plan, &plan.settings)?;
    confinement.iter().try_for_each(Confinement::begin)?;
    Ok((plan, confinement))
}

/// Gives up the capabilities that were needed to open ports and levels, in this thread and in those that it
/// starts.
///
/// # Errors
/// The kernel refuses.
pub fn drop_capabilities(confinement: Option<&Confinement>) -> Result<(), Failure> {
    confinement.map_or(Ok(()), Confinement::drop_capabilities)
}

/// The user that the host file or the settings name: name, group, place for messages.
fn wanted_user<'p>(
    plan: &'p RunPlan,
    settings: &'p SettingsMap,
) -> (Option<&'p str>, Option<&'p str>, &'static str) {
    // Both are read in any case: settings that nothing reads are reported as without effect.
    let (of_settings, group) = (settings.get("run-as.user"), settings.get("run-as.group"));
    match plan.user.as_deref() {
        Some(name) => (Some(name), None, "`user` of the host file"),
        None => (of_settings, group, "`run-as` of the settings"),
    }
}

impl Confinement {
    /// The confinement that the plan and the settings want.
    fn of(plan: &RunPlan, settings: &SettingsMap) -> Result<Option<Self>, Failure> {
        let (name, group, place) = wanted_user(plan, settings);
        let landlock = settings.get("security.landlock.enabled").and_then(parse_bool) == Some(true);
        let more: Vec<PathBuf> = settings
            .children("security.landlock.directories.write")
            .filter_map(|item| settings.get(&format!("security.landlock.directories.write.{item}")))
            .map(PathBuf::from)
            .collect();
        if name.is_none() && group.is_some() {
            return Err(Failure::input("`run-as.group` without `run-as.user`: name the user as well"));
        }
        if name.is_none() && !landlock {
            return Ok(None);
        }
        if let Some(guest) = plan.links.iter().find(|link| link.is_guest()) {
            return Err(Failure::input(format!(
                "link `{}` is a guest, and {place} confines the run, which cannot serve guests: run it without",
                guest.name
            )));
        }
        let user = name.map(|name| RunUser::find(name, group)).transpose();
        let user = user.map_err(|why| Failure::input(format!("{place}: {why}")))?;
        let bpf = plan.links.iter().any(|link| !link.levels.is_empty());
        let (own, mut writable) = (own_folders(plan), writable(plan, settings));
        writable.extend(more);
        let (opening, running) = capabilities_of(&plan.links);
        let files = plan.pid_file.iter().map(|path| absolute(path)).collect();
        Ok(Some(Confinement { user, own, writable, files, opening, running, bpf }))
    }

    /// Makes the folders, changes the user, and gives up what is not needed to open ports and levels.
    fn begin(&self) -> Result<(), Failure> {
        let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count).unwrap_or(1);
        if threads != 1 {
            return Err(Failure::stopped(format!(
                "a run is confined before its first thread, and this process has {threads}; run it without a user"
            )));
        }
        capabilities::bound(self.opening);
        if let Some(user) = self.user.as_ref().filter(|user| !user.is_present()) {
            self.make_places(user)?;
            capabilities::change_user(user).map_err(|error| {
                Failure::stopped(format!(
                    "cannot become user `{}`: {error}; start the program as root, or as that user with its capabilities",
                    user.name
                ))
            })?;
        }
        let refused = |what: &str, error: &dyn std::fmt::Display| {
            Failure::stopped(format!("cannot confine the run: {what}: {error}; run it without a user"))
        };
        let missing = capabilities::keep(self.opening).map_err(|error| refused("capabilities", &error))?;
        rustix::thread::set_no_new_privs(true).map_err(|error| refused("no_new_privs", &error))?;
        let enforced = files::restrict(self.own.iter().chain(&self.writable))
            .map_err(|error| refused("Landlock", &error))?;
        calls::restrict(self.bpf).map_err(|error| refused("seccomp", &error))?;
        self.log_state(missing, enforced);
        Ok(())
    }

    fn drop_capabilities(&self) -> Result<(), Failure> {
        capabilities::keep(self.running).map(drop).map_err(|error| {
            Failure::stopped(format!("cannot give up capabilities: {error}; run without a user"))
        })
    }

    /// Makes missing folders and files, as root, for the user.
    fn make_places(&self, user: &RunUser) -> Result<(), Failure> {
        let failed = |path: &Path, error: &io::Error| {
            Failure::stopped(format!(
                "cannot make {} for user `{}`: {error}; make it, or choose another place",
                path.display(),
                user.name
            ))
        };
        for folder in &self.own {
            // A folder that exists stays as it is: only those that are the program's by their names, and were
            // made by root without a user, become the user's.
            if folder.exists() && !(is_programs_own(folder) && lock::is_own(folder)) {
                continue;
            }
            Rights::default().make_folder(folder).map_err(|error| failed(folder, &error))?;
            lchown(folder, Some(user.uid), Some(user.gid)).map_err(|error| failed(folder, &error))?;
        }
        for file in &self.files {
            let made = OpenOptions::new().write(true).create_new(true).mode(0o644).open(file);
            match made {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(file, &error)),
            }
            lchown(file, Some(user.uid), Some(user.gid)).map_err(|error| failed(file, &error))?;
        }
        Ok(())
    }

    fn log_state(&self, missing: CapabilitySet, enforced: files::FileRestriction) {
        let who = self.user.as_ref().map_or_else(String::new, |user| format!("user `{}`, ", user.name));
        info!("confined: {who}{}; {enforced}", capabilities::text(self.running));
        if !missing.is_empty() {
            warn!(
                "missing: {}; what needs them is told where it is opened; start as root, or grant them (AmbientCapabilities= of a unit)",
                capabilities::text(missing)
            );
        }
    }
}

/// Whether a folder is the program's by its name.
fn is_programs_own(folder: &Path) -> bool {
    folder.ends_with("bartizan")
        && folder.parent().is_some_and(|above| {
            ["/run", "/var/cache", "/var/lib", "/var/log"].iter().any(|known| Path::new(known) == above)
        })
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The folders that a run of this plan has for itself.
fn own_folders(plan: &RunPlan) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = plan.out.iter().map(|out| absolute(out)).collect();
    found.extend(cache::folder(plan.options.cache.as_deref()).0.map(|folder| absolute(&folder)));
    found.extend(lock::runtime_path());
    if let Some(controller) = &plan.controller {
        found.push(absolute(&controller.state));
        found.extend(controller.here.iter().map(|here| absolute(&here.state)));
    }
    let control = plan.control.socket.as_deref().filter(|path| *path != Path::new("none"));
    found.extend(control.and_then(folder_of));
    found.sort();
    found.dedup();
    found
}

/// The folder of a file.
fn folder_of(path: &Path) -> Option<PathBuf> {
    absolute(path).parent().map(Path::to_owned)
}

/// The folders, and single files, that a run of this plan writes to beside its own folders.
fn writable(plan: &RunPlan, settings: &SettingsMap) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    found.extend(plan.pid_file.iter().map(|path| absolute(path)));
    found.extend(plan.options.outputs.socket.as_deref().and_then(folder_of));
    if let Some(controller) = &plan.controller {
        found.push(absolute(&controller.identity));
    }
    // Outputs that the settings place outside the output folder.
    for (key, value) in settings.iter() {
        let path = Path::new(value);
        if !path.is_absolute() {
            continue;
        }
        let last = key.rsplit('.').next().unwrap_or(key);
        match last {
            "filename" if key.starts_with("outputs.") => found.extend(folder_of(path)),
            "dir" | "certs-log-dir" if key.starts_with("outputs.") => found.push(path.to_owned()),
            "default-log-dir" | "data-dir" => found.push(path.to_owned()),
            _ => {}
        }
    }
    found.extend(files::SYSTEM.iter().map(PathBuf::from));
    if plan.links.iter().any(|link| !link.levels.is_empty()) {
        found.push(PathBuf::from("/sys/fs/bpf"));
    }
    found.sort();
    found.dedup();
    found
}

/// The capabilities that links need: until they are open, and from then on.
fn capabilities_of(links: &[LinkPlan]) -> (CapabilitySet, CapabilitySet) {
    let levels = CapabilitySet::NET_ADMIN | CapabilitySet::BPF | CapabilitySet::PERFMON;
    let mut running = CapabilitySet::NET_RAW;
    for link in links {
        let (LinkPorts::Inline { fix_offloads, .. } | LinkPorts::Tap { fix_offloads, .. }) = &link.ports
        else {
            continue;
        };
        if *fix_offloads {
            // Offloads are switched on again at the end.
            running |= CapabilitySet::NET_ADMIN;
        }
        if !link.levels.is_empty() {
            // Interfaces that come back get their level again.
            running |= levels;
        }
    }
    // Large receive buffers are set when a port is opened.
    (running | CapabilitySet::NET_ADMIN, running)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_config::host::OffloadSection;

    fn link(ports: LinkPorts, levels: Vec<OffloadSection>) -> LinkPlan {
        let (name, receive) = ("a".to_owned(), crate::plan::Receive::default());
        LinkPlan { name, ports, workers: 1, prevention: false, filter: None, receive, levels }
    }

    #[test]
    fn folders_are_the_programs_by_their_whole_names() {
        for (folder, own) in [
            ("/run/bartizan", true),
            ("/var/log/bartizan", true),
            ("/var/log", false),
            ("/home/bartizan", false),
            ("/var/log/bartizan/x", false),
        ] {
            assert_eq!(is_programs_own(Path::new(folder)), own, "{folder}");
        }
    }

    #[test]
    fn links_keep_the_capabilities_that_they_need() {
        let tap = |fix_offloads| LinkPorts::Tap { interfaces: vec!["e0".to_owned()], fix_offloads };
        let inline = LinkPorts::Inline { a: "e0".to_owned(), b: "e1".to_owned(), fix_offloads: false };
        let raw = CapabilitySet::NET_RAW;
        assert_eq!(capabilities_of(&[link(tap(false), vec![])]), (raw | CapabilitySet::NET_ADMIN, raw));
        assert_eq!(capabilities_of(&[link(tap(true), vec![])]).1, raw | CapabilitySet::NET_ADMIN);
        let below = capabilities_of(&[link(inline, vec![OffloadSection::usual("xdp")])]).1;
        assert_eq!(below, raw | CapabilitySet::NET_ADMIN | CapabilitySet::BPF | CapabilitySet::PERFMON);
    }
}
