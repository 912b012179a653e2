// SPDX-License-Identifier: Apache-2.0
//! Tests of the stream path without the socket library: the engine in a thread, guests in others.

mod common;
mod datagrams;
mod hostile;
mod limits;
mod rings;
mod streams;
mod verdicts;
