// SPDX-License-Identifier: Apache-2.0
//! `bartizan rules`: coverage of a feed, its rules as drop rules, the difference of two states.

use crate::common::{Folder, run};
use serde_json::Value;

const FEED: &str = "\
# feed of a test
alert http any any -> any any (msg:\"mark\"; http.uri; content:\"/a\"; flowbits:set,seen; flowbits:noalert; sid:1; rev:1;)
alert http any any -> any any (msg:\"read\"; flowbits:isset,seen; http.uri; content:\"/b\"; sid:2; rev:1;)
alert http any any -> any any (msg:\"first\"; http.uri; content:\"/c\"; flowbits:set,next; sid:3; rev:1;)
alert http any any -> any any (msg:\"second\"; flowbits:isset,next; sid:4; rev:1;)
alert tcp any any -> any any (msg:\"odd\"; stream-event:est_invalid_ack; sid:5; rev:1;)
alert snmp any any -> any any (msg:\"other\"; snmp.version:1; sid:6; rev:1;)
#alert tcp any any -> any any (msg:\"off\"; sid:7; rev:1;)
alert tcp any any -> any any (msg:\"wrong\"; content:\"a)
";

#[test]
fn coverage_says_what_is_missing() {
    let folder = Folder::new();
    folder.write("f.rules", FEED);
    let ended = run(&folder.0, &["rules", "coverage", "f.rules"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended
            .stdout
            .starts_with("5 loaded, 2 refused (1 malformed, 1 not supported), 0 skipped, 1 disabled\n")
    );
    assert!(ended.stdout.contains("missing protocol snmp: 1 rules\n"), "{}", ended.stdout);
    let ended = run(&folder.0, &["rules", "coverage", "--json", "f.rules"]);
    let found: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(found["protocols"]["http"], serde_json::json!({"rules": 4, "refused": 0}));
    assert_eq!(found["protocols"]["tcp"], serde_json::json!({"rules": 2, "refused": 1}));
    assert_eq!(found["keywords"]["flowbits"]["rules"], 4);
    let ended = run(&folder.0, &["rules", "coverage", "none.rules"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("none.rules"), "{ended:?}");
}

#[test]
fn a_feed_becomes_one_of_drop_rules() {
    let folder = Folder::new();
    folder.write("f.rules", FEED);
    let ended = run(&folder.0, &["rules", "to-drop", "f.rules"]);
    let actions = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
    };
    let expected = ["#", "alert", "drop", "alert", "drop", "alert", "drop", "#alert", "alert"];
    assert_eq!(actions(&ended.stdout), expected);
    assert_eq!(
        ended.stderr.trim_end(),
        "3 rules drop; 1 stay: noalert; 1 stay: flowbits or flowints that other rules read; \
         1 stay: events of the engine; 1 lines are no valid rules and stay (`bartizan check` names them)"
    );
    let ended =
        run(&folder.0, &["rules", "to-drop", "f.rules", "--events", "--except", "2,4", "--out", "drop"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""));
    let expected = ["#", "alert", "alert", "alert", "alert", "drop", "drop", "#alert", "alert"];
    assert_eq!(actions(&folder.read("drop/f.rules")), expected);
    let ended = run(&folder.0, &["rules", "to-drop", "f.rules", "--out", "."]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("would be overwritten"), "{ended:?}");
    assert_eq!(folder.read("f.rules"), FEED);
}

#[test]
fn two_states_are_compared_by_signature() {
    let folder = Folder::new();
    folder.write("old.rules", FEED);
    let new =
        FEED.replace("#alert tcp", "alert tcp").replace("\"/b\"; sid:2; rev:1", "\"/bb\"; sid:2; rev:2");
    folder.write("new.rules", new.replace("sid:6", "sid:8"));
    let ended = run(&folder.0, &["rules", "diff", "old.rules", "new.rules"]);
    assert_eq!(ended.code, Some(1));
    assert_eq!(
        ended.stdout,
        "added     8 rev 1 other\nremoved   6 rev 1 other\nenabled   7 rev 1 off\n\
         changed   2 rev 1 to 2 read [content]\n\
         1 added, 1 removed, 1 enabled, 0 disabled, 1 changed, 4 the same\n"
    );
    assert!(ended.stderr.contains("old.rules: 1 lines are no valid rules and are not compared"), "{ended:?}");
    let ended = run(&folder.0, &["rules", "diff", "--json", "old.rules", "old.rules"]);
    assert_eq!(ended.code, Some(0));
    let found: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!((&found["same"], &found["changed"]), (&Value::from(7), &Value::from(Vec::<Value>::new())));
}
