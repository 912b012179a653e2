// SPDX-License-Identifier: Apache-2.0
//! The receiver harness: seeded dirty traffic through the live inline program to Linux receivers. A
//! receiver's own record of the bytes it read must contain nothing that a drop rule forbids, and good traffic
//! must arrive.
//!
//! `bartizan-testkit` builds the packets from right and wrong fields.
//!
//! * [`client`], [`tcp`], [`rough`], [`forged`], [`icmp`]: the harness's TCP client, with variants that break
//!   all rules, forge the server's packets, and send ICMP errors.
//! * [`server`]: the harness's TCP server, for strategies that a server plays towards a Linux client.
//! * [`kinds`]: the families of attacks; each case is a function of the seed.
//! * [`strategy`]: evasions in the grammar of Geneva, published and random ones.
//! * [`talk`]: conversations with real servers over sockets of the kernel.
//! * [`honest`]: good traffic of an unmodified stack.
//! * [`receivers`]: UDP, TCP, nginx, OpenSSL, a mail server and others, with their records; [`judge`]
//!   compares these with the rules.
//! * [`net`], [`program`], [`player`], [`run`]: namespaces, the program under test, the sending loop, a whole
//!   run.
//!
//! Not supported: jumbo frames; tunnels for which the machine's kernel has no device.

pub mod client;
pub mod forged;
pub mod honest;
pub mod icmp;
pub mod judge;
pub mod kinds;
pub mod net;
pub mod player;
pub mod program;
pub mod receivers;
pub mod rough;
pub mod run;
pub mod server;
pub mod strategy;
// One system call; the file contains the safety argument.
#[allow(unsafe_code)]
mod sys;
pub mod talk;
pub mod tcp;
