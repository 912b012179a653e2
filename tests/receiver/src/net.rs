// SPDX-License-Identifier: Apache-2.0
//! The network: `a0` of the clients and `b0` of the receivers, with the program under test between `a1` and
//! `b1`.
//!
//! The program lives in the network namespace of the process, which was made for it (`unshare -n`); receivers
//! and clients in those of a thread each: were the receivers' addresses beside the program, the kernel would
//! take for them what comes in at `a1`. None of the three has a name on the host, so nothing can be left
//! behind. The hosts of the dirty traffic exist in the generator only: the kernel answers nothing for them.

use std::fmt;
use std::process::Command;
use std::sync::mpsc;

/// The receivers' addresses.
pub const SERVER: [&str; 2] = ["10.66.0.2", "fd66::2"];
/// The addresses of the host with an unmodified stack.
pub const HONEST: [&str; 2] = ["10.66.0.1", "fd66::1"];
/// Packets of hosts behind the hop that have fewer hops left than this do not reach the receivers.
pub const HOPS: u8 = 12;

/// Something that the person at the keyboard can act on.
#[derive(Debug)]
pub struct Problem(pub String);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One with this text.
pub fn problem(text: impl Into<String>) -> Problem {
    Problem(text.into())
}

/// Runs a command that must succeed.
///
/// # Errors
/// That it did not, with what it said.
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

/// Both links, with the program's ends in this namespace. `level`: ready for a level below the program, so
/// that the far ends poll and take what is redirected.
///
/// # Errors
/// What could not be set up.
pub fn middle(level: bool) -> Result<(), Problem> {
    run("ip link set dev lo up")?;
    run("ip link add a0 address 02:00:00:00:00:01 type veth peer name a1")?;
    run("ip link add b0 address 02:00:00:00:00:02 type veth peer name b1")?;
    for end in ["a1", "b1"] {
        // No frames of the kernel's own.
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
/// with `device`. `give` is called in between, with the thread's number: it moves the device.
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

/// The receivers' side, for the calling thread as `side` has it. Whether there is a hop before the receivers
/// (nftables makes it).
///
/// # Errors
/// What could not be set up.
pub fn receivers_side(give: impl FnOnce(i32) -> Result<(), Problem>) -> Result<bool, Problem> {
    side("b0", SERVER, give)?;
    neighbours("b0", HONEST, "02:00:00:00:00:01")?;
    neighbours("b0", ["10.66.0.3", "fd66::3"], "02:00:00:00:00:03")?;
    for net in ["67", "68"] {
        run(&format!("ip route add 10.{net}.0.0/16 via 10.66.0.3 dev b0"))?;
        run(&format!("ip route add fd{net}::/64 via fd66::3 dev b0"))?;
    }
    for (name, value) in [
        // Fragments of many hosts at once are nothing special here.
        ("net.ipv4.ipfrag_max_dist", "0"),
        ("net.ipv4.ipfrag_high_thresh", "268435456"),
        ("net.ipv6.ip6frag_high_thresh", "268435456"),
        ("net.ipv4.tcp_max_syn_backlog", "65536"),
        ("net.core.somaxconn", "65536"),
        // Data of a SYN is taken without a cookie, by every listener.
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

/// The clients' side, for the calling thread as `side` has it.
///
/// # Errors
/// What could not be set up.
pub fn clients_side(give: impl FnOnce(i32) -> Result<(), Problem>) -> Result<(), Problem> {
    side("a0", HONEST, give)?;
    neighbours("a0", SERVER, "02:00:00:00:00:02")
}

/// Runs something in a thread that gets a namespace of its own with `device`; gives what comes out of it.
///
/// # Errors
/// What the thread says, or that it has ended.
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
