// SPDX-License-Identifier: Apache-2.0
//! Keywords on transactions: rules against conversations that the real parsers read.

use crate::common;

use bartizan_applayer::file::FileSettings;
use bartizan_applayer::flow::{AppLayer, Engine, FlowInfo};
use bartizan_applayer::protocol::{Input, Transport};
use bartizan_base::{
    Direction, FunctionId, Generation, Path, PerDirection, SettingsMap, TenantId, Timestamp,
};
use bartizan_detect::condition::ConditionContext;
use bartizan_detect::groups::{Groups, RULES_MAX};
use bartizan_detect::inspect::{DetectWorker, InspectionInput, inspect};
use bartizan_detect::needs::Needs;
use bartizan_detect::txstate::FlowDetect;
use bartizan_detect::visibility::Visibility;
use bartizan_flow::stream::MemoryBudget;
use bartizan_flow::tcp::{
    Arrival, HostPolicy, Outcome, Segment, StreamConfig, StreamContext, StreamCounters, TcpFlags, TcpSession,
};
use bartizan_function::view::FlowView;
use bartizan_function::{Marks, PacketFacts, StreamNews, TransactionRound};
use bartizan_packet::{DecodeOutput, Decoder, LinkType, PacketView};
use common::{datagram, load_text};
use std::net::IpAddr;
use std::sync::Arc;

/// The function's bit.
const IDS: FunctionId = FunctionId(1);

/// Sids of the rules that alert on pieces of data, in the order in which they come.
fn alerts(rules: &str, transport: Transport, pieces: &[(Direction, &[u8])]) -> Vec<u32> {
    alerts_beside(rules, transport, pieces, &[], false)
}

/// Sids of the rules that alert, as [`alerts`] gives them. The packets of the pieces in `stray` do not belong
/// to their session; `prevention`: pieces have not left, and the stream is inspected with all earlier bytes.
fn alerts_beside(
    rules: &str,
    transport: Transport,
    pieces: &[(Direction, &[u8])],
    stray: &[usize],
    prevention: bool,
) -> Vec<u32> {
    let sids = alerts_of_seen(rules, transport, pieces, stray, prevention);
    // Rules that are not visible pass all that the visible ones alert on, and must change nothing.
    let hidden = common::passing(rules);
    let beside = alerts_of_seen(&format!("{rules}\n{hidden}"), transport, pieces, stray, prevention);
    assert_eq!(sids, beside, "with rules that are not seen:\n{hidden}");
    sids
}

/// Sids of the alerts of rules below [`common::HIDDEN`]; the other rules are not visible.
fn alerts_of_seen(
    rules: &str,
    transport: Transport,
    pieces: &[(Direction, &[u8])],
    stray: &[usize],
    prevention: bool,
) -> Vec<u32> {
    let shared = Arc::default();
    let loaded = load_text(rules, &SettingsMap::new(), &shared);
    let visible = Visibility::of(&loaded.rules.signatures, |rule| rule.id.sid < common::HIDDEN);
    let said = common::complaints(&loaded);
    assert!(said.is_empty(), "{said:?}");
    let [md5, sha1, sha256] = Needs::of(&loaded.rules).hashes;
    let files = FileSettings { md5, sha1, sha256, ..FileSettings::default() };
    let engine = Engine::new(&SettingsMap::new(), files).unwrap();
    engine.request_frames(Needs::of(&loaded.rules).frames, Needs::of(&loaded.rules).stream_frames);
    let groups = Groups::new(&[&loaded.rules.heads], RULES_MAX);
    let (mut app, mut flow, mut worker) =
        (AppLayer::default(), FlowDetect::default(), DetectWorker::new(&loaded.rules));
    let mut marks = Marks::default();
    let (now, mut offset) = (Timestamp::from_parts(1_700_000_000, 0), PerDirection::new(0, 0));
    let port = if transport == Transport::Tcp { 80 } else { 53 };
    let info = FlowInfo {
        now,
        ports: PerDirection::new(port, 4_000),
        transport,
        prevents: prevention,
        may_turn: false,
    };
    let mut said_so_far = PerDirection::new(Vec::new(), Vec::new());
    let (client, server) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
    let mut session = TcpSession::default();
    let (mut counters, mut budget, config) =
        (StreamCounters::default(), MemoryBudget::new(0), StreamConfig::default());
    let mut sends = |session: &mut TcpSession, direction: Direction, flags, payload: &[u8]| {
        let arrival = Arrival { direction, now, policy: HostPolicy::Linux };
        let mut context = StreamContext { config: &config, counters: &mut counters, budget: &mut budget };
        let (seq, ack) = (session.next_seq(direction), session.next_seq(direction.flip()));
        let segment =
            Segment { seq, ack, flags, window: 9_000, payload, checksum_ok: true, ..Segment::default() };
        session.handle(&segment, arrival, None, &mut context, &mut Outcome::default());
    };
    for (direction, flags) in [
        (Direction::ToServer, TcpFlags::SYN),
        (Direction::ToClient, TcpFlags::SYN | TcpFlags::ACK),
        (Direction::ToServer, TcpFlags::ACK),
    ] {
        sends(&mut session, direction, flags, &[]);
    }
    let mut sids = Vec::new();
    for (at, (direction, data)) in pieces.iter().enumerate() {
        let before = app.by_direction()[*direction];
        let (shown, stream) = (offset[*direction], transport == Transport::Tcp);
        match transport {
            Transport::Tcp => {
                // An acknowledgment has no data to parse.
                if !data.is_empty() {
                    let input = Input { data, offset: shown, eof: false };
                    let advance = app.stream(&engine, *direction, input, &info);
                    assert_eq!(advance.consumed, data.len(), "pieces are whole messages");
                }
                offset[*direction] += data.len() as u64;
                sends(&mut session, *direction, TcpFlags::ACK, data);
            }
            Transport::Udp => {
                app.datagram(&engine, *direction, data, &info);
            }
        }
        let detection_done = before != app.by_direction()[*direction];
        // The packet's own properties do not matter to these conditions, so a datagram takes its place.
        let (from, to) = match direction {
            Direction::ToServer => ((client, 4_000), (server, port)),
            Direction::ToClient => ((server, port), (client, 4_000)),
        };
        let frame = datagram(from, to, b"");
        let mut out = DecodeOutput::default();
        Decoder::default().decode(LinkType::ETHERNET, &frame, frame.len() as u32, &mut out);
        let packet = PacketView::new(&frame, out.outer().unwrap());
        let view = FlowView {
            id: 1,
            tenant: TenantId::default(),
            protocol: 17,
            client: (client, 4_000),
            server: (server, port),
            turned: false,
            start: now,
            last_seen: now,
            packets: PerDirection::new(1, 1),
            bytes: PerDirection::new(1, 1),
            established: true,
            elephant: PerDirection::default(),
            tcp: stream.then_some(&session),
            app: app.summary(),
        };
        said_so_far[*direction].extend_from_slice(data);
        let (window, before) = if prevention { (&said_so_far[*direction][..], 0) } else { (*data, shown) };
        let facts = PacketFacts {
            flow: Some(&view),
            // An acknowledgment is no part of the stream, and has no payload.
            stream: (stream && !data.is_empty()).then_some(StreamNews {
                bytes: window,
                offset: before,
                seen: window.len() - data.len(),
                about_packet: false,
            }),
            payload_in_stream: !data.is_empty(),
            detection_done,
            ..PacketFacts::of(now, *direction, Some(&packet), prevention)
        };
        let scene = ConditionContext {
            facts: &facts,
            payload: if prevention { data } else { packet.payload() },
            state: None,
            left: &[],
            function: IDS,
            tenant: TenantId::default(),
            shared: &shared,
        };
        let showing = TransactionRound::begin(&mut app, *direction);
        let work = InspectionInput {
            waits: false,
            stray: stray.contains(&at),
            app: Some(showing.view(&app, IDS, &mut marks)),
            generation: Generation(1),
            visible: Some(&visible),
            group: common::group_of(&groups, &view, *direction),
        };
        inspect(&loaded.rules, &mut worker, Some(&mut flow), &scene, work);
        showing.end(&mut app, Path::EMPTY.with(IDS), &mut marks);
        let hits = worker.hits.iter().filter(|h| h.alert);
        sids.extend(hits.map(|h| loaded.rules.signatures[h.rule as usize].id.sid));
    }
    sids
}

