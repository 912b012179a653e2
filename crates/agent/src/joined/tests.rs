// SPDX-License-Identifier: Apache-2.0
//! Parts of policy files, valid and invalid, and their diagnostics.

use super::*;
use bartizan_config::policy::{self, PolicyError, read};
use proptest::prelude::*;

type Objects = BTreeMap<ObjectKey, Arc<Object>>;

fn join(objects: &Objects) -> Result<JoinedPolicy, Vec<PolicyDiagnostic>> {
    super::join(&ControllerGeneration { generation: 4, objects: objects.clone() })
}

fn part(tenant: u16, name: &str, text: &Value) -> Object {
    Object::Policy(Policy { name: name.into(), tenant, text: text.to_string() })
}

fn file(id: u32, lines: &[&str]) -> Object {
    let rules = GroupRules::Raw(lines.iter().map(|line| (*line).to_owned()).collect());
    Object::Group(RuleGroup { id, tenant: 0, rule_type: RuleType::Ids, rules })
}

fn all(objects: impl IntoIterator<Item = Object>) -> Objects {
    objects.into_iter().map(|object| (object.key(), Arc::new(object))).collect()
}

fn tenant(number: u16, name: &str, order: u64) -> Object {
    let text =
        json!({"tenant": {"name": name, "select": {"vni": number}, "quotas": {"flows": 3}}, "order": order});
    part(number, "@tenant", &text)
}

fn policy(number: u16, tenant: &str, name: &str, order: u64) -> Object {
    let said = json!({"name": format!("{tenant}/{name}"), "tenant": [tenant], "chain": ["pfw"], "pfw": {"default": "drop"}});
    part(number, name, &json!({"policy": said, "order": order}))
}

fn names(joined: &JoinedPolicy, key: &str) -> Vec<String> {
    let file = joined.parts.whole();
    let items = file[key].as_array().unwrap();
    items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

/// The diagnostics of a generation's objects: object, pointer, message.
fn wrong(objects: &Objects) -> Vec<(String, String, String)> {
    let said = |d: PolicyDiagnostic| (d.object.as_str().to_owned(), d.pointer, d.message);
    join(objects).unwrap_err().into_iter().map(said).collect()
}

#[test]
fn rule_groups_that_nothing_runs_are_refused() {
    let library = |group: u32| json!({"library": {"files": [{"group": group, "sha256": "abc"}]}});
    let rule = "alert tcp any any -> any any (sid:1;)";
    let group = |id, tenant, rule_type, rules| Object::Group(RuleGroup { id, tenant, rule_type, rules });
    let raw = || GroupRules::Raw(vec![rule.to_owned()]);
    let with = |more: Object| all([part(0, "@library/web", &library(17)), file(17, &[rule]), more]);
    assert!(join(&all([part(0, "@library/web", &library(17)), file(17, &[rule])])).is_ok());
    for more in [
        file(18, &[rule]),
        group(18, 7, RuleType::Ids, raw()),
        group(18, 0, RuleType::Pfw, raw()),
        group(18, 7, RuleType::Ids, GroupRules::Ids(vec![(1, 2001)])),
    ] {
        let found = wrong(&with(more));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].0 == "group:18" && found[0].2.contains("no function would run it"), "{found:?}");
    }
    // A library's file must be a rule group of type ids.
    let found = wrong(&all([part(0, "@library/web", &library(17)), group(17, 0, RuleType::Pfw, raw())]));
    assert!(found[0].1 == "/library/files/0/group" && found[0].2.contains("is not a rule file"), "{found:?}");
    // Also found in a generation after a valid one.
    let mut joiner = Joiner::default();
    let held = |objects: Objects| ControllerGeneration { generation: 1, objects };
    let objects = with(part(0, "@library/more", &library(17)));
    assert!(joiner.join(&held(objects.clone()), Hash::default()).is_ok());
    let mut more = objects;
    let unused = file(18, &[rule]);
    more.insert(unused.key(), Arc::new(unused));
    assert!(joiner.join(&held(more), Hash::default()).is_err());
}

