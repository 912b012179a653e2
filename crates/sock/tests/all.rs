// SPDX-License-Identifier: Apache-2.0
//! Programs that load the library: calls compared with plain sockets, and real programs unchanged.

mod calls;
mod common;
mod deaths;
mod programs;
