// SPDX-License-Identifier: Apache-2.0
//! Results of loading files of rules: findings, and the rules that run.

use crate::common::load_text;
use bartizan_base::SettingsMap;
use bartizan_detect::needs::Needs;
use bartizan_detect::ruleset::{LoadInput, SKIPPED_ENTRY, load};
use bartizan_detect::shared::Shared;
use bartizan_pattern::{Compiler, Config};
use bartizan_rules::{RuleVariables, Severity};
use std::sync::Arc;

#[test]
fn files_hold_no_text_and_findings_show_their_lines() {
    let refused = "alert udp any any -> any any (nosuch; sid:2;)";
    let text = format!("alert udp any any -> any any (content:\"x\"; sid:1;)\n{refused}\nalret udp\n");
    let mut files = [bartizan_rules::parse_file(text, "some.rules")];
    let compiler = Compiler::new(Config::default()).unwrap();
    let input = LoadInput {
        settings: &SettingsMap::new(),
        variables: &RuleVariables::new(),
        classifications: None,
        references: None,
        shared: &Arc::<Shared>::default(),
        compiler: &compiler,
        tenants: &[],
        known: None,
    };
    let loaded = load(&mut files, &input).unwrap();
    let [file] = &files;
    assert_eq!((loaded.rules.report.loaded, file.rules.len(), file.source.original().len()), (1, 0, 0));
    assert_eq!(file.source.name().as_ref(), "some.rules");
    assert_eq!((file.counts.rules, file.counts.refused), (2, 1));
    let shown = |line: u32| -> String {
        let finding = loaded.diagnostics.iter().find(|d| d.line == line).expect("a finding");
        finding.render(false)
    };
    assert!(shown(2).contains(refused), "{}", shown(2));
    assert!(shown(3).contains("alret udp"), "{}", shown(3));
}

