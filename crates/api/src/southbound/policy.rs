// SPDX-License-Identifier: Apache-2.0
//! Sub-protocol 2: policies and generations. Head: operation u8, three reserved bytes, generation u64.

use super::body;
use super::error::{DecodeError, EncodeError};
use super::ids::Hash;
use super::limits;
use super::objects::{Manifest, ObjectKey, Policy};
use super::stands::LevelStatus;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The generations that one worker runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerRuns {
    /// The worker's link.
    pub link: String,
    /// The worker's number within the link.
    pub worker: u16,
    /// The generation at each level (`host`, `xdp`, `rtl`).
    pub levels: BTreeMap<String, u64>,
}

/// Durations of a device's change to a generation, from the commit until its workers run it; microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplyTimings {
    /// Building the generation beside the running one, without the time of `store`, which runs in parallel.
    pub build: u64,
    /// Storing the generation on the device's disk.
    pub store: u64,
    /// Swapping, until all workers run the generation.
    pub swap: u64,
}

/// The acknowledgement of a generation: what runs at each worker and level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerationAck {
    /// Hash of the manifest.
    pub manifest: Hash,
    /// The generations of each worker.
    pub workers: Vec<WorkerRuns>,
    /// Durations of the change; `None` for a generation that runs since the start. From version 2 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<ApplyTimings>,
    /// State of levels, and rules that are not evaluated; `None` if the agent does not report them. From
    /// version 4 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands: Option<LevelStatus>,
}

/// The first version with [`GenerationAck::took`].
const TOOK: u8 = 2;

/// The first version with [`GenerationAck::stands`].
const STANDS: u8 = 4;
/// The first version with [`LevelStatus::content`].
const CONTENT: u8 = 6;

impl GenerationAck {
    /// The acknowledgement, reduced to the fields of a version.
    fn in_version(&self, version: u8) -> Self {
        let mut running = self.clone();
        running.took.take_if(|_| version < TOOK);
        running.stands.take_if(|_| version < STANDS);
        if let Some(stands) = &mut running.stands {
            stands.content.take_if(|_| version < CONTENT);
        }
        running
    }

    /// Checks that all fields belong to a version, and are within its bounds.
    fn check(&self, version: u8) -> Result<(), DecodeError> {
        let none = |what: &str| Err(wrong("running", format!("there is no `{what}` in version {version}")));
        match &self.stands {
            _ if self.took.is_some() && version < TOOK => none("took"),
            Some(_) if version < STANDS => none("stands"),
            Some(stands) if stands.content.is_some() && version < CONTENT => none("content"),
            Some(stands) => stands.check(),
            None => Ok(()),
        }
    }
}

/// The first version with [`PolicyMessage::Done`], and the first in which the messages of each change have
/// binary bodies instead of JSON.
pub const DONE_SINCE: u8 = 3;

/// Bytes of numbers before the name in the body of `put`: tenant u16, length of the name u16.
const PUT_NUMBERS: usize = 4;

/// A fault in a policy, with its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyDiagnostic {
    /// The object.
    pub object: ObjectKey,
    /// JSON pointer into the object; empty for the whole.
    pub pointer: String,
    /// Line of the text, from 1; 0 if unknown.
    pub line: u32,
    /// Column of the line, from 1; 0 if unknown.
    pub column: u32,
    /// The fault, and how to fix it.
    pub message: String,
}

/// Why a generation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GenerationRefusalCode {
    /// The generation is not newer than the running one: replayed, or out of order.
    Stale,
    /// The objects do not match the manifest: some are missing or differ.
    Manifest,
    /// The generation exceeds a bound of the device.
    Limit,
    /// The generation cannot be built; the diagnostics have the places.
    Policy,
    /// The device cannot store it.
    Store,
}

/// A refusal of a generation. The running generation stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerationRefusal {
    /// The reason.
    pub code: GenerationRefusalCode,
    /// The first [`limits::DIAGNOSTICS`] faults, with their places.
    pub diagnostics: Vec<PolicyDiagnostic>,
    /// Number of further faults.
    pub more: u64,
}

/// A part of the device's inventory: the objects staged for the next generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InventoryPart {
    /// Some of the objects.
    pub objects: Manifest,
    /// Whether another part follows.
    pub more: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Delete {
    object: ObjectKey,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Commit {
    manifest: Hash,
}

/// A message of the sub-protocol, without its generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyMessage {
    /// Controller: operation 1. Stages the policy for this generation, in place of one with the same key.
    Put(Policy),
    /// Controller: operation 2. Removes an object from the stage.
    Delete(ObjectKey),
    /// Controller: operation 3. Run the staged objects, if their manifest has this hash.
    Commit(Hash),
    /// Agent: operation 4. The generation runs.
    Running(GenerationAck),
    /// Agent: operation 5. The generation is refused.
    Refused(GenerationRefusal),
    /// Controller: operation 6, without a body. Requests the inventory.
    Ask,
    /// Agent: operation 7. The inventory, in parts.
    Inventory(InventoryPart),
    /// Agent: operation 8, from version 3 on. The short acknowledgement: the generation committed last over
    /// this connection runs at all levels of all workers of the connection's last [`PolicyMessage::Running`].
    Done(ApplyTimings),
}

impl PolicyMessage {
    /// Bytes of the head.
    const HEAD: usize = 12;

