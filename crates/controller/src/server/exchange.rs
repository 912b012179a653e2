// SPDX-License-Identifier: Apache-2.0
//! One exchange: the head is checked, the body is read within its bounds, and the handler runs in its turn.

use super::Bounds;
use super::filter::Exchange;
use super::pace::Pace;
use super::seats::{Given, Seats};
use super::turns::{Turns, administers};
use crate::access::Principal;
use crate::clock;
use crate::counters::count;
use crate::problem::Refusal;
use crate::rest::http::FIELDS;
use crate::rest::{Api, Head, Reply};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::http::uri::Authority;
use hyper::{Request, Response, StatusCode, Version};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::task::block_in_place;
use tokio::time::timeout_at;

/// Header fields of every reply.
const FIXED: &[(&str, &str)] = &[("x-content-type-options", "nosniff")];

/// The client of a connection.
pub struct RestConnection {
    number: u64,
    peer: SocketAddr,
    pub bounds: Bounds,
    pub api: Arc<Api>,
    seats: Arc<Seats>,
    turns: Arc<Turns>,
    pub exchange: Arc<Exchange>,
    /// Id of the last token that the client has shown.
    last_token: Mutex<Option<String>>,
}

impl RestConnection {
    pub fn new(
        number: u64,
        peer: SocketAddr,
        bounds: Bounds,
        api: Arc<Api>,
        seats: Arc<Seats>,
        turns: Arc<Turns>,
        exchange: Arc<Exchange>,
    ) -> Self {
        RestConnection { number, peer, bounds, api, seats, turns, exchange, last_token: Mutex::default() }
    }

    /// Counts the result of a request for a place. Returns whether there is a place.
    pub fn counts(&self, given: &Given) -> bool {
        let counters = &self.api.controller.counters;
        match given {
            Given::Free => true,
            Given::InPlaceOf(_) => {
                count(&counters.gave_way);
                true
            }
            Given::Nothing => {
                count(&counters.busy);
                false
            }
        }
    }

    /// Charges the connection's place to a token from here on. `false`: the token has its share already.
    fn shows(&self, who: &Principal) -> bool {
        let mut shown = self.last_token.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.as_ref() == Some(&who.id) {
            return true;
        }
        let fits = self.counts(&self.seats.shows(self.number, &who.id, administers(who)));
        *shown = fits.then(|| who.id.clone());
        fits
    }
}

/// Serves one request.
pub async fn respond(request: Request<Incoming>, client: &RestConnection) -> Response<Full<Bytes>> {
    client.exchange.begin();
    let is_head = request.method() == hyper::Method::HEAD;
    let (reply, close) = match answer(request, client).await {
        Ok(reply) => (reply, false),
        Err(ImmediateReply { reply, close }) => (reply, close),
    };
    let (length, has_no_content) = (reply.body.len(), matches!(reply.status, 204 | 304));
    client.exchange.announce_reply(if is_head || has_no_content { 0 } else { length });
    let mut response = on_the_wire(reply, close);
    if is_head && !has_no_content {
        // Also where the body would be empty. A 304 has no length but that of the 200 (RFC 9110, 8.6).
        response.headers_mut().insert(hyper::header::CONTENT_LENGTH, length.into());
    }
    response
}

/// A reply made before the handler ran.
struct ImmediateReply {
    reply: Reply,
    /// Whether the connection has to close, because an unread body comes before the next request.
    close: bool,
}

async fn answer(request: Request<Incoming>, client: &RestConnection) -> Result<Reply, ImmediateReply> {
    let api = &client.api;
    let (parts, body) = request.into_parts();
    // An unread body must be read before the next request, or the connection ends.
    let close = !body.is_end_stream();
    let ended = |reply| ImmediateReply { reply, close };
    let refused = |refusal: &Refusal| ended(api.refuse(refusal));
    host(&parts).map_err(|message| refused(&Refusal::Malformed(message)))?;
    one_token(&parts).and_then(|()| codings(&parts)).map_err(|refusal| ImmediateReply {
        // Where the body ends is not known.
        close: true,
        ..refused(&refusal)
    })?;
    let head = head(&parts, client.peer);
    let admitted = api.admit(head.clone()).map_err(ended)?;
    let (max, who) = (admitted.body_max, admitted.principal().cloned());
    if who.as_ref().is_some_and(|who| !client.shows(who)) {
        let most = client.bounds.seats.by_token;
        let reply = api.refuse(&Refusal::Busy(format!(
            "too many connections of this token (at most {most}), or of all tokens without administrator rights, and each has a request under way: send several requests on one connection, or try again"
        )));
        return Err(ImmediateReply { reply, close: true });
    }
    let body = read(body, max, client).await.map_err(|refusal| refused(&refusal))?;
    // Checked again with the handler: a token may have been revoked while the body arrived.
    let answered = {
        let _turn = client.turns.take(who.as_ref()).await;
        // Runs in this thread, whose other connections move to another thread meanwhile: no thread has to be
        // woken for the request or its answer.
        block_in_place(|| catch_unwind(AssertUnwindSafe(|| api.handle(head, body))))
    };
    answered.map_err(|_| {
        let message =
            "the request caused an internal error, which the controller's log describes; please report it";
        ImmediateReply { reply: api.refuse(&Refusal::Internal(message.to_owned())), close: true }
    })
}

