// SPDX-License-Identifier: Apache-2.0
//! Stored files: pieces are passed to the file store as they arrive.

use super::EveRecorder;
use super::head::{Orientation, VariableNames};
use super::packet::{Heads, file_info, show_forwarded, write_inside};
use bartizan_applayer::file::{FileState, FileTrack};
use bartizan_applayer::transaction::Bodies;
use bartizan_base::Direction;
use bartizan_events::JsonWriter;
use bartizan_events::config::HeaderOptions;
use bartizan_events::record::{FileInfo, FileRecord};
use bartizan_events::xff::XffOptions;
use bartizan_stages::record::{Entry, EventContext, StoreOutcome, TxRecord};
use core::sync::atomic::Ordering;

impl EveRecorder {
    pub(super) fn store_file(
        &mut self,
        occasion: &EventContext<'_>,
        flow: &Entry,
        tx: TxRecord<'_>,
        direction: Direction,
        index: usize,
    ) -> StoreOutcome {
        let (Some(store), Some(file)) = (self.store.clone(), tx.tx.files_of(direction).get(index)) else {
            return StoreOutcome::Nothing;
        };
        let Some(fresh) = file.unkept() else {
            // The beginning is gone: a rule decided too late.
            store.counters().too_late.fetch_add(1, Ordering::Relaxed);
            return abandon_file(&store, file);
        };
        let id = if file.store_id == 0 { store.open() } else { file.store_id };
        let bytes = file.kept.saturating_add(fresh.len() as u64);
        if !store.piece(id, fresh) {
            return abandon_file(&store, file);
        }
        if file.state == FileState::Open {
            return StoreOutcome::SoFar { id, bytes };
        }
        // The digest is the file's name: a broken file has none and is not kept.
        let Some(sha256) = file.store_name() else {
            store.drop_file(id);
            return StoreOutcome::GivenUp;
        };
        let record = store.write_fileinfo.then(|| {
            let text = self.file_record(occasion, flow, tx, file, id, store.xff.as_deref());
            (occasion.now.as_secs(), text)
        });
        if store.close(id, sha256, record) { StoreOutcome::Done { id } } else { abandon_file(&store, file) }
    }

    /// Writes the metadata record of a stored file.
    fn file_record(
        &self,
        occasion: &EventContext<'_>,
        flow: &Entry,
        tx: TxRecord<'_>,
        file: &FileTrack,
        id: u32,
        xff: Option<&XffOptions>,
    ) -> Vec<u8> {
        let names = VariableNames::of(self, occasion, Some(flow));
        let lists = names.lists();
        let heads = Heads::of(self, Some(flow));
        let mut common = heads.head(occasion, Some(flow), Orientation::Direction(occasion.direction), None);
        common.variables = lists.get();
        let info = FileInfo {
            file_id: Some(id),
            sha256: file.store_name(),
            storing: false,
            ..file_info(file, tx.id, true)
        };
        let mut record = FileRecord { app_proto: Some(tx.spec.eve_name), file: info, xff: None };
        show_forwarded(&mut common, &mut record, occasion, tx, xff);
        let mut writer = JsonWriter::new();
        record.write(&mut writer, &HeaderOptions::default(), &common, |w| {
            write_inside(w, tx, Bodies::default())
        });
        writer.bytes().to_vec()
    }
}

fn abandon_file(store: &bartizan_events::FileStoreHandle, file: &FileTrack) -> StoreOutcome {
    if file.store_id != 0 {
        store.drop_file(file.store_id);
    }
    StoreOutcome::GivenUp
}
