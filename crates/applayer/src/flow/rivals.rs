// SPDX-License-Identifier: Apache-2.0
//! First bytes of a client that receivers of two protocols would read, each in its way. Only one parser reads
//! them, so in prevention such a flow counts as one whose parser failed.

use super::{Advance, AppLayer, Disruption};
use crate::engine::Engine;
use crate::event;
use crate::flow::FlowInfo;
use crate::memory::Held as _;
use crate::protocol::{Input, Probe, ProtocolId, Transport};
use bartizan_base::Direction;

/// Answers of receivers of protocols other than the flow's to the client's first bytes.
#[derive(Debug, Default)]
pub(super) enum Rivals {
    /// The probes have not run.
    #[default]
    Unasked,
    /// The probes need more than these bytes, which begin at this offset.
    Open(Vec<u8>, u64),
    /// No other receiver reads them.
    None,
}

impl Rivals {
    /// Bytes of memory held outside of the structure itself.
    pub(super) fn held(&self) -> usize {
        if let Rivals::Open(bytes, _) = self { bytes.held() } else { 0 }
    }
}

impl AppLayer {
    /// Number of bytes that the parser still needs before its next call; 0: enough. The caller hands in fewer
    /// while probes of other protocols get each byte.
    pub(super) fn still_wanted(&mut self, direction: Direction, input: &Input<'_>) -> usize {
        if direction != Direction::ToServer {
            return 0;
        }
        let wanted = core::mem::take(&mut self.wanted);
        let end = input.offset.saturating_add(input.data.len() as u64);
        if end >= wanted || input.eof {
            return 0;
        }
        usize::try_from(wanted.saturating_sub(input.offset)).unwrap_or(usize::MAX)
    }

    /// While probes of other protocols run, requests each byte at once, however many the parser needs:
    /// receivers of those protocols act on each byte.
    pub(super) fn show_rivals(&mut self, direction: Direction, input: &Input<'_>, advance: &mut Advance) {
        let asked = direction == Direction::ToServer && matches!(self.rivals, Rivals::Open(..));
        if !asked || advance.finished || advance.needed == 0 {
            return;
        }
        let consumed = input.offset.saturating_add(advance.consumed as u64);
        self.wanted = consumed.saturating_add(advance.needed as u64);
        advance.needed = input.data.len().saturating_sub(advance.consumed).saturating_add(1);
    }

    /// Whether a receiver of another protocol than the flow's would read the client's bytes so far. If so,
    /// nothing more is parsed.
    pub(super) fn is_contested(
        &mut self,
        engine: &Engine,
        direction: Direction,
        id: ProtocolId,
        input: &Input<'_>,
        flow: &FlowInfo,
    ) -> bool {
        if !flow.prevents || direction != Direction::ToServer {
            return false;
        }
        let (mut bytes, begin) = match core::mem::replace(&mut self.rivals, Rivals::None) {
            Rivals::None => return false,
            // The beginning of the client's bytes did not come.
            Rivals::Unasked if self.missing[direction] > 0 => return false,
            Rivals::Unasked => (Vec::new(), input.offset),
            Rivals::Open(bytes, begin) => (bytes, begin),
        };
        let next = begin.saturating_add(bytes.len() as u64);
        let known = usize::try_from(next.saturating_sub(input.offset)).unwrap_or(usize::MAX);
        let new = input.data.get(known..).unwrap_or_default();
        let ask = |bytes: &[u8]| engine.detector.rival(id, Transport::Tcp, direction, flow.ports, bytes);
        let found = if bytes.is_empty() {
            ask(new)
        } else {
            bytes.extend_from_slice(new);
            ask(&bytes)
        };
        match found {
            Probe::No => false,
            Probe::More => {
                if bytes.is_empty() {
                    bytes.extend_from_slice(new);
                }
                self.rivals = Rivals::Open(bytes, begin);
                false
            }
            Probe::Yes(_) => {
                self.events.set(event::UNEXPECTED_PROTOCOL);
                self.failed_parsing = true;
                for side in Direction::BOTH {
                    self.disrupt(engine, side, Disruption::Error, flow);
                }
                self.finished = true;
                true
            }
        }
    }
}
