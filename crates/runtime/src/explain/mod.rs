// SPDX-License-Identifier: Apache-2.0
//! Explanations: of a flow's treatment ([`flow`]), and of the engine's form of a rule ([`rule`]).

pub mod flow;
pub mod rule;
