// SPDX-License-Identifier: Apache-2.0
//! Which data changes a session for rules and records.

use super::*;
use crate::worklist::Look;

/// Takes the lists of changed transactions; whether there was something new, and something to record.
fn news(flow: &mut Flow) -> (bool, bool) {
    let list = flow.parser.worklist_mut();
    let news = Direction::BOTH.iter().any(|direction| list.has_news(*direction));
    let record = Direction::BOTH.iter().any(|direction| list.waits(Look::Record, *direction));
    for direction in Direction::BOTH {
        assert!(list.waits(Look::Inspect, direction), "data that was parsed is inspected");
        for look in [Look::Inspect, Look::Record] {
            let ids = list.take(look, direction);
            list.recycle(look, direction, ids);
        }
    }
    (news, record)
}

#[test]
fn application_data_behind_the_first_changes_nothing() {
    let mut flow = Flow::new();
    let pieces = session();
    for (direction, bytes) in &pieces[..5] {
        flow.feed(*direction, bytes);
        assert_eq!(news(&mut flow), (true, true), "each message, and the first data");
    }
    let data = record(23, 0x0303, &[5; 200]);
    for _ in 0..2 {
        // A record, a part of one, and its rest.
        for (direction, bytes) in [(TS, &data[..]), (TC, &data[..100]), (TC, &data[100..])] {
            let flags = flow.number("ssl.state", direction);
            flow.feed(direction, bytes);
            assert_eq!(flow.number("ssl.state", direction), flags);
            assert_eq!(news(&mut flow), (false, false));
        }
    }
    flow.feed(TS, &pieces[6].1);
    assert_eq!(news(&mut flow), (true, true), "an alert is a message");
    flow.feed(TC, &[99, 3, 3, 0, 1, 0]);
    assert_eq!(news(&mut flow), (true, true), "an event");
}
