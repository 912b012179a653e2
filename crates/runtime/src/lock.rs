// SPDX-License-Identifier: Apache-2.0
//! One instance per output folder, per inline interface and per command socket: two would mix their events,
//! or forward every packet twice.
//!
//! A lock is a file that its process holds with flock(2), so the lock ends with the process in any case; the
//! file names the process for other instances. Locks of interfaces lie in `/run/bartizan` (root) or in the
//! user's runtime folder, by network namespace, since names of interfaces are only unique within one. Without
//! such a folder an interface is not locked. Watching an interface needs no lock.

use crate::error::Failure;
use bartizan_events::output::{Rights, Unfit};
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // First the name, then the lock: an instance that has opened the file meanwhile sees that the name is
        // gone and begins again.
        let _ = std::fs::remove_file(&self.path);
        let _ = self.file.unlock();
    }
}

/// Reasons why a lock is not taken.
#[derive(Debug)]
enum LockError {
    /// Another process holds it: the content of the file, which names the process.
    Held(String),
    System(std::io::Error),
}

/// Locks an output folder, which exists.
pub fn folder(folder: &Path) -> Result<Lock, Failure> {
    let path = folder.join("bartizan.lock");
    take(&path).map_err(|refusal| {
        Failure::stopped(match refusal {
            LockError::Held(who) => format!(
                "another bartizan{who} writes to {} (it holds {}); stop it or choose another folder with --out",
                folder.display(),
                path.display()
            ),
            LockError::System(error) if Unfit::of(&error).is_some() => format!(
                "cannot lock the output folder {}: {}: {error}; remove this file",
                folder.display(),
                path.display()
            ),
            LockError::System(error) if error.kind() == ErrorKind::NotFound => format!(
                "cannot write to the output folder {}: {error}; the current folder was removed: change to another one, or choose one with --out",
                folder.display()
            ),
            LockError::System(error) => format!(
                "cannot write to the output folder {}: {error}; check its permissions or choose another with --out",
                folder.display()
            ),
        })
    })
}

/// Locks the folder of a controller's configuration; makes the folder if necessary.
pub fn state(folder: &Path) -> Result<Lock, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        let folder = folder.display();
        Failure::stopped(format!(
            "cannot use the folder {folder} for the controller's generations: {error}; check its permissions, or choose another (`controller`, `state`)"
        ))
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| failed(&error))?;
    take(&folder.join("bartizan.lock")).map_err(|refusal| match refusal {
        LockError::Held(who) => failed(&format!("another bartizan{who} uses it")),
        LockError::System(error) => failed(&error),
    })
}

/// Writes and locks the pid file, for senders of signals: readable for all users, removed when the run ends.
/// The file of a crashed process is no obstacle: no process holds its lock.
pub fn pid_file(path: &Path) -> Result<Lock, Failure> {
    let lock = take(path).map_err(|refusal| {
        let path = path.display();
        Failure::stopped(match refusal {
            LockError::Held(who) => {
                format!("another bartizan{who} holds the pid file {path}; stop it or choose another with --pidfile")
            }
            LockError::System(error) => match Unfit::of(&error) {
                Some(unfit) => format!("cannot write the pid file {path}: {error}; {}", unfit.advice()),
                None => format!(
                    "cannot write the pid file {path}: {error}; create its folder, or choose another with --pidfile"
                ),
            },
        })
    })?;
    // The system controls who may stop the program; the process number is no secret.
    let _ = lock.file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
    Ok(lock)
}

/// Locks the place of a command socket. The error: the holder, or the failure to lock.
pub fn control(path: &Path) -> Result<Lock, String> {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    take(Path::new(&lock)).map_err(|refusal| match refusal {
        LockError::Held(who) => format!("another bartizan{who} listens on {}", path.display()),
        LockError::System(error) => format!("cannot lock {}: {error}", Path::new(&lock).display()),
    })
}

/// Locks an interface for inline use. `None`: no folder for locks.
pub fn interface(name: &str) -> Result<Option<Lock>, Failure> {
    // An impossible name is refused when the port is opened.
    if name.is_empty() || name.len() > 15 || name.contains('/') {
        return Ok(None);
    }
    let Some(folder) = runtime_folder() else { return Ok(None) };
    let namespace = std::fs::metadata("/proc/self/ns/net").map_or(0, |m| m.ino());
    match take(&folder.join(format!("{namespace}-{name}.lock"))) {
        Ok(lock) => Ok(Some(lock)),
        Err(LockError::Held(who)) => Err(Failure::stopped(format!(
            "another bartizan{who} is inline on interface `{name}`; stop it or choose another interface"
        ))),
        Err(LockError::System(_)) => Ok(None),
    }
}

