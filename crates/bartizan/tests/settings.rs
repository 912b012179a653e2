// SPDX-License-Identifier: Apache-2.0
//! Settings of Suricata that the program does not implement: each one whose loss weakens has a message of its
//! own, unwritten types of events have a common one, and both are errors with `--strict`, for every command
//! that reads them and wherever they are.

use crate::common;
use common::{Ended, Folder, capture, run, udp};

/// A site with tenants, a filter and rights of its own; the tenants are in an included file.
const SITE: &str = "%YAML 1.1\n---\numask: 022\npfring:\n  - interface: eth0\n    bpf-filter: not port 22\n    threads: 1\nsecurity: {limit-noproc: yes, landlock: {enabled: no}}\noutputs:\n  - eve-log: {enabled: yes, filename: eve.json, types: [alert]}\ninclude: part.yaml\n";
const PART: &str = "multi-detect:\n  enabled: yes\n  selector: vlan\napp-layer:\n  protocols:\n    http:\n      libhtp:\n        server-config:\n          - iis: {address: [10.0.0.0/8], double-decode-path: yes}\n";
/// The messages about it.
const SAID: [&str; 5] = [
    "s.yaml:3:8: `umask: 022` has no effect: files are created with the umask",
    "s.yaml:6:17: `pfring.0.bpf-filter: not port 22` has no effect: packets that the filter would leave out",
    "s.yaml:8:26: `security.limit-noproc: yes` has no effect: the program may start other processes",
    "part.yaml:2:12: `multi-detect` has no effect: tenants and the rules of their files are not loaded",
    "server-config.0.iis` has no effect: requests to these servers are parsed by `default-config`",
];

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("s.yaml", SITE);
    folder.write("part.yaml", PART);
    folder.write("c.pcap", capture(&[udp(false, 1000, 4000, b"secret")]));
    folder.write("p.yaml", "policies: []\ndefault: {action: allow}\n");
    folder.write(
        "h.yaml",
        "links: [{name: a, tap: {interface: lo}}]\nsuricata-config: s.yaml\npolicy: p.yaml\ncache: none\noutputs: {eve: {dir: o}, stdout: true}\n",
    );
    folder
}

fn says(ended: &Ended, parts: &[&str]) {
    let all = format!("{}{}", ended.stdout, ended.stderr);
    parts.iter().for_each(|part| assert!(all.contains(part), "`{part}` is not said: {all}"));
}

/// The commands that read settings, with a suricata.yaml and with a host file that names it.
const COMMANDS: [&str; 6] = [
    "check --suricata-config s.yaml",
    "-T -c s.yaml",
    "-T -c h.yaml",
    "inspect --cache none --suricata-config s.yaml --out o c.pcap",
    "run --cache none --tap lo --suricata-config s.yaml --out o",
    "run -c h.yaml --out o",
];

/// Runs all of them, with `more`; those that only a signal ends run only with `--strict`, where they do not
/// start.
fn all(folder: &Folder, more: &[&str], code: i32, parts: &[&str]) {
    for command in COMMANDS {
        let line: Vec<&str> = command.split(' ').chain(more.iter().copied()).collect();
        if line[0] == "run" && !more.contains(&"--strict") {
            continue;
        }
        let ended = run(&folder.0, &line);
        assert_eq!(ended.code, Some(code), "{line:?}: {ended:?}");
        says(&ended, parts);
    }
}

#[test]
fn settings_whose_loss_weakens_have_a_message_of_their_own() {
    let folder = folder();
    all(&folder, &[], 0, &SAID);
    all(&folder, &["--strict"], 1, &SAID);
    // The summary does not repeat these settings and those below them; switched-off ones are not reported.
    let said = run(&folder.0, &["check", "-v", "--suricata-config", "s.yaml"]).stderr;
    for word in ["the setting `multi-detect", "the setting `umask", "setting `security", "bpf-filter` has"] {
        assert!(!said.contains(word), "{word}: {said}");
    }
    assert!(
        said.contains(
            "note: the setting `pfring.0.threads` has no effect: this capture method is not supported"
        ),
        "{said}"
    );
    // By the command line.
    folder.write("s.yaml", "%YAML 1.1\n---\nsensor-name: a\n");
    let set = ["--set", "defrag.memcap-policy=drop-packet"];
    let parts = ["--set: `defrag.memcap-policy: drop-packet` has no effect"];
    all(&folder, &set, 0, &parts);
    all(&folder, &[&set[..], &["--strict"]].concat(), 1, &parts);
    all(&folder, &["--set", "multi-detect.enabled=no", "--set", "defrag.memcap-policy=ignore"], 0, &[]);
    let strict = ["check", "p.yaml", "--strict", "--set", "multi-detect.enabled=no", "--set", "umask="];
    assert_eq!(run(&folder.0, &strict).code, Some(0));
}

#[test]
fn types_of_events_that_are_not_written_are_named_together() {
    let folder = folder();
    let yaml = "%YAML 1.1\n---\noutputs:\n  - eve-log: {enabled: no, types: [rdp]}\n  - eve-log:\n      enabled: yes\n      filename: a.json\n      types:\n        - alert: {payload: yes}\n        - http\n        - tls:\n        - dns\n        - tftp\n        - nfs:\n        - flow\n        - pgsql: {enabled: no}\n        - mqtt: {passwords: yes}\n  - eve-log: {enabled: yes, filename: b.json, types: [rfb, nfs, stats]}\n";
    folder.write("s.yaml", yaml);
    let one = "s.yaml:14:11: event types that are enabled and not written by this program: mqtt, nfs, rfb;";
    let written = folder.read("s.yaml");
    all(&folder, &["--strict"], 1, &["mqtt, nfs"]);
    let direct = ["check", "--suricata-config", "s.yaml"];
    let ended = run(&folder.0, &direct);
    assert_eq!((ended.code, ended.stderr.matches("event types that").count()), (Some(0), 1), "{ended:?}");
    says(&ended, &[one]);
    // By the command line, with an option only.
    folder.write(
        "s.yaml",
        written.replace("        - nfs:\n", "").replace("mqtt", "http").replace("rfb, nfs, ", ""),
    );
    let ended = run(&folder.0, &[&direct[..], &["--strict"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let set = ["--strict", "--set", "outputs.1.eve-log.types.40.snmp.extended=yes"];
    let ended = run(&folder.0, &[&direct[..], &set].concat());
    assert_eq!(ended.code, Some(1));
    says(&ended, &["--set: event types that are enabled and not written by this program: snmp;"]);
    // The built-in settings request many event types; no user has written them.
    let ended = run(&folder.0, &["check", "p.yaml", "--strict", "--set", "stats.interval=3"]);
    assert!(ended.code == Some(0) && !ended.stderr.contains("event types that"), "{ended:?}");
    // Outputs that are left out are no less missed.
    folder.write("s.yaml", written.replace("filename: b.json", "filetype: redis").replace("mqtt", "dns"));
    says(&run(&folder.0, &[&direct[..], &["--strict"]].concat()), &["events cannot go to redis here"]);
}
