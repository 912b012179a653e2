// SPDX-License-Identifier: Apache-2.0
//! `explain flow` and `explain rule`: their output, and their messages for wrong input.

use crate::sample as common;

use common::stage;
use serde_json::Value;

/// The result of a function.
fn answer<'v>(told: &'v Value, function: &str) -> &'v Value {
    told["functions"].as_array().unwrap().iter().find(|f| f["function"] == function).expect(function)
}

#[test]
fn a_flow_is_explained_in_both_ip_versions() {
    let folder = stage("tuple");
    for (client, server) in [("10.0.0.1", "192.0.2.7"), ("[2001:db8::1]", "[2001:db8:1::7]")] {
        let ask = |port: u16| {
            let (client, server) = (format!("{client}:40000"), format!("{server}:{port}"));
            folder.run(&["explain", "flow", "tcp", &client, &server, "--policy", "p.yaml", "--json"]).json()
        };
        let web = ask(80);
        assert_eq!(web["policy"]["name"], "web");
        assert_eq!(web["policy"]["place"], "p.yaml:10:5");
        assert_eq!(web["policy"]["opened_by"], "from");
        assert_eq!(web["path"], serde_json::json!(["pfw", "sfw", "ids"]));
        assert_eq!(web["level"], "host");
        assert_eq!(web["tenant"]["name"], "default");
        assert_eq!(web["verdict"]["verdict"], "continue");
        let passed: Vec<&Value> = web["passed_over"].as_array().unwrap().iter().map(|p| &p["why"]).collect();
        assert_eq!(passed, ["it is for link branch", "it is for tenant red"]);
        let pfw = answer(&web, "pfw");
        assert_eq!(
            (&pfw["rule"], &pfw["place"], &pfw["done"]),
            (&2.into(), &"p.yaml:18:11".into(), &true.into())
        );
        assert_eq!(pfw["text"]["to-ports"], serde_json::json!([80, 443]));
        let ids = answer(&web, "ids");
        assert_eq!(ids["details"]["rule_group"], "web");
        assert_eq!(ids["details"]["files"][0], "web.rules");
        assert_eq!(ids["details"]["rules"], 5);
        // Not rule 2, which is about port 25.
        assert_eq!(ids["details"]["rules_for_this_flow"]["sids"], serde_json::json!([1, 3, 4, 5]));

        let ssh = ask(22);
        assert_eq!(ssh["verdict"]["function"], "pfw");
        assert_eq!(ssh["verdict"]["reason"], "pfw_default");
        assert_eq!(answer(&ssh, "pfw")["place"], "p.yaml:15:16");
        assert_eq!(answer(&ssh, "sfw")["reached"], false);
        let telnet = ask(23);
        assert_eq!(telnet["verdict"]["verdict"], "reject");
        assert_eq!(telnet["verdict"]["reason"], "pfw_rule");
        assert_eq!(answer(&telnet, "pfw")["rule"], 3);

        let turned = format!("{server}:80");
        let args =
            ["explain", "flow", "tcp", &turned, &format!("{client}:80"), "--policy", "p.yaml", "--json"];
        let turned = folder.run(&args).json();
        assert_eq!(turned["policy"]["opened_by"], "to");
        assert_eq!(answer(&turned, "sfw")["reason"], "sfw_initiator");
    }
}

#[test]
fn tenant_link_vlan_and_level_count() {
    let folder = stage("scope");
    let ask = |more: &[&str]| {
        let mut args =
            vec!["explain", "flow", "udp 10.9.0.1:1000 -> 192.0.2.7:53", "--policy", "p.yaml", "--json"];
        args.extend(more);
        folder.run(&args).json()
    };
    let plain = ask(&[]);
    assert_eq!(plain["service_level"]["level"], "none");
    assert_eq!(plain["service_level"]["counts"], true);
    assert_eq!(plain["path"], serde_json::json!(["pfw", "sfw"]));
    assert_eq!(ask(&["--link", "branch"])["policy"]["name"], "branch");
    for more in [["--vlan", "102"], ["--tenant", "red"]] {
        let red = ask(&more);
        assert_eq!(red["tenant"]["name"], "red");
        assert_eq!(red["policy"]["name"], "red-only");
        assert_eq!(red["path"], serde_json::json!([]));
    }
    let nobody = folder.run(&["explain", "flow", "icmp 8.8.8.8 9.9.9.9", "--policy", "p.yaml"]);
    assert!(nobody.stdout().contains("verdict   drop by gate: policy_default."), "{}", nobody.stdout());
    assert!(nobody.stdout().contains("neither 8.8.8.8 nor 9.9.9.9 lies in its `from` or `to`"));
}

