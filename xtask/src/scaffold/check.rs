// SPDX-License-Identifier: Apache-2.0
//! Writes skeletons: into the repository, or one of each kind into a copy of it, which is compiled and
//! tested.
//!
//! The copy lies in the target folder and has one of its own for all kinds: cargo gives the parts of a copy
//! the names of those of the original, so that in one folder each would be taken for the other. It begins
//! with what the original has compiled, and stays for the next run. Files that do not differ keep their
//! times, so that cargo compiles what skeletons change and what uses that.

use super::kinds::Tests;
use super::{Files, KINDS, Kind, Name, kind, plan};
use crate::tidy::{CHECKS, Tree};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The beginning of the names of the extensions in the copy.
const NAME: &str = "scaffolded";

/// Checks whose subject `cargo xtask generate` writes.
const GENERATED: &[&str] = &["layer table"];

/// The root folder of the repository.
fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.canonicalize().unwrap_or(root)
}

/// The text files of the repository, by their paths.
///
/// # Errors
/// A folder or file cannot be read.
pub fn repository() -> Result<Files, String> {
    let tree = Tree::at(&root()).map_err(|error| format!("cannot read the repository: {error}"))?;
    Ok(tree.files.into_iter().map(|file| (file.path, file.text)).collect())
}

/// Writes the skeleton of an extension into the repository, and prints its files and the next steps.
///
/// # Errors
/// Kind or name are refused, or a file cannot be written.
pub fn write(kind_name: &str, name: &str) -> Result<(), String> {
    let (kind, name) = (kind(kind_name)?, Name::new(name)?);
    let files = repository()?;
    for (path, text) in plan(kind, &name, &files)? {
        let verb = if files.contains_key(&path) { "changed" } else { "new" };
        put(&root().join(&path), text.as_bytes())?;
        println!("{verb:>8}  {path}");
    }
    println!("next:");
    for (number, step) in (1..).zip(kind.steps(&name)) {
        println!("{number:>3}. {step}");
    }
    Ok(())
}

fn put(path: &Path, text: &[u8]) -> Result<(), String> {
    let written =
        path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(path, text));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The name of the extension of a kind in the copy.
fn name_of(kind: &Kind) -> Result<Name, String> {
    Name::new(&format!("{NAME}_{}", kind.name))
}

