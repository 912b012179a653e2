// SPDX-License-Identifier: Apache-2.0
//! One case of dirty traffic: what it sends and when, and what it has heard.

use crate::client::{Client, Out};
use crate::receivers::Service;
use crate::server::{Call, Server};
use bartizan_testkit::packet::Answer;
use std::net::IpAddr;

/// One case.
pub struct Case {
    /// Of which family: its place in [`super::KINDS`], or none for a strategy of a list.
    pub kind: Option<usize>,
    /// Its number in it.
    pub number: u64,
    /// Who it is for the receiver.
    pub peer: (IpAddr, u16),
    /// To which receiver.
    pub service: Service,
    /// It must arrive: what was sent.
    pub good: Option<Vec<u8>>,
    /// What it is like, for people.
    pub note: String,
    /// Who is to call it, before it speaks.
    pub call: Option<Call>,
    /// Datagrams that it sends in fragments.
    pub fragmented: u64,
    /// When, whether sent by us, and the frame.
    pub frames: Vec<(u64, bool, Vec<u8>)>,
    pub(super) play: Play,
}

pub(super) enum Play {
    /// Frames at their times.
    Frames(Out),
    /// A connection.
    Tcp(Box<Client>),
    /// A connection of a client that is Linux.
    Server(Box<Server>),
}

impl Case {
    /// Frames that are to be sent now, and when it has to be asked again; none when it is over.
    pub fn speak(&mut self, now: u64, out: &mut Out) -> Option<u64> {
        match &mut self.play {
            Play::Frames(frames) => {
                out.extend(frames.drain(..).map(|(wait, frame)| (now + wait, frame)));
                None
            }
            Play::Tcp(client) => {
                client.speak(now, out);
                (!client.is_over()).then(|| client.due())
            }
            Play::Server(server) => {
                server.speak(now, out);
                (!server.is_over()).then(|| server.due())
            }
        }
    }

    /// Takes an answer.
    pub fn hear(&mut self, answer: &Answer, now: u64, out: &mut Out) {
        match &mut self.play {
            Play::Frames(_) => {}
            Play::Tcp(client) => client.hear(answer, now, out),
            Play::Server(server) => server.hear(answer, now, out),
        }
    }

    /// The receiver's application has answered.
    #[must_use]
    pub fn answered(&self) -> bool {
        matches!(&self.play, Play::Tcp(client) if client.heard > 0)
            || matches!(&self.play, Play::Server(server) if !server.heard.is_empty())
            || matches!(self.play, Play::Frames(_)) && self.frames.iter().any(|(_, ours, _)| !ours)
    }

    /// A server of ours has read this.
    #[must_use]
    pub fn holds(&self, bytes: &[u8]) -> bool {
        let Play::Server(server) = &self.play else { return false };
        // Half of a request is none.
        if self.service == Service::WebAnswers && !server.asked() {
            return false;
        }
        server.heard.windows(bytes.len()).any(|window| window == bytes)
    }

    /// It is a connection, or the try to make one.
    #[must_use]
    pub fn is_connection(&self) -> bool {
        !matches!(self.play, Play::Frames(_))
    }

    /// What it was like.
    #[must_use]
    pub fn story(&self) -> String {
        match &self.play {
            Play::Tcp(client) if !client.note.is_empty() => client.note.clone(),
            _ => self.note.clone(),
        }
    }
}
