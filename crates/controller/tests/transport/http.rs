// SPDX-License-Identifier: Apache-2.0
//! HTTP's rules for hosts, heads, preconditions and created resources (RFC 9110, RFC 9112).

use super::arrival::sha256;
use crate::common::wire::Wire;
use bartizan_controller::server::Bounds;
use serde_json::json;

#[test]
fn a_request_says_once_which_host_it_is_for() {
    let wire = Wire::new(Bounds::default());
    let token = format!("Authorization: Bearer {}\r\n", wire.world.token);
    for (version, hosts, status) in [
        ("1.1", "Host: localhost\r\n", 200),
        ("1.1", "Host: [::1]:9443\r\n", 200),
        ("1.1", "Host: controller.example:9443\r\n", 200),
        ("1.1", "", 400),
        ("1.1", "Host: a\r\nHost: a\r\n", 400),
        ("1.1", "Host: a\r\nhost: b\r\n", 400),
        ("1.1", "Host: \r\n", 400),
        ("1.1", "Host: a b\r\n", 400),
        ("1.1", "Host: a/b\r\n", 400),
        ("1.1", "Host: me@a\r\n", 400),
        ("1.0", "", 200),
        ("1.0", "Host: a\r\nHost: b\r\n", 400),
    ] {
        let came = wire.ask(format!("GET /v1/tenants HTTP/{version}\r\n{hosts}{token}\r\n"));
        assert_eq!(came.status, status, "{version} {hosts:?}: {came:?}");
        let kind = if status == 200 { "application/json" } else { "application/problem+json" };
        assert_eq!(came.field("content-type"), Some(kind));
    }
}

#[test]
fn a_request_comes_with_one_token_and_in_no_coding_but_chunks() {
    let wire = Wire::new(Bounds::default());
    wire.world.tenant("acme", 7);
    let path = "/v1/tenants/acme/groups/lan";
    let token = format!("Authorization: Bearer {}\r\n", wire.world.token);
    let body = r#"{"members": []}"#;
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for (codings, status, kind) in [
        ("Transfer-Encoding: chunked\r\n", 201, None),
        ("Transfer-Encoding: gzip, chunked\r\n", 501, Some("urn:bartizan:problem:transfer-coding")),
        (
            "Transfer-Encoding: GZIP\r\nTransfer-Encoding: chunked\r\n",
            501,
            Some("urn:bartizan:problem:transfer-coding"),
        ),
        ("Transfer-Encoding: identity, chunked\r\n", 501, Some("urn:bartizan:problem:transfer-coding")),
        ("Transfer-Encoding: chunked, chunked\r\n", 400, Some("urn:bartizan:problem:malformed")),
    ] {
        let came = wire.ask(format!("{}{codings}\r\n{chunked}", wire.head("PUT", path)));
        assert_eq!(came.status, status, "{codings}: {came:?}");
        let problem: serde_json::Value = serde_json::from_slice(&came.body).unwrap();
        assert_eq!(problem["type"].as_str(), kind, "{codings}");
    }
    for second in [token.as_str(), "authorization: Basic eDp5\r\n"] {
        let came = wire.ask(format!("{}{second}\r\n", wire.head("GET", "/v1/tenants")));
        assert_eq!(came.status, 400, "{came:?}");
        assert!(String::from_utf8_lossy(&came.body).contains("the request has more than one `"), "{came:?}");
    }
}

#[test]
fn texts_are_plain_and_metrics_are_those_of_prometheus() {
    let wire = Wire::new(Bounds::default());
    for path in filled(&wire) {
        let kind =
            wire.ask(format!("{}\r\n", wire.head("GET", &path))).field("content-type").unwrap().to_owned();
        let text = path.starts_with("/v1/rule-files/") || path.ends_with("/rules.txt");
        let expected = match path.as_str() {
            "/v1/metrics" => "text/plain; version=0.0.4; charset=utf-8",
            _ if kind.starts_with("text/") || text => "text/plain; charset=utf-8",
            _ => "application/json",
        };
        assert_eq!(kind, expected, "{path}");
    }
}

