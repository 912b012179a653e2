// SPDX-License-Identifier: Apache-2.0
//! Packets, capture files and random numbers of tests are made in one place, `testkit`: no other code
//! computes a checksum for a frame, writes the headers of TCP, UDP and IP or the head of a capture file by
//! hand, or has a generator of its own.
//!
//! The check looks for text that a header written by hand cannot do without. Bytes that are no header, or a
//! broken one on purpose, are in a list of exceptions. Packets that the program itself makes (the normaliser,
//! probes) are not checked.

use super::rust::{code, tests_begin};
use super::{Finding, Tree};

/// The signs of a copy, and the replacement.
const SIGNS: &[(&str, &str)] = &[
    ("pseudo_header(", CHECKSUM),
    ("InternetChecksum", CHECKSUM),
    (" 0x50,", TCP),
    ("[0x50,", TCP),
    (" 5 << 4", TCP),
    ("len() as u16 + 8)", UDP),
    ("(8 + payload.len()", UDP),
    ("(8 + data.len()", UDP),
    ("len() + 8) as u16", UDP),
    ("(8 + length)", UDP),
    ("vec![0x45, ", IP),
    ("vec![0x60, 0", IP),
    ("0x86, 0xdd, 0x60", IP),
    (" 64, 6, 0, 0", IP),
    (" 64, 17, 0, 0", IP),
    (" 64, protocol, 0, 0", IP),
    (" 64, proto, 0, 0", IP),
    ("0xa1b2_c3d4", "a capture file by hand: `bartizan_testkit::capture`"),
    ("wrapping_add(0x9e37_79b9_7f4a_7c15", GENERATOR),
    ("wrapping_mul(6_364_136_223_846_793_005)", GENERATOR),
];

const GENERATOR: &str = "a generator of its own: `bartizan_testkit::random::Random`";
const CHECKSUM: &str = "a checksum for a frame: `bartizan_testkit::packet` has right and wrong ones";
const TCP: &str = "a TCP header by hand: `bartizan_testkit::packet::Segment`";
const UDP: &str = "a UDP header by hand: `bartizan_testkit::packet::Datagram`";
const IP: &str = "an IP header by hand: `bartizan_testkit::packet::Ip`";

/// Files that may have copies, each with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("crates/runtime/src/input.rs", "a frame of zstd, which has no IP in it"),
    ("crates/packet/src/capture/tests.rs", "the reader's own tests write every variant of the format"),
    ("crates/packet/src/checksum.rs", "the tests of the checksum itself"),
];

/// Finds copies of parts of `testkit`, in all sources outside of the program.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !file.path.starts_with("testkit/")) {
        if EXCEPTIONS.iter().any(|(path, _)| *path == file.path) {
            continue;
        }
        let from = if is_test(&file.path) { 1 } else { tests_begin(&file.text) };
        for (index, line) in code(&file.text).lines().enumerate().filter(|(index, _)| index + 1 >= from) {
            for (_, what) in SIGNS.iter().filter(|(sign, _)| line.contains(sign)) {
                findings.push(Finding::new(&file.path, index + 1, *what));
            }
        }
    }
    for (path, _) in EXCEPTIONS.iter().filter(|(path, _)| tree.root.is_some() && !tree.exists(path)) {
        let message = "is gone; take it out of EXCEPTIONS in xtask/src/tidy/frames.rs";
        findings.push(Finding::new(path, 0, message));
    }
    findings
}

/// Whether the whole file is for tests, not only its end.
fn is_test(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    !path.starts_with("crates/")
        || path.contains("/tests/")
        || path.contains("/examples/")
        || name == "tests.rs"
        || name == "testing.rs"
        || name == "properties.rs"
        || name.ends_with("_tests.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_found_in_tests_and_not_in_the_program() {
        let header = "fn tcp() { out.extend([0x50, flags, 0, 0]); }\n";
        let mixed = "fn reset() { pseudo_header(src); }\n#[cfg(test)]\nmod tests { // InternetChecksum\nfn f() { out.extend((payload.len() as u16 + 8).to_be_bytes()); }\n}\n";
        let tree = Tree::of(&[
            ("crates/flow/tests/x.rs", header),
            ("crates/flow/src/part/tests.rs", header),
            ("crates/flow/src/lib.rs", header),
            ("crates/stages/src/normaliser.rs", mixed),
            ("fuzz/src/x.rs", "let magic = 0xa1b2_c3d4u32;\n"),
            ("testkit/src/packet/tcp.rs", header),
        ]);
        let found: Vec<(String, usize)> = check(&tree).into_iter().map(|f| (f.path, f.line)).collect();
        let expected = [
            ("crates/flow/tests/x.rs", 1),
            ("crates/flow/src/part/tests.rs", 1),
            ("crates/stages/src/normaliser.rs", 4),
            ("fuzz/src/x.rs", 1),
        ];
        assert_eq!(found, expected.map(|(path, line)| (path.to_owned(), line)));
    }
}
