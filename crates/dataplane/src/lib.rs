// SPDX-License-Identifier: Apache-2.0
//! The data plane: workers, owners, generations, live links and captures.
//!
//! A [`worker::Worker`] runs packets to completion: it passes them through the stages of `bartizan_stages`
//! (decode, defragment, find the flow, advance TCP and application layer once, run the functions on the
//! flow's path, account), then records, forwards or refuses.
//!
//! The modules, from the bottom to the top; a file uses its own and those before it (`cargo xtask tidy` reads
//! this list):
//!
//! 1. `ahead`: prefetch of the flows of a batch's next frames.
//! 2. `segmentation`: splitting of frames that are larger than the egress port carries.
//! 3. `event_ring`: the ring between a worker and the writer of events.
//! 4. `counters`: counters beside a worker's own.
//! 5. `board`: snapshots of the workers' counters for other threads.
//! 6. `views`: descriptions of flows as plain values.
//! 7. `inquiry`: queries about live flows and functions, and the collector of the answers.
//! 8. `passage`: the order of the stages, for a frame, a packet and the end of a flow.
//! 9. `walk`: the walk over the packets of a frame.
//! 10. `worker`: owns flows, and runs their packets to completion.
//! 11. `handover`: owners, and packets and flows that go to another worker.
//! 12. `explain`: explanation of flows by observed functions.
//! 13. `eve`: the recorder that writes EVE.
//! 14. `source`: sources of a worker's packets, and the ports by which packets leave.
//! 15. `driver`: the loop of a worker, the threads of several, and their answers to queries.
//! 16. `captures`: one reader of captures for several workers.
//! 17. `limits`: the bounds of all of them, for docs/limits.md.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod ahead;
pub mod board;
pub mod captures;
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
