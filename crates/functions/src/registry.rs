// SPDX-License-Identifier: Apache-2.0
//! The functions that there are: one line each.
//!
//! A function that others add is one file (see docs/writing-a-function.md) and one line here.

use crate::sfw::Hosts;
use crate::{gate, names, pfw, portscan, sfw};
use bartizan_function::FunctionKind;
use std::sync::Arc;

/// What kinds of functions are made with; it outlives generations.
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
