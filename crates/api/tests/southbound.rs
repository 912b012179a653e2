// SPDX-License-Identifier: Apache-2.0
//! Messages of the southbound protocol: the test vectors in both directions, round trips of any message
//! however it is split, and malformed messages.

use bartizan_api::southbound::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const VECTORS: &str = include_str!("vectors/southbound.txt");

/// The messages of the test vectors, by name.
fn messages() -> Vec<(&'static str, SouthboundMessage)> {
    let device = DeviceId::new("edge-1").unwrap();
    let policy = Policy { name: "web".into(), tenant: 7, text: "chain: [pfw, ids]\n".into() };
    let object = Object::Policy(policy.clone());
    let manifest = Manifest::of([&object]);
    let rule = |op, total, rules| {
        let (rule_type, group, tenant) = (RuleType::Ids, 3, 7);
        let device = DeviceId::new("edge-1").unwrap().number();
        SouthboundMessage::Rule(RuleMessage {
            device,
            rule_type,
            op,
            group,
            total,
            current: 0,
            generation: 5,
            tenant,
            rules,
        })
    };
    let levels = BTreeMap::from([("host".to_owned(), 5), ("xdp".to_owned(), 5)]);
    let workers = vec![WorkerRuns { link: "wan".into(), worker: 0, levels }];
    let diagnostic = PolicyDiagnostic {
        object: object.key(),
        pointer: "/chain/0".into(),
        line: 1,
        column: 9,
        message: "no function is called `pfv`; did you mean `pfw`?".into(),
    };
    let settings = serde_json::json!({"home-net": "10.0.0.0/8"}).as_object().unwrap().clone();
    let order = |order, settings| FunctionMessage::Order { order, function: "ids".into(), settings };
    let state =
        FunctionState { function: "ids".into(), done: true, state: "running".into(), reason: String::new() };
    let alert = AlertAggregate {
        key: "7/1:2001:3/10.0.0.1/10.0.0.2".into(),
        tenant: 7,
        rule: "1:2001:3".into(),
        message: "a scan".into(),
        count: 12,
        first: 1_000,
        last: 2_000,
        event: serde_json::json!({"src_ip": "10.0.0.1", "dest_ip": "10.0.0.2", "proto": "TCP"})
            .as_object()
            .unwrap()
            .clone(),
    };
    let session = SouthboundMessage::Session;
    vec![
        (
            "hello",
            session(SessionMessage::Hello(Hello {
                versions: vec![1],
                device: device.clone(),
                instance: 99,
                generation: 4,
                manifest: Manifest::default().hash(),
                refused: 0,
                software: "bartizan 0.1.0".into(),
            })),
        ),
        (
            "welcome",
            session(SessionMessage::Welcome(Welcome {
                version: 1,
                controller: "main".into(),
                keep_alive_ms: 10_000,
                statistics: 0,
                alerts: 2,
            })),
        ),
        (
            "refuse",
            session(SessionMessage::Refuse(Refuse {
                code: RefuseCode::Identity,
                message: "the certificate is another device's".into(),
                versions: vec![1],
                retry_ms: 60_000,
            })),
        ),
        ("alive", session(SessionMessage::Alive)),
        ("bye", session(SessionMessage::Bye)),
        (
            "enrol",
            session(SessionMessage::Enrol(Enrol { device, token: Some("t".into()), csr: "PEM".into() })),
        ),
        (
            "enrolled",
            session(SessionMessage::Enrolled(Enrolled {
                certificate: "PEM".into(),
                authorities: "PEM".into(),
            })),
        ),
        ("put", SouthboundMessage::Policy(5, PolicyMessage::Put(policy))),
        ("delete", SouthboundMessage::Policy(5, PolicyMessage::Delete(object.key()))),
        ("commit", SouthboundMessage::Policy(5, PolicyMessage::Commit(manifest.hash()))),
        (
            "running",
            SouthboundMessage::Policy(
                5,
                PolicyMessage::Running(GenerationAck {
                    manifest: manifest.hash(),
                    workers,
                    took: None,
                    stands: None,
                }),
            ),
        ),
        (
            "refused",
            SouthboundMessage::Policy(
                6,
                PolicyMessage::Refused(GenerationRefusal {
                    code: GenerationRefusalCode::Policy,
                    diagnostics: vec![diagnostic],
                    more: 0,
                }),
            ),
        ),
        ("ask", SouthboundMessage::Policy(5, PolicyMessage::Ask)),
        (
            "inventory",
            SouthboundMessage::Policy(
                4,
                PolicyMessage::Inventory(InventoryPart { objects: manifest, more: false }),
            ),
        ),
        (
            "rules-raw",
            rule(RuleOp::Add, 1, GroupRules::Raw(vec!["alert tcp any any -> any any (sid:1;)".into()])),
        ),
        ("rules-ids", rule(RuleOp::Update, 2, GroupRules::Ids(vec![(1, 2001), (1, 2002)]))),
        ("rules-delete", rule(RuleOp::Delete, 0, GroupRules::Raw(Vec::new()))),
        ("start", SouthboundMessage::Function(1, order(FunctionOrder::Start, Default::default()))),
        ("stop", SouthboundMessage::Function(2, order(FunctionOrder::Stop, Default::default()))),
        ("restart", SouthboundMessage::Function(3, order(FunctionOrder::Restart, Default::default()))),
        ("configure", SouthboundMessage::Function(4, order(FunctionOrder::Configure, settings))),
        ("health", SouthboundMessage::Function(5, order(FunctionOrder::Health, Default::default()))),
        ("state", SouthboundMessage::Function(5, FunctionMessage::State(state))),
        (
            "delta",
            SouthboundMessage::Statistics(
                8,
                StatisticsMessage::Delta(Delta {
                    from: 1_000,
                    to: 2_000,
                    lost: 0,
                    counters: BTreeMap::from([("flow.tcp".into(), 3)]),
                }),
            ),
        ),
        ("statistics-received", SouthboundMessage::Statistics(8, StatisticsMessage::Received)),
        ("raise", SouthboundMessage::Alert(2, AlertMessage::Raise { alerts: vec![alert], lost: 1 })),
        ("alert-received", SouthboundMessage::Alert(2, AlertMessage::Received)),
    ]
}

