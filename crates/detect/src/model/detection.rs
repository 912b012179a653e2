// SPDX-License-Identifier: Apache-2.0
//! Queries about the result of protocol detection (`app-layer-protocol`).

use bartizan_applayer::flow::{AppSummary, DetectedProtocol};
use bartizan_applayer::protocol::ProtocolId;
use bartizan_base::Direction;

/// The result of protocol detection that a query concerns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DetectedIn {
    /// The protocol of the packet's direction.
    #[default]
    OfPacket,
    /// The protocol of the flow.
    Final,
    /// The protocol before a switch.
    Original,
    /// The protocol of either direction.
    Either,
    /// The protocol of one direction.
    Of(Direction),
}

/// A query about the result of protocol detection: any of the listed protocols.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DetectionQuery {
    /// The result that the query concerns.
    pub of: DetectedIn,
    /// The result must be none of the listed ones. While there is no result, the query does not hold, as in
    /// Suricata.
    pub negated: bool,
    /// The listed protocols.
    pub protocols: Vec<ProtocolId>,
    /// "No protocol" is listed.
    pub failed: bool,
    /// "No result yet" is listed.
    pub unknown: bool,
}

impl DetectionQuery {
    /// Whether the query holds for a flow and a packet's direction.
    #[must_use]
    pub fn holds(&self, flow: &AppSummary, direction: Direction) -> bool {
        // In prevention a flow's detection stays open for bytes that may still reveal the protocol. If both
        // directions have failed by now, the flow has failed, too.
        let both_failed =
            Direction::BOTH.iter().all(|side| flow.by_direction[*side] == DetectedProtocol::Failed);
        let of_flow = match flow.protocol {
            DetectedProtocol::Pending if both_failed => DetectedProtocol::Failed,
            known => known,
        };
        match self.of {
            DetectedIn::OfPacket => self.holds_for(&[flow.by_direction[direction]], of_flow),
            DetectedIn::Of(side) => self.holds_for(&[flow.by_direction[side]], of_flow),
            DetectedIn::Final => self.holds_for(&[of_flow], of_flow),
            DetectedIn::Original => self.holds_for(
                &[flow.original.map_or(DetectedProtocol::Pending, DetectedProtocol::Protocol)],
                of_flow,
            ),
            DetectedIn::Either => {
                self.holds_for(&Direction::BOTH.map(|side| flow.by_direction[side]), of_flow)
            }
        }
    }

    /// Whether the query holds for one of several results.
    fn holds_for(&self, results: &[DetectedProtocol], of_flow: DetectedProtocol) -> bool {
        if self.negated && results.iter().all(|result| *result == DetectedProtocol::Pending) {
            return false;
        }
        results.iter().any(|result| self.is(*result, of_flow)) != self.negated
    }

    /// Whether a result is listed. One direction may reveal a protocol that the other cannot: as long as the
    /// flow's protocol is unknown, a direction that failed also counts as one without a result.
    fn is(&self, result: DetectedProtocol, of_flow: DetectedProtocol) -> bool {
        match result {
            DetectedProtocol::Protocol(id) => self.protocols.contains(&id),
            DetectedProtocol::Failed => self.failed || self.unknown && of_flow == DetectedProtocol::Pending,
            DetectedProtocol::Pending => self.unknown,
        }
    }

