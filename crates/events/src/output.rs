// SPDX-License-Identifier: Apache-2.0
//! Files that the program writes: their access rights, and the refusal of unsuitable targets.
//!
//! Files get the mode 0640 and folders 0750 by default (`output-rights.mode`, `.owner`, `.group`; an EVE
//! output's own `filemode` takes precedence, as in Suricata). A symbolic link in place of the file is
//! refused: anybody who may write to the folder could make the program write into any file. The system's
//! links to a process' own descriptors (`/dev/stdout`) are followed. A pipe is opened without waiting for its
//! reader.
//!
//! An existing file keeps its rights unless the settings name some. Not supported: names of users and groups
//! that are not in `/etc/passwd` and `/etc/group` (numbers are); links in the middle of a path.

use bartizan_base::{SettingError, SettingsMap};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _, chown, fchown,
};
use std::path::Path;

/// Default mode of files.
const MODE: u32 = 0o640;

/// The kind of a target that cannot be written to, inside of the [`io::Error`] of [`Rights::append`] and its
/// neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A symbolic link.
    #[error("it is a symbolic link, and outputs follow none")]
    Link,
    /// A folder.
    #[error("it is a folder")]
    Folder,
    /// A socket.
    #[error("it is a socket")]
    Socket,
    /// A disk.
    #[error("it is a block device")]
    BlockDevice,
    /// A pipe without a reader.
    #[error("it is a pipe that no program reads")]
    NoReader,
}

impl Unfit {
    /// The kind of target in an error, if the error has one.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Unfit> {
        error.get_ref()?.downcast_ref::<Unfit>().copied()
    }

    /// Advice for the user.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Unfit::Link => "name the file that it leads to, or remove the link",
            Unfit::Folder => "give the name of a file, not of a folder",
            Unfit::Socket => "for a socket say `filetype: unix_stream`, or choose another name",
            Unfit::BlockDevice => "give the name of a file",
            Unfit::NoReader => "start the program that reads from it first",
        }
    }

    fn error(self) -> io::Error {
        io::Error::new(ErrorKind::InvalidInput, self)
    }
}

/// Access rights of outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    mode: u32,
    owner: Option<u32>,
    group: Option<u32>,
    /// The settings name the mode: existing files get it, too.
    is_configured: bool,
}

impl Default for Rights {
    fn default() -> Self {
        Rights { mode: MODE, owner: None, group: None, is_configured: false }
    }
}

impl Rights {
    /// Reads `output-rights`.
    ///
    /// # Errors
    /// The mode is invalid, or the user or group does not exist on this machine.
    pub fn from_settings(settings: &SettingsMap) -> Result<Self, SettingError> {
        let mut rights = Rights::default().with_mode(settings, "output-rights.mode")?;
        let who = |key: &str, file: &str, expected| match settings.get(key).map(str::trim) {
            None | Some("") => Ok(None),
            Some(name) => find_id(name, file).map(Some).ok_or_else(|| SettingError {
                key: key.to_owned(),
                value: name.to_owned(),
                expected,
            }),
        };
        rights.owner = who("output-rights.owner", "/etc/passwd", "a user of this machine, or a number")?;
        rights.group = who("output-rights.group", "/etc/group", "a group of this machine, or a number")?;
        Ok(rights)
    }

    /// These rights with the mode of a key, if the key exists: octal digits, as in Suricata's `filemode`.
    ///
    /// # Errors
    /// The value is no mode.
    pub fn with_mode(self, settings: &SettingsMap, key: &str) -> Result<Self, SettingError> {
        let Some(text) = settings.get(key).map(str::trim).filter(|text| !text.is_empty()) else {
            return Ok(self);
        };
        match parse_mode(text) {
            Some(mode) => Ok(Rights { mode, is_configured: true, ..self }),
            None => Err(SettingError {
                key: key.to_owned(),
                value: text.to_owned(),
                expected: "a mode of files in octal digits, such as 640",
            }),
        }
    }

    /// Opens a file for appending; makes it if it does not exist.
    ///
    /// # Errors
    /// An error of the system, or [`Unfit`].
    pub fn append(&self, path: &Path) -> io::Result<File> {
        self.open(path, OpenOptions::new().append(true))
    }

    /// Opens a file for reading and writing without changing it; makes it if it does not exist.
    ///
    /// # Errors
    /// As [`Rights::append`].
    pub fn update(&self, path: &Path) -> io::Result<File> {
        self.open(path, OpenOptions::new().read(true).write(true))
    }

