// SPDX-License-Identifier: Apache-2.0
//! The differential test: generated pairs of a rule file and a conversation, whose alerts, records and
//! refusals are Suricata's, passive and in prevention. docs/differential.md says how it is used.
//!
//! * [`pair`]: what a pair is, and its frames.
//! * [`text`], [`look`], [`extra`]: bytes to look for, and the keywords that look for them.
//! * [`talk`], [`twist`]: conversations over TCP and UDP, and what happens to their packets on the way.
//! * [`http`], [`dns`], [`tls`]: what is said in them.
//! * [`scene`], [`order`], [`usual`], [`family`], [`make`]: scenes, and pairs that differ from them by one
//!   feature.
//! * [`wider`]: families that ask for what is negated, absent, empty or has no ports, and for states and
//!   protocols.
//! * [`engine`], [`answer`]: a run of either program, and what it answered.
//! * [`compare`]: one held against the other. [`explained`]: differences that have a reason; [`causes`],
//!   [`ends`], [`holes`], [`left_out`], [`lost`], [`numbers`], [`silent`], [`times`]: which; [`finding`],
//!   [`passage`]: what they look at. [`faults`]: planted ones.
//! * [`shrink`]: the least that still differs.
//!
//! Everything follows from the seed, on every machine.

pub mod answer;
pub mod bodies;
pub mod causes;
pub mod compare;
pub mod dns;
pub mod ends;
pub mod engine;
pub mod explained;
pub mod extra;
pub mod family;
pub mod faults;
pub mod finding;
pub mod holes;
pub mod http;
pub mod left_out;
pub mod look;
pub mod lost;
pub mod make;
#[cfg(test)]
mod narrow;
pub mod numbers;
pub mod order;
pub mod pair;
pub mod passage;
pub mod reasons;
pub mod scene;
pub mod shrink;
pub mod silent;
pub mod states;
pub mod talk;
pub mod text;
pub mod times;
pub mod tls;
pub mod twist;
pub mod usual;
pub mod wide;
pub mod wider;