#[test]
fn staged_policies_say_what_they_would_refuse() {
    let folder = stage("staged");
    folder.write(
        "s.yaml",
        "policies: [{name: s, staged: true, chain: [pfw], pfw: {default: allow, rules: [{drop: tcp}]}}]\ndefault: {action: drop}\n",
    );
    let told =
        folder.run(&["explain", "flow", "tcp 10.0.0.1:1 10.0.0.2:2", "--policy", "s.yaml", "--json"]).json();
    assert_eq!(told["staged"], true);
    assert_eq!(told["verdict"]["verdict"], "continue");
    let pfw = answer(&told, "pfw");
    assert_eq!(pfw["why"], "staged policy: pfw would refuse this (pfw_rule)");
    assert_eq!(pfw["place"], "s.yaml:1:80");
}

#[test]
fn the_history_of_a_flow_is_told() {
    let folder = stage("history");
    for packet in ["4", "14"] {
        let args = ["explain", "flow", "c.pcap", "--flow", packet, "--policy", "p.yaml", "--ips", "--json"];
        let told = folder.run(&args).json();
        let flows = told["flows"].as_array().unwrap();
        assert_eq!(flows.len(), 1);
        let history = &flows[0]["history"];
        assert_eq!(flows[0]["policy"]["policy"]["name"], "web");
        assert_eq!(history["app_proto"], "http");
        let alerts = history["alerts"].as_array().unwrap();
        let blocked = alerts.iter().find(|a| a["rule"] == "1:1:3").expect("the alert");
        assert_eq!(blocked["action"], "blocked");
        assert_eq!(blocked["packet"].to_string(), packet);
        let refused = &history["refused"][0];
        assert_eq!((&refused["function"], &refused["reason"]), (&"ids".into(), &"ids_rule".into()));
        assert_eq!(refused["rule"], 1);
        assert_eq!(refused["packet"].to_string(), packet);
        let parts = history["functions"].as_array().unwrap();
        let done = parts.iter().find(|p| p["function"] == "pfw").unwrap();
        assert_eq!(done["header_calls"], 1);
        assert!(done["done_at"].is_u64());
        let said: Vec<&str> =
            history["moments"].as_array().unwrap().iter().map(|m| m["what"].as_str().unwrap()).collect();
        for what in ["opened", "tcp", "said", "done", "protocol", "alert", "refused", "ended"] {
            assert!(said.contains(&what), "{what} in {said:?}");
        }
    }
    let one = "tcp 192.0.2.7:22 10.0.0.1:40001";
    let args = ["explain", "flow", "--capture", "c.pcap", "--flow", one, "--policy", "p.yaml"];
    let told = folder.run(&args);
    assert!(told.stdout().contains("refused   1 packets by pfw: pfw_default."), "{}", told.stdout());
    assert!(told.stdout().contains("--ips prevents"), "{}", told.stdout());
    // All flows, and without a policy.
    let all = folder.run(&["explain", "flow", "c.pcap", "--rules", "web.rules", "--json"]).json();
    assert_eq!(all["flows"].as_array().unwrap().len(), 4);
    assert_eq!(all["frames"], 20);
    let list = folder.run(&["explain", "flow", "c.pcap", "--policy", "p.yaml"]);
    assert!(list.stdout().starts_with("4 flows;"), "{}", list.stdout());
}

