// SPDX-License-Identifier: Apache-2.0
//! Bad input, a table: the input, the exit code, and the message. Each case ends or goes on with one clear
//! message (what, where, why, what to do), and nothing readable is lost.

use crate::common;

use common::{Folder, capture, run, udp};

/// Files of a case: name and content.
type Files<'a> = &'a [(&'a str, &'a [u8])];

/// One case: files, arguments, exit code, and the message on standard error (for `check`, standard output).
struct Case<'a> {
    files: Files<'a>,
    arguments: &'a str,
    code: i32,
    says: &'a [&'a str],
}

const fn case<'a>(files: Files<'a>, arguments: &'a str, code: i32, says: &'a [&'a str]) -> Case<'a> {
    Case { files, arguments, code, says }
}

fn good() -> Vec<u8> {
    capture(&(0..4).map(|n| udp(n % 2 == 1, 40_000 + n, 53, b"hello")).collect::<Vec<_>>())
}

fn check(cases: &[Case<'_>]) {
    for Case { files, arguments, code, says } in cases {
        let folder = Folder::new();
        folder.write("ok.pcap", good());
        std::fs::create_dir(folder.path("dir")).unwrap();
        for (name, content) in *files {
            folder.write(name, content);
        }
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        let ended = run(&folder.0, &arguments);
        let shown = format!(
            "{arguments:?} with {:?}",
            files.iter().map(|f| String::from_utf8_lossy(f.1)).collect::<Vec<_>>()
        );
        assert_eq!(ended.code, Some(*code), "{shown}\n{}{}", ended.stdout, ended.stderr);
        let mut text = ended.stderr.clone();
        if arguments[0] == "check" {
            text.push_str(&ended.stdout);
        }
        for part in *says {
            assert!(text.contains(part), "{shown}: `{part}` is not said\n{}{}", ended.stdout, ended.stderr);
        }
        assert!(!text.contains("panicked"), "{shown}\n{text}");
        // The message of a refusal is one paragraph by the program (or wrong usage, reported by its option
        // parser).
        if *code == 1 && arguments[0] != "check" {
            let own = ended.stderr.lines().filter(|line| line.starts_with("bartizan: ")).count();
            assert_eq!(own, 1, "{shown}\n{}", ended.stderr);
        }
    }
}

#[test]
fn captures() {
    let good = good();
    let first = 24 + 16 + udp(false, 0, 0, b"hello").len();
    let mut foreign = good.clone();
    foreign[20] = 147;
    let mut huge = good.clone();
    huge[first + 8..first + 12].copy_from_slice(&0x7fff_ffffu32.to_le_bytes());
    let inspect = "inspect --cache none --out o x.pcap";
    check(&[
        case(
            &[("x.pcap", b"no capture at all")],
            inspect,
            1,
            &["x.pcap: not a capture file", "give a capture written by tcpdump"],
        ),
        case(&[("x.pcap", b"")], inspect, 1, &["x.pcap: the file is empty"]),
        case(
            &[("x.pcap", &good[..20])],
            inspect,
            1,
            &["ends inside its pcap header (20 of 24 bytes", "capture it again"],
        ),
        case(
            &[("x.pcap", &good[..first + 20])],
            inspect,
            0,
            &["the file ends at offset", "the 1 packets before that were read"],
        ),
        case(
            &[("x.pcap", &huge)],
            inspect,
            0,
            &["claims 2147483647 captured bytes", "repair tool such as pcapfix"],
        ),
        case(
            &[("x.pcap", &foreign)],
            inspect,
            0,
            &["4 packets have an unsupported link type (147)", "supported are ", "EN10MB"],
        ),
        case(&[("x.pcap", b"\x1f\x8bxxxxxxxxxxxxxxxxx")], inspect, 1, &["gzip data is damaged", "gzip -t"]),
        case(
            &[("x.pcap", b"\x28\xb5\x2f\xfdxxxxxxxxxxxxxx")],
            inspect,
            1,
            &["zstd data is damaged", "zstd -t"],
        ),
        case(&[], inspect, 1, &["cannot open capture x.pcap: no such file; check the path"]),
        // Before the rules, whose load may take seconds.
        case(
            &[],
            "inspect --cache none --out o --rules nothere.rules x.pcap",
            1,
            &["cannot open capture x.pcap: no such file; check the path"],
        ),
        case(
            &[],
            "inspect --cache none --out o dir",
            1,
            &["the folder dir contains no capture; check the path"],
        ),
        case(&[], "inspect --cache none --out o ok.pcap nothere", 1, &["cannot open capture nothere"]),
        case(&[], "inspect", 2, &["<CAPTURE>"]),
        case(&[], "inspect --policyy p ok.pcap", 2, &["--policyy", "--policy"]),
        case(&[], "inspect --threads 0 ok.pcap", 2, &["1..=256"]),
        case(&[], "frobnicate", 2, &["frobnicate"]),
    ]);
}

#[test]
fn outputs() {
    let inspect = "inspect --cache none ok.pcap --out";
    let with = |rest: &str| format!("{inspect} {rest}");
    check(&[
        case(
            &[],
            &with("ok.pcap"),
            3,
            &["cannot create the output folder ok.pcap", "choose another with --out"],
        ),
        case(
            &[],
            &with("/proc/x"),
            3,
            &["cannot create the output folder /proc/x", "choose another with --out"],
        ),
        case(
            &[],
            &with("o --set outputs.1.eve-log.filename=/dev/full"),
            3,
            &["events are lost: cannot write to /dev/full", "free space on that disk"],
        ),
        case(
            &[],
            &with("o --set outputs.1.eve-log.filename=no/eve.json"),
            3,
            &["cannot open the event output o/no/eve.json", "create the folder"],
        ),
        case(
            &[],
            &with("o --set outputs.1.eve-log.filetype=redis"),
            1,
            &[
                "--set: setting `outputs.1.eve-log.filetype`: `redis` is not one of regular, stdout, unix_stream and unix_dgram",
            ],
        ),
        case(
            &[],
            &with("o --set outputs.1.eve-log.rotate-interval=soon"),
            1,
            &[
                "--set: setting `outputs.1.eve-log.rotate-interval`: `soon` is not minute, hour, day, or a number",
            ],
        ),
        case(
            &[],
            "inspect --out o ok.pcap --cache ok.pcap",
            1,
            &["the pattern cache ok.pcap cannot be used", "--cache none"],
        ),
        case(&[], "inspect --cache none --out o ok.pcap --set x", 2, &["`--set x`: expected KEY=VALUE"]),
        case(
            &[],
            "inspect --cache none --out o ok.pcap --set stream.memcap=many",
            1,
            &["setting `stream.memcap`: `many` is not a size such as 64 KiB"],
        ),
    ]);
    let folder = Folder::new();
    folder.write("ok.pcap", good());
    let ended = run(
        &folder.0,
        &[
            "inspect",
            "--cache",
            "none",
            "--out",
            "o",
            "--json",
            "--set",
            "outputs.1.eve-log.filename=/dev/full",
            "ok.pcap",
        ],
    );
    let summary: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((summary["packets"].as_u64(), summary["flows"].as_u64()), (Some(4), Some(4)));
    assert!(summary["events_lost"].as_u64() >= Some(4), "{summary}");
}

#[test]
fn rules() {
    let rule = |line: &str, says: &'static str| {
        (format!("{line}\nalert ip any any -> any any (msg:\"fine\"; sid:99;)\n"), says)
    };
    let wrong = [
        rule("alert tcp any any -> any any (msg:\"x\";)", "r.rules:1:39"),
        rule("alrt tcp any any -> any any (sid:1;)", "did you mean `alert`?"),
        rule("alert tpc any any -> any any (sid:1;)", "did you mean `tcp`?"),
        rule("alert tcp any any -> any any (contnt:\"x\"; sid:1;)", "did you mean `content`?"),
        rule("alert tcp any any -> any any (content:\"x; sid:1;)", "the quote is not closed"),
        rule("alert tcp any any -> any any (content:\"|4|\"; sid:1;)", "hexadecimal digits come in pairs"),
        rule("alert tcp any any -> any any (pcre:\"/(a/\"; sid:1;)", "missing closing parenthesis"),
        rule("alert tcp $NO_SUCH any -> any any (sid:1;)", "the address variable $NO_SUCH is not defined"),
        rule("alert tcp 300.1.2.3 any -> any any (sid:1;)", "`300.1.2.3` is not an IPv4 address"),
        rule("alert tcp 2001:db8::1::2 any -> any any (sid:1;)", "r.rules:1:11"),
        rule("alert tcp any 70000 -> any any (sid:1;)", "ports go up to 65535"),
        rule("alert tcp any any <- any any (sid:1;)", "swap the two sides"),
        rule("alert tcp any any -> any any (sid:99;)", "an earlier rule has the same gid 1 and sid 99"),
        rule("alert tcp any any -> any any", "the rule has no options"),
        rule("alert tcp any any -> any any (flow:to_servr; sid:1;)", "unknown option `to_servr` of `flow`"),
        rule("alert tcp any any -> any any (sid:abc;)", "sid is a number"),
        rule("nonsense", "unknown action `nonsense`"),
    ];
    for (text, says) in &wrong {
        let files: Files<'_> = &[("r.rules", text.as_bytes())];
        check(&[
            case(files, "check --cache none r.rules", 1, &[says, "1 loaded, 1 refused"]),
            // The rest of the rules works.
            case(files, "inspect --cache none --rules r.rules --out o ok.pcap", 0, &[says]),
        ]);
    }
    let long = format!("alert ip any any -> any any (msg:\"{}\"; sid:1;)\n", "a".repeat(3_000_000));
    let garbage: Vec<u8> = (0..50_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    check(&[
        case(
            &[("r.rules", b"alert ip any any -> any any (msg:\"\xff\xfe\"; sid:1;)\n")],
            "check --cache none r.rules",
            0,
            &["the rule is not UTF-8 here", "r.rules:1:35", "1 loaded"],
        ),
        case(
            &[("r.rules", b"\xef\xbb\xbfalert ip any any -> any any (sid:1;)\r\n")],
            "check --cache none r.rules",
            0,
            &["1 loaded, 0 refused"],
        ),
        case(&[("r.rules", long.as_bytes())], "check --cache none r.rules", 0, &["1 loaded, 0 refused"]),
        case(&[("r.rules", &garbage)], "check --cache none r.rules", 1, &["0 loaded"]),
        case(
            &[("r.rules", b"")],
            "check --cache none r.rules",
            0,
            &["0 loaded, 0 refused (0 malformed, 0 not supported), 0 skipped"],
        ),
        case(
            &[("r.rules", b"\x1f\x8bxxxxxxxxxxxxxxxxxxxx")],
            "check --cache none r.rules",
            1,
            &["cannot read rule file r.rules", "gzip -t"],
        ),
        case(&[], "check --cache none dir", 1, &["cannot open rule file dir: it is a folder"]),
        case(
            &[],
            "check --cache none nothere.rules",
            1,
            &["cannot open rule file nothere.rules: no such file"],
        ),
        case(
            &[],
            "inspect --cache none --rules nothere.rules --out o ok.pcap",
            1,
            &["cannot open rule file nothere.rules: no such file"],
        ),
    ]);
}

#[test]
fn policies() {
    let rest = "    from: any\n    to: any\n";
    let policy =
        |chain: &str| format!("policies:\n  - name: a\n{rest}    {chain}\ndefault: {{action: drop}}\n");
    let function = policy("chain: [sfw, idss]");
    let key = policy("chian: [sfw]");
    let order = policy("chain: [ids, sfw]");
    let rules = policy("chain: [ids]\n    ids: {rules: [nothere.rules]}");
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        bomb += &format!("a{level}: &a{level} [{}]\n", format!("*a{}, ", level - 1).repeat(10));
    }
    let deep = "[".repeat(100_000);
    let cases: [(&[u8], &[&str]); 19] = [
        (function.as_bytes(), &["p.yaml:5:18: there is no function `idss`; did you mean `ids`?"]),
        (key.as_bytes(), &["p.yaml:5:5: the key `chian` is not known; did you mean `chain`?"]),
        (order.as_bytes(), &["run in another order", "[sfw, ids]"]),
        (rules.as_bytes(), &["p.yaml:6:19: ids: cannot open rule file nothere.rules: no such file"]),
        (
            b"polices: []\ndefault: {action: drop}\n",
            &["p.yaml:1:1: the key `polices` is not known; did you mean `policies`?"],
        ),
        (b"policies:\n\t- name: a\n", &["p.yaml:2:2: not YAML: tabs"]),
        (b"policies: [\n", &["p.yaml:2:1: not YAML"]),
        (b"policies: &a [*a]\n", &["p.yaml:1:15: not YAML: an alias comes before its anchor"]),
        (b"a: *x\n", &["p.yaml:1:4: not YAML", "anchor"]),
        (bomb.as_bytes(), &["not YAML: the document with expanded aliases has more than 1048576 nodes"]),
        (deep.as_bytes(), &["not YAML"]),
        (
            b"default: {action: drop}\ndefault: {action: allow}\n",
            &["p.yaml:2:1: the key `default` occurs twice; remove one"],
        ),
        (
            b"---\ndefault: {action: drop}\n---\ndefault: {action: drop}\n",
            &["p.yaml:3:1: not YAML: a second document begins here"],
        ),
        (b"", &["add `default: {action: drop}`"]),
        (b"just text\n", &["expected `policies:` and `default:` at the top level"]),
        (b"default: {action: dorp}\n", &["p.yaml:1:19: `dorp` is not known here; did you mean `drop`?"]),
        (
            b"policies:\n  - {name: a, from: 10.0.0.1/8, to: any, chain: [sfw]}\ndefault: {action: drop}\n",
            &["p.yaml:2:21: `10.0.0.1/8` has host bits set; write `10.0.0.0/8`"],
        ),
        (
            b"policies:\n  - {name: a, from: srvers, to: any, chain: [sfw]}\ndefault: {action: drop}\n",
            &["there is no group `srvers`"],
        ),
        (
            b"default:\n  action: \"\xffdrop\"\n",
            &["p.yaml:2:12: the policy file is not UTF-8 here; save it as UTF-8"],
        ),
    ];
    for (text, says) in cases {
        let files: Files<'_> = &[("p.yaml", text)];
        check(&[
            case(files, "check --cache none p.yaml", 1, says),
            case(files, "inspect --cache none --policy p.yaml --out o ok.pcap", 1, says),
        ]);
    }
    check(&[
        case(
            &[],
            "inspect --cache none --policy nothere.yaml --out o ok.pcap",
            1,
            &["cannot open policy file nothere.yaml: no such file"],
        ),
        case(
            &[],
            "check --cache none nothere.yaml",
            1,
            &["cannot open policy file nothere.yaml: no such file"],
        ),
    ]);
}

#[test]
fn host_files() {
    let tap = "links: [{name: a, tap: {interface: lo}}]\n";
    let with = |rest: &str| format!("{tap}{rest}").into_bytes();
    let cases: [(Vec<u8>, &[&str]); 19] = [
        (
            b"links: [{name: a, tap: {interface: nope0}}]\n".to_vec(),
            &["interface `nope0` does not exist in this network namespace", "ip link"],
        ),
        (b"links: [{name: a, inline: {a: lo, b: nope0}}]\n".to_vec(), &["interface `nope0` does not exist"]),
        (
            b"links: [{name: a, inline: {a: lo, b: lo}}]\n".to_vec(),
            &["h.yaml:1:9: interface `lo` is used twice"],
        ),
        (
            b"links: [{name: a, tap: {interface: lo}}, {name: b, tap: {interface: nope0}}]\n".to_vec(),
            &["link `b`: interface `nope0` does not exist"],
        ),
        (b"links: [{name: a, capture: ok.pcap}]\n".to_vec(), &["link `a` is a capture", "bartizan inspect"]),
        (b"links: []\n".to_vec(), &["h.yaml:1:1: there is no link"]),
        (b"links:\n\t- name: a\n".to_vec(), &["h.yaml:2:2: not YAML: tabs"]),
        (b"links: \xff\n".to_vec(), &["h.yaml:1:8: the host file is not UTF-8 here"]),
        (with("worker: 2\n"), &["h.yaml:2:1: the key `worker` is not known; did you mean `workers`?"]),
        (with("workers: 0\n"), &["h.yaml:2:10: at least one worker"]),
        (with("memory: {flows: 3}\n"), &["h.yaml:2:17: 3 entries are out of range; give 1024 to 16777216"]),
        (with("memory: {reassembly: 3 bananas}\n"), &["h.yaml:2:22: `3 bananas` is not a size"]),
        (with("policy: nothere.yaml\n"), &["cannot open policy file nothere.yaml: no such file"]),
        (with("rules: nothere.rules\n"), &["cannot open rule file nothere.rules: no such file"]),
        (with("suricata-config: nothere.yaml\n"), &["cannot read the Suricata settings nothere.yaml"]),
        (
            with("metrics: {listen: localhost:9100}\n"),
            &["h.yaml:2:19: `localhost:9100` is not an address with a port; write it like 127.0.0.1:9100"],
        ),
        (with("settings: {stream.memcap: manny}\n"), &["setting `stream.memcap`: `manny` is not a size"]),
        (
            with("settings: {stream.memcapp: 32mb}\n"),
            &[
                "the host file sets `stream.memcapp`, which is not a known setting; did you mean `stream.memcap`?",
            ],
        ),
        (with("cache: ok.pcap\n"), &["the pattern cache ok.pcap cannot be used"]),
    ];
    for (text, says) in &cases {
        let cache = if says[0].contains("cache") { "" } else { "--cache none" };
        check(&[case(&[("h.yaml", text)], &format!("run -c h.yaml --out o {cache}"), 1, says)]);
    }
    check(&[
        case(
            &[("h.yaml", &with("metrics: {listen: 192.0.2.1:9100}\n"))],
            "run -c h.yaml --out o",
            3,
            &["cannot listen on 192.0.2.1:9100 for metrics", "this machine has no such address"],
        ),
        case(&[], "run -c nothere.yaml", 1, &["cannot open host file nothere.yaml: no such file"]),
        case(&[], "run -c dir", 1, &["cannot open host file dir: it is a folder"]),
        case(&[], "run", 2, &["use --inline A B, --tap INTERFACE, a host file with -c FILE"]),
        case(&[], "run --tap lo --inline a b", 2, &["cannot be used with"]),
        case(&[], "run --inline lo", 2, &["2 values required"]),
        case(&[], "run --tap lo --metrics 1:2:3", 2, &["`1:2:3` is not an address with a port"]),
        case(&[], "run --tap nope0 --out o", 1, &["interface `nope0` does not exist"]),
        case(&[], "run --tap lo --out ok.pcap", 3, &["cannot create the output folder ok.pcap"]),
    ]);
}

#[test]
fn suricata_settings() {
    let cases: [(&[u8], i32, &[&str]); 14] = [
        (b"%YAML 1.1\n---\nstream:\n\tmemcap: 1mb\n", 1, &["s.yaml: line 4, column 2", "tabs"]),
        (b"a: [1\n", 1, &["s.yaml: line 2, column 1"]),
        (b"---\na: 1\n---\nb: 2\n", 1, &["s.yaml: line 3", "a second document begins here"]),
        (b"just text\n", 1, &["s.yaml: expected `key: value` lines at the top level"]),
        (
            b"include: nothere.yaml\n",
            1,
            &["cannot read the Suricata settings nothere.yaml", "beside the file that includes them"],
        ),
        (b"include: s.yaml\n", 1, &["includes nest deeper than 16 levels; does a file include itself?"]),
        (b"stream: {memcap: many}\n", 1, &["setting `stream.memcap`: `many` is not a size"]),
        (b"stream: {midstream: maybe}\n", 1, &["setting `stream.midstream`: `maybe` is not yes or no"]),
        (b"stream: {memcap: 1mb}\nstream: {inline: no}\n", 0, &["s.yaml:2:1: the key `stream` occurs again"]),
        (
            b"stream: {memcapp: 1mb}\n",
            0,
            &["s.yaml:1:19: there is no setting `stream.memcapp`; did you mean `stream.memcap`?"],
        ),
        (
            b"vars: {address-groups: {HOME_NET: \"[10.0.0.0/99]\"}}\n",
            1,
            &[
                "s.yaml:1:35: setting `vars.address-groups.HOME_NET`: `[10.0.0.0/99]`: `/99` is not a prefix length",
            ],
        ),
        (
            b"classification-file: /nope\n",
            0,
            &["classification-file: cannot read /nope", "correct the path or remove the key"],
        ),
        (b"threshold-file: ok.pcap\n", 0, &["--> ok.pcap:1:1"]),
        (b"x: &a {memcap: 1mb}\nstream: *a\n", 0, &["s.yaml:1:16: there is no setting `x.memcap`"]),
    ];
    for (text, code, says) in cases {
        check(&[case(
            &[("s.yaml", text)],
            "inspect --cache none --suricata-config s.yaml --out o ok.pcap",
            code,
            says,
        )]);
    }
}

#[test]
fn a_file_that_may_not_be_read() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let folder = Folder::new();
    let path = folder.write("x.pcap", good());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o0)).unwrap();
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        eprintln!("root may read everything: not run");
        return;
    }
    let ended = run(&folder.0, &["inspect", "--cache", "none", "--out", "o", "x.pcap"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("cannot open capture x.pcap: permission denied; check its permissions"),
        "{}",
        ended.stderr
    );
}

