// SPDX-License-Identifier: Apache-2.0
//! Tests of both sides of the southbound protocol together, in `tests/`: agent and controller lie in one
//! layer, so neither may use the other. Nothing is built from here.