/// Each wrong entry of a list is a warning with its place; the rules load, also those that use the list
/// again.
#[test]
fn wrong_entries_of_lists_are_left_out_with_a_warning() {
    let folder = std::env::temp_dir().join(format!("bartizan-lists-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).unwrap();
        folder.join(name).display().to_string()
    };
    let names = file("names", "YmFk\n!!!\nZ29vZA==\n");
    let hosts = file("hosts", "192.0.2.1,5\nnobody,5\n2001:db8::1,0\n192.0.2.0/24,1\n");
    let objects = file("objects", "{\"ip\": \"192.0.2.1\"}\n{\n{\"ip\": \"x\"}\n");
    let categories = file("categories", "1,Bad,b\n60,No,n\n");
    let scores = file("scores", "192.0.2.1,1,20\n192.0.2.999,1,5\n192.0.2.9,1,128\n");
    let mut settings = SettingsMap::new();
    settings.set("reputation-categories-file", &categories);
    settings.set("reputation-files.0", &scores);
    let text = format!(
        "alert dns any any -> any any (dns.query; dataset:isset,n,type string,load {names}; sid:1;)\n\
         alert dns any any -> any any (dns.query; dataset:isnotset,n; sid:2;)\n\
         alert ip any any -> any any (ip.src; datarep:h,>,1,type ip,load {hosts}; sid:3;)\n\
         alert ip any any -> any any (ip.src; dataset:isset,o,type ip,load {objects},format ndjson,value_key ip; sid:4;)\n\
         alert ip any any -> any any (iprep:src,Bad,>,10; sid:5;)\n\
         alert ip any any -> any any (iprep:dst,Bad,isset; sid:6;)\n"
    );
    // A second load reads the lists again.
    let shared = Arc::<Shared>::default();
    for _ in 0..2 {
        let loaded = load_text(&text, &settings, &shared);
        let report = &loaded.rules.report;
        assert_eq!((report.loaded, report.refused_total()), (6, 0), "{:?}", loaded.diagnostics);
        assert!(
            loaded.diagnostics.iter().all(|d| d.code == SKIPPED_ENTRY && d.severity == Severity::Warning)
        );
        let places: Vec<_> = loaded.diagnostics.iter().map(|d| (d.file.to_string(), d.line)).collect();
        let wrong = [
            (&names, 2),
            (&hosts, 2),
            (&hosts, 4),
            (&objects, 2),
            (&objects, 3),
            (&categories, 2),
            (&scores, 2),
            (&scores, 3),
        ];
        assert_eq!(places, wrong.map(|(path, line)| (path.clone(), line)));
        let shown = loaded.diagnostics[0].render(false);
        assert!(shown.contains("!!!") && shown.contains("names:2:1"), "{shown}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The results of loading rules: code, line and message of each finding, and the running rules.
fn findings(text: &str) -> (Vec<(&'static str, u32, String)>, Vec<u32>) {
    let loaded = load_text(text, &SettingsMap::new(), &Arc::default());
    let said = loaded.diagnostics.iter().map(|d| (d.code, d.line, d.message.clone())).collect();
    let report = &loaded.rules.report;
    assert_eq!(report.loaded, loaded.rules.signatures.len() as u64);
    assert_eq!(report.seen(), text.lines().filter(|line| !line.is_empty()).count() as u64);
    let mut sids: Vec<u32> = loaded.rules.signatures.iter().map(|s| s.id.sid).collect();
    sids.sort_unstable();
    (said, sids)
}

/// Each kind of variable: an option that writes it, one that tests it, and one that tests that it is not set.
const VARIABLES: [(&str, &str, &str, &str); 4] = [
    ("flowbit", "flowbits:set,x", "flowbits:isset,x", "flowbits:isnotset,x"),
    ("xbit", "xbits:set,x,track ip_src", "xbits:isset,x,track ip_src", "xbits:isnotset,x,track ip_src"),
    ("hostbit", "hostbits:set,x,src", "hostbits:isset,x", "hostbits:isnotset,x,dst"),
    ("flowint", "flowint:x,+,1", "flowint:x,>,3", "flowint:x,notset"),
];

#[test]
fn rules_that_ask_for_what_no_rule_sets_are_told_of_and_run() {
    for (kind, sets, asks, asks_not) in VARIABLES {
        let reader = format!(
            "alert udp any any -> any any ({asks}; sid:2;)\nalert udp any any -> any any ({asks}; sid:3;)\nalert udp any any -> any any ({asks_not}; sid:4;)\n"
        );
        let (said, sids) = findings(&reader);
        let message = format!("no rule sets the {kind} `x`: 2 rules test it, and the test is never true");
        assert_eq!((said, sids), (vec![("D120", 1, message)], vec![2, 3, 4]), "{kind}");
        let setter = format!("alert udp any any -> any any (content:\"x\"; {sets}; sid:1;)\n");
        let (said, sids) = findings(&format!("{setter}{reader}"));
        assert_eq!((said, sids), (vec![], vec![1, 2, 3, 4]), "{kind}");
    }
    let toggles = "alert udp any any -> any any (content:\"x\"; flowbits:toggle,x; sid:1;)\nalert udp any any -> any any (flowbits:isset,x|y; sid:2;)\n";
    let (said, _) = findings(toggles);
    let message = "no rule sets the flowbit `y`: 1 rule tests it, and the test is never true".to_owned();
    assert_eq!(said, [("D120", 2, message)]);
}

/// The rule that would set the variable was left out, so nothing is set, and a rule that tests for this
/// matches too often.
#[test]
fn rules_that_ask_whether_something_is_not_set_whose_setter_was_left_out_are_skipped() {
    for (kind, sets, asks, asks_not) in VARIABLES {
        for setter in [
            format!("alert nfs any any -> any any ({sets}; sid:1;)"),
            format!("alert udp any any -> any any ({sets}; nosuch; sid:1;)"),
            // No rule at all.
            format!("alert udp any any > any any ({sets}; sid:1;)"),
        ] {
            let text = format!(
                "{setter}\nalert udp any any -> any any ({asks}; sid:2;)\ndrop udp any any -> any any (content:\"y\"; {asks_not}; sid:3;)\n"
            );
            let (said, sids) = findings(&text);
            assert_eq!(sids, [2], "{text}");
            let said: Vec<_> = said.iter().filter(|(code, ..)| matches!(*code, "D120" | "D116")).collect();
            let skipped = format!(
                "the rule is skipped: it tests that the {kind} `x` is not set, and the rule at test.rules:1, which sets it, was left out"
            );
            let vain = format!(
                "the rule at test.rules:1, which sets the {kind} `x`, was left out: 1 rule tests it, and the test is never true"
            );
            assert_eq!(said, [&("D116", 3, skipped), &("D120", 2, vain)], "{text}");
        }
    }
}

#[test]
fn rules_that_refuse_http_are_counted() {
    let count =
        |rules: &str| Needs::of(&load_text(rules, &SettingsMap::new(), &Arc::default()).rules).refuse_parsed;
    for (rule, refuses) in [
        ("drop http any any -> any any (http.uri; content:\"/x\"; sid:1;)", 1),
        ("reject http1 any any -> any any (content:\"x\"; sid:1;)", 1),
        ("drop tcp any any -> any any (http.uri; content:\"/x\"; sid:1;)", 1),
        ("alert http any any -> any any (http.uri; content:\"/x\"; sid:1;)", 0),
        ("drop http2 any any -> any any (http.uri; content:\"x\"; sid:1;)", 0),
        ("drop tcp any any -> any any (content:\"x\"; sid:1;)", 0),
    ] {
        assert_eq!(count(rule), refuses, "{rule}");
    }
}

#[test]
fn what_a_skipped_rule_sets_is_not_set_either() {
    let text = "alert nfs any any -> any any (flowbits:set,a; sid:1;)
alert udp any any -> any any (content:\"x\"; flowbits:isnotset,a; flowbits:set,b; sid:2;)
alert udp any any -> any any (content:\"x\"; flowbits:isnotset,c|b; flowbits:set,d; sid:3;)
alert udp any any -> any any (content:\"y\"; flowbits:set,d; sid:4;)
alert udp any any -> any any (content:\"x\"; flowbits:isset,d; sid:5;)
alert udp any any -> any any (content:\"x\"; flowbits:isnotset,d; sid:6;)
alert udp any any -> any any (content:\"x\"; flowbits:isnotset,e; sid:7;)
";
    let (said, sids) = findings(text);
    assert_eq!(sids, [4, 5, 7]);
    let skipped: Vec<u32> =
        said.iter().filter(|(code, ..)| *code == "D116").map(|(_, line, _)| *line).collect();
    assert_eq!(skipped, [2, 3, 6]);
    let vain: Vec<&str> =
        said.iter().filter(|(code, ..)| *code == "D120").map(|(.., message)| message.as_str()).collect();
    assert_eq!(
        vain,
        [
            "the rule at test.rules:3, which sets the flowbit `d`, was left out: 1 rule tests it, and the test is true less often"
        ]
    );
}

/// A newer revision replaces a rule; variables that the older one set are not missing.
#[test]
fn an_older_revision_is_not_left_out() {
    let text = "alert udp any any -> any any (content:\"x\"; flowbits:set,a; sid:1; rev:1;)
alert udp any any -> any any (content:\"y\"; flowbits:set,a; sid:1; rev:2;)
alert udp any any -> any any (content:\"x\"; flowbits:isnotset,a; sid:2;)
alert udp any any -> any any (content:\"z\"; flowbits:set,b; requires:version > 99.0.0; sid:3;)
alert udp any any -> any any (content:\"x\"; flowbits:isnotset,b; sid:4;)
";
    assert_eq!(findings(text), (vec![], vec![1, 2, 4]));
}

#[test]
fn rules_of_http2_load() {
    let loaded = |rule: &str| load_text(rule, &SettingsMap::new(), &Arc::default());
    for rule in [
        "alert http2 any any -> any any (content:\"x\"; sid:1;)",
        "alert tcp any any -> any any (app-layer-protocol:http2; sid:1;)",
    ] {
        assert_eq!(loaded(rule).rules.report.loaded, 1, "{rule}");
    }
    for rule in [
        "alert http2:request_complete any any -> any any (sid:1;)",
        "alert http2 any any -> any any (http.uri; content:\"x\"; sid:1;)",
        "alert http2 any any -> any any (http2.frametype:4; sid:1;)",
        "alert doh2 any any -> any any (http.uri; content:\"x\"; dns.query; content:\"y\"; sid:1;)",
        "alert doh2 any any -> any any (dns.rcode:3; http2.window:1; sid:1;)",
        "alert http2 any any -> any any (app-layer-event:http2.invalid_header; sid:1;)",
    ] {
        assert_eq!(loaded(rule).rules.report.loaded, 1, "{rule}");
    }
    for rule in [
        "alert http2:request_line any any -> any any (sid:1;)",
        "alert http1 any any -> any any (http2.frametype:4; sid:1;)",
        "alert dns any any -> any any (http2.frametype:4; http.start; content:\"x\"; sid:1;)",
    ] {
        assert_eq!(loaded(rule).rules.report.loaded, 0, "{rule}");
    }
}
