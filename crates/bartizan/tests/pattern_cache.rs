// SPDX-License-Identifier: Apache-2.0
//! Compiled patterns on disk: found at the second start, several programs at once, damaged and foreign files,
//! folders that others can write to. Without libhs no pattern is compiled; then this prints so and returns.

use crate::common;

use common::{Ended, Folder, capture, run, udp};
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn set_up() -> Folder {
    let folder = Folder::new();
    let rules: String = (0..40)
        .map(|n| {
            format!(
                "alert udp any any -> any any (msg:\"{n}\"; content:\"needle-{n:02}-in-the-hay\"; sid:{};)\n",
                n + 1
            )
        })
        .collect();
    folder.write("r.rules", rules);
    let frames: Vec<_> = (0..40u16)
        .map(|n| udp(n % 2 == 0, 40_000 + n, 5_000, format!("a needle-{n:02}-in-the-hay").as_bytes()))
        .collect();
    folder.write("c.pcap", capture(&frames));
    folder
}

fn inspect(folder: &Folder, out: &str) -> Ended {
    let ended = run(
        &folder.0,
        &["inspect", "--rules", "r.rules", "--cache", "cache", "--out", out, "--json", "c.pcap"],
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let summary: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(summary["alerts"].as_object().unwrap().len(), 40, "every rule matches: {summary}");
    ended
}

/// The numbers of pattern sets found, compiled, damaged.
fn cache(ended: &Ended) -> [u64; 3] {
    let rest = ended.stdout.split("cache: ").nth(1).unwrap_or_else(|| panic!("no cache: {}", ended.stdout));
    let rest = rest.split(['"', ';']).next().unwrap();
    ["found", "compiled", "damaged"].map(|what| {
        let part = rest.split(", ").find(|part| part.ends_with(what));
        part.map_or(0, |part| part.split(' ').next().unwrap().parse().unwrap())
    })
}

/// All sets were found.
fn is_warm(ended: &Ended) -> bool {
    let [found, compiled, damaged] = cache(ended);
    found > 0 && (compiled, damaged) == (0, 0)
}

fn files(folder: &Folder) -> Vec<std::path::PathBuf> {
    fs::read_dir(folder.path("cache")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn has_libhs(ended: &Ended) -> bool {
    let there = ended.stdout.contains("hyperscan");
    if !there {
        eprintln!("needs libhs: not run (apt-get install libhyperscan5)");
    }
    there
}

#[test]
fn the_second_start_finds_what_the_first_compiled() {
    let folder = set_up();
    let first = inspect(&folder, "o");
    if !has_libhs(&first) {
        return;
    }
    assert_eq!(cache(&first)[1], files(&folder).len() as u64);
    assert!(is_warm(&inspect(&folder, "o")));
    let mode = fs::metadata(folder.path("cache")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let none = run(&folder.0, &["inspect", "--rules", "r.rules", "--cache", "none", "--out", "o", "c.pcap"]);
    assert!(!none.stdout.contains("cache:"), "{}", none.stdout);
}

#[test]
fn damaged_and_foreign_files_are_told_of_and_replaced() {
    let folder = set_up();
    if !has_libhs(&inspect(&folder, "o")) {
        return;
    }
    let [file] = files(&folder).try_into().unwrap();
    let whole = fs::read(&file).unwrap();
    let mut flipped = whole.clone();
    let last = flipped.len() - 1;
    flipped[last] ^= 1;
    for damaged in [&flipped[..], &whole[..100], b"", b"#!/bin/sh\n"] {
        fs::write(&file, damaged).unwrap();
        let ended = inspect(&folder, "o");
        assert!(
            ended.stderr.contains("note: 1 files of the pattern cache were damaged or of another origin"),
            "{ended:?}"
        );
        assert_eq!((cache(&ended)[1], cache(&ended)[2]), (1, 1), "{}", ended.stdout);
        assert!(is_warm(&inspect(&folder, "o")));
    }
}

#[test]
fn several_programs_at_once_share_a_folder() {
    let folder = set_up();
    if !has_libhs(&inspect(&folder, "o")) {
        return;
    }
    fs::remove_dir_all(folder.path("cache")).unwrap();
    std::thread::scope(|scope| {
        for number in 0..6 {
            let folder = &folder;
            scope.spawn(move || inspect(folder, &format!("o{number}")));
        }
    });
    assert_eq!(files(&folder).len(), 1, "no temporary files stay");
    assert!(is_warm(&inspect(&folder, "o")));
}

#[test]
fn a_folder_that_others_can_write_to_is_refused() {
    let folder = set_up();
    fs::create_dir(folder.path("cache")).unwrap();
    fs::set_permissions(folder.path("cache"), fs::Permissions::from_mode(0o777)).unwrap();
    let ended = run(&folder.0, &["inspect", "--cache", "cache", "--out", "o", "c.pcap"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("can be written by other users: make it yours and `chmod 700` it"),
        "{ended:?}"
    );
}
