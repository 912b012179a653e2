// SPDX-License-Identifier: Apache-2.0
//! A capture file.

use crate::planted::planted;
use bartizan_packet::capture::{CaptureReader, MAX_PACKET_LEN};

/// Reads the file to its end.
pub fn run(data: &[u8]) {
    let Ok(mut reader) = CaptureReader::new(std::io::Cursor::new(data.to_vec()), "fuzz") else { return };
    let mut number = 0;
    while let Ok(Some(record)) = reader.next() {
        number += 1;
        assert_eq!(record.number, number);
        assert!(record.data.len() <= MAX_PACKET_LEN as usize);
        planted(record.link_type != 1 && record.data.len() > 4);
        if number > 100_000 {
            break;
        }
    }
    let _ = reader.status().notice();
}
