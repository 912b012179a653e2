// SPDX-License-Identifier: Apache-2.0
//! Counters of the stream engine, with the names of EVE's stats records. Each worker has one set; reports
//! contain the sums.

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident => $name:literal,)+) => {
        /// Counts of one worker.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct StreamCounters { $($(#[$doc])* pub $field: u64,)+ }

        impl StreamCounters {
            /// Adds a session's memory.
            pub(crate) fn hold(&mut self, bytes: u64) {
                self.memuse = self.memuse.saturating_add(bytes);
                self.memuse_peak = self.memuse_peak.max(self.memuse);
            }

            /// Every counter with its name in EVE's stats records.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$(($name, self.$field),)+].into_iter()
            }

            /// Adds another worker's counts.
            pub fn add(&mut self, other: &StreamCounters) {
                $(self.$field = self.$field.wrapping_add(other.$field);)+
            }
        }
    };
}

counters! {
    /// Packets with SYN and without ACK.
    syn => "tcp.syn",
    /// Packets with SYN and ACK.
    synack => "tcp.synack",
    /// Packets with RST.
    rst => "tcp.rst",
    /// Packets with URG.
    urg => "tcp.urg",
    /// Sessions now tracked.
    active_sessions => "tcp.active_sessions",
    /// Sessions made.
    sessions => "tcp.sessions",
    /// Sessions not made because memory was used up.
    ssn_memcap_drop => "tcp.ssn_memcap_drop",
    /// Sessions whose remaining data was inspected at their end, without a packet of their own.
    ended => "tcp.ends_inspected",
    /// Packets with a wrong checksum.
    invalid_checksum => "tcp.invalid_checksum",
    /// Sessions picked up in the middle.
    midstream_pickups => "tcp.midstream_pickups",
    /// ACKs of data that was not seen.
    ack_unseen_data => "tcp.ack_unseen_data",
    /// Segments not kept because memory was used up.
    segment_memcap_drop => "tcp.segment_memcap_drop",
    /// Segments that lie beyond the reassembly depth.
    stream_depth_reached => "tcp.stream_depth_reached",
    /// Gaps reported to the application layer.
    reassembly_gap => "tcp.reassembly_gap",
    /// Segments that overlap earlier ones.
    overlap => "tcp.overlap",
    /// Segments that overlap earlier ones with different data.
    overlap_diff_data => "tcp.overlap_diff_data",
    /// Segments without overlap that could not be kept.
    insert_data_normal_fail => "tcp.insert_data_normal_fail",
    /// Segments with overlap that could not be kept.
    insert_data_overlap_fail => "tcp.insert_data_overlap_fail",
    /// Urgent bytes taken out of streams.
    urgent_oob_data => "tcp.urgent_oob_data",
    /// Packets in which inspected bytes were restored.
    rewritten => "tcp.rewritten",
    /// Bytes held by sessions.
    memuse => "tcp.memuse",
    /// Most bytes that sessions ever held.
    memuse_peak => "tcp.memuse_peak",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_up_by_name() {
        let mut sum = StreamCounters { syn: 2, ..StreamCounters::default() };
        sum.add(&StreamCounters { syn: 3, overlap: 1, ..StreamCounters::default() });
        assert_eq!(sum.iter().find(|(name, _)| *name == "tcp.syn"), Some(("tcp.syn", 5)));
        assert_eq!(sum.iter().find(|(name, _)| *name == "tcp.overlap"), Some(("tcp.overlap", 1)));
    }
}
