// SPDX-License-Identifier: Apache-2.0
//! Rules that depend on each other: one sets a state, another requires it; and the order of their actions.

use bartizan_testkit::random::Random;

/// Options added to a rule, and to its companion (empty if it has none).
pub type Bond = fn(&mut Random) -> (String, String);

/// Ways to link two rules, by name.
pub const BONDS: &[(&str, Bond)] = &[
    ("flowbits-set-isset", |_| ("flowbits:set,b@N".into(), "flowbits:isset,b@N".into())),
    ("flowbits-set-isnotset", |_| ("flowbits:set,b@N".into(), "flowbits:isnotset,b@N".into())),
    ("flowbits-noalert", |_| ("flowbits:set,b@N; flowbits:noalert".into(), "flowbits:isset,b@N".into())),
    ("flowbits-toggle", |_| ("flowbits:toggle,b@N".into(), "flowbits:isset,b@N".into())),
    ("flowbits-unset", |_| {
        ("flowbits:set,b@N; flowbits:isset,c@N|b@N".into(), "flowbits:isset,b@N; flowbits:unset,b@N".into())
    }),
    ("flowbits-or", |_| ("flowbits:set,c@N".into(), "flowbits:isset,b@N|c@N".into())),
    ("xbits", |random| {
        let (track, expire) = (*random.pick(&["ip_src", "ip_dst", "ip_pair"]), *random.pick(&[1, 60]));
        let ask = *random.pick(&["isset", "isnotset", "toggle"]);
        (format!("xbits:set,x@N,track {track}, expire {expire}"), format!("xbits:{ask},x@N,track {track}"))
    }),
    ("xbits-unset", |random| {
        let track = *random.pick(&["ip_src", "ip_dst", "ip_pair"]);
        (
            format!("xbits:set,x@N,track {track}"),
            format!("xbits:isset,x@N,track {track}; xbits:unset,x@N,track {track}"),
        )
    }),
    ("hostbits", |random| {
        let (side, ask) = (*random.pick(&["src", "dst"]), *random.pick(&["isset", "isnotset"]));
        (format!("hostbits:set,h@N,{side}"), format!("hostbits:{ask},h@N,{side}"))
    }),
    ("flowint", |random| {
        let operator = *random.pick(&["==", ">", "<", ">=", "!="]);
        let value = random.within(1, 3);
        ("flowint:i@N,+,1".into(), format!("flowint:i@N,isset; flowint:i@N,{operator},{value}"))
    }),
    ("flowint-notset", |_| ("flowint:i@N,notset; flowint:i@N,=,1".into(), "flowint:i@N,isset".into())),
];

/// A random action for the first rule of a pair: `drop` in about a third, for the sake of prevention.
#[must_use]
pub fn action(random: &mut Random) -> &'static str {
    match random.below(20) {
        0..=6 => "drop",
        7 => "pass",
        8 => "reject",
        _ => "alert",
    }
}
