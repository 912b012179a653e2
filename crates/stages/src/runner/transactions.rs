// SPDX-License-Identifier: Apache-2.0
//! Transactions: their records, anomalies and files, and the end of their life.

use crate::record::{Anomaly, Entry, EventContext, Recorder, StoreOutcome, TxRecord};
use bartizan_applayer::content::certificate::Storing;
use bartizan_applayer::event;
use bartizan_applayer::file::FileState;
use bartizan_applayer::flow::AppLayer;
use bartizan_applayer::protocol::{ProtocolId, ProtocolSpec};
use bartizan_applayer::protocols;
use bartizan_applayer::transaction::{Transaction, TxId};
use bartizan_applayer::worklist::Look;
use bartizan_base::{Direction, Path, PerDirection};

/// Protocol of the transactions that a flow holds now: the old one after a switch until the new one is known.
fn protocol_of(app: &AppLayer) -> Option<(ProtocolId, &'static ProtocolSpec)> {
    let id = app.protocol().protocol().or(app.original())?;
    Some((id, protocols::spec(id)?))
}

/// A transaction as records need it.
pub fn record_of(app: &AppLayer, id: TxId) -> Option<TxRecord<'_>> {
    let (protocol, spec) = protocol_of(app)?;
    let tx = app.parser()?.tx(id)?;
    Some(TxRecord { protocol, spec, id, tx })
}

