// SPDX-License-Identifier: Apache-2.0
//! The interface from the sessions to the rest of the controller: desired sets of devices, and their reports.

use bartizan_api::southbound::{
    AlertAggregate, Delta, DeviceId, Enrol, Enrolled, FunctionState, GenerationAck, GenerationRefusal, Hello,
    Interfaces, Manifest, Now, Object, ObjectKey, RefuseCode,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The data of a device that its session needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceRecord {
    /// The tenants that the device serves. Objects of other tenants are never sent to it.
    pub tenants: BTreeSet<u16>,
}

/// The set that a device should run. The session leaves out objects of tenants that the device does not
/// serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The generation's number.
    pub generation: u64,
    /// The objects of the generation.
    pub objects: BTreeMap<ObjectKey, Arc<Object>>,
    /// The objects' hashes, computed once for all devices.
    manifest: Manifest,
}

impl Wanted {
    /// A set of objects; computes their hashes.
    #[must_use]
    pub fn new(generation: u64, objects: BTreeMap<ObjectKey, Arc<Object>>) -> Self {
        let manifest = Manifest::of(objects.values().map(Arc::as_ref));
        Wanted { generation, objects, manifest }
    }

    /// A set of objects whose hashes are known.
    #[must_use]
    pub fn known(generation: u64, objects: BTreeMap<ObjectKey, Arc<Object>>, manifest: Manifest) -> Self {
        Wanted { generation, objects, manifest }
    }

    /// The objects and hashes for a device that serves these tenants.
    pub(super) fn of_tenants(&self, tenants: &BTreeSet<u16>) -> (BTreeMap<ObjectKey, Arc<Object>>, Manifest) {
        let served = || self.objects.iter().filter(|(_, object)| tenants.contains(&object.tenant()));
        let hash = |key: &ObjectKey| Some((key.clone(), *self.manifest.0.get(key)?));
        let manifest = Manifest(served().filter_map(|(key, _)| hash(key)).collect());
        (served().map(|(key, object)| (key.clone(), object.clone())).collect(), manifest)
    }
}

/// The rest of the controller cannot do it now: the session ends, and the agent repeats its message later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the controller cannot store it now; its log has the reason")]
pub struct Unavailable;

/// Why an enrolment was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnrolRefusal {
    /// The reason.
    pub code: RefuseCode,
    /// The reason for people, with what to do.
    pub message: String,
    /// Earliest time of the next attempt, in milliseconds from now.
    pub retry_ms: u32,
}

/// The rest of the controller. Everything that returns `Ok` is durable.
pub trait Backend {
    /// Called several times a second, before the sessions' timers.
    fn tick(&mut self, now: Now);

    /// The record of a device, if it exists.
    fn device(&self, device: &DeviceId) -> Option<DeviceRecord>;

    /// The desired set of a device; `None` if there is none.
    fn wanted(&self, device: &DeviceId) -> Option<Arc<Wanted>>;

    /// A session begins, with the agent's description of itself and its address.
    fn began(&mut self, _device: &DeviceId, _hello: &Hello, _source: &str) {}

    /// Stores the device's links and ports; each report is complete.
    ///
    /// # Errors
    /// The report cannot be stored.
    fn interfaces(&mut self, _device: &DeviceId, _interfaces: &Interfaces) -> Result<(), Unavailable> {
        Ok(())
    }

    /// Another start of the agent replaced one with an open session: the agent was restarted, or two programs
    /// have the device's certificate. `before` and `now` are their addresses.
    fn twin(&mut self, _device: &DeviceId, _before: &str, _now: &str) {}

    /// The session ended.
    fn ended(&mut self, _device: &DeviceId) {}

    /// Stores that the device runs a generation.
    ///
    /// # Errors
    /// The report cannot be stored.
    fn running(
        &mut self,
        device: &DeviceId,
        generation: u64,
        running: &GenerationAck,
    ) -> Result<(), Unavailable>;

    /// Stores that the device refused a generation.
    ///
    /// # Errors
    /// The report cannot be stored.
    fn refused(
        &mut self,
        device: &DeviceId,
        generation: u64,
        refusal: &GenerationRefusal,
    ) -> Result<(), Unavailable>;

    /// The device runs another generation whose number is not below the desired one: only a higher number
    /// reaches it. This happens when a controller's store is restored from a backup.
    fn ahead(&mut self, device: &DeviceId, generation: u64);

    /// The last sequences of statistics and alerts from a start of the device's agent.
    fn received(&self, device: &DeviceId, instance: u64) -> (u64, u64);

    /// Stores statistics. Each sequence comes once.
    ///
    /// # Errors
    /// The statistics cannot be stored.
    fn statistics(
        &mut self,
        device: &DeviceId,
        instance: u64,
        sequence: u64,
        delta: Delta,
    ) -> Result<(), Unavailable>;

    /// Stores alerts of tenants that the device serves. Each sequence comes once.
    ///
    /// # Errors
    /// The alerts cannot be stored.
    fn alerts(
        &mut self,
        device: &DeviceId,
        instance: u64,
        sequence: u64,
        alerts: Vec<AlertAggregate>,
        lost: u64,
    ) -> Result<(), Unavailable>;

    /// The state of a function, reported without a request.
    fn health(&mut self, _device: &DeviceId, _state: FunctionState) {}

    /// A function's answer to an order.
    fn function(&mut self, device: &DeviceId, request: u32, state: FunctionState);

    /// Handles a request for a certificate, with a token, or from the device that the present certificate
    /// names.
    ///
    /// # Errors
    /// The request is refused.
    fn enrol(
        &mut self,
        now: Now,
        source: &str,
        enrol: &Enrol,
        certified: Option<&DeviceId>,
    ) -> Result<Enrolled, EnrolRefusal>;

    /// Whether a certificate is revoked, by its serial number in hexadecimal digits.
    fn is_revoked(&self, serial: &str) -> bool;
}