/// The bytes of a vector: hexadecimal digits of the heads, then the body as text.
fn bytes_of(vector: &str) -> Vec<u8> {
    let (heads, body) = vector.split_once(" | ").unwrap_or((vector, ""));
    let digits: Vec<u8> = heads.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.as_chunks::<2>().0;
    let heads = pairs.iter().map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
    heads.chain(body.bytes()).collect()
}

/// The vector of bytes.
fn vector_of(bytes: &[u8], sub_head: usize) -> String {
    let (heads, body) = bytes.split_at(HEAD + sub_head);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let heads = format!("{} {}", hex(&heads[..HEAD]), hex(&heads[HEAD..]));
    if body.is_empty() { heads } else { format!("{heads} | {}", std::str::from_utf8(body).unwrap()) }
}

fn sub_head(message: &SouthboundMessage) -> usize {
    match message.sub() {
        SubProtocol::Session => 4,
        SubProtocol::Policy | SubProtocol::Statistics | SubProtocol::Alert => 12,
        SubProtocol::Rule => 32,
        SubProtocol::Function => 8,
    }
}

fn decode(bytes: &[u8]) -> Result<Option<SouthboundMessage>, DecodeError> {
    let mut decoder = MessageDecoder::default();
    decoder.push(bytes);
    decoder.next_message()
}

