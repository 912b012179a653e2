// SPDX-License-Identifier: Apache-2.0
//! Stream events, with their names in `stream-event:` and EVE's anomaly records (those of Suricata 8).

macro_rules! events {
    ($($variant:ident => $name:literal, $doc:literal;)+) => {
        /// An anomaly of a TCP packet with regard to its session.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum StreamEvent { $(#[doc = $doc] $variant,)+ }

        impl StreamEvent {
            /// Every event.
            pub const ALL: &'static [StreamEvent] = &[$(StreamEvent::$variant,)+];

            /// Name with its prefix, as in EVE: `stream.est_invalid_ack`.
            #[must_use]
            pub const fn eve_name(self) -> &'static str {
                match self { $(StreamEvent::$variant => concat!("stream.", $name),)+ }
            }

            /// Name in the statistics: `stream.est_invalid_ack`.
            #[must_use]
            pub const fn stats_name(self) -> &'static str {
                match self {
                    // Events with another name in the statistics.
                    StreamEvent::ThreeWaySynackResendWithDifferentAck => "stream.3whs_synack_resend_with_diff_ack",
                    StreamEvent::EstSynackResendWithDifferentAck => "stream.est_synack_resend_with_diff_ack",
                    _ => self.eve_name(),
                }
            }

            /// Name as in a rule: `stream-event:est_invalid_ack`.
            #[must_use]
            pub const fn rule_name(self) -> &'static str {
                match self { $(StreamEvent::$variant => $name,)+ }
            }
        }
    };
}

