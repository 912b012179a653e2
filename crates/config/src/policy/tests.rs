// SPDX-License-Identifier: Apache-2.0
//! Tests of the policy file: valid content, and the exact text of every kind of error.

use super::sections::{FilterAction, PfwSection};
use super::*;

const FUNCTIONS: &[&str] = &["pfw", "sfw", "ids"];

const EXAMPLE: &str = "\
groups:
  lan: [10.0.0.0/8, 2001:db8::/32]
  inside: [lan, 172.16.0.0/12]
rule-groups: {web: [web.rules], full: [web.rules, all.rules]}
tenants:
  - {name: a, select: {vni: 101}}
  - {name: b, select: {vlan: [102, 103]}}
service-levels:
  - {hosts: 10.1.0.0/16, level: none}
policies:
  - name: web
    from: [lan]
    to: [192.168.1.0/24]
    chain: [pfw, sfw, ids]
    pfw: {default: drop, rules: [{allow: tcp, to-ports: [80, 443, 8000-8010]}, {drop: 47, from: 10.9.0.0/16}]}
    sfw: {initiate: from, max-half-open: 100}
    ids: {level: web}
  - {name: tenants, tenant: [a, b], from: inside, chain: [ids], staged: true, one-sided: ids-only, overload: {priority: 7, action: inspect}}
default: {chain: [ids], action: allow}
";

fn problems(text: &str) -> String {
    parse("policy.yaml", text, FUNCTIONS).expect_err(text).to_string()
}

#[test]
fn reads_the_example() {
    let file = parse("policy.yaml", EXAMPLE, FUNCTIONS).expect("policy");
    assert_eq!(file.policies.len(), 2);
    let web = &file.policies[0];
    assert_eq!(file.resolve(&web.from).len(), 2);
    assert_eq!(file.resolve(&file.policies[1].from).len(), 3);
    assert_eq!(file.prefixes(&file.policies[1].to), values::EVERYTHING);
    assert_eq!(web.tenant.0, ["default"]);
    let pfw = section_of::<PfwSection>(&web.sections).expect("a section").expect("pfw");
    assert_eq!(pfw.default, FilterAction::Drop);
    assert_eq!(pfw.rules[0].to_ports.as_ref().expect("ports")[2], Ports { first: 8000, last: 8010 });
    assert_eq!(pfw.rules[1].drop.as_ref().expect("drop")[0], IpProtocol(Some(47)));
    assert_eq!(file.policies[1].one_sided, OneSided::IdsOnly);
    let overload = OverloadPolicy { priority: 7, action: Some(OverloadAction::Inspect) };
    assert_eq!((file.policies[0].overload, file.policies[1].overload), (OverloadPolicy::default(), overload));
    assert_eq!(file.place("policies/0/sfw/max-half-open"), "policy.yaml:16:42");
    assert_eq!(file.place("policies/0/sfw/nothing"), "policy.yaml:16:5");
}

#[test]
fn what_happens_for_want_of_a_function_is_said_of_all_or_of_some() {
    let on = |said: &str| {
        let text = format!("policies: [{{name: p, chain: [pfw, ids]{said}}}]\ndefault: {{action: drop}}\n");
        parse("policy.yaml", &text, FUNCTIONS)
    };
    let of = |said: &str| {
        let on_failure = &on(said).expect(said).policies[0].on_failure;
        (on_failure.of("pfw"), on_failure.of("ids"))
    };
    assert_eq!(of(""), (ForWant::Drop, ForWant::Drop));
    assert_eq!(of(", on-failure: pass"), (ForWant::Pass, ForWant::Pass));
    assert_eq!(of(", on-failure: {ids: pass}"), (ForWant::Drop, ForWant::Pass));
    let wrong = on(", on-failure: {idd: pass}").unwrap_err().to_string();
    assert!(
        wrong.starts_with("policy.yaml:1:")
            && wrong.contains("`idd` is not in the chain; did you mean `ids`"),
        "{wrong}"
    );
    let wrong = on(", on-failure: open").unwrap_err().to_string();
    assert!(wrong.starts_with("policy.yaml:1:") && wrong.contains("on-failure"), "{wrong}");
    let wrong = on(", on-failure: {ids: open}").unwrap_err().to_string();
    assert!(wrong.starts_with("policy.yaml:1:"), "{wrong}");
}

