// SPDX-License-Identifier: Apache-2.0
//! Conditions on a reload, so that it never weakens protection unnoticed: the new generation is compared with
//! the running one before it replaces it.
//!
//! Files are half written, emptied, cut and overwritten with something else, mostly by mistake and mostly at
//! night. A new generation is refused when a rule file has malformed lines (no rules, or rules that Suricata
//! refuses as well, as in a check), when a file that had rules has none, or when more than a share of the
//! rules would be removed; the operator may allow this beforehand ([`Terms`]). Files that cannot be read, or
//! whose compressed data ends early, do not build at all. Rules with keywords and protocols that this engine
//! does not have are no such mistake: they are reported, and count as gone if they ran before.
//!
//! Not done: the identity of lost rules (a rule may have a new sid), only their number.

use bartizan_api::southbound::{LeftOut, RuleLeftOut};
use bartizan_config::policy::values::Share;
use bartizan_detect::ruleset::{Loaded, RefusedRule};
use bartizan_rules::RuleFile;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

/// Most places that a refusal lists.
pub const PLACES_SHOWN: usize = 5;

/// Most failed rules that a command lists.
pub const FAILED_TOLD: usize = 2_000;

/// Default share of the rules that a reload may remove.
pub const LOSS: Share = Share(10);

/// Losses that the operator accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Largest share of the running rules that may be gone.
    pub max_loss: Share,
    /// Whether malformed lines, and files that have no rules any more, are accepted.
    pub accept_malformed: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Terms { max_loss: LOSS, accept_malformed: false }
    }
}

/// Counts of a rule file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OfFile {
    /// Lines that are rules, whether this engine can use them or not.
    rules: u64,
    /// Lines that are no rules, or that Suricata refuses as well.
    malformed: u64,
    first: Option<RefusedRule>,
    /// A controller has sent it, which is the one to say whether it is meant so.
    is_sent: bool,
}

/// The rules of a generation, by file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    files: BTreeMap<String, OfFile>,
    /// Running rules, each once, by gid and sid.
    loaded: HashSet<(u32, u32)>,
    /// Malformed lines, at most [`FAILED_TOLD`].
    malformed: Vec<RefusedRule>,
    /// Valid rules that cannot be evaluated here, with their place and the missing feature.
    unsupported: BTreeMap<(u32, u32), RefusedRule>,
}

impl Inventory {
    /// Adds the rules of another inventory.
    pub fn absorb(&mut self, other: &Inventory) {
        for (name, file) in &other.files {
            self.add_file(name.clone(), file.clone());
        }
        for rule in &other.malformed {
            if self.malformed.len() < FAILED_TOLD && !self.malformed.contains(rule) {
                self.malformed.push(rule.clone());
            }
        }
        for (id, rule) in &other.unsupported {
            self.unsupported.entry(*id).or_insert_with(|| rule.clone());
        }
        self.loaded.extend(&other.loaded);
    }

    /// Adds a file; one that several policies name has its worst counts.
    fn add_file(&mut self, name: String, file: OfFile) {
        let known = self.files.entry(name).or_default();
        if known.rules + known.malformed == 0 || known.malformed < file.malformed {
            *known = file;
        }
    }

    /// Adds files that were read, with the results of their rules.
    pub fn add(&mut self, files: &[RuleFile], loaded: &Loaded) {
        self.add_all(files, loaded, false);
    }

    /// Adds files of a controller's libraries: what no rule is in them is left out, and refuses no reload of
    /// the device's own files.
    pub fn add_sent(&mut self, files: &[RuleFile], loaded: &Loaded) {
        self.add_all(files, loaded, true);
    }

    fn add_all(&mut self, files: &[RuleFile], loaded: &Loaded, is_sent: bool) {
        let mut of: BTreeMap<String, OfFile> = BTreeMap::new();
        for file in files {
            let lines = u64::from(file.counts.rules) + u64::from(file.counts.refused);
            let own = of.entry(file.source.name().to_string()).or_default();
            own.rules += lines;
            own.is_sent = is_sent;
        }
        for rule in &loaded.refused {
            if let Some(file) = of.get_mut(rule.file.as_ref()).filter(|_| rule.malformed) {
                file.rules = file.rules.saturating_sub(1);
                file.malformed += 1;
                if file.first.as_ref().is_none_or(|first| rule.place < first.place) {
                    file.first = Some(rule.clone());
                }
            }
            if rule.malformed && self.malformed.len() < FAILED_TOLD && !self.malformed.contains(rule) {
                self.malformed.push(rule.clone());
            }
            if let Some(id) = rule.id.filter(|_| !rule.malformed) {
                self.unsupported.entry(id).or_insert_with(|| rule.clone());
            }
        }
        for (name, file) in of {
            self.add_file(name, file);
        }
        self.loaded.extend(loaded.rules.signatures.iter().map(|s| (s.id.gid, s.id.sid)));
    }

