// SPDX-License-Identifier: Apache-2.0
//! The result of parsing messages, malformed ones above all, does not depend on segments: transactions,
//! events, buffers, files and records are the same.

use super::SPEC;
use crate::protocol::Transport;
use crate::suite::{Conversation, ConversationResult, Driver, Seed, cuts};
use bartizan_base::Direction;
use bartizan_testkit::random::Random;

const TS: Direction = Direction::ToServer;
const TC: Direction = Direction::ToClient;

fn play(conversation: Conversation<'_>, cuts: &[Vec<usize>]) -> ConversationResult {
    let mut driver = cuts::play(&SPEC, || Driver::new(&SPEC, Transport::Tcp), conversation, cuts);
    driver.finish();
    driver.outcome()
}

fn borrow(seed: &Seed) -> Vec<(Direction, &[u8])> {
    seed.iter().map(|(direction, bytes)| (*direction, bytes.as_slice())).collect()
}

fn assert_same(seed: &Seed, whole: &ConversationResult, cuts: &[Vec<usize>]) {
    let pieces = borrow(seed);
    let cut = play(&pieces, cuts);
    if *whole == cut {
        return;
    }
    let shown: Vec<_> = pieces.iter().map(|(d, b)| format!("{d:?} \"{}\"", b.escape_ascii())).collect();
    let lines = |outcome: &ConversationResult| -> Vec<String> {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let mut lines = vec![format!("failed {} {:?}", outcome.failed, outcome.events)];
        for tx in &outcome.transactions {
            let names: Vec<_> = tx.events.iter().map(|code| SPEC.events[usize::from(*code)]).collect();
            lines.push(format!("{:?} {names:?} {}", tx.progress, tx.records[0]));
            lines.extend(
                tx.buffers.iter().map(|(n, d, at, bytes)| format!("  {n} {d:?} {at} {}", text(bytes))),
            );
            lines.extend(
                tx.files
                    .iter()
                    .map(|(d, name, size, state)| format!("  file {d:?} {} {size} {state}", text(name))),
            );
        }
        lines
    };
    let (whole, cut) = (lines(whole), lines(&cut));
    let same = whole.iter().zip(&cut).take_while(|(one, other)| one == other).count();
    panic!(
        "{shown:#?}\ncut at {cuts:?}\nwhole {:#?}\ncut {:#?}",
        &whole[same.saturating_sub(1)..],
        &cut[same.saturating_sub(1)..]
    );
}

const REQUESTS: &[&[u8]] = &[
    b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n",
    b"\r\n\r\nGET /a HTTP/1.1\r\n\r\n",
    b"GET /a HTTP/1.0\n\n",
    b"GET /a HTTP/1.0\n\n\nGET /b HTTP/1.0\r\n\n",
    b"GET /a\r\n",
    b"GET /a\r\n\r\n  \r\n",
    b"GET /a\r\nHost: h\r\n\r\n",
    b"GET /a\r\n                    \r\n\r\n",
    b" GET\t/a\tHTTP/1.1\r\nHost : h\r\n x\r\n\ty\r\n\r\n",
    b"BREW /a HTTP/1.1\r\nHost: h\r\nno colon\r\n: v\r\n\r\n",
    b"GET /a HTTP/1.1\nHost: a\nK: V\n\r\r\n\n\r\n",
    b"GET /a HTTP/1.1\r\nab\n c: d\r\nHost: h\n\r\r\nx\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nunexpected\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3x\r\nContent-Length: 3\r\n\r\nabcdef",
    b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\nabcdef",
    b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n",
    b"POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n \r\n3 ;x\r\nabcjunk\r\n0\r\nT: u\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffffff\r\n",
    b"POST /u HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/form-data; boundary=B\r\nContent-Length: 121\r\n\r\n\
      --B\r\nnocolon\r\nContent-Disposition: form-data; filename=a\r\n\r\n--B\r\nContent-Disposition: form-data; \
      filename=b\r\n\r\nx--B--\r\n",
    b"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\nGET /in HTTP/1.1\r\nHost: h\r\n\r\n",
    b"HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n\r\nHEAD /b HTTP/1.1\r\nHost: h\r\n\r\n",
];

