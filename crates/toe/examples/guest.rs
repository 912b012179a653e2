// SPDX-License-Identifier: Apache-2.0
//! Runs a program as a guest of an engine in this process, whose sockets are in this namespace:
//!
//!     guest --library target/debug/libbartizan_sock.so [--block TEXT] [--functions N] [--tcp] -- COMMAND ...
//!
//! `--tcp` has connections to the guest itself go by TCP. `--block` blocks streams with this text;
//! `--functions` is the number of functions that read all bytes.
//! Afterwards the guest's counters are printed on standard error, and the exit code is the program's.

use bartizan_toe::engine::{Engine, GuestSpec};
use bartizan_toe::guest::GUEST_DESCRIPTOR;
use bartizan_toe::inspect::{PayloadInspector, PayloadVerdict, PayloadWindow, StreamInfo};
use std::os::fd::AsRawFd;
use std::process::{Command, ExitCode};

/// Reads all bytes, as often as there are functions, and looks for a text.
struct Functions {
    count: usize,
    blocked: Vec<u8>,
    sum: u64,
}

impl PayloadInspector for Functions {
    fn inspect(&mut self, _: &StreamInfo, window: PayloadWindow<'_>) -> PayloadVerdict {
        let fresh = window.bytes.get(window.fresh..).unwrap_or_default();
        for _ in 0..self.count {
            self.sum = fresh.iter().fold(self.sum, |sum, byte| sum.rotate_left(5) ^ u64::from(*byte));
        }
        let length = self.blocked.len();
        if length > 0 && window.bytes.windows(length).any(|bytes| bytes == self.blocked) {
            return PayloadVerdict::Drop;
        }
        PayloadVerdict::Pass(usize::MAX)
    }
}

#[derive(Default)]
struct Arguments {
    library: String,
    blocked: String,
    functions: usize,
    by_tcp: bool,
    command: Vec<String>,
}

fn arguments() -> Option<Arguments> {
    let mut given = std::env::args().skip(1);
    let mut wanted = Arguments::default();
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--library" => wanted.library = given.next()?,
            "--block" => wanted.blocked = given.next()?,
            "--tcp" => wanted.by_tcp = true,
            "--functions" => wanted.functions = given.next()?.parse().ok()?,
            "--" => wanted.command = given.by_ref().collect(),
            _ => return None,
        }
    }
    (!wanted.library.is_empty() && !wanted.command.is_empty()).then_some(wanted)
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("guest --library FILE [--block TEXT] [--functions N] [--tcp] -- COMMAND ...");
        return ExitCode::from(2);
    };
    let (sender, receiver) = std::sync::mpsc::channel();
    let (count, blocked) = (arguments.functions, arguments.blocked.into_bytes());
    let thread = std::thread::spawn(move || {
        let engine = Engine::new().expect("an engine");
        sender.send(engine.control()).expect("the main thread waits");
        engine.run(&mut Functions { count, blocked, sum: 0 })
    });
    let control = receiver.recv().expect("an engine");
    let spec = GuestSpec { shares_loopback: true, always_tcp: arguments.by_tcp, ..GuestSpec::default() };
    let guest = control.add_guest(spec).expect("a guest");
    // The guest's descriptor stays open over exec, at a number that programs leave alone.
    let number = rustix::io::fcntl_dupfd_cloexec(&guest, 800).expect("a descriptor");
    rustix::io::fcntl_setfd(&number, rustix::io::FdFlags::empty()).expect("a flag");
    let (program, rest) = arguments.command.split_first().expect("a command");
    let mut command = Command::new(program);
    command.args(rest).env("LD_PRELOAD", arguments.library);
    command.env(GUEST_DESCRIPTOR, number.as_raw_fd().to_string());
    let status = command.status();
    drop(number);
    let report = control.report().map(|report| report.guests);
    eprintln!("{report:?}");
    control.stop();
    let ended = thread.join();
    match (status, ended) {
        (Ok(status), Ok(Ok(()))) => ExitCode::from(u8::try_from(status.code().unwrap_or(128)).unwrap_or(1)),
        (status, ended) => {
            eprintln!("{program}: {status:?}, engine: {ended:?}");
            ExitCode::from(3)
        }
    }
}
