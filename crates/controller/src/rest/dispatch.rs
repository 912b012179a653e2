// SPDX-License-Identifier: Apache-2.0
//! Handles a request in two steps: the head is checked (route, token, permission, parameters), and only then
//! is the body read, up to the bound of the route.

use super::http::{Head, Method, Reply, decode};
use super::route::{Call, Parameter, ParameterKind, Route, bad_name, is_cursor, is_file_name};
use super::tags;
use crate::access::{Principal, allowed};
use crate::controller::Controller;
use crate::counters::count;
use crate::problem::Refusal;
use crate::store::StoreError;
use std::cell::Cell;
use std::sync::Arc;

/// The API that a transport serves.
pub struct Api {
    /// The controller.
    pub controller: Arc<Controller>,
    routes: Vec<Route>,
}

/// Names with their values.
type Pairs = Vec<(String, String)>;

/// A request whose head was accepted; its body may follow.
pub struct Admitted<'a> {
    route: &'a Route,
    who: Option<Principal>,
    head: Head,
    names: Pairs,
    query: Pairs,
    /// Most bytes of the body.
    pub body_max: usize,
}

impl Admitted<'_> {
    /// The authenticated caller; `None` without a token.
    #[must_use]
    pub const fn principal(&self) -> Option<&Principal> {
        self.who.as_ref()
    }
}

impl Api {
    /// The API of a controller with a table of routes.
    #[must_use]
    pub fn new(controller: Arc<Controller>, routes: Vec<Route>) -> Self {
        Api { controller, routes }
    }

    /// The table of routes.
    #[must_use]
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Checks the head of a request.
    ///
    /// # Errors
    /// The answer, if the request is refused.
    pub fn admit(&self, head: Head) -> Result<Admitted<'_>, Reply> {
        self.admitted(head).map_err(|refusal| self.refuse(&refusal))
    }

    /// Answers an admitted request.
    #[must_use]
    pub fn answer(&self, admitted: Admitted<'_>, body: Vec<u8>) -> Reply {
        if body.len() > admitted.body_max {
            return self.refuse(&Refusal::TooLarge(admitted.body_max));
        }
        let Admitted { route, who, head, names, query, .. } = admitted;
        let changes_nothing = Cell::new(false);
        let call = Call { controller: &self.controller, who, head, names, query, body, changes_nothing };
        match self.done(route, &call) {
            Ok(reply) => {
                count(&self.controller.counters.done);
                reply
            }
            Err(refusal) => self.refuse(&refusal),
        }
    }

    fn done(&self, route: &Route, call: &Call<'_>) -> Result<Reply, Refusal> {
        if route.method == Method::Get {
            return conditional(&call.head, (route.handler)(call)?);
        }
        if let Some(who) = &call.who {
            self.controller.count_write(who)?;
        }
        let done = (route.handler)(call);
        // Counted first, so that requests at one time are no more than are allowed.
        let is_free = call.changes_nothing.get() || matches!(done, Err(Refusal::NotFound(_)));
        if let Some(who) = call.who.as_ref().filter(|_| is_free) {
            self.controller.uncount_write(who);
        }
        done
    }

    /// Checks and answers a request whose body is present.
    #[must_use]
    pub fn handle(&self, head: Head, body: Vec<u8>) -> Reply {
        match self.admit(head) {
            Ok(admitted) => self.answer(admitted, body),
            Err(reply) => reply,
        }
    }

    /// The answer to a refused request; counts the refusal, also of a request that reached no route.
    #[must_use]
    pub fn refuse(&self, refusal: &Refusal) -> Reply {
        let counters = &self.controller.counters;
        count(match refusal {
            Refusal::Malformed(_) | Refusal::MediaType(_) | Refusal::Coding(_) | Refusal::Method(_) => {
                &counters.malformed
            }
            Refusal::Wrong(_) => &counters.wrong,
            Refusal::Unknown(_) => &counters.unauthenticated,
            Refusal::Forbidden(_) => &counters.forbidden,
            Refusal::NotFound(_) => &counters.not_found,
            Refusal::Conflict(_) | Refusal::Precondition(_) => &counters.conflict,
            Refusal::TooLarge(_) | Refusal::HeadTooLarge(_) => &counters.too_large,
            Refusal::Slow(_) => &counters.timeout,
            Refusal::Quota(_) => &counters.quota,
            Refusal::Limited(_) => &counters.limited,
            Refusal::Often(_) => &counters.often,
            Refusal::Busy(_) => &counters.waiting,
            Refusal::Internal(_) | Refusal::Store(StoreError::Full | StoreError::Doubt(_)) => &counters.store,
            Refusal::Store(StoreError::Unusable { .. }) => &counters.store,
        });
        Reply::from(refusal)
    }

    fn admitted(&self, head: Head) -> Result<Admitted<'_>, Refusal> {
        // An unauthenticated caller learns nothing of the API, not even which paths exist.
        let who = self.controller.authenticate(bearer(&head), head.source)?;
        let found = self.find(&head);
        let open = found.as_ref().is_ok_and(|(route, _)| allowed(None, route.need, None, None));
        if who.is_none() && !open {
            let message = "the request has no token; send `Authorization: Bearer btz_...`".to_owned();
            return Err(Refusal::Unknown(message));
        }
        let (route, names) = found?;
        let name = |key: &str| names.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        if !allowed(who.as_ref(), route.need, name("tenant"), name("device")) {
            if let Some(who) = who.as_ref().filter(|_| route.method != Method::Get) {
                self.controller.note_refusal(who, &route.operation, &head.path);
            }
            let message = "the token's rights do not suffice; ask an administrator for a token with more";
            return Err(Refusal::Forbidden(message.to_owned()));
        }
        for (key, value) in &names {
            if let Some(message) = bad_name(value) {
                return Err(Refusal::Malformed(format!("{key}: {message}")));
            }
        }
        let query = parameters(&head.query, route.query)?;
        if let Some(who) = who.as_ref().filter(|_| route.method != Method::Get) {
            self.controller.may_write(who)?;
        }
        let coded =
            head.field("content-encoding").filter(|coding| !coding.trim().eq_ignore_ascii_case("identity"));
        if let Some(coding) = coded {
            let message = format!(
                "the content coding `{}` is not supported; send the body uncoded",
                coding.escape_debug()
            );
            return Err(Refusal::MediaType(message));
        }
        let body_max = route.body.map_or(0, |body| body.max);
        Ok(Admitted { route, who, head, names, query, body_max })
    }

    fn find(&self, head: &Head) -> Result<(&Route, Pairs), Refusal> {
        let mut methods = Vec::new();
        for route in &self.routes {
            if let Some(names) = matches(&route.path, &head.path) {
                if Some(route.method) == Method::of(&head.method) {
                    return Ok((route, names));
                }
                methods.extend((route.method == Method::Get).then_some("HEAD"));
                methods.push(route.method.name());
            }
        }
        if methods.is_empty() {
            let message = "there is no such path; GET /v1/openapi.json lists all paths, `bartizan ctl --help` explains them";
            return Err(Refusal::NotFound(message.to_owned()));
        }
        Err(Refusal::Method(methods.join(", ")))
    }
}

