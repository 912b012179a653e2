// SPDX-License-Identifier: Apache-2.0
//! The cache on disk: hits, damage, foreign files, several processes' worth of writers, the limit.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bartizan_pattern::{
    Cache, CacheCounters, CacheError, Compiler, Config, Matches, Pattern, PatternEngine, PatternSet,
    RegexFlags, RegexPattern, Scratch,
};

/// A folder of this test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("bartizan-pattern-{}-{number}", std::process::id())))
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A compiler that uses libhs for everything, with a new view of the folder; `None` (with a message) if libhs
/// is not installed.
fn compiler(folder: &Path) -> Option<(Compiler, Arc<Cache>)> {
    let cache = Arc::new(Cache::open(folder).unwrap());
    let config =
        Config { engine: PatternEngine::Hyperscan, cache: Some(Arc::clone(&cache)), ..Config::default() };
    match Compiler::new(config) {
        Ok(compiler) => Some((compiler, cache)),
        Err(error) => {
            eprintln!("not tested: {error}");
            None
        }
    }
}

fn works(compiler: &Compiler, ids: [u32; 2]) {
    let patterns = [
        Pattern { id: ids[0], bytes: b"first\0", nocase: true },
        Pattern { id: ids[1], bytes: b"second", nocase: false },
    ];
    let set = compiler.pattern_set(&patterns, Matches::All).unwrap();
    let mut hits = Vec::new();
    let mut push = |id, end| {
        hits.push((id, end));
        true
    };
    set.scan(&mut Scratch::new(), b"second FIRST\0 SECOND", &mut push).unwrap();
    hits.sort_unstable_by_key(|(_, end)| *end);
    assert_eq!(hits, [(ids[1], 6), (ids[0], 13)]);
}

#[test]
fn the_second_start_loads_what_the_first_compiled() {
    let folder = Folder::new();
    let Some((first, cache)) = compiler(&folder.0) else { return };
    works(&first, [1, 2]);
    assert_eq!(cache.counters(), CacheCounters { misses: 1, stored: 1, ..CacheCounters::default() });
    let (second, cache) = compiler(&folder.0).unwrap();
    // Other ids and another order give the same database.
    works(&second, [9, 4]);
    assert_eq!(cache.counters(), CacheCounters { hits: 1, ..CacheCounters::default() });
    assert_eq!(second.info().cache, Some(cache.counters()));
    let patterns = [RegexPattern { id: 5, pattern: b"se[ck]ond", flags: RegexFlags::CASELESS }];
    for expected in [0, 1] {
        let (third, cache) = compiler(&folder.0).unwrap();
        let set = third.regex_set(&patterns).unwrap();
        let mut found = 0;
        set.scan(&mut Scratch::new(), b"SEKOND", |id| {
            found = id;
            true
        })
        .unwrap();
        assert_eq!((found, cache.counters().hits), (5, expected));
    }
}

#[test]
fn whatever_is_wrong_with_a_file_it_is_compiled_again() {
    let folder = Folder::new();
    let Some((first, _)) = compiler(&folder.0) else { return };
    works(&first, [1, 2]);
    let [file] = &folder.files()[..] else { panic!("one file") };
    let good = fs::read(file).unwrap();
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let mut damaged: Vec<Vec<u8>> =
        vec![Vec::new(), b"not a database".to_vec(), good[..71].to_vec(), good[..72].to_vec()];
    damaged.push(good[..good.len() - 1].to_vec());
    damaged.push([&good[..], b"x"].concat());
    damaged.extend([0, 8, 40, 72, good.len() / 2, good.len() - 1].map(flipped));
    for (number, bytes) in damaged.iter().enumerate() {
        fs::write(file, bytes).unwrap();
        let (compiler, cache) = compiler(&folder.0).unwrap();
        works(&compiler, [1, 2]);
        let counters = cache.counters();
        assert_eq!((counters.refused, counters.stored, counters.hits), (1, 1, 0), "damage {number}");
        assert_eq!(fs::read(file).unwrap()[..72], good[..72], "written anew");
    }
}

#[test]
fn a_whole_file_that_libhs_does_not_accept_is_compiled_again() {
    use sha2::{Digest as _, Sha256};
    let folder = Folder::new();
    let Some((first, _)) = compiler(&folder.0) else { return };
    works(&first, [1, 2]);
    let [file] = &folder.files()[..] else { panic!("one file") };
    let mut bytes = fs::read(file).unwrap();
    // The second word of a serialized database is its version: one of another release, with a checksum that
    // holds.
    bytes[72 + 4] ^= 0xff;
    let checksum = Sha256::digest(&bytes[72..]);
    bytes[40..72].copy_from_slice(&checksum);
    fs::write(file, &bytes).unwrap();
    let (second, cache) = compiler(&folder.0).unwrap();
    works(&second, [1, 2]);
    assert_eq!(cache.counters(), CacheCounters { refused: 1, stored: 1, ..CacheCounters::default() });
}

