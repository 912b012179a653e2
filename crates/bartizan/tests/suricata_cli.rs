// SPDX-License-Identifier: Apache-2.0
//! The program as callers of Suricata use it: suricata-update's exact command lines, `-T` and `check` with
//! one result, a suricata.yaml with rule files and a log folder, settings that have no effect.

use crate::common;

use bartizan_testkit_worker::events;
use common::{Ended, Folder, capture, run, udp};
use std::collections::BTreeMap;

const GOOD: &str = "alert udp any any -> any 4000 (msg:\"seen\"; content:\"secret\"; sid:1;)\n";
/// Valid rules that this engine does not support: a protocol, a keyword.
const UNSUPPORTED: &str = "alert nfs any any -> any any (msg:\"m\"; content:\"x\"; sid:2;)\nalert tcp any any -> any any (msg:\"m\"; content:\"x\"; asn1:bitstring_overflow; sid:3;)\n";
/// Rules that Suricata refuses as well: bad syntax, an unknown keyword, a bad value.
const MALFORMED: &str = "alert tcp any any -> any any (msg:\"m\"; sid:4\nalert tcp any any -> any any (msg:\"m\"; cnotent:\"x\"; sid:5;)\nalert http any any -> any any (msg:\"m\"; http.uri; bsize:a; sid:6;)\nalert nosuch any any -> any any (msg:\"m\"; sid:7;)\n";

const YAML: &str = "%YAML 1.1\n---\nvars:\n  address-groups:\n    HOME_NET: \"any\"\ndefault-rule-path: rules\nrule-files:\n  - \"*.rules\"\ndefault-log-dir: logs\naf-packet:\n  - interface: eth0\n    threads: 1\npcap:\n  - interface: auto\noutputs:\n  - fast:\n      enabled: yes\n  - http-log:\n      enabled: no\n      filename: http.log\n  - eve-log:\n      enabled: yes\n      filename: eve.json\n      types: [alert, flow]\n";

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("good.rules", GOOD);
    folder.write("unsupported.rules", format!("{GOOD}{UNSUPPORTED}"));
    folder.write("malformed.rules", format!("{GOOD}{MALFORMED}"));
    folder.write("s.yaml", YAML);
    folder.write("c.pcap", capture(&[udp(false, 1000, 4000, b"secret"), udp(true, 1001, 4000, b"secret")]));
    std::fs::create_dir_all(folder.path("rules/deeper")).unwrap();
    std::fs::create_dir_all(folder.path("l")).unwrap();
    folder.write("rules/b.rules", GOOD);
    folder.write("rules/notes.txt", "no rules\n");
    folder
}

fn says(ended: &Ended, parts: &[&str]) {
    let all = format!("{}{}", ended.stdout, ended.stderr);
    parts.iter().for_each(|part| assert!(all.contains(part), "`{part}` is not said: {all}"));
}

