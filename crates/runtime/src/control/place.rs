// SPDX-License-Identifier: Apache-2.0
//! The place of the command socket: its path, its access rights, and a file that exists there already.
//!
//! The socket is made under another name, gets its rights and its group, and only then its name: nobody can
//! connect before. A socket without a listener (its program was killed) is replaced; one with a listener is
//! not. The socket is removed with the program that made it.
//!
//! Source: unix(7).

use crate::lock::{self, Lock};
use bartizan_base::{SettingError, SettingsMap, parse_bool};
use bartizan_events::output::{Rights, group_id};
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the socket in the runtime folder.
const NAME: &str = "control.socket";
/// End of the names of sockets.
const SUFFIX: &str = ".socket";
/// Owner and group may send commands.
const MODE: u32 = 0o660;
/// Most bytes of a path (`sun_path`, without its zero).
const PATH_MAX: usize = 107;
/// Time limit for a connection to an existing socket.
const PATIENCE: Duration = Duration::from_secs(1);

/// Requested socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlSocketSpec {
    /// The path; `none` for no socket.
    pub socket: Option<PathBuf>,
    /// The group that may use it: a name or a number.
    pub group: Option<String>,
}

/// The chosen path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketChoice {
    /// No socket.
    None,
    /// The default path, without a request: the program can work without it.
    Usual(PathBuf),
    /// A requested path.
    Named(PathBuf),
}

/// The default path of a client: the socket of this user's run, else of the host's run.
pub fn usual() -> PathBuf {
    of_name(NAME)
}

/// The socket of a run by its name: `NAME.socket` in a runtime folder, as the unit `bartizan@NAME` has it.
pub fn of_run(name: &str) -> PathBuf {
    of_name(&format!("{name}{SUFFIX}"))
}

fn of_name(name: &str) -> PathBuf {
    let paths: Vec<PathBuf> = lock::folders().into_iter().map(|folder| folder.join(name)).collect();
    let found = paths.iter().find(|path| path.exists()).or(paths.first());
    found.cloned().unwrap_or_else(|| Path::new(lock::ROOTS_FOLDER).join(name))
}

/// Names of runs whose sockets lie in these folders, sorted.
pub fn running_of(folders: &[PathBuf]) -> Vec<String> {
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let is_socket = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_socket());
    let names = entries.filter(is_socket).filter_map(|entry| entry.file_name().into_string().ok());
    let mut runs: Vec<String> = names
        .filter(|name| !name.starts_with("guest-"))
        .filter_map(|name| Some(name.strip_suffix(SUFFIX)?.to_owned()))
        .collect();
    runs.sort();
    runs
}

/// Suricata's settings: whether there is a socket (`None`: if possible), and its path.
///
/// # Errors
/// The settings are malformed.
pub fn of_settings(settings: &SettingsMap) -> Result<(Option<bool>, Option<&Path>), SettingError> {
    let (enabled, name) = (settings.get("unix-command.enabled"), settings.get("unix-command.filename"));
    let on = match enabled.map(str::trim) {
        None | Some("auto" | "") => None,
        Some(text) => Some(parse_bool(text).ok_or_else(|| SettingError {
            key: "unix-command.enabled".to_owned(),
            value: text.to_owned(),
            expected: "`auto`, `yes` or `no`",
        })?),
    };
    Ok((on, name.map(str::trim).filter(|name| !name.is_empty()).map(Path::new)))
}

impl ControlSocketSpec {
    /// The path: from the host file or the command line, else from Suricata's settings, else the default one.
    pub fn choice(&self, settings: &SettingsMap) -> Result<SocketChoice, SettingError> {
        let (on, name) = of_settings(settings)?;
        if let Some(path) = &self.socket {
            return Ok(if path == Path::new("none") {
                SocketChoice::None
            } else {
                SocketChoice::Named(path.clone())
            });
        }
        if on == Some(false) {
            return Ok(SocketChoice::None);
        }
        let folder = lock::runtime_folder();
        // A request without a runtime folder leads to an error about the folder.
        let wanted_in = || folder.clone().unwrap_or_else(|| PathBuf::from(lock::ROOTS_FOLDER));
        Ok(match (name, &folder) {
            // Suricata's paths are relative to its own folder in /var/run.
            (Some(path), _) => SocketChoice::Named(wanted_in().join(path)),
            (None, _) if on == Some(true) => SocketChoice::Named(wanted_in().join(NAME)),
            (None, Some(folder)) => SocketChoice::Usual(folder.join(NAME)),
            (None, None) => SocketChoice::None,
        })
    }

