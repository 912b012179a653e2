// SPDX-License-Identifier: Apache-2.0
//! The list of functions: one line each.
//!
//! A new function is one file (see docs/writing-a-function.md) and one line here.

use crate::sfw::Hosts;
use crate::{gate, names, pfw, portscan, sfw};
use bartizan_function::FunctionKind;
use std::sync::Arc;

/// The services with which kinds of functions are made; they outlive generations.
#[derive(Clone, Debug)]
pub struct Services {
    /// State that belongs to no flow.
    pub hosts: Hosts,
}

/// Every kind of function, except `ids`, whose rules need the program's settings.
#[must_use]
pub fn kinds(services: &Services) -> Vec<Arc<dyn FunctionKind>> {
    vec![
        Arc::new(gate::GateKind),
        Arc::new(portscan::PortscanKind),
        Arc::new(pfw::PfwKind),
        Arc::new(sfw::SfwKind::new(Arc::clone(&services.hosts))),
        Arc::new(names::NamesKind),
    ]
}
