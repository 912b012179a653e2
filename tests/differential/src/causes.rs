// SPDX-License-Identifier: Apache-2.0
//! Causes of intended differences: each checks the evidence of its cause, so that a fault with other evidence
//! is not excused. docs/limits.md has the reasons.

use crate::answer::Answer;
use crate::finding::{Alert, Finding, FlowKey, What};
use crate::pair::{Body, Pair, Rule};
use crate::passage::{Passage, ahead, key};
use bartizan_testkit::packet::{ACK, FIN, RST, SYN, URG};

/// First bytes of requests.
pub(crate) const REQUESTS: [&[u8]; 6] = [b"GET /", b"POST /", b"PUT /", b"HEAD /", b"DELETE /", b"OPTIONS /"];

/// A pair on which the two answers differ.
pub struct Case<'c> {
    /// The pair.
    pub pair: &'c Pair,
    /// The pair's packets and frames.
    pub passage: Passage<'c>,
    /// Run in prevention.
    pub ips: bool,
    /// This program's alerts.
    pub ours: Vec<Alert>,
    /// Suricata's alerts.
    pub theirs: Vec<Alert>,
    /// The differing findings.
    pub findings: Vec<Finding>,
    /// This program's answer.
    pub got: &'c Answer,
}

impl Case<'_> {
    pub(crate) fn rule(&self, alert: &Alert) -> Option<&Rule> {
        self.pair.rules.get(alert.rule)
    }

    /// Whether an option of an alert's rule begins with one of these words.
    pub(crate) fn asks(&self, alert: &Alert, words: &[&str]) -> bool {
        let begins = |option: &String| words.iter().any(|word| option.starts_with(word));
        self.rule(alert).is_some_and(|rule| rule.options.iter().any(begins))
    }

    /// Whether an alert's rule inspects a buffer of a protocol.
    pub(crate) fn is_on_buffers(&self, alert: &Alert) -> bool {
        const BUFFERS: &[&str] = &["http", "dns.", "tls.", "ja3", "ja4", "file", "uricontent"];
        self.asks(alert, BUFFERS) || self.is_on_body(alert)
    }

    /// Whether an alert's rule inspects a part of an HTTP message, also with a modifier after its content.
    pub(crate) fn is_on_http(&self, alert: &Alert) -> bool {
        let modified = |option: &String| option.contains("; http_");
        self.asks(alert, &["http", "uricontent", "urilen"])
            || self.rule(alert).is_some_and(|rule| rule.options.iter().any(modified))
    }

    pub(crate) fn is_on_body(&self, alert: &Alert) -> bool {
        const BODIES: &[&str] = &["http.request_body", "http.response_body", "file.data", "file_data"];
        let of_option = |option: &String| {
            option.contains("http_client_body")
                || option.contains("http_server_body")
                || option.starts_with("pcre:") && option.trim_end_matches('"').ends_with(['P', 'Q'])
        };
        self.asks(alert, BODIES) || self.rule(alert).is_some_and(|rule| rule.options.iter().any(of_option))
    }

    /// Whether this program has an alert earlier than the other program has a like one: only the time
    /// differs.
    pub(crate) fn comes_earlier(&self, finding: &Finding) -> bool {
        let What::Alert(alert) = &finding.what else { return false };
        self.findings.iter().any(|other| match &other.what {
            What::Alert(there) if there.is_like(alert) && other.more != finding.more => {
                let (ours, theirs) = if finding.more { (alert, there) } else { (there, alert) };
                ours.place() < theirs.place()
            }
            _ => false,
        })
    }

    /// Whether an alert's rule inspects payloads, and only for content that must be absent.
    pub(crate) fn only_denies(&self, alert: &Alert) -> bool {
        let negated = |option: &String| {
            let looks = ["content:", "pcre:", "isdataat:"].iter().find_map(|word| option.strip_prefix(word));
            looks.map(|argument| argument.starts_with('!'))
        };
        let looks: Vec<bool> =
            self.rule(alert).into_iter().flat_map(|rule| &rule.options).filter_map(negated).collect();
        !looks.is_empty() && looks.iter().all(|negated| *negated) && !self.is_on_buffers(alert)
    }

    /// Whether both programs block an alert's flow with the same later packet, before anything else would
    /// follow.
    pub(crate) fn is_refused_behind(&self, alert: &Alert) -> bool {
        let refuses = |one: &&Alert| one.blocked && one.flow == alert.flow && one.place() > alert.place();
        self.theirs
            .iter()
            .filter(refuses)
            .any(|one| self.ours.iter().filter(refuses).any(|ours| ours.place() == one.place()))
    }

    /// Whether this program has raised a like alert before.
    fn was_told(&self, alert: &Alert) -> bool {
        self.ours.iter().any(|one| one.is_like(alert) && one.place() < alert.place())
    }

    /// Whether this program has no alert in an alert's flow from this alert on, as after a `pass` on the
    /// flow.
    pub(crate) fn is_quiet(&self, alert: &Alert) -> bool {
        !self.ours.iter().any(|one| one.flow == alert.flow && one.place() >= alert.place())
    }

    /// Whether the flow of a finding (an alert, a frame or a record) meets a condition.
    pub(crate) fn concerns(&self, finding: &Finding, is: impl Fn(FlowKey) -> bool) -> bool {
        match &finding.what {
            What::Alert(alert) => is(alert.flow),
            What::Drop(frame, _) => {
                frame.and_then(|frame| self.passage.packet(frame)).is_some_and(|(_, packet)| is(key(packet)))
            }
            What::Record(_) => match finding.flow {
                Some(flow) => is(flow),
                None => self.passage.flows().any(is),
            },
        }
    }
}

