// SPDX-License-Identifier: Apache-2.0
//! The API over its transport: every refusal arrives in the common format, HTTP's own rules hold, and no
//! client shuts others out.

mod arrival;
mod http;
mod sharing;
