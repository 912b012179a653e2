// SPDX-License-Identifier: Apache-2.0
//! Properties of parsing rules: never a panic, every line counted, places inside the file, and printed rules
//! parse back to equal ones, however lines are joined.

use bartizan_rules::{
    MAX_DIAGNOSTICS, Rule, RuleFile, format_pattern, parse_classifications, parse_file, parse_references,
    parse_thresholds,
};
use proptest::prelude::*;

fn check(file: &RuleFile) -> Result<(), TestCaseError> {
    prop_assert_eq!(file.counts.rules as usize, file.rules.len());
    prop_assert_eq!(file.counts.refused as usize, file.refused.len());
    prop_assert!(file.diagnostics.len() <= MAX_DIAGNOSTICS);
    let end = file.source.text().len() as u32;
    for rule in &file.rules {
        prop_assert!(rule.span.end <= end);
        prop_assert!(rule.id().sid > 0);
        for option in rule.iter() {
            prop_assert!(
                option.option.span.start >= rule.span.start && option.option.span.end <= rule.span.end
            );
            prop_assert!(!option.keyword().is_empty());
            let _ = option.argument(true);
        }
        let _ = (rule.msg(), rule.references().count(), rule.metadata().count());
    }
    for d in file.diagnostics.iter().take(20) {
        prop_assert!(d.span.end <= end);
        prop_assert!(d.line >= 1 && d.column >= 1);
        prop_assert!((d.line, d.column) <= (d.end_line, d.end_column));
        prop_assert!(!d.render(false).is_empty());
    }
    // Each refused rule has its reason.
    let codes: Vec<_> = file.diagnostics.iter().map(|d| d.code).collect();
    for refused in &file.refused {
        prop_assert!(codes.contains(&refused.code));
    }
    Ok(())
}

fn address() -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        Just("any".to_owned()),
        "[A-Z_]{1,8}".prop_map(|v| format!("${v}")),
        (any::<[u8; 4]>(), 0u8..=32).prop_map(|(a, n)| format!("{}.{}.{}.{}/{n}", a[0], a[1], a[2], a[3])),
        (any::<u128>(), 0u8..=128).prop_map(|(a, n)| format!("{}/{n}", std::net::Ipv6Addr::from(a))),
        any::<u32>().prop_map(|a| format!("{}-255.255.255.255", std::net::Ipv4Addr::from(a))),
    ];
    nested(leaf.boxed())
}

fn port() -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        Just("any".to_owned()),
        any::<u16>().prop_map(|p| p.to_string()),
        any::<u16>().prop_map(|p| format!("{p}:")),
        any::<u16>().prop_map(|p| format!(":{p}")),
        "[A-Z_]{1,8}".prop_map(|v| format!("${v}")),
    ];
    nested(leaf.boxed())
}

fn nested(leaf: BoxedStrategy<String>) -> BoxedStrategy<String> {
    leaf.prop_recursive(3, 12, 4, |inner| {
        (any::<bool>(), proptest::collection::vec(inner, 1..4), any::<bool>()).prop_map(
            |(not, items, blank)| {
                let separator = if blank { ", " } else { "," };
                format!("{}[{}]", if not { "!" } else { "" }, items.join(separator))
            },
        )
    })
    .boxed()
}

fn option() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z][a-z_.]{0,12}[0-9]".prop_map(|k| format!("{k};")),
        proptest::collection::vec(any::<u8>(), 1..20)
            .prop_map(|b| format!("content:!\"{}\";", format_pattern(&b))),
        "[ -:<-\\[\\]-~]{1,20}".prop_map(|v| format!("kw0 : {v} ;")),
        Just(r#"pcre:"/a\;b\"[0-9]{2,}/iR";"#.to_owned()),
        Just("reference:url,example.org/a?b=c;".to_owned()),
        Just("metadata: a b, c d e ,f;".to_owned()),
    ]
}

