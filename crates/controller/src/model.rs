// SPDX-License-Identifier: Apache-2.0
//! The model: all documents and all status in memory, as of one generation. Readers never wait for the disk.

use crate::store::{Document, Status, StoreContent, Write};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// The documents and status of a generation.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The generation.
    pub generation: u64,
    documents: BTreeMap<String, BTreeMap<String, Arc<Document>>>,
    /// Shared by the copies for dry runs, because devices' statistics are large.
    status: BTreeMap<String, BTreeMap<String, Arc<Value>>>,
}

/// The effect of a change on a model. Two models that take the same step share its documents.
#[derive(Clone, Debug)]
pub struct ModelStep {
    generation: u64,
    documents: Vec<(String, String, Option<Arc<Document>>)>,
    status: Vec<Status>,
}

impl ModelStep {
    /// The step of a change; `generation` is the one it makes, or the current one if it writes no document.
    #[must_use]
    pub fn new(generation: u64, writes: &[Write], status: &[Status]) -> Self {
        let document = |write: &Write| {
            let (kind, id) = (write.kind.clone(), write.id.clone());
            let body = write.after.clone();
            let document =
                body.map(|body| Arc::new(Document { kind: kind.clone(), id: id.clone(), generation, body }));
            (kind, id, document)
        };
        ModelStep { generation, documents: writes.iter().map(document).collect(), status: status.to_vec() }
    }

    /// Names of the documents of a kind that the step writes or removes.
    pub fn changed<'s>(&'s self, kind: &'s str) -> impl Iterator<Item = &'s str> {
        self.documents.iter().filter(move |(of, ..)| of == kind).map(|(_, id, _)| id.as_str())
    }

    /// The lines of status of the step.
    #[must_use]
    pub fn status(&self) -> &[Status] {
        &self.status
    }
}

impl Model {
    /// A model of a store's content.
    #[must_use]
    pub fn of(loaded: StoreContent) -> Self {
        let mut model = Model { generation: loaded.generation, ..Model::default() };
        for document in loaded.documents {
            let kind = model.documents.entry(document.kind.clone()).or_default();
            kind.insert(document.id.clone(), Arc::new(document));
        }
        model.set(&loaded.status);
        model
    }

    /// A document.
    #[must_use]
    pub fn get(&self, kind: &str, id: &str) -> Option<&Document> {
        self.documents.get(kind)?.get(id).map(Arc::as_ref)
    }

    /// A document, shared, so that it can be used after the model's lock is released.
    #[must_use]
    pub fn share(&self, kind: &str, id: &str) -> Option<Arc<Document>> {
        self.documents.get(kind)?.get(id).cloned()
    }

    /// A document as its type; also `None` for a document that an older program wrote in another form.
    #[must_use]
    pub fn read<T: DeserializeOwned>(&self, kind: &str, id: &str) -> Option<T> {
        bartizan_config::policy::read::read(&bartizan_config::policy::read::from_json(
            &self.get(kind, id)?.body,
        ))
        .ok()
    }

    /// The documents of a kind whose names begin with `prefix`, from the first name after `after`.
    pub fn list<'m>(
        &'m self,
        kind: &str,
        prefix: &'m str,
        after: Option<&'m str>,
    ) -> impl Iterator<Item = &'m Document> + use<'m> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.documents
            .get(kind)
            .into_iter()
            .flat_map(move |all| all.range::<str, _>((from, Bound::Unbounded)))
            .take_while(move |(id, _)| id.starts_with(prefix))
            .map(|(_, document)| document.as_ref())
    }

    /// All documents of a kind.
    pub fn all<'m>(&'m self, kind: &str) -> impl Iterator<Item = &'m Document> + use<'m> {
        self.list(kind, "", None)
    }

    /// Number of documents of a kind.
    #[must_use]
    pub fn count(&self, kind: &str) -> usize {
        self.documents.get(kind).map_or(0, BTreeMap::len)
    }

    /// Every document, by kind and name.
    pub fn documents(&self) -> impl Iterator<Item = &Document> {
        self.documents.values().flat_map(|all| all.values().map(Arc::as_ref))
    }

    /// The status of a kind and name.
    #[must_use]
    pub fn status(&self, kind: &str, id: &str) -> Option<&Value> {
        self.status.get(kind)?.get(id).map(Arc::as_ref)
    }

    /// The status of a kind whose names begin with `prefix`.
    pub fn statuses<'m>(
        &'m self,
        kind: &str,
        prefix: &'m str,
    ) -> impl Iterator<Item = (&'m str, &'m Value)> + use<'m> {
        let all = self.status.get(kind).into_iter();
        all.flat_map(move |all| all.range::<str, _>((Bound::Included(prefix), Bound::Unbounded)))
            .take_while(move |(id, _)| id.starts_with(prefix))
            .map(|(id, body)| (id.as_str(), body.as_ref()))
    }

    /// Applies the step of a change.
    pub fn apply(&mut self, step: &ModelStep) {
        self.generation = step.generation;
        for (kind, id, document) in &step.documents {
            let kind = self.documents.entry(kind.clone()).or_default();
            match document {
                Some(document) => kind.insert(id.clone(), Arc::clone(document)),
                None => kind.remove(id),
            };
        }
        self.set(&step.status);
    }

    /// Sets lines of status, without a change.
    pub fn set(&mut self, status: &[Status]) {
        for line in status {
            let kind = self.status.entry(line.kind.clone()).or_default();
            match &line.body {
                Some(body) => kind.insert(line.id.clone(), Arc::new(body.clone())),
                None => kind.remove(&line.id),
            };
        }
    }
}
