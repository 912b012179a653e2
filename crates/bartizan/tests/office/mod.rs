// SPDX-License-Identifier: Apache-2.0
//! A controller for tests: it publishes one generation for the only device, and keeps its messages.
#![allow(dead_code)]

use bartizan_agent::session::client::{enrol, wall_clock};
use bartizan_api::southbound::*;
use bartizan_channel::authority::Authority;
use bartizan_channel::certificate::{chain, fingerprint};
use bartizan_channel::tls;
use bartizan_channel::token::Tokens;
use bartizan_controller::southbound::enrolment::{Enroller, Revocations};
use bartizan_controller::southbound::listener::{Listener, ListenerHandle};
use bartizan_controller::southbound::{
    Backend, DeviceRecord, EnrolRefusal, ServerConfig, Unavailable, Wanted,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// The controller's address for devices: tests have a network of their own.
pub const ADDRESS: &str = "127.0.0.1:9444";
pub const DEVICE: &str = "edge";

#[derive(Default)]
pub struct Shared {
    tenants: Vec<u16>,
    wanted: Option<Arc<Wanted>>,
    acknowledged: u64,
    running: Option<GenerationAck>,
    pub alerts: Vec<AlertAggregate>,
    pub counters: BTreeMap<String, u64>,
    pub deltas: u64,
    received: BTreeMap<u64, (u64, u64)>,
    pub refused: Vec<GenerationRefusal>,
}

struct Office {
    shared: Arc<Mutex<Shared>>,
    enroller: Enroller,
}

impl Office {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap()
    }
}

impl Backend for Office {
    fn tick(&mut self, _: Now) {}
    fn device(&self, device: &DeviceId) -> Option<DeviceRecord> {
        let tenants = self.shared().tenants.iter().copied().collect();
        (device.as_str() == DEVICE).then_some(DeviceRecord { tenants })
    }
    fn wanted(&self, _: &DeviceId) -> Option<Arc<Wanted>> {
        self.shared().wanted.clone()
    }
    fn running(&mut self, _: &DeviceId, generation: u64, running: &GenerationAck) -> Result<(), Unavailable> {
        let mut shared = self.shared();
        shared.acknowledged = generation;
        shared.running = Some(running.clone());
        Ok(())
    }
    fn refused(&mut self, _: &DeviceId, _: u64, refusal: &GenerationRefusal) -> Result<(), Unavailable> {
        self.shared().refused.push(refusal.clone());
        Ok(())
    }
    fn ahead(&mut self, _: &DeviceId, _: u64) {}
    fn received(&self, _: &DeviceId, instance: u64) -> (u64, u64) {
        self.shared().received.get(&instance).copied().unwrap_or_default()
    }
    fn statistics(
        &mut self,
        _: &DeviceId,
        instance: u64,
        sequence: u64,
        delta: Delta,
    ) -> Result<(), Unavailable> {
        let mut shared = self.shared();
        shared.received.entry(instance).or_default().0 = sequence;
        shared.deltas += 1;
        for (name, number) in delta.counters {
            *shared.counters.entry(name).or_default() += number;
        }
        Ok(())
    }
    fn alerts(
        &mut self,
        _: &DeviceId,
        instance: u64,
        sequence: u64,
        alerts: Vec<AlertAggregate>,
        _: u64,
    ) -> Result<(), Unavailable> {
        let mut shared = self.shared();
        shared.received.entry(instance).or_default().1 = sequence;
        shared.alerts.extend(alerts);
        Ok(())
    }
    fn function(&mut self, _: &DeviceId, _: u32, _: FunctionState) {}
    fn enrol(
        &mut self,
        now: Now,
        source: &str,
        ask: &Enrol,
        certified: Option<&DeviceId>,
    ) -> Result<Enrolled, EnrolRefusal> {
        self.enroller.enrol(now, source, ask, certified)
    }
    fn is_revoked(&self, _: &str) -> bool {
        false
    }
}

/// The controller's process, simulated; dropping it ends it.
pub struct Site {
    authority: Authority,
    pin: [u8; 32],
    shared: Arc<Mutex<Shared>>,
    pub handle: ListenerHandle,
    thread: Option<JoinHandle<()>>,
}

impl Site {
    /// A controller whose device serves these tenants.
    pub fn new(folder: &Path, tenants: &[u16]) -> Self {
        let clock = wall_clock();
        let now = clock();
        let authority = Authority::make(folder, now, 3_650).unwrap();
        let issued = authority.issue_controller("main", now, 3_650).unwrap();
        let pin = fingerprint(&chain(&issued.certificate).unwrap()[0]);
        let shared = Arc::new(Mutex::new(Shared { tenants: tenants.to_vec(), ..Shared::default() }));
        let revocations = Revocations::new(authority.clone()).unwrap();
        let office = Office { shared: Arc::clone(&shared), enroller: Enroller::new(authority.clone(), 30) };
        let trusted = authority.trusted(now).unwrap();
        let key = issued.key.as_deref().unwrap();
        let tls = tls::server(Arc::clone(&clock), &issued.certificate, key, &trusted, revocations.for_tls())
            .unwrap();
        let config = ServerConfig { keep_alive_ms: 300, ..ServerConfig::default() };
        let listener = Listener::new(ADDRESS.parse().unwrap(), tls, clock, config, office).unwrap();
        let handle = listener.handle();
        let thread = Some(std::thread::spawn(|| listener.run().unwrap()));
        Site { authority, pin, shared, handle, thread }
    }

    /// Gives the device its certificate.
    pub fn enrol(&self, folder: &Path) {
        let clock = wall_clock();
        let token = Tokens::new(self.authority.folder()).make(DEVICE, self.pin, clock(), 3_600).unwrap();
        let device = DeviceId::new(DEVICE).unwrap();
        enrol(ADDRESS, &token.text(), &device, folder, &clock).unwrap();
    }

    /// Publishes a generation.
    pub fn publish(&self, generation: u64, objects: &[Object]) {
        let objects = objects.iter().map(|object| (object.key(), Arc::new(object.clone()))).collect();
        self.shared().wanted = Some(Arc::new(Wanted::new(generation, objects)));
        self.handle.changed(&DeviceId::new(DEVICE).unwrap());
    }

    pub fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap()
    }

    pub fn acknowledged(&self) -> u64 {
        self.shared().acknowledged
    }

    pub fn running(&self) -> GenerationAck {
        self.shared().running.clone().unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.handle.stop();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
