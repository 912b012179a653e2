// SPDX-License-Identifier: Apache-2.0
//! Content that protocols carry, whichever protocol it is: what several of them share and none owns.

pub mod certificate;
