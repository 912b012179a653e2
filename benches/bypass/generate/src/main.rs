// SPDX-License-Identifier: Apache-2.0
//! `generate`: plays generated flows into both ends of a pair of interfaces at an offered rate, and counts
//! arriving frames by class. Prints one line of JSON. For isolated test networks.

use bartizan_generate::count::{COUNTERS, Counter};
use bartizan_generate::flows::{CLASSES, LARGEST, SMALLEST};
use bartizan_generate::frames::Maker;
use bartizan_generate::list::Plan;
use bartizan_generate::pace::{Offered, Pair};
use bartizan_generate::play::{Count, Player};
use clap::Parser;
use serde_json::{Map, Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Plays flows into a pair of interfaces and counts what arrives at both.
#[derive(Parser)]
#[command(name = "generate")]
struct Args {
    /// Interface on the clients' side.
    clients: String,
    /// Interface on the servers' side.
    servers: String,
    /// Frames per second.
    #[arg(long, default_value_t = 50_000)]
    rate: u64,
    /// Duration in seconds.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Percent of the bytes in flows that a rule on ports bypasses: TCP's to port 8443, and beyond 88 % UDP's
    /// to port 9001.
    #[arg(long, default_value_t = 70.0)]
    bypassable: f64,
    /// Bytes of full frames, without the frame check sequence; several, each with its weight among flows:
    /// `64:7,594:4,1500:1`.
    #[arg(long, default_value = "594", value_delimiter = ',', value_parser = size)]
    sizes: Vec<(u16, u32)>,
    /// Percent of the flows that speak IPv6.
    #[arg(long, default_value_t = 25.0)]
    ipv6: f64,
    /// Concurrent flows.
    #[arg(long, default_value_t = 8192)]
    concurrent: usize,
    /// Flows in the list.
    #[arg(long, default_value_t = 1_000_000)]
    flows: usize,
    /// Number of the first flow to play; set it past the flows of an earlier run.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Seed of the list.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Parses `594` or `594:4`.
fn size(text: &str) -> Result<(u16, u32), String> {
    let (size, weight) = text.split_once(':').unwrap_or((text, "1"));
    let size: u16 = size.parse().map_err(|_| format!("`{size}` is no number of bytes"))?;
    let weight: u32 = weight.parse().map_err(|_| format!("`{weight}` is no weight"))?;
    if !(SMALLEST.0..=LARGEST).contains(&size) || weight == 0 {
        return Err(format!("sizes are {} to {LARGEST} bytes, weights 1 and more", SMALLEST.0));
    }
    Ok((size, weight))
}

fn check(args: &Args) -> Result<(), String> {
    for (name, value) in [("--bypassable", args.bypassable), ("--ipv6", args.ipv6)] {
        if !(0.0..=100.0).contains(&value) {
            return Err(format!("{name} {value}: a percentage is from 0 to 100"));
        }
    }
    if !(0.0..=3600.0).contains(&args.seconds) {
        return Err(format!("--seconds {}: from 0 to 3600", args.seconds));
    }
    if args.rate == 0 || args.concurrent == 0 || args.flows == 0 {
        return Err("--rate, --concurrent and --flows are at least 1".to_owned());
    }
    Ok(())
}

/// Waits until no frame has arrived for a while, two seconds at most. Returns the counts at the clients' side
/// and at the servers'.
fn settle(counters: &[Counter; 2]) -> std::io::Result<[[Count; COUNTERS]; 2]> {
    const QUIET: Duration = Duration::from_millis(150);
    let begin = Instant::now();
    let read = || Ok::<_, std::io::Error>([counters[0].read()?, counters[1].read()?]);
    let (mut last, mut since) = (read()?, Instant::now());
    while since.elapsed() < QUIET && begin.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(5));
        let now = read()?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(last)
}

fn run(args: &Args) -> Result<Value, String> {
    check(args)?;
    let plan = Plan {
        flows: args.flows,
        bypassable: args.bypassable / 100.0,
        v6: args.ipv6 / 100.0,
        sizes: args.sizes.clone(),
        seed: args.seed,
    };
    let sizes: Vec<u16> = args.sizes.iter().map(|(size, _)| *size).collect();
    let mut player = Player::new(plan.list(), Maker::new(&sizes), args.concurrent, args.first);
    let opened = |what: &str, interface: &str, error| {
        format!(
            "{what} {interface}: {error}; needs root and an interface that is up in this network namespace"
        )
    };
    let count = |interface: &str| Counter::new(interface).map_err(|e| opened("counting at", interface, e));
    let counters = [count(&args.clients)?, count(&args.servers)?];
    let mut pair = Pair::open(&args.clients, &args.servers)
        .map_err(|error| opened("sending into", &format!("{} and {}", args.clients, args.servers), error))?;
    let offered = pair
        .play(&mut player, args.rate, Duration::from_secs_f64(args.seconds))
        .map_err(|error| format!("sending into {} and {}: {error}", args.clients, args.servers))?;
    let arrived = settle(&counters).map_err(|error| format!("reading counters: {error}"))?;
    Ok(report(&player, &offered, &arrived))
}

fn report(player: &Player, offered: &Offered, arrived: &[[Count; COUNTERS]; 2]) -> Value {
    let mut classes = Map::new();
    for (index, class) in CLASSES.iter().enumerate() {
        let (sent, [at_clients, at_servers]) =
            (offered.sent[index], [0, 1].map(|side: usize| arrived[side][index]));
        let of_class = json!({
            "begun": player.begun[index],
            "ended": player.ended[index],
            "packets": sent.packets,
            "bytes": sent.bytes,
            "arrived": at_clients.packets + at_servers.packets,
            "arrived_bytes": at_clients.bytes + at_servers.bytes,
        });
        classes.insert(class.name.to_owned(), of_class);
    }
    let sum = |of: fn(&Count) -> u64| offered.sent.iter().map(of).sum::<u64>();
    let packets = sum(|count| count.packets);
    json!({
        "flows": player.begun.iter().sum::<u64>(),
        "next": player.next_number(),
        "packets": packets,
        "bytes": sum(|count| count.bytes),
        "paced": offered.paced,
        "from_clients": offered.from_clients,
        "seconds": offered.took.as_secs_f64(),
        "processor": offered.processor.as_secs_f64(),
        "late": offered.late,
        "refused": offered.refused,
        "others_arrived": arrived.iter().map(|side| side[CLASSES.len()].packets).sum::<u64>(),
        "classes": classes,
    })
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("generate: {error}");
            ExitCode::FAILURE
        }
    }
}
