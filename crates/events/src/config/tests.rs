// SPDX-License-Identifier: Apache-2.0
//! Outputs that settings define.

use super::*;

fn settings(lines: &str) -> SettingsMap {
    let mut settings = SettingsMap::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (key, value) = line.split_once(" =").unwrap();
        settings.set(key, value.trim());
    }
    settings
}

/// Suricata's shipped settings, as far as they concern events.
const SHIPPED: &str = "
    outputs.0 = fast
    outputs.0.fast.enabled = yes
    outputs.1 = eve-log
    outputs.1.eve-log.enabled = yes
    outputs.1.eve-log.filetype = regular
    outputs.1.eve-log.filename = eve.json
    outputs.1.eve-log.pcap-file = false
    outputs.1.eve-log.community-id = false
    outputs.1.eve-log.community-id-seed = 0
    outputs.1.eve-log.xff.enabled = no
    outputs.1.eve-log.xff.mode = extra-data
    outputs.1.eve-log.xff.deployment = reverse
    outputs.1.eve-log.xff.header = X-Forwarded-For
    outputs.1.eve-log.types.0 = alert
    outputs.1.eve-log.types.0.alert.tagged-packets = yes
    outputs.1.eve-log.types.1 = frame
    outputs.1.eve-log.types.1.frame.enabled = no
    outputs.1.eve-log.types.2 = anomaly
    outputs.1.eve-log.types.2.anomaly.enabled = yes
    outputs.1.eve-log.types.3 = http
    outputs.1.eve-log.types.3.http.extended = yes
    outputs.1.eve-log.types.4 = dns
    outputs.1.eve-log.types.7 = files
    outputs.1.eve-log.types.7.files.force-magic = no
    outputs.1.eve-log.types.25 = arp
    outputs.1.eve-log.types.25.arp.enabled = no
    outputs.1.eve-log.types.32 = stats
    outputs.1.eve-log.types.32.stats.totals = yes
    outputs.1.eve-log.types.32.stats.threads = no
    outputs.1.eve-log.types.32.stats.deltas = no
    outputs.1.eve-log.types.33 = flow
";

#[test]
fn the_shipped_settings() {
    let settings = settings(SHIPPED);
    let all = EveOutputs::from_settings(&settings).unwrap();
    assert!(all.warnings.is_empty());
    let [output] = all.outputs.as_slice() else { panic!("one output") };
    assert_eq!(output.index, 1);
    assert_eq!(output.destination, Destination::File(FileDestination::new("eve.json")));
    assert_eq!(output.header, HeaderOptions::default());
    assert!(output.xff.as_ref().is_some_and(|xff| !xff.enabled && !xff.overwrite && !xff.forward));
    let types = &output.types;
    assert_eq!(types.alert, Some(AlertOptions { tagged_packets: true, ..AlertOptions::default() }));
    assert_eq!(types.anomaly, Some(AnomalyOptions::default()));
    assert_eq!(types.stats, Some(StatsOptions::default()));
    assert_eq!(types.files, Some(FilesOptions::default()));
    assert!(
        types.flow && !types.netflow && !types.frame && types.declared.is_empty() && types.drop.is_none()
    );
    assert_eq!(types.protocols.keys().collect::<Vec<_>>(), ["dns", "http"]);
    assert_eq!(types.protocols["http"].extended(false), Ok(true));
    assert_eq!(settings.unread(), ["outputs.0", "outputs.0.fast.enabled"]);
}

#[test]
fn an_item_can_be_turned_on_by_number() {
    let mut settings = settings(SHIPPED);
    settings.set("outputs.1.eve-log.types.1.frame.enabled", "yes");
    settings.set("outputs.1.eve-log.types.40.netflow.enabled", "yes");
    let all = EveOutputs::from_settings(&settings).unwrap();
    assert!(all.outputs[0].types.frame && all.outputs[0].types.netflow);
}