/// Name of an event of a protocol, or of detection.
fn event_name(spec: Option<&'static ProtocolSpec>, code: event::EventCode) -> &'static str {
    match code.checked_sub(event::GENERIC_BASE) {
        Some(generic) => event::GENERIC.get(usize::from(generic)).copied().unwrap_or("unknown"),
        None => spec.and_then(|s| s.events.get(usize::from(code))).copied().unwrap_or("unknown"),
    }
}

/// Writes records that are due and frees finished transactions. `readers`: the payload functions for which a
/// transaction has to wait.
pub fn log(entry: &mut Entry, occasion: &EventContext<'_>, readers: Path, recorder: &mut dyn Recorder) {
    let Some(app) = entry.ext.app.as_deref_mut() else { return };
    // Most packets change nothing that is recorded.
    if app.is_recorded(occasion.direction) {
        app.set_readers(readers);
        if app.is_recorded(occasion.direction) {
            return;
        }
    }
    let Some(mut app) = entry.ext.app.take() else { return };
    log_flow_events(&mut app, entry, occasion, recorder);
    let Some((protocol, spec)) = protocol_of(&app) else {
        entry.ext.app = Some(app);
        return;
    };
    if let Some(frames) = app.frames_mut() {
        frames
            .drain(occasion.direction, |frames, frame| recorder.frame(occasion, entry, spec, frames, frame));
    }
    app.set_readers(readers);
    let Some(parser) = app.parser_mut() else {
        entry.ext.app = Some(app);
        return;
    };
    let direction = occasion.direction;
    let held = parser.tx_range();
    let unseen = parser.worklist().unseen();
    let changed = parser.worklist_mut().take(Look::Record, direction);
    for id in changed.iter().copied().filter(|id| held.contains(id)) {
        let Some(tx) = parser.tx_mut(id) else { continue };
        log_events(tx, spec, entry, occasion, id, recorder);
        if !tx.common().logged && tx.log_ready(spec.complete) {
            if spec.eve_type.is_some() && !tx.common().silent {
                recorder.transaction(occasion, entry, TxRecord { protocol, spec, id, tx });
            }
            tx.common_mut().logged = true;
        }
        store_certificates(tx, protocol, spec, entry, occasion, id, recorder);
        for side in Direction::BOTH {
            // Files are recorded with packets of their own direction, which brings their content; when
            // neither side sends any more, with any packet.
            let ended = tx.common().ended;
            if (side == direction || ended.to_server && ended.to_client) && !tx.files_of(side).is_empty() {
                let of = TxIdentity { protocol, spec, id };
                store_files(tx, of, entry, occasion, side, recorder);
                log_files(tx, of, entry, occasion, side, recorder);
            }
        }
        if is_done(tx, spec, readers, unseen) {
            parser.free_tx(id);
        }
    }
    parser.worklist_mut().recycle(Look::Record, direction, changed);
    entry.ext.app = Some(app);
}

fn log_flow_events(
    app: &mut AppLayer,
    entry: &Entry,
    occasion: &EventContext<'_>,
    recorder: &mut dyn Recorder,
) {
    let spec = protocol_of(app).map(|p| p.1);
    let from = app.events_logged;
    for code in app.events.as_slice().iter().skip(from) {
        let anomaly = Anomaly::App {
            protocol: spec,
            event: event_name(spec, *code),
            tx: None,
            detection: *code >= event::GENERIC_BASE,
        };
        recorder.anomaly(occasion, Some(entry), anomaly);
    }
    app.events_logged = app.events.as_slice().len();
}

fn log_events(
    tx: &mut dyn Transaction,
    spec: &'static ProtocolSpec,
    entry: &Entry,
    occasion: &EventContext<'_>,
    id: TxId,
    recorder: &mut dyn Recorder,
) {
    let common = tx.common_mut();
    if common.events.as_slice().len() == common.events_logged {
        return;
    }
    for code in common.events.as_slice().iter().skip(common.events_logged) {
        let anomaly = Anomaly::App {
            protocol: Some(spec),
            event: event_name(Some(spec), *code),
            tx: Some(id),
            detection: false,
        };
        recorder.anomaly(occasion, Some(entry), anomaly);
    }
    common.events_logged = common.events.as_slice().len();
}

/// Stores the certificates that rules selected, once for each side, when they are complete.
fn store_certificates(
    tx: &mut dyn Transaction,
    protocol: ProtocolId,
    spec: &'static ProtocolSpec,
    entry: &Entry,
    occasion: &EventContext<'_>,
    id: TxId,
    recorder: &mut dyn Recorder,
) {
    if tx.common().silent {
        return;
    }
    let Some(view) = tx.certificates() else { return };
    let due =
        PerDirection::new(view.due(Direction::ToServer).is_some(), view.due(Direction::ToClient).is_some());
    for side in [Direction::ToClient, Direction::ToServer].into_iter().filter(|side| due[*side]) {
        recorder.certificates(occasion, entry, TxRecord { protocol, spec, id, tx }, side);
    }
    let Some(storing) = tx.storing_mut() else { return };
    for (due, storing) in [(due.to_server, storing.to_server), (due.to_client, storing.to_client)] {
        if due {
            *storing = Storing::Done;
        }
    }
}

/// A transaction's protocol and number.
#[derive(Clone, Copy)]
struct TxIdentity {
    protocol: ProtocolId,
    spec: &'static ProtocolSpec,
    id: TxId,
}

/// Stores the new bytes of files that are to be kept.
fn store_files(
    tx: &mut dyn Transaction,
    of: TxIdentity,
    entry: &Entry,
    occasion: &EventContext<'_>,
    direction: Direction,
    recorder: &mut dyn Recorder,
) {
    let TxIdentity { protocol, spec, id } = of;
    let ended = tx.common().ended[direction];
    for index in 0..tx.files_of(direction).len() {
        let Some(file) = tx.files_of_mut(direction).get_mut(index) else { continue };
        if !file.store || file.stored {
            continue;
        }
        if file.state == FileState::Open && ended {
            file.close(FileState::Truncated);
        }
        let kept = recorder.store(occasion, entry, TxRecord { protocol, spec, id, tx }, direction, index);
        let Some(file) = tx.files_of_mut(direction).get_mut(index) else { continue };
        match kept {
            StoreOutcome::Nothing => {}
            StoreOutcome::SoFar { id, bytes } => (file.store_id, file.kept) = (id, bytes),
            StoreOutcome::Done { id } => (file.store_id, file.stored) = (id, true),
            StoreOutcome::GivenUp => (file.store, file.store_id) = (false, 0),
        }
    }
}

fn log_files(
    tx: &mut dyn Transaction,
    of: TxIdentity,
    entry: &Entry,
    occasion: &EventContext<'_>,
    direction: Direction,
    recorder: &mut dyn Recorder,
) {
    let TxIdentity { protocol, spec, id } = of;
    {
        let ended = tx.common().ended[direction];
        for index in 0..tx.files_of(direction).len() {
            if let Some(file) = tx.files_of_mut(direction).get_mut(index) {
                if file.state == FileState::Open && ended {
                    file.close(FileState::Truncated);
                }
                if file.logged || file.state == FileState::Open {
                    continue;
                }
                file.logged = true;
            }
            recorder.file(occasion, entry, TxRecord { protocol, spec, id, tx }, direction, index);
        }
    }
}

/// `unseen`: directions without inspection, since none of their packets passes.
fn is_done(tx: &dyn Transaction, spec: &ProtocolSpec, readers: Path, unseen: PerDirection<bool>) -> bool {
    let common = tx.common();
    // The test that fails most often comes first: this runs for each packet of a long body.
    (common.logged || spec.eve_type.is_none())
        && common.waits_for(readers, unseen).is_empty()
        && Direction::BOTH.into_iter().all(|d| tx.progress(d) >= spec.complete[d] || common.ended[d])
        && tx.files().is_none_or(|files| Direction::BOTH.iter().all(|d| files[*d].iter().all(|f| f.logged)))
}
