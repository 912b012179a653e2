// SPDX-License-Identifier: Apache-2.0
//! Links of Markdown files have targets, and every page of the book is in its table of contents.

use super::{File, Finding, Tree};
use std::collections::{HashMap, HashSet};

/// Every relative link names a file of the repository, and a heading of a page if it has an anchor.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let anchors: HashMap<&str, HashSet<String>> = tree
        .files
        .iter()
        .filter(|file| file.path.ends_with(".md"))
        .map(|file| (file.path.as_str(), anchors(file)))
        .collect();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, target) in targets(file) {
            let path = target.split(['#', '?']).next().unwrap_or_default();
            let elsewhere = target.contains("://") || target.starts_with("mailto:") || path.is_empty();
            if !elsewhere && !resolve(&file.path, path).is_some_and(|path| tree.exists(&path)) {
                findings.push(Finding::new(&file.path, line, format!("`{target}` leads nowhere")));
            }
            let page = if path.is_empty() { Some(file.path.clone()) } else { resolve(&file.path, path) };
            let headings =
                page.filter(|_| !target.contains("://")).and_then(|page| anchors.get(page.as_str()));
            let anchor = target.split_once('#').map(|(_, anchor)| anchor);
            if let (Some(headings), Some(anchor)) = (headings, anchor)
                && !headings.contains(anchor)
            {
                findings.push(Finding::new(&file.path, line, format!("`{target}` names no heading")));
            }
        }
        for (line, number, target) in other_numbers(file) {
            let message = format!("`[{number}]({target})` leads to another number");
            findings.push(Finding::new(&file.path, line, message));
        }
    }
    findings
}

/// The anchors of a page's headings, as mdbook and GitHub make them: lower case, blanks as hyphens, other
/// signs left out, a number for a repeated one; and those that HTML in the page declares.
fn anchors(file: &File) -> HashSet<String> {
    let mut found = HashSet::new();
    let mut code = false;
    for (_, line) in file.lines() {
        code ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        if !code && title.len() < line.len() && title.starts_with(' ') {
            let text = title.trim();
            let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            let slug: String =
                kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
            let numbered = (1..).map(|number| format!("{slug}-{number}"));
            let free = std::iter::once(slug.clone()).chain(numbered).find(|slug| !found.contains(slug));
            found.extend(free);
        }
        let declared = line.split("id=\"").skip(1).chain(line.split("name=\"").skip(1));
        found.extend(declared.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
    }
    found
}

/// Every page below `docs/` is in `docs/SUMMARY.md`.
#[must_use]
pub fn check_summary(tree: &Tree) -> Vec<Finding> {
    const SUMMARY: &str = "docs/SUMMARY.md";
    let Some(summary) = tree.get(SUMMARY) else { return vec![Finding::new(SUMMARY, 0, "is missing")] };
    let listed: Vec<String> =
        targets(summary).into_iter().filter_map(|(_, target)| resolve(SUMMARY, target)).collect();
    tree.files
        .iter()
        .filter(|file| file.path.starts_with("docs/") && file.path.ends_with(".md") && file.path != SUMMARY)
        .filter(|file| !listed.contains(&file.path))
        .map(|file| Finding::new(&file.path, 0, format!("is not in {SUMMARY}")))
        .collect()
}

/// Links whose text is the number of a design decision, and whose target has another number.
fn other_numbers(file: &File) -> Vec<(usize, &str, &str)> {
    let is_number = |text: &str| text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut found = Vec::new();
    for (line, text) in file.lines() {
        for (text, rest) in text.split('[').skip(1).filter_map(|piece| piece.split_once("](")) {
            let target = rest.split([')', '#']).next().unwrap_or_default();
            let number =
                target.rsplit('/').next().and_then(|name| name.split_once('-')).map(|(number, _)| number);
            if is_number(text) && number.is_some_and(|number| is_number(number) && number != text) {
                found.push((line, text, target));
            }
        }
    }
    found
}

/// The targets of links, outside of code.
fn targets(file: &File) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut code = false;
    for (number, line) in file.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        }
        if code {
            continue;
        }
        // Text between back quotes is code: every second piece.
        for piece in line.split('`').step_by(2) {
            for rest in piece.split("](").skip(1) {
                found.push((number, rest.split([')', ' ']).next().unwrap_or_default()));
            }
        }
        // A link with code as its text has its target in the next piece.
        for piece in line.split('`').skip(2).step_by(2).filter_map(|piece| piece.strip_prefix("](")) {
            let target = piece.split([')', ' ']).next().unwrap_or_default();
            if !found.contains(&(number, target)) {
                found.push((number, target));
            }
        }
    }
    found
}

/// A path relative to a file, from the root; `None` when it leaves the repository.
fn resolve(from: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let text = "[a](b.md) [c](docs/d.md#x) [`e`](gone.md) `[x](y.md)` [w](https://w.w/x) [s](#s) [o](../out.md)\n```\n[z](z.md)\n```\n";
        let tree = Tree::of(&[
            ("a.md", text),
            ("b.md", "[up](./a.md)"),
            ("docs/d.md", "# X\n[up](../a.md) [no](a.md)"),
        ]);
        let said: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "a.md:1: `gone.md` leads nowhere",
                "a.md:1: `#s` names no heading",
                "a.md:1: `../out.md` leads nowhere",
                "docs/d.md:2: `a.md` leads nowhere"
            ]
        );
    }

    #[test]
    fn anchors_are_those_of_headings() {
        let page = "# One `two`, three\n## A\n## A\n```\n# code\n```\n<a id=\"own\"></a>";
        let of = |anchor: &str| {
            let link = format!("[x](b.md#{anchor})");
            check(&Tree::of(&[("docs/a.md", &link), ("docs/b.md", page)])).len()
        };
        assert_eq!(["one-two-three", "a", "a-1", "own"].map(of), [0; 4]);
        assert_eq!(["a-2", "code", "one", ""].map(of), [1; 4]);
    }

    #[test]
    fn links_whose_text_is_the_number_of_another_page_are_found() {
        let text =
            "[0022](design/0024-names.md) [0024](design/0024-names.md) [names](design/0024-names.md#a)";
        let tree = Tree::of(&[("docs/a.md", text), ("docs/design/0024-names.md", "# A")]);
        let said: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(said, ["docs/a.md:1: `[0022](design/0024-names.md)` leads to another number"]);
    }

    #[test]
    fn a_page_outside_of_the_book_is_found() {
        let tree = Tree::of(&[("docs/SUMMARY.md", "- [A](a.md)"), ("docs/a.md", ""), ("docs/x/b.md", "")]);
        assert_eq!(check_summary(&tree).iter().map(|f| f.path.as_str()).collect::<Vec<_>>(), ["docs/x/b.md"]);
    }
}
