// SPDX-License-Identifier: Apache-2.0
//! Bounds of the controller, for docs/limits.md.

use crate::access::limiter::{FAILED, SOURCES_MAX, WRITES};
use crate::client::{ANSWER_MAX, ANSWER_PATIENCE};
use crate::controller::{CHECKS_MAX, CHECKS_SHARE, Settings};
use crate::history::{GENERATIONS_MAX, PORTIONS, ROWS_MAX};
use crate::numbers::TENANTS_MAX;
use crate::resources::libraries::{FILE_MAX, LINE_MAX};
use crate::rest::route::{BODY_MAX, NAME_MAX, PAGE_MAX};
use crate::rollout::{ROLLOUTS_MAX, STEPS_MAX};
use crate::server::{
    BY_SOURCE, BY_TOKEN, CONNECTIONS_KEPT, CONNECTIONS_MAX, HANDLERS_BY_TOKEN, HANDLERS_KEPT, HANDLERS_MAX,
    HEAD_MAX, LINGER, PATIENCE, RATE_MIN,
};
use crate::southbound::ServerConfig;
use crate::southbound::listener;
use crate::statistics::{COUNTER_LETTERS, POLICIES_MAX, REASONS_MAX};
use crate::waiting::{SECONDS_MAX, SHARE_MAX, WAITING_MAX};
use bartizan_base::PacketDuration;
use bartizan_base::limit::LimitTrace::{Metric, NotNeeded, Told};
use bartizan_base::limit::{LimitSpec, bytes, count, time};
use bartizan_base::limits;
use bartizan_channel::token::{FAILURES, SOURCES};
use std::time::Duration;

fn span(of: Duration) -> String {
    time(PacketDuration::from_millis(u64::try_from(of.as_millis()).unwrap_or(u64::MAX)))
}

