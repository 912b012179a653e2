// SPDX-License-Identifier: Apache-2.0
//! Sinks with real files, full disks, and readers that come and go.

use super::buffered::Medium;
use super::lines::{BUFFER_BYTES, seconds_of};
use super::*;
use crate::config::FileDestination;
use bartizan_testkit::pipe::make_pipe;
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::sync::atomic::{AtomicU64, Ordering};

const EVENT: &[u8] = br#"{"timestamp":"2018-10-10T09:24:31.516380+0000","event_type":"flow"}"#;

/// A folder of its own for each test, removed afterwards.
pub(super) struct SinkTestFolder(pub(super) PathBuf);

impl SinkTestFolder {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bartizan-events-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        SinkTestFolder(path)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }

    fn open(&self, destination: FileDestination) -> Sink {
        Sink::open(&Destination::File(destination), &self.0).unwrap()
    }
}

impl Drop for SinkTestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn event(number: usize) -> Vec<u8> {
    format!(r#"{{"timestamp":"2018-10-10T09:24:31.{number:06}+0000","event_type":"flow"}}"#).into_bytes()
}

#[test]
fn a_file_is_appended_to_or_begun_anew() {
    let folder = SinkTestFolder::new("append");
    for (append, lines) in [(true, 1), (true, 2), (false, 1)] {
        let mut sink = folder.open(FileDestination { append, ..FileDestination::new("eve.json") });
        sink.write_event(EVENT);
        assert_eq!(sink.counters().written, 0);
        let (counters, problem) = sink.close();
        assert_eq!((counters.written, counters.lost, problem), (1, 0, vec![]));
        assert_eq!(folder.text("eve.json").lines().count(), lines);
    }
}

#[test]
fn many_events_arrive_whole_and_in_order() {
    let folder = SinkTestFolder::new("many");
    let mut sink = folder.open(FileDestination::new("eve.json"));
    for number in 0..5_000 {
        sink.write_event(&event(number));
    }
    let huge = vec![b'x'; 3 * BUFFER_BYTES];
    sink.write_event(&huge);
    let (counters, _) = sink.close();
    assert_eq!(counters.written, 5_001);
    let text = folder.text("eve.json");
    assert_eq!(counters.bytes, text.len() as u64);
    for (number, line) in text.lines().take(5_000).enumerate() {
        assert_eq!(line.as_bytes(), event(number));
    }
    assert_eq!(text.lines().last().unwrap().len(), huge.len());
}

#[test]
fn rotation_by_size_keeps_so_many_files() {
    let folder = SinkTestFolder::new("size");
    let destination =
        FileDestination { rotate_size: Some(150), rotate_keep: 2, ..FileDestination::new("eve.json") };
    let mut sink = folder.open(destination);
    for number in 0..10 {
        sink.write_event(&event(number));
        sink.flush();
    }
    let (counters, problem) = sink.close();
    assert_eq!((counters.written, counters.rotations, problem), (10, 4, vec![]));
    assert!(folder.text("eve.json").contains(".000009+0000"));
    assert!(folder.text("eve.json.1").starts_with(r#"{"timestamp":"2018-10-10T09:24:31.000006"#));
    assert_eq!(folder.text("eve.json.2").lines().count(), 2);
    assert!(!folder.0.join("eve.json.3").exists());
}

#[test]
fn rotation_by_the_time_of_events() {
    let folder = SinkTestFolder::new("time");
    let destination =
        FileDestination { rotate_every: Some(60), rotate_keep: u32::MAX, ..FileDestination::new("eve.json") };
    let mut sink = folder.open(destination);
    for (minute, second) in [(0, 5), (0, 59), (1, 4), (1, 5), (9, 0), (9, 30)] {
        let time = format!("2018-10-10T09:{minute:02}:{second:02}.000000+0000");
        sink.write_event(format!(r#"{{"timestamp":"{time}","event_type":"flow"}}"#).as_bytes());
        sink.flush();
    }
    let (counters, problem) = sink.close();
    assert_eq!((counters.written, counters.rotations, problem), (6, 2, vec![]));
    let lines = |name: &str| folder.text(name).lines().count();
    assert_eq!((lines("eve.json.2"), lines("eve.json.1"), lines("eve.json")), (3, 1, 2));
}

#[test]
fn times_of_events_are_read() {
    assert_eq!(seconds_of("1970-01-01T00:00:00.000000+0000"), Some(0));
    assert_eq!(seconds_of("2018-10-10T09:24:31.516380+0000"), Some(1_539_163_471));
    assert_eq!(seconds_of("2018-10-10T11:24:31.516380+0200"), Some(1_539_163_471));
    assert_eq!(seconds_of("2024-02-29T23:59:59.999999-0130"), Some(1_709_256_599));
    for text in
        ["", "now", "2018-10-10", "2018-10-10T09:24:3x.516380+0000", "\u{e9}018-10-10T09:24:31.5+0000"]
    {
        assert_eq!(seconds_of(text), None, "{text}");
    }
}

#[test]
fn others_see_what_an_output_does_and_its_problem_once() {
    let folder = SinkTestFolder::new("watch");
    let mut sink = folder.open(FileDestination::new("/dev/full"));
    let watch = sink.watch();
    for number in 0..3 {
        sink.write_event(&event(number));
        sink.flush();
    }
    assert_eq!((watch.written(), watch.lost()), (0, 3));
    let problem = watch.take_problem().expect("a problem").to_string();
    assert!(problem.contains("/dev/full") && problem.contains("free space"), "{problem}");
    assert_eq!((watch.take_problem(), sink.take_problem()), (None, None));
}

#[test]
fn rotation_on_request_and_by_another_program() {
    let folder = SinkTestFolder::new("request");
    let mut sink = folder.open(FileDestination::new("eve.json"));
    sink.write_event(&event(1));
    sink.rotate();
    sink.write_event(&event(2));
    sink.flush();
    std::fs::rename(folder.0.join("eve.json"), folder.0.join("moved")).unwrap();
    sink.write_event(&event(3));
    sink.reopen();
    sink.write_event(&event(4));
    assert_eq!(sink.close().0.written, 4);
    assert!(folder.text("eve.json.1").contains(".000001"));
    assert_eq!(folder.text("moved").lines().count(), 2);
    assert!(folder.text("eve.json").contains(".000004"));
}

#[test]
fn others_ask_for_a_file_to_be_opened_again() {
    let folder = SinkTestFolder::new("asked");
    let mut sink = folder.open(FileDestination::new("eve.json"));
    let watch = sink.watch();
    sink.write_event(&event(1));
    std::fs::rename(folder.0.join("eve.json"), folder.0.join("moved")).unwrap();
    watch.request_reopen();
    // With the next event, which goes into the new file, or when the writer is idle.
    sink.write_event(&event(2));
    sink.flush();
    assert_eq!((folder.text("moved").lines().count(), folder.text("eve.json").lines().count()), (1, 1));
    std::fs::remove_file(folder.0.join("eve.json")).unwrap();
    watch.request_reopen();
    sink.flush();
    assert_eq!(folder.text("eve.json"), "");
    assert!(folder.0.join("eve.json").exists() && sink.close().0.written == 2);
}

#[test]
fn a_file_that_another_program_has_cut_is_as_long_as_it_is() {
    let folder = SinkTestFolder::new("cut");
    let size = event(0).len() as u64 + 1;
    let mut sink =
        folder.open(FileDestination { rotate_size: Some(3 * size), ..FileDestination::new("eve.json") });
    for number in 0..6 {
        sink.write_event(&event(number));
        sink.flush();
        if number == 2 {
            std::fs::OpenOptions::new()
                .write(true)
                .open(folder.0.join("eve.json"))
                .unwrap()
                .set_len(0)
                .unwrap();
        }
    }
    assert_eq!(folder.text("eve.json").lines().count(), 3);
    assert!(!folder.0.join("eve.json.1").exists());
    // Bytes that are removed from the file are not replaced by those that another program cut.
    let mut medium = FileMedium::open(FileDestination::new("half"), &folder.0, || 0).unwrap();
    medium.write_some(b"0123456789").unwrap();
    std::fs::OpenOptions::new().write(true).open(folder.0.join("half")).unwrap().set_len(0).unwrap();
    medium.write_some(b"abcd").unwrap();
    medium.take_back(3).unwrap();
    assert_eq!(folder.text("half"), "a");
}

#[test]
fn a_file_that_cannot_be_opened_says_what_to_do() {
    let folder = SinkTestFolder::new("refused");
    std::fs::create_dir(folder.0.join("dir")).unwrap();
    std::fs::write(folder.0.join("file"), "precious").unwrap();
    std::os::unix::fs::symlink("file", folder.0.join("link")).unwrap();
    let _socket = UnixListener::bind(folder.0.join("socket")).unwrap();
    make_pipe(folder.0.join("pipe"));
    let refused = |name: &str| {
        let opened = Sink::open(&Destination::File(FileDestination::new(name)), &folder.0);
        opened.unwrap_err().to_string()
    };
    for (name, advice) in [
        ("none/eve.json", "create the folder"),
        ("file/eve.json", "create the folder"),
        ("dir", "the name of a file"),
        ("link", "name the file that it leads to"),
        ("socket", "unix_stream"),
        ("pipe", "start the program that reads from it"),
    ] {
        let text = refused(name);
        assert!(text.contains(name) && text.contains(advice), "{text}");
    }
    assert_eq!(folder.text("file"), "precious");
    // Files that even root cannot write to: read-only attributes of the kernel.
    let fixed = "/sys/kernel/uevent_seqnum";
    if Path::new(fixed).exists() {
        let text = refused(fixed);
        assert!(text.contains("the right to write") || text.contains("can be written to"), "{text}");
    }
}

/// Numbers of the events in a file.
fn numbers(text: &str) -> Vec<usize> {
    text.lines().filter_map(|line| line.get(34..40)?.parse().ok()).collect()
}

fn rotating(size: u64) -> FileDestination {
    FileDestination { rotate_size: Some(size), rotate_keep: 3, ..FileDestination::new("eve.json") }
}

#[test]
fn a_file_that_others_take_away_is_begun_anew() {
    for destination in [rotating(400), FileDestination::new("eve.json")] {
        let folder = SinkTestFolder::new("taken");
        let mut sink = folder.open(destination.clone());
        let mut write = |numbers: core::ops::Range<usize>| {
            for number in numbers {
                sink.write_event(&event(number));
                sink.flush();
            }
        };
        write(0..2);
        std::fs::remove_file(folder.0.join("eve.json")).unwrap();
        write(2..4);
        assert_eq!(numbers(&folder.text("eve.json")), [2, 3], "{destination:?}");
        // Files with old numbers do not matter either.
        std::fs::remove_file(folder.0.join("eve.json")).unwrap();
        write(4..5);
        let (counters, problems) = sink.close();
        assert_eq!((counters.written, counters.lost, problems), (5, 0, vec![]));
        assert_eq!(numbers(&folder.text("eve.json")), [4]);
    }
}

#[test]
fn files_may_be_moved_while_rotation_is_on() {
    let folder = SinkTestFolder::new("moved");
    let mut sink = folder.open(rotating(150));
    for number in 0..6 {
        sink.write_event(&event(number));
        sink.flush();
        if number == 1 {
            // The file is full now: the next event begins a new file, wherever the old one is.
            std::fs::rename(folder.0.join("eve.json"), folder.0.join("mine")).unwrap();
        }
    }
    let (counters, problems) = sink.close();
    assert_eq!((counters.written, counters.lost, problems), (6, 0, vec![]));
    assert_eq!(numbers(&folder.text("mine")), [0, 1]);
    assert_eq!(numbers(&folder.text("eve.json.1")), [2, 3]);
    assert_eq!(numbers(&folder.text("eve.json")), [4, 5]);
}

#[test]
fn a_folder_that_goes_away_costs_events_which_are_counted_and_told() {
    let folder = SinkTestFolder::new("gone");
    let inner = folder.0.join("log");
    std::fs::create_dir(&inner).unwrap();
    let destination = FileDestination { path: "log/eve.json".into(), ..rotating(150) };
    let mut sink = folder.open(destination);
    let write = |sink: &mut Sink, number| {
        sink.write_event(&event(number));
        sink.flush();
    };
    write(&mut sink, 0);
    std::fs::remove_dir_all(&inner).unwrap();
    (1..40).for_each(|number| write(&mut sink, number));
    let problem = sink.take_problem().unwrap();
    assert!(problem.is_error() && problem.to_string().contains("create the folder"), "{problem}");
    assert_eq!(sink.take_problem(), None, "one incident is told once");
    assert_eq!((sink.counters().written, sink.counters().lost), (1, 39));
    std::fs::create_dir(&inner).unwrap();
    write(&mut sink, 40);
    let problem = sink.take_problem().unwrap();
    assert!(!problem.is_error() && problem.to_string().contains("39 were lost"), "{problem}");
    let text = folder.text("log/eve.json");
    assert!(
        text.starts_with(r#"{"timestamp":"2018-10-10T09:24:31.000040"#)
            && text.contains(r#""lost_events":39"#)
    );
    assert_eq!(text.lines().count(), 2);
    assert_eq!((sink.counters().written, sink.counters().lost), (2, 39));
}

#[test]
fn a_file_that_cannot_be_put_aside_goes_on_and_is_told_once() {
    let folder = SinkTestFolder::new("stuck");
    // A folder that is not empty is in the place of the rotated file.
    std::fs::create_dir_all(folder.0.join("eve.json.1/x")).unwrap();
    let mut sink = folder.open(FileDestination { rotate_keep: 1, ..rotating(150) });
    for number in 0..60 {
        sink.write_event(&event(number));
        sink.flush();
    }
    let problem = sink.take_problem().unwrap();
    let text = problem.to_string();
    assert!(text.contains("cannot be put aside") && text.contains("go on into the old file"), "{text}");
    assert_eq!(sink.take_problem(), None, "one incident is told once");
    assert_eq!((sink.counters().written, sink.counters().lost, sink.counters().problems), (60, 0, 1));
    assert_eq!(folder.text("eve.json").lines().count(), 60);
    std::fs::remove_dir_all(folder.0.join("eve.json.1")).unwrap();
    sink.write_event(&event(60));
    let (counters, problems) = sink.close();
    assert_eq!((counters.written, counters.rotations), (61, 1));
    assert_eq!(problems.iter().map(|p| p.what.clone()).collect::<Vec<_>>(), [Incident::PutAside]);
    assert_eq!(folder.text("eve.json.1").lines().count(), 60);
}

#[test]
fn a_folder_in_the_files_place_does_not_shift_old_files_away() {
    let folder = SinkTestFolder::new("folder-in-place");
    let mut sink = folder.open(rotating(150));
    for number in 0..4 {
        sink.write_event(&event(number));
        sink.flush();
    }
    assert_eq!(numbers(&folder.text("eve.json.1")), [0, 1]);
    std::fs::remove_file(folder.0.join("eve.json")).unwrap();
    std::fs::create_dir(folder.0.join("eve.json")).unwrap();
    for number in 4..24 {
        sink.write_event(&event(number));
        sink.flush();
    }
    let problem = sink.take_problem().unwrap().to_string();
    assert!(problem.contains("not of a folder"), "{problem}");
    assert_eq!(sink.take_problem(), None);
    assert_eq!(numbers(&folder.text("eve.json.1")), [0, 1]);
    assert_eq!((sink.counters().written, sink.counters().lost), (4, 20));
}

#[test]
fn a_pipe_loses_what_is_not_held_back_for_its_reader_and_goes_on() {
    let folder = SinkTestFolder::new("pipe");
    let path = folder.0.join("eve.json");
    make_pipe(&path);
    let reading = || {
        let mut options = std::fs::OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true), libc::O_NONBLOCK);
        options.open(&path).unwrap()
    };
    let mut reader = reading();
    let mut sink = folder.open(rotating(150));
    // Reads all available and all held-back data.
    let read = |reader: &mut std::fs::File, sink: &mut Sink| {
        let mut bytes = vec![0; 1 << 20];
        let mut text = Vec::new();
        loop {
            sink.flush();
            match reader.read(&mut bytes) {
                Ok(some @ 1..) => text.extend_from_slice(&bytes[..some]),
                _ => return String::from_utf8(text).unwrap(),
            }
        }
    };
    // A pipe is not rotated, whatever its settings.
    (0..5).for_each(|number| sink.write_event(&event(number)));
    assert_eq!(numbers(&read(&mut reader, &mut sink)), [0, 1, 2, 3, 4]);
    for number in 0..40_000 {
        sink.write_event(&event(number));
    }
    let problem = sink.take_problem().unwrap().to_string();
    assert!(problem.contains("too slow"), "{problem}");
    let lost = sink.counters().lost;
    assert!(lost > 0);
    let first = read(&mut reader, &mut sink);
    sink.write_event(&event(7));
    let second = read(&mut reader, &mut sink);
    let whole =
        |text: &str| text.lines().filter(|l| serde_json::from_str::<serde_json::Value>(l).is_ok()).count();
    assert!(second.contains(&format!(r#""lost_events":{lost}"#)) && whole(&second) == 2, "{second}");
    assert_eq!(whole(&first) as u64 + 6, sink.counters().written);
    assert_eq!(sink.counters().written + sink.counters().lost, 40_006);
    // The reader has gone and comes back: lines that were not begun are held for the next reader.
    drop(reader);
    assert!(sink.take_problem().is_some_and(|p| !p.is_error()));
    sink.write_event(&event(8));
    sink.flush();
    assert!(sink.take_problem().unwrap().to_string().contains("start the program that reads"));
    let mut reader = reading();
    sink.write_event(&event(9));
    let mut text = String::new();
    until(&mut sink, |sink| sink.counters().written + lost == 40_008);
    reader.read_to_string(&mut text).unwrap_err();
    assert_eq!(numbers(&text), [8, 9]);
}

#[test]
fn a_full_disk_costs_events_but_never_stops() {
    let mut sink = Sink::open(&Destination::File(FileDestination::new("/dev/full")), Path::new("/")).unwrap();
    for number in 0..10_000 {
        sink.write_event(&event(number));
    }
    sink.flush();
    let problem = sink.take_problem().unwrap();
    assert_eq!(problem.path, Path::new("/dev/full"));
    assert!(problem.to_string().contains("free space on that disk"), "{problem}");
    sink.write_event(&event(1));
    sink.flush();
    assert_eq!(sink.take_problem(), None, "one incident is told once");
    let (counters, _) = sink.close();
    assert_eq!((counters.written, counters.lost, counters.problems), (0, 10_001, 1));
}

/// A disk of limited size, which takes a few bytes at a time.
#[derive(Debug, Default)]
struct Disk {
    bytes: Vec<u8>,
    room: usize,
    keeps_parts: bool,
}

impl Medium for Disk {
    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let some = bytes.len().min(40).min(self.room - self.bytes.len());
        if some == 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(&bytes[..some]);
        Ok(some)
    }

    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn take_back(&mut self, bytes: usize) -> io::Result<()> {
        if self.keeps_parts {
            return Err(ErrorKind::Unsupported.into());
        }
        self.bytes.truncate(self.bytes.len() - bytes);
        Ok(())
    }
}

#[test]
fn after_a_full_disk_the_output_says_what_is_missing() {
    for keeps_parts in [false, true] {
        let disk = Disk { room: 200, keeps_parts, ..Disk::default() };
        let mut sink = Buffered::new(PathBuf::from("eve.json"), disk);
        for number in 0..5 {
            sink.write_event(&event(number));
        }
        sink.flush();
        assert_eq!((sink.ledger().counters.written, sink.ledger().counters.lost), (2, 3));
        assert!(sink.ledger().watch.take_problem().is_some());
        sink.write_event(&event(5));
        sink.flush();
        assert_eq!(sink.ledger().counters.lost, 4);
        assert!(sink.ledger().watch.take_problem().is_none());

        sink.medium_mut().room = 100_000;
        sink.write_event(&event(6));
        sink.write_event(&event(7));
        sink.flush();
        let text = String::from_utf8(sink.medium_mut().bytes.clone()).unwrap();
        let good: Vec<serde_json::Value> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        assert_eq!(good.len(), 5, "{text}");
        assert_eq!(text.lines().count(), if keeps_parts { 6 } else { 5 });
        assert_eq!(good[2]["event_type"], "bartizan");
        assert_eq!(good[2]["bartizan"]["lost_events"], 4);
        assert_eq!(good[2]["timestamp"], "2018-10-10T09:24:31.000006+0000");
        assert_eq!((sink.ledger().counters.written, sink.ledger().counters.lost), (4, 4));
        crate::schema::check(&good[2]).unwrap();
    }
}

/// Flushes until the condition holds; a connection is made on another thread.
fn until(sink: &mut Sink, mut done: impl FnMut(&Sink) -> bool) {
    for _ in 0..20_000 {
        sink.flush();
        if done(sink) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("not in twenty seconds");
}

#[test]
fn a_stream_socket_survives_its_reader() {
    let folder = SinkTestFolder::new("stream");
    let path = folder.0.join("eve.sock");
    let mut sink = Sink::open(&Destination::UnixStream(path.clone()), &folder.0).unwrap();
    let problem = sink.ledger().watch.take_problem().unwrap();
    assert!(problem.to_string().contains("start the program"), "{problem}");
    sink.write_event(&event(0));

    let listener = UnixListener::bind(&path).unwrap();
    until(&mut sink, |sink| sink.ledger().counters.written == 1);
    let (mut reader, _) = listener.accept().unwrap();
    let mut first = vec![0; event(0).len() + 1];
    reader.read_exact(&mut first).unwrap();
    assert_eq!(first, [event(0).as_slice(), b"\n"].concat());

    // A reader that does not read: the socket's buffer fills, then the held-back lines, then events are lost.
    for number in 0..40_000 {
        sink.write_event(&event(number));
    }
    let lost = sink.ledger().counters.lost;
    assert!(lost > 0);
    assert!(sink.ledger().watch.take_problem().unwrap().to_string().contains("too slow"));

    let is_up = |sink: &Sink| matches!(sink.kind, SinkKind::Stream(ref socket) if socket.is_up());
    drop(reader);
    until(&mut sink, |sink| !is_up(sink));
    until(&mut sink, is_up);
    let (mut reader, _) = listener.accept().unwrap();
    let collected = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    let has_all = |sink: &Sink| matches!(sink.kind, SinkKind::Stream(ref socket) if socket.is_empty());
    until(&mut sink, has_all);
    sink.write_event(&event(7));
    // The end waits for no reader: the last lines leave before it.
    until(&mut sink, has_all);
    let (counters, _) = sink.close();
    assert_eq!(counters.written + counters.lost, 40_002);
    let text = collected.join().unwrap();
    let told: u64 = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter_map(|event| event["bartizan"]["lost_events"].as_u64())
        .sum();
    assert_eq!(told, counters.lost);
}

#[test]
fn a_datagram_socket_counts_what_nobody_reads() {
    let folder = SinkTestFolder::new("datagram");
    let path = folder.0.join("eve.sock");
    let mut sink = Sink::open(&Destination::UnixDatagram(path.clone()), &folder.0).unwrap();
    sink.write_event(&event(0));
    assert!(sink.ledger().watch.take_problem().is_some());
    let reader = UnixDatagram::bind(&path).unwrap();
    sink.flush();
    sink.write_event(&event(1));
    let mut line = vec![0; 512];
    let mut next = || {
        let length = reader.recv(&mut line).unwrap();
        serde_json::from_slice::<serde_json::Value>(&line[..length]).unwrap()
    };
    assert_eq!(next()["bartizan"]["lost_events"], 1);
    assert_eq!(next()["timestamp"], "2018-10-10T09:24:31.000001+0000");
    for number in 0..5_000 {
        sink.write_event(&event(number));
    }
    let (counters, problem) = sink.close();
    assert!(counters.lost > 1);
    assert_eq!(counters.written + counters.lost, 5_002);
    assert!(!problem.is_empty());
}

#[test]
fn names_with_the_time_are_made_anew_at_each_interval() {
    use crate::config::RotateInterval;
    static NOW: AtomicU64 = AtomicU64::new(0);
    let clock = || NOW.load(Ordering::Relaxed);
    let folder = SinkTestFolder::new("interval");
    let hours = |hours: u64, more: u64| NOW.store(1_795_413_600 + hours * 3600 + more, Ordering::Relaxed);
    let destination = |name: &str, interval| FileDestination {
        rotate_interval: interval,
        append: false,
        ..FileDestination::new(name)
    };
    let open = |destination| {
        let medium = FileMedium::open(destination, &folder.0, clock).unwrap();
        Buffered::new(medium.path().to_owned(), medium)
    };
    let write = |sink: &mut Buffered<FileMedium>, number: usize| {
        sink.write_event(&event(number));
        sink.flush();
    };
    let counts =
        |names: &[&str]| names.iter().map(|name| folder.text(name).lines().count()).collect::<Vec<_>>();
    // 2026-11-23 06:00:00 UTC.
    hours(0, 600);
    let mut sink = open(destination("%F/eve-%H.json", Some(RotateInterval::Next(3600))));
    write(&mut sink, 1);
    hours(0, 3599);
    write(&mut sink, 2);
    hours(1, 0);
    write(&mut sink, 3);
    hours(18, 5);
    write(&mut sink, 4);
    write(&mut sink, 5);
    assert_eq!(
        counts(&["2026-11-23/eve-06.json", "2026-11-23/eve-07.json", "2026-11-24/eve-00.json"]),
        [2, 1, 2]
    );
    assert_eq!(sink.ledger().counters.rotations, 2);
    // Opened again for another reason: the name follows the present time, and existing content stays.
    hours(18, 30);
    sink.reopen();
    write(&mut sink, 6);
    assert_eq!(counts(&["2026-11-24/eve-00.json"]), [3]);
    // From the start, and without the time in the name: the same file continues.
    hours(0, 600);
    let mut every = open(destination("plain-%%.json", Some(RotateInterval::Every(90))));
    let mut none = open(destination("only-%M.json", None));
    for (second, number) in [(600, 1), (689, 2), (690, 3), (1000, 4)] {
        hours(0, second);
        write(&mut every, number);
        write(&mut none, number);
    }
    assert_eq!(counts(&["plain-%.json", "only-10.json"]), [4, 4]);
    assert_eq!((every.ledger().counters.rotations, none.ledger().counters.rotations), (2, 0));
    // By size, a file is rotated under its name of that time.
    let mut sized = open(FileDestination { rotate_size: Some(100), ..destination("s-%H.json", None) });
    write(&mut sized, 1);
    write(&mut sized, 2);
    assert_eq!(counts(&["s-06.json", "s-06.json.1"]), [1, 1]);
}

#[test]
fn a_prefix_stands_before_every_line() {
    let folder = SinkTestFolder::new("prefix");
    let destination =
        FileDestination { rotate_every: Some(60), rotate_keep: 2, ..FileDestination::new("eve.json") };
    let mut sink = folder.open(destination).with_prefix("@cee: ");
    sink.write_event(EVENT);
    sink.flush();
    // The time of events still counts.
    sink.write_event(&String::from_utf8_lossy(EVENT).replace("09:24", "09:34").into_bytes());
    sink.flush();
    let expected = format!("@cee: {}\n", String::from_utf8_lossy(EVENT));
    assert_eq!(folder.text("eve.json.1"), expected);
    assert!(folder.text("eve.json").starts_with("@cee: {\"timestamp\":\"2018-10-10T09:34"));
}
