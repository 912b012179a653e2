// SPDX-License-Identifier: Apache-2.0
//! Generated flows for the bench of bypassed flows (`benches/bypass/run`): the traffic of "Scaling Suricata
//! Performance to 100 Gbps With Napatech SmartNICs" (2020) as far as that text describes it: 88 % TCP and 12
//! % UDP by bytes, a million flows, a stated share of the bytes in flows that a rule on ports bypasses. What
//! the text leaves open (15 packets a flow, sizes, what is said) is decided here.
//!
//! From the bottom to the top: `flows` (what a flow is), `talk` (what it says, packet for packet), `list`
//! (which flows there are), `frames` (a packet as a frame), `play` (many flows at once: who speaks next),
//! `sys` (packet sockets and bpf(2)), `count` (counters of classes in the kernel), `flood` (short frames of
//! many flows, made in the kernel), `pace` (an offered rate, in small bursts).
//!
//! Not done: retransmissions, IP and TCP options, fragments, tunnels; lost packets are not sent again, as
//! nobody answers.

mod code;
pub mod count;
pub mod flood;
pub mod flows;
pub mod frames;
pub mod list;
pub mod pace;
pub mod play;
#[allow(unsafe_code)]
pub mod sys;
pub mod talk;