#[test]
fn the_test_vectors_hold_both_ways() {
    let mut written = String::new();
    for (name, message) in messages() {
        let bytes = message.encode(1).unwrap();
        written.push_str(&format!("{name}: {}\n", vector_of(&bytes, sub_head(&message))));
    }
    // A change of the bytes is a change of the protocol: BARTIZAN_BLESS=1 writes the file, whose difference
    // needs a review.
    if std::env::var_os("BARTIZAN_BLESS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/southbound.txt"), &written)
            .unwrap();
        return;
    }
    assert_eq!(written, VECTORS);
    for (line, (name, message)) in VECTORS.lines().zip(messages()) {
        let (named, vector) = line.split_once(": ").unwrap();
        assert_eq!(named, name);
        assert_eq!(decode(&bytes_of(vector)), Ok(Some(message)), "{name}");
    }
}

/// The test vectors that version 2 adds to version 1.
const VECTORS_2: &str = include_str!("vectors/southbound-2.txt");

#[test]
fn how_long_a_generation_took_is_told_in_version_2_only() {
    let running = |took| {
        let levels = BTreeMap::from([("host".to_owned(), 5)]);
        let workers = vec![WorkerRuns { link: "wan".into(), worker: 0, levels }];
        let manifest = Manifest::default().hash();
        SouthboundMessage::Policy(
            5,
            PolicyMessage::Running(GenerationAck { manifest, workers, took, stands: None }),
        )
    };
    let timed = running(Some(ApplyTimings { build: 812, store: 402, swap: 95 }));
    let bytes = timed.encode(2).unwrap();
    assert_eq!(format!("running-2: {}\n", vector_of(&bytes, sub_head(&timed))), VECTORS_2);
    assert_eq!(decode_as(2, &bytes), Ok(Some(timed.clone())));
    assert_eq!(decode_as(2, &running(None).encode(2).unwrap()), Ok(Some(running(None))));
    // A peer with version 1 does not get the field; from such a peer the field is an error.
    assert_eq!(decode_as(1, &timed.encode(1).unwrap()), Ok(Some(running(None))));
    let mut old = bytes;
    old[0] = 1;
    assert!(matches!(decode_as(1, &old), Err(DecodeError::Body { message: "running", .. })));
}

/// The test vectors that version 3 adds to version 2.
const VECTORS_3: &str = include_str!("vectors/southbound-3.txt");

/// The messages of version 3's vectors, with the bytes of their sub-protocols' heads and of the numbers after
/// these.
fn messages_3() -> Vec<(&'static str, SouthboundMessage, usize)> {
    let text = r#"{"order":100,"policy":{"chain":["pfw","ids"],"name":"acme/web","tenant":"acme"}}"#;
    let policy = Policy { name: "web".into(), tenant: 7, text: text.into() };
    let manifest = Manifest::of([&Object::Policy(policy.clone())]).hash();
    let took = ApplyTimings { build: 812, store: 402, swap: 95 };
    let message = |message| SouthboundMessage::Policy(5, message);
    vec![
        ("put-3", message(PolicyMessage::Put(policy)), 16),
        ("commit-3", message(PolicyMessage::Commit(manifest)), 44),
        ("done-3", message(PolicyMessage::Done(took)), 12),
    ]
}

/// The test vectors that version 4 adds to version 3.
const VECTORS_4: &str = include_str!("vectors/southbound-4.txt");

/// A device's report on levels and rules.
fn stands() -> LevelStatus {
    let of = |rule: &str, why: &str| RuleLeftOut { rule: rule.into(), why: why.into() };
    let rules = RulesAtLevel {
        while_open: false,
        evaluates: BTreeMap::from([("pfw".to_owned(), 41)]),
        left_out: LeftOut {
            count: 1,
            first: vec![of("acme/web: the default of pfw", "its policy is staged")],
        },
    };
    let level = |level: &str, generation, state, why: &str, rules| LevelStands {
        link: "wan".into(),
        level: level.into(),
        generation,
        state,
        why: why.into(),
        rules,
    };
    let levels = vec![
        level("host", 5, LevelState::On, "", None),
        level(
            "xdp",
            5,
            LevelState::Closed,
            "no sign of life of worker 0: what it does not serve is dropped",
            Some(rules),
        ),
    ];
    let left_out = LeftOut { count: 248, first: vec![of("web.rules:12: 1:2001", "no parser reads `smb`")] };
    LevelStatus { levels, left_out, content: None }
}

