// SPDX-License-Identifier: Apache-2.0
//! State of the connection to a controller, for `bartizan ctl controller` and metrics.

use bartizan_agent::session::client::ClientHandle;
use bartizan_api::southbound::DeviceId;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A client with the facts that are shown of it.
#[derive(Clone)]
pub struct Shown {
    /// The client.
    pub handle: ClientHandle,
    /// Id of this device.
    pub device: DeviceId,
    /// Address of the controller.
    pub address: String,
}

impl Shown {
    /// Counters of events since the start, by name.
    pub fn counted(&self) -> BTreeMap<String, u64> {
        let counters = self.handle.status().counters;
        let mut all = BTreeMap::from(
            [
                ("dials", counters.dials),
                ("sessions", counters.sessions),
                ("dead", counters.dead),
                ("out-of-place", counters.out_of_place),
                ("misaddressed", counters.misaddressed),
                ("stale", counters.stale),
                ("statistics-lost", counters.statistics_lost),
                ("alerts-lost", counters.alerts_lost),
                ("expired", counters.expired),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        let word = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
        let refused = counters.refused.iter().map(|(code, n)| (format!("refused-{}", word(code)), *n));
        let malformed = counters.malformed.iter().map(|(kind, n)| (format!("malformed-{}", word(kind)), *n));
        let generations = counters.generations_refused.iter();
        let generations = generations.map(|(code, n)| (format!("generations-refused-{}", word(code)), *n));
        all.extend(refused.chain(malformed).chain(generations));
        all
    }

    /// State of the connection, in readable form.
    pub fn to_json(&self) -> Map<String, Value> {
        let status = self.handle.status();
        let mut told = Map::new();
        told.insert("address".to_owned(), self.address.as_str().into());
        told.insert("device".to_owned(), self.device.as_str().into());
        told.insert("connected".to_owned(), status.in_step.into());
        told.insert("generation".to_owned(), status.generation.into());
        told.insert("manifest".to_owned(), status.manifest.to_string().into());
        told.insert("last-end".to_owned(), status.last_end.map_or(Value::Null, Value::from));
        let counted = self.counted().into_iter().map(|(name, value)| (name, value.into()));
        told.insert("counters".to_owned(), Value::Object(counted.collect()));
        told
    }
}
