// SPDX-License-Identifier: Apache-2.0
//! System calls of a confined run: a list of those that it makes, with conditions on threads and on families
//! of sockets. Others fail with EPERM; those that are newer than this list fail with ENOSYS, as on a kernel
//! without them, so that the C library falls back.
//!
//! Left out of the list, and so refused: executing programs, new processes, other users, namespaces, mounts,
//! modules, tracing and memory of other processes, signals to them, keys, io_uring, `perf_event_open`, raw
//! I/O, clocks. `bpf` is allowed where a level below needs it. Source: seccomp(2), `systemd-analyze
//! syscall-filter @system-service`.

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::collections::BTreeMap;
use std::env::consts::ARCH;

/// Numbers from here on are newer than the list.
const NEWER: std::ops::Range<i64> = 450..640;

/// Families of sockets: command socket and outputs, metrics and controllers, interfaces, packets, AF_XDP.
const FAMILIES: [i32; 6] =
    [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_XDP];

/// The calls of all processors.
#[rustfmt::skip]
const CALLS: &[i64] = &[
    // Files.
    libc::SYS_openat, libc::SYS_openat2, libc::SYS_close, libc::SYS_close_range, libc::SYS_read, libc::SYS_write, libc::SYS_readv,
    libc::SYS_writev, libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_preadv, libc::SYS_pwritev, libc::SYS_preadv2,
    libc::SYS_pwritev2, libc::SYS_lseek, libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_statfs,
    libc::SYS_fstatfs, libc::SYS_fcntl, libc::SYS_flock, libc::SYS_ftruncate, libc::SYS_truncate, libc::SYS_fallocate, libc::SYS_fadvise64,
    libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_sync_file_range, libc::SYS_getdents64, libc::SYS_getcwd, libc::SYS_chdir,
    libc::SYS_mkdirat, libc::SYS_unlinkat, libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_linkat,
    libc::SYS_symlinkat, libc::SYS_readlinkat, libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_fchmod, libc::SYS_fchmodat,
    libc::SYS_fchown, libc::SYS_fchownat, libc::SYS_utimensat, libc::SYS_umask, libc::SYS_copy_file_range, libc::SYS_sendfile,
    libc::SYS_splice, libc::SYS_dup, libc::SYS_dup3, libc::SYS_pipe2, libc::SYS_ioctl, libc::SYS_inotify_init1, libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch, libc::SYS_readahead, libc::SYS_fgetxattr, libc::SYS_getxattr, libc::SYS_lgetxattr,
    // Memory.
    libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect, libc::SYS_madvise, libc::SYS_brk, libc::SYS_msync,
    libc::SYS_mincore, libc::SYS_mlock, libc::SYS_mlock2, libc::SYS_munlock, libc::SYS_memfd_create, libc::SYS_membarrier, libc::SYS_mbind,
    libc::SYS_get_mempolicy,
    // Sockets; `socket` has a condition of its own.
    libc::SYS_socketpair, libc::SYS_bind, libc::SYS_connect, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4,
    libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_getsockopt, libc::SYS_setsockopt, libc::SYS_sendto, libc::SYS_recvfrom,
    libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_sendmmsg, libc::SYS_recvmmsg, libc::SYS_shutdown,
    // Waiting.
    libc::SYS_ppoll, libc::SYS_pselect6, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2, libc::SYS_timerfd_create, libc::SYS_timerfd_settime, libc::SYS_timerfd_gettime, libc::SYS_signalfd4,
    libc::SYS_futex, libc::SYS_futex_waitv, libc::SYS_nanosleep, libc::SYS_clock_nanosleep, libc::SYS_sched_yield,
    // Time and the processor.
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_gettimeofday, libc::SYS_times, libc::SYS_getcpu, libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity, libc::SYS_sched_getparam, libc::SYS_sched_getscheduler, libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min, libc::SYS_getpriority,
    // The process itself; `clone` has a condition of its own.
    libc::SYS_exit, libc::SYS_exit_group, libc::SYS_getpid, libc::SYS_getppid, libc::SYS_gettid, libc::SYS_getuid, libc::SYS_geteuid,
    libc::SYS_getgid, libc::SYS_getegid, libc::SYS_getgroups, libc::SYS_getresuid, libc::SYS_getresgid, libc::SYS_capget, libc::SYS_capset,
    libc::SYS_prctl, libc::SYS_seccomp, libc::SYS_prlimit64, libc::SYS_getrusage, libc::SYS_sysinfo, libc::SYS_uname, libc::SYS_getrandom,
    libc::SYS_set_tid_address, libc::SYS_set_robust_list, libc::SYS_get_robust_list, libc::SYS_rseq, libc::SYS_tgkill, libc::SYS_tkill,
    libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_rt_sigtimedwait, libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend, libc::SYS_sigaltstack, libc::SYS_restart_syscall, libc::SYS_wait4,
];

