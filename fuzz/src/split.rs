// SPDX-License-Identifier: Apache-2.0
//! A stream parser sees the same conversation whole and cut into pieces: what can be seen of both is the same.
//!
//! HTTP is held to that for what clients send, in conversations without events: what libhtp, and so this parser, makes of
//! malformed messages depends on how the data comes (a response that does not begin like one is a body from there on; an empty
//! line behind a request belongs to it, or opens a transaction of which nothing is ever seen if it comes by itself; what is
//! no method belongs to the request before it, or is a request if it comes by itself).

use crate::planted;
use crate::protocol::{Driver, choices, pieces};
use crate::take::Take;
use bartizan_applayer::protocol::Transport;

/// Plays it twice.
pub fn run(data: &[u8]) {
    let choices: Vec<_> =
        choices().into_iter().filter(|(_, transport)| *transport == Transport::Tcp).collect();
    let mut take = Take(data);
    let (spec, transport) = choices[usize::from(take.byte()) % choices.len()];
    let cuts: Vec<usize> = take.bytes(4).iter().map(|cut| usize::from(*cut) % 40 + 1).collect();
    let pieces = pieces(&mut take);
    if cuts.is_empty() {
        return;
    }
    let (mut whole, mut cut) = (Driver::new(spec, transport), Driver::new(spec, transport));
    let mut lengths = cuts.iter().copied().cycle();
    for (direction, bytes, _) in &pieces {
        whole.send(*direction, bytes);
        let mut rest = *bytes;
        while let Some((head, tail)) = lengths.next().and_then(|len| rest.split_at_checked(len)) {
            cut.send(*direction, head);
            rest = tail;
        }
        cut.send(*direction, rest);
    }
    whole.finish();
    cut.finish();
    let (whole, cut) = (whole.outcome(), cut.outcome());
    if spec.name != "http" {
        assert_eq!(whole, cut, "{} cut at {cuts:?}", spec.name);
    } else if whole.iter().chain(&cut).all(is_well_formed) {
        assert_eq!(requests(&whole), requests(&cut), "{} cut at {cuts:?}", spec.name);
    }
    let record = |line: &String| line.contains("\"http_method\":\"G") && !line.contains("GET");
    planted(spec.name == "http" && whole.iter().any(record));
}

/// Methods that libhtp takes for a request's beginning, wherever it comes.
const METHODS: [&[u8]; 4] = [b"GET", b"POST", b"PUT", b"HEAD"];

/// Whether a line of the outcome says of no event and of no method that might be something else.
fn is_well_formed(line: &String) -> bool {
    let method = line.strip_prefix("http.method 0 ");
    (!line.starts_with('[') || line == "[]")
        && method.is_none_or(|name| METHODS.iter().any(|known| format!("{known:?}") == name))
}

/// A request of which nothing but empty lines came.
const NOTHING: &str = "ToServer 1";

/// What can be seen of the requests.
fn requests(outcome: &[String]) -> Vec<&String> {
    let mut request = false;
    let inside = |line: &&String| {
        request = line.starts_with("ToServer") || request && !line.starts_with("ToClient");
        request && *line != NOTHING && !line.starts_with('{') && !line.starts_with('[')
    };
    outcome.iter().filter(inside).collect()
}
