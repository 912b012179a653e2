// SPDX-License-Identifier: Apache-2.0
//! All tests of the SmartNIC's logic in one program. They need the model: `cargo test -p bartizan-rtl
//! --features verilator`; without the feature there is nothing to test here, which the first test says.

#[cfg(feature = "verilator")]
mod common;
#[cfg(feature = "verilator")]
mod reference;

#[cfg(feature = "verilator")]
mod classbench;
#[cfg(feature = "verilator")]
mod device;
#[cfg(feature = "verilator")]
mod flows;
#[cfg(feature = "verilator")]
mod frames;
#[cfg(feature = "verilator")]
mod throughput;
#[cfg(feature = "verilator")]
mod updates;

mod package;

/// Without the model this program tests nothing: that is said, and is no silence.
#[cfg(not(feature = "verilator"))]
#[test]
fn the_logic_is_tested_with_the_feature_verilator() {
    eprintln!("the SmartNIC's logic is not tested: `make rtl` does, with Verilator");
}
