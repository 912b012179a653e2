// SPDX-License-Identifier: Apache-2.0
//! The example that blocks sources of alerts, against the API.

use crate::common;
#[path = "../examples/block/react.rs"]
mod react;

use bartizan_controller::rest::Method;
use common::{With, World};
use react::{Answer, Ask, Blocker, MEMBERS_MAX};
use serde_json::{Value, json};

/// The API with an operator's token, and an action between reading the group and changing it.
struct Api<'w> {
    world: &'w World,
    token: String,
    meanwhile: Option<Value>,
}

impl Ask for Api<'_> {
    fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        field: Option<(&'static str, &str)>,
    ) -> Result<Answer, String> {
        if method == Method::Put
            && path.ends_with("/groups/blocked")
            && let Some(other) = self.meanwhile.take()
        {
            self.world.do_it("PUT", path, &other);
        }
        let fields = field.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let with = With { token: Some(self.token.clone()), fields, ..With::default() };
        let reply = self.world.send(method.name(), path, bytes, with);
        let tag = reply.fields.iter().find(|(name, _)| *name == "etag").map(|(_, tag)| tag.clone());
        Ok(Answer { status: reply.status, tag, body: reply.value() })
    }
}

fn world() -> World {
    let world = World::new();
    world.tenant("acme", 1);
    world.device("edge", &json!({ "tenants": ["acme"] }));
    world
}

fn report(world: &World, key: &str, source: &str, severity: u64) {
    let event = json!({ "src_ip": source, "alert": { "severity": severity } });
    let alerts = json!({ "alerts": [{ "tenant": "acme", "key": key, "event": event }] });
    world.do_it("POST", "/v1/devices/edge/alerts", &alerts);
}

fn api(world: &World) -> Api<'_> {
    Api { world, token: world.token("operator", Some("acme"), None), meanwhile: None }
}

fn members(world: &World) -> Value {
    world.get("/v1/tenants/acme/groups/blocked")["spec"]["members"].clone()
}

#[test]
fn the_source_of_a_severe_alert_is_refused_by_the_device_at_once() {
    let world = world();
    let (mut api, mut blocker) = (api(&world), Blocker::new("acme", 1));
    assert_eq!(blocker.turn(&mut api), Ok(Vec::new()));
    report(&world, "a", "192.0.2.66", 1);
    report(&world, "b", "192.0.2.67", 2);
    report(&world, "c", "2001:db8::66", 1);
    world.fleet.take();
    let blocked = blocker.turn(&mut api).unwrap();
    assert_eq!(blocked, ["192.0.2.66", "2001:db8::66"].map(|text| text.parse::<std::net::IpAddr>().unwrap()));
    // The device should run the generation, and its policy drops the group before any other policy applies.
    let newest = world.generation();
    assert_eq!(world.fleet.take().last(), Some(&("edge".to_owned(), newest)));
    let policy = world.get("/v1/devices/edge/policy");
    assert_eq!(policy["policy"]["policies"][0]["name"], "acme/block");
    assert_eq!(policy["policy"]["groups"]["blocked@acme"], json!(["192.0.2.66", "2001:db8::66"]));
    // Nothing new is no change; an alert that comes again neither.
    assert_eq!(blocker.turn(&mut api), Ok(Vec::new()));
    report(&world, "a", "192.0.2.66", 1);
    assert_eq!(blocker.turn(&mut api), Ok(Vec::new()));
    assert_eq!(world.generation(), newest);
    // An address that was removed from the group comes back with its next alert.
    world.do_it("PUT", "/v1/tenants/acme/groups/blocked", &json!({ "members": ["2001:db8::66"] }));
    report(&world, "a", "192.0.2.66", 1);
    assert_eq!(blocker.turn(&mut api).unwrap().len(), 1);
    assert_eq!(members(&world), json!(["2001:db8::66", "192.0.2.66"]));
}

#[test]
fn what_others_change_meanwhile_is_kept_and_the_group_is_bounded() {
    let world = world();
    let (mut api, mut blocker) = (api(&world), Blocker::new("acme", 3));
    report(&world, "a", "192.0.2.66", 1);
    api.meanwhile = Some(json!({ "members": ["198.51.100.0/24"] }));
    assert_eq!(blocker.turn(&mut api).unwrap().len(), 1);
    assert_eq!(members(&world), json!(["198.51.100.0/24", "192.0.2.66"]));
    let many: Vec<String> = (0..MEMBERS_MAX).map(|n| format!("10.0.{}.{}", n / 256, n % 256)).collect();
    world.do_it("PUT", "/v1/tenants/acme/groups/blocked", &json!({ "members": many }));
    report(&world, "b", "192.0.2.67", 3);
    blocker.turn(&mut api).unwrap();
    let now = members(&world);
    let now = now.as_array().unwrap();
    assert_eq!((now.len(), now.last()), (MEMBERS_MAX, Some(&json!("192.0.2.67"))));
    // A controller that refuses: nothing is forgotten.
    report(&world, "c", "192.0.2.68", 1);
    let token = std::mem::replace(&mut api.token, "btz_wrong".to_owned());
    assert!(blocker.turn(&mut api).unwrap_err().starts_with("alerts: 401"));
    api.token = token;
    assert_eq!(blocker.turn(&mut api).unwrap().len(), 1);
}