    /// The number of the group.
    pub fn group_id(&self) -> Result<Option<u32>, String> {
        let Some(name) = &self.group else { return Ok(None) };
        group_id(name).map(Some).ok_or_else(|| {
            format!(
                "cannot give the command socket to group `{name}`: this machine has no such group; `getent group` lists groups, and a number is accepted"
            )
        })
    }
}

/// A socket with its listener.
#[derive(Debug)]
pub struct Place {
    /// Path of the socket.
    pub path: PathBuf,
    /// Accepts clients.
    pub listener: UnixListener,
    /// Device and inode of the file.
    file: (u64, u64),
    _lock: Lock,
}

impl Drop for Place {
    fn drop(&mut self) {
        // Another program may have replaced the file.
        if self::file(&self.path) == Some(self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn file(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Listens on the path.
///
/// # Errors
/// Problem, place, reason.
pub fn take(path: &Path, group: Option<u32>) -> Result<Place, String> {
    let shown = path.display();
    if path.as_os_str().len() > PATH_MAX {
        return Err(format!("{shown} is too long for a socket; use a path of at most {PATH_MAX} bytes"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let made = Rights::default().make_folder(folder);
    made.map_err(|error| format!("cannot create the folder {}: {error}", folder.display()))?;
    if Some(folder) == lock::runtime_folder().as_deref() {
        may_be_entered(folder);
    }
    let lock = lock::control(path)?;
    is_free(path)?;
    // Only the holder of the lock uses the file name with this process's number.
    let unnamed = folder.join(format!(".{}", std::process::id()));
    let _ = std::fs::remove_file(&unnamed);
    let listener = UnixListener::bind(&unnamed).map_err(|error| format!("cannot create {shown}: {error}"))?;
    let named = set_rights(&unnamed, group).and_then(|()| {
        std::fs::rename(&unnamed, path).map_err(|error| {
            format!(
                "cannot rename the new socket to {shown}: \
                 {error}"
            )
        })
    });
    if let Err(error) = named {
        let _ = std::fs::remove_file(&unnamed);
        return Err(error);
    }
    let file = file(path).unwrap_or_default();
    Ok(Place { path: path.to_owned(), listener, file, _lock: lock })
}

/// Sets rights and group, before the socket has its name.
fn set_rights(socket: &Path, group: Option<u32>) -> Result<(), String> {
    std::fs::set_permissions(socket, Permissions::from_mode(MODE))
        .map_err(|error| format!("cannot set the permissions of the command socket: {error}"))?;
    let Some(group) = group else { return Ok(()) };
    chown(socket, None, Some(group)).map_err(|error| {
        format!("cannot give the command socket to group {group}: {error}; run as root or as a member of the group")
    })
}

/// Lets the socket's group pass its folder. Other files in it have rights of their own.
fn may_be_entered(folder: &Path) {
    let Ok(found) = std::fs::metadata(folder) else { return };
    let mode = found.mode() & 0o7777;
    if mode & 0o011 != 0o011 {
        let _ = std::fs::set_permissions(folder, Permissions::from_mode(mode | 0o011));
    }
}

/// Whether nobody listens on the path; the error names the listener or the file.
fn is_free(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("cannot examine {shown}: {error}")),
    };
    if !found.file_type().is_socket() {
        return Err(format!("{shown} exists and is not a socket; remove it"));
    }
    match connect(path) {
        Ok(()) => Err(format!("another program listens on {shown}; stop it")),
        // The program ended without removing it.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => {
            Err(format!("{shown} exists, and it is unknown whether a program listens on it: {error}"))
        }
    }
}

/// Connects with a time limit: a program that hangs may listen and accept nobody.
fn connect(path: &Path) -> std::io::Result<()> {
    let (to, came) = std::sync::mpsc::channel();
    let path = path.to_owned();
    std::thread::Builder::new().name("control-look".to_owned()).spawn(move || {
        let _ = to.send(UnixStream::connect(path).map(drop));
    })?;
    // No reply in time: a listener exists, and its queue is full.
    came.recv_timeout(PATIENCE).unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("bartizan-place-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    fn settings(pairs: &[(&str, &str)]) -> SettingsMap {
        let mut settings = SettingsMap::new();
        pairs.iter().for_each(|(key, value)| settings.set(*key, *value));
        settings
    }

    #[test]
    fn the_path_is_that_of_who_says_most() {
        let named = |socket: &str| ControlSocketSpec { socket: Some(socket.into()), group: None };
        let suricata = settings(&[("unix-command.enabled", "yes"), ("unix-command.filename", "/x/y.socket")]);
        let choice = |wanted: &ControlSocketSpec, settings: &SettingsMap| wanted.choice(settings).unwrap();
        assert_eq!(choice(&named("/a"), &suricata), SocketChoice::Named("/a".into()));
        assert_eq!(choice(&named("none"), &suricata), SocketChoice::None);
        let nobody = ControlSocketSpec::default();
        assert_eq!(choice(&nobody, &suricata), SocketChoice::Named("/x/y.socket".into()));
        assert!(suricata.unread().is_empty());
        let off = settings(&[("unix-command.enabled", "no"), ("unix-command.filename", "/x/y.socket")]);
        assert_eq!(choice(&nobody, &off), SocketChoice::None);
        if let Some(folder) = lock::runtime_folder() {
            assert_eq!(choice(&nobody, &SettingsMap::new()), SocketChoice::Usual(folder.join(NAME)));
            let auto = settings(&[("unix-command.enabled", "auto")]);
            assert_eq!(choice(&nobody, &auto), SocketChoice::Usual(folder.join(NAME)));
            let relative = settings(&[("unix-command.filename", "custom.socket")]);
            assert_eq!(choice(&nobody, &relative), SocketChoice::Named(folder.join("custom.socket")));
        }
        let error = nobody.choice(&settings(&[("unix-command.enabled", "perhaps")])).unwrap_err();
        assert!(error.to_string().contains("`perhaps` is not `auto`, `yes` or `no`"), "{error}");
    }

    #[test]
    fn groups_are_those_of_the_machine() {
        let of = |group: &str| ControlSocketSpec { socket: None, group: Some(group.into()) }.group_id();
        assert_eq!(
            (of("root"), of("12"), ControlSocketSpec::default().group_id()),
            (Ok(Some(0)), Ok(Some(12)), Ok(None))
        );
        let error = of("no-such-group").unwrap_err();
        assert!(error.contains("`no-such-group`") && error.contains("getent group"), "{error}");
    }

    #[test]
    fn a_socket_that_nobody_listens_on_is_replaced_and_no_other() {
        let folder = folder("replaced");
        let path = folder.join("c.socket");
        // The program was killed.
        drop(UnixListener::bind(&path).unwrap());
        let place = take(&path, None).unwrap();
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!(found.mode() & 0o7777, MODE);
        assert!(UnixStream::connect(&path).is_ok());
        let error = take(&path, None).unwrap_err();
        let me = format!("another bartizan (process {}) listens on", std::process::id());
        assert!(error.contains(&me), "{error}");
        drop(place);
        assert!(std::fs::read_dir(&folder).unwrap().next().is_none(), "nothing is left");
        // A socket of another program.
        let other = UnixListener::bind(&path).unwrap();
        let error = take(&path, None).unwrap_err();
        assert!(error.contains("another program listens on"), "{error}");
        drop(other);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "text").unwrap();
        let error = take(&path, None).unwrap_err();
        assert!(error.contains("is not a socket; remove it"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"text");
        let long = folder.join("x".repeat(120));
        assert!(take(&long, None).unwrap_err().contains("use a path of at most 107 bytes"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_another_has_put_there_is_left() {
        let folder = folder("left");
        let path = folder.join("c.socket");
        let place = take(&path, None).unwrap();
        std::fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        drop(place);
        assert!(UnixStream::connect(&path).is_ok());
        drop(other);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
