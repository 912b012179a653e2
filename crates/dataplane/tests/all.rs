// SPDX-License-Identifier: Apache-2.0
//! All tests of the data plane in one program, since every further program is linked with all tested crates.
//! A file here is a module; `cargo xtask tidy` finds files that are not named. A test that needs a process of
//! its own is a program of its own in `Cargo.toml`, with the reason.

// What they share.
mod common;
mod inline_net;
mod xdp_program;

mod bytes;
mod captures;
mod counters;
mod cut;
mod drivers;
mod expected;
mod flood;
mod fragments;
mod fragments_linux;
mod frames;
mod handover;
mod level;
#[path = "level_attacks/main.rs"]
mod level_attacks;
mod lifecycle;
mod lifecycle_live;
mod linux_receiver;
mod moving;
mod moving_live;
mod records;
mod shedding;
mod shedding_live;
mod shedding_loop;
mod sides;
mod sources;
mod tended;
mod trains;
mod unreadable;
mod windows;
mod xdp_keys;
mod xdp_tunnels;
