// SPDX-License-Identifier: Apache-2.0
//! The stages of a packet's way, and what they share: intake, flows, chain runner, account.
//!
//! ```text
//!   intake ------> flows ---------> runner ---------> account
//!   decode,        find or make,    functions of      counters by
//!   defragment     track            the flow's path   what became of it
//! ```
//!
//! Each stage has its own state and does not know who drives it. The data plane (`bartizan_dataplane`) does:
//! workers, the order of the stages, live links, captures, events.
//!
//! The modules, from the bottom to the top; a file uses its own and those before it (`cargo xtask tidy` reads
//! this list):
//!
//! 1. `lifecycle`: how functions stand on a worker.
//! 2. `notice`: what happened to the engine or to a quota, beside any packet.
//! 3. `quotas`: how much tenants may use, and what they use.
//! 4. `early`: what a level below may refuse of packets without a flow.
//! 5. `overload`: how a class stands when memory is used up, or more comes than a worker takes.
//! 6. `shedding`: which flows give way while more comes than a worker takes.
//! 7. `enough`: how much of a flow a policy has inspected.
//! 8. `chain`: the functions of a generation, and the chains of its policies.
//! 9. `observers`: functions that stand around others on running workers for some time.
//! 10. `victims`: the search for the flow that gives way when memory is used up.
//! 11. `app_memory`: what flows hold of memory, in pools with shares.
//! 12. `standing`: what becomes of a flow's next packet before anybody looks at it.
//! 13. `flow_ext`: what is kept in a flow's entry beside the flow table's own part.
//! 14. `frame`: a frame as it is handed in.
//! 15. `record`: where findings go.
//! 16. `class`: a flow's class, looked up and looked up again.
//! 17. `settled`: what a standing rests on, and what happens when that changes.
//! 18. `guests`: words for flows that move between workers.
//! 19. `moving`: a flow with all that is kept of it, on its way.
//! 20. `hosts`: which system a host is taken to run.
//! 21. `settings`: this crate's part of Suricata's settings.
//! 22. `identity`: what a packet belongs to.
//! 23. `flows`: the second stage, in which the flow of a packet is found or made.
//! 24. `app_stats`: flows and transactions by protocol.
//! 25. `counts`: plain counters of a worker.
//! 26. `tally`: counters by policy.
//! 27. `account`: the last stage, which counts and measures memory.
//! 28. `checksums`: whether wrong checksums count.
//! 29. `normaliser`: the one place where packets are changed or made.
//! 30. `leaving`: what is changed in the packet in hand before it leaves.
//! 31. `context`: what a stage is given for a packet beside its own state.
//! 32. `host_tables`: care for what functions keep per host.
//! 33. `intake`: the first stage, in which frames become packets and fragments datagrams.
//! 34. `train`: segments of a stream that are inspected together.
//! 35. `runner`: the third stage, the chain runner.
//! 36. `stats`: counters of several workers together, by their dotted names.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod account;
pub mod app_memory;
pub mod app_stats;
pub mod chain;
pub mod checksums;
pub mod class;
pub mod context;
pub mod counts;
pub mod early;
pub mod enough;
pub mod flow_ext;
pub mod flows;
pub mod frame;
pub mod guests;
pub mod host_tables;
pub mod hosts;
pub mod identity;
pub mod intake;
pub mod leaving;
pub mod lifecycle;
pub mod moving;
pub mod normaliser;
pub mod notice;
pub mod observers;
pub mod overload;
pub mod quotas;
pub mod record;
pub mod runner;
pub mod settings;
pub mod settled;
pub mod shedding;
pub mod standing;
pub mod stats;
pub mod tally;
pub mod train;
pub mod victims;