    /// Running rules, by gid and sid.
    pub const fn running(&self) -> &HashSet<(u32, u32)> {
        &self.loaded
    }

    /// Number of running rules.
    pub fn loaded(&self) -> usize {
        self.loaded.len()
    }

    /// Rules that failed, by file and line, at most [`FAILED_TOLD`], and the number of further ones.
    pub fn failed(&self) -> (Vec<RefusedRule>, u64) {
        let mut all: Vec<RefusedRule> =
            self.malformed.iter().chain(self.unsupported.values()).cloned().collect();
        all.sort_by(|a, b| (&a.file, a.place).cmp(&(&b.file, b.place)));
        let more = self.malformed().saturating_sub(self.malformed.len() as u64)
            + all.len().saturating_sub(FAILED_TOLD) as u64;
        all.truncate(FAILED_TOLD);
        (all, more)
    }

    /// Rules that failed, in the form of a report to a controller.
    pub fn left_out_report(&self) -> LeftOut {
        let (failed, more) = self.failed();
        let mut told = LeftOut::default();
        for RefusedRule { id, file, place, message, .. } in &failed {
            told.add(|| {
                let id = id.map_or_else(String::new, |(gid, sid)| format!(": {gid}:{sid}"));
                RuleLeftOut { rule: format!("{file}:{}{id}", place.0), why: message.clone() }
            });
        }
        told.count += more;
        told
    }

    /// Number of malformed lines.
    pub fn malformed(&self) -> u64 {
        self.files.values().map(|file| file.malformed).sum()
    }

    /// A message for each file without rules.
    pub fn empty_files(&self) -> Vec<String> {
        let empty = self.files.iter().filter(|(_, file)| file.rules + file.malformed == 0);
        empty.map(|(name, _)| format!("{name}: this file has no rules")).collect()
    }

    /// Notes about the rules of a start, which accepts them as they are: no better ones are running.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.empty_files();
        let malformed = |is_sent: bool| {
            let files = self.files.values().filter(|file| file.is_sent == is_sent);
            files.map(|file| file.malformed).sum::<u64>()
        };
        let (own, sent) = (malformed(false), malformed(true));
        if own > 0 {
            notes.push(format!(
                "{own} malformed lines of rule files are skipped; a reload with malformed lines is refused"
            ));
        }
        if sent > 0 {
            notes.push(format!("{sent} malformed lines of the controller's rule files are skipped"));
        }
        notes
    }

    /// Messages about rules that run here and that `next`, which replaces this generation, cannot evaluate.
    pub fn left_out(&self, next: &Inventory) -> Vec<String> {
        if std::ptr::eq(self, next) {
            return Vec::new();
        }
        let out =
            next.unsupported.iter().filter(|(id, _)| self.loaded.contains(id) && !next.loaded.contains(id));
        let told = |(id, rule): (&(u32, u32), &RefusedRule)| {
            format!(
                "{}: the rule with gid {} and sid {} is running and would be skipped",
                describe_rule(rule),
                id.0,
                id.1
            )
        };
        let (mut told, count) = (out.clone().take(PLACES_SHOWN).map(told).collect::<Vec<_>>(), out.count());
        if count > PLACES_SHOWN {
            told.push(format!("... and {} more running rules that would be skipped", count - PLACES_SHOWN));
        }
        told
    }

    /// Whether `next` may replace this generation.
    ///
    /// # Errors
    /// The reasons against it, with the counts and the remedy.
    pub fn may_become(&self, next: &Inventory, terms: &Terms) -> Result<(), String> {
        let mut why = String::new();
        let mut add = |text: std::fmt::Arguments<'_>| {
            let _ = write!(why, "\n  {text}");
        };
        let (before, after) = (self.loaded(), next.loaded());
        let mut malformed = false;
        if !terms.accept_malformed {
            let own = || next.files.iter().filter(|(_, file)| !file.is_sent);
            let broken: Vec<_> = own().filter(|(_, file)| file.malformed > 0).collect();
            for (_, file) in broken.iter().take(PLACES_SHOWN) {
                let lines = if file.malformed == 1 { "line" } else { "lines" };
                if let Some(first) = &file.first {
                    add(format_args!(
                        "{} ({} malformed {lines} in this file, {} rules)",
                        describe_rule(first),
                        file.malformed,
                        file.rules
                    ));
                }
            }
            if broken.len() > PLACES_SHOWN {
                add(format_args!("... and {} more files with malformed lines", broken.len() - PLACES_SHOWN));
            }
            let had = |name: &str| self.files.get(name).map_or(1, |file| file.rules);
            let emptied: Vec<_> =
                own().filter(|(name, file)| file.rules + file.malformed == 0 && had(name) > 0).collect();
            for (name, _) in emptied.iter().take(PLACES_SHOWN) {
                match self.files.get(*name) {
                    Some(file) => add(format_args!("{name}: this file has no rules; it had {}", file.rules)),
                    None => add(format_args!("{name}: this file has no rules")),
                }
            }
            if emptied.len() > PLACES_SHOWN {
                add(format_args!("... and {} more files without rules", emptied.len() - PLACES_SHOWN));
            }
            malformed = !broken.is_empty() || !emptied.is_empty();
        }
        let lost = before.saturating_sub(after);
        let too_many = terms.max_loss.is_exceeded(lost, before);
        if too_many {
            add(format_args!(
                "{lost} rules would be removed, more than {} of the running ones",
                terms.max_loss
            ));
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
            "{before} rules are running, {after} would remain:{why}\n  correct the files and reload \
             (SIGUSR2, `bartizan ctl reload-rules`); if this is intended, first set {} under `reload` in \
             the host file",
            ways.join(" and ")
        ))
    }
}

