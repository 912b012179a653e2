// SPDX-License-Identifier: Apache-2.0
//! The southbound protocol: messages between controller and agent, encoded and decoded.
//!
//! A message is a general head, the head of its sub-protocol and a body in JSON. [`MessageDecoder`] decodes
//! the bytes of a connection however they are split; [`SouthboundMessage::encode`] encodes. Neither does I/O
//! or reads a clock. The sessions of crates `agent` and `controller` define the order of messages.
//!
//! * `head`: the general head, sub-protocols, versions;
//! * `objects`: objects for devices, with keys and content hashes;
//! * `session`, `policy`, `rule`, `function`, `statistics`, `alert`: the six sub-protocols;
//! * `stands`: the state of levels and the rules that are not evaluated, a part of an acknowledgement;
//! * `last_running`: the short acknowledgement;
//! * `interfaces`: the links and ports that policies may name on a device;
//! * `message`, `decoder`: messages of all sub-protocols.

mod alert;
mod body;
mod decoder;
mod error;
mod function;
mod head;
mod ids;
mod interfaces;
mod last_running;
pub mod limits;
mod message;
mod objects;
mod policy;
mod pulse;
mod rule;
mod session;
mod stands;
mod statistics;

pub use alert::{AlertAggregate, AlertMessage};
pub use decoder::MessageDecoder;
pub use error::{DecodeError, EncodeError, ErrorKind};
pub use function::{FunctionMessage, FunctionOrder, FunctionState};
pub use head::{COMPRESSED, FIRST_VERSION, HEAD, MessageHead, SubProtocol, VERSIONS, common_version};
pub use ids::{DeviceId, Hash, HashError, IdError};
pub use interfaces::{INTERFACES_SINCE, Interfaces};
pub use last_running::LastRunning;
pub use message::SouthboundMessage;
pub(crate) use objects::part as hash_part;
pub use objects::{GroupRules, Manifest, Object, ObjectKey, Policy, RuleGroup, RuleType};
pub use policy::{
    ApplyTimings, DONE_SINCE, GenerationAck, GenerationRefusal, GenerationRefusalCode, InventoryPart,
    PolicyDiagnostic, PolicyMessage, WorkerRuns,
};
pub use pulse::{DEAD_AFTER, Now, Pulse};
pub use rule::{RuleMessage, RuleOp, RuleParts};
pub use session::{Enrol, Enrolled, Hello, Refuse, RefuseCode, SessionMessage, Welcome};
pub use stands::{LeftOut, LevelStands, LevelState, LevelStatus, LocalContent, RuleLeftOut, RulesAtLevel};
pub use statistics::{Delta, StatisticsMessage};
