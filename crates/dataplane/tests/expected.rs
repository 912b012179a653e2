// SPDX-License-Identifier: Apache-2.0
//! Connections that another flow announces (docs/design/0030-expected-connections.md): data connections of
//! FTP.

use bartizan_base::{LinkId, Timestamp};
use bartizan_dataplane::worker::Frame;
use bartizan_packet::LinkType;
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit::packet::{ACK, End, FIN, PSH, SYN, address, tcp};
use bartizan_testkit_worker::{Made, Stack, events};
use serde_json::{Value, json};

/// Alerts on each command and each file.
const RULES: &str = "alert ftp-data any any -> any any (msg:\"r\"; ftpdata_command:retr; file.data; content:\"evil\"; sid:1;)\n\
    alert ftp-data any any -> any any (msg:\"s\"; ftpdata_command:stor; file.name; content:\"up.bin\"; sid:2;)\n\
    alert ftp any any -> any any (msg:\"b\"; ftpbounce; sid:3;)\n";

struct Run {
    stack: Stack,
    nanos: u64,
}

/// A connection: its ends, and the next sequence numbers of both.
struct Connection {
    ends: [End; 2],
    next: [u32; 2],
}

impl Run {
    fn new(name: &'static str, tune: fn(&mut EngineSettings)) -> Self {
        let policy = "chain: [ids], ids: {rules: [r]}";
        let stack = Stack::new(&Made { name, policy, set: &[], tune, rules: RULES, thresholds: "" });
        Run { stack, nanos: 1_000_000_000 }
    }

    fn send(&mut self, connection: &mut Connection, side: usize, flags: u16, load: &[u8]) {
        let Connection { ends, next } = connection;
        let ack = if flags & ACK == 0 { 0 } else { next[1 - side] };
        let bytes = tcp(ends[side], ends[1 - side], (next[side], ack), flags as u8, load).frame();
        next[side] += load.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        self.nanos += 100_000;
        let frame = Frame {
            now: Timestamp::from_nanos(self.nanos),
            bytes: &bytes,
            wire_len: bytes.len() as u32,
            link_type: LinkType::ETHERNET,
            link: LinkId(0),
            number: None,
        };
        self.stack.worker.frame(&frame, &mut self.stack.recorder).expect("a decision");
    }

    fn open(&mut self, client: End, server: End) -> Connection {
        let mut connection = Connection { ends: [client, server], next: [100, 900] };
        for (side, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
            self.send(&mut connection, side, flags, b"");
        }
        connection
    }

    fn says(&mut self, connection: &mut Connection, side: usize, text: &str) {
        self.send(connection, side, PSH | ACK, text.as_bytes());
        self.send(connection, 1 - side, ACK, b"");
    }

    fn close(&mut self, connection: &mut Connection) {
        for (side, flags) in [(0, FIN | ACK), (1, FIN | ACK), (0, ACK)] {
            self.send(connection, side, flags, b"");
        }
    }

    /// A control connection on which a transfer was announced.
    fn control(&mut self, v6: bool, port: u16, announces: &str, agrees: &str, command: &str) -> Connection {
        let mut control = self.open((address(v6, 1), port), (address(v6, 2), 21));
        for (side, text) in [
            (1, "220 ready\r\n"),
            (0, "USER alice\r\n"),
            (1, "230 welcome\r\n"),
            (0, announces),
            (1, agrees),
            (0, command),
            (1, "150 here it comes\r\n"),
        ] {
            self.says(&mut control, side, text);
        }
        control
    }

    fn finish(self) -> Vec<Value> {
        self.stack.finish().1
    }
}

fn passive(settings: &mut EngineSettings) {
    let shipped = bartizan_config::suricata::shipped();
    *settings = EngineSettings::from_settings(&shipped, false, [1, 2]).unwrap().0;
}

fn live(_: &mut EngineSettings) {}

/// The argument of EPRT.
fn eprt(v6: bool, host: u8, port: u16) -> String {
    format!("EPRT |{}|{}|{port}|\r\n", if v6 { 2 } else { 1 }, address(v6, host))
}