#[test]
fn what_levels_do_is_told_in_version_4_only() {
    let running = |stands| {
        let levels = BTreeMap::from([("host".to_owned(), 5), ("xdp".to_owned(), 5)]);
        let workers = vec![WorkerRuns { link: "wan".into(), worker: 0, levels }];
        let manifest = Manifest::default().hash();
        SouthboundMessage::Policy(
            5,
            PolicyMessage::Running(GenerationAck { manifest, workers, took: None, stands }),
        )
    };
    let told = running(Some(stands()));
    let bytes = told.encode(4).unwrap();
    let written = format!("running-4: {}\n", vector_of(&bytes, sub_head(&told)));
    if std::env::var_os("BARTIZAN_BLESS").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/southbound-4.txt");
        return std::fs::write(file, &written).unwrap();
    }
    assert_eq!(written, VECTORS_4);
    assert_eq!(decode_as(4, &bytes), Ok(Some(told.clone())));
    assert_eq!(decode_as(4, &running(None).encode(4).unwrap()), Ok(Some(running(None))));
    // A peer with version 3 does not get the field; from such a peer the field is an error.
    assert_eq!(decode_as(3, &told.encode(3).unwrap()), Ok(Some(running(None))));
    let mut old = bytes;
    old[0] = 3;
    assert!(matches!(decode_as(3, &old), Err(DecodeError::Body { message: "running", .. })));
    // More names than there may be.
    let mut many = stands();
    many.left_out.first = vec![many.left_out.first[0].clone(); limits::LEFT_OUT + 1];
    let error = decode_as(4, &running(Some(many)).encode(4).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bounds);
}

#[test]
fn names_of_rules_that_are_left_out_are_few_and_short() {
    let mut left_out = LeftOut::default();
    for number in 0..20 {
        left_out.add(|| RuleLeftOut { rule: format!("{number}"), why: "ü".repeat(limits::LEFT_OUT_BYTES) });
    }
    assert_eq!((left_out.count, left_out.first.len()), (20, limits::LEFT_OUT));
    let first = &left_out.first[0];
    assert_eq!((first.rule.as_str(), first.why.len()), ("0", limits::LEFT_OUT_BYTES));
}

/// Vectors of the messages that version 5 adds to version 4.
const VECTORS_5: &str = include_str!("vectors/southbound-5.txt");

#[test]
fn links_and_ports_are_told_in_version_5_only() {
    let of = |links: Vec<String>, ports: Vec<String>| {
        SouthboundMessage::Session(SessionMessage::Interfaces(Interfaces { links, ports }))
    };
    let told = of(vec!["wan".into(), "dmz".into()], vec!["trap".into()]);
    let bytes = told.encode(5).unwrap();
    let written = format!("interfaces-5: {}\n", vector_of(&bytes, sub_head(&told)));
    if std::env::var_os("BARTIZAN_BLESS").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/southbound-5.txt");
        return std::fs::write(file, &written).unwrap();
    }
    assert_eq!(written, VECTORS_5);
    assert_eq!(decode_as(5, &bytes), Ok(Some(told.clone())));
    (0..bytes.len()).for_each(|end| assert_eq!(decode_as(5, &bytes[..end]), Ok(None)));
    // A peer with version 4 does not get the message; from such a peer the message is unknown.
    assert_eq!(told.encode(4), Err(EncodeError::Version("interfaces", 4)));
    let mut old = bytes.clone();
    old[0] = 4;
    assert_eq!(decode_as(4, &old), Err(DecodeError::Op { sub: "session", op: 8 }));
    // More names than there may be, and longer ones.
    let most = vec!["x".repeat(limits::INTERFACE_BYTES); limits::INTERFACES];
    let fits = of(most.clone(), most.clone());
    assert_eq!(decode_as(5, &fits.encode(5).unwrap()), Ok(Some(fits)));
    let longer = vec!["x".repeat(limits::INTERFACE_BYTES + 1)];
    let more = [most, vec![String::new()]].concat();
    for (links, ports) in
        [(more.clone(), Vec::new()), (Vec::new(), more), (longer.clone(), Vec::new()), (Vec::new(), longer)]
    {
        assert!(!Interfaces { links: links.clone(), ports: ports.clone() }.fits());
        let error = decode_as(5, &of(links, ports).encode(5).unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Bounds);
    }
    // All other messages are as before.
    for (name, message) in messages() {
        assert_eq!(decode_as(5, &message.encode(5).unwrap()), Ok(Some(message)), "{name}");
    }
}

