// SPDX-License-Identifier: Apache-2.0
//! The devices. A link without one has no flow manager: all flows stay at the host ([`crate::Stays::NoDevice`]).

pub mod xdp;
