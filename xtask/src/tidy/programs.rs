// SPDX-License-Identifier: Apache-2.0
//! One test program for each crate: each further program is linked with all code under test. So the files of
//! `tests/` are modules of `tests/all.rs`, and one that it does not name would silently never run. A test
//! that has to be alone in its process has its reason in `Cargo.toml`.

use super::{File, Finding, Tree};

/// The file that names the others as modules.
const ROOT: &str = "all.rs";

/// A `[[test]]` of a manifest.
#[derive(Default)]
struct Program {
    line: usize,
    /// The line before begins with `# Alone: `.
    has_reason: bool,
    name: String,
    path: String,
}

/// Each file of `tests/` is run, and all of a crate by one program, except those with a reason.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let manifests = tree.files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    manifests.flat_map(|manifest| check_crate(tree, manifest)).collect()
}

fn check_crate(tree: &Tree, manifest: &File) -> Vec<Finding> {
    let folder = format!("{}/tests/", manifest.path.trim_end_matches("/Cargo.toml"));
    let files: Vec<_> = tree.rust().filter_map(|file| file.path.strip_prefix(&folder)).collect();
    let by_themselves = files.iter().filter(|file| is_root_by_default(file)).count();
    if !manifest.text.lines().any(|line| line.replace(' ', "") == "autotests=false") {
        let message = format!(
            "{by_themselves} test programs: name the files of `tests/` in `tests/{ROOT}`, and add `autotests = false` and a `[[test]]` with its path"
        );
        return if by_themselves > 1 { vec![Finding::new(&manifest.path, 0, message)] } else { Vec::new() };
    }
    let programs = programs(manifest);
    let without = programs.iter().filter(|program| program.path != ROOT && !program.has_reason);
    let without = without.map(|program| {
        let message = "a test program of its own: add `mod` to `tests/all.rs` in its place, or `# Alone: ` and the reason above it";
        Finding::new(&manifest.path, program.line, message)
    });
    let is_program = |file: &str| programs.iter().any(|program| program.path == file);
    let silent = files.iter().filter(|file| !is_program(file) && !is_named(tree, &folder, file, &files));
    let silent = silent.map(|file| {
        let message =
            format!("no test program has this file: add `mod {};` to `{folder}{ROOT}`", module(file));
        Finding::new(&format!("{folder}{file}"), 0, message)
    });
    without.chain(silent).collect()
}

/// Whether cargo makes a program of a file by default.
fn is_root_by_default(file: &str) -> bool {
    file.strip_suffix("/main.rs").unwrap_or(file).matches('/').count() == 0
}

/// Whether a file below `tests/` is a module of another existing file.
fn is_named(tree: &Tree, folder: &str, file: &str, files: &[&str]) -> bool {
    let says = |by: &str, line: &str| {
        let lines = tree.get(&format!("{folder}{by}")).map(|by| by.text.lines());
        lines.is_some_and(|mut lines| lines.any(|said| said.trim_start_matches("pub ") == line))
    };
    let (declared, path) = (format!("mod {};", module(file)), format!("#[path = \"{file}\"]"));
    let above = || files.iter().filter(|file| !file.contains('/'));
    if above().any(|by| says(by, &path)) {
        return true;
    }
    match file.rsplit_once('/') {
        Some((_, "main.rs")) => false,
        Some((_, "mod.rs")) => above().any(|by| says(by, &declared)),
        Some((inner, _)) => ["mod.rs", "main.rs"].iter().any(|by| says(&format!("{inner}/{by}"), &declared)),
        None => says(ROOT, &declared),
    }
}

/// The name of a file's module.
fn module(file: &str) -> &str {
    let path = file.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").or_else(|| path.strip_suffix("/main")).unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path)
}

fn programs(manifest: &File) -> Vec<Program> {
    let (mut programs, mut inside, mut before) = (Vec::<Program>::new(), false, "");
    for (number, line) in manifest.lines() {
        if line.starts_with('[') {
            inside = line == "[[test]]";
        }
        match programs.last_mut() {
            _ if line == "[[test]]" => {
                let has_reason = before.starts_with("# Alone: ");
                programs.push(Program { line: number, has_reason, ..Program::default() });
            }
            Some(program) if inside => {
                let value = |key| {
                    line.strip_prefix(key)?
                        .trim_start()
                        .strip_prefix('=')
                        .map(|it| it.trim().trim_matches('"'))
                };
                if let Some(name) = value("name") {
                    name.clone_into(&mut program.name);
                } else if let Some(path) = value("path") {
                    path.trim_start_matches("tests/").clone_into(&mut program.path);
                }
            }
            _ => {}
        }
        before = line;
    }
    for program in programs.iter_mut().filter(|program| program.path.is_empty()) {
        program.path = format!("{}.rs", program.name);
    }
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "autotests = false\n\n[[test]]\nname = \"a\"\npath = \"tests/all.rs\"\n";

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        check(&Tree::of(files)).into_iter().map(|finding| (finding.path, finding.line)).collect()
    }

    #[test]
    fn a_file_that_no_program_has_is_found() {
        let folder = [
            ("crates/a/Cargo.toml", ONE),
            (
                "crates/a/tests/all.rs",
                "mod common;\nmod inner;\n#[path = \"shared/bench.rs\"]\nmod other;\nmod x;\n",
            ),
            ("crates/a/tests/common/inner.rs", ""),
            ("crates/a/tests/common/lost.rs", ""),
            ("crates/a/tests/common/mod.rs", "pub mod inner;\n"),
            ("crates/a/tests/lost/main.rs", ""),
            ("crates/a/tests/lost.rs", ""),
            ("crates/a/tests/shared/bench.rs", ""),
            ("crates/a/tests/x.rs", ""),
        ];
        let silent =
            ["common/lost.rs", "lost.rs", "lost/main.rs"].map(|file| (format!("crates/a/tests/{file}"), 0));
        let mut found = found(&folder);
        found.sort();
        assert_eq!(found, silent);
    }

    #[test]
    fn programs_of_their_own_have_a_reason() {
        let alone = format!(
            "{ONE}\n[[test]]\nname = \"x\"\n\n# Alone: it counts what the process allocates.\n[[test]]\nname = \"y\"\n"
        );
        let files = [
            ("crates/a/Cargo.toml", &*alone),
            ("crates/a/tests/all.rs", ""),
            ("crates/a/tests/x.rs", ""),
            ("crates/a/tests/y.rs", ""),
        ];
        assert_eq!(found(&files), [("crates/a/Cargo.toml".to_owned(), 7)]);
    }

    #[test]
    fn a_crate_that_cargo_makes_several_programs_for_is_found() {
        let one = [
            ("crates/a/Cargo.toml", "[package]\n"),
            ("crates/a/tests/x.rs", ""),
            ("crates/a/tests/common/mod.rs", ""),
        ];
        assert_eq!(found(&one), []);
        let two = [&one[..], &[("crates/a/tests/y/main.rs", "")]].concat();
        assert_eq!(found(&two), [("crates/a/Cargo.toml".to_owned(), 0)]);
    }
}