/// The calls that only older processors have.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const OLD_CALLS: &[i64] = &[
    libc::SYS_open, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_readlink, libc::SYS_mkdir, libc::SYS_rmdir, libc::SYS_unlink,
    libc::SYS_rename, libc::SYS_link, libc::SYS_symlink, libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_getdents,
    libc::SYS_dup2, libc::SYS_pipe, libc::SYS_poll, libc::SYS_select, libc::SYS_epoll_create, libc::SYS_epoll_wait, libc::SYS_eventfd,
    libc::SYS_getrlimit, libc::SYS_setrlimit, libc::SYS_time, libc::SYS_arch_prctl, libc::SYS_alarm, libc::SYS_pause, libc::SYS_getpgrp,
    libc::SYS_utimes, libc::SYS_utime,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[i64] = &[];

/// A filter that cannot be made or installed.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The filter cannot be made.
    #[error("{0}")]
    Made(#[from] BackendError),
    /// The kernel does not take it.
    #[error("{0}")]
    Installed(#[from] seccompiler::Error),
}

/// Restricts this thread, and those that it starts. `bpf`: a level below is used.
pub fn restrict(bpf: bool) -> Result<(), FilterError> {
    seccompiler::apply_filter(&allowed(bpf)?)?;
    // Of two refusals that of the later filter counts.
    seccompiler::apply_filter(&unknown()?)?;
    Ok(())
}

/// The filter that refuses what is not listed.
fn allowed(bpf: bool) -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        CALLS.iter().chain(OLD_CALLS).map(|call| (*call, Vec::new())).collect();
    if bpf {
        rules.insert(libc::SYS_bpf, Vec::new());
    }
    let family = |family: i32| argument(SeccompCmpOp::Eq, u64::from(family.unsigned_abs()));
    rules.insert(libc::SYS_socket, FAMILIES.map(family).into_iter().collect::<Result<_, _>>()?);
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    rules.insert(libc::SYS_clone, vec![argument(SeccompCmpOp::MaskedEq(thread), thread)?]);
    program(rules, SeccompAction::Errno(libc::EPERM.unsigned_abs()), SeccompAction::Allow)
}

/// The filter for calls that are newer than the list, and for `clone3`, whose flags no filter sees.
fn unknown() -> Result<BpfProgram, BackendError> {
    let rules = NEWER.chain([libc::SYS_clone3]).map(|call| (call, Vec::new())).collect();
    program(rules, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS.unsigned_abs()))
}

/// A condition on the first argument.
fn argument(compare: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(0, SeccompCmpArgLen::Dword, compare, value)?])
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    other: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    SeccompFilter::new(rules, other, listed, ARCH.try_into()?)?.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketType, socket};
    use std::io::ErrorKind;

    #[test]
    fn the_lists_name_each_call_once() {
        let mut all: Vec<i64> = CALLS.iter().chain(OLD_CALLS).copied().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(all.iter().all(|call| !NEWER.contains(call)), "they would be refused");
    }

    #[test]
    fn a_restricted_thread_starts_threads_and_nothing_else() {
        let thread = std::thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).unwrap();
            restrict(false).unwrap();
            let own = std::process::id();
            let pid = rustix::process::Pid::from_raw(own.cast_signed()).unwrap();
            let refused = [
                ("another program", std::process::Command::new("/bin/true").status().err().map(|e| e.kind())),
                (
                    "a signal",
                    rustix::process::kill_process(pid, rustix::process::Signal::CONT).err().map(kind),
                ),
                ("another user", rustix::thread::set_thread_uid(rustix::process::getuid()).err().map(kind)),
                ("groups", rustix::thread::set_thread_groups(&[]).err().map(kind)),
                (
                    "a socket of crypto",
                    socket(family(libc::AF_ALG), SocketType::SEQPACKET, None).err().map(kind),
                ),
                ("a socket of VMs", socket(family(libc::AF_VSOCK), SocketType::STREAM, None).err().map(kind)),
            ];
            let works = [
                socket(AddressFamily::INET, SocketType::STREAM, None).is_ok(),
                socket(AddressFamily::UNIX, SocketType::DGRAM, None).is_ok(),
                std::thread::spawn(|| 7).join().ok() == Some(7),
                std::fs::read_to_string("/proc/self/status").is_ok(),
            ];
            (refused, works)
        });
        let (refused, works) = thread.join().unwrap();
        for (what, kind) in refused {
            assert_eq!(kind, Some(ErrorKind::PermissionDenied), "{what}");
        }
        assert_eq!(works, [true; 4]);
    }

    fn family(number: i32) -> AddressFamily {
        AddressFamily::from_raw(u16::try_from(number).unwrap())
    }

    fn kind(error: Errno) -> ErrorKind {
        std::io::Error::from(error).kind()
    }
}