#[test]
fn parts_are_one_file_in_the_order_that_they_say() {
    let library = json!({"library": {"files": [{"group": 17, "sha256": "abc"}], "choose": [{"sids": [2]}], "except": []}});
    let objects = all([
        tenant(7, "acme", 100),
        tenant(3, "zeta", 50),
        policy(7, "acme", "web", 10),
        policy(7, "acme", "all", 100),
        policy(3, "zeta", "a", 10),
        part(7, "@group/lan", &json!({"groups": {"lan@acme": ["10.0.0.0/8"]}})),
        part(0, "@default", &json!({"default": {"action": "allow"}})),
        part(0, "@library/web", &library),
        file(17, &["alert tcp any any -> any any (sid:1;)", "", "alert tcp any any -> any any (sid:2;)"]),
    ]);
    let joined = join(&objects).unwrap();
    assert_eq!(names(&joined, "tenants"), ["zeta", "acme"]);
    assert_eq!(names(&joined, "policies"), ["acme/web", "zeta/a", "acme/all"]);
    assert_eq!(*joined.tenants, [("zeta".to_owned(), 3), ("acme".to_owned(), 7)]);
    assert_eq!(joined.parts.common["groups"], json!({"lan@acme": ["10.0.0.0/8"]}));
    assert_eq!(joined.parts.common["rule-groups"], json!({"web": ["web.rules"]}));
    assert_eq!(joined.parts.common["default"], json!({"action": "allow"}));
    let rules = joined.libraries["web.rules"].rules();
    let lines: Vec<_> =
        rules[0].rules.iter().map(|r| (rules[0].source.position(r.span.start).line, r.meta.id.sid)).collect();
    assert_eq!((&**rules[0].source.name(), lines), ("abc", vec![(3, 2)]));
    let read =
        policy::from_node("controller", read::from_json(&joined.parts.whole()), &["pfw", "ids"]).unwrap();
    assert_eq!(read.policies.len(), 3);
}

#[test]
fn labels_and_resolvers_are_part_of_the_file() {
    let labels = json!({"web@acme": {"role": "web", "@tenant": "acme"}});
    let said = json!({"name": "acme/a", "tenant": ["acme"], "chain": [], "from": {"label": {"role": "web", "@tenant": "acme"}}});
    let mut objects = all([
        tenant(7, "acme", 100),
        part(7, "@group/web", &json!({"groups": {"web@acme": ["10.0.0.0/8"]}, "labels": labels})),
        part(7, "a", &json!({"policy": said, "order": 1})),
        part(0, "@dns", &json!({"dns": {"resolvers": ["10.0.0.53"]}})),
    ]);
    let joined = join(&objects).unwrap();
    assert_eq!(
        (&joined.parts.common["labels"], &joined.parts.common["dns"]),
        (&labels, &json!({"resolvers": ["10.0.0.53"]}))
    );
    let file = policy::from_node("controller", read::from_json(&joined.parts.whole()), &["pfw"]).unwrap();
    assert_eq!(file.resolve(&file.policies[0].from).len(), 1);
    // Problems of the file are reported on these objects.
    let problem =
        |path: &str| ConfigProblem { position: Default::default(), path: path.into(), message: "x".into() };
    let of = |path: &str| joined.diagnostic(&problem(path));
    assert_eq!(
        (of("labels/web@acme/role").object.as_str(), of("labels/web@acme/role").pointer.as_str()),
        ("policy:7:@group/web", "/labels/web@acme/role")
    );
    assert_eq!(
        (of("dns/resolvers/0").object.as_str(), of("dns/resolvers/0").pointer.as_str()),
        ("policy:0:@dns", "/dns/resolvers/0")
    );
    let other = part(7, "@group/lan", &json!({"groups": {"lan@acme": []}, "labels": {"web@acme": {}}}));
    objects.insert(other.key(), Arc::new(other));
    assert!(wrong(&objects)[0].2.contains("`web@acme` is not a group of this part"));
}

#[test]
fn without_anything_everything_is_dropped() {
    let joined = join(&Objects::new()).unwrap();
    assert_eq!(joined.parts.common["default"], json!({"action": "drop"}));
    policy::from_node("controller", read::from_json(&joined.parts.whole()), &["pfw"]).unwrap();
}