#[test]
fn a_key_that_selects_has_a_value_of_its_own() {
    let with = |rule: &str| {
        format!("default: {{action: allow, chain: [pfw], pfw: {{default: drop, rules: [{rule}]}}}}\n")
    };
    let rule = |rule: &str| with(&format!("{{allow: tcp, {rule}}}"));
    let tenant =
        |select: &str| format!("tenants: [{{name: a, select: {{{select}}}}}]\ndefault: {{action: drop}}\n");
    let said =
        |text: &str| parse("p.yaml", text, FUNCTIONS).err().unwrap_or_else(|| panic!("{text}")).to_string();
    for key in ["to-ports", "from-ports", "from", "to", "tenant"] {
        for value in ["", "~", "null"] {
            let error = said(&rule(&format!("{key}: {value}")));
            assert!(error.contains("this key has no value; give it one"), "{key}: {error}");
        }
        let error = said(&rule(&format!("{key}: !443")));
        assert!(
            error.contains("`!443` is a tag of YAML, not a value; write it in quotes: \"!443\""),
            "{error}"
        );
    }
    for rule in
        ["{allow: icmp, type: !8}", "{allow: icmp, code: ~}", "{allow: }", "{drop: !tcp, to: 10.0.0.1}"]
    {
        assert!(said(&with(rule)).contains("value"), "{rule}");
    }
    for select in ["vlan: , prefixes: [10.0.0.0/8]", "vni: !5", "link: ~, vlan: 5", "vlan: 5, prefixes: "] {
        assert!(said(&tenant(select)).contains("value"), "{select}");
    }
    // A quoted text is a value, and an absent key restricts nothing.
    assert!(parse("p.yaml", &rule("to-ports: \"!443\""), FUNCTIONS).is_ok());
    assert!(parse("p.yaml", &with("{allow: tcp}"), FUNCTIONS).is_ok());
}

#[test]
fn keys_of_sections_stand_once() {
    for section in [
        "pfw: {default: drop, default: allow}",
        "pfw: {default: drop, rules: [{allow: tcp, to-ports: 443, to-ports: 80}]}",
        "pfw: {default: drop, rules: [{allow: tcp, allow: udp}]}",
        "sfw: {initiate: to, initiate: from}",
    ] {
        let text = format!("default: {{action: allow, chain: [pfw, sfw], {section}}}\n");
        let error = parse("p.yaml", &text, FUNCTIONS).err().unwrap_or_else(|| panic!("{text}")).to_string();
        assert!(error.contains("occurs twice; remove one"), "{error}");
    }
}

#[test]
fn sections_are_read_from_json_as_from_yaml() {
    let file = parse("policy.yaml", EXAMPLE, FUNCTIONS).expect("policy");
    let root = crate::yaml::parse(EXAMPLE).expect("yaml");
    let Some(Value::Sequence(policies)) = root.get("policies").map(|list| &list.value) else {
        panic!("{EXAMPLE}")
    };
    let node = policies[0].get("pfw").expect("a section");
    let again = section_of::<PfwSection>(&file.policies[0].sections).expect("a section").expect("json");
    assert_eq!(*again, read::read::<PfwSection>(node).expect("yaml"));
    let text = serde_json::to_value(&*again).expect("json");
    assert_eq!(read::read::<PfwSection>(&read::from_json(&text)).expect("own output"), *again);
}

#[test]
fn unknown_functions_are_said_beside_the_other_problems_in_the_order_of_the_file() {
    let text = "\
default: {action: allow, chain: isd, ids: {}}
policies:
  - {name: a, chain: [pfwx], to: lann, pfw: {default: drop}}
  - {name: a, sfw: {}, chain: [ids, swf]}
";
    let expected = "\
policy.yaml:1:33: there is no function `isd`; did you mean `ids`?
policy.yaml:1:38: the section `ids` has no effect: `ids` is not in the chain; add it there, or remove the section
policy.yaml:3:23: there is no function `pfwx`; did you mean `pfw`?
policy.yaml:3:34: there is no group `lann`; none exists
policy.yaml:3:40: the section `pfw` has no effect: `pfw` is not in the chain; add it there, or remove the section
policy.yaml:4:12: two policies are called `a`; rename one
policy.yaml:4:15: the section `sfw` has no effect: `sfw` is not in the chain; add it there, or remove the section
policy.yaml:4:37: there is no function `swf`; did you mean `sfw`?";
    assert_eq!(problems(text), expected);
    // Without the list of functions, unknown ones are left to the agent.
    let text = "default: {action: allow, chain: isd}\npolicies: [{name: a, chain: [pfwx], pfwx: {}}]";
    assert_eq!(parse("policy.yaml", text, &[]).expect("a policy").policies[0].chain.0, ["pfwx"]);
}

