// SPDX-License-Identifier: Apache-2.0
//! temporary: flow events only
use crate::error::Failure;
use bartizan_base::{Decision, Direction, Settings, Timestamp};
use bartizan_dataplane::record::{Anomaly, Entry, Occasion, Recorder, TxRecord};
use bartizan_dataplane::worker::Worker;
use bartizan_events::JsonWriter;
use bartizan_flow::EndReason;
use bartizan_function::Finding;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;

pub struct EveRecorder { out: std::io::BufWriter<std::fs::File>, alerts: BTreeMap<u32, u64>, w: JsonWriter }
impl EveRecorder {
    pub fn new(_s: &Settings, out: &Path, _ips: bool, _w: &mut Vec<String>) -> Result<Self, Failure> {
        let f = std::fs::File::create(out.join("eve.json")).map_err(Failure::stopped)?;
        Ok(Self { out: std::io::BufWriter::new(f), alerts: BTreeMap::new(), w: JsonWriter::new() })
    }
    pub fn enter_capture(&mut self, _n: &str) {}
    pub fn alerts(&self) -> &BTreeMap<u32, u64> { &self.alerts }
    pub fn finish(&mut self, _w: &Worker, _o: &Path) -> Result<(), String> { self.out.flush().map_err(|e| e.to_string()) }
}
fn ts(t: Timestamp) -> String {
    let s = t.as_secs(); let us = t.as_micros() % 1_000_000;
    let days = (s / 86400) as i64; let z = days + 719468; let era = z.div_euclid(146097); let doe = z.rem_euclid(146097);
    let yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365; let y = yoe + era * 400; let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153; let d = doy - (153 * mp + 2) / 5 + 1; let m = if mp < 10 { mp + 3 } else { mp - 9 }; let y = if m <= 2 { y + 1 } else { y };
    format!("{y:04}-{m:02}-{d:02}T{:02}:{:02}:{:02}.{us:06}+0000", s / 3600 % 24, s / 60 % 60, s % 60)
}
fn ip(a: IpAddr) -> String { match a { IpAddr::V4(a) => a.to_string(), IpAddr::V6(a) => a.segments().map(|s| format!("{s:04x}")).join(":") } }
impl Recorder for EveRecorder {
    fn alert(&mut self, o: &Occasion<'_>, _f: Option<&Entry>, finding: &Finding, _tx: Option<TxRecord<'_>>) {
        *self.alerts.entry(finding.rule.id.sid).or_default() += 1;
        eprintln!("alert {} pkt {:?} {:?}", finding.rule.id, o.number, o.direction);
    }
    fn anomaly(&mut self, _o: &Occasion<'_>, _f: Option<&Entry>, _a: Anomaly<'_>) {}
    fn refused(&mut self, _o: &Occasion<'_>, _f: Option<&Entry>, _d: &Decision, _x: &[Finding]) {}
    fn transaction(&mut self, _o: &Occasion<'_>, _f: &Entry, _t: TxRecord<'_>) {}
    fn file(&mut self, _o: &Occasion<'_>, _f: &Entry, _t: TxRecord<'_>, _d: Direction, _i: usize) {}
    fn flow(&mut self, e: &Entry, reason: EndReason, _now: Timestamp) {
        let w = &mut self.w; w.clear(); w.begin_object();
        w.str("timestamp", &ts(e.start)); w.num("flow_id", e.ext.event_id); w.str("event_type", "flow");
        if !e.ext.vlan.is_empty() { w.array("vlan"); for v in e.ext.vlan.as_slice() { w.item_num(*v); } w.end_array(); }
        let k = e.key();
        w.str("src_ip", &ip(k.source())); if k.has_ports() { w.num("src_port", k.source_port()); }
        w.str("dest_ip", &ip(k.destination())); if k.has_ports() { w.num("dest_port", k.destination_port()); }
        w.num("ip_v", if k.is_ipv6() { 6u8 } else { 4 });
        let p = match k.protocol() { 6 => "TCP".into(), 17 => "UDP".into(), 1 => "ICMP".into(), 58 => "IPv6-ICMP".into(), 132 => "SCTP".into(), 47 => "GRE".into(), 50 => "ESP".into(), n => format!("{n:03}") };
        w.str("proto", &p);
        w.object("flow");
        w.num("pkts_toserver", e.packets.to_server); w.num("pkts_toclient", e.packets.to_client);
        w.num("bytes_toserver", e.bytes.to_server); w.num("bytes_toclient", e.bytes.to_client);
        w.str("start", &ts(e.start)); w.str("end", &ts(e.last_seen));
        w.num("age", e.last_seen.as_secs() - e.start.as_secs()); w.str("state", e.state().eve_name()); w.str("reason", reason.eve_name());
        w.end_object();
        if k.protocol() == 6 { w.object("tcp"); let s = &e.ext.session;
            let (a, b) = (s.tcp_flags(Direction::ToServer).bits(), s.tcp_flags(Direction::ToClient).bits());
            w.str("tcp_flags", &format!("{:02x}", a | b)); w.str("tcp_flags_ts", &format!("{a:02x}")); w.str("tcp_flags_tc", &format!("{b:02x}"));
            if let Some(n) = s.state().eve_name() { w.str("state", n); }
            w.end_object(); }
        w.end_object();
        let _ = self.out.write_all(w.bytes()); let _ = self.out.write_all(b"\n");
    }
}
