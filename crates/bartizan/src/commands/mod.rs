// SPDX-License-Identifier: Apache-2.0
//! The commands, one file each.

pub mod ca;
pub mod check;
pub mod classify;
pub mod completions;
pub mod controller;
pub mod ctl;
pub mod explain;
pub mod guest;
pub mod inspect;
pub mod man;
pub mod rules;
pub mod run;
pub mod suricata_cli;
