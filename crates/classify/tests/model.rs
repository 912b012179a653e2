// SPDX-License-Identifier: Apache-2.0
//! A model check of [`live`]: its own source, on loom's atomics instead of the machine's.
//!
//! loom runs a reader and the writer in every order in which their steps can fall, and with every value
//! that the orderings (relaxed, acquire, release) let a load see. Each lookup has to return a result that
//! was right at some moment between its beginning and its end; an entry deleted before it began is not
//! found.
//!
//! Replaced parts of the crate: the primitives of `sync.rs` (a version is published by an atomic number
//! with acquire and release, as arc-swap does at least), the sizes, which are small, and the compiled
//! tables, which never change, by a linear search. Orders with more preemptions than a check names are left
//! out.
#![allow(dead_code, unused_imports, reason = "modules of the crate, of which the model uses some")]

#[path = "../src/classifier.rs"]
mod classifier;
#[path = "../src/flat.rs"]
mod flat;
#[path = "../src/header.rs"]
mod header;
#[path = "../src/list.rs"]
mod list;
#[path = "../src/live/mod.rs"]
mod live;

use split::InstructionSet;

/// Replaces `src/sync.rs`.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
    pub(crate) use loom::thread::yield_now as spin_loop;
    use std::ops::Deref;
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, Mutex};

    pub(crate) const DELTA_MAX: usize = 2;
    pub(crate) const ROOT_BITS: u32 = 1;

    /// The number of the published version, and all versions; threads of a model take turns, so no thread
    /// waits for the mutex.
    #[derive(Debug)]
    pub(crate) struct ArcSwap<T>(AtomicUsize, Mutex<Vec<Arc<T>>>);

    #[derive(Debug)]
    pub(crate) struct Guard<T>(Arc<T>);

    impl<T> Deref for Guard<T> {
        type Target = Arc<T>;
        fn deref(&self) -> &Arc<T> {
            &self.0
        }
    }

    impl<T> ArcSwap<T> {
        pub fn from_pointee(value: T) -> Self {
            ArcSwap(AtomicUsize::new(0), Mutex::new(vec![Arc::new(value)]))
        }

        pub fn load_full(&self) -> Arc<T> {
            let number = self.0.load(Ordering::Acquire);
            Arc::clone(&self.1.lock().unwrap()[number])
        }

        pub fn load(&self) -> Guard<T> {
            Guard(self.load_full())
        }

        pub fn store(&self, value: Arc<T>) {
            let number = {
                let mut all = self.1.lock().unwrap();
                all.push(value);
                all.len() - 1
            };
            self.0.store(number, Ordering::Release);
        }
    }

    /// A cell whose value every thread sees that sees the flag.
    #[derive(Debug)]
    pub(crate) struct OnceLock<T>(AtomicBool, std::sync::OnceLock<T>);

    impl<T> OnceLock<T> {
        pub fn new() -> Self {
            OnceLock(AtomicBool::new(false), std::sync::OnceLock::new())
        }

        pub fn get(&self) -> Option<&T> {
            if self.0.load(Ordering::Acquire) { self.1.get() } else { None }
        }

        pub fn set(&self, value: T) -> Result<(), T> {
            self.1.set(value)?;
            self.0.store(true, Ordering::Release);
            Ok(())
        }
    }
}

/// Replaces `src/split`, by linear search.
mod split {
    use crate::flat::{FlatV4, FlatV6};
    use crate::header::{Header, HeaderRule};

    pub(crate) const BLOCK: usize = 2;
    pub(crate) const NONE: u32 = u32::MAX;

    #[derive(Clone, Copy, Debug)]
    pub struct Options {
        pub budget: usize,
        pub fast: bool,
    }

    #[derive(Clone, Copy, Debug)]
    pub enum InstructionSet {}

    #[derive(Debug)]
    pub struct Compiled(Vec<Vec<HeaderRule>>);

    impl Compiled {
        pub fn new(sets: &[Vec<HeaderRule>], _: Options) -> Self {
            Compiled(sets.to_vec())
        }

        pub fn leaves<'r>(_: impl Iterator<Item = &'r HeaderRule> + Clone, _: usize) -> bool {
            false
        }

