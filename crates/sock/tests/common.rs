// SPDX-License-Identifier: Apache-2.0
//! An engine in a thread of the test, whose guests are programs with the library.

use bartizan_base::TenantId;
use bartizan_toe::engine::{Engine, EngineControl, GuestReport, GuestSpec};
use bartizan_toe::guest::GUEST_DESCRIPTOR;
use bartizan_toe::inspect::{PayloadInspector, PayloadVerdict, PayloadWindow, StreamInfo};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Blocks streams with this text, passes everything else.
struct Blocker(&'static [u8]);

impl PayloadInspector for Blocker {
    fn inspect(&mut self, _: &StreamInfo, window: PayloadWindow<'_>) -> PayloadVerdict {
        if window.bytes.windows(self.0.len()).any(|bytes| bytes == self.0) {
            return PayloadVerdict::Drop;
        }
        PayloadVerdict::Pass(usize::MAX)
    }
}

/// The text of the attack that every engine here blocks.
pub const ATTACK: &str = "AN-ATTACK-OF-THE-TEST";

/// A running engine in the network namespace of the thread that made it.
pub struct Host {
    control: EngineControl,
    thread: Option<JoinHandle<()>>,
}

/// A guest of a host.
pub struct Guest {
    descriptor: OwnedFd,
    number: usize,
}

impl Host {
    pub fn start() -> Host {
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let engine = Engine::new().unwrap();
            sender.send(engine.control()).unwrap();
            engine.run(&mut Blocker(ATTACK.as_bytes())).unwrap();
        });
        Host { control: receiver.recv().unwrap(), thread: Some(thread) }
    }

    /// A guest that uses the loopback addresses of the engine's namespace.
    pub fn guest(&self, number: u16, always_tcp: bool) -> Guest {
        let spec =
            GuestSpec { tenant: TenantId(number), shares_loopback: true, always_tcp, ..GuestSpec::default() };
        let descriptor = self.control.add_guest(spec).unwrap();
        // Kept open over exec, at a number that programs leave alone.
        let descriptor = rustix::io::fcntl_dupfd_cloexec(&descriptor, 800).unwrap();
        rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::empty()).unwrap();
        Guest { descriptor, number: number.into() }
    }

    pub fn report(&self, guest: &Guest) -> GuestReport {
        self.control.report().unwrap().guests[guest.number].clone()
    }

    /// Waits until the guest has no streams, bytes and processes any more.
    pub fn wait_until_empty(&self, guest: &Guest) -> GuestReport {
        let begin = Instant::now();
        loop {
            let report = self.report(guest);
            if report.streams == 0 && report.processes == 0 && report.bytes == 0 {
                return report;
            }
            assert!(begin.elapsed() < PATIENCE, "something is left of the guest: {report:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.control.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(matches!(ended, Some(Ok(()))), "the engine panicked");
        }
    }
}

impl Guest {
    /// A command of this guest.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library()).env(GUEST_DESCRIPTOR, self.descriptor.as_raw_fd().to_string());
        command
    }
}

/// The library as cargo built it beside this test program.
fn library() -> PathBuf {
    let folder = std::env::current_exe().unwrap();
    let library = folder.parent().unwrap().join("libbartizan_sock.so");
    assert!(library.exists(), "{}: cargo builds it with this test", library.display());
    library
}

/// The path of a file of `tests/`.
pub fn beside(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}