    /// Whether another query in the same rule contradicts or repeats this one. As in Suricata, a query that
    /// is not negated must be the only one for its part of the flow.
    #[must_use]
    pub fn contradicts(&self, other: &Self) -> bool {
        let shares = self.failed && other.failed
            || self.protocols.iter().any(|protocol| other.protocols.contains(protocol));
        self.of == other.of && (!(self.negated && other.negated) || shares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_base::PerDirection;

    const HTTP: ProtocolId = ProtocolId(0);
    const TLS: ProtocolId = ProtocolId(1);

    fn flow(
        to_server: DetectedProtocol,
        to_client: DetectedProtocol,
        of_flow: DetectedProtocol,
    ) -> AppSummary {
        AppSummary {
            protocol: of_flow,
            by_direction: PerDirection::new(to_server, to_client),
            original: None,
        }
    }

    fn of(place: DetectedIn, protocols: &[ProtocolId], negated: bool) -> DetectionQuery {
        DetectionQuery { of: place, negated, protocols: protocols.to_vec(), ..DetectionQuery::default() }
    }

    #[test]
    fn without_a_result_no_negated_query_holds() {
        let places = [
            DetectedIn::OfPacket,
            DetectedIn::Final,
            DetectedIn::Original,
            DetectedIn::Either,
            DetectedIn::Of(Direction::ToServer),
            DetectedIn::Of(Direction::ToClient),
        ];
        let nothing = AppSummary::default();
        for place in places {
            for direction in Direction::BOTH {
                assert!(!of(place, &[HTTP], true).holds(&nothing, direction), "{place:?}");
                assert!(!of(place, &[HTTP], false).holds(&nothing, direction), "{place:?}");
                let failed = DetectionQuery { failed: true, ..of(place, &[], true) };
                assert!(!failed.holds(&nothing, direction), "{place:?}");
                let unknown = DetectionQuery { unknown: true, ..of(place, &[], false) };
                assert!(unknown.holds(&nothing, direction), "{place:?}");
            }
        }
    }

    #[test]
    fn results_of_one_direction() {
        let http = DetectedProtocol::Protocol(HTTP);
        let begun = flow(http, DetectedProtocol::Pending, http);
        let (there, back) = (Direction::ToServer, Direction::ToClient);
        assert!(of(DetectedIn::OfPacket, &[TLS, HTTP], false).holds(&begun, there));
        assert!(!of(DetectedIn::OfPacket, &[TLS, HTTP], false).holds(&begun, back));
        assert!(of(DetectedIn::OfPacket, &[TLS], true).holds(&begun, there));
        assert!(
            !of(DetectedIn::OfPacket, &[TLS], true).holds(&begun, back),
            "nothing is known of the answers"
        );
        assert!(of(DetectedIn::Either, &[TLS], true).holds(&begun, back));
        assert!(!of(DetectedIn::Either, &[TLS, HTTP], true).holds(&begun, back));
        assert!(!of(DetectedIn::Original, &[TLS], true).holds(&begun, there), "there was no switch");
        let switched = AppSummary {
            original: Some(HTTP),
            ..flow(DetectedProtocol::Failed, DetectedProtocol::Failed, DetectedProtocol::Failed)
        };
        assert!(of(DetectedIn::Original, &[TLS], true).holds(&switched, there));
        assert!(of(DetectedIn::Final, &[HTTP], true).holds(&switched, there));
    }

    #[test]
    fn failed_and_unknown() {
        let failed = DetectionQuery { failed: true, ..DetectionQuery::default() };
        let unknown = DetectionQuery { unknown: true, ..DetectionQuery::default() };
        let open = flow(DetectedProtocol::Failed, DetectedProtocol::Pending, DetectedProtocol::Pending);
        // A direction that is closed has failed, whatever the other one may reveal (`app-layer.hold`).
        assert!(failed.holds(&open, Direction::ToServer) && unknown.holds(&open, Direction::ToServer));
        let closed = flow(DetectedProtocol::Failed, DetectedProtocol::Failed, DetectedProtocol::Failed);
        assert!(failed.holds(&closed, Direction::ToServer) && !unknown.holds(&closed, Direction::ToServer));
        // In prevention the flow may still be open when neither side has a protocol.
        let waits = flow(DetectedProtocol::Failed, DetectedProtocol::Failed, DetectedProtocol::Pending);
        assert!(of(DetectedIn::Final, &[HTTP], true).holds(&waits, Direction::ToServer));
        assert!(!of(DetectedIn::Final, &[HTTP], true).holds(&open, Direction::ToServer));
    }

    #[test]
    fn contradictions() {
        let query = |negated, protocols: &[ProtocolId]| of(DetectedIn::OfPacket, protocols, negated);
        assert!(query(false, &[HTTP]).contradicts(&query(false, &[TLS])));
        assert!(query(false, &[HTTP]).contradicts(&query(true, &[TLS])));
        assert!(query(true, &[HTTP, TLS]).contradicts(&query(true, &[TLS])));
        assert!(!query(true, &[HTTP]).contradicts(&query(true, &[TLS])));
        assert!(!query(false, &[HTTP]).contradicts(&of(DetectedIn::Final, &[TLS], false)));
    }
}