#[test]
fn options_of_alerts_drops_and_anomalies() {
    let all = EveOutputs::from_settings(&settings(
        "
        outputs.0 = eve-log
        outputs.0.eve-log.enabled = true
        outputs.0.eve-log.community-id = yes
        outputs.0.eve-log.community-id-seed = 1234
        outputs.0.eve-log.ethernet = yes
        outputs.0.eve-log.types.0 = alert
        outputs.0.eve-log.types.0.alert =
        outputs.0.eve-log.types.0.alert.payload = yes
        outputs.0.eve-log.types.0.alert.payload-buffer-size = 4kb
        outputs.0.eve-log.types.0.alert.payload-length = yes
        outputs.0.eve-log.types.0.alert.http-body = yes
        outputs.0.eve-log.types.0.alert.metadata.rule.raw = true
        outputs.0.eve-log.types.0.alert.metadata.app-layer = no
        outputs.0.eve-log.types.0.alert.xff.enabled = yes
        outputs.0.eve-log.types.0.alert.xff.mode = overwrite
        outputs.0.eve-log.types.0.alert.xff.deployment = forward
        outputs.0.eve-log.types.1 = drop
        outputs.0.eve-log.types.1.drop.alerts = yes
        outputs.0.eve-log.types.1.drop.flows = all
        outputs.0.eve-log.types.2 = anomaly
        outputs.0.eve-log.types.2.anomaly.types.decode = yes
        outputs.0.eve-log.types.2.anomaly.types.applayer = no
        outputs.0.eve-log.types.2.anomaly.packethdr = yes
        outputs.0.eve-log.types.3 = files
        outputs.0.eve-log.types.3.files.force-hash.0 = md5
        outputs.0.eve-log.types.3.files.force-hash.1 = sha256
        outputs.0.eve-log.types.4 = http
        outputs.0.eve-log.types.4.http.dump-all-headers = both
        outputs.0.eve-log.types.4.http.custom.0 = accept
        ",
    ))
    .unwrap();
    let output = &all.outputs[0];
    assert_eq!(output.header.community_id, Some(1234));
    assert!(output.header.ethernet);
    let alert = output.types.alert.unwrap();
    assert!(alert.payload && alert.payload_length && alert.rule_raw && alert.flow && alert.rule_metadata);
    assert!(!alert.app_layer && !alert.http_body && !alert.payload_printable);
    assert!(all.warnings[0].contains("metadata.app-layer"), "{:?}", all.warnings);
    assert!(output.types.alert_xff.as_ref().is_some_and(|xff| xff.enabled && xff.overwrite && xff.forward));
    assert_eq!(output.types.drop, Some(DropOptions { alerts: true, all_packets: true, verdict: false }));
    assert_eq!(
        output.types.anomaly,
        Some(AnomalyOptions { decode: true, stream: false, applayer: false, packethdr: true })
    );
    let files = output.types.files.as_ref().unwrap();
    assert!(files.md5 && files.sha256 && !files.sha1);
    assert_eq!(output.types.protocols["http"].dump_all_headers(), (true, true));
    assert_eq!(output.types.protocols["http"].list("custom"), ["accept"]);
}

#[test]
fn metadata_no_turns_all_of_it_off() {
    let all = EveOutputs::from_settings(&settings(
        "
        outputs.0.eve-log.enabled = yes
        outputs.0.eve-log.types.0 = alert
        outputs.0.eve-log.types.0.alert.metadata = no
        ",
    ))
    .unwrap();
    assert_eq!(all.outputs[0].types.alert, Some(AlertOptions::NOTHING));
}

