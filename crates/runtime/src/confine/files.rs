// SPDX-License-Identifier: Apache-2.0
//! Files of a confined run: it may write below listed folders only, and execute nothing. What it may read is
//! the user's right. Source: landlock(7).

use landlock::{
    ABI, AccessFs, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus,
};
use std::fmt;
use std::path::PathBuf;

/// Places of the system that are written: devices, and the process's own names of its descriptors.
pub const SYSTEM: [&str; 2] = ["/dev", "/proc/self"];

/// The newest interface whose rights are known here.
const KNOWN: ABI = ABI::V5;

/// The state of the restriction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRestriction {
    /// As described.
    Yes,
    /// As far as this kernel can.
    InPart,
    /// The kernel has no Landlock.
    No,
}

impl fmt::Display for FileRestriction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yes => "writes to its own folders only, and executes nothing (Landlock)",
            Self::InPart => "writes to its own folders only, and executes nothing, as far as this kernel's Landlock can",
            Self::No => {
                "this kernel has no Landlock: file permissions alone bound what it writes (CONFIG_SECURITY_LANDLOCK, lsm=landlock)"
            }
        })
    }
}

/// Restricts this thread, and those that it starts. Places that do not exist are left out.
pub fn restrict<'p>(
    writable: impl IntoIterator<Item = &'p PathBuf>,
) -> Result<FileRestriction, RulesetError> {
    let write = AccessFs::from_write(KNOWN);
    let handled: BitFlags<AccessFs> = write | AccessFs::Execute;
    let mut rules = Ruleset::default().handle_access(handled)?.create()?;
    for path in writable {
        let Ok(place) = PathFd::new(path) else { continue };
        let allowed = if path.is_dir() { write } else { write & AccessFs::from_file(KNOWN) };
        rules = rules.add_rule(PathBeneath::new(place, allowed))?;
    }
    let status = rules.restrict_self()?;
    Ok(match (status.ruleset, status.landlock) {
        (RulesetStatus::FullyEnforced, _) => FileRestriction::Yes,
        (RulesetStatus::PartiallyEnforced, LandlockStatus::Available { .. }) => FileRestriction::InPart,
        _ => FileRestriction::No,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::ErrorKind;

    #[test]
    fn a_restricted_thread_writes_to_its_folders_alone_and_executes_nothing() {
        let base = std::env::temp_dir().join(format!("bartizan-landlock-{}", std::process::id()));
        let (own, other) = (base.join("own"), base.join("other"));
        [&own, &other].iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
        fs::write(other.join("there"), "x").unwrap();
        let (inside, outside) = (own.clone(), other.clone());
        let thread = std::thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            let enforced = restrict(&[inside.clone(), "/no/such/folder".into()]).unwrap();
            fs::write(inside.join("a"), "x").unwrap();
            fs::rename(inside.join("a"), inside.join("b")).unwrap();
            let refused = |result: std::io::Result<()>| result.err().map(|error| error.kind());
            let tried = [
                refused(fs::write(outside.join("new"), "x")),
                refused(fs::write(outside.join("there"), "y")),
                refused(fs::remove_file(outside.join("there"))),
                refused(fs::create_dir(outside.join("folder"))),
                refused(std::process::Command::new("/bin/true").status().map(drop)),
            ];
            (enforced, tried, fs::read_to_string(outside.join("there")).unwrap())
        });
        let (enforced, tried, read) = thread.join().unwrap();
        fs::remove_dir_all(&base).unwrap();
        assert_eq!(read, "x", "reading is the user's right");
        let expected = if enforced == FileRestriction::No { None } else { Some(ErrorKind::PermissionDenied) };
        assert_eq!(tried, [expected; 5], "{enforced:?}");
    }
}
