// SPDX-License-Identifier: Apache-2.0
//! The store, stopped at every step, and with broken files.

use super::*;
use bartizan_api::southbound::{GroupRules, Policy, RuleGroup, RuleType};
use std::cell::Cell;
use std::rc::Rc;

/// A disk that performs a number of steps and then nothing, as if the program had been killed; a write stops
/// half way.
#[derive(Clone, Default)]
struct Killed {
    left: Rc<Cell<usize>>,
    /// Bytes written to files of objects and lists.
    bytes: Rc<Cell<usize>>,
}

impl Killed {
    fn after(steps: usize) -> Self {
        Killed { left: Rc::new(Cell::new(steps)), bytes: Rc::default() }
    }

    fn step(&self) -> io::Result<()> {
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(io::Error::other("killed")),
        }
    }
}

impl Disk for Killed {
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        SystemDisk.read(path)
    }

    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if let Err(killed) = self.step() {
            SystemDisk.write(path, &bytes[..bytes.len() / 2])?;
            return Err(killed);
        }
        self.bytes.set(self.bytes.get() + bytes.len());
        SystemDisk.write(path, bytes)
    }

    fn append(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if let Err(killed) = self.step() {
            SystemDisk.append(path, &bytes[..bytes.len() / 2])?;
            return Err(killed);
        }
        self.bytes.set(self.bytes.get() + bytes.len());
        SystemDisk.append(path, bytes)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        SystemDisk.rename(from, to)
    }

    fn sync_folder(&mut self, folder: &Path) -> io::Result<()> {
        self.step()?;
        SystemDisk.sync_folder(folder)
    }

    fn make_folder(&mut self, folder: &Path) -> io::Result<()> {
        self.step()?;
        SystemDisk.make_folder(folder)
    }

    fn names(&mut self, folder: &Path) -> io::Result<Vec<String>> {
        self.step()?;
        SystemDisk.names(folder)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.step()?;
        SystemDisk.remove(path)
    }
}

fn policy(name: &str, text: &str) -> Arc<Object> {
    Arc::new(Object::Policy(Policy { name: name.into(), tenant: 1, text: text.into() }))
}

fn held(generation: u64, objects: &[Arc<Object>]) -> ControllerGeneration {
    ControllerGeneration {
        generation,
        objects: objects.iter().map(|object| (object.key(), Arc::clone(object))).collect(),
    }
}

/// A folder that is removed after the test.
struct StoreTestFolder(PathBuf);

impl StoreTestFolder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bartizan-store-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        StoreTestFolder(path.join("deep/state"))
    }

    fn objects(&self) -> usize {
        std::fs::read_dir(self.0.join(OBJECTS)).map_or(0, Iterator::count)
    }
}

impl Drop for StoreTestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.ancestors().nth(2).unwrap());
    }
}

#[test]
fn a_save_that_is_killed_at_any_step_leaves_the_one_before_or_the_next() {
    let (kept, gone, new) = (policy("kept", "k"), policy("changed", "1"), policy("changed", "2"));
    let first = held(1, &[kept.clone(), gone]);
    let second = held(2, &[kept, new, policy("more", "m")]);
    let mut seen = BTreeSet::new();
    for steps in 0.. {
        let folder = StoreTestFolder::new(&format!("killed-{steps}"));
        FileStore::new(&folder.0).save(&first).unwrap();
        let disk = Killed::after(steps);
        let mut store = FileStore::on(&folder.0, disk.clone());
        assert_eq!(store.load().unwrap(), first);
        let saved = store.save(&second).is_ok();
        let whole = disk.left.get() > 0;
        // The next start.
        let mut again = FileStore::new(&folder.0);
        let found = again.load().unwrap();
        assert!(found == first || found == second, "{steps}");
        assert!(!saved || found == second, "{steps}: said to be stored, and is not");
        seen.insert(found.generation);
        // Remains of the stopped store do no harm, and are removed.
        again.save(&held(3, &[policy("changed", "3")])).unwrap();
        assert_eq!((again.load().unwrap().generation, folder.objects()), (3, 1), "{steps}");
        if whole {
            break;
        }
    }
    assert_eq!(seen, [1, 2].into());
}

