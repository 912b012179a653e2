// SPDX-License-Identifier: Apache-2.0
//! Questions about the flows of live workers: which level handles how many and why not a lower one, how
//! single flows stand, and how functions stand; orders about functions, and observers of them, come the same
//! way.
//!
//! A flow belongs to its worker, which therefore answers itself, between two batches: it walks its table in
//! parts of [`PART`] entries, one part at each look, and one question after the other, so that traffic waits
//! for one part at most; a worker without traffic wakes itself for the next. While nobody asks it costs one
//! load at each look. Who asks has a [`Collector`], which says what came and who has not answered.
//!
//! The table changes between two parts: a flow that begins or ends meanwhile is counted or not, one that
//! moves to another worker perhaps twice or not at all.
//!
//! Not done: what functions know of a flow beyond its standing; flows that have ended (their records say it).

use crate::views::live::{LevelsNow, LiveFlow};
use bartizan_base::WorkerId;
use bartizan_flow::FlowKey;
use bartizan_stages::lifecycle::{Act, FunctionNow};
use bartizan_stages::observers::Observers;
use core::net::IpAddr;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Entries of a flow table that a worker looks at between two batches.
pub const PART: u32 = 256;
/// Questions that can wait for one worker while it answers another one.
pub const QUESTIONS: usize = 16;
/// Flows that one worker tells of; more are counted.
pub const FLOWS_TOLD: usize = 32;

/// Which flows are asked about. What is left out fits all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowsWanted {
    /// Number of the flow in events.
    pub number: Option<u64>,
    /// IP protocol.
    pub protocol: Option<u8>,
    /// Its ends, whoever opened it, with a port or any.
    pub ends: [Option<(IpAddr, Option<u16>)>; 2],
}

impl FlowsWanted {
    /// Whether the flow of a key may be meant.
    pub(crate) fn fits_key(&self, key: &FlowKey) -> bool {
        let ends = [(key.source(), key.source_port()), (key.destination(), key.destination_port())];
        self.fits_ends(key.protocol(), ends)
    }

    /// Whether a flow of a protocol between two ends may be meant.
    #[must_use]
    pub fn fits_ends(&self, protocol: u8, ends: [(IpAddr, u16); 2]) -> bool {
        let end = |wanted: Option<(IpAddr, Option<u16>)>, (address, port): (IpAddr, u16)| {
            wanted.is_none_or(|(a, p)| a == address && p.is_none_or(|p| p == port))
        };
        let [a, b] = self.ends;
        let [client, server] = ends;
        self.protocol.is_none_or(|asked| asked == protocol)
            && (end(a, client) && end(b, server) || end(a, server) && end(b, client))
    }
}

/// A question to all workers, or an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// How flows are handled.
    Levels,
    /// How some flows stand.
    Flows(FlowsWanted),
    /// How the functions of the running generation stand.
    Functions,
    /// To do something with a function, of which the answer tells how it stands then.
    Order(Arc<str>, Act),
    /// To put these observers around functions, in the place of those that were there.
    Observe(Observers),
}

/// What a worker has to say.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// To [`Question::Levels`].
    pub levels: LevelsNow,
    /// To [`Question::Flows`], [`FLOWS_TOLD`] at most.
    pub flows: Vec<LiveFlow>,
    /// Flows that fit and are left out.
    pub omitted: u64,
    /// To [`Question::Functions`] all functions, to [`Question::Order`] the one that was meant if the
    /// worker's generation has it.
    pub functions: Vec<(WorkerId, FunctionNow)>,
}

/// A question on its way to a worker.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) question: Question,
    pub(crate) to: Sender<(WorkerId, Answer)>,
}

/// The question that a worker is answering.
#[derive(Debug)]
pub(crate) struct Inquiry {
    pub(crate) asked: Asked,
    /// The entry where it goes on.
    pub(crate) at: u32,
    pub(crate) answer: Answer,
}

/// Who asked all workers, and takes their answers.
#[derive(Debug)]
pub struct Collector {
    from: Receiver<(WorkerId, Answer)>,
    waited_for: Vec<WorkerId>,
    answer: Answer,
}

/// One question, made ready for workers, and who collects the answers.
pub(crate) fn ask(question: Question, workers: u16) -> (Vec<Asked>, Collector) {
    let (to, from) = channel();
    let asked = (0..workers).map(|_| Asked { question: question.clone(), to: to.clone() }).collect();
    let waited_for = (0..workers).map(WorkerId).collect();
    (asked, Collector { from, waited_for, answer: Answer::default() })
}

impl Collector {
    /// Takes what comes until all have answered, or no time is `left`. Whether all have, or can no more.
    pub fn collect(&mut self, left: impl Fn() -> Duration) -> bool {
        while !self.waited_for.is_empty() {
            match self.from.recv_timeout(left()) {
                Ok((worker, answer)) => {
                    self.waited_for.retain(|other| *other != worker);
                    self.add(answer);
                }
                Err(RecvTimeoutError::Timeout) => return false,
                // The run ends.
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
        true
    }

    fn add(&mut self, answer: Answer) {
        self.answer.levels.add(&answer.levels);
        self.answer.flows.extend(answer.flows);
        self.answer.omitted += answer.omitted;
        self.answer.functions.extend(answer.functions);
    }

    /// What came, and the workers that have not answered.
    #[must_use]
    pub fn finish(mut self) -> (Answer, Vec<WorkerId>) {
        self.answer.flows.sort_by_key(|flow| (flow.worker, flow.flow_id));
        self.answer.functions.sort_by_key(|(worker, now)| (now.id, *worker));
        (self.answer, self.waited_for)
    }
}

/// Questions that wait in a worker's seat, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Waiting(VecDeque<Asked>);

impl Waiting {
    /// Puts one there. `false`: there is no room.
    pub(crate) fn put(&mut self, asked: Asked) -> bool {
        let fits = self.0.len() < QUESTIONS;
        if fits {
            self.0.push_back(asked);
        }
        fits
    }

    /// The next one, and whether there are more.
    pub(crate) fn take(&mut self) -> (Option<Inquiry>, bool) {
        let next = self.0.pop_front().map(|asked| Inquiry { asked, at: 0, answer: Answer::default() });
        (next, !self.0.is_empty())
    }
}