pub(crate) fn told_once(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Record(name) = &finding.what else { return None };
    let is = !finding.more && name.starts_with("anomaly:") && case.got.has(name);
    is.then_some("an event of a transaction is told once, also when Suricata's parser raises it twice")
}

/// A `pass` on a body ends inspection of its flow when the bytes arrive; Suricata waits for more of the body,
/// and alerts until then.
pub(crate) fn passed_by_a_body(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let at = alert.frame.and_then(|frame| case.passage.packet(frame)).map_or(usize::MAX, |(at, _)| at + 1);
    let passes = case
        .pair
        .rules
        .iter()
        .enumerate()
        .any(|(rule, text)| text.action == "pass" && case.is_on_body(&Alert { rule, ..alert.clone() }));
    let body = |to_server: bool| {
        let said = case.passage.said_before(alert.flow, to_server, at);
        let head = said.windows(4).position(|end| end == b"\r\n\r\n").map(|head| head + 4);
        let head = head.or_else(|| said.windows(2).position(|end| end == b"\n\n").map(|head| head + 2));
        head.is_some_and(|head| said.len() > head)
    };
    let is = case.ips && !finding.more && passes && case.is_quiet(alert) && (body(true) || body(false));
    is.then_some("prevention looks at bodies as they come: a `pass` on one holds from there on; Suricata's holds when there is more of the body")
}

/// A handshake message of unknown type is reported when its head is there; Suricata waits for the announced
/// length.
pub(crate) fn message_of_no_type(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const TYPES: &[u8] = &[0, 1, 2, 4, 11, 12, 13, 14, 15, 16, 20, 21, 22];
    let What::Record(name) = &finding.what else { return None };
    let large = |flow: FlowKey| {
        [true, false].into_iter().any(|to_server| match case.passage.first(flow, to_server, 9).as_slice() {
            [0x16, 3, _, long, short, kind, high, middle, low] => {
                let (record, said) = ([0, 0, *long, *short], [0, *high, *middle, *low]);
                !TYPES.contains(kind) && u32::from_be_bytes(said) > u32::from_be_bytes(record)
            }
            _ => false,
        })
    };
    let is = case.ips
        && finding.more
        && name == "anomaly:INVALID_HANDSHAKE_MESSAGE"
        && case.concerns(finding, large);
    is.then_some("a TLS handshake message of no known type is an event before all of it is there")
}

pub(crate) fn closes_early(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let is = match &finding.what {
        What::Record(name) => {
            (finding.more, name.as_str()) == (false, "flow:TCP:-")
                || (finding.more, name.as_str()) == (true, "flow:TCP:failed")
        }
        What::Alert(alert) => {
            let decides = |option: &String| {
                option.starts_with("app-layer-protocol:!") || option.starts_with("app-layer-protocol:failed")
            };
            let failed = case
                .findings
                .iter()
                .any(|one| one.more && matches!(&one.what, What::Record(name) if name == "flow:TCP:failed"));
            // The condition also holds for the other side once the protocol of one side is known to be none.
            let known = if finding.more { case.got.has("flow:TCP:failed") } else { failed };
            let unknown = known && case.asks(alert, &["app-layer-protocol:unknown"]);
            // A rule that matches once has matched by then.
            let here = finding.more || case.comes_earlier(finding);
            unknown || here && case.rule(alert).is_some_and(|rule| rule.options.iter().any(decides))
        }
        What::Drop(..) => false,
    };
    (case.ips && is)
        .then_some("in prevention detection of the protocol ends as soon as no more bytes can tell")
}

/// Prevention waits for a request that no pattern recognises: a side that may still send one keeps detection
/// open until the flow ends.
pub(crate) fn stays_open(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const DNS: u16 = 53;
    let is = match &finding.what {
        What::Record(name) => {
            matches!((finding.more, name.as_str()), (true, "flow:TCP:-") | (false, "flow:TCP:failed"))
        }
        What::Alert(alert) => finding.more && case.asks(alert, &["app-layer-protocol:unknown"]),
        What::Drop(..) => false,
    };
    let refused = |flow: FlowKey| {
        case.got.names().any(|name| match What::read(name) {
            What::Drop(Some(frame), reason) => {
                let of = case.passage.packet(frame).map(|(_, packet)| key(packet));
                reason == "flow.drop" && of == Some(flow)
            }
            _ => false,
        })
    };
    // An alert's packet tells which data was known by then.
    let at = match &finding.what {
        What::Alert(Alert { frame: Some(frame), .. }) => case.passage.packet(*frame).map(|(at, _)| at + 1),
        _ => None,
    };
    let at = at.unwrap_or(usize::MAX);
    let open = |flow: FlowKey| {
        refused(flow) || case.passage.awaits_more(flow, DNS) || case.passage.may_become_a_request(flow, at)
    };
    (case.ips && is && case.concerns(finding, open)).then_some(
        "in prevention detection stays open for bytes that may yet become a request, until the flow is refused or over",
    )
}

pub(crate) fn held_until_known(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let is = matches!(&finding.what, What::Drop(_, reason) if finding.more && reason == "protocol_open");
    (case.ips && is)
        .then_some("prevention holds first bytes until their protocol is known, where a rule asks for it")
}

