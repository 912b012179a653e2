// SPDX-License-Identifier: Apache-2.0
//! The rule files that a suricata.yaml names: `rule-files` below `default-rule-path`, each a path or a shell
//! pattern (glob(7)): `*`, `?` and classes of characters (`[a-z]`, `[!a-z]`) within a part of the path.
//!
//! `globset` compares names. Walking the folders and the rule for hidden files are this module's own, since
//! `globset` has neither. Braces are ordinary characters, as in Suricata, which `globset` reads as a choice.
//!
//! As in Suricata, a name without a matching file is a warning at a start, and an error in a test.

use bartizan_base::SettingsMap;
use globset::{GlobBuilder, GlobMatcher};
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
                "{origin}: there is no rule file {}; check `rule-files` and `default-rule-path`",
                path.display()
            ));
        }
        files.extend(found);
    }
    files
}

/// The files that match a path with patterns in its parts, in the order of their names.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let name = part.as_os_str().to_string_lossy();
        let like = matches!(part, Component::Normal(_)).then(|| matcher(&name)).flatten();
        found = found
            .into_iter()
            .flat_map(|base| step(base, part.as_os_str().as_ref(), like.as_ref(), name.starts_with('.')))
            .collect();
    }
    found.retain(|path| path.is_file() || (path.exists() && !path.is_dir()));
    found
}

/// The matcher of a part of a path; `None` for a part that is a plain name.
fn matcher(name: &str) -> Option<GlobMatcher> {
    if !name.contains(['*', '?', '[']) {
        return None;
    }
    let parsed = |text: &str| {
        let mut builder = GlobBuilder::new(text);
        builder.literal_separator(true).backslash_escape(true).build()
    };
    // A bracket without its end is an ordinary character.
    let glob = parsed(&quoted(name, "{}")).or_else(|_| parsed(&quoted(name, "{}[]")));
    glob.ok().map(|glob| glob.compile_matcher())
}

/// The pattern with these characters as ordinary ones.
fn quoted(name: &str, ordinary: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        if ordinary.contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// The paths of the next part of a pattern below a folder.
fn step(base: PathBuf, part: &Path, like: Option<&GlobMatcher>, finds_hidden: bool) -> Vec<PathBuf> {
    let literal = base.join(part);
    // A file may have brackets in its name.
    let is_named = !part.to_string_lossy().contains(['*', '?']) && literal.exists();
    let Some(like) = like.filter(|_| !is_named) else { return vec![literal] };
    let folder = if base.as_os_str().is_empty() { Path::new(".") } else { &base };
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let fits = |entry: std::io::Result<std::fs::DirEntry>| {
        let file = entry.ok()?.file_name();
        // As in a shell, a pattern must begin with a dot to match hidden files.
        let hidden = file.as_encoded_bytes().starts_with(b".") && !finds_hidden;
        (!hidden && like.is_match(&file)).then(|| base.join(&file))
    };
    let mut all: Vec<PathBuf> = entries.filter_map(fits).collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_a_shell() {
        for (name, pattern, fits) in [
            ("a.rules", "*.rules", true),
            ("a.rules.gz", "*.rules", false),
            ("ab", "a?", true),
            ("a", "a?", false),
            ("aXbXc", "a*b*c", true),
            ("aXbX", "a*b*c", false),
            ("aaaaaaaaaaaaaaaaaaaab", "*a*a*a*a*a*a*c", false),
            ("b.rules", "[a-c].rules", true),
            ("d.rules", "[a-c].rules", false),
            ("d.rules", "[!a-c].rules", true),
            ("{a,b}.rules", "{a,b}.*", true),
            ("a.rules", "{a,b}.*", false),
            ("[a.rules", "[a*", true),
            ("a.rules", "[a*", false),
            ("a", "**", true),
            ("a!b[c", "a!b[?", true),
            ("a*b", "a\\*?", true),
            ("aXb", "a\\*?", false),
        ] {
            assert_eq!(matcher(pattern).unwrap().is_match(name), fits, "{name} {pattern}");
        }
        assert!(matcher("a.rules").is_none(), "a plain name is not a pattern");
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
        std::fs::write(folder.join("[ab].rules"), "").unwrap();
        assert_eq!(matching(&folder.join("[ab].rules")), [folder.join("[ab].rules")]);
        std::fs::remove_file(folder.join("[ab].rules")).unwrap();
        assert_eq!(
            matching(&folder.join("[ab].rules")),
            ["a.rules", "b.rules"].map(|name| folder.join(name))
        );
        assert!(matching(&folder.join("*.rul[a-z]s")).iter().all(|path| !path.ends_with(".c.rules")));
        assert_eq!(matching(&folder.join(".*.rules")), [folder.join(".c.rules")]);
        assert!(
            warnings.len() == 1 && warnings[0].starts_with("s.yaml:2:1: there is no rule file"),
            "{warnings:?}"
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