fn decode_as(version: u8, bytes: &[u8]) -> Result<Option<SouthboundMessage>, DecodeError> {
    let mut decoder = MessageDecoder::default();
    decoder.agree(version);
    decoder.push(bytes);
    decoder.next_message()
}

#[test]
fn a_change_and_its_acknowledgement_are_short_in_version_3() {
    let written: String = messages_3()
        .iter()
        .map(|(name, message, numbers)| {
            format!("{name}: {}\n", vector_of(&message.encode(3).unwrap(), *numbers))
        })
        .collect();
    assert_eq!(written, VECTORS_3);
    for (line, (name, message, _)) in VECTORS_3.lines().zip(messages_3()) {
        let bytes = bytes_of(line.split_once(": ").unwrap().1);
        assert_eq!(decode_as(3, &bytes), Ok(Some(message.clone())), "{name}");
        for end in 0..bytes.len() {
            assert_eq!(decode_as(3, &bytes[..end]), Ok(None));
        }
        // A peer with an older version gets that version's form, if there is one.
        let done = matches!(message, SouthboundMessage::Policy(_, PolicyMessage::Done(_)));
        match message.encode(2) {
            Ok(bytes) => assert_eq!(decode_as(2, &bytes), Ok(Some(message))),
            Err(error) => assert!(done && error == EncodeError::Version("done", 2), "{name}: {error}"),
        }
        let mut old = bytes;
        old[0] = 2;
        assert!(decode_as(2, &old).is_err(), "{name}");
    }
    // All other messages are as before.
    for (name, message) in messages() {
        let bytes = message.encode(3).unwrap();
        assert_eq!(decode_as(3, &bytes), Ok(Some(message.clone())), "{name}");
        assert!(bytes.len() <= message.encode(2).unwrap().len(), "{name}");
    }
}

#[test]
fn what_is_wrong_in_a_short_body_is_said() {
    let policy = |op: u8, body: &[u8]| {
        let length = u32::try_from(12 + body.len()).unwrap().to_be_bytes();
        [&[3, 2, 0, 0], &length[..], &[op, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], body].concat()
    };
    let long = [&[0, 1, 0, 129][..], &[b'x'; 129]].concat();
    let cases: [(u8, &[u8], ErrorKind, &str); 9] = [
        (1, &[], ErrorKind::Malformed, "end within"),
        (1, &[0, 1, 0], ErrorKind::Malformed, "end within"),
        (1, &[0, 1, 0, 2, b'x'], ErrorKind::Malformed, "end within"),
        (1, &[0, 1, 0, 1, 0xff], ErrorKind::Malformed, "the name is not UTF-8"),
        (1, &[0, 1, 0, 1, b'x', 0xff], ErrorKind::Malformed, "the text is not UTF-8"),
        (1, &long, ErrorKind::Bounds, "letters of the name"),
        (3, &[0; 31], ErrorKind::Malformed, "32 bytes"),
        (3, &[0; 33], ErrorKind::Malformed, "32 bytes"),
        (8, b"{}", ErrorKind::Malformed, "missing field"),
    ];
    for (op, body, kind, what) in cases {
        let error = decode_as(3, &policy(op, body)).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(what), "{error}");
    }
    let name = "x".repeat(usize::from(u16::MAX) + 1);
    let put = PolicyMessage::Put(Policy { name, tenant: 1, text: String::new() });
    assert!(SouthboundMessage::Policy(1, put).encode(3).is_err());
}