/// Fills every readable resource with an example.
fn filled(wire: &Wire) -> Vec<String> {
    let world = &wire.world;
    world.tenant("acme", 7);
    world.do_it("PUT", "/v1/tenants/acme/groups/lan", &json!({ "members": ["10.0.0.1"] }));
    world.do_it("PUT", "/v1/tenants/acme/policies/web", &json!({ "policy": { "chain": [] } }));
    world.device("edge", &json!({ "tenants": ["*"] }));
    let text = "# none\n";
    let hash = sha256(text.as_bytes());
    let file = format!("/v1/rule-files/{hash}");
    assert_eq!(world.send("PUT", &file, text.into(), Default::default()).status, 201);
    world.do_it("PUT", "/v1/libraries/all", &json!({ "files": [hash] }));
    let mut all: Vec<String> = bartizan_controller::resources::routes()
        .iter()
        .filter(|route| route.method.name() == "GET")
        .map(|route| route.path.clone())
        .collect();
    let token = world.get("/v1/tokens")["items"][0]["id"].as_str().unwrap().to_owned();
    world.do_it("PUT", "/v1/settings/default", &json!({ "action": "drop" }));
    world.device("late", &json!({ "tenants": ["*"], "follow": "manual" }));
    world.do_it("POST", "/v1/rollouts", &json!({}));
    let rollout = world.get("/v1/rollouts")["items"][0]["name"].as_str().unwrap().to_owned();
    for path in &mut all {
        for (name, value) in [
            ("{tenant}", "acme"),
            ("{group}", "lan"),
            ("{policy}", "web"),
            ("{device}", "edge"),
            ("{rule-file}", &hash),
            ("{library}", "all"),
            ("{setting}", "default"),
            ("{id}", &token),
            ("{rollout}", &rollout),
            ("{generation}", "2"),
        ] {
            *path = path.replace(name, value);
        }
    }
    all
}

#[test]
fn whatever_is_read_can_be_looked_at_and_asked_for_if_it_is_new() {
    let wire = Wire::new(Bounds::default());
    let paths = filled(&wire);
    let mut line = wire.open();
    for path in &paths {
        line.say(format!("{}\r\n", wire.head("GET", path)).as_bytes()).unwrap();
        let whole = line.hear().unwrap();
        assert_eq!(whole.status, 200, "{path}: {whole:?}");
        let tag = whole.field("etag").unwrap_or_else(|| panic!("{path}")).to_owned();
        line.say(format!("{}\r\n", wire.head("HEAD", path)).as_bytes()).unwrap();
        let head = line.hear_of(true).unwrap();
        // Its own requests are counted, and so change it.
        if path != "/v1/metrics" {
            let same = |name: &str| assert_eq!(head.field(name), whole.field(name), "{path}: {name}");
            ["content-length", "content-type", "etag"].into_iter().for_each(same);
            assert_eq!(head.status, 200);
            for (fields, status) in [
                (format!("If-None-Match: {tag}\r\n"), 304),
                (format!("If-None-Match: W/{tag}\r\n"), 304),
                (format!("If-None-Match: \"none\"\r\nIf-None-Match: {tag}\r\n"), 304),
                ("If-None-Match: \"none\"\r\n".to_owned(), 200),
                (format!("If-Match: {tag}\r\n"), 200),
                ("If-Match: \"none\"\r\n".to_owned(), 412),
                (format!("If-Match: \"none\"\r\nIf-None-Match: {tag}\r\n"), 412),
            ] {
                line.say(format!("{}{fields}\r\n", wire.head("GET", path)).as_bytes()).unwrap();
                let came = line.hear().unwrap();
                assert_eq!(came.status, status, "{path} {fields}: {came:?}");
                if status == 304 {
                    assert_eq!((came.field("etag"), came.field("content-type")), (Some(tag.as_str()), None));
                    assert!(
                        came.body.is_empty()
                            && came.field("content-length").is_none_or(|length| length != "0"),
                        "{came:?}"
                    );
                }
            }
        }
        for method in ["GET", "HEAD"] {
            line.say(format!("{}If-None-Match: *\r\n\r\n", wire.head(method, path)).as_bytes()).unwrap();
            let came = line.hear_of(method == "HEAD").unwrap();
            assert_eq!((came.status, came.field("content-length")), (304, None), "{method} {path}");
        }
    }
    line.say(format!("{}If-None-Match: *\r\n\r\n", wire.head("HEAD", "/v1/tenants/none")).as_bytes())
        .unwrap();
    assert_eq!(line.hear_of(true).unwrap().status, 404);
}