#[test]
fn every_error_has_its_place_and_says_what_to_do() {
    let cases = [
        (
            "policies: []",
            "1:1: the file has no action for traffic without a matching policy; add `default: {action: drop}`",
        ),
        ("defautl: {action: drop}", "1:1: the key `defautl` is not known; did you mean `default`?"),
        ("default: {action: accept}", "1:19: `accept` is not known here; known: `allow`, `drop`"),
        ("default: {acton: drop}", "1:11: the key `acton` is not known; did you mean `action`?"),
        ("default: {}", "1:10: the key `action` is missing; add it"),
        (
            "default: {action: drop, chain: [ids]}",
            "1:25: `chain` has no effect with `action: drop`; remove it, or write `action: allow`",
        ),
        (
            "default: {action: drop}\npolicies: {}",
            "2:11: `policies` must be a list: lines that begin with `- `",
        ),
        ("default: {action: drop}\npolicies: [{name: a}]", "2:12: the key `chain` is missing; add it"),
        (
            "default: {action: drop}\npolicies: [{name: a, chain: {ids: x}}]",
            "2:29: expected a name or text, found a mapping (`key: value`)",
        ),
        (
            "default: {action: drop}\npolicies: [{name: a, chain: [pfw], pwf: {}}]",
            "2:36: the key `pwf` is not known; did you mean `pfw`?",
        ),
        (
            "default: {action: drop}\npolicies: [{name: a, chain: [pfw], sfw: {}}]",
            "2:36: the section `sfw` has no effect: `sfw` is not in the chain; add it there, or remove the section",
        ),
        (
            "default: {action: drop}\npolicies: [{name: a, name: b, chain: []}]",
            "2:22: the key `name` occurs twice; remove one",
        ),
        (
            "default: {action: drop}\npolicies: [{name: a, chain: []}, {name: a, chain: []}]",
            "2:41: two policies are called `a`; rename one",
        ),
        (
            "default: {action: drop}\npolicies: [{name: a, chain: [], from: 10.0.0.1/8}]",
            "2:39: `10.0.0.1/8` has host bits set; write `10.0.0.0/8` for the network",
        ),
        (
            "default: {action: drop}\npolicies: [{name: a, chain: [], to: [10.0.0.0/8, 10.0.0.0/40]}]",
            "2:50: `10.0.0.0/40`: the prefix length must be 0 to 32; write it like 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32",
        ),
        (
            "default: {action: drop}\npolicies: [{name: a, chain: [], to: 2001:db8::/129}]",
            "2:37: `2001:db8::/129`: the prefix length must be 0 to 128; write it like 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32",
        ),
        (
            "default: {action: drop}\ngroups: {lan: 10.0.0.0/8}\npolicies: [{name: a, chain: [], to: lann}]",
            "3:37: there is no group `lann`; did you mean `lan`?",
        ),
        (
            "default: {action: drop}\npolicies: [{name: a, chain: [], tenant: x}]",
            "2:41: there is no tenant `x`; known: `default`",
        ),
        (
            "default: {action: drop}\npolicies: [{name: a, chain: [], staged: maybe}]",
            "2:41: expected `true` or `false`, found `maybe`",
        ),
        (
            "default: {action: drop}\npolicies: [{name: a, chain: [], one-sided: ids}]",
            "2:44: `ids` is not known here; known: `auto`, `allow`, `ids-only`, `drop`",
        ),
        (
            "default: {action: drop}\ngroups: {a: b, b: [10.0.0.1, a]}",
            "2:30: group `a` contains itself (a > b > a); remove it here",
        ),
        (
            "default: {action: drop}\ntenants: [{name: a, select: {}}]",
            "2:21: the tenant selects no traffic; add `vni`, `vlan`, `link` or `prefixes`",
        ),
        (
            "default: {action: drop}\ntenants: [{name: a, select: {vlan: 5000}}]",
            "2:36: VLAN 5000 does not exist; give an id from 1 to 4094",
        ),
        (
            "default: {action: drop}\ntenants: [{name: a, select: {vlan: [10, 20]}}, {name: b, select: {vlan: [30, 20], link: wan}}]",
            "2:78: VLAN 20 of tenant `b` never matches: its traffic belongs to tenant `a`, which is tried first; remove it from one of them",
        ),
        (
            "default: {action: drop}\ntenants: [{name: default, select: {vni: 1}}]",
            "2:18: the name `default` is taken; give this tenant another",
        ),
        (
            "default: {action: drop}\ntenants: [{name: a, select: {vni: -1}}]",
            "2:35: expected a whole number from 0 to 4294967295, found `-1`",
        ),
        (
            "default: {action: drop}\nservice-levels: [{hosts: 10.0.0.1, level: gold}]",
            "2:43: there is no rule group `gold`; known: `none`",
        ),
        ("a: [1, 2\nb: 3", "not YAML"),
    ];
    for (text, expected) in cases {
        let error = problems(text);
        assert!(
            error.starts_with("policy.yaml:") && error.contains(expected),
            "{text}\n  got {error}\n  want {expected}"
        );
    }
}

