// SPDX-License-Identifier: Apache-2.0
//! Running a worker on live ports: inline between two of them, or passive on one.
//!
//! Generations are swapped between batches; an idle link is woken for it, so a swap never waits for traffic. A turn
//! takes what is there and never waits for more; one send call per batch and port.

use crate::chain::Chains;
use crate::normaliser::{self, NormaliserCounters};
use crate::record::Recorder;
use crate::worker::{Frame, Worker};
use bartizan_base::{Generation, LinkId, Verdict};
use bartizan_packet::{DecodeOutput, Decoder, LinkType, PacketView};
use bartizan_ports::{Batch, Disposition, InlinePair, PassivePort, Port, PortError, Side, Waker, wait_any};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How a worker is steered from outside: stop, swap generations, and what it runs.
pub struct Control {
    stop: AtomicBool,
    pending: Mutex<Option<Arc<Chains>>>,
    has_pending: AtomicBool,
    running: AtomicU64,
    waker: Waker,
}

impl Control {
    /// A control for one worker.
    ///
    /// # Errors
    /// The system has no event descriptor left.
    pub fn new() -> std::io::Result<Self> {
        Ok(Control {
            stop: AtomicBool::new(false),
            pending: Mutex::new(None),
            has_pending: AtomicBool::new(false),
            running: AtomicU64::new(0),
            waker: Waker::new()?,
        })
    }

    /// Ends the worker at the next batch boundary.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Whether the end was asked for.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Hands over another generation; it runs from the next batch boundary on.
    pub fn swap(&self, chains: Arc<Chains>) {
        if let Ok(mut pending) = self.pending.lock() {
            *pending = Some(chains);
        }
        self.has_pending.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// The generation that the worker runs: what really happens, not what was asked for.
    #[must_use]
    pub fn running(&self) -> Generation {
        Generation(self.running.load(Ordering::Acquire))
    }

    /// At a batch boundary: takes a pending generation.
    fn take(&self, worker: &mut Worker) {
        if self.has_pending.swap(false, Ordering::AcqRel)
            && let Ok(mut pending) = self.pending.lock()
            && let Some(chains) = pending.take()
        {
            worker.enter_generation(chains);
        }
        self.running.store(worker.generation().0, Ordering::Release);
    }
}

/// How a worker uses its ports.
#[derive(Clone, Copy, Debug)]
pub struct LiveOptions {
    /// Frames of one turn at most.
    pub batch: usize,
    /// How long to look before sleeping, where a core is free.
    pub spin: Duration,
    /// Longest sleep: timeouts of flows are looked at that often on an idle link.
    pub tick: Duration,
}

impl Default for LiveOptions {
    fn default() -> Self {
        LiveOptions { batch: 256, spin: Duration::from_micros(50), tick: Duration::from_millis(100) }
    }
}

/// What a live run counted beyond the worker's own counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveCounters {
    /// What the normaliser did.
    pub normaliser: NormaliserCounters,
    /// Turns that brought frames.
    pub turns: u64,
}

/// Runs inline between two ports until the control says stop.
///
/// # Errors
/// A port fails for good.
pub fn run_inline(
    worker: &mut Worker,
    pair: &mut InlinePair,
    link: LinkId,
    options: &LiveOptions,
    control: &Control,
    recorder: &mut dyn Recorder,
) -> Result<LiveCounters, PortError> {
    let mut counters = LiveCounters::default();
    let mut batch = Batch::with_capacity(options.batch);
    let mut decoder = Rejecter::default();
    while !control.stopping() {
        control.take(worker);
        let mut seen = 0;
        for side in Side::BOTH {
            let (ingress, egress) = pair.direction(side);
            let frames = ingress.receive(&mut batch)?;
            if frames == 0 {
                continue;
            }
            seen += frames;
            counters.turns += 1;
            for index in 0..frames {
                one_frame(worker, &mut batch, index, link, &mut decoder, &mut counters, recorder);
            }
            egress.transmit(&mut batch);
            egress.flush()?;
            batch.clear();
            decoder.send(ingress);
        }
        if seen == 0 {
            let now = pair.port(Side::A).now();
            worker.idle(now, recorder);
            pair.wait(Some(&control.waker), options.spin, options.tick)?;
        }
    }
    Ok(counters)
}

/// Watches one port until the control says stop. Nothing is forwarded; refusals are only recorded.
///
/// # Errors
/// The port fails for good.
pub fn run_passive(
    worker: &mut Worker,
    port: &mut PassivePort,
    link: LinkId,
    options: &LiveOptions,
    control: &Control,
    recorder: &mut dyn Recorder,
) -> Result<LiveCounters, PortError> {
    let mut counters = LiveCounters::default();
    let mut batch = Batch::with_capacity(options.batch);
    while !control.stopping() {
        control.take(worker);
        let frames = port.receive(&mut batch)?;
        if frames == 0 {
            let now = port.now();
            worker.idle(now, recorder);
            wait_any(&mut [port], Some(&control.waker), options.spin, options.tick)?;
            continue;
        }
        counters.turns += 1;
        for index in 0..frames {
            let (Some(info), Some(bytes)) = (batch.info(index), batch.bytes(index)) else { continue };
            let frame = Frame {
                now: info.timestamp,
                bytes,
                wire_len: info.wire_length,
                link_type: LinkType::ETHERNET,
                link,
                number: None,
            };
            worker.frame(&frame, recorder);
        }
        batch.clear();
    }
    Ok(counters)
}

fn one_frame(
    worker: &mut Worker,
    batch: &mut Batch,
    index: usize,
    link: LinkId,
    rejecter: &mut Rejecter,
    counters: &mut LiveCounters,
    recorder: &mut dyn Recorder,
) {
    let (Some(info), Some(bytes)) = (batch.info(index), batch.bytes(index)) else { return };
    let frame = Frame {
        now: info.timestamp,
        bytes,
        wire_len: info.wire_length,
        link_type: LinkType::ETHERNET,
        link,
        number: None,
    };
    let decision = worker.frame(&frame, recorder);
    if decision.verdict == Verdict::Reject {
        rejecter.make(bytes, &mut counters.normaliser);
    }
    // A frame that is not marked stays here.
    if !decision.verdict.forwards() {
        return;
    }
    if let Some(change) = worker.take_rewrite() {
        let done =
            batch.bytes_mut(index).is_some_and(|b| normaliser::rewrite(b, &change, &mut counters.normaliser));
        worker.reuse_rewrite(change);
        if !done {
            return;
        }
    }
    batch.set_disposition(index, Disposition::Forward);
}

/// Answers to rejected packets, sent after the batch.
#[derive(Default)]
struct Rejecter {
    decoder: Decoder,
    output: DecodeOutput,
    frames: Vec<Vec<u8>>,
}

impl Rejecter {
    fn make(&mut self, bytes: &[u8], counters: &mut NormaliserCounters) {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.decoder.decode(LinkType::ETHERNET, bytes, length, &mut self.output);
        if let Some(packet) = self.output.outer() {
            self.frames.extend(normaliser::rejection(&PacketView::new(bytes, packet), counters));
        }
    }

    fn send(&mut self, port: &mut dyn Port) {
        if self.frames.is_empty() {
            return;
        }
        for frame in self.frames.drain(..) {
            // A refusal is in the port's own counters.
            let _ = port.transmit_frame(&frame);
        }
        let _ = port.flush();
    }
}