#[test]
fn many_writers_at_once() {
    let folder = Folder::new();
    if compiler(&folder.0).is_none() {
        return;
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    // Each with its own view and library handle, as in separate processes.
                    works(&compiler(&folder.0).unwrap().0, [1, 2]);
                }
            });
        }
    });
    assert_eq!(folder.files().len(), 1, "no temporary file is left");
}

#[test]
fn the_folder_stays_within_its_limit_and_keeps_what_others_put_there() {
    let folder = Folder::new();
    if compiler(&folder.0).is_none() {
        return;
    }
    let other = folder.0.join("README");
    fs::write(&other, "not ours").unwrap();
    let limit = 64 * 1024;
    let cache = Arc::new(Cache::with_limit(&folder.0, limit).unwrap());
    let config =
        Config { engine: PatternEngine::Hyperscan, cache: Some(Arc::clone(&cache)), ..Config::default() };
    let compiler = Compiler::new(config).unwrap();
    for number in 0..40 {
        let word = format!("word number {number}");
        compiler
            .pattern_set(&[Pattern { id: 1, bytes: word.as_bytes(), nocase: true }], Matches::First)
            .unwrap();
        let size: u64 = folder.files().iter().map(|file| fs::metadata(file).unwrap().len().max(4096)).sum();
        assert!(size <= limit + 4096, "{size}");
    }
    let counters = cache.counters();
    assert_eq!(counters.stored, 40);
    assert!(counters.pruned > 0 && other.exists());
    let word = "word number 39";
    compiler.pattern_set(&[Pattern { id: 1, bytes: word.as_bytes(), nocase: true }], Matches::First).unwrap();
    assert_eq!(cache.counters().hits, counters.hits + 1, "the youngest is still there");
}

#[test]
fn a_folder_that_others_can_write_to_is_refused() {
    let folder = Folder::new();
    drop(Cache::open(&folder.0).unwrap());
    assert_eq!(fs::metadata(&folder.0).unwrap().permissions().mode() & 0o777, 0o700);
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
    let error = Cache::open(&folder.0).unwrap_err();
    assert!(matches!(error, CacheError::Unsafe { .. }) && error.to_string().contains("chmod 700"), "{error}");
    let file = folder.0.join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(Cache::open(&file), Err(CacheError::Folder { .. })));
}

#[test]
fn a_folder_that_vanishes_costs_only_the_cache() {
    let folder = Folder::new();
    let Some((compiler, cache)) = compiler(&folder.0) else { return };
    fs::remove_dir_all(&folder.0).unwrap();
    works(&compiler, [1, 2]);
    assert_eq!(cache.counters(), CacheCounters { misses: 1, failed: 1, ..CacheCounters::default() });
}

#[test]
fn sets_that_live_at_the_same_time_share_their_database() {
    let folder = Folder::new();
    let Some((compiler, cache)) = compiler(&folder.0) else { return };
    let set = |ids: [u32; 2], second: &[u8]| {
        let patterns = [
            Pattern { id: ids[0], bytes: b"first", nocase: true },
            Pattern { id: ids[1], bytes: second, nocase: false },
        ];
        compiler.pattern_set(&patterns, Matches::All).unwrap()
    };
    let found = |set: &PatternSet| {
        let mut ids = Vec::new();
        let mut scratch = Scratch::new();
        set.scan(&mut scratch, b"First, then second", |id, _| {
            ids.push(id);
            true
        })
        .unwrap();
        ids
    };
    let (one, other) = (set([1, 2], b"second"), set([7, 9], b"second"));
    // Each with its own numbers, without another access to the folder or to libhs.
    assert_eq!((found(&one), found(&other)), (vec![1, 2], vec![7, 9]));
    assert_eq!(cache.counters(), CacheCounters { misses: 1, stored: 1, ..CacheCounters::default() });
    let third = set([1, 2], b"third");
    assert_eq!(found(&third), [1]);
    assert_eq!(cache.counters().misses, 2);
    // One set outlives the other; when both are dropped, the folder is read.
    drop(one);
    assert_eq!(found(&other), [7, 9]);
    drop(other);
    assert_eq!(found(&set([1, 2], b"second")), [1, 2]);
    assert_eq!(cache.counters().hits, 1);
}
