// SPDX-License-Identifier: Apache-2.0
//! The fault that each target has in a build with the feature `planted`.

/// The planted fault: panics on the condition in a build with the feature `planted`, does nothing in others.
pub fn planted(condition: bool) {
    assert!(!(cfg!(feature = "planted") && condition), "the planted fault was found");
}