/// A refused rule with its place, as a line.
fn describe_rule(rule: &RefusedRule) -> String {
    format!("{}:{}:{}: {}", rule.file, rule.place.0, rule.place.1, rule.message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Base;

    fn inventory(files: &[(&str, String)]) -> Inventory {
        let mut inventory = Inventory::default();
        let mut files: Vec<RuleFile> = files
            .iter()
            .map(|(name, text)| bartizan_rules::parse_file(text.clone().into_bytes(), name))
            .collect();
        let settings = bartizan_config::suricata::shipped();
        let base = Base::with(&settings, None, 64, &mut Vec::new()).unwrap();
        let loaded = base.rules(&mut files, &settings, &[], &mut Vec::new()).unwrap();
        inventory.add(&files, &loaded);
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
        // Without the last line end the file is whole.
        assert_eq!(refused(&before, &cut(1), &terms), "");
        let text = refused(&before, &cut(10), &terms);
        assert!(text.contains("100 rules are running, 99 would remain"), "{text}");
        assert!(text.contains("a.rules:100:") && text.contains("1 malformed line in"), "{text}");
        assert!(text.contains("accept-malformed: true") && !text.contains("max-loss"), "{text}");
        assert_eq!(refused(&before, &cut(10), &Terms { accept_malformed: true, ..terms }), "");
        // A malformed line beside as many rules as before.
        let more = inventory(&[("a.rules", rules(1..101) + "alert tcp any\n")]);
        assert!(refused(&before, &more, &terms).contains("a.rules:101:"));
        assert_eq!(more.notes().len(), 1);
    }

    #[test]
    fn malformed_lines_of_a_controllers_files_refuse_no_reload() {
        let of = |sent: &str, own: &str| {
            let settings = bartizan_config::suricata::shipped();
            let base = Base::with(&settings, None, 64, &mut Vec::new()).unwrap();
            let mut inventory = Inventory::default();
            for (name, text, is_sent) in [("sent.rules", sent, true), ("own.rules", own, false)] {
                let mut files = vec![bartizan_rules::parse_file(text.as_bytes().to_vec(), name)];
                let loaded = base.rules(&mut files, &settings, &[], &mut Vec::new()).unwrap();
                inventory.add_all(&files, &loaded, is_sent);
            }
            inventory
        };
        let (terms, bad) = (Terms::default(), "alert tcp any\n");
        let (sent, own) = (rules(1..50), rules(50..100));
        let before = of(&sent, &own);
        let with_bad = of(&(sent.clone() + bad), &own);
        for running in [&before, &with_bad] {
            assert_eq!(refused(running, &with_bad, &terms), "");
            // What is the device's own is judged as before, and rules that are gone as well.
            let text = refused(running, &of(&(sent.clone() + bad), &(own.clone() + bad)), &terms);
            assert!(text.contains("own.rules:51:") && !text.contains("sent.rules"), "{text}");
            assert!(
                refused(running, &of(&(rules(1..20) + bad), &own), &terms).contains("rules would be removed")
            );
        }
        assert_eq!(with_bad.notes(), ["1 malformed lines of the controller's rule files are skipped"]);
        assert_eq!((with_bad.malformed(), with_bad.failed().0.len()), (1, 1), "it is told of all the same");
        // Also in an inventory of several sets.
        let mut all = Inventory::default();
        all.absorb(&with_bad);
        assert_eq!(refused(&before, &all, &terms), "");
    }

    #[test]
    fn what_a_check_calls_malformed_is_refused_whatever_finds_it() {
        let good = rules(1..101);
        let before = inventory(&[("a.rules", good.clone())]);
        let terms = Terms::default();
        let taken = Terms { accept_malformed: true, ..terms };
        let rule = |options: &str| format!("alert tcp any any -> any any ({options})\n");
        for (line, message) in [
            (rule("contnt:\"x\"; sid:200;"), "contnt"),
            (rule("pcre:\"/(/\"; sid:200;"), "regular expression"),
            (rule("content:\"x\"; sid:50;"), "an earlier rule has the same gid 1 and sid 50"),
            (rule("content:\"x\"; depth:0; within:nothing; sid:200;"), ""),
            ("alert tcp $NOPE any -> any any (content:\"x\"; sid:200;)\n".to_owned(), "$NOPE"),
            ("alert nosuch any any -> any any (content:\"x\"; sid:200;)\n".to_owned(), "nosuch"),
            (rule("dataset:isset,d,type string,load /no/such; sid:200;"), ""),
        ] {
            let next = inventory(&[("a.rules", good.clone() + &line)]);
            let text = refused(&before, &next, &terms);
            assert!(text.contains("a.rules:101:") && text.contains(message), "{line}: {text}");
            assert!(text.contains("(1 malformed line in this file, 100 rules)"), "{text}");
            assert!(text.contains("`accept-malformed: true`"), "{text}");
            assert_eq!(refused(&before, &next, &taken), "", "{line}");
            assert_eq!((next.malformed(), next.loaded()), (1, 100), "{line}");
        }
        // A rule that ran is reported once.
        let misspelt = good.replacen("content:\"x\"; sid:7;", "contnt:\"x\"; sid:7;", 1);
        let text = refused(&before, &inventory(&[("a.rules", misspelt)]), &terms);
        assert!(text.contains("a.rules:7:") && text.matches("a.rules").count() == 1, "{text}");
        assert!(text.contains("100 rules are running, 99 would remain"), "{text}");
        // A rule that only this engine cannot evaluate refuses nothing, and is reported if it ran.
        let unsupported = good.replacen("content:\"x\"; sid:7;", "asn1:oversize_length 10; sid:7;", 1);
        let next = inventory(&[("a.rules", unsupported)]);
        assert_eq!(refused(&before, &next, &terms), "");
        let told = before.left_out(&next);
        assert!(
            told.len() == 1 && told[0].starts_with("a.rules:7:") && told[0].contains("sid 7 is running"),
            "{told:?}"
        );
        assert!(next.left_out(&next).is_empty());
        let more = inventory(&[("a.rules", good + &rule("asn1:oversize_length 10; sid:300;"))]);
        assert!(refused(&before, &more, &terms).is_empty() && before.left_out(&more).is_empty());
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
            assert!(text.contains("b.rules: this file has no rules; it had 1"), "{text}");
            assert!(!text.contains("c.rules"), "{text}");
            assert_eq!(refused(&before, &after(emptied, ""), &Terms { accept_malformed: true, ..terms }), "");
        }
        // Other rules, and rules that this engine cannot use, are rules.
        assert_eq!(refused(&before, &after(&rules(7000..7001), ""), &terms), "");
        let unknown = "alert tcp any any -> any any (asn1:oversize_length 10; sid:7000;)";
        assert_eq!(refused(&before, &after(unknown, ""), &terms), "");
        assert_eq!(before.notes(), ["c.rules: this file has no rules"]);
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
            text.contains("400 rules would be removed, more than 10%") && text.contains("`max-loss: 40%`"),
            "{text}"
        );
        assert_eq!(refused(&set(1000), &set(600), &terms(40)), "");
        // All rules are gone with their files: the new policy names none.
        assert!(refused(&set(5), &Inventory::default(), &terms(99)).contains("5 rules would be removed"));
        assert_eq!(refused(&set(5), &Inventory::default(), &terms(100)), "");
        assert_eq!(refused(&Inventory::default(), &Inventory::default(), &terms(0)), "");
    }
}
