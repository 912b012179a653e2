// SPDX-License-Identifier: Apache-2.0
//! Readers of events that are slow, late or stop: over captures and at the end of a run no event is lost
//! that a reader takes, and lost events are counted exactly.

use crate::common;
use crate::namespace;

use bartizan_ports::{InlineOptions, InlinePort, Port as _};
use common::{Ended, Folder, PROGRAM, Running, capture, udp, until};
use namespace::{in_namespace, ip, veth};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Flows, each with an event: more bytes than an output and the system buffer.
const FLOWS: u16 = 6_000;

const OUTPUTS: &str = "%YAML 1.1\n---\noutputs:\n\
    - eve-log: {enabled: yes, filename: eve.json, types: [flow, stats]}\n\
    - eve-log: {enabled: yes, filetype: unix_stream, filename: SOCKET, types: [flow]}\n";

fn frames() -> Vec<Vec<u8>> {
    (0..FLOWS).map(|port| udp(port % 2 == 0, 10_000 + port, 4_000, b"hello")).collect()
}

fn settings(folder: &Folder) {
    let socket = folder.path("s.sock");
    folder.write("outputs.yaml", OUTPUTS.replace("SOCKET", socket.to_str().unwrap()));
}

/// A reader that takes so many bytes, and the rest once it is signalled to end.
struct Reader {
    end: Sender<()>,
    thread: JoinHandle<String>,
}

impl Reader {
    fn start(folder: &Folder, late: Duration, most: usize) -> Self {
        let listener = UnixListener::bind(folder.path("s.sock")).unwrap();
        let (end, told) = channel();
        let thread = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            std::thread::sleep(late);
            let (mut all, mut piece) = (Vec::new(), vec![0; 1 << 16]);
            loop {
                if all.len() >= most && told.recv().is_ok() {
                    stream.read_to_end(&mut all).unwrap();
                }
                match stream.read(&mut piece).unwrap() {
                    0 => return String::from_utf8_lossy(&all).into_owned(),
                    some => all.extend_from_slice(&piece[..some]),
                }
            }
        });
        Reader { end, thread }
    }

    /// The whole lines that it received.
    fn lines(self) -> u64 {
        let _ = self.end.send(());
        let text = self.thread.join().unwrap();
        text.matches('\n').count() as u64
    }
}

fn counter(folder: &Folder, name: &str) -> u64 {
    let stats: serde_json::Value = serde_json::from_str(&folder.read("o/stats.json")).unwrap();
    stats[name].as_u64().unwrap_or_else(|| panic!("no counter {name}"))
}

/// Checks that the run lost so many events at its socket, and reports so wherever it reports events.
fn assert_lost(folder: &Folder, ended: &Ended, lost: u64) {
    assert_eq!(counter(folder, "events.lost"), lost, "{ended:?}");
    assert_eq!(ended.code, Some(if lost == 0 { 0 } else { 3 }), "{ended:?}");
    let told = ended.stdout.contains(&format!("s.sock, {lost} lost"));
    assert_eq!(told, lost > 0, "{ended:?}");
    assert_eq!(ended.stderr.contains("events are lost"), lost > 0, "{ended:?}");
}

#[test]
fn over_captures_a_late_reader_gets_every_event() {
    for workers in ["1", "2"] {
        let folder = Folder::new();
        settings(&folder);
        folder.write("a.pcap", capture(&frames()));
        let reader = Reader::start(&folder, Duration::from_millis(1_000), usize::MAX);
        let line =
            ["inspect", "--threads", workers, "--suricata-config", "outputs.yaml", "--out", "o", "a.pcap"];
        let ended = common::run(&folder.0, &line);
        assert_lost(&folder, &ended, 0);
        assert_eq!(reader.lines(), u64::from(FLOWS));
    }
}