/// Turns the reply to a read into that of a conditional request (RFC 9110, section 13). A reply without a tag
/// gets one from its content.
fn conditional(head: &Head, reply: Reply) -> Result<Reply, Refusal> {
    let reply = match reply.field("etag") {
        Some(_) => reply,
        None => {
            let tag = tags::of_content(&reply.body);
            reply.with("etag", tag)
        }
    };
    let tag = reply.field("etag").unwrap_or_default().to_owned();
    if head.field("if-match").is_some_and(|wanted| !tags::names(wanted, &tag, tags::Comparison::Strong)) {
        return Err(Refusal::Precondition(format!(
            "the resource is at {tag}, and `If-Match` has another tag; read it again"
        )));
    }
    if head.field("if-none-match").is_some_and(|known| tags::names(known, &tag, tags::Comparison::Weak)) {
        let fields = reply.fields.into_iter().filter(|(name, _)| *name != "content-type").collect();
        return Ok(Reply { status: 304, fields, body: Vec::new() });
    }
    Ok(reply)
}

fn bearer(head: &Head) -> Option<&str> {
    let text = head.field("authorization")?;
    // Any other value counts as an unknown token.
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Some(token.trim()),
        _ => Some(text),
    }
}

/// The names in a path that matches the pattern; `None` if it does not match.
fn matches(pattern: &str, path: &str) -> Option<Pairs> {
    let (mut names, mut parts) = (Vec::new(), path.split('/'));
    for expected in pattern.split('/') {
        let part = parts.next()?;
        match expected.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            Some(name) => names.push((name.to_owned(), decode(part)?)),
            None if expected == part => {}
            None => return None,
        }
    }
    parts.next().is_none().then_some(names)
}

fn parameters(query: &str, known: &[Parameter]) -> Result<Pairs, Refusal> {
    let mut found = Pairs::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let plain = |text: &str| decode(&text.replace('+', " "));
        let (Some(name), Some(value)) = (plain(name), plain(value)) else {
            return Err(Refusal::Malformed("the query is not percent-encoded UTF-8".to_owned()));
        };
        let Some(parameter) = known.iter().find(|parameter| parameter.name == name) else {
            let names = known.iter().map(|parameter| parameter.name);
            let hint = bartizan_config::policy::did_you_mean(&name, names);
            let message = format!("there is no parameter `{}` here; {hint}", name.escape_debug());
            return Err(Refusal::Malformed(message));
        };
        if found.iter().any(|(seen, _)| *seen == name) {
            return Err(Refusal::Malformed(format!("`{name}` is given twice")));
        }
        let wanted = match parameter.kind {
            ParameterKind::Flag if !matches!(value.as_str(), "true" | "false") => {
                "`true` or `false`".to_owned()
            }
            ParameterKind::Number(from, to)
                if !value.parse().is_ok_and(|n: u64| (from..=to).contains(&n)) =>
            {
                format!("a number from {from} to {to}")
            }
            ParameterKind::Cursor | ParameterKind::NumberCursor
                if !is_cursor(&value, parameter.kind == ParameterKind::NumberCursor) =>
            {
                "the `next` of a page; begin without one".to_owned()
            }
            ParameterKind::Name if bad_name(&value).is_some() => {
                "a name: letters, digits, `-`, `_` and `.`, a letter or digit first".to_owned()
            }
            ParameterKind::FileName if !is_file_name(&value) => {
                "the name of a file: letters, digits, `-`, `_` and `.`, a letter or digit first".to_owned()
            }
            _ => {
                found.push((name, value));
                continue;
            }
        };
        return Err(Refusal::Malformed(format!("`{name}` must be {wanted}")));
    }
    Ok(found)
}