/// Suricata 8.0.8 exposes a side's random only once the other side's is there, and zeros before a side has
/// sent data.
pub(crate) fn random_of_the_other_side(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    // Header of a record, header of a message, a version and the random.
    const RANDOM: usize = 5 + 4 + 2 + 32;
    let silent =
        |to_server: bool, at: usize| case.passage.said_before(alert.flow, to_server, at).len() < RANDOM;
    let at = alert.frame.and_then(|frame| case.passage.packet(frame)).map_or(usize::MAX, |(at, _)| at);
    // If this program has alerted before, Suricata does so when the other side's random is there.
    // The random of a broken hello is inspected when the connection ends.
    let broken =
        case.got.has("anomaly:HANDSHAKE_INVALID_LENGTH") && case.ours.iter().any(|one| one.is_like(alert));
    // A rule for both sides that counts has counted Suricata's zeros for the silent side.
    let counted = || {
        case.asks(alert, &["detection_filter", "threshold"])
            && case.rule(alert).is_some_and(|rule| rule.head.contains("<>"))
            && case.ours.iter().any(|one| (one.rule, one.flow) == (alert.rule, alert.flow))
            && case.passage.of_flow(alert.flow).take_while(|(place, _)| *place < at).any(|(place, packet)| {
                let (own, other) = (alert.to_server, !alert.to_server);
                packet.to_server == other && silent(other, place) && !silent(own, place)
            })
    };
    let is = case.asks(alert, &["tls.random"])
        && (finding.more || silent(alert.to_server, at) || case.was_told(alert) || broken || counted());
    is.then_some(
        "`tls.random` is looked at when its own side has sent it; Suricata waits for the other side's",
    )
}

pub(crate) fn state_of_the_handshake(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let is = (finding.more || case.comes_earlier(finding)) && case.asks(alert, &["ssl_state"]);
    is.then_some("`ssl_state` is asked again while the handshake goes on; Suricata gives up what did not hold when it first asked")
}

/// Whether a packet has none of the flags of a kind that a rule negates.
fn lacks(option: &str, flags: u16) -> bool {
    let unwanted = option.strip_prefix("flags:!").and_then(|rest| rest.split(',').next()).unwrap_or_default();
    let ends = unwanted.contains(['S', 'F', 'R']) && flags & (SYN | FIN | RST) == 0;
    let rare = unwanted.contains(['U', 'E', 'C']) && flags & (URG | 0xc0) == 0;
    ends || rare
}

/// A `pass` rule with negated flags holds for a packet that has none of their kind.
pub(crate) fn passed_without_flags(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let (_, _, segment) = case.passage.segment(alert.frame?)?;
    let passes =
        |rule: &Rule| rule.action == "pass" && rule.options.iter().any(|option| lacks(option, segment.flags));
    // A `pass` on a packet keeps all other rules from alerting on it.
    let quiet = !case.ours.iter().any(|one| (one.frame, one.flow) == (alert.frame, alert.flow));
    (!finding.more && !segment.load.is_empty() && quiet && case.pair.rules.iter().any(passes))
        .then_some("a `pass` with `flags:!` holds for packets without any flag of that kind; Suricata does not look at those")
}

/// A drop rule without alerts on the state of the handshake is evaluated with each packet.
pub(crate) fn silent_on_the_handshake(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Drop(Some(frame), reason) = &finding.what else { return None };
    let silent = |rule: &Rule| {
        let has = |word: &str| rule.options.iter().any(|option| option.starts_with(word));
        matches!(rule.action, "drop" | "reject") && has("noalert") && has("ssl_state")
    };
    let flow = key(case.passage.packet(*frame)?.1);
    // This program drops first: a packet without data of a flow in which a side has begun a handshake.
    let before = case.findings.iter().any(|other| match &other.what {
        What::Drop(Some(first), reason) if other.more && first <= frame && reason == "rules" => {
            let Some((at, packet, segment)) = case.passage.segment(*first) else { return false };
            let begun = |to_server| case.passage.said_before(flow, to_server, at).starts_with(&[0x16, 3]);
            key(packet) == flow && segment.load.is_empty() && (begun(true) || begun(false))
        }
        _ => false,
    });
    let kind = matches!((finding.more, reason.as_str()), (true, "rules" | "flow.drop") | (false, "rules"));
    (case.ips && kind && before && case.pair.rules.iter().any(silent))
        .then_some("`ssl_state` holds for packets without data, too, once the handshake is there")
}

/// Suricata takes the number of a variable for a depth that `dsize` bounds, and then reads another variable.
pub(crate) fn depth_that_varies(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let varies = |option: &String| {
        option.strip_prefix("depth:").is_some_and(|depth| !depth.starts_with(|c: char| c.is_ascii_digit()))
    };
    let is = finding.more && case.asks(alert, &["dsize:"]) && case.rule(alert)?.options.iter().any(varies);
    is.then_some("`depth` by a variable holds beside `dsize`; Suricata then reads another variable")
}

/// Suricata evaluates a rule with negated flags only if the packet has a flag of their kind.
pub(crate) fn flags_that_are_not_there(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let (_, _, segment) = case.passage.segment(alert.frame?)?;
    let is = finding.more && case.rule(alert)?.options.iter().any(|option| lacks(option, segment.flags));
    is.then_some("`flags:!` holds for packets without any flag of that kind; Suricata does not look at those")
}

/// Suricata extracts the number from the value before the transform.
pub(crate) fn behind_a_transform(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let rule = match &finding.what {
        What::Alert(alert) => alert.rule,
        What::Record(name) if !finding.more => name.strip_prefix("refused:")?.parse().ok()?,
        _ => return None,
    };
    let options = &case.pair.rules.get(rule)?.options;
    let extract = options.iter().position(|option| option.starts_with("byte_extract"))?;
    let is = options
        .iter()
        .take(extract)
        .any(|option| crate::usual::TRANSFORMS.iter().any(|transform| option.starts_with(transform)));
    is.then_some(
        "`byte_extract` behind a transform reads the transformed value; Suricata reads the one before",
    )
}

