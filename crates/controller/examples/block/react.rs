// SPDX-License-Identifier: Apache-2.0
//! The reaction to alerts, without a transport: requests to the API, and the evaluation of its answers.

use bartizan_controller::rest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The group of blocked addresses, and the policy that drops them.
const GROUP: &str = "blocked";
const POLICY: &str = "block";
/// Most members of the group; beyond, the oldest are removed.
pub const MEMBERS_MAX: usize = 1_000;
/// Most alerts read in one turn.
const ALERTS_MAX: usize = 500;
/// Attempts of a change if others change the group at the same time.
const ATTEMPTS: usize = 5;

/// An answer of the API.
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Tag of the document.
    pub tag: Option<String>,
    /// Body.
    pub body: Value,
}

/// The client of the API.
pub trait Ask {
    /// Sends a request, with a header field.
    fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        field: Option<(&'static str, &str)>,
    ) -> Result<Answer, String>;
}

/// Blocks the sources of severe alerts of a tenant.
pub struct Blocker {
    tenant: String,
    severity: u64,
    /// The number of the newest alert that was evaluated.
    last: u64,
}

impl Blocker {
    /// A blocker for alerts of this severity or a more severe one (a lower number).
    pub fn new(tenant: &str, severity: u64) -> Self {
        Blocker { tenant: tenant.to_owned(), severity, last: 0 }
    }

    /// Evaluates new alerts; returns the addresses that are blocked now and were not before.
    pub fn turn(&mut self, api: &mut impl Ask) -> Result<Vec<IpAddr>, String> {
        let path = format!("/v1/tenants/{}/alerts?limit={ALERTS_MAX}", self.tenant);
        let page = good(api.ask(Method::Get, &path, None, None)?, "alerts")?;
        let alerts = page.body["items"].as_array().cloned().unwrap_or_default();
        let number = |alert: &Value| alert["number"].as_u64().unwrap_or(0);
        let new = alerts.iter().filter(|alert| number(alert) > self.last);
        let severe = |alert: &&Value| {
            alert["event"]["alert"]["severity"].as_u64().is_some_and(|severity| severity <= self.severity)
        };
        let source = |alert: &Value| alert["event"]["src_ip"].as_str()?.parse().ok();
        // Oldest first, each once.
        let mut seen = BTreeSet::new();
        let sources: Vec<IpAddr> =
            new.filter(severe).filter_map(source).filter(|source| seen.insert(*source)).collect();
        let newest = alerts.iter().map(number).max().unwrap_or(0);
        let blocked = if sources.is_empty() { Vec::new() } else { self.block(api, &sources)? };
        // Set last: after an error, the next turn tries the same alerts again.
        self.last = self.last.max(newest);
        Ok(blocked)
    }

    fn block(&self, api: &mut impl Ask, sources: &[IpAddr]) -> Result<Vec<IpAddr>, String> {
        let path = format!("/v1/tenants/{}/groups/{GROUP}", self.tenant);
        for _ in 0..ATTEMPTS {
            let stands = api.ask(Method::Get, &path, None, None)?;
            let there = stands.status != 404;
            let stands = if there { good(stands, "the group")? } else { stands };
            let mut members: Vec<String> = match &stands.body["spec"]["members"] {
                Value::Array(items) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
                Value::String(one) => vec![one.clone()],
                _ => Vec::new(),
            };
            let new: Vec<IpAddr> = sources
                .iter()
                .rev()
                .filter(|source| !members.contains(&source.to_string()))
                .copied()
                .collect();
            if new.is_empty() {
                self.refuse(api)?;
                return Ok(new);
            }
            members.extend(new.iter().map(IpAddr::to_string));
            let surplus = members.len().saturating_sub(MEMBERS_MAX);
            members.drain(..surplus);
            // The group may change at the same time: only the version that was read is replaced.
            let tag = stands.tag.unwrap_or_default();
            let only = if there { ("if-match", tag.as_str()) } else { ("if-none-match", "*") };
            let body = json!({ "description": "sources of severe alerts", "members": members });
            let put = api.ask(Method::Put, &path, Some(&body), Some(only))?;
            if put.status != 412 {
                good(put, "the group")?;
                self.refuse(api)?;
                return Ok(new);
            }
        }
        Err("the group was changed by others each time; it is tried again".to_owned())
    }

    /// Makes the policy that drops the group, unless it exists. An operator's changes to it stay.
    fn refuse(&self, api: &mut impl Ask) -> Result<(), String> {
        let path = format!("/v1/tenants/{}/policies/{POLICY}", self.tenant);
        let policy = json!({
            "description": "sources of severe alerts",
            "order": 0,
            "policy": { "from": GROUP, "chain": ["pfw"], "pfw": { "default": "drop" } },
        });
        let put = api.ask(Method::Put, &path, Some(&policy), Some(("if-none-match", "*")))?;
        if put.status == 412 { Ok(()) } else { good(put, "the policy").map(|_| ()) }
    }
}

fn good(answer: Answer, what: &str) -> Result<Answer, String> {
    if answer.status / 100 == 2 {
        return Ok(answer);
    }
    Err(format!("{what}: {} {}", answer.status, answer.body["detail"].as_str().unwrap_or_default()))
}