/// A run with so many workers on a tap that has seen all flows; the first port sends to it.
fn run(folder: &Folder, workers: &str) -> Running {
    settings(folder);
    ip("link set dev lo up");
    veth("a0", "a1", 1500);
    let line = ["run", "--cache", "none", "--control", "none", "--tap", "a1", "--workers", workers];
    let mut command = Command::new(PROGRAM);
    command.args(line).args([
        "--metrics",
        "127.0.0.1:9100",
        "--suricata-config",
        "outputs.yaml",
        "--out",
        "o",
    ]);
    let running = Running::start(command.current_dir(&folder.0));
    running.until("running on a1");
    let mut from =
        InlinePort::open("a0", &InlineOptions { frames: 1024, ..InlineOptions::default() }).unwrap();
    for batch in frames().chunks(200) {
        for frame in batch {
            from.transmit_frame(frame).unwrap();
        }
        from.flush().unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    until("all flows", || {
        common::value(&common::get("/metrics"), "bartizan_flows_total", &["proto=\"udp\""])
            == u64::from(FLOWS)
    });
    running
}

/// The lines of flows in the file, which loses none.
fn in_file(folder: &Path) -> u64 {
    let text = std::fs::read_to_string(folder.join("o/eve.json")).unwrap();
    text.lines().filter(|line| line.contains(r#""event_type":"flow""#)).count() as u64
}

/// A tap's ring shows frames some time after they came: also those that came directly before the signal to
/// stop.
#[test]
fn frames_right_before_the_end_of_a_run_are_inspected() {
    in_namespace(|| {
        veth("a0", "a1", 1500);
        let mut from = InlinePort::open("a0", &InlineOptions::default()).unwrap();
        let frames: Vec<_> = frames().into_iter().take(100).collect();
        for workers in ["1", "2"] {
            for _ in 0..4 {
                let folder = Folder::new();
                let mut command = Command::new(PROGRAM);
                command.args(["run", "--cache", "none", "--control", "none", "--tap", "a1"]);
                command.args(["--workers", workers, "--out", "o"]);
                let running = Running::start(command.current_dir(&folder.0));
                running.until("running on a1");
                for frame in &frames {
                    from.transmit_frame(frame).unwrap();
                }
                from.flush().unwrap();
                // At once: a process that sends the signal takes longer than the kernel holds frames back.
                let pid = Pid::from_raw(running.id().try_into().unwrap()).unwrap();
                kill_process(pid, Signal::TERM).unwrap();
                let ended = running.wait();
                assert_eq!((ended.code, in_file(&folder.0)), (Some(0), frames.len() as u64), "{ended:?}");
            }
        }
    });
}

#[test]
fn the_end_of_a_run_waits_for_its_readers() {
    in_namespace(|| {
        let folder = Folder::new();
        let reader = Reader::start(&folder, Duration::ZERO, usize::MAX);
        let ended = run(&folder, "1").stop();
        assert_lost(&folder, &ended, 0);
        assert!(in_file(&folder.0) >= u64::from(FLOWS));
        assert_eq!(reader.lines(), in_file(&folder.0));
    });
}

#[test]
fn the_end_of_a_run_with_several_workers_waits_for_its_readers() {
    in_namespace(|| {
        let folder = Folder::new();
        // It begins to read when the end has begun.
        let reader = Reader::start(&folder, Duration::ZERO, 1);
        let running = run(&folder, "2");
        running.signal("INT");
        std::thread::sleep(Duration::from_millis(500));
        reader.end.send(()).unwrap();
        let ended = running.wait();
        assert_lost(&folder, &ended, 0);
        assert_eq!(reader.lines(), in_file(&folder.0));
    });
}

#[test]
fn the_end_of_a_run_gives_up_a_reader_that_stops() {
    in_namespace(|| {
        let folder = Folder::new();
        let reader = Reader::start(&folder, Duration::ZERO, 1);
        let running = run(&folder, "1");
        let begun = std::time::Instant::now();
        let ended = running.stop();
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
        let all = in_file(&folder.0);
        assert!(all >= u64::from(FLOWS));
        let got = reader.lines();
        assert!(got < all, "{got} of {all}");
        assert_lost(&folder, &ended, all - got);
        // The event of statistics at the end has it as well.
        let text = folder.read("o/eve.json");
        let stats = text.lines().rfind(|line| line.contains(r#""event_type":"stats""#)).unwrap();
        let stats: serde_json::Value = serde_json::from_str(stats).unwrap();
        assert_eq!(stats["bartizan"]["stats"]["events"]["lost"], all - got, "{stats}");
    });
}
