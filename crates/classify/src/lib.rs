// SPDX-License-Identifier: Apache-2.0
//! Headers of several rule sets, one lookup.
//!
//! A flow's first packet is looked up once, for all rule sets together: [`Classifier`]. [`Linear`] is the reference
//! that defines what is right; [`BitVector`] is what the program uses.
//!
//! Not done: structures for 100,000 rules and vector units.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod bitvector;
pub mod classbench;
mod classifier;
mod flat;
mod header;
mod live;
mod split;
pub mod trace;

pub use bitvector::BitVector;
pub use classifier::{Classifier, Entry, InsertError, Linear, Match, SETS_MAX};
pub use flat::{Flat, FlatV4, FlatV6};
pub use header::{Header, HeaderRule, Net, Range};
pub use live::{Live, Reader, Rebuild, Rebuilt, Version};
pub use split::{Compiled, Level, Options};