pub(crate) fn data_of_a_syn(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let refused = matches!(&finding.what, What::Drop(_, reason) if reason == "stream.error");
    let is = (finding.more || refused) && case.concerns(finding, |flow| case.passage.has_data_with_syn(flow));
    (case.ips && is).then_some("prevention inspects data that comes with a SYN, since it leaves")
}

/// In prevention a connection of which one side is seen has a protocol, and the records of it.
pub(crate) fn one_sided(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let unknown = |alert: &Alert| !finding.more && case.asks(alert, &["app-layer-protocol:unknown"]);
    let counts = finding.more || matches!(&finding.what, What::Alert(alert) if unknown(alert));
    let is = counts && case.concerns(finding, |flow| case.passage.is_one_sided(flow));
    (case.ips && is)
        .then_some("prevention inspects connections of which one side is seen, since their bytes leave")
}

pub(crate) fn asked_again(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let gives_up = |other: &Finding| {
        !other.more && matches!(&other.what, What::Record(name) if name == "flow:UDP:failed")
    };
    let is = match &finding.what {
        What::Record(name) => matches!(
            (finding.more, name.as_str()),
            (true, "dns" | "flow:UDP:dns") | (false, "flow:UDP:failed")
        ),
        What::Alert(alert) => {
            let of_dns = case.rule(alert)?.head.starts_with("dns ") || case.asks(alert, &["dns."]);
            finding.more && of_dns && case.findings.iter().any(gives_up)
        }
        What::Drop(..) => false,
    };
    (case.ips && is && !case.got.has("flow:UDP:failed") && case.got.has("flow:UDP:dns"))
        .then_some("in prevention each datagram of an unknown flow is asked what it is")
}

/// A reset that its receiver rejects changes nothing: the following data is inspected as part of the stream.
/// Suricata inspects single packets then.
pub(crate) fn behind_a_reset(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    if !case.ips || !finding.more && !matches!(finding.what, What::Alert(_)) {
        return None;
    }
    let goes_on = |flow: FlowKey, upto: usize| {
        let reset = case.passage.reset(flow).filter(|reset| *reset < upto);
        reset.is_some_and(|reset| {
            case.passage.of_flow(flow).any(|(at, packet)| {
                at > reset && crate::passage::segment(packet).is_some_and(|one| !one.load.is_empty())
            })
        })
    };
    let is = match &finding.what {
        What::Alert(Alert { frame: Some(frame), flow, .. }) => {
            case.passage.packet(*frame).is_some_and(|(at, _)| goes_on(*flow, at))
        }
        What::Alert(alert) => goes_on(alert.flow, usize::MAX),
        // A drop here drops the flow, whose stream goes on.
        What::Drop(Some(frame), reason) if reason == "flow.drop" => {
            let refused = |flow: FlowKey| {
                case.ours.iter().any(|alert| {
                    let at = alert.frame.and_then(|frame| case.passage.packet(frame));
                    let first = case.theirs.contains(alert) && alert.place() < *frame;
                    alert.blocked
                        && alert.flow == flow
                        && first
                        && at.is_some_and(|(at, _)| goes_on(flow, at))
                })
            };
            case.passage.packet(*frame).is_some_and(|(_, packet)| refused(key(packet)))
        }
        What::Drop(..) => false,
        What::Record(_) => case.concerns(finding, |flow| goes_on(flow, usize::MAX)),
    };
    is.then_some("what leaves behind a reset is inspected: its receiver may not have taken the reset")
}

pub(crate) fn behind_a_hole(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let (at, _, segment) = case.passage.segment(alert.frame?)?;
    let edge = case.passage.contiguous(alert.flow, alert.to_server, at)?;
    // If the hole is filled later, this program must have alerted then.
    let end = case.passage.contiguous(alert.flow, alert.to_server, usize::MAX)?;
    let later = |one: &Alert| one.is_like(alert) && one.place() > alert.place();
    let looked_at = ahead(segment.seq, end) > 0 || case.ours.iter().any(later);
    let is =
        case.ips && !finding.more && !segment.load.is_empty() && ahead(segment.seq, edge) > 0 && looked_at;
    is.then_some("inline what lies behind a hole is looked at when the hole is filled: its receiver cannot read it before")
}

pub(crate) fn sent_again(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let (at, _, segment) = case.passage.segment(alert.frame?)?;
    let edge = case.passage.contiguous(alert.flow, alert.to_server, at)?;
    let end = segment.seq.wrapping_add(segment.load.len() as u32);
    // A rule that counts may have matched before without an alert.
    let told = case.was_told(alert) || case.asks(alert, &["detection_filter", "threshold"]);
    let is = case.ips && !finding.more && !segment.load.is_empty() && ahead(end, edge) <= 0 && told;
    is.then_some("a segment without new bytes is not inspected again: it leaves with the bytes that were")
}

