// SPDX-License-Identifier: Apache-2.0
//! Generation and content hashes of the loaded files: in the log, in answers to reloads, by `ctl status`
//! and by checks (the live part needs root; without, it prints so and returns).

use crate::command_socket;
use crate::common;
use crate::namespace;

use command_socket::{Client, ctl, ready};
use common::{Folder, PROGRAM, Running, run};
use namespace::{in_namespace, ip, veth};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Command;

const POLICY: &str =
    "policies:\n  - name: all\n    chain: [ids]\n    ids: {rules: [web.rules]}\ndefault: {action: drop}\n";
const RULES: &str =
    "alert udp any any -> any 1 (dns.query; dataset:isset,bad,type string,load bad.lst; sid:2;)\n";
const KINDS: [&str; 4] = ["lists", "policy", "rules", "settings"];

/// A host with settings, rules of its own, a policy with rules, a list, classes and an included file.
fn host(folder: &Folder) {
    let host = "links:\n  - {name: wan, tap: {interface: a1}}\nsuricata-config: s.yaml\nrules: local.rules\npolicy: policy.yaml\n\
                control: {socket: c.socket}\noutputs: {eve: {dir: out}}\ncache: none\n";
    folder.write("host.yaml", host);
    folder.write("s.yaml", "%YAML 1.1\n---\nclassification-file: class.config\ninclude: more.yaml\n");
    folder.write("more.yaml", "%YAML 1.1\n---\nstream:\n  midstream: no\n");
    folder.write("class.config", "config classification: mine,mine,1\n");
    folder.write("local.rules", "alert udp any any -> any 1 (sid:1;)\n");
    folder.write("policy.yaml", POLICY);
    folder.write("web.rules", RULES);
    folder.write("bad.lst", "YQ==\n");
}

/// The kinds of content whose hashes differ.
fn changed(before: &Value, after: &Value) -> BTreeSet<&'static str> {
    assert_eq!(before["all"] == after["all"], before == after);
    KINDS.into_iter().filter(|kind| before[kind] != after[kind]).collect()
}

fn hashes_of(folder: &Folder, arguments: &[&str]) -> Value {
    let ended = run(&folder.0, arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let mut result: Value = serde_json::from_str(&ended.stdout).unwrap();
    result["content"].take()
}

#[test]
fn a_check_says_the_hashes_of_each_kind_wherever_the_files_lie() {
    let (folder, copy) = (Folder::new(), Folder::new());
    host(&folder);
    host(&copy);
    let test = ["-T", "-c", "host.yaml", "--json"];
    let before = hashes_of(&folder, &test);
    assert_eq!(before["all"].as_str().map(str::len), Some(64), "{before}");
    assert_eq!(hashes_of(&copy, &test), before);
    // Each file counts for its kind, by its bytes: a comment is a change.
    for (name, kind, text) in [
        ("local.rules", "rules", "# x\nalert udp any any -> any 1 (sid:1;)\n"),
        ("web.rules", "rules", &format!("{RULES}# x\n")),
        ("bad.lst", "lists", "YQ==\nYg==\n"),
        ("policy.yaml", "policy", &format!("{POLICY}# x\n")),
        ("host.yaml", "settings", &format!("{}# x\n", folder.read("host.yaml"))),
        ("s.yaml", "settings", &format!("{}# x\n", folder.read("s.yaml"))),
        ("more.yaml", "settings", &format!("{}# x\n", folder.read("more.yaml"))),
        ("class.config", "settings", "config classification: mine,mine,2\n"),
    ] {
        let own = copy.read(name);
        copy.write(name, text);
        assert_eq!(changed(&before, &hashes_of(&copy, &test)), BTreeSet::from([kind]), "{name}");
        copy.write(name, own);
    }
    let set = [&test[..], &["--set", "stream.midstream=yes"]].concat();
    assert_eq!(changed(&before, &hashes_of(&copy, &set)), BTreeSet::from(["settings"]));
    // Compressed or not, and by the words of either command.
    let check = ["check", "local.rules", "--json"];
    let plain = hashes_of(&folder, &check);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut packed, folder.read("local.rules").as_bytes()).unwrap();
    folder.write("local.rules.gz", packed.finish().unwrap());
    assert_eq!(hashes_of(&folder, &["check", "local.rules.gz", "--json"]), plain);
    let said = run(&folder.0, &["check", "local.rules"]).stdout;
    let short = |kind: &str| plain[kind].as_str().unwrap()[..12].to_owned();
    let line = format!("content {} (rules {}, lists e3b0c44298fc, ", short("all"), short("rules"));
    assert!(said.lines().any(|found| found.starts_with(&line)), "{said}");
}

