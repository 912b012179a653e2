// SPDX-License-Identifier: Apache-2.0
//! Requests to the controller: a line with method and path, then the body. The requests have an
//! administrator's token, so that each handler is reached.

use crate::planted::planted;
use bartizan_controller::access::Secret;
use bartizan_controller::clock::ManualClock;
use bartizan_controller::fleet::MemoryFleet;
use bartizan_controller::rest::{Head, Reply};
use bartizan_controller::store::MemoryStore;
use bartizan_controller::{Api, Controller, Settings, resources};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// A controller with a tenant and a device, and the token of its administrator.
fn controller() -> Option<(Api, String)> {
    let functions = ["pfw", "sfw", "ids"].map(str::to_owned).to_vec();
    let settings = Settings { functions, ..Settings::default() };
    let (clock, fleet) = (Arc::new(ManualClock::default()), Arc::new(MemoryFleet::default()));
    let controller = Controller::new(Box::new(MemoryStore::default()), clock, fleet, settings).ok()?;
    let token = controller.bootstrap(false, |secret: &Secret| Ok::<_, ()>(secret.reveal())).ok()??.ok()?;
    let api = Api::new(Arc::new(controller), resources::routes());
    let made = send(&api, &token, "POST", "/v1/tokens", br#"{"name":"a","scope":"admin"}"#);
    let token = made.value().get("token")?.as_str()?.to_owned();
    for (path, body) in [
        ("/v1/tenants/acme", &br#"{"select":{"vni":1}}"#[..]),
        ("/v1/tenants/acme/groups/lan", br#"{"members":["10.0.0.0/8"]}"#),
        ("/v1/devices/edge", br#"{"tenants":["*"]}"#),
    ] {
        assert_eq!(send(&api, &token, "PUT", path, body).status, 201, "{path}");
    }
    Some((api, token))
}

fn send(api: &Api, token: &str, method: &str, target: &str, body: &[u8]) -> Reply {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let kind = if body.first() == Some(&b'{') { "application/json" } else { "application/yaml" };
    let head = Head {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        fields: vec![("authorization", format!("Bearer {token}")), ("content-type", kind.to_owned())],
        source: IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    api.handle(head, body.to_vec())
}

/// Every reply is valid, and an accepted object exists and can be sent to a device.
pub fn run(data: &[u8]) {
    let at = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (line, body) = data.split_at(at);
    let line = String::from_utf8_lossy(line);
    let Some((method, target)) = line.split_once(' ') else { return };
    let Some((api, token)) = controller() else { return };
    let reply = send(&api, &token, method, target, body.get(1..).unwrap_or_default());
    assert!((200..600).contains(&reply.status) && reply.status != 500, "{line}: {}", reply.status);
    planted(method == "PUT" && target.contains("/policies/") && reply.status == 422);
    if method == "PUT" && matches!(reply.status, 200 | 201) && !target.contains('?') {
        planted(target.contains("/policies/"));
        assert_eq!(send(&api, &token, "GET", target, b"").status, 200, "{line}");
        let given = send(&api, &token, "GET", "/v1/devices/edge/policy", b"").value();
        let text = given.get("policy").map(ToString::to_string).unwrap_or_default();
        let read = bartizan_config::policy::parse("given", &text, &["pfw", "sfw", "ids"]);
        assert!(read.is_ok(), "{line}: {read:?}: {text}");
    }
}