        pub fn within(sets: &[Vec<HeaderRule>], options: Options, _: usize) -> Option<Self> {
            Some(Compiled::new(sets, options))
        }

        fn first(&self, header: &Header, set: usize, from: u32, valid: &dyn Fn(u32) -> bool) -> u32 {
            let rules = self.0[set].iter().enumerate().skip(from as usize);
            let mut matching = rules.filter(|(_, r)| r.matches(header)).map(|(rank, _)| rank as u32);
            matching.find(|rank| valid(*rank)).unwrap_or(u32::MAX)
        }

        fn block<H>(&self, headers: &[H], best: &mut [[u32; BLOCK]])
        where
            Header: for<'a> From<&'a H>,
        {
            for (set, best) in best.iter_mut().enumerate() {
                for (header, best) in headers.iter().zip(best) {
                    *best = self.first(&header.into(), set, 0, &|_| true);
                }
            }
        }

        fn one(&self, header: &Header, best: &mut [u32]) {
            for (set, best) in best.iter_mut().enumerate() {
                *best = self.first(header, set, 0, &|_| true);
            }
        }

        pub fn block_v4(&self, headers: &[FlatV4], best: &mut [[u32; BLOCK]]) {
            self.block(headers, best);
        }

        pub fn block_v6(&self, headers: &[FlatV6], best: &mut [[u32; BLOCK]]) {
            self.block(headers, best);
        }

        pub fn first_v4(&self, header: &FlatV4, best: &mut [u32]) {
            self.one(&header.into(), best);
        }

        pub fn first_v6(&self, header: &FlatV6, best: &mut [u32]) {
            self.one(&header.into(), best);
        }

        pub fn next_v4(&self, header: &FlatV4, set: u8, rank: u32, valid: &dyn Fn(u32) -> bool) -> u32 {
            self.first(&header.into(), set.into(), rank, valid)
        }

        pub fn next_v6(&self, header: &FlatV6, set: u8, rank: u32, valid: &dyn Fn(u32) -> bool) -> u32 {
            self.first(&header.into(), set.into(), rank, valid)
        }

        pub fn set_level(&mut self, _: InstructionSet) {}

        pub fn rest(&self) -> usize {
            0
        }

        pub fn summary(&self) -> impl Iterator<Item = &str> {
            std::iter::empty()
        }

        pub fn memory(&self) -> usize {
            0
        }
    }
}

use bartizan_base::Fid;
use classifier::{Classifier, Linear, NO_FID, RankedRule};
use flat::{FlatV4, FlatV6};
use header::{HeaderRule, Net, Range};
use live::{Live, Reader};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};

/// A step of the writer.
#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(RankedRule),
    Delete(Fid),
    /// Compiles anew and publishes; the next step comes in between.
    Begin,
    Finish,
}

/// An entry that matches everything.
fn entry(fid: u32, priority: u32) -> RankedRule {
    RankedRule { fid: Fid(fid), priority, rule: HeaderRule::default() }
}

/// The right result after each of the steps, the first before any.
fn answers(first: &[RankedRule], steps: &[Step]) -> Vec<Fid> {
    let mut linear = Linear::new(1);
    linear.insert(0, first).unwrap();
    let mut right = Vec::new();
    for step in [None].into_iter().chain(steps.iter().map(Some)) {
        match step {
            Some(Step::Insert(entry)) => linear.insert(0, &[*entry]).unwrap(),
            Some(Step::Delete(fid)) => assert_eq!(linear.delete(*fid), 1),
            _ => {}
        }
        let mut fid = [NO_FID];
        linear.fids_v4(&[FlatV4::default()], &mut fid);
        right.push(fid[0]);
    }
    right
}

/// Steps begun and done.
struct Progress {
    /// Outside of the model: whatever value a lookup saw, the step that wrote it has begun.
    begun: std::sync::atomic::AtomicUsize,
    done: AtomicUsize,
}

/// Runs the steps during so many lookups of a reader, in every order with so many preemptions. Entries `gone`
/// are deleted before.
fn check(first: &[RankedRule], gone: &[Fid], steps: &[Step], lookups: usize, preemptions: usize) {
    // A header by itself and headers of a batch are found in different ways.
    for headers in [1, 2] {
        check_of(headers, first, gone, steps, lookups, preemptions);
    }
}

