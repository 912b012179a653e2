// SPDX-License-Identifier: Apache-2.0
//! Application protocols: detection, parsers, transactions, buffers, events.
