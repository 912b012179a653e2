// SPDX-License-Identifier: Apache-2.0
//! The program behind a connection: executable and control group of a process, from /proc.

use bartizan_base::{PacketDuration, Timestamp};
use bartizan_toe::inspect::StreamInfo;
use std::collections::HashMap;
use std::fs;
use std::io::Read as _;

/// Most bytes of /proc/PID/cgroup that are read.
const CGROUP_MAX: u64 = 16 << 10;

/// Time for which a program's control group is taken for the same. Its executable stays the same for as long
/// as it is joined.
const KEPT_FOR: PacketDuration = PacketDuration::from_secs(1);
/// Most programs that are known.
const KNOWN_MOST: usize = 1024;

/// A program, as records show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProgramOrigin {
    pub(super) executable: Option<String>,
    pub(super) cgroup: Option<String>,
}

impl ProgramOrigin {
    fn read(process: i32) -> ProgramOrigin {
        ProgramOrigin { executable: executable(process), cgroup: cgroup(process) }
    }
}

/// Programs by the number of their joining, so that a connection does not read /proc anew.
#[derive(Debug, Default)]
pub(super) struct KnownPrograms(HashMap<u64, (ProgramOrigin, Timestamp)>);

impl KnownPrograms {
    /// The program behind a stream.
    pub(super) fn of(&mut self, stream: &StreamInfo, now: Timestamp) -> ProgramOrigin {
        let Some(joined) = stream.joined else { return ProgramOrigin::read(stream.process) };
        if let Some((program, since)) = self.0.get(&joined)
            && now.since(*since) <= KEPT_FOR
        {
            return program.clone();
        }
        if self.0.len() >= KNOWN_MOST {
            self.0.retain(|_, (_, since)| now.since(*since) <= KEPT_FOR);
        }
        let program = ProgramOrigin::read(stream.process);
        if self.0.len() < KNOWN_MOST {
            self.0.insert(joined, (program.clone(), now));
        }
        program
    }
}

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
    fn a_program_is_read_once_a_second_for_each_joining() {
        let me = i32::try_from(std::process::id()).unwrap();
        let mut known = KnownPrograms::default();
        let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
        let of = |known: &mut KnownPrograms, process, joined, seconds| {
            known.of(&stream(process, joined), at(seconds)).executable.is_some()
        };
        assert!(of(&mut known, me, Some(1), 1));
        // Known: the process is not looked at.
        assert!(of(&mut known, -1, Some(1), 2));
        // Another joining, a named process, and a known one after its time are looked at.
        assert!(!of(&mut known, -1, Some(2), 2) && !of(&mut known, -1, None, 2));
        assert!(!of(&mut known, -1, Some(1), 4));
    }

    fn stream(process: i32, joined: Option<u64>) -> StreamInfo {
        let end = std::net::SocketAddr::from(([192, 0, 2, 1], 1));
        StreamInfo {
            id: bartizan_toe::inspect::StreamId(1),
            tenant: bartizan_base::TenantId(0),
            guest: 0,
            process,
            joined,
            local: end,
            peer: end,
            accepted: false,
            is_datagram: false,
            partner: None,
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
