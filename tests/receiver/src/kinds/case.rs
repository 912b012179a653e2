// SPDX-License-Identifier: Apache-2.0
//! One case of dirty traffic: the frames it sends, their times, and the answers it has received.

use crate::client::{Client, Out};
use crate::receivers::Service;
use crate::server::{Call, Server};
use crate::talk::Talk;
use bartizan_testkit::packet::Answer;
use std::net::IpAddr;

/// One case.
pub struct Case {
    /// Index of its family in [`super::KINDS`], or none for a strategy of a list.
    pub kind: Option<usize>,
    /// Number of the case in its family.
    pub number: u64,
    /// Address and port as the receiver sees them.
    pub peer: (IpAddr, u16),
    /// Receiver that the case is sent to.
    pub service: Service,
    /// Data that must arrive, or a text that a server must record, if the case is a good one.
    pub good: Option<Vec<u8>>,
    /// Description for people.
    pub note: String,
    /// Call that a client makes to this case before it sends anything.
    pub call: Option<Call>,
    /// Number of datagrams sent in fragments.
    pub fragmented: u64,
    /// Frames sent and received: time, whether the case sent it, and bytes.
    pub frames: Vec<(u64, bool, Vec<u8>)>,
    pub(super) play: Play,
}

pub(super) enum Play {
    /// Frames with their times.
    Frames(Out),
    /// A connection to a receiver.
    Tcp(Box<Client>),
    /// A connection of a Linux client to this server.
    Server(Box<Server>),
    /// A conversation over a socket of the kernel, which the player does not play.
    Talk(Box<Talk>),
}

impl Case {
    /// Puts the frames to be sent now into `out`. Returns the time of the next call, or `None` when the case
    /// is over.
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
            Play::Talk(_) => None,
        }
    }

    /// Handles a packet from the receiver.
    pub fn hear(&mut self, answer: &Answer, now: u64, out: &mut Out) {
        match &mut self.play {
            Play::Frames(_) | Play::Talk(_) => {}
            Play::Tcp(client) => client.hear(answer, now, out),
            Play::Server(server) => server.hear(answer, now, out),
        }
    }

    /// Whether the receiver's application has answered.
    #[must_use]
    pub fn answered(&self) -> bool {
        matches!(&self.play, Play::Tcp(client) if client.heard > 0)
            || matches!(&self.play, Play::Server(server) if !server.heard.is_empty())
            || matches!(&self.play, Play::Talk(talk) if talk.heard > 0)
            || matches!(self.play, Play::Frames(_)) && self.frames.iter().any(|(_, ours, _)| !ours)
    }

    /// The conversation, if the case is one.
    pub fn talk(&mut self) -> Option<&mut Talk> {
        if let Play::Talk(talk) = &mut self.play { Some(talk) } else { None }
    }

    /// Whether the case is a conversation, and whether that came to its end.
    #[must_use]
    pub fn talked(&self) -> Option<bool> {
        if let Play::Talk(talk) = &self.play { Some(talk.is_finished) } else { None }
    }

    /// Whether the case's own server has read these bytes.
    #[must_use]
    pub fn holds(&self, bytes: &[u8]) -> bool {
        let Play::Server(server) = &self.play else { return false };
        // An incomplete request does not count.
        if self.service == Service::WebAnswers && !server.asked() {
            return false;
        }
        server.heard.windows(bytes.len()).any(|window| window == bytes)
    }

    /// Whether the case is a connection, or an attempt to open one.
    #[must_use]
    pub fn is_connection(&self) -> bool {
        !matches!(self.play, Play::Frames(_))
    }

    /// Description of the case after it was played.
    #[must_use]
    pub fn story(&self) -> String {
        match &self.play {
            Play::Tcp(client) if !client.note.is_empty() => client.note.clone(),
            Play::Talk(talk) => format!("{}\n{}", self.note, talk.story),
            _ => self.note.clone(),
        }
    }
}
