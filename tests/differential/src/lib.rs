// SPDX-License-Identifier: Apache-2.0
//! The differential test: generated pairs of a rule file and a conversation, on which this program must have
//! the same alerts, records and rejected rules as Suricata, passive and in prevention. docs/differential.md
//! describes its use.
//!
//! * [`pair`]: a pair and its frames.
//! * [`text`], [`look`], [`extra`]: bytes to match, and the keywords that match them.
//! * [`talk`], [`twist`]: conversations over TCP and UDP, and changes to their packets on the way.
//! * [`http`], [`dns`], [`tls`]: content of the conversations.
//! * [`scene`], [`order`], [`usual`], [`family`], [`make`]: scenes, and pairs that differ from them by one
//!   feature.
//! * [`wider`]: families on negated, absent or empty content, packets without ports, states and
//!   protocols.
//! * [`applications`]: SMTP, FTP, SSH, SMB and DCERPC, as a grammar with numbers of its own.
//! * [`engine`], [`answer`]: a run of either program, and its answer.
//! * [`compare`]: comparison of answers. [`explained`]: differences that have a reason; [`causes`],
//!   [`ends`], [`holes`], [`left_out`], [`lost`], [`numbers`], [`silent`], [`times`]: their causes;
//!   [`finding`], [`passage`]: inputs of the causes. [`faults`]: planted faults.
//! * [`shrink`]: reduces a pair to the least that still differs.
//!
//! Everything is a function of the seed, on every machine.

pub mod answer;
pub mod applications;
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
pub mod record;
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
