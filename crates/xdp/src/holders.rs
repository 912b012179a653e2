// SPDX-License-Identifier: Apache-2.0
//! The holders of a foreign attached program: the link that attaches it, files that it is pinned as,
//! processes that have it open. Only the message that refuses its interface needs them: looking them up
//! reads all open files of the machine.
//!
//! Source: bpf(2), proc(5), Linux `kernel/bpf/syscall.c` (`bpf_prog_show_fdinfo`, `bpf_link_show_fdinfo`),
//! `net/core/dev.c` (`bpf_xdp_link_show_fdinfo`), `kernel/bpf/inode.c`. The object of a descriptor is read
//! from its `fdinfo`, in the same way for pins and for other processes' files. Not seen: pins of file
//! systems that are mounted elsewhere only (`ip netns exec` hides those of the machine), processes of other
//! process namespaces.

use crate::sys;
use aya::programs::links::LinkType;
use aya::programs::loaded_links;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// Limits of the search: files of bpf file systems, depth of folders, and open files of processes.
const FILES: usize = 1 << 14;
const DEPTH: usize = 16;
const DESCRIPTORS: usize = 1 << 18;
/// The most names of each kind.
const NAMED: usize = 8;

/// The object that keeps an attached program alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The link that attaches it: the program runs as long as one of these exists.
    Link,
    /// The program: it stays loaded, attached or not.
    Program,
}

/// A process that has the program or its link open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The number of the process.
    pub process: u32,
    /// The process's name.
    pub name: String,
    /// The object that the process has open.
    pub hold: Hold,
}

/// The holders of a program that is attached to an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// Numbers of the links that attach it; empty: it was attached without one. (Several: one is of an
    /// interface with the same number in another network namespace.)
    pub links: Vec<u32>,
    /// Files of its pins.
    pub pins: Vec<(PathBuf, Hold)>,
    /// Processes that have it open.
    pub processes: Vec<Holder>,
    /// The search was incomplete: there may be others.
    pub partly: bool,
}

/// The program and interface to look for.
#[derive(Clone, Copy, Debug)]
struct HolderQuery {
    program: u32,
    ifindex: u32,
}

impl Holders {
    /// Looks up the holders of a program on an interface of this network namespace.
    #[must_use]
    pub fn of(program: u32, ifindex: u32) -> Self {
        let wanted = HolderQuery { program, ifindex };
        let mut found = Holders::default();
        found.find_links(wanted);
        let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap_or_default();
        let mut left = FILES;
        for mount in bpf_mounts(&mounts) {
            found.find_pins(wanted, mount, &mut left);
        }
        // After the pins, so that the descriptors opened for them are closed again.
        found.find_processes(wanted, Path::new("/proc"));
        found.links.sort_unstable();
        found.links.dedup();
        found.pins.sort_by(|one, other| one.0.cmp(&other.0));
        found
    }

    fn find_links(&mut self, wanted: HolderQuery) {
        for link in loaded_links() {
            let Ok(link) = link else {
                self.partly = true;
                return;
            };
            if link.program_id() != wanted.program || link.link_type().ok() != Some(LinkType::Xdp) {
                continue;
            }
            match sys::Attachment::of_number(link.id()).and_then(|link| link.numbers()) {
                Ok((_, ifindex)) if ifindex != wanted.ifindex => {}
                Ok(_) => self.links.push(link.id()),
                // It has gone meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => self.partly = true,
            }
        }
    }

