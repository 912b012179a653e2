// SPDX-License-Identifier: Apache-2.0
//! The rule files that a suricata.yaml names: `rule-files` below `default-rule-path`, each a path or a shell
//! pattern.
//!
//! As in Suricata, a name without a matching file is a warning at a start, and an error in a test. Not done:
//! classes of characters (`[a-z]`) in patterns.

use bartizan_base::SettingsMap;
use std::path::{Component, Path, PathBuf};

/// Default of `default-rule-path`.
const FOLDER: &str = "/etc/suricata/rules";

/// Whether the user's settings (not the built-in ones) name rule files.
pub fn are_named(settings: &SettingsMap) -> bool {
    settings.children("rule-files").any(|item| settings.origin(&format!("rule-files.{item}")).is_some())
}

/// The files that exist at present. Adds names without a matching file to `warnings`.
pub fn of(settings: &SettingsMap, warnings: &mut Vec<String>) -> Vec<PathBuf> {
    if !are_named(settings) {
        return Vec::new();
    }
    let folder = Path::new(settings.get("default-rule-path").unwrap_or(FOLDER));
    let mut files = Vec::new();
    for item in settings.children("rule-files") {
        let key = format!("rule-files.{item}");
        let Some(name) = settings.get(&key) else { continue };
        let path = folder.join(name);
        let found = matching(&path);
        if found.is_empty() {
            let origin = settings.origin(&key).unwrap_or(&key);
            warnings.push(format!(
                "{origin}: no rule file is called {}; check `rule-files` and `default-rule-path`",
                path.display()
            ));
        }
        files.extend(found);
    }
    files
}

/// The files that match a path with `*` and `?` in its parts, in the order of their names.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let name = part.as_os_str().to_string_lossy();
        let literal = !matches!(part, Component::Normal(_)) || !name.contains(['*', '?']);
        found = found
            .into_iter()
            .flat_map(|base| step(base, part.as_os_str().as_ref(), &name, literal))
            .collect();
    }
    found.retain(|path| path.is_file() || (path.exists() && !path.is_dir()));
    found
}

fn step(base: PathBuf, part: &Path, name: &str, literal: bool) -> Vec<PathBuf> {
    if literal {
        return vec![base.join(part)];
    }
    let folder = if base.as_os_str().is_empty() { Path::new(".") } else { &base };
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let fits = |entry: std::io::Result<std::fs::DirEntry>| {
        let file = entry.ok()?.file_name();
        let text = file.to_string_lossy();
        // As in a shell, a pattern must begin with a dot to match hidden files.
        let hidden = text.starts_with('.') && !name.starts_with('.');
        (!hidden && is_like(text.as_bytes(), name.as_bytes())).then(|| base.join(&file))
    };
    let mut all: Vec<PathBuf> = entries.filter_map(fits).collect();
    all.sort();
    all
}

/// Whether a name matches a pattern. Backtracking is limited to the last `*`, so the effort is at most the
/// product of both lengths.
fn is_like(name: &[u8], pattern: &[u8]) -> bool {
    let (mut n, mut p) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == b'?' || Some(c) == name.get(n) => (n, p) = (n + 1, p + 1),
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (n, p) = (taken + 1, at + 1);
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|c| *c == b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_a_shell() {
        for (name, pattern, fits) in [
            ("a.rules", "*.rules", true),
            ("a.rules.gz", "*.rules", false),
            ("a.rules", "a.rules", true),
            ("ab", "a?", true),
            ("a", "a?", false),
            ("aXbXc", "a*b*c", true),
            ("aXbX", "a*b*c", false),
            ("", "*", true),
            ("aaaaaaaaaaaaaaaaaaaab", "*a*a*a*a*a*a*c", false),
        ] {
            assert_eq!(is_like(name.as_bytes(), pattern.as_bytes()), fits, "{name} {pattern}");
        }
    }

    #[test]
    fn files_are_below_the_folder_of_the_settings() {
        let folder = std::env::temp_dir().join(format!("bartizan-rule-files-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("more")).unwrap();
        for name in ["b.rules", "a.rules", ".c.rules", "more/d.rules", "x.txt"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let mut settings = SettingsMap::new();
        settings.set("rule-files.0", "shipped.rules");
        let mut warnings = Vec::new();
        assert!(of(&settings, &mut warnings).is_empty() && warnings.is_empty());
        settings.set("default-rule-path", folder.display().to_string());
        for (number, name) in ["*.rules", "mor?/*.rules", "/no/such.rules", "x.txt"].iter().enumerate() {
            settings.set_from(format!("rule-files.{number}"), *name, format!("s.yaml:{number}:1"));
        }
        let found = of(&settings, &mut warnings);
        let names: Vec<_> =
            found.iter().map(|p| p.strip_prefix(&folder).unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["a.rules", "b.rules", "more/d.rules", "x.txt"]);
        assert!(warnings.len() == 1 && warnings[0].starts_with("s.yaml:2:1: no rule file"), "{warnings:?}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