#[test]
fn several_outputs_and_what_is_not_supported() {
    let all = EveOutputs::from_settings(&settings(
        "
        outputs.0.eve-log.enabled = yes
        outputs.0.eve-log.filename = all.json
        outputs.0.eve-log.types.0 = drop
        outputs.1.eve-log.enabled = no
        outputs.1.eve-log.types.0 = flow
        outputs.2.eve-log.types.0 = flow
        outputs.3.eve-log.enabled = no
        outputs.3.eve-log.filetype = redis
        outputs.3.eve-log.types.0 = flow
        outputs.4.eve-log.enabled = yes
        outputs.4.eve-log.filetype = unix_stream
        outputs.4.eve-log.filename = /run/eve.sock
        outputs.4.eve-log.types.0 = drop
        outputs.4.eve-log.types.1 = stats
        outputs.4.eve-log.types.1.stats.null-values = false
        ",
    ))
    .unwrap();
    assert_eq!(all.outputs.iter().map(|output| output.index).collect::<Vec<_>>(), [0, 4]);
    assert_eq!(all.outputs[1].destination, Destination::UnixStream("/run/eve.sock".into()));
    assert!(all.outputs[0].types.drop.is_some() && all.outputs[1].types.drop.is_none());
    assert_eq!(all.outputs[1].types.stats.map(|stats| stats.null_values), Some(false));
    assert_eq!(all.warnings.len(), 1);
    // Events in another place than the configured one would be missed.
    for (key, value) in
        [("filetype", "redis"), ("filetype", "syslog"), ("filetype", "nonsense"), ("type", "redis")]
    {
        let line = format!("outputs.0.eve-log.enabled = yes\noutputs.0.eve-log.{key} = {value}");
        let error = EveOutputs::from_settings(&settings(&line)).unwrap_err();
        assert_eq!((error.key.as_str(), error.value.as_str()), (&*format!("outputs.0.eve-log.{key}"), value));
        assert!(error.to_string().contains("regular, stdout, unix_stream and unix_dgram"), "{error}");
    }
}

/// Suricata's users have both; supported outputs are written, and the others are named in a warning.
#[test]
fn an_output_to_redis_is_left_out_beside_one_that_works() {
    for kind in ["redis", "syslog"] {
        let all = EveOutputs::from_settings(&settings(&format!(
            "outputs.0.eve-log.enabled = yes\noutputs.0.eve-log.filetype = {kind}\noutputs.0.eve-log.types.0 = drop\n\
             outputs.1.eve-log.enabled = yes\noutputs.1.eve-log.filename = eve.json\noutputs.1.eve-log.types.0 = drop"
        )))
        .unwrap();
        assert_eq!(all.outputs.iter().map(|output| output.index).collect::<Vec<_>>(), [1]);
        assert!(all.outputs[0].types.drop.is_some());
        assert_eq!(all.warnings.len(), 1);
        let warning = &all.warnings[0];
        assert!(warning.starts_with("outputs.0.eve-log.filetype: ") && warning.contains(kind), "{warning}");
    }
}

#[test]
fn rotate_interval_is_read_as_suricata_reads_it() {
    let read = |value: &str| {
        let text = format!(
            "outputs.0.eve-log.enabled = yes\noutputs.0.eve-log.prefix = @cee:\noutputs.0.eve-log.rotate-interval = {value}"
        );
        let all = EveOutputs::from_settings(&settings(&text))?;
        assert_eq!(all.outputs[0].prefix, "@cee:");
        let Destination::File(file) = &all.outputs[0].destination else { panic!("a file") };
        Ok::<_, SettingError>(file.rotate_interval)
    };
    use RotateInterval::{Every, Next};
    for (value, interval) in [
        ("minute", Next(60)),
        ("hour", Next(3600)),
        ("day", Next(86_400)),
        ("90", Every(90)),
        ("30s", Every(30)),
        ("15 m", Every(900)),
        ("2h", Every(7200)),
        ("1d", Every(86_400)),
        ("1w", Every(604_800)),
    ] {
        assert_eq!(read(value), Ok(Some(interval)), "{value}");
    }
    for value in ["soon", "Day", "0", "-1", "2q", "99999999999999999999y"] {
        assert_eq!(read(value).unwrap_err().key, "outputs.0.eve-log.rotate-interval", "{value}");
    }
}

#[test]
fn a_value_of_the_wrong_kind_is_named() {
    for (line, key) in [
        ("outputs.0.eve-log.community-id-seed = 70000", "outputs.0.eve-log.community-id-seed"),
        ("outputs.0.eve-log.ethernet = maybe", "outputs.0.eve-log.ethernet"),
        (
            "outputs.0.eve-log.types.0.alert.payload-buffer-size = 0",
            "outputs.0.eve-log.types.0.alert.payload-buffer-size",
        ),
    ] {
        let all = format!("outputs.0.eve-log.enabled = yes\noutputs.0.eve-log.types.0 = alert\n{line}");
        assert_eq!(EveOutputs::from_settings(&settings(&all)).unwrap_err().key, key);
    }
}
