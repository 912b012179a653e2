// SPDX-License-Identifier: Apache-2.0
//! One session with an agent: what the device holds, what it should hold, and the messages in between. The
//! next message is computed when the transport has room, so that nothing is queued for a slow device.

use super::backend::Wanted;
use bartizan_api::southbound::{
    ApplyTimings, DeviceId, GenerationAck, GenerationRefusalCode, GroupRules, Hash, Hello, LastRunning,
    Manifest, Object, ObjectKey, PolicyMessage, RuleMessage, RuleOp, RuleParts, RuleType, SouthboundMessage,
    limits,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The identity of a peer, from its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The device.
    pub device: DeviceId,
    /// Serial number of the certificate, in hexadecimal digits.
    pub serial: String,
    /// Expiry of the certificate, in seconds since 1970.
    pub valid_until: u64,
}

/// Most bytes of rules in one message.
const RULE_BYTES: usize = 256 << 10;

/// Most refusals of a device because its objects do not match the manifest.
const ATTEMPTS: u32 = 3;

/// A step towards the desired generation.
#[derive(Debug)]
enum GenerationStep {
    Put(ObjectKey),
    Delete(ObjectKey),
    Commit,
}

/// A generation, reduced to what this device gets.
#[derive(Debug)]
struct DeviceGeneration {
    generation: u64,
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    manifest: Manifest,
    hash: Hash,
}

/// The state of a session: knowledge about the device, and messages to send.
#[derive(Debug)]
pub(super) struct InStep {
    pub(super) device: DeviceId,
    pub(super) instance: u64,
    /// The generation that the device runs.
    running: u64,
    running_manifest: Hash,
    /// The last generation that the device refused.
    refused: u64,
    /// The objects that the device will hold once it has everything sent; `None` before its inventory is
    /// complete.
    ready: Option<Manifest>,
    requested: bool,
    /// The parts of the inventory received so far.
    inventory: Manifest,
    target: Option<DeviceGeneration>,
    /// The remaining steps; computed once the inventory is known.
    steps: Option<VecDeque<GenerationStep>>,
    parts: VecDeque<RuleMessage>,
    /// The committed generation that awaits an answer, with the hash of its manifest.
    committed: Option<(u64, Hash)>,
    /// The workers that the device has named.
    reported: LastRunning,
    attempts: u32,
}

/// Result of comparing the running generation to the desired one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// The desired generation runs, or is on its way.
    Good,
    /// The device runs a higher number, or other objects under the same number.
    Ahead(u64),
}

impl InStep {
    pub(super) fn new(hello: &Hello) -> Self {
        InStep {
            device: hello.device.clone(),
            instance: hello.instance,
            running: hello.generation,
            running_manifest: hello.manifest,
            refused: hello.refused,
            ready: None,
            requested: false,
            inventory: Manifest::default(),
            target: None,
            steps: None,
            parts: VecDeque::new(),
            committed: None,
            reported: LastRunning::default(),
            attempts: 0,
        }
    }

    /// Sets the desired generation. Returns the number of objects withheld, because the device does not serve
    /// their tenants.
    pub(super) fn want(&mut self, wanted: &Wanted, tenants: &BTreeSet<u16>) -> u64 {
        let (objects, manifest) = wanted.of_tenants(tenants);
        let withheld = (wanted.objects.len() - objects.len()) as u64;
        let same =
            |target: &DeviceGeneration| target.generation == wanted.generation && target.manifest == manifest;
        if self.target.as_ref().is_some_and(same) {
            return 0;
        }
        let hash = manifest.hash();
        self.target = Some(DeviceGeneration { generation: wanted.generation, objects, manifest, hash });
        // Parts in transit stay: a partly sent group could never be committed.
        self.steps = None;
        withheld
    }

    /// Compares the running generation to the desired one.
    pub(super) fn compare_generations(&self) -> Stand {
        let Some(target) = &self.target else { return Stand::Good };
        match target.generation.cmp(&self.running) {
            std::cmp::Ordering::Greater => Stand::Good,
            std::cmp::Ordering::Equal if target.hash == self.running_manifest => Stand::Good,
            _ => Stand::Ahead(self.running),
        }
    }

    /// Whether the device still has to get the desired generation.
    fn is_open(&self) -> bool {
        self.target.as_ref().is_some_and(|target| {
            target.generation > self.running.max(self.refused) && self.committed.is_none()
        })
    }

    pub(super) fn has_news(&self) -> bool {
        // Nothing is sent while the inventory is awaited.
        !self.parts.is_empty() || (self.is_open() && (self.ready.is_some() || !self.requested))
    }

