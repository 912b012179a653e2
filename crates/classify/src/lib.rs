// SPDX-License-Identifier: Apache-2.0
//! Headers of several rule sets, one lookup.
//!
//! A flow's first packet is looked up once, for all rule sets together: [`Classifier`]. [`Linear`] is the
//! reference that defines the right results; [`BitVector`] is small and quick to build; [`Live`] (compiled
//! tables with updates) is the one for large and fast-changing sets; [`Auto`] chooses. (The twin of the
//! hardware's table and the structure of the IPP paper are golden models outside the product:
//! `testkit/golden`.)
//!
//! [`Segments`] explain a lookup. [`early`] makes tables by which a level below refuses packets without a
//! flow. [`classbench`] reads and writes rule files, [`generate`] draws rule sets, [`trace`] headers.
//! [`names`] holds the addresses that have a policy's DNS name at present.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod auto;
mod bitvector;
pub mod classbench;
mod classifier;
pub mod early;
mod flat;
pub mod generate;
mod header;
mod layered;
pub mod limits;
pub mod list;
mod live;
pub mod names;
mod patched;
pub mod segments;
mod split;
mod sync;
pub mod trace;

pub use auto::{Auto, Chosen, LINEAR_MAX};
pub use bitvector::BitVector;
pub use classifier::{Classifier, InsertError, Linear, Match, NO_FID, RankedRule, SETS_MAX};
pub use flat::{Flat, FlatV4, FlatV6};
pub use header::{Header, HeaderNames, HeaderRule, NameId, NameIds, Net, Range};
pub use layered::Layered;
pub use list::List;
pub use live::{Live, LiveVersion, Reader, Rebuild, Rebuilt};
pub use names::NameTable;
pub use segments::Segments;
pub use split::{Compiled, InstructionSet, Options};