#[test]
fn suricata_update_s_command_lines() {
    let folder = folder();
    let run = |arguments: &[&str]| run(&folder.0, arguments);
    // get_version: the first number of what it prints.
    let version = run(&["-V"]);
    let number = version.stdout.split(' ').find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    assert_eq!((version.code, number), (Some(0), Some("8.0.8")), "{version:?}");
    // get_build_info.
    let info = run(&["--build-info"]);
    assert_eq!(info.code, Some(0));
    let last = |start: &str| {
        let line = info.stdout.lines().map(str::trim).find(|line| line.starts_with(start));
        line.and_then(|line| line.split_whitespace().last()).map(str::to_owned)
    };
    for (start, end) in [
        ("--prefix", "/usr"),
        ("--sysconfdir", "/etc"),
        ("--localstatedir", "/var"),
        ("--datarootdir", "/usr/share"),
    ] {
        assert_eq!(last(start).as_deref(), Some(end), "{}", info.stdout);
    }
    assert!(info.stdout.starts_with("This is Suricata version 8.0.8 "), "{}", info.stdout);
    assert!(info.stdout.lines().any(|line| line.starts_with("Features: ") && line.contains("HAVE_NSS")));
    // Configuration.load: every line is `key = value`.
    let dump = run(&["-c", "s.yaml", "--dump-config"]);
    assert_eq!(dump.code, Some(0), "{dump:?}");
    let settings: BTreeMap<&str, &str> =
        dump.stdout.lines().map(|line| line.split_once(" = ").unwrap_or_else(|| panic!("{line}"))).collect();
    for (key, value) in [
        ("vars", "(null)"),
        ("vars.address-groups.HOME_NET", "any"),
        ("outputs.2", "eve-log"),
        ("outputs.2.eve-log.types.1", "flow"),
        ("af-packet.0.threads", "1"),
    ] {
        assert_eq!(settings.get(key), Some(&value), "{key}: {}", dump.stdout);
    }
    // test_configuration: with merged rules and without.
    let test = run(&["-T", "-l", "l", "-c", "s.yaml", "-S", "unsupported.rules"]);
    assert_eq!(test.code, Some(0), "{test:?}");
    says(&test, &["1 loaded, 2 refused (0 malformed, 2 not supported)"]);
    let test = run(&["-T", "-l", "l", "-c", "s.yaml"]);
    assert_eq!(test.code, Some(0), "{test:?}");
    says(&test, &["1 loaded, 0 refused"]);
    assert_eq!(run(&["-T", "-l", "l", "-S", "good.rules"]).code, Some(0));
    let test = run(&["-T", "-l", "l", "-c", "s.yaml", "-S", "malformed.rules"]);
    assert_eq!(test.code, Some(1), "{test:?}");
    says(&test, &["malformed.rules:2:", "1 loaded, 4 refused (4 malformed, 0 not supported)"]);
    says(&run(&["-T", "-l", "nothere", "-S", "good.rules"]), &["the log folder nothere does not exist"]);
}