    pub(super) fn encode(&self, generation: u64, version: u8) -> Result<(Vec<u8>, Vec<u8>), EncodeError> {
        let (op, body) = match self {
            PolicyMessage::Put(policy) if version >= DONE_SINCE => (1, put_bytes(policy)?),
            PolicyMessage::Put(policy) => (1, body::write(policy)?),
            PolicyMessage::Delete(object) => (2, body::write(&Delete { object: object.clone() })?),
            PolicyMessage::Commit(manifest) if version >= DONE_SINCE => (3, manifest.0.to_vec()),
            PolicyMessage::Commit(manifest) => (3, body::write(&Commit { manifest: *manifest })?),
            PolicyMessage::Running(running) if version < CONTENT => {
                (4, body::write(&running.in_version(version))?)
            }
            PolicyMessage::Running(running) => (4, body::write(running)?),
            PolicyMessage::Refused(refusal) => (5, body::write(refusal)?),
            PolicyMessage::Ask => (6, Vec::new()),
            PolicyMessage::Inventory(inventory) => (7, body::write(inventory)?),
            PolicyMessage::Done(_) if version < DONE_SINCE => {
                return Err(EncodeError::Version("done", version));
            }
            PolicyMessage::Done(took) => (8, body::write(took)?),
        };
        let mut head = vec![op, 0, 0, 0];
        head.extend(generation.to_be_bytes());
        Ok((head, body))
    }

    pub(super) fn split(bytes: &[u8]) -> Result<([u8; Self::HEAD], &[u8]), DecodeError> {
        let (head, rest) = bytes.split_first_chunk::<{ Self::HEAD }>().ok_or(DecodeError::Short("policy"))?;
        match head {
            [_, 0, 0, 0, ..] => Ok((*head, rest)),
            _ => Err(DecodeError::Reserved("policy")),
        }
    }

    pub(super) fn decode(
        version: u8,
        head: [u8; Self::HEAD],
        bytes: &[u8],
    ) -> Result<(u64, Self), DecodeError> {
        let [op, _, _, _, generation @ ..] = head;
        let message = match op {
            1 => {
                let policy: Policy =
                    if version >= DONE_SINCE { put_of(bytes)? } else { body::read("put", bytes)? };
                body::bound("put", "letters of the name", policy.name.len(), limits::NAME_LETTERS)?;
                PolicyMessage::Put(policy)
            }
            2 => PolicyMessage::Delete(body::read::<Delete>("delete", bytes)?.object),
            3 if version >= DONE_SINCE => {
                let wrong = || wrong("commit", format!("a hash has 32 bytes, not {}", bytes.len()));
                PolicyMessage::Commit(Hash(bytes.try_into().map_err(|_| wrong())?))
            }
            3 => PolicyMessage::Commit(body::read::<Commit>("commit", bytes)?.manifest),
            4 => {
                let running: GenerationAck = body::read("running", bytes)?;
                running.check(version)?;
                PolicyMessage::Running(running)
            }
            5 => {
                let refusal: GenerationRefusal = body::read("refused", bytes)?;
                body::bound("refused", "diagnostics", refusal.diagnostics.len(), limits::DIAGNOSTICS)?;
                PolicyMessage::Refused(refusal)
            }
            6 => body::none("ask", bytes, PolicyMessage::Ask)?,
            7 => {
                let inventory: InventoryPart = body::read("inventory", bytes)?;
                body::bound("inventory", "objects", inventory.objects.0.len(), limits::INVENTORY_PAGE)?;
                PolicyMessage::Inventory(inventory)
            }
            8 if version >= DONE_SINCE => PolicyMessage::Done(body::read("done", bytes)?),
            op => return Err(DecodeError::Op { sub: "policy", op }),
        };
        Ok((u64::from_be_bytes(generation), message))
    }
}

fn wrong(message: &'static str, what: String) -> DecodeError {
    DecodeError::Body { message, what }
}

/// Encodes the body of `put` from version 3 on: tenant u16, length of the name u16, name, text.
fn put_bytes(policy: &Policy) -> Result<Vec<u8>, EncodeError> {
    let name = u16::try_from(policy.name.len()).map_err(|_| EncodeError::TooLong(policy.name.len()))?;
    let mut body = Vec::with_capacity(PUT_NUMBERS + policy.name.len() + policy.text.len());
    body.extend(policy.tenant.to_be_bytes());
    body.extend(name.to_be_bytes());
    body.extend(policy.name.as_bytes());
    body.extend(policy.text.as_bytes());
    Ok(body)
}

/// Decodes the body of `put`.
fn put_of(bytes: &[u8]) -> Result<Policy, DecodeError> {
    let short = || wrong("put", format!("{} bytes, which end within tenant, length or name", bytes.len()));
    let ([t1, t0, n1, n0], rest) = bytes.split_first_chunk::<PUT_NUMBERS>().ok_or_else(short)?;
    let name = usize::from(u16::from_be_bytes([*n1, *n0]));
    let (name, text) = rest.split_at_checked(name).ok_or_else(short)?;
    let utf8 = |what: &str, bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).map(str::to_owned);
        text.map_err(|error| wrong("put", format!("the {what} is not UTF-8: {error}")))
    };
    let tenant = u16::from_be_bytes([*t1, *t0]);
    Ok(Policy { name: utf8("name", name)?, tenant, text: utf8("text", text)? })
}
