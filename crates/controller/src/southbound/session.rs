// SPDX-License-Identifier: Apache-2.0
//! One connection of an agent's: what the device has, what it shall have, and what is still to be said. What
//! is missing is worked out when the transport takes it, so that nothing has to be queued for a slow device.

use super::backend::Wanted;
use bartizan_api::southbound::{
    DeviceId, Hash, Hello, LastRunning, Manifest, Message, Object, ObjectKey, PolicyMessage, RefusalCode,
    RuleMessage, RuleOp, RuleParts, RuleType, Rules, Running, Took, limits,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Who is at the other end, as its certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The device.
    pub device: DeviceId,
    /// Serial number of the certificate, hexadecimal digits.
    pub serial: String,
    /// Until when it is valid, seconds since 1970.
    pub valid_until: u64,
}

/// Bytes of rules in one message.
const RULE_BYTES: usize = 256 << 10;

/// So many times a device may say that what came is not what the manifest says.
const ATTEMPTS: u32 = 3;

/// What is still to be done for the wanted generation.
#[derive(Debug)]
enum Step {
    Put(ObjectKey),
    Delete(ObjectKey),
    Commit,
}

/// A generation as this device gets it.
#[derive(Debug)]
struct Target {
    generation: u64,
    objects: BTreeMap<ObjectKey, Arc<Object>>,
    manifest: Manifest,
    hash: Hash,
}

/// What is known of the device, and what is being said to it.
#[derive(Debug)]
pub(super) struct InStep {
    pub(super) device: DeviceId,
    pub(super) instance: u64,
    /// The generation that runs there.
    running: u64,
    running_manifest: Hash,
    /// The last generation that it refused.
    refused: u64,
    /// What it holds ready once all that was sent has come; not known before it was asked.
    ready: Option<Manifest>,
    asked: bool,
    /// Parts of its inventory that came.
    inventory: Manifest,
    target: Option<Target>,
    /// Steps are worked out once what it holds is known.
    steps: Option<VecDeque<Step>>,
    parts: VecDeque<RuleMessage>,
    /// The generation whose answer is waited for, and the hash of its manifest.
    committed: Option<(u64, Hash)>,
    /// The workers that it has named.
    told: LastRunning,
    attempts: u32,
}