#[test]
fn errors_of_function_sections_have_paths() {
    let cases = [
        (
            "default: drop\nrules: [{allow: tcpp}]",
            "rules/0/allow",
            "`tcpp` is not a protocol; did you mean `tcp`? (or its number, 0 to 255)",
        ),
        (
            "default: drop\nrules: [{allow: tcp, to-ports: [80, 90000]}]",
            "rules/0/to-ports/1",
            "`90000` is not a port; write 443, 8000-8999 or any",
        ),
        (
            "default: drop\nrules: [{allow: tcp, to-ports: 90-80}]",
            "rules/0/to-ports",
            "`90-80` ends before it begins; write `80-90`",
        ),
        (
            "default: drop\nrules: [{alow: tcp}]",
            "rules/0/alow/",
            "the key `alow` is not known; did you mean `allow`?",
        ),
        ("defualt: drop", "defualt/", "the key `defualt` is not known; did you mean `default`?"),
    ];
    for (text, path, message) in cases {
        let node = crate::yaml::parse(text).expect("yaml");
        let problems = read::read::<PfwSection>(&node).expect_err(text);
        assert_eq!((problems[0].path.as_str(), problems[0].message.as_str()), (path, message), "{text}");
    }
}

/// An empty list is an error with the same text everywhere.
#[test]
fn an_empty_list_selects_nothing_and_is_an_error() {
    let words = "this list is empty, so it selects nothing; add an item, or remove the key";
    for text in [
        "tenants: [{name: a, select: {vni: []}}]",
        "tenants: [{name: a, select: {vlan: []}}]",
        "tenants: [{name: a, select: {link: []}}]",
        "tenants: [{name: a, select: {prefixes: []}}]",
        "policies: [{name: a, chain: [], from: []}]",
        "policies: [{name: a, chain: [], to: []}]",
        "policies: [{name: a, chain: [], link: []}]",
        "policies: [{name: a, chain: [], tenant: []}]",
        "service-levels: [{hosts: [], level: none}]",
        "service-levels: [{hosts: any, level: none, tenant: []}]",
    ] {
        let error = problems(&format!("default: {{action: drop}}\n{text}\n"));
        let column = text.rfind("[]").unwrap() + 1;
        assert_eq!(error, format!("policy.yaml:2:{column}: {words}"), "{text}");
    }
    for key in ["allow", "from", "to", "from-ports", "to-ports", "type", "code", "tenant"] {
        let rule = if key == "allow" { format!("{key}: []") } else { format!("allow: tcp, {key}: []") };
        let node = crate::yaml::parse(&format!("default: drop\nrules: [{{{rule}}}]")).expect("yaml");
        let problems = read::read::<PfwSection>(&node).expect_err(&rule);
        assert_eq!(
            (problems[0].path.as_str(), problems[0].message.as_str()),
            (&*format!("rules/0/{key}"), words)
        );
    }
}

