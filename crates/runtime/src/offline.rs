// SPDX-License-Identifier: Apache-2.0
//! A generation without a link, for explanations and replays: built from files as a run builds it.

use crate::error::Failure;
use crate::generation::{
    BuildOptions, Builder, Built, BuiltPolicy, find_link, find_tenant, reported, unnamed_link,
};
use crate::load;
use bartizan_agent::explain::Subject;
use bartizan_applayer::flow::Engine;
use bartizan_base::{Generation, LinkId, TenantId};
use bartizan_dataplane::worker::Worker;
use bartizan_stages::settings::EngineSettings;
use std::path::Path;
use std::sync::Arc;

/// A generation with the settings and the application layer that its packets need.
pub struct OfflineGeneration {
    /// The generation.
    pub built: Built,
    /// Settings of the stages.
    pub settings: EngineSettings,
    /// The application layer.
    pub engine: Arc<Engine>,
}

impl OfflineGeneration {
    /// Builds a generation. `prevention`: refusals are enforced.
    ///
    /// # Errors
    /// Rules, settings or the policy cannot be used.
    pub fn build(options: &BuildOptions, prevention: bool) -> Result<Self, Failure> {
        let mut builder = Builder::for_captures(options, Path::new(""))?;
        let built = reported(&mut builder, |builder| builder.build(Generation(1)))?;
        // The hash needs no secret here: no attacker can see these flows.
        let (settings, _) = EngineSettings::from_settings(builder.settings(), prevention, [1, 2])
            .map_err(Failure::setting(builder.settings()))?;
        let mode = load::EnforcementMode::over_captures(prevention);
        let engine = Arc::new(load::app_layer(builder.settings(), &built.needs, mode)?);
        Ok(OfflineGeneration { built, settings, engine })
    }

    /// The policy.
    ///
    /// # Errors
    /// The generation was built without one.
    pub fn policy(&self) -> Result<&BuiltPolicy, Failure> {
        self.built.policy.as_ref().ok_or_else(|| Failure::usage("give --policy FILE"))
    }

    /// The link with a name, or one that no policy names.
    ///
    /// # Errors
    /// No policy names such a link.
    pub fn link(&self, name: Option<&str>) -> Result<LinkId, Failure> {
        let known = self.built.policy.as_ref().map(|policy| policy.links.as_slice()).unwrap_or_default();
        match name {
            Some(name) => find_link(known, name),
            None => Ok(unnamed_link(known)),
        }
    }

    /// The tenant with a name.
    ///
    /// # Errors
    /// There is no policy, or it has no tenant with that name.
    pub fn tenant(&self, name: Option<&str>) -> Result<Option<TenantId>, Failure> {
        let policy = self.policy()?;
        name.map(|name| find_tenant(&policy.file.name, &policy.tenant_ids, name)).transpose()
    }

    /// The subject of explanations of flows.
    ///
    /// # Errors
    /// There is no policy.
    pub fn subject(&self) -> Result<Subject<'_>, Failure> {
        let policy = self.policy()?;
        Ok(Subject {
            file: &policy.file,
            classes: &policy.classes,
            tenants: &policy.tenants,
            tenant_ids: &policy.tenant_ids,
            links: &policy.links,
            chains: &self.built.chains,
            functions: &self.built.function_names,
            settings: &self.settings,
            engine: &self.engine,
        })
    }

    /// A worker that runs the generation.
    ///
    /// # Errors
    /// The worker's tables cannot be allocated.
    pub fn worker(&self) -> Result<Worker, Failure> {
        Worker::new(self.settings.clone(), Arc::clone(&self.engine), Arc::clone(&self.built.chains))
            .map_err(Failure::stopped)
    }
}
