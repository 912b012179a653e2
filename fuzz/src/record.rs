// SPDX-License-Identifier: Apache-2.0
//! Flow records of EVE, as a replay reads them.

use crate::planted::planted;
use bartizan_agent::replay::Record;

/// Each line is read or refused; a record read has two ends of one IP version.
pub fn run(data: &[u8]) {
    for line in data.split(|byte| *byte == b'\n') {
        let Ok(record) = Record::parse(line) else { continue };
        let flow = &record.flow;
        assert_eq!(flow.src_ip.is_ipv4(), flow.dest_ip.is_ipv4());
        assert!(record.vlans.len() <= 3);
        planted(flow.dest_port == 4242);
    }
}