#[test]
fn wrong_questions_about_flows_get_one_clear_message() {
    let folder = stage("wrong-flow");
    folder.write("text.txt", "no capture\n");
    folder.write("broken.yaml", "policies: [\n");
    let cases: &[(&[&str], i32, &str)] = &[
        (&["tcp 10.0.0.1:1 192.0.2.7:80"], 2, "name a policy with --policy FILE"),
        (&["tcp", "10.0.0.1:1", "--policy", "p.yaml"], 2, "a flow is a protocol and two ends, found 2 words"),
        (
            &["tcp 10.0.0.1:1 192.0.2.7:99999", "--policy", "p.yaml"],
            2,
            "`99999` in `192.0.2.7:99999` is not a port",
        ),
        (
            &["tcp 10.0.0.1:1 192.0.2.7", "--policy", "p.yaml"],
            2,
            "the destination port is missing; write for example `192.0.2.7:80`",
        ),
        (&["tcp 10.0.0.1:1 [2001:db8::1]:80", "--policy", "p.yaml"], 2, "different IP versions"),
        (&["nowhere.pcap"], 2, "`nowhere.pcap` is neither a flow nor an existing capture file"),
        (&["--capture", "nowhere.pcap"], 1, "cannot open capture nowhere.pcap: no such file; check the path"),
        (&["text.txt"], 1, "text.txt"),
        (&["c.pcap", "--flow", "0"], 2, "packets of a capture are numbered from 1"),
        (&["c.pcap", "--flow", "99"], 1, "c.pcap has no packet 99: it has 20 packets, numbered from 1"),
        (
            &["c.pcap", "--flow", "tcp 10.0.0.1:1 10.0.0.2:2"],
            1,
            "c.pcap has no flow `tcp 10.0.0.1:1 10.0.0.2:2` in its 20 packets; `bartizan explain flow c.pcap` lists",
        ),
        (&["c.pcap", "--flow", "tcp 10.0.0.1"], 2, "--flow: a flow is a protocol and two ends"),
        (&["c.pcap", "--vlan", "7"], 2, "--vlan applies to a 5-tuple"),
        (
            &["udp 10.0.0.1:1 192.0.2.7:80", "--policy", "nowhere.yaml"],
            1,
            "cannot open policy file nowhere.yaml",
        ),
        (&["udp 10.0.0.1:1 192.0.2.7:80", "--policy", "broken.yaml"], 1, "broken.yaml:"),
        (
            &["udp 10.0.0.1:1 192.0.2.7:80", "--policy", "p.yaml", "--tenant", "rad"],
            1,
            "p.yaml has no tenant `rad`; did you mean `red`?",
        ),
        (
            &["udp 10.0.0.1:1 192.0.2.7:80", "--policy", "p.yaml", "--link", "x"],
            1,
            "no policy names a link `x`; known: `branch`",
        ),
    ];
    for (args, code, message) in cases {
        let mut all = vec!["explain", "flow"];
        all.extend(*args);
        let ran = folder.run(&all);
        assert_eq!(ran.code(), *code, "{args:?}: {}", ran.stderr());
        assert!(ran.stderr().contains(message), "{args:?}: {}", ran.stderr());
        assert!(ran.stdout().is_empty(), "{args:?}");
    }
}

