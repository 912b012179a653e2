// SPDX-License-Identifier: Apache-2.0
//! Queries about the flows and functions of live workers: flows per level and why not a lower one, the state
//! of single flows, the health of functions. Orders about functions, and observers of them, take the same
//! path.
//!
//! A flow belongs to its worker, so the worker itself answers, between two batches: it walks its table in
//! parts of [`PART`] entries, one part at a time, and one query after the other, so that traffic waits for
//! one part at most; a worker without traffic wakes itself for the next part. Without a query the cost is one
//! load per check. The querying thread has a [`Collector`], which returns the answers and the workers that
//! have not answered.
//!
//! The table changes between two parts: a flow that begins or ends meanwhile is counted or not; a flow that
//! moves to another worker may be counted twice or not at all.
//!
//! Not done: what functions know of a flow beyond its disposition; flows that have ended (see their records).

use crate::views::live::{LevelsNow, LiveFlow};
use bartizan_base::WorkerId;
use bartizan_flow::FlowKey;
use bartizan_stages::lifecycle::{FunctionNow, LifecycleCommand};
use bartizan_stages::observers::Observers;
use core::net::IpAddr;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Entries of a flow table that a worker visits between two batches.
pub const PART: u32 = 256;
/// Most queries that wait for one worker while it answers another one.
pub const QUESTIONS: usize = 16;
/// Most flows that one worker describes; further ones are counted.
pub const FLOWS_TOLD: usize = 32;

/// Selection of flows. An absent criterion fits all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowsWanted {
    /// Number of the flow in events.
    pub number: Option<u64>,
    /// IP protocol.
    pub protocol: Option<u8>,
    /// Ends of the flow, whichever side opened it; without a port, any port.
    pub ends: [Option<(IpAddr, Option<u16>)>; 2],
}

impl FlowsWanted {
    /// Whether a flow with this key can fit.
    pub(crate) fn fits_key(&self, key: &FlowKey) -> bool {
        let ends = [(key.source(), key.source_port()), (key.destination(), key.destination_port())];
        self.fits_ends(key.protocol(), ends)
    }

    /// Whether a flow of a protocol between two ends can fit.
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

/// A query or an order to all workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Number of flows by level.
    Levels,
    /// Description of the selected flows.
    Flows(FlowsWanted),
    /// Health of the functions of the running generation.
    Functions,
    /// An order about a function; the answer is the function's health afterwards.
    Order(Arc<str>, LifecycleCommand),
    /// Sets observers of functions, in place of the present ones.
    Observe(Observers),
}

/// Answer of one worker, or of several together.
#[derive(Clone, Debug, Default)]
pub struct WorkerReply {
    /// Answer to [`Question::Levels`].
    pub levels: LevelsNow,
    /// Answer to [`Question::Flows`], at most [`FLOWS_TOLD`] per worker.
    pub flows: Vec<LiveFlow>,
    /// Selected flows that are left out.
    pub omitted: u64,
    /// Answer to [`Question::Functions`]: all functions; to [`Question::Order`]: the named one, if the
    /// worker's generation has it.
    pub functions: Vec<(WorkerId, FunctionNow)>,
}

/// A query on its way to a worker.
#[derive(Debug)]
pub(crate) struct PendingInquiry {
    pub(crate) question: Question,
    pub(crate) to: Sender<(WorkerId, WorkerReply)>,
}

/// The query that a worker is answering.
#[derive(Debug)]
pub(crate) struct Inquiry {
    pub(crate) pending: PendingInquiry,
    /// The entry at which the walk continues.
    pub(crate) at: u32,
    pub(crate) answer: WorkerReply,
}

/// Collects the answers of all workers.
#[derive(Debug)]
pub struct Collector {
    from: Receiver<(WorkerId, WorkerReply)>,
    waited_for: Vec<WorkerId>,
    answer: WorkerReply,
}

/// Prepares a query for workers; returns a copy for each, and the collector.
pub(crate) fn prepare(question: Question, workers: u16) -> (Vec<PendingInquiry>, Collector) {
    let (to, from) = channel();
    let asked = (0..workers).map(|_| PendingInquiry { question: question.clone(), to: to.clone() }).collect();
    let waited_for = (0..workers).map(WorkerId).collect();
    (asked, Collector { from, waited_for, answer: WorkerReply::default() })
}

impl Collector {
    /// Takes answers until all workers have answered, or no time is `left`. Returns whether all have, or can
    /// no more.
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

    fn add(&mut self, answer: WorkerReply) {
        self.answer.levels.add(&answer.levels);
        self.answer.flows.extend(answer.flows);
        self.answer.omitted += answer.omitted;
        self.answer.functions.extend(answer.functions);
    }

    /// The merged answers, and the workers that have not answered.
    #[must_use]
    pub fn finish(mut self) -> (WorkerReply, Vec<WorkerId>) {
        self.answer.flows.sort_by_key(|flow| (flow.worker, flow.flow_id));
        self.answer.functions.sort_by_key(|(worker, now)| (now.id, *worker));
        (self.answer, self.waited_for)
    }
}

/// Queries that wait in a worker's seat, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Waiting(VecDeque<PendingInquiry>);

impl Waiting {
    /// Appends a query. `false`: no room.
    pub(crate) fn put(&mut self, pending: PendingInquiry) -> bool {
        let fits = self.0.len() < QUESTIONS;
        if fits {
            self.0.push_back(pending);
        }
        fits
    }

    /// The next query, and whether there are more.
    pub(crate) fn take(&mut self) -> (Option<Inquiry>, bool) {
        let next =
            self.0.pop_front().map(|asked| Inquiry { pending: asked, at: 0, answer: WorkerReply::default() });
        (next, !self.0.is_empty())
    }
}
