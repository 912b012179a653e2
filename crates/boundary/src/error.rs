// SPDX-License-Identifier: Apache-2.0
//! Reasons why a boundary cannot be drawn.

use rustix::io::Errno;

/// The reason why a boundary cannot be drawn.
#[derive(Debug, thiserror::Error)]
pub enum BoundaryError {
    /// There is no control group of version 2.
    #[error(
        "a guest's boundary needs control groups of version 2, and none are mounted; mount them: `mount -t cgroup2 none /sys/fs/cgroup/unified`"
    )]
    NoControlGroups,
    /// The kernel refuses something.
    #[error(
        "a guest's boundary cannot {what}: {source}; it needs root with CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_BPF"
    )]
    System {
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// Standard input, output or error is a socket of the outer network.
    #[error(
        "a guest's boundary has a hole: descriptor {0} is a network socket, by which the command would reach the network; start it with other standard streams"
    )]
    Inherited(i32),
    /// The programs of the control group are not loaded.
    #[error(
        "the programs of a guest's boundary are not loaded ({step}): {problem}; a kernel from 5.10 on with CONFIG_CGROUP_BPF is needed, and CAP_BPF"
    )]
    Programs {
        /// The step.
        step: &'static str,
        /// The loader's or verifier's message.
        problem: String,
    },
    /// The relay cannot join the guest.
    #[error("the relay of a guest's boundary cannot join the guest: {0}; raise `processes` of the guest")]
    Join(Errno),
}

/// Makes a [`BoundaryError::System`] of the kernel's error.
pub(crate) fn system(what: &'static str) -> impl FnOnce(Errno) -> BoundaryError {
    move |error| BoundaryError::System { what, source: error.into() }
}
