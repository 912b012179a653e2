// SPDX-License-Identifier: Apache-2.0
//! Packets and bytes by direction, under the names that flows have for them.

use crate::JsonWriter;
use bartizan_base::PerDirection;

/// Writes the four fields into the object that is open.
pub(super) fn write_counts(w: &mut JsonWriter, packets: PerDirection<u64>, bytes: PerDirection<u64>) {
    w.num("pkts_toserver", packets.to_server);
    w.num("pkts_toclient", packets.to_client);
    w.num("bytes_toserver", bytes.to_server);
    w.num("bytes_toclient", bytes.to_client);
}