/// All bounds of this crate.
pub const LIMITS: &[LimitSpec] = limits! {
    Controller "bytes of a request's body; of a rule file" = "{}; {}" [bytes(BODY_MAX), bytes(FILE_MAX)] in ["controller/rest/route.rs", "controller/resources/libraries.rs"],
        "answered 413, unread", [Metric("bartizan_controller_requests_total")];
    Controller "requests that wait for devices (`?wait`), of a tenant or token and of all; how long" = "{}, {}; {}" [count(SHARE_MAX), count(WAITING_MAX), span(Duration::from_secs(SECONDS_MAX))] in ["controller/waiting.rs"],
        "answered 429; answered with the devices' answers so far", [Metric("bartizan_controller_requests_total")];
    Controller "dry runs, and changes of tenants with 2,000 members and rules, that are checked at one time, of a tenant or token and of all" = "{}, {}" [count(CHECKS_SHARE), count(CHECKS_MAX)] in ["controller/controller.rs"],
        "answered 429", [Metric("bartizan_controller_requests_total")];
    Controller "bytes of a request's head" = "{}" [bytes(HEAD_MAX)] in ["controller/server/mod.rs"],
        "answered 431", [Metric("bartizan_controller_requests_total")];
    Controller "connections to the REST API; of an address that have shown no token (not on loopback); of a token; kept for administrators and for those that have shown no token" = "{}; {}; {}; {}" [count(CONNECTIONS_MAX), count(BY_SOURCE), count(BY_TOKEN), count(CONNECTIONS_KEPT)] in ["controller/server/mod.rs"],
        "the oldest connection that has shown no token is closed, or an idle one of the token with the most, or the new one; while all of a token's have requests under way, one more is answered 429", [Metric("bartizan_controller_requests_total")];
    Controller "requests that run (their changes are committed together); reserved for administrators; of a token without that role" = "{}; {}; {}" [count(HANDLERS_MAX), count(HANDLERS_KEPT), count(HANDLERS_BY_TOKEN)] in ["controller/server/mod.rs"],
        "a request waits", [NotNeeded];
    Controller "time for a handshake, for a head, for the first bytes of a body, for the client to read a part of an answer; bytes of a body in each further second; time that the rest of a refused request is read" = "{} each; {}; {}" [span(PATIENCE), bytes(RATE_MIN as usize), span(LINGER)] in ["controller/server/mod.rs"],
        "the connection is closed, or answered 408", [Metric("bartizan_controller_requests_total")];
    Controller "bytes of a line of a rule file" = "{}" [bytes(LINE_MAX)] in ["controller/resources/libraries.rs"],
        "answered 422", [Metric("bartizan_controller_requests_total")];
    Controller "tenants that ever existed, by name" = "{}" [count(TENANTS_MAX)] in ["controller/numbers.rs"],
        "answered 409", [Metric("bartizan_controller_requests_total")];
    Controller "items of a page, reported differences between two generations" = "{}" [count(PAGE_MAX)] in ["controller/rest/route.rs"],
        "the next ones are on the next page; `more` says that there are more", [NotNeeded];
    Controller "letters of a name" = "{}" [count(NAME_MAX)] in ["controller/rest/route.rs"],
        "answered 400", [Metric("bartizan_controller_requests_total")];
    Controller "steps of a roll-out" = "{}" [count(STEPS_MAX)] in ["controller/rollout.rs"],
        "answered 422", [Metric("bartizan_controller_requests_total")];
    Controller "changes that the tokens of a tenant ask for at once; time until one more" = "{}; {}" [count(WRITES.burst), span(Duration::from_micros(WRITES.refill))] in ["controller/access/limiter.rs"],
        "answered 429, with the time to wait", [Metric("bartizan_controller_requests_total")];
    Controller "unknown tokens of an address; time until one more; addresses that are remembered" = "{}; {}; {}" [count(FAILED.burst), span(Duration::from_micros(FAILED.refill)), count(SOURCES_MAX)] in ["controller/access/limiter.rs"],
        "answered 429; the address that failed longest ago is forgotten", [Metric("bartizan_controller_requests_total")];
    Controller "refused changes of a token that the audit log has at once; time until one more" = "{}; {}" [count(FAILED.burst), span(Duration::from_micros(FAILED.refill))] in ["controller/access/limiter.rs"],
        "only counted", [Metric("bartizan_controller_requests_total")];
    Controller "alerts of a tenant, of the traffic of none, and of all; equal ones once" = "{}, {}" [count(Settings::default().alerts_max.of_tenant), count(Settings::default().alerts_max.of_all)] in ["controller/controller.rs"],
        "the oldest are removed", [Metric("bartizan_controller_requests_total")];
    Controller "generations whose documents are kept, besides those that devices run or will run; rows of the audit log" = "{}; {}; one {}th more until they are forgotten" [count(GENERATIONS_MAX), count(ROWS_MAX), count(PORTIONS)] in ["controller/history.rs"],
        "the oldest are removed; a request for such a generation is answered 404", [Metric("bartizan_controller_requests_total")];
    Controller "roll-outs that are kept" = "{}" [count(ROLLOUTS_MAX)] in ["controller/rollout.rs"],
        "a new one replaces the oldest", [Told("the audit log")];
    Controller "policies of a tenant whose sums are kept for each device; reasons; letters of a counter's name" = "{}; {}; {}" [count(POLICIES_MAX), count(REASONS_MAX), count(COUNTER_LETTERS)] in ["controller/statistics.rs"],
        "in the tenant's sums only; not kept", [Metric("bartizan_controller_requests_total")];
    Controller "devices that are connected at once; orders to one that wait" = "{}; {}" [count(ServerConfig::default().connections), count(ServerConfig::default().orders)] in ["controller/southbound/server.rs"],
        "the connection, or the order, is refused", [Told("`connections_refused`, `orders_refused` of the southbound counters")];
    Controller "connections of devices from one address" = "{}" [count(listener::BY_SOURCE)] in ["controller/southbound/listener.rs"],
        "refused; not on loopback", [Told("`source_refused` of the southbound counters")];
    Controller "connections of agents that have not identified their device yet" = "{}" [count(listener::UNPROVEN_MAX)] in ["controller/southbound/listener.rs"],
        "the oldest is closed", [Metric("bartizan_controller_requests_total")];
    Controller "time until a device has identified itself; between its keep-alives" = "{}; {}" [span(Duration::from_millis(ServerConfig::default().greeting_ms)), span(Duration::from_millis(ServerConfig::default().keep_alive_ms.into()))] in ["controller/southbound/server.rs"],
        "the connection ends", [Told("`refused` of the southbound counters, by reason")];
    Controller "one-time tokens for certificates that are wrong, of an address, in a minute; addresses that are remembered" = "{}; {}" [count(FAILURES), count(SOURCES)] in ["channel/token.rs"],
        "refused, with the time to wait; others may fail unseen", [Told("`refused` of the southbound counters, by reason")];
    Controller "bytes of an answer that `bartizan ctl` takes from a controller; time that it waits for one" = "{}; {}" [bytes(ANSWER_MAX), span(ANSWER_PATIENCE)] in ["controller/client/mod.rs"],
        "`bartizan ctl` says so and ends", [Told("an error of `bartizan ctl`")];
};
