// SPDX-License-Identifier: Apache-2.0
//! Guarantees for operators: files that only authorised users may read, links that are not followed,
//! messages that cannot control a terminal, settings that are refused with their place, losses reported by
//! the exit code.

use crate::sample;

use sample::{Capture, Folder, POLICY, RULES, stage};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

const STORE: &str = "outputs.0.file-store.enabled=yes";

/// An upload of a file with this name, over HTTP.
fn upload(name: &str) -> Vec<u8> {
    let body = format!(
        "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{name}\"\r\n\r\nhello\r\n--b--\r\n"
    );
    let request = format!(
        "POST /up HTTP/1.1\r\nHost: h\r\nUser-Agent: {name}\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut capture = Capture::default();
    let address = |text: &str| -> IpAddr { text.parse().unwrap() };
    capture.exchange(
        (address("10.0.0.1"), 4000),
        (address("192.0.2.7"), 80),
        request.as_bytes(),
        sample::RESPONSE,
    );
    capture.exchange(
        (address("2001:db8::1"), 4000),
        (address("2001:db8:1::7"), 80),
        request.as_bytes(),
        sample::RESPONSE,
    );
    capture.pcap()
}

fn mode(path: &std::path::Path) -> u32 {
    std::fs::metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).mode() & 0o777
}

/// Every file and folder below a folder.
fn all_below(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(all_below(&path));
        }
        found.push(path);
    }
    found
}

#[test]
fn outputs_are_for_owner_and_group_alone() {
    let folder = Folder::new("rights");
    folder.write("up.pcap", upload("a.txt"));
    folder.write("r.rules", "alert http any any -> any any (msg:\"new\"; http.host; dataset:set,hosts,type string,save hosts.lst; sid:1;)\n");
    let arguments = [
        "inspect",
        "--rules",
        "r.rules",
        "--set",
        "outputs.0=file-store",
        "--set",
        STORE,
        "--set",
        "outputs.0.file-store.force-filestore=yes",
        "--set",
        "outputs.0.file-store.write-fileinfo=yes",
        "--cache",
        "cache",
    ];
    let ran = folder.run(&[&arguments[..], &["--out", "o/p", "up.pcap"]].concat());
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let all = all_below(&folder.path().join("o"));
    let names: String = all.iter().map(|p| p.display().to_string() + "\n").collect();
    for kind in ["eve.json", "stats.json", "files/tmp", "hosts.lst"] {
        assert!(names.contains(kind), "{kind}: {names}");
    }
    assert!(all.iter().filter(|p| p.is_file()).count() >= 5, "{names}");
    for path in &all {
        assert_eq!(mode(path), if path.is_dir() { 0o750 } else { 0o640 }, "{}", path.display());
    }
    // Other rights are possible; the output's own `filemode` wins.
    let asked = [
        &arguments[..],
        &[
            "--set",
            "output-rights.mode=600",
            "--set",
            "output-rights.group=0",
            "--set",
            "outputs.1.eve-log.filemode=0660",
            "--out",
            "q",
            "up.pcap",
        ],
    ];
    let ran = folder.run(&asked.concat());
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    assert_eq!((mode(&folder.path().join("q")), mode(&folder.path().join("q/stats.json"))), (0o700, 0o600));
    assert_eq!(mode(&folder.path().join("q/eve.json")), 0o660);
    for (setting, said) in [
        ("output-rights.mode=rw", "--set: setting `output-rights.mode`: `rw` is not a mode"),
        ("output-rights.owner=nobody-here", "`nobody-here` is not a user"),
        ("outputs.1.eve-log.filemode=9", "setting `outputs.1.eve-log.filemode`: `9` is not a mode"),
    ] {
        let ran = folder.run(&["inspect", "--set", setting, "--out", "r", "up.pcap"]);
        assert!(ran.code() == 1 && ran.stderr().contains(said), "{} {}", ran.code(), ran.stderr());
    }
}

#[test]
fn outputs_follow_no_links() {
    let folder = Folder::new("links");
    folder.write("up.pcap", upload("a.txt"));
    for name in ["eve.json", "stats.json", "bartizan.lock"] {
        let precious = folder.write("precious", "as it was");
        std::fs::create_dir_all(folder.path().join("o")).unwrap();
        let link = folder.path().join("o").join(name);
        symlink(&precious, &link).unwrap();
        let ran = folder.run(&["inspect", "--out", "o", "up.pcap"]);
        let said = ran.stderr();
        assert_eq!(ran.code(), 3, "{name}: {said}");
        assert!(said.contains(name) && said.contains("symbolic link") && said.contains("remove"), "{said}");
        assert_eq!(std::fs::read(&precious).unwrap(), b"as it was", "{name}");
        std::fs::remove_file(&link).unwrap();
    }
    // The folder itself may be one, and the system's names of standard output work.
    symlink(folder.path().join("o"), folder.path().join("linked")).unwrap();
    assert_eq!(folder.run(&["inspect", "--out", "linked", "up.pcap"]).code(), 0);
    for name in ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"] {
        let set = format!("outputs.1.eve-log.filename={name}");
        let ran = folder.run(&["inspect", "--set", &set, "--out", "o", "up.pcap"]);
        assert_eq!(ran.code(), 0, "{name}: {}", ran.stderr());
        assert!(ran.stdout().contains("\"event_type\":\"http\""), "{name}: {}", ran.stdout());
    }
}

