// SPDX-License-Identifier: Apache-2.0
//! Counters of the controller: requests by outcome, with a row for every kind of refusal.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($field:ident $name:literal $help:literal;)+) => {
        /// The counters.
        #[derive(Debug, Default)]
        pub struct Counters {
            $(#[doc = $help] pub $field: AtomicU64,)+
        }

        impl Counters {
            /// Names and values, in the order of the table.
            pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($name, self.$field.load(Ordering::Relaxed)),)+].into_iter()
            }
        }
    };
}

counters! {
    done "done" "Requests that succeeded.";
    unauthenticated "unauthenticated" "Requests without a token, or with an unknown one.";
    limited "limited" "Requests with an unknown token from a source that sent too many of them.";
    forbidden "forbidden" "Requests with a token whose rights do not suffice.";
    malformed "malformed" "Requests that cannot be read: not JSON, a bad parameter, a format that is not supported.";
    wrong "wrong" "Requests that can be read, and that a check refuses.";
    too_large "too-large" "Requests whose body or head exceeds its limit.";
    not_found "not-found" "Requests for resources that do not exist.";
    conflict "conflict" "Requests that conflict with another resource, or with a change in the meantime.";
    quota "quota" "Requests beyond a tenant's quota.";
    often "often" "Changes of a tenant that follow each other too fast.";
    store "store" "Requests that the store failed to carry out: a full or failing disk.";
    waiting "waiting" "Requests with `wait` beyond the number that may wait for devices.";
    timeout "timeout" "Requests that did not arrive in time, and answers that the client did not read.";
    busy "busy" "Connections beyond the number that may be open, of all, of their address or of their token.";
    gave_way "gave-way" "Connections closed in favour of newer ones: without a known token, or without a request under way.";
    tls "tls" "Connections whose handshake failed.";
    alerts_forgotten "alerts-forgotten" "Alerts removed in favour of newer ones.";
    alerts_lost "alerts-lost" "Reports of agents that alerts were lost before they could be sent.";
    counters_refused "counters-refused" "Counters of devices that are not kept: of tenants that they do not serve, or too many.";
    generations_forgotten "generations-forgotten" "Requests for generations whose documents are no longer kept, since they are too old.";
    audit_forgotten "audit-forgotten" "Rows of the audit log removed in favour of newer ones.";
    held_back "held-back" "Changes of tenants that a device refused: it keeps running their previous part.";
    interfaces_missing "interfaces-missing" "Sessions of devices that do not have a link or port of their generation.";
    alerts_unknown "alerts-unknown" "Alerts of tenants that the device does not serve.";
}

/// Increments the counter by one.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
