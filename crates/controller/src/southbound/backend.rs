// SPDX-License-Identifier: Apache-2.0
//! What sessions ask of the rest of the controller: what devices shall run, and who takes what they say.

use bartizan_api::southbound::{
    Alert, Delta, DeviceId, Enrol, Enrolled, FunctionState, Hello, Interfaces, Manifest, Now, Object,
    ObjectKey, Refusal, RefuseCode, Running,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What sessions need to know of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceRecord {
    /// Whose traffic it sees. It is sent nothing of other tenants, whatever the generation holds.
    pub tenants: BTreeSet<u16>,
}

/// What a device shall run. Objects of tenants that it does not serve are left out by the session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The generation's number.
    pub generation: u64,
    /// What it consists of.
    pub objects: BTreeMap<ObjectKey, Arc<Object>>,
    /// The hashes of that, worked out once for all devices.
    manifest: Manifest,
}

impl Wanted {
    /// A generation of these objects.
    #[must_use]
    pub fn new(generation: u64, objects: BTreeMap<ObjectKey, Arc<Object>>) -> Self {
        let manifest = Manifest::of(objects.values().map(Arc::as_ref));
        Wanted { generation, objects, manifest }
    }

    /// The same, of objects whose hashes are known.
    #[must_use]
    pub fn known(generation: u64, objects: BTreeMap<ObjectKey, Arc<Object>>, manifest: Manifest) -> Self {
        Wanted { generation, objects, manifest }
    }

    /// What a device that serves these tenants gets of it.
    pub(super) fn of_tenants(&self, tenants: &BTreeSet<u16>) -> (BTreeMap<ObjectKey, Arc<Object>>, Manifest) {
        let served = || self.objects.iter().filter(|(_, object)| tenants.contains(&object.tenant()));
        let hash = |key: &ObjectKey| Some((key.clone(), *self.manifest.0.get(key)?));
        let manifest = Manifest(served().filter_map(|(key, _)| hash(key)).collect());
        (served().map(|(key, object)| (key.clone(), object.clone())).collect(), manifest)
    }
}

/// The rest of the controller cannot do it now: the session ends, and the agent says it again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the controller cannot store it now")]
pub struct Unavailable;

/// Why nobody is enrolled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnrolRefusal {
    /// Why.
    pub code: RefuseCode,
    /// For people, with what to do.
    pub message: String,
    /// When to try again at the earliest, milliseconds.
    pub retry_ms: u32,
}

/// The rest of the controller. Whatever returns `Ok` is durable.
pub trait Backend {
    /// Time passes: called before sessions are looked at, some times a second.
    fn tick(&mut self, now: Now);

    /// The device, if there is one of this id.
    fn device(&self, device: &DeviceId) -> Option<DeviceRecord>;

    /// What it shall run; nothing if that is not decided.
    fn wanted(&self, device: &DeviceId) -> Option<Arc<Wanted>>;

    /// Its session begins: what its agent says of itself, and where it comes from.
    fn began(&mut self, _device: &DeviceId, _hello: &Hello, _source: &str) {}

    /// It says which links and ports it has, all of them each time.
    ///
    /// # Errors
    /// It cannot be stored.
    fn interfaces(&mut self, _device: &DeviceId, _interfaces: &Interfaces) -> Result<(), Unavailable> {
        Ok(())
    }

    /// Another start of its agent took the place of one whose session stood: the agent was started anew, or
    /// two programs have the device's certificate. Both addresses.
    fn twin(&mut self, _device: &DeviceId, _before: &str, _now: &str) {}

    /// Its session is over.
    fn ended(&mut self, _device: &DeviceId) {}

    /// It runs a generation: the acknowledgement.
    ///
    /// # Errors
    /// It cannot be stored.
    fn running(&mut self, device: &DeviceId, generation: u64, running: &Running) -> Result<(), Unavailable>;

    /// It does not take a generation.
    ///
    /// # Errors
    /// It cannot be stored.
    fn refused(&mut self, device: &DeviceId, generation: u64, refusal: &Refusal) -> Result<(), Unavailable>;

    /// It runs a generation that is not older than the wanted one, and is another: only a newer one can reach
    /// it. This happens when a controller's store is put back.
    fn ahead(&mut self, device: &DeviceId, generation: u64);

    /// The last sequences of statistics and alerts that came from a start of the device's agent.
    fn received(&self, device: &DeviceId, instance: u64) -> (u64, u64);

    /// Statistics came. A sequence comes once.
    ///
    /// # Errors
    /// They cannot be stored.
    fn statistics(
        &mut self,
        device: &DeviceId,
        instance: u64,
        sequence: u64,
        delta: Delta,
    ) -> Result<(), Unavailable>;

    /// Alerts came, of tenants that the device serves. A sequence comes once.
    ///
    /// # Errors
    /// They cannot be stored.
    fn alerts(
        &mut self,
        device: &DeviceId,
        instance: u64,
        sequence: u64,
        alerts: Vec<Alert>,
        lost: u64,
    ) -> Result<(), Unavailable>;

    /// How a function stands, as the device says without being asked.
    fn health(&mut self, _device: &DeviceId, _state: FunctionState) {}

    /// A function's answer to an order.
    fn function(&mut self, device: &DeviceId, request: u32, state: FunctionState);

    /// Somebody at an address asks for a certificate: with a token, or as the device that its certificate
    /// says.
    ///
    /// # Errors
    /// It gets none.
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
