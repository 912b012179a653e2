// SPDX-License-Identifier: Apache-2.0
//! Blocks sources of severe alerts: the source of a tenant's alert is blocked for that tenant, by a change
//! that devices run at once.
//!
//! `cargo run -p bartizan-controller --example block -- HOST:PORT CERTIFICATE TOKEN-FILE TENANT [SEVERITY]`
//!
//! The token is an operator's of the tenant. Sources of alerts of this severity (1 is the most severe, and
//! the default) go into the group `blocked`, which the policy `block` drops; the example makes both when
//! needed. `bartizan ctl groups get TENANT blocked` lists the blocked addresses; an address that is removed
//! from the group is free until its next alert.

mod react;

use bartizan_controller::client::Client;
use bartizan_controller::rest::Method;
use react::{Answer, Ask, Blocker};
use serde_json::Value;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::Duration;

/// Interval between two reads of the alerts.
const PAUSE: Duration = Duration::from_millis(200);

struct Rest(Client);

impl Ask for Rest {
    fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        field: Option<(&'static str, &str)>,
    ) -> Result<Answer, String> {
        let fields: Vec<(&str, &str)> = field.into_iter().collect();
        let answer = self.0.request(method, path, body, &fields).map_err(|error| error.to_string())?;
        Ok(Answer { status: answer.status, tag: answer.tag, body: answer.body })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, certificate, token, tenant, more @ ..] = arguments.as_slice() else {
        return Err("usage: block HOST:PORT CERTIFICATE TOKEN-FILE TENANT [SEVERITY]".into());
    };
    let severity = more.first().map_or(Ok(1), |text| text.parse())?;
    let address = address.to_socket_addrs()?.next().ok_or("the host has no address")?;
    let token = std::fs::read_to_string(token)?.trim().to_owned();
    let mut api = Rest(Client::new(address, Path::new(certificate), Some(token))?);
    let mut blocker = Blocker::new(tenant, severity);
    loop {
        // A controller that is away comes back; until then no address is added, and blocked ones stay
        // blocked.
        match blocker.turn(&mut api) {
            Ok(blocked) => blocked.iter().for_each(|source| println!("blocked {source}")),
            Err(why) => eprintln!("{why}"),
        }
        std::thread::sleep(PAUSE);
    }
}
