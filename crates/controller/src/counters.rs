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
    unauthenticated "unauthenticated" "Without a token, or with one that is not known.";
    limited "limited" "The same, from a source that had too many of them.";
    forbidden "forbidden" "With a token that does not reach so far.";
    malformed "malformed" "Not readable: no JSON, a bad parameter, a format that is not read.";
    wrong "wrong" "Readable, and refused by a check.";
    too_large "too-large" "Bodies and heads beyond their limits.";
    not_found "not-found" "Requests for resources that do not exist.";
    conflict "conflict" "Requests that conflict with another resource, or with a change in the meantime.";
    quota "quota" "Beyond a tenant's quota.";
    often "often" "Changes of a tenant that came too fast.";
    store "store" "Requests that the store failed to carry out: a full or failing disk.";
    waiting "waiting" "Requests that were to wait for devices when there was no place.";
    timeout "timeout" "Requests that did not come in in time, and answers that were not taken.";
    busy "busy" "Connections beyond the number that may be open, of all, of their address or of their token.";
    gave_way "gave-way" "Connections that made room for newer ones: without a known token, or without a request under way.";
    tls "tls" "Connections whose handshake failed.";
    alerts_forgotten "alerts-forgotten" "Alerts that made room for newer ones.";
    alerts_lost "alerts-lost" "Messages of agents which say that alerts were lost before they could be sent.";
    counters_refused "counters-refused" "Counters of devices that are not kept: of tenants that they do not serve, or too many.";
    generations_forgotten "generations-forgotten" "Requests for generations whose documents are no longer kept, since they are too old.";
    audit_forgotten "audit-forgotten" "Rows of the audit log that made room for newer ones.";
    held_back "held-back" "Changes of tenants that a device refused: it keeps running their previous part.";
    interfaces_missing "interfaces-missing" "Sessions of devices that lack a link or port which their generation names.";
    alerts_unknown "alerts-unknown" "Alerts of tenants that the device does not serve.";
}

/// Increments the counter by one.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
