// SPDX-License-Identifier: Apache-2.0
//! The data plane: workers, owners, generations, live links and captures.
//!
//! A [`worker::Worker`] runs packets to completion: it leads them through the stages of `bartizan_stages`
//! (decode, defragment, find the flow, advance TCP and application layer once, let the functions on the
//! flow's path speak, account), then records, forwards or refuses.
//!
//! The modules, from the bottom to the top; a file uses its own and those before it (`cargo xtask tidy` reads
//! this list):
//!
//! 1. `ahead`: the flows of a batch's next frames are fetched into the caches.
//! 2. `segmentation`: frames that are larger than the egress port carries are taken apart.
//! 3. `event_ring`: the ring between a worker and the writer of events.
//! 4. `counters`: what is counted beside a worker.
//! 5. `board`: what workers show of their counters to other threads.
//! 6. `views`: what is told of flows, as plain values.
//! 7. `inquiry`: questions about live flows and functions, and who collects the answers.
//! 8. `passage`: the order of the stages, for a frame, a packet and the end of a flow.
//! 9. `walk`: the walk over the packets of a frame.
//! 10. `worker`: owns flows, and runs their packets to completion.
//! 11. `handover`: owners, and packets and flows that go to another worker.
//! 12. `workers`: several workers behind one reader of captures.
//! 13. `explain`: what happens to a flow, written down by functions that are observed.
//! 14. `eve`: the recorder that writes EVE.
//! 15. `source`: where a worker's packets come from, and how they leave.
//! 16. `driver`: the loop of a live worker, the threads of several, and how they answer questions.
//! 17. `limits`: the bounds of all of them, for docs/limits.md.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod ahead;
pub mod board;
pub mod counters;
pub mod driver;
pub mod eve;
pub mod event_ring;
pub mod explain;
pub mod handover;
pub mod inquiry;
pub mod limits;
mod passage;
mod segmentation;
pub mod source;
pub mod views;
mod walk;
pub mod worker;
pub mod workers;
