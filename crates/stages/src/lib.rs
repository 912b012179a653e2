// SPDX-License-Identifier: Apache-2.0
//! The stages that a packet passes, and the types they share: intake, flows, chain runner, account.
//!
//! ```text
//!   intake ------> flows ---------> runner ---------> account
//!   decode,        find or make,    functions of      counters by
//!   defragment     track            the flow's path   what became of it
//! ```
//!
//! Each stage has its own state and does not know its caller, the data plane (`bartizan_dataplane`), which
//! has workers, the order of the stages, live links, captures and events.
//!
//! The modules, from the bottom to the top; a file uses its own and those before it (`cargo xtask tidy` reads
//! this list):
//!
//! 1. `lifecycle`: the condition of functions on a worker.
//! 2. `notice`: events of the engine itself or of a quota.
//! 3. `quotas`: quotas of tenants, and their use.
//! 4. `early`: the packets without a flow that a level below may refuse.
//! 5. `overload`: the rank of a class when memory is used up or the load exceeds a worker's capacity.
//! 6. `shedding`: the flows that give way while the load exceeds a worker's capacity.
//! 7. `enough`: upper bounds on the inspection of a flow.
//! 8. `chain`: the functions of a generation, and the chains of its policies.
//! 9. `observers`: wrappers around functions on running workers, for a limited time.
//! 10. `victims`: the search for the flow that gives way when memory is used up.
//! 11. `app_memory`: memory that flows hold, in pools with shares.
//! 12. `standing`: the verdict on a flow's next packet that needs no function.
//! 13. `flow_ext`: the data plane's part of a flow's entry.
//! 14. `frame`: a frame as it is handed in.
//! 15. `record`: the events of the data plane and their receiver.
//! 16. `class`: the lookup of a flow's class, and its repetition.
//! 17. `settled`: the inputs on which a standing rests, and its renewal when they change.
//! 18. `guests`: types for flows that move between workers.
//! 19. `moving`: a flow with all its state between two workers.
//! 20. `hosts`: the operating system that a host is assumed to run.
//! 21. `settings`: this crate's part of Suricata's settings.
//! 22. `identity`: the flow key of a packet.
//! 23. `flows`: the second stage, in which the flow of a packet is found or made.
//! 24. `app_stats`: flows and transactions by protocol.
//! 25. `counts`: plain counters of a worker.
//! 26. `tally`: counters by policy.
//! 27. `account`: the last stage, which counts and measures memory.
//! 28. `checksums`: whether packets with wrong checksums count.
//! 29. `normaliser`: the one place where packets are changed or made.
//! 30. `leaving`: changes to the current packet before it leaves.
//! 31. `context`: the context that the stages share for a frame.
//! 32. `host_tables`: maintenance of the tables that functions keep per host.
//! 33. `intake`: the first stage, in which frames become packets and fragments datagrams.
//! 34. `train`: segments of a stream that are inspected together.
//! 35. `expectations`: connections that flows announce.
//! 36. `runner`: the third stage, the chain runner.
//! 37. `stats`: sums of the counters of several workers, by their dotted names.
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
pub mod expectations;
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