    fn find_pins(&mut self, wanted: HolderQuery, root: &Path, left: &mut usize) {
        let mut folders = vec![(root.to_path_buf(), 0)];
        while let Some((folder, depth)) = folders.pop() {
            let Ok(files) = fs::read_dir(&folder) else {
                self.partly = true;
                continue;
            };
            for file in files.filter_map(Result::ok) {
                if *left == 0 || depth == DEPTH {
                    self.partly = true;
                    break;
                }
                *left -= 1;
                match file.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push((file.path(), depth + 1)),
                    Ok(kind) if kind.is_file() => self.check_pin(wanted, file.path()),
                    _ => {}
                }
            }
        }
    }

    fn check_pin(&mut self, wanted: HolderQuery, path: PathBuf) {
        let what = sys::open_pinned(&path).and_then(|fd| info_of(&fd));
        match what {
            Ok(info) => self.pins.extend(hold(&info, wanted).map(|(hold, _)| (path, hold))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => self.partly = true,
        }
    }

    fn find_processes(&mut self, wanted: HolderQuery, root: &Path) {
        let Ok(processes) = fs::read_dir(root) else {
            self.partly = true;
            return;
        };
        let mut left = DESCRIPTORS;
        for process in processes.filter_map(Result::ok) {
            let Some(number) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            match fs::read_dir(process.path().join("fd")) {
                Ok(files) => {
                    for file in files.filter_map(Result::ok) {
                        if left == 0 {
                            self.partly = true;
                            return;
                        }
                        left -= 1;
                        self.check_descriptor(wanted, number, &process.path(), &file.path());
                    }
                }
                // It has ended meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => self.partly = true,
            }
        }
    }

    fn check_descriptor(&mut self, wanted: HolderQuery, process: u32, folder: &Path, file: &Path) {
        // Cheaper than reading the kind of each open file: only those of BPF.
        let is_of_bpf = fs::read_link(file).is_ok_and(|to| to.to_string_lossy().contains("bpf"));
        let Some(number) = file.file_name().filter(|_| is_of_bpf) else { return };
        // A process that is gone meanwhile holds nothing.
        let Ok(info) = fs::read_to_string(folder.join("fdinfo").join(number)) else { return };
        let Some((hold, link)) = hold(&info, wanted) else { return };
        self.links.extend(link);
        let name = fs::read(folder.join("comm")).unwrap_or_default();
        let name = String::from_utf8_lossy(&name).trim_end().to_owned();
        let holder = Holder { process, name, hold };
        if !self.processes.contains(&holder) {
            self.processes.push(holder);
        }
    }

    /// The command that removes the program.
    fn command(&self, interface: &str, keyword: &str) -> String {
        match self.links.as_slice() {
            [] => format!("it stays until `ip link set dev {interface} {keyword} off` takes it away"),
            [link] => format!("`bpftool link detach id {link}` takes it away"),
            _ => "`bpftool link show` says which of these links is of this network namespace; `bpftool link detach id NUMBER` takes it away".to_owned(),
        }
    }

    /// The holders and the command that removes the program, for people. `keyword` is `ip link`'s, for its
    /// mode.
    pub(crate) fn describe(&self, interface: &str, keyword: &str) -> String {
        format!("{self}; {}", self.command(interface, keyword))
    }
}

/// The names of at most [`NAMED`] items, and the number of the others.
fn named<T>(things: &[T], name: impl Fn(&T) -> String) -> String {
    let mut text = things.iter().take(NAMED).map(name).collect::<Vec<_>>().join(", ");
    if things.len() > NAMED {
        text.push_str(&format!(" and {} more", things.len() - NAMED));
    }
    text
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.links.as_slice() {
            [] => f.write_str("It is attached without a link")?,
            links => {
                let s = if links.len() > 1 { "s" } else { "" };
                write!(f, "It is attached by link{s} {}", named(links, u32::to_string))?;
            }
        }
        let of = |hold: Hold| if hold == Hold::Program { " (the program alone)" } else { "" };
        // Any user can choose a name: it must not control a terminal.
        let pin = |(path, hold): &(PathBuf, Hold)| {
            format!("`{}`{}", path.to_string_lossy().escape_debug(), of(*hold))
        };
        let process = |holder: &Holder| {
            let Holder { process, name, hold } = holder;
            format!("process {process} (`{}`){}", name.escape_debug(), of(*hold))
        };
        match self.pins.as_slice() {
            [] => f.write_str(", nobody has pinned it")?,
            pins => write!(f, ", pinned as {}", named(pins, pin))?,
        }
        match self.processes.as_slice() {
            [] => f.write_str(", no process has it open")?,
            processes => write!(f, ", held by {}", named(processes, process))?,
        }
        if self.partly {
            f.write_str(" (that is what this process may see: not all of /sys/fs/bpf and /proc)")?;
        }
        Ok(())
    }
}

