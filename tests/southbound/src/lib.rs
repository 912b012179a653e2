// SPDX-License-Identifier: Apache-2.0
//! Tests of both sides of the southbound protocol together, in `tests/`: agent and controller are in one
//! layer, so neither may use the other. The library itself is empty.