    /// The next message for the desired generation.
    pub(super) fn next_message(&mut self) -> Option<SouthboundMessage> {
        if let Some(part) = self.parts.pop_front() {
            return Some(SouthboundMessage::Rule(part));
        }
        if !self.is_open() {
            return None;
        }
        let target = self.target.as_ref()?;
        let Some(ready) = &mut self.ready else {
            if self.requested {
                return None;
            }
            self.requested = true;
            self.inventory = Manifest::default();
            return Some(SouthboundMessage::Policy(target.generation, PolicyMessage::Ask));
        };
        let steps = self.steps.get_or_insert_with(|| missing(ready, &target.manifest));
        match steps.pop_front()? {
            GenerationStep::Commit => {
                self.committed = Some((target.generation, target.hash));
                self.steps = None;
                let commit = PolicyMessage::Commit(target.hash);
                Some(SouthboundMessage::Policy(target.generation, commit))
            }
            GenerationStep::Delete(key) => {
                ready.0.remove(&key);
                Some(delete(&self.device, target.generation, key))
            }
            GenerationStep::Put(key) => {
                let object = target.objects.get(&key)?.clone();
                let op = if ready.0.contains_key(&key) { RuleOp::Update } else { RuleOp::Add };
                ready.0.insert(key, object.hash());
                match object.as_ref() {
                    Object::Policy(policy) => {
                        Some(SouthboundMessage::Policy(target.generation, PolicyMessage::Put(policy.clone())))
                    }
                    Object::Group(group) => {
                        let number = self.device.number();
                        self.parts =
                            RuleParts::split(group, number, target.generation, op, RULE_BYTES).into();
                        self.parts.pop_front().map(SouthboundMessage::Rule)
                    }
                }
            }
        }
    }

    /// Takes a part of the device's inventory.
    ///
    /// # Errors
    /// The inventory was not requested, or exceeds the bound of a device.
    pub(super) fn inventory(&mut self, objects: Manifest, more: bool) -> Result<(), &'static str> {
        if !self.requested || self.ready.is_some() {
            return Err("an inventory that was not requested");
        }
        self.inventory.0.extend(objects.0);
        if self.inventory.0.len() > limits::OBJECTS {
            return Err("an inventory of more objects than a device holds");
        }
        if !more {
            self.ready = Some(std::mem::take(&mut self.inventory));
            self.requested = false;
        }
        Ok(())
    }

    /// Takes a report that the device runs a generation.
    ///
    /// # Errors
    /// The generation is lower than an earlier one.
    pub(super) fn running(&mut self, generation: u64, running: &GenerationAck) -> Result<(), &'static str> {
        if generation < self.running {
            return Err("a device that runs an older generation than before");
        }
        self.running = generation;
        self.running_manifest = running.manifest;
        self.reported.note(running);
        if self.committed.is_some_and(|(committed, _)| committed <= generation) {
            self.committed = None;
            self.attempts = 0;
        }
        Ok(())
    }

    /// Expands the short report that the committed generation runs to a full one.
    ///
    /// # Errors
    /// Another generation was committed, or none, or the device has named no workers yet.
    pub(super) fn done(&self, generation: u64, took: ApplyTimings) -> Result<GenerationAck, &'static str> {
        let committed = self.committed.filter(|(committed, _)| *committed == generation);
        let (_, manifest) =
            committed.ok_or("a short acknowledgement of a generation that was not committed")?;
        let full = self.reported.in_full(generation, manifest, took);
        full.ok_or("a short acknowledgement of workers that were not named")
    }

    /// Takes a refusal of a generation.
    ///
    /// # Errors
    /// The device reported too often that its objects differ from those sent.
    pub(super) fn refused(
        &mut self,
        generation: u64,
        code: GenerationRefusalCode,
    ) -> Result<(), &'static str> {
        self.committed.take_if(|(committed, _)| *committed == generation);
        match code {
            GenerationRefusalCode::Manifest => {
                self.attempts += 1;
                (self.ready, self.steps, self.requested) = (None, None, false);
                if self.attempts >= ATTEMPTS {
                    return Err("the content repeatedly differed from what was sent");
                }
                return Ok(());
            }
            GenerationRefusalCode::Limit => (self.ready, self.steps, self.requested) = (None, None, false),
            GenerationRefusalCode::Stale | GenerationRefusalCode::Policy | GenerationRefusalCode::Store => {}
        }
        self.refused = self.refused.max(generation);
        Ok(())
    }
}

/// The steps from the held objects to the desired ones: deletes surplus objects, puts missing ones, and
/// commits.
fn missing(ready: &Manifest, wanted: &Manifest) -> VecDeque<GenerationStep> {
    let gone = ready.0.keys().filter(|key| !wanted.0.contains_key(*key)).cloned().map(GenerationStep::Delete);
    let new = wanted.0.iter().filter(|(key, hash)| ready.0.get(*key) != Some(*hash));
    gone.chain(new.map(|(key, _)| GenerationStep::Put(key.clone()))).chain([GenerationStep::Commit]).collect()
}

fn delete(device: &DeviceId, generation: u64, key: ObjectKey) -> SouthboundMessage {
    let Some(group) = key.group_id() else {
        return SouthboundMessage::Policy(generation, PolicyMessage::Delete(key));
    };
    SouthboundMessage::Rule(RuleMessage {
        device: device.number(),
        rule_type: RuleType::Ids,
        op: RuleOp::Delete,
        group,
        total: 0,
        current: 0,
        generation,
        tenant: 0,
        rules: GroupRules::Raw(Vec::new()),
    })
}