/// The runtime folder of root.
pub const ROOTS_FOLDER: &str = "/run/bartizan";

/// The folder for files that live as long as the program: that of the service manager's unit, else
/// `/run/bartizan` for root and for its owner, else a folder of the user; made if necessary. `None`: no place
/// for it.
pub fn runtime_folder() -> Option<PathBuf> {
    runtime_path().filter(|folder| Rights::default().make_folder(folder).is_ok())
}

/// The path of that folder, whether it exists or not.
pub fn runtime_path() -> Option<PathBuf> {
    let root = std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
    if let Some(of_unit) = of_unit("RUNTIME_DIRECTORY") {
        return Some(of_unit);
    }
    if root || is_own(Path::new(ROOTS_FOLDER)) {
        return Some(PathBuf::from(ROOTS_FOLDER));
    }
    Some(PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?).join("bartizan"))
}

/// The folders that a client looks for sockets in: this user's, then that of the host's runs.
pub fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::from_iter(runtime_folder());
    if folders.iter().all(|folder| folder != Path::new(ROOTS_FOLDER)) {
        folders.push(PathBuf::from(ROOTS_FOLDER));
    }
    folders
}

/// The first folder that the service manager has made for the unit (`RuntimeDirectory=`, `CacheDirectory=`).
pub fn of_unit(variable: &str) -> Option<PathBuf> {
    first_folder(&std::env::var(variable).ok()?)
}

fn first_folder(list: &str) -> Option<PathBuf> {
    list.split(':').next().map(PathBuf::from).filter(|folder| folder.is_absolute())
}

/// Whether a folder exists and belongs to this user.
pub fn is_own(folder: &Path) -> bool {
    let owner = |path: &Path| std::fs::symlink_metadata(path).ok().filter(|found| found.is_dir());
    match (owner(folder), std::fs::metadata("/proc/self")) {
        (Some(found), Ok(me)) => found.uid() == me.uid(),
        _ => false,
    }
}

/// Most attempts to take a lock whose file is replaced meanwhile.
const TRIES: u32 = 100;

fn take(path: &Path) -> Result<Lock, LockError> {
    for _ in 0..TRIES {
        // Neither content nor rights of the file serve others, so the rights configured for outputs do not
        // apply.
        let mut file = Rights::default().update(path).map_err(LockError::System)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.take(32).read_to_string(&mut holder);
                let number = holder.trim().parse::<u32>();
                return Err(LockError::Held(number.map_or(String::new(), |n| format!(" (process {n})"))));
            }
            Err(TryLockError::Error(error)) => return Err(LockError::System(error)),
        }
        // Between opening and locking the holder may have ended and removed the name.
        let same = |a: std::fs::Metadata, b: std::fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        let (Ok(opened), Ok(named)) = (file.metadata(), std::fs::metadata(path)) else { continue };
        if !same(opened, named) {
            continue;
        }
        // On a full disk the lock is held all the same; its file then does not name the holder.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        return Ok(Lock { file, path: path.to_owned() });
    }
    let gone =
        format!("the file disappears as soon as it is created: another program removes {}", path.display());
    Err(LockError::System(std::io::Error::new(ErrorKind::NotFound, gone)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_folder_is_the_first_of_its_list() {
        assert_eq!(first_folder("/run/bartizan:/run/b"), Some("/run/bartizan".into()));
        assert_eq!(first_folder("run/b"), None, "by systemd.exec(5) the paths are absolute");
        assert_eq!(first_folder(""), None);
        let mine = std::env::temp_dir().join(format!("bartizan-own-{}", std::process::id()));
        std::fs::create_dir(&mine).unwrap();
        assert!(
            is_own(&mine) && !is_own(Path::new("/no/such/folder")) && !is_own(Path::new("/proc/self/status"))
        );
        std::fs::remove_dir(&mine).unwrap();
    }

    #[test]
    fn a_lock_is_held_once_and_can_be_taken_again() {
        let path = std::env::temp_dir().join(format!("bartizan-lock-{}", std::process::id()));
        let first = take(&path).unwrap();
        let Err(LockError::Held(who)) = take(&path) else { panic!("taken twice") };
        assert_eq!(who, format!(" (process {})", std::process::id()));
        drop(first);
        assert!(!path.exists());
        drop(take(&path).unwrap());
        assert!(matches!(take(Path::new("/no/such/folder/lock")), Err(LockError::System(_))));
    }
}