#[test]
fn a_device_that_changes_is_read_anew_and_its_document_is_not_lost() {
    let wire = Wire::new(Bounds::default());
    wire.world.device("edge", &json!({ "tenants": ["*"] }));
    let get = |fields: &str| wire.ask(format!("{}{fields}\r\n", wire.head("GET", "/v1/devices/edge")));
    let tag = get("").field("etag").unwrap().to_owned();
    assert_eq!(get(&format!("If-None-Match: {tag}\r\n")).status, 304);
    let answer = json!({ "generation": wire.world.generation(), "accepted": true });
    wire.world.do_it("POST", "/v1/devices/edge/acknowledgements", &answer);
    let came = get(&format!("If-None-Match: {tag}\r\n"));
    assert_eq!(came.status, 200, "what it runs has changed: {came:?}");
    // The document is unchanged: a change based on the older status loses nothing.
    let body = json!({ "tenants": ["*"], "labels": { "ring": "canary" } }).to_string();
    let put = |tag: &str| {
        let head = wire.head("PUT", "/v1/devices/edge");
        wire.ask(format!("{head}If-Match: {tag}\r\nContent-Length: {}\r\n\r\n{body}", body.len())).status
    };
    assert_eq!((put(&tag), put(&tag)), (200, 412));
}

#[test]
fn what_is_made_is_answered_with_its_place() {
    let wire = Wire::new(Bounds::default());
    let ask = |method: &str, path: &str, body: &str| {
        wire.ask(format!("{}Content-Length: {}\r\n\r\n{body}", wire.head(method, path), body.len()))
    };
    let made = |method: &str, path: &str, body: &str| {
        let came = ask(method, path, body);
        assert_eq!(came.status, 201, "{method} {path}: {came:?}");
        came.field("location").unwrap_or_else(|| panic!("{came:?}")).to_owned()
    };
    let hash = sha256(b"# a\n");
    for (path, body) in [
        ("/v1/tenants/acme", r#"{"select": {"vni": 7}}"#),
        ("/v1/tenants/acme/groups/lan", r#"{"members": ["10.0.0.1"]}"#),
        ("/v1/tenants/acme/policies/web", r#"{"policy": {"chain": []}}"#),
        ("/v1/devices/edge", r#"{"tenants": ["*"], "follow": "manual"}"#),
        ("/v1/settings/default", r#"{"action": "drop"}"#),
        (&format!("/v1/rule-files/{hash}"), "# a\n"),
        ("/v1/libraries/all", &format!(r#"{{"files": ["{hash}"]}}"#)),
    ] {
        if !path.contains("rule-files") {
            assert_eq!(
                ask("PUT", &format!("{path}?dry-run=true"), body).status,
                200,
                "{path}: nothing is made"
            );
        }
        assert_eq!(made("PUT", path, body), path);
        let again = ask("PUT", path, body);
        assert_eq!((again.status, again.field("location")), (200, None), "{path}");
        assert_eq!(wire.ask(format!("{}\r\n", wire.head("GET", path))).status, 200);
    }
    for (path, body) in [("/v1/tokens", r#"{"name": "x", "scope": "reader"}"#), ("/v1/rollouts", "{}")] {
        let place = made("POST", path, body);
        assert!(place.starts_with(&format!("{path}/")), "{place}");
        let read = wire.ask(format!("{}\r\n", wire.head("GET", &place)));
        assert_eq!(read.status, 200, "{place}: {read:?}");
    }
    assert_eq!(made("PUT", "/v1/tenants/%62eta", r#"{"select": {"vni": 8}}"#), "/v1/tenants/beta");
}
