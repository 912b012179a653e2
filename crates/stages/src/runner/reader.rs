// SPDX-License-Identifier: Apache-2.0
//! Parses one direction's bytes, from any source that has them in order ([`InOrder`]): TCP reassembly while
//! packets arrive and at the end of a flow, and the two ends of a pipe.

use bartizan_applayer::flow::{Advance, AppLayer, Disruption, Engine, FlowInfo};
use bartizan_applayer::protocol::Input;
use bartizan_base::Direction;
use bartizan_flow::stream::{AppChunk, Duplex, InOrder};

/// The outcome of reading one direction.
#[derive(Default)]
pub(super) struct ReadOutcome {
    /// The other direction has to be read as well.
    pub other_side_ready: bool,
    /// This direction has to be read once more, after the other one.
    pub again: bool,
    /// Client and server of the flow have to be swapped.
    pub reverse: bool,
    /// Whether another protocol begins.
    pub switched: bool,
    /// The rest of the flow needs no inspection.
    pub bypass: bool,
}

/// Tells the parser that a direction has ended, or that its rest is not read, where no data is left. Returns
/// whether the other side can be read now.
fn end_data<S: InOrder>(
    engine: &Engine,
    app: &mut AppLayer,
    source: &mut S,
    direction: Direction,
    info: &FlowInfo,
) -> bool {
    let ended = source.is_over();
    let mut other_side_ready = false;
    if ended && source.is_before_hole() {
        // The end of the stream was lost, and the missing bytes before it will not arrive any more.
        app.disrupt(engine, direction, Disruption::Gap, info);
    } else if ended && !app.ended(direction) {
        let input = Input { data: &[], offset: source.position(), eof: true };
        let advance = app.stream(engine, direction, input, info);
        app.set_ended(direction);
        other_side_ready = advance.other_side_ready;
    }
    if source.is_at_depth() {
        app.disrupt(engine, direction, Disruption::Depth, info);
    }
    other_side_ready
}

