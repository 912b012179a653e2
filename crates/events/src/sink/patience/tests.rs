// SPDX-License-Identifier: Apache-2.0
//! Readers that are slow, late, absent or stop, for each kind of output with a reader.

use super::*;
use crate::config::{Destination, FileDestination};
use crate::sink::Sink;
use crate::sink::tests::SinkTestFolder;
use bartizan_testkit::pipe::make_pipe;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// More events than the system and the output can hold.
const EVENTS: usize = 30_000;

const LONG: Patience =
    Patience { quiet: Duration::from_secs(20), absent: Duration::from_secs(20), until: None, stop: None };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SinkTransport {
    Stream,
    Datagram,
    Pipe,
}

const WAYS: [SinkTransport; 3] = [SinkTransport::Stream, SinkTransport::Datagram, SinkTransport::Pipe];

fn event(number: usize) -> Vec<u8> {
    let padding = "x".repeat(60);
    format!(r#"{{"timestamp":"2018-10-10T09:24:31.{number:06}+0000","event_type":"flow","x":"{padding}"}}"#)
        .into_bytes()
}

/// The reader's end.
enum SinkEndpoint {
    Listener(UnixListener),
    Stream(UnixStream),
    Datagram(UnixDatagram),
    Pipe(std::fs::File),
}

impl SinkEndpoint {
    fn open(way: SinkTransport, path: &Path) -> Self {
        match way {
            SinkTransport::Stream => SinkEndpoint::Listener(UnixListener::bind(path).unwrap()),
            SinkTransport::Datagram => {
                let socket = UnixDatagram::bind(path).unwrap();
                socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
                SinkEndpoint::Datagram(socket)
            }
            SinkTransport::Pipe => {
                make_pipe(path);
                let mut options = std::fs::OpenOptions::new();
                SinkEndpoint::Pipe(options.read(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap())
            }
        }
    }

    /// Reads the available bytes; `None`: there are none now, or the writer has closed.
    fn take(&mut self, into: &mut [u8]) -> Option<usize> {
        if let SinkEndpoint::Listener(listener) = self {
            let stream = listener.accept().unwrap().0;
            stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            *self = SinkEndpoint::Stream(stream);
        }
        let taken = match self {
            SinkEndpoint::Stream(stream) => stream.read(into),
            SinkEndpoint::Datagram(socket) => socket.recv(into),
            SinkEndpoint::Pipe(pipe) => pipe.read(into),
            SinkEndpoint::Listener(_) => unreachable!("it was accepted"),
        };
        match taken {
            Ok(some @ 1..) => Some(some),
            _ => {
                std::thread::sleep(Duration::from_millis(1));
                None
            }
        }
    }
}

/// A reader in a thread: after `late` it reads pieces with a pause after each, `most` bytes until it is told
/// to continue.
struct SlowSinkReader {
    go_on: Sender<()>,
    thread: JoinHandle<Vec<u8>>,
}

impl SlowSinkReader {
    fn start(source: SinkEndpoint, late: Duration, pause: Duration, most: usize) -> Self {
        SlowSinkReader::of_pieces(source, late, pause, most, 1 << 16)
    }

    /// One that takes at most `piece` bytes at a time.
    fn of_pieces(
        mut source: SinkEndpoint,
        late: Duration,
        pause: Duration,
        most: usize,
        piece: usize,
    ) -> Self {
        let (go_on, told): (_, Receiver<()>) = channel();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(late);
            let (mut piece, mut all, mut ends) = (vec![0; piece], Vec::new(), false);
            loop {
                if !ends && all.len() >= most {
                    let _ = told.recv();
                    ends = true;
                }
                match source.take(&mut piece) {
                    Some(some) => {
                        all.extend_from_slice(&piece[..some]);
                        if !ends {
                            std::thread::sleep(pause);
                        }
                    }
                    None if ends => return all,
                    None => ends = told.try_recv().is_ok(),
                }
            }
        });
        SlowSinkReader { go_on, thread }
    }

    /// All lines that the reader got, the remaining ones included.
    fn end(self) -> Vec<String> {
        let _ = self.go_on.send(());
        let bytes = self.thread.join().unwrap();
        let text = String::from_utf8(bytes).unwrap();
        // A stream that was given up may end within a line.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        text[..whole].lines().map(str::to_owned).collect()
    }
}

fn open(way: SinkTransport, path: &Path) -> Sink {
    let destination = match way {
        SinkTransport::Stream => Destination::UnixStream(path.to_owned()),
        SinkTransport::Datagram => Destination::UnixDatagram(path.to_owned()),
        SinkTransport::Pipe => Destination::File(FileDestination::new(path.to_str().unwrap())),
    };
    Sink::open(&destination, Path::new("/")).unwrap()
}

fn assert_all(lines: &[String], events: usize) {
    assert_eq!(lines.len(), events);
    for (number, line) in lines.iter().enumerate() {
        assert_eq!(line.as_bytes(), event(number % 1_000_000));
    }
}

