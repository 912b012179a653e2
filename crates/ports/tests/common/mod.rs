// SPDX-License-Identifier: Apache-2.0
//! A network namespace of its own for a test, and frames to send through it.
//!
//! The namespace belongs to the test's thread alone: it has no name, and it ends with the thread and its
//! sockets, however the test ends. So no state is left.
#![allow(dead_code)]

use std::ffi::{CStr, CString};
use std::fs;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

/// The longest time of one test: more than it takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(240);

#[allow(unsafe_code)]
fn enter_new_namespace() -> Result<(), String> {
    // SAFETY: no pointers; changes the network namespace of the calling thread only.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error().to_string())
    }
}

#[allow(unsafe_code)]
fn is_root() -> bool {
    // SAFETY: no pointers, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Gives this thread a bpf file system of its own, which ends with the thread and its children, with all pins
/// in it.
#[allow(unsafe_code)]
pub fn own_bpf_file_system() {
    let mount = |what: &CStr, at: &CStr, kind: &CStr, flags| {
        // SAFETY: three texts that end with a zero and live through the call, and no data.
        let done = unsafe { libc::mount(what.as_ptr(), at.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) };
        assert_eq!(done, 0, "{at:?}: {}", std::io::Error::last_os_error());
    };
    // SAFETY: no pointers; changes what the calling thread sees of file systems only.
    let done = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    mount(c"none", c"/", c"none", libc::MS_REC | libc::MS_PRIVATE);
    mount(c"bpf", c"/sys/fs/bpf", c"bpf", 0);
}

/// Removes a program whose attachment is pinned, as `bpftool link detach` does.
#[allow(unsafe_code)]
pub fn detach_pinned(path: &Path) {
    const OBJ_GET: libc::c_long = 7;
    const LINK_DETACH: libc::c_long = 34;
    let bpf = |command: libc::c_long, words: [u64; 16]| {
        // SAFETY: the kernel reads the words; the path that they may point to lives through the call.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, words.as_ptr(), size_of_val(&words)) };
        assert!(result >= 0, "{command}: {}", std::io::Error::last_os_error());
        result as i32
    };
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut words = [0; 16];
    words[0] = path.as_ptr() as u64;
    // SAFETY: the kernel has just made the descriptor, and nobody else holds it.
    let attachment = unsafe { OwnedFd::from_raw_fd(bpf(OBJ_GET, words)) };
    words[0] = attachment.as_raw_fd() as u64;
    bpf(LINK_DETACH, words);
}

/// Runs `test` in a thread with an empty network namespace. Prints a line and returns if that is impossible.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    in_namespace_for(LIMIT, test);
}

/// [`in_namespace`], for a test with a time limit of its own.
pub fn in_namespace_for(limit: Duration, test: impl FnOnce() + Send + 'static) {
    if !is_root() {
        eprintln!("needs root: not run (network namespaces and packet sockets)");
        return;
    }
    if !["/sbin/ip", "/usr/sbin/ip", "/bin/ip"].iter().any(|path| fs::metadata(path).is_ok()) {
        eprintln!("needs `ip`: not run (apt-get install iproute2)");
        return;
    }
    let (done, wait) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        if let Err(error) = enter_new_namespace() {
            eprintln!("needs network namespaces: not run ({error})");
        } else {
            // No router solicitations among the frames that are counted.
            for which in ["all", "default"] {
                let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1");
            }
            test();
        }
        let _ = done.send(());
    });
    match wait.recv_timeout(limit) {
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test took more than {limit:?}"),
    }
}

/// Makes the data of each send call be cut into datagrams of `size` bytes: by the device, if it can (udp(7)).
#[allow(unsafe_code)]
pub fn leave_to_device(socket: &UdpSocket, size: i32) {
    const UDP_SEGMENT: i32 = 103;
    // SAFETY: pointer and length describe `size`, which lives through the call; the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            UDP_SEGMENT,
            std::ptr::from_ref(&size).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// A thread of another process, stopped until this is dropped.
pub struct Still(libc::pid_t);

#[allow(unsafe_code)]
impl Still {
    /// Stops a thread of a child of this process, by the thread's name.
    pub fn hold(process: u32, name: &str) -> Self {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let mut numbers = tasks.filter_map(|task| task.unwrap().file_name().to_str()?.parse().ok());
        let named = |thread: &libc::pid_t| {
            std::fs::read_to_string(format!("/proc/{process}/task/{thread}/comm"))
                .is_ok_and(|comm| comm.trim() == name)
        };
        let thread = numbers.find(named).unwrap();
        let nothing = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the requests take no memory of this process; they are about a thread of a child.
        let done = unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, nothing, nothing) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: as above.
        let done = unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, thread, nothing, nothing) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        let mut status = 0;
        // SAFETY: the pointer is to `status`, which lives through the call.
        let waited = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
        assert_eq!(waited, thread, "{}", std::io::Error::last_os_error());
        Still(thread)
    }
}

#[allow(unsafe_code)]
impl Drop for Still {
    fn drop(&mut self) {
        let nothing = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: no memory of this process.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, nothing, nothing) };
    }
}

/// Runs `ip ARGUMENTS`, which must succeed.
pub fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().expect("ip can be run");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A veth pair with an MTU, up, with the kernel's default offloads.
pub fn veth(a: &str, b: &str, mtu: u32) {
    veth_down(a, b, mtu);
    up([a, b]);
}

/// A veth pair with an MTU that has to be prepared before use.
pub fn veth_down(a: &str, b: &str, mtu: u32) {
    ip(&format!("link add {a} mtu {mtu} type veth peer name {b} mtu {mtu}"));
}

/// Sets the ends of a pair up.
pub fn up(ends: [&str; 2]) {
    for end in ends {
        ip(&format!("link set dev {end} arp off up"));
    }
}

/// A frame of `length` bytes: MAC addresses, an experimental EtherType, a number, a pattern.
pub fn frame(number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    frame.extend_from_slice(&number.to_be_bytes());
    frame.extend((frame.len()..length).map(|at| (at as u32 ^ number) as u8));
    frame
}

/// A frame of `length` bytes with VLAN tags (protocol, tag control) before its EtherType.
pub fn tagged_frame(number: u32, length: usize, tags: &[(u16, u16)]) -> Vec<u8> {
    let plain = frame(number, length - 4 * tags.len());
    let mut tagged = plain[..12].to_vec();
    for (protocol, control) in tags {
        tagged.extend_from_slice(&protocol.to_be_bytes());
        tagged.extend_from_slice(&control.to_be_bytes());
    }
    tagged.extend_from_slice(&plain[12..]);
    tagged
}
