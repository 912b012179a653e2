// SPDX-License-Identifier: Apache-2.0
//! The program behind a connection: executable and control group of a process, from /proc.

use std::fs;
use std::io::Read as _;

/// Most bytes of /proc/PID/cgroup that are read.
const CGROUP_MAX: u64 = 16 << 10;

/// Path of a process's executable; `None`: it is gone, or may not be read.
pub(super) fn executable(process: i32) -> Option<String> {
    let path = fs::read_link(format!("/proc/{process}/exe")).ok()?;
    Some(path.to_string_lossy().into_owned())
}

/// A process's control group: that of version 2, or else the first one that has a name.
pub(super) fn cgroup(process: i32) -> Option<String> {
    let file = fs::File::open(format!("/proc/{process}/cgroup")).ok()?;
    let mut text = String::new();
    file.take(CGROUP_MAX).read_to_string(&mut text).ok()?;
    choose(&text).map(str::to_owned)
}

fn choose(text: &str) -> Option<&str> {
    let groups = || text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let unified = text.lines().find_map(|line| line.strip_prefix("0::"));
    let named = |group: &&str| *group != "/";
    unified.filter(named).or_else(|| groups().find(named)).or_else(|| groups().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_group_counts_where_it_has_a_name() {
        for (text, expected) in [
            ("0::/user.slice/a:b\n", Some("/user.slice/a:b")),
            ("5:cpu:/fast\n0::/\n", Some("/fast")),
            ("5:cpu:/fast\n0::/unified\n", Some("/unified")),
            ("5:cpu:/\n0::/\n", Some("/")),
            ("", None),
        ] {
            assert_eq!(choose(text), expected, "{text}");
        }
    }

    #[test]
    fn this_process_has_both() {
        let me = i32::try_from(std::process::id()).unwrap();
        assert_eq!(executable(me), Some(std::env::current_exe().unwrap().to_string_lossy().into_owned()));
        assert!(cgroup(me).is_some_and(|group| group.starts_with('/')));
        assert_eq!((executable(-1), cgroup(-1)), (None, None));
    }
}
