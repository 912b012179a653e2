// SPDX-License-Identifier: Apache-2.0
//! Explanations: why a flow is treated as it is ([`flow`]), and what the engine made of a rule ([`rule`]).

pub mod flow;
pub mod rule;
