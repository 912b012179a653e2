// SPDX-License-Identifier: Apache-2.0
//! A reload never weakens unseen: what a new generation has to have beside the running one before it is taken.
//!
//! Files are half written, emptied, cut and overwritten with something else, mostly by mistake and mostly at night. A new generation is
//! refused when a rule file has malformed lines, when a file that had rules has none, or when more than a share of the rules would be
//! gone; the operator may say beforehand that it is meant so ([`Terms`]). Files that cannot be read, or whose compressed data
//! ends early, do not build at all. Rules with keywords and protocols that this engine does not have are no mistake of that kind:
//! they are counted, and count as lost if they ran before.
//!
//! Not done: which rules are lost (a rule may have got another sid), only how many.

use bartizan_config::policy::values::Share;
use bartizan_rules::{RuleFile, Severity};
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

/// Places that a refusal lists.
const SHOWN: usize = 5;

/// What the operator takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Largest share of the running rules that may be gone.
    pub max_loss: Share,
    /// Malformed lines, and files that have no rules any more.
    pub accept_malformed: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Terms { max_loss: Share(10), accept_malformed: false }
    }
}

/// What a rule file came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OfFile {
    /// Lines that are rules, whether this engine can use them or not.
    rules: u64,
    /// Lines that are no rules, with the first of them and what is wrong with it.
    malformed: u64,
    first: Option<(u32, u32, String)>,
}

/// The rules of a generation, by file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    files: BTreeMap<String, OfFile>,
    /// Rules that run, each once, by gid and sid.
    loaded: HashSet<(u32, u32)>,
}

impl Inventory {
    /// Adds files that were read, and the rules that came of them.
    pub fn add(&mut self, files: &[RuleFile], loaded: impl Iterator<Item = (u32, u32)>) {
        for file in files {
            let first = file.refused.first().map(|refused| {
                file.diagnostics
                    .iter()
                    .find(|d| d.severity == Severity::Error && d.line >= refused.line)
                    .map_or_else(
                        || (refused.line, 1, String::new()),
                        |d| (d.line, d.column, d.message.clone()),
                    )
            });
            let of = OfFile {
                rules: u64::from(file.counts.rules),
                malformed: u64::from(file.counts.refused),
                first,
            };
            self.files.insert(file.source.name().to_string(), of);
        }
        self.loaded.extend(loaded);
    }

    /// Rules that run.
    pub fn loaded(&self) -> usize {
        self.loaded.len()
    }

    /// Lines that are no rules.
    pub fn malformed(&self) -> u64 {
        self.files.values().map(|file| file.malformed).sum()
    }

    /// What is odd about the rules of a start, which takes them as they are: nothing better is running.
    pub fn notes(&self) -> Vec<String> {
        let empty = self.files.iter().filter(|(_, file)| file.rules + file.malformed == 0);
        let mut notes: Vec<String> =
            empty.map(|(name, _)| format!("{name}: no rules are in this file")).collect();
        if self.malformed() > 0 {
            notes.push(format!(
                "{} malformed lines of rule files are left out; a reload with any is refused",
                self.malformed()
            ));
        }
        notes
    }