pub(crate) fn body_before_it_leaves(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    // A part of the body is there with this program's alert.
    let begun = |ours: &Alert| {
        let Some(frame) = ours.frame else { return true };
        let Some((at, _)) = case.passage.packet(frame) else { return false };
        let said = case.passage.said_before(ours.flow, ours.to_server, at + 1);
        let lines = said.windows(4).position(|end| end == b"\r\n\r\n").map(|head| head + 4);
        let line = said.windows(2).position(|end| end == b"\n\n").map(|head| head + 2);
        let head = lines.into_iter().chain(line).min();
        // A message without a head is a body as a whole.
        head.map_or(!said.is_empty() && !ours.to_server && !said.starts_with(b"HTTP/"), |head| {
            said.len() > head
        })
    };
    let first = case.findings.iter().find_map(|one| match &one.what {
        What::Alert(there) if one.more && there.is_like(alert) => Some(there),
        _ => None,
    });
    if !first.is_some_and(begun) {
        return None;
    }
    // Or Suricata has blocked the flow by then, and this program blocks it with the same packet.
    let refused = |one: &Alert| one.blocked && one.flow == alert.flow && one.place() <= alert.place();
    let here = |one: &Alert| refused(one) && one.place() == alert.place();
    let over = finding.more && case.theirs.iter().any(refused) && case.ours.iter().any(here);
    let over = over || finding.more && case.is_refused_behind(alert);
    // Or it is another packet, for which other conditions of the rule differ.
    let over = over || finding.more && case.asks(alert, &["stream_size:", "flow.pkts", "flow.bytes"]);
    // Or the part comes in a reassembled datagram, which is not a frame.
    let ours = |one: &Finding, there: &Alert| one.more && there.frame.is_none() && there.is_like(alert);
    let theirs = |one: &Finding, there: &Alert| !one.more && there.is_like(alert);
    let some = |is: &dyn Fn(&Finding, &Alert) -> bool| {
        case.findings.iter().any(|one| matches!(&one.what, What::Alert(there) if is(one, there)))
    };
    let fragments = |(_, packet): (usize, &crate::pair::Packet)| {
        packet.to_server == alert.to_server && packet.fragments.is_some()
    };
    let over = over || some(&ours) && some(&theirs) && case.passage.of_flow(alert.flow).any(fragments);
    let is = case.ips && case.is_on_body(alert) && (case.comes_earlier(finding) || over);
    is.then_some(
        "prevention looks at bodies as they come, before they leave; Suricata waits for more of them",
    )
}

/// A line that ends with its segment: libhtp waits for the next one.
pub(crate) fn line_that_is_over(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const RECENT: usize = 3;
    let What::Alert(alert) = &finding.what else { return None };
    let ours = if finding.more {
        alert
    } else {
        case.findings.iter().filter(|other| other.more).find_map(|other| match &other.what {
            What::Alert(there) if there.is_like(alert) && there.place() < alert.place() => Some(there),
            _ => None,
        })?
    };
    let (at, _) = case.passage.packet(ours.frame?)?;
    let before: Vec<_> = case.passage.before(ours.flow, ours.to_server, at + 1).collect();
    let mut recent = before.iter().rev().filter(|one| !one.load.is_empty()).take(RECENT);
    // The last chunk has a line, too.
    let chunked = || {
        let said = case.passage.said(ours.flow, ours.to_server).to_ascii_lowercase();
        case.is_on_body(alert) && said.windows(7).any(|word| word == b"chunked")
    };
    let is = (case.is_on_http(alert) || chunked())
        && case.comes_earlier(finding)
        && recent.any(|one| one.load.ends_with(b"\n") || one.load.ends_with(b"\r"));
    is.then_some("a line of HTTP that ends with its segment is looked at when it is known to be over; Suricata waits for the next line")
}

/// After a line with a lone CR, only the next byte decides whether this line is the last one.
pub(crate) fn line_before_a_return(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let (ours, theirs) = case.findings.iter().find_map(|other| match &other.what {
        What::Alert(there) if there.is_like(alert) && other.more != finding.more => {
            Some(if finding.more { (alert, there) } else { (there, alert) })
        }
        _ => None,
    })?;
    let (at, _) = case.passage.packet(ours.frame?)?;
    let before: Vec<_> = case.passage.before(ours.flow, ours.to_server, at).collect();
    let is = ours.place() > theirs.place()
        && (case.is_on_http(alert) || case.is_on_body(alert))
        && before
            .iter()
            .rev()
            .filter(|one| !one.load.is_empty())
            .take(2)
            .any(|one| one.load.ends_with(b"\r"));
    is.then_some(
        "a line of HTTP with a CR behind it waits for the next byte, which says whether it was the last one",
    )
}

/// TLS is detected from the server's side if the client's first bytes are missing; Suricata gives the
/// connection up.
pub(crate) fn other_side_first(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const WRONG: &str = "anomaly:APPLAYER_WRONG_DIRECTION_FIRST_DATA";
    let given_up = case
        .findings
        .iter()
        .any(|other| !other.more && matches!(&other.what, What::Record(name) if name == WRONG));
    // The beginning of the flow is missing, or was acknowledged before it arrived.
    let headless = |flow: FlowKey| {
        let first = case.passage.before(flow, true, usize::MAX).find(|one| one.flags & SYN != 0);
        let edge = case.passage.contiguous(flow, true, usize::MAX);
        !case.passage.of_flow(flow).any(|(_, packet)| packet.to_server)
            || first.zip(edge).is_some_and(|(first, edge)| first.seq.wrapping_add(1) == edge)
            || crate::lost::begins_late(case, flow)
    };
    let is = match &finding.what {
        What::Record(name) => finding.more || name == WRONG || name == "flow:TCP:failed",
        // A connection that Suricata has given up has no protocol, in either direction.
        What::Alert(alert) => {
            finding.more || case.asks(alert, &["app-layer-protocol:!", "app-layer-protocol:failed"])
        }
        What::Drop(..) => finding.more,
    };
    (given_up && case.concerns(finding, headless) && is)
        .then_some("a protocol is known from the server's side where the client's first bytes are missing; Suricata gives the connection up")
}