/// Writes one skeleton of each kind into a copy of the repository, checks that no file outside of the recipes
/// changes, and runs the rules of the house, the compiler and the new tests on it.
///
/// # Errors
/// The first step that fails.
pub fn run() -> Result<(), String> {
    let mut files = repository()?;
    let mut changed = BTreeSet::new();
    for kind in KINDS {
        // `plan` refuses files that the recipe does not list.
        let new = plan(kind, &name_of(kind)?, &files)?;
        println!(
            "scaffold: {} touches {} files: {}",
            kind.name,
            new.len(),
            new.keys().cloned().collect::<Vec<_>>().join(" ")
        );
        changed.extend(new.keys().cloned());
        files.extend(new);
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let copy = target.join("scaffold");
    mirror(&copy, &files)?;
    let own = target.join("scaffold-build");
    if !own.exists() {
        seed(&target.join("debug"), &own.join("debug"))
            .map_err(|error| format!("{}: {error}", own.display()))?;
    }
    let cargo = |arguments: &[&str]| -> Result<String, String> { in_copy(&copy, &own, arguments) };
    // The new crate has no entry in Cargo.lock yet.
    cargo(&["update", "--quiet", "--workspace", "--offline"])?;
    house(&copy)?;
    test(&cargo)?;
    // Neither the compiler nor the tests have written into the sources.
    let after = Tree::at(&copy).map_err(|error| format!("cannot read the copy: {error}"))?;
    let differs =
        |file: &&crate::tidy::File| files.get(&file.path) != Some(&file.text) && file.path != "Cargo.lock";
    match after.files.iter().find(differs) {
        Some(file) => Err(format!("{} of the copy was changed by its build or its tests", file.path)),
        None => {
            println!("scaffold: ok, {} kinds, {} files", KINDS.len(), changed.len());
            Ok(())
        }
    }
}

/// Compiles what skeletons are in, and runs their tests.
fn test(cargo: &dyn Fn(&[&str]) -> Result<String, String>) -> Result<(), String> {
    let (mut libraries, mut programs) = (arguments(LEVELS), arguments(PROGRAM));
    for kind in KINDS {
        match kind.tests {
            Tests::Lib(package) => libraries.extend(["-p".to_owned(), name_of(kind)?.fill(package)]),
            Tests::Program(package, program) => {
                programs.extend(["-p", package, "--test", program].map(str::to_owned));
            }
        }
    }
    libraries.extend(["--lib", "--", NAME, LEVELS_TESTS].map(str::to_owned));
    programs.extend(["--", NAME].map(str::to_owned));
    let mut said = String::new();
    for arguments in [libraries, programs] {
        said += &cargo(&arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
    }
    for kind in KINDS {
        let own = format!("{NAME}_{}", kind.name);
        let passed = said.lines().filter(|line| line.contains(&own) && line.ends_with(" ... ok")).count();
        println!("scaffold: {}: {passed} tests passed", kind.name);
        if passed == 0 {
            return Err(format!("no test of the skeleton of a {} ran:\n{said}", kind.name));
        }
    }
    Ok(())
}

/// The beginning of a call that runs unit tests: of the list of levels, too, which has the new level.
const LEVELS: &[&str] = &["test", "-p", "bartizan", "-p", "bartizan-runtime"];
const LEVELS_TESTS: &str = "levels::";

/// The beginning of a call that runs test programs. All calls name package `bartizan`, which has neither a
/// library nor one of these programs: without it libraries of others would have other features and be
/// compiled once more.
const PROGRAM: &[&str] = &["test", "-p", "bartizan"];

fn arguments(of: &[&str]) -> Vec<String> {
    of.iter().map(|text| (*text).to_owned()).collect()
}

/// The rules of the house on the copy.
fn house(copy: &Path) -> Result<(), String> {
    let tree = Tree::at(copy).map_err(|error| format!("cannot read the copy: {error}"))?;
    let found =
        CHECKS.iter().filter(|(name, _)| !GENERATED.contains(name)).flat_map(|(_, check)| check(&tree));
    let found: Vec<String> = found.map(|finding| finding.to_string()).collect();
    if found.is_empty() {
        Ok(())
    } else {
        Err(format!("skeletons break rules of the house:\n{}", found.join("\n")))
    }
}

/// Gives the target folder of the copy what another one has compiled: libraries, results of build scripts.
fn seed(from: &Path, to: &Path) -> std::io::Result<()> {
    for folder in ["deps", "build", ".fingerprint"] {
        for path in listed(&from.join(folder)).unwrap_or_default() {
            // Programs of tests are large, and made anew.
            if folder == "deps" && !path.starts_with("lib") {
                continue;
            }
            let (of, copy) = (from.join(folder).join(&path), to.join(folder).join(&path));
            copy.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            std::fs::copy(&of, &copy)?;
            keep_time(&of, &copy)?;
        }
    }
    Ok(())
}

/// Gives a copy of a file the time of the file's last change.
fn keep_time(of: &Path, copy: &Path) -> std::io::Result<()> {
    let changed = std::fs::metadata(of)?.modified()?;
    std::fs::File::options().append(true).open(copy)?.set_modified(changed)
}

/// Runs cargo in the copy, with a target folder of its own. Returns its output.
fn in_copy(copy: &Path, target: &Path, arguments: &[&str]) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(arguments)
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", target)
        .output()
        .map_err(|error| format!("cannot run cargo: {error}; run this by `cargo xtask new --check`"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("`cargo {}` fails in {}:\n{said}{errors}", arguments.join(" "), copy.display()))
}

/// Makes a folder the copy of the repository with these texts: what is equal stays untouched.
fn mirror(copy: &Path, files: &Files) -> Result<(), String> {
    let tracked = tracked()?;
    let kept: BTreeSet<&str> = files.keys().chain(&tracked).map(String::as_str).collect();
    // Folders that are gone go with their files: a crate without a manifest would break the workspace.
    for path in listed(copy)? {
        if !kept.contains(path.as_str()) {
            std::fs::remove_file(copy.join(&path))
                .map_err(|error| format!("cannot remove {path}: {error}"))?;
            let parents = Path::new(&path).ancestors().skip(1).take_while(|folder| *folder != Path::new(""));
            // Those that are not empty stay.
            parents.for_each(|folder| drop(std::fs::remove_dir(copy.join(folder))));
        }
    }
    for path in kept {
        let (from, to) = (root().join(path), copy.join(path));
        let bytes = match files.get(path) {
            Some(text) => text.clone().into_bytes(),
            // Of the tracked files those that are data.
            None => match std::fs::read(&from) {
                Ok(bytes) => bytes,
                Err(_) => continue,
            },
        };
        if std::fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        put(&to, &bytes)?;
        if let Ok(of) = std::fs::metadata(&from) {
            let faulty = |error| format!("{path}: {error}");
            std::fs::set_permissions(&to, of.permissions()).map_err(faulty)?;
            if std::fs::read(&from).is_ok_and(|original| original == bytes) {
                keep_time(&from, &to).map_err(faulty)?;
            }
        }
    }
    Ok(())
}

/// The paths of files that git tracks.
fn tracked() -> Result<BTreeSet<String>, String> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let output = output.map_err(|error| format!("cannot run git: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

/// The paths of all files below a folder.
fn listed(folder: &Path) -> Result<Vec<String>, String> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&next) else { continue };
        for entry in entries {
            let path = entry.map_err(|error| format!("{}: {error}", next.display()))?.path();
            match path.strip_prefix(folder) {
                _ if path.is_dir() => folders.push(path),
                Ok(relative) => found.push(relative.to_string_lossy().replace('\\', "/")),
                Err(_) => {}
            }
        }
    }
    Ok(found)
}