#[test]
fn what_was_lost_is_in_the_exit_code() {
    let folder = Folder::new("lost");
    folder.write("up.pcap", upload("a.txt"));
    let ran =
        folder.run(&["inspect", "--set", "outputs.1.eve-log.filename=/dev/full", "--out", "o", "up.pcap"]);
    assert_eq!(ran.code(), 3, "{}", ran.stderr());
    assert!(
        ran.stderr().contains("error: events are lost") && ran.stderr().contains("free space"),
        "{}",
        ran.stderr()
    );
    assert_eq!(ran.stderr().matches("events are lost").count(), 1);
    assert!(ran.stdout().contains(" lost"), "{}", ran.stdout());
}

/// Checks that there is only text: no control characters from any source, and no invalid UTF-8.
fn only_text(what: &str, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
    let control = |c: char| matches!(c, '\0'..='\x08' | '\x0b'..='\x1f' | '\x7f'..='\u{9f}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    assert!(!text.chars().any(control), "{what}: {text:?}");
}

#[test]
fn a_terminal_shows_messages_and_does_nothing_else() {
    const HOSTILE: &str = "\u{1b}]0;t\u{7}\u{1b}[31m\u{9b}2J\u{7f}\u{202e}\u{2066}\u{200f}x";
    let folder = Folder::new("terminal");
    let name = format!("{HOSTILE}.pcap");
    folder.write(&name, upload(HOSTILE));
    folder.write("up.pcap", upload(HOSTILE));
    folder.write("p.yaml", POLICY);
    folder.write("web.rules", RULES);
    let rule = format!(
        "alert http any any -> any any (msg:\"{HOSTILE}\"; http.method; content:\"{HOSTILE}\"; sid:9;)\n"
    );
    let broken = format!(
        "alret {HOSTILE} (msg:\"{HOSTILE}\"; sid:10;)\nalert tcp any any -> any any ({HOSTILE}:1; sid:11;)\n"
    );
    folder.write("h.rules", format!("{rule}{broken}"));
    folder.write(
        "bad.yaml",
        format!("\"{HOSTILE}\": 1\npolicies: []\n")
            .replace('\u{7f}', "\\x7f")
            .replace('\u{7}', "\\a")
            .replace('\u{1b}', "\\e")
            .replace('\u{9b}', "\\x9b"),
    );
    let odd = format!("{HOSTILE}.rules");
    let set = format!("stream.memcap={HOSTILE}");
    let cases: [&[&str]; 13] = [
        &["explain", "flow", "up.pcap", "--policy", "p.yaml"],
        &["explain", "flow", "up.pcap", "--policy", "p.yaml", "--flow", "4"],
        &["explain", "flow", "up.pcap", "--rules", "h.rules", "--flow", "4", "--json"],
        &["explain", "rule", "9", "--rules", "h.rules"],
        &["explain", "rule", "9", "--rules", "h.rules", "--json"],
        &["check", "h.rules"],
        &["check", "h.rules", "--json"],
        &["check", "bad.yaml"],
        &["check", "up.pcap"],
        &["inspect", "--rules", "h.rules", "--out", "o", &name],
        &["inspect", "--rules", "h.rules", "--out", "o", "--json", &name],
        &["inspect", "--rules", &odd, "up.pcap"],
        &["inspect", "--set", &set, "up.pcap"],
    ];
    let mut shown = 0;
    for arguments in cases {
        let ran = folder.run(arguments);
        only_text(&format!("{arguments:?} stdout"), &ran.0.stdout);
        only_text(&format!("{arguments:?} stderr"), &ran.0.stderr);
        shown += usize::from(format!("{}{}", ran.stdout(), ran.stderr()).contains("\\u001b"));
    }
    // Hostile text is shown, not left out.
    assert!(shown >= 5, "{shown}");
    // Events, too; a parser of JSON reads the same text.
    let events = std::fs::read(folder.path().join("o/eve.json")).unwrap();
    only_text("eve.json", &events);
    let http = &folder.events("o", "http")[0];
    assert_eq!(http["http"]["http_user_agent"], HOSTILE);
    let standard =
        folder.run(&["inspect", "--set", "outputs.1.eve-log.filetype=stdout", "--out", "o2", "up.pcap"]);
    only_text("events on standard output", &standard.0.stdout);
}

#[test]
fn values_that_cannot_be_understood_are_refused_with_their_place() {
    let folder = stage("settings");
    let yaml = "%YAML 1.1\n---\nhost:\n  memcap: abc\npcre:\n  match-limit: abc\noutputs:\n  - eve-log:\n      enabled: yes\n      community-id: 0.0\n";
    folder.write("s.yaml", yaml);
    for verb in [
        &["inspect", "c.pcap"][..],
        &["check", "web.rules"],
        &["run", "--tap", "lo"],
        &["explain", "rule", "1", "--rules", "web.rules"],
    ] {
        let ran = folder.run(&[verb, &["--suricata-config", "s.yaml"]].concat());
        let said = ran.stderr();
        assert_eq!(ran.code(), 1, "{verb:?}: {said}");
        for line in [
            "s.yaml:4:11: setting `host.memcap`: `abc` is not a size",
            "s.yaml:6:16: setting `pcre.match-limit`: `abc` is not a whole number",
            "s.yaml:10:21: setting `outputs.0.eve-log.community-id`: `0.0` is not yes or no",
        ] {
            assert!(said.contains(line), "{verb:?}: {said}");
        }
    }
    // Also what only its reader knows, in an included file and within a section.
    folder.write("i.yaml", "personality: Amiga\n");
    folder.write("t.yaml", "stream:\n  inline: auto\napp-layer:\n  protocols:\n    http:\n      libhtp:\n        default-config: !include i.yaml\n");
    let ran = folder.run(&["inspect", "--suricata-config", "t.yaml", "c.pcap"]);
    assert_eq!(ran.code(), 1);
    assert!(
        ran.stderr()
            .contains("i.yaml:1:14: setting `app-layer.protocols.http.libhtp.default-config.personality`"),
        "{}",
        ran.stderr()
    );
    for (setting, expected) in [
        ("host.memcap=abc", "a size"),
        ("pcre.match-limit=abc", "a whole number"),
        ("inspection-recursion-limit=-1", "a whole number"),
        ("detect.inspection-recursion-limit=-1", "a whole number"),
        ("flow-timeouts.tcp.new=soon", "a whole number"),
        ("stream.memcap=-1", "a size"),
        ("defrag.timeout=x", "a whole number"),
        ("decoder.vxlan.ports=[47x89]", "a list of ports"),
        ("decoder.vxlan.reserved-bits-check=maybe", "strict or permissive"),
        ("exception-policy=explode", "auto, ignore"),
        ("app-layer.protocols.http.enabled=perhaps", "yes, no or detection-only"),
        ("app-layer.protocols.tls.encryption-handling=x", "track-only"),
        ("app-layer.protocols.http.libhtp.default-config.lzma-enabled=x", "yes or no"),
        ("app-layer.protocols.http.libhtp.default-config.http-body-inline=x", "yes, no or auto"),
        ("outputs.1.eve-log.community-id-seed=-3", "a whole number"),
        ("action-order.0=drp", "pass, drop, reject or alert"),
        ("detect.stream-tx-log-limit=x", "a whole number"),
    ] {
        let ran = folder.run(&["inspect", "--set", setting, "c.pcap"]);
        let (key, value) = setting.split_once('=').unwrap();
        let said = ran.stderr();
        assert_eq!(ran.code(), 1, "{setting}: {said}");
        assert!(
            said.contains(&format!("--set: setting `{key}`: `{value}` is not")) && said.contains(expected),
            "{said}"
        );
    }
    // In the host file, by its line.
    folder.write(
        "b.yaml",
        "links: [{name: a, tap: {interface: lo}}]\nsettings:\n  stream.midstream: yes\n  host.memcap: abc\n",
    );
    let ran = folder.run(&["run", "-c", "b.yaml"]);
    assert_eq!(ran.code(), 1);
    assert!(ran.stderr().contains("b.yaml:4:16: setting `host.memcap`: `abc` is not"), "{}", ran.stderr());
}

#[test]
fn groups_that_cannot_be_understood_are_refused_with_their_place() {
    let folder = stage("groups");
    let yaml = |home: &str, more: &str| {
        format!(
            "%YAML 1.1\n---\nvars:\n  address-groups:\n    HOME_NET: {home}\n    EXTERNAL_NET: \"!$HOME_NET\"\n  port-groups:\n    HTTP_PORTS: 80\n{more}"
        )
    };
    let verbs = [
        &["inspect", "--suricata-config", "s.yaml", "c.pcap"][..],
        &["check", "--suricata-config", "s.yaml", "web.rules"],
        &["check", "--suricata-config", "s.yaml", "p.yaml"],
        &["-T", "-c", "s.yaml", "-S", "web.rules"],
        &["-T", "-c", "b.yaml"],
        &["run", "-c", "b.yaml"],
        &["run", "--suricata-config", "s.yaml", "--tap", "lo"],
        &["explain", "rule", "1", "--rules", "web.rules", "--suricata-config", "s.yaml"],
    ];
    folder.write("b.yaml", "links: [{name: a, tap: {interface: lo}}]\nsuricata-config: s.yaml\nrules: [web.rules]\ncache: none\n");
    for (home, more, said) in [
        (
            "\"[192.168.0.0/99]\"",
            "",
            "s.yaml:5:15: setting `vars.address-groups.HOME_NET`: `[192.168.0.0/99]`: ",
        ),
        ("\"[10.0.0.0/8\"", "", "s.yaml:5:15: setting `vars.address-groups.HOME_NET`: `[10.0.0.0/8`: "),
        ("any", "", "s.yaml:6:19: setting `vars.address-groups.EXTERNAL_NET`: `!$HOME_NET`: "),
        ("\"2001:db8::/129\"", "", "s.yaml:5:15: setting `vars.address-groups.HOME_NET`: "),
        ("[10.0.0.0/8, 192.168.0.0/16]", "", "quote the whole value"),
        ("\"[10.0.0.0/8,$OTHER]\"", "", "the address variable $OTHER is not defined"),
        ("\"[10.0.0.0/8,$EXTERNAL_NET]\"", "", "in a circle"),
        ("\"10.0.0.0/8\"", "    BAD: \"70000\"\n", "s.yaml:9:10: setting `vars.port-groups.BAD`: `70000`: "),
        (
            "\"10.0.0.0/8\"",
            "    BAD: \"!$HTTP_PROTS\"\n",
            "s.yaml:9:10: setting `vars.port-groups.BAD`: `!$HTTP_PROTS`: the port variable $HTTP_PROTS is not defined",
        ),
    ] {
        folder.write("s.yaml", yaml(home, more));
        for verb in verbs {
            let ran = folder.run(verb);
            assert!(
                ran.code() == 1 && ran.stderr().contains(said),
                "{home} {verb:?} {}: {}",
                ran.code(),
                ran.stderr()
            );
        }
    }
    // As in Suricata, a variable with an empty value is no error of the file, but of the rules that use it.
    folder.write("s.yaml", yaml("\"10.0.0.0/8\"", "    NONE: \"[80,!80]\"\n"));
    let ran = folder.run(verbs[1]);
    assert!(
        ran.code() == 0 && ran.stderr().contains("warning: s.yaml:9:11: setting `vars.port-groups.NONE`"),
        "{}",
        ran.stderr()
    );
    for (setting, said) in [
        (
            "vars.address-groups.HOME_NET=10.0.0.0/33",
            "--set: setting `vars.address-groups.HOME_NET`: `10.0.0.0/33`: ",
        ),
        ("vars.address-groups.HOME_NET=", "--set: setting `vars.address-groups.HOME_NET`: "),
        ("vars.port-groups.HTTP_PORTS=$NOPE", "$NOPE is not defined"),
        // The shipped EXTERNAL_NET is all else.
        (
            "vars.address-groups.HOME_NET=[10.0.0.1,!10.0.0.0/8]",
            "setting `vars.address-groups.EXTERNAL_NET`: ",
        ),
    ] {
        let ran = folder.run(&["check", "--set", setting, "web.rules"]);
        assert!(ran.code() == 1 && ran.stderr().contains(said), "{setting} {}: {}", ran.code(), ran.stderr());
    }
}

#[test]
fn a_file_that_cannot_be_put_aside_is_no_loss() {
    let folder = Folder::new("aside");
    folder.write("up.pcap", upload("a.txt"));
    std::fs::create_dir_all(folder.path().join("o/eve.json.1/x")).unwrap();
    let rotate = ["--set", "outputs.1.eve-log.rotate-size=10", "--set", "outputs.1.eve-log.rotate-keep=1"];
    let first = folder.run(&[&["inspect", "--out", "o", "up.pcap"][..], &rotate].concat());
    assert_eq!(first.code(), 0, "{}", first.stderr());
    let second = folder.run(&[&["inspect", "--out", "o", "up.pcap"][..], &rotate].concat());
    assert_eq!(second.code(), 0, "{}", second.stderr());
    assert_eq!(second.stderr().matches("cannot be put aside").count(), 1, "{}", second.stderr());
    std::fs::set_permissions(folder.path().join("o"), std::fs::Permissions::from_mode(0o700)).unwrap();
}
