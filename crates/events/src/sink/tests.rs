// SPDX-License-Identifier: Apache-2.0
//! Sinks against real files, full disks and readers that come and go.

use super::buffered::Medium;
use super::*;
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::{UnixDatagram, UnixListener};

const EVENT: &[u8] = br#"{"timestamp":"2018-10-10T09:24:31.516380+0000","event_type":"flow"}"#;

/// A folder of its own for each test, gone afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bartizan-events-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }

    fn open(&self, destination: FileDestination) -> Sink {
        Sink::open(&Destination::File(destination), &self.0).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn event(number: usize) -> Vec<u8> {
    format!(r#"{{"timestamp":"2018-10-10T09:24:31.{number:06}+0000","event_type":"flow"}}"#).into_bytes()
}

#[test]
fn a_file_is_appended_to_or_begun_anew() {
    let folder = Folder::new("append");
    for (append, lines) in [(true, 1), (true, 2), (false, 1)] {
        let mut sink = folder.open(FileDestination { append, ..FileDestination::new("eve.json") });
        sink.write_event(EVENT);
        assert_eq!(sink.counters().written, 0);
        let (counters, problem) = sink.close();
        assert_eq!((counters.written, counters.lost, problem), (1, 0, None));
        assert_eq!(folder.text("eve.json").lines().count(), lines);
    }
}

#[test]
fn many_events_arrive_whole_and_in_order() {
    let folder = Folder::new("many");
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
    let folder = Folder::new("size");
    let destination =
        FileDestination { rotate_size: Some(150), rotate_keep: 2, ..FileDestination::new("eve.json") };
    let mut sink = folder.open(destination);
    for number in 0..10 {
        sink.write_event(&event(number));
        sink.flush();
    }
    let (counters, problem) = sink.close();
    assert_eq!((counters.written, counters.rotations, problem), (10, 4, None));
    assert!(folder.text("eve.json").contains(".000009+0000"));
    assert!(folder.text("eve.json.1").starts_with(r#"{"timestamp":"2018-10-10T09:24:31.000006"#));
    assert_eq!(folder.text("eve.json.2").lines().count(), 2);
    assert!(!folder.0.join("eve.json.3").exists());
}

#[test]
fn rotation_by_the_time_of_events() {
    let folder = Folder::new("time");
    let destination =
        FileDestination { rotate_every: Some(60), rotate_keep: u32::MAX, ..FileDestination::new("eve.json") };
    let mut sink = folder.open(destination);
    for (minute, second) in [(0, 5), (0, 59), (1, 4), (1, 5), (9, 0), (9, 30)] {
        let time = format!("2018-10-10T09:{minute:02}:{second:02}.000000+0000");
        sink.write_event(format!(r#"{{"timestamp":"{time}","event_type":"flow"}}"#).as_bytes());
        sink.flush();
    }
    let (counters, problem) = sink.close();
    assert_eq!((counters.written, counters.rotations, problem), (6, 2, None));
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
    let folder = Folder::new("watch");
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
    let folder = Folder::new("request");
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
fn a_file_that_cannot_be_opened_says_what_to_do() {
    let folder = Folder::new("refused");
    let error = Sink::open(&Destination::File(FileDestination::new("none/eve.json")), &folder.0).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("none/eve.json") && text.contains("create the folder"), "{text}");
    std::fs::create_dir(folder.0.join("dir")).unwrap();
    let error = Sink::open(&Destination::File(FileDestination::new("dir")), &folder.0).unwrap_err();
    assert!(error.to_string().contains("the name of a file"), "{error}");
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

/// A disk with so much room; it takes a few bytes at a time.
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
    for _ in 0..2_000 {
        sink.flush();
        if done(sink) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("not in two seconds");
}

#[test]
fn a_stream_socket_survives_its_reader() {
    let folder = Folder::new("stream");
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

    // A reader that does not read: the socket's buffer fills, then what is held back, then events are lost.
    for number in 0..40_000 {
        sink.write_event(&event(number));
    }
    let lost = sink.ledger().counters.lost;
    assert!(lost > 0);
    assert!(sink.ledger().watch.take_problem().unwrap().to_string().contains("too slow"));

    drop(reader);
    sink.flush();
    until(&mut sink, |sink| matches!(sink.kind, Kind::Stream(ref socket) if socket.is_up()));
    let (mut reader, _) = listener.accept().unwrap();
    let collected = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    until(&mut sink, |sink| matches!(sink.kind, Kind::Stream(ref socket) if socket.is_empty()));
    sink.write_event(&event(7));
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
    let folder = Folder::new("datagram");
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
    assert!(problem.is_some());
}
