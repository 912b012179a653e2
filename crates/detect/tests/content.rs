// SPDX-License-Identifier: Apache-2.0
//! Keywords on the bytes of a buffer: rule options against payloads.

use crate::common;

use common::{Lab, NONE, matches, refusal, refusal_of_http};

#[track_caller]
fn table(rows: &[(&str, &[u8], bool)]) {
    for (options, payload, want) in rows {
        let shown = payload.escape_ascii();
        assert_eq!(matches(options, payload), *want, "{options} on `{shown}`");
    }
}

#[test]
fn contents_and_places() {
    table(&[
        (r#"content:"abc";"#, b"xxabcxx", true),
        (r#"content:"abc";"#, b"xxABCxx", false),
        (r#"content:"abc"; nocase;"#, b"xxABCxx", true),
        (r#"content:"a|0d 0a|b";"#, b"a\r\nb", true),
        (r#"content:!"abc";"#, b"xxabcxx", false),
        (r#"content:!"abc";"#, b"xxabxx", true),
        (r#"content:"abc"; offset:2;"#, b"xxabc", true),
        (r#"content:"abc"; offset:3;"#, b"xxabc", false),
        (r#"content:"abc"; depth:5;"#, b"xxabc", true),
        (r#"content:"abc"; depth:4;"#, b"xxabc", false),
        (r#"content:"abc"; offset:2; depth:3;"#, b"xxabcx", true),
        (r#"content:"abc"; depth:3; offset:2;"#, b"xxxabc", false),
        (r#"content:!"abc"; offset:1; depth:3;"#, b"abcabc", true),
        (r#"content:!"abc"; offset:3; depth:3;"#, b"abcabc", false),
        (r#"content:!"abc"; offset:30;"#, b"abcabc", true),
        (r#"content:"abc"; startswith;"#, b"abcx", true),
        (r#"content:"abc"; startswith;"#, b"xabc", false),
        (r#"content:"abc"; endswith;"#, b"abcxabc", true),
        (r#"content:"abc"; endswith;"#, b"abcx", false),
        (r#"content:"abc"; endswith; nocase;"#, b"xABC", true),
        (r#"content:"abc"; startswith; endswith;"#, b"abc", true),
        (r#"content:"abc"; startswith; endswith;"#, b"abcabc", false),
        (r#"content:!"abc"; endswith;"#, b"xabc", false),
        (r#"content:!"abc"; endswith;"#, b"abcx", true),
        // As in Suricata, the first occurrence hides the last one.
        (r#"content:!"abc"; endswith;"#, b"abcabc", true),
        (r#"content:"abc"; endswith; depth:3;"#, b"abcabc", false),
        (r#"content:"abc"; endswith; depth:6;"#, b"abcabc", true),
        (r#"content:"abc"; rawbytes; fast_pattern;"#, b"abc", true),
        (r#"content:"abc"; fast_pattern:only; content:"d";"#, b"dabc", true),
        (r#"content:"abc"; fast_pattern:1,2;"#, b"abc", true),
        (r#"content:"abc"; fast_pattern:1,2;"#, b"xbc", false),
    ]);
}

#[test]
fn relative_contents() {
    table(&[
        (r#"content:"a"; content:"b"; distance:0;"#, b"ba", false),
        (r#"content:"a"; content:"b"; distance:0;"#, b"bab", true),
        (r#"content:"a"; content:"b"; distance:2;"#, b"axb", false),
        (r#"content:"a"; content:"b"; distance:2;"#, b"axxb", true),
        (r#"content:"a"; content:"b"; within:1;"#, b"axb", false),
        (r#"content:"a"; content:"b"; within:1;"#, b"axab", true),
        (r#"content:"a"; content:"b"; distance:1; within:1;"#, b"abxab axb", true),
        (r#"content:"a"; content:"b"; distance:-2;"#, b"ba", true),
        (r#"content:"a"; content:"b"; distance:-3; within:1;"#, b"bxa", true),
        (r#"content:"a"; content:"b"; distance:-3; within:1;"#, b"xba", false),
        // A `within` that ends before the start is no limit.
        (r#"content:"a"; content:"b"; distance:-9; within:3;"#, b"xxab", true),
        (r#"content:"a"; content:"b"; within:2; content:"c"; within:2;"#, b"ab_a_bc", true),
        (r#"content:"a"; content:"b"; within:2; content:"c"; within:1;"#, b"abb_c abc", true),
        (r#"content:"a"; content:!"b"; within:1;"#, b"ab", false),
        (r#"content:"a"; content:!"b"; within:1;"#, b"abac", true),
        (r#"content:"a"; content:!"b"; distance:0;"#, b"ba", true),
        (r#"content:"a"; content:!"b"; distance:0; content:"c"; distance:0;"#, b"axc", true),
        // After a later `a` the negated content may be missing.
        (r#"content:"a"; content:!"b"; distance:0;"#, b"aba", true),
        (r#"content:"a"; content:!"b"; distance:0;"#, b"abab", false),
        (r#"content:"a"; content:!"b"; distance:-1;"#, b"ab.a", true),
        (r#"content:"a"; content:!"b"; distance:0; content:!"c"; distance:0;"#, b"ab ac a", true),
        (r#"content:"a"; content:!"b"; distance:0; content:!"c"; distance:0;"#, b"ab a c", false),
        (r#"content:"a"; content:!"b"; distance:0; content:!"c"; within:2;"#, b"abacxxac a", true),
        (r#"content:"a"; content:!"b"; distance:0; content:"c"; within:1;"#, b"ac ab ac", true),
        (r#"content:"a"; content:"a"; distance:0; content:!"b"; distance:0;"#, b"a ab", false),
        (r#"content:"a"; content:"a"; distance:0; content:!"b"; distance:0;"#, b"a ab a", true),
        (r#"content:"a"; content:!"B"; nocase; distance:0;"#, b"aba", true),
        (r#"pcre:"/a/"; content:!"b"; distance:0;"#, b"aba", true),
        (r#"content:"a"; content:!"b"; endswith; distance:0;"#, b"ab a", true),
        (r#"content:"a"; content:"b"; within:1; content:"z";"#, b"ab z", true),
        (r#"content:"a"; content:"b"; within:1; content:"z";"#, b"ab", false),
        (r#"content:"ab"; content:"ab"; distance:-1; within:3;"#, b"abab", true),
        (r#"content:"a"; content:"b"; endswith; distance:0;"#, b"abxb", true),
        (r#"content:"a"; content:"b"; endswith; within:1;"#, b"abxab", true),
        (r#"content:"a"; content:"b"; endswith; within:1;"#, b"abxb", false),
    ]);
}

#[test]
fn positions_of_data() {
    table(&[
        ("isdataat:2;", b"abc", true),
        ("isdataat:3;", b"abc", false),
        ("isdataat:!3;", b"abc", true),
        ("isdataat:!2;", b"abc", false),
        (r#"content:"a"; isdataat:2,relative;"#, b"abc", true),
        (r#"content:"a"; isdataat:3,relative;"#, b"abc", false),
        (r#"content:"a"; isdataat:!1,relative;"#, b"abca", true),
        (r#"content:"a"; isdataat:!1,relative;"#, b"abcab", false),
        // Behind a negated content it is its `endswith`.
        (r#"content:"a"; content:!"z"; isdataat:!1,relative;"#, b"abcab", true),
        (r#"content:"a"; content:!"z"; isdataat:!1,relative;"#, b"abcz", false),
        (r#"content:"a"; content:!"b"; distance:0; isdataat:!1,relative;"#, b"ab.a.", true),
        (r#"content:"a"; content:!"z"; isdataat:!2,relative;"#, b"abcab", false),
        (r#"content:"a"; isdataat:!3 , relative , rawbytes;"#, b"abc", true),
        (r#"byte_extract:1,0,n; isdataat:n;"#, b"\x02bc", true),
        (r#"byte_extract:1,0,n; isdataat:n;"#, b"\x03bc", false),
        (r#"byte_extract:1,0,n; content:"b"; isdataat:!n,relative;"#, b"\x02bc", true),
    ]);
}

#[test]
fn expressions() {
    table(&[
        (r#"pcre:"/^a.c$/";"#, b"abc", true),
        (r#"pcre:"/^a.c$/";"#, b"ABC", false),
        (r#"pcre:"/^a.c$/i";"#, b"ABC", true),
        (r#"pcre:!"/^a.c$/i";"#, b"ABC", false),
        (r#"pcre:!"/^a.c$/i";"#, b"ABD", true),
        (r#"pcre:"/a.c/";"#, b"a\nc", false),
        (r#"pcre:"/a.c/s";"#, b"a\nc", true),
        (r#"pcre:"/^b/m";"#, b"a\nb", true),
        (r#"pcre:"/a b # c/x";"#, b"ab", true),
        (r#"pcre:"/b/A";"#, b"ab", false),
        (r#"pcre:"/b$/";"#, b"ab\n", true),
        (r#"pcre:"/b$/E";"#, b"ab\n", false),
        (r#"pcre:"/a\/b/";"#, b"a/b", true),
        (r#"pcre:"/(a)b\1/";"#, b"aba", true),
        (r#"content:"a"; pcre:"/^b/R";"#, b"ab", true),
        (r#"content:"a"; pcre:"/^b/R";"#, b"axb", false),
        (r#"content:"a"; pcre:"/^b/R";"#, b"axab", true),
        (r#"content:"a"; pcre:"/(?<=a)b/R";"#, b"ab", false),
        (r#"pcre:"/a./"; content:"c"; within:1;"#, b"abxadc", true),
        (r#"pcre:"/a./"; content:"c"; within:1;"#, b"abxc", false),
        (r#"content:"a"; pcre:!"/^b/R";"#, b"abac", true),
        (r#"content:"a"; pcre:!"/^b/R";"#, b"ab", false),
        (r#"pcre:"/a\x3bb/"; content:"b";"#, b"a;b", true),
    ]);
}

#[test]
fn an_expression_at_its_limit_is_no_match_either_way() {
    let mut settings = bartizan_base::SettingsMap::new();
    settings.set("pcre.match-limit", "1");
    let mut payload = vec![b'a'; 400];
    payload.push(b'b');
    for options in [r#"pcre:"/^(a+)+$/O";"#, r#"pcre:!"/^(a+)+$/O";"#] {
        let mut lab = Lab::with(&common::udp_rule(options), &settings);
        assert_eq!(lab.send_to_server(&payload), NONE, "{options}");
    }
}

#[test]
fn numbers() {
    table(&[
        ("byte_test:2,=,0x0102,0;", b"\x01\x02", true),
        ("byte_test:2,=,0x0201,0,little;", b"\x01\x02", true),
        ("byte_test:2,!=,0x0102,0;", b"\x01\x02", false),
        ("byte_test:2,!,0x0102,0;", b"\x01\x03", true),
        // A sign makes the complement in 64 bits.
        ("byte_test:4,<,-1,0;", b"\xff\xff\xff\xff", true),
        ("byte_test:4,=,-1,0;", b"\xff\xff\xff\xff", false),
        ("byte_test:8,=,-5,0;", b"\xff\xff\xff\xff\xff\xff\xff\xfb", true),
        ("byte_test:4,=,-18446744073709551611,0;", b"\0\0\0\x05", true),
        ("byte_test:1,=,0,70000;", b"\0", false),
        ("byte_extract:0,0,n; byte_test:1,=,n,0;", b"\0", true),
        ("byte_extract:0,0,n; byte_test:1,=,n,0;", b"\x01", false),
        ("byte_test:1,>,1,0;", b"\x02", true),
        ("byte_test:1,>=,2,0;", b"\x02", true),
        ("byte_test:1,<,2,0;", b"\x02", false),
        ("byte_test:1,<=,2,0;", b"\x02", true),
        ("byte_test:1,&,0x80,0;", b"\x81", true),
        ("byte_test:1,!&,0x80,0;", b"\x01", true),
        ("byte_test:1,^,0x81,0;", b"\x81", false),
        ("byte_test:1,=,1,4;", b"\x01", false),
        ("byte_test:4,=,1234,0,string,dec;", b"1234", true),
        ("byte_test:4,=,0x1f,0,string,hex;", b"0x1f", true),
        ("byte_test:2,=,15,0,string,oct;", b"17", true),
        ("byte_test:2,=,15,0,string;", b"zz", false),
        ("byte_test:1,=,3,0,bitmask 0x30;", b"\x3f", true),
        ("byte_test:8,=,18446744073709551615,0;", b"\xff\xff\xff\xff\xff\xff\xff\xff", true),
        (r#"content:"a"; byte_test:1,=,1,0,relative;"#, b"a\x01", true),
        (r#"content:"a"; byte_test:1,=,1,-2,relative;"#, b"\x01a", true),
        (r#"content:"a"; byte_test:1,=,1,0,relative;"#, b"a\x02a\x01", true),
        (r#"content:"a"; byte_test:1,=,1,0,relative;"#, b"xa", false),
        (r#"byte_jump:1,0; content:"b"; within:1;"#, b"\x02xxb", true),
        (r#"byte_jump:1,0; content:"b"; within:1;"#, b"\x02xbx", false),
        (r#"byte_jump:1,0,multiplier 2; content:"b"; within:1;"#, b"\x01xxb", true),
        (r#"byte_jump:1,0,align; content:"b"; within:1;"#, b"\x01xxxxb", true),
        (r#"byte_jump:1,1,from_beginning; content:"b"; within:1;"#, b"x\x02b", true),
        (r#"byte_jump:0,0,from_end,post_offset -1; content:"b"; within:1;"#, b"xxb", true),
        (r#"byte_jump:1,0,post_offset -2; content:"|01|"; within:1;"#, b"\x01x", true),
        (r#"byte_jump:1,0,post_offset -90; content:"|01|"; within:1;"#, b"\x01x", true),
        (r#"byte_jump:1,0; isdataat:0,relative;"#, b"\x01x", true),
        (r#"byte_jump:1,0;"#, b"\x02x", false),
        (r#"byte_jump:2,0,string,dec; content:"b"; within:1;"#, b"02xxb", true),
        // Without bytes to read the offset has to lie in the buffer, wherever the jump counts from.
        ("byte_jump:0,2,from_beginning;", b"ab", true),
        ("byte_jump:0,3,from_beginning;", b"ab", false),
        ("byte_jump:0,3,from_end;", b"ab", false),
        ("byte_jump:0,-1,from_end;", b"ab", false),
        (r#"content:"a"; byte_jump:0,2,from_beginning,relative;"#, b"a..", true),
        (r#"content:"a"; byte_jump:0,3,from_beginning,relative;"#, b"a..", false),
        (r#"byte_extract:1,0,n; byte_jump:0,n,from_beginning;"#, b"\x02.", true),
        (r#"byte_extract:1,0,n; byte_jump:0,n,from_end;"#, b"\x03.", false),
        // A number of 64 bits leads beyond the end, one that is negative back.
        ("byte_jump:8,0;", b"\x80\0\0\0\0\0\0\x03hij", false),
        (r#"byte_jump:8,0; content:"hij"; distance:0;"#, b"\x9c\x41\xd8\x0a\xd5\x9c\x03\x62hij", false),
        ("byte_jump:8,0,post_offset 3;", b"\x7f\xff\xff\xff\xff\xff\xff\xffhij", false),
        ("byte_jump:8,0,align;", b"\x7f\xff\xff\xff\xff\xff\xff\xffhij", false),
        ("byte_jump:8,0,from_end;", b"\xff\xff\x80\0\0\0\0\0hij", false),
        (r#"byte_jump:8,0; content:"hij"; within:3;"#, b"\xff\xff\xff\xff\xff\xff\xff\xff.hij", false),
        (r#"byte_jump:8,0; content:"|ff|.hij"; within:5;"#, b"\xff\xff\xff\xff\xff\xff\xff\xff.hij", true),
        (r#"byte_jump:2,0,string,dec; content:"1"; within:1;"#, b"-12", true),
        // A variable below 0 is an offset backwards.
        (
            r#"content:"a"; byte_math:bytes 1,offset 0,oper -,rvalue 3,result n,relative; byte_test:1,=,0x61,n,relative;"#,
            b"a\x01",
            true,
        ),
        (
            r#"content:"a"; byte_math:bytes 1,offset 0,oper -,rvalue 3,result n,relative; byte_jump:1,n,relative;"#,
            b"\x01a\x00.",
            true,
        ),
        (
            r#"content:"a"; byte_math:bytes 1,offset 0,oper -,rvalue 9,result n,relative; byte_jump:0,n,relative;"#,
            b"a\x01.",
            false,
        ),
        (r#"byte_math:bytes 1,offset 0,oper -,rvalue 3,result n; byte_jump:0,n;"#, b"\x01.", false),
        (r#"byte_math:bytes 1,offset 0,oper <<,rvalue 33,result n; byte_test:1,=,1,n;"#, b"\x01.", true),
        (r#"content:"a"; byte_jump:1,0,relative; content:"b"; within:1;"#, b"a\x09 a\x01xb", true),
        (r#"byte_extract:1,0,n; content:"b"; offset:n;"#, b"\x03bxb", true),
        (r#"byte_extract:1,0,n; content:"b"; offset:n;"#, b"\x03bxx", false),
        (r#"byte_extract:1,0,n; content:"b"; depth:n;"#, b"\x02b", true),
        (r#"byte_extract:1,0,n; content:"b"; depth:n;"#, b"\x01b", false),
        (r#"byte_extract:1,0,n; content:"b"; distance:n; within:1;"#, b"\x01xb", true),
        (r#"byte_extract:1,0,n; content:"b"; within:n;"#, b"\x02xb", true),
        (r#"byte_extract:1,0,n; content:"b"; within:n;"#, b"\x01xb", false),
        // Places have 32 bits: what a variable has more is left out, and a distance of the upper half counts
        // backwards.
        (r#"byte_extract:4,0,n; content:"b"; distance:n;"#, b"\xff\xff\xff\xf0xxxxzzb", true),
        (r#"byte_extract:4,0,n; content:"b"; distance:n;"#, b"\x7f\xff\xff\xf0xxxxzzb", false),
        (r#"byte_extract:4,0,n; content:"b"; within:n;"#, b"\xff\xff\xff\xf0xxxxzzb", true),
        (r#"byte_extract:4,0,n; content:"b"; within:n;"#, b"\xff\xff\xff\xffxxxxzzb", false),
        (r#"byte_extract:8,0,n; content:"b"; distance:n;"#, b"\0\0\0\x01\0\0\0\x02zzb", true),
        (r#"byte_extract:8,0,n; content:"b"; within:n;"#, b"\0\0\0\x01\0\0\0\x02zzb", false),
        (r#"byte_extract:8,0,n; content:"b"; offset:n;"#, b"\0\0\0\x01\0\0\0\x02zzb", true),
        (r#"byte_extract:8,0,n; content:"b"; depth:n;"#, b"\0\0\0\x01\0\0\0\x02zzb", false),
        (r#"byte_extract:1,0,n,multiplier 2,align 4; byte_test:1,=,n,1;"#, b"\x03\x08", true),
        (r#"byte_extract:1,0,n; byte_test:1,=,5,n;"#, b"\x02x\x05", true),
        (r#"byte_extract:1,0,n; byte_test:n,=,0x0506,1;"#, b"\x02\x05\x06", true),
        (r#"byte_extract:2,0,n,string,hex; byte_test:1,=,n,2;"#, b"1f\x1f", true),
        (r#"byte_math:bytes 1,offset 0,oper +,rvalue 2,result n; byte_test:1,=,n,1;"#, b"\x03\x05", true),
        (r#"byte_math:bytes 1,offset 0,oper -,rvalue 2,result n; byte_test:1,=,n,1;"#, b"\x03\x01", true),
        (r#"byte_math:bytes 1,offset 0,oper *,rvalue 2,result n; byte_test:1,=,n,1;"#, b"\x03\x06", true),
        (r#"byte_math:bytes 1,offset 0,oper /,rvalue 2,result n; byte_test:1,=,n,1;"#, b"\x03\x01", true),
        (r#"byte_math:bytes 1,offset 0,oper /,rvalue 0,result n;"#, b"\x03\x01", false),
        (r#"byte_math:bytes 1,offset 0,oper <<,rvalue 2,result n; byte_test:1,=,n,1;"#, b"\x03\x0c", true),
        (r#"byte_math:bytes 1,offset 0,oper >>,rvalue 1,result n; byte_test:1,=,n,1;"#, b"\x03\x01", true),
        (
            r#"byte_math:bytes 2,offset 0,oper +,rvalue 1,result n,string dec; byte_test:1,=,n,2;"#,
            b"12\x0d",
            true,
        ),
        (
            r#"byte_math:bytes 1,offset 0,oper +,rvalue 0,result n,bitmask 0xf0; byte_test:1,=,n,1;"#,
            b"\x35\x03",
            true,
        ),
    ]);
}

#[test]
fn base64() {
    table(&[
        (r#"base64_decode; base64_data; content:"Hello"; startswith;"#, b"SGVsbG8=", true),
        (r#"base64_decode:bytes 0; base64_data; content:"Hello"; startswith;"#, b"SGVsbG8=", true),
        (r#"base64_decode:bytes 4; base64_data; content:"Hello";"#, b"SGVsbG8=", false),
        (r#"base64_decode:bytes 4; base64_data; content:"Hel"; endswith;"#, b"SGVsbG8=", true),
        (r#"base64_decode:offset 2; base64_data; content:"Hello";"#, b"xxSGVsbG8=", true),
        (
            r#"content:"x="; base64_decode:offset 1,relative; base64_data; content:"llo"; endswith;"#,
            b"x= SGVsbG8=",
            true,
        ),
        (r#"base64_decode; base64_data; content:"Hello";"#, b"????", false),
        (r#"base64_decode; base64_data; content:"H"; content:"l"; distance:1; within:1;"#, b"SGVsbG8=", true),
        (r#"base64_decode; base64_data; content:"Hello"; pkt_data; content:"SGV";"#, b"SGVsbG8=", true),
    ]);
}

#[test]
fn captures_become_flow_variables() {
    let mut lab = Lab::new(
        r#"alert udp any any -> any any (pcre:"/name=(?P<flow_name>\w+)/"; sid:1;)
           "#,
    );
    lab.send_to_server(b"name=abc;");
    let name = lab.shared.names.intern("name");
    assert_eq!(lab.flow.state.variable(name), Some(b"abc".as_slice()));
    let mut lab =
        Lab::new(r#"alert udp any any -> any any (pcre:"/(\w+)=(\w+)/, flow:key, flow:value"; sid:1;)"#);
    lab.send_to_server(b"name=abc;");
    let [key, value] = ["key", "value"].map(|n| lab.shared.names.intern(n));
    assert_eq!(lab.flow.state.variable(key), Some(b"name".as_slice()));
    assert_eq!(lab.flow.state.variable(value), Some(b"abc".as_slice()));
}

#[test]
fn refusals() {
    let rows: &[(&str, &str)] = &[
        ("content:abc;", "D105"),
        (r#"content:"";"#, "D105"),
        (r#"content:"a|0|";"#, "D105"),
        ("nocase;", "D106"),
        (r#"content:"a"; nocase; nocase;"#, "D106"),
        (r#"content:"a"; nocase:1;"#, "D105"),
        (r#"content:"abc"; depth:2;"#, "D105"),
        (r#"content:"abc"; within:2;"#, "D105"),
        (r#"content:"abc"; depth:70000;"#, "D105"),
        (r#"content:"abc"; offset:-1;"#, "D105"),
        (r#"content:"abc"; offset:1; offset:1;"#, "D106"),
        (r#"content:"abc"; offset:1; distance:1;"#, "D106"),
        (r#"content:"abc"; within:9; depth:9;"#, "D106"),
        (r#"content:"abc"; distance:2000000;"#, "D105"),
        (r#"content:"abc"; distance:n;"#, "D105"),
        (r#"content:"abc"; startswith; offset:1;"#, "D106"),
        (r#"content:"abc"; depth:3; startswith;"#, "D106"),
        (r#"content:"abc"; endswith; endswith;"#, "D106"),
        (r#"content:"abc"; fast_pattern; fast_pattern;"#, "D106"),
        (r#"content:"abc"; fast_pattern:2,2;"#, "D105"),
        (r#"content:"abc"; fast_pattern:first;"#, "D105"),
        (r#"content:"abc"; fast_pattern:only; depth:3;"#, "D106"),
        (r#"content:"abc"; fast_pattern:only; content:"d"; distance:0;"#, "D106"),
        (r#"content:!"abc"; fast_pattern; content:"d"; depth:3; content:!"x"; fast_pattern:only;"#, "D106"),
        (r#"content:!"abc"; fast_pattern; offset:3;"#, "D106"),
        (r#"content:"abc"; replace:"ab";"#, "D105"),
        (r#"content:!"abc"; replace:"abd";"#, "D106"),
        (r#"pcre:"abc";"#, "D105"),
        (r#"pcre:"/abc";"#, "D105"),
        (r#"pcre:"/a(/";"#, "D108"),
        (r#"pcre:"/a/k";"#, "D105"),
        (r#"pcre:"/a/R";"#, "D106"),
        (r#"pcre:"/a/UH";"#, "D106"),
        (r#"pcre:"/A/W";"#, "D106"),
        (r#"pcre:"/(a)/, flow:x, flow:y";"#, "D105"),
        ("isdataat:a;", "D105"),
        ("isdataat:70000;", "D105"),
        ("isdataat:1,absolute;", "D105"),
        ("bsize:3;", "D106"),
        ("absent;", "D106"),
        ("ip.src; absent: or_else;", "D106"),
        ("ip.src; to_md5; absent: or_else;", "D106"),
        ("ip.src; to_md5; absent; bsize:3;", "D106"),
        ("ip.src; to_md5;", "D106"),
        (r#"base64_data; content:"a";"#, "D106"),
        ("base64_decode:bytes -1;", "D105"),
        ("base64_decode:offset 1, bytes 2;", "D105"),
        ("isdataat:1,rawbytes;", "D105"),
        ("isdataat:! 1;", "D105"),
        ("byte_test:1,=,1;", "D105"),
        ("byte_test:9,=,1,0;", "D105"),
        ("byte_test:24,=,1,0,string;", "D105"),
        ("byte_test:1,~,1,0;", "D105"),
        ("byte_test:1,=,x,0;", "D105"),
        ("byte_test:1,=,1,0,hex;", "D105"),
        ("byte_test:1,=,1,0,string,hex,dec;", "D105"),
        ("byte_test:1,=,1,0,sideways;", "D105"),
        ("byte_jump:1,0,from_end,from_beginning;", "D105"),
        ("byte_jump:1,0,multiplier 0;", "D105"),
        ("byte_jump:1,0,post_offset 70000;", "D105"),
        ("byte_jump:9,0;", "D105"),
        ("byte_extract:1,0;", "D105"),
        ("byte_extract:1,0,1;", "D105"),
        ("byte_extract:1,0,n,align 3;", "D105"),
        ("byte_math:bytes 1,offset 0,oper %,rvalue 1,result n;", "D105"),
        ("byte_math:bytes 1,offset 0,oper +,result n;", "D105"),
    ];
    for (options, code) in rows {
        match refusal(options) {
            Some((got, message)) => assert_eq!(got, *code, "{options}: {message}"),
            None => panic!("not refused: {options}"),
        }
    }
}

/// `urilen` leaves room for each content on its buffer by itself; Suricata counts one byte more unless the
/// largest length itself is given.
#[test]
fn contents_have_to_fit_into_what_urilen_asks_for() {
    for (options, fits) in [
        (r#"urilen:8,raw; http.uri.raw; content:"041"; offset:35;"#, true),
        (r#"urilen:3; http.uri; content:"abcd";"#, false),
        (r#"http.uri; content:"abcd"; urilen:3;"#, false),
        (r#"urilen:3; http.uri; content:!"abcd";"#, false),
        (r#"urilen:3; http.uri; content:"a"; content:"abcd"; distance:0;"#, false),
        (r#"urilen:3; http.uri; content:"ab"; content:"cd"; distance:0;"#, true),
        (r#"urilen:3; http.uri; content:"a"; http.uri; content:"abcd";"#, false),
        (r#"urilen:3; http.uri.raw; content:"abcd";"#, true),
        (r#"urilen:3; http.uri; to_lowercase; content:"abcd";"#, true),
        (r#"urilen:<=3; http.uri; content:"abcd";"#, false),
        (r#"urilen:<3; http.uri; content:"abcd";"#, true),
        (r#"urilen:<2; http.uri; content:"abcd";"#, false),
        (r#"urilen:0<>3; http.uri; content:"abcd";"#, true),
        (r#"urilen:0<>2; http.uri; content:"abcd";"#, false),
        (r#"urilen:0; http.uri; content:"abcd";"#, true),
        (r#"urilen:30; urilen:3; http.uri; content:"abcd";"#, false),
        (r#"urilen:3; urilen:>3; http.uri; content:"abcd";"#, true),
        (r#"urilen:!8; http.uri; bsize:<11; content:"/a1a1/tokend";"#, false),
        (r#"urilen:3; http.uri; bsize:30; content:"abcd";"#, false),
    ] {
        let got = refusal_of_http(options);
        assert_eq!(got.is_none(), fits, "{options}: {got:?}");
    }
}

/// A transform's result cannot be found in the header itself, so it gives no fast pattern.
#[test]
fn a_literal_behind_a_transform_is_no_fast_pattern() {
    assert!(matches("udp.hdr; dotprefix; content:\".\"; startswith;", b"payload"));
    assert!(!matches("udp.hdr; dotprefix; content:\"..\"; startswith;", b"payload"));
}

/// Transforms stand directly after their buffer; at the end of a rule they change nothing.
#[test]
fn transforms_behind_what_is_asked() {
    let plain = r#"udp.hdr; content:"|00 07|"; "#;
    assert!(matches(&format!("{plain}to_md5;"), b"payload") == matches(plain, b"payload"));
    for (options, code) in [
        (r#"udp.hdr; to_lowercase;"#, Some("D106")),
        (r#"udp.hdr; content:"a"; to_lowercase; udp.hdr; content:"b";"#, Some("D106")),
        (r#"udp.hdr; to_lowercase; content:"a"; to_md5; content:"b";"#, Some("D106")),
        (r#"udp.hdr; to_lowercase; content:"a"; to_md5;"#, Some("D106")),
        (r#"udp.hdr; content:"a"; to_lowercase; content:"b";"#, None),
        (r#"udp.hdr; to_lowercase; strip_whitespace; content:"a";"#, None),
        (r#"udp.hdr; content:"a"; to_lowercase;"#, None),
        (r#"udp.hdr; bsize:8; to_lowercase;"#, None),
    ] {
        assert_eq!(refusal(options).map(|(code, _)| code), code, "{options}");
    }
}