/// Vectors of the messages that version 6 extends.
const VECTORS_6: &str = include_str!("vectors/southbound-6.txt");

#[test]
fn content_hashes_of_a_devices_own_files_are_told_in_version_6_only() {
    let running = |content| {
        let stands = Some(LevelStatus { content, ..LevelStatus::default() });
        let manifest = Manifest::default().hash();
        let running = GenerationAck { manifest, workers: Vec::new(), took: None, stands };
        SouthboundMessage::Policy(5, PolicyMessage::Running(running))
    };
    let told = running(Some(LocalContent { lists: Hash([0xab; 32]), settings: Hash([0xcd; 32]) }));
    let bytes = told.encode(6).unwrap();
    let written = format!("running-6: {}\n", vector_of(&bytes, sub_head(&told)));
    if std::env::var_os("BARTIZAN_BLESS").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/southbound-6.txt");
        return std::fs::write(file, &written).unwrap();
    }
    assert_eq!(written, VECTORS_6);
    assert_eq!(decode_as(6, &bytes), Ok(Some(told.clone())));
    // A peer with version 5 does not get the field; from such a peer the field is an error.
    assert_eq!(decode_as(5, &told.encode(5).unwrap()), Ok(Some(running(None))));
    let mut old = bytes;
    old[0] = 5;
    assert!(matches!(decode_as(5, &old), Err(DecodeError::Body { message: "running", .. })));
}

#[test]
fn the_specification_shows_the_test_vectors() {
    let page = include_str!("../../../docs/southbound.md");
    for line in
        [VECTORS, VECTORS_2, VECTORS_3, VECTORS_4, VECTORS_5, VECTORS_6].into_iter().flat_map(str::lines)
    {
        assert!(page.contains(line), "docs/southbound.md does not show this vector:\n{line}");
    }
}

#[test]
fn messages_come_whole_however_their_bytes_are_split() {
    let messages: Vec<SouthboundMessage> = messages().into_iter().map(|(_, message)| message).collect();
    let bytes: Vec<u8> = messages.iter().flat_map(|message| message.encode(1).unwrap()).collect();
    for size in (1..200).chain([bytes.len()]) {
        let mut decoder = MessageDecoder::default();
        let mut came = Vec::new();
        for piece in bytes.chunks(size) {
            decoder.push(piece);
            while let Some(message) = decoder.next_message().unwrap() {
                came.push(message);
            }
        }
        assert_eq!(came, messages, "pieces of {size}");
        assert_eq!(decoder.held(), 0);
    }
}

#[test]
fn a_policy_of_the_papers_experiment_is_at_most_400_bytes() {
    let text = "policies:\n  - name: stop-trojans\n    from: 10.0.0.0/8\n    to: any\n    chain: [pfw, sfw, ids]\n    ids:\n      categories: [trojan-activity]\n      action: drop\n";
    let policy = Policy { name: "stop-trojans".into(), tenant: 7, text: text.into() };
    let manifest = Manifest::of([&Object::Policy(policy.clone())]).hash();
    for (version, most) in [(1, 400), (3, 300)] {
        let put = SouthboundMessage::Policy(5, PolicyMessage::Put(policy.clone())).encode(version).unwrap();
        let commit = SouthboundMessage::Policy(5, PolicyMessage::Commit(manifest)).encode(version).unwrap();
        assert!(put.len() + commit.len() <= most, "{} and {}", put.len(), commit.len());
    }
}