#[test]
fn data_connections_are_known_by_what_was_announced() {
    for v6 in [false, true] {
        for tune in [passive as fn(&mut EngineSettings), live] {
            let mut run = Run::new("expected", tune);
            // The client opens the connection, and gets a file.
            let mut control =
                run.control(v6, 5_000, "EPSV\r\n", "229 ok (|||40001|)\r\n", "RETR evil.bin\r\n");
            let mut data = run.open((address(v6, 1), 5_001), (address(v6, 2), 40_001));
            run.says(&mut data, 1, "GET / HTTP/1.1 some evil bytes");
            run.close(&mut data);
            run.says(&mut control, 1, "226 done\r\n");
            // The server opens it, and gets a file.
            let announces = eprt(v6, 1, 6_000);
            let mut active = run.control(v6, 5_002, &announces, "200 ok\r\n", "STOR up.bin\r\n");
            let mut data = run.open((address(v6, 2), 20), (address(v6, 1), 6_000));
            run.says(&mut data, 1, "uploaded");
            run.close(&mut data);
            run.says(&mut active, 1, "226 done\r\n");
            let all = run.finish();
            let sids = |sid: u64| {
                events::of_type(&all, "alert").filter(|e| e["alert"]["signature_id"] == sid).count()
            };
            assert_eq!((sids(1), sids(2), sids(3)), (1, 1, 0), "{v6}");
            let records: Vec<_> = events::of_type(&all, "ftp_data").map(|e| e["ftp_data"].clone()).collect();
            let expected = [
                json!({"filename": "evil.bin", "command": "RETR"}),
                json!({"filename": "up.bin", "command": "STOR"}),
            ];
            assert_eq!(records, expected);
            let files: Vec<_> = events::of_type(&all, "fileinfo")
                .map(|e| {
                    (e["src_port"].clone(), e["fileinfo"]["size"].clone(), e["fileinfo"]["state"].clone())
                })
                .collect();
            assert_eq!(
                files,
                [(json!(40_001), json!(30), json!("CLOSED")), (json!(6_000), json!(8), json!("CLOSED")),]
            );
            // Events name the flow that announced the connection.
            let parents: Vec<_> = events::of_type(&all, "ftp_data").map(|e| e["parent_id"].clone()).collect();
            let controls: Vec<_> = [5_000, 5_002]
                .map(|port| {
                    events::of_type(&all, "flow")
                        .find(|e| e["src_port"] == port)
                        .map(|e| e["flow_id"].clone())
                })
                .into_iter()
                .flatten()
                .collect();
            assert_eq!(parents, controls);
        }
    }
}

#[test]
fn a_connection_that_was_not_announced_is_none() {
    for v6 in [false, true] {
        let mut run = Run::new("unexpected", passive);
        let mut control = run.control(v6, 5_000, "EPSV\r\n", "229 ok (|||40001|)\r\n", "RETR evil.bin\r\n");
        for (client, server, port) in [(1, 2, 40_002), (2, 1, 40_001), (3, 2, 40_001)] {
            let mut other = run.open((address(v6, client), 5_001), (address(v6, server), port));
            run.says(&mut other, 1, "some evil bytes that are of no protocol");
            run.close(&mut other);
        }
        // Too late.
        run.nanos += 31_000_000_000;
        let mut late = run.open((address(v6, 1), 5_009), (address(v6, 2), 40_001));
        run.says(&mut late, 1, "some evil bytes that are of no protocol");
        run.close(&mut late);
        run.says(&mut control, 1, "226 done\r\n");
        let all = run.finish();
        assert_eq!(events::of_type(&all, "ftp_data").count(), 0, "{v6}");
        assert!(events::of_type(&all, "flow").all(|e| e["app_proto"] != "ftp-data"));
    }
}

#[test]
fn a_connection_without_data_has_the_announced_protocol_in_its_directions() {
    let mut run = Run::new("empty", passive);
    let mut control = run.control(false, 5_000, "EPSV\r\n", "229 ok (|||40001|)\r\n", "RETR none\r\n");
    let mut data = run.open((address(false, 1), 5_001), (address(false, 2), 40_001));
    run.close(&mut data);
    run.says(&mut control, 1, "550 no\r\n");
    let all = run.finish();
    let flow = events::of_type(&all, "flow").find(|e| e["src_port"] == 5_001).expect("the data connection");
    assert_eq!(
        (&flow["app_proto"], &flow["app_proto_ts"], &flow["app_proto_tc"]),
        (&json!("failed"), &json!("ftp-data"), &json!("ftp-data"))
    );
}

#[test]
fn an_address_of_a_third_host_is_a_bounce() {
    for v6 in [false, true] {
        let mut run = Run::new("bounce", passive);
        let mut control = run.control(v6, 5_000, &eprt(v6, 3, 6_000), "200 ok\r\n", "STOR up.bin\r\n");
        run.says(&mut control, 1, "425 no\r\n");
        let all = run.finish();
        let sids: Vec<_> =
            events::of_type(&all, "alert").map(|e| e["alert"]["signature_id"].clone()).collect();
        assert_eq!(sids, [json!(3)], "{v6}");
    }
}
