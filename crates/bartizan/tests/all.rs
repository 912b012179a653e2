// SPDX-License-Identifier: Apache-2.0
//! All tests of the program in one program: each further program is linked with all code under test. A file
//! here is a module; `cargo xtask tidy` finds one that is not named. A test that has to be alone in its
//! process is a program of its own in `Cargo.toml`, with the reason.

// What they share.
mod command_socket;
mod common;
#[path = "../../dataplane/tests/inline_net/mod.rs"]
mod inline_net;
mod inline_pair;
mod level;
#[path = "../../ports/tests/common/mod.rs"]
mod namespace;
mod nftables_rows;
mod office;
mod planes;
mod protocols;
mod rest;
#[path = "common/sample.rs"]
mod sample;
#[path = "../../dataplane/tests/common/mod.rs"]
mod worker_bench;

mod app_memory;
mod bad_input;
mod ca;
mod classify;
mod content;
mod control;
mod control_level;
mod controlled;
mod controller;
mod ctl;
mod ctl_replay;
mod decoys;
mod early;
mod eve_events;
mod eve_options;
mod eve_suricata;
mod event_readers;
mod explain;
mod failing;
mod firewall;
mod flow_counts;
mod full_rate;
mod guest_names;
mod guests;
mod handshakes;
mod held_back;
mod held_open;
mod icmp_errors;
mod icmp_errors_live;
mod identifiers;
mod idle_hour;
mod inline;
mod inspect_policy;
mod left_behind;
mod live_eve;
mod log_lines;
mod lost_output;
mod moving_flows;
mod mtu;
mod multipath;
mod names;
mod nftables;
mod nmap;
mod offload;
mod offload_tunnels;
mod one_process;
mod operation;
mod overload;
mod pattern_cache;
mod policy_bypass;
mod protocol_flows;
mod protocol_open;
mod reasons;
mod redirect;
mod redirect_traffic;
mod reload_memory;
mod reports;
mod rights;
mod rule_effects;
mod rule_feeds;
mod rule_scope;
mod run_host;
mod run_links;
mod run_taps;
mod run_workers;
mod settings;
mod shown_packets;
mod signals;
mod staged_engine;
mod staged_live;
mod staged_swaps;
mod standing;
mod statistics;
mod steady;
mod streams_that_end_early;
mod suricata_cli;
mod tenant_vars;
mod tls_store;
mod trace;
mod trains;
mod windows;
