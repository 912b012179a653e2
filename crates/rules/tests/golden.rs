// SPDX-License-Identifier: Apache-2.0
//! Golden pairs: `tests/golden/X.rules` is parsed, and the printed trees and findings are compared with
//! `X.out`. `UPDATE_GOLDEN=1 cargo test -p bartizan-rules golden::` writes the files again; review the
//! difference before committing it.

use std::fmt::Write as _;
use std::path::Path;

use bartizan_rules::{KeywordIndex, RuleFile, RuleVariables, parse_file};

const KEYWORDS: &[&str] = &[
    "sid",
    "rev",
    "gid",
    "msg",
    "classtype",
    "priority",
    "reference",
    "metadata",
    "target",
    "content",
    "nocase",
    "depth",
    "offset",
    "flow",
    "pcre",
    "http.uri",
    "http_uri",
    "http_header",
    "noalert",
    "flowbits",
    "dsize",
];

fn variables() -> RuleVariables {
    let mut v = RuleVariables::new();
    v.set_address("HOME_NET", "[192.168.0.0/16,10.0.0.0/8]").unwrap();
    v.set_address("EXTERNAL_NET", "!$HOME_NET").unwrap();
    v.set_port("HTTP_PORTS", "[80,8080]").unwrap();
    v
}

fn show(file: &RuleFile) -> String {
    let (mut out, vars) = (String::new(), variables());
    let mut index = KeywordIndex::new(KEYWORDS);
    for rule in &file.rules {
        writeln!(out, "rule {} at line {}: {:?} {}", rule.id(), rule.line, rule.action, rule.protocol())
            .unwrap();
        if let Some(hook) = rule.hook() {
            writeln!(out, "  hook {hook}").unwrap();
        }
        writeln!(out, "  {}", rule.print().escape_ascii()).unwrap();
        writeln!(out, "  msg {:?}", rule.msg().escape_ascii().to_string()).unwrap();
        for (what, spec) in [("src", &rule.src), ("dst", &rule.dst)] {
            match vars.address_set(&spec.expr) {
                Ok(set) => writeln!(out, "  {what} {set}").unwrap(),
                Err(e) => writeln!(out, "  {what} error {}..{}: {e}", e.span.start, e.span.end).unwrap(),
            }
        }
        for (what, spec) in [("src_port", &rule.src_port), ("dst_port", &rule.dst_port)] {
            match vars.port_set(&spec.expr) {
                Ok(set) => writeln!(out, "  {what} {set}").unwrap(),
                Err(e) => writeln!(out, "  {what} error {}..{}: {e}", e.span.start, e.span.end).unwrap(),
            }
        }
        let meta = &rule.meta;
        writeln!(
            out,
            "  classtype {:?} priority {:?} target {:?}",
            rule.classtype(),
            meta.priority,
            meta.target
        )
        .unwrap();
        for (system, id) in rule.references() {
            writeln!(out, "  reference {system} {id}").unwrap();
        }
        for (key, value) in rule.metadata() {
            writeln!(out, "  metadata {} = {:?}", key.escape_ascii(), value.escape_ascii().to_string())
                .unwrap();
        }
        for option in rule.iter() {
            let place = rule.source.position(option.option.span.start);
            let value = option.value().map(|v| v.escape_ascii().to_string());
            writeln!(out, "  {}:{} {} {value:?}", place.line, place.column, option.keyword()).unwrap();
            if let Some(d) = index.check(&option) {
                writeln!(out, "{}", d.render(false)).unwrap();
            }
        }
    }
    writeln!(out, "{:?}", file.counts).unwrap();
    for refused in &file.refused {
        writeln!(out, "{refused:?}").unwrap();
    }
    for d in &file.diagnostics {
        writeln!(out, "\n{}\n{}", d.render(false), serde_json::to_string(d).unwrap()).unwrap();
    }
    out
}

#[test]
fn golden_pairs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut names: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "rules"))
        .collect();
    names.sort();
    assert!(names.len() >= 5, "the golden files are missing from {}", folder.display());
    let mut wrong = Vec::new();
    for path in names {
        let name = path.file_name().unwrap().to_str().unwrap();
        let shown = show(&parse_file(std::fs::read(&path).unwrap(), name));
        let golden = path.with_extension("out");
        if update {
            std::fs::write(&golden, &shown).unwrap();
        } else if std::fs::read_to_string(&golden).unwrap_or_default() != shown {
            eprintln!("=== {name}: now\n{shown}");
            wrong.push(name.to_owned());
        }
    }
    assert!(wrong.is_empty(), "differ from their .out (UPDATE_GOLDEN=1 writes them anew): {wrong:?}");
}
