// SPDX-License-Identifier: Apache-2.0
//! The network: `a0` of the clients and `b0` of the receivers, with the program under test between `a1` and
//! `b1`.
//!
//! The program lives in the network namespace of the process, which was made for it (`unshare -n`); receivers
//! and clients each live in the namespace of a thread: with the receivers' addresses in the program's
//! namespace, the kernel would accept the frames that arrive at `a1` itself. None of the three namespaces has
//! a name on the host, so nothing can be left over. The hosts of the dirty traffic exist in the generator
//! only: the kernel answers nothing for them.

use std::fmt;
use std::process::Command;
use std::sync::mpsc;

/// The receivers' addresses.
pub const SERVER: [&str; 2] = ["10.66.0.2", "fd66::2"];
/// The addresses of the host with an unmodified stack.
pub const HONEST: [&str; 2] = ["10.66.0.1", "fd66::1"];
/// The networks of hosts that hold conversations, over the stack of the clients' side.
pub const TALKERS: [&str; 2] = ["10.69.0.0/16", "fd69::/64"];
/// Packets of hosts beyond the hop with a lower hop limit than this do not reach the receivers.
pub const HOPS: u8 = 12;

/// An error that the user can act on.
#[derive(Debug)]
pub struct Problem(pub String);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Creates a [`Problem`] with this text.
pub fn problem(text: impl Into<String>) -> Problem {
    Problem(text.into())
}

