// SPDX-License-Identifier: Apache-2.0
//! The application layers of a run, which outlive generations.

use crate::error::Failure;
use crate::generation::{Builder, Built};
use crate::load;
use crate::plan::RunPlan;
use bartizan_applayer::flow::Engine;
use std::sync::Arc;

/// The application layers: one for links in prevention and one for links in detection.
pub struct Engines(Vec<(bool, Arc<Engine>)>);

impl Engines {
    /// The application layers for the links of a run.
    pub fn new(plan: &RunPlan, builder: &Builder, built: &Built) -> Result<Self, Failure> {
        let mut engines: Vec<(bool, Arc<Engine>)> = Vec::new();
        for link in &plan.links {
            if !engines.iter().any(|(prevention, _)| *prevention == link.prevention) {
                let mode = load::EnforcementMode::on_links(link.prevention);
                engines.push((
                    link.prevention,
                    Arc::new(load::app_layer(builder.settings(), &built.needs, mode)?),
                ));
            }
        }
        Ok(Engines(engines))
    }

    /// The application layer for links in prevention, or in detection.
    pub fn of(&self, prevention: bool) -> Option<Arc<Engine>> {
        let engine = self.0.iter().find(|(known, _)| *known == prevention);
        engine.map(|(_, engine)| Arc::clone(engine))
    }

    /// Enables the parsing work that only new rules need.
    pub fn enable_parsing(&self, built: &Built) {
        for (_, engine) in &self.0 {
            engine.request_hashes(built.needs.hashes);
            engine.request_frames(built.needs.frames, built.needs.stream_frames);
            if built.needs.magic {
                engine.request_magic();
            }
        }
    }
}
