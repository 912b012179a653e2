// SPDX-License-Identifier: Apache-2.0
//! Event records: plain structs with borrowed fields, each of which becomes one line of EVE JSON.
//!
//! Source: Suricata's EVE format (its user guide, "EVE JSON Format") and the records that 8.0.8 writes. Every
//! record has a `write` that clears the writer and leaves exactly one JSON object in it, without the line
//! end. Unknown values are left out: nothing is ever null.
//!
//! The objects of the application protocols (`http`, `dns`, ...) are not in this crate. Their parsers write
//! them; the records that carry such an object take a closure for it.

mod alert;
mod amounts;
mod anomaly;
mod arp;
mod common;
mod declared;
mod drop;
mod file;
mod flow;
mod misc;
mod notice;
mod object;
mod own;
mod stats;

pub use alert::{
    AlertFlow, AlertInfo, AlertRecord, AlertTransaction, Payload, Reject, TargetSide, Tunnel, VerdictInfo,
    VerdictWord, rule_metadata_json,
};
pub use anomaly::{AnomalyKind, AnomalyRecord};
pub use arp::ArpRecord;
pub use common::{Common, Ether, EventPacketSource, InPlace, PacketBytes, Tuple, Variables};
pub use declared::{DeclaredRecord, EventSpec};
pub use drop::{DropRecord, NetworkHeader, TransportHeader, drop_reason};
pub use file::{FileInfo, FileRecord, FileRecordState};
pub use flow::{
    AppProtocols, EveFlowState, FlowAction, FlowCounters, FlowRecord, FlowRecordReason, NetflowRecord,
    TcpRecord, TcpSessionInfo,
};
pub use misc::{FrameRecord, LossRecord, MetadataRecord, PacketRecord, TransactionRecord};
pub use notice::NoticeRecord;
pub use object::RecordValue;
pub use own::{BartizanFields, LevelAmounts, OWN_VERSION, StreamPathFields, WouldBe};
pub use stats::{Counter, DetectEngine, StatsRecord, ThreadCounters, is_own};

/// Objects that are declared with their writers, for the tables of fields.
pub(crate) mod objects {
    pub(crate) use super::alert::FirewallFields;
    pub(crate) use super::anomaly::AnomalyFields;
    pub(crate) use super::common::PacketInfo;
    pub(crate) use super::drop::DropFields;
    pub(crate) use super::file::FileFields;
    pub(crate) use super::flow::NetflowFields;
    pub(crate) use super::own::{StreamPathFields, WouldBe};
}

/// The declared events, one line each. An output writes those that its list of types has.
pub const DECLARED: &[&EventSpec] = &[ArpRecord::SPEC];

/// The declaration of an event by its name.
#[must_use]
pub fn declared(name: &str) -> Option<&'static EventSpec> {
    DECLARED.iter().copied().find(|spec| spec.name == name)
}