/// The mount points of bpf file systems, from a table of mounts. A name with blanks has `\040` in the
/// table: such mounts are not found, and the message says so.
fn bpf_mounts(mounts: &str) -> impl Iterator<Item = &Path> {
    mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        (kind == "bpf").then(|| Path::new(place))
    })
}

fn info_of(fd: &OwnedFd) -> io::Result<String> {
    fs::read_to_string(format!("/proc/thread-self/fdinfo/{}", fd.as_raw_fd()))
}

/// A number in a descriptor's `fdinfo`.
fn number(info: &str, key: &str) -> Option<u32> {
    info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')?.trim().parse().ok())
}

/// The object of a descriptor that holds `wanted`, by its `fdinfo`, and the number of its link. A link of
/// another interface holds nothing of this one.
fn hold(info: &str, wanted: HolderQuery) -> Option<(Hold, Option<u32>)> {
    if number(info, "prog_id")? != wanted.program {
        return None;
    }
    match number(info, "link_id") {
        None => Some((Hold::Program, None)),
        Some(link) if number(info, "ifindex") == Some(wanted.ifindex) => Some((Hold::Link, Some(link))),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: HolderQuery = HolderQuery { program: 7, ifindex: 3 };
    const LINK: &str = "pos:\t0\nflags:\t02000000\nlink_type:\txdp\nlink_id:\t12\nprog_tag:\t3b185187f1855c4c\nprog_id:\t7\nifindex:\t3\n";

    #[test]
    fn what_a_descriptor_stands_for_is_read_whatever_else_is_there() {
        assert_eq!(hold(LINK, WANTED), Some((Hold::Link, Some(12))));
        assert_eq!(hold(&LINK.replace("ifindex:\t3", "ifindex:\t4"), WANTED), None);
        assert_eq!(hold(&LINK.replace("prog_id:\t7", "prog_id:\t70"), WANTED), None);
        assert_eq!(hold("prog_type:\t6\nprog_jited:\t1\nprog_id:\t7\n", WANTED), Some((Hold::Program, None)));
        for info in
            ["", "map_id:\t7\n", "prog_id\t7", "xprog_id:\t7\n", "prog_id:\t-7\n", "prog_id:\t99999999999\n"]
        {
            assert_eq!(hold(info, WANTED), None, "{info}");
        }
        for end in 0..LINK.len() {
            let _ = hold(&LINK[..end], WANTED);
        }
    }

    #[test]
    fn file_systems_are_found_by_kind_and_not_by_name() {
        let mounts =
            "bpf /sys/fs/bpf bpf rw 0 0\nnone /bpf tmpfs rw 0 0\nx /run/b bpf rw 0 0\nbroken\n\nbpf\n";
        let found: Vec<_> = bpf_mounts(mounts).collect();
        assert_eq!(found, [Path::new("/sys/fs/bpf"), Path::new("/run/b")]);
    }

    #[test]
    fn messages_say_who_and_what_to_do() {
        let nobody = Holders::default().describe("lan", "xdpdrv");
        assert!(nobody.contains("nobody has pinned it, no process has it open"), "{nobody}");
        assert!(nobody.contains("`ip link set dev lan xdpdrv off` takes it away"), "{nobody}");
        let process = |process| Holder { process, name: "a\u{1b}[2J".into(), hold: Hold::Link };
        let mut held = Holders {
            links: vec![12],
            pins: vec![("/sys/fs/bpf/x".into(), Hold::Link), ("/sys/fs/bpf/y".into(), Hold::Program)],
            processes: (1..=10).map(process).collect(),
            partly: true,
        };
        let text = held.describe("lan", "xdpdrv");
        assert!(text.contains("pinned as `/sys/fs/bpf/x`, `/sys/fs/bpf/y` (the program alone)"), "{text}");
        assert!(text.contains(r"held by process 1 (`a\u{1b}[2J`), process 2"), "{text}");
        assert!(text.contains("process 8 (`a") && text.contains(" and 2 more (that is what"), "{text}");
        assert!(text.ends_with("; `bpftool link detach id 12` takes it away"), "{text}");
        held.links.push(13);
        assert!(held.describe("lan", "xdpdrv").contains("by links 12, 13"));
    }
}