/// Runs a command that must succeed.
///
/// # Errors
/// If the command fails, with its output.
pub fn run(command: &str) -> Result<(), Problem> {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap_or_default())
        .args(words)
        .output()
        .map_err(|error| problem(format!("{command}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(problem(format!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

fn sysctl(name: &str, value: &str) -> Result<(), Problem> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    std::fs::write(&path, value).map_err(|error| problem(format!("{path}: {error}")))
}

/// Creates both links, with the program's ends in this namespace. `level` prepares them for a level below the
/// program: the far ends poll and accept redirected frames.
///
/// # Errors
/// If a command fails.
pub fn middle(level: bool) -> Result<(), Problem> {
    run("ip link set dev lo up")?;
    run("ip link add a0 address 02:00:00:00:00:01 type veth peer name a1")?;
    run("ip link add b0 address 02:00:00:00:00:02 type veth peer name b1")?;
    for end in ["a1", "b1"] {
        // Suppresses the kernel's own frames.
        sysctl(&format!("net.ipv6.conf.{end}.disable_ipv6"), "1")?;
    }
    for end in ["a0", "a1", "b1", "b0"] {
        run(&format!("ethtool -K {end} rx off tx off sg off tso off gso off gro off"))?;
    }
    if level {
        for (end, more) in [("a0", "gro on"), ("b0", "gro on"), ("a1", "rxvlan off"), ("b1", "rxvlan off")] {
            run(&format!("ethtool -K {end} {more}"))?;
        }
    }
    for end in ["a1", "b1"] {
        run(&format!("ip link set dev {end} arp off multicast off up"))?;
    }
    Ok(())
}

/// Moves the calling thread, and the threads and programs that it starts, into a network namespace of its own
/// with `device`. In between it calls `give` with the thread's number, which moves the device.
fn side(
    device: &str,
    addresses: [&str; 2],
    give: impl FnOnce(i32) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let thread = crate::sys::own_namespace().map_err(|error| problem(format!("unshare: {error}")))?;
    give(thread)?;
    run("ip link set dev lo up")?;
    sysctl("net.ipv6.conf.default.accept_dad", "0")?;
    sysctl(&format!("net.ipv6.conf.{device}.accept_dad"), "0")?;
    sysctl(&format!("net.ipv6.conf.{device}.router_solicitations"), "0")?;
    run(&format!("ip link set dev {device} arp off multicast off up"))?;
    run(&format!("ip address add {}/24 dev {device}", addresses[0]))?;
    run(&format!("ip address add {}/64 dev {device} nodad", addresses[1]))
}

/// Sets up the receivers' side for the calling thread (see `side`). Returns whether there is a hop before the
/// receivers (made with nftables).
///
/// # Errors
/// If the setup fails.
pub fn receivers_side(give: impl FnOnce(i32) -> Result<(), Problem>) -> Result<bool, Problem> {
    side("b0", SERVER, give)?;
    neighbours("b0", HONEST, "02:00:00:00:00:01")?;
    neighbours("b0", ["10.66.0.3", "fd66::3"], "02:00:00:00:00:03")?;
    for net in ["67", "68"] {
        run(&format!("ip route add 10.{net}.0.0/16 via 10.66.0.3 dev b0"))?;
        run(&format!("ip route add fd{net}::/64 via fd66::3 dev b0"))?;
    }
    for (net, via) in TALKERS.iter().zip(HONEST) {
        run(&format!("ip route add {net} via {via} dev b0"))?;
    }
    for (name, value) in [
        // Allows fragments of many hosts at once.
        ("net.ipv4.ipfrag_max_dist", "0"),
        ("net.ipv4.ipfrag_high_thresh", "268435456"),
        ("net.ipv6.ip6frag_high_thresh", "268435456"),
        ("net.ipv4.tcp_max_syn_backlog", "65536"),
        ("net.core.somaxconn", "65536"),
        // Every listener accepts data of a SYN without a cookie.
        ("net.ipv4.tcp_fastopen", "1539"),
        ("net.ipv4.tcp_synack_retries", "1"),
        ("net.ipv4.tcp_retries2", "3"),
        ("net.ipv4.tcp_orphan_retries", "1"),
    ] {
        sysctl(name, value)?;
    }
    Ok(hop().is_ok())
}

fn hop() -> Result<(), Problem> {
    run("nft add table netdev hop")?;
    run("nft add chain netdev hop in { type filter hook ingress device b0 priority 0 ; }")?;
    run(&format!("nft add rule netdev hop in ip saddr 10.68.0.0/16 ip ttl < {HOPS} drop"))?;
    run(&format!("nft add rule netdev hop in ip6 saddr fd68::/64 ip6 hoplimit < {HOPS} drop"))
}

fn neighbours(device: &str, addresses: [&str; 2], mac: &str) -> Result<(), Problem> {
    let add = |address: &str| {
        run(&format!("ip neighbour replace {address} lladdr {mac} dev {device} nud permanent"))
    };
    addresses.into_iter().try_for_each(add)
}

/// Sets up the clients' side for the calling thread (see `side`).
///
/// # Errors
/// If the setup fails.
pub fn clients_side(give: impl FnOnce(i32) -> Result<(), Problem>) -> Result<(), Problem> {
    side("a0", HONEST, give)?;
    // Sockets may have any address of these networks.
    sysctl("net.ipv6.ip_nonlocal_bind", "1")?;
    for net in TALKERS {
        run(&format!("ip route add local {net} dev lo"))?;
    }
    neighbours("a0", SERVER, "02:00:00:00:00:02")
}

/// Runs `begin` in a thread that gets a namespace of its own with `device`; returns its result.
///
/// # Errors
/// The thread's error, or that the thread has ended.
pub fn in_side<T: Send + 'static>(
    device: &str,
    begin: impl FnOnce(&mut dyn FnMut(i32) -> Result<(), Problem>, mpsc::Sender<Result<T, Problem>>)
    + Send
    + 'static,
) -> Result<T, Problem> {
    let (number, wanted) = mpsc::channel();
    let (moved, go) = mpsc::channel::<Result<(), Problem>>();
    let (told, done) = mpsc::channel();
    std::thread::spawn(move || {
        let mut give = |thread| {
            let _ = number.send(thread);
            go.recv().map_err(|_| problem("the other thread has ended"))?
        };
        begin(&mut give, told);
    });
    if let Ok(thread) = wanted.recv() {
        let _ = moved.send(run(&format!("ip link set dev {device} netns {thread}")));
    }
    done.recv().map_err(|_| problem(format!("the thread of {device} has ended")))?
}
