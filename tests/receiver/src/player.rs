// SPDX-License-Identifier: Apache-2.0
//! Plays cases, many concurrently, over a raw port.

use crate::kinds::Case;
use crate::net::{Problem, problem};
use crate::receivers::Callers;
use bartizan_ports::{Batch, InlineOptions, InlinePort, Port, wait_any};
use bartizan_testkit::packet::parse;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Concurrent cases.
const TOGETHER: usize = 192;
/// A frame: its time, its sequence number among frames of that time, and the index of its case.
type Waiting = (u64, u64, usize, Vec<u8>);
/// The largest number of frames kept per case.
const KEPT: usize = 400;

/// The port and the clock that play cases.
pub struct Player {
    port: InlinePort,
    batch: Batch,
    callers: Callers,
    begun: Instant,
    /// Frames sent.
    pub sent: u64,
    /// Frames that could not be sent.
    pub unsent: u64,
    /// Frames among `unsent` that found no room in the ring.
    pub crowded: u64,
}

impl Player {
    /// Opens the port in this thread's network namespace.
    ///
    /// # Errors
    /// As [`InlinePort::open`].
    pub fn open(callers: Callers) -> Result<Self, Problem> {
        let port =
            InlinePort::open("a0", &InlineOptions::default()).map_err(|error| problem(error.to_string()))?;
        Ok(Player {
            port,
            batch: Batch::with_capacity(256),
            callers,
            begun: Instant::now(),
            sent: 0,
            unsent: 0,
            crowded: 0,
        })
    }

    fn now(&self) -> u64 {
        // 0 means that a case has not begun.
        1 + self.begun.elapsed().as_millis() as u64
    }

    /// Plays all cases, until they are over or `stop` returns true.
    ///
    /// # Errors
    /// If the port fails.
    pub fn play(&mut self, cases: &mut [Case], stop: impl Fn() -> bool) -> Result<(), Problem> {
        let by_peer: HashMap<(IpAddr, u16), usize> =
            cases.iter().enumerate().map(|(at, case)| (case.peer, at)).collect();
        // Pending actions: time, sequence number, and the case or the frame.
        let mut speaks: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let mut frames: BinaryHeap<Reverse<Waiting>> = BinaryHeap::new();
        let (mut next, mut active, mut order) = (0, 0usize, 0u64);
        let mut over = vec![false; cases.len()];
        // Time of each case's next action; other entries of the heap are stale.
        let mut wake = vec![0; cases.len()];
        let mut out = Vec::new();
        loop {
            let mut idle = true;
            self.port.receive(&mut self.batch).map_err(|error| problem(error.to_string()))?;
            let now = self.now();
            for index in self.batch.indices() {
                let Some(bytes) = self.batch.bytes(index) else { continue };
                let Some(answer) = parse(bytes) else { continue };
                let Some(&at) = by_peer.get(&(answer.dst, answer.segment.dport)) else { continue };
                idle = false;
                keep(&mut cases[at], now, false, bytes);
                cases[at].hear(&answer, now, &mut out);
                out.drain(..).for_each(|(due, frame)| {
                    order += 1;
                    frames.push(Reverse((due, order, at, frame)));
                });
                if !over[at] {
                    wake[at] = now;
                    speaks.push(Reverse((now, at)));
                }
            }
            self.batch.clear();
            while active < TOGETHER && next < cases.len() {
                speaks.push(Reverse((now, next)));
                wake[next] = now;
                (next, active) = (next + 1, active + 1);
            }
            while let Some(&Reverse((due, at))) = speaks.peek()
                && due <= now
            {
                speaks.pop();
                if over[at] || wake[at] != due {
                    continue;
                }
                idle = false;
                if let Some(call) = cases[at].call.take() {
                    self.callers.call(call);
                }
                match cases[at].speak(now, &mut out) {
                    Some(due) => {
                        wake[at] = due.max(now + 1);
                        speaks.push(Reverse((wake[at], at)));
                    }
                    None => {
                        over[at] = true;
                        active -= 1;
                    }
                }
                out.drain(..).for_each(|(due, frame)| {
                    order += 1;
                    frames.push(Reverse((due, order, at, frame)));
                });
            }
            while frames.peek().is_some_and(|Reverse((due, ..))| *due <= now) {
                let Some(Reverse((_, _, at, frame))) = frames.pop() else { break };
                idle = false;
                self.send(&frame)?;
                keep(&mut cases[at], now, true, &frame);
            }
            self.port.flush().map_err(|error| problem(error.to_string()))?;
            if active == 0 && next == cases.len() && frames.is_empty() || stop() {
                return Ok(());
            }
            if idle {
                let _ = wait_any(&mut [&mut self.port], None, Duration::ZERO, Duration::from_millis(1));
            }
        }
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), Problem> {
        for turn in 0..1000 {
            self.crowded += u64::from(turn == 999);
            match self.port.transmit_frame(frame) {
                Ok(()) => {
                    self.sent += 1;
                    return Ok(());
                }
                Err(bartizan_ports::SendRefusal::RingFull) => {
                    self.port.flush().map_err(|error| problem(error.to_string()))?;
                }
                // Too long or too short for the link: part of the dirty traffic.
                Err(_) => break,
            }
        }
        self.unsent += 1;
        Ok(())
    }
}

fn keep(case: &mut Case, now: u64, ours: bool, frame: &[u8]) {
    if case.frames.len() < KEPT {
        case.frames.push((now, ours, frame.to_vec()));
    }
}
