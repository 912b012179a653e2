// SPDX-License-Identifier: Apache-2.0
//! Raw forwarder between two interfaces: the cost of an empty inline path. Prints the ports' counters at the
//! end.
//!
//! `forward A B [--spin MICROSECONDS] [--batch FRAMES] [--frames SLOTS] [--calls] [--fix-offloads] [--seconds
//! N]`; ends on SIGINT or SIGTERM. Not done: it inspects no packet.

use bartizan_ports::{Batch, InlineOptions, InlinePair, PairSide, PortStats, TransmitPath};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

#[allow(unsafe_code)]
fn stop_on_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which is allowed in a signal handler.
        unsafe { libc::signal(signal, stop as *const () as libc::sighandler_t) };
    }
}

struct Arguments {
    interfaces: Vec<String>,
    options: InlineOptions,
    spin: Duration,
    batch: usize,
    seconds: Option<u64>,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments {
        interfaces: Vec::new(),
        options: InlineOptions::default(),
        spin: Duration::from_micros(50),
        batch: 256,
        seconds: None,
    };
    let mut rest = std::env::args().skip(1);
    while let Some(argument) = rest.next() {
        let mut number = || -> Result<u64, String> {
            let value = rest.next().ok_or(format!("{argument} needs a number"))?;
            value.parse().map_err(|_| format!("{argument}: `{value}` is not a number"))
        };
        match argument.as_str() {
            "--spin" => parsed.spin = Duration::from_micros(number()?),
            "--batch" => parsed.batch = number()? as usize,
            "--frames" => parsed.options.frames = number()? as usize,
            "--seconds" => parsed.seconds = Some(number()?),
            "--calls" => parsed.options.transmit = TransmitPath::Calls,
            "--fix-offloads" => parsed.options.fix_offloads = true,
            name if !name.starts_with('-') => parsed.interfaces.push(argument),
            other => return Err(format!("unknown option {other}")),
        }
    }
    if parsed.interfaces.len() != 2 {
        return Err("name two interfaces".to_owned());
    }
    Ok(parsed)
}

fn print(name: &str, stats: &PortStats) {
    println!(
        "{name}: received {} ({} bytes), ring dropped {}, oversized {}, checksum pending {}, sent {}, send calls {}, sleeps {}",
        stats.received,
        stats.received_bytes,
        stats.ring_dropped,
        stats.oversized,
        stats.checksum_pending,
        stats.sent,
        stats.send_calls,
        stats.sleeps,
    );
    for (refusal, frames) in stats.send_failures.iter().filter(|(_, frames)| *frames > 0) {
        println!("{name}: not sent, {}: {frames}", refusal.name());
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let [a, b] = arguments.interfaces.as_slice() else { return Err("name two interfaces".into()) };
    let (mut pair, warnings) = InlinePair::open(a, b, &arguments.options, false)?;
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
    eprintln!("forwarding {a} <-> {b}");
    let mut batch = Batch::with_capacity(arguments.batch);
    let end = arguments.seconds.map(|s| Instant::now() + Duration::from_secs(s));
    while !STOP.load(Ordering::Relaxed) && end.is_none_or(|end| Instant::now() < end) {
        let mut seen = 0;
        for side in PairSide::BOTH {
            let (ingress, egress) = pair.direction(side);
            let frames = ingress.receive(&mut batch)?;
            if frames > 0 {
                batch.forward_all();
                egress.transmit(&mut batch);
                egress.flush()?;
                seen += frames;
            }
        }
        if seen == 0 {
            pair.wait(None, arguments.spin, Duration::from_millis(100))?;
        }
    }
    for side in PairSide::BOTH {
        let port = pair.port(side);
        let stats = port.stats();
        print(port.name(), &stats);
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    stop_on_signals();
    let result = arguments().map_err(Into::into).and_then(|arguments| run(&arguments));
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forward: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
