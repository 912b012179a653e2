// SPDX-License-Identifier: Apache-2.0
//! Tests of host files.

use super::*;

const FILE: &str = "\
links:
  - name: wan
    inline: {a: eth1, b: eth2}
  - {name: mirror, tap: {interface: eth3}, workers: 1}
  - {name: replay, capture: one.pcap}
workers: 2
memory: {flows: 1000000, reassembly: 1GiB}
outputs:
  eve: {dir: /var/log/bartizan, rotate: {size: 100MiB, every: 1h, keep: 5}}
  socket: /run/bartizan/eve.sock
  mode: 0660
  group: adm
metrics: {listen: '[::1]:9100'}
policy: policy.yaml
suricata-config: /etc/suricata/suricata.yaml
rules: [a.rules, /etc/b.rules]
settings: {stream.midstream: yes, packet-alert-max: 20}
detect: true
reload: {max-loss: 25%, accept-malformed: true}
spin: 0
cache: none
controller: {address: 'controller.example:9444', identity: id, state: /var/lib/bartizan, statistics-every: 1m}
";

#[test]
fn reads_everything() {
    let file = parse("bartizan.yaml", FILE).expect("host file");
    assert_eq!(file.links.len(), 3);
    assert_eq!((file.links[0].workers, file.links[1].workers), (None, Some(1)));
    assert!(matches!(file.links[0].kind(), Some(LinkKind::Inline(i)) if i.b == "eth2"));
    assert!(matches!(file.links[2].kind(), Some(LinkKind::Capture([one])) if one == Path::new("one.pcap")));
    assert_eq!(file.memory.reassembly, Some(Size(1 << 30)));
    assert_eq!((file.memory.flows, file.memory.hosts), (Some(1_000_000), None));
    assert_eq!(file.rules[..], [Path::new("a.rules"), Path::new("/etc/b.rules")]);
    assert_eq!(file.settings.get("stream.midstream").map(String::as_str), Some("yes"));
    let rotate = &file.outputs.eve.as_ref().expect("eve").rotate;
    assert_eq!(
        (rotate.size, rotate.every, rotate.keep),
        (Some(Size(100 << 20)), Some(Seconds(3600)), Some(5))
    );
    assert_eq!(file.reload, Reload { max_loss: Some(Share(25)), accept_malformed: true });
    assert_eq!((file.outputs.mode.as_deref(), file.outputs.owner.as_deref()), (Some("0660"), None));
    assert_eq!(file.outputs.group.as_deref(), Some("adm"));
    assert_eq!(file.metrics.expect("metrics").listen.port(), 9100);
    let controller = file.controller.expect("controller");
    assert_eq!(
        (controller.address.as_deref(), controller.statistics_every),
        (Some("controller.example:9444"), Some(Seconds(60)))
    );
}

