// SPDX-License-Identifier: Apache-2.0
//! Sums of the counters of several workers and ports, by the dotted names of EVE's `stats`.

use bartizan_ports::PortStats;

/// Counters by name.
pub type NamedCounters = Vec<(&'static str, u64)>;

/// Whether a counter is a maximum, or belongs to a table that workers share: the sum is the largest value.
fn is_largest(name: &str) -> bool {
    let is_shared = name.starts_with("host.") || name.starts_with("app_layer.expectations");
    name.starts_with("decoder.max_") || is_shared || name.starts_with("memcap.")
}

const MEAN: &str = "decoder.avg_pkt_size";

/// Sums the counters of workers. Maxima stay maxima, and the mean is that of all packets. Counters in the
/// same order each time cost least.
#[derive(Debug, Default)]
pub struct Sum {
    counters: NamedCounters,
    at: usize,
}

impl Sum {
    /// Begins the counters of another worker.
    pub const fn next_worker(&mut self) {
        self.at = 0;
    }

    /// Adds a counter.
    pub fn add(&mut self, name: &'static str, value: u64) {
        let place = match self.counters.get(self.at) {
            Some((same, _)) if *same == name => Some(self.at),
            _ => self.counters.iter().position(|(other, _)| *other == name),
        };
        match place.and_then(|place| self.counters.get_mut(place)) {
            Some((_, sum)) if is_largest(name) => *sum = (*sum).max(value),
            Some((_, sum)) => *sum = sum.saturating_add(value),
            None => self.counters.push((name, value)),
        }
        self.at = place.unwrap_or(self.at) + 1;
    }

    /// The sums.
    #[must_use]
    pub fn finish(mut self) -> NamedCounters {
        let of =
            |wanted| self.counters.iter().find(|(name, _)| *name == wanted).map_or(0, |(_, value)| *value);
        let mean = of("decoder.bytes").checked_div(of("decoder.pkts")).unwrap_or(0);
        if let Some((_, value)) = self.counters.iter_mut().find(|(name, _)| *name == MEAN) {
            *value = mean;
        }
        self.counters
    }
}

/// Least number of segments for a judgement.
const LEAST_CHECKED: u64 = 10;

/// The numbers of TCP segments with a wrong checksum and of those checked, if most are wrong: the packets
/// were captured at their sender, before its device computed the checksums, and are not inspected.
#[must_use]
pub fn mostly_wrong_checksums(counters: &[(&'static str, u64)]) -> Option<(u64, u64)> {
    let of = |wanted| counters.iter().find(|(name, _)| *name == wanted).map_or(0, |(_, value)| *value);
    let (wrong, checked) = (of("tcp.invalid_checksum"), of("tcp.checksums_checked"));
    (checked >= LEAST_CHECKED && wrong > checked / 2).then_some((wrong, checked))
}

/// Visits the counters of an AF_PACKET port, by the names of EVE's `stats.capture`, and additional ones.
pub fn visit_capture(port: &PortStats, mut each: impl FnMut(&'static str, u64)) {
    // As the kernel counts: including those that found the ring full.
    each("capture.kernel_packets", port.ring_received.saturating_add(port.ring_dropped));
    each("capture.kernel_drops", port.ring_dropped);
    each("capture.afpacket.send_errors", port.send_failures.total());
    each("capture.checksum_pending", port.checksum_pending);
    each("capture.unstamped", port.unstamped);
    each("capture.cut", port.cut());
    each("capture.merge.waited", port.merge_waited);
    each("capture.merge.late", port.merge_late);
    each("capture.merge.pressed", port.merge_pressed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_maxima_and_the_mean() {
        let mut sum = Sum::default();
        for (pkts, bytes, max) in [(10, 1_000, 300), (30, 1_000, 200)] {
            sum.next_worker();
            sum.add("decoder.pkts", pkts);
            sum.add("decoder.bytes", bytes);
            sum.add(MEAN, bytes / pkts);
            sum.add("decoder.max_pkt_size", max);
            sum.add("tcp.syn", 1);
        }
        sum.add("flow.handed_over", 7);
        assert_eq!(
            sum.finish(),
            [
                ("decoder.pkts", 40),
                ("decoder.bytes", 2_000),
                (MEAN, 50),
                ("decoder.max_pkt_size", 300),
                ("tcp.syn", 2),
                ("flow.handed_over", 7)
            ]
        );
    }
}
