// SPDX-License-Identifier: Apache-2.0
//! The receiver harness: seeded dirty traffic through the live inline program to Linux receivers. What a
//! receiver has read, by its own record, must hold nothing that a drop rule forbids, and good traffic must
//! arrive.
//!
//! Packets by their fields, right and wrong ones, are made by `bartizan-testkit`.
//!
//! * [`client`], [`tcp`], [`rough`], [`forged`], [`icmp`]: a TCP client of our own, one that keeps to no
//!   rule, one that speaks for the server, too, one that brings bad news.
//! * [`server`]: a TCP server of our own, for strategies that a server plays towards a client that is Linux.
//! * [`kinds`]: the families of attacks; each case follows from the seed.
//! * [`strategy`]: evasions in the grammar of Geneva, published and random ones.
//! * [`honest`]: good traffic of an unmodified stack.
//! * [`receivers`]: UDP, TCP, nginx, OpenSSL, with their records; [`judge`] holds these against the rules.
//! * [`net`], [`program`], [`player`], [`run`]: namespaces, the program under test, the sending loop, a whole
//!   run.
//!
//! Not done: jumbo frames; tunnels that the kernel of the machine has no device for.

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
// One system call; the argument stands in the file.
#[allow(unsafe_code)]
mod sys;
pub mod tcp;