fn rule() -> impl Strategy<Value = String> {
    let head = (
        prop_oneof![
            Just("alert"),
            Just("drop"),
            Just("PASS"),
            Just("rejectboth"),
            Just("config"),
            Just("accept:hook"),
            Just("drop:flow,alert"),
            Just("accept:packet,pass:packet,alert")
        ],
        prop_oneof![
            Just("tcp"),
            Just("dns:request_complete"),
            Just("tls:<client_hello_done"),
            Just("tcp-pkt"),
            Just("http1")
        ],
        address(),
        port(),
        prop_oneof![Just("->"), Just("<>"), Just("=>")],
        address(),
        port(),
    );
    (head, proptest::collection::vec(option(), 0..8), 1u32..u32::MAX - 1).prop_map(|(h, options, sid)| {
        format!(
            "{} {}  {} {} {}\t{} {} (msg:\"x\\;y\"; {} sid:{sid}; rev:1;)",
            h.0,
            h.1,
            h.2,
            h.3,
            h.4,
            h.5,
            h.6,
            options.join(" ")
        )
    })
}

fn same(a: &Rule, b: &Rule) -> Result<(), TestCaseError> {
    prop_assert_eq!(
        (a.action, a.scope, &a.also, a.direction, a.id()),
        (b.action, b.scope, &b.also, b.direction, b.id())
    );
    prop_assert_eq!((a.protocol(), a.hook()), (b.protocol(), b.hook()));
    prop_assert_eq!(a.covers_earlier_hooks(), b.covers_earlier_hooks());
    prop_assert_eq!((&a.src.expr, &a.dst.expr), (&b.src.expr, &b.dst.expr));
    prop_assert_eq!((&a.src_port.expr, &a.dst_port.expr), (&b.src_port.expr, &b.dst_port.expr));
    let options = |r: &Rule| {
        r.iter().map(|o| (o.keyword().to_owned(), o.value().map(<[u8]>::to_vec))).collect::<Vec<_>>()
    };
    prop_assert_eq!(options(a), options(b));
    prop_assert_eq!(a.references().collect::<Vec<_>>(), b.references().collect::<Vec<_>>());
    prop_assert_eq!(a.metadata().collect::<Vec<_>>(), b.metadata().collect::<Vec<_>>());
    prop_assert_eq!(a.msg(), b.msg());
    Ok(())
}

proptest! {
    #[test]
    fn arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        check(&parse_file(bytes.clone(), "f"))?;
        let _ = parse_thresholds(bytes.clone(), "f");
        let _ = parse_classifications(bytes.clone(), "f");
        let _ = parse_references(bytes, "f");
    }

    #[test]
    fn nearly_rules(
        text in r#"((alert|#|drop|suppress|config) ?(tcp|classification:|gen_id 1,)? ?[a-z$!\[\],:; "\\()0-9<>-]{0,60}[\n\r\\]{0,2}){0,6}"#,
    ) {
        check(&parse_file(text.clone().into_bytes(), "f"))?;
        let _ = parse_thresholds(text.clone().into_bytes(), "f");
        let _ = parse_classifications(text.into_bytes(), "f");
    }

    #[test]
    fn damaged_rules(text in rule(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = text.into_bytes();
        let i = at.index(bytes.len());
        bytes[i] = byte;
        check(&parse_file(bytes, "f"))?;
    }

    #[test]
    fn printed_rules_read_back(text in rule()) {
        let first = parse_file(text.clone().into_bytes(), "f");
        prop_assert!(first.diagnostics.is_empty(), "{}\n{}", text, first.render(false));
        prop_assert_eq!(first.rules.len(), 1);
        let printed = first.rules[0].print();
        let second = parse_file(printed.clone(), "f");
        prop_assert!(second.diagnostics.is_empty(), "{}", second.render(false));
        same(&first.rules[0], &second.rules[0])?;
        prop_assert_eq!(second.rules[0].print(), printed);
    }

    #[test]
    fn continued_lines_change_nothing(
        text in rule(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..5),
        ends in prop_oneof![Just("\\\n"), Just("\\ \t\r\n")],
    ) {
        let plain = parse_file(text.clone().into_bytes(), "f");
        let mut broken = text.clone();
        let mut places: Vec<usize> = cuts.iter().map(|c| 1 + c.index(text.len() - 1)).collect();
        places.sort_unstable();
        places.dedup();
        for at in places.iter().rev() {
            broken.insert_str(*at, ends);
        }
        broken.push('\n');
        let joined = parse_file(broken.into_bytes(), "f");
        prop_assert_eq!(joined.rules.len(), 1, "{}", joined.render(false));
        same(&plain.rules[0], &joined.rules[0])?;
        // The end of the rule is at its position in the file.
        let last = joined.source.position(joined.rules[0].span.end - 1);
        prop_assert_eq!(last.line as usize, 1 + places.len());
        check(&joined)?;
    }
}
