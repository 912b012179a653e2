// SPDX-License-Identifier: Apache-2.0
//! Errors of the level, in messages that say what to do.

use crate::holders::Holders;
use crate::port::Mode;
use crate::rights;
use std::io;

/// The level cannot be loaded, or an interface cannot be used for it.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// The kernel does not let this process load or attach programs.
    #[error(
        "no permission for the XDP level ({what}): {}; run as root, or give the program the rights with `setcap cap_bpf,cap_net_admin,cap_perfmon,cap_net_raw=ep PROGRAM`; in a \
         container these rights have to be given to it, and `bpf` must not be filtered. Only what is to fail open needs the bpf file system",
        lacking(.missing)
    )]
    NoPermission {
        /// The step that failed.
        what: &'static str,
        /// The rights that this process lacks.
        missing: Vec<&'static str>,
    },
    /// The kernel lacks a feature.
    #[error(
        "this kernel cannot do what the XDP level needs ({what}): it takes Linux 5.18 or later with CONFIG_BPF_SYSCALL, CONFIG_BPF_JIT and CONFIG_BPF_EVENTS"
    )]
    Kernel {
        /// The step that failed.
        what: &'static str,
    },
    /// The program does not load.
    #[error(
        "the XDP level's program `{program}` cannot be loaded: {problem}; its verifier's words are a fault of this build, to be reported"
    )]
    Load {
        /// The program.
        program: &'static str,
        /// The error of the loader or the kernel.
        problem: String,
    },
    /// More flows than the tables can hold.
    #[error(
        "{flows} flows on {processors} processors do not fit in the XDP level: from 1 to {most} are possible here"
    )]
    Flows {
        /// The flows requested.
        flows: u32,
        /// The number of processors that this machine can have.
        processors: u32,
        /// The most flows.
        most: u32,
    },
    /// The kernel gave no memory for the tables.
    #[error(
        "no memory for the tables of {flows} flows on {processors} processors ({mebibytes} MiB): ask for fewer flows, or raise the memory limit of the control group"
    )]
    Memory {
        /// The flows requested.
        flows: u32,
        /// The number of processors that this machine can have.
        processors: u32,
        /// The memory needed, about.
        mebibytes: u64,
    },
    /// There is no bpf file system to pin to.
    #[error(
        "what is to fail open is pinned, and no bpf file system is mounted at /sys/fs/bpf: `mount -t bpf bpf /sys/fs/bpf`; `ip netns exec` hides it, so use `nsenter \
         --net=/run/netns/NAME` instead; `fail: closed` needs none"
    )]
    NoFileSystem,
    /// Other users may write to the folder of pins.
    #[error(
        "{} is not this user's alone, so what is pinned there may be anybody's: see whose it is (`ls -ld`), and remove it or `chmod 700` it",
        crate::PINS
    )]
    OpenFolder,
    /// The pinned program is not one of ours.
    #[error(
        "{path} holds XDP program number {id}, `{program}`, which is none of this program: `bpftool prog show id {id}` says whose it is; remove the file if nobody needs it"
    )]
    ForeignPin {
        /// The file.
        path: String,
        /// The program's number.
        id: u32,
        /// Its name.
        program: String,
    },
    /// No such interface.
    #[error("there is no interface number {ifindex} in this network namespace; `ip link` lists all")]
    NoSuchInterface {
        /// Its number.
        ifindex: u32,
    },
    /// It is switched off.
    #[error("interface `{name}` is down: nothing can arrive; `ip link set dev {name} up`")]
    Down {
        /// The interface.
        name: String,
    },
    /// Another program is on the hook.
    #[error(
        "interface `{name}` has an XDP program already: number {id}, `{program}`, {mode}; there is room for one. {}",
        taken_by(.name, *.id, *.mode, .holders.as_deref())
    )]
    HookTaken {
        /// The interface.
        name: String,
        /// The program's number.
        id: u32,
        /// Its name; empty where the kernel does not tell.
        program: String,
        /// The mode in which it runs.
        mode: Mode,
        /// Number of the interface.
        ifindex: u32,
        /// Its holders, if looked up ([`XdpError::with_holders`]).
        holders: Option<Box<Holders>>,
    },
    /// Native mode was demanded, and the driver has none.
    #[error(
        "the driver of `{name}` runs no XDP programs; let the level choose (generic mode), or use another interface"
    )]
    NoNativeMode {
        /// The interface.
        name: String,
    },
    /// The driver runs programs only at a smaller MTU.
    #[error(
        "the driver of `{name}` runs no XDP programs at its MTU of {mtu}: most take about 3,500 and some less, so `ip link set dev {name} mtu 1500` (and as much at its other end), or let the level use generic mode"
    )]
    MtuTooLarge {
        /// The interface.
        name: String,
        /// Its MTU.
        mtu: u32,
    },
    /// The MTUs of the two ports of a link differ.
    #[error("`{a}` has MTU {mtu_a} and `{b}` has {mtu_b}: longer frames could not leave; `ip link set dev {} mtu {}`", if .mtu_a < .mtu_b { .b } else { .a }, .mtu_a.min(.mtu_b))]
    MtuDiffers {
        /// One interface.
        a: String,
        /// Its MTU.
        mtu_a: u32,
        /// The other one.
        b: String,
        /// Its MTU.
        mtu_b: u32,
    },
    /// Offloads deliver frames that were not on the wire, or hide frames that were.
    #[error(
        "interface `{name}` has offloads on that the XDP level cannot live with: frames arrive merged, unfinished or without their VLAN tag; `{command}`, or `--fix-offloads` (`fix-offloads` of the link) does it while the program runs"
    )]
    Offloads {
        /// The interface.
        name: String,
        /// The command that switches them off.
        command: String,
    },
    /// Frames redirected to it do not leave.
    #[error("interface `{name}` does not take redirected frames: {}", no_target(.name, .kind, .source))]
    TakesNothing {
        /// The interface.
        name: String,
        /// Its kind, empty for hardware.
        kind: String,
        /// Its driver's error, if it reports one.
        source: Option<io::Error>,
    },
    /// Several interfaces are unfit, or one for several reasons.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Unfit(Vec<XdpError>),
    /// A port's number is invalid.
    #[error("port {index} of interface `{name}`: {problem}")]
    Port {
        /// Its number.
        index: u8,
        /// The interface.
        name: String,
        /// The fault and its correction.
        problem: &'static str,
    },
    /// Any other refusal of the kernel.
    #[error("the XDP level cannot be used{}: {what} failed: {source}", .name.as_ref().map(|name| format!(" on `{name}`")).unwrap_or_default())]
    System {
        /// The interface, if it is about one.
        name: Option<String>,
        /// The step that failed.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// The missing rights, as text.
fn lacking(missing: &[&str]) -> String {
    match missing {
        [] => "this process has the rights that it takes, so something else forbids it (a user namespace, a filter of system calls, lockdown)".to_owned(),
        [one] => format!("the right {one} is missing"),
        several => format!("the rights {} are missing", several.join(", ")),
    }
}

/// The holders of a hook that is taken, and the command that frees it.
fn taken_by(name: &str, id: u32, mode: Mode, holders: Option<&Holders>) -> String {
    let keyword = mode.keyword();
    match holders {
        Some(holders) => holders.describe(name, keyword),
        None => format!(
            "`bpftool link show` and `bpftool prog show id {id}` say whose it is; `ip link set dev {name} {keyword} off` takes it away unless a link holds it"
        ),
    }
}

fn no_target(name: &str, kind: &str, source: &Option<io::Error>) -> String {
    let said = source.as_ref().map(|source| format!(" (its driver says: {source})")).unwrap_or_default();
    if kind == "veth" {
        format!(
            "its other end does not poll{said}; in the network namespace of the other end `ethtool -K OTHER_END gro on`, or attach an XDP program to it"
        )
    } else {
        format!(
            "its driver sends none{said}; use generic mode, or another interface (`{}` shows what it is)",
            format_args!("ethtool -i {name}")
        )
    }
}

impl XdpError {
    /// Looks up the holders of the program on a taken hook, for an error that a user will see: this reads
    /// all open files that this process may see, so it is not for each attempt. Other errors stay as they
    /// are.
    #[must_use]
    pub fn with_holders(mut self) -> Self {
        if let XdpError::HookTaken { id, ifindex, holders, .. } = &mut self {
            *holders = Some(Box::new(Holders::of(*id, *ifindex)));
        }
        self
    }

    /// The error of a forbidden step, with the rights that this process lacks.
    pub(crate) fn no_permission(what: &'static str) -> Self {
        XdpError::NoPermission { what, missing: rights::missing() }
    }

    /// The error of several unfit ports; none if all are fit.
    pub(crate) fn of_ports(mut unfit: Vec<XdpError>) -> Result<(), Self> {
        match unfit.pop() {
            None => Ok(()),
            Some(only) if unfit.is_empty() => Err(only),
            Some(last) => {
                unfit.push(last);
                Err(XdpError::Unfit(unfit))
            }
        }
    }

    /// The error of a failed step.
    pub(crate) fn system(name: Option<&str>, what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => XdpError::no_permission(what),
            Some(libc::ENOSYS) => XdpError::Kernel { what },
            _ => XdpError::System { name: name.map(str::to_owned), what, source },
        }
    }
}

