// SPDX-License-Identifier: Apache-2.0
//! Generated flows for the bench of bypassed flows (`benches/bypass/run`): the traffic of "Scaling Suricata
//! Performance to 100 Gbps With Napatech SmartNICs" (2020) as far as that text describes it: 88 % TCP and 12
//! % UDP by bytes, a million flows, a stated share of the bytes in flows that a rule on ports bypasses. The
//! text leaves packets per flow (15 here), sizes and content open; this crate chooses them.
//!
//! Modules from the bottom to the top: `flows` (description of a flow), `talk` (its packets), `list` (the
//! list of flows), `frames` (a packet as a frame), `play` (many concurrent flows in turn), `sys` (packet
//! sockets and bpf(2)), `count` (counters of classes in the kernel), `flood` (short frames of many flows,
//! made in the kernel), `pace` (an offered rate, in small bursts).
//!
//! Not supported: retransmissions, IP and TCP options, fragments, tunnels; lost packets are not sent again,
//! as neither endpoint is a real stack.

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