    /// Whether `next` may take the place of this one.
    ///
    /// # Errors
    /// Why not, with the counts and what to do.
    pub fn may_become(&self, next: &Inventory, terms: &Terms) -> Result<(), String> {
        let mut why = String::new();
        let mut add = |text: std::fmt::Arguments<'_>| {
            let _ = write!(why, "\n  {text}");
        };
        let (before, after) = (self.loaded(), next.loaded());
        let mut malformed = false;
        if !terms.accept_malformed {
            let broken: Vec<_> = next.files.iter().filter(|(_, file)| file.malformed > 0).collect();
            for (name, file) in broken.iter().take(SHOWN) {
                let (line, column, message) = file.first.clone().unwrap_or_default();
                add(format_args!(
                    "{name}:{line}:{column}: {message} ({} malformed lines in this file, {} rules)",
                    file.malformed, file.rules
                ));
            }
            if broken.len() > SHOWN {
                add(format_args!("... and {} more files with malformed lines", broken.len() - SHOWN));
            }
            let had = |name: &str| self.files.get(name).map_or(1, |file| file.rules);
            let emptied: Vec<_> = (next.files.iter())
                .filter(|(name, file)| file.rules + file.malformed == 0 && had(name) > 0)
                .collect();
            for (name, _) in emptied.iter().take(SHOWN) {
                match self.files.get(*name) {
                    Some(file) => {
                        add(format_args!("{name}: no rules are in this file, it had {}", file.rules))
                    }
                    None => add(format_args!("{name}: no rules are in this file")),
                }
            }
            if emptied.len() > SHOWN {
                add(format_args!("... and {} more files without rules", emptied.len() - SHOWN));
            }
            malformed = !broken.is_empty() || !emptied.is_empty();
        }
        let lost = before.saturating_sub(after);
        let too_many = terms.max_loss.is_exceeded(lost, before);
        if too_many {
            add(format_args!("{lost} rules would be gone, more than {} of those that run", terms.max_loss));
        }
        if !malformed && !too_many {
            return Ok(());
        }
        let mut ways = Vec::new();
        if malformed {
            ways.push("`accept-malformed: true`".to_owned());
        }
        if too_many {
            let percent = (lost * 100).div_ceil(before.max(1));
            ways.push(format!("`max-loss: {percent}%`"));
        }
        Err(format!(
            "{before} rules run, {after} would after it:{why}\n  correct the files and send SIGUSR2 again; if it is meant so, say {} \
             under `reload` in the host file first",
            ways.join(" and ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory(files: &[(&str, String)]) -> Inventory {
        let mut inventory = Inventory::default();
        let files: Vec<RuleFile> = files
            .iter()
            .map(|(name, text)| bartizan_rules::parse_file(text.clone().into_bytes(), name))
            .collect();
        let ids =
            files.iter().flat_map(|f| f.rules.iter().map(|r| (r.id().gid, r.id().sid))).collect::<Vec<_>>();
        inventory.add(&files, ids.into_iter());
        inventory
    }

    fn rules(sids: std::ops::Range<u32>) -> String {
        sids.map(|sid| format!("alert tcp any any -> any any (msg:\"m\"; content:\"x\"; sid:{sid};)\n"))
            .collect()
    }

    fn refused(before: &Inventory, after: &Inventory, terms: &Terms) -> String {
        before.may_become(after, terms).err().unwrap_or_default()
    }

    #[test]
    fn malformed_lines_are_refused_with_their_place_unless_they_are_accepted() {
        let before = inventory(&[("a.rules", rules(1..101))]);
        let cut = |bytes: usize| {
            let text = rules(1..101);
            inventory(&[("a.rules", text[..text.len() - bytes].to_owned())])
        };
        let terms = Terms::default();
        // Without the last line end it is whole.
        assert_eq!(refused(&before, &cut(1), &terms), "");
        let text = refused(&before, &cut(10), &terms);
        assert!(text.contains("100 rules run, 99 would after it"), "{text}");
        assert!(text.contains("a.rules:100:") && text.contains("1 malformed lines"), "{text}");
        assert!(text.contains("accept-malformed: true") && !text.contains("max-loss"), "{text}");
        assert_eq!(refused(&before, &cut(10), &Terms { accept_malformed: true, ..terms }), "");
        // A malformed line beside as many rules as before.
        let more = inventory(&[("a.rules", rules(1..101) + "alert tcp any\n")]);
        assert!(refused(&before, &more, &terms).contains("a.rules:101:"));
        assert_eq!(more.notes().len(), 1);
    }

    #[test]
    fn files_that_lost_all_their_rules_are_refused() {
        let before = inventory(&[
            ("a.rules", rules(1..2000)),
            ("b.rules", rules(5000..5001)),
            ("c.rules", "# later\n".into()),
        ]);
        let after = |b: &str, c: &str| {
            inventory(&[("a.rules", rules(1..2000)), ("b.rules", b.to_owned()), ("c.rules", c.to_owned())])
        };
        let terms = Terms::default();
        for emptied in ["", "\n\n", "# nothing\n", "#alert tcp any any -> any any (sid:5000;)\n"] {
            let text = refused(&before, &after(emptied, ""), &terms);
            assert!(text.contains("b.rules: no rules are in this file, it had 1"), "{text}");
            assert!(!text.contains("c.rules"), "{text}");
            assert_eq!(refused(&before, &after(emptied, ""), &Terms { accept_malformed: true, ..terms }), "");
        }
        // Other rules, and rules that this engine cannot use, are rules.
        assert_eq!(refused(&before, &after(&rules(7000..7001), ""), &terms), "");
        let unknown = "alert tcp any any -> any any (no_such_keyword; sid:1;)";
        assert_eq!(refused(&before, &after(unknown, ""), &terms), "");
        assert_eq!(before.notes(), ["c.rules: no rules are in this file"]);
    }

    #[test]
    fn the_share_of_rules_that_may_be_gone_is_exact() {
        let set = |count: u32| inventory(&[("a.rules", rules(1..count + 1))]);
        let terms = |percent| Terms { max_loss: Share(percent), accept_malformed: false };
        for (before, after, percent, good) in [
            (100, 90, 10, true),
            (100, 89, 10, false),
            (100, 100, 0, true),
            (100, 99, 0, false),
            (3, 2, 33, false),
            (3, 2, 34, true),
            (1, 2, 0, true),
        ] {
            let text = refused(&set(before), &set(after), &terms(percent));
            assert_eq!(text.is_empty(), good, "{before} {after} {percent}: {text}");
        }
        let text = refused(&set(1000), &set(600), &terms(10));
        assert!(
            text.contains("400 rules would be gone, more than 10%") && text.contains("`max-loss: 40%`"),
            "{text}"
        );
        assert_eq!(refused(&set(1000), &set(600), &terms(40)), "");
        // All rules gone with their files: a policy that names none any more.
        assert!(refused(&set(5), &Inventory::default(), &terms(99)).contains("5 rules would be gone"));
        assert_eq!(refused(&set(5), &Inventory::default(), &terms(100)), "");
        assert_eq!(refused(&Inventory::default(), &Inventory::default(), &terms(0)), "");
    }
}