pub(crate) fn chunked_trailer(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let on_headers = |option: &String| {
        option.starts_with("http.header") && !option.contains("http.header_")
            || option.contains("http_header")
    };
    // The bytes as they are read: a keep-alive repeats one byte.
    const MOST: u32 = 1 << 13;
    let said = [
        case.passage.said(alert.flow, alert.to_server),
        case.passage.first(alert.flow, alert.to_server, MOST),
    ]
    .concat()
    .to_ascii_lowercase();
    // Both have alerted on a reassembled datagram, which is not a packet of the capture.
    let in_fragments = || {
        let at = alert.frame.and_then(|frame| case.passage.packet(frame)).map_or(usize::MAX, |(at, _)| at);
        let told = |all: &[Alert]| all.iter().any(|one| one.is_like(alert) && one.frame.is_none());
        let mut before = case.passage.of_flow(alert.flow).take_while(|(place, _)| *place < at);
        told(&case.ours) && told(&case.theirs) && before.any(|(_, packet)| packet.fragments.is_some())
    };
    // A rule that counts has matched before without an alert: it alerts when the last chunk has arrived.
    let counted = || {
        let at = alert.frame.and_then(|frame| case.passage.packet(frame)).map_or(usize::MAX, |(at, _)| at);
        let so_far = case.passage.said_before(alert.flow, alert.to_server, at.saturating_add(1));
        let over = so_far.windows(5).any(|end| end == b"\n0\r\n\r")
            || so_far.windows(4).any(|end| end == b"\n0\n\n");
        case.asks(alert, &["detection_filter", "threshold"]) && over
    };
    let is = !finding.more
        && case.rule(alert)?.options.iter().any(on_headers)
        && (case.was_told(alert) || in_fragments() || counted())
        && said.windows(7).any(|word| word == b"chunked");
    is.then_some(
        "a rule matches the headers of a message once; Suricata matches them again behind a chunked body",
    )
}

pub(crate) fn shown_twice(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    // A rule that counts may have matched before without an alert.
    let told = case.was_told(alert) || case.asks(alert, &["detection_filter", "threshold"]);
    let at = alert.frame.and_then(|frame| case.passage.packet(frame)).map_or(usize::MAX, |(at, _)| at);
    let ended =
        case.passage.of_flow(alert.flow).take_while(|(place, _)| *place <= at).any(|(_, packet)| {
            crate::passage::segment(packet).is_some_and(|one| one.flags & (FIN | RST) != 0)
        }) || alert.frame.is_none();
    let is = !case.ips
        && !finding.more
        && !case.is_on_buffers(alert)
        && told
        && ended
        && case.passage.has_hole(alert.flow, alert.to_server);
    is.then_some("data behind a hole is looked at once; Suricata looks at it again when the connection ends")
}

/// A segment far ahead moves the next sequence number that Suricata expects.
pub(crate) fn end_in_order(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Drop(Some(frame), reason) = &finding.what else {
        let What::Record(name) = &finding.what else { return None };
        // The flow's record differs together with the drop.
        let other = |one: &Finding| matches!(one.what, What::Drop(..)) && end_in_order(case, one).is_some();
        return (name.starts_with("flow:TCP:") && case.findings.iter().any(other)).then_some(FIN_IN_ORDER);
    };
    let (at, packet, segment) = case.passage.segment(*frame)?;
    let far = case
        .passage
        .before(key(packet), packet.to_server, at)
        .any(|one| ahead(one.seq, segment.seq.wrapping_add(segment.load.len() as u32)) > 0);
    let is = case.ips && !finding.more && reason == "stream.error" && segment.flags & FIN != 0 && far;
    is.then_some(FIN_IN_ORDER)
}

const FIN_IN_ORDER: &str = "a FIN that comes in order goes on, whatever lay far ahead of it before";

pub(crate) fn old_data(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Drop(Some(frame), reason) = &finding.what else { return None };
    let (at, packet, segment) = case.passage.segment(*frame)?;
    let same = case
        .passage
        .before(key(packet), packet.to_server, at)
        .any(|one| one.seq == segment.seq && one.load == segment.load);
    let is = case.ips && !finding.more && reason == "stream.error" && !segment.load.is_empty() && same;
    is.then_some(
        "data that was inspected and comes again at a connection's end goes on: its receiver throws it away",
    )
}