/// Sums the losses in records, and counts events.
fn told(lines: &[String]) -> (u64, u64) {
    let (mut events, mut losses) = (0, 0);
    for line in lines {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        match value["bartizan"]["lost_events"].as_u64() {
            Some(lost) => losses += lost,
            None => events += 1,
        }
    }
    (events, losses)
}

#[test]
fn a_slow_or_late_reader_gets_every_event() {
    for way in WAYS {
        for (late, pause) in [(400, 0), (0, 1)] {
            let folder = SinkTestFolder::new(&format!("slow-{way:?}-{late}"));
            let path = folder.0.join("eve");
            let source = SinkEndpoint::open(way, &path);
            let mut sink = open(way, &path);
            sink.wait_for_reader(LONG);
            let (late, pause) = (Duration::from_millis(late), Duration::from_millis(pause));
            // Each datagram is a piece.
            let pause = if way == SinkTransport::Datagram { pause / 100 } else { pause };
            let reader = SlowSinkReader::start(source, late, pause, usize::MAX);
            (0..EVENTS).for_each(|number| sink.write_event(&event(number)));
            let (counters, problems) = sink.close();
            assert_eq!((counters.written, counters.lost), (EVENTS as u64, 0), "{way:?}");
            assert_eq!(problems, [], "{way:?}");
            assert_all(&reader.end(), EVENTS);
        }
    }
}

/// A reader that takes a few kilobytes within the bound goes on, whatever the system holds for it.
#[test]
fn a_reader_that_takes_little_but_goes_on_is_not_given_up() {
    for way in [SinkTransport::Stream, SinkTransport::Pipe] {
        let folder = SinkTestFolder::new(&format!("little-{way:?}"));
        let path = folder.0.join("eve");
        let source = SinkEndpoint::open(way, &path);
        let mut sink = open(way, &path);
        // Live, without patience: the system's queue is full before the end begins.
        let events = 3_500;
        (0..events).for_each(|number| sink.write_event(&event(number)));
        let pause = Duration::from_millis(40);
        let reader = SlowSinkReader::of_pieces(source, Duration::ZERO, pause, usize::MAX, 4_096);
        sink.wait_for_reader(Patience::of(10 * pause, Duration::from_secs(60)));
        let (counters, problems) = sink.close();
        assert_eq!((counters.written, counters.lost), (events as u64, 0), "{way:?} {problems:?}");
        assert_eq!(problems, [], "{way:?}");
        assert_all(&reader.end(), events);
    }
}

#[test]
fn a_reader_that_stops_for_ever_is_given_up_and_each_loss_is_counted() {
    for way in WAYS {
        let folder = SinkTestFolder::new(&format!("stops-{way:?}"));
        let path = folder.0.join("eve");
        let source = SinkEndpoint::open(way, &path);
        let mut sink = open(way, &path);
        let quiet = Duration::from_millis(300);
        sink.wait_for_reader(Patience::of(quiet, Duration::from_secs(60)));
        let reader = SlowSinkReader::start(source, Duration::ZERO, Duration::ZERO, 200_000);
        let begun = Instant::now();
        (0..EVENTS).for_each(|number| sink.write_event(&event(number)));
        let (counters, problems) = sink.close();
        let took = begun.elapsed();
        assert!(took >= quiet && took < Duration::from_secs(30), "{way:?}: {took:?}");
        assert!(counters.lost > 0 && counters.written + counters.lost == EVENTS as u64, "{counters:?}");
        assert!(problems[0].to_string().contains("too slow"), "{problems:?}");
        assert_eq!(told(&reader.end()).0, counters.written, "{way:?}");
    }
}

#[test]
fn a_reader_that_goes_on_is_waited_for_again_and_told_of_its_losses() {
    for way in WAYS {
        let folder = SinkTestFolder::new(&format!("again-{way:?}"));
        let path = folder.0.join("eve");
        let source = SinkEndpoint::open(way, &path);
        let mut sink = open(way, &path);
        sink.wait_for_reader(Patience::of(Duration::from_millis(500), Duration::from_secs(60)));
        (0..EVENTS).for_each(|number| sink.write_event(&event(number)));
        let lost = sink.counters().lost;
        assert!(lost > 0, "{way:?}");
        // The reader begins: data that the system and the output hold, then new data.
        let pause = Duration::from_micros(if way == SinkTransport::Datagram { 10 } else { 1_000 });
        let reader = SlowSinkReader::start(source, Duration::ZERO, pause, usize::MAX);
        std::thread::sleep(Duration::from_millis(200));
        (0..EVENTS).for_each(|number| sink.write_event(&event(number)));
        let (counters, problems) = sink.close();
        assert_eq!((counters.written, counters.lost), (2 * EVENTS as u64 - lost, lost), "{way:?}");
        assert!(problems.last().is_some_and(|problem| !problem.is_error()), "{problems:?}");
        assert_eq!(told(&reader.end()), (counters.written, lost), "{way:?}");
    }
}