#[test]
fn each_reload_says_what_is_in_force_and_so_does_one_that_is_refused() {
    in_namespace(|| {
        ip("link set dev lo up");
        veth("a0", "a1", 1500);
        let folder = Folder::new();
        host(&folder);
        let tested = hashes_of(&folder, &["-T", "-c", "host.yaml", "--json"]);
        let start = ["run", "-c", "host.yaml"];
        let running = Running::start(Command::new(PROGRAM).args(start).current_dir(&folder.0));
        ready(&folder, &running);
        running.until("running on");
        let mut client = Client::greeted(&folder.path("c.socket"));
        let mut in_force = |generation: u64| {
            let mut status = client.ok("status", Value::Null);
            assert_eq!(status["generation"], generation, "{status}");
            status["content"].take()
        };
        let log = |generation: u64, content: &Value| {
            let short = |kind: &str| content[kind].as_str().unwrap()[..12].to_owned();
            let all = short("all");
            running.until(&format!(
                "generation {generation}: 2 rules loaded, 0 refused; content {all} (rules {}",
                short("rules")
            ));
        };
        let first = in_force(1);
        assert_eq!(first, tested, "a test says what a start takes");
        log(1, &first);

        // By the socket, as Suricata's clients ask and as an operator does.
        folder.write("web.rules", format!("# changed\n{RULES}"));
        let own = |arguments: &[&str]| {
            let ended = ctl(&folder, arguments);
            let mut answer: Value = serde_json::from_str(&ended.stdout).unwrap();
            (ended.code, answer["message"].take(), answer["bartizan"].take())
        };
        let (code, message, told) = own(&["--json", "reload-rules"]);
        assert_eq!((code, message), (Some(0), json!("done")));
        let second = in_force(2);
        assert_eq!(told, json!({"generation": 2, "content": second}));
        assert_eq!(changed(&first, &second), BTreeSet::from(["rules"]));
        log(2, &second);
        assert_eq!(own(&["--json", "ruleset-stats"]).2, told);
        let text = ctl(&folder, &["ruleset-reload-rules"]).stdout;
        let all = format!("content.all {}", second["all"].as_str().unwrap());
        assert!(text.starts_with("done\n") && text.lines().any(|line| line == all), "{text}");
        assert_eq!(in_force(3), second);

        // By a signal.
        folder.write("bad.lst", "Yg==\n");
        folder.write("policy.yaml", format!("# changed\n{POLICY}"));
        running.signal("USR2");
        running.until("generation 4: ");
        let fourth = in_force(4);
        assert_eq!(changed(&second, &fourth), BTreeSet::from(["lists", "policy"]));
        log(4, &fourth);
        // Settings are read at the start, so the hash of those in force has not changed.
        folder.write("more.yaml", "%YAML 1.1\n---\nstream:\n  midstream: yes\n");
        assert_eq!(own(&["--json", "reload-rules"]).2["content"], fourth);

        // One that is refused changes nothing, and says what goes on.
        folder.write("web.rules", "alert udp any\n");
        let (code, message, told) = own(&["--json", "reload-rules"]);
        let goes_on =
            format!("generation 5 keeps running (content {} ", &fourth["all"].as_str().unwrap()[..12]);
        assert!(code == Some(1) && message.as_str().unwrap().contains(&goes_on), "{message}");
        assert_eq!(told, json!({"generation": 5, "content": fourth}));
        running.until(&format!("reload refused, {goes_on}"));
        assert_eq!(in_force(5), fourth);
        assert_eq!(running.stop().code, Some(0));
    });
}