/// Successive changes, killed at any step: the next start finds the last confirmed change, or the one in
/// progress.
#[test]
fn changes_that_are_killed_at_any_step_leave_the_last_that_was_stored_or_the_next() {
    let text = |number: u64| policy("changed", &number.to_string());
    let kept = policy("kept", "k");
    let of = |number: u64| match number % 3 {
        0 => held(number, &[kept.clone(), text(number)]),
        1 => held(number, &[text(number), policy("more", "m")]),
        _ => held(number, std::slice::from_ref(&kept)),
    };
    // Two journals that end, and into the third.
    let last = 20;
    for steps in 0..70 {
        let folder = StoreTestFolder::new(&format!("journal-{steps}"));
        let disk = Killed::after(steps);
        let mut store = FileStore::on(&folder.0, disk.clone());
        store.records_max = 7;
        let stored = (1..=last).take_while(|number| store.save(&of(*number)).is_ok()).last().unwrap_or(0);
        let found = FileStore::new(&folder.0).load().unwrap();
        let whole = |number: u64| if number == 0 { ControllerGeneration::default() } else { of(number) };
        assert!(found == whole(stored) || found == whole(stored + 1), "{steps}: {stored}, {found:?}");
        // It goes on from there.
        let mut again = FileStore::new(&folder.0);
        let number = again.load().unwrap().generation;
        for number in number + 1..number + 5 {
            again.save(&of(number)).unwrap();
            assert_eq!(FileStore::new(&folder.0).load().unwrap(), of(number), "{steps}");
        }
        let journals = std::fs::read_dir(&folder.0).unwrap();
        let journals =
            journals.filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with(JOURNAL));
        assert_eq!(journals.count(), 1, "{steps}");
    }
}

/// Every fourth change cannot run, which is known only after it is saved ahead. Killed at any step, a start
/// finds the last generation that could run, or the next one; with one that cannot run, also the last that
/// could.
#[test]
fn what_was_saved_ahead_and_cannot_run_leads_back_at_any_step() {
    let kept = policy("kept", "k");
    let of = |number: u64| match number % 3 {
        0 => held(number, &[kept.clone(), policy("changed", &number.to_string())]),
        1 => held(number, &[policy("changed", &number.to_string()), policy("more", "m")]),
        _ => held(number, std::slice::from_ref(&kept)),
    };
    let runs = |number: u64| !number.is_multiple_of(4);
    let one =
        |store: &mut FileStore<Killed>, number: u64| match (store.save_ahead(&of(number))?, runs(number)) {
            (true, true) | (false, false) => Ok(()),
            (true, false) => store.withdraw(),
            (false, true) => store.save(&of(number)),
        };
    let (mut stepped_back, mut whole) = (0, 0);
    for steps in 0..70 {
        let folder = StoreTestFolder::new(&format!("ahead-{steps}"));
        let mut store = FileStore::on(&folder.0, Killed::after(steps));
        store.records_max = 7;
        let done = (1..=20).take_while(|number| one(&mut store, *number).is_ok()).last().unwrap_or(0);
        let stored = (0..=done).rev().find(|number| runs(*number)).unwrap_or(0);
        let last = if stored == 0 { ControllerGeneration::default() } else { of(stored) };
        let mut again = FileStore::new(&folder.0);
        let mut found = again.load().unwrap();
        if found.generation > 0 && !runs(found.generation) {
            assert_eq!((found, again.before().as_ref()), (of(done + 1), Some(&last)), "{steps}");
            again.withdraw().unwrap();
            found = last;
            stepped_back += 1;
        } else {
            assert!(found == last || found == of(done + 1), "{steps}: {stored}, {found:?}");
        }
        whole += u64::from(done == 20);
        for number in found.generation + 1..found.generation + 5 {
            again.save(&of(number)).unwrap();
            assert_eq!(FileStore::new(&folder.0).load().unwrap(), of(number), "{steps}");
        }
    }
    assert!(stepped_back >= 3 && whole > 0, "{stepped_back} {whole}");
}

#[test]
fn a_change_that_is_withdrawn_is_two_lines_and_what_large_changes_are_is_not_saved_ahead() {
    let folder = StoreTestFolder::new("withdrawn");
    let mut store = FileStore::new(&folder.0);
    let (one, two) =
        (held(1, &[policy("a", "1"), policy("b", "1")]), held(2, &[policy("a", "2"), policy("c", "2")]));
    assert!(!store.save_ahead(&one).unwrap(), "there is no journal yet");
    assert_eq!(FileStore::new(&folder.0).load().unwrap(), ControllerGeneration::default());
    store.save(&one).unwrap();
    assert_eq!(store.before(), None);
    assert!(store.save_ahead(&two).unwrap());
    assert_eq!((store.before(), FileStore::new(&folder.0).load().unwrap()), (Some(one.clone()), two));
    store.withdraw().unwrap();
    store.withdraw().unwrap();
    let journal = std::fs::read_to_string(folder.0.join(format!("{JOURNAL}1"))).unwrap();
    assert_eq!((journal.lines().count(), FileStore::new(&folder.0).load().unwrap()), (2, one));
    let large = held(3, &[policy("a", &"x".repeat(RECORD_MAX))]);
    assert!(!store.save_ahead(&large).unwrap());
    store.save(&large).unwrap();
    assert_eq!(FileStore::new(&folder.0).load().unwrap(), large);
}

