// SPDX-License-Identifier: Apache-2.0
//! Flows and transactions by application protocol, as EVE's `stats.app_layer` counts them.
//!
//! A flow is counted when detection of its protocol ends, with or without a protocol, and again when its
//! protocol changes; a transaction when it begins. Each is counted with the packet that caused it.

use crate::flow_ext::FlowExt;
use bartizan_applayer::flow::{AppLayer, DetectedProtocol};
use bartizan_applayer::protocol::{ProtocolSpec, Transport};
use bartizan_applayer::protocols::TABLE;
use std::sync::LazyLock;

const KINDS: usize = TABLE.len();
/// Number of transports: TCP and UDP.
const TRANSPORTS: usize = 2;
const OVER_BOTH: [Transport; TRANSPORTS] = [Transport::Tcp, Transport::Udp];

/// Names of a protocol's counters over one transport; `None`: it has no such counter.
struct AppCounterNames {
    flow: Option<String>,
    tx: Option<String>,
    error: Option<String>,
    gap: Option<String>,
}

/// Counter names by protocol and transport. A protocol whose counters do not differ by transport has the same
/// names twice.
static NAMES: LazyLock<Vec<[AppCounterNames; TRANSPORTS]>> = LazyLock::new(|| {
    let of = |spec: &ProtocolSpec, ending: &str| {
        let name = spec.name;
        let ending = if spec.counters.by_transport { ending } else { "" };
        let of_parser = |text: String| (!spec.counters.flows_only).then_some(text);
        AppCounterNames {
            flow: Some(format!("app_layer.flow.{name}{ending}")),
            tx: of_parser(format!("app_layer.tx.{name}{ending}")),
            error: of_parser(format!("app_layer.error.{name}{ending}.parser")),
            gap: of_parser(format!("app_layer.error.{name}{ending}.gap")),
        }
    };
    TABLE.iter().map(|spec| [of(spec, "_tcp"), of(spec, "_udp")]).collect()
});

/// Counters of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppStats {
    flows: [[u64; TRANSPORTS]; KINDS],
    transactions: [[u64; TRANSPORTS]; KINDS],
    errors: [[u64; TRANSPORTS]; KINDS],
    /// Flows in which a parser could not continue after missing bytes.
    gaps: [[u64; TRANSPORTS]; KINDS],
    /// Flows whose protocol detection failed.
    failed: [u64; TRANSPORTS],
}

impl AppStats {
    /// Counts the changes in a flow of this IP protocol.
    pub fn note(&mut self, ip_protocol: u8, ext: &mut FlowExt) {
        let Some(app) = ext.app.as_deref() else { return };
        let transport = usize::from(ip_protocol == 17);
        // Prevention gives up the whole flow at a gap; the parser has not failed.
        let (known, gap) = (app.protocol(), app.lost_at_gap);
        let error = app.failed_parsing && !gap;
        let begun = begun(ext.earlier_tx, app);
        let counted = &mut ext.counted;
        let of = |counts: &mut [[u64; TRANSPORTS]; KINDS], more: u64| {
            if let DetectedProtocol::Protocol(id) = known
                && let Some(count) = counts.get_mut(usize::from(id.0)).and_then(|c| c.get_mut(transport))
            {
                *count += more;
            }
        };
        if known != DetectedProtocol::Pending && counted.protocol != Some(known) {
            counted.protocol = Some(known);
            of(&mut self.flows, 1);
            if known == DetectedProtocol::Failed
                && let Some(count) = self.failed.get_mut(transport)
            {
                *count += 1;
            }
        }
        // A new parser counts from 0 again.
        counted.transactions = counted.transactions.min(begun);
        if begun > counted.transactions {
            of(&mut self.transactions, begun - counted.transactions);
            counted.transactions = begun;
        }
        if error && !counted.error {
            counted.error = true;
            of(&mut self.errors, 1);
        }
        if gap && !counted.gap {
            counted.gap = true;
            of(&mut self.gaps, 1);
        }
    }

    /// Visits each counter by its dotted name.
    pub fn visit(&self, mut each: impl FnMut(&'static str, u64)) {
        self.visit_one(&self.flows, |names| &names.flow, &OVER_BOTH, &mut each);
        each("app_layer.flow.failed_tcp", self.failed.first().copied().unwrap_or(0));
        each("app_layer.flow.failed_udp", self.failed.last().copied().unwrap_or(0));
        self.visit_one(&self.errors, |names| &names.error, &OVER_BOTH, &mut each);
        // Only streams have gaps.
        self.visit_one(&self.gaps, |names| &names.gap, &[Transport::Tcp], &mut each);
        self.visit_one(&self.transactions, |names| &names.tx, &OVER_BOTH, &mut each);
    }

    fn visit_one(
        &self,
        counts: &[[u64; TRANSPORTS]; KINDS],
        name: impl Fn(&'static AppCounterNames) -> &'static Option<String>,
        over: &[Transport],
        each: &mut impl FnMut(&'static str, u64),
    ) {
        for ((spec, names), [tcp, udp]) in TABLE.iter().zip(NAMES.iter()).zip(counts) {
            let [over_tcp, over_udp] = names;
            if !over.iter().any(|transport| spec.transports.contains(transport)) {
                continue;
            }
            if !spec.counters.by_transport {
                if let Some(name) = name(over_tcp) {
                    each(name, tcp + udp);
                }
                continue;
            }
            for (transport, names, count) in
                [(Transport::Tcp, over_tcp, tcp), (Transport::Udp, over_udp, udp)]
            {
                if let Some(name) = name(names)
                    && over.contains(&transport)
                    && spec.transports.contains(&transport)
                {
                    each(name, *count);
                }
            }
        }
    }
}

/// Number of transactions begun in a flow.
fn begun(earlier: u64, app: &AppLayer) -> u64 {
    earlier.saturating_add(app.parser().map_or(0, |parser| parser.tx_range().end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_protocol_has_its_names_once() {
        let mut seen = BTreeSet::new();
        AppStats::default().visit(|name, value| {
            assert!(seen.insert(name), "{name} twice");
            assert_eq!(value, 0);
        });
        for name in [
            "app_layer.flow.http",
            "app_layer.tx.dns_udp",
            "app_layer.error.dns_tcp.parser",
            "app_layer.error.dns_tcp.gap",
            "app_layer.error.tls.gap",
        ] {
            assert!(seen.contains(name), "{name}: {seen:?}");
        }
        assert!(!seen.contains("app_layer.error.dns_udp.gap"), "datagrams have no gaps");
    }
}