const RESPONSES: &[&[u8]] = &[
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\n\nbody",
    b"HTTP/1.1 200 OK\r\n\r\r\n body",
    b"HTTP/1.1 200 OK\rContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\nA: b\r\rbody without a line end",
    b"HTTP/1.1 200 OK\r\nA: b\r\n\rbody without a line end",
    b"HTTP/1.1 200 OK\r\nA: b\r\n\r \r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nA: b\r\n\r \t\n\r\nbody",
    b"HTTP/1.1 200 OK\r\nA: b\r\n\r\r\n\rbody",
    b"HTTP/1.1 200 OK\r\nA: b\r\n\r \n folded\r\n\r\nbody",
    b"HTTP/1.1 200 OK\nA: b\n\r\r\nbody",
    b"HTTP/1.1 200 OK\nA: b\n\r\r\n\r\nbody",
    b"HTTP/1.1 200 OK\nA: b\n\r\r\n\rbody",
    b"HTTP/1.1 200 OK\nA: b\n\n\rbody",
    b"HTTP/1.1 200 OK\n\rA: b\n\r\n\rbody",
    b"HTTP/1.1 200 OK\r\nab\n c: d\r\nK: V\r\n Content-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\nno colon\r\n: v\r\nX : y\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nA: b\r\nno token: c\r\n\0Content-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nno token: c\r\n T: u\r\n\tv w: x\r\n\r\n",
    b"HTTP/1.1 2oo OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcdef\r\nghi\r\n",
    b"HTTP/1.3 200\r\nContent-Length: 3\r\n\r\nabc\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
    b"no status line\r\nx\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"no status line\r\nmore of it\r\n",
    b"no status line",
    b"\r\n\n\r\rHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n3 x\r\nabcjunk\r\n\r\n0;e\r\nT: u\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\tnot chunked\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nfffffffffffffffffff\r\nx",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nnoHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 101 Up\r\nUpgrade: x\r\n\r\nsomething",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: zip, gzip\r\n\r\nplain",
];

/// Every request with a response, each response with a request, and some with more of both.
fn seeds() -> Vec<Seed> {
    let own = |pieces: &[(Direction, &[u8])]| pieces.iter().map(|(d, b)| (*d, b.to_vec())).collect();
    let (request, response) = (REQUESTS[0], RESPONSES[0]);
    let mut seeds: Vec<Seed> = Vec::new();
    let answered_twice = [response, response].concat();
    let rest = b"a HTTP/1.1\r\nHost: h\r\n\r\nunexpected\r\nmore\r\n";
    seeds.push(own(&[(TS, b"GET /"), (TC, &answered_twice), (TS, rest)]));
    for one in REQUESTS {
        seeds.push(own(&[(TS, one), (TC, response)]));
        seeds.push(own(&[(TS, one), (TC, response), (TS, one), (TC, response)]));
    }
    for one in RESPONSES {
        seeds.push(own(&[(TS, request), (TC, one)]));
        seeds.push(own(&[(TC, one)]));
        seeds.push(own(&[(TS, request), (TC, one), (TS, request), (TC, response)]));
    }
    for (index, one) in REQUESTS.iter().enumerate() {
        let other = RESPONSES[index % RESPONSES.len()];
        seeds.push(own(&[(TS, one), (TS, request), (TC, other), (TC, response)]));
    }
    seeds
}

#[test]
fn every_single_cut_gives_the_same() {
    for seed in seeds() {
        let whole = play(&borrow(&seed), &vec![Vec::new(); seed.len()]);
        for (index, (_, piece)) in seed.iter().enumerate() {
            for at in 1..piece.len() {
                let mut cuts = vec![Vec::new(); seed.len()];
                cuts[index].push(at);
                assert_same(&seed, &whole, &cuts);
            }
        }
        let every: Vec<Vec<usize>> = seed.iter().map(|(_, piece)| (1..piece.len()).collect()).collect();
        assert_same(&seed, &whole, &every);
    }
}

#[test]
fn a_stream_that_ends_early_gives_the_same_however_it_was_cut() {
    let play_to = |seed: &Seed, end: usize| {
        let mut seed = seed.clone();
        let last = seed.last_mut().expect("a piece");
        last.1.truncate(end);
        let whole = play(&borrow(&seed), &vec![Vec::new(); seed.len()]);
        let mut cuts = vec![Vec::new(); seed.len()];
        let last = cuts.len() - 1;
        cuts[last] = (1..end).collect();
        assert_same(&seed, &whole, &cuts);
        // Few bytes after a line are undecided: the effect of a cut on the rest appears near the end.
        for at in end.saturating_sub(24).max(1)..end {
            cuts[last] = vec![at];
            assert_same(&seed, &whole, &cuts);
        }
    };
    let requests = REQUESTS.iter().map(|one| vec![(TS, one.to_vec())]);
    let answered = RESPONSES.iter().map(|one| vec![(TS, REQUESTS[0].to_vec()), (TC, one.to_vec())]);
    let alone = RESPONSES.iter().map(|one| vec![(TC, one.to_vec())]);
    for seed in requests.chain(answered).chain(alone) {
        let length = seed.last().map_or(0, |(_, bytes)| bytes.len());
        for end in 1..=length {
            play_to(&seed, end);
        }
    }
}