/// Every change kills the program during its build, or the next start, or is proven. A proven generation is
/// found for good; an unproven one is tried once by a start, and a start after a failed attempt begins with
/// the one before.
#[test]
fn what_no_build_has_proven_is_tried_once_by_a_start() {
    let folder = StoreTestFolder::new("unproven");
    let of = |number: u64| held(number, &[policy("changed", &number.to_string())]);
    let start = || {
        let mut store = FileStore::new(&folder.0);
        let found = store.load().unwrap();
        let may = store.may_build().unwrap();
        (store, found, may)
    };
    let mut store = FileStore::new(&folder.0);
    store.save(&of(1)).unwrap();
    // Proven, then killed: any number of starts begins with it.
    assert!(store.save_ahead(&of(2)).unwrap());
    store.prove().unwrap();
    for _ in 0..3 {
        let (_, found, may) = start();
        assert_eq!((found, may), (of(2), true));
    }
    // Killed during the build, and in the next start as well: the third start begins with the generation
    // before, however often.
    let (mut store, ..) = start();
    store.save(&of(3)).unwrap();
    assert!(store.save_ahead(&of(4)).unwrap());
    assert_eq!((start().1, start().2), (of(4), false));
    for _ in 0..3 {
        let (store, found, may) = start();
        assert_eq!((found, may, store.before()), (of(4), false, Some(of(3))));
    }
    // The controller sends the generation again, and now it builds.
    let (mut store, ..) = start();
    store.withdraw().unwrap();
    assert!(!store.save_ahead(&of(4)).unwrap());
    store.save(&of(4)).unwrap();
    assert_eq!((start().1, start().2), (of(4), true));
    assert!(!folder.0.join(TRIAL).exists());
    // A start proves the generation that it tries.
    assert!(store.save_ahead(&of(5)).unwrap());
    let (mut store, found, may) = start();
    assert_eq!((found, may), (of(5), true));
    store.prove().unwrap();
    for _ in 0..3 {
        let (_, found, may) = start();
        assert_eq!((found, may), (of(5), true));
    }
    assert!(!folder.0.join(TRIAL).exists());
}

#[test]
fn a_proof_that_is_cut_off_or_lost_is_none_and_journals_of_before_are_read() {
    let folder = StoreTestFolder::new("proof");
    let (one, two) = (held(1, &[policy("a", "1")]), held(2, &[policy("a", "2")]));
    let mut store = FileStore::new(&folder.0);
    store.save(&one).unwrap();
    assert!(store.save_ahead(&two).unwrap());
    store.prove().unwrap();
    let path = folder.0.join(format!("{JOURNAL}1"));
    let whole = std::fs::read_to_string(&path).unwrap();
    let ahead = whole.lines().next().unwrap().len() + 1;
    for end in ahead..=whole.len() {
        std::fs::write(&path, &whole[..end]).unwrap();
        let mut again = FileStore::new(&folder.0);
        assert_eq!((again.load().unwrap(), again.is_unproven), (two.clone(), end < whole.len()));
    }
    // Up to format 3 lines have no state: none is unproven.
    let old = whole[..ahead].replace(",\"line\":\"ahead\"", "");
    assert_ne!(old.len(), ahead);
    std::fs::write(&path, old).unwrap();
    let mut again = FileStore::new(&folder.0);
    assert_eq!((again.load().unwrap(), again.is_unproven), (two, false));
}

#[test]
fn a_small_change_is_one_step_on_the_disk() {
    let many: Vec<Arc<Object>> = (0..100).map(|n| policy(&format!("p{n}"), "text")).collect();
    let folder = StoreTestFolder::new("steps");
    let disk = Killed::after(1 << 20);
    let mut store = FileStore::on(&folder.0, disk.clone());
    store.records_max = 20;
    store.save(&held(1, &many)).unwrap();
    let mut next = many.clone();
    for turn in 0..20 {
        next[turn] = policy(&format!("p{turn}"), "another text");
        let (left, bytes) = (disk.left.get(), disk.bytes.get());
        store.save(&held(2, &next)).unwrap();
        assert_eq!(left - disk.left.get(), 1);
        assert!(disk.bytes.get() - bytes < 250);
    }
    // Changes that do not fit a line, or come when the journal is full, are written with objects and list.
    for large in [policy("p1", &"x".repeat(RECORD_MAX)), policy("p1", "small")] {
        next[1] = large;
        let left = disk.left.get();
        store.save(&held(3, &next)).unwrap();
        assert!(left - disk.left.get() > 1 || next[1].bytes() < 10);
        assert_eq!(FileStore::new(&folder.0).load().unwrap(), held(3, &next));
    }
}

