// SPDX-License-Identifier: Apache-2.0
//! The agent's side of a run that belongs to a controller: generations arrive by the southbound protocol, are
//! built and stored beside the running one, and then run; alerts and counters go up.
//!
//! * [`device`]: the client's access to the supervisor of the run;
//! * [`here`]: the controller itself, where it runs in this process;
//! * [`in_force`]: the generations in force, with the controller's numbers of them and of tenants;
//! * `reports`: messages to the controller;
//! * [`shown`]: state of the connection, for people and metrics.
//!
//! A run protects before it has a controller, and independently of it: it begins with the generation that was
//! stored last.

pub mod device;
pub mod here;
pub mod in_force;
mod reports;
pub mod shown;

pub use device::Workers;
pub use in_force::InForce;
use reports::{Alerts, Sources};
use shown::Shown;

use crate::channel::Channel;
use crate::error::Failure;
use crate::functions::Functions;
use crate::generation::{Builder, Built, reported};
use crate::lock;
use crate::metrics::MetricsSource;
use crate::stats::Statistics;
use bartizan_agent::joined::{JoinedPolicy, Joiner};
use bartizan_agent::session::client::{AgentClient, ClientConfig, wall_clock};
use bartizan_agent::session::store::{FileStore, GenerationStore};
use bartizan_agent::session::{ControllerGeneration, SessionConfig};
use bartizan_api::southbound::{DeviceId, GenerationRefusal, GenerationRefusalCode};
use bartizan_base::Generation;
use bartizan_channel::identity::DeviceIdentity;
use bartizan_config::host::ControllerSection;
use bartizan_config::policy::Seconds;
use bartizan_dataplane::eve::AlertTap;
use device::SteeredDevice;
use reports::Reporter;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tracing::{error, info, warn};

/// State of a controller's configuration before it is reached.
pub struct SouthboundSetup {
    config: ControllerSection,
    device: Result<DeviceId, String>,
    store: FileStore,
    held: ControllerGeneration,
    joined: Option<Arc<JoinedPolicy>>,
    joiner: Joiner,
    /// The reason why the stored generation cannot be used.
    trouble: Option<String>,
    /// Ensures a single run per folder.
    _lock: lock::Lock,
}

/// The first generation of a run.
///
/// # Errors
/// The generation cannot be built.
pub fn first(controller: Option<&mut SouthboundSetup>, builder: &mut Builder) -> Result<Built, Failure> {
    match controller {
        Some(controller) => controller.build(builder),
        None => reported(builder, |builder| builder.build(Generation(1))),
    }
}

/// The client's access to a run: the supervisor's channel, the workers, and the functions.
type RunHandles = (Channel, Workers, Functions);

/// Starts the client of a controller, if one is configured. `None` as well if the device has no identity; the
/// stored generation runs then.
///
/// # Errors
/// The system cannot start a thread.
pub fn start(
    controller: Option<SouthboundSetup>,
    alerts: Option<Alerts>,
    way: RunHandles,
    source: &Arc<MetricsSource>,
    statistics: &Arc<Mutex<Statistics>>,
) -> Result<Option<Running>, Failure> {
    let Some((controller, alerts)) = controller.zip(alerts) else { return Ok(None) };
    let sources = Sources { alerts, source: Arc::clone(source), statistics: Arc::clone(statistics) };
    controller.start(way, sources)
}

/// The id in a device's certificate.
fn device_of(folder: &Path) -> Result<DeviceId, String> {
    let advice = || {
        format!(
            "enrol the device (`bartizan ca enrol DEVICE --controller ... --identity {} <TOKEN`)",
            folder.display()
        )
    };
    let identity = DeviceIdentity::load(folder).map_err(|error| format!("{error}; {}", advice()))?;
    let device = identity.facts().map_err(|error| format!("{error}; {}", advice()))?.device;
    let device = device.ok_or_else(|| {
        format!("the certificate in {} does not belong to a device; {}", folder.display(), advice())
    })?;
    DeviceId::new(device).map_err(|error| error.to_string())
}

impl SouthboundSetup {
    /// Reads the stored generation.
    ///
    /// # Errors
    /// The folder cannot be used, or has neither an identity nor a stored generation.
    pub fn open(config: &ControllerSection) -> Result<Self, Failure> {
        let state = &config.state;
        let lock = lock::state(state)?;
        let mut store = FileStore::new(state);
        let (held, trouble) = match store.load() {
            Ok(held) => (held, None),
            Err(error) => (
                ControllerGeneration::default(),
                Some(format!(
                    "the stored generation cannot be read: \
                     {error}"
                )),
            ),
        };
        let (device, joiner) = (device_of(&config.identity), Joiner::default());
        let joined = None;
        let mut opened = SouthboundSetup {
            config: config.clone(),
            device,
            store,
            held,
            joined,
            joiner,
            trouble,
            _lock: lock,
        };
        if opened.held.generation > 0 {
            opened.join_stored();
        }
        if let (Err(error), true) = (&opened.device, opened.joined.is_none()) {
            return Err(Failure::input(format!("controller: {error}")));
        }
        Ok(opened)
    }