#[test]
fn what_is_wrong_is_said_and_is_so_for_all_that_follows() {
    let alive = SouthboundMessage::Session(SessionMessage::Alive).encode(1).unwrap();
    let changed = |at: usize, byte: u8| {
        let mut bytes = alive.clone();
        bytes[at] = byte;
        bytes
    };
    let policy = |body: &str| {
        let length = u32::try_from(12 + body.len()).unwrap().to_be_bytes();
        [&[1, 2, 0, 0], &length[..], &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], body.as_bytes()].concat()
    };
    let name = format!(r#"{{"name":"{}","tenant":1,"text":""}}"#, "x".repeat(limits::NAME_LETTERS + 1));
    let cases: Vec<(Vec<u8>, ErrorKind)> = vec![
        (changed(0, 2), ErrorKind::Version),
        (changed(1, 0), ErrorKind::Unknown),
        (changed(1, 7), ErrorKind::Unknown),
        (changed(2, 1), ErrorKind::Flags),
        (changed(3, 2), ErrorKind::Flags),
        (changed(4, 1), ErrorKind::Bounds),
        (changed(7, 3), ErrorKind::Malformed),
        (changed(8, 0), ErrorKind::Unknown),
        (changed(8, 99), ErrorKind::Unknown),
        (changed(9, 1), ErrorKind::Flags),
        (policy("{}"), ErrorKind::Malformed),
        (policy(r#"{"name":"a","tenant":65536,"text":""}"#), ErrorKind::Malformed),
        (policy(r#"{"name":"a","tenant":1,"text":"","other":1}"#), ErrorKind::Malformed),
        (policy(&name), ErrorKind::Bounds),
        (policy(&"[".repeat(1_000)), ErrorKind::Bounds),
    ];
    for (bytes, kind) in cases {
        let mut decoder = MessageDecoder::default();
        decoder.push(&bytes);
        let error = decoder.next_message().unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(!error.to_string().is_empty());
        decoder.push(&alive);
        assert_eq!(decoder.next_message(), Err(error));
    }
}

#[test]
fn rule_heads_have_to_agree_with_their_bodies() {
    let good = RuleMessage {
        device: 1,
        rule_type: RuleType::Pfw,
        op: RuleOp::Add,
        group: 1,
        total: 2,
        current: 0,
        generation: 1,
        tenant: 1,
        rules: GroupRules::Ids(vec![(1, 1), (1, 2)]),
    };
    let bad = [
        RuleMessage { current: 1, ..good.clone() },
        RuleMessage { total: u32::MAX, ..good.clone() },
        RuleMessage { op: RuleOp::Delete, ..good.clone() },
        RuleMessage { rules: GroupRules::Ids(Vec::new()), ..good.clone() },
    ];
    assert_eq!(
        decode(&SouthboundMessage::Rule(good.clone()).encode(1).unwrap()),
        Ok(Some(SouthboundMessage::Rule(good)))
    );
    for message in bad {
        assert!(decode(&SouthboundMessage::Rule(message.clone()).encode(1).unwrap()).is_err(), "{message:?}");
    }
}

#[test]
fn events_of_alerts_have_a_bound_and_as_many_as_may_be_fit_a_message() {
    let raise = |alerts: usize, letters: usize| {
        let event = serde_json::json!({"a": "x".repeat(letters)}).as_object().unwrap().clone();
        let (key, rule, message) = ("k".repeat(200), "1:2:3".to_owned(), "m".repeat(500));
        let alert = AlertAggregate { key, tenant: 1, rule, message, count: 1, first: 1, last: 1, event };
        let length = alert.event_bytes();
        let message = AlertMessage::Raise { alerts: vec![alert; alerts], lost: 0 };
        (
            length,
            decode(&SouthboundMessage::Alert(1, message).encode(1).unwrap()).map(|message| message.is_some()),
        )
    };
    let longest = limits::EVENT_BYTES - r#"{"a":""}"#.len();
    assert_eq!(raise(limits::ALERTS, longest), (limits::EVENT_BYTES, Ok(true)));
    assert_eq!(raise(1, longest + 1).1.unwrap_err().kind(), ErrorKind::Bounds);
    // Even incompressible alerts are within the bound of a message.
    const { assert!(limits::ALERTS * 2 * limits::EVENT_BYTES <= limits::MESSAGE_BYTES) };
}

#[test]
fn the_best_common_version_is_chosen() {
    assert_eq!(common_version(&[1, 2, 3], &[2, 3, 9]), Some(3));
    assert_eq!(common_version(&[1], &[2]), None);
    assert_eq!(common_version(&[1], &[]), None);
}

#[test]
fn hello_may_say_more_than_is_known() {
    let mut hello = serde_json::json!({"versions": [1, 9], "device": "edge-1", "instance": 1, "generation": 0,
        "refused": 0, "software": "later", "manifest": Manifest::default().hash(), "something": [1]});
    assert!(serde_json::from_value::<Hello>(hello.clone()).is_ok());
    for bad in ["", "Edge", "-a", "a b", "é"] {
        hello["device"] = bad.into();
        assert!(serde_json::from_value::<Hello>(hello.clone()).is_err(), "{bad}");
    }
}

#[test]
fn hashes_of_different_things_differ() {
    let policy = |tenant, name: &str, text: &str| {
        Object::Policy(Policy { name: name.into(), tenant, text: text.into() }).hash()
    };
    let hashes = [policy(1, "a", "bc"), policy(1, "ab", "c"), policy(2, "a", "bc"), policy(1, "a", "b")];
    let distinct: std::collections::BTreeSet<Hash> = hashes.into_iter().collect();
    assert_eq!(distinct.len(), hashes.len());
}

proptest! {
    #[test]
    fn any_policy_comes_back(name in "\\PC{0,60}", tenant: u16, text in "(?s).{0,2000}", generation: u64) {
        prop_assume!(name.len() <= limits::NAME_LETTERS);
        let message = SouthboundMessage::Policy(generation, PolicyMessage::Put(Policy { name, tenant, text }));
        for version in [1, 3] {
            let bytes = message.encode(version).unwrap();
            for end in 0..bytes.len().min(64) {
                prop_assert_eq!(decode_as(version, &bytes[..end]), Ok(None));
            }
            prop_assert_eq!(decode_as(version, &bytes), Ok(Some(message.clone())));
        }
    }

    #[test]
    fn any_names_of_interfaces_come_back(links in prop::collection::vec("\\PC{0,40}", 0..20), ports in prop::collection::vec("\\PC{0,40}", 0..20)) {
        let interfaces = Interfaces { links, ports };
        prop_assert!(interfaces.fits());
        let message = SouthboundMessage::Session(SessionMessage::Interfaces(interfaces));
        let bytes = message.encode(5).unwrap();
        prop_assert_eq!(decode_as(5, &bytes), Ok(Some(message)));
    }

    #[test]
    fn statistics_come_back_compressed(counters in prop::collection::btree_map("[a-z.]{1,20}", any::<u64>(), 0..300)) {
        let delta = Delta { from: 1, to: 2, lost: 3, counters };
        let plain = serde_json::to_vec(&delta).unwrap().len();
        let message = SouthboundMessage::Statistics(9, StatisticsMessage::Delta(delta));
        let bytes = message.encode(1).unwrap();
        prop_assert!(bytes.len() <= plain + HEAD + 12 + 16);
        prop_assert_eq!(decode(&bytes), Ok(Some(message)));
    }

    #[test]
    fn rubbish_is_no_message_and_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), version in 1..=5u8) {
        let mut decoder = MessageDecoder::default();
        decoder.agree(version);
        decoder.push(&bytes);
        while let Ok(Some(message)) = decoder.next_message() {
            prop_assert!(message.encode(version).is_ok());
        }
    }

    #[test]
    fn damaged_messages_do_no_harm(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte: u8) {
        let messages = messages();
        let mut bytes = messages[which.index(messages.len())].1.encode(1).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(Some(message)) = decode(&bytes) {
            prop_assert!(message.encode(1).is_ok());
        }
    }
}