/// Sids of the options that alert, each a rule of the protocol, numbered from 1.
pub(crate) fn of_options(
    protocol: &str,
    options: &[&str],
    transport: Transport,
    pieces: &[(Direction, &[u8])],
) -> Vec<u32> {
    let rules: Vec<String> = options
        .iter()
        .enumerate()
        .map(|(i, o)| format!("alert {protocol} any any -> any any ({o} sid:{};)", i + 1))
        .collect();
    let mut sids = alerts(&rules.join("\n"), transport, pieces);
    sids.sort_unstable();
    sids.dedup();
    sids
}

pub(crate) const GET: &[u8] = b"GET /a/b.pdf?q=1 HTTP/1.1\r\nHost: Example.ORG\r\nUser-Agent: probe\r\n\r\n";
pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello";

#[test]
fn http_old_and_new() {
    let options = [
        // All of these match.
        r#"content:"/a/b"; http_uri;"#,
        r#"uricontent:"B.PDF"; nocase;"#,
        r#"content:"GET"; http_method; content:"probe"; http_user_agent;"#,
        r#"content:"example.org"; http_host;"#,
        "urilen:12;",
        r#"http.uri; content:"/a/"; startswith; urilen:>11,raw; content:"q=1"; endswith;"#,
        r#"http_request_line; content:"GET /a";"#,
        r#"HTTP.method; content:"GET"; bsize:3;"#,
        r#"http.stat_code; content:"200";"#,
        r#"file_data; content:"hello";"#,
        r#"content:"hello"; http_server_body;"#,
        r#"http.host; content:"example"; to_md5; content:"|1b df 72|"; startswith;"#,
        // None of these does.
        "urilen:<12;",
        r#"content:"/a/c"; http_uri;"#,
        r#"http.stat_code; content:"404";"#,
        r#"http.request_body; content:"hello";"#,
    ];
    let pieces = [(Direction::ToServer, GET), (Direction::ToClient, OK)];
    let matched = of_options("http", &options, Transport::Tcp, &pieces);
    assert_eq!(matched, (1..=12).collect::<Vec<u32>>());
}

#[test]
fn what_needs_all_of_a_body_waits_for_it() {
    // Of `ab` and of `abc`; entropy of one letter, and of three.
    let options = [
        r#"http.response_body; to_md5; content:"|18 7e f4|"; startswith;"#,
        r#"http.response_body; to_md5; content:"|90 01 50|"; startswith;"#,
        "http.response_body; entropy: value < 1;",
        "http.response_body; entropy: value > 1.5;",
        "http.response_body; entropy: bytes 1, value < 1;",
    ];
    let head: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
    let rules: Vec<String> = options
        .iter()
        .enumerate()
        .map(|(at, option)| format!("alert http any any -> any any ({option} sid:{};)", at + 1))
        .collect();
    let to_client = |data| (Direction::ToClient, data);
    let pieces =
        [(Direction::ToServer, GET), to_client(head), to_client(b"a"), to_client(b"b"), to_client(b"c")];
    let mut sids = alerts_beside(&rules.join("\n"), Transport::Tcp, &pieces, &[], true);
    sids.sort_unstable();
    assert_eq!(sids, [2, 4, 5]);
}

