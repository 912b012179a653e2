// SPDX-License-Identifier: Apache-2.0
//! Real rule and settings files: the published sets and the rules of the compatibility cases, if they are
//! present (beside the repository, in `shared`). None of them may give a finding unless it is listed here
//! with its reason.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use bartizan_rules::{parse_classifications, parse_content, parse_file, parse_references, parse_thresholds};

/// Folder of shared files: beside the repository or, for a worktree one level deeper, one up.
fn shared() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = ["../../../shared", "../../../../shared"].iter().map(|p| here.join(p)).find(|p| p.is_dir());
    if found.is_none() {
        println!("shared rule files are not here: not tested");
    }
    found
}

fn walk(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, out);
        } else {
            out.push(path);
        }
    }
}

fn read(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    if path.extension().is_none_or(|e| e != "gz") {
        return bytes;
    }
    let mut out = Vec::new();
    flate2::read::MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut out).unwrap();
    out
}

/// Expected findings: end of the path, code, number.
const EXPECTED: &[(&str, &str, usize)] = &[];

#[test]
fn real_rule_files() {
    let Some(shared) = shared() else { return };
    let mut files = Vec::new();
    walk(&shared.join("data/rules"), &mut files);
    walk(&shared.join("compat/cases"), &mut files);
    files.retain(|p| p.to_string_lossy().trim_end_matches(".gz").ends_with(".rules"));
    files.sort();
    assert!(files.len() > 100, "only {} rule files", files.len());
    let (mut rules, mut options, mut contents, mut wrong) = (0, 0, 0, Vec::new());
    for path in &files {
        let name = path.strip_prefix(&shared).unwrap().to_string_lossy().into_owned();
        let file = parse_file(read(path), &name);
        rules += file.rules.len();
        for rule in &file.rules {
            options += rule.options.len();
            for option in rule.iter().filter(|o| o.keyword() == "content") {
                contents += 1;
                if let Err(e) = parse_content(option.value().unwrap_or_default()) {
                    wrong.push(option.error("R022", &e).render(false));
                }
            }
        }
        let mut codes: Vec<&str> = file.diagnostics.iter().map(|d| d.code).collect();
        codes.sort_unstable();
        let mut expected: Vec<&str> = EXPECTED
            .iter()
            .filter(|(end, _, _)| name.ends_with(end))
            .flat_map(|(_, code, n)| std::iter::repeat_n(*code, *n))
            .collect();
        expected.sort_unstable();
        if codes != expected {
            wrong.push(file.render(false));
        }
    }
    println!("{} files, {rules} rules, {options} options, {contents} contents", files.len());
    wrong.truncate(40);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(rules > 40_000);
}

#[test]
fn real_settings_files() {
    let Some(shared) = shared() else { return };
    let classes =
        parse_classifications(read(&shared.join("compat/etc/classification.config")), "classification");
    assert!(classes.diagnostics.is_empty(), "{:?}", classes.diagnostics);
    assert_eq!(classes.get("trojan-activity").map(|c| c.priority), Some(1));
    let references = parse_references(read(&shared.join("compat/etc/reference.config")), "reference");
    assert!(references.diagnostics.is_empty(), "{:?}", references.diagnostics);
    assert!(references.get("cve").is_some());
    let mut files = Vec::new();
    walk(&shared.join("compat/cases"), &mut files);
    files.retain(|p| p.file_name().is_some_and(|n| n == "threshold.config"));
    let mut entries = 0;
    for path in files {
        let t = parse_thresholds(read(&path), &path.to_string_lossy());
        assert!(t.diagnostics.is_empty(), "{:?}", t.diagnostics);
        entries += t.entries.len();
    }
    assert!(entries >= 15, "{entries}");
}
