// SPDX-License-Identifier: Apache-2.0
//! `measure-offload`: what entries of the XDP level cost, and frames of flows that have one. Each command
//! prints lines of JSON. Needs root. For `benches/offload/run`.

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
    /// Takes flows down, reads the counts of all, and takes them up again.
    Tables {
        /// Flows, of all workers together.
        flows: u32,
        /// Workers, each a thread with a flow manager and a share of the flows.
        #[arg(long, default_value_t = 1)]
        workers: u32,
    },
    /// Joins two interfaces by the XDP level, with entries for flows, and drives their manager until it is
    /// ended.
    Hold {
        /// Interface on the clients' side.
        clients: String,
        /// Interface on the servers' side.
        servers: String,
        /// Flows.
        flows: u32,
    },
    /// Sends frames of 60 bytes as fast as it can, and counts at another interface what arrives, which is
    /// dropped there by the driver.
    Send {
        /// Interface to send by.
        from: String,
        /// Where they arrive.
        to: String,
        /// Of so many flows, a power of two, in an order without pattern.
        flows: u32,
        /// So many of one flow behind each other, a power of two.
        #[arg(long, default_value_t = 1)]
        train: u32,
        /// By a packet socket, as programs send; else as a driver brings them, which costs a tenth.
        #[arg(long)]
        socket: bool,
        /// Seconds.
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