#[test]
fn a_line_that_is_no_status_line_is_a_response_if_another_request_follows() {
    let (request, line) = (REQUESTS[0].to_vec(), b"no status line\r\n".to_vec());
    let seed = vec![(TS, request.clone()), (TC, line), (TS, request), (TC, RESPONSES[0].to_vec())];
    let whole = play(&borrow(&seed), &vec![Vec::new(); 4]);
    let bodies: Vec<_> = whole
        .transactions
        .iter()
        .flat_map(|tx| &tx.buffers)
        .filter(|(name, ..)| *name == "http.response_body")
        .map(|(.., bytes)| bytes.as_slice())
        .collect();
    assert_eq!(bodies, [b"no status line\r\n".as_slice(), b"ok"]);
}

/// Receivers of HTTP/0.9 read such a response as it comes.
#[test]
fn prevention_shows_what_has_no_status_line_before_it_leaves() {
    let shown = |pieces: &[&[u8]]| {
        let mut settings = bartizan_base::SettingsMap::new();
        settings.set("inline", "yes");
        settings.set("strict", "yes");
        let mut driver = Driver::with(&SPEC, Transport::Tcp, &settings);
        driver.send(TS, REQUESTS[0]);
        let mut seen = Vec::new();
        for piece in pieces {
            driver.send(TC, piece);
            let outcome = driver.outcome();
            let bodies = outcome.transactions.iter().flat_map(|tx| &tx.buffers);
            seen.push(
                bodies
                    .filter(|(name, ..)| *name == "http.response_body")
                    .map(|(.., bytes)| bytes.len())
                    .sum(),
            );
        }
        (seen, driver.outcome().failed)
    };
    assert_eq!(shown(&[b"evil payload\r\n"]), (vec![14], false));
    assert_eq!(shown(&[b"evil", b" pay", b"load"]), (vec![4, 8, 12], false));
    assert_eq!(shown(&[b"a\r\nb\r\n", b"ev\r\n", b"HTTP", b"x"]), (vec![6, 10, 10, 10], true));
    // Receivers that search for a status line after it read another message.
    assert_eq!(shown(&[b"junk\r\nHTTP/1.1 200 OK\r\n\r\n"]), (vec![6], true));
    assert_eq!(shown(&[b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"]), (vec![2], false));
    assert_eq!(shown(&[b"HT", b"TP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"]), (vec![0, 2], false));
}

#[test]
fn prevention_shows_what_stands_behind_an_answer_before_it_leaves() {
    let shown = |requests: &[u8], behind: &[&[u8]]| {
        let mut settings = bartizan_base::SettingsMap::new();
        settings.set("inline", "yes");
        settings.set("strict", "yes");
        let mut driver = Driver::with(&SPEC, Transport::Tcp, &settings);
        driver.send(TS, requests);
        let mut first = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec();
        first.extend_from_slice(behind[0]);
        driver.send(TC, &first);
        behind[1..].iter().for_each(|piece| driver.send(TC, piece));
        let outcome = driver.outcome();
        let bodies = outcome.transactions.iter().flat_map(|tx| &tx.buffers);
        let bodies = bodies.filter(|(name, ..)| *name == "http.response_body");
        bodies.map(|(.., bytes)| String::from_utf8_lossy(bytes).into_owned()).collect::<Vec<_>>()
    };
    let get = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n".as_slice();
    let both = [get, b"GET /evil\r\n\r\n"].concat();
    assert_eq!(shown(&both, &[b"<evil>"]), ["ok", "<evil>"]);
    assert_eq!(shown(&both, &[b"<ev", b"il>"]), ["ok", "<evil>"]);
    assert_eq!(shown(get, &[b"<evil>"]), ["ok<evil>"]);
}

/// Clients read these responses differently: some read a body where others read none, or another one.
#[test]
fn prevention_lets_no_answer_pass_whose_body_ends_at_different_places() {
    let failed = |request: &str, head: &str| {
        let mut settings = bartizan_base::SettingsMap::new();
        settings.set("inline", "yes");
        settings.set("strict", "yes");
        let mut driver = Driver::with(&SPEC, Transport::Tcp, &settings);
        driver.send(TS, request.as_bytes());
        driver.send(TC, format!("HTTP/1.1 {head}\r\n\r\nbody").as_bytes());
        driver.outcome().failed
    };
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for length in ["-1", "+4", "4x", "x4", "4, 5", "0x4", "4;", "4 4", "4,"] {
        assert!(failed(get, &format!("200 OK\r\nContent-Length: {length}")), "{length}");
        let post = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\nbody");
        assert!(failed(&post, "200 OK\r\nContent-Length: 4"), "{length}");
    }
    for length in ["4", "4, 4", " 4 ", "04", "4\r\nContent-Length: 4"] {
        assert!(!failed(get, &format!("200 OK\r\nContent-Length: {length}")), "{length}");
    }
    let switch = "101 Switching Protocols\r\nUpgrade: foo\r\nConnection: Upgrade";
    let asks = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n";
    assert!(failed(get, switch) && failed(get, &format!("{switch}\r\nContent-Length: 4")));
    assert!(!failed(asks, switch));
}

#[test]
fn bytes_that_begin_no_message_are_the_last_ones_body_or_a_message_of_their_own() {
    let request = [REQUESTS[0], b"unexpected\r\n"].concat();
    let whole = play(&[(TS, &request)], &[Vec::new()]);
    assert_eq!(whole.transactions.len(), 1);
    assert_eq!(whole.transactions[0].events, [super::events::REQUEST_BODY_UNEXPECTED]);
    let mut driver = Driver::new(&SPEC, Transport::Tcp);
    driver.send(TS, REQUESTS[0]);
    driver.send(TS, b"unexpected\r\n");
    assert_eq!(driver.outcome().transactions.len(), 2);
    // That cut is left out, the others are not.
    let cuts = [REQUESTS[0].len() - 1, REQUESTS[0].len(), REQUESTS[0].len() + 1];
    assert_eq!(play(&[(TS, &request)], &[cuts.to_vec()]), whole);
}

#[test]
fn whether_a_body_is_a_bomb_does_not_depend_on_cuts() {
    let mut random = Random::new(1);
    let mut body = vec![0u8; 2 << 20];
    body.extend((0..4096).map(|_| random.below(256) as u8));
    let body = super::tests::gzip(&super::tests::gzip(&body));
    let mut response =
        format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: {}\r\n\r\n", body.len())
            .into_bytes();
    response.extend_from_slice(&body);
    let seed = vec![(TS, REQUESTS[0].to_vec()), (TC, response)];
    let whole = play(&borrow(&seed), &[Vec::new(), Vec::new()]);
    assert_eq!(whole.transactions[0].events, [super::events::COMPRESSION_BOMB]);
    for step in [1, 7, 511, 1448] {
        let cuts: Vec<usize> = (1..seed[1].1.len()).filter(|at| at % step == 0).collect();
        assert_same(&seed, &whole, &[Vec::new(), cuts]);
    }
}

#[test]
fn files_larger_than_the_limit_are_truncated_however_they_are_cut() {
    let body = [b'x'; 5000];
    let response = [b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n".as_slice(), &body].concat();
    let seed = vec![(TS, REQUESTS[0].to_vec()), (TC, response)];
    let whole = play(&borrow(&seed), &[Vec::new(), Vec::new()]);
    assert_eq!(whole.transactions[0].files, [(TC, b"/a".to_vec(), 4096, "Truncated".to_owned())]);
    for at in [500, 4138, 4139, 4140, 5000] {
        assert_same(&seed, &whole, &[Vec::new(), vec![at]]);
    }
}

/// Rounds of damage.
const ROUNDS: usize = 4000;

#[test]
fn damaged_messages_cut_at_random_give_the_same() {
    let rounds = std::env::var("CUT_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
    let first = std::env::var("CUT_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let seeds = seeds();
    let mut random = Random::new(first);
    for _ in 0..rounds {
        let mut seed = seeds[random.below(seeds.len())].clone();
        for _ in 0..random.below(5) {
            let piece = random.below(seed.len());
            let bytes = &mut seed[piece].1;
            let at = random.below(bytes.len());
            let odd = b"\r\n \t:\0;\r\nH0x"[random.below(12)];
            match random.below(3) {
                0 => bytes.insert(at, odd),
                1 if at < bytes.len() => bytes[at] = odd,
                _ if at < bytes.len() => drop(bytes.remove(at)),
                _ => {}
            }
        }
        if random.below(3) == 0 {
            let last = &mut seed.last_mut().expect("a piece").1;
            last.truncate(1 + random.below(last.len()));
        }
        let whole = play(&borrow(&seed), &vec![Vec::new(); seed.len()]);
        for most in [2, 30] {
            let cuts: Vec<Vec<usize>> = seed
                .iter()
                .map(|(_, piece)| {
                    let mut at: Vec<usize> =
                        (0..random.below(most) + 1).map(|_| 1 + random.below(piece.len())).collect();
                    at.sort_unstable();
                    at.dedup();
                    at
                })
                .collect();
            assert_same(&seed, &whole, &cuts);
        }
    }
}