/// A flow was not added to the table.
#[derive(Debug, thiserror::Error)]
pub enum FlowInsertError {
    /// There is no room for it.
    #[error("the XDP level's table of flows is full")]
    Full,
    /// A flow with this key is there.
    #[error("the XDP level holds a flow with this key already")]
    Exists,
    /// There is no such slot.
    #[error("the XDP level has {slots} slots; slot {slot} is none of them")]
    NoSlot {
        /// The slot requested.
        slot: u32,
        /// The number of slots.
        slots: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_remedy() {
        let error = XdpError::TakesNothing { name: "lan".into(), kind: "veth".into(), source: None };
        assert!(error.to_string().contains("`ethtool -K OTHER_END gro on`"), "{error}");
        let error = XdpError::MtuDiffers { a: "lan".into(), mtu_a: 9000, b: "wan".into(), mtu_b: 1500 };
        assert!(error.to_string().contains("`ip link set dev lan mtu 1500`"), "{error}");
        let taken = |holders| XdpError::HookTaken {
            name: "lan".into(),
            id: 7,
            program: "x".into(),
            mode: Mode::Generic,
            ifindex: 3,
            holders,
        };
        let error = taken(None);
        assert!(error.to_string().contains("`ip link set dev lan xdpgeneric off`"), "{error}");
        let error = taken(Some(Box::new(Holders { links: vec![12], ..Holders::default() })));
        assert!(error.to_string().contains("`bpftool link detach id 12`"), "{error}");
        let refused = XdpError::system(None, "loading", io::Error::from_raw_os_error(libc::EPERM));
        assert!(refused.to_string().contains("setcap cap_bpf"), "{refused}");
        for (missing, said) in [
            (vec!["CAP_PERFMON"], "(loading): the right CAP_PERFMON is missing;"),
            (vec!["CAP_BPF", "CAP_PERFMON"], "(loading): the rights CAP_BPF, CAP_PERFMON are missing;"),
            (vec![], "(loading): this process has the rights that it takes"),
        ] {
            let error = XdpError::NoPermission { what: "loading", missing };
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