#[test]
fn a_check_and_a_test_have_one_result() {
    let folder = folder();
    let run = |arguments: &[&str]| run(&folder.0, arguments);
    for (file, plain, strict) in [("good", 0, 0), ("unsupported", 0, 1), ("malformed", 1, 1)] {
        let name = format!("{file}.rules");
        for (more, code) in [(None, plain), (Some("--strict"), strict)] {
            let more = more.as_slice();
            let check = run(&[&["check", &name], more].concat());
            let test = run(&[&["-T", "-S", &name], more].concat());
            assert_eq!(
                (check.code, test.code),
                (Some(code), Some(code)),
                "{name} {more:?}: {check:?} {test:?}"
            );
            assert_eq!(check.stdout, test.stdout);
            let kind = if strict == 0 || (plain == 0 && more.is_empty()) { "error[" } else { "warning[" };
            assert!(!check.stdout.contains(kind), "{}", check.stdout);
        }
    }
    // Runs leave unsupported rules out and go on, unless `--strict` is given.
    let inspect = |more: &[&str]| {
        let rest =
            ["inspect", "--cache", "none", "--rules", "unsupported.rules", "--out", "o", "--json", "c.pcap"];
        run(&[&rest[..], more].concat())
    };
    let ended = inspect(&[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let summary: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(summary["rules"]["unsupported_protocols"]["nfs"], 1);
    assert_eq!(summary["rules"]["unsupported_keywords"]["asn1"], 1);
    let ended = inspect(&["--strict"]);
    assert!(ended.code == Some(1) && ended.stderr.contains("2 rules cannot be loaded"), "{ended:?}");
    // Many are summed, each kind with its first place; `-v` names each.
    let many: String =
        (10..40).map(|sid| format!("alert nfs any any -> any any (msg:\"m\"; sid:{sid};)\n")).collect();
    folder.write("many.rules", format!("{UNSUPPORTED}{many}"));
    let ended = run(&["check", "many.rules"]);
    assert_eq!(ended.code, Some(0));
    says(
        &ended,
        &[
            "warning: 31 rules of the protocol `nfs`, for which there is no parser (the first at many.rules:1)",
        ],
    );
    says(&ended, &["warning: 1 rule with `asn1`", "many.rules:2", "(0 malformed, 32 not supported)"]);
    assert!(ended.stdout.lines().count() < 10, "{}", ended.stdout);
    assert_eq!(run(&["check", "-v", "many.rules"]).stdout.matches("warning[D114]").count(), 31);
    // A host file is tested with its policy and rules.
    folder.write(
        "h.yaml",
        "links: [{name: a, tap: {interface: eth0}}]\nrules: [malformed.rules]\ncache: none\n",
    );
    assert_eq!(run(&["-T", "-c", "h.yaml"]).code, Some(1));
    folder.write("p.yaml", "policies:\n  - {name: a, from: any, to: any, chain: [ids], ids: {level: web}}\nrule-groups:\n  web:\n    - good.rules\n    - missing.rules\ndefault: {action: drop}\n");
    folder.write("h.yaml", "links: [{name: a, tap: {interface: eth0}}]\npolicy: p.yaml\ncache: none\n");
    let ended = run(&["-T", "-c", "h.yaml"]);
    assert_eq!(ended.code, Some(1));
    // The error of a rule group's missing file has the place in the policy that names the file.
    says(&ended, &["p.yaml:6:7: ids: cannot open rule file", "missing.rules"]);
}

#[test]
fn a_test_says_what_a_run_would_say() {
    let folder = folder();
    let run = |arguments: &[&str]| run(&folder.0, arguments);
    let policy = |file: &str| {
        folder.write("p.yaml", format!("policies:\n  - {{name: a, from: any, to: any, chain: [ids], ids: {{level: web}}}}\nrule-groups: {{web: [{file}]}}\ndefault: {{action: drop}}\n"));
    };
    let host = |rules: &str| {
        folder.write("h.yaml", format!("links: [{{name: a, tap: {{interface: eth0}}}}]\nrules: [{rules}]\npolicy: p.yaml\ncache: none\n"));
    };
    // One set: the same sid in a file of the host file and in one of the policy.
    folder.write("again.rules", GOOD);
    folder.write("other.rules", GOOD.replace("sid:1", "sid:11"));
    policy("again.rules");
    host("good.rules");
    let ended = run(&["-T", "-c", "h.yaml"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    says(
        &ended,
        &[
            "an earlier rule has the same gid 1 and sid 1",
            "p.yaml: 1 malformed line is in the rule files of this policy",
            "not valid",
        ],
    );
    host("other.rules");
    let ended = run(&["-T", "-c", "h.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    says(&ended, &["rules of p.yaml: 2 loaded, 0 refused", "is valid"]);
    // Malformed rules of a policy's group are errors for every command; unsupported ones are not.
    for (file, code) in [("malformed.rules", 1), ("unsupported.rules", 0)] {
        policy(file);
        for arguments in [&["-T", "-c", "h.yaml"][..], &["check", "p.yaml"]] {
            let ended = run(arguments);
            assert_eq!(ended.code, Some(code), "{file} {arguments:?}: {ended:?}");
            assert_eq!(run(&[arguments, &["--strict"]].concat()).code, Some(1), "{file} {arguments:?}");
        }
    }
    // What the host file says of settings and links holds for its policy.
    policy("good.rules");
    host("other.rules");
    let text = folder.read("h.yaml");
    folder.write("h.yaml", format!("{text}settings: {{vars.address-groups.HOME_NET: \"10.0.0.0/40\"}}\n"));
    let ended = run(&["-T", "-c", "h.yaml"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    says(&ended, &["h.yaml:5:", "vars.address-groups.HOME_NET"]);
    // A file that is not there.
    host("other.rules, missing.rules");
    let ended = run(&["-T", "-c", "h.yaml"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    says(&ended, &["missing.rules: no such file"]);
    let ended = run(&["-T", "-S", "missing.rules"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    // Also one that the settings name: a start goes on, a test fails, as Suricata's.
    folder.write("m.yaml", YAML.replace("*.rules", "missing*.rules"));
    for arguments in [&["-T", "-c", "m.yaml"][..], &["check", "--suricata-config", "m.yaml"]] {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        says(&ended, &["m.yaml:8:5: there is no rule file rules/missing*.rules"]);
    }
    // One without rules.
    folder.write("none.rules", "# later\n");
    for arguments in [&["-T", "-S", "none.rules"][..], &["check", "none.rules"]] {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        says(&ended, &["warning: none.rules: this file has no rules"]);
    }
    policy("none.rules");
    says(&run(&["check", "p.yaml"]), &["none.rules: this file has no rules"]);
    // Nothing to test is no success.
    for arguments in [&["-T"][..], &["-T", "-l", "l"], &["-T", "--strict"]] {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        says(&ended, &["-T has nothing to test"]);
    }
}

#[test]
fn build_info_tells_what_a_run_would_search_with() {
    let folder = Folder::new();
    let words = ["aleph", "bethel", "gimel", "daleth", "heave", "zayin", "cheth", "tethys", "kaphor"];
    let rules: String = (1..)
        .zip(words)
        .map(|(sid, word)| {
            format!("alert tcp any any -> any any (msg:\"m\"; content:\"{word}\"; sid:{sid};)\n")
        })
        .collect();
    folder.write("r.rules", rules);
    folder.write("c.pcap", capture(&[udp(false, 1000, 4000, b"secret")]));
    // What a run says of itself with a set that is large enough.
    let arguments = ["inspect", "--cache", "none", "--rules", "r.rules", "--out", "o", "--json", "c.pcap"];
    let ended = run(&folder.0, &arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let used = format!("{}{}", ended.stdout, ended.stderr).contains("hyperscan 5.");
    let info = run(&folder.0, &["--build-info"]).stdout;
    let line = |start: &str| {
        let found = info.lines().map(str::trim).find_map(|line| line.strip_prefix(start));
        found.unwrap_or_else(|| panic!("{start}: {info}")).trim().to_owned()
    };
    assert_eq!(line("Hyperscan support:"), if used { "yes" } else { "no" }, "{info}");
    assert!(line("Hyperscan library:").contains("libhs.so.5"), "{info}");
    assert_eq!(line("Patterns:").starts_with("hyperscan 5."), used, "{info}");
    // The pattern engine forced by its environment variable.
    let forced = std::process::Command::new(common::PROGRAM)
        .arg("--build-info")
        .env("BARTIZAN_PATTERN_ENGINE", "aho-corasick")
        .output()
        .unwrap();
    let forced = String::from_utf8(forced.stdout).unwrap();
    assert!(forced.contains("Hyperscan support:                       no\n"), "{forced}");
    assert!(forced.contains("not asked for: BARTIZAN_PATTERN_ENGINE forces aho-corasick"), "{forced}");
}

#[test]
fn threshold_files_that_are_malformed_are_told_of() {
    let folder = folder();
    folder.write("t.yaml", format!("{YAML}threshold-file: t.config\n"));
    folder.write("t.config", "suppress gen_id 1, sig_id 1, track by_src, ip 192.0.2.200\nsuppres gen_id 1, sig_id 1\nsuppress gen_id 1, sig_id 1, track by_src, ip $NOPE\n");
    let run = |arguments: &[&str]| run(&folder.0, arguments);
    for arguments in [
        &["-T", "-c", "t.yaml", "-S", "good.rules"][..],
        &["check", "--suricata-config", "t.yaml", "good.rules"],
    ] {
        // As Suricata's -T.
        let ended = run(arguments);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        says(
            &ended,
            &[
                "error[R032]",
                "--> t.config:2:1",
                "suppres gen_id",
                "--> t.config:3:1",
                "$NOPE is not defined",
            ],
        );
    }
    let inspect = [
        "inspect",
        "--cache",
        "none",
        "--suricata-config",
        "t.yaml",
        "--rules",
        "good.rules",
        "--out",
        "o",
        "c.pcap",
    ];
    let ended = run(&inspect);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    says(&ended, &["warning[R032]", "--> t.config:2:1"]);
    folder.write(
        "p.yaml",
        "policies:\n  - {name: a, from: any, to: any, chain: [ids]}\ndefault: {action: drop}\n",
    );
    for more in [&["--strict"][..], &["--strict", "--policy", "p.yaml"]] {
        let ended = run(&[&inspect[..], more].concat());
        assert_eq!(ended.code, Some(1), "{ended:?}");
        says(
            &ended,
            &[
                "t.config:2:1: ",
                "(2 malformed lines in this threshold file)",
                "with --strict this is an error",
            ],
        );
    }
}

#[test]
fn suricata_s_own_lines_are_answered_with_ours() {
    let folder = folder();
    let run = |arguments: &[&str]| run(&folder.0, arguments);
    folder.write("ips.yaml", "%YAML 1.1\n---\naf-packet:\n  - interface: eth1\n    copy-mode: ips\n    copy-iface: eth2\n  - interface: default\n");
    for (arguments, command) in [
        (
            &["-r", "c.pcap", "-S", "good.rules", "-l", "l"][..],
            "bartizan inspect --rules good.rules --out l c.pcap",
        ),
        (&["-c", "s.yaml", "-i", "eth7"], "bartizan run --suricata-config s.yaml --tap eth7"),
        (&["-c", "s.yaml", "--af-packet", "-D"], "bartizan run --suricata-config s.yaml --tap eth0"),
        (&["-c", "ips.yaml", "--af-packet"], "bartizan run --suricata-config ips.yaml --inline eth1 eth2"),
        (&["-S", "good.rules", "-l", "l"], "bartizan run --rules good.rules --out l --tap INTERFACE"),
        (&["run", "-i", "lo"], "bartizan run --tap lo"),
        (&["--list-runmodes"], "there are no run modes"),
        (&["-D"], "stays in the foreground"),
    ] {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        says(&ended, &["Suricata", command]);
        assert!(!ended.stderr.contains("unexpected argument"), "{ended:?}");
    }
    // What it says is what works.
    let ended = run(&["inspect", "--rules", "good.rules", "--out", "l", "--cache", "none", "c.pcap"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // Other mistakes have their usual messages.
    says(&run(&["run", "--tapp", "lo"]), &["unexpected argument '--tapp'"]);
}

#[test]
fn configuration_files_in_each_other_s_place_are_named() {
    let folder = folder();
    let run = |arguments: &[&str]| run(&folder.0, arguments);
    folder.write("h.yaml", "links: [{name: a, tap: {interface: lo}}]\ncache: none\n");
    folder.write(
        "p.yaml",
        "policies:\n  - {name: a, from: any, to: any, chain: [ids]}\ndefault: {action: drop}\n",
    );
    for (arguments, parts) in [
        (
            &["run", "-c", "s.yaml"][..],
            &["s.yaml is not a host file", "it is a suricata.yaml", "bartizan run --suricata-config s.yaml"]
                [..],
        ),
        (&["check", "s.yaml"], &["s.yaml is not a policy file", "bartizan check --suricata-config s.yaml"]),
        (&["run", "--policy", "s.yaml", "--tap", "lo"], &["s.yaml is not a policy file"]),
        (&["run", "-c", "p.yaml"], &["p.yaml is not a host file", "--policy p.yaml"]),
        (&["check", "h.yaml"], &["h.yaml is not a policy file", "bartizan -T -c h.yaml"]),
        (
            &["inspect", "--suricata-config", "h.yaml", "c.pcap"],
            &["h.yaml is not a suricata.yaml", "it is a host file"],
        ),
        (
            &["check", "--suricata-config", "p.yaml", "good.rules"],
            &["p.yaml is not a suricata.yaml", "it is a policy file"],
        ),
    ] {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(1), "{arguments:?}: {ended:?}");
        says(&ended, parts);
    }
    for arguments in [&["check", "p.yaml"][..], &["-T", "-c", "h.yaml"], &["-T", "-c", "s.yaml"]] {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
    }
}

#[test]
fn names_of_files_may_have_the_time() {
    let folder = folder();
    let ended = run(
        &folder.0,
        &[
            "inspect",
            "--rules",
            "good.rules",
            "--cache",
            "none",
            "--out",
            "l",
            "--set",
            "outputs.1.eve-log.filename=%Y/eve-%s-%%.json",
            "--set",
            "outputs.1.eve-log.prefix=@cee: ",
            "--set",
            "outputs.1.eve-log.rotate-interval=day",
            "c.pcap",
        ],
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let year =
        std::fs::read_dir(folder.path("l")).unwrap().map(|e| e.unwrap().path()).find(|p| p.is_dir()).unwrap();
    assert!(year.file_name().unwrap().to_str().unwrap().parse::<u32>().unwrap() >= 2026);
    let file = std::fs::read_dir(&year).unwrap().next().unwrap().unwrap().path();
    let name = file.file_name().unwrap().to_str().unwrap();
    let second = name.strip_prefix("eve-").and_then(|n| n.strip_suffix("-%.json")).unwrap();
    assert!(second.parse::<u64>().unwrap() > 1_700_000_000, "{name}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("\"event_type\":\"alert\"") && text.lines().all(|l| l.starts_with("@cee: {")),
        "{text}"
    );
    // The message names the file that was made.
    assert!(format!("{}{}", ended.stdout, ended.stderr).contains(name), "{ended:?}");
}

#[test]
fn findings_mark_what_they_name() {
    let folder = Folder::new();
    let rules = "alert http any any -> any any (msg:\"m\"; http.uri; bsize:a; sid:1;)\nalert dns any any -> any any (msg:\"m\"; dns.rcode:nxdomian; sid:2;)\nalert tcp any any -> any any (msg:\"m\"; flow:to_server,establish; sid:3;)\nalert tcp any any -> any any (msg:\"m\"; classtype:troian-activity; content:\"a\"; sid:4;)\nalert tcp any any -> any any (msg:\"m\"; classtype:troian-activity; content:\"b\"; sid:5;)\nalert http any any -> any any (msg:\"m\"; http.response_body; content:\"a\"; pcre:\"/b/Q\"; sid:6;)\nalert http any any -> any any (msg:\"m\"; http.accept_enc; content:\"gzip, deflate\"; bsize:13; content:\"a much longer content\"; sid:7;)\nalert http any any -> any any (msg:\"m\"; http.uri; bsize:5; content:\"abc\"; content:\"def\"; distance:0; sid:8;)\n";
    folder.write("r.rules", rules);
    let ended = run(&folder.0, &["check", "--json", "--cache", "none", "r.rules"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let found: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let of_line = |line: u64| -> Vec<(String, String)> {
        let all = found["diagnostics"].as_array().unwrap().iter().filter(|d| d["line"] == line);
        all.map(|d| {
            let text: Vec<char> = rules.lines().nth(line as usize - 1).unwrap().chars().collect();
            let at = |key: &str| d[key].as_u64().unwrap() as usize - 1;
            (text[at("column")..at("end_column")].iter().collect(), d["message"].as_str().unwrap().to_owned())
        })
        .collect()
    };
    for (line, marked, message) in [
        (1, "a", "`a` is not a number"),
        (2, "nxdomian", "did you mean `nxdomain`?"),
        (3, "establish", "unknown option `establish` of `flow`"),
        // Once for both rules.
        (4, "troian-activity", "no class is called `troian-activity`: 2 rules of it have severity 3"),
    ] {
        let said = of_line(line);
        assert!(said.len() == 1 && said[0].0 == marked && said[0].1.contains(message), "{line}: {said:?}");
    }
    // As Suricata 8.0.8: what it takes is taken, what it refuses is refused.
    assert!([5, 6, 7].iter().all(|line| of_line(*line).is_empty()), "{}", ended.stdout);
    assert!(of_line(8)[0].1.contains("need 6 bytes, and `bsize` allows 5"), "{:?}", of_line(8));
}

#[test]
fn classes_without_a_table_have_suricata_s_severities() {
    let folder = folder();
    let rule = |sid: u32, class: &str| {
        format!(
            "alert udp any any -> any 4000 (msg:\"m\"; content:\"secret\"; classtype:{class}; sid:{sid};)\n"
        )
    };
    let rules =
        [rule(1, "trojan-activity"), rule(2, "bad-unknown"), rule(3, "troian"), rule(4, "troian")].concat();
    folder.write("r.rules", rules);
    let ended = run(&folder.0, &["inspect", "--cache", "none", "--rules", "r.rules", "--out", "o", "c.pcap"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stderr.matches("no class is called `troian`: 2 rules of it have severity 3").count(), 1);
    let events = events::read(&folder.path("o/eve.json"));
    let of_sid: BTreeMap<u64, (String, u64)> = events::of_type(&events, "alert")
        .map(|event| {
            let alert = &event["alert"];
            let category = alert["category"].as_str().unwrap().to_owned();
            (alert["signature_id"].as_u64().unwrap(), (category, alert["severity"].as_u64().unwrap()))
        })
        .collect();
    let known = [(1, "A Network Trojan was detected", 1), (2, "Potentially Bad Traffic", 2)];
    // As Suricata 8.0.8: the first rule of a class that there is not has none.
    for (sid, category, severity) in known.into_iter().chain([(3, "", 3), (4, "Unknown Classtype", 3)]) {
        assert_eq!(of_sid.get(&sid), Some(&(category.to_owned(), severity)), "{sid}");
    }
}

#[test]
fn keywords_and_protocols_are_listed() {
    let folder = Folder::new();
    let run = |arguments: &[&str]| run(&folder.0, arguments);
    let lines = |ended: &Ended| ended.stdout.lines().map(str::to_owned).collect::<Vec<_>>();
    let names = lines(&run(&["--list-keywords"]));
    for name in
        ["content", "http.uri", "http_uri", "dns.query", "dns_query", "pcre", "tls.store", "tls_store"]
    {
        assert_eq!(names.iter().filter(|line| **line == format!("- {name}")).count(), 1, "{name}");
    }
    // Suricata's columns, and the line ends in a separator.
    let csv = lines(&run(&["--list-keywords=csv"]));
    assert_eq!(csv[0], "name;description;app layer;features;documentation");
    assert!(
        csv.len() == names.len() && csv[1..].iter().all(|line| line.matches(';').count() == 5),
        "{csv:?}"
    );
    assert!(csv.iter().any(|line| line.starts_with("dns.query;")
        && line.contains(";dns")
        && line.contains("sticky buffer")));
    let json: serde_json::Value = serde_json::from_str(&run(&["--list-keywords", "--json"]).stdout).unwrap();
    assert_eq!(json.as_array().unwrap().len(), names.len() - 1);
    assert!(run(&["--list-keywords=http.uri"]).stdout.starts_with("= http.uri ="));
    let none = run(&["--list-keywords=http.urii"]);
    assert!(none.code == Some(1) && none.stderr.contains("did you mean `http.uri`?"), "{none:?}");
    let protocols = lines(&run(&["--list-app-layer-protos"]));
    assert_eq!(protocols[0], "=========Supported App Layer Protocols=========");
    assert!(
        ["http", "tls", "dns"].iter().all(|name| protocols.iter().any(|line| line == name)),
        "{protocols:?}"
    );
    // Without a question there is no answer.
    let ended = run(&["-c", "s.yaml"]);
    assert!(ended.code == Some(2) && ended.stderr.contains("bartizan run"), "{ended:?}");
    assert!(run(&["--version"]).stdout.starts_with("bartizan 0."));
    assert!(run(&["inspect", "--version"]).stdout.contains("inspect 0."));
}

#[test]
fn libraries_that_are_linked_have_their_notices() {
    let folder = Folder::new();
    let notices = run(&folder.0, &["--notices"]).stdout;
    let lock = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    // Bindings to the system, to other systems' libraries and to the fuzzer have nothing of others in the
    // program.
    let none = ["js-sys", "libfuzzer-sys", "linux-raw-sys", "windows-sys"];
    let text = std::fs::read_to_string(lock).unwrap();
    let names = text.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix("-sys\""));
    let linked: Vec<&str> = names.filter(|name| !none.contains(&format!("{name}-sys").as_str())).collect();
    assert!(linked.contains(&"pcre2"), "{linked:?}");
    for name in linked.iter().copied().chain(["hyperscan", "ring", "sljit"]) {
        let name = name.strip_prefix("lib").unwrap_or(name);
        assert!(notices.to_lowercase().contains(&format!("\n{name} (")), "{name} has no notice");
    }
    assert_eq!(notices.matches("IS PROVIDED").count(), 5);
}

#[test]
fn a_suricata_yaml_says_where_rules_are_and_events_go() {
    let folder = folder();
    let inspect = |more: &[&str]| {
        run(
            &folder.0,
            &[&["inspect", "--cache", "none", "--suricata-config", "s.yaml", "c.pcap"], more].concat(),
        )
    };
    let ended = inspect(&[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    says(&ended, &["2 alerts of 1 rules", "events: logs/eve.json"]);
    assert!(folder.path("logs/eve.json").exists() && !folder.path("bartizan-out").exists());
    // What the command line says wins.
    folder.write("other.rules", GOOD.replace("sid:1", "sid:9").replace("secret", "other"));
    let ended = inspect(&["--rules", "other.rules", "--out", "mine"]);
    says(&ended, &["0 alerts of 0 rules", "rules: 1 loaded", "events: mine/eve.json"]);
    // A pattern that matches no rule file is reported.
    let ended = inspect(&["--set", "rule-files.0=none-*.rules", "--out", "mine2"]);
    assert_eq!(ended.code, Some(0));
    says(&ended, &["--set: there is no rule file rules/none-*.rules"]);
    // A policy says which rules by itself.
    folder.write("p.yaml", "policies: []\ndefault: {action: allow, chain: [ids]}\n");
    says(
        &inspect(&["--policy", "p.yaml", "--out", "mine3"]),
        &["`rule-files` of the settings are not loaded"],
    );
}

#[test]
fn settings_without_effect_are_summed_and_misspelt_ones_are_named() {
    let folder = folder();
    let inspect = |more: &[&str]| {
        run(
            &folder.0,
            &[&["inspect", "--cache", "none", "--suricata-config", "s.yaml", "--out", "o", "c.pcap"], more]
                .concat(),
        )
    };
    let said = inspect(&["--set", "outputs.2.eve-log.append=no"]).stderr;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].contains("enabled and not supported: fast;"), "{said}");
    assert!(
        lines[1].contains("1 Suricata settings have no effect, and 0 work in another way: pcap 1;"),
        "{said}"
    );
    // The list has neither settings that were read nor outputs that are switched off.
    let all = run(&folder.0, &["check", "-v", "--suricata-config", "s.yaml"]).stderr;
    for word in ["outputs.2", "rule-files", "default-", "vars", "http-log"] {
        assert!(!all.contains(word), "{word}: {all}");
    }
    for (setting, hint) in [
        ("streem.midstream=yes", "there is no setting `streem.midstream`; did you mean `stream.midstream`?"),
        ("nonsense.key=1", "there is no setting `nonsense.key`; correct or remove it"),
        ("outputs.2.eve-log.types.1=flwo", "there is no type of events `flwo`; did you mean `flow`?"),
    ] {
        let plain = inspect(&["--set", setting]);
        assert_eq!(plain.code, Some(0));
        says(&plain, &[&format!("warning: --set: {hint}")]);
        let strict = inspect(&["--strict", "--set", setting]);
        assert_eq!(strict.code, Some(1), "{strict:?}");
        says(&strict, &[hint]);
        let check = ["check", "--suricata-config", "s.yaml", "--set", setting];
        assert_eq!(run(&folder.0, &check).code, Some(0));
        assert_eq!(run(&folder.0, &[&check[..], &["--strict"]].concat()).code, Some(1));
    }
    let known = inspect(&["--set", "runmode=workers"]);
    says(&known, &["warning: --set runmode: this Suricata setting has no effect: workers do all"]);
    assert!(!known.stderr.contains("did you mean"), "{}", known.stderr);
    // In the file, by its place.
    folder.write("s.yaml", format!("{YAML}streem:\n  midstream: yes\n"));
    says(&inspect(&[]), &["warning: s.yaml:26:14: there is no setting `streem.midstream`"]);
}
