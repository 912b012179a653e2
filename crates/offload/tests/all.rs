// SPDX-License-Identifier: Apache-2.0
//! All tests of the flow manager with the mock device, in one program.

mod manager;
