// SPDX-License-Identifier: Apache-2.0
//! Values that are empty or missing: `absent`, with and without transforms, and keywords on empty values.

use crate::app::{GET, OK, of_options};

use bartizan_applayer::protocol::Transport;
use bartizan_base::Direction;

/// The name of the DNS root exists as a value, though nothing matches in it, alone and beside another query.
#[test]
fn the_root_is_no_absent_name() {
    let head = |questions: u8| [0x12, 0x34, 1, 0, 0, questions, 0, 0, 0, 0, 0, 0];
    let root: &[u8] = b"\0\0\x02\0\x01";
    let other: &[u8] = b"\x01a\x01b\0\0\x01\0\x01";
    let options = [
        "dns.query; absent;",
        r#"dns.queries.rrname; absent: or_else; content:"zzz";"#,
        "dns.query; to_md5; absent;",
        "dns.query; bsize:0;",
        r#"dns.query; content:!"a";"#,
        "dns.answers.rrname; absent;",
        "dns.opcode:0;",
    ];
    for message in [[&head(1), root].concat(), [&head(2), root, other].concat()] {
        let pieces = [(Direction::ToServer, message.as_slice())];
        assert_eq!(
            of_options("dns", &options, Transport::Udp, &pieces),
            [6, 7],
            "{}",
            message.escape_ascii()
        );
    }
}

#[test]
fn a_buffer_is_absent_whatever_its_transforms() {
    let transforms = [
        "to_md5;",
        "to_sha1;",
        "to_sha256;",
        "dotprefix;",
        "to_lowercase;",
        "to_uppercase;",
        "strip_whitespace;",
        "compress_whitespace;",
        "domain;",
        "tld;",
        "header_lowercase;",
        "strip_pseudo_headers;",
        "url_decode;",
        "xor:\"0d\";",
        "pcrexform:\"(x)\";",
        "from_base64;",
        "gunzip;",
        "zlib_deflate;",
        "to_lowercase; to_md5;",
    ];
    let pieces = [(Direction::ToServer, GET), (Direction::ToClient, OK)];
    let (mut holds, mut fails) = (Vec::new(), Vec::new());
    for transform in transforms {
        holds.push(format!("http.referer; {transform} absent;"));
        holds.push(format!("http.location; {transform} absent; http.stat_code; content:\"200\";"));
        holds.push(format!("http.cookie; {transform} absent: or_else; bsize:77;"));
        holds.push(format!("http.referer; absent; {transform}"));
        fails.push(format!("http.user_agent; {transform} absent;"));
        fails.push(format!("http.user_agent; {transform} absent: or_else; bsize:77;"));
    }
    let count = u32::try_from(holds.len()).unwrap();
    holds.extend(fails);
    let options: Vec<&str> = holds.iter().map(String::as_str).collect();
    let matched = of_options("http", &options, Transport::Tcp, &pieces);
    assert_eq!(matched, (1..=count).collect::<Vec<_>>());
}

/// Keywords on an empty value.
#[test]
fn empty_values() {
    let answer = b"HTTP/1.1 200 OK\r\nLocation: \r\nContent-Length: 0\r\n\r\n";
    let holds = [
        "bsize:0;",
        "entropy: value < 1;",
        "entropy: value = 0;",
        "isdataat:!0;",
        "pcre:\"/^$/\";",
        "content:!\"a\";",
        "to_md5; bsize:0;",
        "to_sha1; content:!\"a\";",
        "to_sha256; dotprefix; bsize:0;",
        "dotprefix; bsize:0;",
        "dotprefix; entropy: value < 1;",
    ];
    let fails = [
        "bsize:>0;",
        "entropy: value > 0;",
        "entropy: bytes 3, value < 1;",
        "entropy: offset 1, value < 1;",
        "isdataat:0;",
        "to_md5; bsize:16;",
        "to_sha1; bsize:20;",
        "dotprefix; content:\".\";",
        "gunzip; dotprefix; content:\".\";",
        "to_md5; dataset:isnotset,hashes,type md5;",
        "byte_test:0,=,0,0;",
        "byte_extract:0,0,n; bsize:0;",
        "byte_jump:0,0;",
        "absent;",
    ];
    let options: Vec<String> = holds.iter().chain(&fails).map(|o| format!("http.location; {o}")).collect();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let pieces = [(Direction::ToServer, GET), (Direction::ToClient, answer.as_slice())];
    let matched = of_options("http", &options, Transport::Tcp, &pieces);
    assert_eq!(matched, (1..=u32::try_from(holds.len()).unwrap()).collect::<Vec<_>>());
}