#[test]
fn policies_and_rules_that_no_packet_reaches() {
    let never = b"groups: {v4: 10.0.0.0/8, v6: '2001:db8::/32'}
policies:
  - name: a
    chain: [pfw]
    pfw:
      default: drop
      rules:
        - {allow: icmp, type: 256}
        - {allow: icmp, code: 300-400}
        - {drop: icmpv6, from: v4}
        - {drop: tcp, from: v4, to: v6}
default: {action: drop}
";
    let apart = b"groups: {v4: 10.0.0.0/8, v6: '2001:db8::/32'}
policies:
  - {name: a, from: v4, to: v6, chain: []}
  - {name: b, link: '', chain: []}
default: {action: drop}
";
    let hidden = b"policies:
  - {name: all, from: 10.0.0.0/8, chain: [pfw], pfw: {default: drop, rules: [{allow: tcp}, {drop: tcp, to-ports: 80}]}}
  - {name: one, to: 10.1.2.3, chain: []}
default: {action: drop}
";
    let words = [
        "p.yaml:2:92: pfw: this rule is never reached: rule 1 of this policy already matches all its packets",
        "p.yaml:3:12: policy `one` is never reached: policy `all`, which is tried before it, has all of its traffic",
    ];
    let warned = words.map(|words| format!("warning: {words}"));
    let warned = warned.each_ref().map(String::as_str);
    check(&[
        case(
            &[("p.yaml", never)],
            "check p.yaml",
            1,
            &[
                "p.yaml:8:31: pfw: `256` is out of range for ICMP types",
                "p.yaml:9:31: pfw: `300-400` is out of range for ICMP codes",
                "p.yaml:10:18: pfw: this rule never matches: icmpv6 belongs to IPv6",
                "p.yaml:11:37: pfw: this rule never matches: `from` has addresses of IPv4 only and `to` of IPv6 only",
            ],
        ),
        case(
            &[("p.yaml", apart)],
            "check p.yaml",
            1,
            &[
                "p.yaml:3:29: this policy never matches: `from` has addresses of IPv4 only",
                "p.yaml:4:21: the name of a link is empty",
            ],
        ),
        case(&[("p.yaml", hidden)], "check p.yaml", 0, &warned),
        case(&[("p.yaml", hidden)], "check --strict p.yaml", 1, &words),
        case(&[("p.yaml", hidden)], "inspect ok.pcap --policy p.yaml --out out", 0, &warned),
        case(&[("p.yaml", hidden)], "inspect ok.pcap --policy p.yaml --out out --strict", 1, &words),
    ]);
}

#[test]
fn a_reader_that_goes_away_is_no_defect() {
    let folder = Folder::new();
    folder.write("r.rules", "nonsense\n".repeat(5_000));
    let mut child = std::process::Command::new(common::PROGRAM)
        .args(["check", "--cache", "none", "r.rules"])
        .current_dir(&folder.0)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    child.wait().unwrap();
    assert!(!said.contains("panicked"), "{said}");
}