#[test]
fn says_what_is_wrong_and_where() {
    let cases = [
        (
            "links: [{name: a, tap: {interfce: e}}]",
            "1:25: the key `interfce` is not known; did you mean `interface`?",
        ),
        ("links: [{name: a}]", "1:9: link `a` needs exactly one of `inline`, `tap`, `capture` and `guest`"),
        ("workers: 2", "1:1: the key `links` is missing; add it"),
        (
            "links: [{name: a, inline: {a: e0, b: e0}}]",
            "1:9: interface `e0` is used twice; give each interface to one link, and once",
        ),
        ("links: [{name: a, inline: {a: e0, b: e1, c: e2}}]", "1:42: the key `c` is not known"),
        (
            "links: [{name: a, tap: {interface: [e0, e1]}}, {name: b, tap: {interface: e1}}]",
            "1:48: interface `e1` is used twice; give each interface to one link, and once",
        ),
        (
            "links: [{name: a, tap: {interface: [a, b, c, d, e, f, g, h, i]}}]",
            "1:25: link `a`: a tap has 1 to 8 interfaces, and this one has 9",
        ),
        (
            "links: []\nmemory: {reassembly: 3 bananas}",
            "2:22: `3 bananas` is not a size; write 64MiB, 2GiB or a number of bytes",
        ),
        ("links: []\nworkers: many", "2:10: expected a whole number from 0 to 65535, found `many`"),
        ("links: []", "1:1: there is no link, so no packet comes in; add one"),
        ("links: []\nmemory: {flows: 3}", "2:17: 3 entries are out of range; give 1024 to 16777216"),
        ("links: []\nmemory: {hosts: 0}", "2:17: 0 entries are out of range; give 64 to 16777216"),
        ("links: []\nmemory: {defrag: 1kb}", "2:18: 1024 bytes are too few; give 64KiB or more"),
        ("links: []\nworkers: 0", "2:10: at least one worker is needed"),
        ("links: []\noutputs: {eve: {dir: d, rotate: {keep: 3}}}", "2:40: `keep` needs `size` or `every`"),
        ("links: []\noutputs: {eve: {dir: d, rotate: {size: 0}}}", "2:40: a file cannot have 0 bytes"),
        (
            "links: []\nmetrics: {listen: 9100}",
            "2:19: `9100` is not an address with a port; write it like 127.0.0.1:9100",
        ),
        ("links: []\noutputs: {mode: 999}", "2:17: `999` is not a file mode; write octal digits such as 640"),
        ("links: []\nreload: {max-loss: 0.1}", "2:20: `0.1` is not a share; write a whole number of percent"),
        ("links: []\nreload: {max-loss: 101%}", "2:20: `101%` is not a share"),
        ("links: []\noutputs: {mode: 440}", "2:17: `440` is not a file mode"),
        ("links: []\nworkers: 1000", "2:10: more than 256 workers"),
        (
            "links:\n  - {name: a, tap: {interface: e0}, workers: 0}",
            "2:46: link `a` needs at least one worker",
        ),
        (
            "links:\n  - {name: a, capture: x.pcap, workers: 2}",
            "2:41: link `a` is a capture, which has no workers of its own",
        ),
        (
            "links:\n  - {name: a, inline: {a: e0, b: e1}, filter: port 1}",
            "2:47: link `a` is inline: a filter finds no ports in fragments",
        ),
        (
            "links: [{name: a, inline: {a: e0, b: e1, frames: 3}}]",
            "1:50: link `a`: 3 frames are out of range; give 16 to 1048576",
        ),
        (
            "links: [{name: a, tap: {interface: e0, duplicate-window: 0}}]",
            "1:58: link `a`: 0 milliseconds are out of range; give 1 to 1000",
        ),
        (
            "links: [{name: a, tap: {interface: e0, ring: 1MiB}}]",
            "1:46: link `a`: a ring of 1MiB is not possible; give 2MiB to 4GiB",
        ),
        (
            "links: [{name: a, tap: {interface: e0}, workers: 2}, {name: b, tap: {interface: e1}}]\nworkers: 2",
            "2:10: 2 workers are too few for the links, which need 3",
        ),
        (
            "links: [{name: a, tap: {interface: e0}, workers: 200}, {name: b, tap: {interface: e1}, workers: 57}]",
            "1:1: the links need 257 workers, and at most 256 are supported",
        ),
        ("links: []\nsettings: [a]", "2:11: expected a mapping"),
        ("links: []\nworkers: 1\nworkers: 2", "3:1: the key `workers` occurs twice; remove one"),
        ("links: []\n\tworkers: 1", "2:"),
    ];
    for (text, expected) in cases {
        let error = parse("bartizan.yaml", text).expect_err(text).to_string();
        assert!(error.contains(&format!("bartizan.yaml:{expected}")), "{text}\n{error}");
    }
}

#[test]
fn a_snap_length_is_for_taps_and_has_bounds() {
    let error = |kind: &str, bytes: u32| {
        let text = format!("links: [{{name: a, {kind}, snap-length: {bytes}}}}}]");
        parse("bartizan.yaml", &text).err().map(|error| error.to_string())
    };
    for bytes in [0, 127, 65_536] {
        let says = format!("bartizan.yaml:1:53: link `a`: {bytes} bytes are out of range; give 128 to 65535");
        assert!(error("tap: {interface: e0", bytes).is_some_and(|error| error.contains(&says)));
    }
    assert_eq!([128, 65_535].map(|bytes| error("tap: {interface: e0", bytes)), [None, None]);
    let inline = error("inline: {a: e0, b: e1", 128).unwrap();
    assert!(inline.contains("1:42: the key `snap-length` is not known"), "{inline}");
}