    /// Joins the stored parts, unless an earlier start ended during this.
    fn join_stored(&mut self) {
        // If the attempt cannot be noted, it is made all the same.
        if matches!(self.store.may_build(), Ok(false)) {
            let generation = self.held.generation;
            return self.step_back(format!(
                "stored generation {generation} is skipped: the program ended twice while it built it"
            ));
        }
        match self.joiner.join(&self.held, self.held.manifest().hash()) {
            Ok(whole) => self.joined = Some(Arc::new(whole)),
            Err(diagnostics) => {
                let wrong = GenerationRefusal { code: GenerationRefusalCode::Policy, diagnostics, more: 0 };
                self.step_back(unusable(&self.held, &wrong));
            }
        }
    }

    /// Gives up the generation that was stored last. If it was stored while it was built, and the program
    /// ended before the build failed, the previous generation is still stored; otherwise none is.
    fn step_back(&mut self, trouble: String) {
        self.trouble = Some(trouble);
        let before = self.store.before();
        let before = before
            .and_then(|before| Some((self.joiner.join(&before, before.manifest().hash()).ok()?, before)));
        let Some((joined, before)) = before else {
            self.held = ControllerGeneration::default();
            return;
        };
        // The next stored generation replaces it in any case.
        let _ = self.store.withdraw();
        (self.joined, self.held) = (Some(Arc::new(joined)), before);
    }

    /// Builds the first generation of a run: the stored one, else one from this host's own files.
    fn build(&mut self, builder: &mut Builder) -> Result<Built, Failure> {
        while let Some(joined) = self.joined.take() {
            match reported(builder, |builder| builder.build_held(&joined, Generation(1))) {
                Ok(built) => {
                    if let Err(error) = self.store.prove() {
                        warn!("controller: cannot record that the stored generation is being built: {error}");
                    }
                    self.warn();
                    info!("controller: the stored generation {} is running", joined.generation);
                    builder.hold(Some(joined));
                    return Ok(built);
                }
                Err(error) => {
                    let refusal = device::refused(&joined, error);
                    self.step_back(unusable(&self.held, &refusal));
                }
            }
        }
        self.warn();
        let built = reported(builder, |builder| builder.build(Generation(1)))?;
        info!(
            "controller: none of its generations is running yet; until then {}",
            builder.describe_interim()
        );
        Ok(built)
    }

    fn warn(&self) {
        if let Some(trouble) = &self.trouble {
            warn!("controller: {trouble}");
        }
    }

    fn start(
        self,
        (channel, workers, functions): RunHandles,
        sources: Sources,
    ) -> Result<Option<Running>, Failure> {
        let device = match self.device {
            Ok(device) => device,
            Err(error) => {
                warn!("controller: {error}; the stored generation keeps running without updates");
                return Ok(None);
            }
        };
        let stopped =
            |error: std::io::Error| Failure::stopped(format!("cannot start the southbound client: {error}"));
        // The check of the host file ensures an address, or the controller of this process has set it.
        let address = self.config.address.clone().unwrap_or_default();
        let [instance, seed] = crate::load::seed();
        let session = SessionConfig {
            seed,
            interfaces: Some(workers.interfaces()),
            ..SessionConfig::new(device.clone(), instance)
        };
        let config = ClientConfig {
            session,
            controller: address.clone(),
            identity: self.config.identity.clone(),
            clock: wall_clock(),
        };
        let steered = SteeredDevice::new(channel, workers.clone(), functions, self.joiner);
        let client =
            AgentClient::resume(config, self.store, steered, self.held, self.trouble).map_err(stopped)?;
        let handle = client.handle();
        let source = Arc::clone(&sources.source);
        let Seconds(every) =
            self.config.statistics_every.unwrap_or(bartizan_config::host::STATISTICS_EVERY_USUAL);
        let reporter = Reporter::new(handle.clone(), workers, sources, std::time::Duration::from_secs(every));
        let serve = move || {
            if let Err(error) = client.run() {
                error!("the southbound client ended: {error}; the running generation continues");
            }
        };
        let client =
            std::thread::Builder::new().name("southbound".to_owned()).spawn(serve).map_err(stopped)?;
        let reports = reporter.start().map_err(stopped)?;
        info!("controller: {address} (device `{device}`)");
        let shown = Shown { handle, device, address };
        source.set_controller(shown.clone());
        Ok(Some(Running { shown, client: Some(client), reports: Some(reports), _lock: self._lock }))
    }
}

fn unusable(held: &ControllerGeneration, refusal: &GenerationRefusal) -> String {
    format!("the stored generation {} cannot be used:{}", held.generation, device::describe_refusal(refusal))
}

/// The client of a run. Dropping it ends it.
pub struct Running {
    shown: Shown,
    client: Option<JoinHandle<()>>,
    reports: Option<reports::ReporterThread>,
    _lock: lock::Lock,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.reports.take());
        self.shown.handle.stop();
        let _ = self.client.take().map(JoinHandle::join);
    }
}

/// The tap for alerts of workers and its receiver, if a controller is to receive alerts.
pub fn tap(plan: Option<&ControllerSection>) -> (Option<AlertTap>, Option<Alerts>) {
    match plan {
        Some(_) => {
            let (tap, alerts) = AlertTap::open();
            (Some(tap), Some(alerts))
        }
        None => (None, None),
    }
}
