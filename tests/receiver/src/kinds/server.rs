// SPDX-License-Identifier: Apache-2.0
//! A server that alters its own packets, towards a Linux client: the forbidden bytes are in the request,
//! which the server reads, or in the answer, which the client reads.

use super::case::Play;
use super::made::Made;
use super::payload;
use crate::receivers::Service;
use crate::server::{Call, Server};
use crate::strategy::{Strategy, random as trees};
use bartizan_testkit::random::Random;
use std::net::SocketAddr;

/// A case with a random strategy of the server's side.
pub(super) fn tree(made: &mut Made<'_>) -> Play {
    let strategy = trees::server_strategy(made.random);
    made.note = strategy.to_string();
    let web = made.random.percent(60);
    play(made, web, Some(strategy))
}

/// A connection with HTTP or a plain stream, whose server plays this strategy.
pub(super) fn play(made: &mut Made<'_>, web: bool, strategy: Option<Strategy>) -> Play {
    made.service = if web { Service::WebAnswers } else { Service::Answers };
    let asks = made.random.percent(50);
    let (request, answer) = if web {
        let (evil, good) = payload::pair(Service::Http, made.random);
        (if asks { evil } else { good }, page(!asks, made.random))
    } else {
        let (evil, good) = payload::pair(Service::Raw, made.random);
        let (worse, better) = payload::pair(Service::Raw, made.random);
        if asks { (evil, better) } else { (good, worse) }
    };
    made.note.push_str(if asks { " (a forbidden request)" } else { " (a forbidden answer)" });
    let mut server = new(made, answer);
    server.wanted = request.len();
    server.strategy = strategy;
    call(made, request, false);
    Play::Server(Box::new(server))
}

/// Creates the server of a case.
pub(super) fn new(made: &mut Made<'_>, answer: Vec<u8>) -> Server {
    let random = Random::new(made.random.draw());
    Server::new(made.ip.clone(), made.service.port(), answer, random)
}

/// Lets a client call the case's server.
pub(super) fn call(made: &mut Made<'_>, request: Vec<u8>, browser: bool) {
    let to = SocketAddr::new(made.ip.src, made.service.port());
    made.call = Some(Call { to, request, browser });
}

fn page(evil: bool, random: &mut Random) -> Vec<u8> {
    let length = random.within(8, 900);
    let mut body = random.letters(length);
    if evil {
        let at = random.below(length - 4);
        body[at..at + 4].copy_from_slice(b"evil");
    }
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    [head.as_bytes(), &body].concat()
}
