// SPDX-License-Identifier: Apache-2.0
//! `measure-offload`: measures the cost of entries at the XDP level, and of frames of offloaded flows. Each
//! command prints lines of JSON. Needs root. For `benches/offload/run`.

mod flows;
mod hold;
mod send;
mod tables;

use bartizan_generate::flood::Flows;
use clap::{Parser, Subcommand};
use flows::Failed;
use std::process::ExitCode;

/// Measures flows at the XDP level.
#[derive(Parser)]
#[command(name = "measure-offload")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Offloads flows, reads the counters of all, and takes them back.
    Tables {
        /// Number of flows of all workers together.
        flows: u32,
        /// Workers, each a thread with a flow manager and a share of the flows.
        #[arg(long, default_value_t = 1)]
        workers: u32,
    },
    /// Joins two interfaces by the XDP level, with entries for flows, and drives the flow manager until the
    /// process ends.
    Hold {
        /// Interface on the clients' side.
        clients: String,
        /// Interface on the servers' side.
        servers: String,
        /// Number of flows.
        flows: u32,
    },
    /// Sends frames of 60 bytes as fast as it can, and counts the frames that arrive at another interface,
    /// whose driver drops them.
    Send {
        /// Interface to send by.
        from: String,
        /// Interface where the frames arrive.
        to: String,
        /// Number of flows, a power of two; their frames come in an order without pattern.
        flows: u32,
        /// Consecutive frames of one flow, a power of two.
        #[arg(long, default_value_t = 1)]
        train: u32,
        /// Sends through a packet socket, as programs do; else as a driver delivers frames, at a tenth of the
        /// cost.
        #[arg(long)]
        socket: bool,
        /// Duration in seconds.
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
}

fn run(command: &Command) -> Result<(), Failed> {
    match command {
        Command::Tables { flows, workers } => tables::run(*flows, *workers),
        Command::Hold { clients, servers, flows } => hold::run([clients, servers], *flows),
        Command::Send { from, to, flows, train, socket, seconds } => {
            send::run([from, to], Flows { flows: *flows, train: *train }, *socket, *seconds)
        }
    }
}

fn main() -> ExitCode {
    match run(&Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("measure-offload: {error}");
            ExitCode::FAILURE
        }
    }
}