#[test]
fn what_is_wrong_is_said_of_its_object() {
    let cases: [(Object, &str, &str, &str); 12] = [
        (part(7, "web", &json!({"policy": 3})), "policy:7:web", "", "expected a map"),
        (part(7, "web", &json!({"polic": {}})), "policy:7:web", "", "unknown field `polic`"),
        (part(7, "web", &json!({"policy": {}})), "policy:7:web", "/policy/name", "has no name"),
        (
            policy(7, "zeta", "web", 1),
            "policy:7:web",
            "/policy/tenant",
            "of tenant `acme` must name this tenant",
        ),
        (policy(8, "acme", "web", 1), "policy:8:web", "/policy/tenant", "which does not exist"),
        (policy(0, "default", "web", 1), "policy:0:web", "", "tenant 0 has no such part"),
        (part(7, "@default", &json!({})), "policy:7:@default", "", "it belongs to tenant 0"),
        (part(7, "@nothing", &json!({})), "policy:7:@nothing", "", "is not a known part"),
        (tenant(8, "acme", 1), "policy:8:@tenant", "/tenant/name", "another tenant is called `acme`"),
        (
            part(7, "@group/lan", &json!({"groups": {"lan@zeta": []}})),
            "policy:7:@group/lan",
            "/groups/lan@zeta",
            "the name of its tenant",
        ),
        (
            part(0, "@library/web", &json!({"library": {"files": [{"group": 9, "sha256": ""}]}})),
            "policy:0:@library/web",
            "/library/files/0/group",
            "there is no group 9",
        ),
        (
            part(0, "@library/web", &json!({"library": {"files": [], "choose": [{"sid": 1}]}})),
            "policy:0:@library/web",
            "",
            "unknown field `sid`",
        ),
    ];
    for (object, key, pointer, message) in cases {
        let found = wrong(&all([tenant(7, "acme", 1), object]));
        let (at, place, said) = &found[0];
        assert_eq!((at.as_str(), place.as_str(), found.len()), (key, pointer, 1), "{said}");
        assert!(said.contains(message), "{said}");
    }
    let broken = Object::Policy(Policy { name: "x".into(), tenant: 7, text: "{\n \"policy\": }".into() });
    let diagnostic = join(&all([tenant(7, "acme", 1), broken])).unwrap_err().remove(0);
    assert_eq!((diagnostic.line, diagnostic.column), (2, 12));
}

/// A problem that the policy reader finds in the file is reported at its place in the object.
#[test]
fn places_in_the_file_are_places_in_the_objects() {
    let mut bad = policy(7, "acme", "web", 10);
    if let Object::Policy(policy) = &mut bad {
        policy.text = policy.text.replace("\"pfw\"]", "\"pfv\"]");
    }
    let library = json!({"library": {"files": [{"group": 17, "sha256": "abc"}]}});
    let objects = all([
        tenant(3, "zeta", 1),
        tenant(7, "acme", 2),
        policy(7, "acme", "first", 1),
        bad,
        part(7, "@group/lan", &json!({"groups": {"lan@acme": ["10.0.0.0/99"]}})),
        part(0, "@default", &json!({"default": {"action": "dorp"}})),
        part(0, "@library/web", &library),
        file(17, &[]),
    ]);
    let joined = join(&objects).unwrap();
    let read = policy::from_node("controller", read::from_json(&joined.parts.whole()), &["pfw", "ids"]);
    let Err(PolicyError::Wrong { problems, .. }) = read else { panic!("it is taken") };
    let mut found: Vec<_> = problems
        .iter()
        .map(|p| joined.diagnostic(p))
        .map(|d| (d.object.as_str().to_owned(), d.pointer))
        .collect();
    found.sort();
    found.dedup();
    let expected = [
        ("policy:0:@default", "/default/action"),
        ("policy:7:@group/lan", "/groups/lan@acme/0"),
        ("policy:7:web", "/policy/chain/0"),
        ("policy:7:web", "/policy/pfw"),
    ];
    assert_eq!(found, expected.map(|(object, pointer)| (object.to_owned(), pointer.to_owned())));
    let at = |path: &str| {
        let problem =
            ConfigProblem { position: Default::default(), path: path.into(), message: String::new() };
        let found = joined.diagnostic(&problem);
        (found.object.as_str().to_owned(), found.pointer)
    };
    assert_eq!(at("tenants/1/select/vni"), ("policy:7:@tenant".into(), "/tenant/select/vni".into()));
    assert_eq!(at("rule-groups/web/0"), ("policy:0:@library/web".into(), "/library".into()));
    // Reported on an object of no tenant: a tenant that is blamed would be held back.
    assert_eq!(at("policies/99/name"), ("policy:0:@default".into(), "".into()));
    assert_eq!(at(""), ("policy:0:@default".into(), "".into()));
}

#[test]
fn libraries_are_the_same_by_what_they_are_made_of() {
    let library = |text: &str, sids: &[u32]| {
        let part = part(
            0,
            "@library/l",
            &json!({"library": {"files": [{"group": 1, "sha256": "h"}], "choose": [{"sids": sids}]}}),
        );
        join(&all([part, file(1, &[text])])).unwrap().libraries["l.rules"].clone()
    };
    assert_eq!(library("a", &[1]), library("a", &[1]));
    assert_ne!(library("a", &[1]), library("b", &[1]));
    assert_ne!(library("a", &[1]), library("a", &[2]));
}