/// As [`check`], each lookup of so many headers.
fn check_of(
    headers: usize,
    first: &[RankedRule],
    gone: &[Fid],
    steps: &[Step],
    lookups: usize,
    preemptions: usize,
) {
    let left: Vec<RankedRule> = first.iter().copied().filter(|e| !gone.contains(&e.fid)).collect();
    let right = answers(&left, steps);
    let (first, gone, steps) = (first.to_vec(), gone.to_vec(), steps.to_vec());
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let mut live = Live::new(1, 0);
        live.insert(0, &first).unwrap();
        let rebuild = live.begin(false);
        assert!(live.finish(rebuild.run()));
        gone.iter().for_each(|fid| assert_eq!(live.delete(*fid), 1));
        let reader = live.reader();
        let progress = Arc::new(Progress { begun: 0.into(), done: AtomicUsize::new(0) });
        let shown = Arc::clone(&progress);
        let steps = steps.clone();
        let writer = loom::thread::spawn(move || {
            let mut rebuild = None;
            for (index, step) in steps.iter().enumerate() {
                shown.begun.store(index + 1, Ordering::Release);
                match step {
                    Step::Insert(entry) => live.insert(0, &[*entry]).unwrap(),
                    Step::Delete(fid) => assert_eq!(live.delete(*fid), 1),
                    Step::Begin => rebuild = Some(live.begin(false)),
                    Step::Finish => assert!(live.finish(rebuild.take().unwrap().run())),
                }
                shown.done.store(index + 1, Ordering::Release);
            }
        });
        for _ in 0..lookups {
            // All that is done before a lookup begins is seen by it.
            let from = progress.done.load(Ordering::Acquire);
            let mut found = vec![NO_FID; headers];
            reader.version().fids_v4(&vec![FlatV4::default(); headers], &mut found);
            let to = progress.begun.load(Ordering::Acquire);
            let allowed = &right[from..=to];
            for found in found {
                assert!(allowed.contains(&found), "{found:?} found, {allowed:?} right, steps {from} to {to}");
            }
        }
        writer.join().unwrap();
    });
}

#[test]
fn a_delete_is_seen_by_the_next_lookup() {
    check(&[entry(1, 1), entry(9, 9)], &[], &[Step::Delete(Fid(1))], 2, 3);
}

#[test]
fn an_entry_that_comes_back_has_its_new_fid() {
    let steps = [Step::Delete(Fid(1)), Step::Insert(entry(2, 1))];
    check(&[entry(1, 1), entry(9, 9)], &[], &steps, 2, 3);
}

#[test]
fn an_added_entry_is_seen_whole() {
    check(&[entry(9, 9)], &[], &[Step::Insert(entry(1, 1)), Step::Delete(Fid(1))], 2, 3);
}

#[test]
fn what_is_put_in_place_of_another_leaves_no_gap() {
    // Added before the compiled one goes; the compiled one back before the added one goes; both compiled.
    check(&[entry(1, 1), entry(9, 9)], &[], &[Step::Insert(entry(2, 2)), Step::Delete(Fid(1))], 1, 3);
    let steps = [Step::Insert(entry(2, 2)), Step::Insert(entry(1, 1)), Step::Delete(Fid(2))];
    check(&[entry(1, 1), entry(9, 9)], &[Fid(1)], &steps, 1, 3);
    let steps = [Step::Insert(entry(1, 1)), Step::Delete(Fid(2))];
    check(&[entry(1, 1), entry(2, 2), entry(9, 9)], &[Fid(1)], &steps, 1, 3);
}

#[test]
fn a_new_version_has_what_changed_while_it_was_compiled() {
    let first = [entry(1, 1), entry(2, 2), entry(9, 9)];
    let steps = [Step::Begin, Step::Delete(Fid(1)), Step::Finish, Step::Delete(Fid(2))];
    check(&first, &[], &steps, 2, 2);
    let steps = [
        Step::Delete(Fid(1)),
        Step::Begin,
        Step::Delete(Fid(2)),
        Step::Insert(entry(3, 3)),
        Step::Finish,
        Step::Delete(Fid(3)),
    ];
    check(&first, &[], &steps, 1, 2);
}