pub(crate) fn header_in_pieces(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const HEADER: usize = 20;
    // The flow and the frame of a dropped fragment.
    let refused = |finding: &Finding| match &finding.what {
        What::Drop(Some(frame), reason) if finding.more && reason == "defrag.error" => {
            let (_, packet, _) = case.passage.segment(*frame)?;
            let pieces = packet.fragments.is_some_and(|each| each < HEADER);
            pieces.then_some((key(packet), *frame, packet.to_server))
        }
        _ => None,
    };
    let refusals: Vec<(FlowKey, u32, bool)> = case.findings.iter().filter_map(refused).collect();
    let behind = |flow: FlowKey, frame: u32| refusals.iter().any(|one| one.0 == flow && one.1 <= frame);
    // Missing alerts: all on the datagram itself; after it those on bytes of its side, which has a hole, on
    // packet counts, or on parsed content of both sides.
    let misses = |alert: &Alert| {
        const BYTES: &[&str] = &["content:", "pcre:", "byte_", "isdataat:", "base64_"];
        const COUNTS: &[&str] =
            &["detection_filter", "threshold", "stream_size", "flow.", "flowbits", "flowint"];
        const PARSED: &[&str] = &["tls_", "ssl_", "urilen", "app-layer"];
        let parsed = |rule: &Rule| ["tls ", "http", "dns "].iter().any(|name| rule.head.starts_with(name));
        let side = refusals.iter().any(|one| (one.0, one.2) == (alert.flow, alert.to_server));
        let itself = alert.frame.is_none() && side;
        let of_both = case.is_on_buffers(alert) || case.rule(alert).is_some_and(parsed);
        itself
            || of_both
            || case.asks(alert, PARSED)
            || case.asks(alert, COUNTS)
            || side && case.asks(alert, BYTES)
    };
    // The datagram whose fragment is dropped has a match that blocks its flow.
    let would_refuse =
        |flow: FlowKey| case.theirs.iter().any(|one| one.blocked && one.frame.is_none() && one.flow == flow);
    // The drop leaves a hole, which ends parsers.
    let follows = match &finding.what {
        What::Record(name) => {
            // The remaining data is parsed without the missing part.
            const FOLLOWS: [&str; 9] = [
                "http",
                "anomaly:INVALID_GAP",
                "anomaly:MISSING_HOST_HEADER",
                "anomaly:REQUEST_",
                "anomaly:RESPONSE_",
                "anomaly:INVALID_RESPONSE_",
                "anomaly:UNABLE_TO_MATCH_RESPONSE_TO_REQUEST",
                "fileinfo",
                "flow:TCP:",
            ];
            (!finding.more || FOLLOWS.iter().any(|follows| name.starts_with(follows)))
                && case.concerns(finding, |flow| behind(flow, u32::MAX))
        }
        What::Drop(Some(frame), reason) => {
            let because = matches!(reason.as_str(), "applayer.error" | "exception.policy.flow.drop");
            let flow = case.passage.packet(*frame).map(|(_, packet)| key(packet));
            (refused(finding).is_some() || because || !finding.more || flow.is_some_and(would_refuse))
                && flow.is_some_and(|flow| behind(flow, *frame))
        }
        What::Drop(None, _) => !finding.more && !refusals.is_empty(),
        What::Alert(alert) => {
            // A field may begin before the hole and end after it.
            let on_message = case.is_on_http(alert) || case.asks(alert, &["file"]);
            let field = || on_message && case.got.has("anomaly:INVALID_GAP");
            let more = would_refuse(alert.flow) || !case.is_on_buffers(alert) || field();
            // Counts by host have one packet less in all flows of that host.
            let counted = case.asks(alert, &["detection_filter", "threshold"])
                && refusals.iter().any(|one| one.1 <= alert.place());
            (if finding.more { more } else { misses(alert) || would_refuse(alert.flow) })
                && behind(alert.flow, alert.place())
                || !finding.more && counted
                // The frame itself, which has no ports.
                || !finding.more && refusals.iter().any(|one| Some(one.1) == alert.frame)
        }
    };
    (case.ips && follows).then_some("prevention refuses fragments whose first has not the whole TCP header")
}

pub(crate) fn drop_that_drops_nothing(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Record(name) = &finding.what else { return None };
    let drops = |rule: &Rule| matches!(rule.action, "drop" | "reject");
    let silent = |rule: &Rule| drops(rule) && rule.options.iter().any(|option| option == "noalert");
    let is = !case.ips
        && finding.more
        && matches!(name.as_str(), "dns" | "http" | "tls" | "fileinfo")
        && (case.ours.iter().any(|alert| case.rule(alert).is_some_and(drops))
            || case.pair.rules.iter().any(silent));
    is.then_some("where nothing can be dropped, what follows a match of `drop` is recorded; Suricata parses no more of it")
}

/// A FIN makes Suricata evaluate its rules on a stream with no readable data yet: absent content counts as
/// absent.
pub(crate) fn nothing_to_look_at(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let (at, packet, segment) = case.passage.segment(alert.frame?)?;
    let unread = case
        .passage
        .of_flow(alert.flow)
        .take_while(|(place, _)| *place < at)
        .filter(|(_, other)| other.to_server != packet.to_server)
        .filter_map(|(_, other)| crate::passage::segment(other))
        .filter(|other| other.flags & (ACK | SYN) == ACK)
        .all(|other| {
            case.passage
                .before(alert.flow, alert.to_server, at)
                .filter(|one| !one.load.is_empty())
                .all(|one| ahead(one.seq, other.ack) >= 0)
        });
    let at_a_fin = segment.flags & FIN != 0 && unread && case.only_denies(alert);
    // A rule that matches once matches later here.
    let told_later = |other: &Alert| {
        let told = Finding { more: false, what: What::Alert(other.clone()), flow: None };
        let once = case.asks(alert, &["flowbits:isnotset", "threshold"]);
        once && other.is_like(alert)
            && other.place() < alert.place()
            && nothing_to_look_at(case, &told).is_some()
    };
    // Checked last, because each check of an earlier alert would recurse.
    let is = !case.ips && if finding.more { case.theirs.iter().any(told_later) } else { at_a_fin };
    is.then_some("content that must not be there wants something to be looked at; Suricata looks at nothing when a FIN comes and nothing is acknowledged")
}