/// Reads a body; refuses too large a length before the client is told to continue.
async fn read(mut body: Incoming, max: usize, client: &RestConnection) -> Result<Vec<u8>, Refusal> {
    let said = body.size_hint().lower();
    if said > max as u64 {
        return Err(Refusal::TooLarge(max));
    }
    let mut pace = Pace::new(Instant::now(), client.bounds.patience, client.bounds.rate_min);
    let mut bytes = Vec::new();
    loop {
        let frame = match timeout_at(pace.deadline().into(), body.frame()).await {
            Ok(None) => return Ok(bytes),
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => {
                return Err(Refusal::Malformed(format!("the body is not valid HTTP: {error}")));
            }
            Err(_) => {
                let (rate, patience) = (client.bounds.rate_min, client.bounds.patience.as_secs());
                return Err(Refusal::Slow(format!(
                    "the body arrives too slowly: it may take {patience} s, and one more second for each {rate} bytes received"
                )));
            }
        };
        let Some(data) = frame.data_ref() else { continue };
        if data.len() > max.saturating_sub(bytes.len()) {
            return Err(Refusal::TooLarge(max));
        }
        pace.received(data.len());
        bytes.extend_from_slice(data);
    }
}

/// Checks that there is exactly one `Host`, and that it is valid (RFC 9112, section 3.2).
fn host(parts: &hyper::http::request::Parts) -> Result<(), String> {
    let mut all = parts.headers.get_all(hyper::header::HOST).iter();
    let says = match (all.next(), all.next(), parts.version) {
        (_, Some(_), _) => "the request has more than one `Host`",
        (Some(host), None, _) => {
            let is_host = |text: &str| !text.contains('@') && text.parse::<Authority>().is_ok();
            match host.to_str().is_ok_and(is_host) {
                true => return Ok(()),
                false => "`Host` is not a host",
            }
        }
        (None, None, Version::HTTP_11) => "`Host` is missing",
        (None, None, _) => return Ok(()),
    };
    Err(format!("{says}; send it once, with the host that the request is for: `Host: localhost:9443`"))
}

/// A token stands in one field (RFC 9110, 5.3: fields of no list do not come twice).
fn one_token(parts: &hyper::http::request::Parts) -> Result<(), Refusal> {
    match parts.headers.get_all(hyper::header::AUTHORIZATION).iter().nth(1) {
        None => Ok(()),
        Some(_) => {
            let message = "the request has more than one `Authorization`; send one token";
            Err(Refusal::Malformed(message.to_owned()))
        }
    }
}

/// Checks that a body is in chunks and in no other transfer coding (RFC 9112, 6.1).
fn codings(parts: &hyper::http::request::Parts) -> Result<(), Refusal> {
    let fields = parts.headers.get_all(hyper::header::TRANSFER_ENCODING);
    let texts = fields.iter().map(|value| value.to_str().unwrap_or("?"));
    let all: Vec<&str> =
        texts.flat_map(|text| text.split(',')).map(str::trim).filter(|coding| !coding.is_empty()).collect();
    if let Some(other) = all.iter().find(|coding| !coding.eq_ignore_ascii_case("chunked")) {
        return Err(Refusal::Coding(format!(
            "the transfer coding `{}` is not supported; send the body uncoded, or in chunks",
            other.escape_debug()
        )));
    }
    match all.len() {
        0 | 1 => Ok(()),
        _ => Err(Refusal::Malformed(
            "the request names the transfer coding `chunked` twice; name it once".to_owned(),
        )),
    }
}

fn head(parts: &hyper::http::request::Parts, peer: SocketAddr) -> Head {
    // Fields of one name are joined (RFC 9110); a value that is no text counts as unknown.
    let field = |name: &'static str| {
        let values = parts.headers.get_all(name);
        let texts: Vec<&str> = values.iter().map(|value| value.to_str().unwrap_or("?")).collect();
        (!texts.is_empty()).then(|| (name, texts.join(", ")))
    };
    Head {
        method: parts.method.as_str().to_owned(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        fields: FIELDS.iter().filter_map(|name| field(name)).collect(),
        source: peer.ip(),
    }
}

fn on_the_wire(reply: Reply, close: bool) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(reply.body)));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let fields = reply.fields.iter().map(|(name, value)| (*name, value.as_str()));
    let more = close.then_some(("connection", "close"));
    for (name, value) in fields.chain(more).chain(FIXED.iter().copied()) {
        if let Ok(value) = hyper::header::HeaderValue::from_str(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// The bytes of a reply to malformed input, after which the connection ends. `now`: microseconds since 1970.
pub fn bytes(reply: &Reply, now: u64) -> Vec<u8> {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut text =
        format!("HTTP/1.1 {} {}\r\n", status.as_u16(), status.canonical_reason().unwrap_or_default());
    let own = [
        ("connection", "close".to_owned()),
        ("content-length", reply.body.len().to_string()),
        ("date", clock::http_date(now)),
    ];
    let fixed = FIXED.iter().map(|(name, value)| (*name, (*value).to_owned()));
    for (name, value) in reply.fields.iter().cloned().chain(own).chain(fixed) {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    [text.into_bytes(), reply.body.clone()].concat()
}