#[test]
fn the_end_is_bounded_whatever_a_reader_does() {
    for way in WAYS {
        let folder = SinkTestFolder::new(&format!("bounded-{way:?}"));
        let path = folder.0.join("eve");
        let source = SinkEndpoint::open(way, &path);
        let mut sink = open(way, &path);
        // The reader always takes something.
        let pause = if way == SinkTransport::Datagram { 5 } else { 100 };
        let reader = SlowSinkReader::start(source, Duration::ZERO, Duration::from_millis(pause), usize::MAX);
        sink.wait_for_reader(Patience::of(Duration::from_secs(20), Duration::from_millis(400)));
        let begun = Instant::now();
        (0..EVENTS).for_each(|number| sink.write_event(&event(number)));
        let (counters, _) = sink.close();
        assert!(begun.elapsed() < Duration::from_secs(10), "{way:?}: {:?}", begun.elapsed());
        assert!(counters.lost > 0 && counters.written + counters.lost == EVENTS as u64, "{counters:?}");
        assert_eq!(told(&reader.end()).0, counters.written, "{way:?}");
    }
}

#[test]
fn an_absent_reader_is_waited_for_and_then_given_up() {
    for way in [SinkTransport::Stream, SinkTransport::Datagram] {
        let folder = SinkTestFolder::new(&format!("absent-{way:?}"));
        let path = folder.0.join("eve");
        let mut sink = open(way, &path);
        assert!(sink.take_problem().is_some(), "it is told at the start");
        sink.wait_for_reader(LONG);
        let place = path.clone();
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            SlowSinkReader::start(SinkEndpoint::open(way, &place), Duration::ZERO, Duration::ZERO, usize::MAX)
        });
        (0..5_000).for_each(|number| sink.write_event(&event(number)));
        let (counters, problems) = sink.close();
        assert_eq!((counters.written, counters.lost, problems.len()), (5_000, 0, 0), "{way:?}");
        assert_all(&later.join().unwrap().end(), 5_000);

        std::fs::remove_file(&path).unwrap();
        let mut sink = open(way, &path);
        sink.wait_for_reader(Patience::of(Duration::from_millis(200), Duration::from_secs(60)));
        let begun = Instant::now();
        (0..5_000).for_each(|number| sink.write_event(&event(number)));
        let (counters, problems) = sink.close();
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_eq!((counters.written, counters.lost), (0, 5_000), "{way:?}");
        assert!(!problems.is_empty(), "{way:?}");
    }
}

#[test]
fn a_request_to_stop_shortens_the_wait() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let mut wait = Wait::default();
    assert_eq!(wait.next(false), None, "live traffic waits for no reader");
    wait.note_progress();
    wait.set(Patience::over_captures(&STOP));
    assert_eq!(wait.next(false), Some(SLICE));
    assert_eq!(wait.patience.unwrap().quiet, CAPTURES_QUIET);
    STOP.store(true, Ordering::Relaxed);
    assert_eq!(wait.next(false), Some(SLICE));
    let patience = wait.patience.unwrap();
    assert_eq!((patience.quiet, patience.until.is_some()), (END_QUIET, true));
}

#[test]
fn without_patience_nothing_is_waited_for() {
    for way in WAYS {
        let folder = SinkTestFolder::new(&format!("live-{way:?}"));
        let path = folder.0.join("eve");
        let source = SinkEndpoint::open(way, &path);
        let mut sink = open(way, &path);
        let begun = Instant::now();
        (0..EVENTS).for_each(|number| sink.write_event(&event(number)));
        let took = begun.elapsed();
        let (counters, _) = sink.close();
        assert!(took < Duration::from_secs(5), "{way:?}: {took:?}");
        assert!(counters.lost > 0 && counters.written + counters.lost == EVENTS as u64, "{counters:?}");
        drop(source);
    }
}

#[test]
fn losses_on_the_way_are_told_before_the_next_event_and_at_the_end() {
    let folder = SinkTestFolder::new("missed");
    let path = folder.0.join("eve.json");
    let mut sink =
        Sink::open(&Destination::File(FileDestination::new(path.to_str().unwrap())), &folder.0).unwrap();
    sink.write_event(&event(0));
    sink.missed(3);
    sink.write_event(&event(1));
    sink.missed(4);
    let watch = sink.watch();
    let (counters, _) = sink.close();
    assert_eq!((counters.written, counters.lost, watch.lost()), (2, 0, 7));
    let text = std::fs::read_to_string(&path).unwrap();
    let values: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let lost: Vec<_> = values.iter().map(|value| value["bartizan"]["lost_events"].as_u64()).collect();
    assert_eq!(lost, [None, Some(3), None, Some(4)]);
    // The record at the end has the time of the last event.
    assert_eq!(values[3]["timestamp"], values[2]["timestamp"]);
}