    /// Replaces the whole content of a file.
    ///
    /// # Errors
    /// As [`Rights::append`], and errors of writing.
    pub fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = self.open(path, OpenOptions::new().write(true))?;
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        io::Write::write_all(&mut file, content)
    }

    fn open(&self, path: &Path, options: &OpenOptions) -> io::Result<File> {
        let own = is_own_descriptor(path);
        // O_NONBLOCK: a pipe without a reader is an error, not an endless wait. Files and devices ignore it.
        let flags = libc::O_NONBLOCK | if own { 0 } else { libc::O_NOFOLLOW };
        let mut fresh = options.clone();
        fresh.create_new(true).mode(self.mode).custom_flags(flags);
        match fresh.open(path) {
            Ok(file) => {
                // Whatever bits the process' mask has removed.
                file.set_permissions(Permissions::from_mode(self.mode))?;
                self.set_owner(&file)?;
                return Ok(file);
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        if !own {
            fit(path)?;
        }
        let mut there = options.clone();
        let file = there.custom_flags(flags).open(path).map_err(|error| match error.raw_os_error() {
            // The path has become a link since the check.
            Some(libc::ELOOP) => Unfit::Link.error(),
            Some(libc::ENXIO) => Unfit::NoReader.error(),
            _ => error,
        })?;
        if file.metadata()?.is_file() {
            if self.is_configured {
                file.set_permissions(Permissions::from_mode(self.mode))?;
            }
            self.set_owner(&file)?;
        }
        Ok(file)
    }

    fn set_owner(&self, file: &File) -> io::Result<()> {
        if self.owner.is_none() && self.group.is_none() {
            return Ok(());
        }
        fchown(file, self.owner, self.group)
    }

    /// Makes a folder and its missing parents.
    ///
    /// # Errors
    /// An error of the system.
    pub fn make_folder(&self, path: &Path) -> io::Result<()> {
        if path.as_os_str().is_empty() || path.is_dir() {
            return Ok(());
        }
        if let Some(above) = path.parent() {
            self.make_folder(above)?;
        }
        // Users who may read files may also search the folder.
        let mode = self.mode | 0o700 | ((self.mode & 0o044) >> 2);
        match DirBuilder::new().mode(mode).create(path) {
            Ok(()) => {
                std::fs::set_permissions(path, Permissions::from_mode(mode))?;
                if self.owner.is_some() || self.group.is_some() {
                    chown(path, self.owner, self.group)?;
                }
                Ok(())
            }
            // Another process has made the folder in the meantime.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Checks that an existing target can be an output.
fn fit(path: &Path) -> io::Result<()> {
    let kind = std::fs::symlink_metadata(path)?.file_type();
    let unfit = if kind.is_symlink() {
        Unfit::Link
    } else if kind.is_dir() {
        Unfit::Folder
    } else if kind.is_socket() {
        Unfit::Socket
    } else if kind.is_block_device() {
        Unfit::BlockDevice
    } else {
        return Ok(());
    };
    Err(unfit.error())
}

/// Whether a path is the system's name of a descriptor that the process has open.
fn is_own_descriptor(path: &Path) -> bool {
    let descriptor = |folder| path.strip_prefix(folder).is_ok_and(|rest| rest.components().count() == 1);
    path == Path::new("/dev/stdout")
        || path == Path::new("/dev/stderr")
        || descriptor("/dev/fd")
        || descriptor("/proc/self/fd")
}

/// Parses octal digits, with or without a leading 0 or `0o`; the owner must be able to read and write.
#[must_use]
pub fn parse_mode(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let mode = u32::from_str_radix(digits, 8).ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()))?;
    (mode <= 0o777 && mode & 0o600 == 0o600).then_some(mode)
}

/// The number of a group of this machine, by its name or number.
#[must_use]
pub fn group_id(name: &str) -> Option<u32> {
    find_id(name, "/etc/group")
}

/// The number itself, or the third field of the line with this name.
fn find_id(name: &str, file: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let text = String::from_utf8_lossy(&std::fs::read(file).ok()?).into_owned();
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_testkit::pipe::make_pipe;
    use std::io::Read as _;
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::path::PathBuf;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("bartizan-output-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn settings(pairs: &[(&str, &str)]) -> SettingsMap {
        let mut settings = SettingsMap::new();
        pairs.iter().for_each(|(key, value)| settings.set(*key, *value));
        settings
    }

    #[test]
    fn files_are_for_owner_and_group_alone() {
        let folder = folder("modes");
        let rights = Rights::from_settings(&SettingsMap::new()).unwrap();
        let deep = folder.join("a/b");
        rights.make_folder(&deep).unwrap();
        rights.make_folder(&deep).unwrap();
        assert_eq!((mode(&deep), mode(&folder.join("a"))), (0o750, 0o750));
        let (one, two, three) = (deep.join("one"), deep.join("two"), deep.join("three"));
        rights.append(&one).unwrap();
        rights.write(&two, b"long text").unwrap();
        rights.write(&two, b"short").unwrap();
        rights.update(&three).unwrap();
        assert_eq!([&one, &two, &three].map(|path| mode(path)), [0o640; 3]);
        assert_eq!(std::fs::read(&two).unwrap(), b"short");
        // An existing file keeps its mode unless the settings name one.
        std::fs::set_permissions(&one, Permissions::from_mode(0o604)).unwrap();
        rights.append(&one).unwrap();
        assert_eq!(mode(&one), 0o604);
        let asked = rights.with_mode(&settings(&[("m", "0660")]), "m").unwrap();
        asked.append(&one).unwrap();
        asked.make_folder(&folder.join("c")).unwrap();
        assert_eq!((mode(&one), mode(&folder.join("c"))), (0o660, 0o770));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn links_are_not_followed_wherever_they_lead() {
        let folder = folder("links");
        let (target, link, dangling) = (folder.join("target"), folder.join("link"), folder.join("dangling"));
        std::fs::write(&target, "precious").unwrap();
        symlink(&target, &link).unwrap();
        symlink(folder.join("none"), &dangling).unwrap();
        let rights = Rights::default();
        for path in [&link, &dangling] {
            for error in [
                rights.append(path).unwrap_err(),
                rights.update(path).unwrap_err(),
                rights.write(path, b"x").unwrap_err(),
            ] {
                assert_eq!(Unfit::of(&error), Some(Unfit::Link), "{error}");
            }
        }
        assert_eq!(std::fs::read(&target).unwrap(), b"precious");
        assert!(!folder.join("none").exists());
        // A folder may be reached by a link: only the file's own name counts.
        let inside = folder.join("inside");
        symlink(&folder, &inside).unwrap();
        rights.write(&inside.join("target"), b"new").unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_no_file_is_told_apart() {
        let folder = folder("kinds");
        let _socket = std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap();
        let pipe = folder.join("pipe");
        make_pipe(&pipe);
        let rights = Rights::default();
        let unfit = |name: &str| Unfit::of(&rights.append(&folder.join(name)).unwrap_err());
        assert_eq!(unfit("."), Some(Unfit::Folder));
        assert_eq!(unfit("socket"), Some(Unfit::Socket));
        assert_eq!(unfit("pipe"), Some(Unfit::NoReader));
        let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
        io::Write::write_all(&mut rights.append(&pipe).unwrap(), b"hello").unwrap();
        let mut text = [0; 5];
        reader.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"hello");
        // Devices, and the system's links to open descriptors.
        rights.append(Path::new("/dev/null")).unwrap();
        let open = File::create(folder.join("open")).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&open);
        rights.append(Path::new(&format!("/dev/fd/{number}"))).unwrap();
        assert!(!is_own_descriptor(Path::new("/dev/fd/3/x")) && !is_own_descriptor(Path::new("/tmp/stdout")));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn owners_are_names_or_numbers() {
        let me = std::fs::metadata("/proc/self").unwrap();
        let asked = settings(&[
            ("output-rights.mode", "600"),
            ("output-rights.owner", "root"),
            ("output-rights.group", &me.gid().to_string()),
        ]);
        let rights = Rights::from_settings(&asked).unwrap();
        assert_eq!(
            rights,
            Rights { mode: 0o600, owner: Some(0), group: Some(me.gid()), is_configured: true }
        );
        if me.uid() == 0 {
            let folder = folder("owners");
            let given = Rights { owner: Some(12_345), group: Some(23_456), ..Rights::default() };
            let path = folder.join("made/eve.json");
            given.make_folder(path.parent().unwrap()).unwrap();
            given.append(&path).unwrap();
            for path in [path.as_path(), path.parent().unwrap()] {
                let found = std::fs::metadata(path).unwrap();
                assert_eq!((found.uid(), found.gid()), (12_345, 23_456));
            }
            std::fs::remove_dir_all(&folder).unwrap();
        }
        for (key, value) in [
            ("output-rights.mode", "rw"),
            ("output-rights.mode", "1777"),
            ("output-rights.mode", "440"),
            ("output-rights.mode", "+640"),
            ("output-rights.owner", "no-such-user"),
            ("output-rights.group", "no-such-group"),
        ] {
            let error = Rights::from_settings(&settings(&[(key, value)])).unwrap_err();
            assert_eq!((error.key.as_str(), error.value.as_str()), (key, value));
        }
    }
}