/// What is to be done about a target.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// It runs, or is on its way.
    Good,
    /// The device runs something newer, or other things by this number.
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
            asked: false,
            inventory: Manifest::default(),
            target: None,
            steps: None,
            parts: VecDeque::new(),
            committed: None,
            told: LastRunning::default(),
            attempts: 0,
        }
    }

    /// The device shall run this. Says how many objects it does not get, since they are of tenants that it
    /// does not serve.
    pub(super) fn want(&mut self, wanted: &Wanted, tenants: &BTreeSet<u16>) -> u64 {
        let (objects, manifest) = wanted.of_tenants(tenants);
        let withheld = (wanted.objects.len() - objects.len()) as u64;
        let same = |target: &Target| target.generation == wanted.generation && target.manifest == manifest;
        if self.target.as_ref().is_some_and(same) {
            return 0;
        }
        let hash = manifest.hash();
        self.target = Some(Target { generation: wanted.generation, objects, manifest, hash });
        // A group that is half sent would be a group that cannot be committed: it is sent to its end.
        self.steps = None;
        withheld
    }

    /// How what runs stands to what is wanted.
    pub(super) fn stand(&self) -> Stand {
        let Some(target) = &self.target else { return Stand::Good };
        match target.generation.cmp(&self.running) {
            std::cmp::Ordering::Greater => Stand::Good,
            std::cmp::Ordering::Equal if target.hash == self.running_manifest => Stand::Good,
            _ => Stand::Ahead(self.running),
        }
    }

    /// Whether the wanted generation is still to be brought to the device.
    fn is_open(&self) -> bool {
        self.target.as_ref().is_some_and(|target| {
            target.generation > self.running.max(self.refused) && self.committed.is_none()
        })
    }

    pub(super) fn has_news(&self) -> bool {
        // While the inventory is on its way there is nothing to say.
        !self.parts.is_empty() || (self.is_open() && (self.ready.is_some() || !self.asked))
    }

    /// The next message about the wanted generation.
    pub(super) fn next_message(&mut self) -> Option<Message> {
        if let Some(part) = self.parts.pop_front() {
            return Some(Message::Rule(part));
        }
        if !self.is_open() {
            return None;
        }
        let target = self.target.as_ref()?;
        let Some(ready) = &mut self.ready else {
            if self.asked {
                return None;
            }
            self.asked = true;
            self.inventory = Manifest::default();
            return Some(Message::Policy(target.generation, PolicyMessage::Ask));
        };
        let steps = self.steps.get_or_insert_with(|| missing(ready, &target.manifest));
        match steps.pop_front()? {
            Step::Commit => {
                self.committed = Some((target.generation, target.hash));
                self.steps = None;
                let commit = PolicyMessage::Commit(target.hash);
                Some(Message::Policy(target.generation, commit))
            }
            Step::Delete(key) => {
                ready.0.remove(&key);
                Some(delete(&self.device, target.generation, key))
            }
            Step::Put(key) => {
                let object = target.objects.get(&key)?.clone();
                let op = if ready.0.contains_key(&key) { RuleOp::Update } else { RuleOp::Add };
                ready.0.insert(key, object.hash());
                match object.as_ref() {
                    Object::Policy(policy) => {
                        Some(Message::Policy(target.generation, PolicyMessage::Put(policy.clone())))
                    }
                    Object::Group(group) => {
                        let number = self.device.number();
                        self.parts =
                            RuleParts::split(group, number, target.generation, op, RULE_BYTES).into();
                        self.parts.pop_front().map(Message::Rule)
                    }
                }
            }
        }
    }

    /// A part of what the device holds ready.
    ///
    /// # Errors
    /// Nobody asked, or it holds more than a device may.
    pub(super) fn inventory(&mut self, objects: Manifest, more: bool) -> Result<(), &'static str> {
        if !self.asked || self.ready.is_some() {
            return Err("an inventory that nobody asked for");
        }
        self.inventory.0.extend(objects.0);
        if self.inventory.0.len() > limits::OBJECTS {
            return Err("an inventory of more objects than a device holds");
        }
        if !more {
            self.ready = Some(std::mem::take(&mut self.inventory));
            self.asked = false;
        }
        Ok(())
    }

    /// It runs a generation.
    ///
    /// # Errors
    /// Generations never go back.
    pub(super) fn running(&mut self, generation: u64, running: &Running) -> Result<(), &'static str> {
        if generation < self.running {
            return Err("a device that runs an older generation than before");
        }
        self.running = generation;
        self.running_manifest = running.manifest;
        self.told.note(running);
        if self.committed.is_some_and(|(committed, _)| committed <= generation) {
            self.committed = None;
            self.attempts = 0;
        }
        Ok(())
    }

    /// It says in short that it runs what was committed: the same in full.
    ///
    /// # Errors
    /// Another one was committed or none, or it has named no workers yet.
    pub(super) fn done(&self, generation: u64, took: Took) -> Result<Running, &'static str> {
        let committed = self.committed.filter(|(committed, _)| *committed == generation);
        let (_, manifest) = committed.ok_or("an acknowledgement in short of what was not committed")?;
        let full = self.told.in_full(generation, manifest, took);
        full.ok_or("an acknowledgement in short of workers that were not named")
    }

    /// It does not take a generation.
    ///
    /// # Errors
    /// It said too often that something else came than was sent.
    pub(super) fn refused(&mut self, generation: u64, code: RefusalCode) -> Result<(), &'static str> {
        self.committed.take_if(|(committed, _)| *committed == generation);
        match code {
            RefusalCode::Manifest => {
                self.attempts += 1;
                (self.ready, self.steps, self.asked) = (None, None, false);
                if self.attempts >= ATTEMPTS {
                    return Err("what came was not what was sent, again and again");
                }
                return Ok(());
            }
            RefusalCode::Limit => (self.ready, self.steps, self.asked) = (None, None, false),
            RefusalCode::Stale | RefusalCode::Policy | RefusalCode::Store => {}
        }
        self.refused = self.refused.max(generation);
        Ok(())
    }
}

/// Takes away what is too much, brings what is missing, and commits.
fn missing(ready: &Manifest, wanted: &Manifest) -> VecDeque<Step> {
    let gone = ready.0.keys().filter(|key| !wanted.0.contains_key(*key)).cloned().map(Step::Delete);
    let new = wanted.0.iter().filter(|(key, hash)| ready.0.get(*key) != Some(*hash));
    gone.chain(new.map(|(key, _)| Step::Put(key.clone()))).chain([Step::Commit]).collect()
}

fn delete(device: &DeviceId, generation: u64, key: ObjectKey) -> Message {
    let Some(group) = key.group_id() else { return Message::Policy(generation, PolicyMessage::Delete(key)) };
    Message::Rule(RuleMessage {
        device: device.number(),
        rule_type: RuleType::Ids,
        op: RuleOp::Delete,
        group,
        total: 0,
        current: 0,
        generation,
        tenant: 0,
        rules: Rules::Raw(Vec::new()),
    })
}
