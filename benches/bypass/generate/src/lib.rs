// SPDX-License-Identifier: Apache-2.0
//! Generated flows for the bench of bypassed flows (`benches/bypass/run`): the traffic of "Scaling Suricata Performance to 100 Gbps With
//! Napatech SmartNICs" (2020) as far as that text describes it: 88 % TCP and 12 % UDP by bytes, a million flows, a stated share
//! of the bytes in flows that a rule on ports bypasses. What the text leaves open (15 packets a flow, sizes, what is said) is
//! decided here.
//!
//! 1. `flows`: the list of flows, which follows from a seed: class, length, frame size, IP version.
//! 2. `talk`: what a flow says: its packets from the handshake to the end.
//! 3. `frames`: a packet as a frame, with right checksums, without a look at its payload.
//! 4. `play`: so many flows at once; who speaks next.
//! 5. `sys`: packet sockets and bpf(2).
//! 6. `count`: counters of classes in the kernel.
//! 7. `pace`: an offered rate in small bursts.
//!
//! Not done: retransmissions, IP and TCP options, fragments, tunnels; lost packets are not sent again, as nobody answers.

pub mod count;
pub mod flows;
pub mod frames;
pub mod pace;
pub mod play;
#[allow(unsafe_code)]
pub mod sys;
pub mod talk;
