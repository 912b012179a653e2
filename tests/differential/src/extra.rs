// SPDX-License-Identifier: Apache-2.0
//! Conditions besides the bytes: flow, size, header fields, counts, thresholds; and protocols of a rule's
//! head.

use bartizan_testkit::random::Random;

/// Sizes of the conversation, so that numbers in rules are near the true values.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Bytes of the inspected message.
    pub size: usize,
    /// Total bytes that the client sends.
    pub client: usize,
    /// Total bytes that the server sends.
    pub server: usize,
    /// Number of messages.
    pub messages: usize,
}

/// Makes options.
pub type Extra = fn(&mut Random, &About) -> Vec<String>;

/// Conditions for rules of any protocol, by name.
pub const EXTRAS: &[(&str, Extra)] = &[
    ("flow", |r, _| {
        vec![
            (*r.pick(&[
                "flow:to_server",
                "flow:to_client",
                "flow:established",
                "flow:established,to_server",
                "flow:established,to_client",
                "flow:not_established",
                "flow:stateless",
                "flow:to_server,only_stream",
                "flow:to_server,no_stream",
                "flow:established,to_client,only_stream",
                "flow:established,no_stream",
            ]))
            .into(),
        ]
    }),
    ("dsize", |r, about| {
        let size = about.size + r.below(3) - usize::from(about.size > 0);
        vec![match r.below(5) {
            0 => format!("dsize:<{size}"),
            1 => format!("dsize:>{size}"),
            2 => format!("dsize:{}<>{}", size.saturating_sub(2), size + 2),
            3 => format!("dsize:!{size}"),
            _ => format!("dsize:{size}"),
        }]
    }),
    ("threshold-limit", |r, about| threshold(r, about, "limit")),
    ("threshold-threshold", |r, about| threshold(r, about, "threshold")),
    ("threshold-both", |r, about| threshold(r, about, "both")),
    ("detection-filter", |r, about| {
        let (track, count, seconds) = numbers(r, about);
        let track = if track == "by_rule" { "by_src" } else { track };
        vec![format!("detection_filter:track {track}, count {count}, seconds {seconds}")]
    }),
    ("noalert", |_, _| vec!["noalert".into()]),
    ("flow-pkts", |r, about| {
        let side = *r.pick(&["toserver", "toclient", "either", "both"]);
        vec![format!("flow.pkts:{side},{}{}", r.pick(&["", ">", "<", ">="]), r.within(1, about.messages + 3))]
    }),
    ("flow-bytes", |r, about| {
        let side = *r.pick(&["toserver", "toclient", "either", "both"]);
        vec![format!("flow.bytes:{side},{}{}", r.pick(&[">", "<", ">="]), about.size + 40 * r.below(6))]
    }),
    ("ttl", |r, _| vec![format!("ttl:{}", r.pick(&["64", "<65", ">63", "63", "60-70", ">64"]))]),
    ("prefilter", |r, _| vec![(*r.pick(&["ttl:64; prefilter", "dsize:>0; prefilter"])).into()]),
    ("flowbits-own", |_, _| vec!["flowbits:set,own@N".into(), "flowbits:isset,own@N".into()]),
    ("once-a-flow", |_, _| vec!["flowbits:isnotset,once@N".into(), "flowbits:set,once@N".into()]),
    ("toggle", |_, _| vec!["flowbits:toggle,t@N".into(), "flowbits:isset,t@N".into()]),
];

/// Conditions for rules over TCP, by name.
pub const TCP_EXTRAS: &[(&str, Extra)] = &[
    ("flags", |r, _| {
        let flags = *r.pick(&[
            "A", "PA", "A+", "*PA", "!S", "S", "SA", "F+", "+A", "PA,12", "!F", "R", "*FS", "S,12", "FPA",
        ]);
        vec![format!("flags:{flags}")]
    }),
    ("stream-size", |r, about| {
        let (side, size) = match r.below(4) {
            0 => ("client", about.client),
            1 => ("server", about.server),
            2 => ("both", about.client.min(about.server)),
            _ => ("either", about.client.max(about.server)),
        };
        let operator = *r.pick(&["<", ">", "=", "!=", "<=", ">="]);
        let part = *r.pick(&[0, size / 2, size, size + 1, size.saturating_sub(1)]);
        vec![format!("stream_size:{side},{operator},{part}")]
    }),
    ("window", |r, _| vec![format!("window:{}", r.pick(&["8192", "!8192", "0"]))]),
    ("seq", |r, _| vec![format!("seq:{}", r.pick(&[1_000_u32, 1_001, 0]))]),
    ("ack", |r, _| vec![format!("ack:{}", r.pick(&[1_000_u32, 900_001, 0]))]),
    ("mss", |r, _| vec![format!("tcp.mss:{}", r.pick(&["<1461", ">1459", "1460"]))]),
    ("app-layer-protocol", |r, _| {
        let name = *r.pick(&[
            "http",
            "!http",
            "failed",
            "tls",
            "dns",
            "!failed",
            "unknown",
            "http,either",
            "http,final",
        ]);
        vec![format!("app-layer-protocol:{name}")]
    }),
    ("stream-event", |r, _| {
        let event = *r.pick(&[
            "3whs_synack_resend_with_different_ack",
            "est_packet_out_of_window",
            "reassembly_overlap_different_data",
            "pkt_invalid_ack",
            "est_invalid_ack",
            "pkt_retransmission",
            "reassembly_seq_gap",
            "fin_out_of_window",
            "shutdown_syn_resend",
            "est_syn_toclient",
            "rst_but_no_session",
            "pkt_broken_ack",
            "3whs_ack_data_inject",
            "suspected_rst_inject",
            "wrong_thread",
            "pkt_spurious_retransmission",
            "3whs_synack_toserver_on_syn_recv",
            "fin1_fin2",
            "timewait_ack_wrong_seq",
            "closewait_fin_out_of_window",
        ]);
        vec![format!("stream-event:{event}")]
    }),
];

fn numbers(random: &mut Random, about: &About) -> (&'static str, usize, u64) {
    let track = *random.pick(&["by_src", "by_dst", "by_both", "by_rule", "by_flow"]);
    (track, random.within(1, about.messages.clamp(1, 4)), *random.pick(&[1, 2, 60]))
}

fn threshold(random: &mut Random, about: &About, kind: &str) -> Vec<String> {
    let (track, count, seconds) = numbers(random, about);
    vec![format!("threshold:type {kind}, track {track}, count {count}, seconds {seconds}")]
}