#[test]
fn a_broken_journal_is_said_and_a_cut_one_is_as_far_as_it_goes() {
    let folder = StoreTestFolder::new("journal");
    let mut store = FileStore::new(&folder.0);
    for number in 1..5 {
        store.save(&held(number, &[policy("a", &format!("text {number}"))])).unwrap();
    }
    let path = folder.0.join(format!("{JOURNAL}1"));
    let good = std::fs::read_to_string(&path).unwrap();
    assert_eq!(good.lines().count(), 3);
    let load = |text: &str| {
        std::fs::write(&path, text).unwrap();
        FileStore::new(&folder.0).load()
    };
    for end in 0..=good.len() {
        let lines = good[..end].matches('\n').count() as u64;
        assert_eq!(load(&good[..end]).unwrap().generation, 1 + lines);
    }
    for (from, to, expected) in [
        ("text 2", "text 9", "does not have the stored hash"),
        ("\"gone\"", "\"went\"", "unknown field"),
        ("{\"generation\":2", "{\"generation\":-2", "invalid value"),
    ] {
        let error = load(&good.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("move the folder"), "{error}");
    }
    // A list of the previous format has no journal.
    let list = folder.0.join(LIST);
    let text = std::fs::read_to_string(&list).unwrap();
    let old = text.replace("\"form\":4", "\"form\":2").replace(",\"journal\":1", "");
    assert_ne!(text, old);
    std::fs::write(&list, old).unwrap();
    assert_eq!(load(&good).unwrap().generation, 1);
}

#[test]
fn a_change_writes_what_is_new_and_the_list() {
    let lines = (0..2_000).map(|n| format!("alert tcp any any -> any any (content:\"abcdefgh\"; sid:{n};)"));
    let rules = GroupRules::Raw(lines.collect());
    let rules = Arc::new(Object::Group(RuleGroup { id: 1, tenant: 0, rule_type: RuleType::Ids, rules }));
    let many: Vec<Arc<Object>> = (0..100).map(|n| policy(&format!("p{n}"), "text")).chain([rules]).collect();
    let folder = StoreTestFolder::new("small");
    let disk = Killed::after(usize::MAX);
    let mut store = FileStore::on(&folder.0, disk.clone());
    store.save(&held(1, &many)).unwrap();
    let all = disk.bytes.take();
    let mut next = many.clone();
    next[7] = policy("p7", "another text");
    // Also after a start.
    let mut store = FileStore::on(&folder.0, disk.clone());
    let loaded = store.load().unwrap();
    assert_eq!(loaded, held(1, &many));
    let mut next = held(2, &next);
    next.objects.iter_mut().for_each(|(key, object)| {
        if let Some(same) = loaded.objects.get(key).filter(|known| **known == *object) {
            *object = Arc::clone(same);
        }
    });
    store.save(&next).unwrap();
    let written = disk.bytes.get();
    assert!(all > 100_000 && written < 15_000, "{all} {written}");
    assert_eq!((store.load().unwrap(), folder.objects()), (next, 101));
}

#[test]
fn what_is_broken_is_said_with_the_file_and_what_to_do() {
    let folder = StoreTestFolder::new("broken");
    let mut store = FileStore::new(&folder.0);
    assert_eq!(store.load().unwrap(), ControllerGeneration::default());
    let object = policy("a", "text");
    store.save(&held(1, std::slice::from_ref(&object))).unwrap();
    let path = folder.0.join(OBJECTS).join(object.hash().to_string());
    let good = std::fs::read(&path).unwrap();
    let other = String::from_utf8(good.clone()).unwrap().replace(r#":"text""#, r#":"txet""#);
    for (bytes, expected) in [
        (other.into_bytes(), "differs from the stored object"),
        (good[..good.len() / 2].to_vec(), "EOF"),
        (vec![0xff; 9], "line 1"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let error = FileStore::new(&folder.0).load().unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("move the folder"), "{error}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(FileStore::new(&folder.0).load().unwrap_err().to_string().contains("No such file"));
    std::fs::write(folder.0.join(LIST), r#"{"form":1,"generation":1,"objects":{}}"#).unwrap();
    assert!(FileStore::new(&folder.0).load().unwrap_err().to_string().contains("form 1 is unknown"));
}