events! {
    ThreeWayAckInWrongDir => "3whs_ack_in_wrong_dir", "ACK of the handshake from the wrong side.";
    ThreeWayAsyncWrongSeq => "3whs_async_wrong_seq", "One-sided handshake with a wrong sequence number.";
    ThreeWayRightSeqWrongAckEvasion => "3whs_right_seq_wrong_ack_evasion", "Last ACK of the handshake with the right sequence number and a wrong acknowledgement number.";
    ThreeWaySynackInWrongDirection => "3whs_synack_in_wrong_direction", "SYN/ACK from the client.";
    ThreeWaySynackResendWithDifferentAck => "3whs_synack_resend_with_different_ack", "Retransmitted SYN/ACK with another acknowledgement number.";
    ThreeWaySynackResendWithDiffSeq => "3whs_synack_resend_with_diff_seq", "Retransmitted SYN/ACK with another sequence number.";
    ThreeWaySynackToserverOnSynRecv => "3whs_synack_toserver_on_syn_recv", "SYN/ACK from the client after the server's.";
    ThreeWaySynackWithWrongAck => "3whs_synack_with_wrong_ack", "SYN/ACK that does not acknowledge the SYN.";
    ThreeWaySynackFlood => "3whs_synack_flood", "More different SYN/ACKs than are stored.";
    ThreeWaySynFlood => "3whs_syn_flood", "More different SYNs than are stored.";
    ThreeWaySynResendDiffSeqOnSynRecv => "3whs_syn_resend_diff_seq_on_syn_recv", "Retransmitted SYN with another sequence number after the SYN/ACK.";
    ThreeWaySynToclientOnSynRecv => "3whs_syn_toclient_on_syn_recv", "SYN from the server after its SYN/ACK.";
    ThreeWayWrongSeqWrongAck => "3whs_wrong_seq_wrong_ack", "Last ACK of the handshake with wrong sequence \
         and acknowledgement numbers.";
    ThreeWayAckDataInject => "3whs_ack_data_inject", "Data from the server instead of the client's ACK.";
    ThreeWaySynackTfoDataIgnored => "3whs_synack_tfo_data_ignored", "SYN/ACK that does not acknowledge the Fast Open data.";
    FourWaySynackWithWrongAck => "4whs_synack_with_wrong_ack", "Four-way handshake: SYN/ACK with a wrong acknowledgement number.";
    FourWaySynackWithWrongSyn => "4whs_synack_with_wrong_syn", "Four-way handshake: SYN/ACK with another sequence number than the first SYN.";
    FourWayWrongSeq => "4whs_wrong_seq", "Four-way handshake: wrong sequence number.";
    FourWayInvalidAck => "4whs_invalid_ack", "Four-way handshake: invalid acknowledgement number.";
    ClosewaitAckOutOfWindow => "closewait_ack_out_of_window", "Close_wait: ACK out of window.";
    ClosewaitFinOutOfWindow => "closewait_fin_out_of_window", "Close_wait: FIN out of window.";
    ClosewaitPktBeforeLastAck => "closewait_pkt_before_last_ack", "Close_wait: data before the last acknowledged byte.";
    ClosewaitInvalidAck => "closewait_invalid_ack", "Close_wait: invalid acknowledgement number.";
    ClosingAckWrongSeq => "closing_ack_wrong_seq", "Closing: ACK with a wrong sequence number.";
    ClosingInvalidAck => "closing_invalid_ack", "Closing: invalid acknowledgement number.";
    EstPacketOutOfWindow => "est_packet_out_of_window", "Established: data out of window.";
    EstPktBeforeLastAck => "est_pkt_before_last_ack", "Established: data before the last acknowledged byte.";
    EstSynackResend => "est_synack_resend", "Established: retransmitted SYN/ACK after the server's confirmation.";
    EstSynackResendWithDifferentAck => "est_synack_resend_with_different_ack", "Established: retransmitted SYN/ACK with another acknowledgement number.";
    EstSynackResendWithDiffSeq => "est_synack_resend_with_diff_seq", "Established: retransmitted SYN/ACK with another sequence number.";
    EstSynackToserver => "est_synack_toserver", "Established: SYN/ACK from the client.";
    EstSynResend => "est_syn_resend", "Established: retransmitted SYN.";
    EstSynResendDiffSeq => "est_syn_resend_diff_seq", "Established: retransmitted SYN with another sequence number.";
    EstSynToclient => "est_syn_toclient", "Established: SYN from the server.";
    EstInvalidAck => "est_invalid_ack", "Established: invalid acknowledgement number.";
    EstAckZwpData => "est_ack_zwp_data", "Established: ACK of the byte of a zero-window probe.";
    FinInvalidAck => "fin_invalid_ack", "FIN with an invalid acknowledgement number.";
    Fin1AckWrongSeq => "fin1_ack_wrong_seq", "Fin_wait1: ACK with a wrong sequence number.";
    Fin1FinWrongSeq => "fin1_fin_wrong_seq", "Fin_wait1: FIN with a wrong sequence number.";
    Fin1InvalidAck => "fin1_invalid_ack", "Fin_wait1: invalid acknowledgement number.";
    Fin2AckWrongSeq => "fin2_ack_wrong_seq", "Fin_wait2: ACK with a wrong sequence number.";
    Fin2FinWrongSeq => "fin2_fin_wrong_seq", "Fin_wait2: FIN with a wrong sequence number.";
    Fin2InvalidAck => "fin2_invalid_ack", "Fin_wait2: invalid acknowledgement number.";
    FinButNoSession => "fin_but_no_session", "FIN without a session.";
    FinOutOfWindow => "fin_out_of_window", "FIN out of window.";
    FinSyn => "fin_syn", "FIN and SYN in one packet.";
    LastackAckWrongSeq => "lastack_ack_wrong_seq", "Last_ack: ACK with a wrong sequence number.";
    LastackInvalidAck => "lastack_invalid_ack", "Last_ack: invalid acknowledgement number.";
    RstButNoSession => "rst_but_no_session", "RST without a session.";
    TimewaitAckWrongSeq => "timewait_ack_wrong_seq", "Time_wait: ACK with a wrong sequence number.";
    TimewaitInvalidAck => "timewait_invalid_ack", "Time_wait: invalid acknowledgement number.";
    ShutdownSynResend => "shutdown_syn_resend", "SYN while the session is being closed.";
    PktInvalidTimestamp => "pkt_invalid_timestamp", "Timestamp option that the receiver discards (PAWS).";
    PktInvalidAck => "pkt_invalid_ack", "Invalid acknowledgement number.";
    PktBrokenAck => "pkt_broken_ack", "Acknowledgement field is set without the ACK flag.";
    RstInvalidAck => "rst_invalid_ack", "RST with an invalid acknowledgement number.";
    RstWithData => "rst_with_data", "RST that carries data.";
    PktRetransmission => "pkt_retransmission", "Retransmitted data.";
    PktSpuriousRetransmission => "pkt_spurious_retransmission", "Retransmitted data that is already acknowledged.";
    PktBadWindowUpdate => "pkt_bad_window_update", "Window that shrinks by more than the packet's data.";
    SuspectedRstInject => "suspected_rst_inject", "Packets after a RST of the same sender.";
    WrongThread => "wrong_thread", "Never set: a packet goes to the worker that owns its flow. Rules may name it.";
    ReassemblySegmentBeforeBaseSeq => "reassembly_segment_before_base_seq", "Data before the reassembly window.";
    ReassemblyNoSegment => "reassembly_no_segment", "No memory for a segment record.";
    ReassemblySeqGap => "reassembly_seq_gap", "Acknowledged data that was not seen.";
    ReassemblyOverlapDifferentData => "reassembly_overlap_different_data", "Retransmitted data that differs.";
    ReassemblyDepthReached => "reassembly_depth_reached", "Reassembly depth reached.";
    ReassemblyInsertMemcap => "reassembly_insert_memcap", "Data not stored: reassembly memory is exhausted.";
    ReassemblyInsertLimit => "reassembly_insert_limit", "Data not stored: the flow's limit is reached.";
    ReassemblyInsertInvalid => "reassembly_insert_invalid", "Data not stored: it does not fit the stream.";
    ReassemblyUrgentOobLimitReached => "reassembly_urgent_oob_limit_reached", "More urgent bytes than are stored out of band.";
}

