// SPDX-License-Identifier: Apache-2.0
//! Runs former findings, and some inputs without structure, through every target.

use bartizan_fuzz::TARGETS;
use std::path::Path;

#[test]
fn findings_stay_fixed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    for (name, run) in TARGETS {
        let Ok(folder) = std::fs::read_dir(root.join(name)) else { continue };
        for entry in folder.map(|entry| entry.expect("a readable folder")) {
            println!("{}", entry.path().display());
            run(&std::fs::read(entry.path()).expect("a readable file"));
        }
    }
}

#[test]
fn every_folder_of_findings_has_its_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        assert!(TARGETS.iter().any(|(target, _)| name == *target), "no target is called {}", name.display());
    }
}

#[test]
fn every_target_takes_bytes_without_structure() {
    // A counter and a generator: the same bytes in every run.
    let counted: Vec<u8> = (0..=255).collect();
    let mut state = 1u32;
    let mixed: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(3000)
    .collect();
    for (_, run) in TARGETS {
        for bytes in [&[][..], &[0; 100], &[255; 100], &counted, &mixed] {
            run(bytes);
        }
        for start in 0..64 {
            run(&mixed[start * 40..]);
        }
    }
}

#[test]
fn every_target_has_its_program() {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin");
    for (name, _) in TARGETS {
        assert!(programs.join(format!("{name}.rs")).is_file(), "{name}");
    }
    let count = std::fs::read_dir(programs).expect("the programs").count();
    assert_eq!(count, TARGETS.len() + 1, "each program but `seed` is in TARGETS");
}
