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
mod common;
mod drop;
mod file;
mod flow;
mod misc;
mod notice;
mod own;
mod stats;

pub use alert::{
    AlertFlow, AlertInfo, AlertRecord, AlertTransaction, Payload, Reject, TargetSide, Tunnel, VerdictInfo,
    VerdictWord, rule_metadata_json,
};
pub use anomaly::{AnomalyKind, AnomalyRecord};
pub use common::{Common, Ether, EventPacketSource, InPlace, PacketBytes, Tuple, Variables};
pub use drop::{DropRecord, NetworkHeader, TransportHeader, drop_reason};
pub use file::{FileInfo, FileRecord, FileRecordState};
pub use flow::{
    AppProtocols, EveFlowState, FlowAction, FlowCounters, FlowRecord, FlowRecordReason, NetflowRecord,
    TcpRecord, TcpSessionInfo,
};
pub use misc::{ArpRecord, FrameRecord, LossRecord, MetadataRecord, PacketRecord, TransactionRecord};
pub use notice::NoticeRecord;
pub use own::{BartizanFields, LevelAmounts, OWN_VERSION, StreamPathFields, WouldBe};
pub use stats::{Counter, DetectEngine, StatsRecord, ThreadCounters, is_own};
