// SPDX-License-Identifier: Apache-2.0
//! The rights (capabilities) that the level needs, and those of them that this process lacks.
//!
//! Source: capabilities(7), Linux `include/uapi/linux/capability.h`. The kernel answers EPERM or EACCES,
//! whichever is missing. Not done: rights given by a user namespace do not count here, and their list does
//! not show this.

/// A capability.
struct Right {
    name: &'static str,
    /// Its number.
    number: u32,
    /// `CAP_SYS_ADMIN` includes it.
    by_sys_admin: bool,
}

const fn right(name: &'static str, number: u32, by_sys_admin: bool) -> Right {
    Right { name, number, by_sys_admin }
}

/// The rights for loading and attaching. Packet sockets need `CAP_NET_RAW` as well.
const RIGHTS: [Right; 3] =
    [right("CAP_NET_ADMIN", 12, false), right("CAP_BPF", 39, true), right("CAP_PERFMON", 38, true)];

const SYS_ADMIN: u32 = 21;

/// The right that attaching takes. With `CAP_SYS_ADMIN` programs load without it.
pub(crate) const ATTACHING: &str = "CAP_NET_ADMIN";

/// Names of the rights that this thread lacks; empty also if that cannot be read.
pub(crate) fn missing() -> Vec<&'static str> {
    missing_in(&std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default())
}

fn missing_in(status: &str) -> Vec<&'static str> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let Some(held) = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()) else {
        return Vec::new();
    };
    let has = |number: u32| held >> number & 1 == 1;
    let holds = |right: &&Right| has(right.number) || right.by_sys_admin && has(SYS_ADMIN);
    RIGHTS.iter().filter(|right| !holds(right)).map(|right| right.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_is_named() {
        let of = |bits: u64| missing_in(&format!("Name:\tx\nCapPrm:\t0\nCapEff:\t{bits:016x}\n"));
        let all = 1 << 12 | 1 << 39 | 1 << 38;
        assert_eq!(of(all), [""; 0]);
        assert_eq!(of(all & !(1 << 38)), ["CAP_PERFMON"]);
        assert_eq!(of(all & !(1 << 39)), ["CAP_BPF"]);
        assert_eq!(of(1 << SYS_ADMIN), ["CAP_NET_ADMIN"]);
        assert_eq!(of(0), ["CAP_NET_ADMIN", "CAP_BPF", "CAP_PERFMON"]);
        assert_eq!(missing_in("no such line"), [""; 0]);
    }
}