/// The example that tests of controller and agent share.
#[test]
fn the_committed_parts_are_the_committed_file() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/tests/vectors/joined");
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let objects: Vec<Object> = serde_json::from_str(&text("parts.json")).unwrap();
    let expected: Value = serde_json::from_str(&text("policy.json")).unwrap();
    assert_eq!(join(&all(objects)).unwrap().parts.whole(), expected);
}

proptest! {
    /// After any changes, joining successively gives the same as joining anew, and unchanged parts stay the
    /// same by address.
    #[test]
    fn one_after_the_other_they_are_joined_as_each_by_itself(
        steps in prop::collection::vec((0usize..10, 0u16..3, 0usize..4), 1..40),
    ) {
        let names = ["acme", "zeta", "beta"];
        let mut objects = all((0..3).map(|n| tenant(n + 1, names[n as usize], 100)));
        let mut joiner = Joiner::default();
        let mut before: Option<JoinedPolicy> = None;
        for (step, number, which) in steps {
            let name = format!("p{which}");
            let (order, key) = ((step % 3) as u64, ObjectKey::policy(number + 1, &name));
            let own = names[usize::from(number)];
            let put = match step {
                0..=2 => Some(policy(number + 1, own, &name, order)),
                3 => Some(policy(number + 1, "else", &name, order)),
                4 => Some(part(number + 1, &name, &json!({"policy": {}}))),
                5 => Some(part(number + 1, "@group/g", &json!({"groups": {(format!("g{which}@{own}")): []}}))),
                6 => Some(tenant(number + 1, own, which as u64)),
                7 => Some(part(0, "@library/l", &json!({"library": {"files": [{"group": 1, "sha256": "h"}]}}))),
                8 => Some(file(1, &[&name])),
                _ => None,
            };
            let was = objects.clone();
            match put {
                Some(object) => drop(objects.insert(object.key(), Arc::new(object))),
                None => drop(objects.remove(&key)),
            }
            let held = ControllerGeneration { generation: 4, objects: objects.clone() };
            match (joiner.join(&held, held.manifest().hash()), super::join(&held)) {
                (Ok(joined), Ok(alone)) => {
                    prop_assert_eq!(joined.parts.whole(), alone.parts.whole());
                    prop_assert_eq!((&joined.tenants, &joined.places), (&alone.tenants, &alone.places));
                    prop_assert_eq!((&joined.policies, &joined.libraries), (&alone.policies, &alone.libraries));
                    if let Some(before) = before.filter(|_| step < 3 || step == 9) {
                        prop_assert!(Arc::ptr_eq(&before.parts.common, &joined.parts.common));
                        let is_known = |text: &&Arc<PolicyText>| before.parts.policies.iter().any(|b| Arc::ptr_eq(b, text));
                        let known = joined.parts.policies.iter().filter(is_known).count();
                        prop_assert!(known + 1 >= joined.parts.policies.len());
                    }
                    before = Some(joined);
                }
                (Err(wrong), Err(alone)) => {
                    prop_assert_eq!(wrong.len(), alone.len());
                    objects = was;
                    before = None;
                }
                (joined, alone) => prop_assert!(false, "{joined:?}, {alone:?}"),
            }
        }
    }

    /// Any texts give parts or diagnostics, and diagnostics name existing objects.
    #[test]
    fn any_texts_are_joined_or_refused(
        parts in prop::collection::vec((0u16..3, "(@tenant|@group/x|@default|@library/y|@|p)", ".{0,80}"), 0..6),
        cut in 0usize..200,
    ) {
        let whole = json!({"policy": {"name": "a/p", "tenant": ["a"], "chain": []}, "order": 1}).to_string();
        let end = (0..=cut.min(whole.len())).rev().find(|at| whole.is_char_boundary(*at)).unwrap_or(0);
        let cut = Object::Policy(Policy { name: "cut".into(), tenant: 1, text: whole[..end].to_owned() });
        let objects = all(parts.into_iter()
            .map(|(tenant, name, text)| Object::Policy(Policy { name, tenant, text }))
            .chain([cut]));
        match join(&objects) {
            Ok(joined) => { let _ = policy::from_node("p", read::from_json(&joined.parts.whole()), &[]); }
            Err(found) => prop_assert!(found.iter().all(|d| objects.contains_key(&d.object))),
        }
    }
}
