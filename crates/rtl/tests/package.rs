// SPDX-License-Identifier: Apache-2.0
//! The committed package of registers is that of its declarations; `cargo xtask generate` writes it.

use bartizan_rtl::registers::system_verilog;
use bartizan_testkit::generated;

#[test]
fn the_committed_package_is_that_of_the_declarations() {
    generated::check("hw/rtl/bartizan_regs_pkg.sv", &system_verilog());
}