/// Suricata takes `dsize:!N` for a size that all contents must fit in.
pub(crate) fn size_that_must_not_be(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let rule = match &finding.what {
        What::Alert(alert) if finding.more => alert.rule,
        What::Record(name) if !finding.more => name.strip_prefix("refused:")?.parse().ok()?,
        _ => return None,
    };
    let refused = case.findings.iter().any(|other| {
        matches!(&other.what, What::Record(name) if !other.more && *name == format!("refused:{rule}"))
    });
    let is = refused && case.pair.rules.get(rule)?.options.iter().any(|option| option.starts_with("dsize:!"));
    is.then_some("a rule may say `dsize:!N` with longer contents; Suricata refuses it")
}

/// If flows may begin midstream, Suricata probes one side's data for both sides, as either may be the client.
pub(crate) fn silent_side_of_a_pickup(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Record(name) = &finding.what else { return None };
    let midstream = crate::engine::SETTINGS.get(case.pair.setting)?.contains(&"stream.midstream=true");
    let one_side = |flow: FlowKey| {
        let speaks = |to_server: bool| {
            case.passage.before(flow, to_server, usize::MAX).any(|one| !one.load.is_empty())
        };
        let opened = |to_server: bool| {
            case.passage.before(flow, to_server, usize::MAX).any(|one| one.flags & SYN != 0)
        };
        speaks(true) != speaks(false) && !opened(true) && !opened(false)
    };
    let is = matches!((finding.more, name.as_str()), (true, "flow:TCP:-") | (false, "flow:TCP:failed"))
        && case.ips
        && midstream
        && case.concerns(finding, one_side);
    is.then_some("in prevention a connection that is met in the middle stays open for what the side says that has said nothing; Suricata has asked for both")
}

/// A rule on a transaction and on the stream: Suricata evaluates it when a message is parsed.
pub(crate) fn stream_within_a_record(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    const HEAD: usize = 5;
    let What::Alert(alert) = &finding.what else { return None };
    let (at, _) = case.passage.packet(alert.frame?)?;
    let said = case.passage.said_before(alert.flow, alert.to_server, at + 1);
    let mut rest = said.as_slice();
    while let [_, _, _, high, low, ..] = rest {
        let Some(next) = rest.get(HEAD + usize::from(u16::from_be_bytes([*high, *low]))..) else { break };
        rest = next;
    }
    let is = case.ips
        && finding.more
        && case.asks(alert, &["tls."])
        && case.asks(alert, &["pkt_data"])
        && !rest.is_empty();
    is.then_some("a rule on a TLS session and on its stream is asked again within a record; Suricata asks when one is parsed")
}

/// Suricata evaluates a stream rule that requires a bit of a transaction rule with each transaction.
pub(crate) fn asked_by_transaction(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let asks = case.asks(alert, &["flowbits:isset"]) && !case.is_on_buffers(alert);
    // Both rules name the same bit.
    let sets = (0..case.pair.rules.len()).any(|rule| {
        let other = Alert { rule, ..alert.clone() };
        case.asks(&other, &["flowbits:set"])
            && case.is_on_buffers(&other)
            && crate::times::hangs_on(case, finding, &other)
    });
    // Both have alerted in this flow and direction; only the number differs.
    let known = |alerts: &[Alert]| alerts.iter().any(|one| one.is_like(alert) && one.place() < alert.place());
    let again = case.ips && known(&case.ours) && known(&case.theirs);
    // Passively Suricata evaluates the rule before the transaction of the same packet sets the bit. A
    // datagram that is not a message sets none.
    let no_message = || {
        let packet = alert.frame.and_then(|frame| case.passage.packet(frame));
        packet.is_some_and(
            |(_, packet)| matches!(&packet.body, Body::Udp(query) if crate::dns::is_cut_short(query)),
        )
    };
    let is = asks && sets && (again || finding.more && (!case.ips || no_message()));
    is.then_some("a rule on the stream that asks for a flowbit is asked with what the stream shows; Suricata asks with each transaction if one on transactions sets the bit")
}

/// A keep-alive repeats a byte: this program forwards and inspects the first copy, Suricata inspects the new
/// one.
pub(crate) fn byte_of_a_keep_alive(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let frame = match &finding.what {
        What::Alert(alert) => alert.frame?,
        What::Drop(frame, reason) if reason == "rules" => (*frame)?,
        _ => return None,
    };
    let (at, packet, segment) = case.passage.segment(frame)?;
    let edge = case.passage.contiguous(key(packet), packet.to_server, at)?;
    let differs = case.passage.before(key(packet), packet.to_server, at).any(|one| {
        let place = segment.seq.wrapping_sub(one.seq) as usize;
        one.load.get(place).is_some_and(|byte| Some(byte) != segment.load.first())
    });
    let is = case.ips && segment.load.len() == 1 && ahead(edge, segment.seq) == 1 && differs;
    is.then_some("the byte of a keep-alive leaves as it was inspected; Suricata looks at the one that came")
}

/// A content that must be absent from a body is absent from the part that has arrived.
pub(crate) fn denied_in_a_body(case: &Case<'_>, finding: &Finding) -> Option<&'static str> {
    let What::Alert(alert) = &finding.what else { return None };
    let (at, ..) = case.passage.segment(alert.frame?)?;
    let denied = |part: &str| ["content:!", "pcre:!", "isdataat:!"].iter().any(|word| part.starts_with(word));
    let denies = |option: &String| option.split("; ").any(denied);
    let so_far = case.passage.said_before(alert.flow, alert.to_server, at + 1).len();
    let is = case.ips
        && finding.more
        && case.is_on_body(alert)
        && case.rule(alert)?.options.iter().any(denies)
        && case.passage.said(alert.flow, alert.to_server).len() > so_far;
    is.then_some("content that must not be in a body is looked for in what has come of it, before that leaves; Suricata waits for more")
}