/// A group may be without members for a while: rules that name it select nothing, with a warning.
#[test]
fn a_group_without_members_selects_nothing_and_warns() {
    let text = "\
groups: {nobody: [], some: [10.0.0.1]}
labels: {nobody: {role: web}}
tenants: [{name: a, select: {prefixes: nobody}}]
service-levels: [{hosts: [nobody], level: none}]
policies:
  - {name: p, from: nobody, to: [nobody, some], chain: [pfw], pfw: {default: drop, rules: [{allow: tcp, to: [nobody]}]}}
  - {name: q, from: some, to: {label: {role: web}}, chain: []}
default: {action: drop}
";
    let warnings = parse("policy.yaml", text, &["pfw"]).expect("it is right").warnings();
    let expected = [
        (3, "tenant `a` selects nothing: `nobody` has no members; it selects them once there are some"),
        (4, "this service level selects nothing: `nobody` has no members"),
        (6, "policy `p` selects nothing: `nobody` has no members"),
        (6, "this rule selects nothing: `nobody` has no members"),
        (7, "policy `q` selects nothing: `role=web` has no members"),
    ];
    assert_eq!(warnings.len(), expected.len(), "{warnings:#?}");
    for (warning, (line, words)) in warnings.iter().zip(expected) {
        assert!(warning.starts_with(&format!("policy.yaml:{line}:")) && warning.contains(words), "{warning}");
    }
}

#[test]
fn addresses_of_ipv4_in_the_form_of_ipv6_are_refused() {
    for (text, instead) in [("::ffff:192.0.2.1", "192.0.2.1/32"), ("::ffff:c000:200/120", "192.0.2.0/24")] {
        let error = text.parse::<Prefix>().expect_err(text);
        assert!(error.ends_with(&format!("write `{instead}`")), "{error}");
    }
    // Prefixes that no packet should have may be named as a whole.
    assert!("::ffff:0:0/96".parse::<Prefix>().is_ok() && "::/0".parse::<Prefix>().is_ok());
}