#[test]
fn a_rule_is_explained() {
    let folder = stage("rule");
    let ask = |sid: &str| folder.run(&["explain", "rule", sid, "--rules", "web.rules", "--json"]).json();
    let http = ask("1");
    assert_eq!(http["rule"], "1:1:3");
    assert_eq!(http["place"], "web.rules:1");
    assert_eq!(http["action"], "drop");
    assert_eq!(http["acts_on"], "flow");
    assert_eq!(http["about"], "transaction");
    assert_eq!(http["head"]["app_protocols"], serde_json::json!(["http", "http2"]));
    assert_eq!(http["head"]["directions"], serde_json::json!(["to_server"]));
    assert_eq!(http["prefilter"]["engine"], "pattern");
    assert_eq!(http["prefilter"]["pattern"], "\"passwd\"");
    assert_eq!(http["prefilter"]["buffer"], "http.uri.raw");
    assert_eq!(http["prefilter"]["others"].as_array().unwrap().len(), 1);
    let names: Vec<&str> =
        http["conditions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["flow", "http.uri.raw"]);
    assert_eq!(http["warnings"], serde_json::json!([]));
    let mail = ask("1:2");
    assert_eq!(mail["about"], "packet and stream");
    assert_eq!(mail["head"]["destination_ports"], "[25]");
    let bit = ask("3");
    let warning = bit["warnings"][0].as_str().unwrap();
    assert!(
        bit["warnings"].to_string().contains("no rule of these files sets the flowbit `never.set`"),
        "{warning}"
    );
    let always = ask("5");
    assert_eq!(always["prefilter"]["engine"], "none");
    assert!(
        always["warnings"][0].as_str().unwrap().starts_with("no fast pattern: the rule has no `content`")
    );
}

#[test]
fn a_rule_is_traced_over_a_capture() {
    let folder = stage("trace");
    let ask = |sid: &str| {
        folder.run(&["explain", "rule", sid, "--rules", "web.rules", "--json", "c.pcap"]).json()["trace"]
            .take()
    };
    let hit = ask("1");
    assert_eq!(hit["alerts"], 2);
    // In detection data is looked at once it is acknowledged.
    assert_eq!(hit["alert_packets"], serde_json::json!([6, 16]));
    let best = &hit["best"][0];
    assert_eq!(best["matched"], true);
    assert_eq!(best["packet"], 6);
    let steps = best["steps"].as_array().unwrap();
    let etc = steps.iter().find(|s| s["text"].as_str().unwrap().contains("etc/")).unwrap();
    assert_eq!(etc["offset"], 8);
    let passwd = steps.iter().find(|s| s["text"].as_str().unwrap().contains("passwd")).unwrap();
    assert_eq!(passwd["offset"], 12);
    // The first condition that does not hold, with the value found.
    let miss = ask("4");
    assert_eq!(miss["alerts"], 0);
    let last = miss["best"][0]["steps"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["name"], &last["holds"]), (&"http.host".into(), &false.into()));
    assert!(last["found"].as_str().unwrap().contains("shop.example"), "{last}");
    let bit = ask("3");
    let first = &bit["first_false"][0];
    assert_eq!(first["name"], "flowbits");
    assert_eq!(first["count"], bit["attempts"]);
    let text = folder.run(&["explain", "rule", "4", "--rules", "web.rules", "c.pcap"]);
    assert!(text.stdout().contains("FALSE http.host: contains \"other.example\""), "{}", text.stdout());
}

#[test]
fn wrong_questions_about_rules_get_one_clear_message() {
    let folder = stage("wrong-rule");
    folder.write(
        "bad.rules",
        "alert tcp any any -> any any (msg:\"x\"; contnt:\"a\"; sid:8;)\nalert tcp any any -> (sid:9;)\n",
    );
    let cases: &[(&[&str], i32, &str)] = &[
        (
            &["7", "--rules", "web.rules"],
            1,
            "no rule with sid 7 among the 5 rules of web.rules; the nearest is 5",
        ),
        (&["8", "--rules", "bad.rules"], 1, "the engine does not load sid 8"),
        (&["8", "--rules", "bad.rules"], 1, "did you mean `content`?"),
        (
            &["9", "--rules", "bad.rules"],
            1,
            "of bad.rules cannot be read, and it may be among them: `bartizan check bad.rules`",
        ),
        (
            &["1", "--rules", "nowhere.rules"],
            1,
            "cannot open rule file nowhere.rules: no such file; check the path",
        ),
        (&["1", "--rules", "web.rules", "nowhere.pcap"], 1, "cannot open capture nowhere.pcap"),
        (&["one", "--rules", "web.rules"], 2, "`one` is not a number; write the sid"),
        (&["1"], 2, "--rules <FILE>"),
    ];
    for (args, code, message) in cases {
        let mut all = vec!["explain", "rule"];
        all.extend(*args);
        let ran = folder.run(&all);
        assert_eq!(ran.code(), *code, "{args:?}: {}", ran.stderr());
        assert!(ran.stderr().contains(message), "{args:?}: {}", ran.stderr());
        assert!(ran.stdout().is_empty(), "{args:?}");
    }
}

#[test]
fn completions_and_man_pages_know_the_verbs() {
    let folder = stage("verbs");
    let bash = folder.run(&["completions", "bash"]).stdout();
    for word in ["explain", "--capture", "--policy", "--flow"] {
        assert!(bash.contains(word), "{word}");
    }
    assert_eq!(folder.run(&["man", "."]).code(), 0);
    for page in
        ["bartizan-explain.1", "bartizan-explain-flow.1", "bartizan-explain-rule.1", "bartizan-inspect.1"]
    {
        assert!(folder.path().join(page).exists(), "{page}");
    }
    let help = folder.run(&["explain", "flow", "--help"]).stdout();
    assert!(
        help.contains("Examples:") && help.contains("bartizan explain flow tcp 10.0.0.1:40000"),
        "{help}"
    );
}
