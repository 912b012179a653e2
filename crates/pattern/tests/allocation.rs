// SPDX-License-Identifier: Apache-2.0
//! No scan allocates once its scratch is prepared: counted in a global allocator. C libraries do not use that
//! one; their memory is counted by `Scratch::grown`.
#![allow(unsafe_code, reason = "a global allocator cannot be written without")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bartizan_pattern::{Finder, MatchOptions, Matches, Pattern, RegexFlags, RegexPattern, Scratch};

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: hands everything through to the system's allocator; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn counted(work: impl FnOnce()) -> u64 {
    let before = COUNT.with(Cell::get);
    work();
    COUNT.with(Cell::get) - before
}

#[test]
fn prepared_scans_do_not_allocate() {
    assert!(counted(|| drop(std::hint::black_box(vec![1u8]))) > 0, "the counter counts");
    let words: Vec<String> = (0..600).map(|n| format!("Word{n}=")).collect();
    let patterns: Vec<_> =
        (0..).zip(&words).map(|(id, w)| Pattern { id, bytes: w.as_bytes(), nocase: id % 3 == 0 }).collect();
    let haystack = words.join("&").into_bytes();
    for (engine, compiler) in common::compilers() {
        let mut scratch = Scratch::new();
        for (count, matches) in
            [(3, Matches::All), (12, Matches::First), (600, Matches::First), (600, Matches::All)]
        {
            let set = compiler.pattern_set(&patterns[..count], matches).unwrap();
            scratch.prepare_patterns(&set).unwrap();
            let grown = scratch.grown();
            let mut hits = 0;
            let allocated = counted(|| {
                set.scan(&mut scratch, &haystack, |_, _| {
                    hits += 1;
                    true
                })
                .unwrap();
            });
            assert_eq!((allocated, scratch.grown(), hits), (0, grown, count), "{engine}, {count}");
        }
        let regexes: Vec<_> = [&b"Word\\d+="[..], b"(W)ord(\\d)\\2", b"^Word0"]
            .into_iter()
            .map(|pattern| RegexPattern { id: 1, pattern, flags: RegexFlags::CASELESS })
            .collect();
        let set = compiler.regex_set(&regexes).unwrap();
        scratch.prepare_regexes(&set).unwrap();
        let grown = scratch.grown();
        let allocated = counted(|| assert_eq!(set.scan(&mut scratch, &haystack, |_| true), Ok(0)));
        assert_eq!((allocated, scratch.grown()), (0, grown), "{engine}");
    }
    let compiler = common::compilers().remove(0).1;
    let regex = compiler.regex(b"(\\w+)=&", RegexFlags::empty()).unwrap();
    let mut scratch = Scratch::new();
    scratch.prepare_regex(&regex).unwrap();
    let finder = Finder::new(b"wORD599=", true);
    let allocated = counted(|| {
        let found = regex.find_at(&mut scratch, &haystack, 5, MatchOptions::NOT_BOL).unwrap().unwrap();
        assert!(found.group(1).is_some_and(|(start, end)| 5 <= start && start < end));
        assert!(finder.find(&haystack).is_some());
    });
    assert_eq!(allocated, 0);
}
