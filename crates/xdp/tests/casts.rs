// SPDX-License-Identifier: Apache-2.0
//! Frames of ports by the kind of their destination: counted on arrival and on departure.

use crate::common;

use bartizan_base::Reason;
use bartizan_testkit::packet::{TCP, UDP};
use bartizan_xdp::{FlowSlotControl, Tables, XdpFlowAction, XdpProgram};
use common::{DROP, PASS, REDIRECT, ends, in_namespace, key, level, number, plain};

/// Installs the flow of plain packets over IPv4.
fn install(tables: &Tables, slot: u32, protocol: u8, action: XdpFlowAction) {
    let [low, high] = ends(false);
    assert!(tables.clear(slot) && tables.set_control(slot, FlowSlotControl { action, generation: 0 }));
    tables.insert(&key(protocol, low, high, [0; 3]), slot).unwrap();
}

fn result(program: &mut XdpProgram, frame: &[u8]) -> u32 {
    program.run_on(frame, number("lan"), 1).unwrap().result
}

#[test]
fn frames_are_counted_by_destination_where_they_come_and_where_they_leave() {
    in_namespace(|| {
        let (mut program, tables) = level(16, 1500);
        install(&tables, 0, TCP, XdpFlowAction::Drop(Reason::PfwRule));
        install(&tables, 1, UDP, XdpFlowAction::Forward);
        let mut bytes = 0;
        for (address, frames) in [([2, 0, 0, 0, 0, 3], 3), ([1, 0, 0x5e, 0, 0, 1], 2), ([0xff; 6], 1)] {
            let mut frame = plain(false, UDP).frame();
            frame[..6].copy_from_slice(&address);
            for _ in 0..frames {
                assert_eq!(result(&mut program, &frame), REDIRECT);
                bytes += frame.len() as u64;
            }
            // Frames that go up and dropped ones have arrived as well, and leave by no port here.
            frame.truncate(20);
            assert_eq!(result(&mut program, &frame), PASS);
            let mut frame = plain(false, TCP).frame();
            frame[..6].copy_from_slice(&address);
            assert_eq!(result(&mut program, &frame), DROP);
        }
        let (lan, wan) = (tables.port_counters(4).unwrap(), tables.port_counters(9).unwrap());
        assert_eq!((lan.casts(), lan.out_casts(), lan.out_bytes), ([5, 4, 3], [0; 3], 0));
        assert_eq!((wan.casts(), wan.out_casts(), wan.out_bytes), ([0; 3], [3, 2, 1], bytes));
        assert_eq!(wan.out, lan.forwarded);
    });
}