impl StreamEvent {
    /// The event of a rule's `stream-event:`, with or without the `stream.` prefix.
    #[must_use]
    pub fn from_name(name: &str) -> Option<StreamEvent> {
        let name = name.strip_prefix("stream.").unwrap_or(name);
        StreamEvent::ALL.iter().copied().find(|event| event.rule_name() == name)
    }
}

/// The events of one packet in the order in which they arose, without duplicates. Bounded: further events of
/// a packet are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventList {
    events: [Option<StreamEvent>; EventList::CAPACITY],
}

impl EventList {
    /// Most events kept for a packet (Suricata's limit).
    pub const CAPACITY: usize = 15;

    /// Adds an event unless the list has it.
    pub fn push(&mut self, event: StreamEvent) {
        for slot in &mut self.events {
            match slot {
                Some(present) if *present == event => return,
                Some(_) => {}
                None => {
                    *slot = Some(event);
                    return;
                }
            }
        }
    }

    /// Whether the event arose.
    #[must_use]
    pub fn contains(&self, event: StreamEvent) -> bool {
        self.iter().any(|present| present == event)
    }

    /// Whether no event arose.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The events in order.
    pub fn iter(&self) -> impl Iterator<Item = StreamEvent> + '_ {
        self.events.iter().map_while(|slot| *slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_found_again() {
        for event in StreamEvent::ALL {
            assert_eq!(StreamEvent::from_name(event.rule_name()), Some(*event));
            assert_eq!(StreamEvent::from_name(event.eve_name()), Some(*event));
        }
        assert_eq!(StreamEvent::from_name("no_such_event"), None);
    }

    #[test]
    fn a_list_keeps_order_drops_duplicates_and_is_bounded() {
        let mut list = EventList::default();
        assert!(list.is_empty());
        for event in [StreamEvent::FinSyn, StreamEvent::EstInvalidAck, StreamEvent::FinSyn] {
            list.push(event);
        }
        assert_eq!(list.iter().collect::<Vec<_>>(), [StreamEvent::FinSyn, StreamEvent::EstInvalidAck]);
        for event in StreamEvent::ALL {
            list.push(*event);
        }
        assert_eq!(list.iter().count(), EventList::CAPACITY);
    }
}