#[test]
fn what_cannot_be_read_is_not_said_again_where_its_names_are_used() {
    let rest =
        "policies: [{name: p, from: [g, h], to: {label: {role: web}}, chain: []}]\ndefault: {action: drop}\n";
    for (text, column, words) in [
        ("groups: {g: ['::ffff:192.0.2.1'], h: []}\nlabels: {g: {role: web}}", 14, "in IPv6 notation"),
        ("groups: {g: [192.0.2.1/8], h: []}\nlabels: {g: {role: web}}", 14, "has host bits set"),
        ("labels: {g: web}\ngroups: {g: [192.0.2.1], h: []}", 13, "expected a mapping"),
    ] {
        let error = problems(&format!("{text}\n{rest}"));
        assert!(error.starts_with(&format!("policy.yaml:1:{column}: ")) && error.contains(words), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let error =
        problems("rule-groups: 1\nservice-levels: [{hosts: any, level: x}]\ndefault: {action: drop}\n");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn a_policy_between_addresses_of_two_ip_versions_never_matches() {
    let policy = |from: &str, to: &str| {
        format!(
            "groups: {{v4: [10.0.0.0/8, 192.0.2.1], v6: '2001:db8::/32', both: [v4, v6], nobody: [], name: {{dns: a.example}}}}\n\
             labels: {{v6: {{ip: '6'}}}}\ndns: {{resolvers: 192.0.2.53}}\n\
             policies: [{{name: p, from: {from}, to: {to}, chain: []}}]\ndefault: {{action: drop}}\n"
        )
    };
    let words = |from: &str, to: &str| {
        format!(
            "this policy never matches: `from` has addresses of {from} only and `to` of {to} only; give both sides addresses of one IP version"
        )
    };
    for (from, to, first, second) in [
        ("192.0.2.1", "'2001:db8::1'", "IPv4", "IPv6"),
        ("'::/0'", "0.0.0.0/0", "IPv6", "IPv4"),
        ("v4", "v6", "IPv4", "IPv6"),
        ("[v4, 198.51.100.1]", "{label: {ip: '6'}}", "IPv4", "IPv6"),
        ("{label: {ip: '6'}}", "v4", "IPv6", "IPv4"),
    ] {
        let (text, error) = (policy(from, to), problems(&policy(from, to)));
        let line = text.lines().nth(3).expect("a policy");
        // A list's place is that of its key.
        let column = line.find("to: ").expect("to") + 1;
        let column = if to.starts_with(['{', '[']) { column } else { column + "to: ".len() };
        assert_eq!(error, format!("policy.yaml:4:{column}: {}", words(first, second)));
        let json = read::to_json(&crate::yaml::parse(&text).expect("yaml"));
        let of_json =
            from_node("policy", read::from_json(&json), &[]).expect_err("the same of JSON").to_string();
        assert!(of_json.ends_with(&words(first, second)), "{of_json}");
    }
    for (from, to) in [
        ("v4", "both"),
        ("any", "v6"),
        ("v4", "nobody"),
        ("name", "v6"),
        ("v4", "[v6, 192.0.2.1]"),
        ("v6", "v6"),
    ] {
        assert!(parse("policy.yaml", &policy(from, to), &[]).is_ok(), "{from} {to}");
    }
}

#[test]
fn a_link_without_a_name_selects_nothing() {
    let words =
        "the name of a link is empty, so it selects nothing; name a link of the host file, or remove the key";
    for text in [
        "policies: [{name: a, chain: [], link: ''}]",
        "policies: [{name: a, chain: [], link: [uplink, '']}]",
        "tenants: [{name: a, select: {link: ''}}]",
        "tenants: [{name: a, select: {link: [uplink, '']}}]",
    ] {
        let error = problems(&format!("default: {{action: drop}}\n{text}\n"));
        let column = text.rfind("''").unwrap() + 1;
        assert_eq!(error, format!("policy.yaml:2:{column}: {words}"), "{text}");
    }
}

#[test]
fn a_tenant_behind_another_one_is_an_error_only_where_no_packet_reaches_it() {
    let tenants = |first: &str, second: &str| {
        let text = format!(
            "default: {{action: drop}}\ngroups: {{lan: [10.0.0.0/16]}}\ntenants: [{{name: a, select: {{{first}}}}}, {{name: b, select: {{{second}}}}}]\n"
        );
        match parse("policy.yaml", &text, &[]) {
            Ok(_) => 0,
            Err(PolicyError::Wrong { problems, .. }) => {
                assert!(problems.iter().all(|problem| problem.message.contains("never matches")), "{text}");
                problems.len()
            }
            Err(other) => panic!("{other}"),
        }
    };
    for (first, second, expected) in [
        ("vlan: 10", "vlan: 10", 1),
        ("vlan: [10, 11]", "vlan: [12, 11, 10]", 2),
        ("vlan: 10", "vlan: 11", 0),
        // The first tenant has more keys.
        ("vlan: 10, link: x", "vlan: 10", 0),
        ("vlan: 10, link: x", "vlan: 10, link: [x, y]", 1),
        // The second tenant has more keys than the first, and gets nothing: each key is reported.
        ("vlan: 10", "vlan: 10, prefixes: 192.0.2.0/24", 2),
        // A key that only one tenant has does not hide anything.
        ("vlan: 10", "vni: 10", 0),
        ("vni: [7, 8]", "vni: 8", 1),
        ("link: x", "link: [x, y]", 1),
        ("prefixes: lan", "prefixes: [10.0.1.0/24, 10.1.0.0/16]", 1),
        ("prefixes: 10.0.1.0/24", "prefixes: 10.0.0.0/16", 0),
        ("prefixes: '2001:db8::/32'", "prefixes: '2001:db8:1::/48'", 1),
        ("prefixes: any", "prefixes: [192.0.2.1, '2001:db8::1']", 2),
    ] {
        assert_eq!(tenants(first, second), expected, "{first} before {second}");
    }
}

#[test]
fn a_file_drops_by_default_where_its_default_or_a_packet_filter_does() {
    for (text, expected) in [
        ("default: {action: drop}", true),
        ("default: {action: drop, staged: true}", false),
        ("default: {action: allow}", false),
        ("default: {action: allow}\npolicies: [{name: a, chain: [pfw], pfw: {default: reject}}]", true),
        ("default: {action: allow}\npolicies: [{name: a, chain: [pfw], pfw: {default: allow}}]", false),
        (
            "default: {action: allow}\npolicies: [{name: a, chain: [pfw], pfw: {default: drop}, staged: true}]",
            false,
        ),
    ] {
        assert_eq!(parse("policy.yaml", text, &["pfw"]).expect(text).drops_by_default(), expected, "{text}");
    }
}

#[test]
fn all_problems_of_a_file_are_found_in_order() {
    let text = "default: {action: no}\npolicies:\n  - {name: a, chan: [], from: x}\n  - {name: 3, chain: [], stagd: 1}\n";
    let error = problems(text);
    let places: Vec<_> = error.lines().map(|l| l.split(": ").next().unwrap_or_default()).collect();
    assert_eq!(
        places,
        ["policy.yaml:1:19", "policy.yaml:3:5", "policy.yaml:3:15", "policy.yaml:4:26"],
        "{error}"
    );
}

#[test]
fn the_schema_knows_the_sections() {
    // The schema with all functions' sections is compared in crate functions.
    let schema = schema(&[("more", schemars::json_schema!({ "type": "object" }))]);
    assert_eq!(schema["$defs"]["DefaultPolicy"]["properties"]["more"]["type"], "object");
    let pfw = &schema["$defs"]["Policy"]["properties"]["pfw"];
    assert_eq!(pfw["$ref"], "#/$defs/PfwSection");
    assert!(schema["$defs"]["PfwSection"]["properties"]["default"].is_object());
    assert_eq!(schema["$defs"]["Policy"]["additionalProperties"], false);
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused_without_a_panic(text in "[a-z0-9:\\-\\[\\]{}, \n./]{0,200}") {
        let _ = parse("policy.yaml", &text, FUNCTIONS);
    }

    #[test]
    fn prefixes_are_read_as_they_are_written(address in proptest::arbitrary::any::<u128>(), length in 0u8..=128, v4 in proptest::arbitrary::any::<bool>()) {
        let address: core::net::IpAddr = if v4 {
            core::net::Ipv4Addr::from(address as u32).into()
        } else {
            core::net::Ipv6Addr::from(address).into()
        };
        let prefix = Prefix::new(address, length);
        proptest::prop_assert!(prefix.contains(address));
        proptest::prop_assert_eq!(prefix.to_string().parse::<Prefix>(), Ok(prefix));
    }
}

#[test]
fn labels_mean_all_groups_that_carry_them() {
    let text = |from: &str| {
        format!(
            "groups: {{a: 10.0.1.0/24, b: [10.0.2.0/24, {{dns: x.example}}], c: 10.0.3.0/24}}\n\
             labels: {{a: {{role: web, zone: \"1\"}}, b: {{role: web}}, c: {{role: db}}}}\n\
             policies: [{{name: p, from: {from}, chain: []}}]\ndefault: {{action: drop}}\n"
        )
    };
    let from = |from: &str| {
        let file = parse("p.yaml", &text(from), &[]).unwrap_or_else(|e| panic!("{e}"));
        let members = file.resolve(&file.policies[0].from);
        members
            .iter()
            .map(|m| match m {
                ResolvedMember::Prefix(prefix) => prefix.to_string(),
                ResolvedMember::Name(name) => name.to_string(),
            })
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(from("{label: {role: web}}"), "10.0.1.0/24 10.0.2.0/24 x.example");
    assert_eq!(from("{label: {role: web, zone: \"1\"}}"), "10.0.1.0/24");
    assert_eq!(from("[{label: {role: db}}, 192.0.2.1]"), "10.0.3.0/24 192.0.2.1/32");
    let wrong = |text: &str| parse("p.yaml", text, &[]).expect_err("wrong").to_string();
    assert!(
        wrong(&text("{label: {role: wob}}")).contains("p.yaml:3:"),
        "{}",
        wrong(&text("{label: {role: wob}}"))
    );
    assert!(
        wrong(&text("{label: {role: wob}}"))
            .contains("no group has the label role=wob; did you mean `role=web`")
    );
    assert!(wrong(&text("{lable: {role: web}}")).contains("`lable` is not known here"));
    assert!(
        wrong(&text("a").replace("c: {role: db}", "d: {role: db}")).contains("no group `d` for these labels")
    );
    assert!(
        wrong(&text("a").replace("c: 10.0.3.0/24", "c: {label: {role: web}}"))
            .contains("group cannot have labels as members")
    );
}

#[test]
fn groups_by_name_stand_where_addresses_may_and_nowhere_else() {
    let text = "groups: {n: {dns: [\"*.Example.com\", x.example]}, all: [n, 10.0.0.1]}\n\
        dns: {resolvers: 10.0.0.53}\npolicies: [{name: p, to: all, chain: []}]\ndefault: {action: drop}\n";
    let file = parse("p.yaml", text, &[]).unwrap_or_else(|e| panic!("{e}"));
    let names: Vec<&str> = file.names().into_iter().map(DnsName::as_str).collect();
    assert_eq!(names, ["*.example.com", "x.example"]);
    assert_eq!((file.resolve(&file.policies[0].to).len(), file.warnings().len()), (3, 0));
    let wrong = |from: &str, to: &str| {
        let text = text.replace(from, to);
        parse("p.yaml", &text, &[]).expect_err(&text).to_string()
    };
    assert!(
        wrong("resolvers: 10.0.0.53", "resolvers: all")
            .contains("DNS names cannot determine whose answers count")
    );
    assert!(wrong("10.0.0.53}", "10.0.0.53, ttl-min: 2h, ttl-max: 1h}").contains("longer than `ttl-max`"));
    assert!(wrong("10.0.0.53}", "10.0.0.53, addresses: 0}").contains("1 to 1048576"));
    assert!(wrong("x.example", "x..example").contains("is not a DNS name"));
    let tenants = wrong("dns: {resolvers", "tenants: [{name: t, select: {prefixes: n}}]\ndns: {resolvers");
    assert!(tenants.contains("DNS names cannot determine whose traffic it is"), "{tenants}");
}

#[test]
fn groups_in_groups_are_bounded() {
    let file = |groups: String| format!("default: {{action: drop}}\ngroups:\n{groups}");
    let chain = |long: usize| {
        let links = (1..long).map(|n| format!("  g{n}: [g{}]\n", n - 1));
        file(["  g0: [10.0.0.1]\n".to_owned()].into_iter().chain(links).collect())
    };
    // From the top, which is resolved first, or from the bottom.
    let from_the_top = |long: usize| chain(long) + &format!("  a: [g{}]\n", long - 1);
    let parse = |text: &str| super::parse("policy.yaml", text, FUNCTIONS);
    assert!(parse(&from_the_top(60)).is_ok());
    for text in [from_the_top(2_000), from_the_top(64), chain(65)] {
        let wrong = parse(&text).expect_err("too deep").to_string();
        assert!(wrong.contains("groups nest deeper than 64"), "{wrong}");
    }
    assert!(parse(&chain(64)).is_ok());
    // Each group has all members of the one before, and 10,000 of its own.
    let own = |n: u32| (0..10_000u32).map(move |i| std::net::Ipv4Addr::from((n << 24) + i).to_string());
    let grown = (0..30u32).map(|n| {
        let inner = n.checked_sub(1).map(|m| format!("g{m:02}")).into_iter();
        format!("  g{n:02}: [{}]\n", own(n + 1).chain(inner).collect::<Vec<_>>().join(", "))
    });
    let wrong = parse(&file(grown.collect())).expect_err("too many").to_string();
    assert!(wrong.contains("there are more than 4194304 members of groups"), "{wrong}");
    // A group that is named repeatedly counts once.
    let again = format!("  a: [10.0.0.1, 10.0.0.2]\n  b: [{}]\n", "a, ".repeat(100_000));
    assert_eq!(parse(&file(again)).expect("a file").groups["b"].len(), 2);
}

#[test]
fn words_that_are_long_are_compared_with_nothing() {
    assert_eq!(read::nearest(&"x".repeat(100_000), ["x"]), None);
    assert_eq!(read::nearest("pfv", ["pfw", "ids"]), Some("pfw"));
}

#[test]
fn keys_that_stand_twice_are_found_with_their_place() {
    let of = |text: &str| read::unfit(&crate::yaml::parse(text).expect("yaml"));
    assert_eq!(of("a: [1, {b: 1, c: 2}]\nb: 1\n"), None);
    let twice = of("a: [1, {b/c: 1, b/c: 2}]\n").expect("twice");
    assert_eq!((twice.path.as_str(), twice.position.column), ("a/1/b~1c", 17));
}
