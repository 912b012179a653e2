// SPDX-License-Identifier: Apache-2.0
//! Flow table, TCP state, timeouts, reassembly and host table.