#[test]
fn files() {
    let options = [
        r#"filename:"B.pdf";"#,
        r#"fileext:"PDF";"#,
        "filesize:5;",
        "filesize:>4; flow:to_client;",
        "filestore;",
        r#"file.name; content:"/b.pdf"; endswith;"#,
        r#"filename:"c.pdf";"#,
        "filesize:>5;",
        "filesize:5; flow:to_server;",
    ];
    let pieces = [(Direction::ToServer, GET), (Direction::ToClient, OK)];
    let matched = of_options("http", &options, Transport::Tcp, &pieces);
    assert_eq!(matched, [1, 2, 3, 4, 5, 6]);
}

/// The stream is inspected before the body has come, and not again with it.
#[test]
fn what_the_stream_showed_is_remembered_beside_a_body() {
    let options = [
        "file.data; content:\"e\"; pkt_data; content:\"HTTP\";",
        "file.data; content:\"e\"; pkt_data; content:\"HTTP\"; fast_pattern;",
        "file.data; content:\"e\"; pkt_data; content:\"HTTP/2\";",
        "file.data; content:\"f\"; pkt_data; content:\"HTTP\";",
    ];
    let pieces: &[(Direction, &[u8])] = &[
        (Direction::ToServer, b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"),
        (Direction::ToClient, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"),
        (Direction::ToClient, b"e"),
    ];
    assert_eq!(of_options("http", &options, Transport::Tcp, pieces), [1, 2]);
}

/// Rules with their literal in the stream are skipped for a transaction without their guard, and only then:
/// with a size condition before it the same literal guards nothing.
#[test]
fn guards_of_rules_take_no_match_away() {
    let wishes = [
        ("http.method", "POST"),
        ("http.method", "post\"; nocase; content:\"OS"),
        ("http.uri", "/b.php\"; endswith; content:\"/a"),
        ("http.uri", "/c"),
        ("http.host", "example.org"),
        ("http.user_agent", "probe"),
        ("http.request_line", "HTTP/1.1"),
        ("http.content_type", "text/"),
        ("http.header_names", "User-Agent"),
        ("http.stat_code", "200"),
        ("http.stat_code", "404"),
        ("http.request_body", "id="),
        ("file.data", "hell"),
    ];
    let patterns = ["id=7", "hello", "HTTP", "not there"];
    let rules = |size: &str| -> Vec<String> {
        let both = patterns.iter().flat_map(|pattern| wishes.map(|wish| (pattern, wish)));
        both.map(|(pattern, (buffer, literal))| {
            format!("content:\"{pattern}\"; fast_pattern; {buffer}; {size}content:\"{literal}\";")
        })
        .collect()
    };
    let (head, body) = ("POST /a/b.php HTTP/1.1\r\n", "Host: Example.ORG\r\n");
    let rest = "Content-Type: text/plain\r\nContent-Length: 4\r\n\r\n";
    let post = [head, body, rest, "id=7"].map(str::as_bytes);
    let whole = post.concat();
    // A header that comes after the body.
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let trailer = b"0\r\nX-Trailer: late\r\n\r\n";
    let behind: &[(Direction, &[u8])] = &[
        (Direction::ToServer, GET),
        (Direction::ToClient, chunked),
        (Direction::ToClient, b"5\r\nhello\r\n"),
        (Direction::ToClient, trailer),
    ];
    let talks: [&[(Direction, &[u8])]; 3] = [
        &[(Direction::ToServer, &whole), (Direction::ToClient, OK)],
        &[(Direction::ToServer, GET), (Direction::ToClient, OK), (Direction::ToServer, &whole)],
        &[
            (Direction::ToServer, post[0]),
            (Direction::ToServer, post[1]),
            (Direction::ToServer, post[2]),
            (Direction::ToServer, post[3]),
            (Direction::ToClient, &OK[..17]),
            (Direction::ToClient, &OK[17..]),
        ],
    ];
    let guards = |size: &str, direction: Direction| {
        let rules: Vec<String> = (1..)
            .zip(rules(size))
            .map(|(sid, options)| format!("alert http any any -> any any ({options} sid:{sid};)"))
            .collect();
        let loaded = load_text(&rules.join("\n"), &SettingsMap::new(), &Arc::default());
        let (http, _) = bartizan_applayer::protocols::by_name("http").unwrap();
        loaded.rules.prefilters.tx.of(http, direction).unwrap().guards.len()
    };
    // A body grows and guards nothing; nor does a check that begins with another condition.
    assert_eq!(Direction::BOTH.map(|direction| guards("", direction)), [9, 4]);
    assert_eq!(Direction::BOTH.map(|direction| guards("bsize:>0; ", direction)), [0, 0]);
    let late = ["http.header; content:\"X-Trailer\";", "http.header; content:\"HTTP/9\";"]
        .map(|wish| format!("content:\"late\"; fast_pattern; {wish}"));
    assert_eq!(of_options("http", &late.each_ref().map(String::as_str), Transport::Tcp, behind), [1]);
    let mut matched = 0;
    for pieces in talks {
        let [guarded, free] = ["", "bsize:>0; "].map(|size| {
            let rules = rules(size);
            of_options("http", &rules.iter().map(String::as_str).collect::<Vec<_>>(), Transport::Tcp, pieces)
        });
        assert_eq!(guarded, free);
        assert!(guarded.iter().all(|sid| *sid <= 3 * wishes.len() as u32), "{guarded:?}");
        matched += guarded.len();
    }
    assert!(matched > 20, "{matched}");
}

#[test]
fn digests_of_files() {
    let folder = std::env::temp_dir().join(format!("bartizan-filemd5-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let list = folder.join("list");
    std::fs::write(&list, "5d41402abc4b2a76b9719d911017c592  hello\n").unwrap();
    let list = list.display();
    let options = [format!("filemd5:{list};"), format!("filemd5:!{list};")];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let pieces = [(Direction::ToServer, GET), (Direction::ToClient, OK)];
    assert_eq!(of_options("http", &options, Transport::Tcp, &pieces), [1]);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_field_is_looked_at_when_its_line_is_complete() {
    let rule = |options: &str, sid: u32| format!("alert http any any -> any any ({options} sid:{sid};)\n");
    let rules = [
        // With the line.
        rule(r#"http.host.raw; content:"a.example";"#, 1),
        rule(r#"http.request_header; content:"Host|3a| a"; startswith;"#, 2),
        rule(r#"http.user_agent; content:"probe";"#, 3),
        rule(r#"http.user_agent; pcre:"/^pro/";"#, 4),
        // With the last line: fields of one name are joined, and what is not there may still come.
        rule(r#"http.user_agent; content:"probe, other"; endswith;"#, 5),
        rule(r#"http.request_header; content:"probe, other";"#, 6),
        rule("http.accept; absent;", 7),
        rule(r#"http.host; content:"a.example";"#, 8),
        rule(r#"http.header; content:"Host";"#, 9),
        rule("http.user_agent; absent;", 10),
    ];
    let pieces: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\nHost: a.example\r\nUser-",
        b"Agent: pro",
        b"be\r\nUser-A",
        b"gent: other\r",
        b"\n\r\n",
    ];
    let after = |count: usize| {
        let pieces: Vec<_> = pieces.iter().take(count).map(|piece| (Direction::ToServer, *piece)).collect();
        let mut sids = alerts(&rules.concat(), Transport::Tcp, &pieces);
        sids.sort_unstable();
        sids
    };
    assert_eq!(after(1), [1, 2]);
    assert_eq!(after(2), [1, 2]);
    assert_eq!(after(3), [1, 2, 3, 4]);
    assert_eq!(after(4), [1, 2, 3, 4]);
    assert_eq!(after(5), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn a_field_whose_packet_did_not_fit_is_looked_at_with_the_next_one() {
    let pieces: [&[u8]; 5] =
        [b"GET / HTTP/1.1\r\nHost: a\r\n", b"Accept: text\r\n", b"X-A: 1\r\n", b"X-B: 2\r\n", b"\r\n"];
    let until = |count: usize| 1 + pieces.iter().take(count).map(|piece| piece.len()).sum::<usize>();
    let after = |count: usize| {
        // Holds from the fourth piece on: the field is whole with the second one.
        let size = until(4);
        let rule = format!(
            "alert http any any -> any any (stream_size:client,>=,{size}; http.accept; content:\"text\"; sid:1;)\n"
        );
        let pieces: Vec<_> = pieces.iter().take(count).map(|piece| (Direction::ToServer, *piece)).collect();
        alerts(&rule, Transport::Tcp, &pieces)
    };
    assert!(after(3).is_empty());
    assert_eq!(after(4), [1]);
    assert_eq!(after(5), [1]);
}

/// A record with a hello of either side.
fn hello(kind: u8, random: u8, rest: &[u8]) -> Vec<u8> {
    let body = [&[3, 3][..], &[random; 32], rest].concat();
    let size = |extra: usize| (body.len() + extra).to_be_bytes()[6..].to_vec();
    [&[22, 3, 1][..], &size(4), &[kind, 0], &size(0), &body].concat()
}

#[test]
fn a_value_is_asked_for_again_while_its_state_lasts() {
    use Direction::{ToClient, ToServer};
    let rules = [
        "alert tls any any -> any any (flow:to_client; tls.random; content:\"|09 09|\"; flowbits:set,seen; noalert; sid:1;)\n",
        // The inspected value came before the bit was set.
        "alert tls any any -> any any (flow:to_server; flowbits:isset,seen; tls.sni; content:\"host\"; sid:2;)\n",
        // A rule that did not match then does not match now; one that did matches once.
        "alert tls any any -> any any (flow:to_server; flowbits:isset,seen; tls.sni; content:\"ghost\"; sid:3;)\n",
        "alert tls any any -> any any (flow:to_server; tls.sni; content:\"host\"; sid:4;)\n",
    ];
    let (client, server) = (named_hello(), hello(2, 9, &[0, 0xc0, 0x2f, 0]));
    let change: &[u8] = &[20, 3, 3, 0, 1, 1];
    let pieces: [(Direction, &[u8]); 4] =
        [(ToServer, &client), (ToClient, &server), (ToServer, change), (ToServer, change)];
    let after = |count: usize| alerts(&rules.concat(), Transport::Tcp, &pieces[..count]);
    assert_eq!(after(2), [4]);
    assert_eq!(after(3), [4, 2]);
    assert_eq!(after(4), [4, 2]);
}

/// A client's hello that names `host.example`.
fn named_hello() -> Vec<u8> {
    let name = [&[0, 2, 0xc0, 0x2f, 1, 0, 0, 21, 0, 0, 0, 17, 0, 15, 0, 0, 12][..], b"host.example"].concat();
    hello(1, 7, &[&[0][..], &name].concat())
}

#[test]
fn a_pattern_in_the_stream_is_found_again_beside_what_holds_of_the_transaction_then() {
    let rules = [
        // The pattern is searched in the stream, and comes again.
        "alert tls any any -> any any (ssl_version:tls1.2; content:\"|14 03 03|\"; sid:1;)\n",
        "alert tls any any -> any any (tls.sni; content:\"t\"; pkt_data; content:\"|14 03 03|\"; fast_pattern; sid:2;)\n",
        // The pattern is searched in the transaction, or there is none.
        "alert tls any any -> any any (tls.sni; content:\"host.ex\"; pkt_data; content:\"|03|\"; sid:3;)\n",
        "alert tls any any -> any any (ssl_version:tls1.2; sid:4;)\n",
        // This state is over when the pattern comes.
        "alert tls any any -> any any (ssl_state:client_hello; content:\"|14 03 03|\"; sid:5;)\n",
    ];
    let (client, change): (_, &[u8]) = (named_hello(), &[20, 3, 3, 0, 1, 1]);
    let pieces = [&client[..], change, change].map(|piece| (Direction::ToServer, piece));
    let after = |count: usize| alerts(&rules.concat(), Transport::Tcp, &pieces[..count]);
    assert_eq!(after(1), [3, 4]);
    assert_eq!(after(2), [3, 4, 1, 2]);
    assert_eq!(after(3), [3, 4, 1, 2, 1, 2]);
}

/// Records of an encrypted session change nothing in its transaction: rules whose other conditions hold with
/// a later packet match with it all the same, on the first look and on a later one.
#[test]
fn rules_beside_an_encrypted_session_match_when_their_other_conditions_hold() {
    let (client, server) = (named_hello(), hello(2, 9, &[0, 0xc0, 0x2f, 0]));
    let (change, data): (&[u8], &[u8]) = (&[20, 3, 3, 0, 1, 1], &[23, 3, 3, 0, 3, 1, 2, 3]);
    let mark: &[u8] = &[23, 3, 3, 0, 3, b'x', b'y', b'z'];
    let opening: [(Direction, &[u8]); 4] = [
        (Direction::ToServer, &client),
        (Direction::ToClient, &server),
        (Direction::ToServer, change),
        (Direction::ToClient, change),
    ];
    let sent = 1 + client.len() + change.len();
    for more in [&[data][..], &[data, data, data], &[data, mark, data, data], &[mark, mark, data]] {
        let size = sent + more.iter().map(|piece| piece.len()).sum::<usize>();
        let rules = [
            format!("alert tls any any -> any any (flow:to_server; tls.version:1.2; stream_size:client,=,{size}; pkt_data; content:\"|17 03|\"; sid:1;)\n"),
            "alert tls any any -> any any (content:\"xyz\"; flowbits:set,seen; noalert; sid:2;)\n".to_owned(),
            "alert tls any any -> any any (flow:to_server; tls.version:1.2; flowbits:isset,seen; sid:3;)\n".to_owned(),
            "alert tls any any -> any any (flow:to_server; tls.version:1.2; pkt_data; content:\"xyz\"; sid:4;)\n".to_owned(),
            "alert tls any any -> any any (flow:to_server; ssl_version:tls1.2; sid:5;)\n".to_owned(),
        ];
        let pieces: Vec<_> =
            opening.into_iter().chain(more.iter().map(|piece| (Direction::ToServer, *piece))).collect();
        for prevention in [false, true] {
            let sids = alerts_beside(&rules.concat(), Transport::Tcp, &pieces, &[], prevention);
            let times = |sid: u32| sids.iter().filter(|other| **other == sid).count();
            let marks = more.iter().filter(|piece| **piece == mark).count();
            assert!(times(1) > 0, "{sids:?} {more:?}");
            assert_eq!(times(3), usize::from(marks > 0), "{sids:?} {more:?}");
            assert_eq!(times(4) > 0, marks > 0, "{sids:?} {more:?}");
            assert_eq!(times(5), 1, "{sids:?} {more:?}");
        }
    }
}

#[test]
fn what_must_not_occur_is_asked_where_there_are_bytes_only() {
    let rules =
        "alert tls any any -> any any (tls.sni; content:\"host\"; pkt_data; content:!\"ost.ex\"; sid:1;)";
    let (client, change): (_, &[u8]) = (named_hello(), &[20, 3, 3, 0, 1, 1]);
    // The hello has it, the acknowledgment has nothing.
    let pieces = [&client[..], &[], change].map(|piece| (Direction::ToServer, piece));
    assert_eq!(alerts(rules, Transport::Tcp, &pieces[..2]), [0_u32; 0]);
    assert_eq!(alerts(rules, Transport::Tcp, &pieces), [1]);
}

/// As in Suricata, a literal of the status code or of the method is no fast pattern if the stream has one as
/// well.
#[test]
fn what_says_little_gives_way_to_a_pattern_in_the_stream() {
    let rules = [
        "alert http any any -> any any (http.stat_code; content:\"200\"; pkt_data; content:\"0\"; sid:1;)\n",
        "alert http any any -> any any (http.method; content:\"POST\"; pkt_data; content:\"0\"; sid:2;)\n",
        // Named by the rule, or of a more selective buffer.
        "alert http any any -> any any (http.stat_code; content:\"200\"; fast_pattern; pkt_data; content:\"0\"; sid:3;)\n",
        "alert http any any -> any any (http.server; content:\"a\"; pkt_data; content:\"0\"; sid:4;)\n",
    ];
    let pieces: [(Direction, &[u8]); 5] = [
        (Direction::ToServer, b"POST /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"),
        (Direction::ToServer, b"a0"),
        (Direction::ToServer, b"b0c"),
        (Direction::ToClient, b"HTTP/1.1 200 OK\r\nServer: a0\r\n\r\n"),
        (Direction::ToClient, b"abc0"),
    ];
    assert_eq!(alerts(&rules.concat(), Transport::Tcp, &pieces), [2, 2, 2, 1, 3, 4, 1]);
}

/// A rule without a literal evaluates the stream when all else holds, not before.
#[test]
fn a_rule_without_a_literal_asks_the_stream_last() {
    let rules = [
        "alert http any any -> any any (flow:to_client; filesize:>3; pcre:\"/^HTTP/\"; sid:1;)\n",
        "alert http any any -> any any (flow:to_client; filesize:>3; pcre:\"/llo/\"; sid:2;)\n",
    ];
    let of = |answer: &[&[u8]]| {
        let answer = answer.iter().map(|piece| (Direction::ToClient, *piece));
        let pieces: Vec<_> = std::iter::once((Direction::ToServer, GET)).chain(answer).collect();
        alerts(&rules.concat(), Transport::Tcp, &pieces)
    };
    assert_eq!(of(&[OK]), [1, 2]);
    let (head, rest) = OK.split_at(OK.len() - 3);
    assert_eq!(of(&[head, rest]), [2], "what came before is not shown any more");
}

/// In prevention, negated contents are evaluated on the packet alone once the stream was inspected with
/// encrypted bytes; other contents may begin before it.
#[test]
fn what_lies_before_an_encrypted_packet_is_not_there() {
    let rules = [
        "alert tls any any -> any any (flow:to_server; ssl_state:client_hello; pcre:!\"/^\\x16\\x03/\"; sid:1;)\n",
        "alert tls any any -> any any (flow:to_server; tls.sni; content:\"host.ex\"; pkt_data; content:!\"host\"; sid:2;)\n",
        "alert tls any any -> any any (flow:to_server; tls.sni; content:\"host.ex\"; pkt_data; content:\"abc\"; content:\"def\"; distance:0; sid:3;)\n",
        "alert tls any any -> any any (flow:to_server; tls.sni; content:\"host.ex\"; pkt_data; content:!\"def\"; content:!\"host\"; sid:4;)\n",
    ];
    let client = named_hello();
    let pieces: [(Direction, &[u8]); 3] = [
        (Direction::ToServer, &client),
        (Direction::ToServer, &[23, 3, 3, 0, 6, b'a', b'b', b'c', 0, 0, 0]),
        (Direction::ToServer, &[23, 3, 3, 0, 3, b'd', b'e', b'f']),
    ];
    let after = |count: usize| alerts_beside(&rules.concat(), Transport::Tcp, &pieces[..count], &[], true);
    assert_eq!(after(2), Vec::<u32>::new(), "shown with what lies before");
    assert_eq!(after(3), [1, 2, 3]);
}

#[test]
fn a_packet_that_does_not_fit_when_a_state_is_over_is_the_last_one_asked() {
    let (client, change, warning): (_, &[u8], &[u8]) =
        (named_hello(), &[20, 3, 3, 0, 1, 1], &[21, 3, 3, 0, 2, 1, 0]);
    // What the client has sent with each piece, its SYN included.
    let sent = |behind: &[&[u8]]| 1 + client.len() + behind.iter().map(|piece| piece.len()).sum::<usize>();
    let rule = |sid: u32, size: usize| {
        format!(
            "alert tls any any -> any any (stream_size:client,=,{size}; tls.sni; isdataat:3; sid:{sid};)\n"
        )
    };
    let of = |pieces: &[&[u8]]| {
        let rules = rule(1, sent(&pieces[1..2])) + &rule(2, sent(&pieces[1..3]));
        let pieces: Vec<_> = pieces.iter().map(|piece| (Direction::ToServer, *piece)).collect();
        alerts(&rules, Transport::Tcp, &pieces)
    };
    // The first packet after the state of the hello is evaluated once more.
    assert_eq!(of(&[&client, change, change]), [1]);
    assert_eq!(of(&[&client, warning, change]), [1, 2], "the state lasts");
}

#[test]
fn what_is_known_of_a_hello_is_asked_with_the_packet_that_ends_it() {
    let (client, warning): (_, &[u8]) = (named_hello(), &[21, 3, 3, 0, 2, 1, 0]);
    let sent = [client.len() + 1, client.len() + warning.len() + 1];
    let rule = |sid: usize, asked: &str, size: usize| {
        format!("alert tls any any -> any any (stream_size:client,=,{size}; {asked}; sid:{sid};)\n")
    };
    let asked = ["tls.version:1.2", "ssl_version:tls1.2", "ssl_state:!client_keyx"];
    let pieces: [(Direction, &[u8]); 2] = [(Direction::ToServer, &client), (Direction::ToServer, warning)];
    let of = |size: usize| {
        let rules: String = asked.iter().enumerate().map(|(sid, asked)| rule(sid + 1, asked, size)).collect();
        alerts(&rules, Transport::Tcp, &pieces)
    };
    assert_eq!(of(sent[0]), [1, 2, 3]);
    // Its state is over when the size fits.
    assert_eq!(of(sent[1]), [0_u32; 0]);
}

#[test]
fn passively_a_rule_is_asked_again_while_a_state_lasts_whichever_side_goes_on() {
    let hello = [&[22, 3, 3, 0, 42, 2, 0, 0, 38, 3, 3][..], &[9; 32], &[0, 0xc0, 0x2f, 0]].concat();
    let (client, warning): (_, &[u8]) = (named_hello(), &[21, 3, 3, 0, 2, 1, 0]);
    let size = 1 + client.len() + warning.len();
    let rule = format!(
        "alert tls any any -> any any (flow:to_client; stream_size:client,=,{size}; ja3s.string; content:\"771\"; sid:1;)"
    );
    // The server's last packet only acknowledges the client's data.
    let pieces = [
        (Direction::ToServer, &client[..]),
        (Direction::ToClient, &hello),
        (Direction::ToServer, warning),
        (Direction::ToClient, &[]),
    ];
    assert_eq!(alerts(&rule, Transport::Tcp, &pieces[..3]), [0_u32; 0]);
    assert_eq!(alerts(&rule, Transport::Tcp, &pieces), [1]);
}

#[test]
fn what_a_rule_asks_of_packets_it_asks_when_it_begins_with_a_transaction() {
    // After the request line the URI makes no rule a candidate any more; the state of the fields lasts until
    // they are complete.
    let rules = "alert http any any -> any any (flowbits:isnotset,late; http.uri; content:\"/a/b\"; fast_pattern; http.user_agent; content:\"probe\"; sid:1;)\n\
                 alert http any any -> any any (flowbits:isnotset,late; http.uri; content:\"/a/b\"; http.user_agent; content:\"probe\"; fast_pattern; sid:2;)\n\
                 alert http any any -> any any (http.host.raw; content:\"Example\"; flowbits:set,late; noalert; sid:3;)";
    let lines: Vec<_> =
        GET.split_inclusive(|byte| *byte == b'\n').map(|line| (Direction::ToServer, line)).collect();
    assert_eq!(alerts(rules, Transport::Tcp, &lines), [1]);
}

#[test]
fn a_rule_that_the_stream_leads_to_matches_with_each_showing() {
    let rules = "alert http any any -> any any (http.uri; content:\"/f\"; pkt_data; content:\"probe\"; fast_pattern; sid:1;)\n\
                 alert http any any -> any any (http.uri; content:\"/f\"; fast_pattern; pkt_data; content:\"probe\"; sid:2;)";
    let pieces: [(Direction, &[u8]); 4] = [
        (Direction::ToServer, b"POST /f HTTP/1.1\r\nHost: h\r\nContent-Length: 24\r\n\r\n"),
        (Direction::ToServer, b"a probe."),
        (Direction::ToServer, b"no word."),
        (Direction::ToServer, b"a probe."),
    ];
    assert_eq!(alerts(rules, Transport::Tcp, &pieces), [1, 2, 1]);
}

#[test]
fn a_flowbit_of_a_transaction_holds_for_the_stream_of_the_same_packet() {
    let set =
        "alert http any any -> any any (http.method; content:\"GET\"; flowbits:set,seen; noalert; sid:1;)\n";
    let asks = |options: &str| {
        let rule = format!("alert http any any -> any any (content:\"probe\"; {options} sid:2;)\n");
        alerts(&(rule + set), Transport::Tcp, &[(Direction::ToServer, GET)])
    };
    assert_eq!(asks("flowbits:isset,seen;"), [2]);
    assert_eq!(asks("flowbits:isset,other|seen;"), [2]);
    assert_eq!(asks("flowbits:isset,other;"), Vec::<u32>::new());
    // As it was before the transaction, and once.
    assert_eq!(asks("flowbits:isnotset,seen;"), [2]);
    assert_eq!(asks("flowbits:isset,seen; content:\"nothing\";"), Vec::<u32>::new());
    let toggled = "alert http any any -> any any (http.method; content:\"GET\"; flowbits:toggle,seen; noalert; sid:1;)\n";
    let rule = "alert http any any -> any any (content:\"probe\"; flowbits:isset,seen; sid:2;)\n".to_owned();
    let get = (Direction::ToServer, GET);
    assert_eq!(alerts(&(rule + toggled), Transport::Tcp, &[get]), Vec::<u32>::new(), "as in Suricata");
    // As in Suricata, a rule without a condition on the payload is evaluated on packets.
    let bare = "alert http any any -> any any (flowbits:isset,seen; sid:2;)\n".to_owned() + set;
    assert_eq!(alerts(&bare, Transport::Tcp, &[get]), Vec::<u32>::new());
    assert_eq!(alerts(&bare, Transport::Tcp, &[get, get]), [2]);
}

#[test]
fn a_packet_that_is_none_of_the_session_shows_no_transaction() {
    let rule = "alert http any any -> any any (http.uri; content:\"/a/b\"; sid:1;)";
    let get = (Direction::ToServer, GET);
    assert_eq!(alerts_beside(rule, Transport::Tcp, &[get], &[0], false), Vec::<u32>::new());
    // The transaction is inspected with the next packet.
    assert_eq!(alerts_beside(rule, Transport::Tcp, &[get, get], &[0], false), [1, 1]);
}

#[test]
fn protocols_and_events() {
    let options = [
        "app-layer-protocol:http;",
        "app-layer-protocol:!tls; flow:to_server;",
        "app-layer-protocol:http,final; flow:to_client;",
        "app-layer-event:http.invalid_content_length_field_in_response;",
        "app-layer-protocol:tls;",
        "app-layer-event:http.request_line_invalid;",
    ];
    let bad = OK.to_vec();
    let bad = String::from_utf8(bad).unwrap().replace("Length: 5", "Length: x");
    let pieces = [(Direction::ToServer, GET), (Direction::ToClient, bad.as_bytes())];
    assert_eq!(of_options("ip", &options, Transport::Tcp, &pieces), [1, 2, 3, 4]);
    // Once per direction, when detection ends.
    let rule = "alert ip any any -> any any (app-layer-protocol:http; sid:1;)";
    let pieces = [(Direction::ToServer, GET), (Direction::ToServer, GET)];
    assert_eq!(alerts(rule, Transport::Tcp, &pieces), [1]);
}

/// A query for AAAA of example.org, and an answer "no such name" with an SOA record's type in no answer.
const QUERY: &[u8] =
    b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03org\x00\x00\x1c\x00\x01";
const ANSWER: &[u8] =
    b"\x12\x34\x81\x83\x00\x01\x00\x01\x00\x00\x00\x00\x07example\x03org\x00\x00\x1c\x00\x01\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04\xc0\x00\x02\x07";

#[test]
fn dns_names_and_numbers() {
    let options = [
        r#"dns.query; content:"example.org"; bsize:11;"#,
        r#"dns_query; content:"EXAMPLE"; nocase;"#,
        "dns.opcode:0; flow:to_server;",
        "dns.rcode:3; flow:to_client;",
        "dns.rcode:nxdomain;",
        "dns.rrtype:AAAA; flow:to_server;",
        "dns.rrtype:A; flow:to_client;",
        r#"dns.query; dataset:set,seen,type string;"#,
        "dns.opcode:!0;",
        "dns.rrtype:A; flow:to_server;",
        "dns.rcode:servfail;",
        r#"dns.query; dataset:isset,never,type string;"#,
    ];
    let pieces = [(Direction::ToServer, QUERY), (Direction::ToClient, ANSWER)];
    assert_eq!(of_options("dns", &options, Transport::Udp, &pieces), [1, 2, 3, 4, 5, 6, 7, 8]);
    // The added value is in the set the second time.
    let rule = "alert dns any any -> any any (dns.query; dataset:set,seen,type string; sid:1;)";
    let pieces = [(Direction::ToServer, QUERY), (Direction::ToServer, QUERY)];
    assert_eq!(alerts(rule, Transport::Udp, &pieces), [1]);
}

#[test]
fn hooks_and_states() {
    use Direction::{ToClient, ToServer};
    let head: &[u8] = b"POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc";
    let pieces: &[(Direction, &[u8])] = &[(ToServer, head), (ToServer, b"def"), (ToClient, OK)];
    let rule = |head: &str, options: &str, sid: u32| {
        format!("alert {head} any any -> any any ({options} sid:{sid};)\n")
    };
    let rules = [
        // The first piece passes these states, and stays in the third; the second piece passes on.
        rule("http1:request_started", "", 1),
        rule("http1:request_line", "", 2),
        rule("http1:request_body", "", 3),
        rule("http1:request_complete", "", 4),
        rule("http1:response_headers", "", 5),
        // With something to look for it matches once.
        rule("http1:request_line", r#"http.method; content:"POST";"#, 6),
        rule("http1:request_headers", r#"http.host; content:"b";"#, 7),
        rule("http1", "app-layer-state:<request_body;", 8),
        rule("http1", "app-layer-state:>request_headers;", 9),
        rule("http1", "app-layer-state:request_trailer;", 10),
    ];
    let sids = alerts(&rules.concat(), Transport::Tcp, pieces);
    assert_eq!(sids, [1, 2, 3, 6, 9, 3, 4, 10, 5]);
    // What belongs to another state, another direction or no single protocol is refused.
    for refused in [
        rule("http1:request_line", r#"http.host; content:"a";"#, 1),
        rule("http1:request_line", r#"http.stat_code; content:"200";"#, 1),
        rule("http1:request_line", "flow:to_client;", 1),
        rule("http1:client_hello_done", "", 1),
        rule("http:request_line", "", 1),
        rule("http", "app-layer-state:request_line;", 1),
        rule("tcp:request_line", "", 1),
    ] {
        let loaded = load_text(&refused, &SettingsMap::new(), &Arc::default());
        assert_eq!((loaded.rules.report.loaded, loaded.diagnostics.len()), (0, 1), "{refused}");
    }
}

#[test]
fn frames() {
    let pieces = [(Direction::ToServer, GET), (Direction::ToClient, OK), (Direction::ToServer, GET)];
    let options = [
        r#"frame:http1.request; content:"GET /a"; startswith; bsize:67;"#,
        r#"flow:to_client; frame:http1.response; content:"hello"; endswith;"#,
        r#"frame:http1.request; to_lowercase; content:"example.org";"#,
        r#"frame:http1.request; content:"GET"; frame:http1.stream; content:"probe";"#,
        // A frame is one message, in one direction.
        r#"frame:http1.request; content:"GET"; content:"GET"; distance:1;"#,
        r#"flow:to_server; frame:http1.response; content:"hello";"#,
    ];
    assert_eq!(of_options("http", &options, Transport::Tcp, &pieces), [1, 2, 3, 4]);
    // Once for each frame.
    let rule = r#"alert http1 any any -> any any (frame:request; content:"probe"; sid:1;)"#;
    assert_eq!(alerts(rule, Transport::Tcp, &pieces), [1, 1]);
    let query: &[u8] = &[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'a', 0, 0, 1, 0, 1];
    let rule =
        r#"alert dns any any -> any any (frame:pdu; content:"|00 07 01 00|"; startswith; bsize:19; sid:1;)"#;
    assert_eq!(alerts(rule, Transport::Udp, &[(Direction::ToServer, query)]), [1]);
    for refused in [
        r#"frame:http1.request; content:"x"; http.uri; content:"y";"#,
        r#"frame:http1.request; content:"x"; dsize:>1;"#,
        "frame:http1.request; absent;",
        r#"frame:http1.nothing; content:"x";"#,
        r#"frame:request; content:"x";"#,
        "frame:http1.request;",
    ] {
        let rule = format!("alert http any any -> any any ({refused} sid:1;)");
        let loaded = load_text(&rule, &SettingsMap::new(), &Arc::default());
        assert_eq!((loaded.rules.report.loaded, loaded.diagnostics.len()), (0, 1), "{refused}");
    }
}

/// A form with two files, the second of which comes with a later piece.
const FORM: [&[u8]; 2] = [
    b"POST /up HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=XX\r\nContent-Length: 186\r\n\r\n\
      --XX\r\nContent-Disposition: form-data; name=\"f\"; filename=\"one.txt\"\r\n\r\nfirst cat\r\n--XX\r\n",
    b"Content-Disposition: form-data; name=\"g\"; filename=\"two.txt\"\r\n\r\nsecond dog\r\n--XX--\r\n",
];

#[test]
fn each_file_of_a_request_is_looked_at() {
    let [first, second] = FORM;
    let body = first.len() - first.windows(4).position(|w| w == b"\r\n\r\n").unwrap() - 4 + second.len();
    let first = String::from_utf8_lossy(first).replace("186", &body.to_string());
    let pieces = [(Direction::ToServer, first.as_bytes()), (Direction::ToServer, second)];
    let options = [
        r#"file.data; content:"cat"; file.name; content:"one.txt";"#,
        r#"file.data; content:"dog";"#,
        r#"file.name; content:"two.txt";"#,
        r#"file.data; content:"cat"; file.data; content:"dog";"#,
        // No file has both.
        r#"file.data; content:"cat"; content:"dog";"#,
    ];
    assert_eq!(of_options("http", &options, Transport::Tcp, &pieces), [1, 2, 3, 4]);
}
