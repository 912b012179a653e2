// SPDX-License-Identifier: Apache-2.0
//! SYN flood for benches: first segments of TCP connections from spoofed IPv4 and IPv6 sources in turn, at a
//! stated rate.
//!
//! `flood INTERFACE --to-mac MAC --to4 ADDRESS --to6 ADDRESS [--port 80] [--rate 50000] [--seconds 60]
//! [--seed 1]`. Sources, ports and sequence numbers come from the seed. Frames leave through a transmit ring
//! every 100 microseconds or so; frames made late by a pause of this process are sent at once, up to 10 ms of
//! them, and given up beyond that. Prints at the end how many were sent. For a test network of one's own:
//! sources are any global unicast addresses (IPv4) and documentation addresses (IPv6), and no host answers
//! for them.

use bartizan_ports::{InlineOptions, InlinePort, Port};
use bartizan_testkit::packet::{Ip, SYN, Segment, TCP};
use bartizan_testkit::random::Random;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// The most delay that is made up for in one burst; later frames are given up.
const LATE: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_micros(100);

struct Arguments {
    interface: String,
    mac: [u8; 6],
    to4: Ipv4Addr,
    to6: Ipv6Addr,
    port: u16,
    rate: u64,
    seconds: u64,
    seed: u64,
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let bytes: Option<Vec<u8>> = text.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect();
    bytes?.try_into().ok()
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments {
        interface: String::new(),
        mac: [0; 6],
        to4: Ipv4Addr::UNSPECIFIED,
        to6: Ipv6Addr::UNSPECIFIED,
        port: 80,
        rate: 50_000,
        seconds: 60,
        seed: 1,
    };
    let mut rest = std::env::args().skip(1);
    while let Some(argument) = rest.next() {
        if !argument.starts_with('-') {
            parsed.interface = argument;
            continue;
        }
        let value = rest.next().ok_or(format!("{argument} needs a value"))?;
        let wrong = || format!("{argument}: `{value}` is not understood");
        let number = || value.parse::<u64>().map_err(|_| wrong());
        match argument.as_str() {
            "--to-mac" => parsed.mac = mac(&value).ok_or_else(wrong)?,
            "--to4" => parsed.to4 = value.parse().map_err(|_| wrong())?,
            "--to6" => parsed.to6 = value.parse().map_err(|_| wrong())?,
            "--port" => parsed.port = value.parse().map_err(|_| wrong())?,
            "--rate" => parsed.rate = number()?.max(1),
            "--seconds" => parsed.seconds = number()?,
            "--seed" => parsed.seed = number()?,
            _ => return Err(format!("unknown option {argument}")),
        }
    }
    if parsed.interface.is_empty() || parsed.to4.is_unspecified() || parsed.to6.is_unspecified() {
        return Err("an interface, --to4 and --to6 are needed".to_owned());
    }
    Ok(parsed)
}

/// Global unicast, as far as kernels check: no private, loopback, link-local, multicast or reserved first
/// byte.
fn source4(random: &mut Random) -> [u8; 4] {
    loop {
        let [a, b, c, d, ..] = random.draw().to_le_bytes();
        if (11..224).contains(&a) && ![100, 127, 169, 172, 192, 198, 203].contains(&a) {
            return [a, b, c, d];
        }
    }
}

fn source6(random: &mut Random) -> [u8; 16] {
    let mut source = [0; 16];
    let (high, low) = source.split_at_mut(8);
    high.copy_from_slice(&random.draw().to_le_bytes());
    low.copy_from_slice(&random.draw().to_le_bytes());
    high[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    source
}

/// A SYN with the options of a Linux client except timestamps: MSS, SACK, window scale.
fn syn(from: [u8; 6], to: &Arguments, v6: bool, random: &mut Random) -> Vec<u8> {
    const OPTIONS: [u8; 12] = [2, 4, 5, 180, 1, 1, 4, 2, 1, 3, 3, 7];
    let words = random.draw().to_le_bytes();
    let port = u16::from_le_bytes([words[0], words[1]]) | 1024;
    let number = u32::from_be_bytes([words[4], words[5], words[6], words[7]]);
    let ends: (IpAddr, IpAddr) =
        if v6 { (source6(random).into(), to.to6.into()) } else { (source4(random).into(), to.to4.into()) };
    let id = u32::from(u16::from_le_bytes([words[2], words[3]]));
    let ip = Ip { mac: to.mac, from_mac: from, id, ..Ip::new(ends.0, ends.1, TCP) };
    let segment = Segment::new((port, to.port), (number, 0), SYN, &[]);
    let segment = Segment { window: 0xfaf0, raw_options: OPTIONS.to_vec(), ..segment };
    ip.frame(&segment.bytes(&ip), None)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    // It receives nothing: the smallest ring, which stays full.
    let options = InlineOptions { frames: 16, promiscuous: false, ..InlineOptions::default() };
    let mut port = InlinePort::open(&arguments.interface, &options)?;
    let mac = port.mac();
    let mut random = Random::new(arguments.seed);
    let (begin, length) = (Instant::now(), Duration::from_secs(arguments.seconds));
    let most = (arguments.rate as u128 * LATE.as_nanos() / 1_000_000_000).max(1) as u64;
    let (mut made, mut late) = (0_u64, 0_u64);
    loop {
        let passed = begin.elapsed();
        if passed >= length {
            break;
        }
        let due = (passed.as_nanos() * u128::from(arguments.rate) / 1_000_000_000) as u64;
        late += (due - made - late).saturating_sub(most);
        for number in made..due - late {
            // The port counts refused frames.
            let _ = port.transmit_frame(&syn(mac, arguments, number % 2 == 1, &mut random));
        }
        made = due - late;
        port.flush()?;
        std::thread::sleep(PAUSE);
    }
    let took = begin.elapsed().as_secs_f64();
    let stats = port.stats();
    let refused: u64 = stats.send_failures.iter().map(|(_, frames)| frames).sum();
    println!(
        "{} SYNs sent in {took:.1} s ({:.0} per second), {late} given up as late, {refused} refused by the device",
        stats.sent,
        stats.sent as f64 / took,
    );
    Ok(())
}

fn main() -> std::process::ExitCode {
    match arguments().map_err(Into::into).and_then(|arguments| run(&arguments)) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flood: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
