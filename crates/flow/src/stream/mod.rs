// SPDX-License-Identifier: Apache-2.0
//! Reassembly of a TCP direction's bytes.