#[test]
fn a_controller_has_an_address_with_a_port() {
    for (keys, expected) in [
        ("address: here", "2:23: `here` is not a name or address with a port"),
        ("address: 'h:0'", "2:23: `h:0` is not a name"),
        ("statistics-every: 1s", "2:1: the controller has no place: give `address`"),
        ("address: 'h:1', here: {state: c}", "2:1: `address` and `here` are both given"),
        ("here: {state: c, listen: nowhere}", "2:39: `nowhere` is not an address with a port"),
        ("address: 'h:1', statistics-every: 2h", "2:48: 7200 seconds are out of range"),
    ] {
        let text = format!("links: []\ncontroller: {{{keys}, identity: i, state: s}}");
        let error = parse("bartizan.yaml", &text).unwrap_err().to_string();
        assert!(error.contains(&format!("bartizan.yaml:{expected}")), "{error}");
    }
}

#[test]
fn a_level_fails_closed_unless_it_is_told() {
    let level = |keys: &str| {
        let text = format!("links: [{{name: a, inline: {{a: e0, b: e1, offload: {{level: xdp{keys}}}}}}}]");
        parse("bartizan.yaml", &text).map_err(|error| error.to_string())
    };
    let offload = |file: HostFile| file.links[0].inline.as_ref().unwrap().levels()[0].clone();
    assert_eq!(offload(level("").unwrap()), OffloadSection::usual("xdp"));
    let OffloadSection { fail, stale, .. } = offload(level(", fail: open, stale: 5s").unwrap());
    assert_eq!((fail, stale), (OffloadFail::Open, Some(Seconds(5))));
    for (keys, expected) in [
        (", fail: shut", "1:70: `shut` is not known here; known: `closed`, `open`"),
        (", stale: 2h", "1:71: link `a`: 7200 seconds are out of range; give 1 to 3600"),
        (", stale: 0", "1:71: link `a`: 0 seconds are out of range"),
        (
            ", drop-samples: 1000",
            "1:78: link `a`: one of 1000 packets is not a possible sample; give a power of two up to 1048576, for instance 1024",
        ),
        (", drop-samples: 2097152", "1:78: link `a`: one of 2097152 packets is not a possible sample"),
    ] {
        let error = level(keys).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_link_has_several_levels_each_once() {
    let links = |offload: &str| {
        let text = format!("links: [{{name: a, inline: {{a: e0, b: e1, offload: {offload}}}}}]");
        parse("bartizan.yaml", &text).map_err(|error| error.to_string())
    };
    let file = links("[{level: rtl, entries: 64}, {level: xdp, fail: open}]").unwrap();
    let levels = file.links[0].inline.as_ref().unwrap().levels();
    let [first, second] = levels else { panic!("{levels:?}") };
    assert_eq!((first.level.as_str(), first.entries, first.fail), ("rtl", Some(64), OffloadFail::Closed));
    assert_eq!((second.level.as_str(), second.fail), ("xdp", OffloadFail::Open));
    for (offload, expected) in [
        ("[{level: xdp}, {level: xdp}]", "1:74: link `a` has level `xdp` twice; give each level once"),
        ("[{level: rtl}, {level: xdp, entries: 1}]", "1:88: link `a`: 1 entries are out of range"),
        (
            "[{level: rtl}, {level: xdp, drop-samples: 3}]",
            "1:93: link `a`: one of 3 packets is not a possible sample",
        ),
        ("[]", "1:42: link `a`: this list is empty, so it selects nothing"),
    ] {
        let error = links(offload).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn places_of_settings_are_known() {
    let places = places_of_settings(FILE);
    let place = places["packet-alert-max"];
    assert_eq!((places.len(), place.line, place.column), (2, 17, 53));
    assert!(places_of_settings("settings: [").is_empty() && places_of_settings("settings: 3").is_empty());
}

#[test]
fn paths_are_relative_to_the_file() {
    let mut file = parse("bartizan.yaml", FILE).expect("host file");
    file.relative_to(Path::new("/etc/bartizan"));
    assert_eq!(file.policy.as_deref(), Some(Path::new("/etc/bartizan/policy.yaml")));
    assert_eq!(file.rules[..], [Path::new("/etc/bartizan/a.rules"), Path::new("/etc/b.rules")]);
    assert_eq!(file.outputs.socket.as_deref(), Some(Path::new("/run/bartizan/eve.sock")));
    assert_eq!(file.cache.as_deref(), Some(Path::new("none")));
    let controller = file.controller.as_ref().unwrap();
    assert_eq!(controller.identity, Path::new("/etc/bartizan/id"));
    assert_eq!(controller.state, Path::new("/var/lib/bartizan"));
}