/// Reads one direction. Each round of the loop consumes bytes, or is the last.
pub(super) fn read<D: Duplex>(
    engine: &Engine,
    app: &mut AppLayer,
    pair: &mut D,
    direction: Direction,
    own: &[u8],
    info: &FlowInfo,
) -> ReadOutcome {
    let mut did = ReadOutcome::default();
    loop {
        // A direction that reaches its depth is not over: its end is not seen.
        let ended = pair.source(direction).is_over();
        let right = pair.source(direction).end();
        let stream = pair.source(direction);
        let progress = stream.position();
        let advance = match stream.next(own) {
            Some(AppChunk::Data { offset, bytes }) => {
                let end = offset.saturating_add(bytes.len() as u64);
                let eof = ended && end >= right;
                let advance = app.stream(engine, direction, Input { data: bytes, offset, eof }, info);
                let all = advance.consumed >= bytes.len();
                // The parser waits for bytes that lie in the hole after this data, so the data before the
                // hole is lost as well. While detection waits for the missing bytes, they may still arrive:
                // then the data is read from its beginning.
                let lost = advance.consumed == 0
                    && !advance.finished
                    && !advance.reverse
                    && app.parser().is_some()
                    && (ended || !app.waits(direction));
                let taken = if lost && stream.gap_follows(end) {
                    end.saturating_sub(offset)
                } else {
                    advance.consumed as u64
                };
                stream.consume(taken);
                if !all && advance.needed > 0 {
                    stream.need(u32::try_from(advance.needed).unwrap_or(u32::MAX));
                }
                if app.take_switched() {
                    did.switched = true;
                    return did;
                }
                if advance.parsed {
                    // Detection looks at the available data, however little.
                    stream.prompt();
                }
                advance
            }
            Some(AppChunk::Gap { len, .. }) => {
                if !app.gap(engine, direction, len, stream.behind_hole(own), ended, info) {
                    // Detection gets the other side's data once more, whatever length it waits for.
                    pair.source(direction.flip()).need(0);
                    break;
                }
                stream.consume(len);
                Advance::default()
            }
            None => {
                did.other_side_ready |= end_data(engine, app, pair.source(direction), direction, info);
                break;
            }
        };
        if advance.other_side_first || advance.other_side_ready {
            // Detection gets the available data of that side, however little.
            pair.source(direction.flip()).need(0);
            did.other_side_ready = true;
        }
        did.again |= advance.other_side_first;
        did.reverse = advance.reverse;
        did.bypass |= advance.bypass;
        if advance.finished {
            pair.source(Direction::ToServer).stop();
            pair.source(Direction::ToClient).stop();
        }
        if advance.finished || advance.reverse || pair.source(direction).position() == progress {
            break;
        }
    }
    did
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_applayer::file::FileSettings;
    use bartizan_applayer::protocol::Transport;
    use bartizan_base::{PerDirection, SettingsMap, Timestamp};

    /// One end of a pipe: every byte from the first on, without TCP.
    #[derive(Default)]
    struct Pipe {
        held: Vec<u8>,
        read: u64,
        needed: u32,
        closed: bool,
        stopped: bool,
    }

    impl InOrder for Pipe {
        fn next<'a>(&'a mut self, _own: &'a [u8]) -> Option<AppChunk<'a>> {
            let enough = self.closed || self.held.len() >= self.needed as usize;
            let ready = !self.stopped && !self.held.is_empty() && enough;
            ready.then_some(AppChunk::Data { offset: self.read, bytes: &self.held })
        }

        fn consume(&mut self, len: u64) {
            self.held.drain(..len as usize);
            (self.read, self.needed) = (self.read + len, 0);
        }

        fn need(&mut self, len: u32) {
            self.needed = len;
        }

        fn stop(&mut self) {
            self.stopped = true;
        }

        fn position(&self) -> u64 {
            self.read
        }

        fn end(&self) -> u64 {
            self.read + self.held.len() as u64
        }

        fn is_over(&self) -> bool {
            self.closed
        }
    }

    /// Both ends of a pipe.
    #[derive(Default)]
    struct Pipes(PerDirection<Pipe>);

    impl Duplex for Pipes {
        type Source = Pipe;

        fn source(&mut self, direction: Direction) -> &mut Pipe {
            &mut self.0[direction]
        }
    }

    const INFO: FlowInfo = FlowInfo {
        now: Timestamp::ZERO,
        ports: PerDirection::new(80, 40_000),
        transport: Transport::Tcp,
        prevents: false,
        may_turn: false,
    };

    /// The messages of a connection.
    fn conversation() -> Vec<(Direction, Vec<u8>)> {
        let request = |path: &str| format!("GET /{path} HTTP/1.1\r\nHost: pipe.example\r\n\r\n").into_bytes();
        let answer = |body: &str| {
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
        };
        vec![
            (Direction::ToServer, request("one")),
            (Direction::ToClient, answer("the first body")),
            (Direction::ToServer, [request("two"), request("three")].concat()),
            (Direction::ToClient, [answer("2"), answer(&"3".repeat(5_000))].concat()),
        ]
    }

    /// Each transaction's states, and the length of its reply's body.
    type Transactions = Vec<(PerDirection<u8>, u64)>;

    /// Reads a conversation from pipes, `piece` bytes at a time. Returns the states of all transactions, the
    /// number of bytes read on both sides, and whether both have ended.
    fn read_from_pipes(piece: usize) -> (Transactions, [u64; 2], bool) {
        let files = FileSettings { md5: true, ..FileSettings::default() };
        let engine = Engine::new(&SettingsMap::new(), files).unwrap();
        let mut app = AppLayer::default();
        let mut pipes = Pipes::default();
        for (direction, bytes) in conversation() {
            for bytes in bytes.chunks(piece) {
                pipes.0[direction].held.extend_from_slice(bytes);
                read(&engine, &mut app, &mut pipes, direction, &[], &INFO);
            }
        }
        for direction in Direction::BOTH {
            pipes.0[direction].closed = true;
            read(&engine, &mut app, &mut pipes, direction, &[], &INFO);
        }
        let parser = app.parser().unwrap();
        let transactions = parser.tx_range().filter_map(|id| {
            let tx = parser.tx(id)?;
            let body = tx.files_of(Direction::ToClient).iter().map(|file| file.size).sum();
            Some((
                PerDirection::new(tx.progress(Direction::ToServer), tx.progress(Direction::ToClient)),
                body,
            ))
        });
        let transactions: Vec<_> = transactions.collect();
        let ended = Direction::BOTH.iter().all(|direction| app.ended(*direction));
        (transactions, Direction::BOTH.map(|direction| pipes.0[direction].read), ended)
    }

    #[test]
    fn parsers_read_pipes_as_they_read_streams() {
        let lengths = Direction::BOTH.map(|direction| {
            conversation()
                .iter()
                .filter(|(of, _)| *of == direction)
                .map(|(_, bytes)| bytes.len() as u64)
                .sum()
        });
        let whole = read_from_pipes(usize::MAX);
        assert_eq!(whole.0.len(), 3, "one transaction a request");
        assert_eq!((whole.1, whole.2), (lengths, true), "all is read, and both sides have ended");
        // The result does not depend on the pieces of the writer's calls.
        for piece in [1, 2, 7, 64, 1_000] {
            assert_eq!(read_from_pipes(piece), whole, "pieces of {piece}");
        }
    }
}
